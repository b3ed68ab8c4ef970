#!/usr/bin/env bash
# Three hosts: the head alone on the first; the others reach it, and not each other, and nobody can
# pass bytes on for them. What needs bytes of both fails, with both hosts and the remedy in its
# text, and nothing else does; when the network is well again all goes.
#   test_hosts_apart.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_hosts_apart.sh BIN_DIR PROGRAM}
program=${2:?usage: test_hosts_apart.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --reach-wait 1
until ip netns exec "$tag-1" bash -c '</dev/tcp/10.97.0.1/7070' 2>/dev/null; do
  kill -0 "${pids[0]}" 2>/dev/null || fail "the head ended"
  sleep 0.05
done
for i in 2 3; do start_store $i; done

# The second finds no route; what the third sends is lost, for nobody has that address.
ip -n "$tag-2" route add unreachable 10.97.0.3/32 &&
  ip -n "$tag-3" neigh replace 10.97.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent || fail "the way cannot be cut"
in_host1 "$program" apart 4 >"$dir/program.log" 2>&1 || fail "what lies on hosts that do not reach each other: $(cat "$dir/program.log")"
for what in "from device . on host. to device . on host" '10\.97\.0\.[23]:71' "--bulk-address" "docs/operations.md"; do
  grep -qe "$what" "$dir/program.log" || fail "a text without '$what': $(cat "$dir/program.log")"
done
grep -q "nothing gets from device" "$dir/head.log" || fail "the head says nothing"
for ask in "transfers --routes" "doctor --cluster"; do
  in_host1 "$bin/plasmon" $ask >"$dir/routes.log" 2>&1
  grep -q "nothing gets through now" "$dir/routes.log" || fail "$ask does not say so: $(cat "$dir/routes.log")"
done

ip -n "$tag-2" route del unreachable 10.97.0.3/32 && ip -n "$tag-3" neigh del 10.97.0.2 dev eth0 || fail "the way cannot be mended"
in_host1 "$program" move 4 >"$dir/after.log" 2>&1 || fail "and after that: $(cat "$dir/after.log")"
cat "$dir/program.log"
