/*
 * Sending to one device: a ring of pinned slots that our device fills, and a thread that sends them in order.
 *
 * A slot is free when the receiver has answered its chunk, so that whatever was not answered can be sent once more over the next
 * connection. The receiver knows by number what it has. Items are therefore kept until they are answered: `sent` of them are on
 * the way, the first of the FIFO is the oldest.
 *
 * A peer that is gone answers nothing more: items are taken as answered as soon as our device has done its half.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "transfer/bulk_int.h"

#define SLAB_BYTES     ((uint64_t)TRANSFER_BULK_OUT_SLOTS * STORE_STAGE_SLOT_BYTES)
#define WORDS_BYTES    4096u
#define ITEMS_OVER_MAX 1024u /* at the front of the FIFO before it is moved up */

/* The thread's own. */
struct sender {
    struct bulk_out *out;
    struct transfer_bulk_endpoint endpoint;
    uint32_t endpoint_version;
    int fd;
    uint32_t sent;     /* items at the front of the FIFO that are on the way */
    uint32_t retry_ms; /* before the next connection */
    uint64_t heard_ns; /* when the other side last got on */
};

/* ------------------------------------------------------------------------------------------------ items */

static bool item_at(struct bulk_out *out, uint32_t index, struct bulk_item *item)
{
    bool there;

    *item = (struct bulk_item){0};
    pl_mutex_lock(&out->lock);
    there = out->items_first + index < out->items.count;
    if (there) {
        *item = *(struct bulk_item *)pl_vec_at(&out->items, out->items_first + index);
    }
    pl_mutex_unlock(&out->lock);
    return there;
}

static void item_over(struct bulk_out *out, const struct bulk_item *item)
{
    struct bulk_item *items;

    pl_mutex_lock(&out->lock);
    items = out->items.items;
    if (++out->items_first == out->items.count || out->items_first >= ITEMS_OVER_MAX) {
        out->items.count -= out->items_first;
        memmove(items, items + out->items_first, out->items.count * sizeof(*items));
        out->items_first = 0;
    }
    pl_mutex_unlock(&out->lock);
    /* Release: nothing of the slot is read after this. */
    __atomic_store_n(&out->words->sent.value, item->own + 1, __ATOMIC_RELEASE);
    device_word_wake(&out->words->sent.value);
}

/* Our device has put it into its slot. */
static bool item_ready(const struct bulk_out *out, const struct bulk_item *item)
{
    return __atomic_load_n(&out->words->ready[item->own % TRANSFER_BULK_OUT_SLOTS].value,
                           __ATOMIC_ACQUIRE) > item->own;
}

static uint8_t *item_slot(const struct bulk_out *out, const struct bulk_item *item)
{
    return out->slab +
           item->own % TRANSFER_BULK_OUT_SLOTS * (uint64_t)STORE_STAGE_SLOT_BYTES;
}

/* ------------------------------------------------------------------------------------------------ the connection */

static void disconnect(struct sender *sender, plasmon_status_t status)
{
    if (sender->fd >= 0) {
        pl_debug("bulk", "connection to device %u ends: %s", sender->out->peer,
                 pl_status_text(status));
    }
    pl_fd_close(&sender->fd);
    sender->sent = 0; /* all that was not answered goes again */
}

static plasmon_status_t introduce(struct sender *sender, int stop_fd)
{
    struct transfer_bulk *bulk = sender->out->bulk;
    struct bulk_hello hello    = {
           .magic = BULK_MAGIC, .version = BULK_VERSION, .from = atomic_load(&bulk->device)};
    struct bulk_answer answer;
    plasmon_status_t status;

    memcpy(hello.secret, sender->endpoint.secret, sizeof(hello.secret));
    status = bulk_write(sender->fd, stop_fd, &hello, sizeof(hello), BULK_STALL_NS);
    if (status == PLASMON_OK) {
        status = bulk_read(sender->fd, stop_fd, &answer, sizeof(answer), BULK_STALL_NS);
    }
    return status == PLASMON_OK && answer.chunk != BULK_MAGIC ? PLASMON_EVERSION : status;
}

/* After a failure, longer each time. */
static void connect_again(struct sender *sender)
{
    struct transfer_bulk *bulk = sender->out->bulk;
    struct pollfd stop         = {.fd = bulk->stop_fd, .events = POLLIN};
    struct pl_err err          = {.status = PLASMON_OK};
    plasmon_status_t status;

    status = bulk_connect(sender->endpoint.address, bulk->stop_fd, &sender->fd, &err);
    if (status == PLASMON_OK) {
        status = introduce(sender, bulk->stop_fd);
    }
    if (status == PLASMON_OK) {
        sender->retry_ms = 0;
        sender->heard_ns = pl_now_ns();
        return;
    }
    if (sender->retry_ms == 0 || sender->retry_ms >= BULK_RETRY_MAX_MS) {
        pl_info("bulk", "device %u at %s cannot be reached: %s", sender->out->peer,
                sender->endpoint.address,
                err.text[0] != '\0' ? err.text : pl_status_text(status));
    }
    disconnect(sender, status);
    sender->retry_ms = (uint32_t)pl_min_u64(
        pl_max_u64(sender->retry_ms * 2ull, BULK_RETRY_MIN_MS), BULK_RETRY_MAX_MS);
    (void)poll(&stop, 1, (int)sender->retry_ms);
}

/* Another endpoint (the peer's worker was restarted), or none at all any more. */
static bool news_taken(struct sender *sender)
{
    struct bulk_out *out = sender->out;
    bool gone, changed;

    pl_mutex_lock(&out->lock);
    gone    = out->gone;
    changed = out->endpoint_version != sender->endpoint_version;
    if (changed) {
        sender->endpoint         = out->endpoint;
        sender->endpoint_version = out->endpoint_version;
    }
    pl_mutex_unlock(&out->lock);
    if (changed || gone) {
        disconnect(sender, PLASMON_OK);
        sender->retry_ms = 0;
    }
    return gone;
}

/* ------------------------------------------------------------------------------------------------ steps */

/* Answers that are there. ECONNECT: it is closed. */
static plasmon_status_t answers_take(struct sender *sender)
{
    while (sender->sent > 0) {
        struct bulk_answer answer;
        struct bulk_item item;
        ssize_t got = recv(sender->fd, &answer, sizeof(answer), MSG_PEEK);

        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return PLASMON_OK;
        }
        if (got <= 0) {
            return PLASMON_ECONNECT;
        }
        if ((size_t)got < sizeof(answer)) {
            return PLASMON_OK; /* the rest comes */
        }
        if (recv(sender->fd, &answer, sizeof(answer), 0) != (ssize_t)sizeof(answer) ||
            !item_at(sender->out, 0, &item) || answer.chunk != item.chunk) {
            return PLASMON_EMALFORMED;
        }
        item_over(sender->out, &item);
        sender->sent--;
        sender->heard_ns = pl_now_ns();
    }
    return PLASMON_OK;
}

static plasmon_status_t item_send(struct sender *sender, const struct bulk_item *item)
{
    struct bulk_frame frame = {.chunk = item->chunk, .bytes = item->bytes};
    int stop_fd             = sender->out->bulk->stop_fd;
    plasmon_status_t status =
        bulk_write(sender->fd, stop_fd, &frame, sizeof(frame), BULK_STALL_NS);

    if (status == PLASMON_OK) {
        status = bulk_write(sender->fd, stop_fd, item_slot(sender->out, item), item->bytes,
                            BULK_STALL_NS);
    }
    if (status == PLASMON_OK) {
        sender->sent++;
    }
    return status;
}

/* Nothing to send just now: until an answer, news, or (a device is filling a slot) a moment is over. */
static void rest(struct sender *sender, bool device_busy, uint32_t *io_looks)
{
    struct bulk_out *out = sender->out;
    struct pollfd fds[3] = {{.fd = out->wake_fd, .events = POLLIN},
                            {.fd = out->bulk->stop_fd, .events = POLLIN},
                            {.fd = sender->sent > 0 ? sender->fd : -1, .events = POLLIN}};
    uint64_t count;

    if (device_busy && *io_looks < 20000) {
        bulk_pause(io_looks);
        if (*io_looks % 64 != 0) {
            return;
        }
        (void)poll(fds, 3, 0);
    } else {
        (void)poll(fds, 3, device_busy ? 1 : 1000);
    }
    if (fds[0].revents != 0 && read(out->wake_fd, &count, sizeof(count)) < 0) {
        pl_debug("bulk", "eventfd: %s", strerror(errno)); /* EAGAIN: drained already */
    }
}

static void send_step(struct sender *sender, uint32_t *io_looks)
{
    plasmon_status_t status = PLASMON_OK;
    struct bulk_item item;
    bool there = item_at(sender->out, sender->sent, &item);

    if (there && sender->fd < 0) {
        connect_again(sender);
        return;
    }
    if (sender->fd >= 0) {
        status = answers_take(sender);
        if (sender->sent > 0 && pl_now_ns() - sender->heard_ns > BULK_STALL_NS &&
            status == PLASMON_OK) {
            /* Slow is not stuck: the receiver's device may have other work before it takes chunks. Ask by connecting again. */
            status = PLASMON_ETIMEDOUT;
        }
    }
    if (status == PLASMON_OK && there && item_ready(sender->out, &item)) {
        if (sender->sent == 0) {
            sender->heard_ns = pl_now_ns();
        }
        *io_looks = 0;
        status    = item_send(sender, &item);
    } else if (status == PLASMON_OK) {
        rest(sender, there, io_looks);
    }
    if (status != PLASMON_OK) {
        disconnect(sender, status);
    }
}

/* The peer is gone: our device's half goes on without it. */
static void drain_step(struct sender *sender, uint32_t *io_looks)
{
    struct bulk_item item;
    bool there = item_at(sender->out, 0, &item);

    if (there && item_ready(sender->out, &item)) {
        *io_looks = 0;
        item_over(sender->out, &item);
    } else {
        rest(sender, there, io_looks);
    }
}

static bool stopped(struct bulk_out *out)
{
    return atomic_load(&out->bulk->stop);
}

static void *out_run(void *user)
{
    struct bulk_out *out = user;
    struct sender sender = {.out = out, .fd = -1};
    uint32_t looks       = 0;

    while (!stopped(out)) {
        if (news_taken(&sender)) {
            drain_step(&sender, &looks);
        } else {
            send_step(&sender, &looks);
        }
    }
    disconnect(&sender, PLASMON_OK);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ life */

plasmon_status_t bulk_out_create(struct transfer_bulk *bulk, uint32_t peer,
                                 struct bulk_out **out_out)
{
    struct bulk_out *out = PL_NEW(struct bulk_out);
    plasmon_status_t status;

    if (out == NULL) {
        return PLASMON_ENOMEM;
    }
    out->bulk    = bulk;
    out->peer    = peer;
    out->wake_fd = -1;
    out->items   = PL_VEC_INIT(struct bulk_item);
    status       = pl_mutex_init(&out->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        pl_free(out);
        return status;
    }
    *out_out = out;
    return PLASMON_OK;
}

/* With the first transfer: 64 MiB of pinned memory and a thread are not for peers that nothing is sent to. */
plasmon_status_t bulk_out_start(struct bulk_out *out)
{
    struct device *device = out->bulk->config.device;
    uint8_t *slab         = mmap(NULL, SLAB_BYTES + WORDS_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    plasmon_status_t status;

    if (slab == MAP_FAILED) {
        return PLASMON_ENOMEM;
    }
    status = device_host_register(device, slab, SLAB_BYTES + WORDS_BYTES);
    if (status != PLASMON_OK) {
        goto err_unmap;
    }
    out->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (out->wake_fd < 0) {
        status = pl_status_from_errno(errno);
        goto err_unregister;
    }
    out->slab  = slab;
    out->words = (struct bulk_words *)(void *)(slab + SLAB_BYTES);
    if (pthread_create(&out->thread, NULL, out_run, out) != 0) {
        status = PLASMON_EAGAIN;
        goto err_close;
    }
    return PLASMON_OK;

err_close:
    out->slab = NULL;
    pl_fd_close(&out->wake_fd);
err_unregister:
    device_host_unregister(device, slab);
err_unmap:
    (void)munmap(slab, SLAB_BYTES + WORDS_BYTES);
    return status;
}

void bulk_out_destroy(struct bulk_out *out)
{
    if (out->slab != NULL) {
        (void)pthread_join(out->thread, NULL);
        pl_fd_close(&out->wake_fd);
        device_host_unregister(out->bulk->config.device, out->slab);
        (void)munmap(out->slab, SLAB_BYTES + WORDS_BYTES);
    }
    pl_mutex_finish(&out->lock);
    pl_vec_finish(&out->items);
    pl_free(out);
}
