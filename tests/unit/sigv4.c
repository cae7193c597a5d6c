/* Signatures: every case of the published suite, and every request as botocore signs it, from tests/golden/aws. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "aws/sigv4.h"
#include "base/json.h"

static const char *field(const json_t *v, const char *key) { return json_string_value(json_object_get(v, key)); }

static struct jsonl *golden(const char *name)
{
    struct err e = {0};
    char *path = xasprintf("%s/tests/golden/aws/%s", getenv("Q4ROOT") ? getenv("Q4ROOT") : ".", name);
    struct jsonl *j = jsonl_open(path, &e);
    if (!j) die(&e);
    free(path);
    return j;
}

/* Header lines of an HTTP request, a line that begins with a blank continuing the one before; returns the body. */
static char *split_request(char *text, char **method, char **path, char **query, const char **headers)
{
    char *end = strstr(text, "\n\n"), *body = end ? end + 2 : strchr(text, 0);
    if (end) *end = 0;
    char *p = strchr(text, '\n');
    *p++ = 0;
    *method = strtok(text, " ");
    *path = *method + strlen(*method) + 1;
    *strstr(*path, " HTTP/1.1") = 0;
    *query = strchr(*path, '?');
    if (*query) *(*query)++ = 0;
    size_t n = 0;
    while (*p) {
        headers[n++] = p;
        for (;;) {
            p += strcspn(p, "\n");
            if (!*p) break;
            if (p[1] == ' ') { p++; continue; }
            *p++ = 0;
            break;
        }
    }
    headers[n] = NULL;
    return body;
}

static void suite_case(const json_t *v)
{
    const json_t *context = json_object_get(v, "context"), *keys = json_object_get(context, "credentials");
    char *text = xstrdup(field(v, "request")), *method, *path, *query, hash[SHA256_HEX], extra[2][1024];
    static char none[] = "";
    const char *headers[20];
    char *body = split_request(text, &method, &path, &query, headers);
    size_t n = 0;
    if (!query) query = none;
    while (headers[n]) n++;
    sha256_of(body, strlen(body), hash);
    if (json_is_true(json_object_get(context, "sign_body"))) {
        snprintf(extra[0], sizeof extra[0], "x-amz-content-sha256:%s", hash);
        headers[n++] = extra[0];
    }
    if (field(keys, "token") && !json_is_true(json_object_get(context, "omit_session_token"))) {
        snprintf(extra[1], sizeof extra[1], "X-Amz-Security-Token:%s", field(keys, "token"));
        headers[n++] = extra[1];
    }
    headers[n] = NULL;
    struct sigv4_signer s = {.key_id = field(keys, "access_key_id"), .secret = field(keys, "secret_access_key"), .region = field(context, "region"),
        .service = field(context, "service"), .raw_path = !json_is_true(json_object_get(context, "normalize"))};
    struct sigv4_request q = {.method = method, .path = path, .query = query, .headers = headers, .payload_sha256 = hash, .date = "20150830T123600Z"};
    struct buf auth = BUF_INIT, canonical = BUF_INIT, to_sign = BUF_INIT;
    sigv4_sign(&s, &q, &auth, &canonical, &to_sign);
    if (strcmp(canonical.data, field(v, "canonical"))) printf("%s: expected\n%s\ngot\n%s\n", field(v, "id"), field(v, "canonical"), canonical.data);
    assert(!strcmp(canonical.data, field(v, "canonical")));
    assert(!strcmp(to_sign.data, field(v, "to_sign")));
    assert(strstr(auth.data, field(v, "signature")));
    sigv4_wipe(&s);
    buf_free(&auth);
    buf_free(&canonical);
    buf_free(&to_sign);
    free(text);
}

/* Is the name among the ;-separated ones? */
static bool listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; *p && *p != ','; p += strcspn(p, ";,") + (p[strcspn(p, ";,")] == ';'))
        if (!strncasecmp(p, name, n) && strchr(";,", p[n])) return true;
    return false;
}

static void decode64(const char *text, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, have = 0;
    for (const char *p = text; *p && *p != '='; p++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *p) - digits);
        if ((have += 6) >= 8) buf_char(out, (char)(bits >> (have -= 8)));
    }
}

static void botocore_case(const json_t *v)
{
    const json_t *q = json_object_get(v, "request"), *keys = json_object_get(v, "credentials"), *h;
    const char *headers[20], *expected = NULL;
    size_t n = 0, i;
    json_array_foreach(json_object_get(q, "headers"), i, h)
        if (!strcmp(json_string_value(json_array_get(h, 0)), "Authorization")) expected = json_string_value(json_array_get(h, 1));
    const char *names = strstr(expected, "SignedHeaders=") + 14;
    json_array_foreach(json_object_get(q, "headers"), i, h) {
        const char *name = json_string_value(json_array_get(h, 0));
        if (strcasecmp(name, "X-Amz-Date") && listed(names, name)) headers[n++] = xasprintf("%s: %s", name, json_string_value(json_array_get(h, 1)));
    }
    headers[n] = NULL;
    struct buf body = BUF_INIT, auth = BUF_INIT;
    char hash[SHA256_HEX];
    if (field(q, "body")) buf_str(&body, field(q, "body"));
    else if (field(q, "body_base64")) decode64(field(q, "body_base64"), &body);
    sha256_of(body.data ? body.data : "", body.n, hash);
    struct sigv4_signer s = {.key_id = field(keys, "access_key"), .secret = field(keys, "secret_key"), .region = field(v, "region"), .service = field(v, "service"),
        .s3 = !strcmp(field(v, "service"), "s3")};
    struct sigv4_request r = {.method = field(q, "method"), .path = field(q, "path"), .query = field(q, "query"), .headers = headers, .payload_sha256 = hash};
    snprintf(r.date, sizeof r.date, "%s", field(v, "amz_date"));
    sigv4_sign(&s, &r, &auth, NULL, NULL);
    if (strcmp(auth.data, expected)) printf("%s: expected\n%s\ngot\n%s\n", field(v, "id"), expected, auth.data);
    assert(!strcmp(auth.data, expected));
    buf_free(&auth);
    sigv4_sign(&s, &r, &auth, NULL, NULL);              /* with the key kept from before */
    assert(!strcmp(auth.data, expected));
    sigv4_wipe(&s);
    buf_free(&auth);
    buf_free(&body);
    while (n) free((char *)headers[--n]);
}

static int each(const char *name, void (*one)(const json_t *))
{
    struct jsonl *j = golden(name);
    struct err e = {0};
    json_t *v;
    long line;
    int n = 0;
    while (jsonl_next(j, &v, &line, &e) == 1) {
        one(v);
        json_decref(v);
        n++;
    }
    jsonl_close(j);
    return n;
}

static void dates(void)
{
    time_t t;
    char date[SIGV4_DATE];
    assert(sigv4_parse_date("20260304T050607Z", &t) && t == 1772600767);
    sigv4_format_date(t, date);
    assert(!strcmp(date, "20260304T050607Z"));
    assert(sigv4_parse_date("20000229T235959Z", &t) && t == 951868799);
    assert(!sigv4_parse_date("2026-03-04T05:06:07Z", &t) && !sigv4_parse_date("20261304T050607Z", &t) && !sigv4_parse_date("20260304T050607Zx", &t));
}

int main(void)
{
    prog_init("sigv4");
    int n = each("sigv4.jsonl", suite_case);
    assert(n == 38);
    printf("%d cases of the suite\n", n);
    n = each("requests.jsonl", botocore_case);
    assert(n == 47);
    printf("%d requests of botocore\n", n);
    dates();
    puts("dates");
    return 0;
}
