/* What libFuzzer calls, and replay.c.  A target must not leak, crash or hang, whatever the bytes; it returns 0. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
#endif
