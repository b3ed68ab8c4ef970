#!/usr/bin/env bash
# Four hosts, a network of 200 Mbit/s each, no lineage. One large array of the first that the others
# want goes along a chain of hosts; the one in the middle dies while it passes on. Who is behind it
# has lost nothing: all readers get what they want, from a host that has it.
#   test_chain_host_dies.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_chain_host_dies.sh BIN_DIR PROGRAM}
program=${2:?usage: test_chain_host_dies.sh BIN_DIR PROGRAM}
hosts=4
command -v tc >/dev/null || { echo "SKIP: no tc"; exit 77; }
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --node-lease 1 --lineage-bytes 0
for i in 1 2 3 4; do start_store $i --cpu-devices 1; done
for i in 1 2 3 4; do
  ip netns exec "$tag-$i" tc qdisc add dev eth0 root tbf rate 200mbit burst 2mbit latency 50ms || { echo "SKIP: no tbf"; exit 77; }
done

in_host1 "$program" many 4 9000000 >"$dir/program.log" 2>&1 & # 69 MiB: 2.9 s for one copy
runner=$!
# Who gets it from the first host, and has sent some on, and not all?
middle() {
  in_host1 "$bin/plasmon" transfers --json 2>/dev/null | python3 -c '
import json, sys
pairs = json.load(sys.stdin)["pairs"]
on = {p["from"] for p in pairs if 0 < p["in_flight"] < p["objects"]}
print(next((p["to"] + 1 for p in pairs if p["from"] == 0 and p["to"] in on), ""))'
}
until host=$(middle) && [ -n "$host" ]; do
  kill -0 $runner 2>/dev/null || fail "nobody passed anything on"
  sleep 0.1
done
kill -0 $runner 2>/dev/null || fail "it was all over before the host died"
kill -KILL "${pids[$host]}" # unshare takes its store and worker with it
wait "${pids[$host]}" 2>/dev/null
wait $runner || fail "readers behind host $host, which died: $(cat "$dir/program.log")"
grep -q "device .* on host$host is gone" "$dir/head.log" || fail "it was over before host $host was given up"
cat "$dir/program.log"
