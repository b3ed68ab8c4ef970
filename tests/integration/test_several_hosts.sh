#!/usr/bin/env bash
# Three hosts. A head and a store on the first, a store on each of the others, a program on the
# first. Objects move between all devices; then a host dies in the middle.
#   test_several_hosts.sh BIN_DIR PROGRAM [ROUTE]      ROUTE: host, or nccl by what stands in for NCCL on CPU devices
set -u
bin=${1:?usage: test_several_hosts.sh BIN_DIR PROGRAM}
program=${2:?usage: test_several_hosts.sh BIN_DIR PROGRAM}
route=${3:-host}
forced=(); [ "$route" = host ] || forced=(--transfer "$route")
hosts=3
. "$(dirname "$0")/hosts.sh"

[ "$route" = nccl ] || use_tls # NCCL does not encrypt: it wants a network that is private
on_host 1 head "$bin/plasmon-head" --listen 10.97.0.1:7070 --node-lease 2 "${forced[@]}" "${head_tls[@]}"
refused=$(ip netns exec "$tag-1" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --socket-dir "$dir/s0" 2>&1) &&
  fail "a store would send objects in the clear over a network that nobody called private"
echo "$refused" | grep -q -- '--bulk-plain' || fail "the remedy was not said: $refused"
refused=$(ip netns exec "$tag-1" "$bin/plasmon-store" --head 10.97.0.1:7070 --gpus none --cpu-devices 3 --bulk-ports 7100-7101 \
  "${bulk[@]}" --socket-dir "$dir/s0" 2>&1) && fail "a store starts with fewer ports than devices"
echo "$refused" | grep -q "this machine brings 3" || fail "too few ports were not said: $refused"
for i in 1 2 3; do start_store $i; done

in_host1 "$program" move 6 || fail "moving objects between hosts"
routes=$(in_host1 "$bin/plasmon" status --json | tr -d ' \n')
echo "$routes" | grep -q "\"route\":\"$route\",\"copies\":[1-9]" || fail "no copy was counted on the $route route: $routes"
ways=$(echo "$routes" | grep -o '"messages":"[a-z]*"' | sort | uniq -c | tr -s ' \n' ' ')
[ "$ways" = ' 4 "messages":"grpc" 2 "messages":"memory" ' ] || fail "messages do not go through memory on the head's host and by gRPC elsewhere: $ways"

pairs=$(in_host1 "$bin/plasmon" transfers --json) || fail "plasmon transfers"
echo "$pairs" | grep -q "\"route\":\"$route\",\"from\":0,\"to\":2,\"objects\":[1-9][0-9]*,\"bytes\":[1-9]" || fail "the pair 0, 2 has no transfers: $pairs"
echo "$pairs" | grep -q '"in_flight":[1-9]' && fail "something is under way when all is done: $pairs"
in_host1 "$bin/plasmon" transfers | grep -q "^  $route  *all " || fail "no sum of the $route route"

in_host1 "$bin/plasmon" transfers --routes --json | grep -q '^{"choices":\[.*\]}$' || fail "plasmon transfers --routes"

mkfifo "$dir/go"
in_host1 "$program" loss 6 "$dir/go" >"$dir/program.log" 2>&1 &
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
