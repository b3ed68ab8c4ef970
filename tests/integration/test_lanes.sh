#!/bin/sh
# test_lanes.sh PROGRAM: several clients of one host at once, each with a lane to the same device:
# more than there are lanes, some killed in the middle, and the worker killed under them. On CPU
# devices, or on as many GPUs as PLASMON_TEST_GPUS says.
set -eu
program=$1
. "$(dirname "$0")/lib.sh"
PLASMON_CLIENT_PATH=staged
export PLASMON_CLIENT_PATH
PLASMON_ADDRESS=unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock

start() {
    if [ "${PLASMON_TEST_GPUS:-none}" = none ]; then
        env -u PLASMON_ADDRESS "$plasmon" start --head --cpu-devices 1 --gpus none --device-memory 1G
    else
        env -u PLASMON_ADDRESS "$plasmon" start --head --cpu-devices 0 --gpus "$PLASMON_TEST_GPUS"
    fi
}
run() { # ROUNDS
    PLASMON_ADDRESS=$PLASMON_ADDRESS timeout 120 "$program" "$1"
}
eight_at_once() {
    pids=
    for i in 1 2 3 4 5 6 7 8; do
        run 4 >"$XDG_RUNTIME_DIR/said-$i" 2>&1 &
        pids="$pids $!"
    done
    wrong=0
    for pid in $pids; do wait "$pid" || wrong=1; done
    cat "$XDG_RUNTIME_DIR"/said-*
    rm -f "$XDG_RUNTIME_DIR"/said-*
    [ "$wrong" = 0 ]
}
# A device has 16 lanes; 20 clients hold theirs, or none, at the same time, and a last one works beside them.
more_clients_than_lanes() {
    mkfifo "$XDG_RUNTIME_DIR/end"
    pids=
    for i in $(seq 20); do
        PLASMON_ADDRESS=$PLASMON_ADDRESS timeout 120 "$program" 1 hold <"$XDG_RUNTIME_DIR/end" \
            >"$XDG_RUNTIME_DIR/said-$i" 2>&1 &
        pids="$pids $!"
    done
    exec 9>"$XDG_RUNTIME_DIR/end"
    for i in $(seq 600); do
        [ "$(cat "$XDG_RUNTIME_DIR"/said-* | grep -c held)" = 20 ] && break
        sleep 0.1
    done
    wrong=0
    [ "$(cat "$XDG_RUNTIME_DIR"/said-* | grep -c held)" = 20 ] || wrong=1
    run 1 || wrong=1
    exec 9>&-
    for pid in $pids; do wait "$pid" || wrong=1; done
    cat "$XDG_RUNTIME_DIR"/said-*
    rm -f "$XDG_RUNTIME_DIR"/said-* "$XDG_RUNTIME_DIR/end"
    [ "$wrong" = 0 ]
}
# Clients that die anywhere in a transfer, and others that work meanwhile and get their lanes afterwards.
killed_clients_harm_nobody() {
    wrong=0
    run 12 >"$XDG_RUNTIME_DIR/said" 2>&1 &
    other=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do
        PLASMON_ADDRESS=$PLASMON_ADDRESS "$program" 1000 >/dev/null 2>&1 &
        victim=$!
        sleep 0.$((i % 5 + 2))
        kill -KILL "$victim"
        wait "$victim" 2>/dev/null || true
    done
    wait "$other" || wrong=1
    cat "$XDG_RUNTIME_DIR/said"
    [ "$wrong" = 0 ] && run 2
}
killed_worker_is_not_noticed() {
    wrong=0
    run 10 >"$XDG_RUNTIME_DIR/said-1" 2>&1 &
    first=$!
    run 10 >"$XDG_RUNTIME_DIR/said-2" 2>&1 &
    second=$!
    for i in 1 2 3; do
        sleep 0.3
        kill -KILL $(tagged plasmon-worker)
    done
    wait "$first" || wrong=1
    wait "$second" || wrong=1
    cat "$XDG_RUNTIME_DIR"/said-*
    rm -f "$XDG_RUNTIME_DIR"/said-*
    [ "$wrong" = 0 ]
}
stop_leaves_nothing() {
    env -u PLASMON_ADDRESS "$plasmon" stop
    left=$(daemons)
    echo "left: $left"
    [ -z "$left" ]
}

claim a_cluster_starts start
claim eight_clients_at_once_get_their_bytes eight_at_once
claim more_clients_than_lanes_get_their_bytes more_clients_than_lanes
claim killed_clients_harm_nobody killed_clients_harm_nobody
claim a_killed_worker_is_not_noticed killed_worker_is_not_noticed
claim stop_leaves_nothing stop_leaves_nothing
finish
