#!/bin/sh
# test_setup.sh SETUP: tools/setup with a package manager of our own, that installs nothing and says
# what it was asked for.
set -eu
setup=$1
. "$(dirname "$0")/lib.sh"

fake=$XDG_RUNTIME_DIR/bin
mkdir "$fake"
printf '#!/bin/sh\nexit 1\n' >"$fake/dpkg-query" # nothing is installed
printf '#!/bin/sh\necho "apt-get $*"\n' >"$fake/apt-get"
printf '#!/bin/sh\nfor lacks in $LACKS; do [ "$2" != "$lacks" ] || exit 1; done\n' >"$fake/apt-cache"
printf '#!/bin/sh\nexec "$@"\n' >"$fake/sudo"
chmod +x "$fake"/*

said() { # LACKS
    LACKS=$1 PATH=$fake:$PATH "$setup" 2>&1
}
installs_all() {
    said "" | tee /dev/stderr | grep -q 'apt-get install .* build-essential .* libgrpc-dev .* clang-format-14'
}
goes_on_without() {
    out=$(said "clang-format-14")
    echo "$out"
    echo "$out" | grep -q 'has no package clang-format-14: what needs it is skipped' &&
        echo "$out" | grep -q 'apt-get install .* libgrpc-dev' && ! echo "$out" | grep -q 'install .*clang-format-14'
}
stops_without() {
    if out=$(said "libgrpc-dev"); then
        echo "$out"
        return 1
    fi
    echo "$out"
    echo "$out" | grep -q 'has no package libgrpc-dev, which the build needs' && ! echo "$out" | grep -q 'apt-get install'
}
does_nothing() {
    printf '#!/bin/sh\necho installed\n' >"$fake/dpkg-query"
    [ -z "$(said "")" ]
}

claim a_fresh_machine_gets_everything installs_all
claim a_release_without_a_tool_gets_the_rest goes_on_without
claim a_release_without_what_the_build_needs_is_told stops_without
claim a_machine_that_has_everything_is_left_alone does_nothing
finish
