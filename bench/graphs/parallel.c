/*
 * References are computed by all cores: with threads of their own, so that none is left when the
 * benchmark forks.
 */
#include "bench/graphs/graph.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS_MAX 64
#define PIECE_MIN   4096 /* less is not worth a thread */

struct piece {
    void (*work)(void *user, int64_t begin, int64_t end);
    void *user;
    int64_t begin, end;
    pthread_t thread;
};

static void *piece_run(void *user)
{
    struct piece *piece = user;

    piece->work(piece->user, piece->begin, piece->end);
    return NULL;
}

void graphs_parallel(int64_t count, void (*work)(void *user, int64_t begin, int64_t end),
                     void *user)
{
    long cores      = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : cores;
    struct piece piece[THREADS_MAX];

    if (count / threads < PIECE_MIN) {
        work(user, 0, count);
        return;
    }
    for (int64_t i = 0; i < threads; i++) {
        piece[i] =
            (struct piece){.work  = work,
                           .user  = user,
                           .begin = count / threads * i,
                           .end   = i == threads - 1 ? count : count / threads * (i + 1)};
        if (pthread_create(&piece[i].thread, NULL, piece_run, &piece[i]) != 0) {
            bench_die("cannot start a thread");
        }
    }
    for (int64_t i = 0; i < threads; i++) {
        (void)pthread_join(piece[i].thread, NULL); /* fails only on a wrong thread */
    }
}

void *graphs_must_map(uint64_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        bench_die("out of host memory: a reference needs %llu bytes",
                  (unsigned long long)bytes);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* where it is allowed */
    return memory;
}

void graphs_unmap(void *memory, uint64_t bytes)
{
    (void)munmap(memory, bytes); /* as it was mapped */
}

/* ------------------------------------------------------------------------------- inputs */

struct fill {
    const struct graphs_array *array;
    uint64_t seed;
    double low, high;
};

static void fill_piece(void *user, int64_t begin, int64_t end)
{
    const struct fill *fill = user;

    for (int64_t i = begin; i < end; i++) {
        double value =
            fill->low + (fill->high - fill->low) * graphs_uniform(fill->seed, (uint64_t)i);

        if (fill->array->shape.dtype == PLASMON_F32) {
            ((float *)fill->array->data)[i] = (float)value;
        } else {
            ((double *)fill->array->data)[i] = value;
        }
    }
}

void graphs_fill_uniform(const struct graphs_graph *graph, uint32_t input, uint64_t salt,
                         double low, double high)
{
    struct fill fill = {.array = graphs_array_at(graph, input),
                        .seed  = graphs_random(graph->seed, salt),
                        .low   = low,
                        .high  = high};

    graphs_parallel((int64_t)fill.array->elements, fill_piece, &fill);
}

struct constant {
    float *data;
    float value;
};

static void constant_piece(void *user, int64_t begin, int64_t end)
{
    const struct constant *constant = user;

    for (int64_t i = begin; i < end; i++) {
        constant->data[i] = constant->value;
    }
}

void graphs_fill_constant(const struct graphs_graph *graph, uint32_t input, float value)
{
    struct constant constant = {.data = graphs_data(graph, input), .value = value};

    graphs_parallel((int64_t)graphs_array_at(graph, input)->elements, constant_piece,
                    &constant);
}
