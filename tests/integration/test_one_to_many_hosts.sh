#!/usr/bin/env bash
# Four hosts of two devices each. One large array of the first that all devices of the others want
# at once, by tasks of their own or by a broadcast, goes along a chain of hosts: no connection
# between two hosts carries it more than once, and no host sends it to more than one other. One that
# is not large goes as a tree: the first host sends it to two of the three others. What all devices
# get of all others - gathered, or the segments of a sum - comes to each host once, too.
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
  for i in 1 2; do # and what the second time is like, when connections are measured
    in_host1 "$program" "${MODE:-many}" 8 "${ELEMENTS:-12000000}" || fail "one array to many hosts"
  done
  in_host1 "$bin/plasmon" transfers --routes
  exit 0
fi

in_host1 "$bin/plasmon" status --json >"$dir/status.json" || fail "plasmon status"
transfers() { in_host1 "$bin/plasmon" transfers --json >"$dir/$1.json" || fail "plasmon transfers"; }
# check MODE ELEMENTS MOST GETS NODE..: each of these hosts gets GETS times an array, and none sends
# more than MOST times one
check() {
  transfers before
  in_host1 "$program" "$1" 8 "$2" || fail "$1: one array to many hosts"
  transfers after
  python3 - "$dir" "$2" "$3" "$4" "${@:5}" <<'EOF' || fail "$1: who sent to whom: $(cat "$dir/before.json" "$dir/after.json")"
import json, sys
size, most, gets = 8 * int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
node = {d["index"]: d["node"] for d in json.load(open(sys.argv[1] + "/status.json"))["devices"]}
sent, got = {}, {}
for name, sign in (("before", -1), ("after", 1)):
    for pair in json.load(open(f"{sys.argv[1]}/{name}.json"))["pairs"]:
        a, b = node[pair["from"]], node[pair["to"]]
        if pair["route"] == "host" and a != b:
            sent[a] = sent.get(a, 0) + sign * pair["bytes"]
            got[b] = got.get(b, 0) + sign * pair["bytes"]
print(f"sent {sent}, got {got}, of {size}")
assert got == {host: gets * size for host in sys.argv[5:]}, f"each host gets {gets}"
assert max(sent.values()) <= most * size, f"no host sends more than {most}"
EOF
}
check many "${ELEMENTS:-12000000}" 1 1 host{2,3,4} # 92 MiB
check broadcast "${ELEMENTS:-12000000}" 1 1 host{2,3,4}
check broadcast 1000000 2 1 host{2,3,4}
# Six of eight members are of other hosts.
check gather 1000 6 6 host{1,2,3,4}
check gather 200000 6 6 host{1,2,3,4}
# Two eighths of each of these, to be added up; then six eighths of the sum.
check sum 204800 2.25 2.25 host{1,2,3,4}
