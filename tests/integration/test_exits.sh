#!/bin/sh
# test_exits.sh EXAMPLES PROGRAM: how each program ends - with work done, with a mistake in its
# command line, without a head, with a wrong token, by a signal in the middle of work - it ends with
# the status that says so, within its time, and loses no memory.
#
# What was lost is told by the leak sanitizer in a build with the address sanitizer; without it the
# test still is about statuses and about who remains. PLASMON_EXITS_UNDER runs everything but the
# store and its workers under something else, for example
#
#   PLASMON_EXITS_UNDER='valgrind -q --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=99'
#
# The store does not start under valgrind, which has no pidfd_open(2).
set -u
examples=$1
program=$2
. "$(dirname "$0")/lib.sh"

under=${PLASMON_EXITS_UNDER-}
patience=${PLASMON_EXITS_PATIENCE:-60}
PLASMON_LEAKS=1 # workers end by _exit(), which skips what the sanitizer looks for: they look before
export PLASMON_LEAKS
token=$XDG_RUNTIME_DIR/token
echo secret-of-the-test >"$token"
here=unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock
nowhere=unix:$XDG_RUNTIME_DIR/nobody.sock
benchmarks=$("$plasmon" bench --help | sed -n 's/^  \([a-z]*\)  *[a-z0-9].*/\1/p')
commands='status nodes tasks objects memory transfers metrics top timeline drain doctor'

# words COMMAND: what it needs beside an address.
words() {
    case $1 in
    timeline) echo --seconds 0.2 --out "$XDG_RUNTIME_DIR/trace.json" ;;
    top) echo --count 1 ;;
    doctor) echo --cluster ;; # else it is about this machine alone
    drain) echo nobody ;; # there is no such node, which is found out when somebody is asked
    *) ;;
    esac
}

# clean FILE..: nothing in it that a sanitizer, or valgrind, would say.
clean() {
    if grep -l -e 'LeakSanitizer' -e 'AddressSanitizer' -e 'runtime error:' -e 'definitely lost' -e '^==[0-9]*== Invalid' "$@" 2>/dev/null; then
        grep -h -A 12 -e 'LeakSanitizer' -e 'AddressSanitizer' -e 'runtime error:' -e 'definitely lost' -e '^==[0-9]*== Invalid' "$@" | head -n 60
        return 1
    fi
}

# ends STATUS NAME COMMAND..: with that status, and clean. What it said is in said.NAME.
ends() {
    wanted=$1
    said=$XDG_RUNTIME_DIR/said.$2
    shift 2
    # shellcheck disable=SC2086 # it is several words
    timeout "$patience" $under "$@" >"$said" 2>&1 </dev/null
    status=$?
    if [ "$status" -ne "$wanted" ]; then
        echo "$*: status $status, not $wanted:"
        cat "$said"
        return 1
    fi
    clean "$said"
}

# Those of a group run side by side, so many at once; what one of them says is shown when it fails.
at_once=4
many() {
    pids=
    for one in "$@"; do
        eval "$one" >"$XDG_RUNTIME_DIR/many.$(echo "$one" | tr -c 'a-z0-9\n' _)" 2>&1 &
        pids="$pids $!:$(echo "$one" | tr -c 'a-z0-9\n' _)"
        [ "$(echo "$pids" | wc -w)" -lt "$at_once" ] || reap_many || return 1
    done
    reap_many
}
reap_many() {
    bad=0
    for pair in $pids; do
        wait "${pair%%:*}" || {
            bad=1
            cat "$XDG_RUNTIME_DIR/many.${pair#*:}"
        }
    done
    pids=
    return $bad
}

mistakes_of_daemons() {
    many "ends 2 head1 $PLASMON_BIN_DIR/plasmon-head --nonsense" "ends 2 head2 $PLASMON_BIN_DIR/plasmon-head" \
        "ends 2 head3 $PLASMON_BIN_DIR/plasmon-head --listen 127.0.0.1:99999" \
        "ends 2 head4 $PLASMON_BIN_DIR/plasmon-head --listen $nowhere --namespaces $token" \
        "ends 2 head5 $PLASMON_BIN_DIR/plasmon-head --listen $nowhere --token-file $XDG_RUNTIME_DIR/none" \
        "ends 2 store1 $PLASMON_BIN_DIR/plasmon-store --nonsense" "ends 2 store2 $PLASMON_BIN_DIR/plasmon-store --head" \
        "ends 2 worker1 $PLASMON_BIN_DIR/plasmon-worker --nonsense" "ends 0 head6 $PLASMON_BIN_DIR/plasmon-head --help" \
        "ends 0 store3 $PLASMON_BIN_DIR/plasmon-store --help" "ends 0 worker2 $PLASMON_BIN_DIR/plasmon-worker --help" \
        "ends 0 head7 $PLASMON_BIN_DIR/plasmon-head --version" \
        "ends 2 head8 $PLASMON_BIN_DIR/plasmon-head --listen $nowhere --shadow-bytes 1M"
}
mistakes_of_commands() {
    set -- "ends 2 nothing $plasmon" "ends 2 unknown $plasmon unknown" "ends 0 help $plasmon --help" "ends 0 version $plasmon version" \
        "said_of --cpu-devices $plasmon help start" "ends 2 help_of $plasmon help unknown"
    set -- "$@" "ends 2 nolooks $plasmon top --count 0" "ends 2 noport $plasmon start --head --port 0"
    for command in start stop cert functions $commands; do
        set -- "$@" "ends 2 $command $plasmon $command --nonsense" "ends 0 $command.help $plasmon $command --help"
    done
    many "$@"
}
mistakes_of_benchmarks() {
    set --
    for bench in $benchmarks; do
        set -- "$@" "ends 2 $bench $plasmon bench $bench --nonsense"
    done
    many "$@"
}
without_a_head() {
    set -- "ends 1 program $program"
    for command in $commands; do
        set -- "$@" "ends 1 $command $plasmon $command $(words "$command")"
    done
    at_once=$# # they only wait, as long as a connection may take
    PLASMON_ADDRESS=$nowhere many "$@"
    result=$?
    at_once=4
    return $result
}
with_a_wrong_token() {
    set --
    for command in $commands; do
        set -- "$@" "ends 1 $command $plasmon $command $(words "$command")"
    done
    PLASMON_ADDRESS=$here PLASMON_TOKEN=secret-of-another many "$@"
}
# said_of TEXT COMMAND...: it says this, whatever it ends with.
said_of() {
    what=$1
    shift
    "$@" 2>&1 | tee /dev/stderr | grep -qF -e "$what"
}
certificates() {
    ends 0 ca "$plasmon" cert init "$XDG_RUNTIME_DIR/ca" && ends 0 issue "$plasmon" cert issue "$XDG_RUNTIME_DIR/ca" a --role host &&
        ends 0 renew "$plasmon" cert renew "$XDG_RUNTIME_DIR/ca" a && ends 0 show "$plasmon" cert show "$XDG_RUNTIME_DIR/ca/a.crt" &&
        ends 1 again "$plasmon" cert init "$XDG_RUNTIME_DIR/ca" && ends 1 absent "$plasmon" cert show "$token" &&
        ends 2 renew_role "$plasmon" cert renew "$XDG_RUNTIME_DIR/ca" a --role head && ends 2 show_days "$plasmon" cert show "$XDG_RUNTIME_DIR/ca/a.crt" --days 3 &&
        ends 2 never "$plasmon" cert issue "$XDG_RUNTIME_DIR/ca" b --days 0 &&
        ends 0 short "$plasmon" cert init "$XDG_RUNTIME_DIR/short" --days 1 &&
        said_of "when its CA expires" "$plasmon" cert issue "$XDG_RUNTIME_DIR/short" a &&
        said_of "when its CA expires" "$plasmon" cert renew "$XDG_RUNTIME_DIR/short" a &&
        said_of "Is a directory" "$plasmon" cert show "$XDG_RUNTIME_DIR/ca"
}
start() {
    "$plasmon" start --head --token-file "$token" --cpu-devices 2 --gpus none --device-memory 64M --allow-source
}
with_a_cluster() {
    set -- "ends 0 program $program" "ends 1 notasks $plasmon tasks --device 99" "ends 1 noobjects $plasmon objects --device 99"
    for command in $commands; do
        [ "$command" = drain ] || set -- "$@" "ends 0 $command $plasmon $command $(words "$command")"
    done
    PLASMON_TOKEN=secret-of-the-test PLASMON_ADDRESS=$here many "$@"
}
each_example() {
    set --
    for example in 01_hello 04_views 05_reduce 06_source 07_replay 08_stream 09_average; do
        set -- "$@" "ends 0 $example $examples/$example"
    done
    PLASMON_TOKEN=secret-of-the-test PLASMON_ADDRESS=$here many "$@"
}
private_cluster() { # of its own, which is gone with it
    [ -z "$under" ] || return 0
    ends 0 private env -u PLASMON_ADDRESS "$examples/09_average" && ends 0 doctor "$plasmon" doctor
}
# OF..: what the head says of the cluster, added up.
sum_of() {
    PLASMON_TOKEN=secret-of-the-test "$plasmon" status --address "$here" --json |
        /usr/bin/python3 -c 'import json, sys; status = json.load(sys.stdin); print(sum(status[of] for of in sys.argv[1:]))' "$@"
}
# OF BEFORE: until that figure of the cluster is another one, by which the command is at work. One
# that ends before is seen by who waits for it.
at_work() {
    for _ in $(seq 600); do
        [ "$(sum_of "$1")" = "$2" ] || return 0
        sleep 0.1
    done
}
# OF SIGNAL STATUS COMMAND..: sent when the command is at work, which is seen by that figure.
interrupted() {
    figure=$1
    signal=$2
    wanted=$3
    before=$(sum_of "$figure")
    shift 3
    # shellcheck disable=SC2086
    PLASMON_TOKEN=secret-of-the-test PLASMON_ADDRESS=$here $under "$@" >"$XDG_RUNTIME_DIR/said.signal" 2>&1 &
    pid=$!
    at_work "$figure" "$before"
    while kill -"$signal" "$pid" 2>/dev/null; do # one that came before there was a handler is ignored
        sleep 0.1
        [ "$(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null)" != Z ] || break
    done
    wait "$pid"
    status=$?
    [ "$status" -eq "$wanted" ] || {
        echo "$*: status $status after $signal, not $wanted"
        cat "$XDG_RUNTIME_DIR/said.signal"
        return 1
    }
    clean "$XDG_RUNTIME_DIR/said.signal"
}
a_timeline_that_is_interrupted() { interrupted clients INT 0 "$plasmon" timeline --seconds 600 --out "$XDG_RUNTIME_DIR/trace.json"; }
programs_that_are_killed() { # nothing to look for in them; what they had goes
    interrupted tasks_done TERM 143 "$plasmon" bench tasks --tasks 100000000 &&
        interrupted tasks_done KILL 137 "$plasmon" bench tasks --tasks 100000000 || return 1
    for _ in $(seq 300); do
        left=$(sum_of objects tasks_queued)
        [ "$left" = 0 ] && return 0
        sleep 0.2
    done
    echo "$left objects and tasks are left of them"
    return 1
}
# Daemons that end while somebody works: SIGTERM, first the store with its worker, then the head.
daemons_that_are_ended_in_the_middle() {
    logs=$XDG_RUNTIME_DIR/plasmon-$(id -u)
    before=$(sum_of tasks_done)
    PLASMON_TOKEN=secret-of-the-test PLASMON_ADDRESS=$here "$plasmon" bench tasks --tasks 100000000 >"$XDG_RUNTIME_DIR/said.bench" 2>&1 &
    pid=$!
    at_work tasks_done "$before"
    "$plasmon" stop || return 1
    kill -KILL "$pid" 2>/dev/null
    wait "$pid"
    [ -z "$(daemons)" ] || {
        echo "still there: $(daemons)"
        return 1
    }
    tail -n 3 "$logs"/*.log
    clean "$logs"/*.log
}
# A head alone, under whatever was asked for.
a_head_that_is_ended() {
    for signal in TERM INT; do
        # shellcheck disable=SC2086
        $under "$PLASMON_BIN_DIR/plasmon-head" --listen "unix:$XDG_RUNTIME_DIR/alone.sock" >"$XDG_RUNTIME_DIR/said.alone" 2>&1 &
        pid=$!
        for _ in $(seq 600); do
            [ -S "$XDG_RUNTIME_DIR/alone.sock" ] && break
            sleep 0.1
        done
        PLASMON_ADDRESS=unix:$XDG_RUNTIME_DIR/alone.sock timeout "$patience" "$plasmon" status >"$XDG_RUNTIME_DIR/said.status" 2>&1
        kill -"$signal" "$pid"
        wait "$pid" || {
            echo "status $? after $signal"
            cat "$XDG_RUNTIME_DIR/said.alone"
            return 1
        }
        clean "$XDG_RUNTIME_DIR/said.alone" || return 1
    done
}

claim mistakes_in_command_lines_of_daemons mistakes_of_daemons
claim mistakes_in_command_lines_of_commands mistakes_of_commands
claim mistakes_in_command_lines_of_benchmarks mistakes_of_benchmarks
claim commands_and_a_program_without_a_head without_a_head
claim certificates_are_made_and_shown certificates
claim a_head_ends_by_sigterm_and_by_sigint a_head_that_is_ended
claim a_cluster_is_started start
claim a_wrong_token with_a_wrong_token
claim commands_and_a_program_with_a_cluster with_a_cluster
claim each_example each_example
claim an_example_with_a_private_cluster private_cluster
claim a_timeline_is_interrupted a_timeline_that_is_interrupted
claim programs_are_killed_and_leave_nothing_in_the_cluster programs_that_are_killed
claim daemons_are_ended_in_the_middle_of_work daemons_that_are_ended_in_the_middle
finish
