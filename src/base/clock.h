/* The clock for durations. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
/* Seconds of CLOCK_MONOTONIC. */
double clock_seconds(void);
#endif
