/*
 * The handwritten digits: reading the file, more of them with noise, the answer by brute force, and
 * a picture of those that were misread. Plain C without Plasmon.
 */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

#include <stdint.h>

enum { DIGITS_PIXELS = 64, DIGITS_SIDE = 8, DIGITS_SPLIT = 4, DIGITS_K_MAX = 64 };

/* Rows of 64 pixels, 0 to 16, and what they are. */
struct digits {
    int64_t count;
    float *pixels; /* count x 64 */
    int32_t *labels;
};

/*
 * Every 4th row of the file, from the first, goes to `test`, the others to `train`. Dies on a file
 * that is not what it should be.
 */
void digits_read(const char *path, struct digits *out_train, struct digits *out_test);
/*
 * `scale` times as many: the rows themselves, then noisy copies of all of them. Noise and pixels
 * are multiples of 1/16, so that every squared distance is exact in f32 whatever the order of its
 * sum: results can be compared to the bit.
 */
void digits_scale(struct digits *digits, int64_t scale);
void digits_finish(struct digits *digits);

/* Label of each test row by its k nearest training rows, one after the other: the check of the real thing. */
void digits_brute_force(const struct digits *train, const struct digits *test, int k,
                        int32_t *out_labels);
/* Draw the misread ones as an SVG file. Dies if it cannot be written. */
void digits_picture(const char *path, const struct digits *test, const int32_t *read);

#endif
