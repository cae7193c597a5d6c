/* Any bytes as AWS's two files, and as what a container's or the machine's credential service answers.
 *
 * An input is the config file, a NUL byte, the credentials file, a NUL byte, an HTTP answer.  Of the files only keys are looked up: they may name
 * programs to run (credential_process), which is not wanted here; the credentials come from the service alone.
 */
#include <stdio.h>
#include "aws/credentials.h"
#include "fuzz.h"
#include "scratch.h"
#include "server.h"

static void look_up(const char *config, const char *credentials)
{
    static const char *const profile[] = {NULL, "default", "work", "a b"};
    static const char *const service[] = {"sagemaker", "s3", "sts"};
    setenv("AWS_CONFIG_FILE", config, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    for (size_t i = 0; i < sizeof profile / sizeof *profile; i++) {
        struct err e = {0};
        struct aws_config *c = aws_config_load(profile[i], &e);
        if (!c) {
            if (e.code == 0 || e.code == EXIT_BUG)
                abort();
            continue;
        }
        const char *name = aws_config_profile(c), *region = aws_config_region(c);
        (void)aws_config_has_profile(c, name);
        (void)aws_config_get(c, name, "role_arn");
        (void)aws_config_get(c, name, "s3.endpoint_url");
        (void)aws_config_credential(c, name, "aws_access_key_id");
        if (region)
            (void)aws_region_is_valid(region);
        for (size_t k = 0; k < sizeof service / sizeof *service; k++) {
            struct err why = {0};
            bool overridden;
            free(aws_config_url(c, service[k], "us-east-1", &overridden, &why));
        }
        aws_config_free(c);
    }
}

static void ask_service(struct http_client *http, const uint8_t *p, size_t n)
{
    struct aws_credentials found = {0};
    struct err e = {0};
    char url[80];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/role", server_answers(p, n));
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    struct aws_config *c = aws_config_load(NULL, &e);
    if (!c)
        abort();
    if (aws_credentials_load(&found, c, false, http, &e) == 0) {
        if (!found.key_id || !found.secret)
            abort();
    } else if (e.code == 0 || e.code == EXIT_BUG)
        abort();
    aws_credentials_free(&found);
    aws_config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct http_client *http;
    struct err e = {0};
    const uint8_t *end = data + n, *first = memchr(data, 0, n), *second = first ? memchr(first + 1, 0, (size_t)(end - first - 1)) : NULL;
    if (!second)
        return 0;
    prog_verbosity = -1;
    if (!http)
        http = http_client_new(1, &e);
    char *config = xstrdup(scratch_file("config", data, (size_t)(first - data)));
    look_up(config, scratch_file("credentials", first + 1, (size_t)(second - first - 1)));
    free(config);
    ask_service(http, second + 1, (size_t)(end - second - 1));
    return 0;
}
