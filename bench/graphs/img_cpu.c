/* IMG for CPU devices. Pixels outside the picture are 0. */
#include <math.h>
#include <stdint.h>

static float pixel(const float *in, int64_t n, int64_t row, int64_t column)
{
    return row >= 0 && row < n && column >= 0 && column < n ? in[row * n + column] : 0;
}

static void blur(float *out, const float *in, const float *weights, int64_t width,
                 int64_t n)
{
    for (int64_t row = 0; row < n; row++) {
        for (int64_t column = 0; column < n; column++) {
            float sum = 0;

            for (int64_t i = 0; i < width * width; i++) {
                sum += weights[i] * pixel(in, n, row + i / width - width / 2,
                                          column + i % width - width / 2);
            }
            out[row * n + column] = sum;
        }
    }
}

void img_blur3(float *out, const float *in, const float *weights, int64_t n)
{
    blur(out, in, weights, 3, n);
}

void img_blur5(float *out, const float *in, const float *weights, int64_t n)
{
    blur(out, in, weights, 5, n);
}

void img_sobel(float *out, const float *in, int64_t n)
{
    for (int64_t row = 0; row < n; row++) {
        for (int64_t column = 0; column < n; column++) {
            float across = 0, down = 0;

            for (int64_t i = -1; i <= 1; i++) {
                float weight = i == 0 ? 2 : 1;

                across += weight * (pixel(in, n, row + i, column + 1) -
                                    pixel(in, n, row + i, column - 1));
                down += weight * (pixel(in, n, row + 1, column + i) -
                                  pixel(in, n, row - 1, column + i));
            }
            out[row * n + column] = sqrtf(across * across + down * down);
        }
    }
}

void img_max(float *out, const float *in, const float *partial, const uint32_t *ticket,
             int64_t n)
{
    (void)partial;
    (void)ticket;
    *out = in[0];
    for (int64_t i = 1; i < n * n; i++) {
        *out = in[i] > *out ? in[i] : *out;
    }
}

void img_min(float *out, const float *in, const float *partial, const uint32_t *ticket,
             int64_t n)
{
    (void)partial;
    (void)ticket;
    *out = in[0];
    for (int64_t i = 1; i < n * n; i++) {
        *out = in[i] < *out ? in[i] : *out;
    }
}

void img_extend(float *mask, const float *low, const float *high, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++) {
        mask[i] = *high > *low ? fminf(1, 5 * (mask[i] - *low) / (*high - *low)) : 0;
    }
}

void img_unsharpen(float *out, const float *in, const float *blurred, int64_t n,
                   float amount)
{
    for (int64_t i = 0; i < n * n; i++) {
        out[i] = fminf(1, fmaxf(0, (1 + amount) * in[i] - amount * blurred[i]));
    }
}

void img_combine(float *out, const float *a, const float *b, const float *mask, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++) {
        out[i] = a[i] * mask[i] + b[i] * (1 - mask[i]);
    }
}
