/* EventBridge Scheduler: schedules kept, and fired.
 *
 * Owns: at(…) and rate(…) expressions in UTC, StartDate, EndDate, ActionAfterCompletion; targets aws-sdk:sagemaker:deleteEndpoint, deleteEndpointConfig, deleteModel.
 * Refuses: cron(…), other targets, other time zones.  Moments are those of the account's clock; a rate's period is the cloud's time.
 * A target that is refused is tried again: a rate at its next turn, an at(…) every minute of the cloud until it succeeds.
 */
#ifndef REHEARSE_SCHEDULER_H
#define REHEARSE_SCHEDULER_H
#include "rehearse/call.h"

void scheduler_call(struct call *c);
void scheduler_tick(struct world *w);
#endif
