/*
 * Hosts of a cluster: how their devices are numbered, that each has one store, and what happens when a store or the head goes.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/integration/started.h"

/* ------------------------------------------------------------------------------------------------ numbers */

static void expect_numbers(struct plasmon_client *client, unsigned devices)
{
    char object[32];

    for (unsigned i = 0; i < devices; i++) {
        (void)snprintf(object, sizeof(object), "{\"index\":%u,", i);
        ASSERT_EQ(started_status(client, object, "host_device"), i);
    }
}

TEST(a_private_cluster_numbers_its_devices_in_the_hosts_order)
{
    for (int round = 0; round < 3; round++) {
        struct plasmon_client *client = cluster_start_sized(6, 16 << 20);

        expect_numbers(client, 6);
        plasmon_finish(client);
    }
}

TEST(a_started_cluster_numbers_its_devices_in_the_hosts_order)
{
    struct plasmon_client *client;

    started_cluster(6);
    client = started_join();
    expect_numbers(client, 6);
    plasmon_finish(client);
}

TEST_MAIN()
