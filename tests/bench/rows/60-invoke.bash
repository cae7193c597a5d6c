# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # what tests/bench/run and lib.bash set
# What a signed call to an endpoint costs in the client alone: 1,000 of them, one at a time on a kept connection, against a server that answers at once.
# Medians: `call` is from one request's leaving to the next one's, `wire` the part from handing a request over to its answer's last byte: what is between is ours.
invoke_lines() {        # FILE: {"call", "wire"} in ms from sm-invoke's own lines
    jq -sc 'map(.e2e_ms) as $e | {call: ([.[1:], .[:-1] | map(.sent_ms)] | transpose | map(.[0] - .[1]) | sort | .[length / 2 | floor]), wire: ($e | sort | .[length / 2 | floor])}' "$1"
}

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

if wanted invoke-cost; then
    coproc server { exec invoke-stub; }
    read -r url <&"${server[0]}"
    for ((i = 0; i < 1000; i++)); do echo '{"messages":[{"role":"user","content":"Why is the sky blue?"}],"max_tokens":16}'; done >calls.jsonl
    for ((i = 0; i < runs; i++)); do
        env -u AWS_PROFILE AWS_ENDPOINT_URL="$url" AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=x AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null \
            sm-invoke --endpoint q4@us-east-1 --warmup 5 <calls.jsonl >lines.jsonl || fail "invoke-cost: sm-invoke failed"
        invoke_lines lines.jsonl
    done >cost/invoke.jsonl
    peer=null
    if "$root/build/peers/light/bin/python3" -c 'import boto3' 2>/dev/null; then peer=$(boto3_call "$url"); fi
    record --arg id invoke-cost --arg what "a signed sm-invoke call beyond its kept connection" --argjson call "$(median .call cost/invoke.jsonl)" \
        --argjson wire "$(median .wire cost/invoke.jsonl)" --argjson peer "$peer" --argjson gate 0.1 --arg load "$(load)" --argjson aim 0.05 --argjson runs "$runs" "$verdict"'
        ($call - $wire) as $v | {id: $id, what: ($what + (if $peer then ", boto3 \($peer | two) ms a call, ours \($call | two)" else "" end)), value: ($v | three), unit: "ms", gate: $gate,
        aim: $aim, verdict: verdict($v; -1), runs: $runs, load: $load}'
    kill "$server_PID"
    wait "$server_PID" 2>/dev/null
    rm -f calls.jsonl lines.jsonl
fi
