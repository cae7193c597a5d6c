#!/usr/bin/env bats
# make sweep: what is repeated and what is not, failures, signals.  A small project of its own with the real sweep.mk, pipelines/chain,
# measure, targets/local, st-extract and tabulate; recipes, server and client are stand-ins that log each call to calls.log.
# The last test runs the whole real sweep.
load lib

program() { cat >"bin/$1"; chmod +x "bin/$1"; }

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset SERVER OUT TARGET BUILDS MODEL REPACK SERVE MEASURE MAKEFLAGS MAKELEVEL MFLAGS
    need_program st-extract tabulate
    [ "$BATS_TEST_DESCRIPTION" != "${BATS_TEST_DESCRIPTION#real:}" ] || project
}

project() {
    mkdir -p bin pipelines/targets
    cp "$BIN/st-extract" "$BIN/tabulate" bin/
    cp "$ROOT"/pipelines/{chain,measure,pair,{recipe,model,step,host,endpoint}.bash} pipelines/
    cp "$ROOT"/pipelines/targets/{local,server} pipelines/targets/
    cp -r "$ROOT"/{data,sweep.mk} .
    printf '%s\n' 'SHELL := bash' '.SHELLFLAGS := -eu -o pipefail -c' 'BIN := bin' 'include sweep.mk' >Makefile
    for build in text emb4 ple4; do
        cat >"pipelines/$build" <<'F'
#!/bin/bash
log=$PWD/calls.log src=${*: -2:1} out=${*: -1}
echo "repack $(basename "$0") $(basename "$src")" >>"$log"
[ ! -e "fail-$(basename "$0")" ] || { echo "ct-pack: stdin: this build is told to fail" >&2; exit 65; }
mkdir "$out.part"; cp "$src"/* "$out.part"; mv -T "$out.part" "$out"
F
        chmod +x "pipelines/$build"
    done
    for p in q4-regrid emb-untie ct-pack; do echo "$p" | program $p; done
    echo "echo null" | program gpu-decode
    program ct-check <<'F'
#!/bin/bash
echo "check" >>calls.log
echo '{"ok": true}'
F
    program gpu-serve <<'F'
#!/bin/bash
[ "$1" != --version ] || { echo "gpu-serve (q4sweep) 9.9.9, test"; exit; }
echo $$ >>servers
echo "up $*" >>calls.log
echo "http://127.0.0.1:12345"
exec cat >/dev/null
F
    program sm-invoke <<'F'
#!/bin/bash
[ "$1" != --version ] || { echo "sm-invoke (q4sweep) 9.9.9, test"; exit; }
echo measuring >>running
[ "$(wc -l <running)" = 1 ] || echo overlap >>calls.log
[ ! -e slow ] || sleep 30
jq -c '{id, sent_ms: 1, e2e_ms: (2.0 * .max_tokens), completion_tokens: .max_tokens, prompt_tokens: 9, text: "x"}'
rm running
F
    program st-synth <<F
#!/bin/bash
echo synth >>calls.log; sleep 0.2
mkdir -p "\${*: -1}"
cp "$(golden e2b-nano)"/{config.json,model.safetensors} "\${*: -1}"
F
}

calls() { sort calls.log 2>/dev/null | cut -d ' ' -f 1 | uniq -c | tr -s ' \n' ' '; }
server_gone() {     # within three seconds
    local pid
    for _ in $(seq 60); do
        for pid in $(cat servers); do kill -0 "$pid" 2>/dev/null && break; done || return 0
        sleep 0.05
    done
    return 1
}
begun() { for _ in $(seq 200); do [ ! -e running ] || return 0; sleep 0.05; done; return 1; }
no_litter() { [ -z "$(find out -name '*.part*' -o -name '.*.state')" ]; }

@test "no arguments: two builds, their table, and no server left" {
    run -0 --separate-stderr make sweep
    [[ $output == *"### e2b-nano"*"| text | 500.0 | 1.00 |"*"| emb4 | 500.0 | 1.00 |"*"40 of 40"* ]]
    [ "$(calls)" = " 2 check 2 repack 1 synth 2 up " ]
    grep -q -- '--until-eof' calls.log
    [ "$(cat out/e2b-nano/table.md)" = "$output" ]
    [ "$(head -n 1 out/e2b-nano/table.csv | cut -d , -f 1-3)" = model,build,target ]
    holds '.model == "e2b-nano" and .build == "emb4" and .target == "local"' out/e2b-nano/emb4.json
    server_gone
    no_litter
}

@test "finished steps are not repeated" {
    make sweep
    rm calls.log
    run -0 --separate-stderr make sweep
    [[ $output == *"| emb4 | 500.0 |"* ]]
    [ "$(calls)" = "" ]
}

@test "a build that is named twice is one" {
    run -0 --separate-stderr make sweep BUILDS="emb4 text emb4"
    [[ $output == *"| emb4 | 500.0 |"*"| text | 500.0 |"* ]]
    [ "$(calls)" = " 2 check 2 repack 1 synth 2 up " ]
}

@test "another model, option, tool or recipe is another step" {
    make sweep
    rm calls.log
    make sweep MEASURE='--repeats 2'                # measured again, no more
    [ "$(calls)" = " 2 up " ]
    rm calls.log
    make sweep                                      # and the first measurement still counts
    [ "$(calls)" = "" ]
    make sweep SERVE=--fast
    [ "$(calls)" = " 2 up " ]
    rm calls.log
    echo '# newer' >>bin/ct-check
    make sweep                                      # checked again, no more
    [ "$(calls)" = " 2 check " ]
    rm calls.log
    echo '# newer' >>pipelines/emb4
    make sweep
    [ "$(calls)" = " 1 check 1 repack 1 up " ]
    rm calls.log
    make sweep REPACK='--scale-dtype f16' BUILDS=text
    [ "$(calls)" = " 1 check 1 repack 1 up " ]
    rm calls.log
    echo newer >>bin/q4-regrid
    make sweep BUILDS=text
    [ "$(calls)" = " 1 check 1 repack 1 up " ]
}

@test "weights replaced under the same name are another model" {
    bin/st-synth m
    make sweep MODEL=m BUILDS=text
    rm calls.log
    # One byte of data changes: the header, the sizes and the name stay.
    printf '\001' | dd of=m/model.safetensors bs=1 seek="$(($(stat -c %s m/model.safetensors) - 1))" conv=notrunc status=none
    make sweep MODEL=m BUILDS=text
    [ "$(calls)" = " 1 check 1 repack 1 up " ]
}

@test "any name of a model and of OUT; a model that is the current directory goes by its name" {
    local name="a model's \"dir\"" out="$PWD/my results/of today"
    bin/st-synth "$name"
    run -0 --separate-stderr make sweep MODEL="$name/" BUILDS=text OUT="$out"
    [[ $output == *"### a model's \"dir\""*"| text | 500.0 |"* ]]
    [ -e "$out/$name/text.json" ]
    [ "$(cat "$out/$name/table.md")" = "$output" ]
    run -0 --separate-stderr make -f "$PWD/Makefile" -I "$PWD" -C "$name" sweep MODEL=. BUILDS=text OUT="$out" BIN="$PWD/bin" HERE="$PWD"
    [ "$(grep -c repack calls.log)" = 1 ]
}

@test "CDPATH and POSIXLY_CORRECT in the environment change nothing" {
    bin/st-synth m
    CDPATH=.:/ POSIXLY_CORRECT=1 Q4BIN=$PWD/bin OUT=out pipelines/chain m text
    [ -e out/m/text.json ]
}

@test "a directory of any name holds the project" {
    local here=$PWD
    mkdir "$here/my projects"
    cp -r bin pipelines data Makefile sweep.mk "my projects"
    cd "my projects"
    run -0 --separate-stderr make sweep BUILDS=text
    [[ $output == *"### e2b-nano"*"| text | 500.0 |"* ]]
}

@test "a failed build does not stop the others; make fails at the end and the table has the rest" {
    touch fail-text
    run -2 --separate-stderr make sweep BUILDS='text emb4 ple4'
    [[ $output == *"| emb4 | 500.0 | n/a |"* && $output == *"| ple4 |"* && $output != *"| text |"* ]]
    [[ $stderr == *"told to fail"*"failed: text"* ]]
    [ "$(calls)" = " 2 check 3 repack 1 synth 2 up " ]
    rm fail-text calls.log
    run -0 make sweep BUILDS='text emb4 ple4'
    [ "$(calls)" = " 1 check 1 repack 1 up " ]
}

@test "a build that worked once and fails now is not in the table" {
    make sweep
    touch fail-text
    run -2 --separate-stderr make sweep REPACK=--x
    [[ $output != *"| text |"* ]]
}

@test "an endpoint of another type or elsewhere is measured anew" {
    sed 's/out\/local/out\/rehearsal/' pipelines/targets/local >pipelines/targets/rehearsal
    sed -i 's/^case \$verb in$/[ "$verb" != places ] || { echo 1; exit; }; &/' pipelines/targets/rehearsal
    chmod +x pipelines/targets/rehearsal
    for p in sm-endpoint sm-local; do echo "$p" | program $p; done
    make sweep BUILDS=text TARGET=rehearsal
    [ "$(calls)" = " 1 check 1 repack 1 synth 1 up " ]
    rm calls.log
    make sweep BUILDS=text TARGET=rehearsal
    [ "$(calls)" = "" ]
    make sweep BUILDS=text TARGET=rehearsal INSTANCE=ml.g6.2xlarge
    [ "$(calls)" = " 1 up " ]
    make sweep BUILDS=text TARGET=rehearsal REGION=us-west-2
    [ "$(calls)" = " 2 up " ]
}

@test "a server on the GPU: the result names it, and its driver" {
    program nvidia-smi <<<'echo "NVIDIA L4, 550.54.15"; echo "NVIDIA L4, 550.54.15"'
    PATH=$PWD/bin:$PATH make sweep BUILDS=text
    holds '.machine.gpu == null and .machine.driver == null' out/e2b-nano/text.json
    sed -i 's/^echo "up /echo "INFO device_config=cuda, math=fast" >\&2; &/' bin/gpu-serve
    PATH=$PWD/bin:$PATH make sweep BUILDS=text
    holds '.machine.gpu == "NVIDIA L4" and .machine.driver == "550.54.15" and .engine.device == "cuda" and .machine.cpus > 0' out/e2b-nano/text.json
}

@test "a check that says no stops its chain before the server, and its reasons are told" {
    program ct-check <<'F'
#!/bin/bash
echo "check" >>calls.log
echo '{"ok": false, "faults": [{"grade": "note", "where": "ignore", "what": "matches nothing"}, {"grade": "wrong", "where": "model.norm.weight", "what": "differs from its source"}]}'
exit 1
F
    run -2 make sweep BUILDS=text
    [[ $output = *"ct-check: wrong: model.norm.weight: differs from its source"* && $output != *"matches nothing"* ]]
    [ "$(calls)" = " 1 check 1 repack 1 synth " ]
    run -2 make sweep BUILDS=text
    [ "$(calls)" = " 2 check 1 repack 1 synth " ]
    no_litter
}

@test "a failed measurement leaves no result and no server" {
    program sm-invoke <<<'echo "sm-invoke: refused" >&2; exit 69'
    run -2 make sweep BUILDS=text
    [ ! -e out/e2b-nano/text.json ]
    [ -z "$(compgen -G 'out/e2b-nano/text-*.????????????????.json')" ]
    server_gone
    no_litter
}

@test "a server that does not start fails its chain" {
    program gpu-serve <<<'echo "gpu-serve: out of memory" >&2; exit 75'
    run -2 --separate-stderr make sweep BUILDS=text
    [[ $stderr == *"out of memory"* ]]
    no_litter
}

@test "-j: chains overlap, measurements do not" {
    run -0 make -j4 sweep BUILDS='text emb4 ple4'
    [ "$(calls)" = " 3 check 3 repack 1 synth 3 up " ]
}

@test "two sweeps at once: one model is made, each step is done once, both have their table" {
    make sweep BUILDS="text emb4" >first 2>first.err 3>&- &
    run -0 --separate-stderr make sweep BUILDS="text ple4"
    [[ $output == *"| text |"*"| ple4 |"* ]]
    wait $!
    grep -q '| text |' first && grep -q '| emb4 |' first
    [ "$(calls)" = " 3 check 3 repack 1 synth 3 up " ]
    no_litter
    make sweep BUILDS=text
    touch fail-text
    rm -r out/e2b-nano/text-????????????????
    run -2 make sweep BUILDS=text                   # its result of before does not stand for it
    [ ! -e out/e2b-nano/text.json ]
}

@test "what does not exist is said before anything is done" {
    run -2 make sweep BUILDS='text nonesuch'
    [[ $output == *"no build nonesuch: there are: emb4 ple4 text"* ]]
    for odd in 'a;b' 'te%t' % 'a:b' "a'b" 'a"b' 'a|b' 'a`b' 'a\b' '(' '*' '$$x' 'a,b' 'a=b' '--x'; do
        run -2 make sweep BUILDS="text $odd"
        [[ $output == *"sweep: no build ${odd/'$$'/$}: there are: emb4 ple4 text"*"Error 64"* ]] || { echo "BUILDS=$odd: $output"; false; }
        run -2 make sweep TARGET="$odd"
        [[ $output == *"sweep: no target ${odd/'$$'/$}: there are: local server"*"Error 64"* ]] || { echo "TARGET=$odd: $output"; false; }
        run -2 make sweep RUN="$odd"
        [[ $output == *"sweep: RUN=${odd/'$$'/$}: expected slurm"*"Error 64"* ]] || { echo "RUN=$odd: $output"; false; }
    done
    run -2 make sweep TARGET=moon
    [[ $output == *"no target moon: there are: local server"* ]]
    run -2 make sweep MODEL=nowhere
    [[ $output == *"nowhere: no such checkpoint"* ]]
    run -2 make sweep BUILDS=
    [[ $output == *"BUILDS is empty: there are: emb4 "* ]]
    [ ! -e calls.log ]
}

# Start `make sweep` in the background as the leader of a process group, wait until its measurement runs.
start_sweep() {
    touch slow
    setsid env --default-signal=INT make sweep >make.log 2>&1 3>&- &
    make_pid=$!
    begun
    [ -n "$(cat servers)" ]
}

@test "make killed outright: the server is gone within seconds, and the next run goes on" {
    start_sweep
    kill -KILL "$make_pid"
    server_gone
    rm -f slow running
    run -0 make sweep
    [ "$(grep -c repack calls.log)" = 2 ]
    no_litter
}

@test "the chain itself killed outright: the server is gone within seconds" {
    start_sweep
    pkill -KILL -f -P "$make_pid" pipelines/chain
    server_gone
    kill "$make_pid" || true
}

@test "Ctrl-C and SIGTERM stop everything" {
    start_sweep
    kill -INT -- "-$make_pid"
    server_gone
    rc=0
    wait "$make_pid" || rc=$?       # not by `run`: its subshell has no such child to wait for
    [ "$rc" -ne 0 ]
    rm -f running servers
    setsid env --default-signal=INT make sweep >make.log 2>&1 3>&- &
    make_pid=$!
    begun
    kill -TERM "$make_pid"
    server_gone
    no_litter
}

@test "make pair killed outright, or told to end, while it measures: both servers are gone within seconds, and an older run's results too" {
    local signal
    export MEASURE='--parts questions'
    make pair
    for signal in KILL TERM; do
        touch slow
        rm -f running servers
        setsid make pair >make.log 2>&1 3>&- &
        make_pid=$!
        begun
        [ "$(wc -l <servers)" = 2 ]
        kill -"$signal" "$make_pid"
        server_gone
        [ ! -e out/e2b-nano/pair/text.json ]
        rm -f slow
    done
    SERVE=--x REPACK=--y make pair
    holds '.tool.command | test("^make pair MODEL=.* BUILDS=.text emb4. TARGET=local REPACK=.--y. SERVE=.--x. MEASURE=.--parts questions.$")' out/e2b-nano/pair/emb4.json
}

@test "SERVER: another server's rows stand beside the target's, under its name; what it started is gone" {
    make sweep BUILDS=text
    rm calls.log
    cat >peer <<'F'
#!/bin/bash
# --port N BUILD: answers /v1/models by a child of its own
echo $$ >>peers
echo "peer $*" >>calls.log
[ ! -e broken ] || { echo "peer: no such model" >&2; exit 3; }
perl -MIO::Socket::INET -e '
    $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => shift, Listen => 5, ReuseAddr => 1) or die;
    while ($c = $s->accept) { $r = <$c>; $b = "{\"version\": \"7\", \"data\": [{\"id\": \"x\", \"max_model_len\": 4096}]}";
        print $c "HTTP/1.0 200 OK\r\nContent-Length: ".length($b)."\r\n\r\n$b"; close $c }' "$2" &
echo $! >>peers
wait
F
    chmod +x peer
    need_command perl
    run -0 --separate-stderr make sweep BUILDS=text SERVER="A=1 $PWD/peer --port {port} {build}"
    [[ $output == *"| text on local | 500.0 |"*"| text on peer | 500.0 |"*"| text | peer | peer 7 | 500.0 | 1.00 |"* ]]
    holds '.target == "peer" and .engine.name == "peer" and .engine.version == "7" and .engine.max_model_len == 4096
           and (.tool.command | test("SERVER="))' out/e2b-nano/text@peer.json
    grep -q "^peer --port [0-9]* .*out/e2b-nano/text-" calls.log
    cp peers servers
    server_gone
    # the next time nothing is left to do; a server that does not start fails, and the other's rows stay
    rm calls.log
    run -0 --separate-stderr make sweep BUILDS=text SERVER="A=1 $PWD/peer --port {port} {build}"
    [ ! -e calls.log ]
    touch broken
    run -2 --separate-stderr make sweep BUILDS=text SERVER="$PWD/peer --port {port}"
    [[ $stderr == *"peer: no such model"*"peer ended before it answered"* && $output == *"| text | 500.0 |"* ]]
    run -2 make sweep BUILDS=text SERVER="$PWD/peer"
    [[ $output == *"{port} is missing"* ]]
    no_litter
}

@test "SERVER: make killed outright, the server and its children are gone within seconds" {
    printf '%s\n' '#!/bin/bash' 'echo $$ >>servers' 'sleep 1000 & echo $! >>servers' 'wait' >peer
    chmod +x peer
    setsid make sweep BUILDS=text SERVER="$PWD/peer {port}" >make.log 2>&1 3>&- &
    make_pid=$!
    for _ in $(seq 200); do [ "$(cat servers 2>/dev/null | wc -l)" = 2 ] && break; sleep 0.05; done
    kill -KILL "$make_pid"
    server_gone
}

@test "real: the whole sweep of a nano E2B" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check gpu-serve sm-invoke tabulate
    [ -x "$ROOT/pipelines/text" ] && [ -x "$ROOT/pipelines/emb4" ]
    run -0 --separate-stderr make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" OUT="$PWD/out" sweep
    [[ $output == *"### e2b-nano"*"| text |"*"| emb4 |"* ]]
    for build in text emb4; do
        holds '(.questions | length) == 40 and .weights.read_per_token.int4 > 0 and .weights.regrid.off_grid == 0 and (.stream | length) == 3
               and (.prefill | length) == 2 and (.load | length) == 5 and (.ping_ms | length) == 15 and .weights.bytes_by_class.linear > 0 and (.weights.provenance | length) > 0
               and .weights.manifest_sha256 != null and .engine.device == "cpu" and .engine.kv_tokens > 0' "out/e2b-nano/$build.json"
    done
    # int4 embeddings are smaller than 16-bit ones
    [ "$(jq .weights.bytes_by_class.ple out/e2b-nano/emb4.json)" -lt "$(jq .weights.bytes_by_class.ple out/e2b-nano/text.json)" ]
    ! pgrep -f "gpu-serve --model $PWD/out" || false
}

@test "real: a remote model is swept as the local one, and is called by the end of its address" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check gpu-serve gpu-decode sm-invoke tabulate
    local url hold
    mkdir www
    cp -r "$(model e2b)" www/tiny
    exec {hold}> >(exec "$TOOLS/range-server" www/tiny >url 3>&-)
    for _ in $(seq 100); do [ ! -s url ] || break; sleep 0.05; done
    url=$(cat url)/tiny
    for model in "$url/" "$PWD/www/tiny"; do
        run -0 --separate-stderr make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" OUT="$PWD/out${model:0:4}" MODEL="$model" BUILDS=emb4 \
            MEASURE='--parts replies --repeats 1 --short 2 --long 4' sweep
        [[ $output == *"### tiny"*"| emb4 |"* ]]
    done
    same_bytes outhttp/tiny/emb4.build/model.safetensors "out${PWD:0:4}/tiny/emb4.build/model.safetensors"
    run -2 --separate-stderr make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" OUT="$PWD/out" MODEL="$url/none.safetensors" BUILDS=emb4 sweep
    [[ $stderr == *"st-extract: $url/none.safetensors: none.safetensors: there is no such file"* && $stderr != *q4-regrid* ]]      # no key, no step
    exec {hold}>&-
}

@test "real: make pair measures two builds that are up together, and stops both" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check gpu-serve gpu-decode sm-invoke tabulate
    run -0 --separate-stderr make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" OUT="$PWD/out" pair MEASURE='--parts replies --repeats 15 --long 200'
    [[ $output == *"### e2b-nano"*"| text |"*"| emb4 |"*"15 each"*"in turns with another build"* ]]
    holds '.build == "emb4" and .settings.pair and (.long | length) == 15' out/e2b-nano/pair/emb4.json
    [ ! -e out/e2b-nano/text.json ]
    ! pgrep -f "gpu-serve --model $PWD/out" || false
    no_litter
}

# Where vLLM is on the path: VLLM_PYTHON names its python (an environment whose package has no command of its own).
@test "real: vLLM serves a nano text build in the sweep, beside gpu-serve" {
    local python=${VLLM_PYTHON:-python3} measure='--parts replies,questions,stream --repeats 2 --long 32 --concurrency 1 --question-tokens 4 --stream-tokens 8'
    "$python" -c 'import vllm' 2>/dev/null || skip "vLLM is not installed: VLLM_PYTHON names no python that has it"
    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 SERVER_WAIT=600 OUT=$PWD/out BUILDS=text MEASURE=$measure
    make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" sweep
    run -0 --separate-stderr make --no-print-directory -C "$ROOT" CONFIG="$Q4CONFIG" sweep \
        SERVER="$python -m vllm.entrypoints.openai.api_server --model {build} --port {port} --max-model-len 1024 --enforce-eager"
    [[ $output == *"| text on local |"*"| text on vllm |"*"One build, several servers"* ]]
    holds '.engine.name == "vllm" and .engine.version != null and .engine.max_model_len == 1024 and (.stream[0].requests[0].ttft_ms > 0) and (.questions | length) == 40' \
        out/e2b-nano/text@vllm.json
}
