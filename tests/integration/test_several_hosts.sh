#!/usr/bin/env bash
# Three hosts on one machine: network and process namespaces of their own, joined by a bridge. A head and a store on the first, a store
# on each of the others, a program on the first. Objects move between all devices; then a host dies in the middle.
#   test_several_hosts.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_several_hosts.sh BIN_DIR PROGRAM}
program=${2:?usage: test_several_hosts.sh BIN_DIR PROGRAM}
[ "$(id -u)" = 0 ] || { echo "SKIP: network namespaces need root"; exit 77; }
for tool in ip unshare nsenter; do
  command -v $tool >/dev/null || { echo "SKIP: no $tool"; exit 77; }
done
tag=pl$$
ip netns add "$tag-1" 2>/dev/null || { echo "SKIP: no network namespaces here"; exit 77; }

dir=$(mktemp -d /tmp/hosts.XXXXXX)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  for i in 1 2 3; do ip netns del "$tag-$i" 2>/dev/null; done
  ip link del "$tag" 2>/dev/null
  rm -rf "$dir"
}
trap finish EXIT
fail() { echo "FAIL: $*"; tail -n 15 "$dir"/*.log; exit 1; }

ip netns add "$tag-2" && ip netns add "$tag-3" || fail "namespaces"
ip link add "$tag" type bridge && ip link set "$tag" up || fail "a bridge"
for i in 1 2 3; do
  ip link add "$tag-$i" type veth peer name eth0 netns "$tag-$i" &&
    ip link set "$tag-$i" master "$tag" up &&
    ip -n "$tag-$i" addr add 10.97.0.$i/24 dev eth0 && ip -n "$tag-$i" link set eth0 up &&
    ip -n "$tag-$i" link set lo up || fail "the link of host $i"
done

export PLASMON_TOKEN=hosts-test PLASMON_BIN_DIR=$bin OPENBLAS_NUM_THREADS=1 PLASMON_LOG=info
on_host() { # on_host N NAME COMMAND..: in the background, in process namespaces of its own
  local host=$1 name=$2
  shift 2
  ip netns exec "$tag-$host" unshare --pid --fork --kill-child "$@" >"$dir/$name.log" 2>&1 &
  pids+=($!)
}
on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --node-lease 2
for i in 1 2 3; do
  on_host $i "store$i" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 2 --device-memory 1G \
    --node "host$i" --socket-dir "$dir/s$i" --bulk-ports 7100-7109
done
run() { ip netns exec "$tag-1" env PLASMON_ADDRESS=10.97.0.1:7070 timeout 100 "$program" "$@"; }

run move 6 || fail "moving objects between hosts"
routes=$(ip netns exec "$tag-1" env PLASMON_ADDRESS=10.97.0.1:7070 "$bin/plasmon" status --json | tr -d ' \n')
echo "$routes" | grep -q '"route":"host","copies":[1-9]' || fail "no copy was counted on the host route: $routes"

mkfifo "$dir/go"
run loss 6 "$dir/go" >"$dir/program.log" 2>&1 &
runner=$!
until grep -q '^kill$' "$dir/program.log" 2>/dev/null; do
  kill -0 $runner 2>/dev/null || fail "the program ended early"
  sleep 0.05
done
kill -KILL "${pids[3]}" # host 3: unshare takes its store and workers with it
wait "${pids[3]}" 2>/dev/null
echo x >"$dir/go"
wait $runner || fail "the loss of a host"
cat "$dir/program.log"
