# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # what tests/bench/run and lib.bash set
# How true the streaming clock is: the median error of TTFT and TPOT against a server that logs when it wrote each token (tests/peers/openai_stub.py: 50 ms, then a token
# every 10 ms), at 1, 4 and 16 streams: sm-invoke's, in turn with a client that is nothing but threads and blocking sockets; and aiperf's, where it is installed.
clock_tokens=64

clock_aiperf() { local at=${Q4_AIPERF:-$root/build/peers/aiperf/bin}; [ -x "$at/aiperf" ] && echo "$at"; }         # the bin/ of its environment

# Appends to $at/ours.jsonl and $at/floor.jsonl, the same number of requests each.
clock_ours() {          # STREAMS REQUESTS
    local i
    for ((i = 0; i < 3; i++)); do
        socket-client "${url##*:}" "$1" "$2" "$clock_tokens" "floor$i" >>"$at/floor.jsonl" || fail "clock: socket-client failed"
        for ((k = 0; k < $2; k++)); do
            echo '{"model":"stub-model","messages":[{"role":"user","content":"why is the sky blue"}],"max_tokens":'$clock_tokens'}'
        done | sm-invoke --url "$url" --stream --concurrency "$1" --warmup "$1" >>"$at/ours.jsonl" || fail "clock: sm-invoke failed"
    done
}

clock_peer() {          # STREAMS REQUESTS
    local bin
    bin=$(clock_aiperf) || return 1
    if [ ! -d "$work/words" ]; then
        "$bin/python3" "$root/tests/peers/word_tokenizer.py" "$work/words" "${bin%/bin}"/lib/python3*/site-packages/aiperf/dataset/generator/assets/shakespeare.txt || return 1
    fi
    (cd "$at" && timeout 120 "$bin/aiperf" profile --model stub-model --url "$url" --endpoint-type chat --streaming --tokenizer "$work/words" --concurrency "$1" --request-count "$2" \
        --warmup-request-count $((2 * $1)) --isl 32 --osl "$clock_tokens" --use-server-token-count --no-server-metrics --no-gpu-telemetry --ui none --artifact-dir "$at/aiperf") \
        >"$at/aiperf.log" 2>&1 </dev/null && [ -s "$at/aiperf/profile_export.jsonl" ]
}

clock_row() {           # ID WHAT UNIT_VALUE PEER_VALUE PEER GATE AIM: a ratio, the smaller the better
    record --arg id "$1" --arg what "$2" --argjson value "$3" --argjson peer_value "$4" --arg peer "$5" --argjson gate "$6" --argjson aim "$7" --arg load "$(load)" "$verdict"'
        ($value / $peer_value) as $r | {id: $id, what: "\($what), \($peer) \($peer_value | three) ms, ours \($value | three) ms", value: ($r | three), unit: "x of the error", gate: $gate, aim: $aim,
        verdict: verdict($r; -1), load: $load}'
}

clock_median() {        # CLIENT.jsonl METRIC: the median error, its size
    python3 "$root/tests/peers/clock_error.py" "$at/stub.log" "$1" | jq --arg m "$2" 'select(.metric == $m) | .error_p50 | fabs | if . < 0.001 then 0.001 else . end'
}

clock_at() {            # STREAMS REQUESTS
    local at=$work/clock-$1 url metric floor_gate=null peer_gate=1 mine floor
    mkdir -p "$at"
    coproc stub { exec python3 "$root/tests/peers/openai_stub.py" --ttft 50 --itl 10 --log "$at/stub.log" 2>/dev/null; }
    read -r url <&"${stub[0]}"
    clock_ours "$1" "$2"
    clock_peer "$1" $((3 * $2)) || rm -rf "$at/aiperf"
    kill "$stub_PID"
    wait "$stub_PID" 2>/dev/null
    for metric in ttft tpot; do
        mine=$(clock_median "$at/ours.jsonl" "$metric") floor=$(clock_median "$at/floor.jsonl" "$metric")
        floor_gate=null
        if [ "$1" -eq 16 ]; then floor_gate=1.2; fi
        clock_row "clock-$metric-$1" "error of ${metric^^} at $1 streams" "$mine" "$floor" "blocking sockets" "$floor_gate" null
        peer_gate=1
        if [[ $metric-$1 = ttft-4 || $1 = 16 ]]; then peer_gate=0.2; fi
        if [ -d "$at/aiperf" ]; then
            clock_row "clock-$metric-$1-aiperf" "error of ${metric^^} at $1 streams" "$mine" "$(clock_median "$at/aiperf/profile_export.jsonl" "$metric")" aiperf "$peer_gate" null
        else
            no_peer "clock-$metric-$1-aiperf" "error of ${metric^^} at $1 streams" "aiperf is not installed: tests/peers/venv.sh aiperf"
        fi
    done
}

if wanted clock-1 || wanted clock-ttft-1; then clock_at 1 8; fi
if wanted clock-4 || wanted clock-ttft-4; then clock_at 4 16; fi
if wanted clock-16 || wanted clock-ttft-16; then clock_at 16 48; fi
