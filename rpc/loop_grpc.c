/*
 * The backend of a loop that is one completion queue of gRPC.
 *
 * Waking it from another thread: a batch of no operations puts its tag into the queue of its call
 * at once. The call is one of a lame channel, which exists without a target or a socket.
 */
#include "rpc/grpc_int.h"

#include <assert.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/fd.h"

static const struct rpc_loop_ops loop_grpc_ops;

static struct rpc_loop_grpc *loop_of(struct rpc_loop *loop)
{
    assert(loop->ops == &loop_grpc_ops);
    return pl_container_of(loop, struct rpc_loop_grpc, base);
}

grpc_completion_queue *rpc_loop_queue(struct rpc_loop *loop)
{
    return loop_of(loop)->queue;
}

struct rpc_shms *rpc_loop_shms(struct rpc_loop *loop)
{
    return &loop_of(loop)->shms;
}

static enum rpc_step loop_grpc_step(struct rpc_loop *base, uint64_t deadline_ns)
{
    struct rpc_loop_grpc *loop = loop_of(base);
    struct rpc_tag *tag;
    grpc_event event;
    bool sleeps;

    if (rpc_shms_look(&loop->shms)) {
        return RPC_STEP_EVENT;
    }
    sleeps = deadline_ns != 0 && rpc_shms_rest(&loop->shms, RPC_REST_SLEEPS);
    event  = grpc_completion_queue_next(loop->queue,
                                        rpc_deadline_ns(sleeps ? deadline_ns : 0), NULL);
    if (sleeps) {
        rpc_shms_rise(&loop->shms);
    }
    tag = event.tag;
    if (event.type != GRPC_OP_COMPLETE) {
        rpc_shms_pass(&loop->shms);
        return rpc_shms_look(&loop->shms) ? RPC_STEP_EVENT : RPC_STEP_TIMEOUT;
    }
    if (tag == &loop->wake_tag) {
        return RPC_STEP_WAKE;
    }
    tag->fn(tag, event.success != 0);
    return RPC_STEP_EVENT;
}

void rpc_loop_ring(struct rpc_loop *base)
{
    const struct rpc_loop_grpc *loop = loop_of(base);

    if (__atomic_load_n(&loop->pausing, __ATOMIC_SEQ_CST)) {
        pl_fd_raise(loop->bell);
    }
}

/*
 * What comes over a socket is seen at once, what other threads put into the queue when they ring.
 * Who just misses the ring, or has what came for this loop brought by another loop's thread (they
 * share the descriptor), sees it when the pause is over.
 */
static bool loop_grpc_pause(struct rpc_loop *base, uint64_t pause_ns)
{
    struct rpc_loop_grpc *loop = loop_of(base);
    struct timespec pause      = {.tv_sec  = (time_t)(pause_ns / 1000000000),
                                  .tv_nsec = (long)(pause_ns % 1000000000)};
    struct pollfd fds[]        = {{.fd = rpc_events_fd(), .events = POLLIN},
                                  {.fd = loop->bell, .events = POLLIN},
                                  {.fd = loop->shms.epoll, .events = POLLIN}};

    if (pause_ns == 0 || fds[0].fd < 0) {
        return false;
    }
    if (!rpc_shms_rest(&loop->shms, RPC_REST_PAUSES)) {
        return true;
    }
    __atomic_store_n(&loop->pausing, true, __ATOMIC_SEQ_CST);
    (void)ppoll(fds, PL_COUNT(fds), &pause, NULL);
    __atomic_store_n(&loop->pausing, false, __ATOMIC_SEQ_CST);
    if ((fds[1].revents & POLLIN) != 0) {
        (void)pl_fd_lower(loop->bell);
    }
    rpc_shms_rise(&loop->shms);
    if ((fds[2].revents & POLLIN) != 0) {
        rpc_shms_drain(&loop->shms);
    }
    return true;
}

static void loop_grpc_wake(struct rpc_loop *base)
{
    struct rpc_loop_grpc *loop = loop_of(base);
    grpc_call_error error =
        grpc_call_start_batch(loop->wake_call, NULL, 0, &loop->wake_tag, NULL);

    PL_CHECK(error == GRPC_CALL_OK); /* no ring: the loop may be gone by now */
}

static void loop_grpc_destroy(struct rpc_loop *base)
{
    struct rpc_loop_grpc *loop = loop_of(base);
    grpc_event event;

    grpc_completion_queue_shutdown(loop->queue);
    do {
        struct rpc_tag *tag;

        event = grpc_completion_queue_next(loop->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                           NULL);
        tag   = event.tag;
        if (event.type == GRPC_OP_COMPLETE && tag != &loop->wake_tag) {
            tag->fn(tag, event.success != 0);
        }
    } while (event.type != GRPC_QUEUE_SHUTDOWN);

    grpc_call_unref(loop->wake_call);
    grpc_channel_destroy(loop->lame);
    grpc_completion_queue_destroy(loop->queue);
    rpc_loop_finish(&loop->base);
    rpc_shms_finish(&loop->shms);
    pl_fd_close(&loop->bell);
    pl_free(loop);
}

static const struct rpc_loop_ops loop_grpc_ops = {
    .step    = loop_grpc_step,
    .pause   = loop_grpc_pause,
    .wake    = loop_grpc_wake,
    .destroy = loop_grpc_destroy,
};

plasmon_status_t rpc_loop_create(struct rpc_loop **out_loop)
{
    struct rpc_loop_grpc *loop = PL_NEW(struct rpc_loop_grpc);
    plasmon_status_t status;

    if (loop == NULL) {
        return PLASMON_ENOMEM;
    }
    status = rpc_loop_init(&loop->base, &loop_grpc_ops);
    if (status != PLASMON_OK) {
        pl_free(loop);
        return status;
    }
    rpc_shms_init(&loop->shms);
    loop->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->bell < 0) {
        rpc_loop_finish(&loop->base);
        pl_free(loop);
        return PLASMON_ELIMIT;
    }

    loop->queue = grpc_completion_queue_create_for_next(NULL);
    loop->lame  = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "wake");
    loop->wake_call =
        grpc_channel_create_call(loop->lame, NULL, GRPC_PROPAGATE_DEFAULTS, loop->queue,
                                 grpc_slice_from_static_string("/wake"), NULL,
                                 gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    *out_loop = &loop->base;
    return PLASMON_OK;
}
