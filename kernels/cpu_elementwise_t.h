/*
 * The inner loops of the elementwise functions for one element type. Included by cpu_elementwise.c
 * once a type, with
 *
 *   T   the type         NAME(f)   f with the type's suffix
 *   U   see element_ops.h          M(f) likewise
 *   IS_FLOAT  1 or 0
 *
 * The switch is outside the loops, and dense arrays have loops of their own: those are what
 * compilers vectorise.
 */

#define AT(ptr, i, step) (*(T *)(void *)((ptr) + (i) * (step)))

/* y = f(a) over a run. */
#define UNARY_LOOP(name, expression)                                \
    case KERNEL_OP_##name:                                          \
        if (ys == (int64_t)sizeof(T) && as == (int64_t)sizeof(T)) { \
            T *yt       = (T *)(void *)y;                           \
            const T *at = (const T *)(const void *)x;               \
            CPU_VECTORISE                                           \
            for (int64_t i = 0; i < n; i++) {                       \
                T a   = at[i];                                      \
                yt[i] = (T)(expression);                            \
            }                                                       \
        } else {                                                    \
            for (int64_t i = 0; i < n; i++) {                       \
                T a          = AT(x, i, as);                        \
                AT(y, i, ys) = (T)(expression);                     \
            }                                                       \
        }                                                           \
        break;

static void NAME(unary)(int op, T s, char *y, int64_t ys, char *x, int64_t as, int64_t n)
{
    (void)s;
    switch (op) {
#if IS_FLOAT
        KERNEL_UNARY_FLOAT(UNARY_LOOP)
        KERNEL_UNARY_HEAVY(UNARY_LOOP)
#else
        KERNEL_UNARY_INT(UNARY_LOOP)
#endif
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

/* y = f(a, b) over a run; b may be one value for all of it (broadcast), which has a dense loop too. */
#define BINARY_LOOP(name, expression)                                                 \
    case KERNEL_OP_##name:                                                            \
        if (ys == (int64_t)sizeof(T) && as == (int64_t)sizeof(T) &&                   \
            bs == (int64_t)sizeof(T)) {                                               \
            T *yt       = (T *)(void *)y;                                             \
            const T *at = (const T *)(const void *)pa;                                \
            const T *bt = (const T *)(const void *)pb;                                \
            CPU_VECTORISE                                                             \
            for (int64_t i = 0; i < n; i++) {                                         \
                T a   = at[i];                                                        \
                T b   = bt[i];                                                        \
                yt[i] = (T)(expression);                                              \
            }                                                                         \
        } else if (ys == (int64_t)sizeof(T) && as == (int64_t)sizeof(T) && bs == 0) { \
            T *yt       = (T *)(void *)y;                                             \
            const T *at = (const T *)(const void *)pa;                                \
            T b         = AT(pb, 0, 0);                                               \
            CPU_VECTORISE                                                             \
            for (int64_t i = 0; i < n; i++) {                                         \
                T a   = at[i];                                                        \
                yt[i] = (T)(expression);                                              \
            }                                                                         \
        } else {                                                                      \
            for (int64_t i = 0; i < n; i++) {                                         \
                T a          = AT(pa, i, as);                                         \
                T b          = AT(pb, i, bs);                                         \
                AT(y, i, ys) = (T)(expression);                                       \
            }                                                                         \
        }                                                                             \
        break;

static void NAME(binary)(int op, T s, char *y, int64_t ys, char *pa, int64_t as, char *pb,
                         int64_t bs, int64_t n)
{
    (void)s;
    switch (op) {
#if IS_FLOAT
        KERNEL_BINARY_FLOAT(BINARY_LOOP)
        KERNEL_POWER_FLOAT(BINARY_LOOP)
#else
        KERNEL_BINARY_INT(BINARY_LOOP)
        KERNEL_POWER_INT(BINARY_LOOP)
#endif
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

/* y = f(a, b), y of type bool. */
#define COMPARE_LOOP(name, expression)      \
    case KERNEL_OP_##name:                  \
        for (int64_t i = 0; i < n; i++) {   \
            T a = AT(pa, i, as);            \
            T b = AT(pb, i, bs);            \
            (void)b;                        \
            y[i * ys] = (char)(expression); \
        }                                   \
        break;

static void NAME(compare)(int op, char *y, int64_t ys, char *pa, int64_t as, char *pb,
                          int64_t bs, int64_t n)
{
    switch (op) {
        KERNEL_COMPARE(COMPARE_LOOP)
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

#undef AT
#undef UNARY_LOOP
#undef BINARY_LOOP
#undef COMPARE_LOOP
