/* The small services: STS (who am I, temporary keys), Service Quotas, the container registry's list of images. */
#ifndef REHEARSE_ACCOUNT_H
#define REHEARSE_ACCOUNT_H
#include "rehearse/call.h"

void sts_call(struct call *c);
void quotas_call(struct call *c);
void ecr_call(struct call *c);
#endif
