/*
 * What is put and is to be in two places: where the second copy goes, that it is made again, and
 * what becomes of it under pressure. The head alone, with devices of 1 MiB for values of 64 KiB;
 * the test says what workers and stores have done.
 */
#include <string.h>

#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { VALUE = 64 << 10, AGAIN_MS = 1000 };

static struct {
    uint32_t failed;
    plasmon_status_t status;
    char text[512];
} told;

static struct head_core *core;
static uint64_t session, now_ms;

static void take_frame(void *user, uint64_t to, const uint8_t *body, size_t length)
{
    Plasmon__V1__HeadFrame *frame;
    struct wire_arena arena;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    (void)to;
    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    bytes = core_frame(&arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&arena, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_failed; i++) {
        told.failed++;
        told.status = (plasmon_status_t)frame->failed[i]->status;
        (void)snprintf(told.text, sizeof(told.text), "%s", frame->failed[i]->text);
    }
    wire_arena_finish(&arena);
}

static struct head_core *create(void)
{
    static const struct head_ops ops = {.client_frame   = take_frame,
                                        .worker_command = core_drop_command,
                                        .fence          = core_drop_fence,
                                        .session_ended  = core_drop_end,
                                        .random64       = core_count_up,
                                        .spill          = core_drop_spill};
    const struct head_config config  = {.ops = &ops, .retries = UINT32_MAX, .epoch = 1};
    struct head_core *made;

    ASSERT_OK(head_core_create(&config, &made));
    return made;
}

static void flush(void)
{
    head_core_flush(core);
    head_core_check(core);
}

static void pass(uint64_t ms)
{
    now_ms += ms;
    head_core_tick(core, now_ms);
    flush();
}

static uint32_t join(const char *host, uint32_t host_device)
{
    uint32_t device = core_join_reachable(core, host, host_device, 1 << 20);

    flush();
    return device;
}

static void spills(const char *host, uint64_t values)
{
    head_core_spill_up(
        core, host, &(struct head_spill_config){.memory_bytes = values * VALUE, .life = 1});
    flush();
}

/* A letter a device, in order: the name of its host. Capital: that has host memory for spilling. */
static void begin(const char *devices)
{
    memset(&told, 0, sizeof(told));
    core   = create();
    now_ms = 1;
    head_core_tick(core, now_ms);
    for (uint32_t i = 0; devices[i] != '\0'; i++) {
        char host[2]  = {(char)(devices[i] | 0x20), '\0'};
        uint32_t here = 0;

        for (uint32_t k = 0; k < i; k++) {
            here += devices[k] == devices[i];
        }
        if (devices[i] < 'a' && here == 0) {
            spills(host, 64);
        }
        ASSERT_EQ(join(host, here), i);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

static void send(Plasmon__V1__Task *task)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    struct pl_err err              = {0};

    frame.tasks   = &task;
    frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    flush();
}

/* Ref `ref`, on a device. */
static void put(uint64_t ref, uint32_t device, bool replica)
{
    static uint8_t bytes[VALUE];
    Plasmon__V1__Task task   = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg     = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[] = {&arg};
    uint64_t dim             = VALUE / 4;

    shape.dtype        = PL_F32;
    shape.n_dim        = 1;
    shape.dim          = &dim;
    arg.mode           = PLASMON__V1__MODE__MODE_OUT;
    arg.ref            = ref;
    arg.shape          = &shape;
    task.id            = ref + 1000;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_PUT;
    task.args          = args;
    task.n_args        = 1;
    task.place         = device + 1;
    task.data.data     = bytes;
    task.data.len      = sizeof(bytes);
    task.put_replica   = replica;
    task.put_donatable = true;
    send(&task);
}

/* A task on a device: what it makes of ref `ref` (OUT: a new one). */
static void call(uint64_t ref, uint32_t device, Plasmon__V1__Mode mode)
{
    Plasmon__V1__Task task   = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg     = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[] = {&arg};
    static uint64_t task_last;
    uint64_t dim = VALUE / 4;

    shape.dtype   = PL_F32;
    shape.n_dim   = 1;
    shape.dim     = &dim;
    arg.mode      = mode;
    arg.ref       = ref;
    arg.shape     = mode == PLASMON__V1__MODE__MODE_OUT ? &shape : NULL;
    task.id       = 100000 + ++task_last;
    task.place    = device + 1;
    task.function = pl_hash_name("touch");
    task.args     = args;
    task.n_args   = 1;
    send(&task);
}

static void release(uint64_t ref, uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    range.first     = ref;
    range.count     = count;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    flush();
}

static void done(struct head_device *by)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    if (by->gone || by->seq_sent < by->seq_oldest) {
        return;
    }
    range.first  = by->seq_oldest;
    range.count  = by->seq_sent - by->seq_oldest + 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, by->index, &frame, &err));
    flush();
}

/*
 * Workers and stores have done all that they were asked, and what came of that; the slab is made if
 * it can be.
 */
static void settle_with(plasmon_status_t slab)
{
    bool busy = true;

    while (busy) {
        struct pl_list *pos;

        busy = head_core_under_way(core, 0);
        for (uint32_t i = 0; i < core->devices.count; i++) {
            done(head_device_at(core, i));
        }
        pl_list_for_each(pos, &core->spill_hosts) {
            struct head_spill_host *spill =
                pl_container_of(pos, struct head_spill_host, link);
            const struct head_spill_request *request;

            if (pl_list_empty(&spill->requests)) {
                continue;
            }
            busy    = true;
            request = pl_list_first(&spill->requests, struct head_spill_request, link);
            head_core_spill_done(
                core, spill->home.host, request->op.id,
                &(struct head_spill_answer){.status      = slab,
                                            .host_buffer = 9,
                                            .text = slab != PLASMON_OK ? "no RAM" : ""});
            flush();
        }
    }
}

static void settle(void)
{
    settle_with(PLASMON_OK);
}

static struct head_array *array_of(uint64_t id)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    struct pl_err err          = {0};
    struct head_ref *ref;

    ASSERT_OK(head_client_ref_get(client, id, 0, &ref, &err));
    return ref->array;
}

static struct head_tile *tile_of(uint64_t id)
{
    return pl_list_first(&array_of(id)->fragments, struct head_fragment, array_link)->tile;
}

/*
 * Where it is, each a letter, in order: 0, 1 .. a device (r behind it: a replica), A, B .. memory
 * of the host.
 */
static const char *where(uint64_t id)
{
    static char text[64];
    size_t at = 0;
    struct pl_list *pos;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        pl_list_for_each(pos, &tile_of(id)->instances) {
            const struct head_buffer *buffer =
                pl_container_of(pos, struct head_instance, tile_link)->buffer;

            if (buffer->spilled == NULL && buffer->device->index == i) {
                text[at++] = (char)('0' + i);
                if (buffer->replica) {
                    text[at++] = 'r';
                }
            }
        }
    }
    pl_list_for_each(pos, &tile_of(id)->instances) {
        const struct head_buffer *buffer =
            pl_container_of(pos, struct head_instance, tile_link)->buffer;

        if (buffer->spilled != NULL) {
            text[at++] = (char)(buffer->device->host[0] & ~0x20);
        }
    }
    text[at] = '\0';
    return text;
}

static enum head_safety safety_of(uint64_t id)
{
    return head_second_safety(tile_of(id), &array_of(id)->extent);
}

static void lose_host(const char *host)
{
    test_expect_log();
    head_core_node_gone(core, host, "its host died");
    flush();
}

static void lose_device(const char *host, uint32_t host_device)
{
    test_expect_log();
    head_core_worker_down(core, host, host_device, true, PLASMON_OK, "quarantined");
    flush();
}

static void fill(uint64_t first, uint32_t device)
{
    for (uint64_t ref = first; ref < first + 15; ref++) {
        call(ref, device, PLASMON__V1__MODE__MODE_OUT);
        settle();
    }
}

/* ------------------------------------------------------------------------ where it goes */

TEST(with_one_device_it_is_kept_in_memory_of_its_host)
{
    begin("A");
    put(1, 0, true);
    ASSERT_EQ(safety_of(1), HEAD_SAFE_NOT); /* nothing is there yet */
    settle();
    ASSERT_STR(where(1), "0A");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_NEAR);
    ASSERT_EQ(told.failed, 0);
    lose_device("a", 0);
    ASSERT_STR(where(1), "A");
    ASSERT_NULL(tile_of(1)->failure);
    end();
}

static uint32_t shown(uint64_t id)
{
    return head_second_shown(tile_of(id), &array_of(id)->extent);
}

TEST(one_that_is_on_its_way_is_told_from_one_that_is_missing)
{
    begin("ab");
    put(1, 0, true);
    settle();
    ASSERT_EQ(shown(1), PLASMON__V1__SECOND_COPY__SECOND_APART);
    lose_host("b");
    ASSERT_EQ(shown(1), PLASMON__V1__SECOND_COPY__SECOND_MISSING);
    (void)join("c", 0);
    pass(AGAIN_MS);
    ASSERT_EQ(shown(1), PLASMON__V1__SECOND_COPY__SECOND_MOVING);
    settle();
    ASSERT_EQ(shown(1), PLASMON__V1__SECOND_COPY__SECOND_APART);
    end();
}

TEST(one_that_has_no_place_is_refused_and_says_what_helps)
{
    begin("a");
    put(1, 0, true);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EDEVMEM);
    ASSERT_CONTAINS(told.text, "add a host");
    ASSERT_CONTAINS(told.text, "--spill-memory");
    ASSERT_STR(where(1), "");
    put(2, 0, false);
    ASSERT_EQ(told.failed, 1);
    settle();
    ASSERT_EQ(core->counts.buffers, 1);
    end();
}

TEST(one_that_is_larger_than_what_host_memory_is_free_is_refused)
{
    begin("a");
    spills("a", 3);
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "0A");
    for (uint64_t ref = 2; ref < 8 && told.failed == 0; ref++) {
        put(ref, 0, true);
        settle();
    }
    ASSERT_STATUS(told.status, PLASMON_EDEVMEM);
    ASSERT_CONTAINS(told.text, "a second copy was asked for");
    ASSERT_STR(where(1), "0A");
    end();
}

TEST(a_device_that_was_announced_is_a_place_when_it_comes)
{
    struct pl_err err = {0};

    begin("");
    ASSERT_OK(head_core_node_up(core, "a", "a", 1, false, &err));
    ASSERT_OK(head_core_node_up(core, "b", "b", 1, false, &err));
    ASSERT_EQ(join("a", 0), 0);
    session = core_client(core);
    test_expect_log();
    put(1, 0, true);
    settle();
    ASSERT_EQ(told.failed, 0);
    ASSERT_STR(where(1), "0");
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_ONE], 1);
    ASSERT_EQ(join("b", 0), 1);
    settle();
    ASSERT_STR(where(1), "01");
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], 1);
    end();
}

TEST(another_host_comes_first_then_memory_of_its_own_then_another_device)
{
    begin("AAb");
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "02");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_APART);
    end();

    begin("AA");
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "0A");
    end();

    begin("aa");
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "01");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_NEAR);
    end();
}

/* What was spilled there makes room; where nothing may be, it is the next place's turn. */
TEST(a_full_device_of_another_host_makes_room_if_it_can)
{
    begin("AB");
    for (uint64_t ref = 101; ref <= 115; ref++) {
        put(ref, 1, false);
        settle();
    }
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "01");
    ASSERT_STR(where(101), "B");
    end();

    begin("Ab");
    for (uint64_t ref = 101; ref <= 116; ref++) {
        put(ref, 1, false);
        settle();
    }
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "0A");
    end();
}

TEST(host_memory_that_cannot_be_made_is_no_place)
{
    begin("AA");
    put(1, 0, true);
    test_expect_log();
    settle_with(PLASMON_ENOMEM);
    ASSERT_STR(where(1), "0");
    pass(AGAIN_MS); /* the first attempt failed a moment ago */
    settle();
    ASSERT_STR(where(1), "01");
    end();
}

/* -------------------------------------------------------------------------------- again */

TEST(a_copy_that_was_lost_is_made_again_each_time)
{
    begin("abcd");
    put(1, 0, true);
    settle();
    for (uint32_t i = 0; i < 3; i++) {
        char host[2] = {(char)('a' + where(1)[0] - '0'), '\0'};

        ASSERT_EQ(strlen(where(1)), 2);
        ASSERT_EQ(safety_of(1), HEAD_SAFE_APART);
        lose_host(host);
        settle();
        ASSERT_NULL(tile_of(1)->failure);
    }
    ASSERT_EQ(strlen(where(1)), 1); /* on the last device that there is */
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_ONE], 1);
    end();
}

TEST(when_its_device_is_lost_and_one_is_left_it_comes_back_from_host_memory)
{
    begin("AA");
    put(1, 0, true);
    settle();
    lose_device("a", 0);
    settle();
    ASSERT_STR(where(1), "A"); /* no device takes it along */
    call(1, 1, PLASMON__V1__MODE__MODE_IN);
    settle();
    ASSERT_STR(where(1), "1A");
    ASSERT_EQ(told.failed, 0);
    end();
}

TEST(a_host_that_joins_gets_one_and_what_is_too_much_is_a_replica)
{
    begin("aa");
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "01");
    ASSERT_EQ(join("b", 0), 2);
    settle();
    ASSERT_STR(where(1), "01r2");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_APART);
    lose_host("b");
    settle();
    ASSERT_STR(where(1), "01"); /* and is none again */
    end();

    begin("A");
    put(1, 0, true);
    settle();
    ASSERT_EQ(join("b", 0), 1);
    settle();
    ASSERT_STR(where(1), "01A");
    end();
}

TEST(in_memory_of_a_host_without_devices_it_cannot_be_read_and_says_so)
{
    begin("Ab");
    fill(101, 1); /* no room there */
    call(116, 1, PLASMON__V1__MODE__MODE_OUT);
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "0A");
    lose_device("a", 0);
    release(101, 16);
    settle();
    ASSERT_STR(where(1), "A");
    call(1, 1, PLASMON__V1__MODE__MODE_IN);
    settle();
    ASSERT_STATUS(told.status, PLASMON_EUNREACHABLE);
    ASSERT_CONTAINS(told.text, "has no device left");
    ASSERT_STR(where(1), "A");
    end();
}

/* Of value 1, in the host memory of both hosts. */
static void two_copies(void)
{
    begin("AB");
    put(1, 0, true);
    settle();
    fill(101, 1);
    fill(201, 0);
    ASSERT_STR(where(1), "BA");
}

TEST(of_two_copies_in_host_memory_the_one_is_read_whose_host_has_a_device)
{
    for (uint32_t lost = 0; lost < 2; lost++) {
        two_copies();
        lose_device(lost == 0 ? "a" : "b", 0);
        settle();
        call(1, 1 - lost, PLASMON__V1__MODE__MODE_IN);
        settle();
        ASSERT_EQ(told.failed, 0);
        ASSERT_NULL(tile_of(1)->failure);
        end();
    }
}

TEST(of_two_copies_in_host_memory_the_one_is_read_that_is_on_the_same_host)
{
    for (uint32_t reader = 0; reader < 2; reader++) {
        two_copies();
        release(101, 16);
        release(201, 16);
        call(1, reader, PLASMON__V1__MODE__MODE_IN);
        settle();
        ASSERT_STR(where(1), reader == 0 ? "0BA" : "1BA"); /* nothing was sent */
        end();
    }
}

/* Few at a time; all of them in the end. */
TEST(copies_are_made_again_a_few_at_a_time)
{
    enum { COUNT = 100 };
    static const uint64_t dim = 64;

    begin("ab");
    for (uint64_t ref = 1; ref <= COUNT; ref++) {
        Plasmon__V1__Task task   = PLASMON__V1__TASK__INIT;
        Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
        Plasmon__V1__Arg arg     = PLASMON__V1__ARG__INIT;
        Plasmon__V1__Arg *args[] = {&arg};
        uint8_t bytes[64]        = {0};

        shape.dtype      = PL_U8;
        shape.n_dim      = 1;
        shape.dim        = (uint64_t *)(uintptr_t)&dim;
        arg.mode         = PLASMON__V1__MODE__MODE_OUT;
        arg.ref          = ref;
        arg.shape        = &shape;
        task.id          = ref + 1000;
        task.kind        = PLASMON__V1__TASK_KIND__TASK_PUT;
        task.args        = args;
        task.n_args      = 1;
        task.place       = 1;
        task.data.data   = bytes;
        task.data.len    = sizeof(bytes);
        task.put_replica = true;
        send(&task);
    }
    settle();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], COUNT);
    ASSERT_EQ(join("c", 0), 2);
    lose_host("b");
    ASSERT_TRUE(core->seconds.counts[HEAD_SECOND_MOVING] > 0 &&
                core->seconds.counts[HEAD_SECOND_MOVING] <= 32);
    settle();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], COUNT);
    ASSERT_EQ(core->seconds.counts[HEAD_SECOND_MOVING], 0);
    release(1, COUNT);
    settle();
    ASSERT_EQ(core->counts.buffers, 0);
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], 0);
    end();
}

TEST(what_is_released_while_its_copy_is_on_its_way_leaves_nothing)
{
    begin("Ab");
    put(1, 0, true);
    release(1, 1);
    settle();
    ASSERT_EQ(core->counts.buffers, 0);
    ASSERT_EQ(core->counts.tiles, 0);
    ASSERT_TRUE(head_core_twice(core, true));
    end();

    begin("A");
    put(1, 0, true);
    release(1, 1);
    settle();
    ASSERT_EQ(core->counts.buffers, 0);
    end();
}

TEST(a_node_that_is_drained_holds_no_second_copy)
{
    struct pl_err err = {0};

    begin("abc");
    put(1, 0, true);
    settle();
    ASSERT_OK(head_core_drain(core, "a", 3600000, &err));
    flush();
    settle();
    ASSERT_EQ(safety_of(1), HEAD_SAFE_APART); /* of which the node does not count */
    lose_host("a");
    settle();
    ASSERT_STR(where(1), "12");
    end();
}

/* ----------------------------------------------------------------------- under pressure */

TEST(a_copy_goes_from_a_full_device_only_to_where_it_is_as_safe)
{
    begin("AB");
    put(1, 0, true);
    settle();
    ASSERT_STR(where(1), "01");
    fill(101, 1);
    ASSERT_STR(where(1), "0B");
    fill(201, 0); /* one copy in memory of the other host is not two */
    ASSERT_STR(where(1), "BA");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_APART);
    lose_host("b");
    ASSERT_NULL(tile_of(1)->failure);
    end();
}

TEST(in_memory_of_the_only_host_it_is_safe_from_its_devices)
{
    begin("AA");
    put(1, 0, true);
    settle();
    fill(101, 0);
    ASSERT_STR(where(1), "A");
    ASSERT_EQ(safety_of(1), HEAD_SAFE_NEAR);
    call(1, 1, PLASMON__V1__MODE__MODE_IN);
    settle();
    ASSERT_STR(where(1), "1A");
    fill(201, 1); /* others want its place in host memory, too */
    lose_device("a", 1);
    settle();
    ASSERT_NULL(tile_of(1)->failure);
    end();
}

TEST(who_overwrites_it_in_place_leaves_no_copy_behind)
{
    begin("A");
    put(1, 0, true);
    call(1, 0, PLASMON__V1__MODE__MODE_INOUT);
    settle();
    ASSERT_STR(where(1), "0");
    ASSERT_EQ(core->counts.buffers, 1);
    end();
}

/* ------------------------------------------------------------------ a head that goes on */

static void go_on(void)
{
    struct head_bytes saved = {0};
    struct head_reader in;
    struct head_core *next;
    struct pl_err err = {0};

    ASSERT_NULL(head_core_unquiet(core));
    head_core_save(core, &saved);
    next = create();
    in   = (struct head_reader){.at = saved.data, .end = saved.data + saved.length};
    ASSERT_OK(head_core_load(next, &in, &err));
    pl_free(saved.data);
    head_core_destroy(core);
    core = next;
}

TEST(a_head_that_goes_on_from_a_checkpoint_keeps_two)
{
    begin("abc");
    put(1, 0, true);
    settle();
    go_on();
    flush();
    ASSERT_EQ(core->seconds.safe_count[HEAD_SAFE_APART], 1);
    lose_host("a");
    settle();
    ASSERT_EQ(safety_of(1), HEAD_SAFE_APART);
    ASSERT_NULL(tile_of(1)->failure);
    end();
}

TEST(a_checkpoint_has_how_many_were_made_and_what_was_said)
{
    begin("ab");
    put(1, 0, true);
    settle();
    ASSERT_EQ(core->seconds.made, 1);
    lose_host("b");
    settle();
    ASSERT_TRUE(tile_of(1)->second->warned);
    go_on();
    ASSERT_EQ(core->seconds.made, 1);
    ASSERT_TRUE(tile_of(1)->second->warned); /* or it would be said again */
    flush();
    end();
}

TEST_MAIN()
