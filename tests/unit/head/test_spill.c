/*
 * What goes to host memory, when, and what comes back: the head alone, with one device of 1 MiB for
 * values of 64 KiB. The test says what the worker has done, and the store.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { VALUE = 64 << 10, ROOM = 15 }; /* a sixteenth of the device is kept free */
enum { GET = PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST };
enum { PUT = PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST };

static struct head_core *core;
static struct head_device *device;
static struct head_spill_host *spill;
static uint64_t session;

static uint64_t client_on(const char *host)
{
    Plasmon__V1__Hello hello = PLASMON__V1__HELLO__INIT;
    struct pl_err err        = {0};
    uint64_t client;

    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    hello.host                              = (char *)(uintptr_t)host;
    ASSERT_OK(head_core_client_open(core, &hello, &client, &err));
    return client;
}

static void begin_with(const struct head_spill_config *config)
{
    core = core_make();
    core_announce(core, "a", 1);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    head_core_spill_up(core, "a", config);
    spill   = head_spill_host_of(core, "a");
    device  = head_device_at(core, 0);
    session = client_on("a");
}

static void begin(uint32_t write_back, bool on_demand)
{
    begin_with(&(struct head_spill_config){.memory_bytes = 64 * VALUE,
                                           .life         = 1,
                                           .write_back   = write_back,
                                           .on_demand    = on_demand});
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

static uint64_t elements = VALUE / 4; /* of what is made */

static void take(const Plasmon__V1__ClientFrame *frame)
{
    struct pl_err err = {0};

    ASSERT_OK(head_core_client_frame(core, session, frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/*
 * Task `id` uses refs of this client in this mode, one after the other: each its own task of one
 * frame. OUT makes ref `id` + 100.
 */
static void call(uint64_t id, const uint64_t *refs, size_t count, Plasmon__V1__Mode mode)
{
    enum { MOST = 64 };
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    uint64_t dim                   = elements;
    Plasmon__V1__Task task[MOST], *tasks[MOST];
    Plasmon__V1__Arg arg[MOST], *args[MOST];

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &dim;
    for (size_t i = 0; i < count; i++) {
        plasmon__v1__task__init(&task[i]);
        plasmon__v1__arg__init(&arg[i]);
        arg[i].mode      = mode;
        arg[i].ref       = refs != NULL ? refs[i] : id + i + 100;
        arg[i].shape     = mode == PLASMON__V1__MODE__MODE_OUT ? &shape : NULL;
        task[i].id       = id + i;
        task[i].function = pl_hash_name("touch");
        task[i].args     = &args[i];
        task[i].n_args   = 1;
        args[i]          = &arg[i];
        tasks[i]         = &task[i];
    }
    frame.tasks   = tasks;
    frame.n_tasks = count;
    take(&frame);
}

static void make(uint64_t id, size_t count)
{
    call(id, NULL, count, PLASMON__V1__MODE__MODE_OUT);
}

/* That device's worker has done all that it was sent; what comes of that is sent. */
static void done_by(struct head_device *by)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    if (by->seq_sent < by->seq_oldest) {
        return;
    }
    range.first  = by->seq_oldest;
    range.count  = by->seq_sent - by->seq_oldest + 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, by->index, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void done(void)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        done_by(head_device_at(core, i));
    }
}

/* The store has done what it was asked first, or its disk is full. */
static void answer(bool disk_full)
{
    const struct head_spill_request *request =
        pl_list_first(&spill->requests, struct head_spill_request, link);
    bool refused = disk_full && request->op.kind == HEAD_SPILL_WRITE;

    head_core_spill_done(
        core, "a", request->op.id,
        &(struct head_spill_answer){.status      = refused ? PLASMON_ELIMIT : PLASMON_OK,
                                    .host_buffer = 9,
                                    .text        = refused ? "the disk is full" : ""});
    head_core_flush(core);
    head_core_check(core);
}

/* The memory for spilling is there, as far as it is said. */
static void slab_answer(uint64_t id, plasmon_status_t status, uint64_t bytes)
{
    head_core_spill_done(
        core, "a", id,
        &(struct head_spill_answer){.status      = status,
                                    .host_buffer = 9,
                                    .bytes       = bytes,
                                    .text        = status != PLASMON_OK ? "no RAM" : ""});
    head_core_flush(core);
    head_core_check(core);
}

static void slab_made(void)
{
    slab_answer(1, PLASMON_OK, 0);
}

static void settle_disk(bool full)
{
    while (head_core_under_way(core, 0) || !pl_list_empty(&spill->requests)) {
        done();
        if (!pl_list_empty(&spill->requests)) {
            answer(full);
        }
    }
}

/* And so on, the store included, until nothing is left to be done. */
static void settle(void)
{
    settle_disk(false);
}

static struct head_buffer *buffer_of(uint64_t id)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    struct pl_err err          = {0};
    struct head_ref *ref;

    ASSERT_OK(head_client_ref_get(client, id, 0, &ref, &err));
    return head_move_common(ref->array, &ref->array->extent, device, false);
}

static bool copied(uint64_t id)
{
    struct head_buffer *buffer = buffer_of(id);

    return buffer != NULL && head_spill_droppable(buffer);
}

/* Launches of the device that are not over and copy to host memory. */
static uint32_t open_gets(void)
{
    uint32_t count = 0;

    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        const struct head_task *task = head_device_task(device, seq);

        count += task != NULL && task->kind == GET;
    }
    return count;
}

static void let_go_of(uint64_t ref, uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};

    range.first     = ref;
    range.count     = count;
    frame.release   = ranges;
    frame.n_release = 1;
    take(&frame);
}

TEST(what_was_not_used_for_long_is_copied_while_more_than_the_mark_is_taken)
{
    begin(50, false);
    make(1, 8); /* exactly the mark */
    settle();
    ASSERT_EQ(spill->slab, HEAD_SLAB_NONE);
    make(9, 3);
    settle();
    ASSERT_EQ(spill->write_backs, 3);
    ASSERT_EQ(spill->write_back_bytes, 3 * VALUE);
    ASSERT_EQ(spill->spills, 0);
    for (uint64_t ref = 101; ref <= 111; ref++) {
        ASSERT_EQ(copied(ref), ref <= 103);
        ASSERT_NOT_NULL(buffer_of(ref)); /* and all of them are where they were */
    }
    end();
}

TEST(then_room_is_made_without_a_copy)
{
    static const uint32_t marks[] = {0, 50};

    for (size_t i = 0; i < PL_COUNT(marks); i++) {
        begin(marks[i], false);
        for (uint64_t id = 1; id <= 30; id++) {
            make(id, 1);
            settle();
        }
        ASSERT_EQ(spill->spills, marks[i] == 0 ? 30 - ROOM : 0);
        ASSERT_EQ(spill->write_backs, marks[i] == 0 ? 0 : 30 - 8);
        ASSERT_EQ(device->bytes_live, ROOM * VALUE);
        ASSERT_EQ(spill->restores, 0);
        end();
    }
}

TEST(at_most_two_are_under_way_and_using_a_value_keeps_it_from_being_next)
{
    static const uint64_t first = 101;

    begin(50, false);
    make(1, 12);
    settle(); /* 101 to 104 */
    ASSERT_EQ(spill->write_backs, 4);
    make(13, 3); /* now 105 to 107 are next */
    ASSERT_EQ(open_gets(), 2);
    call(20, &first, 1, PLASMON__V1__MODE__MODE_IN);
    ASSERT_EQ(open_gets(), 2);
    settle();
    ASSERT_EQ(spill->write_backs, 7);
    ASSERT_TRUE(copied(105) && copied(106) && copied(107) && !copied(108));
    /* That they were copied is no use: 102 is the least recently used one, and goes first. */
    make(16, 1);
    ASSERT_NULL(buffer_of(102));
    ASSERT_TRUE(buffer_of(101) != NULL && buffer_of(105) != NULL);
    settle();
    end();
}

TEST(a_launch_that_overwrites_a_value_cancels_its_copy)
{
    static const uint64_t first = 101;
    struct head_buffer *buffer;

    begin(50, false);
    make(1, 8);
    settle();
    make(9, 1);
    done();
    slab_made(); /* the slab */
    head_core_flush(core);
    ASSERT_EQ(open_gets(), 1);
    buffer = buffer_of(first);
    ASSERT_TRUE(copied(first));
    call(20, &first, 1, PLASMON__V1__MODE__MODE_INOUT);
    ASSERT_TRUE(buffer_of(first) == buffer && !copied(first)); /* in place */
    ASSERT_EQ(spill->cancels, 1);
    settle();
    /* which is the least recently used one now */
    ASSERT_TRUE(!copied(first) && copied(102));
    ASSERT_EQ(spill->write_backs, 2);
    ASSERT_EQ(spill->home.bytes_live, VALUE);
    end();
}

TEST(a_value_that_nobody_holds_is_not_copied_any_further)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    struct pl_err err              = {0};

    begin(50, false);
    make(1, 9);
    done();
    slab_made();
    head_core_flush(core);
    ASSERT_EQ(open_gets(), 1);
    range.first     = 101;
    range.count     = 1;
    frame.release   = ranges;
    frame.n_release = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    ASSERT_EQ(spill->cancels, 1);
    settle();
    ASSERT_EQ(spill->home.bytes_planned, 0);
    ASSERT_EQ(spill->write_backs, 1); /* without it no more than the mark is taken */
    end();
}

/*
 * It made way before its copy was done, and came back from there to be overwritten: who overwrites
 * it needs that copy.
 */
TEST(a_copy_that_a_restore_reads_is_not_cancelled)
{
    static const uint64_t first = 101;

    begin(50, false);
    make(1, 9);
    done();
    slab_made();
    head_core_flush(core);
    ASSERT_EQ(open_gets(), 1);
    make(10, ROOM - 8); /* one more than there is room for */
    ASSERT_NULL(buffer_of(first));
    call(40, &first, 1, PLASMON__V1__MODE__MODE_INOUT);
    ASSERT_EQ(spill->restores, 1);
    ASSERT_EQ(spill->cancels, 0);
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

TEST(nothing_is_copied_ahead_while_spills_need_the_lanes)
{
    begin(50, false);
    make(1, 20);
    ASSERT_EQ(spill->spills, 20 - ROOM);
    done(); /* the slab is not there yet: the spills wait for it */
    ASSERT_EQ(spill->write_backs, 0);
    slab_made();
    head_core_flush(core);
    ASSERT_TRUE(open_gets() > 0);
    ASSERT_EQ(spill->write_backs, 0);
    settle();
    ASSERT_EQ(spill->spills, 20 - ROOM);
    ASSERT_EQ(spill->write_backs, ROOM - 8);
    end();
}

/* Also while what made them, and reads them, is not over. */
TEST(what_is_released_first_leaves_its_room)
{
    static const uint64_t refs[] = {101, 102, 103};

    begin(0, false);
    make(1, ROOM);
    call(30, refs, PL_COUNT(refs), PLASMON__V1__MODE__MODE_IN);
    let_go_of(101, ROOM);
    make(201, ROOM);
    ASSERT_EQ(spill->spills, 0);
    ASSERT_EQ(device->bytes_live, ROOM * VALUE);
    settle();
    ASSERT_EQ(spill->spills, 0);
    end();
}

TEST(a_copy_ahead_of_need_takes_no_host_memory_from_anybody)
{
    begin(50, false);
    spill->config.memory_bytes = 6 * VALUE;
    make(1, ROOM);
    settle();
    ASSERT_EQ(spill->write_backs,
              4); /* the other three have no room, of which two are kept */
    make(ROOM + 1, 8);
    settle();
    ASSERT_EQ(spill->home.bytes_live, 4 * VALUE);
    ASSERT_EQ(spill->writes, 0);
    end();
}

/* Values 101 to 116 of which 101 was spilled; then a launch, and one that reads 101. */
static const struct head_task *restore_behind_a_launch(void)
{
    static const uint64_t refs[] = {110, 101};

    make(1, ROOM + 1);
    settle();
    ASSERT_NULL(buffer_of(101));
    call(30, refs, 2, PLASMON__V1__MODE__MODE_IN);
    for (uint64_t seq = device->seq_oldest; seq <= device->seq_last; seq++) {
        const struct head_task *task = head_device_task(device, seq);

        if (task->kind == PUT) {
            ASSERT_TRUE(seq > device->seq_oldest);
            return task;
        }
    }
    test_fail(__FILE__, __LINE__, "nothing is brought back");
    return NULL;
}

TEST(what_a_queued_task_reads_is_sent_for_before_its_turn)
{
    begin(0, false);
    ASSERT_TRUE(restore_behind_a_launch()->seq <= device->seq_sent);
    settle();
    end();
}

TEST(and_only_then_if_it_was_asked_for_so)
{
    const struct head_task *restore;

    begin(0, true);
    restore = restore_behind_a_launch();
    ASSERT_TRUE(restore->seq > device->seq_sent);
    done(); /* what is before it */
    ASSERT_TRUE(restore->seq <= device->seq_sent);
    settle();
    ASSERT_EQ(spill->restores, 1);
    end();
}

/*
 * Reads values round and round, `rounds` times all of them, in one frame; returns how often one had
 * to be brought back.
 */
static uint64_t restores_of_rounds(bool look_ahead, uint32_t values, uint32_t rounds)
{
    uint64_t refs[64], restores;
    uint32_t count = 0;

    begin(0, !look_ahead);
    for (uint64_t id = 1; id <= values; id++) {
        make(id, 1);
        settle();
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < values; i++) {
            refs[count++] = 101 + i;
        }
    }
    call(1000, refs, count, PLASMON__V1__MODE__MODE_IN);
    settle();
    restores = spill->restores;
    end();
    return restores;
}

/* 20 values, 15 fit. Without looking ahead each has just gone when its turn has come. */
TEST(what_the_tasks_of_a_frame_need_soonest_is_kept)
{
    ASSERT_EQ(restores_of_rounds(false, 20, 3), 60);
    ASSERT_EQ(restores_of_rounds(true, 20, 3), 18); /* what a perfect plan needs */
}

/* The first task makes a ref that the last one reads, and is not the one to go between them. */
TEST(also_what_a_task_of_the_frame_makes)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Task task[ROOM + 2], *tasks[ROOM + 2];
    Plasmon__V1__Arg arg[ROOM + 2], *args[ROOM + 2];
    uint64_t dim      = VALUE / 4;
    struct pl_err err = {0};

    begin(0, false);
    make(1, ROOM - 1);
    settle();
    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &dim;
    for (uint32_t i = 0; i < PL_COUNT(task); i++) {
        bool reads = i == ROOM + 1;

        plasmon__v1__task__init(&task[i]);
        plasmon__v1__arg__init(&arg[i]);
        arg[i].mode      = reads ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_OUT;
        arg[i].ref       = reads ? 300 : 300 + i;
        arg[i].shape     = reads ? NULL : &shape;
        task[i].id       = 200 + i;
        task[i].function = pl_hash_name("touch");
        task[i].args     = &args[i];
        task[i].n_args   = 1;
        args[i]          = &arg[i];
        tasks[i]         = &task[i];
    }
    frame.tasks   = tasks;
    frame.n_tasks = PL_COUNT(tasks);
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    settle();
    ASSERT_EQ(spill->restores, 0);
    ASSERT_NOT_NULL(buffer_of(300));
    ASSERT_NULL(buffer_of(301));
    end();
}

static struct head_array *array_of(uint64_t id)
{
    struct head_client *client = pl_map_get(&core->sessions, session);
    struct pl_err err          = {0};
    struct head_ref *ref;

    ASSERT_OK(head_client_ref_get(client, id, 0, &ref, &err));
    return ref->array;
}

/* Is the value of every ref in some memory, none of it failed? */
static void assert_all_there(uint64_t first, uint64_t count)
{
    for (uint64_t id = first; id < first + count; id++) {
        struct head_array *array = array_of(id);
        struct pl_list *pos;

        ASSERT_NULL(head_array_failure(array, &array->extent));
        pl_list_for_each(pos, &array->fragments) {
            const struct head_fragment *fragment =
                pl_container_of(pos, struct head_fragment, array_link);

            ASSERT_TRUE(head_tile_covered(fragment->tile, NULL, &fragment->box));
        }
    }
}

/* -------------------------------------------------------------------------- all is full */

/* Values until one does not fit any more; so many. */
static uint64_t fill(uint64_t *random, bool uneven)
{
    for (uint64_t id = 1;; id++) {
        elements = uneven ? 256 + test_random(random) % (VALUE / 4 - 256) : VALUE / 4;
        make(id, 1);
        settle();
        if (device->bytes_live > ROOM * VALUE) {
            let_go_of(100 + id, 1);
            settle();
            elements = VALUE / 4;
            return id - 1;
        }
    }
}

/*
 * Nothing is under way, and each value is held once: what is reported by holder is what lies in
 * each place, to the byte.
 */
static void report_adds_up(void)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    uint64_t sum[4] = {0}, slab = 0, files = 0;
    struct head_holders *holders;
    struct wire_arena arena;
    struct pl_list *pos;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(head_holders_create("", &holders));
    while (head_core_holders_look(core, holders, 3)) {
    }
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_OK(head_core_holders_tell(core, holders, &arena, &reply));
    ASSERT_EQ(reply.holders_left, 0);
    for (size_t i = 0; i < reply.n_holders; i++) {
        sum[reply.holders[i]->state] += reply.holders[i]->bytes;
    }
    pl_list_for_each(pos, &spill->home.buffers) {
        const struct head_buffer *copy =
            pl_container_of(pos, struct head_buffer, device_link);

        *(copy->spilled->placed ? &slab : &files) += copy->bytes;
    }
    ASSERT_EQ(sum[PLASMON__V1__MEMORY_STATE__MEMORY_USED] +
                  sum[PLASMON__V1__MEMORY_STATE__MEMORY_REPLICA],
              device->bytes_planned);
    ASSERT_EQ(sum[PLASMON__V1__MEMORY_STATE__MEMORY_SPILLED], slab);
    ASSERT_EQ(sum[PLASMON__V1__MEMORY_STATE__MEMORY_FILE], files);
    ASSERT_EQ(reply.devices[0]->bytes_pinned, 0);
    ASSERT_TRUE(reply.spill_hosts[0]->memory_used >= slab);
    ASSERT_TRUE(reply.spill_hosts[0]->file_used >= files);
    head_holders_destroy(holders);
    wire_arena_finish(&arena);
}

static void read_one(uint64_t task, uint64_t ref)
{
    call(task, &ref, 1, PLASMON__V1__MODE__MODE_IN);
    ASSERT_TRUE(device->bytes_live <= ROOM * VALUE); /* its worker has room */
    settle();
    report_adds_up();
}

/*
 * Each value comes back, in whatever order, when device, slab and files are full: no launch is
 * planned beyond what the device has, and none fails.
 */
static void all_come_back(uint64_t memory, uint64_t files, bool uneven)
{
    uint64_t random = test_seed();
    uint64_t count, task = 1000;

    begin_with(&(struct head_spill_config){
        .memory_bytes = memory, .file_bytes = files, .life = 1, .on_demand = true});
    count = fill(&random, uneven);
    ASSERT_TRUE(count > ROOM);
    for (uint64_t i = 0; i < count; i++) {
        read_one(task++, 101 + i);
    }
    for (uint64_t i = count; i-- > 0;) {
        read_one(task++, 101 + i);
    }
    for (uint64_t i = 0; i < 8 * count; i++) {
        read_one(task++, 101 + test_random(&random) % count);
    }
    ASSERT_EQ(core->tasks_failed, 0);
    ASSERT_EQ(spill->undone, 0);
    assert_all_there(101, count);
    end();
}

TEST(what_was_spilled_comes_back_when_host_memory_is_full)
{
    all_come_back(8 * VALUE, 0, false);
    all_come_back(8 * VALUE, 0, true);
}

TEST(what_was_spilled_comes_back_when_host_memory_and_files_are_full)
{
    all_come_back(4 * VALUE, 6 * VALUE, false);
    all_come_back(4 * VALUE, 6 * VALUE, true);
    all_come_back(4 * VALUE, 30 * VALUE, true);
}

/* ------------------------------------------------------------------------ gathered in turns */

/* Task `id` updates the ref from element `first` on. */
static void update_from(uint64_t id, uint64_t ref, uint64_t first)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    int64_t view[] = {(int64_t)first, (int64_t)(elements - first), 1};

    arg.mode      = PLASMON__V1__MODE__MODE_INOUT;
    arg.ref       = ref;
    arg.view      = view;
    arg.n_view    = PL_COUNT(view);
    task.id       = id;
    task.function = pl_hash_name("touch");
    task.args     = args;
    task.n_args   = 1;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    take(&frame);
    ASSERT_TRUE(device->bytes_live <= ROOM * VALUE);
}

/* Updated step by step, from one element less each time, with all that it was before kept. */
static void use_scattered(Plasmon__V1__Mode mode)
{
    enum { STEPS = 2 * ROOM };

    struct head_array *before[STEPS + 1], *array;
    uint64_t ref = 101;

    begin_with(&(struct head_spill_config){
        .memory_bytes = 64 * VALUE, .life = 1, .on_demand = true});
    elements = VALUE / 4;
    make(1, 1);
    settle();
    array = array_of(ref);
    for (uint64_t k = 0; k <= STEPS; k++) {
        before[k] = head_array_snapshot(core, array->space, array, &array->extent);
        if (k < STEPS) {
            update_from(200 + k, ref, k);
        }
        settle();
    }
    ASSERT_TRUE(array->fragment_count == STEPS);
    ASSERT_NULL(buffer_of(ref));
    call(300, &ref, 1, mode);
    ASSERT_TRUE(device->bytes_live <= ROOM * VALUE); /* its worker has room */
    settle();
    ASSERT_NOT_NULL(buffer_of(ref));
    ASSERT_EQ(core->tasks_failed, 0);
    assert_all_there(ref, 1);
    for (uint64_t k = 0; k <= STEPS; k++) {
        head_array_release(core, before[k]);
    }
    end();
}

TEST(what_lies_in_more_buffers_than_there_is_room_for_is_gathered_in_turns)
{
    use_scattered(PLASMON__V1__MODE__MODE_IN);
    use_scattered(PLASMON__V1__MODE__MODE_INOUT);
}

/* ---------------------------------------------------------- memory that comes in pieces */

static uint64_t oldest_request(enum head_spill_kind kind)
{
    const struct head_spill_request *request =
        pl_list_first(&spill->requests, struct head_spill_request, link);

    ASSERT_TRUE(!pl_list_empty(&spill->requests));
    ASSERT_EQ(request->op.kind, kind);
    return request->op.id;
}

TEST(what_is_there_of_the_memory_is_used_before_all_of_it_is)
{
    const struct head_spill_request *request;

    begin_with(&(struct head_spill_config){.memory_bytes = 16 * VALUE, .life = 1});
    make(1, ROOM + 6);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_OK, 2 * VALUE);
    ASSERT_EQ(spill->bound, 2); /* copies that have a place */
    request = pl_list_first(&spill->requests, struct head_spill_request, link);
    ASSERT_EQ(oldest_request(HEAD_SPILL_SLAB), 2); /* and more is wanted */
    ASSERT_EQ(request->op.offset, 2 * VALUE);
    ASSERT_EQ(pl_list_first(&spill->requests, struct head_spill_request, link)->link.next,
              &spill->requests); /* once */
    done();
    ASSERT_EQ(spill->bound, 0);
    slab_answer(2, PLASMON_OK, 3 * VALUE + VALUE / 2); /* half a place is none */
    ASSERT_EQ(spill->bound, 1);
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_OK, 16 * VALUE);
    ASSERT_EQ(spill->bound, 4);
    ASSERT_TRUE(pl_list_empty(&spill->requests));
    settle();
    ASSERT_EQ(spill->spills, 6);
    ASSERT_EQ(spill->undone, 0);
    assert_all_there(101, ROOM + 6);
    end();
}

/* What has its place keeps it; the rest goes to files through what there is, or stays where it is. */
TEST(memory_that_ends_early_is_used_as_far_as_it_goes)
{
    test_expect_log();
    begin_with(&(struct head_spill_config){
        .memory_bytes = 16 * VALUE, .file_bytes = 64 * VALUE, .life = 1});
    make(1, 30);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_OK, 4 * VALUE);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_ENOMEM, 0);
    ASSERT_EQ(spill->slab, HEAD_SLAB_READY);
    ASSERT_EQ(spill->config.memory_bytes, 4 * VALUE);
    ASSERT_EQ(oldest_request(HEAD_SPILL_WRITE), 3); /* room is made as when it is full */
    settle();
    ASSERT_EQ(spill->spills, 15);
    ASSERT_EQ(spill->undone, 0);
    ASSERT_EQ(core->tasks_failed, 0);
    assert_all_there(101, 30);
    end();
}

TEST(a_value_that_was_to_go_where_the_memory_ended_stays_where_it_is)
{
    test_expect_log();
    begin_with(&(struct head_spill_config){.memory_bytes = 16 * VALUE, .life = 1});
    make(1, ROOM + 4);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_OK, 2 * VALUE);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_ENOMEM, 0);
    settle();
    ASSERT_EQ(spill->undone, 2);
    ASSERT_EQ(core->tasks_failed, 0);
    assert_all_there(101, ROOM + 4);
    end();
}

/*
 * Values 101 to 104 are in host memory and on the device, 105 to 112 on the device alone, when it
 * is found that there is memory for four and no more. Two places of those are kept for what comes
 * back (spill_host.c): two of the four must not be in host memory alone.
 */
static void begin_with_more_copied_than_may_stay(void)
{
    test_expect_log(); /* that there is no more RAM */
    begin_with(&(struct head_spill_config){
        .memory_bytes = 64 * VALUE, .life = 1, .write_back = 50});
    make(1, 12);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_OK, 4 * VALUE);
    done();
    done();
    ASSERT_EQ(spill->write_backs, 4);
    make(13, 1);
    done();
    slab_answer(oldest_request(HEAD_SPILL_SLAB), PLASMON_ENOMEM, 0);
    settle();
    ASSERT_EQ(spill->config.memory_bytes, 4 * VALUE);
    ASSERT_EQ(spill->home.bytes_live, 4 * VALUE);
    ASSERT_TRUE(copied(101) && copied(104) && !copied(105));
}

/*
 * The room that 101 needs to be in host memory alone is made by dropping copies, of which its own
 * is the oldest: then it must be copied anew.
 */
TEST(a_value_whose_copy_went_for_its_own_room_is_not_dropped)
{
    begin_with_more_copied_than_may_stay();
    make(14, 3);
    ASSERT_NULL(buffer_of(101));
    assert_all_there(101, 16);
    settle();
    assert_all_there(101, 16);
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

TEST(what_is_in_host_memory_alone_leaves_the_room_for_what_comes_back)
{
    begin_with_more_copied_than_may_stay();
    make(14, 3);
    settle();
    make(17, 1);
    settle();
    ASSERT_EQ(spill->home.bytes_live, 2 * VALUE);
    make(18, 1); /* fits nowhere: it is told so at once */
    ASSERT_TRUE(device->bytes_live > ROOM * VALUE);
    let_go_of(118, 1);
    settle();
    for (uint64_t i = 0; i < 17; i++) {
        read_one(1000 + i, 101 + i);
    }
    assert_all_there(101, 17);
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* ------------------------------------------------------------------- who waits for what */

/* What is said of the first copy of this kind that was not sent; it lives until the next call. */
static const Plasmon__V1__TaskWait *held(const char *what)
{
    static struct wire_arena arena; /* zeroed: nothing to finish */
    static Plasmon__V1__Waits waits;

    wire_arena_finish(&arena);
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    plasmon__v1__waits__init(&waits);
    ASSERT_OK(head_core_waits(core, &arena, &waits));
    for (size_t i = 0; i < waits.n_tasks; i++) {
        if (!waits.tasks[i]->sent && strcmp(waits.tasks[i]->what, what) == 0) {
            ASSERT_EQ(waits.tasks[i]->bytes, VALUE);
            ASSERT_STR(waits.tasks[i]->node, "a");
            return waits.tasks[i];
        }
    }
    test_fail(__FILE__, __LINE__, "no %s that was not sent", what);
    return NULL;
}

TEST(a_copy_that_is_not_sent_says_what_it_waits_for)
{
    static const uint64_t first = 101;

    begin_with(&(struct head_spill_config){
        .memory_bytes = 4 * VALUE, .file_bytes = 64 * VALUE, .life = 1, .on_demand = true});
    make(1, 30);
    done();
    ASSERT_EQ(held("spill")->hold, PLASMON__V1__TASK_HOLD__HOLD_SLAB);
    ASSERT_CONTAINS(held("spill")->hold_text, "256.0 KiB are to be made");
    slab_answer(1, PLASMON_OK, 2 * VALUE);
    ASSERT_EQ(held("spill")->hold, PLASMON__V1__TASK_HOLD__HOLD_SLAB);
    ASSERT_CONTAINS(held("spill")->hold_text, "128.0 KiB of 256.0 KiB are made");
    answer(false);
    ASSERT_EQ(held("spill")->hold, PLASMON__V1__TASK_HOLD__HOLD_PLACE);
    ASSERT_CONTAINS(held("spill")->hold_text, "4 copies there are under way");
    settle();
    call(200, &first, 1, PLASMON__V1__MODE__MODE_IN); /* its bytes are in a file */
    ASSERT_EQ(held("restore")->hold, PLASMON__V1__TASK_HOLD__HOLD_QUEUE); /* a spill goes */
    ASSERT_EQ(held("restore")->n_after, 1);
    while (held("restore")->hold == PLASMON__V1__TASK_HOLD__HOLD_QUEUE ||
           held("restore")->hold == PLASMON__V1__TASK_HOLD__HOLD_PLACE) {
        done();
        if (held("restore")->hold != PLASMON__V1__TASK_HOLD__HOLD_FILE) {
            answer(false);
        }
    }
    ASSERT_EQ(held("restore")->hold, PLASMON__V1__TASK_HOLD__HOLD_FILE);
    settle();
    end();
}

/* -------------------------------------------------------------------------- a full disk */

static void begin_with_files(void)
{
    begin_with(&(struct head_spill_config){
        .memory_bytes = 4 * VALUE, .file_bytes = 64 * VALUE, .life = 1, .on_demand = true});
}

/*
 * 30 values for 15 places and a slab of 4: ten are on their way to files when it is found that
 * somebody else has filled the disk.
 */
TEST(a_value_that_has_no_place_in_any_file_stays_where_it_is)
{
    test_expect_log(); /* that it is full */
    begin_with_files();
    make(1, 30);
    ASSERT_EQ(spill->spills, 15);
    settle_disk(true);
    assert_all_there(101, 30);
    ASSERT_EQ(spill->home.bytes_live, 4 * VALUE);
    ASSERT_EQ(device->bytes_live,
              26 * VALUE); /* too much: those that come last fail for want of it */
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

static void pass_ms(uint64_t ms)
{
    head_core_tick(core, core->now_ms + ms);
    head_core_flush(core);
    head_core_check(core);
}

/*
 * Nothing of ours is in files, so nothing that is forgotten would tell: one value is written every
 * 10 s, at nobody's cost.
 */
TEST(a_disk_that_was_full_is_used_again_when_others_have_made_room)
{
    test_expect_log(); /* that it is full */
    begin_with_files();
    pass_ms(1000);
    make(1, 30);
    settle_disk(true);
    ASSERT_TRUE(spill->files_full);
    pass_ms(9000);
    ASSERT_TRUE(pl_list_empty(&spill->requests));
    for (int i = 0; i < 2; i++) { /* it is full still: all stays as it is */
        pass_ms(10000);
        ASSERT_EQ(oldest_request(HEAD_SPILL_WRITE), spill->files_try);
        ASSERT_EQ(head_spill_host_room(spill, VALUE, UINT64_MAX),
                  0); /* nobody counts on it */
        pass_ms(10000);
        ASSERT_EQ(spill->op_last, spill->files_try); /* one at a time */
        settle_disk(true);
        ASSERT_TRUE(spill->files_full);
        ASSERT_EQ(spill->file_bytes, 0);
        ASSERT_EQ(spill->home.bytes_live, 4 * VALUE);
        assert_all_there(101, 30);
    }
    pass_ms(10000);
    settle();
    ASSERT_TRUE(!spill->files_full);
    ASSERT_EQ(spill->file_bytes, VALUE);
    make(201, 12);
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    ASSERT_TRUE(spill->writes > 1);
    ASSERT_EQ(device->bytes_live, ROOM * VALUE);
    end();
}

/* What was planned to come back is copied from where it stayed. */
TEST(who_reads_it_finds_it_there)
{
    static const uint64_t refs[] = {101, 102, 103, 104, 105, 106, 107, 108, 109};

    test_expect_log(); /* that it is full */
    begin_with_files();
    make(1, 30);
    call(200, refs, PL_COUNT(refs), PLASMON__V1__MODE__MODE_IN);
    call(300, refs, PL_COUNT(refs), PLASMON__V1__MODE__MODE_INOUT);
    ASSERT_TRUE(spill->restores >= PL_COUNT(refs));
    settle_disk(true);
    ASSERT_EQ(core->tasks_failed, 0);
    assert_all_there(101, 30);
    end();
}

/*
 * One that had a direct way when it was planned: the next worker of its device has none. It fails,
 * and nobody else does.
 */
TEST(who_lost_the_direct_way_meanwhile_is_told_why)
{
    uint64_t dim = VALUE / 4;

    test_expect_log(); /* that it is full */
    begin_with_files();
    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 1), 1);
    for (uint64_t id = 1; id <= 30; id++) {
        core_submit(core, session, id, 0, 0, &dim, 1);
    }
    for (uint64_t id = 101; id <= 112; id++) {
        core_submit(core, session, 100 + id, 1, id, NULL, 0);
    }
    head_device_at(core, 1)->peer_capable = false;
    settle_disk(true);
    ASSERT_TRUE(spill->stranded > 0);
    ASSERT_TRUE(core->tasks_failed > 0);
    assert_all_there(101, 30);
    end();
}

/*
 * .. on another device, too, that has no direct way to the one where it stayed: it comes back
 * there, and goes on from there.
 */
static void read_elsewhere(bool slab_is_there)
{
    uint64_t dim = VALUE / 4;

    test_expect_log(); /* that it is full */
    begin_with_files();
    core->config.transfer = HEAD_TRANSFER_HOST;
    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 1), 1);
    for (uint64_t id = 1; id <= 30; id++) {
        core_submit(core, session, id, 0, 0, &dim, 1);
        if (slab_is_there && id == ROOM + 1) {
            settle(); /* the first spill has its slab, and its place there */
        }
    }
    for (uint64_t id = 101; id <= 112; id++) {
        core_submit(core, session, 100 + id, 1, id, NULL, 0);
    }
    head_core_check(core);
    settle_disk(true);
    ASSERT_TRUE(spill->undone > 0);
    ASSERT_EQ(spill->stranded, 0);
    ASSERT_EQ(core->tasks_failed, 0);
    assert_all_there(101, 30);
    end();
}

TEST(who_reads_it_where_no_device_maps_another_finds_it_there)
{
    read_elsewhere(false);
    read_elsewhere(true);
}

/* What needs no file is sure to be spilled, and comes back where it is read, at once. */
TEST(what_has_room_in_host_memory_comes_back_where_it_is_read)
{
    uint64_t dim = VALUE / 4;

    begin(0, false);
    core->config.transfer = HEAD_TRANSFER_HOST;
    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 1), 1);
    for (uint64_t id = 1; id <= 30; id++) {
        core_submit(core, session, id, 0, 0, &dim, 1);
        if (id == ROOM + 1) {
            settle();
        }
    }
    ASSERT_EQ(spill->spills, 15);
    core_submit(core, session, 200, 1, 110, NULL, 0); /* its spill is not sent */
    ASSERT_EQ(head_device_at(core, 1)->unfinished,
              2); /* and it needs nobody but the store */
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* --------------------------------------------------------- for one that finds no memory */

static void starved(uint64_t seq, uint64_t bytes)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Starved report    = PLASMON__V1__STARVED__INIT;
    Plasmon__V1__Starved *list[]   = {&report};
    struct pl_err err              = {0};

    report.seq      = seq;
    report.bytes    = bytes;
    frame.starved   = list;
    frame.n_starved = 1;
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

/* The worker's answer to its order; with these, where it was asked what lies side by side. */
static void answered(plasmon_status_t status, const uint64_t *buffers, size_t count)
{
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerData data    = PLASMON__V1__WORKER_DATA__INIT;
    Plasmon__V1__WorkerData *list[] = {&data};
    struct pl_err err               = {0};

    ASSERT_TRUE(device->relief.request != 0);
    data.request    = device->relief.request;
    data.status     = status;
    data.bytes.data = (uint8_t *)(uintptr_t)buffers;
    data.bytes.len  = count * sizeof(*buffers);
    frame.data      = list;
    frame.n_data    = 1;
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    head_core_flush(core);
    head_core_check(core);
}

static void relieved(plasmon_status_t status)
{
    answered(status, NULL, 0);
}

static const uint64_t oldest_value = 101;

/* Eight values; a call that uses the last one finds no memory for its scratch. */
static void starve(uint64_t bytes)
{
    static const uint64_t last = 108;

    begin(0, false);
    make(1, 8);
    settle();
    call(20, &last, 1, PLASMON__V1__MODE__MODE_IN);
    starved(device->seq_last, bytes);
}

/* The first is to go for it. */
static void starve_one(void)
{
    starve(VALUE);
    ASSERT_EQ(device->relief.request, 0); /* there is no host memory yet */
    ASSERT_EQ(device->starved_seq, device->seq_last);
    slab_made();
    ASSERT_TRUE(device->relief.buffer != NULL &&
                device->relief.buffer == buffer_of(oldest_value));
}

TEST(what_nobody_uses_goes_for_a_launch_that_finds_no_memory)
{
    starve_one();
    ASSERT_NOT_NULL(head_core_unquiet(core));
    relieved(PLASMON_OK);
    ASSERT_NULL(buffer_of(oldest_value));
    ASSERT_TRUE(device->relief.buffer == buffer_of(102)); /* if that was not enough */
    relieved(PLASMON_EAGAIN);                             /* it was */
    ASSERT_EQ(device->relief.request, 0);
    ASSERT_EQ(device->starved_seq, 0);
    ASSERT_NOT_NULL(buffer_of(102));
    ASSERT_EQ(spill->relieved, 1);
    ASSERT_EQ(spill->home.bytes_live, VALUE);
    done();
    call(30, &oldest_value, 1, PLASMON__V1__MODE__MODE_IN);
    ASSERT_EQ(spill->restores, 1);
    settle();
    ASSERT_NOT_NULL(buffer_of(oldest_value));
    end();
}

/* As its worker names them: whose device it is the head knows. */
static uint64_t place_of(uint64_t ref)
{
    uint64_t id = buffer_of(ref)->id;

    return wire_buffer(0, wire_buffer_slot(id), wire_buffer_generation(id));
}

/* It wants more than any of them. */
static void starve_of_more(void)
{
    starve(2 * VALUE);
    ASSERT_TRUE(device->relief.request != 0 && device->relief.buffer == NULL); /* asked */
}

static void slab_made_for(uint64_t ref)
{
    slab_made();
    ASSERT_TRUE(device->relief.buffer != NULL && device->relief.buffer == buffer_of(ref));
}

TEST(what_lies_side_by_side_goes_where_no_value_is_enough)
{
    uint64_t row[2];

    starve_of_more();
    row[0] = place_of(105);
    row[1] = place_of(104);
    answered(PLASMON_EDEVMEM, row, 2);
    slab_made_for(105);
    relieved(PLASMON_OK);
    ASSERT_TRUE(device->relief.buffer == buffer_of(104));
    relieved(PLASMON_OK);
    ASSERT_TRUE(device->relief.buffer == buffer_of(oldest_value)); /* it was not enough */
    relieved(PLASMON_EAGAIN);
    ASSERT_NOT_NULL(buffer_of(oldest_value));
    ASSERT_NULL(buffer_of(104));
    ASSERT_NULL(buffer_of(105));
    settle();
    end();
}

TEST(where_one_of_these_stays_none_goes_for_it)
{
    uint64_t row[2];

    starve_of_more();
    row[0] = place_of(105);
    row[1] = place_of(108);
    answered(PLASMON_EDEVMEM, row, 2);
    slab_made_for(oldest_value);
    relieved(PLASMON_EAGAIN);
    settle();
    end();
}

TEST(a_worker_that_knows_of_nothing_side_by_side_is_asked_once)
{
    starve_of_more();
    relieved(PLASMON_EDEVMEM);
    slab_made_for(oldest_value);
    relieved(PLASMON_OK);
    ASSERT_TRUE(device->relief.buffer == buffer_of(102));
    relieved(PLASMON_EAGAIN);
    settle();
    end();
}

/* .. and nothing is copied for it. */
TEST(what_lies_side_by_side_is_dropped_where_it_may_be)
{
    static const uint64_t last = 114;
    uint64_t row[2];

    begin(50, false);
    make(1, 14);
    settle();
    call(20, &last, 1, PLASMON__V1__MODE__MODE_IN);
    starved(device->seq_last, 2 * VALUE); /* for which 101 and 102 were dropped */
    ASSERT_TRUE(copied(103) && copied(106) && !copied(107));
    row[0] = place_of(105);
    row[1] = place_of(106);
    answered(PLASMON_EDEVMEM, row, 2);
    ASSERT_TRUE(buffer_of(105) == NULL && buffer_of(106) == NULL);
    ASSERT_TRUE(buffer_of(103) != NULL && buffer_of(104) != NULL);
    ASSERT_TRUE(device->relief.request != 0 && device->relief.buffer == NULL);
    relieved(PLASMON_EAGAIN); /* it was enough */
    ASSERT_EQ(spill->relieved, 0);
    settle();
    end();
}

/* It had sent nothing of the launch on. */
static void restart_worker(void)
{
    Plasmon__V1__WorkerHello hello = PLASMON__V1__WORKER_HELLO__INIT;
    struct pl_err err              = {0};
    uint32_t index;

    hello.host        = (char *)(uintptr_t) "a";
    hello.node        = (char *)(uintptr_t) "a";
    hello.incarnation = device->incarnation + 1;
    hello.kind        = device->kind;
    hello.bytes_total = device->bytes_total;
    hello.received    = device->seq_oldest - 1;
    hello.enqueued    = device->seq_oldest - 1;
    ASSERT_OK(head_core_worker_up(core, &hello, &index, &err));
    ASSERT_EQ(index, device->index);
    head_core_flush(core);
    head_core_check(core);
}

TEST(a_worker_that_followed_a_dead_one_is_asked_anew)
{
    uint64_t row;

    starve_of_more();
    restart_worker();
    ASSERT_EQ(device->relief.request, 0);
    starved(device->seq_last, 2 * VALUE);
    ASSERT_TRUE(device->relief.request != 0 && device->relief.buffer == NULL);
    row = place_of(105);
    answered(PLASMON_EDEVMEM, &row, 1);
    slab_made_for(105);
    relieved(PLASMON_EAGAIN);
    settle();
    end();
}

TEST(and_only_when_nothing_is_left_it_fails)
{
    starve_one();
    for (int i = 0; i < 7; i++) {
        ASSERT_TRUE(device->relief.buffer != NULL);
        relieved(PLASMON_OK);
    }
    head_core_flush(core); /* behind what came free last */
    ASSERT_EQ(device->relief.request, 0);
    ASSERT_EQ(device->starved_seq, 0); /* it was told to */
    ASSERT_NOT_NULL(buffer_of(108));   /* which it uses itself */
    ASSERT_EQ(spill->relieved, 7);
    settle();
    end();
}

TEST(for_one_that_wants_more_than_there_is_nothing_goes)
{
    begin(0, false);
    make(1, 8);
    starved(1, device->bytes_total + 1);
    ASSERT_EQ(device->starved_seq, 0);
    ASSERT_EQ(spill->slab, HEAD_SLAB_NONE);
    settle();
    end();
}

TEST(a_worker_that_cannot_copy_is_not_asked_for_more)
{
    starve_one();
    relieved(PLASMON_EDEVMEM);
    ASSERT_EQ(device->relief.request, 0);
    ASSERT_EQ(device->starved_seq, 0);
    ASSERT_EQ(spill->home.bytes_planned, 0);
    ASSERT_NOT_NULL(buffer_of(oldest_value));
    settle();
    end();
}

TEST(what_is_overwritten_meanwhile_is_not_in_the_copy)
{
    struct head_buffer *buffer;

    starve_one();
    buffer = buffer_of(oldest_value);
    call(30, &oldest_value, 1, PLASMON__V1__MODE__MODE_INOUT);
    ASSERT_TRUE(buffer_of(oldest_value) == buffer); /* in place */
    relieved(PLASMON_OK);
    ASSERT_EQ(spill->relieved_in_vain, 1);
    ASSERT_TRUE(!copied(oldest_value));
    relieved(PLASMON_EAGAIN);
    settle();
    ASSERT_EQ(spill->home.bytes_planned, 0);
    end();
}

TEST(what_is_used_meanwhile_stays_and_may_be_dropped)
{
    starve_one();
    call(30, &oldest_value, 1, PLASMON__V1__MODE__MODE_IN);
    relieved(PLASMON_OK);
    ASSERT_TRUE(copied(oldest_value));
    relieved(PLASMON_EAGAIN);
    settle();
    end();
}

/* 101 to 103 are to go for three that are made: when the first of these finds no memory, 102 goes at once. */
TEST(a_spill_that_was_sent_is_done_before_its_turn)
{
    Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__Range range       = PLASMON__V1__RANGE__INIT;
    Plasmon__V1__Range *ranges[]   = {&range};
    static const uint64_t second   = 102;
    const struct head_task *task;
    struct pl_err err = {0};
    uint64_t planned;

    begin(0, false);
    make(1, ROOM);
    settle();
    make(21, 3);
    slab_made();
    range.first  = device->seq_oldest; /* the first spill */
    range.count  = 1;
    frame.done   = ranges;
    frame.n_done = 1;
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    starved(device->seq_oldest, VALUE);
    task = head_device_task(device, device->relief.launch);
    ASSERT_TRUE(task != NULL && task->kind == GET);
    planned = device->bytes_planned;
    relieved(PLASMON_OK);
    ASSERT_EQ(task->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    ASSERT_EQ(device->bytes_planned, planned - VALUE);
    ASSERT_EQ(spill->relieved_spills, 1);
    relieved(PLASMON_EAGAIN);
    settle();
    call(40, &second, 1, PLASMON__V1__MODE__MODE_IN);
    settle();
    ASSERT_NOT_NULL(buffer_of(second));
    end();
}

/* --------------------------------------- for one that finds no memory, when all is full */

static uint64_t begin_full(void)
{
    uint64_t random = test_seed();

    begin_with(&(struct head_spill_config){
        .memory_bytes = 8 * VALUE, .life = 1, .on_demand = true});
    return fill(&random, false);
}

static uint64_t first_away(void)
{
    uint64_t id = 101;

    while (buffer_of(id) != NULL) {
        id++;
    }
    return id;
}

/*
 * Of what came back the copy is there, too. If that goes for a launch that finds no memory, others
 * take its room on the device: ..
 */
TEST(what_goes_for_it_leaves_room_for_what_comes_back)
{
    uint64_t count = begin_full(), task = 1000;

    for (int round = 0; round < 3; round++) {
        uint64_t last = 100 + count;

        read_one(task++, first_away());
        read_one(task++, first_away());
        call(task++, &last, 1, PLASMON__V1__MODE__MODE_IN);
        starved(device->seq_last, VALUE);
        settle();
        make(count + 1, 1);
        settle();
        if (device->bytes_live > ROOM * VALUE) { /* it is told that it finds none */
            let_go_of(100 + count + 1, 1);
            settle();
        } else {
            count++;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        read_one(task++, 101 + i);
    }
    assert_all_there(101, count);
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* .. only those that come back may. */
TEST(and_what_comes_back_may_take_it)
{
    static const uint64_t back = 103;
    uint64_t count             = begin_full();

    read_one(1000, 101);
    read_one(1001, 102);
    ASSERT_EQ(spill->home.bytes_live, 8 * VALUE);
    call(1002, &back, 1, PLASMON__V1__MODE__MODE_IN);
    ASSERT_TRUE(!copied(101) && copied(102)); /* the copy of 101 made way for another */
    done();
    ASSERT_EQ(head_device_task(device, device->seq_oldest)->kind, PUT);
    starved(device->seq_oldest, VALUE);
    ASSERT_NULL(buffer_of(102));
    settle();
    assert_all_there(101, count);
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/*
 * Nor does what makes way for one that comes back leave its room to a new value in front of it:
 * that is the one too many, and fails.
 */
TEST(what_makes_way_for_what_comes_back_is_not_for_a_new_value)
{
    uint64_t count = begin_full(), task = 1000;

    for (int round = 0; round < 4; round++) {
        uint64_t away = first_away();

        make(count + 1, 1);
        call(task++, &away, 1, PLASMON__V1__MODE__MODE_IN);
        ASSERT_TRUE(head_device_task(device, device->seq_oldest)->kind != GET);
        starved(device->seq_oldest, VALUE);
        ASSERT_EQ(device->relief.launch, 0);
        ASSERT_EQ(device->relief.request, 0); /* it is told that it finds none */
        core_fail(core, 0, device->seq_oldest, PLASMON_EDEVMEM, "no");
        settle();
        let_go_of(100 + count + 1, 1);
        settle();
    }
    for (uint64_t i = 0; i < count; i++) {
        read_one(task++, 101 + i);
    }
    assert_all_there(101, count);
    end();
}

/* Between a ref and memory of its client; view NULL: all of it. */
static void copy_by_host(uint64_t id, Plasmon__V1__TaskKind kind, uint64_t ref,
                         int64_t view[3])
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Shape shape       = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    bool put     = kind == PLASMON__V1__TASK_KIND__TASK_PUT_HOST;
    uint64_t dim = elements;

    shape.dtype      = PL_F32;
    shape.n_dim      = 1;
    shape.dim        = &dim;
    arg.mode         = put ? PLASMON__V1__MODE__MODE_OUT : PLASMON__V1__MODE__MODE_IN;
    arg.ref          = ref;
    arg.shape        = put ? &shape : NULL;
    arg.view         = view;
    arg.n_view       = view != NULL ? 3 : 0;
    task.id          = id;
    task.kind        = kind;
    task.host_buffer = 7;
    task.args        = args;
    task.n_args      = 1;
    frame.tasks      = tasks;
    frame.n_tasks    = 1;
    take(&frame);
}

/* .. also when its bytes come from memory of a client's host, which is the same kind of launch. */
TEST(nor_for_one_that_is_put_from_host_memory)
{
    uint64_t count = begin_full(), away = first_away();

    copy_by_host(count + 1, PLASMON__V1__TASK_KIND__TASK_PUT_HOST, 100 + count + 1, NULL);
    call(1000, &away, 1, PLASMON__V1__MODE__MODE_IN);
    ASSERT_EQ(head_device_task(device, device->seq_oldest)->kind, PUT);
    starved(device->seq_oldest, VALUE);
    ASSERT_EQ(device->relief.request, 0); /* it is told that it finds none */
    core_fail(core, 0, device->seq_oldest, PLASMON_EDEVMEM, "no");
    settle();
    let_go_of(100 + count + 1, 1);
    settle();
    assert_all_there(101, count);
    end();
}

/* Its launch, if that is not over. */
static const struct head_task *maker_of(uint64_t id)
{
    const struct head_tile *tile =
        pl_list_first(&array_of(id)->fragments, struct head_fragment, array_link)->tile;
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->unfinished) {
        const struct head_task *task = pl_container_of(pos, struct head_task, order_link);

        for (size_t i = 0; i < task->outputs.count; i++) {
            if (*(struct head_tile **)pl_vec_at(&task->outputs, i) == tile) {
                return task;
            }
        }
    }
    return NULL;
}

static bool is_sent(uint64_t id)
{
    const struct head_task *task = maker_of(id);

    return task == NULL || task->seq <= device->seq_sent;
}

static void refused(uint64_t id)
{
    const struct head_failure *failure =
        head_array_failure(array_of(id), &array_of(id)->extent);

    ASSERT_NOT_NULL(failure);
    ASSERT_EQ(failure->status, PLASMON_EDEVMEM);
    ASSERT_CONTAINS(failure->text, "makes 64.0 KiB on device 0, and there is no room");
    ASSERT_CONTAINS(failure->text, "release some refs");
}

static Plasmon__V1__TaskHold hold_of(const struct head_task *task)
{
    Plasmon__V1__TaskHold hold = PLASMON__V1__TASK_HOLD__HOLD_NONE;
    struct wire_arena arena;
    Plasmon__V1__Waits waits;

    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    plasmon__v1__waits__init(&waits);
    ASSERT_OK(head_core_waits(core, &arena, &waits));
    for (size_t i = 0; i < waits.n_tasks; i++) {
        if (waits.tasks[i]->seq == task->seq) {
            hold = waits.tasks[i]->hold;
            ASSERT_EQ(waits.tasks[i]->after[0], wire_point(0, device->seq_oldest));
        }
    }
    wire_arena_finish(&arena);
    return hold;
}

/*
 * What was read goes again for the next one that is read, as soon as that is over, and a new value
 * between the two would find its room: one by one they would take all that there is to come back
 * to.
 */
TEST(a_value_that_there_is_no_room_for_does_not_take_that_of_what_comes_back)
{
    uint64_t count = begin_full(), task = 1000;

    make(count + 1,
         1); /* there is memory that the plan keeps free, and all can come back */
    ASSERT_TRUE(is_sent(100 + count + 1));
    settle();
    count++;
    ASSERT_EQ(core->tasks_failed, 0);
    for (int round = 0; round < 4; round++) {
        uint64_t one = first_away(), other = one + 1, made = 100 + count + 1;

        while (buffer_of(other) != NULL) {
            other++;
        }
        call(task++, &one, 1, PLASMON__V1__MODE__MODE_IN);
        make(count + 1, 1);
        call(task++, &other, 1, PLASMON__V1__MODE__MODE_IN);
        ASSERT_TRUE(!is_sent(made));
        ASSERT_EQ(hold_of(maker_of(made)), PLASMON__V1__TASK_HOLD__HOLD_TURN);
        done();
        slab_made();
        settle();
        refused(made);
        let_go_of(made, 1);
        settle();
        ASSERT_TRUE(device->bytes_live <= device->bytes_total);
    }
    ASSERT_EQ(core->tasks_failed, 4);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t ref = 101 + i;

        call(task++, &ref, 1, PLASMON__V1__MODE__MODE_IN);
        ASSERT_TRUE(device->bytes_live <= device->bytes_total); /* its worker has room */
        settle();
    }
    assert_all_there(101, count);
    end();
}

/* Of host memory that holds two, the second place is for what comes back from the first. */
TEST(nor_where_there_is_little_host_memory)
{
    uint64_t random = test_seed(), count, away;

    begin_with(&(struct head_spill_config){
        .memory_bytes = 2 * VALUE, .life = 1, .on_demand = true});
    count = fill(&random, false);
    ASSERT_EQ(spill->home.bytes_live, VALUE);
    make(count + 1, 1);
    refused(100 + count + 1);
    settle();
    away = first_away();
    call(1000, &away, 1, PLASMON__V1__MODE__MODE_IN);
    settle();
    assert_all_there(101, count);
    end();
}

/* They wait for each other, and for what is before them .. */
TEST(values_that_there_is_no_room_for_are_made_one_at_a_time)
{
    uint64_t count = begin_full();

    make(count + 1, 3);
    for (uint64_t i = 1; i <= 3; i++) {
        ASSERT_TRUE(is_sent(100 + count + i));
        ASSERT_TRUE(i == 3 || !is_sent(100 + count + i + 1));
        done();
    }
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* .. but not when the plan has room for them after all. */
TEST(and_not_when_room_was_made_meanwhile)
{
    uint64_t count = begin_full(), away = first_away(), first = 100 + count + 1;

    call(1000, &away, 1, PLASMON__V1__MODE__MODE_IN);
    done();
    make(count + 1, 2);
    ASSERT_TRUE(!is_sent(first) && !is_sent(first + 1));
    let_go_of(100 + count - 3, 4); /* the last ones, which are on the device */
    ASSERT_TRUE(is_sent(first) && is_sent(first + 1));
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* What the head makes to read what is there is no new value. */
TEST(a_read_that_needs_memory_is_not_held)
{
    int64_t every_other[] = {0, VALUE / 8, 2};
    uint64_t count = begin_full(), away = first_away();

    make(count + 1, 1);
    settle();
    call(1000, &away, 1, PLASMON__V1__MODE__MODE_IN);
    done();
    copy_by_host(1001, PLASMON__V1__TASK_KIND__TASK_GET_HOST, 100 + count, every_other);
    ASSERT_EQ(device->seq_sent, device->seq_last);
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* What is free in host memory lies in pieces, too: it is moved together for what is to go there. */
TEST(what_goes_for_one_that_comes_back_finds_host_memory_in_one_piece)
{
    enum { SMALL = VALUE / 2, BIG = 2 * VALUE, AWAY = 11 };
    static const uint64_t big = 101, back = 103;
    uint32_t moves = 0;

    begin_with(&(struct head_spill_config){
        .memory_bytes = (AWAY + 2) * SMALL, .life = 1, .on_demand = true});
    elements = BIG / 4;
    make(1, 1);
    elements = SMALL / 4;
    make(2, (ROOM * VALUE - BIG) / SMALL);
    settle();
    call(1000, &big, 1, PLASMON__V1__MODE__MODE_IN); /* it is not the next to go */
    make(100, AWAY);
    settle();
    elements = VALUE / 4;
    ASSERT_EQ(spill->home.bytes_live, AWAY * SMALL);
    for (uint64_t ref = 102; ref < 102 + AWAY; ref++) {
        ASSERT_NULL(buffer_of(ref));
        if (ref % 2 == 0 && ref < 102 + AWAY - 1) {
            let_go_of(ref, 1);
        }
    }
    settle();
    call(1001, &back, 1, PLASMON__V1__MODE__MODE_IN);
    while (head_device_task(device, device->seq_oldest)->kind == GET) {
        done();
    }
    ASSERT_EQ(head_device_task(device, device->seq_oldest)->kind, PUT);
    starved(device->seq_oldest, BIG);
    while (device->relief.buffer == NULL) {
        ASSERT_TRUE(device->starved_seq != 0 && !pl_list_empty(&spill->requests));
        moves +=
            pl_list_first(&spill->requests, struct head_spill_request, link)->op.kind ==
            HEAD_SPILL_MOVE;
        answer(false);
    }
    ASSERT_TRUE(moves > 0 && device->relief.buffer == buffer_of(big));
    relieved(PLASMON_OK);
    settle();
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

/* Which needs no copy anywhere. */
TEST(what_has_failed_goes_for_it_also_where_nothing_is_spilled)
{
    static const uint64_t kept = 101;

    core = core_make();
    core_announce(core, "a", 1);
    ASSERT_EQ(core_join(core, "a", 0), 0);
    device  = head_device_at(core, 0);
    session = core_client(core);
    make(1, 1);
    done();
    make(2, 1);
    core_fail(core, 0, device->seq_last, PLASMON_EFUNCTION, "no");
    ASSERT_EQ(device->bytes_planned, 2 * VALUE);
    call(20, &kept, 1, PLASMON__V1__MODE__MODE_IN);
    starved(device->seq_last, VALUE);
    ASSERT_EQ(device->bytes_planned, VALUE);
    done();
    ASSERT_NOT_NULL(buffer_of(kept));
    end();
}

/* ------------------------------------------------------------------ what is yet to come */

/* Device 0 and the store do what there is to do; device 1 does nothing. */
static void settle_here(void)
{
    while (device->seq_sent >= device->seq_oldest || !pl_list_empty(&spill->requests)) {
        done_by(device);
        if (!pl_list_empty(&spill->requests)) {
            answer(false);
        }
    }
}

/*
 * Host memory is full; a value that is in there was sent to the other device, whose worker has not
 * said anything. Returns the launch that is to receive it.
 */
static uint64_t send_and_spill(void)
{
    uint64_t dim = VALUE / 4, received;
    struct head_device *other;

    begin_with(&(struct head_spill_config){.memory_bytes = 8 * VALUE, .life = 1});
    core->config.transfer = HEAD_TRANSFER_HOST;
    core_announce(core, "a", 2);
    ASSERT_EQ(core_join(core, "a", 1), 1);
    other = head_device_at(core, 1);
    core_submit(core, session, 1, 0, 0, &dim, 1);
    settle_here();
    core_submit(core, session, 200, 1, 101, NULL, 0);
    received = other->seq_oldest;
    ASSERT_EQ(head_device_task(other, received)->kind,
              PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    settle_here();
    for (uint64_t id = 2; device->bytes_live <= ROOM * VALUE; id++) {
        core_submit(core, session, id, 0, 0, &dim, 1);
        settle_here();
    }
    ASSERT_NULL(buffer_of(101));
    return received;
}

/* Until it has come there, the copy in host memory is the only one: what was sent may find no room. */
TEST(a_value_that_is_on_its_way_to_a_device_is_not_there)
{
    uint64_t received = send_and_spill();

    core_fail(core, 1, received, PLASMON_EDEVMEM, "no room");
    head_core_check(core);
    assert_all_there(101, 1);
    settle();
    end();
}

/*
 * The same on its way back: others, which come back after it, do not have the place of its copy
 * before it is there.
 */
TEST(a_value_that_finds_no_room_to_come_back_stays_where_it_is)
{
    uint64_t count = begin_full(), back = first_away(), seq;

    call(1000, &back, 1, PLASMON__V1__MODE__MODE_IN);
    seq = device->seq_last - 1;
    ASSERT_EQ(head_device_task(device, seq)->kind, PUT);
    for (uint64_t id = 1001; id < 1004; id++) {
        uint64_t next = first_away();

        call(id, &next, 1, PLASMON__V1__MODE__MODE_IN);
    }
    while (seq > device->seq_sent) {
        done();
    }
    core_fail(core, 0, seq, PLASMON_EDEVMEM, "no room");
    head_core_check(core);
    assert_all_there(back, 1);
    settle();
    assert_all_there(101, count);
    end();
}

TEST(when_it_has_come_its_copy_makes_way)
{
    uint64_t dim = VALUE / 4, live;

    (void)send_and_spill();
    live = device->bytes_live;
    done_by(head_device_at(core, 1));
    core_submit(core, session, 100, 0, 0, &dim, 1);
    settle();
    ASSERT_EQ(device->bytes_live, live); /* something else took its place */
    assert_all_there(101, 1);
    ASSERT_EQ(core->tasks_failed, 0);
    end();
}

TEST_MAIN()
