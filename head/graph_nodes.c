/*
 * A segment, or a component of one, as its worker is told it.
 *
 * OPERANDS. What the segment touches of arrays that outlive it. Boxes of one slot that meet are
 * joined to their hull, so operands of one slot are disjoint and the segment can be started like
 * any task. An operand is OUT when every element of it is written before any is read, IN when none
 * is written, else INOUT. Of one that is INOUT, what is overwritten before it is read is no input:
 * neither is it gathered nor does the launch fail with it (kept). Small parts of an array that are
 * OUT and lie side by side are one operand: they are made by one launch either way, and who gathers
 * them on another device copies once. Not large ones: what they overwrite would have to be in one
 * piece, too, or there must be room for both.
 *
 * BRANCHES. Nodes of one branch run one after the other; a node names those of other branches that
 * must be done before it, without what follows from earlier waits. A node continues the branch of
 * something that it needs when nobody has yet; otherwise it begins a branch, or goes to the one
 * that was used least recently.
 *
 * TEMPORARIES lie in one piece of memory that the worker keeps for the graph. Memory of one that is
 * over is used again only in the branch in which all of its users are: anywhere else that would
 * make branches wait for each other.
 */
#include "head/graph.h"

#include <stdio.h>
#include <string.h>

enum { COVER_BOXES_MAX = 256 };

/*
 * At 350 GB/s 48 us: many times what it costs to begin a copy, so larger ones may as well come part
 * by part.
 */
#define JOINED_BYTES_MAX (UINT64_C(16) << 20)

/* ----------------------------------------------------------------------------- operands */

/* A box of a slot that becomes an operand. */
struct cover {
    struct pl_box hull;
    struct pl_vec open;  /* struct pl_box: neither written nor read in the segment so far */
    struct pl_vec fresh; /* struct pl_box: overwritten before it was read */
    bool written;
    bool needs_old;
    uint32_t writer; /* the last task that writes of it; GRAPH_TASK_NONE */
    uint32_t operand;
};

struct builder {
    struct head_core *core;
    struct head_graph *graph;
    struct head_segment *segment;
    uint32_t step;
    struct pl_map covers;  /* slot + 1 -> struct pl_vec * of struct cover */
    struct pl_vec order;   /* uint32_t: slots in the order of their first use */
    struct pl_vec after;   /* uint32_t, of all nodes, one list behind the other .. */
    uint32_t *after_first; /* .. from here on for each node; one more at the end */
};

static bool is_local(const struct builder *builder, uint32_t slot)
{
    const struct graph_slot *at = graph_slot_at(builder->graph, slot);

    return at->kind == GRAPH_TEMPORARY && at->step == builder->step;
}

static struct graph_task *node_at(const struct builder *builder, uint32_t node)
{
    return graph_task_at(builder->graph,
                         *(uint32_t *)pl_vec_at(&builder->segment->tasks, node));
}

static struct pl_vec *covers_of(struct builder *builder, uint32_t slot)
{
    struct pl_vec *covers = pl_map_get(&builder->covers, slot + 1);
    uint32_t *place;

    if (covers == NULL) {
        covers  = head_alloc(sizeof(*covers));
        *covers = PL_VEC_INIT(struct cover);
        PL_CHECK(pl_map_set(&builder->covers, slot + 1, covers) == PLASMON_OK);
        place = pl_vec_push(&builder->order);
        PL_CHECK(place != NULL);
        *place = slot;
    }
    return covers;
}

static struct pl_box hull_of(const struct pl_box *a, const struct pl_box *b)
{
    struct pl_box hull = *a;

    for (uint32_t i = 0; i < a->ndim; i++) {
        int64_t end_a = a->start[i] + a->count[i];
        int64_t end_b = b->start[i] + b->count[i];

        hull.start[i] = a->start[i] < b->start[i] ? a->start[i] : b->start[i];
        hull.count[i] = (end_a > end_b ? end_a : end_b) - hull.start[i];
    }
    return hull;
}

static void cover_add(struct pl_vec *covers, const struct pl_box *box)
{
    struct pl_box hull = *box;
    struct cover *place;

    for (size_t i = 0; i < covers->count;) {
        const struct cover *cover = pl_vec_at(covers, i);

        if (pl_box_contains(&cover->hull, &hull)) {
            return;
        }
        if (!pl_box_intersects(&cover->hull, &hull)) {
            i++;
            continue;
        }
        hull = hull_of(&cover->hull, &hull);
        pl_vec_remove_unordered(covers, i);
        i = 0; /* the larger one may meet others */
    }
    place = pl_vec_push(covers);
    PL_CHECK(place != NULL);
    *place = (struct cover){.hull   = hull,
                            .open   = PL_VEC_INIT(struct pl_box),
                            .fresh  = PL_VEC_INIT(struct pl_box),
                            .writer = GRAPH_TASK_NONE};
}

static struct cover *cover_find(struct builder *builder, const struct graph_arg *arg)
{
    struct pl_vec *covers = covers_of(builder, arg->slot);

    for (size_t i = 0; i < covers->count; i++) {
        struct cover *cover = pl_vec_at(covers, i);

        if (pl_box_contains(&cover->hull, &arg->hull)) {
            return cover;
        }
    }
    PL_CHECK(false); /* every argument was added */
    return NULL;
}

static void box_push(struct pl_vec *boxes, const struct pl_box *box)
{
    struct pl_box *place = pl_vec_push(boxes);

    PL_CHECK(place != NULL);
    *place = *box;
}

/* Together they are a box. */
static bool adjoin(const struct pl_box *a, const struct pl_box *b)
{
    uint32_t differs = PL_DIM_MAX;

    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->start[i] == b->start[i] && a->count[i] == b->count[i]) {
            continue;
        }
        if (differs != PL_DIM_MAX) {
            return false;
        }
        differs = i;
    }
    return differs != PL_DIM_MAX &&
           (a->start[differs] + a->count[differs] == b->start[differs] ||
            b->start[differs] + b->count[differs] == a->start[differs]);
}

/* One box more of disjoint ones; with neighbours that it makes a larger box with, it is that box. */
static void fresh_add(struct pl_vec *fresh, const struct pl_box *box)
{
    struct pl_box grown = *box;

    for (size_t i = 0; i < fresh->count;) {
        const struct pl_box *other = pl_vec_at(fresh, i);

        if (!adjoin(other, &grown)) {
            i++;
            continue;
        }
        grown = hull_of(other, &grown);
        pl_vec_remove_unordered(fresh, i);
        i = 0; /* the larger one may adjoin others */
    }
    if (fresh->count < COVER_BOXES_MAX) { /* else it counts as read */
        box_push(fresh, &grown);
    }
}

/* A call uses the box: what of it was open is so no longer. */
static void open_take(struct cover *cover, const struct pl_box *box, bool overwrites)
{
    for (size_t i = 0; i < cover->open.count; i++) {
        struct pl_box part;

        if (!pl_box_intersection(pl_vec_at(&cover->open, i), box, &part)) {
            continue;
        }
        if (overwrites) {
            fresh_add(&cover->fresh, &part);
        } else {
            cover->needs_old = true;
        }
    }
    (void)pl_boxes_take_out(&cover->open, box);
    if (cover->open.count > COVER_BOXES_MAX) {
        cover->needs_old = true; /* reads what it need not: slower, and fails with more */
        pl_vec_clear(&cover->open);
    }
}

static void cover_use(struct cover *cover, const struct graph_arg *arg, uint32_t task)
{
    bool overwrites = arg->mode == PLASMON__V1__MODE__MODE_OUT && pl_view_dense(&arg->view);

    if (graph_writes(arg->mode)) {
        cover->written = true;
        cover->writer  = task;
    }
    open_take(cover, &arg->hull, overwrites);
}

static uint32_t cover_mode(const struct cover *cover)
{
    if (!cover->written) {
        return PLASMON__V1__MODE__MODE_IN;
    }
    return cover->needs_old || cover->open.count > 0 ? PLASMON__V1__MODE__MODE_INOUT
                                                     : PLASMON__V1__MODE__MODE_OUT;
}

static bool covers_join(struct cover *cover, const struct cover *other, uint64_t element)
{
    struct pl_box hull = hull_of(&cover->hull, &other->hull);

    if (cover_mode(other) != PLASMON__V1__MODE__MODE_OUT ||
        (uint64_t)pl_box_elements(&hull) * element > JOINED_BYTES_MAX ||
        !adjoin(&cover->hull, &other->hull)) {
        return false;
    }
    cover->hull = hull;
    /* both are written */
    cover->writer = (uint32_t)pl_max_u64(cover->writer, other->writer);
    return true;
}

static void cover_finish(struct cover *cover)
{
    pl_vec_finish(&cover->open);
    pl_vec_finish(&cover->fresh);
}

/* Of one slot; they are disjoint. */
static void neighbours_join(struct pl_vec *covers, uint64_t element)
{
    for (size_t i = 0; i < covers->count; i++) {
        struct cover *cover = pl_vec_at(covers, i);
        bool is_out         = cover_mode(cover) == PLASMON__V1__MODE__MODE_OUT;

        for (size_t k = i + 1; is_out && k < covers->count; k++) {
            struct cover *other = pl_vec_at(covers, k);

            if (covers_join(cover, other, element)) {
                cover_finish(other);
                pl_vec_remove_unordered(covers, k);
                k = i; /* the larger one may adjoin others */
            }
        }
    }
}

/*
 * What the launch needs of what an INOUT operand was before: it fails with that, and with nothing
 * that it overwrites before it reads it, as its calls would one by one.
 */
static void kept_find(const struct cover *cover, struct graph_operand *operand)
{
    struct pl_vec kept = PL_VEC_INIT(struct pl_box);

    if (operand->mode != PLASMON__V1__MODE__MODE_INOUT || cover->fresh.count == 0) {
        return;
    }
    box_push(&kept, &cover->hull);
    for (size_t i = 0; i < cover->fresh.count && kept.count <= COVER_BOXES_MAX; i++) {
        (void)pl_boxes_take_out(&kept, pl_vec_at(&cover->fresh, i));
    }
    if (kept.count <= COVER_BOXES_MAX) {
        operand->kept = head_alloc(kept.count * sizeof(*operand->kept));
        memcpy(operand->kept, kept.items, kept.count * sizeof(*operand->kept));
        operand->kept_count = (uint32_t)kept.count;
    }
    pl_vec_finish(&kept);
}

static void operands_build(struct builder *builder)
{
    for (uint32_t n = 0; n < builder->segment->tasks.count; n++) {
        const struct graph_task *task = node_at(builder, n);

        for (uint32_t i = 0; i < task->arg_count; i++) {
            if (!is_local(builder, task->args[i].slot)) {
                cover_add(covers_of(builder, task->args[i].slot), &task->args[i].hull);
            }
        }
    }
    for (size_t s = 0; s < builder->order.count; s++) {
        uint32_t slot         = *(uint32_t *)pl_vec_at(&builder->order, s);
        struct pl_vec *covers = covers_of(builder, slot);

        for (size_t i = 0; i < covers->count; i++) {
            struct cover *cover = pl_vec_at(covers, i);

            box_push(&cover->open, &cover->hull);
        }
    }
    for (uint32_t n = 0; n < builder->segment->tasks.count; n++) {
        const struct graph_task *task = node_at(builder, n);

        for (uint32_t i = 0; i < task->arg_count; i++) {
            if (!is_local(builder, task->args[i].slot)) {
                cover_use(cover_find(builder, &task->args[i]), &task->args[i],
                          *(uint32_t *)pl_vec_at(&builder->segment->tasks, n));
            }
        }
    }
    for (size_t s = 0; s < builder->order.count; s++) {
        uint32_t slot         = *(uint32_t *)pl_vec_at(&builder->order, s);
        struct pl_vec *covers = covers_of(builder, slot);

        neighbours_join(covers,
                        pl_dtype_bytes(graph_slot_at(builder->graph, slot)->shape.dtype));
        for (size_t i = 0; i < covers->count; i++) {
            struct cover *cover         = pl_vec_at(covers, i);
            struct graph_operand *place = pl_vec_push(&builder->segment->operands);

            PL_CHECK(place != NULL);
            cover->operand = (uint32_t)builder->segment->operands.count - 1;
            *place         = (struct graph_operand){.slot   = slot,
                                                    .mode   = cover_mode(cover),
                                                    .hull   = cover->hull,
                                                    .writer = cover->writer};
            kept_find(cover, place);
        }
    }
}

/* ----------------------------------------------------------------------------- branches */

struct branches {
    uint32_t count;
    uint32_t tail[WIRE_GRAPH_BRANCHES_MAX]; /* last node + 1; 0: none */
    /* [n][b]: when node n is done, so is everything of branch b below this. */
    uint32_t (*known)[WIRE_GRAPH_BRANCHES_MAX];
};

static uint32_t branch_choose(const struct builder *builder, struct branches *branches,
                              const struct graph_task *task)
{
    uint32_t oldest = 0;

    for (size_t i = task->deps.count; i-- > 0;) {
        const struct graph_task *on =
            graph_task_at(builder->graph, *(uint32_t *)pl_vec_at(&task->deps, i));

        if (on->step == builder->step && branches->tail[on->branch] == on->node + 1) {
            return on->branch;
        }
    }
    if (branches->count < WIRE_GRAPH_BRANCHES_MAX) {
        return branches->count++;
    }
    for (uint32_t b = 1; b < branches->count; b++) {
        if (branches->tail[b] < branches->tail[oldest]) {
            oldest = b;
        }
    }
    return oldest;
}

static void known_take(struct branches *branches, uint32_t node, uint32_t from)
{
    for (uint32_t b = 0; b < WIRE_GRAPH_BRANCHES_MAX; b++) {
        branches->known[node][b] =
            (uint32_t)pl_max_u64(branches->known[node][b], branches->known[from][b]);
    }
}

/* Latest first: what an earlier one would add may follow from a later one. */
static void node_waits(struct builder *builder, struct branches *branches,
                       const struct graph_task *task)
{
    for (size_t i = task->deps.count; i-- > 0;) {
        const struct graph_task *on =
            graph_task_at(builder->graph, *(uint32_t *)pl_vec_at(&task->deps, i));
        uint32_t *place;

        if (on->step != builder->step ||
            branches->known[task->node][on->branch] > on->node) {
            continue;
        }
        place = pl_vec_push(&builder->after);
        PL_CHECK(place != NULL);
        *place = on->node;
        known_take(branches, task->node, on->node);
    }
}

static void branches_build(struct builder *builder)
{
    uint32_t count           = (uint32_t)builder->segment->tasks.count;
    struct branches branches = {.known = head_alloc((count + 1) * sizeof(*branches.known))};

    for (uint32_t n = 0; n < count; n++) {
        struct graph_task *task = node_at(builder, n);

        task->node              = n;
        task->branch            = branch_choose(builder, &branches, task);
        builder->after_first[n] = (uint32_t)builder->after.count;
        if (branches.tail[task->branch] != 0) {
            known_take(&branches, n, branches.tail[task->branch] - 1);
        }
        node_waits(builder, &branches, task);
        branches.known[n][task->branch] = n + 1;
        branches.tail[task->branch]     = n + 1;
    }
    builder->after_first[count] = (uint32_t)builder->after.count;
    builder->segment->branches  = branches.count;
    pl_free(branches.known);
}

/* -------------------------------------------------------------------------- temporaries */

struct room {
    uint64_t offset;
    uint64_t bytes;
};
/* What is known of a temporary while it is laid out. */
struct life {
    uint32_t last;     /* node that uses it last, + 1; 0: not of this segment */
    uint32_t branches; /* set of those of its users */
    bool placed;
};

static uint64_t room_bytes(const struct builder *builder, uint32_t slot)
{
    return pl_round_up(pl_shape_bytes(&graph_slot_at(builder->graph, slot)->shape),
                       GRAPH_ALIGNMENT);
}

static uint64_t room_take(struct builder *builder, struct pl_vec *rooms, uint64_t bytes)
{
    uint64_t offset;

    for (size_t i = 0; i < rooms->count; i++) {
        struct room *room = pl_vec_at(rooms, i);

        if (room->bytes < bytes) {
            continue;
        }
        offset = room->offset;
        room->offset += bytes;
        room->bytes -= bytes;
        if (room->bytes == 0) {
            pl_vec_remove_unordered(rooms, i);
        }
        return offset;
    }
    offset = builder->segment->bytes;
    builder->segment->bytes += bytes;
    return offset;
}

static void lives_find(const struct builder *builder, struct life *lives)
{
    for (uint32_t n = 0; n < builder->segment->tasks.count; n++) {
        const struct graph_task *task = node_at(builder, n);

        for (uint32_t i = 0; i < task->arg_count; i++) {
            struct life *life = &lives[task->args[i].slot];

            life->last = n + 1;
            life->branches |= 1u << task->branch;
        }
    }
}

static void temporaries_place(struct builder *builder)
{
    struct life *lives = head_alloc((builder->graph->slots.count + 1) * sizeof(*lives));
    struct pl_vec rooms[WIRE_GRAPH_BRANCHES_MAX];

    for (uint32_t b = 0; b < WIRE_GRAPH_BRANCHES_MAX; b++) {
        rooms[b] = PL_VEC_INIT(struct room);
    }
    lives_find(builder, lives);
    for (uint32_t n = 0; n < builder->segment->tasks.count; n++) {
        const struct graph_task *task = node_at(builder, n);

        for (uint32_t i = 0; i < task->arg_count; i++) {
            uint32_t slot = task->args[i].slot;

            if (is_local(builder, slot) && !lives[slot].placed) {
                lives[slot].placed = true;
                graph_slot_at(builder->graph, slot)->offset =
                    room_take(builder, &rooms[task->branch], room_bytes(builder, slot));
            }
        }
        for (uint32_t i = 0; i < task->arg_count; i++) {
            uint32_t slot = task->args[i].slot;
            struct room *room;

            if (!is_local(builder, slot) || lives[slot].last != n + 1 ||
                lives[slot].branches != 1u << task->branch) {
                continue;
            }
            lives[slot].last = 0; /* two arguments of one node */
            room             = pl_vec_push(&rooms[task->branch]);
            PL_CHECK(room != NULL);
            *room = (struct room){.offset = graph_slot_at(builder->graph, slot)->offset,
                                  .bytes  = room_bytes(builder, slot)};
        }
    }
    for (uint32_t b = 0; b < WIRE_GRAPH_BRANCHES_MAX; b++) {
        pl_vec_finish(&rooms[b]);
    }
    pl_free(lives);
}

/* ----------------------------------------------------------------------------- messages */

static void *arena_take(struct wire_arena *arena, size_t bytes)
{
    void *ptr = wire_arena_alloc(arena, bytes);

    PL_CHECK(ptr != NULL);
    return ptr;
}

static Plasmon__V1__Operand *operand_message(struct builder *builder,
                                             const struct graph_arg *arg)
{
    struct wire_arena *arena      = &builder->core->arena;
    const struct graph_slot *slot = graph_slot_at(builder->graph, arg->slot);
    struct pl_box frame           = pl_box_of_shape(&slot->shape);
    Plasmon__V1__Operand *out     = arena_take(arena, sizeof(*out));

    plasmon__v1__operand__init(out);
    out->mode  = arg->mode;
    out->dtype = slot->shape.dtype;
    out->view  = head_wire_view(arena, &arg->view, &out->n_view);
    if (is_local(builder, arg->slot)) {
        out->frame        = head_wire_box(arena, &frame, &out->n_frame);
        out->graph_offset = slot->offset;
    } else {
        out->graph_operand = cover_find(builder, arg)->operand + 1;
    }
    return out;
}

static Plasmon__V1__GraphNode *node_message(struct builder *builder, uint32_t number)
{
    struct wire_arena *arena      = &builder->core->arena;
    const struct graph_task *task = node_at(builder, number);
    struct head_launch launch     = head_launch_of_run(&task->run);
    Plasmon__V1__GraphNode *node  = arena_take(arena, sizeof(*node));

    plasmon__v1__graph_node__init(node);
    node->launch = arena_take(arena, sizeof(*node->launch));
    plasmon__v1__launch__init(node->launch);
    head_launch_settings(&launch, node->launch);
    node->launch->n_operands = task->arg_count;
    node->launch->operands   = arena_take(arena, (task->arg_count + 1) * sizeof(void *));
    for (uint32_t i = 0; i < task->arg_count; i++) {
        node->launch->operands[i] = operand_message(builder, &task->args[i]);
    }
    node->branch  = task->branch;
    node->n_after = builder->after_first[number + 1] - builder->after_first[number];
    node->after   = node->n_after == 0
                        ? NULL
                        : pl_vec_at(&builder->after, builder->after_first[number]);
    return node;
}

static void part_encode(struct builder *builder, uint32_t first, uint32_t count)
{
    struct head_segment *segment = builder->segment;
    Plasmon__V1__GraphPart part  = PLASMON__V1__GRAPH_PART__INIT;
    struct head_bytes *out       = pl_vec_push(&segment->parts);

    PL_CHECK(out != NULL);
    *out = (struct head_bytes){0};
    wire_arena_reset(&builder->core->arena);
    part.id       = segment->id;
    part.first    = first;
    part.n_nodes  = count;
    part.nodes    = arena_take(&builder->core->arena, (count + 1) * sizeof(void *));
    part.operands = (uint32_t)segment->operands.count;
    part.branches = segment->branches;
    part.bytes    = segment->bytes;
    part.last     = first + count == segment->tasks.count;
    for (uint32_t i = 0; i < count; i++) {
        part.nodes[i] = node_message(builder, first + i);
    }
    out->length = out->capacity = plasmon__v1__graph_part__get_packed_size(&part);
    out->data                   = head_alloc(out->length);
    (void)plasmon__v1__graph_part__pack(&part, out->data); /* its size was just computed */
}

/* ---------------------------------------------------------------------------------- all */

static void builder_finish(struct builder *builder)
{
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&builder->covers, &i, &key, &value);) {
        struct pl_vec *covers = value;

        for (size_t k = 0; k < covers->count; k++) {
            cover_finish(pl_vec_at(covers, k));
        }
        pl_vec_finish(covers);
        pl_free(covers);
    }
    pl_map_finish(&builder->covers);
    pl_vec_finish(&builder->order);
    pl_vec_finish(&builder->after);
    pl_free(builder->after_first);
}

/* "calls 3 to 9 of 12": they are counted from 0, as for plasmon_graph_launch(). */
static void label_set(const struct head_graph *graph, struct head_segment *segment)
{
    uint32_t count = (uint32_t)segment->tasks.count, all = (uint32_t)graph->tasks.count;
    uint32_t first = *(uint32_t *)pl_vec_at(&segment->tasks, 0);
    uint32_t last  = *(uint32_t *)pl_vec_at(&segment->tasks, count - 1);
    char *out      = segment->label;

    if (count == all) {
        (void)snprintf(out, GRAPH_LABEL_BYTES, all == 1 ? "its %u call" : "all %u calls",
                       all);
    } else if (count == 1) {
        (void)snprintf(out, GRAPH_LABEL_BYTES, "call %u of %u", first, all);
    } else if (last - first == count - 1) {
        (void)snprintf(out, GRAPH_LABEL_BYTES, "calls %u to %u of %u", first, last, all);
    } else {
        (void)snprintf(out, GRAPH_LABEL_BYTES, "%u calls from %u to %u of %u", count, first,
                       last, all);
    }
}

void graph_segment_build(struct head_core *core, struct head_graph *graph,
                         struct head_segment *segment)
{
    uint32_t count         = (uint32_t)segment->tasks.count;
    struct builder builder = {
        .core        = core,
        .graph       = graph,
        .segment     = segment,
        .order       = PL_VEC_INIT(uint32_t),
        .after       = PL_VEC_INIT(uint32_t),
        .after_first = head_alloc((count + 1) * sizeof(uint32_t)),
    };

    builder.step = graph_task_at(graph, *(uint32_t *)pl_vec_at(&segment->tasks, 0))->step;
    label_set(graph, segment);
    pl_map_init(&builder.covers);
    operands_build(&builder);
    branches_build(&builder);
    temporaries_place(&builder);
    for (uint32_t first = 0; first < count; first += GRAPH_PART_NODES) {
        part_encode(&builder, first, (uint32_t)pl_min_u64(GRAPH_PART_NODES, count - first));
    }
    builder_finish(&builder);
}
