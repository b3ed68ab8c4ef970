/*
 * What a program means, on plain arrays.
 *
 * An array is its bytes, and for each element whether it failed: whoever reads a box (the hull of a
 * view) with a failed element fails; writing a dense box makes its elements right again; a writer
 * that fails makes all of its hull failed. What a launch of a recorded graph wrote that failed is
 * in doubt: some of its calls may have ended well, and then their results are right.
 *
 * REDUCE, as head/reduce.c promises it: partials are kept in the order of submission and folded
 * before the first use of the array that is not a REDUCE with the same operation. Partials with
 * equal boxes form a group; groups are folded in the order of their first members; in a group of
 * more than 64 every run of 64 neighbours is folded into its first, again and again; what is left
 * is folded into the array. A partial starts as the identity all over its box.
 */
#include "tests/sim/graph.h"

#include <string.h>

#include "base/alloc.h"

enum { FOLD_MAX = 64 };

static uint32_t element_bytes(const struct graph_array *array)
{
    return pl_dtype_bytes(array->shape.dtype);
}

void graph_array_init(struct graph_array *array, const struct pl_shape *shape)
{
    uint64_t elements = (uint64_t)pl_shape_elements(shape);

    *array = (struct graph_array){.exists   = true,
                                  .shape    = *shape,
                                  .bytes    = sim_alloc(pl_shape_bytes(shape)),
                                  .failed   = sim_alloc(elements),
                                  .home     = sim_alloc(elements),
                                  .cut      = sim_alloc(elements),
                                  .partials = PL_VEC_INIT(struct graph_partial),
                                  .held     = PL_VEC_INIT(uint32_t)};
}

static void partials_clear(struct graph_array *array)
{
    for (size_t i = 0; i < array->partials.count; i++) {
        pl_free(((struct graph_partial *)pl_vec_at(&array->partials, i))->bytes);
    }
    pl_vec_clear(&array->partials);
}

void graph_array_finish(struct graph_array *array)
{
    if (!array->exists) {
        return;
    }
    partials_clear(array);
    pl_vec_finish(&array->partials);
    pl_vec_finish(&array->held);
    pl_free(array->bytes);
    pl_free(array->failed);
    pl_free(array->home);
    pl_free(array->cut);
    array->exists = false;
}

void graph_array_copy(struct graph_array *to, const struct graph_array *from)
{
    uint64_t elements = (uint64_t)pl_shape_elements(&from->shape);

    graph_array_init(to, &from->shape);
    to->folded = from->folded;
    memcpy(to->bytes, from->bytes, pl_shape_bytes(&from->shape));
    memcpy(to->failed, from->failed, elements);
    memcpy(to->home, from->home, elements);
    memcpy(to->cut, from->cut, elements);
}

static struct kernel_arg view_arg(const struct pl_view *view, const struct pl_box *frame,
                                  uint8_t *bytes, uint32_t dtype, uint32_t mode)
{
    struct kernel_arg arg = {.mode = mode, .dtype = dtype, .ndim = view->ndim};
    int64_t stride[PL_DIM_MAX];
    int64_t offset = 0;

    pl_box_strides(frame, stride);
    for (uint32_t d = 0; d < view->ndim; d++) {
        arg.dim[d]    = view->count[d];
        arg.stride[d] = stride[d] * view->step[d];
        offset += (view->start[d] - frame->start[d]) * stride[d];
    }
    arg.data.addr = (uint64_t)(uintptr_t)bytes + (uint64_t)offset * pl_dtype_bytes(dtype);
    return arg;
}

struct kernel_arg graph_array_arg(const struct graph_array *array,
                                  const struct pl_view *view, uint32_t mode)
{
    struct pl_box frame = pl_box_of_shape(&array->shape);

    return view_arg(view, &frame, array->bytes, array->shape.dtype, mode);
}

/* -------------------------------------------------------------------- boxes of elements */

/* Calls fn with each element's index in the array. */
static bool box_walk(const struct graph_array *array, const struct pl_box *box,
                     bool (*fn)(void *user, uint64_t index), void *user)
{
    struct pl_box frame = pl_box_of_shape(&array->shape);
    int64_t count       = pl_box_elements(box);

    for (int64_t i = 0; i < count; i++) {
        int64_t at[PL_DIM_MAX];
        int64_t rest = i;

        for (uint32_t d = box->ndim; d-- > 0;) {
            at[d] = box->start[d] + rest % box->count[d];
            rest /= box->count[d];
        }
        if (fn(user, (uint64_t)pl_box_offset(&frame, at))) {
            return true;
        }
    }
    return false;
}

static bool element_failed(void *user, uint64_t index)
{
    return ((const struct graph_array *)user)->failed[index] == GRAPH_FAILED;
}

static bool element_doubtful(void *user, uint64_t index)
{
    return ((const struct graph_array *)user)->failed[index] == GRAPH_DOUBTFUL;
}

bool graph_array_doubtful(const struct graph_array *array, const struct pl_box *box)
{
    return box_walk(array, box, element_doubtful, (void *)(uintptr_t)array);
}

bool graph_array_failed(const struct graph_array *array, const struct pl_box *box)
{
    return box_walk(array, box, element_failed, (void *)(uintptr_t)array);
}

static bool element_rooted(void *user, uint64_t index)
{
    return ((const struct graph_array *)user)->cut[index] != GRAPH_MADE;
}

bool graph_array_rooted(const struct graph_array *array, const struct pl_box *box)
{
    return box_walk(array, box, element_rooted, (void *)(uintptr_t)array);
}

static bool element_cut(void *user, uint64_t index)
{
    uint8_t cut = ((const struct graph_array *)user)->cut[index];

    return cut == GRAPH_CUT || cut == GRAPH_PUT_TWICE;
}

bool graph_array_cut(const struct graph_array *array, const struct pl_box *box)
{
    return box_walk(array, box, element_cut, (void *)(uintptr_t)array);
}

static bool element_losable(void *user, uint64_t index)
{
    uint8_t cut = ((const struct graph_array *)user)->cut[index];

    return cut == GRAPH_CUT || cut == GRAPH_PUT_HERE;
}

bool graph_array_losable(const struct graph_array *array, const struct pl_box *box)
{
    return box_walk(array, box, element_losable, (void *)(uintptr_t)array);
}

struct marks {
    uint8_t *marks;
    uint8_t value;
};

static bool element_mark(void *user, uint64_t index)
{
    const struct marks *marks = user;

    marks->marks[index] = marks->value;
    return false;
}

void graph_array_mark(const struct graph_array *array, const struct pl_box *box,
                      uint8_t *marks, uint8_t value)
{
    struct marks user = {.marks = marks, .value = value};

    (void)box_walk(array, box, element_mark, &user);
}

static bool element_doubt(void *user, uint64_t index)
{
    const struct marks *marks = user;

    if (marks->marks[index] == GRAPH_RIGHT) {
        marks->marks[index] = GRAPH_DOUBTFUL;
    }
    return false;
}

void graph_array_doubt(const struct graph_array *array, const struct pl_box *box)
{
    struct marks user = {.marks = array->failed};

    (void)box_walk(array, box, element_doubt, &user);
}

static bool element_elsewhere(void *user, uint64_t index)
{
    const struct marks *marks = user;

    return marks->marks[index] != 0 && marks->marks[index] != marks->value;
}

bool graph_array_elsewhere(const struct graph_array *array, const struct pl_box *box,
                           uint8_t home)
{
    struct marks user = {.marks = array->home, .value = home};

    return box_walk(array, box, element_elsewhere, &user);
}

uint8_t *graph_array_show(const struct graph_array *array, const struct pl_view *view,
                          uint64_t *out_bytes)
{
    struct pl_box frame   = pl_box_of_shape(&array->shape);
    struct pl_shape shape = pl_view_shape(view, array->shape.dtype);
    uint32_t bytes        = element_bytes(array);
    int64_t count         = pl_shape_elements(&shape);
    uint8_t *out          = sim_alloc((uint64_t)count * bytes);

    for (int64_t i = 0; i < count; i++) {
        int64_t at[PL_DIM_MAX];
        int64_t rest = i;

        for (uint32_t d = view->ndim; d-- > 0;) {
            at[d] = view->start[d] + (rest % view->count[d]) * view->step[d];
            rest /= view->count[d];
        }
        memcpy(out + (uint64_t)i * bytes,
               array->bytes + (uint64_t)pl_box_offset(&frame, at) * bytes, bytes);
    }
    *out_bytes = (uint64_t)count * bytes;
    return out;
}

/* --------------------------------------------------------------------------- reductions */

static struct pl_view dense_view(const struct pl_box *box)
{
    struct pl_view view = {.ndim = box->ndim};

    for (uint32_t d = 0; d < box->ndim; d++) {
        view.start[d] = box->start[d];
        view.count[d] = box->count[d];
        view.step[d]  = 1;
    }
    return view;
}

struct graph_partial *graph_array_partial(struct graph_array *array,
                                          const struct pl_view *view, uint32_t op)
{
    struct graph_partial *partial = pl_vec_push(&array->partials);
    struct kernel_arg all;
    struct pl_view whole;

    PL_CHECK(partial != NULL);
    partial->box = pl_view_hull(view);
    partial->bytes =
        sim_alloc((uint64_t)pl_box_elements(&partial->box) * element_bytes(array));
    whole = dense_view(&partial->box);
    all =
        view_arg(&whole, &partial->box, partial->bytes, array->shape.dtype, KERNEL_REDUCE);
    all.reduce_op = op;
    PL_CHECK(sim_fill_identity(&all) == PLASMON_OK);
    array->partial_op = op;
    return partial;
}

struct kernel_arg graph_partial_arg(const struct graph_array *array,
                                    const struct graph_partial *partial,
                                    const struct pl_view *view, uint32_t op)
{
    struct kernel_arg arg =
        view_arg(view, &partial->box, partial->bytes, array->shape.dtype, KERNEL_REDUCE);

    arg.reduce_op = op;
    return arg;
}

/* y = y op tree(members) */
static void fold_once(struct kernel_arg y, const struct graph_array *array,
                      struct graph_partial *const *members, size_t count)
{
    struct kernel_arg args[FOLD_MAX + 1];
    union kernel_scalar op = {.i = array->partial_op};
    struct pl_err err      = {0};

    args[0]      = y;
    args[0].mode = KERNEL_INOUT;
    for (size_t i = 0; i < count; i++) {
        struct pl_view whole = dense_view(&members[i]->box);

        args[i + 1] = view_arg(&whole, &members[i]->box, members[i]->bytes,
                               array->shape.dtype, KERNEL_IN);
    }
    PL_CHECK(kernel_run_cpu_now(kernel_by_name("fold"), args, (uint32_t)count + 1, &op, 1,
                                &err) == PLASMON_OK);
}

static void fold_group(struct graph_array *array, struct graph_partial **members,
                       size_t count)
{
    const struct pl_box box = members[0]->box;
    struct pl_view whole    = dense_view(&box);
    bool failed             = graph_array_failed(array, &box);
    bool doubtful           = graph_array_doubtful(array, &box);
    bool cut                = false;

    for (size_t i = 0; i < count; i++) {
        failed |= members[i]->failed;
        doubtful |= members[i]->doubtful;
        cut |= members[i]->cut;
    }
    if (cut || graph_array_rooted(array, &box)) {
        graph_array_mark(array, &box, array->cut, GRAPH_CUT);
    }
    if (failed) {
        graph_array_mark(array, &box, array->failed, GRAPH_FAILED);
        return;
    }
    if (doubtful) {
        graph_array_mark(array, &box, array->failed, GRAPH_DOUBTFUL);
    }
    while (count > FOLD_MAX) {
        size_t next = 0;

        for (size_t first = 0; first < count; first += FOLD_MAX) {
            size_t run = pl_min_u64(FOLD_MAX, count - first);

            if (run > 1) {
                fold_once(view_arg(&whole, &box, members[first]->bytes, array->shape.dtype,
                                   KERNEL_INOUT),
                          array, &members[first + 1], run - 1);
            }
            members[next++] = members[first];
        }
        count = next;
    }
    fold_once(graph_array_arg(array, &whole, KERNEL_INOUT), array, members, count);
}

void graph_array_fold(struct graph_array *array)
{
    size_t count                   = array->partials.count;
    struct graph_partial **members = sim_alloc((count + 1) * sizeof(*members));
    bool *taken                    = sim_alloc((count + 1) * sizeof(*taken));

    array->folded |= count > 0;
    for (size_t i = 0; i < count; i++) {
        struct graph_partial *first = pl_vec_at(&array->partials, i);
        size_t n                    = 0;

        if (taken[i]) {
            continue;
        }
        for (size_t j = i; j < count; j++) {
            struct graph_partial *partial = pl_vec_at(&array->partials, j);

            if (!taken[j] && pl_box_equal(&partial->box, &first->box)) {
                taken[j]     = true;
                members[n++] = partial;
            }
        }
        fold_group(array, members, n);
    }
    partials_clear(array);
    pl_free(members);
    pl_free(taken);
}
