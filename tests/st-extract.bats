#!/usr/bin/env bats
# st-extract: names, order, selection, rows, lists; the same bytes from a directory, a file, a pipe and a compressed file.
load lib

names() { st_header "$1" | jq -r 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0]) | .[].key'; }

@test "text-only keeps the language model, renamed, in the stated order" {
    dir=$(golden e2b-nano)
    st-extract --text-only "$dir" > x.st
    names x.st > n
    [ "$(head -n 1 n)" = model.embed_tokens.weight ]
    ! grep -Eq 'language_model|tower|audio|vision' n || false
    # layer by layer, then the scalars, which are no multiple of 8 bytes, then files
    grep -oE '^model\.layers\.[0-9]+' <(grep -vE 'layer_scalar|^file:' n) | grep -oE '[0-9]+' > layers
    sort -n -C layers
    [ "$(grep -n layer_scalar n | head -n 1 | cut -d: -f1)" -gt "$(grep -n 'layers.*weight' n | tail -n 1 | cut -d: -f1)" ]
    grep -q '^file:generation_config.json$' n
    st_header x.st | jq -e '[to_entries[] | select(.key != "__metadata__") | .value | select(.dtype == "BF16") | .data_offsets[0] % 2] | all(. == 0)'
}

@test "text-only lifts the config" {
    st-extract --text-only "$(golden 12b-nano)" > x.st
    st_header x.st | jq -r .__metadata__.config > c.json
    holds '.architectures == ["Gemma4ForCausalLM"] and .model_type == "gemma4_unified_text" and .tie_word_embeddings == true and (has("text_config") | not) and (has("vision_config") | not)' c.json
}

@test "without text-only every tensor keeps its name" {
    dir=$(golden 26b-nano)
    st-extract "$dir" > x.st
    diff <(names x.st | grep -v '^file:' | sort) <(names "$dir/model.safetensors" | sort)
}

@test "a file, standard input, a pipe and a compressed file give the same bytes" {
    f=$(golden e4b-nano)/model.safetensors
    st-extract --text-only "$f" > a
    st-extract --text-only - < "$f" > b
    cat "$f" | st-extract --text-only - > c
    zstd -q "$f" -o f.zst
    st-extract --text-only f.zst > d
    for x in b c d; do same_bytes a $x; done
}

@test "data are the source's, byte for byte" {
    dir=$(golden 31b-nano)
    st-extract --text-only "$dir" > x.st
    for t in embed_tokens.weight layers.5.mlp.down_proj.weight layers.0.layer_scalar; do
        run max_diff "x.st:model.$t" "$dir/model.safetensors:model.language_model.$t"
        [ "$status" -eq 0 ] && [ "$output" = 0 ]
    done
}

@test "-z compresses; the stream inside is the same" {
    dir=$(golden gemma3-nano)
    st-extract "$dir" > a
    st-extract -z "$dir" > a.zst
    zstd -dqc a.zst > b
    same_bytes a b
}

@test "--rows reads half-open ranges of one tensor" {
    dir=$(golden gemma3-nano)
    st-extract --rows model.embed_tokens.weight:3-5 "$dir" > x.st
    [ "$(names x.st)" = model.embed_tokens.weight ]
    st_header x.st | jq -e '.["model.embed_tokens.weight"].shape == [2, 256]'
    at=$(( $(od -An -tu8 -N8 "$dir/model.safetensors") + 8 + 3 * 512 ))
    same_bytes <(tail -c 1024 x.st) <(tail -c +$((at + 1)) "$dir/model.safetensors" | head -c 1024)
    cat "$dir/model.safetensors" | st-extract --rows model.embed_tokens.weight:3-5 - > y.st
    same_bytes <(tail -c 1024 x.st) <(tail -c 1024 y.st)
}

@test "--rows that make no sense are refused" {
    dir=$(golden gemma3-nano)
    for r in model.embed_tokens.weight:5-5 model.embed_tokens.weight:0-9999 model.embed_tokens.weight :0-1 model.embed_tokens.weight:-1-2 model.embed_tokens.weight:1-2x; do
        run -64 st-extract --rows "$r" "$dir"
        [[ $output == *"--rows: $r"* ]]
    done
    run -65 st-extract --rows nothing:0-1 "$dir"
    run -64 st-extract --rows model.norm.weight:0-1 --rows model.norm.weight:1-2 "$dir"
    [[ $output == *"--rows: model.norm.weight:1-2: its tensor is asked for twice: give one range that holds both" ]]
}

@test "--select is an extended regular expression on source names" {
    dir=$(golden e2b-nano)
    st-extract --text-only --select 'language_model\.layers\.(0|2)\.' "$dir" > x.st
    [ "$(names x.st | grep -oE 'layers\.[0-9]+' | sort -u | tr '\n' ' ')" = "layers.0 layers.2 " ]
    run -64 st-extract --select '(' "$dir"
    [[ $output == *"--select: ("* ]]
}

@test "--list and --json show the tensors that would come out" {
    dir=$(golden gemma3-nano)
    st-extract --list --text-only "$dir" > t
    tail -n 1 t | grep -q '^159 tensors'
    st-extract --json --text-only "$dir" | jq -s -e 'length == 159 and .[0].name == "model.embed_tokens.weight" and .[0].shape == [1024, 256] and .[0].bytes == 524288 and .[0].dtype == "BF16"'
}

@test "a name's control characters are shown, in a list and in ct-check's lines, never sent to the terminal" {
    local header='{"a\nb\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    { printf '%b' "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf '%sAAAA' "$header"; } > odd.safetensors
    st-extract --json odd.safetensors | jq -e '.name == "a\nb\u001b[31m"'
    st-extract --list odd.safetensors > t
    [ "$(wc -l < t)" = 3 ]
    grep -F 'a\x0ab\x1b[31m' t
    need_program ct-check
    mkdir b
    cp "$(golden gemma3-nano)/config.json" odd.safetensors b
    mv b/odd.safetensors b/model.safetensors
    run -1 ct-check b
    grep -F 'a\x0ab\x1b[31m' <<< "$output"
    run -1 grep $'\e' <<< "$output"
}

@test "--plan writes the header alone, and a plan goes through" {
    dir=$(golden e2b-nano)
    st-extract --text-only --plan "$dir" > p
    st_header p | jq -e '.__metadata__.plan == "1"'
    [ "$(stat -c %s p)" -eq $(( $(od -An -tu8 -N8 p) + 8 )) ]
    st-extract - < p > q
    [ "$(names p)" = "$(names q)" ]
}

@test "shards are merged; a missing one, a tensor in two, an index that lies are refused" {
    f=$(golden gemma3-nano)/model.safetensors
    mkdir s
    st-extract --select 'layers\.[0-5]\.' "$f" > s/a.safetensors
    st-extract --select 'embed|model\.norm|layers\.([6-9]|1[01])\.' "$f" > s/b.safetensors
    index() { st_header "s/$1" | jq --arg f "$1" 'del(.__metadata__) | map_values($f)'; }
    jq -s '{metadata: {}, weight_map: (.[0] + .[1])}' <(index a.safetensors) <(index b.safetensors) > s/model.safetensors.index.json
    st-extract s > x.st
    [ "$(names x.st | sort)" = "$(names "$f" | sort)" ]
    mv s/b.safetensors b
    run -65 st-extract s
    [[ $output == *b.safetensors*missing* ]]
    cp s/a.safetensors s/b.safetensors
    run -65 st-extract s
    [[ $output == *"stands in both"* ]]
    st-extract --select embed "$f" > s/b.safetensors
    run -65 st-extract s
    [[ $output == *"the index names"* ]]
}

@test "every precisely broken stream is refused, every odd but valid one passes" {
    st-extract --select 'norm' "$(golden gemma3-nano)" > ok.st
    while read -r kind want _; do
        "$TOOLS/st-break" "$kind" < ok.st > broken.st
        run -"$want" st-extract broken.st
        run -"$want" bash -c 'cat broken.st | st-extract - > out'
    done < <("$TOOLS/st-break" --list)
}

@test "provenance names the stage, its options and what was read" {
    f=$(golden gemma3-nano)/model.safetensors
    st-extract --text-only -q "$f" > x.st
    sum=$(st_header "$f" | sha256sum | cut -d' ' -f1)
    st_header x.st | jq -r .__metadata__.provenance | jq -e --arg s "$sum" '.[0].tool == "st-extract" and .[0].args == ["--text-only"] and .[0].parent == $s'
    ! st_header x.st | grep -q "$PWD" || false
    st-extract --plan --select $'\xff|embed' --rows model.embed_tokens.weight:0-2 "$f" > y.st       # an option that is no UTF-8 is not left out
    st_header y.st | jq -r .__metadata__.provenance | jq -e '.[0].args == ["--select=?|embed", "--rows=model.embed_tokens.weight:0-2"]'
}

@test "a closed standard output and a file beyond its limit are failed writes" {
    local dir
    dir=$(golden gemma3-nano)
    run -74 bash -c 'st-extract "$1" >&-' - "$dir"
    [[ $output == *"stdout"* ]]
    run -0 bash -c 'st-extract -o x.st "$1" >&-' - "$dir"
    run -74 bash -c 'ulimit -f 100; st-extract -o y.st "$1"' - "$dir"
    only_holds . x.st
}

@test "metadata of a checkpoint's files go along, its config is config.json" {
    cp -r "$(golden gemma3-nano)" d
    rm -f d/steps.safetensors d/golden.safetensors
    "$TOOLS/st-mutate" d/model.safetensors meta note 'from elsewhere'
    "$TOOLS/st-mutate" d/model.safetensors meta config '{}'
    st-extract d > x.st
    st_header x.st > h
    holds '.__metadata__ | .note == "from elsewhere" and .format == "pt" and (.config | fromjson | .model_type == "gemma3_text")' h
}
