/* What a graph must give, computed in fp64, and whether it did. */
#include "bench/graphs/graph.h"

#include <math.h>

#include "base/alloc.h"

#define SAMPLES 1000003u /* a prime: samples of an image do not fall into one column */

uint64_t graphs_sample(uint64_t elements)
{
    return elements <= 2 * SAMPLES ? 1 : (elements / SAMPLES) | 1;
}

struct graphs_expect *graphs_expect(struct graphs_graph *graph, uint32_t array,
                                    double absolute, double relative)
{
    uint64_t elements = graphs_array_at(graph, array)->elements;

    return graphs_expect_every(graph, array, graphs_sample(elements), absolute, relative);
}

struct graphs_expect *graphs_expect_every(struct graphs_graph *graph, uint32_t array,
                                          uint64_t step, double absolute, double relative)
{
    struct graphs_expect *expect = pl_vec_push(&graph->expects);
    uint64_t elements            = graphs_array_at(graph, array)->elements;

    if (expect == NULL) {
        bench_die("out of host memory");
    }
    *expect = (struct graphs_expect){
        .array = array, .step = step, .absolute = absolute, .relative = relative};
    expect->count = (elements + expect->step - 1) / expect->step;
    expect->want  = bench_must_alloc(expect->count * sizeof(*expect->want));
    return expect;
}

static double element(const void *data, plasmon_dtype_t dtype, uint64_t index)
{
    switch (dtype) {
    case PLASMON_F32:
        return (double)((const float *)data)[index];
    case PLASMON_F64:
        return ((const double *)data)[index];
    case PLASMON_I32:
        return ((const int32_t *)data)[index];
    default:
        bench_die("an output of dtype %d cannot be compared", (int)dtype);
    }
}

bool graphs_compare(const struct graphs_graph *graph, const struct graphs_expect *expect,
                    const void *data, struct pl_err *err)
{
    const struct graphs_array *array = graphs_array_at(graph, expect->array);

    for (uint64_t i = 0; i < expect->count; i++) {
        double want = expect->want[i];
        double got  = element(data, array->shape.dtype, i * expect->step);

        /* Written so that a NaN among the results is wrong. */
        if (!isnan(want) &&
            !(fabs(got - want) <= expect->absolute + expect->relative * fabs(want))) {
            (void)pl_err_set(
                err, PLASMON_EDEVICE,
                "%s, N %lld, seed %llu: element %llu of array %u is %.9g and should "
                "be %.9g (bound %.2g + %.2g of it)",
                graph->definition->title, (long long)graph->n,
                (unsigned long long)graph->seed, (unsigned long long)(i * expect->step),
                expect->array, got, want, expect->absolute, expect->relative);
            return false;
        }
    }
    return true;
}
