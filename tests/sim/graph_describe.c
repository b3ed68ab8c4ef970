/* A program as text, for whoever has to find out why a seed fails. */
#include "tests/sim/graph.h"

static void describe_arg(const struct graph_arg *arg, struct pl_str *out)
{
    static const char *const kinds[] = {"whole", "dense", "strided", "overlapping",
                                        "nested"};
    static const char *const modes[] = {"?", "in", "out", "inout", "reduce"};

    pl_str_append(out, " %s%s r%u", arg->mode <= 4 ? modes[arg->mode] : "scratch",
                  arg->fresh ? " new" : "", arg->ref);
    if (arg->kind != GRAPH_WHOLE) {
        pl_str_append(out, " %s[", kinds[arg->kind]);
        for (uint32_t d = 0; d < arg->root.ndim; d++) {
            pl_str_append(out, "%s%lld+%lldx%lld", d == 0 ? "" : ", ",
                          (long long)arg->root.start[d], (long long)arg->root.count[d],
                          (long long)arg->root.step[d]);
        }
        pl_str_append(out, "]");
    }
    if (arg->mode == KERNEL_REDUCE) {
        pl_str_append(out, " op %u", arg->reduce_op);
    }
}

void graph_describe(const struct graph *graph, uint32_t first, struct pl_str *out)
{
    static const char *const names[] = {"run",    "put",     "put shared", "snapshot",
                                        "read",   "map",     "unmap",      "release",
                                        "cancel", "publish", "lookup",     "unpublish"};
    const struct sim_config *config  = &graph->config;

    pl_str_append(
        out,
        "seed %llu: %u devices, %u clients, %u streams, policy %s, transfer %d, peer "
        "%d, chains from %llu, window %u, credit %llu, memory %llu, crashes %u, breaks %u",
        (unsigned long long)graph->seed, config->devices, config->clients,
        config->run_streams, config->policy, (int)config->transfer, config->peer_capable,
        (unsigned long long)config->chain_bytes, config->window,
        (unsigned long long)config->credit, (unsigned long long)config->device_bytes,
        config->crashes_max, config->breaks_max);
    if (graph->client_crashes) {
        pl_str_append(out, ", client %u dies before step %u", graph->crash_client,
                      graph->crash_step);
    }
    pl_str_append(out, "\n");
    for (uint32_t i = first; i < graph->step_count; i++) {
        const struct graph_step *step = &graph->steps[i];
        char shape[128];

        pl_str_append(out, "%3u c%u %s %s", i, step->client, names[step->kind],
                      step->function != NULL ? step->function : "");
        for (uint32_t a = 0; a < step->arg_count; a++) {
            describe_arg(&step->args[a], out);
            if (step->args[a].fresh) {
                pl_str_append(out, " %s",
                              pl_shape_format(&graph->refs[step->args[a].ref].root, shape));
            }
        }
        if (step->kind == GRAPH_SNAPSHOT || step->kind == GRAPH_LOOKUP ||
            step->kind == GRAPH_RELEASE) {
            pl_str_append(out, " -> r%u", step->target);
        } else if (step->kind == GRAPH_CANCEL || step->kind == GRAPH_UNMAP) {
            pl_str_append(out, " step %u", step->target);
        }
        if (step->time_limit_ms != 0 || step->endless || step->force) {
            pl_str_append(out, ", limit %u ms%s%s", step->time_limit_ms,
                          step->endless ? ", endless" : "",
                          step->force ? ", by force" : "");
        }
        if (step->place != 0) {
            pl_str_append(out, " on %u", step->place - 1);
        }
        if (step->donatable) {
            pl_str_append(out, " donatable");
        }
        if (step->task != 0) {
            pl_str_append(out, "  (task %llu%s%s)", (unsigned long long)step->task,
                          step->answers[0] != NULL && step->answers[0]->answered ? ": "
                                                                                 : "",
                          step->answers[0] != NULL && step->answers[0]->answered
                              ? pl_status_name(step->answers[0]->status)
                              : "");
        }
        pl_str_append(out, "\n");
    }
}
