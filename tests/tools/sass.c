/* What the compiler made of the kernels: finds the GPU code in object files, without NVIDIA's disassembler, and prints a line for each kernel:
 *
 *     sm_89 NAME instructions=N local=N loop=N hmma=N weights128=N weights=N
 *
 * local: loads and stores of local memory anywhere.  loop: instructions of the smallest loop around all of the kernel's tensor core instructions (hmma of them), 0 = there
 * is none; weights128 and weights: loads in it that bypass the first cache (so: of weights), of 16 bytes, and of other sizes.
 *
 * Encodings as seen in sm_80 to sm_90 code: 16 bytes an instruction; opcode = low 12 bits.
 */
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OP_LDG = 0x981, OP_LDL = 0x983, OP_STL = 0x387, OP_HMMA = 0x23c, OP_BRA = 0x947, EM_GPU = 190 };

struct code { const uint8_t *p; size_t n; int sm; };        /* n instructions */

static uint64_t word(const struct code *c, size_t i, int half)
{
    uint64_t w;

    memcpy(&w, c->p + 16 * i + 8 * half, sizeof w);
    return w;
}
static int opcode(const struct code *c, size_t i) { return (int)(word(c, i, 0) & 0xfff); }

/* Where a branch goes; the offset counts from the next instruction. */
static int64_t target(const struct code *c, size_t i)
{
    const uint64_t w = word(c, i, 0);
    int64_t bytes = (int32_t)(w >> 32);

    if (c->sm >= 90) {          /* a quarter of it: the low 8 bits apart */
        const uint64_t quarter = (w >> 34) << 8 | (w >> 16 & 0xff);
        bytes = (int64_t)(quarter << 26) >> 24;
    }
    return (int64_t)i + 1 + bytes / 16;
}

static void judge(const struct code *c, const char *name)
{
    size_t local = 0, hmma = 0, first = 0, last = 0, from = 0, to = 0, wide = 0, narrow = 0;

    for (size_t i = 0; i < c->n; i++) {
        local += opcode(c, i) == OP_LDL || opcode(c, i) == OP_STL;
        if (opcode(c, i) == OP_HMMA) {
            first = hmma++ ? first : i;
            last = i;
        }
    }
    for (size_t i = last; hmma && i < c->n; i++) {
        const int64_t at = opcode(c, i) == OP_BRA ? target(c, i) : (int64_t)i + 1;
        if (at >= 0 && at <= (int64_t)first && (!to || i - (size_t)at < to - from))
            from = (size_t)at, to = i;
    }
    for (size_t i = from; to && i <= to; i++) {
        const uint64_t high = word(c, i, 1);
        if (opcode(c, i) == OP_LDG && (high >> 22 & 1))
            *((high >> 9 & 7) == 6 ? &wide : &narrow) += 1;
    }
    printf("sm_%d %s instructions=%zu local=%zu loop=%zu hmma=%zu weights128=%zu weights=%zu\n", c->sm, name, c->n, local, to ? to - from + 1 : 0, hmma, wide, narrow);
}

static void judge_elf(const uint8_t *p, size_t n)
{
    Elf64_Ehdr h;

    memcpy(&h, p, sizeof h);
    if (h.e_machine != EM_GPU || h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shoff > n || h.e_shnum > (n - h.e_shoff) / sizeof(Elf64_Shdr) || h.e_shstrndx >= h.e_shnum)
        return;
    for (size_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s, names;
        memcpy(&s, p + h.e_shoff + i * sizeof s, sizeof s);
        memcpy(&names, p + h.e_shoff + h.e_shstrndx * sizeof s, sizeof s);
        if (names.sh_offset + s.sh_name >= n || s.sh_type != SHT_PROGBITS || s.sh_offset > n || s.sh_size > n - s.sh_offset)
            continue;
        const char *name = (const char *)p + names.sh_offset + s.sh_name;
        if (!strncmp(name, ".text.", 6))
            judge(&(struct code){p + s.sh_offset, s.sh_size / 16, (int)(h.e_flags >> 8 & 0xff)}, name + 6);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        long n = -1;
        if (f && !fseek(f, 0, SEEK_END))
            n = ftell(f);
        uint8_t *p = n > 0 ? malloc((size_t)n) : NULL;
        if (!p || fseek(f, 0, SEEK_SET) || fread(p, 1, (size_t)n, f) != (size_t)n) {
            fprintf(stderr, "sass: %s: cannot be read\n", argv[i]);
            return 74;
        }
        for (size_t at = 0; at + sizeof(Elf64_Ehdr) < (size_t)n; at++)
            if (!memcmp(p + at, ELFMAG, SELFMAG))
                judge_elf(p + at, (size_t)n - at);
        free(p);
        fclose(f);
    }
    return 0;
}
