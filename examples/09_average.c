/*
 * Data-parallel training: each device has a share of the samples and a copy of the weights, works
 * out the gradient of its share, and plasmon_all_reduce() gives all of them the average. One call a
 * step; the program never waits before the end.
 *
 * The model is a logistic regression of samples whose labels are made with known weights. The
 * copies of the weights stay equal to the bit, because an all-reduce gives every device the same
 * bits; the example compares them, and how many labels the model gets right.
 */
#include <plasmon/plasmon.h>
#include <string.h>

#include "example.h"

enum { DEVICES = 3, SHARES_MAX = 16, ROWS = 2000, FEATURES = 64, STEPS = 60 };

/* What one device has. */
struct share {
    int device;                  /* its index */
    struct plasmon_ref *x;       /* samples: ROWS x FEATURES */
    struct plasmon_ref *labels;  /* probabilities of the true model: ROWS x 1 */
    struct plasmon_ref *weights; /* FEATURES x 1 */
};

/* sigmoid(x w): ROWS x 1 */
static struct plasmon_ref *predict(struct plasmon_client *px, struct plasmon_ref *x,
                                   struct plasmon_ref *w, int device)
{
    struct plasmon_ref *score, *probability;

    example_submit(px, "gemm",
                   EXAMPLE_ARGS(example_out(NULL), example_in(x), example_in(w)),
                   EXAMPLE_SCALARS({.f = 1.0}, {.i = 0}, {.i = 0}), device, &score);
    example_submit(px, "sigmoid", EXAMPLE_ARGS(example_out(NULL), example_in(score)),
                   EXAMPLE_NONE, device, &probability);
    example_release(px, score);
    return probability;
}

/* Samples number `index`, labels by the true weights, and weights 0, on this device. */
static struct share share_make(struct plasmon_client *px, struct plasmon_ref *truth,
                               uint32_t index, int device)
{
    const struct plasmon_shape samples = {PLASMON_F32, 2, {ROWS, FEATURES}};
    const struct plasmon_shape column  = {PLASMON_F32, 2, {FEATURES, 1}};
    struct share share                 = {.device = device};

    example_submit(px, "random_normal", EXAMPLE_ARGS(example_make(&samples)),
                   EXAMPLE_SCALARS({.i = 1}, {.i = (int64_t)index * ROWS * FEATURES},
                                   {.i = 0}, {.f = 0.0}, {.f = 1.0}),
                   device, &share.x);
    share.labels = predict(px, share.x, truth, device);
    example_submit(px, "fill", EXAMPLE_ARGS(example_make(&column)),
                   EXAMPLE_SCALARS({.f = 0.0}), device, &share.weights);
    return share;
}

/* x^T (p - labels) / ROWS */
static struct plasmon_ref *gradient_of(struct plasmon_client *px, const struct share *share)
{
    const int device      = share->device;
    struct plasmon_ref *p = predict(px, share->x, share->weights, device);
    struct plasmon_ref *error, *gradient;

    example_submit(
        px, "subtract",
        EXAMPLE_ARGS(example_out(NULL), example_in(p), example_in(share->labels)),
        EXAMPLE_NONE, device, &error);
    example_submit(px, "gemm",
                   EXAMPLE_ARGS(example_out(NULL), example_in(share->x), example_in(error)),
                   EXAMPLE_SCALARS({.f = 1.0 / ROWS}, {.i = 1}, {.i = 0}), device,
                   &gradient);
    example_release(px, p);
    example_release(px, error);
    return gradient;
}

/* The same average to every device, and a step of the weights against it. */
static void train(struct plasmon_client *px, const struct share *shares, uint32_t count)
{
    for (int step = 0; step < STEPS; step++) {
        struct plasmon_ref *gradient[SHARES_MAX], *average[SHARES_MAX];

        for (uint32_t i = 0; i < count; i++) {
            gradient[i] = gradient_of(px, &shares[i]);
        }
        example_need(px,
                     plasmon_all_reduce(px, PLASMON_REDUCE_AVG, gradient, count, NULL,
                                        average, NULL),
                     "all-reduce");
        for (uint32_t i = 0; i < count; i++) {
            example_submit(
                px, "axpy",
                EXAMPLE_ARGS(example_inout(shares[i].weights), example_in(average[i])),
                EXAMPLE_SCALARS({.f = -4.0}), shares[i].device, NULL);
            example_release(px, gradient[i]);
            example_release(px, average[i]);
        }
    }
}

static void get(struct plasmon_client *px, struct plasmon_ref *ref, float *out,
                size_t count)
{
    example_need(px, plasmon_get(px, ref, out, count * sizeof(float), PLASMON_FOREVER),
                 "get");
}

/* How many labels of the device's share the model has on the right side. */
static int right_of(struct plasmon_client *px, const struct share *share)
{
    static float label[ROWS], guess[ROWS];
    struct plasmon_ref *p = predict(px, share->x, share->weights, share->device);
    int right             = 0;

    get(px, share->labels, label, ROWS);
    get(px, p, guess, ROWS);
    for (int row = 0; row < ROWS; row++) {
        right += (label[row] > 0.5f) == (guess[row] > 0.5f);
    }
    example_release(px, p);
    return right;
}

/* Of a private cluster those that were asked for; of one that runs already those that it has. */
static uint32_t devices_of(struct plasmon_client *px,
                           struct plasmon_device_info infos[SHARES_MAX])
{
    uint32_t count;

    example_need(px, plasmon_devices(px, infos, SHARES_MAX, &count), "list devices");
    return count < SHARES_MAX ? count : SHARES_MAX;
}

int main(void)
{
    const struct plasmon_shape column = {PLASMON_F32, 2, {FEATURES, 1}};
    struct plasmon_options options    = PLASMON_OPTIONS_INIT;
    static float weights[SHARES_MAX][FEATURES];
    struct plasmon_device_info infos[SHARES_MAX];
    struct share shares[SHARES_MAX];
    struct plasmon_client *px;
    struct plasmon_ref *truth;
    uint32_t count;
    int right = 0;
    int same  = 1;

    options.gpus        = "none";
    options.cpu_devices = DEVICES;
    example_need(NULL, plasmon_init(&options, &px), "start");
    count = devices_of(px, infos);
    example_submit(px, "random_normal", EXAMPLE_ARGS(example_make(&column)),
                   EXAMPLE_SCALARS({.i = 2}, {.i = 0}, {.i = 0}, {.f = 0.0}, {.f = 1.0}),
                   PLASMON_ANYWHERE, &truth);
    for (uint32_t i = 0; i < count; i++) {
        shares[i] = share_make(px, truth, i, infos[i].index);
    }
    train(px, shares, count);
    for (uint32_t i = 0; i < count; i++) {
        get(px, shares[i].weights, weights[i], FEATURES);
        same &= memcmp(weights[i], weights[0], sizeof(weights[0])) == 0;
        right += right_of(px, &shares[i]);
    }
    plasmon_finish(px);
    printf("%d steps on %u devices: %.1f%% of %u labels are right, and the copies of the "
           "weights %s\n",
           STEPS, count, 100.0 * right / (count * ROWS), count * ROWS,
           same ? "are equal to the bit" : "DIFFER");
    return count > 0 && same && (uint32_t)right > count * ROWS * 95 / 100 ? 0 : 1;
}
