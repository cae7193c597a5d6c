/* Which template a model ships, and what all renderers share. */
#include "engine/chat.h"
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/jsonscan.h"
#include "base/utf8.h"
#include "engine/chat_render.h"

#define FILE_MAX ((size_t)16 << 20)

struct chat {
    enum chat_variant variant;
    bool parts_joined;
    char id[16 + SHA256_HEX];
};

static const char *const variant_name[] = {"gemma3", "gemma4-small", "gemma4-large"};

/* Templates that the renderers were checked against: Google's (Gemma 3 `-it`; Gemma 4 as published 2026-07-09), and the short one that
 * tests/peers/gemma3_270m.py writes.  Those of chat_own_template() are hashed when needed. */
static const struct known { const char *sha256; enum chat_variant variant; bool parts_joined; } known[] = {
    {"7de1c58e208eda46e9c7f86397df37ec49883aeece39fb961e0a6b24088dd3c4", CHAT_GEMMA3, false},
    {"0a2c8073c878ab1da004bee933a998606537bbb62016310352c7285c3f01c5b5", CHAT_GEMMA4_SMALL, false},
    {"ae53464bf3be25802b3a5b37def7fd89667067d7577049b3b2d74c4d8de4c6d4", CHAT_GEMMA4_LARGE, false},
    {"c02ec4624175120ac248b27fe4bc3351477b34ee2158f9176413f1d63fbed2c7", CHAT_GEMMA3, true},
};

/* --- the shipped template ----------------------------------------------------------------------------------------------- */

static bool key_is(const char *key, size_t n, const char *want)
{
    return strlen(want) == n && memcmp(key, want, n) == 0;
}

/* The value of chat_template: a string, or a list of {"name", "template"} of which "default" is used.  1 = hashed, 0 = nothing usable, -1 = fault. */
static int hash_value(struct jscan *s, char hex[SHA256_HEX])
{
    const char *key, *text;
    size_t n;
    int found = 0, more = 0, inner = 0;
    if (jscan_peek(s) == '"') {
        if (jscan_string(s, &text, &n) != 0)
            return -1;
        sha256_of(text, n, hex);
        return 1;
    }
    if (jscan_peek(s) != '[')
        return jscan_skip(s);
    if (jscan_open(s, '[') != 0)
        return -1;
    while ((more = jscan_item(s)) == 1) {
        char this_hex[SHA256_HEX] = "";
        bool is_default = false;
        if (jscan_open(s, '{') != 0)
            return -1;
        while ((inner = jscan_key(s, &key, &n)) == 1) {
            bool name = key_is(key, n, "name"), template = key_is(key, n, "template");
            if ((name || template ? jscan_string(s, &text, &n) : jscan_skip(s)) != 0)
                return -1;
            if (template)
                sha256_of(text, n, this_hex);
            is_default |= name && key_is(text, n, "default");
        }
        if (inner < 0)
            return -1;
        if (is_default && *this_hex) {
            memcpy(hex, this_hex, SHA256_HEX);
            found = 1;
        }
    }
    return more < 0 ? -1 : found;
}

/* tokenizer_config.json is scanned: its model_max_length of 1e30, written as a whole number, is more than jansson takes. */
static int hash_in_config(const char *text, size_t n, const char *name, char hex[SHA256_HEX], struct err *e)
{
    struct jscan s;
    const char *key;
    size_t len;
    int found = 0, more;
    jscan_init(&s, text, n, name, e);
    if (jscan_open(&s, '{') != 0)
        return -1;
    while (found >= 0 && (more = jscan_key(&s, &key, &len)) == 1) {
        if (key_is(key, len, "chat_template"))
            found = hash_value(&s, hex);
        else if (jscan_skip(&s) != 0)
            found = -1;
    }
    if (found >= 0 && (more < 0 || jscan_done(&s) != 0))
        found = -1;
    jscan_free(&s);
    return found;
}

/* 1 = read, 0 = absent, -1 = unreadable. */
static int slurp_if_there(const char *path, char **text, size_t *n, struct err *e)
{
    struct err why = {0};
    if (io_slurp(path, FILE_MAX, text, n, &why) == 0)
        return 1;
    return why.code == EXIT_NOINPUT ? 0 : err_set(e, why.code, "%s", why.msg);
}

/* 1 = hashed, 0 = the model ships none, -1 = unreadable. */
static int hash_template(const char *dir, char hex[SHA256_HEX], struct err *e)
{
    char *text = NULL, *path = xasprintf("%s/chat_template.jinja", dir);
    size_t n = 0;
    int found = slurp_if_there(path, &text, &n, e);
    if (found == 1) {
        sha256_of(text, n, hex);
    } else if (found == 0) {
        free(path);
        path = xasprintf("%s/tokenizer_config.json", dir);
        found = slurp_if_there(path, &text, &n, e);
        if (found == 1)
            found = hash_in_config(text, n, path, hex, e);
    }
    free(text);
    free(path);
    return found;
}

static bool recognise(struct chat *c, const char *hex)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].sha256, hex) == 0) {
            c->variant = known[i].variant;
            c->parts_joined = known[i].parts_joined;
            return true;
        }
    for (int v = CHAT_GEMMA3; v <= CHAT_GEMMA4_LARGE; v++) {
        const char *own = chat_own_template((enum chat_variant)v);
        char own_hex[SHA256_HEX];
        sha256_of(own, strlen(own), own_hex);
        if (strcmp(own_hex, hex) == 0) {
            c->variant = (enum chat_variant)v;
            return true;
        }
    }
    return false;
}

struct chat *chat_open(const char *dir, const struct gemma *g, struct err *e)
{
    char hex[SHA256_HEX];
    int found = hash_template(dir, hex, e);
    if (found < 0)
        return NULL;
    struct chat *c = xcalloc(1, sizeof *c);
    if (found && recognise(c, hex)) {
        snprintf(c->id, sizeof c->id, "%s", variant_name[c->variant]);
        return c;
    }
    if (g == NULL) {
        free(c);
        (void)err_set(e, EXIT_DATA, "%s: %s, and no config.json says which family this is", dir, found ? "an unknown chat template" : "no chat template");
        return NULL;
    }
    c->variant = g->family == GEMMA_3 ? CHAT_GEMMA3 : g->ple ? CHAT_GEMMA4_SMALL : CHAT_GEMMA4_LARGE;
    snprintf(c->id, sizeof c->id, found ? "unknown:%s" : "none", hex);
    if (found)
        warn_msg("%s: its chat template (sha256 %s) is none that was checked: prompts are written as %s's", dir, hex, variant_name[c->variant]);
    else
        warn_msg("%s: no chat template: prompts are written as %s's", dir, variant_name[c->variant]);
    return c;
}

void chat_free(struct chat *c)
{
    free(c);
}

enum chat_variant chat_variant(const struct chat *c)
{
    return c->variant;
}

const char *chat_template_id(const struct chat *c)
{
    return c->id;
}

/* --- messages ------------------------------------------------------------------------------------------------------------- */

const json_t *message_field(const struct render *r, size_t i, const char *key)
{
    const json_t *v = json_object_get(json_array_get(r->messages, i), key);
    return json_is_null(v) ? NULL : v;
}

int refuse(struct render *r, size_t i, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(r->e, EXIT_DATA, "messages[%zu]: %s", i, what);
}

const char *message_role(struct render *r, size_t i)
{
    const char *role = json_string_value(message_field(r, i, "role"));
    if (role == NULL)
        (void)refuse(r, i, "role is no string");
    return role;
}

/* What Python's str.strip() removes. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

void add_trimmed(struct buf *out, const char *text, size_t n)
{
    uint32_t c = 0;
    size_t len;
    while ((len = utf8_decode(text, n, &c)) > 0 && is_space(c)) {
        text += len;
        n -= len;
    }
    while (n > 0) {
        size_t start = n - 1;
        while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80)
            start--;
        if (utf8_decode(text + start, n - start, &c) == 0 || !is_space(c))
            break;
        n = start;
    }
    buf_add(out, text, n);
}

void add_json_string(struct buf *out, const json_t *s)
{
    buf_add(out, json_string_value(s), json_string_length(s));
}

/* Where needle (a C string) begins in n bytes that may hold NULs; n when it does not occur. */
static size_t find(const char *text, size_t n, const char *needle)
{
    size_t len = strlen(needle);
    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(text + i, needle, len) == 0)
            return i;
    return n;
}

/* Of each piece between the ends of channels, what precedes its first beginning of one: an unclosed channel swallows the rest of its piece. */
static void add_cut(struct buf *out, const char *text, size_t n)
{
    static const char open[] = "<|channel>", close[] = "<channel|>";
    struct buf kept = BUF_INIT;
    for (;;) {
        size_t piece = find(text, n, close);
        buf_add(&kept, text, find(text, piece, open));
        if (piece == n)
            break;
        text += piece + strlen(close);
        n -= piece + strlen(close);
    }
    add_trimmed(out, kept.data, kept.n);
    buf_free(&kept);
}

static void add_text(struct buf *out, const json_t *s, enum content_how how, bool part)
{
    const char *text = json_string_value(s);
    size_t n = json_string_length(s);
    switch (how) {
    case CONTENT_RAW: buf_add(out, text, n); break;
    case CONTENT_CUT: add_cut(out, text, n); break;
    case CONTENT_TRIM: add_trimmed(out, text, n); break;
    case CONTENT_SPACED:
        add_trimmed(out, text, n);
        if (part)
            buf_char(out, ' ');
        break;
    }
}

int add_content(struct render *r, size_t i, enum content_how how)
{
    const json_t *content = message_field(r, i, "content"), *part;
    size_t k;
    if (content == NULL)
        return 0;
    if (json_is_string(content)) {
        add_text(r->out, content, how, false);
        return 0;
    }
    if (!json_is_array(content))
        return refuse(r, i, "content is neither a string nor a list of parts");
    json_array_foreach(content, k, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0)
            return refuse(r, i, "content part %zu is of type %.60s: only text is understood", k, type ? type : "(none)");
        if (!json_is_string(text))
            return refuse(r, i, "content part %zu has no text", k);
        add_text(r->out, text, how, true);
    }
    return 0;
}

/* --- a request -------------------------------------------------------------------------------------------------------------- */

static int get_switch(const json_t *request, const char *key, bool def, bool *out, struct err *e)
{
    if (json_get_bool(json_object_get(request, "chat_template_kwargs"), key, def, out, "chat_template_kwargs", e) != 0)
        return -1;
    return json_get_bool(request, key, *out, out, "request", e);
}

static int read_switches(struct render *r, const json_t *request)
{
    const json_t *more = json_object_get(request, "chat_template_kwargs");
    if (more && !json_is_null(more) && !json_is_object(more))
        return err_set(r->e, EXIT_DATA, "chat_template_kwargs: expected an object");
    if (get_switch(request, "enable_thinking", false, &r->think, r->e) != 0 || get_switch(request, "preserve_thinking", false, &r->preserve, r->e) != 0 ||
        get_switch(request, "continue_final_message", false, &r->open_end, r->e) != 0 ||
        get_switch(request, "add_generation_prompt", !r->open_end, &r->generation_prompt, r->e) != 0)
        return -1;
    if (r->open_end && r->generation_prompt)
        return err_set(r->e, EXIT_DATA, "continue_final_message and add_generation_prompt exclude each other");
    return 0;
}

static int read_lists(struct render *r, const json_t *request)
{
    const json_t *message;
    size_t i;
    r->messages = json_object_get(request, "messages");
    r->n = json_array_size(r->messages);
    if (!json_is_array(r->messages) || r->n == 0)
        return err_set(r->e, EXIT_DATA, "messages: expected a list with at least one message");
    json_array_foreach(r->messages, i, message)
        if (!json_is_object(message))
            return refuse(r, i, "expected an object with a role and content");
    r->tools = json_object_get(request, "tools");
    if (json_is_null(r->tools) || (json_is_array(r->tools) && json_array_size(r->tools) == 0))
        r->tools = NULL;
    if (r->tools && !json_is_array(r->tools))
        return err_set(r->e, EXIT_DATA, "tools: expected a list");
    return 0;
}

/* A message can be continued when its text ends the prompt just as it was given. */
static int check_open_end(struct render *r)
{
    size_t last = r->n - 1;
    const json_t *content = message_field(r, last, "content");
    const char *role = message_role(r, last);
    if (role == NULL)
        return -1;
    if (strcmp(role, "assistant") != 0 && strcmp(role, "model") != 0)
        return refuse(r, last, "continue_final_message needs an assistant's message, not one of role %.60s", role);
    if (json_is_array(content) && json_array_size(content))
        content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
    struct buf text = BUF_INIT;
    if (json_is_string(content))
        add_trimmed(&text, json_string_value(content), json_string_length(content));
    bool cut = r->variant != CHAT_GEMMA3 && (find(text.data, text.n, "<|channel>") < text.n || find(text.data, text.n, "<channel|>") < text.n);
    bool empty = text.n == 0;
    buf_free(&text);
    if (empty)
        return refuse(r, last, "continue_final_message needs a text to continue");
    return cut ? refuse(r, last, "continue_final_message with a thought channel in the text") : 0;
}

int chat_render(const struct chat *c, const json_t *request, struct buf *out, struct err *e)
{
    struct render r = {.variant = c->variant, .parts_joined = c->parts_joined, .out = out, .e = e};
    size_t before = out->n;
    if (read_switches(&r, request) != 0 || read_lists(&r, request) != 0 || (r.open_end && check_open_end(&r) != 0))
        return -1;
    int bad = c->variant == CHAT_GEMMA3 ? render_gemma3(&r) : render_gemma4(&r);
    if (bad && out->data) {
        out->n = before;
        out->data[before] = 0;
    }
    return bad;
}
