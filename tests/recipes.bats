# pipelines/RECIPE: every build from one command.
load lib

R=$ROOT/pipelines

recipes="text ple4 emb4 fp8 int8 fp8emb4 int8emb4 full"

@test "every recipe makes the build of its name, and it holds against its source" {
    local r src
    src=$(golden e2b-nano)
    for r in $recipes; do
        run -0 --separate-stderr "$R/$r" "$src" "$r"
        [ -z "$output$stderr" ] || { echo "$r: $output $stderr"; return 1; }
        run -0 --separate-stderr "$R/$r" --dry-run "$src" nowhere
        holds ".build == \"$r\" and .shards == 1" <<<"$output"
        [ "$(jq .tensors <<<"$output")" -eq "$(st_header $r/model.safetensors | jq 'del(.__metadata__) | length')" ]
        run -0 "$BIN/ct-check" --strict --against "$src" "$r"
    done
    [ ! -e nowhere ]
    [ ! -e nowhere.report.jsonl ]
}

@test "reports lie beside int4 builds" {
    "$R/emb4" "$(golden e2b-nano)" b
    [ -s b.report.jsonl ]
    jq -e . b.report.jsonl >/dev/null
    "$R/fp8" "$(golden e2b-nano)" f
    [ ! -e f.report.jsonl ]
    "$R/fp8" --force "$(golden e2b-nano)" b//   # what b was before has no say about it any more
    [ -d b ] && [ ! -e b.report.jsonl ]
    "$R/emb4" --force "$(golden e2b-nano)" b//
    [ -s b.report.jsonl ] && [ ! -e b/.report.jsonl ]
    "$R/fp8" --dry-run "$(golden e2b-nano)" b
    [ -s b.report.jsonl ]
}

@test "a build that does not apply is refused with the reason, and nothing is left" {
    local s
    for s in 12b 26b 31b gemma3; do
        run -65 "$R/ple4" "$(golden $s-nano)" b
        [[ $output = *"build ple4 does not apply: this makes text: the model has no per-layer table"* ]]
        run -65 "$R/ple4" --dry-run "$(golden $s-nano)" b
        [[ $output = *"no per-layer table"* ]]
    done
    "$BIN/st-synth" --size 12b -o 'no towers'           # its config has the multimodal architecture all the same
    for s in "$(golden gemma3-nano)" 'no towers'; do
        run -65 "$R/full" "$s" b
        [[ $output = *"no vision or audio"* ]]
        run -65 "$R/full" --dry-run "$s" b
        [[ $output = *"no vision or audio"* ]]
    done
    rm -r 'no towers'
    only_holds .
}

@test "any directory, spaces in paths, a link to the recipe's directory" {
    mkdir 'a dir'
    cp -r "$(golden gemma3-nano)" 'a dir/source model'
    rm -f 'a dir/source model'/{steps,golden}.safetensors
    cd 'a dir'
    run -0 "$R/text" 'source model' 'the build'
    run -0 "$BIN/ct-check" --strict --against 'source model' 'the build'
    [ -s 'the build.report.jsonl' ]
    ln -s "$R" 'linked recipes'
    run -0 'linked recipes/text' 'source model' other
    diff -r 'the build' other
}

@test "a saved stream, a plan stream, standard input" {
    local src
    src=$(golden e2b-nano)
    "$R/text" "$src" direct
    "$BIN/st-extract" "$src" >s
    "$R/text" s from-file
    "$R/text" - from-stdin <s
    zstd -q s
    "$R/text" s.zst from-zstd
    for b in from-file from-stdin from-zstd; do cmp direct/model.safetensors $b/model.safetensors; done
    "$BIN/st-extract" --plan "$src" >p
    diff <("$R/text" --dry-run p x) <("$R/text" --dry-run "$src" x)
    diff <("$R/text" --dry-run - x <p) <("$R/text" --dry-run "$src" x)
}

@test "the scale dtype" {
    "$R/text" --scale-dtype f16 "$(golden gemma3-nano)" f
    "$R/text" "$(golden gemma3-nano)" b
    [ "$(st_header f/model.safetensors | jq -r '[.[] | .dtype? | select(. == "F16")] | length > 0')" = true ]
    [ "$(st_header b/model.safetensors | jq -r '[.[] | .dtype? | select(. == "F16")] | length')" -eq 0 ]
    run -64 "$R/text" --scale-dtype f32 "$(golden gemma3-nano)" c
    # 8-bit builds have no int4 scales
    "$R/int8" --scale-dtype f16 "$(golden gemma3-nano)" i
    "$R/int8" "$(golden gemma3-nano)" j
    diff -r i j
}

@test "an existing OUT: 64, or --force" {
    "$R/text" "$(golden gemma3-nano)" b
    cp -r b before
    run -64 "$R/emb4" "$(golden gemma3-nano)" b
    [[ $output = *"--force"* ]]
    diff -r b before
    run -0 "$R/emb4" --force "$(golden gemma3-nano)" b
    holds '.tie_word_embeddings == false' b/config.json
}

@test "the status is that of the first stage that failed" {
    run -66 "$R/text" nowhere b
    cp -r "$(golden gemma3-nano)" m && rm m/{steps,golden}.safetensors
    "$TOOLS/st-mutate" m/model.safetensors xor model.layers.0.mlp.up_proj.weight 7 1
    run -65 "$R/text" m b
    [[ $output = *"--leave '"*"'"* ]]
    [ ! -e b ]
    leave=${output#*--leave \'}
    run -0 "$R/text" --leave "${leave%%\'*}" m b               # what the message says helps
    holds '.left == 2' <(jq -c 'select(.summary)' b.report.jsonl)
    run -0 "$BIN/ct-check" --strict --against m b
    run -64 "$R/text" --leave
    rm -r b b.report.jsonl b.check.jsonl
    run -64 "$R/text" m
    run -64 "$R/text" m b c
    run -64 "$R/text" --no-such m b
    run -0 "$R/text" --help
    [[ $output = *"usage: text"* && $output != *shellcheck* ]]
}

@test "a stored twin is dropped where the head is tied, and packed once more where it is not" {
    mkdir m
    cp "$(golden e2b-nano)"/{config.json,model.safetensors} m
    "$TOOLS/st-mutate" m/model.safetensors copy model.language_model.embed_tokens.weight lm_head.weight
    for r in $recipes; do
        run -0 "$R/$r" m $r
        run -0 "$BIN/ct-check" --strict --against m $r
    done
    st_header text/model.safetensors | jq -e 'has("lm_head.weight") | not'
}

@test "the plans of the five sizes at full scale" {
    need_program st-synth
    local size modules bytes
    while read -r size modules bytes; do
        "$BIN/st-synth" --size "$size" --scale full --plan -o - >p
        run -0 --separate-stderr "$R/text" --dry-run p x
        holds ".quantized_modules == $modules and .tensor_bytes == $bytes" <<<"$output"
    done <<'END'
e2b 276 6559214470
e4b 343 9215143364
12b 328 8146031328
26b 11725 15271539980
31b 410 19295026200
END
}

# A directory of the programs with one of them replaced by a script.
programs_but() {    # NAME SCRIPT
    mkdir programs
    ln -s "$BIN"/* programs/
    rm "programs/$1"
    printf '#!/bin/sh\n%s\n' "$2" >"programs/$1"
    chmod +x "programs/$1"
}

@test "a build that fails leaves no report, and the report of the build that stays is not replaced" {
    local src
    src=$(golden e2b-nano)
    "$R/text" "$src" old
    cp old.report.jsonl kept
    programs_but ct-pack 'cat >/dev/null; exit 74'
    Q4BIN=$PWD/programs run -74 "$R/text" "$src" new
    Q4BIN=$PWD/programs run -74 "$R/emb4" --force "$src" old
    same_bytes kept old.report.jsonl
    only_holds . kept old old.report.jsonl programs
}

@test "a signal to the recipe alone ends its stages too, and nothing is left" {
    local sig rc
    programs_but st-extract 'echo $$ >pid.part; mv pid.part pid; exec sleep 60'
    for sig in TERM HUP; do
        rm -f pid
        Q4BIN=$PWD/programs "$R/emb4" anything out 2>/dev/null 3>&- &
        until [ -e pid ]; do sleep 0.05; done
        kill -$sig $!
        rc=0
        wait $! || rc=$?                # not by `run`: its subshell has no such child to wait for
        [ "$rc" -gt 128 ]
        run ! kill -0 "$(cat pid)"
        only_holds . pid programs
    done
}

@test "a signal once the build has taken its place: it has its report, and an older one's is gone" {
    mkdir late
    ln -s "$BIN"/* late/
    rm late/ct-pack
    cat >late/ct-pack <<'EOF'
#!/bin/bash
trap '' TERM
"$REAL/ct-pack" "$@" || exit
kill -TERM "$(ps -o ppid= -p $PPID)"        # the recipe, which waits for its stages
sleep 0.3
EOF
    chmod +x late/ct-pack
    REAL=$BIN Q4BIN=$PWD/late run -143 "$R/emb4" "$(golden e2b-nano)" b
    "$BIN/ct-check" -q --against "$(golden e2b-nano)" b
    [ -s b.report.jsonl ]
    REAL=$BIN Q4BIN=$PWD/late run -143 "$R/fp8" --force "$(golden e2b-nano)" b
    rm -rf late b.check.jsonl
    only_holds . b
}

# Nobody can tell the stages of a recipe that was killed: they end as they would, or as the closed pipe makes them.
@test "SIGKILL of a recipe: what appears is the whole build, or nothing" {
    local i n src
    src=$(golden e2b-nano)
    "$R/emb4" "$src" want
    rm want.report.jsonl
    for i in 0.01 0.03 0.05 0.08 0.12; do
        "$R/emb4" "$src" "$PWD/out" 2>/dev/null 3>&- &
        sleep "$i"
        kill -KILL $! 2>/dev/null || true           # it may have ended
        wait $! || true
        for ((n = 0; n < 200; n++)); do pgrep -f -- "-o $PWD/out" >/dev/null || break; sleep 0.05; done
        [ ! -e out ] || diff -r out want
        [ -z "$(find . -name '.out.tmp.*')" ]
        rm -rf out out.report.jsonl .out.report.*
        only_holds . want
    done
}

@test "the report of a killed run goes with the next run; that of a live one, or of another machine, stays" {
    local dead
    true & dead=$!
    wait "$dead"
    touch ".b.report.$HOSTNAME.$dead" ".b.report.$HOSTNAME.$$" ".b.report.$HOSTNAME.else.$dead" ".b.report.$HOSTNAME.mine"
    "$R/emb4" --dry-run "$(golden e2b-nano)" b >plan
    [ -e ".b.report.$HOSTNAME.$dead" ]
    "$R/emb4" "$(golden e2b-nano)" b
    only_holds . plan b b.report.jsonl ".b.report.$HOSTNAME.$$" ".b.report.$HOSTNAME.else.$dead" ".b.report.$HOSTNAME.mine"
}

@test "the source is never replaced" {
    cp -r "$(golden gemma3-nano)" src
    run -64 "$R/text" --force src src/
    [[ $output == *"is the source"* ]]
    run -64 "$R/text" --force src/model.safetensors src
    diff -r src "$(golden gemma3-nano)"
}

@test "a packed checkpoint is a source: the same build, and the check holds it against that source" {
    local size src
    for size in e2b 26b; do
        src=$(golden $size-nano)
        "$R/full" "$src" packed-$size
        "$R/text" "$src" direct-$size
        run -0 "$R/text" packed-$size text-$size
        same_bytes direct-$size/model.safetensors text-$size/model.safetensors
        same_bytes direct-$size/config.json text-$size/config.json
        run -0 "$BIN/ct-check" --strict --against packed-$size text-$size
        "$R/emb4" packed-$size emb4-$size
        run -0 "$BIN/ct-check" --strict --against packed-$size emb4-$size
        run -0 "$BIN/ct-check" --strict --against "$src" emb4-$size
        run -65 "$R/fp8" packed-$size fp8-$size
        [[ $output == *"int4 already"* ]]
    done
    "$TOOLS/st-mutate" text-e2b/model.safetensors xor model.layers.0.mlp.up_proj.weight_scale 4 1
    run -1 "$BIN/ct-check" --against packed-e2b text-e2b
    [[ $output == *"wrong: model.layers.0.mlp.up_proj"* ]]
}

@test "a recipe without int4 says of the options for int4 that they do nothing" {
    run -0 --separate-stderr "$ROOT/pipelines/fp8" --dry-run --scale-dtype=f16 --leave 'x y' "$(model gemma3)" out
    [ "$stderr" = "fp8: --scale-dtype --leave: without effect: this build has no int4 tensors" ]
    run -0 --separate-stderr "$ROOT/pipelines/int8" --dry-run "$(model gemma3)" out
    [ "$stderr" = "" ]
    run -0 --separate-stderr "$ROOT/pipelines/fp8emb4" --dry-run --scale-dtype f16 "$(model gemma3)" out
    [ "$stderr" = "" ]
}
