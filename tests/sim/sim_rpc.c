/* libplasmon on a simulated network: see sim_rpc.h. One rpc_loop is one process of a client. */
#include "tests/sim/sim_rpc.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/lock.h"
#include "client/client_int.h"
#include "rpc/rpc.h"

enum {
    LOOP_MAX_NS     = 30000, /* until the loop's thread comes to something */
    CLOSED_MAX_NS   = 200000,
    QUIET_NS        = 20000000,
    REFUSE_PERMILLE = 15, /* of the messages: so much is queued already */
    IDLE_PERMILLE   = 300,
};
/* of virtual time: who waits longer waits for ever */
#define WAIT_MAX_NS UINT64_C(120000000000)

struct rpc_loop {
    struct sim_client *place; /* NULL: the process is dead, or over */
    void (*tick)(void *user);
    void *tick_user;
    uint64_t tick_ns;
    bool running;
};
struct rpc_channel {
    struct rpc_loop *loop;
};
struct rpc_stream {
    struct rpc_loop *loop;
    const struct rpc_stream_ops *ops;
    void *user;
    bool closing; /* closed() is on its way */
    bool begun;   /* something was sent */
    bool writable_due;
};
struct posted {
    void (*fn)(void *user);
    void *user;
};
struct closing {
    plasmon_status_t status;
    char why[200];
};

/* Of the one simulation. What was made stays until its end: events name it. */
static struct sim *sim;
static void (*on_failed)(struct sim *sim);
static struct pl_vec made;  /* void *: loops, channels, streams */
static struct pl_vec loops; /* struct rpc_loop * */
static struct pl_vec dead;  /* struct plasmon_client * */
static struct sim_client *next_place;
static unsigned in_loop;
static const struct pl_cond *awaited;
static bool woken;

static void *make(size_t bytes)
{
    void *thing  = sim_alloc(bytes);
    void **place = pl_vec_push(&made);

    PL_CHECK(place != NULL);
    *place = thing;
    return thing;
}

/* ---------------------------------------------------------------- clock, threads, waits */

uint64_t __wrap_pl_now_ns(void);
uint64_t __real_pl_now_ns(void);
pthread_t __wrap_pthread_self(void);
pthread_t __real_pthread_self(void);
void __wrap_pl_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex);
int __wrap_pl_cond_wait_until(struct pl_cond *cond, struct pl_mutex *mutex,
                              uint64_t deadline_ns);
void __wrap_pl_cond_signal(struct pl_cond *cond);
void __wrap_pl_cond_broadcast(struct pl_cond *cond);

uint64_t __wrap_pl_now_ns(void)
{
    return sim != NULL ? sim->now_ns : __real_pl_now_ns();
}

pthread_t __wrap_pthread_self(void)
{
    return __real_pthread_self() ^ (in_loop > 0);
}

static void step(void)
{
    if (sim->events.count == 0) {
        sim_look_at(sim, QUIET_NS);
    }
    (void)sim_step(sim);
    if (sim->failed) {
        on_failed(sim);
    }
}

int __wrap_pl_cond_wait_until(struct pl_cond *cond, struct pl_mutex *mutex,
                              uint64_t deadline_ns)
{
    uint64_t began_ns = sim->now_ns;
    int signalled;

    PL_CHECK(in_loop == 0 && awaited == NULL); /* the loop's thread never waits */
    pl_mutex_unlock(mutex);
    awaited = cond;
    woken   = false;
    while (!woken && sim->now_ns < deadline_ns) {
        step();
        if (sim->now_ns - began_ns > WAIT_MAX_NS) {
            struct pl_str text;

            pl_str_init(&text);
            sim_describe(sim, &text);
            sim_fail(sim, "a client waits for ever:\n%s", pl_str_text(&text));
            pl_str_finish(&text);
            on_failed(sim);
        }
    }
    signalled = woken;
    awaited   = NULL;
    pl_mutex_lock(mutex);
    return signalled;
}

void __wrap_pl_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex)
{
    (void)__wrap_pl_cond_wait_until(cond, mutex, UINT64_MAX);
}

void __wrap_pl_cond_broadcast(struct pl_cond *cond)
{
    woken |= cond == awaited;
}

void __wrap_pl_cond_signal(struct pl_cond *cond)
{
    __wrap_pl_cond_broadcast(cond);
}

void sim_rpc_pass(uint64_t ns)
{
    uint64_t until_ns = sim->now_ns + ns;

    sim_look_at(sim, ns);
    while (sim->now_ns < until_ns) {
        step();
    }
}

/* -------------------------------------------------------------------------------- loops */

static void loop_ticks(void *user, uint64_t arg, void *data)
{
    struct rpc_loop *loop = user;

    (void)arg;
    (void)data;
    if (loop->place == NULL || !loop->running) {
        return;
    }
    in_loop++;
    loop->tick(loop->tick_user);
    in_loop--;
    sim_after(sim, loop->tick_ns, loop_ticks, loop, 0, NULL);
}

static void posted_runs(void *user, uint64_t arg, void *data)
{
    struct rpc_loop *loop       = user;
    const struct posted *posted = data;

    (void)arg;
    if (loop->place != NULL && loop->running) {
        in_loop++;
        posted->fn(posted->user);
        in_loop--;
    }
}

void rpc_init(void)
{
}

void rpc_finish(void)
{
}

bool rpc_inherited(void)
{
    return false;
}

plasmon_status_t rpc_loop_create(struct rpc_loop **out_loop)
{
    struct rpc_loop **kept = pl_vec_push(&loops);

    PL_CHECK(kept != NULL);
    *kept = *out_loop  = make(sizeof(**out_loop));
    (*out_loop)->place = next_place;
    return PLASMON_OK;
}

plasmon_status_t rpc_loop_start(struct rpc_loop *loop, const char *thread_name)
{
    (void)thread_name;
    loop->running = true;
    if (loop->tick != NULL) {
        sim_after(sim, loop->tick_ns, loop_ticks, loop, 0, NULL);
    }
    return PLASMON_OK;
}

void rpc_loop_stop(struct rpc_loop *loop)
{
    loop->running = false;
}

void rpc_loop_destroy(struct rpc_loop *loop)
{
    loop->running = false;
    loop->place   = NULL;
}

void rpc_loop_post(struct rpc_loop *loop, void (*fn)(void *user), void *user)
{
    struct posted *posted = sim_alloc(sizeof(*posted));

    *posted = (struct posted){.fn = fn, .user = user};
    sim_after(sim, sim_below(sim, LOOP_MAX_NS), posted_runs, loop, 0, posted);
}

void rpc_loop_set_tick(struct rpc_loop *loop, uint32_t interval_ms,
                       void (*tick)(void *user), void *user)
{
    loop->tick      = tick;
    loop->tick_user = user;
    loop->tick_ns   = interval_ms * UINT64_C(1000000);
}

void rpc_loop_set_many(struct rpc_loop *loop, bool (*many)(void *user), void *user)
{
    (void)loop; /* this network does not pause */
    (void)many;
    (void)user;
}

/* ------------------------------------------------------------------------------ streams */

static void stream_closed(void *user, uint64_t arg, void *data)
{
    struct rpc_stream *stream     = user;
    const struct closing *closing = data;
    struct sim_client *place      = stream->loop->place;

    (void)arg;
    if (awaited != NULL) {
        sim_cover(sim, SIM_CELL_CLIENT_WAITING);
    }
    if (place != NULL && place->library_user == stream) {
        place->library_user = NULL;
        if (place->to_head.up) { /* we end it, and all that was sent has gone out */
            sim_pipe_break(&place->to_head);
            sim_pipe_break(&place->from_head);
            sim_head_client_lost(place);
        }
    }
    in_loop++;
    stream->ops->closed(stream->user, stream, closing->status, closing->why);
    in_loop--;
}

static void close_later(struct rpc_stream *stream, plasmon_status_t status, const char *why,
                        uint64_t delay_ns)
{
    struct closing *closing;

    if (stream->closing) {
        return;
    }
    stream->closing = true;
    closing         = sim_alloc(sizeof(*closing));
    closing->status = status;
    (void)snprintf(closing->why, sizeof(closing->why), "%s", why);
    sim_after(sim, delay_ns, stream_closed, stream, 0, closing);
}

static void library_message(struct sim_client *place, const uint8_t *data, size_t length)
{
    struct rpc_stream *stream = place->library_user;

    if (stream != NULL && !stream->closing) {
        in_loop++;
        stream->ops->message(stream->user, stream, data, length);
        in_loop--;
    }
}

static void library_closed(struct sim_client *place, plasmon_status_t status,
                           const char *why)
{
    if (place->library_user != NULL) {
        close_later(place->library_user, status, why, sim_below(sim, CLOSED_MAX_NS));
    }
}

static const struct sim_library library = {.message = library_message,
                                           .closed  = library_closed};

static void stream_writable(void *user, uint64_t arg, void *data)
{
    struct rpc_stream *stream = user;

    (void)arg;
    (void)data;
    stream->writable_due = false;
    if (stream->loop->place != NULL && !stream->closing) {
        in_loop++;
        stream->ops->writable(stream->user, stream);
        in_loop--;
    }
}

uint8_t *rpc_buffer_create(size_t length)
{
    return sim_alloc(length + 1);
}

void rpc_buffer_destroy(uint8_t *buffer)
{
    pl_free(buffer);
}

static void note_sent(struct sim_client *place, const uint8_t *bytes, size_t length)
{
    Plasmon__V1__ClientFrame *frame = NULL;
    struct pl_err err               = {0};

    wire_arena_reset(&sim->arena);
    if (wire_decode_client_frame(&sim->arena, bytes, length, &frame, &err) != PLASMON_OK) {
        sim_fail(sim, "client %u sends what is no frame: %s", place->index, err.text);
        return;
    }
    sim_trace(sim, "client %u sends frame %llu, acknowledges %llu%s", place->index,
              (unsigned long long)frame->header->seq,
              (unsigned long long)frame->header->ack,
              frame->hello != NULL ? ", hello" : "");
    if (frame->hello != NULL && frame->hello->resume_session == 0) {
        place->seq_sent = 0;
    }
    if (frame->header->seq != 0 && frame->header->seq <= place->seq_sent) {
        sim_cover(sim, SIM_CELL_CLIENT_RESENT);
    }
    place->seq_sent = pl_max_u64(place->seq_sent, frame->header->seq);
}

plasmon_status_t rpc_stream_send(struct rpc_stream *stream, uint8_t *buffer, size_t length)
{
    struct sim_client *place = stream->loop->place;
    plasmon_status_t status  = PLASMON_OK;

    if (place == NULL || stream->closing || !place->to_head.up) {
        status = PLASMON_ECLOSED;
    } else if (stream->begun && sim_chance(sim, REFUSE_PERMILLE)) {
        status = PLASMON_EAGAIN;
        sim_trace(sim, "client %u is to wait before it sends more", place->index);
        sim_cover(sim, SIM_CELL_CLIENT_REFUSED);
    } else {
        note_sent(place, buffer, length);
        sim_pipe_send(&place->to_head, buffer, length);
        stream->begun = true;
    }
    rpc_buffer_destroy(buffer);
    if (place != NULL && !stream->closing && !stream->writable_due) {
        stream->writable_due = true;
        sim_after(sim, sim_below(sim, LOOP_MAX_NS), stream_writable, stream, 0, NULL);
    }
    return status;
}

/* What was sent may have been taken before anybody is told: that is so with shared memory. */
bool rpc_stream_idle(struct rpc_stream *stream)
{
    return !stream->writable_due || sim_chance(sim, IDLE_PERMILLE);
}

void rpc_stream_close(struct rpc_stream *stream, plasmon_status_t status, const char *why)
{
    struct sim_client *place = stream->loop->place;
    uint64_t until_ns        = place != NULL ? place->to_head.last_ns + 1 : 0;

    close_later(stream, status, why,
                until_ns > sim->now_ns && status == PLASMON_OK ? until_ns - sim->now_ns
                                                               : 1);
}

plasmon_status_t rpc_stream_open(struct rpc_channel *channel, const char *path,
                                 uint32_t connect_timeout_ms,
                                 const struct rpc_stream_ops *ops, void *user,
                                 struct rpc_stream **out_stream)
{
    struct sim_client *place  = channel->loop->place;
    struct rpc_stream *stream = make(sizeof(*stream));

    (void)path;
    (void)connect_timeout_ms;
    *stream     = (struct rpc_stream){.loop = channel->loop, .ops = ops, .user = user};
    *out_stream = stream;
    if (place == NULL) {
        return PLASMON_ECONNECT;
    }
    PL_CHECK(place->library_user == NULL);
    place->library_user = stream;
    sim_pipe_open(&place->to_head);
    return PLASMON_OK;
}

plasmon_status_t rpc_channel_create(struct rpc_loop *loop,
                                    const struct rpc_channel_config *config,
                                    struct rpc_channel **out_channel)
{
    (void)config;
    *out_channel         = make(sizeof(**out_channel));
    (*out_channel)->loop = loop;
    return PLASMON_OK;
}

void rpc_channel_destroy(struct rpc_channel *channel)
{
    (void)channel;
}

/* What is asked besides the session (status, figures) has nobody who answers here, now or later. */
plasmon_status_t rpc_unary_call(struct rpc_channel *channel, const char *path,
                                const uint8_t *bytes, size_t length, uint32_t timeout_ms,
                                uint8_t **out_bytes, size_t *out_length, struct pl_err *err)
{
    (void)channel;
    (void)bytes;
    (void)length;
    (void)timeout_ms;
    (void)out_bytes;
    (void)out_length;
    return pl_err_set(err, PLASMON_ENOTSUP, "nobody answers %s in a simulation", path);
}

/* ---------------------------------------------------------------------------- processes */

void sim_rpc_start(struct sim *of, void (*failed)(struct sim *sim))
{
    sim       = of;
    on_failed = failed;
    made      = PL_VEC_INIT(void *);
    loops     = PL_VEC_INIT(struct rpc_loop *);
    dead      = PL_VEC_INIT(struct plasmon_client *);
    in_loop   = 0;
    awaited   = NULL;
}

void sim_rpc_finish(void)
{
    for (size_t i = 0; i < made.count; i++) {
        pl_free(*(void **)pl_vec_at(&made, i));
    }
    pl_vec_finish(&made);
    pl_vec_finish(&loops);
    pl_vec_finish(&dead);
    sim = NULL;
}

plasmon_status_t sim_rpc_open(struct sim_client *place, struct plasmon_client **out_client)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;

    options.address    = "simhead:1";
    options.label      = "sim";
    options.name_space = "sim";
    place->library     = &library;
    next_place         = place;
    return plasmon_init(&options, out_client);
}

void sim_rpc_kill(struct sim_client *place, struct plasmon_client *client)
{
    struct plasmon_client **kept = pl_vec_push(&dead);

    PL_CHECK(kept != NULL);
    if (client->refs.tasks_live > 0) {
        sim_cover(sim, SIM_CELL_CLIENT_KILLED);
    }
    *kept               = client;
    place->library_user = NULL;
    for (size_t i = 0; i < loops.count; i++) {
        struct rpc_loop *loop = *(struct rpc_loop **)pl_vec_at(&loops, i);

        if (loop->place == place) {
            loop->place = NULL;
        }
    }
    sim_pipe_break(&place->to_head);
    sim_pipe_break(&place->from_head);
    sim_head_client_forget(place);
}

void sim_rpc_bury(void)
{
    for (size_t i = 0; i < dead.count; i++) {
        plasmon_finish(*(struct plasmon_client **)pl_vec_at(&dead, i));
    }
    pl_vec_clear(&dead);
}
