/*
 * Receiving: a thread that accepts, a thread a connection, and one that moves words for transfers
 * that will get no bytes.
 *
 * WHO WRITES A SLOT. A chunk of a number is sent by one device, and there is one connection of a
 * device at a time: a new one (after a stall, or from a restarted worker) ends the old one and
 * waits for its thread before it is welcomed. When a device is given up, its connection is ended
 * and it is not welcomed again, so the filler is alone with the chunks that it should have sent.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "transfer/bulk_int.h"

#define FILL_LOOK_NS UINT64_C(1000000)
#define LOOK_MS      100 /* for bytes that wake nobody; less than BULK_ALIVE_NS */

void bulk_pause(uint32_t *io_looks)
{
    uint32_t looks      = (*io_looks)++;
    struct timespec nap = {.tv_nsec = looks < 2000 ? 20000 : 200000};

    if (looks < 500) {
        pl_cpu_relax();
    } else {
        (void)nanosleep(&nap, NULL); /* cut short is as good */
    }
}

static uint64_t *ready_word(const struct transfer_ring *ring, uint64_t chunk)
{
    return &ring->timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value;
}

static uint64_t chunks_taken(struct transfer_bulk *bulk)
{
    /* Acquire: pairs with the device's write after it copied the chunk out. */
    return __atomic_load_n(&bulk->config.ring.timeline->stage_taken.value,
                           __ATOMIC_ACQUIRE);
}

/* Or was: a pair may have brought it (pair.h), which moves no word of its slot. */
static bool chunk_there(struct transfer_bulk *bulk, uint64_t chunk)
{
    return __atomic_load_n(ready_word(&bulk->config.ring, chunk), __ATOMIC_ACQUIRE) >
               chunk ||
           chunks_taken(bulk) > chunk;
}

/* The chunk that was in its slot has been taken out. */
static bool slot_empty(struct transfer_bulk *bulk, uint64_t chunk)
{
    return chunk < STORE_STAGE_SLOTS || chunks_taken(bulk) >= chunk + 1 - STORE_STAGE_SLOTS;
}

void bulk_slot_ready(const struct transfer_ring *ring, uint64_t chunk)
{
    uint64_t *ready = ready_word(ring, chunk);
    uint64_t there  = __atomic_load_n(ready, __ATOMIC_RELAXED);

    /* Release: the bytes in the slot are there before the word. */
    while (there <= chunk &&
           !__atomic_compare_exchange_n(ready, &there, chunk + 1, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    device_word_wake(ready);
}

/* ------------------------------------------------------------------------- a connection */

static bool secret_equal(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0; /* no early end: its time tells nothing */

    for (size_t i = 0; i < TRANSFER_BULK_SECRET_BYTES; i++) {
        difference |= (uint8_t)(a[i] ^ b[i]);
    }
    return difference == 0;
}

static bool in_closed(struct bulk_in *in)
{
    return atomic_load(&in->closed) || atomic_load(&in->bulk->stop);
}

/* Now and then: we got on, though no chunk is over. */
static plasmon_status_t say(struct bulk_in *in, uint64_t what)
{
    struct bulk_answer answer = {.chunk = what};
    uint64_t now_ns           = pl_now_ns();

    if (now_ns - in->spoken_ns < BULK_ALIVE_NS) {
        return PLASMON_OK;
    }
    in->spoken_ns = now_ns;
    return bulk_link_write(&in->link, &answer, sizeof(answer), BULK_GRACE_NS, 0);
}

/* Until the slot of the chunk is empty. */
static plasmon_status_t slot_wait(struct bulk_in *in, uint64_t chunk)
{
    plasmon_status_t status = PLASMON_OK;
    uint32_t looks          = 0;

    while (status == PLASMON_OK && !slot_empty(in->bulk, chunk)) {
        if (in_closed(in)) {
            return PLASMON_ECLOSED;
        }
        bulk_pause(&looks);
        status = say(in, BULK_WAITING);
    }
    return status;
}

/* Bytes of a chunk that is here already. */
static plasmon_status_t read_nowhere(struct bulk_in *in, uint32_t bytes)
{
    uint8_t nowhere[16384];
    plasmon_status_t status = PLASMON_OK;

    while (bytes > 0 && status == PLASMON_OK) {
        uint32_t part = (uint32_t)pl_min_u64(bytes, sizeof(nowhere));

        status = bulk_link_read(&in->link, nowhere, part, BULK_GRACE_NS, 0);
        bytes -= part;
    }
    return status;
}

/*
 * In the middle of a chunk the sender may be silent for its deadline only. We are not woken for
 * each packet (bulk_link_wake_at), so after a while we look for what is there.
 */
static plasmon_status_t read_chunk(struct bulk_in *in, uint8_t *to, uint32_t bytes)
{
    uint64_t patience_ns    = bulk_deadline_ns(bytes, BULK_RATE_GUESS);
    uint64_t moved_ns       = pl_now_ns();
    uint32_t wake_at        = bulk_link_wake_best(&in->link);
    plasmon_status_t status = PLASMON_OK;
    uint32_t done           = 0;

    while (status == PLASMON_OK && done < bytes) {
        size_t some;

        status = bulk_link_try_read(&in->link, to + done, bytes - done, &some);
        done += (uint32_t)some;
        moved_ns = some > 0 ? pl_now_ns() : moved_ns;
        if (status == PLASMON_EAGAIN) {
            bulk_link_wake_at(&in->link, bytes - done > 2 * wake_at ? wake_at : 1);
            status = bulk_link_wait(&in->link, POLLIN, LOOK_MS);
        }
        if (status == PLASMON_EAGAIN) {
            status = pl_now_ns() - moved_ns < patience_ns ? PLASMON_OK : PLASMON_ETIMEDOUT;
        }
        if (status == PLASMON_OK && some > 0) {
            status = say(in, BULK_ALIVE);
        }
        if (done > bytes / 2 && pl_fault_point("transfer.bulk_in_half")) {
            status = PLASMON_ECONNECT;
        }
    }
    return status;
}

/* Where its bytes belong, on a CPU device whose half has begun; *out_data NULL: into its slot. */
static plasmon_status_t place_wait(struct bulk_in *in, const struct bulk_frame *frame,
                                   uint8_t **out_data)
{
    uint32_t looks = 0;

    for (;;) {
        plasmon_status_t status =
            bulk_place_find(in->bulk->board, &in->bulk->config.ring, in->from, frame->chunk,
                            frame->bytes, out_data);

        if (status != PLASMON_EAGAIN) {
            return status;
        }
        if (in_closed(in)) {
            return PLASMON_ECLOSED;
        }
        bulk_pause(&looks);
        status = say(in, BULK_WAITING);
        if (status != PLASMON_OK) {
            return status;
        }
    }
}

/*
 * Its words are moved without bytes, by the filler, which may not have come to it yet: the slot is
 * not ours.
 */
static bool chunk_given_up(struct transfer_bulk *bulk, uint64_t chunk)
{
    bool given = false;

    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->fills.count && !given; i++) {
        const struct bulk_fill *fill = pl_vec_at(&bulk->fills, i);

        given = chunk >= fill->first && chunk - fill->first < fill->count;
    }
    pl_mutex_unlock(&bulk->lock);
    return given;
}

static plasmon_status_t chunk_receive(struct bulk_in *in, const struct bulk_frame *frame)
{
    struct transfer_bulk *bulk = in->bulk;
    uint8_t *slot              = bulk->config.ring.slab +
                    frame->chunk % STORE_STAGE_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES;
    uint8_t *place;
    plasmon_status_t status;

    if (frame->bytes > STORE_STAGE_SLOT_BYTES ||
        frame->chunk > chunks_taken(bulk) + BULK_CHUNKS_AHEAD) {
        return PLASMON_EMALFORMED;
    }
    status = slot_wait(in, frame->chunk);
    if (status != PLASMON_OK) {
        return status;
    }
    if (chunk_given_up(bulk, frame->chunk) || chunk_there(bulk, frame->chunk)) {
        return read_nowhere(in, frame->bytes);
    }
    status = place_wait(in, frame, &place);
    if (status != PLASMON_OK) {
        return status;
    }
    status = read_chunk(in, place != NULL ? place : slot, frame->bytes);
    if (status == PLASMON_OK && pl_fault_point("transfer.bulk_in_read")) {
        status = PLASMON_ECONNECT;
    }
    if (status == PLASMON_OK) {
        if (place != NULL) {
            bulk_place_filled(&bulk->config.ring, frame->chunk);
        }
        bulk_slot_ready(&bulk->config.ring, frame->chunk);
    }
    return status;
}

void bulk_in_end_locked(struct transfer_bulk *bulk, uint32_t from)
{
    for (;;) {
        struct bulk_in *old = NULL;

        for (size_t i = 0; i < bulk->ins.count && old == NULL; i++) {
            struct bulk_in *in = *(struct bulk_in **)pl_vec_at(&bulk->ins, i);

            old = in->registered && in->from == from ? in : NULL;
        }
        if (old == NULL) {
            return;
        }
        atomic_store(&old->closed, true);
        (void)shutdown(old->link.fd, SHUT_RDWR);
        pl_cond_wait(&bulk->changed, &bulk->lock); /* its thread says when it is over */
    }
}

/* One connection of a device at a time; a device that was given up has none. */
static bool in_register(struct bulk_in *in)
{
    struct transfer_bulk *bulk = in->bulk;
    bool welcome;

    pl_mutex_lock(&bulk->lock);
    bulk_in_end_locked(bulk, in->from);
    welcome = pl_map_get(&bulk->gone, in->from + 1ull) == NULL && !atomic_load(&bulk->stop);
    if (welcome) {
        in->registered = true;
    }
    pl_mutex_unlock(&bulk->lock);
    return welcome;
}

plasmon_status_t bulk_in_welcome(struct bulk_in *in, plasmon_status_t status)
{
    struct bulk_welcome welcome = {
        .magic = BULK_MAGIC, .version = BULK_VERSION, .status = status};

    return bulk_link_write(&in->link, &welcome, sizeof(welcome), BULK_GRACE_NS, 0);
}

/* *out_ours false: it was for another device, or a client's, and is over. */
static plasmon_status_t hello_take(struct bulk_in *in, bool *out_ours)
{
    uint64_t until_ns       = pl_now_ns() + BULK_HANDSHAKE_NS;
    plasmon_status_t status = PLASMON_OK;
    struct bulk_hello hello;
    uint32_t ours;

    *out_ours = true;
    if (in->bulk->tls != NULL) {
        status = bulk_tls_begin(&in->link, in->bulk->tls, true, until_ns, &in->why);
    }
    if (status == PLASMON_OK) {
        status = bulk_link_read(&in->link, &hello, sizeof(hello), 0, until_ns);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    ours = atomic_load(&in->bulk->device);
    if (hello.magic != BULK_MAGIC) { /* it would not understand an answer */
        return pl_err_set(&in->why, PLASMON_EMALFORMED,
                          "what it says is not of Plasmon: it is another program%s",
                          in->bulk->tls == NULL ? ", or one that speaks TLS" : "");
    }
    if (hello.version != BULK_VERSION) {
        status      = PLASMON_EVERSION;
        in->version = hello.version;
    } else if (hello.from != BULK_CLIENT && in->bulk->tls != NULL && !in->link.host) {
        status = pl_err_set(&in->why, PLASMON_EAUTH,
                            "its certificate is a program's, and bytes of other devices "
                            "come from hosts");
    } else if (hello.from == BULK_CLIENT) {
        *out_ours = false;
        return bulk_client_run(in, until_ns);
    } else if (!secret_equal(hello.secret, in->bulk->secret)) {
        status = pl_err_set(&in->why, PLASMON_EAUTH,
                            "what it shows is no secret of this worker: it means the one "
                            "that had this port before, or is not of this cluster");
    } else if (ours == BULK_NOBODY || hello.to != ours) {
        *out_ours = false;
        bulk_relay_run(in, &hello);
        return PLASMON_OK;
    } else {
        in->from = hello.from;
        status   = in_register(in) ? PLASMON_OK : PLASMON_ECLOSED;
    }
    {
        plasmon_status_t told = bulk_in_welcome(in, status);

        return status != PLASMON_OK ? status : told;
    }
}

/* Once a second: whoever knocks all the time must not fill the log. */
static bool refusal_is_news(struct transfer_bulk *bulk)
{
    uint64_t now_ns = pl_now_ns();
    bool news;

    pl_mutex_lock(&bulk->lock);
    news             = now_ns - bulk->refused_ns >= UINT64_C(1000000000);
    bulk->refused_ns = news ? now_ns : bulk->refused_ns;
    pl_mutex_unlock(&bulk->lock);
    return news;
}

/* Between two frames a connection may be silent for ever; in the middle of one it may not. */
plasmon_status_t bulk_in_serve(struct bulk_in *in)
{
    bool ours;
    plasmon_status_t status = hello_take(in, &ours);

    while (ours && status == PLASMON_OK && !in_closed(in)) {
        struct bulk_frame frame;
        struct bulk_answer answer;

        bulk_link_wake_at(&in->link, 1);
        status = bulk_link_read(&in->link, &frame, sizeof(frame), 0, 0);
        if (status == PLASMON_OK && pl_fault_point("transfer.bulk_in_begin")) {
            status = PLASMON_ECONNECT;
        }
        if (status == PLASMON_OK) {
            in->spoken_ns = pl_now_ns();
            status        = chunk_receive(in, &frame);
        }
        if (status == PLASMON_OK && pl_fault_point("transfer.bulk_in_ready")) {
            status = PLASMON_ECONNECT;
        }
        if (status == PLASMON_OK) {
            answer.chunk = frame.chunk;
            status = bulk_link_write(&in->link, &answer, sizeof(answer), BULK_GRACE_NS, 0);
        }
        if (status == PLASMON_OK && pl_fault_point("transfer.bulk_in_answered")) {
            status = PLASMON_ECONNECT;
        }
    }
    return status;
}

static void *in_run(void *user)
{
    struct bulk_in *in         = user;
    struct transfer_bulk *bulk = in->bulk;
    char from[TRANSFER_BULK_ADDRESS_BYTES];
    plasmon_status_t status;

    bulk_tls_thread();
    bulk_peer_address(in->link.fd, from);
    status = bulk_in_serve(in);
    if (status == PLASMON_EVERSION && refusal_is_news(bulk)) {
        pl_warn(
            "bulk",
            "a connection from %s was refused: it speaks version %u of the bulk "
            "channel, and we speak %u: all programs of a cluster must be of one release",
            from, in->version, BULK_VERSION);
    } else if ((status == PLASMON_EAUTH || status == PLASMON_EMALFORMED) &&
               refusal_is_news(bulk)) {
        pl_warn("bulk", "a connection from %s was refused: %s (this worker speaks %sTLS)",
                from, in->why.text[0] != '\0' ? in->why.text : pl_status_text(status),
                in->bulk->tls != NULL ? "" : "without ");
    }
    (void)shutdown(in->link.fd, SHUT_RDWR); /* the acceptor closes it: ins_tidy() */
    pl_mutex_lock(&bulk->lock);
    in->registered = false;
    in->ended      = true;
    in->ended_ns   = pl_now_ns();
    pl_cond_broadcast(&bulk->changed);
    pl_mutex_unlock(&bulk->lock);
    return NULL;
}

/* ---------------------------------------------------------------------------- accepting */

/* Its thread is over. */
static void in_release(struct bulk_in *in)
{
    bulk_link_close(&in->link);
    pl_free(in);
}

static void in_free(struct bulk_in *in)
{
    (void)pthread_join(in->thread, NULL);
    in_release(in);
}

/*
 * Those that are over go, a moment later: closing a socket with something unread takes back what we
 * said last, which is why. How many are there that have not said who they are?
 */
static uint32_t ins_tidy(struct transfer_bulk *bulk)
{
    uint64_t now_ns    = pl_now_ns();
    uint32_t strangers = 0;
    size_t kept        = 0;

    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->ins.count; i++) {
        struct bulk_in **place = pl_vec_at(&bulk->ins, i);
        struct bulk_in *in     = *place;

        if (in->ended && (now_ns - in->ended_ns >= BULK_LINGER_MS * UINT64_C(1000000) ||
                          bulk->ins.count > BULK_LINGERING_MAX)) {
            in_free(in); /* its thread has nothing left to do but to return */
            continue;
        }
        strangers += !in->ended && !in->registered && !in->relay && !in->client;
        *(struct bulk_in **)pl_vec_at(&bulk->ins, kept++) = in;
    }
    bulk->ins.count = kept;
    pl_mutex_unlock(&bulk->lock);
    return strangers;
}

/*
 * Too many have not said who they are: the one that has been there longest is hung up on. So a
 * flood of strangers does not keep out those that say it at once.
 */
static void stranger_end(struct transfer_bulk *bulk)
{
    pl_mutex_lock(&bulk->lock);
    for (size_t i = 0; i < bulk->ins.count; i++) { /* in the order in which they came */
        struct bulk_in *in = *(struct bulk_in **)pl_vec_at(&bulk->ins, i);

        if (!in->ended && !in->registered && !in->relay && !in->client &&
            !atomic_load(&in->closed)) {
            atomic_store(&in->closed, true);
            (void)shutdown(in->link.fd, SHUT_RDWR);
            break;
        }
    }
    pl_mutex_unlock(&bulk->lock);
}

static void in_start(struct transfer_bulk *bulk, int fd)
{
    struct bulk_in *in = PL_NEW(struct bulk_in);
    struct bulk_in **place;

    if (in == NULL) {
        (void)close(fd);
        return;
    }
    in->bulk = bulk;
    in->link = (struct bulk_link){.fd = fd, .stop_fd = bulk->stop_fd};
    pl_mutex_lock(&bulk->lock);
    place = pl_vec_push(&bulk->ins);
    if (place == NULL || pthread_create(&in->thread, NULL, in_run, in) != 0) {
        bulk->ins.count -= place != NULL;
        (void)close(fd); /* the sender comes again */
        pl_free(in);
    } else {
        *place = in;
    }
    pl_mutex_unlock(&bulk->lock);
}

void *bulk_accept_run(void *user)
{
    struct transfer_bulk *bulk = user;
    struct pollfd fds[2]       = {{.fd = bulk->listen_fd, .events = POLLIN},
                                  {.fd = bulk->stop_fd, .events = POLLIN}};

    while (!atomic_load(&bulk->stop)) {
        int fd;

        (void)poll(fds, 2, bulk->ins.count > 0 ? (int)BULK_LINGER_MS : -1);
        if (ins_tidy(bulk) >= BULK_HANDSHAKE_MAX) {
            stranger_end(bulk);
            (void)poll(&fds[1], 1, 1); /* for its thread to see it */
            continue;
        }
        fd = accept4(bulk->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            in_start(bulk, fd);
        } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            (void)poll(&fds[1], 1, 100); /* out of descriptors: some may come back */
        }
    }
    /*
     * Nobody else adds any now; but as long as one of their threads runs, it may look at all of
     * them (bulk_in_end_locked).
     */
    for (size_t i = 0; i < bulk->ins.count; i++) {
        (void)pthread_join((*(struct bulk_in **)pl_vec_at(&bulk->ins, i))->thread, NULL);
    }
    for (size_t i = 0; i < bulk->ins.count; i++) {
        in_release(*(struct bulk_in **)pl_vec_at(&bulk->ins, i));
    }
    bulk->ins.count = 0;
    return NULL;
}

/* ------------------------------------------------------------------ words without bytes */

/*
 * As many as have an empty slot. Fills come in any order, and a later one may be what an earlier
 * one waits for.
 */
static bool fills_step_locked(struct transfer_bulk *bulk)
{
    bool moved = false;

    for (size_t i = 0; i < bulk->fills.count;) {
        struct bulk_fill *fill = pl_vec_at(&bulk->fills, i);

        while (fill->count > 0 && slot_empty(bulk, fill->first)) {
            if (!chunk_there(bulk, fill->first)) {
                bulk_slot_ready(&bulk->config.ring, fill->first);
            }
            fill->first++;
            fill->count--;
            moved = true;
        }
        if (fill->count == 0) {
            pl_vec_remove_unordered(&bulk->fills, i);
        } else {
            i++;
        }
    }
    return moved;
}

void *bulk_fill_run(void *user)
{
    struct transfer_bulk *bulk = user;

    pl_mutex_lock(&bulk->lock);
    while (!atomic_load(&bulk->stop)) {
        if (bulk->fills.count == 0 || atomic_load(&bulk->device) == BULK_NOBODY) {
            pl_cond_wait(&bulk->changed, &bulk->lock);
        } else if (!fills_step_locked(bulk)) {
            (void)pl_cond_wait_until(&bulk->changed, &bulk->lock,
                                     pl_now_ns() + FILL_LOOK_NS);
        }
    }
    pl_mutex_unlock(&bulk->lock);
    return NULL;
}
