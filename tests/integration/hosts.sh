# Hosts on one machine, for tests that source this with `hosts` set: network and process namespaces
# of their own, 10.97.0.1 to .N, joined by a bridge. Skips where that is not possible. on_host,
# fail, and the folder $dir, which goes in the end with all that was started.
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
  for i in $(seq "$hosts"); do ip netns del "$tag-$i" 2>/dev/null; done
  ip link del "$tag" 2>/dev/null
  rm -rf "$dir"
}
trap finish EXIT
fail() { echo "FAIL: $*"; tail -n 15 "$dir"/*.log; exit 1; }

for i in $(seq 2 "$hosts"); do ip netns add "$tag-$i" || fail "namespace $i"; done
ip link add "$tag" type bridge && ip link set "$tag" up || fail "a bridge"
for i in $(seq "$hosts"); do
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
# signal_program SIGNAL PID: to the program itself. PID is unshare, which ends when that has ended,
# and with it what it held: a port, say.
signal_program() { kill -"$1" "$(cat "/proc/$2/task/$2/children")"; }
bulk=(--bulk-plain)
head_tls=()
# use_tls: from now on everything between hosts goes over mutual TLS, with certificates made here
use_tls() {
  { "$bin/plasmon" cert init "$dir/ca" && "$bin/plasmon" cert issue "$dir/ca" head --role head --host 10.97.0.1 &&
    "$bin/plasmon" cert issue "$dir/ca" host --role host && "$bin/plasmon" cert issue "$dir/ca" program; } >"$dir/tls.log" 2>&1 ||
    fail "certificates: $(cat "$dir/tls.log")"
  head_tls=(--tls-cert "$dir/ca/head.crt" --tls-key "$dir/ca/head.key" --tls-ca "$dir/ca/ca.crt")
  bulk=(--tls-cert "$dir/ca/host.crt" --tls-key "$dir/ca/host.key" --tls-ca "$dir/ca/ca.crt")
  export PLASMON_TLS_CA=$dir/ca/ca.crt PLASMON_TLS_CERT=$dir/ca/program.crt PLASMON_TLS_KEY=$dir/ca/program.key
}
# start_store N OPTION..: until it has joined, so that devices have the numbers of their hosts' order
start_store() {
  local host=$1
  shift
  on_host "$host" "store$host" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 2 --device-memory 1G \
    --node "host$host" --socket-dir "$dir/s$host" --bulk-ports 7100-7109 "${bulk[@]}" "$@"
  until grep -qs "joined cluster" "$dir/store$host.log"; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "the store of host $host ended"
    sleep 0.05
  done
}
in_host1() { ip netns exec "$tag-1" env PLASMON_ADDRESS=10.97.0.1:7070 timeout 100 "$@"; }
