/* Any bytes as the journal: it is read; an entry that is then written down as gone is gone, one that is added is there, also behind a torn line. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "aws/journal.h"
#include "fuzz.h"
#include "scratch.h"

static bool listed(const struct journal_entry *x)
{
    struct journal_entry *list;
    size_t n;
    bool found = false;
    struct err e = {0};
    if (journal_load(&list, &n, &e) != 0)
        abort();
    for (size_t i = 0; i < n; i++)
        found |= !strcmp(list[i].name, x->name) && !strcmp(list[i].region, x->region) && !list[i].url == !x->url && (!x->url || !strcmp(list[i].url, x->url));
    journal_free(list, n);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool made;
    struct err e = {0};
    struct journal_entry *list, own = {.name = (char[]){"own"}, .region = (char[]){"us-east-1"}, .created = 1, .expires = 2};
    size_t m;
    if (!made) {
        char dir[200];
        snprintf(dir, sizeof dir, "%s/q4sweep", scratch());
        mkdir(dir, 0700);
        setenv("XDG_STATE_HOME", scratch(), 1);
        made = true;
    }
    scratch_file("q4sweep/journal.jsonl", data, n);
    if (journal_load(&list, &m, &e) != 0) {         /* compressed */
        if (e.code == 0 || e.code == EXIT_BUG)
            abort();
        return 0;
    }
    for (size_t i = 0; i < m; i++) {
        if (!list[i].name || !list[i].region)
            abort();
        (void)journal_is_orphan(&list[i]);
    }
    if (m && (journal_gone(&list[0], &e) != 0 || listed(&list[0])))
        abort();
    journal_free(list, m);
    if (journal_intent(&own, "CreateEndpoint", &e) != 0 || !listed(&own))
        abort();
    return 0;
}
