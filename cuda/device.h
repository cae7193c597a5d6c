/* A GPU as memory, one stream and graphs: what the forward pass needs of CUDA's runtime, without its types.
 *
 * device_cuda.c stands on the runtime; device_host.c on this process's memory and the host shim, where everything is done at once.  A program links one of them.
 * Copies and launches are enqueued in order and done when device_wait() returns; host memory they touch must be pinned (device_pinned) and stay until then.
 * Errors: EXIT_UNAVAILABLE no device, or it failed; EXIT_TEMPFAIL no memory.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "cuda/kernels.h"

struct device;
struct device_facts { const char *kind; char name[128]; uint64_t memory, l2; int sms; };        /* kind: "cuda", "host-shim"; l2: bytes of the second cache */

struct device *device_open(struct err *e) MUST_CHECK;
void device_close(struct device *d);                    /* NULL is fine */
const struct device_facts *device_facts(const struct device *d);
uint64_t device_unused(struct device *d);               /* bytes of memory that nobody holds */

/* Device memory, all zero, 256-byte aligned.  Freed by device_close(). */
void *device_alloc(struct device *d, uint64_t bytes, struct err *e) MUST_CHECK;
/* Host memory that is pinned.  Freed by device_close(). */
void *device_pinned(struct device *d, size_t bytes, struct err *e) MUST_CHECK;
/* Memory of this process, pinned where it is until device_close(): the address by which kernels read it. */
const void *device_map(struct device *d, const void *host, size_t bytes, struct err *e) MUST_CHECK;

int device_upload(struct device *d, void *to, const void *from, size_t n, struct err *e) MUST_CHECK;
int device_download(struct device *d, void *to, const void *from, size_t n, struct err *e) MUST_CHECK;
int device_copy(struct device *d, void *to, const void *from, size_t n, struct err *e) MUST_CHECK;      /* within the device */
int device_launch(struct device *d, const struct gk_launch *l, struct err *e) MUST_CHECK;
/* Brings a kernel's code to the device, before a launch of it is recorded. */
int device_prepare(struct device *d, const struct gk_launch *l, struct err *e) MUST_CHECK;
int device_wait(struct device *d, struct err *e) MUST_CHECK;
/* The same kernel alone, and how long it took. */
int device_timed(struct device *d, const struct gk_launch *l, double *us, struct err *e) MUST_CHECK;
uint64_t device_launches(const struct device *d);       /* kernels run so far, in graphs too */

/* What is enqueued between begin and end is not done but kept, and done whenever it is replayed. */
struct device_graph;
int device_record(struct device *d, struct err *e) MUST_CHECK;
struct device_graph *device_recorded(struct device *d, struct err *e) MUST_CHECK;      /* freed by device_close() */
int device_replay(struct device *d, struct device_graph *g, struct err *e) MUST_CHECK;

/* Uploads of weights, beside the stream: from several threads, each copy with a number below DEVICE_LANES that only one thread uses at a time.
 * device_lane_wait: until that lane's last copy is done. */
#define DEVICE_LANES 8
int device_lane_upload(struct device *d, int lane, void *to, const void *pinned, size_t n, struct err *e) MUST_CHECK;
int device_lane_wait(struct device *d, int lane, struct err *e) MUST_CHECK;
#endif
