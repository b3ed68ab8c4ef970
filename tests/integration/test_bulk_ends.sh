#!/usr/bin/env bash
# Transfers between hosts while workers of either side are killed and stopped in the middle of them, and while two hosts cannot reach each other:
# everything arrives, and nobody's worker ends but those.
#   test_bulk_ends.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_bulk_ends.sh BIN_DIR PROGRAM}
program=${2:?usage: test_bulk_ends.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070
export PLASMON_FAULT
point() { echo "worker$1/transfer.bulk_$2"; }
PLASMON_FAULT=$(point 0.1 out_half:3=kill),$(point 1.1 out_sent:2=stop) start_store 1
PLASMON_FAULT=$(point 0.1 in_half:3=kill),$(point 0.2 in_read:2=stop) start_store 2
PLASMON_FAULT=$(point 0.1 in_ready:2=kill),$(point 0.2 in_half:2=stop),$(point 1.1 out_half:1=stop) start_store 3
unset PLASMON_FAULT

restarts() { # of all devices, in their order
  in_host1 "$bin/plasmon" status --json | tr ',' '\n' | sed -n 's/.*"restarts": *\([0-9]*\).*/\1/p' | tr '\n' ' '
}
in_host1 "$program" pairs 6 || fail "transfers while workers end"
if grep -q "PLASMON_FAULTS is off" "$dir/store1.log"; then
  echo "SKIP: this build has no fault points"
  exit 77
fi
[ "$(restarts)" = "1 1 2 0 2 1 " ] || fail "restarts of the devices: $(restarts)"

ip -n "$tag-2" route add blackhole 10.97.0.3/32 || fail "a network that is cut"
in_host1 "$program" pairs 6 || fail "transfers while two hosts do not reach each other"
grep -q "is reached through device" "$dir/store2.log" "$dir/store3.log" || fail "no relay was used"
in_host1 "$bin/plasmon" transfers --json | grep -Eq '"from":[23],"to":[45],[^}]*"relays":[1-9]' || fail "no relay was counted"
ip -n "$tag-2" route del blackhole 10.97.0.3/32 || fail "the network again"
in_host1 "$program" pairs 6 || fail "transfers when the network is well again"
[ "$(restarts)" = "1 1 2 0 2 1 " ] || fail "restarts of the devices in the end: $(restarts)"
