# ct-check: planted faults are found and named, harmless differences are not complained about.
load lib

make_build() {  # RECIPE GOLDEN DIR
    "$ROOT/pipelines/$1" --scale-dtype f16 "$(golden "$2")" "$3"
}
build() { cached "build-$1-$2" make_build "$1" "$2"; }          # RECIPE GOLDEN

# A fresh copy of a build in ./b with one thing changed, and ct-check's answer to it in $status and $output.
plant() {       # RECIPE GOLDEN COMMAND…
    rm -rf b
    cp -r "$(build "$1" "$2")" b
    shift 2
    "$@" || { echo "planting failed: $*" >&2; return 1; }
    run "$BIN/ct-check" ${AGAINST:+--against "$AGAINST"} ${STRICT:+--strict} b
}

st() { "$TOOLS/st-mutate" b/model.safetensors "$@"; }
# jq writes 30.0 as 30, which is a fault of its own.
config() { jq "$1" b/config.json | sed 's/\("final_logit_softcapping": [0-9]*\)\(,\?\)$/\1.0\2/' >b/c && mv b/c b/config.json; }
quant() { config ".quantization_config |= ($1)"; }

finds() {       # GRADE ERE RECIPE GOLDEN COMMAND…: exit 1, and a line of that grade that matches
    local grade=$1 ere=$2
    shift 2
    plant "$@" || return 1
    [ "$status" -eq 1 ] || { echo "${*:3}: exit $status, expected 1: $output" >&2; return 1; }
    grep -A1 -E "^$grade: " <<<"$output" | grep -qE -- "$ere" || { echo "${*:3}: no $grade line with $ere in: $output" >&2; return 1; }
}

untidy() {      # ERE RECIPE GOLDEN COMMAND…: a warning, 1 with --strict
    local ere=$1
    shift
    plant "$@" || return 1
    [ "$status" -eq 0 ] && grep -qE "^untidy: .*$ere" <<<"$output" || { echo "${*:3}: exit $status: $output" >&2; return 1; }
    run "$BIN/ct-check" --strict b
    [ "$status" -eq 1 ] || { echo "${*:3}: --strict: exit $status: $output" >&2; return 1; }
}

harmless() {    # RECIPE GOLDEN COMMAND…: no complaint of any grade but the manifest's
    plant "$@" || return 1
    [ "$status" -eq 0 ] && ! grep -E '^(refused|wrong|untidy|note): ' <<<"$output" | grep -v 'sum in the manifest' || { echo "${*:3}: exit $status: $output" >&2; return 1; }
}

L0=model.layers.0
unpack() { for t in weight_packed weight_scale weight_shape; do st drop "$1.$t" || return 1; done; st zeros "$1.weight" BF16 "$2"; }  # MODULE SHAPE

@test "every build of every size passes, also against its source" {
    local size recipe
    for size in e2b e4b 12b 26b 31b gemma3; do
        for recipe in text ple4 emb4 fp8 int8 fp8emb4 int8emb4 full; do
            case $size-$recipe in 12b-ple4|26b-ple4|31b-ple4|gemma3-ple4|gemma3-full) continue ;; esac
            run "$BIN/ct-check" --strict --against "$(golden $size-nano)" "$(build $recipe $size-nano)"
            [ "$status" -eq 0 ] || { echo "$size $recipe: $output"; return 1; }
        done
    done
}

@test "an unquantized checkpoint passes" {
    cp -r "$(golden e2b-nano)" b
    rm -f b/steps.safetensors b/golden.safetensors
    run -0 "$BIN/ct-check" b
    cp -r "$(golden gemma3-nano)" g
    rm -f g/steps.safetensors g/golden.safetensors
    run -0 "$BIN/ct-check" g
}

@test "text: what the loader refuses" {
    finds refused "There is no module or parameter named 'layers.0.mlp.down_proj.weight' in Gemma4Model" text e2b-nano unpack $L0.mlp.down_proj 256,128
    finds refused "'QKVParallelLinear' object has no attribute 'data'" text e2b-nano unpack $L0.self_attn.q_proj 128,256
    finds refused "named 'layers.0.mlp.down_proj.weight_packed' in Gemma4Model.*RowParallelLinear. are: .weight." text e2b-nano quant '.ignore += ["model.layers.0.mlp.down_proj"]'
    finds refused 'different quantization schemes' text e2b-nano quant '.ignore += ["model.layers.0.self_attn.k_proj"]'
    finds refused 'different quantization schemes' text 12b-nano quant '.ignore += ["model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.k_proj"]'
    finds refused "parameter named" text e2b-nano quant 'del(.config_groups.group_0)'
    finds refused 'weight_zero_point' text e2b-nano st copy $L0.mlp.down_proj.weight_scale $L0.mlp.down_proj.weight_zero_point
    finds refused 'input_scale' text e2b-nano st copy $L0.mlp.down_proj.weight_scale $L0.mlp.down_proj.input_scale
    finds refused "beside its packed form" text e2b-nano st copy $L0.input_layernorm.weight $L0.mlp.down_proj.weight
    finds refused 'AssertionError' text e2b-nano st shape $L0.mlp.down_proj.weight_packed 16,256
    finds refused 'IndexError' text e2b-nano st shape $L0.mlp.down_proj.weight_scale 1024
    finds refused 'AssertionError' text e2b-nano st shape $L0.self_attn.q_proj.weight_scale 1024
    finds refused 'start .0. . length .128. exceeds dimension size .32.' text e2b-nano st shape $L0.self_attn.q_proj.weight_packed 32,128
    finds refused "named 'extra' in Gemma4ForCausalLM" text e2b-nano st copy $L0.input_layernorm.weight extra.weight
    finds refused 'AssertionError' text e2b-nano quant '.config_groups.group_0.weights.group_size = 64'
    finds refused 'Extra inputs are not permitted' text e2b-nano quant '.config_groups.group_0.weights.bits = 4'
    finds refused 'TypeError' text e2b-nano config '.architectures = ["Gemma4ForConditionalGeneration"]'
    finds refused 'not supported' text e2b-nano config '.architectures = ["LlamaForCausalLM"]'
    finds refused "named 'blocks' in" text e2b-nano st rename $L0.input_layernorm.weight model.blocks.0.input_layernorm.weight
    finds refused 'needs a positive group_size' text e2b-nano quant '.config_groups.group_0.weights.group_size = null'
    finds refused 'Failed to find a kernel that can implement the WNA16 linear layer' text e2b-nano quant '.config_groups.group_0.weights.num_bits = 3'
    finds refused 'shape' text e2b-nano st shape $L0.input_layernorm.weight 128,2
    integer() { sed -i 's/\("final_logit_softcapping": *[0-9]*\)\.0/\1/' b/config.json; }
    finds refused "TypeError: Field 'final_logit_softcapping' with value 30 " text e2b-nano integer
    finds refused "'QKVParallelLinear' object has no attribute 'data'" text e2b-nano st copy $L0.self_attn.q_proj.weight_scale $L0.self_attn.q_proj.weight_zero_point
    finds refused "vision or audio" text e2b-nano st copy $L0.input_layernorm.weight model.vision_embedder.pos_norm.weight
    finds refused "ValueError: .* named 'vision_embedder' in Gemma4Model" text e2b-nano st copy $L0.input_layernorm.weight model.vision_embedder.pos_norm.weight
    finds refused "named 'layers.0.extra_norm' in Gemma4Model" text e2b-nano st copy $L0.input_layernorm.weight $L0.extra_norm.weight
    finds refused "named 'layers.99' in Gemma4Model" text e2b-nano st copy $L0.input_layernorm.weight model.layers.99.input_layernorm.weight
    finds refused 'requires an expert intermediate size' text e2b-nano config '.num_experts = 0'
    finds refused 'shape \[2, 1\], expected \[2\]' text e2b-nano st shape $L0.mlp.down_proj.weight_shape 2,1
}

@test "text: what loads and answers wrongly" {
    finds wrong 'weight_scale is missing' text e2b-nano st drop $L0.mlp.down_proj.weight_scale
    finds wrong 'weight_packed is missing' text e2b-nano st drop $L0.mlp.down_proj.weight_packed
    finds wrong 'weight_shape is missing' text e2b-nano st drop $L0.mlp.down_proj.weight_shape
    finds wrong 'input_layernorm' text e2b-nano st drop $L0.input_layernorm.weight
    finds wrong 'layer_scalar' text e2b-nano st drop $L0.layer_scalar
    finds wrong 'embed_tokens' text e2b-nano st drop model.embed_tokens.weight
    finds wrong 'lm_head' text e2b-nano config '.tie_word_embeddings = false'
    finds wrong 'asymmetric' text e2b-nano quant '.config_groups.group_0.weights.symmetric = false'
}

@test "emb4: the tables and the head" {
    finds refused "'VocabParallelEmbedding' object has no attribute 'weight'" emb4 e2b-nano config '.tie_word_embeddings = true'
    finds refused "'VocabParallelEmbedding' object has no attribute 'weight'" emb4 e2b-nano config 'del(.tie_word_embeddings)'
    head_away() { st drop lm_head.weight_packed && st drop lm_head.weight_scale && st drop lm_head.weight_shape; }
    finds wrong 'lm_head' emb4 e2b-nano head_away
    finds refused "named 'embed_tokens.weight_packed'" emb4 e2b-nano quant 'del(.config_groups.group_embed_tokens)'
    finds refused "Assertion failed" emb4 e2b-nano quant '.config_groups.group_embed_tokens.format = "int-quantized"'
    finds refused "size of tensor a" emb4 e2b-nano quant '.config_groups.group_embed_tokens.weights.group_size = 64'
    finds refused "named 'lm_head.weight_packed' in Gemma4ForCausalLM" emb4 e2b-nano quant 'del(.config_groups.group_lm_head)'
    finds refused "lm_head.weight" emb4 e2b-nano st copy lm_head.weight_packed lm_head.weight
    finds refused 'embeddings only support' emb4 e2b-nano quant '.config_groups.group_embed_tokens.weights |= (.type = "float" | .num_bits = 8 | .strategy = "channel" | .group_size = null)'
    finds refused "'VocabParallelEmbedding' object has no attribute 'weight'" ple4 e2b-nano quant '.config_groups.group_embed_tokens_per_layer.targets = ["re:.*embed_tokens"]'
}

@test "fp8 and int8" {
    sixteen() { st drop $L0.mlp.down_proj.weight_scale && st drop $L0.mlp.down_proj.weight && st zeros $L0.mlp.down_proj.weight BF16 256,128; }
    finds wrong 'ignore list' fp8 e2b-nano sixteen
    finds wrong 'weight_scale is missing' fp8 e2b-nano st drop $L0.mlp.down_proj.weight_scale
    finds refused "weight_scale'" fp8 e2b-nano quant '.ignore += ["model.layers.0.mlp.down_proj"]'
    finds refused 'AssertionError' fp8 e2b-nano st shape $L0.mlp.down_proj.weight_scale 256
    finds refused 'dynamic=True' fp8 e2b-nano quant '.config_groups.group_0.input_activations.dynamic = false'
    finds refused 'compatible scheme' fp8 e2b-nano quant '.config_groups.group_0.weights.symmetric = false'
    finds refused 'Assertion failed' int8 e2b-nano quant '.config_groups.group_0.input_activations = null'
    finds refused 'parameter named' int8 e2b-nano quant 'del(.config_groups.group_0)'
}

@test "full: the ignore list, the towers, the keys of 12B" {
    local entry=model.audio_tower.layers.0.self_attn.relative_k_proj
    finds refused 'missing from the ignore list' full e2b-nano quant ".ignore -= [\"$entry\", \"${entry#model.}\"]"
    finds refused 'missing from the ignore list' full 12b-nano quant '.ignore -= ["model.vision_embedder.patch_dense", "vision_embedder.patch_dense"]'
    finds refused 'num_soft_tokens' full 12b-nano config 'del(.vision_config.num_soft_tokens)'
    finds refused 'model.embed_tokens|VocabParallelEmbedding|parameter' full e2b-nano quant '.config_groups.group_0.targets += ["re:.*embed_tokens$"]'
    untidy '154 modules in all: the loader drops them' full e2b-nano config '.architectures = ["Gemma4ForCausalLM"]'
    finds refused "named 'vision_embedder' in Gemma4Model" full 12b-nano config '.architectures = ["Gemma4ForCausalLM"]'
    plant full e2b-nano quant ".ignore -= [\"${entry#model.}\"]"
    [ "$status" -eq 0 ]
}

@test "full: one tensor of a tower missing, of another shape, or too much" {
    local v=model.vision_tower.encoder.layers.0 a=model.audio_tower.layers.0
    finds wrong "$v.self_attn.q_proj.linear.weight: no tensor of this name is there" full e2b-nano st drop $v.self_attn.q_proj.linear.weight
    finds wrong "$v.input_layernorm.weight: no tensor of this name is there" full e2b-nano st drop $v.input_layernorm.weight
    finds wrong 'position_embedding_table: no tensor of this name is there' full e2b-nano st drop model.vision_tower.patch_embedder.position_embedding_table
    finds wrong "$a.lconv1d.depthwise_conv1d.weight: no tensor of this name is there" full e2b-nano st drop $a.lconv1d.depthwise_conv1d.weight
    finds wrong 'output_proj.bias: no tensor of this name is there' full e2b-nano st drop model.audio_tower.output_proj.bias
    finds wrong 'embed_vision.embedding_projection' full 31b-nano st drop model.embed_vision.embedding_projection.weight
    finds wrong 'pos_embedding: no tensor of this name is there' full 12b-nano st drop model.vision_embedder.pos_embedding
    finds refused "$v.input_layernorm.weight: shape \[.*\], expected" full e2b-nano st shape $v.input_layernorm.weight 4,8
    finds refused "projection.weight: shape \[32, 256\], expected \[256, 32\]" full e2b-nano st shape model.embed_vision.embedding_projection.weight 32,256
    finds refused 'pos_embedding: shape' full 12b-nano st shape model.vision_embedder.pos_embedding 16,256
    finds refused "no such module, by the config" full e2b-nano st copy $v.input_layernorm.weight $v.extra_norm.weight
    finds refused "no such module, by the config" full e2b-nano config '.vision_config.num_hidden_layers -= 1'
    finds wrong 'layers.2.*: no tensor of this name is there' full e2b-nano config '.vision_config.num_hidden_layers += 1'
}

@test "26B: experts and the router" {
    local e=$L0.experts
    finds wrong 'experts.3.up_proj' text 26b-nano st drop $e.3.up_proj.weight_scale
    finds refused 'same quantization scheme' text 26b-nano quant '.ignore += ["re:.*experts.0.up_proj"]'
    router() { st drop $L0.router.proj.weight && st zeros $L0.router.proj.weight_packed I32 8,32 && st zeros $L0.router.proj.weight_scale BF16 8,8 && st zeros $L0.router.proj.weight_shape I64 2; }
    finds refused 'router.proj.weight_packed' text 26b-nano router
    fused() { for t in weight_packed weight_scale weight_shape; do st rename $e.0.down_proj.$t $e.down_proj.$t || return 1; done; }
    plant text 26b-nano fused
    [ "$status" -eq 1 ]
    whole() { for n in 0 1 2 3 4 5 6 7; do for m in gate_proj up_proj down_proj; do for t in weight_packed weight_scale weight_shape; do st drop $e.$n.$m.$t || return 1; done; done; done; }
    finds wrong '8 of 8 experts are not there at all' text 26b-nano whole
}

@test "files: cut, too long, holes, missing and empty shards, a bad index" {
    cut() { truncate -s -1 b/model.safetensors; }
    longer() { printf x >>b/model.safetensors; }
    empty() { : >b/model.safetensors; }
    gone() { rm b/model.safetensors; }
    hole() { "$TOOLS/st-break" hole <b/model.safetensors >b/m && mv b/m b/model.safetensors; }
    indexed() { jq -n --arg f "$1" '{metadata: {total_size: 1}, weight_map: {"model.norm.weight": $f}}' >b/model.safetensors.index.json; }
    noindex() { echo '{' >b/model.safetensors.index.json; }
    for how in cut longer empty; do finds refused 'SafetensorError' text e2b-nano $how; done
    finds refused . text e2b-nano gone
    "$TOOLS/st-break" --list | grep -q '^hole' && finds refused 'SafetensorError' text e2b-nano hole
    finds refused 'FileNotFoundError' text e2b-nano indexed other.safetensors
    finds refused . text e2b-nano noindex
}

@test "untidy: a twin, two copies, strays, no manifest, flags that disagree" {
    twin() { st copy model.embed_tokens.weight lm_head.weight; }
    stray() { indexed_all && cp b/model.safetensors b/stray.safetensors; }
    indexed_all() { jq -n '{metadata: {total_size: 1}, weight_map: {"model.norm.weight": "model.safetensors"}}' >b/model.safetensors.index.json; }
    second() { cp b/model.safetensors b/stray.safetensors; }
    twice() { cp b/model.safetensors b/z.safetensors; jq -n '{metadata: {total_size: 1}, weight_map: {"model.norm.weight": "model.safetensors", "model.embed_tokens.weight": "z.safetensors"}}' >b/model.safetensors.index.json; }
    untidy 'stored although tied' text e2b-nano twin
    untidy 'index does not name' text e2b-nano stray
    untidy 'stands in' text e2b-nano twice
    untidy 'without an index' text e2b-nano second
    untidy 'input_activations' text e2b-nano quant '.config_groups.group_0.input_activations = {num_bits: 8, type: "int", symmetric: true, strategy: "token", dynamic: true}'
    untidy 'input_activations' emb4 e2b-nano quant '.config_groups.group_embed_tokens.input_activations = {num_bits: 8, type: "int", symmetric: true, strategy: "token", dynamic: true}'
    untidy 'asymmetric' emb4 e2b-nano quant '.config_groups.group_embed_tokens.weights.symmetric = false'
    untidy 'the loader drops it' text e2b-nano st copy $L0.input_layernorm.weight $L0.mlp.down_proj.bias
    untidy 'the loader drops it' text e2b-nano st copy $L0.input_layernorm.weight $L0.self_attn.q_proj.bias
    untidy '1 modules in all: the loader drops them' text e2b-nano st copy $L0.input_layernorm.weight model.vision_tower.encoder.layers.0.input_layernorm.weight
    untidy 'no manifest' text e2b-nano rm b/MANIFEST.sha256
    untidy 'text_config' full e2b-nano config '.tie_word_embeddings = false'
    untidy 'cannot decide' text e2b-nano quant '.ignore += ["re:(?!x)y"]'
    untidy 'not allowed here' text e2b-nano quant '.config_groups.group_0.extra = 1'
}

@test "a stray shard with names of its own, and no index, is read and refused" {
    stray() { cp "$(golden e2b-nano)/steps.safetensors" b/steps.safetensors; }
    finds refused 'no module or parameter' text e2b-nano stray
}

@test "harmless differences" {
    seed_names() { for t in $(st_header b/model.safetensors | jq -r 'keys[] | select(startswith("model."))'); do st rename "$t" "model.language_model.${t#model.}" || return 1; done; }
    harmless text e2b-nano st reverse
    harmless text e2b-nano st shape $L0.layer_scalar ''
    harmless text e2b-nano st meta note anything
    harmless text e2b-nano st widen $L0.mlp.down_proj.weight_scale
    harmless text e2b-nano st dtype $L0.mlp.down_proj.weight_packed U32
    harmless text e2b-nano touch b/README.md b/processor_config.json
    harmless text e2b-nano quant '.ignore = []'
    harmless text e2b-nano quant '.version = "0.20" | .global_compression_ratio = null | .transform_config = {}'
    harmless text e2b-nano quant '.ignore = ["re:.*lm_head$"]' || grep -q 'note: ignore' <<<"$output"
    harmless text gemma3-nano st reverse
    AGAINST=$(golden e2b-nano)
    harmless text e2b-nano st widen $L0.mlp.down_proj.weight_scale
    harmless text e2b-nano st reverse
    rm -rf b && cp -r "$(build text e2b-nano)" b && seed_names
    run -0 "$BIN/ct-check" --against "$AGAINST" b
}

@test "an entry that matches nothing is a note, never more" {
    plant text e2b-nano quant '.ignore += ["model.layers.99.mlp.down_proj"]'
    [ "$status" -eq 0 ]
    [[ $output = *"note: ignore: 1 entries match nothing"* ]]
    sed -i '/config.json/d' b/MANIFEST.sha256
    run -0 "$BIN/ct-check" --strict b
}

@test "members before class and after: a difference is noted" {
    plant text e2b-nano quant '.config_groups.other = .config_groups.group_0 | .config_groups.other.targets = ["re:.*self_attn.(q|k|v)_proj$"]'
    [[ $output = *"the two versions read this build differently"* ]]
}

@test "--against: one value, one scale, exchanged rows, exchanged tensors, swapped nibbles" {
    AGAINST=$(golden e2b-nano)
    finds wrong 'down_proj: [0-9]* of .* values are not' text e2b-nano st xor $L0.mlp.down_proj.weight_packed 100 1
    finds wrong 'values are not' text e2b-nano st rows $L0.mlp.down_proj.weight_scale 3 4
    finds wrong 'gate_proj' text e2b-nano st exchange $L0.mlp.gate_proj.weight_packed $L0.mlp.up_proj.weight_packed
    finds wrong 'values are not' text e2b-nano st nibbles $L0.mlp.down_proj.weight_packed
    finds wrong 'differs from its source' text e2b-nano st xor $L0.input_layernorm.weight 0 1
    finds wrong 'lm_head' emb4 e2b-nano st xor lm_head.weight_packed 1000 16
    finds wrong 'embed_tokens_per_layer' ple4 e2b-nano st rows model.embed_tokens_per_layer.weight_packed 5 6
    finds wrong 'down_proj' fp8 e2b-nano st xor $L0.mlp.down_proj.weight 100 2
    finds wrong 'down_proj' int8 e2b-nano st xor $L0.mlp.down_proj.weight 100 2
    finds wrong 'down_proj' int8 e2b-nano st rows $L0.mlp.down_proj.weight 1 2
    finds wrong 'differs from its source' full e2b-nano st xor model.vision_tower.patch_embedder.input_proj.weight 0 1
    AGAINST=$(golden 26b-nano)
    finds wrong 'experts' text 26b-nano st exchange $L0.experts.0.gate_proj.weight_packed $L0.experts.0.up_proj.weight_packed
    finds wrong 'experts' text 26b-nano st exchange $L0.experts.1.down_proj.weight_packed $L0.experts.2.down_proj.weight_packed
    finds wrong . text e2b-nano true
}

@test "--against: right levels under a scale that is not the best: exit 0, 1 with --strict" {
    AGAINST=$(golden e2b-nano)
    plant text e2b-nano st xor $L0.mlp.down_proj.weight_scale 200 16
    [ "$status" -eq 0 ]
    [[ $output = *"scale that is not the best"* ]]
    run -1 "$BIN/ct-check" --strict --against "$AGAINST" b
}

@test "--against a stream, a file and a regridded stream" {
    local b
    b=$(build emb4 e2b-nano)
    "$BIN/st-extract" --text-only "$(golden e2b-nano)" >text.st
    run -0 "$BIN/ct-check" --strict --against text.st "$b"
    run -0 "$BIN/ct-check" --strict --against - "$b" <text.st
    "$BIN/q4-regrid" --only linears,ple,embed --scale-dtype f16 <text.st >q4.st
    run -0 "$BIN/ct-check" --strict --against q4.st "$b"
    run -0 "$BIN/ct-check" --strict --against "$(golden e2b-nano)/model.safetensors" "$b"
}

@test "a pass is recorded beside the build, once, keyed by the manifest" {
    cp -r "$(build text e2b-nano)" b
    run -0 "$BIN/ct-check" --against "$(golden e2b-nano)" b/
    run -0 "$BIN/ct-check" --against "$(golden e2b-nano)" b
    [ "$(wc -l <b.check.jsonl)" -eq 1 ]
    holds ".manifest == \"$(sha256sum <b/MANIFEST.sha256 | cut -d ' ' -f 1)\" and .exact_values == .values" b.check.jsonl
    rm b.check.jsonl
    "$TOOLS/st-mutate" b/model.safetensors meta a b
    run -0 "$BIN/ct-check" --against "$(golden e2b-nano)" b
    [[ $output = *"note: model.safetensors: differs from its sum"* ]]
    [ ! -e b.check.jsonl ]
    run "$BIN/ct-check" b
    [ ! -e b.check.jsonl ]
}

@test "a pass is recorded beside the directory itself, by whatever name it was called; where nothing may be written the verdict stands" {
    cp -r "$(build text e2b-nano)" b
    ln -s b link
    run -0 "$BIN/ct-check" --against "$(golden e2b-nano)" link
    (cd b && run -0 "$BIN/ct-check" --against "$(golden e2b-nano)" . && [ -z "$(find . -name '*.check.jsonl')" ])
    [ "$(wc -l <b.check.jsonl)" -eq 1 ]
    [ ! -e link.check.jsonl ]
    [ "$(id -u)" = 0 ] || skip "only root can be somebody else"
    mkdir kept
    mv b kept/
    local d=$PWD
    while [ "$d" != / ]; do chmod a+x "$d" 2>/dev/null || true; d=$(dirname "$d"); done
    cp -r "$(golden e2b-nano)" source
    chmod -R a+rX source kept
    run -0 --separate-stderr setpriv --reuid 65534 --regid 65534 --clear-groups "$BIN/ct-check" --against source kept/b
    [[ $output == *"kept/b: ok:"* && $stderr == "ct-check: warning: $PWD/kept/b.check.jsonl: Permission denied: the pass is not recorded, and pipelines/publish will ask for it" ]]
}

@test "--json: every fault, per tensor shares" {
    plant text e2b-nano st drop $L0.mlp.down_proj.weight_scale
    run -1 "$BIN/ct-check" --json b
    holds '.ok == false and .loads and .wrong == 1 and (.faults[0].grade == "wrong")' <<<"$output"
    run -0 "$BIN/ct-check" --json --against "$(golden e2b-nano)" "$(build text e2b-nano)"
    holds '.ok and .against.exact_values == .against.values and (.against.per_tensor | length > 40)' <<<"$output"
}

@test "a matrix without rows is compared like any other" {
    local part m=$L0.mlp.gate_proj
    cp -r "$(build text e2b-nano)" b
    for part in weight_packed:I32:0,0 weight_scale:BF16:0,1 weight_shape:I64:2; do
        IFS=: read -r name dtype shape <<<"$part"
        st drop $m.$name
        st zeros $m.$name $dtype $shape
    done
    "$BIN/st-extract" --text-only "$(golden e2b-nano)" >text.st
    "$TOOLS/st-mutate" text.st drop $m.weight
    "$TOOLS/st-mutate" text.st zeros $m.weight_q4 U8 0,0,18
    run -1 "$BIN/ct-check" --against text.st b
    [[ $output = *"refused: $m.weight_packed: shape [0, 0], expected [128, 32]"* ]]
}

@test "what cannot be read: 65, 66" {
    cp -r "$(build text e2b-nano)" b
    run -65 "$BIN/ct-check" --against nowhere b
    run -66 "$BIN/ct-check" nowhere
    run -65 "$BIN/ct-check" b/model.safetensors
    echo '{' >b/config.json
    run -65 "$BIN/ct-check" b
    rm b/config.json
    run -65 "$BIN/ct-check" b
    cp -r "$(build text e2b-nano)" c
    head -c 1000 "$(golden e2b-nano)/model.safetensors" >cut.safetensors
    run -65 "$BIN/ct-check" --against cut.safetensors c
    run -64 "$BIN/ct-check"
}

# shards of a build read like one file
@test "a build in several shards" {
    "$BIN/st-extract" --text-only "$(golden e2b-nano)" | "$BIN/q4-regrid" --scale-dtype f16 | "$BIN/ct-pack" --shard-size 300000 -o b
    [ "$(ls b/*.safetensors | wc -l)" -gt 3 ]
    run -0 "$BIN/ct-check" --strict --against "$(golden e2b-nano)" b
    rm "$(ls b/*.safetensors | head -n 1)"
    run -1 "$BIN/ct-check" b
    [[ $output = *FileNotFoundError* ]]
}

@test "full: a tower that is not whole" {
    local v=model.vision_tower a=model.audio_tower.layers.0
    for t in $v.encoder.layers.1.mlp.up_proj.linear.weight $v.encoder.layers.0.input_layernorm.weight $a.self_attn.q_proj.input_max $a.self_attn.per_dim_scale model.embed_audio.embedding_projection.weight; do
        finds wrong "$t: no tensor of this name is there" full e2b-nano st drop $t
    done
    finds wrong 'patch_ln1.bias: no tensor of this name is there' full 12b-nano st drop model.vision_embedder.patch_ln1.bias
}
