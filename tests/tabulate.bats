#!/usr/bin/env bats
# tabulate: the published figures from the published timings, layout, missing data, refusals.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    need_program tabulate
}

# A published run as a result file.
convert() {     # MODEL-BUILD
    jq '{schema: "q4sweep-result/1", model, build, target: "sagemaker",
         time: {started: "\(.date)T00:00:00Z", finished: "\(.date)T00:00:00Z"}, tool: {version: "published", commit: null},
         machine: {gpu, instance, region, usd_per_hour}, engine: {name: "vllm", version: (.engine | ltrimstr("vllm "))},
         weights: {bytes_on_disk: null, bytes_by_class: null, manifest_sha256: null, provenance: null},
         settings: {short_tokens: 16, long_tokens: 512, repeats: 5, parallel_tokens: 256, batches: 2, concurrency: [1, 4, 16],
                    question_tokens: 64, temperature: 0, ignore_eos: true, prompt: "-", reduced: false},
         short: [.short[] | {completion_tokens: .tokens, e2e_ms: (.wall_s * 1000)}],
         long: [.long[] | {completion_tokens: .tokens, e2e_ms: (.wall_s * 1000)}],
         parallel: [.parallel[] | {concurrency, batch, tokens, wall_ms: (.wall_s * 1000), requests}],
         questions}' "$ROOT/tests/golden/published/$1.json" >"$1.json"
}

# A small result: decode 100 tok/s.
result() {      # FILE [JQ-FILTER]
    jq -n '{schema: "q4sweep-result/1", model: "m", build: "text", target: "local",
            time: {started: "2026-01-01T00:00:00Z", finished: "2026-01-01T00:00:00Z"}, tool: {version: "1", commit: null},
            machine: {cpu: "a cpu", cpus: 2}, engine: {name: "gpu-serve", version: "1"},
            weights: {bytes_on_disk: 1234567, bytes_by_class: {linear: 1000, embed: 234}, manifest_sha256: null, provenance: null},
            settings: {short_tokens: 10, long_tokens: 110, repeats: 3, parallel_tokens: 20, batches: 2, concurrency: [1, 4],
                       question_tokens: 8, temperature: 0, ignore_eos: true, prompt: "p", reduced: false},
            short: [{completion_tokens: 10, e2e_ms: 150}, {completion_tokens: 10, e2e_ms: 100}, {completion_tokens: 10, e2e_ms: 90}],
            long: [{completion_tokens: 110, e2e_ms: 1100}, {completion_tokens: 110, e2e_ms: 900}, {completion_tokens: 110, e2e_ms: 1200}],
            parallel: [{concurrency: 1, batch: 0, tokens: 20, wall_ms: 100, requests: []},
                       {concurrency: 1, batch: 1, tokens: 20, wall_ms: 200, requests: []},
                       {concurrency: 4, batch: 0, tokens: 80, wall_ms: 300, requests: []}],
            questions: [{id: "a", right: true, answer: "x"}, {id: "b", right: false, answer: " y\n"}]}' | jq "${2:-.}" >"$1"
}

csv_cell() {    # FILE ROW COLUMN-NAME; no quoted cell in these files before the last column
    awk -F , -v row="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) column = i } $1 "-" $2 == row { print $column }' "$1"
}

@test "published: decode, ratios, rates at once, right answers and identity are what the study printed" {
    local f
    for f in "$ROOT"/tests/golden/published/*-*.json; do convert "$(basename "$f" .json)"; done
    tabulate --format csv ./*.json >all.csv
    [ "$(wc -l <all.csv)" = 24 ]
    # Every cell marked equal, from the tables that tabulate has: name of the cell, our column, digits.
    jq -r '.cells[] | select(.status == "equal") |
        if (.formula == "decode" and (.table == "five sizes" or .table == "8-bit") and (.cell | test("/") | not)) or
           (.table == "twin" and (.cell | test(" decode "))) then [(.cell | split(" ")[0:2] | join("-")), "decode_tok_s", .printed, 1]
        elif .table == "decode e2b, linears x embeddings" and .formula == "decode" then ["e2b-" + .cell, "decode_tok_s", .printed, 1]
        elif (.cell | test("/text$")) then [(.cell | rtrimstr("/text") | gsub(" "; "-")), "ratio_to_text", .printed, 2]
        elif .table == "right of 40" then [(.cell | gsub(" "; "-")), "right", .printed, 0]
        elif (.table | startswith("parallel")) then (.cell | split(" ")) as $w | ["\($w[0])-\($w[1])", "tok_s_at_\($w[3])", .printed, 2]
        elif (.cell | test(" answers equal to text of 40$")) then [(.cell | split(" ")[0:2] | join("-")), "identical_to_text", .printed, 0]
        else empty end | @tsv' "$ROOT/tests/golden/published/expected.json" >cells.tsv
    [ "$(wc -l <cells.tsv)" -ge 90 ]
    local row column printed digits found
    while IFS=$'\t' read -r row column printed digits; do
        found=$(csv_cell all.csv "$row" "$column")
        [ -n "$found" ] || { echo "$row $column: nothing, printed $printed"; return 1; }
        [ "$(printf "%.${digits}f" "$found")" = "$(printf "%.${digits}f" "$printed")" ] || { echo "$row $column: $found, printed $printed"; return 1; }
    done <cells.tsv
    # Not stored, so not known.
    [ -z "$(csv_cell all.csv 26b-a4b-emb4 identical_to_text)" ]
}

@test "published: every identity between two builds" {
    convert e2b-text; convert e2b-fp8; convert e2b-int8; convert e2b-emb4; convert e2b-int8emb4; convert e2b-fp8emb4
    run -0 tabulate e2b-{text,fp8,int8,emb4,int8emb4,fp8emb4}.json
    [[ $output == *"| fp8 | 37 of 40 | - | 35 of 40 | 37 of 40 | 36 of 40 | n/a |"* ]]
    [[ $output == *"| int8emb4 | 37 of 40 | 36 of 40 | 36 of 40 | 37 of 40 | - | n/a |"* ]]
    [[ $output == *"| emb4 | 141.7 | 1.38 | 107.60 | 386.55 | 1260.40 | n/a | 36 of 40 | 40 of 40 |"* ]]
}

@test "Markdown of two builds, byte for byte" {
    result text.json
    result emb4.json '.build = "emb4" | .long[].e2e_ms -= 400 | .weights.bytes_by_class = {linear: 1000, embed: 66, head: 66} | .questions[0].answer = "z"'
    tabulate text.json emb4.json >table.md
    diff - table.md <<'M'
### m

| build | decode tok/s | to text | tok/s, 1 at once | tok/s, 4 at once | bytes on disk | right answers | answers as text |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| text | 100.0 | 1.00 | 150.00 | 266.70 | 1,234,567 | 1 of 2 | 2 of 2 |
| emb4 | 166.7 | 1.67 | 150.00 | 266.70 | 1,234,567 | 1 of 2 | 1 of 2 |

Bytes by class:

| build | linears | embedding | lm_head | all tensors |
| --- | ---: | ---: | ---: | ---: |
| text | 1,000 | 234 | 0 | 1,234 |
| emb4 | 1,000 | 66 | 66 | 1,132 |

Identical answers:

| build | text | emb4 |
| --- | ---: | ---: |
| text | - | 1 of 2 |
| emb4 | 1 of 2 | - |

decode = (long - short) / (median wall of the long replies - median wall of the short ones). At once = median over the batches of tokens / wall. n/a = not in the files, or not comparable.

Measured (text, emb4): gpu-serve 1 (local) on a cpu, 2 CPUs; replies of 10 and 110 tokens, 3 each; 20 tokens a reply at once, 2 batches; answers of at most 8 tokens.
M
    tabulate text.json emb4.json | cmp - table.md
}

@test "CSV of the same" {
    result text.json '.model = "a,\"b\"" | .build = "=1+1"'
    tabulate --format csv text.json >table.csv
    diff - table.csv <<'C'
model,build,target,decode_tok_s,ratio_to_text,tok_s_at_1,tok_s_at_4,bytes_on_disk,tensor_bytes,bytes_linear,bytes_experts,bytes_ple,bytes_embed,bytes_head,bytes_router,bytes_plain,bytes_tower,bytes_unknown,right,questions,identical_to_text,setting
"a,""b""",'=1+1,local,100.000,,150.00,266.70,1234567,1234,1000,0,0,234,0,0,0,0,0,1,2,,"gpu-serve 1 (local) on a cpu, 2 CPUs; replies of 10 and 110 tokens, 3 each; 20 tokens a reply at once, 2 batches; answers of at most 8 tokens"
C
}

@test "what is missing is shown as missing" {
    result text.json '.short = [] | .parallel = [] | .weights.bytes_on_disk = null | .weights.bytes_by_class = null | .questions = []'
    result emb4.json '.build = "emb4" | .questions[0].right = null | .questions[1].answer = null'
    run -0 tabulate text.json emb4.json
    [[ $output == *"| text | n/a | n/a | n/a | n/a | n/a | n/a | n/a |"*"| text | n/a | n/a | n/a |"* ]]
    [[ $output == *"| emb4 | 100.0 | n/a | 150.00 | 266.70 | 1,234,567 | n/a | n/a |"* ]]
    run -0 tabulate --format csv text.json
    [[ ${lines[1]} == m,text,local,,,,,,,,,,,,,,,0,,* ]]
    # A long reply that took no longer than a short one has no decode rate.
    result text.json '.long[].e2e_ms = 50'
    run -0 tabulate text.json
    [[ $output == *"| text | n/a | n/a |"* ]]
}

@test "rows that were measured in different ways are not compared" {
    result text.json
    result emb4.json '.build = "emb4" | .machine.cpu = "another cpu"'
    run -0 tabulate text.json emb4.json
    [[ $output == *"| emb4 | 100.0 | n/a |"*"on a cpu"*"on another cpu"*"different ways are not compared"* ]]
}

@test "models are kept together in the order of their first file; names cannot break a table" {
    result 1.json '.model = "zz|z"'
    result 2.json '.model = "aa"'
    result 3.json '.model = "zz|z" | .build = "e<b>4\n"'
    run -0 tabulate 1.json 2.json 3.json
    [[ $output == *'### zz\|z'*'| text |'*'| e\<b\>4  |'*'### aa'* ]]
    # An option given with the files in another order changes the order of rows, nothing else.
    run -0 tabulate 3.json 1.json
    [[ $output == *'| e\<b\>4  | 100.0 | 1.00 |'*'| text | 100.0 | 1.00 |'* ]]
}

@test "a file that is no result is refused with file and field" {
    local filter field
    while IFS='@' read -r filter field; do
        result bad.json "$filter"
        run -65 --separate-stderr tabulate bad.json
        [[ $stderr == "tabulate: bad.json: $field: "* ]] || { echo "$filter: $stderr, expected field $field"; return 1; }
        [ -z "$output" ]
        [ "${#stderr_lines[@]}" -eq 1 ]
    done <<'F'
.schema = "published-run/1"@schema
del(.schema)@schema
.model = 3@model
.build = ""@build
.settings.short_tokens = 1.5@settings.short_tokens
.settings.long_tokens = 10@settings.long_tokens
del(.settings)@settings
.short = {}@short
.long[1].e2e_ms = "900"@long[1].e2e_ms
.long[1].e2e_ms = -1@long[1].e2e_ms
.long[2].completion_tokens = 109@long[2].completion_tokens
.short[0] = 7@short[0].completion_tokens
.parallel[2].wall_ms = 0@parallel[2].wall_ms
.parallel[0].tokens = null@parallel[0].tokens
.weights = []@weights
.weights.bytes_on_disk = -1@weights.bytes_on_disk
.weights.bytes_by_class.mystery = 1@weights.bytes_by_class
.weights.bytes_by_class.linear = 0.5@weights.bytes_by_class.linear
.questions[1].id = "a"@questions[1].id
.questions[1].right = "yes"@questions[1].right
.questions[1].answer = 4@questions[1].answer
.questions[1].answer_sha256 = "abc"@questions[1].answer_sha256
.machine = null@machine
.engine = 0@engine
F
    result ok.json
    head -c 700 ok.json >cut.json
    run -65 tabulate cut.json
    : >empty.json
    run -65 tabulate empty.json
    echo '[]' >array.json
    run -65 tabulate array.json
    run -66 tabulate nowhere.json
}

@test "a build given twice, no file, an unknown format" {
    result a.json
    cp a.json b.json
    run -65 --separate-stderr tabulate a.json b.json
    [[ $stderr == *"b.json: m text on local is in a.json already"* ]]
    run -64 tabulate
    run -64 --separate-stderr tabulate --format html a.json
    [[ $stderr == *"md|csv"* || $stderr == *"md, csv"* || $stderr == *"md or csv"* ]]
}
