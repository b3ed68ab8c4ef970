#!/usr/bin/env bash
# Four hosts, a network of 200 Mbit/s each, no lineage. One large array of the first that the others
# want goes along a chain of hosts, and a host in the middle leaves while it passes on: it is
# drained; another time its store gets SIGTERM. No reader fails, the store ends, and nothing is
# moved twice: each host gets the array once, and the only other thing that moves is what the task
# made on the host that leaves.
#   test_chain_drained.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_chain_drained.sh BIN_DIR PROGRAM}
program=${2:?usage: test_chain_drained.sh BIN_DIR PROGRAM}
hosts=4
command -v tc >/dev/null || { echo "SKIP: no tc"; exit 77; }
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --lineage-bytes 0
for i in 1 2 3 4; do start_store $i --cpu-devices 1; store[i]=${pids[-1]}; done
for i in 1 2 3 4; do
  ip netns exec "$tag-$i" tc qdisc add dev eth0 root tbf rate 200mbit burst 2mbit latency 50ms || { echo "SKIP: no tbf"; exit 77; }
done
elements=9000000 # 69 MiB: 2.9 s for one copy

# pairs_to FILE: what moved between hosts so far
pairs_to() { in_host1 "$bin/plasmon" transfers --json >"$1" || fail "plasmon transfers"; }
# Who gets it from the first host, and has sent some on, and not all?
middle() {
  in_host1 "$bin/plasmon" transfers --json 2>/dev/null | python3 -c '
import json, sys
pairs = json.load(sys.stdin)["pairs"]
before = {(p["from"], p["to"]): p["objects"] - p["in_flight"] for p in json.load(open(sys.argv[1]))["pairs"]}
on = {p["from"] for p in pairs if p["in_flight"] > 0 and p["objects"] - p["in_flight"] > before.get((p["from"], p["to"]), 0)}
print(next((p["to"] + 1 for p in pairs if p["from"] == 0 and p["to"] in on), ""))' "$dir/before.json"
}
begin() { # until some host passes on: $host
  pairs_to "$dir/before.json"
  in_host1 "$program" many 4 $elements >"$dir/program.log" 2>&1 &
  runner=$!
  until host=$(middle) && [ -n "$host" ]; do
    kill -0 $runner 2>/dev/null || fail "nobody passed anything on"
    sleep 0.1
  done
}
moved_once() { # moved_once HOST: of this round, at devices that are there
  pairs_to "$dir/after.json"
  python3 - "$dir" $elements "$1" <<'EOF' || fail "what moved: $(cat "$dir/after.json")"
import json, sys
folder, size, leaver = sys.argv[1], 8 * int(sys.argv[2]), int(sys.argv[3]) - 1
got = {}
for name, sign in (("before", -1), ("after", 1)):
    for p in json.load(open(f"{folder}/{name}.json"))["pairs"]:
        if p["route"] == "host" and p["from"] != p["to"]:
            got[p["to"]] = got.get(p["to"], 0) + sign * p["bytes"]
got.pop(leaver, None)
print(f"host {leaver + 1} leaves; the others got, of {size}: {got}")
over = sum(got.values()) - 2 * size  # what the two others wanted, without the first host, which had it
sys.exit(any(got.get(d, 0) < size for d in (1, 2, 3) if d != leaver) or over not in (0, size))
EOF
}

begin
in_host1 "$bin/plasmon" drain "host$host" --deadline 60 --json >"$dir/said" || fail "drain: $(cat "$dir/said")"
grep -q '"done":true.*"objects_left":0' "$dir/said" || fail "the report: $(cat "$dir/said")"
wait $runner || fail "readers beside host $host, which was drained: $(cat "$dir/program.log")"
moved_once "$host"
in_host1 "$bin/plasmon" drain "host$host" --undo || fail "undo"

begin
signal_program TERM "${store[$host]}"
wait "${store[$host]}"
grep -q "ending: it was drained" "$dir/store$host.log" || fail "the store did not wait until it was drained"
wait $runner || fail "readers beside host $host, which got SIGTERM: $(cat "$dir/program.log")"
moved_once "$host"
cat "$dir/program.log"
