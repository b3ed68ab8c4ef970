/*
 * Inside of the stand-in for NCCL: comm.c opens and ends communicators, comm_ops.c has what goes
 * through them.
 */
#ifndef DEVICE_CPU_COMM_INT_H
#define DEVICE_CPU_COMM_INT_H

#include "device/cpu/cpu_int.h"

#include <assert.h>
#include <netinet/in.h>

#define COMM_SECRET          16u
#define COMM_ACKNOWLEDGEMENT 0x6bu

struct comm_id {
    uint64_t magic;
    uint32_t address_bytes;
    struct sockaddr_in6 address; /* or the shorter struct sockaddr_in */
    uint8_t secret[COMM_SECRET];
};
static_assert(sizeof(struct comm_id) <= DEVICE_COMM_ID_BYTES, "an id has room for it");

/* What a rank says first to rank 0. */
struct comm_greeting {
    uint8_t secret[COMM_SECRET];
    uint8_t rank;
};
static_assert(sizeof(struct comm_greeting) == COMM_SECRET + 1, "bytes side by side");

enum comm_state { COMM_CONNECTING, COMM_GREETING, COMM_OPEN };

/* A star: every rank is connected with rank 0. */
struct cpu_comm {
    struct device_comm base;
    struct comm_id id;
    bool remote;
    _Atomic uint32_t refs; /* who opened it, and every operation under way */
    _Atomic bool aborted;
    _Atomic bool broken; /* another side is gone, or does not keep to the order */
    enum comm_state state;
    int listen_fd;                 /* rank 0 */
    int fd[DEVICE_COMM_RANKS_MAX]; /* rank 0: of each other rank; else: fd[0], of rank 0 */
    int guest[DEVICE_COMM_RANKS_MAX]; /* rank 0: connected, and not greeted yet */
    uint32_t guests;
    uint32_t greeted;
};

struct cpu_comm *device_cpu_comm_of(struct device_comm *comm);
void device_cpu_comm_release(struct cpu_comm *comm);

#endif
