#!/usr/bin/env bats
# What only a fault of the machine brings about, in the words of each message: calls that fail under the shim (tests/faults/shim.c), streams that break off, a stdout that is
# full.  That nothing is left behind is what faults.bats looks at.
load lib
load faults/runs
load refusals

full_stdout() { # COMMAND…
    local status=0 said
    said=$("$@" 2>&1 >/dev/full </dev/null) || status=$?
    [[ $status = 74 && $said = *"stdout: write failed: No space left on device"* ]] || { echo "$*: found $status and \"$said\""; FAILED=1; }
}

@test "stdout is full" {
    local model result=$PWD/r.json
    model=$(model gemma3)
    full_stdout st-extract "$model"
    full_stdout st-extract --list "$model"
    full_stdout st-extract --json "$model"
    full_stdout ct-check "$model"
    full_stdout ct-check --json "$model"
    full_stdout gpu-decode --info --model "$model"
    full_stdout gpu-decode --info --json --model "$model"
    full_stdout sm-endpoint facts --from "$ROOT/tests/golden/vllm-logs/emb4-start.jsonl"
    full_stdout q4-regrid --help
    none_failed
}

@test "reading and writing" {
    local model
    model=$(model gemma3)
    st-extract "$model" >source
    st-extract -z "$model" >source.zst
    q4-regrid <source >text
    fault_says 9 open 75 "source: cannot open: Too many open files" st-extract source
    fault_says 40 read 74 "model.safetensors: read failed: Input/output error" st-extract "$model"
    fault_says 9 stat 74 "source: cannot ask for its size" st-extract source
    fault_says 9 sync 74 "x.safetensors: fsync failed" st-synth --size gemma3 -o x.safetensors
    fault_says 9 close 74 "x.safetensors: close failed" st-synth --size gemma3 -o x.safetensors
    FAULT_RUN=2 fault_says 9 rename 74 "x.safetensors: cannot rename the finished file" st-synth --size gemma3 -o x.safetensors
    fault_says 60 malloc 75 "bytes wanted: free some and try again" st-extract --list source
    fault_says 9 close 74 "stdout: close failed: Input/output error" st-extract --list source
    fault_says 9 open 74 "x.safetensors: cannot create: Too many open files" st-synth --size gemma3 -o x.safetensors
    fault_says 200 end 65 "bytes early: the file is cut" gpu-decode -q --device cpu --model "$model"
    FAULTY=st-extract fault_says 60 write 74 "source: cannot pass data on to stdout" bash -o pipefail -c 'st-extract --select embed source | cat >/dev/null'
    none_failed
}

@test "directories" {
    local build=(ct-pack -o d)
    st-extract --text-only "$(model gemma3)" | q4-regrid >text
    says() { FAULTY=ct-pack fault_says "$@" bash -c 'ct-pack --force -o d <text'; }
    says 9 mkdir 74 "d: cannot create: No space left on device"
    says 9 rename 74 "d: cannot rename the finished directory"
    says 40 sync 74 "d: fsync failed"
    says 40 close 74 "close failed: Input/output error"
    says 40 open 74 "this file cannot be made: Too many open files"
    says 60 write 74 "cannot make it"
    says 9 stat 74 "cannot ask for free space"
    says 9 stat 74 "d: cannot be looked for"
    rm -rf d
    says 9 full 74 "needed: make room or write elsewhere"
    rm -rf d
    mkdir d
    says 9 remove 0 "cannot remove: Permission denied: remove "
    rm -rf d .d*
    mkdir d
    says 9 list 74 "d: exists, and cannot be looked at"
    none_failed
}

@test "memory" {
    local m
    m=$(model gemma3)
    st '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >small
    NEAR=4900 fault_says 2000 malloc 75 'out of memory to match "a": free some and try again' st-extract --select 'x*(a)\1*' --list small
    NEAR=4960 fault_says 2000 malloc 75 "out of memory for zstd" st-extract -z small
    sanitized || refused 75 'out of memory to compile the pattern "(a{1,255}){1,255}": free some, or write it shorter' bash -c "ulimit -v 150000; st-extract --select '(a{1,255}){1,255}' small"
    none_failed
}

@test "libcrypto under a configuration that allows nothing" {
    printf '%s\n' 'openssl_conf = all' '[all]' 'alg_section = algorithms' '[algorithms]' 'default_properties = fips=yes' >openssl.cnf
    st '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1 >small
    OPENSSL_CONF=openssl.cnf refused 69 "libcrypto gives no SHA-256: out of memory, or openssl.cnf does not allow it: free some, or set OPENSSL_CONF" st-extract small
    none_failed
}

@test "the engine" {
    local m run
    m=$(model gemma3)
    run=(gpu-decode -q --device cpu -j 1 --model "$m")
    decode() { fault_says "$@" bash -c "gpu-decode -q --device cpu -j 1 --model '$m' <<<'{\"prompt_ids\":[2],\"max_tokens\":1}'"; }
    FAULTY=gpu-decode decode 60 map 75 "no memory for 0.0 GB of weights: Cannot allocate memory"
    FAULTY=gpu-decode decode 60 map 75 "no address space for a sequence of"
    FAULTY=gpu-decode fault_says 60 map 75 "model.safetensors: cannot be mapped: Cannot allocate memory" gpu-decode -q --device cpu -j 1 --mmap --model "$m"
    # A model of more bytes than any machine has memory, all of them holes.
    mkdir vast
    jq '.vocab_size = 16777216 | .hidden_size = 131072' "$m/config.json" >vast/config.json
    plan_with "$m/model.safetensors" 'map_values(if .shape then .shape |= map(if . == 256 then 131072 elif . == 1024 then 16777216 else . end) else . end)' >vast/model.safetensors
    truncate -s $(($(stat -c %s vast/model.safetensors) + $(st_header vast/model.safetensors | jq '[.[].data_offsets[1]? // 0] | max'))) vast/model.safetensors
    refused 75 "GB of memory are left: use a smaller build, or --mmap" gpu-decode -q --device cpu --model vast
    none_failed
}

@test "sm-mcp, sm-endpoint and sm-local" {
    export XDG_STATE_HOME=$PWD/state AWS_ACCESS_KEY_ID=A AWS_SECRET_ACCESS_KEY=s AWS_REGION=us-east-1
    fault_says 9 read 74 "stdin: cannot be read: Input/output error" sm-mcp
    fault_says 9 process 75 "no pipe or process to be had: " sm-mcp
    FAULTY=sm-endpoint
    fault_says 20 process 75 "no pipe or process to be had: Resource temporarily unavailable: end some and try again" sm-endpoint guard -- true
    fault_says 20 open 74 "the lock cannot be opened" sm-endpoint guard -- true
    FAULT_IN=0 fault_says 60 malloc 75 "the environment cannot hold the guard's name: Cannot allocate memory" sm-endpoint guard -- true
    FAULTY=sm-local
    fault_says 20 process 75 "no pipe or process to be had: " sm-local --port 0
    fault_says 20 thread 75 "no thread to be had: end some programs and try again" sm-local --port 0
    fault_says 20 mkdir 74 "cannot make this directory" sm-local --port 0 --state here
    fault_says 20 open 74 "lock: cannot open it" sm-local --port 0 --state here
    TMPDIR=/nowhere refused 74 "cannot make this directory: No such file or directory" sm-local --port 0
    FAULTY=sm-mcp fault_says 9 poll 75 "cannot wait: Cannot allocate memory" sm-mcp
    FAULTY=sm-mcp fault_says 9 link 69 "cannot tell where this program lies: is /proc mounted?" sm-mcp
    FAULTY=sm-endpoint fault_says 9 lock 74 "cannot be locked: No locks available" sm-endpoint guard -- true
    FAULTY=gpu-serve fault_says 9 malloc 75 "cannot be looked up: Memory allocation failure" gpu-serve --model "$(model gemma3)" --port 0
    mkdir alone
    cp "$BIN/sm-mcp" alone
    refused 69 "beside it: install q4sweep whole" alone/sm-mcp
    none_failed
}
