# What serves and what calls a server, with one call failing: the n-th read, write, open, allocation, transfer, connection, thread or process …
# (tests/faults/shim.c; FAULTS_EVERY in tests/faults/runs.bash).  Whatever fails: no crash, no hang; an exit status that says so and a message, or
# the program went on, and then what it answered is the right answer or no complete one.  No file, process or endpoint is left.
load lib
load examples
load faults/runs

setup() {
    fresh
    need_shim
    trap '' PIPE                # a server that ends while it is written to
    unset "${!AWS_@}" Q4SWEEP_GUARD
}

teardown() {
    local pid
    for pid in ${PEER_PID:-} ${UNDER_TEST:-}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

# Every kind of fault and the exit statuses that are an honest answer to it.
KINDS=(read write open map thread malloc recv send accept socket process)
declare -gA HONEST=([read]="66 74 75" [write]="74 75" [open]="66 69 74 75" [map]="74 75" [thread]="69 75" [malloc]="69 75" [recv]="69 75" [send]="69 75" [accept]="69 75"
    [socket]="69 75" [process]="69 74 75")

# --- a server with a fault in it --------------------------------------------------------------------------------------

# Starts PROGRAM ARGS…; URL is what it prints, empty when it ended before.
begin_server() {    # [ENVIRONMENT…]
    rm -f fired url
    mkfifo url
    timeout --foreground -k 5 60 env "$@" "$BIN/$PROGRAM" "${ARGS[@]}" </dev/null >url 2>stderr 3>&- &
    UNDER_TEST=$!
    URL=
    read -r -t 30 URL <url || true
}

end_server() {      # Sets STATUS
    kill "$UNDER_TEST" 2>/dev/null || true
    STATUS=0
    wait "$UNDER_TEST" || STATUS=$?
    UNDER_TEST=
    rm -f url
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

expect_ended_well() {   # WHAT HONEST-STATUSES
    if [ "$STATUS" -ne 0 ]; then
        [[ " $2 " = *" $STATUS "* ]] || fault "$1: exit status $STATUS, expected one of: $2"
        grep -q "^$PROGRAM: " stderr || fault "$1: no message"
    fi
    ! grep -qE 'Sanitizer|runtime error' stderr || fault "$1: a sanitizer's finding"
}

serve_with_faults() {   # KIND FIRST PERCENT
    local kind=$1 what i want
    PROGRAM=gpu-serve ARGS=(--model "$(fixture build)" --port 0 --threads 2)
    begin_server
    ask_completions "no fault"
    want=("${GOT[@]}")
    end_server
    [[ ${want[0]} = text:*[a-z]* && ${want[1]} = "${want[0]}" ]] || fault "without a fault: ${want[*]}"
    first_n
    while :; do
        failing "$kind" "$n"
        what="$kind $n failed"
        begin_server "${FAILING[@]}"
        if [ -n "$URL" ]; then
            ask_completions "$what"
            for i in 0 1; do [[ ${GOT[i]} = incomplete || ${GOT[i]} = "${want[i]}" ]] || fault "$what: answered ${GOT[i]}, expected ${want[i]}"; done
        fi
        end_server
        expect_ended_well "$what" "${HONEST[$kind]}"
        [ -n "$URL" ] || [ "$STATUS" -ne 0 ] || fault "$what: no URL, exit status 0"
        [ -e fired ] || break
        expect_only "$what" stderr fired
        [ "$FAULTS" -lt 8 ] || break
        next_n "$2" "$3" || break
    done
}

@test "gpu-serve: whatever fails, an answer is right or none, and nothing hangs" {
    local kind
    for kind in "${KINDS[@]}"; do
        ! sanitized || [ "$kind" != malloc ] || continue
        serve_with_faults "$kind" 6 50
    done
    no_faults
}

# --- sm-local: the endpoint's life from up to delete, by an sm-endpoint in good health -----------------------------------

ROLE=arn:aws:iam::123456789012:role/q4
UP=(--model s3://models/build/ --instance ml.g6.xlarge --role "$ROLE" --image 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:x --expires 2h)

account() {         # What the clients of an sm-local at $1 need
    export XDG_STATE_HOME=$PWD/xdg AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY AWS_ENDPOINT_URL=$1
}

buckets() { mkdir -p s3/models; ln -sfn "$(fixture build)" s3/models/build; }

# Whatever of it fails, it ends.
endpoint_life() {   # WHAT
    local rc=0
    rm -rf xdg
    account "$URL"
    {
        timeout 30 "$BIN/sm-endpoint" up victim "${UP[@]}" --poll 0.02 --timeout 5 && timeout 20 "$BIN/sm-invoke" --endpoint victim --timeout 5 <requests >answers
        timeout 30 "$BIN/sm-endpoint" delete victim --poll 0.02 --timeout 5 || rc=$?
    } >/dev/null 2>client-stderr || rc=$?
    [ "$rc" -ne 124 ] || fault "$1: the client hangs"
    LIFE=$rc
}

no_process() {      # PATTERN: within 3 s
    local i
    for ((i = 0; i < 60; i++)); do pgrep -f -- "$1" >/dev/null || return 0; sleep 0.05; done
    return 1
}

rehearse_with_faults() {    # KIND FIRST PERCENT
    local kind=$1 what
    PROGRAM=sm-local ARGS=(--port 0 --speed 100000 --state "$PWD/state" --s3 "$PWD/s3")
    first_n
    while :; do
        failing "$kind" "$n"
        what="$kind $n failed"
        rm -rf state
        begin_server "${FAILING[@]}"
        [ -z "$URL" ] || endpoint_life "$what"
        end_server
        expect_ended_well "$what" "${HONEST[$kind]}"
        [ -n "$URL" ] || [ "$STATUS" -ne 0 ] || fault "$what: no URL, exit status 0"
        no_process "gpu-serve.*$PWD/s3" || fault "$what: a container outlives it"
        [ -e fired ] || break
        # What it leaves in its state is what it starts from again.
        begin_server
        [ -n "$URL" ] || fault "$what: does not start again"
        end_server
        [ "$STATUS" -eq 0 ] || fault "$what: started again, exit status $STATUS"
        compare_names tmp
        [ -z "$ODD" ] || fault "$what: left in TMPDIR:$ODD"
        compare_names state lock state.json $(cd state && ls -d logs s3 faults* 2>/dev/null || true)
        [ "$FAULTS" -lt 8 ] || break
        next_n "$2" "$3" || break
    done
    [ "${FAULTS_EVERY:-}" ] || [ "$LIFE" -eq 0 ] || fault "$kind: nothing failed, and yet the endpoint's life did: $(cat client-stderr)"
}

@test "sm-local: whatever fails, no container outlives it, and its state is sound" {
    local kind
    buckets
    echo '{"id":1,"prompt":"Hello","max_tokens":3}' >requests
    for kind in "${KINDS[@]}"; do
        ! sanitized || [ "$kind" != malloc ] || continue
        rehearse_with_faults "$kind" 1 300
    done
    no_faults
}

# --- sm-invoke --------------------------------------------------------------------------------------------------------

# Starts a server in good health that ends with the test.
healthy() {         # PROGRAM ARGUMENT…
    local program=$1
    shift
    rm -f url
    mkfifo url
    "$BIN/$program" "$@" </dev/null >url 2>peer-stderr 3>&- &
    PEER_PID=$!
    read -r -t 30 URL <url
    rm -f url
}

# A client's run with a fault in it: STATUS, stdout, stderr.
call_with_fault() { # KIND N [COMMAND…]
    rm -f fired
    failing "$1" "$2"
    shift 2
    STATUS=0
    timeout --foreground -k 5 60 env "${FAILING[@]}" "${@:-$BIN/$PROGRAM}" "${ARGS[@]}" <"$STDIN" >stdout 2>stderr 3>&- || STATUS=$?
}

# Every line as "id text" or "id error".
answers() { jq -r '"\(.id) \(if .error then "error" else .text end)"' stdout 2>&1; }

invoke_with_faults() {  # KIND FIRST PERCENT
    local kind=$1 what got i
    first_n
    while :; do
        what="$kind $n failed"
        call_with_fault "$kind" "$n"
        expect_ended_well "$what" "${HONEST[$kind]} 65"
        mapfile -t got < <(answers)
        [ "$STATUS" -ne 0 ] || [ "${#got[@]}" -eq "${#WANT[@]}" ] || fault "$what: ${#got[@]} answers, expected ${#WANT[@]}"
        for i in "${!got[@]}"; do
            [ "${got[i]}" = "${WANT[i]}" ] || [[ $STATUS -ne 0 && ${got[i]} = "${WANT[i]%% *} error" ]] || fault "$what: exit status $STATUS and the answer ${got[i]}"
        done
        [ -e fired ] || break
        [ "$FAULTS" -lt 8 ] || break
        next_n "$2" "$3" || break
    done
}

@test "sm-invoke --url: whatever fails, each line is the right answer or an error" {
    local kind
    PROGRAM=sm-invoke
    printf '%s\n' '{"id":"a","prompt":"Hello","max_tokens":3}' '{"id":"b","prompt":"Hello","max_tokens":3,"stream":true}' >requests
    STDIN=requests
    healthy gpu-serve --model "$(fixture build)" --port 0
    ARGS=(--url "$URL")
    call_with_fault none 1
    mapfile -t WANT < <(answers)
    [[ ${#WANT[@]} -eq 2 && ${WANT[0]} = "a "*[a-z]* ]]
    for kind in "${KINDS[@]}"; do
        ! sanitized || [ "$kind" != malloc ] || continue
        invoke_with_faults "$kind" 8 50
    done
    no_faults
}

# --- sm-endpoint ------------------------------------------------------------------------------------------------------

exists() { [[ $(<state/state.json) = *victim* ]]; }

gone_soon() {       # within 10 s
    local i
    for ((i = 0; i < 200; i++)); do exists || return 0; sleep 0.05; done
    return 1
}

healthy_endpoint() { timeout 60 "$BIN/sm-endpoint" "$@" --poll 0.02 </dev/null >healthy-out 2>&1 3>&-; }

# What a failed run left in the account stands in the journal, and the user is told; sweeping up by the journal removes it.
expect_journalled() {   # WHAT
    exists || return 0
    [[ ${ARGS[0]} = delete ]] || grep -q victim stderr || fault "$1: something exists, and the message does not say so"
    healthy_endpoint guard --sweep-up || fault "$1: sweeping up failed: $(cat healthy-out)"
    gone_soon || fault "$1: the journal does not know what exists"
}

# BEFORE and AFTER are functions: what must be so, and what is judged.
endpoint_with_faults() {    # KIND FIRST PERCENT
    local kind=$1 what
    first_n
    while :; do
        what="$kind $n failed"
        rm -rf xdg
        "$BEFORE"
        call_with_fault "$kind" "$n"
        expect_ended_well "$what" "${HONEST[$kind]}"
        "$AFTER" "$what"
        [ "$FAULTS" -lt 8 ] || break
        [ -e fired ] || break
        next_n "$2" "$3" || break
    done
}

over_kinds() {      # FIRST PERCENT
    local kind
    for kind in "${KINDS[@]}"; do
        ! sanitized || [ "$kind" != malloc ] || continue
        endpoint_with_faults "$kind" "$@"
    done
}

start_account() {
    PROGRAM=sm-endpoint STDIN=/dev/null
    buckets
    healthy sm-local --port 0 --speed 100000 --state "$PWD/state" --s3 "$PWD/s3"
    account "$URL"
}

nothing_before() { :; }

@test "sm-endpoint up, delete: whatever fails, what exists is in the journal, and the message says so" {
    start_account
    up_before() { ! exists || healthy_endpoint delete victim; }
    up_after() {
        if [ "$STATUS" -eq 0 ]; then
            exists || fault "$1: exit status 0, and nothing is up"
            healthy_endpoint delete victim || fault "$1: cannot be deleted: $(cat healthy-out)"
            gone_soon || fault "$1: does not go away"
        else
            expect_journalled "$1"
        fi
    }
    delete_before() { healthy_endpoint up victim "${UP[@]}" --no-wait; }
    delete_after() {
        if [ "$STATUS" -eq 0 ]; then
            ! exists || fault "$1: exit status 0, and it is still there"
        else
            expect_journalled "$1"
        fi
    }
    ARGS=(up victim "${UP[@]}" --no-wait)
    BEFORE=up_before AFTER=up_after over_kinds 3 300
    ARGS=(delete victim --poll 0.02 --timeout 5)
    BEFORE=delete_before AFTER=delete_after over_kinds 3 300
    no_faults
}

@test "sm-endpoint guard: whatever fails in it, its watcher or the command, nothing is left" {
    start_account
    guard_after() {
        gone_soon || fault "$1: still there"
        no_process "sm-endpoint guard.*victim" || fault "$1: a watcher stays"
        exists || return 0
        healthy_endpoint guard --sweep-up
        gone_soon || true
    }
    ARGS=(guard --poll 0.02 -- "$BIN/sm-endpoint" up victim "${UP[@]}" --no-wait)
    BEFORE=nothing_before AFTER=guard_after over_kinds 2 300
    no_faults
}

@test "sm-endpoint status, wait, list, logs, facts, quota, image, upload: whatever fails, an honest end" {
    local verb
    start_account
    mkdir -p directory s3/there
    head -c 100000 /dev/urandom >directory/file
    healthy_endpoint up base "${UP[@]}"
    verb_after() {
        [ "$STATUS" -ne 0 ] || [ "$(wc -l <stdout; cut -c 1-20 stdout)" = "$SHAPE" ] || [[ ${ARGS[0]} = logs ]] || fault "$1: exit status 0, and it printed $(cat stdout)"
        [[ ${ARGS[0]} != upload || $STATUS -ne 0 ]] || cmp directory/file s3/there/d/file || fault "$1: exit status 0, and another file"
    }
    for verb in "status base" "wait base" "list" "logs base" "facts base" "quota" "image" "upload directory s3://there/d"; do
        read -ra ARGS <<<"$verb"
        call_with_fault none 1
        [ "$STATUS" -eq 0 ] || fault "without a fault: exit status $STATUS"
        SHAPE=$(wc -l <stdout; cut -c 1-20 stdout)
        BEFORE=nothing_before AFTER=verb_after over_kinds 1 300
    done
    no_faults
}

@test "no program of bin/ is left out" {
    diff <(examples stream pack lines make report slow | cut -d ' ' -f 1 | cat - <(printf '%s\n' gpu-serve sm-local sm-invoke sm-endpoint) | sort -u) \
        <(find "$BIN" -mindepth 1 -maxdepth 1 -type f -executable -printf '%f\n' | sort)
}
