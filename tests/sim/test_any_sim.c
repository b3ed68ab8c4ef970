/*
 * Random programs on random clusters: what may happen to them, and how often, is drawn for each by
 * its seed. The other profiles ask for what they are about; here meets what nobody thought of.
 */
#include "tests/sim/seeds.h"

#include <stdio.h>

#include "tests/harness/test.h"

enum { SEEDS_DEFAULT = 60, RAISED_DEFAULT = 30 };

static struct graph_coverage sum; /* large, and zero at the start of each test's process */

static bool raised; /* most faults meet each other in a program */

static uint32_t below(uint64_t *state, uint32_t count)
{
    return (uint32_t)(test_random(state) % count);
}

static bool one_in(uint64_t *state, uint32_t count)
{
    return below(state, count) == 0;
}

/* Of a thousand programs; most often none, unless the chances are raised. */
static uint32_t some(uint64_t *state)
{
    static const uint32_t permille[2][6] = {{0, 0, 0, 200, 500, 1000},
                                            {0, 200, 500, 1000, 1000, 1000}};

    return permille[raised][below(state, PL_COUNT(permille[raised]))];
}

static void draw_deaths(uint64_t *state, struct graph_profile *profile)
{
    profile->crash_permille        = some(state);
    profile->crashes_most          = 1 + below(state, 6);
    profile->break_permille        = some(state);
    profile->breaks_most           = 1 + below(state, 8);
    profile->client_crash_permille = some(state) / 2;
    profile->stop_permille         = some(state);
    profile->stops_most            = 1 + below(state, 4);
    profile->store_deaths_most     = below(state, 3);
    profile->head_crash_permille   = some(state);
    profile->head_stops_most       = below(state, 3);
    profile->cut_permille          = some(state);
    profile->cuts_most             = 1 + below(state, 8);
    profile->limit_permille        = some(state);
}

static void draw_losses(uint64_t *state, struct graph_profile *profile)
{
    profile->gone_permille  = some(state);
    profile->host_permille  = some(state);
    profile->host_faults    = one_in(state, 2);
    profile->drains         = !profile->host_faults && one_in(state, 3);
    profile->no_lineage     = one_in(state, 4);
    profile->some_replicas  = one_in(state, 2);
    profile->pairs_permille = some(state);
    profile->pairs_of_hosts = one_in(state, 2);
}

static void draw_ways(uint64_t *state, struct graph_profile *profile)
{
    if (one_in(state, 4)) {
        profile->way_cuts_most = 1 + below(state, 6);
        profile->ways_long     = one_in(state, 2);
        /* Some attempts of a second; longer ones take many steps. */
        profile->reach_wait_ms = 3000 + below(state, 3000);
    }
}

static void draw_room(uint64_t *state, struct graph_profile *profile)
{
    profile->scarce_permille    = some(state) / 4;
    profile->spill_permille     = some(state);
    profile->disk_full_permille = one_in(state, 3) ? below(state, 500) : 0;
    profile->spill_deaths_most  = below(state, 3);
}

static struct graph_profile draw(uint64_t seed)
{
    uint64_t state               = ~seed;
    struct graph_profile profile = {.devices_min    = 1 + below(&state, 2),
                                    .devices_max    = 2 + below(&state, 3),
                                    .steps_min      = 10,
                                    .steps_max      = 20 + below(&state, 120),
                                    .replays_anyway = one_in(&state, 2),
                                    .check_every    = 1 + below(&state, 40)};

    draw_deaths(&state, &profile);
    draw_losses(&state, &profile);
    draw_room(&state, &profile);
    draw_ways(&state, &profile);
    return profile;
}

static bool run_one(uint64_t seed, void *user)
{
    struct graph_profile profile = draw(seed);

    (void)user;
    return graph_run(seed, &profile, &sum, true);
}

TEST(anything_may_meet_anything)
{
    (void)seeds_run(SEEDS_DEFAULT, run_one, NULL);
}

TEST(nearly_everything_meets)
{
    raised = true;
    (void)seeds_run(RAISED_DEFAULT, run_one, NULL);
}

/* Behind the end of a host's cut is when one of it that asked to be fenced can first be heard. */
TEST(who_asked_to_be_fenced_behind_a_cut_is_not_late)
{
    raised = true;
    test_expect_log();
    seeds_log_errors();
    ASSERT_TRUE(run_one(2016854, NULL));
}

TEST_MAIN()
