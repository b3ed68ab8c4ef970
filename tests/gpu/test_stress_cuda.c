/*
 * Random graphs on the GPUs of this machine, compared to the bit with a sequential reference: by
 * every route, with 1, 2 and 4 run streams, on 1, 2 and 4 of the GPUs, and with workers that are
 * killed. tests/stress says how; --seconds N for longer runs, --devices N for clusters of that many
 * alone. What was covered is printed, and a run that has not seen everything fails.
 */
#include <stdlib.h>

#include "tests/integration/cluster.h"
#include "tests/stress/stress_test.h"

/* How many a private cluster finds here; skips when there is none. */
static uint32_t count_gpus(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info info;
    struct plasmon_client *client;
    uint32_t count = 0;

    cluster_tag();
    CLUSTER_OK(plasmon_init(&options, &client));
    CLUSTER_OK(plasmon_devices(client, &info, 1, &count));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
    if (count == 0 || info.kind != 2) {
        test_skip("no GPU");
    }
    return count;
}

static struct stress_profile profile(bool kills, uint32_t gpus)
{
    const struct stress_profile defaults = {.gpu         = true,
                                            .kills       = kills,
                                            .seconds     = 15,
                                            .devices_max = gpus < 4 ? gpus : 4,
                                            .large_bytes = 1u << 30};
    const struct stress_profile chosen   = stress_profile_from(&defaults);

    if (chosen.devices > gpus) {
        test_skip("%u GPUs, and --devices %u", gpus, chosen.devices);
    }
    return chosen;
}

TEST(random_graphs_mean_the_same_on_gpus)
{
    const struct stress_profile chosen = profile(false, count_gpus());

    stress_play(&chosen);
}

TEST(random_graphs_mean_the_same_on_gpus_when_workers_die)
{
    const struct stress_profile chosen = profile(true, count_gpus());

    test_expect_log();
    stress_play(&chosen);
}

int main(int argc, char **argv)
{
    return stress_main(argc, argv);
}
