#!/usr/bin/env bats
# st-synth: the same bytes however they are made; on the grid; every structural feature; anomalies where asked for; text that wanders.
load lib

SIZES="e2b e4b 12b 26b 31b gemma3"
names() { st_header "$1" | jq -r 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0]) | .[].key'; }

@test "same options, same bytes: threads, file or pipe, again; another seed differs" {
    st-synth --size e2b --towers -o a.safetensors -j 1
    st-synth --size e2b --towers -o - -j 4 > b
    st-synth --size e2b --towers --seed 1 -o - | cat > c
    st-synth --size e2b --towers --seed 2 -o d.safetensors
    same_bytes a.safetensors b
    same_bytes a.safetensors c
    ! cmp -s a.safetensors d.safetensors || false
}

@test "a directory and a stream hold the same tensors and files" {
    st-synth --size 26b --towers -o dir
    st-synth --size 26b --towers -o s.safetensors
    st-extract dir > x
    diff <(names x | sort) <(names s.safetensors | sort)
    st-extract s.safetensors > x        # and it stands in st-extract's order already
    diff <(names x) <(names s.safetensors)
    for n in model.language_model.layers.3.experts.down_proj model.vision_tower.std_bias file:tokenizer.json; do
        st-extract --select "^$n\$" dir > one
        st-extract --select "^$n\$" s.safetensors > two
        diff <(st_header one | jq 'del(.__metadata__)') <(st_header two | jq 'del(.__metadata__)')
        cmp <(tail -c +"$((9 + $(st_header one | wc -c)))" one) <(tail -c +"$((9 + $(st_header two | wc -c)))" two)
    done
    diff <(st_header s.safetensors | jq -r .__metadata__.config | jq -S .) <(jq -S . dir/config.json)
    st_header s.safetensors | jq -r .__metadata__.provenance | holds '.[0].tool == "st-synth" and .[0].parent == null and (.[0].args | .[:3] == ["--size=26b", "--scale=nano", "--seed=1"] and index("--towers") != null)' /dev/stdin
    only_holds dir chat_template.jinja config.json generation_config.json model.safetensors processor_config.json tokenizer.json tokenizer_config.json
}

@test "every matrix of every size is on the grid" {
    need_program q4-regrid
    for size in $SIZES; do
        st-synth --size $size -o - | st-extract --text-only - | q4-regrid --only linears,ple,embed > /dev/null
    done
}

@test "values off the grid: as many as asked for, in distinct groups, and refused" {
    need_program q4-regrid
    run -0 --separate-stderr st-synth --size e4b --off-grid 5 -v -o x.safetensors
    [ "$(grep -c 'off the grid' <<<"$stderr")" -eq 5 ]
    [ "$(grep 'off the grid' <<<"$stderr" | sort -u | wc -l)" -eq 5 ]
    ! grep 'off the grid' <<<"$stderr" | grep -E 'embed|norm|router' || false
    run -65 bash -c 'q4-regrid < x.safetensors > /dev/null'
    [[ $output == *--leave* ]]
    st-synth --size e4b -o plain.safetensors
    [ "$(cmp -l plain.safetensors x.safetensors | wc -l)" -gt 5 ]
    run -64 st-synth --size e4b --off-grid 100000000 -o y.safetensors
    [ ! -e y.safetensors ]
}

@test "a stored twin equals the table" {
    st-synth --size e2b --twin-lm-head -o dir
    st-extract --select 'embed_tokens.weight$' dir > a
    st-extract --select '^lm_head' dir > b
    [ "$(names b | head -n 1)" = lm_head.weight ]
    n=$((1024 * 256 * 2))
    cmp <(tail -c +"$((9 + $(st_header a | wc -c)))" a | head -c $n) <(tail -c +"$((9 + $(st_header b | wc -c)))" b | head -c $n)
    holds '.tie_word_embeddings == true' dir/config.json
}

@test "plans at true size: a header alone, with the published counts" {
    while read -r size tensors bytes towers; do
        st-synth --size "$size" --scale full --towers --plan -o p.safetensors
        st_header p.safetensors > h
        [ "$(stat -c %s p.safetensors)" -eq $((8 + $(wc -c < h))) ]
        holds '.__metadata__.plan == "1"' h
        jq -r 'to_entries[] | select(.key | test("language_model")) | .value.data_offsets | .[1] - .[0]' h > sizes
        [ "$(wc -l < sizes)" -eq "$tensors" ]
        [ "$(($(paste -sd+ sizes)))" = "$bytes" ]
        # modules of the towers that a loader would take for linears
        [ "$(jq -r 'to_entries[] | select(.key | test("language_model|__metadata__|^file:") | not) | select(.key | endswith(".weight")) | select(.value.shape | length == 2) | .key' h | wc -l)" -eq "$towers" ]
        ! grep -q '"lm_head' h || false
    done <<-END
		e2b 540 9257138758 249
		e4b 665 14926026836 249
		12b 666 23814700640 3
		26b 657 50466283580 191
		31b 832 61394690680 191
	END
}

@test "true sizes stream within 64 MiB" {
    sanitized && skip "sanitizers take memory of their own"
    mkfifo pipe
    st-synth --size e4b --scale full -o - > pipe &
    pid=$!
    exec 5< pipe
    head -c 150000000 <&5 | tail -c 8 > /dev/null
    kb=$(awk '/VmHWM/ { print $2 }' /proc/$pid/status)
    exec 5<&-
    wait $pid || true
    echo "$kb kB"
    [ "$kb" -lt 65536 ]
}

@test "greedy decoding wanders, and text comes out" {
    need_program gpu-decode tokenize
    for size in $SIZES; do
        dir=$(model $size)
        echo '{"id":"q","messages":[{"role":"user","content":"What is the capital of France? Answer in one word."}],"max_tokens":40,"ignore_eos":true}' |
            gpu-decode --model "$dir" --device cpu -q > out
        jq -r '.token_ids[]' out > ids
        [ "$(wc -l < ids)" -eq 40 ]
        echo "$size: $(sort -u ids | wc -l) distinct, $(sort ids | uniq -c | sort -n | tail -n 1) the commonest"
        [ "$(sort -u ids | wc -l)" -ge 20 ]
        [ "$(sort ids | uniq -c | sort -n | tail -n 1 | awk '{ print $1 }')" -le 10 ]
        jq -e '.text | length > 40' out
        jq -r .text out | iconv -f utf-8 -t utf-8 > /dev/null
    done
}

@test "the tokenizer knows English by pieces, anything else by bytes, and gives it back" {
    need_program tokenize
    dir=$(model e2b)
    printf '%s\n' '{"text":"What is the capital of New Zealand? Answer in one word."}' '{"text":"  two\n\n\nlines\t日本 é 😀 <|turn>user\n"}' > in
    tokenize --model "$dir" < in > ids
    [ "$(head -n 1 ids | jq '.token_ids | length')" -lt 30 ]
    head -n 1 ids | jq -e '.token_ids | all(. >= 494)'
    tail -n 1 ids | jq -e '.token_ids | index([138]) != null and index([109]) != null and index([105]) != null'
    diff <(jq .text in) <(tokenize --model "$dir" --decode < ids | jq .text)
}

@test "--config makes a model of any config" {
    golden=$(golden e4b-nano)
    st-synth --config "$golden/config.json" --towers -o dir
    diff <(st_header dir/model.safetensors | jq -S 'del(.__metadata__) | map_values(.shape)') <(st_header "$golden/model.safetensors" | jq -S 'del(.__metadata__) | map_values(.shape)')
    jq '.text_config.hidden_size = 250' "$golden/config.json" > odd.json
    run -65 st-synth --config odd.json -o odd
    [[ $output == *"multiple of 32"* ]]
    echo '{"model_type":"gemma4"}' > bad.json
    run -65 st-synth --config bad.json -o bad
    [[ $output == *hidden_size* ]]
    run -66 st-synth --config none.json -o none
    [ ! -e odd ] && [ ! -e bad ] && [ ! -e none ]
}

@test "shards with an index hold what the single file holds" {
    st-synth --size e2b -o one
    st-synth --size e2b --shard-size 1M -o many
    [ "$(ls many/model-*-of-*.safetensors | wc -l)" -gt 3 ]
    diff <(jq -r '.weight_map | keys[]' many/model.safetensors.index.json) <(names one/model.safetensors | sort)
    st-extract one > a
    st-extract many > b
    cmp <(tail -c +"$((9 + $(st_header a | wc -c)))" a) <(tail -c +"$((9 + $(st_header b | wc -c)))" b)
}

@test "an existing directory is kept unless forced; nothing half-made stays" {
    st-synth --size gemma3 -o dir
    cp dir/config.json before
    run -64 st-synth --size e2b -o dir
    same_bytes before dir/config.json
    st-synth --size e2b --force -o dir
    holds '.model_type == "gemma4"' dir/config.json
    only_holds . before dir
}

@test "mistakes are usage errors" {
    run -64 st-synth -o x
    run -64 st-synth --size e2b
    run -64 st-synth --size e2b --config c.json -o x
    run -64 st-synth --size 7b -o x
    run -64 st-synth --size e2b --plan -o x
    run -64 st-synth --size gemma3 --towers -o x
    run -64 st-synth --size e2b --shard-size 1M -o x.safetensors
    only_holds .
}
