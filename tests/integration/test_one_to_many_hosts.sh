#!/usr/bin/env bash
# Four hosts of two devices each. One large array of the first that all devices of the others want at once, by tasks of their own or by a broadcast, goes
# along a chain of hosts: no connection between two hosts carries it more than once, and no host sends it to more than one other. One that is not large goes
# as a tree: the first host sends it to two of the three others.
#   test_one_to_many_hosts.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_one_to_many_hosts.sh BIN_DIR PROGRAM}
program=${2:?usage: test_one_to_many_hosts.sh BIN_DIR PROGRAM}
hosts=4
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070
for i in 1 2 3 4; do start_store $i; done
if [ -n "${RATE:-}" ]; then # by hand: how long it takes where hosts send only so much (RATE=1gbit), and the second one SLOW
  for i in 1 2 3 4; do
    rate=$RATE
    [ $i != 2 ] || rate=${SLOW:-$RATE}
    ip netns exec "$tag-$i" tc qdisc add dev eth0 root tbf rate "$rate" burst 2mbit latency 50ms
  done
  in_host1 "$program" many 8 "${ELEMENTS:-12000000}" || fail "one array to many hosts" # and what the second time is like, when connections are measured
  in_host1 "$program" many 8 "${ELEMENTS:-12000000}" || fail "one array to many hosts"
  in_host1 "$bin/plasmon" transfers --routes
  exit 0
fi

in_host1 "$bin/plasmon" status --json >"$dir/status.json" || fail "plasmon status"
transfers() { in_host1 "$bin/plasmon" transfers --json >"$dir/$1.json" || fail "plasmon transfers"; }
# check MODE ELEMENTS MOST: each host gets the array once, and none sends it more often than MOST times
check() {
  transfers before
  in_host1 "$program" "$1" 8 "$2" || fail "$1: one array to many hosts"
  transfers after
  python3 - "$dir" "$2" "$3" <<'EOF' || fail "$1: who sent to whom: $(cat "$dir/before.json" "$dir/after.json")"
import json, sys
size, most = 8 * int(sys.argv[2]), int(sys.argv[3])
node = {d["index"]: d["node"] for d in json.load(open(sys.argv[1] + "/status.json"))["devices"]}
sent, got = {}, {}
for name, sign in (("before", -1), ("after", 1)):
    for pair in json.load(open(f"{sys.argv[1]}/{name}.json"))["pairs"]:
        a, b = node[pair["from"]], node[pair["to"]]
        if pair["route"] == "host" and a != b:
            sent[a] = sent.get(a, 0) + sign * pair["bytes"]
            got[b] = got.get(b, 0) + sign * pair["bytes"]
print(f"sent {sent}, got {got}, of {size}")
assert got == {"host2": size, "host3": size, "host4": size}, "each host gets it once"
assert max(sent.values()) <= most * size, "no host sends it more often"
EOF
}
check many "${ELEMENTS:-12000000}" 1 # 92 MiB
check broadcast "${ELEMENTS:-12000000}" 1
check broadcast 1000000 2
