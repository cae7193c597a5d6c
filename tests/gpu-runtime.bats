#!/usr/bin/env bats
# What speaks to CUDA's runtime (cuda/device_cuda.c, cuda/launch.cu), without a GPU: on a runtime that computes in the host shim, keeps the rules of CUDA's and can be told to fail
# (tests/cuda/fake_runtime.cpp).  It takes CUDA's headers: without nvcc there is nothing to test.
load lib

setup() {
    [ -x "$BUILD/fake/gpu-decode" ] || skip "no nvcc: nothing speaks to CUDA's runtime"
    cd "$BATS_TEST_TMPDIR" || return 1
    export LD_LIBRARY_PATH=$BUILD/fake Q4_SHIM_UNWATCHED=1
}
decode() { "$BUILD/fake/gpu-decode" -q --device cuda "$@"; }
prompts() {     # DIR
    jq -c '.prompts | to_entries[] | {id: "p\(.key)", prompt_ids: .value.ids, max_tokens: 12, ignore_eos: true}' "$1/golden.json"
}

@test "whole models keep the runtime's rules, write the golden tokens and leave nothing behind" {
    for size in gemma3-nano e2b-nano 26b-nano; do
        dir=$(golden $size)
        prompts "$dir" | decode --model "$dir" --batch 3 > out 2> err
        diff <(jq -c .token_ids out) <(jq -c '.prompts[].greedy_f32[:12]' "$dir/golden.json")
        holds '.device == "cuda" and .gpu == "Fake GPU"' out
        [ ! -s err ] || { cat err; false; }
    done
    # 1 to 8 together, sampled and with all logits: as many graphs, on a GPU whose kernels start early and on one whose do not
    dir=$(golden e2b-nano)
    for i in 1 2 3 4 5 6 7 8; do
        jq -cn --argjson i "$i" '{id: $i, prompt_ids: [range(2; 3 + $i)], max_tokens: (1 + $i), ignore_eos: true, temperature: (if $i == 3 then 1 else 0 end), top_k: 9, seed: 7} +
            (if $i == 4 then {logit_bias: {"5": 1}} elif $i == 5 then {logprobs: true} else {} end)'
    done > in
    for cc in 90 89; do Q4_FAKE_CC=$cc decode --model "$dir" --batch 8 --ple "$([ $cc = 90 ] && echo gpu || echo host)" < in > out.$cc 2> err; [ ! -s err ] || { cat err; false; }; done
    diff <(jq .token_ids out.90) <(jq .token_ids out.89)
}

@test "a prompt of one token, whose graph is the first that the GPU hears of: every kernel is there before it is recorded" {
    dir=$(golden gemma3-nano)
    echo '{"id": 1, "prompt_ids": [2], "max_tokens": 4, "ignore_eos": true}' | decode --model "$dir" > out 2> err
    [ ! -s err ] || { cat err; false; }
    holds '.completion_tokens == 4' out
}

@test "kernels that start early touch nothing of the one before until it has ended" {
    unset Q4_SHIM_UNWATCHED
    for size in e2b-nano 26b-nano; do
        echo '{"id": 1, "prompt_ids": [2, 5, 9, 11, 13, 17, 19, 23, 29, 31], "max_tokens": 3, "ignore_eos": true, "logprobs": true}' | decode --model "$(golden $size)" > out 2> err
        [ ! -s err ] || { cat err; false; }
        holds '.completion_tokens == 3' out
    done
}

@test "no more is asked into a small second cache than it holds; each kernel's time is the GPU's alone" {
    dir=$(golden e2b-nano)
    Q4_FAKE_L2=65536 "$BUILD/fake/gpu-decode" --device cuda --model "$dir" --bench --prompt 9 --gen 2 > bench 2> err
    if grep 'fake CUDA' err; then false; fi
    holds '.kernels == .kernels_run_per_step and (.parts | length) >= 9 and all(.parts[]; .us > 9 and .us < 11 * .kernels)' bench
}

@test "no GPU, one that is busy, too old a GPU, too old a driver: 69, in words of its own; --device auto takes the CPU" {
    dir=$(golden gemma3-nano)
    refused() {     # PLAN WORDS
        Q4_FAKE_CUDA=$1 run -69 --separate-stderr decode --model "$dir" < /dev/null
        [[ $stderr == *"$2"* ]] || { echo "$1: $stderr"; return 1; }
    }
    refused GetDeviceCount:1:100 "no GPU is here (no CUDA-capable device is detected): use --device cpu"
    refused GetDeviceCount:1:35 "the driver is one for CUDA 12.4, and this was built with "
    refused StreamCreateWithFlags:1:46 "the GPU: no stream: CUDA-capable device(s) is/are busy or unavailable"
    Q4_FAKE_GPUS=0 refused '' "no GPU is here (the driver lists none): use --device cpu"
    Q4_FAKE_CC=70 run -69 --separate-stderr decode --model "$dir" < /dev/null
    [[ $stderr == *"Fake GPU has compute capability 7.0: the kernels need 7.5: use --device cpu"* ]]
    LD_LIBRARY_PATH='' run -69 --separate-stderr decode --model "$dir" < /dev/null
    [[ $stderr == *"no GPU is here (no driver: libcuda.so.1 is not installed): use --device cpu"* ]]
    echo '{"id": 1, "prompt_ids": [2], "max_tokens": 1}' | Q4_FAKE_CUDA=GetDeviceCount:1:35 "$BUILD/fake/gpu-decode" --device auto --model "$dir" > out 2> err
    holds '.device == "cpu"' out
    grep -i cpu err
}

@test "whatever the runtime refuses, and whenever: the exit status and the words say so, and nothing half done is written" {
    dir=$(golden e2b-nano)
    printf '%s\n' '{"id": 1, "prompt_ids": [2], "max_tokens": 3, "ignore_eos": true}' '{"id": 2, "prompt_ids": [2, 7, 9], "max_tokens": 3, "ignore_eos": true}' > in
    while read -r plan status words; do
        Q4_FAKE_CUDA=$plan run -"$status" --separate-stderr decode --model "$dir" --batch 2 < in
        [[ $stderr == *"$words"* ]] || { echo "$plan: $stderr"; return 1; }
        [ -z "$output" ]
    done << 'TABLE'
Malloc:1:2 75 Fake GPU: no room for
Malloc:12:2 75 are unused: take a smaller build, or a smaller --max-context
HostAlloc:1:2 75 the GPU: pinned memory: out of memory
HostAlloc:10:2 75 the GPU: pinned memory: out of memory
HostRegister:1:1 69 of this machine's memory (some error): use --ple gpu
HostRegister:1:2 75 of this machine's memory (out of memory): use --ple gpu
HostGetDevicePointer:1:1 69 of this machine's memory (some error): use --ple gpu
StreamSynchronize:3:700 69 the GPU: an upload: an illegal memory access was encountered
MemcpyAsync:1:1 69 the GPU: an upload:
StreamBeginCapture:1:901 69 the GPU: no graph begins:
StreamEndCapture:1:901 69 the GPU: no graph:
GraphInstantiateWithFlags:1:2 75 the GPU: no graph: out of memory
GraphLaunch:1:719 69 the GPU: a graph does not start:
FuncGetAttributes:2:98 69 the GPU: kernel embed:
LaunchKernelExC:3:98 69 the GPU: kernel
TABLE
    Q4_FAKE_MEMORY=2000000 run -75 --separate-stderr decode --model "$dir" < in
    [[ $stderr == *"of 0.00 GB are unused: take a smaller build"* ]]
    Q4_FAKE_CUDA=LaunchKernelExC:80:98 run -69 --separate-stderr decode --model "$dir" --bench --prompt 9 --gen 2
    [[ $stderr == *"the GPU: kernel "* ]]
}

# check-gpu itself, with the stand-in for the GPU: its programs, the kernels' tests in the shim, a compute-sanitizer that only runs what it is given.
on_stand_in() { # PARTS
    mkdir -p bin build/gpu with
    ln -sf "$BIN"/* bin/
    ln -sf "$BUILD"/fake/gpu-* bin/
    ln -sfn "$TOOLS" build/tools
    ln -sf "$BUILD/unit/cuda_attend" build/gpu/
    printf '%s\n' '#!/bin/bash' 'echo "$*" >>"$RAN"' 'while [[ $1 == --* ]]; do shift 2; done' '"$@"; rc=$?' 'echo "========= ERROR SUMMARY: 0 errors"' 'exit $rc' > with/compute-sanitizer
    chmod +x with/compute-sanitizer
    RAN=$PWD/ran PATH=$PWD/with:$PATH Q4BIN=$PWD/bin Q4BUILD=$PWD/build Q4GPU_TOKENS=9 Q4GPU_BUILD=${build:-emb4} Q4GPU_SIZES=${sizes:-e2b:nano 26b:nano} "$ROOT/tests/check-gpu" "$1"
}

@test "check-gpu runs its parts where a GPU is, says what failed and what does not fit, and skips where there is none" {
    on_stand_in 'kernels|sanitizer|speed' > out
    grep -q '^GPU: Fake GPU' out
    grep -A3 '^== kernels' out | grep -q '^-- cuda_attend'
    [ "$(grep -c -- '--error-exitcode 99' ran)" = 12 ]
    [ "$(grep -c '^[a-z]*check, .*-nano: ========= ERROR SUMMARY: 0 errors' out)" = 12 ]
    grep -E '^e2b:nano emb4: [0-9.]+ tokens/s' out
    [ "$(grep -c '^    qkv: ' out)" = 2 ]
    if grep -E 'FAILED|skipped|fake CUDA' out; then false; fi
    build=fp8 on_stand_in speed > out
    grep -E '^26b:nano fp8: [0-9.]+ tokens/s' out
    sizes="e2b e2b:nano" Q4_FAKE_MEMORY=9000000 run -0 on_stand_in speed
    [[ $output == *"skipped: speed of e2b emb4: gpu-decode: "*" GB"*"e2b:nano emb4: "*" tokens/s"* ]]
    Q4_FAKE_CUDA=GraphLaunch:1:719 run -1 on_stand_in speed         # it is there, and does not work
    [[ $output == *"FAILED: gpu-decode does not run"* ]]
    Q4_FAKE_GPUS=0 run -0 on_stand_in speed
    [ "$output" = "skipped: speed: no GPU is here (the driver lists none): use --device cpu" ]
}

teardown() { [ -z "${SERVER:-}" ] || kill "$SERVER" 2> kill.err || true; }

@test "gpu-serve says 503 to /ping and to whoever asks once the GPU is lost, and writes why into its log" {
    Q4_FAKE_CUDA=GraphLaunch:3:719 "$BUILD/fake/gpu-serve" --model "$(golden gemma3-nano)" --port 0 --device cuda --max-context 512 > url 2> log 3>&- < /dev/null &
    SERVER=$!
    for _ in $(seq 600); do [ -s url ] && break; sleep 0.05; done
    status() { curl -s -o answer -w '%{http_code}' "$(cat url)$1" "${@:2}"; }
    ask=(/v1/completions -H 'Content-Type: application/json' -d '{"prompt": [2, 5], "max_tokens": 8, "ignore_eos": true}')
    [ "$(status /ping)" = 200 ]
    [ "$(status "${ask[@]}")" = 500 ]
    [ "$(status /ping)" = 503 ]
    [ "$(status /health)" = 503 ]
    [ "$(status "${ask[@]}")" = 503 ]
    holds '.error.message | startswith("the GPU: ")' answer
    grep -q 'Engine step failed: the GPU: a graph does not start' log
}
