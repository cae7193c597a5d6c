#include "rehearse/scheduler.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "aws/sigv4.h"
#include "base/json.h"
#include "rehearse/control.h"

#define RETRY 60.0              /* seconds of the cloud */
#define AT_LEAST 0.5            /* real seconds between two turns */

static void invalid(struct call *c, const char *message) { call_error(c, 400, "ValidationException", "%s", message); }

/* --- expressions ----------------------------------------------------------------------------------------------------- */

/* at(yyyy-mm-ddThh:mm:ss): the moment; rate(N unit): the period. */
static bool parse_at(const char *s, double *when)
{
    int y, mo, d, h, mi, sec, n = 0;
    char date[SIGV4_DATE];
    time_t t;
    if (sscanf(s, "at(%4d-%2d-%2dT%2d:%2d:%2d)%n", &y, &mo, &d, &h, &mi, &sec, &n) != 6 || !n || s[n]) return false;
    if (y < 1970 || y > 9999 || mo > 12 || mo < 1 || d < 1 || d > 31 || h < 0 || h > 23 || mi < 0 || mi > 59 || sec < 0 || sec > 60) return false;
    snprintf(date, sizeof date, "%04u%02u%02uT%02u%02u%02uZ", (unsigned)y % 10000, (unsigned)mo % 100, (unsigned)d % 100, (unsigned)h % 100, (unsigned)mi % 100, (unsigned)sec % 100);
    bool good = sigv4_parse_date(date, &t);
    *when = (double)t;
    return good;
}

static bool parse_rate(const char *s, double *period)
{
    char unit[16];
    long n;
    int end = 0;
    if (sscanf(s, "rate(%ld %15[a-z])%n", &n, unit, &end) != 2 || !end || s[end] || n < 1 || n > 1000000) return false;
    double each = !strncmp(unit, "minute", 6) ? 60 : !strncmp(unit, "hour", 4) ? 3600 : !strncmp(unit, "day", 3) ? 86400 : 0;
    *period = (double)n * each;
    return each > 0;
}

/* "deleteEndpoint" of the target's ARN as "DeleteEndpoint", or NULL. */
static const char *target_op(const json_t *schedule)
{
    static const char PREFIX[] = "arn:aws:scheduler:::aws-sdk:sagemaker:";
    static const char *const OPS[] = {"DeleteEndpoint", "DeleteEndpointConfig", "DeleteModel"};
    const char *arn = json_field(json_object_get(schedule, "Target"), "Arn");
    if (strncmp(arn, PREFIX, sizeof PREFIX - 1)) return NULL;
    const char *op = arn + sizeof PREFIX - 1;
    for (size_t i = 0; i < 3; i++)
        if (tolower((unsigned char)OPS[i][0]) == *op && !strcmp(OPS[i] + 1, op + 1)) return OPS[i];
    return NULL;
}

static char *target_name(const json_t *schedule, const char *op)
{
    struct err e = {0};
    const char *input = json_field(json_object_get(schedule, "Target"), "Input");
    json_t *v = json_parse(input, strlen(input), "Input", &e);
    const char *key = !strcmp(op, "DeleteEndpoint") ? "EndpointName" : !strcmp(op, "DeleteEndpointConfig") ? "EndpointConfigName" : "ModelName";
    char *name = *json_field(v, key) ? xstrdup(json_field(v, key)) : NULL;
    json_decref(v);
    return name;
}

/* --- the calls ------------------------------------------------------------------------------------------------------- */

/* NAME of /schedules/NAME with its group: the key of the table; freed by the caller. */
static char *asked_key(struct call *c, char **name)
{
    const char *p = c->path + strlen("/schedules");
    char *group = query_get(c->query, "groupName");
    if (!group && call_str(c, "GroupName")) group = xstrdup(call_str(c, "GroupName"));
    *name = *p == '/' ? url_decode(p + 1, strlen(p + 1), false) : xstrdup("");
    char *key = xasprintf("%s/%s", group ? group : "default", *name);
    free(group);
    return key;
}

static bool schedule_right(struct call *c, const char *name)
{
    double t;
    const char *expression = call_str(c, "ScheduleExpression"), *zone = call_str(c, "ScheduleExpressionTimezone"), *op = target_op(c->in);
    size_t n = strlen(name);
    bool good = n && n <= 64;
    for (const char *p = name; *p; p++) good &= isalnum((unsigned char)*p) || strchr("-_.", *p);
    char *target = op ? target_name(c->in, op) : NULL;
    if (!good) invalid(c, "1 validation error detected: Value at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [0-9a-zA-Z-_.]+");
    else if (!expression || (!parse_at(expression, &t) && !parse_rate(expression, &t)))
        invalid(c, "Invalid Schedule Expression: expected at(yyyy-mm-ddThh:mm:ss) or rate(N minutes|hours|days); cron is not supported here.");
    else if (zone && strcmp(zone, "UTC")) invalid(c, "Provided ScheduleExpressionTimezone is not supported here: expected UTC.");
    else if (!json_is_object(json_object_get(c->in, "FlexibleTimeWindow"))) invalid(c, "1 validation error detected: Value null at 'flexibleTimeWindow' failed to satisfy constraint: Member must not be null");
    else if (!*json_field(json_object_get(c->in, "Target"), "RoleArn")) invalid(c, "1 validation error detected: Value null at 'target.roleArn' failed to satisfy constraint: Member must not be null");
    else if (!target) invalid(c, "Provided Arn and Input are not supported here: expected arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint with {\"EndpointName\"} (or the configuration's, the model's).");
    free(target);
    return c->x != NULL;
}

static double first_turn(struct call *c)
{
    double when = 0, now = world_now(c->w);
    const json_t *start = json_object_get(c->in, "StartDate");
    if (parse_at(call_str(c, "ScheduleExpression"), &when)) return when;
    return json_is_number(start) && json_number_value(start) > now ? json_number_value(start) : now;
}

static void put_schedule(struct call *c, const char *key, const char *name, bool update)
{
    json_t *table = world_table(c->w, c->region, "schedule"), *old = json_object_get(table, key);
    if (!schedule_right(c, name)) return;
    if (old && !update) {
        /* The same request again is no conflict. */
        if (!strcmp(json_field(old, "ClientToken"), json_field(c->in, "ClientToken")) && *json_field(old, "ClientToken")) call_json(c, json_pack("{s:s}", "ScheduleArn", json_field(old, "Arn")));
        else call_error(c, 409, "ConflictException", "Schedule %s already exists.", name);
        return;
    }
    if (!old && update) {
        call_error(c, 404, "ResourceNotFoundException", "Schedule %s does not exist.", name);
        return;
    }
    json_t *s = json_deep_copy(c->in);
    char *arn = xasprintf("arn:aws:scheduler:%s:" ACCOUNT ":schedule/%s", c->region, key);
    json_object_set_new(s, "Name", json_string(name));
    json_object_set_new(s, "GroupName", json_stringn(key, strcspn(key, "/")));
    json_object_set_new(s, "Arn", json_string(arn));
    if (!*json_field(s, "State")) json_object_set_new(s, "State", json_string("ENABLED"));
    json_object_set_new(s, "CreationDate", old ? json_incref(json_object_get(old, "CreationDate")) : world_time(world_now(c->w)));
    json_object_set_new(s, "LastModificationDate", world_time(world_now(c->w)));
    json_object_set_new(s, "next", world_time(first_turn(c)));
    json_object_set_new(table, key, s);
    c->w->dirty = true;
    call_json(c, json_pack("{s:s}", "ScheduleArn", arn));
    free(arn);
}

static void list_schedules(struct call *c)
{
    json_t *list = json_array(), *s;
    char *prefix = query_get(c->query, "NamePrefix");
    const char *key;
    json_object_foreach(world_table(c->w, c->region, "schedule"), key, s) {
        if (prefix && strncmp(json_field(s, "Name"), prefix, strlen(prefix))) continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:O, s:{s:s}}", "Arn", json_field(s, "Arn"), "Name", json_field(s, "Name"), "GroupName", json_field(s, "GroupName"),
            "State", json_field(s, "State"), "CreationDate", json_object_get(s, "CreationDate"), "Target", "Arn", json_field(json_object_get(s, "Target"), "Arn")));
    }
    free(prefix);
    call_json(c, json_pack("{s:o}", "Schedules", list));
}

static void get_or_delete(struct call *c, const char *key, const char *name)
{
    json_t *table = world_table(c->w, c->region, "schedule"), *s = json_object_get(table, key);
    if (!s) {
        call_error(c, 404, "ResourceNotFoundException", "Schedule %s does not exist.", name);
    } else if (!strcmp(c->op, "GetSchedule")) {
        json_t *out = json_deep_copy(s);
        json_object_del(out, "next");
        json_object_del(out, "ClientToken");
        call_json(c, out);
    } else {
        json_object_del(table, key);
        c->w->dirty = true;
        call_json(c, json_object());
    }
}

void scheduler_call(struct call *c)
{
    char *name, *key = asked_key(c, &name);
    if (!strcmp(c->op, "CreateSchedule") || !strcmp(c->op, "UpdateSchedule")) put_schedule(c, key, name, *c->op == 'U');
    else if (!strcmp(c->op, "ListSchedules")) list_schedules(c);
    else if (!strcmp(c->op, "GetSchedule") || !strcmp(c->op, "DeleteSchedule")) get_or_delete(c, key, name);
    else call_error(c, 404, "ResourceNotFoundException", "There is nothing at this path");
    free(name);
    free(key);
}

/* --- firing ---------------------------------------------------------------------------------------------------------- */

/* True when the schedule is to go. */
static bool fire(struct world *w, const char *region, json_t *s)
{
    double period = 0;
    const char *op = target_op(s);
    char *name = target_name(s, op), *refusal = control_delete(w, region, op, name);
    bool rate = parse_rate(json_field(s, "ScheduleExpression"), &period), done = !refusal || !strncmp(refusal, "Could not find", 14);
    double wait = (rate ? period : RETRY) / w->speed;
    note_msg("schedule %s fires: %s %s: %s", json_field(s, "Name"), op, name, refusal ? refusal : "done");
    json_object_set_new(s, "next", world_time(world_now(w) + (wait > AT_LEAST ? wait : AT_LEAST)));
    w->dirty = true;
    free(name);
    free(refusal);
    if (!rate && done) json_object_set_new(s, "State", json_string("DISABLED"));
    return !rate && done && !strcmp(json_field(s, "ActionAfterCompletion"), "DELETE");
}

void scheduler_tick(struct world *w)
{
    json_t *table, *s;
    const char *region, *key;
    void *next;
    double now = world_now(w);
    json_object_foreach(world_section(w, "regions"), region, table) {
        json_t *schedules = json_object_get(table, "schedule");
        json_object_foreach_safe(schedules, next, key, s) {
            const json_t *end = json_object_get(s, "EndDate");
            bool over = json_is_number(end) && now > json_number_value(end);
            if (strcmp(json_field(s, "State"), "ENABLED") || (!over && now < json_number_value(json_object_get(s, "next")))) continue;
            if (over ? !strcmp(json_field(s, "ActionAfterCompletion"), "DELETE") : fire(w, region, s)) {
                json_object_del(schedules, key);
                w->dirty = true;
            }
        }
    }
}
