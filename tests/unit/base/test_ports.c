#include "base/ports.h"

#include "base/base.h"
#include "tests/harness/test.h"

TEST(a_range_of_ports_is_two_numbers_in_order)
{
    static const char *const bad[] = {"",          "7100",    "7100-",      "-7100",
                                      "7101-7100", "0-7100",  "7100-65536", "7100-7109x",
                                      "a-b",       "100000-1"};
    uint16_t first, last;

    ASSERT_TRUE(pl_parse_ports("7100-7109", &first, &last));
    ASSERT_EQ(first, 7100);
    ASSERT_EQ(last, 7109);
    ASSERT_TRUE(pl_parse_ports("65535-65535", &first, &last));
    ASSERT_TRUE(pl_parse_ports(NULL, &first, &last));
    ASSERT_EQ(first, 0);
    ASSERT_EQ(last, 0);
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ASSERT_TRUE(!pl_parse_ports(bad[i], &first, &last));
    }
}

TEST_MAIN()
