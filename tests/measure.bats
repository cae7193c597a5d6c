#!/usr/bin/env bats
# pipelines/measure against a client whose answers and times are known; targets/local with a server that only waits.
load lib

# A bin/ whose sm-invoke answers at once: a reply of n tokens takes 10 + 2n ms, requests start 1 ms apart; mul-0 is answered rightly.  Streamed, the
# first token comes after 12 ms.
fake_bin() {
    mkdir bin
    ln -s "$BIN/st-extract" "$BIN/tabulate" bin/
    cat >bin/sm-invoke <<'F'
#!/bin/bash
[ "$1" != --version ] || { echo "sm-invoke (q4sweep) 9.9.9, test"; exit; }
cat >requests.part
cat requests.part >>requests.jsonl
echo "$*" >>calls
stream=false; [[ " $* " != *" --stream "* ]] || stream=true
if [[ -n ${KILLED:-} && " $* " = *" --rate "* ]]; then sed -i 3q requests.part; fi
jq -c --argjson cut "${CUT:-0}" --argjson stream $stream --slurpfile all requests.part -n '$all | to_entries[] | .key as $i | .value
    | {id, request_id: null, status: 200, scheduled_ms: $i, sent_ms: $i, ttft_ms: (if $stream then 12 else null end), tpot_ms: (if $stream then 2 else null end),
       e2e_ms: (10.5 + 2 * .max_tokens), prompt_tokens: (.prompt_ids // [range(9)] | length), completion_tokens: (.max_tokens - $cut),
       text: (if .id == "mul-0" then " It is 1512.\n" else "no" end)}
    + (if $stream then {chunk_ms: [range(.max_tokens) | 12 + 2 * .]} else {} end)
    | if $ENV.LOADFAIL and $i == 0 and $ARGS.named.rate then . + {error: "the queue is full", status: 429} else . end' \
    --argjson rate "$([[ " $* " = *" --rate "* ]] && echo true || echo false)" <requests.part
[[ " $* " != *" --rate "* ]] || { [ -z "${KILLED:-}" ] || kill -9 $$; exit "${LOADFAIL:-0}"; }
! grep -q '"after-' requests.part || exit "${GONE:-0}"
[ -z "${FAIL:-}" ] || { echo "sm-invoke: 1 of 40 requests failed; the first: HTTP 500" >&2; exit 69; }
F
    chmod +x bin/sm-invoke
    export Q4BIN=$PWD/bin
    echo '{"machine": {"cpu": "a cpu", "cpus": 2}, "engine": {"name": "gpu-serve", "version": "1"}}' >facts.json
}

a_build() {
    [ -d build ] || cp -rL "$(golden e2b-nano)" build
    rm -f build/golden* build/steps*
}

whole() { "$ROOT/pipelines/measure" --url http://127.0.0.1:9 --facts facts.json --model m --build text --target local -o r.json "$@" build; }
measure() { whole --parts replies,parallel,questions "$@"; }        # the published method alone

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    need_program st-extract tabulate
    fake_bin
    a_build
}

@test "the result holds every request, the setting and the build" {
    run -0 --separate-stderr measure
    [[ $stderr == *"nano model"*"15 replies of 16 and of 512 tokens"* ]]
    holds '.schema == "q4sweep-result/1" and .model == "m" and .build == "text" and .target == "local"' r.json
    holds '.settings | .reduced and .repeats == 15 and .short_tokens == 16 and .long_tokens == 512 and .temperature == 0' r.json
    holds '(.short | length) == 15 and (.long | length) == 15 and all(.short[]; .completion_tokens == 16) and all(.long[]; .e2e_ms == 1034.5)' r.json
    holds '[.parallel[] | [.concurrency, .tokens, (.requests | length)]] == [[1, 64, 1], [4, 256, 4], [16, 1024, 16]]' r.json
    holds '[.parallel[].wall_ms] == [138.5, 141.5, 153.5]' r.json
    holds '(.questions | length) == 40 and ([.questions[] | select(.right)] | map(.id)) == ["mul-0"]' r.json
    holds '.questions[0].answer == " It is 1512.\n" and .questions[0].request.id == "mul-0"' r.json
    holds '.machine.cpu == "a cpu" and .engine.name == "gpu-serve" and .tool.version == "9.9.9"' r.json
    holds ".weights.bytes_on_disk == $(find build -type f -printf '%s\n' | jq -s add)" r.json
    holds '.weights.bytes_by_class | .embed == 524288 and .ple == 917504 and (has("file") | not)' r.json
    [ "$(echo r.json*)" = r.json ]
}

@test "every member that the schema requires is there, with its type" {
    measure
    holds "$(jq -r '
        def types: if .type then ([.type] | flatten | map(if . == "integer" then "number" else . end)) else null end;
        def check($path): (if types then "(\($path) | type | IN(\(types | map(tojson) | join(", "))))" else empty end),
            (select(.properties) | . as $s | .required[]? as $k | $s.properties[$k] | check($path + "[\"" + $k + "\"]"));
        [check(".")] | map(gsub("\\.\\["; ".[")) | join(" and ")' "$ROOT/data/result.schema.json")" r.json
}

@test "timed requests have fixed lengths; questions go one user message each" {
    measure
    # One more goes before the replies, to warm up, and is kept nowhere.
    [ "$(jq -s 'map(select(.ignore_eos)) | length' requests.jsonl)" = 52 ]
    [[ $(head -n 1 requests.jsonl | jq -r .id) = warm*-8-0 ]]
    holds '[.short[], .long[]] | length == 30 and all(.id | startswith("warm") | not)' r.json
    jq -es --slurpfile asked "$ROOT/data/questions.jsonl" \
        'map(select(.ignore_eos | not)) | map([.id, .messages]) == ($asked | map([.id, [{role: "user", content: .prompt}]]))' requests.jsonl
    [ "$(sort calls | uniq -c | tr -s ' ' | tr '\n' ';')" = " 4 --url http://127.0.0.1:9 --concurrency 1; 1 --url http://127.0.0.1:9 --concurrency 16; 1 --url http://127.0.0.1:9 --concurrency 4;" ]
}

@test "options replace the defaults, and the reduced ones are then not in force" {
    run -0 --separate-stderr measure --repeats 2 --short 4 --long 8 --concurrency 2 --batches 3 --parallel-tokens 5 --question-tokens 7
    [ -z "$stderr" ]
    holds '.settings | [.short_tokens, .long_tokens, .repeats, .concurrency, .batches, .parallel_tokens, .question_tokens, .reduced]
           == [4, 8, 2, [2], 3, 5, 7, false]' r.json
    holds '(.parallel | length) == 3 and (.short | length) == 2' r.json
}

@test "tabulate computes the published decode rate from it" {
    measure
    run -0 tabulate --format csv r.json
    [[ ${lines[1]} == m,text,local,500.000,1.0000,* ]]
}

@test "a failed request fails the measurement, and no result appears" {
    FAIL=1 run -69 --separate-stderr measure
    [[ $stderr == *"HTTP 500"* && $stderr == *"no result is written"* ]]
    [ -z "$(compgen -G 'r.json*')" ]
}

@test "a server that does not honour ignore_eos is found out" {
    CUT=1 run -65 --separate-stderr measure
    [[ $stderr == *"short-16-0: asked for 16 tokens, got 15"* ]]
    [ ! -e r.json ]
}

@test "what the server counts is kept, as differences; null without a page of metrics" {
    measure
    holds '.served == null and all(.parallel[]; has("served") and .served == null)' r.json
    # A curl whose page counts on: 10 tokens and 4 steps more each time, 2 requests that waited 3 ms in all.
    cat >bin/curl <<'F'
#!/bin/bash
[[ ${*: -1} = http://127.0.0.1:9/metrics ]] || exit 7
echo x >>pages; n=$(wc -l <pages); l='{engine="0",model_name="m"}'
printf '# HELP vllm:prompt_tokens_total x\nvllm:prompt_tokens_total%s %d\nvllm:generation_tokens_total%s %d\nq4sweep:steps_total%s %d\n' "$l" $((100 * n)) "$l" $((10 * n)) "$l" $((4 * n))
printf 'vllm:request_success_total{finished_reason="stop"} %d\nvllm:request_success_total{finished_reason="length"} %d\n' "$n" "$n"
printf 'vllm:request_queue_time_seconds_sum%s %s\nvllm:request_queue_time_seconds_count%s %d\n' "$l" "$(jq -n "$n * 0.003")" "$l" $((2 * n))
F
    chmod +x bin/curl
    PATH=$PWD/bin:$PATH measure
    # One page before, two for each of three batches, one after.
    [ "$(wc -l <pages)" = 8 ]
    holds '[.parallel[].served | [.requests, .prompt_tokens, .generated_tokens, .steps, .generated_per_step, (.queued_ms * 10 | round)]] == [range(3) | [2, 100, 10, 4, 2.5, 15]]' r.json
    holds '.served | [.requests, .generated_tokens, .steps] == [14, 70, 28]' r.json
}

@test "streams, long prompts, open loop: what was sent, what is kept" {
    whole --goodput ttft:50,e2e:500
    holds '.stream | map([.concurrency, (.requests | length)]) == [[1, 15], [4, 15], [16, 16]]' r.json
    holds '.stream[0].requests[0] | .ttft_ms == 12 and (.chunk_ms | length) == 32 and .completion_tokens == 32 and (has("text") or has("request") | not)' r.json
    holds '.prefill | map([.prompt_tokens, (.requests | length), .requests[0].prompt_tokens]) == [[512, 3, 512], [2048, 3, 2048]]' r.json
    # parallel reached 1024 tokens in 153.5 ms, replies have 32: 208.5 a second, and shares of it for two seconds
    holds '.load | map([.rate, (.requests | length)]) == [[52.117, 105], [104.235, 209], [156.352, 313], [208.469, 400], [260.586, 400]]' r.json
    grep -q -- '--stream --rate 52.117 --poisson$' calls
    holds '.settings.goodput == {ttft_ms: 50, e2e_ms: 500} and .ping_ms == [] and (.skipped[0] | startswith("ping: "))' r.json
    # No two prompts of these parts are the same, and none but the study's is used twice.
    [ "$(jq -c 'select(.id | test("^(stream|rate|warm|prompt)")) | .messages // .prompt_ids' requests.jsonl | sort | uniq -d | wc -l)" = 0 ]
    [ "$(jq -c 'select(.prompt_ids) | .prompt_ids[1:9]' requests.jsonl | sort -u | wc -l)" = 6 ]
    run -0 tabulate --table latency,load r.json
    [[ $output == *"| text | 512 | 1 | 3 | 12.0 | 12.0 | 12.0 | 2.00 | 2.00 | 2.00 |"* && $output == *"Good: TTFT \\<= 50 ms, E2E \\<= 500 ms."* ]]
}

@test "a server that counts no tokens of a stream: those parts are skipped, and the result says so" {
    sed -i 's/completion_tokens: (.max_tokens - $cut)/completion_tokens: (if $stream then null else .max_tokens end)/' bin/sm-invoke
    whole
    holds '.stream == [] and .prefill == [] and .load == [] and (.long | length) == 15' r.json
    holds '[.skipped[] | select(endswith(": the server does not count the tokens of a stream"))] | length == 10 and .[0] == "1 streams: the server does not count the tokens of a stream"' r.json
}

@test "a prompt that the server cannot take is skipped, and the result says so; requests that fail under load are kept" {
    jq '.engine.max_model_len = 1000' facts.json >f && mv f facts.json
    LOADFAIL=69 run -0 --separate-stderr whole --rates 5 --arrivals constant
    [[ $stderr = *"measure: text: load at 5 requests a second: 1 of 10 failed: more than the server takes; the result counts them"* ]]
    grep -q -- '--stream --rate 5$' calls
    holds '(.prefill | length) == 1 and any(.skipped[]; . == "prompts of 2048 tokens: the server takes 1000") and (.load | map(.rate)) == [5]' r.json
    run -0 tabulate --table caveats r.json
    [[ $output == *"m text: not measured: prompts of 2048 tokens: the server takes 1000."* ]]
}

@test "a load that ends early, a server that is gone after it, a health page that answers no more: no result" {
    KILLED=1 run -69 --separate-stderr whole --parts load --rates 5
    [[ $stderr = *"measure: text: load at 5 requests a second: ended after 3 of 10: no result is written" && ! -e r.json ]]
    LOADFAIL=69 GONE=69 run -69 --separate-stderr whole --parts load --rates 5
    [[ $stderr = *"measure: text: a request failed: no result is written" && ! -e r.json ]]
    printf '%s\n' '#!/bin/bash' '[[ ${*: -1} = */ping ]] || exit 22' '[ "${*: -2:1}" = 10 ] || { printf "0.001\n0.002\n"; exit 22; }' >bin/curl
    chmod +x bin/curl
    PATH=$PWD/bin:$PATH run -69 --separate-stderr whole --parts ping
    [[ $stderr = *"measure: text: /ping answers no more: no result is written" && ! -e r.json ]]
}

@test "where an hour costs something: five repeats and the study's parts, unless asked" {
    jq '.machine.usd_per_hour = 1.5' facts.json >f && mv f facts.json
    whole
    holds '(.short | length) == 5 and .stream == [] and .load == [] and .settings.parts == ["replies", "parallel", "questions", "ping"]' r.json
    whole --repeats 2 --parts replies,stream
    holds '(.short | length) == 2 and (.stream | length) == 3 and .parallel == []' r.json
}

@test "a pair: two builds in turns, reply by reply, each with a result of its own" {
    sed '/^cat >/,$d' bin/sm-invoke >f
    cat >>f <<'F'
while IFS= read -r line; do
    echo "$2 $(jq -r .id <<<"$line")" >>turns
    jq -c '{id, sent_ms: 1, e2e_ms: (2 * .max_tokens), completion_tokens: .max_tokens, text: "x"}' <<<"$line"
done
F
    mv f bin/sm-invoke
    chmod +x bin/sm-invoke
    cp -r build other
    "$ROOT/pipelines/measure" --parts replies --repeats 2 --url http://a --facts facts.json --model m --build text --target local -o a.json build \
        --pair --url http://b --facts facts.json --build emb4 -o b.json other
    sed -i -E 's/ warm[0-9]+-/ warm-/' turns
    diff turns - <<'T'
http://a warm-8-0
http://b warm-8-0
http://a short-16-0
http://b short-16-0
http://a long-512-0
http://b long-512-0
http://a short-16-1
http://b short-16-1
http://a long-512-1
http://b long-512-1
T
    holds '.build == "text" and .settings.pair and (.long | length) == 2' a.json
    holds '.build == "emb4" and .model == "m" and .target == "local" and (.short | length) == 2' b.json
    run -64 "$ROOT/pipelines/measure" --parts replies --url http://a --facts facts.json --model m --build text --target local -o a.json build \
        --pair --url http://b --facts facts.json --build emb4 -o a.json other
}

@test "mistakes" {
    run -64 measure --repeats 0
    run -64 measure --repeats x
    run -64 measure --concurrency 1,,2
    run -64 measure --nonsense
    run -64 measure --nonsense x
    run -64 measure --parts replies,sleep
    run -64 measure --rates fast
    run -64 measure --goodput 5
    run -64 measure --goodput ttft:1.2.3
    run -64 measure --rates 1,.
    run -64 measure --rates 1,0.0
    run -64 measure --rates 01
    run -64 measure --warmup 08
    run -64 measure --concurrency 5000
    run -64 measure --prompts 512,
    run -64 measure --long 16
    run -64 measure build
    run -64 "$ROOT/pipelines/measure"
    echo '{}' >facts.json
    run -65 measure
    [ ! -e r.json ]
}

@test "where the result cannot be written is said before anything is measured; facts may come through a pipe" {
    into() { "$ROOT/pipelines/measure" --url http://127.0.0.1:9 --facts facts.json --model m --build text --parts questions -o "$1" build; }
    mkdir results
    run -64 --separate-stderr into results
    [[ $stderr = "measure: -o results: is there and no file: name a file" ]]
    run -64 into /dev/null
    run -74 --separate-stderr into no/where.json
    [[ $stderr = *"measure: -o no/where.json: cannot be written there"* && ! -e calls ]]
    only_holds results
    "$ROOT/pipelines/measure" --url http://127.0.0.1:9 --facts <(cat facts.json) --model m --build text --parts questions -o piped.json build
    holds '.machine.cpu == "a cpu" and (.questions | length) == 40' piped.json
    [ -z "$(find . -name '*.part.*')" ]
}

# --- targets/local ---

# A server that prints its URL and waits as --until-eof asks.
waiting_server() {
    cat >bin/gpu-serve <<'F'
#!/bin/bash
[ "$1" != --version ] || { echo "gpu-serve (q4sweep) 9.9.9, test"; exit; }
echo "$*" >options
[ ! -e broken ] || { echo "gpu-serve: config.json: broken" >&2; exit 65; }
echo "INFO LLM engine (v9) with config: model='x', max_seq_len=128, device_config=cpu, math=exact, simd=avx2, threads=2" >&2
echo "INFO GPU KV cache size: 4,096 tokens, Maximum concurrency for 128 tokens per request: 32.00x" >&2
echo "INFO Memory read: 31.5 GB/s (the weights of a token, plainly read by 2 threads)" >&2
sleep 0.2
echo "http://127.0.0.1:12345"
case " $* " in *" --until-eof "*) exec cat >/dev/null ;; *) exec sleep 1000 ;; esac
F
    chmod +x bin/*
    export Q4STATE=$PWD/state
    local=$ROOT/pipelines/targets/local
}

pid_of() { cut -d ' ' -f 1 state/pid; }
gone() { for _ in $(seq 60); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.05; done; return 1; }

@test "local: up, url, facts, down" {
    waiting_server
    "$local" up build --some-option 3>&-
    [ "$(cat options)" = "--model build --port 0 --some-option" ]
    [ "$("$local" url)" = http://127.0.0.1:12345 ]
    "$local" facts >f.json
    holds '.engine.name == "gpu-serve" and .engine.version == "9.9.9" and .engine.device == "cpu" and .engine.threads == 2
           and .engine.kv_tokens == 4096 and .engine.max_concurrency == 32 and .engine.load_s == null and .machine.cpus >= 1
           and .machine.memory_gb_per_s == 31.5' f.json
    pid=$(pid_of)
    run -64 "$local" up build
    [[ $output == *"is up already"* ]]
    kill -0 "$pid"
    "$local" down
    gone "$pid"
    "$local" down
    run -66 "$local" url
    run -66 "$local" facts
}

@test "local: --until-eof ends the server when its input ends" {
    waiting_server
    mkfifo hold
    exec 8<>hold
    "$local" up build --until-eof <hold 8>&- 3>&-
    pid=$(pid_of)
    sleep 0.3
    kill -0 "$pid"
    exec 8>&-
    gone "$pid"
    run -66 "$local" url
    "$local" down
}

@test "local: a server that does not start is an error with its reason and status" {
    waiting_server
    touch broken
    run -65 --separate-stderr "$local" up build
    [[ $stderr == *"config.json: broken"*"ended before it was ready"* ]]
    run -66 "$local" up nowhere
    run -64 "$local" sideways
    run -66 "$local" url
}

@test "local: a recorded number that belongs to another process by now is left alone" {
    waiting_server
    "$local" up build --until-eof </dev/null 3>&- || true
    sleep 1000 3>&- &
    echo "$! 1" >state/pid
    "$local" down
    kill "$!"
}

# --- targets/server ---

@test "server: the build's name is one word of the command, whatever is in it; what is no time to wait is refused" {
    local odd=$'a&touch ran; b c\\d"e\'{port}f'
    mkdir "$odd"
    export Q4STATE=$PWD/state SERVER='printf "%s\n" {build} >args; exit 3; : {port}'
    run -3 --separate-stderr "$ROOT/pipelines/targets/server" up "$odd"
    [ "$(cat args)" = "$odd" ]
    [ ! -e ran ]
    SERVER_WAIT=08 run -64 --separate-stderr "$ROOT/pipelines/targets/server" up "$odd"
    [[ $stderr = "server: SERVER_WAIT 08: expected seconds, 1 to 999999" ]]
    for url in http HTTP; do
        SERVER=$url://u:secret@127.0.0.1:9 run -64 --separate-stderr "$ROOT/pipelines/targets/server" name
        [[ $stderr = "server: SERVER: a user or password in its URL would stand in results"* && $stderr$output != *secret* ]]
    done
}
