/*
 * A put whose bytes come in pieces, and does not get all of them: it fails as its first cause was,
 * and is over.
 */
#include <stdio.h>
#include <string.h>

#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { PLENTY = 1 << 20, ELEMENTS = 4, PIECE = 8, TASKS = 64 };

static struct world {
    struct wire_arena arena;
    struct head_core *core;
    uint64_t session;
    plasmon_status_t failed[TASKS];
    plasmon_status_t status; /* of the last failure that was told */
    char text[512];
} world;

static void take_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    (void)session;
    wire_arena_reset(&world.arena);
    bytes = core_frame(&world.arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&world.arena, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_failed; i++) {
        world.status = (plasmon_status_t)frame->failed[i]->status;
        ASSERT_TRUE(frame->failed[i]->task < TASKS);
        world.failed[frame->failed[i]->task] = world.status;
        (void)snprintf(world.text, sizeof(world.text), "%s", frame->failed[i]->text);
    }
}

static const struct head_ops ops = {.client_frame   = take_frame,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up,
                                    .spill          = core_drop_spill};

static void begin(const struct head_quota *quota)
{
    struct head_config config = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};

    memset(&world, 0, sizeof(world));
    ASSERT_OK(wire_arena_init(&world.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &world.core));
    head_core_namespace_set(world.core, "default", quota);
    head_core_tick(world.core, 1);
    (void)core_join_reachable(world.core, "a", 0, PLENTY);
    (void)core_join_reachable(world.core, "b", 0, PLENTY);
    world.session = core_client(world.core);
}

static void end(void)
{
    head_core_destroy(world.core);
    wire_arena_finish(&world.arena);
}

static void settle(void)
{
    head_core_flush(world.core);
    head_core_check(world.core);
}

static void send(Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    world.status = PLASMON_OK;
    if (head_core_client_frame(world.core, world.session, frame, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    settle();
}

static void put(uint64_t id, uint64_t offset, uint64_t bytes)
{
    core_put(id, offset, bytes, send);
}

static void done(uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[1] = {&range};
    struct pl_err err = {0};

    range.first  = seq;
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(world.core, 0, &frame, &err));
    settle();
}

static void lose_host(void)
{
    test_expect_log();
    head_core_node_gone(world.core, "a", "it burns");
    settle();
}

/* Who reads it is told, and nothing waits for the rest of the put. */
static void expect_over(plasmon_status_t status, const char *text)
{
    uint64_t dim = ELEMENTS;

    ASSERT_EQ(world.status, status);
    ASSERT_CONTAINS(world.text, text);
    world.status = PLASMON_OK;
    core_submit(world.core, world.session, 30, 1, 1, &dim, 1);
    settle();
    ASSERT_EQ(world.status, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(world.text, text);
    ASSERT_NULL(head_core_unquiet(world.core));
}

TEST(what_finds_no_place_fails_in_all_of_its_pieces_as_in_the_first)
{
    begin(&(struct head_quota){0});
    lose_host();
    put(20, 0, PIECE);
    ASSERT_EQ(world.status, PLASMON_EWORKER);
    put(21, PIECE, PIECE);
    expect_over(PLASMON_EWORKER, "it burns");
    end();
}

TEST(pieces_that_are_lost_fail_the_rest)
{
    begin(&(struct head_quota){0});
    put(20, 0, PIECE);
    lose_host();
    put(21, PIECE, PIECE);
    expect_over(PLASMON_EWORKER, "it burns");
    end();
}

/* The call was there before the piece failed, and waits for the last one. */
TEST(a_piece_that_fails_when_all_have_come_fails_the_rest_and_who_reads_them)
{
    uint64_t dim = ELEMENTS;

    begin(&(struct head_quota){0});
    put(20, 0, PIECE);
    put(21, PIECE, PIECE / 2);
    put(22, PIECE + PIECE / 2, PIECE / 2);
    core_submit(world.core, world.session, 23, 0, 1, &dim, 1);
    settle();
    core_fail(world.core, 0, 1, PLASMON_EDEVMEM, "too much");
    settle();
    ASSERT_EQ(world.failed[20], PLASMON_EDEVMEM);
    ASSERT_EQ(world.failed[21], PLASMON_EDEVMEM);
    ASSERT_EQ(world.failed[22], PLASMON_EDEVMEM);
    ASSERT_EQ(world.failed[23], PLASMON_EDEPENDENCY);
    done(2);
    done(3);
    done(4);
    expect_over(PLASMON_EDEPENDENCY, "too much");
    end();
}

TEST(a_piece_over_the_quota_fails_the_put)
{
    begin(&(struct head_quota){.message_bytes = PIECE / 2});
    put(20, 0, PIECE / 2);
    put(21, PIECE / 2, PIECE);
    ASSERT_EQ(world.status, PLASMON_EQUOTA);
    put(22, PIECE / 2 + PIECE, PIECE / 2);
    done(1);
    expect_over(PLASMON_EQUOTA, "message_bytes");
    end();
}

TEST_MAIN()
