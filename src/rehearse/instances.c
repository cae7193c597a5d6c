#include "rehearse/instances.h"

#include <string.h>
#include "rehearse/faults.h"

#define QUOTA 4                 /* of an account that has asked for it; new accounts have 0 for most GPUs */

const char *const INSTANCE_TYPES[] = {"ml.c5.large", "ml.c5.xlarge", "ml.c5.2xlarge", "ml.c6i.large", "ml.c6i.xlarge", "ml.c7i.large", "ml.c7i.xlarge",
    "ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.4xlarge", "ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g4dn.16xlarge", "ml.g5.xlarge", "ml.g5.2xlarge",
    "ml.g5.4xlarge", "ml.g5.8xlarge", "ml.g5.12xlarge", "ml.g5.16xlarge", "ml.g5.24xlarge", "ml.g5.48xlarge", "ml.g6.xlarge", "ml.g6.2xlarge", "ml.g6.4xlarge",
    "ml.g6.8xlarge", "ml.g6.12xlarge", "ml.g6.16xlarge", "ml.g6.24xlarge", "ml.g6.48xlarge", "ml.g6e.xlarge", "ml.g6e.2xlarge", "ml.g6e.4xlarge", "ml.g6e.8xlarge",
    "ml.g6e.12xlarge", "ml.g6e.16xlarge", "ml.g6e.24xlarge", "ml.g6e.48xlarge", "ml.g7e.2xlarge", "ml.g7e.4xlarge", "ml.g7e.8xlarge", "ml.g7e.12xlarge",
    "ml.g7e.24xlarge", "ml.g7e.48xlarge", "ml.m5.large", "ml.m5.xlarge", "ml.m5.2xlarge", "ml.m6i.large", "ml.m6i.xlarge", "ml.p3.2xlarge", "ml.p4d.24xlarge",
    "ml.p4de.24xlarge", "ml.p5.4xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.t2.medium", "ml.t2.large", NULL};

bool instance_known(const char *type)
{
    for (const char *const *p = INSTANCE_TYPES; *p; p++)
        if (!strcmp(*p, type)) return true;
    return false;
}

long instance_quota(struct world *w, const char *region, const char *type)
{
    const struct fault *f = faults_find(w, "quota", region, type, NULL);
    if (f) return f->limit;
    return faults_find(w, "quota-pool", region, type, NULL) ? 1 : QUOTA;
}
