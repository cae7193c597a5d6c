/* Gemma 4's notation of tools: declarations from JSON schemas, calls, responses.  What the notation cannot hold exactly as Google's template
 * would write it (a property without one plain type, an object without properties) is refused rather than guessed. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "engine/chat_render.h"

#define QUOTE "<|\"|>"

/* --- values ------------------------------------------------------------------------------------------------------------ */

/* The members of an object by the lower case of their keys (of ASCII letters), equal ones in their order. */
struct member { const char *key; const json_t *value; size_t place; };

static int by_lower_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    const unsigned char *s = (const unsigned char *)x->key, *t = (const unsigned char *)y->key;
    while (*s && tolower(*s) == tolower(*t)) {
        s++;
        t++;
    }
    int d = tolower(*s) - tolower(*t);
    return d ? d : x->place < y->place ? -1 : 1;
}

static struct member *sorted_members(const json_t *object, size_t *n)
{
    struct member *m = xcalloc(json_object_size(object) + 1, sizeof *m);
    const char *key;
    json_t *value;
    *n = 0;
    json_object_foreach((json_t *)object, key, value) {
        m[*n] = (struct member){key, value, *n};
        ++*n;
    }
    qsort(m, *n, sizeof *m, by_lower_key);
    return m;
}

static void add_quoted(struct buf *out, const char *text, size_t n)
{
    buf_str(out, QUOTE);
    buf_add(out, text, n);
    buf_str(out, QUOTE);
}

static void add_quoted_string(struct buf *out, const json_t *s)
{
    add_quoted(out, json_string_value(s), json_string_length(s));
}

static void add_quoted_upper(struct buf *out, const char *s)
{
    buf_str(out, QUOTE);
    for (; *s; s++)
        buf_char(out, (char)toupper((unsigned char)*s));
    buf_str(out, QUOTE);
}

/* As Python's repr: the shortest digits that give the number back, an exponent below 1e-4 and from 1e16 on, ".0" on whole numbers. */
static void add_real(struct buf *out, double v)
{
    char digits[40];
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, v);
    while (strtod(digits, NULL) != v && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        buf_printf(out, "%.*f", decimals > 0 ? decimals : 1, v);
        return;
    }
    *strchr(digits, 'e') = '\0';
    buf_printf(out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static void add_value(struct buf *out, const json_t *v, bool quote_keys)
{
    switch (json_typeof(v)) {
    case JSON_STRING: add_quoted_string(out, v); break;
    case JSON_INTEGER: buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
    case JSON_REAL: add_real(out, json_real_value(v)); break;
    case JSON_TRUE: buf_str(out, "true"); break;
    case JSON_FALSE: buf_str(out, "false"); break;
    case JSON_NULL: buf_str(out, "null"); break;
    case JSON_ARRAY:
        buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i)
                buf_char(out, ',');
            add_value(out, json_array_get(v, i), quote_keys);
        }
        buf_char(out, ']');
        break;
    case JSON_OBJECT: {
        size_t n;
        struct member *m = sorted_members(v, &n);
        buf_char(out, '{');
        for (size_t i = 0; i < n; i++) {
            if (i)
                buf_char(out, ',');
            if (quote_keys)
                add_quoted(out, m[i].key, strlen(m[i].key));
            else
                buf_str(out, m[i].key);
            buf_char(out, ':');
            add_value(out, m[i].value, quote_keys);
        }
        buf_char(out, '}');
        free(m);
        break;
    }
    }
}

/* --- declarations ---------------------------------------------------------------------------------------------------------- */

/* Where a fault of a schema is, and the comma between the fields of one pair of braces. */
struct schema {
    struct render *r;
    size_t tool;
    const char *place;          /* the property's name */
};

static int bad_schema(const struct schema *s, const char *what)
{
    return err_set(s->r->e, EXIT_DATA, "tools[%zu]: %.80s: %s", s->tool, s->place, what);
}

static void add_key(struct buf *out, const char *key)
{
    if (out->data[out->n - 1] != '{')
        buf_char(out, ',');
    buf_str(out, key);
    buf_char(out, ':');
}

static const json_t *field(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static int add_required(const struct schema *s, const json_t *list)
{
    struct buf *out = s->r->out;
    if (list && !json_is_array(list))
        return bad_schema(s, "required is no list");
    if (json_array_size(list) == 0)
        return 0;
    add_key(out, "required");
    buf_char(out, '[');
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i)))
            return bad_schema(s, "required holds something that is no string");
        if (i)
            buf_char(out, ',');
        add_quoted_string(out, json_array_get(list, i));
    }
    buf_char(out, ']');
    return 0;
}

static int add_description(const struct schema *s, const json_t *description)
{
    if (description && !json_is_string(description))
        return bad_schema(s, "description is no string");
    if (json_string_length(description)) {
        add_key(s->r->out, "description");
        add_quoted_string(s->r->out, description);
    }
    return 0;
}

static int add_property(const struct schema *s, const json_t *property);

static int add_properties(const struct schema *s, const json_t *properties)
{
    struct buf *out = s->r->out;
    size_t n;
    int bad = 0;
    struct member *m = sorted_members(properties, &n);
    add_key(out, "properties");
    buf_char(out, '{');
    for (size_t i = 0; i < n && !bad; i++) {
        struct schema inner = *s;
        inner.place = m[i].key;
        add_key(out, m[i].key);
        bad = add_property(&inner, m[i].value);
    }
    buf_char(out, '}');
    free(m);
    return bad;
}

static int add_item_type(const struct schema *s, const json_t *type)
{
    struct buf *out = s->r->out;
    if (json_is_string(type)) {
        add_quoted_upper(out, json_string_value(type));
        return 0;
    }
    if (!json_is_array(type))
        return bad_schema(s, "type of the items is neither a string nor a list");
    buf_char(out, '[');
    for (size_t i = 0; i < json_array_size(type); i++) {
        if (!json_is_string(json_array_get(type, i)))
            return bad_schema(s, "type of the items holds something that is no string");
        if (i)
            buf_char(out, ',');
        add_quoted_upper(out, json_string_value(json_array_get(type, i)));
    }
    buf_char(out, ']');
    return 0;
}

static int add_items(const struct schema *s, const json_t *items)
{
    struct buf *out = s->r->out;
    size_t n;
    int bad = 0;
    struct member *m = sorted_members(items, &n);
    add_key(out, "items");
    buf_char(out, '{');
    for (size_t i = 0; i < n && !bad; i++) {
        const char *key = m[i].key;
        if (json_is_null(m[i].value))
            continue;
        if (strcmp(key, "properties") == 0) {
            bad = json_object_size(m[i].value) ? add_properties(s, m[i].value) : bad_schema(s, "items with empty properties");
        } else if (strcmp(key, "required") == 0) {
            bad = add_required(s, m[i].value);
        } else {
            add_key(out, key);
            if (strcmp(key, "type") == 0)
                bad = add_item_type(s, m[i].value);
            else
                add_value(out, m[i].value, true);
        }
    }
    buf_char(out, '}');
    free(m);
    return bad;
}

static bool same_word(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static int add_property(const struct schema *s, const json_t *property)
{
    struct buf *out = s->r->out;
    const char *type = json_string_value(field(property, "type"));
    const json_t *choice = field(property, "enum"), *items = field(property, "items");
    if (type == NULL)
        return bad_schema(s, "a property needs a type, one string");
    buf_char(out, '{');
    if (add_description(s, field(property, "description")) != 0)
        return -1;
    if (same_word(type, "string") && json_array_size(choice)) {
        add_key(out, "enum");
        add_value(out, choice, true);
    }
    if (same_word(type, "array") && json_object_size(items) && add_items(s, items) != 0)
        return -1;
    if (json_is_true(field(property, "nullable"))) {
        add_key(out, "nullable");
        buf_str(out, "true");
    }
    if (same_word(type, "object")) {
        if (json_object_size(field(property, "properties")) == 0)
            return bad_schema(s, "an object property needs properties");
        if (add_properties(s, field(property, "properties")) != 0 || add_required(s, field(property, "required")) != 0)
            return -1;
    }
    add_key(out, "type");
    add_quoted_upper(out, type);
    buf_char(out, '}');
    return 0;
}

static int add_parameters(const struct schema *s, const json_t *parameters)
{
    const char *type = json_string_value(field(parameters, "type"));
    const json_t *properties = field(parameters, "properties");
    if (!json_is_object(parameters) || type == NULL)
        return bad_schema(s, "parameters: expected an object with a type");
    add_key(s->r->out, "parameters");
    buf_char(s->r->out, '{');
    if (properties && !json_is_object(properties))
        return bad_schema(s, "properties is no object");
    if ((json_object_size(properties) && add_properties(s, properties) != 0) || add_required(s, field(parameters, "required")) != 0)
        return -1;
    add_key(s->r->out, "type");
    add_quoted_upper(s->r->out, type);
    buf_char(s->r->out, '}');
    return 0;
}

static int add_response_schema(const struct schema *s, const json_t *response)
{
    const char *type = json_string_value(field(response, "type"));
    if (type == NULL || !same_word(type, "object"))
        return bad_schema(s, "response: expected the type object");
    add_key(s->r->out, "response");
    buf_char(s->r->out, '{');
    if (add_description(s, field(response, "description")) != 0)
        return -1;
    add_key(s->r->out, "type");
    add_quoted_upper(s->r->out, type);
    buf_char(s->r->out, '}');
    return 0;
}

int add_tool_declarations(struct render *r)
{
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *function = field(json_array_get(r->tools, i), "function"), *name = field(function, "name");
        const json_t *description = field(function, "description"), *parameters = field(function, "parameters"), *response = field(function, "response");
        struct schema s = {r, i, "function"};
        if (!json_is_string(name) || (description && !json_is_string(description)))
            return bad_schema(&s, "expected a name, and a description that is a string");
        s.place = json_string_value(name);
        buf_str(r->out, "<|tool>declaration:");
        add_json_string(r->out, name);
        buf_str(r->out, "{description:");
        add_quoted(r->out, description ? json_string_value(description) : "", json_string_length(description));
        if (parameters && !(json_is_object(parameters) && json_object_size(parameters) == 0) && add_parameters(&s, parameters) != 0)
            return -1;
        if (response && add_response_schema(&s, response) != 0)
            return -1;
        buf_str(r->out, "}<tool|>");
    }
    return 0;
}

/* --- calls and responses ------------------------------------------------------------------------------------------------------- */

/* The arguments as an object (new reference): clients of OpenAI's API send them as JSON text. */
static json_t *arguments_of(struct render *r, size_t i, const json_t *function)
{
    const json_t *a = field(function, "arguments");
    struct err why = {0};
    json_t *object = NULL;
    if (a == NULL)
        return json_object();
    if (json_is_string(a))
        object = json_parse(json_string_value(a), json_string_length(a), "arguments", &why);
    else
        object = json_incref((json_t *)a);
    if (json_is_object(object))
        return object;
    json_decref(object);
    (void)refuse(r, i, "the arguments of a tool call are no JSON object%s%s", why.code ? ": " : "", why.msg);
    return NULL;
}

int add_tool_calls(struct render *r, size_t i)
{
    const json_t *calls = message_field(r, i, "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *function = field(json_array_get(calls, k), "function"), *name = field(function, "name");
        if (!json_is_string(name))
            return refuse(r, i, "tool_calls[%zu] has no function name", k);
        json_t *arguments = arguments_of(r, i, function);
        if (arguments == NULL)
            return -1;
        buf_str(r->out, "<|tool_call>call:");
        add_json_string(r->out, name);
        add_value(r->out, arguments, false);
        buf_str(r->out, "<tool_call|>");
        json_decref(arguments);
    }
    return 0;
}

/* By the call's id, else by the message's own name. */
static const char *name_of_response(const struct render *r, size_t i, size_t message)
{
    const json_t *calls = message_field(r, i, "tool_calls"), *id = message_field(r, message, "tool_call_id"), *name = message_field(r, message, "name");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k), *function = field(call, "function");
        if (json_is_string(id) && json_equal((json_t *)id, json_object_get(call, "id")))
            return json_string_value(field(function, "name"));
    }
    return json_string_length(name) ? json_string_value(name) : "unknown";
}

static int add_tool_message(struct render *r, size_t i, size_t message)
{
    if (message_field(r, message, "content") == NULL)
        return refuse(r, message, "a tool message without content");
    buf_str(r->out, "<|tool_response>response:");
    buf_str(r->out, name_of_response(r, i, message));
    buf_str(r->out, "{value:" QUOTE);
    if (add_content(r, message, CONTENT_RAW) != 0)
        return -1;
    buf_str(r->out, QUOTE "}<tool_response|>");
    return 0;
}

static int add_old_response(struct render *r, size_t i, const json_t *response)
{
    const json_t *name = field(response, "name"), *value = field(response, "response");
    if (!json_is_string(name) || value == NULL)
        return refuse(r, i, "tool_responses: expected a name and a response");
    buf_str(r->out, "<|tool_response>response:");
    add_json_string(r->out, name);
    if (json_is_object(value)) {
        add_value(r->out, value, false);
    } else {
        buf_str(r->out, "{value:");
        add_value(r->out, value, false);
        buf_char(r->out, '}');
    }
    buf_str(r->out, "<tool_response|>");
    return 0;
}

int add_tool_responses(struct render *r, size_t i, size_t first, size_t end)
{
    const json_t *old = message_field(r, i, "tool_responses");
    for (size_t k = 0; k < json_array_size(old); k++)
        if (add_old_response(r, i, json_array_get(old, k)) != 0)
            return -1;
    for (; first < end && json_array_size(old) == 0; first++)
        if (add_tool_message(r, i, first) != 0)
            return -1;
    return 0;
}
