#!/usr/bin/env bats
# What the clients of servers refuse, and sm-mcp, in the words of each message (tests/messages.sh lists what is left).
load lib
load faults/runs
load refusals

teardown() {
    local pid h
    for h in "${SERVERS[@]}"; do exec {h}>&-; done
    for pid in ${PEER_PID:-}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
}

ranges() {      # OPTION… DIR: tests/tools/range-server; URL
    rm -f url
    exec {HOLD}> >(exec "$TOOLS/range-server" "$@" >url 3>&-)
    SERVERS+=("$HOLD")
    until [ -s url ]; do sleep 0.02; done
    URL=$(cat url)
}

@test "answers that sm-invoke does not take" {
    "$TOOLS/openai-stub" >url 3>&- </dev/null &
    PEER_PID=$!
    until [ -s url ]; do sleep 0.02; done
    lines_refused sm-invoke --url "$(cat url)" <<'TABLE'
the line is no JSON object: give an OpenAI request body with an id <- [1]
expected one of messages, prompt and prompt_ids, found none: give exactly one <- {"id":1}
the answer has a choice with index 500 <- {"id":2,"prompt":"x","raw":"{\"choices\":[{\"index\":500,\"text\":\"x\"}]}"}
the answer has no choices: is this an OpenAI server <- {"id":3,"prompt":"x","raw":"{}"}
HTTP 500 with an empty answer <- {"id":4,"prompt":"EMPTY:500"}
the stream broke off after 2 chunks <- {"id":5,"prompt":"SHORT","stream":true}
TABLE
    refused 64 "--url and --endpoint exclude each other" sm-invoke --url http://127.0.0.1:1 --endpoint x
    refused 64 "--url: a user or password in it would stand in results: give the server's key by --api-key-file" sm-invoke --url http://me:s3cret@127.0.0.1:1
    refused 64 "--url x: expected http:// or https://" sm-invoke --url x
    refused 64 "--rate and --concurrency exclude each other" sm-invoke --url http://127.0.0.1:1 --rate 1 --concurrency 2
    refused 64 "--rate 0: nothing would ever start: leave it out, and a request starts when one has ended" sm-invoke --url http://127.0.0.1:1 --rate 0
    refused 64 "--timeout 0: every request would be given up at once: name the seconds that one may take" sm-invoke --url http://127.0.0.1:1 --timeout 0
    refused 64 "a_b: no endpoint's name: letters, digits and inner -, at most 63" sm-invoke --endpoint a_b
    refused 64 "nowhere: no region's name: expected one like us-east-2" env AWS_ACCESS_KEY_ID=A AWS_SECRET_ACCESS_KEY=s sm-invoke --endpoint x@nowhere
    FAULTY=sm-invoke fault_says 9 thread 75 "no thread to be had: end some programs and try again" sm-invoke --url http://127.0.0.1:1
    FAULTY=sm-invoke fault_says 9 process 75 "no pipe or process to be had: " sm-invoke --url http://127.0.0.1:1
    none_failed
}

@test "remote sources that are none" {
    local dir
    dir=$(model gemma3)
    refused 64 "hf://x/y@: no revision after @" st-extract hf://x/y@
    refused 64 "hf://x/y/z/file: files in folders of a repository are not supported" st-extract hf://x/y/z/file
    refused 64 "a source's URL with a user or password is not supported: it would stand in logs and provenance" st-extract 'http://me:s3cret@127.0.0.1:1/a'
    refused 64 "HF_ENDPOINT has a user or password: it would stand in logs and provenance" env HF_ENDPOINT=http://me:s3cret@127.0.0.1:1 st-extract hf://a/b
    [[ $(st-extract 'http://me:s3cret@127.0.0.1:1/a' 2>&1) != *s3cret* ]]
    refused 64 "http://127.0.0.1:1/a: a URL with a query or fragment is not supported" st-extract 'http://127.0.0.1:1/a?b'
    refused 64 "http:///x: a URL without a host: http(s)://host/path is expected" st-extract http:///x
    refused 64 "https://: a URL without a host" st-extract https://
    refused 64 "the Hub's token has a character that no token has: check HF_TOKEN" env HF_TOKEN='a b' HF_ENDPOINT=http://127.0.0.1:1 st-extract hf://x/y
    ranges --fault late:0:503 "$dir"
    refused 75 "model.safetensors: the answer is incomplete or refused for now: tried 1 times: try again later" st-extract --retries 0 --select layers "$URL/model.safetensors"
    ranges --fault status:0:503 "$dir"
    refused 75 "the server refuses for now: tried 1 times: try again later" st-extract --retries 0 "$URL"
    ranges --fault status:0:403 "$dir"
    refused 77 "the server refuses access (403)" st-extract "$URL/model.safetensors"
    HF_ENDPOINT=$URL refused 77 "the Hub refuses access (403): open $URL/o/n, accept the conditions, and set HF_TOKEN" st-extract hf://o/n
    ranges --fault status:0:404 "$dir"
    HF_ENDPOINT=$URL refused 66 "hf://o/n: the Hub has no such repository or revision" st-extract hf://o/n
    ranges --fault no-range "$dir"
    refused 65 "a partial answer without Content-Range" st-extract "$URL/model.safetensors"
    ranges --fault wrong-range "$dir"
    refused 65 "the server sent them from" st-extract "$URL/model.safetensors"
    ranges --fault redirect:0:ftp://x "$dir"
    HF_ENDPOINT=$URL HF_TOKEN=good refused 65 "redirected to what is no http(s) URL" st-extract hf://o/n
    printf 'HTTP/1.1 206 x\r\nContent-Range: bytes 0-99/1000\r\nContent-Length: 2\r\nConnection: close\r\n\r\nxx' >odd
    "$TOOLS/answer-stub" odd >odd-url 3>&- </dev/null &
    PEER_PID=$!
    until [ -s odd-url ]; do sleep 0.02; done
    refused 65 "the server's answer contradicts itself: asked for the first 32768 bytes, got 2 as \"bytes 0-99/1000\"" st-extract "$(cat odd-url)/model.safetensors"
    kill "$PEER_PID"
    printf 'HTTP/1.1 206 x\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-99/1000\r\nContent-Length: 2\r\nConnection: close\r\n\r\nxx' >packed
    "$TOOLS/answer-stub" packed >packed-url 3>&- </dev/null &
    PEER_PID=$!
    until [ -s packed-url ]; do sleep 0.02; done
    refused 65 "the server sends it packed (Content-Encoding: gzip), so that ranges mean nothing: download the file and name the copy" st-extract "$(cat packed-url)/model.safetensors"
    ranges --fault no-commit "$dir"
    HF_ENDPOINT=$URL refused 65 "the Hub's answer about o/n has no commit or no file list" st-extract hf://o/n
    none_failed
}

@test "arguments that sm-mcp does not take" {
    local row id=0 said
    mkdir run
    while IFS= read -r row; do
        printf '%s\n' "${row%% <- *}" >>texts
        jq -c --argjson id $((id += 1)) '{jsonrpc: "2.0", $id, method: "tools/call", params: {name: .[0], arguments: .[1]}}' <<<"${row#* <- }" >>asked
    done <<'TABLE'
exactly one of endpoint, url is needed, found 0 <- ["invoke", {"prompt": "x"}]
rate is not given together with concurrency <- ["invoke", {"url": "http://127.0.0.1:1", "prompt": "x", "rate": 1, "concurrency": 2}]
seed: belongs into each of requests <- ["invoke", {"url": "http://127.0.0.1:1", "requests": [{"prompt": "x"}], "seed": 2}]
expected a list of objects <- ["invoke", {"url": "http://127.0.0.1:1", "requests": [1]}]
results: expected a list of 1 to <- ["tabulate", {"results": []}]
format: takes one of md|csv|json|html <- ["tabulate", {"results": ["x.json"], "format": "pdf"}]
out: a string is expected <- ["sweep_status", {"out": 5}]
out: holds a control character <- ["sweep_status", {"out": "a\nb"}]
strange: there is no such argument <- ["sweep_status", {"strange": 1}]
result: made.json: exists: name another file <- ["measure", {"url": "http://127.0.0.1:1", "model": "e2b", "label": "text", "build": "b", "result": "made.json"}]
env: AWS_X: AWS's own variables stay here <- ["up", {"name": "x", "model": "a/b", "instances": ["ml.g6.xlarge"], "regions": ["us-east-1"], "role": "arn:aws:iam::123456789012:role/q", "env": ["AWS_X=1"], "confirm": true}]
env: MY_TOKEN: a secret: give its name alone, and set it where this server starts <- ["up", {"name": "x", "model": "a/b", "instances": ["ml.g6.xlarge"], "regions": ["us-east-1"], "role": "arn:aws:iam::123456789012:role/q", "env": ["MY_TOKEN=1"], "confirm": true}]
TABLE
    printf '%s\n' "out: has 70000 bytes: shorten it to 4096" >>texts
    jq -nc '{jsonrpc: "2.0", id: 98, method: "tools/call", params: {name: "sweep_status", arguments: {out: ("x" * 70000)}}}' >>asked
    echo "file:///none: there is no such resource" >>texts
    echo '{"jsonrpc":"2.0","id":99,"method":"resources/read","params":{"uri":"file:///none"}}' >>asked
    : >made.json
    { echo '{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}'
      echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
      cat asked; } >lines
    sm-mcp <lines >answers 2>err
    while IFS= read -r row; do grep -qF -- "$(jq -R . <<<"$row" | sed 's/^"//; s/"$//')" answers || { echo "no answer says: $row"; FAILED=1; }; done <texts
    [ "$FAILED" -eq 0 ] || cat answers
    none_failed
}
