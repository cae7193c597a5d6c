# What every program owes its user, over all programs in bin/ (cli.table).
load lib
load examples

setup() { fresh; }

# Each program once.
programs() { examples "$@" | cut -d ' ' -f 1 | sort -u; }

@test "the table names every program in bin/, and no other" {
    diff <(find "$BIN" -mindepth 1 -maxdepth 1 -type f -executable -printf '%f\n' | sort) <(programs)
}

@test "--help and -h: 0, on stdout, with a usage line" {
    local option
    ARGS=()
    for PROGRAM in $(programs); do
        for option in --help -h; do
            STDIN=/dev/null invoke "$option"
            expect_status 0 "$option"
            [[ $(head -n 1 stdout) = "usage: $PROGRAM"* ]] || fault "$option: does not begin with a usage line"
            grep -q -e '--version' stdout || fault "$option: does not name --version"
            [ ! -s stderr ] || fault "$option: writes to stderr"
        done
    done
    no_faults
}

@test "--help: every usage line names the program once, examples stand two columns in" {
    local line
    ARGS=()
    for PROGRAM in $(programs); do
        STDIN=/dev/null invoke --help
        while IFS= read -r line; do
            [[ $line =~ ^(usage:|\ {6})\ $PROGRAM\ [^\ ] && $line != *" $PROGRAM "*" $PROGRAM "* ]] || fault "usage line: $line"
        done < <(sed '/^$/,$d' stdout)
        while IFS= read -r line; do [[ $line = "  "[^\ ]* ]] || fault "example: $line"; done < <(sed -n '/^examples:$/,/^$/p' stdout | sed '1d;$d')
    done
    no_faults
}

@test "--version: 0, the version on stdout" {
    ARGS=()
    for PROGRAM in $(programs); do
        STDIN=/dev/null invoke --version
        expect_status 0 --version
        grep -qwF -- "$PROGRAM" stdout && grep -qwF -- "$(cat "$ROOT/VERSION")" stdout || fault "--version printed: $(cat stdout)"
        [ ! -s stderr ] || fault "--version: writes to stderr"
    done
    no_faults
}

@test "options after operands, whatever POSIXLY_CORRECT says; programs that are started see it as it was" {
    local dir
    dir=$(model gemma3)
    diff <("$BIN/st-extract" --list "$dir") <(POSIXLY_CORRECT=1 "$BIN/st-extract" "$dir" --list)
    # shellcheck disable=SC2016
    [ "$(POSIXLY_CORRECT=yes XDG_STATE_HOME=$PWD "$BIN/sm-endpoint" guard -- sh -c 'echo "$POSIXLY_CORRECT"' 2>/dev/null)" = yes ]
}

@test "an unknown option: 64, one line, nothing on stdout" {
    ARGS=()
    for PROGRAM in $(programs); do
        for option in --no-such-option -Z; do
            STDIN=/dev/null invoke "$option"
            expect_status 64 "$option"
            [ ! -s stdout ] || fault "$option: writes to stdout"
            [ "$(wc -l <stderr)" -eq 1 ] || fault "$option: expected one line on stderr"
            expect_message "$option"
        done
    done
    no_faults
}

@test "every example works: 0, stderr empty, nothing left behind" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        invoke
        expect_status 0 "the example"
        [ ! -s stderr ] || fault "a success that writes to stderr"
        mapfile -t made < <(results)
        expect_only "the example" stdout stderr "${made[@]}"
    done 9< <(examples stream pack lines make report)
    no_faults
}

@test "a full disk under stdout: 74" {
    local line option
    while read -r line <&9; do
        parse "$line" || continue
        [[ $KIND = pack || " ${ARGS[*]} " = *" out "* ]] && continue
        STATUS=0
        "$BIN/$PROGRAM" "${ARGS[@]}" <"$STDIN" >/dev/full 2>stderr || STATUS=$?
        expect_status 74 "/dev/full"
        expect_message "/dev/full"
        rm -rf report
    done 9< <(examples stream lines make report)
    ARGS=()
    for PROGRAM in $(programs); do
        for option in --help --version; do
            STATUS=0
            "$BIN/$PROGRAM" "$option" </dev/null >/dev/full 2>stderr || STATUS=$?
            expect_status 74 "$option to /dev/full"
        done
    done
    no_faults
}

# A faulty stream, from a file and from a pipe: 65, a message, no result.
expect_bad_data() { # WHAT
    local way
    for way in file pipe; do
        rm -rf out report
        STATUS=0
        if [ "$way" = file ]; then
            timeout -k 5 60 "$BIN/$PROGRAM" "${ARGS[@]}" <bad >stdout 2>stderr || STATUS=$?
        else
            cat bad 2>/dev/null | timeout -k 5 60 "$BIN/$PROGRAM" "${ARGS[@]}" >stdout 2>stderr || STATUS=${PIPESTATUS[1]}
        fi
        expect_status 65 "$1 ($way)"
        expect_message "$1 ($way)"
        expect_only "$1 ($way)" bad stdout stderr
    done
}

@test "a stream cut at any structural point, or one byte too long: 65, no result" {
    local line cut
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        for cut in $("$TOOLS/st-break" --cuts <"$STDIN"); do
            head -c "$cut" "$STDIN" >bad
            expect_bad_data "cut at byte $cut"
        done
        { cat "$STDIN"; printf 'x'; } >bad
        expect_bad_data "one byte too long"
    done 9< <(examples stream pack)
    no_faults
}

@test "a broken header of every kind: 65, no result" {
    local line kind
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        for kind in $("$TOOLS/st-break" --list | sed -n 's/ 65$//p'); do
            "$TOOLS/st-break" "$kind" <"$STDIN" >bad
            expect_bad_data "$kind"
        done
    done 9< <(examples stream pack)
    no_faults
}

@test "what is unusual but valid in a header passes: scalars, empty tensors, escaped names, unknown metadata, any order" {
    local line kind
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        for kind in $("$TOOLS/st-break" --list | sed -n 's/ 0$//p'); do
            "$TOOLS/st-break" "$kind" <"$STDIN" >odd
            FROM=odd invoke
            expect_status 0 "$kind"
        done
    done 9< <(examples stream)
    no_faults
}

@test "a stream of JSON lines cut in a line: 65" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        head -c -4 "$STDIN" >cut
        FROM=cut invoke
        expect_status 65 "a line cut short"
    done 9< <(examples lines)
    no_faults
}

@test "a zstd-compressed stream is read as the plain one" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        invoke
        keep plain
        zstd -q "$STDIN" -o packed
        FROM=packed invoke
        expect_status 0 "compressed input"
        keep zstd
        diff -r plain zstd || fault "compressed input gives other bytes"
        head -c -5 packed >cut
        rm -rf out report
        FROM=cut invoke
        expect_status 65 "compressed input cut short"
    done 9< <(examples stream pack)
    no_faults
}

@test "a plan goes in, a plan comes out; ct-pack prints it" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        plan_of "$STDIN" >plan
        FROM=plan invoke
        expect_status 0 "a plan stream"
        if [ "$KIND" = pack ]; then
            jq -e '.build and .tensors > 0 and .tensor_bytes > 0' stdout >/dev/null || fault "a plan prints: $(head -c 300 stdout)"
            [ ! -e out ] || fault "a plan makes a result"
        else
            st_header stdout | jq -e '.__metadata__.plan == "1"' >/dev/null || fault "a plan gives no plan"
            [ "$(stat -c %s stdout)" -eq $((8 + $(st_header stdout | wc -c))) ] || fault "a plan carries data"
        fi
    done 9< <(examples stream pack)
    no_faults
}

# The header of a stream alone, marked as a plan.
plan_of() {     # FILE
    local text
    text=$(st_header "$1" | jq -c '.__metadata__.plan = "1"')
    local n=${#text} i
    n=$(printf '%s' "$text" | wc -c)
    for i in 0 1 2 3 4 5 6 7; do printf "\\x$(printf %02x $((n >> 8 * i & 255)))"; done
    printf '%s' "$text"
}

@test "a closed standard input is not an empty one: 74, no result" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        STATUS=0
        "$BIN/$PROGRAM" "${ARGS[@]}" <&- >stdout 2>stderr || STATUS=$?
        expect_status 74 "stdin is closed"
        expect_message "stdin is closed"
        [ ! -s stdout ] || fault "stdin is closed: something on stdout"
        expect_only "stdin is closed" stdout stderr
    done 9< <(examples stream pack lines)
    no_faults
}

@test "a closed reader ends a program quietly: 141, stderr empty" {
    local line closed
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        [[ $KIND != pack && " ${ARGS[*]} " != *" out "* ]] || continue
        exec {closed}> >(exit 0)
        wait $! || true         # it may be gone, and waited for, already
        STATUS=0
        env --default-signal=PIPE "$BIN/$PROGRAM" "${ARGS[@]}" <"$STDIN" >&"$closed" 2>stderr || STATUS=$?
        exec {closed}>&-
        expect_status 141 "a closed reader"
        [ ! -s stderr ] || fault "a closed reader: writes to stderr"
        expect_only "a closed reader" stderr
    done 9< <(examples stream lines make report)
    no_faults
}

@test "a file on stdin, a pipe, a slow pipe and any -j give the same bytes" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        invoke
        keep file
        cat "$STDIN" | "$BIN/$PROGRAM" "${ARGS[@]}" >stdout 2>stderr || fault "from a pipe: exit status $?"
        keep pipe
        diff -r file pipe || fault "a pipe gives other bytes than a file"
        # Reads that return a few bytes at a time, across every boundary.
        { head -c 5; dd bs=997 count=300 status=none; cat; } <"$STDIN" | "$BIN/$PROGRAM" "${ARGS[@]}" >stdout 2>stderr ||
            fault "from a slow pipe: exit status $?"
        keep slow
        diff -r file slow || fault "a slow pipe gives other bytes than a file"
        "$BIN/$PROGRAM" --help | grep -qE '^ +-j' || continue
        invoke -j1
        keep one
        invoke -j2
        keep two
        diff -r one two || fault "-j1 and -j2 give different bytes"
        diff -r file one || fault "-j1 gives other bytes than the default"
    done 9< <(examples stream pack lines)
    no_faults
}

# Wait up to 20 s until the shell condition holds.
until_true() {  # COMMAND…
    local i
    for ((i = 0; i < 400; i++)); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}
begun() { [ -s stdout ] || [ "$(find . -mindepth 1 | wc -l)" -gt "$1" ]; }

@test "SIGINT, SIGTERM and SIGQUIT: 128+n, nothing left behind" {
    local line signal pid before
    ulimit -c 0                 # SIGQUIT would leave a core file
    while read -r line <&9; do
        for signal in INT TERM QUIT; do
            fresh
            parse "$line" || continue
            mkfifo in
            : >stdout
            : >stderr
            before=$(find . -mindepth 1 | wc -l)
            # A background job of a shell without job control ignores SIGINT; this one must not.
            env --default-signal=INT,TERM,QUIT "$BIN/$PROGRAM" "${ARGS[@]}" <in >stdout 2>stderr &
            pid=$!
            exec 8>in
            # All but the end of the input: the program is in the middle of its work, and stays there.
            case $KIND in
                lines) cat "$STDIN" >&8; sleep 0.5 ;;
                slow) until_true begun "$before" || fault "$signal: never began to write" ;;
                *) head -c -1000 "$STDIN" >&8 2>/dev/null &
                   until_true begun "$before" || fault "$signal: never began to write" ;;
            esac
            kill -"$signal" "$pid" || fault "$signal: was not running any more"
            STATUS=0
            wait "$pid" || STATUS=$?
            exec 8>&-
            expect_status $((128 + $(kill -l "$signal"))) "$signal"
            rm -f in
            expect_only "$signal" stdout stderr
        done
    done 9< <(examples stream pack lines slow)
    no_faults
}

@test "an existing OUT is refused, and left alone; --force replaces it" {
    local line
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        mkdir out
        echo precious >out/file
        invoke
        expect_status 64 "an existing OUT"
        [ "$(cat out/file)" = precious ] || fault "an existing OUT was touched"
        "$BIN/$PROGRAM" --help | grep -q -e --force || continue
        invoke --force
        expect_status 0 "--force"
        [ ! -e out/file ] || fault "--force left the old content"
        expect_only "--force" stdout stderr out
    done 9< <(examples pack)
    no_faults
}

@test "an output path that cannot be written: 74 or 77" {
    local line i
    while read -r line <&9; do
        fresh
        parse "$line" || continue
        for i in "${!ARGS[@]}"; do [ "${ARGS[i]}" != out ] || ARGS[i]=no/such/dir/out; done
        invoke
        [[ $STATUS = 74 || $STATUS = 77 ]] || fault "OUT in a directory that does not exist: exit status $STATUS"
        expect_message "OUT in a directory that does not exist"
    done 9< <(examples pack make | grep -w OUT)
    no_faults
}

@test "a server prints its URL, answers, and ends on SIGTERM and SIGINT with nothing left" {
    local line signal pid host
    while read -r line <&9; do
        for signal in TERM INT; do
            fresh
            parse "$line" || continue
            env --default-signal=INT,TERM "$BIN/$PROGRAM" "${ARGS[@]}" </dev/null >stdout 2>stderr &
            pid=$!
            until_true grep -q '^http://' stdout || fault "printed no URL"
            host=$(sed -n '1s,^http://\([^/]*\).*,\1,p' stdout)
            exec 8<>"/dev/tcp/${host%:*}/${host#*:}" || fault "$host: cannot connect"
            printf 'GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&8
            [[ $(head -n 1 <&8) = "HTTP/1.1 200"* ]] || fault "/ping did not answer 200"
            exec 8>&-
            kill -"$signal" "$pid" || fault "$signal: was not running any more"
            STATUS=0
            wait "$pid" || STATUS=$?
            [[ $STATUS = 0 || $STATUS = $((128 + $(kill -l "$signal"))) ]] || fault "$signal: exit status $STATUS"
            expect_only "$signal" stdout stderr
        done
    done 9< <(examples serve)
    no_faults
}
