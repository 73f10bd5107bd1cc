#!/usr/bin/env bash
# Runs every fuzz target of the module for a given time each, one after the other: fuzz/smoke.sh 10s [NAME-REGEX]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s} only=${2:-.}
found=0 failed=0
while IFS=: read -r file name; do
  found=$((found + 1))
  pkg=./$(dirname "$file")
  printf -- '--- %s %s\n' "$pkg" "$name"
  if ! go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 5s; then
    failed=$((failed + 1))
  fi
done < <(git ls-files '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //' | grep -E "$only" | sort)
if [ "$found" -eq 0 ]; then
  echo "no fuzz target found" >&2
  exit 1
fi
printf '%d passed, %d failed\n' $((found - failed)) "$failed"
[ "$failed" -eq 0 ]
