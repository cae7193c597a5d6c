/* The calls that deploying an endpoint takes: SageMaker's control plane, its log group, EventBridge Scheduler, quotas, images.
 *
 * Owns: the request bodies, field for field and in the order in which botocore writes them; paging; which answers mean "not there".
 * An endpoint NAME has a config NAME and a model NAME.
 */
#ifndef AWS_SAGEMAKER_H
#define AWS_SAGEMAKER_H
#include "aws/session.h"

struct sagemaker_model {
    const char *name, *role, *image;
    const json_t *environment;          /* object of strings */
    const char *s3_uri;                 /* prefix with the model's files, ending in '/'; NULL = none */
    const json_t *tags;                 /* [{Key, Value}] */
};
struct sagemaker_variant {
    const char *instance;
    const char *ami;                    /* InferenceAmiVersion, NULL = AWS's default */
    long startup_s, download_s;         /* time limits */
};
int sagemaker_create_model(struct aws_session *s, const char *region, const struct sagemaker_model *m, struct aws_fault *f, struct err *e) MUST_CHECK;
int sagemaker_create_config(struct aws_session *s, const char *region, const char *name, const struct sagemaker_variant *v, const json_t *tags, struct aws_fault *f,
    struct err *e) MUST_CHECK;
/* A config just made may not be seen yet: "Could not find endpoint configuration" is worth another try. */
int sagemaker_create_endpoint(struct aws_session *s, const char *region, const char *name, const json_t *tags, struct aws_fault *f, struct err *e) MUST_CHECK;

enum sagemaker_kind { SAGEMAKER_ENDPOINT, SAGEMAKER_CONFIG, SAGEMAKER_MODEL };
/* *v NULL with 0: there is none. */
int sagemaker_describe(struct aws_session *s, const char *region, enum sagemaker_kind kind, const char *name, json_t **v, struct aws_fault *f, struct err *e) MUST_CHECK;
int sagemaker_delete(struct aws_session *s, const char *region, enum sagemaker_kind kind, const char *name, struct aws_fault *f, struct err *e) MUST_CHECK;
/* All of a kind, all pages: an array of {EndpointName, EndpointArn, …}. */
int sagemaker_list(struct aws_session *s, const char *region, enum sagemaker_kind kind, json_t **list, struct err *e) MUST_CHECK;
/* The value of a tag copied into out; false when it is not there. */
int sagemaker_tag(struct aws_session *s, const char *region, const char *arn, const char *key, char *out, size_t n, bool *found, struct err *e) MUST_CHECK;
/* "EndpointName", "EndpointArn" and so on. */
const char *sagemaker_name_field(enum sagemaker_kind kind);
const char *sagemaker_arn_field(enum sagemaker_kind kind);

/* The events of an endpoint's log group since a time, all pages; an empty array while there is no such group. */
int sagemaker_log(struct aws_session *s, const char *region, const char *name, long long since_ms, json_t **events, struct err *e) MUST_CHECK;

/* A schedule "q4sweep-NAME" that deletes the endpoint from `expires` on, every 5 minutes for two days.  An older one of that name is replaced. */
int schedule_create(struct aws_session *s, const char *region, const char *name, const char *role, time_t expires, struct err *e) MUST_CHECK;
int schedule_delete(struct aws_session *s, const char *region, const char *name, struct err *e) MUST_CHECK;

/* All "… for endpoint usage" quotas: an object of instance type to count. */
int quota_endpoint_usage(struct aws_session *s, const char *region, json_t **quotas, struct err *e) MUST_CHECK;

/* The newest of AWS's vLLM images for SageMaker in a region: "REGISTRY/vllm@sha256:…", freed by the caller; *tag likewise. */
char *image_newest(struct aws_session *s, const char *region, char **tag, struct err *e) MUST_CHECK;
/* Does a tag name a whole version of the plain SageMaker image?  Fills the numbers to compare by: x, y, z, a, b. */
bool image_tag_version(const char *tag, long version[5]);
#endif
