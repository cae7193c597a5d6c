#!/usr/bin/env bats
# What gpu-serve refuses, in the words of each message (tests/messages.sh lists what is left).
load lib
load faults/runs
load refusals

teardown() {
    [ -n "${SERVER:-}" ] || return 0
    kill "$SERVER" 2>/dev/null || true
    wait "$SERVER" || true
}

serve() {       # MODEL OPTION…
    rm -f url
    gpu-serve --model "$1" --port 0 --max-context 256 -j 1 "${@:2}" >url 2>log 3>&- </dev/null &
    SERVER=$!
    until [ -s url ]; do kill -0 "$SERVER" || { cat log; return 1; }; sleep 0.02; done
    URL=$(cat url)
}

stop() { kill "$SERVER"; wait "$SERVER" || true; SERVER=; }

# Bodies that a path refuses, each with the words of the answer's message: `TEXT <- BODY` on stdin.
bodies_refused() {      # STATUS PATH [CONTENT-TYPE]
    local row code
    while IFS= read -r row; do
        code=$(curl -s -o answer -w '%{http_code}' "$URL$2" -H "Content-Type: ${3:-application/json}" -d "${row#* <- }")
        [[ $code = "$1" && $(jq -r .error.message answer) = *"${row%% <- *}"* ]] || { echo "$2 ${row#* <- }: expected $1 and \"${row%% <- *}\", found $code: $(cat answer)"; FAILED=1; }
    done
}

@test "bodies that are refused" {
    serve "$(model gemma3)" --batch 1 --max-queue 0 --kv-tokens 100
    bodies_refused 400 /v1/completions <<'TABLE'
presence_penalty: only 0 is supported <- {"prompt":"x","presence_penalty":1}
suffix: that is not done here: leave it out <- {"prompt":"x","suffix":"y"}
response_format: only {"type":"text"} is supported <- {"prompt":"x","response_format":{"type":"json_object"}}
best_of: only 1 is supported <- {"prompt":"x","best_of":2}
echo: only false is supported <- {"prompt":"x","echo":true}
stream_options: expected an object <- {"prompt":"x","stream_options":1}
stream_options: only allowed when stream is true <- {"prompt":"x","stream_options":{}}
prompt: is empty <- {"prompt":[]}
prompt: is missing <- {}
prompt[0]: a token's id is expected, a whole number <- {"prompt":[-1]}
prompt[1]: a token's id is expected, a whole number <- {"prompt":[2,"x"]}
prompt: token 99999 (number 1) is not in the model's table <- {"prompt":[2,99999]}
prompt[1][0]: a token's id is expected, a whole number <- {"prompt":[[2],[-1]]}
prompt[1]: token 99999 (number 0) is not in the model's table <- {"prompt":[[2],[99999]],"n":2}
prompt[1]: empty <- {"prompt":[[2],[]]}
prompt[1]: not a string or a list of token ids <- {"prompt":[[2],3]}
prompt[0]: expected a string or token ids, found a list of strings <- {"prompt":[["x"]]}
prompt: exactly one of messages, prompt and prompt_ids is needed <- {"prompt":[2],"prompt_ids":[2]}
prompt_ids[0]: a token's id is expected, a whole number <- {"prompt_ids":[-1]}
n: expected 1 to 64, found 0 <- {"prompt":"x","n":0}
n: 2 prompts of 64 choices: at most 64 in all <- {"prompt":["x","y"],"n":64}
body: expected a JSON object <- []
max_tokens: 1 prompt tokens and max_tokens 200 exceed the server's 100 KV tokens: lower max_tokens <- {"prompt_ids":[2],"max_tokens":200}
TABLE
    jq -nc '{prompt: [range(65) | "x"]}' >many
    bodies_refused 400 /v1/completions <<<"prompt: 65 prompts: at most 64 <- $(cat many)"
    bodies_refused 429 /v1/completions <<<'the queue is full (0 running, 0 waiting): try again <- {"prompt_ids":[2],"n":2,"max_tokens":1}'
    bodies_refused 400 /v1/chat/completions <<<'messages: is missing <- {}'
    bodies_refused 400 /invocations <<<'cannot find suitable handler for request: expected messages or prompt <- {}'
    bodies_refused 400 /tokenize <<<'prompt: not a string <- {"prompt":5,"add_special_tokens":false}'
    bodies_refused 400 /detokenize <<'TABLE'
tokens: expected a list of ids <- {"tokens":5}
tokens[0]: expected an id from 0 to 1023 <- {"tokens":[5000]}
TABLE
    bodies_refused 404 /none <<<'no such path: there are /v1/chat/completions <- {}'
    bodies_refused 415 /v1/completions text/plain <<<"only 'application/json' is allowed: send Content-Type: application/json <- {}"
    none_failed
}

@test "a model without a tokenizer" {
    mkdir bare
    cp "$(model gemma3)"/{config.json,model.safetensors} bare
    serve "$PWD/bare"
    bodies_refused 400 /tokenize <<<'prompt: the model has no tokenizer.json: texts and ids cannot be changed into each other <- {"prompt":"x","add_special_tokens":false}'
    bodies_refused 400 /detokenize <<<'tokens: the model has no tokenizer.json: texts and ids <- {"tokens":[2]}'
    none_failed
}

# config.json is a pipe: the model is not loaded before something is written to it.
@test "before the model is there, and when the server goes" {
    local port i
    mkdir slow
    serve "$(model gemma3)"
    port=${URL##*:}
    stop
    cp "$(model gemma3)"/* slow
    mv slow/config.json config.json
    mkfifo slow/config.json
    gpu-serve --model slow --port "$port" -j 1 >url 2>log 3>&- </dev/null &
    SERVER=$!
    for i in $(seq 200); do ! curl -s "$URL/version" >/dev/null || break; sleep 0.02; done
    bodies_refused 503 /v1/completions <<<'the model is being loaded: try again <- {}'
    cat config.json >slow/config.json
    until [ -s url ]; do sleep 0.02; done
    curl -sN "$URL/v1/completions" -H 'Content-Type: application/json' -d '{"prompt":"x","max_tokens":3000,"ignore_eos":true,"stream":true}' >stream &
    for i in $(seq 200); do [ ! -s stream ] || break; sleep 0.02; done
    kill "$SERVER"
    sleep 0.05
    bodies_refused 503 /v1/completions <<<'the server is shutting down: ask another, or wait for the next <- {"prompt":"x"}'
    none_failed
}

@test "addresses and ports" {
    local m=(gpu-serve --model "$(model gemma3)")
    refused 64 "localhost: no numeric address: expected one such as 127.0.0.1" "${m[@]}" --port 0 --address localhost
    serve "$(model gemma3)"
    refused 69 "port ${URL##*:}: cannot listen: Address already in use" "${m[@]}" --port "${URL##*:}"
    FAULTY=gpu-serve fault_says 9 thread 75 "no thread to be had: end some programs and try again" "${m[@]}" --port 0 -j 1
    none_failed
}
