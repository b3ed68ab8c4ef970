/*
 * The head process: what head/serve*.c does around head_machine. Bytes that arrive become inputs; a
 * flush follows a little after input, so that things batch up as they do on a busy head. What is
 * put out goes through sim_journal.c.
 */
#include "head/core_int.h"
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum {
    FLUSH_MAX_NS    = 8000,
    NOTICE_MAX_NS   = 200000,  /* until a broken connection is noticed */
    LOOK_AGAIN_NS   = 1000000, /* a head that stands still */
    LINK_KEPT_BYTES = 64 << 20,
    LEASE_MS        = 10000,
};

/* ------------------------------------------------------------------- ops of the machine */

static void op_client_send(void *user, uint64_t session, const uint8_t *bytes,
                           size_t length)
{
    struct sim *sim = user;

    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct sim_client *client = &sim->clients[i];

        if (sim->old_head.speaks && sim->old_head.sessions[i] == session) {
            sim_old_head_put(sim, &client->to_head, &client->from_head, bytes, length);
        } else if (!sim->old_head.speaks && session != 0 &&
                   sim->head_process.sessions[i] == session) {
            sim_journal_put(sim, &client->from_head, bytes, length);
        }
    }
}

static void op_worker_send(void *user, uint32_t device, const uint8_t *bytes, size_t length)
{
    struct sim *sim           = user;
    struct sim_worker *worker = sim_worker_of(sim, device);

    if (sim->head_process.replaying) {
        return; /* perhaps to a device whose number has another one by now */
    }
    if (sim->old_head.speaks) {
        /* Or it has joined anew since, with the next head, as another device. */
        if (worker != NULL) {
            sim_old_head_put(sim, &worker->to_head, &worker->from_head, bytes, length);
        }
    } else {
        PL_CHECK(worker != NULL);
        sim_journal_put(sim, &worker->from_head, bytes, length);
    }
}

static void op_fence(void *user, const char *host, uint32_t host_device,
                     uint32_t incarnation)
{
    struct sim *sim = user;

    if (!sim->old_head.speaks) {
        sim_journal_fence(sim, sim_worker_at(sim, host, host_device), incarnation);
    }
}

/* A session is given up when its client has been away for a lease, and not before. */
static void check_lease(struct sim_client *client)
{
    struct sim *sim  = client->sim;
    uint64_t away_ns = sim->now_ns - client->lost_ns;

    if (client->library != NULL && client->lost_ns != 0 &&
        away_ns + 2000000 < LEASE_MS * UINT64_C(1000000)) {
        sim_fail(sim, "the session of client %u is given up after %llu ms", client->index,
                 (unsigned long long)away_ns / 1000000);
    }
}

static void op_session_ended(void *user, uint64_t session)
{
    struct sim *sim = user;

    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct sim_client *client = &sim->clients[i];

        if (sim->head_process.sessions[i] != session || sim->old_head.speaks) {
            continue;
        }
        sim->head_process.sessions[i] = 0;
        if (client->sim != NULL) {
            check_lease(client);
        }
        if (client->library != NULL) {
            client->library->closed(client, PLASMON_OK, "bye");
        }
    }
}

static void op_worker_gone(void *user, uint32_t device, const char *why)
{
    struct sim *sim = user;

    if (!sim->head_process.replaying && !sim->old_head.speaks) {
        sim_device_forgotten(sim, device, why);
    }
}

static void op_node_gone(void *user, const char *host, const char *why)
{
    struct sim *sim = user;

    if (!sim->head_process.replaying && !sim->old_head.speaks) {
        sim_host_given_up(sim, host, why);
    }
}

static uint64_t op_random64(void *user)
{
    return sim_random(user);
}

static void op_spill(void *user, const char *host, const struct head_spill_op *op)
{
    struct sim *sim = user;

    PL_CHECK(strcmp(host, "simhost") == 0);
    if (!sim->old_head.speaks) {
        sim_journal_spill(sim, op);
    }
}

static const struct head_machine_ops machine_ops = {
    .client_send   = op_client_send,
    .worker_send   = op_worker_send,
    .fence         = op_fence,
    .session_ended = op_session_ended,
    .worker_gone   = op_worker_gone,
    .node_gone     = op_node_gone,
    .random64      = op_random64,
    .spill         = op_spill,
};

static plasmon_status_t tell(struct sim *sim, const struct head_input *input,
                             struct head_outcome *out, struct pl_err *err)
{
    plasmon_status_t status =
        head_machine_input(sim->head_process.machine, input, out, err);

    sim_head_flush_soon(sim);
    return status;
}

/* ------------------------------------------------------------------------------- output */

static void head_flush(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)data;
    if (arg != sim->head_process.life || sim->head_process.stopped) {
        return;
    }
    sim->head_process.flush_pending = false;
    head_machine_flush(sim->head_process.machine);
    head_machine_acks(sim->head_process.machine, true, 1);
    sim_journal_flushed(sim);
}

void sim_head_flush_soon(struct sim *sim)
{
    if (!sim->head_process.flush_pending) {
        sim->head_process.flush_pending = true;
        sim_after(sim, sim_below(sim, FLUSH_MAX_NS), head_flush, sim,
                  sim->head_process.life, NULL);
    }
}

void sim_head_tick(struct sim *sim)
{
    if (!sim_head_down(sim)) {
        head_machine_tick(sim->head_process.machine, sim->now_ns / 1000000 + 1);
        sim_head_flush_soon(sim);
    }
}

const char *sim_head_lacks(const struct sim_client *client, uint64_t ref)
{
    struct sim *sim = client->sim;
    struct head_client *asking =
        pl_map_get(&sim->head->sessions, sim->head_process.sessions[client->index]);
    struct head_failure *failure;
    struct head_ref *found = NULL;
    struct pl_err err      = {0};

    if (asking == NULL || head_client_ref_get(asking, ref, 0, &found, &err) != PLASMON_OK) {
        return "it is not known";
    }
    failure = head_array_failure(found->array, &found->array->extent);
    return failure != NULL                  ? failure->text
           : head_array_whole(found->array) ? NULL
                                            : "some of it is nowhere";
}

/* ------------------------------------------------------------------------------ clients */

/* Who has been welcomed before under another session: nobody will ever ask for that again. */
static void session_leave(struct sim_client *client, uint64_t session)
{
    struct sim *sim         = client->sim;
    struct head_input input = {.type    = client->library != NULL ? HEAD_INPUT_CLIENT_LOST
                                                                  : HEAD_INPUT_CLIENT_CLOSE,
                               .numbers = {session, sim->now_ns / 1000000}};
    struct pl_err err       = {0};

    if (head_machine_client_known(sim->head_process.machine, session)) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    }
}

static void client_refused(struct sim_client *client, const struct pl_err *err)
{
    struct sim *sim = client->sim;

    if (client->library == NULL || err->status != PLASMON_EHEADLOST) {
        sim_fail(sim, "client %u is refused: %s", client->index, err->text);
        return;
    }
    sim->head_process.sessions[client->index] = 0;
    sim_cover(sim, SIM_CELL_CLIENT_EXPIRED);
    sim_pipe_break(&client->to_head);
    sim_pipe_break(&client->from_head);
    client->library->closed(client, PLASMON_EHEADLOST, err->text);
}

static void cover_resumed(struct sim_client *client)
{
    struct sim *sim = client->sim;

    sim_cover(sim, SIM_CELL_CLIENT_RESUMED);
    if (client->head_crashes != sim->head_process.crashes) {
        sim_cover(sim, SIM_CELL_CLIENT_NEW_HEAD);
    }
}

static void client_hello(struct sim_client *client, const Plasmon__V1__Hello *hello,
                         struct head_string bytes)
{
    struct sim *sim             = client->sim;
    struct head_machine *head   = sim->head_process.machine;
    uint64_t *session           = &sim->head_process.sessions[client->index];
    struct head_input input     = {.type = HEAD_INPUT_CLIENT_OPEN, .strings = {bytes}};
    struct head_outcome outcome = {0};
    struct pl_err err           = {0};

    if (client->cut.believed) {
        sim_cover(sim, SIM_CELL_HALF_OPEN);
    }
    client->cut.believed = true;
    /* what was sent before belongs to the old connection */
    sim_pipe_open(&client->from_head);
    if (hello->resume_session != 0) {
        input    = (struct head_input){.type    = HEAD_INPUT_CLIENT_RESUME,
                                       .numbers = {hello->resume_session, hello->resume_ack}};
        *session = hello->resume_session;
    } else {
        session_leave(client, *session); /* the welcome was lost */
    }
    if (tell(sim, &input, &outcome, &err) != PLASMON_OK) {
        client_refused(client, &err);
        return;
    }
    if (hello->resume_session == 0) {
        *session = outcome.session;
    } else {
        cover_resumed(client);
    }
    client->lost_ns      = 0;
    client->head_crashes = sim->head_process.crashes;
    head_machine_client_welcome(head, *session, hello->host);
}

void sim_head_from_client(void *user, const uint8_t *data, size_t length)
{
    struct sim_client *client = user;
    struct sim *sim           = client->sim;
    uint64_t session          = sim->head_process.sessions[client->index];
    struct head_input input   = {
          .type = HEAD_INPUT_CLIENT_FRAME, .numbers = {session}, .strings = {{data, length}}};
    Plasmon__V1__ClientFrame *frame = NULL;
    struct pl_err err               = {0};

    if (client->to_head.old) {
        sim_old_head_client(client, data, length);
        return;
    }
    if (sim_head_down(sim)) {
        sim_client_break(client); /* nobody listens there */
        return;
    }
    wire_arena_reset(&sim->head_arena);
    if (wire_decode_client_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "the head cannot decode a frame of client %u: %s", client->index,
                 err.text);
        return;
    }
    if (frame->hello != NULL) {
        client_hello(client, frame->hello, input.strings[0]);
        return;
    }
    if (session != 0 && tell(sim, &input, NULL, &err) != PLASMON_OK) {
        sim_fail(sim, "the head closes client %u: %s", client->index, err.text);
    }
}

void sim_head_client_silent(struct sim_client *client)
{
    struct sim *sim         = client->sim;
    struct head_input input = {
        .type    = HEAD_INPUT_CLIENT_LOST,
        .numbers = {sim->head_process.sessions[client->index], sim->now_ns / 1000000}};
    struct pl_err err;

    client->cut.believed = false;
    client->lost_ns      = sim->now_ns;
    if (head_machine_client_known(sim->head_process.machine, input.numbers[0])) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    }
}

void sim_head_client_forget(struct sim_client *client)
{
    if (!sim_head_down(client->sim)) { /* else the next one finds all connections gone */
        sim_head_client_silent(client);
    }
    client->sim->head_process.sessions[client->index] = 0;
    client->lost_ns                                   = 0;
    client->cut.believed                              = false;
}

static void client_noticed(void *user, uint64_t arg, void *data)
{
    struct sim_client *client = user;

    (void)data;
    if (arg == client->to_head.life && client->sim->head_process.stopped) {
        sim_after(client->sim, LOOK_AGAIN_NS, client_noticed, client, arg, NULL);
    } else if (arg == client->to_head.life && !sim_head_down(client->sim) &&
               !sim_cut_hides(&client->cut)) {
        sim_head_client_silent(client);
    }
}

void sim_head_client_lost(struct sim_client *client)
{
    sim_after(client->sim, sim_below(client->sim, NOTICE_MAX_NS), client_noticed, client,
              client->to_head.life, NULL);
}

/* ------------------------------------------------------------------------------ workers */

static void worker_hello(struct sim_worker *worker, const struct head_input *input)
{
    struct sim *sim             = worker->sim;
    struct head_outcome outcome = {0};
    struct pl_err err           = {0};

    if (worker->cut.believed) {
        sim_cover(sim, SIM_CELL_HALF_OPEN);
    }
    worker->cut.believed = true;
    worker->greeted      = worker->incarnation;
    /* what was sent before belongs to the old connection */
    sim_pipe_open(&worker->from_head);
    if (tell(sim, input, &outcome, &err) != PLASMON_OK) {
        if (!sim_worker_refused(worker, &err)) {
            sim_fail(sim, "device %u is refused: %s", worker->host_device, err.text);
        }
        return;
    }
    if (worker->device != UINT32_MAX && worker->device != outcome.device &&
        sim_node_of(worker)->give_ups == 0) {
        sim_fail(sim, "device %u changed its index from %u to %u", worker->host_device,
                 worker->device, outcome.device);
    }
    /* the head's side needs it before the welcome arrives */
    worker->device = outcome.device;
    PL_CHECK(outcome.device < SIM_NUMBERS_MAX);
    sim->owner_of[outcome.device] = worker->host_device;
    head_machine_worker_welcome(sim->head_process.machine, outcome.device);
}

void sim_head_from_worker(void *user, const uint8_t *data, size_t length)
{
    struct sim_worker *worker       = user;
    struct sim *sim                 = worker->sim;
    struct head_input input         = {.type    = HEAD_INPUT_WORKER_FRAME,
                                       .numbers = {worker->device},
                                       .strings = {{data, length}}};
    Plasmon__V1__WorkerFrame *frame = NULL;
    struct pl_err err               = {0};

    if (worker->to_head.old) {
        sim_old_head_worker(worker, data, length);
        return;
    }
    if (sim_head_down(sim)) {
        sim_worker_break(worker);
        return;
    }
    wire_arena_reset(&sim->head_arena);
    if (wire_decode_worker_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "the head cannot decode a frame of device %u: %s",
                 worker->host_device, err.text);
        return;
    }
    if (frame->hello != NULL && sim->config.stores && frame->hello->resume_session == 0 &&
        !head_machine_memory_known(sim->head_process.machine, frame->hello->host,
                                   frame->hello->memory)) {
        sim_worker_break(worker); /* it waits for its store; here it asks again */
    } else if (frame->hello != NULL) {
        input =
            (struct head_input){.type = HEAD_INPUT_WORKER_UP, .strings = {{data, length}}};
        worker_hello(worker, &input);
    } else if (tell(sim, &input, NULL, &err) != PLASMON_OK &&
               !sim_worker_refused(worker, &err)) {
        sim_fail(sim, "the head closes device %u: %s", worker->host_device, err.text);
    }
}

void sim_head_worker_silent(struct sim_worker *worker)
{
    struct head_input input = {.type = HEAD_INPUT_WORKER_LOST, .numbers = {worker->device}};
    struct pl_err err;

    worker->cut.believed = false;
    if (worker->device != UINT32_MAX) {
        PL_CHECK(tell(worker->sim, &input, NULL, &err) == PLASMON_OK || worker->gone ||
                 sim_node_of(worker)->give_ups > 0);
    }
}

static void worker_noticed(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;

    (void)data;
    if (arg == worker->to_head.life && worker->sim->head_process.stopped) {
        sim_after(worker->sim, LOOK_AGAIN_NS, worker_noticed, worker, arg, NULL);
    } else if (arg == worker->to_head.life && !sim_head_down(worker->sim) &&
               !sim_cut_hides(&worker->cut)) {
        sim_head_worker_silent(worker);
    }
}

void sim_head_late_hello(struct sim_worker *worker, const uint8_t *data, size_t length)
{
    struct sim *sim         = worker->sim;
    struct head_input input = {.type = HEAD_INPUT_WORKER_UP, .strings = {{data, length}}};
    Plasmon__V1__WorkerFrame *frame = NULL;
    struct pl_err err               = {0};
    struct head_outcome outcome;
    uint32_t incarnation;

    wire_arena_reset(&sim->head_arena);
    if (wire_decode_worker_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "a late frame of device %u is broken: %s", worker->host_device,
                 err.text);
        return;
    }
    if (frame->hello == NULL || frame->hello->incarnation >= worker->greeted) {
        return; /* of a connection that has been replaced; or nobody is there yet to take its place */
    }
    incarnation = frame->hello->incarnation;
    if (tell(sim, &input, &outcome, &err) == PLASMON_OK) {
        sim_fail(sim,
                 "the head welcomes incarnation %u of device %u, which is dead; %u lives",
                 incarnation, worker->host_device, worker->greeted);
    } else {
        sim_cover(sim, SIM_CELL_LATE_HELLO);
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
    struct head_input input   = {
          .type    = HEAD_INPUT_WORKER_DOWN,
          .numbers = {worker->local, arg},
          .strings = {head_string(sim_worker_host(worker)), head_string("it crashed")}};
    struct pl_err err;

    (void)data;
    /* The store names the incarnation that died; a newer one has said hello when this comes too late. */
    if (worker->greeted > arg) {
        sim_cover(sim, SIM_CELL_LATE_DOWN);
    }
    if (!sim_head_down(sim)) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    } else { /* the store says it again */
        sim_after(sim, NOTICE_MAX_NS, worker_downed, worker, arg, NULL);
    }
}

void sim_head_worker_down(struct sim_worker *worker, uint32_t incarnation)
{
    sim_after(worker->sim, sim_below(worker->sim, NOTICE_MAX_NS), worker_downed, worker,
              incarnation, NULL);
}

/*
 * The store writes the words of the dead worker before it tells; who waits for them goes on with
 * what is there.
 */
static void worker_released(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;

    (void)arg;
    (void)data;
    store_timeline_release(worker->timeline);
    sim_numbers_refresh(sim);
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        sim_worker_doorbell(&sim->workers[i]);
    }
    sim_streams_kick(sim);
}

static void worker_given_up(void *user, uint64_t arg, void *data)
{
    struct sim_worker *worker = user;
    struct sim *sim           = worker->sim;
    struct head_input input   = {
          .type    = HEAD_INPUT_WORKER_DOWN,
          .numbers = {worker->local, worker->incarnation, true},
          .strings = {head_string(sim_worker_host(worker)), head_string("it is gone")}};
    struct pl_err err;

    (void)data;
    if (!sim_head_down(sim)) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    } else { /* the store says it again */
        sim_after(sim, NOTICE_MAX_NS, worker_given_up, worker, arg, NULL);
    }
}

void sim_head_worker_gone(struct sim_worker *worker)
{
    struct sim *sim = worker->sim;

    sim_after(sim, sim_below(sim, NOTICE_MAX_NS), worker_released, worker, 0, NULL);
    sim_after(sim, sim_below(sim, NOTICE_MAX_NS), worker_given_up, worker, 0, NULL);
}

bool sim_head_knows_gone(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->config.devices; i++) {
        const struct head_device *device =
            head_device_at(sim->head, sim->workers[i].device);

        if (sim->workers[i].gone && device != NULL && !device->gone) {
            return false;
        }
    }
    return true;
}

void sim_head_drain(struct sim *sim, uint64_t deadline_ms)
{
    struct head_input input = {.type    = HEAD_INPUT_DRAIN,
                               .numbers = {deadline_ms},
                               .strings = {head_string("simhost2")}};
    struct pl_err err       = {0};

    PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    sim_head_flush_soon(sim);
}

bool sim_head_drain_over(struct sim *sim, bool *out_done)
{
    struct head_drain_report report;
    struct pl_err err = {0};

    if (sim_head_down(sim) ||
        head_core_drain_report(sim->head, "simhost2", &report, &err) != PLASMON_OK) {
        return false;
    }
    *out_done = report.done;
    return report.done || report.over;
}

/* ---------------------------------------------------------------------------- the store */

static void node_send(struct sim_node *node, Plasmon__V1__NodeCommand *command,
                      bool numbered)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    size_t length;
    uint8_t *bytes;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = SIM_EPOCH;
    header.session  = node->head_session;
    header.seq      = numbered ? ++node->head_out_seq : 0;
    header.ack      = node->head_in_seq;
    command->header = &header;
    length          = plasmon__v1__node_command__get_packed_size(command);
    bytes           = sim_alloc(length + 1);
    (void)plasmon__v1__node_command__pack(command, bytes); /* its size was just computed */
    sim_journal_put(node->sim, &node->from_head, bytes, length);
    pl_free(bytes);
}

static void node_hello(struct sim_node *node, struct head_string bytes)
{
    struct sim *sim                  = node->sim;
    Plasmon__V1__NodeCommand command = PLASMON__V1__NODE_COMMAND__INIT;
    Plasmon__V1__NodeWelcome welcome = PLASMON__V1__NODE_WELCOME__INIT;
    struct head_input input          = {.type = HEAD_INPUT_NODE_UP, .strings = {bytes}};
    struct head_outcome outcome      = {0};
    struct pl_err err                = {0};

    sim_pipe_open(&node->from_head);
    if (tell(sim, &input, &outcome, &err) != PLASMON_OK) {
        sim_fail(sim, "the store is refused: %s", err.text);
        return;
    }
    if (outcome.resumed) {
        sim_cover(sim, SIM_CELL_STORE_RESUMED);
    }
    node->silent_ns    = 0;
    node->cut.believed = true;
    node->head_session = outcome.session;
    node->head_out_seq = node->head_in_seq = 0;
    welcome.epoch                          = SIM_EPOCH;
    welcome.cluster                        = (char *)(uintptr_t) "sim";
    command.welcome                        = &welcome;
    node_send(node, &command, false);
}

static void node_told(struct sim_node *node, const Plasmon__V1__WorkerDown *down)
{
    struct sim *sim         = node->sim;
    struct sim_worker *who  = &sim->workers[node->first + down->host_device];
    struct head_input input = {
        .type    = HEAD_INPUT_WORKER_DOWN,
        .numbers = {down->host_device, down->incarnation, down->quarantined != 0,
                    (uint32_t)down->status},
        .strings = {head_string(sim_worker_host(who)), head_string(down->text)}};
    struct pl_err err;

    if (node->told[down->host_device] >= down->incarnation) {
        sim_cover(sim, SIM_CELL_STORE_TOLD_TWICE);
    }
    if (who->greeted > down->incarnation) {
        sim_cover(sim, SIM_CELL_LATE_DOWN);
    }
    node->told[down->host_device] =
        (uint32_t)pl_max_u64(node->told[down->host_device], down->incarnation);
    PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
}

static void node_frame(struct sim_node *node, const Plasmon__V1__NodeFrame *frame)
{
    Plasmon__V1__NodeCommand ack = PLASMON__V1__NODE_COMMAND__INIT;

    if (frame->header->seq == 0 || frame->header->seq <= node->head_in_seq) {
        return;
    }
    node->head_in_seq = frame->header->seq;
    for (size_t i = 0; i < frame->n_down; i++) {
        node_told(node, frame->down[i]);
    }
    node_send(node, &ack, false);
}

void sim_head_from_node(void *user, const uint8_t *data, size_t length)
{
    struct sim_node *node         = user;
    struct sim *sim               = node->sim;
    Plasmon__V1__NodeFrame *frame = NULL;
    struct pl_err err             = {0};

    if (node->to_head.old) {
        sim_old_head_node(node);
        return;
    }
    if (sim_head_down(sim)) {
        sim_node_break(node);
        return;
    }
    wire_arena_reset(&sim->head_arena);
    if (wire_decode_node_frame(&sim->head_arena, data, length, &frame, &err) !=
        PLASMON_OK) {
        sim_fail(sim, "the head cannot decode a frame of the store: %s", err.text);
    } else if (frame->hello != NULL) {
        node_hello(node, (struct head_string){data, length});
    } else {
        node_frame(node, frame);
    }
}

void sim_head_node_silent(struct sim_node *node)
{
    struct sim *sim         = node->sim;
    struct head_input input = {.type    = HEAD_INPUT_NODE_LOST,
                               .numbers = {sim->now_ns / 1000000},
                               .strings = {head_string(node->name)}};
    struct pl_err err;

    node->cut.believed = false;
    node->silent_ns    = sim->now_ns;
    if (head_machine_host_known(sim->head_process.machine, node->name)) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    }
}

/* --------------------------------------------------------------------------------- life */

void sim_head_machine(struct sim *sim, struct head_machine **out_machine)
{
    struct head_machine_config config = {.ops            = &machine_ops,
                                         .user           = sim,
                                         .record         = sim->config.journal,
                                         .digest         = sim->config.journal,
                                         .kept_bytes_max = LINK_KEPT_BYTES};

    PL_CHECK(head_machine_create(&config, out_machine) == PLASMON_OK);
}

/* The store says hello. */
void sim_head_spill_up(struct sim *sim)
{
    struct head_input input = {.type    = HEAD_INPUT_SPILL_UP,
                               .numbers = {sim->config.spill_memory,
                                           sim->config.spill_files, 0, 0,
                                           sim->config.write_back, sim->config.on_demand},
                               .strings = {head_string("simhost")}};
    struct pl_err err;

    if (sim->config.spill_memory != 0) {
        sim->spill_hellos++;
        sim->spill_joined = true;
        PL_CHECK(head_machine_input(sim->head_process.machine, &input, NULL, &err) ==
                 PLASMON_OK);
    }
}

void sim_head_spill_done(struct sim *sim, uint64_t id, plasmon_status_t status,
                         uint64_t host_buffer, uint64_t bytes, const char *text)
{
    struct head_input input = {.type    = HEAD_INPUT_SPILL_DONE,
                               .numbers = {id, (uint32_t)status, host_buffer, bytes},
                               .strings = {head_string("simhost"), head_string(text)}};
    struct pl_err err;

    if (!sim_head_down(sim)) {
        PL_CHECK(tell(sim, &input, NULL, &err) == PLASMON_OK);
    }
}

void sim_head_begin(struct sim *sim)
{
    struct head_settings settings = {
        .epoch         = SIM_EPOCH,
        .transfer      = sim->config.transfer,
        .window        = sim->config.window,
        .retries       = sim->config.retries,
        .credit        = sim->config.credit,
        .chain_bytes   = sim->config.chain_bytes,
        .lineage_bytes = sim->config.lineage_bytes,
        .shadow_bytes  = sim->config.shadow_bytes,
        .nccl_bytes    = sim->config.nccl_bytes,
        .reach_wait_ms = sim->config.reach_wait_ms,
        .lease_ms      = LEASE_MS,
        .node_lease_ms = LEASE_MS,
        .policy        = sim->config.policy,
    };
    struct pl_err err;

    PL_CHECK(head_machine_begin(sim->head_process.machine, &settings, &err) == PLASMON_OK);
    head_machine_tick(sim->head_process.machine, sim->now_ns / 1000000);
}

void sim_head_start(struct sim *sim)
{
    sim->head_process.batches = PL_VEC_INIT(struct sim_batch);
    sim->head_process.held    = PL_VEC_INIT(struct sim_held);
    sim->old_head.held        = PL_VEC_INIT(struct sim_held);
    if (sim->config.places_few != 0) {
        head_places_few = sim->config.places_few;
    }
    head_team_records_max = sim->config.team_records != 0 ? sim->config.team_records
                                                          : (uint32_t)HEAD_TEAM_RECORDS_MAX;
    sim_head_machine(sim, &sim->head_process.machine);
    sim_head_begin(sim);
    sim->head = head_machine_core(sim->head_process.machine);
    if (sim->config.gate_points != 0) {
        PL_CHECK(!sim->config.journal); /* another machine would not know */
        sim->head->config.gate_points = sim->config.gate_points;
    }
    PL_CHECK(wire_arena_init(&sim->head_arena, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
    sim_head_spill_up(sim);
}

void sim_head_finish(struct sim *sim)
{
    sim->head_process.life++;
    head_machine_destroy(sim->head_process.machine);
    sim_old_head_finish(sim);
    sim_journal_finish(sim);
    wire_arena_finish(&sim->head_arena);
}
