/*
 * A death among three transfers of one lane, which random programs come to now and then, on purpose:
 *
 *   order   device A      device B      device C      device D
 *   5       send to B     receive
 *   7                     send to C     receive
 *   8                                   open          open            C has nothing on it for that: 7 must be over
 *   10      send to C                   receive
 *   12      send to B     receive
 *
 * B's worker dies about when A has all three on its lane: A's 12 lies behind 10, which C takes after 7, which needs 5 to come again. The copies
 * have no side effects, so every one of them must end well, whenever that is.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "tests/harness/test.h"

enum { A, B, C, D, DEVICES, SEEDS = 150, FOUND = 3 };

struct play {
    struct sim *sim;
    struct sim_client *client;
    struct pl_vec answers; /* struct sim_answer * */
};

/* out = like(in) on that device; in 0: out is made. */
static uint64_t run(struct play *play, uint32_t device, uint64_t in)
{
    const struct pl_shape shape = {.dtype = PL_I64, .ndim = 1, .dim = {64}};
    struct sim_task task        = {.id        = sim_client_id(play->client),
                                   .kind      = PLASMON__V1__TASK_KIND__TASK_RUN,
                                   .function  = in == 0 ? "fill_int" : "copy",
                                   .place     = device + 1,
                                   .retries   = 20,
                                   .arg_count = in == 0 ? 1 : 2};
    struct sim_answer **place   = pl_vec_push(&play->answers);

    PL_CHECK(place != NULL);
    task.args[0]      = (struct sim_arg){.mode   = KERNEL_OUT,
                                         .ref    = sim_client_id(play->client),
                                         .shaped = true,
                                         .shape  = shape};
    task.args[1]      = (struct sim_arg){.mode = KERNEL_IN, .ref = in};
    task.scalars[0].i = 7;
    task.scalar_count = in == 0;
    *place            = sim_client_task(play->client, &task);
    return task.args[0].ref;
}

static bool all_answered(void *user)
{
    const struct play *play = user;

    return play->client->waiting == 0;
}

static bool finish(struct play *play)
{
    sim_client_flush(play->client);
    if (!sim_run_until(play->sim, all_answered, play)) {
        return false;
    }
    for (size_t i = 0; i < play->answers.count; i++) {
        const struct sim_answer *answer =
            *(struct sim_answer **)pl_vec_at(&play->answers, i);

        if (answer->status != PLASMON_OK) {
            sim_fail(play->sim, "copy %zu: %s", i, answer->text);
        }
    }
    return !play->sim->failed;
}

static void die(void *user, uint64_t arg, void *data)
{
    (void)arg;
    (void)data;
    sim_worker_crash(user, "for the test");
}

static bool play(struct play *play)
{
    struct sim *sim = play->sim;
    uint64_t made[3], there;

    /* The pairs that are there, and what they carry. */
    for (uint32_t i = 0; i < 3; i++) {
        made[i] = run(play, A, 0);
    }
    (void)run(play, B, run(play, A, 0));
    (void)run(play, C, run(play, B, 0));
    (void)run(play, C, run(play, A, 0));
    there = run(play, D, 0);
    if (!finish(play)) {
        return false;
    }

    (void)run(play, C, run(play, B, made[0])); /* 5, 7 */
    (void)run(play, C, there);                 /* 8 and a transfer by it */
    (void)run(play, C, made[1]);               /* 10 */
    (void)run(play, B, made[2]);               /* 12 */
    sim_client_flush(play->client);
    sim_after(sim, sim_between(sim, 10000, 900000), die, sim_worker_of(sim, B), 0, NULL);
    return finish(play);
}

static bool seed_plays(uint64_t seed, bool say)
{
    const struct sim_config config = {.seed        = seed * 0x9e3779b97f4a7c15u + 1,
                                      .devices     = DEVICES,
                                      .clients     = 1,
                                      .run_streams = 2,
                                      .policy      = "locality",
                                      .transfer    = HEAD_TRANSFER_NCCL,
                                      .retries     = 20,
                                      .check_every = 20};
    struct play it                 = {.answers = PL_VEC_INIT(struct sim_answer *)};
    bool well                      = sim_create(&config, &it.sim) == PLASMON_OK;

    it.client = &it.sim->clients[0];
    well      = well && play(&it);
    if (!well && say) {
        printf("# seed %llu: %s\n", (unsigned long long)seed, it.sim->failure);
    }
    sim_destroy(it.sim);
    pl_vec_finish(&it.answers);
    return well;
}

TEST(a_death_among_three_transfers_of_one_lane_hangs_nobody)
{
    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ASSERT_TRUE(seed_plays(seed, true));
    }
}

TEST(that_finds_halves_that_wait_for_all_of_their_pair)
{
    int status = 0;
    pid_t child;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    test_set_timeout(300);
    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        pl_log_set_sink(NULL, NULL);
        pl_bug_arm("transfer.stage_whole");
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            if (!seed_plays(seed, false)) {
                printf("# found by seed %llu\n", (unsigned long long)seed);
                (void)fflush(stdout);
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    ASSERT_TRUE(waitpid(child, &status, 0) == child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), FOUND);
}

TEST_MAIN()
