/*
 * Launches that a stream keeps and puts in together (device/cuda/chain.c): that each runs once, in
 * order, with its own arguments, and that one which the driver refuses is told by its own tag. On a
 * GPU, and with the driver that has none (tests/harness/gpu), which reads no code and knows
 * chain_mix by its name.
 */
#include "tests/harness/alone.h"
#include "tests/unit/device/contract.h"

#include <stdlib.h>
#include <string.h>

const enum device_kind contract_kind = DEVICE_CUDA;

/* x[i] = 3 x[i] + value: another order gives another number. */
#define MIX(HEAD, BEGIN)                                                                \
    HEAD ".visible .entry chain_mix(.param .u64 x, .param .u64 n, .param .u32 value)\n" \
         "{\n" BEGIN "    .reg .u32 %r<6>;\n"                                           \
         "    .reg .u64 %d<5>;\n"                                                       \
         "    .reg .pred %p;\n"                                                         \
         "    ld.param.u64 %d1, [x];\n"                                                 \
         "    ld.param.u64 %d2, [n];\n"                                                 \
         "    ld.param.u32 %r1, [value];\n"                                             \
         "    mov.u32 %r2, %tid.x;\n"                                                   \
         "    cvt.u64.u32 %d3, %r2;\n"                                                  \
         "    setp.ge.u64 %p, %d3, %d2;\n"                                              \
         "    @%p ret;\n"                                                               \
         "    mul.wide.u32 %d4, %r2, 4;\n"                                              \
         "    add.u64 %d1, %d1, %d4;\n"                                                 \
         "    ld.global.u32 %r3, [%d1];\n"                                              \
         "    mad.lo.u32 %r4, %r3, 3, %r1;\n"                                           \
         "    st.global.u32 [%d1], %r4;\n"                                              \
         "    ret;\n"                                                                   \
         "}\n"

static const char ptx[] = MIX(".version 7.0\n.target sm_80\n.address_size 64\n", "")
    /* Nothing is mapped there: the context is lost. */
    ".visible .entry store_nowhere()\n"
    "{\n"
    "    .reg .u32 %r<2>;\n"
    "    .reg .u64 %d<2>;\n"
    "    mov.u64 %d1, 16;\n"
    "    mov.u32 %r1, 1;\n"
    "    st.global.u32 [%d1], %r1;\n"
    "    ret;\n"
    "}\n";

/* The same, made to begin early, as kernels/code_early.c does it. */
static const char early_ptx[] =
    MIX(".version 7.8\n.target sm_90\n.address_size 64\n"
        ".visible .global .align 4 .u32 " DEVICE_EARLY_MARK " = 1;\n",
        "    griddepcontrol.wait;\n    griddepcontrol.launch_dependents;\n");

enum { N = 64, KEPT_MOST = 32 };

struct chained {
    struct contract c;
    struct device_stream *stream; /* keeps */
    struct device_module *module, *early_module;
    void *function, *early; /* early: NULL on a device that has no early starts */
    uint32_t expected[N];
    uint32_t launches; /* so far */
};

static void load(struct chained *t)
{
    struct device_function_limits limits;
    struct pl_err err = {.status = PLASMON_OK};

    if (device_module_load(t->c.device, ptx, sizeof(ptx) - 1, &t->module, &err) !=
        PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    ASSERT_OK(device_module_function(t->module, "chain_mix", &t->function, NULL));
    ASSERT_OK(device_function_limits(t->module, t->function, &limits, NULL));
    ASSERT_TRUE(limits.soon);
    ASSERT_TRUE(!limits.early);
    ASSERT_EQ(limits.soon_shared_max, 48u << 10);
    t->early_module = NULL;
    t->early        = NULL;
    if (device_get_info(t->c.device)->early_start) {
        ASSERT_OK(device_module_load(t->c.device, early_ptx, sizeof(early_ptx) - 1,
                                     &t->early_module, NULL));
        ASSERT_OK(device_module_function(t->early_module, "chain_mix", &t->early, NULL));
        ASSERT_OK(device_function_limits(t->early_module, t->early, &limits, NULL));
        ASSERT_TRUE(limits.soon && limits.early);
    }
}

static void unload(struct chained *t)
{
    device_module_unload(t->module);
    if (t->early_module != NULL) {
        device_module_unload(t->early_module);
    }
}

static void begin(struct chained *t)
{
    memset(t, 0, sizeof(*t));
    contract_open(&t->c);
    ASSERT_OK(device_stream_create(t->c.device, DEVICE_STREAM_KEEPS, &t->stream));
    load(t);
    ASSERT_OK(device_fill8(t->stream, t->c.memory, 0, sizeof(t->expected)));
}

static void end(struct chained *t)
{
    unload(t);
    device_stream_destroy(t->stream);
    contract_close(&t->c);
}

/* early: by the one that may begin early, if there is one. */
static void put_threads(struct chained *t, uint32_t value, uint32_t threads, bool early)
{
    struct device_launch_shape shape = {
        .grid = {1, 1, 1}, .block = {threads, 1, 1}, .early = early && t->early != NULL};
    const uint64_t values[] = {t->c.memory.addr, N, value | UINT64_C(0xabcd00000000)};
    const struct device_params params = {values, PL_COUNT(values), sizeof(values[0])};

    ASSERT_OK(device_launch_soon(t->stream, shape.early ? t->early : t->function, &shape,
                                 &params, 1000 + t->launches));
    t->launches++;
}

static void expect_mix(struct chained *t, uint32_t value)
{
    for (uint32_t i = 0; i < N; i++) {
        t->expected[i] = 3 * t->expected[i] + value;
    }
}

static void put_one(struct chained *t, bool early)
{
    uint32_t value = 7 * t->launches + 1;

    put_threads(t, value, N, early);
    expect_mix(t, value);
}

static void put(struct chained *t, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        put_one(t, false);
    }
}

/* By a copy in the same stream, which must come behind what is kept. */
static void expect(struct chained *t)
{
    const uint32_t *got = (const uint32_t *)(const void *)t->c.host;

    ASSERT_OK(device_copy(t->stream, DEVICE_COPY_DEVICE_TO_HOST, (uint64_t)(uintptr_t)got,
                          t->c.memory.addr, sizeof(t->expected)));
    ASSERT_OK(device_stream_sync(t->stream, NULL));
    for (uint32_t i = 0; i < N; i++) {
        ASSERT_EQ(got[i], t->expected[i]);
    }
}

/* The driver without a GPU is told so; a real one knows them. */
TEST(a_driver_that_knows_no_clusters_keeps_launches_too)
{
    struct chained t;

    ASSERT_EQ(setenv("FAKE_CUDA_OLD", "1", 1), 0);
    begin(&t); /* looks at the limits */
    ASSERT_EQ(unsetenv("FAKE_CUDA_OLD"), 0);
    put(&t, 3);
    expect(&t);
    end(&t);
}

TEST(kept_launches_run_once_in_order_with_their_own_arguments)
{
    struct chained t;

    begin(&t);
    for (uint32_t count = 1; count <= 2 * KEPT_MOST + 3; count++) {
        put(&t, count);
        expect(&t);
    }
    for (uint32_t i = 0; i < 40;
         i++) { /* chains that are launched again while they are under way */
        put(&t, KEPT_MOST - i % 3);
        device_stream_flush(t.stream);
    }
    device_stream_flush(t.stream); /* nothing is kept */
    expect(&t);
    end(&t);
}

TEST(launches_that_may_begin_early_run_in_order_among_all_others)
{
    struct chained t;

    begin(&t);
    if (t.early == NULL) {
        end(&t);
        test_skip("the device has no early starts");
    }
    for (uint32_t count = 1; count <= 2 * KEPT_MOST + 3; count++) { /* all of them */
        for (uint32_t i = 0; i < count; i++) {
            put_one(&t, true);
        }
        expect(&t);
    }
    for (uint32_t at = 0; at < KEPT_MOST; at++) { /* one at each place does not wait */
        for (uint32_t i = 0; i < 2 * KEPT_MOST; i++) {
            put_one(&t, i != at);
        }
    }
    for (uint32_t i = 0; i < 100 * KEPT_MOST; i++) { /* and any mixture */
        put_one(&t, (i * 2654435761u >> 13) % 5 != 0);
        if ((i * 2654435761u >> 17) % 11 == 0) {
            device_stream_flush(t.stream);
        }
    }
    expect(&t);
    end(&t);
}

/* ---- recorded: what a launch of the graph must do, and doing it again with other numbers */

enum { RECORDED = 40 };

static void record(struct chained *t, struct device_graph *graph, uint32_t first,
                   uint32_t early_of)
{
    for (uint32_t i = 0; i < RECORDED; i++) {
        struct device_launch_shape shape = {
            .grid = {1, 1, 1}, .block = {N, 1, 1}, .early = i % early_of != 0};
        uint64_t x = t->c.memory.addr, n = N;
        uint32_t value = first + i;
        void *params[] = {&x, &n, &value};

        ASSERT_OK(device_graph_item(graph, i));
        ASSERT_OK(device_launch(device_graph_branch(graph, 0),
                                shape.early ? t->early : t->function, &shape, params));
        if (i % 7 == 3) { /* what is no launch has full edges */
            ASSERT_OK(device_copy(device_graph_branch(graph, 0),
                                  DEVICE_COPY_DEVICE_TO_DEVICE, t->c.memory.addr + 8192,
                                  t->c.memory.addr, sizeof(t->expected)));
        }
    }
}

static void replay(struct chained *t, struct device_exec *exec, uint32_t first)
{
    ASSERT_OK(device_exec_launch(t->stream, exec, 0));
    for (uint32_t i = 0; i < RECORDED; i++) {
        expect_mix(t, first + i);
    }
    expect(t);
}

TEST(recorded_launches_that_may_begin_early_run_in_order_among_all_others)
{
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct chained t;

    begin(&t);
    if (t.early == NULL) {
        end(&t);
        test_skip("the device has no early starts");
    }
    ASSERT_OK(device_graph_create(t.c.device, 2, &graph, NULL));
    for (uint32_t early_of = RECORDED; early_of > 1; early_of -= 3) { /* updated, or anew */
        ASSERT_OK(device_graph_begin(graph, NULL));
        record(&t, graph, 5, early_of);
        ASSERT_OK(device_graph_end(graph, true, &exec, NULL));
        for (uint32_t i = 0; i < 5; i++) {
            replay(&t, exec, 5);
        }
    }
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    end(&t);
}

static plasmon_status_t change(struct chained *t, struct device_graph *graph,
                               struct device_exec *exec, uint32_t item, bool early)
{
    struct device_launch_shape shape = {
        .grid = {1, 1, 1}, .block = {N, 1, 1}, .early = early};
    uint64_t x = t->c.memory.addr, n = N;
    uint32_t value = 5 + item;
    void *params[] = {&x, &n, &value};
    plasmon_status_t launched, ended;

    ASSERT_OK(device_graph_change_begin(graph, exec, NULL));
    ASSERT_OK(device_graph_item(graph, item));
    launched = device_launch(device_graph_branch(graph, 0), early ? t->early : t->function,
                             &shape, params);
    ended    = device_graph_change_end(graph);
    ASSERT_EQ(launched, ended);
    return ended;
}

TEST(what_may_begin_early_is_not_replaced_by_what_does_not_wait)
{
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct chained t;

    begin(&t);
    if (t.early == NULL) {
        end(&t);
        test_skip("the device has no early starts");
    }
    ASSERT_OK(device_graph_create(t.c.device, 1, &graph, NULL));
    ASSERT_OK(device_graph_begin(graph, NULL));
    record(&t, graph, 5, RECORDED); /* all but the first */
    ASSERT_OK(device_graph_end(graph, true, &exec, NULL));
    ASSERT_STATUS(change(&t, graph, exec, 2, false), PLASMON_ENOTSUP);
    replay(&t, exec, 5);
    ASSERT_OK(change(&t, graph, exec, 2, true));
    ASSERT_OK(change(&t, graph, exec, 0, true)); /* behind nothing, and a full edge */
    replay(&t, exec, 5);
    ASSERT_OK(change(&t, graph, exec, 0, false));
    replay(&t, exec, 5);
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    end(&t);
}

/* Whatever looks at the stream finds them done: a word, an event, another stream behind it. */
TEST(what_follows_is_behind_what_is_kept)
{
    struct device_event *event;
    struct chained t;

    begin(&t);
    ASSERT_OK(device_event_create(t.c.device, true, &event));
    put(&t, 5);
    ASSERT_OK(device_signal(t.stream, &t.c.words[0], 1));
    while (contract_word_load(&t.c.words[0]) != 1) {
        /* the test's time-out is the deadline */
    }
    put(&t, 9);
    ASSERT_OK(device_event_record(event, t.stream));
    while (!device_event_done(event)) {
    }
    put(&t, 17);
    ASSERT_OK(device_stream_join(t.c.stream, t.stream));
    ASSERT_OK(device_copy(t.c.stream, DEVICE_COPY_DEVICE_TO_DEVICE, t.c.memory.addr + 4096,
                          t.c.memory.addr, sizeof(t.expected)));
    ASSERT_OK(device_stream_join(t.stream, t.c.stream));
    put(&t, 3); /* behind the copy */
    ASSERT_OK(device_stream_sync(t.stream, NULL));
    expect(&t);
    device_event_destroy(event);
    end(&t);
}

TEST(a_refused_launch_is_told_by_its_tag_and_the_others_run)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct chained t;
    uint64_t tag = 0;

    test_expect_log();
    begin(&t);
    put(&t, 3);
    put_threads(&t, 0, 4096, false); /* no device has such blocks */
    put(&t, 20);
    ASSERT_TRUE(!device_launch_failure(t.c.device, &tag, &err));
    device_stream_flush(t.stream);
    ASSERT_TRUE(device_launch_failure(t.c.device, &tag, &err));
    ASSERT_EQ(tag, 1003);
    ASSERT_CONTAINS(err.text, "refused the launch");
    ASSERT_TRUE(!device_launch_failure(t.c.device, &tag, &err));
    expect(&t);
    put(&t, 2 * KEPT_MOST);
    expect(&t);
    end(&t);
}

/* What was kept has not begun, and did not fail: who starts anew does it again. */
TEST_ALONE(a_lost_context_is_told_by_health_and_not_by_launch)
{
    struct device_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    struct pl_err err                = {.status = PLASMON_OK};
    struct chained t;
    void *trap;
    uint64_t tag;

    test_expect_log();
    begin(&t);
    ASSERT_OK(device_module_function(t.module, "store_nowhere", &trap, NULL));
    ASSERT_OK(device_launch(t.c.stream, trap, &shape, NULL));
    while (device_health(t.c.device, &err) == PLASMON_OK) {
        /* the test's time-out is the deadline */
    }
    put(&t, KEPT_MOST + 5);
    device_stream_flush(t.stream);
    ASSERT_TRUE(!device_launch_failure(t.c.device, &tag, &err));
    ASSERT_STATUS(device_health(t.c.device, &err), PLASMON_EDEVICE);
    end(&t);
}

/* Nodes of chains name functions; those of a module that goes must not stay there. */
TEST(code_comes_and_goes)
{
    struct chained t;

    begin(&t);
    for (int i = 0; i < 4; i++) {
        put(&t, KEPT_MOST + 12);
        expect(&t);
        unload(&t);
        load(&t);
    }
    put(&t, KEPT_MOST + 12);
    expect(&t);
    end(&t);
}

TEST(a_stream_that_keeps_nothing_says_so)
{
    struct device_launch_shape shape  = {.grid = {1, 1, 1}, .block = {N, 1, 1}};
    const uint64_t values[3]          = {0};
    const struct device_params params = {values, PL_COUNT(values), sizeof(values[0])};
    struct chained t;

    begin(&t);
    ASSERT_STATUS(device_launch_soon(t.c.stream, t.function, &shape, &params, 1),
                  PLASMON_ENOTSUP);
    end(&t);
}

TEST_MAIN()
