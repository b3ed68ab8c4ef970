/*
 * What kernels find wrong in data: see cuda_failures.h.
 */
#include "kernels/cuda_failures.h"

#include "kernels/cuda_int.h"

#include <sys/mman.h>

#define RECORDS_BYTES (CUDA_FAILURES_MAX * sizeof(struct cuda_failure))

plasmon_status_t cuda_failures_init(struct cuda_failures *failures, struct device *device,
                                    struct pl_err *err)
{
    struct device_ptr address;
    plasmon_status_t status;
    void *memory = mmap(NULL, RECORDS_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of memory for records of failures");
    }
    status = device_host_register(device, memory, RECORDS_BYTES);
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    status = device_host_address(device, memory, RECORDS_BYTES, &address);
    if (status != PLASMON_OK) {
        goto err_unregister;
    }
    *failures = (struct cuda_failures){
        .device = device, .records = memory, .address = address.addr};
    return PLASMON_OK;

err_unregister:
    device_host_unregister(device, memory);
err_unmap:
    (void)munmap(memory, RECORDS_BYTES); /* cannot fail for what mmap gave */
    return pl_err_set(err, status, "cannot pin the records of failures");
}

void cuda_failures_finish(struct cuda_failures *failures)
{
    if (failures->records == NULL) {
        return;
    }
    device_host_unregister(failures->device, (void *)(uintptr_t)failures->records);
    (void)munmap((void *)(uintptr_t)failures->records, RECORDS_BYTES); /* likewise */
    failures->records = NULL;
}

bool cuda_failures_take(struct cuda_failures *failures, uint64_t *out_tag,
                        struct pl_err *out_err)
{
    volatile struct cuda_failure *record;

    if (failures->records == NULL) {
        return false;
    }
    record = &failures->records[failures->read % CUDA_FAILURES_MAX];
    if (record->number != failures->read + 1) {
        return false;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* pairs with the fence in the report kernel */
    failures->read++;
    *out_tag = record->tag;
    (void)kernel_data_error(out_err, kernel_at(record->function),
                            (enum kernel_data_error)record->error, record->value);
    return true;
}

plasmon_status_t cuda_report(const struct cuda_call *call, const uint64_t *words,
                             const enum kernel_data_error *errors, uint32_t count,
                             uint32_t bytes, int64_t fine)
{
    struct device_ptr tag_at  = device_stream_tag(call->stream);
    struct cuda_report params = {.records    = call->cuda->failures.address,
                                 .tag        = call->tag,
                                 .tag_at     = tag_at.addr,
                                 .fine       = fine,
                                 .count      = count,
                                 .bytes      = bytes,
                                 .function   = kernel_id_of(call->function),
                                 .refused    = KERNEL_DATA_ARGUMENT,
                                 .marks      = call->cuda->failures.marks.entries.addr,
                                 .mark_count = call->cuda->failures.marks.count,
                                 .mark_bit   = call->cuda->failures.marks.bit,
                                 .mark_shift = call->cuda->failures.marks.shift};

    if (device_stream_records(call->stream) && tag_at.addr == 0) {
        return pl_err_set(
            call->err, PLASMON_ENOTSUP,
            "%s reports what is wrong with its data, and what is recorded does not know in "
            "which launch it runs",
            call->function->name);
    }
    for (uint32_t i = 0; i < count; i++) {
        params.word[i]  = words[i];
        params.error[i] = (uint32_t)errors[i];
    }
    return cuda_launch(call, CUDA_report, 1, 1, 1, &params);
}
