/* DL for CPU devices. Images are planes [channel][row][column]; filters are 3 x 3 with stride 2. */
#include <stdint.h>
#include <string.h>

/* `from` planes of 2 m x 2 m become `to` planes of m x m, with ReLU. */
static void conv(float *out, const float *in, const float *weights, int64_t from,
                 int64_t to, int64_t m)
{
    int64_t n = 2 * m;

    for (int64_t i = 0; i < to * m * m; i++) {
        int64_t plane = i / (m * m), row = i / m % m, column = i % m;
        float sum = 0;

        for (int64_t k = 0; k < from * 9; k++) {
            int64_t y = 2 * row + k % 9 / 3 - 1, x = 2 * column + k % 3 - 1;

            if (y >= 0 && x >= 0) { /* below n, as row and column are below n / 2 */
                sum += weights[plane * from * 9 + k] * in[(k / 9 * n + y) * n + x];
            }
        }
        out[i] = sum > 0 ? sum : 0;
    }
}

void dl_conv1(float *out, const float *in, const float *weights, int64_t m)
{
    conv(out, in, weights, 1, 8, m);
}

void dl_pool(float *out, const float *in, int64_t m)
{
    for (int64_t i = 0; i < 8 * m * m; i++) {
        int64_t plane = i / (m * m), row = i / m % m, column = i % m, n = 5 * m;
        float sum = 0;

        for (int64_t k = 0; k < 25; k++) {
            sum += in[(plane * n + 5 * row + k / 5) * n + 5 * column + k % 5];
        }
        out[i] = sum / 25;
    }
}

void dl_conv2(float *out, const float *in, const float *weights, int64_t m)
{
    conv(out, in, weights, 8, 16, m);
}

void dl_concat(float *out, const float *a, const float *b, int64_t m)
{
    memcpy(out, a, (size_t)(16 * m * m) * sizeof(*out));
    memcpy(out + 16 * m * m, b, (size_t)(16 * m * m) * sizeof(*out));
}

void dl_dense(float *out, const float *x, const float *weights, const float *partial,
              const uint32_t *ticket, int64_t m)
{
    (void)partial;
    (void)ticket;
    *out = 0;
    for (int64_t plane = 0; plane < 32; plane++) {
        float sum = 0;

        for (int64_t i = plane * m * m; i < (plane + 1) * m * m; i++) {
            sum += x[i] * weights[i];
        }
        *out += sum;
    }
}
