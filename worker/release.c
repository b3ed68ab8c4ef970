/*
 * A device of this host that will not come back (the store has given it up: struct store_timeline,
 * released). The store has written its words, so that nothing waits for its launches; what the head
 * knows to depend on them has failed already. What is left is ours:
 *
 *   - whoever sleeps on one of those words is woken, for the store cannot know our threads
 *   - bytes that it should have staged for us never come: their words are moved here, chunk by
 *     chunk as each slot is empty, which is what its sender would have waited for. The bytes are
 *     rubbish, and nobody reads them.
 */
#include "worker/core_int.h"

static void wake(struct worker_core *core, uint64_t *word)
{
    if (core->config.ops->wake != NULL) {
        core->config.ops->wake(core->config.user, word);
    }
}

static void wake_waiters(struct worker_core *core, struct store_timeline *gone)
{
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        wake(core, &gone->stream[i].value);
    }
    wake(core, &gone->stage_taken.value);
}

/* Every chunk of a transfer that came or can come into its slot now. */
static void chunks_pass(struct worker_core *core, const struct worker_launch *launch)
{
    uint64_t bytes = worker_operand_bytes_shown(&launch->operands[0]);
    uint64_t count = (bytes + STORE_STAGE_SLOT_BYTES - 1) / STORE_STAGE_SLOT_BYTES;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t chunk = launch->offset + i;
        uint64_t *word = &core->timeline->stage_ready[chunk % STORE_STAGE_SLOTS].value;
        uint64_t taken =
            __atomic_load_n(&core->timeline->stage_taken.value, __ATOMIC_ACQUIRE);

        if (chunk >= STORE_STAGE_SLOTS && taken < chunk + 1 - STORE_STAGE_SLOTS) {
            return;
        }
        if (taken <= chunk && __atomic_load_n(word, __ATOMIC_ACQUIRE) <= chunk) {
            __atomic_store_n(word, chunk + 1, __ATOMIC_RELEASE);
            wake(core, word);
        }
    }
}

static void transfers_pass(struct worker_core *core)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        const struct worker_launch *launch = core->streams[i].running.first;

        for (; launch != NULL; launch = launch->next) {
            uint32_t host_device = worker_host_device_of(core, launch->peer);

            if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV &&
                host_device < core->config.host_device_count &&
                (core->gone & UINT64_C(1) << host_device) != 0) {
                chunks_pass(core, launch);
            }
        }
    }
}

void worker_core_look_for_gone(struct worker_core *core)
{
    for (uint32_t i = 0; i < core->config.host_device_count; i++) {
        struct store_timeline *timeline = core->config.timelines[i];

        if (timeline != NULL && (core->gone & UINT64_C(1) << i) == 0 &&
            store_timeline_is_released(timeline)) {
            core->gone |= UINT64_C(1) << i;
            wake_waiters(core, timeline);
        }
    }
    if (core->gone != 0) {
        transfers_pass(core);
    }
}
