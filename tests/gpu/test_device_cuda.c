/* The contract on the first GPU, and what only GPUs do: modules, launches, cuBLAS, a context that is lost. Skips without one. */
#include "tests/unit/device/contract.h"

#include "base/fd.h"

#include <stdlib.h>

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

/* ------------------------------------------------------------------------------------------------ failure */

TEST(an_illegal_access_is_found_by_health_without_waiting_and_stays)
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

TEST(a_read_only_mapping_is_not_written)
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

/* ------------------------------------------------------------------------------------------------ cuBLAS */

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

/* ------------------------------------------------------------------------------------------------ blocking */

/*
 * A stream waits for a word that is only stored at the end. Whatever an enqueue thread may call in the meantime must
 * return; what blocks hangs the test here.
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
    ASSERT_OK(device_event_create(c.device, &event));
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
    ASSERT_TRUE(device_driver_ns() >
                before + 100 * 50); /* an enqueue takes no less than 50 ns */
    contract_close(&c);
}

/* ------------------------------------------------------------------------------------------------ two GPUs */

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
