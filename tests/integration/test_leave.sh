#!/usr/bin/env bash
# Nodes that leave: one is drained and then killed, another gets SIGTERM while the head is away.
# Nothing that lay there is lost, and no future fails.
#   test_leave.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_leave.sh BIN_DIR PROGRAM}
program=${2:?usage: test_leave.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

command -v redis-server >/dev/null || { echo "SKIP: no redis-server; tools/setup installs it"; exit 77; }
on_host 1 redis redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --save "" --appendonly yes
start_head() {
  on_host 1 "$1" "$bin/plasmon-head" --listen 10.97.0.1:7070 --journal "unix:$dir/redis.sock" --journal-lease 1
  head=${pids[-1]}
}
kill_head() {
  signal_program KILL "$head"
  wait "$head" 2>/dev/null
}
wait_log() { # wait_log NAME TEXT
  until grep -q "$2" "$dir/$1.log"; do sleep 0.05; done
}
until [ -S "$dir/redis.sock" ]; do sleep 0.05; done
start_head head
# The second head that is named is never there.
for i in 1 2 3; do start_store $i --head 10.97.0.1:7070,10.97.0.2:7070; store[i]=${pids[-1]}; done
mkfifo "$dir/go"
drain() { in_host1 "$bin/plasmon" drain "$@"; }
begin() { # begin DEVICES NODE: until its objects are there
  : >"$dir/program.log" # the last one's was ready, too
  in_host1 "$program" leave "$1" "$dir/go" "$2" >"$dir/program.log" 2>&1 &
  runner=$!
  until grep -q '^ready$' "$dir/program.log" 2>/dev/null; do
    kill -0 $runner 2>/dev/null || fail "the program ended early"
    sleep 0.05
  done
}
end() {
  timeout 100 bash -c 'echo x >"$1"' - "$dir/go" || fail "nobody waits: $(cat "$dir/program.log")"
  wait $runner || fail "$1"
}

begin 6 host3
drain nobody 2>"$dir/said" && fail "a node that is not there was drained"
grep -q "no node with devices is named 'nobody'" "$dir/said" || fail "what is wrong was not said: $(cat "$dir/said")"
drain host3 --deadline 0 >"$dir/said" && fail "all was moved in no time: $(cat "$dir/said")"
grep -Eq '[1-9][0-9]* \([^)]*\) are not yet' "$dir/said" || fail "what is left was not told: $(cat "$dir/said")"
drain host3 --undo || fail "undo"
drain host3 --deadline 60 --json >"$dir/said" || fail "drain: $(cat "$dir/said")"
grep -q '"done":true.*"objects_left":0' "$dir/said" || fail "the report: $(cat "$dir/said")"
signal_program KILL "${store[3]}"
wait "${store[3]}" 2>/dev/null
end "values of a node that was drained and killed"

begin 4 host2
kill_head
signal_program TERM "${store[2]}"
wait_log store2 "leaving when what lies only here is elsewhere"
start_head next
wait "${store[2]}"
grep -q "ending: it was drained" "$dir/store2.log" || fail "the store did not wait until it was drained"
end "values of a node that got SIGTERM"
in_host1 "$bin/plasmon" status --json | tr -d ' \n' | grep -q '"nodes":1' || fail "the nodes that left are still there"

begin 2 host1 # the last one: there is nowhere to go
signal_program TERM "${store[1]}"
wait "${store[1]}"
grep -q "ending: not all of it could be moved elsewhere, and that is lost" "$dir/store1.log" ||
  fail "the last store does not say that something is lost: $(tail -n 2 "$dir/store1.log")"
timeout 100 bash -c 'echo x >"$1"' - "$dir/go"
! wait $runner || fail "nothing was lost with the last store"
