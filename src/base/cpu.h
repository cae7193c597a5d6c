/* Which SIMD level to run.  Levels are ordered; each module maps them to the twins it has. */
#ifndef BASE_CPU_H
#define BASE_CPU_H
#include <stdbool.h>

enum simd { SIMD_SCALAR, SIMD_AVX2, SIMD_AVX512 };  /* avx2 includes FMA and F16C; avx512 = F, BW, DQ, VL, VBMI, VBMI2 */
/* The best level of this CPU, never above what simd_force() allowed. */
enum simd simd_level(void);
bool cpu_has_vnni(void);                /* AVX512-VNNI, and the level allows AVX-512 */
/* "scalar", "avx2", "avx512" (NULL = best).  -1 when the CPU lacks it. */
int simd_force(const char *name);
/* The same from --simd: a level that the CPU lacks ends the program (69). */
void simd_option(const char *name);
const char *simd_name(enum simd level);
#endif
