/*
 * CPU variants of sort, argsort and sort_into: each row by radix, lowest digit first, which keeps
 * equals in their order. A row is turned into keys (sort_key.h) and positions; digits that are the
 * same in all keys are passed over, so small integers take one or two passes. Rows of up to SMALL
 * are sorted by insertion.
 *
 * Scratch: two arrays of keys and positions, one row long.
 */
#include "kernels/cpu.h"
#include "kernels/sort_key.h"

#include <string.h>

#define SMALL 32

struct entry {
    uint64_t key;
    int64_t at;
};

struct sort {
    uint32_t dtype;
    struct entry *entry[2];
    bool positions; /* y gets the positions */
};

static uint64_t key_of(uint32_t dtype, const char *x)
{
    uint16_t half;
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;

    switch (dtype) {
    case PL_F16:
        memcpy(&half, x, sizeof(half));
        return kernel_key_f32(kernel_f16_to_f32(half));
    case PL_BF16:
        memcpy(&half, x, sizeof(half));
        return kernel_key_f32(kernel_bf16_to_f32(half));
    case PL_F32:
        memcpy(&f32, x, sizeof(f32));
        return kernel_key_f32(f32);
    case PL_F64:
        memcpy(&f64, x, sizeof(f64));
        return kernel_key_f64(f64);
    case PL_I32:
        memcpy(&i32, x, sizeof(i32));
        return kernel_key_i32(i32);
    default:
        memcpy(&i64, x, sizeof(i64));
        return kernel_key_i64(i64);
    }
}

static void sort_by_insertion(struct entry *entry, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        struct entry moved = entry[i];
        int64_t j          = i;

        while (j > 0 && entry[j - 1].key > moved.key) {
            entry[j] = entry[j - 1];
            j--;
        }
        entry[j] = moved;
    }
}

/* One digit; false: it is the same in all keys, and nothing was moved. */
static bool sort_by_digit(const struct entry *from, struct entry *to, int64_t n,
                          unsigned shift)
{
    int64_t start[256] = {0};
    int64_t sum        = 0;

    for (int64_t i = 0; i < n; i++) {
        start[(from[i].key >> shift) & 255]++;
    }
    if (start[(from[0].key >> shift) & 255] == n) {
        return false;
    }
    for (int digit = 0; digit < 256; digit++) {
        int64_t count = start[digit];

        start[digit] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) {
        to[start[(from[i].key >> shift) & 255]++] = from[i];
    }
    return true;
}

/* Of the two arrays the one with the sorted row. */
static const struct entry *sort_row(struct sort *sort, const struct cpu_lane *lane)
{
    struct entry *from = sort->entry[0];
    struct entry *to   = sort->entry[1];

    for (int64_t i = 0; i < lane->length; i++) {
        from[i] = (struct entry){key_of(sort->dtype, lane->x + i * lane->x_step), i};
    }
    if (lane->length <= SMALL) {
        sort_by_insertion(from, lane->length);
        return from;
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (sort_by_digit(from, to, lane->length, shift)) {
            struct entry *swap = from;

            from = to;
            to   = swap;
        }
    }
    return from;
}

static void sort_lane(void *user, const struct cpu_lane *lane)
{
    struct sort *sort         = user;
    uint32_t bytes            = pl_dtype_bytes(sort->dtype);
    const struct entry *entry = sort_row(sort, lane);

    for (int64_t i = 0; i < lane->length; i++) {
        char *y = lane->y + i * lane->y_step;

        if (sort->positions) {
            memcpy(y, &entry[i].at, sizeof(entry[i].at));
        } else {
            memcpy(y, lane->x + entry[i].at * lane->x_step, bytes);
        }
    }
}

plasmon_status_t cpu_sort(const struct kernel_call *call, int op, struct pl_err *err)
{
    bool in_place              = kernel_id_of(call->function) == KERNEL_ID_sort_into;
    const struct kernel_arg *y = kernel_call_arg(call, in_place ? 1 : 0);
    const struct kernel_arg *x = kernel_call_arg(call, in_place ? 0 : 1);
    uint32_t last              = x->ndim - 1;
    struct sort sort           = {.dtype     = x->dtype,
                                  .positions = kernel_id_of(call->function) == KERNEL_ID_argsort};

    (void)op;
    (void)err;
    sort.entry[0] = (struct entry *)(uintptr_t)call->scratch.addr;
    sort.entry[1] = sort.entry[0] + x->dim[last];
    cpu_each_lane(y, x, last, sort_lane, &sort);
    if (in_place) { /* what was sorted into the caller's scratch goes back */
        cpu_copy(x, y);
    }
    return PLASMON_OK;
}

uint64_t cpu_sort_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    const struct kernel_arg *x =
        &args[kernel_id_of(function) == KERNEL_ID_sort_into ? 0 : 1];

    (void)arg_count;
    (void)scalars;
    return 2 * (uint64_t)x->dim[x->ndim - 1] * sizeof(struct entry);
}
