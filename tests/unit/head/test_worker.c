/* Devices of the cluster: what number each gets, and what goes with a host. */
#include <stdarg.h>

#include "head/core.h"
#include "tests/harness/test.h"

static void drop_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    (void)user;
    (void)session;
    (void)body;
    (void)length;
}

static void drop_command(void *user, uint32_t device, const uint8_t *body, size_t length)
{
    (void)user;
    (void)device;
    (void)body;
    (void)length;
}

static void drop_fence(void *user, uint32_t device)
{
    (void)user;
    (void)device;
}

static void drop_session(void *user, uint64_t session)
{
    (void)user;
    (void)session;
}

static uint64_t count_up(void *user)
{
    static uint64_t last;

    (void)user;
    return ++last;
}

static const struct head_ops ops = {.client_frame   = drop_frame,
                                    .worker_command = drop_command,
                                    .fence          = drop_fence,
                                    .session_ended  = drop_session,
                                    .random64       = count_up};

static struct head_core *make(void)
{
    struct head_config config = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *core;

    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    return core;
}

static void announce(struct head_core *core, const char *node, uint32_t devices)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_node_up(core, node, node, devices, &err));
}

static uint32_t join(struct head_core *core, const char *node, uint32_t host_device)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;

    hello.host        = (char *)(uintptr_t)node;
    hello.node        = (char *)(uintptr_t)node;
    hello.name        = (char *)(uintptr_t) "test";
    hello.host_device = host_device;
    hello.kind        = 1;
    hello.bytes_total = 1 << 20;
    hello.incarnation = 1;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    return device;
}

TEST(devices_of_a_host_are_numbered_in_its_order_whoever_comes_first)
{
    struct head_core *core = make();

    announce(core, "a", 4);
    for (uint32_t i = 4; i-- > 0;) {
        ASSERT_EQ(join(core, "a", i), i);
    }
    head_core_destroy(core);
}

TEST(hosts_that_come_before_any_worker_are_numbered_by_name)
{
    struct head_core *core = make();

    announce(core, "c", 1);
    announce(core, "b", 2);
    announce(core, "a", 1);
    announce(core, "b", 2); /* over another connection: nothing new */
    ASSERT_EQ(head_core_device_count(core), 4);
    ASSERT_EQ(join(core, "c", 0), 3);
    ASSERT_EQ(join(core, "b", 1), 2);
    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "b", 0), 1);
    head_core_destroy(core);
}

TEST(a_number_that_was_told_stays)
{
    struct head_core *core = make();

    announce(core, "b", 1);
    ASSERT_EQ(join(core, "b", 0), 0);
    announce(core, "a", 1);
    ASSERT_EQ(join(core, "a", 0), 1);
    head_core_destroy(core);
}

TEST(a_cluster_is_complete_when_all_announced_devices_came)
{
    struct head_core *core = make();

    announce(core, "a", 2);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)join(core, "a", 1);
    ASSERT_TRUE(!head_core_all_joined(core));
    (void)join(core, "a", 0);
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

TEST(a_device_that_never_comes_is_not_waited_for)
{
    struct head_core *core = make();

    announce(core, "a", 2);
    (void)join(core, "a", 0);
    test_expect_log();
    head_core_worker_down(core, "a", 1, true, "it could not be started");
    ASSERT_TRUE(head_core_all_joined(core));
    head_core_destroy(core);
}

TEST(more_devices_than_can_be_numbered_are_refused)
{
    struct head_core *core = make();
    struct pl_err err      = {0};

    announce(core, "a", 40000);
    ASSERT_STATUS(head_core_node_up(core, "b", "b", 40000, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "65535");
    head_core_destroy(core);
}

TEST_MAIN()
