#include "rehearse/s3.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "aws/eventstream.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/percent.h"
#include "rehearse/auth.h"
#include "rehearse/faults.h"

#define MAX_KEYS 1000
#define PARTS 10000
#define DEPTH 16
#define XML_HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define XMLNS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

/* What one call is about. */
struct s3 { struct call *c; char *bucket, *key, *path; };        /* path: of the file, or of the bucket's directory when there is no key */

/* --- names ---------------------------------------------------------------------------------------------------------- */

/* BUCKET of a Host like BUCKET.s3.REGION.amazonaws.com or BUCKET.localhost; NULL = the path begins with it. */
static char *host_bucket(const struct call *c)
{
    const char *host = exchange_header(c->x, "Host");
    const char *s3 = host ? strstr(host, ".s3.") : NULL;
    if (!s3 && host) s3 = strstr(host, ".localhost");
    return s3 && s3 > host ? xstrndup(host, (size_t)(s3 - host)) : NULL;
}

static void split(const struct call *c, char **bucket, char **key)
{
    const char *p = c->path + (*c->path == '/');
    if ((*bucket = host_bucket(c))) {
        *key = url_decode(p, strlen(p), false);
        return;
    }
    size_t n = strcspn(p, "/");
    *bucket = url_decode(p, n, false);
    p += n + (p[n] == '/');
    *key = url_decode(p, strlen(p), false);
}

static bool has_query(const struct call *c, const char *name)
{
    char *v = query_get(c->query, name);
    free(v);
    return v != NULL;
}

void s3_name_op(struct call *c)
{
    char *bucket, *key;
    const char *m = exchange_method(c->x), *op = "";
    bool put = !strcmp(m, "PUT"), get = !strcmp(m, "GET"), post = !strcmp(m, "POST"), del = !strcmp(m, "DELETE"), head = !strcmp(m, "HEAD"), upload = has_query(c, "uploadId");
    split(c, &bucket, &key);
    if (!*bucket) op = get ? "ListBuckets" : "";
    else if (!*key) op = put ? "CreateBucket" : head ? "HeadBucket" : del ? "DeleteBucket" : !get ? "" : has_query(c, "location") ? "GetBucketLocation"
        : has_query(c, "uploads") ? "ListMultipartUploads" : "ListObjects";
    else if (put) op = upload ? "UploadPart" : exchange_header(c->x, "x-amz-copy-source") ? "CopyObject" : "PutObject";
    else if (post) op = upload ? "CompleteMultipartUpload" : has_query(c, "uploads") ? "CreateMultipartUpload" : "";
    else if (del) op = upload ? "AbortMultipartUpload" : "DeleteObject";
    else if (get && upload) op = "ListParts";
    else op = head ? "HeadObject" : get ? "GetObject" : "";
    snprintf(c->op, sizeof c->op, "%s", op);
    free(bucket);
    free(key);
}

static bool bucket_right(const char *b)
{
    size_t n = strlen(b);
    for (const char *p = b; *p; p++)
        if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && !strchr("-.", *p)) return false;
    return n >= 3 && n <= 63 && *b != '.' && *b != '-';
}

static bool key_right(const char *k)
{
    for (const char *p = k; *p;) {
        size_t n = strcspn(p, "/");
        if (!n || (n == 1 && *p == '.') || (n == 2 && !memcmp(p, "..", 2)) || n > 255) return false;
        p += n;
        if (*p && !*++p) return false;
    }
    return strlen(k) <= 1024;
}

/* --- checksums ------------------------------------------------------------------------------------------------------ */

struct sums { char md5[33]; unsigned char md5_raw[16]; char *crc32, *sha256, *sha1; };     /* the latter base64 */

static char *base64(const unsigned char *p, size_t n)
{
    char *out = xmalloc(4 * ((n + 2) / 3) + 1);
    EVP_EncodeBlock((unsigned char *)out, p, (int)n);
    return out;
}

static char *digest64(const EVP_MD *md, const void *p, size_t n)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned len;
    hash_begin();
    if (!EVP_Digest(p, n, raw, &len, md, NULL)) crypto_refused("digest");
    return base64(raw, len);
}

static void sum_up(struct sums *s, const char *p, size_t n)
{
    unsigned len;
    uint32_t crc = eventstream_crc32(p, n);
    unsigned char big[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16), (unsigned char)(crc >> 8), (unsigned char)crc};
    hash_begin();
    if (!EVP_Digest(p, n, s->md5_raw, &len, EVP_md5(), NULL)) crypto_refused("MD5");
    for (int i = 0; i < 16; i++) snprintf(s->md5 + 2 * i, 3, "%02x", s->md5_raw[i]);
    s->crc32 = base64(big, 4);
    s->sha256 = digest64(EVP_sha256(), p, n);
    s->sha1 = digest64(EVP_sha1(), p, n);
}

static void sums_free(struct sums *s)
{
    free(s->crc32);
    free(s->sha256);
    free(s->sha1);
}

/* The MD5; under KMS S3 gives something else that looks like one. */
static void etag_of_body(const struct s3 *s, const struct sums *sums, char etag[33])
{
    struct sums other = {0};
    if (faults_find(s->c->w, "kms", s->c->region, NULL, NULL)) sum_up(&other, sums->md5, 32);
    snprintf(etag, 33, "%s", other.crc32 ? other.md5 : sums->md5);
    sums_free(&other);
}

/* A body with the sums that came with it: x-amz-checksum-… headers, or the trailer of an aws-chunked body. */
struct body { struct buf own; const char *p; size_t n; json_t *given; };

static void given_header(void *arg, const char *name, const char *value)
{
    static const char PREFIX[] = "x-amz-checksum-";
    struct body *b = arg;
    char algorithm[16];
    if (strncasecmp(name, PREFIX, sizeof PREFIX - 1) || strlen(name) - (sizeof PREFIX - 1) >= sizeof algorithm) return;
    snprintf(algorithm, sizeof algorithm, "%s", name + sizeof PREFIX - 1);
    for (char *p = algorithm; *p; p++) *p = (char)tolower((unsigned char)*p);
    if (strcmp(algorithm, "algorithm") && strcmp(algorithm, "mode") && strcmp(algorithm, "type")) json_object_set_new(b->given, algorithm, json_string(value));
}

/* SIZE CRLF bytes CRLF … 0 CRLF trailer: value CRLF CRLF */
static bool unchunk(struct body *b, const char *p, size_t n)
{
    const char *end = p + n;
    while (p < end) {
        char *after;
        size_t size = strtoul(p, &after, 16);
        const char *line = memchr(p, '\n', (size_t)(end - p));
        if (after == p || !line || size > (size_t)(end - line - 1)) return false;
        p = line + 1;
        if (!size) break;
        buf_add(&b->own, p, size);
        p += size + 2;
    }
    while (p < end && *p != '\r') {
        const char *colon = memchr(p, ':', (size_t)(end - p)), *line = memchr(p, '\n', (size_t)(end - p));
        if (!colon || !line) return false;
        char *name = xstrndup(p, (size_t)(colon - p)), *value = xstrndup(colon + 1, (size_t)(line - colon - 1));
        value[strcspn(value, "\r")] = 0;
        given_header(b, name, value);
        free(name);
        free(value);
        p = line + 1;
    }
    b->p = b->own.data ? b->own.data : "";
    b->n = b->own.n;
    return true;
}

static void body_free(struct body *b)
{
    buf_free(&b->own);
    json_decref(b->given);
}

/* The body as it is to be stored, its sums computed and compared; false when the refusal has been sent. */
static bool take_body(struct call *c, struct body *b, struct sums *s)
{
    const struct buf *raw = exchange_body(c->x);
    const char *hash = exchange_header(c->x, "X-Amz-Content-SHA256"), *md5 = exchange_header(c->x, "Content-MD5"), *key;
    json_t *v;
    *b = (struct body){.p = raw->data ? raw->data : "", .n = raw->n, .given = json_object()};
    *s = (struct sums){0};
    exchange_each_header(c->x, given_header, b);
    if (hash && !strncmp(hash, "STREAMING-", 10) && !unchunk(b, b->p, b->n)) {
        call_error(c, 400, "IncompleteBody", "The request body terminated unexpectedly");
        return false;
    }
    sum_up(s, b->p, b->n);
    char *ours = base64(s->md5_raw, 16);
    bool good = !md5 || !strcmp(md5, ours);
    free(ours);
    json_object_foreach(b->given, key, v) {
        const char *want = json_string_value(v), *have = !strcmp(key, "crc32") ? s->crc32 : !strcmp(key, "sha256") ? s->sha256 : !strcmp(key, "sha1") ? s->sha1 : want;
        good &= !strcmp(want, have);
    }
    if (!good) call_error(c, 400, "BadDigest", "The checksum you specified did not match what we received.");
    return good;
}

/* --- files ---------------------------------------------------------------------------------------------------------- */

static bool failed(struct call *c, const struct err *e)
{
    warn_msg("s3: %s", e->msg);
    call_error(c, 500, "InternalError", "We encountered an internal error. Please try again.");
    return false;
}

static bool make_parent(struct call *c, const char *path)
{
    struct err e = {0};
    char *dir = xstrdup(path);
    *strrchr(dir, '/') = 0;
    int rc = io_make_directories(dir, 0777, &e);
    free(dir);
    return !rc || failed(c, &e);
}

static bool write_file(struct call *c, const char *path, const char *p, size_t n)
{
    struct err e = {0};
    return make_parent(c, path) && (!output_whole(output_open(path, false, &e), p, n, &e) || failed(c, &e));
}

/* What is known of an object beyond its file; NULL for a file that came otherwise, or has changed since. */
static json_t *known(struct world *w, const char *bucket, const char *key, const struct stat *st)
{
    char *name = xasprintf("%s/%s", bucket, key);
    json_t *o = json_object_get(world_section(w, "objects"), name);
    free(name);
    return o && json_integer_value(json_object_get(o, "size")) == st->st_size && json_integer_value(json_object_get(o, "mtime")) == st->st_mtime ? o : NULL;
}

static char *etag_of(struct world *w, const char *bucket, const char *key, const struct stat *st)
{
    const json_t *o = known(w, bucket, key, st);
    if (o) return xstrdup(json_string_value(json_object_get(o, "etag")));
    return xasprintf("%016llx%016llx", (unsigned long long)st->st_size, (unsigned long long)st->st_mtime);
}

static void remember(const struct s3 *s, const char *etag, const char *type, json_t *given)
{
    struct stat st;
    char *name = xasprintf("%s/%s", s->bucket, s->key);
    if (!stat(s->path, &st))
        json_object_set_new(world_section(s->c->w, "objects"), name, json_pack("{s:s, s:I, s:I, s:s, s:O}", "etag", etag, "size", (json_int_t)st.st_size, "mtime", (json_int_t)st.st_mtime,
            "type", type ? type : "binary/octet-stream", "sums", given));
    s->c->w->dirty = true;
    free(name);
}

static void etag_field(struct call *c, const char *etag)
{
    char line[128];
    snprintf(line, sizeof line, "ETag: \"%s\"", etag);
    exchange_field(c->x, line);
}

static void sum_fields(struct call *c, json_t *given)
{
    const char *key;
    json_t *v;
    char line[160];
    json_object_foreach(given, key, v) {
        snprintf(line, sizeof line, "x-amz-checksum-%s: %s", key, json_string_value(v));
        exchange_field(c->x, line);
    }
}

static void empty(struct call *c, int status) { call_xml(c, status, &(struct buf)BUF_INIT); }

/* --- buckets -------------------------------------------------------------------------------------------------------- */

static void list_buckets(struct s3 *s)
{
    struct buf b = BUF_INIT;
    char when[32];
    struct stat st;
    DIR *d = opendir(s->c->w->s3);
    buf_str(&b, XML_HEAD "<ListAllMyBucketsResult" XMLNS "><Owner><ID>" ACCOUNT "</ID></Owner><Buckets>");
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char *path = xasprintf("%s/%s", s->c->w->s3, entry->d_name);
        if (bucket_right(entry->d_name) && !stat(path, &st) && S_ISDIR(st.st_mode)) {
            iso_time((double)st.st_mtime, when);
            buf_printf(&b, "<Bucket><Name>%s</Name><CreationDate>%s</CreationDate></Bucket>", entry->d_name, when);
        }
        free(path);
    }
    if (d) closedir(d);
    buf_str(&b, "</Buckets></ListAllMyBucketsResult>");
    call_xml(s->c, 200, &b);
    buf_free(&b);
}

static void create_bucket(struct s3 *s)
{
    struct err e = {0};
    char line[128];
    if (!bucket_right(s->bucket)) call_error(s->c, 400, "InvalidBucketName", "The specified bucket is not valid.");
    else if (!access(s->path, F_OK) && strcmp(s->c->region, "us-east-1"))
        call_error(s->c, 409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.");
    else if (io_make_directories(s->path, 0777, &e)) failed(s->c, &e);
    if (!s->c->x) return;
    snprintf(line, sizeof line, "Location: /%s", s->bucket);
    exchange_field(s->c->x, line);
    empty(s->c, 200);
}

static void delete_bucket(struct s3 *s)
{
    if (rmdir(s->path) && errno == ENOTEMPTY) call_error(s->c, 409, "BucketNotEmpty", "The bucket you tried to delete is not empty");
    else empty(s->c, 204);
}

static void bucket_location(struct s3 *s)
{
    struct buf b = BUF_INIT;
    buf_str(&b, XML_HEAD "<LocationConstraint" XMLNS "/>");
    call_xml(s->c, 200, &b);
    buf_free(&b);
}

/* --- lists ---------------------------------------------------------------------------------------------------------- */

struct listed { char *key; struct stat st; };
struct listing { struct listed *list; size_t n; };

/* Every file below dir, links followed; unfinished files of ours begin with a dot. */
static void walk(struct listing *l, const char *dir, const char *prefix, int depth)
{
    DIR *d = depth < DEPTH ? opendir(dir) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        struct stat st;
        if (*entry->d_name == '.') continue;
        char *path = xasprintf("%s/%s", dir, entry->d_name), *key = xasprintf("%s%s", prefix, entry->d_name);
        if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
            char *deeper = xasprintf("%s/", key);
            walk(l, path, deeper, depth + 1);
            free(deeper);
        } else if (!access(path, F_OK)) {
            l->list = xreallocarray(l->list, l->n + 1, sizeof *l->list);
            l->list[l->n++] = (struct listed){key, st};
            key = NULL;
        }
        free(key);
        free(path);
    }
    if (d) closedir(d);
}

static int by_key(const void *a, const void *b) { return strcmp(((const struct listed *)a)->key, ((const struct listed *)b)->key); }

struct page { struct buf contents, prefixes; size_t n; char *last, *prefix; bool more; };

static void add_key(struct buf *b, const char *key, bool encoded)
{
    if (encoded) percent_encode(b, key, strlen(key), "/");
    else xml_escape(b, key);
}

static void page_object(struct s3 *s, struct page *g, const struct listed *o, bool encoded)
{
    char when[32], *etag = etag_of(s->c->w, s->bucket, o->key, &o->st);
    iso_time((double)o->st.st_mtime, when);
    when[strlen(when) - 1] = 0;
    buf_str(&g->contents, "<Contents><Key>");
    add_key(&g->contents, o->key, encoded);
    buf_printf(&g->contents, "</Key><LastModified>%s.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%lld</Size><StorageClass>STANDARD</StorageClass></Contents>", when, etag,
        (long long)o->st.st_size);
    free(etag);
}

/* One more key: an object, or, cut at the delimiter, a common prefix. */
static void page_key(struct s3 *s, struct page *g, const struct listed *o, const char *prefix, const char *delimiter, bool encoded)
{
    const char *cut = delimiter ? strstr(o->key + strlen(prefix), delimiter) : NULL;
    if (!cut) {
        page_object(s, g, o, encoded);
        g->n++;
    } else {
        size_t n = (size_t)(cut - o->key) + strlen(delimiter);
        if (g->prefix && strlen(g->prefix) == n && !strncmp(g->prefix, o->key, n)) return;
        free(g->prefix);
        g->prefix = xstrndup(o->key, n);
        buf_str(&g->prefixes, "<CommonPrefixes><Prefix>");
        add_key(&g->prefixes, g->prefix, encoded);
        buf_str(&g->prefixes, "</Prefix></CommonPrefixes>");
        g->n++;
    }
}

/* What a list is asked for; the strings are owned. */
struct list_request { char *prefix, *delimiter, *after; size_t limit; bool encoded, version2; };

static struct list_request read_list_request(const struct call *c)
{
    struct list_request q = {.prefix = query_get(c->query, "prefix"), .delimiter = query_get(c->query, "delimiter"), .after = query_get(c->query, "continuation-token"),
        .encoded = has_query(c, "encoding-type"), .version2 = has_query(c, "list-type")};
    char *max = query_get(c->query, "max-keys");
    q.limit = max ? strtoul(max, NULL, 10) : MAX_KEYS;
    if (q.limit > MAX_KEYS) q.limit = MAX_KEYS;
    free(max);
    if (!q.after) q.after = query_get(c->query, q.version2 ? "start-after" : "marker");
    if (!q.prefix) q.prefix = xstrdup("");
    if (q.delimiter && !*q.delimiter) {
        free(q.delimiter);
        q.delimiter = NULL;
    }
    return q;
}

static void fill_page(struct s3 *s, struct page *g, const struct listing *l, const struct list_request *q)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct listed *o = &l->list[i];
        if (strncmp(o->key, q->prefix, strlen(q->prefix)) || (q->after && strcmp(o->key, q->after) <= 0)) continue;
        /* A common prefix is finished on its page. */
        bool same = g->prefix && !strncmp(o->key, g->prefix, strlen(g->prefix));
        if (g->n == q->limit && !same) {
            g->more = true;
            return;
        }
        page_key(s, g, o, q->prefix, q->delimiter, q->encoded);
        free(g->last);
        g->last = xstrdup(o->key);
    }
}

static void answer_page(struct s3 *s, const struct page *g, const struct list_request *q)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, XML_HEAD "<ListBucketResult" XMLNS "><Name>%s</Name><Prefix>", s->bucket);
    add_key(&b, q->prefix, q->encoded);
    buf_printf(&b, "</Prefix><KeyCount>%zu</KeyCount><MaxKeys>%zu</MaxKeys><IsTruncated>%s</IsTruncated>", g->n, q->limit, g->more ? "true" : "false");
    if (q->encoded) buf_str(&b, "<EncodingType>url</EncodingType>");
    if (g->more) {
        const char *tag = q->version2 ? "NextContinuationToken" : "NextMarker";
        buf_printf(&b, "<%s>", tag);
        add_key(&b, g->last ? g->last : "", false);
        buf_printf(&b, "</%s>", tag);
    }
    if (g->contents.n) buf_add(&b, g->contents.data, g->contents.n);
    if (g->prefixes.n) buf_add(&b, g->prefixes.data, g->prefixes.n);
    buf_str(&b, "</ListBucketResult>");
    call_xml(s->c, 200, &b);
    buf_free(&b);
}

static void list_objects(struct s3 *s)
{
    struct list_request q = read_list_request(s->c);
    struct listing l = {0};
    struct page g = {0};
    walk(&l, s->path, "", 0);
    if (l.n) qsort(l.list, l.n, sizeof *l.list, by_key);
    fill_page(s, &g, &l, &q);
    answer_page(s, &g, &q);
    for (size_t i = 0; i < l.n; i++) free(l.list[i].key);
    free(l.list);
    buf_free(&g.contents);
    buf_free(&g.prefixes);
    free(g.last);
    free(g.prefix);
    free(q.prefix);
    free(q.delimiter);
    free(q.after);
}

/* --- objects -------------------------------------------------------------------------------------------------------- */

static void put_object(struct s3 *s)
{
    struct body b;
    struct sums sums;
    char etag[33];
    if (take_body(s->c, &b, &sums) && write_file(s->c, s->path, b.p, b.n)) {
        etag_of_body(s, &sums, etag);
        remember(s, etag, exchange_header(s->c->x, "Content-Type"), b.given);
        etag_field(s->c, etag);
        sum_fields(s->c, b.given);
        empty(s->c, 200);
    }
    sums_free(&sums);
    body_free(&b);
}

/* bytes=A-B, A-, -N against a size; 0 none asked, 1 found, -1 not satisfiable. */
static int range(const char *text, uint64_t size, uint64_t *from, uint64_t *n)
{
    unsigned long long a, b;
    char *end;
    *from = 0;
    *n = size;
    if (!text || strncmp(text, "bytes=", 6) || strchr(text, ',')) return 0;
    text += 6;
    if (*text == '-') {
        b = strtoull(text + 1, &end, 10);
        if (*end || !b || !size) return -1;
        *n = b < size ? b : size;
        *from = size - *n;
        return 1;
    }
    a = strtoull(text, &end, 10);
    if (*end != '-' || a >= size) return -1;
    b = end[1] ? strtoull(end + 1, NULL, 10) : size - 1;
    if (b < a) return -1;
    if (b >= size) b = size - 1;
    *from = a;
    *n = b - a + 1;
    return 1;
}

static void object_fields(struct s3 *s, const struct stat *st, bool whole)
{
    char line[128], date[40], *etag = etag_of(s->c->w, s->bucket, s->key, st);
    struct tm tm;
    json_t *o = known(s->c->w, s->bucket, s->key, st);
    etag_field(s->c, etag);
    gmtime_r(&st->st_mtime, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    snprintf(line, sizeof line, "Last-Modified: %s", date);
    exchange_field(s->c->x, line);
    exchange_field(s->c->x, "Accept-Ranges: bytes");
    if (faults_find(s->c->w, "kms", s->c->region, NULL, NULL)) exchange_field(s->c->x, "x-amz-server-side-encryption: aws:kms");
    const char *mode = exchange_header(s->c->x, "x-amz-checksum-mode");
    if (whole && o && mode && !strcasecmp(mode, "ENABLED")) sum_fields(s->c, json_object_get(o, "sums"));
    if (o) {
        snprintf(line, sizeof line, "Content-Type: %s", json_string_value(json_object_get(o, "type")));
        exchange_field(s->c->x, line);
    }
    free(etag);
}

static void get_object(struct s3 *s)
{
    struct stat st;
    struct call *c = s->c;
    uint64_t from, n;
    char line[128];
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd >= 0) close(fd);
        call_error(c, 404, "NoSuchKey", "The specified key does not exist.");
        return;
    }
    int part = range(exchange_header(c->x, "Range"), (uint64_t)st.st_size, &from, &n);
    if (part < 0) {
        close(fd);
        call_error(c, 416, "InvalidRange", "The requested range is not satisfiable");
        return;
    }
    call_fields(c);
    object_fields(s, &st, !part);
    if (part) {
        snprintf(line, sizeof line, "Content-Range: bytes %llu-%llu/%llu", (unsigned long long)from, (unsigned long long)(from + n - 1), (unsigned long long)st.st_size);
        exchange_field(c->x, line);
    }
    exchange_answer_file(c->x, part ? 206 : 200, "binary/octet-stream", fd, from, n);
    c->x = NULL;
}

static void delete_object(struct s3 *s)
{
    char *name = xasprintf("%s/%s", s->bucket, s->key);
    unlink(s->path);
    json_object_del(world_section(s->c->w, "objects"), name);
    s->c->w->dirty = true;
    free(name);
    empty(s->c, 204);
}

/* --- multipart uploads ------------------------------------------------------------------------------------------------ */

static json_t *asked_upload(struct s3 *s, char **id)
{
    *id = query_get(s->c->query, "uploadId");
    json_t *u = json_object_get(world_section(s->c->w, "uploads"), *id);
    const char *key = json_string_value(json_object_get(u, "key")), *bucket = json_string_value(json_object_get(u, "bucket"));
    if (u && !strcmp(key, s->key) && !strcmp(bucket, s->bucket)) return u;
    call_error(s->c, 404, "NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.");
    return NULL;
}

static char *part_path(const struct s3 *s, const char *id, const char *number) { return xasprintf("%s/uploads/%s/%s", s->c->w->dir, id, number); }

static void create_upload(struct s3 *s)
{
    char id[37];
    struct buf b = BUF_INIT;
    const char *type = exchange_header(s->c->x, "Content-Type");
    random_uuid(id);
    json_object_set_new(world_section(s->c->w, "uploads"), id, json_pack("{s:s, s:s, s:s, s:{}}", "bucket", s->bucket, "key", s->key, "type", type ? type : "binary/octet-stream", "parts"));
    s->c->w->dirty = true;
    buf_printf(&b, XML_HEAD "<InitiateMultipartUploadResult" XMLNS "><Bucket>%s</Bucket><Key>", s->bucket);
    xml_escape(&b, s->key);
    buf_printf(&b, "</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id);
    call_xml(s->c, 200, &b);
    buf_free(&b);
}

static void upload_part(struct s3 *s)
{
    char *id, *number = query_get(s->c->query, "partNumber"), *path = NULL;
    json_t *u = asked_upload(s, &id);
    long n = number ? strtol(number, NULL, 10) : 0;
    struct body b = {0};
    struct sums sums = {0};
    if (u && (n < 1 || n > PARTS)) call_error(s->c, 400, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive");
    if (s->c->x && take_body(s->c, &b, &sums)) {
        char plain[16], etag[33];
        snprintf(plain, sizeof plain, "%ld", n);
        etag_of_body(s, &sums, etag);
        path = part_path(s, id, plain);
        if (write_file(s->c, path, b.p, b.n)) {
            json_object_set_new(json_object_get(u, "parts"), plain, json_pack("{s:s, s:I, s:O}", "etag", etag, "size", (json_int_t)b.n, "sums", b.given));
            s->c->w->dirty = true;
            etag_field(s->c, etag);
            sum_fields(s->c, b.given);
            empty(s->c, 200);
        }
    }
    sums_free(&sums);
    body_free(&b);
    free(path);
    free(number);
    free(id);
}

static void drop_upload(struct s3 *s, const char *id)
{
    json_t *u = json_object_get(world_section(s->c->w, "uploads"), id), *v;
    const char *number;
    char *dir = xasprintf("%s/uploads/%s", s->c->w->dir, id);
    json_object_foreach(json_object_get(u, "parts"), number, v) {
        char *path = part_path(s, id, number);
        unlink(path);
        free(path);
    }
    rmdir(dir);
    free(dir);
    json_object_del(world_section(s->c->w, "uploads"), id);
    s->c->w->dirty = true;
}

static int append_part(struct s3 *s, struct output *out, const char *id, const char *number, struct err *e)
{
    char *path = part_path(s, id, number), *chunk = xmalloc(IO_CHUNK);
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 ? err_errno(e, EXIT_IO, "%s", path) : 0;
    ssize_t n;
    while (!rc && (n = read(fd, chunk, IO_CHUNK)) != 0) rc = n < 0 ? err_errno(e, EXIT_IO, "%s", path) : output_write(out, chunk, (size_t)n, e);
    if (fd >= 0) close(fd);
    free(chunk);
    free(path);
    return rc;
}

/* One <Part> of the request: known under that number with that ETag?  That goes to md5s, its bytes to out. */
static bool take_part(struct s3 *s, const json_t *parts, const char *id, const char *part, struct buf *md5s, struct output *out, struct err *e)
{
    const char *p = part, *q = part;
    char *number = xml_next(&p, "PartNumber"), *given = xml_next(&q, "ETag"), *bare = given ? given + (*given == '"') : NULL;
    const char *want = number ? json_string_value(json_object_get(json_object_get(parts, number), "etag")) : NULL;
    if (bare) bare[strcspn(bare, "\"")] = 0;
    bool good = want && bare && !strcmp(want, bare);
    for (int i = 0; good && i < 16; i++) {
        unsigned byte = 0;
        sscanf(want + 2 * i, "%2x", &byte);
        buf_char(md5s, (char)byte);
    }
    if (!good) call_error(s->c, 400, "InvalidPart", "One or more of the specified parts could not be found. The part may not have been uploaded, or the specified entity tag may "
        "not match the part's entity tag.");
    else good = !append_part(s, out, id, number, e);
    free(number);
    free(given);
    return good;
}

/* The parts that the request lists, in their order, become the object; etag: MD5 of the MD5s, and their number. */
static bool put_together(struct s3 *s, const json_t *u, const char *id, char etag[64])
{
    const char *at = exchange_body(s->c->x)->data;
    struct err e = {0};
    struct buf md5s = BUF_INIT;
    char *part;
    if (!make_parent(s->c, s->path)) return false;
    struct output *out = output_open(s->path, false, &e);
    bool good = out != NULL;
    while (good && at && (part = xml_next(&at, "Part"))) {
        good = take_part(s, json_object_get(u, "parts"), id, part, &md5s, out, &e);
        free(part);
    }
    if (good && !md5s.n) {
        call_error(s->c, 400, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema");
        good = false;
    }
    if (!good) output_abort(out);
    else good = !output_commit(out, &e);
    if (e.code) failed(s->c, &e);
    if (good) {
        struct sums sums = {0};
        sum_up(&sums, md5s.data, md5s.n);
        snprintf(etag, 64, "%s-%zu", sums.md5, md5s.n / 16);
        sums_free(&sums);
    }
    buf_free(&md5s);
    return good;
}

static void complete_upload(struct s3 *s)
{
    char *id, etag[64] = "";
    json_t *u = asked_upload(s, &id);
    struct buf b = BUF_INIT;
    if (u && put_together(s, u, id, etag)) {
        json_t *none = json_object();
        remember(s, etag, json_string_value(json_object_get(u, "type")), none);
        json_decref(none);
        drop_upload(s, id);
        buf_printf(&b, XML_HEAD "<CompleteMultipartUploadResult" XMLNS "><Location>%s/%s/", s->c->w->url, s->bucket);
        xml_escape(&b, s->key);
        buf_printf(&b, "</Location><Bucket>%s</Bucket><Key>", s->bucket);
        xml_escape(&b, s->key);
        buf_printf(&b, "</Key><ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>", etag);
        call_xml(s->c, 200, &b);
    }
    buf_free(&b);
    free(id);
}

static void abort_upload(struct s3 *s)
{
    char *id;
    if (asked_upload(s, &id)) {
        drop_upload(s, id);
        empty(s->c, 204);
    }
    free(id);
}

static void list_parts(struct s3 *s)
{
    char *id, number[16];
    json_t *u = asked_upload(s, &id);
    struct buf b = BUF_INIT;
    if (u) {
        buf_printf(&b, XML_HEAD "<ListPartsResult" XMLNS "><Bucket>%s</Bucket><Key>", s->bucket);
        xml_escape(&b, s->key);
        buf_printf(&b, "</Key><UploadId>%s</UploadId><IsTruncated>false</IsTruncated>", id);
        for (long n = 1; n <= PARTS; n++) {
            snprintf(number, sizeof number, "%ld", n);
            const json_t *p = json_object_get(json_object_get(u, "parts"), number);
            if (p) buf_printf(&b, "<Part><PartNumber>%ld</PartNumber><ETag>&quot;%s&quot;</ETag><Size>%lld</Size></Part>", n, json_string_value(json_object_get(p, "etag")),
                (long long)json_integer_value(json_object_get(p, "size")));
        }
        buf_str(&b, "</ListPartsResult>");
        call_xml(s->c, 200, &b);
    }
    buf_free(&b);
    free(id);
}

static void list_uploads(struct s3 *s)
{
    struct buf b = BUF_INIT;
    json_t *u;
    const char *id;
    buf_printf(&b, XML_HEAD "<ListMultipartUploadsResult" XMLNS "><Bucket>%s</Bucket><IsTruncated>false</IsTruncated>", s->bucket);
    json_object_foreach(world_section(s->c->w, "uploads"), id, u) {
        if (strcmp(json_string_value(json_object_get(u, "bucket")), s->bucket)) continue;
        buf_str(&b, "<Upload><Key>");
        xml_escape(&b, json_string_value(json_object_get(u, "key")));
        buf_printf(&b, "</Key><UploadId>%s</UploadId></Upload>", id);
    }
    buf_str(&b, "</ListMultipartUploadsResult>");
    call_xml(s->c, 200, &b);
    buf_free(&b);
}

/* --- dispatch ------------------------------------------------------------------------------------------------------- */

static void head_bucket(struct s3 *s) { empty(s->c, 200); }

static void run(struct s3 *s)
{
    static const struct { const char *op; void (*fn)(struct s3 *); bool new_bucket; } OPS[] = {{"ListBuckets", list_buckets, true}, {"CreateBucket", create_bucket, true},
        {"HeadBucket", head_bucket, false}, {"DeleteBucket", delete_bucket, false}, {"GetBucketLocation", bucket_location, false}, {"ListObjects", list_objects, false},
        {"ListMultipartUploads", list_uploads, false}, {"PutObject", put_object, false}, {"GetObject", get_object, false}, {"HeadObject", get_object, false},
        {"DeleteObject", delete_object, false}, {"CreateMultipartUpload", create_upload, false}, {"UploadPart", upload_part, false},
        {"CompleteMultipartUpload", complete_upload, false}, {"AbortMultipartUpload", abort_upload, false}, {"ListParts", list_parts, false}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        if (strcmp(OPS[i].op, s->c->op)) continue;
        char *dir = xasprintf("%s/%s", s->c->w->s3, s->bucket);
        bool there = OPS[i].new_bucket || (bucket_right(s->bucket) && !access(dir, F_OK));
        free(dir);
        if (!there) call_error(s->c, 404, "NoSuchBucket", "The specified bucket does not exist");
        else if (!key_right(s->key)) call_error(s->c, 400, "InvalidArgument", "This key is not supported here: no segment may be empty, '.' or '..'");
        else OPS[i].fn(s);
        return;
    }
    call_error(s->c, 501, "NotImplemented", "A header you provided implies functionality that is not implemented");
}

void s3_call(struct call *c)
{
    struct s3 s = {.c = c};
    split(c, &s.bucket, &s.key);
    s.path = xasprintf("%s/%s%s%s", c->w->s3, s.bucket, *s.key ? "/" : "", s.key);
    run(&s);
    free(s.bucket);
    free(s.key);
    free(s.path);
}
