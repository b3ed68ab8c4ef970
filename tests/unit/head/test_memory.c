/* The figure that the head gives for the memory of its tasks, against the allocator's own. */
#include <malloc.h>
#include <stdlib.h>

#include "base/base.h"
#include "head/core.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

#define TASKS       100000u
#define FRAME       1000u
#define TARGET      1024u /* bytes a task */
#define ROOM_TENTHS 12u   /* the figure may be wrong by so much */

static struct pl_err err;

static uint64_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* `count` tasks that do nothing, from `first` on. */
static void submit(struct head_core *core, uint64_t session, uint64_t first, uint32_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    static Plasmon__V1__Task tasks[FRAME], *list[FRAME];

    for (uint32_t i = 0; i < count; i++) {
        plasmon__v1__task__init(&tasks[i]);
        tasks[i].id       = first + i;
        tasks[i].function = pl_hash_name("noop");
        list[i]           = &tasks[i];
    }
    frame.n_tasks = count;
    frame.tasks   = list;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

static uint64_t task_bytes(struct head_core *core)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(head_core_status(core, &arena, &reply));
    wire_arena_finish(&arena);
    return reply.task_bytes;
}

static void submit_all(struct head_core *core, uint64_t session)
{
    for (uint32_t i = 0; i < TASKS; i += FRAME) {
        submit(core, session, 1 + i, FRAME);
    }
}

TEST(queued_tasks_that_do_nothing_take_what_the_status_says_and_at_most_a_kibibyte)
{
    struct head_core *core = core_make();
    uint64_t session       = core_client(core);
    uint64_t before, grown, said;

    core_announce(core, "a", 1);
    (void)core_join(core, "a", 0);
    head_core_flush(core);
    before = in_use();
    submit_all(core, session);
    grown = in_use() - before;
    if (before == 0 && grown == 0) {
        test_skip("this allocator does not count (a sanitizer's)");
    }
    said = task_bytes(core);
    printf("# %llu bytes a task, the allocator says %llu\n", (unsigned long long)said,
           (unsigned long long)(grown / TASKS));
    ASSERT_TRUE(said > 0 && said <= TARGET);
    ASSERT_TRUE(grown * 10 <= said * TASKS * ROOM_TENTHS);
    ASSERT_TRUE(grown * ROOM_TENTHS >= said * TASKS * 10);
    head_core_destroy(core);
}

TEST(the_figure_stays_when_the_tasks_have_ended)
{
    struct head_core *core = core_make();
    uint64_t session       = core_client(core);
    uint64_t said;

    core_announce(core, "a", 1);
    (void)core_join(core, "a", 0);
    submit_all(core, session);
    said = task_bytes(core);
    test_expect_log();
    head_core_node_gone(core, "a", "for the test");
    ASSERT_TRUE(head_core_idle(core) || (head_core_flush(core), head_core_idle(core)));
    ASSERT_EQ(task_bytes(core), said);
    head_core_destroy(core);
}

TEST_MAIN()
