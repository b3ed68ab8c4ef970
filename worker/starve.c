/*
 * No memory for the front: it says so once and stays, with everything behind it, and tries again
 * whenever something came back (a free, scratch, a word that a client's buffer waited for). What is
 * enqueued goes on, so as long as it frees something the front only waits. The head lets it fail
 * when nothing that could help is left in the whole cluster (head/device.c); then the text says who
 * has the memory.
 *
 * RELIEF. Before that it has buffers that nobody uses copied to host memory, and frees them. That
 * is the one thing that a worker does beside the order: the front and all behind it stay where they
 * are, and the copy waits for nobody. It comes when everything before the front is over, so nothing
 * is on the device, and reads a sealed buffer that no launch sent so far names. What the copy is
 * worth if the front goes meanwhile the head knows. Or one launch names it, behind the front, which
 * is to do just that: when the copy is there that one has nothing to do any more and does not name
 * the buffer, if it is still in the queue; and if it is not, nothing was done.
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

/* Nothing is said of what has none. */
static void say_used(struct pl_str *out, const char *of_what, uint64_t bytes)
{
    char text[32];

    if (bytes > 0) {
        pl_str_append(out, ", %s %s", of_what, pl_format_bytes(bytes, text));
    }
}

void worker_front_memory_say(const struct worker_core *core,
                             const struct worker_launch *launch, struct pl_str *out)
{
    struct worker_account account;
    struct store_arena_stats stats;
    char wanted[32], largest[32], total[32], unused[32], hole[64], used[32];
    uint64_t largest_bytes;
    uint64_t bytes = bytes_wanted(launch, &largest_bytes);

    worker_core_account(core, &account);
    store_arena_get_stats(core->arena, &stats);
    pl_str_append(
        out,
        "it needs %s of new device memory, at most %s in one piece; of the device's %s, %s "
        "are reserved and free, the largest hole is %s; in use are %s",
        pl_format_bytes(bytes, wanted), pl_format_bytes(largest_bytes, largest),
        core->config.device_bytes == 0 ? "memory"
                                       : pl_format_bytes(core->config.device_bytes, total),
        pl_format_bytes(stats.bytes_free, unused),
        say_hole(store_arena_fits(core->arena, largest_bytes), largest_bytes, hole),
        pl_format_bytes(stats.bytes_used, used));
    say_used(out, "objects", account.objects);
    say_used(out, "copies of objects of other devices", account.replicas);
    say_used(out, "recorded graphs", account.graphs);
    say_used(out, "freed but read by a client", account.held);
    say_used(out, "scratch", account.scratch);
}

/* The front that needs memory, and nothing else; EAGAIN: there is none of this number. */
static plasmon_status_t front_in_need(struct worker_core *core, uint64_t seq)
{
    struct worker_launch *front = core->queue.first;

    if (front == NULL || front->seq != seq) {
        return PLASMON_EAGAIN;
    }
    if (!core->waits_memory) {
        front->starved = false; /* it may have to be told again */
        return PLASMON_EAGAIN;
    }
    return PLASMON_OK;
}

static struct worker_launch *queued(const struct worker_core *core, uint64_t seq)
{
    struct worker_launch *launch = core->queue.first;

    while (launch != NULL && launch->seq < seq) {
        launch = launch->next;
    }
    return launch != NULL && launch->seq == seq ? launch : NULL;
}

static plasmon_status_t relief_check(struct worker_core *core,
                                     const Plasmon__V1__Relief *relief,
                                     const struct store_entry **out_entry)
{
    const struct worker_ops *ops = core->config.ops;
    plasmon_status_t status      = front_in_need(core, relief->seq);
    const struct store_entry *entry;

    if (status != PLASMON_OK) {
        return status;
    }
    if (relief->buffer == 0 || core->relief != 0 || !worker_streams_quiet(core) ||
        (relief->launch != 0 && queued(core, relief->launch) == NULL)) {
        return PLASMON_EDEVMEM;
    }
    entry =
        worker_buffer_find(core, core->config.host_device, wire_buffer_slot(relief->buffer),
                           wire_buffer_generation(relief->buffer));
    if (entry == NULL || worker_entry_state(entry) != STORE_SEALED) {
        return PLASMON_ELOST;
    }
    if (ops->host_ready != NULL && !ops->host_ready(core->config.user, relief->host_buffer,
                                                    relief->offset, entry->bytes)) {
        return PLASMON_EDEVMEM; /* after a restart: nobody waits for that here */
    }
    *out_entry = entry;
    return PLASMON_OK;
}

/* An order that only asks is told, too, what would make a hole for the front. */
static void refuse(struct worker_core *core, const Plasmon__V1__Relief *relief,
                   plasmon_status_t status)
{
    struct pl_vec window = PL_VEC_INIT(uint64_t);
    uint64_t largest;

    if (relief->buffer == 0 && status == PLASMON_EDEVMEM) {
        (void)bytes_wanted(core->queue.first, &largest);
        if (worker_window_find(core, largest, &window) != PLASMON_OK) {
            pl_vec_clear(&window); /* there is none, or no memory to look for it */
        }
    }
    core->config.ops->report_refused(core->config.user, relief->request, status,
                                     window.items, window.count);
    pl_vec_finish(&window);
}

plasmon_status_t worker_front_relieve(struct worker_core *core,
                                      const Plasmon__V1__Relief *relief, struct pl_err *err)
{
    const struct worker_ops *ops    = core->config.ops;
    const struct store_entry *entry = NULL;
    uint32_t stream                 = core->config.run_streams + WORKER_STREAM_SEND;
    plasmon_status_t status;

    if (core->relief == relief->request) {
        return PLASMON_OK; /* told again: it is under way */
    }
    worker_core_advance(core); /* what came back just now may do */
    status = relief_check(core, relief, &entry);
    if (status == PLASMON_OK) {
        struct pl_err why;

        pl_err_init(&why);
        if (ops->get_host(core->config.user, stream, entry->offset, relief->host_buffer,
                          relief->offset, entry->bytes, &why) != PLASMON_OK) {
            /* whatever it is: EAGAIN would say that the front needs nothing */
            status = PLASMON_EDEVMEM;
        }
    }
    if (status != PLASMON_OK) {
        refuse(core, relief, status);
        return PLASMON_OK;
    }
    /* Behind the copy: when this is read, the bytes are there. */
    status = ops->read(core->config.user, stream, entry->offset, 1, relief->request);
    if (status != PLASMON_OK) {
        return pl_err_set(err, status,
                          "a copy to host memory that nothing tells the end of");
    }
    core->relief        = relief->request;
    core->relief_launch = relief->launch;
    if (ops->again != NULL) {
        ops->again(core->config.user); /* no word tells that it is over: somebody looks */
    }
    return PLASMON_OK;
}

plasmon_status_t worker_core_relieved(struct worker_core *core, uint64_t request)
{
    uint64_t seq                 = core->relief_launch;
    struct worker_launch *launch = queued(core, seq);

    if (core->relief != request) {
        return PLASMON_OK;
    }
    core->relief = core->relief_launch = 0;
    if (seq == 0) {
        return PLASMON_OK;
    }
    if (launch == NULL || (launch == core->queue.first && core->advancing)) {
        return PLASMON_EAGAIN; /* it went, or is about to */
    }
    launch->kind          = PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP;
    launch->operand_count = 0;
    launch->without_work  = true;
    return PLASMON_OK;
}

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
            ? "enough is free in sum, but in pieces between objects that are in use or "
              "have "
              "no room in host memory: use arrays of like sizes or smaller ones, fewer at "
              "a "
              "time, or more --device-memory"
            : "release refs, use smaller arrays, or more --spill-memory or a --spill-dir");
    pl_str_finish(&text);
    core->waits_memory = false;
}
