# shellcheck shell=bash disable=SC2034
# tests/cli.table as functions: each line is an example, run in a directory of its own.  Loaded after lib.bash.

# The lines of the table, comments aside; `examples stream pack` only those kinds.  Q4EXAMPLES=REGEX picks lines.
examples() {    # [KIND…]
    local kinds=" $* "
    while read -r line; do
        [[ $line = '#'* || -z $line || ! $line =~ ${Q4EXAMPLES:-} ]] && continue
        set -f
        # shellcheck disable=SC2086
        set -- $line
        set +f
        [[ $kinds = "  " || $kinds = *" $2 "* ]] && printf '%s\n' "$line"
    done < <(cat "$ROOT/tests/cli.table" ${MORE_EXAMPLES:+"$ROOT/$MORE_EXAMPLES"})
    return 0
}

# --- fixtures: made once a run, with the programs themselves ---------------------------------------------------------

make_fixture() {    # NAME PATH
    case $1 in
        source) "$BIN/st-extract" "$(model e2b)" >"$2" ;;
        text) "$BIN/st-extract" --text-only "$(model e2b)" >"$2" ;;
        blocks) "$BIN/q4-regrid" --only linears,embed <"$(fixture text)" >"$2" ;;
        untied) "$BIN/emb-untie" <"$(fixture blocks)" >"$2" ;;
        build) "$BIN/ct-pack" -o "$2" <"$(fixture untied)" ;;
        twins) "$BIN/st-extract" --text-only "$(model e2b --twin-lm-head)" >"$2" ;;
        ids) printf '%s\n' '{"id":"a","token_ids":[2,7,9]}' '{"id":"b","token_ids":[40,41,42]}' >"$2" ;;
        chats) printf '%s\n' '{"id":"a","messages":[{"role":"user","content":"Hello"}]}' >"$2" ;;
        texts) printf '%s\n' '{"id":"a","text":"Hello, world"}' '{"id":"b","text":"caf\u00e9 \ud83d\ude00\n"}' >"$2" ;;
        prompts) printf '%s\n' '{"id":"a","prompt_ids":[2,7,9],"max_tokens":3}' '{"id":"b","prompt_ids":[2,40,41,42],"max_tokens":2}' >"$2" ;;
        messages) printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}' \
            '{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/list"}' '{"jsonrpc":"2.0","id":3,"method":"ping"}' >"$2" ;;
        result) jq -n --argjson request '{"completion_tokens":4,"e2e_ms":50}' '{
            schema: "q4sweep-result/1", model: "m", build: "text", target: "local",
            time: {started: "2026-01-01T00:00:00Z", finished: "2026-01-01T00:00:01Z"}, tool: {version: "0", commit: null}, machine: {},
            engine: {name: "e", version: null}, weights: {bytes_on_disk: 1000, bytes_by_class: null, manifest_sha256: null, provenance: null},
            settings: {short_tokens: 4, long_tokens: 8, repeats: 1, parallel_tokens: 4, batches: 1, concurrency: [1], question_tokens: 4, temperature: 0,
                       ignore_eos: true, prompt: "p", reduced: true},
            short: [$request], long: [$request | .completion_tokens = 8 | .e2e_ms = 90],
            parallel: [{concurrency: 1, batch: 0, tokens: 4, wall_ms: 50, requests: [$request]}],
            questions: [{id: "q", right: true, answer: "a", request: $request}]}' >"$2" ;;
        *) echo "examples: no fixture $1" >&2; return 1 ;;
    esac
}

fixture() {     # NAME: prints its path
    cached "fixture-$1" make_fixture "$1"
}

# An example's parts into PROGRAM, KIND, STDIN (a file) and ARGS, with the table's words replaced.
parse() {       # LINE
    local word input
    set -f
    # shellcheck disable=SC2086
    set -- $1
    set +f
    PROGRAM=$1 KIND=$2 input=$3 STDIN=/dev/null ARGS=()
    [ "$input" = - ] || STDIN=$(fixture "$input") || { fault "no $input to read"; return 1; }
    shift 3
    for word; do
        case $word in
            OUT) word=out ;;
            REPORT) word=report ;;
            MODEL) word=$(model e2b) || { fault "no model to read"; return 1; } ;;
            BUILD) word=$(fixture build) || { fault "no build to read"; return 1; } ;;
            LOG) word=$ROOT/tests/golden/vllm-logs/emb4-start.jsonl ;;
            RESULT) word=$(fixture result) || { fault "no result to read"; return 1; } ;;
        esac
        ARGS+=("$word")
    done
}

# A fresh directory for one run, with a TMPDIR of its own inside whose content must be nothing in the end.
fresh() {
    local dir
    dir=$(mktemp -d "$BATS_TEST_TMPDIR/run.XXXXXX") || return 1
    cd "$dir" || return 1
    mkdir tmp
    export TMPDIR=$dir/tmp
}

# Run the parsed example: stdin from STDIN, stdout to `stdout`, stderr to `stderr`; STATUS is the exit status.
invoke() {      # [MORE ARGUMENTS…]
    STATUS=0
    timeout -k 5 120 "$BIN/$PROGRAM" "${ARGS[@]}" "$@" <"${FROM:-$STDIN}" >stdout 2>stderr || STATUS=$?
}

# A note of what went wrong; the test goes on to the other programs and fails at its end (`no_faults`).
FAULTS=0
fault() {       # WHAT
    FAULTS=$((FAULTS + 1))
    echo "$PROGRAM ${ARGS[*]}: $*" >&2
    [ ! -s stderr ] || tail -n 5 stderr | sed 's/^/    stderr: /' >&2
}
no_faults() { [ "$FAULTS" -eq 0 ]; }

expect_status() {   # STATUS WHAT
    [ "$STATUS" -eq "$1" ] || fault "$2: expected exit status $1, found $STATUS"
}

# One line `program: …` that a person can act on.
expect_message() {  # WHAT
    local lines
    mapfile lines <stderr
    [[ ${lines[0]-} = *$'\n' ]] || { fault "$1: no message"; return; }
    [[ ${lines[-1]} = "$PROGRAM: "* ]] || fault "$1: the message does not begin with the program's name"
}

# Nothing but these names in the run's directory, and nothing in its TMPDIR.
expect_only() {     # WHAT NAME…
    local what=$1
    shift
    compare_names . tmp "$@"
    [ -z "$ODD" ] || fault "$what: left behind:$ODD"
    [ -z "$LACKING" ] || fault "$what: missing:$LACKING"
    compare_names tmp
    [ -z "$ODD" ] || fault "$what: left in TMPDIR:$ODD"
}

# ODD: what a directory holds besides these names, LACKING: which of them it lacks.  lib.bash's only_holds without a process: it is asked thousands
# of times.
compare_names() {   # DIR NAME…
    local dir=$1 f
    shift
    ODD='' LACKING=''
    for f in "$dir"/* "$dir"/.[!.]* "$dir"/..?*; do
        [[ -e $f || -L $f ]] || continue
        [[ " $* " = *" ${f##*/} "* ]] || ODD+=" ${f##*/}"
    done
    for f; do [[ -e $dir/$f || -L $dir/$f ]] || LACKING+=" $f"; done
}

# What a successful run makes besides stdout.
results() {
    local word
    for word in "${ARGS[@]}"; do case $word in out | report) echo "$word" ;; esac; done
}

# Set aside what the last run made: stdout and the results.
keep() {        # DIR
    local r
    mkdir -p "$1"
    for r in stdout $(results); do if [ -e "$r" ]; then mv "$r" "$1/"; fi; done
}
