/* A progress line on stderr: only on a terminal, not with -q, at most six redraws a second.  Bytes done of bytes in all. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H
#include <stdint.h>
void progress_start(const char *what, uint64_t total);
void progress_add(uint64_t n);
void progress_end(void);                /* clears the line */
#endif
