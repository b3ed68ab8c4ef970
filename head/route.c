/*
 * For people: by which route a large transfer between two devices goes now, and why; what follows
 * is decided in move.c, pair.c and rates.c.
 */
#include <stdio.h>

#include "head/core_int.h"

/* "2.28.9" of NCCL's 22809; what stands in for it on CPU devices has small numbers. */
static const char *version_text(uint32_t version, char text[16])
{
    if (version < 10000) {
        (void)snprintf(text, 16, "%u", version);
    } else {
        (void)snprintf(text, 16, "%u.%u.%u", version / 10000, version / 100 % 100,
                       version % 100);
    }
    return text;
}

const char *head_pair_missing(const struct head_device *from, const struct head_device *to,
                              char text[HEAD_WHY_BYTES])
{
    const struct head_device *lacks = from->comm_version == 0 ? from : to;
    char one[16], other[16];

    if (head_pair_possible(from, to)) {
        return NULL;
    }
    if (from->kind != to->kind) {
        return "they are of different kinds";
    }
    if (lacks->comm_version == 0) {
        (void)snprintf(text, HEAD_WHY_BYTES, "device %u has no NCCL: %s", lacks->index,
                       lacks->comm_missing);
        return text;
    }
    if (from->comm_version != to->comm_version) {
        (void)snprintf(
            text, HEAD_WHY_BYTES,
            "they have different versions of it: device %u has %s and device %u has %s; "
            "install the same on all hosts, or name one with PLASMON_NCCL_LIBRARY",
            from->index, version_text(from->comm_version, one), to->index,
            version_text(to->comm_version, other));
        return text;
    }
    return "it does not encrypt, and their stores do (--tls-cert); if the network is "
           "yours alone, start them with --bulk-plain instead";
}

static bool is_measured(const struct head_rate *rate)
{
    return rate->rate_samples >= HEAD_RATE_SAMPLES;
}

/* ".. 4.5 GB/s", or that nothing is known. */
static const char *rate_text(const struct head_rate *rate, char text[48])
{
    if (!is_measured(rate)) {
        return "not measured yet";
    }
    (void)snprintf(text, 48, "%.1f GB/s measured", (double)rate->bytes_per_s / 1e9);
    return text;
}

static uint32_t within_host(const struct head_device *from, const struct head_device *to,
                            char why[HEAD_WHY_BYTES])
{
    bool peer = from->kind == to->kind && from->peer_capable && to->peer_capable;
    const struct head_device *lacks = !from->peer_capable ? from : to;

    if (peer) {
        (void)snprintf(why, HEAD_WHY_BYTES,
                       "one host, and each can map the other's memory: one copy by who "
                       "wants the bytes, and nobody else takes part");
    } else if (from->kind != to->kind) {
        (void)snprintf(why, HEAD_WHY_BYTES, "one host, but they are of different kinds");
    } else {
        (void)snprintf(why, HEAD_WHY_BYTES,
                       "one host, but the memory of device %u cannot be mapped by others",
                       lacks->index);
    }
    return peer ? HEAD_ROUTE_PEER : HEAD_ROUTE_HOST;
}

/* Both ways are there. */
static uint32_t between_gpus(struct head_core *core, const struct head_device *from,
                             const struct head_device *to, char why[HEAD_WHY_BYTES])
{
    static const struct head_way none;
    const struct head_way *way = head_rates_way(core, from->index, to->index);
    uint32_t route = head_pair_serves(core, from, to) ? HEAD_ROUTE_NCCL : HEAD_ROUTE_HOST;
    char nccl[48], tcp[48];

    way = way != NULL ? way : &none;
    if (way->chosen == 0) {
        (void)snprintf(why, HEAD_WHY_BYTES,
                       "two hosts: NCCL once enough went another way to pay for a pair "
                       "(64 MiB, twice as much after each failure), until both are "
                       "measured (NCCL: %s, TCP: %s)",
                       rate_text(&way->rates[HEAD_ROUTE_NCCL], nccl),
                       rate_text(&way->rates[HEAD_ROUTE_HOST], tcp));
        return route;
    }
    (void)snprintf(why, HEAD_WHY_BYTES, "two hosts, %s is faster: NCCL %s, TCP %s%s",
                   way->chosen == HEAD_ROUTE_NCCL ? "NCCL" : "TCP",
                   rate_text(&way->rates[HEAD_ROUTE_NCCL], nccl),
                   rate_text(&way->rates[HEAD_ROUTE_HOST], tcp),
                   way->chosen == HEAD_ROUTE_NCCL && route == HEAD_ROUTE_HOST
                       ? "; but there is no pair just now"
                       : "");
    return way->chosen == HEAD_ROUTE_NCCL ? route : HEAD_ROUTE_HOST;
}

static uint32_t between_hosts(struct head_core *core, const struct head_device *from,
                              const struct head_device *to, char why[HEAD_WHY_BYTES])
{
    char text[HEAD_WHY_BYTES];
    const char *missing = head_pair_missing(from, to, text);

    if (core->config.transfer != HEAD_TRANSFER_AUTO) {
        (void)snprintf(why, HEAD_WHY_BYTES, "two hosts, over TCP: --transfer peer");
    } else if (from->kind != 2 || to->kind != 2) {
        (void)snprintf(why, HEAD_WHY_BYTES,
                       "two hosts, over TCP: `auto` takes NCCL between GPUs alone");
    } else if (missing != NULL) {
        (void)snprintf(why, HEAD_WHY_BYTES, "two hosts, over TCP, not by NCCL: %s",
                       missing);
    } else {
        return between_gpus(core, from, to, why);
    }
    return HEAD_ROUTE_HOST;
}

uint32_t head_route_plan(struct head_core *core, const struct head_device *from,
                         const struct head_device *to, char why[HEAD_WHY_BYTES])
{
    char text[HEAD_WHY_BYTES];
    const char *missing, *apart;

    if (core->config.transfer == HEAD_TRANSFER_NCCL) {
        missing = head_pair_missing(from, to, text);
        (void)snprintf(why, HEAD_WHY_BYTES, "--transfer nccl%s%s",
                       missing != NULL ? ", and nothing can go by it: " : "",
                       missing != NULL ? missing : "");
        return HEAD_ROUTE_NCCL;
    }
    if (!head_move_possible(from, to)) {
        (void)snprintf(why, HEAD_WHY_BYTES,
                       "nothing can go: the store of device %u takes no part in transfers "
                       "between hosts: start it with --bulk-address",
                       from->bulk_address[0] == '\0' ? from->index : to->index);
        return HEAD_ROUTE_HOST;
    }
    apart = head_reach_why(core, from, to);
    if (apart != NULL) { /* the same text for all devices of two hosts */
        (void)snprintf(why, HEAD_WHY_BYTES, "nothing gets through now from %s to %s%s: %s",
                       from->node, to->node,
                       head_reach_hosts(core, from, to) != NULL
                           ? ""
                           : " between these two devices, though others do",
                       apart);
        return HEAD_ROUTE_HOST;
    }
    if (core->config.transfer == HEAD_TRANSFER_HOST) {
        (void)snprintf(why, HEAD_WHY_BYTES, "--transfer host");
        return HEAD_ROUTE_HOST;
    }
    return head_device_apart(from, to) ? between_hosts(core, from, to, why)
                                       : within_host(from, to, why);
}
