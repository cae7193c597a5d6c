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
    refused 64 "--rows: a:1-: expected NAME:A-B" st-extract --rows a:1- .
    refused 64 "--shard-size: 5Q: not a size" st-synth --size e2b --shard-size 5Q -o x
    refused 64 "--shard-size: -5: not a size" st-synth --size e2b --shard-size -5 -o x
    refused 64 "two: takes no file: it reads standard input, as in < two: try" q4-regrid two
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
    refused 64 ": no region's name" sm-endpoint list --region ,
    refused 64 ": no region's name" sm-endpoint list --region us-east-1,,us-east-2
    refused 64 "us-east-1 and us-east-2: one region here" sm-endpoint status x --region us-east-1,us-east-2
    refused 64 "x@us-east-1: --region says us-east-2: which of the two" sm-endpoint delete x@us-east-1 --region us-east-2
    refused 64 "--instance : expected a type like" "${up[@]}" "${model[@]}" "${role[@]}" --instance ,
    refused 64 "--instance g6: expected a type like" sm-endpoint quota --region us-east-1 --instance ml.g6.xlarge,g6
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
    says '.text_config.rope_parameters.full_attention.partial_rotary_factor = 2' "partial_rotary_factor 2: expected rope_theta from 1 on, factor above 0, partial_rotary_factor above 0 and at most 1"
    says '.text_config.eos_token_id = -1 | .eos_token_id = -1' "is no token id"
    says '.vision_config.hidden_size = 0' "towers cannot be laid out"
    says '.audio_config.subsampling_conv_channels = 3' "subsampling_conv_channels is no pair"
    says '.audio_config.num_attention_heads = 64' "num_attention_heads is 64, which does not divide hidden_size 32"
    says '.vision_config.num_hidden_layers = 1048576' "num_hidden_layers is missing or no number from 1 to 256"
    says '.vision_config |= (.patch_size = 65536 | .pooling_kernel_size = 65536)' "patch_size is missing or no number from 1 to 256" "$(model 12b --towers)/config.json"
    says '.vision_config.model_type = "eye"' 'model_type is "eye": no tower known by that name'
    says '.text_config.top_k_experts = 99' "top_k_experts is 99 of num_experts" "$(model 26b)/config.json"
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
    refused 64 "--info and --bench exclude each other" gpu-decode --model "$dir" --info --bench
    refused 64 "--logits and --trace are of prompts: there are none with --bench" gpu-decode --model "$dir" --bench --trace t
    refused 64 "--trace x/../t: the logits go there already: name another file" gpu-decode --model "$dir" --logits "$(mkdir -p x; : >t; echo t)" --trace x/../t
    "$BIN/gpu-decode" -q --device cpu --model "$dir" --logits l <<<'{"prompt_ids":[2]}' | grep -F "id: --logits and --trace name their tensors by it" || FAILED=1
    refused_stdin <(echo '{}'; head -c 70M /dev/zero) 65 "stdin: line 2: longer than 67108864 bytes: expected JSON Lines, one value a line" tokenize --model "$dir"
    : >key
    refused 65 "holds no API key: one line is expected" gpu-serve --model "$dir" --port 0 --api-key-file key
    none_failed
}

@test "command lines of the programs on streams" {
    local m result
    m=$(model gemma3)
    st-extract --text-only "$m" >text
    refused 64 "--simd: fast: is none of scalar|avx2|avx512" q4-regrid --simd fast
    refused 64 "--seed: -5: expected 0 or more" st-synth --size e2b --seed -5 -o x
    refused 64 "--no-such: there is no such option" st-extract --no-such .
    refused 64 "-Z: there is no such option" st-extract -Z .
    refused 64 "--rows: a: expected NAME:A-B, the rows from A to B-1" st-extract --rows a .
    refused 64 "--rows: a:3-2: not NAME:A-B with A < B" st-extract --rows a:3-2 .
    refused 64 "it has 1024 rows" st-extract --rows model.embed_tokens.weight:0-2000 "$m"
    refused 65 "--rows: none:0-1: no such tensor: --list shows the names" st-extract --rows none:0-1 "$m"
    st '{"s":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}' 3 >half.safetensors
    refused 64 "its rows are no whole bytes" st-extract --rows s:0-1 half.safetensors
    st "{\"$(printf 'n%.0s' $(seq 600))\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}" 1 >long.safetensors
    refused 65 "this name has 600 bytes, only 511 are possible" st-extract --list long.safetensors
    refused 65 "rows of 48 values are no multiple of 32: choose other sizes" st-synth --config <(jq '.intermediate_size = 48' "$m/config.json") -o -
    refused 64 "--off-grid 999999999: the linears have" st-synth --size gemma3 --off-grid 999999999 -o -
    refused 64 "--towers: this model has none" st-synth --size gemma3 --towers -o -
    refused 64 "-o is missing: DIR, FILE.safetensors or -" st-synth --size gemma3
    refused 64 "exactly one of --size and --config is needed" st-synth -o -
    refused 64 "--plan and --zstd are for a stream (- or FILE.safetensors), --shard-size and --force for a directory" st-synth --size gemma3 --plan -o x
    refused 65 "hidden_size is missing or no number from 1 to 65536: towers cannot be laid out" \
        st-synth --config <(jq 'del(.vision_config.hidden_size)' "$(model e2b --towers)/config.json") --towers --plan -o -
    refused_stdin <(st '{"a.weight":{"dtype":"F32","shape":[32,32],"data_offsets":[0,4096]}}' 4096) 0 "" q4-regrid
    refused_stdin <(st '{"model.layers.0.mlp.up_proj.weight":{"dtype":"F32","shape":[32,32],"data_offsets":[0,4096]}}' 4096) 65 "F32, BF16 expected: only bf16 values show their grid" q4-regrid
    refused_stdin <(st '{"model.layers.0.mlp.up_proj.weight":{"dtype":"BF16","shape":[1,48],"data_offsets":[0,96]}}' 96) 65 "rows of 48 values are no multiple of 32: int4 groups do not fit" q4-regrid
    refused_stdin <(cat text) 64 "--off-grid keep reads twice: give it a file (q4-regrid < FILE)" q4-regrid --off-grid keep
    refused 64 "--report same: the stream goes there already: name another file" q4-regrid --report same -o same
    refused 64 "--report -: the stream goes there already: name another file" q4-regrid --report -
    refused_stdin <(st '{"lm_head.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"model.embed_tokens.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[4,8]}}' 8) \
        65 "lm_head.weight comes before model.embed_tokens.weight: bring the tables into order with st-extract -" emb-untie
    refused_stdin <(st "{$(n=0; for name in model.{,language_model.}embed_tokens.weight{,_q4,_packed,_scale,_shape}; do
        printf '"%s":{"dtype":"BF16","shape":[1,2],"data_offsets":[%d,%d]},' "$name" $n $((n += 4)); done)\"z\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[40,44]}}" 44) \
        65 "more than 5 tensors of one table" emb-untie
    st-synth --size gemma3 --twin-lm-head -o twin
    "$TOOLS/st-mutate" twin/model.safetensors xor lm_head.weight 5000 1
    st-extract twin >twin.st
    refused_stdin twin.st 0 "lm_head.weight differs from model.embed_tokens.weight, first at row 9: both are kept, untied" emb-untie --drop-twin
    refused 64 "--logits and --trace want a file: stdout carries the completions" gpu-decode --model "$m" --logits -
    refused 64 "--gpu X1: known are" gpu-decode --model "$m" --info --gpu X1
    refused 65 "tokens do not fit a context of 64: use smaller --prompt and --gen" gpu-decode --device cpu --model "$m" --bench --max-context 64
    mkdir none
    refused 66 "none: holds no result: no *.json" tabulate none
    refused 64 "diff: expected two results or directories, found 1" tabulate diff none
    refused 74 "stdout: write failed: No space left on device" bash -c "'$BIN/tabulate' '$ROOT/data/published' >/dev/full"
    refused 64 "diff: takes --format, --metric, --where and --threshold alone" tabulate diff --table summary a b
    refused 64 "--metric and --table exclude each other" tabulate --metric decode --table summary a
    refused 64 "--baseline ple4: no result is of that build" tabulate --baseline ple4 "$ROOT/data/published/e2b-text.json"
    refused 64 "--table: none is named: known are run, summary" tabulate --table "" "$ROOT/data/published/e2b-text.json"
    none_failed
}

@test "streams and files that are none" {
    local m good
    m=$(model gemma3)
    good=$m/model.safetensors
    mkdir -p t/tokenizer.json
    refused 66 "tokenizer.json: is a directory: name a file" tokenize --model t
    refused_stdin <(head -c 100000 "$good") 65 "model.embed_tokens.weight: ended 441352 bytes short of 524288: the file is cut, or the stage before this one failed" q4-regrid
    refused_stdin <(head -c 5 "$good") 65 "stdin: ends within the header's length: the file is cut, or the stage before this one failed" q4-regrid
    refused_stdin /dev/null 65 "stdin: nothing came: the file is empty, or the stage before this one failed" emb-untie
    head -c 100000 "$good" >cut
    refused 65 "cut: 100000 bytes, $(stat -c %s "$good") expected: the file is cut" st-extract --list cut
    { cat "$good"; echo; } >more
    refused 65 "expected: something follows the last tensor: not one safetensors file" st-extract --list more
    refused_stdin <(cat more) 65 "data go on after the end that the header states: not one safetensors file" q4-regrid
    printf '\xff\xff\xff\xff\xff\0\0\0{' >claims
    refused 65 "the header claims 1099511627775 bytes, at most 100000000 are allowed: not a safetensors file" st-extract --list claims
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\n' >pointer
    refused 65 "pointer: no safetensors file, but a Git LFS pointer: fetch what it stands for" st-extract --list pointer
    printf 'GGUF\3\0\0\0\1\0\0\0' >m.gguf
    refused 65 "m.gguf: no safetensors file, but GGUF: take the checkpoint" st-extract --list m.gguf
    st-extract -z "$m" >packed.zst
    head -c 20000 packed.zst >cut
    refused_stdin cut 65 "stdin: compressed data end early: the file is cut or its writer failed" q4-regrid
    { head -c 4 packed.zst; head -c 200 /dev/zero | tr '\0' '\377'; } >cut
    refused_stdin cut 65 "stdin: damaged zstd data:" q4-regrid
    mkdir empty z
    refused 66 "empty: no safetensors file in it" gpu-decode --device cpu --model empty --info
    cp "$m/config.json" z
    cp packed.zst z/model.safetensors
    refused 65 "z/model.safetensors: compressed or no plain file: decompress it first" gpu-decode --device cpu --model z
    st '{"__metadata__":{"provenance":"{}"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >p
    refused_stdin p 65 "stdin: metadata provenance: expected a JSON array" q4-regrid
    st '{"__metadata__":{"q4_left":"{}"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >p
    refused_stdin p 65 "stdin: metadata q4_left: expected a JSON array" q4-regrid
    st '{"__metadata__":{"config":"{"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >p
    refused 65 "st-extract: p: metadata config: not JSON" st-extract --text-only p
    mkdir i
    cp "$m/config.json" i
    cp "$good" i/a.safetensors
    cp "$good" i/b.safetensors
    "$TOOLS/st-mutate" i/b.safetensors rename model.norm.weight model.norm2.weight
    index() { jq -n "{weight_map: $1}" >i/model.safetensors.index.json; }
    index '{"model.norm.weight": "c.safetensors"}'
    refused 65 "i/c.safetensors: the index names it, it is missing: download it again" st-extract --list i
    index '{"no.such": "a.safetensors"}'
    refused 65 "the index names no.such in a.safetensors, no file has it: download it again" st-extract --list i
    refused 65 "a.safetensors: no.such: the index names it, the file does not have it" gpu-decode --device cpu --model i
    rm i/b.safetensors
    st '{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >i/b.safetensors
    index '{"model.norm.weight": "b.safetensors", "x": "a.safetensors"}'
    refused 65 "the index names this file, the tensor stands in another" gpu-decode --device cpu --model i
    echo '{"text_config":' >c.json
    refused 65 "c.json: not JSON: line 2, column 0: unexpected token" st-synth --config c.json -o -
    printf '{"a":"\xff"}' >c.json
    refused 65 "c.json: not JSON: byte 6 (0xff): invalid UTF-8" st-synth --config c.json -o -
    { printf '{"__metadata__":{"x":"'; head -c 99999800 /dev/zero | tr '\0' x; printf '"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'; } >header
    st "$(<header)" 1 >vast
    refused_stdin vast 65 "no reader takes it" q4-regrid
    rm vast header
    none_failed
}

@test "places where nothing can be made" {
    local m=gemma3
    refused 74 "/proc/x.safetensors: cannot create" st-synth --size gemma3 -o /proc/x.safetensors
    mkdir old.safetensors
    refused 74 "old.safetensors: cannot open for writing: Is a directory" st-synth --size $m -o old.safetensors
    : >file
    refused 64 "file: exists and is no directory: name another" st-synth --size $m -o file
    mkdir -p with/sub
    refused 64 "with: holds the directory sub, so it was not made here: remove it yourself or name another" st-synth --size $m --force -o with
    st-extract --text-only "$(model gemma3)" >text
    export TMPDIR=/nowhere
    refused_stdin <(q4-regrid --only linears,embed <text) 74 "/nowhere/q4sweep." emb-untie
    refused_stdin <(q4-regrid --only linears,embed <text) 74 "no temporary file can be made there: set TMPDIR" emb-untie
    unset TMPDIR
    head -c 300000000 /dev/zero >huge.json
    refused 65 "huge.json: larger than 268435456 bytes" st-synth --config huge.json -o -
    rm huge.json
    none_failed
}
