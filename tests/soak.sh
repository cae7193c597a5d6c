#!/bin/bash
# Many streams for a long time: does gpu-serve leak, starve anybody, or answer otherwise than gpu-decode?
#
#     tests/soak.sh [SECONDS] [MODEL_DIR]     default 600 s of 16 streams on a nano E2B, with 200 idle connections and clients that leave in the middle beside them
#
# Says every 10 s what the server holds.  Exits 1 when its resident memory grew by more than 4 MiB after the first fifth of the time (a sequence's K/V is given back, so
# nothing may grow), when an answer differs from gpu-decode's, when a request failed, when a stream waited for its first token ten times as long as those around it (the median
# of the 16 sent before it, itself and the 16 after: when 16 come at once, or the machine stands still, all of them wait), or when more than 16 that came later had theirs earlier.
set -euo pipefail
export LC_ALL=C.UTF-8

root=$(realpath "$(dirname "$0")/..")
export PATH=${Q4BIN:-$root/bin}:$PATH
seconds=${1:-600} round=640
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

model=${2:-$work/model}
[ $# -ge 2 ] || st-synth --size e2b -q -o "$model"
jq -nc --argjson n $round 'range($n) | {id: ., prompt_ids: [2, range(8 + . % 40) | 5 + . % 200], max_tokens: (16 + . % 48), ignore_eos: true}' >"$work/requests"
gpu-decode --device cpu -q --model "$model" <"$work/requests" | jq -c '[.id, .text, .completion_tokens]' >"$work/expected"

gpu-serve --device cpu --model "$model" --port 0 >"$work/url" 2>"$work/log" &
server=$!
until [ -s "$work/url" ]; do kill -0 $server; sleep 0.1; done
url=$(cat "$work/url")
port=${url##*:}
# shellcheck disable=SC2034 # held open, never used
for ((i = 0; i < 200; i++)); do exec {idle}<>"/dev/tcp/127.0.0.1/$port"; done

leaving() {             # clients that go away in the middle of a stream
    while :; do
        curl -sN --max-time "0.$((RANDOM % 9 + 1))" -H 'Content-Type: application/json' -d '{"prompt": "x", "max_tokens": 400, "stream": true, "ignore_eos": true}' "$url/v1/completions" >/dev/null || true
    done
}
leaving &

rss() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$server/status"; }

start=$SECONDS rounds=0 warm=0 last=0 said=0
while [ $((SECONDS - start)) -lt "$seconds" ]; do
    sm-invoke --url "$url" --stream --concurrency 16 <"$work/requests" >"$work/lines" || { echo "soak: a request failed" >&2; exit 1; }
    jq -c '[.id, .text, .completion_tokens]' "$work/lines" | cmp - "$work/expected" || { echo "soak: an answer differs from gpu-decode's" >&2; exit 1; }
    jq -c .ttft_ms "$work/lines" >>"$work/ttft"
    jq -s 'sort_by(.sent_ms) | [.[] | {sent: .sent_ms, first: (.sent_ms + .ttft_ms), wait: .ttft_ms}] as $all | [range($all | length) as $i | $all[$i] as $one
        | $all[([0, $i - 16] | max):$i + 17] as $near | {overtaken: ([$all[$i + 1:$i + 200][] | select(.first < $one.first)] | length), times: ($one.wait / ([$near[].wait] | sort | .[length / 2 | floor]))}]
        | {overtaken: (map(.overtaken) | max), times: (map(.times) | max)}' "$work/lines" >>"$work/waits"
    rounds=$((rounds + 1)) last=$(rss)
    if [ "$warm" = 0 ] || [ $((SECONDS - start)) -le $((seconds / 5)) ]; then warm=$last; fi
    if [ $((SECONDS - start)) -ge $((said + 10)) ]; then
        said=$((SECONDS - start))
        echo "soak: $said s: $((rounds * round)) answers as expected, $last KiB resident"
    fi
done
jq -s --argjson warm "$warm" --argjson last "$last" --argjson answers $((rounds * round)) --slurpfile waits "$work/waits" 'sort | {answers: $answers,
    rss_kib_after_a_fifth: $warm, rss_kib_at_the_end: $last, overtaken_at_most: ($waits | map(.overtaken) | max), times_its_neighbours_wait_at_most: ($waits | map(.times) | max), ttft_ms: {median: .[length / 2 | floor], p99: .[length * 0.99 | floor], most: .[-1]}}' "$work/ttft" | tee "$work/summary"
kill -TERM $server
rc=0
wait $server || rc=$?
[ "$rc" = 0 ] || { echo "soak: the server ended with $rc" >&2; exit 1; }
[ "$last" -le $((warm + 4096)) ] || { echo "soak: the server grew by $((last - warm)) KiB" >&2; exit 1; }
jq -e '.overtaken_at_most <= 16' "$work/summary" >/dev/null || { echo "soak: a stream was starved: too many went before it" >&2; exit 1; }
jq -e '.times_its_neighbours_wait_at_most < 10' "$work/summary" >/dev/null || { echo "soak: a stream was starved: it waited ten times as long as those around it" >&2; exit 1; }
