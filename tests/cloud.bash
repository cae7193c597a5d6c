# shellcheck shell=bash disable=SC2034,SC2153
# What the suites that need an account share (`load cloud` after `load lib`): an sm-local for each test, a journal of its own.

ROLE=arn:aws:iam::123456789012:role/q4
IMAGE=763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:x

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" Q4SWEEP_GUARD
    export XDG_STATE_HOME=$PWD/xdg AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
    JOURNAL=$XDG_STATE_HOME/q4sweep/journal.jsonl
}

teardown() {
    local pid
    for pid in ${LOCAL:-} ${MOTO:-}; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pkill -9 -f "guard-of-${BATS_TEST_TMPDIR##*/}-" 2>/dev/null || true
}

# An sm-local 600 times faster than the cloud; the nano E2B is s3://models/e2b/.
serve() {       # OPTION…
    need_program sm-local gpu-serve st-synth
    mkdir -p state/s3/models
    ln -sfn "$(model e2b)" state/s3/models/e2b
    env -u XDG_STATE_HOME sm-local --port "${PORT:-0}" --state state --speed "${SPEED:-600}" -v "$@" >url 2>>log 3>&- </dev/null &
    LOCAL=$!
    until [ -s url ]; do
        kill -0 "$LOCAL" || { cat log; return 1; }
        sleep 0.02
    done
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL
}

up() {          # NAME [OPTION…]
    timeout 60 sm-endpoint up "$1" --model s3://models/e2b/ --instance ml.g6.xlarge --role "$ROLE" --image "$IMAGE" --poll 0.2 "${@:2}"
}

nothing_alive() {       # [REGION…] within 30 s
    local i list
    for i in $(seq 150); do
        if list=$(sm-endpoint list --region "${1:-us-east-1}" 2>/dev/null) && [ -z "$list" ] && ! pgrep -f "gpu-serve.*$PWD/state" >/dev/null; then return 0; fi
        sleep 0.2
    done
    sm-endpoint list
    return 1
}

guarded() {     # NAME: a guard in the background whose command brings NAME up and stays; GUARD is its pid
    setsid sm-endpoint guard --poll 0.2 -- bash -c ": guard-of-${BATS_TEST_TMPDIR##*/}-; sm-endpoint up $1 --model s3://models/e2b/ --instance ml.g6.xlarge --role $ROLE --image x --poll 0.2 --expires 2h; touch up; sleep 100" \
        >/dev/null 2>>guard.err 3>&- </dev/null &
    GUARD=$!
    local i
    for i in $(seq 200); do [ ! -e up ] || break; sleep 0.05; done
    [ -e up ]
    rm up
}

# A user's account: an sm-local that this test holds, on account/, at the cloud's own pace unless told otherwise.  Sets AWS_ENDPOINT_URL and its pid LOCAL.
account() {     # OPTION…
    sm-local --port 0 --state account "$@" >url 2>log 3>&- </dev/null &
    LOCAL=$!
    until [ -s url ]; do kill -0 "$LOCAL"; sleep 0.02; done
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY XDG_STATE_HOME=$PWD/journal AWS_EC2_METADATA_DISABLED=true
}
