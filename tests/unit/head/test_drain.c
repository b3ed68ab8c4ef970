/*
 * A node is drained onto another one that is full: the head alone, with a device of 1 MiB on each
 * of the nodes "a" (drained) and "b", for values of 64 KiB. The test says what the workers have
 * done, and the store.
 */
#include <string.h>

#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { VALUE = 64 << 10, FULL = 15, ALL = 16 }; /* spilling keeps a sixteenth free */
enum { A, B, DEVICES };
#define DEADLINE_MS UINT64_C(10000)

static struct head_core *core;
static uint64_t session;
static uint64_t now_ms;

static void hello(const char *node, uint32_t expected)
{
    Plasmon__V1__WorkerHello message = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err                = {0};
    uint32_t device;

    message.host         = (char *)(uintptr_t)node;
    message.node         = (char *)(uintptr_t)node;
    message.name         = (char *)(uintptr_t) "test";
    message.kind         = 1;
    message.bytes_total  = 1 << 20;
    message.incarnation  = 1;
    message.bulk_address = (char *)(uintptr_t)node;
    ASSERT_OK(head_core_worker_up(core, &message, &device, &err));
    ASSERT_EQ(device, expected);
}

static void begin(uint64_t spill_bytes)
{
    const struct head_spill_config config = {.memory_bytes = spill_bytes, .life = 1};

    test_expect_log();
    core   = core_make();
    now_ms = 1;
    core_announce(core, "a", 1);
    core_announce(core, "b", 1);
    hello("a", A);
    hello("b", B);
    if (spill_bytes > 0) {
        head_core_spill_up(core, "b", &config);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

/* Refs id + 100 .. are made there. */
static void make(uint64_t id, size_t count, uint32_t device)
{
    uint64_t dim = VALUE / 4;

    for (size_t i = 0; i < count; i++) {
        core_submit(core, session, id + i, device, 0, &dim, 1);
    }
}

static void use(uint64_t id, uint64_t ref, uint32_t device)
{
    core_submit(core, session, id, device, ref, NULL, 0);
}

static void done(uint32_t index)
{
    struct head_device *device     = head_device_at(core, index);
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    if (device->seq_sent < device->seq_oldest) {
        return;
    }
    range.first  = device->seq_oldest;
    range.count  = device->seq_sent - device->seq_oldest + 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, index, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static bool store_answers(void)
{
    struct head_spill_host *spill = head_spill_host_of(core, "b");

    if (spill == NULL || pl_list_empty(&spill->requests)) {
        return false;
    }
    head_core_spill_done(
        core, "b", pl_list_first(&spill->requests, struct head_spill_request, link)->op.id,
        &(struct head_spill_answer){.host_buffer = 9, .text = ""});
    head_core_flush(core);
    return true;
}

static void settle(void)
{
    bool more = true;

    while (more) {
        more = store_answers();
        for (uint32_t i = 0; i < DEVICES; i++) {
            more = more || head_device_at(core, i)->unfinished > 0;
            done(i);
        }
    }
}

/* Time passes until it is over, or until nothing comes of it any more. */
static struct head_drain_report drain(uint64_t deadline_ms)
{
    struct head_drain_report report;
    struct pl_err err = {0};

    ASSERT_OK(head_core_drain(core, "a", deadline_ms, &err));
    for (unsigned looks = 0; looks < 30; looks++) {
        head_core_flush(core);
        settle();
        ASSERT_OK(head_core_drain_report(core, "a", &report, &err));
        if (report.done || report.over) {
            break;
        }
        head_core_tick(core, now_ms += 100);
    }
    return report;
}

static struct head_array *array_of(uint64_t id)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    struct pl_err err          = {0};
    struct head_ref *ref;

    ASSERT_OK(head_client_ref_get(client, id, 0, &ref, &err));
    return ref->array;
}

static bool lost(uint64_t id)
{
    struct head_array *array = array_of(id);

    return head_array_failure(array, &array->extent) != NULL;
}

static uint32_t lost_after_the_end(uint64_t first, uint64_t last)
{
    uint32_t count = 0;

    head_core_node_gone(core, "a", "the test says so");
    for (uint64_t id = first; id <= last; id++) {
        count += lost(id);
    }
    return count;
}

TEST(what_a_full_node_did_not_use_for_long_is_spilled_for_it)
{
    begin(64 * VALUE);
    make(1, 10, A);
    make(11, FULL, B);
    settle();
    ASSERT_EQ(head_spill_free(core, head_device_at(core, B)), 0);
    ASSERT_TRUE(drain(DEADLINE_MS).done);
    ASSERT_EQ(head_spill_host_of(core, "b")->spills, 10);
    ASSERT_TRUE(head_move_common(array_of(111), &array_of(111)->extent,
                                 head_device_at(core, B), false) == NULL);
    ASSERT_NOT_NULL(head_move_common(array_of(125), &array_of(125)->extent,
                                     head_device_at(core, B), false));
    ASSERT_EQ(lost_after_the_end(101, 125), 0);
    end();
}

/* Also where nothing can be spilled. */
TEST(replicas_of_a_full_node_go_for_it)
{
    begin(0);
    make(1, 8, A);
    make(11, 8, B);
    for (uint64_t id = 1; id <= 8; id++) {
        use(20 + id, 100 + id, B); /* copies of what lies on a */
    }
    settle();
    ASSERT_EQ(head_spill_free(core, head_device_at(core, B)), 0);
    make(31, 4, A);
    settle();
    /*
     * 12 values are to go to b, which has 8 of its own and 8 replicas: of these, no more is dropped
     * than is of no use.
     */
    ASSERT_EQ(drain(DEADLINE_MS).objects_left, 4);
    ASSERT_EQ(lost_after_the_end(101, 108) + lost_after_the_end(111, 118), 0);
    end();
}

TEST(what_fits_nowhere_stays_and_is_named)
{
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];
    struct head_drain_report report;
    enum { ROOM = 2, LEFT = 8 };

    begin(4 * VALUE);
    make(1, 10, A);
    make(11, FULL, B);
    settle();
    report = drain(1000);
    ASSERT_TRUE(report.over && !report.done);
    ASSERT_EQ(report.objects_safe, ROOM); /* spilling keeps room for what comes back */
    ASSERT_EQ(report.objects_left, LEFT);
    ASSERT_EQ(report.bytes_left, LEFT * VALUE);
    ASSERT_EQ(report.bytes_no_room, LEFT * VALUE);
    ASSERT_NOT_NULL(strstr(report.why, "no other node has room for 512.0 KiB"));
    ASSERT_EQ(head_core_drain_left(core, "a", left), LEFT);
    for (uint32_t i = 0; i < LEFT; i++) {
        ASSERT_EQ(left[i].bytes, VALUE);
        ASSERT_EQ(left[i].why, HEAD_DRAIN_NO_ROOM);
        ASSERT_EQ(left[i].ref, 101 + ROOM + i);
        ASSERT_STR(left[i].name, "");
    }
    ASSERT_EQ(lost_after_the_end(101, 100 + ROOM), 0);
    ASSERT_EQ(lost_after_the_end(111, 125), 0);
    end();
}

TEST(without_time_the_deadline_is_named)
{
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];
    struct head_drain_report report;

    begin(0);
    make(1, 2, A);
    settle();
    report = drain(0);
    ASSERT_TRUE(report.over && !report.done);
    ASSERT_EQ(report.bytes_no_room, 0);
    ASSERT_STR(report.why, "the deadline is over");
    ASSERT_EQ(head_core_drain_left(core, "a", left), 2);
    ASSERT_EQ(left[0].why, HEAD_DRAIN_DEADLINE);
    end();
}

/* Ref id + 100 is made by four instances, each of which writes its quarter. */
static void spread(uint64_t id, uint32_t how)
{
    enum { PARTS = 4 };
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    Plasmon__V1__Index index = PLASMON__V1__INDEX__INIT;
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim = VALUE / 4, count = PARTS;
    int64_t step      = VALUE / 4 / PARTS;
    int64_t view[]    = {0, step, 1};
    struct pl_err err = {0};

    shape.dtype      = PL_F32;
    shape.n_dim      = 1;
    shape.dim        = &dim;
    index.count      = &count;
    index.n_count    = 1;
    index.spread     = how;
    arg.mode         = PLASMON__V1__MODE__MODE_OUT;
    arg.ref          = id + 100;
    arg.shape        = &shape;
    arg.view         = view;
    arg.n_view       = PL_COUNT(view);
    arg.index_step   = &step;
    arg.n_index_step = 1;
    task.id          = id;
    task.function    = pl_hash_name("fill");
    task.args        = args;
    task.n_args      = 1;
    task.index       = &index;
    frame.tasks      = tasks;
    frame.n_tasks    = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/* Nobody has named the node that is drained: all of them go to the other one. */
TEST(what_is_spread_over_the_devices_leaves_out_drained_ones)
{
    struct pl_err err = {0};
    enum { BLOCK = 1, ROUND_ROBIN };

    begin(0);
    ASSERT_OK(head_core_drain(core, "a", DEADLINE_MS, &err));
    spread(1, BLOCK);
    spread(11, ROUND_ROBIN);
    settle();
    ASSERT_EQ(lost_after_the_end(101, 101) + lost_after_the_end(111, 111), 0);
    end();
}

/*
 * What was moved to b is in its host memory by and by, and on a besides. a may end at any time, so
 * who wants it on b has it from there, and a sends nothing any more.
 */
TEST(what_is_in_host_memory_elsewhere_is_not_read_from_the_drained_node)
{
    uint32_t back = 0;

    begin(64 * VALUE);
    make(1, 10, A);
    make(11, FULL, B);
    settle();
    ASSERT_TRUE(drain(DEADLINE_MS).done);
    for (uint64_t id = 111; id < 111 + FULL; id++) {
        use(100 + id, id, B);
        settle();
    }
    for (uint64_t id = 101; id <= 110; id++) {
        back += head_move_common(array_of(id), &array_of(id)->extent,
                                 head_device_at(core, B), false) == NULL;
        use(200 + id, id, B);
        ASSERT_EQ(head_device_at(core, A)->unfinished, 0);
        settle();
    }
    ASSERT_TRUE(back > 0);
    end();
}

static void release(uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[] = {&range};
    struct pl_err err = {0};

    range.first     = ref;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/* To find them all refs are looked at. */
TEST(whose_it_is_is_not_looked_for_each_time_that_somebody_asks)
{
    struct head_drain_left left[HEAD_DRAIN_LEFT_MAX];

    begin(0);
    make(1, 3, A);
    settle();
    (void)drain(0);
    ASSERT_EQ(head_core_drain_left(core, "a", left), 3);
    release(101);
    ASSERT_EQ(head_core_drain_left(core, "a", left), 3); /* of the same look */
    ASSERT_EQ(left[0].ref, 101);
    head_core_tick(core, now_ms += 1000);
    ASSERT_EQ(head_core_drain_left(core, "a", left), 2);
    ASSERT_EQ(left[0].ref, 102);
    ASSERT_STR(left[0].name, "");
    end();
}

/* A replica that was there already is all that there will be. */
TEST(what_the_drain_counts_on_is_not_dropped_for_want_of_room)
{
    const struct head_buffer *here, *there;

    begin(0);
    make(1, 1, A);
    use(2, 101, B);
    settle();
    there = head_move_common(array_of(101), &array_of(101)->extent, head_device_at(core, B),
                             false);
    here  = head_move_common(array_of(101), &array_of(101)->extent, head_device_at(core, A),
                             false);
    ASSERT_TRUE(there->replica && !here->replica);
    ASSERT_TRUE(drain(DEADLINE_MS).done);
    ASSERT_TRUE(!there->replica && here->replica);
    ASSERT_EQ(lost_after_the_end(101, 101), 0);
    end();
}

TEST_MAIN()
