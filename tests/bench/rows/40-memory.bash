# shellcheck shell=bash disable=SC2154 # what tests/bench/run and lib.bash set
# Peak resident memory of every filter: the recipes with each stage under `timed`, at nano scale and with E2B streamed at its true size.
# The builds go to $work: 3 GB for emb4 of E2B, 6 GB for fp8.

filters() {     # SCALE LABEL
    local scale=$1 label=$2 cost=$work/cost/memory-$1 recipe program stages
    rm -rf "$cost" && mkdir "$cost"
    for recipe in emb4 fp8; do
        stages="timed $cost/st-synth st-synth --size e2b --scale $scale -o - | timed $cost/st-extract st-extract --text-only -"
        if [ $recipe = emb4 ]; then
            stages+=" | timed $cost/q4-regrid q4-regrid --only linears,ple,embed --report $work/report | timed $cost/emb-untie emb-untie | timed $cost/ct-pack-int4 ct-pack -o $work/out"
        else
            stages+=" | timed $cost/ct-pack-$recipe ct-pack --linears $recipe -o $work/out"
        fi
        rm -rf "$work/out"
        bash -o pipefail -c "$stages" || fail "memory: this failed: $stages"
        stages="st-synth --size e2b --scale $scale -o - | timed $cost/ct-check-$recipe ct-check -q --against - $work/out >/dev/null"
        bash -o pipefail -c "$stages" || fail "memory: this failed: $stages"
    done
    rm -rf "$work/out"
    for program in st-synth st-extract q4-regrid emb-untie ct-pack-int4 ct-pack-fp8 ct-check-emb4 ct-check-fp8; do
        peak "memory-$scale-$program" "peak resident memory, $program, $label" 64 16 "$cost/$program"
    done
}

if wanted memory-nano; then filters nano "E2B nano"; fi
if wanted memory-full; then filters full "E2B at true size"; fi
