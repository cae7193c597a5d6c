/* st-mutate FILE OPERATION ARGUMENT…: a safetensors file changed in place in one respect, staying a valid file.
 *
 *     drop NAME          rename NAME NEW       copy NAME NEW        exchange NAME NAME (their bytes)
 *     dtype NAME DTYPE   shape NAME N[,N…]     (bytes kept)         xor NAME OFFSET VALUE (one byte)
 *     rows NAME A B (exchange two rows)        nibbles NAME (exchange the halves of every byte)
 *     zeros NAME DTYPE N[,N…] (a new tensor; BF16, F16, U8, I32 or I64)
 *     widen NAME (BF16 or F16 to F32)          thin NAME (F32 to BF16, cut off)             half NAME (BF16 to F16, cut off)
 *     first NAME (of each row the first)       reverse (tensors in the opposite order)      meta KEY VALUE
 *
 * A judge's tool: it shares no code with the programs.  Small files, held in memory.
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensor { char *name, *dtype; json_t *shape; unsigned char *bytes; size_t n; };
struct file { json_t *meta; struct tensor *t; size_t n; };

static _Noreturn void stop(const char *why)
{
    fprintf(stderr, "st-mutate: %s\n", why);
    exit(1);
}

static unsigned char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p;
    long size;

    if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 8)
        stop("cannot read the file");
    rewind(f);
    p = malloc((size_t)size + 1);
    if (!p || fread(p, 1, (size_t)size, f) != (size_t)size)
        stop("cannot read the file");
    fclose(f);
    *n = (size_t)size;
    return p;
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : (x->n > y->n) - (x->n < y->n);
}

static void load(struct file *f, const char *path)
{
    size_t size, n;
    unsigned char *p = slurp(path, &size);
    uint64_t len = 0;
    const char *name;
    json_t *h, *v;

    for (int i = 0; i < 8; i++)
        len |= (uint64_t)p[i] << 8 * i;
    h = len <= size - 8 ? json_loadb((char *)p + 8, (size_t)len, 0, NULL) : NULL;
    if (!h)
        stop("no safetensors file");
    f->meta = json_incref(json_object_get(h, "__metadata__"));
    f->t = calloc(json_object_size(h) + 2, sizeof *f->t);
    f->n = 0;
    json_object_foreach(h, name, v) {
        struct tensor *t = &f->t[f->n];
        json_t *at = json_object_get(v, "data_offsets");

        if (!at)
            continue;
        n = (size_t)json_integer_value(json_array_get(at, 0));
        *t = (struct tensor){strdup(name), strdup(json_string_value(json_object_get(v, "dtype"))), json_incref(json_object_get(v, "shape")), p + 8 + len + n,
            (size_t)json_integer_value(json_array_get(at, 1)) - n};
        f->n++;
    }
    qsort(f->t, f->n, sizeof *f->t, by_offset);
}

static void save(const struct file *f, const char *path)
{
    json_t *h = json_object();
    size_t at = 0, len;
    char *text;
    FILE *out = fopen(path, "wb");

    if (f->meta)
        json_object_set(h, "__metadata__", f->meta);
    for (size_t i = 0; i < f->n; i++) {
        json_object_set_new(h, f->t[i].name, json_pack("{ss,sO,s[I,I]}", "dtype", f->t[i].dtype, "shape", f->t[i].shape, "data_offsets", (json_int_t)at,
            (json_int_t)(at + f->t[i].n)));
        at += f->t[i].n;
    }
    text = json_dumps(h, JSON_COMPACT);
    len = strlen(text);
    for (int i = 0; i < 8; i++)
        fputc((int)(((len + 7) / 8 * 8) >> 8 * i & 255), out);
    fputs(text, out);
    for (; len % 8; len++)
        fputc(' ', out);
    for (size_t i = 0; i < f->n; i++)
        if (fwrite(f->t[i].bytes, 1, f->t[i].n, out) != f->t[i].n)
            stop("cannot write");
    if (fclose(out))
        stop("cannot write");
}

static struct tensor *find(struct file *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->t[i].name, name) == 0)
            return &f->t[i];
    fprintf(stderr, "%s: ", name);
    stop("no such tensor");
}

static void exchange(unsigned char *a, unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = a[i];

        a[i] = b[i];
        b[i] = c;
    }
}

static float half(unsigned h)
{
    int e = h >> 10 & 31;
    float m = (float)(h & 1023) / 1024;

    return (h & 0x8000 ? -1.0f : 1.0f) * (e ? ldexpf(1 + m, e - 15) : ldexpf(m, -14));
}

static void widen(struct tensor *t)
{
    bool bf16 = strcmp(t->dtype, "BF16") == 0;
    unsigned char *out = malloc(2 * t->n + 1);

    for (size_t i = 0; i < t->n / 2; i++) {
        unsigned h = t->bytes[2 * i] | (unsigned)t->bytes[2 * i + 1] << 8;
        uint32_t b = h << 16;
        float v = half(h);

        if (!bf16)
            memcpy(&b, &v, 4);
        for (int k = 0; k < 4; k++)
            out[4 * i + (size_t)k] = (unsigned char)(b >> 8 * k);
    }
    t->bytes = out;
    t->n *= 2;
    t->dtype = "F32";
}

static void thin(struct tensor *t)
{
    for (size_t i = 0; i < t->n / 4; i++)
        memmove(t->bytes + 2 * i, t->bytes + 4 * i + 2, 2);
    t->n /= 2;
    t->dtype = "BF16";
}

/* Exact between 2^-14 and 65504; smaller ones become zero. */
static void to_half(struct tensor *t)
{
    for (size_t i = 0; i < t->n; i += 2) {
        const unsigned b = t->bytes[i] | (unsigned)t->bytes[i + 1] << 8;
        const int e = (int)(b >> 7 & 255) - 127 + 15;
        const unsigned h = (b & 0x8000) | (e <= 0 ? 0 : e > 30 ? 0x7bff : (unsigned)e << 10 | (b & 127) << 3);

        t->bytes[i] = (unsigned char)h, t->bytes[i + 1] = (unsigned char)(h >> 8);
    }
    t->dtype = "F16";
}

static void first(struct tensor *t)
{
    const size_t rows = (size_t)json_integer_value(json_array_get(t->shape, 0)), row = t->n / rows, one = row / (size_t)json_integer_value(json_array_get(t->shape, 1));

    for (size_t i = 0; i < rows; i++)
        memmove(t->bytes + i * one, t->bytes + i * row, one);
    t->n = rows * one;
    t->shape = json_pack("[I,i]", (json_int_t)rows, 1);
}

static void set_shape(struct tensor *t, char *list)
{
    t->shape = json_array();
    for (char *s = strtok(list, ","); s; s = strtok(NULL, ","))
        json_array_append_new(t->shape, json_integer(atoll(s)));
}

static void zeros(struct file *f, char *name, char *dtype, char *list)
{
    struct tensor *t = &f->t[f->n++];
    size_t i;
    json_t *v;

    *t = (struct tensor){.name = name, .dtype = dtype, .n = strcmp(dtype, "I64") == 0 ? 8 : strcmp(dtype, "I32") == 0 ? 4 : strcmp(dtype, "U8") == 0 ? 1 : 2};
    set_shape(t, list);
    json_array_foreach(t->shape, i, v)
        t->n *= (size_t)json_integer_value(v);
    t->bytes = calloc(t->n + 1, 1);
}

static void reverse(struct file *f)
{
    for (size_t i = 0; i < f->n / 2; i++) {
        struct tensor t = f->t[i];

        f->t[i] = f->t[f->n - 1 - i];
        f->t[f->n - 1 - i] = t;
    }
}

static void one(struct file *f, const char *op, struct tensor *t, char **arg)
{
    if (strcmp(op, "drop") == 0) {
        memmove(t, t + 1, (size_t)(f->t + f->n-- - t - 1) * sizeof *t);
    } else if (strcmp(op, "rename") == 0) {
        t->name = arg[0];
    } else if (strcmp(op, "copy") == 0) {
        f->t[f->n] = *t;
        f->t[f->n++].name = arg[0];
    } else if (strcmp(op, "exchange") == 0) {
        struct tensor *u = find(f, arg[0]);

        if (u->n != t->n)
            stop("tensors of different sizes");
        exchange(t->bytes, u->bytes, t->n);
    } else if (strcmp(op, "dtype") == 0) {
        t->dtype = arg[0];
    } else if (strcmp(op, "shape") == 0) {
        set_shape(t, arg[0]);
    } else if (strcmp(op, "xor") == 0) {
        t->bytes[atol(arg[0])] ^= (unsigned char)atoi(arg[1]);
    } else if (strcmp(op, "rows") == 0) {
        size_t row = t->n / (size_t)json_integer_value(json_array_get(t->shape, 0));

        exchange(t->bytes + row * (size_t)atol(arg[0]), t->bytes + row * (size_t)atol(arg[1]), row);
    } else if (strcmp(op, "nibbles") == 0) {
        for (size_t i = 0; i < t->n; i++)
            t->bytes[i] = (unsigned char)(t->bytes[i] << 4 | t->bytes[i] >> 4);
    } else if (strcmp(op, "widen") == 0) {
        widen(t);
    } else if (strcmp(op, "thin") == 0) {
        thin(t);
    } else if (strcmp(op, "half") == 0) {
        to_half(t);
    } else if (strcmp(op, "first") == 0) {
        first(t);
    } else {
        stop("unknown operation");
    }
}

int main(int argc, char **argv)
{
    struct file f;

    if (argc < 3)
        stop("usage: st-mutate FILE OPERATION ARGUMENT...");
    load(&f, argv[1]);
    if (strcmp(argv[2], "reverse") == 0)
        reverse(&f);
    else if (strcmp(argv[2], "meta") == 0 && argc == 5)
        json_object_set_new(f.meta, argv[3], json_string(argv[4]));
    else if (strcmp(argv[2], "zeros") == 0 && argc == 6)
        zeros(&f, argv[3], argv[4], argv[5]);
    else if (argc > 3)
        one(&f, argv[2], find(&f, argv[3]), argv + 4);
    save(&f, argv[1]);
    return 0;
}
