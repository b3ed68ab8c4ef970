/* When a checkpoint can be made: what is under way stands in its way, and what will never be does not. */
#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { MORE = 5 };

static struct head_core *two_devices(uint64_t *out_session)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    ASSERT_EQ(core_join(core, "a", 1), 1);
    *out_session = core_client(core);
    head_core_flush(core);
    return core;
}

static void submit_many(struct head_core *core, uint64_t session)
{
    uint64_t dim = 1;

    for (uint64_t id = 1; id <= MORE; id++) {
        core_submit(core, session, id, 1, 0, &dim, 1);
    }
}

TEST(a_device_that_is_gone_with_launches_that_were_never_sent_is_quiet)
{
    uint64_t session;
    struct head_core *core = two_devices(&session);

    test_expect_log(); /* that it is gone */
    ASSERT_NULL(head_core_unquiet(core));
    head_core_worker_lost(core, 1);
    submit_many(core, session);
    ASSERT_NOT_NULL(head_core_unquiet(core));
    ASSERT_EQ(head_device_at(core, 1)->seq_sent, 0);
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it burns");
    head_core_flush(core);
    ASSERT_EQ(core->tasks_failed, MORE);
    if (head_core_unquiet(core) != NULL) {
        test_fail(__FILE__, __LINE__, "%s", head_core_unquiet(core));
    }
    head_core_check(core);
    head_core_destroy(core);
}

TEST(nobody_is_to_wait_for_tasks_of_a_device_that_is_away)
{
    uint64_t session;
    struct head_core *core = two_devices(&session);

    ASSERT_TRUE(head_core_may_end(core));
    head_core_worker_lost(core, 0);
    ASSERT_TRUE(head_core_may_end(core)); /* it has nothing to do */
    submit_many(core, session);
    ASSERT_TRUE(head_core_may_end(core));
    head_core_worker_lost(core, 1);
    ASSERT_TRUE(!head_core_may_end(core));
    test_expect_log();
    head_core_worker_down(core, "a", 1, true, PLASMON_OK, "it burns");
    ASSERT_TRUE(head_core_may_end(core));
    head_core_destroy(core);
}

TEST_MAIN()
