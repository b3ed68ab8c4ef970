/*
 * What runs at the same time on a GPU, told by the GPU's own timestamps in a timeline: independent
 * kernels, kernels and copies both ways, kernels and the host's work; and a small kernel of high
 * priority among large ones. Asserted is that intervals meet, never how fast anything is.
 *
 * With OUT set each test leaves its trace (JSON) and picture (SVG) there. With PLASMON_OVERLAP_CPU
 * set it runs on CPU devices, where "kernels" are threads that sleep: the same claims, on another
 * device.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/integration/cluster.h"

enum { SPANS_MAX = 20000, SPIN_US = 300000, SMALL = 1 << 10 };

static struct plasmon_span spans[SPANS_MAX];

static void px_ok(struct plasmon_client *px, plasmon_status_t status, const char *what,
                  int line)
{
    if (status != PLASMON_OK) {
        test_fail(__FILE__, line, "%s: %s: %s", what, plasmon_status_name(status),
                  plasmon_error(px));
    }
}
#define PX_OK(px, call) px_ok(px, call, #call, __LINE__)

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* path: as PLASMON_CLIENT_PATH; "messages" makes puts and gets launches on the device's copy streams. */
static struct plasmon_client *start(const char *path)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    bool cpu                       = getenv("PLASMON_OVERLAP_CPU") != NULL;
    struct plasmon_device_info infos[16];
    struct plasmon_client *px;
    uint32_t count;

    cluster_tag();
    test_set_timeout(300);
    ASSERT_EQ(setenv("PLASMON_CLIENT_PATH", path, 1), 0);
    options.gpus        = cpu ? "none" : NULL;
    options.cpu_devices = 1;
    PX_OK(NULL, plasmon_init(&options, &px));
    PX_OK(px, plasmon_devices(px, infos, 16, &count));
    if (!cpu && (count == 0 || infos[0].kind != 2)) {
        plasmon_finish(px);
        test_skip("no GPU");
    }
    return px;
}

/* -------------------------------------------------------------------------------- spans */

static size_t stop(struct plasmon_client *px, const char *name)
{
    const char *out = getenv("OUT");
    uint64_t dropped;
    size_t count;

    PX_OK(px, plasmon_timeline_stop(px));
    PX_OK(px, plasmon_timeline_spans(px, spans, SPANS_MAX, &count, &dropped));
    ASSERT_TRUE(count <= SPANS_MAX);
    ASSERT_EQ(dropped, 0);
    if (out != NULL) {
        char json[512], svg[512];

        (void)snprintf(json, sizeof(json), "%s/%s.json", out, name);
        (void)snprintf(svg, sizeof(svg), "%s/%s.svg", out, name);
        PX_OK(px, plasmon_timeline_write(px, json, svg));
    }
    return count;
}

static bool meet(const struct plasmon_span *a, const struct plasmon_span *b)
{
    return a->begin_ns < b->end_ns && b->begin_ns < a->end_ns;
}

/* What was seen, in microseconds since the first begin. */
static void show(size_t count)
{
    uint64_t first = UINT64_MAX;

    for (size_t i = 0; i < count; i++) {
        first = spans[i].begin_ns < first ? spans[i].begin_ns : first;
    }
    for (size_t i = 0; i < count && i < 60; i++) {
        printf("# device %u stream %u %-8s %-12s kind %u: %10.1f .. %10.1f us\n",
               spans[i].device, spans[i].stream, spans[i].function, spans[i].label,
               spans[i].kind, (double)(spans[i].begin_ns - first) / 1e3,
               (double)(spans[i].end_ns - first) / 1e3);
    }
}

static const struct plasmon_span *labelled(size_t count, const char *label)
{
    for (size_t i = 0; i < count; i++) {
        if (spans[i].kind == PLASMON_SPAN_RUN && strcmp(spans[i].label, label) == 0) {
            return &spans[i];
        }
    }
    show(count);
    test_fail(__FILE__, __LINE__, "nothing labelled '%s' among %zu spans", label, count);
    return NULL;
}

/* -------------------------------------------------------------------------------- calls */

static struct plasmon_ref *fill(struct plasmon_client *px, int64_t n, double value)
{
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {n, n}};
    struct plasmon_arg arg     = {.mode = PLASMON_OUT, .shape = &shape};
    plasmon_scalar_t scalar    = {.f = value};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function     = "fill";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    PX_OK(px, plasmon_submit(px, &call, &ref, NULL));
    return ref;
}

static struct plasmon_ref *spin(struct plasmon_client *px, struct plasmon_ref *x,
                                int64_t us, const char *label, int priority)
{
    struct plasmon_arg arg   = {.mode = PLASMON_INOUT, .ref = x};
    plasmon_scalar_t scalar  = {.i = us};
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function     = "spin";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = 0;
    call.label        = label;
    call.priority     = priority;
    PX_OK(px, plasmon_submit(px, &call, NULL, &task));
    return task;
}

static struct plasmon_ref *gemm(struct plasmon_client *px, struct plasmon_ref *a,
                                struct plasmon_ref *b, const char *label)
{
    struct plasmon_arg args[]  = {{.mode = PLASMON_OUT},
                                  {.mode = PLASMON_IN, .ref = a},
                                  {.mode = PLASMON_IN, .ref = b}};
    plasmon_scalar_t scalars[] = {{.f = 1}, {.i = 0}, {.i = 0}};
    struct plasmon_call call   = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function     = "gemm";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = scalars;
    call.scalar_count = 3;
    call.device       = 0;
    call.label        = label;
    PX_OK(px, plasmon_submit(px, &call, &ref, NULL));
    return ref;
}

static void wait_all(struct plasmon_client *px, struct plasmon_ref **refs, uint32_t count)
{
    PX_OK(px, plasmon_wait(px, refs, count, count, 120000, NULL, NULL));
    for (uint32_t i = 0; i < count; i++) {
        PX_OK(px, plasmon_state(px, refs[i]));
    }
}

/* ------------------------------------------------------------------------------- claims */

TEST(independent_kernels_overlap_and_dependent_ones_do_not)
{
    struct plasmon_client *px = start("auto");
    struct plasmon_ref *x[2], *tasks[4];
    const struct plasmon_span *a, *b, *after_a;
    size_t count;

    for (int i = 0; i < 2; i++) {
        x[i] = fill(px, 16, i);
    }
    wait_all(px, x, 2);
    PX_OK(px, plasmon_timeline_start(px, NULL));
    tasks[0] = spin(px, x[0], SPIN_US, "a", 0);
    tasks[1] = spin(px, x[1], SPIN_US, "b", 0);
    tasks[2] = spin(px, x[0], 1000, "after a", 0);
    wait_all(px, tasks, 3);
    count   = stop(px, "kernels");
    a       = labelled(count, "a");
    b       = labelled(count, "b");
    after_a = labelled(count, "after a");
    if (!meet(a, b) || a->stream == b->stream || meet(a, after_a) ||
        after_a->begin_ns < a->end_ns) {
        show(count);
    }
    ASSERT_TRUE(meet(a, b));                     /* expected: at the same time */
    ASSERT_TRUE(a->stream != b->stream);         /* .. in streams of their own */
    ASSERT_TRUE(after_a->begin_ns >= a->end_ns); /* expected: one after the other */
    ASSERT_EQ(after_a->stream, a->stream);       /* .. in the parent's stream */
    plasmon_finish(px);
}

struct traffic {
    struct plasmon_client *px;
    struct plasmon_ref *source;
    float *bytes;
};

enum { TRAFFIC = 1 << 20 }; /* floats each way */

static void *put_much(void *user)
{
    struct traffic *traffic    = user;
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 1, .dim = {TRAFFIC}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    options.device = 0;
    PX_OK(traffic->px, plasmon_put(traffic->px, traffic->bytes, &shape, &options, &ref));
    wait_all(traffic->px, &ref, 1);
    return NULL;
}

TEST(kernels_overlap_with_copies_both_ways)
{
    static float in[TRAFFIC], out[TRAFFIC];
    struct plasmon_client *px = start("messages");
    struct plasmon_ref *x     = fill(px, 16, 0);
    struct plasmon_ref *y     = fill(px, SMALL, 1); /* TRAFFIC floats */
    struct traffic traffic    = {.px = px, .bytes = in};
    const struct plasmon_span *kernel;
    unsigned ins = 0, outs = 0;
    struct plasmon_ref *task;
    pthread_t putter;
    size_t count;

    wait_all(px, (struct plasmon_ref *[]){x, y}, 2);
    PX_OK(px, plasmon_timeline_start(px, NULL));
    task = spin(px, x, 4 * SPIN_US, "kernel", 0);
    PX_OK(px, plasmon_flush(px));
    ASSERT_EQ(pthread_create(&putter, NULL, put_much, &traffic), 0);
    PX_OK(px, plasmon_get(px, y, out, sizeof(out), 120000));
    ASSERT_EQ(pthread_join(putter, NULL), 0);
    wait_all(px, &task, 1);
    count  = stop(px, "copies");
    kernel = labelled(count, "kernel");
    for (size_t i = 0; i < count; i++) {
        ins += spans[i].kind == PLASMON_SPAN_PUT && meet(kernel, &spans[i]);
        outs += spans[i].kind == PLASMON_SPAN_READ && meet(kernel, &spans[i]);
    }
    if (ins == 0 || outs == 0) {
        show(count);
    }
    ASSERT_TRUE(ins > 0);  /* expected: puts while the kernel runs */
    ASSERT_TRUE(outs > 0); /* expected: reads while the kernel runs */
    for (int i = 0; i < TRAFFIC; i++) {
        ASSERT_TRUE(out[i] == 1);
    }
    plasmon_finish(px);
}

TEST(kernels_overlap_with_the_hosts_work)
{
    struct plasmon_client *px = start("auto");
    struct plasmon_ref *x     = fill(px, 16, 0), *task;
    volatile double sum       = 0;
    const struct plasmon_span *kernel;
    uint64_t from, to;
    size_t count;

    wait_all(px, &x, 1);
    PX_OK(px, plasmon_timeline_start(px, NULL));
    task = spin(px, x, SPIN_US, "kernel", 0);
    PX_OK(px, plasmon_flush(px));
    from = now_ns();
    do { /* until half of what the kernel takes is over */
        for (int i = 0; i < 1000; i++) {
            sum += 1.0 / (i + 1);
        }
        to = now_ns();
    } while (to - from < SPIN_US * UINT64_C(1000) / 2);
    (void)sum;
    ASSERT_STATUS(plasmon_state(px, task), PLASMON_INPROGRESS);
    wait_all(px, &task, 1);
    count  = stop(px, "host");
    kernel = labelled(count, "kernel");
    if (kernel->begin_ns >= to || kernel->end_ns <= from) {
        printf("# host %llu .. %llu, kernel %llu .. %llu\n", (unsigned long long)from,
               (unsigned long long)to, (unsigned long long)kernel->begin_ns,
               (unsigned long long)kernel->end_ns);
    }
    ASSERT_TRUE(kernel->begin_ns < to && kernel->end_ns > from);
    /*
     * Both clocks are one: the kernel did not begin before it was submitted, nor end after we knew.
     * (Error: some microseconds.)
     */
    ASSERT_TRUE(kernel->begin_ns + 1000000 > kernel->submit_ns);
    ASSERT_TRUE(kernel->end_ns < now_ns() + 1000000);
    plasmon_finish(px);
}

/*
 * Large products fill the GPU and queue in all streams; then a small kernel of high priority comes.
 * It ends while others still wait.
 */
TEST(a_small_kernel_of_high_priority_passes_queued_large_ones)
{
    enum { LARGE = 60, N = 4096, N_CPU = 640 };
    struct plasmon_client *px = start("auto");
    int64_t n                 = getenv("PLASMON_OVERLAP_CPU") != NULL ? N_CPU : N;
    struct plasmon_ref *a = fill(px, n, 1), *b = fill(px, n, 2), *x = fill(px, 16, 0);
    struct plasmon_ref *products[LARGE], *urgent;
    const struct plasmon_span *small;
    unsigned later = 0, before = 0;
    size_t count;

    wait_all(px, (struct plasmon_ref *[]){a, b, x}, 3);
    products[0] = gemm(px, a, b, "warm-up");
    wait_all(px, products, 1);
    PX_OK(px, plasmon_timeline_start(px, NULL));
    for (int i = 0; i < LARGE; i++) {
        products[i] = gemm(px, a, b, "large");
    }
    PX_OK(px, plasmon_flush(px));
    wait_all(px, products, 1); /* so the others are on the device by now */
    urgent = spin(px, x, 1, "urgent", 1);
    wait_all(px, products, LARGE);
    wait_all(px, &urgent, 1);
    count = stop(px, "priority");
    small = labelled(count, "urgent");
    for (size_t i = 0; i < count; i++) {
        if (strcmp(spans[i].label, "large") == 0) {
            before += spans[i].enqueued_ns <= small->enqueued_ns;
            later += spans[i].enqueued_ns <= small->enqueued_ns &&
                     spans[i].begin_ns >= small->end_ns;
        }
    }
    if (later == 0) {
        show(count);
    }
    printf("# %u of %u products that were enqueued before the urgent kernel began after "
           "its end\n",
           later, before);
    ASSERT_TRUE(later > 0);
    plasmon_finish(px);
}

TEST_MAIN()
