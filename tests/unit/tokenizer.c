/* The tokenizer against what Hugging Face tokenizers computes (tests/golden/tokenizer, made by tests/peers/tokenizer_golden.py), and broken files. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/json.h"
#include "engine/tokenizer.h"
#include "engine/vocab.h"

static struct err e;

static char *golden_path(const char *name, const char *file)
{
    return xasprintf("%s/tests/golden/tokenizer/%s/%s", getenv("Q4ROOT") ? getenv("Q4ROOT") : ".", name, file);
}

static char *golden_text(const char *name, size_t *n)
{
    char *path = golden_path(name, "tokenizer.json"), *text;
    if (io_slurp(path, 1 << 20, &text, n, &e) != 0)
        die(&e);
    free(path);
    return text;
}

static struct tokenizer *golden_tokenizer(const char *name)
{
    char *dir = golden_path(name, "");
    struct tokenizer *t = tokenizer_open(dir, &e);
    if (t == NULL)
        die(&e);
    free(dir);
    return t;
}

static bool same_ids(const struct ids *l, const json_t *want)
{
    bool same = l->n == json_array_size(want);
    for (size_t i = 0; same && i < l->n; i++)
        same = l->id[i] == json_integer_value(json_array_get(want, i));
    return same;
}

/* Each line of a golden file to fn; returns their number. */
static int each_line(const char *name, const char *file, struct tokenizer *t, void (*fn)(struct tokenizer *, const json_t *))
{
    char *path = golden_path(name, file);
    struct jsonl *j = jsonl_open(path, &e);
    json_t *line;
    long number;
    int lines = 0;
    if (j == NULL)
        die(&e);
    for (; jsonl_next(j, &line, &number, &e) == 1; lines++) {
        fn(t, line);
        json_decref(line);
    }
    assert(e.code == 0);
    jsonl_close(j);
    free(path);
    return lines;
}

static void check_encode(struct tokenizer *t, const json_t *line)
{
    const json_t *text = json_object_get(line, "text");
    bool splits = t->splits;
    for (int cut = 0; cut < 2; cut++) {         /* cutting a text where nothing can merge changes nothing */
        struct ids l = IDS_INIT;
        t->splits = cut && splits;
        assert(tokenizer_encode(t, json_string_value(text), json_string_length(text), &l, &e) == 0);
        assert(same_ids(&l, json_object_get(line, "token_ids")));
        ids_free(&l);
    }
    t->splits = splits;
}

static void check_decode(struct tokenizer *t, const json_t *line)
{
    const json_t *list = json_object_get(line, "token_ids"), *want = json_object_get(line, "text");
    struct buf out = BUF_INIT;
    struct detok d;
    detok_init(&d, t, false);
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t before = out.n;
        assert(detok_feed(&d, (int)json_integer_value(json_array_get(list, i)), &out, &e) == 0);
        json_t *valid = json_stringn(out.data ? out.data + before : "", out.n - before);
        assert(valid);                          /* jansson takes nothing but complete UTF-8 */
        json_decref(valid);
    }
    detok_end(&d, &out);
    assert(out.n == json_string_length(want) && (out.n == 0 || memcmp(out.data, json_string_value(want), out.n) == 0));
    detok_free(&d);
    buf_free(&out);
}

static void golden(void)
{
    static const char *const names[] = {"gemma", "variant", "unknown"};
    for (int i = 0; i < 3; i++) {
        struct tokenizer *t = golden_tokenizer(names[i]);
        int encoded = each_line(names[i], "lines.jsonl", t, check_encode), decoded = each_line(names[i], "decode.jsonl", t, check_decode);
        assert(encoded == 304 && decoded == 150);
        assert(t->splits == (i == 0));          /* a merge of byte pieces, and unknown characters that fuse, forbid cutting */
        tokenizer_free(t);
        printf("%s: %d texts and %d lists of ids as the peer has them\n", names[i], encoded, decoded);
    }
}

static void pieces_and_specials(void)
{
    struct tokenizer *t = golden_tokenizer("gemma"), *v = golden_tokenizer("variant");
    int turn = tokenizer_id(t, "<start_of_turn>");
    assert(tokenizer_bos(t) == 2 && tokenizer_id(t, "<bos>") == 2 && tokenizer_bos(v) == -1);
    assert(turn > 0 && tokenizer_special(t, turn) && !tokenizer_special(t, tokenizer_id(t, "<unused0>")) && !tokenizer_special(t, -1));
    assert(tokenizer_id(t, "<image_soft_token>") == tokenizer_size(t) - 1);
    assert(tokenizer_id(t, "no such piece") == -1 && !tokenizer_special(t, 1 << 30));

    struct buf out = BUF_INIT;
    int ids[] = {2, turn, tokenizer_id(t, "<0xF0>"), tokenizer_id(t, "<0x9F>"), turn, tokenizer_id(t, "<0x98>"), tokenizer_id(t, "<0x80>"), tokenizer_id(t, "a")};
    assert(tokenizer_decode(t, ids, 8, true, &out, &e) == 0 && strcmp(out.data, "\xF0\x9F\x98\x80" "a") == 0);
    out.n = 0;
    struct detok d;
    detok_init(&d, t, true);
    for (int i = 2; i < 7; i++)
        assert(detok_feed(&d, ids[i], &out, &e) == 0 && out.n == 0);     /* a split character waits */
    assert(detok_feed(&d, ids[7], &out, &e) == 0 && out.n == 5);
    assert(detok_feed(&d, ids[2], &out, &e) == 0 && out.n == 5);
    detok_end(&d, &out);                                                 /* and becomes U+FFFD when its bytes never come */
    assert(out.n == 8 && memcmp(out.data + 5, "\xEF\xBF\xBD", 3) == 0);
    assert(detok_feed(&d, tokenizer_size(t), &out, &e) == -1 && e.code == EXIT_DATA && strstr(e.msg, "not in the vocabulary"));
    e = (struct err){0};
    assert(detok_feed(&d, -5, &out, &e) == -1);
    e = (struct err){0};
    detok_free(&d);
    buf_free(&out);
    tokenizer_free(t);
    tokenizer_free(v);
    puts("special tokens, bos, ids past the vocabulary, a character split over tokens");
}

static void invalid_text(void)
{
    struct tokenizer *t = golden_tokenizer("gemma");
    struct ids l = IDS_INIT;
    ids_add(&l, 7);
    assert(tokenizer_encode(t, "abc\xE2\x96", 5, &l, &e) == -1 && e.code == EXIT_DATA && strstr(e.msg, "byte 3 of the text: invalid UTF-8"));
    assert(l.n == 1);
    e = (struct err){0};
    assert(tokenizer_encode(t, "", 0, &l, &e) == 0 && l.n == 1);
    assert(tokenizer_encode(t, "\0", 1, &l, &e) == 0 && l.n == 2 && l.id[1] == tokenizer_id(t, "<0x00>"));
    ids_free(&l);
    tokenizer_free(t);
    puts("invalid UTF-8 is refused with its offset, U+0000 is a byte like any other");
}

static void long_texts(void)
{
    struct tokenizer *t = golden_tokenizer("gemma");
    static const char *const unit[] = {"a", " ", "\n", "the ", "\xF0\xA0\xAE\xB7", "<unused", "a\xE2\x96\x81"};
    for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
        struct buf text = BUF_INIT, back = BUF_INIT;
        struct ids l = IDS_INIT;
        while (text.n < 200000)
            buf_str(&text, unit[u]);
        assert(tokenizer_encode(t, text.data, text.n, &l, &e) == 0);
        assert(tokenizer_decode(t, l.id, l.n, false, &back, &e) == 0);
        assert(u == 6 || (back.n == text.n && memcmp(back.data, text.data, text.n) == 0));   /* U+2581 comes back as a space */
        ids_free(&l);
        buf_free(&text);
        buf_free(&back);
    }
    tokenizer_free(t);
    puts("200 kB of one thing go through, and come back");
}

/* --- broken files -------------------------------------------------------------------------------------------------------- */

static void refused(const char *text, size_t n, const char *because)
{
    e = (struct err){0};
    struct tokenizer *t = tokenizer_parse(text, n, "tokenizer.json", &e);
    if (t != NULL || e.code != EXIT_DATA || !strstr(e.msg, because)) {
        fprintf(stderr, "expected a refusal with \"%s\", got: %s\n", because, t ? "a tokenizer" : e.msg);
        abort();
    }
    e = (struct err){0};
}

static void truncated(void)
{
    size_t n;
    char *text = golden_text("gemma", &n);
    for (size_t cut = 0; cut + 1 < n; cut += cut < 3000 || cut > n - 300 ? 1 : 97) {
        char *part = xmalloc(cut + 1);          /* exactly as long: a sanitizer sees a read past its end */
        memcpy(part, text, cut);
        refused(part, cut, "tokenizer.json: ");
        free(part);
    }
    free(text);
    puts("a file cut anywhere is refused");
}

static void hostile(void)
{
    static const struct { const char *from, *to, *because; } t[] = {
        {"\"version\": \"1.0\"", "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}", "a second model"},
        {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "type is not BPE"},
        {"\"dropout\": null", "\"dropout\": 0.1", "the model option dropout is not supported here"},
        {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix is not supported here"},
        {"\"ignore_merges\": false", "\"ignore_merges\": true", "ignore_merges is not supported here"},
        {"\"byte_fallback\": true", "\"byte_fallback\": 1", "expected true or false"},
        {"\"unk_token\": \"<unk>\"", "\"unk_token\": \"<no>\"", ""},
        {"\"<0x41>\": ", "\"<0x4x>\": ", "model: byte_fallback is set, but piece <0x41> is missing"},
        {"\"<pad>\": 0", "\"<pad>\": 1", "the piece or the id stands in the vocab twice"},
        {"\"<eos>\": 1", "\"<pad>\": 1", "twice"},
        {"\"<pad>\": 0", "\"<pad>\": -1", "not from 0"},
        {"\"<pad>\": 0", "\"<pad>\": 99999999999999999999", "whole number"},
        {"\"<pad>\": 0", "\"<pad>\": 4194304", "not from 0"},
        {"\"<pad>\": 0", "\"<pad>\": 0.5", "whole number"},
        {"\"<pad>\": 0", "\"<pad>\": \"0\"", "whole number"},
        {"\"<pad>\": 0", "\"<pad>\": 0, \"\": 9999", "an empty piece with id 9999"},
        {"\"<pad>\": 0", "\"<pad>\\ud800\": 0", "surrogate"},
        {"\"merges\": [", "\"merges\": [[\"a\", \"zzz\"],", "is not in the vocab"},
        {"\"merges\": [", "\"merges\": [[\"z\", \"<pad>\"],", "the result is not in the vocab"},
        {"\"merges\": [", "\"merges\": [[\"a\"],", "merge 0: expected a pair of pieces"},
        {"\"merges\": [", "\"merges\": [[\"a\", \"b\", \"c\"],", "pair of pieces"},
        {"\"merges\": [", "\"merges\": [\"ab\",", "expected two pieces with one space between"},
        {"\"merges\": [", "\"merges\": [7,", "expected an array"},
        {"\"merges\": [", "\"merges\": [], \"merges\": [", "second list of merges"},
        {"\"merges\": [", "\"other\": [", "lacks its vocab or its merges"},
        {"\"vocab\": {", "\"vocab\": {}, \"vocab\": {", "a second vocab"},
        {"\"model\": {", "\"module\": {", "no model: this is no tokenizer.json"},
        {"\"model\": {", "\"model\": {}, \"model\": {", "the model lacks its vocab"},
        {"\"added_tokens\": [", "\"added_tokens\": [{\"id\": 0, \"content\": \"<pad>\"}], \"added_tokens\": [", "a second list of added_tokens"},
        {"\"content\": \"\xE2\x96\x81\"\n", "\"content\": \"_\"\n", "normalizer: expected Replace of"},
        {"\"type\": \"Split\"", "\"type\": \"ByteLevel\"", "pre_tokenizer: expected Split at"},
        {"\"type\": \"ByteFallback\"", "\"type\": \"ByteLevel\"", "decoder: expected Replace of U+2581"},
        {"\"lstrip\": false", "\"lstrip\": true", "lstrip, rstrip and single_word are not supported"},
        {"\"id\": 0,", "\"id\": 3,", "contradicts the vocab"},
        {"\"id\": 0,", "\"id\": 5000000,", "not from 0"},
        {"\"id\": 0,", "\"id\": null,", "whole number"},
        {"\"id\": 0,", "", "needs an id"},
        {"\"content\": \"<pad>\"", "\"content\": \"\"", "content of 1 to"},
        {"\"content\": \"<pad>\"", "\"content\": \"a\\u0000\"", "content of 1 to"},
        {"\"added_tokens\": [", "\"added_tokens\": {", "expected an array"},
        {"\"version\": \"1.0\"", "\"version\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1", "nested"},
    };
    size_t n;
    char *text = golden_text("gemma", &n);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char *at = strstr(text, t[i].from);
        if (at == NULL)
            fprintf(stderr, "not in the file: %s\n", t[i].from);
        assert(at);
        char *changed = xasprintf("%.*s%s%s", (int)(at - text), text, t[i].to, at + strlen(t[i].from));
        if (*t[i].because) {
            refused(changed, strlen(changed), t[i].because);
        } else {
            struct tokenizer *fine = tokenizer_parse(changed, strlen(changed), "t", &e);
            assert(fine);                       /* with byte fallback nobody needs the unknown token */
            tokenizer_free(fine);
        }
        free(changed);
    }
    char *without = strstr(text, "\"unk_token\": \"<unk>\""), *fallback = strstr(text, "\"byte_fallback\": true");
    assert(without && fallback);
    memcpy(without + strlen("\"unk_token\": \"<"), "no>", 3);
    memcpy(fallback + strlen("\"byte_fallback\":"), "false", 5);
    refused(text, n, "model: neither byte_fallback nor an unk_token of the vocab: some text could not be encoded");
    free(text);
    refused("[]", 2, "expected an object");
    refused("{} x", 4, "expected the end");
    refused("{}", 2, "no model");
    puts("hostile files are refused with the reason");
}

static void absent(void)
{
    assert(tokenizer_open("/nonexistent", &e) == NULL && e.code == EXIT_NOINPUT);
    e = (struct err){0};
    puts("an absent file is another error than a broken one");
}

int main(void)
{
    prog_init("tokenizer");
    golden();
    pieces_and_specials();
    invalid_text();
    long_texts();
    truncated();
    hostile();
    absent();
    return 0;
}
