#include "rehearse/auth.h"

#include <math.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "aws/send.h"
#include "aws/sigv4.h"
#include "base/hash.h"
#include "rehearse/faults.h"

#define WINDOW 300.0            /* seconds */

/* --- keys ----------------------------------------------------------------------------------------------------------- */

void auth_init(struct world *w)
{
    const char *id = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY"), *token = getenv("AWS_SESSION_TOKEN");
    json_t *keys = world_section(w, "keys"), *k = json_object();
    bool given = id && *id && secret && *secret;
    json_object_set_new(k, "secret", json_string(given ? secret : DEFAULT_SECRET));
    if (given && token && *token) json_object_set_new(k, "token", json_string(token));
    json_object_set_new(k, "arn", json_string("arn:aws:iam::" ACCOUNT ":user/rehearsal"));
    json_object_set_new(keys, given ? id : DEFAULT_KEY_ID, k);
    w->dirty = true;
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
}

void iso_time(double t, char out[32])
{
    time_t s = (time_t)floor(t);
    struct tm tm;
    gmtime_r(&s, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void random_text(char *out, size_t n, const char *alphabet)
{
    unsigned char b[256];
    size_t letters = strlen(alphabet);
    hash_begin();
    if (RAND_bytes(b, (int)n) != 1) crypto_refused("random bytes");
    for (size_t i = 0; i < n; i++) out[i] = alphabet[b[i] % letters];
    out[n] = 0;
}

json_t *auth_issue(struct world *w, const char *arn, double lifetime)
{
    static const char UPPER[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", ANY[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char id[21] = "ASIA", secret[41], token[201], expiration[32];
    random_text(id + 4, 16, UPPER);
    random_text(secret, 40, ANY);
    random_text(token, 200, ANY);
    double expires = world_now(w) + lifetime;
    iso_time(expires, expiration);
    json_object_set_new(world_section(w, "keys"), id,
        json_pack("{s:s, s:s, s:s, s:o}", "secret", secret, "token", token, "arn", arn, "expires", world_time(expires)));
    w->dirty = true;
    return json_pack("{s:s, s:s, s:s, s:s}", "AccessKeyId", id, "SecretAccessKey", secret, "SessionToken", token, "Expiration", expiration);
}

const char *auth_arn(const struct world *w, const char *key_id)
{
    const char *arn = json_string_value(json_object_get(json_object_get(json_object_get(w->state, "keys"), key_id), "arn"));
    return arn ? arn : "arn:aws:iam::" ACCOUNT ":user/rehearsal";
}

/* --- the Authorization header --------------------------------------------------------------------------------------- */

struct parts { char key_id[64], day[9], region[32], service[32], names[1024], signature[65]; };

/* "AWS4-HMAC-SHA256 Credential=ID/DAY/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=hex" */
static bool parse(const char *text, struct parts *p)
{
    const char *credential = strstr(text, "Credential="), *names = strstr(text, "SignedHeaders="), *signature = strstr(text, "Signature=");
    char rest[16];
    if (strncmp(text, "AWS4-HMAC-SHA256 ", 17) || !credential || !names || !signature) return false;
    if (sscanf(credential + 11, "%63[^/,]/%8[0-9]/%31[^/,]/%31[^/,]/%15[^/, ]", p->key_id, p->day, p->region, p->service, rest) != 5) return false;
    return !strcmp(rest, "aws4_request") && sscanf(names + 14, "%1023[^, ]", p->names) == 1 && sscanf(signature + 10, "%64[0-9a-f]", p->signature) == 1;
}

bool auth_scope(struct call *c)
{
    const char *text = exchange_header(c->x, "Authorization");
    struct parts p;
    if (!text || !parse(text, &p)) return false;
    snprintf(c->service, sizeof c->service, "%s", p.service);
    snprintf(c->region, sizeof c->region, "%s", p.region);
    snprintf(c->key_id, sizeof c->key_id, "%s", p.key_id);
    return true;
}

/* --- refusals: the same fault has another code in each protocol ------------------------------------------------------ */

static bool refuse(struct call *c, const char *json, const char *query, const char *s3, const char *message)
{
    bool json_like = c->wire == WIRE_JSON || c->wire == WIRE_REST;
    call_error(c, c->wire == WIRE_JSON ? 400 : 403, json_like ? json : c->wire == WIRE_QUERY ? query : s3, "%s", message);
    return false;
}

static bool refuse_signature(struct call *c, const char *message)
{
    return refuse(c, "InvalidSignatureException", "SignatureDoesNotMatch", "SignatureDoesNotMatch", message);
}

static bool refuse_key(struct call *c)
{
    return refuse(c, "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId", "The security token included in the request is invalid.");
}

static bool refuse_expired(struct call *c)
{
    return refuse(c, "ExpiredTokenException", "ExpiredToken", "ExpiredToken", "The security token included in the request is expired");
}

/* The clock against which signatures are held; AWS_SIGNING_CLOCK stops it, as it does the signer's. */
static double signing_now(const struct world *w)
{
    return getenv("AWS_SIGNING_CLOCK") ? (double)aws_now() + faults_skew(w) : world_now(w);
}

/* --- the check ------------------------------------------------------------------------------------------------------ */

static bool date_right(struct call *c, const struct parts *p, const char *date)
{
    time_t when;
    char text[256], now[SIGV4_DATE], edge[SIGV4_DATE];
    if (!date || !sigv4_parse_date(date, &when)) return refuse_signature(c, "Date must be in ISO-8601 'basic format'. See http://en.wikipedia.org/wiki/ISO_8601");
    if (strncmp(date, p->day, 8)) return refuse_signature(c, "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP");
    double now_s = signing_now(c->w), off = (double)when - now_s;
    if (fabs(off) <= WINDOW) return true;
    if (c->wire == WIRE_XML)
        return refuse(c, "", "", "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.");
    sigv4_format_date((time_t)now_s, now);
    sigv4_format_date((time_t)(now_s + (off < 0 ? -WINDOW : WINDOW)), edge);
    snprintf(text, sizeof text, off < 0 ? "Signature expired: %s is now earlier than %s (%s - 5 min.)" : "Signature not yet current: %s is still later than %s (%s + 5 min.)",
        date, edge, now);
    return refuse_signature(c, text);
}

static bool token_right(struct call *c, const json_t *key)
{
    const char *given = exchange_header(c->x, "X-Amz-Security-Token"), *wanted = json_string_value(json_object_get(key, "token"));
    const json_t *expires = json_object_get(key, "expires");
    if (!given != !wanted || (given && strcmp(given, wanted))) return refuse_key(c);
    if (expires && json_number_value(expires) < world_now(c->w)) return refuse_expired(c);
    return true;
}

static bool is_signed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; *p;) {
        size_t len = strcspn(p, ";");
        if (len == n && !strncasecmp(p, name, n)) return true;
        p += len + (p[len] == ';');
    }
    return false;
}

struct collect { const char *names; const char **lines; size_t n; char unsigned_one[64]; };

static void collect_header(void *arg, const char *name, const char *value)
{
    struct collect *k = arg;
    bool in = is_signed(k->names, name);
    if (!in && (!strncasecmp(name, "x-amz-", 6) || !strcasecmp(name, "host"))) snprintf(k->unsigned_one, sizeof k->unsigned_one, "%s", name);
    if (!in || !strcasecmp(name, "x-amz-date")) return;
    k->lines = xreallocarray(k->lines, k->n + 2, sizeof *k->lines);
    k->lines[k->n++] = xasprintf("%s: %s", name, value);
    k->lines[k->n] = NULL;
}

/* The hash of the body, or what S3 lets stand in its place. */
static bool payload_hash(struct call *c, char hex[SHA256_HEX], const char **use)
{
    const struct buf *body = exchange_body(c->x);
    const char *said = exchange_header(c->x, "X-Amz-Content-SHA256");
    sha256_of(body->data ? body->data : "", body->n, hex);
    *use = hex;
    if (c->wire != WIRE_XML) return true;
    if (!said) {
        call_error(c, 400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256");
        return false;
    }
    *use = said;
    if (!strcmp(said, "UNSIGNED-PAYLOAD") || !strcmp(said, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") || !strcmp(said, hex)) return true;
    if (!strncmp(said, "STREAMING-", 10)) call_error(c, 501, "NotImplemented", "A body signed chunk by chunk is not supported: sign it whole");
    else call_error(c, 400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.");
    return false;
}

static bool signature_right(struct call *c, const struct parts *p, const json_t *key, const char *date)
{
    struct collect k = {.names = p->names};
    char hex[SHA256_HEX], text[256];
    const char *payload;
    if (!payload_hash(c, hex, &payload)) return false;
    exchange_each_header(c->x, collect_header, &k);
    struct sigv4_signer s = {.key_id = p->key_id, .secret = json_string_value(json_object_get(key, "secret")), .region = p->region, .service = p->service,
        .s3 = !strcmp(p->service, "s3")};
    static const char *const NONE[] = {NULL};
    struct sigv4_request q = {.method = exchange_method(c->x), .path = c->path, .query = c->query, .headers = k.lines ? k.lines : NONE, .payload_sha256 = payload};
    snprintf(q.date, sizeof q.date, "%s", date);
    struct buf ours = BUF_INIT;
    sigv4_sign(&s, &q, &ours, NULL, NULL);
    sigv4_wipe(&s);
    for (size_t i = 0; i < k.n; i++) free((char *)k.lines[i]);
    free(k.lines);
    bool right = ours.n > 64 && !CRYPTO_memcmp(ours.data + ours.n - 64, p->signature, 64);
    buf_free(&ours);
    if (right && !*k.unsigned_one) return true;
    if (!right)
        return refuse_signature(c, "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. "
            "Consult the service documentation for details.");
    snprintf(text, sizeof text, "'%s' must be a 'SignedHeader' in the AWS Authorization.", k.unsigned_one);
    return refuse_signature(c, text);
}

/* The service that the target and path say, against the one that was signed for. */
static bool scope_right(struct call *c, const struct parts *p)
{
    char text[256];
    const char *wanted = !strcmp(c->service, "runtime") ? "sagemaker" : c->service;
    if (!strcmp(p->service, wanted)) return true;
    snprintf(text, sizeof text, "Credential should be scoped to correct service: '%s'.", wanted);
    return refuse_signature(c, text);
}

bool auth_check(struct call *c)
{
    const char *text = exchange_header(c->x, "Authorization"), *date = exchange_header(c->x, "X-Amz-Date");
    struct parts p;
    if (!text) {
        if (c->wire == WIRE_XML) call_error(c, 403, "AccessDenied", "Access Denied");
        else call_error(c, 403, c->wire == WIRE_QUERY ? "MissingAuthenticationToken" : "MissingAuthenticationTokenException", "Missing Authentication Token");
        return false;
    }
    if (!parse(text, &p)) {
        call_error(c, 400, c->wire == WIRE_XML ? "AuthorizationHeaderMalformed" : "IncompleteSignatureException",
            "Authorization header requires 'Credential' parameter. Authorization header requires 'Signature' parameter. Authorization header requires 'SignedHeaders' parameter.");
        return false;
    }
    const json_t *key = json_object_get(json_object_get(c->w->state, "keys"), p.key_id);
    if (!key) return refuse_key(c);
    if (!scope_right(c, &p) || !date_right(c, &p, date) || !signature_right(c, &p, key, date) || !token_right(c, key)) return false;
    return !faults_strike(c->w, "expired-token", c->region, NULL, c->op) || refuse_expired(c);
}
