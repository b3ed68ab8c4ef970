/*
 * Changing recorded work in parts: which nodes of a CUDA graph each item of a recording became, and
 * new parameters for those of some.
 *
 * A launch that goes through device_launch() is one kernel node, the last one of its branch when it
 * has been captured; so the driver is asked for that node after each, which costs a recording some
 * tenths of a microsecond a launch. What items do beside that - copies, fills, cuBLAS, cooperative
 * launches - makes nodes that we do not see: an item that made more nodes than we know of is not
 * changed alone.
 *
 * A CHANGE runs the item's calls once more, on branches that capture, and its launches become
 * cuGraphExecKernelNodeSetParams() in place of being captured. Whatever else the calls do is
 * captured, not run, and thrown away: when the capture is not empty at the end, or the launches
 * were not as many as before, the change has failed. So nothing of it ever runs by mistake.
 *
 * The driver takes the new parameters for later launches of the exec; those under way keep theirs.
 *
 * EARLY STARTS (DEVICE_EARLY_MARK). A launch that waits by itself for what is before it, and is
 * captured right behind another such launch in its branch, is joined to that by an edge that lets
 * it begin early (programmatic). Every other edge is a full one: to and from copies, fills,
 * libraries, words, and between branches. A node with such an edge must never get a kernel that
 * does not wait: so a change that would do that fails, and the whole is recorded again.
 */
#include "device/cuda/cuda_int.h"

#include <assert.h>
#include <string.h>

struct node {
    CUgraphNode node;
    bool early; /* its edge lets it begin early */
};

struct device_cuda_item {
    uint32_t first; /* of `nodes` */
    uint32_t count;
    bool known; /* these are all that it became */
};

void device_cuda_items_init(struct device_cuda_items *items)
{
    items->items = PL_VEC_INIT(struct device_cuda_item);
    items->nodes = PL_VEC_INIT(struct node);
}

void device_cuda_items_finish(struct device_cuda_items *items)
{
    pl_vec_finish(&items->items);
    pl_vec_finish(&items->nodes);
}

/* What the branch captures into, and the last node of it there; NULL: it has none, or several. */
static plasmon_status_t capture_look(struct device_cuda *cuda, struct device_stream *branch,
                                     CUgraph *out_graph, CUgraphNode *out_last)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *last         = NULL;
    size_t count                    = 0;
    plasmon_status_t status =
        DEVICE_CU(cuda, capture_info(device_cuda_stream_of(branch)->home.stream, &capturing,
                                     NULL, out_graph, &last, &count));

    if (status == PLASMON_OK && capturing != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return PLASMON_ENOTSUP; /* a call that cannot be captured ended it */
    }
    if (out_last != NULL) {
        *out_last = status == PLASMON_OK && count == 1 ? last[0] : NULL;
    }
    return status;
}

static plasmon_status_t nodes_count(struct device_cuda_graph *graph, size_t *out_count)
{
    struct device_cuda *cuda = device_cuda_of(graph->base.device);
    CUgraph captured         = NULL;
    plasmon_status_t status  = capture_look(cuda, graph->base.branches[0], &captured, NULL);

    return status == PLASMON_OK
               ? DEVICE_CU(cuda, cuGraphGetNodes(captured, NULL, out_count))
               : status;
}

/* ---------------------------------------------------------------------------- recording */

static struct device_cuda_item *item_at(struct device_cuda_items *items, uint32_t number)
{
    return number < items->items.count ? pl_vec_at(&items->items, number) : NULL;
}

plasmon_status_t device_cuda_items_end(struct device_cuda_graph *graph)
{
    struct device_cuda_item *item = item_at(&graph->items, graph->item);
    size_t count                  = 0;
    plasmon_status_t status;

    if (item == NULL) {
        return PLASMON_OK;
    }
    status      = nodes_count(graph, &count);
    item->count = (uint32_t)graph->items.nodes.count - item->first;
    item->known = status == PLASMON_OK && count - graph->nodes_before == item->count;
    graph->item = UINT32_MAX;
    return status;
}

static plasmon_status_t item_begin(struct device_cuda_graph *graph, uint32_t number)
{
    plasmon_status_t status = device_cuda_items_end(graph);
    struct device_cuda_item *item;

    if (status == PLASMON_OK) {
        status = nodes_count(graph, &graph->nodes_before);
    }
    while (status == PLASMON_OK && graph->items.items.count <= number) {
        item = pl_vec_push(&graph->items.items);
        if (item == NULL) {
            return PLASMON_ENOMEM;
        }
        *item = (struct device_cuda_item){.first = (uint32_t)graph->items.nodes.count,
                                          .known = false};
    }
    graph->item = status == PLASMON_OK ? number : UINT32_MAX;
    return status;
}

/* Is the last thing of the branch a launch that this one may begin beside? */
static plasmon_status_t behind_early(struct device_cuda_stream *stream, bool small,
                                     bool *out_early)
{
    CUgraph captured        = NULL;
    CUgraphNode last        = NULL;
    plasmon_status_t status = PLASMON_OK;

    *out_early = false;
    if (stream->last_early != NULL) {
        status = capture_look(device_cuda_of(stream->base.device), &stream->base, &captured,
                              &last);
        *out_early = last != NULL && last == stream->last_early &&
                     device_cuda_beside(stream->last_small, small);
    }
    return status;
}

static plasmon_status_t launch_record(struct device_cuda_stream *stream,
                                      CUfunction function,
                                      const struct device_launch_shape *shape,
                                      void **params)
{
    struct device_cuda *cuda        = device_cuda_of(stream->base.device);
    struct device_cuda_graph *graph = stream->graph;
    CUgraph captured                = NULL;
    CUgraphNode node                = NULL;
    bool early                      = false;
    struct node *place;
    plasmon_status_t status =
        shape->early ? behind_early(stream, device_cuda_small(shape), &early) : PLASMON_OK;

    if (status == PLASMON_OK) {
        status = device_cuda_launch_early(cuda, stream->home.stream, function, shape,
                                          params, early);
    }
    graph->early_pattern = graph->early_pattern * 31 + (early ? 2 : 1);
    if (status != PLASMON_OK || (graph->item == UINT32_MAX && !shape->early)) {
        return status;
    }
    status             = capture_look(cuda, &stream->base, &captured, &node);
    stream->last_early = status == PLASMON_OK && shape->early ? node : NULL;
    stream->last_small = device_cuda_small(shape);
    if (status != PLASMON_OK || node == NULL || graph->item == UINT32_MAX) {
        return status; /* a node less than there are: the item is not known */
    }
    place = pl_vec_push(&graph->items.nodes);
    if (place == NULL) {
        return PLASMON_ENOMEM;
    }
    *place = (struct node){.node = node, .early = early};
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- changing */

plasmon_status_t device_cuda_graph_change_begin(struct device_graph *base,
                                                struct device_exec *exec,
                                                struct pl_err *err)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    struct device_cuda_exec *change = device_cuda_exec_of(exec);
    plasmon_status_t status;

    if (change->graph == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "it was updated as a whole: its nodes are not known any more");
    }
    status = device_cuda_graph_begin(base, err);
    if (status == PLASMON_OK) {
        base->tag_at         = change->base.tag_at; /* as it was recorded */
        graph->change        = change;
        graph->change_status = PLASMON_OK;
        graph->changed       = 0;
    }
    return status;
}

/* The item at hand has had all its launches. */
static void change_check(struct device_cuda_graph *graph)
{
    const struct device_cuda_item *item = item_at(&graph->change->items, graph->item);

    if (item != NULL && graph->changed != item->count &&
        graph->change_status == PLASMON_OK) {
        graph->change_status = PLASMON_ENOTSUP;
    }
}

static plasmon_status_t change_item(struct device_cuda_graph *graph, uint32_t number)
{
    const struct device_cuda_item *item;

    change_check(graph);
    item           = item_at(&graph->change->items, number);
    graph->item    = number;
    graph->changed = 0;
    if (graph->change_status == PLASMON_OK && (item == NULL || !item->known)) {
        graph->change_status = PLASMON_ENOTSUP;
    }
    return graph->change_status;
}

static plasmon_status_t launch_change(struct device_cuda_stream *stream,
                                      CUfunction function,
                                      const struct device_launch_shape *shape,
                                      void **params)
{
    struct device_cuda *cuda            = device_cuda_of(stream->base.device);
    struct device_cuda_graph *graph     = stream->graph;
    const struct device_cuda_item *item = item_at(&graph->change->items, graph->item);
    const CUDA_KERNEL_NODE_PARAMS node  = device_cuda_kernel_node(function, shape, params);
    const struct node *recorded;

    if (graph->change_status != PLASMON_OK) {
        return graph->change_status;
    }
    if (item == NULL || graph->changed >= item->count) {
        graph->change_status = PLASMON_ENOTSUP;
        return PLASMON_ENOTSUP;
    }
    recorded = pl_vec_at(&graph->change->items.nodes, item->first + graph->changed);
    if (recorded->early && !shape->early) {
        graph->change_status = PLASMON_ENOTSUP;
        return PLASMON_ENOTSUP;
    }
    graph->change_status = DEVICE_CU(
        cuda, cuGraphExecKernelNodeSetParams(graph->change->exec, recorded->node, &node));
    graph->changed++;
    return graph->change_status;
}

plasmon_status_t device_cuda_graph_change_end(struct device_graph *base)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    plasmon_status_t status         = device_cuda_enter(device_cuda_of(base->device));
    size_t strays                   = 0;

    assert(graph->change != NULL);
    change_check(graph);
    if (status == PLASMON_OK) {
        status = graph->change_status;
    }
    if (status == PLASMON_OK) {
        status = nodes_count(graph, &strays);
    }
    if (status == PLASMON_OK && strays != 0) {
        status = PLASMON_ENOTSUP; /* not only launches */
    }
    graph->change = NULL;
    graph->item   = UINT32_MAX;
    device_cuda_graph_abandon(base);
    return status;
}

/* --------------------------------------------------------------------------------- both */

plasmon_status_t device_cuda_graph_item(struct device_graph *base, uint32_t item)
{
    struct device_cuda_graph *graph = device_cuda_graph_of(base);
    plasmon_status_t status         = device_cuda_enter(device_cuda_of(base->device));

    if (status != PLASMON_OK) {
        return status;
    }
    return graph->change != NULL ? change_item(graph, item) : item_begin(graph, item);
}

plasmon_status_t device_cuda_graph_launch(struct device_cuda_stream *stream,
                                          CUfunction function,
                                          const struct device_launch_shape *shape,
                                          void **params)
{
    return stream->graph->change != NULL ? launch_change(stream, function, shape, params)
                                         : launch_record(stream, function, shape, params);
}
