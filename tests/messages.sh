#!/bin/bash
# Which error messages of the sources no test produces.
#
# usage: tests/messages.sh              those whose words no test asserts (messages.awk says what that means); exit status 1 when there are any
#        tests/messages.sh --reached    those that no run of CONFIG=cov has made, whatever the tests assert: make coverage first
set -euo pipefail
cd "$(dirname "$0")/.."

asserted() {
    local sources tests
    mapfile -t sources < <(find src cuda \( -name '*.c' -o -name '*.cu' \) | sort)
    mapfile -t tests < <(find tests -maxdepth 2 \( -name '*.bats' -o -name '*.bash' -o -path 'tests/unit/*.c*' \) ! -path '*/tools/*' ! -path '*/bench/*' | sort)
    awk -f tests/messages.awk "${sources[@]}" tests=1 "${tests[@]}"
}

# gcov -bc: "count:line:text", then "call N returned M" or "call N never executed" for each call on that line.  A call that spreads over lines is counted on its
# first; the text is joined up to the semicolon.
reached() {
    local notes
    notes=$(find build/cov/src -name '*.gcno' 2>/dev/null)
    [ -n "$notes" ] || { echo "messages.sh: nothing was built to count: make coverage" >&2; exit 66; }
    xargs -n 16 gcov -bcmt <<<"$notes" 2>/dev/null | awk '
        function flush() {
            if (text ~ /(^|[^a-z_])(err_set|err_errno|die_msg|warn_msg|opt_usage|REFUSE|refuse|jscan_fail|say|fault|bad_schema)\(/ && text ~ /"/ && text !~ /EXIT_BUG/ && file ~ /^src/) {
                n++
                if (calls && never == calls || !calls && dead || never && text ~ /(^|[^=!<>])(if|for|while) ?\(/) { printf "%s:%d: %s\n", file, line, substr(text, 1, 200); unmade++ }
            }
            text = ""
        }
        /^ *-: *0:Source:/ { flush(); file = $0; sub(/.*Source:/, "", file); next }
        /^call/ { calls++; if (/never executed/) never++; next }
        /^(branch|function|unconditional)/ { next }
        {
            split($0, part, ":"); number = part[2] + 0
            body = $0; sub(/^[^:]*:[^:]*:/, "", body); sub(/^ +/, "", body)
            is_dead = part[1] ~ /=====|#####/
            if (text != "" && open) { text = text " " body } else { flush(); text = body; line = number; calls = never = 0; dead = is_dead }
            open = body !~ /[;{}]$/
        }
        END { flush(); printf "messages: %d that no run has made, of %d\n", unmade, n }'
}

if [ "${1:-}" = --reached ]; then reached; else asserted; fi
