/* GPUs and what is assumed of them, from data/gpus.json, which is compiled in: bandwidth and memory from their makers' data sheets, and the constants of the two
 * predictions of decoding speed (engine/predict.h). */
#ifndef ENGINE_GPUS_H
#define ENGINE_GPUS_H

struct gpu {
    const char *name;           /* the short one */
    double gb_per_s, memory_gb; /* 1e9 bytes */
    double kernel_us;           /* idle around one kernel of a graph */
    double compute_capability;
    int sms; double l2_mb;      /* multiprocessors; the second cache, 2^20 bytes */
    double share_of_peak;       /* that our own is planned to reach here; 0 = gpu_ours()'s */
};
/* By any of its names without regard to case; NULL = unknown. */
const struct gpu *gpu_find(const char *name);
/* All short names, "T4, L4, …". */
const char *gpu_names(void);

/* vLLM's decoding, fitted to measurements on one GPU. */
struct gpu_vllm { const struct gpu *measured; double int4_gb_per_s, eight_bit_gb_per_s, sixteen_bit_gb_per_s, layer_us, moe_layer_us; };
const struct gpu_vllm *gpu_vllm(void);
/* What our own is planned to reach. */
struct gpu_ours { double share_of_peak, token_us, compute_capability; };       /* compute_capability: the least that its kernels need */
const struct gpu_ours *gpu_ours(void);
#endif
