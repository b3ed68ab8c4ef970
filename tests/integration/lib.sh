# Sourced by the tests in sh: a private runtime folder, TAP, and a cluster that ends with the test.
# (test_reaped, which CTest runs them under, ends what a script leaves that is killed.)
#
# PLASMON_BIN_DIR is where the programs are. Processes of the test are known by PLASMON_TEST_TAG in
# their environment.

plasmon=$PLASMON_BIN_DIR/plasmon
umask 077 # a secret that others may read is refused
XDG_RUNTIME_DIR=$(mktemp -d /tmp/plit-XXXXXX) # short: socket paths have 107 bytes
PLASMON_TEST_TAG=$(basename "$XDG_RUNTIME_DIR")
export PLASMON_BIN_DIR XDG_RUNTIME_DIR PLASMON_TEST_TAG
unset PLASMON_ADDRESS PLASMON_TOKEN PLASMON_LOG
number=0
failed=0

# tagged PROGRAM: pids of this test's processes that run it.
tagged() {
    # A process that ends meanwhile is no error.
    grep -lzx "PLASMON_TEST_TAG=$PLASMON_TEST_TAG" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 |
        while read -r pid; do
            if { tr '\0' '\n' <"/proc/$pid/cmdline" | head -n 1 | grep -Eqx "(.*/)?$1"; } 2>/dev/null; then
                echo "$pid"
            fi
        done
}

daemons() {
    tagged plasmon-head
    tagged plasmon-store
    tagged plasmon-worker
}

end() {
    "$plasmon" stop >/dev/null 2>&1 || true
    for pid in $(daemons); do # only after a failure
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$XDG_RUNTIME_DIR"
}
trap end EXIT
trap 'exit 1' INT TERM

# claim NAME COMMAND...: one line of TAP; what a command that fails printed is shown.
claim() {
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$XDG_RUNTIME_DIR/said" 2>&1; then
        echo "ok $number $name"
    else
        failed=1
        echo "not ok $number $name"
        sed 's/^/# /' "$XDG_RUNTIME_DIR/said"
    fi
}

finish() {
    echo "1..$number"
    exit "$failed"
}

# A port that nobody listens on; below the ones that the kernel gives out.
free_port() {
    while port=$(shuf -i 20000-30000 -n 1); do
        if ! grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6; then
            echo "$port"
            return
        fi
    done
}
