#include "mcp/files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/io.h"
#include "base/percent.h"
#include "base/text.h"

struct found { json_t *list, *paths; };         /* URI to path in paths */

static const char *media_type(const char *name)
{
    return ends_with(name, ".json") ? "application/json" : ends_with(name, ".html") ? "text/html" : "text/markdown";
}

static void add_file(struct found *f, const char *path, const char *kind, const char *name, const char *about)
{
    struct stat s;
    struct buf uri = BUF_INIT;
    if (stat(path, &s) || !S_ISREG(s.st_mode) || (size_t)s.st_size > FILES_MAX) return;
    buf_printf(&uri, "q4sweep:///%s/", kind);
    percent_encode(&uri, name, strlen(name), "@/");
    json_array_append_new(f->list, json_pack("{s:s, s:o, s:s, s:s, s:I}", "uri", uri.data, "name", json_message(name), "description", about, "mimeType", media_type(name), "size",
        (json_int_t)s.st_size));
    json_object_set_new(f->paths, uri.data, json_message(path));
    buf_free(&uri);
}

static int seen(const struct dirent *d) { return d->d_name[0] != '.'; }

/* Files of DIR whose names end as told, links to keyed files among them, but not those files (BUILD-KEY.KEY.json, BUILD-KEY.check-KEY.json). */
static void add_directory(struct found *f, const char *dir, const char *kind, const char *prefix, bool links, const char *end, const char *about)
{
    struct dirent **list;
    int n = scandir(dir, &list, seen, alphasort);
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", dir, list[i]->d_name), *name = xasprintf("%s%s", prefix, list[i]->d_name);
        struct stat s;
        if (ends_with(list[i]->d_name, end) && (!links || (!lstat(path, &s) && S_ISLNK(s.st_mode)))) add_file(f, path, kind, name, about);
        free(path);
        free(name);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

static void add_sweeps(struct found *f, const char *out)
{
    struct dirent **list;
    int n = scandir(out, &list, seen, alphasort);
    for (int i = 0; i < n; i++) {
        char *dir = xasprintf("%s/%s", out, list[i]->d_name), *prefix = xasprintf("%s/", list[i]->d_name), *table = xasprintf("%s/table.md", dir), *name = xasprintf("%stable.md", prefix);
        add_directory(f, dir, "results", prefix, true, ".json", "the newest result of a build: every request, settings, machine, engine, weights");
        add_file(f, table, "results", name, "the table of the newest sweep of a model");
        free(dir);
        free(prefix);
        free(table);
        free(name);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

static struct found find_files(const struct places *p)
{
    struct found f = {json_array(), json_object()};
    char *report = xasprintf("%s/report", p->out), *published = xasprintf("%s/published", p->data);
    add_sweeps(&f, p->out);
    add_directory(&f, report, "report", "", false, ".md", "the report: what was run, tables, plots, method, caveats");
    add_directory(&f, report, "report", "", false, ".html", "the report as one page");
    add_directory(&f, published, "published", "", false, ".json", "the published study: one build's result");
    free(report);
    free(published);
    return f;
}

json_t *files_list(const struct places *p)
{
    struct found f = find_files(p);
    json_decref(f.paths);
    return f.list;
}

json_t *files_read(const struct places *p, const char *uri, struct err *e)
{
    struct found f = find_files(p);
    const char *path = json_string_value(json_object_get(f.paths, uri));
    char *text = NULL;
    size_t n;
    json_t *contents = NULL;
    if (!path) err_set(e, EXIT_NOINPUT, "%.200s: there is no such resource", uri);
    else if (!io_slurp(path, FILES_MAX, &text, &n, e))
        contents = json_pack("[{s:s, s:s, s:o}]", "uri", uri, "mimeType", media_type(path), "text", json_message(text));
    free(text);
    json_decref(f.list);
    json_decref(f.paths);
    return contents;
}
