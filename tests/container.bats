#!/usr/bin/env bats
# The container: its entry (cuda/serve) alone and behind sm-endpoint up --image; with Q4_SLOW set the steps of cuda/Dockerfile in clean Debian roots (tests/container.sh).
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" "${!SM_@}" XDG_STATE_HOME SAGEMAKER_BIND_TO_PORT
    need_program gpu-serve
}

teardown() { [ -z "${LOCAL:-}" ] || { kill "$LOCAL" && wait "$LOCAL"; } 2>/dev/null || true; }

@test "the entry: SageMaker's place and port, options from the environment; other words are commands; no model is an error" {
    mkdir path model
    echo '{}' >model/config.json
    printf '#!/bin/sh\nprintf "%%s " "$@"\n' >path/gpu-serve
    chmod +x path/gpu-serve
    export PATH=$PWD/path:$PATH SM_MODEL_DIR=$PWD/model
    [ "$("$ROOT/cuda/serve" serve)" = "--model $PWD/model --address 0.0.0.0 --port 8080 " ]
    export SM_GPU_SERVE_MAX_CONTEXT=8192 SM_GPU_SERVE_MMAP=true SM_GPU_SERVE_QUIET=false SM_GPU_SERVE_SERVED_MODEL_NAME='a b'
    [ "$("$ROOT/cuda/serve")" = "--model $PWD/model --address 0.0.0.0 --port 8080 --max-context 8192 --mmap --served-model-name a b " ]
    [ "$("$ROOT/cuda/serve" echo other)" = other ]
    rm model/config.json
    run -66 "$ROOT/cuda/serve" serve
    [[ $output = *"holds no model"* ]]
}

@test "sm-endpoint up --image serves by the container's entry" {
    need_program sm-local sm-endpoint sm-invoke st-extract q4-regrid emb-untie ct-pack
    "$ROOT/pipelines/emb4" "$(model e2b)" build
    mkdir -p s3/models
    cp -r build s3/models/emb4
    sm-local --port 0 --s3 "$PWD/s3" --speed 300 --image "*/gpu-serve:1=SM_MODEL_DIR=\$MODEL_DIR SAGEMAKER_BIND_TO_PORT=\$PORT exec '$ROOT/cuda/serve' serve" >url 2>log 3>&- </dev/null &
    LOCAL=$!
    until [ -s url ]; do sleep 0.02; done
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-2 XDG_STATE_HOME=$PWD/journal
    sm-endpoint up ours --model s3://models/emb4/ --image 123456789012.dkr.ecr.us-east-2.amazonaws.com/gpu-serve:1 --instance ml.g6.xlarge --role arn:aws:iam::123456789012:role/q4 \
        --env SM_GPU_SERVE_MAX_CONTEXT=512
    echo '{"id": 1, "prompt_ids": [2, 7, 9], "max_tokens": 4}' | sm-invoke --endpoint ours@us-east-2 | holds '.completion_tokens == 4'
    sm-endpoint facts ours | holds '.max_model_len == 512 and .kv_tokens > 0'
    sm-endpoint delete ours
}

@test "the steps of cuda/Dockerfile make a container that serves" {
    [ -n "${Q4_SLOW:-}" ] || skip "takes minutes: Q4_SLOW=1"
    [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null || skip "needs root and debootstrap: apt-get install debootstrap"
    need_program st-extract q4-regrid emb-untie ct-pack
    "$ROOT/pipelines/emb4" "$(model e2b)" build
    run -0 "$ROOT/tests/container.sh" build
    [[ $output = *"as SageMaker wants them" ]]
}
