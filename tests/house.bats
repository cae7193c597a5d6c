# The house itself: layers, scripts, what a clone must and must not hold.
load lib

@test "layers: includes point up the list of modules" {
    "$ROOT/tests/layers.sh"
}

@test "layers: a tensor header that includes gemma is refused, and so is a program's file" {
    mkdir -p src/tensor src/gemma src/base
    touch src/gemma/config.h src/base/err.h src/other.h
    printf '#include "base/err.h"\n#include <stdio.h>\n' >src/tensor/ok.c
    "$ROOT/tests/layers.sh" "$PWD"
    echo '#include "gemma/config.h"' >src/tensor/bad.c
    run -1 "$ROOT/tests/layers.sh" "$PWD"
    [[ $output = *"src/tensor/bad.c:1: includes gemma/config.h, but tensor does not know gemma"* ]]
    rm src/tensor/bad.c
    echo '#include "other.h"' >src/program.c
    run -1 "$ROOT/tests/layers.sh" "$PWD"
    [[ $output = *"src/program.c:1:"* ]]
    rm src/program.c
    mkdir -p src/engine cuda
    touch cuda/cuda.h cuda/kernels.h
    echo '#include "cuda/cuda.h"' | tee src/engine/ok.c >cuda/ok.c
    "$ROOT/tests/layers.sh" "$PWD"
    echo '#include "cuda/kernels.h"' >src/engine/bad.c
    run -1 "$ROOT/tests/layers.sh" "$PWD"
    [[ $output = *"src/engine/bad.c:1: includes cuda/kernels.h"* ]]
}

@test "every error message of the sources is asserted by a test, in words of its own" {
    "$ROOT/tests/messages.sh"
}

@test "messages.sh finds a message that no test names, and takes no other message's words for it" {
    printf '%s\n' 'err_set(e, EXIT_DATA, "%s: %zu horses where two cows are expected", a, n);' 'err_set(e, EXIT_DATA, "%s: two cows are missing", a);' >a.c
    printf '%s\n' 'die_msg(EXIT_BUG, "a bug has no test to show it");' 'err_set(e, other.code, "%s", other.msg);' >>a.c
    echo '[[ $output = *"x: two cows are missing"* ]]' >t.bats
    run -1 awk -f "$ROOT/tests/messages.awk" a.c tests=1 t.bats
    [[ $output = *"a.c:1:"*"horses"* && $output = *"messages: 1 that no test names, of 2" ]]
    echo '    # horses where two cows are expected' >>t.bats
    run -1 awk -f "$ROOT/tests/messages.awk" a.c tests=1 t.bats
    echo '[[ $output = *"9 horses where two cows are expected" ]]' >>t.bats
    run -0 awk -f "$ROOT/tests/messages.awk" a.c tests=1 t.bats
}

@test "no temporary file is part of a clone" {
    cd "$ROOT"
    git rev-parse --git-dir >/dev/null 2>&1 || skip "no git checkout: which files belong to it is unknown"
    run -1 grep -E '(\.(tmp|orig|rej|swp|bak|o)|~)$' <(git ls-files)
}

@test "scripts pass shellcheck" {
    need_command shellcheck
    cd "$ROOT"
    local scripts
    mapfile -t scripts < <(git ls-files -co --exclude-standard 2>/dev/null | while read -r f; do
        [ -f "$f" ] && head -c 64 "$f" | head -n 1 | grep -qaE '^#! ?/bin/(ba)?sh|^#!/usr/bin/env bash' && echo "$f"; done)
    [ "${#scripts[@]}" -gt 0 ] || skip "no git checkout: which files are scripts is unknown"
    shellcheck -x -S warning "${scripts[@]}" tests/lib.bash
}

# bash does not end a test for a command that begins with ! and has succeeded, unless something follows that fails.
@test "no assertion passes by itself: a line that begins with ! says || what then" {
    cd "$ROOT"
    run -1 grep -nE '^[[:space:]]+! [^|]*([|][^|]+)*$' tests/*.bats tests/*.bash
    run -1 grep -nE '[[:space:]]run [^|]*[[:space:]]wait[[:space:]]+("?[$]|%)' tests/*.bats tests/*.bash
}

@test "the repository stands alone: no file points outside it" {
    cd "$ROOT"
    run -1 git grep -nIE '(\.\./|/work/)shared' -- . ':!tests/house.bats'
}

@test "golden data stay under 30 MB" {
    [ "$(du -sk "$ROOT/tests/golden" | cut -f 1)" -lt 30000 ]
}
