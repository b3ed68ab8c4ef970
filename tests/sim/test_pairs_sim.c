/*
 * What random programs come to now and then, on purpose. A source that is gone for good, while
 * another copy is there; by every route. One sender and several receivers. And a death among three
 * transfers of one lane:
 *
 *   order   device A      device B      device C      device D
 *   5       send to B     receive
 *   7                     send to C     receive
 *   8                                   open          open            C has nothing on it for that: 7 must be over
 *   10      send to C                   receive
 *   12      send to B     receive
 *
 * B's worker dies about when A has all three on its lane: A's 12 lies behind 10, which C takes
 * after 7, which needs 5 to come again. The copies have no side effects, so every one of them must
 * end well, whenever that is.
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

/* -------------------------------------------------------- one sender, several receivers */

/*
 * Objects of A, each read by one of the others, two a reader, while somebody dies. How many
 * transfers of A were under way at once; 0: failed.
 */
static uint32_t sends_at_once(uint64_t seed)
{
    const struct sim_config config = {.seed        = seed * 0x9e3779b97f4a7c15u + 1,
                                      .devices     = DEVICES,
                                      .clients     = 1,
                                      .run_streams = 2,
                                      .policy      = "locality",
                                      .transfer    = HEAD_TRANSFER_HOST,
                                      .retries     = 20,
                                      .check_every = 20};
    struct play it                 = {.answers = PL_VEC_INIT(struct sim_answer *)};
    bool well                      = sim_create(&config, &it.sim) == PLASMON_OK;
    uint64_t made[6];
    uint32_t at_once;

    it.client = &it.sim->clients[0];
    for (uint32_t i = 0; i < 6; i++) {
        made[i] = run(&it, A, 0);
    }
    well = well && finish(&it);
    for (uint32_t i = 0; i < 6; i++) {
        (void)run(&it, B + i % 3, made[i]);
    }
    sim_client_flush(it.client);
    sim_after(it.sim, sim_between(it.sim, 10000, 600000), die,
              sim_worker_of(it.sim, (uint32_t)sim_between(it.sim, A, D)), 0, NULL);
    well    = well && finish(&it);
    at_once = well ? it.sim->sends_at_once : 0;
    if (!well) {
        printf("# seed %llu: %s\n", (unsigned long long)seed, it.sim->failure);
    }
    sim_destroy(it.sim);
    pl_vec_finish(&it.answers);
    return at_once;
}

TEST(transfers_of_one_device_to_several_are_under_way_at_once)
{
    uint32_t most = 0;

    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint32_t at_once = sends_at_once(seed);

        ASSERT_TRUE(at_once > 0);
        most = at_once > most ? at_once : most;
    }
    ASSERT_EQ(most, 3);
}

/* ---------------------------------------------------------------- a source that is gone */

static uint64_t put(struct play *play, uint32_t device)
{
    static const int64_t bytes[64] = {[0] = 7, [63] = 11};
    struct sim_task task           = {.id          = sim_client_id(play->client),
                                      .kind        = PLASMON__V1__TASK_KIND__TASK_PUT,
                                      .place       = device + 1,
                                      .data        = (const uint8_t *)bytes,
                                      .data_length = sizeof(bytes),
                                      .arg_count   = 1};
    struct sim_answer **place      = pl_vec_push(&play->answers);

    PL_CHECK(place != NULL);
    task.args[0] = (struct sim_arg){.mode   = KERNEL_OUT,
                                    .ref    = sim_client_id(play->client),
                                    .shaped = true,
                                    .shape  = {.dtype = PL_I64, .ndim = 1, .dim = {64}}};
    *place       = sim_client_task(play->client, &task);
    return task.args[0].ref;
}

static void leave(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)data;
    sim->gone_count++;
    sim_worker_gone(sim_worker_of(sim, (uint32_t)arg));
}

/*
 * Objects that were put on A, copied to B, and are read on C and D while A or B goes for good:
 * nothing can make them again, but one copy is left.
 */
static bool copy_is_found(uint64_t seed, enum head_transfer transfer)
{
    const struct sim_config config = {.seed          = seed * 0x9e3779b97f4a7c15u + 1,
                                      .devices       = DEVICES,
                                      .clients       = 1,
                                      .run_streams   = 2,
                                      .policy        = "locality",
                                      .peer_capable  = true,
                                      .lineage_bytes = 1 << 20,
                                      .transfer      = transfer,
                                      .retries       = 20,
                                      .check_every   = 20};
    struct play it                 = {.answers = PL_VEC_INIT(struct sim_answer *)};
    bool well                      = sim_create(&config, &it.sim) == PLASMON_OK;
    uint64_t refs[8];

    it.client = &it.sim->clients[0];
    for (uint32_t i = 0; i < 8; i++) {
        refs[i] = put(&it, A);
        (void)run(&it, B, refs[i]);
    }
    well = well && finish(&it);
    for (uint32_t i = 0; well && i < 8; i++) {
        (void)run(&it, i % 2 == 0 ? C : D, refs[i]);
    }
    sim_client_flush(it.client);
    sim_after(it.sim, sim_between(it.sim, 5000, 600000), leave, it.sim,
              sim_chance(it.sim, 500) ? A : B, NULL);
    well = well && finish(&it);
    if (!well) {
        printf("# seed %llu, transfer %d: %s\n", (unsigned long long)seed, (int)transfer,
               it.sim->failure);
    }
    sim_destroy(it.sim);
    pl_vec_finish(&it.answers);
    return well;
}

TEST(a_reader_whose_source_is_gone_takes_another_copy)
{
    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ASSERT_TRUE(copy_is_found(seed, HEAD_TRANSFER_AUTO));
        ASSERT_TRUE(copy_is_found(seed, HEAD_TRANSFER_HOST));
        ASSERT_TRUE(copy_is_found(seed, HEAD_TRANSFER_NCCL));
    }
}

/* ---------------------------------------------------------------- a head that is killed */

static bool quiet(void *user)
{
    return sim_journal_quiet(user);
}

/* Pairs that were open when a checkpoint was made carry on for the head that is made from it. */
static bool pairs_go_on(uint64_t seed)
{
    const struct sim_config config = {.seed        = seed * 0x9e3779b97f4a7c15u + 1,
                                      .devices     = DEVICES,
                                      .clients     = 1,
                                      .run_streams = 2,
                                      .policy      = "locality",
                                      .transfer    = HEAD_TRANSFER_NCCL,
                                      .retries     = 20,
                                      .journal     = true,
                                      .check_every = 20};
    struct play it                 = {.answers = PL_VEC_INIT(struct sim_answer *)};
    bool well                      = sim_create(&config, &it.sim) == PLASMON_OK;
    uint64_t made[4];

    it.client = &it.sim->clients[0];
    for (uint32_t i = 0; i < 4; i++) {
        made[i] = run(&it, i, 0);
        (void)run(&it, (i + 1) % 4, made[i]);
    }
    well = well && finish(&it) && sim_run_until(it.sim, quiet, it.sim) &&
           sim_journal_checkpoint(it.sim) && it.sim->head_process.checkpoints_pairs > 0;
    if (well) {
        sim_head_crash(it.sim);
        for (uint32_t i = 0; i < 4; i++) {
            (void)run(&it, (i + 1) % 4, made[i]); /* lies there already */
            (void)run(&it, (i + 1) % 4, run(&it, i, 0));
            (void)run(&it, (i + 2) % 4, made[i]);
        }
        well = finish(&it);
    }
    if (well) {
        sim_journal_check(it.sim);
        well = !it.sim->failed;
    }
    if (!well) {
        printf("# seed %llu: %s\n", (unsigned long long)seed, it.sim->failure);
    }
    sim_destroy(it.sim);
    pl_vec_finish(&it.answers);
    return well;
}

TEST(pairs_are_in_checkpoints)
{
    test_set_timeout(300);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ASSERT_TRUE(pairs_go_on(seed));
    }
}

TEST_MAIN()
