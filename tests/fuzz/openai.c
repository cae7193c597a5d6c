/* Any bytes as an answer of OpenAI's API: whole; and as a stream, in one piece and cut at a place that the bytes name: the same text, counts and
 * fault.  And as a request line. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "fuzz.h"
#include "net/openai.h"

static void describe(const struct openai_answer *a, int bad, const struct err *e, struct buf *out)
{
    buf_printf(out, "%d %d %zu %zu %ld %ld %s %d;", bad, bad ? e->code : 0, a->choices, a->chunks, a->prompt_tokens, a->completion_tokens, a->finish_reason ? a->finish_reason : "-", a->ended);
    for (size_t i = 0; i < a->choices; i++)
        buf_add(out, a->text[i].data, a->text[i].n);
}

static void stream(const char *p, size_t n, size_t cut, struct buf *out)
{
    struct openai_answer a;
    struct err e = {0};
    openai_answer_init(&a);
    int bad = openai_answer_piece(&a, p, cut, 1, &e);
    if (!bad)
        bad = openai_answer_piece(&a, p + cut, n - cut, 1, &e);
    if (!bad)
        (void)sse_pending(&a.sse);
    describe(&a, bad, &e, out);
    openai_answer_free(&a);
}

static void request(const char *p, size_t n)
{
    struct err e = {0};
    json_t *line = json_parse(p, n, "fuzz", &e);
    struct openai_request q;
    if (json_is_object(line) && openai_request(&q, line, "http://127.0.0.1:1/v1", "m", n % 2, &e) == 0) {
        if (strlen(q.body) != q.body_n)
            abort();
        openai_request_free(&q);
    }
    json_decref(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    struct buf whole = BUF_INIT, pieces = BUF_INIT;
    struct openai_answer a;
    struct err e = {0};
    char said[100];
    openai_answer_init(&a);
    int bad = openai_answer_whole(&a, p, n, &e);
    if (bad && (e.code == 0 || e.code == EXIT_BUG))
        abort();
    openai_answer_free(&a);
    openai_refusal(p, n, said, sizeof said);
    if (strlen(said) >= sizeof said)
        abort();
    stream(p, n, n, &whole);
    stream(p, n, n ? data[n - 1] % (n + 1) : 0, &pieces);
    if (whole.n != pieces.n || memcmp(whole.data, pieces.data, whole.n))
        abort();
    request(p, n);
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
