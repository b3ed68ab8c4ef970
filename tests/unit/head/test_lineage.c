/* What a host took with it is made again, as far as the head knows how; and what that knowledge may cost. */
#include <string.h>

#include "base/fault.h"
#include "head/checkpoint.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

/* What the last frames told the client. */
static struct told {
    struct wire_arena arena;
    uint32_t failed;
    uint32_t answers; /* data of reads */
    uint32_t located;
    plasmon_status_t status;
    char text[512];
} told;

static void take_frame(void *user, uint64_t session, const uint8_t *body, size_t length)
{
    Plasmon__V1__HeadFrame *frame;
    struct pl_err err = {0};
    uint8_t *bytes;

    (void)user;
    (void)session;
    wire_arena_reset(&told.arena);
    bytes = core_frame(&told.arena, body, &length);
    ASSERT_OK(wire_decode_head_frame(&told.arena, bytes, length, &frame, &err));
    for (size_t i = 0; i < frame->n_failed; i++) {
        told.failed++;
        told.status = (plasmon_status_t)frame->failed[i]->status;
        (void)snprintf(told.text, sizeof(told.text), "%s", frame->failed[i]->text);
    }
    for (size_t i = 0; i < frame->n_located; i++) {
        told.located++;
        told.status = (plasmon_status_t)frame->located[i]->status;
        (void)snprintf(told.text, sizeof(told.text), "%s", frame->located[i]->text);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        told.answers++;
        told.status = (plasmon_status_t)frame->data[i]->status;
        (void)snprintf(told.text, sizeof(told.text), "%s", frame->data[i]->text);
    }
}

static const struct head_ops ops = {.client_frame   = take_frame,
                                    .worker_command = core_drop_command,
                                    .fence          = core_drop_fence,
                                    .session_ended  = core_drop_end,
                                    .random64       = core_count_up,
                                    .spill          = core_drop_spill};

static uint32_t join(struct head_core *core, const char *host, uint32_t host_device)
{
    return core_join_reachable(core, host, host_device, 1 << 20);
}

static struct head_core *begin_shadowed(uint64_t lineage_bytes, uint64_t shadow_bytes)
{
    struct head_config config = {.ops           = &ops,
                                 .retries       = UINT32_MAX,
                                 .epoch         = 1,
                                 .lineage_bytes = lineage_bytes,
                                 .shadow_bytes  = shadow_bytes};
    struct head_core *core;

    memset(&told, 0, sizeof(told));
    ASSERT_OK(wire_arena_init(&told.arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_create(&config, &core));
    head_core_tick(core, 1);
    return core;
}

static struct head_core *begin(uint64_t lineage_bytes)
{
    return begin_shadowed(lineage_bytes, 0);
}

/* Two hosts with a device each, 0 on "a" and 1 on "b", that reach each other. */
static struct head_core *cluster(uint64_t lineage_bytes, uint64_t *out_session)
{
    struct head_core *core = begin(lineage_bytes);

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "b", 0), 1);
    *out_session = core_client(core);
    return core;
}

static void finish(struct head_core *core)
{
    head_core_destroy(core);
    wire_arena_finish(&told.arena);
}

struct arg {
    uint32_t mode;
    uint64_t ref;
    bool fresh; /* f32[4] */
    bool first; /* the first two of them only */
};

/* Task `id` on a device (UINT32_MAX: anywhere). */
static void run(struct head_core *core, uint64_t session, uint64_t id, uint32_t device,
                const struct arg *args, size_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Task *tasks[1]    = {&task};
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg wire[4];
    Plasmon__V1__Arg *list[4];
    struct pl_err err = {0};
    uint64_t dim      = 4;
    int64_t first[3]  = {0, 2, 1}; /* start, count, step */

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &dim;
    for (size_t i = 0; i < count; i++) {
        plasmon__v1__arg__init(&wire[i]);
        wire[i].mode   = args[i].mode;
        wire[i].ref    = args[i].ref;
        wire[i].shape  = args[i].fresh ? &shape : NULL;
        wire[i].n_view = args[i].first ? 3 : 0;
        wire[i].view   = first;
        list[i]        = &wire[i];
    }
    task.id       = id;
    task.place    = device + 1;
    task.function = pl_hash_name("touch");
    task.args     = list;
    task.n_args   = count;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void make(struct head_core *core, uint64_t session, uint64_t ref, uint32_t device)
{
    const struct arg args[] = {
        {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = ref, .fresh = true}};

    run(core, session, ref + 1000, device, args, 1);
}

/* `to` of `from`; from 0: `to` in place. */
static void derive(struct head_core *core, uint64_t session, uint64_t to, uint64_t from,
                   uint32_t device, uint64_t id)
{
    const struct arg two[] = {
        {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = to, .fresh = true},
        {.mode = PLASMON__V1__MODE__MODE_IN, .ref = from}};
    const struct arg one[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = to}};

    run(core, session, id, device, from != 0 ? two : one, from != 0 ? 2 : 1);
}

static void release(struct head_core *core, uint64_t session, uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first     = ref;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/* The worker says that everything up to there is done. */
static void done(struct head_core *core, uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[1]  = {&range};
    struct pl_err err              = {0};

    range.first  = 1;
    range.count  = seq;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/* The worker has no memory for this launch. */
static void starves(struct head_core *core, uint32_t device, uint64_t seq)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Starved starved   = PLASMON__V1__STARVED__INIT;
    Plasmon__V1__Starved *list[1]  = {&starved};
    struct pl_err err              = {0};

    starved.seq     = seq;
    starved.bytes   = 16;
    frame.starved   = list;
    frame.n_starved = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void lose(struct head_core *core, const char *host)
{
    test_expect_log();
    head_core_node_gone(core, host, "it burns");
    head_core_flush(core);
    head_core_check(core);
}

static Plasmon__V1__Lineage figures(struct head_core *core)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__Lineage out;
    struct wire_arena arena;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(head_core_status(core, &arena, &reply));
    out = *reply.lineage;
    wire_arena_finish(&arena);
    return out;
}

enum { PLENTY = 1 << 20, ANYWHERE = UINT32_MAX };

TEST(a_result_that_was_lost_is_made_again_elsewhere)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    done(core, 0, 1);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 1);
    ASSERT_EQ(figures(core).rebuilt_bytes, 16);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.instances, 1);
    ASSERT_EQ(counts.tasks, 1);
    done(core, 1, 1);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(a_task_that_was_to_run_there_runs_elsewhere_and_its_client_just_waits)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    derive(core, session, 2, 1, 0, 5);
    lose(core, "a");
    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 2);
    done(core, 1, 2);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.tasks, 0);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(inputs_that_were_freed_are_made_again_for_as_long_as_they_are_needed)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    derive(core, session, 2, 1, 0, 5);
    derive(core, session, 3, 2, 0, 6);
    release(core, session, 1);
    release(core, session, 2);
    done(core, 0, 3);
    ASSERT_EQ(figures(core).records, 3);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 3);
    done(core, 1, 3);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.tiles, 1);
    ASSERT_EQ(counts.buffers, 1);
    finish(core);
}

TEST(a_chain_of_versions_in_place_is_made_again_from_its_first)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    for (uint64_t i = 0; i < 5; i++) {
        derive(core, session, 1, 0, 0, 10 + i);
    }
    done(core, 0, 6);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 6);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

/* f32[4] as ref `ref`, on device 0, which tasks may overwrite. */
static void put(struct head_core *core, uint64_t session, uint64_t ref, bool replica)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Task *tasks[1]    = {&task};
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
    Plasmon__V1__Arg *args[1]      = {&arg};
    uint8_t bytes[16]              = {1};
    struct pl_err err              = {0};
    uint64_t dim                   = 4;

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
    task.place         = 1;
    task.data.data     = bytes;
    task.data.len      = sizeof(bytes);
    task.put_replica   = replica;
    task.put_donatable = true;
    frame.tasks        = tasks;
    frame.n_tasks      = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/* Workers have done all that they were sent. */
static void all_done(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->seq_last > 0) {
            done(core, i, device->seq_last);
        }
    }
}

static struct head_core *shadowed(uint64_t shadow_bytes, uint64_t *out_session)
{
    struct head_core *core = begin_shadowed(PLENTY, shadow_bytes);

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "b", 0), 1);
    *out_session = core_client(core);
    return core;
}

/*
 * Another worker of device 0, which finds launches up to `enqueued`, and of these `first` ..
 * unfinished; `untouched` (0: none) has not begun.
 */
static void comes_back(struct head_core *core, uint64_t enqueued, uint64_t first,
                       uint64_t untouched)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    Plasmon__V1__Range unfinished  = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range as_it_was   = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *lists[2]   = {&unfinished, &as_it_was};
    struct pl_err err              = {0};
    uint32_t device;

    test_expect_log();
    head_core_worker_down(core, "a", 0, false, PLASMON_OK, "killed");
    unfinished.first   = first;
    unfinished.count   = enqueued - first + 1;
    as_it_was.first    = untouched;
    as_it_was.count    = 1;
    hello.host         = (char *)(uintptr_t) "a";
    hello.node         = hello.host;
    hello.name         = (char *)(uintptr_t) "test";
    hello.kind         = 1;
    hello.bytes_total  = 1 << 20;
    hello.incarnation  = 2;
    hello.peer_capable = true;
    hello.enqueued     = enqueued;
    hello.unfinished   = &lists[0];
    hello.n_unfinished = 1;
    hello.untouched    = &lists[1];
    hello.n_untouched  = untouched != 0;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    head_core_flush(core);
    head_core_check(core);
}

/*
 * On device 0: what was put as 1 is to be updated in place with 2, when 2 has been updated in
 * place: launches 4 and 3.
 */
static struct head_core *two_updates(uint64_t *out_session)
{
    const struct arg args[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1},
                               {.mode = PLASMON__V1__MODE__MODE_IN, .ref = 2}};
    struct head_core *core  = cluster(PLENTY, out_session);

    put(core, *out_session, 1, false);
    make(core, *out_session, 2, 0);
    done(core, 0, 2);
    derive(core, *out_session, 2, 0, 0, 10);
    run(core, *out_session, 11, 0, args, 2);
    ASSERT_EQ(((struct head_device *)head_device_at(core, 0))->seq_last, 4);
    return core;
}

/* Launch 3 began, so that 2 is to be made again; what was put lies where 4 was to overwrite it. */
static void put_survives(uint64_t enqueued, uint64_t untouched)
{
    struct head_lineage_counts counts;
    uint64_t session;
    struct head_core *core = two_updates(&session);

    comes_back(core, enqueued, 3, untouched);
    ASSERT_EQ(told.failed, 0);
    head_core_lineage(core, &counts);
    ASSERT_EQ(counts.rebuilt_tasks, 3);
    ASSERT_EQ(counts.given_back, 1);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(a_put_that_a_launch_was_to_update_which_was_not_published_is_there)
{
    put_survives(3, 0);
}

TEST(a_put_that_a_launch_was_to_update_which_had_not_begun_is_there)
{
    put_survives(4, 4);
}

TEST(a_put_that_a_launch_had_begun_to_update_is_lost)
{
    struct head_lineage_counts counts;
    uint64_t session;
    struct head_core *core = two_updates(&session);

    comes_back(core, 4, 3, 0);
    ASSERT_EQ(told.failed, 1);
    ASSERT_CONTAINS(told.text, "it was put");
    head_core_lineage(core, &counts);
    ASSERT_EQ(counts.given_back, 0);
    finish(core);
}

/* Nothing of device 0 is sent any more when the host with the other input goes. */
TEST(a_put_that_a_launch_was_to_update_which_was_not_sent_is_there)
{
    const struct arg args[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1},
                               {.mode = PLASMON__V1__MODE__MODE_IN, .ref = 2}};
    struct head_lineage_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    put(core, session, 1, false);
    done(core, 0, 1);
    make(core, session, 2, 1);
    head_core_worker_lost(core, 0);
    run(core, session, 11, 0, args, 2);
    run(core, session, 12, 0, args, 2);
    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    head_core_lineage(core, &counts);
    ASSERT_EQ(counts.rebuilt_tasks, 3);
    ASSERT_EQ(counts.given_back, 1);
    finish(core);
}

/* .. but not of what another task, which has lost nothing, writes over in its turn. */
TEST(a_put_that_somebody_else_is_to_overwrite_too_is_lost)
{
    const struct arg args[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1},
                               {.mode = PLASMON__V1__MODE__MODE_IN, .ref = 2}};
    const struct arg over[] = {
        {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = 1, .first = true}};
    struct head_lineage_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    put(core, session, 1, false);
    done(core, 0, 1);
    make(core, session, 2, 1);
    head_core_worker_lost(core, 0);
    run(core, session, 11, 0, args, 2);
    run(core, session, 12, 0, over, 1);
    lose(core, "b");
    head_core_lineage(core, &counts);
    ASSERT_EQ(counts.given_back, 0);
    ASSERT_EQ(told.failed, 1);
    ASSERT_CONTAINS(told.text, "it was put");
    finish(core);
}

/* The oldest launch of the device that makes this task and may still be run. */
static struct head_task *launch_of(struct head_core *core, uint32_t index, uint64_t id)
{
    struct head_device *device = head_device_at(core, index);

    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        struct head_task *task = head_device_task(device, seq);

        if (task != NULL && task->id == id && task->failure == NULL) {
            return task;
        }
    }
    test_fail(__FILE__, __LINE__, "no launch for task %llu", (unsigned long long)id);
    return NULL;
}

static bool comes_after(const struct head_task *task, const struct head_task *before)
{
    Plasmon__V1__Launch *launch =
        plasmon__v1__launch__unpack(NULL, task->bytes_length, task->bytes);
    bool named = false;

    ASSERT_NOT_NULL(launch);
    for (size_t i = 0; i < launch->n_after; i++) {
        named |= launch->after[i] == wire_point(before->device->index, before->seq);
    }
    plasmon__v1__launch__free_unpacked(launch, NULL);
    return named;
}

/*
 * What is given back is not there yet: a launch is to write all of it, and another one a part of
 * that again. Who runs again comes after both, and depends on both.
 */
TEST(a_launch_that_is_run_again_waits_for_those_that_make_what_it_was_to_update)
{
    static const struct arg all[]  = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1}};
    static const struct arg part[] = {
        {.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1, .first = true}};
    static const struct arg both[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1},
                                      {.mode = PLASMON__V1__MODE__MODE_IN, .ref = 2}};
    struct head_lineage_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    put(core, session, 1, false);
    done(core, 0, 1);
    make(core, session, 2, 1);
    head_core_worker_lost(core, 0);
    run(core, session, 11, 0, all, 1);
    run(core, session, 12, 0, part, 1);
    run(core, session, 13, 0, both, 2);
    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    head_core_lineage(core, &counts);
    ASSERT_EQ(counts.given_back, 2); /* two versions */
    ASSERT_TRUE(comes_after(launch_of(core, 0, 13), launch_of(core, 0, 11)));
    ASSERT_TRUE(comes_after(launch_of(core, 0, 13), launch_of(core, 0, 12)));

    comes_back(core, 1, 2, 0);
    core_fail(core, 0, launch_of(core, 0, 12)->seq, PLASMON_EINVAL, "no");
    all_done(core);
    ASSERT_EQ(told.failed, 2); /* it, and who depends on it */
    finish(core);
}

/* ---------------------------------------------------- what had begun to be written over */

struct kind {
    uint32_t kind;
    const char *function;
    uint32_t team;
};

static struct head_task *start(struct head_core *core, struct head_buffer *buffer,
                               bool writes, const struct kind *kind)
{
    struct head_operand operand = head_operand_whole(buffer, false, writes);
    struct head_launch launch   = {
          .kind          = kind->kind,
          .device        = buffer->device,
          .function      = kind->function != NULL ? pl_hash_name(kind->function) : 0,
          .team          = kind->team,
          .operands      = &operand,
          .operand_count = 1,
          .retries_max   = 9};

    return head_task_start(core, &launch);
}

/*
 * A launch reads what the one behind it writes over in place; their worker dies with both of them
 * enqueued. May the first one be done again?
 */
static bool is_done_again(const struct kind *reader, const struct kind *writer)
{
    static const struct kind other = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN};
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);
    struct head_client *client;
    struct head_buffer *buffer;
    struct head_task *task;
    struct pl_err err = {0};
    struct head_ref *ref;
    bool again;

    make(core, session, 1, 0);
    make(core, session, 2, 0);
    done(core, 0, 2);
    client = pl_map_get(&core->sessions, session);
    ASSERT_OK(head_client_ref_get(client, 1, 0, &ref, &err));
    buffer =
        head_move_common(ref->array, &ref->array->extent, head_device_at(core, 0), false);
    ASSERT_NOT_NULL(buffer);
    task = start(core, buffer, false, reader);
    (void)start(core, buffer, true, writer);
    ASSERT_OK(head_client_ref_get(client, 2, 0, &ref, &err));
    buffer =
        head_move_common(ref->array, &ref->array->extent, head_device_at(core, 0), false);
    (void)start(core, buffer, false, &other); /* nobody in particular is to blame */
    head_core_flush(core);
    comes_back(core, 5, 3, 0);
    task  = head_device_task(head_device_at(core, 0), 3);
    again = task->failure == NULL;
    ASSERT_TRUE(again || task->failure->status == PLASMON_ECONSUMED);
    all_done(core);
    finish(core);
    return again;
}

/* worker_back.c says why: whether the copy can have begun while the reader was not over. */
TEST(what_a_copy_in_place_had_to_wait_for_is_done_again)
{
    static const struct kind copy     = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY};
    static const struct kind combine  = {.kind     = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY,
                                         .function = "combine"};
    static const struct kind of_team  = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY,
                                         .team = 3};
    static const struct kind function = {.kind     = PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN,
                                         .function = "touch"};
    static const struct kind graph    = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH};
    static const struct kind read     = {.kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_READ};

    ASSERT_TRUE(is_done_again(&function, &copy));
    ASSERT_TRUE(is_done_again(&graph, &copy));
    ASSERT_TRUE(is_done_again(&combine, &copy));
    ASSERT_TRUE(is_done_again(&of_team, &copy));
    ASSERT_TRUE(!is_done_again(&copy, &copy));
    ASSERT_TRUE(!is_done_again(&read, &copy));
    ASSERT_TRUE(!is_done_again(&combine, &combine));
    ASSERT_TRUE(!is_done_again(&combine, &of_team));
    ASSERT_TRUE(!is_done_again(&function, &function));
    ASSERT_TRUE(!is_done_again(&copy, &function));
}

/*
 * Calls of the other hosts read a put; that of "b" is not over when its client updates the put in
 * place where it lies.
 */
static struct head_core *put_is_read_elsewhere(uint64_t *out_session, uint32_t hosts)
{
    struct head_core *core = cluster(PLENTY, out_session);

    if (hosts > 2) {
        ASSERT_EQ(join(core, "c", 0), 2);
    }
    put(core, *out_session, 1, false);
    done(core, 0, 1);
    for (uint32_t i = 1; i < hosts; i++) {
        derive(core, *out_session, 1 + i, 1, i, 10 + i);
    }
    if (hosts > 2) {
        done(core, 2, ((struct head_device *)head_device_at(core, 2))->seq_last);
        done(core, 0, ((struct head_device *)head_device_at(core, 0))->seq_last);
    }
    derive(core, *out_session, 1, 0, 0, 20);
    return core;
}

TEST(a_put_that_a_call_elsewhere_reads_is_there_until_that_is_over)
{
    uint64_t session;
    struct head_core *core = put_is_read_elsewhere(&session, 2);

    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 1);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

/*
 * Where there is one more copy it may be overwritten; then that is no replica, and is not dropped
 * for want of memory.
 */
TEST(a_put_that_is_overwritten_because_of_another_copy_stays_there)
{
    uint64_t session;
    struct head_core *core     = put_is_read_elsewhere(&session, 3);
    struct head_device *device = head_device_at(core, 2);

    make(core, session, 9, 2);
    starves(core, 2, device->seq_last);
    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

/*
 * Its bytes are in host memory, and on their way back to a device that goes: who asked where they
 * are is told of the next one.
 */
TEST(who_waits_for_a_value_that_comes_back_to_a_device_that_goes_is_told_where_it_is)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Locate locate     = PLASMON__V1__LOCATE__INIT;
    Plasmon__V1__Locate *locates[] = {&locate};
    struct pl_err err              = {0};
    struct head_core *core         = begin(PLENTY);
    struct head_device *device;
    uint64_t session;

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "a", 1), 1);
    session = core_client(core);
    head_core_spill_up(core, "a",
                       &(struct head_spill_config){.memory_bytes = 1 << 20, .life = 1});
    make(core, session, 1, 0);
    done(core, 0, 1);
    device = head_device_at(core, 0);
    head_spill_plan_begin(core);
    (void)head_spill_room(core, device, device->bytes_total); /* more than there is */
    head_core_flush(core);
    head_core_spill_done(
        core, "a", 1,
        &(struct head_spill_answer){.status = PLASMON_OK, .host_buffer = 9, .text = ""});
    head_core_flush(core);
    all_done(core);
    ASSERT_EQ(device->bytes_live, 0);

    locate.request  = 1;
    locate.ref      = 1;
    locate.hold_ref = 50;
    frame.locate    = locates;
    frame.n_locate  = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    ASSERT_EQ(told.located, 0);
    device = device->unfinished > 0 ? device : head_device_at(core, 1);
    ASSERT_EQ(device->unfinished, 1);

    test_expect_log();
    head_core_worker_down(core, "a", device->host_device, true, PLASMON_EDEVICE, "it fell");
    head_core_flush(core);
    head_core_check(core);
    ASSERT_EQ(told.located, 0);
    all_done(core);
    ASSERT_EQ(told.located, 1);
    ASSERT_EQ(told.status, PLASMON_OK);
    finish(core);
}

/*
 * A task that is not over made what the next one was to overwrite in place, which is lost: its call
 * is run a second time beside it.
 */
static struct head_core *runs_beside(uint64_t *out_session)
{
    const struct arg args[] = {{.mode = PLASMON__V1__MODE__MODE_INOUT, .ref = 1},
                               {.mode = PLASMON__V1__MODE__MODE_IN, .ref = 2}};
    struct head_core *core  = cluster(PLENTY, out_session);

    make(core, *out_session, 1, 0);
    make(core, *out_session, 2, 1);
    run(core, *out_session, 11, 0, args, 2);
    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 3);
    return core;
}

TEST(a_call_that_is_run_a_second_time_beside_itself_ends_as_the_first_time)
{
    uint64_t session;
    struct head_core *core = runs_beside(&session);

    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(what_a_second_run_made_of_a_call_whose_first_one_fails_is_not_shown)
{
    uint64_t session;
    struct head_core *core = runs_beside(&session);

    core_fail(core, 0, 1, PLASMON_EFUNCTION, "no");
    ASSERT_EQ(told.failed, 2); /* it, and who reads what it makes */
    ASSERT_EQ(told.status, PLASMON_EDEPENDENCY);
    all_done(core);
    ASSERT_EQ(told.failed, 2);
    finish(core);
}

/* 16 bytes a time: versions 3, 6 and 9 are kept, so 9 and 10 are what is missing. */
TEST(a_chain_of_versions_is_made_again_from_the_last_that_was_kept)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = shadowed(48, &session);

    make(core, session, 1, 0);
    for (uint64_t i = 0; i < 10; i++) {
        derive(core, session, 1, 0, 0, 10 + i);
        all_done(core); /* the copies of versions, too */
    }
    ASSERT_EQ(figures(core).shadows, 3);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 2); /* one of them, only */
    ASSERT_EQ(counts.buffers, 2);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 2);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    release(core, session, 1);
    all_done(core);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays + counts.buffers, 0);
    finish(core);
}

TEST(what_was_put_is_kept_before_the_first_task_overwrites_it)
{
    uint64_t session;
    struct head_core *core = shadowed(1 << 20, &session);

    put(core, session, 1, false);
    for (uint64_t i = 0; i < 5; i++) {
        derive(core, session, 1, 0, 0, 10 + i);
    }
    all_done(core);
    ASSERT_EQ(figures(core).shadows, 1);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 5);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(while_a_version_is_being_copied_the_one_before_it_stays)
{
    uint64_t session;
    struct head_core *core = shadowed(48, &session);

    put(core, session, 1, false);
    for (uint64_t i = 0; i < 4; i++) {
        all_done(core);
        derive(core, session, 1, 0, 0, 10 + i);
    }
    ASSERT_EQ(figures(core).shadows, 2); /* the second one is on its way */
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 4);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(a_version_that_is_lost_itself_is_not_made_again)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = shadowed(48, &session);

    make(core, session, 1, 0);
    for (uint64_t i = 0; i < 4; i++) {
        derive(core, session, 1, 0, 0, 10 + i);
    }
    all_done(core);
    lose(core, "b");
    ASSERT_EQ(figures(core).rebuilt_tasks, 0);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 1);
    ASSERT_EQ(counts.buffers, 1);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

/* With one device the task works on a copy: its worker may die and nothing is lost. */
TEST(where_there_is_no_other_device_the_old_version_stays_where_it_is)
{
    struct head_core *core = begin_shadowed(PLENTY, 1);
    struct head_core_counts counts;
    uint64_t session;

    ASSERT_EQ(join(core, "a", 0), 0);
    session = core_client(core);
    make(core, session, 1, 0);
    derive(core, session, 1, 0, 0, 10);
    all_done(core);
    ASSERT_EQ(figures(core).shadows, 1);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.buffers, 2);
    finish(core);
}

TEST(versions_make_room_and_go_when_a_box_is_written_anew)
{
    const struct arg anew = {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = 1};
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = shadowed(16, &session);

    make(core, session, 1, 0);
    derive(core, session, 1, 0, 0, 10);
    all_done(core);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 2);
    run(core, session, 20, 0, &anew, 1); /* what it was does not matter any more */
    all_done(core);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 1);
    ASSERT_EQ(counts.buffers, 1);

    derive(core, session, 1, 0, 0, 11);
    all_done(core);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 2);
    make(core, session, 2, 1);
    starves(core, 1, head_device_at(core, 1)->seq_last);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.arrays, 2); /* refs 1 and 2 */
    finish(core);
}

TEST(records_go_with_the_last_of_what_they_made)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    derive(core, session, 2, 1, 0, 5);
    done(core, 0, 2);
    release(core, session, 1);
    ASSERT_EQ(figures(core).records, 2); /* ref 2 was made from it */
    release(core, session, 2);
    ASSERT_EQ(figures(core).records, 0);
    ASSERT_EQ(figures(core).bytes, 0);
    finish(core);
}

TEST(a_chain_of_records_ends_without_a_deep_stack)
{
    uint64_t session;
    struct head_core *core = cluster(1 << 30, &session);

    make(core, session, 1, 0);
    done(core, 0, 1);
    for (uint64_t i = 0; i < 20000; i++) {
        Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
        Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
        Plasmon__V1__Task *tasks[1]    = {&task};
        Plasmon__V1__Arg arg           = PLASMON__V1__ARG__INIT;
        Plasmon__V1__Arg *args[1]      = {&arg};
        struct pl_err err              = {0};

        arg.mode      = PLASMON__V1__MODE__MODE_INOUT;
        arg.ref       = 1;
        task.id       = 10 + i;
        task.function = pl_hash_name("touch");
        task.args     = args;
        task.n_args   = 1;
        frame.tasks   = tasks;
        frame.n_tasks = 1;
        ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    }
    ASSERT_EQ(figures(core).records, 20001);
    finish(core);
}

TEST(the_oldest_records_are_dropped_and_what_they_made_is_lost_for_good)
{
    uint64_t session;
    struct head_core *core = cluster(600, &session); /* one record, two at most */

    for (uint64_t i = 0; i < 8; i++) {
        make(core, session, 1 + i, 0);
        done(core, 0, 1 + i);
    }
    ASSERT_TRUE(figures(core).bytes <= 600);
    ASSERT_TRUE(figures(core).records >= 1);
    ASSERT_EQ(figures(core).records + figures(core).dropped, 8);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks + figures(core).never, 8);
    derive(core, session, 20, 1, ANYWHERE, 99);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(told.text, "--lineage-bytes");
    finish(core);
}

TEST(without_lineage_what_is_lost_stays_lost)
{
    uint64_t session;
    struct head_core *core = begin(0);

    ASSERT_EQ(join(core, "a", 0), 0); /* two devices of one host */
    ASSERT_EQ(join(core, "a", 1), 1);
    session = core_client(core);
    make(core, session, 1, 0);
    done(core, 0, 1);
    make(core, session, 2, 0);
    ASSERT_EQ(figures(core).records, 0);
    test_expect_log(); /* it is gone */
    head_core_worker_down(core, "a", 0, true, PLASMON_OK, "it burns");
    head_core_flush(core);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EWORKER);
    derive(core, session, 20, 1, ANYWHERE, 99);
    ASSERT_EQ(told.failed, 2);
    ASSERT_CONTAINS(told.text, "the only copy was on device 0");
    finish(core);
}

TEST(with_several_hosts_what_is_under_way_is_run_again_without_lineage_too)
{
    uint64_t session;
    struct head_core *core = cluster(0, &session);

    make(core, session, 1, 0);
    done(core, 0, 1);
    make(core, session, 2, 0);
    ASSERT_EQ(figures(core).records, 1); /* of what is done there is none */
    lose(core, "a");
    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 1);
    done(core, 1, head_device_at(core, 1)->seq_last);
    ASSERT_EQ(core->tasks_done, 2);
    derive(core, session, 20, 1, ANYWHERE, 99);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(told.text, "the only copy was on device 0");
    ASSERT_CONTAINS(told.text, "--lineage-bytes");
    derive(core, session, 21, 2, ANYWHERE, 100);
    done(core, 1, head_device_at(core, 1)->seq_last);
    ASSERT_EQ(told.failed, 1);
    ASSERT_EQ(core->tasks_done, 3);
    finish(core);
}

/* One value on its way from "a" by "b" to "c"; its bytes on "a" are all that there is when "b" dies. */
TEST(without_lineage_who_waits_behind_a_host_that_dies_is_served_from_another)
{
    uint64_t session, before;
    struct head_core *core = begin(0);
    const struct head_task *recv;

    core->config.chain_bytes = 16; /* 16 bytes are large */
    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "b", 0), 1);
    ASSERT_EQ(join(core, "c", 0), 2);
    session = core_client(core);
    make(core, session, 1, 0);
    done(core, 0, 1);
    derive(core, session, 2, 1, 1, 50);
    derive(core, session, 3, 1, 2, 51);
    recv = head_device_task(head_device_at(core, 2), 1);
    ASSERT_EQ(recv->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    ASSERT_EQ(recv->peer, 1);
    before = head_device_at(core, 0)->seq_last;
    lose(core, "b");
    ASSERT_EQ(told.failed, 0);
    ASSERT_TRUE(head_device_at(core, 0)->seq_last > before); /* it sends once more */
    while (head_core_under_way(core, 0)) {
        done(core, 0, head_device_at(core, 0)->seq_last);
        done(core, 2, head_device_at(core, 2)->seq_last);
    }
    ASSERT_EQ(core->tasks_done, 3);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

/* A read of all of it. */
static void read_ref(struct head_core *core, uint64_t session, uint64_t ref)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Read read         = PLASMON__V1__READ__INIT;
    Plasmon__V1__Read *reads[1]    = {&read};
    struct pl_err err              = {0};

    read.request = ref;
    read.ref     = ref;
    read.length  = 16;
    frame.read   = reads;
    frame.n_read = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/* The bytes of the last READ come, and its worker is through with all that it was sent. */
static void sends_bytes(struct head_core *core, uint32_t device)
{
    Plasmon__V1__WorkerFrame frame   = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerData data     = PLASMON__V1__WORKER_DATA__INIT;
    Plasmon__V1__WorkerData *list[1] = {&data};
    uint8_t bytes[16]                = {1};
    struct pl_err err                = {0};

    data.request    = core->request_last;
    data.bytes.data = bytes;
    data.bytes.len  = sizeof(bytes);
    frame.data      = list;
    frame.n_data    = 1;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
    done(core, device, head_device_at(core, device)->seq_last);
}

TEST(without_lineage_a_read_whose_device_leaves_goes_to_another_copy)
{
    uint64_t session;
    struct head_core *core = cluster(0, &session);

    put(core, session, 1, true);
    done(core, 0, 2);
    done(core, 1, 1);
    read_ref(core, session, 1);
    ASSERT_EQ(figures(core).records, 1);
    lose(core, "a");
    ASSERT_EQ(told.answers, 0);
    sends_bytes(core, 1);
    ASSERT_EQ(told.answers, 1);
    ASSERT_OK(told.status);
    ASSERT_EQ(figures(core).records, 0);
    finish(core);
}

TEST(without_lineage_a_read_of_what_is_nowhere_else_says_what_was_lost)
{
    uint64_t session;
    struct head_core *core = cluster(0, &session);

    put(core, session, 1, false);
    done(core, 0, 1);
    read_ref(core, session, 1);
    lose(core, "a");
    ASSERT_EQ(told.answers, 1);
    ASSERT_STATUS(told.status, PLASMON_EWORKER);
    ASSERT_CONTAINS(told.text, "cannot be run again: the only copy was on device 0");
    ASSERT_EQ(figures(core).records, 0);
    finish(core);
}

/* Nobody put it. */
TEST(without_lineage_a_read_of_what_was_overwritten_meanwhile_says_what_would_help)
{
    uint64_t session;
    struct head_core *core = begin(0);

    ASSERT_EQ(join(core, "a", 0), 0);
    session = core_client(core);
    make(core, session, 1, 0);
    done(core, 0, 1);
    read_ref(core, session, 1);
    derive(core, session, 1, 0, 0, 5); /* behind the read, in place */
    core_fail(core, 0, 2, PLASMON_EDEPENDENCY, "it is not there");
    head_core_flush(core);
    ASSERT_EQ(told.answers, 1);
    ASSERT_STATUS(told.status, PLASMON_ECONSUMED);
    ASSERT_CONTAINS(told.text, "with --lineage-bytes");
    finish(core);
}

/* Those that are run again for it are nobody's: they have no number that a user knows. */
TEST(a_result_that_cannot_be_made_again_says_so_without_tasks_that_nobody_submitted)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    put(core, session, 1, false);
    derive(core, session, 2, 1, 0, 1002);
    derive(core, session, 3, 2, 0, 1003);
    done(core, 0, 3);
    lose(core, "a");
    read_ref(core, session, 3);
    ASSERT_STATUS(told.status, PLASMON_EDEPENDENCY);
    ASSERT_CONTAINS(told.text, "the call that is run again to make what was lost needs an "
                               "array that failed before; the first failure: ");
    ASSERT_CONTAINS(told.text, "it was put, and only its client can put it again");
    ASSERT_TRUE(strstr(told.text, "task 0") == NULL);
    finish(core);
}

TEST(a_read_whose_devices_leave_one_after_another_is_given_up)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);
    char host[2][16]       = {"b", ""};

    make(core, session, 1, 0);
    read_ref(core, session, 1);
    lose(core, "a");
    for (uint32_t i = 0; i < 20 && told.answers == 0; i++) {
        (void)snprintf(host[1], sizeof(host[1]), "c%u", i);
        (void)join(core, host[1], 0);
        lose(core, host[0]);
        memcpy(host[0], host[1], sizeof(host[0]));
    }
    ASSERT_EQ(told.answers, 1);
    ASSERT_TRUE(told.status != PLASMON_OK);
    finish(core);
}

TEST(a_sibling_that_survived_is_not_touched)
{
    const struct arg both[] = {
        {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = 1, .fresh = true},
        {.mode = PLASMON__V1__MODE__MODE_OUT, .ref = 2, .fresh = true}};
    struct head_core_counts before, after;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    run(core, session, 5, 0, both, 2);
    derive(core, session, 3, 2, 1, 6); /* brings a copy of the second to the other host */
    done(core, 0, 2);
    done(core, 1, 2);
    head_core_count(core, &before);
    ASSERT_EQ(before.instances, 4);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 1);
    ASSERT_EQ(figures(core).rebuilt_bytes, 16); /* of the first alone */
    done(core, 1, 3);
    head_core_count(core, &after);
    ASSERT_EQ(after.instances, 3);
    ASSERT_EQ(after.buffers, 3);
    finish(core);
}

TEST(what_is_lost_again_and_again_is_given_up)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);
    char host[2][16]       = {"b", ""};

    make(core, session, 1, 0);
    lose(core, "a");
    for (uint32_t i = 0; i < 20 && told.failed == 0; i++) {
        (void)snprintf(host[1], sizeof(host[1]), "c%u", i);
        (void)join(core, host[1], 0);
        lose(core, host[0]);
        memcpy(host[0], host[1], sizeof(host[0]));
    }
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EWORKER);
    ASSERT_EQ(figures(core).rebuilt_tasks, 16);
    finish(core);
}

static uint32_t buffers_on(struct head_core *core, uint32_t device)
{
    uint32_t count = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &head_device_at(core, device)->buffers) {
        count++;
    }
    return count;
}

/*
 * What was put on "a" is read on "b" and, before that is done, updated on "a", where it may be
 * overwritten. Then "b" dies.
 */
static struct head_core *read_elsewhere_and_updated(uint64_t *out_session)
{
    struct head_core *core = shadowed(0, out_session);

    put(core, *out_session, 1, false);
    all_done(core);
    derive(core, *out_session, 2, 1, 1, 50);
    derive(core, *out_session, 1, 0, 0, 51);
    lose(core, "b");
    return core;
}

TEST(a_put_that_another_device_still_reads_is_not_written_over)
{
    uint64_t session;
    struct head_core *core = read_elsewhere_and_updated(&session);

    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 1);
    all_done(core);
    ASSERT_EQ(core->tasks_done, 3);
    ASSERT_EQ(told.failed, 0);
    finish(core);
#ifdef PL_FAULTS
    pl_bug_arm("head.roots_donated");
    core = read_elsewhere_and_updated(&session);
    ASSERT_EQ(told.failed, 1);
    pl_bug_arm(NULL);
    finish(core);
#endif
}

/*
 * When nobody reads it any more, or who does is on the same device, it is updated in place, as its
 * client has allowed.
 */
TEST(a_put_that_nobody_reads_elsewhere_is_written_over)
{
    uint64_t session;
    struct head_core *core = shadowed(0, &session);
    uint32_t before;

    put(core, session, 1, false);
    all_done(core);
    derive(core, session, 2, 1, 1, 50);
    all_done(core);
    all_done(core);
    before = buffers_on(core, 0);
    derive(core, session, 1, 0, 0, 51);
    ASSERT_EQ(buffers_on(core, 0), before);
    derive(core, session, 3, 1, 0, 52);
    before = buffers_on(core, 0);
    derive(core, session, 1, 0, 0, 53);
    ASSERT_EQ(buffers_on(core, 0), before);
    all_done(core);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(a_put_with_a_replica_outlives_its_host)
{
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    put(core, session, 1, true);
    put(core, session, 2, false);
    done(core, 0, 3); /* the puts, and what sends the first to the other host */
    done(core, 1, 1);
    lose(core, "a");
    ASSERT_EQ(figures(core).never, 1);
    derive(core, session, 3, 1, ANYWHERE, 90);
    ASSERT_EQ(told.failed, 0);
    derive(core, session, 4, 2, ANYWHERE, 91);
    ASSERT_EQ(told.failed, 1);
    ASSERT_CONTAINS(told.text, "only its client can put it again");
    finish(core);
}

TEST(a_function_that_fails_is_run_again_as_often_as_its_call_says)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task         = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Task *tasks[1]    = {&task};
    struct pl_err err              = {0};
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    task.id               = 7;
    task.place            = 1;
    task.function         = pl_hash_name("touch");
    task.function_retries = 2;
    frame.tasks           = tasks;
    frame.n_tasks         = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        ASSERT_EQ(told.failed, 0);
        core_fail(core, 0, seq, PLASMON_EFUNCTION, "no");
    }
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EFUNCTION);
    ASSERT_EQ(figures(core).rebuilt_tasks, 2);
    finish(core);
}

/* Another head goes on from all that this one had. */
static struct head_core *go_on_from_checkpoint(struct head_core *core)
{
    struct head_core *next;
    struct head_bytes saved = {0}, again = {0};
    struct head_reader in;
    struct pl_err err = {0};

    if (head_core_unquiet(core) != NULL) {
        test_fail(__FILE__, __LINE__, "%s", head_core_unquiet(core));
    }
    head_core_save(core, &saved);
    wire_arena_finish(&told.arena);
    next = begin(PLENTY);
    in   = (struct head_reader){.at = saved.data, .end = saved.data + saved.length};
    ASSERT_OK(head_core_load(next, &in, &err));
    head_core_check(next);
    head_core_save(next, &again);
    ASSERT_EQ(again.length, saved.length);
    pl_free(saved.data);
    pl_free(again.data);
    head_core_destroy(core);
    return next;
}

TEST(what_was_made_before_a_checkpoint_is_made_again_after_it)
{
    struct head_core_counts counts;
    uint64_t session;
    struct head_core *core = cluster(PLENTY, &session);

    make(core, session, 1, 0);
    derive(core, session, 2, 1, 0, 5);
    derive(core, session, 2, 0, 0, 6); /* in place */
    derive(core, session, 3, 2, 0, 7);
    release(core, session, 1);
    release(core, session, 2);
    done(core, 0, 4);
    ASSERT_EQ(figures(core).records, 4);
    core = go_on_from_checkpoint(core);
    ASSERT_EQ(figures(core).records, 4);
    lose(core, "a");
    ASSERT_EQ(figures(core).rebuilt_tasks, 4);
    done(core, 1, 4);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.tiles, 1);
    ASSERT_EQ(told.failed, 0);
    release(core, session, 3);
    ASSERT_EQ(figures(core).records, 0);
    finish(core);
}

/* Check sums are the machine's: the core gets whatever it is. */
TEST(a_checkpoint_of_lineage_with_any_bit_changed_is_taken_or_refused)
{
    struct head_config config = {.ops           = &ops,
                                 .retries       = UINT32_MAX,
                                 .epoch         = 1,
                                 .lineage_bytes = PLENTY,
                                 .shadow_bytes  = 16};
    struct head_bytes saved   = {0};
    uint32_t refused          = 0;
    uint64_t session;
    struct head_core *core = shadowed(16, &session);

    test_expect_log();
    make(core, session, 1, 0);
    derive(core, session, 2, 1, 0, 5);
    derive(core, session, 2, 0, 0, 6);
    release(core, session, 1);
    all_done(core);
    ASSERT_EQ(figures(core).shadows, 1);
    head_core_save(core, &saved);
    for (size_t i = 0; i < 8 * saved.length; i++) {
        struct head_reader in = {.at = saved.data, .end = saved.data + saved.length};
        struct head_core *next;
        struct pl_err err = {0};

        saved.data[i / 8] ^= (uint8_t)(1u << i % 8);
        ASSERT_OK(head_core_create(&config, &next));
        refused += head_core_load(next, &in, &err) != PLASMON_OK;
        head_core_destroy(next);
        saved.data[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    ASSERT_TRUE(refused > saved.length);
    pl_free(saved.data);
    finish(core);
}

TEST(
    a_reader_that_heard_first_that_its_source_is_not_there_ends_when_the_source_is_told_to_have_failed)
{
    struct head_core *core = begin(PLENTY);
    struct head_core_counts counts;
    uint64_t session;

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "a", 1), 1);
    session = core_client(core);
    make(core, session, 1, 0);
    derive(core, session, 2, 1, 1, 5); /* a copy, and the task itself */
    core_fail(core, 1, 1, PLASMON_EDEPENDENCY, "no");
    done(core, 1, 1);
    ASSERT_EQ(told.failed, 0); /* why is not known */
    core_fail(core, 0, 1, PLASMON_EDEVMEM, "no");
    ASSERT_EQ(told.failed, 2);
    done(core, 0, 1);
    done(core, 1, 2);
    head_core_count(core, &counts);
    ASSERT_EQ(counts.tasks, 0);
    finish(core);
}

/* Task 50: refs 3 and 4 are the sums of refs 1 and 2, of which device 0 has one and device 1 the other. */
static void all_reduce(struct head_core *core, uint64_t session)
{
    Plasmon__V1__ClientFrame frame     = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Collective collective = PLASMON__V1__COLLECTIVE__INIT;
    Plasmon__V1__Task task             = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape           = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Task *tasks[1]        = {&task};
    Plasmon__V1__Arg wire[4], *list[4];
    uint32_t nowhere[2] = {0};
    uint64_t dim        = 4;
    struct pl_err err   = {0};

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &dim;
    for (uint32_t i = 0; i < 4; i++) {
        plasmon__v1__arg__init(&wire[i]);
        list[i]       = &wire[i];
        wire[i].mode  = i < 2 ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_OUT;
        wire[i].ref   = 1 + i;
        wire[i].shape = i < 2 ? NULL : &shape;
    }
    collective.kind    = PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE;
    collective.op      = 1;
    collective.n_place = 2;
    collective.place   = nowhere;
    task.id            = 50;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE;
    task.collective    = &collective;
    task.args          = list;
    task.n_args        = 4;
    frame.tasks        = tasks;
    frame.n_tasks      = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void collective_of_a_lost_device(const char *other)
{
    bool near              = strcmp(other, "a") == 0;
    struct head_core *core = begin(PLENTY);
    uint64_t session;

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, other, near ? 1 : 0), 1);
    ASSERT_EQ(join(core, "c", 0), 2);
    session = core_client(core);
    make(core, session, 1, 0);
    make(core, session, 2, 1);
    all_reduce(core, session);
    lose(core, "a");
    ASSERT_EQ(told.failed, 1); /* the collective; its members are made again */
    ASSERT_EQ(figures(core).rebuilt_tasks, near ? 2 : 1);
    finish(core);
}

TEST(results_of_a_collective_that_are_lost_stay_lost)
{
    struct head_core *core = begin(PLENTY);
    uint64_t session;

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "a", 1), 1);
    ASSERT_EQ(join(core, "c", 0), 2);
    session = core_client(core);
    make(core, session, 1, 0);
    make(core, session, 2, 1);
    all_reduce(core, session);
    for (uint32_t device = 0; device < 2; device++) {
        done(core, device, 2);
    }
    lose(core, "a");
    ASSERT_EQ(told.failed, 0); /* it had ended well */
    ASSERT_EQ(figures(core).rebuilt_tasks, 2);
    derive(core, session, 5, 3, 2, 60);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EDEPENDENCY);
    finish(core);
}

TEST(a_collective_whose_device_is_lost_fails_and_its_client_hears_it)
{
    collective_of_a_lost_device("b");
    collective_of_a_lost_device("a"); /* who reads where members lie is lost with them */
}

/* One host with a device: what it takes along waits for another one. */
static struct head_core *one_host(uint64_t *out_session)
{
    struct head_core *core = begin(PLENTY);

    ASSERT_EQ(join(core, "a", 0), 0);
    *out_session = core_client(core);
    make(core, *out_session, 1, 0);
    done(core, 0, 1);
    derive(core, *out_session, 2, 1, 0, 5);
    lose(core, "a");
    ASSERT_EQ(told.failed, 0);
    return core;
}

static uint64_t unfinished(struct head_core *core)
{
    struct head_core_counts counts;

    head_core_flush(core);
    head_core_check(core);
    head_core_count(core, &counts);
    return counts.tasks;
}

TEST(what_the_only_host_took_along_waits_for_its_next_store)
{
    uint64_t session;
    struct head_core *core = one_host(&session);

    core_announce(core, "a", 1);
    derive(core, session, 3, 2, ANYWHERE, 6); /* new work waits, too */
    ASSERT_EQ(unfinished(core), 3);
    ASSERT_TRUE(head_core_unquiet(core) != NULL);
    ASSERT_EQ(join(core, "a", 0), 1);
    ASSERT_EQ(unfinished(core), 3);
    done(core, 1, 3);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(told.failed, 0);
    ASSERT_EQ(figures(core).rebuilt_tasks, 2);
    finish(core);
}

TEST(what_the_only_host_took_along_goes_to_another_host_that_comes_first)
{
    uint64_t session;
    struct head_core *core = one_host(&session);

    core_announce(core, "a", 1); /* its store has come, and its worker has not */
    ASSERT_EQ(join(core, "b", 0), 2);
    ASSERT_EQ(unfinished(core), 2);
    done(core, 2, 2);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(join(core, "a", 0), 3); /* nobody waits for it any more */
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(a_device_of_another_kind_than_the_one_that_is_waited_for_gets_a_plan_of_its_own)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t device;
    uint64_t session;
    struct head_core *core = one_host(&session);

    hello.host        = (char *)(uintptr_t) "a";
    hello.node        = (char *)(uintptr_t) "a";
    hello.name        = (char *)(uintptr_t) "smaller";
    hello.kind        = 1;
    hello.bytes_total = 1 << 16;
    hello.incarnation = 1;
    ASSERT_OK(head_core_worker_up(core, &hello, &device, &err));
    ASSERT_EQ(device, 2);
    ASSERT_EQ(unfinished(core), 2);
    done(core, 2, 2);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(what_is_planned_for_a_device_that_its_next_store_does_not_have_goes_elsewhere)
{
    uint64_t session;
    struct head_core *core = begin(PLENTY);

    ASSERT_EQ(join(core, "a", 0), 0);
    ASSERT_EQ(join(core, "a", 1), 1);
    session = core_client(core);
    make(core, session, 1, 0);
    make(core, session, 2, 1);
    lose(core, "a");
    core_announce(core, "a", 1);
    ASSERT_EQ(join(core, "a", 0), 2);
    ASSERT_EQ(unfinished(core), 2);
    done(core, 2, 2);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(told.failed, 0);
    finish(core);
}

TEST(when_no_device_comes_in_time_its_clients_are_told)
{
    uint64_t session;
    struct head_core *core = one_host(&session);

    head_core_tick(core, HEAD_EXPECT_MS);
    ASSERT_EQ(unfinished(core), 2);
    head_core_restarted(core,
                        HEAD_EXPECT_MS); /* a new head gives it the whole time again */
    head_core_tick(core, HEAD_EXPECT_MS + 1);
    ASSERT_EQ(unfinished(core), 2);
    ASSERT_EQ(told.failed, 0);
    head_core_tick(core, 2 * HEAD_EXPECT_MS);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(told.failed, 1);
    ASSERT_STATUS(told.status, PLASMON_EDEPENDENCY); /* what it reads cannot be made */
    ASSERT_TRUE(strstr(told.text, "plasmon start") != NULL);
    finish(core);
}

TEST(what_waits_for_a_device_goes_with_its_client)
{
    uint64_t session;
    struct head_core *core = one_host(&session);

    head_core_client_close(core, session);
    ASSERT_EQ(join(core, "a", 0), 1);
    done(core, 1, 2);
    ASSERT_EQ(unfinished(core), 0);
    ASSERT_EQ(figures(core).records, 0);
    finish(core);
}

TEST_MAIN()
