/*
 * The store of a host: what it is asked to do for spilling, what it answers, and what another one
 * that takes over still has.
 *
 * It is asked for one thing after another and does them in that order. What it has not answered is
 * asked again when it comes back. What it is at stays where it is (`busy`).
 *
 * WHEN IT DIES. Its `life` is that of what it has, not of the process: a store that took over slab
 * and files of the one before (store/spill.h) has the same, and is asked again like one whose
 * connection broke. So our records stand, and its index says of each file whether it is there; what
 * it cannot read is lost. Another life: nothing in files is there any more, and the memory only
 * under the same number.
 */
#include "head/spill_int.h"

/* ---------------------------------------------------------------------------- the store */

static void request_send(struct head_spill_host *spill,
                         const struct head_spill_request *request)
{
    struct head_core *core = spill->core;

    core->config.ops->spill(core->config.user, spill->home.host, &request->op);
}

void head_spill_ask(struct head_spill_host *spill, enum head_spill_kind kind,
                    struct head_buffer *buffer, uint64_t file)
{
    struct head_spill_request *request = head_alloc(sizeof(*request));
    uint64_t offset                    = 0;

    if (kind == HEAD_SPILL_SLAB) {
        offset = spill->slab_bytes;
    } else if (buffer != NULL && buffer->spilled->placed) {
        offset = buffer->spilled->offset;
    }
    request->op = (struct head_spill_op){
        .id          = ++spill->op_last,
        .kind        = kind,
        .host_buffer = spill->slab_buffer,
        .offset      = offset,
        .bytes       = buffer != NULL ? buffer->bytes : spill->config.memory_bytes,
        .file        = file};
    request->buffer = buffer;
    if (buffer != NULL) {
        head_buffer_hold(buffer);
        buffer->spilled->busy = true;
    }
    pl_list_init(&request->link);
    pl_list_add_tail(&spill->requests, &request->link);
    request_send(spill, request);
}

void head_spill_requests_drop(struct head_core *core, struct head_spill_host *spill)
{
    spill->files_try       = 0;
    spill->files_try_bytes = 0;
    while (!pl_list_empty(&spill->requests)) {
        struct head_spill_request *request =
            pl_list_first(&spill->requests, struct head_spill_request, link);
        struct head_buffer *buffer = request->buffer;

        pl_list_remove(&request->link);
        pl_free(request);
        if (buffer != NULL) {
            buffer->spilled->busy = false;
            buffer->spilled->file = 0;
            head_buffer_release(core, buffer);
        }
    }
}

/* ------------------------------------------------------------------------------ answers */

/* There will be no more of it: what was planned to go where it ends is taken back (spill_undo.c). */
static void slab_ends(struct head_spill_host *spill, const char *text)
{
    char bytes[32];

    pl_free(spill->slab_why);
    spill->slab_why = head_strdup(text);
    if (spill->slab_bytes == 0) {
        spill->slab = HEAD_SLAB_FAILED;
        pl_warn("head", "nothing can be spilled on %s: %s", spill->home.node, text);
        return;
    }
    spill->config.memory_bytes = spill->slab_bytes;
    pl_warn("head", "no more than %s can be spilled to the memory of %s: %s",
            pl_format_bytes(spill->slab_bytes, bytes), spill->home.node, text);
}

static void slab_done(struct head_spill_host *spill, const struct head_spill_answer *answer)
{
    uint64_t bytes = pl_min_u64(answer->bytes != 0 ? answer->bytes : UINT64_MAX,
                                spill->config.memory_bytes);

    spill->slab_growing = false;
    if (answer->status != PLASMON_OK) {
        slab_ends(spill, answer->text);
        return;
    }
    spill->slab        = HEAD_SLAB_READY;
    spill->slab_buffer = answer->host_buffer;
    spill->slab_bytes  = pl_max_u64(spill->slab_bytes, bytes);
    head_spill_slab_changed(spill);
}

/* One that was written to see if it can be. */
static void try_done(struct head_spill_host *spill, bool good)
{
    spill->files_try       = 0;
    spill->files_try_bytes = 0;
    if (good && spill->files_full) {
        spill->files_full = false;
        pl_free(spill->files_why);
        spill->files_why = NULL;
        pl_info("head", "%s: spill files have room again", spill->home.node);
    }
}

static void write_done(struct head_spill_host *spill, struct head_spilled *spilled,
                       const struct head_spill_op *op, plasmon_status_t status,
                       const char *text)
{
    bool told = spill->files_full;

    if (op->id == spill->files_try) {
        try_done(spill, status == PLASMON_OK);
    }
    if (status == PLASMON_OK) {
        spilled->file = op->file;
        spill->writes++;
        spill->write_bytes += spilled->buffer->bytes;
        return;
    }
    spill->file_bytes -= spilled->bytes;
    spill->files_full     = true;
    spill->files_tried_ms = spill->core->now_ms;
    pl_free(spill->files_why);
    spill->files_why = head_strdup(text);
    if (!told) {
        pl_warn("head", "%s: %s", spill->home.node, text);
    }
}

/* Its bytes are lost: whoever was to read them fails, and so does a value that is nowhere else. */
static void copy_lost(struct head_spill_host *spill, struct head_buffer *buffer,
                      struct head_failure *failure)
{
    struct pl_box frame = buffer->frame;
    struct pl_list *pos;

    head_buffer_hold(buffer);
    pl_list_for_each(pos, &buffer->readers) {
        struct head_task *task = pl_container_of(pos, struct head_use, link)->task;

        if (!task->bound || buffer->spilled->busy) { /* the others have it, as it was */
            head_task_doom(spill->core, task, failure);
        }
    }
    head_spill_forget(spill->core, buffer, &frame, UINT64_MAX, failure);
    buffer->spilled->filled = false;
    head_buffer_release(spill->core, buffer);
}

static void read_failed(struct head_spill_host *spill, struct head_buffer *buffer,
                        plasmon_status_t status, const char *text)
{
    struct head_failure *failure = head_failure_create(
        PLASMON_ELOST, 0, 0, "a value that was spilled on %s is lost: %s (%s)",
        spill->home.node, text, pl_status_text(status));

    failure->loss = true;
    pl_warn("head", "%s", failure->text);
    buffer->spilled->busy = true; /* who is bound waits for these very bytes */
    copy_lost(spill, buffer, failure);
    buffer->spilled->busy = false;
    head_failure_release(failure);
}

/* ------------------------------------------------------------------------ another store */

/* The last store was asked, and will not answer. What it was at may be anything. */
static void request_void(struct head_spill_host *spill, struct head_spill_request *request,
                         struct head_failure *failure)
{
    struct head_buffer *buffer = request->buffer;

    pl_list_remove(&request->link);
    if (buffer != NULL) {
        buffer->spilled->span = buffer->spilled->bytes;
        if (buffer->spilled->placed) {
            head_spill_place_changed(spill, buffer->spilled);
        }
        if (request->op.kind == HEAD_SPILL_WRITE) {
            spill->file_bytes -= buffer->spilled->bytes;
        } else {
            copy_lost(spill, buffer, failure);
        }
        buffer->spilled->busy = false;
        head_buffer_release(spill->core, buffer);
    } else if (request->op.kind == HEAD_SPILL_SLAB) {
        spill->slab         = spill->slab_growing ? HEAD_SLAB_READY : HEAD_SLAB_NONE;
        spill->slab_growing = false;
    }
    pl_free(request);
}

/*
 * Its files are gone, for nobody handed them on. The memory is there if workers handed it on;
 * launches that were bound are sent, or about to be, with its number, and find it at their worker
 * in any case.
 */
static void store_replaced(struct head_spill_host *spill, uint64_t slab)
{
    struct head_failure *failure =
        head_failure_create(PLASMON_ELOST, 0, 0,
                            "a value that was spilled on %s is lost: its store died, and "
                            "what it had in files with it",
                            spill->home.node);
    bool kept = spill->slab != HEAD_SLAB_READY || spill->slab_buffer == slab;
    struct pl_list *pos, *tmp;

    spill->op_last = 0;
    while (!pl_list_empty(&spill->requests)) {
        request_void(spill,
                     pl_list_first(&spill->requests, struct head_spill_request, link),
                     failure);
    }
    if (!kept) {
        head_relief_cancel_host(spill->core, spill);
        spill->slab       = HEAD_SLAB_NONE;
        spill->slab_bytes = 0;
        head_spill_slab_changed(spill);
    }
    pl_list_for_each_safe(pos, tmp, &spill->home.buffers) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, device_link);
        struct head_spilled *spilled = buffer->spilled;

        if (spilled->file != 0) {
            spilled->file = 0;
            spill->file_bytes -= spilled->bytes;
        }
        if ((spilled->filled && !spilled->placed) || (spilled->placed && !kept)) {
            copy_lost(spill, buffer, failure); /* may free it */
        }
    }
    spill->files_full = false;
    try_done(spill, false);
    head_failure_release(failure);
}

void head_core_spill_up(struct head_core *core, const char *host,
                        const struct head_spill_config *config)
{
    struct head_spill_host *spill = head_spill_host_of(core, host);
    struct pl_list *pos;

    if (spill == NULL) {
        if (config->memory_bytes != 0 && core->config.ops->spill != NULL) {
            head_spill_host_create(core, host, config);
            head_seconds_look(core);
        }
        return;
    }
    if (spill->config.file_bytes != config->file_bytes) {
        spill->files_full = false; /* other directories, or other limits */
    }
    spill->config.file_bytes = config->file_bytes;
    spill->config.write_back = config->write_back;
    spill->config.on_demand  = config->on_demand;
    if (spill->slab != HEAD_SLAB_READY ||
        (spill->config.life != config->life && spill->slab_buffer != config->slab)) {
        /* it was started with another size */
        spill->config.memory_bytes = config->memory_bytes;
    }
    if (spill->config.life != config->life) {
        spill->config.life = config->life;
        store_replaced(spill, config->slab);
    }
    pl_list_for_each(pos, &spill->requests) {
        request_send(spill, pl_container_of(pos, struct head_spill_request, link));
    }
}

void head_core_spill_done(struct head_core *core, const char *host, uint64_t id,
                          const struct head_spill_answer *answer)
{
    plasmon_status_t status            = answer->status;
    struct head_spill_host *spill      = head_spill_host_of(core, host);
    struct head_spill_request *request = NULL;
    struct head_buffer *buffer;

    if (spill != NULL && !pl_list_empty(&spill->requests)) {
        request = pl_list_first(&spill->requests, struct head_spill_request, link);
    }
    if (request == NULL || request->op.id != id) {
        return; /* said again */
    }
    pl_list_remove(&request->link);
    buffer = request->buffer;
    if (buffer != NULL) {
        buffer->spilled->busy = false;
    }
    switch (request->op.kind) {
    case HEAD_SPILL_SLAB:
        slab_done(spill, answer);
        break;
    case HEAD_SPILL_WRITE:
        write_done(spill, buffer->spilled, &request->op, status, answer->text);
        break;
    case HEAD_SPILL_READ:
        if (status != PLASMON_OK) {
            read_failed(spill, buffer, status, answer->text);
        } else {
            spill->reads++;
            spill->read_bytes += buffer->bytes;
        }
        break;
    case HEAD_SPILL_MOVE:
        buffer->spilled->span = buffer->spilled->bytes;
        if (buffer->spilled->placed) {
            head_spill_place_changed(spill, buffer->spilled);
        }
        break;
    case HEAD_SPILL_FORGET:
        break;
    }
    pl_free(request);
    if (buffer != NULL) {
        head_buffer_release(core, buffer);
    }
    head_rebuild(core); /* what a file that cannot be read had alone */
}
