/*
 * One GPU as several devices (tests/harness/gpu/split_cuda.c), in front of the driver that has no
 * GPU: what is run on one real GPU in its place.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/integration/started.h"

#define PARTS 3

TEST(one_gpu_is_several_devices_that_are_each_others_peers)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_device_info infos[PARTS + 1];
    struct plasmon_client *client;
    uint32_t count = 0;

    cluster_tag();
    test_expect_log();
    ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "2", 1), 0); /* the first is split */
    ASSERT_EQ(setenv("SPLIT_CUDA_DEVICES", "3", 1), 0);
    ASSERT_EQ(setenv("SPLIT_CUDA_DRIVER", FAKE_DRIVER, 1), 0);
    options.gpus = "auto";
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    CLUSTER_OK(plasmon_devices(client, infos, PARTS + 1, &count));
    ASSERT_EQ(count, PARTS);
    ASSERT_STR(infos[0].name, "fake 0, part 0 of 3");
    ASSERT_STR(infos[2].name, "fake 0, part 2 of 3");

    struct plasmon_ref *here = cluster_put(client, 1 << 20, 5, 0);
    struct plasmon_ref *read = cluster_copy(client, here, 2);
    char *text;

    CLUSTER_OK(plasmon_wait(client, &read, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    cluster_expect_ramp(client, here, 1 << 20, 5, 1);
    CLUSTER_OK(plasmon_status_json(client, &text));
    for (char *from = text, *to = text; (*to = *from) != '\0'; from++) {
        to += *from != ' ' && *from != '\n';
    }
    ASSERT_CONTAINS(text, "\"route\":\"peer\",\"copies\":1");
    free(text);
    CLUSTER_OK(plasmon_release(client, here));
    CLUSTER_OK(plasmon_release(client, read));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_WAIT_MS);
}

TEST_MAIN()
