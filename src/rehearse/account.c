#include "rehearse/account.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "rehearse/auth.h"
#include "rehearse/instances.h"

#define REGISTRY "763104351884"
#define SESSION_SECONDS 3600

/* --- STS ------------------------------------------------------------------------------------------------------------ */

static void begin(struct buf *b, const struct call *c)
{
    buf_printf(b, "<%sResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><%sResult>", c->op, c->op);
}

static void finish(struct buf *b, struct call *c)
{
    buf_printf(b, "</%sResult><ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata></%sResponse>", c->op, c->request_id, c->op);
    call_xml(c, 200, b);
    buf_free(b);
}

static void get_caller_identity(struct call *c)
{
    struct buf b = BUF_INIT;
    begin(&b, c);
    buf_printf(&b, "<Arn>%s</Arn><UserId>AIDAREHEARSAL</UserId><Account>" ACCOUNT "</Account>", auth_arn(c->w, c->key_id));
    finish(&b, c);
}

static void assume_role(struct call *c)
{
    const char *role = call_str(c, "RoleArn"), *session = call_str(c, "RoleSessionName"), *seconds = call_str(c, "DurationSeconds");
    const char *name = role ? strstr(role, ":role/") : NULL;
    struct buf b = BUF_INIT;
    if (!name || !session || strpbrk(role, "<>&\"'") || strpbrk(session, "<>&\"'/ ")) {
        call_error(c, 400, "ValidationError", "RoleArn and RoleSessionName are required");
        return;
    }
    char *arn = xasprintf("arn:aws:sts::" ACCOUNT ":assumed-role/%s/%s", name + 6, session);
    double life = seconds ? strtod(seconds, NULL) : SESSION_SECONDS;
    json_t *k = auth_issue(c->w, arn, life > 0 ? life : SESSION_SECONDS);
    begin(&b, c);
    buf_str(&b, "<Credentials>");
    const char *key;
    json_t *v;
    json_object_foreach(k, key, v) buf_printf(&b, "<%s>%s</%s>", key, json_string_value(v), key);
    buf_printf(&b, "</Credentials><AssumedRoleUser><AssumedRoleId>AROAREHEARSAL:%s</AssumedRoleId><Arn>%s</Arn></AssumedRoleUser>", session, arn);
    finish(&b, c);
    json_decref(k);
    free(arn);
}

void sts_call(struct call *c)
{
    if (!strcmp(c->op, "GetCallerIdentity")) get_caller_identity(c);
    else if (!strcmp(c->op, "AssumeRole") || !strcmp(c->op, "AssumeRoleWithWebIdentity")) assume_role(c);
    else call_error(c, 400, "InvalidAction", "Could not find operation %s for version 2011-06-15", c->op);
}

/* --- Service Quotas ------------------------------------------------------------------------------------------------- */

static const char *const USES[] = {"endpoint usage", "training job usage"};
#define N_USES (sizeof USES / sizeof *USES)

static size_t quota_count(void)
{
    size_t n = 0;
    while (INSTANCE_TYPES[n]) n++;
    return n * N_USES;
}

static json_t *quota_json(struct call *c, size_t i)
{
    const char *type = INSTANCE_TYPES[i / N_USES], *use = USES[i % N_USES];
    char hex[SHA256_HEX], code[16];
    char *name = xasprintf("%s for %s", type, use), *arn;
    sha256_of(name, strlen(name), hex);
    for (char *p = hex; *p; p++)
        if (*p >= 'a') *p = (char)(*p - 'a' + 'A');
    snprintf(code, sizeof code, "L-%.8s", hex);
    arn = xasprintf("arn:aws:servicequotas:%s:" ACCOUNT ":sagemaker/%s", c->region, code);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:s, s:b, s:b}", "ServiceCode", "sagemaker", "ServiceName", "Amazon SageMaker", "QuotaArn", arn, "QuotaCode", code,
        "QuotaName", name, "Value", i % N_USES ? 0.0 : (double)instance_quota(c->w, c->region, type), "Unit", "None", "Adjustable", 1, "GlobalQuota", 0);
    free(name);
    free(arn);
    return o;
}

static void list_quotas(struct call *c)
{
    const char *token = call_str(c, "NextToken"), *service = call_str(c, "ServiceCode");
    size_t at = 0, max = (size_t)call_int(c, "MaxResults", 100), n = quota_count();
    char *end = NULL, next[32];
    if (!service || strcmp(service, "sagemaker")) {
        call_error(c, 400, "NoSuchResourceException", "The request failed because the specified service does not exist.");
        return;
    }
    if (token && !strncmp(token, "n/", 2)) at = strtoul(token + 2, &end, 10);
    if (max < 1 || max > 100 || (token && (!end || *end != '+'))) {
        call_error(c, 400, token ? "InvalidPaginationTokenException" : "IllegalArgumentException", "Invalid NextToken or MaxResults");
        return;
    }
    json_t *list = json_array();
    for (; at < n && json_array_size(list) < max; at++) json_array_append_new(list, quota_json(c, at));
    json_t *out = json_pack("{s:o}", "Quotas", list);
    snprintf(next, sizeof next, "n/%zu+", at);
    if (at < n) json_object_set_new(out, "NextToken", json_string(next));
    call_json(c, out);
}

/* GetServiceQuota, and RequestServiceQuotaIncrease, which stays pending. */
static void one_quota(struct call *c)
{
    const char *code = call_str(c, "QuotaCode");
    for (size_t i = 0, n = quota_count(); code && i < n; i++) {
        json_t *q = quota_json(c, i);
        if (strcmp(json_string_value(json_object_get(q, "QuotaCode")), code)) {
            json_decref(q);
            continue;
        }
        if (!strcmp(c->op, "GetServiceQuota")) {
            call_json(c, json_pack("{s:o}", "Quota", q));
            return;
        }
        json_object_set_new(q, "Id", json_string(c->request_id));
        json_object_set_new(q, "Status", json_string("PENDING"));
        json_object_set(q, "DesiredValue", json_object_get(c->in, "DesiredValue"));
        json_object_set_new(q, "Created", world_time(world_now(c->w)));
        json_object_del(q, "Value");
        call_json(c, json_pack("{s:o}", "RequestedQuota", q));
        return;
    }
    call_error(c, 400, "NoSuchResourceException", "The request failed because the specified quota does not exist.");
}

void quotas_call(struct call *c)
{
    if (!strcmp(c->op, "ListServiceQuotas")) list_quotas(c);
    else if (!strcmp(c->op, "GetServiceQuota") || !strcmp(c->op, "RequestServiceQuotaIncrease")) one_quota(c);
    else call_error(c, 400, "UnknownOperationException", "The operation %s is not supported here", c->op);
}

/* --- ECR ------------------------------------------------------------------------------------------------------------ */

/* Not in the order of versions, with the tags beside the wanted ones that a chooser must pass over. */
static const char *const IMAGES[] = {"0.29.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.4", "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.0",
    "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.1", "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.1-soci", "omni-0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.0",
    "0.30-gpu-py312-cu130-ubuntu24.04-sagemaker", "0.30.0-gpu-py312-cu130-ubuntu24.04-ec2-v1.1", "0.26.1-gpu-py312-cu129-ubuntu22.04-sagemaker-v1.2"};
#define N_IMAGES (sizeof IMAGES / sizeof *IMAGES)

static json_t *image_json(size_t i)
{
    char hex[SHA256_HEX];
    sha256_of(IMAGES[i], strlen(IMAGES[i]), hex);
    char *digest = xasprintf("sha256:%s", hex);
    json_t *o = json_pack("{s:s, s:s, s:s, s:[s], s:I, s:f}", "registryId", REGISTRY, "repositoryName", "vllm", "imageDigest", digest, "imageTags", IMAGES[i], "imageSizeInBytes",
        (json_int_t)9000000000, "imagePushedAt", 1772600000.0 - 86400.0 * (double)(i * 7 % N_IMAGES));
    free(digest);
    return o;
}

static void describe_images(struct call *c)
{
    const char *registry = call_str(c, "registryId"), *repository = call_str(c, "repositoryName"), *token = call_str(c, "nextToken");
    size_t at = token ? strtoul(token, NULL, 10) : 0, max = (size_t)call_int(c, "maxResults", 100);
    char next[24];
    if (!repository || strcmp(repository, "vllm") || !registry || strcmp(registry, REGISTRY)) {
        call_error(c, 400, "RepositoryNotFoundException", "The repository with name '%s' does not exist in the registry with id '%s'", repository ? repository : "",
            registry ? registry : ACCOUNT);
        return;
    }
    json_t *list = json_array();
    for (; at < N_IMAGES && json_array_size(list) < max; at++) json_array_append_new(list, image_json(at));
    json_t *out = json_pack("{s:o}", "imageDetails", list);
    snprintf(next, sizeof next, "%zu", at);
    if (at < N_IMAGES) json_object_set_new(out, "nextToken", json_string(next));
    call_json(c, out);
}

void ecr_call(struct call *c)
{
    if (!strcmp(c->op, "DescribeImages")) describe_images(c);
    else call_error(c, 400, "UnknownOperationException", "The operation %s is not supported here", c->op);
}
