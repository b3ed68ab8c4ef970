/*
 * What a graph must give, and whether it did.
 *
 * SAMPLE  The reference, in fp64, knows every element of a small output and about 250,000 of a
 *         large one: every step-th from a random first one on, with an odd step. A mistake in one
 *         of 20,000 elements is missed with a probability of e^-12 if it has nothing to do with the
 *         step. Reductions (VEC, DL) and HITS have a reference that reads every element of every
 *         input.
 *
 * KEPT    The first contestant that passes leaves its whole output in memory that the others see,
 *         who hold every element of theirs against it, within twice the bound: the same kernels ran
 *         on the same bytes. (Not to the bit: sums by atomics are in any order.) So a part of an
 *         output that somebody did not write, or wrote before its inputs were there, shows wherever
 *         it is.
 *
 * Whatever is written has been set to "no number" before, on yardsticks; a NaN is wrong everywhere.
 */
#include "bench/graphs/graph.h"

#include <math.h>
#include <sys/mman.h>

#include "base/alloc.h"

#define SAMPLES 250007u /* a prime: samples of an image do not fall into one column */
/* of whole numbers, one in so many may differ: rounding decides ties */
#define OPEN_MAX 10000u

struct graphs_kept {
    uint64_t bytes;
    bool is_there;
    _Alignas(64) uint8_t data[];
};

/* ------------------------------------------------------------------------------ samples */

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

/* Touched only when somebody writes it. */
static struct graphs_kept *kept_create(uint64_t bytes)
{
    struct graphs_kept *kept = mmap(NULL, sizeof(*kept) + bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (kept == MAP_FAILED) {
        bench_die("out of host memory: a result has %llu bytes", (unsigned long long)bytes);
    }
    kept->bytes = bytes;
    return kept;
}

struct graphs_expect *graphs_expect_every(struct graphs_graph *graph, uint32_t number,
                                          uint64_t step, double absolute, double relative)
{
    struct graphs_expect *expect     = pl_vec_push(&graph->expects);
    const struct graphs_array *array = graphs_array_at(graph, number);

    if (expect == NULL) {
        bench_die("out of host memory");
    }
    *expect = (struct graphs_expect){
        .array = number, .step = step, .absolute = absolute, .relative = relative};
    expect->first = graphs_random(graph->seed, SAMPLES) % pl_min_u64(step, array->elements);
    expect->count = (array->elements - expect->first + step - 1) / step;
    expect->want  = bench_must_alloc(expect->count * sizeof(*expect->want));
    expect->kept  = kept_create(array->bytes);
    return expect;
}

void graphs_expect_finish(struct graphs_expect *expect)
{
    (void)munmap(expect->kept, sizeof(*expect->kept) + expect->kept->bytes);
    pl_free(expect->want);
}

uint64_t graphs_output_bytes(const struct graphs_graph *graph)
{
    uint64_t most = 0;

    for (size_t i = 0; i < graph->expects.count; i++) {
        const struct graphs_expect *expect = pl_vec_at(&graph->expects, i);

        most = pl_max_u64(most, graphs_array_at(graph, expect->array)->bytes);
    }
    return most;
}

/* -------------------------------------------------------------------------- one element */

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

/* Written so that a NaN is wrong. */
static bool is_near(const struct graphs_expect *expect, double got, double want,
                    double times)
{
    return fabs(got - want) <= times * (expect->absolute + expect->relative * fabs(want));
}

static void say_wrong(const struct graphs_graph *graph, const struct graphs_expect *expect,
                      uint64_t index, double got, double want, const char *whose,
                      struct pl_err *err)
{
    (void)pl_err_set(err, PLASMON_EDEVICE,
                     "%s, N %lld, seed %llu: element %llu of array %u is %.9g and %s %.9g "
                     "(bound %.2g + %.2g of it)",
                     graph->definition->title, (long long)graph->n,
                     (unsigned long long)graph->seed, (unsigned long long)index,
                     expect->array, got, whose, want, expect->absolute, expect->relative);
}

static bool sample_is_right(const struct graphs_graph *graph,
                            const struct graphs_expect *expect, const void *data,
                            struct pl_err *err)
{
    plasmon_dtype_t dtype = graphs_array_at(graph, expect->array)->shape.dtype;

    for (uint64_t i = 0; i < expect->count; i++) {
        uint64_t at = graphs_expect_at(expect, i);
        double got  = element(data, dtype, at);

        if (!isnan(expect->want[i]) && !is_near(expect, got, expect->want[i], 1)) {
            say_wrong(graph, expect, at, got, expect->want[i], "should be", err);
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------- all elements */

struct comparison {
    const struct graphs_expect *expect;
    const void *data;
    plasmon_dtype_t dtype;
    uint64_t differ; /* atomic */
    uint64_t lowest; /* atomic: one of them */
};

static void compare_piece(void *user, int64_t begin, int64_t end)
{
    struct comparison *it = user;
    uint64_t differ = 0, lowest = UINT64_MAX;

    for (int64_t i = begin; i < end; i++) {
        uint64_t at = (uint64_t)i;

        if (!is_near(it->expect, element(it->data, it->dtype, at),
                     element(it->expect->kept->data, it->dtype, at), 2)) {
            lowest = differ++ == 0 ? at : lowest;
        }
    }
    if (differ > 0) {
        (void)__atomic_fetch_add(&it->differ, differ, __ATOMIC_RELAXED);
        __atomic_store_n(&it->lowest, lowest, __ATOMIC_RELAXED); /* any will do */
    }
}

static bool all_is_as_kept(const struct graphs_graph *graph,
                           const struct graphs_expect *expect, const void *data,
                           struct pl_err *err)
{
    const struct graphs_array *array = graphs_array_at(graph, expect->array);
    struct comparison it = {.expect = expect, .data = data, .dtype = array->shape.dtype};
    uint64_t allowed     = it.dtype == PLASMON_I32 ? array->elements / OPEN_MAX + 1 : 0;

    graphs_parallel((int64_t)array->elements, compare_piece, &it);
    if (it.differ <= allowed) {
        return true;
    }
    say_wrong(graph, expect, it.lowest, element(data, it.dtype, it.lowest),
              element(expect->kept->data, it.dtype, it.lowest), "by the first contestant",
              err);
    return false;
}

struct keeping {
    uint8_t *to;
    const uint8_t *from;
};

static void keep_piece(void *user, int64_t begin, int64_t end)
{
    const struct keeping *it = user;

    memcpy(it->to + begin, it->from + begin, (size_t)(end - begin));
}

bool graphs_compare(const struct graphs_graph *graph, const struct graphs_expect *expect,
                    const void *data, struct pl_err *err)
{
    struct graphs_kept *kept = expect->kept;

    if (!sample_is_right(graph, expect, data, err)) {
        return false;
    }
    if (kept->is_there) {
        return all_is_as_kept(graph, expect, data, err);
    }
    graphs_parallel((int64_t)kept->bytes, keep_piece,
                    &(struct keeping){.to = kept->data, .from = data});
    kept->is_there = true; /* children run one after the other */
    return true;
}
