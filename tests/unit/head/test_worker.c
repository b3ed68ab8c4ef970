/* Devices of the cluster: what number each gets, and what goes with a host. */
#include "head/core.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

TEST(devices_of_a_host_are_numbered_in_its_order_whoever_comes_first)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 4);
    for (uint32_t i = 4; i-- > 0;) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
    head_core_destroy(core);
}

TEST(hosts_that_come_before_any_worker_are_numbered_by_name)
{
    struct head_core *core = core_make();

    core_announce(core, "c", 1);
    core_announce(core, "b", 2);
    core_announce(core, "a", 1);
    core_announce(core, "b", 2); /* over another connection: nothing new */
    ASSERT_EQ(head_core_device_count(core), 4);
    ASSERT_EQ(core_join(core, "c", 0), 3);
    ASSERT_EQ(core_join(core, "b", 1), 2);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    ASSERT_EQ(core_join(core, "b", 0), 1);
    head_core_destroy(core);
}

TEST(a_number_that_was_told_stays)
{
    struct head_core *core = core_make();

    core_announce(core, "b", 1);
    ASSERT_EQ(core_join(core, "b", 0), 0);
    core_announce(core, "a", 1);
    ASSERT_EQ(core_join(core, "a", 0), 1);
    head_core_destroy(core);
}

TEST(a_cluster_is_complete_when_all_announced_devices_came)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)core_join(core, "a", 1);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)core_join(core, "a", 0);
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

TEST(a_device_that_never_comes_is_not_waited_for)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    (void)core_join(core, "a", 0);
    test_expect_log();
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it could not be started");
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

TEST(more_devices_than_can_be_numbered_are_refused)
{
    struct head_core *core = core_make();
    struct pl_err err      = {0};

    core_announce(core, "a", 40000);
    ASSERT_STATUS(head_core_node_up(core, "b", "b", 40000, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "65535");
    head_core_destroy(core);
}

TEST_MAIN()
