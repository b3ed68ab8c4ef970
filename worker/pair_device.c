#include "worker/pair_device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "worker/executor.h"
#include "worker/pair_news.h"

/*
 * From when both sides have begun; NCCL takes a tenth of a second, the first time a second or two
 * (its kernels are loaded).
 */
#define OPEN_TIMEOUT_MS 30000u

static struct transfer_pair_key key_of(const struct worker_pair_key *key)
{
    return (struct transfer_pair_key){.peer     = key->peer,
                                      .receives = key->receives,
                                      .epoch    = key->epoch,
                                      .team     = key->team};
}

static_assert((int)WORKER_LANE_SENDS == (int)TRANSFER_LANE_SENDS &&
                  (int)WORKER_LANE_RECEIVES == (int)TRANSFER_LANE_RECEIVES &&
                  (int)WORKER_LANE_TEAMS == (int)TRANSFER_LANE_TEAMS,
              "the same lanes");

/* --------------------------------------------------------------- the host route instead */

static plasmon_status_t stage_send(struct worker_executor *executor,
                                   struct device_stream *stream,
                                   const struct transfer_half *half)
{
    struct transfer_ring ring;
    plasmon_status_t status;

    if (half->host_device >= executor->shared->host_device_count) {
        return worker_bulk_send(&executor->bulk, stream, half->key.peer, half->first_chunk,
                                half->ptr, half->bytes, half->with_bytes);
    }
    status = worker_executor_ring(executor, half->host_device, &ring);
    return status == PLASMON_OK
               ? transfer_stage_send(stream, &ring, half->first_chunk, half->ptr,
                                     half->bytes, half->with_bytes)
               : status;
}

static plasmon_status_t stage_recv(struct worker_executor *executor,
                                   struct device_stream *stream,
                                   const struct transfer_half *half)
{
    struct transfer_ring ring;
    plasmon_status_t status =
        worker_executor_ring(executor, executor->shared->host_device, &ring);

    if (status == PLASMON_OK && half->host_device >= executor->shared->host_device_count) {
        status = worker_bulk_expect(&executor->bulk, half->key.peer, half->first_chunk,
                                    half->bytes);
    }
    return status == PLASMON_OK
               ? transfer_stage_recv(stream, &ring, half->first_chunk, half->ptr,
                                     half->bytes, half->with_bytes, &executor->counters)
               : status;
}

/* Why it may have failed is told with its launch. */
static plasmon_status_t stage_alone(struct worker_executor *executor,
                                    struct device_stream *stream,
                                    const struct transfer_half *half)
{
    executor->alone = stream;
    worker_core_alone(executor->core, half->seq);
    executor->alone = NULL;
    return PLASMON_OK;
}

static plasmon_status_t stage(void *user, struct device_stream *stream,
                              const struct transfer_half *half)
{
    if (half->key.team != 0) {
        return stage_alone(user, stream, half);
    }
    return half->key.receives ? stage_recv(user, stream, half)
                              : stage_send(user, stream, half);
}

static void stuck(void *user, const char *text)
{
    const struct worker_executor *executor = user;

    executor->reports->stuck(executor->reports->user, text);
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t worker_pairs_start(struct worker_executor *executor, const char *address,
                                    struct pl_err *err)
{
    bool other_hosts = address != NULL && strcmp(address, "none") != 0;
    const struct transfer_pairs_config config = {
        .device    = executor->device,
        .address   = other_hosts ? address : NULL,
        .timeline  = executor->shared->timelines[executor->shared->host_device],
        .counters  = &executor->counters,
        .notify_fd = executor->notify_fd,
        .stage     = stage,
        .stuck     = stuck,
        .user      = executor,
    };
    plasmon_status_t status = transfer_pairs_create(&config, &executor->pairs);

    return status == PLASMON_OK ? status
                                : pl_err_set(err, status, "pairs with other devices: %s",
                                             pl_status_text(status));
}

/* "10.0.0.1" -> "eth0"; false: no interface has that address. */
static bool interface_of(const char *address, char *out, size_t out_bytes)
{
    struct ifaddrs *all, *one;
    bool found = false;

    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (one = all; one != NULL && !found; one = one->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "", bracketed[INET6_ADDRSTRLEN + 2];
        int family = one->ifa_addr != NULL ? one->ifa_addr->sa_family : AF_UNSPEC;

        if (family == AF_INET) {
            (void)inet_ntop(family,
                            &((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr, text,
                            sizeof(text));
        } else if (family == AF_INET6) {
            (void)inet_ntop(family,
                            &((struct sockaddr_in6 *)(void *)one->ifa_addr)->sin6_addr,
                            text, sizeof(text));
        }
        (void)snprintf(bracketed, sizeof(bracketed), "[%s]", text);
        found = text[0] != '\0' &&
                (strcmp(text, address) == 0 || strcmp(bracketed, address) == 0);
        if (found) {
            (void)snprintf(out, out_bytes, "=%s", one->ifa_name);
        }
    }
    freeifaddrs(all);
    return found;
}

void worker_pairs_environment(const char *address, uint32_t host_device)
{
    const char *split = getenv("PLASMON_NCCL_SPLIT_HOST");
    char name[64]     = "=lo";

    /*
     * No memory for any of these: NCCL chooses for itself, and what it must not use is refused
     * again where it is loaded.
     */
    (void)setenv("NCCL_NVLS_ENABLE", "0", 1);
    /*
     * What it listens on neither authenticates nor encrypts: the interface that was declared
     * private, or none at all.
     */
    if (address == NULL || strcmp(address, "none") == 0 ||
        interface_of(address, name, sizeof(name))) {
        (void)setenv("NCCL_SOCKET_IFNAME", name, 0);
    } else if (getenv("NCCL_SOCKET_IFNAME") == NULL) {
        pl_warn("worker",
                "no interface of this host has the address %s (--bulk-address), so NCCL "
                "listens on one of its own choice, which may be a public one; name the "
                "private one in NCCL_SOCKET_IFNAME",
                address);
    }
    if (split != NULL && strcmp(split, "1") == 0) {
        /* tests: over the network on one host */
        (void)snprintf(name, sizeof(name), "plasmon-device-%u", host_device);
        (void)setenv("NCCL_HOSTID", name, 0);
    }
}

/* ----------------------------------------------------------------------- the core's ops */

/*
 * What the host route instead will need, while nothing is on the device: page-locking waits for an
 * abort that is under way, and that for streams that wait for halves which go that way.
 */
static plasmon_status_t prepare(struct worker_executor *executor,
                                const struct worker_pair_key *key,
                                const struct worker_pair_shape *shape)
{
    struct transfer_ring ring;

    if (key->team != 0) {
        return PLASMON_OK;
    }
    if (key->receives) {
        return worker_executor_ring(executor, executor->shared->host_device, &ring);
    }
    return shape->remote ? worker_bulk_prepare(&executor->bulk, key->peer)
                         : worker_executor_ring(executor, shape->host_device, &ring);
}

plasmon_status_t worker_pair_op_open(void *user, const struct worker_pair_key *key,
                                     const struct worker_pair_shape *shape,
                                     const uint8_t *id)
{
    struct worker_executor *executor         = user;
    const struct transfer_pair_key its       = key_of(key);
    const struct transfer_pair_shape so_wide = {.rank   = shape->ranks != 0 ? shape->rank
                                                                            : key->receives,
                                                .ranks  = shape->ranks,
                                                .remote = shape->remote};

    plasmon_status_t status =
        executor->pairs == NULL ? PLASMON_ENOTSUP : prepare(executor, key, shape);

    return status == PLASMON_OK
               ? transfer_pair_open(executor->pairs, &its, &so_wide, id, OPEN_TIMEOUT_MS)
               : status;
}

void worker_pair_op_close(void *user, const struct worker_pair_key *key)
{
    struct worker_executor *executor   = user;
    const struct transfer_pair_key its = key_of(key);

    transfer_pair_close(executor->pairs, &its);
}

void worker_pair_op_break(void *user, const struct worker_pair_key *key)
{
    struct worker_executor *executor   = user;
    const struct transfer_pair_key its = key_of(key);

    transfer_pair_break(executor->pairs, &its);
}

void worker_pair_op_abort(void *user, const struct worker_pair_key *key)
{
    struct worker_executor *executor   = user;
    const struct transfer_pair_key its = key_of(key);

    transfer_pair_abort(executor->pairs, &its);
}

void worker_pair_op_free(void *user, const struct worker_pair_key *key)
{
    struct worker_executor *executor   = user;
    const struct transfer_pair_key its = key_of(key);

    transfer_pair_free(executor->pairs, &its);
}

bool worker_pair_op_room(void *user, uint32_t lane)
{
    struct worker_executor *executor = user;

    return transfer_pair_room(executor->pairs, lane);
}

bool worker_pair_op_settled(void *user, uint32_t lane)
{
    struct worker_executor *executor = user;

    return executor->pairs == NULL || transfer_pairs_settled(executor->pairs, lane);
}

plasmon_status_t worker_pair_op_move(void *user, uint32_t stream,
                                     const struct worker_half *half)
{
    struct worker_executor *executor = user;
    struct store_timeline *own = executor->shared->timelines[executor->shared->host_device];
    bool with_bytes            = half->offset != WORKER_NOWHERE;
    const struct transfer_half its = {
        .key         = key_of(&half->key),
        .host_device = half->host_device,
        .seq         = half->seq,
        .first_chunk = half->first_chunk,
        .ptr         = worker_memory_own(executor->memory, with_bytes ? half->offset : 0),
        .bytes       = half->bytes,
        .with_bytes  = with_bytes,
        .member      = worker_memory_own(executor->memory, half->member_offset),
        .collective  = half->collective,
        .dtype       = half->dtype,
        .op          = half->op,
        .word        = half->signals ? &own->stream[stream].value : NULL,
    };
    plasmon_status_t status =
        transfer_pair_move(executor->pairs, executor->streams[stream], &its);

    if (status == PLASMON_OK && half->signals) {
        status = worker_executor_notify(executor, stream);
    }
    return worker_executor_must(executor, status);
}

plasmon_status_t worker_pair_op_stage(void *user, const struct worker_pair_key *key,
                                      uint64_t *out_first)
{
    struct worker_executor *executor   = user;
    const struct transfer_pair_key its = key_of(key);

    *out_first = 0;
    return executor->pairs == NULL
               ? PLASMON_OK
               : worker_executor_must(
                     executor, transfer_pair_stage(executor->pairs, &its, out_first));
}

void worker_pair_op_sent(void *user, uint64_t seq)
{
    struct worker_executor *executor = user;

    if (executor->pairs != NULL) {
        transfer_pair_sent(executor->pairs, seq);
    }
}

void worker_pair_op_report(void *user, const struct worker_pair_report *report)
{
    const struct worker_executor *executor = user;

    executor->reports->pair(executor->reports->user, report);
}

/* --------------------------------------------------------------------------------- news */

static void news_take(struct worker_executor *executor,
                      const struct transfer_pair_news *news)
{
    struct worker_pair_report report;

    if (news->event == TRANSFER_PAIR_TURN) {
        (void)worker_executor_must(executor, transfer_pairs_stage_next(executor->pairs));
        return;
    }
    if (news->event == TRANSFER_PAIR_TROUBLE && news->key.team != 0) {
        pl_warn("worker", "team %u: %s", news->key.team, news->text);
    } else if (news->event == TRANSFER_PAIR_TROUBLE) {
        pl_warn("worker", "pair %s device %u: %s", news->key.receives ? "from" : "to",
                news->key.peer, news->text);
    }
    if (worker_pair_news(executor->core, news, &report)) {
        executor->reports->pair(executor->reports->user, &report);
    }
}

void worker_pairs_collect(struct worker_executor *executor)
{
    struct transfer_pair_news news;

    while (executor->pairs != NULL && transfer_pairs_news(executor->pairs, &news)) {
        news_take(executor, &news);
    }
}
