/*
 * The contract on the first GPU, and what only GPUs do: modules, launches, cuBLAS, a context that
 * is lost. Skips without one.
 */
#include "tests/harness/alone.h"
#include "tests/unit/device/contract.h"

#include "base/fd.h"

#include <stdlib.h>
#include <string.h>

const enum device_kind contract_kind = DEVICE_CUDA;

/* Kernels as the driver's own compiler takes them, so that the test needs no nvcc. */
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    /* out[global index] = value + global index */
    ".visible .entry store_indexed(.param .u64 out, .param .u32 value)\n"
    "{\n"
    "    .reg .u32 %r<6>;\n"
    "    .reg .u64 %d<4>;\n"
    "    ld.param.u64 %d1, [out];\n"
    "    ld.param.u32 %r1, [value];\n"
    "    mov.u32 %r2, %ctaid.x;\n"
    "    mov.u32 %r3, %ntid.x;\n"
    "    mov.u32 %r4, %tid.x;\n"
    "    mad.lo.u32 %r5, %r2, %r3, %r4;\n"
    "    mul.wide.u32 %d2, %r5, 4;\n"
    "    add.u64 %d3, %d1, %d2;\n"
    "    add.u32 %r1, %r1, %r5;\n"
    "    st.global.u32 [%d3], %r1;\n"
    "    ret;\n"
    "}\n"
    /* Nothing is mapped there. */
    ".visible .entry store_nowhere()\n"
    "{\n"
    "    .reg .u32 %r<2>;\n"
    "    .reg .u64 %d<2>;\n"
    "    mov.u64 %d1, 16;\n"
    "    mov.u32 %r1, 1;\n"
    "    st.global.u32 [%d1], %r1;\n"
    "    ret;\n"
    "}\n"
    /* Touches dynamic shared memory up to its last word: more than 48 KiB must have been asked for. */
    ".extern .shared .align 4 .b8 dynamic[];\n"
    ".visible .entry use_shared(.param .u64 out, .param .u32 last)\n"
    "{\n"
    "    .reg .u32 %r<5>;\n"
    "    .reg .u64 %d<2>;\n"
    "    ld.param.u64 %d1, [out];\n"
    "    ld.param.u32 %r1, [last];\n"
    "    mov.u32 %r2, dynamic;\n"
    "    add.u32 %r2, %r2, %r1;\n"
    "    mov.u32 %r3, 4711;\n"
    "    st.shared.u32 [%r2], %r3;\n"
    "    ld.shared.u32 %r4, [%r2];\n"
    "    st.global.u32 [%d1], %r4;\n"
    "    ret;\n"
    "}\n";

static struct device_module *load(struct contract *c)
{
    struct device_module *module = NULL;
    struct pl_err err            = {.status = PLASMON_OK};

    /* Without the terminating zero: adding it is the device's work. */
    if (device_module_load(c->device, ptx, sizeof(ptx) - 1, &module, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    return module;
}

static void *function_of(struct device_module *module, const char *name)
{
    void *function = NULL;

    ASSERT_OK(device_module_function(module, name, &function, NULL));
    return function;
}

/* `blocks` blocks of 64 threads, each storing its index. */
static void launch_store(struct contract *c, struct device_stream *stream, void *function,
                         struct device_ptr out, uint32_t value, uint32_t blocks)
{
    struct device_launch_shape shape = {.grid = {blocks, 1, 1}, .block = {64, 1, 1}};
    void *params[]                   = {&out.addr, &value};

    (void)c;
    ASSERT_OK(device_launch(stream, function, &shape, params));
}

TEST(a_kernel_from_ptx_runs_in_stream_order)
{
    uint32_t got[640];
    struct device_module *module;
    struct contract c;

    contract_open(&c);
    module = load(&c);
    ASSERT_OK(device_fill8(c.stream, c.memory, 0, sizeof(got)));
    launch_store(&c, c.stream, function_of(module, "store_indexed"), c.memory, 1000, 10);
    contract_download(&c, got, c.memory, sizeof(got));
    for (uint32_t i = 0; i < PL_COUNT(got); i++) {
        ASSERT_EQ(got[i], 1000 + i);
    }
    device_module_unload(module);
    contract_close(&c);
}

TEST(a_kernel_gets_more_shared_memory_than_the_default)
{
    const uint32_t bytes             = 96u << 10;
    struct device_launch_shape shape = {
        .grid = {1, 1, 1}, .block = {1, 1, 1}, .shared_bytes = bytes};
    uint32_t last = bytes - 4;
    uint32_t got  = 0;
    struct device_module *module;
    struct contract c;
    void *params[2];

    contract_open(&c);
    module    = load(&c);
    params[0] = &c.memory.addr;
    params[1] = &last;
    ASSERT_OK(device_launch(c.stream, function_of(module, "use_shared"), &shape, params));
    contract_download(&c, &got, c.memory, sizeof(got));
    ASSERT_EQ(got, 4711);
    device_module_unload(module);
    contract_close(&c);
}

/* --------------------------------------------------- recorded launches, changed in part */

/* each stores 64 words behind the one before; two of them by two launches */
#define ITEMS  12u
#define DOUBLE 5u

/* Item `item` of the recording at hand, on branch item % 3, with value `base`. */
static void item_put(struct contract *c, struct device_graph *graph, void *function,
                     uint32_t item, uint32_t base)
{
    struct device_stream *branch = device_graph_branch(graph, item % 3);
    struct device_ptr out        = device_ptr_add(c->memory, item * 256);

    ASSERT_OK(device_graph_item(graph, item));
    if (item == DOUBLE) { /* what the second stores is what stays */
        launch_store(c, branch, function, out, 7, 1);
    }
    launch_store(c, branch, function, out, base, 1);
}

static void items_expect(struct contract *c, const uint32_t base[ITEMS], const char *when)
{
    uint32_t got[ITEMS * 64];

    contract_download(c, got, c->memory, sizeof(got));
    for (uint32_t i = 0; i < ITEMS * 64; i++) {
        if (got[i] != base[i / 64] + i % 64) {
            test_fail(__FILE__, __LINE__, "%s: word %u of item %u is %u, expected %u", when,
                      i % 64, i / 64, got[i], base[i / 64] + i % 64);
            return;
        }
    }
}

struct items {
    struct contract c;
    struct device_module *module;
    void *function;
    struct device_graph *graph;
    struct device_exec *exec;
    uint32_t base[ITEMS];
};

/* Recorded with item i storing 100 i + its index. */
static void items_open(struct items *items)
{
    struct pl_err err = {.status = PLASMON_OK};

    contract_open(&items->c);
    items->module   = load(&items->c);
    items->function = function_of(items->module, "store_indexed");
    items->exec     = NULL;
    ASSERT_OK(device_graph_create(items->c.device, 3, &items->graph, &err));
    ASSERT_OK(device_graph_begin(items->graph, &err));
    for (uint32_t i = 0; i < ITEMS; i++) {
        items->base[i] = 100 * i;
        item_put(&items->c, items->graph, items->function, i, items->base[i]);
    }
    ASSERT_OK(device_graph_end(items->graph, true, &items->exec, &err));
}

static void items_close(struct items *items)
{
    device_exec_destroy(items->exec);
    device_graph_destroy(items->graph);
    device_module_unload(items->module);
    contract_close(&items->c);
}

static void items_change(struct items *items, uint32_t item, uint32_t base)
{
    struct pl_err err = {.status = PLASMON_OK};

    ASSERT_OK(device_graph_change_begin(items->graph, items->exec, &err));
    item_put(&items->c, items->graph, items->function, item, base);
    ASSERT_OK(device_graph_change_end(items->graph));
    items->base[item] = base;
}

TEST(recorded_launches_are_changed_one_by_one)
{
    struct items items;

    items_open(&items);
    for (uint32_t round = 0; round < 3 * ITEMS; round++) {
        items_change(&items, (7 * round) % ITEMS, 5000 + round);
        ASSERT_OK(device_exec_launch(items.c.stream, items.exec, 1));
        items_expect(&items.c, items.base, "after a change");
    }
    items_close(&items);
}

TEST(a_launch_under_way_keeps_what_it_was_launched_with)
{
    uint32_t first[ITEMS], got[ITEMS * 64];
    struct items items;
    uint8_t *kept; /* not where items_expect() downloads to */

    items_open(&items);
    kept = (uint8_t *)items.c.host + sizeof(got);
    ASSERT_TRUE(2 * sizeof(got) <= CONTRACT_HOST_BYTES);
    memcpy(first, items.base, sizeof(first));
    ASSERT_OK(device_wait(items.c.stream, &items.c.words[0], 1)); /* nothing begins yet */
    ASSERT_OK(device_exec_launch(items.c.stream, items.exec, 1));
    ASSERT_OK(device_copy(items.c.stream, DEVICE_COPY_DEVICE_TO_HOST,
                          (uint64_t)(uintptr_t)kept, items.c.memory.addr, sizeof(got)));
    items_change(&items, 4, 9999);
    items_change(&items, DOUBLE, 8888);
    ASSERT_OK(device_exec_launch(items.c.stream, items.exec, 2));
    contract_gate_open(&items.c.words[0], 1);
    items_expect(&items.c, items.base, "the second launch");
    memcpy(got, kept, sizeof(got));
    for (uint32_t i = 0; i < ITEMS * 64; i++) {
        if (got[i] != first[i / 64] + i % 64) {
            test_fail(__FILE__, __LINE__,
                      "the first launch stored %u at word %u of item %u, expected %u",
                      got[i], i % 64, i / 64, first[i / 64] + i % 64);
            break;
        }
    }
    items_close(&items);
}

TEST(what_is_not_the_same_launches_is_refused_and_nothing_of_it_runs)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct items items;

    items_open(&items);
    ASSERT_OK(device_fill8(items.c.stream, items.c.memory, 0, ITEMS * 256));
    /* Fewer launches than the item had. */
    ASSERT_OK(device_graph_change_begin(items.graph, items.exec, &err));
    ASSERT_OK(device_graph_item(items.graph, DOUBLE));
    launch_store(&items.c, device_graph_branch(items.graph, 0), items.function,
                 items.c.memory, 1, 1);
    ASSERT_STATUS(device_graph_change_end(items.graph), PLASMON_ENOTSUP);
    /* A fill beside the launch. */
    ASSERT_OK(device_graph_change_begin(items.graph, items.exec, &err));
    item_put(&items.c, items.graph, items.function, 2, 200);
    ASSERT_OK(device_fill8(device_graph_branch(items.graph, 1), items.c.memory, 1, 256));
    ASSERT_STATUS(device_graph_change_end(items.graph), PLASMON_ENOTSUP);
    {
        uint32_t got[ITEMS * 64];

        contract_download(&items.c, got, items.c.memory, sizeof(got));
        for (uint32_t i = 0; i < ITEMS * 64; i++) {
            ASSERT_EQ(got[i], 0); /* neither ran */
        }
    }
    /* Recorded anew, it is right again: updated as a whole, and not changed in parts from then on. */
    ASSERT_OK(device_graph_begin(items.graph, &err));
    for (uint32_t i = 0; i < ITEMS; i++) {
        items.base[i] = 31 * i;
        item_put(&items.c, items.graph, items.function, i, items.base[i]);
    }
    ASSERT_OK(device_graph_end(items.graph, true, &items.exec, &err));
    ASSERT_OK(device_exec_launch(items.c.stream, items.exec, 1));
    items_expect(&items.c, items.base, "recorded anew");
    ASSERT_STATUS(device_graph_change_begin(items.graph, items.exec, &err),
                  PLASMON_ENOTSUP);
    items_close(&items);
}

TEST(an_item_with_a_fill_is_not_changed_alone)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_graph_create(c.device, 1, &graph, &err));
    ASSERT_OK(device_graph_begin(graph, &err));
    ASSERT_OK(device_graph_item(graph, 0));
    ASSERT_OK(device_fill8(device_graph_branch(graph, 0), c.memory, 1, 64));
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_graph_change_begin(graph, exec, &err));
    ASSERT_STATUS(device_graph_item(graph, 0), PLASMON_ENOTSUP);
    ASSERT_STATUS(device_graph_change_end(graph), PLASMON_ENOTSUP);
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}

TEST(gpu_code_that_is_broken_says_what_is_wrong)
{
    static const char broken[] =
        ".version 7.0\n.target sm_80\n.address_size 64\nnonsense here;\n";
    struct device_module *module = NULL;
    struct pl_err err;
    void *function;
    struct contract c;

    contract_open(&c);
    test_expect_log();
    ASSERT_STATUS(device_module_load(c.device, broken, sizeof(broken) - 1, &module, &err),
                  PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "CUDA_ERROR_INVALID_PTX");
    ASSERT_CONTAINS(err.text, "nonsense"); /* the compiler's own words */
    ASSERT_NULL(module);

    module = load(&c);
    ASSERT_STATUS(device_module_function(module, "no_such_kernel", &function, &err),
                  PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "no_such_kernel");
    device_module_unload(module);
    contract_close(&c);
}

/* ------------------------------------------------------------------------------ failure */

TEST_ALONE(an_illegal_access_is_found_by_health_without_waiting_and_stays)
{
    struct device_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    struct pl_err err                = {.status = PLASMON_OK};
    struct device_module *module;
    plasmon_status_t status;
    struct contract c;

    test_expect_log();
    contract_open(&c);
    module = load(&c);
    ASSERT_OK(device_launch(c.stream, function_of(module, "store_nowhere"), &shape, NULL));
    do {
        status = device_health(c.device, &err);
    } while (status == PLASMON_OK); /* the time-out of the test is the deadline */
    ASSERT_STATUS(status, PLASMON_EDEVICE);
    ASSERT_CONTAINS(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS");

    ASSERT_STATUS(device_stream_sync(c.stream, &err), PLASMON_EDEVICE);
    ASSERT_STATUS(device_fill8(c.stream, c.memory, 1, 1), PLASMON_EDEVICE);
    ASSERT_STATUS(device_health(c.device, &err), PLASMON_EDEVICE);
    ASSERT_CONTAINS(err.text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    device_module_unload(module);
    contract_close(&c); /* must not crash or hang on a lost context */
}

TEST_ALONE(a_read_only_mapping_is_not_written) /* its context is lost */
{
    struct device_ptr readonly;
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status;
    struct contract c;

    test_expect_log();
    contract_open(&c);
    readonly = device_ptr_add(c.range, c.chunk_bytes);
    ASSERT_OK(device_fill8(c.stream, c.memory, 5, 64));
    ASSERT_OK(device_chunk_map(c.device, c.chunk, c.chunk_bytes, 0, false, readonly));
    status = device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE, readonly.addr,
                         c.memory.addr + 4096, 64);
    if (status == PLASMON_OK) {
        status = device_stream_sync(c.stream, &err);
    }
    ASSERT_TRUE(status != PLASMON_OK);
    device_chunk_unmap(c.device, readonly, c.chunk_bytes);
    contract_close(&c);
}

TEST(a_word_that_was_not_registered_is_refused)
{
    static uint64_t word;
    struct contract c;

    contract_open(&c);
    ASSERT_STATUS(device_signal(c.stream, &word, 1), PLASMON_EINVAL);
    ASSERT_STATUS(device_wait(c.stream, &word, 1), PLASMON_EINVAL);
    contract_close(&c);
}

/* ------------------------------------------------------------------------------- cuBLAS */

/* As cublasDgemm_v2 is declared, but for the names of types; 0 is "not transposed". */
typedef int (*dgemm_fn)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                        const double *alpha, const double *a, int lda, const double *b,
                        int ldb, const double *beta, double *c, int ldc);

#define SIZE 96

static void *device_address(struct device_ptr ptr)
{
    return (void *)(uintptr_t)ptr.addr;
}

/* c = a * b of small whole numbers: exact in doubles, whatever the order of sums. */
static void product_check(struct contract *c, dgemm_fn dgemm, struct device_stream *stream,
                          uint64_t offset)
{
    enum { BYTES = SIZE * SIZE * (int)sizeof(double) };
    static double a[SIZE * SIZE], b[SIZE * SIZE], got[SIZE * SIZE];
    struct device_ptr at_a = device_ptr_add(c->memory, offset);
    struct device_ptr at_b = device_ptr_add(at_a, BYTES);
    struct device_ptr at_c = device_ptr_add(at_b, BYTES);
    const double one       = 1;
    const double zero      = 0;
    struct pl_err err      = {.status = PLASMON_OK};
    void *handle;

    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = i % 7 - 3;
        b[i] = i % 5 - 2;
    }
    contract_upload(c, at_a, a, BYTES);
    contract_upload(c, at_b, b, BYTES);
    handle = device_cublas_on(stream, &err);
    if (handle == NULL) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    ASSERT_EQ(dgemm(handle, 0, 0, SIZE, SIZE, SIZE, &one, device_address(at_a), SIZE,
                    device_address(at_b), SIZE, &zero, device_address(at_c), SIZE),
              0);
    ASSERT_OK(device_stream_sync(stream, NULL));
    contract_download(c, got, at_c, BYTES);
    for (int col = 0; col < SIZE; col++) {
        for (int row = 0; row < SIZE; row++) {
            double want = 0;

            for (int k = 0; k < SIZE; k++) {
                want += a[row + k * SIZE] * b[k + col * SIZE];
            }
            ASSERT_TRUE(got[row + col * SIZE] == want);
        }
    }
}

static dgemm_fn dgemm_find(struct contract *c)
{
    struct pl_err why = {.status = PLASMON_OK};
    dgemm_fn dgemm;
    void *symbol;

    if (device_cublas(c->device, &why) == NULL) {
        test_skip("%s", why.text);
    }
    symbol = device_cublas_symbol(c->device, "cublasDgemm_v2");
    ASSERT_NOT_NULL(symbol);
    ASSERT_NULL(device_cublas_symbol(c->device, "cublasNoSuchFunction"));
    memcpy(&dgemm, &symbol, sizeof(dgemm));
    return dgemm;
}

TEST(cublas_multiplies_on_either_stream)
{
    dgemm_fn dgemm;
    struct contract c;

    contract_open(&c);
    dgemm = dgemm_find(&c);
    product_check(&c, dgemm, c.stream, 0);
    product_check(&c, dgemm, c.other, 1u << 20);
    product_check(&c, dgemm, c.stream, 2u << 20);
    contract_close(&c);
}

/* ----------------------------------------------------------------------------- blocking */

/*
 * A stream waits for a word that is only stored at the end. Whatever an enqueue thread may call in
 * the meantime must return; what blocks hangs the test here.
 */
TEST(nothing_that_enqueues_blocks_while_a_stream_waits)
{
    struct pl_box frame = {.ndim = 2, .count = {300, 301}};
    struct pl_box box   = {.ndim = 2, .start = {1, 1}, .count = {200, 3}};
    struct device_stream *working;
    struct device_module *module;
    struct device_event *event;
    struct device_ptr extra;
    struct contract c;
    dgemm_fn dgemm = NULL;
    int fd;

    contract_open(&c);
    module = load(&c);
    extra  = device_ptr_add(c.range, c.chunk_bytes);
    if (device_cublas(c.device, NULL) != NULL) {
        dgemm = dgemm_find(&c);
    }
    ASSERT_OK(device_stream_create(c.device, 0, &working));
    ASSERT_OK(device_wait(c.other, &c.words[0], 1));

    launch_store(&c, working, function_of(module, "store_indexed"), c.memory, 0, 4);
    ASSERT_OK(device_copy_box(working, &box, 4, device_ptr_add(c.memory, 1u << 20), &frame,
                              c.memory, &frame)); /* the kernel's way */
    ASSERT_OK(device_chunk_create(c.device, c.chunk_bytes, &fd));
    ASSERT_OK(device_chunk_map(c.device, fd, c.chunk_bytes, 0, true, extra));
    ASSERT_OK(device_fill8(working, extra, 1, 4096));
    ASSERT_OK(device_stream_sync(working, NULL));
    device_chunk_unmap(c.device, extra, c.chunk_bytes);
    pl_fd_close(&fd);
    ASSERT_OK(device_event_create(c.device, true, &event));
    ASSERT_OK(device_event_record(event, working));
    if (dgemm != NULL) {
        product_check(&c, dgemm, working,
                      0); /* the first product on this stream makes its workspace */
    }
    ASSERT_OK(device_stream_sync(working, NULL));
    ASSERT_TRUE(device_event_done(event));
    ASSERT_OK(device_health(c.device, NULL));
    ASSERT_EQ(contract_word_load(&c.words[0]), 0); /* it waited all the time */

    contract_gate_open(&c.words[0], 1);
    ASSERT_OK(device_stream_sync(c.other, NULL));
    device_event_destroy(event);
    device_stream_destroy(working);
    device_module_unload(module);
    contract_close(&c);
}

#define ENGINE_STREAMS \
    8u /* queues of an engine: one more than streams copy by it (transfers.md) */

static void let_others_wait(struct contract *c, enum device_copy_kind kind)
{
    uint64_t ours = c->memory.addr, hosts = (uintptr_t)c->host;
    bool out   = kind == DEVICE_COPY_DEVICE_TO_HOST;
    size_t run = CONTRACT_HOST_BYTES / ENGINE_STREAMS;
    struct device_stream *streams[ENGINE_STREAMS];

    for (uint32_t i = 0; i < ENGINE_STREAMS; i++) {
        uint64_t to = (out ? hosts : ours) + i * run, from = (out ? ours : hosts) + i * run;

        ASSERT_OK(device_stream_create(c->device, 0, &streams[i]));
        ASSERT_OK(device_copy(streams[i], kind, to, from, run));
        if (i < ENGINE_STREAMS - 1) { /* the first one makes the engine theirs */
            ASSERT_OK(device_wait(streams[i], &c->words[kind], 1));
            ASSERT_OK(device_copy(streams[i], kind, to, from, run));
        }
    }
    /* Hangs, and so ends by the time limit, where it is behind one of the others. */
    ASSERT_OK(device_stream_sync(streams[ENGINE_STREAMS - 1], NULL));
    ASSERT_EQ(contract_word_load(&c->words[kind]), 0);
    contract_gate_open(&c->words[kind], 1);
    for (uint32_t i = 0; i < ENGINE_STREAMS; i++) {
        device_stream_destroy(streams[i]);
    }
}

TEST(a_copy_passes_seven_streams_whose_copies_by_that_engine_wait)
{
    struct contract c;

    contract_open(&c);
    let_others_wait(&c, DEVICE_COPY_DEVICE_TO_HOST);
    let_others_wait(&c, DEVICE_COPY_HOST_TO_DEVICE);
    contract_close(&c);
}

TEST(driver_time_is_counted_only_when_asked_for)
{
    uint64_t before;
    struct contract c;

    contract_open(&c);
    before = device_driver_ns();
    ASSERT_OK(device_fill8(c.stream, c.memory, 1, 64));
    ASSERT_EQ(device_driver_ns(), before);
    device_driver_time_enable(true);
    for (unsigned i = 0; i < 100; i++) {
        ASSERT_OK(device_fill8(c.stream, c.memory, 1, 64));
    }
    device_driver_time_enable(false);
    /* an enqueue takes no less than 50 ns */
    ASSERT_TRUE(device_driver_ns() > before + 100 * 50);
    contract_close(&c);
}

/* ----------------------------------------------------------------------------- two GPUs */

TEST(a_peers_chunk_is_pulled_whole_and_by_boxes)
{
    struct pl_box frame = {.ndim = 3, .count = {16, 16, 64}};
    struct pl_box box   = {.ndim = 3, .start = {2, 3, 4}, .count = {9, 8, 40}};
    struct device *peer;
    struct device_stream *stream;
    struct device_ptr base;
    static uint64_t want[16 * 16 * 64], got[16 * 16 * 64];
    uint64_t seed = test_seed();
    void *host;
    int fd;
    struct contract c;

    contract_open(&c);
    if (device_count(DEVICE_CUDA, NULL) < 2) {
        test_skip("one GPU");
    }
    ASSERT_OK(device_open(DEVICE_CUDA, 1, NULL, &peer, NULL));
    if (!device_can_peer(peer, 0)) {
        test_skip("no peer access");
    }
    contract_fill_random(want, sizeof(want), &seed);
    contract_upload(&c, c.memory, want, sizeof(want));

    ASSERT_OK(pl_memfd_create("peer-host", 1u << 20, &fd));
    ASSERT_OK(pl_fd_map(fd, 1u << 20, 1, &host));
    pl_fd_close(&fd);
    ASSERT_OK(device_host_register(peer, host, 1u << 20));
    ASSERT_OK(device_stream_create(peer, 0, &stream));
    ASSERT_OK(device_range_reserve(peer, 2 * c.chunk_bytes, &base));
    ASSERT_OK(device_chunk_create(peer, c.chunk_bytes, &fd));
    ASSERT_OK(device_chunk_map(peer, fd, c.chunk_bytes, 1, true, base));
    pl_fd_close(&fd);
    ASSERT_OK(device_chunk_map(peer, c.chunk, c.chunk_bytes, 0, false,
                               device_ptr_add(base, c.chunk_bytes)));

    ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_DEVICE, base.addr,
                          base.addr + c.chunk_bytes, sizeof(want)));
    ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, (uintptr_t)host, base.addr,
                          sizeof(got)));
    ASSERT_OK(device_stream_sync(stream, NULL));
    ASSERT_EQ(memcmp(host, want, sizeof(want)), 0);

    memset(got, 0, sizeof(got));
    ASSERT_OK(device_fill8(stream, base, 0, sizeof(want)));
    ASSERT_OK(device_copy_box(stream, &box, 8, base, &frame,
                              device_ptr_add(base, c.chunk_bytes), &frame));
    ASSERT_OK(device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST, (uintptr_t)host, base.addr,
                          sizeof(got)));
    ASSERT_OK(device_stream_sync(stream, NULL));
    pl_box_copy_host(&box, got, &frame, want, &frame, 8);
    ASSERT_EQ(memcmp(host, got, sizeof(got)), 0);

    device_stream_destroy(stream);
    device_chunk_unmap(peer, base, c.chunk_bytes);
    device_chunk_unmap(peer, device_ptr_add(base, c.chunk_bytes), c.chunk_bytes);
    device_range_release(peer, base, 2 * c.chunk_bytes);
    device_host_unregister(peer, host);
    pl_fd_unmap(host, 1u << 20);
    device_close(peer);
    contract_close(&c);
}

TEST_MAIN()
