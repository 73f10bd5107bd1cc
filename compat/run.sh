#!/usr/bin/env bash
# The same script through seven Kafka clients, see README.md. Installs what it needs (as root, Debian), starts ../sekali
# on a free port with a temporary directory and removes both in the end.
#   BOOTSTRAP=HOST:PORT   use the broker that listens there, and do not start one
#   arguments             go to the program: -run REGEXP chooses scenarios, for instance -run '^java/'
set -euo pipefail
set -m # background jobs are process groups: what they started ends with them
cd "$(dirname "$0")"
work=$(mktemp -d "${TMPDIR:-/tmp}/compat.XXXXXX")
pids=()

finish() {
  status=$?
  trap - EXIT
  for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  wait
  if [ $status -ne 0 ]; then tail -n 40 "$work"/sekali.log "$work"/guarded/sekali.log >&2 2>/dev/null || true; fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# missing names the Debian packages that are not there, by the command or the file each one brings.
missing() {
  while read -r package need; do
    case $need in
      /*) [ -e "$need" ] || echo "$package" ;;
      *) command -v "$need" >/dev/null || echo "$package" ;;
    esac
  done <<'LIST'
gcc gcc
g++ g++
make make
python3 python3
default-jdk-headless javac
maven mvn
nodejs node
npm npm
libssl-dev /usr/include/openssl/ssl.h
zlib1g-dev /usr/include/zlib.h
libzstd-dev /usr/include/zstd.h
LIST
  [ -n "$(find /usr/include -path '*curl/curl.h' -print -quit)" ] || echo libcurl4-openssl-dev
}

packages=$(missing)
if [ -n "$packages" ]; then
  echo "compat: installing" $packages
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends $packages >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; exit 2; }
fi

# The Node packages, once for each lock file: librdkafka is compiled against the system's libraries, which takes
# minutes. Its headers of Node lie where Debian's packages put them; nothing is fetched but the packages.
node_packages() (
  cd node
  if ! cmp -s package-lock.json node_modules/.installed-lock; then
    prefix=$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")
    [ -e "$prefix/include/node/node.h" ] || apt-get install -y -qq --no-install-recommends libnode-dev
    CKJS_LINKING=dynamic npm_config_nodedir=$prefix npm ci --no-audit --no-fund
    cp package-lock.json node_modules/.installed-lock
  fi
)
java_program() { mvn -o -q -B -f java/pom.xml compile || mvn -q -B -f java/pom.xml compile; }

began=$SECONDS
node_packages >"$work/npm.log" 2>&1 &
node=$!
pids+=($node)
go vet . ./client ./corpus ./loop ./record
go test .
go build -o "$work/compat" .
go build -o loop/target/loop ./loop
java_program >"$work/mvn.log" 2>&1 || { cat "$work/mvn.log" >&2; exit 2; }
wait $node || { cat "$work/npm.log" >&2; exit 2; }
echo "compat: ready after $((SECONDS - began)) s"

if [ -n "${BOOTSTRAP:-}" ]; then
  broker=(-bootstrap "$BOOTSTRAP")
else
  broker=(-sekali "$PWD/../sekali")
fi
"$work/compat" "${broker[@]}" -dir "$work" -home "$PWD" "$@" &
pids=($!)
wait ${pids[0]}
