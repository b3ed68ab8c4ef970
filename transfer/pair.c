/* The nccl route: its life, and what the worker asks of it. */
#include "transfer/pair.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "transfer/pair_int.h"

/* --------------------------------------------------------------------------------- life */

plasmon_status_t transfer_pairs_create(const struct transfer_pairs_config *config,
                                       struct transfer_pairs **out_pairs)
{
    struct transfer_pairs *pairs = PL_NEW(struct transfer_pairs);
    plasmon_status_t status;

    assert(config->stage != NULL && config->stuck != NULL);
    if (pairs == NULL) {
        return PLASMON_ENOMEM;
    }
    pairs->config = *config;
    pairs->news   = PL_VEC_INIT(struct transfer_pair_news);
    pl_list_init(&pairs->pairs);
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        transfer_lane_init(&pairs->lanes[i].on, i);
    }
    status = pl_mutex_init(&pairs->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    status = pl_cond_init(&pairs->changed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    *out_pairs = pairs;
    return PLASMON_OK;

err_finish_lock:
    pl_mutex_finish(&pairs->lock);
err_free:
    pl_free(pairs);
    return status;
}

static void lanes_finish(struct transfer_pairs *pairs)
{
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        struct lane *lane = &pairs->lanes[i];

        if (lane->stream != NULL) {
            device_stream_destroy(lane->stream);
        }
        if (lane->staged != NULL) {
            device_stream_destroy(lane->staged);
        }
        if (lane->told != NULL) {
            device_stream_destroy(lane->told);
        }
        device_event_destroy(lane->mark);
        lane->stream = lane->staged = lane->told = NULL;
        lane->mark                               = NULL;
    }
    if (pairs->words != NULL) {
        device_host_unregister(pairs->config.device, pairs->words);
        (void)munmap(pairs->words, PAIR_WORDS_BYTES);
        pairs->words = NULL;
    }
}

static plasmon_status_t words_start(struct transfer_pairs *pairs)
{
    struct device *device   = pairs->config.device;
    plasmon_status_t status = PLASMON_OK;
    void *words             = mmap(NULL, PAIR_WORDS_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (words == MAP_FAILED) {
        return PLASMON_ENOMEM;
    }
    status = device_host_register(device, words, PAIR_WORDS_BYTES);
    if (status != PLASMON_OK) {
        (void)munmap(words, PAIR_WORDS_BYTES);
        return status;
    }
    pairs->words = words;
    return PLASMON_OK;
}

static plasmon_status_t lane_start(struct transfer_pairs *pairs, uint32_t index)
{
    struct lane *lane                      = &pairs->lanes[index];
    struct device_stream **const streams[] = {&lane->stream, &lane->staged, &lane->told};
    size_t count            = index == TRANSFER_LANE_SENDS ? PL_COUNT(streams) : 2;
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < count; i++) {
        if (*streams[i] == NULL) {
            status = device_stream_create(pairs->config.device, DEVICE_STREAM_HIGH_PRIORITY,
                                          streams[i]);
        }
    }
    if (status == PLASMON_OK && lane->mark == NULL) {
        status = device_event_create(pairs->config.device, false, &lane->mark);
    }
    return status;
}

/*
 * With the first pair or team: a device has few hardware queues for streams. And all of them then:
 * queues are given out in turn, and streams of communicators, of which there may be more than there
 * are queues, come after all of ours.
 */
static plasmon_status_t start(struct transfer_pairs *pairs)
{
    plasmon_status_t status = pairs->started ? PLASMON_OK : words_start(pairs);

    for (uint32_t i = 0; status == PLASMON_OK && !pairs->started && i < TRANSFER_LANES;
         i++) {
        status = lane_start(pairs, i);
    }
    if (status == PLASMON_OK && !pairs->started &&
        pthread_create(&pairs->watcher, NULL, pair_watch_run, pairs) != 0) {
        status = PLASMON_EAGAIN;
    }
    if (status != PLASMON_OK) {
        lanes_finish(pairs);
    }
    pairs->started |= status == PLASMON_OK;
    return status;
}

/* Those whose thread has ended and that no half names. */
static void pairs_reap(struct transfer_pairs *pairs)
{
    struct pl_list *pos, *next;

    pl_mutex_lock(&pairs->lock);
    pl_list_for_each_safe(pos, next, &pairs->pairs) {
        struct pair *pair = pl_container_of(pos, struct pair, link);

        if (pair->thread_over && pair->on.halves == 0 &&
            (!pair->on.broken || pair->quiet_told || pairs->stop)) {
            pl_list_remove(&pair->link);
            (void)pthread_join(pair->thread, NULL); /* it does nothing more */
            pl_cond_finish(&pair->asked);
            pl_free(pair);
        }
    }
    pl_mutex_unlock(&pairs->lock);
}

void transfer_pairs_destroy(struct transfer_pairs *pairs)
{
    struct pl_list *pos;

    if (pairs == NULL) {
        return;
    }
    pl_mutex_lock(&pairs->lock);
    pairs->stop = true;
    pl_cond_broadcast(&pairs->changed);
    pl_list_for_each(pos, &pairs->pairs) {
        pl_cond_broadcast(&pl_container_of(pos, struct pair, link)->asked);
        while (!pl_container_of(pos, struct pair, link)->thread_over) {
            pl_cond_wait(&pairs->changed, &pairs->lock);
        }
        pl_container_of(pos, struct pair, link)->on.halves = 0;
    }
    pl_mutex_unlock(&pairs->lock);
    pairs_reap(pairs);
    if (pairs->started) {
        (void)pthread_join(pairs->watcher, NULL);
    }
    lanes_finish(pairs);
    for (uint32_t i = 0; i < TRANSFER_LANES; i++) {
        transfer_lane_finish(&pairs->lanes[i].on);
    }
    pl_vec_finish(&pairs->news);
    pl_cond_finish(&pairs->changed);
    pl_mutex_finish(&pairs->lock);
    pl_free(pairs);
}

bool transfer_pairs_news(struct transfer_pairs *pairs, struct transfer_pair_news *out_news)
{
    struct transfer_pair_news *items;
    bool some;

    pl_mutex_lock(&pairs->lock);
    items               = pairs->news.items;
    some                = pairs->news.count > 0;
    pairs->collected_ns = pl_now_ns();
    if (some) {
        *out_news = items[0];
        memmove(items, items + 1, --pairs->news.count * sizeof(*items));
    }
    pl_mutex_unlock(&pairs->lock);
    return some;
}

/* -------------------------------------------------------------------------------- pairs */

static struct pair *pair_find_locked(struct transfer_pairs *pairs,
                                     const struct transfer_pair_key *key)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &pairs->pairs) {
        struct pair *pair = pl_container_of(pos, struct pair, link);

        if (pair->on.key.peer == key->peer && pair->on.key.receives == key->receives &&
            pair->on.key.team == key->team && pair->on.key.epoch == key->epoch) {
            return pair;
        }
    }
    return NULL;
}

plasmon_status_t transfer_pair_open(struct transfer_pairs *pairs,
                                    const struct transfer_pair_key *key,
                                    const struct transfer_pair_shape *shape,
                                    const uint8_t *id, uint32_t timeout_ms)
{
    plasmon_status_t status = start(pairs);
    struct pair *pair;

    assert(key->receives == (id != NULL));
    pairs_reap(pairs);
    pair = status == PLASMON_OK ? PL_NEW(struct pair) : NULL;
    if (pair == NULL) {
        return status != PLASMON_OK ? status : PLASMON_ENOMEM;
    }
    status = pl_cond_init(&pair->asked);
    if (status != PLASMON_OK) {
        pl_free(pair);
        return status;
    }
    pl_list_init(&pair->link);
    pair->pairs      = pairs;
    pair->on         = (struct transfer_lane_pair){.key = *key, .uncertain = true};
    pair->shape      = *shape;
    pair->timeout_ms = timeout_ms;
    pair->has_id     = id != NULL;
    if (id != NULL) {
        memcpy(pair->id, id, sizeof(pair->id));
    }
    pl_mutex_lock(&pairs->lock);
    if (pthread_create(&pair->thread, NULL, pair_run, pair) == 0) {
        pl_list_add_tail(&pairs->pairs, &pair->link);
    } else {
        status = PLASMON_EAGAIN;
    }
    pl_mutex_unlock(&pairs->lock);
    if (status != PLASMON_OK) {
        pl_cond_finish(&pair->asked);
        pl_free(pair);
    }
    return status;
}

void transfer_pair_close(struct transfer_pairs *pairs, const struct transfer_pair_key *key)
{
    struct pair *pair;

    pl_mutex_lock(&pairs->lock);
    pair = pair_find_locked(pairs, key);
    PL_CHECK(pair != NULL && pair->on.halves == 0);
    pair->close_asked = true;
    pl_cond_broadcast(&pair->asked);
    pl_mutex_unlock(&pairs->lock);
}

void transfer_pair_break(struct transfer_pairs *pairs, const struct transfer_pair_key *key)
{
    struct pair *pair;

    pl_mutex_lock(&pairs->lock);
    pair = pair_find_locked(pairs, key);
    PL_CHECK(pair != NULL);
    if (!pair->close_asked) {
        pair->on.broken = true;
    } else if (!pair->thread_over && pair->abort_since_ns == 0) {
        pair->abort_since_ns = pl_now_ns();
    }
    pair_watch_nudge_locked(pairs);
    pl_mutex_unlock(&pairs->lock);
}

void transfer_pair_abort(struct transfer_pairs *pairs, const struct transfer_pair_key *key)
{
    struct pair *pair;

    pl_mutex_lock(&pairs->lock);
    pair = pair_find_locked(pairs, key);
    PL_CHECK(pair != NULL && pair->on.broken);
    pair->abort_asked = true;
    pl_cond_broadcast(&pair->asked);
    pl_mutex_unlock(&pairs->lock);
}

void transfer_pair_free(struct transfer_pairs *pairs, const struct transfer_pair_key *key)
{
    struct pair *pair;

    pl_mutex_lock(&pairs->lock);
    pair = pair_find_locked(pairs, key);
    PL_CHECK(pair != NULL && pair->ended_told);
    pair->free_asked = true;
    pl_cond_broadcast(&pair->asked);
    pl_mutex_unlock(&pairs->lock);
}

/* ------------------------------------------------------------------------------- halves */

bool transfer_pair_room(struct transfer_pairs *pairs, uint32_t lane)
{
    bool room;

    pl_mutex_lock(&pairs->lock);
    room                           = transfer_lane_has_room(&pairs->lanes[lane].on);
    pairs->lanes[lane].room_wanted = !room;
    pl_mutex_unlock(&pairs->lock);
    return room;
}

/* On its lane. Not well: the pair is in trouble, and the word behind it still comes. */
static plasmon_status_t operation_put(struct transfer_pairs *pairs, struct pair *pair,
                                      const struct transfer_half *half, struct pl_err *err)
{
    struct device_stream *lane = pairs->lanes[transfer_lane_of(&half->key)].stream;
    plasmon_status_t status;

    if (pl_fault_point("pair.move")) {
        return pl_err_set(err, PLASMON_EDEVICE, "a fault point");
    }
    if (half->key.team != 0) {
        const uint32_t gathered =
            half->collective == DEVICE_ALL_GATHER ? pair->shape.ranks : 1;
        const struct device_comm_collective how = {
            .kind     = (enum device_collective)half->collective,
            .src      = half->member,
            .dst      = half->ptr,
            .elements = half->bytes / pl_dtype_bytes(half->dtype) / gathered,
            .dtype    = half->dtype,
            .op       = half->op};

        status = device_comm_join(pair->comm, lane, &how, err);
    } else {
        status = device_comm_move(pair->comm, lane, half->ptr, half->bytes, err);
    }
    if (status == PLASMON_OK && (half->key.receives || half->key.team != 0)) {
        transfer_count(pairs->config.counters, TRANSFER_NCCL, half->bytes);
    }
    return status;
}

/*
 * Says that the operation has ended, and what its launch waits for: in as few calls as there can
 * be, for they are most of what a half costs the thread that enqueues. The word `done` is not on
 * the lane, where it would hold up the next operation by some microseconds (an event does by none).
 * Of a receive, and of what a team does, it is on the launch's own stream, which waits for nothing
 * else then than that the watcher says `over`. A send's `over` comes with the head's word, and
 * until then would keep back the `done` of those behind it; so that is on a stream beside the lane.
 *
 * The launch of a receive then says that its chunks of the ring were taken. They are the host
 * route's, and it skips them. `passed` comes after that: what is staged behind it must not move the
 * ring's word before it does, or the word would go back.
 */
static plasmon_status_t words_put(struct transfer_pairs *pairs,
                                  struct device_stream *stream,
                                  const struct transfer_half *half, uint64_t number)
{
    uint32_t index           = transfer_lane_of(&half->key);
    struct lane *lane        = &pairs->lanes[index];
    struct pair_words *words = pairs->words;
    struct device_stream *on = lane->told != NULL ? lane->told : stream;
    plasmon_status_t status  = PLASMON_OK;
    struct device_word_step steps[DEVICE_WORDS_MAX];
    uint32_t count = 0;

    if (half->with_bytes) {
        status = device_event_record(lane->mark, lane->stream);
        status = status == PLASMON_OK ? device_stream_behind(on, lane->mark) : status;
    }
    if (half->with_bytes && on != stream) {
        status = status == PLASMON_OK ? device_signal(on, &words->done[index].value, number)
                                      : status;
    } else if (half->with_bytes) {
        steps[count++] =
            (struct device_word_step){.word = &words->done[index].value, .value = number};
    }
    steps[count++] = (struct device_word_step){
        .waits = true, .word = &words->over[index].value, .value = number};
    if (index == TRANSFER_LANE_RECEIVES) {
        steps[count++] = (struct device_word_step){
            .word  = &pairs->config.timeline->stage_taken.value,
            .value = half->first_chunk + transfer_chunks(half->bytes)};
        steps[count++] =
            (struct device_word_step){.word = &words->passed.value, .value = number};
    }
    if (half->word != NULL) {
        steps[count++] = (struct device_word_step){.word = half->word, .value = half->seq};
    }
    return status == PLASMON_OK ? device_words(stream, steps, count) : status;
}

static void half_add_locked(struct transfer_pairs *pairs, struct pair *pair,
                            const struct transfer_half *half, uint64_t number,
                            plasmon_status_t status, const char *text)
{
    struct transfer_lane *lane     = &pairs->lanes[transfer_lane_of(&half->key)].on;
    struct transfer_pair_news news = {.event = TRANSFER_PAIR_TROUBLE};

    /* Without memory its launch would wait for ever. */
    PL_CHECK(transfer_lane_add(lane, &pair->on, half, number, half->with_bytes));
    pair->on.uncertain |= half->with_bytes && status != PLASMON_OK;
    if (status != PLASMON_OK && !pair->on.doubted) {
        pair->on.doubted = true;
        (void)snprintf(news.text, sizeof(news.text), "%.199s", text);
        pair_tell_locked(pair, &news);
    }
    pair_watch_wake_locked(pairs);
}

plasmon_status_t transfer_pair_move(struct transfer_pairs *pairs,
                                    struct device_stream *stream,
                                    const struct transfer_half *half)
{
    struct transfer_lane *lane = &pairs->lanes[transfer_lane_of(&half->key)].on;
    struct pl_err err          = {.status = PLASMON_OK};
    plasmon_status_t status, moved;
    struct pair *pair;
    uint64_t number;
    bool doubted;

    pl_mutex_lock(&pairs->lock);
    pair    = pair_find_locked(pairs, &half->key);
    number  = transfer_lane_number(lane);
    doubted = pair != NULL && pair->on.doubted;
    pl_mutex_unlock(&pairs->lock);
    PL_CHECK(pair != NULL);
    if (doubted) {
        /*
         * Perhaps one before was refused, and this one would meet what the other side has for that.
         * It is known: somebody decides that the pair is broken.
         */
        moved = pl_err_set(&err, PLASMON_EDEPENDENCY, "one before it failed");
    } else if (half->with_bytes) {
        /*
         * The pair's comm is ours: it is taken away only after a break or a close, which come by
         * the same lock as this call.
         */
        moved = operation_put(pairs, pair, half, &err);
    } else {
        moved = pl_err_set(&err, PLASMON_EDEPENDENCY, "half of a transfer failed");
    }
    status = words_put(pairs, stream, half, number);
    pl_mutex_lock(&pairs->lock);
    half_add_locked(pairs, pair, half, number, moved, err.text);
    pl_mutex_unlock(&pairs->lock);
    return status;
}

/* ----------------------------------------------------------------------- the host route */

/*
 * One after the other, in the order of numbers: a ring is emptied in order, and what waits for its
 * turn in a stream must not hold up what has a smaller number. What is before a receive in our ring
 * is waited for: `taken` has come there by whichever route, and `passed` says that no launch's
 * stream is still to write it for what was before.
 */
static plasmon_status_t half_stage(struct transfer_pairs *pairs, uint32_t index)
{
    struct lane *lane       = &pairs->lanes[index];
    plasmon_status_t status = PLASMON_OK;
    struct transfer_lane_half half;
    bool found;

    pl_mutex_lock(&pairs->lock);
    found = transfer_lane_stage_next(&lane->on, &half);
    pair_watch_nudge_locked(pairs);
    pl_mutex_unlock(&pairs->lock);
    if (!found) {
        return PLASMON_OK;
    }
    if (index == TRANSFER_LANE_RECEIVES) {
        status = device_wait(lane->staged, &pairs->words->passed.value, half.number - 1);
    }
    if (status == PLASMON_OK && index == TRANSFER_LANE_RECEIVES) {
        status = device_wait(lane->staged, &pairs->config.timeline->stage_taken.value,
                             half.half.first_chunk);
    }
    if (status == PLASMON_OK) {
        status = pairs->config.stage(pairs->config.user, lane->staged, &half.half);
    }
    return status == PLASMON_OK
               ? device_signal(lane->staged, &pairs->words->staged[index].value,
                               half.staged)
               : status;
}

plasmon_status_t transfer_pairs_stage_next(struct transfer_pairs *pairs)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; pairs->started && status == PLASMON_OK && i < TRANSFER_LANES;
         i++) {
        status = half_stage(pairs, i);
    }
    return status;
}

plasmon_status_t transfer_pair_stage(struct transfer_pairs *pairs,
                                     const struct transfer_pair_key *key,
                                     uint64_t *out_first)
{
    struct transfer_lane *lane = &pairs->lanes[transfer_lane_of(key)].on;
    struct pair *pair;

    *out_first = 0;
    pl_mutex_lock(&pairs->lock);
    pair = pair_find_locked(pairs, key);
    if (pair != NULL && pair->on.broken) {
        /* else it never carried anything, or carries nothing */
        *out_first = transfer_lane_first_lost(lane, &pair->on);
        transfer_lane_stage(lane, &pair->on);
        pair_watch_nudge_locked(pairs);
    }
    pl_mutex_unlock(&pairs->lock);
    return transfer_pairs_stage_next(pairs);
}

bool transfer_pairs_settled(struct transfer_pairs *pairs, uint32_t lane)
{
    bool settled;

    pl_mutex_lock(&pairs->lock);
    settled = transfer_lane_settled(&pairs->lanes[lane].on);
    pl_mutex_unlock(&pairs->lock);
    return settled;
}

void transfer_pair_sent(struct transfer_pairs *pairs, uint64_t seq)
{
    pl_mutex_lock(&pairs->lock);
    transfer_lane_sent(&pairs->lanes[TRANSFER_LANE_SENDS].on, seq);
    pair_watch_nudge_locked(pairs);
    pl_mutex_unlock(&pairs->lock);
}
