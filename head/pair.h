/*
 * Pairs: communicators from one device to one other, by which transfers go that take the nccl route
 * (transfer/pair.h). The head decides when there is one: it opens and closes it with launches, and
 * says when it is broken.
 */
#ifndef HEAD_PAIR_H
#define HEAD_PAIR_H

#include "head/device.h"

struct head_reader;
struct head_task;

enum head_pair_state {
    HEAD_PAIR_CLOSED,
    HEAD_PAIR_OPENING,
    HEAD_PAIR_OPEN,
    HEAD_PAIR_CLOSING,
    HEAD_PAIR_BREAKING, /* the receiver has not said what came by it */
};

/* From one device to one other. There is one communicator at a time; each has its epoch. */
struct head_pair {
    struct head_device *src;
    struct head_device *dst;
    enum head_pair_state state;
    uint64_t epoch;      /* of the one that there is, or was last */
    uint32_t ends;       /* OPENING, CLOSING: bit 0: done at src; bit 1: at dst */
    uint64_t used;       /* core->pair_uses when a transfer took it last */
    uint64_t bytes[2];   /* device memory that it takes at src and dst */
    uint64_t stalled[2]; /* first chunk + 1 of the transfer that is stuck there */
    uint64_t wanted;     /* bytes that went by another route since there was one */
    uint32_t failures;   /* in a row */
    uint64_t
        last_seq; /* one of the devices is gone: of the other's launches, what may name it */
    bool leaving; /* comm.c's, while it looks for room */
};

/*
 * By which pair does a transfer of so many bytes go that gets its number now? Opens one if it is time to.
 * @return its epoch; 0: by the host route.
 */
uint64_t head_pair_route(struct head_core *core, struct head_device *from,
                         struct head_device *to, uint64_t bytes);
/* Device memory that its communicator takes there, or is going to; 0: none, or it is being closed. */
uint64_t head_pair_bytes(const struct head_pair *pair, const struct head_device *device);
/* It is open; transfers that get their number from now on go another way. */
void head_pair_close(struct head_core *core, struct head_pair *pair);
/* Communicators that the device has, or is about to have. */
uint32_t head_pair_count(const struct head_core *core, const struct head_device *device);
/* How often one of its pairs was opened, so far. */
uint64_t head_pair_opened(const struct head_core *core, const struct head_device *device);
/* Is there one that transfers go by now? */
bool head_pair_serves(struct head_core *core, const struct head_device *from,
                      const struct head_device *to);
/* Does what names this epoch (0: none) still go by its communicator, and not by the host route? */
bool head_pair_whole(struct head_core *core, const struct head_device *from,
                     const struct head_device *to, uint64_t epoch);
/* Could there be one at all? */
bool head_pair_possible(const struct head_device *from, const struct head_device *to);
/* An OPEN or CLOSE, or half of a transfer by a pair, is over. */
void head_pair_task_over(struct head_core *core, struct head_task *task);
void head_pair_report(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__PairReport *report);
/*
 * Its worker is another one, which has none; what it must know goes into its outbox. Or it will not
 * come back.
 */
void head_pairs_restarted(struct head_core *core, struct head_device *device);
void head_pairs_gone(struct head_core *core, struct head_device *device);
/* Is one of them being opened, closed, or looked at after it broke? */
bool head_pairs_change(const struct head_core *core);
/* Into a checkpoint, while none does, and out of one: what is read is checked. */
void head_pairs_save(const struct head_core *core, struct head_bytes *out);
void head_pairs_load(struct head_core *core, struct head_reader *in);
void head_pairs_destroy(struct head_core *core);

#endif
