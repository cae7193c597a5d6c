#!/usr/bin/env bats
# make sweep RUN=slurm on a real cluster of one node (tests/slurm-node.sh): chains as jobs, and whatever ends a job, no endpoint stays.
# run alone
load lib
load cloud

QUICK='--short 4 --long 8 --repeats 1 --parallel-tokens 4 --batches 1 --concurrency 1 --parts replies'

able() { [ "$(id -u)" = 0 ] && command -v slurmctld slurmd munged sbatch >/dev/null; }

setup_file() {
    able || return 0
    SLURM_GPUS=2 "$ROOT/tests/slurm-node.sh" start "$BATS_FILE_TMPDIR/slurm" >"$BATS_FILE_TMPDIR/environment" 3>&-
}

teardown_file() {
    if able; then "$ROOT/tests/slurm-node.sh" stop "$BATS_FILE_TMPDIR/slurm"; fi
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset "${!AWS_@}" XDG_STATE_HOME MAKEFLAGS MAKELEVEL
    able || skip "slurmctld, slurmd and munged are not installed, or this is not root: apt-get install slurm-wlm munge"
    # shellcheck disable=SC1091
    . "$BATS_FILE_TMPDIR/environment"
    need_program sm-local sm-endpoint sm-invoke gpu-serve st-synth st-extract q4-regrid emb-untie ct-pack ct-check tabulate
    OUT=$PWD/out
}

teardown() {
    [ -z "${JOB:-}" ] || kill -9 -- -"$JOB" 2>/dev/null || true
    [ -z "${LOCAL:-}" ] || { kill "$LOCAL" && wait "$LOCAL"; } 2>/dev/null || true
    if able; then
        scancel --me 2>/dev/null || true
        pgrep -F "$BATS_FILE_TMPDIR/slurm/slurmd.pid" >/dev/null 2>&1 || slurmd -f "$SLURM_CONF" 3>&-         # a node that died comes back
        for _ in $(seq 100); do if sinfo -h -o %T | grep -qx idle; then break; fi; sleep 0.1; done
    fi
}

sweep() {       # VARIABLE=VALUE…
    make -s -C "$ROOT" CONFIG="$Q4CONFIG" sweep RUN=slurm MODEL="$(model e2b)" BUILDS=text OUT="$OUT" MEASURE="$QUICK" "$@"
}

# A sweep in a process group of its own: JOB.  What it says is in sweep.log.
begin() {       # VARIABLE=VALUE…
    set -m
    sweep TARGET=rehearsal "$@" >/dev/null 2>sweep.log 3>&- &
    JOB=$!
    set +m
    until_up
}
LONG='--parts load --rates 0.5 --load-seconds 100'

ended() {       # STATUS
    local rc=0
    wait "$JOB" || rc=$?
    [ "$rc" -eq "$1" ]
}

endpoints() { jq '[.regions[]?.endpoint // {} | keys[]] | length' account/state.json; }

until_up() {
    for _ in $(seq 300); do [ "$(endpoints 2>/dev/null || echo 0)" = 0 ] || return 0; sleep 0.1; done
    return 1
}

until_gone() {
    for _ in $(seq 300); do if [ "$(endpoints)" = 0 ] && ! pgrep -P "$LOCAL" >/dev/null; then return 0; fi; sleep 0.2; done
    return 1
}

job_of() { squeue --me -h -n "q4-$(basename "$(model e2b)")-text" -o %A; }

@test "two builds are two jobs with a GPU and a time limit each; results and table are as without; nothing stays" {
    run -0 --separate-stderr sweep BUILDS="text emb4" JOB_GPUS=1 JOB_TIME=0:30:00
    [[ $output = *"| text |"*"| emb4 |"* ]]
    [[ $stderr = *"text: job "*"emb4: job "* ]]
    local job
    for job in $(sed -n 's/^slurm: [a-z0-9]*: job \([0-9]*\)$/\1/p' <<<"$stderr"); do
        scontrol -o show job "$job" | grep 'JobState=COMPLETED' | grep 'TimeLimit=00:30:00' | grep -q 'gres:gpu:1'
    done
    holds '.build == "emb4" and .target == "local"' out/*/emb4.json
    grep -q 'measure' out/*/text.slurm.log
    [ -z "$(squeue --me -h)" ]
    [ -z "$(find out -name '.*.state')" ]
    ! pgrep -f "gpu-serve --model $OUT" >/dev/null || false
}

@test "a job that is refused, a runner that does not exist, no Slurm" {
    run -2 --separate-stderr sweep JOB_OPTIONS=--partition=none
    [[ $stderr = *"text: sbatch refused the job"* ]]
    run -2 --separate-stderr sweep JOB_GPUS=many
    [[ $stderr = *"JOB_GPUS many: expected a number"* ]]
    run -2 --separate-stderr sweep RUN=cloud
    [[ $stderr = *"RUN=cloud: expected slurm"* ]]
}

@test "cancelled while the endpoint is being created: it is deleted once that is possible; the sweep fails and says so" {
    account --fault lag:20m --speed 120
    begin
    scancel "$(job_of)"
    ended 2
    grep -q 'text: job [0-9]*: CANCELLED' sweep.log
    until_gone
    [ -z "$(find out -name '.*.state')" ]
    [ -z "$(squeue --me -h)" ]
}

@test "the node dies with the endpoint up: it is deleted from the machine that submitted" {
    account --speed 600
    begin MEASURE="$LONG"
    until grep -q 'measure$' out/*/text.slurm.log; do sleep 0.1; done
    "$ROOT/tests/slurm-node.sh" kill "$BATS_FILE_TMPDIR/slurm"
    [ "$(endpoints)" = 1 ]
    ended 2
    grep -q 'text: job [0-9]*: NODE_FAIL' sweep.log
    until_gone
    holds '.name | startswith("q4-text-")' out/meter.jsonl
}

@test "make told to end: its jobs are cancelled, the endpoint is deleted" {
    account --speed 600
    begin MEASURE="$LONG"
    kill -TERM -- -"$JOB"
    wait "$JOB" || true
    until_gone
    for _ in $(seq 100); do [ -n "$(squeue --me -h)" ] || break; sleep 0.1; done
    [ -z "$(squeue --me -h)" ]
}

# All processes of the job, and of this account; the node's own live.
kill_job() {
    local p variables all=()
    for p in $(ps -e -o pid=); do
        variables=$({ tr '\0' '\n' <"/proc/$p/environ"; } 2>/dev/null) || continue
        if grep -qxF "AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL" <<<"$variables" && grep -q '^SLURM_JOB_ID=' <<<"$variables"; then all+=("$p"); fi
    done
    kill -9 "${all[@]}"                 # at once: none may notice that another is gone
}

@test "the machine that submitted is gone, and all of the job is killed: the job that waits for its end deletes the endpoint" {
    account --speed 600
    begin MEASURE="$LONG"
    for _ in $(seq 200); do if pgrep -f 'sm-invoke --endpoint q4-text-.* --rate 0.5' >/dev/null; then break; fi; sleep 0.1; done   # nothing new is started for a while
    sleep 0.5
    kill -9 -- -"$JOB"
    pkill -9 -f "pipelines/slurm $(model e2b)" || true
    kill_job
    [ "$(endpoints)" = 1 ]
    until_gone
}

@test "the guard is killed, the chain is not: it deletes the endpoint itself" {
    account --speed 600
    begin MEASURE="$LONG"
    pkill -9 -f "sm-endpoint guard -- .*/targets/rehearsal hold q4-text-"
    ended 2
    until_gone
    grep -q 'deleting its endpoint from here' sweep.log
}
