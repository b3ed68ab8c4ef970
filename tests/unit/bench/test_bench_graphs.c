/*
 * The six graphs of `plasmon bench graphs`, as far as they can be looked at without a GPU: hand-written streams order what they must,
 * the C texts give what fp64 gives, the CUDA texts compile, and the comparison finds what is wrong.
 */
#include <math.h>

#include "base/alloc.h"
#include "bench/graphs/bare.h"
#include "bench/graphs/nvrtc.h"
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
        const struct graphs_run run = {
            .graph = &graph, .cold = true, .runs = 3, .drop = 1, .budget_ms = 1000};
        struct pl_err err = {0};

        build(&graph, definitions[i]);
        if (graphs_bare_run(&run, result, GRAPHS_RESULTS, &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s", err.text);
        }
        ASSERT_TRUE(result[GRAPHS_SERIAL] > 0);
        ASSERT_TRUE(result[GRAPHS_CONTESTANTS + GRAPHS_SERIAL] > 0);
        ASSERT_TRUE(result[GRAPHS_EVENTS] < 0); /* there are no streams on a CPU */
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

TEST(a_large_array_is_sampled_over_all_of_it)
{
    ASSERT_EQ(graphs_sample(1), 1);
    ASSERT_EQ(graphs_sample(2000000), 1);
    ASSERT_EQ(graphs_sample(40000000) % 2,
              1); /* rows of a picture are even: no column alone */
    ASSERT_TRUE(graphs_sample(40000000) > 1);
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
