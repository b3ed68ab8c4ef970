/* ML for CPU devices. Matrices are row-major. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int ml_stats(float *stats, const float *x, const double *sums, const uint32_t *ticket,
             int64_t n, int64_t f)
{
    double *sum = calloc((size_t)(2 * f), sizeof(*sum));

    (void)sums;
    (void)ticket;
    if (sum == NULL) {
        return 1;
    }
    for (int64_t i = 0; i < n * f; i++) {
        double value = (double)x[i];

        sum[i % f] += value;
        sum[f + i % f] += value * value;
    }
    for (int64_t j = 0; j < f; j++) {
        double mean     = sum[j] / (double)n;
        double variance = sum[f + j] / (double)n - mean * mean;

        stats[j]     = (float)mean;
        stats[f + j] = variance > 0 ? (float)(1 / sqrt(variance)) : 0;
    }
    free(sum);
    return 0;
}

void ml_standardise(float *z, const float *x, const float *stats, int64_t n, int64_t f)
{
    for (int64_t row = 0; row < n; row++) {
        for (int64_t j = 0; j < f; j++) {
            z[row * f + j] = (x[row * f + j] - stats[j]) * stats[f + j];
        }
    }
}

static void product(float *r, const float *x, const float *weights, const float *bias,
                    int64_t n, int64_t f, int64_t classes)
{
    for (int64_t row = 0; row < n; row++) {
        for (int64_t j = 0; j < classes; j++) {
            float sum = 0;

            for (int64_t k = 0; k < f; k++) {
                sum += x[row * f + k] * weights[j * f + k];
            }
            r[row * classes + j] = sum + bias[j];
        }
    }
}

void ml_product10(float *r, const float *x, const float *weights, const float *bias,
                  int64_t n, int64_t f)
{
    product(r, x, weights, bias, n, f, 10);
}

void ml_product16(float *r, const float *x, const float *weights, const float *bias,
                  int64_t n, int64_t f)
{
    product(r, x, weights, bias, n, f, 16);
}

static float max_of(const float *r, int64_t classes)
{
    float most = r[0];

    for (int64_t j = 1; j < classes; j++) {
        most = fmaxf(most, r[j]);
    }
    return most;
}

void ml_softmax(float *r, int64_t n, int64_t classes)
{
    for (int64_t row = 0; row < n; row++, r += classes) {
        float most = max_of(r, classes), sum = 0;

        for (int64_t j = 0; j < classes; j++) {
            r[j] = expf(r[j] - most);
            sum += r[j];
        }
        for (int64_t j = 0; j < classes; j++) {
            r[j] /= sum;
        }
    }
}

void ml_row_max(float *most, const float *r, int64_t n, int64_t classes)
{
    for (int64_t row = 0; row < n; row++) {
        most[row] = max_of(&r[row * classes], classes);
    }
}

void ml_row_lse(float *lse, const float *r, const float *most, int64_t n, int64_t classes)
{
    for (int64_t row = 0; row < n; row++) {
        float sum = 0;

        for (int64_t j = 0; j < classes; j++) {
            sum += expf(r[row * classes + j] - most[row]);
        }
        lse[row] = most[row] + logf(sum);
    }
}

void ml_exp(float *r, const float *lse, int64_t n, int64_t classes)
{
    for (int64_t i = 0; i < n * classes; i++) {
        r[i] = expf(r[i] - lse[i / classes]);
    }
}

void ml_argmax(int32_t *best, const float *r1, const float *r2, int64_t n, int64_t classes)
{
    for (int64_t row = 0; row < n; row++, r1 += classes, r2 += classes) {
        best[row] = 0;
        for (int64_t j = 1; j < classes; j++) {
            if (r1[j] + r2[j] > r1[best[row]] + r2[best[row]]) {
                best[row] = (int32_t)j;
            }
        }
    }
}

void ml_combine(float *stats, const float *all, int64_t parts, int64_t f)
{
    for (int64_t j = 0; j < f; j++) {
        double mean = 0, square = 0, variance;

        for (int64_t i = 0; i < parts; i++) {
            double m = (double)all[2 * i * f + j], by = (double)all[(2 * i + 1) * f + j];

            mean += m;
            square += m * m + (by > 0 ? 1 / (by * by) : 0);
        }
        mean /= (double)parts;
        variance     = square / (double)parts - mean * mean;
        stats[j]     = (float)mean;
        stats[f + j] = variance > 0 ? (float)(1 / sqrt(variance)) : 0;
    }
}
