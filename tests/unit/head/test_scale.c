/*
 * What must not grow with how much there is: publishing with the names, a turn of the loop with the
 * refs that `plasmon memory` looks at, a task with those that are queued, an argument with those
 * beside it. PLASMON_SCALE says how many of these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { LOOKS = 1024 }; /* SERVE_LOOKS */

static uint64_t dims[] = {4};

static uint64_t scale(void)
{
    const char *text = getenv("PLASMON_SCALE");

    test_set_timeout(text != NULL ? 600 : 60);
    return text != NULL ? strtoull(text, NULL, 10) : 20000;
}

static struct head_core *one_device(void)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 1);
    (void)core_join(core, "a", 0);
    return core;
}

/* CPU time of publishing so many more, each. */
static double publish_ns(struct head_core *core, uint64_t session, uint64_t first,
                         uint64_t count)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *list[] = {&publish};
    uint64_t began_ns = pl_thread_cpu_ns();
    char name[32];
    struct pl_err err;

    publish.name    = name;
    frame.publish   = list;
    frame.n_publish = 1;
    for (uint64_t i = first; i < first + count; i++) {
        (void)snprintf(name, sizeof(name), "name %llu", (unsigned long long)i);
        publish.request = i + 1;
        publish.ref     = 101 + i % 64;
        ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
        if (i % 256 == 0) {
            head_core_flush(core);
        }
    }
    head_core_flush(core);
    return (double)(pl_thread_cpu_ns() - began_ns) / (double)count;
}

TEST(publishing_costs_the_same_however_many_names_there_are)
{
    struct head_core *core = one_device();
    uint64_t session       = core_client(core);
    uint64_t few = 1000, many = scale();
    double first, last;

    for (uint64_t i = 0; i < 64; i++) {
        core_submit(core, session, i + 1, 0, 0, dims, 1);
    }
    first = publish_ns(core, session, 0, few);
    (void)publish_ns(core, session, few, many - few);
    last = publish_ns(core, session, many, few);
    printf("# publish: %.0f ns each with no names there, %.0f ns with %llu\n", first, last,
           (unsigned long long)many);
    /* with a search through all it was a hundred times as much */
    ASSERT_TRUE(last < 10 * first);
    head_core_destroy(core);
}

/* Rows of the whole report, however it is cut; *out_most_ns: CPU time of the longest step. */
static uint64_t report(struct head_core *core, uint32_t looks, uint64_t *out_steps,
                       uint64_t *out_most_ns)
{
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    struct head_holders *holders;
    struct wire_arena arena;
    uint64_t rows, began_ns;
    bool more = true;

    *out_steps = *out_most_ns = 0;
    ASSERT_OK(head_holders_create("", &holders));
    while (more) {
        began_ns     = pl_thread_cpu_ns();
        more         = head_core_holders_look(core, holders, looks);
        *out_most_ns = pl_max_u64(*out_most_ns, pl_thread_cpu_ns() - began_ns);
        (*out_steps)++;
    }
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_OK(head_core_holders_tell(core, holders, &arena, &reply));
    rows = reply.n_holders + reply.holders_left;
    for (size_t i = 1; i < reply.n_holders; i++) {
        ASSERT_TRUE(reply.holders[i - 1]->bytes >= reply.holders[i]->bytes);
    }
    ASSERT_EQ(reply.devices[0]->bytes_pinned, /* each is used by the task that makes it */
              core->counts.tasks * 256);
    head_holders_destroy(holders);
    wire_arena_finish(&arena);
    return rows;
}

TEST(a_look_at_all_memory_is_cut_into_short_ones)
{
    enum { MADE = 50000, SESSIONS = 50 };
    struct head_core *core = one_device();
    uint64_t sessions[SESSIONS], steps, most_ns, whole_ns, count = scale();
    const struct head_client *client;
    struct head_array *array;
    struct pl_err err = {0};

    for (uint64_t i = 0; i < SESSIONS; i++) {
        sessions[i] = core_client(core);
    }
    for (uint64_t i = 0; i < pl_min_u64(count, MADE); i++) {
        dims[0] = 4 + i % 7;
        core_submit(core, sessions[i % SESSIONS], i + 1, 0, 0, dims, 1);
    }
    for (uint64_t i = MADE; i < count;
         i++) { /* a table of a device has not so many slots */
        client = pl_map_get(&core->sessions, sessions[i % SESSIONS]);
        array  = ((struct head_ref *)pl_map_get(&client->refs,
                                                101 + i % SESSIONS + i % 1000 * SESSIONS))
                    ->array;
        array = head_array_snapshot(core, array->space, array, &array->extent);
        ASSERT_OK(head_client_ref_add(core, pl_map_get(&core->sessions, client->session),
                                      1000000000 + i, array, NULL, &err));
    }
    ASSERT_EQ(report(core, INT32_MAX, &steps, &whole_ns), count);
    ASSERT_EQ(steps, 1);
    ASSERT_EQ(report(core, LOOKS, &steps, &most_ns), count);
    printf("# memory: %llu refs in one look of %.1f ms, or %llu looks of at most %.2f ms\n",
           (unsigned long long)count, (double)whole_ns / 1e6, (unsigned long long)steps,
           (double)most_ns / 1e6);
    ASSERT_TRUE(steps > count / LOOKS);
    head_core_destroy(core);
}

/* In the middle of it sessions end and begin, refs and names come and go; what stays is told once. */
TEST(what_stays_is_told_once_whatever_happens_during_the_look)
{
    enum { COUNT = 200 };
    struct head_core *core         = one_device();
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    uint64_t stays = core_client(core), goes = core_client(core), id, seen = 0, steps = 0;
    struct head_holders *holders;
    struct wire_arena arena;
    char *label;

    dims[0] = 4;
    for (uint64_t i = 0; i < COUNT; i++) {
        core_submit(core, stays, i + 1, 0, 0, dims, 1);
        core_submit(core, goes, i + 1, 0, 0, dims, 1);
    }
    ASSERT_OK(head_holders_create("", &holders));
    while (head_core_holders_look(core, holders, 3)) {
        uint64_t late = core_client(core);

        core_submit(core, late, 1, 0, 0, dims, 1);
        if (++steps == COUNT / 6) {
            head_core_client_close(core, goes);
        }
        if (steps % 2 == 0) {
            head_core_client_close(core, late);
        }
        ASSERT_TRUE(steps < 100 * COUNT);
    }
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    ASSERT_OK(head_core_status(core, &arena, &reply));
    ASSERT_OK(head_core_holders_tell(core, holders, &arena, &reply));
    head_core_client_name(core, stays, &id, &label);
    for (size_t i = 0; i < reply.n_holders; i++) {
        seen += reply.holders[i]->client == id;
    }
    ASSERT_TRUE(steps > COUNT / 3 / 2);
    ASSERT_TRUE(reply.holders_left > 0 || seen == COUNT);
    head_holders_destroy(holders);
    wire_arena_finish(&arena);
    head_core_destroy(core);
}

/* CPU time of one task that reads so many arrays, half of them from another device; an argument of it. */
static double argument_ns(uint32_t count)
{
    struct head_core *core         = core_make();
    uint64_t session               = core_client(core), began_ns;
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg *arg   = calloc(count, sizeof(*arg));
    Plasmon__V1__Arg **args = calloc(count, sizeof(Plasmon__V1__Arg *));
    struct pl_err err;

    ASSERT_TRUE(arg != NULL && args != NULL);
    core_announce(core, "a", 2);
    (void)core_join(core, "a", 0);
    (void)core_join(core, "a", 1);
    dims[0] = 4;
    for (uint32_t i = 0; i < count; i++) {
        core_submit(core, session, i + 1, i % 2, 0, dims, 1);
        plasmon__v1__arg__init(&arg[i]);
        arg[i].mode = PLASMON__V1__MODE__MODE_IN;
        arg[i].ref  = i + 101;
        args[i]     = &arg[i];
    }
    task.id       = count + 1;
    task.function = pl_hash_name("touch");
    task.args     = args;
    task.n_args   = count;
    frame.tasks   = tasks;
    frame.n_tasks = 1;
    began_ns      = pl_thread_cpu_ns();
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
    began_ns = pl_thread_cpu_ns() - began_ns;
    head_core_destroy(core);
    free(arg);
    free(args);
    return (double)began_ns / count;
}

TEST(an_argument_costs_the_same_however_many_a_task_has)
{
    double few = argument_ns(100), many = argument_ns(10000);

    printf("# arguments: %.0f ns each of 100, %.0f ns of 10000\n", few, many);
    ASSERT_TRUE(many < 10 * few);
}

TEST(a_task_costs_the_same_however_many_are_queued)
{
    struct head_core *core = one_device();
    uint64_t session = core_client(core), count = scale(), few = 1000, began_ns = 0;
    double first = 0, last = 0;

    dims[0] = 4;
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || i == count - few) {
            began_ns = pl_thread_cpu_ns();
        }
        core_submit(core, session, i + 1, 0, i < 64 ? 0 : 101 + i % 64, dims, 1);
        if (i == few - 1) {
            first = (double)(pl_thread_cpu_ns() - began_ns) / (double)few;
        }
    }
    last = (double)(pl_thread_cpu_ns() - began_ns) / (double)few;
    printf("# tasks: %.0f ns each with none in the queue, %.0f ns with %llu\n", first, last,
           (unsigned long long)count);
    ASSERT_TRUE(last < 10 * first);
    head_core_destroy(core);
}

/* Part `part` of the array of task 1 is updated in place. */
static void update(struct head_core *core, uint64_t session, uint64_t id, int64_t part)
{
    int64_t view[3]                = {4 * part, 4, 1};
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Task task = PLASMON__V1__TASK__INIT, *tasks[] = {&task};
    Plasmon__V1__Arg arg = PLASMON__V1__ARG__INIT, *args[] = {&arg};
    struct pl_err err = {0};

    arg.mode      = PLASMON__V1__MODE__MODE_INOUT;
    arg.ref       = 101;
    arg.n_view    = 3;
    arg.view      = view;
    task.id       = id;
    task.function = pl_hash_name("touch");
    task.n_args   = 1;
    task.args     = args;
    frame.n_tasks = 1;
    frame.tasks   = tasks;
    ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    head_core_flush(core);
}

/* How many instances and uses are looked at, not how long that takes: no clock. */
TEST(a_part_is_updated_without_a_look_at_all_others)
{
    enum { PARTS = 4096, AGAIN = 512 };
    struct head_core *core = one_device();
    uint64_t session       = core_client(core), looked;
    const struct head_buffer *buffer;

    core_submit(core, session, 1, 0, 0, (uint64_t[]){4 * PARTS}, 1);
    for (int64_t i = 0; i < PARTS; i++) {
        update(core, session, 2 + (uint64_t)i, i * 1367 % PARTS); /* not in a row */
    }
    buffer = pl_container_of(head_device_at(core, 0)->buffers.next,
                             const struct head_buffer, device_link);
    ASSERT_EQ(buffer->placed_count, 2 * PARTS + 1); /* instances and writers */
    looked = head_places_looked(buffer);
    for (int64_t i = 0; i < AGAIN; i++) {
        update(core, session, 2 + PARTS + (uint64_t)i, i * 31 % PARTS);
    }
    looked = head_places_looked(buffer) - looked;
    printf("# %llu looks for each\n", (unsigned long long)(looked / AGAIN));
    ASSERT_TRUE(looked < UINT64_C(100) * AGAIN); /* with a search through all: 10000 */
    head_core_check(core);
    head_core_destroy(core);
}

TEST_MAIN()
