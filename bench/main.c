/* `plasmon bench NAME`: finds the benchmark and runs it. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

static const struct cli_command *const benchmarks[] = {
    &bench_tasks,     &bench_transfer, &bench_overlap,     &bench_gemm,    &bench_graphs,
    &bench_timelines, &bench_remote,   &bench_collectives, &bench_journal, &bench_chaos,
    &bench_soak,      &bench_hostile,  &bench_spill,       &bench_tls};

static void print_help(FILE *out)
{
    fprintf(out,
            "usage: plasmon bench NAME [options]\n\n"
            "Measures Plasmon on this machine beside the machine itself, in one run.\n\n");
    for (size_t i = 0; i < PL_COUNT(benchmarks); i++) {
        fprintf(out, "  %-11s %s\n", strchr(benchmarks[i]->name, ' ') + 1,
                benchmarks[i]->summary);
    }
    fprintf(out, "\n`plasmon bench NAME --help` tells more.\n");
}

int bench_main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    for (size_t i = 0; i < PL_COUNT(benchmarks); i++) {
        if (strcmp(argv[1], strchr(benchmarks[i]->name, ' ') + 1) == 0) {
            return benchmarks[i]->run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr,
            "plasmon bench: there is no benchmark \"%s\"; see `plasmon bench --help`\n",
            argv[1]);
    return CLI_USAGE;
}
