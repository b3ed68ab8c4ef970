#include "runner.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/test.h"

#define ARENA_BYTES   (UINT64_C(256) << 20)
#define SCRATCH_GUARD 256
#define PATTERN       0x5A

void runner_open(struct runner *runner, enum device_kind kind)
{
    struct device_config config = {.bytes_max = 2 * ARENA_BYTES};
    struct pl_err err           = {0};
    uint64_t granularity;

    memset(runner, 0, sizeof(*runner));
    if (device_open(kind, 0, &config, &runner->device, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "cannot open the device: %s", err.text);
    }
    granularity         = device_get_info(runner->device)->chunk_granularity;
    runner->arena_bytes = pl_round_up(ARENA_BYTES, granularity);
    ASSERT_OK(device_range_reserve(runner->device, runner->arena_bytes, &runner->arena));
    ASSERT_OK(device_chunk_create(runner->device, runner->arena_bytes, &runner->fd));
    ASSERT_OK(device_chunk_map(runner->device, runner->fd, runner->arena_bytes, 0, true,
                               runner->arena));
    runner->staging = mmap(NULL, runner->arena_bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_TRUE(runner->staging != MAP_FAILED);
    ASSERT_OK(device_host_register(runner->device, runner->staging, runner->arena_bytes));
    /* As a worker's: what a function puts in by a library comes between what it launches itself. */
    ASSERT_OK(device_stream_create(runner->device, DEVICE_STREAM_KEEPS, &runner->stream));
    if (kernel_context_create(runner->device, &runner->context, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "cannot load the kernels: %s", err.text);
    }
}

void runner_close(struct runner *runner)
{
    kernel_context_destroy(runner->context);
    device_stream_destroy(runner->stream);
    device_host_unregister(runner->device, runner->staging);
    (void)munmap(runner->staging, runner->arena_bytes); /* the process ends soon */
    device_chunk_unmap(runner->device, runner->arena, runner->arena_bytes);
    device_range_release(runner->device, runner->arena, runner->arena_bytes);
    (void)close(runner->fd); /* likewise */
    device_close(runner->device);
}

/* Where roots are in the arena: one after another, as aligned as a buffer of the store. */
static uint64_t root_offset(const struct trial *trial, uint32_t index)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < index; i++) {
        offset += pl_round_up(trial->array[i].root_bytes, 256);
    }
    return offset;
}

/*
 * The first `bytes` of the arena, which are the first of the staging memory: by the pieces in which
 * that is registered.
 */
static void copy_arena(struct runner *runner, enum device_copy_kind kind, uint64_t bytes)
{
    uint64_t host = (uint64_t)(uintptr_t)runner->staging;
    uint64_t dst  = kind == DEVICE_COPY_HOST_TO_DEVICE ? runner->arena.addr : host;
    uint64_t src  = kind == DEVICE_COPY_HOST_TO_DEVICE ? host : runner->arena.addr;
    uint64_t run;

    for (uint64_t at = 0; at < bytes; at += run) {
        run = device_host_run(at, bytes - at);
        ASSERT_OK(device_copy(runner->stream, kind, dst + at, src + at, run));
    }
}

/* As a worker does: nothing is on the device while what a call needs is made. */
static plasmon_status_t prepare(struct runner *runner, const struct trial *trial,
                                const struct kernel_arg *args, struct pl_err *err)
{
    plasmon_status_t status = kernel_prepared(runner->context, trial->function, args,
                                              trial->count, trial->scalar, false, err);

    if (status == PLASMON_EAGAIN) {
        ASSERT_OK(device_stream_sync(runner->stream, err));
        status = kernel_prepare(runner->context, trial->function, args, trial->count,
                                trial->scalar, err);
    }
    return status;
}

/* Arrays are on the device; returns how many bytes of scratch are behind them. */
static plasmon_status_t place(struct runner *runner, const struct trial *trial,
                              struct kernel_arg args[TRIAL_ARRAYS_MAX],
                              struct device_ptr *out_scratch, uint64_t *out_bytes,
                              struct pl_err *err)
{
    plasmon_status_t status;
    uint64_t bytes;

    /* the staging memory is free again */
    ASSERT_OK(device_stream_sync(runner->stream, err));
    ASSERT_TRUE(root_offset(trial, trial->count) <= runner->arena_bytes);
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct trial_array *array = &trial->array[i];
        uint64_t at                     = root_offset(trial, i);

        memcpy(runner->staging + at, array->root, array->root_bytes);
        args[i]      = array->arg;
        args[i].data = device_ptr_add(
            runner->arena, at + (array->arg.data.addr - (uint64_t)(uintptr_t)array->root));
    }
    copy_arena(runner, DEVICE_COPY_HOST_TO_DEVICE, root_offset(trial, trial->count));
    status = prepare(runner, trial, args, err);
    if (status != PLASMON_OK) {
        return status;
    }
    bytes = kernel_scratch_bytes(runner->context, trial->function, args, trial->count,
                                 trial->scalar, trial->scalar_count);
    runner->scratch_end = root_offset(trial, trial->count) + bytes;
    if (runner->scratch_end + SCRATCH_GUARD > runner->arena_bytes) {
        test_fail(__FILE__, __LINE__, "%s %s wants %llu bytes of scratch",
                  trial->function->name, pl_dtype_name(trial->dtype),
                  (unsigned long long)bytes);
    }
    *out_scratch = device_ptr_add(runner->arena, root_offset(trial, trial->count));
    *out_bytes   = bytes;
    return PLASMON_OK;
}

plasmon_status_t runner_enqueue(struct runner *runner, struct trial *trial,
                                struct pl_err *err)
{
    struct kernel_arg args[TRIAL_ARRAYS_MAX];
    struct device_ptr scratch;
    uint64_t bytes;

    if (place(runner, trial, args, &scratch, &bytes, err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s %s cannot be prepared: %s", trial->function->name,
                  pl_dtype_name(trial->dtype), err->text);
    }
    ASSERT_OK(device_fill8(runner->stream, scratch, PATTERN, bytes + SCRATCH_GUARD));
    return kernel_run(runner->context, runner->stream, trial->function, args, trial->count,
                      trial->scalar, trial->scalar_count, scratch, bytes, 77, err);
}

plasmon_status_t runner_record(struct runner *runner, struct trial *trial,
                               struct device_graph *graph, struct device_exec **out_exec,
                               uint64_t *out_operations, struct pl_err *err)
{
    struct kernel_arg args[TRIAL_ARRAYS_MAX];
    struct device_ptr scratch;
    plasmon_status_t status, ended;
    uint64_t bytes;

    status = place(runner, trial, args, &scratch, &bytes, err);
    if (status != PLASMON_OK) {
        return status;
    }
    *out_operations = kernel_operations(runner->context, trial->function, args,
                                        trial->count, trial->scalar, trial->scalar_count);
    device_graph_tag_at(graph, device_ptr_add(scratch, pl_round_up(bytes, 8)));
    ASSERT_OK(device_graph_begin(graph, err));
    status = kernel_run(runner->context, device_graph_branch(graph, 0), trial->function,
                        args, trial->count, trial->scalar, trial->scalar_count, scratch,
                        bytes, 77, err);
    ended  = device_graph_end(graph, status == PLASMON_OK, out_exec, err);
    return status == PLASMON_OK ? ended : status;
}

plasmon_status_t runner_wait(struct runner *runner, struct pl_err *err)
{
    return device_stream_sync(runner->stream, err);
}

/* What was behind the scratch must still be there. */
static void check_scratch_guard(const struct runner *runner, const struct trial *trial)
{
    for (uint32_t i = 0; i < SCRATCH_GUARD; i++) {
        if (runner->staging[runner->scratch_end + i] != PATTERN) {
            test_fail(__FILE__, __LINE__, "%s wrote behind its scratch",
                      trial->function->name);
        }
    }
}

void runner_run(struct runner *runner, struct trial *trial)
{
    struct pl_err err = {0};

    if (runner_enqueue(runner, trial, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    copy_arena(runner, DEVICE_COPY_DEVICE_TO_HOST, runner->scratch_end + SCRATCH_GUARD);
    if (runner_wait(runner, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s: %s", trial->function->name, err.text);
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        memcpy(trial->array[i].root, runner->staging + root_offset(trial, i),
               trial->array[i].root_bytes);
    }
    check_scratch_guard(runner, trial);
}
