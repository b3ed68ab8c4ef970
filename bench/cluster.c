/* A cluster to measure, and short forms of the public calls that exit when one fails. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

void bench_must(struct bench_cluster *cluster, plasmon_status_t status, const char *what)
{
    if (status != PLASMON_OK) {
        bench_die("%s: %s: %s", what, plasmon_status_name(status),
                  plasmon_error(cluster->client));
    }
}

void bench_must_start(struct bench_cluster *cluster,
                      const struct bench_cluster_config *config)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    const char *address            = getenv("PLASMON_ADDRESS");
    bool elsewhere                 = address != NULL && address[0] != '\0';
    bool of_our_own =
        config->is_private || config->transfer != NULL || config->policy != NULL;

    *cluster = (struct bench_cluster){.is_private = !elsewhere || of_our_own};
    if (elsewhere && of_our_own) {
        (void)unsetenv("PLASMON_ADDRESS");
    }
    if (config->driver_time) {
        (void)setenv("PLASMON_DRIVER_TIME", "1", 1); /* no memory: less is told */
    }
    options.label         = "plasmon bench";
    options.gpus          = config->gpus;
    options.cpu_devices   = config->cpu_devices;
    options.transfer      = config->transfer;
    options.policy        = config->policy;
    options.device_memory = config->device_memory;
    options.spill_memory  = config->spill_memory;
    options.write_back    = config->write_back;
    options.no_prefetch   = config->no_prefetch;
    bench_must(cluster, plasmon_init(&options, &cluster->client), "starting a cluster");
    if (elsewhere && of_our_own) {
        (void)setenv("PLASMON_ADDRESS", address, 1);
    }
    bench_must(cluster,
               plasmon_devices(cluster->client, cluster->info, PL_COUNT(cluster->info),
                               &cluster->devices),
               "listing devices");
    if (cluster->devices > PL_COUNT(cluster->info)) {
        cluster->devices = PL_COUNT(cluster->info);
    }
    if (cluster->devices == 0) {
        bench_die("the cluster has no devices");
    }
}

const struct plasmon_device_info *bench_must_device(const struct bench_cluster *cluster,
                                                    uint32_t index, const char *option)
{
    for (uint32_t i = 0; i < cluster->devices; i++) {
        if (cluster->info[i].index == (int)index) {
            return &cluster->info[i];
        }
    }
    bench_die("%s: there is no device %u (`plasmon status` has those that there are)",
              option, index);
}

void bench_cluster_finish(struct bench_cluster *cluster)
{
    plasmon_finish(cluster->client);
    cluster->client = NULL;
}

struct plasmon_shape bench_shape(plasmon_dtype_t dtype, uint32_t ndim, int64_t rows,
                                 int64_t columns)
{
    return (struct plasmon_shape){.dtype = dtype, .ndim = ndim, .dim = {rows, columns}};
}

/* -------------------------------------------------------------------------------- tasks */

struct plasmon_ref *bench_must_task(struct bench_cluster *cluster, const char *function,
                                    const struct plasmon_arg *args, uint32_t arg_count,
                                    const plasmon_scalar_t *scalars, uint32_t scalar_count,
                                    int device)
{
    struct plasmon_call call = PLASMON_CALL_INIT;
    struct plasmon_ref *task;

    call.function     = function;
    call.args         = args;
    call.arg_count    = arg_count;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    bench_must(cluster, plasmon_submit(cluster->client, &call, NULL, &task), function);
    return task;
}

struct plasmon_ref *bench_must_make(struct bench_cluster *cluster, const char *function,
                                    const struct plasmon_shape *shape,
                                    const plasmon_scalar_t *scalars, uint32_t scalar_count,
                                    int device)
{
    const struct plasmon_arg arg = {.mode = PLASMON_OUT, .shape = shape};
    struct plasmon_call call     = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function     = function;
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = scalar_count;
    call.device       = device;
    bench_must(cluster, plasmon_submit(cluster->client, &call, &ref, NULL), function);
    return ref;
}

struct plasmon_ref *bench_must_touch(struct bench_cluster *cluster, struct plasmon_ref *ref,
                                     int device)
{
    const struct plasmon_arg arg = {.mode = PLASMON_IN, .ref = ref};

    return bench_must_task(cluster, "touch", &arg, 1, NULL, 0, device);
}

void bench_must_wait(struct bench_cluster *cluster, struct plasmon_ref *const *refs,
                     uint32_t count)
{
    bench_must(
        cluster,
        plasmon_wait(cluster->client, refs, count, count, PLASMON_FOREVER, NULL, NULL),
        "waiting");
    for (uint32_t i = 0;
         i<count; i += count> 64 ? count / 64 : 1) { /* a sample is enough */
        bench_must(cluster, plasmon_state(cluster->client, refs[i]), "a task");
    }
}

void bench_must_release(struct bench_cluster *cluster, struct plasmon_ref **refs,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bench_must(cluster, plasmon_release(cluster->client, refs[i]), "releasing");
        refs[i] = NULL;
    }
}

/* ------------------------------------------------------------------------------- status */

/* The number after "name": in our own head's JSON, which has no spaces; 0 when it is not there. */
static uint64_t find_number(const char *json, const char *name)
{
    char key[48];
    const char *at;

    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(json, key);
    return at != NULL ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t find_copies(const char *json, const char *route)
{
    char key[48];
    const char *at;

    (void)snprintf(key, sizeof(key), "\"route\":\"%s\"", route);
    at = strstr(json, key);
    return at != NULL ? find_number(at, "copies") : 0;
}

bool bench_all_by(const struct bench_status *status, const char *route)
{
    uint64_t all  = status->peer_copies + status->host_copies + status->nccl_copies;
    uint64_t mine = strcmp(route, "peer") == 0   ? status->peer_copies
                    : strcmp(route, "host") == 0 ? status->host_copies
                                                 : status->nccl_copies;

    return mine != 0 && mine == all;
}

void bench_must_status(struct bench_cluster *cluster, struct bench_status *out)
{
    char *json;

    bench_must(cluster, plasmon_status_json(cluster->client, &json),
               "asking for the status");
    *out = (struct bench_status){
        .tasks_queued     = find_number(json, "tasks_queued"),
        .core_ns          = find_number(json, "core_ns"),
        .worker_cpu_ns    = find_number(json, "worker_cpu_ns"),
        .worker_driver_ns = find_number(json, "worker_driver_ns"),
        .task_bytes       = find_number(json, "task_bytes"),
        .peer_copies      = find_copies(json, "peer"),
        .host_copies      = find_copies(json, "host"),
        .nccl_copies      = find_copies(json, "nccl"),
        .spill_bytes      = find_number(json, "spill_bytes"),
        .write_back_bytes = find_number(json, "write_back_bytes"),
        .restore_bytes    = find_number(json, "restore_bytes"),
        .driver_counted   = strstr(json, "\"worker_driver_counted\":true") != NULL,
        .engines_own      = strstr(json, "\"engines\":\"own\"") != NULL,
        .engines_opening  = strstr(json, "\"engines\":\"opening\"") != NULL,
        .engines_sources  = strstr(json, "\"engines\":\"sources\"") != NULL,
    };
    free(json);
}
