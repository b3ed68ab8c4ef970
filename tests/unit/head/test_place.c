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

/*
 * Part number `number` of an array that is cut into rows x columns of such parts, to be written for
 * the first time.
 */
static struct head_want part(const struct pl_shape *shape, int64_t rows, int64_t columns,
                             int64_t number)
{
    struct head_want want = {.part_of = shape, .box = {.ndim = 2}};

    want.box.count[0] = shape->dim[0] / rows;
    want.box.count[1] = shape->dim[1] / columns;
    want.box.start[0] = want.box.count[0] * (number / columns);
    want.box.start[1] = want.box.count[1] * (number % columns);
    want.bytes        = (uint64_t)pl_box_elements(&want.box) * pl_dtype_bytes(shape->dtype);
    return want;
}

static const struct pl_shape square = {.dtype = PL_F32, .ndim = 2, .dim = {1024, 1024}};

TEST(parts_at_the_same_place_of_arrays_lie_together_whoever_makes_them)
{
    static const int64_t cuts[][2] = {{16, 1}, {1, 16}, {4, 4}, {8, 2}};

    for (size_t p = 0; p < PL_COUNT(by_place); p++) {
        for (size_t cut = 0; cut < PL_COUNT(cuts); cut++) {
            begin(by_place[p]);
            for (int64_t number = 16; number-- > 0;) {
                struct head_want x      = part(&square, cuts[cut][0], cuts[cut][1], number);
                struct head_want some[] = {input(3, x.bytes / 16), x};

                ASSERT_EQ(place(&x, 1), (uint32_t)number / 4);
                ASSERT_EQ(place(some, 2), (uint32_t)number / 4); /* inputs are small */
            }
            end();
        }
    }
}

TEST(parts_that_do_not_come_out_even_are_dealt_to_all_devices)
{
    struct pl_shape rows    = {.dtype = PL_F32, .ndim = 2, .dim = {1003, 7}};
    uint32_t parts[DEVICES] = {0};

    begin("auto");
    for (int64_t i = 0; i < 8; i++) {
        struct head_want want = part(&rows, 8, 1, i);

        if (i == 7) {
            want.box.count[0] = rows.dim[0] - want.box.start[0];
        }
        parts[place(&want, 1)]++;
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(parts[i], 2);
    }
    end();
}

TEST(a_part_with_inputs_stays_with_them_and_a_long_queue_is_avoided)
{
    struct head_want x = part(&square, 16, 1, 0);
    struct head_want both[2];

    begin("auto");
    both[0] = input(2, x.bytes);
    both[1] = x;
    ASSERT_EQ(place(both, 2), 2);
    ASSERT_EQ(place(&x, 1), 0);
    head_device_at(core, 0)->load_ns = 1000000;
    ASSERT_TRUE(place(&x, 1) != 0);
    head_device_at(core, 0)->load_ns = 0;
    end();
}

/* Whole arrays belong nowhere: they go round. */
TEST(whole_arrays_are_spread)
{
    static const struct pl_shape whole = {.dtype = PL_F32, .ndim = 2, .dim = {256, 256}};
    uint32_t seen                      = 0;

    begin("auto");
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct head_want x = part(&whole, 1, 1, 0);

        seen |= 1u << place(&x, 1);
    }
    ASSERT_EQ(seen, (1u << DEVICES) - 1);
    end();
}

TEST(a_host_that_nothing_comes_to_is_named_with_what_to_do)
{
    struct head_failure *failure = NULL;
    struct head_want wants[2];

    core         = core_make();
    core->policy = head_policy_find("auto");
    core_announce(core, "reached", 1);
    core_announce(core, "closed", 1);
    wants[0] = input(core_join_reachable(core, "reached", 0, 1 << 20), SMALL);
    wants[1] = input(core_join(core, "closed", 0), SMALL);
    ASSERT_TRUE(head_place(core, wants, 2, 0, &failure) == NULL);
    ASSERT_EQ(failure->status, PLASMON_ENOTSUP);
    ASSERT_CONTAINS(failure->text, "closed takes no part in transfers between hosts");
    ASSERT_CONTAINS(failure->text, "start its store with --bulk-address");
    head_failure_release(failure);
    end();
}

TEST_MAIN()
