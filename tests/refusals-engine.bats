#!/usr/bin/env bats
# What the tokenizer, the engine and the programs around them refuse, in the words of each message (tests/messages.sh lists what is left).
load lib
load refusals

copy_of() { rm -rf "$2"; cp -r "$1" "$2"; }     # MODEL DIR

@test "lines that gpu-decode refuses" {
    local dir
    dir=$(model gemma3)
    lines_refused gpu-decode -q --device cpu --model "$dir" --max-context 64 <<'TABLE'
max_tokens: not an integer <- {"prompt_ids":[2],"max_tokens":"3"}
seed: not an integer <- {"prompt_ids":[2],"seed":1.5}
max_tokens: 0 is not within 1 to 1073741824 <- {"prompt_ids":[2],"max_tokens":0}
temperature: -1 is not within 0 to 100 <- {"prompt_ids":[2],"temperature":-1}
temperature: a number is expected <- {"prompt_ids":[2],"temperature":"x"}
top_p: 0 is not above 0 <- {"prompt_ids":[2],"top_p":0}
logit_bias: "5000000" names no token of this model (ids 0 to 1023) <- {"prompt_ids":[2],"logit_bias":{"5000000":1}}
stop: neither a string nor a list of them, or an empty one <- {"prompt_ids":[2],"stop":[7]}
prompt_ids[1]: a token's id is expected, a whole number <- {"prompt_ids":[2,-3]}
prompt: exactly one of messages, prompt and prompt_ids is needed <- {"prompt":"x","prompt_ids":[2]}
prompt_ids: not a list of token ids <- {"prompt_ids":"x"}
prompt_ids: empty <- {"prompt_ids":[]}
token 1024 (number 1) is not in the model's table of 1024 <- {"prompt_ids":[2,1024]}
65 tokens leave no room in a context of 64: shorten it <- {"prompt_ids":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}
request: not a JSON object <- [2]
id: neither a string nor an integer <- {"id":[],"prompt_ids":[2]}
n: only 1 is supported: give each completion its own line and seed <- {"prompt_ids":[2],"n":2}
frequency_penalty: only 0 is supported <- {"prompt_ids":[2],"frequency_penalty":0.5}
stop_token_ids: that is not done here: leave it out <- {"prompt_ids":[2],"stop_token_ids":[7]}
chat_template: that is not done here: leave it out <- {"prompt_ids":[2],"chat_template":"{{x}}"}
documents: that is not done here: leave it out <- {"prompt_ids":[2],"documents":[{"text":"x"}]}
tool_choice: only "auto" and "none" are supported <- {"prompt_ids":[2],"tool_choice":"required"}
tool_choice: only "auto" and "none" are supported <- {"prompt_ids":[2],"tool_choice":{"type":"function","function":{"name":"f"}}}
function_call: only "auto" and "none" are supported <- {"prompt_ids":[2],"function_call":{"name":"f"}}
modalities: only ["text"] is supported <- {"prompt_ids":[2],"modalities":["text","audio"]}
modalities: only ["text"] is supported <- {"prompt_ids":[2],"modalities":"text"}
chat_template_kwargs: expected an object <- {"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":5}
add_special_tokens: the chat template writes its own: leave it out <- {"messages":[{"role":"user","content":"x"}],"add_special_tokens":true}
add_special_tokens: neither true nor false <- {"prompt":"x","add_special_tokens":1}
no error <- {"messages":[{"role":"user","content":"x"}],"add_special_tokens":false,"max_tokens":1}
no error <- {"prompt_ids":[2],"max_tokens":1,"tool_choice":"none","function_call":"auto","modalities":["text"],"chat_template":null,"documents":[]}
no error <- {"prompt_ids":[2],"max_tokens":1,"n":1,"stop_token_ids":[],"frequency_penalty":0,"use_beam_search":false,"response_format":{"type":"text"},"best_of":1,"echo":false}
TABLE
    lines_refused gpu-decode -q --device cpu --model "$dir" --logits l <<'TABLE'
no error <- {"id":"a","prompt_ids":[2],"max_tokens":1}
logits.a would be written twice: give every line its own id <- {"id":"a","prompt_ids":[2],"max_tokens":1}
TABLE
    none_failed
}

@test "lines that tokenize refuses" {
    local dir
    dir=$(model gemma3)
    lines_refused tokenize --model "$dir" <<'TABLE'
text: expected a string <- {"text":5}
the line is no object: expected {"text": …} <- [5]
TABLE
    lines_refused tokenize --decode --model "$dir" <<'TABLE'
token_ids: expected a list <- {"token_ids":5}
token_ids[0]: not a token id from 0 to 1023 <- {"token_ids":[1024]}
TABLE
    refused 64 "--model is missing: name the model's directory" tokenize
    refused 64 "--decode and --render exclude each other" tokenize --model "$dir" --decode --render
    copy_of "$dir" other
    rm other/chat_template.jinja
    refused 0 "other: no chat template: prompts are written as gemma3's" tokenize --model other --render
    echo 'another' >other/chat_template.jinja
    refused 0 "is none that was checked: prompts are written as gemma3's" tokenize --model other --render
    none_failed
}

@test "models that the engine does not take" {
    local dir decode=(gpu-decode -q --device cpu --model m)
    dir=$(model gemma3)
    says() {    # TEXT COMMAND…: a copy of the model, changed
        copy_of "$dir" m
        eval "${*:2}" || FAILED=1
        refused 65 "$1" "${decode[@]}"
    }
    config() { jq "$1" m/config.json >c && mv c m/config.json; }
    generation() { echo "$1" >m/generation_config.json; }
    change() { "$TOOLS/st-mutate" m/model.safetensors "$@"; }
    says "eos_token_id holds something other than token ids" generation "'{\"eos_token_id\":[\"x\"]}'"
    says "eos_token_id lists over 64 ids" generation "'{\"eos_token_id\":[$(seq -s, 65)]}'"
    says "generation_config.json: expected an object of generation settings" generation '[]'
    says "inputs, which is no multiple of 32" config '.hidden_size=250'
    says "tensor model.layers.0.odd belongs to no Gemma that is known here" change zeros model.layers.0.odd BF16 2
    says "has shape [32768], by config.json it is [128, 256]" change shape model.layers.0.self_attn.q_proj.weight 32768
    copy_of "$dir" m
    poke m model.norm.weight "$(printf '\\x7f\\x7f%.0s' $(seq 256))"
    lines_refused "${decode[@]}" <<<'the model gives no usable logits at position 1: its weights are damaged, or every token is forbidden <- {"prompt_ids":[2]}'
    says "holds NaN or infinity in the" poke m model.layers.0.mlp.up_proj.weight "'\\xff\\x7f'"
    none_failed
}

@test "builds that the engine does not take" {
    local g=.quantization_config.config_groups.group_0.weights
    "$ROOT/pipelines/text" "$(model gemma3)" made
    says() {    # TEXT FILTER
        rm -rf m
        cp -r made m
        jq "$2" made/config.json >m/config.json
        refused 65 "$1" gpu-decode -q --device cpu --model m
    }
    says "is packed in 8 bits: only int4 is supported" "$g.num_bits = 8"
    says "has groups of 48 along 256 inputs: only multiples of 32 that divide them are supported" "$g.group_size = 48"
    refused 0 "tensors of vision and audio towers are left out: text only" gpu-decode --device cpu --model "$(model e2b --towers)"
    none_failed
}

@test "no GPU: in a build with CUDA, and in one without" {
    local said status=0
    said=$(CUDA_VISIBLE_DEVICES='' gpu-decode --device cuda --model "$(model gemma3)" 2>&1 </dev/null) || status=$?
    [ "$status" = 69 ]
    [[ $said = *"no GPU is here ("*"): use --device cpu" || $said = *"this build has no CUDA: build it where nvcc is, or use --device cpu" ]]
}

@test "what is there on the CPU only" {
    local m shim=("$BUILD/shim/gpu-decode" --device cuda)
    m=$(model gemma3)
    export Q4_SHIM_UNWATCHED=1
    refused 64 "--mmap: it is there on the CPU only: use --device cpu" "${shim[@]}" --model "$m" --mmap
    refused 64 "--math judge: it is there on the CPU only: use --device cpu" "${shim[@]}" --model "$m" --math judge
    says() {    # TEXT MODEL COMMAND…: a copy, changed
        copy_of "$2" m
        eval "${*:3}" || FAILED=1
        refused "${STATUS:-69}" "$1" "${shim[@]}" --model m
    }
    change() { "$TOOLS/st-mutate" m/model.safetensors "$@"; }
    "$ROOT/pipelines/text" "$(model 26b)" experts
    says "layer 0: expert 3 is stored otherwise than expert 0: use --device cpu" experts change widen model.layers.0.experts.3.up_proj.weight_scale
    st-synth --config <(jq '.head_dim = 48' "$m/config.json") -o odd
    jq -nc '{prompt_ids: [range(2; 42)], max_tokens: 1}' >line
    refused_stdin line 69 "cannot do this model: a head is no multiple of 32 columns, or more than 512: use --device cpu" "${shim[@]}" --model odd
    st-synth --config <(jq '.text_config.per_layer_config = {"0": {"head_dim": 64}, "1": {"head_dim": 96}, "2": {"head_dim": 128}}' "$(model e4b)/config.json") -o wide
    says "layers of more than 2 widths: use --device cpu" wide true
    # Holes: 8 GB in a place of 256 MiB, and a table that leaves no room, or little, for K and V.
    vast() { jq ".vocab_size = $1" "$m/config.json" >m/config.json; rm m/[gt]*.json m/*.jinja
        plan_with "$m/model.safetensors" "map_values(if .shape then .shape |= map(if . == 1024 then $1 else . end) else . end)" >m/model.safetensors
        truncate -s $(($(stat -c %s m/model.safetensors) + $(st_header m/model.safetensors | jq '[.[].data_offsets[1]? // 0] | max'))) m/model.safetensors; }
    STATUS=75 says "no room for 8594377600 bytes: it has " "$m" vast 16777216
    STATUS=75 says "of its 0.27 GB are left for K/V, too little: take a smaller build" "$m" vast 480740
    copy_of "$m" m
    vast 480650
    refused_stdin line 75 "the GPU's 0.00 GB for K/V are full: run fewer sequences together, or shorter ones" "${shim[@]}" --model m
    none_failed
}

@test "a SIMD level that the CPU lacks (valgrind's has no AVX-512)" {
    need_command valgrind
    [ "$Q4CONFIG" = release ] || skip "valgrind does not run what a sanitizer has compiled"
    refused 69 "--simd avx512: this CPU has no more than avx2" valgrind -q "$BIN/q4-regrid" --simd avx512
    none_failed
}
