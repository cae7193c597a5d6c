/* Load on an OpenAI-compatible server: request lines in, answer lines with timings out.
 *
 * Owns: when each request leaves (closed loop: as soon as one of `concurrency` places is free; open loop: request i at i / rate seconds,
 * whatever is still running), the clock, the order of the output (the input's), and what is in memory: at most LOAD_WINDOW lines between the
 * oldest unanswered request and the newest, and about LOAD_BYTES of them.  Nothing is ever sent twice.
 * Three threads: one reads and prepares lines, the caller's moves bytes and reads the clock, one writes; so neither a slow producer nor a slow reader of
 * the output shifts a time.
 *
 * An output line: id, request_id, status, scheduled_ms, sent_ms, ttft_ms, tpot_ms, e2e_ms, prompt_tokens, completion_tokens, finish_reason, text or error,
 * connect_ms, chunk_ms, request.  Times in ms: the first two since the start of the run, the others since sent_ms.
 *   ttft = t1 - t0, tpot = (tn - t1) / (completion_tokens - 1), e2e = te - t0
 * with t0 = just before the request is handed over, t1, tn = arrival of the first and last chunk with content, te = after the answer's last byte.
 */
#ifndef NET_LOAD_H
#define NET_LOAD_H
#include <stdio.h>
#include "base/err.h"
#include "base/json.h"

#define LOAD_WINDOW 8192
#define LOAD_BYTES ((size_t)256 << 20)
#define LOAD_CONCURRENCY_MAX 4096

struct load_options {
    const char *url;            /* base */
    const char *authorization;  /* a header line, or NULL */
    long concurrency;
    double rate;                /* 0 = closed loop */
    bool stream;
    double timeout;             /* seconds for a request */
};

struct load_summary {
    long lines, failed;
    struct err first;           /* of the first failed line in input order; says which line */
};

/* -1 only when reading the lines or writing the answers fails: the program is to end then, since a thread may still wait for a line.
 * A failed request is in the summary and in its line. */
int load_run(const struct load_options *o, struct jsonl *in, FILE *out, struct load_summary *sum, struct err *e) MUST_CHECK;
#endif
