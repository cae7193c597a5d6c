/* Any JSON as a request to a model with a tokenizer, and to one without: refused as bad data, holding nothing; or taken, and then the prompt is ids of the model that
 * leave room in its context, and a copy is the same.
 *
 * The model is a nano Gemma 3 whose weights are all zero: only what is made of the request is looked at.
 */
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "engine/chat.h"
#include "engine/request.h"
#include "fuzz.h"
#include "gemma/names.h"
#include "gemma/preset.h"
#include "gemma/toy.h"
#include "scratch.h"
#include "tensor/stream.h"

#define CONTEXT 64

/* Whatever goes wrong here is the target's fault, not the input's. */
static void must(bool good, const struct err *e)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", e->msg);
    abort();
}

static void write_zeros(const char *path, const struct gemma *g)
{
    struct err e = {0};
    size_t n;
    struct gemma_tensor *t = gemma_text_tensors(g, &n);
    struct st_header *h = st_header_new();
    for (size_t i = 0; i < n; i++)
        st_header_add(h, t[i].name, ST_BF16, t[i].ndim, t[i].shape);
    struct st_writer *w = st_create(path, h, false, &e);
    must(w, &e);
    void *zeros = xcalloc(1, h->nbytes);
    must(!st_write(w, zeros, h->nbytes, &e), &e);
    must(!st_finish(w, &e), &e);
    free(zeros);
    free(t);
    st_header_free(h);
}

static struct engine *opened(const char *name, bool with_tokenizer)
{
    struct err e = {0};
    struct gemma g;
    struct toy_file file[TOY_MAX_FILES];
    char path[600];
    char *dir = xasprintf("%s/%s", scratch(), name);
    json_t *config = gemma_preset("gemma3", false, false);
    must(!mkdir(dir, 0700) && !gemma_config_read(&g, config, "config.json", &e), &e);
    size_t files = toy_files(config, &g, chat_own_template(CHAT_GEMMA3), file);
    for (size_t i = 0; i < files; i++) {
        snprintf(path, sizeof path, "%s/%s", name, file[i].name);
        if (with_tokenizer)
            scratch_file(path, (const uint8_t *)file[i].data, file[i].n);
        free(file[i].data);
    }
    char *text = json_dumps(config, 0);
    snprintf(path, sizeof path, "%s/config.json", name);
    scratch_file(path, (const uint8_t *)text, strlen(text));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_zeros(path, &g);
    struct engine *en = engine_open(dir, &(struct engine_options){.device = "cpu", .threads = 1, .max_context = CONTEXT}, &e);
    must(en && !engine_tokenizer(en) == !with_tokenizer, &e);
    free(text);
    free(dir);
    json_decref(config);
    return en;
}

static void check_copy(const struct request *r)
{
    struct request copy;
    request_copy(&copy, r);
    if (copy.n_ids != r->n_ids || memcmp(copy.ids, r->ids, r->n_ids * sizeof *r->ids) || copy.n_stop != r->n_stop || copy.sampling.n_bias != r->sampling.n_bias)
        abort();
    for (size_t i = 0; i < r->n_stop; i++)
        if (copy.stop[i] == r->stop[i] || strcmp(copy.stop[i], r->stop[i]))
            abort();
    request_free(&copy);
}

static void parse(const struct engine *en, const json_t *line)
{
    struct err e = {0};
    struct request r;
    const int vocab = engine_model(en)->vocab;
    if (request_parse(&r, en, line, &e)) {
        if (e.code != EXIT_DATA || r.ids || r.sampling.bias || r.n_stop)
            abort();
        return;
    }
    for (size_t i = 0; i < r.n_ids; i++)
        if (r.ids[i] < 0 || r.ids[i] >= vocab)
            abort();
    for (size_t i = 0; i < r.sampling.n_bias; i++)
        if (r.sampling.bias[i].id < 0 || r.sampling.bias[i].id >= vocab)
            abort();
    if (!r.n_ids || r.max_tokens < 1 || (long)r.n_ids + r.max_tokens > CONTEXT || r.min_tokens < 0 || r.min_tokens > r.max_tokens || r.logprobs < -1 || r.logprobs > MAX_TOP_LOGPROBS)
        abort();
    if (!(r.sampling.temperature >= 0 && r.sampling.top_p > 0 && r.sampling.min_p >= 0 && r.sampling.repetition_penalty > 0 && r.sampling.top_k >= 0))
        abort();
    check_copy(&r);
    request_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct engine *talking, *mute;
    struct err e = {0};
    if (!talking) {
        prog_verbosity = -1;
        talking = opened("talking", true);
        mute = opened("mute", false);
    }
    json_t *line = json_parse((const char *)data, n, "fuzz", &e);
    if (line) {
        parse(talking, line);
        parse(mute, line);
    }
    json_decref(line);
    return 0;
}
