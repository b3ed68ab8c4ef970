/*
 * A lane: the halves of all transfers by pairs that one device sends, or receives, or its parts of
 * what teams do, in the order of their numbers. What is under way, what is over, and what goes by
 * the host route because its pair broke. Nothing but decisions: no thread, no lock, no device. Who
 * owns it says what the words of the device say (transfer/pair.c with threads and a communicator;
 * the simulation, tests/sim/sim_pairs.c).
 *
 *   RUNNING    its operation is on the lane
 *   ENDED      it is not any more, or never was
 *   WAITING    it goes by the host route, when all before it is over
 *   STAGING    it does
 *   OVER       the launch may go on, when all before it is over
 *
 *   RUNNING -> ENDED -> OVER                         received, believed; or sent, and the
 *                                                    receiver's half is over
 *                  `--> WAITING -> STAGING -> OVER   the pair is broken
 *
 * BELIEVED IS WHAT ENDED BEFORE THE MARK. An operation that is aborted ends as if all were well. So
 * a receive counts if its pair was not marked as broken when its end was seen; then it is OVER at
 * once. From the mark on it is decided which receives came by the pair, whatever is still on the
 * device: that is what the sender is told (transfer_lane_first_lost).
 *
 * EACH HALF FOR ITSELF. A half goes the other way when its own operation has ended and all halves
 * before it are over. It must not wait for other operations of its pair: those lie behind
 * operations of other pairs, with numbers in between, which may wait for just this half on a third
 * device. (Seeded bug transfer.stage_whole: it does.)
 *
 * PARTS OF WHAT A TEAM DOES are decided like receives: each device knows by itself which of its own
 * were done by the team. The others are done without it, likewise one after the other.
 *
 * NOTHING OVERTAKES what goes that way: until every half of a broken pair has had its turn the lane
 * is not settled, and nothing is enqueued behind it, by whichever route.
 */
#ifndef TRANSFER_LANE_H
#define TRANSFER_LANE_H

#include "base/vec.h"
#include "transfer/pair.h"

/* What its halves must know of a pair. */
struct transfer_lane_pair {
    struct transfer_pair_key key;
    bool broken;  /* what ends from now on is not believed */
    bool doubted; /* somebody was asked to break it: neither is that */
    bool staged;  /* broken, and its halves go by the host route */
    /* an operation may come to its lane late: only its end, in good order or not, ends that */
    bool uncertain;
    bool aborted;     /* its operations were told to end, and no call about it goes on */
    uint32_t running; /* operations on the lane */
    uint32_t halves;  /* that name it */
};

enum transfer_half_state {
    TRANSFER_HALF_RUNNING,
    TRANSFER_HALF_ENDED,
    TRANSFER_HALF_WAITING,
    TRANSFER_HALF_STAGING,
    TRANSFER_HALF_OVER,
};
struct transfer_lane_half {
    struct transfer_half half;
    struct transfer_lane_pair *pair;
    uint64_t number; /* of its lane: what `over` must reach */
    uint64_t staged; /* of its lane: what the word `staged` must reach */
    enum transfer_half_state state;
    bool sent;         /* the other half is over */
    bool stall_told;   /* the owner's */
    uint64_t first_ns; /* the owner's: when it was first of its lane; 0: not yet */
    /* the owner's: when it was seen to go by the host route; 0: not yet */
    uint64_t staged_ns;
};

struct transfer_lane {
    uint32_t index;       /* enum transfer_lane_index */
    struct pl_vec halves; /* struct transfer_lane_half, in order */
    uint32_t running;     /* operations on it */
    uint64_t bytes;       /* of these */
    uint64_t numbers;
    uint64_t staged_numbers;
    uint64_t turn; /* number of the half whose turn was told last */
};

void transfer_lane_init(struct transfer_lane *lane, uint32_t index);
void transfer_lane_finish(struct transfer_lane *lane);

/*
 * One more half, at the end. running: its operation is on the lane; else it has none, and waits
 * until its pair is broken. false: no memory. @param number transfer_lane_number() of it.
 */
bool transfer_lane_add(struct transfer_lane *lane, struct transfer_lane_pair *pair,
                       const struct transfer_half *half, uint64_t number,
                       bool running) PL_MUST_CHECK;
static inline uint64_t transfer_lane_number(struct transfer_lane *lane)
{
    return ++lane->numbers;
}

/* For one more operation. */
bool transfer_lane_has_room(const struct transfer_lane *lane);

/* Does its communicator say that all is well? Asked of a pair that nobody doubts. */
typedef bool (*transfer_lane_whole_fn)(void *user, struct transfer_lane_pair *pair);

/* The words say that operations, and staged halves, up to these numbers have ended. true: something moved. */
bool transfer_lane_look(struct transfer_lane *lane, uint64_t done, uint64_t staged,
                        transfer_lane_whole_fn whole, void *user);
/* Take out what is over, as far as it lies in front: up to which number; 0: nothing. */
uint64_t transfer_lane_pop(struct transfer_lane *lane);
/* Its front has its turn to go by the host route, and nobody was told yet. */
bool transfer_lane_turn(struct transfer_lane *lane);
/*
 * The half that goes by the host route now, and what `staged` will be when it is there; false:
 * there is none.
 */
bool transfer_lane_stage_next(struct transfer_lane *lane, struct transfer_lane_half *out);

/* Its halves that are not over go by the host route, each when it can. It is broken. */
void transfer_lane_stage(struct transfer_lane *lane, struct transfer_lane_pair *pair);
/* The first launch of a broken pair that did not come by it; 0: none of those that are here. */
uint64_t transfer_lane_first_lost(const struct transfer_lane *lane,
                                  const struct transfer_lane_pair *pair);
/* Nothing has yet to have its turn. Until then no half may be enqueued: it would come before. */
bool transfer_lane_settled(const struct transfer_lane *lane);
/* A lane of sends: the other half of launch seq is over. */
void transfer_lane_sent(struct transfer_lane *lane, uint64_t seq);
/* The first that has an operation on it; NULL: none. */
struct transfer_lane_half *transfer_lane_first_running(struct transfer_lane *lane);
/* Something is on the device. */
bool transfer_lane_busy(const struct transfer_lane *lane);

#endif
