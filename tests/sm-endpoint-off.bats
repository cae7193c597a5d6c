#!/usr/bin/env bats
# The meter is always stopped: deletes through cut networks, throttling, expired tokens and refusals; journals on full disks; credentials that are renewed on the way.
load lib
load cloud

gone_from_journal() {   # NAME
    jq -se --arg n "$1" 'map(select(.name == $n)) | last.event == "gone"' "$JOURNAL" >/dev/null
}

restart() {     # [OPTION…]: the same account at the same port
    PORT=${AWS_ENDPOINT_URL##*:}
    rm -f url
    serve "$@"
}

cut() { kill -9 "$LOCAL"; wait "$LOCAL" 2>/dev/null || true; }

@test "a delete goes on through broken connections, throttling and 500s, in each of its calls" {
    serve --fault network:6,DeleteEndpoint --fault throttle:2,DescribeEndpoint,us-east-1 --fault internal:2,DeleteEndpointConfig --fault throttle:2,DeleteModel \
        --fault throttle:1,DeleteSchedule
    up one --no-wait --expires 2h >/dev/null 2>&1
    sm-endpoint delete one --poll 0.2
    nothing_alive
    holds '[.regions[] | (.endpoint, ."endpoint-config", .model, .schedule) // {} | length] | add == 0' state/state.json
    gone_from_journal one
}

@test "the network is cut in the middle of a delete: it waits, and ends when the account answers again" {
    serve --fault lag
    up one --no-wait >/dev/null 2>&1
    sm-endpoint delete one --poll 0.2 >out 2>&1 3>&- &
    local deleting=$!
    sleep 0.5
    cut
    sleep 1
    kill -0 "$deleting"
    restart
    wait "$deleting"
    nothing_alive
    gone_from_journal one
}

@test "nobody answers for good: 75, and what is to be done; the journal keeps it" {
    serve
    up one >/dev/null 2>&1
    cut
    run -75 sm-endpoint delete one --timeout 1 --poll 0.2
    [[ $output = *"one@us-east-1 may still run"*"sm-endpoint delete one --region us-east-1"* ]]
    run ! gone_from_journal one
    restart
    sm-endpoint delete one
    gone_from_journal one
}

@test "a rehearsal ends in the middle of an up: what may exist is taken back for as long as --timeout says, not for the ten minutes of a real account" {
    serve --fault network:99,CreateEndpoint
    up one --timeout 1 >out 2>&1 3>&- &
    local rising=$! rc=0
    for ((i = 0; i < 200; i++)); do ! grep -q one "$JOURNAL" 2>/dev/null || break; sleep 0.05; done
    sleep 0.5
    cut
    wait "$rising" || rc=$?
    [ "$rc" = 75 ]              # not 124, the time limit of up()
    grep -q 'one@us-east-1 may exist: sm-endpoint delete one --region us-east-1 deletes it' out
    run ! gone_from_journal one
    restart
    sm-endpoint delete one
    gone_from_journal one
}

@test "the network is cut under a watcher whose guard was killed: it deletes when the account answers again" {
    serve
    guarded one
    cut
    kill -9 "$GUARD"
    sleep 1
    restart
    nothing_alive
}

@test "the watcher is killed while it deletes: the guard starts another, and all goes" {
    serve --fault slow-delete:20m
    guarded one
    local pid i
    kill -TERM "$(pgrep -P "$GUARD" | head -n 1)"
    for i in $(seq 100); do ! grep -q Deleting <(sm-endpoint list) || break; sleep 0.05; done
    for pid in $(pgrep -f "guard-of-${BATS_TEST_TMPDIR##*/}-"); do
        if [ "$pid" != "$GUARD" ] && [[ $(cat "/proc/$pid/comm") = sm-endpoint ]]; then kill -9 "$pid"; fi
    done
    wait "$GUARD" || true
    grep -q 'the watcher was killed while it deleted: starting another' guard.err
    nothing_alive
    gone_from_journal one
}

@test "a token that expires: a delete renews it; a watcher waits for a new one and says that the endpoint runs" {
    serve --fault expired-token:1,DeleteEndpoint
    up one >/dev/null 2>&1
    sm-endpoint delete one
    nothing_alive
    kill "$LOCAL"; wait "$LOCAL" || true; rm url
    serve --fault expired-token:5,DeleteEndpoint
    run -0 sm-endpoint guard --poll 0.2 -- bash -c "sm-endpoint up two --model s3://models/e2b/ --instance ml.g6.xlarge --role $ROLE --image x --no-wait"
    [[ $output = *"two@us-east-1 STILL RUNS: the credentials have expired"*"two@us-east-1 is gone"* ]]
    nothing_alive
}

@test "denied in the middle of a delete: 77, what is gone and what is not; the next run ends it" {
    serve --fault denied:1,DeleteEndpointConfig
    up one >/dev/null 2>&1
    run -77 sm-endpoint delete one
    [[ $output = *"the endpoint is gone, what it was made from is not"*AccessDenied* ]]
    nothing_alive
    run ! gone_from_journal one
    sm-endpoint delete one
    gone_from_journal one
}

@test "throttled without end: 75, not a crash and not a yes" {
    serve --fault throttle:100000,DeleteEndpoint
    up one >/dev/null 2>&1
    run -75 sm-endpoint delete one --timeout 1 --poll 0.2
    [[ $output = *"may still run"*"Rate exceeded"* ]]
}

@test "the disk is full when the second line is journalled: what the first one allowed is taken back, 74" {
    serve
    mkdir -p "$(dirname "$JOURNAL")"
    head -c 850 /dev/zero | tr '\0' '\n' >"$JOURNAL"
    trap '' XFSZ                # the journal cannot grow past 1 KiB: a write is cut short
    (ulimit -f 1; up one >out 2>err) && return 1
    [ "$(jq -s length "$JOURNAL")" -eq 1 ]
    grep -q "journal.jsonl: the journal cannot be written" err
    holds '[.regions[] | (.endpoint, ."endpoint-config", .model) // {} | length] | add == 0' state/state.json
    ! grep -q '"call":"CreateEndpoint"' "$JOURNAL" || false
}

@test "a command that outlives its guard can create nothing more" {
    serve
    cat >late.sh <<END
sleep 3
timeout 60 sm-endpoint up late --model s3://models/e2b/ --instance ml.g6.xlarge --role $ROLE --image x --no-wait >late.out 2>late.err
echo \$? >late.rc
END
    setsid sm-endpoint guard --poll 0.2 -- bash -c ": guard-of-${BATS_TEST_TMPDIR##*/}-; setsid bash late.sh & sleep 100" >/dev/null 2>&1 3>&- </dev/null &
    GUARD=$!
    sleep 1
    kill -9 "$GUARD"
    local i
    for i in $(seq 100); do [ ! -s late.rc ] || break; sleep 0.1; done
    [ "$(cat late.rc)" -eq 69 ]
    grep -q 'its guard\|guard that watches over this has ended' late.err
    [ -z "$(sm-endpoint list)" ]
    holds '[.regions[]? | (.endpoint, ."endpoint-config", .model) // {} | length] | add // 0 == 0' state/state.json
}

@test "a container's log cannot move the cursor of who reads its errors" {
    serve --image 'x=printf "RuntimeError: \033[2Jbad\n"; sleep 0.2; exit 1'
    timeout 60 sm-endpoint up one --model s3://models/e2b/ --instance ml.g6.xlarge --role "$ROLE" --image x --poll 0.2 2>err && return 1
    grep -qF 'sm-endpoint: log: RuntimeError: \x1b[2Jbad' err
    grep -qF 'sm-endpoint: root error: RuntimeError: \x1b[2Jbad' err
    ! grep -q $'\033' err || false
}

@test "a container that answered pings and then died is no success: 69" {
    SPEED=100 serve --fault die:50s
    up one --no-wait >/dev/null 2>&1
    local i
    for i in $(seq 150); do
        if [[ $(sm-endpoint status one) = *InService* && $(sm-endpoint facts one | jq .serving_at_end) = false ]]; then break; fi
        sleep 0.1
    done
    run -69 sm-endpoint wait one --poll 0.2
    [[ $output = *"InService, but its container answered pings and then died"* ]]
    sm-endpoint delete one
}

# A call that somebody else makes.
sagemaker() {   # OPERATION BODY
    curl -sf --aws-sigv4 aws:amz:us-east-1:sagemaker --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL/" -H 'Content-Type: application/x-amz-json-1.1' \
        -H "X-Amz-Target: SageMaker.$1" -d "$2"
}

@test "a region that refuses keeps no other from being listed, deleted in, swept" {
    local both=us-east-1,us-east-2
    serve --fault denied:us-east-1,ListEndpoints --fault denied:us-east-1,DeleteEndpoint
    up one --region us-east-2 >/dev/null 2>&1
    run -77 --separate-stderr sm-endpoint list --region "$both"
    [[ $output = one@us-east-2* && ${#lines[@]} -eq 1 && $stderr = *"ListEndpoints in us-east-1: AccessDenied"* ]]
    run -77 --separate-stderr sm-endpoint list --region us-east-1
    [[ $stderr != *"no endpoint in"* ]]
    run -77 sm-endpoint delete one --region "$both" --poll 0.2
    [[ $output = *"one@us-east-1 STILL RUNS"*"one@us-east-2 is gone"* ]]
    up two --region us-east-2 >/dev/null 2>&1
    rm "$JOURNAL"
    run -77 sm-endpoint guard --sweep-up --region "$both" --poll 0.2
    [[ $output = *"ListEndpoints in us-east-1: AccessDenied"*"deleting two@us-east-2"* ]]
    nothing_alive us-east-2
}

@test "an endpoint that somebody else made is listed at the price of its own configuration, if that is one instance's" {
    serve
    local n
    sagemaker CreateModel "{\"ModelName\":\"m\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"x\"}}"
    for n in 1 2; do
        sagemaker CreateEndpointConfig "{\"EndpointConfigName\":\"c$n\",\"ProductionVariants\":[{\"VariantName\":\"v\",\"ModelName\":\"m\",\"InstanceType\":\"ml.g6.xlarge\",\"InitialInstanceCount\":$n}]}"
        sagemaker CreateEndpoint "{\"EndpointName\":\"theirs$n\",\"EndpointConfigName\":\"c$n\"}"
    done
    sm-endpoint list --json | jq -s . | holds 'map({key: .name, value: [.instance, (.usd | type), .ours]}) | from_entries
        == {theirs1: ["ml.g6.xlarge", "number", false], theirs2: [null, "null", false]}'
    sm-endpoint status theirs1 | grep -q 'ml.g6.xlarge at 1.1267'
}

@test "sweep-up takes the configs, models and schedules that were left over, and nothing that is not ours" {
    serve
    up one --expires 2h >/dev/null 2>&1
    sagemaker DeleteEndpoint '{"EndpointName":"one"}'
    sagemaker CreateModel "{\"ModelName\":\"theirs\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"x\"}}" >/dev/null
    nothing_alive
    rm "$JOURNAL"
    sm-endpoint guard --sweep-up --region us-east-1 2>err
    grep -q 'deleting one@us-east-1' err
    holds '[.regions[] | (."endpoint-config", .schedule) // {} | length] | add == 0' state/state.json
    holds '.regions["us-east-1"].model | keys == ["theirs"]' state/state.json
}

@test "an instance type without a price: price unknown, null; another region's is named" {
    serve
    timeout 60 sm-endpoint up one --model s3://models/e2b/ --instance ml.g5.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2 >out 2>err
    grep -q 'price unknown (ml.g5.xlarge is not in data/prices.json)' err
    ! grep -q 'USD' err || false
    sm-endpoint list --json | holds '.usd == null'
    sm-endpoint list | grep -q 'price unknown'
    sm-endpoint delete one
}

@test "credentials: web identity, container, instance metadata, SSO and aws login through the CLI; each is named" {
    serve
    local url=$AWS_ENDPOINT_URL secret=$AWS_SECRET_ACCESS_KEY
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    echo token-of-the-platform >token
    AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=$ROLE sm-endpoint list -v 2>err
    grep -q "from the web identity $ROLE" err
    AWS_CONTAINER_CREDENTIALS_FULL_URI=$url/credentials sm-endpoint list -v 2>err
    grep -q 'from the container' err
    AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT=$url sm-endpoint list -v 2>err
    grep -q 'from the instance metadata' err
    mkdir path
    cat >path/aws <<END
#!/bin/bash
echo "\$*" >>"$PWD/asked"
printf '{"Version":1,"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"%s"}' '$secret'
END
    chmod +x path/aws
    printf '[profile s]\nsso_session = x\n[profile l]\nlogin_session = arn:aws:iam::1:user/u\n' >config
    PATH=$PWD/path:$PATH AWS_CONFIG_FILE=config sm-endpoint list -v --profile s 2>err
    grep -q 'from the aws configure export-credentials s' err
    PATH=$PWD/path:$PATH AWS_CONFIG_FILE=config sm-endpoint list -v --profile l 2>>err
    diff asked <(printf 'configure export-credentials --format process --profile %s\n' s l)
    ! grep -qF "$secret" err || false
    printf '#!/bin/bash\necho "The SSO session has expired" >&2\nexit 255\n' >path/aws
    PATH=$PWD/path:$PATH AWS_CONFIG_FILE=config run -77 sm-endpoint list --profile s
    [[ $output = *"The SSO session has expired"* ]]
}

@test "credentials that end are renewed in a long run, before and when the account calls them expired" {
    serve --fault lag
    cat >keys <<END
#!/bin/bash
echo asked >>"$PWD/asked"
printf '{"Version":1,"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"%s","Expiration":"%s"}' '$AWS_SECRET_ACCESS_KEY' "\$(date -u -d '+2 seconds' +%FT%TZ)"
END
    chmod +x keys
    printf '[default]\ncredential_process = %s\n' "$PWD/keys" >config
    export AWS_CONFIG_FILE=$PWD/config
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    up one --no-wait >/dev/null 2>&1
    : >asked
    run -75 sm-endpoint wait one --poll 0.3 --timeout 5
    [ "$(wc -l <asked)" -ge 2 ]
    [ "$(wc -l <asked)" -le 6 ]
}

@test "credentials that end while it comes up: what runs on is named, and how to delete it" {
    serve --fault lag
    printf '#!/bin/bash\n[ ! -e asked ] || { echo "log in again" >&2; exit 1; }\ntouch asked\n%s\n' \
        "printf '{\"Version\":1,\"AccessKeyId\":\"AKIDEXAMPLE\",\"SecretAccessKey\":\"$AWS_SECRET_ACCESS_KEY\",\"Expiration\":\"%s\"}' \"\$(date -u -d '+3 seconds' +%FT%TZ)\"" >keys
    chmod +x keys
    printf '[default]\ncredential_process = %s\n' "$PWD/keys" >config
    AWS_CONFIG_FILE=config AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' run -77 up one
    [[ $output = *"log in again"*"one@us-east-1 may exist: sm-endpoint delete one --region us-east-1 deletes it"* ]]
    sm-endpoint list | grep -q '^one@us-east-1'
}

@test "a credential_process that says much is heard out, and its first words are told" {
    serve
    printf '#!/bin/bash\necho "not here" >&2\nseq 100000 >&2\nexit 3\n' >loud
    chmod +x loud
    printf '[default]\ncredential_process = %s\n' "$PWD/loud" >config
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_CONFIG_FILE=config run -77 timeout 20 sm-endpoint list
    [[ $output = *"loud ended with status 3: not here" ]]
}

@test "no secret in a core file: none is written" {
    serve --fault lag
    up one --no-wait >/dev/null 2>&1
    ulimit -c unlimited || skip "core files cannot be allowed here"
    sm-endpoint wait one --poll 0.2 2>/dev/null 3>&- &
    local waiting=$!
    sleep 1
    awk '/Max core file size/ { exit !($5 <= 1 && $6 <= 1) }' "/proc/$waiting/limits"
    grep -zqv "$AWS_SECRET_ACCESS_KEY" "/proc/$waiting/cmdline"
    kill -9 "$waiting"
}
