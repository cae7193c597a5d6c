/* Results and reports as resources: what lies in the output directory and in the published study, under URIs of our own.
 *
 *   q4sweep:///results/MODEL/BUILD.json     OUT/MODEL/BUILD.json, the newest result of each build; MODEL/table.md, the sweep's table
 *   q4sweep:///report/report.md, .html      OUT/report, as make report leaves it
 *   q4sweep:///published/NAME.json          the published study as result files
 *
 * Owns: the listing and the reading.  A URI is read only when the listing has it, so that none leads anywhere else.
 */
#ifndef MCP_FILES_H
#define MCP_FILES_H
#include "base/json.h"
#include "mcp/tools.h"

#define FILES_MAX ((size_t)16 << 20)    /* a larger file is not given out */

/* The answer to resources/list: an array, in the order of the URIs within each kind. */
json_t *files_list(const struct places *p);
/* The contents of a resource as resources/read gives them; NULL: EXIT_NOINPUT when there is no such resource. */
json_t *files_read(const struct places *p, const char *uri, struct err *e) MUST_CHECK;
#endif
