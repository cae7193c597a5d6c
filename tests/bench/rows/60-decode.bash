# shellcheck shell=bash disable=SC2016,SC2154 # jq's variables; what tests/bench/run and lib.bash set
# gpu-decode on the CPU: builds of Gemma 3 270M (tests/peers/gemma3-270m.sh makes the checkpoint), and E2B's true shapes; the weights that decoding reads against a plain
# read of the same memory by the same threads, a read for every four tokens (gpu-decode --bench), after a prompt of 16: K/V is no weights.
real=${Q4_GEMMA3_270M:-$root/build/gemma-3-270m}

speed() {       # ID OPTION…: $runs measurements, one a line, in a file
    local id=$1 i
    shift
    for ((i = 0; i < runs; i++)); do gpu-decode --device cpu -q --bench "$@" 2>/dev/null || fail "$id: gpu-decode --bench failed"; done >"$work/cost/$id.bench"
}

share() {       # ID "WHAT" GATE AIM OPTION…
    local id=$1 f=$work/cost/$1.bench
    wanted "$id" || return 0
    speed "$id" "${@:5}"
    record --arg id "$id" --arg what "$2, $(jq -s 'map(.decode_tokens_per_s) | sort | .[length / 2 | floor] | . * 10 | round / 10' "$f") tokens/s" --argjson gate "$3" --argjson aim "$4" \
        --arg load "$(load)" --argjson runs "$runs" --argjson v "$(median .weights_gb_per_s "$f")" --argjson p "$(median .read_gb_per_s "$f")" \
        --argjson share "$(median .share_of_read "$f")" "$verdict"'
        {id: $id, what: $what, value: ($v | three), unit: "GB/s", peer: "a plain read", peer_value: ($p | three), ratio: ($share | two), gate: $gate, aim: $aim,
        verdict: verdict($share; 1), runs: $runs, load: $load}'
}

times() {       # ID "WHAT" GATE AIM JQ PEER_FILE JQ_OF_PEER OPTION…: how many times the peer's figure
    local id=$1 f=$work/cost/$1.bench
    wanted "$id" || return 0
    speed "$id" "${@:8}"
    versus "$id" "$2" "$3" "$4" "$5" "$f" "$7" "${6:-$f}"
}

versus() {      # ID "WHAT" GATE AIM JQ FILE JQ_OF_PEER PEER_FILE
    record --arg id "$1" --arg what "$2" --argjson gate "$3" --argjson aim "$4" --arg load "$(load)" --argjson runs "$runs" --argjson v "$(median "$5" "$6")" \
        --argjson p "$(median "$7" "$8")" "$verdict"'
        {id: $id, what: "\($what): \($v | two) against \($p | two) tokens/s", value: ($v / $p | two), unit: "x", gate: $gate, aim: $aim, verdict: verdict($v / $p; 1), runs: $runs, load: $load}'
}

# llama.cpp on the same levels and steps (tests/peers/build_gguf.py), whole tokens, in turn with ours.
llama=${Q4_LLAMA_PYTHON:-$root/build/peers/llama/bin/python3}

has_llama() { "$llama" -c 'import gguf, llama_cpp' 2>/dev/null; }

against_llama() {       # ID "WHAT" GATE AIM JQ THREADS GGUF BUILD OPTION… (of both)
    local id=$1 what=$2 gate=$3 aim=$4 jq=$5 threads=$6 gguf=$7 build=$8 i
    wanted "$id" || return 0
    shift 8
    for ((i = 0; i < runs; i++)); do
        "$llama" "$root/tests/peers/llama_bench.py" "$gguf" --threads "$threads" "$@" 2>/dev/null || fail "$id: llama_bench.py failed"
        gpu-decode --device cpu -q --bench --model "$build" -j "$threads" "$@" 2>/dev/null >&3 || fail "$id: gpu-decode --bench failed"
    done >"$work/cost/$id.llama" 3>"$work/cost/$id.bench"
    versus "$id" "$what against llama.cpp" "$gate" "$aim" "$jq" "$work/cost/$id.bench" "$jq" "$work/cost/$id.llama"
}

if wanted decode-270m || wanted decode-bf16 || wanted decode-int8 || wanted decode-fp8 || wanted batch || wanted prefill || wanted start || wanted llama; then
    if [ ! -e "$real/model.safetensors" ]; then
        no_peer decode-270m "decoding Gemma 3 270M" "no checkpoint: tests/peers/gemma3-270m.sh makes it"
    else
        for build in emb4 int8emb4 fp8emb4; do "$root/pipelines/$build" --scale-dtype f16 "$real" "$work/270m-$build" 2>/dev/null || fail "cannot make the build $build"; done
        share decode-270m-1 "decode 270M emb4, one thread" 0.8 0.9 --model "$work/270m-emb4" -j 1 --prompt 16
        share decode-270m-2 "decode 270M emb4, two threads" 0.75 0.85 --model "$work/270m-emb4" -j 2 --prompt 16
        share decode-bf16 "decode 270M bf16, one thread" 0.75 0.85 --model "$real" -j 1 --prompt 16
        share decode-int8 "decode 270M int8emb4, one thread" 0.75 0.85 --model "$work/270m-int8emb4" -j 1 --prompt 16
        share decode-fp8 "decode 270M fp8emb4, one thread" 0.75 0.85 --model "$work/270m-fp8emb4" -j 1 --prompt 16
        if wanted batch; then speed batch-1 --model "$work/270m-emb4" -j 2 --prompt 16; fi
        times batch-4 "batch of 4, 270M, two threads, against one stream" 1.8 2.5 .decode_tokens_per_s "$work/cost/batch-1.bench" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --prompt 16 --batch 4
        times batch-16 "batch of 16, 270M, two threads, against one stream" 4 6 .decode_tokens_per_s "$work/cost/batch-1.bench" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --prompt 16 --batch 16
        times prefill "prefill of 512, 270M, two threads, against decoding after it" 6 12 .prefill_tokens_per_s "" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --prompt 512
        seconds start "start to first token, 270M emb4, warm cache" 0.6 0.35 "echo '{\"prompt\": \"The\", \"max_tokens\": 1}' | gpu-decode --device cpu --model $work/270m-emb4"
        if wanted llama && ! has_llama; then
            no_peer llama "270M against llama.cpp" "llama-cpp-python is not installed: CMAKE_ARGS=-DGGML_NATIVE=ON tests/peers/venv.sh llama, or Q4_LLAMA_PYTHON=PYTHON"
        elif wanted llama; then
            "$llama" "$root/tests/peers/build_gguf.py" "$work/270m-emb4" "$work/270m.gguf" || fail "cannot make the GGUF"
            against_llama llama-1 "decode 270M, one thread" 1.4 1.7 .decode_tokens_per_s 1 "$work/270m.gguf" "$work/270m-emb4"
            against_llama llama-2 "decode 270M, two threads" 1.25 1.5 .decode_tokens_per_s 2 "$work/270m.gguf" "$work/270m-emb4"
            against_llama llama-prefill "prefill of 512, 270M, two threads" 0.7 1 .prefill_tokens_per_s 2 "$work/270m.gguf" "$work/270m-emb4" --prompt 512 --gen 8
        fi
        rm -rf "$work"/270m*
    fi
fi

if wanted decode-e2b || wanted decode-e2b-1 || wanted decode-e2b-2 || wanted decode-e2b-llama-1 || wanted decode-e2b-llama-2; then
    st-synth --size e2b --scale full -o - | st-extract --text-only - | q4-regrid --only linears,ple,embed --scale-dtype f16 | emb-untie | ct-pack -o "$work/e2b" || fail "cannot make E2B in $work"
    share decode-e2b-1 "decode E2B emb4 at true shapes, one thread" 0.8 0.9 --model "$work/e2b" -j 1 --gen 16 --prompt 16
    share decode-e2b-2 "decode E2B emb4 at true shapes, two threads" 0.75 0.85 --model "$work/e2b" -j 2 --gen 16 --prompt 16
    if has_llama; then          # a stand-in of E2B's size: this llama.cpp knows no Gemma 4
        "$llama" "$root/tests/peers/e2b_gguf.py" "$work/e2b.gguf" >&2 || fail "cannot make the stand-in for E2B"
        against_llama decode-e2b-llama-1 "decode E2B emb4, one thread" null 1.4 .decode_tokens_per_s 1 "$work/e2b.gguf" "$work/e2b" --gen 16 --prompt 16
        against_llama decode-e2b-llama-2 "decode E2B emb4, two threads" null 1.4 .decode_tokens_per_s 2 "$work/e2b.gguf" "$work/e2b" --gen 16 --prompt 16
    else
        no_peer decode-e2b-llama "E2B against llama.cpp" "llama-cpp-python is not installed: CMAKE_ARGS=-DGGML_NATIVE=ON tests/peers/venv.sh llama, or Q4_LLAMA_PYTHON=PYTHON"
    fi
    rm -rf "$work/e2b" "$work/e2b.gguf"
fi
