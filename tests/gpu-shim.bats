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
