/*
 * Where NCCL listens: on the network that objects go over, or nowhere else than here; and what the
 * operator set stays.
 */
#include <stdlib.h>

#include "tests/harness/test.h"
#include "worker/pair_device.h"

static void expect_interface(const char *address, const char *wanted)
{
    const char *name;

    ASSERT_EQ(unsetenv("NCCL_SOCKET_IFNAME"), 0);
    worker_pairs_environment(address, 3);
    name = getenv("NCCL_SOCKET_IFNAME");
    if (wanted == NULL) {
        ASSERT_NULL(name);
    } else {
        ASSERT_NOT_NULL(name);
        ASSERT_STR(name, wanted);
    }
}

TEST(nccl_listens_on_the_interface_of_the_bulk_address)
{
    expect_interface("127.0.0.1", "=lo");
}

TEST(without_a_bulk_address_it_listens_on_the_loopback_alone)
{
    expect_interface(NULL, "=lo");
    expect_interface("none", "=lo");
}

TEST(an_address_that_no_interface_has_is_told)
{
    test_expect_log();
    expect_interface("192.0.2.77", NULL);
}

TEST(what_the_operator_named_stays)
{
    ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "ib0,ib1", 1), 0);
    ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "1", 1), 0);
    worker_pairs_environment("192.0.2.77", 3);
    ASSERT_STR(getenv("NCCL_SOCKET_IFNAME"), "ib0,ib1");
    ASSERT_STR(getenv("NCCL_NVLS_ENABLE"), "0"); /* docs/transfers.md */
    ASSERT_NULL(getenv("NCCL_HOSTID"));
}

TEST(a_host_that_is_split_has_a_name_for_each_device)
{
    ASSERT_EQ(setenv("PLASMON_NCCL_SPLIT_HOST", "1", 1), 0);
    worker_pairs_environment(NULL, 3);
    ASSERT_STR(getenv("NCCL_HOSTID"), "plasmon-device-3");
}

TEST_MAIN()
