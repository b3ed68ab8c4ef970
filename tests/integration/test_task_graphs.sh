#!/bin/sh
# The task graphs of `plasmon bench graphs` on CPU devices: right results, submitted and recorded,
# on one device and on two under every policy. What it measures is not looked at.
set -eu
. "$(dirname "$0")/lib.sh"

json=$XDG_RUNTIME_DIR/graphs.json
svg=$XDG_RUNTIME_DIR/graphs.svg

# The benchmark compares with fp64 before it measures, and fails when a figure is missing.
part() { # PART OPTION...
    "$plasmon" bench graphs --gpus none --runs 4 --budget 1 --part "$@" --json "$json"
}
has_rows() { # COUNT PATTERN
    found=$(grep -c "$2" "$json")
    [ "$found" -eq "$1" ] || {
        echo "$found rows like $2, not $1"
        return 1
    }
}
six() {
    part six --plot "$svg" &&
        has_rows 24 '"series":"plain"' && has_rows 24 '"series":"replay"' && has_rows 24 '"series":"serial"' &&
        has_rows 6 'tiny\.cold","series":"plain"' && has_rows 6 'tiny\.pageable","series":"plain"' &&
        has_rows 6 '\.tiny\.room"' && has_rows 6 '\.tiny\.wall"' &&
        grep -q '</svg>' "$svg" && grep -q 'Plasmon, recorded' "$svg"
}
selected() {
    part six --only vec,dl --modes single &&
        has_rows 2 '"series":"plain"' && has_rows 2 'tiny.single","series":"replay"' && has_rows 0 'tiny\.cold'
}
multi() {
    part multi --devices 2 --only ml,cg --plot "$svg" &&
        has_rows 4 '"name":"multi\.[a-z]*\.auto"' && has_rows 4 '"name":"multi\.[a-z]*\.auto\.replay"' &&
        has_rows 2 '"name":"multi\.[a-z]*\.round-robin"' && has_rows 2 '"name":"multi\.[a-z]*\.pinned"' &&
        has_rows 2 '"name":"multi\.[a-z]*\.locality"' && grep -q 'round robin' "$svg"
}
timelines() {
    ! "$plasmon" bench graphs --gpus none --part multi --only vec --traces "$plasmon/none" >"$XDG_RUNTIME_DIR/refused" 2>&1 &&
        grep -q -- '--traces .*/none: Not a directory; give a folder' "$XDG_RUNTIME_DIR/refused" && [ "$(wc -l <"$XDG_RUNTIME_DIR/refused")" -eq 1 ] &&
        part multi --devices 2 --devices-min 2 --only vec --policies locality --traces "$XDG_RUNTIME_DIR/traces" &&
        has_rows 1 '"name":"multi\.vec\.locality"' && has_rows 0 '"name":"multi\.vec\.auto' &&
        grep -q '"name":"vec_square"' "$XDG_RUNTIME_DIR/traces/vec-2-locality.json" &&
        [ "$(ls "$XDG_RUNTIME_DIR/traces")" = vec-2-locality.json ]
}
# Killed in the middle: what was measured before is in the file, and it is whole.
killed() {
    rm -f "$json"
    "$plasmon" bench graphs --gpus none --runs 4 --budget 1 --part six --modes single --json "$json" &
    bench=$!
    for _ in $(seq 1200); do
        [ -s "$json" ] && break
        kill -0 "$bench" || break
        sleep 0.05
    done
    kill -9 "$bench" && ! wait "$bench" && has_rows 1 '"name":"vec.tiny.wall"' && tail -n 1 "$json" | grep -q '^"[^"]*"\]}$'
}
chain() {
    part chain && has_rows 1 '"name":"chain.plain"' && has_rows 1 '"name":"chain.replay"' &&
        has_rows 1 '"name":"edge.plain"' && has_rows 1 '"name":"head_cpu.plain"' &&
        has_rows 3 '"name":"latency\.[a-z]*".*"limit":' && has_rows 1 '"name":"latency.floor"'
}
refuses_unknown_names() {
    for wrong in "--only vec,nope" "--sizes huge" "--part half" "--modes warm" "--policies fair" "--runs 3" "--budget 100000"; do
        # shellcheck disable=SC2086
        "$plasmon" bench graphs $wrong && return 1
        [ $? -eq 2 ] || return 1
    done
}

claim six_graphs_give_what_fp64_gives_submitted_and_recorded six
claim graphs_and_modes_can_be_chosen selected
claim a_benchmark_that_is_killed_leaves_the_rows_that_it_has killed
claim two_graphs_on_two_devices_do_so_under_every_policy multi
claim policies_can_be_chosen_and_runs_leave_timelines timelines
claim a_chain_counts_its_links_on_one_device_and_between_two chain
claim names_that_do_not_exist_are_wrong_usage refuses_unknown_names
finish
