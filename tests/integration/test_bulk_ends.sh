#!/usr/bin/env bash
# Transfers between hosts while workers of either side are killed and stopped in every named place
# of the bulk channel, and while two hosts cannot reach each other: everything arrives, nobody's
# worker ends but those, and the pairs work again.
#   test_bulk_ends.sh BIN_DIR PROGRAM
set -u
bin=${1:?usage: test_bulk_ends.sh BIN_DIR PROGRAM}
program=${2:?usage: test_bulk_ends.sh BIN_DIR PROGRAM}
hosts=3
. "$(dirname "$0")/hosts.sh"

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070
# Sender: before a frame, in the middle of its bytes, behind the last, when the answer is there.
# Receiver: behind a frame, in the middle of its bytes, behind the last, when who waits may go on,
# behind the answer. Each place kills one worker, stops another: the first of a device, the next
# one, and so on. A stopped one is fenced by its store. (The second device of a host gets what the
# first one has from there.) Device 3 looks on.
export PLASMON_FAULT
ends() { # DEVICE PLACE=END..: one after the other
  local device=$1 incarnation=0 armed=""
  shift
  for place in "$@"; do
    incarnation=$((incarnation + 1))
    armed=$armed,worker$device.$incarnation/transfer.bulk_$place
  done
  echo "$armed"
}
PLASMON_FAULT=$(ends 0 in_begin:2=kill in_half:2=stop in_answered:1=kill in_read:1=stop)$(ends 1 out_sent:2=kill out_begin:1=stop \
  out_answered:1=kill out_half:1=stop) start_store 1
PLASMON_FAULT=$(ends 0 in_half:3=kill in_ready:1=stop in_begin:1=stop) start_store 2
PLASMON_FAULT=$(ends 0 in_ready:2=kill in_read:1=kill in_answered:1=stop)$(ends 1 out_half:2=kill out_answered:1=stop out_begin:1=kill \
  out_sent:1=stop) start_store 3
unset PLASMON_FAULT
all="4 4 3 0 3 4 "

restarts() { # of all devices, in their order
  in_host1 "$bin/plasmon" status --json | tr ',' '\n' | sed -n 's/.*"restarts": *\([0-9]*\).*/\1/p' | tr '\n' ' '
}
for round in 1 2 3 4 5 6; do
  in_host1 "$program" pairs 6 || fail "transfers while workers end"
  if grep -q "PLASMON_FAULTS is off" "$dir/store1.log"; then
    echo "SKIP: this build has no fault points"
    exit 77
  fi
  [ "$(restarts)" != "$all" ] || break
done
[ "$(restarts)" = "$all" ] || fail "restarts of the devices after $round rounds: $(restarts)"

ip -n "$tag-2" route add blackhole 10.97.0.3/32 || fail "a network that is cut"
in_host1 "$program" pairs 6 || fail "transfers while two hosts do not reach each other"
grep -q "is reached through device" "$dir/store2.log" "$dir/store3.log" || fail "no relay was used"
in_host1 "$bin/plasmon" transfers --json | grep -Eq '"from":[23],"to":[45],[^}]*"relays":[1-9]' || fail "no relay was counted"
ip -n "$tag-2" route del blackhole 10.97.0.3/32 || fail "the network again"
in_host1 "$program" pairs 6 || fail "transfers when the network is well again"
[ "$(restarts)" = "$all" ] || fail "restarts of the devices in the end: $(restarts)"
