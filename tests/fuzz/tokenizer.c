/* Any bytes as a tokenizer.json; where it is accepted, texts and every id must go through it. */
#include <stdlib.h>
#include "engine/tokenizer.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] = "The the <pad> a\nb\0 \xE2\x96\x81\xF0\x9F\x98\x80 <unused0>\xC3\xA9";
    struct err e = {0};
    struct tokenizer *t = tokenizer_parse((const char *)data, n, "fuzz", &e);
    if (t == NULL) {
        if (e.code != EXIT_DATA)
            abort();
        return 0;
    }
    struct ids ids = IDS_INIT;
    struct buf out = BUF_INIT;
    if (tokenizer_encode(t, text, sizeof text - 1, &ids, &e) != 0 || tokenizer_decode(t, ids.id, ids.n, false, &out, &e) != 0)
        abort();
    if (tokenizer_encode(t, (const char *)data, n, &ids, &e) != 0 && e.code != EXIT_DATA)
        abort();
    for (int id = -1; id <= tokenizer_size(t) && id < 5000; id++) {
        struct err ignored = {0};
        if (tokenizer_decode(t, &id, 1, true, &out, &ignored) != 0 && ignored.code != EXIT_DATA)
            abort();
    }
    ids_free(&ids);
    buf_free(&out);
    tokenizer_free(t);
    return 0;
}
