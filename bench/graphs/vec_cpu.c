/* VEC for CPU devices: what vec.cu computes, an element at a time. */
#include <stdint.h>

void vec_square(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * x[i];
    }
}

/* In pieces of 4096: one sum over all would lose what is small beside it. */
void vec_diff_sum(float *res, const float *a, const float *b, const float *partial,
                  const uint32_t *ticket, int64_t n)
{
    (void)partial;
    (void)ticket;
    *res = 0;
    for (int64_t first = 0; first < n; first += 4096) {
        int64_t end = first + 4096 < n ? first + 4096 : n;
        float sum   = 0;

        for (int64_t i = first; i < end; i++) {
            sum += a[i] - b[i];
        }
        *res += sum;
    }
}
