# tokenize: ids as the Hugging Face library has them, prompts as Google's templates write them, bad lines, broken models.
load lib

tok() { echo "$ROOT/tests/golden/tokenizer/$1"; }

# Every line of a chat golden file against a directory whose config.json decides the family.
check_chat() {  # VARIANT SIZE
    local golden=$ROOT/tests/golden/chat/$1.jsonl
    run -65 --separate-stderr tokenize --model "$(golden "$2")" --render <"$golden"
    printf '%s\n' "$output" >out
    [ "$(wc -l <out)" -eq "$(wc -l <"$golden")" ]
    jq -nc --slurpfile want "$golden" --slurpfile got out '
        ($want[] | select(.id == "tools-pending") | .rendered) as $pending
        | range($want | length) | . as $i | $want[$i] as $w | $got[$i] as $g
        | if $g.id != $w.id then "order"
          elif $w.policy == "must" then ($g.rendered == $w.rendered)
          elif $w.policy == "must_refuse" then ($g | has("error") and (has("rendered") | not))
          elif $w.id == "tools-string-args" then ($g.rendered == $pending)
          else ($g.rendered == $w.rendered or ($g | has("error"))) end
        | if . == true then empty else [$w.id, $g] end' >wrong
    # without a template of its own the model's family is assumed: said once
    [ "$(grep -c 'no chat template' <<<"$stderr")" -eq 1 ]
    [ ! -s wrong ] || { cat wrong; return 1; }
}

@test "text to ids and back, every golden line" {
    local t
    for t in gemma variant unknown; do
        tokenize --model "$(tok $t)" <"$(tok $t)/lines.jsonl" >ids
        diff <(jq -c '{token_ids}' "$(tok $t)/lines.jsonl") ids
        tokenize --model "$(tok $t)" --decode <"$(tok $t)/decode.jsonl" | jq -c .text >text
        diff <(jq -c .text "$(tok $t)/decode.jsonl") text
    done
}

@test "Gemma 3 conversations" { check_chat gemma3 gemma3-nano; }
@test "Gemma 4 conversations, small" { check_chat gemma4-small e2b-nano; }
@test "Gemma 4 conversations, large" {
    check_chat gemma4-large 31b-nano
    # one template for the three large sizes, one for the two small ones
    for size in 12b-nano 26b-nano 31b-nano; do
        tokenize -q --model "$(golden $size)" --render <"$ROOT/tests/golden/chat/gemma4-large.jsonl" 2>/dev/null | sha256sum
    done | uniq | wc -l | grep -qx 1
    diff <(tokenize -q --model "$(golden e2b-nano)" --render <"$ROOT/tests/golden/chat/gemma4-small.jsonl" 2>/dev/null) \
        <(tokenize -q --model "$(golden e4b-nano)" --render <"$ROOT/tests/golden/chat/gemma4-small.jsonl" 2>/dev/null)
}

@test "the forty questions render to their sums, in all three forms" {
    local variant size
    for variant in gemma3:gemma3-nano gemma4-small:e4b-nano gemma4-large:26b-nano; do
        size=${variant#*:} variant=${variant%:*}
        jq -c '{id, messages: [{role: "user", content: .prompt}]}' "$ROOT/data/questions.jsonl" |
            tokenize -q --model "$(golden "$size")" --render >out
        [ "$(wc -l <out)" -eq 40 ]
        while IFS= read -r line; do
            jq -j .rendered <<<"$line" | sha256sum | cut -d' ' -f1
        done <out >sums
        diff sums <(jq -r "select(.variant == \"$variant\") | .sha256" "$ROOT/tests/golden/chat/questions-rendered.jsonl")
    done
}

@test "a checked template is recognised without a word; another one is named once by its hash" {
    need_program st-synth
    local sum
    cp -r "$(model e2b)" m
    chmod -R u+w m
    echo '{"messages":[{"role":"user","content":"Hi"}]}' >in
    run -0 --separate-stderr tokenize --model m --render <in
    [ "$stderr" = "" ]
    rm m/config.json    # the template alone says which family it is
    run -0 --separate-stderr tokenize --model m --render <in
    [ "$(jq -r .rendered <<<"$output")" = $'<bos><|turn>user\nHi<turn|>\n<|turn>model' ]
    [ "$stderr" = "" ]
    echo "{{ messages }}" >m/chat_template.jinja
    run -65 --separate-stderr tokenize --model m --render <in
    [[ $stderr = *"unknown chat template"* ]]
    cp "$(golden 31b-nano)/config.json" m/
    sum=$(sha256sum <m/chat_template.jinja | cut -d' ' -f1)
    cat in in in >three
    run -0 --separate-stderr tokenize --model m --render <three
    [ "$(grep -c "$sum" <<<"$stderr")" -eq 1 ]
    [[ $(jq -r .rendered <<<"${lines[2]}") = *'<|channel>thought'* ]]
}

@test "a template in tokenizer_config.json, as a string and as a named list" {
    need_program st-synth
    mkdir m
    jq -n --rawfile t "$(model gemma3)/chat_template.jinja" '{model_max_length: "BIG", chat_template: $t}' |
        sed 's/"BIG"/1000000000000000019884624838656/' >m/tokenizer_config.json
    echo '{"messages":[{"role":"user","content":"Hi"}]}' | tokenize --model m --render | grep -q start_of_turn
    jq -n --rawfile t "$(model e2b)/chat_template.jinja" '{chat_template: [{name: "tool_use", template: "x"}, {name: "default", template: $t}]}' >m/tokenizer_config.json
    echo '{"messages":[{"role":"user","content":"Hi"}]}' | tokenize --model m --render | grep -q '<|turn>'
    printf '{"chat_template": "abc' >m/tokenizer_config.json
    run -65 --separate-stderr tokenize --model m --render </dev/null
    [[ $stderr = *tokenizer_config.json*"cut short"* ]]
}

@test "a bad line is answered with its id, the others too, and the status is 65" {
    printf '%s\n' '{"id":"a","text":"the"}' '{"id":"b"}' '{"id":"c","text":3}' '[1]' 'nonsense' '{"id":{"x":1},"text":"a\u0000b"}' '{"id":7,"text":"\ud83d"}' >in
    printf '{"id":"bytes","text":"ab\xff"}\n{"id":"last","text":"the"}' >>in
    run -65 --separate-stderr tokenize --model "$(tok gemma)" <in
    [ "${#lines[@]}" -eq 9 ]
    printf '%s\n' "$output" >out
    [ "$(jq -c '[has("error"), .id]' out | tr '\n' ' ')" = '[false,"a"] [true,"b"] [true,"c"] [true,null] [true,null] [false,{"x":1}] [true,null] [true,"bytes"] [false,"last"] ' ]
    jq -es 'any(.[]; .id == "bytes" and (.error | test("byte 24 .*invalid UTF-8")))' out
    [[ $stderr = "tokenize: 6 of 9 lines failed; the first: "* ]]
}

@test "ids past the table are written and read; ids outside the vocabulary are refused" {
    id=$(echo '{"text":"x<image_soft_token>"}' | tokenize --model "$(tok gemma)" | jq '.token_ids[-1]')
    [ "$(echo "{\"token_ids\":[$id]}" | tokenize --model "$(tok gemma)" --decode | jq -r .text)" = "<image_soft_token>" ]
    for bad in $((id + 1)) -1 1e3 99999999999 '"7"' null; do
        run -65 tokenize --model "$(tok gemma)" --decode <<<"{\"id\":1,\"token_ids\":[2,$bad]}"
        [[ ${lines[0]} = '{"id":1,"error":"token_ids[1]: '* ]]
    done
}

@test "mistakes: no model, both directions, an absent and a broken tokenizer" {
    run -64 tokenize </dev/null
    run -64 tokenize --model . --decode --render </dev/null
    run -66 tokenize --model . </dev/null
    run -66 tokenize --model nowhere </dev/null
    [[ $output = *nowhere/tokenizer.json* ]]
    head -c 1000 "$(tok gemma)/tokenizer.json" >tokenizer.json
    run -65 tokenize --model . </dev/null
    [[ $output = *"tokenizer.json: byte 1000: "* ]]
    echo '{"model": {}}' >tokenizer.json
    run -65 tokenize --model . </dev/null
    mkdir d && mkdir d/tokenizer.json
    run tokenize --model d </dev/null
    [ "$status" -ge 65 ]
}

@test "the real tokenizer: all 300 golden lines" {
    need_gemma3_270m
    tokenize --model "$REAL" <"$ROOT/tests/golden/gemma-3-270m/tokenizer.jsonl" | jq -c .token_ids >ids
    diff <(jq -c .ids "$ROOT/tests/golden/gemma-3-270m/tokenizer.jsonl") ids
}

@test "peer: ids and text as the tokenizers library has them, on random strings" {
    need_peer tokenizers
    local t
    for t in gemma variant; do "$PEER" "$ROOT/tests/peers/tokenizer_check.py" "$(tok $t)" "$BIN/tokenize" --count 2000; done
}

@test "peer: the same with the real tokenizer, 10,000 strings" {
    need_peer tokenizers
    need_gemma3_270m
    "$PEER" "$ROOT/tests/peers/tokenizer_check.py" "$REAL" "$BIN/tokenize"
}

@test "peer: our templates run by jinja2 write what is rendered" {
    need_program st-synth
    need_peer jinja2
    local v
    for v in gemma3:gemma3 e2b:gemma4-small e4b:gemma4-small 12b:gemma4-large 31b:gemma4-large; do
        "$PEER" "$ROOT/tests/peers/chat_check.py" "$(model "${v%:*}")" "$BIN/tokenize" --golden "$ROOT/tests/golden/chat/${v#*:}.jsonl" --plain
    done
}
