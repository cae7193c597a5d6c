#include "engine/graph.h"
#include <string.h>
#include "gemma/names.h"

static const char *const part_names[PARTS] = {
    [PART_EMBED] = "embed", [PART_PLE] = "ple", [PART_QKV] = "qkv", [PART_ATTENTION] = "attention", [PART_O] = "o", [PART_ROUTER] = "router",
    [PART_GATE_UP] = "gate_up", [PART_DOWN] = "down", [PART_EXPERTS_UP] = "experts_up", [PART_EXPERTS_DOWN] = "experts_down", [PART_PLE_GATE] = "ple_gate", [PART_PLE_OUT] = "ple_out",
    [PART_HEAD] = "head",
};

const char *graph_part_name(enum graph_part p) { return part_names[p]; }

static void add(struct graph *graph, enum graph_part part, int layer)
{
    graph->node[graph->n++] = (struct graph_node){part, layer};
}

static void add_layer(struct graph *graph, const struct gemma *g, int i, bool experts_apart)
{
    add(graph, PART_QKV, i);
    add(graph, PART_ATTENTION, i);
    add(graph, PART_O, i);
    if (g->experts)
        add(graph, PART_ROUTER, i);
    add(graph, PART_GATE_UP, i);
    if (g->experts && experts_apart)
        add(graph, PART_EXPERTS_UP, i);
    add(graph, PART_DOWN, i);
    if (g->experts && experts_apart)
        add(graph, PART_EXPERTS_DOWN, i);
    if (g->ple) {
        add(graph, PART_PLE_GATE, i);
        add(graph, PART_PLE_OUT, i);
    }
}

void graph_make(struct graph *graph, const struct gemma *g, bool experts_apart)
{
    graph->n = 0;
    add(graph, PART_EMBED, -1);
    if (g->ple)
        add(graph, PART_PLE, -1);
    for (int i = 0; i < g->layers; i++)
        add_layer(graph, g, i, experts_apart);
    add(graph, PART_HEAD, -1);
}

int graph_kernels_of(const struct graph *graph, int layer)
{
    int n = 0;

    for (size_t i = 0; i < graph->n; i++)
        n += graph->node[i].layer == layer;
    return n;
}

/* By the first piece that the name holds. */
static const struct { const char *piece; enum graph_part part; } pieces[] = {
    {"self_attn.o_proj", PART_O}, {"self_attn.", PART_QKV}, {"post_attention_layernorm", PART_O}, {"pre_feedforward_layernorm", PART_O}, {"router.scale", PART_O},
    {"router.", PART_ROUTER}, {"mlp.down_proj", PART_DOWN}, {"mlp.", PART_GATE_UP}, {"post_feedforward_layernorm", PART_DOWN}, {"input_layernorm", PART_DOWN},
    {"layer_scalar", PART_DOWN}, {"per_layer_model_projection", PART_PLE}, {"per_layer_projection_norm", PART_PLE}, {"per_layer_projection", PART_PLE_OUT},
    {"post_per_layer_input_norm", PART_PLE_OUT}, {"per_layer_input_gate", PART_PLE_GATE},
};

enum graph_part graph_part_of(const struct st_tensor *t, bool head_stored, bool experts_apart)
{
    switch (gemma_classify(t->name)) {
    case GC_EMBED: return head_stored ? PART_EMBED : PART_HEAD;
    case GC_PLE: return PART_PLE;
    default: break;
    }
    if (strstr(t->name, "experts.")) {
        const bool down = strstr(t->name, "down_proj");
        return experts_apart ? down ? PART_EXPERTS_DOWN : PART_EXPERTS_UP : down ? PART_DOWN : PART_GATE_UP;
    }
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (strstr(t->name, pieces[i].piece))
            return pieces[i].part;
    return PART_HEAD;           /* lm_head and the last norm */
}
