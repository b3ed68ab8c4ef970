#!/usr/bin/env bash
# A host dies in the middle of a program, with all that lay there; the head keeps lineage, and the
# program ends with the right results.
#   test_rebuild.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_rebuild.sh BIN_DIR PROGRAM}
program=${2:?usage: test_rebuild.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

use_tls
on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --node-lease 2 --lineage-bytes 67108864 "${head_tls[@]}"
for i in 1 2 3; do start_store $i; done
mkfifo "$dir/go"
in_host1 "$program" rebuild 6 "$dir/go" >"$dir/program.log" 2>&1 &
runner=$!
until grep -q '^kill$' "$dir/program.log" 2>/dev/null; do
  kill -0 $runner 2>/dev/null || fail "the program ended early"
  sleep 0.05
done
kill -KILL "${pids[3]}" # host 3: unshare takes its store and workers with it
wait "${pids[3]}" 2>/dev/null
echo x >"$dir/go"
wait $runner || fail "what the host took with it: $(cat "$dir/program.log")"
status=$(in_host1 "$bin/plasmon" status --json | tr -d ' \n')
echo "$status" | grep -q '"rebuilt_tasks":[1-9]' || fail "no task was run again: $status"
echo "$status" | grep -q '"never":0' || fail "something was lost for good: $status"
