/*
 * Clients and workers: who is there, what they say, and when they come and go. What is put out to
 * them is in machine_frames.c.
 */
#include <string.h>

#include "head/machine_int.h"

char *head_string_copy(struct head_string string)
{
    char *copy = head_alloc(string.length + 1);

    if (string.length > 0) {
        memcpy(copy, string.bytes, string.length);
    }
    copy[string.length] = '\0';
    return copy;
}

uint64_t head_machine_session_new(struct head_machine *machine)
{
    /* The epoch is random: no other cluster ever drew the same. */
    return machine->settings.epoch ^ ++machine->session_last << 1;
}

/* ------------------------------------------------------------------------------ finding */

struct head_machine_client *head_machine_client_of(const struct head_machine *machine,
                                                   uint64_t session)
{
    return session != 0 ? pl_map_get(&machine->sessions, session) : NULL;
}

bool head_machine_client_known(const struct head_machine *machine, uint64_t session)
{
    return head_machine_client_of(machine, session) != NULL;
}

struct head_machine_worker *head_machine_worker_of(const struct head_machine *machine,
                                                   uint32_t device)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        if (worker->device == device) {
            return worker;
        }
    }
    return NULL;
}

static struct head_machine_worker *worker_at(const struct head_machine *machine,
                                             const char *host, uint64_t host_device)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &machine->workers) {
        struct head_machine_worker *worker =
            pl_container_of(pos, struct head_machine_worker, link);

        if (worker->host_device == host_device && strcmp(worker->host, host) == 0) {
            return worker;
        }
    }
    return NULL;
}

bool head_machine_worker_where(const struct head_machine *machine, uint32_t device,
                               const char **out_host, uint32_t *out_host_device,
                               uint32_t *out_incarnation)
{
    const struct head_machine_worker *worker = head_machine_worker_of(machine, device);

    if (worker == NULL) {
        return false;
    }
    *out_host        = worker->host;
    *out_host_device = worker->host_device;
    *out_incarnation = worker->incarnation;
    return true;
}

/* ------------------------------------------------------------------------------ clients */

static void client_free(struct head_machine *machine, struct head_machine_client *client)
{
    (void)pl_map_remove(&machine->sessions, client->peer.session);
    pl_list_remove(&client->link);
    wire_link_finish(&client->peer.link);
    pl_free(client);
}

static struct head_machine_client *some_ended(const struct head_machine *machine)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &machine->clients) {
        struct head_machine_client *client =
            pl_container_of(pos, struct head_machine_client, link);

        if (client->ended) {
            return client;
        }
    }
    return NULL;
}

/* Sessions that ended within the last input, and those that end by that. */
void head_machine_clients_reap(struct head_machine *machine)
{
    struct head_machine_client *client;

    while ((client = some_ended(machine)) != NULL) {
        uint64_t session = client->peer.session;

        head_core_client_close(machine->core, session); /* if it has not been */
        client_free(machine, client);
        machine->config.ops->session_ended(machine->config.user, session);
    }
    machine->some_ended = false;
}

uint64_t head_machine_client_kept_max(const struct head_machine *machine)
{
    const struct head_machine_config *config = &machine->config;

    return config->client_kept_bytes_max != 0 ? config->client_kept_bytes_max
                                              : config->kept_bytes_max;
}

struct head_machine_client *head_machine_client_create(struct head_machine *machine,
                                                       uint64_t session)
{
    struct head_machine_client *client = head_alloc(sizeof(*client));

    client->peer.session   = session;
    client->peer.connected = true;
    wire_link_init(&client->peer.link, head_machine_client_kept_max(machine));
    pl_list_init(&client->link);
    pl_list_add_tail(&machine->clients, &client->link);
    PL_CHECK(pl_map_set(&machine->sessions, session, client) == PLASMON_OK);
    return client;
}

plasmon_status_t head_machine_client_open(struct head_machine *machine,
                                          struct head_string bytes,
                                          struct head_outcome *out, struct pl_err *err)
{
    Plasmon__V1__ClientFrame *frame;
    plasmon_status_t status;
    uint64_t session;

    wire_arena_reset(&machine->arena);
    status =
        wire_decode_client_frame(&machine->arena, bytes.bytes, bytes.length, &frame, err);
    if (status == PLASMON_OK && frame->hello == NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the first frame of a session must carry a hello");
    }
    if (status == PLASMON_OK) {
        status = head_core_client_open(machine->core, frame->hello, &session, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    (void)head_machine_client_create(machine, session);
    out->session = session;
    return PLASMON_OK;
}

/* 1: take it over. 0: nothing more is to be done. */
static plasmon_status_t link_take(struct wire_link *link, const Plasmon__V1__Header *header,
                                  int *out_take, struct pl_err *err)
{
    if (header->ack > link->out_seq) {
        return pl_err_set(
            err, PLASMON_EMALFORMED, "frame %llu is acknowledged, but only %llu were sent",
            (unsigned long long)header->ack, (unsigned long long)link->out_seq);
    }
    *out_take = wire_link_receive(link, header->seq);
    if (*out_take < 0) {
        return pl_err_set(
            err, PLASMON_EMALFORMED, "frame %llu came after frame %llu: one is missing",
            (unsigned long long)header->seq, (unsigned long long)link->in_seq);
    }
    wire_link_acked(link, header->ack);
    return PLASMON_OK;
}

static uint64_t cpu_ns(const struct head_machine *machine)
{
    return machine->config.ops->cpu_ns != NULL
               ? machine->config.ops->cpu_ns(machine->config.user)
               : 0;
}

static plasmon_status_t client_take(struct head_machine *machine,
                                    struct head_machine_client *client,
                                    struct head_string bytes, struct pl_err *err)
{
    Plasmon__V1__ClientFrame *frame;
    plasmon_status_t status;
    uint64_t began;
    int take = 0;

    wire_arena_reset(&machine->arena);
    status =
        head_core_client_message(machine->core, client->peer.session, bytes.length, err);
    if (status == PLASMON_OK) {
        status = wire_decode_client_frame(&machine->arena, bytes.bytes, bytes.length,
                                          &frame, err);
    }
    if (status == PLASMON_OK && frame->hello != NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "a second hello on one stream");
    }
    if (status == PLASMON_OK && frame->header->session != client->peer.session &&
        frame->header->session != 0) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "the frame is of another session");
    }
    if (status == PLASMON_OK) {
        status = link_take(&client->peer.link, frame->header, &take, err);
    }
    if (status == PLASMON_OK && take != 0) {
        began  = cpu_ns(machine);
        status = head_core_client_frame(machine->core, client->peer.session, frame, err);
        machine->figures.core_ns += cpu_ns(machine) - began;
    }
    return status;
}

/* Rubbish: this session ends, and nobody else notices. */
plasmon_status_t head_machine_client_frame(struct head_machine *machine, uint64_t session,
                                           struct head_string frame,
                                           struct head_outcome *out, struct pl_err *err)
{
    struct head_machine_client *client = head_machine_client_of(machine, session);
    plasmon_status_t status;

    if (client == NULL) {
        return pl_err_set(err, PLASMON_ECLOSED, "the session has ended");
    }
    status = client_take(machine, client, frame, err);
    if (status != PLASMON_OK) {
        out->ended          = true;
        client->ended       = true;
        machine->some_ended = true;
    }
    return status;
}

plasmon_status_t head_machine_client_change(struct head_machine *machine,
                                            const struct head_input *input,
                                            struct pl_err *err)
{
    uint64_t session                   = input->numbers[0];
    struct head_machine_client *client = head_machine_client_of(machine, session);

    if (client == NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST, "the session is not known");
    }
    if (input->type == HEAD_INPUT_CLIENT_CLOSE) {
        client->ended       = true;
        machine->some_ended = true;
    } else if (input->type == HEAD_INPUT_CLIENT_LOST) {
        machine->now_ms        = pl_max_u64(machine->now_ms, input->numbers[1]);
        client->peer.connected = false;
        head_core_client_lost(machine->core, session, machine->now_ms);
    } else {
        client->peer.connected = true;
        wire_link_acked(&client->peer.link, input->numbers[1]);
        head_core_client_resumed(machine->core, session);
    }
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------ workers */

static void worker_free(struct head_machine_worker *worker)
{
    pl_list_remove(&worker->link);
    wire_link_finish(&worker->peer.link);
    pl_free(worker->host);
    pl_free(worker);
}

void head_machine_worker_forget(struct head_machine *machine,
                                struct head_machine_worker *worker, const char *why)
{
    uint32_t device = worker->device;

    worker_free(worker);
    machine->config.ops->worker_gone(machine->config.user, device, why);
}

struct head_machine_worker *head_machine_worker_create(struct head_machine *machine,
                                                       uint32_t device, const char *host,
                                                       uint32_t host_device)
{
    struct head_machine_worker *worker = head_alloc(sizeof(*worker));

    worker->device      = device;
    worker->host_device = host_device;
    worker->host        = head_strdup(host);
    wire_link_init(&worker->peer.link, machine->config.kept_bytes_max);
    pl_list_init(&worker->link);
    pl_list_add_tail(&machine->workers, &worker->link);
    return worker;
}

/* Why a peer that shows a session is not known here. EHEADLOST */
static plasmon_status_t session_unknown(const struct head_machine *machine,
                                        uint64_t its_epoch, struct pl_err *err)
{
    uint64_t epoch = machine->settings.epoch;

    return its_epoch != 0 && its_epoch != epoch
               ? pl_err_set(err, PLASMON_EHEADLOST,
                            "the head was started anew (epoch %016llx, before it was "
                            "%016llx) and does not know this worker: what was in the "
                            "cluster is lost; begin again",
                            (unsigned long long)epoch, (unsigned long long)its_epoch)
               : pl_err_set(err, PLASMON_EHEADLOST,
                            "the head has given up this worker, which was away for longer "
                            "than its lease: what it had is lost; begin again");
}

plasmon_status_t head_machine_worker_up(struct head_machine *machine,
                                        struct head_string bytes, struct head_outcome *out,
                                        struct pl_err *err)
{
    struct head_machine_worker *worker;
    const Plasmon__V1__WorkerHello *hello;
    Plasmon__V1__WorkerFrame *frame;
    plasmon_status_t status;
    uint32_t device;

    wire_arena_reset(&machine->arena);
    status =
        wire_decode_worker_frame(&machine->arena, bytes.bytes, bytes.length, &frame, err);
    if (status == PLASMON_OK && frame->hello == NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED,
                            "the first frame of a worker must carry a hello");
    }
    if (status != PLASMON_OK) {
        return status;
    }
    hello = frame->hello;
    if (head_machine_host_known(machine, hello->host) &&
        !head_machine_memory_known(machine, hello->host, hello->memory)) {
        return pl_err_set(
            err, PLASMON_EHEADLOST,
            "worker hello: device %u of node %.100s has memory %016llx, which "
            "is not what the store of that host has registered: it is left "
            "over from a store that is gone; end it",
            hello->host_device, hello->node, (unsigned long long)hello->memory);
    }
    worker = worker_at(machine, hello->host, hello->host_device);
    if (worker != NULL && hello->incarnation <= worker->over) {
        return pl_err_set(
            err, PLASMON_EEXIST,
            "worker hello: incarnation %u of device %u is over: its store has "
            "seen it end; stop this worker",
            hello->incarnation, worker->device);
    }
    out->resumed = worker != NULL && hello->resume_session != 0 &&
                   hello->resume_session == worker->peer.session &&
                   hello->incarnation == worker->incarnation && !worker->peer.overflown;
    if (hello->resume_session != 0 && !out->resumed) {
        return session_unknown(machine, frame->header->epoch, err);
    }
    status = head_core_worker_up(machine->core, hello, &device, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (worker == NULL) {
        worker =
            head_machine_worker_create(machine, device, hello->host, hello->host_device);
    }
    if (!out->resumed) {
        wire_link_finish(&worker->peer.link);
        wire_link_init(&worker->peer.link, machine->config.kept_bytes_max);
        worker->peer.session   = head_machine_session_new(machine);
        worker->peer.overflown = false;
    }
    wire_link_acked(&worker->peer.link, hello->resume_ack);
    worker->peer.connected = true;
    worker->incarnation    = hello->incarnation;
    out->device            = device;
    return PLASMON_OK;
}

plasmon_status_t head_machine_worker_frame(struct head_machine *machine, uint64_t device,
                                           struct head_string bytes,
                                           struct head_outcome *out, struct pl_err *err)
{
    struct head_machine_worker *worker =
        device < UINT32_MAX ? head_machine_worker_of(machine, (uint32_t)device) : NULL;
    Plasmon__V1__WorkerFrame *frame;
    plasmon_status_t status;
    uint64_t began;
    int take = 0;

    if (worker == NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST, "the device is gone");
    }
    wire_arena_reset(&machine->arena);
    status =
        wire_decode_worker_frame(&machine->arena, bytes.bytes, bytes.length, &frame, err);
    if (status == PLASMON_OK && frame->hello != NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "a second hello on one stream");
    }
    if (status == PLASMON_OK) {
        status = link_take(&worker->peer.link, frame->header, &take, err);
    }
    if (status != PLASMON_OK || take == 0) {
        return status;
    }
    began  = cpu_ns(machine);
    status = head_core_worker_frame(machine->core, worker->device, frame, err);
    machine->figures.core_ns += cpu_ns(machine) - began;
    if (status == PLASMON_OK && frame->stats != NULL) {
        out->answered    = frame->stats->request;
        worker->answered = frame->stats->request;
    }
    return status;
}

plasmon_status_t head_machine_worker_lost(struct head_machine *machine, uint64_t device,
                                          struct pl_err *err)
{
    struct head_machine_worker *worker =
        device < UINT32_MAX ? head_machine_worker_of(machine, (uint32_t)device) : NULL;

    if (worker == NULL) {
        return pl_err_set(err, PLASMON_EHEADLOST, "the device is gone");
    }
    worker->peer.connected = false;
    head_core_worker_lost(machine->core, worker->device);
    return PLASMON_OK;
}

plasmon_status_t head_machine_worker_down(struct head_machine *machine,
                                          const struct head_input *input,
                                          struct pl_err *err)
{
    const uint64_t *n = input->numbers;
    char *host        = head_string_copy(input->strings[0]);
    char *why         = head_string_copy(input->strings[1]);
    bool final        = n[2] != 0;
    struct head_machine_worker *worker =
        n[0] < UINT32_MAX ? worker_at(machine, host, n[0]) : NULL;

    (void)err;
    /* A newer incarnation may have said hello before the news of its predecessor's death came. */
    if (worker == NULL || worker->incarnation <= n[1]) {
        if (worker != NULL && final) {
            head_machine_worker_forget(machine, worker, why);
        } else if (worker != NULL) {
            worker->peer.connected = false;
            worker->over           = (uint32_t)n[1]; /* its hello may still be on its way */
        }
        head_core_worker_down(machine->core, host, (uint32_t)n[0], final,
                              (plasmon_status_t)(int32_t)n[3], why);
    }
    pl_free(host);
    pl_free(why);
    return PLASMON_OK;
}

void head_machine_peers_finish(struct head_machine *machine)
{
    while (!pl_list_empty(&machine->clients)) {
        client_free(machine,
                    pl_list_first(&machine->clients, struct head_machine_client, link));
    }
    while (!pl_list_empty(&machine->workers)) {
        worker_free(pl_list_first(&machine->workers, struct head_machine_worker, link));
    }
    head_machine_nodes_finish(machine);
}
