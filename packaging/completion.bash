# shellcheck shell=bash
# bash completion for q4sweep's programs: what their --help says, asked at that moment, so that it is never out of date.
_q4sweep() {
    local word=$2 previous=$3 help command=("$1") choices=
    COMPREPLY=()
    # The front's other words belong to the script that the first one names.
    if [[ ${1##*/} = q4sweep && $COMP_CWORD -gt 1 ]]; then command+=("${COMP_WORDS[1]}"); fi
    help=$("${command[@]}" --help 2>/dev/null </dev/null) || return 0
    if [[ $previous = --* ]]; then
        choices=$(sed -nE "s/^ +(-[a-z], )?$previous ([a-z0-9_]+([|][a-z0-9_]+)+)( .*|\$)/\2/p" <<<"$help")
    elif [[ $word = -* ]]; then
        choices=$(sed -nE 's/^ +((-[a-z]), )?(--[a-z0-9-]+).*/\2 \3/p' <<<"$help")
    elif [[ $COMP_CWORD -eq ${#command[@]} ]]; then     # the verb, where there are some
        choices=$(sed -nE 's/^(usage:|      ) ([a-z0-9-]+) ([a-z0-9]+([|][a-z0-9]+)*)( .*|$)/\3/p' <<<"$help")
    fi
    mapfile -t COMPREPLY < <(compgen -W "${choices//|/ }" -- "$word")
}
