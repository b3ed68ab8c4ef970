/* What `plasmon tasks`, `objects` and `nodes` are told: whole, a page at a time, and with bounded work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

static struct wire_arena arena;
static uint64_t dims[] = {4, 8};

static Plasmon__V1__ListRequest request_of(Plasmon__V1__ListKind kind)
{
    Plasmon__V1__ListRequest request = PLASMON__V1__LIST_REQUEST__INIT;

    request.kind = kind;
    return request;
}

static Plasmon__V1__ListReply
page(struct head_core *core, const Plasmon__V1__ListRequest *request, const char *only)
{
    Plasmon__V1__ListReply reply = PLASMON__V1__LIST_REPLY__INIT;

    if (arena.bytes_max == 0) {
        ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    }
    ASSERT_OK((request->kind == PLASMON__V1__LIST_KIND__LIST_TASKS
                   ? head_core_list_tasks
                   : head_core_list_objects)(core, request, only, &arena, &reply));
    return reply;
}

/* All rows of all pages; *out_pages. */
static uint64_t count_all(struct head_core *core, Plasmon__V1__ListRequest request,
                          const char *only, uint64_t *out_pages)
{
    uint64_t rows = 0;

    *out_pages = 0;
    for (;;) {
        Plasmon__V1__ListReply reply = page(core, &request, only);

        rows += reply.n_tasks + reply.n_objects;
        (*out_pages)++;
        if (reply.next == NULL) {
            wire_arena_reset(&arena);
            return rows;
        }
        request.from = reply.next; /* lies in the arena, which is reset at the end */
    }
}

static struct head_core *two_devices(void)
{
    struct head_core *core = core_make();

    core_announce(core, "a", 2);
    (void)core_join(core, "a", 0);
    (void)core_join(core, "a", 1);
    return core;
}

TEST(a_task_is_told_with_its_device_state_age_and_what_it_waits_for)
{
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core), id;
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_TASKS);
    const Plasmon__V1__TaskRow *first, *second;
    Plasmon__V1__ListReply reply;
    char *label;

    core_submit(core, session, 7, 0, 0, dims, 2);
    core_submit(core, session, 8, 0, 107, NULL, 0);
    head_core_flush(core);
    head_core_tick(core, 2501);
    head_core_client_name(core, session, &id, &label);
    reply = page(core, &request, NULL);
    ASSERT_EQ(reply.n_tasks, 2);
    ASSERT_NULL(reply.next);
    first  = reply.tasks[0];
    second = reply.tasks[1];
    ASSERT_EQ(first->task, 7);
    ASSERT_EQ(first->client, id);
    ASSERT_EQ(first->device, 0);
    ASSERT_EQ(first->age_ms, 2500);
    ASSERT_EQ((int)first->state, PLASMON__V1__TASK_STATE__TASK_SENT);
    ASSERT_EQ(second->task, 8);
    ASSERT_TRUE(second->seq > first->seq);

    request.state = PLASMON__V1__TASK_STATE__TASK_RUNNING + 1;
    ASSERT_EQ(page(core, &request, NULL).n_tasks, 0);
    request.state  = 0;
    request.device = 2;
    ASSERT_EQ(page(core, &request, NULL).n_tasks, 0);
    request.device = 99; /* no such device */
    ASSERT_EQ(page(core, &request, NULL).n_tasks, 0);
    request.device = 0;
    request.client = id + 1;
    ASSERT_EQ(page(core, &request, NULL).n_tasks, 0);
    request.client = id;
    ASSERT_EQ(page(core, &request, "default").n_tasks, 2);
    ASSERT_EQ(page(core, &request, "other").n_tasks, 0);
    head_core_destroy(core);
}

TEST(an_object_is_told_with_its_shape_state_writer_and_places)
{
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core);
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    const Plasmon__V1__ObjectRow *row;
    Plasmon__V1__ListReply reply;

    core_submit(core, session, 7, 1, 0, dims, 2);
    head_core_flush(core);
    reply = page(core, &request, NULL);
    ASSERT_EQ(reply.n_objects, 1);
    row = reply.objects[0];
    ASSERT_EQ(row->ref, 107);
    ASSERT_EQ(row->bytes, 4 * 8 * 4);
    ASSERT_EQ(row->shape->n_dim, 2);
    ASSERT_EQ(row->shape->dim[1], 8);
    ASSERT_EQ((int)row->state, PLASMON__V1__OBJECT_STATE__OBJECT_PENDING);
    ASSERT_EQ(wire_point_device(row->maker), 1);
    ASSERT_EQ(row->n_places, 1);
    ASSERT_EQ(row->places[0]->device, 2);
    ASSERT_EQ(row->places[0]->bytes, row->bytes);
    ASSERT_STR(row->name_space, "default");

    request.bytes_min = row->bytes + 1;
    ASSERT_EQ(page(core, &request, NULL).n_objects, 0);
    request.bytes_min = 0;
    request.device    = 1;
    ASSERT_EQ(page(core, &request, NULL).n_objects, 0);
    request.device = 2;
    ASSERT_EQ(page(core, &request, NULL).n_objects, 1);
    request.state = PLASMON__V1__OBJECT_STATE__OBJECT_READY + 1;
    ASSERT_EQ(page(core, &request, NULL).n_objects, 0);
    request.state = 0;
    ASSERT_EQ(page(core, &request, "other").n_objects, 0);
    head_core_destroy(core);
}

/* `count` tasks that do nothing, or (shown) make a value each. */
static void submit_many(struct head_core *core, uint64_t session, uint64_t first,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t one = 1;

        core_submit(core, session, first + 1000000 * (i % 2) + i, i % 2, 0, &one, 1);
    }
    head_core_flush(core);
}

TEST(pages_have_everything_once_and_none_is_large)
{
    enum { COUNT = 3000 };
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core);
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_TASKS);
    uint64_t pages;

    submit_many(core, session, 1, COUNT);
    submit_many(core, core_client(core), 1, 10);
    ASSERT_EQ(count_all(core, request, NULL, &pages), COUNT + 10);
    ASSERT_TRUE(pages > COUNT / 512);
    request.rows_max = 100;
    ASSERT_EQ(count_all(core, request, NULL, &pages), COUNT + 10);
    ASSERT_TRUE(pages >= COUNT / 100);
    request.device = 1;
    ASSERT_EQ(count_all(core, request, NULL, &pages), (COUNT + 10) / 2);

    request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    ASSERT_EQ(count_all(core, request, NULL, &pages), COUNT + 10);
    ASSERT_TRUE(pages > COUNT / 1024);
    request.rows_max = 1;
    ASSERT_EQ(count_all(core, request, NULL, &pages), COUNT + 10);
    head_core_destroy(core);
}

/* What a page begins at may be gone when it is asked for. */
TEST(a_place_whose_client_is_gone_is_still_a_place)
{
    struct head_core *core = two_devices();
    uint64_t sessions[3]   = {core_client(core), core_client(core), core_client(core)};
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    Plasmon__V1__ListReply reply;
    uint64_t pages, id;
    char *label;

    for (int i = 0; i < 3; i++) {
        submit_many(core, sessions[i], 1, 100);
    }
    request.rows_max = 150;
    reply            = page(core, &request, NULL);
    ASSERT_NOT_NULL(reply.next);
    for (int i = 0; i < 3; i++) {
        head_core_client_name(core, sessions[i], &id, &label);
        if (id == reply.next->a) {
            head_core_client_close(core, sessions[i]);
        }
    }
    request.from = reply.next;
    ASSERT_TRUE(count_all(core, request, NULL, &pages) <= 200);
    head_core_destroy(core);
}

/* A filter that nothing passes looks at a bounded number of tasks a page, and gets through. */
TEST(a_page_may_be_empty_and_not_the_last)
{
    enum { COUNT = 20000 };
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core), pages;
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_TASKS);
    Plasmon__V1__ListReply reply;

    submit_many(core, session, 1, COUNT);
    request.label = (char *)(uintptr_t) "nobody has this";
    reply         = page(core, &request, NULL);
    ASSERT_EQ(reply.n_tasks, 0);
    ASSERT_NOT_NULL(reply.next);
    ASSERT_EQ(count_all(core, request, NULL, &pages), 0);
    ASSERT_TRUE(pages <= 3);
    head_core_destroy(core);
}

/* Of whatever length, with nothing of what lies behind it. */
TEST(a_name_is_told_as_it_was_published)
{
    enum { LENGTH_MAX = 48 };
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core);
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    Plasmon__V1__ClientFrame frame   = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *publishes[] = {&publish};
    char name[LENGTH_MAX + 1] = "";
    Plasmon__V1__ListReply reply;
    struct pl_err err;

    core_submit(core, session, 7, 0, 0, dims, 2);
    publish.ref     = 107;
    publish.name    = name;
    frame.publish   = publishes;
    frame.n_publish = 1;
    for (size_t length = 1; length <= LENGTH_MAX; length++) {
        memset(name, 'n', length);
        publish.request = length;
        ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
        head_core_flush(core);
    }
    reply = page(core, &request, "default");
    ASSERT_EQ(reply.n_objects, 1 + LENGTH_MAX);
    for (size_t length = 1; length <= LENGTH_MAX; length++) {
        ASSERT_EQ(strlen(reply.objects[length]->label), length);
        ASSERT_STR(reply.objects[length]->name_space, "default");
    }
    head_core_destroy(core);
}

/* Ref 107 under "0", "1", ..; or these are withdrawn. */
static void publish_many(struct head_core *core, uint64_t session, uint64_t first,
                         uint64_t count, bool publishes)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Publish publish = PLASMON__V1__PUBLISH__INIT, *list[] = {&publish};
    char name[24];
    struct pl_err err;

    publish.ref     = publishes ? 107 : 0;
    publish.name    = name;
    frame.publish   = list;
    frame.n_publish = 1;
    for (uint64_t i = first; i < first + count; i++) {
        (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)i);
        publish.request = i + 1;
        ASSERT_OK(head_core_client_frame(core, session, &frame, &err));
    }
    head_core_flush(core);
}

/* As tasks are: see above; what is shown under them is looked at, too, for its label. */
TEST(names_that_are_not_asked_for_are_bounded_work_too)
{
    enum { COUNT = 20000 };
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core), pages;
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    Plasmon__V1__ListReply reply;

    core_submit(core, session, 7, 0, 0, dims, 2);
    publish_many(core, session, 0, COUNT, true);
    request.label = (char *)(uintptr_t) "nobody has this";
    reply         = page(core, &request, NULL);
    ASSERT_EQ(reply.n_objects, 0);
    ASSERT_NOT_NULL(reply.next);
    ASSERT_EQ(count_all(core, request, NULL, &pages), 0);
    ASSERT_EQ(pages, 3);
    head_core_destroy(core);
}

/*
 * Names that stay are told once, though the one at which the next page was to begin is gone, others
 * too, and new ones have come.
 */
TEST(names_that_stay_are_told_once_whatever_comes_and_goes)
{
    enum { COUNT = 1000, ROWS = 100 };
    struct head_core *core           = two_devices();
    uint64_t session                 = core_client(core);
    Plasmon__V1__ListRequest request = request_of(PLASMON__V1__LIST_KIND__LIST_OBJECTS);
    uint32_t told[3 * COUNT]         = {0};
    uint64_t fresh                   = COUNT;
    Plasmon__V1__ListReply reply;

    core_submit(core, session, 7, 0, 0, dims, 2);
    publish_many(core, session, 0, COUNT, true);
    request.rows_max = ROWS;
    do {
        reply = page(core, &request, NULL);
        for (size_t i = 0; i < reply.n_objects; i++) {
            if (reply.objects[i]->client == 0) {
                told[strtoul(reply.objects[i]->label, NULL, 10)]++;
            }
        }
        request.from = reply.next;
        if (reply.next != NULL && reply.next->a == UINT64_MAX) { /* numbers: name + 1 */
            uint64_t next = reply.next->b - 1;

            if (next % 2 == 0 && next < COUNT) {
                publish_many(core, session, next, 1, false);
            }
            publish_many(core, session, next > 10 ? 10 * (next / ROWS) : 0, 1, false);
            publish_many(core, session, fresh++, 1, true);
        }
        head_core_check(core);
    } while (reply.next != NULL);
    for (uint64_t i = 0; i < COUNT; i++) {
        ASSERT_TRUE(told[i] <= 1);
        /* odd ones stayed, or went when they had been told */
        ASSERT_TRUE(told[i] == 1 || i % 2 == 0);
    }
    wire_arena_reset(&arena);
    head_core_destroy(core);
}

TEST(a_node_is_told_with_its_devices)
{
    struct head_core *core   = two_devices();
    Plasmon__V1__NodeRow row = PLASMON__V1__NODE_ROW__INIT;

    core_announce(core, "b", 1);
    core_submit(core, core_client(core), 7, 1, 0, dims, 2);
    head_core_list_node(core, "a", &row);
    ASSERT_EQ(row.devices, 2);
    ASSERT_EQ(row.devices_up, 2);
    ASSERT_EQ(row.queued, 1);
    ASSERT_EQ(row.bytes_total, 2 << 20);
    head_core_destroy(core);
}

TEST(a_device_that_is_gone_has_no_memory)
{
    struct head_core *core          = two_devices();
    Plasmon__V1__WorkerFrame frame  = PLASMON__V1__WORKER_FRAME__INIT;
    Plasmon__V1__WorkerStats stats  = PLASMON__V1__WORKER_STATS__INIT;
    Plasmon__V1__StatusReply before = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__StatusReply after  = PLASMON__V1__STATUS_REPLY__INIT;
    struct pl_err err               = {0};

    stats.bytes_used     = 1000;
    stats.bytes_reserved = 4096;
    stats.bytes_scratch  = 10;
    stats.largest_hole   = 2000;
    frame.stats          = &stats;
    ASSERT_OK(head_core_worker_frame(core, 0, &frame, &err));
    ASSERT_OK(wire_arena_init(&arena, WIRE_ARENA_BYTES_MAX));
    ASSERT_OK(head_core_status(core, &arena, &before));
    ASSERT_EQ(before.devices[0]->bytes_used, 1000);
    ASSERT_EQ(before.devices[0]->bytes_total, 1 << 20);
    test_expect_log();
    head_core_node_gone(core, "a", "it burns");
    ASSERT_OK(head_core_status(core, &arena, &after));
    ASSERT_EQ(after.devices[0]->state, PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE);
    ASSERT_EQ(after.devices[0]->bytes_total, 0);
    ASSERT_EQ(after.devices[0]->bytes_used, 0);
    ASSERT_EQ(after.devices[0]->bytes_reserved, 0);
    ASSERT_EQ(after.devices[0]->bytes_scratch, 0);
    ASSERT_EQ(after.devices[0]->largest_hole, 0);
    wire_arena_finish(&arena);
    head_core_destroy(core);
}

TEST_MAIN()
