# shellcheck shell=bash
# What every recipe shares: its command line, and the stages with the options that follow from it.  A recipe says
#     recipe NAME "$@"
#     stages() { extract … | regrid … | pack …; status "${PIPESTATUS[@]}"; }
#     run stages
set -u -o pipefail

bin=${Q4BIN:-${BASH_SOURCE[0]%/*}/../bin}

refuse() { printf '%s: %s\n' "$build" "$2" >&2; exit "$1"; }   # CODE TEXT

usage() {
    cat <<EOF
usage: $build [--dry-run] [--scale-dtype bf16|f16] [--leave ERE] [--force] SRC OUT

$(sed -n '/^# shellcheck /d; 2,/^[^#]/s/^# \{0,1\}//p' "$0")

SRC  a checkpoint directory, a safetensors file or saved stream, - for standard input, or what st-extract reads remotely
OUT  the build directory to make; OUT.report.jsonl beside it says how exactly each tensor was recovered
  --dry-run          print the plan of the build as JSON; read headers only, write nothing
  --scale-dtype bf16|f16
                     dtype of int4 scales (default bf16; f16 is exact where the engine keeps f16)
  --leave ERE        keep tensors whose name matches in 16 bits instead of int4: those on no 4-bit grid; q4-regrid prints the option
  --force            replace an existing OUT once the new one is complete
EOF
}

# Sets src, out, and what the stages need.
recipe() {
    build=$1 plan=() scale=bf16 leave=() force=() for_int4=()
    local operands=()
    shift
    while [ $# -gt 0 ]; do
        case $1 in --scale-dtype*|--leave*) for_int4+=("${1%%=*}") ;; esac
        case $1 in
            --dry-run) plan=(--plan) ;;
            --force) force=(--force) ;;
            --scale-dtype) [ $# -gt 1 ] || refuse 64 "--scale-dtype needs bf16 or f16: try --help"; scale=$2; shift ;;
            --scale-dtype=*) scale=${1#*=} ;;
            --leave) [ $# -gt 1 ] || refuse 64 "--leave needs an extended regular expression: try --help"; leave=(--leave "$2"); shift ;;
            --leave=*) leave=(--leave "${1#*=}") ;;
            -h|--help) usage; exit 0 ;;
            --) shift; operands+=("$@"); break ;;
            -?*) refuse 64 "$1: unknown option: try --help" ;;
            *) operands+=("$1") ;;
        esac
        shift
    done
    [ "$scale" = bf16 ] || [ "$scale" = f16 ] || refuse 64 "--scale-dtype $scale: expected bf16 or f16"
    [ ${#operands[@]} -eq 2 ] || refuse 64 "expected SRC and OUT, found ${#operands[@]} operands: try --help"
    src=${operands[0]} out=${operands[1]}
    while [[ $out = */ ]]; do out=${out%/}; done
    reports=${out%"${out##*/}"}.${out##*/}.report.$HOSTNAME report_part=$reports.$$
    [ ${#plan[@]} -gt 0 ] || ! { [ "$src" -ef "$out" ] || [ "$(dirname -- "$src")" -ef "$out" ]; } || refuse 64 "$out: is the source: the build would replace it: name another directory"
    [ ${#plan[@]} -gt 0 ] || [ ${#force[@]} -gt 0 ] || ! { [ -e "$out" ] || [ -L "$out" ]; } || refuse 64 "$out: exists: --force replaces it"
}

# A recipe without int4 takes the options of those with it, since a sweep gives all builds the same ones, and says that they do nothing.
no_int4() { [ ${#for_int4[@]} -eq 0 ] || printf '%s: %s: without effect: this build has no int4 tensors\n' "$build" "${for_int4[*]}" >&2; }

# Each stage is a part of a pipeline: it becomes the program.
extract() { exec "$bin/st-extract" "$@" ${plan[@]+"${plan[@]}"} -- "$src"; }

regrid() {      # CLASSES
    local report=()
    [ ${#plan[@]} -gt 0 ] || report=(--report "$report_part")
    exec "$bin/q4-regrid" --only "$1" --scale-dtype "$scale" ${leave[@]+"${leave[@]}"} ${report[@]+"${report[@]}"}
}

untie() { exec "$bin/emb-untie" "$@"; }

pack() { exec "$bin/ct-pack" --expect "$build" "$@" ${force[@]+"${force[@]}"} -o "$out"; }

# The first stage that failed of itself gives the status: those before it died of the closed pipe (141), those after it of what it left.
status() {      # PIPESTATUS…
    local s
    for s; do
        [ "$s" -eq 0 ] || [ "$s" -eq 141 ] || return "$s"
    done
    for s; do
        [ "$s" -eq 0 ] || return "$s"
    done
}

# The report of a build that has taken its place; a signal from here on comes too late to change anything.
place_report() {
    trap '' INT TERM HUP
    if [ -e "$report_part" ]; then
        mv -T -- "$report_part" "$out.report.jsonl" || exit 74
    elif [ ${#plan[@]} -eq 0 ]; then
        rm -f -- "$out.report.jsonl"            # of a build that this one has replaced
    fi
}

# A build that was complete when the signal came has its report all the same.
stop() {        # STATUS
    local last=$? ended                         # of the stages, if they were waited for just now
    trap '' INT TERM HUP
    if [ -n "$job" ]; then
        kill -- -"$job" 2>/dev/null
        wait "$job"
        ended=$?
        [ "$ended" -eq 127 ] || last=$ended     # 127: no longer known
        [ "$last" -ne 0 ] || place_report
    fi
    exit "$1"
}

# What runs that were killed on this machine have left.  A number that is in use again keeps its file until the next run.
remove_dead_reports() {
    local left
    for left in "$reports".*; do
        if [[ ${left#"$reports".} =~ ^[0-9]+$ ]] && [ ! -e "/proc/${left##*.}" ]; then rm -f -- "$left"; fi
    done
}

# The stages have a process group of their own, so that a signal to the recipe alone ends all of them; the report takes its place when the
# build has.
run() {         # STAGES
    local rc=0 job=
    [ ${#plan[@]} -gt 0 ] || remove_dead_reports
    trap '[ ! -e "$report_part" ] || rm -f -- "$report_part"' EXIT
    trap 'stop 130' INT
    trap 'stop 143' TERM
    trap 'stop 129' HUP
    set -m
    { trap : TERM; "$1"; } <&0 &        # outlives its stages, so that wait means that they have cleaned up
    job=$!
    set +m
    wait "$job" || rc=$?
    [ "$rc" -ne 0 ] || place_report
    exit "$rc"
}
