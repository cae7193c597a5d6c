# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # jq's variables; what tests/bench/run sets
# What the rows of `make bench` are made of.  A file tests/bench/rows/NN-name.bash is sourced by tests/bench/run and calls
#
#     compare ID "WHAT" "PEER" GATE AIM OUR_BYTES OUR_COMMAND PEER_BYTES PEER_COMMAND
#         both commands run in turn, $runs times; the row is the ratio of the medians' bytes per second
#     compare_rate ID "WHAT" "PEER" GATE AIM OUR_BYTES OUR_COMMAND PEER_RATE
#         the same against a peer that measures itself: PEER_RATE in GB/s
#     seconds ID "WHAT" GATE AIM COMMAND          the median wall time; GATE and AIM in seconds
#     peak ID "WHAT" GATE AIM COST_FILE           the largest resident set in a file that `timed` wrote; GATE and AIM in MiB
#     no_peer ID "WHAT" "WHY"                     the peer of this row is not here
#
# Commands are bash, run in $work with bin/ and the test tools in PATH; `before ID COMMAND` runs one before every timed run, untimed.  GATE and AIM are "" where there is none.
# Every row is one JSON line in $results and one line of the table.

load() { cut -d ' ' -f 1 /proc/loadavg; }

declare -A prepare=()
before() { prepare[$1]=$2; }

# The cost of one run of a command, appended to FILE.
once() {        # ID FILE COMMAND
    [ -z "${prepare[$1]:-}" ] || bash -c "${prepare[$1]}" || fail "$1: cannot prepare"
    timed "$2" bash -o pipefail -c "$3" >/dev/null || fail "$1: this failed: $3"
}

median() { jq -s "map($1) | sort | .[length / 2 | floor]" "$2"; }       # JQ FILE

record() {      # JQ_ARGUMENTS… PROGRAM
    jq -nc "$@" | tee -a "$results" | jq -r "$as_line" >&2
}
as_line='"\(.id): \(if .ratio then "\(.ratio)x of \(.peer) (\(.value) against \(.peer_value) GB/s, load \(.load))" elif .value then "\(.value) \(.unit) (load \(.load))" else .note end)"'

verdict='def verdict($v; $sign): if $aim != null and ($v - $aim) * $sign >= 0 then "aim" elif $gate == null then "-" elif ($v - $gate) * $sign >= 0 then "gate" else "below" end;
    def two: . * 100 | round / 100; def three: . * 1000 | round / 1000;'

compare() {
    local id=$1 ours=$work/cost/$1.ours peer=$work/cost/$1.peer before_load i
    wanted "$id" || return 0
    before_load=$(load)
    for ((i = 0; i < runs; i++)); do
        once "$id" "$peer" "$9"
        once "$id" "$ours" "$7"
    done
    record --arg id "$id" --arg what "$2" --arg peer "$3" --argjson gate "${4:-null}" --argjson aim "${5:-null}" --arg load "$before_load-$(load)" --argjson runs "$runs" \
        --argjson n "$6" --argjson t "$(median .wall "$ours")" --argjson c "$(median .cpu "$ours")" --argjson pn "$8" --argjson pt "$(median .wall "$peer")" \
        --argjson pc "$(median .cpu "$peer")" "$verdict"'
        ($n / $t) as $v | ($pn / $pt) as $p | {id: $id, what: $what, value: ($v / 1e9 | three), unit: "GB/s", peer: $peer, peer_value: ($p / 1e9 | three), ratio: ($v / $p | two),
        cpu_ratio: (($n / $c) / ($pn / $pc) | two), gate: $gate, aim: $aim, verdict: verdict($v / $p; 1), runs: $runs, load: $load}'
}

compare_rate() {
    local id=$1 ours=$work/cost/$1.ours before_load i
    wanted "$id" || return 0
    before_load=$(load)
    for ((i = 0; i < runs; i++)); do once "$id" "$ours" "$7"; done
    record --arg id "$id" --arg what "$2" --arg peer "$3" --argjson gate "${4:-null}" --argjson aim "${5:-null}" --arg load "$before_load-$(load)" --argjson runs "$runs" \
        --argjson n "$6" --argjson t "$(median .wall "$ours")" --argjson p "$8" "$verdict"'
        ($n / $t / 1e9) as $v | {id: $id, what: $what, value: ($v | three), unit: "GB/s", peer: $peer, peer_value: $p, ratio: ($v / $p | two),
        gate: $gate, aim: $aim, verdict: verdict($v / $p; 1), runs: $runs, load: $load}'
}

seconds() {
    local id=$1 ours=$work/cost/$1.ours before_load i
    wanted "$id" || return 0
    before_load=$(load)
    for ((i = 0; i < runs; i++)); do once "$id" "$ours" "$5"; done
    record --arg id "$id" --arg what "$2" --argjson gate "${3:-null}" --argjson aim "${4:-null}" --arg load "$before_load-$(load)" --argjson runs "$runs" \
        --argjson t "$(median .wall "$ours")" --argjson c "$(median .cpu "$ours")" "$verdict"'
        {id: $id, what: $what, value: ($t | three), unit: "s", cpu: ($c | three), gate: $gate, aim: $aim, verdict: verdict($t; -1), runs: $runs, load: $load}'
}

peak() {
    record --arg id "$1" --arg what "$2" --argjson gate "${3:-null}" --argjson aim "${4:-null}" --arg load "$(load)" --argjson kib "$(jq -s 'map(.rss_kib) | max' "$5")" "$verdict"'
        ($kib / 1024 | . * 10 | round / 10) as $v | {id: $id, what: $what, value: $v, unit: "MiB", gate: $gate, aim: $aim, verdict: verdict($v; -1), load: $load}'
}

no_peer() {
    record --arg id "$1" --arg what "$2" --arg why "$3" '{id: $id, what: $what, verdict: "-", note: "not measured: \($why)"}'
}

wanted() { [[ $1 =~ $only ]]; }
fail() { echo "bench: $*" >&2; exit 1; }

# E2B's config with parts of text_config replaced by jq's CHANGE.  (jq writes 30.0 as 30, a type that transformers refuses.)
like_e2b() {    # CHANGE
    st-synth --size e2b --scale full --plan -o - | tail -c +9 | jq ".__metadata__.config | fromjson | .text_config |= ($1)" | sed 's/\("final_logit_softcapping": [0-9]*\),/\1.0,/'
}

# The model that the speed rows share: E2B's widths, 10 layers, a vocabulary of 65,536; 1.6 GB of bf16 in two shards, made once a run.  It lies where checkpoints do, in files on
# the disk of build/, and is read from their page cache, whose pages may be larger than those of memory's file system.
model() {
    [ ! -e "$work/model" ] || return 0
    like_e2b '.num_hidden_layers = 10 | .layer_types |= .[:10] | .num_kv_shared_layers = 5 | .vocab_size = 65536 | .vocab_size_per_layer_input = 65536' >"$work/config.json"
    rm -rf "$root/build/bench/model"
    st-synth --config "$work/config.json" --shard-size 1000000000 -o "$root/build/bench/model" || fail "cannot make the model, 1.6 GB, in build/bench"
    ln -s "$root/build/bench/model" "$work/model"
    bytes=$(cat "$work"/model/*.safetensors | wc -c)   # for the rows
}
