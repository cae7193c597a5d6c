#!/bin/bash
# A Slurm cluster of one node on this machine, for trying `make sweep RUN=slurm` and for its tests.
#
#   tests/slurm-node.sh start DIR     munged, slurmctld and slurmd, all they need in DIR; prints `export SLURM_CONF=…` for the shell that is to use it
#   tests/slurm-node.sh kill DIR      the node dies: slurmd and every process of its jobs, at once
#   tests/slurm-node.sh stop DIR      end all of it
#
#   eval "$(tests/slurm-node.sh start /tmp/slurm)"; make sweep RUN=slurm; tests/slurm-node.sh stop /tmp/slurm
#
# As root, from Debian's packages: apt-get install slurm-wlm munge.  $SLURM_GPUS: as many GPUs the node claims to have (0).  A dead node is noticed after 10 s.
set -euo pipefail
export LC_ALL=C.UTF-8

die() { local code=$1; shift; echo "slurm-node: $*" >&2; exit "$code"; }

usage() { sed -n '2,/^set /{/^# \{0,1\}/s///p}' "$0"; }

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        (exec 5<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}

configure() {
    local host cpus memory gpu i
    host=$(uname -n) cpus=$(nproc) memory=$(($(getconf _PHYS_PAGES) / 1024 * $(getconf PAGESIZE) / 1024 / 2))
    gpu=${SLURM_GPUS:-0}
    mkdir -p "$dir"/{state,spool,log,munge}
    chmod 700 "$dir/munge"
    dd if=/dev/urandom of="$dir/munge/key" bs=1024 count=1 status=none
    chmod 400 "$dir/munge/key"
    : >"$dir/gres.conf"
    for ((i = 0; i < gpu; i++)); do
        : >"$dir/gpu$i"
        echo "Name=gpu File=$dir/gpu$i" >>"$dir/gres.conf"
    done
    cat >"$dir/slurm.conf" <<F
ClusterName=q4sweep
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN${gpu:+$([ "$gpu" -eq 0 ] || echo " Gres=gpu:$gpu")}
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
F
}

wait_for() {            # COMMAND…: ten seconds
    for _ in $(seq 100); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    tail -n 5 "$dir"/log/* >&2 || true
    die 69 "it did not start: $*"
}

idle() { sinfo -h -o %T | grep -qx idle; }

start() {
    local program
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null || die 69 "$program is not installed: apt-get install slurm-wlm munge"
    done
    [ "$(id -u)" = 0 ] || die 77 "slurmd wants to be root"
    [ ! -e "$dir/slurm.conf" ] || die 64 "$dir: holds a cluster already: stop it first"
    configure
    chown -R "$(id -u)" "$dir/munge"
    munged --force --socket "$dir/munge/socket" --key-file "$dir/munge/key" --pid-file "$dir/munge/pid" --log-file "$dir/log/munged" --seed-file "$dir/munge/seed" >&2
    slurmctld -f "$dir/slurm.conf" >&2
    slurmd -f "$dir/slurm.conf" >&2
    wait_for idle
    echo "export SLURM_CONF=$dir/slurm.conf"
}

end() {                 # PIDFILE SIGNAL
    local pid
    if [ -s "$1" ] && pid=$(cat "$1") && kill "-$2" "$pid" 2>/dev/null; then
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
    fi
    rm -f "$1"
}

# What belongs to this cluster's jobs, wherever it hangs by now: its environment says so.
processes() {
    local pid variables
    for pid in $(ps -e -o pid=); do
        variables=$({ tr '\0' '\n' <"/proc/$pid/environ" | grep -E '^SLURM_(CONF|JOB_ID)='; } 2>/dev/null) || continue
        [[ $'\n'$variables$'\n' = *$'\n'"SLURM_CONF=$dir/slurm.conf"$'\n'* ]] || continue
        if [[ $variables = *SLURM_JOB_ID=* || $(cat "/proc/$pid/comm" 2>/dev/null) = slurmstepd ]]; then echo "$pid"; fi
    done
}

die_node() {
    local pid now known=''
    end "$dir/slurmd.pid" KILL
    # At once: stopped first, until no new one shows, since one that was started meanwhile would outlive the node.
    while now=$(processes) && [ "$now" != "$known" ]; do
        for pid in $now; do kill -STOP "$pid" 2>/dev/null || true; done
        known=$now
    done
    for pid in $known; do kill -KILL "$pid" 2>/dev/null || true; done
}

stop() {
    die_node
    end "$dir/slurmctld.pid" TERM
    end "$dir/munge/pid" TERM
    rm -rf "${dir:?}"/{state,spool,munge,slurm.conf,gres.conf} "$dir"/gpu[0-9]*
}

[ $# -eq 2 ] || { usage >&2; exit 64; }
mkdir -p "$2"
dir=$(realpath "$2")
export SLURM_CONF=$dir/slurm.conf
case $1 in
    start) start ;;
    kill) die_node ;;
    stop) stop ;;
    *) usage >&2; exit 64 ;;
esac
