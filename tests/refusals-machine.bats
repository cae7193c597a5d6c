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
    says 40 open 74 "cannot create: Too many open files"
    says 60 write 74 "cannot make it"
    says 9 stat 74 "cannot ask for free space"
    says 9 stat 74 "d: cannot be looked for"
    rm -rf d
    mkdir d
    says 9 list 74 "d: exists, and cannot be looked at"
    none_failed
}
