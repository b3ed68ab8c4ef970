#!/usr/bin/env bash
# Two hosts with two networks: the head is reached over one, objects and a program's large puts and
# gets go over the other one, which --bulk-address names, to ports of --bulk-ports alone.
#   test_several_networks.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_several_networks.sh BIN_DIR PROGRAM}
program=${2:?usage: test_several_networks.sh BIN_DIR PROGRAM}
hosts=2
. "$(dirname "$0")/hosts.sh"

# `plasmon start` on the head's machine, with no default route: the only address there is, and none
# of two, which is said.
(umask 077; echo secret >"$dir/token"; mkdir "$dir/run")
start_open() { # OPTION..
  ip netns exec "$tag-1" env -u PLASMON_TOKEN XDG_RUNTIME_DIR="$dir/run" "$bin/plasmon" start --head --token-file "$dir/token" --bulk-plain \
    --gpus none --cpu-devices 1 --device-memory 64M "$@"
}
stop_open() { ip netns exec "$tag-1" env XDG_RUNTIME_DIR="$dir/run" "$bin/plasmon" stop >/dev/null; }
workers_listen() { ip netns exec "$tag-1" ss -Hltnp | awk '/plasmon-worker/ {print $4}' | sed 's/:[0-9]*$//'; }
for option in --port=7071 --listen=10.97.0.1:7071; do
  said=$(start_open "${option%%=*}" "${option#*=}") || fail "a cluster for others does not start with $option: $said"
  [ "$(workers_listen)" = 10.97.0.1 ] || fail "with $option its worker listens on: $(workers_listen)"
  echo "$said" | grep -q "objects cannot go" && fail "with $option: $said"
  stop_open
done

ip link add eth1 netns "$tag-1" type veth peer name eth1 netns "$tag-2" || fail "a second network"
for i in 1 2; do
  ip -n "$tag-$i" addr add 10.98.0.$i/24 dev eth1 && ip -n "$tag-$i" link set eth1 up || fail "the second link of host $i"
done
said=$(start_open --port 7071) || fail "a cluster does not start with two networks and no default route: $said"
[ -z "$(workers_listen)" ] || fail "of two networks one was chosen"
echo "$said" | grep -q "objects cannot go.*--bulk-address" || fail "it was not said that objects cannot go: $said"
grep -q "no object of another machine comes here.*--bulk-address" "$dir"/run/plasmon-*/plasmon-store.log || fail "nor in the log"
stop_open
on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070
refused=$(ip netns exec "$tag-1" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 1 \
  --socket-dir "$dir/s0" --bulk-plain --bulk-address 10.99.0.1 2>&1) && fail "a store starts with an address that its host does not have"
echo "$refused" | grep -q "10.99.0.1" || fail "the address that the host does not have was not named: $refused"
for i in 1 2; do
  on_host $i "store$i" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 2 --device-memory 1G --node "host$i" \
    --socket-dir "$dir/s$i" --bulk-plain --bulk-address 10.98.0.$i --bulk-ports 7151-7152
  until grep -qs "joined cluster" "$dir/store$i.log"; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "the store of host $i ended"
    sleep 0.05
  done
done

sent() { # bytes that left host 1 by a link so far
  ip -n "$tag-1" -s -j link show "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'
}
before0=$(sent eth0) before1=$(sent eth1)
in_host1 "$program" pairs 4 || fail "moving objects between hosts"
over0=$(($(sent eth0) - before0)) over1=$(($(sent eth1) - before1))
moved=$(in_host1 "$bin/plasmon" transfers --json | python3 -c '
import json, sys
print(sum(p["bytes"] for p in json.load(sys.stdin)["pairs"] if p["from"] < 2 <= p["to"]))')
echo "host 1 sent $moved bytes of objects; $over1 bytes over the network for objects, $over0 over the other one"
[ "$moved" -gt 20000000 ] && [ "$over1" -ge "$moved" ] || fail "objects did not go over the network for objects"
[ "$over0" -lt $((moved / 10)) ] || fail "objects went over the network of the head"

for i in 1 2; do # of the workers of both hosts, nobody else listens there
  ports=$(ip netns exec "$tag-$i" ss -Hltn | awk '{print $4}' | grep -v ":7070$" | sort | tr '\n' ' ')
  [ "$ports" = "10.98.0.$i:7151 10.98.0.$i:7152 " ] || fail "host $i listens on $ports"
done
