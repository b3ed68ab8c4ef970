/*
 * What test_several_hosts.sh runs against a cluster of several hosts: arrays made on every device,
 * added on every other, with views and sums over fragments of several hosts; all compared with the
 * same arithmetic here.
 *
 *   several_hosts_program move DEVICES          everything arrives
 *   several_hosts_program pairs DEVICES         the same, without what is written in place
 *   several_hosts_program many DEVICES ELEMENTS    one array that all devices of the other hosts
 *                                                  want at once; how long that takes
 *   several_hosts_program broadcast DEVICES ELEMENTS   the same by one call
 *   several_hosts_program gather|sum DEVICES ELEMENTS  one array a device, of which each gets all,
 *                                                      one behind the other, or their sum; likewise
 *   several_hosts_program leave DEVICES FIFO NODE  after a line on stdout that node leaves (a byte
 *                                                  comes through FIFO); nothing is lost
 *   several_hosts_program puts DEVICES FIFO     puts and gets by plasmon_put_async() and _get_async(),
 *                                               all the time, until a byte comes through FIFO;
 *                                               that its host is drained meanwhile, and its
 *                                               store ends, is no matter
 *   several_hosts_program puts-again DEVICES FIFO
 *                                               puts and gets so before and after the devices of
 *                                               its host were given up (a byte through FIFO)
 *   several_hosts_program apart DEVICES         host2 and host3 cannot reach each other: what is to
 *                                               go from one to the other fails, and nothing else
 *   several_hosts_program loss DEVICES FIFO     after a line on stdout a host is killed (a byte
 *                                               comes through FIFO); what lay there is lost,
 *                                       what lies elsewhere is not, and the rest of the cluster goes on
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plasmon/plasmon.h"

#define DEVICES_MAX 16
#define PART        300000 /* elements a device: some chunks are partial */
#define SUMS        32
#define LARGE       ((5 << 19) + 777) /* 20 MiB and a bit: three chunks */

static struct plasmon_client *px;

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

static struct plasmon_ref *arange(int64_t count, double start, int device)
{
    const struct plasmon_shape shape  = {PLASMON_F64, 1, {count}};
    const struct plasmon_arg arg      = {.mode = PLASMON_OUT, .shape = &shape};
    const plasmon_scalar_t scalars[2] = {{.f = start}, {.f = 1}};
    struct plasmon_call call          = PLASMON_CALL_INIT;
    struct plasmon_ref *out;

    call.function     = "arange";
    call.args         = &arg;
    call.arg_count    = 1;
    call.scalars      = scalars;
    call.scalar_count = 2;
    call.device       = device;
    must(plasmon_submit(px, &call, &out, NULL), "arange");
    return out;
}

static struct plasmon_ref *add(struct plasmon_ref *a, struct plasmon_ref *b, int device)
{
    const struct plasmon_arg args[3] = {{.mode = PLASMON_OUT},
                                        {.mode = PLASMON_IN, .ref = a},
                                        {.mode = PLASMON_IN, .ref = b}};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *out;

    call.function  = "add";
    call.args      = args;
    call.arg_count = 3;
    call.device    = device;
    must(plasmon_submit(px, &call, &out, NULL), "add");
    return out;
}

static void add_into(struct plasmon_ref *to, struct plasmon_ref *from, int device)
{
    const struct plasmon_arg args[2] = {{.mode = PLASMON_INOUT, .ref = to},
                                        {.mode = PLASMON_IN, .ref = from}};
    struct plasmon_call call         = PLASMON_CALL_INIT;

    call.function  = "add_into";
    call.args      = args;
    call.arg_count = 2;
    call.device    = device;
    must(plasmon_submit(px, &call, NULL, NULL), "add_into");
}

static double *get(struct plasmon_ref *ref, int64_t count)
{
    double *data = calloc((size_t)count, sizeof(double));

    expect(data != NULL, "memory");
    must(plasmon_get(px, ref, data, (size_t)count * sizeof(double), 60000), "get");
    return data;
}

/* Every pair of devices, both ways at once. */
static void all_pairs(int devices, int64_t count)
{
    struct plasmon_ref *made[DEVICES_MAX], *sums[DEVICES_MAX][DEVICES_MAX];

    for (int d = 0; d < devices; d++) {
        made[d] = arange(count, 1000.0 * d, d);
    }
    for (int a = 0; a < devices; a++) {
        for (int b = 0; b < devices; b++) {
            sums[a][b] = add(made[a], made[b], b);
        }
    }
    for (int a = 0; a < devices; a++) {
        for (int b = 0; b < devices; b++) {
            double *got = get(sums[a][b], count);

            for (int64_t i = 0; i < count; i++) {
                expect(got[i] == 1000.0 * (a + b) + 2.0 * (double)i,
                       "a sum of two devices");
            }
            free(got);
            must(plasmon_release(px, sums[a][b]), "release");
        }
    }
    for (int d = 0; d < devices; d++) {
        must(plasmon_release(px, made[d]), "release");
    }
}

/* One array, its parts written on all devices through views, strided ones too; read as a whole on each. */
static void fragments(int devices)
{
    struct plasmon_ref *whole = arange((int64_t)devices * PART, 0, 0);
    struct plasmon_ref *ones  = arange(PART, 1, devices - 1);

    for (int d = 0; d < devices; d++) {
        const int64_t start = (int64_t)d * PART, count = PART, half = PART / 2, two = 2;
        struct plasmon_ref *view, *even, *some;
        const int64_t zero = 0;

        must(plasmon_view(px, whole, &start, &count, NULL, &view), "view");
        add_into(view, ones, d);
        must(plasmon_view(px, view, &zero, &half, &two, &even), "view of a view");
        must(plasmon_view(px, ones, &zero, &half, NULL, &some), "view");
        add_into(even, some, (d + 1) % devices);
        must(plasmon_release(px, view), "release");
        must(plasmon_release(px, even), "release");
        must(plasmon_release(px, some), "release");
    }
    for (int d = 0; d < devices; d++) {
        struct plasmon_ref *twice = add(whole, whole, d);
        double *got               = get(twice, (int64_t)devices * PART);

        for (int64_t i = 0; i < (int64_t)devices * PART; i++) {
            double in   = (double)(i % PART);
            double want = (double)i + in + 1;

            if (i % PART % 2 == 0) {
                want += in / 2 + 1;
            }
            expect(got[i] == 2 * want, "an element of parts of several hosts");
        }
        free(got);
        must(plasmon_release(px, twice), "release");
    }
    must(plasmon_release(px, whole), "release");
    must(plasmon_release(px, ones), "release");
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Made on the first host. broadcast: by one call; else each device reads it by itself. */
static void many(int devices, int64_t count, int broadcast)
{
    struct plasmon_device_info infos[DEVICES_MAX];
    struct plasmon_collective_options options = PLASMON_COLLECTIVE_INIT;
    struct plasmon_ref *made, *sums[DEVICES_MAX];
    int source     = -1, places[DEVICES_MAX];
    uint32_t known = 0, readers = 0;
    double begun, times         = broadcast ? 1 : 2;

    must(plasmon_devices(px, infos, DEVICES_MAX, &known), "devices");
    for (int d = 0; d < devices && source < 0; d++) {
        source = strcmp(infos[d].node, "host1") == 0 ? infos[d].index : -1;
    }
    made = arange(count, 3, source);
    must(plasmon_wait(px, &made, 1, 1, 60000, NULL, NULL), "the array");
    begun = now();
    for (int d = 0; d < devices; d++) {
        if (strcmp(infos[d].node, "host1") != 0) {
            places[readers] = infos[d].index;
            if (!broadcast) {
                sums[readers] = add(made, made, infos[d].index);
            }
            readers++;
        }
    }
    options.devices = places;
    if (broadcast) {
        must(plasmon_broadcast(px, made, readers, &options, sums, NULL), "broadcast");
    }
    must(plasmon_wait(px, sums, readers, readers, 90000, NULL, NULL), "the readers");
    printf("%u readers after %.2f s\n", readers, now() - begun);
    for (uint32_t i = 0; i < readers; i++) {
        double *got = get(sums[i], count);

        for (int64_t e = 0; e < count; e++) {
            expect(got[e] == times * (3 + (double)e), "an element of what all wanted");
        }
        free(got);
        must(plasmon_release(px, sums[i]), "release");
    }
    must(plasmon_release(px, made), "release");
}

/* An all-gather of an array a device, or an all-reduce. */
static void all_to_each(int devices, int64_t count, int sum)
{
    struct plasmon_ref *members[DEVICES_MAX], *results[DEVICES_MAX];
    uint32_t parts = (uint32_t)devices;
    double begun;

    for (int d = 0; d < devices; d++) {
        members[d] = arange(count, 1000.0 * d, d);
    }
    must(plasmon_wait(px, members, parts, parts, 60000, NULL, NULL), "the arrays");
    begun = now();
    must(sum ? plasmon_all_reduce(px, PLASMON_REDUCE_SUM, members, parts, NULL, results,
                                  NULL)
             : plasmon_all_gather(px, members, parts, NULL, results, NULL),
         "the collective");
    must(plasmon_wait(px, results, parts, parts, 90000, NULL, NULL), "the results");
    printf("%u results after %.2f s\n", parts, now() - begun);
    for (int d = 0; d < devices; d++) {
        int64_t length = sum ? count : count * devices;
        double *got    = get(results[d], length);

        for (int64_t e = 0; e < length; e++) {
            double gathered = 1000.0 * (double)(e / count) + (double)(e % count);

            expect(got[e] ==
                       (sum ? devices * (500.0 * (devices - 1) + (double)e) : gathered),
                   "an element of what each got");
        }
        free(got);
        must(plasmon_release(px, results[d]), "release");
        must(plasmon_release(px, members[d]), "release");
    }
}

/* A device of the host of that name: hosts are numbered as they join. */
static int device_on(const char *node)
{
    struct plasmon_device_info infos[DEVICES_MAX];
    uint32_t count = 0;

    must(plasmon_devices(px, infos, DEVICES_MAX, &count), "devices");
    for (uint32_t i = 0; i < count && i < DEVICES_MAX; i++) {
        if (strcmp(infos[i].node, node) == 0) {
            return infos[i].index;
        }
    }
    expect(0, node);
    return -1;
}

static void word_wait(const char *line, const char *fifo)
{
    char byte;
    FILE *go;

    printf("%s\n", line);
    fflush(stdout);
    go = fopen(fifo, "r");
    expect(go != NULL && fread(&byte, 1, 1, go) == 1, "the word to go on");
    fclose(go);
}

static void loss(const char *fifo)
{
    int here = device_on("host1"), there = device_on("host3");
    struct plasmon_ref *near_by  = arange(LARGE, 5, here);
    struct plasmon_ref *far_away = arange(LARGE, 7, there);
    struct plasmon_ref *sums[SUMS];
    int lost = 0, right = 0;

    must(plasmon_wait(px, (struct plasmon_ref *[]){near_by, far_away}, 2, 2, 60000, NULL,
                      NULL),
         "wait");
    for (int i = 0; i < SUMS; i++) { /* some are on their way when the host dies */
        struct plasmon_ref *fresh = arange(LARGE, i, i % 2 == 0 ? there : here);

        sums[i] = add(fresh, fresh, i % 2 == 0 ? here : there);
        must(plasmon_release(px, fresh), "release");
    }
    must(plasmon_wait(px, &sums[0], 1, 1, 60000, NULL, NULL),
         "the first sum"); /* the rest is on its way */
    word_wait("kill", fifo);

    for (int i = 0; i < SUMS; i++) {
        plasmon_status_t status;

        must(plasmon_wait(px, &sums[i], 1, 1, 60000, NULL, NULL), "a future that resolves");
        status = plasmon_state(px, sums[i]);
        expect(status == PLASMON_OK || status == PLASMON_EWORKER ||
                   status == PLASMON_ELOST || status == PLASMON_EDEPENDENCY,
               plasmon_status_name(status));
        if (status == PLASMON_OK && i % 2 == 0) {
            double *got = get(sums[i], LARGE);

            for (int64_t e = 0; e < LARGE; e++) {
                expect(got[e] == 2.0 * (i + (double)e), "a sum that came in time");
            }
            free(got);
            right++;
        }
        lost += status != PLASMON_OK;
    }
    {
        double *small = calloc(LARGE, sizeof(double));
        plasmon_status_t status =
            plasmon_get(px, far_away, small, LARGE * sizeof(double), 60000);

        expect(status == PLASMON_ELOST || status == PLASMON_EWORKER,
               "what lay on the dead host is lost");
        expect(strstr(plasmon_error(px), "gone") != NULL, "the text says why");
        free(small);
    }
    { /* the rest of the cluster */
        struct plasmon_ref *sum = add(near_by, near_by, here);
        double *got             = get(sum, LARGE);

        for (int64_t i = 0; i < LARGE; i++) {
            expect(got[i] == 2.0 * (5.0 + (double)i), "what lay elsewhere");
        }
        free(got);
    }
    printf("%d lost, %d of those towards the living host in time\n", lost, right);
}

static void expect_sum_of(struct plasmon_ref *ref, int64_t count, double start)
{
    double *got = get(ref, count);

    for (int64_t e = 0; e < count; e++) {
        expect(got[e] == 2 * (start + (double)e), "a sum within a host");
    }
    free(got);
}

/*
 * Small and large ones, both ways: who needs bytes of both hosts fails, and who reads from that;
 * who was to run on one host with those of the other runs where they are; and what needs nothing of
 * the other host goes on meanwhile.
 */
static void apart(void)
{
    static const int64_t sizes[] = {10, PART, LARGE};
    int places[2]                = {device_on("host2"), device_on("host3")};
    struct plasmon_ref *made[2][3], *both[2][3], *after[2][3], *moved[2][3], *near_by[2][3];

    for (int sizes_left = 3; sizes_left > 0;
         sizes_left -= 2) { /* again, when it is known */
        for (int i = 0; i < sizes_left; i++) {
            made[0][i] = arange(sizes[i], i, places[0]);
            made[1][i] = arange(sizes[i], 10 + i, places[1]);
            for (int h = 0; h < 2; h++) {
                int elsewhere = places[1 - h];

                both[h][i]    = add(made[h][i], made[1 - h][i], elsewhere);
                after[h][i]   = add(both[h][i], both[h][i], elsewhere);
                moved[h][i]   = add(made[h][i], made[h][i], elsewhere);
                near_by[h][i] = add(made[h][i], made[h][i], places[h]);
            }
        }
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < sizes_left; i++) {
                double start = 10 * h + i;

                expect_sum_of(near_by[h][i], sizes[i], start);
                must(plasmon_wait(px, &both[h][i], 1, 1, 60000, NULL, NULL),
                     "a future that resolves");
                expect(plasmon_state(px, both[h][i]) == PLASMON_EUNREACHABLE,
                       plasmon_status_name(plasmon_state(px, both[h][i])));
                must(plasmon_wait(px, &after[h][i], 1, 1, 60000, NULL, NULL),
                     "what reads from it");
                expect(plasmon_state(px, after[h][i]) == PLASMON_EDEPENDENCY,
                       plasmon_status_name(plasmon_state(px, after[h][i])));
                expect_sum_of(moved[h][i], sizes[i], start);
                expect_sum_of(add(made[h][i], made[h][i], places[h]), sizes[i], start);
            }
        }
    }
    expect(plasmon_get(px, both[0][0], (double[10]){0}, sizeof(double[10]), 60000) ==
               PLASMON_EUNREACHABLE,
           "a get of what failed");
    printf("%s\n", plasmon_error(px));
}

/* As loss, with a head that keeps lineage: everything that was made there is made again, and is right. */
static void rebuild(const char *fifo)
{
    int here = device_on("host1"), there = device_on("host3");
    struct plasmon_ref *far_away = arange(LARGE, 7, there);
    struct plasmon_ref *sums[SUMS];

    must(plasmon_wait(px, &far_away, 1, 1, 60000, NULL, NULL), "wait");
    for (int i = 0; i < SUMS; i++) { /* some are on their way when the host dies */
        struct plasmon_ref *fresh = arange(LARGE, i, i % 2 == 0 ? there : here);

        sums[i] = add(fresh, fresh, i % 2 == 0 ? here : there);
        must(plasmon_release(px, fresh), "release");
    }
    must(plasmon_wait(px, &sums[0], 1, 1, 60000, NULL, NULL), "the first sum");
    word_wait("kill", fifo);
    for (int i = 0; i < SUMS; i++) {
        double *got = get(sums[i], LARGE);

        for (int64_t e = 0; e < LARGE; e++) {
            expect(got[e] == 2.0 * (i + (double)e), "a sum");
        }
        free(got);
    }
    {
        double *got = get(far_away, LARGE);

        for (int64_t e = 0; e < LARGE; e++) {
            expect(got[e] == 7.0 + (double)e, "what lay on the dead host");
        }
        free(got);
    }
}

/*
 * Three ways of a put - in a frame, in a few, through the worker's channel - of what is to be in
 * two places: it outlives whatever the script kills.
 */
static void twice(const char *fifo)
{
    static const int64_t sizes[]       = {10, PART, LARGE};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *refs[3];

    options.replica = 1;
    options.device  = device_on("host2");
    for (int i = 0; i < 3; i++) {
        struct plasmon_shape shape = {.dtype = PLASMON_F64, .ndim = 1, .dim = {sizes[i]}};
        double *values             = calloc((size_t)sizes[i], sizeof(double));

        expect(values != NULL, "memory");
        for (int64_t e = 0; e < sizes[i]; e++) {
            values[e] = (double)(e + i);
        }
        must(plasmon_put(px, values, &shape, &options, &refs[i]), "put");
        free(values);
    }
    must(plasmon_wait(px, refs, 3, 3, 60000, NULL, NULL), "wait");
    word_wait("kill", fifo);
    for (int i = 0; i < 3; i++) {
        double *got = get(refs[i], sizes[i]);

        for (int64_t e = 0; e < sizes[i]; e++) {
            expect(got[e] == (double)(e + i), "what was put");
        }
        free(got);
    }
}

/*
 * Whole values, parts that others wrote, a snapshot of what was changed since, and a sum that still
 * runs: all of them outlive the node.
 */
static void leave(const char *fifo, const char *node)
{
    int here = device_on("host1"), there = device_on(node);
    int64_t start = 1000, count = PART, half = LARGE / 2, zero = 0;
    struct plasmon_ref *large  = arange(LARGE, 7, there);
    struct plasmon_ref *parts  = arange(LARGE, 0, there);
    struct plasmon_ref *ones   = arange(PART, 1, there);
    struct plasmon_ref *copied = add(large, large, here); /* a replica of it is elsewhere */
    struct plasmon_ref *before, *view, *sum;
    double *got;

    must(plasmon_snapshot(px, parts, &before), "snapshot");
    must(plasmon_view(px, parts, &start, &count, NULL, &view), "view");
    add_into(view, ones, here);
    must(plasmon_release(px, view), "release");
    must(plasmon_view(px, parts, &zero, &half, NULL, &view), "view");
    sum = add(view, view, there);
    must(plasmon_wait(px, (struct plasmon_ref *[]){large, before, parts, copied}, 4, 4,
                      60000, NULL, NULL),
         "wait");
    /*
     * A question to the head behind the sum's frame: a node that is drained takes nothing new, and
     * those four may have been done before.
     */
    free(get(ones, PART));
    word_wait("ready", fifo);

    got = get(large, LARGE);
    for (int64_t i = 0; i < LARGE; i++) {
        expect(got[i] == 7.0 + (double)i, "a value of the node that left");
    }
    free(got);
    got = get(before, LARGE);
    for (int64_t i = 0; i < LARGE; i++) {
        expect(got[i] == (double)i, "a snapshot");
    }
    free(got);
    got = get(parts, LARGE);
    for (int64_t i = 0; i < LARGE; i++) {
        double want = (double)i;

        if (i >= start && i < start + count) {
            want += 1.0 + (double)(i - start);
        }
        expect(got[i] == want, "a value with a part of another host");
    }
    free(got);
    got = get(add(sum, sum, PLASMON_ANYWHERE), half);
    expect(got[half - 1] == 4.0 * (double)(half - 1), "a sum of the node that left");
    free(got);
}

/*
 * One of several values on their way at once: each is put, got again and compared, and put anew,
 * never waiting for more than the oldest.
 */
static void puts_go_round(const char *fifo)
{
    enum { SLOTS = 8, COUNT = 100000 };
    const struct plasmon_shape shape = {PLASMON_F64, 1, {COUNT}};
    struct plasmon_ref *put[SLOTS] = {NULL}, *gotten[SLOTS] = {NULL};
    int word   = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    long round = 0;
    double *in, *out;
    char byte;

    expect(word >= 0, "the fifo");
    must(plasmon_host_alloc(px, SLOTS * COUNT * sizeof(double), (void **)&in), "alloc");
    must(plasmon_host_alloc(px, SLOTS * COUNT * sizeof(double), (void **)&out), "alloc");
    do {
        size_t at = (size_t)(round % SLOTS), first = at * COUNT;

        if (round >= SLOTS) {
            must(plasmon_wait(px, &gotten[at], 1, 1, 60000, NULL, NULL), "wait");
            must(plasmon_state(px, gotten[at]), "a value that was put and got");
            for (size_t i = 0; i < COUNT; i++) {
                expect(out[first + i] == (double)(round - SLOTS) + (double)i,
                       "what was got");
            }
            must(plasmon_release(px, put[at]), "release");
            must(plasmon_release(px, gotten[at]), "release");
        }
        for (size_t i = 0; i < COUNT; i++) {
            in[first + i] = (double)round + (double)i;
        }
        must(plasmon_put_async(px, in + first, &shape, NULL, &put[at]), "put");
        must(plasmon_get_async(px, put[at], out + first, COUNT * sizeof(double),
                               &gotten[at]),
             "get");
        if (++round % 100 == 0) {
            printf("round %ld\n", round);
            fflush(stdout);
        }
    } while (read(word, &byte, 1) != 1);
    close(word);
}

static void put_and_get(double *in, double *out, int64_t count)
{
    const struct plasmon_shape shape = {PLASMON_F64, 1, {count}};
    struct plasmon_ref *put, *gotten;

    for (int64_t i = 0; i < count; i++) {
        in[i] = (double)i + 3;
    }
    memset(out, 0, (size_t)count * sizeof(*out));
    must(plasmon_put_async(px, in, &shape, NULL, &put), "put");
    must(plasmon_get_async(px, put, out, (size_t)count * sizeof(*out), &gotten), "get");
    must(plasmon_wait(px, &gotten, 1, 1, 60000, NULL, NULL), "wait");
    must(plasmon_state(px, gotten), "a value that was put and got");
    expect(memcmp(in, out, (size_t)count * sizeof(*out)) == 0, "what was got");
    must(plasmon_release(px, put), "release");
    must(plasmon_release(px, gotten), "release");
}

static void puts_again(const char *fifo)
{
    double *in, *out;

    must(plasmon_host_alloc(px, PART * sizeof(double), (void **)&in), "alloc");
    must(plasmon_host_alloc(px, PART * sizeof(double), (void **)&out), "alloc");
    put_and_get(in, out, PART);
    word_wait("ready", fifo);
    free(get(arange(1, 0, PLASMON_ANYWHERE),
             1)); /* an answer, behind what the head had to say */
    put_and_get(in, out, PART);
}

static void devices_wait(int devices)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    time_t begun                = time(NULL);

    for (;;) {
        struct plasmon_device_info infos[DEVICES_MAX];
        uint32_t count = 0;

        must(plasmon_devices(px, infos, DEVICES_MAX, &count), "devices");
        if ((int)count >= devices) {
            return;
        }
        expect(time(NULL) - begun < 30, "all devices within 30 s");
        (void)nanosleep(&pause, NULL); /* nothing tells of a device that joins */
        plasmon_finish(px);
        must(plasmon_init(NULL, &px), "init");
    }
}

int main(int argc, char **argv)
{
    int devices = argc > 2 ? atoi(argv[2]) : 0;

    if (devices < 2 || devices > DEVICES_MAX) {
        fprintf(stderr,
                "usage: several_hosts_program "
                "move|pairs|many|broadcast|gather|sum|leave|puts|puts-again|apart|loss|"
                "rebuild|twice DEVICES [ELEMENTS | FIFO [NODE]]\n");
        return 2;
    }
    must(plasmon_init(NULL, &px), "init");
    devices_wait(devices);
    if (strcmp(argv[1], "puts") == 0 && argc > 3) {
        puts_go_round(argv[3]);
    } else if (strcmp(argv[1], "puts-again") == 0 && argc > 3) {
        puts_again(argv[3]);
    } else if (strcmp(argv[1], "move") == 0 || strcmp(argv[1], "pairs") == 0) {
        all_pairs(devices, 1);
        all_pairs(devices, PART);
        all_pairs(devices, LARGE);
        if (strcmp(argv[1], "move") == 0) {
            fragments(devices);
        }
    } else if (strcmp(argv[1], "apart") == 0) {
        apart();
    } else if (strcmp(argv[1], "many") == 0 && argc > 3) {
        many(devices, atoll(argv[3]), 0);
    } else if (strcmp(argv[1], "broadcast") == 0 && argc > 3) {
        many(devices, atoll(argv[3]), 1);
    } else if ((strcmp(argv[1], "gather") == 0 || strcmp(argv[1], "sum") == 0) &&
               argc > 3) {
        all_to_each(devices, atoll(argv[3]), strcmp(argv[1], "sum") == 0);
    } else if (strcmp(argv[1], "rebuild") == 0 && argc > 3) {
        rebuild(argv[3]);
    } else if (strcmp(argv[1], "twice") == 0 && argc > 3) {
        twice(argv[3]);
    } else if (argc > 4) {
        leave(argv[3], argv[4]);
    } else if (argc > 3) {
        loss(argv[3]);
    }
    plasmon_finish(px);
    puts("ok");
    return 0;
}
