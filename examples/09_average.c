/*
 * Data-parallel training: each device has a share of the samples and a copy of the weights, works out the gradient of its share, and
 * plasmon_all_reduce() gives all of them the average. One call a step; the program never waits before the end.
 *
 * The model is a logistic regression of samples whose labels are made with known weights. The copies of the weights stay equal to the
 * bit, because an all-reduce gives every device the same bits; the example compares them, and how many labels the model gets right.
 */
#include <plasmon/plasmon.h>
#include <string.h>

#include "example.h"

enum { DEVICES = 3, ROWS = 2000, FEATURES = 64, STEPS = 60 };

/* What one device has. */
struct share {
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

/* Samples of this device, labels by the true weights, and weights 0. */
static struct share share_make(struct plasmon_client *px, struct plasmon_ref *truth,
                               int device)
{
    const struct plasmon_shape samples = {PLASMON_F32, 2, {ROWS, FEATURES}};
    const struct plasmon_shape column  = {PLASMON_F32, 2, {FEATURES, 1}};
    struct share share;

    example_submit(px, "random_normal", EXAMPLE_ARGS(example_make(&samples)),
                   EXAMPLE_SCALARS({.i = 1}, {.i = (int64_t)device * ROWS * FEATURES},
                                   {.i = 0}, {.f = 0.0}, {.f = 1.0}),
                   device, &share.x);
    share.labels = predict(px, share.x, truth, device);
    example_submit(px, "fill", EXAMPLE_ARGS(example_make(&column)),
                   EXAMPLE_SCALARS({.f = 0.0}), device, &share.weights);
    return share;
}

/* x^T (p - labels) / ROWS */
static struct plasmon_ref *gradient_of(struct plasmon_client *px, const struct share *share,
                                       int device)
{
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
static void train(struct plasmon_client *px, struct share *shares)
{
    for (int step = 0; step < STEPS; step++) {
        struct plasmon_ref *gradient[DEVICES], *average[DEVICES];

        for (int device = 0; device < DEVICES; device++) {
            gradient[device] = gradient_of(px, &shares[device], device);
        }
        example_need(px,
                     plasmon_all_reduce(px, PLASMON_REDUCE_AVG, gradient, DEVICES, NULL,
                                        average, NULL),
                     "all-reduce");
        for (int device = 0; device < DEVICES; device++) {
            example_submit(px, "axpy",
                           EXAMPLE_ARGS(example_inout(shares[device].weights),
                                        example_in(average[device])),
                           EXAMPLE_SCALARS({.f = -4.0}), device, NULL);
            example_release(px, gradient[device]);
            example_release(px, average[device]);
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
static int right_of(struct plasmon_client *px, const struct share *share, int device)
{
    static float label[ROWS], guess[ROWS];
    struct plasmon_ref *p = predict(px, share->x, share->weights, device);
    int right             = 0;

    get(px, share->labels, label, ROWS);
    get(px, p, guess, ROWS);
    for (int row = 0; row < ROWS; row++) {
        right += (label[row] > 0.5f) == (guess[row] > 0.5f);
    }
    example_release(px, p);
    return right;
}

int main(void)
{
    const struct plasmon_shape column = {PLASMON_F32, 2, {FEATURES, 1}};
    struct plasmon_options options    = PLASMON_OPTIONS_INIT;
    static float weights[DEVICES][FEATURES];
    struct share shares[DEVICES];
    struct plasmon_client *px;
    struct plasmon_ref *truth;
    int right = 0;
    int same  = 1;

    options.gpus        = "none";
    options.cpu_devices = DEVICES;
    example_need(NULL, plasmon_init(&options, &px), "start");
    example_submit(px, "random_normal", EXAMPLE_ARGS(example_make(&column)),
                   EXAMPLE_SCALARS({.i = 2}, {.i = 0}, {.i = 0}, {.f = 0.0}, {.f = 1.0}),
                   PLASMON_ANYWHERE, &truth);
    for (int device = 0; device < DEVICES; device++) {
        shares[device] = share_make(px, truth, device);
    }
    train(px, shares);
    for (int device = 0; device < DEVICES; device++) {
        get(px, shares[device].weights, weights[device], FEATURES);
        same &= memcmp(weights[device], weights[0], sizeof(weights[0])) == 0;
        right += right_of(px, &shares[device], device);
    }
    plasmon_finish(px);
    printf("%d steps on %d devices: %.1f%% of %d labels are right, and the copies of the "
           "weights %s\n",
           STEPS, DEVICES, 100.0 * right / (DEVICES * ROWS), DEVICES * ROWS,
           same ? "are equal to the bit" : "DIFFER");
    return same && right > DEVICES * ROWS * 95 / 100 ? 0 : 1;
}
