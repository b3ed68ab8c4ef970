/*
 * REDUCE: many tasks add into one array without waiting for each other.
 *
 * Each call with a REDUCE argument gets an accumulator of its own, on whatever device it runs. They
 * are folded into the array when somebody reads it: in the order of submission, by a fixed tree. So
 * the sum has the same bits on one device and on three, however the tasks were spread; a program
 * that adds floats in the order of arrival has not. The example runs on both and compares.
 *
 * A snapshot between two halves reads the first half's sum, while the second half goes on.
 */
#include <math.h>
#include <plasmon/plasmon.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"

enum { PARTS = 90, LENGTH = 4096 };

static struct plasmon_ref *random_part(struct plasmon_client *px, int64_t part)
{
    const struct plasmon_shape shape = {PLASMON_F32, 1, {LENGTH}};
    struct plasmon_ref *ref;

    example_submit(
        px, "random_uniform", EXAMPLE_ARGS(example_make(&shape)),
        EXAMPLE_SCALARS({.i = 7}, {.i = part * LENGTH}, {.i = 0}, {.f = -1.0}, {.f = 1.0}),
        PLASMON_ANYWHERE, &ref);
    return ref;
}

/* out[0]: the sum of the first half of the parts, out[1]: of all; parts: their bytes. */
static void run(uint32_t devices, float out[2][LENGTH], float parts[PARTS][LENGTH])
{
    const struct plasmon_shape shape = {PLASMON_F32, 1, {LENGTH}};
    struct plasmon_options options   = PLASMON_OPTIONS_INIT;
    struct plasmon_client *px;
    struct plasmon_ref *sum;
    struct plasmon_ref *half = NULL;
    struct plasmon_ref *x[PARTS];

    options.gpus        = "none"; /* the bits are promised for devices of one kind */
    options.cpu_devices = devices;
    options.policy      = "round-robin";
    example_need(NULL, plasmon_init(&options, &px), "start");
    example_submit(px, "fill", EXAMPLE_ARGS(example_make(&shape)),
                   EXAMPLE_SCALARS({.f = 0.0}), PLASMON_ANYWHERE, &sum);
    for (int part = 0; part < PARTS; part++) {
        x[part] = random_part(px, part);
        example_submit(px, "accumulate",
                       EXAMPLE_ARGS(example_reduce(sum), example_in(x[part])), EXAMPLE_NONE,
                       PLASMON_ANYWHERE, NULL);
        if (part == PARTS / 2 - 1) {
            example_need(px, plasmon_snapshot(px, sum, &half), "snapshot");
        }
    }
    example_need(px, plasmon_get(px, half, out[0], sizeof(out[0]), PLASMON_FOREVER),
                 "get the snapshot");
    example_need(px, plasmon_get(px, sum, out[1], sizeof(out[1]), PLASMON_FOREVER),
                 "get the sum");
    for (int part = 0; part < PARTS; part++) {
        example_need(
            px, plasmon_get(px, x[part], parts[part], sizeof(parts[part]), PLASMON_FOREVER),
            "get a part");
        example_release(px, x[part]);
    }
    plasmon_finish(px);
}

/* Largest distance from the sum in fp64. */
static double error_of(const float *sum, float parts[PARTS][LENGTH], int count)
{
    double largest = 0.0;

    for (int i = 0; i < LENGTH; i++) {
        double exact = 0.0;

        for (int part = 0; part < count; part++) {
            exact += (double)parts[part][i];
        }
        largest = fmax(largest, fabs((double)sum[i] - exact));
    }
    return largest;
}

int main(void)
{
    static float one[2][LENGTH];
    static float three[2][LENGTH];
    static float parts[PARTS][LENGTH];
    /* count x largest partial sum x the rounding of f32 */
    double bound = PARTS * (double)PARTS * 6.0e-8;
    double half_error;
    double error;
    int same;

    run(1, one, parts);
    run(3, three, parts);
    same       = memcmp(one, three, sizeof(one)) == 0;
    half_error = error_of(three[0], parts, PARTS / 2);
    error      = error_of(three[1], parts, PARTS);
    printf("%d parts on 1 and on 3 devices: the sums %s\n", PARTS,
           same ? "are equal to the bit" : "DIFFER");
    printf("away from fp64: %.1e (half: %.1e), allowed %.1e\n", error, half_error, bound);
    return same && error <= bound && half_error <= bound ? 0 : 1;
}
