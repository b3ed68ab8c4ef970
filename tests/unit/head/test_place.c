/* Policies: on which device does a task run? */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, SMALL = 64, LARGE = 512 * 1024 };

static struct head_core *core;

static void begin(const char *policy)
{
    core         = core_make();
    core->policy = head_policy_find(policy);
    core_announce(core, "a", DEVICES);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

static struct head_want input(uint32_t device, uint64_t bytes)
{
    return (struct head_want){.at = head_device_at(core, device), .bytes = bytes};
}

static struct head_want overwritten(uint32_t device, uint64_t bytes)
{
    struct head_want want = input(device, bytes);

    want.overwritten = true;
    return want;
}

static uint32_t place(const struct head_want *wants, size_t count)
{
    struct head_failure *failure = NULL;
    struct head_device *device   = head_place(core, wants, count, 0, &failure);

    ASSERT_TRUE(device != NULL);
    return device->index;
}

static const char *const by_place[] = {"auto", "locality"};

TEST(a_task_goes_where_its_inputs_lie)
{
    for (size_t p = 0; p < PL_COUNT(by_place); p++) {
        begin(by_place[p]);
        for (uint32_t device = 0; device < DEVICES; device++) {
            struct head_want wants[] = {input(device, LARGE),
                                        input((device + 1) % DEVICES, SMALL)};

            ASSERT_EQ(place(wants, 2), device);
        }
        end();
    }
}

TEST(what_is_overwritten_does_not_draw_a_task_away_from_its_inputs)
{
    for (size_t p = 0; p < PL_COUNT(by_place); p++) {
        begin(by_place[p]);
        for (uint32_t device = 0; device < DEVICES; device++) {
            struct head_want wants[] = {overwritten((device + 1) % DEVICES, LARGE),
                                        input(device, LARGE / 2)};

            ASSERT_EQ(place(wants, 2), device);
        }
        end();
    }
}

TEST(without_inputs_a_part_is_written_where_it_lies)
{
    for (size_t p = 0; p < PL_COUNT(by_place); p++) {
        begin(by_place[p]);
        for (uint32_t device = 0; device < DEVICES; device++) {
            struct head_want want = overwritten(device, LARGE);

            ASSERT_EQ(place(&want, 1), device);
        }
        end();
    }
}

TEST(but_not_behind_a_queue)
{
    begin("auto");
    for (uint32_t device = 0; device < DEVICES; device++) {
        struct head_want want = overwritten(device, LARGE);

        head_device_at(core, device)->load_ns = 100000;
        ASSERT_TRUE(place(&want, 1) != device);
        head_device_at(core, device)->load_ns = 0;
    }
    end();
}

TEST_MAIN()
