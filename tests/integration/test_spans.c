/*
 * Timelines of real clusters on CPU devices: every task and transfer has its span, in the order
 * that causes demand; nothing is recorded unless it was asked for; both files are what they should
 * be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/cluster.h"

#define COUNT     (1 << 14)
#define SPANS_MAX 20000

static struct plasmon_span spans[SPANS_MAX];

static size_t recorded(struct plasmon_client *client)
{
    uint64_t dropped;
    size_t count;

    CLUSTER_OK(plasmon_timeline_spans(client, spans, SPANS_MAX, &count, &dropped));
    ASSERT_TRUE(count <= SPANS_MAX);
    ASSERT_EQ(dropped, 0);
    return count;
}

static const struct plasmon_span *find(size_t count, const char *function, uint32_t kind)
{
    for (size_t i = 0; i < count; i++) {
        if (spans[i].kind == kind && strcmp(spans[i].function, function) == 0) {
            return &spans[i];
        }
    }
    test_fail(__FILE__, __LINE__, "no span of %s among %zu", function, count);
    return NULL;
}

static unsigned count_of(size_t count, const char *function)
{
    unsigned found = 0;

    for (size_t i = 0; i < count; i++) {
        found += strcmp(spans[i].function, function) == 0;
    }
    return found;
}

static void expect_ordered(const struct plasmon_span *span, uint64_t from, uint64_t to)
{
    ASSERT_TRUE(span->submit_ns >= from);
    ASSERT_TRUE(span->placed_ns >= span->submit_ns);
    ASSERT_TRUE(span->enqueued_ns >= span->placed_ns);
    ASSERT_TRUE(span->begin_ns >= span->enqueued_ns);
    ASSERT_TRUE(span->end_ns >= span->begin_ns);
    ASSERT_TRUE(span->end_ns <= to);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

TEST(a_task_has_its_times_in_the_order_in_which_things_happen)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    uint64_t from, to;
    const struct plasmon_span *span;
    struct plasmon_ref *task;
    size_t count;

    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    from = now_ns();
    cluster_spin(client, x, 20000, 0, &task);
    CLUSTER_OK(plasmon_wait(client, &task, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    to = now_ns();
    CLUSTER_OK(plasmon_timeline_stop(client));
    count = recorded(client);
    ASSERT_EQ(count, 1);
    span = find(count, "spin", PLASMON_SPAN_RUN);
    expect_ordered(span, from, to);
    ASSERT_TRUE(span->end_ns - span->begin_ns >= 20000000u); /* it spins for so long */
    ASSERT_STR(span->label, "spinning");
    ASSERT_EQ(span->device, 0);
    ASSERT_EQ(span->bytes, COUNT * sizeof(float));
    ASSERT_TRUE(span->task != 0);
    plasmon_finish(client);
}

TEST(every_launch_of_a_graph_is_there_once_and_dependent_ones_follow_each_other)
{
    enum { STEPS = 500 };
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    struct plasmon_ref *y         = cluster_fill(client, COUNT, 1, 0);
    uint64_t last_end             = 0;
    unsigned axpys                = 0;
    size_t count;

    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    for (int i = 0; i < STEPS; i++) {
        CLUSTER_OK(cluster_axpy(client, y, x, 1, 0));
    }
    cluster_expect_ramp(client, cluster_copy(client, y, 1), COUNT, 1, STEPS);
    CLUSTER_OK(plasmon_timeline_stop(client));
    count = recorded(client);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(spans[i].function, "axpy") != 0) {
            continue;
        }
        axpys++;
        ASSERT_TRUE(spans[i].begin_ns >= last_end); /* a chain, told in its order */
        last_end = spans[i].end_ns;
    }
    ASSERT_EQ(axpys, STEPS);
    ASSERT_EQ(find(count, "copy", PLASMON_SPAN_COPY)->device, 1); /* brought over first */
    ASSERT_EQ(find(count, "copy", PLASMON_SPAN_COPY)->peer, 0);
    ASSERT_EQ(find(count, "copy", PLASMON_SPAN_COPY)->route, 1);
    ASSERT_EQ(find(count, "copy", PLASMON_SPAN_COPY)->bytes, COUNT * sizeof(float));
    ASSERT_TRUE(find(count, "copy", PLASMON_SPAN_COPY)->begin_ns >= last_end);
    ASSERT_EQ(find(count, "copy", PLASMON_SPAN_RUN)->device, 1);
    plasmon_finish(client);
}

TEST(nothing_is_recorded_before_start_and_after_stop)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_fill(client, COUNT, 1, 0);
    size_t count;

    ASSERT_STATUS(plasmon_timeline_stop(client), PLASMON_EINVAL);
    CLUSTER_OK(plasmon_wait(client, &x, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    ASSERT_STATUS(plasmon_timeline_start(client, NULL), PLASMON_EEXIST);
    cluster_expect_all(client, cluster_copy(client, x, 0), COUNT, 1);
    CLUSTER_OK(plasmon_timeline_stop(client));
    count = recorded(client);
    ASSERT_EQ(count_of(count, "fill"), 0);
    ASSERT_TRUE(count_of(count, "copy") >= 1);
    cluster_expect_all(client, cluster_fill(client, COUNT, 2, 0), COUNT, 2);
    ASSERT_EQ(recorded(client), count);

    CLUSTER_OK(plasmon_timeline_start(client, NULL)); /* begins anew */
    cluster_expect_all(client, cluster_fill(client, COUNT, 3, 0), COUNT, 3);
    CLUSTER_OK(plasmon_timeline_stop(client));
    count = recorded(client);
    ASSERT_EQ(count_of(count, "fill"), 1);
    plasmon_finish(client);
}

TEST(a_bound_keeps_the_newest_and_counts_the_rest)
{
    struct plasmon_timeline_options options = PLASMON_TIMELINE_INIT;
    struct plasmon_client *client           = cluster_start(1);
    struct plasmon_ref *x                   = cluster_put(client, 16, 0, 0);
    struct plasmon_ref *y                   = cluster_fill(client, 16, 1, 0);
    uint64_t dropped;
    size_t count;

    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    options.spans_max = 10;
    CLUSTER_OK(plasmon_timeline_start(client, &options));
    for (int i = 0; i < 100; i++) {
        CLUSTER_OK(cluster_axpy(client, y, x, 1, 0));
    }
    CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
    CLUSTER_OK(plasmon_timeline_stop(client));
    CLUSTER_OK(plasmon_timeline_spans(client, spans, SPANS_MAX, &count, &dropped));
    ASSERT_EQ(count, 10);
    ASSERT_EQ(dropped, 90);
    for (size_t i = 1; i < count; i++) {
        ASSERT_TRUE(spans[i].launch > spans[i - 1].launch);
    }
    plasmon_finish(client);
}

TEST(a_worker_that_comes_back_records_too)
{
    struct plasmon_client *client = cluster_start(1);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    size_t count;
    pid_t old;

    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    old = cluster_worker(client, 0);
    cluster_kill(old);
    cluster_expect_ramp(client, cluster_copy(client, x, 0), COUNT, 0, 1);
    CLUSTER_OK(plasmon_timeline_stop(client));
    count = recorded(client);
    (void)find(count, "copy", PLASMON_SPAN_RUN);
    plasmon_finish(client);
}

static char *file_read(const char *path)
{
    static char text[1 << 22];
    FILE *file = fopen(path, "re");
    size_t length;

    ASSERT_NOT_NULL(file);
    length       = fread(text, 1, sizeof(text) - 1, file);
    text[length] = '\0';
    (void)fclose(file);
    (void)unlink(path);
    return text;
}

TEST(a_trace_and_a_picture_are_written)
{
    struct plasmon_client *client = cluster_start(2);
    struct plasmon_ref *x         = cluster_put(client, COUNT, 0, 0);
    char json[256], svg[256];
    const char *text;

    CLUSTER_OK(plasmon_timeline_start(client, NULL));
    for (int i = 0; i < 20; i++) {
        struct plasmon_ref *y = cluster_fill(client, COUNT, i, i % 2);

        CLUSTER_OK(cluster_axpy(client, y, x, 1, i % 2));
        CLUSTER_OK(plasmon_wait(client, &y, 1, 1, CLUSTER_WAIT_MS, NULL, NULL));
        CLUSTER_OK(plasmon_release(client, y));
    }
    CLUSTER_OK(plasmon_timeline_stop(client));
    (void)snprintf(json, sizeof(json), "%s/trace.json", cluster_folder());
    (void)snprintf(svg, sizeof(svg), "%s/trace.svg", cluster_folder());
    ASSERT_STATUS(plasmon_timeline_write(client, NULL, NULL), PLASMON_EINVAL);
    ASSERT_STATUS(plasmon_timeline_write(client, "/nowhere/x.json", NULL), PLASMON_ENOENT);
    CLUSTER_OK(plasmon_timeline_write(client, json, svg));
    text = file_read(json);
    ASSERT_CONTAINS(text, "\"traceEvents\":[");
    ASSERT_CONTAINS(text, "\"ph\":\"s\"");
    ASSERT_CONTAINS(text, "\"name\":\"axpy\"");
    ASSERT_CONTAINS(text, "device 1");
    ASSERT_CONTAINS(text, "\"dropped\":0");
    text = file_read(svg);
    ASSERT_CONTAINS(text, "<svg ");
    ASSERT_CONTAINS(text, "axpy");
    ASSERT_CONTAINS(text, "</svg>");
    plasmon_finish(client);
}

TEST_MAIN()
