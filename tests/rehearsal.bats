#!/usr/bin/env bats
# make sweep TARGET=rehearsal: the whole sweep through SageMaker's API, with the meter; and whoever is killed, nothing stays alive.
load lib
load cloud

QUICK='--short 4 --long 8 --repeats 1 --parallel-tokens 4 --batches 1 --question-tokens 2 --concurrency 1,2'

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    need_program sm-local sm-endpoint sm-invoke gpu-serve st-synth st-extract q4-regrid emb-untie ct-pack ct-check tabulate
    unset "${!AWS_@}" XDG_STATE_HOME MAKEFLAGS MAKELEVEL
    OUT=$PWD/out
}

teardown() {
    [ -z "${LOCAL:-}" ] || { kill "$LOCAL" 2>/dev/null && wait "$LOCAL"; } || true
    ! grep -rE 'Sanitizer|runtime error' log out/.rehearsal/log 2>/dev/null || false
}

sweep() {       # VARIABLE=VALUE…
    make -s -C "$ROOT" CONFIG="$Q4CONFIG" sweep TARGET=rehearsal MODEL="$(model e2b)" BUILDS=text OUT="$OUT" MEASURE="$QUICK" "$@"
}

endpoints() { jq '[.regions[]?.endpoint // {} | keys[]] | length' account/state.json; }

until_gone() {  # SECONDS: no endpoint, no container
    local i
    for ((i = 0; i < $1 * 5; i++)); do
        if [ "$(endpoints)" = 0 ] && ! pgrep -P "$LOCAL" >/dev/null; then return 0; fi
        sleep 0.2
    done
    jq -c .regions account/state.json
    return 1
}

until_up() {    # an endpoint exists
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(endpoints)" = 0 ] || return 0
        sleep 0.1
    done
    return 1
}

@test "the whole sweep: result, prices, meter; nothing stays" {
    run -0 --separate-stderr sweep
    [[ $stderr = *"sm-endpoint: q4-text-"*"@us-east-2: InService"*"USD"* ]]         # the way up, as it goes
    holds '.target == "rehearsal" and .machine.instance == "ml.g6.xlarge" and .machine.region == "us-east-2" and .machine.usd_per_hour > 1' out/*/text.json
    holds '.engine | .name == "gpu-serve" and .kv_tokens > 0 and .starts == 1' out/*/text.json
    holds '(.seconds > 0) and (.usd > 0) and (.name | test("^q4-text-"))' out/meter.jsonl
    holds '[.regions[] | (.endpoint, .model, ."endpoint-config", .schedule) | length] | add == 0' out/.rehearsal/account/state.json
    [ -z "$(find out/.rehearsal/account/s3 -type f)" ]
}

@test "the next sweep's faults count: the account of the one before has ended first; what TARGET=sagemaker lacks is said before any work" {
    run -0 --separate-stderr sweep
    run -2 --separate-stderr sweep FAULTS=start-error MEASURE="$QUICK --long 9"
    [[ $stderr = *"waiting until the account of an earlier sweep"*"CannotStartContainerError"* ]]
    run -2 --separate-stderr env -u ROLE make -s -C "$ROOT" CONFIG="$Q4CONFIG" sweep TARGET=sagemaker MODEL="$(model e2b)" OUT="$PWD/none"
    [[ $stderr = *"sagemaker: ROLE is not set"* && ! -e none ]]
}

@test "an endpoint that may not be deleted: said loudly, the sweep fails, no meter claims that it ended" {
    account --fault denied
    run -2 --separate-stderr sweep
    [[ $stderr = *"@us-east-2 STILL RUNS: it may not be deleted"*"run: aws sagemaker delete-endpoint --endpoint-name q4-text-"*"sweep: failed: text"* ]]
    [ ! -e out/meter.jsonl ]
    # and where it never came up, too
    run -2 --separate-stderr sweep SERVE='--timeout 0.5' MEASURE="$QUICK --long 9"
    [[ $stderr = *"STILL RUNS"*"the endpoint did not come up"* ]]
}

@test "a clock that is off is cured in a sweep as well" {
    run -0 --separate-stderr sweep FAULTS=skew
    holds '.seconds > 0 and .seconds < 300 and .usd > 0' out/meter.jsonl
    [[ $stderr != *" USD 0.0000 on the meter"* ]]
}

@test "a sweep that is stopped while its endpoint is Creating says what it waits for; nothing stays" {
    account --fault lag:12m
    setsid env --default-signal=INT bash -c 'exec "$@"' _ make -s -C "$ROOT" CONFIG="$Q4CONFIG" sweep TARGET=rehearsal MODEL="$(model e2b)" BUILDS=text OUT="$OUT" 2>err >/dev/null 3>&- &
    until_up
    sleep 1
    kill -INT -- "-$!"
    wait "$!" || true
    grep -q "rehearsal: q4-text-.*: waiting until it is deleted, which cannot be while it is Creating" err
    grep -q "sm-endpoint: deleting q4-text-" err
    until_gone 5
}

@test "a recorded number that belongs to another process by now is left alone" {
    mkdir state
    touch state/log
    sleep 100 3>&- &
    echo $! | tee state/pid >state/guard
    run -66 env Q4STATE="$PWD/state" "$ROOT/pipelines/targets/rehearsal" url
    Q4STATE=$PWD/state "$ROOT/pipelines/targets/rehearsal" down
    kill %1
}

@test "a region without capacity: the next one serves, the meter says which" {
    account --fault capacity:us-east-2
    run -0 --separate-stderr sweep REGION=us-east-2,us-west-2
    holds '.region == "us-west-2"' out/meter.jsonl
    [ "$(endpoints)" = 0 ]
}

@test "-j3 and a quota of two: two endpoints at a time, never three; all builds are measured" {
    account --fault quota:ml.g6.xlarge=2 --speed 300
    (while sleep 0.1; do endpoints 2>/dev/null; done >counts) 3>&- &
    local watcher=$!
    run -0 --separate-stderr sweep -j3 BUILDS="text emb4 ple4"
    kill "$watcher"
    [ "$(sort -n counts | tail -n 1)" = 2 ]
    [ "$(wc -l <out/meter.jsonl)" -eq 3 ]
    for build in text emb4 ple4; do holds '.machine.instance == "ml.g6.xlarge"' out/*/$build.json; done
    [ "$(endpoints)" = 0 ]
}

@test "a build that does not come up: the sweep fails with the container's error, nothing stays" {
    account --fault fail:gpu-out-of-memory --speed 600
    run ! --separate-stderr sweep
    [[ $stderr = *"CUDA out of memory"* ]]
    [ "$(endpoints)" = 0 ]
}

@test "make's group killed under lag: gone once the endpoint may be deleted" {
    account --fault lag:10m --speed 120
    set -m
    sweep >/dev/null 2>sweep.log 3>&- &
    local job=$!
    set +m
    until_up
    kill -9 -- -"$job"
    wait "$job" || true
    until_gone 60
}

@test "all killed at once: the schedule deletes it" {
    account --speed 120
    set -m
    sweep EXPIRES=15s >/dev/null 2>sweep.log 3>&- &
    local job=$! p
    set +m
    until_up
    kill -9 -- -"$job"
    for p in $(pgrep -f 'sm-endpoint guard'); do
        if tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qxF "AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL"; then kill -9 "$p"; fi
    done
    wait "$job" || true
    until_gone 60
}

@test "the guard, and the watcher under lag, killed at random instants (tests/kills.sh; by hand with more rounds): nothing stays" {
    run -0 "$ROOT/tests/kills.sh" 2 "$RANDOM" guard watcher+lag
    [[ $output = *"2 sweeps killed, 0 left something alive"* ]]
}
