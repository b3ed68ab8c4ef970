/*
 * Loops: posts, timers, the tick and the idle callback, over a backend that waits for events
 * (loop_grpc.c, loopback.c).
 *
 * One turn: run what is due, wait for one event, handle it. While events keep coming the wait is
 * only a look; when the look finds nothing the burst is over, and `idle` is called before the
 * thread sleeps. So that a burst without end does not starve what idle sends, it is also called
 * every LOOP_BURST_EVENTS, and every LOOP_BURST_NS: somebody may have nothing to do until he is
 * sent the first of what came. With many things under way he has, mostly, and what goes to him
 * together costs less, so then it is called less often, every LOOP_BURST_MANY_NS.
 *
 * What nobody waits for can be left for after idle (rpc_loop_late()): who had nothing to do before
 * this burst, and has little under way, is waited for. Then the loop looks once more before it
 * sleeps, and the burst goes on without.
 *
 * A thread whose last event was a moment ago does not fall asleep: it looks again after short
 * pauses (base/linger.h).
 *
 * WAKING  The first post (or stop, or earlier timer) wakes the backend and sets wake_pending;
 * others find it set and only add to the list. The thread clears it under the lock in the moment it
 * takes the list, so none is left behind.
 */
#include "rpc/rpc_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/linger.h"
#include "base/log.h"
#include "base/thread.h"

#define LOOP_BURST_EVENTS 64u
/* as long as it takes until who waits has it anyhow */
#define LOOP_BURST_NS UINT64_C(50000)
/* at 1.5 million tasks a second: 300 of them go together */
#define LOOP_BURST_MANY_NS UINT64_C(200000)

/* that wait at once, nearly always */
#define POSTS_FEW 32u

struct rpc_post {
    void (*fn)(void *user);
    void *user;
};

/* So that a post of few finds room, also where there is no memory left. */
static bool posts_reserve(struct pl_vec *posts)
{
    bool has_room = pl_vec_push_n(posts, POSTS_FEW) != NULL;

    pl_vec_clear(posts);
    return has_room;
}

plasmon_status_t rpc_loop_init(struct rpc_loop *loop, const struct rpc_loop_ops *ops)
{
    plasmon_status_t status = PLASMON_ENOMEM;

    loop->ops   = ops;
    loop->posts = PL_VEC_INIT(struct rpc_post);
    loop->spare = PL_VEC_INIT(struct rpc_post);
    pl_list_init(&loop->timers);
    pl_list_init(&loop->late);
    if (posts_reserve(&loop->posts) && posts_reserve(&loop->spare)) {
        status = pl_mutex_init(&loop->lock, RPC_RANK_LOOP);
    }
    if (status != PLASMON_OK) {
        pl_vec_finish(&loop->posts);
        pl_vec_finish(&loop->spare);
    }
    return status;
}

void rpc_loop_finish(struct rpc_loop *loop)
{
    assert(pl_list_empty(&loop->timers));
    assert(pl_list_empty(&loop->late));

    pl_vec_finish(&loop->posts);
    pl_vec_finish(&loop->spare);
    pl_mutex_finish(&loop->lock);
}

/* True: this call must wake the backend, after the unlock. */
static bool loop_wake_needed_locked(struct rpc_loop *loop)
{
    bool needed = !loop->wake_pending;

    pl_mutex_assert_held(&loop->lock);
    loop->wake_pending = true;
    return needed;
}

void rpc_loop_post(struct rpc_loop *loop, void (*fn)(void *user), void *user)
{
    struct rpc_post *post;
    bool wake;

    pl_mutex_lock(&loop->lock);
    post = pl_vec_push(&loop->posts);
    PL_CHECK(post != NULL); /* a lost post is a lost wake-up somewhere: better to stop */
    *post = (struct rpc_post){.fn = fn, .user = user};
    wake  = loop_wake_needed_locked(loop);
    pl_mutex_unlock(&loop->lock);

    if (wake) {
        loop->ops->wake(loop);
    }
}

void rpc_loop_stop(struct rpc_loop *loop)
{
    bool wake;

    pl_mutex_lock(&loop->lock);
    loop->stopped = true;
    wake          = loop_wake_needed_locked(loop);
    pl_mutex_unlock(&loop->lock);

    if (wake) {
        loop->ops->wake(loop);
    }
}

void rpc_loop_set_tick(struct rpc_loop *loop, uint32_t interval_ms,
                       void (*tick)(void *user), void *user)
{
    loop->tick        = tick;
    loop->tick_user   = user;
    loop->tick_ns     = (uint64_t)interval_ms * 1000000u;
    loop->tick_due_ns = pl_now_ns() + loop->tick_ns;
}

void rpc_loop_set_idle(struct rpc_loop *loop, void (*idle)(void *user), void *user)
{
    loop->idle      = idle;
    loop->idle_user = user;
}

void rpc_loop_set_many(struct rpc_loop *loop, bool (*many)(void *user), void *user)
{
    loop->many      = many;
    loop->many_user = user;
}

/* ------------------------------------------------------------------------------- timers */

void rpc_timer_init(struct rpc_timer *timer, void (*fn)(struct rpc_timer *timer))
{
    pl_list_init(&timer->link);
    timer->fn = fn;
}

/* Few timers live at once (connects, closes), so the list is not sorted. */
static uint64_t loop_first_timer_locked(struct rpc_loop *loop, struct rpc_timer **out_timer)
{
    uint64_t first = RPC_NEVER_NS;
    struct pl_list *pos;

    pl_list_for_each(pos, &loop->timers) {
        struct rpc_timer *timer = pl_container_of(pos, struct rpc_timer, link);

        if (timer->deadline_ns < first) {
            first      = timer->deadline_ns;
            *out_timer = timer;
        }
    }
    return first;
}

void rpc_timer_arm(struct rpc_loop *loop, struct rpc_timer *timer, uint32_t after_ms)
{
    bool wake;

    pl_mutex_lock(&loop->lock);
    pl_list_remove(&timer->link);
    timer->deadline_ns = pl_now_ns() + (uint64_t)after_ms * 1000000u;
    pl_list_add_tail(&loop->timers, &timer->link);
    wake = loop_wake_needed_locked(loop);
    pl_mutex_unlock(&loop->lock);

    if (wake) {
        loop->ops->wake(loop);
    }
}

void rpc_timer_disarm(struct rpc_loop *loop, struct rpc_timer *timer)
{
    pl_mutex_lock(&loop->lock);
    pl_list_remove(&timer->link);
    pl_mutex_unlock(&loop->lock);
}

/* Runs what is due and says when the next will be. */
static uint64_t loop_run_timers(struct rpc_loop *loop, uint64_t now)
{
    for (;;) {
        struct rpc_timer *timer = NULL;
        uint64_t first;

        pl_mutex_lock(&loop->lock);
        first = loop_first_timer_locked(loop, &timer);
        if (first > now) {
            pl_mutex_unlock(&loop->lock);
            return first;
        }
        pl_list_remove(&timer->link);
        pl_mutex_unlock(&loop->lock);
        timer->fn(timer);
    }
}

/* ------------------------------------------------------------------------------ running */

static uint64_t loop_run_tick(struct rpc_loop *loop, uint64_t now)
{
    if (loop->tick == NULL) {
        return RPC_NEVER_NS;
    }
    if (now >= loop->tick_due_ns) {
        loop->tick_due_ns = now + loop->tick_ns;
        loop->tick(loop->tick_user);
    }
    return loop->tick_due_ns;
}

static void loop_run_posts(struct rpc_loop *loop)
{
    struct pl_vec posts;

    pl_mutex_lock(&loop->lock);
    loop->wake_pending = false;
    posts              = loop->posts;
    loop->posts        = loop->spare;
    loop->spare        = PL_VEC_INIT(struct rpc_post); /* of a loop that runs in a post */
    pl_mutex_unlock(&loop->lock);

    for (size_t i = 0; i < posts.count; i++) {
        struct rpc_post *post = pl_vec_at(&posts, i);

        post->fn(post->user);
    }

    /* Give the memory back for the next burst. */
    pl_vec_clear(&posts);
    pl_mutex_lock(&loop->lock);
    if (loop->spare.capacity == 0) {
        loop->spare = posts;
        posts       = PL_VEC_INIT(struct rpc_post);
    }
    pl_mutex_unlock(&loop->lock);
    pl_vec_finish(&posts);
}

bool rpc_loop_late(struct rpc_loop *loop, struct rpc_late *late)
{
    if (loop->lates) {
        pl_list_add_tail(&loop->late, &late->link);
    }
    return loop->lates;
}

/* False: there was none. */
static bool loop_run_late(struct rpc_loop *loop)
{
    bool any = !pl_list_empty(&loop->late);

    loop->lates = false;
    while (!pl_list_empty(&loop->late)) {
        struct rpc_late *late = pl_list_first(&loop->late, struct rpc_late, link);

        pl_list_remove(&late->link);
        late->fn(late);
    }
    return any;
}

/* Wait for one event and handle it, posts included. */
static enum rpc_step loop_step(struct rpc_loop *loop, uint64_t deadline_ns)
{
    enum rpc_step step = loop->ops->step(loop, deadline_ns);

    if (step == RPC_STEP_WAKE) {
        loop_run_posts(loop);
    }
    return step;
}

static bool many_under_way(struct rpc_loop *loop)
{
    bool many = loop->many != NULL && loop->many(loop->many_user);

    __atomic_store_n(&loop->is_many, many, __ATOMIC_RELAXED);
    return many;
}

/* With many things under way more is to come, and comes in one then. */
static void loop_pause(struct rpc_loop *loop, uint64_t waited_ns)
{
    bool many = many_under_way(loop);

    if (many || loop->ops->pause == NULL ||
        !loop->ops->pause(loop, pl_linger_pause_ns(waited_ns, false))) {
        pl_linger_pause(&loop->waits, waited_ns, many);
    }
}

static enum rpc_step loop_wait(struct rpc_loop *loop, uint64_t deadline_ns)
{
    const uint64_t linger_ns = pl_linger_ns();
    uint64_t now_ns          = pl_now_ns();
    enum rpc_step step       = RPC_STEP_TIMEOUT;

    while (step == RPC_STEP_TIMEOUT && now_ns - loop->event_ns < linger_ns &&
           now_ns < deadline_ns) {
        loop_pause(loop, now_ns - loop->event_ns);
        step   = loop_step(loop, 0);
        now_ns = pl_now_ns();
    }
    if (step == RPC_STEP_TIMEOUT && now_ns < deadline_ns) {
        step   = loop_step(loop, deadline_ns);
        now_ns = pl_now_ns();
    }
    if (step != RPC_STEP_TIMEOUT) {
        pl_recent_learn(&loop->waits, now_ns - loop->event_ns);
        loop->event_ns = now_ns;
    }
    return step;
}

static enum rpc_step loop_wait_first(struct rpc_loop *loop, uint64_t deadline_ns)
{
    loop->lates = loop->idle != NULL && !many_under_way(loop);
    return loop_wait(loop, deadline_ns);
}

static void loop_idle(struct rpc_loop *loop)
{
    loop->events = 0;
    loop->idle(loop->idle_user);
    if (loop_run_late(loop) && loop_step(loop, 0) != RPC_STEP_TIMEOUT) {
        loop->event_ns = pl_now_ns();
        loop->burst_ns = loop->event_ns;
        loop->events   = 1;
    }
}

static bool burst_is_long(struct rpc_loop *loop, uint64_t now_ns)
{
    uint64_t so_far_ns = now_ns > loop->burst_ns ? now_ns - loop->burst_ns : 0;

    return loop->events > 1 && so_far_ns > LOOP_BURST_NS &&
           (so_far_ns > LOOP_BURST_MANY_NS || !many_under_way(loop));
}

static void loop_turn(struct rpc_loop *loop)
{
    uint64_t now  = pl_now_ns();
    uint64_t next = pl_min_u64(loop_run_timers(loop, now), loop_run_tick(loop, now));
    enum rpc_step step =
        loop->events > 0 ? loop_step(loop, 0) : loop_wait_first(loop, next);

    if (loop->events > 0 && step != RPC_STEP_TIMEOUT) {
        loop->event_ns = now;
    }

    if (loop->idle == NULL) {
        return;
    }
    if (step != RPC_STEP_TIMEOUT && loop->events++ == 0) {
        loop->burst_ns = loop->event_ns;
    }
    if ((step == RPC_STEP_TIMEOUT && loop->events > 0) ||
        loop->events >= LOOP_BURST_EVENTS || burst_is_long(loop, now)) {
        loop_idle(loop);
    }
}

static bool loop_stopped(struct rpc_loop *loop)
{
    bool stopped;

    pl_mutex_lock(&loop->lock);
    stopped = loop->stopped;
    pl_mutex_unlock(&loop->lock);
    return stopped;
}

void rpc_loop_drive(struct rpc_loop *loop, bool (*done)(void *user), void *user)
{
    (void)loop_run_late(loop); /* here is no idle */
    while (!done(user)) {
        (void)loop_step(loop,
                        loop_run_timers(loop, pl_now_ns())); /* done() is what counts */
    }
}

void rpc_loop_run(struct rpc_loop *loop)
{
    pl_linger_thread();
    while (!loop_stopped(loop)) {
        loop_turn(loop);
    }
    (void)loop_run_late(loop);
}

static void *loop_main(void *user)
{
    struct rpc_loop *loop = user;

    (void)pthread_setname_np(pthread_self(), loop->thread_name);
    rpc_loop_run(loop);
    return NULL;
}

plasmon_status_t rpc_loop_start(struct rpc_loop *loop, const char *thread_name)
{
    int error;

    assert(!loop->started);

    (void)snprintf(loop->thread_name, sizeof(loop->thread_name), "%s", thread_name);
    error = pl_thread_start(&loop->thread, loop_main, loop);
    if (error != 0) {
        pl_error("rpc", "cannot start the thread %s: %s", thread_name,
                 error == EAGAIN ? PL_THREAD_NONE_LEFT : strerror(error));
        return error == EAGAIN ? PLASMON_ELIMIT : pl_status_from_errno(error);
    }
    loop->started = true;
    return PLASMON_OK;
}

void rpc_loop_destroy(struct rpc_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    if (loop->started) {
        rpc_loop_stop(loop);
        (void)pthread_join(loop->thread, NULL);
    }
    loop_run_posts(loop); /* whoever posted may have counted on it */
    loop->ops->destroy(loop);
}
