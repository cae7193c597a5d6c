#!/usr/bin/env bats
# sm-mcp: the protocol over scripted input, good and broken; tools as processes (stand-ins that log what they were given); the real programs; the official SDK's client.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" XDG_STATE_HOME
    need_program sm-mcp
    SERVER=$BIN/sm-mcp
}

teardown() { [ -z "${MCP:-}" ] || kill -9 "$MCP" 2>/dev/null || true; }

# --- a session ---

# Answers go to the file `out`; messages to fd 9.
start() {       # [VERSION]
    mkfifo in
    env --default-signal=INT,TERM,HUP "$SERVER" --out results <in >out 2>err 3>&- &
    MCP=$!
    exec 9>in
    [ -z "${1:-}" ] || { hello "$1"; got init; }
}

say() { printf '%s\n' "$1" >&9; }

hello() { say '{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"'"$1"'","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}'; }

ask() { say "$(jq -nc --argjson id "$1" --arg method "$2" --argjson params "${3:-null}" '{jsonrpc: "2.0", $id, $method} + if $params then {$params} else {} end')"; }     # ID METHOD [PARAMS]

call() {        # ID TOOL [ARGUMENTS [META]]
    ask "$1" tools/call "$(jq -nc --arg name "$2" --argjson arguments "${3:-{\}}" --argjson meta "${4:-null}" '{$name, $arguments} + if $meta then {_meta: $meta} else {} end')"
}

# Wait until a message holds; print it.
want() {        # FILTER: a condition on one message
    local i
    for ((i = 0; i < 400; i++)); do
        if jq -cR "fromjson? | select($1)" out | grep -m 1 .; then return 0; fi
        sleep 0.05
    done
    echo "no message with $1 in:" >&2
    cut -c 1-400 out >&2
    return 1
}

got() { want ".id == ${2:-\"$1\"}"; }       # the answer to an id that is a string (or JSON as second argument)
answer() { want "type == \"object\" and .id == $1"; }
until_file() { for _ in $(seq 400); do [ ! -s "$1" ] || return 0; sleep 0.05; done; return 1; }
until_dead() { for _ in $(seq 200); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.05; done; return 1; }

end() {         # close its input; STATUS
    exec 9>&-
    STATUS=0
    wait "$MCP" || STATUS=$?
    MCP=
    ! grep -E 'Sanitizer|runtime error' err || false
}

# sm-mcp among stand-ins that log their arguments, one a line, to calls.log; `slow` programs wait until they are told to end, and say so.
stand_ins() {
    local p
    mkdir -p project/bin project/pipelines project/data
    cp "$BIN/sm-mcp" project/bin/
    for p in bin/sm-endpoint bin/sm-invoke bin/ct-check bin/tabulate pipelines/publish pipelines/emb4 pipelines/measure pipelines/status; do
        cat >"project/$p" <<F
#!/bin/bash
{ echo "== $(basename "$p")"; printf '%s\n' "\$@"; } >>'$PWD/calls.log'
if [ -e '$PWD/slow' ] && [ "\$1" != delete ]; then
    trap 'echo cleaned >>"$PWD/calls.log"; kill \$!; exit 143' TERM
    echo "looking busy" >&2
    echo \$\$ >'$PWD/child'
    sleep 60 & wait
fi
[ ! -e '$PWD/fails' ] || { echo "$(basename "$p"): this is why" >&2; exit 65; }
cat >'$PWD/stdin'
echo '{"done": true}'
F
        chmod +x "project/$p"
    done
    SERVER=$PWD/project/bin/sm-mcp
}

calls() { tr '\n' ' ' <calls.log; }

UP='{"name":"demo","model":"s3://b/m/","instances":["ml.g6.xlarge","ml.g6.2xlarge"],"regions":["us-east-2","us-west-2"],"role":"arn:aws:iam::123456789012:role/x"}'

# --- the protocol ---

@test "every version is answered with itself, an unknown one with the newest" {
    local v
    for v in 2024-11-05 2025-03-26 2025-06-18 2025-11-25 1999-01-01; do
        printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"'$v'","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}' | "$SERVER" >out
        holds '.result | .serverInfo.name == "sm-mcp" and .capabilities.tools and .capabilities.resources' out
        [ "$(jq -r .result.protocolVersion out)" = "$(if [ $v = 1999-01-01 ]; then echo 2025-11-25; else echo $v; fi)" ]
    done
}

@test "what is unknown is -32601, before initialize too; ping is answered at any time; the rest waits for initialize" {
    start
    ask 1 server/discover '{"_meta":{}}'
    answer 1 | holds '.error.code == -32601'
    ask 2 ping
    answer 2 | holds '.result == {}'
    ask 3 tools/list
    answer 3 | holds '.error.code == -32600'
    hello 2025-06-18
    got init
    ask 4 prompts/list
    answer 4 | holds '.error.code == -32601'
    ask 5 initialize '{"protocolVersion":"2025-06-18"}'
    answer 5 | holds '.error.code == -32600'
    say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    say '{"jsonrpc":"2.0","method":"notifications/no-such"}'
    say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}'
    say '{"jsonrpc":"2.0","id":9,"result":{}}'
    ask 6 ping
    answer 6 | holds '.result == {}'
    [ "$(wc -l <out)" -eq 7 ]
    end
    [ "$STATUS" -eq 0 ]
}

@test "broken input of every kind is answered, and the next message is read" {
    local line
    start 2025-06-18
    printf '{bad\n\n  \r\n\377\376\001\000\n{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}\n' >&9
    head -c 5000000 /dev/zero | tr '\0' 'x' >&9
    say ''
    for line in 7 '"x"' null '{}' '{"jsonrpc":"1.0","id":1,"method":"ping"}' '{"jsonrpc":"2.0","id":null,"method":"ping"}' '{"jsonrpc":"2.0","id":1.5,"method":"ping"}' \
        '{"jsonrpc":"2.0","id":[],"method":"ping"}' '{"jsonrpc":"2.0","id":1,"method":7}' "$(printf '[%.0s' $(seq 3000))"; do
        say "$line"
    done
    say '{"jsonrpc":"2.0","id":20,"method":"tools/list","params":[1]}'
    say '{"jsonrpc":"2.0","id":21,"method":"tools/list","params":{"cursor":"x"}}'
    say '{"jsonrpc":"2.0","id":22,"method":"tools/call","params":{"name":7}}'
    say '{"jsonrpc":"2.0","id":23,"method":"tools/call","params":{"name":"check","arguments":[]}}'
    say '{"jsonrpc":"2.0","id":24,"method":"resources/read","params":{"uri":"q4sweep:///published/../../etc/passwd"}}'
    say '{"jsonrpc":"2.0","id":25,"method":"tools/call","params":{"name":"no-such"}}'
    ask '"last"' ping
    got last | holds '.result == {}'
    [ "$(jq -s 'map(select(.error.code == -32700)) | length' out)" -eq 5 ]
    [ "$(jq -s 'map(select(.error.code == -32600)) | length' out)" -eq 9 ]
    [ "$(jq -s -c 'map(select(.error.code == -32602)) | map(.id)' out)" = '[20,21,22,23,25]' ]
    answer 24 | holds '.error.code == -32002'
    end
    [ "$STATUS" -eq 0 ]
}

@test "a last message without a newline counts; one that is cut is -32700 and 65" {
    printf '{"jsonrpc":"2.0","id":1,"method":"ping"}' | "$SERVER" >out
    holds '.result == {}' out
    run -65 --separate-stderr "$SERVER" <<<'' < <(printf '{"jsonrpc":"2.0","id":1,"meth')
    [[ $output = *-32700* && $stderr = "sm-mcp: stdin: ended within a message" ]]
}

@test "arrays of messages: answered together until 2025-03-26, refused from 2025-06-18" {
    stand_ins
    start 2025-03-26
    say '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check","arguments":{"build":"b"}}},{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-03-26"}},7]'
    want 'type == "array"' | holds 'length == 4 and (map(.id) | sort) == [null, 1, 2, 3] and ([.[] | .error.code // empty] | sort) == [-32600, -32600]'
    say '[]'
    want '.error.message == "an empty array"'
    say '[{"jsonrpc":"2.0","method":"notifications/x"}]'
    ask 5 ping
    answer 5
    [ "$(wc -l <out)" -eq 4 ]
    end
    rm in
    start 2025-06-18
    say '[{"jsonrpc":"2.0","id":1,"method":"ping"}]'
    want '.error.code == -32600 and .id == null'
    end
}

@test "a client that does not read stops nothing but the answers" {
    local i
    stand_ins
    mkfifo in held
    "$SERVER" <in >held 2>err 3>&- &
    MCP=$!
    exec 9>in 8<held
    hello 2025-06-18
    for ((i = 0; i < 60; i++)); do ask "$i" tools/list; done        # more than a pipe holds
    call 100 check '{"build":"b"}'
    until_file calls.log
    exec 9>&-
    [ "$(cat <&8 | wc -l)" -eq 62 ]
    wait "$MCP"
    MCP=
}

# --- tools ---

@test "the tools: strict schemas; what costs, publishes or deletes says so and asks" {
    start 2025-06-18
    ask 1 tools/list
    answer 1 >list
    [ "$(jq -c '.result.tools | map(.name) | sort' list)" = '["check","delete","facts","image","invoke","list","logs","measure","publish","quota","repack","status","sweep_status","tabulate","up","wait"]' ]
    holds '.result.tools | all(.inputSchema.type == "object" and .inputSchema.additionalProperties == false and (.description | length) > 20)' list
    holds '[.result.tools[] | select(.annotations.destructiveHint) | .name] | sort == ["delete", "publish", "up"]' list
    holds '.result.tools | all((.annotations.destructiveHint and (.inputSchema.required | index("confirm")) != null) or .inputSchema.properties.confirm == null)' list
    holds '[.result.tools[] | select(.annotations.readOnlyHint and .annotations.destructiveHint)] == []' list
    end
}

@test "wrong arguments: -32602 until 2025-06-18, an error of the tool from 2025-11-25; nothing is run" {
    local v i arguments
    stand_ins
    cat >wrong <<'F'
check {}
check {"build":7}
check {"build":"b","bogus":1}
check {"build":"--against"}
check {"build":"a\u0000b"}
check {"build":"a\nb"}
check {"build":"b","strict":"yes"}
repack {"recipe":"text4","source":"s","out":"o"}
repack {"recipe":"../bin/ct-check","source":"s","out":"o"}
repack {"recipe":"emb4","source":"s","out":"o","scale_dtype":"f32"}
status {"name":"a;b"}
status {"name":"-x"}
status {"name":"a","region":"us-east-2;x"}
logs {"name":"a","lines":0}
logs {"name":"a","lines":1.5}
invoke {"url":"file:///etc/passwd","prompt":"x"}
invoke {"url":"http://h","prompt":"x","messages":[{}]}
invoke {"url":"http://h","endpoint":"e","prompt":"x"}
invoke {"url":"http://h"}
invoke {"url":"http://h","requests":["x"]}
invoke {"url":"http://h","prompt":"x","temperature":-1}
tabulate {"results":[]}
tabulate {"results":"a"}
tabulate {"results":["a"],"tables":["a,b"]}
list {"regions":["us-east-2,us-west-2"]}
publish {"build":"b","place":"ftp://x","confirm":true}
measure {"build":"b","url":"http://h","model":"m","label":"b","result":"wrong"}
delete {"name":"a","confirm":"yes"}
F
    for name in HF_TOKEN hf_token Db_Password; do jq -c --arg n $name '.env = ["\($n)=hf_secret"] | .confirm = true' <<<"$UP" | sed 's/^/up /' >>wrong; done
    jq -c '.env = ["AWS_SECRET_ACCESS_KEY"] | .confirm = true' <<<"$UP" | sed 's/^/up /' >>wrong
    for v in 2025-06-18 2025-11-25; do
        rm -f in
        start $v
        i=0
        while read -r tool arguments; do
            i=$((i + 1))
            call $i "$tool" "$arguments"
            if [ $v = 2025-06-18 ]; then answer $i | holds '.error.code == -32602'; else answer $i | holds '.result.isError'; fi
        done <wrong
        [ $i -eq 32 ]
        end
    done
    [ ! -e calls.log ]
    ! grep hf_secret out || false
}

@test "without confirm nothing that costs, publishes or deletes is run" {
    stand_ins
    start 2025-06-18
    call 1 up "$UP"
    call 2 delete '{"name":"demo"}'
    call 3 publish '{"build":"b","place":"hf://o/n","confirm":false}'
    for id in 1 2 3; do answer $id | holds '.result.isError and (.result.content[0].text | test("\"confirm\": true"))'; done
    end
    [ ! -e calls.log ]
}

@test "arguments reach the programs as they are, through no shell" {
    stand_ins
    start 2025-06-18
    check() { rm -f calls.log; call "$1" "$2" "$3"; answer "$1" | holds '.result.isError == false'; [ "$(calls)" = "$4 " ] || { calls >&2; return 1; }; }
    check 1 repack '{"recipe":"emb4","source":"a b$(touch x);`y`","out":"ö*","scale_dtype":"f16","dry_run":true}' '== emb4 --scale-dtype f16 --dry-run a b$(touch x);`y` ö*'
    check 2 check '{"build":"b","against":"s"}' '== ct-check --json --against s b'
    check 3 publish '{"build":"b","place":"hf://o/n","results":["r.json","q.json"],"confirm":true}' '== publish --results r.json --results q.json b hf://o/n'
    check 4 up "$(jq -c '. + {confirm: true, no_wait: true, env: ["A=b c", "HF_TOKEN"], image: "r/i:t"}' <<<"$UP")" \
        "== sm-endpoint guard --keep -q -- $PWD/project/bin/sm-endpoint up --json --model s3://b/m/ --instance ml.g6.xlarge,ml.g6.2xlarge --region us-east-2,us-west-2 --role arn:aws:iam::123456789012:role/x --image r/i:t --env A=b c --env HF_TOKEN --expires 2h --no-wait demo"
    check 5 wait '{"name":"demo@us-east-2","timeout":60}' '== sm-endpoint wait --json --timeout 60 demo@us-east-2'
    check 6 delete '{"name":"demo","regions":["us-east-2"],"confirm":true}' '== sm-endpoint delete --region us-east-2 demo'
    check 7 quota '{"instances":["ml.g6.xlarge"]}' '== sm-endpoint quota --json --instance ml.g6.xlarge'
    check 8 measure '{"build":"b","endpoint":"demo@us-east-2","model":"m","label":"emb4","result":"r.json","parts":["replies","questions"],"repeats":3}' \
        '== measure --url demo@us-east-2 --model m --build emb4 -o r.json --parts replies,questions --repeats 3 b'
    check 9 tabulate '{"results":["a","b"],"format":"csv","baseline":"text"}' '== tabulate --format csv --baseline text a b'
    check 10 sweep_status '{}' '== status results'
    check 11 invoke '{"url":"http://h:1","prompt":"a\n\"b\"","max_tokens":5,"temperature":0}' '== sm-invoke --url http://h:1'
    holds '.prompt == "a\n\"b\"" and .max_tokens == 5 and .temperature == 0' stdin
    check 12 invoke '{"endpoint":"e","requests":[{"id":1,"prompt":"x"},{"id":2,"prompt":"y"}],"concurrency":2,"stream":true}' '== sm-invoke --endpoint e --stream --concurrency 2'
    [ "$(jq -s 'map(.id)' -c stdin)" = '[1,2]' ]
    [ ! -e x ]
    end
}

@test "a program that fails is an error of the tool, with its message and exit status" {
    stand_ins
    touch fails
    start 2025-11-25
    call 1 check '{"build":"b"}'
    answer 1 | holds '.result | .isError and .content[0].text == "ct-check: this is why\n" and .structuredContent.exit_status == 65'
    rm project/bin/tabulate
    call 2 tabulate '{"results":["r"]}'
    answer 2 | holds '.result | .isError and (.content[0].text | test("No such file"))'
    end
}

# --- long work ---

@test "while a tool works the server answers and tells of its progress; cancelled, the program cleans up and no answer comes" {
    stand_ins
    touch slow
    start 2025-06-18
    call 1 repack '{"recipe":"emb4","source":"s","out":"o"}' '{"progressToken":"p"}'
    want '.method == "notifications/progress" and .params.progressToken == "p" and .params.message == "looking busy" and .params.progress > 0'
    ask 2 ping
    answer 2 | holds '.result == {}'
    call 1 check '{"build":"b"}'
    want '.id == 1 and .error.code == -32600'           # its id is in use
    say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}'
    until_dead "$(cat child)"
    grep -x cleaned calls.log
    rm slow
    call 3 check '{"build":"b"}'
    answer 3 | holds '.result.structuredContent.lines == [{"done": true}]'
    [ "$(jq -s 'map(select(.id == 1)) | length' out)" -eq 1 ]
    holds 'select(.method) | .params.progress' <(jq -c 'select(.method == "notifications/progress")' out)
    [ "$(jq -c 'select(.method) | .params.progress' out | sort -g | uniq -d | wc -l)" -eq 0 ]
    end
    [ "$STATUS" -eq 0 ]
}

@test "the end of input in mid-work: programs are told to end and clean up; 0" {
    stand_ins
    touch slow
    start 2025-06-18
    call 1 repack '{"recipe":"emb4","source":"s","out":"o"}'
    call 2 measure '{"build":"b","url":"http://h","model":"m","label":"b","result":"r.json"}'
    for _ in $(seq 100); do [ "$(grep -c == calls.log)" = 2 ] && break; sleep 0.05; done
    until_file child
    sleep 0.3
    end
    [ "$STATUS" -eq 0 ]
    [ "$(grep -cx cleaned calls.log)" -eq 2 ]
}

@test "a call that is quick is still answered when the input has ended" {
    stand_ins
    printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}' \
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"check","arguments":{"build":"b"}}}' | "$SERVER" >out
    holds 'select(.id == 2) | .result.isError == false' <(tail -n 1 out)
}

@test "signals in mid-work: programs clean up, 128+n; killed outright, they end as well" {
    local signal
    for signal in TERM INT HUP KILL; do
        rm -rf project calls.log child in
        stand_ins
        touch slow
        start 2025-06-18
        call 1 repack '{"recipe":"emb4","source":"s","out":"o"}'
        until_file child
        sleep 0.2
        kill -$signal "$MCP"
        STATUS=0
        wait "$MCP" || STATUS=$?
        [ "$STATUS" -eq $((128 + $(kill -l $signal))) ]
        until_dead "$(cat child)"
        grep -x cleaned calls.log
        exec 9>&-
    done
}

# --- the real programs ---

@test "real: repack, check, tabulate, sweep status, results as resources" {
    need_program st-extract q4-regrid emb-untie ct-pack ct-check tabulate
    local source key=0
    source=$(model e2b)
    start 2025-11-25
    call 1 repack "{\"recipe\":\"emb4\",\"source\":\"$source\",\"out\":\"emb4\"}"
    answer 1 | holds '.result.isError == false'
    [ -e emb4/config.json ]
    call 2 check "{\"build\":\"emb4\",\"against\":\"$source\"}"
    answer 2 | holds '.result.isError == false and .result.structuredContent.exit_status == 0'
    call 3 repack "{\"recipe\":\"emb4\",\"source\":\"$source\",\"out\":\"emb4\"}"
    answer 3 | holds '.result.isError and (.result.content[0].text | test("exists"))'
    mv emb4/model.safetensors emb4/gone
    call 4 check '{"build":"emb4"}'
    answer 4 | holds '.result.isError == false and .result.structuredContent.exit_status == 1'       # no is an answer
    call 5 tabulate "{\"results\":[\"$ROOT/data/published/e2b-emb4.json\",\"$ROOT/data/published/e2b-text.json\"],\"tables\":[\"summary\"]}"
    answer 5 | holds '.result.content[0].text | test("\\| emb4 \\| 141\\.7 \\|")'
    mkdir -p 'results/my model'
    cp "$ROOT/data/published/e2b-emb4.json" 'results/my model/emb4-1.2.json'
    ln -s emb4-1.2.json 'results/my model/emb4.json'
    call 6 sweep_status
    answer 6 | holds '.result.structuredContent.lines == [{"model":"my model","build":"emb4","state":"measured","step":null,"build_dir":null,"result":"results/my model/emb4.json","log":null}]'
    ask 7 resources/list
    answer 7 | holds '.result.resources | map(.uri) | index("q4sweep:///results/my%20model/emb4.json") == 0 and index("q4sweep:///published/e2b-emb4.json") > 0 and length > 20'
    ask 8 resources/read '{"uri":"q4sweep:///results/my%20model/emb4.json"}'
    answer 8 | holds '.result.contents[0] | .mimeType == "application/json" and (.text | fromjson.build) == "emb4"'
    ask 9 resources/templates/list
    answer 9 | holds '.result.resourceTemplates == []'
    end
}

@test "real: an endpoint's life through the tools, on sm-local" {
    need_program sm-local sm-endpoint sm-invoke gpu-serve st-extract q4-regrid emb-untie ct-pack ct-check
    local build
    build=$PWD/text
    "$ROOT/pipelines/text" "$(model e2b)" "$build"
    ct-check "$build" --against "$(model e2b)" >/dev/null
    "$BIN/sm-local" --port 0 --state account >url 2>local.log 3>&- </dev/null &
    local cloud=$!
    until_file url
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY XDG_STATE_HOME=$PWD/journal AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-2
    curl -s -X PUT --aws-sigv4 aws:amz:us-east-2:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL/builds"
    start 2025-11-25
    call 1 publish "{\"build\":\"$build\",\"place\":\"s3://builds/text\",\"confirm\":true}"
    answer 1 | holds '.result.isError == false'
    call 2 up '{"name":"demo","model":"s3://builds/text/","instances":["ml.g6.xlarge"],"regions":["us-east-2"],"role":"arn:aws:iam::123456789012:role/q4","confirm":true}' '{"progressToken":1}'
    answer 2 | holds '.result.structuredContent.lines[0] | .state == "InService" and .instance == "ml.g6.xlarge"'
    want '.method == "notifications/progress"'
    call 3 list
    answer 3 | holds '.result.structuredContent.lines | length == 1 and .[0].name == "demo"'
    call 4 invoke '{"endpoint":"demo@us-east-2","prompt":"Hello","max_tokens":4}'
    answer 4 | holds '.result.structuredContent.lines[0] | .status == 200 and .completion_tokens == 4'
    call 5 facts '{"name":"demo"}'
    answer 5 | holds '.result.structuredContent.lines[0].kv_tokens > 0'
    call 6 logs '{"name":"demo","lines":2}'
    answer 6 | holds '.result.content[0].text | split("\n") | map(select(. != "")) | length == 2'
    call 7 delete '{"name":"demo","confirm":true}'
    answer 7 | holds '.result.isError == false'
    call 8 list
    answer 8 | holds '.result.isError == false and .result.content[0].text == "done: no output"'
    end
    kill "$cloud"
    ! grep -rF "$AWS_SECRET_ACCESS_KEY" out err journal || false
}

@test "real: cancelled, or the server killed outright while an endpoint comes up: its guard's watcher deletes it" {
    need_program sm-local sm-endpoint
    local what
    "$BIN/sm-local" --port 0 --state account --speed 480 --fault lag:20m >url 2>local.log 3>&- </dev/null &
    local cloud=$!
    until_file url
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY XDG_STATE_HOME=$PWD/journal AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-2
    left() { jq '[.regions[]? | .endpoint, ."endpoint-config", .model, .schedule | length] | add // 0' account/state.json; }
    for what in cancel kill; do
        rm -f in
        start 2025-11-25
        call 1 up '{"name":"demo","model":"google/x","instances":["ml.g6.xlarge"],"regions":["us-east-2"],"role":"arn:aws:iam::123456789012:role/q4","confirm":true}'
        for _ in $(seq 400); do ! jq -e '.regions[].endpoint.demo' account/state.json >/dev/null 2>&1 || break; sleep 0.05; done
        [ "$(left)" = 4 ]
        if [ $what = kill ]; then kill -9 "$MCP"; else say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'; fi
        for _ in $(seq 400); do [ "$(left)" != 0 ] || break; sleep 0.1; done
        [ "$(left)" = 0 ]
        exec 9>&-
        wait "$MCP" || true
    done
    for _ in $(seq 100); do ! compgen -G 'journal/q4sweep/guard-*' >/dev/null || sleep 0.1; done       # the watchers' locks and logs go with them
    kill "$cloud"
    jq -se 'map(select(.event == "gone")) | length == 2' journal/q4sweep/journal.jsonl
}

@test "the official SDK's client: negotiation, tools, a call, a refusal, a resource, progress, a cancelled call" {
    need_peer mcp
    stand_ins
    rm -r project/bin/tabulate project/data
    cp "$BIN/tabulate" project/bin/
    cp -r "$ROOT/data" project/
    run -0 --separate-stderr "$PEER" "$ROOT/tests/peers/mcp_check.py" "$SERVER" project/data/published/e2b-emb4.json slow calls.log
    holds '.tools == 16 and .called and .refused and .resource and .progress > 0 and .cancelled and (.protocol | startswith("2025-"))' <(echo "$output")
}
