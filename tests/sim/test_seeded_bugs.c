/*
 * Would the random programs find it? Bugs are armed one by one in the head and in the worker, and
 * the random programs must notice each within a few hundred. How they notice is up to them: a wrong
 * value, a broken invariant, a use of freed memory, a run that does not end.
 */
#include "tests/sim/graph.h"

#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "tests/harness/test.h"

enum { GRAPHS_MAX = 400, FIRST_SEED = 1, FOUND = 3, NOT_FOUND = 0, SECONDS_MAX = 60 };

static const struct graph_profile profile = {.devices_min     = 1,
                                             .devices_max     = 4,
                                             .steps_min       = 30,
                                             .steps_max       = 80,
                                             .crash_permille  = 250,
                                             .break_permille  = 100,
                                             .scarce_permille = 50,
                                             .check_every     = 100};

/* For bugs about launches that must not go on; crashes and breaks would hide some of them. */
static const struct graph_profile with_limits = {.devices_min    = 1,
                                                 .devices_max    = 2,
                                                 .steps_min      = 30,
                                                 .steps_max      = 80,
                                                 .limit_permille = 1000,
                                                 .check_every    = 100};

/* Memory that is used again before the host knows that it is free matters where there is little of it. */
static const struct graph_profile scarce = {.devices_min     = 1,
                                            .devices_max     = 3,
                                            .steps_min       = 40,
                                            .steps_max       = 90,
                                            .crash_permille  = 400,
                                            .break_permille  = 50,
                                            .scarce_permille = 700,
                                            .check_every     = 200};

/* .. and one device has all of it, and dies over and over. */
static const struct graph_profile scarce_and_dying = {.devices_min     = 1,
                                                      .devices_max     = 1,
                                                      .steps_min       = 60,
                                                      .steps_max       = 160,
                                                      .crash_permille  = 1000,
                                                      .crashes_most    = 8,
                                                      .scarce_permille = 1000,
                                                      .check_every     = 200};

/* .. and one device has all of it, and room enough. */
static const struct graph_profile dying = {.devices_min    = 1,
                                           .devices_max    = 1,
                                           .steps_min      = 60,
                                           .steps_max      = 160,
                                           .crash_permille = 1000,
                                           .crashes_most   = 30,
                                           .check_every    = 200};

/* .. or several have it, and copy for each other. */
static const struct graph_profile dying_together = {.devices_min    = 2,
                                                    .devices_max    = 3,
                                                    .steps_min      = 60,
                                                    .steps_max      = 160,
                                                    .crash_permille = 1000,
                                                    .crashes_most   = 30,
                                                    .check_every    = 200};

/* .. and who waits for more than some others does so behind gates. */
static const struct graph_profile dying_behind_gates = {.devices_min    = 1,
                                                        .devices_max    = 1,
                                                        .steps_min      = 60,
                                                        .steps_max      = 160,
                                                        .crash_permille = 1000,
                                                        .crashes_most   = 30,
                                                        .gates          = true,
                                                        .check_every    = 200};

/* What does not fit goes to host memory and files. */
static const struct graph_profile spilling = {.devices_min    = 1,
                                              .devices_max    = 3,
                                              .steps_min      = 60,
                                              .steps_max      = 160,
                                              .spill_permille = 1000,
                                              .check_every    = 50};

/* .. as far as there is any, and there is very little. */
static const struct graph_profile full_disks = {.devices_min        = 1,
                                                .devices_max        = 3,
                                                .steps_min          = 60,
                                                .steps_max          = 160,
                                                .spill_permille     = 1000,
                                                .disk_full_permille = 500,
                                                .check_every        = 200};

/* Devices that do not come back, and nothing that cannot be made again. */
static const struct graph_profile with_losses = {.devices_min   = 2,
                                                 .devices_max   = 4,
                                                 .steps_min     = 30,
                                                 .steps_max     = 80,
                                                 .gone_permille = 1000,
                                                 .no_puts       = true,
                                                 .check_every   = 200};

/* .. where memory is used again soon. */
static const struct graph_profile scarce_with_losses = {.devices_min     = 2,
                                                        .devices_max     = 2,
                                                        .steps_min       = 60,
                                                        .steps_max       = 160,
                                                        .gone_permille   = 1000,
                                                        .no_puts         = true,
                                                        .scarce_permille = 1000,
                                                        .check_every     = 200};

/* .. beside workers that die and come back. */
static const struct graph_profile with_losses_and_crashes = {.devices_min    = 2,
                                                             .devices_max    = 4,
                                                             .steps_min      = 30,
                                                             .steps_max      = 80,
                                                             .gone_permille  = 1000,
                                                             .no_puts        = true,
                                                             .crash_permille = 1000,
                                                             .crashes_most   = 4,
                                                             .check_every    = 200};

/* .. of what was put, too. */
static const struct graph_profile with_losses_and_puts = {.devices_min    = 2,
                                                          .devices_max    = 4,
                                                          .steps_min      = 30,
                                                          .steps_max      = 80,
                                                          .gone_permille  = 1000,
                                                          .pairs_permille = 300,
                                                          .crash_permille = 300,
                                                          .check_every    = 200};

/* Devices go one after the other, and what was put is in two places whenever one does. */
static const struct graph_profile put_twice = {.devices_min   = 3,
                                               .devices_max   = 4,
                                               .steps_min     = 30,
                                               .steps_max     = 80,
                                               .gone_permille = 1000,
                                               .replicas      = true,
                                               .patient       = true};

/* Two hosts of two devices each: what is large goes from one to the other in parts. */
static const struct graph_profile two_hosts = {.devices_min    = 4,
                                               .devices_max    = 4,
                                               .steps_min      = 30,
                                               .steps_max      = 80,
                                               .gone_permille  = 1000,
                                               .host_permille  = 1000,
                                               .no_puts        = true,
                                               .crash_permille = 200,
                                               .check_every    = 200};

/* Workers that stand still, and stores that fence them. */
static const struct graph_profile standing_still = {.devices_min   = 1,
                                                    .devices_max   = 3,
                                                    .steps_min     = 40,
                                                    .steps_max     = 90,
                                                    .stop_permille = 1000,
                                                    .stops_most    = 4,
                                                    .check_every   = 200};

/* Stores that die, too. */
static const struct graph_profile without_store = {.devices_min       = 1,
                                                   .devices_max       = 3,
                                                   .steps_min         = 40,
                                                   .steps_max         = 90,
                                                   .stop_permille     = 1000,
                                                   .stops_most        = 6,
                                                   .store_deaths_most = 4,
                                                   .check_every       = 200};

/* .. and workers, too. */
static const struct graph_profile without_both = {.devices_min       = 1,
                                                  .devices_max       = 3,
                                                  .steps_min         = 40,
                                                  .steps_max         = 90,
                                                  .stop_permille     = 1000,
                                                  .stops_most        = 2,
                                                  .store_deaths_most = 4,
                                                  .crash_permille    = 1000,
                                                  .crashes_most      = 4,
                                                  .no_lineage        = true,
                                                  .check_every       = 200};

/* Workers that die while the network is cut. */
static const struct graph_profile cut_off = {.devices_min    = 1,
                                             .devices_max    = 3,
                                             .steps_min      = 40,
                                             .steps_max      = 90,
                                             .cut_permille   = 1000,
                                             .cuts_most      = 20,
                                             .crash_permille = 1000,
                                             .crashes_most   = 6,
                                             .check_every    = 200};

/* Heads that stand still, and others that take their place. */
static const struct graph_profile two_heads = {.devices_min         = 1,
                                               .devices_max         = 3,
                                               .steps_min           = 40,
                                               .steps_max           = 90,
                                               .head_crash_permille = 1,
                                               .head_stops_most     = 4,
                                               .check_every         = 200};

/* Two hosts with stores, of which one is lost as a whole, or seems to be. */
static const struct graph_profile lost_hosts = {.devices_min   = 2,
                                                .devices_max   = 4,
                                                .steps_min     = 40,
                                                .steps_max     = 90,
                                                .gone_permille = 1000,
                                                .host_permille = 1000,
                                                .host_faults   = true,
                                                .stop_permille = 1,
                                                .stops_most    = 1,
                                                .no_puts       = true,
                                                .check_every   = 200};

/* Two hosts, and ways between them that are cut for longer than the head waits. */
static const struct graph_profile apart = {.devices_min    = 2,
                                           .devices_max    = 4,
                                           .steps_min      = 40,
                                           .steps_max      = 90,
                                           .way_cuts_most  = 4,
                                           .ways_long      = true,
                                           .crash_permille = 700,
                                           .crashes_most   = 4,
                                           .check_every    = 200};

/* Seeds until one fails; 0: none did. In a process of its own, since a broken invariant ends it. */
static void hunt(const char *bug, const struct graph_profile *programs, uint64_t graphs)
{
    struct graph_coverage *coverage = sim_alloc(sizeof(*coverage));

    /* Of its own time, however busy the machine is. */
    PL_CHECK(setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = SECONDS_MAX},
                       NULL) == 0);
    pl_log_set_sink(NULL, NULL);
    pl_bug_arm(bug);
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + graphs; seed++) {
        if (!graph_run(seed, programs, coverage, false)) {
            printf("# %s: found by seed %llu\n", bug, (unsigned long long)seed);
            (void)fflush(stdout);
            _exit(FOUND);
        }
    }
    _exit(NOT_FOUND);
}

static void assert_found(const char *bug, const struct graph_profile *programs,
                         uint64_t graphs)
{
    int status = 0;
    pid_t child;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    test_set_timeout(5 * SECONDS_MAX);
    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        hunt(bug, programs, graphs);
    }
    ASSERT_TRUE(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        printf("# %s: the process ended by signal %d\n", bug, WTERMSIG(status));
        ASSERT_EQ(WTERMSIG(status),
                  SIGABRT); /* PL_CHECK; not the timer, not a stray pointer */
        return;
    }
    if (WEXITSTATUS(status) != FOUND) {
        test_fail(__FILE__, __LINE__, "%llu random programs did not notice %s",
                  (unsigned long long)graphs, bug);
    }
}

#define FINDS(name, bug)                         \
    TEST(random_programs_notice_##name)          \
    {                                            \
        assert_found(bug, &profile, GRAPHS_MAX); \
    }
#define FINDS_WITH_LIMITS(name, bug)                     \
    TEST(random_programs_notice_##name)                  \
    {                                                    \
        assert_found(bug, &with_limits, 2 * GRAPHS_MAX); \
    }

FINDS(a_write_that_does_not_wait_for_readers, "head.skip_war")
FINDS(a_read_that_does_not_wait_for_its_writer, "head.skip_raw")
FINDS(a_donation_under_a_snapshot, "head.skip_hold")
FINDS(a_replica_that_outlives_its_content, "head.stale_replica")
FINDS(a_buffer_that_is_freed_in_use, "head.free_early")
FINDS(a_fragment_that_is_forgotten, "head.wrong_fragment")
FINDS(a_fold_in_another_order, "head.fold_order")
FINDS(an_account_that_is_not_settled, "head.quota_leak")
FINDS(a_task_that_is_done_before_its_input, "head.done_early")
FINDS(a_copy_of_host_memory_that_is_told_before_it_is_over, "head.tell_copies_early")
FINDS(a_consumer_that_runs_again, "head.run_again")
FINDS(a_task_that_is_given_up_without_need, "head.give_up_early")
FINDS(a_signal_before_its_kernel, "worker.signal_before_kernel")
FINDS(memory_that_is_freed_at_once, "worker.early_free")
FINDS(a_wait_for_another_device_left_out, "worker.skip_wait")
FINDS(a_wait_left_out_for_what_no_word_shows, "worker.before_all")
FINDS(a_join_of_streams_left_out, "worker.skip_join")
FINDS(a_word_behind_a_wait_of_another_stream, "worker.words_of_one_stream")
FINDS(a_mark_before_the_copy_instead_of_behind_it, "worker.mark_early")
FINDS(a_failed_result_that_is_sealed, "worker.seal_failed")
FINDS(a_sealed_buffer_that_is_lost_with_its_worker, "worker.sealed_given_up")
FINDS(a_seal_that_is_lost_with_its_worker, "worker.seal_lost")
FINDS(a_seal_of_what_was_cut_short, "worker.seal_early")
FINDS(a_launch_that_was_over_and_comes_again, "worker.done_again")
FINDS(an_answer_that_is_lost, "head.answer_lost")
FINDS(a_ref_that_is_never_released, "head.release_lost")
FINDS(a_frame_that_is_not_sent_again, "wire.resend_less")

FINDS_WITH_LIMITS(a_limit_that_is_over_too_early, "worker.limit_early")
FINDS(a_begin_that_is_told_when_the_work_is_done, "worker.begin_late")
FINDS_WITH_LIMITS(a_claim_of_untouched_launches_that_is_forgotten,
                  "head.untouched_forgotten")
FINDS_WITH_LIMITS(an_order_to_fence_that_is_lost, "head.fence_once")
FINDS_WITH_LIMITS(a_cancel_by_force_that_is_none, "head.force_ignored")

TEST(random_programs_notice_a_survivor_that_is_written_over)
{
    assert_found("head.rebuild_in_place", &with_losses, 2 * GRAPHS_MAX);
}

TEST(random_programs_notice_a_record_that_is_freed_too_early)
{
    assert_found("head.lineage_free_early", &with_losses, GRAPHS_MAX);
}

TEST(random_programs_notice_retired_memory_that_is_read_after_a_loss)
{
    assert_found("head.rebuild_retired", &scarce_with_losses, GRAPHS_MAX);
}

TEST(random_programs_notice_a_second_copy_that_is_not_made_again)
{
    assert_found("head.second_forgotten", &put_twice, GRAPHS_MAX);
}

TEST(random_programs_notice_a_put_that_is_given_up_before_its_readers_are_over)
{
    assert_found("head.roots_let_go", &with_losses_and_puts, 2 * GRAPHS_MAX);
}

TEST(random_programs_notice_what_had_begun_and_counts_as_untouched)
{
    assert_found("head.spared_begun", &with_losses_and_crashes, 2 * GRAPHS_MAX);
}

/* It takes a crash within the microseconds between a failure and its report. */
TEST(random_programs_notice_a_part_that_is_received_in_the_wrong_place)
{
    assert_found("worker.part_at_start", &two_hosts, GRAPHS_MAX);
}

TEST(random_programs_notice_a_failure_that_dies_with_its_worker)
{
    assert_found("worker.forget_failures", &profile, 10 * GRAPHS_MAX);
}

TEST(random_programs_notice_memory_that_is_overwritten_before_its_readers_are_over)
{
    assert_found("worker.reuse_at_once", &scarce, GRAPHS_MAX);
}

/* It takes a crash between a reader's end and its word, when what it read has been overwritten. */
TEST(random_programs_notice_memory_that_is_overwritten_before_its_readers_word)
{
    assert_found("worker.reuse_unsaid", &scarce_and_dying, 10 * GRAPHS_MAX);
}

TEST(random_programs_notice_a_word_that_is_late_and_counts)
{
    assert_found("worker.late_word_noted", &dying_together, 10 * GRAPHS_MAX);
}

/* The same of a value that is overwritten in place by another stream. */
TEST(random_programs_notice_a_value_that_is_overwritten_before_its_readers_word)
{
    assert_found("worker.overwrite_unsaid", &dying, 10 * GRAPHS_MAX);
}

TEST(random_programs_notice_a_gate_that_does_not_wait_for_words)
{
    assert_found("worker.gate_unsaid", &dying_behind_gates, 10 * GRAPHS_MAX);
}

/*
 * And a crash between the end of what a launch waits for in another stream and that stream's word,
 * when the launch has begun.
 */
TEST(random_programs_notice_a_launch_that_is_held_by_work_and_not_by_its_word)
{
    assert_found("worker.held_by_work", &dying, 10 * GRAPHS_MAX);
}

TEST(random_programs_notice_memory_that_another_device_still_reads)
{
    assert_found("head.retire_foreign", &scarce, 4 * GRAPHS_MAX);
}

TEST(random_programs_notice_a_buffer_that_goes_before_its_spill_is_done)
{
    assert_found("spill.drop_early", &spilling, GRAPHS_MAX);
}

TEST(random_programs_notice_a_spilled_value_that_is_looked_for_elsewhere)
{
    assert_found("spill.wrong_offset", &spilling, GRAPHS_MAX);
}

TEST(random_programs_notice_a_value_that_comes_back_before_it_was_spilled)
{
    assert_found("spill.stale", &spilling, GRAPHS_MAX);
}

TEST(random_programs_notice_host_memory_that_is_given_away_in_use)
{
    assert_found("spill.place_held", &spilling, 2 * GRAPHS_MAX);
}

TEST(random_programs_notice_a_copy_ahead_of_need_that_lies_elsewhere)
{
    assert_found("spill.ahead_misplaced", &spilling, GRAPHS_MAX);
}

TEST(random_programs_notice_a_copy_that_goes_while_its_value_is_on_its_way)
{
    assert_found("spill.count_coming", &full_disks, GRAPHS_MAX);
}

TEST(random_programs_notice_a_worker_that_is_replaced_before_it_was_reaped)
{
    assert_found("store.spawn_before_reap", &standing_still, GRAPHS_MAX);
}

TEST(random_programs_notice_a_lease_that_ends_while_its_store_stands_still)
{
    assert_found("store.own_silence", &standing_still, GRAPHS_MAX);
}

TEST(random_programs_notice_a_store_that_takes_memory_of_a_worker_it_did_not_see)
{
    assert_found("store.adopt_unfenced", &without_store, GRAPHS_MAX);
}

TEST(random_programs_notice_a_store_that_forgets_who_it_was)
{
    assert_found("store.memory_forgotten", &without_store, GRAPHS_MAX);
}

TEST(random_programs_notice_memory_that_is_used_before_the_store_has_it)
{
    assert_found("worker.chunk_early", &without_both, GRAPHS_MAX);
}

TEST(random_programs_notice_a_dead_worker_that_is_welcomed)
{
    assert_found("head.serve_the_dead", &cut_off, GRAPHS_MAX);
}

TEST(random_programs_notice_a_head_that_goes_on_beside_the_next_one)
{
    assert_found("journal.any_term", &two_heads, GRAPHS_MAX);
}

TEST(random_programs_notice_a_host_that_comes_back_and_keeps_what_it_had)
{
    assert_found("worker.keep_all", &lost_hosts, GRAPHS_MAX);
}

TEST(random_programs_notice_devices_that_are_believed_when_their_host_is_lost)
{
    assert_found("head.keep_lost", &lost_hosts, GRAPHS_MAX);
}

TEST(random_programs_notice_a_transfer_that_is_not_given_up_by_who_comes_next)
{
    assert_found("head.give_up_once", &apart, GRAPHS_MAX);
}

TEST(random_programs_notice_a_transfer_that_is_given_up_before_it_was_tried)
{
    assert_found("head.give_up_all", &apart, GRAPHS_MAX);
}

TEST(random_programs_notice_a_wrong_place_of_what_is_copied_for_a_starved_launch)
{
    assert_found("spill.relief_misplaced", &spilling, GRAPHS_MAX);
}

TEST(programs_without_a_bug_pass_with_little_memory_and_with_losses)
{
    struct graph_coverage *coverage = sim_alloc(sizeof(*coverage));

    test_set_timeout(120);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + GRAPHS_MAX; seed++) {
        ASSERT_TRUE(graph_run(seed, &scarce, coverage, true));
    }
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + GRAPHS_MAX / 4; seed++) {
        ASSERT_TRUE(graph_run(seed, &with_losses_and_crashes, coverage, true));
        ASSERT_TRUE(graph_run(seed, &with_losses_and_puts, coverage, true));
        ASSERT_TRUE(graph_run(seed, &two_hosts, coverage, true));
    }
    pl_free(coverage);
}

/* The other half of the claim: with nothing armed, the same programs pass. */
TEST(the_same_programs_pass_without_a_bug)
{
    struct graph_coverage *coverage = sim_alloc(sizeof(*coverage));

    test_set_timeout(120);
    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + GRAPHS_MAX; seed++) {
        ASSERT_TRUE(graph_run(seed, &profile, coverage, true));
        ASSERT_TRUE(graph_run(seed, &with_limits, coverage, true));
    }
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + 10; seed++) {
        ASSERT_TRUE(graph_run(seed, &standing_still, coverage, true));
        ASSERT_TRUE(graph_run(seed, &without_store, coverage, true));
        ASSERT_TRUE(graph_run(seed, &without_both, coverage, true));
        ASSERT_TRUE(graph_run(seed, &cut_off, coverage, true));
        ASSERT_TRUE(graph_run(seed, &two_heads, coverage, true));
        ASSERT_TRUE(graph_run(seed, &lost_hosts, coverage, true));
        ASSERT_TRUE(graph_run(seed, &apart, coverage, true));
    }
    pl_free(coverage);
}

TEST_MAIN()
