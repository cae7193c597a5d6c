# shellcheck shell=bash disable=SC2034
# Runs with one call failing (shim.c).  Loaded after lib.bash and examples.bash.

need_shim() {
    SHIM=$TOOLS/shim.so
    [ -e "$SHIM" ] || skip "the fault shim is not built for $Q4CONFIG"
}

# The environment of such a run, for `env`; FAULT_IN: in that process alone (shim.c).
failing() {     # KIND N [PROGRAM]
    FAILING=("LD_PRELOAD=$SHIM" "FAULT_KIND=$1" "FAULT_AT=${FAULT_IN:+$FAULT_IN:}$2" "FAULT_LOG=$PWD/fired" "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0" "FAULT_PROGRAM=${3:-$PROGRAM}")
}
