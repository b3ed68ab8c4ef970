/*
 * A client: what libplasmon does, with frames made by hand (sim_calls.c): sent when there is
 * credit, answered, lost and sent again.
 *
 * Every answer is awaited exactly once: a second one, or one that nobody asked for, ends the run.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum {
    RECONNECT_MAX_NS = 500000,
    LINK_KEPT_BYTES  = 64 << 20,
};

static void client_connect(void *user, uint64_t arg, void *data);

/* ------------------------------------------------------------------------------ sending */

void sim_client_pump(struct sim_client *client)
{
    while (client->connected && !client->dead && !pl_list_empty(&client->outbox)) {
        struct sim_body *body = pl_list_first(&client->outbox, struct sim_body, link);

        if (client->ops_sent + body->ops > client->credit) {
            return;
        }
        client->ops_sent += body->ops;
        sim_link_send(client->sim, &client->link, &client->to_head, client->session, 0,
                      body->data, body->length);
        pl_list_remove(&body->link);
        pl_free(body);
    }
}

/* ------------------------------------------------------------------------------ answers */

struct sim_answer *sim_client_answer(struct sim_client *client, uint64_t id,
                                     enum sim_answer_kind kind, plasmon_status_t status,
                                     const char *text)
{
    struct sim_answer *answer = pl_map_get(&client->answers, id);

    if (answer == NULL || answer->kind != kind) {
        sim_fail(client->sim, "client %u gets an answer to %llu, which it did not ask",
                 client->index, (unsigned long long)id);
        return NULL;
    }
    if (answer->answered) {
        sim_fail(client->sim, "client %u: %llu is answered twice", client->index,
                 (unsigned long long)id);
        return NULL;
    }
    answer->answered    = true;
    answer->answered_ns = client->sim->now_ns;
    answer->status      = status;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", text == NULL ? "" : text);
    client->waiting--;
    if (answer->host != NULL) {
        /* it is the client's again: it takes what came, and writes over it */
        answer->host->over = true;
        answer->length     = answer->host->bytes;
        answer->data       = sim_alloc(answer->length + 1);
        memcpy(answer->data, answer->host->data, answer->length);
        sim_memory_noise(client->sim, answer->host->data, answer->length);
    }
    return answer;
}

static void take_failure(struct sim_client *client, const Plasmon__V1__Failure *failure)
{
    struct sim_answer *answer =
        sim_client_answer(client, failure->task, SIM_ANSWER_TASK,
                          (plasmon_status_t)failure->status, failure->text);

    if (answer != NULL) {
        answer->first_task = failure->first_task;
        if (failure->status >= 0) {
            sim_fail(client->sim, "client %u: task %llu failed with status %d",
                     client->index, (unsigned long long)failure->task, failure->status);
        }
    }
}

static void take_data(struct sim_client *client, const Plasmon__V1__Data *data)
{
    struct sim_answer *answer = sim_client_answer(
        client, data->request, SIM_ANSWER_DATA, (plasmon_status_t)data->status, data->text);

    if (answer != NULL && data->status == PLASMON_OK) {
        answer->length = data->bytes.len;
        answer->data   = sim_alloc(data->bytes.len + 1);
        if (data->bytes.len > 0) {
            memcpy(answer->data, data->bytes.data, data->bytes.len);
        }
    }
}

void sim_client_put_write(struct sim_client *client, const struct sim_answer *open,
                          const uint8_t *data, uint64_t bytes)
{
    struct sim_worker *worker =
        sim_worker_of(client->sim, wire_buffer_device(open->buffer));
    const struct store_entry *entry;

    if (worker == NULL) {
        sim_fail(client->sim, "client %u: a put names no device", client->index);
        return;
    }
    entry = &worker->table->entries[wire_buffer_slot(open->buffer)];
    if (entry->generation != wire_buffer_generation(open->buffer) || entry->bytes < bytes ||
        (entry->flags & STORE_ENTRY_CLIENT_WRITES) == 0) {
        sim_fail(client->sim, "client %u: the buffer of a put is not there", client->index);
        return;
    }
    if (worker->alive && !sim_memory_touch(worker, entry->offset, 0)) {
        sim_fail(client->sim, "client %u writes memory that was freed", client->index);
        return;
    }
    memcpy(worker->arena + entry->offset, data, bytes);
}

/* ---------------------------------------------------------------------------- receiving */

static void take_frame(struct sim_client *client, const Plasmon__V1__HeadFrame *frame)
{
    for (size_t i = 0; i < frame->n_done; i++) {
        for (uint64_t k = 0; k < frame->done[i]->count; k++) {
            (void)sim_client_answer(client, frame->done[i]->first + k, SIM_ANSWER_TASK,
                                    PLASMON_OK, "");
        }
    }
    for (size_t i = 0; i < frame->n_failed; i++) {
        take_failure(client, frame->failed[i]);
    }
    for (size_t i = 0; i < frame->n_located; i++) {
        sim_client_located(client, frame->located[i]);
    }
    for (size_t i = 0; i < frame->n_data; i++) {
        take_data(client, frame->data[i]);
    }
    for (size_t i = 0; i < frame->n_put_ready; i++) {
        const Plasmon__V1__PutReady *ready = frame->put_ready[i];
        struct sim_answer *answer =
            sim_client_answer(client, ready->request, SIM_ANSWER_PUT,
                              (plasmon_status_t)ready->status, ready->text);

        if (answer != NULL) {
            answer->buffer = ready->buffer;
        }
    }
    for (size_t i = 0; i < frame->n_replies; i++) {
        const Plasmon__V1__Reply *reply = frame->replies[i];
        const struct sim_answer *answer =
            sim_client_answer(client, reply->request, SIM_ANSWER_REPLY,
                              (plasmon_status_t)reply->status, reply->text);

        if (answer != NULL && answer->found != 0 && !reply->pending) {
            (void)sim_client_answer(client, answer->found, SIM_ANSWER_TASK, PLASMON_OK, "");
        }
    }
    if (frame->host_copies != 0) {
        client->copies_told = frame->host_copies;
        sim_client_heard(client);
    }
    if (frame->fatal != NULL) {
        sim_fail(client->sim, "client %u: fatal: %s", client->index, frame->fatal->text);
    }
}

static void resend(void *user, const uint8_t *bytes, size_t length)
{
    struct sim_client *client = user;

    sim_pipe_send(&client->to_head, bytes, length);
}

static void take_welcome(struct sim_client *client, const Plasmon__V1__Welcome *welcome)
{
    if (client->welcomed && client->session != welcome->session) {
        sim_fail(client->sim, "client %u was resumed as another session", client->index);
    }
    client->session     = welcome->session;
    client->id          = welcome->client;
    client->copies_told = welcome->host_copies;
    client->welcomed    = true;
    client->connected   = true;
    wire_link_acked(&client->link, welcome->resumed_seq);
    wire_link_resend(&client->link, welcome->resumed_seq, resend, client);
}

static void ack_later(void *user, uint64_t arg, void *data)
{
    struct sim_client *client = user;

    (void)data;
    if (arg == client->to_head.life && client->connected && !client->dead &&
        wire_link_owes_ack(&client->link)) {
        sim_link_send_plain(client->sim, &client->link, &client->to_head, client->session,
                            0, NULL, 0);
    }
}

static void client_deliver(void *user, const uint8_t *data, size_t length)
{
    struct sim_client *client     = user;
    struct sim *sim               = client->sim;
    Plasmon__V1__HeadFrame *frame = NULL;
    struct pl_err err             = {0};
    int taken;

    if (client->library != NULL) {
        client->library->message(client, data, length);
        return;
    }
    wire_arena_reset(&sim->arena);
    if (wire_decode_head_frame(&sim->arena, data, length, &frame, &err) != PLASMON_OK) {
        sim_fail(sim, "client %u cannot decode a frame: %s", client->index, err.text);
        return;
    }
    taken = wire_link_receive(&client->link, frame->header->seq);
    if (taken < 0) {
        sim_fail(sim, "client %u: frame %llu comes after %llu", client->index,
                 (unsigned long long)frame->header->seq,
                 (unsigned long long)client->link.in_seq);
        return;
    }
    wire_link_acked(&client->link, frame->header->ack);
    client->credit = pl_max_u64(client->credit, frame->header->credit);
    if (taken == 0) {
        return;
    }
    if (frame->welcome != NULL) {
        take_welcome(client, frame->welcome);
    }
    take_frame(client, frame);
    sim_client_pump(client);
    sim_after(sim, 1000000, ack_later, client, client->to_head.life, NULL);
}

/* --------------------------------------------------------------------- coming and going */

static void client_connect(void *user, uint64_t arg, void *data)
{
    struct sim_client *client      = user;
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;
    uint8_t *body;
    size_t length;

    (void)data;
    if (arg != client->life || client->dead) {
        return;
    }
    hello.protocol_min   = WIRE_PROTOCOL;
    hello.protocol_max   = WIRE_PROTOCOL;
    hello.host           = (char *)(uintptr_t)client->host;
    hello.label          = "sim client";
    hello.resume_session = client->session;
    hello.resume_ack     = client->link.in_seq;
    frame.hello          = &hello;
    length               = plasmon__v1__client_frame__get_packed_size(&frame);
    body                 = sim_alloc(length + 1);
    (void)plasmon__v1__client_frame__pack(&frame, body);
    sim_pipe_open(&client->to_head);
    sim_link_send_plain(client->sim, &client->link, &client->to_head, client->session, 0,
                        body, length);
    pl_free(body);
}

void sim_client_break(struct sim_client *client)
{
    if (client->dead || !client->to_head.up) {
        return;
    }
    sim_pipe_break(&client->to_head);
    sim_pipe_break(&client->from_head);
    client->connected = false;
    sim_head_client_lost(client);
    if (client->library != NULL) {
        client->library->closed(client, PLASMON_ECONNECT, "the connection broke");
        return;
    }
    sim_after(client->sim, sim_below(client->sim, RECONNECT_MAX_NS), client_connect, client,
              client->life, NULL);
}

/* The process is gone: its connection breaks, the store clears its page of pins, nobody comes back. */
void sim_client_crash(struct sim_client *client)
{
    if (client->dead) {
        return;
    }
    client->dead = true;
    client->life++;
    sim_pipe_break(&client->to_head);
    sim_pipe_break(&client->from_head);
    client->connected = false;
    client->waiting   = 0;
    sim_head_client_lost(client);
    store_pins_init(client->pins, 0);
}

static void cut_peer_gives_up(void *user)
{
    sim_client_break(user);
}

static void cut_head_gives_up(void *user)
{
    sim_head_client_silent(user);
}

static void cut_head_notices(void *user)
{
    sim_head_client_lost(user);
}

static const struct sim_cut_ops cut_ops = {.peer_gives_up = cut_peer_gives_up,
                                           .head_gives_up = cut_head_gives_up,
                                           .head_notices  = cut_head_notices};

void sim_client_start(struct sim_client *client, struct sim *sim, uint32_t index)
{
    *client = (struct sim_client){.sim            = sim,
                                  .index          = index,
                                  .life           = 1,
                                  .tasks          = PL_VEC_INIT(Plasmon__V1__Task *),
                                  .ranges         = PL_VEC_INIT(Plasmon__V1__Range *),
                                  .locates        = PL_VEC_INIT(Plasmon__V1__Locate *),
                                  .reads          = PL_VEC_INIT(Plasmon__V1__Read *),
                                  .cancels        = PL_VEC_INIT(uint64_t),
                                  .cancels_force  = PL_VEC_INIT(uint64_t),
                                  .graph_releases = PL_VEC_INIT(uint64_t),
                                  .opens          = PL_VEC_INIT(Plasmon__V1__PutOpen *),
                                  .seals          = PL_VEC_INIT(Plasmon__V1__PutSeal *),
                                  .publishes      = PL_VEC_INIT(Plasmon__V1__Publish *),
                                  .lookups        = PL_VEC_INIT(Plasmon__V1__Lookup *)};

    client->host = sim->config.drains && index % 2 == 1 ? "simhost2" : "simhost";
    PL_CHECK(wire_arena_init(&client->arena, WIRE_ARENA_BYTES_MAX) == PLASMON_OK);
    wire_link_init(&client->link, LINK_KEPT_BYTES);
    pl_list_init(&client->outbox);
    pl_map_init(&client->answers);
    client->pins = sim_alloc(sizeof(*client->pins));
    store_pins_init(client->pins, 2000 + index);
    sim->readers[SIM_DEVICES_MAX + index] = client->pins;
    sim_frame_clear(client);
    sim_pipe_init(&client->to_head, sim, sim_head_from_client, client);
    sim_pipe_init(&client->from_head, sim, client_deliver, client);
    sim_cut_init(&client->cut, sim, &client->to_head, &client->from_head, &cut_ops, client);
    if (!sim->config.library) {
        sim_after(sim, sim_below(sim, RECONNECT_MAX_NS), client_connect, client,
                  client->life, NULL);
    }
}

void sim_client_finish(struct sim_client *client)
{
    struct pl_vec *const lists[] = {
        &client->tasks,   &client->ranges,        &client->locates,        &client->reads,
        &client->cancels, &client->cancels_force, &client->graph_releases, &client->opens,
        &client->seals,   &client->publishes,     &client->lookups};
    uint64_t key;
    void *value;

    if (client->sim == NULL) {
        return;
    }
    for (size_t i = 0; pl_map_next(&client->answers, &i, &key, &value);) {
        struct sim_answer *answer = value;

        pl_vec_finish(&answer->pins);
        pl_vec_finish(&answer->pending);
        pl_free(answer->data);
        pl_free(answer);
    }
    pl_map_finish(&client->answers);
    while (!pl_list_empty(&client->outbox)) {
        struct sim_body *body = pl_list_first(&client->outbox, struct sim_body, link);

        pl_list_remove(&body->link);
        pl_free(body);
    }
    for (size_t i = 0; i < PL_COUNT(lists); i++) {
        pl_vec_finish(lists[i]);
    }
    wire_arena_finish(&client->arena);
    wire_link_finish(&client->link);
    sim_pipe_finish(&client->to_head);
    sim_pipe_finish(&client->from_head);
    sim_cut_finish(&client->cut);
    pl_free(client->pins);
}
