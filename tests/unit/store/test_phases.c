/*
 * Phases of a replacement: what each took, whoever wrote it and in whichever order, and what the
 * next record keeps.
 */
#include "store/phases.h"

#include "tests/harness/test.h"

#define MS UINT64_C(1000000)

TEST(phases_add_up_to_the_whole)
{
    struct store_phases phases = {{0}};
    uint64_t sum               = 0;

    store_phase_note(&phases, STORE_PHASE_NOTICED, 100 * MS);
    store_phase_note(&phases, STORE_PHASE_ENDED, 150 * MS);
    store_phases_begin(&phases, 151 * MS);
    store_phase_note(&phases, STORE_PHASE_RUNNING, 160 * MS);
    store_phase_note(&phases, STORE_PHASE_READY, 400 * MS);
    store_phase_note(&phases, STORE_PHASE_FIRST, 405 * MS);
    for (int i = 0; i < STORE_PHASES; i++) {
        sum += store_phase_took(&phases, (enum store_phase)i);
    }
    ASSERT_EQ(sum, 305 * MS);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_NOTICED), 0);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_ENDED), 50 * MS);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_READY), 240 * MS);
}

TEST(what_was_done_before_the_fault_takes_no_time)
{
    struct store_phases phases = {{0}};

    store_phase_note(&phases, STORE_PHASE_NOTICED, 100 * MS);
    store_phase_note(&phases, STORE_PHASE_ENDED, 150 * MS);
    store_phases_begin(&phases, 150 * MS);
    store_phase_note(&phases, STORE_PHASE_RUNNING, 5 * MS); /* long before */
    store_phase_note(&phases, STORE_PHASE_CONTEXT, 9 * MS);
    store_phase_note(&phases, STORE_PHASE_SET_UP, 152 * MS);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_RUNNING), 0);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_CONTEXT), 0);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_SET_UP), 2 * MS);
    ASSERT_EQ(store_phase_took(&phases, STORE_PHASE_FIRST), 0); /* not come to */
}

TEST(the_next_start_wipes_all_but_the_end_before_it)
{
    struct store_phases phases = {{0}};

    for (int i = 0; i < STORE_PHASES; i++) {
        store_phase_note(&phases, (enum store_phase)i, (uint64_t)(i + 1) * MS);
    }
    store_phase_note(&phases, STORE_PHASE_NOTICED, 200 * MS);
    store_phase_note(&phases, STORE_PHASE_ENDED, 210 * MS);
    store_phases_begin(&phases, 211 * MS);
    ASSERT_EQ(store_phase_at(&phases, STORE_PHASE_NOTICED), 200 * MS);
    ASSERT_EQ(store_phase_at(&phases, STORE_PHASE_ENDED), 210 * MS);
    ASSERT_EQ(store_phase_at(&phases, STORE_PHASE_STARTED), 211 * MS);
    for (int i = STORE_PHASE_STARTED + 1; i < STORE_PHASES; i++) {
        ASSERT_EQ(store_phase_at(&phases, (enum store_phase)i), 0);
    }
}

TEST(a_description_has_what_took_time)
{
    struct store_phases phases = {{0}};
    struct pl_str text;

    store_phase_note(&phases, STORE_PHASE_NOTICED, 100 * MS);
    store_phase_note(&phases, STORE_PHASE_ENDED, 152 * MS);
    store_phases_begin(&phases, 152 * MS);
    store_phase_note(&phases, STORE_PHASE_RUNNING, 164 * MS);
    store_phase_note(&phases, STORE_PHASE_SET_UP, 164 * MS + 1000);
    store_phase_note(&phases, STORE_PHASE_READY, 400 * MS);
    pl_str_init(&text);
    store_phases_describe(&phases, STORE_PHASE_NOTICED, STORE_PHASE_READY, &text);
    ASSERT_STR(pl_str_text(&text), "ended 52, exec 12, ready 235");
    pl_str_finish(&text);
}

TEST(the_step_that_was_done_last_is_the_latest_in_time)
{
    struct store_phases phases = {{0}};

    store_phases_begin(&phases, 100);
    ASSERT_NULL(store_phases_last(&phases)); /* that it was started is none of its steps */
    store_phase_note(&phases, STORE_PHASE_CODE, 150); /* before what comes first by name */
    store_phase_note(&phases, STORE_PHASE_SET_UP, 160);
    ASSERT_STR(store_phases_last(&phases), "set-up");
    store_phase_note(&phases, STORE_PHASE_MEMORY, 170);
    ASSERT_STR(store_phases_last(&phases), "memory");
}

TEST_MAIN()
