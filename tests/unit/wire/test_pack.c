/* Launches that are written by hand are what protobuf-c writes: every field of the description, alone and with others, at the ends of its range. */
#include "tests/harness/test.h"
#include "tests/unit/wire/random_message.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wire/wire.h"

#define ROUNDS 4000u

static void *create(size_t bytes)
{
    return pl_alloc(bytes == 0 ? 1 : bytes);
}

static void expect_same(const Plasmon__V1__Launch *launch)
{
    size_t length   = plasmon__v1__launch__get_packed_size(launch), packed_length;
    uint8_t *bytes  = create(length);
    uint8_t *packed = wire_launch_pack(launch, create, &packed_length);

    ASSERT_NOT_NULL(bytes);
    ASSERT_NOT_NULL(packed);
    (void)plasmon__v1__launch__pack(launch, bytes); /* as many as it said */
    ASSERT_EQ(packed_length, length);
    ASSERT_EQ(memcmp(packed, bytes, length), 0);
    pl_free(bytes);
    pl_free(packed);
}

TEST(what_is_packed_by_hand_is_what_protobuf_c_packs)
{
    struct rng rng = {.state = test_seed() | 1};

    for (uint32_t i = 0; i < ROUNDS; i++) {
        Plasmon__V1__Launch launch = PLASMON__V1__LAUNCH__INIT;

        if (i > 0) { /* and one with nothing in it */
            message_fill(&rng, &launch.base);
        }
        expect_same(&launch);
        message_free(&launch.base);
    }
}

static void *nothing(size_t bytes)
{
    (void)bytes;
    return NULL;
}

TEST(without_memory_there_are_no_bytes)
{
    Plasmon__V1__Launch launch = PLASMON__V1__LAUNCH__INIT;
    size_t length;

    launch.seq = 7;
    ASSERT_NULL(wire_launch_pack(&launch, nothing, &length));
}

TEST_MAIN()
