#include "aws/sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/hash.h"
#include "base/percent.h"

/* One text after another, up to NULL: every call is signed, and printf would cost more than its hashes. */
static void put(struct buf *b, ...)
{
    va_list ap;
    va_start(ap, b);
    for (const char *s; (s = va_arg(ap, const char *));) buf_str(b, s);
    va_end(ap);
}

/* --- encoding ------------------------------------------------------------------------------------------------------- */

/* A query may arrive encoded or not: decode what is an escape, then encode all. */
static void recode(struct buf *b, const char *p, size_t n)
{
    struct buf plain = BUF_INIT;
    percent_decode(&plain, p, n, false);
    percent_encode(b, plain.data ? plain.data : "", plain.n, "");
    buf_free(&plain);
}

/* --- canonical request ---------------------------------------------------------------------------------------------- */

/* RFC 3986 section 5.2.4, and empty segments removed; a trailing slash stays. */
static void normalize(struct buf *b, const char *path)
{
    bool slash = true;
    buf_char(b, '/');
    for (const char *p = path; *p;) {
        size_t n;
        while (*p == '/') p++;
        n = strcspn(p, "/");
        if (!n) break;
        slash = p[n] == '/';
        if (n == 2 && !memcmp(p, "..", 2)) {
            while (b->n > 1 && b->data[b->n - 1] == '/') b->n--;
            while (b->n > 1 && b->data[b->n - 1] != '/') b->n--;
            slash = true;
        } else if (n == 1 && *p == '.') {
            slash = true;
        } else {
            if (b->data[b->n - 1] != '/') buf_char(b, '/');
            buf_add(b, p, n);
        }
        p += n;
    }
    if (slash && b->data[b->n - 1] != '/') buf_char(b, '/');
    b->data[b->n] = 0;
}

static void add_path(struct buf *b, const struct sigv4_signer *s, const char *path)
{
    struct buf normal = BUF_INIT;
    if (s->s3) {
        buf_str(b, *path ? path : "/");
        return;
    }
    if (s->raw_path) buf_str(&normal, path);
    else normalize(&normal, path);
    percent_encode(b, normal.data, normal.n, "/");
    buf_free(&normal);
}

struct pair { char *name, *value; size_t order; };

static int by_name(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    return d ? d : x->order < y->order ? -1 : 1;
}

static int by_name_and_value(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    return d ? d : strcmp(x->value, y->value);
}

static void free_pairs(struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(p[i].name);
        free(p[i].value);
    }
    free(p);
}

static char *recoded(const char *p, size_t n)
{
    struct buf b = BUF_INIT;
    recode(&b, p, n);
    return b.data ? b.data : xstrdup("");
}

static void add_query(struct buf *b, const char *query)
{
    size_t n = 0, cap = 1;
    if (!*query) return;
    for (const char *p = query; *p; p++) cap += *p == '&';
    struct pair *list = xcalloc(cap, sizeof *list);
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&"), name = 0;
        while (name < len && p[name] != '=') name++;
        if (len) {
            list[n].name = recoded(p, name);
            list[n++].value = recoded(p + name + (name < len), len - name - (name < len));
        }
        p += len + (p[len] == '&');
    }
    qsort(list, n, sizeof *list, by_name_and_value);
    for (size_t i = 0; i < n; i++) buf_printf(b, "%s%s=%s", i ? "&" : "", list[i].name, list[i].value);
    free_pairs(list, n);
}

/* Both ends trimmed, inner runs of blanks one space. */
static char *squeezed(const char *p)
{
    char *out = xmalloc(strlen(p) + 1), *w = out;
    bool blank = false;
    for (; *p; p++) {
        if (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') {
            blank = w > out;
            continue;
        }
        if (blank) *w++ = ' ';
        blank = false;
        *w++ = *p;
    }
    *w = 0;
    return out;
}

static struct pair header_pair(const char *line, size_t order)
{
    size_t n = strcspn(line, ":");
    struct pair p = {xstrndup(line, n), squeezed(line + n + (line[n] == ':')), order};
    for (char *c = p.name; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    return p;
}

/* The lines name:value, and the names for SignedHeaders. */
static void add_headers(struct buf *b, struct buf *names, const struct sigv4_request *q)
{
    char date[40];
    size_t n = 0, count = 1;
    while (q->headers[n]) n++;
    struct pair *list = xcalloc(n + 1, sizeof *list);
    snprintf(date, sizeof date, "X-Amz-Date: %s", q->date);
    list[0] = header_pair(date, 0);
    for (size_t i = 0; i < n; i++) list[count++] = header_pair(q->headers[i], i + 1);
    qsort(list, count, sizeof *list, by_name);
    for (size_t i = 0; i < count; i++) {
        bool again = i && !strcmp(list[i].name, list[i - 1].name);
        if (!again) {
            put(b, i ? "\n" : "", list[i].name, ":", NULL);
            put(names, i ? ";" : "", list[i].name, NULL);
        }
        put(b, again ? "," : "", list[i].value, NULL);
    }
    buf_char(b, '\n');
    free_pairs(list, count);
}

/* --- key and signature ---------------------------------------------------------------------------------------------- */

static void hmac(const void *key, size_t key_n, const void *p, size_t n, unsigned char out[32])
{
    unsigned len = 32;
    hash_begin();
    if (!HMAC(EVP_sha256(), key, (int)key_n, p, n, out, &len)) crypto_refused("HMAC-SHA-256");
}

/* The key of the day, and libcrypto's state for it: both serve every call of that day. */
static void derive(struct sigv4_signer *s, const char *day)
{
    if (s->mac && !strncmp(s->day, day, 8)) return;
    static char digest[] = "SHA256";
    unsigned char k[32];
    const OSSL_PARAM sha256[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
    char *first = xasprintf("AWS4%s", s->secret);
    sigv4_wipe(s);
    hmac(first, strlen(first), day, 8, k);
    OPENSSL_cleanse(first, strlen(first));
    free(first);
    hmac(k, sizeof k, s->region, strlen(s->region), k);
    hmac(k, sizeof k, s->service, strlen(s->service), k);
    hmac(k, sizeof k, "aws4_request", 12, k);
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    s->mac = algorithm ? EVP_MAC_CTX_new(algorithm) : NULL;
    EVP_MAC_free(algorithm);
    if (!s->mac || !EVP_MAC_init(s->mac, k, sizeof k, sha256)) crypto_refused("HMAC-SHA-256");
    OPENSSL_cleanse(k, sizeof k);
    memcpy(s->day, day, 8);
}

static void add_signature(struct buf *b, struct sigv4_signer *s, const struct buf *text)
{
    static const char digit[] = "0123456789abcdef";
    unsigned char mac[32];
    size_t n;
    if (!EVP_MAC_init(s->mac, NULL, 0, NULL) || !EVP_MAC_update(s->mac, (const unsigned char *)text->data, text->n) || !EVP_MAC_final(s->mac, mac, &n, sizeof mac)) crypto_refused("HMAC-SHA-256");
    for (size_t i = 0; i < sizeof mac; i++) buf_add(b, (char[]){digit[mac[i] >> 4], digit[mac[i] & 15]}, 2);
}

void sigv4_sign(struct sigv4_signer *s, const struct sigv4_request *q, struct buf *authorization, struct buf *canonical, struct buf *to_sign)
{
    struct buf request = BUF_INIT, text = BUF_INIT, names = BUF_INIT, scope = BUF_INIT;
    char digest[SHA256_HEX];
    put(&request, q->method, "\n", NULL);
    add_path(&request, s, q->path);
    buf_char(&request, '\n');
    add_query(&request, q->query);
    buf_char(&request, '\n');
    add_headers(&request, &names, q);
    put(&request, "\n", names.data, "\n", q->payload_sha256, NULL);
    sha256_of(request.data, request.n, digest);
    buf_add(&scope, q->date, 8);
    put(&scope, "/", s->region, "/", s->service, "/aws4_request", NULL);
    put(&text, "AWS4-HMAC-SHA256\n", q->date, "\n", scope.data, "\n", digest, NULL);
    derive(s, q->date);
    put(authorization, "AWS4-HMAC-SHA256 Credential=", s->key_id, "/", scope.data, ", SignedHeaders=", names.data, ", Signature=", NULL);
    add_signature(authorization, s, &text);
    if (canonical) buf_add(canonical, request.data, request.n);
    if (to_sign) buf_add(to_sign, text.data, text.n);
    buf_free(&request);
    buf_free(&text);
    buf_free(&names);
    buf_free(&scope);
}

void sigv4_wipe(struct sigv4_signer *s)
{
    EVP_MAC_CTX_free(s->mac);           /* which clears it */
    s->mac = NULL;
    s->day[0] = 0;
}

/* --- time ----------------------------------------------------------------------------------------------------------- */

/* Days from 1970-01-01 of a Gregorian date (Howard Hinnant's days_from_civil): POSIX has no timegm. */
static long days_from_civil(long y, long m, long d)
{
    y -= m <= 2;
    long era = (y >= 0 ? y : y - 399) / 400, yoe = y - era * 400;
    long doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1, doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + doe - 719468;
}

bool sigv4_parse_date(const char *text, time_t *when)
{
    int y, mo, d, h, mi, s, n = 0;
    if (sscanf(text, "%4d%2d%2dT%2d%2d%2dZ%n", &y, &mo, &d, &h, &mi, &s, &n) != 6 || n != 16 || text[16]) return false;
    if (mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || s > 60) return false;
    *when = (time_t)(days_from_civil(y, mo, d) * 86400 + h * 3600L + mi * 60L + s);
    return true;
}

void sigv4_format_date(time_t when, char date[SIGV4_DATE])
{
    struct tm tm;
    if (!gmtime_r(&when, &tm) || !strftime(date, SIGV4_DATE, "%Y%m%dT%H%M%SZ", &tm)) die_msg(EXIT_BUG, "the clock shows no date");
}
