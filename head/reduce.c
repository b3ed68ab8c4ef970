/*
 * REDUCE: tasks add into private accumulators that start at the identity; they are folded into the
 * array later, by a rule that depends on the program alone, so that the bits of the result do not
 * depend on placement or timing.
 *
 * THE RULE
 *
 *   Partials of an array are kept in the order of submission. They are folded before the first use
 *   of the array that is not a REDUCE with the same operation (a task, a snapshot, a get).
 *
 *   Partials with equal boxes form a group; groups are folded in the order of their first member. A
 *   group p0 p1 .. pn-1 is folded in rounds: while it has more than 64 members, every run of 64
 *   neighbours is folded into its first (p0 from p1 .. p63, p64 from p65 .. p127, ..; the function
 *   `fold`, a pairwise tree per element), and the firsts form the next round. What is left, at most
 *   64, is folded into the array by one more `fold`.
 */
#include "head/core_int.h"

#include <string.h>

void head_reduce_add(struct head_core *core, struct head_array *array,
                     const struct pl_box *box, struct head_tile *tile, uint32_t op)
{
    struct head_partial *partial = pl_vec_push(&array->partials);

    (void)core;
    head_space_show(array, tile,
                    (uint64_t)pl_box_elements(box) * pl_dtype_bytes(array->shape.dtype));
    PL_CHECK(partial != NULL);
    partial->box  = *box;
    partial->tile = tile;
    tile->refs++;
    array->partial_op = op;
}

static void set_arg(struct head_arg *arg, uint32_t mode, struct head_array *array,
                    const struct pl_box *box)
{
    memset(arg, 0, sizeof(*arg));
    arg->mode  = mode;
    arg->array = array;
    arg->view  = pl_view_of_box(box);
    arg->hull  = *box;
    arg->dtype = array->shape.dtype;
}

/* That of the first call whose partial result has one: what is folded was written by all of them. */
static const char *label_of(const struct head_core *core, struct head_array *const *members,
                            size_t count)
{
    const char *label = NULL;

    for (size_t i = 0; i < count && label == NULL; i++) {
        label = head_tile_label(
            core,
            pl_list_first(&members[i]->fragments, struct head_fragment, array_link)->tile);
    }
    return label;
}

/* into = into op tree(members 0 .. count-1) */
static void fold_once(struct head_core *core, struct head_array *into,
                      struct head_array *const *members, size_t count,
                      const struct pl_box *box, uint64_t op, const char *label)
{
    struct head_arg *args = head_alloc((count + 1) * sizeof(*args));
    struct head_run run   = {
          .function     = pl_hash_name("fold"),
          .label        = "fold",
          .labels_apart = true,
          .args         = args,
          .arg_count    = count + 1,
          .scalars      = &op,
          .scalar_count = 1,
          .retries      = core->config.retries,
    };
    struct head_failure *failure = NULL;

    set_arg(&args[0], PLASMON__V1__MODE__MODE_INOUT, into, box);
    args[0].label = label;
    for (size_t i = 0; i < count; i++) {
        set_arg(&args[i + 1], PLASMON__V1__MODE__MODE_IN, members[i], box);
    }
    if (pl_bug("head.fold_order") && count > 2) {
        set_arg(&args[1], PLASMON__V1__MODE__MODE_IN, members[count - 1], box);
        set_arg(&args[count], PLASMON__V1__MODE__MODE_IN, members[0], box);
    }
    if (!head_run_start(core, &run, &failure)) {
        head_run_fail(core, &run, failure);
        head_failure_release(failure);
    }
    pl_free(args);
}

static void fold_group(struct head_core *core, struct head_array *array,
                       struct head_array **members, size_t count, const struct pl_box *box,
                       uint32_t op)
{
    const char *label = label_of(core, members, count);

    while (count > HEAD_FOLD_MAX) {
        size_t next = 0;

        for (size_t first = 0; first < count; first += HEAD_FOLD_MAX) {
            size_t run = pl_min_u64(HEAD_FOLD_MAX, count - first);

            if (run > 1) {
                fold_once(core, members[first], &members[first + 1], run - 1, box, op,
                          label);
            }
            /* The folded ones stay in the array behind `count`, to be released by the caller. */
            struct head_array *keep = members[first];
            members[first]          = members[next];
            members[next++]         = keep;
        }
        count = next;
    }
    fold_once(core, array, members, count, box, op, label);
}

void head_reduce_fold(struct head_core *core, struct head_array *array)
{
    struct pl_vec partials = array->partials;
    uint32_t op            = array->partial_op;
    struct head_array **members;
    bool *taken;

    if (partials.count == 0) {
        return;
    }
    /* the folds below find nothing to fold */
    array->partials = PL_VEC_INIT(struct head_partial);
    members         = head_alloc(partials.count * sizeof(*members));
    taken           = head_alloc(partials.count * sizeof(*taken));

    for (size_t i = 0; i < partials.count; i++) {
        const struct head_partial *first = pl_vec_at(&partials, i);
        size_t count                     = 0;

        if (taken[i]) {
            continue;
        }
        for (size_t j = i; j < partials.count; j++) {
            const struct head_partial *partial = pl_vec_at(&partials, j);

            if (taken[j] || !pl_box_equal(&partial->box, &first->box)) {
                continue;
            }
            taken[j]               = true;
            members[count]         = head_array_create(core, array->space, &array->shape);
            members[count]->extent = partial->box;
            head_array_set(core, members[count], &partial->box, partial->tile);
            count++;
        }
        fold_group(core, array, members, count, &first->box, op);
        for (size_t j = 0; j < count; j++) {
            head_array_release(core, members[j]);
        }
    }
    for (size_t i = 0; i < partials.count; i++) {
        const struct head_partial *partial = pl_vec_at(&partials, i);

        head_space_hide(array, partial->tile,
                        (uint64_t)pl_box_elements(&partial->box) *
                            pl_dtype_bytes(array->shape.dtype));
        head_tile_release(core, partial->tile);
    }
    pl_vec_finish(&partials);
    pl_free(members);
    pl_free(taken);
}
