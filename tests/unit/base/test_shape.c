#include "tests/harness/test.h"

#include "base/box.h"

static struct pl_shape shape_of(uint32_t dtype, uint32_t ndim, int64_t a, int64_t b,
                                int64_t c)
{
    return (struct pl_shape){.dtype = dtype, .ndim = ndim, .dim = {a, b, c}};
}

TEST(dtypes_have_their_sizes_and_names)
{
    static const struct {
        uint32_t dtype, bytes;
        const char *name;
    } want[] = {
        {PL_BOOL, 1, "bool"}, {PL_I8, 1, "i8"},   {PL_U8, 1, "u8"},      {PL_I16, 2, "i16"},
        {PL_U16, 2, "u16"},   {PL_I32, 4, "i32"}, {PL_U32, 4, "u32"},    {PL_I64, 8, "i64"},
        {PL_U64, 8, "u64"},   {PL_F16, 2, "f16"}, {PL_BF16, 2, "bf16"},  {PL_F32, 4, "f32"},
        {PL_F64, 8, "f64"},   {PL_C64, 8, "c64"}, {PL_C128, 16, "c128"},
    };

    ASSERT_EQ(PL_COUNT(want), 15);
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        ASSERT_EQ(want[i].dtype, i + 1); /* frozen numbers */
        ASSERT_EQ(pl_dtype_bytes(want[i].dtype), want[i].bytes);
        ASSERT_STR(pl_dtype_name(want[i].dtype), want[i].name);
    }
}

TEST(unknown_dtypes_have_no_size)
{
    static const uint32_t unknown[] = {0, 16, 255, UINT32_MAX};

    for (size_t i = 0; i < PL_COUNT(unknown); i++) {
        ASSERT_EQ(pl_dtype_bytes(unknown[i]), 0);
        ASSERT_STR(pl_dtype_name(unknown[i]), "?");
    }
}

TEST(good_shapes_pass_and_are_measured)
{
    struct pl_shape matrix = shape_of(PL_F64, 2, 3, 4, 0);
    struct pl_shape scalar = shape_of(PL_I32, 0, 0, 0, 0);
    struct pl_shape limit  = shape_of(PL_U8, 2, 1ll << 24, 1ll << 24, 0);

    ASSERT_OK(pl_shape_check(&matrix, NULL));
    ASSERT_EQ(pl_shape_elements(&matrix), 12);
    ASSERT_EQ(pl_shape_bytes(&matrix), 96);
    ASSERT_OK(pl_shape_check(&scalar, NULL));
    ASSERT_EQ(pl_shape_elements(&scalar), 1);
    ASSERT_EQ(pl_shape_bytes(&scalar), 4);
    ASSERT_OK(pl_shape_check(&limit, NULL));
    ASSERT_EQ(pl_shape_bytes(&limit), 1ll << 48);
}

TEST(bad_dtypes_and_ranks_are_refused)
{
    struct pl_shape dtype = shape_of(99, 1, 1, 0, 0);
    struct pl_shape rank  = shape_of(PL_F32, 9, 1, 1, 1);
    struct pl_err err;

    ASSERT_STATUS(pl_shape_check(&dtype, &err), PLASMON_EDTYPE);
    ASSERT_EQ(err.status, PLASMON_EDTYPE);
    ASSERT_CONTAINS(err.text, "99");
    ASSERT_STATUS(pl_shape_check(&rank, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "9 dimensions");
    rank.ndim = UINT32_MAX;
    ASSERT_STATUS(pl_shape_check(&rank, NULL), PLASMON_ESHAPE);
}

TEST(empty_and_negative_dimensions_are_refused_by_name)
{
    struct pl_shape empty    = shape_of(PL_F32, 3, 2, 0, 5);
    struct pl_shape negative = shape_of(PL_F32, 3, 2, 3, INT64_MIN);
    struct pl_err err;

    ASSERT_STATUS(pl_shape_check(&empty, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "dimension 1 has size 0");
    ASSERT_STATUS(pl_shape_check(&negative, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "dimension 2");
}

TEST(sizes_that_overflow_are_refused)
{
    struct pl_shape over = shape_of(PL_U8, 2, 1ll << 24, (1ll << 24) + 1, 0);
    /* 2^64 wraps to 0 */
    struct pl_shape wrapped = shape_of(PL_U8, 3, 1ll << 32, 1ll << 32, 1);
    struct pl_shape huge    = shape_of(PL_C128, 3, INT64_MAX, INT64_MAX, INT64_MAX);
    struct pl_err err;

    ASSERT_STATUS(pl_shape_check(&over, &err), PLASMON_ESHAPE);
    ASSERT_CONTAINS(err.text, "2^48");
    ASSERT_STATUS(pl_shape_check(&wrapped, NULL), PLASMON_ESHAPE);
    ASSERT_STATUS(pl_shape_check(&huge, &err), PLASMON_ESHAPE);
}

TEST(only_equal_shapes_are_equal)
{
    struct pl_shape a = shape_of(PL_F32, 2, 3, 4, 7);
    /* beyond the rank: means nothing */
    struct pl_shape same  = shape_of(PL_F32, 2, 3, 4, 9);
    struct pl_shape dtype = shape_of(PL_I32, 2, 3, 4, 7);
    struct pl_shape rank  = shape_of(PL_F32, 3, 3, 4, 7);
    struct pl_shape size  = shape_of(PL_F32, 2, 3, 5, 7);

    ASSERT_TRUE(pl_shape_equal(&a, &same));
    ASSERT_TRUE(!pl_shape_equal(&a, &dtype));
    ASSERT_TRUE(!pl_shape_equal(&a, &rank));
    ASSERT_TRUE(!pl_shape_equal(&a, &size));
}

TEST(shapes_print_as_type_and_sizes)
{
    struct pl_shape matrix = shape_of(PL_F32, 2, 3, 4, 0);
    struct pl_shape scalar = shape_of(PL_BF16, 0, 0, 0, 0);
    char text[128];

    ASSERT_STR(pl_shape_format(&matrix, text), "f32[3,4]");
    ASSERT_STR(pl_shape_format(&scalar, text), "bf16[]");
}

TEST(unchecked_shapes_print_within_the_buffer)
{
    struct pl_shape long_one = {.dtype = 77, .ndim = 200};
    char text[129];

    for (int d = 0; d < PL_DIM_MAX; d++) {
        long_one.dim[d] = INT64_MIN;
    }
    text[128] = 'x';
    ASSERT_EQ(strlen(pl_shape_format(&long_one, text)), 127);
    ASSERT_EQ(text[128], 'x');
}

TEST(box_of_a_shape_is_all_of_it)
{
    struct pl_shape shape = shape_of(PL_F32, 3, 2, 3, 4);
    struct pl_box want    = {.ndim = 3, .count = {2, 3, 4}};
    struct pl_box box     = pl_box_of_shape(&shape);

    ASSERT_TRUE(pl_box_equal(&box, &want));
}

TEST_MAIN()
