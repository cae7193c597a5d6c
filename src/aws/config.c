#include "aws/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/buf.h"
#include "base/io.h"
#include "base/opt.h"

#define FILE_MAX ((size_t)4 << 20)

struct entry { char *section, *key, *value; };
struct file { struct entry *entry; size_t n; };

struct aws_config {
    struct file config, credentials;
    char *profile, *pin;
};

/* --- the files ------------------------------------------------------------------------------------------------------ */

static char *trimmed(const char *p, size_t n)
{
    while (n && isspace((unsigned char)*p)) p++, n--;
    while (n && isspace((unsigned char)p[n - 1])) n--;
    return xstrndup(p, n);
}

static void add_entry(struct file *f, const char *section, const char *key, char *value)
{
    f->entry = xreallocarray(f->entry, f->n + 1, sizeof *f->entry);
    f->entry[f->n++] = (struct entry){xstrdup(section), xstrdup(key), value};
}

/* An indented "key = value" belongs to the key above it: "s3.endpoint_url". */
static void read_line(struct file *f, char **section, char **parent, const char *line, size_t n)
{
    bool nested = n && (*line == ' ' || *line == '\t');
    char *text = trimmed(line, n), *equals;
    size_t len = strlen(text);
    if (!len || *text == '#' || *text == ';') {
        free(text);
        return;
    }
    if (*text == '[') {
        free(*section);
        free(*parent);
        *parent = NULL;
        *section = trimmed(text + 1, strcspn(text + 1, "]"));
    } else if (*section && (equals = strchr(text, '='))) {
        char *key = trimmed(text, (size_t)(equals - text)), *value = trimmed(equals + 1, strlen(equals + 1));
        for (char *c = key; *c; c++) *c = (char)tolower((unsigned char)*c);
        char *full = nested && *parent ? xasprintf("%s.%s", *parent, key) : xstrdup(key);
        add_entry(f, *section, full, value);
        free(full);
        if (!nested) {
            free(*parent);
            *parent = key;
        } else free(key);
    }
    free(text);
}

static int read_file(struct file *f, const char *variable, const char *name, struct err *e)
{
    const char *home = getenv("HOME"), *set = getenv(variable);
    char *path = set && *set ? xstrdup(set) : xasprintf("%s/.aws/%s", home ? home : "", name), *text, *section = NULL, *parent = NULL;
    size_t n;
    struct err fault = {0};
    int bad = io_slurp(path, FILE_MAX, &text, &n, &fault);
    if (bad) {
        free(path);
        return fault.code == EXIT_NOINPUT ? 0 : err_set(e, fault.code, "%s", fault.msg);
    }
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;
        read_line(f, &section, &parent, text + at, len);
        at += len + 1;
    }
    free(section);
    free(parent);
    free(text);
    free(path);
    return 0;
}

static const char *lookup(const struct file *f, const char *section, const char *key)
{
    for (size_t i = f->n; i-- > 0;)
        if (!strcmp(f->entry[i].section, section) && !strcmp(f->entry[i].key, key)) return f->entry[i].value;
    return NULL;
}

static bool has_section(const struct file *f, const char *section)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->entry[i].section, section)) return true;
    return false;
}

static void free_file(struct file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->entry[i].section);
        free(f->entry[i].key);
        memset(f->entry[i].value, 0, strlen(f->entry[i].value));
        free(f->entry[i].value);
    }
    free(f->entry);
}

static const char *set_variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

struct aws_config *aws_config_load(const char *profile, struct err *e)
{
    struct aws_config *c = xcalloc(1, sizeof *c);
    if (!profile) profile = set_variable("AWS_PROFILE");
    if (!profile) profile = set_variable("AWS_DEFAULT_PROFILE");
    c->profile = xstrdup(profile ? profile : "default");
    if (read_file(&c->config, "AWS_CONFIG_FILE", "config", e) || read_file(&c->credentials, "AWS_SHARED_CREDENTIALS_FILE", "credentials", e)) {
        aws_config_free(c);
        return NULL;
    }
    if (profile && !aws_config_has_profile(c, profile)) {
        err_set(e, EXIT_USAGE, "profile %s: neither ~/.aws/config nor ~/.aws/credentials has it", profile);
        aws_config_free(c);
        return NULL;
    }
    return c;
}

void aws_config_free(struct aws_config *c)
{
    if (!c) return;
    free_file(&c->config);
    free_file(&c->credentials);
    free(c->profile);
    free(c->pin);
    free(c);
}

const char *aws_config_profile(const struct aws_config *c) { return c->profile; }

/* "[default]" or "[profile NAME]". */
static char *section_of(const char *profile)
{
    return !strcmp(profile, "default") ? xstrdup(profile) : xasprintf("profile %s", profile);
}

bool aws_config_has_profile(const struct aws_config *c, const char *profile)
{
    char *section = section_of(profile);
    bool has = has_section(&c->config, section) || has_section(&c->credentials, profile);
    free(section);
    return has;
}

const char *aws_config_get(const struct aws_config *c, const char *profile, const char *key)
{
    char *section = section_of(profile);
    const char *v = lookup(&c->config, section, key);
    if (!v && !strcmp(profile, "default")) v = lookup(&c->config, "profile default", key);
    free(section);
    return v;
}

const char *aws_config_credential(const struct aws_config *c, const char *profile, const char *key)
{
    return lookup(&c->credentials, profile, key);
}

const char *aws_config_region(const struct aws_config *c)
{
    const char *v = set_variable("AWS_REGION");
    if (!v) v = set_variable("AWS_DEFAULT_REGION");
    return v ? v : aws_config_get(c, c->profile, "region");
}

/* --- where a service is --------------------------------------------------------------------------------------------- */

static const struct { const char *service, *variable, *host; } SERVICES[] = {
    {"sagemaker", "SAGEMAKER", "api.sagemaker.%s"}, {"sagemaker-runtime", "SAGEMAKER_RUNTIME", "runtime.sagemaker.%s"},
    {"logs", "CLOUDWATCH_LOGS", "logs.%s"}, {"ecr", "ECR", "api.ecr.%s"}, {"service-quotas", "SERVICE_QUOTAS", "servicequotas.%s"},
    {"sts", "STS", "sts.%s"}, {"scheduler", "SCHEDULER", "scheduler.%s"}, {"s3", "S3", "s3.%s"}};

static const char *configured(const struct aws_config *c, const char *service, const char *variable)
{
    const char *ignore = getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), *v;
    char key[128];
    if (c->pin) return c->pin;
    if (ignore && !strcasecmp(ignore, "true")) return NULL;
    snprintf(key, sizeof key, "AWS_ENDPOINT_URL_%s", variable);
    if ((v = set_variable(key)) || (v = set_variable("AWS_ENDPOINT_URL"))) return v;
    const char *services = aws_config_get(c, c->profile, "services");
    if (services) {
        char *section = xasprintf("services %s", services);
        snprintf(key, sizeof key, "%s.endpoint_url", !strcmp(service, "logs") ? "cloudwatch_logs" : service);
        for (char *p = key; *p; p++)
            if (*p == '-') *p = '_';
        v = lookup(&c->config, section, key);
        free(section);
        if (v) return v;
    }
    return aws_config_get(c, c->profile, "endpoint_url");
}

bool aws_url_is_loopback(const char *url)
{
    const char *host = strstr(url, "://");
    if (!host) return false;
    host += 3;
    if (!strncmp(host, "[::1]", 5)) return strchr(":/", host[5]) != NULL;
    size_t n = strcspn(host, ":/?#@");
    if (host[n] == '@') return false;
    if (n == 9 && !strncasecmp(host, "localhost", 9)) return true;
    if (strncmp(host, "127.", 4)) return false;
    return strspn(host, "0123456789.") == n;
}

char *aws_config_url(const struct aws_config *c, const char *service, const char *region, bool *overridden, struct err *e)
{
    for (size_t i = 0; i < sizeof SERVICES / sizeof *SERVICES; i++) {
        if (strcmp(SERVICES[i].service, service)) continue;
        const char *url = configured(c, service, SERVICES[i].variable);
        if (overridden) *overridden = url != NULL;
        if (url && strncmp(url, "https://", 8) && (strncmp(url, "http://", 7) || !aws_url_is_loopback(url))) {
            err_set(e, EXIT_USAGE, "endpoint URL of %s: expected https://, or http:// on a loopback address, found %s", service, url);
            return NULL;
        }
        if (url) {
            size_t n = strlen(url);
            while (n && url[n - 1] == '/') n--;
            return xstrndup(url, n);
        }
        struct buf b = BUF_INIT;
        buf_str(&b, "https://");
        const char *mark = strstr(SERVICES[i].host, "%s");
        buf_add(&b, SERVICES[i].host, (size_t)(mark - SERVICES[i].host));
        buf_printf(&b, "%s.amazonaws.com%s", region, strncmp(region, "cn-", 3) ? "" : ".cn");
        return b.data;
    }
    err_set(e, EXIT_BUG, "no service %s", service);
    return NULL;
}

void aws_config_pin(struct aws_config *c, const char *url)
{
    free(c->pin);
    c->pin = url ? xstrdup(url) : NULL;
}

bool aws_region_is_valid(const char *r)
{
    size_t n = strlen(r), dashes = 0;
    if (n < 8 || n > 25 || !islower((unsigned char)r[0]) || !islower((unsigned char)r[1]) || !isdigit((unsigned char)r[n - 1]) || r[n - 2] != '-') return false;
    for (size_t i = 0; i < n; i++) {
        dashes += r[i] == '-';
        if (!islower((unsigned char)r[i]) && !isdigit((unsigned char)r[i]) && r[i] != '-') return false;
    }
    return dashes >= 2;
}

bool aws_name_is_valid(const char *name)
{
    size_t n = strlen(name);
    if (!n || n > 63 || name[0] == '-' || name[n - 1] == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-') return false;
    return true;
}

void aws_region_check(const char *region)
{
    if (!aws_region_is_valid(region)) opt_usage("%s: no region's name: expected one like us-east-2", region);
}

void aws_name_check(const char *name)
{
    if (!aws_name_is_valid(name)) opt_usage("%s: no endpoint's name: letters, digits and inner -, at most 63", name);
}
