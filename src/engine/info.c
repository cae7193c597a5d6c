#include "engine/info.h"
#include <string.h>
#include <sys/stat.h>
#include "engine/predict.h"
#include "tensor/source.h"

static json_t *class_json(const struct gemma_amount *a)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "tensors", (json_int_t)a->tensors, "params", (json_int_t)a->params, "bytes", (json_int_t)a->bytes,
        "bytes_per_token", (json_int_t)(a->read + 0.5));
}

/* What the fitted model of decoding needs (report/roofline.h): a token's bytes by storage, and the layers that each cost some time. */
static json_t *read_json(const struct gemma *g, const struct gemma_bytes *b, double kv)
{
    const int moe = g->experts ? g->layers : 0;
    return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i}", "int4", (json_int_t)(b->read[GEMMA_INT4] + 0.5), "8bit", (json_int_t)(b->read[GEMMA_8BIT] + 0.5),
        "16bit", (json_int_t)(b->read[GEMMA_16BIT] + 0.5), "kv", (json_int_t)(kv + 0.5), "layers", g->layers, "moe_layers", moe);
}

static json_t *gpu_json(const struct gemma *g, const struct st_header *h, const struct gemma_bytes *b, double kv, const struct gpu *gpu)
{
    const double all = b->text.read + kv;
    json_t *o = json_pack("{s:s, s:f, s:f, s:i, s:f, s:f, s:I}", "name", gpu->name, "gb_per_s", gpu->gb_per_s, "memory_gb", gpu->memory_gb, "sms", gpu->sms, "l2_mb", gpu->l2_mb,
        "max_tokens_per_s", gpu->gb_per_s * 1e9 / all, "bytes_per_token", (json_int_t)(all + 0.5));
    json_t *predictions = predict(g, h, b, kv, gpu);

    json_object_update(o, predictions);
    json_decref(predictions);
    return o;
}

static json_t *info_json(const struct gemma *g, const struct st_header *h, const struct gemma_bytes *b, const struct gpu *gpu)
{
    const double kv = gemma_kv_read(g, GEMMA_MEAN_CONTEXT, 2), all = b->text.read + kv;
    json_t *by_class = json_object();

    for (int c = 0; c <= GC_UNKNOWN; c++)
        if (c != GC_FILE && b->cls[c].tensors)
            json_object_set_new(by_class, gemma_class_name((enum gemma_class)c), class_json(&b->cls[c]));
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:o, s:I, s:i, s:I, s:I, s:I}", "size", gemma_size_name(g), "tensors", (json_int_t)b->text.tensors,
        "params", (json_int_t)b->text.params, "bytes", (json_int_t)b->text.bytes, "classes", by_class, "weights_per_token", (json_int_t)(b->text.read + 0.5),
        "mean_context", GEMMA_MEAN_CONTEXT, "kv_bytes_per_token", (json_int_t)gemma_kv_bytes(g, 2), "kv_read_per_token", (json_int_t)(kv + 0.5),
        "bytes_per_token", (json_int_t)(all + 0.5));
    json_object_set_new(o, "read_per_token", read_json(g, b, kv));
    json_object_set_new(o, "gpu", gpu ? gpu_json(g, h, b, kv, gpu) : json_null());
    return o;
}

/* One header that lists what all shards hold. */
static struct st_header *all_tensors(const struct source *s)
{
    struct st_header *h = st_header_new();

    for (size_t i = 0; i < s->n; i++) {
        const struct st_tensor *t = s->tensor[i].t;
        st_header_add(h, t->name, t->dtype, t->ndim, t->shape);
    }
    return h;
}

static json_t *of_source(const struct source *s, const char *name, const struct gpu *gpu, struct err *e)
{
    struct gemma g;
    struct gemma_bytes b;
    json_t *config = st_meta_config(s->header, name, e), *o = NULL;

    if (config && !gemma_config_read(&g, config, name, e)) {
        struct st_header *h = all_tensors(s);
        gemma_bytes_count(&b, &g, h);
        if (b.text.tensors)
            o = info_json(&g, h, &b, gpu);
        else
            (void)err_set(e, EXIT_DATA, "%s: holds no tensor of a language model", name);
        st_header_free(h);
    }
    json_decref(config);
    return o;
}

json_t *info_read(const char *model, const struct gpu *gpu, struct err *e)
{
    struct stat st;
    const bool directory = strcmp(model, "-") && stat(model, &st) == 0 && S_ISDIR(st.st_mode);
    struct store *place = directory ? store_directory(model) : NULL;
    struct source *s = directory ? source_open_store(place, e) : source_open_file(model, e);
    json_t *o = s ? of_source(s, strcmp(model, "-") ? model : "stdin", gpu, e) : NULL;

    if (s)
        source_close(s);
    store_close(place);
    return o;
}

static long long number(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }
static double real(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static void print_gpu(FILE *f, const json_t *gpu)
{
    const json_t *vllm = json_object_get(gpu, "predicted_vllm"), *ours = json_object_get(gpu, "predicted_ours"), *part;
    size_t i;

    fprintf(f, "\n%s, %.0f GB/s, %.0f GB: at most %.1f tokens a second; %s\n", json_string_value(json_object_get(gpu, "name")), real(gpu, "gb_per_s"),
        real(gpu, "memory_gb"), real(gpu, "max_tokens_per_s"), json_is_true(json_object_get(gpu, "fits_memory")) ? "the weights fit" : "the weights do not fit");
    fprintf(f, "vLLM:       %8.1f tokens a second predicted (%s)\n", real(vllm, "tokens_per_s"), json_string_value(json_object_get(vllm, "basis")));
    fprintf(f, "gpu-decode: %8.1f tokens a second predicted (", real(ours, "tokens_per_s"));
    if (json_is_true(json_object_get(ours, "runs")))
        fprintf(f, "planned: %.0f %% of the data sheet's bandwidth, %.1f us around each kernel, %.0f us a token besides; not measured)\n\n",
            100 * real(ours, "share_of_peak"), real(ours, "kernel_us"), real(ours, "token_us"));
    else
        fprintf(f, "%s)\n\n", json_string_value(json_object_get(ours, "basis")));
    fprintf(f, "%-14s %8s %16s %12s\n", "part", "kernels", "bytes a token", "us a token");
    json_array_foreach(json_object_get(ours, "parts"), i, part)
        fprintf(f, "%-14s %8lld %16lld %12.1f\n", json_string_value(json_object_get(part, "part")), number(part, "kernels"), number(part, "bytes"), real(part, "us"));
    fprintf(f, "%-14s %8s %16s %12.1f\n", "host", "", "", real(ours, "token_us"));
    fprintf(f, "%-14s %8lld %16lld %12.1f\n", "token", number(gpu, "kernels"), number(gpu, "bytes_per_token"), real(ours, "us"));
}

void info_print(FILE *f, const json_t *info)
{
    const json_t *gpu = json_object_get(info, "gpu"), *c;
    const char *name;

    fprintf(f, "%-10s %10s %16s %16s %16s\n", "class", "tensors", "parameters", "bytes", "bytes a token");
    json_object_foreach(json_object_get(info, "classes"), name, c)
        fprintf(f, "%-10s %10lld %16lld %16lld %16lld\n", name, number(c, "tensors"), number(c, "params"), number(c, "bytes"), number(c, "bytes_per_token"));
    fprintf(f, "%-10s %10lld %16lld %16lld %16lld\n", "text", number(info, "tensors"), number(info, "params"), number(info, "bytes"), number(info, "weights_per_token"));
    fprintf(f, "\n%s: %.3f GB a token with K/V at a mean context of %lld; %lld bytes of K/V more with every token (bf16)\n",
        json_string_value(json_object_get(info, "size")), (double)number(info, "bytes_per_token") / 1e9, number(info, "mean_context"), number(info, "kv_bytes_per_token"));
    if (json_is_object(gpu))
        print_gpu(f, gpu);
}
