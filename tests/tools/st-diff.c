/* st-diff FILE:NAME FILE:NAME: the largest |a - b| of two tensors of equal shape in safetensors files, printed with %.9g.
 *
 * Reads F32, BF16 and F16.  A judge of the programs, so it shares no code with them.  Any NaN makes the answer "nan".
 * Exit 0, or 1 with a message when the tensors cannot be compared.
 */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensor {
    json_t *shape;
    char dtype[8];
    size_t n;
    unsigned char *bytes;
};

static _Noreturn void stop(const char *what, const char *why)
{
    fprintf(stderr, "st-diff: %s: %s\n", what, why);
    exit(1);
}

static unsigned char *read_at(FILE *f, const char *path, long offset, size_t n)
{
    unsigned char *p = malloc(n + 1);
    if (!p || fseek(f, offset, SEEK_SET) || fread(p, 1, n, f) != n)
        stop(path, "cannot be read to the promised length");
    return p;
}

static size_t element_size(const char *dtype)
{
    return !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BF16") || !strcmp(dtype, "F16") ? 2 : 0;
}

/* "dir/file.safetensors:model.norm.weight"; names may hold colons, so the first one after ".safetensors" parts them if there is one. */
static struct tensor load(const char *arg)
{
    const char *ext = strstr(arg, ".safetensors:");
    const char *colon = ext ? ext + strlen(".safetensors") : strchr(arg, ':');
    if (!colon)
        stop(arg, "expected FILE:NAME");
    char *path = strndup(arg, (size_t)(colon - arg));
    FILE *f = fopen(path, "rb");
    if (!f)
        stop(path, "cannot be opened");
    unsigned char *len = read_at(f, path, 0, 8);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | len[i];
    unsigned char *text = read_at(f, path, 8, n);
    json_error_t je;
    json_t *header = json_loadb((char *)text, n, 0, &je);
    json_t *entry = json_object_get(header, colon + 1);
    if (!entry)
        stop(arg, "no such tensor");

    struct tensor t = { .shape = json_incref(json_object_get(entry, "shape")) };
    snprintf(t.dtype, sizeof t.dtype, "%s", json_string_value(json_object_get(entry, "dtype")));
    json_t *offsets = json_object_get(entry, "data_offsets");
    long begin = (long)json_integer_value(json_array_get(offsets, 0));
    size_t nbytes = (size_t)(json_integer_value(json_array_get(offsets, 1)) - begin);
    if (!element_size(t.dtype))
        stop(arg, "expected F32, BF16 or F16");
    t.n = nbytes / element_size(t.dtype);
    t.bytes = read_at(f, path, (long)(8 + n) + begin, nbytes);
    fclose(f);
    json_decref(header);
    free(text);
    free(len);
    free(path);
    return t;
}

static double half(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double fraction = h & 1023;
    double v = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
             : exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static double value(const struct tensor *t, size_t i)
{
    const unsigned char *p = t->bytes + i * element_size(t->dtype);
    uint32_t bits = !strcmp(t->dtype, "F32") ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
                                             : (uint32_t)(p[0] | p[1] << 8);
    if (!strcmp(t->dtype, "F16"))
        return half((uint16_t)bits);
    if (!strcmp(t->dtype, "BF16"))
        bits <<= 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stop("usage", "st-diff FILE:NAME FILE:NAME");
    struct tensor a = load(argv[1]), b = load(argv[2]);
    if (!json_equal(a.shape, b.shape))
        stop(argv[2], "has another shape");
    double worst = 0;
    for (size_t i = 0; i < a.n && !isnan(worst); i++) {
        double x = value(&a, i), y = value(&b, i), d = x == y ? 0 : fabs(x - y);
        if (isnan(d) || d > worst)
            worst = d;
    }
    printf("%.9g\n", worst);
    json_decref(a.shape);
    json_decref(b.shape);
    free(a.bytes);
    free(b.bytes);
    return 0;
}
