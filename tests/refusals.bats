#!/usr/bin/env bats
# What is refused, and in which words: the messages that no other suite produces (tests/messages.sh lists what is left).
load lib
load refusals

@test "command lines" {
    local p
    refused 64 "--connections: x: not a whole number" st-extract --connections x .
    refused 64 "--connections: 0: not between 1 and" st-extract --connections 0 .
    refused 64 "--retries: needs a value" st-extract . --retries
    refused 64 "--plan: takes no value" st-extract --plan=3 .
    refused 64 "--rows: a:1-: not NAME:A-B" st-extract --rows a:1- .
    refused 64 "--shard-size: 5Q: not a size" st-synth --size e2b --shard-size 5Q -o x
    refused 64 "--shard-size: -5: not a size" st-synth --size e2b --shard-size -5 -o x
    refused 64 "two: one operand too many" q4-regrid two
    refused 64 "--rate: often: not a number" sm-invoke --url http://127.0.0.1:1 --rate often
    refused 64 "--poisson: gives --rate its gaps" sm-invoke --url http://127.0.0.1:1 --poisson
    refused 64 "--endpoint x: no region: give NAME@REGION" sm-invoke --endpoint x
    refused 64 "--api-key-file: an endpoint takes AWS credentials" sm-invoke --endpoint x@us-east-1 --api-key-file key
    refused 64 "--model is missing: give the build to serve" gpu-serve --port 0
    refused 64 "--port is missing" gpu-serve --model .
    refused 64 "--image x: expected GLOB=COMMAND" sm-local --port 0 --image x
    none_failed
}

@test "sm-endpoint's command lines" {
    local up=(sm-endpoint up x --region us-east-1)
    local role=(--role arn:aws:iam::123456789012:role/q) model=(--model a/b) type=(--instance ml.g6.xlarge)
    refused 64 "--region is missing" sm-endpoint list
    refused 64 "--model is missing" "${up[@]}" "${role[@]}" "${type[@]}"
    refused 64 "--model a b: expected ORG/NAME" "${up[@]}" "${role[@]}" "${type[@]}" --model 'a b'
    refused 64 "--role is missing" "${up[@]}" "${model[@]}" "${type[@]}"
    refused 64 "--instance is missing" "${up[@]}" "${model[@]}" "${role[@]}"
    refused 64 "--ami a_b: no name of an image" "${up[@]}" "${model[@]}" "${role[@]}" "${type[@]}" --ami a_b
    refused 64 "--env A: a value has at most 1024" "${up[@]}" "${model[@]}" "${role[@]}" "${type[@]}" --env "A=$(head -c 1025 /dev/zero | tr '\0' x)"
    # shellcheck disable=SC2046
    refused 64 "--env: at most 100" "${up[@]}" "${model[@]}" "${role[@]}" "${type[@]}" $(seq -f '--env=A%g=1' 101)
    refused 64 "y: one operand too many" sm-endpoint status x y --region us-east-1
    refused 64 "x: one operand too many" sm-endpoint list x --region us-east-1
    refused 64 "upload: expected DIRECTORY s3://" sm-endpoint upload . --region us-east-1
    refused 64 "--sweep-up runs no command" sm-endpoint guard --sweep-up --region us-east-1 -- true
    refused 64 "--from reads a saved log" sm-endpoint facts x --from log
    none_failed
}

@test "credentials that are none" {
    local list=(sm-endpoint list --region us-east-1) a=http://127.0.0.1:1/
    refused 77 "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not" env AWS_ACCESS_KEY_ID=A "${list[@]}"
    refused 77 "hold blanks or line ends" env AWS_ACCESS_KEY_ID='A B' AWS_SECRET_ACCESS_KEY=s "${list[@]}"
    refused 77 "a web identity token file is set but no role: set AWS_ROLE_ARN" env AWS_WEB_IDENTITY_TOKEN_FILE=token "${list[@]}"
    refused 77 "the container's authorization token holds a line end" env AWS_CONTAINER_CREDENTIALS_FULL_URI=$a AWS_CONTAINER_AUTHORIZATION_TOKEN=$'a\nb' "${list[@]}"
    refused 77 "no AWS credentials: looked at the environment" "${list[@]}"
    printf '%s\n' '[half]' 'aws_access_key_id = A' >credentials
    printf '%s\n' '[profile bare]' 'role_arn = arn:aws:iam::1:role/x' '[profile mfa]' 'role_arn = arn:aws:iam::1:role/x' 'source_profile = bare' 'mfa_serial = 1' \
        '[profile round]' 'role_arn = r' 'source_profile = other' '[profile other]' 'role_arn = r' 'source_profile = round' \
        '[profile empty]' 'region = us-east-1' '[profile from-empty]' 'role_arn = r' 'source_profile = empty' '[profile sso]' 'sso_start_url = https://x' >config
    refused 77 "has aws_access_key_id without aws_secret_access_key" "${list[@]}" --profile half
    refused 77 "profile bare: role_arn needs source_profile or credential_source" "${list[@]}" --profile bare
    refused 77 "profile mfa: needs an MFA code" "${list[@]}" --profile mfa
    refused 77 "source_profile leads round in a circle" "${list[@]}" --profile round
    refused 77 "its source has no credentials" "${list[@]}" --profile from-empty
    refused 77 "profile sso: its credentials lead back to itself" env _AWS_CLI_PROFILE_CHAIN=sso "${list[@]}" --profile sso
    unset XDG_STATE_HOME HOME
    refused 64 "neither XDG_STATE_HOME nor HOME is set" env AWS_ACCESS_KEY_ID=A AWS_SECRET_ACCESS_KEY=s sm-endpoint guard -- true
    none_failed
}

@test "sources that are none" {
    local m
    m=$(model e2b)
    mkdir list noname slash two
    echo '[]' >list/config.json
    cp "$m/model.safetensors" list/
    refused 65 "list/config.json: not an object" st-extract --list list
    echo '{}' >noname/model.safetensors.index.json
    refused 65 "weight_map: missing or empty" st-extract --list noname
    echo '{"weight_map": {"a": "../a.safetensors"}}' >slash/model.safetensors.index.json
    refused 65 "weight_map: a: not a file name" st-extract --list slash
    st '{"model.language_model.norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"model.norm.weight":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]},"s":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}' 8 >two/model.safetensors
    cp "$m/config.json" two/
    refused 65 "two tensors of the source get this name: use --select" st-extract --text-only --list two
    refused 64 "s:0-1: a scalar has no rows" st-extract --rows s:0-1 two/model.safetensors
    st '{"__metadata__":{"config":"[]"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >bad
    refused_stdin bad 65 "metadata config: not an object" ct-pack -o -
    st '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >bad
    refused_stdin bad 65 "no metadata config: make the stream with st-extract" ct-pack -o -
    refused_stdin bad 65 "no embed_tokens: there is nothing to tie or untie" emb-untie
    st '{"__metadata__":{"q4_scale":"F64"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >bad
    refused_stdin bad 65 "metadata q4_scale: F64, bf16 or f16 expected" q4-regrid
    st '{"model.layers.0.self_attn.q_proj.weight":{"dtype":"BF16","shape":[32],"data_offsets":[0,64]}}' 64 >bad
    refused_stdin bad 65 "1 dimensions, 2 expected" q4-regrid
    if command -v script >/dev/null; then
        script -qec "st-extract $m" /dev/null </dev/null | grep -F "stdout: is a terminal: tensors go to a pipe or a file"
    fi
    none_failed
}

@test "configs that describe no model" {
    local base
    base=$(model e2b --towers)/config.json
    says() {    # FILTER TEXT [BASE]
        jq "$1" "${3:-$base}" >c.json
        refused 65 "$2" st-synth --config c.json --towers --plan -o -
    }
    says '[]' "no JSON object: expected a model's config.json"
    says '.text_config.vocab_size_per_layer_input = 0' "vocab_size_per_layer_input is 0 although"
    says '.text_config.rms_norm_eps = 0' "is out of range"
    says '.text_config.rope_parameters.full_attention.partial_rotary_factor = 2' "out of range"
    says '.text_config.eos_token_id = -1 | .eos_token_id = -1' "is no token id"
    says '.vision_config.hidden_size = 0' "towers cannot be laid out"
    says '.audio_config.subsampling_conv_channels = 3' "subsampling_conv_channels is no pair"
    says '.vision_config.model_type = "eye"' 'model_type is "eye": no tower known by that name'
    says '.text_config.top_k_experts = 99' "top_k_experts is 99 of num_experts" "$(model 26b)/config.json"
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
    says text '.__metadata__.q4_left = "{}"' "metadata q4_left is no array of names"
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
    none_failed
}

@test "quantization configs that no loader takes" {
    "$ROOT/pipelines/text" "$(model e2b)" b
    cp b/config.json good.json
    local g='.quantization_config.config_groups.group_0'
    says() {    # FILTER TEXT [STATUS]
        jq "$1" good.json >b/config.json
        run ct-check b
        [[ $status = "${3:-1}" && $output = *"$2"* ]] || { echo "$1: expected ${3:-1} and \"$2\", found $status: ${output:0:600}"; FAILED=1; }
    }
    says "$g.weights.strategy = \"channel\"" 'group_size is only for strategy "group"'
    says "$g.weights.actorder = \"group\"" "activation order by group is not supported"
    says "$g.weights = 4" "weights or activations of config_groups.group_0: an object is expected"
    says "$g.weights.num_bits = 99" "out of bounds"
    says '.quantization_config.ignore = "lm_head"' "quantization_config.ignore is no array"
    says "$g.format = \"mixed-precision\"" "a group's own format cannot be"
    says '.quantization_config.sparsity_config = {"targets": ["Linear"]}' "sparsity with targets is no longer supported"
    cp good.json b/config.json
    st-extract --text-only --plan "$(model e2b)" >plan
    refused 65 "a plan has no values to compare with" ct-check b --against plan
    none_failed
}

@test "request lines and directories that the engine does not take" {
    local dir said
    dir=$(model gemma3)
    line() {    # JSON TEXT [DIRECTORY]
        said=$("$BIN/gpu-decode" -q --device cpu --model "${3:-$dir}" <<<"$1" 2>/dev/null | jq -r .error)
        [[ $said = *"$2"* ]] || { echo "$1: expected \"$2\", found \"$said\""; FAILED=1; }
    }
    mkdir bare
    cp "$dir"/{config.json,model.safetensors} bare/
    line '{"prompt":"x","ignore_eos":1}' "ignore_eos: neither true nor false"
    line '{"prompt":"x","logit_bias":[]}' "logit_bias: not an object of token ids"
    line '{"prompt":"x","logit_bias":{"3":200}}' "the bias of 3 is no number within -100 to 100"
    line '{"prompt":"x","top_logprobs":2}' 'top_logprobs: needs "logprobs": true'
    line '{"prompt":"x","stop":"a\u0000b"}' "a stop string holds U+0000"
    line '{"prompt":"x","stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}' "stop: more than 16 strings"
    line '{"prompt":""}' "prompt: empty"
    line '{"prompt_ids":[2],"stop":"x"}' "stop: the model has no tokenizer.json" bare
    line '{"messages":[{"role":"user","content":"x"}]}' "messages: the model has no tokenizer.json: give prompt_ids" bare
    refused 66 "not a directory: give the directory that holds config.json" gpu-decode --model "$dir/config.json"
    refused 64 "--json and --gpu belong to --info" gpu-decode --model "$dir" --json
    "$BIN/gpu-decode" -q --device cpu --model "$dir" --logits l <<<'{"prompt_ids":[2]}' | grep -F "id: --logits and --trace name their tensors by it" || FAILED=1
    : >key
    refused 65 "holds no API key: one line is expected" gpu-serve --model "$dir" --port 0 --api-key-file key
    none_failed
}
