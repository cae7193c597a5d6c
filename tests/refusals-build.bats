#!/usr/bin/env bats
# Streams of which ct-pack makes no build, and what ct-check finds in one, in the words of each message (tests/messages.sh lists what is left).
load lib
load refusals

make_build() { "$ROOT/pipelines/$1" "$(model "$2" ${3:+"$3"})" "$4"; }     # RECIPE SIZE [OPTION] DIR

# A copy of a build, changed; ct-check's answer holds the words.
found() {       # STATUS TEXT BUILD COMMAND…
    local want=$1 text=$2 from=$3
    shift 3
    rm -rf b
    cp -r "$from" b
    eval "$*" || { echo "planting failed: $*"; FAILED=1; }
    run ct-check b
    [[ $status = "$want" && $output = *"$text"* ]] || { echo "$*: expected $want and \"$text\", found $status: ${output:0:600}"; FAILED=1; }
}

st_change() { "$TOOLS/st-mutate" b/model.safetensors "$@"; }
# jq writes 30.0 as 30, which is a fault of its own.
config() { jq "$1" b/config.json | sed 's/\("final_logit_softcapping": [0-9]*\)\(,\?\)$/\1.0\2/' >b/c && mv b/c b/config.json; }

@test "what ct-check finds in a text build" {
    local text up=model.layers.0.mlp.up_proj g=.quantization_config.config_groups.group_0
    text=$(cached refused-text make_build text e2b '')
    found 1 "are no multiple of 8 and of the group size 48" "$text" config "'$g.weights.group_size = 48'"
    found 1 'strategy "token" needs "dynamic": true' "$text" config "'$g.weights |= (.strategy = \"token\" | del(.group_size))'"
    found 1 "up_proj: weight_shape is missing" "$text" st_change drop $up.weight_shape
    found 0 "up_proj.weight_shape: I32, expected I64" "$text" st_change drop $up.weight_shape '&&' st_change zeros $up.weight_shape I32 2
    found 1 "the module, stored as packed, has no such tensor" "$text" st_change zeros $up.weight_g_idx I32 8
    found 1 "weight_packed is missing beside the module's other parts" "$text" st_change drop $up.weight_packed
    found 1 "a scale beside a weight of BF16" "$text" st_change zeros model.embed_tokens.weight_scale F16 1024,1
    found 1 "dtypes F32 with scales of BF16 are no scheme" "$text" st_change dtype $up.weight_packed F32
    found 1 "stored as packed, but the config ignores it or has no group for it" "$text" config "'.quantization_config.ignore += [\"$up\", \"model.layers.0.mlp.gate_proj\"]'"
    found 1 "the config expects this module, no tensor of it is there" "$text" 'for p in packed shape scale; do st_change drop model.layers.0.mlp.down_proj.weight_$p; done'
    found 0 "cannot decide this regular expression in ignore" "$text" config "'.quantization_config.ignore += [\"re:(?=x)y\"]'"
    found 1 "re:(: an entry of ignore is no regular expression" "$text" config "'.quantization_config.ignore += [\"re:(\"]'"
    found 1 "re:a|*: an entry of targets is no regular expression" "$text" config "'$g.targets += [\"re:a|*\"]'"
    found 0 "cannot decide this regular expression in targets" "$text" config "'$g.targets += [\"re:(?=x)y\"]'"
    found 0 '"model.nothing.here" matches nothing here' "$text" config "'$g.targets += [\"model.nothing.here\"]'"
    found 1 '"Llama" is not known here: expected Gemma4ForCausalLM and the like' "$text" config "'.architectures = [\"Llama\"]'"
    found 1 "Gemma4ForConditionalGeneration over a text config: text-only builds are Gemma4ForCausalLM" "$text" config "'.architectures = [\"Gemma4ForConditionalGeneration\"]'"
    found 1 "Gemma3ForCausalLM over the config of another model family" "$text" config "'.architectures = [\"Gemma3ForCausalLM\"]'"
    found 1 "an integer, transformers wants a float: write 30.0" "$text" "jq '.final_logit_softcapping = 30' b/config.json >c && mv c b/config.json"
    found 1 "an error while reading config.json" "$text" config "'.hidden_size = -5'"
    found 1 "an error while reading its quantization_config" "$text" config "'.quantization_config = 5'"
    found 65 "b/config.json: holds no object: this is no model's config" "$text" 'echo 5 >b/config.json'
    found 65 "b: there is no config.json: a build is a directory" "$text" rm b/config.json
    found 65 "b: no directory: a build is a directory with config.json" "$text" 'rm -r b && touch b'
    cp -r "$(model e2b)" src
    "$TOOLS/st-mutate" src/model.safetensors rename model.language_model.norm.weight "$(printf 'n%.0s' $(seq 400))"
    refused 65 "…: name too long" ct-check "$text" --against src
    none_failed
}

@test "what ct-check finds in other builds" {
    local fp8 full unified emb4
    fp8=$(cached refused-fp8 make_build fp8 e2b '')
    full=$(cached refused-full make_build full e2b --towers)
    unified=$(cached refused-unified make_build full 12b --towers)
    emb4=$(cached refused-emb4 make_build emb4 e2b '')
    found 1 "NotImplementedError: No compressed-tensors compatible scheme was found" "$fp8" config "'.quantization_config.config_groups.group_0.weights.symmetric = false'"
    found 1 "no tensor of this name is there" "$full" st_change drop model.vision_tower.encoder.layers.0.input_layernorm.weight
    found 0 "false at the top level, true in text_config: the latter decides" "$full" config "'.tie_word_embeddings = false'"
    found 1 "num_soft_tokens (280) is missing" "$unified" config "'del(.vision_config.num_soft_tokens)'"
    found 0 "hidden_size is missing at the top level" "$unified" config "'del(.hidden_size)'"
    found 1 "the config has this part, no tensor of it is there" "$unified" st_change drop model.embed_audio.embedding_projection.weight ';' config "'.audio_config = {}'"
    found 0 "K and V of a layer that shares another's: the loader drops them" "$fp8" st_change zeros model.layers.8.self_attn.k_proj.weight BF16 32,256
    found 1 "a packed lm_head with tied embeddings: set tie_word_embeddings to false" "$emb4" \
        'for p in packed shape scale; do st_change drop model.embed_tokens.weight_$p; done; st_change zeros model.embed_tokens.weight BF16 1024,256; config ".tie_word_embeddings = true"'
    none_failed
}

@test "streams of which ct-pack can make no build" {
    st-extract --text-only --plan "$(model e2b)" | q4-regrid >text
    st-extract --text-only --plan "$(model e2b)" >plain
    st-extract --text-only --plan "$(model 26b)" | q4-regrid >moe
    "$ROOT/pipelines/text" "$(model e2b)" made
    st-extract --plan made >packed
    says() {    # STREAM FILTER TEXT [OPTION…]
        plan_with "$1" "$2" >changed
        refused_stdin changed 65 "$3" ct-pack "${@:4}" -o -
    }
    local q='."model.layers.0.self_attn.q_proj.weight_q4"' w='."model.layers.0.self_attn.q_proj.weight"' p='"model.layers.0.self_attn.q_proj.weight_'
    local m='."model.per_layer_model_projection.weight"' file='{dtype: "U8", shape: [3]}'
    says text "$q.dtype = \"I8\"" "blocks must be U8 [rows, cols/32, 18]"
    says text 'del(.__metadata__.q4_scale)' 'metadata q4_scale must be "bf16" or "f16": make the stream with q4-regrid'
    says text '.__metadata__.q4_scale = "F64"' 'metadata q4_scale is "F64", expected BF16 or F16'
    says packed "del(.${p}shape\")" "a packed weight needs its weight_shape"
    says text ".\"file:.hidden\" = $file" "no plain file (a name without slashes and control characters"
    says text ".\"file:config.json\" = $file" "the build writes a file of that name itself"
    says text '.["model." + ("x" * 400) + ".weight"] = '"$q" "name longer than 255 bytes"
    says text ".__metadata__.q4_left = ([\"model.layers.0.self_attn.q_proj.weight\"] | tojson) | del($q) | $w = {dtype: \"BF16\", shape: [256, 256]}" "but the loader fuses them: leave all of them in 16 bits or none"
    says text '."model.embed_tokens.weight".dtype = "I8" | ."model.embed_tokens.weight_scale" = {dtype: "F32", shape: [1024, 1]}' "tables can only be packed integers"
    says packed "with_entries(if .key | test(\"layers.0.self_attn.._proj.weight_scale\") then .value.shape[1] |= . / 2 else . end)" "one build has one scheme for its linears"
    says plain "$m.dtype = \"I64\"" "I64 is no dtype of a weight: expected BF16, F16 or F32"
    says plain "$m.dtype = \"F32\"" "is a linear in F32 and q4_left does not name it: run q4-regrid first"
    says text '.__metadata__.q4_left = "{}"' "metadata q4_left: expected a JSON array"
    says text "$q.shape = [0, 8, 18]" "an empty matrix"
    says text '."model.layers.0.strange.weight_q4" = '"$q" "model.layers.0.strange.weight"
    says text '.__metadata__.config |= (fromjson | .tie_word_embeddings = false | tojson)' "the config says that lm_head is not tied, but there is none"
    says text '."model.embed_tokens.weight".dtype = "I64"' "is no dtype of a weight"
    says plain '.__metadata__.q4_left = (keys | map(select(test("_proj|gate|projection"))) | tojson)' "nothing in it is quantized"
    says plain "$w.dtype = \"F32\"" "8-bit linears are made from BF16" --linears fp8
    says plain "$w.shape = [8192]" "a matrix was expected, found 1 dimensions" --linears fp8
    says packed "del(.${p}scale\")" "weight_scale [rows, groups] is missing"
    says packed "del(.${p}packed\")" "there is no quantized weight that it belongs to"
    local bank
    bank=$(st_header moe | jq -r 'keys_unsorted | map(select(test("experts.*gate_up_proj_q4"))) | .[0]')
    says moe ".\"$bank\".shape[0] = 3" "holds 3 experts, the config says 8"
    says moe ".\"$bank\".shape[1] = 3" "rows cannot be halved into gate and up"
    refused_stdin plain 64 "-o DIR is missing" ct-pack
    none_failed
}
