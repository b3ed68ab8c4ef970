/*
 * Reductions for one element type. Included by cpu_reduce.c once a type, with T (the element type),
 * A (the type that accumulates: double for floats, int64_t for integers), LOAD(x) (what a stored x
 * stands for), and NAME(f).
 */

#define AT(ptr, i, step) LOAD(*(const T *)(const void *)((ptr) + (i) * (step)))

/* Sums have loops of their own, which are vectorised. */
#define NOT_A_SUM(op)                                                \
    ((op) == KERNEL_REDUCTION_MIN || (op) == KERNEL_REDUCTION_MAX || \
     (op) == KERNEL_REDUCTION_PROD)

/* Sums of integers wrap around: signed overflow is undefined, so they are taken unsigned. */
#if IS_FLOAT
#define PLUS(a, b)          ((a) + (b))
#define TIMES(a, b)         ((A)(a) * (A)(b))
#define BETTER_MIN(v, than) ((v) < (than) || ((v) != (v) && (than) == (than)))
#define BETTER_MAX(v, than) ((v) > (than) || ((v) != (v) && (than) == (than)))
#else
#define PLUS(a, b)          ((A)((uint64_t)(a) + (uint64_t)(b)))
#define TIMES(a, b)         ((A)((uint64_t)(A)(a) * (uint64_t)(A)(b)))
#define BETTER_MIN(v, than) ((v) < (than))
#define BETTER_MAX(v, than) ((v) > (than))
#endif

static A NAME(join)(int op, A a, A b)
{
    switch (op) {
    case KERNEL_REDUCTION_MIN:
        return BETTER_MIN(b, a) ? b : a;
    case KERNEL_REDUCTION_MAX:
        return BETTER_MAX(b, a) ? b : a;
    case KERNEL_REDUCTION_PROD:
        return TIMES(a, b);
    default:
        return PLUS(a, b);
    }
}

/* Reduction of a run. Sums run in LANES lanes, which is faster, and more exact, than one after another. */
static A NAME(reduce_run)(int op, const char *x, int64_t step, int64_t n)
{
    A lane[LANES];
    int64_t i = 0;
    A result;

    if (NOT_A_SUM(op) || n < LANES) {
        result = (A)AT(x, 0, step);
        for (i = 1; i < n; i++) {
            result = NAME(join)(op, result, (A)AT(x, i, step));
        }
        return result;
    }
    for (int64_t j = 0; j < LANES; j++) {
        lane[j] = (A)AT(x, j, step);
    }
    for (i = LANES; i + LANES <= n; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lane[j] = PLUS(lane[j], (A)AT(x, i + j, step));
        }
    }
    for (int64_t j = 0; i < n; i++, j++) {
        lane[j] = PLUS(lane[j], (A)AT(x, i, step));
    }
    for (int64_t half = LANES / 2; half > 0; half /= 2) {
        for (int64_t j = 0; j < half; j++) {
            lane[j] = PLUS(lane[j], lane[j + half]);
        }
    }
    return lane[0];
}

static A NAME(dot_run)(const char *x, int64_t xs, const char *y, int64_t ys, int64_t n)
{
    A lane[LANES] = {0};
    int64_t i     = 0;

    for (; i + LANES <= n; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lane[j] = PLUS(lane[j], TIMES(AT(x, i + j, xs), AT(y, i + j, ys)));
        }
    }
    for (int64_t j = 0; i < n; i++, j++) {
        lane[j] = PLUS(lane[j], TIMES(AT(x, i, xs), AT(y, i, ys)));
    }
    for (int64_t half = LANES / 2; half > 0; half /= 2) {
        for (int64_t j = 0; j < half; j++) {
            lane[j] = PLUS(lane[j], lane[j + half]);
        }
    }
    return lane[0];
}

/*
 * Of a run that starts at flat index `first`: its best value and that value's index, unless `*best`
 * is as good.
 */
static void NAME(arg_run)(int op, const char *x, int64_t step, int64_t n, int64_t first,
                          A *io_best, int64_t *io_index)
{
    for (int64_t i = 0; i < n; i++) {
        A value = (A)AT(x, i, step);

        if (*io_index < 0 || (op == KERNEL_REDUCTION_MIN ? BETTER_MIN(value, *io_best)
                                                         : BETTER_MAX(value, *io_best))) {
            *io_best  = value;
            *io_index = first + i;
        }
    }
}

/*
 * n outputs at once, each over `length` elements `across` bytes apart; x steps by `step` from
 * output to output.
 */
static void NAME(reduce_columns)(int op, const char *x, int64_t step, int64_t across,
                                 int64_t length, int64_t n, A *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = (A)AT(x, i, step);
    }
    for (int64_t r = 1; r < length; r++) {
        const char *row = x + r * across;

        if (NOT_A_SUM(op)) {
            for (int64_t i = 0; i < n; i++) {
                out[i] = NAME(join)(op, out[i], (A)AT(row, i, step));
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                out[i] = PLUS(out[i], (A)AT(row, i, step));
            }
        }
    }
}

#undef AT
#undef NOT_A_SUM
#undef PLUS
#undef TIMES
#undef BETTER_MIN
#undef BETTER_MAX
