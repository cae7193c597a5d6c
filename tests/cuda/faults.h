#ifndef TESTS_CUDA_FAULTS_H
#define TESTS_CUDA_FAULTS_H
#include <stdint.h>

/* input [66], global [GK_THREADS]; lent and stranger [GK_THREADS]. */
struct fault_args { const uint32_t *input; int n; uint32_t *global; const uint32_t *lent; uint32_t *stranger; };
/* n: of the arguments; words: how the report must go on after block and thread; NULL = no fault. */
struct fault_case { const char *name; void (*kernel)(const struct fault_args); int n; const char *words; bool follows = false; };      /* follows: launched twice, the second time before the first has ended */
extern const struct fault_case fault_cases[];
extern const int fault_case_count;
#endif
