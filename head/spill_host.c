/*
 * The memory of a host for what its devices have no room for.
 *
 * THE SLAB is one host buffer (store/host_buffer.h) that every worker of the host has registered: asked for when something is spilled for
 * the first time. A spilled buffer needs no place in it while it is only planned. A launch that writes or reads one gets its place when it
 * is next: it is BOUND, and only then sent. Launches are bound in the order of their numbers, whatever device they are on, and hold
 * their place until they are over.
 *
 * NOTHING HANGS. Let L be the oldest launch that is not bound. The places that are held are those of launches with smaller numbers,
 * which wait for nobody behind them and end. What nobody holds can leave: what is in a file already at once, the rest when
 * the store has written it, which ends; and what may not leave is moved together. So when all before L is over, all of the slab but what
 * must stay is one hole. head_spill_copy() has seen to it, when L was planned, that this is enough: what was spilled and not forgotten
 * then is never more than slab and files hold. It is not if a disk turned out to be full in the meantime, or the slab could not be made:
 * then L fails, with the store's words, and the value with it.
 *
 * THE STORE is asked for one thing after another and does them in that order. What it has not answered is asked again when it comes back.
 * What it is at stays where it is (`busy`).
 *
 * Deterministic: what is done depends on the order of inputs, on nothing else.
 *
 * Seeded bugs: spill.wrong_offset, spill.place_held (a place is given away while a launch holds it).
 */
#include "head/core_int.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ hosts */

struct head_spill_host *head_spill_host_of(struct head_core *core, const char *host)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        if (strcmp(spill->home.host, host) == 0) {
            return spill;
        }
    }
    return NULL;
}

static const char *node_of(struct head_core *core, const char *host)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && strcmp(device->host, host) == 0) {
            return device->node;
        }
    }
    return host;
}

static struct head_spill_host *host_create(struct head_core *core, const char *host,
                                           const struct head_spill_config *config)
{
    struct head_spill_host *spill = head_alloc(sizeof(*spill));

    spill->core           = core;
    spill->config         = *config;
    spill->home.index     = UINT32_MAX;
    spill->home.spill     = spill;
    spill->home.host      = head_strdup(host);
    spill->home.node      = head_strdup(node_of(core, host));
    spill->home.connected = true;
    spill->home.joined    = true;
    pl_list_init(&spill->home.buffers);
    pl_list_init(&spill->home.ending);
    pl_list_init(&spill->home.recent);
    pl_list_init(&spill->ranges);
    pl_list_init(&spill->recent);
    pl_list_init(&spill->queue);
    pl_list_init(&spill->requests);
    pl_list_init(&spill->link);
    pl_list_add_tail(&core->spill_hosts, &spill->link);
    return spill;
}

static void host_destroy(struct head_spill_host *spill)
{
    PL_CHECK(pl_list_empty(&spill->home.buffers));
    while (!pl_list_empty(&spill->requests)) {
        struct head_spill_request *request =
            pl_list_first(&spill->requests, struct head_spill_request, link);

        pl_list_remove(&request->link);
        pl_free(request);
    }
    pl_list_remove(&spill->link);
    pl_free(spill->home.host);
    pl_free(spill->home.node);
    pl_free(spill->slab_why);
    pl_free(spill->files_why);
    pl_free(spill);
}

/* ------------------------------------------------------------------------------------------- the store */

static void request_send(struct head_spill_host *spill,
                         const struct head_spill_request *request)
{
    struct head_core *core = spill->core;

    core->config.ops->spill(core->config.user, spill->home.host, &request->op);
}

static void ask(struct head_spill_host *spill, enum head_spill_kind kind,
                struct head_buffer *buffer, uint64_t file)
{
    struct head_spill_request *request = head_alloc(sizeof(*request));
    uint64_t offset =
        buffer != NULL && buffer->spilled->placed ? buffer->spilled->offset : 0;

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

/* ------------------------------------------------------------------------------------------- the slab */

static void place_give(struct head_spill_host *spill, struct head_spilled *spilled,
                       uint64_t offset)
{
    struct pl_list *pos, *before = &spill->ranges;

    pl_list_for_each(pos, &spill->ranges) {
        if (pl_container_of(pos, struct head_spilled, range_link)->offset > offset) {
            break;
        }
        before = pos;
    }
    spilled->offset = offset;
    spilled->span   = spilled->bytes;
    spilled->placed = true;
    pl_list_add_after(before, &spilled->range_link);
    pl_list_add_tail(&spill->recent, &spilled->recent_link);
}

static void place_leave(struct head_spilled *spilled)
{
    spilled->placed = false;
    pl_list_remove(&spilled->range_link);
    pl_list_remove(&spilled->recent_link);
}

/* The smallest hole that will do. */
static bool place_find(const struct head_spill_host *spill, uint64_t bytes,
                       uint64_t *out_offset)
{
    uint64_t best = UINT64_MAX, end = 0;
    const struct pl_list *pos;

    for (pos = spill->ranges.next;; pos = pos->next) {
        const struct head_spilled *next =
            pl_container_of(pos, struct head_spilled, range_link);
        uint64_t until = pos == &spill->ranges ? spill->config.memory_bytes : next->offset;

        if (until - end >= bytes && until - end < best) {
            best        = until - end;
            *out_offset = end;
        }
        if (pos == &spill->ranges) {
            return best != UINT64_MAX;
        }
        end = next->offset + next->span;
    }
}

static bool files_possible(const struct head_spill_host *spill, uint64_t bytes)
{
    return !spill->files_full &&
           bytes <= spill->config.file_bytes -
                        pl_min_u64(spill->config.file_bytes, spill->file_bytes);
}

static bool may_leave(const struct head_spilled *spilled)
{
    return spilled->filled && !spilled->busy &&
           (spilled->pins == 0 || pl_bug("spill.place_held"));
}

/* Let so much leave that `bytes` may come, least recently used first. Some of it leaves at once; what is written leaves when that is done. */
static bool let_leave(struct head_spill_host *spill, uint64_t bytes)
{
    struct pl_list *pos, *tmp;
    uint64_t leaving = 0;
    bool left        = false;

    pl_list_for_each(pos, &spill->requests) { /* these are leaving already */
        const struct head_spill_request *request =
            pl_container_of(pos, struct head_spill_request, link);

        leaving +=
            request->op.kind == HEAD_SPILL_WRITE ? request->buffer->spilled->bytes : 0;
    }
    pl_list_for_each_safe(pos, tmp, &spill->recent) {
        struct head_spilled *spilled =
            pl_container_of(pos, struct head_spilled, recent_link);

        if (leaving >= bytes) {
            break;
        }
        if (!may_leave(spilled)) {
            continue;
        }
        if (spilled->file != 0) {
            leaving += spilled->bytes;
            place_leave(spilled);
            left = true;
        } else if (files_possible(spill, spilled->bytes)) {
            leaving += spilled->bytes;
            spill->file_bytes += spilled->bytes;
            ask(spill, HEAD_SPILL_WRITE, spilled->buffer, spill->op_last + 1);
        }
    }
    return left;
}

/* Move the first one down that has a gap before it. false: there is none that may be moved. */
static bool move_together(struct head_spill_host *spill)
{
    struct pl_list *pos;
    uint64_t end = 0;

    pl_list_for_each(pos, &spill->ranges) {
        struct head_spilled *spilled =
            pl_container_of(pos, struct head_spilled, range_link);

        if (spilled->offset > end && may_leave(spilled)) {
            ask(spill, HEAD_SPILL_MOVE, spilled->buffer, end);
            spilled->span +=
                spilled->offset - end; /* nobody else gets any of it meanwhile */
            spilled->offset = end;
            return true;
        }
        end = spilled->offset + spilled->span;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------- copies */

/* Copies of what is on a device, too, may go: it is not spilled any more, then. */
static bool drop_copies(struct head_core *core, struct head_spill_host *spill,
                        uint64_t bytes)
{
    struct pl_list *pos, *tmp;
    uint64_t dropped = 0;

    pl_list_for_each_safe(pos, tmp, &spill->home.recent) {
        struct head_buffer *buffer = pl_container_of(pos, struct head_buffer, recent_link);
        uint64_t size              = buffer->spilled->bytes;
        struct pl_box frame        = buffer->frame;
        struct pl_list *it;
        bool elsewhere = !pl_list_empty(&buffer->instances);

        if (dropped >= bytes) {
            break;
        }
        pl_list_for_each(it, &buffer->instances) {
            const struct head_instance *instance =
                pl_container_of(it, struct head_instance, buffer_link);

            elsewhere &= head_spill_on_devices(instance->tile, &instance->box);
        }
        if (elsewhere && !buffer->leaving) {
            dropped += size;
            head_spill_keep_others(buffer);
            head_buffer_forget(core, buffer, &frame, UINT64_MAX); /* may free it */
        }
    }
    return dropped >= bytes;
}

static uint64_t spill_capacity(const struct head_spill_host *spill)
{
    return spill->config.memory_bytes +
           (spill->files_full ? spill->file_bytes : spill->config.file_bytes);
}

struct head_buffer *head_spill_copy(struct head_core *core, struct head_spill_host *spill,
                                    const struct head_buffer *buffer)
{
    uint64_t bytes = head_spill_rounded(buffer->bytes);
    struct head_buffer *copy;

    if (spill->slab == HEAD_SLAB_FAILED || bytes > spill->config.memory_bytes) {
        return NULL;
    }
    if (spill->home.bytes_live + bytes > spill_capacity(spill) &&
        !drop_copies(core, spill, spill->home.bytes_live + bytes - spill_capacity(spill))) {
        return NULL;
    }
    if (spill->slab == HEAD_SLAB_NONE) {
        spill->slab = HEAD_SLAB_ASKED;
        ask(spill, HEAD_SPILL_SLAB, NULL, 0);
    }
    copy            = head_buffer_create(core, &spill->home, &buffer->frame, buffer->dtype);
    copy->donatable = buffer->donatable;
    copy->spilled   = head_alloc(sizeof(*copy->spilled));
    copy->spilled->buffer = copy;
    copy->spilled->bytes  = bytes;
    pl_list_init(&copy->spilled->range_link);
    pl_list_init(&copy->spilled->recent_link);
    return copy;
}

void head_spill_freed(struct head_core *core, struct head_buffer *buffer)
{
    struct head_spill_host *spill = buffer->device->spill;
    struct head_spilled *spilled  = buffer->spilled;

    (void)core;
    PL_CHECK(spilled->pins == 0 && !spilled->busy);
    if (spilled->placed) {
        place_leave(spilled);
    }
    if (spilled->file != 0) {
        ask(spill, HEAD_SPILL_FORGET, NULL, spilled->file);
        spill->file_bytes -= spilled->bytes;
        spill->files_full = false; /* it may do now */
    }
    pl_free(spilled);
    buffer->spilled = NULL;
}

/* -------------------------------------------------------------------------------------------- launches */

static bool copies(const struct head_task *task)
{
    return task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ||
           task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST;
}

void head_spill_queue(struct head_task *task)
{
    struct head_spill_host *spill = task->spilled->device->spill;

    pl_list_add_tail(&spill->queue, &task->spill_link);
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST) {
        spill->spills++;
        spill->spill_bytes += task->spilled->bytes;
    } else {
        spill->restores++;
        spill->restore_bytes += task->spilled->bytes;
    }
}

bool head_spill_waiting(const struct head_task *task)
{
    return task->spilled != NULL && copies(task) &&
           (!task->bound || task->spilled->spilled->busy);
}

static void bind(struct head_spill_host *spill, struct head_task *task)
{
    struct head_spilled *spilled = task->spilled->spilled;
    uint64_t offset              = spilled->offset;

    if (pl_bug("spill.wrong_offset") &&
        task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST) {
        offset = offset >= spilled->bytes ? offset - spilled->bytes : 0;
    }
    head_launch_place(spill->core, task, spill->slab_buffer, offset);
    task->bound = true;
    spilled->pins++;
    spill->bound++;
    pl_list_remove(&task->spill_link);
    pl_list_remove(&spilled->recent_link);
    pl_list_add_tail(&spill->recent, &spilled->recent_link);
}

/* Nothing that is under way will make room. It fails, and what it should have copied with it. */
static void give_up(struct head_spill_host *spill, struct head_task *task)
{
    struct head_failure *failure;
    char want[32], memory[32];

    pl_list_remove(&task->spill_link);
    failure = head_failure_create(
        PLASMON_EDEVMEM, 0, 0,
        "%s on device %u of %s: no room for %s in the host memory for spilling (%s)%s%s; "
        "release some refs, or give plasmon-store more --spill-memory or another "
        "--spill-dir",
        task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST ? "spill" : "restore",
        task->device->index, spill->home.node,
        pl_format_bytes(task->spilled->spilled->bytes, want),
        pl_format_bytes(spill->config.memory_bytes, memory),
        spill->slab_why != NULL || spill->files_why != NULL ? ": " : "",
        spill->slab_why != NULL    ? spill->slab_why
        : spill->files_why != NULL ? spill->files_why
                                   : "");
    pl_warn("head", "%s", failure->text);
    head_task_doom(spill->core, task, failure);
    head_failure_release(failure);
}

/* true: it is out of the queue. */
static bool bind_next(struct head_spill_host *spill, struct head_task *task)
{
    struct head_spilled *spilled = task->spilled->spilled;
    uint64_t offset;

    if (!copies(task) || task->finished) { /* it is skipped */
        pl_list_remove(&task->spill_link);
        return true;
    }
    if (spill->slab == HEAD_SLAB_FAILED) {
        give_up(spill, task);
        return true;
    }
    if (spill->slab != HEAD_SLAB_READY || spilled->busy) {
        return false; /* the store will answer */
    }
    if (!spilled->placed) {
        while (!place_find(spill, spilled->bytes, &offset)) {
            if (let_leave(spill, spilled->bytes)) {
                continue;
            }
            if (!pl_list_empty(&spill->requests) || spill->bound > 0 ||
                move_together(spill)) {
                return false; /* some of that will end */
            }
            give_up(spill, task);
            return true;
        }
        place_give(spill, spilled, offset);
        if (spilled->file != 0) {
            ask(spill, HEAD_SPILL_READ, spilled->buffer, spilled->file);
        }
    }
    bind(spill, task);
    return true;
}

void head_spill_bind(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->spill_hosts) {
        struct head_spill_host *spill = pl_container_of(pos, struct head_spill_host, link);

        while (
            !pl_list_empty(&spill->queue) &&
            bind_next(spill, pl_list_first(&spill->queue, struct head_task, spill_link))) {
        }
    }
}

void head_spill_task_over(struct head_core *core, struct head_task *task)
{
    struct head_spilled *spilled = task->spilled->spilled;

    (void)core;
    pl_list_remove(&task->spill_link);
    if (!task->bound) {
        return;
    }
    task->bound = false;
    spilled->pins--;
    task->spilled->device->spill->bound--;
    if (task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST && task->failure == NULL) {
        spilled->filled = true;
    }
}

/* -------------------------------------------------------------------------------------------- answers */

static void slab_done(struct head_spill_host *spill, plasmon_status_t status,
                      uint64_t host_buffer, const char *text)
{
    spill->slab        = status == PLASMON_OK ? HEAD_SLAB_READY : HEAD_SLAB_FAILED;
    spill->slab_buffer = host_buffer;
    if (status != PLASMON_OK) {
        spill->slab_why = head_strdup(text);
        pl_warn("head", "nothing can be spilled on %s: %s", spill->home.node, text);
    }
}

static void write_done(struct head_spill_host *spill, struct head_spilled *spilled,
                       uint64_t file, plasmon_status_t status, const char *text)
{
    if (status == PLASMON_OK) {
        spilled->file = file;
        spill->writes++;
        spill->write_bytes += spilled->buffer->bytes;
        return;
    }
    spill->file_bytes -= spilled->bytes;
    spill->files_full = true;
    pl_free(spill->files_why);
    spill->files_why = head_strdup(text);
    pl_warn("head", "%s: %s", spill->home.node, text);
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

/* ------------------------------------------------------------------------------------------ another store */

/* The last store was asked, and will not answer. What it was at may be anything. */
static void request_void(struct head_spill_host *spill, struct head_spill_request *request,
                         struct head_failure *failure)
{
    struct head_buffer *buffer = request->buffer;

    pl_list_remove(&request->link);
    if (buffer != NULL) {
        buffer->spilled->span = buffer->spilled->bytes;
        if (request->op.kind == HEAD_SPILL_WRITE) {
            spill->file_bytes -= buffer->spilled->bytes;
        } else {
            copy_lost(spill, buffer, failure);
        }
        buffer->spilled->busy = false;
        head_buffer_release(spill->core, buffer);
    } else if (request->op.kind == HEAD_SPILL_SLAB) {
        spill->slab = HEAD_SLAB_NONE;
    }
    pl_free(request);
}

/*
 * Its files are gone. The memory is there if workers handed it on; launches that were bound are sent, or about to be, with its number, and
 * find it at their worker in any case.
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
        spill->slab = HEAD_SLAB_NONE;
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
    head_failure_release(failure);
}

void head_core_spill_up(struct head_core *core, const char *host,
                        const struct head_spill_config *config)
{
    struct head_spill_host *spill = head_spill_host_of(core, host);
    struct pl_list *pos;

    if (spill == NULL) {
        if (config->memory_bytes != 0 && core->config.ops->spill != NULL) {
            (void)host_create(core, host, config);
        }
        return;
    }
    spill->config.file_bytes = config->file_bytes;
    if (spill->config.life != config->life) {
        spill->config.life = config->life;
        if (spill->slab != HEAD_SLAB_READY || spill->slab_buffer != config->slab) {
            spill->config.memory_bytes =
                config->memory_bytes; /* it was started with another size */
        }
        store_replaced(spill, config->slab);
    }
    pl_list_for_each(pos, &spill->requests) {
        request_send(spill, pl_container_of(pos, struct head_spill_request, link));
    }
}

void head_core_spill_done(struct head_core *core, const char *host, uint64_t id,
                          plasmon_status_t status, uint64_t host_buffer, const char *text)
{
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
        slab_done(spill, status, host_buffer, text);
        break;
    case HEAD_SPILL_WRITE:
        write_done(spill, buffer->spilled, request->op.file, status, text);
        break;
    case HEAD_SPILL_READ:
        if (status != PLASMON_OK) {
            read_failed(spill, buffer, status, text);
        } else {
            spill->reads++;
            spill->read_bytes += buffer->bytes;
        }
        break;
    case HEAD_SPILL_MOVE:
        buffer->spilled->span = buffer->spilled->bytes;
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

void head_core_spill_count(const struct head_core *core, struct head_spill_counts *out)
{
    const struct pl_list *pos, *it;

    memset(out, 0, sizeof(*out));
    pl_list_for_each(pos, &core->spill_hosts) {
        const struct head_spill_host *spill =
            pl_container_of(pos, struct head_spill_host, link);

        out->memory_bytes += spill->config.memory_bytes;
        out->file_bytes += spill->config.file_bytes;
        out->file_used += spill->file_bytes;
        out->spills += spill->spills;
        out->spill_bytes += spill->spill_bytes;
        out->restores += spill->restores;
        out->restore_bytes += spill->restore_bytes;
        out->writes += spill->writes;
        out->write_bytes += spill->write_bytes;
        out->reads += spill->reads;
        out->read_bytes += spill->read_bytes;
        pl_list_for_each(it, &spill->ranges) {
            out->memory_used += pl_container_of(it, struct head_spilled, range_link)->bytes;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- the end */

/* No launch of the host is left: its devices are gone. */
static void requests_drop(struct head_core *core, struct head_spill_host *spill)
{
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

void head_spill_host_gone(struct head_core *core, const char *host, const char *text)
{
    struct head_spill_host *spill = head_spill_host_of(core, host);

    if (spill == NULL) {
        return;
    }
    requests_drop(core, spill);
    while (!pl_list_empty(&spill->home.buffers)) {
        struct head_buffer *buffer =
            pl_list_first(&spill->home.buffers, struct head_buffer, device_link);

        buffer->spilled->file = 0; /* nobody is to be asked to forget it */
        head_buffer_hold(buffer);
        head_buffer_lose(core, buffer, text);
        PL_CHECK(buffer->refs == 1);
        head_buffer_release(core, buffer);
    }
    host_destroy(spill);
}

void head_spill_hosts_finish(struct head_core *core)
{
    while (!pl_list_empty(&core->spill_hosts)) {
        struct head_spill_host *spill =
            pl_list_first(&core->spill_hosts, struct head_spill_host, link);

        requests_drop(core, spill);
        host_destroy(spill);
    }
}

void head_spill_check(const struct head_core *core)
{
    struct pl_list *pos, *it;

    pl_list_for_each(pos, &core->spill_hosts) {
        const struct head_spill_host *spill =
            pl_container_of(pos, struct head_spill_host, link);
        uint64_t end = 0, live = 0, planned = 0, files = 0, pins = 0, held = 0;

        pl_list_for_each(it, &spill->ranges) {
            const struct head_spilled *spilled =
                pl_container_of(it, struct head_spilled, range_link);

            PL_CHECK(spilled->placed && spilled->offset >= end);
            end = spilled->offset + spilled->span;
        }
        PL_CHECK(end <= spill->config.memory_bytes);
        pl_list_for_each(it, &spill->home.buffers) {
            const struct head_buffer *buffer =
                pl_container_of(it, struct head_buffer, device_link);
            const struct head_spilled *spilled = buffer->spilled;

            PL_CHECK(spilled != NULL && spilled->buffer == buffer);
            PL_CHECK(spilled->pins == 0 || spilled->placed);
            PL_CHECK(!spilled->filled || spilled->placed || spilled->file != 0);
            planned += buffer->bytes;
            live += buffer->leaving ? 0 : spilled->bytes;
            files += spilled->file != 0 ? spilled->bytes : 0;
            pins += spilled->pins;
        }
        pl_list_for_each(it, &spill->requests) {
            const struct head_spill_request *request =
                pl_container_of(it, struct head_spill_request, link);

            files +=
                request->op.kind == HEAD_SPILL_WRITE ? request->buffer->spilled->bytes : 0;
        }
        pl_list_for_each(it, &core->unfinished) {
            held +=
                pl_container_of(it, struct head_task, order_link)->bound &&
                pl_container_of(it, struct head_task, order_link)->spilled->device->spill ==
                    spill;
        }
        PL_CHECK(planned == spill->home.bytes_planned && live == spill->home.bytes_live);
        PL_CHECK(files == spill->file_bytes && pins == spill->bound && held == pins);
    }
}
