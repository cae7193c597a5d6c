#!/bin/bash
# Kill rehearsed sweeps outright at random instants, and see that nothing stays alive.
#
#   tests/kills.sh [COUNT [SEED [ROUND]...]]         10 rounds, a seed of the clock; by hand: tests/kills.sh 50
#
# A round is one `make sweep TARGET=rehearsal` against an sm-local of its own, and a kill -9 of
#
#   make      make alone              group     make's process group
#   guard     the guard alone         watcher   the watcher alone; the sweep goes on and must end well
#   all       everything that the sweep started, at once; then the schedule deletes, and the next run of sm-endpoint cleans the rest
#
# and the same +lag: the container is healthy, but the endpoint stays Creating.  They take turns; ROUND names those that are wanted (guard, all+lag).
# A round passes when no endpoint and no container is left 30 s after the last endpoint left Creating (all: and after its schedule was due), and when config, model,
# schedule, the journal's entry and every process of the sweep go as well.
# Prints a line a round, a summary, and exits 1 when a round failed; a failed round's directory is kept and named.
set -uo pipefail
export LC_ALL=C.UTF-8

root=$(realpath "$(dirname "$0")/..")
config=${Q4CONFIG:-release}
bin=${Q4BIN:-$root/bin}
count=${1:-10} seed=${2:-$(date +%s)}
rounds=("${@:3}")
[ ${#rounds[@]} -gt 0 ] || rounds=({make,group,guard,watcher,all}{,+lag})

SPEED=240               # the cloud's minutes pass this many times faster
LAG=20m                 # 5 s then
EXPIRES_ALL=15          # seconds until the schedule deletes, where nothing else is left to
ALLOWED=30              # seconds from leaving Creating to nothing alive
AFTER=120               # … until all else is gone, too: a creating call that was journalled and never answered is waited for
QUICK='--short 4 --long 8 --repeats 1 --parallel-tokens 4 --batches 1 --question-tokens 2 --concurrency 1,2'

work=$(mktemp -d "${TMPDIR:-/tmp}/kills.XXXXXX")
unset "${!AWS_@}" MAKEFLAGS MAKELEVEL MFLAGS Q4SWEEP_GUARD
export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY AWS_EC2_METADATA_DISABLED=true

now() { date +%s%3N; }                                  # ms
seconds() { awk -v ms="$1" 'BEGIN { print ms / 1000 }'; }
since() { echo $(($(now) - $1)); }

# --- the account ---

local_pid=
start_account() {       # OPTION…
    rm -f url
    "$bin/sm-local" --port 0 --state account --speed "$SPEED" -v "$@" >url 2>sm-local.log </dev/null &
    local_pid=$!
    until [ -s url ]; do kill -0 "$local_pid" || return 1; sleep 0.02; done
    AWS_ENDPOINT_URL=$(cat url)
    export AWS_ENDPOINT_URL
}

stop_account() {
    [ -z "$local_pid" ] || { kill "$local_pid" && wait "$local_pid"; } 2>/dev/null
    local_pid=
}

left() {                # KIND…: how many resources of these kinds the account holds
    jq --args '[.regions[]? | .[$ARGS.positional[]] // {} | length] | add // 0' "$@" <account/state.json 2>/dev/null || echo 1
}
creating() { jq -e '[.regions[]?.endpoint // {} | .[] | .EndpointStatus] | any(. == "Creating")' account/state.json >/dev/null 2>&1; }
containers() { pgrep -P "$local_pid" | wc -l; }

# --- the sweep ---

# Processes of this round: they have its mark in their environment.
marked() {
    local p
    for p in /proc/[0-9]*; do
        if tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qxF "KILLS_MARK=$mark"; then echo "${p#/proc/}"; fi
    done 2>/dev/null
}

# Guards are in the session of a process that lives; watchers' session leaders have ended.
guard_or_watcher() {    # guard | watcher
    local p leader what
    for p in $(marked); do
        [[ $({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null) = *'sm-endpoint guard -- '* ]] || continue
        leader=$(ps -o sid= -p "$p" | tr -d ' ')
        if [ -e "/proc/$leader" ]; then what=guard; else what=watcher; fi
        [ "$what" != "$1" ] || echo "$p"
    done
}

start_sweep() {         # EXPIRES
    mark=$work-$round
    set -m
    env KILLS_MARK="$mark" XDG_STATE_HOME="$PWD/journal" make -s -C "$root" CONFIG="$config" sweep TARGET=rehearsal MODEL="$work/model" BUILDS=text OUT="$work/out" \
        MEASURE="$QUICK" EXPIRES="$1" </dev/null >sweep.out 2>sweep.err &
    job=$!
    set +m
    began=$(now)
}

strike() {              # KIND
    local p i
    case $1 in
        make) kill -9 "$job" ;;
        group) kill -9 -- "-$job" ;;
        guard | watcher)
            p=$(guard_or_watcher "$1")
            [ -n "$p" ] || return 1
            # shellcheck disable=SC2086
            kill -9 $p ;;
        all)
            for ((i = 0; i < 20; i++)); do
                p=$(marked)
                [ -n "$p" ] || break
                # shellcheck disable=SC2086
                kill -9 $p 2>/dev/null
            done ;;
    esac 2>/dev/null
}

# --- a round ---

wait_until() {          # SECONDS COMMAND…
    local end=$(($(now) + $1 * 1000))
    shift
    until "$@"; do
        [ "$(now)" -lt "$end" ] || return 1
        sleep 0.2
    done
}

nothing_alive() { [ "$(left endpoint)" -eq 0 ] && [ "$(containers)" -eq 0 ]; }
no_process() { [ -z "$(marked)" ]; }
no_trace() {
    [ "$(left endpoint endpoint-config model schedule)" -eq 0 ] &&
        jq -se '[.[] | select(.event == "gone") | .name] as $gone | map(select(.event == "intent") | .name) - $gone == []' journal/q4sweep/journal.jsonl >/dev/null 2>&1
}
ended() { ! kill -0 "$job" 2>/dev/null; }

# Until nothing is alive and no process of the sweep is left, which might still ask for an endpoint.
see_it_end() {
    local end=$(($(now) + 300000))
    while [ "$(now)" -lt "$end" ]; do
        if creating; then free_since=$(now); fi
        if nothing_alive; then
            if no_process; then return; fi
        elif [ "$(since "$free_since")" -gt $((ALLOWED * 1000)) ]; then
            echo "$(left endpoint) endpoints, $(containers) containers $(since "$free_since") ms after leaving Creating"
            return 1
        fi
        sleep 0.2
    done
    echo "processes stay: $(marked | xargs -r ps -o pid=,args= -p | head -n 3 | tr '\n' ';')"
    return 1
}

play() {                # KIND INSTANT_MS: true when it passed; says why not
    local kind=$1 instant=$2 rest hit=
    if [ "$kind" = all ]; then start_sweep "${EXPIRES_ALL}s"; else start_sweep 2h; fi
    if [[ $kind = guard || $kind = watcher ]]; then wait_until 120 seen_guard; fi
    rest=$((instant - $(since "$began")))
    [ "$rest" -le 0 ] || sleep "$((rest / 1000)).$(printf %03d $((rest % 1000)))"
    strike "$kind" || hit="(there was none any more) "
    free_since=$(now)
    echo -n "$hit"
    if [ "$kind" = all ]; then free_since=$((began + EXPIRES_ALL * 1000 + 5000)); fi
    if [ "$kind" = watcher ]; then
        wait_until 240 ended || { echo "the sweep does not end"; return 1; }
        wait "$job" || [ -n "$hit" ] || { echo "the sweep failed"; return 1; }
        free_since=$(now)
    fi
    see_it_end || return 1
    [ -e journal/q4sweep/journal.jsonl ] || return 0
    if [ "$kind" = all ]; then XDG_STATE_HOME=$PWD/journal "$bin/sm-endpoint" list --region us-east-2 >next.out 2>&1; fi
    wait_until "$AFTER" no_trace || { echo "left over: $(left endpoint-config) configs, $(left model) models, $(left schedule) schedules"; return 1; }
    nothing_alive || { echo "an endpoint came after all"; return 1; }
}
seen_guard() { ended || [ -n "$(guard_or_watcher guard)" ]; }

one_round() {           # KIND[+lag] INSTANT_MS
    local faults=() text rc=0 dir=$work/$round
    mkdir "$dir"
    cd "$dir" || exit 1
    [[ $1 != *+lag ]] || faults=(--fault "lag:$LAG")
    rm -f "$work"/out/model/*.json
    [ $((round % 5)) -ne 0 ] || rm -rf "$work/out/model"
    start_account "${faults[@]}" || { cat sm-local.log; exit 1; }
    play "${1%+lag}" "$2" >verdict || rc=1
    text=$(tr '\n' ' ' <verdict)
    # shellcheck disable=SC2046
    [ "$rc" -eq 0 ] || kill -9 $(marked) 2>/dev/null
    wait "$job" 2>/dev/null
    stop_account
    cd "$work" || exit 1
    if [ "$rc" -eq 0 ]; then
        rm -rf "$dir"
        printf 'ok   %3d %-12s killed at %5.1f s %s\n' "$round" "$1" "$(seconds "$2")" "$text"
    else
        printf 'FAIL %3d %-12s killed at %5.1f s %s(%s)\n' "$round" "$1" "$(seconds "$2")" "$text" "$dir"
    fi
    return "$rc"
}

finish() {
    # shellcheck disable=SC2046
    kill -9 $(marked) 2>/dev/null
    stop_account
}

[[ $count =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || { echo "kills.sh: expected COUNT and SEED to be numbers" >&2; exit 64; }
mark=none-$$
trap finish EXIT
trap 'exit 130' INT TERM
"$bin/st-synth" --size e2b -o "$work/model" || exit 1

# How long one takes that nobody kills: the instants are drawn from that.  The first one makes the build.
round=0
mkdir "$work/0"
cd "$work/0" || exit 1
for ((i = 0; i < 2; i++)); do
    rm -f "$work"/out/model/*.json
    start_account || exit 1
    start_sweep 2h
    wait_until 240 seen_guard
    guard_at=$(since "$began")
    wait "$job" || { cat sweep.err; echo "kills.sh: the sweep fails by itself" >&2; exit 1; }
    length=$(since "$began")
    stop_account
done
printf 'seed %d; a sweep takes %.1f s, its guard is there after %.1f s\n' "$seed" "$(seconds "$length")" "$(seconds "$guard_at")"

RANDOM=$seed
failed=0
for ((round = 1; round <= count; round++)); do
    kind=${rounds[(round - 1) % ${#rounds[@]}]}
    from=0 to=$((length * 9 / 10))
    [[ $kind != *+lag ]] || to=$((to + 5000))
    [[ $kind != guard* && $kind != watcher* ]] || from=$guard_at
    [[ $kind != all* || $to -lt $((EXPIRES_ALL * 1000 - 2000)) ]] || to=$((EXPIRES_ALL * 1000 - 2000))
    one_round "$kind" "$((from + (RANDOM * 32768 + RANDOM) % (to - from)))" 2>>"$work/stderr" || failed=$((failed + 1))
done
if [ "$failed" -eq 0 ]; then rm -rf "$work"; fi
echo "$count sweeps killed, $failed left something alive"
[ "$failed" -eq 0 ]
