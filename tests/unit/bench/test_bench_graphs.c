/*
 * The six graphs of `plasmon bench graphs`, as far as they can be looked at without a GPU:
 * hand-written streams order what they must, the C texts give what fp64 gives, the CUDA texts
 * compile, and the comparison finds what is wrong.
 */
#include <math.h>

#include "base/alloc.h"
#include "bench/graphs/bare.h"
#include "bench/graphs/nvrtc.h"
#include "bench/graphs/table_plot.h"
#include "tests/harness/test.h"

/* The first six have hand-written streams; the others are for several devices. */
#define STREAMED 6u
static const struct graphs_definition *const definitions[] = {
    &graphs_vec,      &graphs_bs,       &graphs_img,       &graphs_ml,
    &graphs_hits,     &graphs_dl,       &graphs_multi_vec, &graphs_multi_bs,
    &graphs_multi_ml, &graphs_multi_cg, &graphs_multi_mul};

static void build(struct graphs_graph *graph, const struct graphs_definition *definition)
{
    graphs_graph_build(graph, definition, definition->size[GRAPHS_TINY], test_seed());
}

TEST(the_hand_written_streams_order_every_two_steps_of_which_one_writes_what_the_other_uses)
{
    for (size_t i = 0; i < STREAMED; i++) {
        struct pl_err err = {0};
        struct graphs_graph graph;

        build(&graph, definitions[i]);
        if (!graphs_check_order(&graph, &err)) {
            test_fail(__FILE__, __LINE__, "%s", err.text);
        }
        graphs_graph_finish(&graph);
    }
}

/* Every wait is needed: without any one of them the check says so. */
TEST(a_wait_that_is_left_out_is_noticed)
{
    for (size_t i = 0; i < STREAMED; i++) {
        struct graphs_graph graph;

        build(&graph, definitions[i]);
        for (uint32_t s = 0; s < graph.steps.count; s++) {
            struct graphs_step *step = graphs_step_at(&graph, s);

            for (uint32_t k = 0; k < step->after_count; k++) {
                uint32_t other    = step->after[k];
                struct pl_err err = {0};

                step->after[k] = step->after[--step->after_count];
                if (graphs_check_order(&graph, &err)) {
                    test_fail(__FILE__, __LINE__, "%s: step %u need not wait for step %u",
                              definitions[i]->title, s, other);
                }
                step->after[step->after_count++] = step->after[k];
                step->after[k]                   = other;
            }
        }
        graphs_graph_finish(&graph);
    }
}

TEST(the_c_texts_give_what_fp64_gives_resident_and_cold)
{
    test_set_timeout(200);
    for (size_t i = 0; i < PL_COUNT(definitions); i++) {
        double result[GRAPHS_RESULTS];
        struct graphs_graph graph;
        const struct graphs_run run = {.graph   = &graph,
                                       .modes   = 1u << GRAPHS_RESIDENT | 1u << GRAPHS_COLD,
                                       .samples = 4,
                                       .drop    = 1,
                                       .budget_ns = 1000000000};
        struct pl_err err           = {0};

        build(&graph, definitions[i]);
        if (graphs_bare_run(&run, result, GRAPHS_RESULTS, &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s", err.text);
        }
        ASSERT_TRUE(result[GRAPHS_SERIAL] > 0);
        ASSERT_TRUE(result[GRAPHS_CONTESTANTS + GRAPHS_SERIAL] > 0);
        ASSERT_TRUE(result[GRAPHS_SECONDS + GRAPHS_SERIAL] >= GRAPHS_SAMPLES_MIN);
        ASSERT_TRUE(result[GRAPHS_EVENTS] < 0); /* there are no streams on a CPU */
        ASSERT_TRUE(result[GRAPHS_SINGLE * GRAPHS_CONTESTANTS + GRAPHS_SERIAL] < 0);
        ASSERT_TRUE(result[GRAPHS_PATH] > 0 && result[GRAPHS_BANDWIDTH] > 0);
        graphs_graph_finish(&graph);
    }
}

/* NaN stands for "rounding may decide"; were it most of a result, nothing would be compared. */
TEST(most_of_every_result_is_known)
{
    for (size_t i = 0; i < PL_COUNT(definitions); i++) {
        struct graphs_graph graph;

        build(&graph, definitions[i]);
        ASSERT_TRUE(graph.expects.count > 0);
        for (size_t j = 0; j < graph.expects.count; j++) {
            const struct graphs_expect *expect = pl_vec_at(&graph.expects, j);
            uint64_t unknown                   = 0;

            for (uint64_t k = 0; k < expect->count; k++) {
                unknown += isnan(expect->want[k]) != 0;
            }
            if (unknown * 10 > expect->count) {
                test_fail(__FILE__, __LINE__,
                          "%s: %llu of %llu elements of array %u are open",
                          definitions[i]->title, (unsigned long long)unknown,
                          (unsigned long long)expect->count, expect->array);
            }
        }
        graphs_graph_finish(&graph);
    }
}

TEST(a_result_off_by_more_than_its_bound_or_not_a_number_is_refused)
{
    struct graphs_graph graph;
    struct graphs_expect *expect;
    struct pl_err err = {0};
    float value;

    build(&graph, &graphs_vec);
    expect = pl_vec_at(&graph.expects, 0);
    value  = (float)expect->want[0];
    ASSERT_TRUE(graphs_compare(&graph, expect, &value, &err));
    value = (float)(expect->want[0] + 2 * expect->absolute);
    ASSERT_TRUE(!graphs_compare(&graph, expect, &value, &err));
    ASSERT_CONTAINS(err.text, "VEC");
    value = NAN;
    ASSERT_TRUE(!graphs_compare(&graph, expect, &value, &err));
    graphs_graph_finish(&graph);
}

/* 100,000 prices; the sample is all of them at this size, so it is thinned here. */
TEST(an_element_outside_the_sample_is_held_against_the_first_contestant)
{
    struct graphs_graph graph;
    struct graphs_expect *expect;
    struct pl_err err = {0};
    double *value;
    uint64_t step, victim;

    build(&graph, &graphs_bs);
    expect = pl_vec_at(&graph.expects, 0);
    value  = bench_must_alloc(expect->count * sizeof(double));
    memcpy(value, expect->want, expect->count * sizeof(double));
    step          = 7;
    victim        = 3;
    expect->count = expect->count / step;
    for (uint64_t i = 0; i < expect->count; i++) {
        expect->want[i] = expect->want[i * step];
    }
    expect->step  = step;
    expect->first = 0;
    ASSERT_TRUE(graphs_compare(&graph, expect, value, &err)); /* kept */
    ASSERT_TRUE(graphs_compare(&graph, expect, value, &err)); /* the second contestant */
    value[victim] += 1e-6;
    ASSERT_TRUE(!graphs_compare(&graph, expect, value, &err));
    ASSERT_CONTAINS(err.text, "element 3 of array");
    ASSERT_CONTAINS(err.text, "first contestant");
    value[victim] = NAN;
    ASSERT_TRUE(!graphs_compare(&graph, expect, value, &err));
    pl_free(value);
    graphs_graph_finish(&graph);
}

static double path_of(const struct graphs_definition *definition, double each)
{
    struct graphs_graph graph;
    double *seconds, path;

    build(&graph, definition);
    seconds = bench_must_alloc(graph.steps.count * sizeof(*seconds));
    for (size_t i = 0; i < graph.steps.count; i++) {
        seconds[i] = each;
    }
    path = graphs_critical_path(&graph, seconds);
    pl_free(seconds);
    graphs_graph_finish(&graph);
    return path;
}

/*
 * IMG has depth 6, HITS three kernels in each of five iterations, ML seven in its longer branch
 * with the last.
 */
TEST(the_critical_path_is_the_depth_of_a_graph_whose_kernels_take_one_second)
{
    ASSERT_TRUE(fabs(path_of(&graphs_vec, 1) - 2) < 1e-9);
    ASSERT_TRUE(fabs(path_of(&graphs_bs, 1) - 1) < 1e-9);
    ASSERT_TRUE(fabs(path_of(&graphs_img, 1) - 6) < 1e-9);
    ASSERT_TRUE(fabs(path_of(&graphs_hits, 1) - 15) < 1e-9);
    ASSERT_TRUE(fabs(path_of(&graphs_ml, 1) - 6) < 1e-9);
    ASSERT_TRUE(fabs(path_of(&graphs_dl, 0.5) - 2.5) < 1e-9);
}

TEST(the_traffic_of_a_graph_is_what_its_kernels_read_and_write)
{
    struct graphs_graph graph;

    build(&graph, &graphs_vec); /* two squares, and a sum of two; a ticket, a result */
    ASSERT_EQ(graphs_traffic(&graph), 6 * 4 * (uint64_t)graph.n + 4 + 2 * 4);
    graphs_graph_finish(&graph);
    build(&graph, &graphs_bs);
    ASSERT_EQ(graphs_traffic(&graph), 10 * 2 * 8 * (uint64_t)graph.n);
    graphs_graph_finish(&graph);
}

static plasmon_status_t count_call(void *user, struct pl_err *err)
{
    (void)err;
    ++*(uint32_t *)user;
    return PLASMON_OK;
}

TEST(a_spent_budget_leaves_a_median_of_three_and_a_large_one_all_samples)
{
    struct graphs_run run = {.samples = 30, .drop = 3, .budget_ns = 0};
    struct graphs_timing timing;
    struct pl_err err = {0};
    uint32_t calls    = 0;

    ASSERT_OK(graphs_time(&run, count_call, &calls, &timing, &err));
    ASSERT_EQ(calls, 1 + GRAPHS_SAMPLES_MIN);
    ASSERT_EQ(timing.samples, GRAPHS_SAMPLES_MIN);
    run.budget_ns = UINT64_MAX / 2;
    calls         = 0;
    ASSERT_OK(graphs_time(&run, count_call, &calls, &timing, &err));
    ASSERT_EQ(calls, 30);
    ASSERT_EQ(timing.samples, 27);
}

TEST(as_many_runs_are_in_flight_as_the_budget_lets_be_but_two_where_there_may_be_several)
{
    struct graphs_run run = {.in_flight = 100, .budget_ns = 800000000}; /* 0.1 s a sample */

    run.serial_seconds[GRAPHS_RESIDENT] = 100e-6;
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_RESIDENT), 100);
    run.serial_seconds[GRAPHS_RESIDENT] = 4e-3;
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_RESIDENT), 25);
    run.serial_seconds[GRAPHS_RESIDENT] = 1;
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_RESIDENT), 2);
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_SINGLE), 1);
    run.serial_seconds[GRAPHS_SINGLE] = 1;
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_SINGLE), 1);
    run.in_flight = 1;
    ASSERT_EQ(graphs_in_flight(&run, GRAPHS_RESIDENT), 1);
}

TEST(a_target_is_met_at_it_and_missed_beyond_whichever_way_it_goes)
{
    struct bench_row most  = {.ratio = 1.05, .target = 1.05};
    struct bench_row least = {.ratio = 0.95, .target = -0.95};

    ASSERT_TRUE(bench_row_met(&most) && bench_row_met(&least));
    most.ratio  = 1.051;
    least.ratio = 0.949;
    ASSERT_TRUE(!bench_row_met(&most) && !bench_row_met(&least));
}

TEST(a_large_array_is_sampled_over_all_of_it)
{
    ASSERT_EQ(graphs_sample(1), 1);
    ASSERT_EQ(graphs_sample(500000), 1);
    ASSERT_EQ(graphs_sample(40000000) % 2,
              1); /* rows of a picture are even: no column alone */
    ASSERT_TRUE(graphs_sample(40000000) > 1);
}

TEST(a_bar_that_is_cut_has_a_gap_and_no_other_has)
{
    const struct plot_scale scale = {.base = 200, .pixels = 100, .most = 1.5};

    for (int i = 0; i < 3; i++) {
        const double speed[] = {0.5, 1.5, 1.52};
        struct pl_str out;

        pl_str_init(&out);
        plot_bar(&out, &scale, 0, 20, speed[i], "#123456", false);
        ASSERT_EQ(strstr(pl_str_text(&out), "fill=\"#fff\"/>") != NULL, i == 2);
        pl_str_finish(&out);
    }
}

TEST(the_cuda_texts_compile)
{
    test_set_timeout(200);
    for (size_t i = 0; i < PL_COUNT(definitions); i++) {
        struct pl_err err = {0};
        void *image       = NULL;
        size_t bytes      = 0;
        plasmon_status_t status =
            graphs_nvrtc(definitions[i]->cuda_text(), 90, &image, &bytes, &err);

        if (status == PLASMON_ENOTSUP) {
            test_skip("%s", err.text);
        }
        if (status != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s: %s", definitions[i]->title, err.text);
        }
        for (uint32_t k = 0; k < definitions[i]->kernel_count; k++) {
            const char *name = definitions[i]->kernels[k].name;

            if (memmem(image, bytes, name, strlen(name)) == NULL) {
                test_fail(__FILE__, __LINE__, "the text has no kernel %s", name);
            }
        }
        pl_free(image);
    }
}

TEST_MAIN()
