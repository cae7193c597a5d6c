/* Fuzz target: safetensors headers, and what ct-pack plans from those that parse. */
#define FUZZ_CORPUS "header"
#include "../fuzz/driver.h"
#include "ct/plan.h"
#include "ct/shards.h"
#include "tensor/header.h"

static void fuzz_one(const uint8_t *data, size_t n)
{
    struct err e = {0, ""};
    struct st_header *h = st_header_parse((const char *)data, n, "fuzz", &e), *again;
    struct ct_shards *s;
    struct ct_plan *p;
    char *bytes;
    size_t len;

    if (!h)
        return;
    if (st_header_render(h, &bytes, &len, &e) == 0) {
        again = st_header_parse(bytes + 8, len - 8, "again", &e);
        if (!again || again->n != h->n || again->nbytes != h->nbytes)
            abort();                                    /* what is written must read back */
        st_header_free(again);
        free(bytes);
    }
    p = ct_plan_make(h, "fuzz", CT_PACKED, &e);
    s = p ? ct_shards_make(p, 100000, &e) : NULL;
    ct_shards_free(s);
    ct_plan_free(p);
    st_header_free(h);
}
