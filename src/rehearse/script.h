/* What a container that fails writes to its log, in vLLM's words (0.30.0, in AWS's container).
 *
 * Owns: the texts, as recorded runs showed them.  {app} and {engine} in them are pids, {clock} "MM-DD HH:MM:SS", {stamp} supervisord's
 * "YYYY-MM-DD HH:MM:SS,mmm", {model} the model's name.
 */
#ifndef REHEARSE_SCRIPT_H
#define REHEARSE_SCRIPT_H
#include "base/buf.h"

struct script_line { double at; const char *text; };        /* at: seconds of the cloud after the start; text NULL ends a script */

/* The lines of a container's first start, before its program's own. */
extern const struct script_line SCRIPT_HEAD[];
extern const struct script_line SCRIPT_SPAWN[], SCRIPT_EXIT[];
/* An engine that was serving and died. */
extern const struct script_line SCRIPT_DIE[];
/* A whole start that served, for the log of an older run. */
extern const struct script_line SCRIPT_SERVED[];
/* A start that fails, by the kind of its error: gpu-out-of-memory, missing-parameter …; NULL = there is none. */
const struct script_line *script_failure(const char *kind);
const char *script_kinds(void);

struct script_names { long app, engine; const char *model; double now; };
/* The text with its names filled in. */
void script_text(struct buf *out, const char *text, const struct script_names *n);
#endif
