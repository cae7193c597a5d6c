#!/usr/bin/env bats
# sm-endpoint: an endpoint's life against sm-local with every fault, the journal, guards that are killed in every way; moto as a second judge of the wire.
load lib
load cloud

@test "facts of every recorded log, and its kind of error" {
    local log n=0
    for log in "$ROOT"/tests/golden/vllm-logs/*.jsonl; do
        sm-endpoint facts --from "$log" | jq -S . >got
        diff <(jq -S .facts "${log%.jsonl}.expected.json") got || { echo "$log"; return 1; }
        n=$((n + 1))
    done
    [ "$n" -eq 11 ]
}

@test "facts: a reused name's older stream counts only when it is asked for; bad lines are 65" {
    local log=$ROOT/tests/golden/vllm-logs/reused-name.jsonl
    sm-endpoint facts --from "$log" --created 1790642407000 --stream AllTraffic/i-0123456789abcdef0 | holds '.serving_at_end and .starts == 1'
    sm-endpoint facts --from "$log" --stream "$(head -n 1 "$log" | jq -r .logStreamName)" | holds '.serving_at_end == false and (.error | test("num_soft_tokens"))'
    echo '{"timestamp":1}' >bad
    run -65 sm-endpoint facts --from bad
    echo 'no json' >bad
    run -65 sm-endpoint facts --from bad
    echo '{"timestamp":1,"message":"RuntimeError: at #015 and then#015#015"}' >returns
    sm-endpoint facts --from returns | holds '.error == "RuntimeError: at #015 and then"'
    run -66 sm-endpoint facts --from nowhere
    sm-endpoint facts --from /dev/null | holds '.weights_gib == null and .starts == 0 and .error == null'
}

@test "what cannot be a name, region, type, role, time or place is refused before anything is sent: 64" {
    export AWS_ENDPOINT_URL=http://127.0.0.1:9
    local bad
    for bad in "up -bad" "up a_b" "up $(printf 'x%.0s' {1..64})" "up ok --instance g6" "up ok --role nobody" "up ok --region nowhere" "up ok --expires soon" "up ok --image a;b" \
        "up ok --env 1x=y" "up ok --env NOT_SET_HERE"; do
        # shellcheck disable=SC2086
        set -- $bad
        local given=(--model a/b --instance ml.g6.xlarge --role "$ROLE" --image "$IMAGE")
        case $bad in *--instance*) given=(--model a/b --role "$ROLE" --image "$IMAGE") ;; *--role*) given=(--model a/b --instance ml.g6.xlarge --image "$IMAGE") ;;
            *--image*) given=(--model a/b --instance ml.g6.xlarge --role "$ROLE") ;; esac
        run -64 sm-endpoint "${given[@]}" "$@"
    done
    run -64 sm-endpoint frobnicate
    run -64 sm-endpoint wait
    run -64 sm-endpoint guard
    AWS_ENDPOINT_URL=http://10.0.0.1 run -64 sm-endpoint list
    [[ $output = *"loopback"* ]]
    [ ! -e "$JOURNAL" ]
}

@test "no credentials: 77, and what was looked at" {
    unset AWS_ACCESS_KEY_ID
    AWS_ENDPOINT_URL=http://127.0.0.1:9 run -77 sm-endpoint list
    [[ $output = *"no AWS credentials"*"profile default"* ]]
}

@test "up, status, wait, list, facts, logs, invoke, delete" {
    serve
    up one >out 2>err
    [ "$(cat out)" = one@us-east-1 ]
    grep -q 'InService.*USD 0\.[0-9]* so far (ml.g6.xlarge at 1.1267 an hour, prices of us-east-2, 2026-09-25)' err
    grep -q 'it costs until it is gone: sm-endpoint delete one --region us-east-1 deletes it$' err
    jq -r '.call // .event' "$JOURNAL" | diff - <(printf '%s\n' CreateModel CreateEndpointConfig CreateEndpoint)
    sm-endpoint status one | grep -q '^one@us-east-1.InService.[0-9]*s.USD'
    sm-endpoint status one@us-east-1 --json | holds '.state == "InService" and .instance == "ml.g6.xlarge" and .usd >= 0'
    [ "$(sm-endpoint wait one 2>/dev/null)" = one@us-east-1 ]
    sm-endpoint list --json | holds '.name == "one" and .ours and .usd >= 0 and .prices == "2026-09-25"'
    sm-endpoint facts one | holds '.serving_at_end and .pings_ok > 0 and .starts == 1'
    sm-endpoint logs one | grep -q 'Application startup complete'
    echo '{"id":1,"messages":[{"role":"user","content":"hi"}],"max_tokens":6}' >in
    sm-invoke --endpoint one <in | holds '.status == 200 and .completion_tokens == 6 and .retries == 0 and .ttft_ms == null'
    sm-invoke --endpoint one@us-east-1 --stream <in | holds '.completion_tokens == 6 and .ttft_ms > 0 and (.chunk_ms | length) > 0'
    run -64 up one
    [[ $output = *"there is an older endpoint"* ]]
    sm-endpoint delete one
    sm-endpoint delete one
    run -69 sm-endpoint status one
    run -69 sm-endpoint wait one
    nothing_alive
}

@test "delete takes down what is left of an endpoint in every half-state" {
    serve
    up one >/dev/null 2>&1
    for op in DeleteEndpoint DeleteEndpointConfig DeleteModel; do
        curl -sf --aws-sigv4 aws:amz:us-east-1:sagemaker --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL/" -H 'Content-Type: application/x-amz-json-1.1' \
            -H "X-Amz-Target: SageMaker.$op" -d "{\"${op#Delete}Name\":\"one\"}"
        [ "$op" != DeleteEndpoint ] || nothing_alive
    done
    sm-endpoint delete one
    up two --no-wait >/dev/null 2>&1
    sm-endpoint delete two --poll 0.2
    nothing_alive
}

@test "a journal that cannot be written: 74, and nothing is created" {
    serve
    XDG_STATE_HOME=/proc/none run -74 up one
    mkdir -p "$XDG_STATE_HOME/q4sweep"
    ln -s /dev/full "$JOURNAL"
    run -74 up one
    rm "$JOURNAL"
    run -0 --separate-stderr sm-endpoint list
    [ -z "$output" ] && [[ $stderr = *": no endpoint in "* ]]
    ! grep -q CreateModel log || false
}

@test "no capacity in one region: deleted there, and on to the next; nowhere: 75" {
    SPEED=6000 serve --fault capacity:us-east-1
    up one --region us-east-1,us-east-2 >out 2>err
    [ "$(cat out)" = one@us-east-2 ]
    grep -q 'us-east-1 has no capacity' err
    [ -z "$(sm-endpoint list --region us-east-1)" ]
    sm-endpoint delete one@us-east-2
    run -75 up two --region us-east-1
    [[ $output = *InsufficientInstanceCapacity* ]]
    nothing_alive
}

@test "no quota of one type: on to the next; of none: 69, nothing left" {
    serve --fault quota:ml.g6.xlarge
    up one --instance ml.g6.xlarge,ml.g6.2xlarge >out 2>err 3>&- || true
    timeout 60 sm-endpoint up two --model s3://models/e2b/ --instance ml.g6.xlarge,ml.g6.2xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2 >out 2>err
    sm-endpoint status two --json | holds '.instance == "ml.g6.2xlarge"'
    sm-endpoint delete two
    run -69 up three
    [[ $output = *"account-level service limit"* ]]
    nothing_alive
}

@test "throttling, 500s, lost answers, a config that is not seen yet: one endpoint in the end" {
    local faults
    for faults in "throttle lost-reply:CreateEndpoint late-config" internal; do
        # shellcheck disable=SC2086,SC2046
        serve $(printf -- '--fault %s ' $faults)
        up one >out 2>err
        [ "$(cat out)" = one@us-east-1 ]
        [ "$(sm-endpoint list | wc -l)" -eq 1 ]
        sm-endpoint delete one
        nothing_alive
        kill "$LOCAL"; wait "$LOCAL" || true; rm url
    done
}

@test "a clock that is off is cured once; an expired token and a denied call are 77" {
    serve --fault skew
    sm-endpoint list -v 2>err
    grep -q "signing with AWS's" err
    kill "$LOCAL"; wait "$LOCAL" || true; rm url
    serve --fault expired-token
    run -77 sm-endpoint list
    [[ $output = *xpired* ]]
}

@test "a delete that is denied is loud: 77, state, meter, next step" {
    serve --fault denied
    up one >/dev/null 2>&1
    run -77 sm-endpoint delete one
    [[ $output = *"one@us-east-1 STILL RUNS"*"AccessDenied"*"InService"*"an hour"*"aws sagemaker delete-endpoint --endpoint-name one --region us-east-1"* ]]
}

@test "healthy but still Creating is alerted; Ctrl-C says what runs and what deletes it" {
    serve --fault lag
    up one --no-wait >/dev/null 2>&1
    sm-endpoint wait one --poll 0.2 --lag-alert 0.5 2>err &
    local waiting=$! i
    for i in $(seq 100); do ! grep -q 'healthy container but still Creating' err || break; sleep 0.1; done
    grep -q 'healthy container but still Creating' err
    kill -TERM "$waiting"
    local rc=0
    wait "$waiting" || rc=$?
    [ "$rc" -eq 143 ]
    grep -q 'one@us-east-1 is still running.*sm-endpoint delete one --region us-east-1 deletes it' err
}

@test "a container that never answers: Failed, with AWS's reason and the log's root error; 69, nothing left" {
    SPEED=6000 serve --fault health-fail
    run -69 up one
    [[ $output = *"did not pass the ping health check"* ]]
    [[ $output = *"root error:"* ]]
    nothing_alive
}

@test "the watcher deletes when the command succeeds, fails, or ends by a signal" {
    serve
    run -0 sm-endpoint guard -- bash -c 'sm-endpoint up a --model s3://models/e2b/ --instance ml.g6.xlarge --role arn:aws:iam::123456789012:role/q4 --image x --poll 0.2'
    run -7 sm-endpoint guard -- bash -c 'sm-endpoint up b --model s3://models/e2b/ --instance ml.g6.xlarge --role arn:aws:iam::123456789012:role/q4 --image x --no-wait; exit 7'
    run -137 sm-endpoint guard -- bash -c 'sm-endpoint up c --model s3://models/e2b/ --instance ml.g6.xlarge --role arn:aws:iam::123456789012:role/q4 --image x --no-wait; kill -9 $$'
    run -127 sm-endpoint guard -- no-such-command
    nothing_alive
    sm-endpoint list | wc -l | grep -qx 0
}

@test "the guard is killed outright: the watcher deletes" {
    serve
    guarded one
    kill -9 "$GUARD"
    nothing_alive
    local i
    for i in $(seq 100); do ! grep -q '"event":"gone"' "$JOURNAL" || break; sleep 0.1; done
    grep -q '"event":"gone"' "$JOURNAL"
}

@test "the watcher is killed: the guard starts another, which deletes" {
    serve
    guarded one
    pgrep -f "guard-of-${BATS_TEST_TMPDIR##*/}-" | while read -r pid; do
        if [ "$pid" != "$GUARD" ] && [ "$(ps -o ppid= "$pid" | tr -d ' ')" != "$GUARD" ] && [[ $(cat "/proc/$pid/comm") = sm-endpoint ]]; then kill -9 "$pid"; fi
    done
    sleep 0.5
    grep -q 'the watcher was killed: starting another' guard.err
    kill -9 "$GUARD"
    nothing_alive
}

@test "all are killed at once: the next run finds the orphan and deletes it; the schedule would have as well" {
    serve
    guarded one
    pkill -9 -f "guard-of-${BATS_TEST_TMPDIR##*/}-"
    sleep 0.2
    run -0 sm-endpoint list
    [[ $output = *"one@us-east-1 was left running by a guard that was killed"* ]]
    nothing_alive
}

@test "a guard leaves the endpoints of another living guard alone, and sweep-up spares none that is tagged" {
    serve
    guarded one
    sm-endpoint guard -- true 2>/dev/null
    sm-endpoint status one >/dev/null
    sm-endpoint guard --sweep-up --region us-east-1
    nothing_alive
    kill -9 "$GUARD"
}

@test "a schedule that is due deletes, when nothing of ours lives" {
    serve
    up one --expires 1s >/dev/null 2>&1 || true
    nothing_alive
}

@test "upload: parts, again without sending, and what is wrong there is found" {
    serve
    mkdir build
    head -c 20000000 /dev/urandom >build/model.safetensors
    echo '{}' >build/config.json
    : >build/empty
    sm-endpoint upload build s3://models/up/
    cmp build/model.safetensors state/s3/models/up/model.safetensors
    sm-endpoint upload -v build s3://models/up/ 2>err
    [ "$(grep -c 'is there already' err)" -eq 3 ]
    run -64 sm-endpoint upload build models/up
    run -66 sm-endpoint upload nowhere s3://models/up/
    run -69 sm-endpoint upload build s3://no-such-bucket/up/
}

@test "upload to a bucket that encrypts with KMS: the parts are named as S3 named them, not by their MD5" {
    serve --fault kms
    mkdir build
    head -c 20000000 /dev/zero >build/model.safetensors
    sm-endpoint upload build s3://models/kms 2>err
    cmp build/model.safetensors state/s3/models/kms/model.safetensors
    grep -F "model.safetensors: the bucket encrypts with KMS: only the size could be verified" err
}

@test "upload killed outright in the middle: the same command goes on where it was, and the bytes are right" {
    serve
    mkdir build
    head -c 160000000 /dev/urandom >build/model.safetensors
    local round sending kept=0
    for round in 1 2 3; do              # one that was through before the kill says nothing
        sm-endpoint upload -j 1 build "s3://models/k$round/" 2>/dev/null 3>&- &
        sending=$!
        until [ "$(find state/uploads -type f 2>/dev/null | wc -l)" -ge 2 ] || ! kill -0 "$sending" 2>/dev/null; do sleep 0.01; done
        kill -9 "$sending" 2>/dev/null || true
        wait "$sending" || true
        sm-endpoint upload -v build "s3://models/k$round/" 2>err
        cmp build/model.safetensors "state/s3/models/k$round/model.safetensors"
        [ "$(find state/uploads -type f 2>/dev/null | wc -l)" -eq 0 ]
        if grep -qE '[1-9] of 10 parts are there already' err; then kept=1; break; fi
    done
    [ "$kept" -eq 1 ]
}

@test "no secret in messages, journal, or command lines" {
    serve
    up one -v >out 2>err
    sm-endpoint delete one -v >>out 2>>err
    ! grep -rqF "$AWS_SECRET_ACCESS_KEY" out err "$XDG_STATE_HOME" || false
    grep -q 'credentials: from the environment' err
}

@test "credentials from a file, a process, a role, a container and instance metadata" {
    serve
    unset AWS_ACCESS_KEY_ID
    local secret=$AWS_SECRET_ACCESS_KEY
    unset AWS_SECRET_ACCESS_KEY
    printf '[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = %s\n' "$secret" >credentials
    AWS_SHARED_CREDENTIALS_FILE=credentials sm-endpoint list -v 2>err
    grep -q 'from the credentials file default' err
    printf '{"Version":1,"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"%s"}' "$secret" >keys.json
    printf "[profile p]\ncredential_process = cat 'keys.json'\n[profile r]\nrole_arn = %s\nsource_profile = p\n[profile broken]\ncredential_process = false\n" "$ROLE" >config
    AWS_CONFIG_FILE=config sm-endpoint list -v --profile p 2>err
    grep -q 'from the credential_process p' err
    AWS_CONFIG_FILE=config sm-endpoint list -v --profile r 2>err
    grep -q "from the role $ROLE" err
    AWS_CONFIG_FILE=config run -77 sm-endpoint list --profile broken
    AWS_CONFIG_FILE=config run -64 sm-endpoint list --profile nobody
    AWS_CONTAINER_CREDENTIALS_FULL_URI=http://10.0.0.1/keys run -77 sm-endpoint list
    [[ $output = *"plain http"* ]]
}

start_moto() {
    need_peer moto
    : >moto.log
    "$(dirname "$PEER")/moto_server" -H 127.0.0.1 -p 0 >moto.log 2>&1 3>&- &
    MOTO=$!
    local i port
    for i in $(seq 200); do
        port=$(sed -n 's/.*Running on http:\/\/127\.0\.0\.1:\([0-9]*\).*/\1/p' moto.log)
        [ -z "$port" ] || break
        sleep 0.1
    done
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port
}

iam() {         # FORM
    curl -sf --aws-sigv4 aws:amz:us-east-1:iam --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -d "Version=2010-05-08&$1" "$AWS_ENDPOINT_URL/"
}

@test "moto accepts the calls" {
    start_moto
    timeout 60 sm-endpoint up one --model a/b --instance ml.g4dn.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2 --expires 2h >out
    [ "$(cat out)" = one@us-east-1 ]
    sm-endpoint list --json | holds '.ours and .state == "InService"'
    sm-endpoint delete one
    [ -z "$(sm-endpoint list)" ]
}

@test "moto, which verifies every signature now, accepts them, and refuses a wrong secret" {
    start_moto
    iam 'Action=CreateUser&UserName=q4' >/dev/null
    iam 'Action=PutUserPolicy&UserName=q4&PolicyName=all&PolicyDocument=%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Action%22%3A%22%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D' >/dev/null
    iam 'Action=CreateAccessKey&UserName=q4' >key
    AWS_ACCESS_KEY_ID=$(grep -o '<AccessKeyId>[^<]*' key | cut -d '>' -f 2) AWS_SECRET_ACCESS_KEY=$(grep -o '<SecretAccessKey>[^<]*' key | cut -d '>' -f 2)
    curl -sf -o /dev/null -H Content-Type:text/plain -d 0 "$AWS_ENDPOINT_URL/moto-api/reset-auth"
    AWS_SECRET_ACCESS_KEY=wrong run -77 sm-endpoint list
    [[ $output = *SignatureDoesNotMatch* ]]
    timeout 60 sm-endpoint up one --model a/b --env 'WHO=é"x' --instance ml.g4dn.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2 >out
    sm-endpoint list --json | holds '.ours and .state == "InService"'
    echo '{"id":1,"messages":[{"role":"user","content":"hé"}],"max_tokens":3}' | { sm-invoke --endpoint one || true; } | holds '.status == 200'     # its answer is no completion
    mkdir build
    head -c 40000000 /dev/urandom >'build/a b+é.bin'
    curl -sf --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -X PUT "$AWS_ENDPOINT_URL/models"
    sm-endpoint upload build s3://models/x/
    sm-endpoint upload -v build s3://models/x/ 2>err
    grep -q 'is there already' err
    sm-endpoint delete one
    [ -z "$(sm-endpoint list)" ]
}

@test "guards, their watchers and groups killed at random instants, with endpoints stuck in Creating: nothing lives" {
    serve --fault lag:10m
    local i guard
    for i in 1 2 3 4 5 6 7 8; do
        setsid sm-endpoint guard --poll 0.2 -- bash -c ": guard-of-${BATS_TEST_TMPDIR##*/}-; sm-endpoint up k$i --model s3://models/e2b/ --instance ml.g6.xlarge --role $ROLE --image x --expires 2h; sleep 50" \
            >/dev/null 2>&1 3>&- </dev/null &
        guard=$!
        sleep "0.$((RANDOM % 10))"
        case $((i % 4)) in
            0) kill -9 "$guard" ;;
            1) kill -9 -- "-$guard" 2>/dev/null || kill -9 "$guard" ;;
            2) pkill -9 -f "guard-of-${BATS_TEST_TMPDIR##*/}-" ;;
            3) kill -TERM "$guard" ;;
        esac
    done
    sm-endpoint list >/dev/null 2>&1        # "the next run"
    nothing_alive
    pkill -f -- "sm-endpoint up k[1-8] --model s3://models/e2b/" || true     # those whose parent alone was killed still ask
}
