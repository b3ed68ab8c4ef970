/*
 * Where the head begins: from nothing, or where the records of a journal end.
 *
 * The records are replayed without a connection to anybody, so all that is put out goes nowhere and
 * is kept if it is numbered; and without a word in the log, where it stands since it happened. Then
 * one more input says that every connection is gone; peers come back with their sessions and are
 * sent what they have not acknowledged. Leases of those who were connected, or away, begin a while
 * after now: who had no head to come back to is not punished for it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "head/serve.h"

struct replaying {
    struct serve *serve;
    uint64_t batches;
    uint64_t bytes;
};

static plasmon_status_t replay_one(void *user, bool checkpoint, const uint8_t *bytes,
                                   size_t length, struct pl_err *err)
{
    struct replaying *replaying = user;

    struct serve *serve = replaying->serve;

    replaying->batches++;
    replaying->bytes += length;
    if (checkpoint) {
        serve->checkpoint.last_bytes = length;
        return head_machine_load(serve->machine, bytes, length, err);
    }
    serve_log_grew(serve, length);
    return head_machine_replay(serve->machine, bytes, length, err);
}

/* Options that are in the journal hold as they are there. */
static void compare_settings(const struct serve *serve)
{
    const struct head_settings *there = head_machine_settings(serve->machine);
    struct head_settings here;

    serve_settings(serve, &here);
    if (strcmp(there->policy, here.policy != NULL ? here.policy : "auto") != 0 ||
        there->transfer != here.transfer || there->window != here.window ||
        there->node_lease_ms != here.node_lease_ms ||
        there->reach_wait_ms != here.reach_wait_ms) {
        pl_warn("head",
                "the cluster goes on with the policy, transfer, window, node lease and "
                "reach wait that it was begun with, which are not those of this command");
    }
}

static plasmon_status_t go_on(struct serve *serve, struct pl_err *err)
{
    uint64_t now_ms           = pl_now_ns() / 1000000;
    uint64_t then_ms          = head_machine_now_ms(serve->machine);
    struct head_input restart = {.type = HEAD_INPUT_RESTART};

    serve->time_offset_ms = then_ms > now_ms ? then_ms - now_ms : 0;
    restart.numbers[0]    = serve_now_ms(serve);
    restart.numbers[1]    = SERVE_GRACE_MS;
    return serve_input(serve, &restart, NULL, err);
}

/* The namespaces hold as they are in the file now: what is in the journal was of its time. */
static void tell(void *user, const struct head_input *input)
{
    struct serve *serve = user;
    struct pl_err err;

    PL_CHECK(head_machine_input(serve->machine, input, NULL, &err) == PLASMON_OK);
}

/* As it should be the first time; after that it is the wrong database, or one that was emptied. */
static void say_empty(const struct serve *serve)
{
    char where[HEAD_JOURNAL_WHERE_MAX];

    if (serve->config.journal != NULL) {
        pl_info(
            "head",
            "%s has no journal: a new cluster begins, and clients and stores of another "
            "one are not known here",
            head_journal_where(serve->config.journal, where));
    }
}

plasmon_status_t serve_recover(struct serve *serve,
                               const struct head_machine_config *config, struct pl_err *err)
{
    struct replaying replaying = {.serve = serve};
    uint64_t began_ns          = pl_now_ns();
    enum pl_log_level level    = pl_log_get_level();
    struct head_settings settings;
    struct head_figures figures;
    plasmon_status_t status = head_machine_create(config, &serve->machine);

    if (status != PLASMON_OK) {
        return pl_err_set(err, status, "out of host memory");
    }
    if (serve->config.journal != NULL) {
        if (level < PL_LOG_DEBUG) {
            pl_log_set_level(PL_LOG_ERROR);
        }
        status = head_journal_read(serve->config.journal, replay_one, &replaying, err);
        pl_log_set_level(level);
    }
    if (status == PLASMON_OK && replaying.batches == 0) {
        say_empty(serve);
        serve_settings(serve, &settings);
        status = head_machine_begin(serve->machine, &settings, err);
    } else if (status == PLASMON_OK) {
        status = go_on(serve, err);
        serve_checkpoint_begin(serve);
        head_machine_figures(serve->machine, &figures);
        compare_settings(serve);
        pl_info("head",
                "goes on from its journal: %" PRIu64 " inputs in %" PRIu64
                " batches, %" PRIu64 " bytes, replayed in %" PRIu64
                " ms; epoch %016" PRIx64,
                figures.inputs, replaying.batches, replaying.bytes,
                (pl_now_ns() - began_ns) / 1000000, head_machine_epoch(serve->machine));
    }
    if (status != PLASMON_OK) {
        head_machine_destroy(serve->machine);
        serve->machine = NULL;
        return status;
    }
    if (serve->config.namespaces != NULL) {
        head_namespaces_tell(serve->config.namespaces, tell, serve);
    }
    head_machine_tick(serve->machine, serve_now_ms(serve));
    return PLASMON_OK;
}
