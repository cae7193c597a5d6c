# The error messages of C sources that no test names (messages.sh): awk -f messages.awk SOURCE… tests=1 TEST…
#
# A message is a call that makes one (CALL).  A test names it by a run of its words that no other message has: three to six of them between two formats, or all where it
# has fewer.  The program's own faults (EXIT_BUG) are no messages that a test could produce, and a call without words passes on another's message.

BEGIN {
    CALL = "(^|[^A-Za-z_])(err_set|err_errno|die_msg|warn_msg|opt_usage|REFUSE|jscan_fail|refuse|say|fault|bad_schema)[(]"
    FORMAT = "%[-+ #0-9.*]*(hh|h|ll|l|z|j|t)?[a-zA-Z%]"
}

# The words of a text, from word[1] on.
function split_words(text, word) {
    gsub(/\\[nt"\\]/, " ", text)
    gsub(/[^A-Za-z0-9_]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return split(text, word, " ")
}

# Every run of `from` to six words of a piece of message m is a key of it; one that another message has as well is nobody's.
function add_keys(m, piece, from,    n, word, i, j, key) {
    n = split_words(piece, word)
    for (i = 1; i <= n; i++) {
        key = ""
        for (j = i; j <= n && j < i + 6; j++) {
            key = key " " word[j]
            if (j - i + 1 < from) continue
            if (!(key in owner)) owner[key] = m
            else if (owner[key] != m) owner[key] = "several"
        }
    }
}

function add_message(call,    text, literal, piece, n, i, most, words_) {
    if (call ~ /EXIT_BUG/) return
    text = ""
    while (match(call, /"([^"\\]|\\.)*"/)) {
        literal = substr(call, RSTART + 1, RLENGTH - 2)
        call = substr(call, RSTART + RLENGTH)
        gsub(FORMAT, "\n", literal)
        text = text "\n" literal
    }
    most = 0
    n = split(text, piece, "\n")
    for (i = 1; i <= n; i++) if ((words_ = split_words(piece[i], unused)) > most) most = words_
    if (most == 0) return
    gsub(/\n+/, " % ", text)
    messages++
    # The same words at two places are one message.
    if (!(text in id)) { id[text] = messages; where[messages] = FILENAME ":" FNR; said[messages] = text }
    else where[id[text]] = where[id[text]] " " FILENAME ":" FNR
    for (i = 1; i <= n; i++) add_keys(id[text], piece[i], most < 3 ? most : 3)
}

# How far a call goes whose parenthesis is already open; 0: beyond this text.
function call_end(text,    i, c, depth, quote) {
    depth = 1
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\\") i++
        else if (c == "\"") quote = !quote
        else if (quote) continue
        else if (c == "'") i += substr(text, i + 1, 1) == "\\" ? 3 : 2
        else if (c == "(") depth++
        else if (c == ")" && --depth == 0) return i
    }
    return 0
}

FNR == 1 { open = "" }
!tests {
    if ($0 ~ /^ *(\/?\*|\/\/)/) next
    open = open == "" ? $0 : open " " $0
    while (open != "") {
        if (!match(open, CALL)) { open = ""; break }
        rest = substr(open, RSTART + RLENGTH)
        if (!(end = call_end(rest))) { open = substr(open, RSTART); break }
        add_message(substr(rest, 1, end))
        open = substr(rest, end + 1)
    }
    next
}

/^ *(#|\/?\*|\/\/)/ { next }
{
    n = split_words($0, word)
    for (i = 1; i <= n; i++) {
        key = ""
        for (j = i; j <= n && j < i + 6; j++) {
            key = key " " word[j]
            if (key in owner) named[owner[key]] = 1
        }
    }
}

END { 
    for (m = 1; m <= messages; m++) {
        if (!(m in said) || m in named) continue
        print where[m] ":" said[m]
        left++
    }
    for (m in said) all++
    printf "messages: %d that no test names, of %d\n", left, all
    exit left > 0
}
