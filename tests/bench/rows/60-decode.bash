# shellcheck shell=bash disable=SC2016,SC2154 # jq's variables; what tests/bench/run and lib.bash set
# gpu-decode on the CPU: builds of Gemma 3 270M (tests/peers/gemma3-270m.sh makes the checkpoint), and E2B's true shapes; the weights that decoding reads against a plain
# read of the same memory by the same threads, a read for every four tokens (gpu-decode --bench).
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
    record --arg id "$id" --arg what "$2" --argjson gate "$3" --argjson aim "$4" --arg load "$(load)" --argjson runs "$runs" --argjson v "$(median "$5" "$f")" \
        --argjson p "$(median "$7" "${6:-$f}")" "$verdict"'
        {id: $id, what: "\($what): \($v | two) against \($p | two) tokens/s", value: ($v / $p | two), unit: "x", gate: $gate, aim: $aim, verdict: verdict($v / $p; 1), runs: $runs, load: $load}'
}

if wanted decode-270m || wanted decode-bf16 || wanted decode-int8 || wanted decode-fp8 || wanted batch || wanted prefill || wanted start; then
    if [ ! -e "$real/model.safetensors" ]; then
        no_peer decode-270m "decoding Gemma 3 270M" "no checkpoint: tests/peers/gemma3-270m.sh makes it"
    else
        for build in emb4 int8emb4 fp8emb4; do "$root/pipelines/$build" --scale-dtype f16 "$real" "$work/270m-$build" 2>/dev/null || fail "cannot make the build $build"; done
        share decode-270m-1 "decode 270M emb4, one thread" 0.8 0.9 --model "$work/270m-emb4" -j 1
        share decode-270m-2 "decode 270M emb4, two threads" 0.75 0.85 --model "$work/270m-emb4" -j 2
        share decode-bf16 "decode 270M bf16, one thread" 0.75 0.85 --model "$real" -j 1
        share decode-int8 "decode 270M int8emb4, one thread" 0.75 0.85 --model "$work/270m-int8emb4" -j 1
        share decode-fp8 "decode 270M fp8emb4, one thread" 0.75 0.85 --model "$work/270m-fp8emb4" -j 1
        if wanted batch; then speed batch-1 --model "$work/270m-emb4" -j 2; fi
        times batch-4 "batch of 4, 270M, two threads, against one stream" 1.8 2.5 .decode_tokens_per_s "$work/cost/batch-1.bench" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --batch 4
        times batch-16 "batch of 16, 270M, two threads, against one stream" 4 6 .decode_tokens_per_s "$work/cost/batch-1.bench" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --batch 16
        times prefill "prefill of 512, 270M, two threads, against decoding after it" 6 12 .prefill_tokens_per_s "" .decode_tokens_per_s --model "$work/270m-emb4" -j 2 --prompt 512
        seconds start "start to first token, 270M emb4, warm cache" 0.6 0.35 "echo '{\"prompt\": \"The\", \"max_tokens\": 1}' | gpu-decode --device cpu --model $work/270m-emb4"
        rm -rf "$work"/270m-*
    fi
fi

if wanted decode-e2b; then
    st-synth --size e2b --scale full -o - | st-extract --text-only - | q4-regrid --only linears,ple,embed --scale-dtype f16 | emb-untie | ct-pack -o "$work/e2b" || fail "cannot make E2B in $work"
    share decode-e2b-1 "decode E2B emb4 at true shapes, one thread" 0.8 0.9 --model "$work/e2b" -j 1 --gen 16 --prompt 16
    share decode-e2b-2 "decode E2B emb4 at true shapes, two threads" 0.75 0.85 --model "$work/e2b" -j 2 --gen 16 --prompt 16
    rm -rf "$work/e2b"
fi
