# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # what tests/bench/run and lib.bash set
# What a signed call to an endpoint costs in the client: 1,000 of them, one at a time on a kept connection, against a server that answers at once.
# Ours is the median time from one request's leaving to the next one's, by sm-invoke's own lines, so that signing, reading the answer and writing the line all count; a bare
# kept connection (tests/tools/kept-connection.c) makes the same calls in turn with it.
invoke_call() { jq -sc 'map(.sent_ms) | {call: ([.[1:], .[:-1]] | transpose | map(.[0] - .[1]) | sort | .[length / 2 | floor])}' "$1"; }      # FILE

boto3_call() {          # URL: ms of one call, the median of 300
    "$root/build/peers/light/bin/python3" - "$1" <<'END'
import boto3, json, statistics, sys, time
from botocore.config import Config
c = boto3.client("sagemaker-runtime", region_name="us-east-1", endpoint_url=sys.argv[1], aws_access_key_id="AKIDEXAMPLE", aws_secret_access_key="x",
                 config=Config(retries={"total_max_attempts": 1}))
body, took = json.dumps({"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 16}), []
for _ in range(300):
    t = time.perf_counter()
    c.invoke_endpoint(EndpointName="q4", ContentType="application/json", Body=body)["Body"].read()
    took.append((time.perf_counter() - t) * 1e3)
print(statistics.median(took))
END
}

if wanted invoke-cost || wanted invoke-boto3; then
    coproc server { exec invoke-stub; }
    read -r url <&"${server[0]}"
    body='{"messages":[{"role":"user","content":"Why is the sky blue?"}],"max_tokens":16}'
    for ((i = 0; i < 1000; i++)); do echo "$body"; done >calls.jsonl
    for ((i = 0; i < runs; i++)); do
        kept-connection "${url##*:}" /endpoints/q4/invocations 1000 <<<"$body" | jq -c '{call: .}' >>cost/kept.jsonl || fail "invoke-cost: kept-connection failed"
        env -u AWS_PROFILE AWS_ENDPOINT_URL="$url" AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=x AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null \
            sm-invoke --endpoint q4@us-east-1 --warmup 5 <calls.jsonl >lines.jsonl || fail "invoke-cost: sm-invoke failed"
        invoke_call lines.jsonl >>cost/invoke.jsonl
    done
    call=$(median .call cost/invoke.jsonl) kept=$(median .call cost/kept.jsonl)
    record --arg id invoke-cost --arg what "a signed sm-invoke call beyond a bare kept connection's" --argjson call "$call" --argjson kept "$kept" --argjson gate 0.1 --argjson aim 0.05 \
        --argjson runs "$runs" --arg load "$(load)" "$verdict"'
        ($call - $kept) as $v | {id: $id, what: "\($what) \($kept | three) ms", value: ($v | three), unit: "ms", gate: $gate, aim: $aim, verdict: verdict($v; -1), runs: $runs, load: $load}'
    if "$root/build/peers/light/bin/python3" -c 'import boto3' 2>/dev/null; then
        record --arg id invoke-boto3 --arg what "a signed call by boto3 against one by sm-invoke" --argjson call "$call" --argjson peer "$(boto3_call "$url")" --argjson gate 5 --argjson aim null \
            --argjson runs "$runs" --arg load "$(load)" "$verdict"'
            ($peer / $call) as $v | {id: $id, what: "\($what): \($peer | three) and \($call | three) ms", value: ($v | two), unit: "x", gate: $gate, aim: $aim, verdict: verdict($v; 1), runs: $runs,
            load: $load}'
    else
        no_peer invoke-boto3 "a signed call by boto3 against one by sm-invoke" "boto3 is not installed: make peers"
    fi
    kill "$server_PID"
    wait "$server_PID" 2>/dev/null
    rm -f calls.jsonl lines.jsonl
fi
