/*
 * Handles and roots. See refs.h for the rules; tasks.c has the other half: tasks, writes and failures.
 */
#include "client/refs.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"

#define ROOTS_FREE_MAX 4096u

static uint64_t low_bits(unsigned bits)
{
    return (1ull << bits) - 1;
}

void refs_init(struct refs *refs, uint32_t tag)
{
    *refs = (struct refs){
        .tag         = tag & (uint32_t)low_bits(REFS_TAG_BITS),
        .id_next     = 1,
        .slot_chunks = PL_VEC_INIT(struct ref_slot *),
    };
    pl_map_init(&refs->blocks);
    pl_list_init(&refs->roots);
    pl_list_init(&refs->roots_free);
    pl_list_init(&refs->callbacks);
}

static void root_free(struct root *root)
{
    root_failures_drop(root);
    pl_free(root->base);
    pl_free(root->value);
    pl_free(root);
}

static void roots_free_all(struct pl_list *list)
{
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, list) {
        struct root *root = pl_container_of(at, struct root, all);

        pl_list_remove(at);
        root_free(root);
    }
}

static void slots_free_all(struct refs *refs)
{
    for (uint32_t i = 0; i < refs->slot_chunks.count; i++) {
        struct ref_slot *chunk = *(struct ref_slot **)pl_vec_at(&refs->slot_chunks, i);

        for (uint32_t j = 0; j < REFS_BLOCK; j++) {
            pl_free(chunk[j].view);
        }
        pl_free(chunk);
    }
    pl_vec_finish(&refs->slot_chunks);
}

void refs_finish(struct refs *refs)
{
    tasks_finish(refs);
    slots_free_all(refs);
    roots_free_all(&refs->roots);
    roots_free_all(&refs->roots_free);
}

/* ---------------------------------------------------------------------------------- ids */

static uint64_t draw(struct refs *refs, uint64_t *io_next, uint64_t *io_end)
{
    if (*io_next == *io_end) {
        *io_next = refs->id_next;
        *io_end  = refs->id_next + REFS_BLOCK;
        refs->id_next += REFS_BLOCK;
    }
    return (*io_next)++;
}

uint64_t refs_draw_task(struct refs *refs)
{
    return draw(refs, &refs->task_next, &refs->task_end);
}

uint64_t refs_draw_ref(struct refs *refs)
{
    return draw(refs, &refs->ref_next, &refs->ref_end);
}

/* ------------------------------------------------------------------------------ handles */

/*
 *   63      52 51         28 27         0
 *   [  tag   ] [ generation ] [ slot + 1 ]
 *
 * Never NULL, because of the + 1. A generation comes again after 2^24 lives of one slot.
 */
static struct plasmon_ref *handle_of(const struct refs *refs, uint32_t index,
                                     uint32_t generation)
{
    uint64_t bits = (uint64_t)refs->tag << (REFS_GEN_BITS + REFS_SLOT_BITS) |
                    (uint64_t)generation << REFS_SLOT_BITS | (index + 1);

    return (struct plasmon_ref *)(uintptr_t)bits;
}

static struct ref_slot *slot_at(const struct refs *refs, uint32_t index)
{
    struct ref_slot *chunk =
        *(struct ref_slot **)pl_vec_at(&refs->slot_chunks, index / REFS_BLOCK);

    return &chunk[index % REFS_BLOCK];
}

plasmon_status_t refs_find(struct refs *refs, struct plasmon_ref *handle,
                           struct ref_slot **out_slot, struct pl_err *err)
{
    uint64_t bits       = (uint64_t)(uintptr_t)handle;
    uint32_t index      = (uint32_t)(bits & low_bits(REFS_SLOT_BITS)) - 1;
    uint32_t generation = (uint32_t)(bits >> REFS_SLOT_BITS & low_bits(REFS_GEN_BITS));
    struct ref_slot *slot;

    if (handle == NULL) {
        return pl_err_set(err, PLASMON_EINVAL, "the ref is NULL");
    }
    if (bits >> (REFS_GEN_BITS + REFS_SLOT_BITS) != refs->tag) {
        return pl_err_set(
            err, PLASMON_EFOREIGN,
            "the ref belongs to another client: publish it there and look it up "
            "here; private clusters share nothing: start one, and set PLASMON_ADDRESS");
    }
    if (index >= refs->slot_count) {
        return pl_err_set(err, PLASMON_ERELEASED, "the ref never existed");
    }
    slot = slot_at(refs, index);
    if (slot->root == NULL || slot->generation != generation) {
        return pl_err_set(err, PLASMON_ERELEASED, "the ref was released");
    }

    *out_slot = slot;
    return PLASMON_OK;
}

static plasmon_status_t slots_grow(struct refs *refs)
{
    struct ref_slot **place, *chunk;

    if (refs->slot_count + REFS_BLOCK >= low_bits(REFS_SLOT_BITS)) {
        return PLASMON_ELIMIT;
    }
    chunk = PL_NEW_N(struct ref_slot, REFS_BLOCK);
    if (chunk == NULL) {
        return PLASMON_ENOMEM;
    }
    place = pl_vec_push(&refs->slot_chunks);
    if (place == NULL) {
        pl_free(chunk);
        return PLASMON_ENOMEM;
    }

    *place = chunk;
    for (uint32_t i = REFS_BLOCK; i > 0; i--) {
        chunk[i - 1].next_free = refs->slot_free;
        refs->slot_free        = refs->slot_count + i;
    }
    refs->slot_count += REFS_BLOCK;
    return PLASMON_OK;
}

struct plasmon_ref *refs_open(struct refs *refs, struct root *root,
                              const struct pl_view *view)
{
    struct pl_view *copy = NULL;
    struct ref_slot *slot;
    uint32_t index;

    if (refs->slot_free == 0 && slots_grow(refs) != PLASMON_OK) {
        return NULL;
    }
    if (view != NULL) {
        copy = PL_NEW(struct pl_view);
        if (copy == NULL) {
            return NULL;
        }
        *copy = *view;
    }

    index           = refs->slot_free - 1;
    slot            = slot_at(refs, index);
    refs->slot_free = slot->next_free;
    slot->root      = root;
    slot->view      = copy;
    root->handle_count++;
    return handle_of(refs, index, slot->generation);
}

bool refs_close(struct refs *refs, struct plasmon_ref *handle, struct ref_slot *slot,
                uint64_t *out_root_id, bool *out_at_once)
{
    struct root *root = slot->root;
    uint32_t index = (uint32_t)((uint64_t)(uintptr_t)handle & low_bits(REFS_SLOT_BITS)) - 1;

    assert(slot_at(refs, index) == slot);
    pl_free(slot->view);
    slot->view       = NULL;
    slot->root       = NULL;
    slot->generation = (slot->generation + 1) & (uint32_t)low_bits(REFS_GEN_BITS);
    slot->next_free  = refs->slot_free;
    refs->slot_free  = index + 1;

    assert(root->handle_count > 0);
    root->handle_count--;
    if (root->handle_count > 0) {
        return false;
    }
    *out_root_id = root->is_task ? 0 : root->id;
    *out_at_once = root->is_snapshot;
    root_drop(refs, root);
    return true;
}

struct pl_view slot_view(const struct ref_slot *slot)
{
    return slot->view != NULL ? *slot->view : pl_view_whole(&slot->root->shape);
}

struct pl_shape slot_shape(const struct ref_slot *slot)
{
    return slot->view != NULL ? pl_view_shape(slot->view, slot->root->shape.dtype)
                              : slot->root->shape;
}

const struct pl_box *slot_box(const struct ref_slot *slot, struct pl_box *storage)
{
    if (slot->view == NULL) {
        return NULL;
    }
    *storage = pl_view_hull(slot->view);
    return storage;
}

void slot_place(const struct ref_slot *slot, struct pl_shape *out_shape,
                struct pl_view *out_view)
{
    const struct root_base *base = slot->root->base;
    struct pl_view view          = slot_view(slot);
    struct pl_err unused         = {0};

    if (base == NULL) {
        *out_shape = slot->root->shape;
        *out_view  = view;
        return;
    }
    *out_shape = base->shape;
    /* both were checked when made */
    PL_CHECK(pl_view_compose(&base->view, &view, out_view, &unused) == PLASMON_OK);
}

/* -------------------------------------------------------------------------------- roots */

struct root *root_create(struct refs *refs, uint64_t id, const struct pl_shape *shape)
{
    struct root *root = pl_list_first(&refs->roots_free, struct root, all);

    if (root != NULL) {
        pl_list_remove(&root->all);
        refs->roots_free_count--;
    } else {
        root = PL_NEW(struct root);
        if (root == NULL) {
            return NULL;
        }
        parts_init(&root->failures);
        parts_init(&root->writes);
        pl_list_init(&root->watches);
        pl_list_init(&root->all);
    }

    root->id          = id;
    root->is_task     = shape == NULL;
    root->is_snapshot = false;
    root->recording   = 0;
    if (shape != NULL) {
        root->shape = *shape;
    } else {
        root->shape.dtype = 0; /* of no array */
        root->shape.ndim  = 0;
    }
    pl_list_add_tail(&refs->roots, &root->all);
    return root;
}

void root_shape_set(struct root *root, const struct pl_shape *shape)
{
    assert(root->is_task && root->handle_count == 0);
    root->is_task = false;
    root->shape   = *shape;
}

static void value_drop(struct refs *refs, struct root *root)
{
    if (root->value != NULL) {
        refs->value_bytes -= pl_shape_bytes(&root->shape);
        pl_free(root->value);
        root->value = NULL;
    }
}

void root_keep_value(struct refs *refs, struct root *root, const void *bytes)
{
    uint64_t length = pl_shape_bytes(&root->shape);

    if (root->value != NULL || root->is_task || length > VALUE_BYTES_MAX ||
        refs->value_bytes + length > VALUES_BYTES_MAX) {
        return;
    }
    root->value = pl_alloc(length);
    if (root->value != NULL) { /* otherwise it is asked for again */
        memcpy(root->value, bytes, length);
        refs->value_bytes += length;
    }
}

void root_new_version(struct refs *refs, struct root *root)
{
    root->version++;
    value_drop(refs, root);
}

plasmon_status_t root_begin_failed(struct root *root, struct failure *failure)
{
    return root_failure_add(root, NULL, failure) ? PLASMON_OK : PLASMON_ENOMEM;
}

void root_drop(struct refs *refs, struct root *root)
{
    struct pl_list *at, *next;

    assert(root->handle_count == 0);
    pl_list_for_each_safe(at, next, &root->writes.list) {
        struct write *write = pl_container_of(at, struct write, part.link);

        parts_remove(&root->writes, &write->part);
        write->root = NULL;
    }
    root_watches_release(refs, root);
    root_failures_drop(root);
    pl_free(root->base);
    root->base = NULL;
    value_drop(refs, root);

    pl_list_remove(&root->all);
    if (refs->roots_free_count < ROOTS_FREE_MAX) {
        pl_list_add_head(&refs->roots_free, &root->all);
        refs->roots_free_count++;
    } else {
        root_free(root);
    }
}

plasmon_status_t root_state(const struct root *root, const struct pl_box *box,
                            struct failure **out_failure)
{
    const struct root_failure *failed = root_failure_at(root, box);

    if (failed != NULL) {
        if (out_failure != NULL) {
            *out_failure = failed->failure;
        }
        return failed->failure->status;
    }
    return parts_find(&root->writes, &root->shape, box) != NULL ? PLASMON_INPROGRESS
                                                                : PLASMON_OK;
}

const struct task *root_writer(const struct root *root, const struct pl_box *box)
{
    for (const struct pl_list *at = root->writes.list.prev; at != &root->writes.list;
         at                       = at->prev) {
        const struct write *write = pl_container_of(at, struct write, part.link);

        if (part_touches(&write->part, box)) {
            return write->task;
        }
    }
    return NULL;
}

bool root_foreign(const struct root *root, const struct pl_box *box)
{
    const struct root_failure *failed = root_failure_at(root, box);
    const struct task *writer         = root_writer(root, box);

    return failed != NULL ? failed->failure->foreign : writer != NULL && writer->foreign;
}
