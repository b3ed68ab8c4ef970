#!/usr/bin/env bash
# A client on a host without devices, whose puts and gets go straight to and from the workers of
# another host: by every dtype and size, from many threads, while workers end in the middle of them,
# when a client is killed, and when the workers cannot be reached.
#   test_client_bulk.sh BIN_DIR PROGRAM [tls]     tls: encrypted, and through pinned slots as on GPUs
set -u
bin=${1:?usage: test_client_bulk.sh BIN_DIR PROGRAM [tls]}
program=${2:?usage: test_client_bulk.sh BIN_DIR PROGRAM [tls]}
mode=${3:-plain}
hosts=3
. "$(dirname "$0")/hosts.sh"

if [ "$mode" = tls ]; then
  use_tls
  export PLASMON_BULK_STAGED=1
fi
on_client() { ip netns exec "$tag-3" env PLASMON_ADDRESS=10.97.0.1:7070 timeout 100 "$@"; }
moved() { # objects that went by a route so far
  on_client "$bin/plasmon" transfers --json | tr '{' '\n' | sed -n "s/.*\"route\":\"$1\",\"objects\":\([0-9]*\).*/\1/p" | head -n 1
}
restarts() {
  on_client "$bin/plasmon" status --json | tr ',' '\n' | sed -n 's/.*"restarts": *\([0-9]*\).*/\1/p' | tr '\n' ' '
}
until_true() { # COMMAND..: within a minute
  local end=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.05
  done
}
both_up() { [ "$(on_client "$bin/plasmon" status --json 2>/dev/null | grep -o '"state": *"up"' | wc -l)" = 2 ]; }

on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 "${head_tls[@]}"
# A put: in the middle of a part, twice, and when all of it is there and nobody was told. A get:
# behind what announces a part.
export PLASMON_FAULT=worker0.1/transfer.bulk_client_half:4=kill,worker0.2/transfer.bulk_client_half:2=stop
PLASMON_FAULT=$PLASMON_FAULT,worker0.3/transfer.bulk_client_done=stop
PLASMON_FAULT=$PLASMON_FAULT,worker1.1/transfer.bulk_client_part:5=kill,worker1.2/transfer.bulk_client_part:0=stop
start_store 2
unset PLASMON_FAULT
until_true both_up || fail "the devices"

on_client env PLASMON_CLIENT_PATH=bulk "$program" large 0 || fail "a put while its worker ends"
on_client env PLASMON_CLIENT_PATH=bulk "$program" large 1 || fail "a get while its worker ends"
if grep -q "PLASMON_FAULTS is off" "$dir/store2.log"; then
  echo "SKIP: this build has no fault points"
  exit 77
fi
[ "$(restarts)" = "3 2 " ] || fail "restarts of the devices: $(restarts)"
until_true both_up || fail "the devices after their restarts"

for what in "values 2" "views 2" "threads 2"; do
  on_client env PLASMON_CLIENT_PATH=bulk "$program" $what || fail "$what"
done
[ "$(moved bulk)" -gt 100 ] || fail "not over the bulk channel: $(on_client "$bin/plasmon" transfers)"
before=$(moved bulk)
on_client "$program" large 1 || fail "a large value by the best way"
[ "$(moved bulk)" -ge $((before + 2)) ] || fail "a large value did not go over the bulk channel"

# A get that finds no worker waits for the next one, and what it wants does not go through the head.
store=$(pgrep -P "${pids[1]}") # below unshare
mkfifo "$dir/late.in" "$dir/late.out"
on_client "$program" late 0 <"$dir/late.in" >"$dir/late.out" 2>"$dir/late.log" &
reader=$!
exec 7>"$dir/late.in" 8<"$dir/late.out"
read -r line <&8
[ "$line" = put ] || fail "the one who gets late said '$line'"
before=$(moved bulk)
kill -STOP "$store"
pkill -KILL -P "$store"
both_down() { [ "$(on_client "$bin/plasmon" status --json | grep -o '"state": *"down"' | wc -l)" = 2 ]; }
until_true both_down || fail "the devices are not down"
echo go >&7
sleep 0.5 # it asks where its bytes are
kill -CONT "$store"
wait $reader || fail "a get while there is no worker"
until_true both_up || fail "the devices after their workers were killed"
[ "$(moved bulk)" = $((before + 1)) ] || fail "a get while there was no worker: $(on_client "$bin/plasmon" transfers)"
exec 7>&- 8<&-

mkfifo "$dir/said"
ip netns exec "$tag-3" env PLASMON_ADDRESS=10.97.0.1:7070 "$program" large 0 100000 >"$dir/said" 2>"$dir/victim.log" &
victim=$!
read -r line <"$dir/said"
[ "$line" = one ] || fail "the one who is to be killed said '$line'"
kill -KILL $victim
wait $victim 2>/dev/null
on_client env PLASMON_CLIENT_PATH=bulk "$program" large 0 || fail "a client after another was killed"

# Who does not reach the workers goes through the head, and is told so.
before=$(moved bulk)
ip -n "$tag-3" route add blackhole 10.97.0.2/32 || fail "a network that is cut"
on_client "$program" large 0 >"$dir/lone.log" 2>&1 || fail "a client that does not reach the workers"
grep -q "go through the head" "$dir/lone.log" || fail "nothing was said: $(cat "$dir/lone.log")"
[ "$(moved bulk)" = "$before" ] || fail "something went over the bulk channel"
[ "$(restarts)" = "4 3 " ] || fail "restarts of the devices in the end: $(restarts)"
