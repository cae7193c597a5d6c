#!/bin/bash
# Does cuda/Dockerfile make a container that serves?  Without a container engine: its steps run by chroot in minimal Debian roots, a fresh one for each stage, its entry is
# started as SageMaker would start it, on a nano build, and asked.  Bases other than Debian and the GPU are what this cannot show: the engine is the CPU's there.
#
# usage: tests/container.sh BUILD_DIR        needs root, debootstrap and a mirror (tests/debian-root.bash)
set -eu -o pipefail
export LC_ALL=C.UTF-8

repository=$(realpath "$(dirname "$0")/..")
[ -f "${1:-}/config.json" ] || { echo "usage: tests/container.sh BUILD_DIR" >&2; exit 64; }
build=$(realpath "$1")
# shellcheck source=tests/debian-root.bash
. "$repository/tests/debian-root.bash"

fail() { echo "container.sh: $*" >&2; exit 1; }

# --- the Dockerfile: instructions on one line each, carried out in the root of their stage ---

declare -A stage=() variable=()
directory=/ entry=() command=() environment=()

expand() {              # TEXT: ${NAME} of ARG and ENV
    local text=$1 name
    for name in "${!variable[@]}"; do text=${text//\$\{$name\}/"${variable[$name]}"}; done
    printf '%s\n' "$text"
}

from() {                # BASE [AS NAME]
    local base
    base=$(expand "$1")
    [[ $base = *:* ]] || fail "FROM $base: no version"
    echo "container.sh: FROM $base: a minimal Debian instead"
    root=$work/stage${#stage[@]}
    cp -a --one-file-system "$work/bare" "$root"
    directory=/ environment=()
    stage[${3:-last}]=$root
}

copy() {                # [--from=STAGE] SOURCE… DESTINATION
    local from=$repository to=${*: -1} source
    if [[ $1 = --from=* ]]; then from=${stage[${1#--from=}]}; shift; fi
    [[ $to = /* ]] || to=$directory/$to
    for source in "${@:1:$#-1}"; do
        mkdir -p "$(dirname "$root$to")"
        if [ -d "$from/$source" ]; then mkdir -p "$root$to"; cp -r "$from/$source/." "$root$to/"
        elif [[ $to = */ || $to = */. ]]; then mkdir -p "$root$to"; cp "$from/$source" "$root$to/"
        else cp "$from/$source" "$root$to"; fi
    done
}

run() { with_devices inside env "${environment[@]}" sh -c "cd $directory && $*"; }

with_devices() {        # a process file system and devices, for one command
    local rc=0
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev"
    mounted=("$root/dev" "$root/proc" "${mounted[@]}")
    "$@" || rc=$?
    umount -l "$root/dev" "$root/proc"
    mounted=("${mounted[@]:2}")
    return "$rc"
}

instruction() {         # WORD REST
    local words
    read -ra words <<<"$2"
    case $1 in
        ARG) [[ $2 = *=* ]] || fail "ARG $2: no default"; variable[${2%%=*}]=$(expand "${2#*=}") ;;
        FROM) from "${words[@]}" ;;
        WORKDIR) directory=$2; mkdir -p "$root$2" ;;
        COPY) copy "${words[@]}" ;;
        RUN) run "$2" ;;
        ENV) environment+=("${words[@]}") ;;
        EXPOSE) [ "$2" = 8080 ] || fail "EXPOSE $2: SageMaker asks 8080" ;;
        ENTRYPOINT) mapfile -t entry < <(jq -r '.[]' <<<"$2") ;;       # the exec form, or jq says no
        CMD) mapfile -t command < <(jq -r '.[]' <<<"$2") ;;
        *) fail "$1: an instruction that this script does not know" ;;
    esac
}

# --- asking ---

ask() { inside_net curl -s -m 30 "$@"; }
inside_net() { nsenter --net="/proc/$server/ns/net" "$@"; }

serving() {
    local i status
    for ((i = 0; i < 300; i++)); do
        status=$(ask -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/ping) || true
        [ "$status" != 200 ] || return 0
        kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; fail "the server has ended"; }
        sleep 0.1
    done
    fail "/ping is not 200 after 30 s, but $status"
}

check() {
    local answer rc=0
    serving
    answer=$(ask -w '\n%{http_code}' http://127.0.0.1:8080/invocations -H 'Content-Type: application/json' -H 'X-Amzn-SageMaker-Custom-Attributes: x' \
        -d '{"prompt_ids": [2, 7, 9], "max_tokens": 4, "temperature": 0}')
    [ "$(tail -n 1 <<<"$answer")" = 200 ] || fail "/invocations: $answer"
    head -n 1 <<<"$answer" | jq -e '.usage.completion_tokens == 4' >/dev/null || fail "/invocations: $answer"
    ask -N http://127.0.0.1:8080/invocations -H 'Content-Type: application/json' -d '{"prompt_ids": [2, 7], "max_tokens": 3, "temperature": 0, "stream": true}' |
        grep -cx 'data: \[DONE\]' >/dev/null || fail "/invocations does not stream"
    kill -TERM "$server"
    wait "$server" || rc=$?
    [ "$rc" -eq 0 ] || { cat "$work/log" >&2; fail "SIGTERM: exit status $rc"; }
}

debian_root
for fs in "${mounted[@]}"; do umount -l "$fs"; done
mounted=()
mv "$root" "$work/bare"
while IFS= read -r line; do
    instruction "${line%% *}" "${line#* }"
done < <(sed -e '/^[[:space:]]*#/d' -e '/^[[:space:]]*$/d' "$repository/cuda/Dockerfile" | sed -e ':a' -e '/\\$/N; s/\\\n//; ta')

mkdir -p "$root/opt/ml/model"
mount --bind "$build" "$root/opt/ml/model"
mount -o remount,ro,bind "$root/opt/ml/model"
mounted=("$root/opt/ml/model")
[ "${command[*]}" = serve ] || fail "CMD ${command[*]}: expected serve"
# A network of its own, so that 8080 is free whatever runs here; the entry takes the shell's place, as the container's first process.
unshare --net bash -c 'ip link set lo up && exec chroot "$@"' bash "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin "${environment[@]}" SM_GPU_SERVE_BATCH=2 "${entry[@]}" serve \
    >"$work/log" 2>&1 </dev/null &
server=$!
check
echo "container.sh: /ping, /invocations, a stream and SIGTERM as SageMaker wants them"
