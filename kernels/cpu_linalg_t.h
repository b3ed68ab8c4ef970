/*
 * Matrix products and distances by loops, for one element type: what integers use, and floats too
 * large for a BLAS. Included by cpu_linalg.c once a type, with T, A (the type that accumulates,
 * unsigned for integers) and NAME(f).
 */

#define AT(m, i, j)                                                                   \
    (*(T *)(uintptr_t)((m)->data +                                                    \
                       (uint64_t)((i) * (m)->row_stride + (j) * (m)->column_stride) * \
                           sizeof(T)))

/*
 * c = alpha a b + beta c; beta 0 does not read c. COLUMNS results of a row at a time, so that rows
 * of b are read whole.
 */
static void NAME(product)(T alpha, const struct kernel_matrix *a,
                          const struct kernel_matrix *b, T beta,
                          const struct kernel_matrix *c)
{
    A sum[COLUMNS];

    for (int64_t i = 0; i < c->rows; i++) {
        for (int64_t first = 0; first < c->columns; first += COLUMNS) {
            int64_t n = c->columns - first < COLUMNS ? c->columns - first : COLUMNS;

            memset(sum, 0, sizeof(sum));
            for (int64_t p = 0; p < a->columns; p++) {
                A factor = (A)AT(a, i, p);

                for (int64_t j = 0; j < n; j++) {
                    sum[j] += factor * (A)AT(b, p, first + j);
                }
            }
            for (int64_t j = 0; j < n; j++) {
                A old = beta == 0 ? 0 : (A)beta * (A)AT(c, i, first + j);

                AT(c, i, first + j) = (T)((A)alpha * sum[j] + old);
            }
        }
    }
}

/* d[i,j] = |a[i] - b[j]|^2 */
static void NAME(distance)(const struct kernel_matrix *a, const struct kernel_matrix *b,
                           const struct kernel_matrix *d)
{
    for (int64_t i = 0; i < d->rows; i++) {
        for (int64_t j = 0; j < d->columns; j++) {
            A sum = 0;

            for (int64_t p = 0; p < a->columns; p++) {
                A difference = (A)AT(a, i, p) - (A)AT(b, j, p);

                sum += difference * difference;
            }
            AT(d, i, j) = (T)sum;
        }
    }
}

/* out[i] = |m[i]|^2 */
static void NAME(norms)(const struct kernel_matrix *m, double *out)
{
    for (int64_t i = 0; i < m->rows; i++) {
        double sum = 0;

        for (int64_t p = 0; p < m->columns; p++) {
            sum += (double)AT(m, i, p) * (double)AT(m, i, p);
        }
        out[i] = sum;
    }
}

/* d[i,j] = d[i,j] + a_norm[i] + b_norm[j], not below 0; NaN stays. */
static void NAME(add_norms)(const struct kernel_matrix *d, const double *a_norm,
                            const double *b_norm)
{
    for (int64_t i = 0; i < d->rows; i++) {
        for (int64_t j = 0; j < d->columns; j++) {
            double value = (double)AT(d, i, j) + a_norm[i] + b_norm[j];

            AT(d, i, j) = (T)(value < 0 ? 0 : value);
        }
    }
}

#undef AT
