#!/usr/bin/env bash
# What was put with a replica outlives two hosts that die one after the other: a copy that went with
# the first is made again before the second goes.
#   test_second_copy.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_second_copy.sh BIN_DIR PROGRAM}
program=${2:?usage: test_second_copy.sh BIN_DIR PROGRAM}
hosts=4
. "$(dirname "$0")/hosts.sh"

use_tls
on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --node-lease 2 "${head_tls[@]}"
for i in 2 3 4; do start_store $i; done
mkfifo "$dir/go"
in_host1 "$program" twice 6 "$dir/go" >"$dir/program.log" 2>&1 &
runner=$!
until grep -q '^kill$' "$dir/program.log" 2>/dev/null; do
  kill -0 $runner 2>/dev/null || fail "the program ended early"
  sleep 0.05
done

copies() { in_host1 "$bin/plasmon" status --json | tr -d ' \n' | grep -o '"second_copies":{[^}]*}'; }
# wait_copies STATE: until all three values are in that state
wait_copies() {
  local said
  for _ in $(seq 600); do
    said=$(copies)
    [[ $said == *"\"$1\":3,"* && $said == *'"moving":0'* ]] && return
    sleep 0.05 # nothing tells of it: ask
  done
  fail "three values should be $1: $said; $(in_host1 "$bin/plasmon" objects)"
}
# nodes: those that have a copy of the first value, in the order of their names
nodes() { in_host1 "$bin/plasmon" objects --json | grep -o '"node":"host[0-9]"' | grep -o '[0-9]' | sort -u; }
host_dies() {
  kill -KILL "${pids[$(($1 - 1))]}" # unshare takes its store and workers with it
  wait "${pids[$(($1 - 1))]}" 2>/dev/null
}

wait_copies apart
in_host1 "$bin/plasmon" objects | grep -q "on two hosts" || fail "plasmon objects: $(in_host1 "$bin/plasmon" objects)"
host_dies 2
until ! nodes | grep -q 2; do sleep 0.05; done # the head has heard
wait_copies apart
host_dies 3
until ! nodes | grep -q 3; do sleep 0.05; done
wait_copies near
in_host1 "$bin/plasmon" objects --json | grep -q '"second_copy":"near"' || fail "plasmon objects --json"
copies | grep -q '"made":[1-9]' || fail "no copy was made again: $(copies)"
echo x >"$dir/go"
wait $runner || fail "what was put: $(cat "$dir/program.log")"
