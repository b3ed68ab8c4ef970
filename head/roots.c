/*
 * Roots: what an unfinished call reads and no record says how to make: a put, a result of a
 * recorded graph, of a collective.
 *
 * When the call's device is lost, or something else that it reads, the call is run again, and for
 * that it needs all that it read. What has a record can be made again; a root is there or it is
 * lost. Its ref may show another version by then: whoever updates the ref gives the old one up when
 * that is planned, and its memory is free as soon as the launches that read it are over, lost ones
 * too. So the call holds it until it is over itself:
 *
 *   - it is not freed
 *   - it is not written over in place, where the client has allowed that, on another device than
 *     the call's, unless there is one more copy, which is no replica from then on: who updates it
 *     there works on a copy of its own. (On the call's device who overwrites it comes behind the
 *     call, and a loss of that device takes both; what is lost by that is what else the call reads
 *     and the root with it, of which the client has said that it may be.)
 *
 * What is given up later so is memory that was in use before: a starved launch gets it, since a
 * call that holds something came before it.
 *
 * It is no claim: what is lost of a root with its device is nobody's loss, and fails nobody else
 * who shows parts of that version.
 *
 * THE HOLD OUTLIVES THE LAUNCH that is lost, until it is known what is run again for it
 * (rebuild.c): the call that is run again holds it anew.
 *
 * What was made of a root, and is lost when the call is over and the root is not shown any more,
 * stays lost. Shadows (shadow.c) are for that.
 *
 * Seeded bugs: head.roots_let_go (nothing is held), head.roots_donated (it is written over on any
 * device; object.c).
 */
#include "base/fault.h"
#include "head/core_int.h"

static bool reads(const struct head_arg *arg)
{
    return arg->array != NULL &&
           (arg->mode == PLASMON__V1__MODE__MODE_IN ||
            arg->mode == PLASMON__V1__MODE__MODE_INOUT ||
            (arg->mode == PLASMON__V1__MODE__MODE_OUT && !pl_view_dense(&arg->view)));
}

static bool is_kept(const struct head_buffer *buffer, const void *user)
{
    (void)user;
    return !buffer->replica;
}

/*
 * A call that is run again may find it in a replica alone, which was made for the call before it
 * was written over: from now on that is none.
 */
static void keep_copy(const struct head_tile *tile, const struct pl_box *box)
{
    if (!head_tile_covered_by(tile, is_kept, NULL, box)) {
        head_tile_rely_on_others(tile, NULL);
    }
}

static void hold(struct head_core *core, struct head_task *task,
                 const struct head_array *array, const struct pl_box *box)
{
    struct head_root *root = head_alloc(sizeof(*root));

    root->array       = head_array_snapshot(core, NULL, array, box);
    root->array->root = task->device;
    root->next        = task->roots;
    task->roots       = root;
    pl_list_add_tail(&core->lineage.all_roots, &root->link);
}

void head_roots_hold(struct head_core *core, struct head_task *task,
                     const struct head_run *run)
{
    for (size_t i = 0; i < run->arg_count && !pl_bug("head.roots_let_go"); i++) {
        const struct head_arg *arg = &run->args[i];
        const struct head_fragment *fragment, *next;

        if (!reads(arg)) {
            continue;
        }
        for (fragment = head_array_meet(arg->array, &arg->hull); fragment != NULL;
             fragment = next) {
            const struct head_tile *tile = fragment->tile;
            struct pl_box part;

            next = fragment->met; /* a snapshot of the part meets this one alone */
            if (tile->record == NULL && tile->failure == NULL &&
                pl_box_intersection(&fragment->box, &arg->hull, &part)) {
                keep_copy(tile, &part);
                hold(core, task, arg->array, &part);
            }
        }
    }
}

void head_roots_release(struct head_core *core, struct head_root **io_roots)
{
    while (*io_roots != NULL) {
        struct head_root *root = *io_roots;

        *io_roots = root->next;
        pl_list_remove(&root->link);
        if (root->array != NULL) {
            head_array_release(core, root->array);
        }
        pl_free(root);
    }
}

void head_roots_over(struct head_core *core, struct head_task *task)
{
    if (task->failure == NULL || !task->failure->loss) {
        head_roots_release(core, &task->roots);
    }
    while (task->roots != NULL) {
        struct head_root *root = task->roots;

        task->roots         = root->next;
        root->next          = core->lineage.roots;
        core->lineage.roots = root;
    }
}

void head_roots_lost(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->lineage.all_roots) {
        struct head_root *root = pl_container_of(pos, struct head_root, link);

        if (root->array != NULL && !head_array_whole(root->array)) {
            head_array_release(core, root->array);
            root->array = NULL;
        }
    }
}
