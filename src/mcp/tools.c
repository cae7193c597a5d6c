#include "mcp/tools.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { STRING, CHOICE, INTEGER, NUMBER, BOOLEAN, STRINGS, OBJECTS };

enum place {
    OPTION,             /* --name VALUE; a list is repeated; a boolean is the option alone */
    JOINED,             /* --name A,B */
    OPERAND,            /* after the options, in the table's order */
    SCRIPT,             /* the script of this name in pipelines/ */
    BODY,               /* a field of the one request on stdin */
    LINES,              /* one request a line on stdin */
    ELSEWHERE           /* not part of the command */
};

struct property {
    const char *name;
    enum kind kind;
    enum place place;
    bool required;
    const char *option;         /* "--region" */
    const char *pattern;        /* ERE, and the schema's pattern; the choices of CHOICE: "a|b" */
    const char *preset;         /* what the option gets when it is not given */
    long min, max;              /* of a number; most items of a list */
    const char *about;
};

struct tool {
    const char *name, *title, *program, *about;
    const char *const *fixed;           /* first arguments */
    const struct property *properties;
    const char *confirm;                /* why it needs a yes; NULL = it does not */
    bool read_only, destructive, open_world, may_say_no;
    int (*check)(const json_t *args, struct err *e);
};

/* --- what strings look like: POSIX and JSON Schema read these alike -------------------------------------------------- */

#define ENDPOINT "^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(@[a-z]{2}(-[a-z]+)+-[0-9]{1,2})?$"
#define REGION "^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$"
#define INSTANCE "^ml[.][a-z0-9-]+[.][a-z0-9-]+$"
#define FILE_NAME "^[^-]"
#define URL "^https?://[A-Za-z0-9._:/~%-]+$"
#define MODEL "^(s3://[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._/-]*|[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+)$"
#define PLACE "^(s3|hf)://[A-Za-z0-9][A-Za-z0-9._/-]*$"
#define ROLE "^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$"
#define IMAGE "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
#define DURATION "^([1-9][0-9]{0,5}[smhd]|never)$"
#define VARIABLE "^[A-Za-z_][A-Za-z0-9_]*(=|$)"
#define LABEL "^[A-Za-z0-9][A-Za-z0-9._@+-]*$"
#define PARTS "^[a-z_]+$"

#define STRING_MAX 4096
#define ITEMS_MAX 64
#define TAIL_DEFAULT 200

#define NAME_OPERAND {"name", STRING, OPERAND, true, NULL, ENDPOINT, NULL, 0, 0, "the endpoint: NAME, or NAME@REGION as up prints it"}
#define ONE_REGION {"region", STRING, OPTION, false, "--region", REGION, NULL, 0, 0, "its region; default: of the name, then the configuration's"}
#define MORE_REGIONS {"regions", STRINGS, JOINED, false, "--region", REGION, NULL, 0, 16, "regions; default: the configuration's"}
#define CONFIRM {"confirm", BOOLEAN, ELSEWHERE, true, NULL, NULL, NULL, 0, 0, "true says that this is wanted"}
#define END {NULL, STRING, OPERAND, false, NULL, NULL, NULL, 0, 0, NULL}

static const struct property REPACK[] = {
    {"recipe", CHOICE, SCRIPT, true, NULL, "text|ple4|emb4|fp8|int8|fp8emb4|int8emb4|full", NULL, 0, 0,
        "text: int4 linears, 16-bit embeddings; ple4: int4 per-layer embeddings too; emb4: all int4; fp8, int8: 8-bit linears; full: with towers"},
    {"source", STRING, OPERAND, true, NULL, FILE_NAME, NULL, 0, 0, "checkpoint directory, safetensors file, http(s):// or hf://org/name"},
    {"out", STRING, OPERAND, true, NULL, FILE_NAME, NULL, 0, 0, "the build directory to make; must not exist"},
    {"scale_dtype", CHOICE, OPTION, false, "--scale-dtype", "bf16|f16", NULL, 0, 0, "dtype of int4 scales (bf16); f16 is exact where the engine keeps it"},
    {"dry_run", BOOLEAN, OPTION, false, "--dry-run", NULL, NULL, 0, 0, "say what the build would be, from headers alone"},
    END};

static const struct property CHECK[] = {
    {"build", STRING, OPERAND, true, NULL, FILE_NAME, NULL, 0, 0, "the build directory, local or remote"},
    {"against", STRING, OPTION, false, "--against", FILE_NAME, NULL, 0, 0, "the source: compare every value with it, and record a pass"},
    {"strict", BOOLEAN, OPTION, false, "--strict", NULL, NULL, 0, 0, "untidiness is a no, too"},
    END};

static const struct property PUBLISH[] = {
    {"build", STRING, OPERAND, true, NULL, FILE_NAME, NULL, 0, 0, "the build directory, with its recorded pass of check"},
    {"place", STRING, OPERAND, true, NULL, PLACE, NULL, 0, 0, "s3://BUCKET/PREFIX or hf://ORG/NAME"},
    {"results", STRINGS, OPTION, false, "--results", FILE_NAME, NULL, 0, ITEMS_MAX, "result files whose figures go into the model card"},
    {"region", STRING, OPTION, false, "--region", REGION, NULL, 0, 0, "of the bucket"},
    CONFIRM, END};

static const struct property UP[] = {
    {"name", STRING, OPERAND, true, NULL, "^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$", NULL, 0, 0, "a name for the endpoint"},
    {"model", STRING, OPTION, true, "--model", MODEL, NULL, 0, 0, "ORG/NAME on the Hub, or s3://BUCKET/PREFIX/"},
    {"instances", STRINGS, JOINED, true, "--instance", INSTANCE, NULL, 1, 16, "instance types in order of preference: ml.g6.xlarge"},
    {"regions", STRINGS, JOINED, true, "--region", REGION, NULL, 1, 16, "regions in order of preference: us-east-2"},
    {"role", STRING, OPTION, true, "--role", ROLE, NULL, 0, 0, "ARN of the role that the endpoint runs as"},
    {"image", STRING, OPTION, false, "--image", IMAGE, NULL, 0, 0, "the container; default AWS's newest for vLLM"},
    {"env", STRINGS, OPTION, false, "--env", VARIABLE, NULL, 0, ITEMS_MAX,
        "the container's environment: NAME=VALUE, or NAME alone for the value this server has; what is secret only so"},
    {"expires", STRING, OPTION, false, "--expires", DURATION, "2h", 0, 0, "a schedule deletes it after this long whatever happens: 45m, 2h, 1d, never (2h)"},
    {"no_wait", BOOLEAN, OPTION, false, "--no-wait", NULL, NULL, 0, 0, "return once it is asked for; wait goes on from there"},
    CONFIRM, END};

static const struct property ENDPOINT_ONLY[] = {NAME_OPERAND, ONE_REGION, END};

static const struct property WAIT[] = {
    NAME_OPERAND, ONE_REGION,
    {"timeout", INTEGER, OPTION, false, "--timeout", NULL, NULL, 1, 86400, "seconds; it goes on running when they are over"},
    END};

static const struct property LOGS[] = {
    NAME_OPERAND, ONE_REGION,
    {"lines", INTEGER, ELSEWHERE, false, NULL, NULL, NULL, 1, 100000, "the newest so many lines (200)"},
    END};

static const struct property DELETE[] = {NAME_OPERAND, MORE_REGIONS, CONFIRM, END};

static const struct property REGIONS_ONLY[] = {MORE_REGIONS, END};

static const struct property QUOTA[] = {
    {"instances", STRINGS, JOINED, false, "--instance", INSTANCE, NULL, 0, 16, "types; default: all that the account may have"},
    MORE_REGIONS, END};

static const struct property INVOKE[] = {
    {"endpoint", STRING, OPTION, false, "--endpoint", ENDPOINT, NULL, 0, 0, "a SageMaker endpoint: NAME or NAME@REGION; or"},
    {"url", STRING, OPTION, false, "--url", URL, NULL, 0, 0, "base URL of an OpenAI-compatible server"},
    {"prompt", STRING, BODY, false, NULL, NULL, NULL, 0, 0, "text to go on with; or"},
    {"messages", OBJECTS, BODY, false, NULL, NULL, NULL, 0, 1000, "a conversation as OpenAI's API has it; or"},
    {"requests", OBJECTS, LINES, false, NULL, NULL, NULL, 0, 1000, "whole request bodies, each with an id"},
    {"max_tokens", INTEGER, BODY, false, NULL, NULL, NULL, 1, 1000000, "of prompt or messages"},
    {"temperature", NUMBER, BODY, false, NULL, NULL, NULL, 0, 2, "of prompt or messages"},
    {"seed", INTEGER, BODY, false, NULL, NULL, NULL, 0, 0, "of prompt or messages"},
    {"stream", BOOLEAN, OPTION, false, "--stream", NULL, NULL, 0, 0, "ask for streams, for TTFT and TPOT"},
    {"concurrency", INTEGER, OPTION, false, "--concurrency", NULL, NULL, 1, 256, "requests that run at the same time (1)"},
    {"rate", NUMBER, OPTION, false, "--rate", NULL, NULL, 0, 1000, "or: requests a second, whatever is still running"},
    {"timeout", INTEGER, OPTION, false, "--timeout", NULL, NULL, 1, 86400, "seconds for one request"},
    END};

static const struct property MEASURE[] = {
    {"build", STRING, OPERAND, true, NULL, FILE_NAME, NULL, 0, 0, "the build directory that is served"},
    {"endpoint", STRING, OPTION, false, "--url", ENDPOINT, NULL, 0, 0, "the endpoint that serves it: NAME or NAME@REGION; or"},
    {"url", STRING, OPTION, false, "--url", URL, NULL, 0, 0, "base URL of the server"},
    {"model", STRING, OPTION, true, "--model", LABEL, NULL, 0, 0, "what tables call the model: e2b"},
    {"label", STRING, OPTION, true, "--build", LABEL, NULL, 0, 0, "what tables call the build: emb4"},
    {"result", STRING, OPTION, true, "-o", "^[^-].*[.]json$", NULL, 0, 0, "the result file to write, NAME.json; must not exist"},
    {"target", STRING, OPTION, false, "--target", LABEL, NULL, 0, 0, "what tables call the way it is served (server, sagemaker)"},
    {"parts", STRINGS, JOINED, false, "--parts", PARTS, NULL, 0, 8, "of replies, parallel, questions, ping, stream, prefill, load; default all, on a paid endpoint the first four"},
    {"repeats", INTEGER, OPTION, false, "--repeats", NULL, NULL, 1, 999999, "replies of each length (15; on a paid endpoint 5)"},
    END};

static const struct property TABULATE[] = {
    {"results", STRINGS, OPERAND, true, NULL, FILE_NAME, NULL, 1, ITEMS_MAX, "result files, or directories of them"},
    {"format", CHOICE, OPTION, false, "--format", "md|csv|json|html", NULL, 0, 0, "md unless told otherwise"},
    {"tables", STRINGS, JOINED, false, "--table", PARTS, NULL, 0, 32, "which tables; default all"},
    {"baseline", STRING, OPTION, false, "--baseline", LABEL, NULL, 0, 0, "the build that others are compared with"},
    END};

static const struct property SWEEP_STATUS[] = {
    {"out", STRING, OPERAND, false, NULL, FILE_NAME, NULL, 0, 0, "the sweep's directory; default the server's --out"},
    END};

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int one_of(const json_t *args, const char *const *names, const char *text, struct err *e)
{
    int n = 0;
    for (; *names; names++) n += json_object_get(args, *names) != NULL;
    return n == 1 ? 0 : err_set(e, EXIT_DATA, "exactly one of %s is needed, found %d", text, n);
}

static int check_server(const json_t *args, struct err *e) { return one_of(args, WORDS("endpoint", "url"), "endpoint, url", e); }

static int check_measure(const json_t *args, struct err *e)
{
    const char *result = json_string_value(json_object_get(args, "result"));
    if (check_server(args, e)) return -1;
    return access(result, F_OK) ? 0 : err_set(e, EXIT_DATA, "result: %.200s: exists: name another file", result);
}

static int check_invoke(const json_t *args, struct err *e)
{
    if (check_server(args, e) || one_of(args, WORDS("prompt", "messages", "requests"), "prompt, messages, requests", e)) return -1;
    if (json_object_get(args, "rate") && json_object_get(args, "concurrency")) return err_set(e, EXIT_DATA, "rate is not given together with concurrency");
    for (const char *const *name = WORDS("max_tokens", "temperature", "seed"); *name; name++)
        if (json_object_get(args, "requests") && json_object_get(args, *name)) return err_set(e, EXIT_DATA, "%s: belongs into each of requests", *name);
    return 0;
}

/* Command lines and logs are read by others: a secret goes by its name alone. */
static int check_up(const json_t *args, struct err *e)
{
    static const char *const SECRETS[] = {"TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"};
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(args, "env"), i, v) {
        const char *text = json_string_value(v), *equals = strchr(text, '=');
        char *name = xstrndup(text, equals ? (size_t)(equals - text) : strlen(text));
        char *upper = xstrdup(name);
        for (char *s = upper; *s; s++) *s = (char)toupper((unsigned char)*s);
        bool ours = !strncmp(name, "AWS_", 4), secret = false;
        for (size_t k = 0; equals && k < sizeof SECRETS / sizeof *SECRETS; k++) secret = secret || strstr(upper, SECRETS[k]);
        if (ours) err_set(e, EXIT_DATA, "env: %s: AWS's own variables stay here", name);
        else if (secret) err_set(e, EXIT_DATA, "env: %s: a secret: give its name alone, and set it where this server starts", name);
        free(upper);
        free(name);
        if (ours || secret) return -1;
    }
    return 0;
}

static const struct tool TOOLS[] = {
    {"repack", "Repack a checkpoint", "pipelines", "Make a build from a Gemma QAT checkpoint, without changing a level: a compressed-tensors directory for vLLM and gpu-serve.", NULL, REPACK,
        .open_world = true},
    {"check", "Check a build", "ct-check", "Will vLLM load the build, and with against, is every value its source's?  The answer no comes with the reasons.", WORDS("--json"), CHECK,
        .open_world = true, .may_say_no = true},
    {"publish", "Publish a build", "publish", "Upload a build, with a model card, to S3 or to the Hugging Face Hub, where others may see it.", NULL, PUBLISH,
        .confirm = "publishing stores data that costs money or is public", .destructive = true, .open_world = true},
    {"up", "Bring an endpoint up", "sm-endpoint", "Make a SageMaker endpoint and wait until it serves.  It costs money until it is deleted.  Cancelled half way it is deleted.", WORDS("up", "--json"), UP,
        .confirm = "an endpoint costs money from the moment its instance is placed until it is deleted", .destructive = true, .open_world = true, .check = check_up},
    {"status", "State of an endpoint", "sm-endpoint", "State, age and cost so far of an endpoint.", WORDS("status", "--json"), ENDPOINT_ONLY, .read_only = true, .open_world = true},
    {"wait", "Wait for an endpoint", "sm-endpoint", "Wait until an endpoint serves or has failed.", WORDS("wait", "--json"), WAIT, .read_only = true, .open_world = true},
    {"facts", "Facts of an endpoint", "sm-endpoint", "What the container's log says: memory, K/V tokens, engine, load time, the kind of an error.", WORDS("facts"), ENDPOINT_ONLY,
        .read_only = true, .open_world = true},
    {"logs", "Log of an endpoint", "sm-endpoint", "The container's log, newest lines.", WORDS("logs"), LOGS, .read_only = true, .open_world = true},
    {"invoke", "Ask a model", "sm-invoke", "Send requests to an endpoint or an OpenAI-compatible server; answers with times.", NULL, INVOKE, .open_world = true, .check = check_invoke},
    {"measure", "Measure a served build", "measure", "Time a served build, ask it the 40 questions, write a result file.  Takes minutes.", NULL, MEASURE, .open_world = true, .check = check_measure},
    {"tabulate", "Tables of results", "tabulate", "Comparison tables from result files.", NULL, TABULATE, .read_only = true},
    {"quota", "Endpoint quotas", "sm-endpoint", "How many endpoint instances of each type the account may have.", WORDS("quota", "--json"), QUOTA, .read_only = true, .open_world = true, .may_say_no = true},
    {"image", "vLLM image", "sm-endpoint", "AWS's newest vLLM container in each region.", WORDS("image"), REGIONS_ONLY, .read_only = true, .open_world = true},
    {"list", "What is running", "sm-endpoint", "Endpoints that are alive, with age and cost so far.", WORDS("list", "--json"), REGIONS_ONLY, .read_only = true, .open_world = true},
    {"delete", "Delete an endpoint", "sm-endpoint", "Delete an endpoint, its configuration and its model: the meter stops.", WORDS("delete"), DELETE,
        .confirm = "deleting an endpoint ends its service for everybody", .destructive = true, .open_world = true},
    {"sweep_status", "State of a sweep", "status", "Of each model and build of a sweep: what is done, what runs, what the result is.", NULL, SWEEP_STATUS, .read_only = true},
};
#define TOOLS_N (sizeof TOOLS / sizeof *TOOLS)

/* --- the list ------------------------------------------------------------------------------------------------------- */

static json_t *choices(const char *text)
{
    json_t *list = json_array();
    for (size_t n; *text; text += n + (text[n] == '|')) json_array_append_new(list, json_stringn(text, n = strcspn(text, "|")));
    return list;
}

static json_t *string_schema(const struct property *p)
{
    json_t *v = json_pack("{s:s, s:i}", "type", "string", "maxLength", STRING_MAX);
    if (p->pattern) json_object_set_new(v, "pattern", json_string(p->pattern));
    return v;
}

static json_t *list_schema(const struct property *p)
{
    json_t *items = p->kind == STRINGS ? string_schema(p) : json_pack("{s:s}", "type", "object");
    json_t *v = json_pack("{s:s, s:o, s:i}", "type", "array", "items", items, "minItems", 1);
    json_object_set_new(v, "maxItems", json_integer(p->max));
    return v;
}

static json_t *number_schema(const struct property *p)
{
    json_t *v = json_pack("{s:s}", "type", p->kind == INTEGER ? "integer" : "number");
    if (p->max) json_object_set_new(v, "minimum", json_integer(p->min));
    if (p->max) json_object_set_new(v, "maximum", json_integer(p->max));
    return v;
}

static json_t *property_schema(const struct property *p)
{
    json_t *v = NULL;
    switch (p->kind) {
    case STRING: v = string_schema(p); break;
    case CHOICE: v = json_pack("{s:s, s:o}", "type", "string", "enum", choices(p->pattern)); break;
    case INTEGER:
    case NUMBER: v = number_schema(p); break;
    case BOOLEAN: v = json_pack("{s:s}", "type", "boolean"); break;
    case STRINGS:
    case OBJECTS: v = list_schema(p); break;
    }
    json_object_set_new(v, "description", json_string(p->about));
    return v;
}

static json_t *input_schema(const struct tool *t)
{
    json_t *properties = json_object(), *required = json_array();
    for (const struct property *p = t->properties; p->name; p++) {
        json_object_set_new(properties, p->name, property_schema(p));
        if (p->required) json_array_append_new(required, json_string(p->name));
    }
    json_t *v = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties, "additionalProperties", 0);
    if (json_array_size(required)) json_object_set(v, "required", required);
    json_decref(required);
    return v;
}

json_t *tools_list(void)
{
    json_t *list = json_array();
    for (const struct tool *t = TOOLS; t < TOOLS + TOOLS_N; t++) {
        json_t *hints = json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", t->title, "readOnlyHint", t->read_only, "destructiveHint", t->destructive, "idempotentHint",
            t->read_only || !strcmp(t->name, "delete"), "openWorldHint", t->open_world);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o, s:o}", "name", t->name, "title", t->title, "description", t->about, "inputSchema", input_schema(t), "annotations", hints));
    }
    return list;
}

const struct tool *tool_find(const char *name)
{
    for (const struct tool *t = TOOLS; t < TOOLS + TOOLS_N; t++)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}

/* --- checking ------------------------------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *text)
{
    regex_t re;
    if (xregcomp(&re, pattern)) die_msg(EXIT_BUG, "the pattern %s is none", pattern);
    bool yes = xregexec(&re, text);
    regfree(&re);
    return yes;
}

static int check_string(const struct property *p, const json_t *v, struct err *e)
{
    const char *text = json_string_value(v);
    if (!text) return err_set(e, EXIT_DATA, "%s: a string is expected", p->name);
    if (p->place == BODY) return 0;
    size_t n = json_string_length(v);
    if (n > STRING_MAX) return err_set(e, EXIT_DATA, "%s: has %zu bytes: shorten it to %d", p->name, n, STRING_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 32 || text[i] == 127) return err_set(e, EXIT_DATA, "%s: holds a control character", p->name);
    if (p->pattern && !matches(p->pattern, text)) return err_set(e, EXIT_DATA, "%s: \"%.200s\" does not match %s: %s", p->name, text, p->pattern, p->about);
    return 0;
}

static int check_choice(const struct property *p, const json_t *v, struct err *e)
{
    json_t *list = choices(p->pattern), *one;
    size_t i;
    bool found = false;
    json_array_foreach(list, i, one) found = found || json_equal(one, (json_t *)v);
    json_decref(list);
    return found ? 0 : err_set(e, EXIT_DATA, "%s: takes one of %s", p->name, p->pattern);
}

static int check_number(const struct property *p, const json_t *v, struct err *e)
{
    double x = json_number_value(v);
    bool whole = json_is_integer(v) || (json_is_real(v) && floor(x) == x && fabs(x) < 1e15);
    if (p->kind == INTEGER ? !whole : !json_is_number(v)) return err_set(e, EXIT_DATA, "%s: expected %s", p->name, p->kind == INTEGER ? "an integer" : "a number");
    if (p->max && (x < (double)p->min || x > (double)p->max)) return err_set(e, EXIT_DATA, "%s: expected %ld to %ld", p->name, p->min, p->max);
    return 0;
}

static int check_list(const struct property *p, const json_t *v, struct err *e)
{
    size_t i, n = json_array_size(v);
    json_t *item;
    if (!json_is_array(v) || n < 1 || n > (size_t)p->max) return err_set(e, EXIT_DATA, "%s: expected a list of 1 to %ld", p->name, p->max);
    json_array_foreach((json_t *)v, i, item) {
        if (p->kind == STRINGS ? check_string(p, item, e) : json_is_object(item) ? 0 : err_set(e, EXIT_DATA, "%s: expected a list of objects", p->name)) return -1;
    }
    return 0;
}

static int check_value(const struct property *p, const json_t *v, struct err *e)
{
    switch (p->kind) {
    case STRING: return check_string(p, v, e);
    case CHOICE: return check_choice(p, v, e);
    case INTEGER:
    case NUMBER: return check_number(p, v, e);
    case BOOLEAN: return json_is_boolean(v) ? 0 : err_set(e, EXIT_DATA, "%s: expected true or false", p->name);
    case STRINGS:
    case OBJECTS: return check_list(p, v, e);
    }
    return -1;
}

static const struct property *property_find(const struct tool *t, const char *name)
{
    for (const struct property *p = t->properties; p->name; p++)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}

int tool_check(const struct tool *t, const json_t *args, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)args, key, v) {
        const struct property *p = property_find(t, key);
        if (!p) return err_set(e, EXIT_DATA, "%s: %.100s: there is no such argument", t->name, key);
        if (check_value(p, v, e)) return -1;
    }
    for (const struct property *p = t->properties; p->name; p++)
        if (p->required && p->place != ELSEWHERE && !json_object_get(args, p->name)) return err_set(e, EXIT_DATA, "%s: %s is missing: %s", t->name, p->name, p->about);
    return t->check ? t->check(args, e) : 0;
}

const char *tool_unconfirmed(const struct tool *t, const json_t *args) { return json_is_true(json_object_get(args, "confirm")) ? NULL : t->confirm; }

/* --- commands ------------------------------------------------------------------------------------------------------- */

static void add_value(struct command *c, const json_t *v)
{
    if (json_is_string(v)) command_add(c, "%s", json_string_value(v));
    else if (json_is_integer(v)) command_add(c, "%lld", (long long)json_integer_value(v));
    else command_add(c, "%.15g", json_real_value(v));
}

static void add_joined(struct command *c, const char *option, const json_t *list)
{
    struct buf b = BUF_INIT;
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)list, i, v) buf_printf(&b, "%s%s", i ? "," : "", json_string_value(v));
    command_add(c, "%s", option);
    command_add(c, "%s", b.data);
    buf_free(&b);
}

static void add_option(struct command *c, const struct property *p, const json_t *v)
{
    size_t i;
    json_t *item;
    if (p->kind == BOOLEAN) {
        if (json_is_true(v)) command_add(c, "%s", p->option);
    } else if (p->kind == STRINGS) {
        json_array_foreach((json_t *)v, i, item) {
            command_add(c, "%s", p->option);
            add_value(c, item);
        }
    } else {
        command_add(c, "%s", p->option);
        add_value(c, v);
    }
}

static void add_operands(struct command *c, const json_t *v)
{
    size_t i;
    json_t *item;
    if (!json_is_array(v)) add_value(c, v);
    json_array_foreach((json_t *)v, i, item) add_value(c, item);
}

static void add_line(struct buf *b, const json_t *v)
{
    char *text = json_text(v, false);
    buf_str(b, text);
    buf_char(b, '\n');
    free(text);
}

/* What goes to stdin: the lines, or one request made of the body's fields. */
static void add_input(struct command *c, const struct tool *t, const json_t *args)
{
    json_t *body = json_pack("{s:i}", "id", 1), *item;
    size_t i;
    for (const struct property *p = t->properties; p->name; p++) {
        json_t *v = json_object_get(args, p->name);
        if (p->place == LINES) json_array_foreach(v, i, item) add_line(&c->input, item);
        if (p->place == BODY && v) json_object_set(body, p->name, v);
    }
    if (json_object_size(body) > 1) add_line(&c->input, body);
    json_decref(body);
}

static void add_program(struct command *c, const struct tool *t, const struct places *p, const json_t *args)
{
    static const char *const SCRIPTS[] = {"publish", "measure", "status", NULL};
    const char *program = t->program;
    bool script = !strcmp(program, "pipelines");
    for (const struct property *q = t->properties; script && q->name; q++)
        if (q->place == SCRIPT) program = json_string_value(json_object_get(args, q->name));
    for (const char *const *s = SCRIPTS; *s; s++) script = script || !strcmp(program, *s);
    if (t->properties == UP) {          /* whatever becomes of this server meanwhile, a guard deletes what does not come up */
        static const char *const GUARD[] = {"guard", "--keep", "-q", "--"};
        command_add(c, "%s/%s", p->bin, program);
        for (size_t i = 0; i < sizeof GUARD / sizeof *GUARD; i++) command_add(c, "%s", GUARD[i]);
    }
    command_add(c, "%s/%s", script ? p->pipelines : p->bin, program);
    for (const char *const *word = t->fixed; word && *word; word++) command_add(c, "%s", *word);
}

int tool_command(const struct tool *t, const struct places *p, const json_t *args, struct command *c, struct err *e)
{
    *c = (struct command){0};
    if (tool_check(t, args, e)) return -1;
    add_program(c, t, p, args);
    for (const struct property *q = t->properties; q->name; q++) {
        const json_t *v = json_object_get(args, q->name);
        if (v && q->place == OPTION) add_option(c, q, v);
        if (v && q->place == JOINED) add_joined(c, q->option, v);
        if (!v && q->preset) {
            command_add(c, "%s", q->option);
            command_add(c, "%s", q->preset);
        }
    }
    for (const struct property *q = t->properties; q->name; q++) {
        const json_t *v = json_object_get(args, q->name);
        if (v && q->place == OPERAND) add_operands(c, v);
    }
    if (t->properties == SWEEP_STATUS && !json_object_get(args, "out")) command_add(c, "%s", p->out);
    add_input(c, t, args);
    return 0;
}

bool tool_may_say_no(const struct tool *t) { return t->may_say_no; }

long tool_tail(const struct tool *t, const json_t *args)
{
    if (t->properties != LOGS) return 0;
    const json_t *v = json_object_get(args, "lines");
    return v ? (long)json_number_value(v) : TAIL_DEFAULT;
}
