#!/usr/bin/env bats
# sm-invoke --endpoint against sm-local: streams that break in every way, refusals, what is tried again and what is not; publish and the target sagemaker.
load lib
load cloud

# sm-local with an endpoint `one` in service.
serve_one() {   # OPTION…
    serve "$@"
    up one >/dev/null 2>&1
}

chat() { printf '{"id":%s,"messages":[{"role":"user","content":"hi"}],"max_tokens":%s,"temperature":0}\n' "$1" "${2:-8}"; }

@test "plain and streamed give the same text as the endpoint's model; connections are kept" {
    serve_one
    for i in 1 2 3 4; do chat "$i"; done >in
    sm-invoke --endpoint one <in >plain
    sm-invoke --endpoint one --stream --concurrency 4 --warmup 4 <in >streamed
    diff <(jq -c '[.id, .text, .completion_tokens]' plain) <(jq -c '[.id, .text, .completion_tokens]' streamed)
    jq -s -e 'all(.[]; .retries == 0 and .status == 200) and ([.[1:][].connect_ms] | max) == 0' plain
    jq -s -e 'all(.[]; .connect_ms == 0)' streamed
    gpu-decode --model "$(model e2b)" --device cpu --math exact <in | jq -r .text | diff - <(jq -r .text plain)
}

@test "streams that break: the connection, an exception frame, a checksum; 65 or 69, never half an answer taken for whole" {
    local fault code
    for fault in cut-stream:69 stream-error:69 bad-crc:65; do
        code=${fault#*:}
        serve_one --fault "${fault%:*}"
        chat 1 40 | run -"$code" --separate-stderr sm-invoke --endpoint one --stream
        holds '(.error | length) > 0 and (has("text") | not)' <<<"$output"
        kill "$LOCAL"; wait "$LOCAL" || true; rm -rf url state
    done
}

@test "not ready and unavailable are tried again and counted; the container's own errors are not" {
    local fault
    for fault in not-ready unavailable; do
        serve_one --fault "$fault"
        chat 1 | sm-invoke --endpoint one | holds '.status == 200 and .retries == 1'
        kill "$LOCAL"; wait "$LOCAL" || true; rm -rf url state
    done
    serve_one --fault model-error
    chat 1 | run -69 --separate-stderr sm-invoke --endpoint one
    holds '.status == 424 and .retries == 0 and (.error | test("the container answers 500"))' <<<"$output"
    kill "$LOCAL"; wait "$LOCAL" || true; rm -rf url state
    serve_one --fault timeout
    chat 1 | run -75 --separate-stderr sm-invoke --endpoint one
    holds '.status == 424' <<<"$output"
}

# Eight requests at once: all are answered, each was sent twice at most, one at least.
all_at_once() { # FAULT
    local i good=0
    serve_one --fault "$1"
    for i in 1 2 3 4 5 6 7 8; do chat "$i"; done | sm-invoke --endpoint one --rate 100000 >answers || true
    jq -s -e 'length == 8 and all(.[]; .status == 200 and .retries <= 1) and any(.[]; .retries == 1)' answers >/dev/null || good=1
    kill "$LOCAL"; wait "$LOCAL" || true; rm -rf url state
    return "$good"
}

@test "a clock that is off, and credentials that the account calls expired, meet all requests under way: each is sent once more" {
    local i
    all_at_once skew
    for i in 1 2 3 4 5; do          # a second sending that overtakes a first one takes its refusal
        if all_at_once expired-token:8,InvokeEndpoint; then return; fi
    done
    jq -c '[.id, .error]' answers
    false
}

@test "no such endpoint 69, wrong secret 77, bad names 64, a request that the container refuses 65" {
    serve_one
    chat 1 | run -69 sm-invoke --endpoint nobody
    chat 1 | AWS_SECRET_ACCESS_KEY=wrong run -77 sm-invoke --endpoint one
    run -64 sm-invoke --endpoint 'a/b'
    run -64 sm-invoke --endpoint one@nowhere
    run -64 sm-invoke --endpoint one --url http://127.0.0.1:9
    run -64 sm-invoke --endpoint one --poisson
    echo '{"id":1,"messages":"none","max_tokens":2}' | run -65 sm-invoke --endpoint one
}

@test "a plain call that would pass 60 s is refused by estimate; a stream is not" {
    serve_one
    chat 1 2000 | run -65 --separate-stderr sm-invoke --endpoint one
    holds '.error | test("2000 tokens would take about 80 s.*--stream")' <<<"$output"
    chat 1 2000 | sm-invoke --endpoint one --tokens-per-second 1000 | holds '.status == 200'
}

@test "Poisson arrivals follow from the seed" {
    serve_one
    for i in 1 2 3 4 5 6; do chat "$i" 1; done >in
    sm-invoke --endpoint one --rate 50 --poisson --seed 7 <in | jq .scheduled_ms >a
    sm-invoke --endpoint one --rate 50 --poisson --seed 7 <in | jq .scheduled_ms >b
    sm-invoke --endpoint one --rate 50 --poisson --seed 8 <in | jq .scheduled_ms >c
    diff a b
    ! diff a c >/dev/null || false
}

@test "publish: only a build with a recorded pass whose files are its manifest's; the target sagemaker serves it and takes it down" {
    serve_one
    "$ROOT/pipelines/text" "$(model e2b)" build >/dev/null
    run -1 "$ROOT/pipelines/publish" build s3://models/x
    [[ $output = *"no recorded pass"* ]]
    ct-check build --against "$(model e2b)" >/dev/null
    "$ROOT/pipelines/publish" build s3://models/x/
    same_bytes build/MANIFEST.sha256 state/s3/models/x/MANIFEST.sha256
    echo >>build/config.json
    run -65 "$ROOT/pipelines/publish" build s3://models/x/
    truncate -s -1 build/config.json
    run -64 "$ROOT/pipelines/publish" build models/x
    run -66 "$ROOT/pipelines/publish" nowhere s3://models/x
    export OUT=$PWD/out Q4STATE=$PWD/target
    run -64 "$ROOT/pipelines/targets/sagemaker" up build
    export ROLE PUBLISH=s3://models/p REGION=us-east-1 SCHEDULE_ROLE=arn:aws:iam::123456789012:role/clock
    timeout 60 "$ROOT/pipelines/targets/sagemaker" up build 3>&-
    [[ $("$ROOT/pipelines/targets/sagemaker" url) = q4-build-*@us-east-1 ]]
    "$ROOT/pipelines/targets/sagemaker" facts | holds '.machine.instance == "ml.g6.xlarge" and .machine.usd_per_hour == 1.1267 and .engine.starts == 1 and .engine.name == "gpu-serve"'
    jq -c '[.regions[].schedule[]]' state/state.json | grep -F '"arn:aws:iam::123456789012:role/clock"'
    "$ROOT/pipelines/targets/sagemaker" down
    sm-endpoint list | grep -v '^one@' | wc -l | grep -qx 0
    holds '.seconds >= 0 and .usd >= 0' out/meter.jsonl
}
