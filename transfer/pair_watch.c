/*
 * The watcher: what has ended, and may it be believed? It looks at words that the device writes,
 * and makes no call that could block, so it sees an abort that does not return.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/linger.h"
#include "base/log.h"
#include "transfer/pair_int.h"

/* between looks at what a communicator says of itself */
#define LOOK_CHECK_NS UINT64_C(50000000)
/* between looks with the lock, whatever the words say */
#define LOOK_LOCK_NS  UINT64_C(1000000)
#define LOOKS_A_CLOCK 32u
#define SLEEP_NS      UINT64_C(100000000)
#define LINGER_MIN_NS UINT64_C(5000)       /* with the lock in between, which others want */
#define LAST_TIMES    UINT64_C(6)          /* so many times `stuck_ns` */
#define AWAY_NS       UINT64_C(3000000000) /* the whole process was, and the worker with it */

/*
 * Between looks while something is under way: an operation of 16 MiB takes 70 us, and the next one
 * behind what waits for it is sent when it is seen to be over. Where processors are few they are
 * wanted by others (base/linger.h).
 */
static const struct pl_pauses pauses     = {.at_once_ns = 100000,
                                            .min_ns     = 10000,
                                            .max_ns     = 100000};
static const struct pl_pauses pauses_few = {.at_once_ns = 20000,
                                            .min_ns     = 20000,
                                            .max_ns     = 200000};

static uint64_t word_of(struct store_word *word)
{
    /* Acquire: pairs with the device's write after its work. */
    return __atomic_load_n(&word->value, __ATOMIC_ACQUIRE);
}

/* Its communicator has failed: somebody must decide that it is broken. Once. */
static void trouble_locked(struct pair *pair, const char *text)
{
    struct transfer_pair_news news = {.event = TRANSFER_PAIR_TROUBLE};

    if (!pair->on.doubted && !pair->on.broken) {
        pair->on.doubted = true;
        (void)snprintf(news.text, sizeof(news.text), "%.199s", text);
        pair_tell_locked(pair, &news);
    }
}

static bool whole_locked(void *user, struct transfer_lane_pair *on)
{
    struct pair *pair = pl_container_of(on, struct pair, on);
    struct pl_err err = {.status = PLASMON_OK};

    (void)user;
    if (pair->on.broken || pair->comm == NULL || pair->on.doubted) {
        return false;
    }
    if (device_comm_check(pair->comm, &err) != PLASMON_OK) {
        trouble_locked(pair, err.text);
        return false;
    }
    return true;
}

/* A second a GB. */
static uint64_t limit_ns(const struct transfer_pairs *pairs,
                         const struct transfer_lane_half *half)
{
    return (pairs->config.stall_ns != 0 ? pairs->config.stall_ns : PAIR_STALL_NS) +
           half->half.bytes;
}

static void stall_locked(struct transfer_pairs *pairs, struct transfer_lane_half *half,
                         uint64_t now_ns)
{
    struct transfer_pair_news news = {.event       = TRANSFER_PAIR_STALLED,
                                      .first_chunk = half->half.first_chunk};

    if (half->first_ns == 0) {
        half->first_ns = now_ns;
    }
    if (!half->stall_told && !half->pair->broken &&
        now_ns - half->first_ns > limit_ns(pairs, half)) {
        half->stall_told = true;
        pair_tell_locked(pl_container_of(half->pair, struct pair, on), &news);
    }
}

/* Launches' streams wait in order, so the word says how many at the front are over. */
static void lane_pop_locked(struct transfer_pairs *pairs, uint32_t index)
{
    struct transfer_lane *lane = &pairs->lanes[index].on;
    uint64_t *over             = &pairs->words->over[index].value;
    uint64_t number            = transfer_lane_pop(lane);

    if (number != 0) {
        /* Release: what was received is there before the word. */
        __atomic_store_n(over, number, __ATOMIC_RELEASE);
        device_word_wake(over);
    }
    if (transfer_lane_turn(lane)) {
        const struct transfer_lane_half *front = pl_vec_at(&lane->halves, 0);
        struct transfer_pair_news turn         = {.event = TRANSFER_PAIR_TURN};

        pair_tell_locked(pl_container_of(front->pair, struct pair, on), &turn);
    }
}

/* *io_room: somebody waits for room that there is now. */
static bool lane_look_locked(struct transfer_pairs *pairs, uint32_t index, uint64_t now_ns,
                             bool *io_room)
{
    struct transfer_lane *lane = &pairs->lanes[index].on;
    bool moved =
        transfer_lane_look(lane, word_of(&pairs->words->done[index]),
                           word_of(&pairs->words->staged[index]), whole_locked, NULL);
    struct transfer_lane_half *first = transfer_lane_first_running(lane);

    if (first != NULL) {
        stall_locked(pairs, first, now_ns);
    }
    lane_pop_locked(pairs, index);
    if (pairs->lanes[index].room_wanted && transfer_lane_has_room(lane)) {
        pairs->lanes[index].room_wanted = false;
        *io_room                        = true;
    }
    return moved;
}

static bool under_way_locked(const struct transfer_pairs *pairs)
{
    size_t count = 0;

    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        count += pairs->lanes[i].on.halves.count;
    }
    return count > 0;
}

static bool busy_locked(const struct transfer_pairs *pairs)
{
    bool busy = false;

    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        busy |= transfer_lane_busy(&pairs->lanes[i].on);
    }
    return busy;
}

static uint64_t stuck_ns(const struct transfer_pairs *pairs)
{
    return pairs->config.stuck_ns != 0 ? pairs->config.stuck_ns : PAIR_STUCK_NS;
}

/*
 * A worker that does not ask for news, which its main loop does twice a second, is in a call that
 * does not return. While transfers are under way that is for good: senders' launches wait for what
 * the head says through that very thread. And nobody would hear of a stall: neither its reports nor
 * the head's orders get past it, and the other side alone may not break the pair. So the process
 * ends, and says why.
 */
static void worker_look_locked(struct transfer_pairs *pairs, uint64_t now_ns)
{
    if (!under_way_locked(pairs)) {
        pairs->collected_ns = now_ns;
    } else if (now_ns > pairs->collected_ns + stuck_ns(pairs)) {
        pairs->collected_ns = now_ns; /* said once each time */
        pairs->config.stuck(
            pairs->config.user,
            "the worker has not looked after its pairs for too long: a call "
            "of the driver or of NCCL does not return");
    }
}

/*
 * Nobody has looked for so long that the whole process must have been away (it was frozen, or its
 * machine stood still): what is waited for had no time either, and all of it begins anew.
 */
static void away_look_locked(struct transfer_pairs *pairs, uint64_t now_ns)
{
    bool away = now_ns - pairs->looked_ns > AWAY_NS;
    struct pl_list *pos;

    pairs->looked_ns = now_ns;
    if (!away) {
        return;
    }
    pairs->collected_ns = now_ns;
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        struct pl_vec *halves = &pairs->lanes[i].on.halves;

        for (size_t n = 0; n < halves->count; n++) {
            struct transfer_lane_half *half = pl_vec_at(halves, n);

            half->first_ns = half->staged_ns = 0; /* the next look notes them */
        }
    }
    pl_list_for_each(pos, &pairs->pairs) {
        struct pair *pair = pl_container_of(pos, struct pair, link);

        pair->abort_since_ns = pair->abort_since_ns != 0 ? now_ns : 0;
    }
}

/* How long what goes by the host route is late; 0: none is. */
static uint64_t staged_late_locked(struct transfer_pairs *pairs, uint64_t now_ns)
{
    uint64_t late_ns = 0;

    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        const struct transfer_lane *lane = &pairs->lanes[i].on;
        struct transfer_lane_half *half =
            lane->halves.count > 0 ? pl_vec_at(&lane->halves, 0) : NULL;
        uint64_t until_ns;

        if (half == NULL || half->state != TRANSFER_HALF_STAGING) {
            continue;
        }
        half->staged_ns = half->staged_ns != 0 ? half->staged_ns : now_ns;
        until_ns        = half->staged_ns + limit_ns(pairs, half);
        late_ns         = pl_max_u64(late_ns, now_ns > until_ns ? now_ns - until_ns : 0);
    }
    return late_ns;
}

/*
 * What goes another way since its pair broke is given to the device late. Where there are more
 * streams than hardware queues it may lie behind what NCCL's own streams wait for: operations of
 * another communicator, with larger numbers, which may wait for just this. So if neither ends, that
 * one is broken, too, whatever its other side says; and if it does not end then (the other side may
 * have to report first what this keeps it from), the worker does, for the next one has no
 * communicators.
 */
static void shared_queues_look_locked(struct transfer_pairs *pairs, uint64_t now_ns)
{
    uint64_t late_ns = staged_late_locked(pairs, now_ns);

    for (uint32_t i = 0; late_ns > 0 && i < TRANSFER_LANES; i++) {
        struct transfer_lane_half *first = transfer_lane_first_running(&pairs->lanes[i].on);

        if (first == NULL || first->first_ns == 0 ||
            now_ns - first->first_ns <= limit_ns(pairs, first)) {
            continue;
        }
        trouble_locked(
            pl_container_of(first->pair, struct pair, on),
            "what goes another way since another one broke does not end beside it");
        if (late_ns > LAST_TIMES * stuck_ns(pairs) && !pairs->last_told) {
            pairs->last_told = true;
            pairs->config.stuck(pairs->config.user,
                                "what went by a communicator that broke does not end "
                                "beside operations of others");
        }
    }
}

static void pairs_look_locked(struct transfer_pairs *pairs, bool check, uint64_t now_ns)
{
    struct transfer_pair_news ended = {.event = TRANSFER_PAIR_ENDED};
    struct transfer_pair_news quiet = {.event = TRANSFER_PAIR_QUIET};
    struct pl_list *pos;
    char text[PAIR_TEXT_BYTES];

    if (check) {
        shared_queues_look_locked(pairs, now_ns);
    }
    pl_list_for_each(pos, &pairs->pairs) {
        struct pair *pair = pl_container_of(pos, struct pair, link);

        if (check && pair->on.running > 0) {
            (void)whole_locked(NULL, &pair->on); /* says itself what is wrong */
        }
        if (pair->on.broken && !pair->ended_told && pair->on.running == 0 &&
            pair->on.aborted && !pair->thread_over) {
            pair->ended_told = true;
            pair_tell_locked(pair, &ended);
        }
        if (pair->on.broken && !pair->quiet_told && pair->on.running == 0 &&
            pair->thread_over) {
            pair->quiet_told = true;
            pair_tell_locked(pair, &quiet);
        }
        if (pair->abort_since_ns != 0 && now_ns > pair->abort_since_ns + stuck_ns(pairs)) {
            pair->abort_since_ns = now_ns; /* said once each time */
            (void)snprintf(text, sizeof(text),
                           "the communicator %s %u cannot be ended: a call of the driver "
                           "or of NCCL does not return",
                           pair->on.key.team != 0 ? "of team" : "with device",
                           pair->on.key.team != 0 ? pair->on.key.team : pair->on.key.peer);
            pairs->config.stuck(pairs->config.user, text);
        }
    }
}

/* Of what was seen: all words together. They only grow. */
static uint64_t words_sum(const struct transfer_pairs *pairs)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        /* Relaxed: who takes them loads them again, with acquire. */
        sum += __atomic_load_n(&pairs->words->done[i].value, __ATOMIC_RELAXED) +
               __atomic_load_n(&pairs->words->staged[i].value, __ATOMIC_RELAXED);
    }
    return sum;
}

static void nap(uint64_t ns)
{
    const struct timespec pause = {.tv_nsec = (long)ns};

    (void)nanosleep(&pause, NULL); /* cut short is as good */
}

/*
 * Until a word is another than it was, or somebody says that there is something to see. Without the
 * lock: who enqueues takes it several times an operation, and would meet the watcher there again
 * and again, for an instant that costs both a system call. (Two H200s, 16 MiB both ways: a fifth of
 * the time of the thread that enqueues.) Short at first: transfers of a few KiB are over in some
 * microseconds.
 */
static void pause_between(const struct transfer_pairs *pairs, uint64_t seen,
                          uint64_t looked_ns, uint64_t moved_ns)
{
    for (;;) {
        uint64_t now_ns, pause_ns;

        for (uint32_t i = 0; i < LOOKS_A_CLOCK; i++) {
            /* Relaxed: who is nudged takes the lock. */
            if (words_sum(pairs) != seen ||
                __atomic_load_n(&pairs->nudged, __ATOMIC_RELAXED)) {
                return;
            }
            pl_cpu_relax();
        }
        now_ns = pl_now_ns();
        if (now_ns - looked_ns > LOOK_LOCK_NS) {
            return;
        }
        pause_ns =
            pl_pause_ns(pl_linger_ns() > 0 ? &pauses : &pauses_few, now_ns - moved_ns);
        if (pause_ns > 0) {
            nap(pause_ns);
        }
    }
}

/*
 * Nothing is under way, or all that is waits for a word of the head. What a thread that sleeps is
 * woken for it sees a tenth of a millisecond late where processors are put to sleep
 * (base/linger.h), more than an operation takes: so a moment ago is too early to sleep.
 */
static void rest_locked(struct transfer_pairs *pairs, uint64_t now_ns, uint64_t moved_ns)
{
    if (now_ns - moved_ns < pl_linger_ns()) {
        pl_mutex_unlock(&pairs->lock);
        nap(pl_max_u64(pl_linger_pause_ns(now_ns - moved_ns, false), LINGER_MIN_NS));
        pl_mutex_lock(&pairs->lock);
        return;
    }
    pairs->watcher_sleeps = true;
    (void)pl_cond_wait_until(&pairs->changed, &pairs->lock, now_ns + SLEEP_NS);
    pairs->watcher_sleeps = false;
}

void pair_watch_nudge_locked(struct transfer_pairs *pairs)
{
    __atomic_store_n(&pairs->nudged, true, __ATOMIC_RELAXED);
    pair_watch_wake_locked(pairs);
}

void pair_watch_wake_locked(struct transfer_pairs *pairs)
{
    if (pairs->watcher_sleeps) {
        pairs->watcher_sleeps = false;
        pl_cond_broadcast(&pairs->changed);
    }
}

void *pair_watch_run(void *user)
{
    struct transfer_pairs *pairs = user;
    uint64_t checked_ns = 0, moved_ns = 0;
    bool busy = false;

    pl_linger_thread();
    pl_mutex_lock(&pairs->lock);
    while (!pairs->stop) {
        uint64_t now_ns = pl_now_ns();
        /* first: what changes from here on is looked at again */
        uint64_t seen = words_sum(pairs);
        bool check    = now_ns - checked_ns > LOOK_CHECK_NS;
        bool room     = false;

        __atomic_store_n(&pairs->nudged, false, __ATOMIC_RELAXED);
        checked_ns = check ? now_ns : checked_ns;
        away_look_locked(pairs, now_ns);
        for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
            moved_ns = lane_look_locked(pairs, i, now_ns, &room) ? now_ns : moved_ns;
        }
        pairs_look_locked(pairs, check, now_ns);
        worker_look_locked(pairs, now_ns);
        moved_ns = !busy && busy_locked(pairs) ? now_ns : moved_ns;
        busy     = busy_locked(pairs);
        if (busy) {
            pl_mutex_unlock(&pairs->lock);
            if (room) { /* whoever it wakes finds the lock free */
                pair_notify(pairs);
            }
            pause_between(pairs, seen, now_ns, moved_ns);
            pl_mutex_lock(&pairs->lock);
        } else {
            if (room) {
                pair_notify(pairs);
            }
            rest_locked(pairs, now_ns, moved_ns);
        }
    }
    pl_mutex_unlock(&pairs->lock);
    return NULL;
}
