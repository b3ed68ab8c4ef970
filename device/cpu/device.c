/*
 * CPU devices: open and close, what they say of themselves, and the launches that failed.
 *
 * A failed launch must never be lost: whoever runs tasks would count its outputs as good. So a
 * record is taken from a small reserve when memory is gone, and when that is gone too the process
 * stops.
 */
#include "device/cpu/cpu_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/ram.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* a sleep and a wake cost about as much; only where a CPU is free for it */
#define SPIN_NS 20000u

static uint32_t cpu_count(struct pl_err *why)
{
    (void)why;
    return DEVICE_CPU_MAX;
}

/* "model name : Intel ..." of the first processor; the architecture where there is no such line. */
static void cpu_name(char *name, size_t bytes)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");

    (void)snprintf(name, bytes, "CPU");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(name, bytes, "%s", colon + 2);
            break;
        }
    }
    (void)fclose(file); /* read only */
}

/* The same for everybody on this host until it boots again, and different for each ordinal. */
static void cpu_uuid(uint32_t ordinal, uint8_t uuid[16])
{
    char text[64] = "no boot id";
    FILE *file    = fopen("/proc/sys/kernel/random/boot_id", "re");
    char key[96];

    if (file != NULL) {
        if (fgets(text, sizeof(text), file) == NULL) {
            (void)snprintf(text, sizeof(text), "no boot id");
        }
        (void)fclose(file); /* read only */
    }
    for (uint32_t part = 0; part < 4; part++) {
        uint32_t hash;

        (void)snprintf(key, sizeof(key), "%u %u %s", part, ordinal, text);
        hash = pl_hash_name(key);
        memcpy(uuid + part * sizeof(hash), &hash, sizeof(hash));
    }
}

static void cpu_info(uint32_t ordinal, const struct device_config *config,
                     struct device_info *out_info)
{
    uint64_t bytes_max = config->bytes_max > 0 ? config->bytes_max : pl_ram().total / 4;

    *out_info = (struct device_info){
        .kind              = DEVICE_CPU,
        .ordinal           = ordinal,
        .bytes_total       = bytes_max - bytes_max % DEVICE_CPU_GRANULARITY,
        .multiprocessors   = config->cpu_threads > 0 ? config->cpu_threads : 1,
        .numa_node         = -1,
        .chunk_granularity = DEVICE_CPU_GRANULARITY,
    };
    cpu_name(out_info->name, sizeof(out_info->name));
    cpu_uuid(ordinal, out_info->uuid);
}

static plasmon_status_t cpu_probe(uint32_t ordinal, struct device_info *out_info,
                                  struct pl_err *err)
{
    static const struct device_config defaults;

    (void)err;
    cpu_info(ordinal, &defaults, out_info);
    return PLASMON_OK;
}

/* Polling helps only if the one who is waited for has a CPU meanwhile. */
static uint64_t spin_ns(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 0;
    }
    return CPU_COUNT(&set) > 2 ? SPIN_NS : 0;
}

static plasmon_status_t cpu_open(uint32_t ordinal, const struct device_config *config,
                                 struct device **out_device, struct pl_err *err)
{
    struct device_cpu *cpu = PL_NEW(struct device_cpu);
    plasmon_status_t status;

    if (cpu == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for CPU device %u", ordinal);
    }

    cpu->base.ops = &device_cpu_ops;
    cpu_info(ordinal, config, &cpu->base.info);
    cpu->bytes_max   = cpu->base.info.bytes_total;
    cpu->failed      = config->launch_failed;
    cpu->failed_user = config->user;
    cpu->guard_bytes = config->cpu_guard_pages ? DEVICE_CPU_GRANULARITY : 0;
    cpu->spin_ns     = spin_ns();
    pl_list_init(&cpu->streams);
    pl_list_init(&cpu->failures);
    pl_list_init(&cpu->ranges);
    pl_list_init(&cpu->comm_ids);
    pl_map_init(&cpu->chunk_of_inode);
    pl_map_init(&cpu->chunk_of_address);

    status = pl_mutex_init(&cpu->lock, PL_RANK_DEVICE);
    if (status != PLASMON_OK) {
        pl_free(cpu);
        return pl_err_set(err, status, "no lock for CPU device %u", ordinal);
    }
    *out_device = &cpu->base;
    return PLASMON_OK;
}

static void failures_free(struct device_cpu *cpu)
{
    struct pl_list *pos;
    struct pl_list *next;

    pl_list_for_each_safe(pos, next, &cpu->failures) {
        pl_free(pl_container_of(pos, struct device_cpu_failure, link));
    }
}

static void cpu_close(struct device *device)
{
    struct device_cpu *cpu = device_cpu_of(device);

    while (!pl_list_empty(&cpu->streams)) {
        device_cpu_stream_destroy(
            &pl_list_first(&cpu->streams, struct device_cpu_stream, link)->base);
    }
    failures_free(cpu);
    device_cpu_comm_finish(cpu);
    device_cpu_memory_finish(cpu);
    pl_mutex_finish(&cpu->lock);
    pl_free(cpu);
}

static bool cpu_can_peer(struct device *device, uint32_t peer_ordinal)
{
    (void)device;
    return peer_ordinal < DEVICE_CPU_MAX;
}

/* All host memory is within reach of a thread. */
static plasmon_status_t cpu_host_register(struct device *device, void *ptr, uint64_t offset,
                                          uint64_t bytes)
{
    (void)device;
    (void)ptr;
    (void)offset;
    (void)bytes;
    return PLASMON_OK;
}

static void cpu_host_unregister(struct device *device, void *ptr)
{
    (void)device;
    (void)ptr;
}

static plasmon_status_t cpu_host_address(struct device *device, const void *ptr,
                                         uint64_t bytes, struct device_ptr *out_address)
{
    (void)device;
    (void)bytes;
    out_address->addr = (uint64_t)(uintptr_t)ptr;
    return PLASMON_OK;
}

static void *cpu_ptr_host(struct device_ptr ptr)
{
    return (void *)(uintptr_t)ptr.addr;
}

/* A thread that faults takes the process with it, so a CPU device that still answers is well. */
static plasmon_status_t cpu_health(struct device *device, struct pl_err *err)
{
    (void)device;
    (void)err;
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- failures */

void device_cpu_failure_add(struct device_cpu_stream *stream, uint64_t tag,
                            const struct pl_err *err)
{
    struct device_cpu *cpu             = device_cpu_of(stream->base.device);
    struct device_cpu_failure *failure = PL_NEW(struct device_cpu_failure);

    PL_CHECK(failure != NULL); /* a failure that is lost would pass for success */
    failure->tag = tag;
    failure->err = *err;

    pl_mutex_lock(&cpu->lock);
    if (stream->failure.status == PLASMON_OK) {
        stream->failure = *err;
    }
    pl_list_add_tail(&cpu->failures, &failure->link);
    pl_mutex_unlock(&cpu->lock);
    if (cpu->failed != NULL) {
        cpu->failed(cpu->failed_user, tag);
    }
}

static bool cpu_failure(struct device *device, uint64_t *out_tag, struct pl_err *out_err)
{
    struct device_cpu *cpu = device_cpu_of(device);
    struct device_cpu_failure *failure;

    pl_mutex_lock(&cpu->lock);
    failure = pl_list_first(&cpu->failures, struct device_cpu_failure, link);
    if (failure != NULL) {
        pl_list_remove(&failure->link);
    }
    pl_mutex_unlock(&cpu->lock);

    if (failure == NULL) {
        return false;
    }
    *out_tag = failure->tag;
    if (out_err != NULL) {
        *out_err = failure->err;
    }
    pl_free(failure);
    return true;
}

const struct device_ops device_cpu_ops = {
    .kind             = DEVICE_CPU,
    .count            = cpu_count,
    .probe            = cpu_probe,
    .open             = cpu_open,
    .close            = cpu_close,
    .range_reserve    = device_cpu_range_reserve,
    .range_release    = device_cpu_range_release,
    .chunk_create     = device_cpu_chunk_create,
    .chunk_map        = device_cpu_chunk_map,
    .chunk_unmap      = device_cpu_chunk_unmap,
    .can_peer         = cpu_can_peer,
    .host_register    = cpu_host_register,
    .host_unregister  = cpu_host_unregister,
    .host_address     = cpu_host_address,
    .ptr_host         = cpu_ptr_host,
    .stream_create    = device_cpu_stream_create,
    .stream_destroy   = device_cpu_stream_destroy,
    .stream_sync      = device_cpu_stream_sync,
    .health           = cpu_health,
    .copy             = device_cpu_copy,
    .copy_planned     = device_cpu_copy_planned,
    .fill8            = device_cpu_fill8,
    .signal           = device_cpu_signal,
    .wait             = device_cpu_wait,
    .notify           = device_cpu_notify,
    .join             = device_cpu_join,
    .event_create     = device_cpu_event_create,
    .event_destroy    = device_cpu_event_destroy,
    .event_record     = device_cpu_event_record,
    .event_elapsed_ns = device_cpu_event_elapsed_ns,
    .event_done       = device_cpu_event_done,
    .event_behind     = device_cpu_event_behind,
    .event_host_ns    = device_cpu_event_host_ns,
    .cpu_launch       = device_cpu_launch_enqueue,
    .launch_failure   = cpu_failure,
    .graph_create     = device_cpu_graph_create,
    .graph_destroy    = device_cpu_graph_destroy,
    .graph_begin      = device_cpu_graph_begin,
    .graph_mark       = device_cpu_graph_mark,
    .graph_after      = device_cpu_graph_after,
    .graph_end        = device_cpu_graph_end,
    .exec_launch      = device_cpu_exec_launch,
    .exec_destroy     = device_cpu_exec_destroy,
    .comm_version     = device_cpu_comm_version,
    .comm_id          = device_cpu_comm_id,
    .comm_open        = device_cpu_comm_open,
    .comm_poll        = device_cpu_comm_poll,
    .comm_move        = device_cpu_comm_move,
    .comm_join        = device_cpu_comm_join,
    .comm_check       = device_cpu_comm_check,
    .comm_close       = device_cpu_comm_close,
    .comm_cut         = device_cpu_comm_cut,
    .comm_abort       = device_cpu_comm_abort,
};
