# shellcheck shell=bash disable=SC2034,SC2154
# One call after another of a program failing (shim.c).  Loaded after lib.bash, examples.bash and faults/runs.bash; what faults.bats and faults-net.bats share.
#
# A program is started once and forks before main for every run (begin_runs, run_failing): nothing else starts, so that a run takes a few milliseconds.
#
# FAULTS_EVERY   unset: the first call from every site (shim.c), and the 2nd, 4th, 8th, …; of what takes a second or so each time (STEPS=4) only the 1st, 4th, 16th, …
#                sites: every site, of those too
#                1: every call, until there is no n-th         A-B: every one from the A-th to the B-th
# FAULTS_KINDS   only these kinds, as words           FAULTS_LOG  a file that gets a line for every program and kind: how many calls failed, whether no further one was there

setup() {
    need_shim
    fresh
    trap '' PIPE                # a server that ends while it is written to
    unset "${!AWS_@}" Q4SWEEP_GUARD
}

teardown() {
    local pid
    for pid in ${UNDER_TEST:-} "${RUNS[@]}" ${PEERS:-}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

declare -gA RUNS=() ASK=() SAY=()

# PROGRAM with ARGS, ready to be run in a directory, this one or another, whose name then is given to each run.
begin_runs() {      # [DIRECTORY]
    local at=${1:-.} ask say
    mkdir -p "$at"
    mkfifo "$at/ask" "$at/say"
    (
        cd "$at" || exit
        exec env "LD_PRELOAD=$SHIM" "FAULT_PROGRAM=$PROGRAM" "FAULT_FRAMES=${FRAMES:-0}" "FAULT_LOG=$PWD/fired" "FAULT_SITES=$PWD/sites" "FAULT_ASK=$PWD/ask" "FAULT_SAY=$PWD/say" \
            "ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0" "$BIN/$PROGRAM" "${ARGS[@]}"
    ) </dev/null >/dev/null 3>&- &
    RUNS[$at]=$!
    exec {ask}<>"$at/ask" {say}<>"$at/say"
    ASK[$at]=$ask SAY[$at]=$say
}

end_runs() {        # [DIRECTORY]
    local at=${1:-.} ask say
    ask=${ASK[$at]} say=${SAY[$at]}
    kill "${RUNS[$at]}"
    wait "${RUNS[$at]}" || true
    unset "RUNS[$at]"
    exec {ask}>&- {say}>&-
}

# A run begins; UNDER_TEST is its pid.
start_failing() {   # KIND WHICH [DIRECTORY]
    printf '%s %s %s\n' "$1" "$2" "${STDIN:-/dev/null}" >&"${ASK[${3:-.}]}"
    read -r -t 60 -u "${SAY[${3:-.}]}" UNDER_TEST
}

# Sets STATUS; 137 where it had not ended after so many seconds.
end_failing() {     # SECONDS [DIRECTORY]
    local rest
    if ! read -r -t "$1" -u "${SAY[${2:-.}]}" STATUS; then
        kill -9 "$UNDER_TEST" 2>/dev/null || true
        read -r -t 60 -u "${SAY[${2:-.}]}" rest
        STATUS+=$rest
    fi
    UNDER_TEST=
}

# A whole run.  Did it make that call?
run_failing() {     # KIND WHICH
    start_failing "$@"
    end_failing 90
    [ -e fired ]
}

# A program in good health that a test needs again and again: `helper NAME PROGRAM ARGUMENT…` once, then `help_by NAME`, which gives its exit status.
helper() {
    local PROGRAM=$2 ARGS=("${@:3}")
    begin_runs "$1"
}
help_by() {         # NAME [STDIN]
    local STATUS UNDER_TEST STDIN=${2:-/dev/null}
    start_failing none 0:0 "$1"
    end_failing 60 "$1"
    return "$STATUS"
}

# Lets one call of a kind fail after another.  RUN is a function that makes a whole run and judges it, also one in which nothing failed.
each_call() {       # KIND RUN
    local kind=$1 run=$2 trap
    [[ " ${FAULTS_KINDS:-$kind} " = *" $kind "* ]] || return 0
    INJECTED=0 MISSED=0
    # bats looks at every command of a test: that takes ten times as long as all else.
    trap=$(trap -p DEBUG)
    trap - DEBUG
    case ${FAULTS_EVERY:-} in
        '')
            if [ "${STEPS:-}" ]; then
                each_number "$kind" "$run" 1 "$STEPS * n"
            else
                each_site "$kind" "$run"
                each_number "$kind" "$run" 2 '2 * n'
            fi
            ;;
        sites) each_site "$kind" "$run" ;;
        1) each_number "$kind" "$run" 1 n+1 ;;
        *) each_number "$kind" "$run" "${FAULTS_EVERY%-*}" n+1 "${FAULTS_EVERY#*-}" ;;
    esac
    eval "$trap"
}

# SITES: every site that calls, in a run in which nothing fails.
look_for_sites() {  # KIND RUN
    rm -f sites
    "$2" "$1" sites
    SITES=()
    [ ! -e sites ] || mapfile -t SITES <sites
    rm -f sites
}

each_site() {       # KIND RUN
    look_for_sites "$@"
    [[ $1 != malloc || ${#SITES[@]} -gt 0 ]] || fault "no place that asks for memory was found"
    for WHICH in "${SITES[@]}"; do
        [ "$FAULTS" -lt 8 ] || break
        "$2" "$1" "$WHICH"
        # What only some threads' turns reach may not be met again.
        if [ -e fired ]; then INJECTED=$((INJECTED + 1)); else MISSED=$((MISSED + 1)); fi
    done
    log_calls "$1" "${#SITES[@]} sites, $INJECTED failed, $MISSED not met again"
}

# In every process of the program.
each_number() {     # KIND RUN FIRST NEXT [LAST]
    local n process
    look_for_sites "$@"
    for process in $(printf '%s\n' 0:0 "${SITES[@]}" | cut -d : -f 1 | sort -u); do
        INJECTED=0
        for ((n = $3; n <= ${5:-n} && FAULTS < 8; n = $4)); do
            WHICH=$process:$n
            "$2" "$1" "$WHICH"
            [ -e fired ] || break
            INJECTED=$((INJECTED + 1))
        done
        log_calls "$1" "process $process, every n = $4 from $3: $INJECTED failed, at $n $([ -e fired ] && echo "more to come" || echo success)"
    done
}

log_calls() {       # KIND WHAT
    [ -z "${FAULTS_LOG:-}" ] || printf '%(%H:%M:%S)T %s: %s: %s\n' -1 "$PROGRAM ${ARGS[*]:0:4}" "$1" "$2" >>"$FAULTS_LOG"
}
