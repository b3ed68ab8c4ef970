/*
 * What becomes of the halves on a lane: which are believed, which go by the host route, and in
 * which order. Nothing but decisions (transfer/lane.h).
 */
#include "base/alloc.h"
#include "tests/harness/test.h"
#include "transfer/lane.h"

#define SEQ 100u /* of the launch with number 1 is 101 */

/* A lane of one kind with halves of two pairs. */
struct world {
    struct transfer_lane lane;
    struct transfer_lane_pair pair, other;
    bool whole; /* what a communicator says */
};

static void begin(struct world *world, uint32_t index)
{
    const struct transfer_pair_key key = {.peer     = 1,
                                          .receives = index == TRANSFER_LANE_RECEIVES,
                                          .team     = index == TRANSFER_LANE_TEAMS ? 7 : 0};

    *world = (struct world){.pair = {.key = key}, .other = {.key = key}, .whole = true};
    world->other.key.peer = 2;
    transfer_lane_init(&world->lane, index);
}

static void end(struct world *world)
{
    transfer_lane_finish(&world->lane);
}

static void add_bytes(struct world *world, struct transfer_lane_pair *pair, bool running,
                      uint64_t bytes)
{
    uint64_t number           = transfer_lane_number(&world->lane);
    struct transfer_half half = {.key = pair->key, .seq = SEQ + number, .bytes = bytes};

    ASSERT_TRUE(transfer_lane_add(&world->lane, pair, &half, number, running));
}

static void add(struct world *world, struct transfer_lane_pair *pair, bool running)
{
    add_bytes(world, pair, running, 1);
}

static bool says_whole(void *user, struct transfer_lane_pair *pair)
{
    const struct world *world = user;

    ASSERT_TRUE(pair == &world->pair || pair == &world->other);
    return world->whole;
}

static bool look(struct world *world, uint64_t done, uint64_t staged)
{
    return transfer_lane_look(&world->lane, done, staged, says_whole, world);
}

/* "R" running, "E" ended, "W" waiting, "S" staging, "O" over, each in its place. */
static const char *states(const struct world *world)
{
    static char text[32];
    size_t count = world->lane.halves.count;

    ASSERT_TRUE(count < sizeof(text));
    for (size_t i = 0; i < count; i++) {
        const struct transfer_lane_half *half = pl_vec_at(&world->lane.halves, i);

        text[i] = "REWSO"[half->state];
    }
    text[count] = '\0';
    return text;
}

static void break_pair(struct world *world, struct transfer_lane_pair *pair)
{
    pair->broken = true;
    transfer_lane_stage(&world->lane, pair);
}

/* The next goes by the host route: this number, as that of those that did. */
static void expect_next(struct world *world, uint64_t number, uint64_t staged)
{
    struct transfer_lane_half half;

    ASSERT_TRUE(transfer_lane_turn(&world->lane));
    ASSERT_TRUE(!transfer_lane_turn(&world->lane)); /* told once */
    ASSERT_TRUE(transfer_lane_stage_next(&world->lane, &half));
    ASSERT_EQ(half.number, number);
    ASSERT_EQ(half.half.seq, SEQ + number);
    ASSERT_EQ(half.staged, staged);
    ASSERT_TRUE(!transfer_lane_stage_next(&world->lane, &half)); /* one at a time */
    ASSERT_TRUE(!transfer_lane_turn(&world->lane));
}

/* How many operations of so many bytes there is room for. */
static uint32_t operations_of(uint64_t bytes)
{
    struct world world;
    uint32_t count = 0;

    begin(&world, TRANSFER_LANE_RECEIVES);
    add_bytes(&world, &world.pair, false, bytes); /* has none */
    for (; transfer_lane_has_room(&world.lane); count++) {
        add_bytes(&world, &world.pair, true, bytes);
    }
    ASSERT_TRUE(look(&world, 2, 0)); /* the first of them has ended */
    ASSERT_TRUE(transfer_lane_has_room(&world.lane));
    add_bytes(&world, &world.pair, true, bytes);
    ASSERT_TRUE(!transfer_lane_has_room(&world.lane));
    end(&world);
    return count;
}

TEST(there_is_room_for_few_large_operations_and_for_more_small_ones)
{
    ASSERT_EQ(operations_of(4096), TRANSFER_PAIR_DEPTH);
    ASSERT_EQ(operations_of(TRANSFER_PAIR_BYTES / 5), 6); /* five have a byte too few */
    ASSERT_EQ(operations_of(TRANSFER_PAIR_BYTES / 5 + 1), 5);
    ASSERT_EQ(operations_of(TRANSFER_PAIR_BYTES / 4), TRANSFER_PAIR_DEPTH_MIN);
    ASSERT_EQ(operations_of(10 * TRANSFER_PAIR_BYTES), TRANSFER_PAIR_DEPTH_MIN);
}

static const uint32_t believed[] = {TRANSFER_LANE_RECEIVES, TRANSFER_LANE_TEAMS};

TEST(what_ended_before_the_mark_is_over_and_what_ends_behind_it_is_not)
{
    for (unsigned i = 0; i < PL_COUNT(believed); i++) {
        struct world world;

        begin(&world, believed[i]);
        for (int k = 0; k < 3; k++) {
            add(&world, &world.pair, true);
        }
        ASSERT_TRUE(!look(&world, 0, 0));
        ASSERT_TRUE(look(&world, 1, 0));
        ASSERT_STR(states(&world), "ORR");
        ASSERT_TRUE(!look(&world, 1, 0));
        ASSERT_EQ(world.pair.running, 2);
        ASSERT_EQ(world.lane.running, 2);
        world.pair.broken = true;
        ASSERT_TRUE(look(&world, 3, 0));
        ASSERT_STR(states(&world), "OEE");
        ASSERT_EQ(world.pair.running, 0);
        ASSERT_EQ(world.lane.running, 0);
        ASSERT_EQ(transfer_lane_first_lost(&world.lane, &world.pair), SEQ + 2);
        ASSERT_EQ(transfer_lane_first_lost(&world.lane, &world.other), 0);
        ASSERT_EQ(transfer_lane_pop(&world.lane), 1);
        ASSERT_EQ(world.pair.halves, 2);
        ASSERT_STR(states(&world), "EE");
        end(&world);
    }
}

TEST(what_a_communicator_or_anybody_doubts_is_not_believed)
{
    struct world world;

    begin(&world, TRANSFER_LANE_RECEIVES);
    add(&world, &world.pair, true);
    add(&world, &world.pair, true);
    add(&world, &world.other, true);
    world.whole = false;
    (void)look(&world, 1, 0);
    ASSERT_STR(states(&world), "ERR");
    world.whole        = true;
    world.pair.doubted = true;
    (void)look(&world, 3, 0);
    ASSERT_STR(states(&world), "EEO");
    ASSERT_EQ(transfer_lane_pop(&world.lane), 0); /* it lies behind others */
    ASSERT_EQ(world.other.halves, 1);
    end(&world);
}

TEST(a_send_is_over_when_the_other_side_has_it_and_not_before)
{
    struct world world;

    begin(&world, TRANSFER_LANE_SENDS);
    for (int k = 0; k < 3; k++) {
        add(&world, &world.pair, true);
    }
    (void)look(&world, 2, 0);
    ASSERT_STR(states(&world), "EER");
    transfer_lane_sent(&world.lane, SEQ + 2);
    transfer_lane_sent(&world.lane, SEQ + 3); /* whose own operation we have not seen end */
    transfer_lane_sent(&world.lane, SEQ + 9);
    (void)look(&world, 2, 0);
    ASSERT_STR(states(&world), "EOR");
    ASSERT_EQ(transfer_lane_pop(&world.lane), 0);
    (void)look(&world, 3, 0);
    ASSERT_STR(states(&world), "EOO");
    transfer_lane_sent(&world.lane, SEQ + 1);
    (void)look(&world, 3, 0);
    ASSERT_EQ(transfer_lane_pop(&world.lane), 3);
    ASSERT_EQ(world.pair.halves, 0);
    end(&world);
}

TEST(what_was_lost_goes_by_the_host_route_in_order_and_nothing_else_does)
{
    struct world world;

    begin(&world, TRANSFER_LANE_RECEIVES);
    add(&world, &world.pair, true);
    add(&world, &world.pair, true);
    add(&world, &world.other, true);
    add(&world, &world.pair, true);
    (void)look(&world, 1, 0);
    break_pair(&world, &world.pair);
    ASSERT_STR(states(&world), "ORRR"); /* what is over stays so, what runs runs */
    ASSERT_TRUE(!transfer_lane_turn(&world.lane));
    (void)look(&world, 2, 0);
    ASSERT_STR(states(&world), "OWRR");
    ASSERT_TRUE(!transfer_lane_turn(&world.lane)); /* it is not in front yet */
    ASSERT_EQ(transfer_lane_pop(&world.lane), 1);
    expect_next(&world, 2, 1);
    ASSERT_STR(states(&world), "SRR");
    (void)look(&world, 3, 0);
    ASSERT_STR(states(&world), "SOR"); /* the other pair's is as ever */
    (void)look(&world, 4, 1);
    ASSERT_STR(states(&world), "OOW");
    ASSERT_EQ(transfer_lane_pop(&world.lane), 3);
    expect_next(&world, 4, 2);
    (void)look(&world, 4, 1); /* of the one before */
    ASSERT_STR(states(&world), "S");
    (void)look(&world, 4, 2);
    ASSERT_EQ(transfer_lane_pop(&world.lane), 4);
    ASSERT_EQ(world.pair.halves, 0);
    ASSERT_EQ(world.other.halves, 0);
    end(&world);
}

TEST(ended_halves_of_another_pair_are_left_alone_when_one_breaks)
{
    struct world world;

    begin(&world, TRANSFER_LANE_SENDS);
    add(&world, &world.other, true);
    add(&world, &world.pair, true);
    add(&world, &world.pair, true);
    add(&world, &world.pair, true);
    (void)look(&world, 3, 0);
    transfer_lane_sent(&world.lane, SEQ + 3); /* it is there: not a second time */
    break_pair(&world, &world.pair);
    ASSERT_STR(states(&world), "EWER");
    (void)look(&world, 3, 0);
    ASSERT_STR(states(&world), "EWOR");
    transfer_lane_sent(&world.lane, SEQ + 2); /* before it had its turn */
    (void)look(&world, 3, 0);
    ASSERT_STR(states(&world), "EOOR");
    end(&world);
}

TEST(what_has_no_operation_waits_until_its_pair_is_broken)
{
    struct world world;

    begin(&world, TRANSFER_LANE_RECEIVES);
    add(&world, &world.pair, false);
    ASSERT_EQ(world.pair.running, 0);
    ASSERT_EQ(world.lane.running, 0);
    ASSERT_TRUE(!look(&world, 1, 1));
    ASSERT_STR(states(&world), "E");
    break_pair(&world, &world.pair);
    expect_next(&world, 1, 1);
    end(&world);
}

TEST(an_operation_that_may_come_late_keeps_its_pair_from_the_host_route_until_it_is_aborted)
{
    struct world world;

    begin(&world, TRANSFER_LANE_RECEIVES);
    add(&world, &world.pair, false);
    world.pair.uncertain = true;
    break_pair(&world, &world.pair);
    ASSERT_TRUE(!look(&world, 1, 0));
    ASSERT_STR(states(&world), "E");
    world.pair.aborted = true;
    ASSERT_TRUE(look(&world, 1, 0));
    ASSERT_STR(states(&world), "W");
    end(&world);
}

TEST(nothing_may_come_behind_halves_of_a_broken_pair_that_had_no_turn)
{
    struct transfer_lane_half half;
    struct world world;

    begin(&world, TRANSFER_LANE_RECEIVES);
    ASSERT_TRUE(transfer_lane_settled(&world.lane));
    add(&world, &world.pair, false);
    add(&world, &world.other, true);
    ASSERT_TRUE(transfer_lane_settled(&world.lane));
    ASSERT_TRUE(transfer_lane_busy(&world.lane));
    ASSERT_EQ(transfer_lane_first_running(&world.lane)->number, 2);
    break_pair(&world, &world.pair);
    ASSERT_TRUE(!transfer_lane_settled(&world.lane));
    (void)look(&world, 2, 0);
    ASSERT_TRUE(!transfer_lane_busy(&world.lane));
    ASSERT_TRUE(transfer_lane_first_running(&world.lane) == NULL);
    ASSERT_TRUE(transfer_lane_stage_next(&world.lane, &half));
    ASSERT_TRUE(transfer_lane_settled(&world.lane));
    ASSERT_TRUE(transfer_lane_busy(&world.lane));
    end(&world);
}

TEST_MAIN()
