/*
 * Checkpoints: so that the log of inputs does not grow for ever, and a head that is started again
 * has little to replay.
 *
 * One is due when the log has grown past a part of its limit, and is made at the next moment when
 * nothing is under way. Past the limit itself, if tasks are what stands in the way, that moment is
 * brought about: frames of clients wait for a while (they are not acknowledged, so they are in
 * nobody's way but their senders'), tasks end, the checkpoint is made. That is not tried while a
 * device that has some of them is away, and given up when one goes away. When they do not end in
 * time, all goes on, and it is tried again later: a minute later, or sooner when the log has grown
 * far past its limit, because what a head that is started then has to replay is what clients wait
 * for, too. A head that has just gone on from its journal gives workers time to come back before it
 * waits for their tasks. What stands in the way is said in the log.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "head/checkpoint.h"
#include "head/serve.h"

enum {
    DUE_PART = 8, /* of the limit */
    /* of what the last one took: it is written for twice as much of the log */
    DUE_FACTOR          = 2,
    HOLD_MS             = 3000,
    HOLD_PAUSE_MS       = 60000,
    HOLD_PAUSE_FAR_MS   = 15000,
    FAR_FACTOR          = 2, /* of the limit */
    HOLD_AFTER_BEGIN_MS = 5000,
    SAY_MS              = 60000,
};

static uint64_t log_limit(const struct serve *serve)
{
    return serve->config.log_bytes_max != 0 ? serve->config.log_bytes_max
                                            : SERVE_LOG_BYTES_MAX;
}

void serve_log_grew(struct serve *serve, size_t bytes)
{
    serve->checkpoint.log_bytes += bytes;
}

static bool past(const struct serve *serve, uint64_t limit)
{
    return serve->checkpoint.log_bytes >= limit + DUE_FACTOR * serve->checkpoint.last_bytes;
}

/* --------------------------------------------------------------------- frames that wait */

struct late {
    struct pl_list link;
    size_t length;
    uint8_t bytes[];
};

bool serve_late_keep(struct serve_client *client, const uint8_t *bytes, size_t length)
{
    struct late *late;

    if (!client->serve->checkpoint.holding && pl_list_empty(&client->late)) {
        return false;
    }
    late = pl_alloc(sizeof(*late) + length);
    PL_CHECK(late != NULL);
    late->length = length;
    memcpy(late->bytes, bytes, length);
    pl_list_init(&late->link);
    pl_list_add_tail(&client->late, &late->link);
    return true;
}

void serve_late_drop(struct serve_client *client)
{
    while (!pl_list_empty(&client->late)) {
        struct late *late = pl_list_first(&client->late, struct late, link);

        pl_list_remove(&late->link);
        pl_free(late);
    }
}

/* One frame of one client; the client may be gone after it. */
static bool take_one(struct serve *serve)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->clients) {
        struct serve_client *client = pl_container_of(pos, struct serve_client, link);
        struct late *late           = pl_list_first(&client->late, struct late, link);

        if (late != NULL) {
            pl_list_remove(&late->link);
            serve_client_take(client, late->bytes, late->length);
            pl_free(late);
            return true;
        }
    }
    return false;
}

static void hold_end(struct serve *serve, uint64_t now_ms, bool made)
{
    struct serve_checkpoint *state = &serve->checkpoint;

    state->holding = false;
    state->hold_next_ms =
        now_ms +
        (past(serve, FAR_FACTOR * log_limit(serve)) ? HOLD_PAUSE_FAR_MS : HOLD_PAUSE_MS);
    state->held_ms += now_ms - state->hold_since_ms;
    pl_info("head",
            "clients waited %" PRIu64 " ms for a checkpoint of the journal%s (%" PRIu64
            " times so far, %" PRIu64 " ms)",
            now_ms - state->hold_since_ms,
            made ? "" : ", and there was none: tasks did not end", state->holds,
            state->held_ms);
    while (take_one(serve)) {
    }
}

/* --------------------------------------------------------------------------- making one */

static bool make(struct serve *serve, const char **out_why)
{
    size_t length;
    const uint8_t *bytes = head_machine_checkpoint(serve->machine, &length, out_why);

    if (bytes == NULL) {
        return false;
    }
    serve->core = head_machine_core(serve->machine);
    serve_holders_again(serve);
    head_journal_checkpoint(serve->config.journal, bytes, length);
    serve->gate.open++;
    serve->checkpoint.count++;
    serve->checkpoint.last_bytes = length;
    pl_info("head", "checkpoint of %zu bytes, after %" PRIu64 " bytes of the journal",
            length, serve->checkpoint.log_bytes);
    serve->checkpoint.log_bytes = 0;
    return true;
}

static void say_why_not(struct serve *serve, uint64_t now_ms, const char *why)
{
    if (now_ms - serve->checkpoint.said_ms >= SAY_MS) {
        serve->checkpoint.said_ms = now_ms;
        pl_warn("head", "the journal has %" PRIu64 " bytes and cannot be cut down now: %s",
                serve->checkpoint.log_bytes, why);
    }
}

void serve_checkpoint_begin(struct serve *serve)
{
    serve->checkpoint.hold_next_ms = serve_now_ms(serve) + HOLD_AFTER_BEGIN_MS;
}

void serve_checkpoint_look(struct serve *serve)
{
    struct serve_checkpoint *state = &serve->checkpoint;
    uint64_t now_ms                = serve_now_ms(serve);
    const char *why                = NULL;
    bool may_end;

    if (serve->config.journal == NULL || !past(serve, log_limit(serve) / DUE_PART)) {
        return;
    }
    if (make(serve, &why)) {
        if (state->holding) {
            hold_end(serve, now_ms, true);
        }
        return;
    }
    may_end = head_core_may_end(serve->core);
    if (state->holding && (!may_end || now_ms - state->hold_since_ms >= HOLD_MS)) {
        hold_end(serve, now_ms, false);
    }
    if (!past(serve, log_limit(serve))) {
        return;
    }
    say_why_not(serve, now_ms, why);
    if (!state->holding && may_end && !head_core_idle(serve->core) &&
        now_ms >= state->hold_next_ms) {
        state->holding       = true;
        state->hold_since_ms = now_ms;
        state->holds++;
    }
}
