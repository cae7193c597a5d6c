/* The client's side of OpenAI's API: which request a line becomes, what an answer yields. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "net/openai.h"

static void becomes(const char *line, bool stream, const char *url, const char *body)
{
    struct openai_request q;
    struct err e = {0};
    json_t *v = json_parse(line, strlen(line), "x", &e);
    assert(v && !openai_request(&q, v, "http://h", "m", stream, &e));
    if (strcmp(q.url, url) || strcmp(q.body, body)) {
        printf("%s: expected %s %s, got %s %s\n", line, url, body, q.url, q.body);
        exit(1);
    }
    assert(q.body_n == strlen(q.body));
    openai_request_free(&q);
    json_decref(v);
}

static void refused(const char *line, const char *because)
{
    struct openai_request q;
    struct err e = {0};
    json_t *v = json_parse(line, strlen(line), "x", &e);
    assert(v && openai_request(&q, v, "http://h", NULL, false, &e) == -1 && e.code == EXIT_DATA && strstr(e.msg, because));
    json_decref(v);
}

static void lines_become_requests(void)
{
    becomes("{\"id\":1,\"prompt\":\"a\"}", false, "http://h/v1/completions", "{\"prompt\":\"a\",\"model\":\"m\"}");
    becomes("{\"id\":1,\"messages\":[],\"model\":\"k\"}", false, "http://h/v1/chat/completions", "{\"messages\":[],\"model\":\"k\"}");
    becomes("{\"prompt\":\"a\",\"model\":\"k\"}", true, "http://h/v1/completions",
        "{\"prompt\":\"a\",\"model\":\"k\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    becomes("{\"prompt\":\"a\",\"model\":\"k\",\"stream\":true,\"stream_options\":{\"x\":1}}", false, "http://h/v1/completions",
        "{\"prompt\":\"a\",\"model\":\"k\",\"stream\":true,\"stream_options\":{\"x\":1,\"include_usage\":true}}");
    becomes("{\"prompt\":\"a\\u0000b\",\"model\":\"k\"}", false, "http://h/v1/completions", "{\"prompt\":\"a\\u0000b\",\"model\":\"k\"}");
    refused("{\"id\":1}", "found none");
    refused("{\"messages\":[],\"prompt_ids\":[1]}", "found several");
    refused("[]", "no JSON object");
    puts("lines become requests");
}

static void streams_are_read(void)
{
    static const char text[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"hm\"}}]}\n\n"
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\u0000\"},\"finish_reason\":\"stop\"}]}\n\n"
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
    for (size_t step = 1; step < sizeof text; step += 7) {
        struct openai_answer a;
        struct err e = {0};
        openai_answer_init(&a);
        for (size_t i = 0; i < sizeof text - 1; i += step) {
            size_t n = sizeof text - 1 - i;
            assert(!openai_answer_piece(&a, text + i, n < step ? n : step, (double)i, &e));
        }
        assert(a.ended && a.chunks == 2 && a.chunk[0] < a.chunk[1] + 1 && a.choices == 1 && a.text[0].n == 2 && !memcmp(a.text[0].data, "a\0", 2));
        assert(a.prompt_tokens == 3 && a.completion_tokens == 9 && !strcmp(a.finish_reason, "stop"));
        openai_answer_free(&a);
    }
    puts("streams: a role is no token, reasoning is one, counts come from usage");
}

static void faults(const char *body, int code, const char *because)
{
    struct openai_answer a;
    struct err e = {0};
    openai_answer_init(&a);
    assert(openai_answer_whole(&a, body, strlen(body), &e) == -1 && e.code == code && strstr(e.msg, because));
    openai_answer_free(&a);
}

static void refusals_are_explained(void)
{
    char out[64];
    const struct { const char *body, *says; } cases[] = {{"{\"error\":{\"message\":\"no\"}}", "no"}, {"{\"error\":\"plain\"}", "plain"}, {"{\"message\":\"m\"}", "m"},
        {"{\"object\":\"error\",\"message\":\"old\"}", "old"}, {"<html>", "<html>"}, {"", "no explanation"}, {"[1]", "[1]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_refusal(cases[i].body, strlen(cases[i].body), out, sizeof out);
        assert(!strcmp(out, cases[i].says));
    }
    faults("{\"error\":{\"message\":\"bad\"}}", EXIT_UNAVAILABLE, "bad");
    faults("{}", EXIT_DATA, "no choices");
    faults("{\"choices\":[{\"index\":-1}]}", EXIT_DATA, "index -1");
    faults("{\"choices\":[{\"index\":99999}]}", EXIT_DATA, "index 99999");
    faults("nonsense", EXIT_DATA, "not JSON");
    puts("refusals and nonsense are explained");
}

int main(void)
{
    lines_become_requests();
    streams_are_read();
    refusals_are_explained();
    return 0;
}
