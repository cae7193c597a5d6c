#!/usr/bin/env bats
# The GPU's forward pass without a GPU: whole models through the CUDA kernels compiled for the CPU (build/CONFIG/shim/gpu-decode and gpu-serve).
#
# What may differ from the CPU's own forward pass: K and V are kept in bf16, and an activation has two bf16 terms.  On these random models that moves a logit by up to 0.3 (and
# where a router's scores nearly tie, another expert answers: then by what it says); the smallest gap on any golden path is 0.10, and every token is the golden one.
load lib

NANO="e2b-nano e4b-nano 12b-nano 26b-nano 31b-nano gemma3-nano"

# With Q4_ON_GPU (tests/check-gpu) the real programs on the real GPU take the shim's place.
PROGRAMS=$BUILD/shim DEVICE=host-shim
[ -z "${Q4_ON_GPU:-}" ] || { unset CUDA_VISIBLE_DEVICES; PROGRAMS=$BIN DEVICE=cuda; }
shim() { "$PROGRAMS/gpu-decode" -q --device cuda "$@"; }
export Q4_SHIM_UNWATCHED=1              # the watch over every access (cuda/host/shim.h) where a test asks for it: it takes three times as long
prompts() {     # DIR
    jq -c '.prompts | to_entries[] | {id: "p\(.key)", prompt_ids: .value.ids, max_tokens: 24, ignore_eos: true}' "$1/golden.json"
}
greedy() { jq -c '.prompts[].greedy_f32' "$1/golden.json"; }
tokens() { jq -c .token_ids "$1"; }

# Completions of the shim against the CPU's of the same lines, which carry logprobs: equal token by token, or, where they first differ, the CPU's best two within a near tie (0.1)
# and the shim's choice the second.
equal_or_near_tie() {   # SHIM CPU
    jq -n --slurpfile a "$1" --slurpfile b "$2" '[range($b | length) as $i | $a[$i].token_ids as $x | $b[$i].token_ids as $y | first(range($y | length) | select($x[.] != $y[.])) as $k |
        $b[$i].logprobs[$k].top_logprobs | {id: $b[$i].id, at: $k, gap: (.[0].logprob - .[1].logprob), second: (.[1].token_id == $x[$k])}]' > ties
    holds 'all(.gap < 0.1 and .second)' ties
}
with_logprobs() { jq -c '. + {logprobs: true, top_logprobs: 2}'; }

@test "every nano model writes the golden tokens, three prompts together; logits and hidden states within the bound" {
    for size in $NANO; do
        dir=$(golden "$size")
        prompts "$dir" | shim --model "$dir" --batch 3 --logits l.st --trace t.st > out
        diff <(tokens out) <(greedy "$dir") || { echo "in $size"; return 1; }
        holds ".device == \"$DEVICE\" and (.gpu | length > 0) and .simd == null" out
        close_to "$(max_diff t.st:hidden.p0.0 "$dir/golden.safetensors:p0.hidden.0")" 0 1e-5
        close_to "$(max_diff t.st:hidden.p0.1 "$dir/golden.safetensors:p0.hidden.1")" 0 0.02
        [ "$size" = 26b-nano ] || for p in 0 1 2; do
            close_to "$(max_diff "l.st:logits.p$p" "$dir/golden.safetensors:p$p.logits")" 0 0.5
            close_to "$(max_diff "l.st:decode.p$p" "$dir/golden.safetensors:p$p.decode_logits")" 0 0.5
        done
    done
}

@test "the golden tokens also where sums are cut off as tensor cores do, not rounded" {
    for size in $NANO; do
        dir=$(golden "$size")
        prompts "$dir" | head -n 1 | Q4_SHIM_CUTS=1 shim --model "$dir" > out
        diff <(tokens out) <(greedy "$dir" | head -n 1) || { echo "in $size"; return 1; }
    done
}

@test "no access strays and none races, in prompts and decoding, with experts and per-layer embeddings" {
    unset Q4_SHIM_UNWATCHED
    for size in e2b-nano 26b-nano; do
        dir=$(golden "$size")
        { jq -cn '{id: 1, prompt_ids: [range(2; 14)], max_tokens: 3, ignore_eos: true}'; jq -cn '{id: 2, prompt_ids: [3, 9], max_tokens: 3, ignore_eos: true}'; } > in
        shim --model "$dir" --batch 2 < in > out
        gpu-decode -q --device cpu --model "$dir" < in > cpu
        diff <(tokens out) <(tokens cpu) || { echo "in $size"; return 1; }
    done
}

@test "a token is one graph of as many kernels as engine/graph.h lists: at most 6 a layer, 7 with per-layer embeddings, 8 with experts" {
    while read -r size layers most once; do
        dir=$(golden "$size")
        "$PROGRAMS/gpu-decode" --device cuda --model "$dir" --bench --prompt 9 --gen 3 > out 2> err
        holds ".kernels == .kernels_run_per_step and (.kernels - $once) / $layers <= $most and .device == \"$DEVICE\" and (.parts | length > 6)" out
        jq -c '{kernels}' out > ran
        st-extract --plan "$dir" | gpu-decode --info --json --model - --gpu L4 | jq -c '.gpu | {kernels}' | diff - ran
    done << 'TABLE'
e2b-nano 7 7 3
12b-nano 7 6 2
26b-nano 6 8 2
gemma3-nano 12 6 2
TABLE
}

@test "builds of every format write what the CPU writes, up to near ties" {
    need_program ct-pack emb-untie
    while read -r size builds; do
        dir=$(golden "$size")
        prompts "$dir" | head -n 2 | jq -c '.max_tokens = 4' > in
        for build in $builds; do
            rm -rf b
            "$ROOT/pipelines/$build" "$dir" b 2> build.err
            shim --model b --batch 2 < in > out
            with_logprobs < in | gpu-decode -q --device cpu --model b --batch 2 > cpu
            equal_or_near_tie out cpu || { echo "in $size $build"; return 1; }
        done
    done << 'TABLE'
e2b-nano text ple4 emb4 fp8 int8 int8emb4 full
26b-nano emb4 fp8
gemma3-nano emb4 int8
TABLE
}

@test "up to 8 together write what each writes alone, sampled ones and stopped ones too" {
    for size in e2b-nano 26b-nano; do
        dir=$(golden "$size")
        for i in 1 2 3 4 5 6 7 8; do
            jq -cn --argjson i "$i" '{id: $i, prompt_ids: [range(2; 3 + $i * 2)], max_tokens: (2 + $i % 4), ignore_eos: ($i != 5), temperature: (if $i == 3 then 0.8 else 0 end),
                seed: 7} + (if $i == 4 then {logprobs: true, top_logprobs: 2} else {} end)'
        done > in
        shim --model "$dir" --batch 8 < in > together
        shim --model "$dir" --batch 1 < in > alone
        diff <(tokens together) <(tokens alone) || { echo "in $size"; return 1; }
        diff <(jq -c '[.finish_reason, .completion_tokens]' together) <(jq -c '[.finish_reason, .completion_tokens]' alone)
    done
}

# One edit of every tensor whose name ends so.
edit_all() {    # FILE ENDING OPERATION
    st_header "$1" | jq -r --arg ending "$2" 'to_entries[] | select((.key | endswith($ending)) and .value.shape) | .key' > names
    [ -s names ]
    while read -r name; do "$TOOLS/st-mutate" "$1" "$3" "$name"; done < names
}
# What the CPU makes of the build b, the shim makes too, exactly computed and fast, up to near ties; logits within a bound.
as_cpu() {      # DIR-OF-PROMPTS [BOUND]
    prompts "$1" | head -n 2 | jq -c '.max_tokens = 5' > in
    for math in fast exact; do
        shim --model b --batch 2 --math $math --logits h.st < in > out
        with_logprobs < in | gpu-decode -q --device cpu --model b --batch 2 --math $math --logits c.st > cpu
        equal_or_near_tie out cpu
        close_to "$(max_diff h.st:logits.p0 c.st:logits.p0)" 0 "${2:-0.5}"
    done
}

@test "every way of storing weights that the CPU loads: f16, f32, int4 with scales in f32 or one a row, 8 bits with scales in 16" {
    need_program ct-pack emb-untie
    dir=$(golden gemma3-nano)
    for how in half widen; do
        rm -rf b && cp -r "$dir" b && chmod -R u+w b
        edit_all b/model.safetensors .weight $how
        as_cpu "$dir" || { echo "in weights, $how"; return 1; }
    done
    for how in int8:thin fp8:thin emb4:widen emb4:first; do
        dir=$(golden "$([ $how = emb4:first ] && echo e4b-nano || echo gemma3-nano)")
        rm -rf b
        "$ROOT/pipelines/${how%:*}" "$dir" b 2> build.err
        edit_all b/model.safetensors .weight_scale "${how#*:}"
        if [ $how = emb4:first ]; then
            jq '(.. | objects | select(has("group_size"))) |= (.group_size = null | .strategy = "channel")' b/config.json > c.json && mv c.json b/config.json
        fi
        as_cpu "$dir" 1 || { echo "in $how"; return 1; }       # weights are not the model's any more, and larger
    done
}

@test "logits that are no numbers choose nothing, greedy or sampled, as on the CPU" {
    cp -r "$(golden gemma3-nano)" m && chmod -R u+w m
    poke m model.norm.weight "$(printf '\\x7f\\x7f%.0s' $(seq "$(st_header m/model.safetensors | jq '."model.norm.weight".shape[0]')"))"
    printf '%s\n' '{"id": 1, "prompt_ids": [2, 5, 7], "max_tokens": 3}' '{"id": 2, "prompt_ids": [2], "max_tokens": 3, "temperature": 1, "top_k": 5}' '{"id": 3, "prompt_ids": [2, 9], "max_tokens": 3, "temperature": 1, "logprobs": true}' > in
    run -65 --separate-stderr shim --model m --batch 3 < in
    [ "$(jq -s 'map(.error | startswith("the model gives no usable logits at position ")) | all and length == 3' <<< "$output")" = true ]
}

# The text build b of DIR with the modules that match in 16 bits, each by itself, in a second file: no loader that fuses would take it.
leave_some() {  # DIR ERE
    rm -rf b
    "$ROOT/pipelines/text" "$1" b 2> build.err
    mv b/model.safetensors b/model-00001-of-00002.safetensors
    st-extract --text-only --select "$2" "$1" > b/model-00002-of-00002.safetensors
    rm -f b/MANIFEST.sha256
    st_header b/model-00002-of-00002.safetensors | jq -r 'keys[] | select(endswith(".weight"))' > left
    [ -s left ]
    while read -r name; do
        for part in packed scale shape; do "$TOOLS/st-mutate" b/model-00001-of-00002.safetensors drop "${name}_$part"; done
    done < left
    jq --rawfile left left '.quantization_config.ignore += ($left | rtrimstr("\n") | split("\n") | map(rtrimstr(".weight")))' b/config.json > c.json && mv c.json b/config.json
    for i in 1 2; do st_header b/model-0000$i-of-00002.safetensors | jq --arg f model-0000$i-of-00002.safetensors '[keys[] | select(. != "__metadata__") | {(.): $f}] | add'; done |
        jq -s '{metadata: {total_size: 0}, weight_map: add}' > b/model.safetensors.index.json
}

@test "a layer whose q, k and v, or gate and up, are stored differently takes more kernels and writes what the CPU writes" {
    need_program ct-pack
    while read -r size more where; do
        dir=$(golden "$size")
        leave_some "$dir" "$where"
        as_cpu "$dir" || { echo "in $size"; return 1; }
        jq -cn '{id: 1, prompt_ids: [range(2; 42)], max_tokens: 3, ignore_eos: true}' > in
        shim --model b < in > out
        with_logprobs < in | gpu-decode -q --device cpu --model b > cpu
        equal_or_near_tie out cpu
        "$PROGRAMS/gpu-decode" --device cuda --model b --bench --prompt 9 --gen 2 > bench 2> err
        holds ".kernels == .kernels_run_per_step and .kernels == $(jq .kernels_run_per_step <("$PROGRAMS/gpu-decode" --device cuda --model "$dir" --bench --prompt 9 --gen 2 2> err)) + $more" bench
    done << 'TABLE'
gemma3-nano 19 layers\.[01]\.(self_attn\.v_proj|mlp\.up_proj)|layers\.2\.(self_attn\.q_proj|mlp\.gate_proj)
26b-nano 18 layers\.1\.(self_attn\.k_proj|mlp\.up_proj)
TABLE
}

@test "sampled tokens and log probabilities come from the largest logits alone: as the CPU's, up to near ties, in any batch" {
    for size in e2b-nano gemma3-nano; do
        dir=$(golden $size)
        jq -cn '{id: 1, prompt_ids: [range(2; 14)], max_tokens: 12, ignore_eos: true, temperature: 1, top_k: 64, top_p: 0.95, seed: 3, logprobs: true, top_logprobs: 5},
            {id: 2, prompt_ids: [3, 9], max_tokens: 12, ignore_eos: true, temperature: 0.7, top_k: 8, min_p: 0.05, seed: 4, logprobs: true, top_logprobs: 20},
            {id: 3, prompt_ids: [5], max_tokens: 12, min_tokens: 6, temperature: 0, logprobs: true, top_logprobs: 2},
            {id: 4, prompt_ids: [7, 8], max_tokens: 12, ignore_eos: true, temperature: 1, seed: 5, logprobs: true, top_logprobs: 3},
            {id: 5, prompt_ids: [7, 8], max_tokens: 12, ignore_eos: true}' > in
        shim --model "$dir" --batch 5 < in > out
        shim --model "$dir" --batch 1 < in > alone
        diff <(tokens out) <(tokens alone)
        jq -c '.logit_bias = {"1": 0}' in | shim --model "$dir" --batch 5 > all      # that takes all logits to the CPU
        diff <(tokens out) <(tokens all) || { echo "in $size"; return 1; }
        off=$(jq -n --slurpfile a out --slurpfile b all '[range(4) as $i | range($b[$i].logprobs | length) as $k | $a[$i].logprobs[$k] as $x | $b[$i].logprobs[$k] as $y |
            ($x.logprob - $y.logprob | fabs), ([$x.top_logprobs[].logprob] | . == (sort | reverse) | if . then 0 else 9 end),
            (($x.top_logprobs | length) - ($y.top_logprobs | length) | fabs), ([$x.top_logprobs[].token_id] | if . == [$y.top_logprobs[].token_id] then 0 else 9 end)] | max')
        close_to "$off" 0 1e-4
        # one draw of these lies so near a boundary that the CPU's, whose logits are a little off, is another
        [ -z "${Q4_ON_GPU:-}" ] || continue
        gpu-decode -q --device cpu --model "$dir" < in > cpu
        diff <(jq -c '.token_ids[:9]' out) <(jq -c '.token_ids[:9]' cpu) || { echo "in $size"; return 1; }
    done
}

@test "of a prompt only the tokens asked for go on after the last layer with K/V of its own" {
    dir=$(golden e2b-nano)
    jq -cn '{id: 1, prompt_ids: [range(2; 202)], max_tokens: 4, ignore_eos: true}' > in
    jq -cn '{id: 2, prompt_ids: [range(3; 60)], max_tokens: 4, ignore_eos: true}' >> in
    shim --model "$dir" --batch 2 < in > out
    shim --model "$dir" --batch 2 --logits h.st --trace t.st < in > all        # all tokens are asked for
    diff <(tokens out) <(tokens all)
    gpu-decode -q --device cpu --model "$dir" --batch 2 --logits c.st --trace u.st < in > cpu
    diff <(tokens out) <(tokens cpu)
    close_to "$(max_diff h.st:logits.2 c.st:logits.2)" 0 0.5
    layers=$(jq '.text_config.num_hidden_layers // .num_hidden_layers' "$dir/config.json")
    close_to "$(max_diff t.st:hidden.2.$layers u.st:hidden.2.$layers)" 0 0.5
}

@test "past the window and around the ring of pages: as the CPU; the per-layer table on the GPU changes no bit" {
    dir=$(golden e2b-nano)
    jq -cn '{id: 1, prompt_ids: [range(2; 242)], max_tokens: 12, ignore_eos: true}' > in
    shim --model "$dir" --logits h.st < in > out
    with_logprobs < in | gpu-decode -q --device cpu --model "$dir" --logits c.st > cpu
    equal_or_near_tie out cpu
    close_to "$(max_diff h.st:logits.1 c.st:logits.1)" 0 0.5
    jq -cn '{id: 1, prompt_ids: [range(2; 14)], max_tokens: 4, ignore_eos: true}' > in
    shim --model "$dir" --logits h.st < in > out
    shim --model "$dir" --ple gpu --logits g.st < in > on
    diff <(tokens out) <(tokens on)
    close_to "$(max_diff h.st:logits.1 g.st:logits.1)" 0 0
}

@test "--math exact rounds int4 weights as the CPU's does" {
    need_program ct-pack emb-untie
    dir=$(golden e2b-nano)
    "$ROOT/pipelines/emb4" "$dir" b 2> build.err
    for math in fast exact; do
        prompts "$dir" | head -n 1 | jq -c '.max_tokens = 2' > in
        shim --model b --math $math --logits g.st < in > out
        gpu-decode -q --device cpu --model b --math $math --logits c.st < in > cpu
        holds ".math == \"$math\"" out
        max_diff g.st:logits.p0 c.st:logits.p0 > same.$math
    done
    gpu-decode -q --device cpu --model b --math fast --logits f.st < in > /dev/null
    # nearer to its own kind than the two kinds are to each other
    awk -v own="$(cat same.exact)" -v other="$(max_diff g.st:logits.p0 f.st:logits.p0)" 'BEGIN { exit !(own < 0.5 && own < other) }'
}

@test "suppressed tokens and min_tokens hold where the GPU chooses" {
    cp -r "$(golden gemma3-nano)" m
    chmod -R u+w m
    first=$(echo '{"id": 1, "prompt_ids": [2, 9], "max_tokens": 1, "ignore_eos": true}' | shim --model m | jq '.token_ids[0]')
    echo "{\"suppress_tokens\": [$first]}" > m/generation_config.json
    echo '{"id": 1, "prompt_ids": [2, 9], "max_tokens": 6, "ignore_eos": true}' | tee in | shim --model m > out
    gpu-decode -q --device cpu --model m < in > cpu
    diff <(tokens out) <(tokens cpu)
    echo "{\"eos_token_id\": [1, $first]}" > m/generation_config.json
    echo '{"id": 1, "prompt_ids": [2, 9], "max_tokens": 6, "min_tokens": 3}' | shim --model m > out
    holds ".completion_tokens >= 3 and (.token_ids[:3] | index($first)) == null" out
}

teardown() { [ -z "${SERVER:-}" ] || kill "$SERVER" 2> kill.err || true; }

@test "gpu-serve on it: K/V sized as vLLM says it, five at once answered as gpu-decode answers each" {
    dir=$(golden 12b-nano)
    "$PROGRAMS/gpu-serve" --model "$dir" --port 0 --device cuda --max-context 512 > url 2> log 3>&- < /dev/null &
    SERVER=$!
    for _ in $(seq 600); do [ -s url ] && break; sleep 0.05; done
    local asked=()
    for i in 1 2 3 4 5; do
        jq -cn --argjson i "$i" '{id: $i, prompt: [2, $i, 7], max_tokens: 10, ignore_eos: true, return_token_ids: true}' > "ask.$i"
        curl -s "$(cat url)/v1/completions" -H 'Content-Type: application/json' -d "@ask.$i" > "served.$i" &
        asked+=("$!")
    done
    wait "${asked[@]}"
    cat ask.? | shim --model "$dir" > out
    diff <(cat served.? | jq -c '.choices[0].token_ids') <(tokens out)
    grep -q "device_config=$DEVICE" log
    grep -qE 'Available KV cache memory: [0-9.]+ GiB' log
    grep -qE 'GPU KV cache size: [0-9,]+ tokens, Maximum concurrency for 512 tokens per request: [0-9.]+x' log
}

@test "a device that is not there is 69, whatever is asked" {
    dir=$(golden gemma3-nano)
    export CUDA_VISIBLE_DEVICES=
    run -69 --separate-stderr gpu-decode --model "$dir" --device cuda < /dev/null
    run -69 --separate-stderr gpu-serve --model "$dir" --port 0 --device cuda < /dev/null
}
