/* MUL and CG for CPU devices. Matrices are row-major. */
void dense_matrix(float *a, int64_t rows, int64_t n, int64_t first, int64_t seed)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < n; column++) {
            int64_t i = first + row, low = i < column ? i : column,
                    high = i < column ? column : i;

            a[row * n + column] =
                centred_at(seed, low * n + high) / 512 + (float)(i == column ? 2 : 0);
        }
    }
}

void dense_matvec(float *y, const float *a, const float *x, int64_t rows, int64_t n)
{
    for (int64_t row = 0; row < rows; row++) {
        float sum = 0;

        for (int64_t i = 0; i < n; i++) {
            sum += a[row * n + i] * x[i];
        }
        y[row] = sum;
    }
}

void dense_double(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = 2 * x[i];
    }
}

void cg_start(float *x, float *r, float *p, const float *b, const float *ax, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0;
        r[i] = b[i] - ax[i];
        p[i] = r[i];
    }
}

void cg_zero(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0;
    }
}

void cg_dot(float *out, const float *a, const float *b, const float *partial,
            const uint32_t *ticket, int64_t n)
{
    float sum = 0;

    (void)partial;
    (void)ticket;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    *out = sum;
}

static float quotient(float a, float b)
{
    return b > 1e-30f ? a / b : 0;
}

void cg_advance(float *x, const float *p, const float *rr, const float *pap, int64_t n,
                float sign)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] += sign * quotient(*rr, *pap) * p[i];
    }
}

void cg_direction(float *p, const float *r, const float *next, const float *rr, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        p[i] = r[i] + quotient(*next, *rr) * p[i];
    }
}
