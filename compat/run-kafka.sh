#!/usr/bin/env bash
# This daemon against Apache Kafka 4.4.0: a differential of raw requests with every difference accounted for, the client
# scripts of run.sh against Kafka, Kafka's own tools against the daemon, and Kafka's dump tool over its files. See
# README.md. Installs what it needs (as root, Debian); everything runs in a temporary directory on free ports and is
# gone in the end.
#   arguments go to the program: -phases REGEXP of differential|clients|compared|tools|dump, -run REGEXP of scripts
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d "${TMPDIR:-/tmp}/compat-kafka.XXXXXX")
pid=

finish() {
  status=$?
  trap - EXIT
  if [ -n "$pid" ]; then
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  if [ $status -ne 0 ]; then
    for log in "$work"/*.log; do
      [ -s "$log" ] && { echo "--- $(basename "$log")"; tail -n 20 "$log"; } >&2
    done
  fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

packages=
command -v java >/dev/null || packages="default-jdk-headless"
command -v mvn >/dev/null || packages="$packages maven"
if [ -n "$packages" ]; then
  echo "compat-kafka: installing $packages"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends $packages >"$work/apt.log" 2>&1
fi

began=$SECONDS
lib="$PWD/kafka/target/lib"
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
jars() {
  mvn "$@" -q -B -f kafka/pom.xml "$copy" -DincludeScope=runtime -DoutputDirectory="$lib" >"$work/maven.log" 2>&1
}
if ! cmp -s kafka/pom.xml "$lib/.pom.xml"; then
  rm -rf "$lib"
  jars -o || jars
  cp kafka/pom.xml "$lib/.pom.xml"
fi
[ -x ../sekali ] || (cd .. && go build -o sekali ./cmd/sekali)
go vet ./kafka
go test ./kafka
go build -o "$work/kafka" ./kafka
echo "compat-kafka: ready after $((SECONDS - began)) s"

"$work/kafka" -lib "$lib" -dir "$work" -sekali "$PWD/../sekali" -clients "$PWD/run.sh" "$@" &
pid=$!
wait "$pid"
pid=
echo "compat-kafka: passed after $((SECONDS - began)) s"
