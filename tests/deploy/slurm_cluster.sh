# A Slurm of two nodes, n1 and n2, on this machine, of Debian's packages, all state in one folder:
# source it, then slurm_start DIR CPUS PATH .. Needs root (slurmd, namespaces). Each node has its
# processes and its /tmp to itself, so Plasmon takes them for two machines; of the real /tmp it has
# DIR and what of the PATHs lies there. A node's /tmp is DIR/tmp.NODE. Nothing outside the folder is
# touched, and slurm_stop ends what slurm_start started, by pid.

slurm_pids=() slurm_nodes=()

# The shell that stays is the node's first process: it reaps what others leave.
slurm_node() { # slurm_node DIR NODE PATH ..
  local dir=$1 node=$2
  shift 2
  mkdir -p "$dir/spool.$node" "$dir/tmp.$node"
  unshare --pid --fork --kill-child --mount --mount-proc bash -c '
    dir=$1 node=$2
    shift 2
    for path in "$dir" "$@"; do
      case $path in
        /tmp/*) mkdir -p "$dir/tmp.$node/${path#/tmp/}" && mount --rbind "$path" "$dir/tmp.$node/${path#/tmp/}" || exit 1 ;;
      esac
    done
    mount --rbind "$dir/tmp.$node" /tmp && cd / && slurmd -D -N "$node"
    exit $?' - "$dir" "$node" "$@" >"$dir/slurmd.$node.out" 2>&1 &
  slurm_nodes+=($!)
}

slurm_start() {
  local dir=$1 cpus=$2 host node
  shift 2
  host=$(hostname -s)
  mkdir -p "$dir/state"
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
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=defer,batch_sched_delay=0,sched_interval=1
MpiDefault=none
KillWait=5
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=26818 CPUs=$cpus State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=26819 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES OverSubscribe=FORCE:4 MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$dir/slurm.conf
  until [ -S "$dir/munge.sock" ]; do
    kill -0 "${slurm_pids[0]}" 2>/dev/null || { cat "$dir/munged.out" "$dir/munged.log" >&2; return 1; }
    sleep 0.05
  done
  slurmctld -D -i >"$dir/slurmctld.out" 2>&1 &
  slurm_pids+=($!)
  for node in n1 n2; do
    slurm_node "$dir" $node "$@"
  done
  for _ in $(seq 100); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -Ec '^(idle|mixed)$')" = 2 ] && return 0
    sleep 0.1
  done
  tail -n 20 "$dir/slurmctld.log" "$dir"/slurmd.*.log >&2
  return 1
}

slurm_stop() {
  local i
  for i in "${slurm_nodes[@]}"; do # all of its processes go with a node's first one; it passes no other signal on
    kill -KILL "$i" 2>/dev/null && wait "$i" 2>/dev/null
  done
  for ((i = ${#slurm_pids[@]} - 1; i >= 0; i--)); do
    kill "${slurm_pids[i]}" 2>/dev/null && wait "${slurm_pids[i]}" 2>/dev/null
  done
  slurm_pids=() slurm_nodes=()
}
