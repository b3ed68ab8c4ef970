/*
 * The executor's functions: those of the catalogue and of clients, put into a stream once or
 * recorded as a graph that is replayed.
 */
#include "worker/executor_int.h"

#include "base/alloc.h"
#include "base/fault.h"

/* A stream of ours, or a branch of what is being recorded. */
static struct device_stream *stream_at(const struct worker_executor *executor,
                                       uint32_t stream)
{
    return stream >= WORKER_BRANCH
               ? device_graph_branch(executor->recording, stream - WORKER_BRANCH)
               : executor->streams[stream];
}

/* Arguments with addresses instead of offsets. A local array for all but the widest calls. */
#define ARGS_ON_STACK 16u

static struct kernel_arg *args_translate(const struct worker_executor *executor,
                                         const struct kernel_arg *args, uint32_t count,
                                         struct kernel_arg *small)
{
    struct kernel_arg *translated =
        count <= ARGS_ON_STACK ? small : PL_NEW_N(struct kernel_arg, count);

    for (uint32_t i = 0; translated != NULL && i < count; i++) {
        translated[i]      = args[i];
        translated[i].data = worker_memory_own(executor->memory, args[i].data.addr);
    }
    return translated;
}

/* What the function itself wants; what checks want comes behind it. */
static uint64_t own_scratch_bytes(const struct worker_executor *executor,
                                  const struct kernel_function *function,
                                  const struct kernel_arg *args, uint32_t arg_count,
                                  const union kernel_scalar *scalars, uint32_t scalar_count)
{
    return function->defined ? 0
                             : kernel_scratch_bytes(executor->kernels, function, args,
                                                    arg_count, scalars, scalar_count);
}

uint64_t worker_op_scratch_bytes(void *user, const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count)
{
    struct worker_executor *executor = user;
    uint64_t bytes =
        own_scratch_bytes(executor, function, args, arg_count, scalars, scalar_count);

    return executor->check.on ? pl_round_up(bytes, 256) +
                                    worker_check_scratch(&executor->check, args, arg_count)
                              : bytes;
}

uint64_t worker_op_own_scratch_bytes(void *user, const struct kernel_function *function,
                                     const struct kernel_arg *args, uint32_t arg_count,
                                     const union kernel_scalar *scalars,
                                     uint32_t scalar_count)
{
    return own_scratch_bytes(user, function, args, arg_count, scalars, scalar_count);
}

uint64_t worker_op_operations(void *user, const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count)
{
    struct worker_executor *executor = user;
    uint64_t operations              = function->defined
                                           ? 1
                                           : kernel_operations(executor->kernels, function, args,
                                                               arg_count, scalars, scalar_count);

    return executor->check.on ? worker_check_operations(operations, arg_count) : operations;
}

/* A function and all it needs, to be put into a stream once or twice. */
struct run {
    struct worker_executor *executor;
    struct device_stream *stream;
    const struct kernel_function *function;
    const struct kernel_arg *args; /* with addresses */
    uint32_t arg_count;
    const union kernel_scalar *scalars;
    uint32_t scalar_count;
    struct device_ptr scratch;
    uint64_t scratch_bytes;
    struct kernel_launch_shape *io_shape; /* of a defined function */
    uint64_t tag;
};

static plasmon_status_t run_once(void *user, struct pl_err *err)
{
    const struct run *run = user;

    if (run->function->defined) {
        return kernel_code_run(kernel_code_of(run->function), run->stream, run->args,
                               run->arg_count, run->scalars, run->scalar_count,
                               run->io_shape, run->tag, err);
    }
    return kernel_run(run->executor->kernels, run->stream, run->function, run->args,
                      run->arg_count, run->scalars, run->scalar_count, run->scratch,
                      run->scratch_bytes, run->tag, err);
}

static plasmon_status_t run_checked(struct run *run, uint32_t stream, struct pl_err *err)
{
    uint64_t own =
        pl_round_up(own_scratch_bytes(run->executor, run->function, run->args,
                                      run->arg_count, run->scalars, run->scalar_count),
                    256);

    run->scratch_bytes = own;
    return worker_check_run(&run->executor->check, stream, run->stream, run->function,
                            run->args, run->arg_count, device_ptr_add(run->scratch, own),
                            run->tag, run_once, run, err);
}

/* run->args are offsets until here. */
static plasmon_status_t run_put(struct run *run, uint32_t stream, uint64_t scratch_offset,
                                struct pl_err *err)
{
    struct kernel_arg small[ARGS_ON_STACK];
    struct kernel_arg *translated =
        args_translate(run->executor, run->args, run->arg_count, small);
    plasmon_status_t status;

    if (translated == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for %u arguments",
                          run->arg_count);
    }
    run->args    = translated;
    run->stream  = stream_at(run->executor, stream);
    run->scratch = worker_memory_own(run->executor->memory, scratch_offset);
    status = run->executor->check.on ? run_checked(run, stream, err) : run_once(run, err);
    if (translated != small) {
        pl_free(translated);
    }
    return status;
}

plasmon_status_t worker_op_run(void *user, uint32_t stream,
                               const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars, uint32_t scalar_count,
                               uint64_t scratch_offset, uint64_t scratch_bytes,
                               uint64_t tag, struct pl_err *err)
{
    struct run run = {.executor      = user,
                      .function      = function,
                      .args          = args,
                      .arg_count     = arg_count,
                      .scalars       = scalars,
                      .scalar_count  = scalar_count,
                      .scratch_bytes = scratch_bytes,
                      .tag           = tag};

    return run_put(&run, stream, scratch_offset, err);
}

static uint64_t arg_bytes(const struct kernel_arg *arg)
{
    uint64_t bytes = pl_dtype_bytes(arg->dtype);

    for (uint32_t i = 0; i < arg->ndim; i++) {
        bytes *= (uint64_t)arg->dim[i];
    }
    return bytes;
}

static plasmon_status_t source_address(struct worker_executor *executor,
                                       const struct worker_source *source,
                                       struct device_ptr *out)
{
    if (source->host_device == executor->shared->host_device) {
        *out = worker_memory_own(executor->memory, source->offset);
        return PLASMON_OK;
    }
    return worker_memory_peer(executor->memory, source->host_device, source->offset,
                              source->bytes, out);
}

plasmon_status_t worker_op_combine(void *user, uint32_t stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args,
                                   const struct worker_source *sources, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, uint64_t tag, struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_ptr none           = {0};
    struct kernel_arg *at            = PL_NEW_N(struct kernel_arg, arg_count);
    plasmon_status_t status          = at == NULL ? PLASMON_ENOMEM : PLASMON_OK;

    if (pl_fault_point("transfer.copy")) {
        status = PLASMON_EDEVICE;
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < arg_count; i++) {
        struct device_ptr base;

        status = source_address(executor, &sources[i], &base);
        if (status == PLASMON_OK) {
            at[i]      = args[i];
            at[i].data = device_ptr_add(base, args[i].data.addr);
        }
    }
    if (status == PLASMON_OK) {
        status = kernel_run(
            executor->kernels,
            stream == WORKER_STREAM_ALONE ? executor->alone : executor->streams[stream],
            function, at, arg_count, scalars, scalar_count, none, 0, tag, err);
    }
    for (uint32_t i = 1; status == PLASMON_OK && i < arg_count; i++) {
        if (sources[i].host_device != executor->shared->host_device) {
            transfer_count(&executor->counters, TRANSFER_PEER, arg_bytes(&at[i]));
        }
    }
    pl_free(at);
    return status;
}

plasmon_status_t worker_op_prepare(void *user, const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, bool keep, bool quiet,
                                   struct pl_err *err)
{
    struct worker_executor *executor = user;

    return worker_functions_prepare(&executor->functions, function, args, arg_count,
                                    scalars, scalar_count, keep, quiet, err);
}

void worker_op_prepared_release(void *user)
{
    const struct worker_executor *executor = user;

    kernel_release(executor->kernels);
}

const struct kernel_function *worker_op_function(void *user, uint32_t id, bool quiet,
                                                 struct pl_err *err)
{
    struct worker_executor *executor = user;

    return worker_functions_find(&executor->functions, id, quiet, err);
}

const char *worker_op_function_text(void *user, uint32_t id)
{
    const struct worker_executor *executor = user;

    return worker_functions_text(&executor->functions, id);
}

plasmon_status_t worker_op_run_defined(void *user, uint32_t stream,
                                       const struct kernel_function *function,
                                       const struct kernel_arg *args, uint32_t arg_count,
                                       const union kernel_scalar *scalars,
                                       uint32_t scalar_count, uint64_t scratch_offset,
                                       struct kernel_launch_shape *io_shape, uint64_t tag,
                                       struct pl_err *err)
{
    struct run run = {.executor     = user,
                      .function     = function,
                      .args         = args,
                      .arg_count    = arg_count,
                      .scalars      = scalars,
                      .scalar_count = scalar_count,
                      .io_shape     = io_shape,
                      .tag          = tag};

    return run_put(&run, stream, scratch_offset, err);
}

plasmon_status_t worker_op_fill_identity(void *user, uint32_t stream,
                                         const struct kernel_arg *arg, uint64_t tag)
{
    struct worker_executor *executor = user;
    struct kernel_arg translated     = *arg;

    translated.data = worker_memory_own(executor->memory, arg->data.addr);
    return kernel_fill_identity(executor->kernels, stream_at(executor, stream), &translated,
                                tag);
}

/* ---------------------------------------------------------------------- recorded graphs */

plasmon_status_t worker_op_record_begin(void *user, void **io_recorder, uint32_t branches,
                                        uint64_t tag_offset, struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_graph *graph       = *io_recorder;
    plasmon_status_t status          = PLASMON_OK;

    if (executor->check.on) {
        return pl_err_set(err, PLASMON_ENOTSUP, "its functions are checked");
    }
    if (graph == NULL) {
        status = device_graph_create(executor->device, branches, &graph, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    *io_recorder = graph;
    device_graph_tag_at(graph, worker_memory_own(executor->memory, tag_offset));
    status              = device_graph_begin(graph, err);
    executor->recording = status == PLASMON_OK ? graph : NULL;
    return status;
}

plasmon_status_t worker_op_record_mark(void *user, uint32_t branch, uint32_t mark)
{
    struct worker_executor *executor = user;

    return device_graph_mark(executor->recording, branch, mark);
}

plasmon_status_t worker_op_record_after(void *user, uint32_t branch, uint32_t mark)
{
    struct worker_executor *executor = user;

    return device_graph_after(executor->recording, branch, mark);
}

plasmon_status_t worker_op_record_end(void *user, bool keep, void **io_exec,
                                      struct pl_err *err)
{
    struct worker_executor *executor = user;
    struct device_exec *exec         = *io_exec;
    plasmon_status_t status = device_graph_end(executor->recording, keep, &exec, err);

    executor->recording = NULL;
    *io_exec            = exec;
    return status;
}

plasmon_status_t worker_op_record_item(void *user, uint32_t item)
{
    struct worker_executor *executor = user;

    return device_graph_item(executor->recording, item);
}

plasmon_status_t worker_op_change_begin(void *user, void *recorder, void *exec,
                                        struct pl_err *err)
{
    struct worker_executor *executor = user;
    plasmon_status_t status          = device_graph_change_begin(recorder, exec, err);

    executor->recording = status == PLASMON_OK ? recorder : NULL;
    return status;
}

plasmon_status_t worker_op_change_end(void *user)
{
    struct worker_executor *executor = user;
    plasmon_status_t status          = device_graph_change_end(executor->recording);

    executor->recording = NULL;
    return status;
}

plasmon_status_t worker_op_replay(void *user, uint32_t stream, void *exec, uint64_t tag)
{
    struct worker_executor *executor = user;

    return device_exec_launch(executor->streams[stream], exec, tag);
}

void worker_op_record_drop(void *user, void *recorder, void *exec)
{
    (void)user;
    device_graph_destroy(recorder);
    device_exec_destroy(exec);
}
