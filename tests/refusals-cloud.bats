#!/usr/bin/env bats
# What sm-endpoint and sm-local refuse, and what they say when an account does not do as it should, in the words of each message (tests/messages.sh lists what is left).
load lib
load faults/runs
load refusals
load cloud

eval "$(declare -f setup | sed 's/^setup/account_setup/')"
setup() {
    account_setup
    FAILED=0
}
eval "$(declare -f teardown | sed 's/^teardown/account_teardown/')"
teardown() {
    account_teardown
    [ -z "${STUB:-}" ] || { kill "$STUB"; wait "$STUB" || true; }
}

# A server that answers all with this; URL.
answers() {     # STATUS BODY
    [ -z "${STUB:-}" ] || { kill "$STUB"; wait "$STUB" || true; }
    printf 'HTTP/1.1 %s x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' "$1" "${#2}" "$2" >answer
    rm -f stub-url
    "$TOOLS/answer-stub" answer >stub-url 3>&- </dev/null &
    STUB=$!
    until [ -s stub-url ]; do sleep 0.02; done
    URL=$(cat stub-url)
}

@test "sm-endpoint's command lines" {
    local up=(sm-endpoint up x --region us-east-1 --role "$ROLE" --model a/b --instance ml.g6.xlarge)
    refused 64 "nowhere: no region's name: expected one like us-east-2" sm-endpoint list --region nowhere
    refused 64 "--expires soon: expected a time like 45m, 2h or 1d, at most 31d" "${up[@]}" --expires soon
    refused 64 "--env 1: expected NAME=VALUE with a name of letters, digits and _" "${up[@]}" --env 1=2
    refused 64 "--env NOT_SET_HERE: is not set here: give NOT_SET_HERE=VALUE" "${up[@]}" --env NOT_SET_HERE
    refused 64 "--image a b: expected REGISTRY/REPOSITORY:TAG or @DIGEST" "${up[@]}" --image 'a b'
    refused 64 "--model is missing: ORG/NAME or s3://BUCKET/PREFIX/" sm-endpoint up x --region us-east-1 --role "$ROLE" --instance ml.g6.xlarge
    refused 64 "a_b: no endpoint's name: letters, digits and inner -, at most 63" sm-endpoint status a_b --region us-east-1
    refused 64 "guard: the command is missing: -- COMMAND" sm-endpoint guard
    refused 64 "profile none: neither ~/.aws/config nor ~/.aws/credentials has it" sm-endpoint list --profile none --region us-east-1
    AWS_ENDPOINT_URL=http://example.com refused 64 "expected https://, or http:// on a loopback address, found http://example.com" sm-endpoint list --region us-east-1
    echo '{"message":5}' >log
    refused 65 "log: line 1: expected an event" sm-endpoint facts --from log
    refused 64 "here: expected s3://BUCKET/PREFIX" sm-endpoint upload . here
    refused 64 "s3://A/x: no bucket's name: 3 to 63 lower-case letters, digits, - and ." sm-endpoint upload . s3://A/x
    mkdir empty odd
    refused 66 "empty: holds no files" sm-endpoint upload empty s3://abc/x
    refused 66 "nothing: this directory cannot be read: No such file or directory" sm-endpoint upload nothing s3://abc/x
    mkdir odd/sub
    refused 65 "odd/sub: no regular file: a build holds files only" sm-endpoint upload odd s3://abc/x
    none_failed
}

@test "credentials and answers that are none" {
    local list=(sm-endpoint list --region us-east-1)
    printf '%s\n' '[profile no-time]' "credential_process = echo '{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"s\",\"Expiration\":\"soon\"}'" \
        '[profile fails]' 'credential_process = false' '[profile role]' "role_arn = $ROLE" 'source_profile = keys' '[profile keys]' 'aws_access_key_id = A' 'aws_secret_access_key = s' >config
    export AWS_CONFIG_FILE=$PWD/config
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    refused 77 "credential_process: Expiration is no time: soon" "${list[@]}" --profile no-time
    refused 77 "credential_process of profile fails: false ended with status 1" "${list[@]}" --profile fails
    AWS_CONTAINER_CREDENTIALS_FULL_URI=http://example.com/ refused 77 "plain http is for loopback and the platforms' own addresses only" "${list[@]}"
    mkdir served
    head -c 300000 /dev/zero >served/keys.json
    exec {HOLD}> >(exec "$TOOLS/range-server" served >served-url 3>&-)
    until [ -s served-url ]; do sleep 0.02; done
    AWS_CONTAINER_CREDENTIALS_FULL_URI=$(cat served-url)/keys.json refused 75 "the answer is longer than 262144 bytes" "${list[@]}"
    exec {HOLD}>&-
    answers 200 '<x/>'
    AWS_ENDPOINT_URL=$URL refused 77 "the answer of STS holds no credentials" "${list[@]}" --profile role
    export AWS_ACCESS_KEY_ID=A AWS_SECRET_ACCESS_KEY=s
    mkdir build
    head -c 20000000 /dev/zero >build/file
    AWS_ENDPOINT_URL=$URL refused 65 "build/file: S3 named no upload" sm-endpoint upload build s3://abc/x
    answers 200 '{"Endpoints":[{"EndpointStatus":"InService"}]}'
    AWS_ENDPOINT_URL=$URL refused 65 "ListEndpoints: no names" "${list[@]}"
    answers 200 '{"imageDetails":[]}'
    AWS_ENDPOINT_URL=$URL refused 69 "us-east-1 has no SageMaker image of vLLM: name one with --image" sm-endpoint image --region us-east-1
    answers 200 ''
    AWS_ENDPOINT_URL=$URL refused 65 "DescribeEndpoint: the answer is empty" sm-endpoint status x --region us-east-1
    none_failed
}

@test "an account that does not do as it should" {
    SPEED=6000 serve --fault denied:FilterLogEvents --fault denied:DeleteSchedule
    up one --expires 2h >said 2>&1
    grep -F "one@us-east-1: its log cannot be read: " said || FAILED=1
    sm-endpoint delete one --poll 0.1 >said 2>&1
    grep -F "one@us-east-1: its schedule q4sweep-one stays: " said || { cat said; FAILED=1; }
    kill "$LOCAL"; wait "$LOCAL" || true
    rm -rf url state xdg
    SPEED=6000 serve --fault denied:CreateSchedule --fault capacity
    local two=(sm-endpoint up two --model s3://models/e2b/ --instance ml.g6.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2)
    refused 77 "the schedule that would delete two at its expiry cannot be made, so the endpoint is not: " "${two[@]}" --expires 2h
    refused 75 "two: no instance type in any region had quota and capacity; the last: us-east-1 has no capacity for ml.g6.xlarge: add --instance or --region, or try later" "${two[@]}"
    "${two[@]}" --no-wait >/dev/null 2>&1
    refused 75 "two@us-east-1: no capacity: delete it and try another type or region" sm-endpoint wait two --poll 0.1
    sm-endpoint delete two --poll 0.1 >/dev/null 2>&1
    printf '%s\n' '[profile short]' "credential_process = echo '{\"Version\":1,\"AccessKeyId\":\"$AWS_ACCESS_KEY_ID\",\"SecretAccessKey\":\"$AWS_SECRET_ACCESS_KEY\",\"Expiration\":\"$(date -u -d '+1 hour' +%FT%TZ)\"}'" >config
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_CONFIG_FILE=config "${two[@]}" --profile short --expires 2h >said 2>&1 || true
    grep -F "the credentials end before the endpoint expires: what is stuck then is deleted by its schedule alone" said || { cat said; FAILED=1; }
    none_failed
}

@test "a journal that somebody compressed is not added to" {
    mkdir -p "$XDG_STATE_HOME/q4sweep"
    printf 'x\n' | zstd -q >"$JOURNAL"
    cp "$JOURNAL" before
    refused 65 "journal.jsonl: is compressed, so nothing can be added to it: unpack it (zstd -d)" sm-endpoint guard -- true
    sm-endpoint quota --region us-east-1 2>said || true
    grep -F "what a killed guard left running is not known" said || { cat said; FAILED=1; }
    cmp before "$JOURNAL"
    none_failed
}

@test "files of an account that cannot be written" {
    need_shim
    mkdir -p state/logs bad
    : >state/logs/us-east-1
    echo '[]' >bad/state.json
    refused 65 "bad/state.json: holds no object: this is no account's state" sm-local --port 0 --state bad
    refused 64 "--fault skew:ml.g6.xlarge: 'ml.g6.xlarge' is no argument of skew" sm-local --port 0 --fault skew:ml.g6.xlarge
    SPEED=6000 serve
    refused 75 "state: another sm-local uses this state: give --state another directory" sm-local --port 0 --state state
    local one=(sm-endpoint up one --model s3://models/e2b/ --instance ml.g6.xlarge --role "$ROLE" --image "$IMAGE" --no-wait)
    FAULTY=sm-endpoint
    fault_says 9 write 74 "journal.jsonl: the journal cannot be written: No space left on device" "${one[@]}"
    FAULT_RUN=2 fault_says 9 write 74 "journal.jsonl: holds a torn line" "${one[@]}"
    fault_says 9 sync 74 "journal.jsonl: cannot be flushed: Input/output error" "${one[@]}"
    ln -s "$BIN/sm-endpoint" healthy
    local anew=(bash -c './healthy delete one --poll 0.02 >/dev/null 2>&1; exec "$@"' up "${one[@]}")
    fault_says 99 close 74 "journal.jsonl: cannot be closed: Input/output error" "${anew[@]}"
    ./healthy delete one --poll 0.02 >/dev/null 2>&1 || true
    fault_says 40 open 74 "journal.jsonl: the journal cannot be opened: Too many open files" "${anew[@]}"
    fault_says 40 open 74 ".log: the watcher's log cannot be written: Too many open files" sm-endpoint guard -- true
    fault_says 20 open 74 "the lock cannot be opened: Too many open files" sm-endpoint guard -- true
    mkdir u
    echo x >u/file
    fault_says 60 open 75 "u/file: this file cannot be read: Too many open files" sm-endpoint upload u s3://models/u
    up one >/dev/null 2>&1
    [ "$(grep -cF "one.jsonl: cannot be written: this log will not survive a restart" log)" = 1 ] || { cat log; FAILED=1; }
    rm state/logs/us-east-1
    mkdir state/logs/us-east-1
    ln -s /dev/full state/logs/us-east-1/two.jsonl
    up two >/dev/null 2>&1
    [ "$(grep -cF "two: its log cannot be written to " log)" = 1 ] || { cat log; FAILED=1; }
    none_failed
}

@test "prices that are none, a bucket that encrypts" {
    mkdir -p x/bin x/data u
    cp "$BIN/sm-endpoint" x/bin
    echo '{' >x/data/prices.json
    answers 200 '{"EndpointConfigName":"x","Endpoints":[{"EndpointName":"x","EndpointStatus":"InService","EndpointArn":"arn:aws:sagemaker:us-east-1:123456789012:endpoint/x"}],"Tags":[],"ProductionVariants":[{"InstanceType":"ml.g6.xlarge","InitialInstanceCount":1}]}'
    AWS_ENDPOINT_URL=$URL x/bin/sm-endpoint list --region us-east-1 >said 2>&1 || true
    [ "$(wc -l <said)" = 2 ]
    grep -F "prices.json: not JSON: line 2, column 0: string or '}' expected near end of file: costs are not shown" said || { cat said; FAILED=1; }
    echo x >u/file
    printf 'HTTP/1.1 200 x\r\nContent-Length: 2\r\nConnection: close\r\nETag: "x"\r\nx-amz-server-side-encryption: aws:kms\r\n\r\nx\n' >kms
    "$TOOLS/answer-stub" kms >kms-url 3>&- </dev/null &
    MOTO=$!
    until [ -s kms-url ]; do sleep 0.02; done
    AWS_ENDPOINT_URL=$(cat kms-url) sm-endpoint upload u s3://abc/x >said 2>&1 || true
    grep -F "u/file: the bucket encrypts with KMS: only the size could be verified" said || { cat said; FAILED=1; }
    none_failed
}

@test "clocks and ports" {
    local n found=
    need_shim
    SPEED=6000 serve --fault skew
    mkdir u
    echo x >u/file
    sm-endpoint upload u s3://models/u
    cmp u/file state/s3/models/u/file
    grep -F "RequestTimeTooSkewed: The difference between the request time and the current time is too large." log || { cat log; FAILED=1; }
    for n in 4 5 6 7 8 9; do
        kill "$LOCAL"
        wait "$LOCAL" || true
        rm -rf url log state xdg fired
        failing socket "$n" sm-local
        export "${FAILING[@]}"
        SPEED=6000 serve
        unset "${FAILING[@]%%=*}"
        timeout 5 sm-endpoint up one --model s3://models/e2b/ --instance ml.g6.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.1 >/dev/null 2>&1 || true
        ! grep -F "endpoint one: no port is free for a container" log || { found=1; break; }
    done
    [ "$found" ] || { cat log; FAILED=1; }
    none_failed
}

@test "a delete that is stopped, an endpoint that vanishes while it comes up" {
    local upping i
    SPEED=60 serve --fault lag
    up one >said 2>&1 3>&- &
    upping=$!
    for i in $(seq 200); do ! sm-endpoint list --region us-east-1 2>/dev/null | grep -q Creating || break; sleep 0.05; done
    timeout --preserve-status -s INT 0.5 sm-endpoint delete one --poll 0.1 >deleting 2>&1 || true
    grep -F "one@us-east-1 is not gone yet: stopped while deleting it: run sm-endpoint delete one --region us-east-1" deleting || { cat deleting; FAILED=1; }
    kill -9 "$LOCAL"
    wait "$LOCAL" || true
    rm -rf state url
    PORT=${AWS_ENDPOINT_URL##*:}
    SPEED=60 serve
    wait "$upping" || true
    grep -F "one@us-east-1: was deleted while it came up" said || { cat said; FAILED=1; }
    none_failed
}
