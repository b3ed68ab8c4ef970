/*
 * What a collective becomes: how many launches on which device, what each copies and waits for,
 * when results are shown, and that it fails as one. The head alone; its workers never report.
 */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, RUN = PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN };
enum { COPY = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY };

static struct head_core *core;
static uint64_t session;
static uint32_t way; /* of the next collectives */
static uint64_t task_id = 50;

static void begin(void)
{
    core                        = core_make();
    core->config.chain_bytes    = 4096;
    core->config.one_shot_bytes = 256;
    core->config.direct_bytes   = 1;
    way                         = 0;
    core_announce(core, "a", DEVICES);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
    session = core_client(core);
}

static void end(void)
{
    task_id = 50;
    head_core_check(core);
    head_core_destroy(core);
}

/* Member i is ref 101 + i, on device i: so its device has launch 1 already. */
static void make_members(uint32_t count, uint64_t elements)
{
    for (uint32_t i = 0; i < count; i++) {
        core_submit(core, session, 1 + i, i, 0, &elements, 1);
    }
}

/*
 * Task 50 (51, ..) on members 101, ..; results are refs 201, .. of so many elements, or with
 * elements 0 the members.
 */
static void collective(uint32_t kind, uint32_t op, uint32_t members, uint32_t results,
                       uint64_t elements, const uint32_t *places)
{
    Plasmon__V1__ClientFrame frame     = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Collective collective = PLASMON__V1__COLLECTIVE__INIT;
    Plasmon__V1__Task task             = PLASMON__V1__TASK__INIT;
    Plasmon__V1__Shape shape           = PLASMON__V1__SHAPE__INIT;
    Plasmon__V1__Task *tasks[]         = {&task};
    Plasmon__V1__Arg arg[3 * DEVICES], *args[3 * DEVICES];
    uint32_t nowhere[DEVICES] = {0};
    struct pl_err err         = {0};

    shape.dtype = PL_F32;
    shape.n_dim = 1;
    shape.dim   = &elements;
    for (uint32_t i = 0; i < members + results; i++) {
        uint32_t result = i - members;

        plasmon__v1__arg__init(&arg[i]);
        args[i] = &arg[i];
        arg[i].mode =
            i < members ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_OUT;
        arg[i].ref   = i < members ? 101 + i : (elements != 0 ? 201 : 101) + result;
        arg[i].shape = i >= members && elements != 0 ? &shape : NULL;
    }
    collective.kind    = (Plasmon__V1__CollectiveKind)kind;
    collective.op      = op;
    collective.way     = way;
    collective.n_place = results;
    collective.place   = (uint32_t *)(uintptr_t)(places != NULL ? places : nowhere);
    task.id            = task_id++;
    task.kind          = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE;
    task.collective    = &collective;
    task.args          = args;
    task.n_args        = members + results;
    frame.tasks        = tasks;
    frame.n_tasks      = 1;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

static const struct head_task *task_of(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(core, device), seq);
}

/* How many of its sources are on other devices. */
static uint32_t foreign_sources(const struct head_task *task)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < task->use_count; i++) {
        count += task->uses[i].buffer->device != task->device;
    }
    return count;
}

static int64_t written(const struct head_task *task)
{
    for (uint32_t i = 0; i < task->use_count; i++) {
        if (task->uses[i].write) {
            return pl_box_elements(&task->uses[i].box);
        }
    }
    return 0;
}

static struct head_client *client(void)
{
    return pl_map_get(&core->sessions, session);
}

static struct head_array *array_of(uint64_t id)
{
    struct pl_err err = {0};
    struct head_ref *ref;

    ASSERT_OK(head_client_ref_get(client(), id, 0, &ref, &err));
    return ref->array;
}

TEST(little_is_reduced_in_one_launch_a_device)
{
    begin();
    make_members(DEVICES, 60);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 60, NULL);
    for (uint32_t i = 0; i < DEVICES; i++) {
        const struct head_task *fold = task_of(i, 2);

        ASSERT_EQ(head_device_at(core, i)->seq_last, 2);
        ASSERT_EQ(fold->kind, RUN);
        ASSERT_EQ(foreign_sources(fold), DEVICES - 1);
        ASSERT_EQ(written(fold), 60);
        ASSERT_TRUE(head_move_common(array_of(201 + i), &array_of(201 + i)->extent,
                                     head_device_at(core, i), false) != NULL);
    }
    end();
}

/* Segments of 1000 / 4: each device brings three, folds four, and brings three reduced ones. */
TEST(much_is_reduced_in_segments_and_gathered)
{
    begin();
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 1000, NULL);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 4);
        ASSERT_EQ(task_of(i, 2)->kind, COPY);
        ASSERT_EQ(foreign_sources(task_of(i, 2)), DEVICES - 1);
        ASSERT_EQ(written(task_of(i, 2)), 3 * 250);
        ASSERT_EQ(task_of(i, 3)->kind, RUN);
        ASSERT_EQ(foreign_sources(task_of(i, 3)), 0);
        ASSERT_EQ(written(task_of(i, 3)), 250);
        ASSERT_EQ(task_of(i, 4)->kind, COPY);
        ASSERT_EQ(foreign_sources(task_of(i, 4)), DEVICES - 1);
        ASSERT_EQ(written(task_of(i, 4)), 1000);
        ASSERT_EQ(task_of(i, 4)->producers_open, DEVICES); /* all folds */
        for (uint64_t seq = 2; seq <= 4; seq++) {
            ASSERT_TRUE(!task_of(i, seq)->consumes); /* each can be done again */
            ASSERT_EQ(task_of(i, seq)->id, 50);
        }
    }
    end();
}

static bool combines(const struct head_task *task)
{
    return task->kind == COPY && task->function == pl_hash_name("combine");
}

/* One launch reads four segments where they are, one gathers. */
static void check_direct_segments(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 3);
        ASSERT_TRUE(combines(task_of(i, 2)));
        ASSERT_EQ(task_of(i, 2)->use_count, 1 + DEVICES);
        ASSERT_EQ(foreign_sources(task_of(i, 2)), DEVICES - 1);
        ASSERT_EQ(written(task_of(i, 2)), 250);
        ASSERT_EQ(task_of(i, 3)->kind, COPY);
        ASSERT_EQ(task_of(i, 3)->function, pl_hash_name("concatenate"));
        ASSERT_EQ(foreign_sources(task_of(i, 3)), DEVICES - 1);
        ASSERT_EQ(written(task_of(i, 3)), 1000);
        ASSERT_TRUE(!task_of(i, 2)->consumes && !task_of(i, 3)->consumes);
    }
}

TEST(members_within_reach_are_reduced_where_they_lie)
{
    begin();
    core->config.direct_bytes = 1000; /* a segment of 4000 bytes */
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 1000, NULL);
    check_direct_segments();
    end();
}

TEST(the_client_may_choose_how_members_are_read)
{
    begin();
    way = 1; /* directly, however large */
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 1000, NULL);
    check_direct_segments();
    end();
    begin();
    way                       = 2; /* by copies, however small */
    core->config.direct_bytes = 1 << 20;
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 1000, NULL);
    ASSERT_EQ(head_device_at(core, 0)->seq_last, 4);
    ASSERT_EQ(task_of(0, 3)->kind, RUN);
    end();
}

TEST(members_out_of_reach_are_brought)
{
    static const uint32_t places[] = {1, 1, 1, 1};

    begin();
    core->config.direct_bytes = 1 << 20;
    core->config.transfer     = HEAD_TRANSFER_HOST; /* no device maps another's memory */
    make_members(2, 60);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, 2, 2, 60, places);
    for (uint64_t seq = 1; seq <= head_device_at(core, 0)->seq_last; seq++) {
        ASSERT_TRUE(!combines(task_of(0, seq)));
    }
    end();
}

TEST(gpus_read_all_of_it_at_once_if_that_is_less_than_a_second_step)
{
    begin();
    core->config.direct_bytes = 1 << 20;
    for (uint32_t i = 0; i < DEVICES; i++) {
        head_device_at(core, i)->kind = 2;
    }
    make_members(DEVICES, 600); /* 6 x 600 bytes more than in two steps; 16 x 256 may be */
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 600, NULL);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 2);
        ASSERT_TRUE(combines(task_of(i, 2)));
        ASSERT_EQ(written(task_of(i, 2)), 600);
    }
    end();
    begin();
    core->config.direct_bytes = 1 << 20;
    for (uint32_t i = 0; i < DEVICES; i++) {
        head_device_at(core, i)->kind = 2;
    }
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 1000, NULL);
    check_direct_segments();
    end();
}

static void check_reads_before_writes(uint64_t direct_bytes)
{
    uint64_t last_read = 0, first_write = UINT64_MAX;
    const struct head_buffer *buffer[DEVICES];

    begin();
    core->config.direct_bytes = direct_bytes;
    make_members(DEVICES, 1000);
    for (uint32_t i = 0; i < DEVICES; i++) {
        buffer[i] = head_move_common(array_of(101 + i), &array_of(101 + i)->extent,
                                     head_device_at(core, i), false);
    }
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 0, NULL);
    for (uint32_t i = 0; i < DEVICES; i++) {
        for (uint64_t seq = 2; seq <= head_device_at(core, i)->seq_last; seq++) {
            const struct head_task *task = task_of(i, seq);

            for (uint32_t k = 0; k < task->use_count; k++) {
                for (uint32_t m = 0; m < DEVICES; m++) {
                    if (task->uses[k].buffer != buffer[m]) {
                        continue;
                    }
                    if (task->uses[k].write) {
                        ASSERT_EQ(m, i); /* in its own memory */
                        first_write = pl_min_u64(first_write, task->order);
                    } else {
                        last_read = pl_max_u64(last_read, task->order);
                    }
                }
            }
        }
    }
    ASSERT_TRUE(first_write != UINT64_MAX);
    ASSERT_TRUE(last_read < first_write);
    end();
}

TEST(all_reading_launches_have_smaller_numbers_than_those_that_write_the_members)
{
    check_reads_before_writes(1);
    check_reads_before_writes(1 << 20);
}

/*
 * What is still being gathered serves the next one segment by segment, for it fails as a whole:
 * neither lands anything.
 */
TEST(all_reduces_in_a_row_read_where_the_results_will_lie)
{
    begin();
    core->config.direct_bytes = 1000;
    make_members(DEVICES, 1000);
    for (int i = 0; i < 2; i++) {
        collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 0, NULL);
    }
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 5);
        ASSERT_TRUE(combines(task_of(i, 4)));
        ASSERT_EQ(foreign_sources(task_of(i, 4)), DEVICES - 1);
        ASSERT_EQ(written(task_of(i, 4)), 250);
    }
    end();
}

/* All devices are asked by another one at a time, and who asks has its own part last. */
TEST(devices_gather_from_the_next_one_on)
{
    begin();
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER, 0, DEVICES, DEVICES, 4000, NULL);
    for (uint32_t i = 0; i < DEVICES; i++) {
        const struct head_task *task = task_of(i, 2);

        ASSERT_EQ(task->kind, COPY);
        ASSERT_EQ(task->use_count, 1 + DEVICES);
        for (uint32_t k = 0; k < DEVICES; k++) {
            ASSERT_EQ(task->uses[1 + k].buffer->device->index, (i + 1 + k) % DEVICES);
        }
    }
    end();
}

TEST(large_segments_go_in_chunks)
{
    begin();
    core->config.one_shot_bytes = 4;
    make_members(2, 512);
    /* 2 KiB: chunks of at least 64 times 4 bytes for each of two: 4. */
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, 2, 2, 512, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 1 + 4 * 3);
        ASSERT_EQ(task_of(i, 4)->kind, COPY); /* of the second chunk, before .. */
        ASSERT_EQ(written(task_of(i, 4)), 64);
        ASSERT_EQ(task_of(i, 6)->kind, COPY); /* .. the first one is gathered */
        ASSERT_EQ(written(task_of(i, 6)), 128);
    }
    end();
}

TEST(a_large_broadcast_goes_along_a_chain)
{
    static const uint32_t places[] = {1, 2, 3, 4};

    begin();
    make_members(1, 4096); /* 16 KiB: 32 parts of 512 bytes */
    collective(PLASMON__V1__COLLECTIVE_KIND__BROADCAST, 0, 1, DEVICES, 4096, places);
    for (uint32_t i = 1; i < DEVICES; i++) {
        ASSERT_EQ(head_device_at(core, i)->seq_last, 32);
        for (uint64_t seq = 1; seq <= 32; seq++) {
            const struct head_task *part = task_of(i, seq);

            ASSERT_EQ(written(part), 128);
            for (uint32_t k = 0; k < part->use_count; k++) {
                ASSERT_TRUE(part->uses[k].write ||
                            part->uses[k].buffer->device->index == i - 1);
            }
        }
    }
    end();
}

/* Hosts of two devices, which reach each other; the member is on the first one. */
static void begin_hosts(uint32_t hosts)
{
    core                        = core_make();
    core->config.chain_bytes    = 4096;
    core->config.one_shot_bytes = 4;
    core->config.direct_bytes   = 1;
    way                         = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        const char name[2] = {(char)('a' + host), '\0'};

        core_announce(core, name, 2);
        for (uint32_t i = 0; i < 2; i++) {
            struct head_device *device = head_device_at(core, core_join(core, name, i));

            ASSERT_EQ(device->index, 2 * host + i);
            pl_free(device->bulk_address);
            device->bulk_address = head_strdup("10.0.0.1:7100");
        }
    }
    session = core_client(core);
}

/* How many bytes go from one device to another, by halves or by a copy that reads there. */
static uint64_t sent(uint32_t from, uint32_t to)
{
    const struct head_device *device = head_device_at(core, to);
    uint64_t bytes                   = 0;

    for (uint64_t seq = 1; seq <= device->seq_last; seq++) {
        const struct head_task *task = task_of(to, seq);

        if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV && task->peer == from) {
            bytes += 4 * (uint64_t)written(task);
        }
        for (uint32_t i = 0; i < task->use_count; i++) {
            if (!task->uses[i].write && task->uses[i].buffer->device->index == from &&
                from != to) {
                bytes += 4 * (uint64_t)pl_box_elements(&task->uses[i].box);
            }
        }
    }
    return bytes;
}

/* All devices but the member's; on the other hosts the second one has it of the first. */
static void broadcast_to_hosts(uint32_t hosts, uint64_t elements)
{
    uint32_t places[2 * DEVICES];
    uint32_t count = 0;

    for (uint32_t device = 1; device < 2 * hosts; device++) {
        places[count++] = device + 1;
    }
    collective(PLASMON__V1__COLLECTIVE_KIND__BROADCAST, 0, 1, count, elements, places);
    ASSERT_EQ(sent(0, 1), 4 * elements);
    for (uint32_t host = 1; host < hosts; host++) {
        ASSERT_EQ(sent(2 * host, 2 * host + 1), 4 * elements);
    }
}

TEST(a_large_broadcast_goes_from_host_to_host)
{
    enum { HOSTS = 4, ELEMENTS = 256 }; /* 1 KiB, a quarter of chain_bytes: 8 parts */

    begin_hosts(HOSTS);
    make_members(1, ELEMENTS);
    broadcast_to_hosts(HOSTS, ELEMENTS);
    for (uint32_t host = 1; host < HOSTS; host++) {
        ASSERT_EQ(sent(2 * host - 2, 2 * host), 4 * ELEMENTS);
        ASSERT_EQ(task_of(2 * host, 1)->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV);
        ASSERT_EQ(written(task_of(2 * host, 1)), ELEMENTS / 8);
    }
    end();
}

TEST(a_broadcast_goes_as_a_tree_of_hosts)
{
    enum { HOSTS = 4, ELEMENTS = 64 }; /* 256 bytes: less than large, more than little */

    begin_hosts(HOSTS);
    make_members(1, ELEMENTS);
    broadcast_to_hosts(HOSTS, ELEMENTS);
    ASSERT_EQ(sent(0, 2), 4 * ELEMENTS);
    ASSERT_EQ(sent(0, 4), 4 * ELEMENTS);
    ASSERT_EQ(sent(2, 6), 4 * ELEMENTS);
    end();
}

TEST(a_little_broadcast_comes_from_where_it_is)
{
    enum { HOSTS = 4, ELEMENTS = 2 }; /* 8 bytes: little */

    begin_hosts(HOSTS);
    make_members(1, ELEMENTS);
    broadcast_to_hosts(HOSTS, ELEMENTS);
    for (uint32_t host = 1; host < HOSTS; host++) {
        ASSERT_EQ(sent(0, 2 * host), 4 * ELEMENTS);
    }
    end();
}

/* The second host has read it before. */
TEST(a_broadcast_comes_from_the_copy_that_a_host_has)
{
    enum { HOSTS = 3, ELEMENTS = 256 };

    begin_hosts(HOSTS);
    make_members(1, ELEMENTS);
    core_submit(core, session, 9, 3, 101, NULL, 0);
    head_core_flush(core);
    ASSERT_EQ(sent(0, 3), 4 * ELEMENTS);
    collective(PLASMON__V1__COLLECTIVE_KIND__BROADCAST, 0, 1, 2, ELEMENTS,
               (const uint32_t[]){3, 5});
    ASSERT_EQ(sent(0, 2), 0);
    ASSERT_EQ(sent(3, 2), 4 * ELEMENTS);
    ASSERT_EQ(sent(2, 4), 4 * ELEMENTS);
    ASSERT_EQ(sent(0, 4), 0);
    end();
}

/* What was measured: the second host gets a tenth of what the third one does. */
TEST(a_slow_host_is_no_link_of_a_broadcast)
{
    enum { HOSTS = 3, ELEMENTS = 256 };

    begin_hosts(HOSTS);
    make_members(1, ELEMENTS);
    for (uint32_t device = 2; device <= 4; device += 2) {
        for (uint32_t i = 0; i < HEAD_RATE_SAMPLES; i++) {
            Plasmon__V1__PairStats pair = PLASMON__V1__PAIR_STATS__INIT;

            pair.route = HEAD_ROUTE_HOST;
            pair.to    = device;
            pair.sent  = true;
            pair.rate  = (device == 2 ? 10000000u : 100000000u) + i;
            head_rates_take(core, &pair);
        }
    }
    collective(PLASMON__V1__COLLECTIVE_KIND__BROADCAST, 0, 1, 2, ELEMENTS,
               (const uint32_t[]){3, 5});
    ASSERT_EQ(sent(0, 4), 4 * ELEMENTS);
    ASSERT_EQ(sent(4, 2), 4 * ELEMENTS);
    end();
}

/* Members one a device, results likewise. */
static void to_all_of(uint32_t kind, uint32_t op, uint32_t hosts, uint64_t elements)
{
    uint32_t places[2 * DEVICES];

    for (uint32_t device = 0; device < 2 * hosts; device++) {
        places[device] = device + 1;
    }
    make_members(2 * hosts, kind == PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER
                                ? elements / (2 * hosts)
                                : elements);
    collective(kind, op, 2 * hosts, 2 * hosts, elements, places);
}

/* How many bytes come to the host over the network, half of them to each of its two devices. */
static uint64_t come(uint32_t host, uint32_t hosts)
{
    uint64_t bytes[2] = {0, 0};

    for (uint32_t from = 0; from < 2 * hosts; from++) {
        for (uint32_t i = 0; i < 2 && from / 2 != host; i++) {
            bytes[i] += sent(from, 2 * host + i);
        }
    }
    ASSERT_EQ(bytes[0], bytes[1]);
    return bytes[0] + bytes[1];
}

static bool lies_on(uint64_t ref, uint32_t device)
{
    struct head_array *array = array_of(ref);

    return head_move_common(array, &array->extent, head_device_at(core, device), false) !=
           NULL;
}

/* What they are brought in is let go: it was to be read once. */
static void check_gathered(uint32_t hosts, uint64_t elements)
{
    begin_hosts(hosts);
    to_all_of(PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER, 0, hosts, 2 * hosts * elements);
    for (uint32_t host = 0; host < hosts; host++) {
        ASSERT_EQ(come(host, hosts), (2 * hosts - 2) * 4 * elements);
    }
    for (uint32_t device = 0; device < 2 * hosts; device++) {
        for (uint32_t member = 0; member < 2 * hosts; member++) {
            ASSERT_TRUE(lies_on(101 + member, device) == (device == member));
        }
        ASSERT_TRUE(lies_on(201 + device, device));
    }
}

TEST(gathered_members_come_to_a_host_once)
{
    check_gathered(3, 2); /* little */
    end();
    check_gathered(3, 64); /* as trees */
    ASSERT_EQ(sent(0, 2) + sent(0, 3), 4 * 64);
    ASSERT_EQ(sent(0, 4) + sent(0, 5), 4 * 64);
    end();
}

/* Each host sends to the next one alone: its own members, then those that it has of the one before. */
TEST(large_members_are_gathered_around_a_ring_of_hosts)
{
    enum { HOSTS = 3, ELEMENTS = 256 };

    check_gathered(HOSTS, ELEMENTS);
    for (uint32_t from = 0; from < 2 * HOSTS; from++) {
        for (uint32_t to = 0; to < 2 * HOSTS; to++) {
            bool next = to / 2 == (from / 2 + 1) % HOSTS;

            ASSERT_TRUE(from / 2 == to / 2 || next || sent(from, to) == 0);
        }
    }
    end();
}

TEST(a_host_that_has_a_copy_of_a_member_is_not_sent_it)
{
    enum { HOSTS = 2, ELEMENTS = 64 };

    begin_hosts(HOSTS);
    make_members(2 * HOSTS, ELEMENTS);
    core_submit(core, session, 9, 3, 101, NULL, 0);
    head_core_flush(core);
    ASSERT_EQ(sent(0, 3), 4 * ELEMENTS);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER, 0, 2 * HOSTS, 2 * HOSTS,
               2 * HOSTS * ELEMENTS, (const uint32_t[]){1, 2, 3, 4});
    ASSERT_EQ(sent(0, 2) + sent(0, 3), 4 * ELEMENTS);
    ASSERT_EQ(sent(1, 2) + sent(1, 3), 4 * ELEMENTS);
    ASSERT_EQ(sent(3, 2), 2 * 4 * ELEMENTS); /* and its own */
    end();
}

TEST(members_that_all_devices_reduce_come_to_a_host_once)
{
    enum { HOSTS = 3, ELEMENTS = 60 };

    begin_hosts(HOSTS);
    core->config.one_shot_bytes = 4 * ELEMENTS;
    to_all_of(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, HOSTS, ELEMENTS);
    for (uint32_t host = 0; host < HOSTS; host++) {
        ASSERT_EQ(come(host, HOSTS), 4 * 4 * ELEMENTS);
    }
    end();
}

/*
 * To be reduced there are two segments a host, of four members; and of the reduced ones the four of
 * others.
 */
TEST(reduced_segments_come_to_a_host_once)
{
    enum { HOSTS = 3, SEGMENT = 10 };

    begin_hosts(HOSTS);
    core->config.one_shot_bytes = 64; /* one chunk */
    to_all_of(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, HOSTS, 2 * HOSTS * SEGMENT);
    for (uint32_t host = 0; host < HOSTS; host++) {
        ASSERT_EQ(come(host, HOSTS), 4 * SEGMENT * (2 * 4 + 4));
    }
    end();
}

TEST(results_come_to_the_devices_that_were_named)
{
    static const uint32_t places[] = {4, 3, 2, 1};

    begin();
    make_members(DEVICES, 8);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL, 0, DEVICES, DEVICES, 8, places);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_TRUE(head_move_common(array_of(201 + i), &array_of(201 + i)->extent,
                                     head_device_at(core, 3 - i), false) != NULL);
        ASSERT_EQ(task_of(i, 2)->kind, COPY);
    }
    end();
}

static plasmon_status_t failure_of(uint64_t ref)
{
    const struct head_failure *failure =
        head_array_failure(array_of(ref), &array_of(ref)->extent);

    return failure == NULL ? PLASMON_OK : failure->status;
}

TEST(it_fails_as_a_whole)
{
    struct head_failure *failure;

    begin();
    make_members(DEVICES, 1000);
    collective(PLASMON__V1__COLLECTIVE_KIND__REDUCE_SCATTER, 1, DEVICES, DEVICES, 250,
               NULL);
    failure = head_failure_create(PLASMON_EDEVICE, 50, 0, "the device says no");
    head_task_doom(core, head_device_task(head_device_at(core, 2), 3), failure);
    head_failure_release(failure);
    for (uint32_t i = 0; i < DEVICES; i++) {
        const struct head_array *array = array_of(201 + i);

        failure = head_array_failure(array_of(201 + i), &array->extent);
        ASSERT_TRUE(failure != NULL);
        ASSERT_STR(head_failure_cause(failure), "the device says no");
    }
    ASSERT_NULL(pl_map_get(&client()->groups, 50)); /* and its client was told */
    end();
}

TEST(what_cannot_be_is_refused_and_its_results_exist)
{
    static const uint32_t places[] = {1, 2, 9, 1};

    begin();
    make_members(DEVICES, 10);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL, 0, DEVICES, DEVICES, 10, NULL);
    ASSERT_STATUS(failure_of(201), PLASMON_ESHAPE); /* 10 in four parts */
    ASSERT_STATUS(failure_of(204), PLASMON_ESHAPE);
    end();
    begin();
    make_members(DEVICES, 10);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER, 0, DEVICES, DEVICES, 10, NULL);
    ASSERT_STATUS(failure_of(203), PLASMON_ESHAPE); /* they have 40 */
    end();
    begin();
    make_members(DEVICES, 10);
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, 10, places);
    ASSERT_STATUS(failure_of(201), PLASMON_EINVAL); /* there is no device 8 */
    end();
}

TEST(a_result_whose_ref_is_in_use_is_refused_and_the_others_exist)
{
    uint64_t elements = 10;

    begin();
    make_members(DEVICES, elements);
    core_submit(core, session, 102, 0, 0, &elements, 1); /* it makes ref 202 */
    collective(PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, 1, DEVICES, DEVICES, elements,
               NULL);
    ASSERT_STATUS(failure_of(201), PLASMON_EEXIST);
    ASSERT_STATUS(failure_of(202), PLASMON_OK);
    ASSERT_STATUS(failure_of(203), PLASMON_EEXIST);
    end();
}

TEST_MAIN()
