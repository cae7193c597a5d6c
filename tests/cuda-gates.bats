# What nvcc made of the kernels: no spills, no local memory, registers and shared memory within what the sources state, 16-byte loads of the weights in the loops.
# Without nvcc there is nothing to judge; the kernels' results are tests/unit/cuda_*.

load lib

setup() {
    LOGS=("$Q4BUILD"/cuda/*.cu.o.log)
    [ -e "${LOGS[0]}" ] || skip "no nvcc: nothing was compiled for a GPU"
    [ -e "$Q4BUILD/tools/sass" ] || skip "tests/tools/sass is not built"
}

# KERNEL ARCH REGISTERS FRAME SPILLED, a line for each kernel and architecture; functions that kernels call count with frames and spills.
resources() {   # [LOG…]
    [ $# -gt 0 ] || set -- "${LOGS[@]}"
    cat "$@" | awk '
        /Compiling entry function/ { split($0, q, "\x27"); name = q[2]; arch = q[4] }
        /bytes stack frame/ { frame += $1; spilled += $5 + $9 }
        /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); print name, arch, substr($0, RSTART + 5, RLENGTH - 5), frame, spilled; frame = spilled = 0 }'
}

@test "no kernel spills or has a stack frame, on any architecture" {
    resources >"$BATS_TEST_TMPDIR/all"
    [ "$(grep -c sm_89 "$BATS_TEST_TMPDIR/all")" -ge 29 ]
    run awk '$4 || $5' "$BATS_TEST_TMPDIR/all"
    [ -z "$output" ] || { echo "$output"; false; }
}

@test "registers and shared memory leave room for the blocks that the sources state" {
    resources >"$BATS_TEST_TMPDIR/all"
    grep -h '^ \* gate: ' "$Q4ROOT"/cuda/*.cu >"$BATS_TEST_TMPDIR/gates"
    run awk '
        FILENAME ~ /gates$/ {
            most[$3] = $5; threads = 256
            if ($5 * threads * $7 > 65536) print $3 ": " $7 " blocks of " threads " threads with " $5 " registers do not fit"
            if (($9 + 1024) * $7 > 102400) print $3 ": " $7 " blocks with " $9 " bytes of shared memory do not fit 100 KiB"
            next
        }
        {
            found = ""
            for (k in most) if ($1 ~ "[0-9]" k "(I|E)") found = k
            if (!found) print $1 ": no gate is stated for it"
            else if ($3 > most[found]) print $1 " on " $2 ": " $3 " registers, stated are " most[found]
            seen[found]++
        }
        END { for (k in most) if (!seen[k]) print k ": stated, but there is no such kernel" }' "$BATS_TEST_TMPDIR/gates" "$BATS_TEST_TMPDIR/all"
    [ -z "$output" ] || { echo "$output"; false; }
}

@test "every linear's loop loads its weights 16 bytes at a time, and nothing touches local memory" {
    "$Q4BUILD/tools/sass" "$Q4BUILD"/cuda/*.cu.o >"$BATS_TEST_TMPDIR/sass"
    cat "$BATS_TEST_TMPDIR/sass"
    [ "$(grep -c '^sm_89 .*6linearILi' "$BATS_TEST_TMPDIR/sass")" -ge 25 ]
    ! grep -v ' local=0 ' "$BATS_TEST_TMPDIR/sass" || false
    ! grep '6linearILi' "$BATS_TEST_TMPDIR/sass" | grep -v ' weights128=[1-9][0-9]* weights=0$' || false
    ! grep '6linearILi' "$BATS_TEST_TMPDIR/sass" | grep ' hmma=0 ' || false
}

# What a driver makes of the PTX is another program's work; ptxas of the same toolkit does the same here.  It takes its time: with Q4GATES_ALL also the rarer formats, and sm_75.
@test "the PTX for all other GPUs becomes code without spills or local memory too: sm_80 within the same registers, sm_75 without tensor cores" {
    ptxas=$(command -v ptxas || { nvcc=$(command -v nvcc) && command -v "$(dirname "$(realpath "$nvcc")")/ptxas"; }) || skip "no ptxas in PATH"
    cd "$BATS_TEST_TMPDIR"
    local archs=(sm_80) objects=(linear linear_bytes attend embed)
    [ -z "${Q4GATES_ALL:-}" ] || { archs+=(sm_75); objects=(linear linear_bytes linear_wide attend embed); }
    for arch in "${archs[@]}"; do
        for o in "${objects[@]}"; do
            "$Q4BUILD/tools/ptx" $arch "$Q4BUILD/cuda/$o.cu.o" > $o.$arch.ptx
            { "$ptxas" -arch=$arch -v $o.$arch.ptx -o $o.$arch.cubin 2> $o.$arch.log || echo "$o for $arch" >> failed; } &
            [ $o != linear_bytes ] || wait
        done
        wait
    done
    [ ! -e failed ] || { cat failed ./*.log; false; }
    resources ./*.log > all
    for arch in "${archs[@]}"; do [ "$(grep -c " $arch " all)" -ge 20 ]; done
    run awk '$4 || $5 || ($2 == "sm_80" && $3 > 128) || $3 > 255' all
    [ -z "$output" ] || { echo "$output"; false; }
    "$Q4BUILD/tools/sass" ./*.cubin > sass
    if grep -v ' local=0 ' sass; then false; fi
    if grep '^sm_80 .*6linearILi' sass | grep -v ' weights128=[1-9][0-9]* weights=0$'; then false; fi
    if grep '^sm_75 ' sass | grep -v ' hmma=0 '; then false; fi
}

@test "the judge of the code sees what it should: a kernel that must spill, one that loads 4 bytes at a time" {
    nvcc=$(command -v nvcc) || skip "no nvcc in PATH"
    cat >"$BATS_TEST_TMPDIR/bad.cu" <<'CU'
__global__ void narrow(const unsigned *p, float *y, int n)
{
    float c[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 32) {
        unsigned a;
        asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(a) : "l"(p + i));
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a));
    }
    y[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}
__global__ void local(float *y, int n)
{
    float a[100];
    for (int i = 0; i < 100; i++) a[i] = y[i];
    for (int i = 0; i < n; i++) a[(i * 7 + n) % 100] += a[(i + n) % 100];
    y[threadIdx.x] = a[n % 100];
}
CU
    "$nvcc" -arch=sm_89 -cubin "$BATS_TEST_TMPDIR/bad.cu" -o "$BATS_TEST_TMPDIR/bad.cubin"
    "$Q4BUILD/tools/sass" "$BATS_TEST_TMPDIR/bad.cubin" >"$BATS_TEST_TMPDIR/sass"
    cat "$BATS_TEST_TMPDIR/sass"
    grep 'narrow' "$BATS_TEST_TMPDIR/sass" | grep -E ' weights128=0 weights=[1-9]'
    grep 'local' "$BATS_TEST_TMPDIR/sass" | grep -E ' local=[1-9]'
}
