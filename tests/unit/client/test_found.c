/*
 * What another client is yet to make: a ref that was looked up is pending, ready or failed as the
 * head says it is, whenever it says so.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tests/harness/ready_calls.h"
#include "tests/unit/client/calls.h"
#include "tests/unit/client/fake_head.h"

enum { WAIT_MS = 10000 };

/* How the fake answers a lookup, by the name. */
static const char there[] = "there"; /* it is made */
static const char late[]  = "late";  /* it is not */
/* it was made in a frame before the answer */
static const char told_before[]   = "told before";
static const char failed_before[] = "failed before"; /* likewise, and has failed */
static const char failed_with[]   = "failed with";   /* in the frame of the answer */

struct fixture {
    struct fake_head *head;
    struct plasmon_client *client;
    _Atomic uint64_t task; /* of the last lookup */
};

static const char why[] = "task 3 'teach' on device 0 failed: no";

static void answer(struct fake_head *head, const Plasmon__V1__Lookup *lookup)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Reply reply = PLASMON__V1__REPLY__INIT, *replies[] = {&reply};
    Plasmon__V1__Failure failure = PLASMON__V1__FAILURE__INIT, *failures[] = {&failure};
    Plasmon__V1__Shape shape = PLASMON__V1__SHAPE__INIT;
    uint64_t dim             = 100;
    bool known               = strcmp(lookup->name, "unknown") != 0;

    shape.dtype     = PLASMON_F32;
    shape.n_dim     = 1;
    shape.dim       = &dim;
    reply.request   = lookup->request;
    reply.status    = known ? PLASMON_OK : PLASMON_ENOENT;
    reply.text      = (char *)(uintptr_t)(known ? "" : "no such name here");
    reply.shape     = known ? &shape : NULL;
    reply.pending   = known && strcmp(lookup->name, there) != 0;
    frame.n_replies = 1;
    frame.replies   = replies;
    if (strcmp(lookup->name, failed_with) == 0) {
        failure.task   = lookup->task;
        failure.status = PLASMON_EFUNCTION;
        failure.text   = (char *)(uintptr_t)why;
        frame.n_failed = 1;
        frame.failed   = failures;
    }
    fake_head_send(head, &frame);
}

static void on_frame(void *user, struct fake_head *head,
                     const Plasmon__V1__ClientFrame *frame)
{
    struct fixture *f = user;

    for (size_t i = 0; i < frame->n_lookup; i++) {
        const Plasmon__V1__Lookup *lookup = frame->lookup[i];

        atomic_store(&f->task, lookup->task);
        if (strcmp(lookup->name, told_before) == 0) {
            fake_head_done(head, lookup->task, 1);
        }
        if (strcmp(lookup->name, failed_before) == 0) {
            fake_head_fail(head, lookup->task, PLASMON_EFUNCTION, why, 0);
        }
        answer(head, lookup);
    }
}

/* value: what reads are answered from; NULL: they are not. */
static void begin_with(struct fixture *f, const uint8_t *value)
{
    struct fake_head_config config = {
        .end_tasks = false, .frame = on_frame, .user = f, .value = value};

    memset(f, 0, sizeof(*f));
    f->head   = fake_head_start(&config);
    f->client = fake_head_client(f->head);
}

static void begin(struct fixture *f)
{
    begin_with(f, NULL);
}

static void end(struct fixture *f)
{
    plasmon_finish(f->client);
    fake_head_stop(f->head);
}

static struct plasmon_ref *look_up(struct fixture *f, const char *name)
{
    struct plasmon_ref *ref = NULL;

    CALL_OK(plasmon_lookup(f->client, name, &ref));
    return ref;
}

static uint64_t task_of(struct fixture *f)
{
    uint64_t task = atomic_load(&f->task);

    ASSERT_TRUE(task != 0);
    return task;
}

static void wait_for(struct fixture *f, struct plasmon_ref *ref)
{
    CALL_OK(plasmon_wait(f->client, &ref, 1, 1, WAIT_MS, NULL, NULL));
}

TEST(what_is_made_is_ready_at_once)
{
    struct fixture f;
    struct plasmon_ref *ref;
    struct ready_calls calls = {0};

    begin(&f);
    ref = look_up(&f, there);
    CALL_OK(plasmon_state(f.client, ref));
    CALL_OK(plasmon_on_ready(f.client, ref, ready_call, &calls));
    ASSERT_EQ(calls.count, 1);
    CALL_OK(plasmon_cancel(f.client, ref)); /* too late is no error */
    fake_head_fail(f.head, task_of(&f), PLASMON_EFUNCTION, why,
                   0); /* nobody waits for it */
    wait_for(&f, ref);
    CALL_OK(plasmon_state(f.client, ref));
    end(&f);
}

TEST(what_is_not_made_is_pending_until_it_is)
{
    struct fixture f;
    struct plasmon_ref *ref;
    struct plasmon_shape shape;
    struct ready_calls calls = {0};
    struct pollfd poller     = {.events = POLLIN};
    int ready                = 9;
    uint32_t count           = 9;
    float data[100];

    begin(&f);
    ref = look_up(&f, late);
    CALL_OK(plasmon_shape_of(f.client, ref, &shape));
    ASSERT_EQ(shape.dim[0], 100);
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_INPROGRESS);
    CALL_OK(plasmon_on_ready(f.client, ref, ready_call, &calls));
    CALL_OK(plasmon_ready_fd(f.client, &poller.fd));
    ASSERT_EQ(poll(&poller, 1, 0), 0);
    ASSERT_STATUS(plasmon_wait(f.client, &ref, 1, 1, 20, &ready, &count),
                  PLASMON_ETIMEDOUT);
    ASSERT_EQ(ready, 0);
    ASSERT_EQ(count, 0);
    ASSERT_STATUS(plasmon_get(f.client, ref, data, sizeof(data), 20), PLASMON_ETIMEDOUT);
    ASSERT_CONTAINS(plasmon_error(f.client), "another client's task is yet to write it");
    ASSERT_EQ(calls.count, 0);

    fake_head_done(f.head, task_of(&f), 1);
    ASSERT_EQ(poll(&poller, 1, WAIT_MS), 1);
    CALL_OK(plasmon_wait(f.client, &ref, 1, 1, WAIT_MS, &ready, &count));
    ASSERT_EQ(ready, 1);
    CALL_OK(plasmon_state(f.client, ref));
    end(&f);
    ASSERT_EQ(calls.count, 1);
    ASSERT_EQ(calls.status, PLASMON_OK);
}

TEST(what_fails_says_what_failed)
{
    struct fixture f;
    struct plasmon_ref *ref;
    struct ready_calls calls = {0};

    begin(&f);
    ref = look_up(&f, late);
    CALL_OK(plasmon_on_ready(f.client, ref, ready_call, &calls));
    fake_head_fail(f.head, task_of(&f), PLASMON_EFUNCTION, why, 0);
    wait_for(&f, ref);
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_EFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client),
                    "what was found under 'late' failed: task 3 'teach'");
    CALL_OK(plasmon_cancel(f.client, ref)); /* too late is no error */
    end(&f);
    ASSERT_EQ(calls.count, 1);
    ASSERT_EQ(calls.status, PLASMON_EFUNCTION);
}

TEST(how_it_ended_may_come_before_the_answer_or_with_it)
{
    struct fixture f;

    begin(&f);
    CALL_OK(plasmon_state(f.client, look_up(&f, told_before)));
    ASSERT_STATUS(plasmon_state(f.client, look_up(&f, failed_before)), PLASMON_EFUNCTION);
    ASSERT_STATUS(plasmon_state(f.client, look_up(&f, failed_with)), PLASMON_EFUNCTION);
    ASSERT_CONTAINS(plasmon_error(f.client), why);
    end(&f);
}

/* That something of it has failed is all that is known here. */
TEST(who_reads_a_part_of_what_failed_asks_the_head)
{
    struct fixture f;
    struct plasmon_ref *part;
    static const uint8_t value[400];
    float data[10];

    begin_with(&f, value);
    part = call_part(f.client, look_up(&f, failed_with), 0, 10);
    ASSERT_STATUS(plasmon_state(f.client, part), PLASMON_EFUNCTION);
    CALL_OK(plasmon_get(f.client, part, data, sizeof(data), WAIT_MS));
    ASSERT_EQ(fake_head_seen(f.head).reads, 1);
    end(&f);
}

TEST(what_is_not_found_leaves_nothing)
{
    struct fixture f;
    struct plasmon_ref *ref = NULL;

    begin(&f);
    ASSERT_STATUS(plasmon_lookup(f.client, "unknown", &ref), PLASMON_ENOENT);
    ASSERT_NULL(ref);
    fake_head_done(f.head, task_of(&f), 1);
    CALL_OK(plasmon_state(f.client, look_up(&f, there)));
    end(&f);
}

TEST(a_ref_that_was_released_is_told_for_nobody)
{
    struct fixture f;
    struct plasmon_ref *ref;

    begin(&f);
    ref = look_up(&f, late);
    CALL_OK(plasmon_release(f.client, ref));
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_ERELEASED);
    fake_head_done(f.head, task_of(&f), 1);
    CALL_OK(plasmon_state(f.client, look_up(&f, there)));
    end(&f);
}

TEST(it_is_not_ours_to_cancel)
{
    struct fixture f;
    struct plasmon_ref *ref, *snapshot;

    begin(&f);
    ref = look_up(&f, late);
    CALL_OK(plasmon_snapshot(f.client, ref, &snapshot));
    ASSERT_STATUS(plasmon_cancel(f.client, ref), PLASMON_EFOREIGN);
    ASSERT_CONTAINS(plasmon_error(f.client), "found under \"late\"");
    ASSERT_STATUS(plasmon_cancel_force(f.client, ref), PLASMON_EFOREIGN);
    ASSERT_STATUS(plasmon_cancel_many(f.client, &ref, 1), PLASMON_EFOREIGN);
    ASSERT_EQ(fake_head_seen(f.head).cancels, 0);
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_INPROGRESS);
    fake_head_done(f.head, 1, 1 << 20);
    wait_for(&f, snapshot);
    end(&f);
}

TEST(views_and_snapshots_of_it_wait_with_it)
{
    struct fixture f;
    struct plasmon_ref *refs[3];
    uint64_t task;

    begin(&f);
    refs[0] = look_up(&f, late);
    task    = task_of(&f);
    refs[1] = call_part(f.client, refs[0], 10, 10);
    CALL_OK(plasmon_snapshot(f.client, refs[0], &refs[2]));
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_tasks, 1);
    fake_head_done(f.head, fake_head_seen(f.head).last_task, 1); /* the snapshot's own */
    ASSERT_STATUS(plasmon_wait(f.client, refs, 3, 1, 20, NULL, NULL), PLASMON_ETIMEDOUT);
    fake_head_done(f.head, task, 1);
    CALL_OK(plasmon_wait(f.client, refs, 3, 3, WAIT_MS, NULL, NULL));
    end(&f);
}

TEST(a_write_of_ones_own_takes_over)
{
    struct fixture f;
    struct plasmon_ref *ref, *ones;
    uint64_t task;

    begin(&f);
    ref  = look_up(&f, late);
    task = task_of(&f);
    ones = call_fill(f.client, NULL, NULL);
    CALL_OK(call_axpy(f.client, ref, ones, NULL));
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_tasks, 2);
    fake_head_done(f.head, task, 1);
    ASSERT_STATUS(plasmon_wait(f.client, &ref, 1, 1, 20, NULL, NULL), PLASMON_ETIMEDOUT);
    CALL_OK(plasmon_cancel(f.client, ref)); /* that one is ours */
    fake_head_wait(f.head, seen_cancels, 1);
    fake_head_done(f.head, 1, 1 << 20);
    wait_for(&f, ref);
    end(&f);
}

TEST(nobody_waits_for_it_at_the_end)
{
    uint64_t least_ns = UINT64_MAX;

    for (int i = 0; i < 5 && least_ns >= 800000000ull; i++) { /* the machine may be busy */
        struct fixture f;
        struct plasmon_ref *ref;
        uint64_t begin_ns;

        begin(&f);
        ref = look_up(&f, late);
        ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_INPROGRESS);
        begin_ns = pl_now_ns();
        end(&f);
        least_ns = pl_min_u64(least_ns, pl_now_ns() - begin_ns);
    }
    ASSERT_TRUE(least_ns < 800000000ull); /* tasks in flight have a second */
}

TEST(it_is_told_over_a_connection_that_came_back)
{
    struct fixture f;
    struct plasmon_ref *ref;

    begin(&f);
    ref = look_up(&f, late);
    fake_head_drop(f.head, false);
    fake_head_done(f.head, task_of(&f), 1); /* into a connection that is gone */
    wait_for(&f, ref);
    CALL_OK(plasmon_state(f.client, ref));
    end(&f);
}

TEST(it_fails_with_the_session)
{
    struct fixture f;
    struct plasmon_ref *ref;

    begin(&f);
    ref = look_up(&f, late);
    fake_head_drop(f.head, true);
    wait_for(&f, ref);
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_EHEADLOST);
    end(&f);
}

TEST_MAIN()
