/* st-shapes: makes weight_shape of packed weights true in files whose data are holes.
 *
 *     st-shapes FILE…        in place: of MODULE.weight_packed [rows, cols / 8], MODULE.weight_shape [2] becomes rows, cols
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void stop(const char *file, const char *why)
{
    fprintf(stderr, "st-shapes: %s: %s\n", file, why);
    exit(1);
}

static int64_t number(const json_t *t, const char *key, size_t i) { return (int64_t)json_integer_value(json_array_get(json_object_get(t, key), i)); }

static void set_shape(FILE *f, const char *name, uint64_t data, const json_t *shape, const json_t *packed)
{
    const int64_t value[2] = {number(packed, "shape", 0), number(packed, "shape", 1) * 8};
    const char *dtype = json_string_value(json_object_get(shape, "dtype"));

    if (!dtype || strcmp(dtype, "I64") || number(shape, "shape", 0) != 2)
        stop(name, "weight_shape is not I64 [2]");
    if (fseeko(f, (off_t)(data + (uint64_t)number(shape, "data_offsets", 0)), SEEK_SET) || fwrite(value, sizeof value, 1, f) != 1)
        stop(name, "cannot be written");
}

static void set_shapes(const char *name)
{
    FILE *f = fopen(name, "r+b");
    uint64_t length;

    if (!f || fread(&length, sizeof length, 1, f) != 1 || length > 1u << 30)
        stop(name, "no safetensors file");
    char *text = malloc(length);
    if (!text || fread(text, 1, length, f) != length)
        stop(name, "no header");
    json_t *header = json_loadb(text, length, 0, NULL), *t;
    const char *key;
    json_object_foreach(header, key, t) {
        const char *end = strstr(key, ".weight_packed");
        if (!end || end[strlen(".weight_packed")])
            continue;
        char other[1024];
        snprintf(other, sizeof other, "%.*s.weight_shape", (int)(end - key), key);
        const json_t *shape = json_object_get(header, other);
        if (shape)
            set_shape(f, name, 8 + length, shape, t);
    }
    json_decref(header);
    free(text);
    if (fclose(f))
        stop(name, "cannot be written");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        set_shapes(argv[i]);
    return 0;
}
