#include "aws/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/io.h"
#include "base/json.h"
#include "base/percent.h"

#define ANSWER_MAX ((size_t)256 << 10)
#define COMPLAINT_MAX ((size_t)300)
#define ROLE_DEPTH 5                    /* of source_profile */

struct load {
    struct aws_credentials *c;
    const struct aws_config *config;
    struct http_client *http;
};

static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static void take(struct load *l, const char *id, const char *secret, const char *token, const char *source, const char *detail)
{
    l->c->key_id = xstrdup(id);
    l->c->secret = xstrdup(secret);
    l->c->token = token && *token ? xstrdup(token) : NULL;
    snprintf(l->c->source, sizeof l->c->source, "%s%s%s", source, detail ? " " : "", detail ? detail : "");
}

/* Each provider: 1 = has them, 0 = does not apply, -1 = applies and fails. */

/* --- environment and files ------------------------------------------------------------------------------------------ */

static int from_environment(struct load *l, struct err *e)
{
    const char *id = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY"), *token = variable("AWS_SESSION_TOKEN");
    const char *expires = variable("AWS_CREDENTIAL_EXPIRATION");
    if (!id) return 0;
    if (!secret) return err_set(e, EXIT_NOPERM, "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not: set both or neither");
    take(l, id, secret, token ? token : variable("AWS_SECURITY_TOKEN"), "environment", NULL);
    if (expires) aws_parse_iso8601(expires, &l->c->expires);
    return 1;
}

static int from_keys(struct load *l, const char *profile, const char *(*get)(const struct aws_config *, const char *, const char *), const char *what, struct err *e)
{
    const char *id = get(l->config, profile, "aws_access_key_id"), *secret = get(l->config, profile, "aws_secret_access_key");
    if (!id) return 0;
    if (!secret) return err_set(e, EXIT_NOPERM, "profile %s: the %s has aws_access_key_id without aws_secret_access_key", profile, what);
    take(l, id, secret, get(l->config, profile, "aws_session_token"), what, profile);
    return 1;
}

/* --- a JSON answer -------------------------------------------------------------------------------------------------- */

/* {AccessKeyId, SecretAccessKey, <token_key>, Expiration}; what names the source. */
static int from_json(struct load *l, const char *text, size_t n, const char *token_key, const char *what, const char *detail, struct err *e)
{
    struct err ignored = {0};
    json_t *v = json_parse(text, n, what, &ignored);
    const char *id = json_string_value(json_object_get(v, "AccessKeyId")), *secret = json_string_value(json_object_get(v, "SecretAccessKey"));
    const char *expires = json_string_value(json_object_get(v, "Expiration"));
    int result = 1;
    if (!id || !secret) result = err_set(e, EXIT_NOPERM, "%s: its answer holds no AccessKeyId and SecretAccessKey", what);
    else take(l, id, secret, json_string_value(json_object_get(v, token_key)), what, detail);
    if (result == 1 && expires && !aws_parse_iso8601(expires, &l->c->expires)) {
        aws_credentials_free(l->c);
        result = err_set(e, EXIT_NOPERM, "%s: Expiration is no time: %.40s", what, expires);
    }
    json_decref(v);
    return result;
}

/* --- another program's output --------------------------------------------------------------------------------------- */

/* Words as a shell would split them: blanks, quotes, backslashes. */
static char **split_words(const char *p, size_t *n)
{
    char **word = NULL;
    *n = 0;
    while (*(p += strspn(p, " \t"))) {
        struct buf b = BUF_INIT;
        for (char quote = 0; *p && (quote || !strchr(" \t", *p)); p++) {
            if (quote && *p == quote) quote = 0;
            else if (!quote && strchr("'\"", *p)) quote = *p;
            else if (*p == '\\' && quote != '\'' && p[1]) buf_char(&b, *++p);
            else buf_char(&b, *p);
        }
        word = xreallocarray(word, *n + 2, sizeof *word);
        word[(*n)++] = b.data ? b.data : xstrdup("");
        word[*n] = NULL;
    }
    return word;
}

/* Until its output ends, with what it complains about beside it: a pipe that nobody reads would hold it up. */
static void hear_out(int from, int errors, struct buf *out, struct buf *complaint)
{
    struct pollfd p[2] = {{.fd = from, .events = POLLIN}, {.fd = errors, .events = POLLIN}};
    struct buf *to[2] = {out, complaint};
    const size_t most[2] = {ANSWER_MAX, COMPLAINT_MAX};
    char part[4096];
    while (p[0].fd >= 0) {
        p[0].revents = p[1].revents = 0;
        if (poll(p, 2, -1) < 0 && errno != EINTR) break;
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].revents ? read(p[i].fd, part, sizeof part) : -1;
            if (n > 0 && to[i]->n < most[i]) buf_add(to[i], part, (size_t)n);
            if (n == 0 || (n < 0 && p[i].revents && errno != EINTR)) p[i].fd = -1;
        }
    }
    ssize_t n = p[1].fd >= 0 && !complaint->n ? read(errors, part, sizeof part) : 0;
    if (n > 0) buf_add(complaint, part, (size_t)n);
    OPENSSL_cleanse(part, sizeof part);
}

/* Its standard output into out, what it complains about into complaint; the exit status, -1 = could not be started. */
static int run_program(char *const argv[], struct buf *out, struct buf *complaint)
{
    int to_us[2], errors[2], status = -1;
    if (pipe(to_us)) return -1;
    if (pipe(errors)) {
        close(to_us[0]);
        close(to_us[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(to_us[1], 1);
        dup2(errors[1], 2);
        for (int fd = 3; fd < 256; fd++) close(fd);
        execvp(argv[0], argv);
        dprintf(2, "%s", strerror(errno));
        _exit(127);
    }
    close(to_us[1]);
    close(errors[1]);
    if (pid > 0) hear_out(to_us[0], errors[0], out, complaint);
    close(to_us[0]);
    close(errors[0]);
    if (pid > 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int from_program(struct load *l, char *const argv[], const char *what, const char *profile, struct err *e)
{
    struct buf out = BUF_INIT, complaint = BUF_INIT;
    int result, rc = run_program(argv, &out, &complaint);
    const char *first = complaint.data ? complaint.data : "";
    if (rc) result = err_set(e, EXIT_NOPERM, "%s of profile %s: %s ended with status %d: %.*s", what, profile, argv[0], rc, (int)strcspn(first, "\n"), first);
    else result = from_json(l, out.data ? out.data : "", out.n, "SessionToken", what, profile, e);
    if (out.data) OPENSSL_cleanse(out.data, out.n);
    buf_free(&out);
    buf_free(&complaint);
    return result;
}

static int from_process(struct load *l, const char *profile, struct err *e)
{
    const char *line = aws_config_get(l->config, profile, "credential_process");
    if (!line) line = aws_config_credential(l->config, profile, "credential_process");
    if (!line) return 0;
    size_t n;
    char **argv = split_words(line, &n);
    int result = n ? from_program(l, argv, "credential_process", profile, e) : 0;
    while (n) free(argv[--n]);
    free(argv);
    return result;
}

/* SSO and `aws login` end in browsers and signed refreshes: the CLI has them. */
static int from_cli(struct load *l, const char *profile, const char *const keys[], struct err *e)
{
    const char *chain = getenv("_AWS_CLI_PROFILE_CHAIN");
    bool applies = false;
    for (size_t i = 0; keys[i]; i++) applies = applies || aws_config_get(l->config, profile, keys[i]);
    if (!applies) return 0;
    if (chain && strstr(chain, profile)) return err_set(e, EXIT_NOPERM, "profile %s: its credentials lead back to itself", profile);
    char *argv[] = {"aws", "configure", "export-credentials", "--format", "process", "--profile", (char *)profile, NULL};
    return from_program(l, argv, "aws configure export-credentials", profile, e);
}

/* --- STS ------------------------------------------------------------------------------------------------------------ */

static void add_field(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, "&%s=", name);
    percent_encode(b, value, strlen(value), "");
}

static int ask_sts(struct load *l, const struct aws_credentials *signer, struct buf *form, const char *what, const char *detail, struct err *e)
{
    const char *region = aws_config_region(l->config);
    if (!region) region = "us-east-1";
    char *url = aws_config_url(l->config, "sts", region, NULL, e), id[128], secret[256], token[4096], expires[64];
    struct aws_answer a = {0};
    struct aws_call call = {.url = url, .service = "sts", .region = region, .content_type = "application/x-www-form-urlencoded; charset=utf-8", .body = form->data,
        .body_n = form->n};
    if (!url) return -1;
    int bad = aws_send(l->http, signer, &call, &a, e);
    const char *text = a.http.body.data;
    if (!bad && a.http.status != 200) bad = err_set(e, EXIT_NOPERM, "%s %s: %s: %s", what, detail, a.code, a.message);
    else if (!bad && !(aws_xml(text, "AccessKeyId", id, sizeof id) && aws_xml(text, "SecretAccessKey", secret, sizeof secret)
                 && aws_xml(text, "SessionToken", token, sizeof token) && aws_xml(text, "Expiration", expires, sizeof expires)))
        bad = err_set(e, EXIT_NOPERM, "%s %s: the answer of STS holds no credentials", what, detail);
    if (!bad) {
        take(l, id, secret, token, what, detail);
        aws_parse_iso8601(expires, &l->c->expires);
    }
    OPENSSL_cleanse(secret, sizeof secret);
    aws_answer_free(&a);
    free(url);
    return bad ? -1 : 1;
}

static int from_web_identity(struct load *l, const char *file, const char *role, const char *session, struct err *e)
{
    char *token;
    size_t n;
    if (!role) return err_set(e, EXIT_NOPERM, "a web identity token file is set but no role: set AWS_ROLE_ARN");
    if (io_slurp(file, ANSWER_MAX, &token, &n, e)) return -1;
    while (n && strchr("\r\n ", token[n - 1])) token[--n] = 0;
    struct buf form = BUF_INIT;
    buf_str(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    add_field(&form, "RoleArn", role);
    add_field(&form, "RoleSessionName", session ? session : "q4sweep");
    add_field(&form, "WebIdentityToken", token);
    OPENSSL_cleanse(token, n);
    free(token);
    int result = ask_sts(l, NULL, &form, "web identity", role, e);
    OPENSSL_cleanse(form.data, form.n);
    buf_free(&form);
    return result;
}

static int from_profile(struct load *l, const char *profile, int depth, struct err *e);
static int from_machine(struct load *l, struct err *e);

static int source_of_role(struct load *l, const char *profile, int depth, struct err *e)
{
    const char *source = aws_config_get(l->config, profile, "source_profile"), *kind = aws_config_get(l->config, profile, "credential_source");
    if (source && !strcmp(source, profile)) {           /* its own keys sign */
        int own = from_keys(l, profile, aws_config_credential, "credentials file", e);
        return own ? own : from_keys(l, profile, aws_config_get, "config file", e);
    }
    if (source) return from_profile(l, source, depth + 1, e);
    if (kind && !strcasecmp(kind, "Environment")) return from_environment(l, e);
    if (kind) return from_machine(l, e);
    return err_set(e, EXIT_NOPERM, "profile %s: role_arn needs source_profile or credential_source", profile);
}

static int from_role(struct load *l, const char *profile, int depth, struct err *e)
{
    const char *role = aws_config_get(l->config, profile, "role_arn"), *session = aws_config_get(l->config, profile, "role_session_name");
    const char *file = aws_config_get(l->config, profile, "web_identity_token_file"), *external = aws_config_get(l->config, profile, "external_id");
    const char *seconds = aws_config_get(l->config, profile, "duration_seconds");
    if (!role) return 0;
    if (file) return from_web_identity(l, file, role, session, e);
    if (aws_config_get(l->config, profile, "mfa_serial")) return err_set(e, EXIT_NOPERM, "profile %s: needs an MFA code: log in with the AWS CLI first", profile);
    if (depth > ROLE_DEPTH) return err_set(e, EXIT_NOPERM, "profile %s: source_profile leads round in a circle", profile);
    struct aws_credentials source = {0};
    struct load inner = {&source, l->config, l->http};
    int got = source_of_role(&inner, profile, depth, e);
    if (got < 1) return got < 0 ? -1 : err_set(e, EXIT_NOPERM, "profile %s: its source has no credentials", profile);
    struct buf form = BUF_INIT;
    buf_str(&form, "Action=AssumeRole&Version=2011-06-15");
    add_field(&form, "RoleArn", role);
    add_field(&form, "RoleSessionName", session ? session : "q4sweep");
    if (external) add_field(&form, "ExternalId", external);
    if (seconds) add_field(&form, "DurationSeconds", seconds);
    int result = ask_sts(l, &source, &form, "role", role, e);
    aws_credentials_free(&source);
    buf_free(&form);
    return result;
}

static int from_profile(struct load *l, const char *profile, int depth, struct err *e)
{
    static const char *const SSO[] = {"sso_session", "sso_start_url", NULL}, *const LOGIN[] = {"login_session", NULL};
    const char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    int got = from_role(l, profile, depth, e);
    if (!got && file && !depth) got = from_web_identity(l, file, variable("AWS_ROLE_ARN"), variable("AWS_ROLE_SESSION_NAME"), e);
    if (!got) got = from_cli(l, profile, SSO, e);
    if (!got) got = from_keys(l, profile, aws_config_credential, "credentials file", e);
    if (!got) got = from_cli(l, profile, LOGIN, e);
    if (!got) got = from_process(l, profile, e);
    if (!got) got = from_keys(l, profile, aws_config_get, "config file", e);
    return got;
}

/* --- the machine's own ---------------------------------------------------------------------------------------------- */

static int get(struct load *l, const char *method, const char *url, const char *header, double timeout, int tries, struct http_reply *r, struct err *e)
{
    const char *headers[] = {header, NULL};
    struct http_request q = {.method = method, .url = url, .headers = headers, .timeout = timeout};
    struct err fault = {0};
    while (tries-- > 0) {
        fault = (struct err){0};
        if (!http_fetch(l->http, &q, ANSWER_MAX, r, &fault) && r->status == 200) return 0;
        if (tries) http_reply_free(r);
    }
    if (fault.code) return err_set(e, EXIT_TEMPFAIL, "%s", fault.msg);
    return err_set(e, EXIT_NOPERM, "%.*s: answers %ld", (int)strcspn(url, "?"), url, r->status);
}

static bool container_url_may_be_plain(const char *url)
{
    static const char *const HOSTS[] = {"http://169.254.170.2", "http://169.254.170.23", "http://[fd00:ec2::23]"};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(HOSTS[i]);
        if (!strncmp(url, HOSTS[i], n) && strchr(":/?", url[n])) return true;
    }
    return aws_url_is_loopback(url);
}

static int container_token(char **header, struct err *e)
{
    const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), *value = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    size_t n;
    *header = NULL;
    if (file && io_slurp(file, ANSWER_MAX, &text, &n, e)) return -1;
    if (file) {
        while (n && strchr("\r\n", text[n - 1])) text[--n] = 0;
        value = text;
    }
    if (value && strpbrk(value, "\r\n")) {
        free(text);
        return err_set(e, EXIT_NOPERM, "the container's authorization token holds a line end");
    }
    if (value) *header = xasprintf("Authorization: %s", value);
    free(text);
    return 0;
}

static int from_container(struct load *l, struct err *e)
{
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!relative && !full) return 0;
    char *url = relative ? xasprintf("http://169.254.170.2%s", relative) : xstrdup(full), *header;
    struct http_reply r = {0};
    int result = -1;
    if (strncmp(url, "https://", 8) && !container_url_may_be_plain(url))
        err_set(e, EXIT_NOPERM, "AWS_CONTAINER_CREDENTIALS_FULL_URI: plain http is for loopback and the platforms' own addresses only");
    else if (!container_token(&header, e)) {
        if (!get(l, "GET", url, header, 2, 3, &r, e)) result = from_json(l, r.body.data ? r.body.data : "", r.body.n, "Token", "container", NULL, e);
        free(header);
    }
    http_reply_free(&r);
    free(url);
    return result;
}

static int from_imds(struct load *l, struct err *e)
{
    const char *off = variable("AWS_EC2_METADATA_DISABLED"), *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char *url, *header = NULL;
    struct http_reply token = {0}, role = {0}, keys = {0};
    struct err fault = {0};
    int result = 0;
    if (off && !strcasecmp(off, "true")) return 0;
    if (!base) base = "http://169.254.169.254";
    size_t n = strlen(base);
    while (n && base[n - 1] == '/') n--;
    url = xasprintf("%.*s/latest/api/token", (int)n, base);
    /* No answer means: this is no such machine. */
    if (!get(l, "PUT", url, "x-aws-ec2-metadata-token-ttl-seconds: 21600", 1, 1, &token, &fault)) {
        header = xasprintf("x-aws-ec2-metadata-token: %s", token.body.data ? token.body.data : "");
        free(url);
        url = xasprintf("%.*s/latest/meta-data/iam/security-credentials/", (int)n, base);
        if (!get(l, "GET", url, header, 1, 1, &role, &fault) && role.body.n) {
            char *at = xasprintf("%s%.*s", url, (int)strcspn(role.body.data, "\r\n"), role.body.data);
            result = get(l, "GET", at, header, 1, 1, &keys, e) ? -1 : from_json(l, keys.body.data ? keys.body.data : "", keys.body.n, "Token", "instance metadata", NULL, e);
            free(at);
        }
    }
    http_reply_free(&token);
    http_reply_free(&role);
    http_reply_free(&keys);
    free(header);
    free(url);
    return result;
}

static int from_machine(struct load *l, struct err *e)
{
    int got = from_container(l, e);
    return got ? got : from_imds(l, e);
}

int aws_credentials_load(struct aws_credentials *c, const struct aws_config *config, bool explicit_profile, struct http_client *http, struct err *e)
{
    struct load l = {c, config, http};
    prog_no_core();
    *c = (struct aws_credentials){0};
    int got = explicit_profile ? 0 : from_environment(&l, e);
    if (!got) got = from_profile(&l, aws_config_profile(config), 0, e);
    if (!got) got = from_machine(&l, e);
    if (got < 0) return -1;
    if (!got)
        return err_set(e, EXIT_NOPERM, "no AWS credentials: looked at the environment, profile %s, container and instance metadata: "
            "set AWS_PROFILE or log in with the AWS CLI", aws_config_profile(config));
    if (strpbrk(c->key_id, "\r\n ") || strpbrk(c->secret, "\r\n ") || (c->token && strpbrk(c->token, "\r\n "))) {
        aws_credentials_free(c);
        return err_set(e, EXIT_NOPERM, "the credentials from the %s hold blanks or line ends", c->source);
    }
    note_msg("credentials: from the %s", c->source);
    return 0;
}
