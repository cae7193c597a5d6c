# shellcheck shell=bash disable=SC2154 # what tests/bench/run and lib.bash set
# ct-check of 26B's 35,567 tensors, headers alone.
if wanted check-26b; then
    st-synth --size 26b --scale full --plan -o - | st-extract --text-only - | q4-regrid | ct-pack -o - | "$root/tests/bench/sparse-build" "$work/26b" ||
        fail "cannot make the sparse build of 26B"
    seconds check-26b "ct-check, text of 26B, $(jq '.weight_map | length' 26b/model.safetensors.index.json) tensors, headers alone" 1 0.3 'ct-check -q 26b'
    rm -rf "$work/26b"
fi
