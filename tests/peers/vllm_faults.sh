#!/bin/bash
# Plant faults in builds of the nano checkpoints, one at a time, and hold ct-check's verdict against what vLLM does with them.
# usage: tests/peers/vllm_faults.sh PYTHON OUT [ERE]      PYTHON: of an environment with vLLM (vllm_check.py says how to make one)
#
# OUT/builds holds the unchanged builds, OUT/faults one directory a fault; ERE picks faults.  Prints one JSON line a fault and ends with 1 when a verdict is
# wrong: ct-check says `refused` where vLLM loads or another error than vLLM's, or does not where vLLM stops; `wrong` where vLLM loads, complains of nothing
# with weight tracking on, and answers as the unchanged build does.
set -eu -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
python=${1:?usage: vllm_faults.sh PYTHON OUT [ERE]} out=${2:?usage: vllm_faults.sh PYTHON OUT [ERE]} pick=${3:-.}
tools=$root/build/release/tools
mkdir -p "$out/builds" "$out/faults"
out=$(cd "$out" && pwd)

source_of() {   # SIZE: the golden checkpoint, unpacked
    local dir=$out/builds/$1-source
    [ -d "$dir" ] || { mkdir "$dir" && cp "$root/tests/golden/$1-nano/"{config,generation_config}.json "$dir" && zstd -qd "$root/tests/golden/$1-nano/model.safetensors.zst" -o "$dir/model.safetensors"; }
    echo "$dir"
}

build() {       # SIZE RECIPE
    local dir=$out/builds/$1-$2
    [ -d "$dir" ] || "$root/pipelines/$2" --scale-dtype f16 "$(source_of "$1")" "$dir" >&2
    echo "$dir"
}

# --- what can be done to the build in the current directory -------------------------------------------------------------

st() { "$tools/st-mutate" model.safetensors "$@"; }
# jq writes 30.0 as 30, which transformers refuses of a field that is a float.
config() { jq "$1" config.json | sed 's/\("[a-z_]*softcapping": [0-9]*\)\(,\?\)$/\1.0\2/' >c && mv c config.json; }
jq_only() { jq . config.json >c && mv c config.json; }
quant() { config ".quantization_config |= ($1)"; }
break_file() { "$tools/st-break" "$1" <model.safetensors >m && mv m model.safetensors; }
drop() { local t; for t; do st drop "$t"; done; }
unpack() { drop "$1".weight_{packed,scale,shape} && st zeros "$1.weight" BF16 "$2"; }           # MODULE SHAPE
plain8() { drop "$1".weight_scale "$1.weight" && st zeros "$1.weight" BF16 "$2"; }              # MODULE SHAPE
index() { jq -n "{metadata: {total_size: 1}, weight_map: $1}" >model.safetensors.index.json; }
seed_names() { local t; for t in $(names); do st rename "$t" "model.language_model.${t#model.}"; done; }
names() { head -c $((8 + $(od -An -tu8 -N8 model.safetensors))) model.safetensors | tail -c +9 | jq -r 'keys[] | select(startswith("model."))'; }
two_files() { cp model.safetensors z.safetensors; index '{"model.norm.weight": "model.safetensors", "model.embed_tokens.weight": "z.safetensors"}'; }

L=model.layers.0

plant() {       # NAME SIZE RECIPE COMMAND…
    local dir=$out/faults/$1
    [[ $1 =~ $pick ]] || return 0
    rm -rf "$dir"
    cp -r "$(build "$2" "$3")" "$dir"
    (cd "$dir" && "${@:4}") || { echo "vllm_faults: cannot plant $1" >&2; exit 70; }
    echo "$1 $2 $3" >>"$out/planted"
}

plant_all() {
    plant text-ignore-empty e2b text quant '.ignore = []'
    plant text-ignore-packed e2b text quant '.ignore += ["model.layers.0.mlp.down_proj"]'
    plant text-ignore-k e2b text quant '.ignore += ["model.layers.0.self_attn.k_proj"]'
    plant text-ignore-gate e2b text quant '.ignore += ["model.layers.0.mlp.gate_proj"]'
    plant text-ignore-shared-q e2b text quant '.ignore += ["model.layers.6.self_attn.q_proj"]'
    plant text-ignore-nothing e2b text quant '.ignore += ["model.layers.99.mlp.down_proj"]'
    plant text-ignore-qkv e2b text quant '.ignore += ["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj"]'
    plant text-ignore-mlp e2b text quant '.ignore += ["re:.*layers.0.mlp.*"]'
    plant text-no-group e2b text quant 'del(.config_groups.group_0)'
    plant text-no-scale e2b text drop $L.mlp.down_proj.weight_scale
    plant text-no-fused-scale e2b text drop $L.self_attn.q_proj.weight_scale
    plant text-no-packed e2b text drop $L.mlp.down_proj.weight_packed
    plant text-no-shape e2b text drop $L.mlp.down_proj.weight_shape
    plant text-no-module e2b text drop $L.mlp.down_proj.weight_{packed,scale,shape}
    plant text-no-norm e2b text drop $L.input_layernorm.weight
    plant text-no-q-norm e2b text drop $L.self_attn.q_norm.weight
    plant text-no-layer-scalar e2b text drop $L.layer_scalar
    plant text-no-embed e2b text drop model.embed_tokens.weight
    plant text-no-final-norm e2b text drop model.norm.weight
    plant text-zero-point e2b text st copy $L.mlp.down_proj.weight_scale $L.mlp.down_proj.weight_zero_point
    plant text-zero-point-fused e2b text st copy $L.self_attn.q_proj.weight_scale $L.self_attn.q_proj.weight_zero_point
    plant text-g-idx e2b text st copy $L.mlp.down_proj.weight_shape $L.mlp.down_proj.weight_g_idx
    plant text-input-scale e2b text st copy $L.mlp.down_proj.weight_scale $L.mlp.down_proj.input_scale
    plant text-bias e2b text st copy $L.input_layernorm.weight $L.mlp.down_proj.bias
    plant text-bias-fused e2b text st copy $L.input_layernorm.weight $L.self_attn.q_proj.bias
    plant text-weight-beside e2b text st copy $L.input_layernorm.weight $L.mlp.down_proj.weight
    plant text-16-bit e2b text unpack $L.mlp.down_proj 256,128
    plant text-16-bit-q e2b text unpack $L.self_attn.q_proj 128,256
    plant text-16-bit-gate e2b text unpack $L.mlp.gate_proj 128,256
    plant text-16-bit-ple-gate e2b text unpack $L.per_layer_input_gate 64,256
    plant text-16-bit-shared-q e2b text unpack model.layers.6.self_attn.q_proj 128,256
    plant text-untied e2b text config '.tie_word_embeddings = false'
    plant text-no-tie-flag e2b text config 'del(.tie_word_embeddings)'
    plant text-twin e2b text st copy model.embed_tokens.weight lm_head.weight
    plant text-other-head e2b text st zeros lm_head.weight BF16 1024,256
    plant text-transposed e2b text st shape $L.mlp.down_proj.weight_packed 16,256
    plant text-transposed-q e2b text st shape $L.self_attn.q_proj.weight_packed 32,128
    plant text-scale-1d e2b text st shape $L.mlp.down_proj.weight_scale 1024
    plant text-scale-1d-q e2b text st shape $L.self_attn.q_proj.weight_scale 1024
    plant text-scale-f32 e2b text st widen $L.mlp.down_proj.weight_scale
    plant text-packed-u32 e2b text st dtype $L.mlp.down_proj.weight_packed U32
    plant text-shape-values e2b text st xor $L.mlp.down_proj.weight_shape 0 3
    plant text-shape-1 e2b text st shape $L.mlp.down_proj.weight_shape 2,1
    plant text-group-64 e2b text quant '.config_groups.group_0.weights.group_size = 64'
    plant text-group-null e2b text quant '.config_groups.group_0.weights.group_size = null'
    plant text-asymmetric e2b text quant '.config_groups.group_0.weights.symmetric = false'
    plant text-3-bits e2b text quant '.config_groups.group_0.weights.num_bits = 3'
    plant text-8-bits e2b text quant '.config_groups.group_0.weights.num_bits = 8'
    plant text-type-float e2b text quant '.config_groups.group_0.weights.type = "float"'
    plant text-activations e2b text quant '.config_groups.group_0.input_activations = {num_bits: 8, type: "int", symmetric: true, strategy: "token", dynamic: true}'
    plant text-unknown-argument e2b text quant '.config_groups.group_0.weights.bits = 4'
    plant text-unknown-group-key e2b text quant '.config_groups.group_0.extra = 1'
    plant text-actorder e2b text quant '.config_groups.group_0.weights.actorder = "group"'
    plant text-strategy e2b text quant '.config_groups.group_0.weights.strategy = "rows"'
    plant text-channel e2b text quant '.config_groups.group_0.weights |= (.strategy = "channel" | .group_size = null)'
    plant text-sparsity e2b text quant '.sparsity_config = {format: "sparse-24-bitmask", targets: ["Linear"]}'
    plant text-format e2b text quant '.config_groups.group_0.format = "int-quantized"'
    plant text-no-formats e2b text quant 'del(.format, .config_groups.group_0.format)'
    plant text-global-format e2b text quant 'del(.config_groups.group_0.format)'
    plant text-method e2b text quant '.quant_method = "gptq"'
    plant text-no-quantization e2b text config 'del(.quantization_config)'
    plant text-multimodal-architecture e2b text config '.architectures = ["Gemma4ForConditionalGeneration"]'
    plant text-llama e2b text config '.architectures = ["LlamaForCausalLM"]'
    plant text-unknown-architecture e2b text config '.architectures = ["Gemma9ForCausalLM"]'
    plant text-vision-tensor e2b text st copy $L.input_layernorm.weight model.vision_tower.encoder.layers.0.input_layernorm.weight
    plant text-embedder-tensor e2b text st copy $L.input_layernorm.weight model.vision_embedder.pos_norm.weight
    plant text-unknown-name e2b text st rename $L.input_layernorm.weight model.blocks.0.input_layernorm.weight
    plant text-unknown-extra e2b text st copy $L.input_layernorm.weight model.layers.0.extra_norm.weight
    plant text-unknown-top e2b text st copy $L.input_layernorm.weight extra.weight
    plant text-layer-99 e2b text st copy $L.input_layernorm.weight model.layers.99.input_layernorm.weight
    plant text-dead-k e2b text st copy $L.self_attn.k_proj.weight_packed model.layers.6.self_attn.k_proj.weight_packed
    plant text-dead-k-norm e2b text st copy $L.self_attn.k_norm.weight model.layers.6.self_attn.k_norm.weight
    plant text-norm-shape e2b text st shape $L.input_layernorm.weight 128,2
    plant text-norm-short e2b text st copy $L.self_attn.q_norm.weight $L.input_layernorm.weight
    plant text-norm-f32 e2b text st widen $L.input_layernorm.weight
    plant text-scalar-0d e2b text st shape $L.layer_scalar ''
    plant text-embed-f32 e2b text st widen model.embed_tokens.weight
    plant text-embed-rows e2b text st shape model.embed_tokens.weight 512,512
    plant text-num-experts-0 e2b text config '.num_experts = 0'
    plant text-softcapping-30 e2b text jq_only
    plant text-no-hidden-size e2b text config 'del(.hidden_size)'
    plant text-no-layer-types e2b text config 'del(.layer_types)'
    plant text-seed-names e2b text seed_names
    plant text-two-spellings e2b text st copy $L.input_layernorm.weight model.language_model.layers.0.input_layernorm.weight
    plant text-nibbles e2b text st nibbles $L.mlp.down_proj.weight_packed
    plant text-cut e2b text truncate -s -1 model.safetensors
    plant text-longer e2b text truncate -s +1 model.safetensors
    plant text-empty-file e2b text truncate -s 0 model.safetensors
    plant text-gone e2b text rm model.safetensors
    plant text-hole e2b text break_file hole
    plant text-overlap e2b text break_file overlap
    plant text-index-missing e2b text index '{"model.norm.weight": "other.safetensors"}'
    plant text-index-other e2b text index '{"model.norm.weight": "model.safetensors", "model.gone.weight": "model.safetensors"}'
    plant text-two-files e2b text two_files
    plant text-stray e2b text cp model.safetensors stray.safetensors
    plant text-processor-config e2b text cp generation_config.json processor_config.json
    plant text-reversed e2b text st reverse
    plant text-metadata e2b text st meta format flax
    plant text-regex-no-start e2b text quant '.config_groups.group_0.targets = ["re:layers.*proj"]'
    plant text-regex-linears e2b text quant '.config_groups.group_0.targets = ["re:.*(proj|gate|projection)$"]'
    plant text-targets-members e2b text quant '.config_groups.group_0.targets = ["re:.*self_attn.*", "re:.*mlp.*"]'
    plant text-embedding-target e2b text quant '.config_groups.group_0.targets += ["Embedding"]'
    plant ple4-no-dollar e2b ple4 quant '.config_groups.group_embed_tokens_per_layer.targets = ["re:.*embed_tokens"]'
    plant ple4-plain-table e2b ple4 unpack model.embed_tokens_per_layer 1024,448
    plant emb4-tied e2b emb4 config '.tie_word_embeddings = true'
    plant emb4-no-tie-flag e2b emb4 config 'del(.tie_word_embeddings)'
    plant emb4-no-head e2b emb4 drop lm_head.weight_{packed,scale,shape}
    plant emb4-no-head-scale e2b emb4 drop lm_head.weight_scale
    plant emb4-no-embed-scale e2b emb4 drop model.embed_tokens.weight_scale
    plant emb4-no-embed-group e2b emb4 quant 'del(.config_groups.group_embed_tokens)'
    plant emb4-no-ple-group e2b emb4 quant 'del(.config_groups.group_embed_tokens_per_layer)'
    plant emb4-no-head-group e2b emb4 quant 'del(.config_groups.group_lm_head)'
    plant emb4-ignore-head e2b emb4 quant '.ignore += ["lm_head"]'
    plant emb4-ignore-embed e2b emb4 quant '.ignore += ["model.embed_tokens"]'
    plant emb4-head-beside e2b emb4 st zeros lm_head.weight BF16 1024,256
    plant emb4-plain-head e2b emb4 unpack lm_head 1024,256
    plant emb4-float-embed e2b emb4 quant '.config_groups.group_embed_tokens.weights |= (.type = "float" | .num_bits = 8 | .strategy = "channel" | .group_size = null)'
    plant emb4-asymmetric-embed e2b emb4 quant '.config_groups.group_embed_tokens.weights.symmetric = false'
    plant emb4-embed-activations e2b emb4 quant '.config_groups.group_embed_tokens.input_activations = {num_bits: 8, type: "int", symmetric: true, strategy: "token", dynamic: true}'
    plant emb4-dynamic-embed e2b emb4 quant '.config_groups.group_embed_tokens.weights.dynamic = true'
    plant emb4-embed-format e2b emb4 quant '.config_groups.group_embed_tokens.format = "int-quantized"'
    plant emb4-group-64 e2b emb4 quant '.config_groups.group_embed_tokens.weights.group_size = 64'
    plant emb4-transposed e2b emb4 st shape model.embed_tokens.weight_packed 32,1024
    plant emb4-scale-1d e2b emb4 st shape model.embed_tokens.weight_scale 8192
    plant emb4-head-class e2b emb4 quant '.config_groups.group_lm_head.targets = ["ParallelLMHead"]'
    plant emb4-head-wrapped-regex e2b emb4 quant '.config_groups.group_lm_head.targets = ["re:^language_model.lm_head$"]'
    plant fp8-16-bit e2b fp8 plain8 $L.mlp.down_proj 256,128
    plant fp8-16-bit-q e2b fp8 plain8 $L.self_attn.q_proj 128,256
    plant fp8-no-scale e2b fp8 drop $L.mlp.down_proj.weight_scale
    plant fp8-no-weight e2b fp8 drop $L.mlp.down_proj.weight
    plant fp8-ignore e2b fp8 quant '.ignore += ["model.layers.0.mlp.down_proj"]'
    plant fp8-ignore-qkv e2b fp8 quant '.ignore += ["re:.*layers.0.self_attn.*"]'
    plant fp8-ignore-gate-up e2b fp8 quant '.ignore += ["re:.*layers.0.mlp.(gate|up)_proj"]'
    plant fp8-zero-point-fused e2b fp8 st copy $L.self_attn.q_proj.weight_scale $L.self_attn.q_proj.weight_zero_point
    plant fp8-no-group e2b fp8 quant 'del(.config_groups.group_0)'
    plant fp8-scale-1d e2b fp8 st shape $L.mlp.down_proj.weight_scale 256
    plant fp8-transposed e2b fp8 st shape $L.mlp.down_proj.weight 128,256
    plant fp8-transposed-q e2b fp8 st shape $L.self_attn.q_proj.weight 256,128
    plant fp8-static e2b fp8 quant '.config_groups.group_0.input_activations.dynamic = false'
    plant fp8-asymmetric e2b fp8 quant '.config_groups.group_0.weights.symmetric = false'
    plant fp8-no-activations e2b fp8 quant '.config_groups.group_0.input_activations = null'
    plant fp8-input-scale e2b fp8 st copy $L.mlp.down_proj.weight_scale $L.mlp.down_proj.input_scale
    plant fp8-weight-shape e2b fp8 st zeros $L.mlp.down_proj.weight_shape I64 2
    plant fp8-int8-codes e2b fp8 st dtype $L.mlp.down_proj.weight I8
    plant fp8-embedding-target e2b fp8 quant '.config_groups.group_0.targets += ["Embedding"]'
    plant fp8-tensor-strategy e2b fp8 quant '.config_groups.group_0.weights.strategy = "tensor"'
    plant fp8-as-int8 e2b fp8 quant '.config_groups.group_0 |= (.format = "int-quantized" | .weights.type = "int" | .input_activations.type = "int")'
    plant int8-no-activations e2b int8 quant '.config_groups.group_0.input_activations = null'
    plant int8-asymmetric-activations e2b int8 quant '.config_groups.group_0.input_activations.symmetric = false'
    plant int8-no-scale e2b int8 drop $L.mlp.down_proj.weight_scale
    plant int8-no-group e2b int8 quant 'del(.config_groups.group_0)'
    plant int8-16-bit e2b int8 plain8 $L.mlp.down_proj 256,128
    plant int8-scale-1d e2b int8 st shape $L.mlp.down_proj.weight_scale 256
    plant 12b-ignore-qk 12b text quant '.ignore += ["model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.k_proj"]'
    plant 12b-v-there 12b text st copy model.layers.2.self_attn.k_proj.weight_packed model.layers.2.self_attn.v_proj.weight_packed
    plant 12b-no-k 12b text drop model.layers.2.self_attn.k_proj.weight_packed
    plant 12b-no-v 12b text drop model.layers.0.self_attn.v_proj.weight_packed
}

# --- what both say ---------------------------------------------------------------------------------------------------------

judge() {       # DIR… : one line each of {fault, error (null: it loads and runs), tokens}
    "$python" "$here/vllm_check.py" "$@" --dtype float16 --ids '2,105,7,9,33,17,4,120;2,761,734,777,615' |
        jq --unbuffered -c '{fault: (.build | split("/") | last), error: (if .ok then null else "\(.root_type // .error_type): \(.root // .error)" end), tokens: (.runs // [] | map(.tokens))}'
}

verdict() {     # DIR: ct-check's worst grade, with vLLM's sentence by its account
    "$root/bin/ct-check" --json "$1" | jq -c '(.faults | map(select(.grade == "refused")) + map(select(.grade == "wrong")) + map(select(.grade == "untidy" or .grade == "note")) | first) as $f
        | {fault: (.build | split("/") | last), grade: ($f.grade // "ok"), what: (if $f then "\($f.where): \($f.what)" else null end), sentence: $f.vllm}'
}

: >"$out/planted"
plant_all
mapfile -t good < <(awk -v b="$out/builds" '{print b "/" $2 "-" $3}' "$out/planted" | sort -u)
mapfile -t bad < <(awk -v f="$out/faults" '{print f "/" $1}' "$out/planted")
judge "${good[@]}" >"$out/good.jsonl" || true
judge "${bad[@]}" >"$out/vllm.jsonl" || true
mapfile -t silent < <(jq -r --arg f "$out/faults" 'select(.error == null) | "\($f)/\(.fault)"' "$out/vllm.jsonl")
judge "${silent[@]}" --track >"$out/tracked.jsonl" || true
for dir in "${bad[@]}"; do verdict "$dir" || true; done >"$out/verdict.jsonl"
jq -R 'split(" ") | {key: .[0], value: "\(.[1])-\(.[2])"}' "$out/planted" | jq -s from_entries >"$out/of.json"

# A sentence agrees when its error type does, and so does each name it quotes.
jq -n --slurpfile good "$out/good.jsonl" --slurpfile vllm "$out/vllm.jsonl" --slurpfile tracked "$out/tracked.jsonl" --slurpfile verdict "$out/verdict.jsonl" --slurpfile of "$out/of.json" -c '
    ($good | map({key: .fault, value: .}) | from_entries) as $good | ($verdict | map({key: .fault, value: .}) | from_entries) as $verdict
    | ($tracked | map({key: .fault, value: .error}) | from_entries) as $tracked
    | $vllm[] | . as $v | $verdict[.fault] as $c | $good[$of[0][.fault]] as $g | $tracked[.fault] as $t
    | (if $v.error then "refused" elif $t or $v.tokens != $g.tokens then "wrong" else "ok" end) as $truth
    | (if $c.grade == "refused" or $c.grade == "wrong" then $c.grade else "ok" end) as $said
    | (($v.error // "" | split(":")[0]) == ($c.sentence // "" | split(":")[0])) as $same
    | {fault, agree: ($truth == $said), same_error: (if $truth == "refused" then $same else null end), vllm: ($v.error // (if $t then "silent; with tracking: " + $t elif $truth == "wrong" then "silent, other tokens" else "loads" end)),
       grade: $c.grade, what: $c.what, sentence: $c.sentence}' | tee "$out/result.jsonl"
! jq -e 'select(.agree | not)' "$out/result.jsonl" >/dev/null
