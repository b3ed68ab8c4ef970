#include "transfer/lane.h"

#include <assert.h>
#include <string.h>

#include "base/fault.h"

void transfer_lane_init(struct transfer_lane *lane, uint32_t index)
{
    *lane = (struct transfer_lane){.index  = index,
                                   .halves = PL_VEC_INIT(struct transfer_lane_half)};
}

void transfer_lane_finish(struct transfer_lane *lane)
{
    pl_vec_finish(&lane->halves);
}

bool transfer_lane_add(struct transfer_lane *lane, struct transfer_lane_pair *pair,
                       const struct transfer_half *half, uint64_t number, bool running)
{
    struct transfer_lane_half *place = pl_vec_push(&lane->halves);

    assert(transfer_lane_of(&half->key) == lane->index && number == lane->numbers);
    if (place == NULL) {
        return false;
    }
    *place = (struct transfer_lane_half){.half   = *half,
                                         .pair   = pair,
                                         .number = number,
                                         .state  = running ? TRANSFER_HALF_RUNNING
                                                           : TRANSFER_HALF_ENDED};
    pair->halves++;
    pair->running += running;
    lane->running += running;
    lane->bytes += running ? half->bytes : 0;
    return true;
}

bool transfer_lane_has_room(const struct transfer_lane *lane)
{
    return lane->running < TRANSFER_PAIR_DEPTH_MIN ||
           (lane->running < TRANSFER_PAIR_DEPTH && lane->bytes < TRANSFER_PAIR_BYTES);
}

/* -------------------------------------------------------------------------------- steps */

/* Its operation has ended: does it go the other way? */
static bool may_stage(const struct transfer_lane_pair *pair)
{
    if (pl_bug("transfer.stage_whole") && pair->running > 0) {
        return false;
    }
    return pair->staged && (!pair->uncertain || pair->aborted);
}

static void half_end(struct transfer_lane *lane, struct transfer_lane_half *half,
                     transfer_lane_whole_fn whole, void *user)
{
    struct transfer_lane_pair *pair = half->pair;
    bool believed = lane->index != TRANSFER_LANE_SENDS && !pair->broken && !pair->doubted &&
                    whole(user, pair);

    half->state = believed ? TRANSFER_HALF_OVER : TRANSFER_HALF_ENDED;
    pair->running--;
    lane->running--;
    lane->bytes -= half->half.bytes;
}

static bool half_step(struct transfer_lane *lane, struct transfer_lane_half *half,
                      uint64_t done, uint64_t staged, transfer_lane_whole_fn whole,
                      void *user)
{
    enum transfer_half_state before = half->state;

    if (half->state == TRANSFER_HALF_RUNNING && done >= half->number) {
        half_end(lane, half, whole, user);
    }
    if (half->state == TRANSFER_HALF_ENDED && may_stage(half->pair)) {
        half->state = TRANSFER_HALF_WAITING;
    }
    if ((half->state == TRANSFER_HALF_ENDED || half->state == TRANSFER_HALF_WAITING) &&
        half->sent) {
        half->state = TRANSFER_HALF_OVER;
    }
    if (half->state == TRANSFER_HALF_STAGING && staged >= half->staged) {
        half->state = TRANSFER_HALF_OVER;
    }
    return half->state != before;
}

bool transfer_lane_look(struct transfer_lane *lane, uint64_t done, uint64_t staged,
                        transfer_lane_whole_fn whole, void *user)
{
    bool moved = false;

    /* In order: of a pair's halves nothing is decided before those in front of it. */
    for (size_t i = 0; i < lane->halves.count; i++) {
        moved |= half_step(lane, pl_vec_at(&lane->halves, i), done, staged, whole, user);
    }
    return moved;
}

uint64_t transfer_lane_pop(struct transfer_lane *lane)
{
    struct transfer_lane_half *items = lane->halves.items;
    size_t count                     = 0;
    uint64_t number                  = 0;

    while (count < lane->halves.count && items[count].state == TRANSFER_HALF_OVER) {
        items[count].pair->halves--;
        number = items[count].number;
        count++;
    }
    if (count > 0) {
        lane->halves.count -= count;
        memmove(items, items + count, lane->halves.count * sizeof(*items));
    }
    return number;
}

/* ----------------------------------------------------------------------- the host route */

static struct transfer_lane_half *front(const struct transfer_lane *lane)
{
    return lane->halves.count > 0 ? pl_vec_at(&lane->halves, 0) : NULL;
}

bool transfer_lane_turn(struct transfer_lane *lane)
{
    const struct transfer_lane_half *half = front(lane);

    if (half == NULL || half->state != TRANSFER_HALF_WAITING ||
        half->number == lane->turn) {
        return false;
    }
    lane->turn = half->number;
    return true;
}

bool transfer_lane_stage_next(struct transfer_lane *lane, struct transfer_lane_half *out)
{
    struct transfer_lane_half *half = front(lane);

    if (half == NULL || half->state != TRANSFER_HALF_WAITING) {
        return false;
    }
    half->state  = TRANSFER_HALF_STAGING;
    half->staged = ++lane->staged_numbers;
    *out         = *half;
    return true;
}

void transfer_lane_stage(struct transfer_lane *lane, struct transfer_lane_pair *pair)
{
    assert(pair->broken);
    pair->staged = true;
    for (size_t i = 0; i < lane->halves.count; i++) {
        struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        if (half->pair == pair && half->state == TRANSFER_HALF_ENDED && !half->sent &&
            may_stage(pair)) {
            half->state = TRANSFER_HALF_WAITING;
        }
    }
}

uint64_t transfer_lane_first_lost(const struct transfer_lane *lane,
                                  const struct transfer_lane_pair *pair)
{
    for (size_t i = 0; i < lane->halves.count; i++) {
        const struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        if (half->pair == pair && half->state != TRANSFER_HALF_OVER) {
            return half->half.seq;
        }
    }
    return 0;
}

bool transfer_lane_settled(const struct transfer_lane *lane)
{
    for (size_t i = 0; i < lane->halves.count; i++) {
        const struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        if (half->pair->broken && half->state < TRANSFER_HALF_STAGING) {
            return false;
        }
    }
    return true;
}

void transfer_lane_sent(struct transfer_lane *lane, uint64_t seq)
{
    assert(lane->index == TRANSFER_LANE_SENDS);
    for (size_t i = 0; i < lane->halves.count; i++) {
        struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        half->sent |= half->half.seq == seq;
    }
}

/* ------------------------------------------------------------------------------ looking */

struct transfer_lane_half *transfer_lane_first_running(struct transfer_lane *lane)
{
    for (size_t i = 0; i < lane->halves.count; i++) {
        struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        if (half->state == TRANSFER_HALF_RUNNING) {
            return half;
        }
    }
    return NULL;
}

bool transfer_lane_busy(const struct transfer_lane *lane)
{
    for (size_t i = 0; i < lane->halves.count; i++) {
        const struct transfer_lane_half *half = pl_vec_at(&lane->halves, i);

        if (half->state == TRANSFER_HALF_RUNNING || half->state == TRANSFER_HALF_STAGING) {
            return true;
        }
    }
    return false;
}
