/*
 * Recorded work: it runs at each launch and not before, in order with its stream, and can be
 * changed while it runs.
 */
#include <string.h>

#include "tests/unit/device/contract.h"

#define PART 4096u

static struct device_ptr part(const struct contract *c, unsigned number)
{
    return device_ptr_add(c->memory, (uint64_t)number * PART);
}

/* A gate that the stream stands at, so that what is launched behind it has not begun. */
static void stand_still(struct contract *c)
{
    ASSERT_OK(device_wait(c->stream, &c->words[0], 1));
}

static void go_on(struct contract *c)
{
    struct pl_err err = {.status = PLASMON_OK};

    contract_gate_open(&c->words[0], 1);
    ASSERT_OK(device_stream_sync(c->stream, &err));
}

static uint8_t first_byte(struct contract *c, unsigned number)
{
    uint8_t bytes[PART];

    contract_download(c, bytes, part(c, number), PART);
    for (unsigned i = 1; i < PART; i++) {
        ASSERT_EQ(bytes[i], bytes[0]);
    }
    return bytes[0];
}

static struct device_graph *graph_begin(struct contract *c, uint32_t branches)
{
    struct pl_err err = {.status = PLASMON_OK};
    struct device_graph *graph;

    ASSERT_OK(device_graph_create(c->device, branches, &graph, &err));
    ASSERT_OK(device_graph_begin(graph, &err));
    return graph;
}

static void fill(struct device_graph *graph, uint32_t branch, struct device_ptr where,
                 uint8_t value)
{
    ASSERT_OK(device_fill8(device_graph_branch(graph, branch), where, value, PART));
}

static void copy(struct device_graph *graph, uint32_t branch, struct device_ptr to,
                 struct device_ptr from)
{
    ASSERT_OK(device_copy(device_graph_branch(graph, branch), DEVICE_COPY_DEVICE_TO_DEVICE,
                          to.addr, from.addr, PART));
}

TEST(recorded_work_runs_at_each_launch_and_not_before)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_fill8(c.stream, part(&c, 0), 1, PART));
    ASSERT_OK(device_fill8(c.stream, part(&c, 1), 2, PART));
    ASSERT_OK(device_stream_sync(c.stream, &err));
    graph = graph_begin(&c, 1);
    copy(graph, 0, part(&c, 1), part(&c, 0));
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_EQ(first_byte(&c, 1), 2); /* not run */
    for (uint8_t round = 3; round < 8; round++) {
        ASSERT_OK(device_fill8(c.stream, part(&c, 0), round, PART));
        ASSERT_OK(device_exec_launch(c.stream, exec, round));
        ASSERT_OK(device_copy(c.stream, DEVICE_COPY_DEVICE_TO_DEVICE, part(&c, 2).addr,
                              part(&c, 1).addr, PART));
        ASSERT_EQ(first_byte(&c, 2), round); /* in order with what is around it */
    }
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}

TEST(branches_wait_for_marks_and_for_nothing_else)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    graph = graph_begin(&c, 3);
    /* 0: a := 7; 1: b := a; 2: d := b and then a again; each behind the one before. */
    for (unsigned i = 0; i < 50; i++) {
        fill(graph, 0, part(&c, 0), (uint8_t)(i + 1));
        ASSERT_OK(device_graph_mark(graph, 0, 3 * i));
        ASSERT_OK(device_graph_after(graph, 1, 3 * i));
        copy(graph, 1, part(&c, 1), part(&c, 0));
        ASSERT_OK(device_graph_mark(graph, 1, 3 * i + 1));
        ASSERT_OK(device_graph_after(graph, 2, 3 * i + 1));
        copy(graph, 2, part(&c, 2 + i), part(&c, 1));
        ASSERT_OK(device_graph_mark(graph, 2, 3 * i + 2));
        ASSERT_OK(device_graph_after(graph, 0, 3 * i + 1));
        ASSERT_OK(device_graph_after(graph, 1, 3 * i + 2));
    }
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    for (unsigned round = 0; round < 20; round++) {
        ASSERT_OK(device_fill8(c.stream, part(&c, 0), 0, 60 * PART));
        ASSERT_OK(device_exec_launch(c.stream, exec, 1));
        ASSERT_OK(device_stream_sync(c.stream, &err));
        for (unsigned i = 0; i < 50; i++) {
            ASSERT_EQ(first_byte(&c, 2 + i), i + 1);
        }
    }
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}

TEST(what_would_mean_another_moment_at_each_launch_cannot_be_recorded)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct device_event *event;
    struct device_stream *branch;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_event_create(c.device, true, &event));
    graph  = graph_begin(&c, 2);
    branch = device_graph_branch(graph, 0);
    ASSERT_STATUS(device_signal(branch, &c.words[1], 1), PLASMON_ENOTSUP);
    ASSERT_STATUS(device_wait(branch, &c.words[1], 1), PLASMON_ENOTSUP);
    ASSERT_STATUS(device_notify(branch, 0), PLASMON_ENOTSUP);
    ASSERT_STATUS(device_stream_join(branch, device_graph_branch(graph, 1)),
                  PLASMON_ENOTSUP);
    ASSERT_STATUS(device_event_record(event, branch), PLASMON_ENOTSUP);
    fill(graph, 0, part(&c, 0), 9); /* and it goes on as if nothing had been asked */
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_exec_launch(c.stream, exec, 1));
    ASSERT_EQ(first_byte(&c, 0), 9);
    ASSERT_STATUS(device_graph_create(c.device, 0, &graph, &err), PLASMON_EINVAL);
    ASSERT_STATUS(device_graph_create(c.device, DEVICE_BRANCH_MAX + 1, &graph, &err),
                  PLASMON_EINVAL);
    device_event_destroy(event);
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}

TEST(a_recording_that_is_thrown_away_leaves_the_exec_as_it_was)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    graph = graph_begin(&c, 2);
    fill(graph, 0, part(&c, 0), 1);
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_graph_begin(graph, &err));
    fill(graph, 1, part(&c, 0), 2);
    ASSERT_OK(device_graph_end(graph, false, &exec, &err));
    ASSERT_OK(device_exec_launch(c.stream, exec, 1));
    ASSERT_EQ(first_byte(&c, 0), 1);
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}

TEST(an_exec_changes_for_later_launches_only)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    ASSERT_OK(device_fill8(c.stream, part(&c, 0), 0, 4 * PART));
    ASSERT_OK(device_stream_sync(c.stream, &err));
    graph = graph_begin(&c, 1);
    fill(graph, 0, part(&c, 0), 1);
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    stand_still(&c);
    ASSERT_OK(device_exec_launch(c.stream, exec, 1)); /* has not begun */
    ASSERT_OK(device_graph_begin(graph, &err));
    fill(graph, 0, part(&c, 1), 2); /* the same work elsewhere */
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_exec_launch(c.stream, exec, 2));
    ASSERT_OK(device_graph_begin(graph, &err));
    fill(graph, 0, part(&c, 2), 3); /* other work */
    copy(graph, 0, part(&c, 3), part(&c, 2));
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_exec_launch(c.stream, exec, 3));
    device_exec_destroy(exec); /* with all three under way */
    device_graph_destroy(graph);
    go_on(&c);
    ASSERT_EQ(first_byte(&c, 0), 1);
    ASSERT_EQ(first_byte(&c, 1), 2);
    ASSERT_EQ(first_byte(&c, 2), 3);
    ASSERT_EQ(first_byte(&c, 3), 3);
    contract_close(&c);
}

/*
 * A CPU device says so at once, a GPU where it cannot: either way the exec is what it was, or is
 * recorded anew.
 */
TEST(items_may_be_named_on_every_device)
{
    struct pl_err err        = {.status = PLASMON_OK};
    struct device_exec *exec = NULL;
    struct device_graph *graph;
    struct contract c;

    contract_open(&c);
    graph = graph_begin(&c, 2);
    ASSERT_OK(device_graph_item(graph, 0));
    fill(graph, 0, part(&c, 0), 3);
    ASSERT_OK(device_graph_item(graph, 5)); /* others have nothing */
    fill(graph, 1, part(&c, 1), 4);
    ASSERT_OK(device_graph_end(graph, true, &exec, &err));
    ASSERT_OK(device_exec_launch(c.stream, exec, 1));
    ASSERT_EQ(first_byte(&c, 0), 3);
    ASSERT_EQ(first_byte(&c, 1), 4);
    if (contract_kind == DEVICE_CPU) {
        ASSERT_STATUS(device_graph_change_begin(graph, exec, &err), PLASMON_ENOTSUP);
        ASSERT_OK(device_exec_launch(c.stream, exec, 2));
    }
    device_exec_destroy(exec);
    device_graph_destroy(graph);
    contract_close(&c);
}
