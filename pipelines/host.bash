# shellcheck shell=bash disable=SC2154
# What targets have in common: processes that are found again, and the machine.  Sourced; the target gives `state`, where `pid` is the server's record.

started_at() {      # PID: its start time in clock ticks; fails when there is no such process
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    stat=${stat##*) }                   # the name before may hold anything
    # shellcheck disable=SC2086
    set -- $stat
    [ "$1" != Z ] && echo "${20}"
}

# Write down which process it is, by its number and its start time: a number alone may belong to somebody else later.
record() { echo "$1 $(started_at "$1" || echo gone)" >"$2"; }       # PID FILE

recorded() {        # FILE: the process that was recorded there, if it lives
    local pid start now
    [ -e "$1" ] && read -r pid start <"$1" && now=$(started_at "$pid") && [ "$now" = "$start" ] && echo "$pid"
}

server() { recorded "$state/pid"; }

host_gpu() {        # NAME, DRIVER of the first GPU; nothing where there is none
    if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed -n 1p; fi
}

host_facts() {      # [GPU]: a result's `machine`; GPU as host_gpu has it, when the server runs on it
    jq -n --arg cpu "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" --argjson cpus "$(env -u OMP_NUM_THREADS nproc)" \
        --argjson memory "$(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE)))" --arg kernel "$(uname -sr)" --arg gpu "${1:-}" \
        'def known: if . == "" then null else . end;
         ($gpu | split(", ")) as $on | {cpu: ($cpu | known), cpus: $cpus, memory_bytes: $memory, kernel: $kernel, gpu: $on[0], driver: $on[1], instance: null, region: null, usd_per_hour: null}'
}
