#!/usr/bin/env bash
# deploy/slurm/plasmon.sbatch on a real Slurm: two jobs share a node and do not meet; a job that is cancelled leaves nothing.
#   test_slurm.sh PLASMON_HOME     (an installed tree)
set -u
home=${1:?usage: test_slurm.sh PLASMON_HOME}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
for program in slurmctld slurmd sbatch munged; do
  command -v $program >/dev/null || { echo "SKIP: no $program (packages slurm-wlm, munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIP: slurmd needs root"; exit 77; }

dir=$(mktemp -d /tmp/slurm-check.XXXXXX)
. "$here/slurm_cluster.sh"
finish() { slurm_stop; rm -rf "$dir"; }
trap finish EXIT
fail() { echo "FAIL: $*"; tail -n 30 "$dir"/*.job 2>/dev/null; exit 1; }

slurm_start "$dir" 4 || fail "no Slurm"
export PLASMON_HOME=$home PLASMON_CPU_DEVICES=2

# What a job says of its cluster, then an example's own check.
cat > "$dir/program" <<'PROGRAM'
#!/bin/bash
set -e
echo "address $PLASMON_ADDRESS"
"$PLASMON_HOME/bin/plasmon" status --json | tr -d ' \n' | grep -o '"nodes":[0-9]*'
: > "$1.running"
until [ -e "$2" ]; do sleep 0.1; done
"$PLASMON_HOME/bin/plasmon" status --json | tr -d ' \n' | grep -o '"alive":true' | wc -l | sed 's/^/alive /'
"$PLASMON_HOME/share/plasmon/examples/04_views"
echo "program ended"
PROGRAM
chmod 755 "$dir/program"

submit() { # submit NAME GATE
  sbatch --parsable --oversubscribe --ntasks=1 --cpus-per-task=1 --output="$dir/$1.job" "$top/deploy/slurm/plasmon.sbatch" \
    "$dir/program" "$dir/$1" "$2" || fail "sbatch"
}
until_file() { for _ in $(seq 600); do [ -e "$1" ] && return 0; sleep 0.1; done; fail "$2"; }
until_over() { for _ in $(seq 600); do squeue -h -j "$1" 2>/dev/null | grep -q . || return 0; sleep 0.1; done; fail "job $1 does not end"; }

# Both run at the same time on the one node: neither goes on before the other has its cluster.
a=$(submit a "$dir/b.running")
b=$(submit b "$dir/a.running")
until_over "$a"
until_over "$b"
for job in a b; do
  grep -q "program ended" "$dir/$job.job" || fail "job $job did not end well"
  grep -q '^"nodes":1$' "$dir/$job.job" || fail "job $job saw other nodes than its own"
  grep -q '^alive 2$' "$dir/$job.job" || fail "job $job saw other devices than its two"
done
[ "$(grep -h ^address "$dir/a.job")" != "$(grep -h ^address "$dir/b.job")" ] || fail "both jobs had the same head"

# A job that Slurm ends in the middle.
c=$(submit c "$dir/never")
until_file "$dir/c.running" "job c did not start"
scancel --signal=TERM --batch "$c" || fail "scancel"
until_over "$c"
for job in "$a" "$b" "$c"; do
  [ ! -e "/tmp/plasmon-job-$job" ] || fail "job $job left /tmp/plasmon-job-$job"
done
for pid in /proc/[0-9]*; do
  cat "$pid/environ" 2>/dev/null | tr '\0' '\n' | grep -q "^XDG_RUNTIME_DIR=/tmp/plasmon-job-\($a\|$b\|$c\)$" &&
    fail "left running: $(tr '\0' ' ' < "$pid/cmdline")"
done
echo "ok: two jobs on one node, one cancelled"
