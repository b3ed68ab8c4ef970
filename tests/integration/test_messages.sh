#!/bin/sh
# test_messages.sh: what an operator does wrong is told with its cause and what to do, and --help
# fits a terminal.
set -eu
. "$(dirname "$0")/lib.sh"

refuses() { # WORDS COMMAND..
    words=$1
    shift
    if said=$(timeout 60 "$@" 2>&1); then
        echo "it was done: $said"
        return 1
    fi
    echo "$said"
    echo "$said" | grep -q -F -e "$words"
}
starts_not() { # WORDS OPTION..
    words=$1
    shift
    refuses "$words" "$plasmon" start --head --cpu-devices 1 --gpus none --device-memory 64M "$@"
}
start() { "$plasmon" start --head --cpu-devices 1 --gpus none --device-memory 64M --node here --reach-wait 7 --hello-wait 8.5; }
says() { # WORDS COMMAND..
    words=$1
    shift
    "$@" | grep -F -e "$words"
}
no_program() { # what is said of it is not what an older one said
    said=$(PLASMON_BIN_DIR=/nonexistent "$plasmon" start --head 2>&1) && return 1
    echo "$said"
    echo "$said" | grep -q "plasmon-head was not found; set PLASMON_BIN_DIR" && ! echo "$said" | grep -q "ends with"
}
help_fits() {
    for command in $("$plasmon" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
        [ "$command" = bench ] || "$plasmon" "$command" --help
    done >"$XDG_RUNTIME_DIR/help"
    for daemon in plasmon-head plasmon-store plasmon-worker; do
        "$PLASMON_BIN_DIR/$daemon" --help
    done >>"$XDG_RUNTIME_DIR/help"
    ! grep -n '.\{101\}' "$XDG_RUNTIME_DIR/help"
}

# In a folder that cannot be used another one is taken, which all commands say, so that nobody looks
# for the cluster elsewhere.
elsewhere() { # COMMAND..
    said=$(unset PLASMON_ADDRESS && XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR/none "$@" 2>&1)
    echo "$said"
    [ "$(echo "$said" | grep -c "^plasmon: XDG_RUNTIME_DIR ($XDG_RUNTIME_DIR/none) does not exist: /tmp/plasmon-$(id -u) is used instead;")" -eq 1 ]
}
none_is_told_with_where_it_was_looked_for() {
    refuses "that $XDG_RUNTIME_DIR/plasmon-$(id -u) tells of" "$plasmon" status && "$plasmon" stop | grep "that $XDG_RUNTIME_DIR/plasmon-$(id -u) tells of"
}
somebody_elses() {
    mkdir -m 755 "$XDG_RUNTIME_DIR/open" "$XDG_RUNTIME_DIR/open/plasmon-$(id -u)"
    XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR/open refuses 'is not a folder of ours with mode 0700' "$plasmon" status
}
head_has() { # ARGUMENT..
    for argument in "$@"; do
        tr '\0' '\n' <"/proc/$(tagged plasmon-head)/cmdline" | grep -qx -e "$argument" || return 1
    done
}

claim help_fits_a_hundred_columns help_fits
claim a_number_of_bytes_that_is_too_large starts_not 'a number below 256T' --spill-memory 900T
claim a_percentage starts_not '0 to 100' --write-back 200
claim an_option_whose_variable_was_empty starts_not '--node wants a value: NAME' --node ''
claim a_library_folder_that_is_missing starts_not 'give the folder that has the shared objects' --library-dir /nonexistent
long() { printf "%0$1d" 0; }
claim long_options_are_given_to_the_head starts_not 'there are auto, locality, round-robin and pinned' --policy "$(long 5000)"
claim options_that_are_too_long starts_not 'the options for plasmon-head have more than 65536 bytes in all' --policy "$(long 40000)" --transfer "$(long 40000)"
claim and_nothing_of_it_runs [ -z "$(daemons)" ]
claim a_redis_that_is_missing starts_not 'is redis-server running, and listening there?' --journal unix:/nonexistent.sock
claim a_wait_that_is_no_number_of_seconds starts_not 'is not a number of seconds between' --reach-wait soon
claim a_wait_of_the_head_without_one refuses 'belong to --head' "$plasmon" start --address 127.0.0.1:1 --hello-wait 3
claim where_no_cluster_was_found none_is_told_with_where_it_was_looked_for
claim a_folder_that_is_open_to_others somebody_elses
claim a_runtime_folder_that_is_missing elsewhere "$plasmon" status
claim and_others_say_so_too elsewhere "$plasmon" doctor
claim a_cluster_starts start
claim the_head_has_what_it_was_given head_has --reach-wait=7 --hello-wait=8.5
claim a_state_that_there_is_not refuses 'there are queued, sent, running, ending, failed' "$plasmon" tasks --state asleep
claim the_end_of_a_drain_is_told says 'work is placed on here again' "$plasmon" drain here --undo
claim a_file_that_cannot_be_written_before_it_was_recorded refuses 'cannot write /nonexistent/trace.json: No such file or directory; nothing was done' "$plasmon" timeline --seconds 300 --out /nonexistent/trace.json
claim results_that_cannot_be_written_before_they_are_measured refuses 'bench graphs: cannot write /nonexistent/a.json: No such file or directory; nothing was done' "$plasmon" bench graphs --gpus none --json /nonexistent/a.json
claim a_picture_in_the_place_of_a_folder refuses "cannot write $XDG_RUNTIME_DIR: Is a directory; nothing was done" "$plasmon" bench tasks --plot "$XDG_RUNTIME_DIR"
claim gpus_for_a_benchmark_that_are_not_there refuses 'the machine has' "$plasmon" bench transfer --gpus 60 --sizes 4
claim gpus_for_a_benchmark_that_are_no_number refuses 'a number from 2 on, all or none' "$plasmon" bench transfer --gpus many --sizes 4
claim it_stops "$plasmon" stop
claim a_program_that_is_missing no_program
claim nothing_is_left [ -z "$(daemons)" ]
finish
