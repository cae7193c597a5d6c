# shellcheck shell=bash
# What a sweep calls its MODEL: a checkpoint directory, one safetensors file, or a remote place that st-extract reads.

model_is_remote() { [[ ${1,,} =~ ^(https?|hf):// ]]; }      # MODEL

# The directory of its results in OUT: the last part of its path or address.
model_label() {         # MODEL
    local name=$1
    if model_is_remote "$name"; then name=${name%%[?#]*}; else name=$(realpath -sm -- "$name"); fi
    basename -s .safetensors -- "$name"
}
