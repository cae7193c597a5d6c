# Other people's software opens what the programs write (tests/peers/README.md).
load lib
load examples

@test "safetensors opens every stream of the emb4 recipe, and the build" {
    need_peer safetensors ml_dtypes
    local stage
    for stage in source text blocks untied build; do
        "$PEER" "$ROOT/tests/peers/st_check.py" "$(fixture "$stage")"
    done
}

@test "safetensors opens a synthetic checkpoint of every size" {
    need_peer safetensors ml_dtypes
    local size
    for size in e2b e4b 12b 26b 31b gemma3; do
        "$PEER" "$ROOT/tests/peers/st_check.py" "$(model "$size")"
    done
}

@test "safetensors opens a stream of selected rows, and what --list names it finds" {
    need_peer safetensors ml_dtypes
    local dir
    dir=$(model e2b)
    "$BIN/st-extract" --select 'embed_tokens\.weight|norm' "$dir" >some.safetensors
    "$PEER" "$ROOT/tests/peers/st_check.py" some.safetensors >found
    [ "$(jq .tensors found)" -eq "$(st_header some.safetensors | jq 'del(.__metadata__) | length')" ]
    "$BIN/st-extract" --json some.safetensors >listed
    [ "$(wc -l <listed)" -ge "$(jq .tensors found)" ]
}

build() { cached "build-$2-$1" build_into "$1" "$2"; }      # SIZE RECIPE
build_into() { "$ROOT/pipelines/$2" --scale-dtype f16 "$(golden "$1-nano")" "$3"; }

@test "safetensors opens every build" {
    need_peer safetensors ml_dtypes
    local recipe
    for recipe in text ple4 emb4 fp8 int8 fp8emb4 int8emb4 full; do
        "$PEER" "$ROOT/tests/peers/st_check.py" "$(build e2b $recipe)"
    done
}

@test "transformers loads every build without packed tables beside 8-bit linears, and takes its source's tokens" {
    local hf=$ROOT/build/peers/hf/bin/python3 size recipe
    [ -x "$hf" ] || skip "transformers is not installed: tests/peers/venv.sh hf (5.6 GB)"
    for size in e2b e4b 12b 31b gemma3; do
        for recipe in text ple4 emb4 fp8 int8 full; do
            case $size-$recipe in 12b-ple4|31b-ple4|gemma3-ple4|gemma3-full) continue ;; esac
            "$hf" "$ROOT/tests/peers/hf_check.py" "$(golden $size-nano)" "$(build $size $recipe)"
        done
    done
}

@test "vLLM loads every build that its CPU edition can, and int4 builds give the golden tokens but for near ties" {
    local vllm=$ROOT/build/peers/vllm/bin/python3 size recipe
    [ -x "$vllm" ] || skip "vLLM is not installed as build/peers/vllm: tests/peers/vllm_check.py says how (6 GB)"
    for size in e2b e4b 12b 31b; do
        for recipe in text ple4 emb4 fp8 int8 fp8emb4 int8emb4; do
            case $size-$recipe in 12b-ple4|31b-ple4) continue ;; esac
            "$vllm" "$ROOT/tests/peers/vllm_check.py" "$(build $size $recipe)" --track --dtype float16 --golden "$(golden $size-nano)/golden.json" >said
            case $recipe in text|ple4|emb4) holds '.ok and all(.runs[]; .agree_f32 == .of or .gap < 0.3)' said ;; *) holds .ok said ;; esac
        done
    done
}
