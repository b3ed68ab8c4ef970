#include "tests/harness/test.h"

#include "base/alloc.h"
#include "base/fault.h"

static int all_zero(const void *ptr, size_t bytes)
{
    const unsigned char *at = ptr;

    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0) {
            return 0;
        }
    }
    return 1;
}

TEST(memory_is_zeroed_and_aligned)
{
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        for (size_t bytes = 0; bytes < 300; bytes += 37) {
            void *dirty = pl_alloc(512);
            void *ptr;

            ASSERT_NOT_NULL(dirty);
            memset(dirty, 0xff, 512); /* so that the next one gets used memory */
            pl_free(dirty);

            ptr = pl_alloc_aligned(alignment, bytes);
            ASSERT_NOT_NULL(ptr);
            ASSERT_EQ((uintptr_t)ptr % alignment, 0);
            ASSERT_TRUE(all_zero(ptr, bytes));
            pl_free(ptr);
        }
    }
}

TEST(grown_memory_keeps_the_old_and_zeroes_the_new)
{
    unsigned char *ptr = pl_alloc(10);

    ASSERT_NOT_NULL(ptr);
    memset(ptr, 7, 10);
    ptr = pl_realloc(ptr, 10, 1000);
    ASSERT_NOT_NULL(ptr);
    ASSERT_EQ(ptr[9], 7);
    ASSERT_TRUE(all_zero(ptr + 10, 990));
    pl_free(ptr);
}

TEST(arrays_that_overflow_are_refused)
{
    /* Volatile, so that the compiler does not see the impossible size and warn. */
    volatile size_t half = SIZE_MAX / 2 + 1;

    ASSERT_NULL(pl_alloc_array(half, 2));
    ASSERT_NULL(pl_alloc_array(half, 3));
    ASSERT_NULL(pl_alloc_aligned(64, half + (half - 1)));
}

TEST(every_allocation_has_the_fault_point)
{
    char *kept = pl_strdup("kept");

    ASSERT_NOT_NULL(kept);
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_alloc(1));
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_alloc_aligned(64, 1));
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_alloc_array(1, 1));
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_strdup("x"));
    pl_fault_arm("alloc", 0);
    ASSERT_NULL(pl_realloc(kept, 5, 50));
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_STR(kept, "kept"); /* a failed growth leaves it */
    pl_free(kept);
    pl_free(NULL);
}

TEST_MAIN()
