#include "engine/generate.h"
#include <stdlib.h>
#include <string.h>

struct gen {
    struct engine *en;
    struct request r;
    struct seq *seq;
    const struct engine_watch *watch;
    float *logits, *raw;                /* raw: before anything changed them, for logprobs */
    struct engine_top *top;             /* instead of these, where the largest are enough and the device finds them */
    int *scratch;
    bool plain;                         /* the largest logit wins, and nobody asks for more: the device may choose */
    int chosen;
    int *history; size_t n_history;     /* prompt and completion */
    struct gen_token *token; size_t n;
    struct detok detok;
    struct buf text;
    size_t certain, released;           /* bytes of text that nothing can take back; that gen_delta has given out */
    size_t search;                      /* where a stop string may begin */
    const char *reason;                 /* NULL while it runs */
    int end_token;                      /* -1 = none ended it */
    int end_stop;                       /* index into r.stop, -1 = none */
};

/* Whether the ENGINE_TOP largest logits decide all that is asked: the token, with those that may not be chosen among them, and log probabilities. */
static bool top_is_enough(const struct gen *g)
{
    const struct sampling *s = &g->r.sampling;
    const long wanted = s->temperature > 0 ? s->top_k : 1;
    size_t suppressed, ends;

    (void)engine_suppressed(g->en, &suppressed);
    (void)engine_eos(g->en, &ends);
    return engine_makes_top(g->en) && !s->n_bias && s->repetition_penalty == 1 && wanted > 0 && wanted + (long)suppressed + (g->r.min_tokens ? (long)ends : 0) <= ENGINE_TOP;
}

struct gen *gen_new(struct engine *en, const struct request *r)
{
    struct gen *g = xcalloc(1, sizeof *g);
    const size_t vocab = (size_t)engine_model(en)->vocab;

    g->en = en;
    request_copy(&g->r, r);
    g->end_token = g->end_stop = -1;
    const struct sampling *s = &r->sampling;
    g->plain = s->temperature <= 0 && r->logprobs < 0 && !r->min_tokens && !s->n_bias && s->repetition_penalty == 1;
    const bool top = !g->plain && top_is_enough(g);
    if (top)
        g->top = xcalloc(1, sizeof *g->top);
    if (!g->plain && !top)
        g->logits = xcalloc(vocab, sizeof *g->logits);
    if (r->logprobs >= 0 && !top)
        g->raw = xcalloc(vocab, sizeof *g->raw);
    if (r->sampling.temperature > 0 && !top)
        g->scratch = xcalloc(2 * vocab, sizeof *g->scratch);
    g->history = xreallocarray(NULL, r->n_ids + (size_t)r->max_tokens, sizeof *g->history);
    memcpy(g->history, r->ids, r->n_ids * sizeof *g->history);
    g->n_history = r->n_ids;
    if (engine_tokenizer(en))
        detok_init(&g->detok, engine_tokenizer(en), r->skip_special);
    return g;
}

void gen_free(struct gen *g)
{
    if (!g)
        return;
    if (engine_tokenizer(g->en))
        detok_free(&g->detok);
    buf_free(&g->text);
    request_free(&g->r);
    seq_free(g->seq);
    free(g->logits);
    free(g->raw);
    free(g->top);
    free(g->scratch);
    free(g->history);
    free(g->token);
    free(g);
}

void gen_watch(struct gen *g, const struct engine_watch *watch) { g->watch = watch; }

/* --- the run it wants ------------------------------------------------------------------------------------------------ */

static size_t held(const struct gen *g) { return g->seq ? (size_t)seq_position(g->seq) : 0; }

size_t gen_prompt_left(const struct gen *g) { return held(g) < g->r.n_ids ? g->r.n_ids - held(g) : 0; }

bool gen_next(struct gen *g, size_t budget, struct engine_item *item)
{
    if (g->reason)
        return false;
    if (!g->seq)
        g->seq = seq_new(g->en, (long)g->r.n_ids + g->r.max_tokens);
    const size_t at = held(g), left = g->n_history - at, run = left < budget ? left : budget;
    *item = (struct engine_item){g->seq, g->history + at, run, run == left ? g->logits : NULL, g->watch, g->plain && run == left ? &g->chosen : NULL,
        run == left ? g->top : NULL};
    return true;
}

/* --- choosing -------------------------------------------------------------------------------------------------------- */

static int least(int a, size_t b) { return (size_t)a < b ? a : (int)b; }

static void note_top(const struct gen *g, struct gen_token *t)
{
    const struct engine_top *top = g->top;

    t->n_top = least(g->r.logprobs, top->n);
    for (size_t i = 0; i < top->n; i++) {
        const struct gen_alternative one = {top->id[i], (float)((double)top->logit[i] - top->log_sum)};
        if (i < (size_t)t->n_top)
            t->top[i] = one;
        if (one.id == t->id)
            t->logprob = one.logprob;
    }
}

static void note_logprobs(const struct gen *g, struct gen_token *t)
{
    const size_t vocab = (size_t)engine_model(g->en)->vocab;
    const double sum = sample_log_sum(g->raw, vocab);
    int top[MAX_TOP_LOGPROBS];

    t->logprob = (float)((double)g->raw[t->id] - sum);
    t->n_top = least(g->r.logprobs, vocab);
    sample_top(g->raw, vocab, top, (size_t)t->n_top);
    for (int i = 0; i < t->n_top; i++)
        t->top[i] = (struct gen_alternative){top[i], (float)((double)g->raw[top[i]] - sum)};
}

static int choose(struct gen *g, struct err *e)
{
    const size_t vocab = (size_t)engine_model(g->en)->vocab;
    struct id_span banned[2];
    const struct id_span seen = {g->history, g->n_history};
    const bool no_end = (long)g->n < g->r.min_tokens && !g->r.ignore_eos;

    banned[0].id = engine_suppressed(g->en, &banned[0].n);
    banned[1].id = engine_eos(g->en, &banned[1].n);
    if (g->raw)
        memcpy(g->raw, g->logits, vocab * sizeof *g->raw);
    const int id = g->plain ? g->chosen : g->top ? sample_of_largest(&g->r.sampling, g->top->id, g->top->logit, g->top->n, banned, no_end ? 2 : 1, g->r.seed, g->n) :
        sample_token(&g->r.sampling, g->logits, vocab, banned, no_end ? 2 : 1, seen, g->r.seed, g->n, g->scratch);
    if (id < 0)
        return err_set(e, EXIT_DATA, "the model gives no usable logits at position %zu: its weights are damaged, or every token is forbidden", g->n_history);
    if ((g->n & (g->n - 1)) == 0)
        g->token = xreallocarray(g->token, g->n ? 2 * g->n : 1, sizeof *g->token);
    struct gen_token *t = &g->token[g->n++];
    *t = (struct gen_token){.id = id};
    if (g->raw)
        note_logprobs(g, t);
    else if (g->top && g->r.logprobs >= 0)
        note_top(g, t);
    g->history[g->n_history++] = id;
    return 0;
}

static bool ends(const struct gen *g, int id)
{
    size_t n;
    const int *eos = engine_eos(g->en, &n);

    for (size_t i = 0; i < n; i++)
        if (eos[i] == id)
            return !g->r.ignore_eos;
    return false;
}

/* --- text ------------------------------------------------------------------------------------------------------------ */

/* Cuts the text at the stop string that begins first; of those that begin together, the first in the request.  A token may spell U+0000, so
 * the search goes by length. */
static bool cut_at_stop(struct gen *g)
{
    for (size_t at = g->search; at < g->text.n; at++)
        for (size_t i = 0; i < g->r.n_stop; i++) {
            const size_t n = strlen(g->r.stop[i]);
            if (n > g->text.n - at || memcmp(g->text.data + at, g->r.stop[i], n))
                continue;
            g->text.n = g->r.include_stop ? at + n : at;
            g->text.data[g->text.n] = 0;
            g->end_stop = (int)i;
            return true;
        }
    return false;
}

/* Where the longest beginning of a stop string that ends the text begins. */
static size_t possible_stop(const struct gen *g)
{
    for (size_t at = g->search; at < g->text.n; at++)
        for (size_t i = 0; i < g->r.n_stop; i++)
            if (!strncmp(g->r.stop[i], g->text.data + at, g->text.n - at))
                return at;
    return g->text.n;
}

static void finish(struct gen *g, const char *reason)
{
    g->reason = reason;
    if (!engine_tokenizer(g->en))
        return;
    if (g->end_stop < 0) {
        detok_end(&g->detok, &g->text);
        if ((long)g->n >= g->r.min_tokens && cut_at_stop(g))
            g->reason = "stop";
    }
    g->certain = g->text.n;
}

static int extend_text(struct gen *g, int id, struct err *e)
{
    if (!engine_tokenizer(g->en))
        return 0;
    if (detok_feed(&g->detok, id, &g->text, e))
        return -1;
    if ((long)g->n < g->r.min_tokens) {     /* stop strings count from min_tokens on */
        g->certain = g->search = g->text.n;
        return 0;
    }
    if (cut_at_stop(g))
        finish(g, "stop");
    else
        g->certain = g->search = possible_stop(g);
    return 0;
}

int gen_take(struct gen *g, struct err *e)
{
    if (held(g) < g->n_history)         /* a piece of the prompt */
        return 0;
    if (choose(g, e))
        return -1;
    const int id = g->token[g->n - 1].id;
    if (ends(g, id)) {
        g->end_token = id;
        finish(g, "stop");
        return 0;
    }
    if (extend_text(g, id, e))
        return -1;
    if (!g->reason && (long)g->n >= g->r.max_tokens)
        finish(g, "length");
    return 0;
}

/* --- what came out --------------------------------------------------------------------------------------------------- */

bool gen_done(const struct gen *g) { return g->reason; }
const char *gen_finish_reason(const struct gen *g) { return g->reason; }
size_t gen_prompt_tokens(const struct gen *g) { return g->r.n_ids; }

json_t *gen_stop_reason(const struct gen *g)
{
    if (g->end_stop >= 0)
        return json_string(g->r.stop[g->end_stop]);
    return g->end_token >= 0 ? json_integer(g->end_token) : json_null();
}

const struct gen_token *gen_tokens(const struct gen *g, size_t *n)
{
    *n = g->n;
    return g->token;
}

const char *gen_delta(struct gen *g, size_t *n)
{
    const char *from = g->text.data ? g->text.data + g->released : "";

    *n = g->certain - g->released;
    g->released = g->certain;
    return from;
}

const char *gen_text(const struct gen *g, size_t *n)
{
    *n = g->certain;
    return !engine_tokenizer(g->en) ? NULL : g->text.data ? g->text.data : "";
}

static json_t *logprob_json(const struct gen_token *t)
{
    json_t *top = json_array();

    for (int i = 0; i < t->n_top; i++)
        json_array_append_new(top, json_pack("{s:i, s:f}", "token_id", t->top[i].id, "logprob", (double)t->top[i].logprob));
    return json_pack("{s:i, s:f, s:o}", "token_id", t->id, "logprob", (double)t->logprob, "top_logprobs", top);
}

json_t *gen_result(const struct gen *g, json_t *id)
{
    const struct engine_facts *f = engine_facts(g->en);
    const struct chat *chat = engine_chat(g->en);
    json_t *o = json_object(), *ids = json_array(), *logprobs = json_array();
    size_t n;
    const char *text = gen_text(g, &n);

    for (size_t i = 0; i < g->n; i++) {
        json_array_append_new(ids, json_integer(g->token[i].id));
        if (g->r.logprobs >= 0)
            json_array_append_new(logprobs, logprob_json(&g->token[i]));
    }
    json_object_set(o, "id", id ? id : json_null());
    json_object_set_new(o, "text", text ? json_stringn(text, n) : json_null());
    json_object_set_new(o, "token_ids", ids);
    json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)g->r.n_ids));
    json_object_set_new(o, "completion_tokens", json_integer((json_int_t)g->n));
    json_object_set_new(o, "finish_reason", g->reason ? json_string(g->reason) : json_null());
    json_object_set_new(o, "stop_reason", gen_stop_reason(g));
    if (g->r.logprobs >= 0)
        json_object_set_new(o, "logprobs", logprobs);
    else
        json_decref(logprobs);
    json_object_set_new(o, "device", json_string(f->device));
    json_object_set_new(o, "math", json_string(f->math));
    json_object_set_new(o, "simd", f->simd ? json_string(f->simd) : json_null());
    if (f->gpu)
        json_object_set_new(o, "gpu", json_string(f->gpu));
    json_object_set_new(o, "chat_template", chat ? json_string(chat_template_id(chat)) : json_null());
    return o;
}
