#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct result *compare_base(const struct results *rs, const struct result *r, const char *build)
{
    for (size_t i = 0; i < rs->n; i++) {
        const struct result *o = &rs->item[i];
        if (!strcmp(o->model, r->model) && !strcmp(o->target, r->target) && !strcmp(o->build, build))
            return strcmp(o->setting, r->setting) ? NULL : o;
    }
    return NULL;
}

struct two { const struct result *r, *base; };

/* Medians in the order short and long of r, short and long of base. */
static double ratio_of(const double *median, const void *ctx)
{
    const struct two *t = ctx;
    return result_decode(t->r, median[0], median[1]) / result_decode(t->base, median[2], median[3]);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

struct comparison compare_decode(const struct result *r, const struct result *base)
{
    struct comparison c = {NAN, COMPARE_SINGLE, {NAN, NAN}, 0, 0};

    if (!base)
        return c;
    const struct two two = {r, base};
    const struct sample *const lists[] = {&r->short_ms, &r->long_ms, &base->short_ms, &base->long_ms};
    c.ratio = r->decode / base->decode;
    c.n = least(least(r->short_ms.n, r->long_ms.n), least(base->short_ms.n, base->long_ms.n));
    if (r == base || c.n < 2 || !isfinite(c.ratio))
        return c;
    if (stats_bootstrap(lists, 4, ratio_of, &two, &c.in)) {
        c.kind = COMPARE_INTERVAL;
        c.winner = c.in.low > 1 ? 1 : c.in.high < 1 ? -1 : 0;
    } else {
        const struct interval x = r->decode_range, y = base->decode_range;
        c.kind = COMPARE_RANGE;
        c.in = (struct interval){x.low / y.high, x.high / y.low};
        c.winner = x.low > y.high ? 1 : x.high < y.low ? -1 : 0;
    }
    return c;
}

void compare_text(const struct comparison *c, char *out, size_t size)
{
    if (c->kind == COMPARE_SINGLE)
        snprintf(out, size, "single value");
    else if (c->kind == COMPARE_INTERVAL)
        snprintf(out, size, "%.2f-%.2f (95 %%)", c->in.low, c->in.high);
    else
        snprintf(out, size, "%.2f-%.2f (range of %zu)", c->in.low, c->in.high, c->n);
}

static json_int_t question_tokens(const struct result *r)
{
    return json_integer_value(json_object_get(json_object_get(r->root, "settings"), "question_tokens"));
}

long long compare_answers(const struct result *a, const struct result *b)
{
    long long same = 0;

    if (a->n_answers == 0 || a->n_answers != b->n_answers || strcmp(a->model, b->model) || question_tokens(a) != question_tokens(b))
        return -1;
    for (size_t i = 0; i < a->n_answers; i++) {
        const struct answer *other = result_answer(b, a->answer[i].id);
        if (!other || !a->answer[i].sha256[0] || !other->sha256[0])
            return -1;
        same += !strcmp(a->answer[i].sha256, other->sha256);
    }
    return same;
}
