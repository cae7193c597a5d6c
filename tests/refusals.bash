# shellcheck shell=bash
# What is refused, and in which words: tables of commands, lines and files.  A test goes on to its end and fails then (`none_failed`).  Loaded after lib.bash.

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" _AWS_CLI_PROFILE_CHAIN
    export HOME=$PWD XDG_STATE_HOME=$PWD/state AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=$PWD/config AWS_SHARED_CREDENTIALS_FILE=$PWD/credentials
    FAILED=0
}

# The command ends with this status, and its last line holds this text.
refused() {     # STATUS TEXT COMMAND…
    local want=$1 text=$2 status=0 said
    shift 2
    said=$(timeout 60 "$@" 2>&1 >/dev/null </dev/null) || status=$?
    [[ $status = "$want" && ${said##*$'\n'} = *"$text"* ]] || { echo "$*: expected $want and \"$text\", found $status and \"$said\""; FAILED=1; }
}

refused_stdin() {   # FILE STATUS TEXT COMMAND…
    local from=$1 want=$2 text=$3 status=0 said
    shift 3
    said=$(timeout 60 "$@" 2>&1 >/dev/null <"$from") || status=$?
    [[ $status = "$want" && ${said##*$'\n'} = *"$text"* ]] || { echo "$*: expected $want and \"$text\", found $status and \"$said\""; FAILED=1; }
}

none_failed() { [ "$FAILED" -eq 0 ]; }

# A stream of this header and so many zero bytes.
st() {          # JSON BYTES
    local n=${#1} i
    for i in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $((n >> i & 255)))"; done
    printf %s "$1"
    head -c "$2" /dev/zero
}

# A plan stream whose header jq has changed; offsets follow from dtypes and shapes again.
plan_with() {   # STREAM FILTER
    local header
    header=$(st_header "$1" | jq -c "$2"' | .__metadata__ as $m | del(.__metadata__)
        | reduce to_entries[] as $t ({at: 0, h: {}};
            ($t.value.shape | reduce .[] as $d (1; . * $d)) as $n | ({BF16: 2, F16: 2, F32: 4, I32: 4, I64: 8, U8: 1, I8: 1, F8_E4M3: 1}[$t.value.dtype]) as $w
            | .h[$t.key] = {dtype: $t.value.dtype, shape: $t.value.shape, data_offsets: [.at, .at + $n * $w]} | .at += $n * $w)
        | {__metadata__: $m} + .h')
    st "$header" 0
}

# Lines of JSON that a program refuses, each with its words: `TEXT <- LINE` on stdin.  One run takes them all; its answers are in their order, its exit status is 65.
lines_refused() {   # COMMAND…
    local row i status=0 words=() line=() answer
    while IFS= read -r row; do
        [ -n "$row" ] || continue
        words+=("${row%% <- *}")
        line+=("${row#* <- }")
    done
    timeout 60 "$@" < <(printf '%s\n' "${line[@]}") >answers 2>/dev/null || status=$?
    mapfile -t answer < <(jq -r '.error // "no error"' answers)
    [ "$status" -eq 65 ] || { echo "$*: expected 65, found $status"; FAILED=1; }
    for i in "${!line[@]}"; do
        [[ ${answer[i]-} = *"${words[i]}"* ]] || { echo "${line[i]}: expected \"${words[i]}\", found \"${answer[i]-}\""; FAILED=1; }
    done
}

# A program in which one call after another of a kind fails, until it says this and ends so; N of them at most.  FAULTY: the program's name where it is not the command.
# NEAR: the calls around this one, ever further away, where there are thousands.
fault_says() {      # N KIND STATUS TEXT COMMAND…
    local most=$1 kind=$2 want=$3 text=$4 n i status said=
    shift 4
    need_shim
    # A sanitizer brings its own malloc, and maps memory itself.
    if sanitized && [[ $kind = malloc || $kind = map ]]; then return; fi
    for ((i = 1; i <= most; i++)); do
        n=$((${NEAR:-0} ? NEAR + (i % 2 ? i / 2 : -i / 2) : i))
        [ "$n" -ge 1 ] || continue
        rm -f fired
        failing "$kind" "$n" "${FAULTY:-${1##*/}}"
        status=0
        said=$(timeout 60 env "${FAILING[@]}" "$@" 2>&1 >/dev/null </dev/null) || status=$?
        [[ $status != "$want" || $said != *"$text"* ]] || return 0
        [[ -e fired || -n ${NEAR:-} ]] || break
    done
    echo "$*: no $kind of $n failed with $want and \"$text\"; the last said \"$said\""
    FAILED=1
}
