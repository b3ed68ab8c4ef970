/*
 * put and get by messages, and the calls around them: what goes over the wire, and what comes back
 * into the caller's memory.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "tests/unit/client/calls.h"
#include "tests/unit/client/fake_head.h"

#define WORLD_BYTES (4u << 20)

/* What the fake saw. Written on its thread before it answers, read by the test after the answer. */
struct world {
    uint8_t bytes[WORLD_BYTES]; /* what puts brought */
    uint64_t put_end;
    uint64_t pieces;
    bool donatable;
    uint64_t put_ref;
    uint64_t read_ref;
    size_t read_view;
    uint64_t published;
    char published_name[64];
    uint64_t snapshot;
    uint64_t snapshot_of;
    size_t snapshot_view;
};

static void take_put(struct world *world, const Plasmon__V1__Task *task)
{
    if (task->put_offset == 0) {
        world->put_end = 0;
        world->pieces  = 0;
    }
    ASSERT_EQ(task->put_offset, world->put_end); /* in order, without gaps */
    ASSERT_TRUE(task->put_offset + task->data.len <= WORLD_BYTES);
    memcpy(world->bytes + task->put_offset, task->data.data, task->data.len);
    world->put_end += task->data.len;
    world->pieces++;
    world->put_ref   = task->args[0]->ref;
    world->donatable = task->put_donatable;
}

static void reply(struct fake_head *head, uint64_t request, plasmon_status_t status,
                  const char *text)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Reply out = PLASMON__V1__REPLY__INIT, *list[] = {&out};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim             = 100;

    shape.dtype     = PLASMON_F32;
    shape.n_dim     = 1;
    shape.dim       = &dim;
    out.request     = request;
    out.status      = (int32_t)status;
    out.text        = (char *)text;
    out.shape       = status == PLASMON_OK ? &shape : NULL;
    frame.n_replies = 1;
    frame.replies   = list;
    fake_head_send(head, &frame);
}

static void on_frame(void *user, struct fake_head *head,
                     const Plasmon__V1__ClientFrame *frame)
{
    struct world *world = user;

    for (size_t i = 0; i < frame->n_tasks; i++) {
        const Plasmon__V1__Task *task = frame->tasks[i];

        if (task->kind == PLASMON__V1__TASK_KIND__TASK_PUT) {
            take_put(world, task);
        } else if (task->kind == PLASMON__V1__TASK_KIND__TASK_SNAPSHOT) {
            world->snapshot_of   = task->args[0]->ref;
            world->snapshot_view = task->args[0]->n_view;
            world->snapshot      = task->args[1]->ref;
        }
    }
    for (size_t i = 0; i < frame->n_read; i++) {
        world->read_ref  = frame->read[i]->ref;
        world->read_view = frame->read[i]->n_view;
    }
    for (size_t i = 0; i < frame->n_publish; i++) {
        world->published = frame->publish[i]->ref;
        (void)snprintf(world->published_name, sizeof(world->published_name), "%s",
                       frame->publish[i]->name);
        reply(head, frame->publish[i]->request, PLASMON_OK, "");
    }
    for (size_t i = 0; i < frame->n_lookup; i++) {
        bool known = strcmp(frame->lookup[i]->name, "known") == 0;

        reply(head, frame->lookup[i]->request, known ? PLASMON_OK : PLASMON_ENOENT,
              known ? "" : "no such name here");
    }
}

struct fixture {
    struct world *world;
    struct fake_head *head;
    struct plasmon_client *client;
};

static struct fixture begin(void)
{
    struct fixture f = {.world = pl_alloc(sizeof(struct world))};
    struct fake_head_config config;

    ASSERT_NOT_NULL(f.world);
    config = (struct fake_head_config){
        .end_tasks = true, .frame = on_frame, .user = f.world, .value = f.world->bytes};
    f.head   = fake_head_start(&config);
    f.client = fake_head_client(f.head);
    return f;
}

static void end(struct fixture *f)
{
    plasmon_finish(f->client);
    fake_head_stop(f->head);
    pl_free(f->world);
}

static void round_trip(struct fixture *f, size_t bytes, uint64_t pieces)
{
    struct plasmon_shape shape = {.dtype = PLASMON_U8, .ndim = 1, .dim = {(int64_t)bytes}};
    uint8_t *in = pl_alloc(bytes), *out = pl_alloc(bytes);
    struct plasmon_ref *ref;

    ASSERT_TRUE(in != NULL && out != NULL);
    for (size_t i = 0; i < bytes; i++) {
        in[i] = (uint8_t)(i * 131 + i / 1000);
    }
    CALL_OK(plasmon_put(f->client, in, &shape, NULL, &ref));
    CALL_OK(plasmon_get(f->client, ref, out, bytes, 10000));
    ASSERT_TRUE(memcmp(in, out, bytes) == 0);
    ASSERT_EQ(f->world->pieces, pieces);
    ASSERT_EQ(f->world->put_end, bytes);
    CALL_OK(plasmon_release(f->client, ref));
    pl_free(in);
    pl_free(out);
}

TEST(bytes_come_back_as_they_went)
{
    struct fixture f = begin();

    round_trip(&f, 1, 1);
    round_trip(&f, 256u << 10, 1);
    round_trip(&f, 1u << 20, 1);
    round_trip(&f, (1u << 20) + 1, 2);
    round_trip(&f, WORLD_BYTES, 4);
    end(&f);
}

TEST(a_get_of_many_chunks_reads_one_version)
{
    struct fixture f           = begin();
    struct plasmon_shape shape = {.dtype = PLASMON_U8, .ndim = 1, .dim = {3 << 20}};
    uint8_t *data              = pl_alloc(3u << 20);
    struct plasmon_ref *ref;

    ASSERT_NOT_NULL(data);
    CALL_OK(plasmon_put(f.client, data, &shape, NULL, &ref));
    CALL_OK(plasmon_get(f.client, ref, data, 3u << 20, 10000));
    ASSERT_EQ(f.world->snapshot_of, f.world->put_ref);
    ASSERT_EQ(f.world->read_ref, f.world->snapshot);
    ASSERT_EQ(fake_head_seen(f.head).reads, 3);
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_releases, 1); /* the snapshot does not stay */
    pl_free(data);
    end(&f);
}

TEST(a_view_is_read_as_a_view)
{
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 1, .dim = {1000}};
    struct fixture f           = begin();
    struct plasmon_ref *ref;
    float data[1000] = {0}; /* more than what a client keeps: it has to ask */

    CALL_OK(plasmon_put(f.client, data, &shape, NULL, &ref));
    CALL_OK(
        plasmon_get(f.client, call_part(f.client, ref, 10, 20), data, sizeof(data), 10000));
    ASSERT_EQ(f.world->read_view, 3);
    ASSERT_STATUS(plasmon_get(f.client, ref, data, 3999, 10000), PLASMON_ESHAPE);
    ASSERT_CONTAINS(plasmon_error(f.client), "f32[1000]");
    end(&f);
}

TEST(a_put_says_whether_it_may_be_overwritten)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct fixture f                   = begin();
    float data[100]                    = {0};
    struct plasmon_ref *ref;

    CALL_OK(plasmon_put(f.client, data, &call_vector, NULL, &ref));
    CALL_OK(plasmon_wait(f.client, &ref, 1, 1, 10000, NULL, NULL));
    ASSERT_TRUE(!f.world->donatable);
    options.donatable = 1;
    CALL_OK(plasmon_put(f.client, data, &call_vector, &options, &ref));
    CALL_OK(plasmon_wait(f.client, &ref, 1, 1, 10000, NULL, NULL));
    ASSERT_TRUE(f.world->donatable);
    end(&f);
}

TEST(the_callers_memory_may_change_as_soon_as_put_returned)
{
    struct fixture f = begin();
    struct plasmon_ref *ref;
    float data[100], out[100];

    for (int i = 0; i < 100; i++) {
        data[i] = (float)i;
    }
    CALL_OK(plasmon_put(f.client, data, &call_vector, NULL, &ref));
    memset(data, 0xff, sizeof(data));
    CALL_OK(plasmon_get(f.client, ref, out, sizeof(out), 10000));
    ASSERT_TRUE(out[0] == 0 && out[99] == 99);
    end(&f);
}

TEST(names_are_published_looked_up_and_missed)
{
    struct fixture f        = begin();
    struct plasmon_ref *ref = call_fill(f.client, NULL, NULL), *found = NULL, *part;
    struct plasmon_shape shape;

    CALL_OK(plasmon_publish(f.client, "weights", ref));
    ASSERT_STR(f.world->published_name, "weights");
    part = call_part(f.client, ref, 0, 10);
    CALL_OK(plasmon_publish(f.client, "weights", part)); /* a view: as a snapshot of it */
    ASSERT_EQ(f.world->published, f.world->snapshot);
    ASSERT_EQ(f.world->snapshot_view, 3);
    CALL_OK(plasmon_publish(f.client, "weights", NULL));
    ASSERT_EQ(f.world->published, 0);

    CALL_OK(plasmon_lookup(f.client, "known", &found));
    CALL_OK(plasmon_shape_of(f.client, found, &shape));
    ASSERT_EQ(shape.dim[0], 100);
    ASSERT_STATUS(plasmon_lookup(f.client, "unknown", &found), PLASMON_ENOENT);
    ASSERT_CONTAINS(plasmon_error(f.client), "no such name here");
    ASSERT_STATUS(plasmon_lookup(f.client, "", &found), PLASMON_EINVAL);
    end(&f);
}

TEST(what_cannot_be_mapped_says_what_to_do)
{
    struct fixture f                = begin();
    struct plasmon_ref *ref         = call_fill(f.client, NULL, NULL);
    struct plasmon_mapping *mapping = NULL;

    ASSERT_STATUS(plasmon_map(f.client, ref, 10000, &mapping), PLASMON_EUNREACHABLE);
    ASSERT_CONTAINS(plasmon_error(f.client), "plasmon_get");
    ASSERT_NULL(mapping);
    end(&f);
}

TEST_MAIN()
