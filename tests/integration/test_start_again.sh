#!/bin/sh
# test_start_again.sh PROGRAM: what `plasmon start --head` starts again. A head with a journal that
# was killed, beside its store; a store, beside its head.
set -eu
program=$1
. "$(dirname "$0")/lib.sh"
command -v redis-server >/dev/null || { echo "SKIP: no redis-server; tools/setup installs it"; exit 77; }

redis-server --port 0 --unixsocket "$XDG_RUNTIME_DIR/redis.sock" --dir "$XDG_RUNTIME_DIR" --save "" --appendonly yes >/dev/null &
redis=$!
trap 'end; kill $redis 2>/dev/null && wait $redis || true' EXIT
until [ -S "$XDG_RUNTIME_DIR/redis.sock" ]; do sleep 0.05; done
PLASMON_ADDRESS=unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock
export PLASMON_ADDRESS

start() { # more options
    "$plasmon" start --head --cpu-devices 1 --gpus none --device-memory 64M --lineage-bytes 3M "$@"
}
journaled() {
    start --journal "unix:$XDG_RUNTIME_DIR/redis.sock" --journal-lease 2 "$@"
}
process() { # NAME: its pid, by the record
    sed -n "s/^process $1 \\([0-9]*\\) .*/\\1/p" "$XDG_RUNTIME_DIR/plasmon-$(id -u)/node"
}
epoch() {
    "$plasmon" status | sed -n 's/.*epoch \([0-9a-f]*\).*/\1/p'
}
worker() {
    tagged plasmon-worker
}
works() {
    [ "$(timeout 60 "$program")" = right ]
}
kills() { # PROGRAM
    pid=$(tagged "$1")
    kill -KILL "$pid"
    while [ -n "$(tagged "$1")" ]; do sleep 0.05; done
}
has_lineage() {
    "$plasmon" metrics | grep -x "plasmon_lineage_limit_bytes $((3 << 20))"
}
same_as_before() { # epoch and worker
    [ "$(epoch)" = "$was_epoch" ] && [ "$(worker)" = "$was_worker" ] && works
}
refuses() { # WORDS OPTIONS..
    words=$1
    shift
    if said=$("$plasmon" start "$@" 2>&1); then return 1; fi
    echo "$said"
    echo "$said" | grep -q -e "$words"
}

claim "options of the head without --head are refused" refuses "belong to --head" --address 127.0.0.1:1 --lineage-bytes 1M
claim "a password for no journal is refused" refuses "belongs to --journal" --head --journal-password-file /dev/null
claim "a head that stands by needs a journal" refuses "--standby belongs to --journal" --head --standby
claim "a number of bytes that is none is refused" refuses "is not a number of bytes" --head --lineage-bytes 3X
claim "a cluster with a journal and lineage starts" journaled
claim "the head has the lineage that was asked for" has_lineage
claim "and works" works
was_epoch=$(epoch)
was_worker=$(worker)
kills plasmon-head
claim "a head that was killed is not started again without its journal" refuses "runs here already" --head
claim "it is with its journal" journaled
claim "its store and worker went on, and so does the cluster" same_as_before
claim "nothing is started a second time" refuses "runs here already" --head --journal "unix:$XDG_RUNTIME_DIR/redis.sock"
kills plasmon-store
claim "a store that was killed is started beside the head" journaled
claim "with the worker that was there" same_as_before
stands_by() {
    journaled --standby && [ "$(tagged plasmon-head | wc -l)" = 2 ]
}
claim "where one head runs, another is started that stands by" stands_by
claim "and not a third" refuses "runs here already" --head --journal "unix:$XDG_RUNTIME_DIR/redis.sock" --standby
first=$(process plasmon-head)
second=$(process plasmon-head-2)
kill -KILL "$first"
claim "it takes over from the one that is killed: same epoch, worker and address" same_as_before
claim "it is the one that stood by" [ "$(tagged plasmon-head)" = "$second" ]
claim "and it is given another one" stands_by
third=$(process plasmon-head)
kill -STOP "$second"
in_the_end() { # who connected to the one that is stopped waits in vain
    for _ in 1 2 3 4 5 6; do
        if "$@"; then return; fi
    done
    return 1
}
claim "which takes over from one that is stopped, too" in_the_end same_as_before
claim "whose process it has ended" [ "$(tagged plasmon-head)" = "$third" ]
claim "all of it ends" "$plasmon" stop
claim "a cluster with a head that stands by starts in one go" journaled --standby
claim "it ends in an order in which none takes over" "$plasmon" stop
ended_without_taking_over() { ! grep -q "has the journal" "$XDG_RUNTIME_DIR/plasmon-$(id -u)/plasmon-head-2.log"; }
claim "nobody took over" ended_without_taking_over
mkdir "$XDG_RUNTIME_DIR/a b"
(umask 077; echo secret >"$XDG_RUNTIME_DIR/a b/it's")
quoted() {
    said=$(start --token-file "$XDG_RUNTIME_DIR/a b/it's")
    echo "$said"
    eval "$(echo "$said" | grep -F 'export PLASMON_TOKEN_FILE=')" && [ "$PLASMON_TOKEN_FILE" = "$XDG_RUNTIME_DIR/a b/it's" ]
}
claim "what is printed for a shell is quoted" quoted
claim "all of it ends again" "$plasmon" stop
in_such_a_folder() (
    unset PLASMON_ADDRESS PLASMON_TOKEN_FILE
    XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR/a b"
    chmod 700 "$XDG_RUNTIME_DIR"
    start && "$plasmon" nodes
    found=$?
    "$plasmon" stop && return $found
)
claim "and commands find a cluster whose folder has a space" in_such_a_folder
# A head that stays, and a machine that joins it, leaves, and joins it again: at once, while the
# head tells of the devices that are gone.
"$PLASMON_BIN_DIR/plasmon-head" --listen "unix:$XDG_RUNTIME_DIR/stays.sock" 2>"$XDG_RUNTIME_DIR/stays.log" &
stays=$!
until [ -S "$XDG_RUNTIME_DIR/stays.sock" ]; do sleep 0.05; done
PLASMON_ADDRESS=unix:$XDG_RUNTIME_DIR/stays.sock
joins() { # DEVICES
    said=$("$plasmon" start --address "$PLASMON_ADDRESS" --cpu-devices "$1" --gpus none --device-memory 64M 2>&1)
    result=$?
    echo "$said"
    [ $result = 0 ] && echo "$said" | grep -q "^$1 CPU device" && ! echo "$said" | grep -q "not; " && works
}
leaves() { # until the head has given its devices up
    "$plasmon" stop || return 1
    until "$plasmon" nodes --json | grep -q '"state":"gone"'; do sleep 0.02; done
}
claim "a machine joins a head that runs elsewhere" joins 3
claim "it leaves" leaves
claim "and joins again" joins 3
three_are_gone() { "$plasmon" status | grep "node, 3 devices (3 gone), "; }
claim "and what is gone does not count" three_are_gone
claim "it leaves again" leaves
claim "and joins with fewer devices" joins 2
bench_of() { # DEVICE
    timeout 60 "$plasmon" bench remote --device "$1" --sizes 1M --rounds 1 --paths messages
}
bench_refuses() {
    if said=$(bench_of 4 2>&1); then return 1; fi
    echo "$said"
    echo "$said" | grep -q "there is no device 4 "
}
claim "what is there can be measured, though devices before it are gone" bench_of 7
claim "and what is gone is refused" bench_refuses
claim "it ends" "$plasmon" stop
kill $stays && wait $stays || true
claim "no file can be made in /proc, which is said" refuses "--spill-dir /proc: no file can be made there; give a directory on a disk" --head \
    --cpu-devices 1 --gpus none --spill-memory 8M --spill-dir /proc
claim "a limit that is none is said" refuses "a limit behind ':' is a number with K, M, G or T" --head \
    --cpu-devices 1 --gpus none --spill-memory 8M --spill-dir /tmp:5X
claim "and nothing is left" [ -z "$(daemons)" ]
finish
