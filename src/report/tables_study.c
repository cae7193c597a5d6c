/* The study's own tables: speed, bytes, answers, memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/parts.h"

static const char DECODE_FORMULA[] =
    "decode = (long - short) / (median wall of the long replies - median wall of the short ones). At once = median over the batches of tokens / wall. "
    "n/a = not in the files, or not comparable.";
static const char ERROR_FORMULA[] =
    "Interval: of the ratio of decode rates; 95 % by bootstrap from 15 repeats on, else the range of what the long replies give one by one. "
    "A row is called faster or slower only when the interval excludes 1, or the two ranges have nothing in common.";

static void measured_notes(struct table *t, const struct results *rs, size_t from, size_t to)
{
    bool mixed = false;

    for (size_t i = from; i < to; i++) {
        char names[1000] = "";
        bool seen = false;
        for (size_t k = from; k < i; k++)
            seen |= !strcmp(rs->item[k].setting, rs->item[i].setting);
        mixed |= strcmp(rs->item[i].setting, rs->item[from].setting) != 0;
        for (size_t k = i; k < to && !seen; k++)
            if (!strcmp(rs->item[k].setting, rs->item[i].setting)) {
                char *name = row_name(rs, &rs->item[k]);
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] ? ", " : "", name);
                free(name);
            }
        if (!seen)
            table_note(t, "Measured (%s): %s.", names, rs->item[i].setting);
    }
    if (mixed)
        table_note(t, "Rows measured in different ways are not compared: their ratio is n/a.");
}

static void summary_columns(struct table *t, const struct view *v, const long long *level, size_t n_levels)
{
    char key[80];

    table_column(t, "model", COL_TEXT | COL_DATA, "model");
    table_column(t, "build", COL_TEXT, "build");
    table_column(t, "target", COL_TEXT | COL_DATA, "target");
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    ratio_columns(t, v->baseline);
    for (size_t k = 0; k < n_levels; k++) {
        snprintf(key, sizeof key, "tok_s_at_%lld", level[k]);
        table_column(t, key, 0, "tok/s, %lld at once", level[k]);
    }
    table_column(t, "bytes_on_disk", 0, "bytes on disk");
    table_column(t, "tensor_bytes", COL_DATA, "tensor bytes");
    for (size_t c = 0; c < N_CLASSES; c++) {
        snprintf(key, sizeof key, "bytes_%s", CLASSES[c].key);
        table_column(t, key, COL_DATA, "%s", CLASSES[c].title);
    }
    table_column(t, "right", 0, "right answers");
    table_column(t, "questions", COL_DATA, "questions");
    snprintf(key, sizeof key, "identical_to_%.60s", v->baseline);
    table_column(t, key, 0, "answers as %s", v->baseline);
    table_column(t, "decode_low", COL_DATA, "decode, least");
    table_column(t, "decode_high", COL_DATA, "decode, most");
    table_column(t, "repeats", COL_DATA, "repeats");
    table_column(t, "per_call_s", COL_DATA, "per call");
    table_column(t, "setting", COL_TEXT | COL_DATA, "measured");
}

static void summary_row(struct table *t, const struct view *v, const struct result *r, const long long *level, size_t n_levels)
{
    const struct result *base = compare_base(v->rs, r, v->baseline);

    name_cells(t, v->rs, r);
    decode_cell(t, r);
    ratio_cells(t, r, base);
    for (size_t k = 0; k < n_levels; k++)
        cell_real(t, result_rate_at(r, level[k]), 2, 2);
    cell_count(t, r->disk);
    cell_count(t, result_tensor_bytes(r));
    for (size_t c = 0; c < N_CLASSES; c++)
        cell_count(t, r->has_classes ? r->class_bytes[c] : -1);
    cell_of(t, r->right, r->n_answers);
    cell_count(t, (long long)r->n_answers);
    cell_of(t, base ? compare_answers(base, r) : -1, r->n_answers);
    cell_real(t, r->decode_range.low, 1, 3);
    cell_real(t, r->decode_range.high, 1, 3);
    cell_count(t, (long long)r->long_ms.n);
    cell_real(t, r->per_call_s, 3, 6);
    cell_text(t, r->setting);
}

/* One table a model, so that each has its own notes. */
void make_summary(struct doc *d, const struct view *v)
{
    size_t n_levels;
    long long *level = levels_of(v->rs, &n_levels);

    for (size_t from = 0, to; from < v->rs->n; from = to) {
        struct table *t = doc_table(d, "summary", v->rs->item[from].model);
        summary_columns(t, v, level, n_levels);
        to = model_end(v->rs, from);
        for (size_t i = from; i < to; i++)
            summary_row(t, v, &v->rs->item[i], level, n_levels);
        table_note(t, "%s", DECODE_FORMULA);
        table_note(t, "%s", ERROR_FORMULA);
        measured_notes(t, v->rs, from, to);
    }
    free(level);
}

void make_bytes(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "bytes", "Where the bytes are");
    bool planned = false;
    char key[40];

    name_columns(t);
    for (size_t c = 0; c < N_CLASSES; c++) {
        snprintf(key, sizeof key, "bytes_%s", CLASSES[c].key);
        table_column(t, key, COL_OPTIONAL, "%s", CLASSES[c].title);
    }
    table_column(t, "tensor_bytes", 0, "all tensors");
    table_column(t, "weights_gib", 0, "GiB in the engine");
    table_column(t, "saved_gib", COL_OPTIONAL, "GiB less than %s", v->baseline);
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *base = find_build(v->rs, r, v->baseline);
        if (!r->has_classes && !isfinite(r->weights_gib))
            continue;
        name_cells(t, v->rs, r);
        for (size_t c = 0; c < N_CLASSES; c++)
            cell_count(t, r->has_classes ? r->class_bytes[c] : -1);
        cell_count(t, result_tensor_bytes(r));
        cell_real(t, r->weights_gib, 2, 3);
        cell_real(t, base && base != r ? base->weights_gib - r->weights_gib : NAN, 2, 3);
        decode_cell(t, r);
        planned |= r->classes_planned;
    }
    table_note(t, "Tensor bytes by class, as st-extract names them; the engine's figure is what its log says it loaded, GiB = 2^30 bytes.");
    if (planned)
        table_note(t, "Where the study stored no tensor list, the bytes by class are those that the same recipe plans for the same configuration.");
}

/* One table a model: which answers are the same, every build against every other. */
void make_identity(struct doc *d, const struct view *v)
{
    for (size_t from = 0, to; from < v->rs->n; from = to) {
        to = model_end(v->rs, from);
        if (to - from < 2)
            continue;
        char *title = xasprintf("Identical answers, %s", v->rs->item[from].model);
        struct table *t = doc_table(d, "identity", title);
        free(title);
        name_columns(t);
        t->col[0].flags = COL_TEXT | COL_DATA;
        for (size_t k = from; k < to; k++) {
            const struct result *o = &v->rs->item[k];
            char key[120];
            snprintf(key, sizeof key, "as_%.40s_%.40s", o->build, o->target);
            char *name = row_name(v->rs, o);
            table_column(t, key, 0, "%s", name);
            free(name);
        }
        for (size_t i = from; i < to; i++) {
            name_cells(t, v->rs, &v->rs->item[i]);
            for (size_t k = from; k < to; k++)
                if (k == i)
                    cell_as(t, NULL, "-");
                else
                    cell_of(t, compare_answers(&v->rs->item[i], &v->rs->item[k]), v->rs->item[i].n_answers);
        }
        table_note(t, "Questions answered with the same text, white space at both ends aside.");
    }
}

/* What a build's name says of its linears and its embeddings. */
static const struct { const char *linears, *sixteen, *four; } MATRIX[] = {{"int4", "text", "emb4"}, {"fp8", "fp8", "fp8emb4"}, {"int8", "int8", "int8emb4"}};
enum { N_MATRIX = sizeof MATRIX / sizeof *MATRIX };

static double rate_of(const struct result *r) { return r ? r->decode : NAN; }

/* a over b, where they were measured alike. */
static double alike_ratio(const struct result *a, const struct result *b)
{
    return a && b && !strcmp(a->setting, b->setting) ? a->decode / b->decode : NAN;
}

static void matrix_rows(struct table *t, const struct view *v, const struct result *like)
{
    const struct result *text = find_build(v->rs, like, "text"), *emb4 = find_build(v->rs, like, "emb4");

    for (size_t m = 0; m < N_MATRIX; m++) {
        const struct result *a = find_build(v->rs, like, MATRIX[m].sixteen), *b = find_build(v->rs, like, MATRIX[m].four);
        if (!a && !b)
            continue;
        cell_text(t, like->model);
        cell_text(t, MATRIX[m].linears);
        cell_text(t, like->target);
        cell_real(t, rate_of(a), 1, 3);
        cell_real(t, rate_of(b), 1, 3);
        cell_real(t, (alike_ratio(b, a) - 1) * 100, 0, 2);
        cell_real(t, m ? alike_ratio(text, a) : NAN, 2, 4);
        cell_real(t, m ? alike_ratio(emb4, b) : NAN, 2, 4);
    }
}

static bool first_of_target(const struct results *rs, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(rs->item[k].model, rs->item[i].model) && !strcmp(rs->item[k].target, rs->item[i].target))
            return false;
    return true;
}

void make_decode(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "decode", "Decode, linears x embeddings (tok/s, one stream)");

    table_column(t, "model", COL_TEXT | COL_MODEL, "model");
    table_column(t, "linears", COL_TEXT, "linears");
    table_column(t, "target", COL_TEXT, "target");
    table_column(t, "embeddings_16bit", 0, "16-bit embeddings");
    table_column(t, "embeddings_4bit", 0, "4-bit embeddings");
    table_column(t, "gain_percent", 0, "gain, %s", "%");
    table_column(t, "int4_over_16bit", COL_OPTIONAL, "int4 over this, 16-bit embeddings");
    table_column(t, "int4_over_4bit", COL_OPTIONAL, "int4 over this, 4-bit embeddings");
    for (size_t i = 0; i < v->rs->n; i++)
        if (first_of_target(v->rs, i))
            matrix_rows(t, v, &v->rs->item[i]);
    table_note(t, "Builds: text and emb4, fp8 and fp8emb4, int8 and int8emb4. Ratios are of unrounded rates and only of rows measured alike.");
}

void make_sizes(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "sizes", "Sizes: text against 4-bit embeddings");

    table_column(t, "model", COL_TEXT, "model");
    table_column(t, "target", COL_TEXT, "target");
    table_column(t, "text", 0, "text tok/s");
    table_column(t, "emb4", 0, "emb4 tok/s");
    ratio_columns(t, "text");
    table_column(t, "identical_to_text", 0, "answers as text");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *text = find_build(v->rs, r, "text"), *emb4 = find_build(v->rs, r, "emb4");
        if (!first_of_target(v->rs, i) || !text || !emb4)
            continue;
        cell_text(t, r->model);
        cell_text(t, r->target);
        cell_real(t, text->decode, 1, 3);
        cell_real(t, emb4->decode, 1, 3);
        ratio_cells(t, emb4, compare_base(v->rs, emb4, "text"));
        cell_of(t, compare_answers(text, emb4), emb4->n_answers);
        if (strcmp(text->setting, emb4->setting))
            table_note(t, "%s on %s: text and emb4 were measured in different ways (%s; %s): no ratio.", r->model, r->target, text->setting, emb4->setting);
        else if (strcmp(text->setting, v->rs->item[0].setting))
            table_note(t, "%s: %s.", r->model, text->setting);
    }
    if (table_rows(t)) {
        table_note(t, "Where no other is named, a row was measured like this: %s.", v->rs->item[0].setting);
        table_note(t, "%s", ERROR_FORMULA);
    }
}

void make_8bit(struct doc *d, const struct view *v)
{
    static const char *const builds[] = {"fp8", "int8", "fp8emb4", "int8emb4"};
    struct table *t = doc_table(d, "8bit", "8-bit against 4-bit linears");

    name_columns(t);
    table_column(t, "decode_tok_s", 0, "decode tok/s");
    table_column(t, "against", COL_TEXT, "against");
    ratio_columns(t, "4-bit");
    table_column(t, "int8_over_fp8_percent", COL_OPTIONAL, "int8 over fp8, %s", "%");
    for (size_t i = 0; i < v->rs->n; i++)
        for (size_t k = 0; k < 4; k++) {
            const struct result *r = &v->rs->item[i], *fp8 = find_build(v->rs, r, k < 2 ? "fp8" : "fp8emb4");
            if (strcmp(r->build, builds[k]))
                continue;
            name_cells(t, v->rs, r);
            decode_cell(t, r);
            cell_text(t, k < 2 ? "text" : "emb4");
            ratio_cells(t, r, compare_base(v->rs, r, k < 2 ? "text" : "emb4"));
            cell_real(t, k % 2 ? (alike_ratio(r, fp8) - 1) * 100 : NAN, 1, 2);
        }
}

void make_right(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "right", "Right answers");

    name_columns(t);
    table_column(t, "right", 0, "right");
    table_column(t, "questions", 0, "of");
    table_column(t, "identical", 0, "answers as %s", v->baseline);
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *base = find_build(v->rs, r, v->baseline);
        name_cells(t, v->rs, r);
        cell_count(t, r->right);
        cell_count(t, r->n_answers ? (long long)r->n_answers : -1);
        cell_of(t, base ? compare_answers(base, r) : -1, r->n_answers);
    }
}

static void answer_cell(struct table *t, const struct answer *a)
{
    if (a->text)
        cell_text(t, a->text);
    else
        cell_as(t, a->sha256, "not stored; sha256 %.12s", a->sha256);
}

static void differing_rows(struct table *t, const struct results *rs, const struct result *r, const struct result *base)
{
    static const char *const words[] = {"wrong", "right"};

    for (size_t k = 0; k < r->n_answers; k++) {
        const struct answer *a = &r->answer[k], *b = result_answer(base, a->id);
        if (!b || !a->sha256[0] || !b->sha256[0] || !strcmp(a->sha256, b->sha256))
            continue;
        name_cells(t, rs, r);
        cell_text(t, a->id);
        cell_text(t, b->right < 0 ? NULL : words[b->right]);
        cell_text(t, a->right < 0 ? NULL : words[a->right]);
        answer_cell(t, b);
        answer_cell(t, a);
    }
}

void make_differing(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "differing", "Questions answered otherwise");

    name_columns(t);
    table_column(t, "question", COL_TEXT, "question");
    table_column(t, "right_base", COL_TEXT, "%s is", v->baseline);
    table_column(t, "right_build", COL_TEXT, "the build is");
    table_column(t, "answer_base", COL_TEXT, "answer of %s", v->baseline);
    table_column(t, "answer_build", COL_TEXT, "answer of the build");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *base = find_build(v->rs, r, v->baseline);
        if (base && base != r)
            differing_rows(t, v->rs, r, base);
    }
}

void make_kv(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "kv", "Room for K/V");

    name_columns(t);
    table_column(t, "kv_tokens", 0, "K/V tokens");
    table_column(t, "kv_ratio", 0, "to %s", v->baseline);
    table_column(t, "max_concurrency", 0, "full sequences at once");
    table_column(t, "max_model_len", 0, "tokens a sequence");
    table_column(t, "weights_gib", 0, "weights GiB");
    table_column(t, "peak_activation_gib", COL_OPTIONAL, "peak activation GiB");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i], *base = compare_base(v->rs, r, v->baseline);
        if (r->kv_tokens < 0)
            continue;
        name_cells(t, v->rs, r);
        cell_count(t, r->kv_tokens);
        cell_real(t, base && base->kv_tokens > 0 ? (double)r->kv_tokens / (double)base->kv_tokens : NAN, 2, 4);
        cell_real(t, r->max_concurrency, 2, 2);
        cell_count(t, r->max_model_len);
        cell_real(t, r->weights_gib, 2, 3);
        cell_real(t, r->peak_activation_gib, 2, 2);
    }
    table_note(t, "What the engine's log says. A text-only build that leaves less room than its full twin lost it to peak activation memory.");
}

void make_twin(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "twin", "The stored twin of the embedding");

    table_column(t, "model", COL_TEXT, "model");
    table_column(t, "decode_with", 0, "tok/s with it (google-w4a16-ct)");
    table_column(t, "decode_without", 0, "tok/s without (full)");
    table_column(t, "weights_with", 0, "GiB with it");
    table_column(t, "weights_without", 0, "GiB without");
    table_column(t, "saving_gib", 0, "GiB saved");
    table_column(t, "lm_head_bytes", 0, "bytes of lm_head");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *google = &v->rs->item[i], *full = find_build(v->rs, google, "full");
        if (strcmp(google->build, "google-w4a16-ct") || !full)
            continue;
        cell_text(t, google->model);
        cell_real(t, google->decode, 1, 3);
        cell_real(t, full->decode, 1, 3);
        cell_real(t, google->weights_gib, 2, 3);
        cell_real(t, full->weights_gib, 2, 3);
        cell_real(t, google->weights_gib - full->weights_gib, 2, 3);
        cell_count(t, google->has_classes ? google->class_bytes[CLASS_HEAD] : -1);
    }
}

void make_walls(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "walls", "Wall times of single replies (s)");
    const char *const names[] = {"short", "long"};
    char key[40];

    name_columns(t);
    for (int k = 0; k < 2; k++) {
        snprintf(key, sizeof key, "%s_tokens", names[k]);
        table_column(t, key, 0, "tokens");
        snprintf(key, sizeof key, "%s_min", names[k]);
        table_column(t, key, 0, "least");
        snprintf(key, sizeof key, "%s_median", names[k]);
        table_column(t, key, 0, "median");
        snprintf(key, sizeof key, "%s_max", names[k]);
        table_column(t, key, 0, "most");
    }
    table_column(t, "n", 0, "n");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        if (r->long_ms.n == 0)
            continue;
        name_cells(t, v->rs, r);
        for (int k = 0; k < 2; k++) {
            const struct sample *s = k ? &r->long_ms : &r->short_ms;
            double least = INFINITY, most = -INFINITY;
            for (size_t j = 0; j < s->n; j++) {
                least = fmin(least, s->v[j]);
                most = fmax(most, s->v[j]);
            }
            cell_count(t, k ? r->long_tokens : r->short_tokens);
            cell_real(t, least / 1000, 3, 6);
            cell_real(t, sample_median(s) / 1000, 3, 6);
            cell_real(t, most / 1000, 3, 6);
        }
        cell_count(t, (long long)r->long_ms.n);
    }
}

static long long regrid_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

void make_exactness(struct doc *d, const struct view *v)
{
    struct table *t = doc_table(d, "exactness", "Exactness of the recovered weights");

    name_columns(t);
    table_column(t, "scale_dtype", COL_TEXT, "scales");
    table_column(t, "tensors", 0, "tensors");
    table_column(t, "values", 0, "values");
    table_column(t, "exact_values", 0, "exact values");
    table_column(t, "exact_share", 0, "exact, %s", "%");
    table_column(t, "groups", 0, "groups of 32");
    table_column(t, "exact_groups", 0, "exact groups");
    table_column(t, "worst_error", 0, "worst error");
    table_column(t, "off_grid", 0, "off the grid");
    table_column(t, "left", 0, "left in 16 bits");
    for (size_t i = 0; i < v->rs->n; i++) {
        const struct result *r = &v->rs->item[i];
        const json_t *exact = json_object_get(r->regrid, "exact"), *worst = json_object_get(exact, "worst_error");
        const long long values = regrid_number(r->regrid, "values"), same = regrid_number(exact, "values");
        if (!r->regrid)
            continue;
        name_cells(t, v->rs, r);
        cell_text(t, json_string_value(json_object_get(r->regrid, "scale_dtype")));
        cell_count(t, regrid_number(r->regrid, "tensors"));
        cell_count(t, values);
        cell_count(t, same);
        cell_real(t, values > 0 && same >= 0 ? 100 * (double)same / (double)values : NAN, 2, 4);
        cell_count(t, regrid_number(r->regrid, "groups"));
        cell_count(t, regrid_number(exact, "groups"));
        cell_real(t, json_is_number(worst) ? json_number_value(worst) : NAN, 4, 6);
        cell_count(t, regrid_number(r->regrid, "off_grid"));
        cell_count(t, regrid_number(r->regrid, "left"));
    }
    table_note(t, "From the report of q4-regrid. Exact: level x scale, rounded to bf16, is the source's value bit for bit; the worst error is relative to the largest value of its group.");
}
