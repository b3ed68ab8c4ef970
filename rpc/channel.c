/*
 * Client channels: how to connect, the token, blocking unary calls, and the reason when there is no
 * connection.
 *
 * THE WATCH  The core reconnects only while somebody polls for the channel. The loop's thread
 * always polls, and a pending watch of the channel's state makes it poll for this channel even when
 * it has no stream. The watch comes back when the channel is destroyed, and then frees it.
 */
#include "rpc/grpc_int.h"

#include <assert.h>
#include <fcntl.h>
#include <grpc/grpc_posix.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"

#define CHANNEL_EXPLAIN_MS  100u
#define CHANNEL_MISTRUST_MS 500u

/*
 * study: keepalive finds a frozen peer in 15 s; without max_pings 0 it stops after two pings on a
 * silent stream.
 */
static const struct {
    const char *name;
    int value;
} channel_args[] = {
    {"grpc.keepalive_time_ms", 10000},
    {"grpc.keepalive_timeout_ms", 5000},
    {"grpc.keepalive_permit_without_calls", 1},
    {"grpc.http2.max_pings_without_data", 0},
    {"grpc.enable_http_proxy",
     0}, /* http_proxy in the environment would capture even 127.0.0.1 */
    {"grpc.enable_retries", 0},
    {"grpc.enable_channelz", 0},
    {"grpc.max_channel_trace_event_memory_per_node", 0},
    {"grpc.per_message_compression", 0},
    {"grpc.use_local_subchannel_pool", 1},
    {"grpc.initial_reconnect_backoff_ms", 100},
    {"grpc.min_reconnect_backoff_ms", 1000},
    {"grpc.max_reconnect_backoff_ms", 1000},
    {"grpc.dns_min_time_between_resolutions_ms", 100},
    {"grpc.max_send_message_length", -1},
};

/*
 * What the core calls this target; pl_free it. NULL: no memory. Several addresses, "10.0.0.1:4711,10.0.0.2:4711" or
 * "[fd00::1]:4711,[fd00::2]:4711", are tried in their order until one answers, at each connection
 * anew: a head, and the one that stands by for it.
 */
static bool target_is_several(const char *target)
{
    return strchr(target, ',') != NULL && strncmp(target, "unix:", 5) != 0 &&
           strncmp(target, "ipv", 3) != 0;
}

static char *channel_uri(const char *target)
{
    const char *scheme = target[0] == '[' ? "ipv6:" : "ipv4:";
    size_t length      = strlen(target) + strlen(scheme) + 1;
    char *uri          = pl_alloc(length);

    if (uri != NULL) {
        (void)snprintf(uri, length, "%s%s", target_is_several(target) ? scheme : "",
                       target);
    }
    return uri;
}

/*
 * fd: used when there is no target.
 *
 * Of several addresses the core would ask each head for a certificate in the name of the whole
 * list, which none has. It is told to ask for the role of a head, a name that all of them have, and
 * we look whether theirs is one of the list (tls.c).
 */
static grpc_channel *channel_connect(const struct rpc_channel *channel, int fd,
                                     const struct trust_pems *pems)
{
    bool several = fd < 0 && target_is_several(channel->target);
    grpc_channel_credentials *credentials =
        pems != NULL ? rpc_tls_channel_credentials(pems, several ? channel->target : NULL)
                     : grpc_insecure_credentials_create();
    int bytes_max = (int)pl_min_u64(channel->message_bytes_max, INT32_MAX);
    grpc_arg args[PL_COUNT(channel_args) + 2];
    grpc_channel_args list = {.num_args = PL_COUNT(args) - 1, .args = args};
    grpc_channel *core;

    for (size_t i = 0; i < list.num_args; i++) {
        bool last = i == PL_COUNT(channel_args);

        args[i].type          = GRPC_ARG_INTEGER;
        args[i].key           = (char *)(uintptr_t)(last ? "grpc.max_receive_message_length"
                                                         : channel_args[i].name);
        args[i].value.integer = last ? bytes_max : channel_args[i].value;
    }
    if (pems != NULL && several) {
        args[list.num_args].type = GRPC_ARG_STRING;
        args[list.num_args].key  = (char *)(uintptr_t) "grpc.ssl_target_name_override";
        args[list.num_args].value.string = (char *)(uintptr_t) "urn:plasmon:role:head";
        list.num_args++;
    }

    if (fd < 0) {
        core = grpc_channel_create(channel->uri, credentials, &list);
    } else {
        core = grpc_channel_create_from_fd("localhost", fd, credentials, &list);
    }
    grpc_channel_credentials_release(credentials);
    return core;
}

/* --------------------------------------------------------------------------------- life */

static void channel_free(struct rpc_channel *channel)
{
    if (channel->has_token) {
        grpc_slice_unref(channel->metadata[0].value);
    }
    trust_pems_release(channel->pems);
    pl_mutex_finish(&channel->lock);
    pl_free(channel->target);
    pl_free(channel->uri);
    pl_free(channel);
}

static void channel_watch_locked(struct rpc_channel *channel)
{
    grpc_connectivity_state now =
        grpc_channel_check_connectivity_state(channel->channel, 0);

    grpc_channel_watch_connectivity_state(
        channel->channel, now, gpr_inf_future(GPR_CLOCK_MONOTONIC),
        rpc_loop_queue(channel->loop), &channel->watch_tag);
}

static void channel_watched(struct rpc_tag *tag, bool ok)
{
    struct rpc_channel *channel = pl_container_of(tag, struct rpc_channel, watch_tag);
    bool destroyed;

    (void)ok;
    pl_mutex_lock(&channel->lock);
    destroyed = channel->destroyed;
    if (!destroyed) {
        channel_watch_locked(channel);
    }
    pl_mutex_unlock(&channel->lock);

    if (destroyed) {
        channel_free(channel);
    }
}

static plasmon_status_t channel_set_token(struct rpc_channel *channel, const char *token)
{
    size_t bytes = strlen(token) + sizeof("Bearer ");
    char *text   = pl_alloc(bytes);

    if (text == NULL) {
        return PLASMON_ENOMEM;
    }
    (void)snprintf(text, bytes, "Bearer %s", token);
    channel->metadata[0] = (grpc_metadata){
        .key   = grpc_slice_from_static_string("authorization"),
        .value = grpc_slice_from_copied_string(text),
    };
    channel->has_token = true;
    pl_free(text);
    return PLASMON_OK;
}

static plasmon_status_t channel_prepare_fd(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return PLASMON_EINVAL;
    }
    return PLASMON_OK;
}

plasmon_status_t rpc_channel_create(struct rpc_loop *loop,
                                    const struct rpc_channel_config *config,
                                    struct rpc_channel **out_channel)
{
    struct rpc_channel *channel = PL_NEW(struct rpc_channel);
    int fd                      = config->target == NULL ? config->fd : -1;
    plasmon_status_t status     = PLASMON_ENOMEM;

    if (channel == NULL) {
        goto err_close_fd;
    }
    status = pl_mutex_init(&channel->lock, PL_RANK_RPC);
    if (status != PLASMON_OK) {
        goto err_free;
    }

    channel->loop    = loop;
    channel->watched = config->target != NULL;
    channel->tcp     = config->target != NULL && strncmp(config->target, "unix:", 5) != 0;
    channel->tls     = channel->tcp ? config->tls : NULL;
    channel->watch_tag.fn      = channel_watched;
    channel->message_bytes_max = config->message_bytes_max != 0 ? config->message_bytes_max
                                                                : RPC_MESSAGE_BYTES_DEFAULT;
    channel->target =
        pl_strdup(config->target != NULL ? config->target : "the given descriptor");
    channel->uri = channel->target != NULL ? channel_uri(channel->target) : NULL;
    if (channel->uri == NULL) {
        status = PLASMON_ENOMEM;
        goto err_free_channel;
    }
    if (config->token != NULL && config->token[0] != '\0') {
        status = channel_set_token(channel, config->token);
        if (status != PLASMON_OK) {
            goto err_free_channel;
        }
    }
    channel->asks =
        !config->by_socket && rpc_shm_ask(&channel->metadata[channel->has_token]);
    if (config->target == NULL) {
        status = channel_prepare_fd(fd);
        if (status != PLASMON_OK) {
            goto err_free_channel;
        }
    }

    channel->pems    = channel->tls != NULL ? trust_source_get(channel->tls) : NULL;
    channel->channel = channel_connect(channel, fd, channel->pems);
    *out_channel     = channel; /* before the watch can come back */
    if (channel->watched) {
        pl_mutex_lock(&channel->lock);
        channel_watch_locked(channel);
        pl_mutex_unlock(&channel->lock);
    }
    return PLASMON_OK;

err_free_channel:
    channel_free(channel);
    channel = NULL;
err_free:
    pl_free(channel);
err_close_fd:
    pl_fd_close(&fd);
    return status;
}

void rpc_channel_destroy(struct rpc_channel *channel)
{
    grpc_channel *core;
    bool watched;

    if (channel == NULL) {
        return;
    }

    watched = channel->watched;
    pl_mutex_lock(&channel->lock);
    core               = channel->channel;
    channel->destroyed = true;
    pl_mutex_unlock(&channel->lock);

    grpc_channel_destroy(core); /* brings the watch back, which frees */
    if (!watched) {
        channel_free(channel);
    }
}

grpc_call *rpc_channel_call(struct rpc_channel *channel, grpc_completion_queue *queue,
                            const char *path, gpr_timespec deadline)
{
    grpc_slice method = grpc_slice_from_copied_string(path);
    grpc_call *call;

    pl_mutex_lock(&channel->lock); /* it may be about to be replaced */
    call = grpc_channel_create_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                    method, NULL, deadline, NULL);
    pl_mutex_unlock(&channel->lock);
    grpc_slice_unref(method);
    return call;
}

/*
 * Credentials are for the life of the core's channel, so new ones need a new channel. Calls of the
 * old one have a hold on it; its watch comes back when it is destroyed, and goes on with the new
 * one.
 */
void rpc_channel_refresh(struct rpc_channel *channel)
{
    struct trust_pems *fresh = channel->tls != NULL ? trust_source_get(channel->tls) : NULL;
    grpc_channel *core       = NULL;

    pl_mutex_lock(&channel->lock);
    if (fresh != NULL && fresh != channel->pems) {
        struct trust_pems *old = channel->pems;

        core             = channel->channel;
        channel->channel = channel_connect(channel, -1, fresh);
        channel->pems    = fresh;
        fresh            = old;
    }
    pl_mutex_unlock(&channel->lock);
    trust_pems_release(fresh);
    if (core != NULL) {
        grpc_channel_destroy(core);
    }
}

static bool channel_ready(struct rpc_channel *channel)
{
    bool ready;

    if (!channel->watched) {
        return true;
    }
    pl_mutex_lock(&channel->lock);
    ready =
        grpc_channel_check_connectivity_state(channel->channel, 0) == GRPC_CHANNEL_READY;
    pl_mutex_unlock(&channel->lock);
    return ready;
}

plasmon_status_t rpc_channel_mistrust(struct rpc_channel *channel, uint32_t timeout_ms,
                                      struct pl_err *err)
{
    struct trust_pems *pems = NULL;
    plasmon_status_t status;

    if (!channel->tcp || channel_ready(channel)) {
        return PLASMON_OK;
    }
    pl_mutex_lock(&channel->lock);
    if (channel->pems != NULL) {
        pems = trust_pems_hold(channel->pems);
    }
    pl_mutex_unlock(&channel->lock);
    status = trust_probe(channel->target, pems, timeout_ms, err);
    trust_pems_release(pems);
    return status;
}

static grpc_op metadata_op(struct rpc_channel *channel, bool wait_for_ready)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};

    if (wait_for_ready) {
        op.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                   GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    }
    if (channel->has_token) {
        op.data.send_initial_metadata.count    = 1;
        op.data.send_initial_metadata.metadata = channel->metadata;
    }
    return op;
}

grpc_op rpc_channel_stream_metadata_op(struct rpc_channel *channel)
{
    grpc_op op = metadata_op(channel, true);

    op.data.send_initial_metadata.count    = channel->has_token + channel->asks;
    op.data.send_initial_metadata.metadata = channel->metadata;
    return op;
}

/* -------------------------------------------------------------------------------- unary */

/* One unary call with a queue of its own, which the calling thread polls: it works whatever the loop does. */
struct channel_unary {
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code code;
    grpc_slice details;
    grpc_byte_buffer *answer;
};

static void unary_start(struct channel_unary *unary, struct rpc_channel *channel,
                        const char *path, uint32_t timeout_ms)
{
    *unary = (struct channel_unary){.details = grpc_empty_slice()};
    grpc_metadata_array_init(&unary->initial);
    grpc_metadata_array_init(&unary->trailing);
    unary->queue = grpc_completion_queue_create_for_pluck(NULL);
    unary->call =
        rpc_channel_call(channel, unary->queue, path, rpc_deadline_ms(timeout_ms));
}

static void unary_finish(struct channel_unary *unary)
{
    grpc_byte_buffer_destroy(unary->answer);
    grpc_slice_unref(unary->details);
    grpc_metadata_array_destroy(&unary->initial);
    grpc_metadata_array_destroy(&unary->trailing);
    grpc_call_unref(unary->call);
    grpc_completion_queue_shutdown(unary->queue);
    while (grpc_completion_queue_pluck(unary->queue, NULL,
                                       gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
               .type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(unary->queue);
}

/* Runs it to its end: the deadline of the call bounds it. Takes buffer. */
static void unary_run(struct channel_unary *unary, struct rpc_channel *channel,
                      struct rpc_buffer *buffer, bool wait_for_ready)
{
    grpc_byte_buffer *bytes = rpc_bytes_of_buffer(buffer);
    grpc_op ops[6]          = {
                 metadata_op(channel, wait_for_ready),   {.op = GRPC_OP_SEND_MESSAGE},
                 {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                 {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    grpc_call_error error;

    ops[1].data.send_message.send_message                   = bytes;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &unary->initial;
    ops[4].data.recv_message.recv_message                   = &unary->answer;
    ops[5].data.recv_status_on_client.trailing_metadata     = &unary->trailing;
    ops[5].data.recv_status_on_client.status                = &unary->code;
    ops[5].data.recv_status_on_client.status_details        = &unary->details;

    error = grpc_call_start_batch(unary->call, ops, PL_COUNT(ops), unary, NULL);
    PL_CHECK(error == GRPC_CALL_OK);
    grpc_byte_buffer_destroy(bytes);
    (void)grpc_completion_queue_pluck(unary->queue, unary,
                                      gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                      NULL); /* the deadline ends the batch */
}

static plasmon_status_t unary_answer(struct channel_unary *unary, uint8_t **out_bytes,
                                     size_t *out_length)
{
    struct rpc_received received;
    uint8_t *copy;

    if (unary->answer == NULL || !rpc_received_open(&received, unary->answer)) {
        return PLASMON_EMALFORMED;
    }
    copy = pl_alloc(received.length + 1);
    if (copy != NULL) {
        memcpy(copy, received.bytes, received.length);
        *out_bytes  = copy;
        *out_length = received.length;
    }
    rpc_received_close(&received);
    return copy != NULL ? PLASMON_OK : PLASMON_ENOMEM;
}

/* The connection is there, the answer is not. */
static void unary_late(const struct rpc_channel *channel, uint32_t timeout_ms,
                       plasmon_status_t status, struct pl_err *err)
{
    struct pl_str who;

    pl_str_init(&who);
    (void)rpc_silent_listener(channel->target, channel->tls != NULL, &who);
    (void)pl_err_set(err, status, "no answer from %s within %u ms%s%s", channel->target,
                     timeout_ms, who.length > 0 ? ": " : "", pl_str_text(&who));
    pl_str_finish(&who);
}

plasmon_status_t rpc_unary_call(struct rpc_channel *channel, const char *path,
                                const uint8_t *bytes, size_t length, uint32_t timeout_ms,
                                uint8_t **out_bytes, size_t *out_length, struct pl_err *err)
{
    uint8_t *buffer = rpc_buffer_create(length);
    struct channel_unary unary;
    plasmon_status_t status;
    char *why;

    if (buffer == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory for %zu bytes", length);
    }
    if (length > 0) {
        memcpy(buffer, bytes, length);
    }

    unary_start(&unary, channel, path, timeout_ms);
    unary_run(&unary, channel, rpc_buffer_of(buffer), true);
    status = rpc_status_of_call(unary.code, &unary.trailing, channel_ready(channel));
    if (status == PLASMON_OK) {
        status = unary_answer(&unary, out_bytes, out_length);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "%s: the answer cannot be read", path);
        }
    } else if (unary.code == GRPC_STATUS_DEADLINE_EXCEEDED && !channel_ready(channel)) {
        struct pl_err cause;

        status = rpc_channel_mistrust(channel, CHANNEL_MISTRUST_MS, &cause);
        if (status == PLASMON_OK) {
            rpc_channel_explain(channel, &cause, timeout_ms);
        }
        status = pl_err_set(err, cause.status, "%s", cause.text);
    } else if (unary.code == GRPC_STATUS_DEADLINE_EXCEEDED && channel->watched) {
        unary_late(channel, timeout_ms, status, err);
    } else {
        why = rpc_text_of_slice(unary.details);
        (void)pl_err_set(err, status, "%s", why != NULL ? why : "");
        pl_free(why);
    }
    unary_finish(&unary);
    return status;
}

/* What the core says: nobody listens, say. NULL: it knows nothing. */
static char *why_unavailable(struct rpc_channel *channel)
{
    uint8_t *buffer = rpc_buffer_create(0);
    struct channel_unary unary;
    char *why = NULL;

    if (buffer != NULL) {
        unary_start(&unary, channel, "/grpc.health.v1.Health/Check", CHANNEL_EXPLAIN_MS);
        unary_run(&unary, channel, rpc_buffer_of(buffer), false);
        if (unary.code == GRPC_STATUS_UNAVAILABLE) {
            why = rpc_text_of_slice(unary.details);
        }
        unary_finish(&unary);
    }
    /* What it calls an attempt that nobody had answered when it was given up. */
    if (why != NULL && strstr(why, "tcp handshaker shutdown") != NULL) {
        pl_free(why);
        why = NULL;
    }
    return why;
}

void rpc_channel_explain(struct rpc_channel *channel, struct pl_err *err,
                         uint32_t waited_ms)
{
    struct pl_str who;
    char *why = NULL;

    pl_str_init(&who);
    if (channel->watched &&
        rpc_silent_listener(channel->target, channel->tls != NULL, &who)) {
        (void)pl_err_set(err, PLASMON_ECONNECT, "no answer from %s within %u ms: %s",
                         channel->target, waited_ms, pl_str_text(&who));
    } else {
        why = why_unavailable(channel);
        (void)pl_err_set(
            err, PLASMON_ECONNECT,
            "cannot connect to %s within %u ms: %s; is a plasmon-head running, and "
            "listening there?",
            channel->target, waited_ms, why != NULL ? why : "no answer");
    }
    pl_free(why);
    pl_str_finish(&who);
}
