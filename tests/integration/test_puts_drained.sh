#!/usr/bin/env bash
# Programs that put from host memory and get into it, which devices of their host do for them, where
# these do it no more.
#   - All the time, on a host that is drained, is not any more, and whose store then gets SIGTERM. The
#     drain ends, so does the store, and no put and no get fails.
#   - On a host whose device was given up while its store lives.
#   test_puts_drained.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_puts_drained.sh BIN_DIR PROGRAM}
program=${2:?usage: test_puts_drained.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070
start_store 1 --cpu-devices 1
mkfifo "$dir/go"
# begin N MODE OPTION..: both in the process namespace of host N, and the program is what that lives by
begin() {
  local host=$1 mode=$2
  shift 2
  PLASMON_ADDRESS=10.97.0.1:7070 on_host "$host" "program$host" bash -c '
    bin=$1 dir=$2 program=$3 mode=$4 host=$5
    shift 5
    "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 1 --device-memory 1G --node "host$host" \
      --socket-dir "$dir/s$host" --bulk-ports 7100-7109 --bulk-plain "$@" >"$dir/store$host.log" 2>&1 &
    unset PLASMON_FAULT
    exec "$program" "$mode" 2 "$dir/go"' - "$bin" "$dir" "$program" "$mode" "$host" "$@"
  runner=${pids[-1]}
}
# wait_line LOG TEXT
wait_line() {
  until grep -q "$2" "$dir/$1.log"; do
    kill -0 $runner 2>/dev/null || fail "the program ended early"
    sleep 0.05
  done
}
child() { # child PID: its first one
  local children
  children=$(cat "/proc/$1/task/$1/children") && [ -n "$children" ] && echo "${children%% *}"
}
end() {
  timeout 60 bash -c 'echo x >"$1"' - "$dir/go" || fail "nobody waits"
  wait $runner || fail "$1"
}

# some_more N: until so many hundred rounds more are over
some_more() {
  local from
  from=$(grep -c '^round' "$dir/program2.log")
  until [ "$(grep -c '^round' "$dir/program2.log")" -ge $((from + $1)) ]; do
    kill -0 $runner 2>/dev/null || fail "the program ended early"
    sleep 0.05
  done
}
drain() { in_host1 "$bin/plasmon" drain host2 "$@"; }

begin 2 puts
some_more 2
for i in 1 2; do
  drain --deadline 15 --json >"$dir/said" || fail "drain: $(cat "$dir/said")"
  grep -q '"done":true.*"objects_left":0' "$dir/said" || fail "the report: $(cat "$dir/said")"
  some_more 1
  drain --undo || fail "undo"
  some_more 1
done
main=$(child "$runner") && store=$(child "$main") && kill -TERM "$store" || fail "no store"
wait_line store2 "info store: ending"
grep -q "ending: it was drained" "$dir/store2.log" || fail "the store lost something"
some_more 2
end "a program on a host that was drained and left"

# Three starts that hang, and the device is given up.
PLASMON_FAULT=$(for i in 2 3 4; do printf 'worker0.%s/worker.start.set-up=hang,' $i; done)
export PLASMON_FAULT=${PLASMON_FAULT%,}
begin 3 puts-again --worker-start-lease 1000
unset PLASMON_FAULT
wait_line program3 ready
main=$(child "$runner") && store=$(child "$main") && worker=$(child "$store") && kill -KILL "$worker" || fail "no worker"
wait_line store3 "the device is quarantined"
wait_line head "is gone: .*quarantined"
end "a program on a host whose device was given up"
