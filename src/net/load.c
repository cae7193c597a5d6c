#include "net/load.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/openai.h"

#define BODY_MAX ((size_t)256 << 20)    /* of a whole answer */
#define APART 0.0005                    /* seconds between the first requests of a closed loop, all of them … */
#define APART_ALL 0.02                  /* … within this */
#define WRITE_APART 0.002               /* seconds between two wakings of the writer */

enum state { EMPTY, READY, RUNNING, AGAIN, DONE };

struct slot {
    enum state state;
    struct load *load;
    long line;                          /* in the input, from 1 */
    json_t *id, *request;
    struct openai_request q;
    char request_id[64];
    double scheduled, sent, done, connect;      /* clock_seconds() */
    long status;
    struct buf body;                    /* of a whole answer or a refusal */
    bool unread;                        /* a whole answer: the writer reads it */
    struct openai_answer answer;
    struct err e;
    size_t bytes;
    void *frames;                       /* the wire's decoder */
    bool events;                        /* … with server-sent events inside */
    int tries;
    double not_before;                  /* of the next try */
    bool warmup;                        /* borrows its request; nothing is written */
};

/* Counts of lines: written up to head, started up to next, read up to tail; head may pass next over lines that are not sent.  All under the
 * lock, except that the thread of the loop alone touches a slot while it is RUNNING. */
struct load {
    const struct load_options *o;
    struct jsonl *in;
    FILE *out;
    struct http_client *client;
    struct load_summary *sum;
    struct slot *ring;
    pthread_mutex_t lock;
    pthread_cond_t room, answered;      /* for the reader, for the writer; nobody is woken in the middle of a stream */
    bool reader_waits, hungry;          /* hungry: the sender has a place free and no line for it */
    bool to_write;                      /* the writer has something to do, and is told when the next request is under way … */
    double told;                        /* … and WRITE_APART after it was told last */
    unsigned long head, next, tail;
    size_t bytes, running;
    bool input_ended, stop;
    struct err fatal;                   /* of the reader or the writer */
    double start;                       /* when the first line was ready */
    char run[32];                       /* makes request ids of this run its own */
    size_t again;                       /* slots that wait for another try */
    unsigned long arrival;              /* the request that leaves at arrival_at after the start, open loop */
    double arrival_at;
    uint64_t random;
    double speed;                       /* tokens a second that the last plain call showed */
};

static struct slot *slot_at(struct load *l, unsigned long i) { return &l->ring[i % LOAD_WINDOW]; }

static void fail(struct load *l, const struct err *e)
{
    pthread_mutex_lock(&l->lock);
    if (!l->fatal.code) l->fatal = *e;
    l->stop = true;
    pthread_cond_signal(&l->room);
    pthread_cond_signal(&l->answered);
    pthread_mutex_unlock(&l->lock);
    http_wake(l->client);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

/* The server's model, asked for once, when the first line without one comes.  (Behind a wire the server knows it.) */
static const char *model_for(struct load *l, const json_t *line, char **model)
{
    if (l->o->wire || *model || !json_is_object(line) || json_object_get(line, "model")) return *model;
    struct err ignored = {0};           /* a server that is not there shows in the request itself */
    struct http_client *c = http_client_new(1, &ignored);
    if (c) *model = openai_first_model(c, l->o->url, (const char *const[]){l->o->authorization, NULL}, &ignored);
    http_client_free(c);
    if (!*model) *model = xstrdup("");
    return *model;
}

/* A plain call that its service would cut off is not begun. */
static int refuse_long(struct load *l, const json_t *v, struct err *e)
{
    const json_t *most = json_object_get(v, "max_tokens");
    if (!most) most = json_object_get(v, "max_completion_tokens");
    pthread_mutex_lock(&l->lock);
    double speed = l->speed;
    pthread_mutex_unlock(&l->lock);
    double seconds = json_number_value(most) / speed, limit = l->o->wire->plain_limit;
    if (!json_is_number(most) || seconds <= limit) return 0;
    return err_set(e, EXIT_DATA, "%.0f tokens would take about %.0f s at %.1f tokens a second, and a plain call ends after %.0f s: use --stream", json_number_value(most), seconds,
        speed, limit);
}

static void take_wire(struct load *l, struct slot *s, const json_t *v)
{
    const struct load_wire *w = l->o->wire;
    if (!w || s->e.code) return;
    free(s->q.url);
    s->q.url = w->url(w->ctx, s->q.stream);
    if (!s->q.stream && w->plain_limit > 0) refuse_long(l, v, &s->e);
}

static void prepare(struct load *l, struct slot *s, json_t *v, char **model)
{
    s->id = json_is_object(v) ? json_incref(json_object_get(v, "id")) : NULL;
    if (!openai_request(&s->q, v, l->o->url, model_for(l, v, model), l->o->stream, &s->e)) s->bytes = 3 * s->q.body_n;
    take_wire(l, s, v);
    snprintf(s->request_id, sizeof s->request_id, "%s%012lx", l->run, (unsigned long)s->line & 0xffffffffffff);
    s->request = json_copy(v);
    if (s->id) json_object_del(s->request, "id");
}

/* How far the reader may be ahead of the sender. */
static unsigned long ahead(const struct load *l) { return l->o->rate > 0 ? 1024 : (unsigned long)l->o->concurrency + 64; }

/* A free slot, not too many bytes, and not further ahead of the sender than it needs. */
static bool room(const struct load *l)
{
    return l->tail - l->head < LOAD_WINDOW && l->tail - l->next < ahead(l) && (l->bytes < LOAD_BYTES || l->tail == l->next);
}

/* Something moved: the reader goes on when half of its lead is used up, not for every line. */
static void tell_reader(struct load *l)
{
    if (l->reader_waits && room(l) && l->tail - l->next <= ahead(l) / 2) pthread_cond_signal(&l->room);
}

static void *reader(void *arg)
{
    struct load *l = arg;
    char *model = NULL;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        l->reader_waits = true;
        while (!l->stop && !room(l)) pthread_cond_wait(&l->room, &l->lock);
        l->reader_waits = false;
        bool stop = l->stop;
        pthread_mutex_unlock(&l->lock);
        if (stop) break;
        struct slot *s = slot_at(l, l->tail);       /* EMPTY: ours alone */
        struct err e = {0};
        json_t *v = NULL;
        *s = (struct slot){.load = l};
        openai_answer_init(&s->answer);
        int got = jsonl_next(l->in, &v, &s->line, &e);
        if (got == -2) fail(l, &e);
        if (got == 0 || got == -2) break;
        if (got < 0) s->e = e;
        else prepare(l, s, v, &model);
        json_decref(v);
        pthread_mutex_lock(&l->lock);
        s->state = s->e.code ? DONE : READY;
        l->bytes += s->bytes;
        l->tail++;
        bool wake = l->hungry;
        l->hungry = false;
        if (s->state == DONE) pthread_cond_signal(&l->answered);
        pthread_mutex_unlock(&l->lock);
        if (wake) http_wake(l->client);
    }
    free(model);
    pthread_mutex_lock(&l->lock);
    l->input_ended = true;
    pthread_cond_signal(&l->answered);
    pthread_mutex_unlock(&l->lock);
    http_wake(l->client);
    return NULL;
}

/* --- sending -------------------------------------------------------------------------------------------------------- */

static bool is_stream(const struct http_reply *r)
{
    char type[128];
    return http_header(r, "Content-Type", type, sizeof type) && !strncmp(type, "text/event-stream", 17);
}

static int add_body(struct slot *s, const char *p, size_t n)
{
    if (n > BODY_MAX - s->body.n) return err_set(&s->e, EXIT_DATA, "the answer is longer than %zu bytes", BODY_MAX);
    buf_add(&s->body, p, n);
    return 0;
}

struct inside { struct slot *s; double at; };

static int on_piece(void *arg, const char *p, size_t n, struct err *e)
{
    struct inside *i = arg;
    return i->s->events ? openai_answer_piece(&i->s->answer, p, n, i->at, e) : add_body(i->s, p, n);
}

static int on_data(void *arg, const struct http_reply *r, const char *p, size_t n, double at)
{
    struct slot *s = arg;
    const struct load_wire *w = s->load->o->wire;
    if (w && r->status == 200 && w->framed(r, &s->events)) {
        if (!s->frames) s->frames = w->open(w->ctx);
        return w->feed(s->frames, p, n, on_piece, &(struct inside){s, at}, &s->e);
    }
    if (r->status == 200 && s->q.stream && is_stream(r)) return openai_answer_piece(&s->answer, p, n, at, &s->e);
    return add_body(s, p, n);
}

/* What a status says about whose fault it was. */
static int status_code(long status)
{
    if (status == 401 || status == 403) return EXIT_NOPERM;
    if (status == 408 || status == 429 || status == 503) return EXIT_TEMPFAIL;
    return status == 404 || status >= 500 ? EXIT_UNAVAILABLE : EXIT_DATA;
}

static void judge(struct slot *s, const struct http_reply *r, const struct err *e)
{
    const char *body = s->body.data ? s->body.data : "";
    if (s->e.code) return;              /* the answer itself was refused while it came */
    const struct load_wire *w = s->load->o->wire;
    if (e->code) {
        s->e = *e;
    } else if (s->frames && (w->end(s->frames, &s->e) || s->events)) {
        if (!s->answer.ended) err_set(&s->e, EXIT_UNAVAILABLE, "the stream broke off after %zu chunks", s->answer.chunks);
    } else if (r->status != 200) {
        char why[600];
        openai_refusal(body, s->body.n, why, sizeof why);
        if (s->body.n) err_set(&s->e, status_code(r->status), "%s", why);
        else err_set(&s->e, status_code(r->status), "HTTP %ld with an empty answer", r->status);
    } else if (s->q.stream && is_stream(r)) {
        if (!s->answer.ended) err_set(&s->e, EXIT_UNAVAILABLE, "the stream broke off after %zu chunks", s->answer.chunks);
    } else {
        s->unread = true;
    }
}

static void close_frames(struct slot *s)
{
    if (s->frames) s->load->o->wire->close(s->frames);
    s->frames = NULL;
}

static void reset_answer(struct slot *s)
{
    close_frames(s);
    buf_free(&s->body);
}

/* A refusal that the wire knows to be no run: the slot waits for another try, and keeps its place among the running. */
static bool try_again(struct slot *s, const struct http_reply *r, const struct err *e)
{
    const struct load_wire *w = s->load->o->wire;
    struct err fault = {0};
    double wait = 0;
    if (!w || e->code || r->status == 200 || s->e.code) return false;
    bool again = w->refused(w->ctx, r, s->body.data ? s->body.data : "", s->body.n, ++s->tries, &wait, &fault);
    if (!again) {
        s->tries--;
        s->e = fault;
        return false;
    }
    reset_answer(s);
    s->not_before = clock_seconds() + wait;
    pthread_mutex_lock(&s->load->lock);
    s->state = AGAIN;
    s->load->again++;
    pthread_mutex_unlock(&s->load->lock);
    return true;
}

static void on_done(void *arg, const struct http_reply *r, const struct err *e)
{
    struct slot *s = arg;
    struct load *l = s->load;
    s->status = r->status;
    if (!s->tries) s->sent = r->sent;
    s->done = r->done;
    s->connect += r->connect;
    char named[sizeof s->request_id];
    if (http_header(r, "x-amzn-requestid", named, sizeof named) || http_header(r, "x-request-id", named, sizeof named))
        memcpy(s->request_id, named, sizeof named);
    if (s->warmup) {
        s->state = DONE;
        return;
    }
    if (try_again(s, r, e)) return;
    judge(s, r, e);
    close_frames(s);
    pthread_mutex_lock(&l->lock);
    s->state = DONE;
    l->running--;
    if (s == slot_at(l, l->head)) l->to_write = true;
    pthread_mutex_unlock(&l->lock);
}

static void send_slot(struct load *l, struct slot *s)
{
    char id[96];
    snprintf(id, sizeof id, "X-Request-ID: %s", s->request_id);
    const char *plain[] = {"Content-Type: application/json", s->q.stream ? "Accept: text/event-stream" : "Accept: application/json", id,
        l->o->authorization, NULL};
    struct err e = {0};
    const struct load_wire *w = l->o->wire;
    char **signed_ones = w ? w->headers(w->ctx, &s->q, &e) : NULL;
    struct http_request q = {.method = "POST", .url = s->q.url, .headers = w ? (const char *const *)signed_ones : plain, .body = s->q.body, .body_n = s->q.body_n,
        .timeout = l->o->timeout};
    int bad = e.code ? -1 : http_start(l->client, &q, &(struct http_sink){on_data, on_done, s}, &e);
    if (w) w->headers_free(signed_ones);
    if (!bad) return;
    struct http_reply none = {.sent = clock_seconds(), .done = clock_seconds()};
    on_done(s, &none, &e);
}

/* splitmix64: a number in [0, 1). */
static double random_unit(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* When request i leaves, in seconds since the start; i never falls. */
static double arrival(struct load *l, unsigned long i)
{
    if (!l->o->poisson) return (double)i / l->o->rate;
    for (; l->arrival < i; l->arrival++) l->arrival_at -= log(1 - random_unit(&l->random)) / l->o->rate;
    return l->arrival_at;
}

/* A slot whose next try is due; NULL with *wait shortened. */
static struct slot *due_again(struct load *l, double *wait)
{
    struct slot *found = NULL;
    double now = clock_seconds();
    pthread_mutex_lock(&l->lock);
    for (unsigned long i = l->head; l->again && !found && i < l->tail; i++) {
        struct slot *s = slot_at(l, i);
        if (s->state != AGAIN) continue;
        if (s->not_before <= now) found = s;
        else if (s->not_before - now < *wait) *wait = s->not_before - now;
    }
    if (found) {
        found->state = RUNNING;
        l->again--;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

/* A closed loop opens its places one after another: what starts as a burst queues at the server and stays a burst, and then its queue is measured. */
static double apart(const struct load *l)
{
    double share = APART_ALL / (double)l->o->concurrency;
    return share < APART ? share : APART;
}

static size_t places(const struct load *l, double now)
{
    double open = 1 + (now - l->start) / apart(l);
    return open < (double)l->o->concurrency ? (size_t)open : (size_t)l->o->concurrency;
}

/* The next slot that may leave now; NULL with *wait = seconds until that may change. */
static struct slot *due(struct load *l, double *wait)
{
    struct slot *s = NULL;
    *wait = 1.0;
    pthread_mutex_lock(&l->lock);
    unsigned long before = l->next;
    if (l->next < l->head) l->next = l->head;       /* bad lines are answered without being sent, perhaps written already */
    while (l->next < l->tail && slot_at(l, l->next)->state == DONE) l->next++;
    if (l->next < l->tail) {
        double now = clock_seconds();
        if (l->start == 0) l->start = now;
        s = slot_at(l, l->next);
        s->scheduled = l->o->rate > 0 ? l->start + arrival(l, l->next) : now;
        if (l->o->rate > 0 ? s->scheduled > now : l->running >= places(l, now)) {
            double opens = l->o->rate > 0 ? s->scheduled : l->running < (size_t)l->o->concurrency ? l->start + (double)l->running * apart(l) : now + *wait;
            if (opens - now < *wait) *wait = opens - now;
            s = NULL;
        } else {
            s->state = RUNNING;
            l->running++;
            l->next++;
        }
    }
    l->hungry = l->next == l->tail;
    if (l->next != before) tell_reader(l);
    pthread_mutex_unlock(&l->lock);
    return s;
}

static bool finished(struct load *l)
{
    pthread_mutex_lock(&l->lock);
    bool end = l->stop || (l->input_ended && l->next == l->tail && !l->running);
    pthread_mutex_unlock(&l->lock);
    return end;
}

/* The first request, `warmup` times, as many at once as the run will have: connections are made, caches filled, nothing is counted. */
static void warm_up(struct load *l)
{
    struct err e = {0};
    struct slot *first = NULL;
    while (!finished(l) && !first) {
        pthread_mutex_lock(&l->lock);
        unsigned long i = l->next < l->head ? l->head : l->next;
        while (i < l->tail && slot_at(l, i)->state == DONE) i++;
        if (i < l->tail) first = slot_at(l, i);
        pthread_mutex_unlock(&l->lock);
        if (!first && http_run(l->client, 0.01, &e) < 0) fail(l, &e);
    }
    long n = first ? l->o->warmup : 0, at_once = l->o->concurrency < n ? l->o->concurrency : n;
    struct slot *slot = xcalloc((size_t)(at_once + 1), sizeof *slot);
    for (long left = n, running = 1; left > 0 || running;) {
        running = 0;
        for (long i = 0; i < at_once; i++) {
            if (slot[i].state == DONE || slot[i].state == EMPTY) {
                reset_answer(&(struct slot){.load = l, .frames = slot[i].frames, .body = slot[i].body});
                openai_answer_free(&slot[i].answer);
                slot[i] = (struct slot){.load = l, .warmup = true, .q = first->q, .state = left > 0 ? RUNNING : AGAIN};
                openai_answer_init(&slot[i].answer);
                if (left-- > 0) send_slot(l, &slot[i]);
            }
            running += slot[i].state == RUNNING;
        }
        if (running && http_run(l->client, 1, &e) < 0) {
            fail(l, &e);
            break;
        }
    }
    for (long i = 0; i < at_once; i++) openai_answer_free(&slot[i].answer);
    free(slot);
}

static void send_now(struct load *l, struct slot *s)
{
    struct err e = {0};
    send_slot(l, s);
    if (http_push(l->client, &e)) fail(l, &e);
}

/* Not before the next request is under way, and not for every one of many quick answers: it would take a processor from the requests that leave, and from a server on this
 * machine.  Else *wait is shortened. */
static void tell_writer(struct load *l, double *wait)
{
    if (!l->to_write) return;
    double now = clock_seconds(), left = l->told + WRITE_APART - now;
    if (left > 0) {
        if (left < *wait) *wait = left;
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->to_write = false;
    l->told = now;
    pthread_cond_signal(&l->answered);
    pthread_mutex_unlock(&l->lock);
}

static void send_all(struct load *l)
{
    struct err e = {0};
    if (l->o->warmup > 0) warm_up(l);
    for (;;) {
        double wait;
        for (struct slot *s; (s = due(l, &wait));) send_now(l, s);
        for (struct slot *s; l->again && (s = due_again(l, &wait));) send_now(l, s);
        tell_writer(l, &wait);
        if (finished(l)) break;
        if (http_run(l->client, wait, &e) < 0) fail(l, &e);
    }
    l->told = 0;
    tell_writer(l, &(double){0});
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

static void add_json(struct buf *b, const char *key, const json_t *v)
{
    char *text = v ? json_text(v, false) : xstrdup("null");
    buf_printf(b, "%s\"%s\":%s", b->n > 1 ? "," : "", key, text);
    free(text);
}

/* A server's words may be no UTF-8, or cut inside a character. */
static void add_text(struct buf *b, const char *key, const char *s, size_t n)
{
    json_t *v = s ? json_repaired(s, n) : NULL;
    add_json(b, key, v);
    json_decref(v);
}

static void add_ms(struct buf *b, const char *key, bool known, double seconds)
{
    if (known) buf_printf(b, ",\"%s\":%.3f", key, seconds * 1e3);
    else buf_printf(b, ",\"%s\":null", key);
}

static void add_count(struct buf *b, const char *key, long n)
{
    if (n >= 0) buf_printf(b, ",\"%s\":%ld", key, n);
    else buf_printf(b, ",\"%s\":null", key);
}

static void add_answer(struct buf *b, const struct slot *s)
{
    const struct openai_answer *a = &s->answer;
    add_count(b, "prompt_tokens", a->prompt_tokens);
    add_count(b, "completion_tokens", a->completion_tokens);
    add_text(b, "finish_reason", a->finish_reason, a->finish_reason ? strlen(a->finish_reason) : 0);
    if (s->e.code) add_text(b, "error", s->e.msg, strlen(s->e.msg));
    else add_text(b, "text", a->choices && a->text[0].data ? a->text[0].data : "", a->choices ? a->text[0].n : 0);
    for (size_t i = 0; i < a->choices && a->choices > 1 && !s->e.code; i++) {   /* n > 1: all of them */
        json_t *v = json_repaired(a->text[i].data ? a->text[i].data : "", a->text[i].n);
        char *text = json_text(v, false);
        buf_printf(b, "%s%s%s", i ? "," : ",\"texts\":[", text, i + 1 == a->choices ? "]" : "");
        free(text);
        json_decref(v);
    }
}

static void format(struct buf *b, const struct slot *s)
{
    const struct openai_answer *a = &s->answer;
    bool sent = s->sent > 0;
    b->n = 0;
    buf_char(b, '{');
    add_json(b, "id", s->id);
    add_text(b, "request_id", sent ? s->request_id : NULL, strlen(s->request_id));
    add_count(b, "status", s->status ? s->status : -1);
    double start = sent ? s->load->start : 0;
    add_ms(b, "scheduled_ms", sent, s->scheduled - start);
    add_ms(b, "sent_ms", sent, s->sent - start);
    add_ms(b, "ttft_ms", a->chunks, a->chunks ? a->chunk[0] - s->sent : 0);
    add_ms(b, "tpot_ms", a->chunks && a->completion_tokens > 1,
        a->chunks ? (a->chunk[a->chunks - 1] - a->chunk[0]) / (double)(a->completion_tokens - 1) : 0);
    add_ms(b, "e2e_ms", sent, s->done - s->sent);
    add_answer(b, s);
    add_ms(b, "connect_ms", sent, s->connect);
    if (s->load->o->wire) buf_printf(b, ",\"retries\":%d", s->tries);
    if (a->chunks) {
        for (size_t i = 0; i < a->chunks; i++) buf_printf(b, "%s%.3f", i ? "," : ",\"chunk_ms\":[", (a->chunk[i] - s->sent) * 1e3);
        buf_char(b, ']');
    }
    if (s->request) add_json(b, "request", s->request);
    buf_str(b, "}\n");
}

static void learn_speed(struct slot *s)
{
    if (s->q.stream || s->answer.completion_tokens < 16 || s->done <= s->sent) return;
    pthread_mutex_lock(&s->load->lock);
    s->load->speed = (double)s->answer.completion_tokens / (s->done - s->sent);
    pthread_mutex_unlock(&s->load->lock);
}

/* The whole answers are read here: in the thread that sends, the next request would wait for it. */
static void read_answer(struct slot *s)
{
    if (s->unread && !openai_answer_whole(&s->answer, s->body.data ? s->body.data : "", s->body.n, &s->e)) learn_speed(s);
}

static void count(struct load *l, const struct slot *s)
{
    l->sum->lines++;
    if (!s->e.code) return;
    if (l->sum->failed++) return;
    if (s->request) err_set(&l->sum->first, s->e.code, "line %ld: %s", s->line, s->e.msg);
    else l->sum->first = s->e;          /* no JSON: names its line already */
}

static void slot_free(struct slot *s)
{
    json_decref(s->id);
    json_decref(s->request);
    openai_request_free(&s->q);
    openai_answer_free(&s->answer);
    buf_free(&s->body);
    *s = (struct slot){.state = EMPTY};
}

static void *writer(void *arg)
{
    struct load *l = arg;
    struct buf b = BUF_INIT;
    struct err e = {0};
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&l->lock);
        bool ready = l->head < l->tail && slot_at(l, l->head)->state == DONE;
        if (!ready) {
            pthread_mutex_unlock(&l->lock);
            if (fflush(l->out)) break;          /* a reader sees each answer as soon as there is nothing more to add */
            pthread_mutex_lock(&l->lock);
        }
        while (!l->stop && !(l->head < l->tail && slot_at(l, l->head)->state == DONE) && !(l->input_ended && l->head == l->tail))
            pthread_cond_wait(&l->answered, &l->lock);
        ready = l->head < l->tail && slot_at(l, l->head)->state == DONE;
        stop = l->stop || !ready;
        pthread_mutex_unlock(&l->lock);
        if (stop) break;
        struct slot *s = slot_at(l, l->head);
        read_answer(s);
        format(&b, s);
        count(l, s);
        if (fwrite(b.data, 1, b.n, l->out) != b.n) break;
        size_t bytes = s->bytes;
        slot_free(s);
        pthread_mutex_lock(&l->lock);
        l->bytes -= bytes;
        l->head++;
        tell_reader(l);
        pthread_mutex_unlock(&l->lock);
    }
    buf_free(&b);
    if (ferror(l->out)) {
        err_stdout(&e);
        fail(l, &e);
    }
    return NULL;
}

/* Where it may, the clock of many requests runs before everything else on this machine: a reading that waits for a processor is the machine's time, not the server's.  One
 * request at a time waits for nothing of ours; there the scheduler is better left to put a server on this machine beside us, which it does not do for a real-time thread. */
static void run_first(const struct load_options *o)
{
    if (o->concurrency == 1 && !(o->rate > 0)) return;
    struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    pthread_setschedparam(pthread_self(), SCHED_RR, &p);        /* not permitted to most users: then not */
}

int load_run(const struct load_options *o, struct jsonl *in, FILE *out, struct load_summary *sum, struct err *e)
{
    struct load *l = xcalloc(1, sizeof *l);
    pthread_t reading, writing;
    sigset_t pipe;
    *sum = (struct load_summary){0};
    *l = (struct load){.o = o, .in = in, .out = out, .sum = sum, .lock = PTHREAD_MUTEX_INITIALIZER, .room = PTHREAD_COND_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER,
        .random = (uint64_t)o->seed, .speed = o->tokens_per_second};
    l->client = http_client_new(LOAD_CONCURRENCY_MAX, e);
    if (!l->client) {
        free(l);
        return -1;
    }
    /* A UUID (version 8 of RFC 9562, ours to fill), since some servers refuse any other id: the time, the process, and each request's line. */
    snprintf(l->run, sizeof l->run, "%08lx-%04lx-8%03lx-8000-", (unsigned long)time(NULL) & 0xffffffff, (unsigned long)getpid() & 0xffff, (unsigned long)getpid() >> 16 & 0xfff);
    l->ring = xcalloc(LOAD_WINDOW, sizeof *l->ring);
    if (pthread_create(&reading, NULL, reader, l) || pthread_create(&writing, NULL, writer, l)) {
        struct err none = {0};
        err_thread(&none);
        die(&none);
    }
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);        /* a server that hangs up is no closed reader of ours: that shows in the writer */
    run_first(o);
    send_all(l);
    pthread_join(writing, NULL);
    if (l->fatal.code) {
        static struct load *abandoned;              /* the reader may still wait for a line, and then look at l */
        abandoned = l;
        return err_set(e, abandoned->fatal.code, "%s", abandoned->fatal.msg);
    }
    pthread_join(reading, NULL);
    http_client_free(l->client);
    free(l->ring);
    free(l);
    return 0;
}
