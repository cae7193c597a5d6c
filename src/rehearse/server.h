/* The front: every request to its service, once its signature is right and no fault has struck.
 *
 * Unsigned are only GET /ping (200), AssumeRoleWithWebIdentity, and what hands out keys on this machine: GET /credentials as a container's provider does
 * (AWS_CONTAINER_CREDENTIALS_FULL_URI), and the paths of an instance's metadata service (AWS_EC2_METADATA_SERVICE_ENDPOINT).
 */
#ifndef REHEARSE_SERVER_H
#define REHEARSE_SERVER_H
#include "rehearse/world.h"
#include "serve/http.h"

/* An exchange_handler; arg is the world. */
void server_handle(void *arg, struct exchange *x);
#endif
