/*
 * Who waits in this library hears of the end of the session, whatever for and however it ends: the
 * table of waits in docs/failure.md. A head that never answers, and then has forgotten the session,
 * or is gone for good.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/clock.h"
#include "client/client_int.h"
#include "tests/harness/test.h"
#include "tests/unit/client/calls.h"
#include "tests/unit/client/fake_head.h"

#define NS_PER_S UINT64_C(1000000000)

struct scene {
    struct plasmon_client *client;
    struct plasmon_ref *ref;
    atomic_int begun;
    atomic_int called_back; /* the status that a callback got */
};

static plasmon_status_t wait_for_all(struct scene *scene)
{
    return plasmon_get(scene->client, scene->ref, (float[100]){0}, 400, PLASMON_FOREVER);
}

/* A wait that says how many are decided returns OK, and what each came to. */
static plasmon_status_t wait_for_one(struct scene *scene)
{
    int ready = 0;
    plasmon_status_t status =
        plasmon_wait(scene->client, &scene->ref, 1, 1, PLASMON_FOREVER, &ready, NULL);

    return status == PLASMON_OK ? (plasmon_status_t)ready : status;
}

static plasmon_status_t submit_without_credit(struct scene *scene)
{
    struct plasmon_arg arg   = {.mode = PLASMON_OUT, .shape = &call_vector};
    plasmon_scalar_t value   = {.f = 1};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *made;
    plasmon_status_t status;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &value;
    call.scalar_count = 1;
    do {
        status = plasmon_submit(scene->client, &call, &made, NULL);
    } while (status == PLASMON_OK);
    return status;
}

static plasmon_status_t look_up(struct scene *scene)
{
    struct plasmon_ref *found;

    return plasmon_lookup(scene->client, "a name", &found);
}

static plasmon_status_t wait_for_the_descriptor(struct scene *scene)
{
    struct pollfd ready     = {.events = POLLIN};
    plasmon_status_t status = plasmon_ready_fd(scene->client, &ready.fd);

    if (status == PLASMON_OK && poll(&ready, 1, -1) == 1) {
        status = plasmon_state(scene->client, scene->ref);
    }
    return status;
}

static plasmon_status_t wait_for_a_call_back(struct scene *scene)
{
    while (atomic_load(&scene->called_back) == PLASMON_OK) {
        (void)poll(NULL, 0, 10);
    }
    return (plasmon_status_t)atomic_load(&scene->called_back);
}

static void called_back(void *user, plasmon_status_t status)
{
    struct scene *scene = user;

    atomic_store(&scene->called_back, (int)status);
}

static const struct {
    const char *what;
    plasmon_status_t (*run)(struct scene *scene);
} waits[] = {
    {"get", wait_for_all},
    {"wait", wait_for_one},
    {"submit", submit_without_credit},
    {"lookup", look_up},
    {"ready_fd", wait_for_the_descriptor},
    {"on_ready", wait_for_a_call_back},
};

struct one_wait {
    struct scene *scene;
    size_t index;
    pthread_t thread;
};

static void *wait_main(void *user)
{
    struct one_wait *one = user;

    (void)atomic_fetch_add(&one->scene->begun, 1);
    return (void *)(intptr_t)waits[one->index].run(one->scene);
}

static bool seen_waits(const struct fake_head_seen *seen, uint64_t value)
{
    return seen->tasks >= value && seen->lookups >= 1 && seen->locates + seen->reads >= 1;
}

/* Who asks for the first time now does not wait, either. */
static void expect_told(struct scene *scene)
{
    struct plasmon_ref *unused;
    struct pollfd ready = {.events = POLLIN};

    CALL_OK(plasmon_ready_fd(scene->client, &ready.fd));
    ASSERT_EQ(poll(&ready, 1, 0), 1);
    ASSERT_TRUE(plasmon_lookup(scene->client, "another", &unused) != PLASMON_OK);
    ASSERT_TRUE(plasmon_get(scene->client, scene->ref, (float[100]){0}, 400,
                            PLASMON_FOREVER) != PLASMON_OK);
}

/* All of them at once, until `end` has ended the session; each hears `status`, within so many seconds. */
static void expect_all_end(void (*end)(struct fake_head *head), plasmon_status_t status,
                           uint32_t seconds_min, uint32_t seconds_max)
{
    struct fake_head_config config = {.credit = 2};
    struct fake_head *head         = fake_head_start(&config);
    struct scene scene             = {.client = fake_head_client(head)};
    struct one_wait all[PL_COUNT(waits)];
    uint64_t began_ns, took_ns;

    scene.ref = call_fill(scene.client, NULL, NULL);
    CALL_OK(plasmon_on_ready(scene.client, scene.ref, called_back, &scene));
    for (size_t i = 0; i < PL_COUNT(waits); i++) {
        all[i] = (struct one_wait){.scene = &scene, .index = i};
        ASSERT_EQ(pthread_create(&all[i].thread, NULL, wait_main, &all[i]), 0);
    }
    fake_head_wait(head, seen_waits, 2);
    began_ns = pl_now_ns();
    end(head);
    for (size_t i = 0; i < PL_COUNT(waits); i++) {
        void *result;

        ASSERT_EQ(pthread_join(all[i].thread, &result), 0);
        if ((plasmon_status_t)(intptr_t)result != status) {
            test_fail(__FILE__, __LINE__, "%s ended with %d, not with %d", waits[i].what,
                      (int)(intptr_t)result, (int)status);
        }
    }
    took_ns = pl_now_ns() - began_ns;
    expect_told(&scene);
    ASSERT_TRUE(took_ns >= seconds_min * NS_PER_S);
    ASSERT_TRUE(took_ns < seconds_max * NS_PER_S);
    plasmon_finish(scene.client);
    if (status != PLASMON_ECLOSED) {
        fake_head_stop(head);
    }
}

static void forget(struct fake_head *head)
{
    fake_head_drop(head, true);
}

TEST(every_wait_ends_when_the_head_has_forgotten_the_session)
{
    expect_all_end(forget, PLASMON_EHEADLOST, 0, 20);
}

/* Nobody comes back at its address. */
TEST(every_wait_ends_when_no_head_comes_back)
{
    test_set_timeout(120);
    expect_all_end(fake_head_stop, PLASMON_ECLOSED, RECONNECT_MS / 1000 - 1,
                   RECONNECT_MS / 1000 + 30);
}

TEST(a_descriptor_that_is_asked_for_when_all_is_over_is_readable)
{
    struct fake_head_config config = {.credit = 2};
    struct fake_head *head         = fake_head_start(&config);
    struct plasmon_client *client  = fake_head_client(head);
    struct plasmon_ref *ref        = call_fill(client, NULL, NULL);
    struct pollfd ready            = {.events = POLLIN};

    fake_head_wait(head, seen_tasks, 1);
    fake_head_drop(head, true);
    ASSERT_STATUS(plasmon_get(client, ref, (float[100]){0}, 400, PLASMON_FOREVER),
                  PLASMON_EHEADLOST);
    CALL_OK(plasmon_ready_fd(client, &ready.fd));
    ASSERT_EQ(poll(&ready, 1, 0), 1);
    plasmon_finish(client);
    fake_head_stop(head);
}

TEST_MAIN()
