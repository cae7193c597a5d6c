/* Private to the chat template's files: one conversation on its way to text. */
#ifndef ENGINE_CHAT_RENDER_H
#define ENGINE_CHAT_RENDER_H
#include <jansson.h>
#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"
#include "engine/chat.h"

struct render {
    enum chat_variant variant;
    bool parts_joined;          /* Gemma 3: content parts are joined before they are trimmed, in the system text too */
    const json_t *messages;     /* an array with at least one object, objects only */
    size_t n;
    const json_t *tools;        /* a non-empty array, or NULL */
    bool generation_prompt, think, preserve, open_end;  /* open_end: the last message is to be continued */
    struct buf *out;
    struct err *e;
};

/* What is done to the text of a message. */
enum content_how {
    CONTENT_RAW,                /* as it is, parts joined */
    CONTENT_TRIM,               /* each text trimmed */
    CONTENT_SPACED,             /* each text trimmed; parts (not a plain string) followed by a space each */
    CONTENT_CUT                 /* thought channels removed, then trimmed */
};

/* Fields of message i; NULL when missing or null. */
const json_t *message_field(const struct render *r, size_t i, const char *key);
/* The role; NULL with an error naming the message when it is no string. */
const char *message_role(struct render *r, size_t i) MUST_CHECK;
/* EXIT_DATA, "messages[i]: …".  Returns -1. */
int refuse(struct render *r, size_t i, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Append a message's content: a string, a list of text parts, or nothing.  Refuses everything else. */
int add_content(struct render *r, size_t i, enum content_how how) MUST_CHECK;
void add_trimmed(struct buf *out, const char *text, size_t n);          /* without Python's white space at both ends */
void add_json_string(struct buf *out, const json_t *s);

int render_gemma3(struct render *r) MUST_CHECK;
int render_gemma4(struct render *r) MUST_CHECK;

/* Gemma 4's notation of tools (chat_tools.c). */
int add_tool_declarations(struct render *r) MUST_CHECK;
int add_tool_calls(struct render *r, size_t i) MUST_CHECK;              /* of message i, which has some */
/* The `tool` messages from `first` on that answer message i (up to `end`), or its old-style tool_responses. */
int add_tool_responses(struct render *r, size_t i, size_t first, size_t end) MUST_CHECK;
#endif
