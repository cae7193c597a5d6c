/* Templates of our own, for synthetic models: what the renderers do, in Jinja.  tests/peers/chat_check.py runs them against tests/golden/chat. */
#include "engine/chat.h"

static const char gemma3[] =
    "{{- bos_token -}}\n"
    "{%- if tools -%}{{- raise_exception('no tools') -}}{%- endif -%}\n"
    "{%- set first = 1 if messages[0].role == 'system' else 0 -%}\n"
    "{%- for message in messages[first:] -%}\n"
    "    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('user and assistant must alternate') -}}{%- endif -%}\n"
    "    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' -}}\n"
    "    {%- if loop.first and first -%}\n"
    "        {{- (messages[0].content if messages[0].content is string else messages[0].content[0].text) + '\\n\\n' -}}\n"
    "    {%- endif -%}\n"
    "    {%- for text in ([message.content] if message.content is string else message.content | map(attribute='text')) -%}\n"
    "        {{- text | trim -}}\n"
    "    {%- endfor -%}\n"
    "    {{- '<end_of_turn>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}\n";

#define GEMMA4_BODY \
    "{{- bos_token -}}\n" \
    "{%- if tools -%}{{- raise_exception('no tools') -}}{%- endif -%}\n" \
    "{%- set first = 1 if messages[0].role in ['system', 'developer'] else 0 -%}\n" \
    "{%- if first or enable_thinking -%}\n" \
    "    {{- '<|turn>system\\n' + ('<|think|>\\n' if enable_thinking else '') -}}\n" \
    "    {%- if first and messages[0].content is string -%}\n" \
    "        {{- messages[0].content | trim -}}\n" \
    "    {%- elif first -%}\n" \
    "        {%- for part in messages[0].content -%}{{- (part.text | trim) + ' ' -}}{%- endfor -%}\n" \
    "    {%- endif -%}\n" \
    "    {{- '<turn|>\\n' -}}\n" \
    "{%- endif -%}\n" \
    "{%- for message in messages[first:] -%}\n" \
    "    {%- set model = message.role == 'assistant' -%}\n" \
    "    {%- if not (model and not loop.first and loop.previtem.role == 'assistant') -%}\n" \
    "        {{- '<|turn>' + ('model' if model else message.role) + '\\n' -}}\n" \
    "    {%- endif -%}\n" \
    "    {%- for text in ([message.content] if message.content is string else message.content | map(attribute='text')) -%}\n" \
    "        {%- set kept = namespace(text='') -%}\n" \
    "        {%- for piece in text.split('<channel|>') if model -%}{%- set kept.text = kept.text + piece.split('<|channel>')[0] -%}{%- endfor -%}\n" \
    "        {{- (kept.text if model else text) | trim -}}\n" \
    "    {%- endfor -%}\n" \
    "    {%- if not (model and not loop.last and loop.nextitem.role == 'assistant') -%}{{- '<turn|>\\n' -}}{%- endif -%}\n" \
    "{%- endfor -%}\n" \
    "{%- if add_generation_prompt -%}{{- '<|turn>model\\n' -}}{%- endif -%}\n"

static const char gemma4_small[] = GEMMA4_BODY;
static const char gemma4_large[] =
    GEMMA4_BODY
    "{%- if add_generation_prompt and not enable_thinking -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}\n";

const char *chat_own_template(enum chat_variant v)
{
    return v == CHAT_GEMMA3 ? gemma3 : v == CHAT_GEMMA4_SMALL ? gemma4_small : gemma4_large;
}
