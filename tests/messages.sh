#!/bin/bash
# Which error messages of the sources no test has produced: the calls that make one (err_set, err_errno, die_msg, warn_msg, opt_usage and the like) which no run
# of CONFIG=cov has reached.  Run suites first: make coverage.  What only a broken machine shows (no memory, no process, no thread) is counted apart.
#
# usage: tests/messages.sh [--all]      --all: those as well
set -euo pipefail
cd "$(dirname "$0")/.."

notes=$(find build/cov/src -name '*.gcno' 2>/dev/null)
[ -n "$notes" ] || { echo "messages.sh: nothing was built to count: make coverage" >&2; exit 66; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# gcov -bc: "count:line:text", then "call N returned M" or "call N never executed" for each call on that line.  A call that spreads over lines is counted on its
# first; the text is joined up to the semicolon.
xargs -n 16 gcov -bcmt <<<"$notes" 2>/dev/null | awk '
    function flush() {
        if (text ~ /(^|[^a-z_])(err_set|err_errno|die_msg|warn_msg|opt_usage|REFUSE|fault|die)\(/ && text ~ /"/) {
            n++
            if (calls && never == calls || !calls && dead || never && text ~ /(^|[^=!<>])(if|for|while) ?\(/) { printf "%s:%d: %s\n", file, line, text; unmade++ }
        }
        text = ""
    }
    /^ *-: *0:Source:/ { flush(); file = $0; sub(/.*Source:/, "", file); next }
    /^call/ { calls++; if (/never executed/) never++; next }
    /^(branch|function|unconditional)/ { next }
    {
        split($0, part, ":"); count = part[1]; gsub(/ /, "", count); number = part[2] + 0
        body = $0; sub(/^[^:]*:[^:]*:/, "", body); sub(/^ +/, "", body)
        if (part[1] ~ /=====|#####/) is_dead = 1; else is_dead = 0
        if (text != "" && open) { text = text " " body } else { flush(); text = body; line = number; calls = never = 0; dead = is_dead }
        open = body !~ /[;{}]$/
    }
    END { flush(); printf "%d %d\n", unmade, n >"/dev/stderr" }' >"$work/list" 2>"$work/count"

machine='no memory|out of memory|no process|no pipe|no threads|no more threads|cannot be locked|EXIT_BUG'
grep -vE "$machine" "$work/list" | grep -E '^(src|cuda)/' >"$work/plain" || true
grep -E "$machine" "$work/list" | grep -E '^(src|cuda)/' >"$work/rare" || true
cut -c 1-220 "$work/plain"
if [ "${1:-}" = --all ]; then cut -c 1-220 "$work/rare"; fi
echo "messages: $(wc -l <"$work/plain") that no test produced, and $(wc -l <"$work/rare") that only a broken machine or a bug would, of $(cut -d ' ' -f 2 "$work/count")"
