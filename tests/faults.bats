# Every example of cli.table with one system call failing: the n-th read, write, fsync, rename, open, mkdir, map, thread or allocation, n = 1, 2, …
# until there is no n-th.  Whatever fails: an exit status that says so, a message, no crash, no hang, no result, nothing left behind; or
# the program coped, and then its result is the right one.  Builds of the shim: tests/faults/shim.c.
# What serves, and what calls a server, is in faults-net.bats.
load lib
load examples
load faults/runs
load faults/every

MORE_EXAMPLES=tests/faults/more.table
FRAMES=2        # a library's own places where it asks for memory are sites of their own

right_result() {
    local r
    cmp -s stdout want/stdout || return 1
    for r in $(results); do diff -rq "$r" "want/$r" >/dev/null || return 1; done
}

judge_run() {       # KIND WHICH
    local what="$1 $2 failed"
    if ! run_failing "$@"; then
        expect_status 0 "no $1 $2"
    elif [ "$STATUS" -ne 0 ]; then
        [[ $ALLOWED = *" $STATUS "* ]] || fault "$what: exit status $STATUS, expected one of$ALLOWED"
        expect_message "$what"
        expect_only "$what" stdout stderr want fired
    fi
    [ "$STATUS" -ne 0 ] || right_result || fault "$what, exit status 0, and the result is another"
    clear_results
}

# What a run has made; most have not, and rm would be a process.
clear_results() {
    [[ ! -e out && ! -e report ]] || rm -rf out report
}

# One example under one kind of fault; statuses that are an honest answer in $3 ….
every_call() {      # LINE KIND STATUS…
    local kind=$2 ALLOWED
    parse "$1" || return 0
    shift 2
    ALLOWED=" $* "
    fresh
    invoke
    expect_status 0 "without a fault"
    [ "$STATUS" -eq 0 ] || return 0
    keep want
    begin_runs
    each_call "$kind" judge_run
    end_runs
}

over_all() {    # KIND STATUS…
    local line
    while read -r line <&9; do
        every_call "$line" "$@"
    done 9< <(examples stream pack lines make report)
    no_faults
}

@test "a read fails: 74" { over_all read 74; }
@test "a write, splice or truncation fails: 74" { over_all write 74; }
@test "an fsync fails: 74" { over_all sync 74; }
@test "a rename fails: 74" { over_all rename 74; }
@test "a directory cannot be made: 74" { over_all mkdir 74; }
@test "a file cannot be opened: 66, 74 or 75" { over_all open 66 74 75; }
@test "a mapping fails: 74 or 75" { over_all map 74 75; }
@test "a thread cannot be started: 75, or done without it" { over_all thread 75; }
@test "memory runs out: 75" {
    ! sanitized || skip "the sanitizer brings its own malloc"
    over_all malloc 75
}

@test "transfers that are short and interrupted change nothing" {
    local line
    while read -r line <&9; do
        parse "$line" || continue
        fresh
        invoke
        keep want
        begin_runs
        run_failing short 1 || fault "no transfer was made short"
        end_runs
        expect_status 0 "short transfers"
        right_result || fault "short transfers give another result"
    done 9< <(examples stream pack lines make report)
    no_faults
}

# An example of ct-pack over an old result that is a directory with one file; want/ is what it makes.
over_old_result() { # LINE
    parse "$1" || return 1
    fresh
    invoke
    keep want
    ARGS+=(--force)
    begin_runs
    old_result
}
old_result() { rm -rf out && mkdir out && echo old >out/file; }

@test "--force and a rename or fsync that fails: the old result is still there, and nothing else" {
    local line n kind
    while read -r line <&9; do
        over_old_result "$line" || continue
        for kind in rename sync; do
            n=0
            while old_result && run_failing "$kind" $((n += 1)); do
                [ "$STATUS" -eq 0 ] || { [ "$(cat out/file)" = old ] && expect_only "$kind $n failed" stdout stderr fired out want; } ||
                    fault "$kind $n failed: the old result is gone"
            done
            [ "$n" -gt 1 ] || fault "no $kind was made"
        done
        end_runs
    done 9< <(examples pack)
    no_faults
}

@test "--force where two names cannot be exchanged" {
    local line
    while read -r line <&9; do
        over_old_result "$line" || continue
        run_failing exchange 1 || fault "no exchange was asked for"
        expect_status 0 "without exchange"
        right_result || fault "without exchange: another result"
        rm -rf out
        expect_only "without exchange" stdout stderr fired want
        end_runs
    done 9< <(examples pack)
    no_faults
}

@test "--force and an old result that cannot be removed: 0, a warning that says where it lies" {
    local line n old
    while read -r line <&9; do
        over_old_result "$line" || continue
        for n in 1 2; do                # its file, itself
            old_result
            run_failing remove "$n" || fault "nothing was removed"
            expect_status 0 "remove $n failed"
            right_result || fault "remove $n failed: another result"
            old=$(sed -n 's/.*: warning: out is complete and in place, but the old one is not gone: .*: remove \(.*\) yourself$/\1/p' stderr)
            [ -d "$old" ] || fault "remove $n failed: no warning that names where the old one lies"
            rm -rf "$old" out
            expect_only "remove $n failed" stdout stderr fired want
        done
        end_runs
    done 9< <(examples pack)
    no_faults
}
