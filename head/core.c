/* The head's state machine: making it, ending it, time, output, status, and the check of its invariants. */
#include "base/fault.h"
#include "base/pool.h"
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

#include "plasmon/version.h"

/* ------------------------------------------------------------------------------ helpers */

void *head_alloc(size_t bytes)
{
    void *ptr = pl_alloc(bytes);

    PL_CHECK(ptr != NULL);
    return ptr;
}

void *head_pool_get(struct pl_pool *pool)
{
    void *ptr = pl_pool_get(pool);

    PL_CHECK(ptr != NULL);
    return ptr;
}

char *head_strdup(const char *text)
{
    char *copy = pl_strdup(text != NULL ? text : "");

    PL_CHECK(copy != NULL);
    return copy;
}

void head_bytes_append(struct head_bytes *bytes, const void *data, size_t length)
{
    if (bytes->length + length > bytes->capacity) {
        size_t capacity = pl_max_u64(bytes->capacity * 2, bytes->length + length + 4096);
        uint8_t *grown  = pl_realloc(bytes->data, bytes->capacity, capacity);

        PL_CHECK(grown != NULL);
        bytes->data     = grown;
        bytes->capacity = capacity;
    }
    if (length > 0) {
        memcpy(bytes->data + bytes->length, data, length);
    }
    bytes->length += length;
}

void head_bytes_varint(struct head_bytes *bytes, uint64_t value)
{
    uint8_t out[10];
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    head_bytes_append(bytes, out, n);
}

void head_bytes_field(struct head_bytes *bytes, uint32_t number, const void *data,
                      size_t length)
{
    head_bytes_varint(bytes, (uint64_t)number << 3 | 2);
    head_bytes_varint(bytes, length);
    head_bytes_append(bytes, data, length);
}

void head_bytes_message(struct head_bytes *bytes, uint32_t number,
                        const ProtobufCMessage *message)
{
    size_t length = protobuf_c_message_get_packed_size(message);

    head_bytes_varint(bytes, (uint64_t)number << 3 | 2);
    head_bytes_varint(bytes, length);
    if (bytes->length + length > bytes->capacity) {
        size_t capacity = pl_max_u64(bytes->capacity * 2, bytes->length + length + 4096);
        uint8_t *grown  = pl_realloc(bytes->data, bytes->capacity, capacity);

        PL_CHECK(grown != NULL);
        bytes->data     = grown;
        bytes->capacity = capacity;
    }
    bytes->length += protobuf_c_message_pack(message, bytes->data + bytes->length);
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t head_core_create(const struct head_config *config,
                                  struct head_core **out_core)
{
    struct head_core *core = pl_alloc(sizeof(*core));
    plasmon_status_t status;

    if (core == NULL) {
        return PLASMON_ENOMEM;
    }
    core->config = *config;
    core->policy = head_policy_find(config->policy != NULL ? config->policy : "auto");
    if (core->policy == NULL) {
        pl_error(
            "head",
            "no placement policy '%s'; there are auto, locality, round-robin and pinned",
            config->policy);
        pl_free(core);
        return PLASMON_EINVAL;
    }
    if (core->config.window == 0) {
        core->config.window = HEAD_WINDOW_DEFAULT;
    }
    if (core->config.retries == UINT32_MAX) {
        core->config.retries = 2;
    }
    if (core->config.credit == 0) {
        core->config.credit = 1u << 20;
    }
    if (core->config.chain_bytes == 0) {
        core->config.chain_bytes = 256u << 20;
    }
    if (core->config.gate_points == 0) {
        core->config.gate_points = 32768; /* half of WIRE_RANGES_MAX */
    }
    if (core->config.one_shot_bytes == 0) {
        core->config.one_shot_bytes = 256u << 10;
    }
    if (core->config.direct_bytes == 0) {
        core->config.direct_bytes = 1u << 30;
    }
    if (core->config.nccl_bytes == 0) {
        core->config.nccl_bytes = UINT64_C(4) << 30;
    }
    if (core->config.team_bytes == 0) {
        core->config.team_bytes = 128u << 20;
    }
    if (core->config.reach_wait_ms == 0) {
        core->config.reach_wait_ms = HEAD_REACH_WAIT_MS;
    }
    if (core->config.lease_ms == 0) {
        core->config.lease_ms = 10000;
    }
    status = wire_arena_init(&core->arena, WIRE_ARENA_BYTES_MAX);
    if (status != PLASMON_OK) {
        pl_free(core);
        return status;
    }
    core->epoch       = config->epoch;
    core->devices     = PL_VEC_INIT(struct head_device *);
    core->hosts       = PL_VEC_INIT(char *);
    core->ready       = PL_VEC_INIT(struct head_task *);
    core->idle        = PL_VEC_INIT(struct head_device *);
    core->trace_waits = PL_VEC_INIT(struct head_trace_wait);
    pl_list_init(&core->clients);
    pl_list_init(&core->spaces);
    pl_list_init(&core->drains);
    pl_list_init(&core->spill_hosts);
    pl_list_init(&core->dirty_clients);
    pl_list_init(&core->unfinished);
    pl_list_init(&core->names);
    pl_map_init(&core->names_by_hash);
    pl_map_init(&core->names_by_number);
    pl_list_init(&core->found);
    pl_map_init(&core->awaited);
    pl_list_init(&core->mapped);
    pl_list_init(&core->plans);
    pl_list_init(&core->functions);
    pl_map_init(&core->functions_by_id);
    pl_map_init(&core->sessions);
    pl_map_init(&core->pairs);
    pl_map_init(&core->teams);
    pl_map_init(&core->ways);
    pl_list_init(&core->hosts_apart);
    pl_map_init(&core->requests);
    pl_map_init(&core->lookahead.unborn);
    pl_list_init(&core->shadows);
    head_seconds_init(core);
    head_lineage_init(core);
    head_labels_init(core);
    *out_core = core;
    return PLASMON_OK;
}

void head_core_destroy(struct head_core *core)
{
    struct head_failure *closed;

    if (core == NULL) {
        return;
    }
    head_drains_finish(core);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        head_relief_cancel(core, head_device_at(core, i));
    }
    head_found_destroy(core);
    while (!pl_list_empty(&core->clients)) {
        head_core_client_close(
            core, pl_list_first(&core->clients, struct head_client, link)->session);
    }
    head_pairs_destroy(core);
    head_teams_destroy(core);
    closed = head_failure_create(PLASMON_ECLOSED, 0, 0, "the head ended");
    while (!pl_list_empty(&core->unfinished)) {
        head_task_finish(
            core, pl_list_first(&core->unfinished, struct head_task, order_link), closed);
    }
    head_failure_release(closed);
    head_roots_release(core, &core->lineage.roots);
    head_names_destroy(core);
    head_waits_destroy(core);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        head_device_destroy(head_device_at(core, i));
    }
    head_lineage_finish(core);
    head_labels_finish(core);
    head_functions_destroy(core);
    head_spaces_finish(core);
    head_spill_hosts_finish(core);
    for (size_t i = 0; i < core->hosts.count; i++) {
        pl_free(*(char **)pl_vec_at(&core->hosts, i));
    }
    pl_vec_finish(&core->hosts);
    pl_vec_finish(&core->devices);
    pl_vec_finish(&core->ready);
    pl_vec_finish(&core->idle);
    pl_vec_finish(&core->trace_waits);
    pl_map_finish(&core->sessions);
    pl_map_finish(&core->pairs);
    pl_map_finish(&core->teams);
    head_rates_destroy(core);
    wire_arena_finish(&core->arena);
    pl_free(core);
}

bool head_core_any_joined(struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->joined) {
            return true;
        }
    }
    return false;
}

bool head_core_all_joined(struct head_core *core)
{
    bool any = head_core_any_joined(core);

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && !device->joined &&
            !(any && device->failed_starts >= HEAD_FAILED_STARTS)) {
            return false;
        }
    }
    return true;
}

uint32_t head_core_device_count(const struct head_core *core)
{
    return (uint32_t)core->devices.count;
}

static bool lease_over(const struct head_core *core, const struct head_client *client)
{
    uint64_t lease_ms =
        pl_bug("head.lease_short") ? core->config.lease_ms / 2 : core->config.lease_ms;

    return client->lost && core->now_ms >= client->lost_ms + lease_ms &&
           !pl_bug("head.lease_forgotten");
}

void head_core_tick(struct head_core *core, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    if (core->started_ms == 0) {
        core->started_ms = now_ms;
    }
    core->now_ms = now_ms;
    head_device_fence_again(core);
    head_trace_tick(core);
    head_drain_tick(core);
    head_expect_tick(core);
    head_spill_tick(core);
    head_seconds_tick(core);
    head_orphans_tick(core);
    pl_list_for_each_safe(pos, tmp, &core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);

        if (lease_over(core, client)) {
            pl_info("head", "client '%s' did not come back within its lease of %llu ms",
                    client->label, (unsigned long long)core->config.lease_ms);
            head_core_client_close(core, client->session);
        }
    }
}

void head_core_flush(struct head_core *core)
{
    if (core->ready.count > 0) {
        head_tasks_ready_finish(core);
        head_rebuild(core);
    }
    head_memory_note(core);
    head_excess_decide(core);
    head_device_relieve(core);
    head_functions_reap(core);
    head_seconds_make(core);
    head_spill_bind(core);
    head_write_back(core);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        head_device_arriving(core, device, false);
        head_device_pump(core, device);
        head_device_retire(device);
        head_device_flush(core, device);
    }
    pl_vec_clear(&core->idle);
    while (!pl_list_empty(&core->dirty_clients)) {
        head_client_flush(
            core, pl_list_first(&core->dirty_clients, struct head_client, dirty_link));
    }
}

uint64_t head_core_order(const struct head_core *core)
{
    return core->order_last;
}

bool head_core_idle(const struct head_core *core)
{
    return pl_list_empty(&core->unfinished) && pl_list_empty(&core->dirty_clients);
}

bool head_core_under_way(struct head_core *core, uint64_t most)
{
    uint64_t launches = 0;

    for (uint32_t i = 0; i < core->devices.count && launches <= most; i++) {
        launches += head_device_at(core, i)->unfinished;
    }
    return launches > most;
}

void head_core_count(const struct head_core *core, struct head_core_counts *out)
{
    *out = core->counts;
}

uint64_t head_core_components(const struct head_core *core)
{
    return core->components_started;
}

/* ------------------------------------------------------------------------------- status */

/*
 * What its worker was told to make as replicas is there as it says; which of it still are, and
 * which have become some, we know.
 */
static uint64_t bytes_replica(const struct head_device *device)
{
    int64_t bytes = (int64_t)device->stats.bytes_replica + device->replica_off;

    return bytes > 0 ? (uint64_t)bytes : 0; /* one that its worker has not told of yet */
}

/* One that is gone has no memory. */
static void status_memory(const struct head_device *device, Plasmon__V1__Device *out)
{
    if (device->gone) {
        return;
    }
    out->bytes_total    = device->bytes_total;
    out->bytes_used     = device->stats.bytes_used;
    out->bytes_replica  = bytes_replica(device);
    out->bytes_reserved = device->stats.bytes_reserved;
    out->bytes_scratch  = device->stats.bytes_scratch;
    out->largest_hole   = device->stats.largest_hole;
}

static Plasmon__V1__Device *status_device(const struct head_core *core,
                                          const struct head_device *device,
                                          struct wire_arena *arena)
{
    Plasmon__V1__Device *out = wire_arena_alloc(arena, sizeof(*out));

    if (out == NULL) {
        return NULL;
    }
    plasmon__v1__device__init(out);
    out->index       = device->index;
    out->kind        = device->kind;
    out->ordinal     = device->ordinal;
    out->node        = device->node;
    out->name        = device->name;
    out->host        = device->host;
    out->host_device = device->host_device;
    out->alive       = device->connected;
    out->death       = device->death != NULL ? device->death : out->death;
    if (!device->connected && !device->gone) {
        out->down_ms = core->now_ms - pl_min_u64(core->now_ms, device->down_ms);
    }
    status_memory(device, out);
    out->launches      = device->seq_oldest - 1;
    out->queued        = device->unfinished;
    out->restarts      = device->restarts;
    out->bulk          = head_bulk_access(device);
    out->communicators = head_pair_count(core, device) + head_team_count(core, device);
    out->communicators_opened = head_pair_opened(core, device) + device->teams_opened;
    out->engines              = device->stats.engines;
    out->state = (!device->joined || device->expected_ms != 0) && !device->gone
                     ? PLASMON__V1__DEVICE_STATE__DEVICE_STATE_ANNOUNCED
                 : device->connected ? PLASMON__V1__DEVICE_STATE__DEVICE_STATE_UP
                 : device->gone      ? PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE
                                     : PLASMON__V1__DEVICE_STATE__DEVICE_STATE_DOWN;
    return out;
}

plasmon_status_t head_core_status_namespaces(struct head_core *core, const char *only,
                                             struct wire_arena *arena,
                                             Plasmon__V1__StatusReply *out)
{
    struct pl_list *pos;
    size_t count = 0;

    pl_list_for_each(pos, &core->spaces) {
        count++;
    }
    out->namespaces = wire_arena_alloc(arena, (count + 1) * sizeof(*out->namespaces));
    if (out->namespaces == NULL) {
        return PLASMON_ENOMEM;
    }
    pl_list_for_each(pos, &core->spaces) {
        struct head_space *space = pl_container_of(pos, struct head_space, link);
        Plasmon__V1__NamespaceStats *one;

        if (only != NULL && strcmp(only, space->name) != 0) {
            continue;
        }
        one = wire_arena_alloc(arena, sizeof(*one));
        if (one == NULL) {
            return PLASMON_ENOMEM;
        }
        plasmon__v1__namespace_stats__init(one);
        one->name                            = space->name;
        one->bytes                           = space->bytes;
        one->tasks                           = space->tasks;
        one->sessions                        = space->sessions;
        one->refused                         = space->refused;
        one->bytes_quota                     = space->quota.bytes;
        one->tasks_quota                     = space->quota.tasks;
        one->sessions_quota                  = space->quota.sessions;
        one->message_bytes_quota             = space->quota.message_bytes;
        out->namespaces[out->n_namespaces++] = one;
    }
    return PLASMON_OK;
}

plasmon_status_t head_core_status(struct head_core *core, struct wire_arena *arena,
                                  Plasmon__V1__StatusReply *out)
{
    static const char *const transfers[] = {"auto", "peer", "host", "nccl"};

    out->version      = (char *)PLASMON_VERSION_STRING;
    out->protocol     = WIRE_PROTOCOL;
    out->epoch        = core->epoch;
    out->uptime_ms    = core->now_ms - core->started_ms;
    out->clients      = core->counts.clients;
    out->tasks_queued = core->tasks_queued;
    out->tasks_done   = core->tasks_done;
    out->tasks_failed = core->tasks_failed;
    out->tasks_again  = core->tasks_again;
    out->objects      = core->counts.buffers;
    out->object_bytes = core->object_bytes;
    out->task_bytes   = core->memory.bytes_a_task;
    out->lineage      = head_lineage_status(core, arena);
    out->policy       = (char *)head_policy_name(core->policy);
    out->transfer     = (char *)transfers[core->config.transfer];
    if (core->devices.count > 0) {
        out->devices = wire_arena_alloc(arena, core->devices.count * sizeof(*out->devices));
        if (out->devices == NULL) {
            return PLASMON_ENOMEM;
        }
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        out->devices[i] = status_device(core, head_device_at(core, i), arena);
        if (out->devices[i] == NULL) {
            return PLASMON_ENOMEM;
        }
        out->n_devices++;
    }
    if (head_spill_status(core, arena, out) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }
    if (core->config.times != NULL &&
        head_times_tell(core->config.times, arena, out) != PLASMON_OK) {
        return PLASMON_ENOMEM;
    }
    return head_moved_status(core, arena, out);
}
