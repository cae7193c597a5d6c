/* A model directory whose config.json and model.safetensors are any bytes: it is opened and decoded, or refused; never a crash.
 *
 * An input is config.json, one NUL byte, model.safetensors.  The corpus holds whole models of a few kilobytes, and broken ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/engine.h"
#include "fuzz.h"

static char dir[] = "/tmp/q4fuzz.XXXXXX";

static void remove_dir(void)
{
    char path[64];
    static const char *const name[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void put(const char *name, const uint8_t *p, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
        abort();
}

/* Three tokens as a prompt, then one more step. */
static void decode(struct engine *en)
{
    struct err e = {0, ""};
    const struct gemma *g = engine_model(en);
    int ids[3] = {0, g->vocab - 1, g->vocab / 2};
    float *logits = xcalloc((size_t)g->vocab, sizeof *logits);
    struct seq *s = seq_new(en, 8);
    struct engine_item item = {.seq = s, .ids = ids, .n = 3, .logits = logits};
    for (int step = 0; step < 2; step++)
        if (engine_step(en, &item, 1, &e) != 0)
            abort();
    if (seq_position(s) != 6)
        abort();
    seq_free(s);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int made;
    const uint8_t *nul = memchr(data, 0, n);
    if (!nul)
        return 0;
    if (!made) {
        if (!mkdtemp(dir))
            abort();
        atexit(remove_dir);
        made = 1;
        prog_verbosity = -1;
    }
    put("config.json", data, (size_t)(nul - data));
    put("model.safetensors", nul + 1, n - (size_t)(nul - data) - 1);
    struct err e = {0, ""};
    struct engine *en = engine_open(dir, &(struct engine_options){.device = "cpu", .math = n % 2 ? "exact" : "fast", .threads = 1, .max_context = 64}, &e);
    if (en)
        decode(en);
    else if (e.code == 0 || e.code == EXIT_BUG)
        abort();
    engine_close(en);
    return 0;
}
