/*
 * Devices come and go: a worker says hello, is replaced by another incarnation (worker_back.c), or
 * will not come back (gone.c).
 *
 * A hello of a worker whose device was given up is refused, however late it comes, and a store that
 * connects again does not bring the device back: only one that joins anew does, under another
 * number.
 */
#include "base/fault.h"
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

static struct head_device *device_find(struct head_core *core, const char *host,
                                       uint32_t host_device)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->host_device == host_device &&
            strcmp(device->host, host) == 0) {
            return device;
        }
    }
    return NULL;
}

/*
 * There was such a device, and its number is not given out again: only a store that joins anew
 * brings another one.
 */
static const struct head_device *device_gone_before(struct head_core *core,
                                                    const char *host, uint32_t host_device)
{
    for (size_t i = core->devices.count; i > 0; i--) {
        const struct head_device *device = head_device_at(core, (uint32_t)i - 1);

        if (device->gone && device->host_device == host_device &&
            strcmp(device->host, host) == 0) {
            return device;
        }
    }
    return NULL;
}

char *head_host_name(struct head_core *core, const char *host)
{
    char **place;

    for (size_t i = 0; i < core->hosts.count; i++) {
        char *known = *(char **)pl_vec_at(&core->hosts, i);

        if (strcmp(known, host) == 0) {
            return known;
        }
    }
    place = pl_vec_push(&core->hosts);
    PL_CHECK(place != NULL);
    *place = head_strdup(host);
    return *place;
}

/*
 * Of an announced device, or of one whose worker came without. NULL: there are as many as a
 * buffer's id can name.
 */
static struct head_device *device_create(struct head_core *core, const char *host,
                                         const char *node, uint32_t host_device)
{
    struct head_device *device;
    struct head_device **place;

    if (core->devices.count >= WIRE_DEVICES_MAX) {
        return NULL;
    }
    device = head_alloc(sizeof(*device));
    place  = pl_vec_push(&core->devices);
    PL_CHECK(place != NULL);
    *place               = device;
    device->index        = (uint32_t)core->devices.count - 1;
    device->host         = head_host_name(core, host);
    device->node         = head_strdup(node);
    device->name         = head_strdup("");
    device->bulk_address = head_strdup("");
    core->lineage.several_hosts |=
        core->devices.count > 1 && head_device_apart(head_device_at(core, 0), device);
    device->host_device = host_device;
    device->down_ms     = core->now_ms;
    device->pairs       = PL_VEC_INIT(Plasmon__V1__PairStats);
    device->past.pairs  = PL_VEC_INIT(Plasmon__V1__PairStats);
    device->generations = PL_VEC_INIT(uint32_t);
    device->resting     = PL_VEC_INIT(uint32_t);
    device->early       = PL_VEC_INIT(struct head_bytes);
    device->out_free    = PL_VEC_INIT(uint64_t);
    device->out_retire  = PL_VEC_INIT(uint64_t);
    pl_list_init(&device->ending);
    device->out_cancel        = PL_VEC_INIT(uint64_t);
    device->out_force         = PL_VEC_INIT(uint64_t);
    device->out_graph_free    = PL_VEC_INIT(uint64_t);
    device->seq_oldest        = 1;
    device->maps              = core->maps;
    device->out_function_free = PL_VEC_INIT(uint32_t);
    pl_map_init(&device->told);
    pl_list_init(&device->buffers);
    pl_list_init(&device->recent);
    pl_list_init(&device->loose);
    pl_list_init(&device->relief_row);
    return device;
}

struct head_device *head_device_restore(struct head_core *core, const char *host,
                                        const char *node, uint32_t host_device)
{
    return device_create(core, host, node, host_device);
}

/* Its first worker says what it is. */
static void device_join(struct head_core *core, struct head_device *device,
                        const Plasmon__V1__WorkerHello *hello)
{
    pl_free(device->name);
    device->name         = head_strdup(hello->name);
    device->kind         = hello->kind;
    device->ordinal      = hello->ordinal;
    device->bytes_total  = hello->bytes_total;
    device->peer_capable = hello->peer_capable;
    device->joined       = true;
    if (device->expected_ms != 0) { /* what it has of that time is of nobody */
        device->expected_ms = 0;
        device->fencing     = false;
        pl_free(device->death);
        device->death = NULL;
    }
    pl_info("head", "device %u joined: %s on %s", device->index, device->name,
            device->node);
    head_seconds_look(core);
    head_host_copies_tell(core, device->host);
    if (hello->enqueued > 0) {
        /* It served a head that we do not know of: its launches mean nothing here. */
        device->seq_last = device->seq_sent = hello->enqueued;
        device->seq_oldest                  = hello->enqueued + 1;
    }
    head_device_slots_held(core, device, hello->held, hello->n_held);
}

static int compare_devices(const void *a, const void *b)
{
    const struct head_device *x = *(struct head_device *const *)a;
    const struct head_device *y = *(struct head_device *const *)b;
    int order                   = strcmp(x->node, y->node);

    if (order == 0) {
        order = strcmp(x->host, y->host);
    }
    return order != 0
               ? order
               : (x->host_device > y->host_device) - (x->host_device < y->host_device);
}

plasmon_status_t head_core_node_up(struct head_core *core, const char *host,
                                   const char *node, uint32_t devices, bool again,
                                   struct pl_err *err)
{
    bool *known      = head_alloc(devices + 1);
    uint32_t missing = devices;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if ((!device->gone || again) && device->host_device < devices &&
            strcmp(device->host, host) == 0 && !known[device->host_device]) {
            known[device->host_device] = true;
            missing--;
        }
    }
    if (core->devices.count + missing > WIRE_DEVICES_MAX) {
        pl_free(known);
        return pl_err_set(
            err, PLASMON_ELIMIT,
            "%u more devices on %s: a cluster can number %u, and has given out "
            "%zu; start it anew",
            missing, node, (unsigned)WIRE_DEVICES_MAX, core->devices.count);
    }
    for (uint32_t i = 0; i < devices; i++) {
        if (!known[i]) {
            (void)device_create(core, host, node, i); /* there is room */
        }
    }
    pl_free(known);
    if (!core->numbers_told) {
        qsort(core->devices.items, core->devices.count, sizeof(struct head_device *),
              compare_devices);
        for (uint32_t i = 0; i < core->devices.count; i++) {
            head_device_at(core, i)->index = i;
        }
    }
    head_expect_announced(core, host, devices);
    return PLASMON_OK;
}

void head_device_destroy(struct head_device *device)
{
    pl_free(device->node);
    pl_free(device->name);
    pl_free(device->death);
    pl_free(device->bulk_address);
    pl_free(device->comm_missing);
    pl_free(device->by_seq);
    head_device_forget_output(device);
    pl_vec_finish(&device->early);
    pl_free(device->out.data);
    pl_vec_finish(&device->pairs);
    pl_vec_finish(&device->past.pairs);
    pl_vec_finish(&device->generations);
    pl_vec_finish(&device->resting);
    pl_vec_finish(&device->out_free);
    pl_vec_finish(&device->out_retire);
    pl_vec_finish(&device->out_cancel);
    pl_vec_finish(&device->out_graph_free);
    pl_vec_finish(&device->out_force);
    pl_vec_finish(&device->out_function_free);
    pl_map_finish(&device->told);
    pl_free(device);
}

/* before: the device that this worker had, if it was given up. */
static plasmon_status_t hello_check(const struct head_device *device,
                                    const struct head_device *before,
                                    const Plasmon__V1__WorkerHello *hello,
                                    struct pl_err *err)
{
    if (hello->kind != 1 && hello->kind != 2) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "worker hello: device kind %u is neither 1 (CPU) nor 2 (CUDA)",
                          hello->kind);
    }
    if (device != NULL && hello->incarnation < device->incarnation &&
        !pl_bug("head.serve_the_dead")) {
        return pl_err_set(err, PLASMON_EEXIST,
                          "worker hello: incarnation %u of device %u is over, %u serves "
                          "it; stop this worker",
                          hello->incarnation, device->index, device->incarnation);
    }
    if (before != NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST,
                          "worker hello: device %u on %s has been given up (%s) and is not "
                          "taken back: end this worker; a store that joins anew brings the "
                          "device back under another number",
                          before->index, before->node,
                          before->death != NULL ? before->death : "its node left");
    }
    return PLASMON_OK;
}

plasmon_status_t head_core_worker_up(struct head_core *core,
                                     const Plasmon__V1__WorkerHello *hello,
                                     uint32_t *out_device, struct pl_err *err)
{
    struct head_device *device = device_find(core, hello->host, hello->host_device);
    const struct head_device *before =
        device == NULL ? device_gone_before(core, hello->host, hello->host_device) : NULL;
    plasmon_status_t status = hello_check(device, before, hello, err);
    bool restarted          = false;

    if (status != PLASMON_OK) {
        return status;
    }
    if (device != NULL && device->expected_ms != 0 && !head_expect_fits(device, hello)) {
        head_expect_replaced(core, device);
        device = NULL;
    }
    if (device == NULL) {
        device = device_create(core, hello->host, hello->node, hello->host_device);
        if (device == NULL) {
            head_rebuild(core); /* without it */
            return pl_err_set(err, PLASMON_ELIMIT,
                              "worker hello: the cluster has had %u devices",
                              (unsigned)WIRE_DEVICES_MAX);
        }
    }
    core->numbers_told = true;
    if (!device->joined || device->expected_ms != 0) {
        device_join(core, device, hello);
    } else {
        restarted = hello->incarnation != device->incarnation;
        if (restarted) {
            device->restarts++;
            head_moved_replaced(device);
            head_reach_forget(core, device);
            if (device->down_ns != 0) {
                head_times_add(&core->config.times->workers, core->config.times,
                               device->down_ns);
            }
            pl_info("head", "device %u is back: incarnation %u", device->index,
                    hello->incarnation);
        }
    }
    device->incarnation  = hello->incarnation;
    device->runs         = hello->runs;
    device->comm_version = hello->comm_version;
    device->comm_plain   = hello->comm_plain;
    pl_free(device->comm_missing);
    device->comm_missing = head_strdup(hello->comm_missing);
    device->connected    = true;
    head_device_arriving(core, device, true);
    head_bulk_take(core, device, hello);

    if (restarted) {
        device->starved_seq = 0;
        head_relief_cancel(core, device);
        head_worker_back(core, device, hello);
    }
    if (restarted || hello->resume_session == 0) {
        head_worker_send_again(core, device, hello, restarted);
    }
    head_trace_joined(core, device);
    device->seq_sent =
        pl_min_u64(pl_max_u64(hello->received, hello->enqueued), device->seq_last);
    head_expect_joined(core, device);
    head_rebuild(core); /* what was given up above, if that can be */
    head_device_pump(core, device);
    head_functions_look_again(core);
    *out_device = device->index;
    return PLASMON_OK;
}

void head_device_down(const struct head_core *core, struct head_device *device)
{
    if (device->connected) {
        device->connected = false;
        device->down_ms   = core->now_ms;
        device->down_ns   = head_times_now(core->config.times);
    }
}

void head_core_worker_lost(struct head_core *core, uint32_t index)
{
    struct head_device *device = head_device_at(core, index);

    if (device != NULL) {
        head_device_down(core, device);
    }
}

void head_core_worker_down(struct head_core *core, const char *host, uint32_t host_device,
                           bool final, plasmon_status_t status, const char *text)
{
    struct head_device *device = device_find(core, host, host_device);

    if (device == NULL) {
        return;
    }
    if (final) {
        head_device_gone(core, device, text);
        head_rebuild(core);
    } else {
        head_device_down(core, device);
        pl_free(device->death);
        device->death        = head_strdup(text);
        device->death_status = status;
        device->failed_starts += !device->joined;
        pl_warn("head", "worker of device %u died: %s", device->index, text);
    }
}
