/*
 * What has the memory of the device, from what is known of each block: the table's entries, the
 * launches that have scratch, recorded graphs. It adds up to what the arena gave out, to the byte;
 * the simulation compares the two whenever the core returns.
 *
 * An entry has its bytes until it is free, but for one that gave them back (reuse.c): then what is
 * there belongs to whoever got it, or is on the list of rests of an incarnation before.
 */
#include "worker/graph_int.h"

static void entries_count(const struct worker_core *core, struct worker_account *out)
{
    uint32_t end = worker_slot_end(core);

    for (uint32_t slot = 0; slot < end; slot++) {
        const struct store_entry *entry = &core->table->entries[slot];
        uint32_t state                  = worker_entry_state(entry);
        uint64_t bytes                  = store_arena_rounded(entry->bytes);
        bool replica                    = (entry->flags & STORE_ENTRY_REPLICA) != 0;

        if (state == STORE_FREE) {
            continue;
        }
        out->replica_bytes += replica ? entry->bytes : 0;
        if (worker_reuse_is_given(core, slot)) {
            continue;
        }
        if (state == STORE_DOOMED) {
            out->held += bytes;
        } else {
            *(replica ? &out->replicas : &out->objects) += bytes;
        }
    }
}

/*
 * Its memory is counted with the first launch of it that is running; while it can be launched, with
 * all graphs.
 */
static uint64_t graph_bytes(const struct worker_core *core,
                            const struct worker_launch *launch)
{
    const struct worker_graph *graph = launch->graph;

    if (graph == NULL || pl_map_get(&core->graphs, graph->id) == graph) {
        return 0;
    }
    for (uint32_t i = 0; i < core->stream_count; i++) {
        for (const struct worker_launch *other = core->streams[i].running.first;
             other != NULL; other              = other->next) {
            if (other == launch) {
                return graph->memory_bytes != 0 ? store_arena_rounded(graph->memory_bytes)
                                                : 0;
            }
            if (other->graph == graph) {
                return 0;
            }
        }
    }
    return 0;
}

static void launches_count(const struct worker_core *core,
                           const struct worker_launch *first, struct worker_account *out)
{
    for (const struct worker_launch *launch = first; launch != NULL;
         launch                             = launch->next) {
        if (launch->scratch_bytes != 0 && !launch->scratch_shared) {
            out->scratch += store_arena_rounded(launch->scratch_bytes);
        }
        out->graphs += graph_bytes(core, launch);
    }
}

/* What no entry of the table has. */
static void working_count(const struct worker_core *core, struct worker_account *out)
{
    uint64_t key;
    void *value;

    worker_reuse_account(core, out);
    launches_count(core, core->queue.first, out);
    for (uint32_t i = 0; i < core->stream_count; i++) {
        launches_count(core, core->streams[i].running.first, out);
    }
    for (size_t i = 0; pl_map_next(&core->graphs, &i, &key, &value);) {
        const struct worker_graph *graph = value;

        out->graphs +=
            graph->memory_bytes != 0 ? store_arena_rounded(graph->memory_bytes) : 0;
    }
}

void worker_core_account(const struct worker_core *core, struct worker_account *out)
{
    struct store_arena_stats stats;

    *out = (struct worker_account){.objects = 0};
    store_arena_get_stats(core->arena, &stats);
    out->used = stats.bytes_used;
    entries_count(core, out);
    working_count(core, out);
}

uint64_t worker_account_scratch(const struct worker_core *core)
{
    struct worker_account account = {.objects = 0};

    working_count(core, &account);
    return account.scratch + account.graphs;
}
