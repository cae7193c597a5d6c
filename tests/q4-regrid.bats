#!/usr/bin/env bats
# q4-regrid: exact blocks on every nano checkpoint, the same bytes whatever way, what is off the grid, what was done before.
load lib

names() { st_header "$1" | jq -r 'del(.__metadata__) | keys[]'; }
meta() { st_header "$1" | jq -r ".__metadata__.$2"; }
stream() { st-extract --text-only "$(golden "$1-nano")"; }

poke() {        # FILE TENSOR ELEMENT HEX (two bytes as stored)
    local n at
    n=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    at=$(st_header "$1" | jq --arg t "$2" '.[$t].data_offsets[0]')
    printf "\\x${4:0:2}\\x${4:2:2}" | dd of="$1" bs=1 seek=$((8 + n + at + 2 * $3)) conv=notrunc status=none
}

data_of() {     # FILE TENSOR
    local n
    n=$(od -An -v -tu8 -N8 "$1" | tr -d ' ')
    read -r from to < <(st_header "$1" | jq -r --arg t "$2" '.[$t].data_offsets | @tsv')
    tail -c +$((9 + n + from)) "$1" | head -c $((to - from))
}

@test "f16 scales reproduce every value of every nano checkpoint" {
    for size in e2b e4b 12b 26b 31b gemma3; do
        stream $size | q4-regrid --only linears,ple,embed --scale-dtype f16 --report r > x.st
        tail -n 1 r > sum
        holds '.off_grid == 0 and .groups > 70000 and .exact.groups == .groups and .exact.values == .values and .exact.worst_error == 0' sum
        holds '.exact_as_bf16.groups < .groups and .exact_as_bf16.worst_error > 0 and .exact_as_bf16.worst_error < 0.01' sum
    done
}

@test "bf16 scales are what a bf16 reader sees; nine values of ten are exact" {
    stream e2b | q4-regrid --only linears,ple,embed --report r > x.st
    holds 'select(.summary) | .exact == .exact_as_bf16 and .exact.values > 0.9 * .values and .exact.worst_error < 0.01' <(tail -n 1 r)
    [ "$(meta x.st q4_scale)" = BF16 ]
}

@test "the report has a line per tensor, and sums" {
    stream e2b | q4-regrid --report r > x.st
    [ "$(jq -s '[.[] | select(.summary | not)] | length' r)" = "$(jq -s '.[-1].tensors' r)" ]
    jq -s -e '.[:-1] as $t | .[-1] as $s | ["values", "groups", "off_grid", "zero", "negative"] | all(. as $k | ($t | map(.[$k]) | add) == $s[$k])' r
    jq -s -e '.[-1].zero > 0 and (.[0].tensor | endswith(".weight"))' r
}

@test "names, shapes and classes" {
    stream 26b > in.st
    q4-regrid < in.st > x.st
    st_header x.st > h
    holds '.["model.layers.0.experts.gate_up_proj_q4"] | .dtype == "U8" and .shape == [8, 64, 8, 18]' h
    holds '.["model.layers.0.experts.down_proj_q4"].shape == [8, 256, 1, 18]' h
    holds '.["model.layers.0.router.proj.weight"].dtype == "BF16" and .["model.embed_tokens.weight"].dtype == "BF16"' h
    ! grep -q 'proj.weight"' <(jq -c 'keys[]' h | grep -v router) || false
    stream e2b | q4-regrid --only ple > x.st
    [ "$(names x.st | grep -c _q4)" = 1 ]
    stream e2b | q4-regrid --only embed > x.st
    [ "$(names x.st | grep _q4)" = model.embed_tokens.weight_q4 ]
    stream 12b | q4-regrid --only ple > x.st            # a class that the model lacks is empty
    [ "$(names x.st | grep -c _q4)" = 0 ]
    [ "$(meta x.st q4_scale)" = null ]
    st-extract "$(golden e2b-nano)" | q4-regrid > x.st  # the source's own names; towers stay
    names x.st | grep -q '^model.language_model.layers.0.mlp.up_proj.weight_q4$'
    ! names x.st | grep tower | grep -q _q4 || false
}

@test "what is not selected passes unchanged, in order" {
    stream e2b > in.st
    q4-regrid < in.st > x.st
    diff <(st_header in.st | jq -r 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0])[].key') \
         <(st_header x.st | jq -r 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0])[].key' | sed 's/_q4$//')
    for t in model.embed_tokens.weight model.norm.weight model.layers.3.layer_scalar; do
        cmp <(data_of in.st $t) <(data_of x.st $t)
    done
}

@test "a report that cannot be written is said to be so before the stream" {
    run -74 --separate-stderr bash -c 'st-extract --text-only "$1" | q4-regrid --report no/such/file | wc -c; exit "${PIPESTATUS[1]}"' - "$(golden gemma3-nano)"
    [ "$output" = 0 ]
    [[ $stderr = *"q4-regrid: no/such/file: cannot create"* ]]
}

@test "same bytes from file or pipe, with any threads and any SIMD" {
    stream e4b > in.st
    for kind in bf16 f16; do
        q4-regrid --only linears,ple,embed --scale-dtype $kind -j 1 < in.st > want
        cat in.st | q4-regrid --only embed,ple,linears --scale-dtype $kind -j 5 > got
        same_bytes want got
        q4-regrid --only linears,ple,embed --scale-dtype $kind -j 0 < in.st > got
        same_bytes want got
        for simd in scalar avx2 avx512; do
            run --separate-stderr q4-regrid --only linears,ple,embed --scale-dtype $kind --simd $simd -o got < in.st
            [ "$status" -eq 69 ] || { [ "$status" -eq 0 ] && same_bytes want got; }
        done
    done
}

@test "a value off the grid: 65, its place, and the --leave that works" {
    stream e2b > in.st
    poke in.st model.layers.1.self_attn.k_proj.weight $((3 * 256 + 5 * 32 + 7)) 233e
    run --separate-stderr -65 q4-regrid -o x.st < in.st
    [[ $stderr == *"model.layers.1.self_attn.k_proj.weight: row 3, group 5, value 7: 0.159179688 "*"off the Q4_0 grid"* ]]
    [ ! -e x.st ]
    leave=$(sed -n "s/.*--leave '\(.*\)'$/\1/p" <<< "$stderr")
    q4-regrid --leave "$leave" < in.st > x.st
    [ "$(meta x.st q4_left | jq -c 'sort')" = '["model.layers.1.self_attn.k_proj.weight","model.layers.1.self_attn.q_proj.weight","model.layers.1.self_attn.v_proj.weight"]' ]
    cmp <(data_of in.st model.layers.1.self_attn.k_proj.weight) <(data_of x.st model.layers.1.self_attn.k_proj.weight)
    # a second fault: the expression printed keeps both
    poke in.st model.layers.2.mlp.up_proj.weight 33 c07f
    run --separate-stderr -65 q4-regrid --leave "$leave" < in.st
    [[ $stderr == *"layers.2.mlp.up_proj.weight: row 0, group 1, value 1: nan "* ]]
    q4-regrid --leave "$(sed -n "s/.*--leave '\(.*\)'$/\1/p" <<< "$stderr")" < in.st > x.st
    [ "$(meta x.st q4_left | jq length)" = 5 ]
}

@test "--off-grid keep finds the same set itself, from a file only" {
    stream e2b > in.st
    poke in.st model.layers.1.self_attn.k_proj.weight 999 233e
    q4-regrid --off-grid keep --report r < in.st > x.st
    [ "$(meta x.st q4_left | jq -c 'sort | map(split(".")[4])')" = '["k_proj","q_proj","v_proj"]' ]
    jq -s -e 'map(select(.left == true)) | length == 3 and (map(.off_grid) | add) == 1' r
    q4-regrid --leave 'layers\.1\.self_attn\.[qkv]_proj\.weight' < in.st > y.st
    cmp <(data_of x.st model.layers.1.mlp.up_proj.weight_q4) <(data_of y.st model.layers.1.mlp.up_proj.weight_q4)
    cmp <(data_of x.st model.layers.1.self_attn.q_proj.weight) <(data_of y.st model.layers.1.self_attn.q_proj.weight)
    run -64 q4-regrid --off-grid keep < <(cat in.st)
}

@test "what was kept in 16 bits stays named when st-extract renames it" {
    st-extract "$(golden e2b-nano)" > in.st
    poke in.st model.language_model.layers.1.mlp.up_proj.weight 33 c07f
    q4-regrid --off-grid keep < in.st > x.st
    st-extract --text-only x.st > y.st
    [ "$(meta y.st q4_left | jq -c sort)" = '["model.layers.1.mlp.gate_proj.weight","model.layers.1.mlp.up_proj.weight"]' ]
    [ "$(meta x.st q4_left | jq -c length)" = 2 ]
    need_program ct-pack ct-check
    ct-pack -o build < y.st
    ct-check build
}

@test "K and V that nothing reads pass, on the grid or not" {
    stream e2b > in.st
    "$TOOLS/st-mutate" in.st copy model.layers.0.self_attn.k_proj.weight model.layers.6.self_attn.k_proj.weight
    poke in.st model.layers.6.self_attn.k_proj.weight 3 c07f
    q4-regrid < in.st > x.st
    names x.st | grep -q '^model.layers.6.self_attn.k_proj.weight$'
    names x.st | grep -q '^model.layers.6.self_attn.q_proj.weight_q4$'
    ct-pack -o build < x.st
    ct-check build
}

@test "an expert bank is kept whole with its sibling" {
    stream 26b > in.st
    poke in.st model.layers.2.experts.down_proj $((3 * 256 * 32 + 17 * 32 + 4)) 807f
    run --separate-stderr -65 q4-regrid -o x.st < in.st
    [[ $stderr == *"experts.down_proj: expert 3, row 17, group 0, value 4: inf "* ]]
    q4-regrid --leave "$(sed -n "s/.*--leave '\(.*\)'$/\1/p" <<< "$stderr")" < in.st > x.st
    [ "$(meta x.st q4_left | jq -c sort)" = '["model.layers.2.experts.down_proj","model.layers.2.experts.gate_up_proj"]' ]
}

@test "a step beyond f16 names bf16" {
    stream gemma3 > in.st
    for i in $(seq 0 31); do poke in.st model.layers.0.mlp.up_proj.weight "$i" 8049; done      # 2^20
    run --separate-stderr -65 q4-regrid --scale-dtype f16 < in.st
    [[ $stderr == *"row 0, group 0, value 0"*"beyond the range of f16"*"--scale-dtype bf16"* ]]
    q4-regrid < in.st > x.st
}

@test "one class after the other gives the same blocks; one stream has one scale type" {
    stream e2b > in.st
    q4-regrid --only linears,embed < in.st > want
    q4-regrid < in.st > a
    q4-regrid --only embed < a > b
    for t in model.embed_tokens.weight_q4 model.layers.4.mlp.down_proj.weight_q4; do cmp <(data_of want $t) <(data_of b $t); done
    [ "$(meta b provenance | jq -c '[.[-2:][].args[0]]')" = '["--only=linears","--only=embed"]' ]
    run --separate-stderr -65 q4-regrid --only embed --scale-dtype f16 < a
    [[ $stderr == *"q4_scale"* ]]
    q4-regrid --only embed --scale-dtype bf16 < a > d                         # the same type, said again
    same_bytes b d
    q4-regrid --scale-dtype f16 < in.st | q4-regrid --only embed > c          # the stream's type holds
    [ "$(meta c q4_scale)" = F16 ]
}

@test "a plan stays a plan" {
    st-extract --text-only --plan "$(golden e2b-nano)" | q4-regrid --only linears,ple,embed > p.st
    stream e2b | q4-regrid --only linears,ple,embed > x.st
    [ "$(meta p.st plan)" = 1 ]
    diff <(st_header p.st | jq -S 'del(.__metadata__)') <(st_header x.st | jq -S 'del(.__metadata__)')
    st-extract --text-only --plan "$(golden e2b-nano)" | q4-regrid --off-grid keep > q.st
}

@test "mistakes in options are 64" {
    for o in --only= --only=all --only=linears, --leave='(' --off-grid=drop --scale-dtype=f32 --simd=neon --report=-; do
        run -64 q4-regrid "$o" < /dev/null
    done
}

@test "rows that no group fits, and values that are no bf16, are refused" {
    mk() { # DTYPE SHAPE BYTES
        local h='{"model.layers.0.mlp.up_proj.weight":{"dtype":"'$1'","shape":['$2'],"data_offsets":[0,'$3']}}'
        printf '%b' "$(printf '\\x%02x' $((${#h} % 256)) $((${#h} / 256)))\\0\\0\\0\\0\\0\\0$h"
        head -c "$3" /dev/zero
    }
    run --separate-stderr -65 q4-regrid < <(mk BF16 2,48 192)
    [[ $stderr == *"no multiple of 32"* ]]
    run --separate-stderr -65 q4-regrid < <(mk F32 2,32 256)
    [[ $stderr == *"F32, BF16 expected"* ]]
    mk BF16 2,32 128 | q4-regrid > x.st
    mk F8_E4M3 2,32 64 | q4-regrid > x.st
    names x.st | grep -q 'up_proj.weight$'
}
