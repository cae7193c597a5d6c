#include "serve/batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "serve/log.h"

#define PACE 1.2                /* of a step's time without prompts: what pieces of prompts may add to it while others generate */
#define STRETCH 4               /* times its own computation a prompt may take before it is late */
#define FIRST_PIECE 16          /* tokens of prompt in the first mixed step, before anything is known of their time */
#define LEAST_PIECE 4           /* fewer tokens of prompt would not make a step shorter: the weights are read anyway */
#define NOTHING 1e-9            /* seconds */
#define SMOOTH 0.2
#define ASK_WAITING 0.05        /* seconds between questions whether the clients in the queue are still there */

struct job {
    struct batch_client client;
    size_t left;                /* sequences not ended */
    bool dropped;
    struct err e;
};

struct member {                 /* a sequence */
    struct job *job;
    size_t index;
    struct gen *gen;
    long kv;                    /* reserved tokens */
    size_t tokens;              /* seen so far */
    double submitted, last;     /* clock_seconds() of the submission and of the last token */
    double due;                 /* when its prompt should be in */
    struct member *next;        /* in the queue */
};

struct batch {
    struct engine *en;
    struct batch_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool draining;                              /* under the lock, as are the next, the queue and the figures */
    struct err lost;                            /* why the engine computes no more; code 0: it does */
    struct member *first, **last;
    struct batch_facts facts;
    struct member *running[BATCH_RUNNING_MAX];  /* in the order they came; the thread's own, as is all below */
    size_t n_running;
    double base, per_row;                       /* seconds: a step of n tokens takes base + n per_row; 0 = unknown */
    double asked;
};

/* --- the queue ------------------------------------------------------------------------------------------------------ */

static long kv_of(const struct batch *b, const struct request *r)
{
    return engine_kv_tokens(b->en, (long)r->n_ids + r->max_tokens);
}

int batch_submit(struct batch *b, const struct request *r, size_t n, const struct batch_client *c, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (kv_of(b, &r[i]) > b->o.kv_tokens)
            return err_set(e, EXIT_DATA, "max_tokens: %zu prompt tokens and max_tokens %ld exceed the server's %ld KV tokens: lower max_tokens",
                r[i].n_ids, r[i].max_tokens, b->o.kv_tokens);
    pthread_mutex_lock(&b->lock);
    int rc = 0;
    if (b->draining) rc = err_set(e, EXIT_UNAVAILABLE, SHUTTING_DOWN);
    else if (b->lost.code) rc = err_set(e, b->lost.code, "%s", b->lost.msg);
    else if (b->facts.running + b->facts.waiting + (long)n > b->o.max_running + b->o.max_waiting)
        rc = err_set(e, EXIT_TEMPFAIL, "the queue is full (%ld running, %ld waiting): try again", b->facts.running, b->facts.waiting);
    if (!rc) {
        struct job *j = xcalloc(1, sizeof *j);
        *j = (struct job){.client = *c, .left = n};
        for (size_t i = 0; i < n; i++) {
            struct member *m = xcalloc(1, sizeof *m);
            *m = (struct member){.job = j, .index = i, .gen = gen_new(b->en, &r[i]), .kv = kv_of(b, &r[i]), .submitted = clock_seconds()};
            *b->last = m;
            b->last = &m->next;
        }
        b->facts.waiting += (long)n;
        pthread_cond_signal(&b->work);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* With the lock held: the head of the queue takes a place when there is one; nobody overtakes it. */
static void admit(struct batch *b)
{
    double now = clock_seconds();
    for (struct member *m; (m = b->first) && (long)b->n_running < b->o.max_running && b->facts.kv_used + m->kv <= b->o.kv_tokens;) {
        b->first = m->next;
        if (!b->first) b->last = &b->first;
        b->running[b->n_running++] = m;
        b->facts.running++;
        b->facts.waiting--;
        b->facts.kv_used += m->kv;
        m->due = m->submitted + STRETCH * b->per_row * (double)gen_prompt_left(m->gen);
        histogram_add(&b->facts.queued, now - m->submitted);
    }
}

/* --- ends ----------------------------------------------------------------------------------------------------------- */

static void member_end(struct member *m)
{
    struct job *j = m->job;
    gen_free(m->gen);
    free(m);
    if (--j->left) return;
    j->client.ended(j->client.arg, &j->e);
    free(j);
}

/* Give the place of running[i] back and end it. */
static void leave(struct batch *b, size_t i)
{
    struct member *m = b->running[i];
    const char *why = gen_finish_reason(m->gen);
    pthread_mutex_lock(&b->lock);
    b->facts.running--;
    b->facts.kv_used -= m->kv;
    if (m->job->dropped || !why) b->facts.aborted++;
    else if (why[0] == 's') b->facts.stopped++;
    else b->facts.length++;
    if (why && !m->job->dropped) histogram_add(&b->facts.e2e, clock_seconds() - m->submitted);
    pthread_mutex_unlock(&b->lock);
    memmove(&b->running[i], &b->running[i + 1], (--b->n_running - i) * sizeof b->running[0]);
    member_end(m);
}

static void drop(struct job *j, int code, const char *why)
{
    if (!j->dropped) err_set(&j->e, code, "%s", why);
    j->dropped = true;
}

/* Take the dropped out of the queue; ask those who wait whether they are still there. */
static void clear_queue(struct batch *b, bool ask)
{
    struct member *gone = NULL;
    pthread_mutex_lock(&b->lock);
    for (struct member **at = &b->first, *m; (m = *at);) {
        if (ask && !m->job->dropped && !m->job->client.alive(m->job->client.arg)) drop(m->job, EXIT_NO, "the client went away");
        if (m->job->dropped) {
            *at = m->next;
            m->next = gone;
            gone = m;
            b->facts.waiting--;
            b->facts.aborted++;
        } else {
            at = &m->next;
        }
    }
    b->last = &b->first;
    while (*b->last) b->last = &(*b->last)->next;
    pthread_mutex_unlock(&b->lock);
    for (struct member *m; (m = gone);) {
        gone = m->next;
        member_end(m);
    }
}

static void drop_gone(struct batch *b)
{
    bool dropped = false;
    double now = clock_seconds();
    for (size_t i = 0; i < b->n_running; i++) {
        struct job *j = b->running[i]->job;
        if (!j->dropped && !j->client.alive(j->client.arg)) drop(j, EXIT_NO, "the client went away");
        dropped |= j->dropped;
    }
    for (size_t i = b->n_running; dropped && i-- > 0;)
        if (b->running[i]->job->dropped) leave(b, i);
    bool ask = now - b->asked > ASK_WAITING;
    if (ask) b->asked = now;
    if (ask || dropped) clear_queue(b, ask);
}

/* --- a step --------------------------------------------------------------------------------------------------------- */

/* How many tokens of prompts the next step takes. */
static size_t prompt_budget(const struct batch *b, size_t generating)
{
    size_t most = ENGINE_STEP_TOKENS - generating;
    if (!generating) return most;
    double n = b->base > 0 && b->per_row > 0 ? PACE * (b->base / b->per_row + (double)generating) : FIRST_PIECE;
    if (n < LEAST_PIECE) n = LEAST_PIECE;
    return n < (double)most ? (size_t)n : most;
}

/* A step that the machine held up must not starve the prompts of the next twenty: it counts as twice the mean at most. */
static void learn(double *mean, double seconds)
{
    if (seconds < NOTHING) seconds = NOTHING;
    if (*mean > 0 && seconds > 2 * *mean) seconds = 2 * *mean;
    *mean = *mean > 0 ? (1 - SMOOTH) * *mean + SMOOTH * seconds : seconds;
}

/* Steps without prompts tell the base, steps with enough of them what a row costs; each is taken off the other's. */
static void measure(struct batch *b, double seconds, size_t generating, size_t prompt)
{
    if (!prompt) learn(&b->base, seconds - (double)generating * b->per_row);
    else if (prompt >= LEAST_PIECE && (generating || b->base > 0)) learn(&b->per_row, (seconds - b->base) / (double)(generating + prompt));
}

struct step {
    struct engine_item item[BATCH_RUNNING_MAX];
    struct member *member[BATCH_RUNNING_MAX];
    size_t n, generating, prompt;
};

static size_t add(struct step *s, struct member *m, size_t budget)
{
    if (!gen_next(m->gen, budget, &s->item[s->n])) return 0;
    s->member[s->n] = m;
    return s->item[s->n++].n;
}

/* The oldest prompt has half of the room, so that none waits for ever; in the other half those that are due first go first, so that short ones do not
 * wait for a long one, nor any for all the shorter ones that come after it.  What either leaves is the other's. */
static void fill(struct batch *b, struct step *s)
{
    struct member *in[BATCH_RUNNING_MAX], *oldest;
    size_t n = 0;
    *s = (struct step){0};
    for (size_t i = 0; i < b->n_running; i++) {
        struct member *m = b->running[i];
        if (gen_prompt_left(m->gen)) in[n++] = m;
        else add(s, m, 1);
    }
    s->generating = s->n;
    if (!n) return;
    oldest = in[0];
    size_t budget = prompt_budget(b, s->generating), room = budget / 2;
    while (n > 1 && room) {
        size_t first = 1;
        for (size_t i = 2; i < n; i++)
            if (in[i]->due < in[first]->due) first = i;
        size_t took = add(s, in[first], room);
        room -= took;
        s->prompt += took;
        in[first] = in[--n];
    }
    s->prompt += add(s, oldest, budget - s->prompt);
}

/* After the step: m may have chosen a token. */
static void take(struct batch *b, struct member *m, double now)
{
    size_t n;
    if (gen_take(m->gen, &m->job->e)) {
        m->job->dropped = true;
        return;
    }
    gen_tokens(m->gen, &n);
    if (n == m->tokens && !gen_done(m->gen)) return;
    pthread_mutex_lock(&b->lock);
    if (n > m->tokens) histogram_add(m->tokens ? &b->facts.itl : &b->facts.ttft, now - (m->tokens ? m->last : m->submitted));
    if (!m->tokens) b->facts.prompt_tokens += gen_prompt_tokens(m->gen);
    b->facts.generated_tokens += n - m->tokens;
    pthread_mutex_unlock(&b->lock);
    m->tokens = n;
    m->last = now;
    m->job->client.moved(m->job->client.arg, m->index, m->gen);
}

/* A step that failed takes its jobs with it.  A device that is lost takes all that come as well: what CUDA has called failed stays so for the process. */
static void fail(struct batch *b, struct step *s, const struct err *e)
{
    const int code = e->code == EXIT_UNAVAILABLE ? e->code : EXIT_BUG;
    serve_log("Engine step failed: %s", e->msg);
    for (size_t i = 0; i < s->n; i++) drop(s->member[i]->job, code, e->msg);
    if (code != EXIT_UNAVAILABLE) return;
    pthread_mutex_lock(&b->lock);
    b->lost = *e;
    for (struct member *m = b->first; m; m = m->next) drop(m->job, code, e->msg);
    pthread_mutex_unlock(&b->lock);
}

static void step(struct batch *b)
{
    struct step s;
    struct err e = {0};
    double start = clock_seconds();
    fill(b, &s);
    if (s.n && engine_step(b->en, s.item, s.n, &e)) fail(b, &s, &e);
    double now = clock_seconds();
    measure(b, now - start, s.generating, s.prompt);
    pthread_mutex_lock(&b->lock);
    b->facts.steps++;
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < s.n; i++)
        if (!s.member[i]->job->dropped) take(b, s.member[i], now);
    for (size_t i = b->n_running; i-- > 0;)
        if (gen_done(b->running[i]->gen) || b->running[i]->job->dropped) leave(b, i);
}

static void *run(void *arg)
{
    struct batch *b = arg;
    for (;;) {
        pthread_mutex_lock(&b->lock);
        while (!b->first && !b->n_running && !b->draining) pthread_cond_wait(&b->work, &b->lock);
        bool end = !b->first && !b->n_running;
        admit(b);
        pthread_mutex_unlock(&b->lock);
        if (end) return NULL;
        drop_gone(b);
        if (b->n_running) step(b);
    }
}

struct batch *batch_start(struct engine *en, const struct batch_options *o, struct err *e)
{
    struct batch *b = xcalloc(1, sizeof *b);
    *b = (struct batch){.en = en, .o = *o, .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};
    b->last = &b->first;
    b->facts.kv_tokens = o->kv_tokens;
    if (!pthread_create(&b->thread, NULL, run, b)) return b;
    free(b);
    err_thread(e);
    return NULL;
}

void batch_drain(struct batch *b)
{
    pthread_mutex_lock(&b->lock);
    b->draining = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
}

void batch_free(struct batch *b)
{
    free(b);
}

int batch_works(struct batch *b, struct err *e)
{
    pthread_mutex_lock(&b->lock);
    const int rc = b->lost.code ? err_set(e, b->lost.code, "%s", b->lost.msg) : 0;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

void batch_facts(struct batch *b, struct batch_facts *f)
{
    pthread_mutex_lock(&b->lock);
    *f = b->facts;
    pthread_mutex_unlock(&b->lock);
}
