/* Gemma 3: user and model turns that alternate; a system text opens the first user turn. */
#include <string.h>
#include "engine/chat_render.h"

/* The system text as it stands, untrimmed.  Google's template takes the first part of a list only. */
static int add_system(struct render *r)
{
    const json_t *content = message_field(r, 0, "content");
    if (json_is_array(content) && !r->parts_joined) {
        const json_t *part = json_array_get(content, 0), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(text) || type == NULL || strcmp(type, "text") != 0)
            return refuse(r, 0, "a system message whose first part is no text");
        add_json_string(r->out, text);
    } else {
        if (content == NULL)
            return refuse(r, 0, "a system message without text");
        if (add_content(r, 0, CONTENT_RAW) != 0)
            return -1;
    }
    buf_str(r->out, "\n\n");
    return 0;
}

static int add_body(struct render *r, size_t i)
{
    if (!r->parts_joined)
        return add_content(r, i, CONTENT_TRIM);
    struct buf joined = BUF_INIT, *out = r->out;
    r->out = &joined;
    int bad = add_content(r, i, CONTENT_RAW);
    r->out = out;
    if (!bad)
        add_trimmed(out, joined.data, joined.n);
    buf_free(&joined);
    return bad;
}

static int add_turn(struct render *r, size_t i, size_t first)
{
    const char *role = message_role(r, i);
    if (role == NULL)
        return -1;
    bool users_place = (i - first) % 2 == 0, user = strcmp(role, "user") == 0;
    if (user != users_place)
        return refuse(r, i, "role %.60s: user and assistant must alternate, beginning with user (after one system message)", role);
    if (!user && strcmp(role, "assistant") != 0 && strcmp(role, "model") != 0)
        return refuse(r, i, "role %.60s is unknown to Gemma 3: expected assistant", role);
    if (json_array_size(message_field(r, i, "tool_calls")))
        return refuse(r, i, "tool_calls: Gemma 3's template knows no tools");
    buf_str(r->out, user ? "<start_of_turn>user\n" : "<start_of_turn>model\n");
    if ((i == first && first == 1 && add_system(r) != 0) || add_body(r, i) != 0)
        return -1;
    if (!(r->open_end && i + 1 == r->n))
        buf_str(r->out, "<end_of_turn>\n");
    return 0;
}

int render_gemma3(struct render *r)
{
    if (r->tools)
        return err_set(r->e, EXIT_DATA, "tools: Gemma 3's template knows no tools");
    const char *role = message_role(r, 0);
    if (role == NULL)
        return -1;
    size_t first = strcmp(role, "system") == 0;
    if (first == r->n)
        return refuse(r, 0, "a system message alone: its text belongs to a user message");
    buf_str(r->out, "<bos>");
    for (size_t i = first; i < r->n; i++)
        if (add_turn(r, i, first) != 0)
            return -1;
    if (r->generation_prompt)
        buf_str(r->out, "<start_of_turn>model\n");
    return 0;
}
