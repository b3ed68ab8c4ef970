/* What a worker notes of its own start: what the first launch waited for is told apart from the launch. */
#include "tests/harness/test.h"
#include "worker/phases.h"

static struct store_timeline timeline;

static struct worker_phases begin(void)
{
    struct worker_phases phases = {.over = false};

    timeline = (struct store_timeline){.beat = 0};
    worker_phases_share(&phases, &timeline);
    worker_phases_note(&phases, STORE_PHASE_WELCOME);
    return phases;
}

static uint64_t at(enum store_phase phase)
{
    return store_phase_at(&timeline.phases, phase);
}

TEST(a_first_launch_that_waits_for_nothing_has_no_such_phase)
{
    struct worker_phases phases = begin();
    struct pl_str text;

    pl_str_init(&text);
    worker_phases_wait(&phases, false);
    ASSERT_TRUE(worker_phases_end(&phases, 0, &text));
    ASSERT_TRUE(!worker_phases_end(&phases, 0, &text)); /* once */
    ASSERT_EQ(at(STORE_PHASE_FUNCTIONS), 0);
    ASSERT_EQ(at(STORE_PHASE_OTHERS), 0);
    ASSERT_TRUE(at(STORE_PHASE_FIRST) >= at(STORE_PHASE_WELCOME));
    pl_str_finish(&text);
}

TEST(what_it_waited_for_ends_before_it)
{
    struct worker_phases phases = begin();
    uint64_t built_ns           = at(STORE_PHASE_WELCOME) + 1;
    struct pl_str text;

    pl_str_init(&text);
    worker_phases_wait(&phases, true);
    ASSERT_EQ(at(STORE_PHASE_OTHERS), 0); /* not over */
    ASSERT_TRUE(worker_phases_end(&phases, built_ns, &text));
    ASSERT_EQ(at(STORE_PHASE_FUNCTIONS), built_ns);
    ASSERT_TRUE(at(STORE_PHASE_OTHERS) >= built_ns);
    ASSERT_TRUE(at(STORE_PHASE_FIRST) >= at(STORE_PHASE_OTHERS));
    pl_str_finish(&text);
}

TEST(a_wait_for_others_that_is_over_ends_when_it_is)
{
    struct worker_phases phases = begin();
    struct pl_str text;
    uint64_t over_ns;

    pl_str_init(&text);
    worker_phases_wait(&phases, true);
    worker_phases_wait(&phases, false);
    over_ns = at(STORE_PHASE_OTHERS);
    ASSERT_TRUE(over_ns != 0);
    ASSERT_TRUE(worker_phases_end(&phases, 0, &text));
    ASSERT_EQ(at(STORE_PHASE_OTHERS), over_ns);
    pl_str_finish(&text);
}

TEST_MAIN()
