/* `plasmon stop`: ends what `plasmon start` started on this machine, and nothing else. */
#include <signal.h>
#include <stdio.h>

#include "client/cli/cli.h"

#define END_TIMEOUT_MS 30000 /* a store may move objects elsewhere first */

static int run(int argc, char **argv);
const struct cli_command cli_stop = {
    .name    = "stop",
    .summary = "end what `plasmon start` started on this machine",
    .usage   = "",
    .run     = run,
};

/* Then the cluster ends, and nothing has to be saved: SIGTERM asks a store to move what lies only there. */
static bool has_head(const struct cli_node *node)
{
    for (uint32_t i = 0; i < node->process_count; i++) {
        if (cli_process_is_head(&node->processes[i])) {
            return true;
        }
    }
    return false;
}

static int run(int argc, char **argv)
{
    struct cli_parsed parsed = cli_parse(&cli_stop, argc, argv, NULL);
    struct pl_err err        = {0};
    struct cli_node node;
    int result = CLI_OK, signal;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (cli_node_read(&node, &err) != PLASMON_OK) {
        if (err.status == PLASMON_ENOENT) {
            printf("nothing runs here that %s tells of\n", node.dir);
            return CLI_OK;
        }
        return cli_fail(&cli_stop, "%s", err.text);
    }

    signal = has_head(&node) ? SIGINT : SIGTERM;
    for (uint32_t i = node.process_count; i > 0;
         i--) { /* the store first: it takes its workers along */
        const struct cli_process *process = &node.processes[i - 1];
        int pidfd                         = cli_process_open(process);

        if (pidfd < 0) {
            printf("%s (pid %d) had ended before\n", process->name, process->pid);
        } else if (cli_process_end(pidfd, signal, END_TIMEOUT_MS)) {
            printf("%s (pid %d) has ended\n", process->name, process->pid);
        } else {
            result = cli_fail(
                &cli_stop,
                "%s (pid %d) cannot be killed: it hangs in the kernel, perhaps in a driver",
                process->name, process->pid);
        }
    }
    if (result == CLI_OK) {
        cli_node_remove(&node);
    }
    return result;
}
