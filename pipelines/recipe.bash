# shellcheck shell=bash
# What every recipe shares: its command line, and the stages with the options that follow from it.  A recipe says
#     recipe NAME "$@"; extract … | regrid … | pack …; finish "${PIPESTATUS[@]}"
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${Q4BIN:-$here/../bin}

refuse() { printf '%s: %s\n' "$build" "$2" >&2; exit "$1"; }   # CODE TEXT

usage() {
    cat <<EOF
usage: $build [--dry-run] [--scale-dtype bf16|f16] [--force] SRC OUT

$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")

SRC  a checkpoint directory, a safetensors file or saved stream, - for standard input, or what st-extract reads remotely
OUT  the build directory to make; OUT.report.jsonl beside it says how exactly each tensor was recovered
  --dry-run          print the plan of the build as JSON; read headers only, write nothing
  --scale-dtype T    dtype of int4 scales (default bf16; f16 is exact where the engine keeps f16)
  --force            replace an existing OUT once the new one is complete
EOF
}

# Sets src, out, and what the stages need.
recipe() {
    build=$1 plan=() scale=bf16 force=()
    local operands=()
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --dry-run) plan=(--plan) ;;
            --force) force=(--force) ;;
            --scale-dtype) [ $# -gt 1 ] || refuse 64 "--scale-dtype needs bf16 or f16: try --help"; scale=$2; shift ;;
            --scale-dtype=*) scale=${1#*=} ;;
            -h|--help) usage; exit 0 ;;
            --) shift; operands+=("$@"); break ;;
            -?*) refuse 64 "$1: unknown option: try --help" ;;
            *) operands+=("$1") ;;
        esac
        shift
    done
    [ "$scale" = bf16 ] || [ "$scale" = f16 ] || refuse 64 "--scale-dtype $scale: expected bf16 or f16"
    [ ${#operands[@]} -eq 2 ] || refuse 64 "expected SRC and OUT, found ${#operands[@]} operands: try --help"
    src=${operands[0]} out=${operands[1]%/}
    [ ${#plan[@]} -gt 0 ] || [ ${#force[@]} -gt 0 ] || ! { [ -e "$out" ] || [ -L "$out" ]; } || refuse 64 "$out: exists: --force replaces it"
}

extract() { "$bin/st-extract" "$@" ${plan[@]+"${plan[@]}"} -- "$src"; }

regrid() {      # CLASSES
    local report=()
    [ ${#plan[@]} -gt 0 ] || report=(--report "$out.report.jsonl")
    "$bin/q4-regrid" --only "$1" --scale-dtype "$scale" ${report[@]+"${report[@]}"}
}

untie() { "$bin/emb-untie" "$@"; }

pack() { "$bin/ct-pack" --expect "$build" "$@" ${force[@]+"${force[@]}"} -o "$out"; }

# The first stage that failed of itself gives the status: those before it died of the closed pipe (141), those after it of what it left.
finish() {      # PIPESTATUS…
    local status
    for status; do
        [ "$status" -eq 0 ] || [ "$status" -eq 141 ] || exit "$status"
    done
    for status; do
        [ "$status" -eq 0 ] || exit "$status"
    done
    exit 0
}
