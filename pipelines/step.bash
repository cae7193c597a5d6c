# shellcheck shell=bash
# How a script that has something up runs what takes long: a signal ends it at once, wherever it is.  Sourced.

job=

# Run in a process group of its own, so that all of a step can be stopped; the shell stays able to answer signals meanwhile.
step() {                # COMMAND...
    local rc=0
    set -m
    "$@" 9>&- &
    job=$!
    set +m
    wait "$job" || rc=$?
    job=
    return "$rc"
}

stop_step() { if [ -n "$job" ]; then kill -- -"$job" 2>/dev/null || true; fi; }

ends_by() {             # FUNCTION, which calls stop_step: run however the script ends
    # shellcheck disable=SC2064
    trap "$1" EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}
