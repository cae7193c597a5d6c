#include "rehearse/control.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/json.h"
#include "rehearse/endpoint.h"
#include "rehearse/faults.h"
#include "rehearse/instances.h"

#define NAME_MAX_LENGTH 63
#define INSTANCES_MAX 10000
#define NAME_PATTERN "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"

/* The three kinds of resource, whose calls are alike. */
struct resource {
    const char *op;             /* CreateModel, DescribeModel … */
    const char *arn;            /* as in the ARN, and the table's name */
    const char *words;          /* in messages */
    const char *name, *arn_key, *list;
};
static const struct resource MODEL = {"Model", "model", "model", "ModelName", "ModelArn", "Models"};
static const struct resource CONFIG = {"EndpointConfig", "endpoint-config", "endpoint configuration", "EndpointConfigName", "EndpointConfigArn", "EndpointConfigs"};
static const struct resource ENDPOINT = {"Endpoint", "endpoint", "endpoint", "EndpointName", "EndpointArn", "Endpoints"};

/* --- names ---------------------------------------------------------------------------------------------------------- */

static bool name_right(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '-') return false;
    return n && n <= NAME_MAX_LENGTH && s[0] != '-' && s[n - 1] != '-';
}

/* A member of the request that is a name; NULL when the refusal has been sent. */
static const char *asked_name(struct call *c, const char *key)
{
    const char *name = call_str(c, key);
    char member[64];
    snprintf(member, sizeof member, "%c%s", tolower((unsigned char)*key), key + 1);
    if (!name) call_invalid(c, "1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null", member);
    else if (!name_right(name))
        call_invalid(c, "1 validation error detected: Value '%.200s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: " NAME_PATTERN, name, member);
    else return name;
    return NULL;
}

/* Names of endpoints may not differ in case alone. */
static json_t *find_any_case(json_t *table, const char *name)
{
    json_t *v;
    const char *key;
    json_object_foreach(table, key, v) if (!strcasecmp(key, name)) return v;
    return NULL;
}

static char *missing(const char *region, const struct resource *r, const char *name)
{
    char *arn = world_arn(region, r->arn, name), *s = xasprintf("Could not find %s \"%s\".", r->words, arn);
    free(arn);
    return s;
}

static void refuse_missing(struct call *c, const struct resource *r, const char *name)
{
    char *s = missing(c->region, r, name);
    call_invalid(c, "%s", s);
    free(s);
}

/* --- tags ----------------------------------------------------------------------------------------------------------- */

static bool tags_right(struct call *c, const json_t *tags)
{
    size_t i;
    json_t *t;
    if (tags && (!json_is_array(tags) || json_array_size(tags) > 50)) {
        call_invalid(c, "1 validation error detected: Value at 'tags' failed to satisfy constraint: Member must have length less than or equal to 50");
        return false;
    }
    json_array_foreach(tags, i, t) {
        const char *key = json_field(t, "Key");
        if (*key && strlen(key) <= 128 && strlen(json_field(t, "Value")) <= 256) continue;
        call_invalid(c, "1 validation error detected: Value at 'tags.%zu.member.key' failed to satisfy constraint: Member must have length between 1 and 128", i + 1);
        return false;
    }
    return true;
}

static void add_tags(struct world *w, const char *region, const char *arn, const json_t *tags)
{
    json_t *table = world_table(w, region, "tags"), *own = json_object_get(table, arn), *t;
    size_t i;
    if (!own) json_object_set_new(table, arn, own = json_object());
    json_array_foreach(tags, i, t) json_object_set_new(own, json_field(t, "Key"), json_string(json_field(t, "Value")));
    w->dirty = true;
}

/* The resource of an ARN must exist. */
static const char *asked_arn(struct call *c)
{
    const char *arn = call_str(c, "ResourceArn");
    const struct resource *const ALL[] = {&MODEL, &CONFIG, &ENDPOINT};
    for (size_t i = 0; arn && i < 3; i++) {
        char *prefix = world_arn(c->region, ALL[i]->arn, "");
        size_t n = strlen(prefix);
        bool is = !strncmp(arn, prefix, n);
        free(prefix);
        if (!is) continue;
        if (json_object_get(world_table(c->w, c->region, ALL[i]->arn), arn + n)) return arn;
        refuse_missing(c, ALL[i], arn + n);
        return NULL;
    }
    call_invalid(c, "1 validation error detected: Value '%.200s' at 'resourceArn' failed to satisfy constraint: Member must satisfy regular expression pattern: arn:.*", arn ? arn : "null");
    return NULL;
}

static json_t *tag_list(struct call *c, const char *arn)
{
    json_t *list = json_array(), *v;
    const char *key;
    json_object_foreach(json_object_get(world_table(c->w, c->region, "tags"), arn), key, v)
        json_array_append_new(list, json_pack("{s:s, s:O}", "Key", key, "Value", v));
    return list;
}

static void op_list_tags(struct call *c)
{
    const char *arn = asked_arn(c);
    if (arn) call_json(c, json_pack("{s:o}", "Tags", tag_list(c, arn)));
}

static void op_add_tags(struct call *c)
{
    const char *arn = asked_arn(c);
    const json_t *tags = json_object_get(c->in, "Tags");
    if (!arn || !tags_right(c, tags)) return;
    add_tags(c->w, c->region, arn, tags);
    call_json(c, json_pack("{s:o}", "Tags", tag_list(c, arn)));
}

static void op_delete_tags(struct call *c)
{
    const char *arn = asked_arn(c);
    json_t *key;
    size_t i;
    if (!arn) return;
    json_array_foreach(json_object_get(c->in, "TagKeys"), i, key)
        if (json_is_string(key)) json_object_del(json_object_get(world_table(c->w, c->region, "tags"), arn), json_string_value(key));
    c->w->dirty = true;
    call_json(c, json_object());
}

/* --- create --------------------------------------------------------------------------------------------------------- */

/* The name is free and the tags are right: NULL = the refusal has been sent. */
static const char *new_name(struct call *c, const struct resource *r)
{
    const char *name = asked_name(c, r->name);
    if (!name || !tags_right(c, json_object_get(c->in, "Tags"))) return NULL;
    if (!find_any_case(world_table(c->w, c->region, r->arn), name)) return name;
    char *arn = world_arn(c->region, r->arn, name);
    call_invalid(c, "Cannot create already existing %s \"%s\".", r->words, arn);
    free(arn);
    return NULL;
}

/* Into the table; the answer. */
static void created(struct call *c, const struct resource *r, const char *name, json_t *o)
{
    char *arn = world_arn(c->region, r->arn, name);
    json_object_set_new(o, r->name, json_string(name));
    json_object_set_new(o, r->arn_key, json_string(arn));
    json_object_set_new(o, "CreationTime", world_time(world_now(c->w)));
    json_object_set_new(world_table(c->w, c->region, r->arn), name, o);
    if (json_object_get(c->in, "Tags")) add_tags(c->w, c->region, arn, json_object_get(c->in, "Tags"));
    c->w->dirty = true;
    call_json(c, json_pack("{s:s}", r->arn_key, arn));
    free(arn);
}

static void keep(json_t *to, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    if (v) json_object_set(to, key, v);
}

static bool environment_right(struct call *c, const json_t *env)
{
    const char *key;
    json_t *v;
    size_t total = 0;
    json_object_foreach((json_t *)env, key, v) {
        bool good = (isalpha((unsigned char)*key) || *key == '_') && strlen(key) <= 1024 && json_is_string(v) && json_string_length(v) <= 1024;
        for (const char *p = key; *p; p++) good &= isalnum((unsigned char)*p) || *p == '_';
        total += strlen(key) + json_string_length(v);
        if (good) continue;
        call_invalid(c, "1 validation error detected: Value at 'primaryContainer.environment' failed to satisfy constraint: Map entry '%.100s' is no variable of at most 1024 characters", key);
        return false;
    }
    if (json_object_size(env) <= 100 && total <= 32768) return true;
    call_invalid(c, "1 validation error detected: Value at 'primaryContainer.environment' failed to satisfy constraint: Member must have at most 100 entries of 32 KiB together");
    return false;
}

static bool data_source_right(struct call *c, const json_t *container)
{
    const json_t *s3 = json_object_get(json_object_get(container, "ModelDataSource"), "S3DataSource");
    const char *uri = s3 ? json_field(s3, "S3Uri") : json_field(container, "ModelDataUrl"), *type = json_field(s3, "S3DataType");
    size_t n = strlen(uri);
    if (!s3 && !*uri) return true;
    if (strncmp(uri, "s3://", 5) || strstr(uri, "..")) call_invalid(c, "Could not access model data at %.400s. Expected an S3 URI: s3://bucket/key", uri);
    else if (s3 && strcmp(type, "S3Prefix") && strcmp(type, "S3Object"))
        call_invalid(c, "1 validation error detected: Value '%.100s' at 'primaryContainer.modelDataSource.s3DataSource.s3DataType' failed to satisfy constraint: "
            "Member must satisfy enum value set: [S3Prefix, S3Object]", type);
    else if (s3 && !strcmp(type, "S3Prefix") && uri[n - 1] != '/') call_invalid(c, "S3Uri %.400s: with S3DataType S3Prefix it must end in /", uri);
    else if (s3 && strcmp(json_field(s3, "CompressionType"), "None") && strcmp(json_field(s3, "CompressionType"), "Gzip"))
        call_invalid(c, "1 validation error detected: Value '%.100s' at 'primaryContainer.modelDataSource.s3DataSource.compressionType' failed to satisfy constraint: "
            "Member must satisfy enum value set: [None, Gzip]", json_field(s3, "CompressionType"));
    return c->x != NULL;
}

static void op_create_model(struct call *c)
{
    const char *name = new_name(c, &MODEL), *role = call_str(c, "ExecutionRoleArn");
    const json_t *container = json_object_get(c->in, "PrimaryContainer");
    if (!name) return;
    if (!container) container = json_array_get(json_object_get(c->in, "Containers"), 0);
    const char *image = json_field(container, "Image");
    if (!role || strncmp(role, "arn:aws:iam::", 13) || !strstr(role, ":role/")) {
        call_invalid(c, "1 validation error detected: Value '%.200s' at 'executionRoleArn' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: arn:aws[a-z\\-]*:iam::\\d{12}:role/?[a-zA-Z_0-9+=,.@\\-_/]+", role ? role : "null");
    } else if (!*image || strlen(image) > 255 || strpbrk(image, " \t\n")) {
        call_invalid(c, "1 validation error detected: Value '%.260s' at 'primaryContainer.image' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\S]{1,255}", image);
    } else if (environment_right(c, json_object_get(container, "Environment")) && data_source_right(c, container)) {
        json_t *o = json_pack("{s:O}", "PrimaryContainer", container);
        keep(o, c->in, "ExecutionRoleArn");
        keep(o, c->in, "VpcConfig");
        keep(o, c->in, "EnableNetworkIsolation");
        created(c, &MODEL, name, o);
    }
}

static bool type_right(struct call *c, const char *type, size_t variant)
{
    if (instance_known(type)) return true;
    call_invalid(c, "1 validation error detected: Value '%.100s' at 'productionVariants.%zu.member.instanceType' failed to satisfy constraint: Member must satisfy enum value set: "
        "[ml.g4dn.xlarge, ml.g5.xlarge, ml.g6.xlarge, ml.g6e.xlarge, ml.p4d.24xlarge, ml.p5.48xlarge, ...]", type, variant);
    return false;
}

static bool variant_right(struct call *c, const json_t *v, size_t n)
{
    const char *model = json_field(v, "ModelName");
    const json_t *pools = json_object_get(v, "InstancePools");
    json_t *pool;
    size_t i;
    if (!*json_field(v, "VariantName")) {
        call_invalid(c, "1 validation error detected: Value null at 'productionVariants.%zu.member.variantName' failed to satisfy constraint: Member must not be null", n);
        return false;
    }
    if (!json_object_get(world_table(c->w, c->region, "model"), model)) {
        refuse_missing(c, &MODEL, model);
        return false;
    }
    const json_t *count = json_object_get(v, "InitialInstanceCount");
    if (count && (!json_is_integer(count) || json_integer_value(count) < 1 || json_integer_value(count) > INSTANCES_MAX)) {
        call_invalid(c, "1 validation error detected: Value '%lld' at 'productionVariants.%zu.member.initialInstanceCount' failed to satisfy constraint: Member must have value between 1 and %d",
            (long long)json_integer_value(count), n, INSTANCES_MAX);
        return false;
    }
    if (!pools) return type_right(c, json_field(v, "InstanceType"), n);
    if (*json_field(v, "InstanceType") || !json_array_size(pools) || json_array_size(pools) > 5) {
        call_invalid(c, "A production variant has either an InstanceType or 1 to 5 InstancePools.");
        return false;
    }
    json_array_foreach(pools, i, pool) if (!type_right(c, json_field(pool, "InstanceType"), n)) return false;
    return true;
}

static void op_create_config(struct call *c)
{
    const char *name = new_name(c, &CONFIG);
    const json_t *variants = json_object_get(c->in, "ProductionVariants");
    json_t *v;
    size_t i;
    if (!name) return;
    if (!json_array_size(variants) || json_array_size(variants) > 10) {
        call_invalid(c, "1 validation error detected: Value at 'productionVariants' failed to satisfy constraint: Member must have length between 1 and 10");
        return;
    }
    json_array_foreach(variants, i, v) if (!variant_right(c, v, i + 1)) return;
    json_t *o = json_pack("{s:O}", "ProductionVariants", variants);
    keep(o, c->in, "MetricsConfig");
    created(c, &CONFIG, name, o);
}

/* ResourceLimitExceeded, counting every type that a pool lists. */
static bool quota_right(struct call *c, const char *type, long delta)
{
    long limit = instance_quota(c->w, c->region, type), used = endpoint_instances(c->w, c->region, type);
    if (faults_find(c->w, "quota-pool", c->region, type, NULL)) used++;
    if (used + delta <= limit) return true;
    call_error(c, 400, "ResourceLimitExceeded", "The account-level service limit '%s for endpoint usage' is %ld Instances, with current utilization of %ld Instances and a "
        "request delta of %ld Instances. Please use AWS Service Quotas to request an increase for this quota. If AWS Service Quotas is not available, contact AWS support to request an "
        "increase for this quota.", type, limit, used, delta);
    return false;
}

static bool variant_quota_right(struct call *c, const json_t *v)
{
    const json_t *count = json_object_get(v, "InitialInstanceCount");
    long delta = json_is_integer(count) ? (long)json_integer_value(count) : 1;
    json_t *pool;
    size_t i;
    if (*json_field(v, "InstanceType")) return quota_right(c, json_field(v, "InstanceType"), delta);
    json_array_foreach(json_object_get(v, "InstancePools"), i, pool) if (!quota_right(c, json_field(pool, "InstanceType"), delta)) return false;
    return true;
}

/* The object of an endpoint on this configuration, Creating from now; NULL when the refusal has been sent. */
static json_t *endpoint_on(struct call *c, const char *config_name, const json_t *config)
{
    json_t *variants = json_object_get(config, "ProductionVariants"), *v;
    const char *model_name = json_field(json_array_get(variants, 0), "ModelName");
    const json_t *model = json_object_get(world_table(c->w, c->region, "model"), model_name);
    size_t i;
    if (!model) {
        refuse_missing(c, &MODEL, model_name);
        return NULL;
    }
    json_array_foreach(variants, i, v) if (!variant_quota_right(c, v)) return NULL;
    return json_pack("{s:s, s:s, s:O, s:O, s:o}", "EndpointConfigName", config_name, "EndpointStatus", "Creating", "ProductionVariants", variants,
        "Model", json_object_get(model, "PrimaryContainer"), "LastModifiedTime", world_time(world_now(c->w)));
}

static void op_create_endpoint(struct call *c)
{
    const char *name = new_name(c, &ENDPOINT), *config_name = name ? asked_name(c, "EndpointConfigName") : NULL;
    if (!config_name) return;
    json_t *config = json_object_get(world_table(c->w, c->region, "endpoint-config"), config_name);
    if (!config || faults_strike(c->w, "late-config", c->region, NULL, NULL)) {
        refuse_missing(c, &CONFIG, config_name);
        return;
    }
    json_t *o = endpoint_on(c, config_name, config);
    if (!o) return;
    json_incref(o);
    json_object_set_new(o, "EndpointName", json_string(name));
    endpoint_begin(c->w, c->region, o);
    created(c, &ENDPOINT, name, o);
    json_decref(o);
}

static void op_update_endpoint(struct call *c)
{
    const char *name = asked_name(c, "EndpointName"), *config_name = name ? asked_name(c, "EndpointConfigName") : NULL;
    if (!config_name) return;
    json_t *ep = json_object_get(world_table(c->w, c->region, "endpoint"), name), *config = json_object_get(world_table(c->w, c->region, "endpoint-config"), config_name);
    char *arn = world_arn(c->region, "endpoint", name);
    if (!ep) refuse_missing(c, &ENDPOINT, name);
    else if (!config) refuse_missing(c, &CONFIG, config_name);
    else if (!strcmp(json_field(ep, "EndpointStatus"), "Failed")) call_invalid(c, "Cannot update endpoint \"%s\": it has failed and can only be deleted.", arn);
    else if (strcmp(json_field(ep, "EndpointStatus"), "InService")) call_invalid(c, "Cannot update in-progress endpoint \"%s\".", arn);
    else {
        json_t *next = endpoint_on(c, config_name, config);
        if (next) {
            json_object_set_new(next, "CreationTime", world_time(world_now(c->w)));
            endpoint_update(c->w, c->region, ep, next);
            call_json(c, json_pack("{s:s}", "EndpointArn", arn));
        }
    }
    free(arn);
}

/* --- describe ------------------------------------------------------------------------------------------------------- */

static json_t *asked(struct call *c, const struct resource *r)
{
    const char *name = asked_name(c, r->name);
    json_t *o = name ? json_object_get(world_table(c->w, c->region, r->arn), name) : NULL;
    if (name && !o) refuse_missing(c, r, name);
    return o;
}

static json_t *deployed_images(const json_t *ep)
{
    const char *image = json_field(json_object_get(ep, "Model"), "Image");
    size_t n = strcspn(image, "@"), colon = n;
    for (size_t i = n; i-- > 0 && image[i] != '/';)
        if (image[i] == ':') colon = i;
    char *resolved = image[n] ? xstrdup(image)
                              : xasprintf("%.*s@sha256:%064d", (int)colon, image, 0);
    json_t *list = json_pack("[{s:s, s:s, s:O}]", "SpecifiedImage", image, "ResolvedImage", resolved, "ResolutionTime", json_object_get(ep, "CreationTime"));
    free(resolved);
    return list;
}

static json_t *variant_summary(const json_t *ep, const json_t *v)
{
    const json_t *weight = json_object_get(v, "InitialVariantWeight"), *count = json_object_get(v, "InitialInstanceCount");
    double w = json_is_number(weight) ? json_number_value(weight) : 1;
    json_int_t n = json_is_integer(count) ? json_integer_value(count) : 1;
    json_t *o = json_pack("{s:s, s:f, s:f, s:I, s:I}", "VariantName", json_field(v, "VariantName"), "CurrentWeight", w, "DesiredWeight", w, "CurrentInstanceCount", n,
        "DesiredInstanceCount", n), *pool;
    size_t i;
    json_object_set_new(o, "DeployedImages", deployed_images(ep));
    if (!json_object_get(v, "InstancePools")) return o;
    json_t *pools = json_array();
    json_array_foreach(json_object_get(v, "InstancePools"), i, pool)
        json_array_append_new(pools, json_pack("{s:s, s:I}", "InstanceType", json_field(pool, "InstanceType"), "CurrentInstanceCount", i ? (json_int_t)0 : n));
    json_object_set_new(o, "InstancePools", pools);
    return o;
}

/* Of the endpoint while it is Creating, or of its next configuration while it is Updating. */
static json_t *pending_summary(const json_t *ep, const char *what)
{
    json_t *list = json_array(), *v;
    size_t i;
    json_array_foreach(json_object_get(ep, "ProductionVariants"), i, v) {
        json_t *o = json_pack("{s:s, s:f, s:f, s:[{s:s, s:O}]}", "VariantName", json_field(v, "VariantName"), "CurrentWeight", 1.0, "DesiredWeight", 1.0,
            "VariantStatus", "Status", what, "StartTime", json_object_get(ep, "CreationTime"));
        keep(o, v, "InstanceType");
        json_array_append_new(list, o);
    }
    return json_pack("{s:O, s:o, s:O}", "EndpointConfigName", json_object_get(ep, "EndpointConfigName"), "ProductionVariants", list, "StartTime",
        json_object_get(ep, "CreationTime"));
}

static void op_describe_endpoint(struct call *c)
{
    static const char *const SHOWN[] = {"EndpointName", "EndpointArn", "EndpointConfigName", "EndpointStatus", "FailureReason", "CreationTime", "LastModifiedTime"};
    const json_t *ep = asked(c, &ENDPOINT);
    json_t *v;
    size_t i;
    if (!ep) return;
    const char *status = json_field(ep, "EndpointStatus");
    bool creating = !strcmp(status, "Creating"), updating = !strcmp(status, "Updating");
    json_t *o = json_object(), *list = json_array();
    for (size_t k = 0; k < sizeof SHOWN / sizeof *SHOWN; k++) keep(o, ep, SHOWN[k]);
    if (!creating) json_array_foreach(json_object_get(ep, "ProductionVariants"), i, v) json_array_append_new(list, variant_summary(ep, v));
    if (!strcmp(status, "InService") || !strcmp(status, "Deleting") || updating) json_object_set(o, "ProductionVariants", list);
    if (creating || updating)
        json_object_set_new(o, "PendingDeploymentSummary", pending_summary(creating ? ep : json_object_get(ep, "next"), status));
    json_decref(list);
    call_json(c, o);
}

static void op_describe_config(struct call *c)
{
    json_t *o = asked(c, &CONFIG);
    if (o) call_json(c, json_deep_copy(o));
}

static void op_describe_model(struct call *c)
{
    json_t *o = asked(c, &MODEL);
    if (o) call_json(c, json_deep_copy(o));
}

/* --- list ----------------------------------------------------------------------------------------------------------- */

static const char *sort_key;
static int sort_sign;

static int by_sort_key(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    const json_t *u = json_object_get(x, sort_key), *v = json_object_get(y, sort_key);
    int d = json_is_string(u) ? strcmp(json_string_value(u), json_string_value(v)) : json_number_value(u) < json_number_value(v) ? -1 : json_number_value(u) > json_number_value(v);
    return sort_sign * d;
}

static bool in_time(const struct call *c, const json_t *o, const char *field)
{
    char after[40], before[40];
    snprintf(after, sizeof after, "%sAfter", field);
    snprintf(before, sizeof before, "%sBefore", field);
    double t = json_number_value(json_object_get(o, field));
    const json_t *a = json_object_get(c->in, after), *b = json_object_get(c->in, before);
    return (!json_is_number(a) || t > json_number_value(a)) && (!json_is_number(b) || t < json_number_value(b));
}

static bool contains(const char *name, const char *part)
{
    for (size_t n = strlen(part); *name; name++)
        if (!strncasecmp(name, part, n)) return true;
    return !*part;
}

static json_t *summary(const struct resource *r, const json_t *o)
{
    json_t *s = json_object();
    keep(s, o, r->name);
    keep(s, o, r->arn_key);
    keep(s, o, "CreationTime");
    keep(s, o, "LastModifiedTime");
    keep(s, o, "EndpointStatus");
    return s;
}

/* The token is base64-like there; here the number of the first one of the next page, in the same dress. */
static bool page_start(struct call *c, size_t *at)
{
    const char *token = call_str(c, "NextToken");
    char *end = NULL;
    *at = 0;
    if (token && !strncmp(token, "AAAA+/", 6)) *at = strtoul(token + 6, &end, 10);
    if (!token || (end && !strcmp(end, "=="))) return true;
    call_invalid(c, "Invalid pagination token.");
    return false;
}

static void list_resources(struct call *c, const struct resource *r)
{
    json_t *table = world_table(c->w, c->region, r->arn), *o;
    const char *key, *part = call_str(c, "NameContains"), *status = call_str(c, "StatusEquals"), *by = call_str(c, "SortBy"), *order = call_str(c, "SortOrder");
    size_t n = 0, at;
    long max = call_int(c, "MaxResults", 10);
    char token[40];
    if (max < 1 || max > 100) {
        call_invalid(c, "1 validation error detected: Value '%ld' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to 100", max);
        return;
    }
    if (!page_start(c, &at)) return;
    json_t **found = xcalloc(json_object_size(table) + 1, sizeof *found);
    json_object_foreach(table, key, o) {
        if ((part && !contains(key, part)) || (status && strcmp(status, json_field(o, "EndpointStatus"))) || !in_time(c, o, "CreationTime") || !in_time(c, o, "LastModifiedTime")) continue;
        found[n++] = o;
    }
    sort_key = by && !strcmp(by, "Name") ? r->name : by && !strcmp(by, "Status") ? "EndpointStatus" : "CreationTime";
    sort_sign = order && !strcmp(order, "Ascending") ? 1 : -1;
    qsort(found, n, sizeof *found, by_sort_key);
    json_t *list = json_array();
    for (; at < n && json_array_size(list) < (size_t)max; at++) json_array_append_new(list, summary(r, found[at]));
    free(found);
    json_t *out = json_pack("{s:o}", r->list, list);
    snprintf(token, sizeof token, "AAAA+/%zu==", at);
    if (at < n) json_object_set_new(out, "NextToken", json_string(token));
    call_json(c, out);
}

static void op_list_endpoints(struct call *c) { list_resources(c, &ENDPOINT); }
static void op_list_configs(struct call *c) { list_resources(c, &CONFIG); }
static void op_list_models(struct call *c) { list_resources(c, &MODEL); }

/* --- delete --------------------------------------------------------------------------------------------------------- */

char *control_delete(struct world *w, const char *region, const char *op, const char *name)
{
    const struct resource *r = !strcmp(op, "DeleteEndpoint") ? &ENDPOINT : !strcmp(op, "DeleteEndpointConfig") ? &CONFIG : &MODEL;
    json_t *table = world_table(w, region, r->arn), *o = json_object_get(table, name);
    char *arn = world_arn(region, r->arn, name), *message = NULL;
    if (!o) {
        message = missing(region, r, name);
    } else if (r == &ENDPOINT) {
        const char *status = json_field(o, "EndpointStatus");
        if (!strcmp(status, "InService") || !strcmp(status, "Failed")) endpoint_delete(w, o);
        else message = xasprintf("Cannot update in-progress endpoint \"%s\".", arn);
    } else {
        json_object_del(world_table(w, region, "tags"), arn);
        json_object_del(table, name);
        w->dirty = true;
    }
    free(arn);
    return message;
}

static void op_delete(struct call *c)
{
    const char *name = asked_name(c, !strcmp(c->op, "DeleteEndpoint") ? "EndpointName" : !strcmp(c->op, "DeleteEndpointConfig") ? "EndpointConfigName" : "ModelName");
    if (!name) return;
    char *message = control_delete(c->w, c->region, c->op, name);
    if (message) call_invalid(c, "%s", message);
    else call_json(c, NULL);
    free(message);
}

/* --- dispatch ------------------------------------------------------------------------------------------------------- */

void control_call(struct call *c)
{
    static const struct { const char *op; void (*fn)(struct call *); } OPS[] = {{"CreateModel", op_create_model}, {"CreateEndpointConfig", op_create_config},
        {"CreateEndpoint", op_create_endpoint}, {"UpdateEndpoint", op_update_endpoint}, {"DescribeEndpoint", op_describe_endpoint}, {"DescribeEndpointConfig", op_describe_config}, {"DescribeModel", op_describe_model},
        {"ListEndpoints", op_list_endpoints}, {"ListEndpointConfigs", op_list_configs}, {"ListModels", op_list_models}, {"DeleteEndpoint", op_delete},
        {"DeleteEndpointConfig", op_delete}, {"DeleteModel", op_delete}, {"AddTags", op_add_tags}, {"ListTags", op_list_tags}, {"DeleteTags", op_delete_tags}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (!strcmp(OPS[i].op, c->op)) {
            OPS[i].fn(c);
            return;
        }
    call_error(c, 400, "UnknownOperationException", "The operation %s is not supported here", c->op);
}
