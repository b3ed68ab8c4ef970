/*
 * The head process: what head/main.c does around head_core. Sessions and workers have a link each; what the core puts out goes into
 * frames; a flush follows a little after input, so that things batch up as they do on a busy head.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    FLUSH_MAX_NS    = 8000,
    NOTICE_MAX_NS   = 200000, /* until a broken connection is noticed */
    LINK_KEPT_BYTES = 64 << 20,
};

static struct sim_head_session *session_find(struct sim *sim, uint64_t session)
{
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (session != 0 && sim->sessions[i].session == session) {
            return &sim->sessions[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------ ops of the core */

static void op_client_frame(void *user, uint64_t session, const uint8_t *body,
                            size_t length)
{
    struct sim *sim               = user;
    struct sim_head_session *peer = session_find(sim, session);

    if (peer != NULL) {
        peer->credit_told = head_core_client_credit(sim->head, session);
        sim_link_send(sim, &peer->link, &peer->client->from_head, session,
                      peer->credit_told, body, length);
    }
}

static void op_worker_command(void *user, uint32_t device, const uint8_t *body,
                              size_t length)
{
    struct sim *sim           = user;
    struct sim_worker *worker = sim_worker_of(sim, device);
    struct sim_head_worker *peer;

    PL_CHECK(worker != NULL);
    peer = &sim->head_workers[worker->host_device];
    sim_link_send(sim, &peer->link, &worker->from_head, peer->session, 0, body, length);
}

static void op_fence(void *user, uint32_t device)
{
    struct sim *sim           = user;
    struct sim_worker *worker = sim_worker_of(sim, device);

    sim_limits_order(worker, sim->head_workers[worker->host_device].incarnation);
}

static void op_session_ended(void *user, uint64_t session)
{
    struct sim_head_session *peer = session_find(user, session);

    if (peer != NULL) {
        peer->ended = true;
    }
}

static uint64_t op_random64(void *user)
{
    return sim_random(user);
}

static const struct head_ops head_ops = {
    .client_frame   = op_client_frame,
    .worker_command = op_worker_command,
    .fence          = op_fence,
    .session_ended  = op_session_ended,
    .random64       = op_random64,
    .spill          = sim_spill_op,
};

/* ------------------------------------------------------------------------------------------ output */

static void head_flush(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)arg;
    (void)data;
    sim->head_flush_pending = false;
    head_core_flush(sim->head);
    /* Acks and credit that nothing else carried. */
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct sim_head_session *peer = &sim->sessions[i];

        if (peer->session != 0 && peer->connected && !peer->ended) {
            uint64_t credit = head_core_client_credit(sim->head, peer->session);

            if (wire_link_owes_ack(&peer->link) || credit > peer->credit_told) {
                sim_link_send_plain(sim, &peer->link, &peer->client->from_head,
                                    peer->session, credit, NULL, 0);
            }
            peer->credit_told = credit;
        }
    }
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        struct sim_head_worker *peer = &sim->head_workers[i];

        if (peer->connected && wire_link_owes_ack(&peer->link)) {
            sim_link_send_plain(sim, &peer->link, &sim->workers[i].from_head, peer->session,
                                0, NULL, 0);
        }
    }
}

void sim_head_flush_soon(struct sim *sim)
{
    if (!sim->head_flush_pending) {
        sim->head_flush_pending = true;
        sim_after(sim, sim_below(sim, FLUSH_MAX_NS), head_flush, sim, 0, NULL);
    }
}

/* ------------------------------------------------------------------------------------------ clients */

static void send_welcome(struct sim_client *client, struct sim_head_session *peer)
{
    struct sim *sim              = client->sim;
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Welcome welcome = PLASMON__V1__WELCOME__INIT;
    uint8_t *body;
    size_t length;

    PL_CHECK(head_core_client_welcome(sim->head, peer->session, &sim->head_arena,
                                      &welcome) == PLASMON_OK);
    welcome.resumed_seq = peer->link.in_seq;
    frame.welcome       = &welcome;
    length              = plasmon__v1__head_frame__get_packed_size(&frame);
    body                = sim_alloc(length + 1);
    (void)plasmon__v1__head_frame__pack(&frame, body);
    sim_link_send_plain(sim, &peer->link, &client->from_head, peer->session,
                        head_core_client_credit(sim->head, peer->session), body, length);
    pl_free(body);
}

static void resend_client(void *user, const uint8_t *bytes, size_t length)
{
    struct sim_client *client = user;

    sim_pipe_send(&client->from_head, bytes, length);
}

static void client_hello(struct sim_client *client, const Plasmon__V1__Hello *hello)
{
    struct sim *sim               = client->sim;
    struct sim_head_session *peer = &sim->sessions[client->index];
    struct pl_err err             = {0};

    sim_pipe_open(
        &client->from_head); /* what was sent before belongs to the old connection */
    if (hello->resume_session != 0) {
        if (peer->session != hello->resume_session ||
            !head_core_client_known(sim->head, hello->resume_session)) {
            sim_fail(sim, "client %u: its session is gone within its lease", client->index);
            return;
        }
        head_core_client_resumed(sim->head, peer->session);
        peer->connected = true;
        send_welcome(client, peer);
        wire_link_resend(&peer->link, hello->resume_ack, resend_client, client);
        return;
    }
    if (peer->session !=
        0) { /* the welcome was lost: this client never learned of its session */
        head_core_client_close(sim->head, peer->session);
        wire_link_finish(&peer->link);
    }
    *peer = (struct sim_head_session){.client = client};
    wire_link_init(&peer->link, LINK_KEPT_BYTES);
    if (head_core_client_open(sim->head, hello, &peer->session, &err) != PLASMON_OK) {
        sim_fail(sim, "client %u is refused: %s", client->index, err.text);
        return;
    }
    peer->connected = true;
    send_welcome(client, peer);
}

void sim_head_from_client(void *user, const uint8_t *data, size_t length)
{
    struct sim_client *client       = user;
    struct sim *sim                 = client->sim;
    struct sim_head_session *peer   = &sim->sessions[client->index];
    Plasmon__V1__ClientFrame *frame = NULL;
    struct pl_err err               = {0};
    int take;

    wire_arena_reset(&sim->head_arena);
    if (wire_decode_client_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "the head cannot decode a frame of client %u: %s", client->index,
                 err.text);
        return;
    }
    sim_head_flush_soon(sim);
    if (frame->hello != NULL) {
        client_hello(client, frame->hello);
        return;
    }
    take = wire_link_receive(&peer->link, frame->header->seq);
    if (take < 0) {
        sim_fail(sim, "client %u: frame %llu comes after %llu", client->index,
                 (unsigned long long)frame->header->seq,
                 (unsigned long long)peer->link.in_seq);
        return;
    }
    wire_link_acked(&peer->link, frame->header->ack);
    if (take == 0 || frame->header->seq == 0 || peer->ended) {
        return;
    }
    if (head_core_client_frame(sim->head, peer->session, frame, &err) != PLASMON_OK) {
        sim_fail(sim, "the head closes client %u: %s", client->index, err.text);
    }
}

static void client_noticed(void *user, uint64_t arg, void *data)
{
    struct sim_client *client     = user;
    struct sim *sim               = client->sim;
    struct sim_head_session *peer = &sim->sessions[client->index];

    (void)data;
    if (arg == client->to_head.life && peer->session != 0) {
        peer->connected = false;
        head_core_client_lost(sim->head, peer->session, sim->now_ns / 1000000);
        sim_head_flush_soon(sim);
    }
}

void sim_head_client_lost(struct sim_client *client)
{
    sim_after(client->sim, sim_below(client->sim, NOTICE_MAX_NS), client_noticed, client,
              client->to_head.life, NULL);
}

/* ------------------------------------------------------------------------------------------ workers */

static void resend_worker(void *user, const uint8_t *bytes, size_t length)
{
    struct sim_worker *worker = user;

    sim_pipe_send(&worker->from_head, bytes, length);
}

static void worker_hello(struct sim_worker *worker, const Plasmon__V1__WorkerHello *hello)
{
    struct sim *sim                    = worker->sim;
    struct sim_head_worker *peer       = &sim->head_workers[worker->host_device];
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__WorkerWelcome welcome = PLASMON__V1__WORKER_WELCOME__INIT;
    bool resumed = peer->known && peer->incarnation == hello->incarnation &&
                   hello->resume_session == peer->session && peer->session != 0;
    struct pl_err err = {0};
    uint32_t device;
    uint8_t *body;
    size_t length;

    sim_pipe_open(
        &worker->from_head); /* what was sent before belongs to the old connection */
    if (head_core_worker_up(sim->head, hello, &device, &err) != PLASMON_OK) {
        sim_fail(sim, "device %u is refused: %s", worker->host_device, err.text);
        return;
    }
    if (!resumed) { /* only now, as the head does it: nothing may have gone out yet */
        wire_link_finish(&peer->link);
        wire_link_init(&peer->link, LINK_KEPT_BYTES);
        peer->session = sim_random(sim) | 1;
    }
    peer->known       = true;
    peer->connected   = true;
    peer->incarnation = hello->incarnation;
    if (worker->device != UINT32_MAX && worker->device != device) {
        sim_fail(sim, "device %u changed its index from %u to %u", worker->host_device,
                 worker->device, device);
    }
    worker->device  = device; /* the head's side needs it before the welcome arrives */
    welcome.epoch   = 1;
    welcome.session = peer->session;
    welcome.device  = device;
    welcome.host_device_count = sim->config.devices;
    welcome.resumed_seq       = peer->link.in_seq;
    command.welcome           = &welcome;
    length                    = plasmon__v1__worker_command__get_packed_size(&command);
    body                      = sim_alloc(length + 1);
    (void)plasmon__v1__worker_command__pack(&command, body);
    sim_link_send_plain(sim, &peer->link, &worker->from_head, peer->session, 0, body,
                        length);
    pl_free(body);
    if (resumed) {
        wire_link_resend(&peer->link, hello->resume_ack, resend_worker, worker);
    }
}

void sim_head_from_worker(void *user, const uint8_t *data, size_t length)
{
    struct sim_worker *worker       = user;
    struct sim *sim                 = worker->sim;
    struct sim_head_worker *peer    = &sim->head_workers[worker->host_device];
    Plasmon__V1__WorkerFrame *frame = NULL;
    struct pl_err err               = {0};
    int take;

    wire_arena_reset(&sim->head_arena);
    if (wire_decode_worker_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "the head cannot decode a frame of device %u: %s",
                 worker->host_device, err.text);
        return;
    }
    sim_head_flush_soon(sim);
    if (frame->hello != NULL) {
        worker_hello(worker, frame->hello);
        return;
    }
    take = wire_link_receive(&peer->link, frame->header->seq);
    if (take < 0) {
        sim_fail(sim, "device %u: frame %llu comes after %llu", worker->host_device,
                 (unsigned long long)frame->header->seq,
                 (unsigned long long)peer->link.in_seq);
        return;
    }
    wire_link_acked(&peer->link, frame->header->ack);
    if (take == 0) {
        return;
    }
    if (head_core_worker_frame(sim->head, worker->device, frame, &err) != PLASMON_OK) {
        sim_fail(sim, "the head closes device %u: %s", worker->host_device, err.text);
    }
}

static void worker_noticed(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (arg == worker->to_head.life && worker->device != UINT32_MAX) {
        worker->sim->head_workers[worker->host_device].connected = false;
        head_core_worker_lost(worker->sim->head, worker->device);
        sim_head_flush_soon(worker->sim);
    }
}

void sim_head_worker_lost(struct sim_worker *worker)
{
    sim_after(worker->sim, sim_below(worker->sim, NOTICE_MAX_NS), worker_noticed, worker,
              worker->to_head.life, NULL);
}

static void worker_downed(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;

    (void)data;
    /* The store names the incarnation that died; a newer one has said hello when this comes too late. */
    if (sim->head_workers[worker->host_device].incarnation == arg) {
        sim->head_workers[worker->host_device].connected = false;
        head_core_worker_down(sim->head, "simhost", worker->host_device, false, PLASMON_OK,
                              "it crashed");
        sim_head_flush_soon(sim);
    }
}

void sim_head_worker_down(struct sim_worker *worker, const char *why)
{
    (void)why;
    sim_after(worker->sim, sim_below(worker->sim, NOTICE_MAX_NS), worker_downed, worker,
              worker->incarnation, NULL);
}

/* ------------------------------------------------------------------------------------------ life */

void sim_head_start(struct sim *sim)
{
    struct head_config config = {
        .ops         = &head_ops,
        .user        = sim,
        .policy      = sim->config.policy,
        .transfer    = sim->config.transfer,
        .epoch       = 1,
        .window      = sim->config.window,
        .retries     = sim->config.retries,
        .credit      = sim->config.credit,
        .chain_bytes = sim->config.chain_bytes,
    };

    PL_CHECK(head_core_create(&config, &sim->head) == PLASMON_OK);
    PL_CHECK(wire_arena_init(&sim->head_arena, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
    for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        wire_link_init(&sim->head_workers[i].link, LINK_KEPT_BYTES);
    }
    head_core_tick(sim->head, 1);
    if (sim->config.spill_memory != 0) {
        head_core_spill_up(
            sim->head, "simhost",
            &(struct head_spill_config){.memory_bytes = sim->config.spill_memory,
                                        .file_bytes   = sim->config.spill_files});
    }
}

void sim_head_finish(struct sim *sim)
{
    head_core_destroy(sim->head);
    wire_arena_finish(&sim->head_arena);
    for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        wire_link_finish(&sim->head_workers[i].link);
    }
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        wire_link_finish(&sim->sessions[i].link);
    }
}
