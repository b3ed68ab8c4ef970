/*
 * The signature table: what people read is what is checked, and wrong calls are refused with a text
 * that helps.
 */
#include "kernels/kernel_list.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* --------------------------------------------------------------------------- signatures */

static uint32_t dtypes_of(const char *word, size_t length)
{
    uint32_t halves  = KERNEL_DTYPE(PL_F16) | KERNEL_DTYPE(PL_BF16);
    uint32_t singles = KERNEL_DTYPE(PL_F32) | KERNEL_DTYPE(PL_F64);
    uint32_t ints    = KERNEL_DTYPE(PL_I32) | KERNEL_DTYPE(PL_I64);
    uint32_t pairs   = KERNEL_DTYPE(PL_C64) | KERNEL_DTYPE(PL_C128);
    uint32_t all     = 0;

    for (uint32_t d = PL_BOOL; d <= PL_C128; d++) {
        all |= KERNEL_DTYPE(d);
        if (strlen(pl_dtype_name(d)) == length &&
            strncmp(word, pl_dtype_name(d), length) == 0) {
            return KERNEL_DTYPE(d);
        }
    }
    if (strncmp(word, "any", length) == 0) {
        return all;
    }
    switch (length == 1 ? word[0] : 0) {
    case 'S':
        return all;
    case 'N':
        return halves | singles | ints | pairs;
    case 'L':
        return halves | singles | ints | pairs | KERNEL_DTYPE(PL_BOOL);
    case 'R':
        return halves | singles | ints;
    case 'Z':
        return halves | singles | pairs;
    case 'C':
        return pairs;
    case 'T':
        return singles | ints;
    case 'I':
        return ints;
    case 'F':
        return halves | singles;
    case 'E':
        return singles;
    default:
        test_fail(__FILE__, __LINE__, "no dtype: %s", word);
    }
}

static uint32_t modes_of(const char *word, size_t length)
{
    static const struct {
        const char *name;
        uint32_t modes;
    } names[] = {
        {"in", KERNEL_IN},           {"out", KERNEL_OUT},
        {"inout", KERNEL_INOUT},     {"reduce", KERNEL_REDUCE},
        {"scratch", KERNEL_SCRATCH}, {"inout|reduce", KERNEL_INOUT | KERNEL_REDUCE}};

    for (size_t i = 0; i < PL_COUNT(names); i++) {
        if (strlen(names[i].name) == length && strncmp(word, names[i].name, length) == 0) {
            return names[i].modes;
        }
    }
    return 0;
}

/* One of "f64 alpha", "in T[m,k] a", "in S[...]... x", up to ',' or ')' outside brackets. */
static const char *check_param(const char *at, const struct kernel_param *param)
{
    const char *space   = strchr(at, ' ');
    uint32_t modes      = modes_of(at, (size_t)(space - at));
    const char *name    = space + 1;
    const char *bracket = name;

    ASSERT_NOT_NULL(space);
    if (modes == 0) {
        ASSERT_TRUE(param->scalar);
        ASSERT_TRUE(strncmp(at, "i64 ", 4) == 0 || strncmp(at, "f64 ", 4) == 0);
        ASSERT_EQ(param->is_integer, at[0] == 'i');
    } else {
        bracket = strchr(name, '[');
        ASSERT_NOT_NULL(bracket);
        ASSERT_TRUE(!param->scalar);
        ASSERT_EQ(param->modes, modes);
        ASSERT_EQ(param->dtypes, dtypes_of(name, (size_t)(bracket - name)));
        bracket = strchr(bracket, ']') + 1;
        ASSERT_EQ(param->variadic, strncmp(bracket, "...", 3) == 0);
        name = strchr(bracket, ' ') + 1;
    }
    ASSERT_EQ(strcspn(name, ",)"), strlen(param->name));
    ASSERT_EQ(strncmp(name, param->name, strlen(param->name)), 0);
    return name + strlen(param->name);
}

TEST(signatures_say_what_the_parameters_are)
{
    for (uint32_t i = 0; i < kernel_count(); i++) {
        const struct kernel_function *function = kernel_at(i);
        const char *at                         = function->signature;

        ASSERT_EQ(strncmp(at, function->name, strlen(function->name)), 0);
        at += strlen(function->name);
        ASSERT_EQ(*at, '(');
        at++;
        for (uint32_t p = 0; p < function->param_count; p++) {
            at = check_param(at, &function->params[p]);
            if (p + 1 < function->param_count) {
                ASSERT_EQ(strncmp(at, ", ", 2), 0);
                at += 2;
            }
        }
        ASSERT_STR(at, ")");
        ASSERT_TRUE(strlen(function->doc) > 5);
    }
}

TEST(every_function_is_found_by_its_name_and_its_id)
{
    static const char *const names[] = {
#define XX(name) #name,
        KERNEL_LIST(XX)
#undef XX
    };

    ASSERT_EQ(kernel_count(), PL_COUNT(names));
    for (uint32_t i = 0; i < kernel_count(); i++) {
        ASSERT_STR(kernel_at(i)->name, names[i]);
        ASSERT_TRUE(kernel_by_name(names[i]) == kernel_at(i));
        ASSERT_TRUE(kernel_by_id(pl_hash_name(names[i])) == kernel_at(i));
    }
    ASSERT_NULL(kernel_at(kernel_count()));
    ASSERT_NULL(kernel_by_name("gem"));
    ASSERT_NULL(kernel_by_name(""));
    ASSERT_NULL(kernel_by_id(0));
}

TEST(no_built_in_function_has_an_id_that_is_kept_for_defined_ones)
{
    for (uint32_t i = 0; i < kernel_count(); i++) {
        /* WIRE_FUNCTION_FIRST */
        ASSERT_TRUE(pl_hash_name(kernel_at(i)->name) < 0xfff00000u);
    }
}

TEST(a_misspelt_name_gets_the_nearest_one)
{
    ASSERT_STR(kernel_suggest("gemmm"), "gemm");
    ASSERT_STR(kernel_suggest("gmem"), "gemm");
    ASSERT_STR(kernel_suggest("random_unifrom"), "random_uniform");
    ASSERT_STR(kernel_suggest("concat_enate"), "concatenate");
    ASSERT_STR(kernel_suggest("gemm_int"), "gemm_into");
    ASSERT_STR(kernel_suggest("topk"), "topk_min");
    ASSERT_STR(kernel_suggest("GEMM"), "gemm");
    ASSERT_STR(kernel_suggest("TopK"), "topk_min");
    ASSERT_STR(kernel_suggest("gemm_add"), "gemm");
    ASSERT_NULL(kernel_suggest("singular_value_decomposition"));
    ASSERT_NULL(
        kernel_suggest("a_name_that_is_longer_than_every_name_in_the_catalogue_by_far"));
    ASSERT_NULL(kernel_suggest(""));
}

/* ------------------------------------------------------------------------------- shapes */

/* "f32[2,3]"; "-" for an output that is left to the shape rule; the mode comes from the signature. */
static struct kernel_arg_shape parse_shape(const char *text, uint32_t mode)
{
    struct kernel_arg_shape arg = {.mode = mode & KERNEL_REDUCE ? mode & 3 : mode};
    const char *at              = strchr(text, '[');

    if (arg.mode == 0) {
        arg.mode = KERNEL_REDUCE;
    }
    if (text[0] == '-') {
        return arg;
    }
    arg.given = true;
    for (uint32_t d = PL_BOOL; d <= PL_C128; d++) {
        if (strncmp(text, pl_dtype_name(d), (size_t)(at - text)) == 0 &&
            strlen(pl_dtype_name(d)) == (size_t)(at - text)) {
            arg.shape.dtype = d;
        }
    }
    for (at++; *at != ']' && *at != '\0';) {
        char *end;

        arg.shape.dim[arg.shape.ndim++] = strtoll(at, &end, 10);
        at                              = *end == ',' ? end + 1 : end;
    }
    return arg;
}

#define SHAPES_MAX 8
struct call {
    const char *name;
    const char *shape[SHAPES_MAX];
    double scalar[9]; /* whole numbers also for integer scalars */
    plasmon_status_t status;
    /* on failure: part of the message. on success: shape of the first output */
    const char *text;
};

static plasmon_status_t check_call(const struct call *call, struct kernel_arg_shape *args,
                                   struct pl_err *err)
{
    const struct kernel_function *function = kernel_by_name(call->name);
    union kernel_scalar scalar[9]          = {0};
    uint32_t arg_count                     = 0;
    uint32_t scalar_count                  = 0;
    uint32_t next                          = 0;

    ASSERT_NOT_NULL(function);
    for (uint32_t i = 0; i < function->param_count; i++) {
        const struct kernel_param *param = &function->params[i];

        if (param->scalar && param->is_integer) {
            scalar[scalar_count].i = (int64_t)call->scalar[scalar_count];
            scalar_count++;
        } else if (param->scalar) {
            scalar[scalar_count].f = call->scalar[scalar_count];
            scalar_count++;
        }
        while (!param->scalar && next < SHAPES_MAX && call->shape[next] != NULL) {
            args[arg_count++] = parse_shape(call->shape[next++], param->modes);
            if (!param->variadic) {
                break;
            }
        }
    }
    while (next < SHAPES_MAX && call->shape[next] != NULL) { /* too many */
        args[arg_count++] = parse_shape(call->shape[next++], KERNEL_IN);
    }
    return kernel_check(function, args, arg_count, scalar, scalar_count, err);
}

static const struct call good[] = {
    {"gemm", {"-", "f32[2,3]", "f32[3,4]"}, {1}, PLASMON_OK, "f32[2,4]"},
    {"gemm", {"-", "f64[3,2]", "f64[4,3]"}, {1, 1, 1}, PLASMON_OK, "f64[2,4]"},
    {"gemm", {"f32[2,4]", "f32[2,3]", "f32[3,4]"}, {1}, PLASMON_OK, "f32[2,4]"},
    {"gemm_into", {"i32[2,4]", "i32[2,3]", "i32[3,4]"}, {1}, PLASMON_OK, "i32[2,4]"},
    {"gemv", {"-", "f32[2,3]", "f32[3]"}, {0}, PLASMON_OK, "f32[2]"},
    {"dot", {"-", "i64[3]", "i64[3]"}, {0}, PLASMON_OK, "i64[]"},
    {"add", {"-", "f32[2,1,4]", "f32[3,1]"}, {0}, PLASMON_OK, "f32[2,3,4]"},
    {"less", {"-", "f32[2]", "f32[]"}, {0}, PLASMON_OK, "bool[2]"},
    {"sum", {"-", "f32[2,3,4]"}, {1, 0}, PLASMON_OK, "f32[2,4]"},
    {"sum", {"-", "f32[2,3,4]"}, {1, 1}, PLASMON_OK, "f32[2,1,4]"},
    {"sum", {"-", "f32[2,3,4]"}, {-1, 0}, PLASMON_OK, "f32[]"},
    {"sum", {"-", "f32[2,3,4]"}, {-1, 1}, PLASMON_OK, "f32[1,1,1]"},
    {"mean", {"-", "i32[2,3]"}, {0}, PLASMON_OK, "f64[3]"},
    {"argmin", {"-", "f32[2,3]"}, {1}, PLASMON_OK, "i64[2]"},
    {"transpose", {"-", "bool[5,2,3]"}, {0}, PLASMON_OK, "bool[5,3,2]"},
    {"permute", {"-", "c64[5,2,3]"}, {2, 0, 1}, PLASMON_OK, "c64[3,5,2]"},
    {"concatenate", {"-", "f32[2,3]", "f32[2,4]", "f32[2,1]"}, {1}, PLASMON_OK, "f32[2,8]"},
    {"pairwise_distance", {"-", "f32[5,3]", "f32[7,3]"}, {0}, PLASMON_OK, "f32[5,7]"},
    {"topk_min", {"-", "-", "f32[5,9]"}, {3, 100}, PLASMON_OK, "f32[5,3]"},
    {"topk_min", {"-", "-", "f32[5,2]"}, {3, 100}, PLASMON_OK, "f32[5,2]"},
    {"topk_merge",
     {"-", "-", "f32[5,3]", "i64[5,3]", "f32[5,2]", "i64[5,2]"},
     {4},
     PLASMON_OK,
     "f32[5,4]"},
    {"vote", {"-", "i64[5,3]", "i32[100]"}, {0}, PLASMON_OK, "i32[5]"},
    {"norm", {"-", "c64[2,3]"}, {1, 0, 2}, PLASMON_OK, "f32[2]"},
    {"softmax", {"-", "bf16[2,3]"}, {-1}, PLASMON_OK, "bf16[2,3]"},
    {"cumsum", {"-", "i64[2,3]"}, {1}, PLASMON_OK, "i64[2,3]"},
    {"argsort", {"-", "f16[2,3]"}, {0}, PLASMON_OK, "i64[2,3]"},
    {"sort_into", {"f32[2,3]", "f32[2,3]"}, {0}, PLASMON_OK, "f32[2,3]"},
    {"where", {"-", "bool[3]", "c64[2,1]", "c64[]"}, {0}, PLASMON_OK, "c64[2,3]"},
    {"gemm_batched", {"-", "f32[5,2,3]", "f32[1,3,4]"}, {1}, PLASMON_OK, "f32[5,2,4]"},
    {"gemm_batched",
     {"-", "f32[1,3,2]", "f32[7,4,3]"},
     {1, 1, 1},
     PLASMON_OK,
     "f32[7,2,4]"},
    {"einsum",
     {"-", "f32[2,3]", "f32[3,4]"},
     {0x6a69, 0x6b6a, 0x6b69},
     PLASMON_OK,
     "f32[2,4]"},
    {"einsum", {"-", "c64[3,3]", "c64[3]"}, {0x6969, 0x69, 0}, PLASMON_OK, "c64[]"},
    {"qr", {"-", "-", "f32[5,3]"}, {0}, PLASMON_OK, "f32[5,3]"},
    {"qr", {"-", "-", "f32[3,5]"}, {0}, PLASMON_OK, "f32[3,3]"},
    {"svd", {"-", "-", "-", "f64[3,5]"}, {0}, PLASMON_OK, "f64[3,3]"},
    {"eigh", {"-", "-", "f64[4,4]"}, {0}, PLASMON_OK, "f64[4]"},
    {"inverse", {"-", "f64[4,4]"}, {0}, PLASMON_OK, "f64[4,4]"},
    {"determinant", {"-", "f32[4,4]"}, {0}, PLASMON_OK, "f32[]"},
    {"fft", {"-", "c64[2,5]"}, {1}, PLASMON_OK, "c64[2,5]"},
    {"rfft", {"-", "f64[2,6]"}, {1}, PLASMON_OK, "c128[2,4]"},
    {"rfft", {"-", "f32[2,7]"}, {2}, PLASMON_OK, "c64[2,4]"},
    {"irfft", {"-", "c64[2,4]"}, {1, 0}, PLASMON_OK, "f32[2,6]"},
    {"irfft", {"-", "c128[2,4]"}, {1, 7}, PLASMON_OK, "f64[2,7]"},
    {"irfft", {"-", "c128[1]"}, {1, 1}, PLASMON_OK, "f64[1]"},
    {"spmv", {"-", "i32[6]", "i32[9]", "f64[9]", "f64[4]"}, {0}, PLASMON_OK, "f64[5]"},
    {"cast", {"u8[3]", "f64[3]"}, {0}, PLASMON_OK, "u8[3]"},
    {"cast", {"c64[3]", "f16[3]"}, {0}, PLASMON_OK, "c64[3]"},
    {"abs", {"-", "c128[3]"}, {0}, PLASMON_OK, "f64[3]"},
    {"imag", {"-", "c64[3]"}, {0}, PLASMON_OK, "f32[3]"},
    {"mean", {"-", "bf16[2,3]"}, {0}, PLASMON_OK, "bf16[3]"},
    {"prod", {"-", "c64[2,3]"}, {0}, PLASMON_OK, "c64[3]"},
    {"accumulate", {"f32[2,3]", "f32[3]"}, {0}, PLASMON_OK, "f32[2,3]"},
    {"checksum", {"-", "c128[2,3]"}, {0}, PLASMON_OK, "u64[]"},
};

TEST(outputs_get_the_shape_that_the_rule_says)
{
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        struct kernel_arg_shape args[SHAPES_MAX] = {0};
        struct pl_err err                        = {0};
        char shape[128];

        if (check_call(&good[i], args, &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "row %zu: %s", i, err.text);
        }
        ASSERT_STR(pl_shape_format(&args[0].shape, shape), good[i].text);
    }
}

static const struct call bad[] = {
    {"gemm",
     {"-", "f32[2,3]", "f32[5,4]"},
     {1},
     PLASMON_ESHAPE,
     "gemm: b is f32[5,4], needs 3 rows to match a f32[2,3]"},
    {"gemm",
     {"-", "f32[2,3]", "f32[4,5]"},
     {1, 0, 1},
     PLASMON_ESHAPE,
     "gemm: b is f32[4,5], needs 3 columns to match a f32[2,3]"},
    {"gemm",
     {"-", "f32[2,3]", "f64[3,4]"},
     {1},
     PLASMON_EDTYPE,
     "gemm: b is f64[3,4], needs f32 like a"},
    {"gemm",
     {"-", "f32[6]", "f32[3,4]"},
     {1},
     PLASMON_ESHAPE,
     "gemm: a is f32[6], needs 2 dimensions"},
    {"gemm",
     {"f32[2,2]", "f32[2,3]", "f32[3,4]"},
     {1},
     PLASMON_ESHAPE,
     "gemm: c is f32[2,2], the result is f32[2,4]"},
    {"gemm",
     {"-", "f32[2,3]"},
     {1},
     PLASMON_EARITY,
     "gemm: got 2 arguments, takes 3: gemm(out"},
    {"gemm",
     {"-", "u8[2,3]", "u8[3,4]"},
     {1},
     PLASMON_EDTYPE,
     "gemm: a is u8, needs i32, i64, f16, bf16, f32, f64, c64 or c128"},
    {"qr",
     {"-", "-", "f32[5]"},
     {0},
     PLASMON_ESHAPE,
     "qr: a is f32[5], needs 2 dimensions"},
    {"qr",
     {"-", "f32[3,5]", "f32[5,3]"},
     {0},
     PLASMON_ESHAPE,
     "qr: r is f32[3,5], the result is f32[3,3]"},
    {"svd",
     {"-", "-", "-", "c64[5,5]"},
     {0},
     PLASMON_EDTYPE,
     "svd: a is c64, needs f32 or f64"},
    {"eigh",
     {"-", "-", "f32[5,4]"},
     {0},
     PLASMON_ESHAPE,
     "eigh: a is f32[5,4], needs as many rows as columns"},
    {"inverse",
     {"-", "f32[5,4]"},
     {0},
     PLASMON_ESHAPE,
     "inverse: a is f32[5,4], needs as many rows as columns"},
    {"determinant", {"-", "i32[5,5]"}, {0}, PLASMON_EDTYPE, "determinant: a is i32, needs"},
    {"gemm",
     {"-", "f32[3,3]", "f32[3,3]"},
     {1, 5, 0},
     PLASMON_EINVAL,
     "gemm: trans_a is 5, needs 0 or 1"},
    {"gemm_into",
     {"f32[3,3]", "f32[3,3]", "f32[3,3]"},
     {1, 0, 0, -1},
     PLASMON_EINVAL,
     "gemm_into: trans_b is -1, needs 0 or 1"},
    {"sum", {"-", "f32[3,4]"}, {1, 2}, PLASMON_EINVAL, "sum: keepdims is 2, needs 0 or 1"},
    {"cumsum",
     {"-", "f32[3,4]"},
     {1, 7},
     PLASMON_EINVAL,
     "cumsum: exclusive is 7, needs 0 or 1"},
    {"solve_triangular",
     {"-", "f32[3,3]", "f32[3,2]"},
     {0, 0, 3},
     PLASMON_EINVAL,
     "solve_triangular: unit is 3, needs 0 or 1"},
    {"fft", {"-", "f32[5]"}, {1}, PLASMON_EDTYPE, "fft: x is f32, needs c64 or c128"},
    {"fft", {"-", "c64[5]"}, {4}, PLASMON_EINVAL, "fft: axes is 4, needs 1 to 3"},
    {"ifft",
     {"-", "c64[5]"},
     {2},
     PLASMON_ESHAPE,
     "ifft: x is c64[5], needs at least 2 dimensions"},
    {"rfft",
     {"c64[5]", "f32[5]"},
     {1},
     PLASMON_ESHAPE,
     "rfft: y is c64[5], the result is c64[3]"},
    {"irfft",
     {"-", "c64[5]"},
     {1, 10},
     PLASMON_EINVAL,
     "irfft: x is c64[5], n is 10, needs 8 or 9"},
    {"gemm_into",
     {"f32[2,5]", "f32[2,3]", "f32[3,4]"},
     {1},
     PLASMON_ESHAPE,
     "gemm_into: c is f32[2,5], the product is f32[2,4]"},
    {"gemv",
     {"-", "f32[2,3]", "f32[2]"},
     {0},
     PLASMON_ESHAPE,
     "gemv: x is f32[2], needs 3 elements to match a f32[2,3]"},
    {"dot",
     {"-", "f32[2,3]", "f32[3]"},
     {0},
     PLASMON_ESHAPE,
     "dot: x is f32[2,3], needs 1 dimension"},
    {"add",
     {"-", "f32[2,3]", "f32[2]"},
     {0},
     PLASMON_ESHAPE,
     "add: b is f32[2], needs a shape that broadcasts with a f32[2,3]"},
    {"exp",
     {"-", "i32[2]"},
     {0},
     PLASMON_EDTYPE,
     "exp: x is i32, needs f16, bf16, f32, f64, c64 or c128"},
    {"less",
     {"f32[2]", "f32[2]", "f32[2]"},
     {0},
     PLASMON_EDTYPE,
     "less: y is f32, needs bool"},
    {"add_into",
     {"f32[3]", "f32[2,3]"},
     {0},
     PLASMON_ESHAPE,
     "add_into: x is f32[2,3], needs a shape that broadcasts to y f32[3]"},
    {"accumulate",
     {"f32[3]", "f64[3]"},
     {0},
     PLASMON_EDTYPE,
     "accumulate: x is f64[3], needs f32 like y"},
    {"fold",
     {"f32[3]", "f32[3]", "f32[4]"},
     {1},
     PLASMON_ESHAPE,
     "fold: x[1] is f32[4], needs the shape of y, f32[3]"},
    {"combine",
     {"-", "f32[3]", "f32[4]"},
     {1},
     PLASMON_ESHAPE,
     "combine: x[1] is f32[4], needs the shape of x[0], f32[3]"},
    {"combine",
     {"-", "f32[3]", "f32[3]"},
     {0},
     PLASMON_EINVAL,
     "combine: op is 0, needs 1"},
    {"fold", {"f32[3]", "f32[3]"}, {5}, PLASMON_EINVAL, "fold: op is 5, needs 1 (sum)"},
    {"sum",
     {"-", "f32[2,3]"},
     {2},
     PLASMON_EINVAL,
     "sum: x is f32[2,3], axis is 2, needs 0 to 1"},
    {"sum",
     {"f32[3]", "f32[2,3]"},
     {1},
     PLASMON_ESHAPE,
     "sum: y is f32[3], the result is f32[2]"},
    {"fill",
     {"-"},
     {1},
     PLASMON_ESHAPE,
     "fill: x is an output that nothing tells the shape of"},
    {"cast", {"-", "f32[3]"}, {0}, PLASMON_EDTYPE, "cast: nothing tells the dtype of y"},
    {"minimum",
     {"-", "c64[3]", "c64[3]"},
     {0},
     PLASMON_EDTYPE,
     "minimum: a is c64, needs i32, i64, f16, bf16, f32 or f64"},
    {"fold", {"c64[3]", "c64[3]"}, {3}, PLASMON_EDTYPE, "which has no smallest"},
    {"real", {"-", "f32[3]"}, {0}, PLASMON_EDTYPE, "real: x is f32, needs c64 or c128"},
    {"transpose",
     {"-", "f32[3]"},
     {0},
     PLASMON_ESHAPE,
     "transpose: x is f32[3], needs at least 2"},
    {"permute",
     {"-", "f32[3,4]"},
     {1, 1},
     PLASMON_EINVAL,
     "permute: x is f32[3,4], p1 is 1, needs each of 0 to 1 once"},
    {"permute", {"-", "f32[3,4]"}, {0, 9}, PLASMON_EINVAL, "p1 is 9"},
    {"concatenate",
     {"-", "f32[2,3]", "f32[3,3]"},
     {1},
     PLASMON_ESHAPE,
     "concatenate: x[1] is f32[3,3], needs the shape of x[0], f32[2,3], but for axis 1"},
    {"concatenate",
     {"-", "f32[2,3]"},
     {2},
     PLASMON_EINVAL,
     "concatenate: x[0] is f32[2,3], axis is 2"},
    {"concatenate",
     {"-"},
     {0},
     PLASMON_EARITY,
     "concatenate: got 1 argument, takes at least 2"},
    {"topk_min",
     {"-", "-", "f32[5,9]"},
     {0},
     PLASMON_EINVAL,
     "topk_min: k is 0, needs at least 1"},
    {"topk_merge",
     {"-", "-", "f32[5,3]", "i64[5,2]", "f32[5,2]", "i64[5,2]"},
     {4},
     PLASMON_ESHAPE,
     "topk_merge: ia is i64[5,2], needs 3 columns to match va f32[5,3]"},
    {"topk_merge",
     {"-", "-", "f32[5,3]", "i64[5,3]", "f32[4,2]", "i64[4,2]"},
     {4},
     PLASMON_ESHAPE,
     "topk_merge: vb is f32[4,2], needs 5 rows to match va f32[5,3]"},
    {"vote",
     {"-", "i32[5,3]", "i32[100]"},
     {0},
     PLASMON_EDTYPE,
     "vote: indices is i32, needs i64"},
    {"norm",
     {"-", "f32[3]"},
     {0, 0, 3},
     PLASMON_EINVAL,
     "norm: p is 3, needs 1, 2 or infinity"},
    {"softmax",
     {"-", "f32[3]"},
     {1},
     PLASMON_EINVAL,
     "softmax: x is f32[3], axis is 1, needs 0 to 0, or -1 for all axes"},
    {"cumsum", {"-", "f32[3]"}, {-1}, PLASMON_EINVAL, "axis is -1, needs 0 to 0"},
    {"cumsum", {"-", "f32[]"}, {0}, PLASMON_EINVAL, "a single element has no axis"},
    {"sum",
     {"-", "f32[]"},
     {0},
     PLASMON_EINVAL,
     "sum: x is f32[], and a single element has no axis 0; -1 is all of it"},
    {"irfft",
     {"-", "c128[1]"},
     {1, 0},
     PLASMON_EINVAL,
     "irfft: x is c128[1], n is 0, needs 1: "},
    {"sort", {"-", "f32[]"}, {0}, PLASMON_ESHAPE, "sort: x is f32[], needs at least 1"},
    {"sort_into",
     {"f32[3]", "f32[4]"},
     {0},
     PLASMON_ESHAPE,
     "sort_into: work is f32[4], needs x's, f32[3]"},
    {"where",
     {"-", "bool[2]", "f32[3]", "f32[1]"},
     {0},
     PLASMON_ESHAPE,
     "where: condition is bool[2], needs a shape that broadcasts with a f32[3]"},
    {"gemm_batched",
     {"-", "f32[5,2,3]", "f32[4,3,4]"},
     {1},
     PLASMON_ESHAPE,
     "gemm_batched: b is f32[4,3,4], needs 5 matrices to match a f32[5,2,3]"},
    {"einsum",
     {"-", "f32[2,3]", "f32[4,4]"},
     {0x6a69, 0x6b6a, 0x6b69},
     PLASMON_ESHAPE,
     "einsum: b is f32[4,4], needs 3 in dimension 0: label j"},
    {"einsum",
     {"-", "f32[2,3]", "f32[2]"},
     {0x6a69, 0x69, 0x69},
     PLASMON_EINVAL,
     "einsum: label j is in a alone; sum a over that axis first"},
    {"einsum",
     {"-", "f32[2]", "f32[2]"},
     {0x6a69, 0x69, 0x69},
     PLASMON_EINVAL,
     "einsum: a is f32[2], needs a letter for each dimension"},
    {"einsum",
     {"-", "f32[2]", "f32[2]"},
     {0x69, 0x69, 0x6b},
     PLASMON_EINVAL,
     "einsum: label k of y must be in a or b"},
    {"spmv",
     {"-", "i32[6]", "i64[9]", "f64[9]", "f64[4]"},
     {0},
     PLASMON_EDTYPE,
     "spmv: columns is i64[9], needs i32 like rows"},
    {"spmv",
     {"-", "i32[1]", "i32[9]", "f64[9]", "f64[4]"},
     {0},
     PLASMON_ESHAPE,
     "needs a pointer for each row"},
    {"cholesky",
     {"-", "f32[2,3]"},
     {0},
     PLASMON_ESHAPE,
     "cholesky: a is f32[2,3], needs as many rows as columns"},
    {"cholesky_solve",
     {"-", "f32[3,3]", "f32[2,3]"},
     {0},
     PLASMON_ESHAPE,
     "cholesky_solve: b is f32[2,3], needs 3 rows to match l f32[3,3]"},
    {"noop", {"f32[1]"}, {0}, PLASMON_EARITY, "noop: got 1 argument, takes 0"},
    {"add", {"-", "f32[0]", "f32[1]"}, {0}, PLASMON_ESHAPE, "add: a: "},
    {"add", {"-", "f32[1048576,1]", "f32[1,1125899906842624]"}, {0}, PLASMON_OK, NULL},
};

TEST(wrong_calls_are_refused_with_what_would_fit)
{
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct kernel_arg_shape args[SHAPES_MAX] = {0};
        struct pl_err err                        = {0};
        plasmon_status_t status                  = check_call(&bad[i], args, &err);

        if (bad[i].text == NULL) { /* whatever base says about sizes */
            ASSERT_TRUE(status != PLASMON_OK);
            continue;
        }
        ASSERT_CONTAINS(err.text, bad[i].text);
        ASSERT_EQ(err.status, status);
        if (bad[i].status != status) {
            test_fail(__FILE__, __LINE__, "row %zu: status %s", i, pl_status_name(status));
        }
    }
}

TEST(modes_must_fit)
{
    const struct kernel_function *gemm_into = kernel_by_name("gemm_into");
    struct kernel_arg_shape args[3]         = {parse_shape("f32[2,4]", KERNEL_INOUT),
                                               parse_shape("f32[2,3]", KERNEL_IN),
                                               parse_shape("f32[3,4]", KERNEL_IN)};
    union kernel_scalar scalar[4]           = {{.f = 1}, {.f = 1}, {.i = 0}, {.i = 0}};
    struct pl_err err                       = {0};

    ASSERT_OK(kernel_check(gemm_into, args, 3, scalar, 4, &err));
    args[0].mode = KERNEL_REDUCE;
    ASSERT_OK(kernel_check(gemm_into, args, 3, scalar, 4, &err));
    args[0].reduce_op = KERNEL_SUM;
    ASSERT_OK(kernel_check(gemm_into, args, 3, scalar, 4, &err));
    args[0].reduce_op = KERNEL_PROD;
    ASSERT_STATUS(kernel_check(gemm_into, args, 3, scalar, 4, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "gemm_into: c is reduced by product, needs sum; accumulate takes "
                         "all operations");
    args[0].reduce_op = KERNEL_SUM;
    scalar[1].f       = 0.5;
    ASSERT_STATUS(kernel_check(gemm_into, args, 3, scalar, 4, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "beta is 0.5, needs 1");
    scalar[1].f  = 1;
    args[0].mode = KERNEL_OUT;
    ASSERT_STATUS(kernel_check(gemm_into, args, 3, scalar, 4, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "gemm_into: c is passed as OUT, needs INOUT or REDUCE");
    args[0].mode = KERNEL_INOUT;
    args[1].mode = KERNEL_INOUT;
    ASSERT_STATUS(kernel_check(gemm_into, args, 3, scalar, 4, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "gemm_into: a is passed as INOUT, needs IN");
}

TEST(what_adds_into_an_array_is_reduced_by_sum_alone)
{
    static const char *const names[] = {"axpy", "add_into", "accumulate"};
    struct kernel_arg_shape args[2]  = {parse_shape("f32[4]", KERNEL_REDUCE),
                                        parse_shape("f32[4]", KERNEL_IN)};
    union kernel_scalar scalar       = {.f = 1};
    struct pl_err err                = {0};

    for (uint32_t i = 0; i < PL_COUNT(names); i++) {
        for (uint32_t op = KERNEL_SUM; op <= KERNEL_MAX; op++) {
            args[0].reduce_op = op;
            ASSERT_EQ(
                kernel_check(kernel_by_name(names[i]), args, 2, &scalar, i == 0, &err),
                op == KERNEL_SUM || i == 2 ? PLASMON_OK : PLASMON_EINVAL);
        }
    }
}

TEST(a_fold_takes_64_partials_and_no_more)
{
    struct kernel_arg_shape args[KERNEL_FOLD_MAX + 2];
    union kernel_scalar op = {.i = KERNEL_SUM};
    struct pl_err err      = {0};

    for (uint32_t i = 0; i < PL_COUNT(args); i++) {
        args[i] = parse_shape("f32[2]", i == 0 ? KERNEL_INOUT : KERNEL_IN);
    }
    ASSERT_OK(
        kernel_check(kernel_by_name("fold"), args, KERNEL_FOLD_MAX + 1, &op, 1, &err));
    ASSERT_STATUS(
        kernel_check(kernel_by_name("fold"), args, KERNEL_FOLD_MAX + 2, &op, 1, &err),
        PLASMON_EARITY);
    ASSERT_STR(err.text, "fold: got 65 partials, takes at most 64");
}

TEST_MAIN()
