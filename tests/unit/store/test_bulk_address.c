/* On which address workers take objects of other machines: what is found out, and what is refused. */
#include "store/bulk_address.h"
#include "tests/harness/test.h"

#include <string.h>

static char room[STORE_BULK_ADDRESS_BYTES];

TEST(what_is_given_is_taken)
{
    ASSERT_STR(store_bulk_address("10.1.2.3", "unix:/s", room), "10.1.2.3");
    ASSERT_STR(store_bulk_address("none", "192.0.2.1:7070", room), "none");
}

TEST(with_a_head_on_this_machine_nothing_leaves_it)
{
    ASSERT_STR(store_bulk_address(NULL, "unix:/s", room), "none");
    ASSERT_STR(store_bulk_address("auto", "127.0.0.1:7070", room), "none");
    ASSERT_STR(store_bulk_address(NULL, "127.0.0.1:7070,127.0.0.2:7070", room), "none");
    ASSERT_STR(store_bulk_address(NULL, "[::1]:7070", room), "none");
    ASSERT_STR(store_bulk_address(NULL, "", room), "none");
    ASSERT_STR(store_bulk_address(NULL, ",:,nothing", room), "none");
}

/*
 * A documentation address: packets to it leave by the default route. Where there is none, neither
 * is an address.
 */
TEST(of_several_heads_the_first_one_on_a_network_says)
{
    char first[STORE_BULK_ADDRESS_BYTES];

    (void)snprintf(first, sizeof(first), "%s",
                   store_bulk_address("default", "unix:/s", room));
    ASSERT_STR(store_bulk_address(NULL, "192.0.2.1:7070", room), first);
    ASSERT_STR(store_bulk_address(NULL, "192.0.2.1:7070,192.0.2.2:7070", room), first);
    ASSERT_STR(store_bulk_address(NULL, "127.0.0.1:7070,192.0.2.2:7070", room), first);
    ASSERT_STR(store_bulk_address(NULL, "[::1]:7070,192.0.2.2:7070", room), first);
}

TEST(an_address_that_others_cannot_reach_is_refused)
{
    struct store_options options = {.bulk_address = "127.0.0.1", .bulk_plain = true};
    struct pl_err err            = {.status = PLASMON_OK};

    options.head = "127.0.0.1:7070";
    ASSERT_OK(store_bulk_check(&options, &err));
    options.head = "unix:/s";
    ASSERT_OK(store_bulk_check(&options, &err));
    options.head = "192.0.2.1:7070";
    if (strcmp(store_bulk_address("default", options.head, room), "none") == 0) {
        test_skip("this machine has no network");
    }
    ASSERT_STATUS(store_bulk_check(&options, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--bulk-address 127.0.0.1 is of this machine alone");
}

/* Its machine is one of several: who is alone has nothing to say about what crosses a network. */
TEST(the_head_s_own_machine_takes_part_where_objects_may_cross_a_network)
{
    struct store_options options = {.head = "127.0.0.1:7070"};

    store_bulk_settle(&options);
    ASSERT_NULL(options.bulk_address);
    options.bulk_plain = true;
    store_bulk_settle(&options);
    ASSERT_STR(options.bulk_address, "default");

    options = (struct store_options){.head = "unix:/s", .tls_cert = "a.crt"};
    store_bulk_settle(&options);
    ASSERT_STR(options.bulk_address, "default");
    options = (struct store_options){
        .head = "unix:/s", .bulk_plain = true, .bulk_address = "none"};
    store_bulk_settle(&options);
    ASSERT_STR(options.bulk_address, "none");
    options = (struct store_options){
        .head = "127.0.0.1:7070", .bulk_plain = true, .bulk_address = "auto"};
    store_bulk_settle(&options);
    ASSERT_STR(options.bulk_address, "default");
    options = (struct store_options){.bulk_plain = true, .embedded = true};
    store_bulk_settle(&options);
    ASSERT_NULL(options.bulk_address);
    options = (struct store_options){.head = "192.0.2.1:7070", .bulk_plain = true};
    if (strcmp(store_bulk_address("default", options.head, room), "none") != 0) {
        store_bulk_settle(&options);
        ASSERT_NULL(options.bulk_address);
    }
}

/* Its network may be another one than that of the default route, which may be anybody's. */
TEST(where_the_head_is_not_found_yet_nothing_is_settled)
{
    /* No interface is named, so there is no way to it; as for a name before there is a network. */
    struct store_options options = {.head = "[fe80::1]:7070", .bulk_plain = true};

    ASSERT_STR(store_bulk_address(NULL, options.head, room), "none");
    store_bulk_settle(&options);
    ASSERT_NULL(options.bulk_address);
}

TEST_MAIN()
