#!/usr/bin/env bats
# gpu-serve: answers equal gpu-decode's, the shapes of OpenAI's API, SageMaker's contract, what is refused, how it ends.
load lib

setup() { cd "$BATS_TEST_TMPDIR" || return 1; need_program gpu-decode st-synth; }

teardown() {
    [ -n "${SERVER:-}" ] || return 0
    kill "$SERVER" 2>/dev/null || true
    wait "$SERVER" || true
    ! grep -E 'Sanitizer|runtime error' log || false
}

serve() {       # OPTION…: starts a server of the E2B nano model; sets URL and SERVER
    MODEL=$(model e2b)
    rm -f url
    gpu-serve --model "$MODEL" --port 0 --max-context 4096 -j 1 "$@" > url 2> log 3>&- < /dev/null &
    SERVER=$!
    until [ -s url ]; do
        kill -0 "$SERVER" || { cat log; return 1; }
        sleep 0.02
    done
    URL=$(cat url)
}

post() {        # PATH BODY [CURL OPTION…]
    curl -s "$URL$1" -H 'Content-Type: application/json' -d "$2" "${@:3}"
}

hold() {        # BODY: a request that runs for long; to be started with & and killed
    exec curl -sN "$URL/v1/completions" -H 'Content-Type: application/json' -d "$1" -o /dev/null
}

metric() { curl -s "$URL/metrics" | awk -v n="$1{" 'index($0, n) == 1 { print $NF }'; }

until_metric() {        # NAME VALUE
    local i
    for i in $(seq 400); do [ "$(metric "$1")" = "$2" ] && return; sleep 0.02; done
    echo "$1 is $(metric "$1"), not $2"
    return 1
}

requests() {    # a mixture; every one with an end that does not depend on luck
    jq -nc '"Why is the sky blue?", "Name three colours.", "é 你好 🙂" | {messages: [{role: "user", content: .}], max_tokens: 24}'
    jq -nc 'range(4) | {prompt: "The sky is \(.)", max_tokens: (10 + 5 * .), temperature: 1.1, seed: ., ignore_eos: true}'
    jq -nc '{prompt_ids: [2, 5, 6, 7, 8], max_tokens: 9}, {prompt: "stop here", max_tokens: 60, stop: ["e", "x"]}'
    jq -nc '{prompt: ([range(300) | "word \(.)"] | join(" ")), max_tokens: 8}'
}

numbered() { jq -c '{id: input_line_number} + .'; }
comparable() { jq -c '{id, text, prompt_tokens, completion_tokens, finish_reason}' "$@"; }

@test "ready: one line with the URL; ping, health, version, models" {
    serve --served-model-name nano
    [[ $(cat url) =~ ^http://127\.0\.0\.1:[0-9]+$ ]]
    for path in /ping /health; do [ "$(curl -s -o body -w '%{http_code}' "$URL$path")" = 200 ] && [ ! -s body ]; done
    [ "$(curl -s -X POST -o /dev/null -w '%{http_code}' "$URL/ping")" = 200 ]
    curl -s "$URL/version" | holds '.version | test("^[0-9]")'
    curl -s "$URL/v1/models" | holds '.object == "list" and .data[0].id == "nano" and .data[0].object == "model" and .data[0].max_model_len == 4096'
}

@test "answers equal gpu-decode's: plain and streamed, alone and together" {
    serve
    requests | numbered > in
    gpu-decode --model "$MODEL" --max-context 4096 -q < in | comparable > expected
    for how in "--concurrency 1" "--concurrency 10" "--concurrency 10 --stream"; do
        # shellcheck disable=SC2086
        sm-invoke --url "$URL" $how < in > out
        comparable out | diff expected -
    done
}

@test "token ids and logprobs equal gpu-decode's" {
    serve
    body='{"prompt":"The sky is","max_tokens":5,"logprobs":2,"return_token_ids":true}'
    gpu-decode --model "$MODEL" --max-context 4096 -q <<< "$body" > expected
    post /v1/completions "$body" > out
    [ "$(jq -c '.choices[0].token_ids' out)" = "$(jq -c .token_ids expected)" ]
    holds '.choices[0].logprobs | (.tokens | length) == 5 and (.token_logprobs | max) <= 0 and (.top_logprobs | map(length) | max) == 2 and .text_offset[0] == 0' out
    post /v1/chat/completions '{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"logprobs":true,"top_logprobs":2,"ignore_eos":true}' > chat
    holds '.choices[0].logprobs.content | length == 3 and all(.logprob <= 0 and (.top_logprobs | length) == 2 and .token == .top_logprobs[0].token)' chat
}

@test "the shape of a chat and of a completion" {
    serve
    post /v1/chat/completions '{"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"ignore_eos":true}' -H 'X-Request-ID: abc-1' > out
    holds '.id == "chatcmpl-abc-1" and .object == "chat.completion" and (.created | type) == "number" and .choices[0].index == 0 and .choices[0].message.role == "assistant"
        and (.choices[0].message.content | type) == "string" and .choices[0].finish_reason == "length"
        and .usage.completion_tokens == 3 and .usage.total_tokens == .usage.prompt_tokens + 3' out
    post /v1/completions '{"prompt":"hi","max_tokens":3,"ignore_eos":true}' > out
    holds '.object == "text_completion" and (.choices[0].text | type) == "string" and .usage.completion_tokens == 3' out
}

@test "several choices and several prompts: by index, seeds apart, prompts counted once" {
    serve
    post /v1/completions '{"prompt":["a b","c"],"n":2,"max_tokens":6,"temperature":1.5,"seed":5,"ignore_eos":true}' > out
    holds '[.choices[].index] == [0, 1, 2, 3] and .usage.completion_tokens == 24 and .choices[0].text != .choices[1].text' out
    for i in 0 1; do
        post /v1/completions "{\"prompt\":\"a b\",\"max_tokens\":6,\"temperature\":1.5,\"seed\":$((5 + i)),\"ignore_eos\":true}" > one
        [ "$(jq .choices[0].text one)" = "$(jq ".choices[$i].text" out)" ]
    done
    other=$(post /v1/completions '{"prompt":"c","max_tokens":1}' | jq .usage.prompt_tokens)
    [ "$(jq .usage.prompt_tokens out)" = $(($(jq .usage.prompt_tokens one) + other)) ]
}

@test "a stream: events, role first, the end told once, usage when asked" {
    serve
    post /v1/chat/completions '{"messages":[{"role":"user","content":"hi"}],"max_tokens":6,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}' -D head > out
    grep -qi '^content-type: text/event-stream' head
    ! grep -v '^data: ' out | grep -q . || false
    [ "$(tail -n 2 out | head -n 1)" = 'data: [DONE]' ]
    grep '^data: {' out | cut -c7- > chunks
    jq -se '.[0].choices[0].delta.role == "assistant" and ([.[1:][].choices[]?.delta | has("role")] | any | not)' chunks
    jq -se '[.[].choices[0].finish_reason // empty] == ["length"] and all(.object == "chat.completion.chunk") and ([.[].id] | unique | length) == 1' chunks
    jq -se '.[-1] | .choices == [] and .usage.completion_tokens == 6' chunks
    whole=$(post /v1/chat/completions '{"messages":[{"role":"user","content":"hi"}],"max_tokens":6,"ignore_eos":true}' | jq .choices[0].message.content)
    [ "$(jq -s '[.[].choices[0].delta.content // ""] | add' chunks)" = "$whole" ]
    post /v1/chat/completions '{"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true}' > out
    ! grep -q usage out || false
}

@test "invocations: routed by the body" {
    serve
    post /invocations '{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}' | holds '.object == "chat.completion"'
    post /invocations '{"prompt":"hi","max_tokens":2}' | holds '.object == "text_completion"'
    post /invocations '{"prompt":"hi","max_tokens":2,"stream":true}' | grep -q '^data: \[DONE\]$'
    post /invocations '{"x":1}' -w '\n%{http_code}' | tail -n 1 | grep -qx 400
}

@test "every broken body gets a 4xx that names the field" {
    serve
    while IFS='|' read -r param body; do
        post /invocations "$body" -o out -w '%{http_code}' > code
        grep -qx '4[0-9][0-9]' code || { echo "$body: $(cat code)"; false; }
        jq -e --arg p "$param" '.error.param == $p and (.error.message | length) > 5 and (.error.type | length) > 3 and (.error.code | type) == "number"' out || { cat out; false; }
    done <<'END'
body|{
body|[]
body|{"prompt":"x","prompt":"y"}
messages|{"messages":[]}
messages|{"messages":"hi"}
prompt|{"prompt":7}
prompt|{"prompt":[]}
model|{"prompt":"x","model":"other"}
model|{"prompt":"x","model":7}
n|{"prompt":"x","n":0}
n|{"prompt":"x","n":1.5}
n|{"prompt":"x","n":65}
stream|{"prompt":"x","stream":"yes"}
stream_options|{"prompt":"x","stream_options":{}}
stream_options|{"prompt":"x","stream":true,"stream_options":[]}
max_tokens|{"prompt":"x","max_tokens":0}
max_tokens|{"prompt":"x","max_tokens":"9"}
temperature|{"prompt":"x","temperature":-1}
top_p|{"prompt":"x","top_p":0}
stop|{"prompt":"x","stop":7}
seed|{"prompt":"x","seed":"s"}
logprobs|{"prompt":"x","logprobs":99}
presence_penalty|{"prompt":"x","presence_penalty":1}
response_format|{"prompt":"x","response_format":{"type":"json_object"}}
echo|{"prompt":"x","echo":true}
best_of|{"prompt":"x","best_of":3}
END
    printf '{"prompt":"\xff"}' > bad
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/v1/completions" -H 'Content-Type: application/json' --data-binary @bad)" = 400 ]
    post /v1/completions '{"prompt":"hi","max_tokens":2}' | holds '.usage.completion_tokens == 2'
}

@test "paths, methods, content types, sizes" {
    serve --body-max 10000
    [ "$(curl -s -o out -w '%{http_code}' "$URL/nope")" = 404 ] && holds '.error.code == 404' out
    [ "$(curl -s -D head -o /dev/null -w '%{http_code}' "$URL/v1/completions")" = 405 ] && grep -qi '^allow: POST' head
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/v1/completions" -d '{}')" = 415 ]
    [ "$(echo '{"prompt":"x"}' | gzip | curl -s -o out -w '%{http_code}' "$URL/v1/completions" -H 'Content-Type: application/json' -H 'Content-Encoding: gzip' --data-binary @-)" = 415 ]
    holds '.error.message | contains("a compressed body is not read: send it without Content-Encoding")' out
    [ "$(curl -s -o out -w '%{http_code}' --request-target http://some.host/v1/models "$URL")" = 200 ] && holds '.object == "list"' out
    [ "$(curl -s -o out -w '%{http_code}' --request-target https://some.host "$URL")" = 404 ] && holds '.error.code == 404' out
    head -c 20000 /dev/zero | tr '\0' ' ' > big
    [ "$(curl -s -o out -w '%{http_code}' "$URL/v1/completions" -H 'Content-Type: application/json' --data-binary @big)" = 413 ] && holds '.error.code == 413' out
    [ "$(curl -s -o out -w '%{http_code}' "$URL/v1/completions" -H 'Content-Type: application/json' -H 'Transfer-Encoding: chunked' -H 'Expect:' --data-binary @big)" = 413 ]
}

@test "a body of 100 MB: 413 in OpenAI's shape, told its length or not; the server goes on and has not kept it" {
    serve
    post /v1/completions '{"prompt": "x", "max_tokens": 2, "ignore_eos": true}' >/dev/null
    before=$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$SERVER/status")
    for how in 'Accept: */*' 'Transfer-Encoding: chunked'; do
        [ "$(head -c 100000000 /dev/zero | tr '\0' ' ' | curl -s -o out -w '%{http_code}' "$URL/v1/completions" -H 'Content-Type: application/json' -H "$how" --data-binary @-)" = 413 ]
        holds '.error | .code == 413 and .type == "BadRequestError" and (.message | test("too large")) and has("param")' out
        post /v1/completions '{"prompt": "x", "max_tokens": 2, "ignore_eos": true}' | holds '.usage.completion_tokens == 2'
    done
    peak=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$SERVER/status")
    echo "before: $before kB, peak: $peak kB"
    sanitized || [ "$((peak - before))" -lt 50000 ]
}

@test "tokens there and back, equal to tokenize" {
    serve
    need_program tokenize
    text='Hello, wörld 123 🙂'
    jq -nc --arg t "$text" '{text: $t}' | tokenize --model "$MODEL" | jq -c .token_ids > expected
    post /tokenize "$(jq -nc --arg t "$text" '{prompt: $t, add_special_tokens: false}')" > out
    [ "$(jq -c .tokens out)" = "$(cat expected)" ] && holds '.count == (.tokens | length) and .max_model_len == 4096' out
    post /tokenize "$(jq -nc --arg t "$text" '{prompt: $t}')" | jq -e --argjson e "$(cat expected)" '.tokens[1:] == $e'
    post /detokenize "{\"tokens\":$(cat expected)}" | jq -e --arg t "$text" '.prompt == $t'
    post /v1/completions "$(jq -nc --arg t "$text" '{prompt: $t, max_tokens: 1, add_special_tokens: false}')" | jq -e --argjson e "$(cat expected)" '.usage.prompt_tokens == ($e | length)'
    post /tokenize '{"messages":[{"role":"user","content":"hi"}]}' | holds '.count > 3'
    post /detokenize '{"tokens":[-1]}' | holds '.error.param == "tokens[0]"'
    post /detokenize '{"tokens":[99999999]}' | holds '.error.code == 400'
}

@test "a key: wrong ones are 401, the health checks need none, it shows nowhere" {
    echo sesame-77 > key
    serve --api-key-file key
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/ping")" = 200 ]
    for header in 'X: y' 'Authorization: Bearer sesame-7' 'Authorization: Bearer sesame-777' 'Authorization: sesame-77'; do
        [ "$(curl -s -o out -w '%{http_code}' -H "$header" "$URL/v1/models")" = 401 ]
        holds '.error.type == "AuthenticationError"' out
    done
    echo '{"prompt":"x","max_tokens":2}' | sm-invoke --url "$URL" --api-key-file key | holds '.status == 200'
    run -77 sm-invoke --url "$URL" <<< '{"prompt":"x","model":"m"}'
    ! grep -q sesame log "/proc/$SERVER/cmdline" || false
}

@test "a full queue answers 429 with Retry-After, and those inside are served" {
    serve --batch 1 --max-queue 1
    jq -nc 'range(8) | {id: ., prompt: "x", max_tokens: 200, ignore_eos: true, model: "x"} | del(.model)' > in
    run -75 --separate-stderr sm-invoke --url "$URL" --concurrency 8 < in
    printf '%s\n' "${lines[@]}" > out
    jq -se '([.[] | select(.status == 200)] | length) >= 2 and ([.[] | select(.status == 429)] | length) >= 1 and all(.status == 200 or .status == 429)' out
    jq -se 'map(select(.status == 200).completion_tokens) | all(. == 200)' out
    hold '{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}' &
    one=$!
    until_metric vllm:num_requests_running 1
    hold '{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}' &
    two=$!
    until_metric vllm:num_requests_waiting 1
    post /v1/completions '{"prompt":"x"}' -D head -o /dev/null
    grep -q '^HTTP/1.1 429' head && grep -qi '^retry-after: 1' head
    kill "$one" "$two"
    until_metric vllm:num_requests_running 0
}

@test "a budget of KV tokens: waiting for room, refused when it never fits" {
    serve --kv-tokens 300
    jq -nc 'range(4) | {prompt: "x", max_tokens: 200, ignore_eos: true}' | sm-invoke --url "$URL" --concurrency 4 | jq -se 'all(.completion_tokens == 200)'
    post /v1/completions '{"prompt":"x","max_tokens":1000}' | holds '.error.param == "max_tokens" and .error.code == 400'
    grep -q 'GPU KV cache size: 300 tokens, Maximum concurrency for 4,096 tokens per request: 0.07x' log
}

@test "the place of a client that goes away is free at once: streamed, plain, waiting" {
    serve --batch 1
    for stream in true false; do
        hold "{\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":$stream}" &
        one=$!
        until_metric vllm:num_requests_running 1
        hold '{"prompt":"x","max_tokens":4000,"ignore_eos":true}' &
        two=$!
        until_metric vllm:num_requests_waiting 1
        kill "$two"
        until_metric vllm:num_requests_waiting 0
        kill "$one"
        until_metric vllm:num_requests_running 0
    done
    [ "$(metric 'vllm:generation_tokens_total' | cut -d. -f1)" -lt 8000 ]
    curl -s "$URL/metrics" | grep 'finished_reason="abort"' | grep -q ' 4$'
}

@test "a client that only stops sending still gets its answer; requests in one packet are answered in turn" {
    serve
    need_command python3
    port=${URL##*:}
    python3 - "$port" <<'END'
import socket, sys
body = b'{"prompt":"x","max_tokens":30,"ignore_eos":true}'
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
s.shutdown(socket.SHUT_WR)
got = b""
while part := s.recv(65536):
    got += part
assert b'"completion_tokens":30' in got, got
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n" * 20 + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
got = b""
while part := s.recv(65536):
    got += part
assert got.count(b"200 OK") == 21, got
END
}

@test "where a body ends is never guessed; a NUL does not end a path" {
    serve
    need_command python3
    python3 - "${URL##*:}" <<'END'
import socket, sys
body = b'{"prompt":"x","max_tokens":1}'
def ask(*fields, path=b"/v1/completions", data=body):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.settimeout(20)
    s.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n" + data)
    got = b""
    while part := s.recv(65536):
        got += part
    return got
length, chunked, chunks = b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
for want, got in [
        (b"200", ask(length)), (b"200", ask(length, length)), (b"200", ask(chunked, data=chunks)),
        (b"400", ask(length, b"Content-Length: 5")), (b"400", ask(length, chunked, data=chunks)),
        (b"501", ask(b"Transfer-Encoding: gzip, chunked", data=chunks)), (b"501", ask(b"Transfer-Encoding: gzip", chunked, data=chunks)),
        (b"404", ask(length, path=b"/v1/completions%00x")), (b"200", ask(length, path=b"/v1/completions?x=%00"))]:
    assert got.startswith(b"HTTP/1.1 " + want), (want, got)
    assert want != b"400" or b"two lengths for one body: send one Content-Length, or Transfer-Encoding: chunked alone" in got, got
    assert want != b"501" or b"Transfer-Encoding: only chunked is understood" in got, got
END
}

@test "a thousand idle connections are no hindrance" {
    serve
    need_command python3
    python3 - "${URL##*:}" <<'END'
import resource, socket, sys, urllib.request
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
idle = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(1000)]
for s in idle[:500]:
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
assert urllib.request.urlopen("http://127.0.0.1:%s/ping" % sys.argv[1], timeout=10).status == 200
END
}

@test "the official openai client: models, chat, stream, choices, errors, cancellation" {
    need_peer openai
    serve
    "$PEER" "$ROOT/tests/peers/openai_client.py" "$URL"
    until_metric vllm:num_requests_running 0
}

# Where AIPerf is: Q4_AIPERF, the bin/ of its environment, or what tests/peers/venv.sh aiperf makes.
@test "aiperf drives it: streamed chat at four at once, every request good" {
    local bin=${Q4_AIPERF:-$ROOT/build/peers/aiperf/bin}
    [ -x "$bin/aiperf" ] || skip "aiperf is not installed: tests/peers/venv.sh aiperf"
    serve
    "$bin/python3" "$ROOT/tests/peers/word_tokenizer.py" tok "$("$bin/python3" -c 'import aiperf, os; print(os.path.dirname(aiperf.__file__))')/dataset/generator/assets/shakespeare.txt"
    timeout 120 "$bin/aiperf" profile --model "$(curl -s "$URL/v1/models" | jq -r '.data[0].id')" --url "$URL" --endpoint-type chat --streaming --tokenizer tok --concurrency 4 \
        --request-count 12 --warmup-request-count 4 --isl 16 --osl 8 --use-server-token-count --no-server-metrics --no-gpu-telemetry --ui none --artifact-dir out >aiperf.log 2>&1
    holds '.request_count.avg == 12 and (.error_request_count.avg // 0) == 0 and .time_to_first_token.count == 12 and .output_token_count.avg <= 8' out/profile_export_aiperf.json
}

@test "SIGTERM finishes what runs, refuses what is new, exits 0" {
    serve
    post /v1/completions '{"prompt":"x","max_tokens":1500,"ignore_eos":true}' > out &
    client=$!
    until_metric vllm:num_requests_running 1
    kill -TERM "$SERVER"
    code=200
    while kill -0 "$client" 2>/dev/null && [ "$code" = 200 ]; do code=$(curl -s -o /dev/null -w '%{http_code}' "$URL/ping" || true); done
    [ "$code" = 503 ]
    wait "$client"
    holds '.usage.completion_tokens == 1500' out
    wait "$SERVER"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/ping")" = 000 ]
}

@test "a model that is the current directory is called by its name" {
    cp -r "$(golden gemma3-nano)" tiny
    cd tiny || return
    "$BIN/gpu-serve" --model . --port 0 >url 2>log 3>&- &
    SERVER=$!
    for _ in $(seq 200); do [ ! -s url ] || break; sleep 0.02; done
    curl -s "$(cat url)/v1/models" | holds '.data[0].id == "tiny"'
}

@test "started with nohup it stays deaf to SIGHUP" {
    env --ignore-signal=HUP "$BIN/gpu-serve" --model "$(golden gemma3-nano)" --port 0 >url 2>log 3>&- &
    SERVER=$!
    for _ in $(seq 200); do [ ! -s url ] || break; sleep 0.02; done
    kill -HUP "$SERVER"
    sleep 0.2
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$(cat url)/ping")" = 200 ]
}

@test "--until-eof: ends with its standard input" {
    MODEL=$(model e2b)
    mkfifo in
    gpu-serve --model "$MODEL" --port 0 --until-eof -q < in > url 2> log 3>&- &
    SERVER=$!
    exec 9> in
    until [ -s url ]; do sleep 0.02; done
    curl -s "$(cat url)/ping"
    kill -0 "$SERVER"
    # A reply that would take minutes does not keep it.
    curl -s "$(cat url)/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "a", "max_tokens": 100000, "ignore_eos": true}' >/dev/null 3>&- 9>&- &
    sleep 0.5
    exec 9>&-
    ended=$SECONDS
    wait "$SERVER"
    [ $((SECONDS - ended)) -le 10 ]
    [ ! -s log ]
}

@test "metrics count, in vLLM's names" {
    serve
    post /v1/completions '{"prompt":"hello","max_tokens":5,"ignore_eos":true}' > out
    [ "$(metric vllm:generation_tokens_total)" = 5 ]
    [ "$(metric vllm:prompt_tokens_total)" = "$(jq .usage.prompt_tokens out)" ]
    curl -s "$URL/metrics" > m
    grep -q 'vllm:time_to_first_token_seconds_count{.*} 1$' m && grep -q 'vllm:inter_token_latency_seconds_count{.*} 4$' m
    grep -q 'vllm:request_success_total{.*finished_reason="length"} 1$' m
    ! grep -vE '^(# (HELP|TYPE) [a-z0-9_:]+ .*|[a-z0-9_:]+\{[^{}]*\} [-+0-9.e]+)$' m || false
}

@test "the log speaks vLLM's words" {
    serve
    curl -s "$URL/ping"
    grep -qE 'INFO [0-9-]{5} [0-9:]{8} \[gpu-serve\] GPU KV cache size: [0-9,]+ tokens, Maximum concurrency for 4,096 tokens per request: [0-9.]+x$' log
    grep -qE 'Model loading took [0-9.]+ GiB memory and [0-9.]+ seconds$' log
    grep -q 'Application startup complete\.' log
    for _ in $(seq 50); do grep -qE '127\.0\.0\.1:[0-9]+ - "GET /ping HTTP/1.1" 200 OK$' log && break; sleep 0.02; done
    grep -qE '127\.0\.0\.1:[0-9]+ - "GET /ping HTTP/1.1" 200 OK$' log
}

@test "what cannot be served" {
    run -64 gpu-serve --port 0
    run -64 gpu-serve --model "$(model e2b)"
    run -64 gpu-serve --model "$(model e2b)" --port 0 --address nowhere
    run -66 gpu-serve --model none --port 0
    serve
    run -69 gpu-serve --model "$MODEL" --port "${URL##*:}"
    [[ $output = *"cannot listen"* ]]
}
