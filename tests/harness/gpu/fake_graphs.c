/*
 * Kernels and graphs of the fake driver: kernels do nothing (but count, the one that is asked to),
 * graphs are what was captured, in the order of calls.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/gpu/fake_calls.h"

/* --------------------------------------------------------------------------------- code */

struct fake_module {
    struct fake_function *functions;
    bool early; /* DEVICE_EARLY_MARK */
};

/*
 * Text says how long it is; machine code does so by its last table. Others (of several
 * architectures) are ours, and have no such mark.
 */
static bool image_early(const char *image)
{
    Elf64_Ehdr head;

    if (strncmp(image, ".version", 8) == 0) {
        return strstr(image, DEVICE_EARLY_MARK) != NULL;
    }
    memcpy(&head, image, sizeof(head.e_ident));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
        return false;
    }
    memcpy(&head, image, sizeof(head));
    return memmem(image, head.e_shoff + (size_t)head.e_shnum * head.e_shentsize,
                  DEVICE_EARLY_MARK, sizeof(DEVICE_EARLY_MARK)) != NULL;
}

CUresult fake_cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count_,
                                 CUjit_option *options, void **values)
{
    struct fake_module *module = calloc(1, sizeof(*module));

    COUNT(cuModuleLoadDataEx);
    (void)count_;
    (void)options;
    (void)values;
    *out = (CUmodule)(void *)module;
    if (module == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->early = image_early(image);
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleGetGlobal(CUdeviceptr *out, size_t *out_bytes, CUmodule module,
                                const char *name)
{
    const struct fake_module *of = (const struct fake_module *)(const void *)module;

    COUNT(cuModuleGetGlobal);
    if (!of->early || strcmp(name, DEVICE_EARLY_MARK) != 0) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *out       = (CUdeviceptr)(uintptr_t)of; /* nobody looks */
    *out_bytes = 4;
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleUnload(CUmodule module)
{
    struct fake_function *function = ((struct fake_module *)(void *)module)->functions;

    COUNT(cuModuleUnload);
    while (function != NULL) {
        struct fake_function *next = function->next;

        free(function);
        function = next;
    }
    free(module);
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    struct fake_module *of         = (struct fake_module *)(void *)module;
    struct fake_function *function = calloc(1, sizeof(*function));

    COUNT(cuModuleGetFunction);
    if (function == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->counts = strcmp(name, "chain_link") == 0;
    function->mixes  = strcmp(name, "chain_mix") == 0;
    function->traps  = strcmp(name, "store_nowhere") == 0;
    function->waits  = of->early;
    function->copies = sscanf(name, "device_copy_box_%u", &function->copy_width) == 1;
    function->next   = of->functions;
    of->functions    = function;
    *out             = (CUfunction)(void *)function;
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleGetLoadingMode(CUmoduleLoadingMode *out)
{
    COUNT(cuModuleGetLoadingMode);
    *out = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult fake_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                 int value)
{
    COUNT(cuFuncSetAttribute);
    (void)function;
    (void)attribute;
    (void)value;
    return CUDA_SUCCESS;
}

CUresult fake_cuFuncGetAttribute(int *out, CUfunction_attribute attribute,
                                 CUfunction function)
{
    COUNT(cuFuncGetAttribute);
    (void)function;
    if (attribute > CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
        getenv("FAKE_CUDA_OLD") != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

CUresult fake_cuOccupancyMaxPotentialBlockSize(int *out_grid, int *out_block,
                                               CUfunction function,
                                               CUoccupancyB2DSize shared_of, size_t shared,
                                               int limit)
{
    COUNT(cuOccupancyMaxPotentialBlockSize);
    (void)function;
    (void)shared_of;
    (void)limit;
    *out_grid = 132;
    *out_block =
        shared < 40000 ? 256 : 2048; /* more than there are: who launches it is told */
    return CUDA_SUCCESS;
}

#define THREADS_MAX 1024u

static struct fake_op kernel_op(CUfunction f, void *const *params)
{
    struct fake_op op = {.kind = FAKE_KERNEL};

    op.kernel.function = (const struct fake_function *)(const void *)f;
    if (op.kernel.function->counts) { /* chain_link(float *x, i64 n, i64 cycles) */
        memcpy(&op.kernel.x, params[0], sizeof(op.kernel.x));
        memcpy(&op.kernel.n, params[1], sizeof(op.kernel.n));
    }
    if (op.kernel.function->mixes) { /* chain_mix(u32 *x, i64 n, u32 value) */
        memcpy(&op.kernel.x, params[0], sizeof(op.kernel.x));
        memcpy(&op.kernel.n, params[1], sizeof(op.kernel.n));
        memcpy(&op.kernel.value, params[2], sizeof(op.kernel.value));
    }
    if (op.kernel.function->copies) {
        memcpy(&op.kernel.copy, params[0], sizeof(op.kernel.copy));
    }
    return op;
}

CUresult fake_cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared, CUstream stream,
                             void **params, void **extra)
{
    const struct fake_op op = kernel_op(f, params);

    COUNT(cuLaunchKernel);
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)shared;
    (void)extra;
    return block_x * block_y * block_z <= THREADS_MAX ? fake_put(stream, &op)
                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                               void **extra)
{
    struct fake_op op = kernel_op(f, params);

    COUNT(cuLaunchKernelEx);
    (void)extra;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        assert(config->attrs[i].id ==
               CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        op.kernel.early =
            config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    }
    return config->blockDimX * config->blockDimY * config->blockDimZ <= THREADS_MAX
               ? fake_put(config->hStream, &op)
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared, CUstream stream,
                                        void **params)
{
    const struct fake_op op = kernel_op(f, params);

    COUNT(cuLaunchCooperativeKernel);
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared;
    return fake_put(stream, &op);
}

/* ------------------------------------------------------------------------------- graphs */

static struct fake_graph *graph_of(CUgraph graph)
{
    return (struct fake_graph *)(void *)graph;
}

static struct fake_exec *exec_of(CUgraphExec exec)
{
    return (struct fake_exec *)(void *)exec;
}

CUresult fake_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    static uint64_t captures;
    struct fake_graph *graph = calloc(1, sizeof(*graph));

    COUNT(cuStreamBeginCapture);
    (void)mode;
    if (graph == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_lock();
    graph->capture                  = ++captures;
    fake_stream_of(stream)->capture = graph;
    fake_stream_of(stream)->last    = NULL;
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    struct fake_graph *graph;

    COUNT(cuStreamEndCapture);
    fake_lock();
    graph = fake_stream_of(stream)->capture;
    for (struct fake_stream *other = fake_streams(); other != NULL; other = other->next) {
        if (graph != NULL && other->capture == graph) {
            other->capture = NULL;
            other->last    = NULL;
        }
    }
    fake_unlock();
    *out = (CUgraph)(void *)graph;
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult fake_cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *out_status,
                                     cuuint64_t *out_id, CUgraph *out_graph,
                                     const CUgraphNode **out_last, size_t *out_last_count)
{
    struct fake_stream *mine = fake_stream_of(stream);

    COUNT(cuStreamGetCaptureInfo);
    fake_lock();
    *out_status = mine->capture != NULL ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : CU_STREAM_CAPTURE_STATUS_NONE;
    if (out_id != NULL && mine->capture != NULL) {
        *out_id = mine->capture->capture;
    }
    *out_graph      = (CUgraph)(void *)mine->capture;
    *out_last       = &mine->last;
    *out_last_count = mine->last != NULL;
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphCreate(CUgraph *out, unsigned flags)
{
    struct fake_graph *graph = calloc(1, sizeof(*graph));

    COUNT(cuGraphCreate);
    (void)flags;
    *out = (CUgraph)(void *)graph;
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fake_cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *io_count)
{
    COUNT(cuGraphGetNodes);
    (void)out; /* nobody asks for them */
    *io_count = graph_of(graph)->ops.count;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                          unsigned long long flags)
{
    struct fake_exec *exec = calloc(1, sizeof(*exec));

    COUNT(cuGraphInstantiateWithFlags);
    (void)flags;
    if (exec == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_ops_copy(&exec->ops, &graph_of(graph)->ops);
    *out = (CUgraphExec)(void *)exec;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                CUgraphExecUpdateResultInfo *out_info)
{
    struct fake_ops *mine         = &exec_of(exec)->ops;
    const struct fake_ops *theirs = &graph_of(graph)->ops;
    bool same                     = mine->count == theirs->count;

    COUNT(cuGraphExecUpdate);
    (void)out_info;
    for (size_t i = 0; same && i < mine->count; i++) {
        same = mine->items[i].kind == theirs->items[i].kind &&
               (mine->items[i].kind != FAKE_KERNEL ||
                mine->items[i].kernel.early == theirs->items[i].kernel.early);
    }
    if (!same) {
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    fake_lock();
    if (mine->count > 0) {
        memcpy(mine->items, theirs->items, mine->count * sizeof(*mine->items));
    }
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct fake_op op = kernel_op(params->func, params->kernelParams);
    struct fake_op *place;

    COUNT(cuGraphExecKernelNodeSetParams);
    if (params->blockDimX * params->blockDimY * params->blockDimZ > THREADS_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_lock();
    place           = &exec_of(exec)->ops.items[(uintptr_t)node - 1];
    op.kernel.early = place->kernel.early; /* its edges stay */
    *place          = op;
    fake_unlock();
    return CUDA_SUCCESS;
}

/* What is changed afterwards is for the next launch. */
CUresult fake_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct fake_exec *launched = calloc(1, sizeof(*launched));
    const struct fake_op op    = {.kind = FAKE_GRAPH, .exec = launched};
    CUresult result;

    COUNT(cuGraphLaunch);
    if (launched == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_ops_copy(&launched->ops, &exec_of(exec)->ops);
    result = fake_put(stream, &op);
    if (result != CUDA_SUCCESS) {
        fake_exec_destroy(launched);
    }
    return result;
}

/* A driver was seen to wait in here for what is on the device. */
CUresult fake_cuGraphExecDestroy(CUgraphExec exec)
{
    COUNT(cuGraphExecDestroy);
    fake_quiet();
    fake_exec_destroy(exec_of(exec));
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphDestroy(CUgraph graph)
{
    COUNT(cuGraphDestroy);
    free(graph_of(graph)->ops.items);
    free(graph_of(graph));
    return CUDA_SUCCESS;
}
