# shellcheck shell=bash disable=SC2034
# Runs with one call failing (shim.c).  Loaded after lib.bash and examples.bash.
#
# FAULTS_EVERY   unset: the first 40 calls of a kind, then ever fewer, so that the tens of thousands of allocations take seconds
#                1: every one, until there is no n-th         A-B: every one from the A-th to the B-th

need_shim() {
    SHIM=$TOOLS/shim.so
    [ -e "$SHIM" ] || skip "the fault shim is not built for $Q4CONFIG"
}

first_n() { n=1; [[ ${FAULTS_EVERY:-} != *-* ]] || n=${FAULTS_EVERY%-*}; }

# Sets n to the next call that shall fail; false when that was all.
next_n() {      # [HOW MANY OF THE FIRST [PERCENT MORE EACH TIME AFTER THEM]]
    case ${FAULTS_EVERY:-} in
        1) n=$((n + 1)) ;;
        *-*) n=$((n + 1)); [ "$n" -le "${FAULTS_EVERY#*-}" ] ;;
        *) if [ "$n" -lt "${1:-40}" ]; then n=$((n + 1)); else n=$((n + 1 + n * ${2:-12} / 100)); fi ;;
    esac
}

# The environment of such a run, for `env`.
failing() {     # KIND N [PROGRAM]
    FAILING=("LD_PRELOAD=$SHIM" "FAULT_KIND=$1" "FAULT_AT=$2" "FAULT_LOG=$PWD/fired" "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0" "FAULT_PROGRAM=${3:-$PROGRAM}")
}
