#!/usr/bin/env bash
# Commits per second of this daemon with durability=written beside Apache Kafka 4.4.0, which flushes nothing before it
# answers either: one Java client (kafka-clients 4.4.0, transactions version 2), one record per transaction, the brokers
# in turn. Both run at the same time on this machine with their usual settings; Kafka with the JVM options of its own
# start script. Needs a JDK and the libraries in compat/kafka/target/lib, which `make compat-kafka` fetches.
#   run.sh [ROUNDS [SECONDS]]
set -euo pipefail
cd "$(dirname "$0")"
rounds=${1:-7} seconds=${2:-5}
lib="$PWD/../kafka/target/lib"
[ -d "$lib" ] || { echo "bench-kafka: no $lib: run make compat-kafka first" >&2; exit 1; }
[ -x ../../sekali ] || (cd ../.. && go build -o sekali ./cmd/sekali)
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-kafka.XXXXXX")
pids=()

finish() {
  status=$?
  trap - EXIT
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [ $status -eq 0 ] || tail -n 20 "$work"/*.log >&2 || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
ours=$(free_port) theirs=$(free_port) controller=$(free_port)

cat >"$work/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$theirs,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$theirs
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/kafka
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
END
java -cp "$lib/*" kafka.tools.StorageTool format -t c2VrYWxpLWNvbXBhdC0xMg -c "$work/server.properties" \
  >"$work/format.log" 2>&1
java -server -Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
  -cp "$lib/*" kafka.Kafka "$work/server.properties" >"$work/kafka.log" 2>&1 &
pids+=($!)
../../sekali serve --durability=written --data "$work/sekali" --listen "127.0.0.1:$ours" --admin none \
  >"$work/sekali.log" 2>&1 &
pids+=($!)
for port in "$ours" "$theirs"; do
  for ((try = 0; try < 600; try++)); do
    accepts "$port" && break
    sleep 0.1
  done
done
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
javac -cp "$lib/*" -d "$work/classes" Commits.java
java -cp "$work/classes:$lib/*" Commits "$rounds" "$seconds" "sekali=127.0.0.1:$ours" "kafka=127.0.0.1:$theirs" \
  2>"$work/client.log"
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
