/* Conversations to prompts, as Google's chat templates write them.
 *
 * Owns: the built-in renderers of Gemma 3, Gemma 4 small (E2B, E4B) and Gemma 4 large (12B, 26B, 31B), and the choice among them by the SHA-256 of
 * the template that the model ships (chat_template.jinja, else tokenizer_config.json's chat_template).  A template that the built-ins were not
 * checked against gets the renderer of the model's family and one warning with its hash.
 * Rules: Google's templates published 2026-07-09 (Gemma 4) and Gemma 3's `-it` template, byte for byte.
 * Refuses (EXIT_DATA, naming the message): no messages, roles the template does not know, content parts that are not text, Gemma 3 turns that do
 * not alternate, tools on Gemma 3: whatever a template would drop silently.
 */
#ifndef ENGINE_CHAT_H
#define ENGINE_CHAT_H
#include <jansson.h>
#include "base/buf.h"
#include "base/err.h"
#include "gemma/config.h"

enum chat_variant { CHAT_GEMMA3, CHAT_GEMMA4_SMALL, CHAT_GEMMA4_LARGE };

struct chat;
/* Reads the template of the model directory.  g decides when it is absent or unknown; with g NULL that is EXIT_DATA.  Warns on stderr in both cases. */
struct chat *chat_open(const char *dir, const struct gemma *g, struct err *e) MUST_CHECK;
void chat_free(struct chat *c);                         /* NULL is fine */
enum chat_variant chat_variant(const struct chat *c);   /* the renderer in use */
/* For results: "gemma3", "gemma4-small", "gemma4-large" when the shipped template is one that this renderer was checked against,
 * "unknown:SHA256" when not, "none" when the model ships none. */
const char *chat_template_id(const struct chat *c);

/* Append the prompt, <bos> included, of a request: an object with `messages`, and optional `add_generation_prompt` (default true), `enable_thinking`,
 * `preserve_thinking`, `continue_final_message` (booleans, default false; also looked for in `chat_template_kwargs`), `tools` (OpenAI's form). Other keys are ignored.  On an error
 * out is as before.  Tool arguments may be an object or OpenAI's JSON string. */
int chat_render(const struct chat *c, const json_t *request, struct buf *out, struct err *e) MUST_CHECK;

/* A small Jinja template of our own that renders conversations without tools, reasoning fields and continuation as the variant does: what a synthetic model ships. */
const char *chat_own_template(enum chat_variant v);
#endif
