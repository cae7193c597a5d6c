/* UTF-8 and the JSON scanner: what is accepted and what is refused, and where. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/jsonscan.h"
#include "base/utf8.h"

static void utf8_is_strict(void)
{
    static const struct { const char *text; size_t n, good; } t[] = {
        {"", 0, 0}, {"abc", 3, 3}, {"a\0b", 3, 3}, {"\xC3\xA9", 2, 2}, {"\xE2\x96\x81", 3, 3}, {"\xF0\x9F\x98\x80", 4, 4}, {"\xF4\x8F\xBF\xBF", 4, 4},
        {"a\x80", 2, 1}, {"\xC0\x80", 2, 0}, {"\xC1\xBF", 2, 0}, {"\xE0\x9F\xBF", 3, 0}, {"\xED\xA0\x80", 3, 0}, {"\xED\x9F\xBF", 3, 3},
        {"\xF0\x8F\xBF\xBF", 4, 0}, {"\xF4\x90\x80\x80", 4, 0}, {"\xF5\x80\x80\x80", 4, 0}, {"ab\xE2\x96", 4, 2}, {"\xE2\x28\xA1", 3, 0}, {"\xFF", 1, 0}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert(utf8_check(t[i].text, t[i].n) == t[i].good);
    for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 0x101) {
        struct buf b = BUF_INIT;
        uint32_t back = 0;
        if (c >= 0xD800 && c < 0xE000)
            continue;
        utf8_add(&b, c);
        assert(utf8_decode(b.data, b.n, &back) == b.n && back == c);
        assert(utf8_decode(b.data, b.n - 1, NULL) == 0);
        buf_free(&b);
    }
    puts("UTF-8: written characters are read back; overlong forms, surrogates and cut characters are refused");
}

static int skip_all(const char *text, size_t n, struct err *e)
{
    struct jscan s;
    jscan_init(&s, text, n, "t", e);
    int bad = jscan_skip(&s) || jscan_done(&s);
    jscan_free(&s);
    return bad;
}

static void grammar(void)
{
    static const char *const good[] = {"0", "-1", "1.5e+3", "\"\"", "\"\\u0041\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "[]", "{}", " [ 1 , 2 ] ", "{\"a\":{\"b\":[null,true,false]}}",
        "1e30", "1000000000000000000000000000000"};
    static const char *const bad[] = {"", " ", "01", "-", "1.", "1e", ".5", "+1", "nul", "tru", "\"", "\"\\", "\"\\u12\"", "\"\\ud83d\"", "\"\\ud83dx\"", "\"\\ud83d\\u0041\"", "\"\\ude00\"",
        "\"\\x\"", "\"\n\"", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{1:2}", "{\"a\" 1}", "[}", "{]", "1 1", "\"\xFF\"", "'a'", "\xEF\xBB\xBF{}"};
    struct err e = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert(skip_all(good[i], strlen(good[i]), &e) == 0 && e.code == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (struct err){0};
        assert(skip_all(bad[i], strlen(bad[i]), &e) != 0 && e.code == EXIT_DATA);
        assert(strncmp(e.msg, "t: byte ", 8) == 0);
    }
    static char deep[200000];
    memset(deep, '[', sizeof deep);
    e = (struct err){0};
    assert(skip_all(deep, sizeof deep, &e) != 0 && strstr(e.msg, "nested more than 64 deep"));
    puts("JSON: the grammar, the place of a fault, bounded nesting");
}

static void faults_are_named(void)
{
    static const struct { const char *text, *says; } t[] = {
        {"[1 2]", "expected a comma or ], but found byte 0x32"}, {"\"\\ud83d\"", "a high surrogate without its low one"}, {"\"\\ude00\"", "a low surrogate without its high one"},
        {"\"\n\"", "a control character in a string"}, {"\"\xFF\"", "a string that is invalid UTF-8"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct err e = {0};
        int bad = skip_all(t[i].text, strlen(t[i].text), &e);
        if (!bad || !strstr(e.msg, t[i].says)) fprintf(stderr, "%s: expected \"%s\", found \"%s\"\n", t[i].text, t[i].says, e.msg);
        assert(bad && strstr(e.msg, t[i].says));
    }
    struct err e = {0};
    struct jscan s;
    long v;
    jscan_init(&s, "1.5", 3, "t", &e);
    assert(jscan_int(&s, 0, 9, &v) && strstr(e.msg, "expected a whole number from 0 to 9"));
    jscan_free(&s);
    puts("JSON: each fault in its words");
}

static void values(void)
{
    static const char text[] = "{\"a\\u0000b\": [-7, true], \"\xC3\xA9\": \"x\\u0000y\", \"big\": 99999999999}";
    struct err e = {0};
    struct jscan s;
    const char *p;
    size_t n;
    long v;
    bool yes;
    jscan_init(&s, text, sizeof text - 1, "t", &e);
    assert(jscan_peek(&s) == '{' && jscan_open(&s, '{') == 0);
    assert(jscan_key(&s, &p, &n) == 1 && n == 3 && memcmp(p, "a\0b", 3) == 0);
    assert(jscan_open(&s, '[') == 0 && jscan_item(&s) == 1 && jscan_int(&s, -10, 10, &v) == 0 && v == -7);
    assert(jscan_item(&s) == 1 && jscan_bool(&s, &yes) == 0 && yes && jscan_item(&s) == 0);
    assert(jscan_key(&s, &p, &n) == 1 && n == 2 && memcmp(p, "\xC3\xA9", 2) == 0);
    assert(jscan_string(&s, &p, &n) == 0 && n == 3 && memcmp(p, "x\0y", 3) == 0);
    assert(jscan_key(&s, &p, &n) == 1 && jscan_int(&s, 0, 1000, &v) == -1);
    assert(e.code == EXIT_DATA && strstr(e.msg, "99999999999 is not from 0 to 1000"));
    assert(jscan_key(&s, &p, &n) == -1);
    jscan_free(&s);
    puts("JSON: keys, strings with U+0000, bounded numbers; after a fault everything fails");
}

int main(void)
{
    prog_init("jsonscan");
    utf8_is_strict();
    grammar();
    faults_are_named();
    values();
    return 0;
}
