#include "ct/pattern.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/err.h"

#define PATTERN_MAX 1000        /* longer regexes are not compiled: "cannot decide" */

/* A Python escape as ERE; false: none that both know. */
static bool escape(struct buf *out, char c, bool in_class)
{
    switch (c) {
    case 'd': buf_str(out, in_class ? "0-9" : "[0-9]"); return true;
    case 'w': buf_str(out, in_class ? "A-Za-z0-9_" : "[A-Za-z0-9_]"); return true;
    case 's': buf_str(out, in_class ? " \t\n\r\f\v" : "[ \t\n\r\f\v]"); return true;
    default: break;
    }
    if (!ispunct((unsigned char)c) || (in_class && strchr("\\]^-", c)))
        return false;
    if (!in_class)
        buf_char(out, '\\');
    buf_char(out, c);
    return true;
}

/* A bracket expression starting after '['; advances *s to its ']'. */
static bool bracket(struct buf *out, const char **s)
{
    const char *p = *s;

    buf_char(out, '[');
    if (*p == '^')
        buf_char(out, *p++);
    if (*p == ']')                              /* a literal in both languages, easily meant otherwise */
        return false;
    for (; *p && *p != ']'; p++) {
        if (*p == '[')
            return false;
        if (*p != '\\')
            buf_char(out, *p);
        else if (!*++p || !escape(out, *p, true))
            return false;
    }
    buf_char(out, ']');
    *s = p;
    return *p == ']';
}

/* Python's regex as a POSIX ERE anchored at the start.  false: a construct that the two read differently, or a repeat of
 * repeats, which can take for ever in either. */
static bool translate(const char *s, struct buf *out)
{
    bool quantified = false;                    /* the last thing was * + or ? */
    bool repeats[PATTERN_MAX + 1] = {false};    /* there is one in the group open at this depth */
    bool repeated = false;                      /* the last thing was a group with one in it */
    size_t depth = 0;

    buf_str(out, "^(");
    for (; *s; s++) {
        bool was = quantified, nested = repeated;

        quantified = repeated = false;
        switch (*s) {
        case '\\':
            if (!*++s || !escape(out, *s, false))
                return false;
            break;
        case '[':
            s++;
            if (!bracket(out, &s))
                return false;
            break;
        case '(':
            if (s[1] == '?' && s[2] != ':')
                return false;
            buf_char(out, '(');
            s += s[1] == '?' ? 2 : 0;
            repeats[++depth] = false;
            break;
        case ')':
            if (depth == 0)
                return false;
            repeated = repeats[depth--];
            repeats[depth] |= repeated;
            buf_char(out, ')');
            break;
        case '{':
            return false;
        case '*': case '+': case '?':
            if ((was || nested) && *s != '?')     /* possessive or an error */
                return false;
            repeats[depth] |= *s != '?';
            if (!was)
                buf_char(out, *s);              /* x*? matches when x* does */
            quantified = !was;
            break;
        default:
            buf_char(out, *s);
        }
    }
    buf_char(out, ')');
    return true;
}

/* The ']' of a set that begins after '[', or the text's end.  One that comes first is a member. */
static const char *set_end(const char *s)
{
    s += *s == '^';
    for (s += *s == ']'; *s && *s != ']'; s++)
        s += *s == '\\' && s[1];
    return s;
}

/* What Python's re.error says of a regex that it cannot read at all; NULL: it may be one.  Comments and flags, one of which allows more comments,
 * are not looked into. */
static const char *fault_of(const char *s)
{
    size_t depth = 0;
    bool nothing = true;                        /* that a repeat could be of */

    for (; *s; s++) {
        const bool was = nothing;

        nothing = *s == '(' || *s == '|';
        switch (*s) {
        case '\\':
            if (!*++s)
                return "bad escape (end of pattern)";
            break;
        case '[':
            if (!*(s = set_end(s + 1)))
                return "unterminated character set";
            break;
        case '(':
            depth++;
            if (s[1] == '?' && (s[2] == '#' || islower((unsigned char)s[2])))
                return NULL;
            s += s[1] == '?';
            break;
        case ')':
            if (depth-- == 0)
                return "unbalanced parenthesis";
            break;
        case '*': case '+': case '?':
            if (was)
                return "nothing to repeat";
            break;
        default:
            break;
        }
    }
    return depth ? "missing ), unterminated subpattern" : NULL;
}

void ct_pattern_init(struct ct_pattern *p, const char *text, const char *mapped)
{
    struct buf ere = BUF_INIT;

    memset(p, 0, sizeof *p);
    p->text = xstrdup(text);
    if (strncmp(text, "re:", 3) != 0) {
        p->name = xstrdup(mapped ? mapped : text);
        return;
    }
    p->is_regex = true;
    p->undecidable = strlen(text) > PATTERN_MAX || !translate(text + 3, &ere);
    if (!p->undecidable)
        p->undecidable = xregcomp(&p->re, ere.data) != 0;
    p->broken = p->undecidable ? fault_of(text + 3) : NULL;
    buf_free(&ere);
}

void ct_pattern_free(struct ct_pattern *p)
{
    if (p->is_regex && !p->undecidable)
        regfree(&p->re);
    free(p->text);
    free(p->name);
}

static enum ct_match regex_match(const struct ct_pattern *p, const char *s)
{
    if (p->undecidable)
        return CT_UNDECIDED;
    return xregexec(&p->re, s) ? CT_MATCH : CT_NO_MATCH;
}

enum ct_match ct_pattern_name(const struct ct_pattern *p, const char *name)
{
    if (p->is_regex)
        return regex_match(p, name);
    return strcmp(p->name, name) == 0 ? CT_MATCH : CT_NO_MATCH;
}

static bool contains_nocase(const char *text, const char *part)
{
    size_t n = strlen(part);

    for (; strlen(text) >= n; text++) {
        size_t i = 0;

        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

enum ct_match ct_pattern_class(const struct ct_pattern *p, const char *cls)
{
    if (p->is_regex)
        return regex_match(p, cls);
    return contains_nocase(cls, p->name) ? CT_MATCH : CT_NO_MATCH;
}
