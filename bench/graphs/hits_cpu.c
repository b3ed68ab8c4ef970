/* HITS for CPU devices. Matrices are CSR. */
#include <stdint.h>

void hits_spmv(float *y, const int32_t *row, const int32_t *column, const float *value,
               const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;

        for (int32_t k = row[i]; k < row[i + 1]; k++) {
            sum += value[k] * x[column[k]];
        }
        y[i] = sum;
    }
}

/* In pieces of 4096: one sum over all would lose what is small beside it. */
void hits_sum(float *out, const float *x, const float *partial, const uint32_t *ticket,
              int64_t n)
{
    (void)partial;
    (void)ticket;
    *out = 0;
    for (int64_t first = 0; first < n; first += 4096) {
        int64_t end = first + 4096 < n ? first + 4096 : n;
        float sum   = 0;

        for (int64_t i = first; i < end; i++) {
            sum += x[i];
        }
        *out += sum;
    }
}

void hits_divide(float *y, const float *x, const float *sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] / *sum;
    }
}
