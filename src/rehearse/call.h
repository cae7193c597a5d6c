/* One request to the account, and the answer in its service's wire format.
 *
 * Owns: what a request is (service, region, operation, its JSON), the shapes of answers and errors:
 *   JSON 1.1   sagemaker, logs, ecr, servicequotas   {"__type", "message"}
 *   REST JSON  runtime, scheduler                    code in x-amzn-ErrorType, {"Message"}
 *   query      sts                                   <ErrorResponse><Error>…
 *   REST XML   s3                                    <Error>…
 * Every answer carries a request id and the account's Date.  A call is answered exactly once; it is gone then.
 */
#ifndef REHEARSE_CALL_H
#define REHEARSE_CALL_H
#include "base/buf.h"
#include "rehearse/world.h"
#include "serve/http.h"

enum wire { WIRE_JSON, WIRE_REST, WIRE_QUERY, WIRE_XML };

struct call {
    struct world *w;
    struct exchange *x;
    enum wire wire;
    char service[32];       /* as in the signature's scope; "runtime" for sagemaker's runtime */
    char region[32];
    char op[64];
    char key_id[64];
    char request_id[37];
    char *path, *query;     /* as sent, still encoded */
    json_t *in;             /* the JSON body, or the form's fields */
    bool lose;              /* the answer is not to arrive */
};

void call_json(struct call *c, json_t *out);        /* steals out; NULL = an empty body */
void call_xml(struct call *c, int status, const struct buf *xml);
void call_error(struct call *c, int status, const char *code, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "ValidationException", 400. */
void call_invalid(struct call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The fields that every answer has; for those who answer by the exchange itself. */
void call_fields(struct call *c);

/* A string member of the request; NULL when absent or no string. */
const char *call_str(const struct call *c, const char *key);
long call_int(const struct call *c, const char *key, long def);

/* A query parameter, decoded, or NULL when absent ("" without a value); freed by the caller. */
char *query_get(const char *query, const char *name);
/* Percent-decoded (and '+' a blank, in forms); freed by the caller. */
char *url_decode(const char *p, size_t n, bool plus);
void xml_escape(struct buf *b, const char *s);
/* The text of the first element NAME in XML, from *at on, which moves behind it; entities decoded.  NULL = no more. */
char *xml_next(const char **at, const char *name);
#endif
