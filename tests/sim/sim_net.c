/*
 * The network between the head and one of its peers, when it is cut: for a while nothing gets
 * through in either direction, and neither side is told. What is on its way waits. Each side may
 * lose patience before the other, or neither does:
 *
 *   nobody       everything comes late, and in order
 *   the peer     it connects anew, as often as it likes; the head hears of it when the cut is over,
 *                and may still have the old connection for a living one then
 *   the head     it takes the peer for lost, and may have forgotten whom to expect; the peer writes
 *                into a connection that is none any more
 *   both         in either order
 *
 * A process may die behind a cut, and another one take its place; what the dead one had said
 * arrives all the same, later than what the living one says. Whoever takes that for news has been
 * talked into serving a dead process: checked here.
 */
#include "tests/sim/sim.h"

#include "base/alloc.h"

enum {
    CUT_SHORT_MAX_NS  = 1000000,
    CUT_MIDDLE_MAX_NS = 100000000,
    LATE_MIN_NS       = 60000, /* what living ones say is faster */
    LATE_MAX_NS       = 2000000,
};
#define CUT_LONG_MAX_NS  UINT64_C(4000000000) /* no lease ends by it */
#define CUT_LEASE_MIN_NS UINT64_C(8000000000) /* a lease may */
#define CUT_LEASE_MAX_NS UINT64_C(14000000000)

void sim_cut_init(struct sim_cut *cut, struct sim *sim, struct sim_pipe *to_head,
                  struct sim_pipe *from_head, const struct sim_cut_ops *ops, void *user)
{
    *cut = (struct sim_cut){.sim       = sim,
                            .to_head   = to_head,
                            .from_head = from_head,
                            .ops       = ops,
                            .user      = user,
                            .late      = PL_VEC_INIT(struct sim_bytes *)};
}

static void late_forget(struct sim_cut *cut)
{
    for (size_t i = 0; i < cut->late.count; i++) {
        pl_free(*(struct sim_bytes **)pl_vec_at(&cut->late, i));
    }
    pl_vec_clear(&cut->late);
}

void sim_cut_finish(struct sim_cut *cut)
{
    late_forget(cut);
    pl_vec_finish(&cut->late);
}

/* ---------------------------------------------------------------------- losing patience */

static void peer_gives_up(void *user, uint64_t arg, void *data)
{
    struct sim_cut *cut = user;

    (void)data;
    if (cut->on && arg == cut->serial && cut->to_head->up) {
        cut->peer_gave_up = true;
        cut->ops->peer_gives_up(cut->user);
    }
}

static void head_gives_up(void *user, uint64_t arg, void *data)
{
    struct sim_cut *cut = user;

    (void)data;
    if (cut->on && arg == cut->serial && cut->head_closed != cut->life_before &&
        !sim_head_down(cut->sim)) {
        cut->head_closed = cut->life_before;
        sim_pipe_break(cut->from_head);
        cut->ops->head_gives_up(cut->user);
    }
}

bool sim_cut_hides(struct sim_cut *cut)
{
    if (cut->on) {
        cut->unnoticed = true;
    }
    return cut->on;
}

/* --------------------------------------------------------------------------- late words */

void sim_cut_died(struct sim_cut *cut)
{
    if (!cut->on || cut->ops->late == NULL) {
        return;
    }
    for (size_t i = 0; i < cut->to_head->waiting.count; i++) {
        struct sim_bytes **place = pl_vec_push(&cut->late);

        PL_CHECK(place != NULL);
        *place = *(struct sim_bytes **)pl_vec_at(&cut->to_head->waiting, i);
    }
    pl_vec_clear(&cut->to_head->waiting);
}

static void late_arrives(void *user, uint64_t arg, void *data)
{
    struct sim_cut *cut           = user;
    const struct sim_bytes *bytes = data;

    (void)arg;
    if (!sim_head_down(cut->sim)) {
        cut->ops->late(cut->user, bytes->data, bytes->length);
    }
}

static void late_send(struct sim_cut *cut)
{
    uint64_t delay = sim_between(cut->sim, LATE_MIN_NS, LATE_MAX_NS);

    for (size_t i = 0; i < cut->late.count; i++) {
        struct sim_bytes *bytes = *(struct sim_bytes **)pl_vec_at(&cut->late, i);

        sim_after(cut->sim, delay + i, late_arrives, cut, 0, bytes);
    }
    pl_vec_clear(&cut->late);
}

/* ----------------------------------------------------------------------- cut and healed */

static void cover_cut(struct sim_cut *cut)
{
    bool head = cut->head_closed == cut->life_before;
    bool peer = cut->peer_gave_up;

    sim_cover(cut->sim, head && peer ? SIM_CELL_CUT_BOTH
                        : head       ? SIM_CELL_CUT_HEAD
                        : peer       ? SIM_CELL_CUT_PEER
                                     : SIM_CELL_CUT_NOBODY);
}

static void healed(void *user, uint64_t arg, void *data)
{
    struct sim_cut *cut = user;

    (void)data;
    if (!cut->on || arg != cut->serial) {
        return;
    }
    cut->on        = false;
    cut->healed_ns = cut->sim->now_ns;
    cover_cut(cut);
    sim_trace(cut->sim, "a cut is over");
    if (cut->to_head->up && cut->to_head->life == cut->head_closed) {
        cut->ops->peer_gives_up(cut->user); /* nobody is there at the other end */
    } else if (cut->unnoticed && !cut->to_head->up) {
        cut->ops->head_notices(cut->user);
    }
    cut->unnoticed = false;
    sim_pipe_release(cut->to_head);
    sim_pipe_release(cut->from_head);
    late_send(cut);
}

static uint64_t draw_length(struct sim *sim)
{
    uint64_t roll = sim_below(sim, 100);

    if (sim->config.cut_lease_permille != 0 &&
        sim_chance(sim, sim->config.cut_lease_permille)) {
        return sim_between(sim, CUT_LEASE_MIN_NS, CUT_LEASE_MAX_NS);
    }
    return roll < 50   ? sim_between(sim, 1000, CUT_SHORT_MAX_NS)
           : roll < 95 ? sim_between(sim, CUT_SHORT_MAX_NS, CUT_MIDDLE_MAX_NS)
                       : sim_between(sim, CUT_MIDDLE_MAX_NS, CUT_LONG_MAX_NS);
}

bool sim_cut_begin(struct sim_cut *cut, uint64_t at_least_ns)
{
    struct sim *sim = cut->sim;
    uint64_t length = pl_max_u64(draw_length(sim), at_least_ns);
    uint64_t tries  = sim_below(sim, 4);

    if (cut->on) {
        return false;
    }
    cut->on = true;
    cut->serial++;
    cut->life_before  = cut->to_head->life;
    cut->peer_gave_up = false;
    sim_trace(sim, "a cut of %llu us", (unsigned long long)length / 1000);
    sim_pipe_hold(cut->to_head);
    sim_pipe_hold(cut->from_head);
    for (uint64_t i = 0; i < tries; i++) {
        sim_after(sim, sim_below(sim, length), peer_gives_up, cut, cut->serial, NULL);
    }
    if (cut->to_head->up && (length >= CUT_LEASE_MIN_NS || sim_chance(sim, 500))) {
        sim_after(sim, sim_below(sim, pl_min_u64(length, CUT_LEASE_MIN_NS / 4)),
                  head_gives_up, cut, cut->serial, NULL);
    }
    sim_after(sim, length, healed, cut, cut->serial, NULL);
    return true;
}
