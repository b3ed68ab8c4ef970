#include "store/lanes.h"

#include <sys/stat.h>

#include "base/fd.h"

static void lane_give(struct store_host_lane *lane, uint32_t reader)
{
    lane->reader         = reader;
    lane->shared->reader = reader;
}

static bool lane_closed(const struct store_host_lane *lane)
{
    return __atomic_load_n(&lane->shared->closed, __ATOMIC_ACQUIRE) != 0;
}

/* Whoever has it next asks, and its worker tries again to pin it. */
static void lane_open(const struct store_host_lane *lane)
{
    __atomic_store_n(&lane->shared->closed, 0, __ATOMIC_RELEASE);
}

static bool lane_quiet(const struct store_host_lane *lane)
{
    for (uint32_t i = 0; i < STORE_LANE_SLOTS; i++) {
        if (!store_lane_quiet(lane->shared, i)) {
            return false;
        }
    }
    return true;
}

static struct store_host_lane *lane_find(struct store_host_device *device, uint32_t reader)
{
    for (uint32_t i = 0; i < device->lane_count; i++) {
        if (device->lanes[i].reader == reader) {
            return &device->lanes[i];
        }
    }
    return NULL;
}

static plasmon_status_t lane_make(struct store_host_device *device)
{
    struct store_host_lane *lane = &device->lanes[device->lane_count];
    void *memory;
    plasmon_status_t status;

    *lane  = (struct store_host_lane){.fd = -1, .reader = STORE_LANE_FREE};
    status = pl_memfd_create("plasmon-lane", STORE_LANE_BYTES, &lane->fd);
    if (status != PLASMON_OK) {
        return status;
    }
    /* the words are all we look at */
    status = pl_fd_map(lane->fd, STORE_LANE_DATA, 1, &memory);
    if (status != PLASMON_OK) {
        pl_fd_close(&lane->fd);
        return status;
    }
    lane->shared        = memory;
    lane->shared->magic = STORE_LANE_MAGIC;
    device->lane_count++;
    return PLASMON_OK;
}

bool store_lanes_have(const struct store_host *host, uint32_t device, int fd)
{
    const struct store_host_device *owner = &host->devices[device];
    struct stat given, there;

    for (uint32_t i = 0; i < owner->lane_count; i++) {
        if (fstat(fd, &given) == 0 && fstat(owner->lanes[i].fd, &there) == 0 &&
            given.st_dev == there.st_dev && given.st_ino == there.st_ino) {
            return true;
        }
    }
    return false;
}

plasmon_status_t store_lanes_keep(struct store_host *host, uint32_t device, int fd)
{
    struct store_host_device *owner = &host->devices[device];
    struct store_host_lane *lane    = &owner->lanes[owner->lane_count];
    plasmon_status_t status         = PLASMON_ELIMIT;
    void *memory                    = NULL;

    if (owner->lane_count < STORE_LANES_MAX) {
        status = pl_fd_holds(fd, STORE_LANE_BYTES)
                     ? pl_fd_map(fd, STORE_LANE_DATA, 1, &memory)
                     : PLASMON_EMALFORMED;
    }
    if (status != PLASMON_OK) {
        pl_fd_close(&fd);
        return status;
    }
    *lane =
        (struct store_host_lane){.shared = memory,
                                 .fd     = fd,
                                 .reader = (uint32_t)((struct store_lane *)memory)->reader};
    owner->lane_count++; /* its own number: store_lanes_finish() ends it, whatever it is */
    return lane->shared->magic == STORE_LANE_MAGIC ? PLASMON_OK : PLASMON_EVERSION;
}

plasmon_status_t store_lanes_take(struct store_host *host, uint32_t device, uint32_t reader,
                                  struct store_host_lane **out_lane, bool *out_new)
{
    struct store_host_device *owner = &host->devices[device];
    plasmon_status_t status;

    PL_CHECK(device < host->device_count);
    if (owner->lanes_closed) {
        return PLASMON_EUNREACHABLE;
    }
    *out_new  = false;
    *out_lane = lane_find(owner, reader); /* one a client: what it asks for again it has */
    for (uint32_t i = 0; *out_lane == NULL && i < owner->lane_count; i++) {
        struct store_host_lane *lane = &owner->lanes[i];

        if (lane->reader == STORE_LANE_FREE && !lane_closed(lane) && lane_quiet(lane)) {
            lane_give(lane, reader);
            *out_lane = lane;
        }
    }
    for (uint32_t i = 0; *out_lane == NULL && i < owner->lane_count; i++) {
        struct store_host_lane *lane = &owner->lanes[i];

        /* Nothing of it is on a device, whatever its last client asked for. */
        if (lane->reader == STORE_LANE_FREE && lane_closed(lane)) {
            lane_give(lane, reader);
            lane_open(lane);
            *out_lane = lane;
        }
    }
    if (*out_lane != NULL) {
        return PLASMON_OK;
    }
    if (owner->lane_count == STORE_LANES_MAX) {
        return PLASMON_EAGAIN;
    }
    status = lane_make(owner);
    if (status != PLASMON_OK) {
        return status;
    }
    *out_lane = &owner->lanes[owner->lane_count - 1];
    *out_new  = true;
    lane_give(*out_lane, reader);
    return PLASMON_OK;
}

uint64_t store_lanes_release(struct store_host *host, uint32_t reader)
{
    uint64_t busy = 0;

    static_assert(STORE_HOST_DEVICE_MAX <= 64, "a bit a device");
    for (uint32_t i = 0; i < host->device_count; i++) {
        struct store_host_device *device = &host->devices[i];

        for (uint32_t k = 0; k < device->lane_count; k++) {
            struct store_host_lane *lane = &device->lanes[k];

            if (lane->reader == reader) {
                lane_give(lane, STORE_LANE_FREE);
                busy |= lane_quiet(lane) ? 0 : UINT64_C(1) << i;
            }
        }
    }
    return busy;
}

void store_lanes_close(struct store_host *host, uint32_t device)
{
    struct store_host_device *owner = &host->devices[device];

    owner->lanes_closed = true;
    for (uint32_t i = 0; i < owner->lane_count; i++) {
        __atomic_store_n(&owner->lanes[i].shared->closed, 1, __ATOMIC_RELEASE);
    }
}

void store_lanes_finish(struct store_host_device *device)
{
    for (uint32_t i = 0; i < device->lane_count; i++) {
        pl_fd_unmap(device->lanes[i].shared, STORE_LANE_DATA);
        pl_fd_close(&device->lanes[i].fd);
    }
    device->lane_count = 0;
}
