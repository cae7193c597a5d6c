/* AWS's shared settings: environment, ~/.aws/config and ~/.aws/credentials; regions; where a service is.
 *
 * Owns: the two files' grammar, which profile counts, the precedence of environment and files as the AWS CLI v2 has it.
 * Refuses (EXIT_USAGE): an endpoint override that is neither https nor on a loopback address.
 *
 * Profile: --profile, AWS_PROFILE, AWS_DEFAULT_PROFILE, "default".  Region: AWS_REGION, AWS_DEFAULT_REGION, the profile's.
 * Override: AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, the profile's services section, its endpoint_url; none with AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true.
 */
#ifndef AWS_CONFIG_H
#define AWS_CONFIG_H
#include <stdbool.h>
#include "base/err.h"

struct aws_config;
/* profile NULL = from the environment. */
struct aws_config *aws_config_load(const char *profile, struct err *e) MUST_CHECK;
void aws_config_free(struct aws_config *c);
const char *aws_config_profile(const struct aws_config *c);
/* Is the profile in either file? */
bool aws_config_has_profile(const struct aws_config *c, const char *profile);
/* A key of a profile: in the config file, or in the credentials file; NULL = not there. */
const char *aws_config_get(const struct aws_config *c, const char *profile, const char *key);
const char *aws_config_credential(const struct aws_config *c, const char *profile, const char *key);
/* NULL = none is set. */
const char *aws_config_region(const struct aws_config *c);

/* Base URL of a service ("sagemaker", "sagemaker-runtime", "logs", "ecr", "service-quotas", "sts", "scheduler", "s3"), without a slash at its
 * end; freed by the caller.  *overridden (may be NULL) tells whether it is not AWS's own. */
char *aws_config_url(const struct aws_config *c, const char *service, const char *region, bool *overridden, struct err *e) MUST_CHECK;
/* From now on every service is at this URL, whatever is configured (a journal entry made there); NULL = as configured. */
void aws_config_pin(struct aws_config *c, const char *url);

bool aws_url_is_loopback(const char *url);
bool aws_region_is_valid(const char *region);
bool aws_name_is_valid(const char *name);               /* of an endpoint, config, model */
/* The same of what a user has given: anything else ends the program (64). */
void aws_region_check(const char *region);
void aws_name_check(const char *name);
#endif
