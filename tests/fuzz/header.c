/* Any bytes as a stream's header; where it is accepted, rendering and parsing again must give the same tensors. */
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "gemma/names.h"
#include "tensor/header.h"

static void check_names(const struct st_header *h)
{
    char out[600];
    for (size_t i = 0; i < h->n; i++) {
        (void)gemma_classify(h->t[i].name);
        (void)gemma_layer_of(h->t[i].name);
        (void)gemma_text_name(h->t[i].name, out, sizeof out);
        (void)gemma_fused_key(h->t[i].name, out, sizeof out);
        if (st_find(h, h->t[i].name) != &h->t[i])
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0, ""};
    struct st_header *h = st_header_parse((const char *)data, n, "fuzz", &e);
    if (!h) {
        if (e.code != EXIT_DATA)
            abort();
        return 0;
    }
    check_names(h);
    char *bytes;
    size_t m;
    if (st_header_render(h, &bytes, &m, &e) != 0)
        abort();
    struct st_header *again = st_header_parse(bytes + 8, m - 8, "again", &e);
    if (!again || again->n != h->n || again->nbytes != h->nbytes)
        abort();
    for (size_t i = 0; i < h->n; i++)
        if (strcmp(h->t[i].name, again->t[i].name) != 0 || h->t[i].begin != again->t[i].begin)
            abort();
    st_header_free(again);
    st_header_free(h);
    free(bytes);
    return 0;
}
