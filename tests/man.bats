#!/usr/bin/env bats
# Manual pages: sound, as the programs are, and their examples run.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    need_command mandoc
}

@test "every program has a manual page, and mandoc finds nothing wrong in any" {
    local program
    for program in "$ROOT"/src/*.c; do
        program=$(basename "$program" .c)
        [ -e "$ROOT/man/$program.1" ] || { echo "no man/$program.1"; return 1; }
    done
    [ -e "$ROOT/man/safetensors-stream.5" ] && [ -e "$ROOT/man/q4sweep.7" ]
    mandoc -T lint -W warning "$ROOT"/man/*.[157]
    grep -L '^\.Sh NAME' "$ROOT"/man/*.[157] | not_one "is no mdoc"
}

not_one() { ! grep . || { echo "$1"; return 1; }; }     # WHAT < names

help_of() { if [ "$1" = q4sweep ]; then "$ROOT/q4sweep" --help; "$ROOT/pipelines/text" --help; else "$BIN/$1" --help; fi; }   # PROGRAM

@test "each page has the options that --help has, and no other" {
    local page program
    for page in "$ROOT"/man/*.1; do
        program=$(basename "$page" .1)
        [ "$program" = q4sweep ] || [ -x "$BIN/$program" ] || continue
        diff <(help_of "$program" | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | tr -s ', ' '\n' | grep . | sort -u) \
            <(mandoc -T html "$page" | grep -oE '"Fl"[^>]*>[^<]*' | sed 's/.*>//' | sort -u) ||
            { echo "$program: < is only in --help, > only in the page"; return 1; }
    done
}

# --- examples --------------------------------------------------------------------------------------------------------

# The commands of a page's EXAMPLES, as a shell takes them: .Dl lines, and literal displays without those in C.
examples_of() {     # PAGE
    awk '/^\.Sh/ { on = $2 ~ /^EXAMPLE/; next } !on { next } /^\.Bd -literal/ { show = 1; next } /^\.Ed/ { show = 0; next }
        sub(/^\.Dl /, "") { if ($0 ~ /^".*"$/) $0 = substr($0, 2, length($0) - 2); print; next } show' "$1" | sed 's/\\e/\\/g; s/\\(dq/"/g' | grep -v $'^\t\\|^struct\\|^for (\\|^if (' || true
}

# A world in which the names that the examples use mean something: small models, builds, results, a server, a SageMaker.
world() {
    local p
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check tokenize gpu-decode gpu-serve sm-endpoint sm-invoke sm-local tabulate
    unset "${!AWS_@}" MAKEFLAGS MAKELEVEL MFLAGS OUT SERVER TARGET BUILDS MODEL
    model=$(model e2b)
    ln -s "$model" SRC; ln -s "$model" DIR; ln -s "$model" MODEL
    ln -s "$model" gemma-4-E2B-it-qat-q4_0-unquantized; ln -s "$(model gemma3)" gemma-3-270m
    emb-untie <"$(fixture blocks)" | ct-pack -o BUILD
    st-extract --text-only "$(model e2b --twin-lm-head)" | q4-regrid | ct-pack -o gemma-4-E2B-it-qat-w4a16-ct; mkdir build; cp -r BUILD build/e2b-emb4
    st-extract SRC >in.safetensors
    ln -s in.safetensors model.safetensors
    echo '{"id":"a","prompt":"Hello","max_tokens":2}' >prompts.jsonl
    echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' >messages.jsonl
    cp -r BUILD/. build/
    mkdir before after out out/e2b-nano data state state/s3 state/s3/models buckets results
    ln -s "$ROOT/data/published" data/published
    cp "$(fixture result)" out/e2b-nano/text.json; jq '.build = "emb4"' out/e2b-nano/text.json >out/e2b-nano/emb4.json
    cp out/e2b-nano/*.json before; cp out/e2b-nano/*.json after
    echo '{"id":1,"messages":[{"role":"user","content":"Hello"}],"max_tokens":3}' >requests.jsonl
    mkdir -p hub/google; ln -s "$(model gemma3)" hub/google/gemma-3-270m
    mkdir path; ln -s "$ROOT/q4sweep" path/
    export XDG_STATE_HOME=$PWD/xdg AWS_EC2_METADATA_DISABLED=true AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
    export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY
    sm-local --port 0 --state "$PWD/state" --speed 300 --hub "$PWD/hub" >cloud 2>cloud.log 3>&- </dev/null &
    LOCAL=$!
    gpu-serve --model SRC --port 0 >served 2>served.log 3>&- </dev/null &
    SERVED=$!
    for p in cloud served; do until [ -s "$p" ]; do sleep 0.05; done; done
    AWS_ENDPOINT_URL=$(cat cloud)
    export AWS_ENDPOINT_URL
}

teardown() {
    local pid
    for pid in ${LOCAL:-} ${SERVED:-}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
}

# What the examples say of places that are not here.
here() {
    sed -E "s,hf://google/gemma-4-E2B-it-qat-q4_0-unquantized,SRC,; s,hf://google/gemma-4-E2B-it-qat-w4a16-ct,BUILD,; s,http://127.0.0.1:8080,$(cat served),
        s,--port (8080|8700),--port 0 --until-eof </dev/null,; s,^AWS_ENDPOINT_URL=http.* [\\]$,: \\\\,; s,^ *AWS_ENDPOINT_URL=http[^ ]* aws .*,:,; s,BUILDS=\"text emb4\",BUILDS=text MEASURE='--parts replies --repeats 1 --long 32',; s,/data/out,out,; s,guard -- make.*,guard -- true,; s,\[9259[^]]*],[5],"
}

# The commands below "examples:" of a program's --help.
examples_of_help() { help_of "$1" | awk '/^$|^usage:/ { on = 0 } on; /^examples:$/ { on = 1 }'; }    # PROGRAM

n=0
run_script() {  # WHOSE: the file `script`, in a directory of its own
    mkdir "run$n"
    find . -maxdepth 1 -mindepth 1 ! -name 'run*' ! -name out -exec ln -s ../{} "run$n/" \;
    cp -r out "run$n/"
    (cd "run$n" && PATH=$PWD/path:$PATH timeout 120 bash -e -o pipefail ./script >log 2>&1) || { echo "$1:"; cat script; tail -n 20 "run$n/log"; return 1; }
    n=$((n + 1))
}

@test "the examples of every page and of every --help run" {
    local page program
    load examples.bash
    world
    for page in "$ROOT"/man/*.[157]; do
        examples_of "$page" | here >script
        [ "$(basename "$page")" = safetensors-stream.5 ] || [ -s script ] || { echo "$page: no example"; return 1; }
        run_script "$page"
    done
    for program in q4sweep $(basename -s .c "$ROOT"/src/*.c); do
        examples_of_help "$program" | here >script
        [ -s script ] || { echo "$program --help: no example"; return 1; }
        run_script "$program --help"
    done
    [ "$n" -ge 30 ]
}
