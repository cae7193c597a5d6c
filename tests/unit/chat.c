/* What the goldens of tests/golden/chat (tests/tokenize.bats) do not reach: numbers, old-style responses, schemas refused, the caller's buffer. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "engine/chat.h"

static struct chat *with_template(enum chat_variant v)
{
    char dir[] = "/tmp/unit-chat.XXXXXX";
    struct err e = {0};
    assert(mkdtemp(dir));
    char *path = xasprintf("%s/chat_template.jinja", dir);
    FILE *f = fopen(path, "w");
    assert(f && fputs(chat_own_template(v), f) != EOF && fclose(f) == 0);
    struct chat *c = chat_open(dir, NULL, &e);
    unlink(path);
    rmdir(dir);
    free(path);
    assert(c && chat_variant(c) == v);
    return c;
}

/* The rendering of a request, with 'text' for "text"; NULL when refused, the reason in e. */
static char *rendered(const struct chat *c, const char *request, struct err *e)
{
    char *text = xstrdup(request);
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    *e = (struct err){0};
    json_t *json = json_parse(text, strlen(text), "request", e);
    struct buf out = BUF_INIT;
    if (json == NULL)
        die(e);
    buf_str(&out, "kept");
    int bad = chat_render(c, json, &out, e);
    assert(memcmp(out.data, "kept", 4) == 0 && (!bad || (out.n == 4 && out.data[4] == 0 && e->code == EXIT_DATA)));
    char *result = bad ? NULL : xstrdup(out.data + 4);
    buf_free(&out);
    json_decref(json);
    free(text);
    return result;
}

static void writes(const struct chat *c, const char *request, const char *part)
{
    struct err e;
    char *text = rendered(c, request, &e);
    if (text == NULL || !strstr(text, part)) {
        fprintf(stderr, "%s\nexpected: %s\ngot: %s\n", request, part, text ? text : e.msg);
        abort();
    }
    free(text);
}

static void refuses(const struct chat *c, const char *request, const char *because)
{
    struct err e;
    char *text = rendered(c, request, &e);
    if (text || !strstr(e.msg, because)) {
        fprintf(stderr, "%s\nexpected a refusal: %s\ngot: %s\n", request, because, text ? text : e.msg);
        abort();
    }
}

#define CALL(arguments) "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'tool_calls': [{'id': 'c', 'function': {'name': 'f', 'arguments': " arguments "}}]}]}"

static void tool_values(const struct chat *c)
{
    writes(c, CALL("{'r': [1.0, 0.1, -0.0, 1e20, 1e16, 123456789012345.6, 1e-5, 0.0001, 2.5e-7, 1e15, 9007199254740993.0]}"),
           "call:f{r:[1.0,0.1,-0.0,1e+20,1e+16,123456789012345.6,1e-05,0.0001,2.5e-07,1000000000000000.0,9007199254740992.0]}<tool_call|>");
    writes(c, CALL("{'b': {'B': 1, 'a': [], 'C': {}}, 'A': null, 'n': -7}"), "call:f{A:null,b:{a:[],B:1,C:{}},n:-7}<tool_call|>");
    writes(c, CALL("null"), "call:f{}<tool_call|><|tool_response>");
    writes(c, CALL("'{\\\"q\\\": [true]}'"), "call:f{q:[true]}<tool_call|>");
    refuses(c, CALL("'[1]'"), "messages[1]: the arguments of a tool call are no JSON object");
    refuses(c, CALL("'{'"), "no JSON object: arguments: not JSON");
    refuses(c, CALL("7"), "no JSON object");
    puts("values of tool calls as Python prints them; argument strings are parsed");
}

static void tool_responses(const struct chat *c)
{
#define ANSWERED(m) "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'tool_calls': [{'id': 'c', 'function': {'name': 'f'}}]" m "]}"
    writes(c, ANSWERED("}, {'role': 'tool', 'name': 'g', 'content': 'y'}"), "<|tool_response>response:g{value:<|\"|>y<|\"|>}<tool_response|>");
    writes(c, ANSWERED(", 'tool_responses': [{'name': 'h', 'response': {'b': 1, 'A': 'x'}}, {'name': 'i', 'response': 3}]}"),
           "<|tool_response>response:h{A:<|\"|>x<|\"|>,b:1}<tool_response|><|tool_response>response:i{value:3}<tool_response|>");
    refuses(c, ANSWERED(", 'tool_responses': [{'name': 'h', 'response': 1}]}, {'role': 'tool', 'content': 'y'}"), "messages[2]: a tool message after tool_responses");
    refuses(c, ANSWERED("}, {'role': 'tool', 'tool_call_id': 'c'}"), "messages[2]: a tool message without content");
    refuses(c, ANSWERED("}, {'role': 'user', 'content': 'z'}, {'role': 'tool', 'content': 'late'}"), "messages[3]: a tool message that follows no tool_calls");
    refuses(c, "{'messages': [{'role': 'user', 'content': 'x', 'tool_calls': [{}]}]}", "messages[0]: tool_calls in a message that is not the assistant's");
    refuses(c, ANSWERED(", 'tool_responses': [{'name': 'h'}]}"), "messages[1]: tool_responses: expected a name and a response");
    refuses(c, "{'messages': [{'role': 'assistant', 'tool_calls': {}}]}", "tool_calls: a list of them is expected");
    refuses(c, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'tool_calls': [{}]}]}", "tool_calls[0] has no function name");
    puts("responses of both kinds; what the template would drop is refused");
}

static void schemas(const struct chat *c)
{
#define TOOL(function) "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': [{'type': 'function', 'function': {" function "}}]}"
    writes(c, TOOL("'name': 'f', 'parameters': {'type': 'object', 'properties': {}}"), "declaration:f{description:<|\"|><|\"|>,parameters:{type:<|\"|>OBJECT<|\"|>}}<tool|>");
    writes(c, TOOL("'name': 'f', 'parameters': {}"), "declaration:f{description:<|\"|><|\"|>}<tool|>");
    writes(c, TOOL("'name': 'f', 'parameters': {'type': 'object', 'properties': {'n': {'type': 'integer', 'enum': [1, 2], 'default': 1}}}"), "{properties:{n:{type:<|\"|>INTEGER<|\"|>}},type");
    writes(c, TOOL("'name': 'f', 'parameters': {'type': 'object', 'properties': {'l': {'type': 'array', 'items': {'type': ['string', 'null'], 'x': {'k': 1}}}}}"),
           "items:{type:[<|\"|>STRING<|\"|>,<|\"|>NULL<|\"|>],x:{<|\"|>k<|\"|>:1}}");
    refuses(c, TOOL("'description': 'no name'"), "tools[0]");
    refuses(c, TOOL("'name': 'f', 'parameters': {'properties': {}}"), "parameters: expected an object with a type");
    refuses(c, TOOL("'name': 'f', 'parameters': {'type': 'object', 'properties': {'p': {'anyOf': []}}}"), "tools[0]: p: a property needs a type");
    refuses(c, TOOL("'name': 'f', 'parameters': {'type': 'object', 'properties': {'p': {'type': 'object'}}}"), "tools[0]: p: an object property needs properties");
#define PARAMETERS(p) TOOL("'name': 'f', 'parameters': {'type': 'object', " p "}")
    refuses(c, PARAMETERS("'properties': []"), "tools[0]: f: properties is no object");
    refuses(c, PARAMETERS("'required': {}"), "tools[0]: f: required is no list");
    refuses(c, PARAMETERS("'required': [1]"), "required holds something that is no string");
    refuses(c, PARAMETERS("'properties': {'p': {'type': 'string', 'description': 7}}"), "tools[0]: p: description is no string");
    refuses(c, PARAMETERS("'properties': {'p': {'type': 'array', 'items': {'properties': {}}}}"), "tools[0]: p: items with empty properties");
    refuses(c, PARAMETERS("'properties': {'p': {'type': 'array', 'items': {'type': 7}}}"), "type of the items is neither a string nor a list");
    refuses(c, PARAMETERS("'properties': {'p': {'type': 'array', 'items': {'type': [7]}}}"), "type of the items holds something that is no string");
    refuses(c, TOOL("'name': 'f', 'response': {'type': 'string'}"), "response: expected the type object");
    refuses(c, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': {}}", "tools: expected a list");
    puts("schemas: what is exact is written, the rest is refused by name");
}

static void requests(const struct chat *small, const struct chat *large, const struct chat *gemma3)
{
    writes(large, "{'messages': [{'role': 'user', 'content': 'x'}], 'chat_template_kwargs': {'enable_thinking': true}}", "<bos><|turn>system\n<|think|>\n<turn|>\n");
    writes(small, "{'messages': [{'role': 'user', 'content': 'x'}], 'enable_thinking': false, 'chat_template_kwargs': {'enable_thinking': true}}", "<bos><|turn>user\nx<turn|>\n<|turn>model\n");
    refuses(small, "{'messages': [{'role': 'user', 'content': 'x'}], 'enable_thinking': 1}", "enable_thinking");
    refuses(small, "{'messages': ['x']}", "messages[0]: expected an object with a role and content");
    refuses(small, "{'messages': [{'content': 'x'}]}", "messages[0]: role is no string");
    refuses(small, "{'messages': {}}", "messages: expected a list");
    refuses(small, "{}", "messages: expected a list");
    refuses(small, "[]", "messages: expected a list with at least one message");
    refuses(small, "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}", "content part 0 has no text");
    refuses(small, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'content': 'y', 'reasoning': 7}]}", "reasoning: a text is expected");
    refuses(small, "{'messages': [{'role': 'user', 'content': 7}]}", "content is neither a string nor a list of parts");
    refuses(small, "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}", "content part 0 is of type image: only text is understood");
    refuses(small, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'developer', 'content': 'y'}]}", "role developer is known for the first message only");
    refuses(small, "{'messages': [{'role': 'nurse', 'content': 'x'}]}", "role nurse is unknown: expected system, user, assistant or tool");
    refuses(small, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'system', 'content': 'x', 'reasoning': 'y'}]}", "reasoning belongs to an assistant's message");
    refuses(gemma3, "{'messages': [{'role': 'system', 'content': [{'type': 'image'}]}, {'role': 'user', 'content': 'x'}]}", "a system message whose first part is no text");
    refuses(gemma3, "{'messages': [{'role': 'system'}, {'role': 'user', 'content': 'x'}]}", "a system message without text");
    refuses(gemma3, "{'messages': [{'role': 'system', 'content': 'x'}]}", "a system message alone: its text belongs to a user message");
    refuses(gemma3, "{'messages': [{'role': 'assistant', 'content': 'x'}]}", "role assistant: user and assistant must alternate");
    refuses(gemma3, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'tool', 'content': 'y'}]}", "role tool is unknown to Gemma 3: expected assistant");
    refuses(gemma3, "{'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'tool_calls': [{}]}]}", "messages[1]: tool_calls: Gemma 3's template knows no tools");
    refuses(gemma3, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': [{}]}", "tools: Gemma 3's template knows no tools");
#define OPEN(content) "{'continue_final_message': true, 'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'content': " content "}]}"
    writes(gemma3, OPEN("' y '"), "<start_of_turn>model\ny");
    refuses(gemma3, OPEN("' '"), "a text to continue");
    refuses(small, OPEN("'<|channel>thought\\nhm<channel|>y'"), "continue_final_message with a thought channel in the text");
    refuses(small, "{'continue_final_message': true, 'messages': [{'role': 'user', 'content': 'x'}]}", "continue_final_message needs an assistant's message, not one of role user");
    refuses(small, "{'continue_final_message': true, 'add_generation_prompt': true, 'messages': [{'role': 'user', 'content': 'x'}]}", "continue_final_message and add_generation_prompt exclude each other");
    struct err e;
    char *text = rendered(small, OPEN("'y '"), &e);
    assert(text && strcmp(text, "<bos><|turn>user\nx<turn|>\n<|turn>model\ny") == 0);
    free(text);
    puts("switches, malformed requests, a message to be continued");
}

int main(void)
{
    prog_init("chat");
    struct chat *small = with_template(CHAT_GEMMA4_SMALL), *large = with_template(CHAT_GEMMA4_LARGE), *gemma3 = with_template(CHAT_GEMMA3);
    assert(strcmp(chat_template_id(small), "gemma4-small") == 0 && strcmp(chat_template_id(gemma3), "gemma3") == 0);
    tool_values(small);
    tool_responses(large);
    schemas(small);
    requests(small, large, gemma3);
    chat_free(small);
    chat_free(large);
    chat_free(gemma3);
    return 0;
}
