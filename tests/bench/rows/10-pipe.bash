# shellcheck shell=bash disable=SC2154 # what tests/bench/run and lib.bash set
# The repack through pipes, against cat of the same bytes.  (sets `bytes`: model)
cat_what='cat model/*.safetensors | cat >/dev/null'
all=linears,ple,embed
# A guest gives memory back to its host that it has not used for seconds, and what it costs to have it again can be more than the recipe: each timed run finds what it will fill touched just before.
fresh="rm -rf $work/out*; head -c 2200000000 /dev/zero >$work/pages; rm $work/pages"

if wanted cat || wanted extract || wanted pipe || wanted recipe || wanted fp8 || wanted int8 || wanted against; then
    model
    compare cat "cat F > /dev/null (for scale)" "cat \\| cat" "" "" "$bytes" 'cat model/*.safetensors >/dev/null' "$bytes" "$cat_what"
    compare extract "st-extract > /dev/null (for scale)" "cat \\| cat" "" "" "$bytes" 'st-extract --text-only model | cat >/dev/null' "$bytes" "$cat_what"
    compare pipe "st-extract \\| q4-regrid to /dev/null" "cat \\| cat" 3.5 5 "$bytes" "st-extract --text-only model | q4-regrid --only $all >/dev/null" "$bytes" "$cat_what"
    before recipe "$fresh"
    compare recipe "the recipe emb4 to tmpfs, manifest included" "cat \\| cat" 2.2 3 "$bytes" "$root/pipelines/emb4 model out" "$bytes" "$cat_what"
    for w8 in fp8 int8; do
        before $w8 "$fresh"
        compare $w8 "the recipe $w8 to tmpfs, manifest included" "cat \\| cat" 2 3 "$bytes" "$root/pipelines/$w8 model out" "$bytes" "$cat_what"
    done
    if wanted against; then
        rm -rf "$work"/out*
        "$root/pipelines/emb4" model out || fail "cannot make the build"
        compare against "ct-check --against the source (build of emb4)" "cat \\| cat" 2 3 "$bytes" 'ct-check -q --against model out' "$bytes" "$cat_what"
    fi
    rm -rf "$work"/out*
fi
