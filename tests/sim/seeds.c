#include "tests/sim/seeds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/harness/test.h"

static void print_errors(void *user, enum pl_log_level level, const char *module,
                         const char *text)
{
    (void)user;
    if (level == PL_LOG_ERROR || getenv("PLASMON_SIM_TRACE") != NULL) {
        printf("# %s %s: %s\n", level == PL_LOG_ERROR ? "error" : "log", module, text);
        (void)fflush(stdout);
    }
}

void seeds_log_errors(void)
{
    pl_log_set_sink(print_errors, NULL);
    if (getenv("PLASMON_SIM_TRACE") != NULL) {
        pl_log_set_level(PL_LOG_DEBUG);
    }
}

static uint64_t running;

/* A broken invariant ends the process: without this nobody knows in which of the programs. */
static void name_seed(int number)
{
    char text[128];
    int bytes = snprintf(text, sizeof(text),
                         "# seed %llu ends the process; repeat with PLASMON_SEEDS=1 and "
                         "--seed %llu\n",
                         (unsigned long long)running, (unsigned long long)running);

    (void)number; /* abort() goes on with it when this returns */
    if (write(STDOUT_FILENO, text, (size_t)bytes) < 0) {
        return;
    }
}

uint64_t seeds_run(uint64_t by_default, bool (*run)(uint64_t seed, void *user), void *user)
{
    const char *text = getenv("PLASMON_SEEDS");
    uint64_t count   = text != NULL ? strtoull(text, NULL, 10) : by_default;
    uint64_t first   = test_seed();

    test_set_timeout(600);
    test_expect_log();
    seeds_log_errors();
    (void)signal(SIGABRT, name_seed);
    for (uint64_t seed = first; seed < first + count; seed++) {
        running = seed;
        if (!run(seed, user)) {
            test_fail(__FILE__, __LINE__,
                      "seed %llu fails; repeat with PLASMON_SEEDS=1 and --seed %llu",
                      (unsigned long long)seed, (unsigned long long)seed);
        }
    }
    (void)signal(SIGABRT, SIG_DFL);
    printf("# %llu seeds from %llu\n", (unsigned long long)count,
           (unsigned long long)first);
    return count;
}

static const char *const cell_texts[] = {
#define XX(name, text) [SIM_CELL_##name] = text,
    SIM_CELLS(XX)
#undef XX
};

void seeds_assert_met(const struct graph_coverage *sum, uint64_t enough,
                      enum sim_cell first, enum sim_cell last)
{
    for (uint32_t i = first; i <= (uint32_t)last; i++) {
        printf("# %8llu  %s\n", (unsigned long long)sum->met[i], cell_texts[i]);
    }
    (void)fflush(stdout);
    for (uint32_t i = first; sum->graphs >= enough && i <= (uint32_t)last; i++) {
        if (sum->met[i] == 0) {
            test_fail(__FILE__, __LINE__, "never met: %s", cell_texts[i]);
        }
    }
}
