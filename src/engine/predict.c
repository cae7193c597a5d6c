#include "engine/predict.h"
#include <string.h>
#include "engine/graph.h"

struct part { size_t kernels; double bytes, us; };

static double us(double bytes, double gb_per_s) { return bytes / gb_per_s / 1e3; }

static json_t *whole(double us_token, const char *basis)
{
    return json_pack("{s:f, s:f, s:s}", "tokens_per_s", 1e6 / us_token, "us", us_token, "basis", basis);
}

static json_t *predict_vllm(const struct gemma *g, const struct gemma_bytes *b, double kv, const struct gpu *gpu)
{
    const struct gpu_vllm *v = gpu_vllm();
    const double by = gpu->gb_per_s / v->measured->gb_per_s;

    return whole(us(b->read[GEMMA_INT4], by * v->int4_gb_per_s) + us(b->read[GEMMA_8BIT], by * v->eight_bit_gb_per_s) +
        us(b->read[GEMMA_16BIT] + kv, by * v->sixteen_bit_gb_per_s) + g->layers * v->layer_us + (g->experts ? g->layers * v->moe_layer_us : 0),
        gpu == v->measured ? "constants fitted to published measurements of vLLM 0.30 on this GPU" :
        "constants fitted to published measurements of vLLM 0.30 on an L4, bandwidths scaled by the data sheets: extrapolated");
}

/* Are the experts' matrices stored otherwise than the dense MLP's? */
static bool experts_apart(const struct st_header *h)
{
    bool seen[2][GEMMA_STORAGES] = {0};

    for (size_t i = 0; i < h->n; i++) {
        const bool expert = strstr(h->t[i].name, ".experts."), dense = strstr(h->t[i].name, ".mlp.");
        if ((expert || dense) && gemma_classify(h->t[i].name) != GC_TOWER)
            seen[expert][gemma_storage_of(&h->t[i])] = true;
    }
    return memcmp(seen[0], seen[1], sizeof *seen) != 0;
}

static void count_parts(struct part *part, const struct graph *graph, const struct gemma *g, const struct st_header *h, bool apart, double kv)
{
    const bool head_stored = gemma_head_stored(h);

    memset(part, 0, PARTS * sizeof *part);
    for (size_t i = 0; i < graph->n; i++)
        part[graph->node[i].part].kernels++;
    for (size_t i = 0; i < h->n; i++)
        if (gemma_layer_of(h->t[i].name) < g->layers)
            part[graph_part_of(&h->t[i], head_stored, apart)].bytes += gemma_bytes_read(g, &h->t[i], head_stored);
    part[PART_ATTENTION].bytes += kv;
}

static json_t *parts_json(const struct part *part)
{
    json_t *list = json_array();

    for (int p = 0; p < PARTS; p++)
        if (part[p].kernels)
            json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:f}", "part", graph_part_name((enum graph_part)p), "kernels", (json_int_t)part[p].kernels,
                "bytes", (json_int_t)(part[p].bytes + 0.5), "us", part[p].us));
    return list;
}

static json_t *predict_ours(const struct graph *graph, const struct gemma *g, const struct st_header *h, bool apart, double kv, const struct gpu *gpu)
{
    const struct gpu_ours *o = gpu_ours();
    struct part part[PARTS];
    const double share = gpu->share_of_peak > 0 ? gpu->share_of_peak : o->share_of_peak;
    double sum = o->token_us;

    count_parts(part, graph, g, h, apart, kv);
    for (int p = 0; p < PARTS; p++) {
        part[p].us = us(part[p].bytes, share * gpu->gb_per_s) + (double)part[p].kernels * gpu->kernel_us;
        sum += part[p].us;
    }
    const bool runs = gpu->compute_capability >= o->compute_capability;
    json_t *all = whole(sum, runs ? "planned for gpu-decode on CUDA: share_of_peak of the data sheet's bandwidth, kernel_us around each kernel, token_us a token; not measured" :
        "what its bandwidth would allow: gpu-decode's kernels need a newer GPU; not measured");
    json_object_set_new(all, "runs", json_boolean(runs));
    json_object_set_new(all, "share_of_peak", json_real(share));
    json_object_set_new(all, "kernel_us", json_real(gpu->kernel_us));
    json_object_set_new(all, "token_us", json_real(o->token_us));
    json_object_set_new(all, "parts", parts_json(part));
    return all;
}

json_t *predict(const struct gemma *g, const struct st_header *h, const struct gemma_bytes *b, double kv, const struct gpu *gpu)
{
    struct graph graph;
    int most = 0;

    const bool apart = g->experts && experts_apart(h);
    graph_make(&graph, g, apart);
    for (int i = 0; i < g->layers; i++)
        most = graph_kernels_of(&graph, i) > most ? graph_kernels_of(&graph, i) : most;
    /* The per-layer table stays in host memory, and beside the weights something must be left for K/V. */
    const double resident = (double)(b->text.bytes - b->cls[GC_PLE].bytes);
    return json_pack("{s:I, s:i, s:I, s:b, s:o, s:o}", "kernels", (json_int_t)graph.n, "kernels_per_layer", most, "gpu_bytes", (json_int_t)resident, "fits_memory",
        resident < 0.9 * gpu->memory_gb * 1e9, "predicted_vllm", predict_vllm(g, b, kv, gpu), "predicted_ours", predict_ours(&graph, g, h, apart, kv, gpu));
}
