# shellcheck shell=bash disable=SC2154 # what tests/bench/run and lib.bash set
# One core of q4-regrid, its whole process, against the published algorithm in numpy, which times its arithmetic alone.
# The tensor is E2B's token table at true size, 805 MB, in the page cache of the disk that build/ is on, written in large pieces as a download is.
if wanted regrid-avx512 || wanted regrid-avx2 || wanted regrid-scalar; then
    one=$root/build/bench/one.safetensors
    like_e2b '.num_hidden_layers = 1 | .layer_types |= .[:1] | .num_kv_shared_layers = 0 | .vocab_size_per_layer_input = 64' >table.json
    st-synth --config table.json -o - | st-extract --text-only --rows model.embed_tokens.weight:0-262144 - | dd of="$one" bs=4M iflag=fullblock status=none ||
        fail "cannot make a table of 805 MB in build/bench"
    ln -s "$one" one.safetensors
    one_bytes=$(st-extract --json one.safetensors | jq -s 'map(.bytes) | add')
    python=$root/build/peers/light/bin/python3
    if [ -x "$python" ]; then
        st-extract --text-only --rows model.embed_tokens.weight:0-16384 one.safetensors >peer.safetensors
        numpy=$("$python" "$root/tests/peers/np_regrid.py" peer.safetensors model.embed_tokens.weight --repeat 3 | jq .gb_per_s) || fail "np_regrid.py failed"
        for simd in avx512 avx2 scalar; do
            gate='' aim=''
            [ $simd != avx512 ] || { gate=150 aim=250; }
            [ $simd != avx2 ] || { gate=60 aim=120; }
            compare_rate regrid-$simd "q4-regrid -j1 --simd $simd, one tensor" "np_regrid.py (numpy)" "$gate" "$aim" "$one_bytes" \
                "taskset -c 0 q4-regrid -j1 --simd $simd --only embed <one.safetensors >/dev/null" "$numpy"
        done
    else
        no_peer regrid-avx512 "q4-regrid -j1, one tensor" "numpy is missing: make peers"
    fi
    rm -f "$one" one.safetensors peer.safetensors
fi
