#!/usr/bin/env bats
# pipelines/card and pipelines/publish: what the card says, what is sent where, what is refused.  A stand-in for the Hub's client records what it is given.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" XDG_STATE_HOME HF_TOKEN
    need_program st-extract q4-regrid emb-untie ct-pack ct-check tabulate
}

teardown() { [ -z "${LOCAL:-}" ] || { kill "$LOCAL" && wait "$LOCAL"; } 2>/dev/null || true; }

# A build of a nano E2B with a recorded pass, as if its source had come from the Hub.
build() {       # RECIPE
    cp -r "$(cached "publish-$1" make_build "$1")" made
    mv made/* .
}

make_build() {  # RECIPE DIR
    mkdir -p "$2"
    "$ROOT/pipelines/$1" "$(model e2b)" "$2/build" && ct-check "$2/build" --against "$(model e2b)" >/dev/null
}

# Another provenance, and the manifest and the pass that go with it.
from_hub() {
    jq '.[0].args |= ["hf://google/gemma-4-E2B-it-qat-q4_0-unquantized@0123456789abcdef0123456789abcdef01234567"] + .' build/provenance.json >p
    mv p build/provenance.json
    (cd build && sha256sum $(awk '{print $2}' MANIFEST.sha256) >m && mv m MANIFEST.sha256)
    jq -c --arg m "$(sha256sum <build/MANIFEST.sha256 | cut -d ' ' -f 1)" '.manifest = $m' build.check.jsonl >c
    mv c build.check.jsonl
}

hub() {         # a stand-in for hf on PATH
    mkdir -p path
    cat >path/hf <<'F'
#!/bin/bash
printf '%s\n' "$@" >hf.args
cp -rL "$3" sent
[ ! -e hf.fails ] || { echo "401 Client Error: Unauthorized" >&2; exit 1; }
F
    chmod +x path/hf
    PATH=$PWD/path:$PATH
}

@test "the card: base model, licence, precision by class, exactness, results, serving, provenance" {
    build emb4
    from_hub
    jq --arg m "$(sha256sum <build/MANIFEST.sha256 | cut -d ' ' -f 1)" '.weights.manifest_sha256 = $m' "$ROOT/data/published/e2b-emb4.json" >build.0123.json
    jq . "$ROOT/data/published/e2b-text.json" >build.4567.json          # of another build: left out
    jq '.time.finished = "2001-01-01T00:00:00Z" | .long[0].e2e_ms *= 2' build.0123.json >build.89ab.json       # the same, measured before with other settings: the newest counts
    "$ROOT/pipelines/card" --name org/e2b-emb4 build >card
    [ "$(sed -n '1p;2p;3p;4p' card | tr '\n' ' ')" = '--- base_model: google/gemma-4-E2B-it-qat-q4_0-unquantized base_model_relation: quantized license: apache-2.0 ' ]
    grep -qx 'pipeline_tag: text-generation' card
    grep -qx '# e2b-emb4' card
    grep -q '^| linears | int4, groups of 32, a scale each, BF16 scales | [1-9][0-9]* |$' card
    grep -q '^| per-layer embedding | int4' card
    grep -q '^| norms, scalars | bfloat16 |' card
    [ "$(awk -F ' [|] ' '/^[|] class/ { on = 1 } /^## Exactness/ { on = 0 } on { sum += $3 } END { print sum }' card)" = "$(st-extract --json build | jq -s 'map(select(.class != "file").bytes) | add')" ]
    grep -q "^Recovering the grid .* $(jq 'select(.summary) | .values' build.report.jsonl) values in .* 0 off the grid" card
    grep -q "^Comparing this build with its source.* 0 of them wrong, $(jq .exact_values build.check.jsonl) equal" card
    grep -q '^| emb4 | 141.7 |' card
    ! grep -q '^| text |' card || false
    grep -qx '    vllm serve org/e2b-emb4' card
    grep -q "^| ct-pack | $(cat "$ROOT/VERSION") |" card
    [ "$(grep -c '^---$' card)" -eq 2 ]
}

@test "the card of a build whose source is local says so; options name model and licence; FP8 is called that" {
    build fp8
    "$ROOT/pipelines/card" build >card
    ! grep -q '^base_model' card || false
    grep -q "^The name of the source is not recorded; its header has the SHA-256 .$(jq -r '.[0].parent' build/provenance.json)" card
    grep -q '^| linears | FP8 E4M3, a scale a row, F32 scales |' card
    grep -q '^| embedding | bfloat16 |' card
    ! grep -q '^## Results' card || false
    "$ROOT/pipelines/card" --base-model google/x --license gemma --name s3://b/p build >card
    grep -qx 'base_model: google/x' card
    grep -qx 'license: gemma' card
    grep -q 'sm-endpoint up NAME --model s3://b/p ' card
    run -64 "$ROOT/pipelines/card" --base-model $'x/y\nlicense: mine' build
    run -64 "$ROOT/pipelines/card" --base-model
    run -66 "$ROOT/pipelines/card" nowhere
    rm build/provenance.json
    run -65 "$ROOT/pipelines/card" build
}

@test "to the Hub: hf gets the build's files and the card, no token in its arguments" {
    build emb4
    from_hub
    hub
    export HF_TOKEN=hf_this_is_secret
    echo old >build/README.md
    run -0 --separate-stderr "$ROOT/pipelines/publish" build hf://org/e2b-emb4 --private
    [ "$(sed '3s/.*/DIR/' hf.args | tr '\n' ' ')" = "upload org/e2b-emb4 DIR . --repo-type model --commit-message q4sweep: manifest $(sha256sum <build/MANIFEST.sha256 | cut -c 1-16) --private " ]
    ! grep -q hf_this hf.args sent/README.md || false
    diff -rq build sent | grep -v README.md | wc -l | grep -qx 0
    grep -qx 'base_model: google/gemma-4-E2B-it-qat-q4_0-unquantized' sent/README.md
    grep -qx '    vllm serve org/e2b-emb4' sent/README.md
    [ ! -e "$(sed -n 3p hf.args)" ]                     # the directory of links is gone
    ln -s build link
    run -0 "$ROOT/pipelines/publish" link hf://org/e2b-emb4@v2
    grep -qx v2 hf.args
    touch hf.fails
    rm -r sent
    run -69 --separate-stderr "$ROOT/pipelines/publish" build hf://org/e2b-emb4
    [[ $stderr = *"401 Client Error"*"publish: hf://org/e2b-emb4: hf upload failed"* ]]
}

@test "refused: no recorded pass, another build's pass, files that are not the manifest's, places that are none, no client" {
    build emb4
    mv build.check.jsonl pass
    hub
    run -1 --separate-stderr "$ROOT/pipelines/publish" build hf://org/name
    [[ $stderr = *"no recorded pass"*"ct-check build --against SOURCE"* ]]
    jq -c '.manifest = "0"' pass >build.check.jsonl
    run -1 "$ROOT/pipelines/publish" build hf://org/name
    mv pass build.check.jsonl
    for place in hf://name hf://a/b/c hf:///x hf://-a/b ftp://a/b 'hf://a/b;c' org/name s3://; do
        run -64 "$ROOT/pipelines/publish" build "$place"
    done
    run -64 "$ROOT/pipelines/publish" build
    run -64 "$ROOT/pipelines/publish" build hf://org/name --token hf_x
    run -64 "$ROOT/pipelines/publish" build hf://org/name --region us-east-1
    run -64 "$ROOT/pipelines/publish" build s3://b/p --private
    echo secret >build/notes.txt
    run -65 --separate-stderr "$ROOT/pipelines/publish" build hf://org/name
    [[ $stderr = *"publish: build: notes.txt is not in its manifest: move it away"* ]]
    rm build/notes.txt
    mkdir bare
    for tool in bash dirname realpath cut sha256sum jq mktemp cat sed; do ln -s "$(command -v $tool)" bare/; done
    PATH=$PWD/bare run -69 --separate-stderr "$ROOT/pipelines/publish" build hf://org/name
    [[ $stderr = *"not installed: pipx install huggingface_hub"*"hf auth login"* ]]
    echo >>build/config.json
    run -65 "$ROOT/pipelines/publish" build hf://org/name
    [ ! -e hf.args ]
}

@test "to S3: the same card; nothing is left in TMPDIR" {
    need_program sm-local sm-endpoint
    build emb4
    from_hub
    sm-local --port 0 --state state >url 2>log 3>&- </dev/null &
    LOCAL=$!
    until [ -s url ]; do sleep 0.02; done
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY AWS_EC2_METADATA_DISABLED=true AWS_REGION=us-east-2
    export XDG_STATE_HOME=$PWD/journal TMPDIR=$PWD/tmp
    mkdir tmp
    curl -s -X PUT --aws-sigv4 aws:amz:us-east-2:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$AWS_ENDPOINT_URL/builds"
    "$ROOT/pipelines/publish" build s3://builds/e2b/emb4 --results "$ROOT/data/published/e2b-emb4.json"
    same_bytes build/model.safetensors state/s3/builds/e2b/emb4/model.safetensors
    "$ROOT/pipelines/card" --name s3://builds/e2b/emb4 --results "$ROOT/data/published/e2b-emb4.json" build | cmp - state/s3/builds/e2b/emb4/README.md
    grep -q '^| emb4 | 141.7 |' state/s3/builds/e2b/emb4/README.md
    [ -z "$(ls tmp)" ]
}
