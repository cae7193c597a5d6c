#include "net/remote.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/percent.h"
#include "base/text.h"
#include "net/http.h"

#define HEAD_BYTES ((uint64_t)32 << 10)     /* read with the first request for a file: small files whole, most of a header */
#define LISTING_MAX ((size_t)64 << 20)
#define HOPS 10
#define STALL 60.0                          /* seconds without a byte */
#define BACKOFF_FIRST 0.25
#define BACKOFF_MOST 16.0
#define PAUSE_MOST 3600                     /* seconds: a longer Retry-After is not waited for */

struct file {
    char *name;
    char *url;              /* where it is asked for */
    char *at;               /* where redirects led; presigned: may expire */
    char *etag;             /* strong ones only; NULL = none */
    uint64_t size;
    char *head;             /* the first bytes */
    size_t head_n;
    int generation;         /* counts how often `at` was found */
    bool stale;             /* `at` was refused: resolve again */
};

/* A stretch of one file, asked for with one request at a time and filled in order. */
struct chunk {
    struct file *file;
    uint64_t begin;
    size_t n, have, taken;
    char *data;
    bool asked;             /* a request for what is missing is under way */
    int generation;         /* of the file's `at` that was asked */
    bool checked;           /* … and its answer's header was found right */
    int tries;              /* since the last byte */
    double not_before;      /* clock: when the next try may start */
    struct remote *remote;
};

struct remote {
    struct http_client *http;
    long connections;
    int retries;
    char *base;             /* URL without a slash at its end, the files' parent */
    char *lone;             /* file name, or NULL */
    char *lone_url;         /* where it is asked for, if that is as it was given */
    char *label;            /* for messages */
    char *identity;         /* hf:// with the commit */
    char *page;             /* where access is granted; NULL = not the Hub */
    char *authorization;    /* header line, or NULL */
    char **listing; size_t n_listing;       /* NULL = cannot list */
    struct file **file; size_t n_files;
    uint64_t fetched;
    struct remote_range *plan;              /* names point to struct file's */
    struct file **plan_file;
    size_t n_plan, plan_at;                 /* first range not wholly cut into chunks */
    uint64_t plan_off;
    struct chunk *ring;                     /* `connections` of them */
    size_t first, used;
    struct err fault;                       /* found inside a callback */
};

bool remote_is(const char *path)
{
    return strncasecmp(path, "hf://", 5) == 0 || strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

/* --- one request, waited for, tried again -------------------------------------------------------------------------- */

static bool worth_retrying(long status)
{
    return status == 408 || status == 429 || status >= 500;
}

static double backoff(int tries)
{
    double wait = BACKOFF_FIRST;
    for (int i = 1; i < tries && wait < BACKOFF_MOST; i++)
        wait *= 2;
    return wait < BACKOFF_MOST ? wait : BACKOFF_MOST;
}

/* Retry-After, else the backoff.  A date counts from the answer's own Date: clocks differ. */
static double pause_of(const struct http_reply *reply, int tries)
{
    char text[64], *end;
    if (reply->status && http_header(reply, "Retry-After", text, sizeof text)) {
        const double s = strtod(text, &end);
        if (end != text && !*end && s >= 0 && s <= PAUSE_MOST)
            return s;
        const long long now = http_date(reply, "Date"), then = http_date(reply, "Retry-After");
        if (now >= 0 && then > now && then - now <= PAUSE_MOST)
            return (double)(then - now);
    }
    return backoff(tries);
}

static int wait_until(struct remote *r, double when, struct err *e)
{
    for (double now; (now = clock_seconds()) < when; ) {
        double left = when - now;
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        if (http_run(r->http, 0, e) < 0)
            return -1;
        nanosleep(&t, NULL);
    }
    return 0;
}

static bool token_may_go(const struct remote *r, const char *url)
{
    return r->authorization && http_same_origin(url, r->base);
}

/* One answer without its redirects followed; transport faults and refusals that may pass are tried again. */
static int ask(struct remote *r, const char *url, const char *range, size_t max, struct http_reply *reply, struct err *e)
{
    const char *headers[3] = {NULL};
    size_t n = 0;
    if (range)
        headers[n++] = range;
    if (token_may_go(r, url))
        headers[n++] = r->authorization;
    struct http_request q = {.method = "GET", .url = url, .headers = headers, .stall = STALL};
    for (int tries = 1; ; tries++) {
        struct err te = {0, ""};
        int bad = http_fetch(r->http, &q, max, reply, &te);
        bool pass = bad ? te.code == EXIT_UNAVAILABLE || te.code == EXIT_TEMPFAIL : worth_retrying(reply->status);
        if (!pass && bad)
            return err_set(e, te.code, "%s", te.msg);
        if (!pass)
            return 0;
        if (tries > r->retries) {
            err_set(e, EXIT_TEMPFAIL, "%s: %s: tried %d times: try again later", r->label, bad ? te.msg : "the server refuses for now", tries);
            return -1;
        }
        double when = clock_seconds() + pause_of(reply, tries);
        note_msg("%s: %s: trying again", r->label, bad ? te.msg : "the server refuses for now");
        http_reply_free(reply);
        if (wait_until(r, when, e) != 0)
            return -1;
    }
}

static int refused(const struct remote *r, const char *name, long status, struct err *e)
{
    if ((status == 401 || status == 403) && r->page)
        return err_set(e, EXIT_NOPERM, "%s: the Hub refuses access (%ld): open %s, accept the conditions, and set HF_TOKEN", r->label,
                       status, r->page);
    if (status == 401 || status == 403)
        return err_set(e, EXIT_NOPERM, "%s: %s: the server refuses access (%ld)", r->label, name, status);
    if (status == 404 || status == 410)
        return err_set(e, EXIT_NOINPUT, "%s: %s: there is no such file", r->label, name);
    return err_set(e, EXIT_UNAVAILABLE, "%s: %s: the server answers %ld", r->label, name, status);
}

/* --- a file: where it is, how long, and what identifies it --------------------------------------------------------- */

static void file_free(struct file *f)
{
    free(f->name);
    free(f->url);
    free(f->at);
    free(f->etag);
    free(f->head);
    free(f);
}

static char *strong_etag(const struct http_reply *reply)
{
    char tag[300];
    return http_header(reply, "ETag", tag, sizeof tag) && tag[0] == '"' ? xstrdup(tag) : NULL;
}

/* "bytes 0-99/1234" or "bytes star/1234"; a unit's case does not count. */
static bool content_range(const struct http_reply *reply, uint64_t *begin, uint64_t *end, uint64_t *total)
{
    char text[100];
    unsigned long long a = 0, b = 0, n;
    if (!http_header(reply, "Content-Range", text, sizeof text))
        return false;
    if (strncasecmp(text, "bytes ", 6) != 0)
        return false;
    if (sscanf(text + 6, "%llu-%llu/%llu", &a, &b, &n) != 3 && sscanf(text + 6, "*/%llu", &n) != 1)
        return false;
    *begin = a;
    *end = b;
    *total = n;
    return true;
}

static int no_ranges(const struct remote *r, const struct file *f, struct err *e)
{
    return err_set(e, EXIT_UNAVAILABLE, "%s: %s: the server ignores range requests: download the file and name the copy", r->label, f->name);
}

static int changed(const struct remote *r, const struct file *f, const char *how, struct err *e)
{
    return err_set(e, EXIT_DATA, "%s: %s: changed while it was read (%s): start again", r->label, f->name, how);
}

/* The first answer is of no use, and the header says why. */
static int wrong_head(const struct remote *r, const struct file *f, const struct http_reply *reply, struct err *e)
{
    char text[100];
    if (http_header(reply, "Content-Encoding", text, sizeof text) && strcasecmp(text, "identity") != 0)
        return err_set(e, EXIT_DATA, "%s: %s: the server sends it packed (Content-Encoding: %s), so that ranges mean nothing: download the file and name the copy",
                       r->label, f->name, text);
    if (!http_header(reply, "Content-Range", text, sizeof text))
        return err_set(e, EXIT_DATA, "%s: %s: a partial answer without Content-Range", r->label, f->name);
    return err_set(e, EXIT_DATA, "%s: %s: the server's answer contradicts itself: asked for the first %llu bytes, got %zu as \"%s\"", r->label, f->name,
                   (unsigned long long)HEAD_BYTES, reply->body.n, text);
}

/* Take size, identity and first bytes from the answer to the first request. */
static int learn(struct remote *r, struct file *f, struct http_reply *reply, struct err *e)
{
    uint64_t begin = 0, end = 0, total = 0;
    bool ranged = content_range(reply, &begin, &end, &total);
    if (reply->status == 416 && ranged && total == 0)
        reply->body.n = 0;              /* an empty file has no first byte */
    else if (reply->status == 200 && reply->body.n <= HEAD_BYTES)
        total = reply->body.n;
    else if (reply->status == 200)
        return no_ranges(r, f, e);
    else if (reply->status != 206)
        return refused(r, f->name, reply->status, e);
    else if (!ranged || begin != 0 || reply->body.n != end + 1 || reply->body.n != (total < HEAD_BYTES ? total : HEAD_BYTES))
        return wrong_head(r, f, reply, e);
    char *etag = strong_etag(reply);
    bool known = f->head != NULL;
    if (known && (total != f->size || (etag && f->etag && strcmp(etag, f->etag) != 0))) {
        free(etag);
        return changed(r, f, "size or ETag", e);
    }
    free(f->etag);
    free(f->head);
    f->etag = etag;
    f->size = total;
    f->head_n = reply->body.n;
    f->head = xmalloc(f->head_n + 1);
    if (f->head_n)
        memcpy(f->head, reply->body.data, f->head_n);
    r->fetched += f->head_n;
    return 0;
}

/* Ask `*at` for the first bytes: 1 = it redirects and *at is now where to. */
static int resolve_hop(struct remote *r, struct file *f, char **at, struct err *e)
{
    struct http_reply reply = {0};
    struct err te = {0, ""};
    char range[64], location[8192];
    snprintf(range, sizeof range, "Range: bytes=0-%llu", (unsigned long long)HEAD_BYTES - 1);
    int result = ask(r, *at, range, HEAD_BYTES + 1, &reply, &te);
    if (result && te.code == EXIT_DATA)         /* longer than asked for */
        result = no_ranges(r, f, e);
    else if (result)
        result = err_set(e, te.code, "%s", te.msg);
    else if (reply.status >= 300 && reply.status < 400 && http_header(&reply, "Location", location, sizeof location)) {
        char *next = http_join(*at, location);
        free(*at);
        *at = next;
        result = next ? 1 : err_set(e, EXIT_DATA, "%s: %s: redirected to what is no http(s) URL", r->label, f->name);
    } else
        result = learn(r, f, &reply, e);
    http_reply_free(&reply);
    return result;
}

/* Follow redirects by hand, so that the token stays at home and the last URL is known. */
static int resolve(struct remote *r, struct file *f, struct err *e)
{
    char *at = xstrdup(f->url);
    int more = 1;
    for (int hop = 0; hop <= HOPS && more == 1; hop++)
        more = resolve_hop(r, f, &at, e);
    if (more == 1)
        more = err_set(e, EXIT_UNAVAILABLE, "%s: %s: more than %d redirects", r->label, f->name, HOPS);
    free(f->at);
    f->at = at;
    f->generation++;
    f->stale = false;
    return more;
}

static char *url_of(const struct remote *r, const char *name)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s/", r->base);
    percent_encode(&b, name, strlen(name), "/");
    return b.data;
}

static bool listed(const struct remote *r, const char *name)
{
    for (size_t i = 0; i < r->n_listing; i++)
        if (strcmp(r->listing[i], name) == 0)
            return true;
    return r->listing == NULL;
}

static struct file *get_file(struct remote *r, const char *name, struct err *e)
{
    for (size_t i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i]->name, name) == 0)
            return r->file[i];
    if (!listed(r, name)) {
        err_set(e, EXIT_NOINPUT, "%s: %s: there is no such file", r->label, name);
        return NULL;
    }
    struct file *f = xcalloc(1, sizeof *f);
    f->name = xstrdup(name);
    f->url = r->lone_url && strcmp(name, r->lone) == 0 ? xstrdup(r->lone_url) : url_of(r, name);
    if (resolve(r, f, e) != 0) {
        file_free(f);
        return NULL;
    }
    r->file = xreallocarray(r->file, r->n_files + 1, sizeof *r->file);
    r->file[r->n_files++] = f;
    return f;
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

static char *trimmed_slurp(const char *path)
{
    struct err e = {0, ""};
    char *text;
    size_t n;
    if (io_slurp(path, 4096, &text, &n, &e) != 0)
        return NULL;
    text[strcspn(text, "\r\n \t")] = 0;
    return text;
}

/* HF_TOKEN, or the file that the hf client keeps: HF_TOKEN_PATH, HF_HOME/token, XDG_CACHE_HOME/huggingface/token, ~/.cache/huggingface/token. */
static char *hub_token(void)
{
    const char *token = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH"), *home = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"),
               *user = getenv("HOME");
    if (token)
        return xstrdup(token);
    char *file = path && *path ? xstrdup(path) : home && *home ? xasprintf("%s/token", home)
        : xdg && *xdg ? xasprintf("%s/huggingface/token", xdg) : xasprintf("%s/.cache/huggingface/token", user ? user : "");
    char *text = trimmed_slurp(file);
    free(file);
    return text;
}

static int set_token(struct remote *r, struct err *e)
{
    char *token = hub_token();
    int bad = 0;
    for (const char *p = token; p && *p && !bad; p++)
        if (*p <= ' ' || *p > '~')
            bad = err_set(e, EXIT_USAGE, "the Hub's token has a character that no token has: check HF_TOKEN");
    if (!bad && token && *token)
        r->authorization = xasprintf("Authorization: Bearer %s", token);
    free(token);
    return bad;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int take_listing(struct remote *r, const char *repo, const char *body, size_t n, char **commit, struct err *e)
{
    json_t *v = json_parse(body, n, r->label, e), *sib;
    size_t i;
    if (!v)
        return -1;
    const char *sha = json_string_value(json_object_get(v, "sha"));
    json_t *siblings = json_object_get(v, "siblings");
    int bad = 0;
    if (!sha || !*sha || strspn(sha, "0123456789abcdef") != strlen(sha) || !json_is_array(siblings))
        bad = err_set(e, EXIT_DATA, "%s: the Hub's answer about %s has no commit or no file list", r->label, repo);
    else
        *commit = xstrdup(sha);
    r->listing = xcalloc(json_array_size(siblings), sizeof *r->listing);
    json_array_foreach(siblings, i, sib) {
        const char *name = json_string_value(json_object_get(sib, "rfilename"));
        if (name && !strchr(name, '/'))
            r->listing[r->n_listing++] = xstrdup(name);
    }
    if (r->n_listing > 1)
        qsort(r->listing, r->n_listing, sizeof *r->listing, by_name);
    json_decref(v);
    return bad;
}

/* hf://org/name[@revision][/file] */
static int open_hub(struct remote *r, const char *url, struct err *e)
{
    const char *rest = url + 5, *endpoint = getenv("HF_ENDPOINT");
    size_t org = strcspn(rest, "/@"), name = rest[org] == '/' ? strcspn(rest + org + 1, "/@") : 0;
    if (org == 0 || name == 0)
        return err_set(e, EXIT_USAGE, "%s: not hf://org/name[@revision][/file]", url);
    const char *tail = rest + org + 1 + name;
    size_t rev = *tail == '@' ? strcspn(tail + 1, "/") : 0;
    if (*tail == '@' && rev == 0)
        return err_set(e, EXIT_USAGE, "%s: no revision after @", url);
    const char *file = tail + (*tail == '@' ? rev + 1 : 0);
    file += *file == '/';
    if (strchr(file, '/'))
        return err_set(e, EXIT_USAGE, "%s: files in folders of a repository are not supported", url);
    if (!endpoint || !*endpoint)
        endpoint = "https://huggingface.co";
    if (http_names_user(endpoint))
        return err_set(e, EXIT_USAGE, "HF_ENDPOINT has a user or password: it would stand in logs and provenance");
    int n = (int)strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    char *repo = xasprintf("%.*s", (int)(org + 1 + name), rest);
    r->base = xasprintf("%.*s", n, endpoint);
    r->page = xasprintf("%.*s/%s", n, endpoint, repo);
    char *api = xasprintf("%.*s/api/models/%s/revision/%.*s", n, endpoint, repo, rev ? (int)rev : 4, rev ? tail + 1 : "main");
    struct http_reply reply = {0};
    char *commit = NULL;
    int bad = set_token(r, e);
    if (!bad)
        bad = ask(r, api, NULL, LISTING_MAX, &reply, e);
    if (!bad && reply.status == 404)
        bad = err_set(e, EXIT_NOINPUT, "%s: the Hub has no such repository or revision", url);
    else if (!bad && reply.status != 200)
        bad = refused(r, repo, reply.status, e);
    if (!bad)
        bad = take_listing(r, repo, reply.body.data, reply.body.n, &commit, e);
    if (!bad) {
        free(r->base);
        r->base = xasprintf("%.*s/%s/resolve/%s", n, endpoint, repo, commit);
        r->lone = *file ? xstrdup(file) : NULL;
        r->identity = xasprintf("hf://%s@%s%s%s", repo, commit, *file ? "/" : "", file);
    }
    http_reply_free(&reply);
    free(commit);
    free(api);
    free(repo);
    return bad;
}

/* http(s)://host/…: a .safetensors file, or the parent of a checkpoint's files. */
static int open_web(struct remote *r, const char *url, struct err *e)
{
    size_t n = strcspn(url, "?#");
    if (http_names_user(url))
        return err_set(e, EXIT_USAGE, "a source's URL with a user or password is not supported: it would stand in logs and provenance");
    if (url[n])
        return err_set(e, EXIT_USAGE, "%.*s: a URL with a query or fragment is not supported", (int)n, url);
    const char *host = strstr(url, "://") + 3;
    if (!*host || *host == '/')
        return err_set(e, EXIT_USAGE, "%s: a URL without a host: http(s)://host/path is expected", url);
    while (n > 8 && url[n - 1] == '/')
        n--;
    char *whole = xstrndup(url, n), *slash = strrchr(whole, '/');
    if (ends_with(whole, ".safetensors")) {
        r->lone = xstrdup(slash + 1);
        r->lone_url = xstrdup(whole);
        *slash = 0;
    }
    r->base = whole;
    return 0;
}

struct remote *remote_open(const char *url, const struct remote_options *o, struct err *e)
{
    struct remote *r = xcalloc(1, sizeof *r);
    r->connections = o->connections;
    r->retries = (int)o->retries;
    r->label = xstrdup(url);
    r->http = http_client_new(o->connections, e);
    r->ring = xcalloc((size_t)o->connections, sizeof *r->ring);
    int bad = !r->http;
    if (!bad)
        bad = strncasecmp(url, "hf://", 5) == 0 ? open_hub(r, url, e) : open_web(r, url, e);
    if (bad) {
        remote_close(r);
        return NULL;
    }
    return r;
}

const char *remote_file(const struct remote *r)
{
    return r->lone;
}

const char *remote_identity(const struct remote *r)
{
    return r->identity;
}

uint64_t remote_bytes(const struct remote *r)
{
    return r->fetched;
}

/* --- ranges in flight ---------------------------------------------------------------------------------------------- */

/* Is this answer about the bytes that were asked for, of the file that was opened? */
static int check_answer(struct chunk *c, const struct http_reply *reply, uint64_t asked)
{
    struct remote *r = c->remote;
    const struct file *f = c->file;
    uint64_t begin, end, total;
    char *etag = strong_etag(reply);
    int bad = 0;
    if (f->etag && etag && strcmp(etag, f->etag) != 0)
        bad = changed(r, f, "ETag", &r->fault);
    else if (!content_range(reply, &begin, &end, &total))
        bad = err_set(&r->fault, EXIT_DATA, "%s: %s: a partial answer without Content-Range", r->label, f->name);
    else if (total != f->size)
        bad = changed(r, f, "size", &r->fault);
    else if (begin != asked)
        bad = err_set(&r->fault, EXIT_DATA, "%s: %s: asked for bytes from %llu, the server sent them from %llu", r->label, f->name,
                      (unsigned long long)asked, (unsigned long long)begin);
    free(etag);
    return bad;
}

/* The first byte of an answer is the time to look at its header: a wrong one must not reach the chunk.  The text of an error is let pass, chunk_done
 * sees its status; a 200 is broken off, it may be endless. */
static int chunk_data(void *arg, const struct http_reply *reply, const char *p, size_t n, double at)
{
    struct chunk *c = arg;
    struct remote *r = c->remote;
    (void)at;
    if (reply->status != 206)
        return reply->status == 200;
    if (!c->checked && check_answer(c, reply, c->begin + c->have) != 0)
        return -1;
    c->checked = true;
    if (n > c->n - c->have)
        return err_set(&r->fault, EXIT_DATA, "%s: %s: the server sent more than was asked for", r->label, c->file->name);
    memcpy(c->data + c->have, p, n);
    c->have += n;
    c->tries = 0;
    r->fetched += n;
    return 0;
}

static void chunk_done(void *arg, const struct http_reply *reply, const struct err *e)
{
    struct chunk *c = arg;
    struct remote *r = c->remote;
    struct file *f = c->file;
    long status = reply->status;
    c->asked = false;
    c->not_before = 0;
    if (r->fault.code || c->have == c->n)
        return;
    if (status == 200)
        (void)(f->etag ? changed(r, f, "the server sent the whole file instead of the range", &r->fault) : no_ranges(r, f, &r->fault));
    else if (status == 416)
        (void)changed(r, f, "the range is gone", &r->fault);
    else if ((status == 401 || status == 403 || status == 404 || status == 410) && strcmp(f->at, f->url) != 0 && c->tries < r->retries) {
        /* Others in flight may have found the new place already. */
        f->stale = f->stale || c->generation == f->generation;
        c->tries++;
    } else if (e->code == EXIT_NOPERM || e->code == EXIT_USAGE)
        err_set(&r->fault, e->code, "%s", e->msg);
    else if (status == 206 || status == 0 || worth_retrying(status)) {
        if (++c->tries > r->retries)
            err_set(&r->fault, EXIT_TEMPFAIL, "%s: %s: %s: tried %d times: try again later", r->label, f->name,
                    e->code ? e->msg : "the answer is incomplete or refused for now", c->tries);
        else
            note_msg("%s: %s: at %llu: %s: going on from there", r->label, f->name, (unsigned long long)(c->begin + c->have),
                     e->code ? e->msg : "incomplete or refused for now");
        c->not_before = clock_seconds() + pause_of(reply, c->tries);
    } else
        (void)refused(r, f->name, status, &r->fault);
}

static int start_chunk(struct remote *r, struct chunk *c, struct err *e)
{
    char range[100], if_range[320];
    const char *headers[4] = {NULL};
    size_t n = 0;
    if (c->file->stale && resolve(r, c->file, e) != 0)
        return -1;
    snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)(c->begin + c->have),
             (unsigned long long)(c->begin + c->n - 1));
    headers[n++] = range;
    if (c->file->etag) {
        snprintf(if_range, sizeof if_range, "If-Range: %s", c->file->etag);
        headers[n++] = if_range;
    }
    if (token_may_go(r, c->file->at))
        headers[n++] = r->authorization;
    struct http_request q = {.method = "GET", .url = c->file->at, .headers = headers, .stall = STALL, .buffer = 100 << 10};
    struct http_sink sink = {chunk_data, chunk_done, c};
    c->asked = true;
    c->generation = c->file->generation;
    c->checked = false;
    return http_start(r->http, &q, &sink, e);
}

/* Cut the next chunk off the plan; ranges that touch in the file are taken together. False when the plan is used up. */
static bool cut_chunk(struct remote *r, struct chunk *c)
{
    while (r->plan_at < r->n_plan && r->plan_off == r->plan[r->plan_at].nbytes) {
        r->plan_at++;
        r->plan_off = 0;
    }
    if (r->plan_at == r->n_plan)
        return false;
    c->remote = r;
    c->file = r->plan_file[r->plan_at];
    c->begin = r->plan[r->plan_at].begin + r->plan_off;
    c->n = c->have = c->taken = 0;
    c->tries = 0;
    c->asked = false;
    c->not_before = 0;
    while (c->n < REMOTE_CHUNK && r->plan_at < r->n_plan) {
        const struct remote_range *p = &r->plan[r->plan_at];
        if (r->plan_file[r->plan_at] != c->file || p->begin + r->plan_off != c->begin + c->n)
            break;
        uint64_t left = p->nbytes - r->plan_off, room = REMOTE_CHUNK - c->n, take = left < room ? left : room;
        c->n += (size_t)take;
        r->plan_off += take;
        if (r->plan_off == p->nbytes) {
            r->plan_at++;
            r->plan_off = 0;
        }
    }
    if (!c->data)
        c->data = xmalloc(REMOTE_CHUNK);
    return c->n > 0;
}

static struct chunk *chunk_at(struct remote *r, size_t i)
{
    return &r->ring[(r->first + i) % (size_t)r->connections];
}

/* Keep every connection busy: new chunks at the end of the ring, and those whose pause is over again. */
static int keep_busy(struct remote *r, struct err *e)
{
    while (r->used < (size_t)r->connections && cut_chunk(r, chunk_at(r, r->used)))
        r->used++;
    double now = clock_seconds();
    for (size_t i = 0; i < r->used; i++) {
        struct chunk *c = chunk_at(r, i);
        if (c->have < c->n && !c->asked && c->not_before <= now && start_chunk(r, c, e) != 0)
            return -1;
    }
    return 0;
}

/* The first chunk's place is free once its last bytes were used. */
static void retire(struct remote *r)
{
    struct chunk *c = chunk_at(r, 0);
    if (r->used > 0 && c->taken == c->n) {
        r->first = (r->first + 1) % (size_t)r->connections;
        r->used--;
    }
}

long remote_next(struct remote *r, const char **data, size_t n, struct err *e)
{
    retire(r);
    for (;;) {
        if (keep_busy(r, e) != 0)
            return -1;
        if (r->used == 0)
            return err_set(e, EXIT_BUG, "%s: read past the end of the plan", r->label);
        struct chunk *c = chunk_at(r, 0);
        size_t ready = c->have - c->taken, take = ready < n ? ready : n;
        if (take > 0) {
            *data = c->data + c->taken;
            c->taken += take;
            return (long)take;
        }
        if (http_run(r->http, 0.1, e) < 0)
            return -1;
        if (r->fault.code)
            return err_set(e, r->fault.code, "%s", r->fault.msg);
    }
}

/* What is in flight belongs to the old plan: a client of its own ends it at once. */
static int drop_plan(struct remote *r, struct err *e)
{
    if (r->used > 0) {
        http_client_free(r->http);
        r->http = http_client_new(r->connections, e);
    }
    r->used = 0;
    r->plan_at = r->n_plan = 0;
    r->plan_off = 0;
    return r->http ? 0 : -1;
}

int remote_plan(struct remote *r, const struct remote_range *range, size_t n, struct err *e)
{
    if (drop_plan(r, e) != 0)
        return -1;
    r->plan = xreallocarray(r->plan, n, sizeof *r->plan);
    r->plan_file = xreallocarray(r->plan_file, n, sizeof *r->plan_file);
    for (size_t i = 0; i < n; i++) {
        struct file *f = get_file(r, range[i].file, e);
        if (!f)
            return -1;
        if (range[i].begin > f->size || range[i].nbytes > f->size - range[i].begin)
            return err_set(e, EXIT_BUG, "%s: %s: a range past its end", r->label, f->name);
        r->plan[i] = range[i];
        r->plan_file[i] = f;
    }
    r->n_plan = n;
    return 0;
}

void remote_close(struct remote *r)
{
    if (!r)
        return;
    http_client_free(r->http);
    for (long i = 0; r->ring && i < r->connections; i++)
        free(r->ring[i].data);
    for (size_t i = 0; i < r->n_files; i++)
        file_free(r->file[i]);
    for (size_t i = 0; i < r->n_listing; i++)
        free(r->listing[i]);
    free(r->ring);
    free(r->file);
    free(r->listing);
    free(r->plan);
    free(r->plan_file);
    free(r->base);
    free(r->lone);
    free(r->lone_url);
    free(r->label);
    free(r->identity);
    free(r->page);
    free(r->authorization);
    free(r);
}

/* --- its files as a store ------------------------------------------------------------------------------------------ */

struct reading { struct remote *remote; struct file *file; uint64_t at; };

static long read_remote(void *ctx, void *buf, size_t n, struct err *e)
{
    struct reading *g = ctx;
    const struct file *f = g->file;
    if (g->at >= f->size || n == 0)
        return 0;
    size_t take = n < f->size - g->at ? n : (size_t)(f->size - g->at);
    if (g->at < f->head_n) {
        take = take < f->head_n - (size_t)g->at ? take : f->head_n - (size_t)g->at;
        memcpy(buf, f->head + g->at, take);
    } else {
        struct remote_range one = {f->name, g->at, take};
        const char *data;
        if (remote_plan(g->remote, &one, 1, e) != 0)
            return -1;
        for (size_t have = 0; have < take; ) {
            long got = remote_next(g->remote, &data, take - have, e);
            if (got < 0)
                return -1;
            memcpy((char *)buf + have, data, (size_t)got);
            have += (size_t)got;
        }
    }
    g->at += take;
    return (long)take;
}

static int seek_remote(void *ctx, uint64_t offset, struct err *e)
{
    struct reading *g = ctx;
    (void)e;
    g->at = offset;
    return 0;
}

static int size_remote(void *ctx, uint64_t *n, struct err *e)
{
    (void)e;
    *n = ((struct reading *)ctx)->file->size;
    return 0;
}

static struct input *open_remote(void *ctx, const char *name, struct err *e)
{
    static const struct input_ops ops = {read_remote, seek_remote, size_remote, free};
    struct remote *r = ctx;
    struct file *f = get_file(r, name, e);
    if (!f)
        return NULL;
    struct reading *g = xmalloc(sizeof *g);
    *g = (struct reading){r, f, 0};
    char *label = r->lone ? xstrdup(r->label) : xasprintf("%s/%s", r->label, name);
    struct input *in = input_from(label, &ops, g);
    free(label);
    return in;
}

static int list_remote(void *ctx, char ***names, size_t *n, struct err *e)
{
    const struct remote *r = ctx;
    (void)e;
    *names = xcalloc(r->n_listing, sizeof **names);
    *n = r->n_listing;
    for (size_t i = 0; i < r->n_listing; i++)
        (*names)[i] = xstrdup(r->listing[i]);
    return 0;
}

static void leave_open(void *ctx)
{
    (void)ctx;
}

struct store *remote_store(struct remote *r)
{
    static const struct store_ops hub = {open_remote, list_remote, leave_open}, web = {open_remote, NULL, leave_open};
    return store_new(r->label, r->listing ? &hub : &web, r);
}
