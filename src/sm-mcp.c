/* sm-mcp: the programs as tools of the Model Context Protocol: an agent's JSON-RPC on stdin, answers on stdout. */
#include <signal.h>
#include <stdlib.h>
#include "base/opt.h"
#include "base/self.h"
#include "mcp/server.h"

static char *own_directory(void)
{
    char *bin = self_directory();
    if (!bin) die_msg(EXIT_UNAVAILABLE, "cannot tell where this program lies: is /proc mounted?");
    return bin;
}

static char *beside(const char *bin, const char *name)
{
    char *path = self_beside(bin, name);
    if (!path) die_msg(EXIT_UNAVAILABLE, "%s: there is no %s beside it: install q4sweep whole", bin, name);
    return path;
}

int main(int argc, char **argv)
{
    prog_init(argv[0]);
    struct places p = {.out = "out"};
    const struct opt opts[] = {{"out", 'o', OPT_STR, &p.out, "DIR", "where sweeps and reports leave their results", 0, 0}, {0}};
    const struct opt_spec spec = {
        .usage = "[--out DIR] < messages > messages",
        .about = "A server of the Model Context Protocol over stdio: repack, check, publish, up, status, wait, facts, logs, invoke, measure, tabulate, quota, image,\n"
                 "list, delete and sweep_status as tools, results and reports as resources.  An agent's client starts it; what costs, publishes or deletes\n"
                 "asks for an explicit confirm.  When its input ends, or it is told to end, the programs it has started end too.",
        .opts = opts,
        .examples = "echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | sm-mcp\n"
                    "sm-mcp --out /data/out < messages.jsonl > answers.jsonl",
        .exits = "65 the input ended within a message"};
    struct err e = {0};
    int sig;
    opt_parse(&spec, argc, argv);
    p.bin = own_directory();
    p.pipelines = beside(p.bin, "pipelines");
    p.data = beside(p.bin, "data");
    setenv("Q4BIN", p.bin, 1);
    if (server_run(&p, &sig, &e)) die(&e);
    free(p.bin);
    free(p.pipelines);
    free(p.data);
    if (sig) {
        signal(sig, SIG_DFL);
        raise(sig);
    }
    return 0;
}
