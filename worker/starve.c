/*
 * No memory for the front: it says so once and stays, with everything behind it, and tries again whenever something came back (a free,
 * scratch, a word that a client's buffer waited for). What is enqueued goes on, so as long as it frees something the front only waits.
 * The head lets it fail when nothing that could help is left in the whole cluster (head/device.c); then the text says who has
 * the memory.
 */
#include "worker/core_int.h"

#include <stdio.h>
#include <string.h>

static uint64_t bytes_wanted(const struct worker_launch *launch, uint64_t *out_largest)
{
    uint64_t bytes = launch->scratch_wanted;

    *out_largest = launch->scratch_wanted;
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        if (launch->operands[i].fresh) {
            bytes += launch->operands[i].bytes;
            *out_largest = pl_max_u64(*out_largest, launch->operands[i].bytes);
        }
    }
    return bytes;
}

void worker_front_starves(struct worker_core *core, struct worker_launch *launch)
{
    struct store_arena_stats stats;
    uint64_t largest;

    core->waits_memory = true;
    core->starved_at   = core->freed_count;
    if (!launch->starved) {
        launch->starved = true;
        store_arena_get_stats(core->arena, &stats);
        core->config.ops->report_starved(core->config.user, launch->seq,
                                         bytes_wanted(launch, &largest),
                                         stats.largest_hole);
    }
}

/* "8.0 MiB of 8.0 MiB" would look as if it fitted. */
static const char *say_hole(uint64_t hole, uint64_t wanted, char out[64])
{
    char one[32], other[32];

    if (hole < wanted &&
        strcmp(pl_format_bytes(hole, one), pl_format_bytes(wanted, other)) == 0) {
        (void)snprintf(out, 64, "%llu bytes less than that",
                       (unsigned long long)(wanted - hole));
    } else {
        (void)snprintf(out, 64, "%s", pl_format_bytes(hole, one));
    }
    return out;
}

void worker_front_memory_say(const struct worker_core *core,
                             const struct worker_launch *launch, struct pl_str *out)
{
    struct worker_account account;
    struct store_arena_stats stats;
    char wanted[32], largest[32], total[32], unused[32], hole[64], used[32], objects[32];
    char replicas[32], graphs[32], held[32], scratch[32];
    uint64_t largest_bytes;
    uint64_t bytes = bytes_wanted(launch, &largest_bytes);

    worker_core_account(core, &account);
    store_arena_get_stats(core->arena, &stats);
    pl_str_append(
        out,
        "it needs %s of new device memory, at most %s in one piece; of the device's %s, %s "
        "are reserved and free, the largest hole is %s; in use are %s: objects %s, copies "
        "of objects of other devices %s, recorded graphs %s, freed but read by a client "
        "%s, scratch %s",
        pl_format_bytes(bytes, wanted), pl_format_bytes(largest_bytes, largest),
        core->config.device_bytes == 0 ? "memory"
                                       : pl_format_bytes(core->config.device_bytes, total),
        pl_format_bytes(stats.bytes_free, unused),
        say_hole(stats.largest_hole, largest_bytes, hole),
        pl_format_bytes(stats.bytes_used, used), pl_format_bytes(account.objects, objects),
        pl_format_bytes(account.replicas, replicas),
        pl_format_bytes(account.graphs, graphs), pl_format_bytes(account.held, held),
        pl_format_bytes(account.scratch, scratch));
}

/* What is free in sum is not made one piece by spilling more: blocks are not moved (docs/memory.md, "What is missing"). */
static bool is_in_pieces(const struct worker_core *core, const struct worker_launch *launch)
{
    struct store_arena_stats stats;
    uint64_t largest;

    store_arena_get_stats(core->arena, &stats);
    return stats.bytes_free >= bytes_wanted(launch, &largest);
}

void worker_front_starved(struct worker_core *core, struct worker_launch *launch)
{
    struct pl_str text;

    pl_str_init(&text);
    worker_front_memory_say(core, launch, &text);
    worker_launch_fail(
        launch, PLASMON_EDEVMEM, "%s; %s", pl_str_text(&text),
        is_in_pieces(core, launch)
            ? "enough is free in sum, but in pieces between other objects, which are not "
              "moved: use arrays of like sizes or smaller ones, fewer at a time, or more "
              "--device-memory"
            : "release refs, use smaller arrays, or more --spill-memory or a --spill-dir");
    pl_str_finish(&text);
    core->waits_memory = false;
}
