/*
 * Whose success a reader depends on, of those that write one buffer: the tasks here are no more
 * than their uses of it.
 */
#include <plasmon/plasmon.h>

#include <string.h>

#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { WRITERS_MAX = 4 };

static struct {
    struct head_core *core;
    struct head_buffer *buffer;
    struct head_task tasks[WRITERS_MAX];
    struct head_use uses[WRITERS_MAX];
} world;

static struct pl_box box(int64_t start, int64_t count)
{
    return (struct pl_box){.ndim = 1, .start = {start}, .count = {count}};
}

/* 100 elements that nobody writes yet. */
static void begin(void)
{
    struct pl_box all = box(0, 100);
    struct head_device *device;

    memset(&world, 0, sizeof(world));
    world.core = core_make();
    core_announce(world.core, "a", 1);
    device       = head_device_at(world.core, core_join(world.core, "a", 0));
    world.buffer = head_buffer_create(world.core, device, &all, PLASMON_F32);
    ASSERT_TRUE(world.buffer != NULL);
    for (unsigned i = 0; i < WRITERS_MAX; i++) {
        world.tasks[i].device = device;
        world.tasks[i].order  = i + 1;
        world.tasks[i].seq    = i + 1;
    }
}

static void end(void)
{
    head_buffer_release(world.core, world.buffer);
    head_core_destroy(world.core);
}

static void writes(unsigned task, int64_t start, int64_t count)
{
    struct pl_box of = box(start, count);

    head_use_add(&world.uses[task], &world.tasks[task], world.buffer, &of, true);
}

static void over(unsigned task, bool well)
{
    if (well) {
        head_use_wrote(&world.uses[task]);
    }
    head_use_remove(world.core, &world.uses[task]);
}

/* One bit a task. */
static unsigned reader_needs(int64_t start, int64_t count)
{
    struct pl_vec after     = PL_VEC_INIT(uint64_t);
    struct pl_vec producers = PL_VEC_INIT(struct head_task *);
    struct pl_box of        = box(start, count);
    unsigned needs          = 0;

    head_hazard_collect(world.buffer, &of, true, false, &after, &producers);
    for (size_t i = 0; i < producers.count; i++) {
        needs |= 1u << (*(struct head_task **)pl_vec_at(&producers, i) - world.tasks);
    }
    pl_vec_finish(&after);
    pl_vec_finish(&producers);
    return needs;
}

TEST(the_last_writer_of_each_part_counts)
{
    begin();
    writes(0, 0, 100);
    writes(1, 10, 20);
    ASSERT_EQ(reader_needs(0, 100), 3);
    ASSERT_EQ(reader_needs(10, 20), 2);
    ASSERT_EQ(reader_needs(30, 5), 1);
    over(0, true);
    ASSERT_EQ(reader_needs(0, 100), 2);
    over(1, true);
    ASSERT_EQ(reader_needs(0, 100), 0);
    end();
}

/* The older one may yet fail, with something that it read. */
TEST(what_was_written_over_a_writer_that_is_unfinished_is_right)
{
    begin();
    writes(0, 0, 100);
    writes(1, 10, 20);
    over(1, true);
    ASSERT_EQ(reader_needs(10, 20), 0);
    ASSERT_EQ(reader_needs(12, 3), 0);
    ASSERT_EQ(reader_needs(9, 2), 1);
    ASSERT_EQ(reader_needs(0, 100), 1);
    over(0, false);
    ASSERT_EQ(reader_needs(0, 100), 0);
    ASSERT_TRUE(world.buffer->written == NULL);
    end();
}

TEST(and_is_no_more_when_it_is_written_over_itself)
{
    begin();
    writes(0, 0, 100);
    writes(1, 10, 20);
    writes(2, 15, 30);
    over(1, true);
    ASSERT_EQ(reader_needs(10, 20), 4);
    ASSERT_EQ(reader_needs(10, 5), 0);
    writes(3, 0, 12);
    ASSERT_EQ(reader_needs(10, 5), 8);
    ASSERT_EQ(reader_needs(5, 45), 1 + 4 + 8);
    over(2, true);
    over(3, true);
    ASSERT_EQ(reader_needs(0, 45), 0);
    ASSERT_EQ(reader_needs(0, 46), 1);
    over(0, true);
    end();
}

/* Its bytes are what they were. */
TEST(a_writer_that_failed_has_written_nothing)
{
    begin();
    writes(0, 0, 100);
    writes(1, 10, 20);
    over(1, false);
    ASSERT_EQ(reader_needs(10, 20), 1);
    over(0, true);
    end();
}

TEST_MAIN()
