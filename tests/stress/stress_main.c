/*
 * The options of the stress tests, besides those of all tests: they hold for every test that --only
 * leaves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"
#include "tests/stress/stress_test.h"

static uint64_t seconds_asked, graphs_asked, devices_asked;
static const char *transfer_asked;

struct stress_profile stress_profile_from(const struct stress_profile *defaults)
{
    struct stress_profile profile = *defaults;

    if (seconds_asked > 0 || graphs_asked > 0) {
        profile.seconds = (uint32_t)seconds_asked;
        profile.graphs  = graphs_asked;
    }
    profile.devices = (uint32_t)devices_asked;
    if (transfer_asked != NULL) {
        profile.transfer = transfer_asked;
    }
    profile.seed = test_seed();
    return profile;
}

int stress_main(int argc, char **argv)
{
    char *rest[16];
    int count = 0;

    for (int i = 0; i < argc; i++) {
        uint64_t *into = strcmp(argv[i], "--seconds") == 0   ? &seconds_asked
                         : strcmp(argv[i], "--graphs") == 0  ? &graphs_asked
                         : strcmp(argv[i], "--devices") == 0 ? &devices_asked
                                                             : NULL;

        if (strcmp(argv[i], "--transfer") == 0 && i + 1 < argc) {
            transfer_asked = argv[++i];
        } else if (into != NULL && i + 1 < argc) {
            char *end;

            *into = strtoull(argv[++i], &end, 10);
            if (*end != '\0' || *into == 0 || *into > 1000000 ||
                devices_asked > STRESS_DEVICES_MAX) {
                fprintf(
                    stderr,
                    "%s: --seconds and --graphs want a number, --devices one up to %d\n",
                    argv[0], STRESS_DEVICES_MAX);
                return 2;
            }
        } else if (count < 15) {
            rest[count++] = argv[i];
        }
    }
    rest[count] = NULL;
    return test_main(count, rest);
}
