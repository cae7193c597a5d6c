#!/usr/bin/env bats
# sm-local: signatures, the life of endpoints, every fault, logs, schedules, S3, restarts; driven by curl, whose signer is not ours, and by sm-endpoint and boto3.
load lib

KEY=AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
ROLE=arn:aws:iam::123456789012:role/q4

setup() { cd "$BATS_TEST_TMPDIR" || return 1; need_program sm-local gpu-serve st-synth; unset "${!AWS_@}"; }

teardown() {
    [ -n "${LOCAL:-}" ] || return 0
    kill "$LOCAL" 2>/dev/null || true
    wait "$LOCAL" || true
    ! grep -E 'Sanitizer|runtime error' log || false
}

# Starts one, 600 times faster than the cloud, on state/; the nano E2B is s3://models/e2b/.  Sets URL and LOCAL.
serve() {       # OPTION…
    mkdir -p state/s3/models
    ln -sfn "$(model e2b)" state/s3/models/e2b
    rm -f url
    sm-local --port 0 --state state --speed 600 -v "$@" >url 2>>log 3>&- </dev/null &
    LOCAL=$!
    until [ -s url ]; do
        kill -0 "$LOCAL" || { cat log; return 1; }
        sleep 0.02
    done
    URL=$(cat url)
}

signed() {      # SERVICE CURL-ARGUMENT…
    curl -s --aws-sigv4 "aws:amz:us-east-1:$1" --user "$KEY" "${@:2}"
}

json11() {      # SERVICE TARGET BODY [CURL-ARGUMENT…]
    signed "$1" "$URL/" -H 'Content-Type: application/x-amz-json-1.1' -H "X-Amz-Target: $2" -d "$3" "${@:4}"
}

sm() { json11 sagemaker "SageMaker.$1" "$2"; }                  # OPERATION BODY
logs() { json11 logs "Logs_20140328.$1" "$2"; }
group() { logs FilterLogEvents "{\"logGroupName\":\"/aws/sagemaker/Endpoints/$1\"}"; }
invoke() {      # NAME BODY [-response-stream]
    signed sagemaker "$URL/endpoints/$1/invocations${3:-}" -H 'Content-Type: application/json' -d "$2" -D head
}

CHAT='{"messages":[{"role":"user","content":"hi"}],"max_tokens":6,"temperature":0}'

create() {      # NAME [PRODUCTION-VARIANT-FIELDS]: model, configuration, endpoint; prints the last answer
    sm CreateModel "{\"ModelName\":\"$1\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:x\",
        \"Environment\":{\"SM_VLLM_MAX_MODEL_LEN\":\"1024\"},\"ModelDataSource\":{\"S3DataSource\":{\"S3Uri\":\"s3://models/e2b/\",\"S3DataType\":\"S3Prefix\",\"CompressionType\":\"None\"}}}}" >made
    sm CreateEndpointConfig "{\"EndpointConfigName\":\"$1\",\"ProductionVariants\":[{\"VariantName\":\"AllTraffic\",\"ModelName\":\"$1\",\"InitialInstanceCount\":1,
        ${2:-\"InstanceType\":\"ml.g6.xlarge\"},\"ContainerStartupHealthCheckTimeoutInSeconds\":1800}]}" >>made
    sm CreateEndpoint "{\"EndpointName\":\"$1\",\"EndpointConfigName\":\"$1\",\"Tags\":[{\"Key\":\"q4sweep\",\"Value\":\"1\"}]}"
}

describe() { sm DescribeEndpoint "{\"EndpointName\":\"$1\"}"; }
status() { describe "$1" | jq -r '.EndpointStatus // "gone"'; }

until_status() {        # NAME STATUS: within 30 s, and never another final one before
    local i now
    for i in $(seq 300); do
        now=$(status "$1")
        [ "$now" != "$2" ] || return 0
        [[ $now = Creating || $now = Updating || $now = Deleting || $2 = gone ]] || break
        sleep 0.1
    done
    echo "$1 is $now, not $2: $(describe "$1")"
    tail -n 5 log
    return 1
}

refused() {     # TYPE MESSAGE-PATTERN < answer
    local answer
    answer=$(cat)
    jq -e --arg t "$1" --arg m "$2" '.__type == $t and (.message | test($m))' >/dev/null <<<"$answer" || { echo "not refused with $1 $2: $answer"; return 1; }
}



@test "the URL as one line; /ping; SIGTERM 0" {
    serve
    [[ $(cat url) =~ ^http://127\.0\.0\.1:[0-9]+$ ]]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/ping")" = 200 ]
    kill "$LOCAL"
    wait "$LOCAL"
    unset LOCAL
}

@test "signatures: right ones pass in every protocol; wrong secret, unknown key, none, changed body, other service are refused as AWS does" {
    serve
    sm ListEndpoints '{}' | holds '.Endpoints == []'
    signed sts "$URL/" -d 'Action=GetCallerIdentity&Version=2011-06-15' | grep -q '<Account>123456789012</Account>'
    KEY=AKIDEXAMPLE:wrong
    sm ListEndpoints '{}' | refused InvalidSignatureException '^The request signature we calculated does not match'
    signed sts "$URL/" -d 'Action=GetCallerIdentity&Version=2011-06-15' -w '%{http_code}' | grep -q '<Code>SignatureDoesNotMatch</Code>.*403$'
    signed s3 "$URL/models" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' | grep -q '<Code>SignatureDoesNotMatch</Code>'
    invoke nobody '{}' | holds '.Message | test("signature")'
    grep -qi '^x-amzn-ErrorType: InvalidSignatureException' head
    KEY=AKIDNOBODY:x
    sm ListEndpoints '{}' | refused UnrecognizedClientException 'security token included in the request is invalid'
    signed sts "$URL/" -d 'Action=GetCallerIdentity&Version=2011-06-15' | grep -q InvalidClientTokenId
    KEY=AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
    json11 logs SageMaker.ListEndpoints '{}' | refused InvalidSignatureException "scoped to correct service: 'sagemaker'"
    curl -s "$URL/" -H 'X-Amz-Target: SageMaker.ListEndpoints' -d '{}' | refused MissingAuthenticationTokenException 'Missing'
    # The same headers with another body.
    signed sagemaker "$URL/" -H 'Content-Type: application/x-amz-json-1.1' -H 'X-Amz-Target: SageMaker.ListEndpoints' -d '{}' -v 2>trace >/dev/null
    local headers=() line
    while read -r line; do headers+=(-H "$line"); done < <(sed -n 's/^> \(\(Authorization\|X-Amz-Date\|X-Amz-Target\|Content-Type\):.*\)\r$/\1/pI' trace)
    curl -s "$URL/" "${headers[@]}" -d '{}' | holds '.Endpoints == []'
    curl -s "$URL/" "${headers[@]}" -d '{"MaxResults":5}' | refused InvalidSignatureException 'does not match'
    # A header of Amazon's that is not signed.
    curl -s "$URL/" "${headers[@]}" -H 'X-Amz-Security-Token: t' -d '{}' | refused InvalidSignatureException SignedHeader
}

@test "every request as botocore signs it passes, and with another signature does not" {
    local line method target which n=0 refusal='request signature we calculated|Signature expired|SignedHeader'
    AWS_SIGNING_CLOCK=20260304T050607Z serve
    while read -r line; do
        method=$(jq -r .request.method <<<"$line")
        target=$(jq -r '.request | .path + (if .query == "" then "" else "?" + .query end)' <<<"$line")
        jq -r '.request.headers[] | "\(.[0]): \(.[1])"' <<<"$line" >right
        grep -qi '^content-type:' right || echo 'Content-Type:' >>right
        sed -E 's/(Signature=.*)[0-7]([^0-7]*)$/\18\2/' right >wrong
        ! cmp -s right wrong || false
        jq -j '.request | .body // ""' <<<"$line" >body
        if jq -e .request.body_base64 <<<"$line" >/dev/null; then jq -r .request.body_base64 <<<"$line" | base64 -d >body; fi
        for which in right wrong; do curl -s --path-as-is -X "$method" -H "@$which" --data-binary @body "$URL$target" -o $which.answer; done
        ! grep -E "$refusal" right.answer || { echo "$line"; return 1; }
        grep -qE "$refusal" wrong.answer || { echo "$line"; return 1; }
        n=$((n + 1))
    done <"$ROOT/tests/golden/aws/requests.jsonl"
    [ "$n" -eq 47 ]
}

@test "keys come from the environment; temporary ones work with their token only" {
    AWS_ACCESS_KEY_ID=AKIDMINE AWS_SECRET_ACCESS_KEY=mine serve
    sm ListEndpoints '{}' | refused UnrecognizedClientException invalid
    KEY=AKIDMINE:mine
    sm ListEndpoints '{}' | holds '.Endpoints == []'
    signed sts "$URL/" -d "Action=AssumeRole&Version=2011-06-15&RoleArn=$ROLE&RoleSessionName=me" >keys.xml
    field() { sed "s,.*<$1>\(.*\)</$1>.*,\1," keys.xml; }
    KEY=$(field AccessKeyId):$(field SecretAccessKey)
    sm ListEndpoints '{}' | refused UnrecognizedClientException invalid
    signed sts "$URL/" -d 'Action=GetCallerIdentity&Version=2011-06-15' -H "X-Amz-Security-Token: $(field SessionToken)" | grep -q 'assumed-role/q4/me'
}

@test "an endpoint: no log and no delete while Creating, then it really serves, plain and streamed, until it is deleted" {
    serve --fault lag:30m
    create one | holds '.EndpointArn == "arn:aws:sagemaker:us-east-1:123456789012:endpoint/one"'
    describe one | holds '.EndpointStatus == "Creating" and .PendingDeploymentSummary.ProductionVariants[0].InstanceType == "ml.g6.xlarge" and .ProductionVariants == null'
    sm DeleteEndpoint '{"EndpointName":"one"}' | refused ValidationException '^Cannot update in-progress endpoint "arn:aws:.*/one"\.$'
    sm CreateEndpoint '{"EndpointName":"ONE","EndpointConfigName":"one"}' | refused ValidationException '^Cannot create already existing endpoint'
    invoke one "$CHAT" | holds '.Message == "Endpoint one of account 123456789012 not found."'
    grep -qi '^x-amzn-ErrorType: ValidationError' head
    until_status one InService
    describe one | holds '.ProductionVariants[0] | .CurrentInstanceCount == 1 and (.DeployedImages[0].ResolvedImage | test("@sha256:"))'
    invoke one "$CHAT" >answer
    grep -qi '^x-Amzn-Invoked-Production-Variant: AllTraffic' head
    # The same answer as the model gives without SageMaker.
    gpu-decode --model "$(model e2b)" --device cpu --math exact < <(jq -c '{id: 1} + .' <<<"$CHAT") >direct
    [ "$(jq -r '.choices[0].message.content' answer)" = "$(jq -r .text direct)" ] || gpu-serve --help | grep -q fast
    invoke one "$(jq -c '.stream = true' <<<"$CHAT")" -response-stream >frames
    grep -qi '^Content-Type: application/vnd.amazon.eventstream' head
    grep -qi '^X-Amzn-SageMaker-Content-Type: text/event-stream' head
    grep -aq PayloadPart frames
    grep -aq 'data: \[DONE\]' frames
    invoke one '{}' | holds '.OriginalStatusCode == 400 and (.OriginalMessage | test("messages")) and (.LogStreamArn | test("/aws/sagemaker/Endpoints/one"))'
    grep -q '^HTTP/1.1 424' head
    group one | holds '[.events[].message] | any(test("Application startup complete")) and any(test("GET /ping HTTP/1.1. 200 OK")) and any(test("vLLM server arguments"))'
    sm ListTags '{"ResourceArn":"arn:aws:sagemaker:us-east-1:123456789012:endpoint/one"}' | holds '.Tags == [{"Key":"q4sweep","Value":"1"}]'
    sm DeleteEndpoint '{"EndpointName":"one"}' >empty
    [ ! -s empty ]
    until_status one gone
    describe one | refused ValidationException '^Could not find endpoint "arn:aws:sagemaker:us-east-1:123456789012:endpoint/one"\.$'
    sm DeleteEndpointConfig '{"EndpointConfigName":"one"}' >empty
    sm DeleteModel '{"ModelName":"one"}' >>empty
    [ ! -s empty ]
    sm DeleteModel '{"ModelName":"one"}' | refused ValidationException '^Could not find model'
    group one | holds '.events | length > 10'           # a log outlives its endpoint
    ! pgrep -P "$LOCAL" || false
}

@test "what is asked wrongly is refused before anything is made" {
    serve
    sm CreateEndpoint '{"EndpointName":"no such_name","EndpointConfigName":"x"}' | refused ValidationException 'Member must satisfy regular expression'
    sm CreateEndpoint '{"EndpointName":"x","EndpointConfigName":"x"}' | refused ValidationException '^Could not find endpoint configuration'
    sm CreateModel '{"ModelName":"m"}' | refused ValidationException executionRoleArn
    sm CreateEndpointConfig '{"EndpointConfigName":"c","ProductionVariants":[]}' | refused ValidationException productionVariants
    sm CreateModel "{\"ModelName\":\"m\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"x\"}}" >/dev/null
    for count in 0 -1 9223372036854775807 '"2"' 1.5; do
        sm CreateEndpointConfig "{\"EndpointConfigName\":\"c\",\"ProductionVariants\":[{\"VariantName\":\"V\",\"ModelName\":\"m\",\"InstanceType\":\"ml.g6.xlarge\",\"InitialInstanceCount\":$count}]}" |
            refused ValidationException initialInstanceCount
    done
    sm CreateEndpoint 'no JSON' | refused SerializationException .
    sm NoSuchOperation '{}' | refused UnknownOperationException .
    create pools '"InstancePools":[{"InstanceType":"ml.g6.nosuch","Priority":1}]' >/dev/null
    grep -q 'enum value set' made
    [ "$(sm ListEndpoints '{}' | jq '.Endpoints | length')" = 0 ]
}

@test "lists: filters, order, pages" {
    serve
    local n
    for n in a1 a2 a3 b1; do
        sm CreateModel "{\"ModelName\":\"$n\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"x\"}}" >/dev/null
    done
    sm ListModels '{"NameContains":"A","SortBy":"Name","SortOrder":"Ascending","MaxResults":2}' >page
    holds '[.Models[].ModelName] == ["a1","a2"]' page
    sm ListModels "{\"NameContains\":\"A\",\"SortBy\":\"Name\",\"SortOrder\":\"Ascending\",\"MaxResults\":2,\"NextToken\":$(jq .NextToken page)}" |
        holds '[.Models[].ModelName] == ["a3"] and .NextToken == null'
    sm ListModels '{}' | holds '[.Models[].ModelName] == ["b1","a3","a2","a1"]'
    sm ListModels '{"MaxResults":101}' | refused ValidationException maxResults
}

@test "capacity: Failed after 31 minutes of the cloud, no log group; one region, one time" {
    serve --fault capacity:us-east-1,1
    create one >/dev/null
    sleep 1.5
    [ "$(status one)" = Creating ]
    until_status one Failed
    describe one | holds '.FailureReason | test("^Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity")'
    describe one | jq -e '.LastModifiedTime - .CreationTime | . > 3 and . < 8'
    group one | refused ResourceNotFoundException '^The specified log group does not exist\.$'
    sm DeleteEndpoint '{"EndpointName":"one"}' >/dev/null
    until_status one gone
    create two >/dev/null
    until_status two InService
}

@test "health-fail: restarts every two minutes, the error in the log, then Failed" {
    serve --fault fail:host-out-of-memory
    create one >/dev/null
    until_status one Failed
    describe one | holds '.FailureReason | test("did not pass the ping health check")'
    describe one | jq -e '.LastModifiedTime - .CreationTime | . > 3.3 and . < 8'
    group one | holds '[.events[].message] | (map(select(test("spawned: .app."))) | length >= 10) and any(test("Cannot allocate memory")) and (any(test("startup complete")) | not)'
}

@test "start-error: CannotStartContainerError, no log group" {
    serve --fault start-error
    create one >/dev/null
    until_status one Failed
    describe one | holds '.FailureReason | test("^CannotStartContainerError")'
    group one | refused ResourceNotFoundException .
}

@test "recover, second-start: failed starts, then it serves" {
    serve --fault recover:1 --fault second-start
    create one >/dev/null
    create two >/dev/null
    until_status one InService
    until_status two InService
    group one | holds '[.events[].message] | (map(select(test("spawned: .app."))) | length >= 4) and any(test("no module or parameter named")) and any(test("startup complete"))'
    group two | holds '[.events[].message] | (map(select(test("spawned: .app."))) | length == 2) and any(test("CUDA out of memory"))'
    invoke two "$CHAT" | holds '.choices[0].message.content | length > 0'
}

@test "hub-429: the true error stands before the hub's" {
    serve --fault hub-429
    create one >/dev/null
    until_status one Failed
    group one | holds '[.events[].message] | (map(test("no module or parameter")) | index(true)) < (map(test("429 Too Many Requests")) | index(true))'
}

@test "lag: healthy and pinged, but Creating" {
    serve --fault lag:30m
    create one >/dev/null
    sleep 2.2
    [ "$(status one)" = Creating ]
    group one | holds '[.events[].message] | any(test("startup complete")) and any(test("GET /ping HTTP/1.1. 200 OK"))'
    sm DeleteEndpoint '{"EndpointName":"one"}' | refused ValidationException '^Cannot update in-progress'
    until_status one InService
    describe one | jq -e '.LastModifiedTime - .CreationTime | . > 3'
}

@test "die: pings answered, then dead, then Failed" {
    serve --fault die
    create one >/dev/null
    until_status one Failed
    group one | holds '[.events[].message] | any(test("GET /ping HTTP/1.1. 200 OK")) and any(test("EngineDeadError"))'
    ! pgrep -P "$LOCAL" || false
}

@test "quota: of a type, and of every type that a pool lists" {
    serve --fault quota:ml.g6.xlarge --fault quota:ml.g6.2xlarge=1
    create one | refused ResourceLimitExceeded "^The account-level service limit 'ml.g6.xlarge for endpoint usage' is 0 Instances, with current utilization of 0 Instances and a request delta of 1 Instances"
    create two '"InstancePools":[{"InstanceType":"ml.g5.xlarge","Priority":1},{"InstanceType":"ml.g6.2xlarge","Priority":2}]' | holds '.EndpointArn'
    create three '"InstanceType":"ml.g6.2xlarge"' | refused ResourceLimitExceeded 'is 1 Instances, with current utilization of 1 Instances'
    json11 servicequotas ServiceQuotasV20190624.ListServiceQuotas '{"ServiceCode":"sagemaker","MaxResults":100}' >page
    holds '(.Quotas | length == 100) and (.NextToken | length > 0) and ([.Quotas[] | select(.QuotaName == "ml.g6.xlarge for endpoint usage")][0].Value == 0)' page
    json11 servicequotas ServiceQuotasV20190624.ListServiceQuotas "{\"ServiceCode\":\"sagemaker\",\"MaxResults\":100,\"NextToken\":$(jq .NextToken page)}" | holds '.NextToken == null'
}

@test "throttle, denied, internal, expired-token, lost-reply, late-config: on the calls named, as often as said" {
    serve --fault throttle:DeleteEndpoint,2 --fault denied:DeleteModel --fault expired-token:ListTags --fault lost-reply --fault internal:ListModels
    for i in 1 2; do sm DeleteEndpoint '{"EndpointName":"x"}' | refused ThrottlingException '^Rate exceeded$'; done
    sm DeleteEndpoint '{"EndpointName":"x"}' | refused ValidationException '^Could not find'
    sm DeleteModel '{"ModelName":"x"}' | refused AccessDeniedException 'is not authorized to perform: sagemaker:DeleteModel'
    sm ListTags '{"ResourceArn":"x"}' | refused ExpiredTokenException '^The security token included in the request is expired$'
    [ "$(json11 sagemaker SageMaker.ListModels '{}' -o /dev/null -w '%{http_code}')" = 500 ]
    run create one
    [ "$status" -eq 52 ]
    sm CreateEndpoint '{"EndpointName":"one","EndpointConfigName":"one"}' | refused ValidationException '^Cannot create already existing'
    kill "$LOCAL"
    wait "$LOCAL"
    serve --fault late-config
    sm CreateEndpoint '{"EndpointName":"two","EndpointConfigName":"one"}' | refused ValidationException '^Could not find endpoint configuration'
    sm CreateEndpoint '{"EndpointName":"two","EndpointConfigName":"one"}' | holds '.EndpointArn'
}

@test "skew: the refusal names both clocks, and its Date is the account's" {
    serve --fault skew:10m
    json11 sagemaker SageMaker.ListEndpoints '{}' -D head | refused InvalidSignatureException '^Signature expired: [0-9TZ]+ is now earlier than [0-9TZ]+ \([0-9TZ]+ - 5 min\.\)$'
    close_to "$(date -d "$(sed -n 's/^Date: //pI' head)" +%s)" "$(($(date +%s) + 600))" 20
}

@test "streams: cut inside a frame, an exception frame, a wrong checksum; 424, 429, 503 on demand" {
    local stream i=0
    # Long enough for several frames however many events a fast machine puts into one.
    stream=$(jq -c '.stream = true | .max_tokens = 1000 | .ignore_eos = true' <<<"$CHAT")
    serve --fault cut-stream:2 --fault unavailable --fault not-ready
    create one >/dev/null
    until_status one InService
    invoke one "$CHAT" | holds '.Message == "Service unavailable"'
    grep -q '^HTTP/1.1 503' head
    invoke one "$CHAT" >/dev/null
    grep -q '^HTTP/1.1 429' head
    run invoke one "$stream" -response-stream
    # The header and what was held have been sent; then the connection is closed, inside the body as curl says.
    [ "$status" -eq 18 ]
    grep -q '^HTTP/1.1 200' head
    kill "$LOCAL"
    wait "$LOCAL"
    serve --fault stream-error --fault model-error:1
    for i in $(seq 100); do
        invoke one "$CHAT" >answer
        grep -q '^HTTP/1.1 429' head || break
        sleep 0.1
    done
    grep -q '^HTTP/1.1 424' head
    holds '.OriginalStatusCode == 500' answer
    invoke one "$stream" -response-stream >frames
    grep -aq ModelStreamError frames
}

@test "state survives kill -9: the endpoint serves again, its container did not outlive, faults that struck stay struck" {
    serve --fault throttle:ListModels,1
    create one >/dev/null
    sm ListModels '{}' | refused ThrottlingException .
    until_status one InService
    pgrep -P "$LOCAL" >containers
    [ -s containers ]
    kill -9 "$LOCAL"
    wait "$LOCAL" || true
    sleep 0.3
    # Ended: gone, or a zombie that this machine's first process has not buried yet.
    [[ $(ps -o stat= -p "$(cat containers)") != [!Z]* ]]
    serve --fault throttle:ListModels,1
    [ "$(status one)" = InService ]
    sm ListModels '{}' | holds '.Models | length == 1'
    for i in $(seq 100); do
        invoke one "$CHAT" >answer
        grep -q '^HTTP/1.1 200' head && break
        sleep 0.1
    done
    holds '.choices[0].message.content | length > 0' answer
    group one | holds '[.events[].message] | map(select(test("vLLM server arguments"))) | length == 2'
    run -75 sm-local --port 0 --state state
}

@test "logs: patterns, times, pages, streams; a group of an older run; an empty page first" {
    serve --fault old-log --fault empty-page
    create one >/dev/null
    logs FilterLogEvents '{"logGroupName":"/aws/sagemaker/Endpoints/one"}' >page
    holds '.events == [] and (.nextToken | length > 0)' page
    next() { logs FilterLogEvents "{\"logGroupName\":\"/aws/sagemaker/Endpoints/one\",\"nextToken\":$(jq .nextToken page)$1}"; }
    next '' | holds '[.events[].message] | any(test("Application startup complete"))'
    next '' | holds '(.events | length == (map(.eventId) | unique | length)) and .nextToken == null'
    next ',"filterPattern":"\"KV cache\" -Available"' | holds '[.events[].message] | length >= 1 and all(test("GPU KV cache size"))'
    next ',"limit":2' | holds '(.events | length == 2) and (.nextToken | length > 0)'
    until_status one InService
    next ",\"startTime\":$(($(date +%s) * 1000 - 60000))" | holds '(.events | length > 5) and all(.events[]; .timestamp > 1000)'
    logs DescribeLogStreams '{"logGroupName":"/aws/sagemaker/Endpoints/one","orderBy":"LastEventTime","descending":true}' >streams
    holds '(.logStreams | length == 2) and all(.logStreams[]; .logStreamName | test("^AllTraffic/i-0[0-9a-f]{16}$"))' streams
    logs GetLogEvents "{\"logGroupName\":\"/aws/sagemaker/Endpoints/one\",\"logStreamName\":$(jq '.logStreams[0].logStreamName' streams),\"startFromHead\":true,\"limit\":3}" |
        holds '(.events | length == 3) and .nextForwardToken == "f/3" and (.events[0].message | test("arguments"))'
    logs FilterLogEvents '{"logGroupName":"/aws/sagemaker/Endpoints/one","nextToken":"junk"}' | refused InvalidParameterException nextToken
}

@test "a line of a log that a kill has cut costs that line, not those that were written after it" {
    local event='"timestamp":1700000000000,"ingestionTime":1700000000000,"logStreamName":"AllTraffic/i-1"'
    mkdir -p state/logs/us-east-1
    { echo "{$event,\"message\":\"first\"}"; printf '{"timestamp":17000'; echo "{$event,\"message\":\"lost\"}"; echo "{$event,\"message\":\"third\"}"; } >state/logs/us-east-1/one.jsonl
    serve
    logs FilterLogEvents '{"logGroupName":"/aws/sagemaker/Endpoints/one"}' | holds '[.events[].message] == ["first", "third"]'
}

@test "schedules: kept, shown, fired at their time, again at the next turn; gone with what they delete" {
    serve
    local start
    create one >/dev/null
    start=$(($(date +%s) + 1))
    schedule() { signed scheduler "$URL/schedules/$1" -H 'Content-Type: application/json' -d "$2"; }
    target() { printf '"FlexibleTimeWindow":{"Mode":"OFF"},"Target":{"Arn":"arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint","RoleArn":"%s","Input":"{\\"EndpointName\\":\\"one\\"}"}' "$ROLE"; }
    schedule s "{\"ScheduleExpression\":\"rate(5 minutes)\",\"StartDate\":$start,\"ClientToken\":\"t\",$(target)}" |
        holds '.ScheduleArn == "arn:aws:scheduler:us-east-1:123456789012:schedule/default/s"'
    schedule s "{\"ScheduleExpression\":\"rate(5 minutes)\",\"ClientToken\":\"u\",$(target)}" | holds '.Message == "Schedule s already exists."'
    schedule bad "{\"ScheduleExpression\":\"soon\",$(target)}" | holds '.Message | test("Invalid Schedule Expression")'
    signed scheduler "$URL/schedules/s?groupName=default" | holds '.Name == "s" and .State == "ENABLED" and .ScheduleExpression == "rate(5 minutes)"'
    schedule once "{\"ScheduleExpression\":\"at($(date -u -d "@$start" +%Y-%m-%dT%H:%M:%S))\",\"ActionAfterCompletion\":\"DELETE\",$(target)}" >/dev/null
    until_status one gone
    for i in $(seq 30); do
        signed scheduler "$URL/schedules/once" -o answer -w '%{http_code}' >code
        [ "$(cat code)" != 404 ] || break
        sleep 0.1
    done
    [ "$(cat code)" = 404 ]
    holds '.Message == "Schedule once does not exist."' answer
    signed scheduler "$URL/schedules/s?groupName=default" -X DELETE | holds '. == {}'
    signed scheduler "$URL/schedules" | holds '.Schedules == []'
}

@test "S3: buckets, objects, ranges, lists; what is put lies there as a file, what lies there is got; wrong sums are refused" {
    serve
    s3() { signed s3 "$URL/$1" -H "x-amz-content-sha256: ${SUM:-UNSIGNED-PAYLOAD}" "${@:2}"; }
    [ "$(s3 nobody -o /dev/null -w '%{http_code}')" = 404 ]
    s3 bkt -X PUT >/dev/null
    printf hello >file
    SUM=$(sha256sum <file | cut -d ' ' -f 1) s3 bkt/a/b%20c.txt -T file -D head
    grep -qi '^etag: "5d41402abc4b2a76b9719d911017c592"' head
    cmp file "state/s3/bkt/a/b c.txt"
    [ "$(s3 bkt/a/b%20c.txt)" = hello ]
    [ "$(s3 bkt/a/b%20c.txt -r 1-3)" = ell ]
    [ "$(s3 bkt/a/b%20c.txt -r -2)" = lo ]
    [ "$(s3 bkt/a/b%20c.txt -r 9-12 -o /dev/null -w '%{http_code}')" = 416 ]
    [ "$(s3 bkt/a/b%20c.txt -I | tr -d '\r' | sed -n 's/^Content-Length: //pI')" = 5 ]
    SUM=$(sha256sum </dev/null | cut -d ' ' -f 1) s3 bkt/x -T file | grep -q XAmzContentSHA256Mismatch
    s3 bkt/x -T file -H 'Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==' | grep -q BadDigest
    s3 bkt/../x --path-as-is | grep -q 'InvalidArgument\|NoSuchBucket\|SignatureDoesNotMatch'
    [ ! -e state/s3/x ]
    s3 'models?list-type=2&max-keys=1&prefix=e2b%2F' | grep -q '<IsTruncated>true</IsTruncated><NextContinuationToken>e2b/'
    s3 'bkt?delimiter=%2F&list-type=2' | grep -q '<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>'
    s3 models/e2b/config.json | cmp - state/s3/models/e2b/config.json
    s3 bkt/a/b%20c.txt -X DELETE
    [ "$(s3 bkt/a/b%20c.txt -o answer -w '%{http_code}')" = 404 ]
    grep -q '<Code>NoSuchKey</Code>' answer
}

@test "S3 multipart: parts in any order, put together; a wrong ETag is refused; aborted ones leave nothing" {
    serve
    s3() { signed s3 "$URL/$1" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "${@:2}"; }
    s3 bkt -X PUT >/dev/null
    head -c 100000 /dev/urandom >one
    head -c 50 /dev/urandom >two
    upload() { s3 'bkt/big?uploads=' -X POST | sed -n 's,.*<UploadId>\(.*\)</UploadId>.*,\1,p'; }
    part() { s3 "bkt/big?partNumber=$2&uploadId=$1" -T "$3" -D head && sed -n 's/^etag: "\(.*\)"\r$/\1/pI' head; }
    local id first second
    id=$(upload)
    second=$(part "$id" 2 two)
    first=$(part "$id" 1 one)
    finish() { s3 "bkt/big?uploadId=$id" -H 'Content-Type: application/xml' -d "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"$1\"</ETag></Part><Part><PartNumber>2</PartNumber><ETag>$second</ETag></Part></CompleteMultipartUpload>"; }
    finish "$second" | grep -q '<Code>InvalidPart</Code>'
    finish "$first" | grep -q -- '-2&quot;</ETag>'
    cat one two | cmp - state/s3/bkt/big
    finish "$first" | grep -q '<Code>NoSuchUpload</Code>'
    id=$(upload)
    part "$id" 1 two
    s3 "bkt/big?uploadId=$id" -X DELETE
    [ -z "$(find state/uploads -type f)" ]
}

@test "images: the registry's list; another repository is not there" {
    serve
    json11 ecr AmazonEC2ContainerRegistry_V20150921.DescribeImages '{"registryId":"763104351884","repositoryName":"vllm"}' |
        holds '[.imageDetails[].imageTags[0]] | any(test("^0\\.30\\.0-gpu-.*-sagemaker-v1\\.1$"))'
    json11 ecr AmazonEC2ContainerRegistry_V20150921.DescribeImages '{"repositoryName":"vllm"}' | refused RepositoryNotFoundException .
}

@test "an image is played by any command; a model by its name comes from the hub directory, or is not found" {
    mkdir -p hub/org
    ln -s "$(model e2b)" hub/org/name
    # shellcheck disable=SC2016
    serve --hub hub --image '*own*=exec gpu-serve --model "$MODEL_DIR" --port "$PORT" --max-context 512 --served-model-name "$NICK"'
    one() {     # NAME IMAGE ENVIRONMENT
        sm CreateModel "{\"ModelName\":\"$1\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"$2\",\"Environment\":$3}}" >/dev/null
        sm CreateEndpointConfig "{\"EndpointConfigName\":\"$1\",\"ProductionVariants\":[{\"VariantName\":\"V\",\"ModelName\":\"$1\",\"InstanceType\":\"ml.g6.xlarge\",\"InitialInstanceCount\":1}]}" >/dev/null
        sm CreateEndpoint "{\"EndpointName\":\"$1\",\"EndpointConfigName\":\"$1\"}" >/dev/null
    }
    one own my/own:1 '{"SM_VLLM_MODEL":"org/name","NICK":"nick"}'
    one hub vllm:1 '{"HF_MODEL_ID":"org/name"}'
    one none vllm:1 '{"SM_VLLM_MODEL":"org/none"}'
    until_status own InService
    until_status hub InService
    until_status none Failed
    invoke own "$CHAT" | holds '.model == "nick"'
    invoke hub "$CHAT" | holds '.choices | length == 1'
    group none | holds '[.events[].message] | any(test("org/none is not a local folder"))'
}

@test "a container that writes without end holds up nobody" {
    curl() { command curl -m 10 "$@"; }
    mkdir -p hub/org/name
    serve --hub hub --image '*own*=exec yes'
    sm CreateModel "{\"ModelName\":\"own\",\"ExecutionRoleArn\":\"$ROLE\",\"PrimaryContainer\":{\"Image\":\"my/own:1\",\"Environment\":{\"SM_VLLM_MODEL\":\"org/name\"}}}"
    sm CreateEndpointConfig '{"EndpointConfigName":"own","ProductionVariants":[{"VariantName":"V","ModelName":"own","InstanceType":"ml.g6.xlarge","InitialInstanceCount":1}]}'
    sm CreateEndpoint '{"EndpointName":"own","EndpointConfigName":"own"}'
    local i
    for ((i = 0; i < 100; i++)); do
        ! group own 2>/dev/null | holds '[.events[].message] | index("y")' 2>/dev/null || break
        sleep 0.1
    done
    [ "$i" -lt 100 ]
    [ "$(status own)" = Creating ]
    kill "$LOCAL"
    for ((i = 0; i < 100; i++)); do kill -0 "$LOCAL" 2>/dev/null || break; sleep 0.1; done
    ! kill -0 "$LOCAL" 2>/dev/null || return 1
    LOCAL=
}

@test "keys are handed out as a container's provider and an instance's metadata do; 429 on demand" {
    serve --fault token-429:1
    [ "$(curl -s -o answer -w '%{http_code}' "$URL/credentials")" = 429 ]
    grep -q 'Rate exceeded' answer
    curl -s "$URL/credentials" | holds '.AccessKeyId and .SecretAccessKey and .Token and (.Expiration | test("Z$"))'
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/latest/meta-data/iam/security-credentials/")" = 401 ]
    curl -s "$URL/latest/meta-data/iam/security-credentials/rehearsal" -H "X-aws-ec2-metadata-token: $(curl -s -X PUT "$URL/latest/api/token")" >keys
    KEY=$(jq -r '"\(.AccessKeyId):\(.SecretAccessKey)"' keys)
    json11 sagemaker SageMaker.ListEndpoints '{}' -H "X-Amz-Security-Token: $(jq -r .Token keys)" | holds '.Endpoints == []'
}

@test "usage: an unknown fault, an argument that it does not take, a taken port" {
    run -64 sm-local
    run -64 sm-local --port 0 --fault nonsense
    [[ $output = *"no such fault"* ]]
    run -64 sm-local --port 0 --fault skew:us-east-1
    run -64 sm-local --port 0 --fault capacity:DeleteModel
    serve
    run -69 sm-local --port "${URL##*:}" --state other
}

@test "sm-endpoint against it: up, facts, list, delete; a region without capacity is left for the next" {
    need_program sm-endpoint
    serve --fault capacity:us-east-1
    export AWS_ENDPOINT_URL=$URL AWS_ACCESS_KEY_ID=${KEY%%:*} AWS_SECRET_ACCESS_KEY=${KEY#*:} XDG_STATE_HOME=$PWD/journal AWS_EC2_METADATA_DISABLED=true
    sm-endpoint up q4-one --model s3://models/e2b/ --instance ml.g6.xlarge --region us-east-1,us-east-2 --role "$ROLE" --poll 0.2 >up 2>progress || { cat progress; return 1; }
    [ "$(cat up)" = q4-one@us-east-2 ]
    sm-endpoint facts q4-one --region us-east-2 | holds '.serving_at_end and .kv_tokens > 0 and .starts == 1 and .pings_ok > 0'
    sm-endpoint list --region us-east-1,us-east-2 | grep -q q4-one
    sm-endpoint delete q4-one --region us-east-2 --poll 0.2
    [ -z "$(sm-endpoint list --region us-east-1,us-east-2)" ]
}

@test "boto3 drives it as if it were AWS" {
    need_peer boto3
    serve
    "$PEER" "$ROOT/tests/peers/sm_local_check.py" "$URL"
}

@test "the AWS CLI drives it" {
    need_peer awscli
    serve
    export AWS_ENDPOINT_URL=$URL AWS_ACCESS_KEY_ID=${KEY%%:*} AWS_SECRET_ACCESS_KEY=${KEY#*:} AWS_DEFAULT_REGION=us-east-1 AWS_CONFIG_FILE=/dev/null AWS_MAX_ATTEMPTS=1
    aws() { "$PEER" -m awscli "$@"; }
    [ "$(aws sts get-caller-identity --query Account --output text)" = 123456789012 ]
    aws s3 mb s3://cli >/dev/null
    head -c 9000000 /dev/urandom >file
    aws s3 cp --only-show-errors file s3://cli/dir/file
    cmp file state/s3/cli/dir/file
    aws s3 cp --only-show-errors s3://cli/dir/file back
    cmp file back
    [ "$(aws sagemaker list-endpoints --query 'length(Endpoints)')" = 0 ]
    run -255 aws sagemaker describe-endpoint --endpoint-name ghost
    [[ $output = *ValidationException*"Could not find endpoint"* ]]
    aws sagemaker create-model --model-name cli --execution-role-arn "$ROLE" --primary-container \
        '{"Image":"vllm:x","ModelDataSource":{"S3DataSource":{"S3Uri":"s3://models/e2b/","S3DataType":"S3Prefix","CompressionType":"None"}}}' >/dev/null
    aws sagemaker create-endpoint-config --endpoint-config-name cli --production-variants VariantName=AllTraffic,ModelName=cli,InstanceType=ml.g6.xlarge,InitialInstanceCount=1 >/dev/null
    aws sagemaker create-endpoint --endpoint-name cli --endpoint-config-name cli >/dev/null
    [ "$(aws service-quotas list-service-quotas --service-code sagemaker --query "Quotas[?QuotaName=='ml.g6.xlarge for endpoint usage'].Value" --output text)" = 4.0 ]
    [ "$(aws ecr describe-images --registry-id 763104351884 --repository-name vllm --query 'length(imageDetails)')" -gt 0 ]
    until_status cli InService
    aws sagemaker-runtime invoke-endpoint --endpoint-name cli --content-type application/json --body '{"messages":[{"role":"user","content":"hi"}],"max_tokens":3}' answer >/dev/null
    holds '.usage.completion_tokens == 3' answer
    aws logs filter-log-events --log-group-name /aws/sagemaker/Endpoints/cli --filter-pattern '"startup complete"' --query 'events[0].message' --output text | grep -q 'Application startup complete'
    aws scheduler create-schedule --name cli --schedule-expression "at($(date -u -d '+1 second' +%FT%T))" --flexible-time-window Mode=OFF --target \
        "{\"Arn\":\"arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint\",\"RoleArn\":\"$ROLE\",\"Input\":\"{\\\"EndpointName\\\":\\\"cli\\\"}\"}" >/dev/null
    until_status cli gone
    [ "$(aws sagemaker list-endpoints --query 'length(Endpoints)')" = 0 ]
}
