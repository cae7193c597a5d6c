/* The safetensors header: what parses, what is refused and with which words, and that rendering and parsing are inverse. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/header.h"

static void refused(const char *json, const char *because)
{
    struct err e = {0, ""};
    struct st_header *h = st_header_parse(json, strlen(json), "x", &e);
    if (h || e.code != EXIT_DATA || !strstr(e.msg, because)) {
        printf("%s: expected a refusal with '%s', got '%s' (%d)\n", json, because, e.msg, e.code);
        exit(1);
    }
    st_header_free(h);
}

static void faults_are_named(void)
{
    refused("", "does not begin");
    refused(" {}", "does not begin");
    refused("{", "not valid JSON");
    refused("[]", "does not begin");
    refused("{\"a\":1}", "a: expected an object of dtype, shape and data_offsets");
    refused("{\"a\":{\"dtype\":\"BF17\",\"shape\":[],\"data_offsets\":[0,2]}}", "BF17: unknown");
    refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,2]}}", "missing");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", "shape: not a list of non-negative integers");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,4]}}", "a: shape: not an array");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "non-negative integers");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "9 dimensions, at most 8 are supported");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,4]}}", "shape overflows 64 bits");
    refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", "F4 elements do not fill whole bytes");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "data_offsets span 4 bytes, dtype and shape need 8");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "not [begin, end]");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "not [begin, end]");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "begins at 1, expected 0: a hole in the data");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "an overlap in the data");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "duplicate");
    refused("{\"__metadata__\":{\"a\":1}}", "__metadata__: a: its value must be a string");
    refused("{\"__metadata__\":[]}", "not an object");
    puts("every fault is refused and named");
}

static void empty_and_scalar_tensors_pass(void)
{
    const char *json = "{\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]},\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[2,2]},"
                       "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}";
    struct err e = {0, ""};
    struct st_header *h = st_header_parse(json, strlen(json), "x", &e);
    assert(h && h->n == 3 && h->nbytes == 5);
    assert(strcmp(h->t[1].name, "z") == 0 && st_find(h, "s")->ndim == 0 && st_nelem(st_find(h, "z")) == 0);
    assert(!st_find(h, "q"));
    st_header_free(h);
    puts("scalars and empty tensors are kept");
}

static void render_and_parse_are_inverse(void)
{
    struct err e = {0, ""};
    struct st_header *h = st_header_new();
    uint64_t shape[2] = {3, 5};
    st_header_add(h, "b\"\\\n\xc3\xa9", ST_BF16, 2, shape);
    st_header_add(h, "a", ST_F32, 1, shape);
    st_meta_set(h, "zebra", "1");
    st_meta_set(h, "format", "pt");
    char *bytes, *again;
    size_t n, m;
    assert(st_header_render(h, &bytes, &n, &e) == 0 && n % 8 == 0);
    uint64_t len = 0;
    memcpy(&len, bytes, 8);
    assert(len == n - 8);
    struct st_header *back = st_header_parse(bytes + 8, n - 8, "x", &e);
    assert(back && back->n == 2 && strcmp(back->t[0].name, "b\"\\\n\xc3\xa9") == 0 && back->t[1].begin == 30);
    assert(st_header_render(back, &again, &m, &e) == 0 && m == n && memcmp(again, bytes, n) == 0);
    assert(strstr(bytes + 8, "\"format\"") < strstr(bytes + 8, "\"zebra\""));
    free(bytes);
    free(again);
    st_header_free(h);
    st_header_free(back);
    puts("rendering and parsing are inverse");
}

static void provenance_grows(void)
{
    struct err e = {0, ""};
    struct st_header *h = st_header_new(), *p = st_header_new();
    memcpy(p->sha256, "ab", 3);
    assert(st_provenance(h, "x", "one", json_pack("[s]", "--x"), NULL, &e) == 0);
    assert(st_provenance(h, "x", "two", json_array(), p, &e) == 0);
    assert(strstr(st_meta(h, "provenance"), "\"tool\":\"one\"") && strstr(st_meta(h, "provenance"), "\"parent\":\"ab\""));
    st_meta_set(h, "provenance", "{}");
    assert(st_provenance(h, "x", "three", json_array(), NULL, &e) == -1 && e.code == EXIT_DATA);
    st_header_free(h);
    st_header_free(p);
    puts("provenance grows by one stage a program");
}

int main(void)
{
    faults_are_named();
    empty_and_scalar_tensors_pass();
    render_and_parse_are_inverse();
    provenance_grows();
    return 0;
}
