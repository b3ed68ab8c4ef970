/*
 * The book of communicators: how many a device has, and what they take of its memory, those of
 * pairs and of teams together. It lies outside of what a worker gives to buffers, so it is capped.
 * There is nothing to keep: the book is what pair.c and team.c say of theirs.
 */
#ifndef HEAD_COMM_H
#define HEAD_COMM_H

#include "head/device.h"

struct head_core;

enum head_comm_kind { HEAD_COMM_PAIR, HEAD_COMM_TEAM };
struct head_comm_place {
    struct head_device *device;
    uint64_t bytes; /* that one more takes there */
};

/*
 * Room for one more in all of these places, or in none: for it those close that were not used for
 * longest, pairs or teams. The caller may start its OPENs at once, because they come behind the
 * CLOSEs. false: not now, and nothing was closed.
 */
bool head_comm_room(struct head_core *core, enum head_comm_kind kind,
                    const struct head_comm_place *places, uint32_t count);

#endif
