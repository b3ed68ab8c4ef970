/*
 * The bulk channel. The first byte says who hears the rest: a worker, of what may be another worker
 * or a program of another host, or a program, of what may be a worker. The rest is what comes over
 * the connection, which then ends. What it must have to get anywhere and could not know - the
 * version, the worker's secret, a ticket of the head - is put into it where the first byte's upper
 * bits say so.
 *
 * Nobody takes chunks out of the ring here, so numbers of chunks that would have to wait for that
 * are made small.
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/bulk.h"
#include "tests/fuzz/device.h"
#include "transfer/bulk_int.h"
#include "wire/wire.h"
#include "worker/bulk_clients.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX    8192u
#define BUFFER_BYTES 3000u
#define GUARD_BYTES  4096u
#define EPOCH        7u
#define DEVICE       3u
#define TAKEN        100u /* chunks that are taken out of the ring */

enum who { TO_WORKER, TO_WORKER_OF_CLIENT, TO_CLIENT_GET, TO_CLIENT_PUT, WHO_COUNT };
enum {
    RIGHT_SECRET = 1u << 4, /* bits of the first byte */
    RIGHT_TICKET = 1u << 5,
};
/* Slots of the table: one that a client may write, one that it may read. */
enum { OPENED = FUZZ_OPENED, SEALED = FUZZ_SEALED };

static struct transfer_bulk bulk;
static struct store_timeline timeline;
static struct fuzz_device device;
static struct worker_bulk_clients clients;
static uint8_t input[INPUT_MAX];

/* ----------------------------------------------------------------------------- a worker */

/* A CPU device, whose memory clients reach where it lies. */
static void device_begin(void)
{
    static struct transfer_counters counters;
    static struct worker_lanes lanes;

    fuzz_device_begin(&device, SEALED, 4096, BUFFER_BYTES);
    PL_CHECK(worker_lanes_init(&lanes, device.device, &device.shared, device.memory,
                               &counters) == PLASMON_OK);
    PL_CHECK(worker_bulk_clients_init(&clients, device.device, device.memory, &lanes, false,
                                      bulk.secret) == PLASMON_OK);
    worker_bulk_clients_identify(&clients, EPOCH, DEVICE);
}

/* Once. Its threads are not there: the fuzzer's own serves. */
static void begin(void)
{
    pl_log_set_level(PL_LOG_ERROR);
    device_begin();
    bulk = (struct transfer_bulk){
        .config = {.ring        = {.timeline = &timeline,
                                   .slab     = fuzz_pages((size_t)STORE_STAGE_SLOTS *
                                                          STORE_STAGE_SLOT_BYTES)},
                   .access      = &worker_bulk_clients_ops,
                   .access_user = &clients},
        .device = DEVICE,
        .ins    = PL_VEC_INIT(struct bulk_in *),
        .places = PL_VEC_INIT(struct bulk_place),
    };
    memset(bulk.secret, 0x5a, sizeof(bulk.secret));
    pl_map_init(&bulk.gone);
    PL_CHECK(pl_mutex_init(&bulk.lock, PL_RANK_LEAF) == PLASMON_OK);
    PL_CHECK(pl_cond_init(&bulk.changed) == PLASMON_OK);
    PL_CHECK(bulk_place_create(&bulk.board) == PLASMON_OK);
}

/* --------------------------------------------------------------- what cannot be guessed */

static void field_set(size_t size, size_t at, const void *field, size_t bytes)
{
    if (at + bytes <= size) {
        memcpy(input + at, field, bytes);
    }
}

/* Chunks that would wait until others are taken out come near. */
static void chunks_bring_near(size_t size)
{
    struct bulk_frame frame;
    size_t at = sizeof(struct bulk_hello);

    while (at + sizeof(frame) <= size) {
        memcpy(&frame, input + at, sizeof(frame));
        if (frame.chunk >= TAKEN + STORE_STAGE_SLOTS &&
            frame.chunk <= TAKEN + BULK_CHUNKS_AHEAD) {
            frame.chunk %= TAKEN + STORE_STAGE_SLOTS;
            memcpy(input + at, &frame, sizeof(frame));
        }
        at += sizeof(frame) + pl_min_u64(frame.bytes, size);
    }
}

/* Each request, as far as they are where they would be if none was refused. */
static void tickets_set(size_t size)
{
    struct bulk_request request;
    size_t at = sizeof(struct bulk_hello);

    while (at + sizeof(request) <= size) {
        struct wire_ticket ticket = {.until_ms = pl_now_ns() / 1000000 + 600000,
                                     .client   = 1};
        uint32_t slot;

        memcpy(&request, input + at, sizeof(request));
        slot          = request.kind == BULK_PUT ? OPENED : SEALED;
        ticket.buffer = wire_buffer(DEVICE, slot, FUZZ_GENERATION + slot);
        ticket.rights = request.kind == BULK_PUT ? WIRE_TICKET_WRITE : WIRE_TICKET_READ;
        wire_ticket_make(&ticket, EPOCH, bulk.secret, sizeof(bulk.secret), request.ticket);
        memcpy(input + at, &request, sizeof(request));
        at += sizeof(request);
        if (request.kind == BULK_PUT) { /* one part, with all of it */
            at += sizeof(struct bulk_part) + pl_min_u64(request.bytes, size);
        }
    }
}

/* -------------------------------------------------------------------------- connections */

/* One end has the input in it and is closed for more; the other is *out_fd. Returns the first. */
static int connection(size_t size, int *out_fd)
{
    int fds[2];

    PL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    PL_CHECK(send(fds[0], input, size, MSG_NOSIGNAL) == (ssize_t)size);
    PL_CHECK(shutdown(fds[0], SHUT_WR) == 0);
    *out_fd = fds[1];
    return fds[0];
}

static void to_worker(size_t size)
{
    struct bulk_in in = {.bulk = &bulk};
    int far;

    memset(timeline.stage_ready, 0, sizeof(timeline.stage_ready));
    timeline.stage_taken.value = TAKEN;
    in.link.stop_fd            = -1;
    far                        = connection(size, &in.link.fd);
    /* It ends because the other side does, with a status of ours and not with one from there. */
    PL_CHECK(bulk_in_serve(&in) <= PLASMON_OK);
    for (uint32_t i = 0; i < STORE_STAGE_SLOTS; i++) {
        uint64_t ready = timeline.stage_ready[i].value;

        PL_CHECK(ready == 0 || (ready - 1) % STORE_STAGE_SLOTS == i);
    }
    for (uint32_t slot = OPENED; slot <= SEALED; slot++) {
        PL_CHECK(!worker_bulk_clients_hold(&clients, slot));
    }
    bulk_link_close(&in.link);
    (void)close(far);
}

/* Another connection would be for another input. */
static plasmon_status_t no_hope(void *user, struct pl_err *err)
{
    (void)user;
    return pl_err_set(err, PLASMON_ECLOSED, "the input is over");
}

/* A transfer over a connection that is left from before. */
static void to_client(size_t size, bool put)
{
    static uint8_t bytes[BUFFER_BYTES + GUARD_BYTES];
    struct bulk_grant grant       = {.address = "127.0.0.1:1"};
    struct bulk_transfer transfer = {.device      = DEVICE,
                                     .grant       = &grant,
                                     .bytes       = BUFFER_BYTES,
                                     .deadline_ns = UINT64_MAX,
                                     .hope        = no_hope};
    struct bulk_link link         = {.stop_fd = -1};
    struct pl_err err             = {.status = PLASMON_OK};
    struct bulk_links links;
    plasmon_status_t status;
    int far = connection(size, &link.fd);

    memset(bytes, 0xee, sizeof(bytes));
    PL_CHECK(bulk_links_init(&links) == PLASMON_OK);
    bulk_links_keep(&links, grant.address, &link);
    status = put ? bulk_put(&links, &transfer, bytes, &err)
                 : bulk_get(&links, &transfer, bytes, &err);
    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        PL_CHECK(bytes[BUFFER_BYTES + i] == 0xee);
    }
    bulk_links_finish(&links);
    (void)close(far);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t how;

    if (size == 0) {
        return 0;
    }
    if (device.table == NULL) {
        begin();
    }
    how  = data[0];
    size = pl_min_u64(size - 1, INPUT_MAX);
    memcpy(input, data + 1, size);
    if ((how & (RIGHT_SECRET | RIGHT_TICKET)) != 0) { /* kept inputs are of any version */
        field_set(size, offsetof(struct bulk_hello, version), &(uint32_t){BULK_VERSION},
                  sizeof(uint32_t));
    }
    if ((how & RIGHT_SECRET) != 0) {
        field_set(size, offsetof(struct bulk_hello, secret), bulk.secret,
                  sizeof(bulk.secret));
    }
    switch ((enum who)(how % WHO_COUNT)) {
    case TO_WORKER:
        chunks_bring_near(size);
        to_worker(size);
        return 0;
    case TO_WORKER_OF_CLIENT:
        field_set(size, offsetof(struct bulk_hello, from), &(uint32_t){BULK_CLIENT},
                  sizeof(uint32_t));
        if ((how & RIGHT_TICKET) != 0) {
            tickets_set(size);
        }
        to_worker(size);
        return 0;
    case TO_CLIENT_GET:
    case TO_CLIENT_PUT:
    case WHO_COUNT:
        to_client(size, how % WHO_COUNT == TO_CLIENT_PUT);
        return 0;
    }
    return 0;
}
