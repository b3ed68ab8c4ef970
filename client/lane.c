/*
 * Moving bytes through a lane. See lane.h for the scheme, store/lane.h for the protocol.
 *
 * WAITING FOR A WORD  A CPU device wakes us by futex when it writes `done`, a GPU does not: so a
 * short spin, in which most pieces are done, then sleeps that grow to a millisecond. A wake that
 * never comes costs such a sleep.
 *
 * GIVING UP  leaves slots behind with something on its way. They are the lane's again at once, but
 * nobody takes one that is not quiet.
 */
#include "client/lane.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/fault.h"
#include "base/fd.h"
#include "client/parallel.h"

#define PIECE_BYTES_MIN (256u << 10)
/* A large transfer leaves some slots to others. */
#define TRANSFER_SLOTS_MAX 12u

#define SPIN_NS      40000u
#define SLEEP_MIN_NS 50000u
#define SLEEP_MAX_NS 1000000u
#define HOPE_NS      50000000u /* how often to ask whether there is any */

plasmon_status_t lane_create(int slab_fd, int doorbell_fd, struct lane **out_lane,
                             struct pl_err *err)
{
    struct lane *lane = PL_NEW(struct lane);
    void *memory      = NULL;
    plasmon_status_t status;

    if (lane == NULL) {
        status = PLASMON_ENOMEM;
        goto err_close;
    }
    status = pl_fd_map(slab_fd, STORE_LANE_BYTES, 1, &memory);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    lane->shared   = memory;
    lane->doorbell = doorbell_fd;
    status = lane->shared->magic == STORE_LANE_MAGIC ? PLASMON_OK : PLASMON_EVERSION;
    if (status == PLASMON_OK) {
        status = pl_mutex_init(&lane->lock, PL_RANK_LEAF);
    }
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    status = pl_cond_init(&lane->freed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    pl_fd_close(&slab_fd); /* the mapping keeps it */
    *out_lane = lane;
    return PLASMON_OK;

err_finish_lock:
    pl_mutex_finish(&lane->lock);
err_unmap:
    pl_fd_unmap(memory, STORE_LANE_BYTES);
err_free:
    pl_free(lane);
err_close:
    pl_fd_close(&slab_fd);
    pl_fd_close(&doorbell_fd);
    return pl_err_set(err, status, "a lane to a device cannot be mapped: %s",
                      pl_status_text(status));
}

void lane_destroy(struct lane *lane)
{
    if (lane == NULL) {
        return;
    }
    pl_fd_unmap(lane->shared, STORE_LANE_BYTES);
    pl_fd_close(&lane->doorbell);
    pl_cond_finish(&lane->freed);
    pl_mutex_finish(&lane->lock);
    pl_free(lane);
}

/* -------------------------------------------------------------------------------- a job */

struct job {
    /* Constant while its threads run. */
    struct lane *lane;
    const struct lane_transfer *transfer; /* or the first of many */
    void *const *many; /* each transfer is a piece, and goes there; NULL: one */
    enum store_lane_kind kind;
    uint8_t *to;         /* get */
    const uint8_t *from; /* put */
    uint64_t piece_bytes;
    uint64_t piece_count;
    uint32_t threads;
    uint32_t slots[TRANSFER_SLOTS_MAX];
    uint32_t slot_count;

    _Atomic uint64_t piece_next;
    _Atomic int status; /* of the first that failed, who alone writes err */
    struct pl_err err;
};

static bool job_failed(struct job *job)
{
    return atomic_load(&job->status) != PLASMON_OK;
}

static void job_fail(struct job *job, const struct pl_err *err)
{
    int none = PLASMON_OK;

    if (atomic_compare_exchange_strong(&job->status, &none, err->status)) {
        job->err = *err; /* read after the threads were joined */
    }
}

static uint64_t piece_bytes_of(const struct job *job, uint64_t piece)
{
    return job->many != NULL ? job->transfer[piece].bytes
                             : pl_min_u64(job->piece_bytes,
                                          job->transfer->bytes - piece * job->piece_bytes);
}

static uint8_t *piece_to(const struct job *job, uint64_t piece)
{
    return job->many != NULL ? job->many[piece] : job->to + piece * job->piece_bytes;
}

/* -------------------------------------------------------------------------------- slots */

static uint32_t slots_take_locked(struct lane *lane, struct job *job, uint32_t want)
{
    for (uint32_t i = 0; i < STORE_LANE_SLOTS && job->slot_count < want; i++) {
        if ((lane->taken & 1u << i) == 0 && store_lane_quiet(lane->shared, i)) {
            lane->taken |= 1u << i;
            job->slots[job->slot_count++] = i;
        }
    }
    return job->slot_count;
}

static plasmon_status_t closed_check(const struct lane *lane, struct pl_err *err)
{
    return __atomic_load_n(&lane->shared->closed, __ATOMIC_ACQUIRE) == 0
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_ECLOSED,
                            "the device was given up, or the lane cannot be pinned");
}

static plasmon_status_t hope_check(const struct job *job, struct pl_err *err)
{
    const struct lane_transfer *transfer = job->transfer;
    plasmon_status_t status              = closed_check(job->lane, err);

    if (status != PLASMON_OK) {
        return status;
    }
    if (pl_now_ns() >= transfer->deadline_ns) {
        return pl_err_set(err, PLASMON_ETIMEDOUT,
                          "the device did not copy all the bytes in time");
    }
    return transfer->hope != NULL ? transfer->hope(transfer->user, err) : PLASMON_OK;
}

/* At least one. */
static plasmon_status_t slots_take(struct job *job, uint32_t want, struct pl_err *err)
{
    struct lane *lane       = job->lane;
    plasmon_status_t status = PLASMON_OK;

    pl_mutex_lock(&lane->lock);
    while (status == PLASMON_OK && slots_take_locked(lane, job, want) == 0) {
        /* Also one that is taken by nobody may become quiet, and nobody says so. */
        (void)pl_cond_wait_until(&lane->freed, &lane->lock, pl_now_ns() + HOPE_NS);
        pl_mutex_unlock(&lane->lock);
        status = hope_check(job, err);
        pl_mutex_lock(&lane->lock);
    }
    pl_mutex_unlock(&lane->lock);
    return status;
}

static void slots_give_back(struct job *job)
{
    struct lane *lane = job->lane;

    pl_mutex_lock(&lane->lock);
    for (uint32_t i = 0; i < job->slot_count; i++) {
        lane->taken &= ~(1u << job->slots[i]);
    }
    pl_cond_broadcast(&lane->freed);
    pl_mutex_unlock(&lane->lock);
}

/* ---------------------------------------------------------------------- asking, waiting */

static void slot_ask(const struct job *job, uint32_t slot, uint64_t piece)
{
    struct store_lane_slot *mailbox      = &job->lane->shared->slot[slot];
    const struct lane_transfer *transfer = &job->transfer[job->many != NULL ? piece : 0];

    mailbox->kind        = (uint32_t)job->kind;
    mailbox->buffer_slot = transfer->buffer_slot;
    mailbox->generation  = transfer->generation;
    mailbox->offset = transfer->offset + (job->many != NULL ? 0 : piece * job->piece_bytes);
    mailbox->bytes  = piece_bytes_of(job, piece);
    __atomic_store_n(&mailbox->asked, store_lane_done(job->lane->shared, slot) + 1,
                     __ATOMIC_RELEASE);
    pl_fd_raise(job->lane->doorbell);
}

static void word_sleep(uint64_t *word, uint64_t seen, uint64_t ns)
{
    struct timespec timeout = {.tv_nsec = (long)ns};

    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the low half");
    (void)syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &timeout, NULL, 0);
}

static bool slot_spin(const struct store_lane *shared, uint32_t slot)
{
    uint64_t until_ns = pl_now_ns() + SPIN_NS;

    do {
        for (unsigned i = 0; i < 64; i++) {
            if (store_lane_quiet(shared, slot)) {
                return true;
            }
        }
    } while (pl_now_ns() < until_ns);
    return false;
}

/* Until the device is through with the slot. false: the job has failed. */
static bool slot_wait(struct job *job, uint32_t slot)
{
    struct store_lane_slot *mailbox = &job->lane->shared->slot[slot];
    uint64_t sleep_ns = SLEEP_MIN_NS, hope_ns = pl_now_ns() + HOPE_NS;
    struct pl_err err = {0};

    if (!slot_spin(job->lane->shared, slot)) {
        for (;;) {
            uint64_t seen = store_lane_done(job->lane->shared, slot);

            if (seen == store_lane_asked(job->lane->shared, slot)) {
                break;
            }
            word_sleep(&mailbox->done, seen, sleep_ns);
            sleep_ns = pl_min_u64(2 * sleep_ns, SLEEP_MAX_NS);
            if (job_failed(job)) {
                return false;
            }
            if (pl_now_ns() >= pl_min_u64(hope_ns, job->transfer->deadline_ns)) {
                if (hope_check(job, &err) != PLASMON_OK) {
                    job_fail(job, &err);
                    return false;
                }
                hope_ns = pl_now_ns() + HOPE_NS;
            }
        }
    }
    if (mailbox->status != PLASMON_OK) {
        (void)pl_err_set(&err, (plasmon_status_t)mailbox->status,
                         "the device's worker refused it: %s",
                         pl_status_text((plasmon_status_t)mailbox->status));
        job_fail(job, &err);
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------- the threads */

/* Which of the job's slots belong to thread `index`: every threads-th. */
static uint32_t slots_of(const struct job *job, uint32_t index,
                         uint32_t mine[TRANSFER_SLOTS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = index; i < job->slot_count; i += job->threads) {
        mine[count++] = job->slots[i];
    }
    return count;
}

static void put_pump(void *user, uint32_t index)
{
    struct job *job = user;
    uint32_t mine[TRANSFER_SLOTS_MAX], count = slots_of(job, index, mine), used = 0;

    for (uint32_t turn = 0; count > 0; turn = (turn + 1) % count) {
        uint64_t piece = atomic_fetch_add(&job->piece_next, 1);

        if (piece >= job->piece_count) {
            break;
        }
        if (used == count && !slot_wait(job, mine[turn])) {
            return;
        }
        used = (uint32_t)pl_min_u64(used + 1, count);
        pl_copy(store_lane_data(job->lane->shared, mine[turn]),
                job->from + piece * job->piece_bytes, piece_bytes_of(job, piece));
        slot_ask(job, mine[turn], piece);
        (void)pl_fault_point("client.lane_put"); /* cannot fail; the process can end */
    }
    for (uint32_t i = 0; i < used; i++) {
        if (!slot_wait(job, mine[i])) {
            return;
        }
    }
}

static void get_pump(void *user, uint32_t index)
{
    struct job *job = user;
    /* that were asked for, a slot; piece_count: none */
    uint64_t pieces[TRANSFER_SLOTS_MAX];
    uint32_t mine[TRANSFER_SLOTS_MAX], count = slots_of(job, index, mine), waiting = 0;

    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = pl_min_u64(atomic_fetch_add(&job->piece_next, 1), job->piece_count);
        if (pieces[i] < job->piece_count) {
            slot_ask(job, mine[i], pieces[i]);
            waiting++;
        }
    }
    for (uint32_t turn = 0; waiting > 0; turn = (turn + 1) % count) {
        uint64_t piece = pieces[turn];

        if (piece == job->piece_count) {
            continue;
        }
        if (!slot_wait(job, mine[turn])) {
            return;
        }
        pl_copy(piece_to(job, piece), store_lane_data(job->lane->shared, mine[turn]),
                piece_bytes_of(job, piece));
        (void)pl_fault_point("client.lane_get"); /* likewise */
        pieces[turn] = pl_min_u64(atomic_fetch_add(&job->piece_next, 1), job->piece_count);
        if (pieces[turn] < job->piece_count) {
            slot_ask(job, mine[turn], pieces[turn]);
        } else {
            waiting--;
        }
    }
}

/* Into pieces, of which a lane has several in flight. */
static void job_cut(struct job *job)
{
    uint64_t bytes = job->transfer->bytes;

    job->piece_bytes =
        pl_min_u64(pl_max_u64(pl_round_up(bytes / 8, 64u << 10), PIECE_BYTES_MIN),
                   STORE_LANE_SLOT_BYTES);
    job->piece_count = (bytes + job->piece_bytes - 1) / job->piece_bytes;
}

static plasmon_status_t job_run(struct job *job, uint32_t threads,
                                void (*pump)(void *user, uint32_t index),
                                struct pl_err *err)
{
    plasmon_status_t status = closed_check(job->lane, err);

    if (status == PLASMON_OK) {
        status = slots_take(job, (uint32_t)pl_min_u64(job->piece_count, TRANSFER_SLOTS_MAX),
                            err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    /* A thread with a single slot would wait for the device after each piece. */
    job->threads = (uint32_t)pl_max_u64(pl_min_u64(threads, job->slot_count / 2), 1);
    parallel_run(job->threads, pump, job);
    slots_give_back(job);

    status = (plasmon_status_t)atomic_load(&job->status);
    if (status != PLASMON_OK) {
        *err = job->err;
    }
    return status;
}

plasmon_status_t lane_put(struct lane *lane, const struct lane_transfer *transfer,
                          const void *data, struct pl_err *err)
{
    struct job job = {
        .lane = lane, .transfer = transfer, .kind = STORE_LANE_PUT, .from = data};

    job_cut(&job);
    return job_run(&job, parallel_threads(transfer->bytes), put_pump, err);
}

plasmon_status_t lane_get(struct lane *lane, const struct lane_transfer *transfer,
                          void *data, struct pl_err *err)
{
    struct job job = {
        .lane = lane, .transfer = transfer, .kind = STORE_LANE_GET, .to = data};

    job_cut(&job);
    return job_run(&job, parallel_threads(transfer->bytes), get_pump, err);
}

plasmon_status_t lane_get_many(struct lane *lane, const struct lane_transfer *transfers,
                               void *const *data, uint32_t count, struct pl_err *err)
{
    struct job job = {.lane        = lane,
                      .transfer    = transfers,
                      .many        = data,
                      .kind        = STORE_LANE_GET,
                      .piece_count = count};

    return count == 0 ? PLASMON_OK : job_run(&job, 1, get_pump, err);
}
