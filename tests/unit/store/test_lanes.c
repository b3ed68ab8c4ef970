/*
 * Lanes of a host: one a client and device, as many as a device may have, used again when they are
 * quiet and not before.
 */
#include "store/lanes.h"

#include <fcntl.h>

#include "base/fault.h"
#include "base/fd.h"
#include "device/device.h"
#include "tests/harness/test.h"

#define FIRST_CLIENT 100u

static struct store_host host;

static void begin(void)
{
    struct pl_err err;

    store_host_init(&host);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(store_host_add_device(&host, DEVICE_CPU, i, 64u << 20, 1ull << 30, &err));
    }
}

static struct store_host_lane *take(uint32_t device, uint32_t reader, bool new)
{
    struct store_host_lane *lane = NULL;
    bool made;

    ASSERT_OK(store_lanes_take(&host, device, reader, &lane, &made));
    ASSERT_EQ(made, new);
    ASSERT_EQ(lane->reader, reader);
    return lane;
}

TEST(a_client_has_one_lane_to_a_device)
{
    struct store_host_lane *lane;

    begin();
    lane = take(0, FIRST_CLIENT, true);
    ASSERT_EQ(lane->shared->magic, STORE_LANE_MAGIC);
    ASSERT_TRUE(take(0, FIRST_CLIENT, false) == lane);
    ASSERT_TRUE(take(0, FIRST_CLIENT + 1, true) != lane);
    (void)take(1, FIRST_CLIENT, true);
    ASSERT_EQ(host.devices[0].lane_count, 2);
    ASSERT_EQ(host.devices[1].lane_count, 1);
    store_host_finish(&host);
}

TEST(a_device_has_a_limited_number_of_lanes)
{
    struct store_host_lane *lane;
    bool made;

    begin();
    for (uint32_t i = 0; i < STORE_LANES_MAX; i++) {
        (void)take(0, FIRST_CLIENT + i, true);
    }
    ASSERT_STATUS(store_lanes_take(&host, 0, 200, &lane, &made), PLASMON_EAGAIN);
    (void)take(1, 200, true); /* the other device has its own */
    ASSERT_EQ(store_lanes_release(&host, FIRST_CLIENT + 3), 0);
    (void)take(0, 200, false);
    store_host_finish(&host);
}

/* Nor has it more when workers hand them back, whatever they say. */
TEST(more_lanes_than_a_device_may_have_are_not_taken_back)
{
    const struct store_host_lane *lane;

    begin();
    lane = take(0, FIRST_CLIENT, true);
    for (uint32_t i = 1; i < STORE_LANES_MAX; i++) {
        ASSERT_OK(store_lanes_keep(&host, 0, fcntl(lane->fd, F_DUPFD_CLOEXEC, 3)));
    }
    ASSERT_STATUS(store_lanes_keep(&host, 0, fcntl(lane->fd, F_DUPFD_CLOEXEC, 3)),
                  PLASMON_ELIMIT);
    ASSERT_EQ(host.devices[0].lane_count, STORE_LANES_MAX);
    store_host_finish(&host);
}

TEST(a_lane_with_something_on_its_way_is_not_given_out)
{
    struct store_host_lane *lane, *other;

    begin();
    lane                        = take(0, FIRST_CLIENT, true);
    lane->shared->slot[5].asked = 7; /* and the device is at 6 */
    lane->shared->slot[5].done  = 6;
    ASSERT_EQ(store_lanes_release(&host, FIRST_CLIENT), 1); /* device 0 must be told */
    other = take(0, FIRST_CLIENT + 1, true);
    ASSERT_TRUE(other != lane);
    lane->shared->slot[5].done = 7;
    ASSERT_TRUE(take(0, FIRST_CLIENT + 2, false) == lane);
    store_host_finish(&host);
}

/* Open ones come first. It opens whatever its last client left on its way: nothing of it was pinned. */
TEST(a_lane_that_its_worker_closed_is_opened_for_the_next_client)
{
    struct store_host_lane *lane, *open;

    begin();
    lane                 = take(0, FIRST_CLIENT, true);
    open                 = take(0, FIRST_CLIENT + 1, true);
    lane->shared->closed = 1;
    ASSERT_TRUE(take(0, FIRST_CLIENT, false) == lane); /* it has that one */
    ASSERT_EQ(lane->shared->closed, 1);
    lane->shared->slot[1].asked = 1;
    (void)store_lanes_release(&host, FIRST_CLIENT);
    ASSERT_EQ(store_lanes_release(&host, FIRST_CLIENT + 1), 0);
    ASSERT_TRUE(take(0, FIRST_CLIENT + 2, false) == open);
    ASSERT_TRUE(take(0, FIRST_CLIENT + 3, false) == lane);
    ASSERT_EQ(lane->shared->closed, 0);
    store_host_finish(&host);
}

TEST(a_device_that_is_given_up_says_so_in_its_lanes)
{
    struct store_host_lane *lane, *none;
    bool made;

    begin();
    lane = take(0, FIRST_CLIENT, true);
    ASSERT_EQ(lane->shared->closed, 0);
    store_lanes_close(&host, 0);
    ASSERT_EQ(lane->shared->closed, 1);
    ASSERT_STATUS(store_lanes_take(&host, 0, 200, &none, &made), PLASMON_EUNREACHABLE);
    store_host_finish(&host);
}

TEST(a_lane_that_cannot_be_made_leaves_nothing)
{
    static const char *const points[] = {"fd.memfd", "fd.map"};

    for (size_t i = 0; i < PL_COUNT(points); i++) {
        struct store_host_lane *lane;
        bool made;

        begin();
        pl_fault_arm(points[i], 0);
        ASSERT_STATUS(store_lanes_take(&host, 0, FIRST_CLIENT, &lane, &made),
                      PLASMON_ENOMEM);
        ASSERT_TRUE(pl_fault_disarm());
        ASSERT_EQ(host.devices[0].lane_count, 0);
        (void)take(0, FIRST_CLIENT, true);
        store_host_finish(&host);
    }
}

TEST_MAIN()
