# What serves and what calls a server, with one call failing: the n-th read, write, open, allocation, transfer, connection, thread or process …
# (tests/faults/shim.c; which of them: tests/faults/every.bash).  Whatever fails: no crash, no hang; an exit status that says so and a message, or
# the program went on, and then what it answered is the right answer or no complete one.  No file, process or endpoint is left.
load lib
load examples
load faults/runs
load faults/every

# Every kind of fault and the exit statuses that are an honest answer to it.
KINDS=(read write open map thread malloc recv send accept socket process)
declare -gA HONEST=([read]="66 74 75" [write]="74 75" [open]="66 69 74 75" [map]="74 75" [thread]="69 75" [malloc]="69 75" [recv]="69 75" [send]="69 75" [accept]="69 75"
    [socket]="69 75" [process]="69 74 75")

# --- a server with a fault in it --------------------------------------------------------------------------------------

# A run of the server in this directory; URL is what it prints, empty when it ended before.
serve_failing() {   # KIND WHICH
    [ -p stdout ] || mkfifo stdout
    start_failing "$@"
    URL=
    read -r -t 60 URL <stdout || true
}

end_server() {      # Sets STATUS
    kill "$UNDER_TEST" 2>/dev/null || true
    end_failing 60
}

# One HTTP exchange; REPLY is all that came.  False: no end within 20 s.
ask() {             # REQUEST-LINE [BODY]
    local host=${URL#http://} fd rc=0
    REPLY=
    # The message of a refused connection is bash's own.
    { exec {fd}<>"/dev/tcp/${host%:*}/${host##*:}"; } 2>/dev/null || return 0
    printf '%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "$1" "${#2}" "${2-}" 2>/dev/null >&"$fd" || true
    read -r -t 20 -d '' REPLY 2>/dev/null <&"$fd" || rc=$?
    exec {fd}>&-
    [ "$rc" -le 128 ]
}

# The text that a reply gives, its pieces put together; "incomplete" for any answer that nobody could take for a whole one.
text_of() {         # REPLY
    local reply=$1 text='' length
    [[ $reply = "HTTP/1.1 200"* && $reply != *'"error"'* ]] || { echo incomplete; return; }
    if [[ $reply = *text/event-stream* ]]; then
        [[ $reply = *"data: [DONE]"* ]] || { echo incomplete; return; }
    elif [[ $reply =~ Content-Length:\ ([0-9]+) ]]; then
        length=${BASH_REMATCH[1]}
        reply=${reply#*$'\r\n\r\n'}
        [ "${#reply}" -ge "$length" ] || { echo incomplete; return; }
    else
        # Begun in pieces, to see whether the client is there.
        [[ $reply = *$'\r\n0\r\n'* ]] || { echo incomplete; return; }
    fi
    while [[ $reply =~ \"text\":\"([^\"]*)\"(.*) ]]; do
        text+=${BASH_REMATCH[1]}
        reply=${BASH_REMATCH[2]}
    done
    echo "text: $text"
}

COMPLETION='{"prompt":"Hello","max_tokens":3,"temperature":0}'

ask_completions() { # What each of three requests got, in GOT
    GOT=()
    ask "GET /ping" || fault "$1: /ping hangs"
    ask "POST /invocations" "$COMPLETION" || fault "$1: a request hangs"
    GOT+=("$(text_of "$REPLY")")
    ask "POST /v1/completions" "${COMPLETION%\}},\"stream\":true}" || fault "$1: a stream hangs"
    GOT+=("$(text_of "$REPLY")")
}

# After every run: an honest exit status and a message; nothing failed, nothing but 0.
expect_ended_well() {   # WHAT HONEST-STATUSES
    local said
    mapfile -d '' -t said <stderr
    if [ ! -e fired ]; then
        expect_status 0 "no $1"
    elif [ "$STATUS" -ne 0 ]; then
        [[ " $2 " = *" $STATUS "* ]] || fault "$1: exit status $STATUS, expected one of: $2"
        [[ $'\n'${said[0]-} = *$'\n'"$PROGRAM: "* ]] || fault "$1: no message"
    fi
    [[ ${said[0]-} != *Sanitizer* && ${said[0]-} != *"runtime error"* ]] || fault "$1: a sanitizer's finding"
}

over_kinds() {      # RUN
    local kind
    for kind in "${KINDS[@]}"; do
        ! sanitized || [ "$kind" != malloc ] || continue
        each_call "$kind" "$1"
    done
}

judge_serving() {   # KIND WHICH
    local what="$1 $2 failed" i
    serve_failing "$@"
    if [ -n "$URL" ]; then
        ask_completions "$what"
        for i in 0 1; do
            [[ ${GOT[i]} = "${WANT[i]}" || (${GOT[i]} = incomplete && -e fired) ]] || fault "$what: answered ${GOT[i]}, expected ${WANT[i]}"
        done
    fi
    end_server
    expect_ended_well "$what" "${HONEST[$1]}"
    [ -n "$URL" ] || [ "$STATUS" -ne 0 ] || fault "$what: no URL, exit status 0"
    compare_names . stdout stderr tmp fired sites
    [ -z "$ODD" ] || fault "$what: left behind:$ODD"
}

@test "gpu-serve: whatever fails, an answer is right or none, and nothing hangs" {
    PROGRAM=gpu-serve ARGS=(--model "$(fixture build)" --port 0 --threads 2)
    begin_runs
    serve_failing none 0:0
    ask_completions "no fault"
    WANT=("${GOT[@]}")
    end_server
    [[ ${WANT[0]} = text:*[a-z]* && ${WANT[1]} = "${WANT[0]}" ]] || fault "without a fault: ${WANT[*]}"
    over_kinds judge_serving
    end_runs
    no_faults
}

# --- sm-local: the endpoint's life from up to delete, by an sm-endpoint in good health -----------------------------------

ROLE=arn:aws:iam::123456789012:role/q4
UP=(--model s3://models/build/ --instance ml.g6.xlarge --role "$ROLE" --image 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:x --expires 2h)

account() {         # What the clients of any sm-local need; which one is in the file `config`
    export XDG_STATE_HOME=$PWD/xdg AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=$PWD/config AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
}
account_at() { printf '[default]\nendpoint_url = %s\n' "$1" >config; }      # URL

buckets() { mkdir -p s3/models; ln -sfn "$(fixture build)" s3/models/build; }

no_process() {      # PATTERN: within 3 s; what waits to be run again does not count
    local i pids
    for ((i = 0; i < 60; i++)); do
        pids=$(pgrep -f -- "$1" || true)
        [ "${pids//${RUNS[.]}/}" ] || return 0
        sleep 0.05
    done
    return 1
}

# From up to delete.  Whatever of it fails, it ends.
endpoint_life() {   # WHAT
    LIFE=0
    account_at "$URL"
    rm -rf xdg
    { help_by up && help_by invoke "$PWD/requests"; } || LIFE=$?
    [ "$LIFE" -ne 137 ] || fault "$1: the client hangs"
    kill -0 "$UNDER_TEST" 2>/dev/null || return 0       # what has ended deletes nothing, however long one waits for it
    help_by delete || LIFE=$?
    [ "$LIFE" -ne 137 ] || fault "$1: deleting hangs"
}

judge_rehearsal() { # KIND WHICH
    local what="$1 $2 failed"
    [ ! -e state ] || rm -rf state
    serve_failing "$@"
    [ -z "$URL" ] || endpoint_life "$what"
    end_server
    expect_ended_well "$what" "${HONEST[$1]}"
    if [ -z "$URL" ]; then
        [ "$STATUS" -ne 0 ] || fault "$what: no URL, exit status 0"
        return
    fi
    [ -e fired ] || [ "$LIFE" -eq 0 ] || fault "no $what, and yet the endpoint's life did: $(cat up/stderr invoke/stderr delete/stderr)"
    no_process "gpu-serve.*$PWD/s3" || fault "$what: a container outlives it"
    compare_names tmp
    [ -z "$ODD" ] || fault "$what: left in TMPDIR:$ODD"
    compare_names state lock state.json logs s3
    [ -z "$ODD" ] || fault "$what: left in its state:$ODD"
    # What it leaves there is what it starts from again.
    [ ! -e fired ] || mv fired fired-before
    serve_failing none 0:0
    [ -n "$URL" ] || fault "$what: does not start again"
    end_server
    [ "$STATUS" -eq 0 ] || fault "$what: started again, exit status $STATUS"
    [ ! -e fired-before ] || mv fired-before fired
}

@test "sm-local: whatever fails, no container outlives it, and its state is sound" {
    buckets
    account
    account_at none
    echo '{"id":1,"prompt":"Hello","max_tokens":3}' >requests
    helper up sm-endpoint up victim "${UP[@]}" --poll 0.02 --timeout 5
    helper invoke sm-invoke --endpoint victim --timeout 5
    helper delete sm-endpoint delete victim --poll 0.02 --timeout 5
    PROGRAM=sm-local ARGS=(--port 0 --speed 100000 --state "$PWD/state" --s3 "$PWD/s3") STEPS=4
    begin_runs
    over_kinds judge_rehearsal
    end_runs
    no_faults
}

# --- sm-invoke --------------------------------------------------------------------------------------------------------

# Starts a server in good health that ends with the test.
healthy() {         # PROGRAM ARGUMENT…
    local program=$1
    shift
    mkfifo url hold
    exec {HOLD}<>hold           # some end with their stdin
    LD_PRELOAD=$SHIM "$program" "$@" <hold >url 2>peer-stderr 3>&- &
    PEERS+=" $!"
    read -r -t 30 URL <url
    rm url hold
}

# Every line as "id text" or "id error" into ANSWERS.
read_answers() {
    local line id text
    ANSWERS=()
    while read -r line; do
        [[ $line =~ ^\{\"id\":\"([^\"]*)\",.*\}$ ]] && id=${BASH_REMATCH[1]} || id="no line: $line"
        if [[ $line = *'"error":'[^n]* ]]; then text=error; elif [[ $line =~ \"text\":\"([^\"]*)\" ]]; then text=${BASH_REMATCH[1]}; else text="no text"; fi
        ANSWERS+=("$id $text")
    done <stdout
}

judge_invocation() {    # KIND WHICH
    local what="$1 $2 failed" i
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]} 65"
    read_answers
    [ "$STATUS" -ne 0 ] || [ "${#ANSWERS[@]}" -eq "${#WANT[@]}" ] || fault "$what: ${#ANSWERS[@]} answers, expected ${#WANT[@]}"
    for i in "${!ANSWERS[@]}"; do
        [ "${ANSWERS[i]}" = "${WANT[i]}" ] || [[ $STATUS -ne 0 && ${ANSWERS[i]} = "${WANT[i]%% *} error" ]] || fault "$what: exit status $STATUS and the answer ${ANSWERS[i]}"
    done
}

invoke_with_faults() {  # ARGUMENT…
    PROGRAM=sm-invoke STDIN=requests ARGS=("$@")
    begin_runs
    run_failing none 0:0 || true
    read_answers
    WANT=("${ANSWERS[@]}")
    [[ ${#WANT[@]} -eq 2 && ${WANT[0]} = "a "*[a-z]* && ${WANT[1]} = "b "*[a-z]* ]] || fault "without a fault: ${WANT[*]}"
    over_kinds judge_invocation
    end_runs
    no_faults
}

TWO_REQUESTS='{"id":"a","prompt":"Hello","max_tokens":3}
{"id":"b","prompt":"Hello","max_tokens":3,"stream":true}'

@test "sm-invoke --url: whatever fails, each line is the right answer or an error" {
    PROGRAM=sm-invoke
    echo "$TWO_REQUESTS" >requests
    healthy gpu-serve --model "$(fixture build)" --port 0
    invoke_with_faults --url "$URL"
}

@test "sm-invoke --endpoint: whatever fails, each line is the right answer or an error" {
    start_account
    timeout 60 sm-endpoint up base "${UP[@]}" --poll 0.02
    echo "$TWO_REQUESTS" >requests
    invoke_with_faults --endpoint base
}

# --- sm-endpoint ------------------------------------------------------------------------------------------------------

exists() { [[ $(<state/state.json) = *victim* ]]; }

gone_soon() {       # within 10 s
    local i
    for ((i = 0; i < 200; i++)); do exists || return 0; sleep 0.05; done
    return 1
}

start_account() {   # OPTION…
    PROGRAM=sm-endpoint STDIN=/dev/null SWEPT=0
    buckets
    healthy sm-local --port 0 --speed 100000 --state "$PWD/state" --s3 "$PWD/s3" "$@"
    account
    account_at "$URL"
    helper start sm-endpoint up victim "${UP[@]}" --no-wait
    helper delete sm-endpoint delete victim --poll 0.02
    helper sweep sm-endpoint guard --sweep-up --poll 0.02
}

# What a failed run left in the account stands in the journal, and the user is told.  That sweeping up by the journal removes it is tried now and then: it waits for a
# call that may be on its way, which a delete by name does not.
expect_journalled() {   # WHAT
    local line known=
    exists || return 0
    [[ ${ARGS[0]} = delete || $(<stderr) = *victim* ]] || fault "$1: something exists, and the message does not say so"
    while read -r line; do
        [[ $line != *victim* ]] || { [[ $line = *'"gone"'* ]] && known= || known=yes; }
    done <xdg/q4sweep/journal.jsonl
    [ "$known" ] || fault "$1: the journal does not know what exists"
    if [ $((SWEPT += 1)) -eq 1 ] || [ $((SWEPT % 50)) -eq 0 ]; then
        help_by sweep || fault "$1: sweeping up failed: $(cat sweep/stderr)"
    else
        help_by delete || fault "$1: cannot be deleted: $(cat delete/stderr)"
    fi
    gone_soon || fault "$1: does not go away"
}

judge_up() {        # KIND WHICH
    local what="$1 $2 failed"
    [ ! -e xdg ] || rm -rf xdg
    ! exists || help_by delete || fault "before $1 $2: cannot be deleted: $(cat delete/stderr)"
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    if [ "$STATUS" -eq 0 ]; then
        exists || fault "$what: exit status 0, and nothing is up"
        help_by delete || fault "$what: cannot be deleted: $(cat delete/stderr)"
        gone_soon || fault "$what: does not go away"
    else
        expect_journalled "$what"
    fi
}

judge_delete() {    # KIND WHICH
    local what="$1 $2 failed"
    exists || { rm -rf xdg; help_by start; }
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    if [ "$STATUS" -eq 0 ]; then
        ! exists || fault "$what: exit status 0, and it is still there"
    elif [ $((COUNT += 1)) -gt 20 ]; then
        # Most fail before anything is deleted: then the next may try the same one.
        COUNT=0
        expect_journalled "$what"
    fi
}

@test "sm-endpoint up: whatever fails, what exists is in the journal, and the message says so" {
    start_account --fault capacity      # it fails at once: nothing to wait for
    ARGS=(up victim "${UP[@]}" --no-wait)
    begin_runs
    over_kinds judge_up
    end_runs
    no_faults
}

@test "sm-endpoint delete: whatever fails, it is gone or still in the journal" {
    COUNT=0
    start_account --fault capacity
    ARGS=(delete victim --poll 0.02 --timeout 5)
    begin_runs
    over_kinds judge_delete
    expect_journalled "after all"
    end_runs
    no_faults
}

judge_guard() {     # KIND WHICH
    local what="$1 $2 failed"
    [ ! -e xdg ] || rm -rf xdg
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    gone_soon || fault "$what: still there"
    no_process "guard .*$PWD/sm-endpoint" || fault "$what: a watcher stays"
    exists || return 0
    help_by sweep
    gone_soon || true
}

@test "sm-endpoint guard: whatever fails in it, its watcher or the command, nothing is left" {
    start_account --fault capacity      # it fails at once: nothing to wait for
    ln -s "$BIN/sm-endpoint" .          # no other test's
    STEPS=4
    ARGS=(guard --poll 0.02 -- "$PWD/sm-endpoint" up victim "${UP[@]}" --no-wait)
    begin_runs
    over_kinds judge_guard
    end_runs
    no_faults
}

shape() { SHAPE=; while read -r line; do SHAPE+="${line:0:20}"$'\n'; done <stdout; }     # what of the output is the same every time

judge_verb() {      # KIND WHICH
    local what="$1 $2 failed" SHAPE line
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    shape
    [ "$STATUS" -ne 0 ] || [ "$SHAPE" = "$WANT" ] || [ "${ARGS[0]}" = logs ] || fault "$what: exit status 0, and it printed $(cat stdout)"
    [[ ${ARGS[0]} != upload || $STATUS -ne 0 ]] || cmp -s directory/file s3/there/d/file || fault "$what: exit status 0, and another file"
}

@test "sm-endpoint status, wait, list, logs, facts, quota, image, upload: whatever fails, an honest end" {
    local verb line
    start_account
    mkdir -p directory s3/there
    head -c 100000 /dev/urandom >directory/file
    timeout 60 sm-endpoint up base "${UP[@]}" --poll 0.02
    for verb in "status base" "wait base" "list" "logs base" "facts base" "quota" "image" "upload directory s3://there/d"; do
        [[ $verb =~ ${Q4EXAMPLES:-} ]] || continue
        read -ra ARGS <<<"$verb"
        begin_runs
        run_failing none 0:0 || true
        [ "$STATUS" -eq 0 ] || fault "without a fault: exit status $STATUS"
        shape
        WANT=$SHAPE
        over_kinds judge_verb
        end_runs
    done
    no_faults
}

# --- sm-mcp -----------------------------------------------------------------------------------------------------------

read_replies() {    # All lines of stdout into REPLIES, without how long it took
    mapfile -d '' -t REPLIES <stdout
    REPLIES=${REPLIES[0]-}
    if [[ $REPLIES =~ \"seconds\":[0-9.e-]+ ]]; then REPLIES=${REPLIES/"${BASH_REMATCH[0]}"/}; fi
}

judge_mcp() {       # KIND WHICH
    local what="$1 $2 failed"
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    read_replies
    [ "$STATUS" -ne 0 ] || [ "$REPLIES" = "$WANT" ] || [[ -e fired && ($REPLIES = *'"isError":true'* || $REPLIES = *'"error":'*) ]] || fault "$what: exit status 0, and it said $REPLIES"
    no_process "ct-check $PWD/build" || fault "$what: its job outlives it"
    compare_names tmp
    [ -z "$ODD" ] || fault "$what: left in TMPDIR:$ODD"
}

@test "sm-mcp runs a tool: whatever fails, the right answer or an error" {
    PROGRAM=sm-mcp ARGS=() STDIN=$PWD/calls STEPS=4
    ln -s "$(fixture build)" build
    { cat "$(fixture messages)"; printf '{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"check","arguments":{"build":"%s"}}}\n' "$PWD/build"; } >calls
    begin_runs
    run_failing none 0:0 || true
    read_replies
    WANT=$REPLIES
    [[ $STATUS -eq 0 && $WANT = *'"loads":true'* ]] || fault "without a fault: exit status $STATUS: $WANT"
    over_kinds judge_mcp
    end_runs
    no_faults
}

# --- remote sources ----------------------------------------------------------------------------------------------------

judge_remote() {    # KIND WHICH
    local what="$1 $2 failed"
    run_failing "$@" || true
    expect_ended_well "$what" "${HONEST[$1]}"
    if [ "$STATUS" -eq 0 ]; then
        cmp -s stdout want || fault "$what: exit status 0, and the result is another"
    else
        expect_only "$what" stdout stderr want fired
    fi
}

# A program over a directory behind http, as a whole and file by file.
remote_with_faults() {  # DIRECTORY PROGRAM ARGUMENT…
    healthy "$TOOLS/range-server" "$1"
    PROGRAM=$2 ARGS=("${@:3}" "$URL") STDIN=/dev/null
    rm -f peer-stderr
    begin_runs
    run_failing none 0:0 || true
    [ "$STATUS" -eq 0 ] || fault "without a fault: exit status $STATUS"
    mv stdout want
    over_kinds judge_remote
    end_runs
    no_faults
}

@test "st-extract from http: whatever fails, the whole stream or an honest end" {
    remote_with_faults "$(model e2b)" st-extract --text-only
}

@test "ct-check over http: whatever fails, the right verdict or an honest end" {
    remote_with_faults "$(fixture build)" ct-check
}

@test "no program of bin/ is left out" {
    diff <(examples stream pack lines make report slow | cut -d ' ' -f 1 | cat - <(printf '%s\n' gpu-serve sm-local sm-invoke sm-endpoint) | sort -u) \
        <(find "$BIN" -mindepth 1 -maxdepth 1 -type f -executable -printf '%f\n' | sort)
}
