#include "aws/sagemaker.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/percent.h"

#define VARIANT "AllTraffic"
#define IMAGE_ACCOUNT "763104351884"
#define IMAGE_REPOSITORY "vllm"
#define SCHEDULE_DAYS 2

static const struct { const char *noun, *name, *arn, *list; } KINDS[] = {
    {"Endpoint", "EndpointName", "EndpointArn", "Endpoints"}, {"EndpointConfig", "EndpointConfigName", "EndpointConfigArn", "EndpointConfigs"},
    {"Model", "ModelName", "ModelArn", "Models"}};

const char *sagemaker_name_field(enum sagemaker_kind kind) { return KINDS[kind].name; }
const char *sagemaker_arn_field(enum sagemaker_kind kind) { return KINDS[kind].arn; }

static void set(json_t *v, const char *key, const char *text) { json_object_set_new(v, key, json_string(text)); }

static void set_tags(json_t *v, const json_t *tags)
{
    if (json_array_size(tags)) json_object_set(v, "Tags", (json_t *)tags);
}

static int call(struct aws_session *s, const char *region, const char *operation, json_t *body, json_t **out, struct aws_fault *f, struct err *e)
{
    char target[80];
    snprintf(target, sizeof target, "SageMaker.%s", operation);
    int bad = aws_json(s, "sagemaker", region, target, body, out, f, e);
    json_decref(body);
    return bad;
}

/* --- creating ------------------------------------------------------------------------------------------------------- */

int sagemaker_create_model(struct aws_session *s, const char *region, const struct sagemaker_model *m, struct aws_fault *f, struct err *e)
{
    json_t *body = json_object(), *container = json_object();
    set(body, "ModelName", m->name);
    set(body, "ExecutionRoleArn", m->role);
    json_object_set_new(body, "PrimaryContainer", container);
    set(container, "Image", m->image);
    if (json_object_size(m->environment)) json_object_set(container, "Environment", (json_t *)m->environment);
    if (m->s3_uri)
        json_object_set_new(container, "ModelDataSource",
            json_pack("{s:{s:s,s:s,s:s}}", "S3DataSource", "S3Uri", m->s3_uri, "S3DataType", "S3Prefix", "CompressionType", "None"));
    set_tags(body, m->tags);
    return call(s, region, "CreateModel", body, NULL, f, e);
}

int sagemaker_create_config(struct aws_session *s, const char *region, const char *name, const struct sagemaker_variant *v, const json_t *tags, struct aws_fault *f,
    struct err *e)
{
    json_t *body = json_object(), *variant = json_object();
    set(body, "EndpointConfigName", name);
    set(variant, "VariantName", VARIANT);
    set(variant, "ModelName", name);
    set(variant, "InstanceType", v->instance);
    json_object_set_new(variant, "InitialInstanceCount", json_integer(1));
    json_object_set_new(variant, "InitialVariantWeight", json_real(1.0));
    json_object_set_new(variant, "ModelDataDownloadTimeoutInSeconds", json_integer(v->download_s));
    json_object_set_new(variant, "ContainerStartupHealthCheckTimeoutInSeconds", json_integer(v->startup_s));
    if (v->ami) set(variant, "InferenceAmiVersion", v->ami);
    json_object_set_new(body, "ProductionVariants", json_pack("[o]", variant));
    set_tags(body, tags);
    return call(s, region, "CreateEndpointConfig", body, NULL, f, e);
}

int sagemaker_create_endpoint(struct aws_session *s, const char *region, const char *name, const json_t *tags, struct aws_fault *f, struct err *e)
{
    json_t *body = json_object();
    set(body, "EndpointName", name);
    set(body, "EndpointConfigName", name);
    set_tags(body, tags);
    return call(s, region, "CreateEndpoint", body, NULL, f, e);
}

/* --- looking and deleting ------------------------------------------------------------------------------------------- */

static json_t *named(enum sagemaker_kind kind, const char *name)
{
    json_t *body = json_object();
    set(body, KINDS[kind].name, name);
    return body;
}

int sagemaker_describe(struct aws_session *s, const char *region, enum sagemaker_kind kind, const char *name, json_t **v, struct aws_fault *f, struct err *e)
{
    char operation[40];
    struct aws_fault mine;
    struct err fault = {0};
    if (!f) f = &mine;
    snprintf(operation, sizeof operation, "Describe%s", KINDS[kind].noun);
    if (!call(s, region, operation, named(kind, name), v, f, &fault)) return *v ? 0 : err_set(e, EXIT_DATA, "%s: the answer is empty", operation);
    *v = NULL;
    return aws_fault_is_gone(f) ? 0 : err_set(e, fault.code, "%s", fault.msg);
}

int sagemaker_delete(struct aws_session *s, const char *region, enum sagemaker_kind kind, const char *name, struct aws_fault *f, struct err *e)
{
    char operation[40];
    snprintf(operation, sizeof operation, "Delete%s", KINDS[kind].noun);
    return call(s, region, operation, named(kind, name), NULL, f, e);
}

int sagemaker_list(struct aws_session *s, const char *region, enum sagemaker_kind kind, json_t **list, struct err *e)
{
    char operation[40], *next = NULL;
    int bad = 0;
    *list = json_array();
    snprintf(operation, sizeof operation, "List%ss", KINDS[kind].noun);
    do {
        json_t *body = json_pack("{s:i}", "MaxResults", 100), *out = NULL;
        if (next) set(body, "NextToken", next);
        bad = call(s, region, operation, body, &out, NULL, e);
        json_array_extend(*list, json_object_get(out, KINDS[kind].list));
        const char *token = json_string_value(json_object_get(out, "NextToken"));
        free(next);
        next = token && !bad ? xstrdup(token) : NULL;
        json_decref(out);
    } while (next);
    if (bad) json_decref(*list);
    return bad;
}

int sagemaker_tag(struct aws_session *s, const char *region, const char *arn, const char *key, char *out, size_t n, bool *found, struct err *e)
{
    json_t *body = json_object(), *answer = NULL, *tag;
    struct aws_fault f;
    struct err fault = {0};
    size_t i;
    *found = false;
    set(body, "ResourceArn", arn);
    if (call(s, region, "ListTags", body, &answer, &f, &fault)) return aws_fault_is_gone(&f) ? 0 : err_set(e, fault.code, "%s", fault.msg);
    json_array_foreach(json_object_get(answer, "Tags"), i, tag) {
        const char *k = json_string_value(json_object_get(tag, "Key")), *value = json_string_value(json_object_get(tag, "Value"));
        if (!k || strcmp(k, key)) continue;
        *found = true;
        snprintf(out, n, "%s", value ? value : "");
    }
    json_decref(answer);
    return 0;
}

/* --- log ------------------------------------------------------------------------------------------------------------ */

int sagemaker_log(struct aws_session *s, const char *region, const char *name, long long since_ms, json_t **events, struct err *e)
{
    char *group = xasprintf("/aws/sagemaker/Endpoints/%s", name), *next = NULL;
    int bad = 0;
    *events = json_array();
    do {
        json_t *body = json_object(), *out = NULL;
        struct aws_fault f = {"", ""};
        struct err fault = {0};
        set(body, "logGroupName", group);
        if (since_ms > 0) json_object_set_new(body, "startTime", json_integer(since_ms));
        json_object_set_new(body, "limit", json_integer(10000));
        if (next) set(body, "nextToken", next);
        if (aws_json(s, "logs", region, "Logs_20140328.FilterLogEvents", body, &out, &f, &fault) && strcmp(f.code, "ResourceNotFoundException"))
            bad = err_set(e, fault.code, "%s", fault.msg);
        json_array_extend(*events, json_object_get(out, "events"));
        const char *token = json_string_value(json_object_get(out, "nextToken"));       /* an empty page may have a token */
        free(next);
        next = token && !bad ? xstrdup(token) : NULL;
        json_decref(body);
        json_decref(out);
    } while (next);
    free(group);
    if (bad) json_decref(*events);
    return bad;
}

/* --- EventBridge Scheduler ------------------------------------------------------------------------------------------ */

static char *schedule_path(const char *name)
{
    struct buf b = BUF_INIT;
    char full[80];
    snprintf(full, sizeof full, "q4sweep-%.55s", name);          /* names end at 64 */
    buf_str(&b, "/schedules/");
    percent_encode(&b, full, strlen(full), "");
    return b.data;
}

/* DELETE and GET have no body; a 404 is no error: *gone. */
static int schedule_call(struct aws_session *s, const char *region, const char *method, const char *name, const char *query, const char *body, struct aws_fault *f,
    struct err *e)
{
    char *path = schedule_path(name);
    struct aws_call c = {.method = method, .path = path, .query = query, .content_type = body ? "application/json" : NULL, .body = body, .body_n = body ? strlen(body) : 0};
    struct aws_answer a = {0};
    int bad = aws_session_call(s, "scheduler", region, &c, &a, e);
    memcpy(f->code, a.code, sizeof f->code);
    memcpy(f->message, a.message, sizeof f->message);
    aws_answer_free(&a);
    free(path);
    return bad;
}

int schedule_delete(struct aws_session *s, const char *region, const char *name, struct err *e)
{
    struct aws_fault f;
    struct err fault = {0};
    char query[120];
    snprintf(query, sizeof query, "groupName=default&clientToken=q4sweep-%lx", (unsigned long)time(NULL));
    if (!schedule_call(s, region, "DELETE", name, query, NULL, &f, &fault) || !strcmp(f.code, "ResourceNotFoundException")) return 0;
    return err_set(e, fault.code, "%s", fault.msg);
}

int schedule_create(struct aws_session *s, const char *region, const char *name, const char *role, time_t expires, struct err *e)
{
    char token[64], *input = xasprintf("{\"EndpointName\":\"%s\"}", name);
    snprintf(token, sizeof token, "q4sweep-%.40s-%lx", name, (unsigned long)expires);
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:{s:s}, s:s, s:{s:s, s:s, s:s}}", "GroupName", "default", "ClientToken", token,
        "ScheduleExpression", "rate(5 minutes)", "ScheduleExpressionTimezone", "UTC", "StartDate", (json_int_t)expires, "EndDate",
        (json_int_t)expires + SCHEDULE_DAYS * 86400, "FlexibleTimeWindow", "Mode", "OFF", "ActionAfterCompletion", "DELETE", "Target", "Arn",
        "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", "RoleArn", role, "Input", input);
    char *text = aws_json_text(body);
    struct aws_fault f;
    struct err fault = {0};
    int bad = schedule_call(s, region, "POST", name, "", text, &f, &fault);
    if (bad && !strcmp(f.code, "ConflictException")) {          /* of an endpoint that had this name before */
        fault = (struct err){0};
        bad = schedule_delete(s, region, name, &fault) || schedule_call(s, region, "POST", name, "", text, &f, &fault);
    }
    if (bad) err_set(e, fault.code, "%s", fault.msg);
    json_decref(body);
    free(text);
    free(input);
    return bad ? -1 : 0;
}

/* --- quotas --------------------------------------------------------------------------------------------------------- */

int quota_endpoint_usage(struct aws_session *s, const char *region, json_t **quotas, struct err *e)
{
    static const char TAIL[] = " for endpoint usage";
    char *next = NULL;
    int bad = 0;
    *quotas = json_object();
    do {
        json_t *body = json_pack("{s:s, s:i}", "ServiceCode", "sagemaker", "MaxResults", 100), *out = NULL, *q;
        size_t i;
        if (next) set(body, "NextToken", next);
        bad = aws_json(s, "service-quotas", region, "ServiceQuotasV20190624.ListServiceQuotas", body, &out, NULL, e);
        json_array_foreach(json_object_get(out, "Quotas"), i, q) {
            const char *name = json_string_value(json_object_get(q, "QuotaName")), *tail = name ? strstr(name, TAIL) : NULL;
            if (!tail || tail[sizeof TAIL - 1] || strncmp(name, "ml.", 3)) continue;
            json_object_setn_new(*quotas, name, (size_t)(tail - name), json_integer((json_int_t)json_number_value(json_object_get(q, "Value"))));
        }
        const char *token = json_string_value(json_object_get(out, "NextToken"));
        free(next);
        next = token && !bad ? xstrdup(token) : NULL;
        json_decref(body);
        json_decref(out);
    } while (next);
    if (bad) json_decref(*quotas);
    return bad;
}

/* --- images --------------------------------------------------------------------------------------------------------- */

bool image_tag_version(const char *tag, long version[5])
{
    int n = 0, end = 0;
    const char *tail = strstr(tag, "-sagemaker-v");
    if (sscanf(tag, "%ld.%ld.%ld-gpu-%n", &version[0], &version[1], &version[2], &n) != 3 || !n || !tail) return false;
    return sscanf(tail, "-sagemaker-v%ld.%ld%n", &version[3], &version[4], &end) == 2 && !tail[end];
}

static bool is_newer(const long a[5], const long b[5])
{
    for (int i = 0; i < 5; i++)
        if (a[i] != b[i]) return a[i] > b[i];
    return false;
}

static void choose_image(const json_t *details, long best[5], char **digest, char **tag)
{
    size_t i, k;
    json_t *d, *t;
    json_array_foreach((json_t *)details, i, d)
        json_array_foreach(json_object_get(d, "imageTags"), k, t) {
            long version[5];
            const char *name = json_string_value(t), *sha = json_string_value(json_object_get(d, "imageDigest"));
            if (!name || !sha || !image_tag_version(name, version) || !is_newer(version, best)) continue;
            memcpy(best, version, sizeof version);
            free(*digest);
            free(*tag);
            *digest = xstrdup(sha);
            *tag = xstrdup(name);
        }
}

char *image_newest(struct aws_session *s, const char *region, char **tag, struct err *e)
{
    long best[5] = {-1, -1, -1, -1, -1};
    char *next = NULL, *digest = NULL, *image = NULL;
    int bad = 0;
    *tag = NULL;
    do {
        json_t *body = json_pack("{s:s, s:s, s:{s:s}, s:i}", "registryId", IMAGE_ACCOUNT, "repositoryName", IMAGE_REPOSITORY, "filter", "tagStatus", "TAGGED",
            "maxResults", 1000), *out = NULL;
        if (next) set(body, "nextToken", next);
        bad = aws_json(s, "ecr", region, "AmazonEC2ContainerRegistry_V20150921.DescribeImages", body, &out, NULL, e);
        choose_image(json_object_get(out, "imageDetails"), best, &digest, tag);
        const char *token = json_string_value(json_object_get(out, "nextToken"));
        free(next);
        next = token && !bad ? xstrdup(token) : NULL;
        json_decref(body);
        json_decref(out);
    } while (next);
    if (!bad && !digest) err_set(e, EXIT_UNAVAILABLE, "%s has no SageMaker image of vLLM: name one with --image", region);
    else if (!bad) image = xasprintf("%s.dkr.ecr.%s.amazonaws.com/%s@%s", IMAGE_ACCOUNT, region, IMAGE_REPOSITORY, digest);
    free(digest);
    if (!image) {
        free(*tag);
        *tag = NULL;
    }
    return image;
}
