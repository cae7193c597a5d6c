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
