# shellcheck shell=bash disable=SC2154
# What the targets that serve by an endpoint have in common: one under `sm-endpoint guard`, for as long as it is wanted.  Sourced; the target gives
#
#   target, role, state, out      its name, the endpoint's role, where its state lies, where the meter is written
#   enter                         a function: put into the environment what every step needs
#   offer BUILD NAME              … make the build readable for the endpoint; print its s3:// place
#   withdraw NAME                 … it is not needed any more
#   machine, engine               … JSON objects: what it runs on, what serves (`client` asks the endpoint)

# shellcheck source=pipelines/host.bash
. "$root/pipelines/host.bash"

die() { local code=$1; shift; echo "$target: $*" >&2; exit "$code"; }

first_region() { local list=${REGION:-us-east-2}; echo "${list%%,*}"; }

client_env() {
    local v
    for v in AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_EC2_METADATA_DISABLED AWS_PROFILE XDG_STATE_HOME; do
        if [ -n "${!v:-}" ]; then printf 'export %s=%q\n' "$v" "${!v}"; fi
    done
}

# --- the endpoint ---

held() { recorded "$state/pid"; }       # the process whose end ends the endpoint

guarded() { [ ! -e "$state/guard.rc" ] && recorded "$state/guard" >/dev/null; }

endpoint_name() {       # BUILD: a name of its own for each run
    local name
    name=$(basename "$1" | tr -c 'A-Za-z0-9\n' - | tr -s - | cut -c 1-30)
    printf 'q4-%s-%s' "${name%-}" "$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')"
}

# Run by the guard: bring it up, and stay as long as it is wanted.
hold() {        # NAME UNTIL_EOF MODEL [OPTION]...
    local name=$1 until_eof=$2 model=$3 rc=0
    shift 3
    record $$ "$state/pid"
    "$bin/sm-endpoint" up "$name" --model "$model" --instance "${INSTANCE:-ml.g6.xlarge}" --region "${REGION:-us-east-2}" --role "$role" \
        --expires "${EXPIRES:-2h}" ${SCHEDULE_ROLE:+--schedule-role "$SCHEDULE_ROLE"} "$@" </dev/null >"$state/endpoint.part" || rc=$?
    [ "$rc" -ne 0 ] || mv "$state/endpoint.part" "$state/endpoint"
    echo "$rc" >"$state/rc"
    [ "$rc" -eq 0 ] || exit "$rc"
    if $until_eof; then exec cat >/dev/null; else exec sleep infinity; fi
}

said=0          # bytes of the log that were shown
say_log() {     # what came to the log since: states with their age and cost
    tail -c "+$((said + 1))" "$state/log" >&2
    said=$(stat -c %s "$state/log")
}

up() {
    local build name model rc until_eof=false i
    [ $# -ge 1 ] || die 64 "up: the build directory is missing"
    build=$1
    shift
    [ -d "$build" ] || die 66 "$build: no such directory"
    if held >/dev/null; then die 64 "$(cat "$state/build") is up already: take it down first"; fi
    if [ "${1:-}" = --until-eof ]; then
        until_eof=true
        shift
        exec 3<&0
    else
        exec 3</dev/null
    fi
    mkdir -p "$state"
    rm -f "$state"/{endpoint,endpoint.part,pid,rc,guard,guard.rc,meter}
    realpath "$build" >"$state/build"
    enter
    client_env >"$state/env"
    name=$(endpoint_name "$build")
    echo "$name" >"$state/name"
    model=$(offer "$build" "$name") || exit
    touch "$state/log"
    said=$(stat -c %s "$state/log")
    # The guard is no child of ours that a signal to our group would reach.
    export Q4STATE=$state
    setsid bash -c 'rc=0; "$@" || rc=$?; echo "$rc" >"$Q4STATE/guard.rc"' guard "$bin/sm-endpoint" guard -- "$0" hold "$name" "$until_eof" "$model" "$@" <&3 3<&- >>"$state/log" 2>&1 &
    record $! "$state/guard"
    exec 3<&-
    for ((i = 1; ; i++)); do
        if [ -e "$state/rc" ]; then break; fi
        guarded || { say_log; die 70 "the guard ended before the endpoint was up"; }
        sleep 0.1
        if ((i % 10 == 0)); then say_log; fi
    done
    say_log
    rc=$(cat "$state/rc")
    if [ "$rc" != 0 ]; then
        down || true
        die "$rc" "the endpoint did not come up"
    fi
}

# --- facts, meter ---

asked=          # NAME@REGION that facts is asked about; else the endpoint that is up

split_endpoint() { IFS=@ read -r name region <<<"${asked:-$(cat "$state/endpoint")}"; }

client() {      # VERB: sm-endpoint about the endpoint, with the environment that up noted
    local name region
    split_endpoint
    # shellcheck disable=SC1091
    (if [ -z "$asked" ]; then . "$state/env"; fi; exec "$bin/sm-endpoint" "$1" "$name" ${region:+--region "$region"} "${@:2}" 3<&-)
}

price() {       # REGION INSTANCE: USD an hour, or null
    jq --arg r "$1" --arg i "$2" '.usd_per_hour as $p | $p[$r][$i] // $p[.reference_region][$i] // null' "$root/data/prices.json"
}

facts() {
    local region status instance
    asked=${1:-}
    [ -n "$asked" ] || held >/dev/null || die 66 "nothing is up"
    status=$(client status --json)
    instance=$(jq -r .instance <<<"$status") region=$(jq -r .region <<<"$status")
    client facts | jq --argjson machine "$(machine)" --argjson engine "$(engine)" --arg instance "$instance" --arg region "$region" \
        --argjson usd "$(price "$region" "$instance")" \
        '{machine: ($machine + {instance: $instance, region: $region, usd_per_hour: $usd}),
          engine: ($engine + {version: .engine_version, max_model_len, weights_gib, load_s, kv_tokens, max_concurrency, peak_activation_gib, starts})}'
}

# What the cloud's meter would show by now.
read_meter() {
    local name region
    [ -e "$state/endpoint" ] || return 0
    split_endpoint
    client status --json 2>/dev/null | jq -c --arg build "$(cat "$state/build")" --arg now "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
        '{time: $now, name, region, instance, build: $build, seconds: .age_s, usd}' >"$state/meter" || rm -f "$state/meter"
}

write_meter() {
    if [ -s "$state/meter" ]; then
        mkdir -p "$out"
        cat "$state/meter" >>"$out/meter.jsonl"
        jq -r --arg target "$target" '"\($target): \(.name)@\(.region) ran \(.seconds) s on \(.instance): \(if .usd then "USD \(.usd * 10000 | round / 10000) on the meter" else "price unknown" end)"' "$state/meter" >&2
    fi
}

# Until the guard has deleted what there was; where that takes long, what it says of it is shown.
await_guard() {
    local i=0
    while guarded; do
        sleep 0.1
        if ((++i == 50)); then echo "$target: $(cat "$state/name"): waiting until it is deleted, which cannot be while it is Creating; that goes on also without this process" >&2; fi
        if ((i >= 50 && i % 10 == 0)); then say_log; fi
    done
    if ((i >= 50)); then say_log; fi
}

# The guard ended as the command did that it ran, or because of what it could not delete.
all_deleted() {
    local rc
    rc=$(cat "$state/guard.rc")
    [ "$rc" -eq 0 ] || [ "$rc" -ge 128 ] || [ "$rc" = "$(cat "$state/rc" 2>/dev/null)" ]
}

down() {
    local pid rc=0
    if [ -e "$state/guard" ]; then
        read_meter
        said=$(stat -c %s "$state/log")
        if pid=$(held); then kill "$pid" 2>/dev/null || true; fi
        await_guard
        if held >/dev/null || [ ! -e "$state/guard.rc" ]; then
            echo "$target: the guard did not end as it should: deleting its endpoint from here" >&2
            write_meter
            remove
            return
        fi
        if all_deleted; then
            write_meter
        else
            rc=$(cat "$state/guard.rc")
            say_log
        fi
    fi
    if [ -s "$state/name" ]; then withdraw "$(cat "$state/name")"; fi
    rm -f "$state"/{name,pid,rc,guard,guard.rc,endpoint,endpoint.part,env,build,meter}
    return "$rc"
}

# What the state directory names, from any machine: whoever held it is not asked, and may be dead.
remove() {
    local name
    [ -s "$state/name" ] || return 0
    name=$(cat "$state/name")
    enter
    if [ -s "$state/endpoint" ]; then
        asked=$(cat "$state/endpoint")
        read_meter
    fi
    "$bin/sm-endpoint" delete "$name" --region "${REGION:-us-east-2}" || die $? "$name: may still be there: sm-endpoint list shows what runs"
    write_meter
    withdraw "$name"
    rm -rf "$state"
}

# How many endpoints the account may have at a time, of the types and in the regions that are asked for.
places() {
    local quota
    enter
    quota=$("$bin/sm-endpoint" quota --json --instance "${INSTANCE:-ml.g6.xlarge}" --region "${REGION:-us-east-2}") || [ $? -eq 1 ] || exit
    jq -s 'map(.quota) | add // 0 | if . < 1 then 1 else . end' <<<"$quota"
}

main() {
    local verb=${1:-}
    [ $# -eq 0 ] || shift
    case $verb in
        up) up "$@" ;;
        hold) hold "$@" ;;
        url)
            held >/dev/null || die 66 "nothing is up"
            cat "$state/endpoint" ;;
        facts) facts "$@" ;;
        down) down ;;
        remove) remove ;;
        places) places ;;
        ready) enter ;;
        -h | --help) sed -n '2,/^set /{/^# \{0,1\}/s///p}' "$0" ;;
        *) die 64 "${verb:-no verb}: expected up, url, facts, down, remove, places or ready" ;;
    esac
}
