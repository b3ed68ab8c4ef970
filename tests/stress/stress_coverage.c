/*
 * What a run has seen. A run that passes proves something only about what happened in it: so it
 * says how often everything that makes trouble did, and a long run in which one of these things
 * never happened has failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tests/integration/cluster.h"
#include "tests/stress/stress_test.h"

/* floods and recordings come in some clusters only: minutes, not seconds */
#define LONG_STEPS 30000u

/* "peer" and "host" copies of the cluster that is about to end, as its head counted them. */
static uint64_t copies_in(const char *json)
{
    static const char key[] = "\"copies\":";
    uint64_t copies         = 0;

    for (const char *at = strstr(json, key); at != NULL; at = strstr(at + 1, key)) {
        copies += strtoull(at + strlen(key), NULL, 10);
    }
    return copies;
}

void stress_cover_cluster(struct stress_run *run)
{
    char *json;

    run->tally.clusters[run->ground.devices]++;
    run->tally.with_sources += run->ground.sources;
    run->tally.scarce += run->ground.scarce;
    run->tally.all++;
    CLUSTER_OK(plasmon_status_json(run->ground.client, &json));
    run->tally.copies += copies_in(json);
    free(json);
}

/* --------------------------------------------------------------------- what it comes to */

static void print(const struct stress_coverage *covered, const struct stress_tally *tally,
                  uint64_t deaths)
{
    printf("# clusters by devices:");
    for (uint32_t i = 1; i <= STRESS_DEVICES_MAX; i++) {
        if (tally->clusters[i] > 0) {
            printf(" %u of %u,", tally->clusters[i], i);
        }
    }
    printf(" %u of all with source functions\n# steps:", tally->with_sources);
    for (uint32_t i = 0; i < STRESS_KINDS; i++) {
        printf(" %s %llu%s", stress_kind_name((enum stress_kind)i),
               (unsigned long long)atomic_load(&covered->kind[i]),
               i + 1 < STRESS_KINDS ? "," : "\n");
    }
    printf("# %llu delayed kernels (%.1f s), %llu modules loaded, %llu frees, %llu graph "
           "launches (%llu replays), %llu copies between devices, %llu workers killed\n",
           (unsigned long long)atomic_load(&covered->delays),
           (double)atomic_load(&covered->delayed_us) * 1e-6,
           (unsigned long long)atomic_load(&covered->modules),
           (unsigned long long)atomic_load(&covered->frees),
           (unsigned long long)atomic_load(&covered->launches),
           (unsigned long long)atomic_load(&covered->replays),
           (unsigned long long)tally->copies, (unsigned long long)deaths);
}

static void expect(uint64_t count, const char *what)
{
    if (count == 0) {
        test_fail(__FILE__, __LINE__, "a long run has seen no %s", what);
    }
}

/* A program that has no GPU of its own maps no memory of one. */
static bool possible(const struct stress_run *run, enum stress_kind kind)
{
    switch (kind) {
    case STRESS_SOURCE:
        return run->tally.with_sources > 0;
    case STRESS_MAP:
    case STRESS_UNMAP:
        return !run->profile->gpu;
    case STRESS_FLOOD:
        return run->tally.scarce > 0;
    case STRESS_LARGE:
        return run->tally.scarce < run->tally.all;
    default:
        return true;
    }
}

void stress_cover_end(struct stress_run *run, uint64_t deaths)
{
    const struct stress_coverage *covered = &run->ground.covered;
    const struct stress_tally *tally      = &run->tally;
    uint32_t several                      = 0;

    print(covered, tally, deaths);
    if (run->steps < LONG_STEPS) {
        return;
    }
    for (uint32_t i = 0; i < STRESS_KINDS; i++) {
        if (possible(run, (enum stress_kind)i)) {
            expect(atomic_load(&covered->kind[i]), stress_kind_name((enum stress_kind)i));
        }
    }
    for (uint32_t i = 2; i <= STRESS_DEVICES_MAX; i++) {
        several += tally->clusters[i];
    }
    expect(atomic_load(&covered->delays), "delayed kernel");
    expect(atomic_load(&covered->frees), "free");
    expect(atomic_load(&covered->replays), "replay of a graph");
    expect(tally->with_sources == 0 || atomic_load(&covered->modules) > 0, "module loaded");
    expect(several == 0 || tally->copies > 0, "copy between devices");
    expect(!run->profile->kills || deaths > 0, "killed worker");
}
