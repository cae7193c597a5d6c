/* A result file (data/result.schema.json), read and checked: the raw requests as samples, and what is known of build, machine and engine.
 *
 * Owns: which files are results.  Refuses (EXIT_DATA), naming file and field: a wrong type, a reply of another length than the settings say, fewer
 * replies than the settings say, a batch whose tokens or wall its own requests contradict, a batch or question given twice, and two files of
 * one model, build and target.  What a file does not hold is NAN, -1 or NULL here, never zero.  Members it does not know are ignored.
 */
#ifndef REPORT_RESULT_H
#define REPORT_RESULT_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "base/hash.h"
#include "report/stats.h"

enum { CLASS_HEAD = 4, N_CLASSES = 9 };
struct weight_class { const char *key, *title; };
extern const struct weight_class CLASSES[N_CLASSES];    /* of weights.bytes_by_class, in the order of the tables */

struct answer {
    const char *id;
    const char *text;           /* NULL = not stored */
    char sha256[SHA256_HEX];    /* of the text without white space at both ends; "" = not known */
    int right;                  /* 0, 1; -1 = not known */
};

struct batch { long long concurrency, batch; double rate; };    /* tokens/s, rounded to 0.1 as the study has it */

/* Streamed requests sent in one way: closed loop (concurrency), one prompt length after another (prompt_tokens), or open loop (rate). */
struct streamed {
    long long prompt_tokens;    /* as counted by the server, of the first; -1 = not known */
    long long asked;            /* length asked for; 0 = the ordinary prompts */
    long long concurrency;      /* 0 = open loop */
    double rate;                /* requests/s; 0 = closed loop */
    size_t sent, failed, good;  /* good: within every limit of settings.goodput */
    double window_s;            /* first request sent (open loop: scheduled) to last reply complete */
    long long tokens;           /* of the replies that succeeded */
    struct sample ttft, tpot, itl, e2e, lag, prefill;    /* ms, sorted; prefill in tokens/s; open loop: ttft and e2e from the scheduled time */
};

struct result {
    char *path;
    json_t *root;               /* owns all strings below */
    const char *model, *build, *target;
    long long short_tokens, long_tokens;
    struct sample short_ms, long_ms;
    double decode;              /* tokens/s */
    struct interval decode_range;
    bool decode_published;      /* printed somewhere, without its samples */
    double per_call_s;          /* what a call costs besides its tokens */
    bool per_call_published;
    struct batch *batch; size_t n_batches;
    struct streamed *streamed; size_t n_streamed;
    struct sample ping_ms;      /* sorted */
    double limit_ttft, limit_tpot, limit_e2e;       /* ms; NAN = none */
    long long disk;
    bool has_classes, classes_planned;      /* planned: from the recipe's plan, not from the files that were served */
    long long class_bytes[N_CLASSES];
    /* Bytes that one token reads, by how they are stored (gemma/bytes.h); NAN = not known. */
    double read_int4, read_8bit, read_16bit, read_kv;
    long long layers, moe_layers;
    const json_t *regrid;       /* the summary of the build's regrid report; NULL = not known */
    struct answer *answer; size_t n_answers;
    long long right;            /* -1 = not all are known */
    double weights_gib, load_s, max_concurrency, peak_activation_gib;
    long long kv_tokens, max_model_len;
    double usd_per_hour, peak_gb_s;
    const char *engine, *engine_version, *device;   /* device: GPU, else CPU */
    char *setting;              /* one line: how it was measured; rows are compared only where it is equal */
};

struct results { struct result *item; size_t n; };

/* In the order given; files of one model are brought together at its first place.  results_free it after a failure too. */
int results_read(char **path, size_t n, struct results *rs, struct err *e) MUST_CHECK;
/* Keep the results for which every KEY=VALUE,VALUE… of where holds; KEY is model, build, target, engine, instance, region or gpu. */
int results_where(struct results *rs, const char *const *where, size_t n, struct err *e) MUST_CHECK;
void results_free(struct results *rs);

const struct answer *result_answer(const struct result *r, const char *id);
/* A string of machine or engine, or NULL. */
const char *result_fact(const struct result *r, const char *object, const char *key);
double result_rate_at(const struct result *r, long long concurrency);   /* median over the batches; NAN = none */
double result_read(const struct result *r);             /* all bytes of a token; NAN = not known */
long long result_tensor_bytes(const struct result *r);  /* -1 = not known */
/* decode of lists whose medians are short and long, in ms. */
double result_decode(const struct result *r, double short_ms, double long_ms);
#endif
