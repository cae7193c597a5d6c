# shellcheck shell=bash disable=SC2034
# What every suite loads (`load lib`).  Each test runs in its own empty scratch directory.
#
#   $BIN             the programs under test ("$BIN/st-extract"); first in PATH too
#   $ROOT            the repository         $TOOLS   test tools built from tests/tools
#   golden NAME      prints a directory holding tests/golden/NAME unpacked (once a run; do not write there)
#   model SIZE [OPTION…]   prints a directory made by `st-synth --size SIZE OPTION… -o DIR` (once a run; do not write there)
#   bats_run's `run -65 --separate-stderr …` asserts an exit status
bats_require_minimum_version 1.5.0

ROOT=${Q4ROOT:-$(cd "$BATS_TEST_DIRNAME/.." && pwd)}
Q4CONFIG=${Q4CONFIG:-release}
BUILD=${Q4BUILD:-$ROOT/build/$Q4CONFIG}
BIN=${Q4BIN:-$ROOT/bin}
TOOLS=$BUILD/tools
CACHE=${Q4CACHE:-$BATS_RUN_TMPDIR/cache}
PEER=$ROOT/build/peers/light/bin/python3        # made by `make peers`
export Q4BIN=$BIN PATH=$BIN:$PATH LC_ALL=C.UTF-8
export CUDA_VISIBLE_DEVICES=            # the suites are about the CPU; what needs a GPU is `make check-gpu`
mkdir -p "$CACHE"

setup() { cd "$BATS_TEST_TMPDIR" || return 1; }

# Several suites may want the same thing at the same time: make it under another name, rename, and let the first win.
cached() {      # NAME COMMAND…: run COMMAND PATH, which makes a file or directory; print the finished one
    local dir=$CACHE/$1 part
    shift
    if [ ! -e "$dir" ]; then
        part=$(mktemp -d "$CACHE/part.XXXXXX") || return 1
        "$@" "$part/it" >&2 || return 1
        mv -T "$part/it" "$dir" 2>/dev/null || [ -e "$dir" ] || return 1
        rm -rf "$part"
    fi
    printf '%s\n' "$dir"
}

unpack_golden() {   # SOURCE DIR
    local f
    mkdir -p "$2"
    for f in "$1"/*; do
        case $f in
            *.zst) zstd -q -d "$f" -o "$2/$(basename "$f" .zst)" || return 1 ;;
            *) cp -r "$f" "$2/" || return 1 ;;
        esac
    done
}

golden() {      # NAME
    [ -d "$ROOT/tests/golden/$1" ] || { echo "golden: no tests/golden/$1" >&2; return 1; }
    cached "golden-$1" unpack_golden "$ROOT/tests/golden/$1"
}

synth_into() {  # SIZE OPTION… DIR
    local dir=${*: -1}
    "$BIN/st-synth" --size "${@:1:$#-1}" -o "$dir"
}

model() {       # SIZE [OPTION…]
    local key="model-$*"
    cached "${key//[^A-Za-z0-9_.-]/_}" synth_into "$@"
}

# Numbers: |A - B| <= TOLERANCE.
close_to() {    # A B TOLERANCE
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d
        if (!(d <= t)) { printf "%s and %s differ by %g, more than %s\n", a, b, d, t; exit 1 } }'
}

# The largest |a - b| of two tensors of equal shape, printed; FILE:NAME names a tensor of a safetensors file.
max_diff() {    # FILE:NAME FILE:NAME
    "$TOOLS/st-diff" "$1" "$2"
}

# jq on a file or stdin whose result must be true: `holds '.a == 1' file`.
holds() {       # FILTER [FILE]
    jq -e "$1" "${2:--}" >/dev/null || { echo "not so: $1" >&2; head -c 2000 "${2:-/dev/null}" >&2; return 1; }
}

# stdin as hexadecimal digits, N bytes a line.
hex() { od -An -v -tx1 -w"$1" | tr -d ' '; }   # N

same_bytes() { cmp "$1" "$2"; }     # FILE FILE

# The first bytes of a tensor of DIR/model.safetensors, written over with these.
poke() {        # DIR TENSOR ESCAPES
    local f=$1/model.safetensors n at
    n=$(od -An -v -tu8 -N8 "$f" | tr -d ' ')
    at=$(st_header "$f" | jq --arg t "$2" '.[$t].data_offsets[0]')
    printf '%b' "$3" | dd of="$f" bs=1 seek=$((8 + n + at)) conv=notrunc status=none
}

# The header of a safetensors file as JSON text.
st_header() {   # FILE
    local n
    n=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$n"
}

# Is nothing but these names in the directory (hidden files count)?
only_holds() {  # DIR NAME…
    local dir=$1
    shift
    diff <(find "$dir" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort) <([ $# -eq 0 ] || printf '%s\n' "$@" | sort)
}

# A program of the suite whose name is not built here is skipped with its reason shown.
need_program() {
    local p
    for p; do [ -x "$BIN/$p" ] || skip "$p is not built"; done
}

need_command() {
    local c
    for c; do command -v "$c" >/dev/null || skip "$c is not installed"; done
}

# The Python peers (tests/peers/README.md): skip, visibly, where they are not installed.
need_peer() {   # MODULE…
    local m
    [ -x "$PEER" ] || skip "python peers are not installed: make peers"
    for m; do
        "$PEER" -c "import $m" 2>/dev/null || skip "python peer $m is not installed: make peers"
    done
}

# The checkpoint of Gemma 3 270M (tests/peers/gemma3-270m.sh): $REAL is its directory; or skip.
need_gemma3_270m() {
    REAL=${Q4_GEMMA3_270M:-$ROOT/build/gemma-3-270m}
    [ -e "$REAL/model.safetensors" ] || skip "no Gemma 3 270M checkpoint: tests/peers/gemma3-270m.sh makes it"
}

sanitized() { [ "$Q4CONFIG" = asan ] || [ "$Q4CONFIG" = tsan ]; }
