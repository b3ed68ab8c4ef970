/*
 * Building graphs: arrays, steps, launch shapes; and whether the hand-written order of a graph's
 * streams is enough.
 */
#include "bench/graphs/graph.h"

#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"

/* ------------------------------------------------------------------------------- arrays */

static uint64_t element_bytes(plasmon_dtype_t dtype)
{
    switch (dtype) {
    case PLASMON_F32:
    case PLASMON_I32:
    case PLASMON_U32:
        return 4;
    case PLASMON_F64:
    case PLASMON_I64:
        return 8;
    default:
        bench_die("a graph has an array of dtype %d", (int)dtype);
    }
}

struct graphs_array *graphs_array_at(const struct graphs_graph *graph, uint32_t number)
{
    return pl_vec_at(&graph->arrays, number);
}

struct graphs_step *graphs_step_at(const struct graphs_graph *graph, uint32_t number)
{
    return pl_vec_at(&graph->steps, number);
}

static void *must_push(struct pl_vec *vec)
{
    void *item = pl_vec_push(vec);

    if (item == NULL) {
        bench_die("out of host memory");
    }
    return item;
}

uint32_t graphs_array(struct graphs_graph *graph, enum graphs_role role,
                      plasmon_dtype_t dtype, uint32_t ndim, int64_t a, int64_t b, int64_t c)
{
    struct graphs_array *array = must_push(&graph->arrays);

    *array       = (struct graphs_array){.role = role, .parts = 1};
    array->shape = (struct plasmon_shape){.dtype = dtype, .ndim = ndim, .dim = {a, b, c}};
    array->elements = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        array->elements *= (uint64_t)array->shape.dim[i];
    }
    array->bytes = array->elements * element_bytes(dtype);
    return (uint32_t)graph->arrays.count - 1;
}

uint32_t graphs_input(struct graphs_graph *graph, plasmon_dtype_t dtype, uint32_t ndim,
                      int64_t a, int64_t b, int64_t c)
{
    uint32_t number            = graphs_array(graph, GRAPHS_INPUT, dtype, ndim, a, b, c);
    struct graphs_array *array = graphs_array_at(graph, number);

    /* Shared: a child that pins its copy would otherwise make one. */
    array->data =
        mmap(NULL, array->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (array->data == MAP_FAILED) {
        bench_die("out of host memory: an input of %s has %llu bytes",
                  graph->definition->title, (unsigned long long)array->bytes);
    }
    (void)madvise(array->data, array->bytes, MADV_HUGEPAGE); /* where it is allowed */
    return number;
}

void *graphs_data(const struct graphs_graph *graph, uint32_t input)
{
    return graphs_array_at(graph, input)->data;
}

void graphs_split(struct graphs_graph *graph, uint32_t number, uint32_t parts)
{
    struct graphs_array *array = graphs_array_at(graph, number);

    if (array->shape.dim[0] % parts != 0) {
        bench_die("%s: %lld rows do not make %u parts", graph->definition->title,
                  (long long)array->shape.dim[0], parts);
    }
    array->parts  = parts;
    graph->places = (uint32_t)pl_max_u64(graph->places, parts);
}

static uint64_t param_offset(const struct graphs_graph *graph,
                             const struct graphs_param *param)
{
    return param->is_part ? graphs_param_bytes(graph, param) * param->part : 0;
}

uint64_t graphs_param_bytes(const struct graphs_graph *graph,
                            const struct graphs_param *param)
{
    const struct graphs_array *array = graphs_array_at(graph, param->array);

    return param->is_part ? array->bytes / array->parts : array->bytes;
}

union graphs_value graphs_param_value(const struct graphs_graph *graph,
                                      const struct graphs_param *param, uint64_t base)
{
    switch (param->kind) {
    case GRAPHS_TENSOR:
        return (union graphs_value){.address = base + param_offset(graph, param)};
    case GRAPHS_I64:
        return (union graphs_value){.i = param->value.i};
    case GRAPHS_F32:
        return (union graphs_value){.f = (float)param->value.f};
    case GRAPHS_F64:
        return (union graphs_value){.d = param->value.f};
    }
    bench_die("a parameter has kind %d", (int)param->kind);
}

uint32_t graphs_device_of(const struct graphs_graph *graph, uint32_t place,
                          uint32_t devices)
{
    return place * devices / graph->places;
}

/* --------------------------------------------------------------------------- signatures */

static const struct {
    const char *word;
    enum graphs_param_kind kind;
    plasmon_mode_t mode;
} words[] = {
    {"in ", GRAPHS_TENSOR, PLASMON_IN},
    {"out ", GRAPHS_TENSOR, PLASMON_OUT},
    {"inout ", GRAPHS_TENSOR, PLASMON_INOUT},
    {"scratch ", GRAPHS_TENSOR, PLASMON_SCRATCH},
    {"i64 ", GRAPHS_I64, 0},
    {"f32 ", GRAPHS_F32, 0},
    {"f64 ", GRAPHS_F64, 0},
};

/* The parameter at *at, which moves past it; commas inside brackets are not ends. false: there is none. */
static bool next_param(const char **at, struct graphs_param *out)
{
    const char *from = *at;
    uint32_t depth   = 0;

    from += strspn(from, "(, ");
    for (size_t i = 0; i < PL_COUNT(words); i++) {
        if (strncmp(from, words[i].word, strlen(words[i].word)) != 0) {
            continue;
        }
        out->kind = words[i].kind;
        out->mode = words[i].mode;
        for (*at = from; **at != '\0' && (depth > 0 || (**at != ',' && **at != ')'));
             ++*at) {
            depth += **at == '[';
            depth -= **at == ']';
        }
        return true;
    }
    return false;
}

static void take_params(struct graphs_step *step, const struct graphs_kernel *kernel,
                        const struct graphs_param *params, uint32_t count)
{
    const char *at = strchr(kernel->signature, '(');

    for (uint32_t i = 0; i < count; i++) {
        struct graphs_param wanted;

        if (i == GRAPHS_PARAMS_MAX || !next_param(&at, &wanted) ||
            wanted.kind != params[i].kind) {
            bench_die("parameter %u of %s is not as in its signature", i, kernel->name);
        }
        step->param[i]      = params[i];
        step->param[i].mode = wanted.mode;
    }
    if (strcmp(at, ")") != 0) {
        bench_die("%s got %u parameters and wants more", kernel->name, count);
    }
    step->param_count = count;
}

/* -------------------------------------------------------------------------------- steps */

static uint32_t find_kernel(const struct graphs_definition *definition, const char *name)
{
    for (uint32_t i = 0; i < definition->kernel_count; i++) {
        if (strcmp(definition->kernels[i].name, name) == 0) {
            return i;
        }
    }
    bench_die("%s has no kernel %s", definition->title, name);
}

uint32_t graphs_step(struct graphs_graph *graph, const char *kernel,
                     struct graphs_launch launch, uint32_t stream,
                     const struct graphs_param *params, uint32_t param_count)
{
    struct graphs_step *step = must_push(&graph->steps);

    *step        = (struct graphs_step){.launch = launch, .stream = stream};
    step->kernel = find_kernel(graph->definition, kernel);
    take_params(step, &graph->definition->kernels[step->kernel], params, param_count);
    if (stream >= GRAPHS_STREAMS) {
        bench_die("%s uses stream %u", graph->definition->title, stream);
    }
    graph->streams = (uint32_t)pl_max_u64(graph->streams, stream + 1);
    return (uint32_t)graph->steps.count - 1;
}

void graphs_after(struct graphs_graph *graph, uint32_t number, uint32_t other)
{
    struct graphs_step *step = graphs_step_at(graph, number);

    if (other >= number || step->after_count == GRAPHS_AFTER_MAX) {
        bench_die("%s: step %u cannot wait for step %u", graph->definition->title, number,
                  other);
    }
    step->after[step->after_count++] = other;
}

void graphs_place(struct graphs_graph *graph, uint32_t step, uint32_t place)
{
    graphs_step_at(graph, step)->place = place;
}

struct graphs_launch graphs_blocks(int64_t count, int64_t each, uint32_t threads)
{
    return (struct graphs_launch){.grid  = {(uint32_t)((count + each - 1) / each), 1, 1},
                                  .block = {threads, 1, 1}};
}

struct graphs_launch graphs_loop(int64_t count, uint32_t threads)
{
    struct graphs_launch launch = graphs_blocks(count, threads, threads);

    launch.grid[0] = (uint32_t)pl_min_u64(launch.grid[0], GRAPHS_LOOP_BLOCKS);
    return launch;
}

struct graphs_launch graphs_tiles(int64_t columns, int64_t rows, uint32_t block_x,
                                  uint32_t block_y, uint32_t each_x, uint32_t each_y)
{
    int64_t x = (int64_t)block_x * each_x, y = (int64_t)block_y * each_y;

    return (struct graphs_launch){
        .grid  = {(uint32_t)((columns + x - 1) / x), (uint32_t)((rows + y - 1) / y), 1},
        .block = {block_x, block_y, 1}};
}

/* ------------------------------------------------------------------- the person's order */

static bool touches(const struct graphs_step *step, uint32_t array, bool *out_writes)
{
    bool found = false;

    *out_writes = false;
    for (uint32_t i = 0; i < step->param_count; i++) {
        if (step->param[i].kind == GRAPHS_TENSOR && step->param[i].array == array) {
            found = true;
            *out_writes |= step->param[i].mode != PLASMON_IN;
        }
    }
    return found;
}

/* An array that both use and one writes; -1: none. */
static int64_t conflict(const struct graphs_step *a, const struct graphs_step *b)
{
    for (uint32_t i = 0; i < a->param_count; i++) {
        bool a_writes, b_writes;

        if (a->param[i].kind == GRAPHS_TENSOR && touches(a, a->param[i].array, &a_writes) &&
            touches(b, a->param[i].array, &b_writes) && (a_writes || b_writes)) {
            return a->param[i].array;
        }
    }
    return -1;
}

bool graphs_steps_conflict(const struct graphs_step *a, const struct graphs_step *b)
{
    return conflict(a, b) >= 0;
}

/* before[i]: step i ends before this one begins, by its stream or by waits, directly or through others. */
static void collect(const struct graphs_graph *graph, uint32_t number, bool *before)
{
    const struct graphs_step *step = graphs_step_at(graph, number);

    before[number] = true;
    for (uint32_t i = 0; i < step->after_count; i++) {
        if (!before[step->after[i]]) {
            collect(graph, step->after[i], before);
        }
    }
    for (uint32_t i = number; i-- > 0;) {
        if (graphs_step_at(graph, i)->stream == step->stream) {
            if (!before[i]) {
                collect(graph, i, before);
            }
            return;
        }
    }
}

bool graphs_check_order(const struct graphs_graph *graph, struct pl_err *err)
{
    bool *before = bench_must_alloc(graph->steps.count);
    bool ok      = true;

    for (uint32_t i = 0; i < graph->steps.count && ok; i++) {
        memset(before, 0, graph->steps.count);
        collect(graph, i, before);
        for (uint32_t j = 0; j < i && ok; j++) {
            int64_t array = conflict(graphs_step_at(graph, j), graphs_step_at(graph, i));

            ok = array < 0 || before[j];
            if (!ok) {
                (void)pl_err_set(
                    err, PLASMON_EINVAL,
                    "%s: steps %u and %u both use array %lld and nothing orders "
                    "them",
                    graph->definition->title, j, i, (long long)array);
            }
        }
    }
    pl_free(before);
    return ok;
}

/* --------------------------------------------------------------------------------- life */

void graphs_graph_build(struct graphs_graph *graph,
                        const struct graphs_definition *definition, int64_t n,
                        uint64_t seed)
{
    *graph = (struct graphs_graph){
        .definition = definition, .n = n, .seed = seed & GRAPHS_SEED_MASK, .places = 1};
    graph->arrays  = PL_VEC_INIT(struct graphs_array);
    graph->steps   = PL_VEC_INIT(struct graphs_step);
    graph->expects = PL_VEC_INIT(struct graphs_expect);
    definition->build(graph);
}

void graphs_graph_finish(struct graphs_graph *graph)
{
    for (uint32_t i = 0; i < graph->arrays.count; i++) {
        struct graphs_array *array = graphs_array_at(graph, i);

        if (array->data != NULL) {
            (void)munmap(array->data, array->bytes); /* as it was mapped */
        }
    }
    for (size_t i = 0; i < graph->expects.count; i++) {
        graphs_expect_finish(pl_vec_at(&graph->expects, i));
    }
    pl_vec_finish(&graph->arrays);
    pl_vec_finish(&graph->steps);
    pl_vec_finish(&graph->expects);
}
