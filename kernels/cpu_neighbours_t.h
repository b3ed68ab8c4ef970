/*
 * Nearest neighbours for one element type. Included by cpu_neighbours.c once a type, with T,
 * IS_FLOAT and NAME(f).
 */

#if IS_FLOAT /* NaN comes last */
#define BEFORE(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define SAME(a, b)   ((a) == (b) || ((a) != (a) && (b) != (b)))
#else
#define BEFORE(a, b) ((a) < (b))
#define SAME(a, b)   ((a) == (b))
#endif

/* The k smallest of a row: kept sorted in the output while the row is read. */
static void NAME(topk_row)(const struct row *x, int64_t n, int64_t base,
                           const struct row *values, const struct row *indices, int64_t k)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        T value = *ROW(T, x, i);
        int64_t at;

        if (count == k && !BEFORE(value, *ROW(T, values, k - 1))) {
            continue;
        }
        count = count < k ? count + 1 : k;
        for (at = count - 1; at > 0 && BEFORE(value, *ROW(T, values, at - 1)); at--) {
            *ROW(T, values, at)        = *ROW(T, values, at - 1);
            *ROW(int64_t, indices, at) = *ROW(int64_t, indices, at - 1);
        }
        *ROW(T, values, at)        = value;
        *ROW(int64_t, indices, at) = base + i;
    }
}

/* The first k of two ascending rows. */
static void NAME(merge_row)(const struct row *va, const struct row *ia, int64_t ka,
                            const struct row *vb, const struct row *ib, int64_t kb,
                            const struct row *values, const struct row *indices, int64_t k)
{
    int64_t a = 0;
    int64_t b = 0;

    for (int64_t i = 0; i < k; i++) {
        bool from_a = b == kb;

        if (a < ka && b < kb) {
            T x = *ROW(T, va, a);
            T y = *ROW(T, vb, b);

            from_a =
                SAME(x, y) ? *ROW(int64_t, ia, a) <= *ROW(int64_t, ib, b) : BEFORE(x, y);
        }
        if (from_a) {
            *ROW(T, values, i)        = *ROW(T, va, a);
            *ROW(int64_t, indices, i) = *ROW(int64_t, ia, a);
            a++;
        } else {
            *ROW(T, values, i)        = *ROW(T, vb, b);
            *ROW(int64_t, indices, i) = *ROW(int64_t, ib, b);
            b++;
        }
    }
}

#undef BEFORE
#undef SAME
