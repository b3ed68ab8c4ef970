/* Signatures that clients write: what they mean, and what is refused. */
#include "kernels/signature.h"
#include "tests/harness/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct kernel_signature *parsed(const char *text)
{
    struct kernel_signature *signature = NULL;
    struct pl_err err                  = {0};

    if (kernel_signature_parse(text, &signature, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s: %s", text, err.text);
    }
    return signature;
}

static void refused(const char *text, plasmon_status_t status, const char *because)
{
    struct kernel_signature *signature = NULL;
    struct pl_err err                  = {0};

    ASSERT_STATUS(kernel_signature_parse(text, &signature, &err), status);
    ASSERT_CONTAINS(err.text, because);
    ASSERT_NULL(signature);
}

static struct kernel_arg_shape given(uint32_t mode, uint32_t dtype, uint32_t ndim,
                                     int64_t a, int64_t b)
{
    return (struct kernel_arg_shape){.mode  = mode,
                                     .shape = {.dtype = dtype, .ndim = ndim, .dim = {a, b}},
                                     .given = true};
}

TEST(parameters_keep_their_order)
{
    struct kernel_signature *s =
        parsed("saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)");

    ASSERT_STR(s->function.name, "saxpy");
    ASSERT_EQ(s->slot_count, 4);
    ASSERT_EQ(s->tensor_count, 2);
    ASSERT_EQ(s->scalar_count, 1);
    ASSERT_EQ(s->value_count, 4);
    ASSERT_EQ(s->function.param_count, 3); /* the computed one is not the caller's */
    ASSERT_STR(s->slots[0].name, "y");
    ASSERT_EQ(s->slots[0].mode, KERNEL_INOUT);
    ASSERT_EQ(s->slots[1].mode, KERNEL_IN);
    ASSERT_EQ(s->slots[2].kind, KERNEL_SLOT_SCALAR);
    ASSERT_EQ(s->slots[2].dtype, PL_F32);
    ASSERT_EQ(s->slots[3].kind, KERNEL_SLOT_COMPUTED);
    ASSERT_TRUE(kernel_signature_of(&s->function) == s);
    ASSERT_NULL(kernel_signature_of(kernel_by_name("gemm")));
    kernel_signature_destroy(s);
}

TEST(every_mode_and_a_strided_tensor_parse)
{
    struct kernel_signature *s = parsed(
        " f ( in u8[] a,out f64[n+1, 2*n]b , scratch c128[(n+1)/2] w,\n"
        "reduce(max) i32[n] m, in f16[n,k]~ t, bool flag, u16 k, i32 q := n - k * 2 ) ");

    ASSERT_EQ(s->slots[0].ndim, 0);
    ASSERT_EQ(s->slots[3].reduce_op, KERNEL_MAX);
    ASSERT_TRUE(s->slots[4].strided);
    ASSERT_EQ(s->value_count, 8 + 2);
    kernel_signature_destroy(s);
}

TEST(outputs_get_their_shapes_from_inputs_and_scalars)
{
    struct kernel_signature *s =
        parsed("f(out f64[n+1,2*k] y, in f32[n] x, i64 k, scratch i32[(n+1)/2] w)");
    union kernel_scalar k           = {.i = 5};
    struct kernel_arg_shape args[3] = {
        {.mode = KERNEL_OUT}, given(KERNEL_IN, PL_F32, 1, 7, 0), {.mode = KERNEL_SCRATCH}};
    struct pl_err err = {0};
    char text[128];

    ASSERT_OK(kernel_check(&s->function, args, 3, &k, 1, &err));
    ASSERT_STR(pl_shape_format(&args[0].shape, text), "f64[8,10]");
    ASSERT_STR(pl_shape_format(&args[2].shape, text), "i32[4]");
    kernel_signature_destroy(s);
}

TEST(a_wrong_call_names_argument_given_and_expected)
{
    struct kernel_signature *s = parsed("saxpy(inout f32[n] y, in f32[n] x, i8 a)");
    union kernel_scalar a      = {.i = 1};
    struct pl_err err          = {0};
    struct kernel_arg_shape args[2];

    args[0] = given(KERNEL_INOUT, PL_F32, 1, 4, 0);
    args[1] = given(KERNEL_IN, PL_F32, 1, 5, 0);
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 1, &err), PLASMON_ESHAPE);
    ASSERT_STR(err.text, "saxpy: x is f32[5], needs f32[4]; n is 4 by y");

    args[1] = given(KERNEL_IN, PL_F32, 2, 4, 1);
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 1, &err), PLASMON_ESHAPE);
    ASSERT_STR(err.text, "saxpy: x is f32[4,1], needs 1 dimension");

    args[1] = given(KERNEL_IN, PL_F64, 1, 4, 0);
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 1, &err), PLASMON_EDTYPE);
    ASSERT_STR(err.text, "saxpy: x is f64, needs f32");

    args[1] = given(KERNEL_OUT, PL_F32, 1, 4, 0);
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 1, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "saxpy: x is passed as OUT, needs IN");

    args[1] = given(KERNEL_IN, PL_F32, 1, 4, 0);
    ASSERT_STATUS(kernel_check(&s->function, args, 1, &a, 1, &err), PLASMON_EARITY);
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 0, &err), PLASMON_EARITY);
    a.i = 128;
    ASSERT_STATUS(kernel_check(&s->function, args, 2, &a, 1, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "saxpy: a is 128, needs -128 to 127 (i8)");
    a.i = -128;
    ASSERT_OK(kernel_check(&s->function, args, 2, &a, 1, &err));
    kernel_signature_destroy(s);
}

TEST(a_number_that_f32_cannot_hold_is_refused_and_infinity_is_one)
{
    struct kernel_signature *s  = parsed("f(inout f32[n] y, f32 a, f64 b)");
    struct kernel_arg_shape arg = given(KERNEL_INOUT, PL_F32, 1, 4, 0);
    union kernel_scalar ab[]    = {{.f = 1e300}, {.f = 1e300}};
    struct pl_err err           = {0};

    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, ab, 2, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "f: a is 1e+300, needs -3.40282e+38 to 3.40282e+38, or inf (f32)");
    ab[0].f = -1e39;
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, ab, 2, &err), PLASMON_EINVAL);
    ab[0].f = -(double)FLT_MAX;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, ab, 2, &err));
    ab[0].f = (double)INFINITY;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, ab, 2, &err));
    ab[0].f = (double)NAN;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, ab, 2, &err));
    kernel_signature_destroy(s);
}

TEST(a_scalar_may_be_a_dimension)
{
    struct kernel_signature *s  = parsed("f(out f32[n] y, i64 n)");
    union kernel_scalar n       = {.i = 12};
    struct kernel_arg_shape arg = {.mode = KERNEL_OUT};
    struct pl_err err           = {0};

    ASSERT_OK(kernel_check(&s->function, &arg, 1, &n, 1, &err));
    ASSERT_EQ(arg.shape.dim[0], 12);
    arg = given(KERNEL_OUT, PL_F32, 1, 11, 0);
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &n, 1, &err), PLASMON_ESHAPE);
    ASSERT_STR(err.text, "f: y is f32[11], needs f32[12]; n is 12");
    n.i = 0;
    arg = (struct kernel_arg_shape){.mode = KERNEL_OUT};
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &n, 1, &err), PLASMON_ESHAPE);
    kernel_signature_destroy(s);
}

TEST(an_output_alone_must_be_stated)
{
    struct kernel_signature *s  = parsed("fill(out f32[n] y)");
    struct kernel_arg_shape arg = {.mode = KERNEL_OUT};
    struct pl_err err           = {0};

    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, NULL, 0, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "fill: y: nothing tells n");
    arg = given(KERNEL_OUT, PL_F32, 1, 3, 0);
    ASSERT_OK(kernel_check(&s->function, &arg, 1, NULL, 0, &err));
    kernel_signature_destroy(s);
}

TEST(a_reduced_argument_names_its_operation)
{
    struct kernel_signature *s  = parsed("f(reduce(min) f64[n] y)");
    struct kernel_arg_shape arg = given(KERNEL_REDUCE, PL_F64, 1, 3, 0);
    struct pl_err err           = {0};

    arg.reduce_op = KERNEL_SUM;
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, NULL, 0, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "f: y is reduced by sum, needs min");
    arg.reduce_op = KERNEL_MIN;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, NULL, 0, &err));
    kernel_signature_destroy(s);
}

TEST(arithmetic_on_dimensions_is_checked)
{
    struct kernel_signature *s =
        parsed("f(in u8[n] x, i64 k, i64 q := n / k, i64 r := k * k)");
    struct kernel_arg_shape arg = given(KERNEL_IN, PL_U8, 1, 9, 0);
    struct pl_err err           = {0};
    union kernel_scalar k       = {.i = 0};

    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &k, 1, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "f: q: ");
    k.i = INT64_MAX;
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &k, 1, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "f: r: ");
    k.i = 2;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, &k, 1, &err));
    kernel_signature_destroy(s);
}

TEST(a_computed_number_that_its_dtype_cannot_hold_is_refused)
{
    struct kernel_signature *s =
        parsed("f(in u8[n] x, i64 k, i32 m := n * k, u8 d := n - k)");
    struct kernel_arg_shape arg = given(KERNEL_IN, PL_U8, 1, 1000, 0);
    struct pl_err err           = {0};
    union kernel_scalar k       = {.i = 3000000};

    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &k, 1, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "f: m is 3000000000, needs -2147483648 to 2147483647 (i32)");
    k.i = 1001;
    ASSERT_STATUS(kernel_check(&s->function, &arg, 1, &k, 1, &err), PLASMON_EINVAL);
    ASSERT_STR(err.text, "f: d is -1, needs 0 to 255 (u8)");
    k.i = 999;
    ASSERT_OK(kernel_check(&s->function, &arg, 1, &k, 1, &err));
    kernel_signature_destroy(s);
}

TEST(operators_bind_as_in_c)
{
    struct kernel_signature *s =
        parsed("f(in u8[n] x, i64 v := 2 + 3 * n - 10 / (1 + 1) - 1)");
    struct kernel_scope scope;
    int64_t n = 5;
    int64_t v;

    kernel_scope_init(s, NULL, &scope);
    kernel_scope_bind(s, &scope, 0, &n);
    ASSERT_OK(kernel_scope_value(s, &scope, s->slots[1].dim[0], &v, NULL));
    ASSERT_EQ(v, 11);
    kernel_signature_destroy(s);
}

TEST(what_makes_no_sense_is_refused_at_its_byte)
{
    refused("", PLASMON_EINVAL, "the function's name");
    refused("f", PLASMON_EINVAL, "it ends where '('");
    refused("f(", PLASMON_EINVAL, "a mode");
    refused("f(in f32[n] x", PLASMON_EINVAL, "')'");
    refused("f() g", PLASMON_EINVAL, "at byte 4, 'g': the end");
    refused("f(f32[n] x)", PLASMON_EINVAL, "the parameter's name");
    refused("f(in f31[n] x)", PLASMON_EINVAL, "at byte 5, 'f31[n] x)': a dtype");
    refused("f(float x)", PLASMON_EINVAL, "a mode");
    refused("f(in f32 x)", PLASMON_EINVAL, "'['");
    refused("f(in f32[n x)", PLASMON_EINVAL, "']'");
    refused("f(in f32[n+] x)", PLASMON_EINVAL, "a number, a name or '('");
    refused("f(in f32[n] x, in f32[n] x)", PLASMON_EINVAL, "two parameters are called x");
    refused("f(in f32[n+1] x)", PLASMON_EINVAL, "nothing tells what n is");
    refused("f(in f32[n] x, in f32[x] y)", PLASMON_EINVAL, "x is used as a dimension");
    refused("f(f32 a, in f32[a] y)", PLASMON_EINVAL, "no integer");
    refused("f(reduce(xor) f32[n] y)", PLASMON_EINVAL, "sum, prod, min or max");
    refused("f(reduce(sum) u8[n] y)", PLASMON_EINVAL, "a reduced argument is i32");
    refused("f(reduce(min) c64[n] y)", PLASMON_EINVAL, "of c64 there is no smallest");
    refused("f(reduce(max) c128[n] y)", PLASMON_EINVAL, "by sum or prod");
    refused("f(in f32[n] x, f32 a := n)", PLASMON_EINVAL, "it is an integer");
    refused("f(c64 a)", PLASMON_EINVAL, "scalars are");
    refused("f(in u8[99999999999999999999] x)", PLASMON_EINVAL, "63 bits");
    refused("f(in u8[1,1,1,1,1,1,1,1,1] x)", PLASMON_ELIMIT, "8 dimensions");
}

TEST(limits_hold)
{
    static char text[8192];
    size_t length;

    length = (size_t)snprintf(text, sizeof(text), "f(in u8[n] x, i64 v := ");
    memset(text + length, '(', 500);
    refused(text, PLASMON_ELIMIT, "parentheses");

    length = (size_t)snprintf(text, sizeof(text), "f(in u8[n] x, i64 v := n");
    for (int i = 0; i < 300; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "+1");
    }
    refused(text, PLASMON_ELIMIT, "256 numbers");

    length = (size_t)snprintf(text, sizeof(text), "f(");
    for (int i = 0; i < 70; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%sin u8[] x%d",
                                   i == 0 ? "" : ",", i);
    }
    refused(text, PLASMON_ELIMIT, "64 parameters");

    length = (size_t)snprintf(text, sizeof(text), "f(");
    for (int i = 0; i < 17; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%si64 x%d",
                                   i == 0 ? "" : ",", i);
    }
    refused(text, PLASMON_ELIMIT, "16 scalars");

    memset(text, 'f', 5000);
    text[5000] = '\0';
    refused(text, PLASMON_ELIMIT, "4096 bytes");
    text[100] = '\0';
    refused(text, PLASMON_ELIMIT, "the limit is 63");
}

TEST(names_are_c_identifiers)
{
    ASSERT_TRUE(kernel_name_ok("_a9"));
    ASSERT_TRUE(!kernel_name_ok(""));
    ASSERT_TRUE(!kernel_name_ok("9a"));
    ASSERT_TRUE(!kernel_name_ok("a-b"));
    ASSERT_TRUE(!kernel_name_ok("a b"));
}

TEST_MAIN()
