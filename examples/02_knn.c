/*
 * k nearest neighbours on handwritten digits, over several devices.
 *
 *   02_knn [--k 3] [--devices N] [--gpus auto|none|N] [--scale N] [--block ROWS] [--data
 *   digits.csv] [--picture FILE.svg] [--check]
 *
 * Every 4th digit is held out; the others are one array on the first device. Blocks of its rows
 * (views) go to the devices in turn. For each block, on its device:
 *
 *     d        = pairwise_distance(test, block)
 *     v, i     = topk_min(d, k, index of the block's first row)
 *     V, I     = topk_merge(V, I, v, i, k)          a chain a device
 *
 * then the devices' results are merged, and `vote` reads off the labels. Equal distances are
 * ordered by row, so blocks, devices and routes cannot change the answer.
 *
 * It runs twice, on two private clusters, one that moves blocks by the best route and one that
 * stages them through the host, and says how long moving took and what the workers counted. 450 KB
 * of digits show little about that: --scale 2000 makes 0.7 GB of them. With PLASMON_ADDRESS it runs
 * once, on that cluster, as that is set up.
 */
#include <plasmon/plasmon.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"
#include "example.h"

enum { DEVICES_MAX = 64, DISTANCE_BYTES_MAX = 64 << 20, BLOCKS_AHEAD = 16 };

struct options {
    const char *data;
    const char *picture;
    const char *gpus;
    int k;
    uint32_t devices; /* 0: what there is */
    int64_t scale;
    int64_t block; /* rows; 0: chosen */
    bool check;
};

/* What one run on one cluster found. */
struct result {
    const char *setting; /* --transfer */
    uint32_t devices;
    bool cuda;
    double load_seconds;
    double move_seconds;
    double compute_seconds;
    struct example_route peer; /* while moving */
    struct example_route host;
    struct example_route all_peer; /* of the whole run */
    struct example_route all_host;
    int32_t *labels;
};

/* The k nearest so far. */
struct nearest {
    struct plasmon_ref *values;
    struct plasmon_ref *indices;
};

struct knn {
    const struct options *options;
    const struct digits *train;
    const struct digits *test;
    struct plasmon_client *px;
    int device[DEVICES_MAX];
    uint32_t device_count;
    struct plasmon_ref *train_ref;
    struct plasmon_ref *test_ref;
    int64_t block_rows;
    int64_t block_count;
};

/* ------------------------------------------------------------------------------ cluster */

static uint32_t choose_devices(struct knn *knn, bool *out_cuda)
{
    struct plasmon_device_info infos[DEVICES_MAX];
    uint32_t count;

    example_need(knn->px, plasmon_devices(knn->px, infos, DEVICES_MAX, &count), "devices");
    count             = count < DEVICES_MAX ? count : DEVICES_MAX;
    *out_cuda         = false;
    knn->device_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        *out_cuda = *out_cuda || infos[i].kind == 2;
    }
    for (uint32_t i = 0; i < count; i++) { /* GPUs where there are some */
        if (!*out_cuda || infos[i].kind == 2) {
            knn->device[knn->device_count++] = infos[i].index;
        }
    }
    return knn->device_count;
}

static void open_cluster(struct knn *knn, const char *transfer, bool *out_cuda)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    uint32_t wanted                = knn->options->devices;
    const char *address            = getenv("PLASMON_ADDRESS");

    options.transfer = transfer;
    options.gpus     = knn->options->gpus;
    options.label    = "knn";
    example_need(NULL, plasmon_init(&options, &knn->px), "start");
    (void)choose_devices(knn, out_cuda); /* fills in what follows */
    if ((address == NULL || address[0] == '\0') && !*out_cuda && wanted != 0 &&
        wanted != knn->device_count) {
        plasmon_finish(knn->px); /* no GPU here: as many CPU devices as asked for */
        options.cpu_devices = wanted;
        example_need(NULL, plasmon_init(&options, &knn->px), "start");
        (void)choose_devices(knn, out_cuda);
    }
    if (knn->device_count < wanted) {
        example_die("--devices %u: there are only %u", wanted, knn->device_count);
    }
    knn->device_count = wanted != 0 ? wanted : knn->device_count;
    if (knn->device_count == 0) {
        example_die("the cluster has no devices");
    }
}

/* -------------------------------------------------------------------------------- steps */

static struct plasmon_ref *put(struct knn *knn, const void *data,
                               struct plasmon_shape shape, const char *label)
{
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_ref *ref;

    options.device = knn->device[0];
    options.label  = label;
    example_need(knn->px, plasmon_put(knn->px, data, &shape, &options, &ref), label);
    return ref;
}

static int device_of(const struct knn *knn, int64_t block)
{
    return knn->device[block % knn->device_count];
}

static struct plasmon_ref *block_view(const struct knn *knn, int64_t block)
{
    int64_t first = block * knn->block_rows;
    int64_t left  = knn->train->count - first;

    return example_rows(knn->px, knn->train_ref, first,
                        left < knn->block_rows ? left : knn->block_rows, DIGITS_PIXELS);
}

static void wait_for(const struct knn *knn, struct plasmon_ref *ref)
{
    int ready;

    example_need(knn->px, plasmon_wait(knn->px, &ref, 1, 1, PLASMON_FOREVER, &ready, NULL),
                 "wait");
    if (ready < 0) {
        example_need(knn->px, plasmon_state(knn->px, ref), "a task failed");
    }
}

/*
 * Bring every block to its device by a function that only looks at it, so that moving can be timed
 * on its own.
 */
static void move_blocks(struct knn *knn)
{
    struct plasmon_ref **tasks =
        calloc((size_t)knn->block_count, sizeof(struct plasmon_ref *));

    if (tasks == NULL) {
        example_die("out of memory");
    }
    for (int64_t block = 0; block < knn->block_count; block++) {
        struct plasmon_ref *view  = block_view(knn, block);
        struct plasmon_arg args[] = {example_in(view), example_in(knn->test_ref)};
        struct plasmon_call call  = PLASMON_CALL_INIT;

        call.function  = "touch";
        call.args      = args;
        call.arg_count = 2;
        call.device    = device_of(knn, block);
        example_need(knn->px, plasmon_submit(knn->px, &call, NULL, &tasks[block]), "touch");
        example_release(knn->px, view);
    }
    for (int64_t block = 0; block < knn->block_count; block++) {
        wait_for(knn, tasks[block]);
        example_release(knn->px, tasks[block]);
        example_progress("moved blocks", (uint64_t)block + 1, (uint64_t)knn->block_count);
    }
    free(tasks);
}

/* `into` becomes the k nearest of both; `other` is used up. */
static void merge(const struct knn *knn, struct nearest *into, struct nearest other,
                  int device)
{
    struct plasmon_ref *out[2];

    if (into->values == NULL) {
        *into = other;
        return;
    }
    example_submit(knn->px, "topk_merge",
                   EXAMPLE_ARGS(example_out(NULL), example_out(NULL),
                                example_in(into->values), example_in(into->indices),
                                example_in(other.values), example_in(other.indices)),
                   EXAMPLE_SCALARS({.i = knn->options->k}), device, out);
    example_release(knn->px, into->values);
    example_release(knn->px, into->indices);
    example_release(knn->px, other.values);
    example_release(knn->px, other.indices);
    *into = (struct nearest){out[0], out[1]};
}

static struct nearest block_nearest(const struct knn *knn, int64_t block)
{
    struct plasmon_ref *view = block_view(knn, block);
    struct plasmon_ref *distances;
    struct plasmon_ref *out[2];
    int device = device_of(knn, block);

    example_submit(
        knn->px, "pairwise_distance",
        EXAMPLE_ARGS(example_out(NULL), example_in(knn->test_ref), example_in(view)),
        EXAMPLE_NONE, device, &distances);
    example_submit(
        knn->px, "topk_min",
        EXAMPLE_ARGS(example_out(NULL), example_out(NULL), example_in(distances)),
        EXAMPLE_SCALARS({.i = knn->options->k}, {.i = block * knn->block_rows}), device,
        out);
    example_release(knn->px, view);
    example_release(knn->px, distances); /* its memory goes when topk_min is done */
    return (struct nearest){out[0], out[1]};
}

static void compute(struct knn *knn, int32_t *out_labels)
{
    struct nearest nearest[DEVICES_MAX] = {{NULL, NULL}};
    struct plasmon_ref *labels =
        put(knn, knn->train->labels,
            (struct plasmon_shape){PLASMON_I32, 1, {knn->train->count}}, "labels");
    struct plasmon_ref *votes;

    for (int64_t block = 0; block < knn->block_count; block++) {
        struct nearest *chain = &nearest[block % knn->device_count];

        if (block >= (int64_t)(BLOCKS_AHEAD * knn->device_count)) {
            wait_for(
                knn,
                chain
                    ->values); /* everything up to this chain's last block: bounds the distances in flight */
        }
        merge(knn, chain, block_nearest(knn, block), device_of(knn, block));
        example_progress("blocks", (uint64_t)block, (uint64_t)knn->block_count);
    }
    for (uint32_t i = 1; i < knn->device_count; i++) {
        if (nearest[i].values != NULL) {
            merge(knn, &nearest[0], nearest[i], knn->device[0]);
        }
    }
    example_submit(
        knn->px, "vote",
        EXAMPLE_ARGS(example_out(NULL), example_in(nearest[0].indices), example_in(labels)),
        EXAMPLE_NONE, PLASMON_ANYWHERE, &votes);
    example_need(knn->px,
                 plasmon_get(knn->px, votes, out_labels,
                             (size_t)knn->test->count * sizeof(int32_t), PLASMON_FOREVER),
                 "votes");
    example_progress("blocks", (uint64_t)knn->block_count, (uint64_t)knn->block_count);
    example_release(knn->px, votes);
    example_release(knn->px, labels);
    example_release(knn->px, nearest[0].values);
    example_release(knn->px, nearest[0].indices);
}

/* --------------------------------------------------------------------------------- runs */

static char *status_of(const struct knn *knn)
{
    char *text;

    example_need(knn->px, plasmon_status_json(knn->px, &text), "status");
    return text;
}

static struct example_route route_since(const char *before, const char *after,
                                        const char *route)
{
    struct example_route a = example_route_of(before, route);
    struct example_route b = example_route_of(after, route);

    return (struct example_route){b.copies - a.copies, b.bytes - a.bytes};
}

static int64_t choose_block_rows(const struct knn *knn)
{
    int64_t fair =
        (knn->train->count + 2 * knn->device_count - 1) / (2 * (int64_t)knn->device_count);
    int64_t most = DISTANCE_BYTES_MAX / (knn->test->count * (int64_t)sizeof(float));

    if (knn->options->block != 0) {
        return knn->options->block;
    }
    return fair < most ? fair : most;
}

static void run(struct knn *knn, const char *transfer, struct result *out_result)
{
    char *before;
    char *moved;
    char *after;
    double began;

    (void)fprintf(stderr, "-- transfer %s\n", transfer);
    open_cluster(knn, transfer, &out_result->cuda);
    out_result->setting = transfer;
    out_result->devices = knn->device_count;
    knn->block_rows     = choose_block_rows(knn);
    knn->block_count    = (knn->train->count + knn->block_rows - 1) / knn->block_rows;

    began = example_seconds();
    knn->train_ref =
        put(knn, knn->train->pixels,
            (struct plasmon_shape){PLASMON_F32, 2, {knn->train->count, DIGITS_PIXELS}},
            "train");
    knn->test_ref = put(
        knn, knn->test->pixels,
        (struct plasmon_shape){PLASMON_F32, 2, {knn->test->count, DIGITS_PIXELS}}, "test");
    out_result->load_seconds = example_seconds() - began;

    before = status_of(knn);
    began  = example_seconds();
    move_blocks(knn);
    out_result->move_seconds = example_seconds() - began;
    moved                    = status_of(knn);
    out_result->peer         = route_since(before, moved, "peer");
    out_result->host         = route_since(before, moved, "host");

    began = example_seconds();
    compute(knn, out_result->labels);
    out_result->compute_seconds = example_seconds() - began;
    after                       = status_of(knn);
    out_result->all_peer        = route_since(before, after, "peer");
    out_result->all_host        = route_since(before, after, "host");

    free(before);
    free(moved);
    free(after);
    example_release(knn->px, knn->train_ref);
    example_release(knn->px, knn->test_ref);
    plasmon_finish(knn->px);
}

static int64_t right_count(const struct digits *test, const int32_t *labels)
{
    int64_t right = 0;

    for (int64_t i = 0; i < test->count; i++) {
        right += labels[i] == test->labels[i];
    }
    return right;
}

static void print_table(const struct result *results, int count)
{
    printf("\n%-10s %8s %9s %9s %9s | %-13s %-22s %10s\n", "transfer", "devices", "load s",
           "move s", "knn s", "moved by", "copies and MB", "MB/s");
    for (int i = 0; i < count; i++) {
        const struct result *r     = &results[i];
        bool by_peer               = r->peer.bytes >= r->host.bytes;
        struct example_route route = by_peer ? r->peer : r->host;
        const char *name = route.bytes == 0 ? "nothing moved" : by_peer ? "peer" : "host";
        char amount[64];

        (void)snprintf(amount, sizeof(amount), "%llu, %.2f",
                       (unsigned long long)route.copies, (double)route.bytes / 1e6);
        printf("%-10s %3u %-4s %9.4f %9.4f %9.4f | %-13s %-22s %10.0f\n", r->setting,
               r->devices, r->cuda ? "GPU" : "CPU", r->load_seconds, r->move_seconds,
               r->compute_seconds, name, amount,
               r->move_seconds > 0 ? (double)route.bytes / 1e6 / r->move_seconds : 0.0);
    }
    for (int i = 0; i < count; i++) {
        printf(
            "  %s, whole run: peer %llu copies, %llu bytes; host %llu copies, %llu bytes\n",
            results[i].setting, (unsigned long long)results[i].all_peer.copies,
            (unsigned long long)results[i].all_peer.bytes,
            (unsigned long long)results[i].all_host.copies,
            (unsigned long long)results[i].all_host.bytes);
    }
}

/* 0: every run has the same labels, and (--check) those of brute force. */
static int compare(const struct knn *knn, const struct result *results, int count)
{
    size_t bytes = (size_t)knn->test->count * sizeof(int32_t);
    int wrong    = 0;

    for (int i = 1; i < count; i++) {
        if (memcmp(results[0].labels, results[i].labels, bytes) != 0) {
            printf("WRONG: transfer %s and %s do not agree\n", results[0].setting,
                   results[i].setting);
            wrong = 1;
        }
    }
    if (knn->options->check) {
        int32_t *want = malloc(bytes);

        if (want == NULL) {
            example_die("out of memory");
        }
        digits_brute_force(knn->train, knn->test, knn->options->k, want);
        if (memcmp(results[0].labels, want, bytes) != 0) {
            printf("WRONG: brute force gives %lld of %lld right, and other labels\n",
                   (long long)right_count(knn->test, want), (long long)knn->test->count);
            wrong = 1;
        } else {
            printf("check: every label is that of brute force\n");
        }
        free(want);
    }
    return wrong;
}

static const char *default_data(const char *program)
{
    static char path[4096];
    const char *slash = strrchr(program, '/');
    FILE *file        = fopen("data/digits.csv", "re");

    if (file != NULL) {
        (void)fclose(file);
        return "data/digits.csv";
    }
    (void)snprintf(path, sizeof(path), "%.*s/digits.csv",
                   slash != NULL ? (int)(slash - program) : 1,
                   slash != NULL ? program : ".");
    return path;
}

static void parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *name  = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(name, "--check") == 0) {
            options->check = true;
            continue;
        }
        if (value == NULL) {
            example_die("usage: %s [--k 3] [--devices N] [--gpus auto|none|N] [--scale N] "
                        "[--block ROWS]\n"
                        "              [--data digits.csv] [--picture FILE.svg] [--check]",
                        argv[0]);
        }
        i++;
        if (strcmp(name, "--k") == 0) {
            options->k = (int)example_number(name, value, 1, DIGITS_K_MAX);
        } else if (strcmp(name, "--devices") == 0) {
            options->devices = (uint32_t)example_number(name, value, 1, DEVICES_MAX);
        } else if (strcmp(name, "--scale") == 0) {
            options->scale = example_number(name, value, 1, 1000000);
        } else if (strcmp(name, "--block") == 0) {
            options->block = example_number(name, value, 1, INT32_MAX);
        } else if (strcmp(name, "--gpus") == 0) {
            options->gpus = value;
        } else if (strcmp(name, "--data") == 0) {
            options->data = value;
        } else if (strcmp(name, "--picture") == 0) {
            options->picture = value;
        } else {
            example_die("%s: there is no option \"%s\"", argv[0], name);
        }
    }
}

int main(int argc, char **argv)
{
    struct options options  = {.k = 3, .scale = 1};
    const char *address     = getenv("PLASMON_ADDRESS");
    bool private_clusters   = address == NULL || address[0] == '\0';
    int runs                = private_clusters ? 2 : 1;
    struct result result[2] = {{0}};
    struct digits train;
    struct digits test;
    struct knn knn = {.options = &options, .train = &train, .test = &test};
    int wrong;

    parse(argc, argv, &options);
    digits_read(options.data != NULL ? options.data : default_data(argv[0]), &train, &test);
    digits_scale(&train, options.scale);
    printf("%lld digits to learn from (%.1f MB), %lld held out, k = %d\n",
           (long long)train.count,
           (double)train.count * DIGITS_PIXELS * sizeof(float) / 1e6, (long long)test.count,
           options.k);

    for (int i = 0; i < runs; i++) {
        result[i].labels = calloc((size_t)test.count, sizeof(int32_t));
        if (result[i].labels == NULL) {
            example_die("out of memory");
        }
        run(&knn, i == 0 ? (private_clusters ? "auto" : "cluster's") : "host", &result[i]);
    }

    printf("accuracy: %.2f %% (%lld of %lld)\n",
           100.0 * (double)right_count(&test, result[0].labels) / (double)test.count,
           (long long)right_count(&test, result[0].labels), (long long)test.count);
    print_table(result, runs);
    wrong = compare(&knn, result, runs);
    if (options.picture != NULL) {
        digits_picture(options.picture, &test, result[0].labels);
        printf("misread digits: %s\n", options.picture);
    }
    for (int i = 0; i < runs; i++) {
        free(result[i].labels);
    }
    digits_finish(&train);
    digits_finish(&test);
    return wrong;
}
