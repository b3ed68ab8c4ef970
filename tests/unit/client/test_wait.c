/* Waiting: k of n, time-outs, failures and their texts, callbacks, the descriptor, cancelling. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/harness/ready_calls.h"
#include "tests/unit/client/calls.h"
#include "tests/unit/client/fake_head.h"

struct fixture {
    struct fake_head *head;
    struct plasmon_client *client;
};

static struct fixture begin(void)
{
    struct fake_head_config config = {.end_tasks = false};
    struct fixture fixture         = {.head = fake_head_start(&config)};

    fixture.client = fake_head_client(fixture.head);
    return fixture;
}

static void end(struct fixture *f)
{
    fake_head_done(f->head, 1,
                   1u << 20); /* whatever is left, so that finish need not wait */
    plasmon_finish(f->client);
    fake_head_stop(f->head);
}

/* Submit a fill and find out its task's id. */
static struct plasmon_ref *fill_known(struct fixture *f, const char *label,
                                      uint64_t *out_task)
{
    uint64_t before         = fake_head_seen(f->head).tasks;
    struct plasmon_ref *ref = call_fill(f->client, label, NULL);

    CALL_OK(plasmon_flush(f->client));
    fake_head_wait(f->head, seen_tasks, before + 1);
    *out_task = fake_head_seen(f->head).last_task;
    return ref;
}

TEST(wait_returns_when_enough_are_ready)
{
    struct fixture f = begin();
    struct plasmon_ref *refs[3];
    uint64_t tasks[3];
    int ready[3]   = {9, 9, 9};
    uint32_t count = 9;

    for (int i = 0; i < 3; i++) {
        refs[i] = fill_known(&f, NULL, &tasks[i]);
    }
    ASSERT_STATUS(plasmon_wait(f.client, refs, 3, 1, 0, ready, &count), PLASMON_ETIMEDOUT);
    ASSERT_EQ(count, 0);
    fake_head_done(f.head, tasks[1], 1);
    CALL_OK(plasmon_wait(f.client, refs, 3, 1, 10000, ready, &count));
    ASSERT_EQ(count, 1);
    ASSERT_EQ(ready[0], 0);
    ASSERT_EQ(ready[1], 1);
    fake_head_fail(f.head, tasks[2], PLASMON_EFUNCTION, "no", tasks[2]);
    CALL_OK(plasmon_wait(f.client, refs, 3, 2, 10000, ready, &count));
    ASSERT_EQ(ready[2], PLASMON_EFUNCTION);
    ASSERT_STATUS(plasmon_wait(f.client, refs, 3, 4, 0, NULL, NULL), PLASMON_EINVAL);
    end(&f);
}

TEST(a_time_out_takes_as_long_as_it_says)
{
    struct fixture f = begin();
    uint64_t task, begin_ns;
    struct plasmon_ref *ref = fill_known(&f, NULL, &task);
    float data[100];

    begin_ns = pl_now_ns();
    ASSERT_STATUS(plasmon_get(f.client, ref, data, sizeof(data), 200), PLASMON_ETIMEDOUT);
    ASSERT_TRUE(pl_now_ns() - begin_ns >= 200000000ull);
    ASSERT_TRUE(pl_now_ns() - begin_ns < 5000000000ull);
    ASSERT_STATUS(plasmon_get(f.client, ref, data, sizeof(data), 0), PLASMON_ETIMEDOUT);
    ASSERT_STATUS(plasmon_state(f.client, ref), PLASMON_INPROGRESS);
    end(&f);
}

/* Else one looks for the task, and it is not the task. */
TEST(a_time_out_says_that_the_head_is_not_there)
{
    struct fixture f = begin();
    uint64_t task;
    struct plasmon_ref *ref = fill_known(&f, NULL, &task);
    float data[100];
    bool said = false;

    fake_head_stop(f.head);
    for (uint32_t i = 0; i < 100 && !said; i++) { /* until the connection has ended */
        ASSERT_STATUS(plasmon_get(f.client, ref, data, sizeof(data), 100),
                      PLASMON_ETIMEDOUT);
        said =
            strstr(plasmon_error(f.client), "without a connection to the head for") != NULL;
    }
    ASSERT_CONTAINS(plasmon_error(f.client), "without a connection to the head for");
    plasmon_finish(f.client);
}

TEST(a_failure_says_which_task_and_which_was_first)
{
    struct fixture f = begin();
    uint64_t first, second;
    struct plasmon_ref *x = fill_known(&f, "make x", &first);
    char want[64];
    float data[100];

    CALL_OK(call_axpy(f.client, x, fill_known(&f, NULL, &second), NULL));
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_tasks, 3);
    second = fake_head_seen(f.head).last_task;
    fake_head_fail(f.head, first, PLASMON_EFUNCTION, "on device 1: illegal access", first);
    fake_head_fail(f.head, second, PLASMON_EDEPENDENCY, "its input failed", first);
    CALL_OK(plasmon_wait(f.client, &x, 1, 1, 10000, NULL,
                         NULL)); /* else it asks the fake, which does not answer */
    ASSERT_STATUS(plasmon_get(f.client, x, data, sizeof(data), 10000), PLASMON_EDEPENDENCY);
    (void)snprintf(want, sizeof(want), "task %llu (axpy) failed: its input failed",
                   (unsigned long long)second);
    ASSERT_CONTAINS(plasmon_error(f.client), want);
    (void)snprintf(want, sizeof(want), "first failing task is task %llu 'make x' (fill)",
                   (unsigned long long)first);
    ASSERT_CONTAINS(plasmon_error(f.client), want);
    end(&f);
}

TEST(a_view_is_ready_before_the_rest)
{
    struct fixture f = begin();
    uint64_t made, other, updated;
    struct plasmon_ref *x    = fill_known(&f, NULL, &made);
    struct plasmon_ref *y    = fill_known(&f, NULL, &other);
    struct plasmon_ref *low  = call_part(f.client, x, 0, 50);
    struct plasmon_ref *high = call_part(f.client, x, 50, 50);

    CALL_OK(call_axpy(f.client, high, call_part(f.client, y, 0, 50), NULL));
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_tasks, 3);
    updated = fake_head_seen(f.head).last_task;
    fake_head_done(f.head, made, 1);
    CALL_OK(plasmon_wait(f.client, &low, 1, 1, 10000, NULL, NULL));
    ASSERT_STATUS(plasmon_state(f.client, high), PLASMON_INPROGRESS);
    ASSERT_STATUS(plasmon_state(f.client, x), PLASMON_INPROGRESS);
    fake_head_done(f.head, updated, 1);
    CALL_OK(plasmon_wait(f.client, &x, 1, 1, 10000, NULL, NULL));
    end(&f);
}

TEST(a_task_is_a_ref_that_can_be_waited_for)
{
    struct fixture f         = begin();
    struct plasmon_ref *task = NULL, *x;
    float data[100];

    x = call_fill(f.client, NULL, &task);
    ASSERT_NOT_NULL(task);
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_tasks, 1);
    ASSERT_STATUS(plasmon_state(f.client, task), PLASMON_INPROGRESS);
    ASSERT_STATUS(plasmon_get(f.client, task, data, sizeof(data), 0), PLASMON_EINVAL);
    fake_head_done(f.head, fake_head_seen(f.head).last_task, 1);
    CALL_OK(plasmon_wait(f.client, &task, 1, 1, 10000, NULL, NULL));
    CALL_OK(plasmon_release(f.client, x));
    CALL_OK(plasmon_release(f.client, task));
    CALL_OK(plasmon_flush(f.client));
    fake_head_wait(f.head, seen_releases, 1);
    ASSERT_EQ(fake_head_seen(f.head).releases,
              1); /* a task is nothing the head must let go */
    end(&f);
}

TEST(a_callback_is_called_once)
{
    struct fixture f           = begin();
    struct ready_calls pending = {0}, ready = {0}, released = {0};
    uint64_t task, other;
    struct plasmon_ref *x = fill_known(&f, NULL, &task), *y = fill_known(&f, NULL, &other);

    CALL_OK(plasmon_on_ready(f.client, x, ready_call, &pending));
    CALL_OK(plasmon_on_ready(f.client, y, ready_call, &released));
    ASSERT_EQ(atomic_load(&pending.count), 0);
    fake_head_fail(f.head, task, PLASMON_ECANCELLED, "", task);
    CALL_OK(plasmon_wait(f.client, &x, 1, 1, 10000, NULL, NULL));
    CALL_OK(plasmon_on_ready(f.client, x, ready_call,
                             &ready)); /* decided already: in this call */
    ASSERT_EQ(atomic_load(&ready.count), 1);
    ASSERT_EQ(atomic_load(&ready.status), PLASMON_ECANCELLED);
    CALL_OK(plasmon_release(f.client, y));
    ASSERT_EQ(atomic_load(&released.count), 1);
    ASSERT_EQ(atomic_load(&released.status), PLASMON_ERELEASED);
    end(&f); /* joins the library's thread */
    ASSERT_EQ(atomic_load(&pending.count), 1);
    ASSERT_EQ(atomic_load(&pending.status), PLASMON_ECANCELLED);
}

TEST(the_descriptor_is_readable_when_something_became_ready)
{
    struct fixture f = begin();
    uint64_t task, value;
    struct pollfd poller = {.events = POLLIN};
    struct plasmon_ref *x;

    CALL_OK(plasmon_ready_fd(f.client, &poller.fd));
    x = fill_known(&f, NULL, &task);
    ASSERT_EQ(poll(&poller, 1, 0), 0);
    fake_head_done(f.head, task, 1);
    ASSERT_EQ(poll(&poller, 1, 10000), 1);
    ASSERT_EQ(read(poller.fd, &value, sizeof(value)), (ssize_t)sizeof(value));
    ASSERT_EQ(poll(&poller, 1, 0), 0);
    CALL_OK(plasmon_state(f.client, x));
    end(&f);
}

TEST(cancel_names_the_task_that_makes_the_ref)
{
    struct fixture f = begin();
    uint64_t task;
    struct plasmon_ref *x = fill_known(&f, NULL, &task);

    CALL_OK(plasmon_cancel(f.client, x));
    fake_head_wait(f.head, seen_cancels, 1);
    fake_head_fail(f.head, task, PLASMON_ECANCELLED, "cancelled", task);
    CALL_OK(plasmon_wait(f.client, &x, 1, 1, 10000, NULL, NULL));
    ASSERT_STATUS(plasmon_state(f.client, x), PLASMON_ECANCELLED);
    CALL_OK(plasmon_cancel(f.client, x)); /* too late: no error, and no message */
    ASSERT_EQ(fake_head_seen(f.head).cancels, 1);
    end(&f);
}

TEST(a_snapshot_fails_with_what_it_was_taken_of)
{
    struct fixture f = begin();
    uint64_t task, snap;
    struct plasmon_ref *x = fill_known(&f, NULL, &task), *copy, *again;

    CALL_OK(plasmon_snapshot(f.client, x, &copy));
    fake_head_wait(f.head, seen_tasks, 2);
    snap = fake_head_seen(f.head).last_task;
    fake_head_done(f.head, snap, 1); /* the name is there; the bytes are not */
    again = fill_known(&f, NULL, &snap);
    fake_head_done(f.head, snap, 1);
    CALL_OK(plasmon_wait(f.client, &again, 1, 1, 10000, NULL, NULL));
    ASSERT_STATUS(plasmon_state(f.client, copy), PLASMON_INPROGRESS);
    fake_head_fail(f.head, task, PLASMON_EDEVICE, "broken", task);
    CALL_OK(plasmon_wait(f.client, &copy, 1, 1, 10000, NULL, NULL));
    ASSERT_STATUS(plasmon_state(f.client, copy), PLASMON_EDEVICE);
    end(&f);
}

static void *wait_for_it(void *user)
{
    struct plasmon_ref *ref = ((void **)user)[1];

    return (void *)(intptr_t)plasmon_wait(((void **)user)[0], &ref, 1, 1, 10000, NULL,
                                          NULL);
}

TEST(many_threads_may_wait_for_one_ref)
{
    struct fixture f = begin();
    uint64_t task;
    struct plasmon_ref *x = fill_known(&f, NULL, &task);
    void *what[]          = {f.client, x};
    pthread_t threads[8];

    for (int i = 0; i < 8; i++) {
        ASSERT_EQ(pthread_create(&threads[i], NULL, wait_for_it, what), 0);
    }
    fake_head_done(f.head, task, 1);
    for (int i = 0; i < 8; i++) {
        void *result;

        ASSERT_EQ(pthread_join(threads[i], &result), 0);
        ASSERT_EQ((intptr_t)result, PLASMON_OK);
    }
    end(&f);
}

TEST_MAIN()
