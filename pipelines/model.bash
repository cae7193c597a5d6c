# shellcheck shell=bash
# What a sweep calls its MODEL: a checkpoint directory, one safetensors file, or a remote place that st-extract reads.  And how to ask for it again.

model_is_remote() { [[ ${1,,} =~ ^(https?|hf):// ]]; }      # MODEL

# The directory of its results in OUT: the last part of its path or address.
model_label() {         # MODEL
    local name=$1
    if model_is_remote "$name"; then name=${name%%[?#]*}; else name=$(realpath -sm -- "$name"); fi
    basename -s .safetensors -- "$name"
}

# For a result's tool.command.
asked_for() {           # sweep|pair MODEL BUILDS TARGET
    local text="${Q4FRONT:-make} $1 MODEL=${2@Q} BUILDS=${3@Q}" name
    if [ -n "${SERVER:-}" ]; then text+=" SERVER=${SERVER@Q}"; else text+=" TARGET=$4"; fi
    case $4 in rehearsal | sagemaker) set -- INSTANCE REGION EXPIRES FAULTS ;; *) set -- ;; esac
    for name in REPACK SERVE MEASURE "$@"; do
        if [ -n "${!name:-}" ]; then text+=" $name=${!name@Q}"; fi
    done
    echo "$text"
}
