/* `plasmon COMMAND`: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

#ifdef PLASMON_HAVE_BENCH
int bench_main(int argc, char **argv);

static const struct cli_command cli_bench = {
    .name    = "bench",
    .summary = "measure this machine: `plasmon bench --help`",
    .run     = bench_main,
};
#endif

static const struct cli_command *const commands[] = {
    &cli_start,   &cli_stop,      &cli_status,   &cli_nodes,  &cli_tasks,
    &cli_objects, &cli_top,       &cli_metrics,  &cli_memory, &cli_transfers,
    &cli_drain,   &cli_functions, &cli_timeline, &cli_cert,   &cli_doctor,
#ifdef PLASMON_HAVE_BENCH
    &cli_bench,
#endif
    &cli_version,
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: plasmon COMMAND [options]\n\n"
                 "Objects in device memory, functions that run where the objects are.\n\n");
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(out, "\n`plasmon COMMAND --help` tells more. Programs find a cluster by "
                 "PLASMON_ADDRESS and PLASMON_TOKEN;\n"
                 "without an address they start a private one.\n");
}

int main(int argc, char **argv)
{
    char *of_command[] = {argv[0], NULL, (char *)"--help", NULL};

    (void)signal(SIGXFSZ, SIG_IGN); /* a file over the limit: an error that names it */
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc == 3) {
        of_command[1] = argv[2];
        argv          = of_command;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        return cli_version.run(1, (char *[]){(char *)"version", NULL});
    }
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            return commands[i]->run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "plasmon: there is no command \"%s\"; see `plasmon --help`\n", argv[1]);
    return CLI_USAGE;
}
