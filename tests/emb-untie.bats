#!/usr/bin/env bats
# emb-untie: the four cases, file and pipe, any form of the table, both levels of the tie flag.
load lib

names() { st_header "$1" | jq -r 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0])[].key'; }
config() { st_header "$1" | jq -r '.__metadata__.config'; }
stream() { st-extract --text-only "$(golden "$1-nano")"; }

place() {       # FILE TENSOR BYTE: its offset in the file
    local n
    n=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    echo $((8 + n + $(st_header "$1" | jq --arg t "$2" '.[$t].data_offsets[0]') + $3))
}

poke() { printf '\xa5' | dd of="$1" bs=1 seek="$(place "$1" "$2" "$3")" conv=notrunc status=none; }     # FILE TENSOR BYTE

data_of() {     # FILE TENSOR
    tail -c +$((1 + $(place "$1" "$2" 0))) "$1" | head -c "$(st_header "$1" | jq --arg t "$2" '.[$t].data_offsets | .[1] - .[0]')"
}

with_config() { # FILE JQ: the stream with its config changed
    local n h
    n=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    h=$(st_header "$1" | jq -c ".__metadata__.config |= (fromjson | $2 | tojson)")
    while [ $(($(printf %s "$h" | wc -c) % 8)) -ne 0 ]; do h+=' '; done
    n=$(printf %s "$h" | wc -c)
    printf "$(printf '\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)))\\0\\0\\0\\0\\0"
    printf %s "$h"
    tail -c +$((9 + $(od -An -v -tu8 -N8 "$1" | tr -d ' '))) "$1"
}

both_ways() {   # OPTION… < IN, result in out; file and pipe must agree
    emb-untie "${@:2}" < "$1" > out 2> err
    cat "$1" | emb-untie "${@:2}" > out.pipe 2> err.pipe
    same_bytes out out.pipe
    diff err err.pipe
}

@test "no twin: a copy behind the table, untied" {
    stream e2b | q4-regrid --only linears,ple,embed > in
    both_ways in
    [ "$(names out | head -n 2 | paste -sd' ')" = "model.embed_tokens.weight_q4 lm_head.weight_q4" ]
    diff <(names in) <(names out | grep -v '^lm_head')
    cmp <(data_of out model.embed_tokens.weight_q4) <(data_of out lm_head.weight_q4)
    cmp <(data_of in model.layers.6.mlp.down_proj.weight_q4) <(data_of out model.layers.6.mlp.down_proj.weight_q4)
    holds '.tie_word_embeddings == false' <(config out)
    [ "$(st_header out | jq -r '.__metadata__.provenance' | jq -r '.[-1].tool')" = emb-untie ]
}

@test "no twin, 16 bits; the wrapper's flag is set at both levels" {
    st-extract "$(golden e4b-nano)" > in
    both_ways in
    [ "$(names out | sed -n 2p)" = lm_head.weight ]
    holds '.tie_word_embeddings == false and .text_config.tie_word_embeddings == false' <(config out)
}

@test "a twin without --drop-twin stays, untied; with it, it goes, tied, and the bytes are told" {
    stream e2b | emb-untie > in
    both_ways in
    diff <(names in) <(names out)
    holds '.tie_word_embeddings == false' <(config out)
    both_ways in --drop-twin
    grep -q 'dropped lm_head.weight, a copy of model.embed_tokens.weight: 524288 bytes freed' err
    diff <(names in | grep -v lm_head) <(names out)
    cmp <(data_of in model.norm.weight) <(data_of out model.norm.weight)
    holds '.tie_word_embeddings == true' <(config out)
}

@test "no twin with --drop-twin: nothing to do, tied" {
    stream gemma3 > in
    both_ways in --drop-twin
    diff <(names in) <(names out)
    holds '.tie_word_embeddings == true' <(config out)
}

@test "twins that differ anywhere stay, untied, and the row is told" {
    stream e2b | emb-untie > same
    for byte in 0 1 300000 524287; do
        cp same in
        poke in lm_head.weight $byte
        both_ways in --drop-twin
        grep -q "lm_head.weight differs from model.embed_tokens.weight, first at row $((byte / 512)): both are kept" err
        diff <(names in) <(names out)
        cmp <(data_of in lm_head.weight) <(data_of out lm_head.weight)
        cmp <(data_of in model.layers.0.mlp.up_proj.weight) <(data_of out model.layers.0.mlp.up_proj.weight)
        holds '.tie_word_embeddings == false' <(config out)
    done
}

@test "twins in blocks are compared too; twins stored differently are kept" {
    stream e2b | q4-regrid --only embed | emb-untie > in
    both_ways in --drop-twin
    grep -q '147456 bytes freed' err
    cp in bad
    poke bad lm_head.weight_q4 100000
    both_ways bad --drop-twin
    grep -q 'row 694' err
    stream e2b | emb-untie | q4-regrid --only embed --leave '^lm_head' > mixed
    both_ways mixed --drop-twin
    grep -q 'not stored as' err
    holds '.tie_word_embeddings == false' <(config out)
}

@test "a plan is planned" {
    st-extract --text-only --plan "$(golden e2b-nano)" | q4-regrid --only embed | emb-untie > p
    stream e2b | q4-regrid --only embed | emb-untie > x
    diff <(st_header p | jq -S 'del(.__metadata__)') <(st_header x | jq -S 'del(.__metadata__)')
    emb-untie --drop-twin < p > d
    ! names d | grep -q lm_head || false
}

@test "an untied config without a head is refused, and so is a head before the table" {
    stream e2b > in
    with_config in '.tie_word_embeddings = false' > untied
    run --separate-stderr -65 emb-untie < untied
    [[ $stderr == *"the head is missing"* ]]
    emb-untie < in > pair
    st_header pair | jq -c '.x = .["lm_head.weight"] | .["lm_head.weight"] = .["model.embed_tokens.weight"] | .["model.embed_tokens.weight"] = .x | del(.x)' > h
    while [ $(($(wc -c < h) % 8)) -ne 0 ]; do printf ' ' >> h; done
    n=$(wc -c < h)
    { printf "$(printf '\\x%02x' $((n & 255)) $((n >> 8 & 255)) $((n >> 16 & 255)))\\0\\0\\0\\0\\0"; cat h
      tail -c +$((9 + $(od -An -v -tu8 -N8 pair | tr -d ' '))) pair; } > swapped
    run --separate-stderr -65 emb-untie < swapped
    [[ $stderr == *"comes before"* ]]
}

@test "the spool leaves nothing behind" {
    stream e2b > in
    mkdir tmp
    cat in | TMPDIR=$PWD/tmp emb-untie > out
    only_holds tmp
    run --separate-stderr -74 env TMPDIR=/nonexistent/x emb-untie < <(cat in)
}
