/* pl_copy() copies what memcpy() would, and nothing else. (That it is faster is not a thing to test.) */
#include "base/copy.h"

#include <stdlib.h>

#include "tests/harness/test.h"

enum { ROOM = 1 << 20, MARGIN = 8192 };

static void expect_copied(uint8_t *to, const uint8_t *from, size_t at, size_t offset,
                          size_t bytes)
{
    memset(to, 0xee, ROOM);
    pl_copy(to + at, from + offset, bytes);
    if (memcmp(to + at, from + offset, bytes) != 0) {
        test_fail(__FILE__, __LINE__, "%zu bytes from %zu to %zu are not the same", bytes,
                  offset, at);
    }
    for (size_t i = 0; i < MARGIN; i++) {
        if ((i < at && to[i] != 0xee) || to[at + bytes + i] != 0xee) {
            test_fail(__FILE__, __LINE__, "%zu bytes from %zu to %zu wrote beside them",
                      bytes, offset, at);
        }
    }
}

TEST(any_block_is_copied_from_anywhere_to_anywhere)
{
    uint64_t state = test_seed();
    uint8_t *from  = aligned_alloc(4096, ROOM);
    uint8_t *to    = aligned_alloc(4096, ROOM);

    ASSERT_TRUE(from != NULL && to != NULL);
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (uint8_t)test_random(&state);
    }
    for (unsigned i = 0; i < 300; i++) {
        size_t offset = test_random(&state) % 4096;
        /* Half of them just ahead of the source, modulo a page. */
        size_t at =
            i % 2 != 0 ? test_random(&state) % MARGIN : offset + test_random(&state) % 1024;
        size_t bytes =
            i % 3 == 0 ? test_random(&state) % 70000 : 65536 + test_random(&state) % 300000;

        expect_copied(to, from, at, offset, bytes);
    }
    free(from);
    free(to);
}

TEST_MAIN()
