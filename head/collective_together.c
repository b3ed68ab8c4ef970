/*
 * Reductions and gathers by a team.
 *
 * The devices of all results may have a communicator (team.c). Then each has one launch that
 * reduces all of the members, and all of these have one number. Such a launch is one that reads
 * directly, and names the team: what the team does not do, because it broke, its device does alone,
 * and nobody else has to know. So results have memory of their own, and all members are kept until
 * all launches are over.
 */
#include "head/collective_int.h"

#include "head/spill.h"

/* One device's part. */
struct part {
    struct collective_reduction r;
    struct head_buffer *accumulator; /* held */
    uint32_t rank;
};

/* A part reads `box` of all members where they lie, and its own is all of a buffer. */
static bool part_find(struct part *part, const struct pl_box *box, bool *out)
{
    struct collective_reduction *r = &part->r;
    uint32_t own                   = 0;
    bool ok                        = true;

    for (uint32_t k = 0; ok && k < r->c->count; k++) {
        ok = collective_reduction_find(r, k, box);
    }
    *out = ok && collective_reduction_reached(r);
    for (uint32_t k = 0; *out && k < r->c->count; k++) {
        if (r->source[k]->device == r->device) {
            own += pl_box_equal(&r->source[k]->frame, &r->c->ins[k].box) ? 1 : 2;
        }
    }
    *out = *out && own == 1;
    return ok;
}

/*
 * Ranks by index; false: two are of one device, or they are not in the order of the results, and
 * are to be.
 */
static bool ranks_give(struct part *parts, uint32_t count, bool in_order,
                       struct head_device **out)
{
    for (uint32_t i = 0; i < count; i++) {
        parts[i].rank = 0;
        for (uint32_t k = 0; k < count; k++) {
            if (k != i && parts[k].r.device == parts[i].r.device) {
                return false;
            }
            parts[i].rank += parts[k].r.device->index < parts[i].r.device->index;
        }
        if (in_order && parts[i].rank != i) {
            return false;
        }
        out[parts[i].rank] = parts[i].r.device;
    }
    return true;
}

/* All memory first: between launches of one number there may be no others. */
static bool parts_start(struct collective *c, struct part *parts,
                        const struct head_team *team)
{
    struct collective_joint joint = {.team = team};
    struct head_task *task[WIRE_TEAM_MAX];
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        struct collective_reduction *r = &parts[i].r;

        parts[i].accumulator =
            collective_fresh_buffer(c, r->device, &r->to->box, r->to->array->shape.dtype);
        ok = parts[i].accumulator != NULL;
    }
    joint.order = ok ? ++c->core->order_last : 0;
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        joint.rank = parts[i].rank;
        task[i] = collective_reduction_combine(&parts[i].r, parts[i].accumulator, &joint);
    }
    for (uint32_t i = 0; ok && i < c->out_count; i++) {
        ok = collective_reduction_becomes(&parts[i].r, task[i], parts[i].accumulator);
    }
    return ok;
}

bool collective_reduce_together(struct collective *c, bool scattered, bool *out_done)
{
    const struct pl_box whole    = collective_at_zero(&c->ins[0].box);
    struct part *parts           = head_alloc(c->out_count * sizeof(*parts));
    const struct head_team *team = NULL;
    struct head_device *devices[WIRE_COLLECTIVE_MAX];
    bool ok = true, possible = c->count == c->out_count && c->count <= WIRE_TEAM_MAX;
    struct pl_box box;

    collective_plan_begin(c);
    for (uint32_t i = 0; ok && possible && i < c->out_count; i++) {
        parts[i].r = (struct collective_reduction){
            .c = c, .device = c->outs[i].device, .to = &c->outs[i].made};
        box = scattered ? collective_slab(&whole, i, c->count) : whole;
        ok  = part_find(&parts[i], &box, &possible);
    }
    possible = ok && possible && ranks_give(parts, c->out_count, scattered, devices);
    if (possible) {
        team = head_team_take(c->core, devices, c->out_count, collective_bytes(&c->ins[0]),
                              c->task->collective->way == COLLECTIVE_NCCL);
    }
    *out_done = team != NULL;
    ok        = ok && (team == NULL || parts_start(c, parts, team));
    for (uint32_t i = 0; i < c->out_count; i++) {
        if (parts[i].accumulator != NULL) {
            head_buffer_release(c->core, parts[i].accumulator);
        }
    }
    pl_free(parts);
    return ok;
}

/* The members where they lie, for result i; its own is all of a buffer, and number i. */
static bool sources_find(struct collective *c, uint32_t i, struct head_buffer **out)
{
    const struct head_device *device = c->outs[i].device;

    for (uint32_t k = 0; k < c->count; k++) {
        const struct pl_box *box = &c->ins[k].box;

        head_spill_keep(c->core, c->ins[k].array, box);
        out[k] = head_move_reach(c->core, c->ins[k].array, box, device);
        if (out[k] == NULL || (out[k]->device == device) != (k == i) ||
            (k == i && !pl_box_equal(&out[k]->frame, box))) {
            return false;
        }
    }
    return i == 0 || c->outs[i - 1].device->index < device->index;
}

static struct head_task *gather_start(struct collective *c, uint32_t i,
                                      struct head_buffer *const *sources,
                                      struct head_buffer *to,
                                      const struct collective_joint *joint)
{
    struct head_operand operand = head_operand_whole(to, true, true);
    const uint64_t axis         = 0;
    struct head_task *task;

    collective_step_begin();
    (void)collective_step_operand(&operand);
    for (uint32_t k = 0; k < c->count; k++) {
        struct pl_box place = collective_slab(&c->outs[i].made.box, k, c->count);

        collective_step_piece(sources[k], &c->ins[k].box, &place);
    }
    task =
        collective_step_start_as(c, c->outs[i].device, true, "concatenate", &axis, joint);
    collective_step_end(c);
    return task;
}

bool collective_gather_together(struct collective *c, bool *out_done)
{
    struct head_buffer *sources[WIRE_TEAM_MAX][WIRE_TEAM_MAX];
    struct head_buffer *made[WIRE_TEAM_MAX] = {NULL};
    struct head_device *devices[WIRE_TEAM_MAX];
    struct collective_joint joint = {.team = NULL};
    bool ok = true, possible = c->count == c->out_count && c->count <= WIRE_TEAM_MAX;

    collective_plan_begin(c);
    for (uint32_t i = 0; possible && i < c->out_count; i++) {
        devices[i] = c->outs[i].device;
        possible   = sources_find(c, i, sources[i]);
    }
    if (possible) {
        joint.team = head_team_take(c->core, devices, c->out_count,
                                    c->count * collective_bytes(&c->ins[0]), true);
    }
    *out_done = joint.team != NULL;
    for (uint32_t i = 0; *out_done && ok && i < c->out_count; i++) {
        made[i] = collective_fresh_buffer(c, devices[i], &c->outs[i].made.box,
                                          c->ins[0].array->shape.dtype);
        ok      = made[i] != NULL;
    }
    joint.order = *out_done && ok ? ++c->core->order_last : 0;
    for (uint32_t i = 0; *out_done && ok && i < c->out_count; i++) {
        joint.rank = i;
        collective_makes(c, gather_start(c, i, sources[i], made[i], &joint),
                         c->outs[i].made.array, &c->outs[i].made.box, made[i]);
    }
    for (uint32_t i = 0; *out_done && i < c->out_count; i++) {
        if (made[i] != NULL) {
            head_buffer_release(c->core, made[i]);
        }
    }
    return ok;
}
