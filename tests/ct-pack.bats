# ct-pack: what a build holds, what is refused, and how it appears.
load lib

stream() {      # GOLDEN [REGRID CLASSES [untie]]: a text-only stream
    local src
    src=$(golden "$1")
    if [ $# -eq 1 ]; then "$BIN/st-extract" --text-only "$src"
    elif [ $# -eq 2 ]; then "$BIN/st-extract" --text-only "$src" | "$BIN/q4-regrid" --only "$2" --scale-dtype f16
    else "$BIN/st-extract" --text-only "$src" | "$BIN/q4-regrid" --only "$2" --scale-dtype f16 | "$BIN/emb-untie"; fi
}

header() { st_header "$1/model.safetensors" | jq 'del(.__metadata__)'; }
quant() { jq -c .quantization_config "$1/config.json"; }

# The groups of a config as the reference spells them (compressed-tensors reference, 4.2).
W4='{"num_bits":4,"type":"int","symmetric":true,"strategy":"group","group_size":32,"dynamic":false,"actorder":null,"block_structure":null,"observer":null,"observer_kwargs":{}}'
int4_group() { printf '{"targets":["%s"],"format":"pack-quantized","output_activations":null,"input_activations":null,"weights":%s}' "$1" "$W4"; }
w8_group() {    # float|int
    local args='{"num_bits":8,"type":"'$1'","symmetric":true,"strategy":"%s","group_size":null,"dynamic":%s,"actorder":null,"block_structure":null,"observer":null,"observer_kwargs":{}}'
    # shellcheck disable=SC2059
    printf '{"targets":["Linear"],"format":"%s-quantized","output_activations":null,"input_activations":%s,"weights":%s}' "$1" "$(printf "$args" token true)" "$(printf "$args" channel false)"
}
expected_config() {     # FORMAT GROUPS IGNORE
    printf '{"quant_method":"compressed-tensors","format":"%s","quantization_status":"compressed","config_groups":{%s},"ignore":%s,"kv_cache_scheme":null,"sparsity_config":{}}\n' "$@"
}
tables() {      # with a per-layer table, or without
    [ "$1" = ple ] && printf '"group_embed_tokens_per_layer":%s,' "$(int4_group 're:.*\\.embed_tokens_per_layer$')"
    printf '"group_embed_tokens":%s,"group_lm_head":%s' "$(int4_group 're:.*\\.embed_tokens$')" "$(int4_group 're:^lm_head$')"
}

@test "quantization_config, byte for byte: text, ple4, emb4, fp8, int8, fp8emb4, int8emb4" {
    local linear
    linear="\"group_0\":$(int4_group Linear)"
    stream e2b-nano linears | "$BIN/ct-pack" -o text
    [ "$(quant text)" = "$(expected_config pack-quantized "$linear" '["lm_head"]')" ]
    stream e2b-nano linears,ple | "$BIN/ct-pack" -o ple4
    [ "$(quant ple4)" = "$(expected_config pack-quantized "$linear,\"group_embed_tokens_per_layer\":$(int4_group 're:.*\\.embed_tokens_per_layer$')" '["lm_head"]')" ]
    stream e2b-nano linears,ple,embed untie | "$BIN/ct-pack" -o emb4
    [ "$(quant emb4)" = "$(expected_config pack-quantized "$linear,$(tables ple)" '[]')" ]
    stream 31b-nano linears,ple,embed untie | "$BIN/ct-pack" -o emb4-31b
    [ "$(quant emb4-31b)" = "$(expected_config pack-quantized "$linear,$(tables none)" '[]')" ]
    for l in fp8 int8; do
        kind=$([ $l = fp8 ] && echo float || echo int)
        stream e2b-nano | "$BIN/ct-pack" --linears $l -o $l
        [ "$(quant $l)" = "$(expected_config $kind-quantized "\"group_0\":$(w8_group $kind)" '["lm_head"]')" ]
        stream e2b-nano ple,embed untie | "$BIN/ct-pack" --linears $l -o ${l}emb4
        [ "$(quant ${l}emb4)" = "$(expected_config pack-quantized "\"group_0\":$(w8_group $kind),$(tables ple)" '[]')" ]
    done
    holds '.tie_word_embeddings' text/config.json
    holds '.tie_word_embeddings == false' emb4/config.json
    holds '.architectures == ["Gemma4ForCausalLM"]' text/config.json
}

@test "26B: per-expert modules, routers ignored and in 16 bits" {
    stream 26b-nano linears | "$BIN/ct-pack" -o b
    header b >h
    holds '.["model.layers.0.experts.7.up_proj.weight_packed"] | .dtype == "I32" and .shape == [32, 32]' h
    holds '.["model.layers.5.experts.0.down_proj.weight_scale"] | .dtype == "F16" and .shape == [256, 1]' h
    holds '.["model.layers.0.router.proj.weight"].dtype == "BF16"' h
    [ "$(jq '[keys[] | select(test("experts.*weight_packed"))] | length' h)" -eq $((6 * 8 * 3)) ]
    [ "$(jq -c .quantization_config.ignore b/config.json)" = '["lm_head","model.layers.0.router.proj","model.layers.1.router.proj","model.layers.2.router.proj","model.layers.3.router.proj","model.layers.4.router.proj","model.layers.5.router.proj"]' ]
    for l in fp8 int8; do
        stream 26b-nano | "$BIN/ct-pack" --linears $l -o $l
        header $l >h
        holds '.["model.layers.0.experts.7.gate_proj.weight"].shape == [32, 256] and .["model.layers.0.experts.7.gate_proj.weight_scale"].shape == [32, 1]' h
    done
}

@test "full: towers in 16 bits, both spellings ignored; 12B's 17 entries and extra keys" {
    "$BIN/st-extract" "$(golden 12b-nano)" | "$BIN/q4-regrid" | "$BIN/ct-pack" -o b
    diff <(jq -r '.quantization_config.ignore[]' b/config.json | sort) - <<'END'
embed_audio.embedding_projection
embed_vision.embedding_projection
embed_vision.multimodal_embedder.embedding_projection
embed_vision.patch_dense
lm_head
model.embed_audio.embedding_projection
model.embed_vision.embedding_projection
model.embed_vision.multimodal_embedder.embedding_projection
model.embed_vision.patch_dense
model.vision_embedder.patch_dense
model.vision_embedder.patch_ln1
model.vision_embedder.patch_ln2
model.vision_embedder.pos_norm
vision_embedder.patch_dense
vision_embedder.patch_ln1
vision_embedder.patch_ln2
vision_embedder.pos_norm
END
    holds '.hidden_size == 256 and .intermediate_size == 256 and .hidden_act == "gelu_pytorch_tanh" and has("num_experts") and .num_experts == null and has("moe_intermediate_size") and has("num_experts_per_tok")' b/config.json
    holds '.vision_config.num_soft_tokens == 280 and .vision_config.model_patch_size == 6' b/config.json
    "$BIN/st-extract" "$(golden e2b-nano)" | "$BIN/q4-regrid" | "$BIN/ct-pack" -o e
    # every 2-D tower weight, with and without "model."
    diff <(header e | jq -r 'to_entries[] | select((.key | test("^model.(vision|audio|embed)_?.*[.]weight$")) and (.key | test("language_model") | not) and (.value.shape | length) == 2) | .key[:-7] | ., .[6:]' | sort) \
        <(jq -r '.quantization_config.ignore[] | select(. != "lm_head")' e/config.json | sort)
}

@test "layout: reference order, aligned, one file without an index; shards with one" {
    stream e2b-nano linears >s
    "$BIN/ct-pack" -o one <s
    [ ! -e one/model.safetensors.index.json ]
    "$BIN/ct-pack" --shard-size 200000 -o many <s
    for size in 200K 200KB 0.2MB; do "$BIN/ct-pack" --shard-size $size -o "many-$size" <s; diff -r many "many-$size"; rm -r "many-$size"; done
    local n f
    n=$(find many -name 'model-*-of-*.safetensors' | wc -l)
    [ "$n" -gt 5 ]
    for f in one/model.safetensors many/model-*.safetensors; do
        st_header "$f" >h
        [ $(($(od -An -tu8 -N8 "$f") % 8)) -eq 0 ]
        # dtype descending, then name, each on a multiple of its size
        holds 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets) | map([{"I64": 0, "F32": 1, "I32": 2, "BF16": 3, "F16": 4}[.value.dtype], .key]) | . == sort' h
        holds 'del(.__metadata__) | all(.[]; .data_offsets[0] % {"I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2}[.dtype] == 0)' h
        holds '.__metadata__.format == "pt"' h
    done
    # the same tensors, wherever they lie
    for f in many/model-*.safetensors; do st_header "$f" | jq -r 'del(.__metadata__) | keys[]'; done | sort >names
    diff names <(header one | jq -r 'keys[]' | sort)
    diff names <(jq -r '.weight_map | keys[]' many/model.safetensors.index.json | sort)
    for f in many/model-*.safetensors; do
        diff <(st_header "$f" | jq -r 'del(.__metadata__) | keys[]' | sort) <(jq -r --arg f "$(basename "$f")" '.weight_map | to_entries[] | select(.value == $f) | .key' many/model.safetensors.index.json | sort)
    done
}

@test "a packed module holds its blocks' nibbles and scales" {
    stream e2b-nano linears >s
    "$BIN/ct-pack" -o b <s
    local at n blocks packed scale
    name=model.layers.0.mlp.up_proj
    bytes() {   # FILE TENSOR
        local len
        len=$(od -An -tu8 -N8 "$1" | tr -d ' ')
        read -r at n < <(st_header "$1" | jq -r --arg t "$2" '.[$t].data_offsets | "\(.[0]) \(.[1] - .[0])"')
        tail -c +$((9 + len + at)) "$1" | head -c "$n"
    }
    bytes s $name.weight_q4 | hex 18 >blocks
    diff <(cut -c 5- blocks) <(bytes b/model.safetensors $name.weight_packed | hex 16)
    diff <(cut -c 1-4 blocks) <(bytes b/model.safetensors $name.weight_scale | hex 2)
    [ "$(bytes b/model.safetensors $name.weight_shape | od -An -tu8 | tr -s ' ')" = " 128 256" ]
}

@test "the manifest covers every file; side files; provenance; text-only drops the processor" {
    mkdir src
    cp "$(golden e2b-nano)"/{config,generation_config}.json "$(golden e2b-nano)/model.safetensors" src
    echo '{}' | tee src/processor_config.json >src/tokenizer_config.json
    "$BIN/st-extract" --text-only src | "$BIN/q4-regrid" | "$BIN/ct-pack" -o b
    (cd b && sha256sum -c --strict --quiet MANIFEST.sha256)
    diff <(cd b && find . -type f ! -name MANIFEST.sha256 -printf '%f\n' | sort) <(cut -c 67- b/MANIFEST.sha256)
    cmp b/generation_config.json src/generation_config.json
    only_holds b MANIFEST.sha256 config.json generation_config.json model.safetensors provenance.json tokenizer_config.json
    holds '[.[].tool] == ["st-extract", "q4-regrid", "ct-pack"] and (.[2].parent | test("^[0-9a-f]{64}$")) and .[2].args == ["--linears=int4", "--shard-size=5000000000"]' b/provenance.json
    "$BIN/st-extract" src | "$BIN/q4-regrid" | "$BIN/ct-pack" -o full
    cmp full/processor_config.json src/processor_config.json
}

@test "plans: the same numbers as the build, and the build's own plan stream" {
    for how in "linears" "linears,ple,embed untie"; do
        # shellcheck disable=SC2086
        stream e2b-nano $how >s
        rm -rf b && "$BIN/ct-pack" -o b <s
        if [ "$how" = linears ]; then "$BIN/st-extract" --text-only --plan "$(golden e2b-nano)" | "$BIN/q4-regrid" --scale-dtype f16 >p
        else "$BIN/st-extract" --text-only --plan "$(golden e2b-nano)" | "$BIN/q4-regrid" --only linears,ple,embed --scale-dtype f16 | "$BIN/emb-untie" >p; fi
        run -0 "$BIN/ct-pack" -o nowhere <p
        [ ! -e nowhere ]
        header b >h
        holds "$(jq 'length' h) as \$n | .tensors == \$n" <<<"$output"
        [ "$(jq .tensor_bytes <<<"$output")" -eq "$(jq '[.[].data_offsets[1]] | max' h)" ]
        [ "$(jq .quantized_modules <<<"$output")" -eq "$(jq '[keys[] | select(endswith("weight_packed"))] | length' h)" ]
        "$BIN/ct-pack" -o - <p >own
        st_header own >o
        diff <(jq -r 'del(.__metadata__) | keys[]' o | sort) <(jq -r 'keys[]' h | sort)
        diff <(jq -c '.__metadata__.config | fromjson' o) <(jq -c . b/config.json)
        [ "$(jq -r .__metadata__.plan o)" = 1 ]
    done
    run -64 "$BIN/ct-pack" -o - <s
}

@test "a build that was packed already passes through unchanged, and its tables can still be packed" {
    stream e2b-nano linears | "$BIN/ct-pack" -o b
    "$BIN/st-extract" --text-only b | "$BIN/ct-pack" -o again
    cmp b/model.safetensors again/model.safetensors
    diff <(jq -S . b/config.json) <(jq -S . again/config.json)
    "$BIN/st-extract" --text-only b | "$BIN/q4-regrid" --only linears,ple,embed --scale-dtype f16 | "$BIN/emb-untie" | "$BIN/ct-pack" -o emb4
    stream e2b-nano linears,ple,embed untie | "$BIN/ct-pack" -o direct
    cmp emb4/model.safetensors direct/model.safetensors
    diff <(quant emb4) <(quant direct)
    stream e2b-nano | "$BIN/ct-pack" --linears fp8 -o fp8
    "$BIN/st-extract" --text-only fp8 | "$BIN/ct-pack" -o fp8again
    cmp fp8/model.safetensors fp8again/model.safetensors
}

@test "linears that came packed in another way than --linears asks for are named on stderr, once" {
    stream e2b-nano linears | "$BIN/ct-pack" -o b
    "$BIN/st-extract" --text-only b >packed
    "$BIN/ct-pack" -o again <packed 2>err
    [ ! -s err ]
    "$BIN/ct-pack" --linears fp8 -o fp8 <packed 2>err
    [ "$(cat err)" = "ct-pack: warning: stdin: $(st_header fp8/model.safetensors | grep -o '"[^"]*weight_packed"' | wc -l) linears came packed and stay as they are, not fp8: that is made from a source in 16 bits" ]
    cmp b/model.safetensors fp8/model.safetensors
    "$BIN/ct-pack" -q --linears int8 -o int8 <packed 2>err
    [ ! -s err ]
}

@test "linears left in 16 bits: refused unless q4_left names them; then ignored, siblings together" {
    run -65 "$BIN/ct-pack" -o b < <(stream e2b-nano)
    [[ $output = *"is a linear in BF16 and q4_left does not name it"* ]]
    [ ! -e b ]
    "$BIN/st-extract" --text-only "$(golden 12b-nano)" | "$BIN/q4-regrid" --leave 'layers\.2\.self_attn\.(q|k|v)_proj' | "$BIN/ct-pack" -o b
    [ "$(jq -c .quantization_config.ignore b/config.json)" = '["lm_head","model.layers.2.self_attn.q_proj","model.layers.2.self_attn.v_proj","model.layers.2.self_attn.k_proj"]' ] ||
        diff <(jq -r '.quantization_config.ignore[]' b/config.json | sort) <(printf '%s\n' lm_head model.layers.2.self_attn.{k,q,v}_proj)
    run -0 "$BIN/ct-check" --strict b
    "$BIN/st-extract" --text-only "$(golden 26b-nano)" | "$BIN/q4-regrid" --leave 'layers\.1\.experts\.' | "$BIN/ct-pack" -o m
    run -0 "$BIN/ct-check" --strict --against "$(golden 26b-nano)" m
}

@test "refusals: half a fused layer, a packed table without a head, int4 linears for an 8-bit build, nothing to pack" {
    stream e2b-nano linears,embed >s
    run -65 "$BIN/ct-pack" -o b <s
    [[ $output = *emb-untie* ]]
    stream e2b-nano linears >s
    run -65 "$BIN/ct-pack" --linears fp8 -o b <s
    [[ $output = *"int4 already"* ]]
    cp s t && "$TOOLS/st-mutate" t drop model.layers.0.mlp.up_proj.weight_q4 && "$TOOLS/st-mutate" t zeros model.layers.0.mlp.up_proj.weight BF16 128,256
    "$TOOLS/st-mutate" t meta q4_left '["model.layers.0.mlp.up_proj.weight"]'
    run -65 "$BIN/ct-pack" -o b <t
    [[ $output = *"fuses them"* ]]
    cp s t && "$TOOLS/st-mutate" t meta q4_scale f32
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t meta config '[]'
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t zeros file:config.json U8 2
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t zeros file:../x U8 2
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t zeros $'file:a\nb' U8 2
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t zeros model.layers.0.mlp.up_proj.weight_zero_point I32 2
    run -65 "$BIN/ct-pack" -o b <t
    cp s t && "$TOOLS/st-mutate" t shape model.layers.0.mlp.up_proj.weight_q4 128,144
    run -65 "$BIN/ct-pack" -o b <t
    stream e2b-nano >t
    "$TOOLS/st-mutate" t drop model.norm.weight && "$TOOLS/st-mutate" t drop model.layers.0.mlp.up_proj.weight
    "$TOOLS/st-mutate" t zeros model.layers.0.mlp.up_proj.weight BF16 128,256
    "$TOOLS/st-mutate" t xor model.layers.0.mlp.up_proj.weight 1026 128 && "$TOOLS/st-mutate" t xor model.layers.0.mlp.up_proj.weight 1027 127
    run -65 "$BIN/ct-pack" --linears fp8 -o b <t
    [[ $output = *"row 2, column 1: not a finite number"* ]]
    head -c 100000 s >cut
    run -65 "$BIN/ct-pack" -o b <cut
    [ "$(find . -maxdepth 1 -name '*b*' -type d | wc -l)" -eq 0 ]
}

@test "an existing OUT: refused, or replaced with --force; nothing but DIR is left" {
    stream e2b-nano linears >s
    "$BIN/ct-pack" -o b <s
    run -64 "$BIN/ct-pack" -o b <s
    [[ $output = *"--force"* ]]
    touch b/old
    "$BIN/ct-pack" --force -o b <s
    [ ! -e b/old ]
    head -c 100000 s >cut
    run -65 "$BIN/ct-pack" --force -o b <cut
    (cd b && sha256sum -c --strict --quiet MANIFEST.sha256)
    only_holds . b s cut
    run -64 "$BIN/ct-pack" <s
    mkdir -p 'a b' && "$BIN/ct-pack" -o 'a b/c d' s
    cmp b/model.safetensors 'a b/c d/model.safetensors'
}

@test "an OUT that another run made meanwhile is left alone, and the message says so" {
    stream e2b-nano linears >s
    for other in directory file; do
        rm -rf b fed
        mkfifo fed
        "$BIN/ct-pack" -o b <fed 2>err 3>&- &
        exec 4>fed
        head -c 100000 s >&4
        until [ -n "$(find . -mindepth 1 -maxdepth 1 -type d)" ]; do sleep 0.01; done
        if [ $other = file ]; then echo theirs >b; else mkdir b; echo theirs >b/config.json; fi
        tail -c +100001 s >&4
        exec 4>&-
        status=0
        wait $! || status=$?
        [ "$status" -eq 64 ]
        [ "$(cat err)" = "ct-pack: b: appeared while this was written, by another run: remove it or name another" ]
        [ "$(cat b/config.json 2>&- || cat b)" = theirs ]
        only_holds . b s fed err
    done
}

@test "the same bytes with any number of threads, from a pipe, a file or zstd" {
    stream e2b-nano >s
    "$BIN/ct-pack" --linears int8 -j 1 -o a <s
    cat s | "$BIN/ct-pack" --linears int8 -j 4 -o b
    zstd -q s -o s.zst
    "$BIN/ct-pack" --linears int8 -o c <s.zst
    diff -r a b
    diff -r a c
}

@test "the safetensors library opens every build" {
    need_peer safetensors
    for how in linears "linears,ple,embed untie"; do
        # shellcheck disable=SC2086
        stream e2b-nano $how | "$BIN/ct-pack" --force -o b
        "$PEER" "$ROOT/tests/peers/st_check.py" b/model.safetensors
    done
}
