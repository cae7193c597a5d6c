# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # jq's variables; what tests/bench/run and lib.bash set
# gpu-serve on Gemma 3 270M emb4, two threads, with sm-invoke as the client: its total rate against gpu-decode's own batches, what HTTP and the queue add to the first
# token, and how steady a running stream stays while a prompt of 4,000 tokens comes in.
serve_requests() {      # NUMBER PROMPT_TOKENS MAX_TOKENS FIRST: no two prompts begin alike
    jq -nc --argjson n "$1" --argjson prompt "$2" --argjson tokens "$3" --argjson first "$4" \
        'range($n) | . as $i | {id: $i, prompt_ids: [2, range($prompt - 1) | 300 + (. * 37 + ($first + $i) * 101) % 700], max_tokens: $tokens, temperature: 0, ignore_eos: true}'
}

served() {              # CONCURRENCY: tokens a second of all streams
    serve_requests "$1" 16 256 "$RANDOM" | sm-invoke --url "$url" --concurrency "$1" |
        jq -s '(map(.completion_tokens) | add) / ((map(.sent_ms + .e2e_ms) | max) - (map(.sent_ms) | min)) * 1000'
}

serve_row() {           # ID "WHAT" UNIT GATE AIM VALUE SIGN
    record --arg id "$1" --arg what "$2" --arg unit "$3" --argjson gate "$4" --argjson aim "$5" --argjson v "$6" --argjson sign "$7" --arg load "$(load)" --argjson runs "$runs" \
        "$verdict"'{id: $id, what: $what, value: ($v | three), unit: $unit, gate: $gate, aim: $aim, verdict: verdict($v; $sign), runs: $runs, load: $load}'
}

serve_rate() {          # CONCURRENCY
    local i
    wanted "serve-$1" || return 0
    for ((i = 0; i < runs; i++)); do
        gpu-decode --device cpu -q --bench --model "$work/270m" -j 2 --batch "$1" --prompt 16 --gen 256 2>/dev/null >>"$work/cost/alone-$1" || fail "serve-$1: gpu-decode --bench failed"
        served "$1" >>"$work/cost/served-$1" || fail "serve-$1: a request failed"
    done
    local alone ours
    alone=$(median .decode_tokens_per_s "$work/cost/alone-$1") ours=$(median . "$work/cost/served-$1")
    serve_row "serve-$1" "$1 clients against gpu-decode's batch of $1: $(jq -n "$ours | round") and $(jq -n "$alone | round") tokens/s" x 0.9 1 "$(jq -n "$ours / $alone")" 1
}

# Each prefill is taken right after the requests that it is compared with: over a minute the machine moves by more than the difference.
serve_ttft() {
    wanted serve-ttft || return 0
    : >"$work/cost/first"
    for _ in 1 2 3 4 5 6 7; do
        serve_requests 8 16 2 "$RANDOM" | sm-invoke --url "$url" --stream --concurrency 1 >"$work/ttft" || fail "serve-ttft: a request failed"
        gpu-decode --device cpu -q --bench --model "$work/270m" -j 2 --prompt 16 --gen 2 2>/dev/null |
            jq -c --argjson ttft "$(median .ttft_ms "$work/ttft")" '{beyond: ($ttft - 16000 / .prefill_tokens_per_s)}' >>"$work/cost/first"
    done
    serve_row serve-ttft "time to first token beyond gpu-decode's prefill of the same 16 tokens" ms 2 0.5 "$(median .beyond "$work/cost/first")" -1
}

serve_pace() {
    wanted serve-pace || return 0
    serve_requests 1 16 "$((300 + 100 * runs))" "$RANDOM" | sm-invoke --url "$url" --stream --concurrency 1 >"$work/paced" &
    sleep 1
    serve_requests 1 4000 1 "$RANDOM" | sm-invoke --url "$url" --concurrency 1 >"$work/long" || fail "serve-pace: the long prompt failed"
    wait $! || fail "serve-pace: the stream failed"
    # Both clocks count from their own start, a second apart, so the gaps of the whole stream are taken: most of it ran beside the prompt.
    serve_row serve-pace "gaps between the tokens of a stream while a prompt of 4,000 tokens comes in ($(jq '.e2e_ms / 1000 | round' "$work/long") s): 99th percentile over the median" x 3 2 \
        "$(jq '[.chunk_ms[1:], .chunk_ms[:-1]] | transpose | map(.[0] - .[1]) | sort | .[length * 0.99 | floor] / .[length / 2 | floor]' "$work/paced")" -1
}

if wanted serve-4 || wanted serve-16 || wanted serve-ttft || wanted serve-pace; then
    if [ ! -e "$real/model.safetensors" ]; then
        no_peer serve "serving Gemma 3 270M" "no checkpoint: tests/peers/gemma3-270m.sh makes it"
    else
        "$root/pipelines/emb4" --scale-dtype f16 "$real" "$work/270m" 2>/dev/null || fail "cannot make the build emb4"
        coproc serving { exec gpu-serve --device cpu --model "$work/270m" -j 2 --port 0 2>"$work/serve.log"; }
        read -r url <&"${serving[0]}"
        served 4 >/dev/null
        serve_rate 4
        serve_rate 16
        serve_ttft
        serve_pace
        kill "$serving_PID"
        wait "$serving_PID" 2>/dev/null
        rm -rf "$work/270m"
    fi
fi
