#include "aws/s3.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/io.h"
#include "base/percent.h"
#include "base/progress.h"

#define PART ((uint64_t)16 << 20)
#define PARTS_MAX 10000
#define TRIES 5
#define PART_TIMEOUT 600.0
#define MD5_HEX 33
#define ETAG 128

struct bucket { struct aws_session *s; const char *region; char *url, *name; bool in_path; };

/* --- checksums ------------------------------------------------------------------------------------------------------ */

static void md5(const void *p, size_t n, unsigned char out[16])
{
    unsigned len = 16;
    hash_begin();
    if (!EVP_Digest(p, n, out, &len, EVP_md5(), NULL)) crypto_refused("MD5");
}

static void hex16(const unsigned char d[16], char out[MD5_HEX])
{
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", d[i]);
}

/* --- one file's parts ----------------------------------------------------------------------------------------------- */

struct part { uint64_t offset; size_t n; unsigned char md5[16]; char etag[ETAG]; bool there; int tries; };     /* etag: as S3 gave it, bare; no MD5 under KMS */

struct file {
    struct bucket *b;
    char *name, *key;               /* key: path on the wire, encoded, with its leading slash */
    int fd;
    uint64_t size;
    struct part *part;
    size_t parts;
    char upload_id[1024];
    long parallel;
};

static char *object_path(const struct bucket *b, const char *key)
{
    struct buf path = BUF_INIT;
    buf_char(&path, '/');
    if (b->in_path) buf_printf(&path, "%s/", b->name);
    percent_encode(&path, key, strlen(key), "/");
    return path.data;
}

static int call(struct file *f, const char *method, const char *path, const char *query, const void *body, size_t n, struct aws_answer *a, struct err *e)
{
    struct aws_call c = {.url = f->b->url, .method = method, .path = path, .query = query, .body = body, .body_n = n, .timeout = PART_TIMEOUT};
    return aws_session_call(f->b->s, "s3", f->b->region, &c, a, e);
}

static int read_part(const struct file *f, const struct part *p, char *buf, struct err *e)
{
    return io_pread_full(f->fd, buf, p->n, p->offset, f->name, e);
}

/* Sizes and MD5s of all parts: what is there already can then be told from what is not. */
static int plan_parts(struct file *f, struct err *e)
{
    uint64_t size = PART;
    while (f->size / size >= PARTS_MAX) size *= 2;
    f->parts = f->size ? (size_t)((f->size + size - 1) / size) : 1;
    f->part = xcalloc(f->parts, sizeof *f->part);
    char *buf = xmalloc((size_t)size);
    int bad = 0;
    for (size_t i = 0; i < f->parts && !bad; i++) {
        struct part *p = &f->part[i];
        p->offset = i * size;
        p->n = (size_t)(f->size - p->offset < size ? f->size - p->offset : size);
        bad = p->n ? read_part(f, p, buf, e) : 0;
        if (!bad) md5(buf, p->n, p->md5);
    }
    free(buf);
    return bad;
}

/* As S3 forms it: the MD5 of a whole object, or of the parts' MD5s, "-", their number. */
static void expected_etag(const struct file *f, char out[64])
{
    unsigned char all[16];
    char hex[MD5_HEX];
    if (f->parts == 1) {
        hex16(f->part[0].md5, hex);
        snprintf(out, 64, "%s", hex);
        return;
    }
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < f->parts; i++) buf_add(&b, f->part[i].md5, 16);
    md5(b.data, b.n, all);
    buf_free(&b);
    hex16(all, hex);
    snprintf(out, 64, "%s-%zu", hex, f->parts);
}

/* --- what is there -------------------------------------------------------------------------------------------------- */

static void bare_etag(const char *etag, char *out, size_t n)
{
    if (*etag == '"') etag++;
    snprintf(out, n, "%.*s", (int)strcspn(etag, "\""), etag);
}

/* 1 = the object is there and is this file, 0 = it is not. */
static int verify(struct file *f, bool after, struct err *e)
{
    struct aws_answer a = {0};
    struct err fault = {0};
    char want[64], etag[ETAG] = "", length[32] = "", encryption[64] = "", got[ETAG];
    int result = 0;
    if (call(f, "HEAD", f->key, "", NULL, 0, &a, &fault)) {
        result = a.http.status == 404 ? 0 : err_set(e, fault.code, "%s", fault.msg);
    } else {
        expected_etag(f, want);
        http_header(&a.http, "ETag", etag, sizeof etag);
        http_header(&a.http, "Content-Length", length, sizeof length);
        http_header(&a.http, "x-amz-server-side-encryption", encryption, sizeof encryption);
        bare_etag(etag, got, sizeof got);
        result = strtoull(length, NULL, 10) == f->size && !strcmp(got, want);
        if (!result && after && !strncmp(encryption, "aws:kms", 7) && strtoull(length, NULL, 10) == f->size) {
            warn_msg("%s: the bucket encrypts with KMS: only the size could be verified", f->name);
            result = 1;
        }
        if (!result && after) err_set(e, EXIT_DATA, "%s: what lies in S3 is not what was sent: expected ETag %s, found %s", f->name, want, got);
    }
    aws_answer_free(&a);
    return result;
}

/* An upload of this key that was begun and not ended. */
static int find_upload(struct file *f, const char *key, struct err *e)
{
    struct aws_answer a = {0};
    struct buf query = BUF_INIT;
    char found[2048];
    buf_str(&query, "uploads&prefix=");
    percent_encode(&query, key, strlen(key), "");
    char *root = f->b->in_path ? xasprintf("/%s", f->b->name) : xstrdup("/");
    int bad = call(f, "GET", root, query.data, NULL, 0, &a, e);
    for (const char *p = bad ? NULL : a.http.body.data; p && (p = strstr(p, "<Upload>")); p += 8)
        if (aws_xml(p, "Key", found, sizeof found) && !strcmp(found, key)) aws_xml(p, "UploadId", f->upload_id, sizeof f->upload_id);
    aws_answer_free(&a);
    buf_free(&query);
    free(root);
    return bad;
}

/* Parts of the unfinished upload that hold the same bytes. */
static int find_parts(struct file *f, struct err *e)
{
    long marker = 0;
    for (bool more = true; more;) {
        struct aws_answer a = {0};
        struct buf query = BUF_INIT;
        char text[ETAG], hex[MD5_HEX];
        if (marker) buf_printf(&query, "part-number-marker=%ld&", marker);
        buf_str(&query, "uploadId=");
        percent_encode(&query, f->upload_id, strlen(f->upload_id), "");
        int bad = call(f, "GET", f->key, query.data, NULL, 0, &a, e);
        const char *body = a.http.body.data;
        more = !bad && aws_xml(body, "IsTruncated", text, sizeof text) && !strcmp(text, "true") && aws_xml(body, "NextPartNumberMarker", text, sizeof text)
            && strtol(text, NULL, 10) > marker;
        if (more) marker = strtol(text, NULL, 10);
        for (const char *p = bad ? NULL : body; p && (p = strstr(p, "<Part>")); p += 6) {
            long number = aws_xml(p, "PartNumber", text, sizeof text) ? strtol(text, NULL, 10) : 0;
            if (number < 1 || (size_t)number > f->parts || !aws_xml(p, "ETag", text, sizeof text)) continue;
            struct part *part = &f->part[number - 1];
            hex16(part->md5, hex);
            bare_etag(text, part->etag, sizeof part->etag);
            part->there = !strcmp(part->etag, hex);
        }
        aws_answer_free(&a);
        buf_free(&query);
        if (bad) return -1;
    }
    return 0;
}

/* --- sending -------------------------------------------------------------------------------------------------------- */

struct sending {
    struct file *f;
    struct part *part;
    char *buf, **headers, *url;
    struct buf body;
    size_t *running;
    struct err *e;                  /* of the whole file: the first that stays */
};

static void sending_free(struct sending *x)
{
    aws_headers_free(x->headers);
    buf_free(&x->body);
    free(x->buf);
    free(x->url);
    free(x);
}

static int on_data(void *arg, const struct http_reply *r, const char *p, size_t n, double at)
{
    struct sending *x = arg;
    (void)r, (void)at;
    if (x->body.n < 65536) buf_add(&x->body, p, n);
    return 0;
}

static void on_done(void *arg, const struct http_reply *r, const struct err *fault)
{
    struct sending *x = arg;
    struct aws_answer a = {.http = *r};
    char etag[ETAG] = "";
    aws_read_error(r, x->body.data ? x->body.data : "", x->body.n, &a);
    http_header(r, "ETag", etag, sizeof etag);
    bool passing = fault->code || r->status >= 500 || r->status == 429 || aws_code_is_throttling(a.code) || aws_code_is_expiry(a.code) || aws_learn_clock(&a);
    if (!fault->code && r->status == 200) {
        x->part->there = true;
        bare_etag(etag, x->part->etag, sizeof x->part->etag);
        progress_add(x->part->n);
    } else if (aws_code_is_expiry(a.code)) {
        x->f->b->s->credentials.expires = 1;
    }
    if (!x->part->there && (!passing || x->part->tries >= TRIES)) {
        if (fault->code) err_set(x->e, EXIT_TEMPFAIL, "%s: %s", x->f->name, fault->msg);
        else err_set(x->e, passing ? EXIT_TEMPFAIL : r->status == 403 ? EXIT_NOPERM : EXIT_UNAVAILABLE, "%s: %s: %s", x->f->name, a.code, a.message);
    }
    --*x->running;
    sending_free(x);
}

static int send_part(struct file *f, size_t i, size_t *running, struct err *fault, struct err *e)
{
    struct part *p = &f->part[i];
    struct buf query = BUF_INIT;
    struct sending *x = xcalloc(1, sizeof *x);
    struct aws_credentials *keys = &f->b->s->credentials;
    *x = (struct sending){.f = f, .part = p, .running = running, .e = fault, .buf = xmalloc(p->n + 1)};
    if (read_part(f, p, x->buf, e) || aws_session_refresh(f->b->s, e)) {
        sending_free(x);
        return -1;
    }
    buf_str(&query, "uploadId=");
    percent_encode(&query, f->upload_id, strlen(f->upload_id), "");
    buf_printf(&query, "&partNumber=%zu", i + 1);
    struct sigv4_signer signer = {.key_id = keys->key_id, .secret = keys->secret, .region = f->b->region, .service = "s3", .s3 = true};
    struct aws_call c = {.url = f->b->url, .service = "s3", .region = f->b->region, .method = "PUT", .path = f->key, .query = query.data, .body = x->buf, .body_n = p->n};
    x->headers = aws_headers(&signer, keys, &c);
    x->url = xasprintf("%s%s?%s", f->b->url, f->key, query.data);
    sigv4_wipe(&signer);
    struct http_request q = {.method = "PUT", .url = x->url, .headers = (const char *const *)x->headers, .body = x->buf, .body_n = p->n, .timeout = PART_TIMEOUT};
    p->tries++;
    int bad = http_start(f->b->s->http, &q, &(struct http_sink){on_data, on_done, x}, e);
    if (bad) sending_free(x);
    else ++*running;
    buf_free(&query);
    return bad;
}

/* Rounds over the parts that are not there, `parallel` at a time. */
static int send_parts(struct file *f, struct err *e)
{
    size_t running = 0, left = f->parts;
    struct err fault = {0};
    while (left && !fault.code) {
        left = 0;
        for (size_t i = 0; i < f->parts && !fault.code; i++) {
            if (f->part[i].there) continue;
            left++;
            while (running >= (size_t)f->parallel && !fault.code)
                if (http_run(f->b->s->http, 1, e) < 0) return -1;
            if (!fault.code && send_part(f, i, &running, &fault, e)) return -1;
        }
        while (running)
            if (http_run(f->b->s->http, 1, e) < 0) return -1;
    }
    while (running)
        if (http_run(f->b->s->http, 1, e) < 0) return -1;
    return fault.code ? err_set(e, fault.code, "%s: what has arrived stays; run the same command again to go on", fault.msg) : 0;
}

static int begin_upload(struct file *f, struct err *e)
{
    struct aws_answer a = {0};
    int bad = call(f, "POST", f->key, "uploads", "", 0, &a, e);
    if (!bad && !aws_xml(a.http.body.data, "UploadId", f->upload_id, sizeof f->upload_id)) bad = err_set(e, EXIT_DATA, "%s: S3 named no upload", f->name);
    aws_answer_free(&a);
    return bad;
}

static int complete_upload(struct file *f, struct err *e)
{
    struct aws_answer a = {0};
    struct buf body = BUF_INIT, query = BUF_INIT;
    buf_str(&query, "uploadId=");
    percent_encode(&query, f->upload_id, strlen(f->upload_id), "");
    buf_str(&body, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (size_t i = 0; i < f->parts; i++) buf_printf(&body, "<Part><ETag>\"%s\"</ETag><PartNumber>%zu</PartNumber></Part>", f->part[i].etag, i + 1);
    buf_str(&body, "</CompleteMultipartUpload>");
    int bad = call(f, "POST", f->key, query.data, body.data, body.n, &a, e);
    aws_answer_free(&a);
    buf_free(&body);
    buf_free(&query);
    return bad;
}

static int put_whole(struct file *f, struct err *e)
{
    struct aws_answer a = {0};
    char *buf = xmalloc(f->part[0].n + 1);
    int bad = f->part[0].n ? read_part(f, &f->part[0], buf, e) : 0;
    if (!bad) bad = call(f, "PUT", f->key, "", buf, f->part[0].n, &a, e);
    progress_add(f->part[0].n);
    aws_answer_free(&a);
    free(buf);
    return bad;
}

static int send_file(struct file *f, const char *key, struct err *e)
{
    if (plan_parts(f, e)) return -1;
    int there = verify(f, false, e);
    if (there) {
        if (there > 0) note_msg("%s: is there already", f->name);
        return there < 0 ? -1 : 0;
    }
    if (f->parts == 1) {
        if (put_whole(f, e)) return -1;
    } else {
        if (find_upload(f, key, e)) return -1;
        if (*f->upload_id ? find_parts(f, e) : begin_upload(f, e)) return -1;
        size_t kept = 0;
        for (size_t i = 0; i < f->parts; i++) kept += f->part[i].there;
        if (kept) note_msg("%s: %zu of %zu parts are there already", f->name, kept, f->parts);
        if (send_parts(f, e) || complete_upload(f, e)) return -1;
    }
    return verify(f, true, e) == 1 ? 0 : -1;
}

/* --- the directory -------------------------------------------------------------------------------------------------- */

static int by_turn(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    bool last_x = !strcmp(x, "MANIFEST.sha256"), last_y = !strcmp(y, "MANIFEST.sha256");
    return last_x != last_y ? (last_x ? 1 : -1) : strcmp(x, y);
}

static int list_files(const char *dir, char ***names, size_t *n, uint64_t *bytes, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d) return err_errno(e, io_open_code(errno), "%s: this directory cannot be read", dir);
    *names = NULL;
    *n = 0;
    *bytes = 0;
    int bad = 0;
    for (struct dirent *x; !bad && (x = readdir(d));) {
        struct stat st;
        if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..")) continue;
        if (fstatat(dirfd(d), x->d_name, &st, 0)) bad = err_errno(e, EXIT_IO, "%s/%s", dir, x->d_name);
        else if (!S_ISREG(st.st_mode)) bad = err_set(e, EXIT_DATA, "%s/%s: no regular file: a build holds files only", dir, x->d_name);
        if (bad) break;
        *names = xreallocarray(*names, *n + 1, sizeof **names);
        (*names)[(*n)++] = xstrdup(x->d_name);
        *bytes += (uint64_t)st.st_size;
    }
    closedir(d);
    if (!bad && *n) qsort(*names, *n, sizeof **names, by_turn);
    return bad;
}

static int parse_destination(const char *text, struct bucket *b, char **prefix, struct err *e)
{
    const char *p = text + 5, *slash;
    if (strncmp(text, "s3://", 5)) return err_set(e, EXIT_USAGE, "%s: expected s3://BUCKET/PREFIX", text);
    slash = strchr(p, '/');
    size_t n = slash ? (size_t)(slash - p) : strlen(p);
    bool good = n >= 3 && n <= 63;
    for (size_t i = 0; i < n; i++) good = good && (islower((unsigned char)p[i]) || isdigit((unsigned char)p[i]) || p[i] == '-' || p[i] == '.');
    if (!good) return err_set(e, EXIT_USAGE, "%s: no bucket's name: 3 to 63 lower-case letters, digits, - and .", text);
    b->name = xstrndup(p, n);
    const char *rest = slash ? slash + 1 : "";
    size_t len = strlen(rest);
    while (len && rest[len - 1] == '/') len--;
    *prefix = xasprintf("%.*s%s", (int)len, rest, len ? "/" : "");
    return 0;
}

/* The bucket is the first label of the host, where AWS's own names allow that. */
static int place_bucket(struct bucket *b, struct err *e)
{
    bool overridden = false;
    char *base = aws_config_url(b->s->config, "s3", b->region, &overridden, e);
    if (!base) return -1;
    b->in_path = overridden || strchr(b->name, '.');
    b->url = b->in_path ? xstrdup(base) : xasprintf("https://%s.%s", b->name, base + 8);
    free(base);
    return 0;
}

static int upload_one(struct bucket *b, const struct s3_upload *u, const char *name, const char *prefix, struct err *e)
{
    char *path = xasprintf("%s/%s", u->directory, name), *key = xasprintf("%s%s", prefix, name);
    struct file f = {.b = b, .name = path, .key = object_path(b, key), .parallel = u->parallel, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    struct stat st;
    int bad;
    if (f.fd < 0 || fstat(f.fd, &st)) {
        bad = err_errno(e, io_open_code(errno), "%s: this file cannot be read", path);
    } else {
        f.size = (uint64_t)st.st_size;
        bad = send_file(&f, key, e);
    }
    if (f.fd >= 0) close(f.fd);
    free(f.part);
    free(f.key);
    free(path);
    free(key);
    return bad;
}

int s3_upload(struct aws_session *s, const struct s3_upload *u, struct err *e)
{
    struct bucket b = {.s = s, .region = u->region};
    char *prefix = NULL, **names = NULL;
    size_t n = 0;
    uint64_t bytes = 0;
    int bad = parse_destination(u->destination, &b, &prefix, e) || place_bucket(&b, e) || list_files(u->directory, &names, &n, &bytes, e) ? -1 : 0;
    if (!bad && !n) bad = err_set(e, EXIT_NOINPUT, "%s: holds no files", u->directory);
    if (!bad) progress_start(u->destination, bytes);
    for (size_t i = 0; i < n && !bad; i++) bad = upload_one(&b, u, names[i], prefix, e);
    progress_end();
    while (n) free(names[--n]);
    free(names);
    free(prefix);
    free(b.url);
    free(b.name);
    return bad;
}
