# shellcheck shell=bash
# bash completion for q4sweep's programs: what their --help says, asked at that moment, so that it is never out of date.
_q4sweep() {
    local word=$2 previous=$3 help command=("$1") choices=
    COMPREPLY=()
    # The front's other words belong to the script that the first one names; to make's targets, its own help.
    if [[ ${1##*/} = q4sweep && $COMP_CWORD -gt 1 ]]; then command+=("${COMP_WORDS[1]}"); fi
    if [[ ${command[1]:-} = @(sweep|pair|report) ]]; then
        if [[ $word = *=* || $word = '=' || $previous = '=' ]]; then return 0; fi
        choices=$("$1" --help 2>/dev/null | sed -nE "/^variables of .*${command[1]}/,/^[^ ]/{/^  [A-Z]/{s/^  ([A-Z_, ]*[A-Z])(=.*|\$)/\1/; s/,//g; p}}" | sed -E 's/([A-Z_]+)/\1=/g')
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
        return 0
    fi
    help=$("${command[@]}" --help 2>/dev/null </dev/null) || return 0
    if [[ $previous = --* ]]; then
        choices=$(sed -nE "s/^ +(-[a-z], )?$previous ([a-z0-9_]+([|][a-z0-9_]+)+)( .*|\$)/\2/p" <<<"$help")
    elif [[ $word = -* ]]; then
        choices=$(sed -nE 's/^ +((-[a-z]), )?(--[a-z0-9-]+).*/\2 \3/p' <<<"$help")
        # A script that has no list of options names them in its text.
        if [ -z "$choices" ]; then choices=$(grep -oE -e '--[a-z][a-z-]+' <<<"$help" | sort -u); fi
    elif [[ $COMP_CWORD -eq ${#command[@]} ]]; then     # the verb, where there are some
        choices=$(sed -nE 's/^(usage:|      ) ([a-z0-9-]+) ([a-z0-9]+([|][a-z0-9]+)*)( .*|$)/\3/p; s/^  pipelines\/targets\/[a-z]+ ([a-z]+)( .*|$)/\1/p' <<<"$help")
    fi
    mapfile -t COMPREPLY < <(compgen -W "${choices//|/ }" -- "$word")
}
