/*
 * A chain of updates in place on one ref, with a crash at every step of the simulation, and a
 * second one shortly after. Some links of the chain wait for the other device.
 *
 * What the new worker says of what had not begun is held against the simulated device by the
 * simulation itself. Here: a crash costs at most the one link that was running, whose followers
 * then depend on it; nothing else fails, and a chain that lost none has the right value.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "tests/harness/test.h"

enum { LINKS = 5, ELEMENTS = 16, SECOND_MAX = 8 };

struct run {
    struct sim *sim;
    struct sim_answer *answers[LINKS + 1];
    uint64_t ref;
    uint64_t crash_step;   /* relative to the program's begin; 0: none */
    uint64_t second_after; /* steps after the first; 0: none */
    uint64_t begin_step;
    uint32_t crashes;
};

static struct sim_task task_of(struct run *run, const char *function, uint32_t mode,
                               uint64_t ref, uint32_t device)
{
    struct sim_task task = {.id        = sim_client_id(&run->sim->clients[0]),
                            .kind      = PLASMON__V1__TASK_KIND__TASK_RUN,
                            .function  = function,
                            .arg_count = 1,
                            .place     = device + 1,
                            .retries   = 20};

    task.args[0] = (struct sim_arg){.mode = mode, .ref = ref};
    if (mode == PLASMON__V1__MODE__MODE_OUT) {
        task.args[0].shaped = true;
        task.args[0].shape =
            (struct pl_shape){.dtype = PL_F32, .ndim = 1, .dim = {ELEMENTS}};
    }
    return task;
}

static struct sim_answer *fill(struct run *run, uint64_t ref, double value, uint32_t device)
{
    struct sim_task task = task_of(run, "fill", PLASMON__V1__MODE__MODE_OUT, ref, device);

    task.scalars[0].f = value;
    task.scalar_count = 1;
    return sim_client_task(&run->sim->clients[0], &task);
}

/* y = y + a x on device 0. */
static struct sim_answer *update(struct run *run, uint64_t x, double a)
{
    struct sim_task task = task_of(run, "axpy", PLASMON__V1__MODE__MODE_INOUT, run->ref, 0);

    task.args[1]      = (struct sim_arg){.mode = PLASMON__V1__MODE__MODE_IN, .ref = x};
    task.arg_count    = 2;
    task.scalars[0].f = a;
    task.scalar_count = 1;
    return sim_client_task(&run->sim->clients[0], &task);
}

/* Link i adds i. Every third one reads what the other device makes. */
static void program(struct run *run)
{
    struct sim_client *client = &run->sim->clients[0];
    uint64_t ones             = sim_client_id(client);

    run->ref        = sim_client_id(client);
    run->answers[0] = fill(run, run->ref, 1.0, 0);
    (void)fill(run, ones, 1.0, 0);
    for (uint32_t i = 1; i <= LINKS; i++) {
        uint64_t other = i % 3 == 0 ? sim_client_id(client) : 0;

        if (other != 0) {
            (void)fill(run, other, (double)i, 1);
        }
        run->answers[i] =
            update(run, other != 0 ? other : ones, other != 0 ? 1.0 : (double)i);
    }
    sim_client_flush(client);
}

static bool over(void *user)
{
    struct run *run           = user;
    struct sim_worker *victim = sim_worker_of(run->sim, 0);
    uint64_t step             = run->sim->steps - run->begin_step;
    uint64_t due_step         = run->crashes == 0 ? run->crash_step
                                : run->crashes == 1 && run->second_after != 0
                                    ? run->crash_step + run->second_after
                                    : 0;

    if (due_step != 0 && step >= due_step && victim->alive) {
        run->crashes++;
        sim_worker_crash(victim, "crash");
    }
    for (uint32_t i = 0; i <= LINKS; i++) {
        if (!run->answers[i]->answered) {
            return false;
        }
    }
    return true;
}

static void check_value(struct run *run)
{
    struct sim_answer *read =
        sim_client_read(&run->sim->clients[0], run->ref, NULL, ELEMENTS * sizeof(float));
    float values[ELEMENTS];

    sim_client_flush(&run->sim->clients[0]);
    sim_settle(run->sim);
    ASSERT_TRUE(read->answered);
    ASSERT_STATUS(read->status, PLASMON_OK);
    ASSERT_EQ(read->length, sizeof(values));
    memcpy(values, read->data, sizeof(values));
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        ASSERT_TRUE(values[i] == 1 + LINKS * (LINKS + 1) / 2);
    }
}

/* How many links were lost to a crash, themselves. */
static uint32_t lost_links(const struct run *run)
{
    uint32_t consumed = 0;

    for (uint32_t i = 0; i <= LINKS; i++) {
        const struct sim_answer *answer = run->answers[i];

        if (answer->status == PLASMON_ECONSUMED) {
            consumed++;
        } else if (answer->status != PLASMON_OK) {
            ASSERT_STATUS(answer->status, PLASMON_EDEPENDENCY);
            ASSERT_TRUE(consumed != 0); /* an earlier link is lost */
        }
    }
    return consumed;
}

/* Returns false when the program was over before the crash came. */
static bool play(uint64_t seed, uint64_t crash_step, uint64_t second_after,
                 uint32_t *io_lost, uint32_t *io_spared)
{
    struct sim_config config = {.seed         = seed,
                                .devices      = 2,
                                .clients      = 1,
                                .run_streams  = 2,
                                .policy       = "locality",
                                .peer_capable = true,
                                .retries      = 20,
                                .check_every  = 1};
    struct run run           = {.crash_step = crash_step, .second_after = second_after};
    uint32_t lost;

    ASSERT_OK(sim_create(&config, &run.sim));
    run.begin_step = run.sim->steps;
    program(&run);
    if (!sim_run_until(run.sim, over, &run)) {
        test_fail(__FILE__, __LINE__, "seed %llu, crash at %llu and %llu later: %s",
                  (unsigned long long)seed, (unsigned long long)crash_step,
                  (unsigned long long)second_after, run.sim->failure);
    }
    lost = lost_links(&run);
    ASSERT_TRUE(lost <= 1); /* whoever it is, the others depend on it */
    *io_lost += lost;
    *io_spared += run.crashes != 0 && lost == 0;
    if (lost == 0) {
        check_value(&run);
    }
    sim_destroy(run.sim);
    return run.crashes != 0;
}

/* Even seeds are devices that tell each begin, odd ones those that tell a few. */
static void crash_everywhere(uint64_t seed, uint32_t *out_lost, uint32_t *out_spared)
{
    uint32_t lost = 0, spared = 0;
    uint64_t step;

    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (step = 1; play(seed, step, 0, &lost, &spared); step++) {
    }
    printf("# seed %llu: %llu steps, a link lost at %u of them\n", (unsigned long long)seed,
           (unsigned long long)step, lost);
    ASSERT_TRUE(step > LINKS);
    *out_lost   = lost;
    *out_spared = spared;
}

TEST(a_crash_at_any_step_costs_at_most_the_link_that_was_running)
{
    uint32_t lost_all = 0, spared_all = 0, lost_few = 0, spared_few = 0, lost, spared;

    for (uint64_t seed = 2; seed < 4; seed++) {
        crash_everywhere(seed, &lost, &spared);
        *(seed % 2 == 0 ? &lost_all : &lost_few) += lost;
        *(seed % 2 == 0 ? &spared_all : &spared_few) += spared;
    }
    ASSERT_TRUE(lost_all > 0 && spared_all > 0 && lost_few > 0 && spared_few > 0);
}

TEST(a_second_crash_before_anybody_heard_of_the_first_changes_nothing)
{
    uint32_t lost = 0, spared = 0;

    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t after = 1; after <= SECOND_MAX; after *= 2) {
        for (uint64_t step = 1; play(2, step, after, &lost, &spared); step++) {
        }
    }
    ASSERT_TRUE(lost > 0 && spared > 0);
}

TEST_MAIN()
