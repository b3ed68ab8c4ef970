# A Slurm of one node on this machine, of Debian's packages, all state in one folder: source it, then slurm_start DIR NODES_CPUS.
# Needs root (slurmd). Nothing outside the folder is touched, and slurm_stop ends what slurm_start started, by pid.

slurm_pids=()

slurm_start() {
  local dir=$1 cpus=$2 host
  host=$(hostname -s)
  mkdir -p "$dir/state" "$dir/spool"
  dd if=/dev/urandom of="$dir/munge.key" bs=1 count=1024 status=none
  chmod 600 "$dir/munge.key"
  munged --foreground --key-file "$dir/munge.key" --socket "$dir/munge.sock" --pid-file "$dir/munged.pid" \
    --log-file "$dir/munged.log" --seed-file "$dir/munge.seed" --force >"$dir/munged.out" 2>&1 &
  slurm_pids+=($!)
  cat > "$dir/slurm.conf" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=defer,batch_sched_delay=0,sched_interval=1
MpiDefault=none
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=$host Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$dir/slurm.conf
  until [ -S "$dir/munge.sock" ]; do
    kill -0 "${slurm_pids[0]}" 2>/dev/null || { cat "$dir/munged.out" "$dir/munged.log" >&2; return 1; }
    sleep 0.05
  done
  slurmctld -D -i >"$dir/slurmctld.out" 2>&1 &
  slurm_pids+=($!)
  slurmd -D -N "$host" >"$dir/slurmd.out" 2>&1 &
  slurm_pids+=($!)
  for _ in $(seq 100); do
    sinfo -h -o %T 2>/dev/null | grep -Eq '^(idle|mixed)$' && return 0
    sleep 0.1
  done
  tail -n 20 "$dir/slurmctld.log" "$dir/slurmd.log" >&2
  return 1
}

slurm_stop() {
  local i
  for ((i = ${#slurm_pids[@]} - 1; i >= 0; i--)); do
    kill "${slurm_pids[i]}" 2>/dev/null && wait "${slurm_pids[i]}" 2>/dev/null
  done
  slurm_pids=()
}
