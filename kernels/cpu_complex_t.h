/*
 * The inner loops of the elementwise functions for one complex type. Included by cpu_complex.c once
 * a type, with
 *
 *   T   the type, a struct       R         the type of its parts
 *   Z(f)  f of the type (element_complex.h)   NAME(f)  f with the type's suffix
 */

#define AT(type, ptr, i, step) (*(type *)(void *)((ptr) + (i) * (step)))

#define UNARY_LOOP(name, expression)           \
    case KERNEL_OP_##name:                     \
        for (int64_t i = 0; i < n; i++) {      \
            T a             = AT(T, x, i, as); \
            AT(T, y, i, ys) = (expression);    \
        }                                      \
        break;

static void NAME(unary)(int op, T s, char *y, int64_t ys, char *x, int64_t as, int64_t n)
{
    switch (op) {
        KERNEL_UNARY_COMPLEX(UNARY_LOOP)
        KERNEL_HEAVY_COMPLEX(UNARY_LOOP)
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

#define PART_LOOP(name, expression)            \
    case KERNEL_OP_##name:                     \
        for (int64_t i = 0; i < n; i++) {      \
            T a             = AT(T, x, i, as); \
            AT(R, y, i, ys) = (expression);    \
        }                                      \
        break;

static void NAME(part)(int op, char *y, int64_t ys, char *x, int64_t as, int64_t n)
{
    switch (op) {
        KERNEL_PART_COMPLEX(PART_LOOP)
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

#define BINARY_LOOP(name, expression)           \
    case KERNEL_OP_##name:                      \
        for (int64_t i = 0; i < n; i++) {       \
            T a             = AT(T, pa, i, as); \
            T b             = AT(T, pb, i, bs); \
            AT(T, y, i, ys) = (expression);     \
        }                                       \
        break;

static void NAME(binary)(int op, T s, char *y, int64_t ys, char *pa, int64_t as, char *pb,
                         int64_t bs, int64_t n)
{
    switch (op) {
        KERNEL_BINARY_COMPLEX(BINARY_LOOP)
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

/* y is a bool. */
#define COMPARE_LOOP(name, expression)      \
    case KERNEL_OP_##name:                  \
        for (int64_t i = 0; i < n; i++) {   \
            T a = AT(T, pa, i, as);         \
            T b = AT(T, pb, i, bs);         \
            (void)b;                        \
            y[i * ys] = (char)(expression); \
        }                                   \
        break;

static void NAME(compare)(int op, char *y, int64_t ys, char *pa, int64_t as, char *pb,
                          int64_t bs, int64_t n)
{
    switch (op) {
        KERNEL_COMPARE_COMPLEX(COMPARE_LOOP)
    default:
        PL_CHECK(0); /* the tables name no other */
    }
}

#undef AT
#undef UNARY_LOOP
#undef PART_LOOP
#undef BINARY_LOOP
#undef COMPARE_LOOP
