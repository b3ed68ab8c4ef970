#!/usr/bin/env bash
# Two heads that stand by, on two hosts of one name, both as process 1, as in containers: the second
# one waits until the first has gone.
#   test_standby_hosts.sh BIN_DIR
set -u
bin=${1:?usage: test_standby_hosts.sh BIN_DIR}
hosts=2
. "$(dirname "$0")/hosts.sh"

command -v redis-server >/dev/null || { echo "SKIP: no redis-server; tools/setup installs it"; exit 77; }
on_host 1 redis redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --save "" --appendonly yes
until [ -S "$dir/redis.sock" ]; do sleep 0.05; done
start_head() { # start_head HOST TEXT: until its log says so
  on_host "$1" "head$1" "$bin/plasmon-head" --listen "10.97.0.$1:7070" --journal "unix:$dir/redis.sock" --journal-lease 2 --standby
  heads[$1]=${pids[-1]}
  for _ in $(seq 200); do
    grep -q "$2" "$dir/head$1.log" && return
    sleep 0.05
  done
  fail "head $1 does not say: $2"
}
heads=()
start_head 1 "has the journal, term 1"
start_head 2 "stands by"
sleep 3 # longer than the lease: it is renewed
kill -0 "${heads[1]}" 2>/dev/null || fail "the first head has ended"
! grep -q "has the journal" "$dir/head2.log" || fail "the second head took over from one that lives"
signal_program KILL "${heads[1]}"
wait "${heads[1]}" 2>/dev/null
for _ in $(seq 200); do
  grep -q "has the journal, term 2" "$dir/head2.log" && break
  sleep 0.05
done
grep -q "has the journal, term 2" "$dir/head2.log" || fail "nobody goes on for a head that was killed"
