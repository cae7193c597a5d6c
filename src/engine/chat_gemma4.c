/* Gemma 4: a system turn, turns of any order, thought channels, tools.  Small (E2B, E4B) and large (12B, 26B, 31B) differ only in the
 * empty thought channel that ends the generation prompt of the large ones when thinking is off. */
#include <string.h>
#include "engine/chat_render.h"

static bool is_role(const struct render *r, size_t i, const char *role)
{
    const char *s = json_string_value(message_field(r, i, "role"));
    return s && strcmp(s, role) == 0;
}

static bool is_model(const struct render *r, size_t i)
{
    return is_role(r, i, "assistant") || is_role(r, i, "model");
}

static bool has_list(const struct render *r, size_t i, const char *key)
{
    return json_array_size(message_field(r, i, key)) > 0;
}

/* Index of the nearest message before / after i that is no tool's; r->n = none. */
static size_t before(const struct render *r, size_t i)
{
    while (i-- > 0)
        if (!is_role(r, i, "tool"))
            return i;
    return r->n;
}

static size_t after(const struct render *r, size_t i)
{
    do
        i++;
    while (i < r->n && is_role(r, i, "tool"));
    return i < r->n ? i : r->n;
}

/* End of the tool messages that follow message i. */
static size_t tools_end(const struct render *r, size_t i)
{
    size_t end = i + 1;
    while (end < r->n && is_role(r, end, "tool"))
        end++;
    return end;
}

static bool responded(const struct render *r, size_t i)
{
    return has_list(r, i, "tool_responses") || (has_list(r, i, "tool_calls") && tools_end(r, i) > i + 1);
}

static bool after_last_user(const struct render *r, size_t i)
{
    for (size_t k = i; k < r->n; k++)
        if (is_role(r, k, "user"))
            return false;
    return true;
}

static int check_tool_fields(struct render *r, size_t i)
{
    static const char *const field[] = {"tool_calls", "tool_responses"};
    for (size_t k = 0; k < 2; k++) {
        const json_t *v = message_field(r, i, field[k]);
        if (v && !json_is_array(v))
            return refuse(r, i, "%s: a list of them is expected", field[k]);
        if (json_array_size(v) && !is_model(r, i))
            return refuse(r, i, "%s in a message that is not the assistant's", field[k]);
    }
    return 0;
}

/* Nothing that the template would write under a name of the client's, or drop. */
static int check_message(struct render *r, size_t i)
{
    const char *role = message_role(r, i);
    if (role == NULL || check_tool_fields(r, i) != 0)
        return -1;
    if (strcmp(role, "tool") == 0) {
        size_t asked = before(r, i);
        if (asked == r->n || !has_list(r, asked, "tool_calls"))
            return refuse(r, i, "a tool message that follows no tool_calls");
        return has_list(r, asked, "tool_responses") ? refuse(r, i, "a tool message after tool_responses, which take its place") : 0;
    }
    if (strcmp(role, "developer") == 0 && i > 0)
        return refuse(r, i, "role developer is known for the first message only");
    if (!is_model(r, i) && strcmp(role, "user") != 0 && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)
        return refuse(r, i, "role %.60s is unknown: expected system, user, assistant or tool", role);
    return 0;
}

static int add_reasoning(struct render *r, size_t i)
{
    static const char *const key[] = {"reasoning", "reasoning_content", "thinking"};
    const json_t *text = NULL;
    for (size_t k = 0; k < 3 && (text == NULL || json_string_length(text) == 0); k++) {
        text = message_field(r, i, key[k]);
        if (text && !json_is_string(text))
            return refuse(r, i, "%s: a text is expected", key[k]);
    }
    if (text == NULL || json_string_length(text) == 0)
        return 0;
    if (!after_last_user(r, i) && !(r->preserve && has_list(r, i, "tool_calls")))
        return 0;
    if (!is_model(r, i))
        return refuse(r, i, "reasoning belongs to an assistant's message");
    buf_str(r->out, "<|channel>thought\n");
    add_json_string(r->out, text);
    buf_str(r->out, "\n<channel|>");
    return 0;
}

static void close_turn(struct render *r, size_t i, bool has_text)
{
    size_t next = after(r, i);
    if (r->open_end && next == r->n)
        return;
    if (has_list(r, i, "tool_calls") && !responded(r, i))
        buf_str(r->out, "<|tool_response>");
    else if (is_model(r, i) && next < r->n && is_role(r, next, "assistant"))
        return;
    else if (!(responded(r, i) && !has_text && next == r->n))
        buf_str(r->out, "<turn|>\n");
}

static int add_message(struct render *r, size_t i)
{
    size_t previous = before(r, i);
    bool model = is_model(r, i);
    if (!(model && previous < r->n && is_role(r, previous, "assistant"))) {
        buf_str(r->out, "<|turn>");
        buf_str(r->out, model ? "model" : json_string_value(message_field(r, i, "role")));
        buf_char(r->out, '\n');
    }
    if (add_reasoning(r, i) != 0 || (has_list(r, i, "tool_calls") && add_tool_calls(r, i) != 0) ||
        (responded(r, i) && add_tool_responses(r, i, i + 1, tools_end(r, i)) != 0))
        return -1;
    size_t start = r->out->n;
    if (add_content(r, i, model ? CONTENT_CUT : CONTENT_TRIM) != 0)
        return -1;
    close_turn(r, i, r->out->n > start);
    return 0;
}

/* Returns the number of messages it used up: 0 or 1; -1 = error. */
static int add_system_turn(struct render *r)
{
    bool first = is_role(r, 0, "system") || is_role(r, 0, "developer");
    if (!first && !r->think && !r->tools)
        return 0;
    buf_str(r->out, "<|turn>system\n");
    if (r->think)
        buf_str(r->out, "<|think|>\n");
    if ((first && add_content(r, 0, CONTENT_SPACED) != 0) || (r->tools && add_tool_declarations(r) != 0))
        return -1;
    buf_str(r->out, "<turn|>\n");
    return first;
}

static void add_generation_prompt(struct render *r)
{
    size_t last = before(r, r->n);
    if (responded(r, last)) {
        if (r->think)
            buf_str(r->out, "<|channel>thought\n");
    } else if (!has_list(r, last, "tool_calls")) {
        buf_str(r->out, "<|turn>model\n");
        if (r->variant == CHAT_GEMMA4_LARGE && !r->think)
            buf_str(r->out, "<|channel>thought\n<channel|>");
    }
}

int render_gemma4(struct render *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (check_message(r, i) != 0)
            return -1;
    buf_str(r->out, "<bos>");
    int used = add_system_turn(r);
    if (used < 0)
        return -1;
    for (size_t i = (size_t)used; i < r->n; i++)
        if (!is_role(r, i, "tool") && add_message(r, i) != 0)
            return -1;
    if (r->generation_prompt)
        add_generation_prompt(r);
    return 0;
}
