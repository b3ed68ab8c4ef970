/*
 * Streaming: batches come from outside and results go back out, while the device works on other batches.
 *
 * A batch is multiplied with weights that stay on the device. First one after the other, from and
 * to ordinary memory: put, call, get, each waited for. Then through a few slots of host memory
 * (plasmon_host_alloc), which the device copies from and to by itself: put, call and get of a batch
 * are sent at once, and nobody waits but for a slot that is needed again. The same results, bit by
 * bit.
 */
#include <plasmon/plasmon.h>
#include <string.h>

#include "example.h"

enum { BATCHES = 48, SLOTS = 3, ROWS = 256, DEPTH = 512, COLUMNS = 256 };
#define IN_BYTES  ((size_t)ROWS * DEPTH * sizeof(float))
#define OUT_BYTES ((size_t)ROWS * COLUMNS * sizeof(float))

static const struct plasmon_shape in_shape = {PLASMON_F32, 2, {ROWS, DEPTH}};

/* Where a batch comes from: a network, a file. */
static void receive(float *batch, int number)
{
    for (int i = 0; i < ROWS * DEPTH; i++) {
        batch[i] = (float)((i * 7 + number * 13) % 101) / 101.0f;
    }
}

/* Where a result goes. All that is left of it here is a sum. */
static double deliver(const float *result)
{
    double sum = 0;

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        sum += (double)result[i];
    }
    return sum;
}

static struct plasmon_ref *work(struct plasmon_client *px, struct plasmon_ref *batch,
                                struct plasmon_ref *weights)
{
    struct plasmon_ref *result;

    example_submit(
        px, "gemm", EXAMPLE_ARGS(example_out(NULL), example_in(batch), example_in(weights)),
        EXAMPLE_SCALARS({.f = 1}, {.i = 0}, {.i = 0}), PLASMON_ANYWHERE, &result);
    return result;
}

static double one_by_one(struct plasmon_client *px, struct plasmon_ref *weights,
                         double *sums)
{
    static float in[ROWS * DEPTH], out[ROWS * COLUMNS];
    double begin = example_seconds();

    for (int i = 0; i < BATCHES; i++) {
        struct plasmon_ref *batch, *result;

        receive(in, i);
        example_need(px, plasmon_put(px, in, &in_shape, NULL, &batch), "put");
        result = work(px, batch, weights);
        example_need(px, plasmon_get(px, result, out, OUT_BYTES, PLASMON_FOREVER), "get");
        sums[i] = deliver(out);
        example_release(px, batch);
        example_release(px, result);
    }
    return example_seconds() - begin;
}

struct slot {
    float *in, *out;
    struct plasmon_ref *got; /* ready when the result of its batch is in `out` */
    int batch;
};

/* Nothing in here waits. When the result has come, the batch has been read. */
static void send(struct plasmon_client *px, struct slot *slot, struct plasmon_ref *weights)
{
    struct plasmon_ref *batch, *result;

    example_need(px, plasmon_put_async(px, slot->in, &in_shape, NULL, &batch), "put");
    result = work(px, batch, weights);
    example_need(px, plasmon_get_async(px, result, slot->out, OUT_BYTES, &slot->got),
                 "get");
    example_release(px, batch); /* the calls keep what they need */
    example_release(px, result);
}

static void finish(struct plasmon_client *px, struct slot *slot, double *sums)
{
    if (slot->got != NULL) {
        example_need(px, plasmon_wait(px, &slot->got, 1, 1, PLASMON_FOREVER, NULL, NULL),
                     "wait");
        example_need(px, plasmon_state(px, slot->got), "a batch");
        example_release(px, slot->got);
        slot->got         = NULL;
        sums[slot->batch] = deliver(slot->out);
    }
}

static double streamed(struct plasmon_client *px, struct plasmon_ref *weights, double *sums)
{
    struct slot slots[SLOTS] = {0};
    double begin, seconds;

    for (int i = 0; i < SLOTS; i++) {
        example_need(px, plasmon_host_alloc(px, IN_BYTES, (void **)&slots[i].in),
                     "host memory");
        example_need(px, plasmon_host_alloc(px, OUT_BYTES, (void **)&slots[i].out),
                     "host memory");
    }
    begin = example_seconds();
    for (int i = 0; i < BATCHES + SLOTS; i++) {
        struct slot *slot = &slots[i % SLOTS];

        finish(px, slot, sums); /* of SLOTS batches ago */
        if (i < BATCHES) {
            slot->batch = i;
            receive(slot->in, i); /* while the device works on the other slots */
            send(px, slot, weights);
        }
    }
    seconds = example_seconds() - begin;
    for (int i = 0; i < SLOTS; i++) {
        example_need(px, plasmon_host_free(px, slots[i].in), "free");
        example_need(px, plasmon_host_free(px, slots[i].out), "free");
    }
    return seconds;
}

int main(void)
{
    const struct plasmon_shape shape = {PLASMON_F32, 2, {DEPTH, COLUMNS}};
    static float numbers[DEPTH * COLUMNS];
    double by_put[BATCHES], by_stream[BATCHES], put_seconds, stream_seconds;
    struct plasmon_ref *weights;
    struct plasmon_client *px;

    for (int i = 0; i < DEPTH * COLUMNS; i++) {
        numbers[i] = (float)(i % 17) / 17.0f;
    }
    example_need(NULL, plasmon_init(NULL, &px), "start");
    example_need(px, plasmon_put(px, numbers, &shape, NULL, &weights), "put");
    put_seconds    = one_by_one(px, weights, by_put);
    stream_seconds = streamed(px, weights, by_stream);
    plasmon_finish(px);

    printf("%d batches: one by one %.0f us each, streamed %.0f us each\n", BATCHES,
           put_seconds / BATCHES * 1e6, stream_seconds / BATCHES * 1e6);
    if (memcmp(by_put, by_stream, sizeof(by_put)) != 0) {
        example_die("the two differ");
    }
    printf("the same bits\n");
    return 0;
}
