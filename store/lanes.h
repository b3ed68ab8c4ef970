/*
 * The lanes of a host (store/lane.h): made when a client first asks for one, and kept, because a
 * worker cannot let go of pinned memory while a stream of its device waits (unpinning blocks until
 * it does not). So the pinned memory of a device grows to what its clients used at once, at most
 * STORE_LANES_MAX lanes.
 *
 * Threads: owner only (the store's loop).
 */
#ifndef STORE_LANES_H
#define STORE_LANES_H

#include "store/host.h"

/*
 * A lane for this reader. *out_new: its worker has not heard of it. EAGAIN: all that the device may
 * have are in use; EUNREACHABLE: the device was given up.
 */
plasmon_status_t store_lanes_take(struct store_host *host, uint32_t device, uint32_t reader,
                                  struct store_host_lane **out_lane,
                                  bool *out_new) PL_MUST_CHECK;
/* Is this descriptor of one of the device's? */
bool store_lanes_have(const struct store_host *host, uint32_t device, int fd);
/* One that another store made. Takes fd. Whose it is, it says itself. */
plasmon_status_t store_lanes_keep(struct store_host *host, uint32_t device,
                                  int fd) PL_MUST_CHECK;
/* The reader is gone. Bit i of the result: device i has something to do that nobody may have told it of. */
uint64_t store_lanes_release(struct store_host *host, uint32_t reader);
/* No worker will come for this device any more: whoever waits goes on. */
void store_lanes_close(struct store_host *host, uint32_t device);
void store_lanes_finish(struct store_host_device *device);

#endif
