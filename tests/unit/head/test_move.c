/*
 * One large object wanted by many devices, of one host and of several: from whom each gets its
 * bytes, and what each part waits for. Many small parts wanted by one: by how many launches they
 * come.
 */
#include <string.h>

#include "base/alloc.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, ROWS = 64 };

static struct head_core *core;
static uint64_t session;

/* A core whose large objects are those from 4 KiB on. */
static void begin(uint32_t devices)
{
    core                     = core_make();
    core->config.chain_bytes = 4096;
    core_announce(core, "a", devices);
    for (uint32_t i = 0; i < devices; i++) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

/* Task `id` on a device: ref 0 makes a ROWS x columns array of f32 as ref id + 100, another is read. */
static void submit(uint64_t id, uint32_t device, uint64_t columns, uint64_t ref)
{
    core_submit(core, session, id, device, ref, (uint64_t[]){ROWS, columns}, 2);
}

static const struct head_task *task_of(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(core, device), seq);
}

/* The one buffer that a copy reads. */
static const struct head_use *source_of(const struct head_task *task)
{
    const struct head_use *source = NULL;

    for (uint32_t i = 0; i < task->use_count; i++) {
        if (!task->uses[i].write) {
            ASSERT_NULL(source);
            source = &task->uses[i];
        }
    }
    ASSERT_TRUE(source != NULL);
    return source;
}

/*
 * `parts` launches of a device, from seq on, each of which copies its part from that device;
 * producers: the launches before it that make the part.
 */
static void expect_parts(uint32_t device, uint64_t seq, uint64_t parts, uint32_t from,
                         uint32_t producers)
{
    for (uint64_t i = 0; i < parts; i++) {
        const struct head_task *part  = task_of(device, seq + i);
        const struct head_use *source = source_of(part);

        ASSERT_EQ(part->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
        ASSERT_EQ(source->buffer->device->index, from);
        ASSERT_EQ(source->box.start[0], (int64_t)(i * ROWS / parts));
        ASSERT_EQ(source->box.count[0], (int64_t)(ROWS / parts));
        ASSERT_EQ(source->box.count[1], 64);
        ASSERT_EQ(part->producers_open, producers);
    }
}

/*
 * An object of 16 KiB, which four devices pass on in 32 parts of 512 bytes, is made on device 0 and
 * read by all others in turn.
 */
static void all_read(uint64_t id)
{
    submit(id, 0, 64, 0);
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(id + device, device, 0, id + 100);
    }
}

TEST(a_large_object_goes_along_a_chain_part_by_part)
{
    begin(DEVICES);
    all_read(1);
    all_read(11); /* others have followed the first reader of the first one */
    for (uint32_t device = 1; device < DEVICES; device++) {
        uint64_t first = head_device_at(core, device)->seq_last - 32;

        expect_parts(device, first, 32, device - 1, 1);
        for (uint64_t i = 0; device < DEVICES - 1 && i < 32; i++) {
            ASSERT_EQ(task_of(device, first + i)->dependents.count,
                      2); /* the next device's part, and the reader here */
        }
    }
    end();
}

/* Who asks first is followed by others, or not: 32 parts cost it a twentieth. */
TEST(what_one_device_alone_wants_is_cut_into_few_parts)
{
    begin(DEVICES);
    submit(1, 0, 64, 0);
    submit(2, 1, 0, 101);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, 9); /* 8 parts and the reader */
    expect_parts(1, 1, 8, 0, 1);

    submit(3, 2, 0, 101); /* each of its parts has one of those before it */
    ASSERT_EQ(head_device_at(core, 2)->seq_last, 33);
    expect_parts(2, 1, 32, 1, 1);
    for (uint64_t id = 11; id < 51; id += 2) { /* for a while others may follow again */
        uint64_t before = head_device_at(core, 1)->seq_last;

        submit(id, 0, 64, 0);
        submit(id + 1, 1, 0, id + 100);
        ASSERT_EQ(head_device_at(core, 1)->seq_last - before, id < 27 ? 33 : 9);
    }
    end();
}

TEST(a_longer_chain_has_more_parts)
{
    static const struct {
        uint32_t devices;
        uint64_t columns, parts; /* sqrt(bytes / 16 * (devices - 2) / 2), in whole rows */
    } cases[] = {{3, 64, 22}, {4, 64, 32}, {4, 16, 16}, {8, 16, 22}, {8, 256, 64}};

    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(cases[i].devices);
        submit(1, 0, cases[i].columns, 0);
        submit(2, 1, 0, 101);
        submit(3, 2, 0, 101);
        ASSERT_EQ(head_device_at(core, 2)->seq_last, cases[i].parts + 1);
        end();
    }
}

/* And they go before anything else is worked out: the first one is soon over. */
TEST(the_first_part_goes_out_while_the_others_are_worked_out)
{
    uint32_t commands;

    begin(DEVICES);
    core->cut_finely = 1; /* as if others had followed */
    submit(1, 0, 64, 0);
    commands = core_commands;
    submit(2, 1, 0, 101);
    ASSERT_EQ(core_commands - commands, 3); /* and who reads it */
    submit(3, 1, 0, 101); /* it is on its way, and there is nothing to do before */
    ASSERT_EQ(core_commands - commands, 4);
    end();
}

TEST(two_devices_copy_in_one_piece)
{
    begin(2);
    submit(1, 0, 64, 0);
    submit(2, 1, 0, 101);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, 2);
    end();
}

TEST(a_small_object_comes_from_where_it_is)
{
    begin(DEVICES);
    submit(1, 0, 3, 0); /* 768 bytes */
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
        ASSERT_EQ(head_device_at(core, device)->seq_last, 2);
    }
    end();
}

/* From a quarter of chain_bytes on; below half of it one device alone takes it in one piece. */
TEST(an_object_of_a_quarter_of_the_large_ones_is_cut_when_others_follow)
{
    begin(DEVICES);
    for (uint64_t id = 1; id <= 11; id += 10) {
        submit(id, 0, 4, 0); /* 1 KiB: 8 parts */
        for (uint32_t device = 1; device < DEVICES; device++) {
            uint64_t before = head_device_at(core, device)->seq_last;

            submit(id + device, device, 0, id + 100);
            ASSERT_EQ(head_device_at(core, device)->seq_last - before,
                      id == 1 && device == 1 ? 2 : 9);
            ASSERT_EQ(source_of(task_of(device, before + 1))->buffer->device->index,
                      device - 1);
        }
    }
    end();
}

/*
 * Not from a device that has it copied itself, whose turn comes later, though the one that makes it
 * has more to do.
 */
TEST(a_small_object_that_is_being_made_comes_from_its_maker)
{
    begin(DEVICES);
    /* from 4 KiB on it would matter who else is sent to */
    core->config.chain_bytes = 1 << 20;
    for (uint64_t id = 11; id < 20; id++) {
        submit(id, 0, 1, 0);
    }
    submit(1, 0, 15, 0); /* 3,840 bytes */
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
        ASSERT_EQ(source_of(task_of(device, 1))->buffer->device->index, 0);
    }
    end();
}

/* ------------------------------------------------------------------------ several hosts */

/* Hosts with so many devices each, which reach each other. */
static void begin_hosts(uint32_t hosts, uint32_t devices, uint64_t chain_bytes)
{
    core                     = core_make();
    core->config.chain_bytes = chain_bytes;
    for (uint32_t host = 0; host < hosts; host++) {
        const char name[2] = {(char)('a' + host), '\0'};

        core_announce(core, name, devices);
        for (uint32_t i = 0; i < devices; i++) {
            uint32_t device = core_join(core, name, i);

            ASSERT_EQ(device, host * devices + i);
            pl_free(head_device_at(core, device)->bulk_address);
            head_device_at(core, device)->bulk_address = head_strdup("10.0.0.1:7100");
        }
    }
    session = core_client(core);
}

static unsigned sends_of(uint32_t device)
{
    unsigned count = 0;

    for (uint64_t seq = 1; seq <= head_device_at(core, device)->seq_last; seq++) {
        count += task_of(device, seq)->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND;
    }
    return count;
}

/*
 * Its launch that receives part `part` of 32 of the 64 rows: of that part alone, from that device,
 * behind what comes there.
 */
static void expect_part(uint32_t device, uint64_t part, uint32_t from)
{
    const struct head_task *receive = task_of(device, 1 + part);
    const struct head_task *send;

    ASSERT_EQ(receive->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
    ASSERT_EQ(receive->peer, from);
    ASSERT_EQ(receive->uses[0].box.start[0], (int64_t)part * ROWS / 32);
    ASSERT_EQ(receive->uses[0].box.count[0], ROWS / 32);
    send = task_of(from, receive->twin_seq);
    ASSERT_EQ(send->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND);
    ASSERT_EQ(send->order, receive->order);
    ASSERT_TRUE(pl_box_equal(&send->uses[0].box, &receive->uses[0].box));
    ASSERT_EQ(send->producers_open,
              1); /* the launch that makes it, or receives this part */
}

TEST(between_hosts_a_large_object_goes_along_a_chain_part_by_part)
{
    begin_hosts(DEVICES, 1, 4 * 4096);
    submit(1, 0, 64, 0); /* 16 KiB: four times what is large between hosts */
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
    }
    for (uint32_t device = 1; device < DEVICES; device++) {
        for (uint64_t part = 0; part < 32; part++) {
            expect_part(device, part, device - 1);
        }
    }
    for (uint32_t device = 0; device < DEVICES; device++) {
        ASSERT_EQ(sends_of(device), device < DEVICES - 1 ? 32 : 0);
    }
    end();
}

TEST(two_hosts_of_one_device_send_in_one_piece)
{
    begin_hosts(2, 1, 4 * 4096);
    submit(1, 0, 64, 0);
    submit(2, 1, 0, 101);
    ASSERT_EQ(sends_of(0), 1);
    end();
}

/* It copies each part when that has come. */
TEST(the_second_device_of_a_host_is_a_link_of_the_chain)
{
    begin_hosts(2, 2, 4 * 4096);
    submit(1, 0, 64, 0);
    submit(2, 2, 0, 101);
    submit(3, 3, 0, 101);
    ASSERT_EQ(sends_of(0), 32);
    ASSERT_EQ(sends_of(1), 0);
    for (uint64_t part = 0; part < 32; part++) {
        const struct head_task *copy = task_of(3, 1 + part);

        expect_part(2, part, 0);
        ASSERT_EQ(copy->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
        ASSERT_EQ(source_of(copy)->buffer->device->index, 2);
        ASSERT_EQ(copy->producers_open, 1);
    }
    end();
}

/* Also where the device that has it there has more to do, and is still receiving it. */
TEST(a_copy_on_the_same_host_is_the_source_of_any_size)
{
    static const uint64_t rows[] = {1, 64, 640};

    for (unsigned i = 0; i < 3; i++) {
        begin_hosts(2, 2, 1 << 20);
        submit(1, 0, rows[i], 0);
        submit(2, 2, 0, 101);
        for (uint64_t id = 3; id < 9; id++) {
            submit(id, 2, 2, 0);
        }
        submit(9, 3, 0, 101);
        ASSERT_EQ(sends_of(0), 1);
        ASSERT_EQ(task_of(3, 1)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
        ASSERT_EQ(source_of(task_of(3, 1))->buffer->device->index, 2);
        end();
    }
}

TEST(between_hosts_an_object_of_middling_size_goes_as_a_tree)
{
    enum { HOSTS = 8 };

    begin_hosts(HOSTS, 1, 1 << 20);
    submit(1, 0, 64, 0); /* below 256 KiB, and not below 4 */
    for (uint32_t device = 1; device < HOSTS; device++) {
        submit(1 + device, device, 0, 101);
    }
    for (uint32_t device = 0; device < HOSTS; device++) {
        ASSERT_TRUE(sends_of(device) <= 3);
    }
    ASSERT_EQ(sends_of(0), 3);
    end();
}

/* What a sender says of its connection, until it counts. */
static void measure(uint32_t from, uint32_t to, uint64_t bytes_per_s)
{
    for (uint32_t i = 0; i < HEAD_RATE_SAMPLES; i++) {
        Plasmon__V1__PairStats pair = PLASMON__V1__PAIR_STATS__INIT;

        pair.route = HEAD_ROUTE_HOST;
        pair.from  = from;
        pair.to    = to;
        pair.sent  = true;
        pair.rate  = bytes_per_s + i;
        head_rates_take(core, &pair);
    }
}

/* One large object of the first host that all others want: whom each has it from. */
static void expect_sources(const uint32_t *from)
{
    submit(1, 0, 64, 0);
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
        for (uint64_t part = 0; part < 32; part++) {
            expect_part(device, part, from[device]);
        }
    }
    end();
}

TEST(hosts_that_send_as_fast_as_each_other_are_a_chain)
{
    begin_hosts(DEVICES, 1, 4 * 4096);
    measure(0, 1, 1000000000);
    measure(1, 2, 1300000000); /* what measuring makes of the same network */
    measure(2, 3, 700000000);
    expect_sources((const uint32_t[]){0, 0, 1, 2});
}

/* Its way to 2 is slow; of the way from 0 to 2 nobody knows anything, but 0 sends fast. */
TEST(a_host_that_sends_slowly_is_no_link_of_the_chain)
{
    begin_hosts(DEVICES, 1, 4 * 4096);
    measure(0, 1, 1000000000);
    measure(1, 2, 50000000);
    measure(2, 3, 1000000000);
    expect_sources((const uint32_t[]){0, 0, 0, 2});
}

/* What it passes on comes no faster than it came. */
TEST(nor_is_one_that_receives_slowly)
{
    begin_hosts(DEVICES, 1, 4 * 4096);
    measure(0, 1, 50000000);
    measure(0, 2, 1000000000);
    measure(1, 2, 1000000000);
    measure(2, 3, 1000000000);
    expect_sources((const uint32_t[]){0, 0, 0, 2});
}

TEST(as_long_as_too_little_is_measured_hosts_are_a_chain)
{
    begin_hosts(DEVICES, 1, 4 * 4096);
    measure(1, 2, 50000000); /* and nothing of the others */
    expect_sources((const uint32_t[]){0, 0, 1, 2});
}

/* --------------------------------------------------------------------- many small parts */

enum { PARTS = 16, ARRAY = 101 };

/*
 * Part `part` of the array, of so many elements a part, to be written or read on a device; part
 * PARTS: all of it.
 */
static void submit_part(uint64_t id, uint32_t device, uint32_t mode, int64_t part,
                        int64_t elements)
{
    int64_t view[3]                = {elements * part, elements, 1};
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *list[] = {&arg};
    struct pl_err err = {0};

    arg.mode      = mode;
    arg.ref       = ARRAY;
    arg.n_view    = part < PARTS ? 3 : 0;
    arg.view      = view;
    task.id       = id;
    task.function = pl_hash_name("touch");
    task.place    = device + 1;
    task.n_args   = 1;
    task.args     = list;
    frame.n_tasks = 1;
    frame.tasks   = tasks;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
}

/* An array of 16 parts, half of them made on each of two devices, and not yet there. */
static void make_parts(uint64_t elements)
{
    begin(2);
    core->config.chain_bytes = 1 << 20;
    for (uint32_t i = 0; i < 2; i++) {
        head_device_at(core, i)->bytes_total = 1 << 28;
    }
    core_submit(core, session, 1, 0, 0, (uint64_t[]){PARTS * elements}, 1);
    for (int64_t part = 0; part < PARTS; part++) {
        submit_part(2 + (uint64_t)part, part >= PARTS / 2, PLASMON__V1__MODE__MODE_OUT,
                    part, (int64_t)elements);
    }
}

static const struct head_task *last_task(uint32_t device, uint64_t back)
{
    return task_of(device, head_device_at(core, device)->seq_last - back);
}

/* Whatever was sent to the devices has completed. */
static void finish_all(void)
{
    head_core_flush(core);
    for (uint32_t i = 0; i < 2; i++) {
        struct head_device *device     = head_device_at(core, i);
        Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
        Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
        struct pl_err err = {0};

        range.first  = device->seq_oldest;
        range.count  = device->seq_sent - device->seq_oldest + 1;
        frame.n_done = 1;
        frame.done   = list;
        ASSERT_OK(head_core_worker_frame(core, i, &frame, &err));
    }
}

TEST(small_parts_that_are_there_come_by_one_kernel)
{
    const struct head_task *copy;
    uint64_t before;

    make_parts(64);
    finish_all();
    before = head_device_at(core, 1)->seq_last;
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + 2); /* and the reader */
    copy = last_task(1, 1);
    ASSERT_EQ(copy->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    ASSERT_EQ(copy->function, pl_hash_name("concatenate"));
    ASSERT_EQ(copy->use_count, PARTS + 1);
    for (uint32_t i = 2; i < copy->use_count; i++) { /* in their order, behind the result */
        ASSERT_EQ(copy->uses[i].box.start[0], copy->uses[i - 1].box.start[0] + 64);
    }
    end();
}

/* 512 KiB: by one launch, but a copy each. */
TEST(larger_parts_that_are_there_are_copied)
{
    make_parts(1 << 17);
    finish_all();
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    ASSERT_EQ(last_task(1, 1)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    ASSERT_EQ(last_task(1, 1)->function, 0);
    end();
}

/* 512 KiB: a launch fails as a whole, and who reads one part must not fail with another. */
TEST(larger_parts_that_are_being_made_come_one_by_one)
{
    uint64_t before;

    make_parts(1 << 17);
    before = head_device_at(core, 1)->seq_last;
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + PARTS + 1);
    end();
}

/* Half of them are there. */
TEST(small_parts_that_are_being_made_come_by_one_kernel_that_waits_for_all)
{
    const struct head_task *copy;
    uint64_t before;

    make_parts(64);
    finish_all();
    for (int64_t part = 4; part < 12; part++) {
        submit_part(30 + (uint64_t)part, part >= PARTS / 2, PLASMON__V1__MODE__MODE_OUT,
                    part, 64);
    }
    before = head_device_at(core, 1)->seq_last;
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + 2); /* and the reader */
    copy = last_task(1, 1);
    ASSERT_EQ(copy->function, pl_hash_name("concatenate"));
    ASSERT_EQ(copy->use_count, PARTS + 1);
    ASSERT_EQ(copy->producers_open, 8);
    submit_part(51, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0); /* finds it */
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + 3);
    end();
}

/* A task fails on its device: what that one told last has all before it done. */
static void fail_task(uint32_t device, uint64_t id)
{
    Plasmon__V1__WorkerFrame frame     = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__LaunchFailure failed  = PLASMON__V1__LAUNCH_FAILURE__INIT,
                               *list[] = {&failed};
    struct pl_err err                  = {0};

    head_core_flush(core);
    for (uint64_t seq = head_device_at(core, device)->seq_oldest;
         seq <= head_device_at(core, device)->seq_last; seq++) {
        if (task_of(device, seq) != NULL && task_of(device, seq)->id == id) {
            failed.seq = seq;
        }
    }
    ASSERT_TRUE(failed.seq != 0);
    failed.status  = PLASMON_EFUNCTION;
    failed.text    = (char *)"the test says so";
    frame.n_failed = 1;
    frame.failed   = list;
    ASSERT_OK(head_core_worker_frame(core, device, &frame, &err));
}

TEST(who_reads_one_of_the_parts_that_one_kernel_brings_does_not_fail_with_another)
{
    const struct head_task *whole, *part;
    uint64_t before;

    make_parts(64);
    before = head_device_at(core, 1)->seq_last;
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    submit_part(51, 1, PLASMON__V1__MODE__MODE_IN, 3, 64);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + 4);
    whole = last_task(1, 2);
    part  = last_task(1, 0);
    ASSERT_EQ(last_task(1, 1)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY); /* of part 3 */
    ASSERT_EQ(last_task(1, 1)->use_count, 2);
    ASSERT_TRUE(source_of(last_task(1, 1))->buffer->device == head_device_at(core, 0));
    fail_task(0, 2 + 5); /* part 5 */
    ASSERT_TRUE(whole->failure != NULL);
    ASSERT_TRUE(part->failure == NULL);
    submit_part(52, 1, PLASMON__V1__MODE__MODE_IN, 4,
                64); /* what failed has left nothing */
    ASSERT_EQ(last_task(1, 1)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    ASSERT_TRUE(last_task(1, 0)->failure == NULL);
    end();
}

/* When all parts are made, nothing can fail any more: what the kernel brings serves everybody. */
TEST(what_one_kernel_brings_serves_who_reads_a_part_when_the_parts_are_made)
{
    struct head_device *device;
    uint64_t before;

    make_parts(64);
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    head_core_flush(core);
    for (uint32_t i = 0; i < 2; i++) { /* the parts alone */
        Plasmon__V1__WorkerFrame frame = PLASMON__V1__WORKER_FRAME__INIT;
        Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *list[] = {&range};
        struct pl_err err = {0};

        device       = head_device_at(core, i);
        range.first  = device->seq_oldest;
        range.count  = device->seq_last - device->seq_oldest + 1 - (i == 1 ? 2 : 0);
        frame.n_done = 1;
        frame.done   = list;
        ASSERT_OK(head_core_worker_frame(core, i, &frame, &err));
    }
    before = head_device_at(core, 1)->seq_last;
    ASSERT_TRUE(!last_task(1, 1)->finished);
    submit_part(51, 1, PLASMON__V1__MODE__MODE_IN, 3, 64);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + 1);
    end();
}

/* The copy is nobody's task: it is its reader that has no memory for what it reads. */
TEST(who_has_no_memory_for_what_it_reads_is_told_so)
{
    const struct head_task *copy, *reader;

    begin(2);
    submit(1, 0, 4, 0);
    submit(2, 1, 0, ARRAY);
    head_core_flush(core);
    copy   = last_task(1, 1);
    reader = last_task(1, 0);
    ASSERT_EQ(copy->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    ASSERT_EQ(reader->id, 2);
    core_fail(core, 1, copy->seq, PLASMON_EDEVMEM, "no room");
    ASSERT_STATUS(reader->failure->status, PLASMON_EDEVMEM);
    ASSERT_NOT_NULL(strstr(reader->failure->text, "has no memory for what it reads: "));
    ASSERT_NOT_NULL(strstr(reader->failure->text, "no room"));
    end();
}

/*
 * One of several copies makes the memory that all of them fill. When it finds none the others have
 * none, and nothing is lost: who reads what another one was to bring hears the same.
 */
TEST(who_reads_a_part_of_what_has_no_memory_is_told_so)
{
    const struct head_task *part;
    uint64_t before;

    make_parts(1 << 17);
    before = head_device_at(core, 1)->seq_last;
    submit_part(50, 1, PLASMON__V1__MODE__MODE_IN, PARTS, 0);
    submit_part(51, 1, PLASMON__V1__MODE__MODE_IN, 3, 1 << 17); /* finds it */
    ASSERT_EQ(head_device_at(core, 1)->seq_last, before + PARTS + 2);
    part = last_task(1, 0);
    head_core_flush(core);
    core_fail(core, 1, before + 1, PLASMON_EDEVMEM, "no room");
    for (uint64_t i = 2; i <= PARTS; i++) {
        core_fail(core, 1, before + i, PLASMON_EDEPENDENCY, "it is not there");
    }
    ASSERT_TRUE(part->failure != NULL);
    ASSERT_STATUS(part->failure->status, PLASMON_EDEVMEM);
    ASSERT_NOT_NULL(strstr(part->failure->text, "no room"));
    end();
}

TEST_MAIN()
