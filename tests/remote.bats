#!/usr/bin/env bats
# Remote sources against a server that is wrong in one precise way: the bytes are the local ones, or there is a clear error and nothing.
load lib

# serve [OPTION…] DIR: start the server; $URL is its base, it ends with the test.
serve() {
    rm -f url                   # of an earlier one
    exec {HOLD}> >(exec "$TOOLS/range-server" --log log "$@" > url 3>&- )
    SERVERS+=("$HOLD")
    for _ in $(seq 100); do [ -s url ] && break; sleep 0.05; done
    URL=$(cat url)
    [ -n "$URL" ]
}

teardown() {
    local h
    for h in "${SERVERS[@]}"; do exec {h}>&-; done
}

# Big enough for many ranges in flight: a few MB of real tensors beside their config.
source_dir() { golden e2b-nano; }

same_as_local() {       # OPTION… URL
    st-extract --text-only "$(source_dir)" > local.st
    st-extract --text-only "$@" > remote.st 2> err || { cat err; return 1; }
    same_bytes local.st remote.st
}

@test "a checkpoint behind http gives the local bytes" {
    serve "$(source_dir)"
    same_as_local "$URL"
    same_as_local --connections 1 "$URL/"
    [ ! -s err ]
    same_as_local "HTTP${URL#http}"         # a scheme may be written large
}

@test "a Retry-After that is a date counts from the answer's own Date; a unit may be written large" {
    serve --fault busy:1 --fault capital "$(source_dir)"
    local began=$EPOCHREALTIME
    same_as_local "$URL"
    [ $((${EPOCHREALTIME/./} - ${began/./})) -ge 2000000 ]
    [ "$(grep -c '^503' log)" = 1 ]
}

@test "one file behind http gives the local bytes" {
    serve "$(source_dir)"
    st-extract --text-only "$(source_dir)/model.safetensors" > a
    st-extract --text-only "$URL/model.safetensors" > b
    same_bytes a b
    # Asked for as the URL says it: this server takes a path's bytes as they are.
    mkdir with && ln -s "$(source_dir)/model.safetensors" 'with/my%20model%2B(1).safetensors'
    serve with
    st-extract --text-only "$URL/my%20model%2B(1).safetensors" > b
    same_bytes a b
}

@test "--list and --rows fetch only what they need, and -v says how much" {
    serve "$(source_dir)"
    st-extract -v --list "$URL/model.safetensors" > list 2> err
    grep -q '^270 tensors' list
    n=$(sed -n 's/.*: \([0-9]*\) bytes fetched/\1/p' err)
    [ "$n" -lt 100000 ]
    st-extract -v --rows model.language_model.embed_tokens.weight:7-9 "$URL/model.safetensors" > rows 2> err
    m=$(sed -n 's/.*: \([0-9]*\) bytes fetched/\1/p' err)
    [ "$m" -eq $((n + 1024)) ]
    same_bytes rows <(st-extract --rows model.language_model.embed_tokens.weight:7-9 "$(source_dir)/model.safetensors")
}

@test "cut connections are resumed where they broke off" {
    serve --fault cut:5 "$(source_dir)"
    same_as_local "$URL"
    grep -Eq 'range=bytes=[0-9]+-' log
}

@test "429 and 503 are tried again, in the end given up" {
    serve --fault status:3:429 "$(source_dir)"
    same_as_local "$URL"
    serve --fault late:4:503 "$(source_dir)"
    same_as_local "$URL"
    serve --fault late:0:503 "$(source_dir)"
    run -75 --separate-stderr st-extract --retries 2 "$URL/model.safetensors"
    [[ $stderr == *"tried 3 times"* ]]
}

@test "a file that changed half-way is an error" {
    for f in etag:2 resize:2; do
        serve --fault $f "$(source_dir)"
        run -65 --separate-stderr st-extract -o out "$URL/model.safetensors"
        [[ $stderr == *"changed while it was read"* ]]
        only_holds . local.st remote.st err log url out 2>/dev/null || [ ! -e out ]
    done
}

@test "answers that lie are errors, not data" {
    for f in wrong-range no-range long; do
        serve --fault $f "$(source_dir)"
        run -65 --separate-stderr st-extract -o out "$URL/model.safetensors"
        [ -n "$stderr" ] && [ ! -e out ]
    done
    serve --fault late:1:416 "$(source_dir)"
    run -65 --separate-stderr st-extract -o out "$URL/model.safetensors"
    [ ! -e out ]
}

@test "a server that ignores ranges is refused" {
    serve --fault ignore-range "$(source_dir)"
    run -69 --separate-stderr st-extract -o out "$URL/model.safetensors"
    [[ $stderr == *"ignores range requests"* ]] && [ ! -e out ]
}

@test "a slow sender is waited for" {
    serve --fault dribble "$(source_dir)"
    st-extract --select 'layers\.0\.self_attn' "$URL/model.safetensors" > a
    st-extract --select 'layers\.0\.self_attn' "$(source_dir)/model.safetensors" > b
    same_bytes a b
}

@test "nobody there, nothing there" {
    run -75 --separate-stderr st-extract --retries 0 http://127.0.0.1:1/model.safetensors
    serve "$(source_dir)"
    run -66 --separate-stderr st-extract "$URL/other.safetensors"
    [[ $stderr == *"no such file"* ]]
}

@test "hf:// resolves a commit, brings side files, and names the commit in the provenance" {
    serve "$(source_dir)"
    export HF_ENDPOINT=$URL HF_TOKEN=good
    st-extract --text-only hf://org/name > a
    st_header a | jq -r .__metadata__.provenance | jq -e '.[0].args == ["hf://org/name@0123456789abcdef0123456789abcdef01234567", "--text-only"]'
    st_header a | jq -e 'has("file:generation_config.json")'
    st-extract --text-only "$(source_dir)" > b
    diff <(st_header a | jq -S 'del(.__metadata__)') <(st_header b | jq -S 'del(.__metadata__)')
    same_bytes <(tail -c 5000000 a) <(tail -c 5000000 b)
    ! grep -q good a || false
    st-extract hf://org/name@main/model.safetensors | cmp - <(st-extract "hf://org/name@v1/model.safetensors")
    run -66 --separate-stderr st-extract hf://org/name@missing
    run -64 --separate-stderr st-extract hf://org
}

@test "a gated repository: the page is named; the token opens it and is never shown" {
    serve --fault gated "$(source_dir)"
    export HF_ENDPOINT=$URL HOME=$PWD
    run -77 --separate-stderr env -u HF_TOKEN st-extract hf://org/name
    [[ $stderr == *"$URL/org/name"* ]]
    HF_TOKEN=bad-secret run -77 --separate-stderr st-extract -v hf://org/name
    [[ $stderr != *bad-secret* ]]
    mkdir -p .cache/huggingface
    echo good > .cache/huggingface/token
    env -u HF_TOKEN -u HF_HOME -u XDG_CACHE_HOME -u HF_TOKEN_PATH st-extract hf://org/name | head -c 100 > x
    [ -s x ]
}

@test "a token never follows a redirect to another host; expired signatures are resolved again" {
    serve --fault expire:6 "$(source_dir)"
    cdn=$URL
    mv log cdn.log; rm url
    serve --fault gated --fault "redirect:0:$cdn" "$(source_dir)"
    export HF_ENDPOINT=$URL HF_TOKEN=good
    st-extract -v --text-only hf://org/name > a 2> err
    tail -c 5000000 a > tail.a
    st-extract --text-only "$(source_dir)" | tail -c 5000000 > tail.b
    same_bytes tail.a tail.b
    grep -q '^403 ' cdn.log
    ! grep -q 'authorization=Bearer' cdn.log || false
    grep -q 'authorization=Bearer good' log
    ! grep -Eq 'secret|good' err || false
}

@test "TLS with a local authority; without it the certificate is refused" {
    need_command openssl
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null
    serve --tls cert.pem key.pem "$(source_dir)"
    CURL_CA_BUNDLE=$PWD/cert.pem same_as_local "$URL"
    unset CURL_CA_BUNDLE
    SSL_CERT_FILE=$PWD/cert.pem same_as_local "$URL"
    run -77 --separate-stderr env -u SSL_CERT_FILE st-extract "$URL/model.safetensors"
}

@test "http_proxy and no_proxy are honoured" {
    serve "$(source_dir)"
    http_proxy=$URL st-extract --text-only http://example.invalid/dir/model.safetensors > a
    st-extract --text-only "$(source_dir)/model.safetensors" > b
    same_bytes a b
    grep -q ' http://example.invalid/dir/model.safetensors ' log
}

@test "a whole recipe from a remote source is the local build" {
    need_program q4-regrid ct-pack
    serve "$(source_dir)"
    "$ROOT/pipelines/text" "$URL" remote
    "$ROOT/pipelines/text" "$(source_dir)" local
    same_bytes remote/model.safetensors local/model.safetensors
    same_bytes remote/config.json local/config.json
}

# A build to be served; b is a copy that may be changed.
emb4_build() { "$ROOT/pipelines/emb4" --scale-dtype f16 "$(source_dir)" "$1"; }
build_dir() { cached build-emb4-e2b-nano emb4_build; }

fetched() { sed -n "s|^ct-check: $1: \([0-9]*\) bytes fetched|\1|p" err; }      # PLACE

@test "ct-check of a remote build: the local verdict, from headers alone" {
    need_program ct-check
    serve "$(build_dir)"
    ct-check -v --json "$URL" > remote 2> err
    ct-check --json "$(build_dir)" > local
    diff <(jq -S 'del(.build)' local) <(jq -S 'del(.build)' remote)
    head=$(od -An -tu8 -N8 "$(build_dir)/model.safetensors")
    [ "$(fetched "$URL")" -lt $((head + 40000)) ]
    HF_ENDPOINT=$URL HF_TOKEN=good ct-check hf://org/name > hub
    grep -q '^hf://org/name: ok' hub
}

@test "ct-check finds faults of a remote build: missing shards, a cut file, strays, no manifest" {
    cp -r "$(build_dir)" b
    rm b/MANIFEST.sha256
    jq -n '{metadata: {total_size: 1}, weight_map: {"model.norm.weight": "model.safetensors", "lm_head.weight_packed": "gone.safetensors"}}' > b/model.safetensors.index.json
    cp b/model.safetensors b/stray.safetensors
    serve b
    export HF_ENDPOINT=$URL HF_TOKEN=good
    run -1 ct-check hf://org/name
    [[ $output == *"refused: gone.safetensors"*"FileNotFoundError"* && $output == *"untidy: stray.safetensors"* && $output == *"no manifest"* ]]
    run -1 ct-check "$URL"
    [[ $output == *"refused: gone.safetensors: "*"FileNotFoundError"* ]]
    rm b/model.safetensors.index.json b/stray.safetensors
    truncate -s -1 b/model.safetensors
    run -1 ct-check "$URL"
    [[ $output == *"refused: model.safetensors: "*"the file is cut"* ]]
}

@test "ct-check --against: build and source may be remote, values are fetched once" {
    serve "$(build_dir)"
    build=$URL
    mv log build.log; rm url
    serve "$(source_dir)"
    ct-check "$(build_dir)" --strict --json --against "$(source_dir)" | jq -S .against > want
    ct-check "$(build_dir)" --strict --json --against "$URL" | jq -S .against > a
    ct-check "$(build_dir)" --strict --json --against "$URL/model.safetensors" | jq -S .against > b
    HF_ENDPOINT=$URL HF_TOKEN=good ct-check -v "$build" --strict --json --against hf://org/name 2> err | jq -S .against > c
    for got in a b c; do same_bytes want $got; done
    [ "$(fetched hf://org/name)" -le $(($(stat -c %s "$(source_dir)/model.safetensors") + 40000)) ]
    cp -r "$(build_dir)" b1
    "$TOOLS/st-mutate" b1/model.safetensors xor model.layers.0.mlp.down_proj.weight_packed 100 1
    run -1 ct-check b1 --against "$URL"
    [[ $output == *"down_proj: 1 of"* ]]
}

@test "ct-check: a remote place that fails is no finding" {
    serve --fault status:0:503 "$(build_dir)"
    run -75 ct-check --retries 1 "$URL"
    serve --fault gated "$(build_dir)"
    export HF_ENDPOINT=$URL
    run -77 env -u HF_TOKEN HOME="$PWD" ct-check hf://org/name
    run -75 ct-check --retries 0 --against http://127.0.0.1:1/ "$(build_dir)"
    run -65 ct-check "$URL/model.safetensors"
    run -64 ct-check "$URL?x"
}
