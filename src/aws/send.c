#include "aws/send.h"

#include <curl/curl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

#define ANSWER_MAX ((size_t)64 << 20)
#define TIMEOUT 30.0

static time_t clock_offset;

time_t aws_time(time_t here) { return here + clock_offset; }

time_t aws_now(void)
{
    const char *stopped = getenv("AWS_SIGNING_CLOCK");
    time_t t;
    if (stopped && sigv4_parse_date(stopped, &t)) return t;
    return aws_time(time(NULL));
}

static void wipe(char **s)
{
    if (*s) OPENSSL_cleanse(*s, strlen(*s));
    free(*s);
    *s = NULL;
}

void aws_credentials_free(struct aws_credentials *c)
{
    wipe(&c->key_id);
    wipe(&c->secret);
    wipe(&c->token);
}

void aws_answer_free(struct aws_answer *a)
{
    http_reply_free(&a->http);
}

/* --- request -------------------------------------------------------------------------------------------------------- */

static const char *host_of(const char *url, size_t *n)
{
    const char *p = strstr(url, "://");
    p = p ? p + 3 : url;
    *n = strcspn(p, "/?#");
    return p;
}

char **aws_headers(struct sigv4_signer *s, const struct aws_credentials *credentials, const struct aws_call *c)
{
    size_t n = 0, host_n, extra = 0;
    while (c->extra && c->extra[extra]) extra++;
    char **h = xcalloc(extra + 10, sizeof *h), hash[SHA256_HEX];
    const char *host = host_of(c->url, &host_n);
    struct sigv4_request q = {.method = c->method ? c->method : "POST", .path = c->path ? c->path : "/", .query = c->query ? c->query : "", .payload_sha256 = hash};
    h[n++] = xasprintf("Host: %.*s", (int)host_n, host);
    if (c->content_type) h[n++] = xasprintf("Content-Type: %s", c->content_type);
    if (c->target) h[n++] = xasprintf("X-Amz-Target: %s", c->target);
    for (size_t i = 0; i < extra; i++) h[n++] = xstrdup(c->extra[i]);
    if (!credentials) return h;
    sha256_of(c->body ? c->body : "", c->body_n, hash);
    if (s->s3) h[n++] = xasprintf("X-Amz-Content-SHA256: %s", hash);
    if (credentials->token) h[n++] = xasprintf("X-Amz-Security-Token: %s", credentials->token);
    sigv4_format_date(aws_now(), q.date);
    q.headers = (const char *const *)h;
    struct buf b = BUF_INIT;
    buf_str(&b, "Authorization: ");
    sigv4_sign(s, &q, &b, NULL, NULL);
    h[n++] = xasprintf("X-Amz-Date: %s", q.date);
    h[n++] = b.data;
    if (!c->content_type) h[n++] = xstrdup("Content-Type:");    /* libcurl's own would call it a form */
    return h;
}

void aws_headers_free(char **headers)
{
    for (size_t i = 0; headers && headers[i]; i++) {
        OPENSSL_cleanse(headers[i], strlen(headers[i]));
        free(headers[i]);
    }
    free(headers);
}

int aws_send(struct http_client *http, const struct aws_credentials *credentials, const struct aws_call *c, struct aws_answer *a, struct err *e)
{
    struct sigv4_signer s = {.region = c->region, .service = c->service, .s3 = !strcmp(c->service, "s3")};
    *a = (struct aws_answer){.signed_offset = clock_offset};
    if (credentials) {
        s.key_id = credentials->key_id;
        s.secret = credentials->secret;
    }
    char **headers = aws_headers(&s, credentials, c);
    char *url = xasprintf("%s%s%s%s", c->url, c->path ? c->path : "/", c->query && *c->query ? "?" : "", c->query ? c->query : "");
    struct http_request q = {.method = c->method ? c->method : "POST", .url = url, .headers = (const char *const *)headers, .body = c->body, .body_n = c->body_n,
        .timeout = c->timeout > 0 ? c->timeout : TIMEOUT};
    int bad = http_fetch(http, &q, ANSWER_MAX, &a->http, e);
    aws_headers_free(headers);
    free(url);
    sigv4_wipe(&s);
    if (!bad) aws_read_error(&a->http, a->http.body.data ? a->http.body.data : "", a->http.body.n, a);
    return bad;
}

/* --- answer --------------------------------------------------------------------------------------------------------- */

bool aws_xml(const char *text, const char *tag, char *out, size_t n)
{
    static const struct { const char *entity; char c; } ENTITIES[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    char open[80];
    snprintf(open, sizeof open, "<%s>", tag);
    const char *p = text ? strstr(text, open) : NULL, *end;
    if (!p || !(end = strchr(p += strlen(open), '<'))) return false;
    size_t used = 0;
    while (p < end) {
        char c = *p;
        size_t step = 1;
        for (size_t i = 0; i < sizeof ENTITIES / sizeof *ENTITIES; i++)
            if (!strncmp(p, ENTITIES[i].entity, strlen(ENTITIES[i].entity))) {
                c = ENTITIES[i].c;
                step = strlen(ENTITIES[i].entity);
            }
        if (used + 1 >= n) return false;
        out[used++] = c;
        p += step;
    }
    out[used] = 0;
    return true;
}

/* "aws.ns#Code:http://…" is Code. */
static void set_code(struct aws_answer *a, const char *text)
{
    const char *hash = strchr(text, '#');
    if (hash) text = hash + 1;
    snprintf(a->code, sizeof a->code, "%.*s", (int)strcspn(text, ":"), text);
}

void aws_read_error(const struct http_reply *r, const char *body, size_t n, struct aws_answer *a)
{
    char text[256];
    if (http_header(r, "x-amzn-requestid", text, sizeof text) || http_header(r, "x-amz-request-id", text, sizeof text))
        snprintf(a->request_id, sizeof a->request_id, "%.*s", (int)sizeof a->request_id - 1, text);
    if (r->status >= 200 && r->status < 300) return;
    struct err ignored = {0};
    json_t *v = n && body[0] == '{' ? json_parse(body, n, "answer", &ignored) : NULL;
    const char *s;
    if (http_header(r, "x-amzn-ErrorType", text, sizeof text)) set_code(a, text);
    else if ((s = json_string_value(json_object_get(v, "__type"))) || (s = json_string_value(json_object_get(v, "code")))) set_code(a, s);
    else if (aws_xml(body, "Code", text, sizeof text)) set_code(a, text);
    if (!(s = json_string_value(json_object_get(v, "message")))) s = json_string_value(json_object_get(v, "Message"));
    if (s) snprintf(a->message, sizeof a->message, "%s", s);
    else aws_xml(body, "Message", a->message, sizeof a->message);
    json_decref(v);
    if (!*a->code) snprintf(a->code, sizeof a->code, "HTTP %ld", r->status);
}

static bool blames_clock(const struct aws_answer *a)
{
    return !strcmp(a->code, "RequestTimeTooSkewed") || !strcmp(a->code, "RequestExpired") || strstr(a->message, "Signature expired")
        || strstr(a->message, "Signature not yet current");
}

bool aws_learn_clock(const struct aws_answer *a)
{
    char date[64];
    bool wordless = a->http.status == 403 && !a->http.body.n;       /* to a HEAD S3 cannot say why */
    if ((!blames_clock(a) && !wordless) || !http_header(&a->http, "Date", date, sizeof date)) return false;
    time_t theirs = curl_getdate(date, NULL), offset = theirs - time(NULL);
    if (theirs == (time_t)-1 || labs((long)(offset - a->signed_offset)) < (wordless ? 120 : 2)) return false;
    if (labs((long)(offset - clock_offset)) >= 2) {             /* else another request under way has learned it already */
        note_msg("the clock of this machine is %ld s %s; signing with AWS's", labs((long)offset), offset > 0 ? "slow" : "fast");
        clock_offset = offset;
    }
    return true;
}

bool aws_parse_iso8601(const char *text, time_t *when)
{
    char date[32];
    int y, mo, d, h, mi, s, n = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &y, &mo, &d, &h, &mi, &s, &n) != 6) return false;
    if (text[n] == '.') n += 1 + (int)strspn(text + n + 1, "0123456789");
    if (strcmp(text + n, "Z") && strcmp(text + n, "+00:00") && strcmp(text + n, "UTC")) return false;
    snprintf(date, sizeof date, "%04d%02d%02dT%02d%02d%02dZ", y, mo, d, h, mi, s);
    return sigv4_parse_date(date, when);
}
