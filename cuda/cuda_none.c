/* A build without nvcc: there is no GPU. */
#include "cuda/cuda.h"

struct cuda *cuda_open(struct err *e)
{
    (void)err_set(e, EXIT_UNAVAILABLE, "this build has no CUDA: build it where nvcc is, or use --device cpu");
    return NULL;
}

/* Nobody has a struct cuda to call these with. */
void cuda_close(struct cuda *c) { (void)c; }
const struct cuda_facts *cuda_facts(const struct cuda *c) { (void)c; return NULL; }
const struct weights_memory *cuda_memory(struct cuda *c, bool ple) { (void)c, (void)ple; return NULL; }
struct cuda_seq *cuda_seq_new(struct cuda *c, long capacity) { (void)c, (void)capacity; return NULL; }
void cuda_seq_free(struct cuda_seq *s) { (void)s; }
uint64_t cuda_kv_bytes(const struct cuda *c, long n) { (void)c, (void)n; return 0; }
uint64_t cuda_kernels_run(const struct cuda *c) { (void)c; return 0; }
uint64_t cuda_read_weights(struct cuda *c, struct err *e) { (void)c, (void)e; return 0; }

int cuda_load(struct cuda *c, const struct gemma *g, const struct weights *w, const struct cuda_options *o, struct err *e)
{
    (void)c, (void)g, (void)w, (void)o;
    return err_set(e, EXIT_BUG, "no GPU");
}

int cuda_profile(struct cuda *c, struct engine_item *item, struct cuda_part part[CUDA_PARTS], size_t *n, struct err *e)
{
    (void)c, (void)item, (void)part, (void)n;
    return err_set(e, EXIT_BUG, "no GPU");
}

int cuda_step(struct cuda *c, struct engine_item *item, size_t n, struct err *e)
{
    (void)c, (void)item, (void)n;
    return err_set(e, EXIT_BUG, "no GPU");
}
