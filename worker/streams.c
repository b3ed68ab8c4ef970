/*
 * Streams: where a launch goes, what it waits for there, and when a stream's word is written.
 *
 * WHERE. A launch that the ring names already (an earlier incarnation published it) goes to the
 * same stream, because waiters elsewhere watch that word. Copies from devices have two streams, by
 * turns, but large ones from several devices follow each other in one (copy_stream()); bytes of the
 * host go in by the first of these, in their order, since one link brings them; receives have one,
 * because the chunks of a ring come in one order. Bytes out have three: a SEND waits for its
 * receiver, so those to different devices go side by side, and those to one behind each other (of
 * another host: in two); bytes for clients wait for nobody, and have one of the three that SENDs
 * take last. A function follows the first launch it depends on, unless somebody followed that one
 * before; then, and with no such launch, it takes the run stream with least in it; of heavy ones
 * that wait for other devices, one of two streams. So chains stay in a stream and need no waits,
 * and branches spread. Functions of high priority have streams of their own, whose kernels the
 * device begins first, and those of low priority one whose kernels it begins last; they follow each
 * other there, and nobody else comes in.
 *
 * A SIGNAL IN TIME. Work that waits for another device (a wait on its word, half a host-route
 * transfer, a join with a stream that holds such work) is a hazard: what lies before it in its
 * stream may be just what that device waits for. So the word is written before a hazard goes in,
 * and so are those of all streams: they may share a hardware queue with this one, and what goes
 * into that queue later stays behind the hazard. `hazard` is the last one of a stream; when the
 * word has passed it, there is none.
 *
 * A SIGNAL BEFORE WHAT MAY BE ENDED. A function that does not end is ended by force, and before
 * that all that does not wait for it may finish (condemn.c), which the words have to tell. So what
 * lies in a stream before a join with one that has a time limit, or waits for such a one, gets its
 * word before it; on a CPU device, where that is a store, before each join and before each function
 * of a user, for any may be cancelled by force. On a GPU one without a limit that is cancelled may
 * find words behind itself, and what they are of is waited for in vain, for that second.
 *
 * A SIGNAL SOON. Work that takes long is no hazard, but who waits for what lies before it waits for
 * it, too. So, where there are other devices, the word is written before it if that was short
 * beside it. Who waits on this device for what lies before it does so at a mark (marks.c).
 *
 * NO MORE SIGNALS THAN SOMEBODY NEEDS. A write of a word costs the device some microseconds in
 * which it does not go on to the next kernel. Launches that come one by one while the device is
 * busy would each end with one. Where only the host watches the words it hears of the end of a
 * batch as well by a later write: so while two writes are still to come, none is added. When one of
 * them comes, the host looks here again and adds what is owed (worker_core_complete). Two, so that
 * the device never waits for the host: behind the write that the host sees there is always another
 * one. A word that another device waits for on the device must not depend on a host that looks in
 * time, so with other devices on the host each batch has its write.
 *
 * OVERWRITING. After a crash whatever the words do not show as done is done again. What has read or
 * written a buffer must not be done again after another stream has overwritten it, so a launch that
 * overwrites waits for the other stream's word too, not just for its work, if what is there uses
 * what it overwrites. (In one stream the word covers both, or neither: then the head knows that the
 * reader cannot run again; so it does where the word of the reader is late.) What it only reads is
 * made again with the same content. What only waits waits for words, and who overwrites behind it
 * for its word. A launch whose memory was another buffer's a moment ago (reuse.c) waits for the
 * words of all that used that, in its own stream too: of this overwriting the head knows nothing.
 */
#include "worker/core_int.h"

#include "base/fault.h"
#include "base/log.h"

#include <assert.h>

#define FOLLOWED 0x1u /* bit of core->followed */

/*
 * Long is half of what makes a word due (16 us on a GPU), and short an eighth of it: a write costs
 * the device 2.6 us, so launches that are alike get no more of them than before.
 */
#define LONG_PART  2u
#define SHORT_PART 8u

uint32_t worker_host_device_of(const struct worker_core *core, uint32_t device)
{
    return device < core->config.device_max ? core->config.host_device_of[device]
                                            : UINT32_MAX;
}

uint64_t worker_stream_word(const struct worker_core *core, uint32_t stream)
{
    /* Acquire: pairs with the device's write after its work. */
    return __atomic_load_n(&core->timeline->stream[stream].value, __ATOMIC_ACQUIRE);
}

bool worker_stream_idle(const struct worker_core *core, uint32_t stream)
{
    return worker_stream_word(core, stream) >= core->streams[stream].last;
}

static uint32_t stream_of_role(const struct worker_core *core, enum worker_stream_role role)
{
    return core->config.run_streams + (uint32_t)role;
}

bool worker_stream_copies(uint32_t run_streams, uint32_t stream)
{
    return stream == run_streams + WORKER_STREAM_COPY ||
           stream == run_streams + WORKER_STREAM_COPY_2;
}

/* Of a launch of ours that is published and not done. */
static uint32_t stream_of_seq(const struct worker_core *core, uint64_t seq)
{
    uint64_t named = core->timeline->ring[seq % STORE_RING];

    PL_CHECK(named >> 8 == seq && store_ring_stream(named) < core->stream_count);
    return store_ring_stream(named);
}

/* -------------------------------------------------------------------------------- where */

static bool point_local(const struct worker_core *core, uint64_t point)
{
    return worker_host_device_of(core, wire_point_device(point)) ==
           core->config.host_device;
}

/* The streams that a function of this priority may take. */
struct lane {
    uint32_t first;
    uint32_t end;
};

static struct lane lane_of(const struct worker_core *core,
                           const struct worker_launch *launch)
{
    uint32_t urgent = core->config.run_streams + WORKER_STREAM_ROLES;
    uint32_t low    = urgent + core->config.urgent_streams;

    if (launch->priority > 0 && core->config.urgent_streams > 0) {
        return (struct lane){urgent, low};
    }
    if (launch->priority < 0 && core->config.low_streams > 0) {
        return (struct lane){low, core->stream_count};
    }
    return (struct lane){0, core->config.run_streams};
}

static bool follow_one(struct worker_core *core, const struct worker_launch *launch,
                       struct lane lane, uint32_t *out_stream)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t seq      = wire_point_seq(launch->after[i]);
        uint8_t *followed = &core->followed[seq % STORE_RING];
        uint32_t stream;

        if (!point_local(core, launch->after[i]) || (*followed & FOLLOWED) != 0 ||
            store_timeline_done(core->timeline, seq)) {
            continue;
        }
        stream = stream_of_seq(core, seq);
        if (stream >= lane.first && stream < lane.end) {
            *followed |= FOLLOWED;
            *out_stream = stream;
            return true;
        }
    }
    return false;
}

/*
 * Launches in there; one that has little room for operations comes after all others, for it holds
 * up who goes there.
 */
static uint32_t load_of(const struct worker_stream *stream)
{
    return stream->running.count +
           (stream->put - stream->over > WORKER_OPERATIONS / 2 ? WORKER_DEPTH : 0);
}

static uint32_t least_loaded(const struct worker_core *core, struct lane lane)
{
    uint32_t best = lane.first;

    for (uint32_t i = lane.first + 1; i < lane.end; i++) {
        if (load_of(&core->streams[i]) < load_of(&core->streams[best])) {
            best = i;
        }
    }
    return best;
}

static uint32_t less_loaded_of_two(const struct worker_core *core, uint32_t a, uint32_t b)
{
    return load_of(&core->streams[b]) < load_of(&core->streams[a]) ? b : a;
}

/* Something in there may wait for another device. */
static bool hazard_ahead(const struct worker_core *core, uint32_t stream)
{
    return core->streams[stream].hazard > worker_stream_word(core, stream);
}

/*
 * A launch that goes through so much memory takes the whole device, so of those that wait for other
 * devices at the same time two streams are enough: the next one begins while the blocks of the one
 * before end. Each stream more is one more that waits, which makes every step of the others longer,
 * and one word more that other devices wait for. Others are dealt over all streams: what waits for
 * nobody is over sooner where the third one begins before the second one ends. It is what a launch
 * sees of its arrays that counts: who works at the edge of a large one goes beside who works at all
 * of it. A segment of a recorded graph is no such launch: it has streams of its own inside, and
 * what lies in it may leave most of the device idle; behind one that waits for another device in
 * the same stream, that of the next run would wait, too.
 */
#define HEAVY_STREAMS 2u

static bool behind_others(const struct worker_core *core,
                          const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint64_t seq = wire_point_seq(launch->after[i]);

        if (!point_local(core, launch->after[i]) ||
            (!store_timeline_done(core->timeline, seq) &&
             hazard_ahead(core, stream_of_seq(core, seq)))) {
            return true;
        }
    }
    return false;
}

static bool is_heavy(const struct worker_core *core, const struct worker_launch *launch)
{
    uint64_t bytes = 0;

    if (core->config.lone || core->config.signal_bytes == 0 ||
        launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) {
        return false;
    }
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        bytes += worker_operand_bytes_shown(&launch->operands[i]);
    }
    return bytes >= core->config.signal_bytes && behind_others(core, launch);
}

static bool heavy_ahead(const struct worker_core *core, uint32_t stream)
{
    return core->streams[stream].heavy > worker_stream_word(core, stream);
}

/* If those with such work in them are enough, the one that got some the longest ago: so they take turns. */
static uint32_t least_heavy(const struct worker_core *core, struct lane lane)
{
    uint32_t best = lane.first, count = 0;

    for (uint32_t i = lane.first; i < lane.end; i++) {
        if (heavy_ahead(core, i) &&
            (count++ == 0 || core->streams[i].heavy < core->streams[best].heavy)) {
            best = i;
        }
    }
    return count >= HEAVY_STREAMS ? best : least_loaded(core, lane);
}

/* What waits for something in there may never go on (A SIGNAL BEFORE WHAT MAY BE ENDED). */
static bool endless_ahead(const struct worker_core *core, uint32_t stream)
{
    return core->config.words_cheap ||
           core->streams[stream].bounded > worker_stream_word(core, stream);
}

/*
 * Where a SEND goes: behind one to the same device, else where there is least. To another host it
 * is over when the last answer has come, and one behind it would be told to that host's connection
 * only then: so those have two streams, if there is one that neither SENDs to others nor bytes for
 * clients need.
 */
static uint32_t send_stream(struct worker_core *core, const struct worker_launch *launch)
{
    static const enum worker_stream_role lanes[] = {
        WORKER_STREAM_SEND_2, WORKER_STREAM_SEND_3, WORKER_STREAM_SEND};
    bool remote =
        worker_host_device_of(core, launch->peer) >= core->config.host_device_count;
    uint32_t best   = stream_of_role(core, lanes[0]);
    uint32_t behind = 0, behind_count = 0;

    for (size_t i = 0; i < PL_COUNT(lanes); i++) {
        uint32_t stream = stream_of_role(core, lanes[i]);

        if (hazard_ahead(core, stream) && core->streams[stream].peer == launch->peer) {
            behind =
                behind_count++ == 0 ? stream : less_loaded_of_two(core, behind, stream);
        }
        best = less_loaded_of_two(core, best, stream);
    }
    if (behind_count > 1 ||
        (behind_count == 1 && (!remote || !worker_stream_idle(core, best) ||
                               best == stream_of_role(core, WORKER_STREAM_SEND)))) {
        return behind;
    }
    core->streams[best].peer = launch->peer;
    return best;
}

/*
 * A device's copies from one other device go on at its full rate, while the copies of all devices
 * pair them. Two streams of large copies from two devices take turns within each copy, so that now
 * two readers draw on one device and now nobody does: on four H200s that move all to all in copies
 * of 100 MiB at 900 GB/s in place of 1390. So they follow each other in one stream, unless the last
 * one there still waits for its bytes and this one does not. From one device they may take turns.
 * Smaller ones gain more by the word that is written beside the next copy (16 MiB: 890 and 865).
 *
 * WHOSE ENGINES. The device that the bytes come from may copy them (ops->source). A stream that
 * goes from one to another pays some microseconds, so that is for large copies. That one's engine
 * goes on with a stream as long as it has work, so two streams do not take turns there: all that
 * one holds comes before what the other does. Who passes an array on while it comes needs its parts
 * in their order, so they follow each other in one stream. (In two, a third device of a chain that
 * put one part in another stream than those before it had each wait for half of the array: 1 GiB to
 * three others 3.9 to 4.1 ms in place of 3.3, one time in eight.)
 */
#define SOURCE_PART 16u /* of large_copy_bytes, in one piece: less may be a kernel's */

enum { FROM_NOBODY = 0, FROM_SEVERAL = UINT32_MAX };

static uint32_t piece_from(const struct worker_core *core, const struct worker_piece *piece)
{
    return worker_host_device_of(core, wire_buffer_device(piece->src));
}

/* What a launch copies from other devices. */
struct copied {
    uint32_t from; /* one more than the host's number of the device that it is */
    uint64_t bytes;
    uint64_t least; /* in one piece */
};

static struct copied copied_by(const struct worker_core *core,
                               const struct worker_launch *launch)
{
    struct copied copied = {.from = FROM_NOBODY, .least = UINT64_MAX};

    for (uint32_t i = 0; i < launch->piece_count; i++) {
        uint32_t device = piece_from(core, &launch->pieces[i]);
        uint64_t bytes  = worker_piece_bytes(launch, &launch->pieces[i]);

        if (device == core->config.host_device) {
            continue;
        }
        copied.from  = copied.from == FROM_NOBODY || copied.from == device + 1
                           ? device + 1
                           : FROM_SEVERAL;
        copied.least = pl_min_u64(copied.least, bytes);
        copied.bytes += bytes;
    }
    return copied;
}

/* Not what a kernel or NCCL brings. */
static bool by_sources(struct worker_core *core, const struct worker_launch *launch,
                       const struct copied *copied)
{
    return copied->bytes >= core->config.large_copy_bytes &&
           copied->least >= core->config.large_copy_bytes / SOURCE_PART &&
           !worker_launch_combines(launch) &&
           !(worker_launch_is_joint(launch) && worker_pair_usable(core, launch));
}

/* Both copy from the same array. */
static bool is_next_part(const struct worker_launch *last,
                         const struct worker_launch *launch)
{
    return last->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY && last->piece_count == 1 &&
           launch->piece_count == 1 && last->pieces[0].src == launch->pieces[0].src;
}

static uint32_t copy_stream(struct worker_core *core, struct worker_launch *launch)
{
    const uint32_t first = stream_of_role(core, WORKER_STREAM_COPY);
    struct copied copied = copied_by(core, launch);
    uint32_t best =
        less_loaded_of_two(core, first, stream_of_role(core, WORKER_STREAM_COPY_2));
    uint32_t behind                  = stream_of_role(core, core->copied_in);
    const struct worker_launch *last = core->streams[behind].running.last;

    launch->by_sources = by_sources(core, launch, &copied);
    if (copied.bytes < core->config.large_copy_bytes) {
        return best;
    }
    if (last != NULL &&
        (copied.from == FROM_SEVERAL || copied.from != core->copied_from
             ? worker_inputs_done(core, last) || !worker_inputs_done(core, launch)
             : is_next_part(last, launch) && worker_stream_words_late(core, behind))) {
        best = behind;
    }
    core->copied_from = copied.from;
    core->copied_in   = best == first ? WORKER_STREAM_COPY : WORKER_STREAM_COPY_2;
    return best;
}

static uint32_t any_idle(const struct worker_core *core, struct lane lane)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        if (worker_stream_idle(core, i)) {
            return i;
        }
    }
    return least_loaded(core, lane);
}

bool worker_streams_quiet(const struct worker_core *core)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        if (core->streams[i].running.first != NULL) {
            return false;
        }
    }
    return true;
}

static uint32_t choose(struct worker_core *core, struct worker_launch *launch,
                       bool *out_heavy)
{
    uint64_t named   = core->timeline->ring[launch->seq % STORE_RING];
    struct lane lane = lane_of(core, launch);
    uint32_t stream;

    if (named >> 8 == launch->seq) {
        return store_ring_stream(named);
    }

    if (worker_launch_combines(launch) && !launch->overwrites) {
        /* Never in one stream with what writes over its sources: head/worker.c. */
        return stream_of_role(core, WORKER_STREAM_RECV);
    }
    switch (launch->kind) {
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY:
        return copy_stream(core, launch);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT:
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST:
        return stream_of_role(core, WORKER_STREAM_COPY);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_SEND:
        return send_stream(core, launch);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_READ: /* one stream: inline.h */
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST:
        return stream_of_role(core, WORKER_STREAM_SEND);
    case PLASMON__V1__LAUNCH_KIND__LAUNCH_RECV:
        return stream_of_role(core, WORKER_STREAM_RECV);
    default:
        break;
    }

    if (launch->graph != NULL && worker_graph_last(launch->graph) != 0 &&
        !store_timeline_done(core->timeline, worker_graph_last(launch->graph))) {
        return stream_of_seq(core, worker_graph_last(launch->graph));
    }
    *out_heavy = is_heavy(core, launch);
    if (follow_one(core, launch, lane, &stream)) {
        return stream;
    }
    return launch->without_work ? any_idle(core, lane)
           : *out_heavy         ? least_heavy(core, lane)
                                : least_loaded(core, lane);
}

uint32_t worker_stream_choose(struct worker_core *core, struct worker_launch *launch)
{
    if (!launch->stream_chosen) {
        launch->stream        = choose(core, launch, &launch->heavy);
        launch->stream_chosen = true;
    }
    return launch->stream;
}

plasmon_status_t worker_stream_source(struct worker_core *core,
                                      const struct worker_launch *launch,
                                      const struct worker_piece *piece, uint64_t bytes,
                                      uint32_t stream)
{
    uint32_t own  = core->config.host_device;
    uint32_t from = piece != NULL ? piece_from(core, piece) : own;

    if (core->config.ops->source == NULL ||
        !worker_stream_copies(core->config.run_streams, stream)) {
        return PLASMON_OK;
    }
    if (from >= core->config.host_device_count) { /* which the copy will say */
        from = own;
    }
    return core->config.ops->source(core->config.user, stream,
                                    launch->by_sources ? from : own,
                                    from != own ? bytes : 0, launch->seq);
}

bool worker_stream_words_late(const struct worker_core *core, uint32_t stream)
{
    return core->config.ops->words_late != NULL &&
           core->config.ops->words_late(core->config.user, stream) &&
           !pl_bug("worker.late_word_noted");
}

/* -------------------------------------------------------------------------------- order */

void worker_stream_before_hazard(struct worker_core *core, uint32_t stream, uint64_t seq)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        if (core->streams[i].unsignalled != 0 &&
            (i == stream || !pl_bug("worker.words_of_one_stream"))) {
            worker_stream_signal(core, i);
        }
    }
    core->streams[stream].hazard = seq;
}

void worker_stream_before_work(struct worker_core *core, const struct worker_launch *launch,
                               uint32_t stream, uint64_t work)
{
    const struct worker_stream *mine = &core->streams[stream];

    if (core->config.signal_bytes == 0 || work < core->config.signal_bytes / LONG_PART) {
        return;
    }
    if (!core->config.lone && mine->unsignalled != 0 &&
        mine->unsignalled_bytes <= work / SHORT_PART) {
        worker_stream_signal(core, stream);
    }
    if (launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN ||
        launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH) {
        worker_mark_before_work(core, stream);
    }
}

static bool uses_overwritten(const struct worker_core *core,
                             const struct worker_launch *earlier,
                             const struct worker_launch *launch)
{
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        const struct worker_operand *operand = &launch->operands[i];

        if (operand->writes && !operand->fresh &&
            worker_launch_uses(core, earlier, operand->slot, operand->generation)) {
            return true;
        }
    }
    return false;
}

/*
 * It stands for what it waits for (head/task.c: a gate): whoever is behind it may overwrite what
 * that uses, and names nothing but the gate.
 */
static bool only_waits(const struct worker_launch *launch)
{
    return launch->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP &&
           !pl_bug("worker.gate_unsaid");
}

/* Launch `seq`, which is in that stream and not done, must be shown done before this one begins. */
static bool word_first(const struct worker_core *core, const struct worker_launch *launch,
                       uint32_t stream, uint64_t seq)
{
    const struct worker_launch *earlier = core->streams[stream].running.first;

    if (pl_bug("worker.overwrite_unsaid")) {
        return false;
    }
    if (only_waits(launch)) {
        return true;
    }
    if (!launch->overwrites) {
        return false;
    }
    while (earlier != NULL && earlier->seq < seq) {
        earlier = earlier->next;
    }
    return earlier == NULL || only_waits(earlier) ||
           uses_overwritten(core, earlier, launch);
}

/*
 * What comes behind launch `seq` of this device: the work of this one; or the write of that one's
 * word too; or that if it uses what this one overwrites.
 */
enum behind { BEHIND_WORK, BEHIND_WORD, BEHIND_WORD_IF_USED };

/*
 * `mine` comes behind all that is in `other`, so behind whatever that came behind. Of a mark it is
 * not known what that was when the mark was put.
 */
static void joined_all(struct worker_stream *mine, const struct worker_stream *other)
{
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        mine->joined[i]      = pl_max_u64(mine->joined[i], other->joined[i]);
        mine->joined_word[i] = pl_max_u64(mine->joined_word[i], other->joined_word[i]);
    }
}

static void order_local(struct worker_core *core, struct worker_launch *launch,
                        uint32_t stream, uint64_t seq, enum behind behind, bool *io_clear)
{
    struct worker_stream *mine = &core->streams[stream];
    plasmon_status_t status;
    uint32_t other, slot;
    bool by_mark, word;

    if (store_timeline_done(core->timeline, seq)) {
        return;
    }
    other = stream_of_seq(core, seq);
    if (other == stream) {
        return; /* not clear of it, but behind it: stream_idle() knows */
    }
    *io_clear = false;
    word      = behind == BEHIND_WORD ||
           (behind == BEHIND_WORD_IF_USED && word_first(core, launch, other, seq));
    if ((word ? mine->joined_word[other] : mine->joined[other]) >= seq ||
        pl_bug("worker.skip_join")) {
        return;
    }
    if (word && core->streams[other].signalled < seq) {
        worker_stream_signal(core, other);
    }

    if (hazard_ahead(core, other)) {
        worker_stream_before_hazard(core, stream, launch->seq);
    }
    if (endless_ahead(core, other)) {
        if (mine->unsignalled != 0) {
            worker_stream_signal(core, stream);
        }
        mine->bounded = launch->seq;
    }
    by_mark = worker_mark_find(core, other, seq, word, &slot);
    status  = by_mark ? core->config.ops->join_mark(core->config.user, stream, other, slot)
                      : core->config.ops->join(core->config.user, stream, other);
    if (status != PLASMON_OK) {
        worker_launch_fail(launch, status,
                           "stream %u could not be made to wait for stream %u", stream,
                           other);
        return;
    }
    worker_stream_put(core, stream, 1);
    worker_stream_put(core, other, by_mark ? 0 : 1); /* what is joined is noted there */
    if (by_mark) {
        launch->behind_mark |= core->streams[other].mark_pipeline[slot];
        mine->joined[other] =
            pl_max_u64(mine->joined[other], core->streams[other].marks[slot]);
        mine->joined_word[other] =
            pl_max_u64(mine->joined_word[other], core->streams[other].mark_words[slot]);
    } else {
        joined_all(mine, &core->streams[other]);
        worker_before_joined(core, stream, other);
        mine->joined[other]      = core->streams[other].last;
        mine->joined_word[other] = core->streams[other].signalled;
    }
    worker_begun_joined(mine, other);
}

/* What comes next in this stream begins when the words in it are written. */
static void settle(struct worker_core *core, struct worker_launch *launch, uint32_t stream)
{
    plasmon_status_t status = PLASMON_OK;

    if (worker_stream_words_late(core, stream) && !pl_bug("worker.unsettled")) {
        status = core->config.ops->settle(core->config.user, stream);
        worker_stream_put(core, stream, 2);
    }
    if (status != PLASMON_OK) {
        worker_launch_fail(launch, status,
                           "stream %u could not be made to wait for its word", stream);
    }
}

/*
 * Its memory is somebody else's until these are over (reuse.c): in this stream as in others, their
 * word comes first.
 */
static void order_reuse(struct worker_core *core, struct worker_launch *launch,
                        uint32_t stream, bool *io_clear)
{
    enum behind behind = pl_bug("worker.reuse_unsaid") ? BEHIND_WORK : BEHIND_WORD;

    for (uint32_t i = 0; i < core->stream_count; i++) {
        uint64_t seq    = core->behind[i];
        core->behind[i] = 0;
        if (seq == 0 || pl_bug("worker.reuse_at_once")) {
            continue;
        }
        if (i == stream && behind == BEHIND_WORD) {
            if (core->streams[i].signalled < seq) {
                worker_stream_signal(core, i);
            }
            settle(core, launch, i);
        }
        order_local(core, launch, stream, seq, behind, io_clear);
    }
}

/* One wait a word, for the highest value. */
static void wait_collect(struct worker_core *core, struct worker_launch *launch,
                         uint32_t host_device, uint64_t *word, uint64_t value)
{
    struct worker_wait *wait;

    for (size_t i = 0; i < core->waits.count; i++) {
        wait = pl_vec_at(&core->waits, i);
        if (wait->word == word) {
            wait->value = pl_max_u64(wait->value, value);
            return;
        }
    }
    wait = pl_vec_push(&core->waits);
    if (wait == NULL) {
        worker_launch_fail(launch, PLASMON_ENOMEM, "no memory for what it waits for");
        return;
    }
    *wait = (struct worker_wait){.host_device = host_device, .word = word, .value = value};
}

static void waits_enqueue(struct worker_core *core, struct worker_launch *launch,
                          uint32_t stream, bool *io_clear)
{
    for (size_t i = core->waits.count;
         i-- > 0;) { /* later launches stand for earlier ones */
        struct worker_wait *wait = pl_vec_at(&core->waits, i);

        wait->needed = worker_before_waits(core, stream, wait);
    }
    for (size_t i = 0; i < core->waits.count; i++) {
        const struct worker_wait *wait = pl_vec_at(&core->waits, i);
        plasmon_status_t status;

        *io_clear = false;
        if (!wait->needed || pl_bug("worker.skip_wait")) {
            continue;
        }
        worker_stream_before_hazard(core, stream, launch->seq);
        worker_begun_held_up(core, stream);
        worker_stream_put(core, stream, 1);
        status = core->config.ops->wait(core->config.user, stream, wait->host_device,
                                        wait->word, wait->value);
        if (status != PLASMON_OK) {
            worker_launch_fail(launch, status, "its wait for device %u of this host failed",
                               wait->host_device);
        }
    }
}

bool worker_stream_order(struct worker_core *core, struct worker_launch *launch,
                         uint32_t stream)
{
    bool clear = true;

    launch->behind_mark = false;
    pl_vec_clear(&core->waits);
    for (uint32_t i = launch->after_count;
         i-- > 0;) { /* a join with a later one often stands for others */
        if (point_local(core, launch->after[i])) {
            order_local(core, launch, stream, wire_point_seq(launch->after[i]),
                        BEHIND_WORD_IF_USED, &clear);
        }
    }
    for (uint32_t i = 0; i < launch->after_count; i++) {
        uint32_t host_device =
            worker_host_device_of(core, wire_point_device(launch->after[i]));
        uint64_t seq = wire_point_seq(launch->after[i]);
        uint64_t *word, value;

        if (host_device != core->config.host_device &&
            host_device < core->config.host_device_count &&
            core->config.timelines[host_device] != NULL &&
            store_timeline_point(core->config.timelines[host_device], seq, &word, &value) ==
                STORE_POINT_ENQUEUED) {
            wait_collect(core, launch, host_device, word, value);
        }
    }
    if (launch->graph != NULL && worker_graph_last(launch->graph) != 0) {
        /* Its memory, and what is replayed, serve one launch at a time. */
        order_local(core, launch, stream, worker_graph_last(launch->graph),
                    launch->overwrites ? BEHIND_WORD : BEHIND_WORK, &clear);
    }
    order_reuse(core, launch, stream, &clear);
    waits_enqueue(core, launch, stream, &clear);
    return clear;
}

/* ------------------------------------------------------------------------------ signals */

static void stream_signalled(struct worker_stream *mine)
{
    if (mine->running.count != 0 && mine->running.last->seq == mine->last) {
        mine->running.last->signalled = true;
    }
    worker_stream_signalled(mine);
}

void worker_stream_signal(struct worker_core *core, uint32_t stream)
{
    struct worker_stream *mine = &core->streams[stream];
    plasmon_status_t status =
        core->config.ops->signal(core->config.user, stream, mine->last);

    worker_stream_put(core, stream, 1);
    if (status != PLASMON_OK) { /* the device is lost: who runs us sees its health */
        pl_error("worker", "signal of stream %u at launch %llu failed: %s", stream,
                 (unsigned long long)mine->last, pl_status_text(status));
    } else if (!worker_stream_words_late(core, stream)) {
        store_timeline_know(core->timeline, mine->last, STORE_KNOWN_SIGNALS);
    }
    stream_signalled(mine);
}

void worker_stream_written(struct worker_core *core, uint32_t stream)
{
    store_timeline_know(core->timeline, core->streams[stream].last, STORE_KNOWN_SIGNALS);
    stream_signalled(&core->streams[stream]);
}

void worker_stream_signalled(struct worker_stream *stream)
{
    stream->unsignalled       = 0;
    stream->unsignalled_bytes = 0;
    stream->signalled_before  = stream->signalled;
    stream->signalled         = stream->last;
}

void worker_stream_flush(struct worker_core *core, uint32_t stream)
{
    if (core->config.ops->flush != NULL) {
        core->config.ops->flush(core->config.user, stream);
    }
}

/* The end of a batch may do without: a word that is still to come brings the host here again. */
static bool signal_can_wait(const struct worker_core *core, uint32_t stream)
{
    return core->config.lone &&
           worker_stream_word(core, stream) < core->streams[stream].signalled_before;
}

void worker_doorbells_ring(struct worker_core *core)
{
    if (core->published) {
        core->published = false;
        core->config.ops->ring_doorbells(core->config.user);
    }
}

void worker_streams_flush(struct worker_core *core)
{
    for (uint32_t i = 0; i < core->stream_count; i++) {
        struct worker_stream *stream = &core->streams[i];

        if (stream->unsignalled != 0 && !signal_can_wait(core, i)) {
            worker_stream_signal(core, i);
        } else if (stream->unsignalled != 0) {
            worker_stream_flush(core, i);
        }
        if (stream->woken) {
            stream->woken = false;
            if (core->config.ops->wake != NULL) {
                core->config.ops->wake(core->config.user, &core->timeline->stream[i].value);
            }
        }
    }
    worker_doorbells_ring(core);
}
