/*
 * Between graph_make.c, graph_calls.c and graph_args.c: random numbers of a program, calls, and
 * arguments that fit.
 */
#ifndef TESTS_SIM_GRAPH_INT_H
#define TESTS_SIM_GRAPH_INT_H

#include "tests/sim/graph.h"

uint64_t graph_draw(struct graph *graph, uint64_t bound); /* 0 .. bound - 1 */
bool graph_chance(struct graph *graph, uint64_t permille);
uint64_t graph_between(struct graph *graph, uint64_t low,
                       uint64_t high); /* both included */

struct pl_shape graph_random_shape(struct graph *graph, uint32_t ndim, uint32_t dtype);
/* base NULL: the whole of root. */
uint32_t graph_ref_add(struct graph *graph, uint32_t client, const struct pl_shape *root,
                       const struct pl_view *base);
bool graph_has_room(const struct graph *graph); /* for a few more refs */
bool graph_pick_ref(struct graph *graph, uint32_t client, uint32_t *out_ref);

/* A view of the ref, of some kind. */
struct pl_view graph_any_view(struct graph *graph, const struct graph_ref *ref,
                              bool *out_nested);
bool graph_arg_make(struct graph *graph, uint32_t ref, uint32_t mode,
                    const struct pl_view *view, bool nested, struct graph_arg *out);
void graph_arg_commit(struct graph *graph, struct graph_step *step,
                      const struct graph_arg *arg);
/* An argument of that shape and dtype; not_dtype other than 0: of any dtype but that. */
bool graph_add_like(struct graph *graph, struct graph_step *step, uint32_t mode,
                    const struct pl_shape *shape, uint32_t not_dtype);
/* OUT of a new ref. */
void graph_add_fresh(struct graph *graph, struct graph_step *step,
                     const struct pl_shape *shape);
/* Working memory of the step; its ref is a place in the model alone. */
void graph_add_scratch(struct graph *graph, struct graph_step *step,
                       const struct pl_shape *shape);

/*
 * graph_calls.c: some call with its arguments. false: nothing fits; what it added is the caller's
 * to take back.
 */
bool graph_make_call(struct graph *graph, struct graph_step *step);

#endif
