#!/bin/sh
# test_cluster.sh PROGRAM: a cluster as an operator has it: start, status, programs, stop.
set -eu
program=$1
. "$(dirname "$0")/lib.sh"

echo secret-of-the-test >"$XDG_RUNTIME_DIR/token"
port=$(free_port)
metrics_port=$(free_port)
local=unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock

start() {
    "$plasmon" start --head --listen "127.0.0.1:$port" --token-file "$XDG_RUNTIME_DIR/token" \
        --cpu-devices 2 --gpus none --device-memory 64M --metrics "$metrics_port" >"$XDG_RUNTIME_DIR/started"
}
what_start_says_suffices() { # the lines for a shell, as they are
    cat "$XDG_RUNTIME_DIR/started"
    (
        eval "$(sed -n 's/^ *export /export /p' "$XDG_RUNTIME_DIR/started")"
        [ "$(timeout 60 "$program")" = right ] && "$plasmon" status >/dev/null
    )
}
nothing_more_is_needed_here() { # neither an address nor a token; but one that is given counts
    (
        unset PLASMON_ADDRESS PLASMON_TOKEN PLASMON_TOKEN_FILE
        "$plasmon" status >/dev/null && ! PLASMON_TOKEN=wrong "$plasmon" status
    )
}
run() { # ADDRESS
    [ "$(PLASMON_ADDRESS=$1 PLASMON_TOKEN=secret-of-the-test timeout 60 "$program")" = right ]
}
refused() { # TOKEN
    if said=$(PLASMON_ADDRESS=$local PLASMON_TOKEN=$1 timeout 60 "$program" 2>&1); then
        echo "it was let in: $said"
        return 1
    fi
    echo "$said"
    echo "$said" | grep -qi token
}
status_names_devices() {
    PLASMON_TOKEN=secret-of-the-test "$plasmon" status
    [ "$(PLASMON_TOKEN=secret-of-the-test "$plasmon" status | grep -ci cpu)" -ge 1 ]
}
page_has_fields() { # what docs/operations.md says that --json tells of a device, no more and no less
    PLASMON_TOKEN=secret-of-the-test "$plasmon" status --json | /usr/bin/python3 -c '
import json, re, sys
row = next(line for line in open(sys.argv[1]) if line.startswith("| `devices[]`"))
said = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row))
told = list(json.load(sys.stdin)["devices"][0])
assert sorted(said) == sorted(told), set(said) ^ set(told)' "$(dirname "$0")/../../docs/operations.md"
}
status_json() {
    PLASMON_TOKEN=secret-of-the-test "$plasmon" status --json |
        /usr/bin/python3 -c 'import json, sys; status = json.load(sys.stdin); assert len(status["devices"]) == 2, status'
    PLASMON_TOKEN=secret-of-the-test "$plasmon" memory
    PLASMON_TOKEN=secret-of-the-test "$plasmon" memory --json |
        /usr/bin/python3 -c 'import json, sys; memory = json.load(sys.stdin); assert len(memory["devices"]) == 2 and memory["spill"][0]["memory_bytes"] > 0, memory'
    for list in tasks objects nodes; do
        PLASMON_TOKEN=secret-of-the-test "$plasmon" $list --json |
            /usr/bin/python3 -c 'import json, sys; assert isinstance(json.load(sys.stdin)[sys.argv[1]], list)' $list || return 1
    done
}
metrics_for_prometheus() {
    PLASMON_TOKEN=secret-of-the-test "$plasmon" metrics --out "$XDG_RUNTIME_DIR/plasmon.prom" || return 1
    cat "$XDG_RUNTIME_DIR/plasmon.prom"
    grep -qx 'plasmon_up 1' "$XDG_RUNTIME_DIR/plasmon.prom" && grep -q '^plasmon_device_up{device="1".*} 1$' "$XDG_RUNTIME_DIR/plasmon.prom" || return 1
    ! grep -F secret-of-the-test "$XDG_RUNTIME_DIR/plasmon.prom" || return 1
    [ ! -e "$XDG_RUNTIME_DIR/plasmon.prom.new" ]
}
head_tells_metrics() {
    /usr/bin/python3 - "$metrics_port" <<'END'
import sys, urllib.error, urllib.request
at = "http://127.0.0.1:%s" % sys.argv[1]
with urllib.request.urlopen(at + "/metrics", timeout=60) as answer:
    text = answer.read().decode()
lines = text.splitlines()
assert "plasmon_up 1" in lines, text
assert any(line.startswith('plasmon_device_up{device="1"') and line.endswith(" 1") for line in lines), text
assert "secret-of-the-test" not in text
try:
    urllib.request.urlopen(at + "/", timeout=60)
except urllib.error.HTTPError as refused:
    assert refused.code == 404
else:
    raise SystemExit("it has more than /metrics")
END
}
second_start_refused() {
    before=$(daemons | sort)
    if "$plasmon" start --head --cpu-devices 1 --gpus none; then
        echo "a second cluster was started"
        return 1
    fi
    [ "$(daemons | sort)" = "$before" ] && run "$local"
}
second_head_refused() { # the same port, by hand
    if said=$(timeout 20 "$PLASMON_BIN_DIR/plasmon-head" --listen "127.0.0.1:$port" 2>&1); then
        echo "it served an address that is taken: $said"
        return 1
    fi
    echo "$said"
    echo "$said" | grep -q "127.0.0.1:$port" && echo "$said" | grep -qi "in use"
}
second_head_on_the_socket_refused() {
    if said=$(timeout 20 "$PLASMON_BIN_DIR/plasmon-head" --listen "$local" 2>&1); then
        echo "it served a socket that is taken: $said"
        return 1
    fi
    echo "$said"
    echo "$said" | grep -q "$local: another process serves it" && run "$local" # which still belongs to the first
}
any_port_is_told() {
    "$PLASMON_BIN_DIR/plasmon-head" --listen 127.0.0.1:0 2>"$XDG_RUNTIME_DIR/any" &
    pid=$!
    until grep -q 'listening on' "$XDG_RUNTIME_DIR/any"; do
        kill -0 "$pid" || return 1
        sleep 0.05
    done
    cat "$XDG_RUNTIME_DIR/any"
    any=$(sed -n 's/.*listening on 127.0.0.1:0, port \([0-9]*\).*/\1/p' "$XDG_RUNTIME_DIR/any")
    result=0
    grep -q 'every user of this machine' "$XDG_RUNTIME_DIR/any" || result=1 # there is no token
    [ -n "$any" ] && "$plasmon" status --address "127.0.0.1:$any" || result=1
    kill "$pid" && wait "$pid"
    return $result
}
two_programs_at_once() {
    run "$local" &
    first=$!
    run "127.0.0.1:$port" && wait "$first"
}
killed_worker_is_replaced() {
    old=$(tagged plasmon-worker | head -n 1)
    kill -KILL "$old"
    run "$local"
}
killed_store_is_followed() {
    workers=$(tagged plasmon-worker | sort | tr '\n' ' ')
    kill -KILL "$(tagged plasmon-store)"
    while [ -n "$(tagged plasmon-store)" ]; do sleep 0.05; done
    start && run "$local" || return 1
    echo "workers were $workers and are $(tagged plasmon-worker | sort | tr '\n' ' ')"
    [ "$workers" = "$(tagged plasmon-worker | sort | tr '\n' ' ')" ]
}
stop_leaves_nothing() {
    "$plasmon" stop
    left=$(daemons)
    echo "left: $left"
    [ -z "$left" ] || return 1
    find "$XDG_RUNTIME_DIR" -name '*.sock'
    [ -z "$(find "$XDG_RUNTIME_DIR" -name '*.sock')" ]
}
stopped_ones_end_by_themselves() { # and are not killed when the time for it is over: they say that they were asked
    logs=$XDG_RUNTIME_DIR/plasmon-$(id -u)
    kill -STOP "$(tagged plasmon-head)" "$(tagged plasmon-store)"
    stop_leaves_nothing || return 1
    tail -n 2 "$logs/plasmon-head.log" "$logs/plasmon-store.log"
    grep -q 'asked to stop' "$logs/plasmon-head.log" && grep -q 'ending: SIGINT' "$logs/plasmon-store.log"
}
beside=$XDG_RUNTIME_DIR/o # another job's runtime folder
beside() { XDG_RUNTIME_DIR=$beside PLASMON_TOKEN=secret-of-the-test "$plasmon" "$@"; }
two_clusters_start_at_once() {
    mkdir -p "$beside"
    beside_port=$(free_port)
    start &
    first=$!
    beside start --head --listen "127.0.0.1:$beside_port" --token-file "$XDG_RUNTIME_DIR/token" \
        --cpu-devices 1 --gpus none --device-memory 64M && wait "$first"
}
two_clusters_do_not_meet() {
    run "$local" &
    first=$!
    run "127.0.0.1:$beside_port" && wait "$first" || return 1
    run "unix:$beside/plasmon-$(id -u)/head.sock" || return 1
    beside status
    [ "$(beside status --json | grep -o '"alive"' | wc -l)" = 1 ] || return 1
    [ "$(PLASMON_TOKEN=secret-of-the-test "$plasmon" status --json | grep -o '"alive"' | wc -l)" = 2 ] || return 1
    beside stop && run "$local"
}
token_is_changed() { # a head that has another token takes the one of before as well, and nothing else
    echo the-new-one >"$XDG_RUNTIME_DIR/token.new"
    at=unix:$XDG_RUNTIME_DIR/changed.sock
    "$PLASMON_BIN_DIR/plasmon-head" --listen "$at" --token-before "$XDG_RUNTIME_DIR/token" 2>"$XDG_RUNTIME_DIR/said" && return 1
    grep -q -e '--token-file' "$XDG_RUNTIME_DIR/said" || return 1
    "$PLASMON_BIN_DIR/plasmon-head" --listen "$at" --token-file "$XDG_RUNTIME_DIR/token.new" \
        --token-before "$XDG_RUNTIME_DIR/token" &
    changed=$!
    for _ in $(seq 200); do
        [ -S "$XDG_RUNTIME_DIR/changed.sock" ] && break
        sleep 0.1
    done
    "$plasmon" status --address "$at" --token-file "$XDG_RUNTIME_DIR/token" >/dev/null || return 1
    "$plasmon" status --address "$at" --token-file "$XDG_RUNTIME_DIR/token.new" >/dev/null || return 1
    PLASMON_TOKEN=wrong "$plasmon" status --address "$at" && return 1
    kill "$changed"
    wait "$changed" || true
    mkdir -p "$beside"
    beside start --head --token-file "$XDG_RUNTIME_DIR/token.new" --token-before "$XDG_RUNTIME_DIR/token" \
        --cpu-devices 1 --gpus none --device-memory 64M || return 1
    at=unix:$beside/plasmon-$(id -u)/head.sock
    "$plasmon" status --address "$at" --token-file "$XDG_RUNTIME_DIR/token" >/dev/null || return 1
    "$plasmon" nodes --json --address "$at" --token-file "$XDG_RUNTIME_DIR/token.new" >"$XDG_RUNTIME_DIR/said" || return 1
    beside stop || return 1
    grep -q '"spill":{"memory_bytes":[0-9]*,"memory_used":0,"file_bytes":[0-9]*,"file_used":0}}' "$XDG_RUNTIME_DIR/said" || return 1
}
gone_is_told() {
    said=$(PLASMON_ADDRESS=$local PLASMON_TOKEN=x timeout 60 "$program" 2>&1) && return 1
    echo "$said"
    echo "$said" | grep -q "$local"
}

claim a_head_at_port_0_says_which_one_it_became any_port_is_told
claim start_returns_when_the_devices_are_ready start
claim what_start_says_lets_a_program_in what_start_says_suffices
claim commands_need_no_address_and_no_token_of_what_was_started_here nothing_more_is_needed_here
claim a_program_runs_over_the_unix_socket run "$local"
claim a_program_runs_over_tcp run "127.0.0.1:$port"
claim no_token_is_refused refused ""
claim a_wrong_token_is_refused refused wrong
claim status_names_the_devices status_names_devices
claim status_json_parses status_json
claim status_json_tells_what_its_page_says page_has_fields
claim metrics_are_written_for_prometheus metrics_for_prometheus
claim the_head_tells_them_over_http head_tells_metrics
claim a_second_start_is_refused_and_harms_nobody second_start_refused
claim a_second_head_on_the_port_says_that_it_is_in_use second_head_refused
claim a_second_head_on_the_socket_is_refused_and_harms_nobody second_head_on_the_socket_refused
claim two_programs_at_once_get_their_results two_programs_at_once
claim a_killed_worker_is_replaced killed_worker_is_replaced
claim a_store_that_was_killed_is_followed_by_another_with_the_same_workers killed_store_is_followed
claim stop_leaves_no_process_and_no_socket stop_leaves_nothing
claim a_token_is_changed_while_some_have_the_old_one token_is_changed
claim a_program_is_told_that_nobody_is_there gone_is_told
claim it_starts_again_after_a_stop_and_another_cluster_at_once two_clusters_start_at_once
claim both_work_and_one_stops_without_the_other two_clusters_do_not_meet
claim and_stops_also_what_was_stopped_by_a_signal stopped_ones_end_by_themselves
finish
