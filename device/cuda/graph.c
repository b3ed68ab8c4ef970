/*
 * Recorded work on a GPU: stream capture. Branches are streams of their own that never run
 * anything; begin starts a capture on the first and forks the others from it, end joins them again,
 * and what was captured is a CUDA graph with the real dependences.
 *
 * cuBLAS and our kernels are captured by the very calls that would run them. A branch's cuBLAS
 * workspace (blas.c) belongs to the branch, so graphs that run at the same time do not share one.
 *
 * RELAXED MODE: other threads map memory and load modules meanwhile, which a stricter capture would
 * forbid or be spoiled by.
 *
 * TAGS. A launch writes its tag where the recording was told, if anything in it asks
 * (device_stream_tag), by one more call in its stream. Launches of one exec do not overlap, and
 * those of a graph's other execs do not either, so nobody reads another one's tag.
 *
 * AN EXEC IS UPDATED IN PLACE when the new graph has the nodes and edges of the old one, which it
 * has when only addresses and scalars differ; launches under way keep what they were launched with.
 * Otherwise another one is instantiated. Where only some calls differ, items.c changes just those,
 * without a capture.
 */
#include "device/cuda/cuda_int.h"

#include "base/alloc.h"
#include "base/vec.h"

static CUstream branch_stream(const struct device_graph *graph, uint32_t branch)
{
    return device_cuda_stream_of(graph->branches[branch])->home.stream;
}

/* ------------------------------------------------------------------------------- graphs */

plasmon_status_t device_cuda_graph_create(struct device *device, uint32_t branches,
                                          struct device_graph **out_graph,
                                          struct pl_err *err)
{
    struct device_cuda_graph *graph = PL_NEW(struct device_cuda_graph);

    if (graph == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a graph");
    }
    graph->base.device = device;
    graph->events      = PL_VEC_INIT(CUevent);
    device_cuda_items_init(&graph->items);
    for (uint32_t i = 0; i < branches; i++) {
        plasmon_status_t status =
            device_cuda_stream_create(device, 0, &graph->base.branches[i]);

        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "%s", device_cuda_last_error());
            device_cuda_graph_destroy(&graph->base);
            return status;
        }
        graph->base.branches[i]->records                      = true;
        graph->base.branches[i]->branch_of                    = &graph->base;
        device_cuda_stream_of(graph->base.branches[i])->graph = graph;
        graph->base.branch_count++;
    }
    *out_graph = &graph->base;
    return PLASMON_OK;
}

void device_cuda_graph_destroy(struct device_graph *base)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    struct device_cuda *cuda        = device_cuda_of(base->device);

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        for (size_t i = 0; i < graph->events.count; i++) {
            /* logged; nothing else to do */
            (void)DEVICE_CU(cuda, cuEventDestroy(*(CUevent *)pl_vec_at(&graph->events, i)));
        }
    }
    for (uint32_t i = 0; i < base->branch_count; i++) {
        device_cuda_stream_destroy(base->branches[i]);
    }
    device_cuda_items_finish(&graph->items);
    pl_vec_finish(&graph->events);
    pl_free(graph);
}

/* What follows on `stream` comes after what is on `other` now; both are captured, or `other` is. */
static plasmon_status_t follow(struct device_cuda *cuda, struct device_stream *stream,
                               struct device_stream *other)
{
    struct device_cuda_stream *mine = device_cuda_stream_of(stream);
    plasmon_status_t status =
        DEVICE_CU(cuda, cuEventRecord(mine->home.join_event,
                                      device_cuda_stream_of(other)->home.stream));

    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuStreamWaitEvent(mine->home.stream, mine->home.join_event,
                                                   CU_EVENT_WAIT_DEFAULT));
    }
    return status;
}

/*
 * End a capture that is of no use. Branches are joined first, so that none of them stays in it; a
 * capture that was invalidated refuses that, and its end says so: both are known, and no event for
 * the log.
 */
void device_cuda_graph_abandon(struct device_graph *graph)
{
    struct device_cuda *cuda = device_cuda_of(graph->device);
    CUgraph captured         = NULL;

    for (uint32_t i = 1; i < graph->branch_count; i++) {
        CUevent event = device_cuda_stream_of(graph->branches[0])->home.join_event;

        (void)device_cuda_driver.cuEventRecord(event, branch_stream(graph, i));
        (void)device_cuda_driver.cuStreamWaitEvent(branch_stream(graph, 0), event,
                                                   CU_EVENT_WAIT_DEFAULT);
    }
    (void)device_cuda_driver.cuStreamEndCapture(branch_stream(graph, 0), &captured);
    if (captured != NULL) {
        (void)DEVICE_CU(cuda, cuGraphDestroy(captured)); /* logged; nothing else to do */
    }
}

plasmon_status_t device_cuda_graph_begin(struct device_graph *base, struct pl_err *err)
{
    struct device_cuda *cuda = device_cuda_of(base->device);
    plasmon_status_t status  = device_cuda_enter(cuda);

    device_cuda_items_init(&device_cuda_graph_of(base)->items);
    device_cuda_graph_of(base)->item          = UINT32_MAX;
    device_cuda_graph_of(base)->early_pattern = 0;
    for (uint32_t i = 0; i < base->branch_count; i++) {
        device_cuda_stream_of(base->branches[i])->last_early = NULL;
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuStreamBeginCapture(branch_stream(base, 0),
                                                      CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    for (uint32_t i = 1; status == PLASMON_OK && i < base->branch_count; i++) {
        status = follow(cuda, base->branches[i], base->branches[0]);
    }
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "%s", device_cuda_last_error());
        device_cuda_graph_abandon(base);
    }
    return status;
}

plasmon_status_t device_cuda_graph_mark(struct device_graph *base, uint32_t branch,
                                        uint32_t mark)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    struct device_cuda *cuda        = device_cuda_of(base->device);
    plasmon_status_t status         = device_cuda_enter(cuda);

    while (status == PLASMON_OK && graph->events.count <= mark) {
        CUevent *event = pl_vec_push(&graph->events);

        if (event == NULL) {
            return PLASMON_ENOMEM;
        }
        status = DEVICE_CU(cuda, cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
        if (status != PLASMON_OK) {
            pl_vec_pop(&graph->events);
        }
    }
    if (status == PLASMON_OK) {
        status = DEVICE_CU(cuda, cuEventRecord(*(CUevent *)pl_vec_at(&graph->events, mark),
                                               branch_stream(base, branch)));
    }
    return status;
}

plasmon_status_t device_cuda_graph_after(struct device_graph *base, uint32_t branch,
                                         uint32_t mark)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    struct device_cuda *cuda        = device_cuda_of(base->device);
    plasmon_status_t status         = device_cuda_enter(cuda);

    if (status == PLASMON_OK && mark >= graph->events.count) {
        return PLASMON_EINVAL;
    }
    if (status == PLASMON_OK) {
        status =
            DEVICE_CU(cuda, cuStreamWaitEvent(branch_stream(base, branch),
                                              *(CUevent *)pl_vec_at(&graph->events, mark),
                                              CU_EVENT_WAIT_DEFAULT));
    }
    return status;
}

/* -------------------------------------------------------------------------------- execs */

static plasmon_status_t instantiate(struct device_cuda *cuda, CUgraph captured,
                                    CUgraphExec *out_exec)
{
    return DEVICE_CU(cuda, cuGraphInstantiate(out_exec, captured, 0));
}

/* false: it cannot become the new graph by changing parameters. */
static bool update(struct device_cuda_exec *exec, const struct device_cuda_graph *graph,
                   CUgraph captured)
{
    CUgraphExecUpdateResultInfo info;

    return exec->early_pattern == graph->early_pattern &&
           device_cuda_driver.cuGraphExecUpdate(exec->exec, captured, &info) ==
               CUDA_SUCCESS;
}

/* The exec's own graph and the map of its nodes: as of the recording that it was made from. */
static void exec_forget_items(struct device_cuda *cuda, struct device_cuda_exec *exec)
{
    if (exec->graph != NULL) {
        (void)DEVICE_CU(cuda, cuGraphDestroy(exec->graph)); /* logged; nothing else to do */
        exec->graph = NULL;
    }
    device_cuda_items_finish(&exec->items);
    device_cuda_items_init(&exec->items);
}

static void exec_take_items(struct device_cuda_exec *exec, struct device_cuda_graph *graph,
                            CUgraph captured)
{
    exec->graph         = captured;
    exec->items         = graph->items;
    exec->early_pattern = graph->early_pattern;
    device_cuda_items_init(&graph->items);
}

/*
 * The captured graph is the exec's, or gone, when this is done. An exec that was updated keeps its
 * nodes' old names, and which of them took over which new node is the driver's business: so it is
 * not changed in parts any more.
 */
static plasmon_status_t exec_take(struct device_cuda *cuda, struct device_cuda_graph *graph,
                                  CUgraph captured, struct device_exec **io_exec)
{
    const struct device_ptr nowhere = {0};
    struct device_ptr tag_at        = graph->base.tagged ? graph->base.tag_at : nowhere;
    struct device_cuda_exec *exec = *io_exec != NULL ? device_cuda_exec_of(*io_exec) : NULL;
    CUgraphExec made              = NULL;
    plasmon_status_t status       = PLASMON_OK;

    if (exec != NULL && update(exec, graph, captured)) {
        exec->base.tag_at = tag_at;
        exec_forget_items(cuda, exec);
        (void)DEVICE_CU(cuda, cuGraphDestroy(captured)); /* the exec has all it needs */
        return PLASMON_OK;
    }
    status = instantiate(cuda, captured, &made);
    if (status == PLASMON_OK && exec == NULL) {
        exec = PL_NEW(struct device_cuda_exec);
        if (exec == NULL) {
            (void)DEVICE_CU(cuda, cuGraphExecDestroy(made)); /* was never launched */
            status = PLASMON_ENOMEM;
        } else {
            exec->base.device = graph->base.device;
            device_cuda_items_init(&exec->items);
        }
    } else if (status == PLASMON_OK) {
        (void)DEVICE_CU(cuda, cuGraphExecDestroy(exec->exec)); /* launches under way end */
        exec_forget_items(cuda, exec);
    }
    if (status != PLASMON_OK) {
        (void)DEVICE_CU(cuda, cuGraphDestroy(captured)); /* the first error counts */
        return status;
    }
    exec->exec        = made;
    exec->base.tag_at = tag_at;
    exec_take_items(exec, graph, captured);
    *io_exec = &exec->base;
    return PLASMON_OK;
}

plasmon_status_t device_cuda_graph_end(struct device_graph *base, bool keep,
                                       struct device_exec **io_exec, struct pl_err *err)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    struct device_cuda *cuda        = device_cuda_of(base->device);
    CUgraph captured                = NULL;
    plasmon_status_t status         = device_cuda_enter(cuda);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "%s", device_cuda_last_error());
    }
    if (keep) {
        status = device_cuda_items_end(graph);
    }
    for (uint32_t i = 1; keep && status == PLASMON_OK && i < base->branch_count; i++) {
        status = follow(cuda, base->branches[0], base->branches[i]);
    }
    if (!keep || status != PLASMON_OK) {
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "%s", device_cuda_last_error());
        }
        device_cuda_graph_abandon(base);
        device_cuda_items_finish(&graph->items);
        return status;
    }
    status = DEVICE_CU(cuda, cuStreamEndCapture(branch_stream(base, 0), &captured));
    if (status == PLASMON_OK) {
        status = exec_take(cuda, graph, captured, io_exec);
    }
    device_cuda_items_finish(&graph->items);
    return status == PLASMON_OK ? PLASMON_OK
                                : pl_err_set(err, status, "%s", device_cuda_last_error());
}

plasmon_status_t device_cuda_exec_launch(struct device_stream *stream,
                                         struct device_exec *exec, uint64_t tag)
{
    struct device_cuda *cuda = device_cuda_of(exec->device);
    CUstream on              = device_cuda_stream_on(device_cuda_stream_of(stream));
    plasmon_status_t status  = device_cuda_enter(cuda);

    if (status == PLASMON_OK && exec->tag_at.addr != 0) {
        /* behind the launch before, which may still look */
        status = DEVICE_CU(cuda, cuStreamWriteValue64(on, exec->tag_at.addr, tag,
                                                      CU_STREAM_WRITE_VALUE_DEFAULT));
    }
    return status != PLASMON_OK
               ? status
               : DEVICE_CU(cuda, cuGraphLaunch(device_cuda_exec_of(exec)->exec, on));
}

void device_cuda_exec_destroy(struct device_exec *base)
{
    struct device_cuda *cuda      = device_cuda_of(base->device);
    struct device_cuda_exec *exec = device_cuda_exec_of(base);

    if (device_cuda_enter(cuda) == PLASMON_OK) {
        (void)DEVICE_CU(cuda, cuGraphExecDestroy(exec->exec)); /* logged */
    }
    exec_forget_items(cuda, exec);
    pl_free(exec);
}
