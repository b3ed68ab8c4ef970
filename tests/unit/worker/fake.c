#include "tests/unit/worker/fake.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Tables are 33 MB of zeroes each, hardly any of which is ever touched. */
static void *zero_pages(size_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

/* ---------------------------------------------------------------------------------- ops */

static plasmon_status_t refuse(const struct fake *fake, const char *name)
{
    return fake->refuse != NULL && strcmp(fake->refuse, name) == 0 ? PLASMON_EDEVICE
                                                                   : PLASMON_OK;
}

#define CALL(name, format, ...)                                                       \
    pl_str_append(&fake->calls, "%s" name format, fake->calls.length == 0 ? "" : " ", \
                  __VA_ARGS__)

static plasmon_status_t op_grow(void *user, uint32_t pool, uint64_t bytes)
{
    struct fake *fake = user;
    uint64_t chunk    = pl_max_u64(FAKE_CHUNK, pl_round_up(bytes, FAKE_CHUNK));

    if (chunk > fake->grow_bytes) {
        return PLASMON_EDEVMEM;
    }
    ASSERT_TRUE(!fake->growing); /* one at a time */
    fake->grow_bytes -= chunk;
    if (pool == 0) {
        fake->grow_offset = fake->arena_end;
        fake->arena_end += chunk;
    } else {
        fake->arena_top -= chunk;
        fake->grow_offset = fake->arena_top;
    }
    if (fake->store_slow) {
        fake->growing    = true;
        fake->grow_pool  = pool;
        fake->grow_chunk = chunk;
        return PLASMON_EAGAIN;
    }
    return worker_core_chunk_added(fake->core, pool, fake->grow_offset, chunk);
}

void fake_kept(struct fake *fake)
{
    ASSERT_TRUE(fake->growing);
    fake->growing = false;
    ASSERT_OK(worker_core_chunk_added(fake->core, fake->grow_pool, fake->grow_offset,
                                      fake->grow_chunk));
    worker_core_complete(fake->core);
    worker_core_complete(fake->core); /* words that the core has stored itself */
}

static plasmon_status_t op_wait(void *user, uint32_t stream, uint32_t host_device,
                                uint64_t *word, uint64_t value)
{
    struct fake *fake = user;
    size_t other =
        (size_t)((struct store_word *)(void *)word - fake->timelines[host_device]->stream);

    CALL("wait", ":%u:%u.%zu>=%llu", stream, host_device, other, (unsigned long long)value);
    return refuse(fake, "wait");
}

static plasmon_status_t op_join(void *user, uint32_t stream, uint32_t other)
{
    struct fake *fake = user;

    CALL("join", ":%u:%u", stream, other);
    return refuse(fake, "join");
}

static plasmon_status_t op_mark(void *user, uint32_t stream, uint32_t slot)
{
    struct fake *fake = user;

    CALL("mark", ":%u:%u", stream, slot);
    return refuse(fake, "mark");
}

static plasmon_status_t op_join_mark(void *user, uint32_t stream, uint32_t other,
                                     uint32_t slot)
{
    struct fake *fake = user;

    CALL("join_mark", ":%u:%u.%u", stream, other, slot);
    return refuse(fake, "join_mark");
}

static plasmon_status_t op_source(void *user, uint32_t stream, uint32_t host_device,
                                  uint64_t bytes, uint64_t seq)
{
    struct fake *fake = user;

    (void)seq;
    if (!fake->tells_sources) {
        return PLASMON_OK;
    }
    fake->late[stream] = host_device != FAKE_US;
    CALL("source", ":%u:%u:%llu", stream, host_device, (unsigned long long)(bytes >> 20));
    return refuse(fake, "source");
}

static bool op_words_late(void *user, uint32_t stream)
{
    const struct fake *fake = user;

    return fake->late[stream];
}

static plasmon_status_t op_settle(void *user, uint32_t stream)
{
    struct fake *fake = user;

    CALL("settle", ":%u", stream);
    return refuse(fake, "settle");
}

static plasmon_status_t op_copy(void *user, uint32_t stream, const struct pl_box *box,
                                uint32_t element_bytes, uint64_t dst_offset,
                                const struct pl_box *dst_frame, uint32_t src_host_device,
                                uint64_t src_offset, const struct pl_box *src_frame,
                                uint64_t seq)
{
    struct fake *fake = user;

    (void)seq;
    ASSERT_EQ(element_bytes, 4);
    ASSERT_TRUE(pl_box_contains(dst_frame, box) && pl_box_contains(src_frame, box));
    CALL("copy", ":%u:%llu+%llu->%llu<-%u.%llu", stream, (unsigned long long)box->start[0],
         (unsigned long long)box->count[0], (unsigned long long)dst_offset, src_host_device,
         (unsigned long long)src_offset);
    return refuse(fake, "copy");
}

static void stage_call(struct fake *fake, const char *name, uint32_t stream, uint32_t peer,
                       uint64_t chunk, uint64_t offset, uint64_t bytes)
{
    if (offset == WORKER_NOWHERE) {
        CALL("", "%s:%u:%u:#%llu:nowhere+%llu", name, stream, peer,
             (unsigned long long)chunk, (unsigned long long)bytes);
    } else {
        CALL("", "%s:%u:%u:#%llu:%llu+%llu", name, stream, peer, (unsigned long long)chunk,
             (unsigned long long)offset, (unsigned long long)bytes);
    }
}

static plasmon_status_t op_stage_send(void *user, uint32_t stream, uint32_t peer,
                                      uint64_t chunk, uint64_t offset, uint64_t bytes)
{
    stage_call(user, "send", stream, peer, chunk, offset, bytes);
    return PLASMON_OK;
}

static plasmon_status_t op_stage_recv(void *user, uint32_t stream, uint32_t peer,
                                      uint64_t chunk, uint64_t offset, uint64_t bytes)
{
    stage_call(user, "recv", stream, peer, chunk, offset, bytes);
    return PLASMON_OK;
}

/* peer: of the cluster */
static plasmon_status_t op_bulk_send(void *user, uint32_t stream, uint32_t peer,
                                     uint64_t chunk, uint64_t offset, uint64_t bytes)
{
    stage_call(user, "bulk", stream, peer, chunk, offset, bytes);
    return PLASMON_OK;
}

static plasmon_status_t op_put(void *user, uint32_t stream, uint64_t dst_offset,
                               const uint8_t *bytes, uint64_t length)
{
    struct fake *fake = user;

    ASSERT_TRUE(length == 0 || bytes != NULL);
    CALL("put", ":%u:%llu+%llu", stream, (unsigned long long)dst_offset,
         (unsigned long long)length);
    return refuse(fake, "put");
}

static plasmon_status_t op_read(void *user, uint32_t stream, uint64_t src_offset,
                                uint64_t length, uint64_t request)
{
    struct fake *fake = user;

    CALL("read", ":%u:%llu+%llu?%llu", stream, (unsigned long long)src_offset,
         (unsigned long long)length, (unsigned long long)request);
    return refuse(fake, "read");
}

static plasmon_status_t op_get_host(void *user, uint32_t stream, uint64_t src_offset,
                                    uint64_t host_buffer, uint64_t host_offset,
                                    uint64_t bytes, struct pl_err *err)
{
    struct fake *fake = user;

    (void)host_buffer, (void)host_offset, (void)err;
    CALL("get_host", ":%u:%llu+%llu", stream, (unsigned long long)src_offset,
         (unsigned long long)bytes);
    return refuse(fake, "get_host");
}

static bool op_host_ready(void *user, uint64_t host_buffer, uint64_t host_offset,
                          uint64_t length)
{
    const struct fake *fake = user;

    (void)host_buffer;
    (void)host_offset;
    (void)length;
    return !fake->host_locking;
}

static uint64_t op_scratch_bytes(void *user, const struct kernel_function *function,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count)
{
    const struct fake *fake = user;

    (void)function, (void)args, (void)arg_count, (void)scalars, (void)scalar_count;
    return fake->scratch;
}

static uint64_t op_operations(void *user, const struct kernel_function *function,
                              const struct kernel_arg *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count)
{
    const struct fake *fake = user;

    (void)function, (void)args, (void)arg_count, (void)scalars, (void)scalar_count;
    return fake->operations != 0 ? fake->operations : 1;
}

static plasmon_status_t op_prepare(void *user, const struct kernel_function *function,
                                   const struct kernel_arg *args, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, bool keep, bool quiet,
                                   struct pl_err *err)
{
    struct fake *fake = user;

    (void)args, (void)arg_count, (void)scalars, (void)scalar_count;
    if (fake->prepare_of == NULL || strcmp(fake->prepare_of, function->name) != 0) {
        return PLASMON_OK;
    }
    fake->prepare_quiet = quiet;
    fake->prepare_keep  = keep;
    return fake->prepare_status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, fake->prepare_status, "no plan for %s", function->name);
}

static void op_prepared_release(void *user)
{
    struct fake *fake = user;

    fake->prepared_released++;
}

static plasmon_status_t op_run(void *user, uint32_t stream,
                               const struct kernel_function *function,
                               const struct kernel_arg *args, uint32_t arg_count,
                               const union kernel_scalar *scalars, uint32_t scalar_count,
                               uint64_t scratch_offset, uint64_t scratch_bytes,
                               uint64_t tag, struct pl_err *err)
{
    struct fake *fake = user;

    (void)scalars, (void)scalar_count, (void)scratch_offset, (void)tag;
    ASSERT_EQ(scratch_bytes, fake->scratch);
    ASSERT_TRUE(arg_count <= 8);
    memcpy(fake->args, args, arg_count * sizeof(*args));
    fake->arg_count = arg_count;
    CALL("run", ":%u:%s", stream, function->name);
    if (refuse(fake, "run") != PLASMON_OK) {
        return pl_err_set(err, PLASMON_EDEVICE, "the fake refused to run %s",
                          function->name);
    }
    return PLASMON_OK;
}

static plasmon_status_t op_combine(void *user, uint32_t stream,
                                   const struct kernel_function *function,
                                   const struct kernel_arg *args,
                                   const struct worker_source *sources, uint32_t arg_count,
                                   const union kernel_scalar *scalars,
                                   uint32_t scalar_count, uint64_t tag, struct pl_err *err)
{
    struct fake *fake = user;

    (void)scalars, (void)scalar_count, (void)tag, (void)err;
    ASSERT_TRUE(arg_count <= 8);
    memcpy(fake->args, args, arg_count * sizeof(*args));
    memcpy(fake->sources, sources, arg_count * sizeof(*sources));
    fake->arg_count = arg_count;
    CALL("combine", ":%u:%s", stream, function->name);
    return refuse(fake, "combine");
}

static const struct kernel_function *op_function(void *user, uint32_t id, bool quiet,
                                                 struct pl_err *err)
{
    struct fake *fake = user;

    (void)id;
    fake->own_quiet = quiet;
    if (fake->own == NULL) {
        (void)pl_err_set(err, fake->own_status, "short");
    }
    return fake->own;
}

static const char *op_function_text(void *user, uint32_t id)
{
    (void)user;
    (void)id;
    return "all of the compiler's words";
}

static plasmon_status_t op_run_defined(void *user, uint32_t stream,
                                       const struct kernel_function *function,
                                       const struct kernel_arg *args, uint32_t arg_count,
                                       const union kernel_scalar *scalars,
                                       uint32_t scalar_count, uint64_t scratch_offset,
                                       struct kernel_launch_shape *io_shape, uint64_t tag,
                                       struct pl_err *err)
{
    struct fake *fake = user;

    (void)args;
    (void)arg_count;
    (void)scalars;
    (void)scalar_count;
    (void)scratch_offset;
    (void)tag;
    (void)err;
    CALL("own", ":%u:%s:%u", stream, function->name, io_shape->block[0]);
    return refuse(fake, "own");
}

static plasmon_status_t op_fill_identity(void *user, uint32_t stream,
                                         const struct kernel_arg *arg, uint64_t tag)
{
    struct fake *fake = user;

    (void)tag;
    CALL("identity", ":%u:op%u", stream, arg->reduce_op);
    return refuse(fake, "identity");
}

static plasmon_status_t op_record_begin(void *user, void **io_recorder, uint32_t branches,
                                        uint64_t tag_offset, struct pl_err *err)
{
    struct fake *fake = user;

    (void)tag_offset;
    if (refuse(fake, "record") != PLASMON_OK) {
        return pl_err_set(err, PLASMON_ENOTSUP, "the fake records nothing");
    }
    *io_recorder = fake;
    CALL("record", ":%u", branches);
    return PLASMON_OK;
}

static plasmon_status_t op_record_mark(void *user, uint32_t branch, uint32_t mark)
{
    struct fake *fake = user;

    CALL("mark", ":%u:%u", branch, mark);
    return PLASMON_OK;
}

static plasmon_status_t op_record_after(void *user, uint32_t branch, uint32_t mark)
{
    struct fake *fake = user;

    CALL("after", ":%u:%u", branch, mark);
    return PLASMON_OK;
}

static plasmon_status_t op_record_end(void *user, bool keep, void **io_exec,
                                      struct pl_err *err)
{
    struct fake *fake = user;
    bool changed      = *io_exec != NULL;

    if (!keep) {
        CALL("", "%s", "thrown");
        return PLASMON_OK;
    }
    if (refuse(fake, "recorded") != PLASMON_OK) {
        return pl_err_set(err, PLASMON_EDEVICE, "the fake refused the recording");
    }
    if (!changed) {
        *io_exec = (void *)++fake->recordings;
    }
    CALL("recorded", ":%zu%s", (size_t)(uintptr_t)*io_exec, changed ? "!" : "");
    return PLASMON_OK;
}

static plasmon_status_t op_replay(void *user, uint32_t stream, void *exec, uint64_t tag)
{
    struct fake *fake = user;

    (void)tag;
    CALL("replay", ":%u:%zu", stream, (size_t)(uintptr_t)exec);
    return refuse(fake, "replay");
}

static plasmon_status_t op_record_item(void *user, uint32_t item)
{
    struct fake *fake = user;

    if (fake->changing) {
        CALL("item", ":%u", item);
        return refuse(fake, "item");
    }
    return PLASMON_OK;
}

static plasmon_status_t op_change_begin(void *user, void *recorder, void *exec,
                                        struct pl_err *err)
{
    struct fake *fake = user;

    ASSERT_TRUE(recorder == fake && exec != NULL);
    if (!fake->changes) {
        return pl_err_set(err, PLASMON_ENOTSUP, "the fake changes nothing");
    }
    CALL("change", ":%zu", (size_t)(uintptr_t)exec);
    fake->changing = true;
    return PLASMON_OK;
}

static plasmon_status_t op_change_end(void *user)
{
    struct fake *fake = user;

    ASSERT_TRUE(fake->changing);
    fake->changing = false;
    CALL("", "%s", "changed");
    return refuse(fake, "changed");
}

static void op_record_drop(void *user, void *recorder, void *exec)
{
    struct fake *fake = user;

    if (recorder != NULL) {
        CALL("", "%s", "norecorder");
    }
    if (exec != NULL) {
        CALL("drop", ":%zu", (size_t)(uintptr_t)exec);
    }
}

static plasmon_status_t op_begin(void *user, uint32_t stream, uint64_t seq)
{
    struct fake *fake = user;

    CALL("begin", ":%u:%llu", stream, (unsigned long long)seq);
    return refuse(fake, "begin");
}

/* "condemned:7:ETIMELIMIT", then "fence:7" */
static void op_report_condemned(void *user, const struct worker_condemned *condemned)
{
    struct fake *fake = user;

    if (!condemned->fence) {
        (void)snprintf(fake->last_text, sizeof(fake->last_text), "%s", condemned->text);
        pl_str_append(
            &fake->reports, "%scondemned:%llu:%s", fake->reports.length == 0 ? "" : " ",
            (unsigned long long)condemned->seq, pl_status_name(condemned->status));
        return;
    }
    pl_str_append(&fake->reports, "%sfence:%llu", fake->reports.length == 0 ? "" : " ",
                  (unsigned long long)condemned->seq);
}

static plasmon_status_t op_signal(void *user, uint32_t stream, uint64_t seq)
{
    struct fake *fake = user;

    CALL("signal", ":%u:%llu", stream, (unsigned long long)seq);
    return refuse(fake, "signal");
}

static void op_flush(void *user, uint32_t stream)
{
    struct fake *fake = user;

    if (fake->flushes) {
        CALL("", "flush:%u", stream);
    }
}

static void op_stir(void *user)
{
    struct fake *fake = user;

    if (fake->stirs) {
        CALL("", "%s", "stir");
    }
}

static uint64_t op_now(void *user)
{
    const struct fake *fake = user;

    return fake->now_ns;
}

static void op_wake(void *user, uint64_t *word)
{
    struct fake *fake = user;

    (void)word;
    fake->wakes++;
}

static void op_ring_doorbells(void *user)
{
    struct fake *fake = user;

    fake->doorbells++;
    pl_str_append(&fake->rang, "%llu ",
                  (unsigned long long)fake->timelines[FAKE_US]->enqueued);
}

static void op_report_done(void *user, uint64_t first, uint64_t count)
{
    struct fake *fake = user;

    pl_str_append(&fake->reports, "%sdone:%llu+%llu", fake->reports.length == 0 ? "" : " ",
                  (unsigned long long)first, (unsigned long long)count);
}

static void op_report_failed(void *user, uint64_t seq, plasmon_status_t status,
                             const char *text)
{
    struct fake *fake = user;

    pl_str_append(&fake->reports, "%sfailed:%llu:%s", fake->reports.length == 0 ? "" : " ",
                  (unsigned long long)seq, pl_status_name(status));
    (void)snprintf(fake->last_text, sizeof(fake->last_text), "%s", text);
}

static void op_report_starved(void *user, uint64_t seq, uint64_t bytes,
                              uint64_t largest_hole)
{
    struct fake *fake = user;

    (void)largest_hole;
    fake->starved_bytes = bytes;
    pl_str_append(&fake->reports, "%sstarved:%llu", fake->reports.length == 0 ? "" : " ",
                  (unsigned long long)seq);
}

static void op_report_refused(void *user, uint64_t request, plasmon_status_t status,
                              const uint64_t *buffers, size_t count)
{
    struct fake *fake = user;

    pl_str_append(&fake->reports, "%srefused:%llu:%s", fake->reports.length == 0 ? "" : " ",
                  (unsigned long long)request, pl_status_name(status));
    for (size_t i = 0; i < count; i++) {
        pl_str_append(&fake->reports, ":%u", wire_buffer_slot(buffers[i]));
    }
}

static plasmon_status_t op_pair_open(void *user, const struct worker_pair_key *key,
                                     const struct worker_pair_shape *shape,
                                     const uint8_t *id)
{
    struct fake *fake = user;

    (void)shape;
    (void)id;
    CALL("pair", ":%u:%llu", key->peer, (unsigned long long)key->epoch);
    return PLASMON_OK;
}

static void op_pair_end(void *user, const struct worker_pair_key *key)
{
    (void)user;
    (void)key;
}

static void op_pair_break(void *user, const struct worker_pair_key *key)
{
    struct fake *fake = user;

    (void)key;
    fake->pairs_broken++;
}

static void op_again(void *user)
{
    struct fake *fake = user;

    CALL("again", "%s", "");
}

/* Of a lane: it has room, and nothing on it waits for its turn. */
static bool op_pair_lane(void *user, uint32_t lane)
{
    (void)user;
    (void)lane;
    return true;
}

static plasmon_status_t op_pair_move(void *user, uint32_t stream,
                                     const struct worker_half *half)
{
    struct fake *fake = user;

    CALL("move", ":%u:%u+%llu", stream, half->key.peer, (unsigned long long)half->bytes);
    if (half->signals) {
        CALL("word", ":%u:%llu", stream, (unsigned long long)half->seq);
    }
    return PLASMON_OK;
}

static plasmon_status_t op_pair_stage(void *user, const struct worker_pair_key *key,
                                      uint64_t *out_first)
{
    (void)user;
    (void)key;
    *out_first = 0;
    return PLASMON_OK;
}

static void op_pair_sent(void *user, uint64_t seq)
{
    (void)user;
    (void)seq;
}

static void op_report_pair(void *user, const struct worker_pair_report *report)
{
    (void)user;
    (void)report;
}

static const struct worker_ops fake_ops = {
    .grow             = op_grow,
    .wait             = op_wait,
    .join             = op_join,
    .mark             = op_mark,
    .join_mark        = op_join_mark,
    .source           = op_source,
    .words_late       = op_words_late,
    .settle           = op_settle,
    .copy             = op_copy,
    .stage_send       = op_stage_send,
    .stage_recv       = op_stage_recv,
    .bulk_send        = op_bulk_send,
    .pair_open        = op_pair_open,
    .pair_close       = op_pair_end,
    .pair_break       = op_pair_break,
    .pair_abort       = op_pair_end,
    .pair_free        = op_pair_end,
    .pair_room        = op_pair_lane,
    .pair_settled     = op_pair_lane,
    .pair_move        = op_pair_move,
    .pair_stage       = op_pair_stage,
    .pair_sent        = op_pair_sent,
    .report_pair      = op_report_pair,
    .put              = op_put,
    .read             = op_read,
    .get_host         = op_get_host,
    .host_ready       = op_host_ready,
    .scratch_bytes    = op_scratch_bytes,
    .operations       = op_operations,
    .again            = op_again,
    .run              = op_run,
    .combine          = op_combine,
    .prepare          = op_prepare,
    .prepared_release = op_prepared_release,
    .function         = op_function,
    .function_text    = op_function_text,
    .run_defined      = op_run_defined,
    .fill_identity    = op_fill_identity,
    .signal           = op_signal,
    .flush            = op_flush,
    .stir             = op_stir,
    .begin            = op_begin,
    .record_begin     = op_record_begin,
    .record_mark      = op_record_mark,
    .record_after     = op_record_after,
    .record_end       = op_record_end,
    .record_item      = op_record_item,
    .change_begin     = op_change_begin,
    .change_end       = op_change_end,
    .replay           = op_replay,
    .record_drop      = op_record_drop,
    .report_condemned = op_report_condemned,
    .wake             = op_wake,
    .now              = op_now,
    .ring_doorbells   = op_ring_doorbells,
    .report_done      = op_report_done,
    .report_failed    = op_report_failed,
    .report_starved   = op_report_starved,
    .report_refused   = op_report_refused,
};

/* ---------------------------------------------------------------------------- the world */

static void core_start(struct fake *fake)
{
    struct worker_core_config config = {
        .ops               = &fake_ops,
        .user              = fake,
        .host_device       = FAKE_US,
        .host_device_count = FAKE_DEVICES,
        .run_streams       = fake->run_streams,
        .urgent_streams    = 1,
        .low_streams       = 1,
        .signal_bytes      = fake->signal_bytes,
        .mark_bytes        = fake->mark_bytes,
        .large_copy_bytes  = FAKE_LARGE_COPY,
        .lone              = fake->lone,
        .words_cheap       = fake->words_cheap,
        .timelines         = fake->timelines,
        .tables            = fake->tables,
        .readers           = fake->readers,
        .reader_epoch      = &fake->reader_epoch,
        .host_device_of    = fake->host_device_of,
        .device_max        = 16,
        .device_bytes      = 64u << 20,
    };

    ASSERT_OK(worker_core_create(&config, &fake->core));
}

static struct fake *create(bool lone, uint32_t run_streams, uint64_t signal_bytes,
                           uint64_t mark_bytes)
{
    struct fake *fake = PL_NEW(struct fake);

    ASSERT_NOT_NULL(fake);
    fake->lone         = lone;
    fake->run_streams  = run_streams;
    fake->signal_bytes = signal_bytes;
    fake->mark_bytes   = mark_bytes;
    pl_str_init(&fake->calls);
    pl_str_init(&fake->reports);
    pl_str_init(&fake->rang);
    for (uint32_t i = 0; i < FAKE_DEVICES; i++) {
        fake->tables[i]    = zero_pages(sizeof(struct store_table));
        fake->timelines[i] = zero_pages(sizeof(struct store_timeline));
        store_table_init(fake->tables[i], i, 1, i, 1u << 30);
        store_timeline_init(fake->timelines[i], i);
    }
    for (uint32_t i = 0; i < 16; i++) {
        fake->host_device_of[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < FAKE_DEVICES; i++) {
        fake->host_device_of[FAKE_BASE + i] = i;
    }
    for (uint32_t i = 0; i < 2; i++) { /* two readers */
        fake->readers[i] = zero_pages(sizeof(struct store_pins));
        store_pins_init(fake->readers[i], i + 1);
    }
    fake->grow_bytes = 8u << 20;
    fake->arena_top  = FAKE_ARENA;
    core_start(fake);
    return fake;
}

struct fake *fake_create(void)
{
    return create(false, FAKE_RUN_STREAMS, FAKE_SIGNAL_BYTES, 0);
}

struct fake *fake_create_wide(uint32_t run_streams)
{
    return create(false, run_streams, FAKE_SIGNAL_BYTES, 0);
}

struct fake *fake_create_lone(void)
{
    return create(true, FAKE_RUN_STREAMS, FAKE_SIGNAL_BYTES, 0);
}

struct fake *fake_create_marking(void)
{
    return create(false, FAKE_RUN_STREAMS, FAKE_SIGNAL_BYTES, FAKE_MARK_BYTES);
}

struct fake *fake_create_small(void)
{
    struct fake *fake = create(false, FAKE_RUN_STREAMS, 0, 0);

    fake->grow_bytes            = FAKE_CHUNK;
    fake->tables[FAKE_US]->kind = 2; /* a GPU */
    return fake;
}

void fake_destroy(struct fake *fake)
{
    worker_core_destroy(fake->core);
    for (uint32_t i = 0; i < FAKE_DEVICES; i++) {
        munmap(fake->tables[i], sizeof(struct store_table));
        munmap(fake->timelines[i], sizeof(struct store_timeline));
    }
    for (uint32_t i = 0; i < 2; i++) {
        munmap(fake->readers[i], sizeof(struct store_pins));
    }
    pl_str_finish(&fake->calls);
    pl_str_finish(&fake->reports);
    pl_str_finish(&fake->rang);
    wire_ranges_finish(&fake->unfinished);
    pl_free(fake);
}

plasmon_status_t fake_try_restart(struct fake *fake)
{
    struct wire_ranges untouched;
    struct pl_str text;
    plasmon_status_t status;

    worker_core_destroy(fake->core);
    (void)fake_calls(fake);
    (void)fake_reports(fake);
    if (fake->growing) {
        fake->growing = false;
        fake->grow_bytes += fake->grow_chunk;
        fake->arena_end -= fake->grow_pool == 0 ? fake->grow_chunk : 0;
        fake->arena_top += fake->grow_pool == 1 ? fake->grow_chunk : 0;
    }
    core_start(fake);
    if (fake->arena_end != 0) {
        ASSERT_OK(worker_core_chunk_added(fake->core, 0, 0, fake->arena_end));
    }
    if (fake->arena_top != FAKE_ARENA) {
        ASSERT_OK(worker_core_chunk_added(fake->core, 1, fake->arena_top,
                                          FAKE_ARENA - fake->arena_top));
    }
    wire_ranges_finish(&fake->unfinished);
    wire_ranges_init(&fake->unfinished);
    wire_ranges_init(&untouched);
    status =
        worker_core_recover(fake->core, &fake->enqueued, &fake->unfinished, &untouched);
    pl_str_init(&text);
    for (size_t i = 0; i < untouched.items.count; i++) {
        const struct wire_range *range = pl_vec_at(&untouched.items, i);

        pl_str_append(&text, "%s%llu+%llu", i == 0 ? "" : " ",
                      (unsigned long long)range->first, (unsigned long long)range->count);
    }
    (void)snprintf(fake->untouched, sizeof(fake->untouched), "%s", pl_str_text(&text));
    pl_str_finish(&text);
    wire_ranges_finish(&untouched);
    return status;
}

void fake_restart(struct fake *fake)
{
    ASSERT_OK(fake_try_restart(fake));
}

static const char *taken(struct pl_str *str)
{
    static char last[4][16384];
    static unsigned next;
    char *text = last[next++ % 4];

    ASSERT_TRUE(str->length < sizeof(last[0]));
    (void)snprintf(text, sizeof(last[0]), "%s", pl_str_text(str));
    pl_str_finish(str);
    pl_str_init(str);
    return text;
}

const char *fake_calls(struct fake *fake)
{
    return taken(&fake->calls);
}

const char *fake_reports(struct fake *fake)
{
    return taken(&fake->reports);
}

void fake_finish(struct fake *fake, uint32_t stream, uint64_t seq)
{
    fake->timelines[FAKE_US]->stream[stream].value = seq;
    worker_core_complete(fake->core);
}

void fake_peer_publish(struct fake *fake, uint32_t host_device, uint64_t seq,
                       uint32_t stream)
{
    store_timeline_publish(fake->timelines[host_device], seq, stream);
    worker_core_advance(fake->core);
}

enum store_state fake_state(const struct fake *fake, uint32_t slot)
{
    return (enum store_state)fake->tables[FAKE_US]->entries[slot].state;
}

struct store_arena_stats fake_memory(const struct fake *fake)
{
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;

    worker_core_stats(fake->core, &stats);
    return (struct store_arena_stats){.bytes_used   = stats.bytes_used,
                                      .bytes_total  = stats.bytes_reserved,
                                      .largest_hole = stats.largest_hole};
}

/* ----------------------------------------------------------------------------- launches */

void fake_launch_init(struct fake_launch *launch, uint64_t seq,
                      Plasmon__V1__LaunchKind kind)
{
    memset(launch, 0, sizeof(*launch));
    plasmon__v1__launch__init(&launch->message);
    launch->message.seq       = seq;
    launch->message.order     = seq;
    launch->message.kind      = kind;
    launch->message.operands  = launch->operand_ptr;
    launch->message.pieces    = launch->piece_ptr;
    launch->message.after     = launch->after;
    launch->message.scalars   = launch->scalar;
    launch->message.data.data = launch->data;
}

void fake_launch_function(struct fake_launch *launch, const char *name)
{
    launch->message.function = pl_hash_name(name);
}

Plasmon__V1__Operand *fake_launch_operand(struct fake_launch *launch, uint32_t mode,
                                          uint32_t slot, int64_t count)
{
    size_t i                      = launch->message.n_operands++;
    Plasmon__V1__Operand *operand = &launch->operand[i];

    plasmon__v1__operand__init(operand);
    launch->operand_ptr[i] = operand;
    operand->mode          = mode;
    operand->buffer        = wire_buffer(FAKE_BASE + FAKE_US, slot, 1);
    operand->dtype         = PL_F32;
    operand->frame         = launch->frame[i];
    operand->n_frame       = 2;
    operand->frame[1]      = count;
    operand->view          = launch->view[i];
    return operand;
}

Plasmon__V1__Operand *fake_launch_fresh(struct fake_launch *launch, uint32_t slot,
                                        int64_t count)
{
    Plasmon__V1__Operand *operand = fake_launch_operand(launch, KERNEL_OUT, slot, count);

    operand->fresh = 1;
    return operand;
}

void fake_launch_after(struct fake_launch *launch, uint32_t device, uint64_t seq)
{
    launch->after[launch->message.n_after++] = wire_point(device, seq);
}

void fake_launch_scalar(struct fake_launch *launch, double value)
{
    union kernel_scalar scalar = {.f = value};

    launch->scalar[launch->message.n_scalars++] = scalar.bits;
}

void fake_launch_piece(struct fake_launch *launch, uint32_t device, uint32_t slot,
                       int64_t count)
{
    size_t i = launch->message.n_pieces++;

    plasmon__v1__piece__init(&launch->piece[i]);
    launch->piece_ptr[i]         = &launch->piece[i];
    launch->piece[i].src         = wire_buffer(device, slot, 1);
    launch->piece[i].src_frame   = launch->src_frame[i];
    launch->piece[i].n_src_frame = 2;
    launch->piece[i].box         = launch->box[i];
    launch->piece[i].n_box       = 2;
    launch->src_frame[i][1]      = count;
    launch->box[i][1]            = count;
}

static plasmon_status_t command_give(struct fake *fake, Plasmon__V1__WorkerCommand *command,
                                     struct pl_err *err)
{
    plasmon_status_t status = worker_core_command(fake->core, command, err);

    worker_core_advance(fake->core);
    worker_core_complete(fake->core);
    return status;
}

plasmon_status_t fake_send_err(struct fake *fake, struct fake_launch *launch,
                               struct pl_err *err)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch *launches[1]   = {&launch->message};

    command.launches   = launches;
    command.n_launches = 1;
    return command_give(fake, &command, err);
}

plasmon_status_t fake_send(struct fake *fake, struct fake_launch *launch)
{
    struct pl_err err       = {.status = PLASMON_OK};
    plasmon_status_t status = fake_send_err(fake, launch, &err);

    if (status != PLASMON_OK) {
        printf("# %s\n", err.text);
    }
    return status;
}

void fake_free(struct fake *fake, uint32_t slot)
{
    fake_free_generation(fake, slot, 1);
}

void fake_free_generation(struct fake *fake, uint32_t slot, uint32_t generation)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    uint64_t buffer                    = wire_buffer(FAKE_BASE + FAKE_US, slot, generation);

    command.free   = &buffer;
    command.n_free = 1;
    ASSERT_OK(command_give(fake, &command, NULL));
}

void fake_retire(struct fake *fake, uint32_t slot)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    uint64_t buffer                    = wire_buffer(FAKE_BASE + FAKE_US, slot, 1);

    command.retire   = &buffer;
    command.n_retire = 1;
    ASSERT_OK(command_give(fake, &command, NULL));
}

void fake_cancel(struct fake *fake, uint64_t seq)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;

    command.cancel   = &seq;
    command.n_cancel = 1;
    ASSERT_OK(command_give(fake, &command, NULL));
}

void fake_starve(struct fake *fake, uint64_t seq)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;

    command.starve   = &seq;
    command.n_starve = 1;
    ASSERT_OK(command_give(fake, &command, NULL));
}

void fake_fill_after(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t first,
                     uint64_t second)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, 4);
    if (first != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, first);
    }
    if (second != 0) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, second);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

void fake_fill(struct fake *fake, uint64_t seq, uint32_t slot, int64_t count)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, slot, count);
    ASSERT_OK(fake_send(fake, &launch));
}

void fake_filled(struct fake *fake, uint32_t count)
{
    for (uint32_t slot = 1; slot <= count; slot++) {
        fake_fill(fake, slot, slot, 4);
    }
    for (uint32_t slot = 1; slot <= count; slot++) {
        fake_finish(fake, slot - 1, slot); /* each has a stream of its own */
    }
}

void fake_noop(struct fake *fake, uint64_t seq)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "noop");
    ASSERT_OK(fake_send(fake, &launch));
}
