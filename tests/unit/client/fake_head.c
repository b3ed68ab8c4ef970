#include "tests/unit/client/fake_head.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rpc/rpc.h"
#include "tests/harness/test.h"

struct fake_head {
    struct fake_head_config config;
    char dir[64];
    char address[128];
    struct rpc_loop *loop;
    struct rpc_server *server;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct rpc_stream *stream; /* NULL: no client is connected */
    struct wire_link link;
    struct wire_arena arena;
    uint64_t session;
    uint64_t credit;
    bool welcomed;
    bool stopping;
    struct fake_head_seen seen;
};

#define EPOCH  0x1111111111111111ull
#define CLIENT 0x2222222222222222ull

/* ---------------------------------------------------------------------------------- out */

static void send_locked(struct fake_head *head, Plasmon__V1__HeadFrame *frame,
                        bool numbered)
{
    Plasmon__V1__Header header = PLASMON__V1__HEADER__INIT;
    uint8_t *buffer;
    size_t length;

    header.protocol = WIRE_PROTOCOL;
    header.epoch    = EPOCH;
    header.session  = head->session;
    header.seq      = numbered ? wire_link_next_seq(&head->link) : 0;
    header.ack      = wire_link_ack(&head->link);
    header.credit   = head->credit;
    frame->header   = &header;
    ASSERT_OK(wire_encode(&frame->base, rpc_buffer_create, &buffer, &length));
    if (numbered) {
        ASSERT_OK(wire_link_sent(&head->link, header.seq, buffer, length));
    }
    if (head->stream == NULL || !head->welcomed) {
        rpc_buffer_destroy(buffer);
    } else {
        (void)!rpc_stream_send(head->stream, buffer,
                               length); /* broken: the link keeps it */
    }
}

void fake_head_send(struct fake_head *head, Plasmon__V1__HeadFrame *frame)
{
    pthread_mutex_lock(&head->mutex);
    send_locked(head, frame, true);
    pthread_mutex_unlock(&head->mutex);
}

static void done_locked(struct fake_head *head, uint64_t first, uint64_t count)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Range range = PLASMON__V1__RANGE__INIT, *ranges[] = {&range};

    range.first  = first;
    range.count  = count;
    frame.n_done = 1;
    frame.done   = ranges;
    send_locked(head, &frame, true);
}

void fake_head_done(struct fake_head *head, uint64_t first, uint64_t count)
{
    pthread_mutex_lock(&head->mutex);
    done_locked(head, first, count);
    pthread_mutex_unlock(&head->mutex);
}

void fake_head_fail(struct fake_head *head, uint64_t task, plasmon_status_t status,
                    const char *text, uint64_t first_task)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Failure failure = PLASMON__V1__FAILURE__INIT, *failures[] = {&failure};

    failure.task         = task;
    failure.status       = (int32_t)status;
    failure.text         = (char *)text;
    failure.first_task   = first_task;
    failure.first_client = CLIENT;
    frame.n_failed       = 1;
    frame.failed         = failures;
    fake_head_send(head, &frame);
}

void fake_head_grant(struct fake_head *head, uint64_t credit)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;

    pthread_mutex_lock(&head->mutex);
    head->credit = credit;
    send_locked(head, &frame, false);
    pthread_mutex_unlock(&head->mutex);
}

void fake_head_drop(struct fake_head *head, bool forget)
{
    pthread_mutex_lock(&head->mutex);
    if (forget) {
        wire_link_finish(&head->link);
        wire_link_init(&head->link, 64u << 20);
        head->session++;
    }
    head->welcomed = false;
    if (head->stream != NULL) {
        rpc_stream_close(head->stream, PLASMON_ECLOSED, "the test drops the connection");
    }
    pthread_mutex_unlock(&head->mutex);
}

/* ----------------------------------------------------------------------------------- in */

static void resend_one(void *user, const uint8_t *bytes, size_t length)
{
    struct fake_head *head = user;
    uint8_t *buffer        = rpc_buffer_create(length);

    memcpy(buffer, bytes, length);
    (void)!rpc_stream_send(head->stream, buffer, length);
}

static void fill_device(const struct fake_head *head, Plasmon__V1__Device *device)
{
    plasmon__v1__device__init(device);
    device->kind = 1;
    device->node = (char *)"node";
    device->name = (char *)"fake";
    device->bytes_total =
        head->config.device_bytes != 0 ? head->config.device_bytes : 1u << 30;
    device->host =
        (char *)(head->config.device_host != NULL ? head->config.device_host : "elsewhere");
    device->alive = true;
    if (head->config.device_late) {
        device->state       = PLASMON__V1__DEVICE_STATE__DEVICE_STATE_ANNOUNCED;
        device->bytes_total = 0;
        device->alive       = false;
    }
}

static void welcome_locked(struct fake_head *head, const Plasmon__V1__Hello *hello)
{
    Plasmon__V1__HeadFrame frame = PLASMON__V1__HEAD_FRAME__INIT;
    Plasmon__V1__Welcome welcome = PLASMON__V1__WELCOME__INIT;
    Plasmon__V1__Device device, *devices[] = {&device};

    fill_device(head, &device);
    welcome.protocol  = WIRE_PROTOCOL;
    welcome.epoch     = EPOCH;
    welcome.session   = head->session;
    welcome.client    = CLIENT;
    welcome.n_devices = 1;
    welcome.devices   = devices;
    welcome.store_socket =
        (char *)(head->config.store_socket != NULL ? head->config.store_socket : "");
    welcome.resumed_seq = hello->resume_session == head->session ? head->link.in_seq : 0;
    frame.welcome       = &welcome;
    head->welcomed      = true;
    head->seen.hellos++;
    head->seen.resumed +=
        hello->resume_session != 0 && hello->resume_session == head->session;
    send_locked(head, &frame, false);
    if (hello->resume_session == head->session) {
        wire_link_acked(&head->link, hello->resume_ack);
        wire_link_resend(&head->link, hello->resume_ack, resend_one, head);
    }
}

static void answer_reads_locked(struct fake_head *head,
                                const Plasmon__V1__ClientFrame *frame)
{
    for (size_t i = 0; i < frame->n_read; i++) {
        Plasmon__V1__HeadFrame out = PLASMON__V1__HEAD_FRAME__INIT;
        Plasmon__V1__Data data = PLASMON__V1__DATA__INIT, *list[] = {&data};

        if (head->config.value == NULL && !head->config.end_tasks) {
            continue; /* a head answers when the tasks behind the value have ended */
        }
        data.request = frame->read[i]->request;
        if (head->config.value == NULL) {
            data.status = PLASMON_ELOST;
            data.text   = (char *)"the fake has no value";
        } else {
            data.bytes.data = (uint8_t *)head->config.value + frame->read[i]->offset;
            data.bytes.len  = frame->read[i]->length;
        }
        out.n_data = 1;
        out.data   = list;
        send_locked(head, &out, true);
    }
}

static void note_locked(struct fake_head *head, const Plasmon__V1__ClientFrame *frame)
{
    struct fake_head_seen *seen = &head->seen;

    seen->frames++;
    seen->tasks += frame->n_tasks;
    seen->tasks_largest =
        frame->n_tasks > seen->tasks_largest ? frame->n_tasks : seen->tasks_largest;
    for (size_t i = 0; i < frame->n_release; i++) {
        seen->releases += frame->release[i]->count;
    }
    seen->release_ranges += frame->n_release;
    seen->locates += frame->n_locate;
    seen->reads += frame->n_read;
    seen->cancels += frame->n_cancel;
    seen->put_opens += frame->n_put_open;
    seen->put_seals += frame->n_put_seal;
    seen->publishes += frame->n_publish;
    seen->lookups += frame->n_lookup;
    seen->byes += frame->bye ? 1 : 0;
    if (frame->n_tasks > 0) {
        seen->last_task = frame->tasks[frame->n_tasks - 1]->id;
    }
}

static void take_locked(struct fake_head *head, const Plasmon__V1__ClientFrame *frame)
{
    int fresh;

    if (frame->hello != NULL && head->seen.hellos < head->config.hellos_lost) {
        head->seen.hellos++;
        rpc_stream_close(head->stream, PLASMON_ECLOSED, "the test drops the connection");
        return;
    }
    if (frame->hello != NULL) {
        welcome_locked(head, frame->hello);
        return;
    }
    wire_link_acked(&head->link, frame->header->ack);
    fresh = wire_link_receive(&head->link, frame->header->seq);
    ASSERT_TRUE(fresh >= 0); /* the client numbers without gaps */
    if (fresh == 0 || frame->header->seq == 0) {
        return;
    }
    note_locked(head, frame);
    if (head->config.frame != NULL) { /* it may send: not under the lock */
        pthread_mutex_unlock(&head->mutex);
        head->config.frame(head->config.user, head, frame);
        pthread_mutex_lock(&head->mutex);
    }
    for (size_t i = 0; head->config.end_tasks && i < frame->n_tasks; i++) {
        done_locked(head, frame->tasks[i]->id, 1);
    }
    answer_reads_locked(head, frame);
    if (frame->bye && head->stream != NULL) {
        rpc_stream_close(head->stream, PLASMON_OK, "bye");
    }
}

static void on_message(void *user, struct rpc_stream *stream, const uint8_t *bytes,
                       size_t length)
{
    struct fake_head *head = user;
    Plasmon__V1__ClientFrame *frame;
    struct pl_err err = {0};

    wire_arena_reset(&head->arena);
    if (wire_decode_client_frame(&head->arena, bytes, length, &frame, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "the client sent what cannot be read: %s", err.text);
    }
    pthread_mutex_lock(&head->mutex);
    if (stream == head->stream) {
        take_locked(head, frame);
        pthread_cond_broadcast(&head->changed);
    }
    pthread_mutex_unlock(&head->mutex);
}

static void on_writable(void *user, struct rpc_stream *stream)
{
    (void)user;
    (void)stream;
}

static void on_closed(void *user, struct rpc_stream *stream, plasmon_status_t status,
                      const char *why)
{
    struct fake_head *head = user;

    (void)status;
    (void)why;
    pthread_mutex_lock(&head->mutex);
    if (head->stream == stream) {
        head->stream   = NULL;
        head->welcomed = false;
    }
    pthread_cond_broadcast(&head->changed);
    pthread_mutex_unlock(&head->mutex);
}

static const struct rpc_stream_ops stream_ops = {on_message, on_writable, on_closed};

static plasmon_status_t on_accept(void *user, struct rpc_stream *stream, struct pl_err *err)
{
    struct fake_head *head = user;

    (void)err;
    pthread_mutex_lock(&head->mutex);
    head->stream   = stream;
    head->welcomed = false;
    rpc_stream_set_user(stream, &stream_ops, head);
    pthread_mutex_unlock(&head->mutex);
    return PLASMON_OK;
}

static void on_status(void *user, struct rpc_unary *call, const uint8_t *bytes,
                      size_t length)
{
    struct fake_head *head         = user;
    Plasmon__V1__StatusReply reply = PLASMON__V1__STATUS_REPLY__INIT;
    Plasmon__V1__Device device, *devices[] = {&device};
    uint8_t *buffer;
    size_t out_length;

    (void)bytes;
    (void)length;
    pthread_mutex_lock(&head->mutex);
    if (head->config.statuses_lost > 0) {
        head->config.statuses_lost--;
        pthread_mutex_unlock(&head->mutex);
        rpc_unary_fail(call, PLASMON_ECLOSED, "it goes");
        return;
    }
    fill_device(head, &device);
    reply.version   = (char *)"fake \"version\"";
    reply.n_devices = 1;
    reply.devices   = devices;
    reply.policy    = (char *)"auto";
    ASSERT_OK(wire_encode(&reply.base, rpc_buffer_create, &buffer, &out_length));
    pthread_mutex_unlock(&head->mutex);
    rpc_unary_reply(call, buffer, out_length);
}

/* --------------------------------------------------------------------------------- life */

static const struct rpc_method methods[] = {
    {.path = "/plasmon.v1.Plasmon/Session", .accept = on_accept},
    {.path = "/plasmon.v1.Plasmon/Status", .unary = on_status},
};

struct fake_head *fake_head_start(const struct fake_head_config *config)
{
    struct fake_head *head   = pl_alloc(sizeof(*head));
    const char *addresses[2] = {NULL, NULL};
    struct rpc_server_config server;
    struct pl_err err = {0};

    ASSERT_NOT_NULL(head);
    head->config  = *config;
    head->session = 0x3333333333333333ull;
    head->credit  = config->credit != 0 ? config->credit : 1000000;
    wire_link_init(&head->link, 64u << 20);
    ASSERT_OK(wire_arena_init(&head->arena, WIRE_ARENA_BYTES_MAX));
    (void)pthread_mutex_init(&head->mutex, NULL);
    (void)pthread_cond_init(&head->changed, NULL);
    (void)snprintf(head->dir, sizeof(head->dir), "/tmp/plasmon-test-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(head->dir));
    (void)snprintf(head->address, sizeof(head->address), "unix:%s/head", head->dir);

    rpc_init();
    ASSERT_OK(rpc_loop_create(&head->loop));
    addresses[0] = head->address;
    server       = (struct rpc_server_config){.addresses    = addresses,
                                              .token        = config->token,
                                              .methods      = methods,
                                              .method_count = PL_COUNT(methods),
                                              .user         = head};
    if (rpc_server_create(head->loop, &server, &head->server, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "rpc_server_create: %s", err.text);
    }
    ASSERT_OK(rpc_loop_start(head->loop, "fake-head"));
    return head;
}

void fake_head_stop(struct fake_head *head)
{
    rpc_loop_stop(head->loop);
    rpc_server_destroy(head->server);
    rpc_loop_destroy(head->loop);
    rpc_finish();
    wire_link_finish(&head->link);
    wire_arena_finish(&head->arena);
    (void)unlink(head->address + 5);
    (void)rmdir(head->dir);
    pl_free(head);
}

const char *fake_head_address(const struct fake_head *head)
{
    return head->address;
}

struct plasmon_client *fake_head_client(struct fake_head *head)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;

    options.address = head->address;
    options.token   = head->config.token;
    if (plasmon_init(&options, &client) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "plasmon_init: %s", plasmon_error(NULL));
    }
    return client;
}

struct fake_head_seen fake_head_seen(struct fake_head *head)
{
    struct fake_head_seen seen;

    pthread_mutex_lock(&head->mutex);
    seen = head->seen;
    pthread_mutex_unlock(&head->mutex);
    return seen;
}

void fake_head_wait(struct fake_head *head,
                    bool (*check)(const struct fake_head_seen *seen, uint64_t value),
                    uint64_t value)
{
    struct timespec deadline;

    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 10;
    pthread_mutex_lock(&head->mutex);
    while (!check(&head->seen, value)) {
        if (pthread_cond_timedwait(&head->changed, &head->mutex, &deadline) != 0) {
            test_fail(__FILE__, __LINE__,
                      "%llu tasks, %llu releases, %llu hellos in time, and not what was "
                      "waited for",
                      (unsigned long long)head->seen.tasks,
                      (unsigned long long)head->seen.releases,
                      (unsigned long long)head->seen.hellos);
        }
    }
    pthread_mutex_unlock(&head->mutex);
}

bool seen_tasks(const struct fake_head_seen *seen, uint64_t value)
{
    return seen->tasks >= value;
}
bool seen_releases(const struct fake_head_seen *seen, uint64_t value)
{
    return seen->releases >= value;
}
bool seen_cancels(const struct fake_head_seen *seen, uint64_t value)
{
    return seen->cancels >= value;
}
bool seen_byes(const struct fake_head_seen *seen, uint64_t value)
{
    return seen->byes >= value;
}
