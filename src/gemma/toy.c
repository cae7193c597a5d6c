#include "gemma/toy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

#define SPACE "\u2581"
enum { NEWLINES = 106, SPACES = 136, LONGEST_RUN = 31, BYTES = 238, END_OF_TURN = 106 };
/* Text pieces are TEXT to TEXT_END - 1: the characters, ASCII, the merges' results. */
enum { CHARACTERS = 10, ASCII = 94, MERGES = 405, TEXT = 494, TEXT_END = TEXT + CHARACTERS + ASCII + MERGES };

struct special { int id; const char *text; };

static const struct special common_specials[] = {{0, "<pad>"}, {1, "<eos>"}, {2, "<bos>"}, {3, "<unk>"}, {4, "<mask>"}};
static const struct special gemma4_specials[] = {
    {46, "<|tool>"}, {47, "<tool|>"}, {48, "<|tool_call>"}, {49, "<tool_call|>"}, {50, "<|tool_response>"}, {51, "<tool_response|>"},
    {52, "<|\"|>"}, {98, "<|think|>"}, {100, "<|channel>"}, {101, "<channel|>"}, {105, "<|turn>"}, {END_OF_TURN, "<turn|>"},
};
static const struct special gemma3_specials[] = {{105, "<start_of_turn>"}, {END_OF_TURN, "<end_of_turn>"}};
/* Where the top level of config.json names them. */
static const struct { const char *key, *text; } config_specials[] = {
    {"boi_token_id", "<|image>"}, {"boa_token_id", "<|audio>"}, {"image_token_id", "<|image|>"}, {"audio_token_id", "<|audio|>"},
    {"eoi_token_id", "<image|>"}, {"eoa_token_index", "<audio|>"}, {"video_token_id", "<|video|>"},
};

/* Characters beside ASCII 33 to 126. */
static const char *const characters[CHARACTERS] = {SPACE, "\t", "\u00e4", "\u00e9", "\u00f6", "\u00fc", "\u2013", "\u2019", "\u2026", "\u20ac"};

/* Byte pairs by falling frequency in a page of English, each word with the space before it. */
static const char text_merges[] =
    "▁ t,h e,▁t he,▁ a,▁ w,▁ i,▁ o,r e,h a,n d,▁ s,e r,o u,▁ b,i n,▁ c,▁ f,▁i s,o r,▁a nd,ha t,▁ m,▁ l,▁ n,▁o f,in g,i l,"
    "i t,o m,o n,▁o n,a s,o w,▁ T,▁b e,a l,s e,▁ d,▁ ha,▁T he,▁w or,a r,v e,▁i t,▁t h,▁t hat,k e,l e,s t,▁ W,▁c a,▁i n,l d,"
    "l y,▁ y,▁t o,a n,a y,d e,e t,m e,t er,u m,▁ e,▁ h,▁s e,▁the y,▁w as,▁w e,▁wor d,▁y ou,a in,he r,il l,it h,ke d,l l,"
    "n t,o o,o re,om e,v er,▁ p,▁a n,▁a s,▁n e,▁w he,▁w ill,▁w ith,a d,b er,c h,e n,g h,h i,ha n,i gh,i r,ou ld,q u,r om,"
    "re e,s w,t her,u t,um ber,▁ qu,▁ r,▁ re,▁a re,▁a t,▁f rom,▁m a,▁n umber,▁on e,▁whe n,a nd,a ter,b ou,e p,e st,i de,"
    "i nd,i s,igh t,it al,k ing,n ing,n ow,on g,ow n,p ital,p s,re d,sw er,▁ H,▁ I,▁ g,▁ u,▁W hat,▁b ut,▁c ome,▁ca me,"
    "▁ca pital,▁f l,▁f or,▁ha d,▁ha ve,▁n o,▁on ly,▁s h,▁s he,▁s t,▁t han,▁t i,▁t w,▁the m,▁the re,▁w h,▁w hat,R ep,Rep ly,"
    "a b,a u,a z,al l,ar s,au se,b o,bo d,bod y,bou t,c ause,c e,c k,d d,e ll,e w,est i,esti on,f ore,hi ch,il s,ing s,"
    "k now,k s,k y,nt ain,nt il,o ils,o on,on e,oo d,or ning,ou nd,ou ntain,ou r,ou s,ou se,ous and,ow er,p en,p le,r ing,"
    "r it,r own,s s,u nd,x t,▁ A,▁ P,▁ Reply,▁ S,▁ he,▁ know,▁W hich,▁a bout,▁a l,▁an swer,▁as ked,▁b a,▁b oils,▁b rown,"
    "▁b y,▁be cause,▁be fore,▁c h,▁d ay,▁d o,▁e ve,▁h ouse,▁h ow,▁ha s,▁l e,▁l et,▁l ong,▁l oo,▁m ore,▁m orning,▁m ountain,"
    "▁ma ke,▁ne ver,▁no t,▁o ld,▁o pen,▁o ther,▁p l,▁qu estion,▁qu i,▁r o,▁re ad,▁s ky,▁s oon,▁se e,▁sh ould,▁th ings,"
    "▁th is,▁th ousand,▁ti me,▁tw o,▁u ntil,▁w al,▁w ater,▁w ould,▁w rit,▁we re,B r,Br az,Braz il,C an,E ver,Ever y,F r,"
    "Fr an,Fran ce,G i,Gi ve,L i,Li st,M i,Mi x,N ew,O n,On e,W hat,Y ou,Z e,Ze al,Zeal and,a f,a i,a ind,a me,a t,a ther,"
    "a ve,ab le,ab ly,ai d,aind er,al k,al t,an et,anet s,ar de,ar g,ar k,ar ly,arde n,arg er,as e,as h,as ter,as y,at e,"
    "ay ing,ay s,az y,b ably,b le,bou r,c o,ch in,chin e,co nd,d ay,d re,dd le,de as,dre n,e ars,e d,e g,e l,e nd,e o,"
    "e red,e xt,eg ree,egree s,el ve,ell ing,ell o,elling t,ellingt on,end s,eo ple,ep ends,er ha,erha ps,et her,f t,g ain,"
    "g an,g e,g ether,h ing,ha ir,hair s,han ge,he d,hi nd,hi ps,i ddle,i re,i se,i v,i ver,ide d,il dren,il e,in is,"
    "in ter,inis hed,ir d,ir st,it y,iv ided,j um,jum ps,l ain,l f,l o,l our,l se,le ar,le ase,le ss,lo se,lose d,lour s,"
    "m ainder,m all,m er,m on,n g,n less,n swer,o af,o bably,o lours,o ther,o ve,o x,om an";

/* Pieces by id, owned; NULL = <unusedN>, counted from 0. */
struct vocab { char **piece; int size; };

static void set_piece(struct vocab *v, int id, char *text)
{
    free(v->piece[id]);
    v->piece[id] = text;
}

static char *run_of(const char *s, int n)
{
    struct buf b = BUF_INIT;

    for (int i = 0; i < n; i++)
        buf_str(&b, s);
    return b.data;
}

static void set_specials(struct vocab *v, const struct special *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        set_piece(v, s[i].id, xstrdup(s[i].text));
}

/* The id of a special token that config.json places; -1 = it does not, or outside the vocabulary. */
static int config_special_id(const json_t *config, size_t i, int vocab)
{
    const json_t *id = json_object_get(config, config_specials[i].key);
    return json_is_integer(id) && json_integer_value(id) >= TEXT_END && json_integer_value(id) < vocab ? (int)json_integer_value(id) : -1;
}

static void set_text(struct vocab *v)
{
    int id = TEXT;

    for (int i = 0; i < CHARACTERS; i++)
        set_piece(v, id++, xstrdup(characters[i]));
    for (int c = 33; c < 127; c++)
        set_piece(v, id++, xasprintf("%c", c));
    for (const char *m = text_merges; id < TEXT_END; id++) {
        const int left = (int)strcspn(m, " "), right = (int)strcspn(m + left + 1, ",");
        set_piece(v, id, xasprintf("%.*s%.*s", left, m, right, m + left + 1));
        m += left + 1 + right + 1;
    }
}

static void vocab_fill(struct vocab *v, const json_t *config, const struct gemma *g)
{
    v->size = g->vocab;
    v->piece = xcalloc((size_t)v->size, sizeof *v->piece);
    set_specials(v, common_specials, sizeof common_specials / sizeof *common_specials);
    if (g->family == GEMMA_4)
        set_specials(v, gemma4_specials, sizeof gemma4_specials / sizeof *gemma4_specials);
    else
        set_specials(v, gemma3_specials, sizeof gemma3_specials / sizeof *gemma3_specials);
    for (int n = 1; n <= LONGEST_RUN; n++)
        set_piece(v, NEWLINES + n, run_of("\n", n));
    for (int n = 2; n <= LONGEST_RUN; n++)
        set_piece(v, SPACES + n, run_of(SPACE, n));
    for (int b = 0; b < 256; b++)
        set_piece(v, BYTES + b, xasprintf("<0x%02X>", (unsigned)b));
    set_text(v);
    for (size_t i = 0; i < sizeof config_specials / sizeof *config_specials; i++)
        if (config_special_id(config, i, v->size) >= 0)
            set_piece(v, config_special_id(config, i, v->size), xstrdup(config_specials[i].text));
}

static void vocab_free(struct vocab *v)
{
    for (int id = 0; id < v->size; id++)
        free(v->piece[id]);
    free(v->piece);
}

bool toy_speaks(const struct gemma *g, int id)
{
    return g->vocab < TOY_MIN_VOCAB || (id >= TEXT && id < TEXT_END) || id == END_OF_TURN || id == NEWLINES + 1;
}

/* ---- tokenizer.json --------------------------------------------------------------------------------------------- */

/* A JSON string; the pieces are UTF-8 whose only control characters are tab and newline. */
static void add_quoted(struct buf *b, const char *s)
{
    buf_char(b, '"');
    for (; *s; s++)
        if (*s == '\n')
            buf_str(b, "\\n");
        else if (*s == '\t')
            buf_str(b, "\\t");
        else {
            if (*s == '"' || *s == '\\')
                buf_char(b, '\\');
            buf_char(b, *s);
        }
    buf_char(b, '"');
}

static void add_token(struct buf *b, int id, const char *text, bool *first)
{
    buf_printf(b, "%s\n    {\"id\": %d, \"content\": ", *first ? "" : ",", id);
    *first = false;
    add_quoted(b, text);
    buf_str(b, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
}

static bool is_special(const struct vocab *v, int id, const json_t *config)
{
    for (size_t i = 0; i < sizeof config_specials / sizeof *config_specials; i++)
        if (config_special_id(config, i, v->size) == id)
            return true;
    return id <= END_OF_TURN && v->piece[id];
}

static void add_merge(struct buf *b, const char *left, const char *right, bool *first)
{
    buf_str(b, *first ? "\n      [" : ",\n      [");
    *first = false;
    add_quoted(b, left);
    buf_str(b, ", ");
    add_quoted(b, right);
    buf_char(b, ']');
}

/* Every split of a run, shorter runs first: so a run of any length up to the longest ends as one piece. */
static void add_run_merges(struct buf *b, const char *s, bool *first)
{
    for (int n = 2; n <= LONGEST_RUN; n++)
        for (int left = 1; left < n; left++) {
            char *l = run_of(s, left), *r = run_of(s, n - left);
            add_merge(b, l, r, first);
            free(l);
            free(r);
        }
}

static void add_text_merges(struct buf *b, bool *first)
{
    char *list = xstrdup(text_merges), *save = NULL;

    for (char *m = strtok_r(list, ",", &save); m; m = strtok_r(NULL, ",", &save)) {
        char *right = strchr(m, ' ');
        *right++ = 0;
        add_merge(b, m, right, first);
    }
    free(list);
}

/* Gemma 3's puts <bos> before every text; Gemma 4's -it adds nothing. */
static const char *post_processor(const struct gemma *g)
{
    return g->family == GEMMA_3
        ? "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
          " \"pair\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},"
          " {\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 1}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],"
          " \"special_tokens\": {\"<bos>\": {\"id\": \"<bos>\", \"ids\": [2], \"tokens\": [\"<bos>\"]}}}"
        : "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],"
          " \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {}}";
}

static void tokenizer_json(struct buf *b, const struct vocab *v, const json_t *config, const struct gemma *g)
{
    bool first = true;

    buf_str(b, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    for (int id = 0; id < v->size; id++)
        if (is_special(v, id, config))
            add_token(b, id, v->piece[id], &first);
    buf_str(b, "\n  ],\n  \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"},\n"
               "  \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": \"MergedWithPrevious\", \"invert\": false},\n");
    buf_printf(b, "  \"post_processor\": %s,\n", post_processor(g));
    buf_str(b, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE "\"}, \"content\": \" \"},"
               " {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]},\n"
               "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": \"<unk>\",\n    \"continuing_subword_prefix\": null,\n"
               "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": true,\n    \"byte_fallback\": true,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    for (int id = 0, unused = 0; id < v->size; id++) {
        buf_str(b, id ? ",\n      " : "\n      ");
        if (v->piece[id])
            add_quoted(b, v->piece[id]);
        else
            buf_printf(b, "\"<unused%d>\"", unused++);
        buf_printf(b, ": %d", id);
    }
    buf_str(b, "\n    },\n    \"merges\": [");
    first = true;
    add_run_merges(b, "\n", &first);
    add_run_merges(b, SPACE, &first);
    add_text_merges(b, &first);
    buf_str(b, "\n    ]\n  }\n}\n");
}

/* ---- the other files -------------------------------------------------------------------------------------------- */

static json_t *generation_config(const json_t *config, const struct gemma *g)
{
    json_t *eos = g->family == GEMMA_3 ? json_pack("[i, i]", 1, END_OF_TURN) : json_pack("[i, i, i]", 1, END_OF_TURN, 50);
    const char *version = json_string_value(json_object_get(config, "transformers_version"));
    json_t *out = json_pack("{s:i, s:b, s:o, s:i, s:f, s:i, s:f, s:s}", "bos_token_id", 2, "do_sample", 1, "eos_token_id", eos, "pad_token_id", 0,
                            "temperature", 1.0, "top_k", 64, "top_p", 0.95, "transformers_version", version ? version : "5.5.0.dev0");
    json_t *audio_end = json_object_get(config, "eoa_token_index"), *image_end = json_object_get(config, "eoi_token_id");

    if (g->unified && audio_end && image_end)
        json_object_set_new(out, "suppress_tokens", json_pack("[O, O]", audio_end, image_end));
    return out;
}

static json_t *tokenizer_config(const struct gemma *g)
{
    return json_pack("{s:s, s:b, s:s, s:I, s:s, s:b, s:s, s:s}", "bos_token", "<bos>", "clean_up_tokenization_spaces", 0, "eos_token", "<eos>",
                     "model_max_length", (json_int_t)g->max_positions, "pad_token", "<pad>", "spaces_between_special_tokens", 0,
                     "tokenizer_class", "PreTrainedTokenizerFast", "unk_token", "<unk>");
}

static void add_file(struct toy_file *out, size_t *n, const char *name, char *data, size_t size)
{
    out[(*n)++] = (struct toy_file){name, data, size};
}

static void add_json(struct toy_file *out, size_t *n, const char *name, json_t *v)
{
    char *text = json_text_indented(v);

    add_file(out, n, name, text, strlen(text));
    json_decref(v);
}

size_t toy_files(const json_t *config, const struct gemma *g, const char *chat_template, struct toy_file out[TOY_MAX_FILES])
{
    const bool speaks = g->vocab >= TOY_MIN_VOCAB;
    size_t n = 0;

    if (speaks)
        add_file(out, &n, "chat_template.jinja", xstrdup(chat_template), strlen(chat_template));
    add_json(out, &n, "generation_config.json", generation_config(config, g));
    if (json_is_object(json_object_get(config, "vision_config")))
        add_json(out, &n, "processor_config.json", json_pack("{s:s}", "processor_class", g->unified ? "Gemma4UnifiedProcessor" : "Gemma4Processor"));
    if (speaks) {
        struct vocab v;
        struct buf b = BUF_INIT;
        vocab_fill(&v, config, g);
        tokenizer_json(&b, &v, config, g);
        vocab_free(&v);
        add_file(out, &n, "tokenizer.json", b.data, b.n);
        add_json(out, &n, "tokenizer_config.json", tokenizer_config(g));
    }
    return n;
}
