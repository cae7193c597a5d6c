/* Memory bandwidth of GPUs, from their makers' data sheets: what bounds decoding. */
#ifndef ENGINE_GPUS_H
#define ENGINE_GPUS_H

struct gpu { const char *name; double gb_per_s; };
/* By name without regard to case; NULL = unknown. */
const struct gpu *gpu_find(const char *name);
/* All names, "T4, L4, …". */
const char *gpu_names(void);
#endif
