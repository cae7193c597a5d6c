#!/usr/bin/env bats
# make install: what is installed works from anywhere with nothing of the checkout, and goes away again.  Completion says what --help says.
load lib

setup_file() {
    TREE=$BATS_FILE_TMPDIR/tree
    export TREE
    unset MAKEFLAGS MAKELEVEL MFLAGS
    make -s --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" install DESTDIR="$TREE" PREFIX=/usr
}

# With nothing of this environment but the installed programs; in an empty directory.
installed() { env -i HOME="$PWD" PATH="$TREE/usr/bin:/usr/bin:/bin" ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} "$@"; }

@test "installed: a recipe, ct-check and tabulate in an empty environment" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check tabulate
    installed st-synth --size e2b -o source
    installed q4sweep text source build
    installed ct-check build --against source
    installed q4sweep emb4 --dry-run source x | holds '.build == "emb4"'
    installed tabulate "$TREE/usr/share/q4sweep/data/published" | grep -F '| e2b | emb4 |'
    only_holds . source build build.report.jsonl build.check.jsonl
    if [ -x "$BIN/sm-mcp" ]; then installed sm-mcp <<<'{"jsonrpc":"2.0","id":1,"method":"ping"}' | holds '.id == 1 and .error == null'; fi
}

@test "installed: q4sweep sweep, by way of the rehearsed cloud; the meter knows the price; the result says what was called" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check gpu-serve gpu-decode sm-invoke sm-endpoint sm-local tabulate
    run -0 --separate-stderr installed q4sweep sweep TARGET=rehearsal BUILDS=text \
        MEASURE='--parts replies,questions --short 4 --long 8 --repeats 1 --batches 1 --question-tokens 2 --concurrency 1'
    [[ $output = *"### e2b-nano"*"| text |"* ]] || { echo "$output$stderr"; return 1; }
    holds '.usd > 0' out/meter.jsonl
    holds '(.tool.command | startswith("q4sweep sweep MODEL=")) and .tool.commit == null and (.questions | length) == 40' out/e2b-nano/text.json
    # the same by make alone; everything is there already
    run -0 --separate-stderr installed make -f "$TREE/usr/share/q4sweep/sweep.mk" BUILDS=text TARGET=rehearsal \
        MEASURE='--parts replies,questions --short 4 --long 8 --repeats 1 --batches 1 --question-tokens 2 --concurrency 1'
    [[ $stderr = *"measured already"* ]]
    run -2 installed q4sweep sweep BUILDS=nf4
    [[ $output = *"no build nf4: there are: emb4 fp8"* ]]
}

@test "installed: a target by hand keeps its state where one is" {
    need_program st-synth gpu-serve
    installed st-synth --size gemma3 -o source
    installed q4sweep local up source 3>&-
    [ -e out/local/url ]
    curl -sf "$(installed q4sweep local url)/ping"
    installed q4sweep local down
}

@test "q4sweep: help, version, what it does not know" {
    installed q4sweep --help | grep -F 'emb4|fp8|fp8emb4|full|int8|int8emb4|ple4|text [OPTION]... SRC OUT'
    [[ $(installed q4sweep --version) = "q4sweep (q4sweep) $(cat "$ROOT/VERSION"),"* ]]
    run -64 installed q4sweep nf4
    [[ $output = "q4sweep: nf4: expected "* ]]
    run -64 installed q4sweep
}

@test "manual pages are where man looks" {
    local page
    for page in "$ROOT"/man/*.*; do [ -s "$TREE/usr/share/man/man${page##*.}/${page##*/}" ]; done
    [ -s "$TREE/usr/share/man/man1/q4sweep.1" ] && [ -s "$TREE/usr/share/man/man7/q4sweep.7" ]
}

# What bash would offer for these words, the last being completed.
offered() {     # WORD…
    # shellcheck disable=SC1091
    (
        cd "$BATS_TEST_TMPDIR"
        PATH=$TREE/usr/bin:$PATH
        . "$TREE/usr/share/bash-completion/completions/$1"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        "$(complete -p "$1" | sed -E 's/.*-F ([^ ]+).*/\1/')" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    )
}

@test "completion: every option of every program, its choices, the verbs" {
    local program
    for program in "$ROOT"/src/*.c; do
        program=$(basename "$program" .c)
        [ -x "$BIN/$program" ] || continue
        diff <(offered "$program" - | sort -u) <("$BIN/$program" --help | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | tr -s ', ' '\n' | grep . | sort -u) ||
            { echo "$program: completion and --help differ"; return 1; }
    done
    [ "$(offered st-synth --size '' | tr '\n' ' ')" = "e2b e4b 12b 26b 31b gemma3 " ]
    [ "$(offered gpu-decode --math e)" = exact ]
    [ "$(offered sm-endpoint de)" = delete ]
    [ "$(offered q4sweep int | tr '\n' ' ')" = "int8 int8emb4 " ]
    [ "$(offered q4sweep emb4 --sc)" = --scale-dtype ]
    [ "$(offered q4sweep emb4 --scale-dtype b)" = bf16 ]
    [ "$(offered q4sweep sweep BU)" = BUILDS= ]
    [ "$(offered q4sweep report '' | tr '\n' ' ')" = "RESULTS= TITLE= " ]
    [ "$(offered q4sweep local '' | tr '\n' ' ')" = "up url facts down " ]
    [ "$(offered q4sweep measure --repe)" = --repeats ]
    [ "$(offered tabulate di)" = diff ]
    [ -z "$(offered ct-check some-fi)" ]
}

@test "uninstall leaves nothing" {
    make -s --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" uninstall DESTDIR="$TREE" PREFIX=/usr
    [ -z "$(find "$TREE" -mindepth 1)" ]
}
