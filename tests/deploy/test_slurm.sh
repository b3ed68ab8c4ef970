#!/usr/bin/env bash
# deploy/slurm/plasmon.sbatch on a real Slurm of two nodes: two jobs share a node and do not meet; a
# job on both nodes, whose program is itself an srun; jobs that are cancelled, one of them on both
# nodes. None leaves anything.
#   test_slurm.sh PLASMON_HOME     (an installed tree)
set -u
home=${1:?usage: test_slurm.sh PLASMON_HOME}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
for program in slurmctld slurmd sbatch munged; do
  command -v $program >/dev/null || { echo "SKIP: no $program (packages slurm-wlm, munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIP: slurmd needs root"; exit 77; }
unshare --pid --fork --mount --mount-proc true 2>/dev/null || { echo "SKIP: no namespaces for nodes"; exit 77; }

dir=$(mktemp -d /tmp/slurm-check.XXXXXX)
. "$here/slurm_cluster.sh"
finish() { slurm_stop; rm -rf "$dir"; }
trap finish EXIT
fail() { echo "FAIL: $*"; tail -n 30 "$dir"/*.job 2>/dev/null; exit 1; }

slurm_start "$dir" 4 "$top" "$home" || fail "no Slurm"
export PLASMON_HOME=$home PLASMON_CPU_DEVICES=2

# What a job says of its cluster, then an example's own check. program NAME GATE: says that it runs,
# and waits for the gate.
cat > "$dir/program" <<'PROGRAM'
#!/bin/bash
set -e
echo "address $PLASMON_ADDRESS"
"$PLASMON_HOME/bin/plasmon" status --json | tr -d ' \n' | grep -o '"nodes":[0-9]*'
: > "$1.running$SLURM_PROCID"
until [ -e "$2" ]; do sleep 0.1; done
"$PLASMON_HOME/bin/plasmon" status --json | tr -d ' \n' | grep -o '"alive":true' | wc -l | sed 's/^/alive /'
"$PLASMON_HOME/share/plasmon/examples/04_views"
echo "program ended on $SLURMD_NODENAME"
PROGRAM
chmod 755 "$dir/program"

submit() { # submit NAME 'OPTION ..' PROGRAM ARG ..
  local name=$1 options=$2
  shift 2
  # shellcheck disable=SC2086 # options are words
  sbatch --parsable --chdir=/ --oversubscribe $options --output="$dir/$name.job" "$top/deploy/slurm/plasmon.sbatch" "$@" || fail "sbatch"
}
until_file() { for _ in $(seq 600); do [ -e "$1" ] && return 0; sleep 0.1; done; fail "$2"; }
until_over() { for _ in $(seq 600); do squeue -h -j "$1" 2>/dev/null | grep -q . || return 0; sleep 0.1; done; fail "job $1 does not end"; }

# Both run at the same time on one node: neither goes on before the other has its cluster.
a=$(submit a "--nodelist=n1 --cpus-per-task=1" "$dir/program" "$dir/a" "$dir/b.running0")
b=$(submit b "--nodelist=n1 --cpus-per-task=1" "$dir/program" "$dir/b" "$dir/a.running0")
until_over "$a"
until_over "$b"
for job in a b; do
  grep -q "program ended" "$dir/$job.job" || fail "job $job did not end well"
  grep -q '^"nodes":1$' "$dir/$job.job" || fail "job $job saw other nodes than its own"
  grep -q '^alive 2$' "$dir/$job.job" || fail "job $job saw other devices than its two"
done
[ "$(grep -h ^address "$dir/a.job")" != "$(grep -h ^address "$dir/b.job")" ] || fail "both jobs had the same head"

# Two nodes, and a rank of the program on each.
two="--nodes=2 --cpus-per-task=2"
ranks="srun --ntasks-per-node=1"
# shellcheck disable=SC2086 # words
c=$(submit c "$two" $ranks "$dir/program" "$dir/c" "$dir/c.running1")
until_over "$c"
for node in n1 n2; do
  grep -q "program ended on $node" "$dir/c.job" || fail "job c did not end well on $node"
done
[ "$(grep -c '^"nodes":2$' "$dir/c.job")" = 2 ] || fail "job c is not one cluster of two nodes"
[ "$(grep -c '^alive 4$' "$dir/c.job")" = 2 ] || fail "job c has other devices than two on each node"

# Jobs that Slurm ends in the middle: as at the end of their time, and by scancel alone.
d=$(submit d "$two" "$dir/program" "$dir/d" "$dir/never")
until_file "$dir/d.running0" "job d did not start"
scancel --signal=TERM --batch "$d" || fail "scancel"
until_over "$d"
grep -Eq 'STEP .* CANCELLED|task .*: Killed|forcing' "$dir/d.job" && fail "the stores of job d were killed, and did not end"
# shellcheck disable=SC2086 # words
e=$(submit e "$two" $ranks "$dir/program" "$dir/e" "$dir/never")
until_file "$dir/e.running1" "job e did not start"
scancel "$e" || fail "scancel"
until_over "$e"

for job in "$a" "$b" "$c" "$d" "$e"; do
  for node in n1 n2; do
    [ ! -e "$dir/tmp.$node/plasmon-job-$job" ] || fail "job $job left /tmp/plasmon-job-$job on $node"
  done
done
for pid in /proc/[0-9]*; do
  cat "$pid/environ" 2>/dev/null | tr '\0' '\n' | grep -Eq "^XDG_RUNTIME_DIR=/tmp/plasmon-job-($a|$b|$c|$d|$e)$" &&
    fail "left running: $(tr '\0' ' ' < "$pid/cmdline")"
done
echo "ok: two jobs on one node, one on two nodes, two cancelled"
