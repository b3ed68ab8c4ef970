#!/bin/sh
# test_readme.sh PROGRAM SOURCE: the first program of the README, cut out of its text and built.
set -eu
program=$1
source=$2
. "$(dirname "$0")/lib.sh"

right() { [ "$(printf '19 22\n43 50\n')" = "$("$@")" ]; }
at_most_twenty_lines() {
    wc -l "$source"
    [ "$(wc -l <"$source")" -le 20 ]
}
runs_alone() { right timeout 60 "$program"; }
runs_on_a_cluster() {
    "$plasmon" start --head --cpu-devices 2 --gpus none --device-memory 64M
    right env "PLASMON_ADDRESS=unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock" timeout 60 "$program"
    "$plasmon" stop
}

claim the_first_program_of_the_readme_has_at_most_twenty_lines at_most_twenty_lines
claim it_prints_the_product_on_a_private_cluster runs_alone
claim it_prints_the_product_on_a_started_cluster runs_on_a_cluster
finish
