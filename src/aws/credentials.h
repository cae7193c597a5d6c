/* Who we are: AWS's chain of providers.
 *
 * Owns: the order (environment, assume-role profile, web identity, SSO and `aws login` through the AWS CLI, credentials file, credential_process,
 * config file, container, instance metadata), each one's protocol, and that secrets reach neither argv, messages, nor a core file.
 * Refuses: Authorization values with line ends; a container URL in the clear beyond loopback and the platforms' own addresses.
 * Errors: EXIT_NOPERM, naming what was looked at; EXIT_TEMPFAIL when a provider is there but does not answer.
 */
#ifndef AWS_CREDENTIALS_H
#define AWS_CREDENTIALS_H
#include "aws/config.h"
#include "aws/send.h"

/* explicit_profile: the user named it on the command line, so the environment's keys do not count. */
int aws_credentials_load(struct aws_credentials *c, const struct aws_config *config, bool explicit_profile, struct http_client *http, struct err *e) MUST_CHECK;
#endif
