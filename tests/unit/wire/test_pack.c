/*
 * Launches that are written by hand are what protobuf-c writes: every field of the description,
 * alone and with others, at the ends of its range.
 */
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

/* With room for so many bytes, or memory of its own. */
static void expect_same(const Plasmon__V1__Launch *launch, size_t room_bytes)
{
    size_t length   = plasmon__v1__launch__get_packed_size(launch), packed_length;
    uint8_t *bytes  = create(length);
    uint8_t *room   = room_bytes == 0 ? NULL : create(room_bytes);
    uint8_t *packed = wire_launch_pack(launch, room, room_bytes, create, &packed_length);

    ASSERT_NOT_NULL(bytes);
    ASSERT_NOT_NULL(packed);
    ASSERT_EQ(packed == room, room != NULL && length <= room_bytes);
    (void)plasmon__v1__launch__pack(launch, bytes); /* as many as it said */
    ASSERT_EQ(packed_length, length);
    ASSERT_EQ(memcmp(packed, bytes, length), 0);
    if (packed != room) {
        pl_free(packed);
    }
    pl_free(room);
    pl_free(bytes);
}

TEST(what_is_packed_by_hand_is_what_protobuf_c_packs)
{
    struct rng rng = {.state = test_seed() | 1};

    for (uint32_t i = 0; i < ROUNDS; i++) {
        Plasmon__V1__Launch launch = PLASMON__V1__LAUNCH__INIT;

        if (i > 0) { /* and one with nothing in it */
            message_fill(&rng, &launch.base);
        }
        expect_same(&launch, 0);
        expect_same(&launch, 1 + draw(&rng) % 512);
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
    ASSERT_NULL(wire_launch_pack(&launch, NULL, 0, nothing, &length));
}

TEST_MAIN()
