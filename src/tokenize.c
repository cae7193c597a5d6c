/* tokenize: lines of text to lines of token ids with a model's tokenizer, back, or conversations to the prompts its chat template writes. */
#include <string.h>
#include "base/json.h"
#include "base/opt.h"
#include "engine/chat.h"
#include "engine/tokenizer.h"

/* What a line is turned into. */
struct job {
    bool decode, render;
    struct tokenizer *tokenizer;        /* not with --render */
    struct chat *chat;                  /* with --render */
};

/* {"text"} to {"token_ids"}. */
static int encode(const struct job *job, const json_t *line, json_t *out, struct err *e)
{
    const json_t *text = json_object_get(line, "text");
    struct ids ids = IDS_INIT;
    if (!json_is_string(text)) return err_set(e, EXIT_DATA, "text: expected a string");
    if (tokenizer_encode(job->tokenizer, json_string_value(text), json_string_length(text), &ids, e)) return -1;
    json_t *list = json_array();
    for (size_t i = 0; i < ids.n; i++) json_array_append_new(list, json_integer(ids.id[i]));
    ids_free(&ids);
    return json_object_set_new(out, "token_ids", list);
}

static int set_text(json_t *out, const char *key, struct buf *text)
{
    int bad = json_object_set_new(out, key, json_stringn(text->data ? text->data : "", text->n));
    buf_free(text);
    return bad;
}

/* {"token_ids"} to {"text"}. */
static int decode(const struct job *job, const json_t *line, json_t *out, struct err *e)
{
    const json_t *list = json_object_get(line, "token_ids"), *id;
    struct detok d;
    struct buf text = BUF_INIT;
    size_t i;
    int bad = json_is_array(list) ? 0 : err_set(e, EXIT_DATA, "token_ids: expected a list");
    detok_init(&d, job->tokenizer, false);
    json_array_foreach(list, i, id) {
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (bad) break;
        if (v < 0 || v >= tokenizer_size(job->tokenizer))
            bad = err_set(e, EXIT_DATA, "token_ids[%zu]: not a token id from 0 to %d", i, tokenizer_size(job->tokenizer) - 1);
        else
            bad = detok_feed(&d, (int)v, &text, e);
    }
    detok_end(&d, &text);
    detok_free(&d);
    if (!bad) return set_text(out, "text", &text);
    buf_free(&text);
    return bad;
}

/* {"messages", …} to {"rendered"}. */
static int render(const struct job *job, const json_t *line, json_t *out, struct err *e)
{
    struct buf text = BUF_INIT;
    if (chat_render(job->chat, line, &text, e) == 0) return set_text(out, "rendered", &text);
    buf_free(&text);
    return -1;
}

/* The answer to one line: its id, if it has one, and the result or the error. */
static json_t *answer(const struct job *job, const json_t *line, struct err *e)
{
    json_t *out = json_object(), *id = json_object_get(line, "id");
    if (id) json_object_set(out, "id", id);
    if (!json_is_object(line))
        err_set(e, EXIT_DATA, "the line is no object: expected {\"%s\": …}", job->render ? "messages" : job->decode ? "token_ids" : "text");
    else if ((job->render ? render : job->decode ? decode : encode)(job, line, out, e) == 0)
        return out;
    if (!id) json_object_set_new(out, "id", json_null());
    json_object_set_new(out, "error", json_message(e->msg));
    return out;
}

/* The answer to a line that is no JSON. */
static json_t *no_json(const struct jsonl *in, const struct err *e)
{
    json_t *id = jsonl_refused_id(in);
    return json_pack("{s:o, s:o}", "id", id ? id : json_null(), "error", json_message(e->msg));
}

static void open_model(struct job *job, const char *dir)
{
    struct err e = {0};
    struct gemma g;
    if (!job->render) {
        job->tokenizer = tokenizer_open(dir, &e);
        if (!job->tokenizer) die(&e);
        return;
    }
    char *path = xasprintf("%s/config.json", dir);
    json_t *config = json_parse_file(path, &e);
    if (config ? gemma_config_read(&g, config, path, &e) != 0 : e.code != EXIT_NOINPUT) die(&e);
    struct err why = {0};
    job->chat = chat_open(dir, config ? &g : NULL, &why);
    if (!job->chat) die(&why);
    json_decref(config);
    free(path);
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    const char *model = NULL;
    struct job job = {0};
    const struct opt opts[] = {
        {"model", 0, OPT_STR, &model, "DIR", "directory that holds tokenizer.json (with --render: config.json and the chat template)", 0, 0},
        {"decode", 0, OPT_FLAG, &job.decode, NULL, "token ids to text", 0, 0},
        {"render", 0, OPT_FLAG, &job.render, NULL, "conversations to prompts", 0, 0},
        {0}};
    const struct opt_spec spec = {
        .usage = "--model DIR [--decode | --render] < lines.jsonl > answers.jsonl",
        .about = "Turn each line {\"text\"} into {\"token_ids\"}, with --decode {\"token_ids\"} into {\"text\"}, with --render {\"messages\", …} into {\"rendered\"}.\n"
                 "Special tokens in the text are recognised, none is added.  A line's id is kept; a bad line gives {\"id\", \"error\"}.",
        .opts = opts,
        .examples = "echo '{\"text\": \"Hello, world!\"}' | tokenize --model MODEL\n"
                    "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}' | tokenize --model MODEL --render",
        .exits = "65 also when one line was bad"};
    opt_parse(&spec, argc, argv);
    if (!model) opt_usage("--model is missing: name the model's directory");
    if (job.decode && job.render) opt_usage("--decode and --render exclude each other");
    open_model(&job, model);

    struct err e = {0}, first = {0};
    struct jsonl *in = jsonl_open("-", &e);
    if (!in) die(&e);
    json_t *line;
    long number, lines = 0, bad = 0;
    int got;
    while ((got = jsonl_next(in, &line, &number, &e)) == 1 || got == -1) {
        json_t *out = got == 1 ? answer(&job, line, &e) : no_json(in, &e);
        if (json_line(stdout, out) != 0) break;
        lines++;
        if (e.code && bad++ == 0) first = e;
        e = (struct err){0};
        json_decref(out);
        if (got == 1) json_decref(line);
    }
    if (got == -2 || finish_stdout(&e)) die(&e);
    jsonl_close(in);
    tokenizer_free(job.tokenizer);
    chat_free(job.chat);
    if (bad) die_msg(EXIT_DATA, "%ld of %ld lines failed; the first: %s", bad, lines, first.msg);
    return 0;
}
