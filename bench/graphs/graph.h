/*
 * Task graphs as data. A graph is a list of arrays and a list of steps; a step is one launch of a
 * kernel, with arrays and numbers in the order of the kernel's parameters. Whoever plays it -
 * Plasmon, or one of the yardsticks - sees the same kernels, from the same text, with the same
 * launch shapes, on the same bytes; they differ in who finds out what may run at the same time:
 *
 *   Plasmon     from the access modes in the kernels' signatures
 *   serial      nobody: one stream, and a synchronisation after each kernel
 *   events      a person: each step names its stream and the steps of other streams that it waits
 *               for (graphs_after)
 *   graph       the same person: a CUDA graph captured from those streams
 *
 * graphs_check_order() proves that what the person wrote covers every dependency: a race would be a
 * yardstick that is too fast.
 *
 * FILES   vec.c bs.c img.c ml.c hits.c dl.c   a graph each: its arrays, its steps, its results in fp64
 *         vec.cu ... vec_cpu.c ...            its kernels, as text for GPUs and for CPU devices;
 *                                             reduce.cu stands before each .cu
 *         graph.c expect.c parallel.c         building graphs, results and their bounds, threads
 *                                             for references
 *         ml_reference.c                      what ml.c and multi_ml.c share in fp64
 *         room.c                              how much faster than serial a graph could be
 *         multi_vec.c multi_ml.c multi_dense.c the graphs for several devices
 *         bare.c bare_cuda.c bare_cpu.c       the yardsticks; multi_cuda.c: on several GPUs
 *         play.c multi_play.c                 Plasmon
 *
 * A graph is built and its results are computed once, in the parent; the children that play it inherit both.
 */
#ifndef BENCH_GRAPHS_GRAPH_H
#define BENCH_GRAPHS_GRAPH_H

#include <string.h>

#include "bench/bench.h"

#define GRAPHS_PARAMS_MAX 12
#define GRAPHS_AFTER_MAX  4
#define GRAPHS_STREAMS    16

/* ------------------------------------------------------------------------------ kernels */

struct graphs_kernel {
    const char *name;      /* of the __global__, and of the C function */
    const char *signature; /* as plasmon_function_source() takes it */
};
enum graphs_size { GRAPHS_TINY, GRAPHS_SMALL, GRAPHS_MIDDLE, GRAPHS_LARGE, GRAPHS_SIZES };

struct graphs_graph;
struct graphs_definition {
    const char *title;  /* "B&S" */
    const char *option; /* "bs" */
    const char *(*cuda_text)(void);
    const char *(*c_text)(void);
    const struct graphs_kernel *kernels;
    uint32_t kernel_count;
    int64_t size[GRAPHS_SIZES]; /* N; TINY is what a CPU device does in a test */
    double published;           /* GrCUDA's speed over serial on a P100 */
    /* Adds arrays with their inputs, steps and expectations. `seed` makes the inputs. */
    void (*build)(struct graphs_graph *graph);
};
extern const struct graphs_definition graphs_vec, graphs_bs, graphs_img, graphs_ml,
    graphs_hits, graphs_dl;
/* For several devices: arrays in 16 parts (B&S: 24), and steps that work on one of them. */
extern const struct graphs_definition graphs_multi_vec, graphs_multi_bs, graphs_multi_ml,
    graphs_multi_cg, graphs_multi_mul;

/* ------------------------------------------------------------------------------- arrays */

enum graphs_role {
    GRAPHS_INPUT,   /* has bytes */
    GRAPHS_MADE,    /* made once by the first steps (graph->init_steps), then only read */
    GRAPHS_STATE,   /* starts as zeros, and every run leaves zeros: tickets */
    GRAPHS_TEMP,    /* made and used by a run */
    GRAPHS_SCRATCH, /* used by one step */
    GRAPHS_OUTPUT,  /* made by a run; somebody reads it */
};
struct graphs_array {
    enum graphs_role role;
    struct plasmon_shape shape;
    /* equal ones along the first dimension, for several devices; 1: whole */
    uint32_t parts;
    uint64_t elements, bytes;
    void *data; /* GRAPHS_INPUT: owned */
};

/* -------------------------------------------------------------------------------- steps */

enum graphs_param_kind {
    GRAPHS_TENSOR,
    GRAPHS_I64,
    GRAPHS_F32,
    GRAPHS_F64,
};
struct graphs_param {
    enum graphs_param_kind kind;
    uint32_t array; /* GRAPHS_TENSOR */
    bool is_part;   /* of it, this one: */
    uint32_t part;
    plasmon_scalar_t value; /* the others */
    plasmon_mode_t mode;    /* GRAPHS_TENSOR: from the signature */
};
#define GRAPHS_A(number)                         \
    {                                            \
        .kind = GRAPHS_TENSOR, .array = (number) \
    }
#define GRAPHS_P(number, of)                                                    \
    {                                                                           \
        .kind = GRAPHS_TENSOR, .array = (number), .is_part = true, .part = (of) \
    }
#define GRAPHS_I(number)                              \
    {                                                 \
        .kind = GRAPHS_I64, .value = {.i = (number) } \
    }
#define GRAPHS_F(number)                              \
    {                                                 \
        .kind = GRAPHS_F32, .value = {.f = (number) } \
    }
#define GRAPHS_D(number)                              \
    {                                                 \
        .kind = GRAPHS_F64, .value = {.f = (number) } \
    }

struct graphs_launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
};
struct graphs_step {
    uint32_t kernel; /* of the definition */
    struct graphs_launch launch;
    struct graphs_param param[GRAPHS_PARAMS_MAX];
    uint32_t param_count;
    /* The person's work. */
    uint32_t stream;
    uint32_t after[GRAPHS_AFTER_MAX]; /* earlier steps of other streams */
    uint32_t after_count;
    /* several devices: of graph->places, which the person deals out in blocks */
    uint32_t place;
};

/* Every `step`-th element of an output from `first` on, and what it must be. */
struct graphs_expect {
    uint32_t array;
    uint64_t first, step, count;
    double *want;              /* owned; NaN: not known, not looked at */
    double absolute, relative; /* |got - want| <= absolute + relative |want| */
    struct graphs_kept *kept;  /* owned: all of it, of who ran first (expect.c) */
};

struct graphs_graph {
    const struct graphs_definition *definition;
    int64_t n;
    uint64_t seed;
    struct pl_vec arrays;  /* struct graphs_array */
    struct pl_vec steps;   /* struct graphs_step */
    struct pl_vec expects; /* struct graphs_expect */
    uint32_t streams;      /* that the person uses */
    uint32_t init_steps;   /* the first of the steps, which run once */
    uint32_t places;       /* 1 unless the graph is for several devices */
};

/* Exits when memory is short, as everything in a benchmark. */
void graphs_graph_build(struct graphs_graph *graph,
                        const struct graphs_definition *definition, int64_t n,
                        uint64_t seed);
void graphs_graph_finish(struct graphs_graph *graph);
struct graphs_array *graphs_array_at(const struct graphs_graph *graph, uint32_t number);
struct graphs_step *graphs_step_at(const struct graphs_graph *graph, uint32_t number);

/* Numbers of arrays. */
uint32_t graphs_array(struct graphs_graph *graph, enum graphs_role role,
                      plasmon_dtype_t dtype, uint32_t ndim, int64_t a, int64_t b,
                      int64_t c);
/* One with memory to fill. */
uint32_t graphs_input(struct graphs_graph *graph, plasmon_dtype_t dtype, uint32_t ndim,
                      int64_t a, int64_t b, int64_t c);
void *graphs_data(const struct graphs_graph *graph, uint32_t input);

/* Cut an array along its first dimension. */
void graphs_split(struct graphs_graph *graph, uint32_t array, uint32_t parts);
/* Of a tensor parameter. */
uint64_t graphs_param_bytes(const struct graphs_graph *graph,
                            const struct graphs_param *param);
/* What a kernel gets for a parameter, whoever calls it. */
union graphs_value {
    uint64_t address; /* of a tensor's first byte, on host or device */
    int64_t i;
    float f;
    double d;
};
/* `base`: where the array of a tensor parameter begins; others do not look at it. */
union graphs_value graphs_param_value(const struct graphs_graph *graph,
                                      const struct graphs_param *param, uint64_t base);
/* Which device of `devices` the person gives a place to: neighbours share one. */
uint32_t graphs_device_of(const struct graphs_graph *graph, uint32_t place,
                          uint32_t devices);

/* The number of the step. Kinds of parameters must be the signature's. */
uint32_t graphs_step(struct graphs_graph *graph, const char *kernel,
                     struct graphs_launch launch, uint32_t stream,
                     const struct graphs_param *params, uint32_t param_count);
#define GRAPHS_STEP(graph, kernel, launch, stream, ...)                                    \
    graphs_step(graph, kernel, launch, stream, (const struct graphs_param[]){__VA_ARGS__}, \
                PL_COUNT(((const struct graphs_param[]){__VA_ARGS__})))
/* The person: `step` waits for `other`, of another stream. */
void graphs_after(struct graphs_graph *graph, uint32_t step, uint32_t other);

/* Several devices: the person puts `step` to this place; 0 otherwise. */
void graphs_place(struct graphs_graph *graph, uint32_t step, uint32_t place);

/* Blocks of `threads` for `count` things, `each` a block. */
struct graphs_launch graphs_blocks(int64_t count, int64_t each, uint32_t threads);
/* A grid that loops: as many blocks as a large GPU runs at once, and no more than there is work for. */
/* 8 blocks of 256 on each of 132 multiprocessors; in signatures, for scratch */
#define GRAPHS_LOOP_BLOCKS 1056u
struct graphs_launch graphs_loop(int64_t count, uint32_t threads);
/* Two dimensions: tiles of block x * each_x columns by block y * each_y rows. */
struct graphs_launch graphs_tiles(int64_t columns, int64_t rows, uint32_t block_x,
                                  uint32_t block_y, uint32_t each_x, uint32_t each_y);

/* false: two steps that touch the same array, one of them writing, are not ordered; err names them. */
bool graphs_check_order(const struct graphs_graph *graph, struct pl_err *err);

/* false: two steps may overlap and one writes what the other uses. */
bool graphs_steps_conflict(const struct graphs_step *a, const struct graphs_step *b);

/* ------------------------------------------------------------------------ room (room.c) */

/*
 * Seconds of the longest way through a run's steps, as their accesses order them; `seconds`: of
 * each step alone.
 */
double graphs_critical_path(const struct graphs_graph *graph, const double *seconds);
/* What the kernels of a run read and write when each does so once and nothing stays in a cache. */
uint64_t graphs_traffic(const struct graphs_graph *graph);

/* ------------------------------------------------------------------- results (expect.c) */

/*
 * Room for what every graphs_sample()th element must be; fill it in: want[i] is for element
 * graphs_expect_at(expect, i).
 */
struct graphs_expect *graphs_expect(struct graphs_graph *graph, uint32_t array,
                                    double absolute, double relative);
/* The same with a sample of one's own: every `step`-th. */
struct graphs_expect *graphs_expect_every(struct graphs_graph *graph, uint32_t array,
                                          uint64_t step, double absolute, double relative);
static inline uint64_t graphs_expect_at(const struct graphs_expect *expect, uint64_t i)
{
    return expect->first + i * expect->step;
}
/* All of a small array, about 250,000 elements of a large one. */
uint64_t graphs_sample(uint64_t elements);
/*
 * false: err says what is wrong. `data`: the array's bytes, of a graph that a contestant has just
 * run. First the sample is held against fp64. Then the whole array is kept, or, when a contestant
 * before has left one, every element is held against that.
 */
bool graphs_compare(const struct graphs_graph *graph, const struct graphs_expect *expect,
                    const void *data, struct pl_err *err);
void graphs_expect_finish(struct graphs_expect *expect);
/* The most bytes that an output with expectations has: room for any of them. */
uint64_t graphs_output_bytes(const struct graphs_graph *graph);

/* ----------------------------------------------------------------- helpers (parallel.c) */

/*
 * Calls work(user, begin, end) for pieces of 0 .. count in as many threads as there are cores; they
 * are gone when it returns.
 */
void graphs_parallel(int64_t count, void (*work)(void *user, int64_t begin, int64_t end),
                     void *user);
/*
 * Zeros that a reference needs for a while, in large pages where there are such, and touched by who
 * writes them. Or exits.
 */
void *graphs_must_map(uint64_t bytes);
void graphs_unmap(void *memory, uint64_t bytes);
/* The index-th number of a series: any thread may have any of them. */
/* a seed that goes through an i64 is not negative */
#define GRAPHS_SEED_MASK 0x7fffffffffffffffu
static inline uint64_t graphs_random(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* 0 <= x < 1 in 24 bits: exact in fp32 too, so kernels make the very same (part.cu). */
static inline double graphs_uniform24(uint64_t seed, uint64_t index)
{
    return (double)(graphs_random(seed, index) >> 40) * 0x1p-24;
}
/* 0 <= x < 1 */
static inline double graphs_uniform(uint64_t seed, uint64_t index)
{
    return (double)(graphs_random(seed, index) >> 11) * 0x1p-53;
}
/* Fill an f32 input. */
void graphs_fill_constant(const struct graphs_graph *graph, uint32_t input, float value);
/* Fill an f32 or f64 input with low + (high - low) * uniform; `salt` tells a graph's inputs apart. */
void graphs_fill_uniform(const struct graphs_graph *graph, uint32_t input, uint64_t salt,
                         double low, double high);

#endif
