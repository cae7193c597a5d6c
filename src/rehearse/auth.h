/* Who calls: signatures of version 4 verified, and refused, as AWS does.
 *
 * Owns: the keys of the account (the user's, and the temporary ones that STS hands out), the rules of a signed request: scope, host and x-amz-* signed,
 * date within five minutes, body as hashed, token right and not expired.
 * The user's key is that of this process's environment (AWS_ACCESS_KEY_ID …), or the documented pair below.
 */
#ifndef REHEARSE_AUTH_H
#define REHEARSE_AUTH_H
#include "rehearse/call.h"

#define DEFAULT_KEY_ID "AKIDEXAMPLE"
#define DEFAULT_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

/* Take the user's key from the environment, which loses it. */
void auth_init(struct world *w);
/* Service and region of the credential scope into c; false when the request carries none. */
bool auth_scope(struct call *c);
/* True = signed by a key of the account.  False: the refusal has been sent. */
bool auth_check(struct call *c) MUST_CHECK;
/* New temporary keys: {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration" (ISO 8601)}; arn is the caller's identity from then on. */
json_t *auth_issue(struct world *w, const char *arn, double lifetime);
/* The identity of a key. */
const char *auth_arn(const struct world *w, const char *key_id);
void iso_time(double t, char out[32]);
#endif
