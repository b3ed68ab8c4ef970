/* The decisions about a worker's life, with a clock of our own. */
#include "store/worker_proc.h"

#include "tests/harness/test.h"

#define MS 1000000ull
#define S  1000000000ull

static struct store_proc started(void)
{
    struct store_proc proc;

    store_proc_init(&proc);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_START, 0), STORE_PROC_SPAWN);
    ASSERT_EQ(proc.incarnation, 1);
    ASSERT_TRUE(store_proc_alive(&proc));
    return proc;
}

/* The running one has said that it is ready. */
static void ready(struct store_proc *proc)
{
    ASSERT_EQ(store_proc_step(proc, STORE_PROC_READY, 0), 0);
    ASSERT_EQ(proc->state, STORE_PROC_RUNNING);
}

/* A lease of a second; of four for a start. */
static bool silent(struct store_proc *proc, uint64_t beat, uint64_t now)
{
    const struct store_proc_leases leases = {.start_ns = 4 * S, .run_ns = S};

    return store_proc_beat(proc, beat, now, &leases);
}

TEST(the_first_death_is_followed_by_a_restart_at_once)
{
    struct store_proc proc = started();

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, S),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    ASSERT_EQ(proc.incarnation, 2);
    ASSERT_EQ(proc.state, STORE_PROC_RUNNING);
}

TEST(pauses_double_from_a_tenth_of_a_second_to_five_seconds)
{
    static const uint64_t pauses_ms[] = {0,    100,  200,  400,  800,
                                         1600, 3200, 5000, 5000, 5000};
    struct store_proc proc            = started();
    uint64_t now                      = S;

    for (size_t i = 0; i < PL_COUNT(pauses_ms); i++) {
        unsigned actions = store_proc_step(&proc, STORE_PROC_EXITED, now);

        ASSERT_TRUE((actions & STORE_PROC_REPORT) != 0);
        if (pauses_ms[i] > 0) {
            ASSERT_EQ(proc.state, STORE_PROC_WAITING);
            ASSERT_EQ(proc.due_ns, now + pauses_ms[i] * MS);
            ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, proc.due_ns - 1), 0);
            now     = proc.due_ns;
            actions = store_proc_step(&proc, STORE_PROC_TICK, now);
        }
        ASSERT_TRUE((actions & STORE_PROC_SPAWN) != 0);
        ASSERT_EQ(proc.incarnation, i + 2);
    }
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now), STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_QUARANTINED);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, now + 3600 * S), 0);
}

TEST(a_worker_that_had_settled_is_replaced_at_once_however_many_died)
{
    struct store_proc proc = started();
    uint64_t now           = 0;

    for (unsigned i = 0; i < 3;
         i++) { /* two in a row that do not settle, then one that does */
        now += STORE_PROC_SETTLED_NS - 1;
        ready(&proc);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
        now += STORE_PROC_SETTLED_NS - 1;
        ready(&proc);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now), STORE_PROC_REPORT);
        now = proc.due_ns;
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, now), STORE_PROC_SPAWN);
        now += STORE_PROC_SETTLED_NS;
        ready(&proc);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
    }
}

TEST(deaths_a_minute_apart_never_quarantine)
{
    struct store_proc proc = started();

    for (uint64_t i = 1; i < 100; i++) {
        ready(&proc);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, i * 60 * S),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
    }
    ASSERT_EQ(proc.incarnation, 100);
}

/* Each takes so long that there are never ten deaths in a minute. */
TEST(a_device_whose_workers_never_become_ready_is_quarantined_however_long_each_takes)
{
    struct store_proc proc = started();
    uint64_t now           = 0;
    unsigned actions       = 0;

    for (unsigned i = 1; i <= STORE_PROC_STARTS_MAX + 1; i++) {
        ASSERT_EQ(proc.state, STORE_PROC_RUNNING);
        ASSERT_EQ(proc.incarnation, i);
        now += 20 * S;
        actions = store_proc_step(&proc, STORE_PROC_EXITED, now);
        if (proc.state == STORE_PROC_WAITING) {
            now = proc.due_ns;
            ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, now), STORE_PROC_SPAWN);
        }
    }
    ASSERT_EQ(actions, STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_QUARANTINED);
    ASSERT_CONTAINS(proc.why, "starts of a worker in a row failed");
}

TEST(three_starts_in_a_row_that_hang_quarantine_the_device)
{
    struct store_proc proc = started();
    uint64_t now           = 60 * S;

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_HUNG, now), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    now += 60 * S;
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_HUNG, now), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now), STORE_PROC_REPORT);
    ASSERT_EQ(proc.due_ns, now + STORE_PROC_PAUSE_MIN_NS); /* backs off */
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, proc.due_ns), STORE_PROC_SPAWN);
    now += 60 * S;
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_HUNG, now), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, now), STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_QUARANTINED);
    ASSERT_CONTAINS(proc.why, "in a row hung");
}

TEST(a_start_that_hangs_is_forgiven_when_one_is_ready)
{
    struct store_proc proc = started();

    for (uint64_t i = 1; i < 50; i++) {
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_HUNG, 2 * i * 60 * S), STORE_PROC_KILL);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, 2 * i * 60 * S),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
        ready(&proc);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, (2 * i + 1) * 60 * S),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
    }
}

TEST(a_fenced_worker_is_replaced_only_after_it_was_reaped)
{
    struct store_proc proc = started();

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_FENCE, S), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_FENCE, S), 0);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 10 * S), 0);
    ASSERT_EQ(proc.incarnation, 1);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, 10 * S),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    ASSERT_EQ(proc.incarnation, 2);
}

TEST(what_the_head_ends_never_quarantines_and_is_replaced_at_once)
{
    struct store_proc proc = started();

    for (uint64_t i = 1; i < 100; i++) {
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_END, i * MS), STORE_PROC_KILL);
        ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, i * MS),
                  STORE_PROC_REPORT | STORE_PROC_SPAWN);
    }
    ASSERT_EQ(proc.death_count, 0);
}

TEST(a_beat_that_stands_still_for_a_lease_is_noticed)
{
    struct store_proc proc = started();

    ready(&proc);
    for (uint64_t i = 1; i <= 3; i++) { /* it goes on */
        ASSERT_TRUE(!silent(&proc, i, 200 * S + i * S / 4));
    }
    for (uint64_t i = 4; i <= 6; i++) {
        ASSERT_TRUE(!silent(&proc, 3, 200 * S + i * S / 4));
    }
    ASSERT_TRUE(silent(&proc, 3, 202 * S));
}

TEST(a_start_that_comes_no_further_has_a_longer_lease_of_its_own)
{
    struct store_proc proc = started();
    uint64_t now           = 0;

    for (unsigned step = 0; step < 3; step++) { /* each step has all of it */
        for (unsigned i = 0; i < 15; i++) {
            now += S / 4;
            ASSERT_TRUE(!silent(&proc, step, now));
        }
    }
    now += S / 4;
    ASSERT_TRUE(!silent(&proc, 2, now));
    ready(&proc);
    for (unsigned i = 0; i < 3; i++) { /* the silence before it was ready does not count */
        now += S / 4;
        ASSERT_TRUE(!silent(&proc, 2, now));
    }
    now += S / 4;
    ASSERT_TRUE(silent(&proc, 2, now));

    proc = started();
    for (uint64_t i = 1; i <= 16; i++) { /* it never even had its memory */
        ASSERT_EQ(silent(&proc, 0, i * S / 4), i == 16);
    }
}

TEST(the_stores_own_sleep_is_not_held_against_a_worker)
{
    struct store_proc proc = started();

    ready(&proc);
    ASSERT_TRUE(!silent(&proc, 7, S));
    ASSERT_TRUE(!silent(&proc, 7, 3600 * S)); /* an hour, all at once */
    ASSERT_TRUE(!silent(&proc, 8, 3600 * S + MS));
}

TEST(a_replacement_has_a_lease_of_its_own)
{
    struct store_proc proc = started();

    ready(&proc);
    for (uint64_t i = 1; i <= 4; i++) {
        ASSERT_TRUE(!silent(&proc, 5, i * S / 4));
    }
    ASSERT_TRUE(silent(&proc, 5, 5 * S / 4));
    (void)store_proc_step(&proc, STORE_PROC_FENCE, 2 * S);
    ASSERT_TRUE(!silent(&proc, 5, 3 * S)); /* fenced once is enough */
    (void)store_proc_step(&proc, STORE_PROC_EXITED, 3 * S);
    ASSERT_TRUE(!silent(&proc, 5, 4 * S));
}

TEST(a_worker_that_cannot_be_reaped_quarantines_its_device_for_good)
{
    struct store_proc proc = started();

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_FENCE, S), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 11 * S - 1), 0);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 11 * S), STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_QUARANTINED);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, 12 * S), 0);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_START, 12 * S), 0);
}

TEST(a_failed_start_counts_as_a_death)
{
    struct store_proc proc = started();

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_SPAWN_FAILED, S),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_SPAWN_FAILED, S), STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_WAITING);
}

TEST(a_later_store_takes_over_who_came)
{
    struct store_proc proc;

    store_proc_init(&proc);
    ASSERT_EQ(store_proc_adopt(&proc, 7, true, S), 0);
    ASSERT_EQ(proc.state, STORE_PROC_RUNNING);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, 2 * S),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    ASSERT_EQ(proc.incarnation, 8);
}

/* It may only stand still, and write when it goes on. */
TEST(a_later_store_ends_who_did_not_come_before_it_replaces_him)
{
    struct store_proc proc;

    store_proc_init(&proc);
    ASSERT_EQ(store_proc_adopt(&proc, 7, false, S), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 2 * S), 0);
    ASSERT_EQ(proc.incarnation, 7);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, 2 * S),
              STORE_PROC_REPORT | STORE_PROC_SPAWN);
    ASSERT_EQ(proc.incarnation, 8);

    store_proc_init(&proc);
    ASSERT_EQ(store_proc_adopt(&proc, 7, false, S), STORE_PROC_KILL);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, S + STORE_PROC_REAP_TIMEOUT_NS),
              STORE_PROC_REPORT);
    ASSERT_EQ(proc.state, STORE_PROC_QUARANTINED);
}

TEST(nothing_starts_after_shutdown)
{
    struct store_proc proc = started();

    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_SHUTDOWN, S), STORE_PROC_TERM);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_EXITED, S), 0);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 100 * S), 0);
    ASSERT_EQ(proc.incarnation, 1);

    proc = started();
    (void)store_proc_step(&proc, STORE_PROC_EXITED, S);
    (void)store_proc_step(&proc, STORE_PROC_EXITED, S);
    ASSERT_EQ(proc.state, STORE_PROC_WAITING);
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_SHUTDOWN, S),
              0); /* there is nobody to ask */
    ASSERT_EQ(store_proc_step(&proc, STORE_PROC_TICK, 100 * S), 0);
}

TEST_MAIN()
