#!/usr/bin/env bats
# sm-invoke against a server that misbehaves on request (tests/tools/openai-stub.c): what is sent, what comes back, when, and with which exit code.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    "$TOOLS/openai-stub" > url 3>&- &
    STUB=$!
    until [ -s url ]; do sleep 0.01; done
    URL=$(cat url)
}

teardown() { kill "$STUB"; }

chat() {        # TEXT [EXTRA JSON FIELDS]
    printf '{"id":"%s","messages":[{"role":"user","content":"%s"}]%s}\n' "$1" "$1" "${2:+,$2}"
}

@test "a plain call: text, counts, times; no first token is known" {
    chat hello '"max_tokens":3' | sm-invoke --url "$URL" > out
    holds '.id == "hello" and .status == 200 and .text == "w0 w1 w2 " and .prompt_tokens == 7 and .completion_tokens == 3 and .finish_reason == "length"
        and .ttft_ms == null and .tpot_ms == null and .e2e_ms > 0 and .sent_ms >= .scheduled_ms and (.request_id | test("^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8000-0{11}1$")) and (has("error") | not)' out
    holds '.request == {"messages":[{"role":"user","content":"hello"}],"max_tokens":3}' out
}

@test "a stream: times of every chunk, tpot by the server's count, usage asked for" {
    chat hello '"max_tokens":5' | sm-invoke --url "$URL" --stream > out
    holds '.text == "w0 w1 w2 w3 w4 " and .completion_tokens == 5 and (.chunk_ms | length) == 5 and .ttft_ms == .chunk_ms[0] and .ttft_ms < .e2e_ms' out
    holds '((.chunk_ms[4] - .chunk_ms[0]) / 4 - .tpot_ms) | fabs < 0.002' out
    holds '.chunk_ms == (.chunk_ms | sort) and .chunk_ms[4] <= .e2e_ms' out
}

@test "one token has no time per token" {
    chat hello '"max_tokens":1' | sm-invoke --url "$URL" --stream | holds '.ttft_ms > 0 and .tpot_ms == null'
}

@test "a stream cut into single bytes, with comments, an empty role chunk and a second choice" {
    chat ODD '"max_tokens":3,"n":2' | sm-invoke --url "$URL" --stream > out
    holds '.text == "w0 w1 w2 " and .texts == ["w0 w1 w2 ", "xxx"] and (.chunk_ms | length) == 3' out
}

@test "the path follows from the body, and a base may end in /v1 or slashes" {
    printf '%s\n' '{"id":1,"messages":[{"role":"user","content":"ECHO"}]}' '{"id":2,"prompt":"ECHO"}' '{"id":3,"prompt_ids":[1,2],"user":"ECHO"}' > in
    for base in "$URL" "$URL/" "$URL/v1" "$URL/v1//"; do
        sm-invoke --url "$base" < in > out
        jq -c '.text | fromjson' out > bodies
        diff bodies - <<'END'
{"messages":[{"role":"user","content":"ECHO"}],"model":"stub-model"}
{"prompt":"ECHO","model":"stub-model"}
{"user":"ECHO","prompt":[1,2],"model":"stub-model"}
END
    done
}

@test "a body's own model and stream options are kept" {
    echo '{"id":1,"prompt":"ECHO","model":"mine","max_tokens":2}' | sm-invoke --url "$URL" | holds '.text | fromjson | .model == "mine" and (has("stream") | not)'
    echo '{"id":1,"prompt":"x","stream":true,"stream_options":{"include_usage":false},"max_tokens":2}' | sm-invoke --url "$URL" |
        holds '.completion_tokens == null and .tpot_ms == null and .ttft_ms > 0'
}

@test "answers come in input order, whatever finishes first; the id may be anything" {
    { echo '{"id":{"a":[1]},"prompt":"SLOW"}'; echo '{"id":null,"prompt":"x"}'; echo '{"prompt":"x"}'; echo '{"id":"é\u0000","prompt":"x"}'; } > in
    sm-invoke --url "$URL" --concurrency 4 < in > out
    [ "$(jq -c .id out | tr '\n' ' ')" = '{"a":[1]} null null "é\u0000" ' ]
    jq -se '.[0].e2e_ms >= 100 and .[1].sent_ms < 100' out
}

@test "closed loop: N at once, never more, on N kept connections" {
    for i in $(seq 24); do chat SLOW; done > in
    sm-invoke --url "$URL" --concurrency 4 < in > out
    [ "$(wc -l < out)" = 24 ]
    curl -s "$URL/stats" | holds '.at_once == 4 and .requests == 24 and .connections <= 6'      # 4, the model's list, this one
}

@test "open loop: requests leave on time, whatever is still running" {
    for i in $(seq 10); do chat SLOW; done > in
    sm-invoke --url "$URL" --rate 50 < in > out
    jq -se '[.[].scheduled_ms] as $t | [range(10) | ($t[.] - $t[0] - . * 20) | fabs] | max < 0.01' out
    jq -se 'map(.sent_ms - .scheduled_ms) | min >= 0' out
    curl -s "$URL/stats" | holds '.at_once > 2'
}

@test "lines that are no requests are answered, the others go on, 65" {
    printf '%s\n' '{"id":1,"prompt":"x"}' '{broken' '[1]' '{"id":4}' '{"id":5,"prompt":"x","messages":[]}' '{"id":6,"prompt":"x"}' > in
    run -65 --separate-stderr sm-invoke --url "$URL" < in
    [ "${#lines[@]}" = 6 ]
    printf '%s\n' "${lines[@]}" | jq -se 'map(has("error")) == [false, true, true, true, true, false] and .[3].id == 4 and .[1].id == null'
    [[ $stderr = "sm-invoke: 4 of 6 requests failed; the first: "*"line 2"* ]]
}

@test "refusals: status and message in the line, the exit code says whose fault it was" {
    for pair in 400:65 401:77 403:77 404:69 429:75 500:69 503:75; do
        run "-${pair#*:}" --separate-stderr sm-invoke --url "$URL" <<< "$(chat "STATUS:${pair%:*}")"
        holds ".status == ${pair%:*} and .error == \"told to fail\" and .ttft_ms == null and (has(\"text\") | not)" <<< "$output"
    done
}

@test "broken answers are errors: a stream that breaks off, an error inside it, a page" {
    run -69 --separate-stderr sm-invoke --url "$URL" --stream <<< "$(chat CUT)"
    holds '.error != null and .status == 200' <<< "$output"
    run -69 --separate-stderr sm-invoke --url "$URL" --stream <<< "$(chat LATE)"
    holds '.error == "fell over"' <<< "$output"
    run -69 --separate-stderr sm-invoke --url "$URL" <<< "$(chat LATIN)"
    holds '.error == "d?sol?"' <<< "$output"
    run -65 --separate-stderr sm-invoke --url "$URL" <<< "$(chat HTML)"
    holds '.error | test("not JSON")' <<< "$output"
}

@test "no server: every line says so, 69; no answer in time: 75" {
    run -69 --separate-stderr sm-invoke --url http://127.0.0.1:1 <<< "$(chat a; chat b)"
    [ "${#lines[@]}" = 2 ]
    holds '.status == null and (.error | test("connect"))' <<< "${lines[1]}"
    run -75 --separate-stderr sm-invoke --url "$URL" --timeout 1 <<< "$(chat HANG '"model":"m"')"
    holds '.error | test("[Tt]imed out")' <<< "$output"
}

@test "a kept connection that ends without an answer is an error: what may have run is not sent again" {
    { chat a; chat DROP; chat b; } > in
    run -69 --separate-stderr sm-invoke --url "$URL" < in
    holds '.status == null and (.error | test("is not sent again"))' <<< "${lines[1]}"
    holds '.status == 200 and .connect_ms > 0' <<< "${lines[2]}"
    curl -s "$URL/stats" | holds '.requests == 3'
}

@test "a key goes out as a bearer token and nowhere else" {
    echo sesame-7 > key
    chat ECHO | sm-invoke --url "$URL" --api-key-file key > out
    ! grep -q sesame out || false
    printf '\n' > empty
    run -65 sm-invoke --url "$URL" --api-key-file empty < /dev/null
    run -66 sm-invoke --url "$URL" --api-key-file none < /dev/null
}

@test "usage mistakes are 64" {
    run -64 sm-invoke < /dev/null
    run -64 sm-invoke --url ftp://x < /dev/null
    run -64 sm-invoke --url "$URL" --concurrency 0 < /dev/null
    run -64 sm-invoke --url "$URL" --concurrency 2 --rate 5 < /dev/null
}

@test "a full disk is 74 even while input is still open; a closed reader ends it quietly" {
    chat a > one
    run bash -c 'sm-invoke --url "$0" < one | true' "$URL"
    [ -z "$output" ]
    mkfifo in
    { exec 9> in; chat a >&9; sleep 3; } 3>&- &
    run -74 bash -c 'sm-invoke --url "$1" < in > /dev/full' _ "$URL"
    [[ $output = *"stdout: write failed"* ]]
}

@test "answers appear as they come: a line is not held back for the next" {
    mkfifo in
    sm-invoke --url "$URL" < in > out 3>&- &
    exec 9> in
    chat a >&9
    for _ in $(seq 200); do [ -s out ] && break; sleep 0.01; done
    [ "$(wc -l < out)" = 1 ]
    exec 9>&-
    wait $!
}

@test "ten thousand requests through a window of 8192" {
    sanitized && skip "slow under a sanitizer"
    jq -nc 'range(10000) | {id: ., prompt: "x", model: "m", max_tokens: 1}' > in
    sm-invoke --url "$URL" --concurrency 32 < in > out
    jq -se 'map(.id) == [range(10000)]' out
}
