#include "tests/harness/test.h"

#include "base/base.h"

#include <errno.h>

TEST(every_status_has_a_name_and_a_text)
{
    for (int status = PLASMON_ENOTREBUILDABLE; status <= PLASMON_INPROGRESS; status++) {
        ASSERT_TRUE(strcmp(pl_status_name((plasmon_status_t)status), "EUNKNOWN") != 0);
        ASSERT_TRUE(pl_status_text((plasmon_status_t)status)[0] != '\0');
    }
    ASSERT_STR(pl_status_name(PLASMON_ENOMEM), "ENOMEM");
    ASSERT_STR(pl_status_text(PLASMON_ENOMEM), "out of host memory");
    ASSERT_STR(pl_status_name(PLASMON_OK), "OK");
}

TEST(numbers_of_a_newer_peer_have_a_text_too)
{
    volatile int newer = -1000; /* as from the wire */

    ASSERT_STR(pl_status_name((plasmon_status_t)newer), "EUNKNOWN");
    ASSERT_CONTAINS(pl_status_text((plasmon_status_t)newer), "unknown");
}

TEST(numbers_are_frozen)
{
    ASSERT_EQ(PLASMON_OK, 0);
    ASSERT_EQ(PLASMON_INPROGRESS, 1);
    ASSERT_EQ(PLASMON_ENOMEM, -1);
    ASSERT_EQ(PLASMON_EMALFORMED, -15);
    ASSERT_EQ(PLASMON_EWORKER, -25);
    ASSERT_EQ(PLASMON_EINTERNAL, -37);
    ASSERT_EQ(PLASMON_EGRAPH, -38);
    ASSERT_EQ(PLASMON_EHEADLOST, -39);
    ASSERT_EQ(PLASMON_ECOMPILE, -40);
    ASSERT_EQ(PLASMON_ESINGULAR, -42);
    ASSERT_EQ(PLASMON_EBUSY, -43);
    ASSERT_EQ(PLASMON_ENOTREBUILDABLE, -44);
}

TEST(errno_becomes_the_nearest_status)
{
    ASSERT_STATUS(pl_status_from_errno(0), PLASMON_OK);
    ASSERT_STATUS(pl_status_from_errno(ENOENT), PLASMON_ENOENT);
    ASSERT_STATUS(pl_status_from_errno(EACCES), PLASMON_EPERM);
    ASSERT_STATUS(pl_status_from_errno(ENOSPC), PLASMON_ENOSPC);
    ASSERT_STATUS(pl_status_from_errno(EADDRINUSE), PLASMON_EADDRINUSE);
    ASSERT_STATUS(pl_status_from_errno(ECONNREFUSED), PLASMON_ECONNECT);
    ASSERT_STATUS(pl_status_from_errno(EPIPE), PLASMON_ECLOSED);
    ASSERT_STATUS(pl_status_from_errno(ENOMEM), PLASMON_ENOMEM);
    ASSERT_STATUS(pl_status_from_errno(EXDEV), PLASMON_EIO);
}

TEST(names_hash_as_fnv_1a)
{
    /* Published test vectors of 32-bit FNV-1a. */
    ASSERT_EQ(pl_hash_name(""), 0x811c9dc5u);
    ASSERT_EQ(pl_hash_name("a"), 0xe40c292cu);
    ASSERT_EQ(pl_hash_name("foobar"), 0xbf9cf968u);
}

TEST(rounding_up_stays_on_multiples)
{
    ASSERT_EQ(pl_round_up(0, 64), 0);
    ASSERT_EQ(pl_round_up(1, 64), 64);
    ASSERT_EQ(pl_round_up(64, 64), 64);
    ASSERT_EQ(pl_round_up(65, 64), 128);
}

TEST_MAIN()
