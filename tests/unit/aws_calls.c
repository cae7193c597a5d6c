/* The requests that we make ourselves, as they arrive at a server: same method, path, query, headers that carry meaning, and body as botocore's
 * (tests/golden/aws/requests.jsonl), and what its canned answers mean to us. */
#include <assert.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include "aws/sagemaker.h"

static json_t *golden[64];
static size_t n_golden;
static struct { struct buf body; char method[16], path[256], query[256], target[128], type[128], accept[128]; const json_t *reply; } seen;

static const json_t *record(const char *id)
{
    for (size_t i = 0; i < n_golden; i++)
        if (!strcmp(json_string_value(json_object_get(golden[i], "id")), id)) return golden[i];
    printf("no record %s\n", id);
    abort();
}

static void copy(char *out, size_t n, const char *text) { snprintf(out, n, "%s", text ? text : ""); }

static enum MHD_Result add_query(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)arg, (void)kind;
    size_t n = strlen(seen.query);
    snprintf(seen.query + n, sizeof seen.query - n, "%s%s=%s", n ? "&" : "", key, value ? value : "");
    return MHD_YES;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url, const char *method, const char *version, const char *data, size_t *n, void **state)
{
    static char begun;
    (void)arg, (void)version;
    if (!*state) {
        *state = &begun;
        seen.body.n = 0;
        seen.query[0] = 0;
        return MHD_YES;
    }
    if (*n) {
        buf_add(&seen.body, data, *n);
        *n = 0;
        return MHD_YES;
    }
    copy(seen.method, sizeof seen.method, method);
    copy(seen.path, sizeof seen.path, url);
    copy(seen.target, sizeof seen.target, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "X-Amz-Target"));
    copy(seen.type, sizeof seen.type, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Type"));
    copy(seen.accept, sizeof seen.accept, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "X-Amzn-SageMaker-Accept"));
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, add_query, NULL);
    const char *text = json_string_value(json_object_get(seen.reply, "body")), *key;
    json_t *value;
    struct MHD_Response *r = MHD_create_response_from_buffer(text ? strlen(text) : 0, (void *)(text ? text : ""), MHD_RESPMEM_PERSISTENT);
    json_object_foreach(json_object_get(seen.reply, "headers"), key, value) MHD_add_response_header(r, key, json_string_value(value));
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)json_integer_value(json_object_get(seen.reply, "status")), r);
    MHD_destroy_response(r);
    return ok;
}

static const char *header(const json_t *q, const char *name)
{
    const json_t *h;
    size_t i;
    json_array_foreach(json_object_get(q, "headers"), i, h)
        if (!strcmp(json_string_value(json_array_get(h, 0)), name)) return json_string_value(json_array_get(h, 1));
    return "";
}

/* The next answer is this record's. */
static void expect(const char *id) { seen.reply = json_object_get(record(id), "reply"); }

static void same(const char *id)
{
    const json_t *q = json_object_get(record(id), "request");
    const char *body = json_string_value(json_object_get(q, "body"));
    buf_char(&seen.body, 0);
    if (strcmp(seen.body.data, body ? body : "")) printf("%s: expected\n%s\ngot\n%s\n", id, body ? body : "", seen.body.data);
    assert(!strcmp(seen.body.data, body ? body : ""));
    assert(!strcmp(seen.method, json_string_value(json_object_get(q, "method"))) && !strcmp(seen.path, json_string_value(json_object_get(q, "path"))));
    assert(!strcmp(seen.target, header(q, "X-Amz-Target")) && !strcmp(seen.type, header(q, "Content-Type")));
    assert(!strcmp(seen.accept, header(q, "X-Amzn-SageMaker-Accept")));
    printf("%s\n", id);
}

#define R "us-east-1"
#define N "q4-e2b-emb4"

static void creating(struct aws_session *s)
{
    struct aws_fault f;
    struct err e = {0};
    json_t *tags = json_pack("[{s:s, s:s}]", "Key", "q4sweep", "Value", "1"), *env = json_pack("{s:s}", "SM_VLLM_MAX_MODEL_LEN", "4096");
    struct sagemaker_model m = {N, "arn:aws:iam::123456789012:role/q4sweep", "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:x", env, "s3://q4-models/e2b/", tags};
    struct sagemaker_variant v = {"ml.g6.xlarge", NULL, 1800, 1800};
    expect("boto3/sagemaker/create-model");
    assert(!sagemaker_create_model(s, R, &m, &f, &e));
    same("boto3/sagemaker/create-model");
    expect("boto3/sagemaker/create-endpoint-config");
    assert(!sagemaker_create_config(s, R, N, &v, NULL, &f, &e));
    same("boto3/sagemaker/create-endpoint-config");
    expect("boto3/sagemaker/create-endpoint");
    assert(!sagemaker_create_endpoint(s, R, N, tags, &f, &e));
    same("boto3/sagemaker/create-endpoint");
    expect("boto3/sagemaker/create-endpoint/exists");
    assert(sagemaker_create_endpoint(s, R, N, NULL, &f, &e) && aws_fault_exists(&f) && !aws_fault_is_gone(&f));
    same("boto3/sagemaker/create-endpoint/exists");
    e = (struct err){0};
    expect("boto3/sagemaker/create-endpoint/quota");
    assert(sagemaker_create_endpoint(s, R, N, NULL, &f, &e) && aws_fault_is_quota(&f) && e.code == EXIT_UNAVAILABLE);
    e = (struct err){0};
    s->tries = 1;
    expect("boto3/sagemaker/create-endpoint/throttled");
    assert(sagemaker_create_endpoint(s, R, N, NULL, &f, &e) && e.code == EXIT_TEMPFAIL);
    json_decref(tags);
    json_decref(env);
}

static void looking(struct aws_session *s)
{
    struct aws_fault f;
    struct err e = {0};
    json_t *v = NULL;
    char value[16];
    bool found;
    expect("boto3/sagemaker/describe-endpoint");
    assert(!sagemaker_describe(s, R, SAGEMAKER_ENDPOINT, N, &v, &f, &e) && v);
    assert(!strcmp(json_string_value(json_object_get(v, "EndpointStatus")), "InService"));
    json_decref(v);
    same("boto3/sagemaker/describe-endpoint");
    expect("boto3/sagemaker/describe-endpoint/gone");
    assert(!sagemaker_describe(s, R, SAGEMAKER_ENDPOINT, N, &v, &f, &e) && !v);
    expect("boto3/sagemaker/describe-endpoint-config/gone");
    assert(!sagemaker_describe(s, R, SAGEMAKER_CONFIG, N, &v, &f, &e) && !v);
    same("boto3/sagemaker/describe-endpoint-config/gone");
    expect("boto3/sagemaker/describe-endpoint/expired");
    assert(sagemaker_describe(s, R, SAGEMAKER_ENDPOINT, N, &v, &f, &e) && e.code == EXIT_NOPERM && aws_fault_is_denied(&f));
    expect("boto3/sagemaker/list-tags");
    assert(!sagemaker_tag(s, R, "arn:aws:sagemaker:us-east-1:123456789012:endpoint/" N, "q4sweep", value, sizeof value, &found, &e) && found && !strcmp(value, "1"));
    same("boto3/sagemaker/list-tags");
}

static void deleting(struct aws_session *s)
{
    struct aws_fault f;
    struct err e = {0};
    static const char *const IDS[] = {"boto3/sagemaker/delete-endpoint", "boto3/sagemaker/delete-endpoint-config", "boto3/sagemaker/delete-model"};
    for (int kind = SAGEMAKER_ENDPOINT; kind <= SAGEMAKER_MODEL; kind++) {
        expect(IDS[kind]);
        assert(!sagemaker_delete(s, R, (enum sagemaker_kind)kind, N, &f, &e));
        same(IDS[kind]);
    }
    expect("boto3/sagemaker/delete-endpoint/busy");
    assert(sagemaker_delete(s, R, SAGEMAKER_ENDPOINT, N, &f, &e) && aws_fault_is_busy(&f) && !aws_fault_is_gone(&f));
}

static void others(struct aws_session *s)
{
    struct err e = {0};
    json_t *v = NULL;
    char *tag;
    expect("boto3/logs/filter-log-events/last");
    assert(!sagemaker_log(s, R, N, 1772600767000, &v, &e) && json_array_size(v) == 1);
    same("boto3/logs/filter-log-events");               /* the first page asks without a token */
    json_decref(v);
    expect("boto3/logs/filter-log-events/no-group");
    assert(!sagemaker_log(s, R, N, 0, &v, &e) && json_array_size(v) == 0);
    json_decref(v);
    expect("boto3/ecr/describe-images");
    char *image = image_newest(s, R, &tag, &e);
    assert(image && strstr(image, "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm@sha256:0000") && !strcmp(tag, "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.1"));
    same("boto3/ecr/describe-images");
    free(image);
    free(tag);
    expect("boto3/scheduler/delete-schedule");
    assert(!schedule_delete(s, R, N, &e) && !strcmp(seen.method, "DELETE") && !strcmp(seen.path, "/schedules/q4sweep-" N) && strstr(seen.query, "groupName=default"));
    expect("boto3/scheduler/get-schedule/gone");
    assert(!schedule_delete(s, R, N, &e));
}

static void tags_of_images(void)
{
    long v[5];
    assert(image_tag_version("0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.1", v) && v[1] == 30 && v[4] == 1);
    assert(!image_tag_version("0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker-v1.1-soci", v) && !image_tag_version("omni-0.30.0-gpu-x-sagemaker-v1.1", v));
    assert(!image_tag_version("0.30-gpu-py312-sagemaker-v1", v) && !image_tag_version("0.30.0-gpu-py312-ec2", v));
}

int main(void)
{
    prog_init("aws_calls");
    struct err e = {0};
    char *path = xasprintf("%s/tests/golden/aws/requests.jsonl", getenv("Q4ROOT") ? getenv("Q4ROOT") : "."), url[64];
    struct jsonl *j = jsonl_open(path, &e);
    long line;
    if (!j) die(&e);
    while (jsonl_next(j, &golden[n_golden], &line, &e) == 1) n_golden++;
    jsonl_close(j);
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, NULL, MHD_OPTION_END);
    assert(d);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    setenv("AWS_ENDPOINT_URL", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    struct aws_session s;
    assert(!aws_session_open(&s, NULL, &e));
    creating(&s);
    looking(&s);
    deleting(&s);
    others(&s);
    tags_of_images();
    aws_session_close(&s);
    MHD_stop_daemon(d);
    while (n_golden) json_decref(golden[--n_golden]);
    buf_free(&seen.body);
    free(path);
    return 0;
}
