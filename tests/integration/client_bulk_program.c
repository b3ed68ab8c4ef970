/*
 * What test_client_bulk.sh runs on a host without devices: puts and gets whose bytes it compares.
 *
 *   client_bulk_program values DEVICES         every dtype, many sizes, on every device
 *   client_bulk_program views DEVICES          views of one array, and of one that lies on several devices
 *   client_bulk_program threads DEVICES        eight threads at once
 *   client_bulk_program large DEVICE [ROUNDS]  24 MiB there and back; a line when the first came back
 *   client_bulk_program late DEVICE            the same once; a line when it is there, and back
 *                                              after a line is read
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plasmon/plasmon.h"

#define WAIT_MS 100000
#define THREADS 8

static struct plasmon_client *px;
static bool late;

static void must(plasmon_status_t status, const char *what)
{
    if (status != PLASMON_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, plasmon_status_name(status),
                plasmon_error(px));
        exit(1);
    }
}

static void expect(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

static uint8_t *room(uint64_t bytes)
{
    uint8_t *data = calloc(bytes + 1, 1);

    expect(data != NULL, "memory");
    return data;
}

static uint8_t byte_at(uint64_t i, uint64_t seed)
{
    return (uint8_t)((i + 1) * (seed | 1) >> 7);
}

static struct plasmon_ref *put(const void *data, const struct plasmon_shape *shape,
                               int device)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    options.device = device;
    must(plasmon_put(px, data, shape, &options, &ref), "put");
    return ref;
}

/* There and back; what follows the bytes stays as it is. */
static void round_trip(plasmon_dtype_t dtype, uint64_t bytes_each, uint64_t count,
                       int device, uint64_t seed)
{
    const struct plasmon_shape shape = {dtype, 1, {(int64_t)count}};
    uint64_t bytes                   = count * bytes_each;
    uint8_t *from = room(bytes), *to = room(bytes);
    struct plasmon_ref *ref;

    for (uint64_t i = 0; i < bytes; i++) {
        from[i] = dtype == PLASMON_BOOL ? byte_at(i, seed) & 1 : byte_at(i, seed);
    }
    to[bytes] = 0xa5;
    ref       = put(from, &shape, device);
    if (late) {
        puts("put");
        (void)fflush(stdout);
        (void)getchar();
    }
    must(plasmon_get(px, ref, to, bytes, WAIT_MS), "get");
    if (memcmp(from, to, bytes) != 0 || to[bytes] != 0xa5) {
        fprintf(stderr, "%llu bytes of dtype %d on device %d came back wrong\n",
                (unsigned long long)bytes, (int)dtype, device);
        exit(1);
    }
    must(plasmon_release(px, ref), "release");
    free(from);
    free(to);
}

static void values(int devices)
{
    static const struct {
        plasmon_dtype_t dtype;
        uint64_t bytes;
    } dtypes[] = {{PLASMON_BOOL, 1}, {PLASMON_I8, 1},  {PLASMON_U8, 1},   {PLASMON_I16, 2},
                  {PLASMON_U16, 2},  {PLASMON_I32, 4}, {PLASMON_U32, 4},  {PLASMON_I64, 8},
                  {PLASMON_U64, 8},  {PLASMON_F16, 2}, {PLASMON_BF16, 2}, {PLASMON_F32, 4},
                  {PLASMON_F64, 8},  {PLASMON_C64, 8}, {PLASMON_C128, 16}};
    static const uint64_t sizes[] = {
        1,         1000,          (256 << 10),   (256 << 10) + 1,
        (1 << 20), (1 << 20) + 1, (5 << 20) - 7, (9 << 20) + 13};
    uint64_t seed = 12345;

    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        round_trip(dtypes[d].dtype, dtypes[d].bytes, 300007, (int)d % devices, seed++);
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        round_trip(PLASMON_U8, 1, sizes[s], (int)s % devices, seed++);
        round_trip(PLASMON_U8, 1, sizes[s], PLASMON_ANYWHERE, seed++);
    }
}

/* -------------------------------------------------------------------------------- views */

#define ROWS    600
#define COLUMNS 1000

static void expect_view(struct plasmon_ref *ref, const int64_t start[2],
                        const int64_t count[2], const int64_t step[2], const double *added)
{
    size_t bytes = (size_t)(count[0] * count[1]) * sizeof(double);
    double *got  = (double *)(void *)room(bytes);
    struct plasmon_ref *view;

    must(plasmon_view(px, ref, start, count, step, &view), "view");
    must(plasmon_get(px, view, got, bytes, WAIT_MS), "get a view");
    for (int64_t i = 0; i < count[0]; i++) {
        for (int64_t j = 0; j < count[1]; j++) {
            int64_t row = start[0] + i * step[0], column = start[1] + j * step[1];

            expect(got[i * count[1] + j] == (double)(row * COLUMNS + column) + added[row],
                   "an element of a view");
        }
    }
    must(plasmon_release(px, view), "release");
    free(got);
}

static void expect_views(struct plasmon_ref *ref, const double *added)
{
    static const int64_t all[][3][2] = {
        {{0, 0}, {ROWS, COLUMNS}, {1, 1}}, {{100, 0}, {400, COLUMNS}, {1, 1}},
        {{0, 10}, {ROWS, 900}, {1, 1}},    {{1, 1}, {299, 499}, {2, 2}},
        {{5, 3}, {1, 1}, {1, 1}},          {{599, 0}, {1, COLUMNS}, {1, 1}},
        {{290, 100}, {20, 800}, {1, 1}},   {{0, 999}, {ROWS, 1}, {1, 1}},
        {{3, 0}, {80, COLUMNS}, {7, 1}},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        expect_view(ref, all[i][0], all[i][1], all[i][2], added);
    }
}

static void views(int devices)
{
    const struct plasmon_shape shape = {PLASMON_F64, 2, {ROWS, COLUMNS}};
    const struct plasmon_shape band  = {PLASMON_F64, 2, {ROWS / 3, COLUMNS}};
    double *data       = (double *)(void *)room(sizeof(double) * ROWS * COLUMNS);
    double *ones       = (double *)(void *)room(sizeof(double) * ROWS / 3 * COLUMNS);
    double added[ROWS] = {0};
    struct plasmon_ref *ref, *added_ref;

    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        data[i] = (double)i;
    }
    for (int64_t i = 0; i < ROWS / 3 * COLUMNS; i++) {
        ones[i] = 0.5;
    }
    ref = put(data, &shape, 0);
    expect_views(ref, added);

    /* The middle third is written on another device: now the array is in fragments. */
    added_ref = put(ones, &band, devices - 1);
    {
        const int64_t start[2] = {ROWS / 3, 0}, count[2] = {ROWS / 3, COLUMNS};
        struct plasmon_ref *middle;
        struct plasmon_arg args[2] = {{.mode = PLASMON_INOUT},
                                      {.mode = PLASMON_IN, .ref = added_ref}};
        struct plasmon_call call   = PLASMON_CALL_INIT;

        must(plasmon_view(px, ref, start, count, NULL, &middle), "view");
        args[0].ref    = middle;
        call.function  = "add_into";
        call.args      = args;
        call.arg_count = 2;
        call.device    = devices - 1;
        must(plasmon_submit(px, &call, NULL, NULL), "add_into");
        must(plasmon_release(px, middle), "release");
    }
    for (int64_t row = ROWS / 3; row < 2 * ROWS / 3; row++) {
        added[row] = 0.5;
    }
    expect_views(ref, added);
    free(data);
    free(ones);
}

/* ---------------------------------------------------------------------- many, and large */

struct thread {
    pthread_t thread;
    int devices;
    uint64_t seed;
};

static void *thread_run(void *user)
{
    const struct thread *thread = user;

    for (uint64_t i = 0; i < 6; i++) {
        round_trip(PLASMON_U8, 1, 300000 + thread->seed % 7 * 500000 + i * 70001,
                   (int)((thread->seed + i) % (uint64_t)thread->devices),
                   thread->seed * 100 + i);
    }
    return NULL;
}

static void threads(int devices)
{
    struct thread all[THREADS];

    for (uint64_t i = 0; i < THREADS; i++) {
        all[i].devices = devices;
        all[i].seed    = i;
        expect(pthread_create(&all[i].thread, NULL, thread_run, &all[i]) == 0, "a thread");
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        (void)pthread_join(all[i].thread, NULL);
    }
}

static void say(void *user, int level, const char *module, const char *text)
{
    (void)user;
    fprintf(stderr, "%d %s: %s\n", level, module, text);
}

int main(int argc, char **argv)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    int number                     = argc > 2 ? atoi(argv[2]) : 0;

    if (argc < 3) {
        fprintf(stderr,
                "usage: client_bulk_program values|views|threads|large|late NUMBER\n");
        return 2;
    }
    plasmon_set_log(say, NULL, 1); /* warnings */
    options.connect_timeout_ms = 60000;
    must(plasmon_init(&options, &px), "init");
    if (strcmp(argv[1], "values") == 0) {
        values(number);
    } else if (strcmp(argv[1], "views") == 0) {
        views(number);
    } else if (strcmp(argv[1], "threads") == 0) {
        threads(number);
    } else {
        late = strcmp(argv[1], "late") == 0;
        for (int i = 0; i < (argc > 3 ? atoi(argv[3]) : 1); i++) {
            round_trip(PLASMON_U8, 1, (24 << 20) + 5, number, (uint64_t)i + 7);
            if (i == 0) {
                puts("one");
                (void)fflush(stdout);
            }
        }
    }
    plasmon_finish(px);
    puts("right");
    return 0;
}
