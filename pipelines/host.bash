# shellcheck shell=bash disable=SC2154
# What the targets that serve on this machine have in common: the server's process, and the machine.  Sourced; the target gives `state`, where `pid` has the
# server's process and its start time.

started_at() {      # PID: its start time in clock ticks; fails when there is no such process
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    stat=${stat##*) }                   # the name before may hold anything
    # shellcheck disable=SC2086
    set -- $stat
    [ "$1" != Z ] && echo "${20}"
}

# The server's process, if it is still the one that was started: a number alone may belong to somebody else by now.
server() {
    local pid start now
    [ -e "$state/pid" ] && read -r pid start <"$state/pid" && now=$(started_at "$pid") && [ "$now" = "$start" ] && echo "$pid"
}

host_gpu() {        # NAME, DRIVER of the first GPU; nothing where there is none
    if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed -n 1p; fi
}

host_facts() {      # [GPU]: a result's `machine`; GPU as host_gpu has it, when the server runs on it
    jq -n --arg cpu "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" --argjson cpus "$(env -u OMP_NUM_THREADS nproc)" \
        --argjson memory "$(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE)))" --arg kernel "$(uname -sr)" --arg gpu "${1:-}" \
        'def known: if . == "" then null else . end;
         ($gpu | split(", ")) as $on | {cpu: ($cpu | known), cpus: $cpus, memory_bytes: $memory, kernel: $kernel, gpu: $on[0], driver: $on[1], instance: null, region: null, usd_per_hour: null}'
}
