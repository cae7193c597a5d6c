# Fuzz targets, replayed: what a fuzzer is given to start from and what one once found must neither crash nor leak.  `make fuzz` searches on.
load lib

@test "every fuzz target survives its corpus" {
    local target name
    for target in "$ROOT"/tests/fuzz/*.c; do
        name=$(basename "$target" .c)
        [ "$name" != replay ] || continue
        run -0 "$BUILD/fuzz/$name" "$ROOT/tests/fuzz/corpus/$name"/*
        [[ $output = *inputs* ]]
    done
}
