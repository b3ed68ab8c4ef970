#!/bin/sh
# test_man.sh FOLDER: the man pages in FOLDER tell every option that the programs' --help tells, and no other.
set -eu
folder=$1
. "$(dirname "$0")/lib.sh"

# page NAME: its text with hyphens as they are typed.
page() { sed 's/\\-/-/g' "$folder/$1"; }
# options PROGRAM..: what its --help tells, one a line.
options() { "$@" --help | grep -oE '^  --[a-z-]+' | tr -d ' '; }
# tells NAME: reads words; each must be in that page.
tells() {
    missing=
    while read -r word; do
        page "$1" | grep -qwF -e "$word" || missing="$missing $word"
    done
    [ -z "$missing" ] || echo "$1 does not tell$missing"
    [ -z "$missing" ]
}

daemons_tell_their_options() {
    for daemon in plasmon-head plasmon-store plasmon-worker; do
        options "$PLASMON_BIN_DIR/$daemon" | tells "$daemon.8" || return 1
        page "$daemon.8" | grep -oE '^\.BR? "?--[a-z-]+' | grep -oE -e '--[a-z-]+' | sort -u >"$XDG_RUNTIME_DIR/told"
        options "$PLASMON_BIN_DIR/$daemon" | sort -u | diff "$XDG_RUNTIME_DIR/told" - || return 1
    done
}
commands() { "$plasmon" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'; }
commands_are_told() { commands | sed 's/^/plasmon /' | tells plasmon.1; }
options_of_commands_are_told() {
    for command in $(commands); do
        [ "$command" = bench ] || options "$plasmon" "$command" | grep -vx -e --help | tells plasmon.1 || return 1
    done
}
benchmarks_are_told() { "$plasmon" bench --help | sed -n 's/^  \([a-z]*\)  *[a-z0-9].*/\1/p' | tells plasmon.1; }

claim the_pages_of_the_daemons_tell_their_options daemons_tell_their_options
claim the_page_of_plasmon_tells_its_commands commands_are_told
claim it_tells_their_options options_of_commands_are_told
claim it_tells_the_benchmarks benchmarks_are_told
finish
