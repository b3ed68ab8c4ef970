#include "tests/harness/test.h"

#include "base/fault.h"
#include "base/str.h"

static void expect_json(const char *text, const char *want)
{
    struct pl_str str;

    pl_str_init(&str);
    pl_str_append_json(&str, text);
    ASSERT_STR(pl_str_text(&str), want);
    pl_str_finish(&str);
}

TEST(appends_add_up)
{
    struct pl_str str;

    pl_str_init(&str);
    ASSERT_STR(pl_str_text(&str), "");
    for (int i = 0; i < 1000; i++) {
        pl_str_append(&str, "%03d,", i);
    }
    ASSERT_EQ(str.length, 4000);
    ASSERT_EQ(strlen(pl_str_text(&str)), 4000);
    ASSERT_EQ(strncmp(pl_str_text(&str) + 3996, "999,", 5), 0);
    pl_str_finish(&str);
    ASSERT_STR(pl_str_text(&str), "");
}

TEST(lengths_around_the_capacity_are_exact)
{
    for (int length = 55; length < 75; length++) {
        struct pl_str str;

        pl_str_init(&str);
        pl_str_append(&str, "%*d", length, 1);
        ASSERT_EQ(str.length, length);
        ASSERT_TRUE(str.capacity > str.length);
        pl_str_append(&str, "%d", 2);
        ASSERT_CONTAINS(pl_str_text(&str), " 12");
        pl_str_finish(&str);
    }
}

TEST(after_a_failed_allocation_the_text_stays)
{
    struct pl_str str;

    pl_str_init(&str);
    pl_str_append(&str, "before");
    pl_fault_arm("alloc", 0);
    pl_str_append(&str, "%100d", 1);
    ASSERT_TRUE(pl_fault_disarm());
    pl_str_append(&str,
                  "after"); /* a text with a hole in it would be worse than a short one */
    ASSERT_STR(pl_str_text(&str), "before");
    pl_str_finish(&str);
}

TEST(json_escapes_what_json_must)
{
    expect_json("", "\"\"");
    expect_json("plain text", "\"plain text\"");
    expect_json("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
    expect_json("\n\r\t", "\"\\n\\r\\t\"");
    expect_json("\x01\x1f\x7f", "\"\\u0001\\u001f\x7f\"");
}

TEST(json_keeps_utf8)
{
    expect_json("\xc3\xa9", "\"\xc3\xa9\"");                 /* e acute */
    expect_json("\xe2\x82\xac", "\"\xe2\x82\xac\"");         /* euro sign */
    expect_json("\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""); /* an emoji */
    expect_json("\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""); /* U+10FFFF, the last */
    expect_json("\xed\x9f\xbf", "\"\xed\x9f\xbf\""); /* U+D7FF, before the surrogates */
}

TEST(json_replaces_what_is_not_utf8)
{
    expect_json("\xff", "\"\\ufffd\"");
    expect_json("\x80", "\"\\ufffd\"");                       /* a continuation alone */
    expect_json("\xc0\xaf", "\"\\ufffd\\ufffd\"");            /* overlong '/' */
    expect_json("\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\""); /* overlong '/', longer */
    expect_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* a surrogate */
    expect_json("\xf4\x90\x80\x80",
                "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");     /* above U+10FFFF */
    expect_json("x\xe2\x82", "\"x\\ufffd\\ufffd\"");     /* cut off by the end */
    expect_json("\xe2\x82\"", "\"\\ufffd\\ufffd\\\"\""); /* cut off by a quote */
}

TEST(bytes_print_in_binary_units)
{
    char text[32];

    ASSERT_STR(pl_format_bytes(0, text), "0 B");
    ASSERT_STR(pl_format_bytes(1023, text), "1023 B");
    ASSERT_STR(pl_format_bytes(1024, text), "1.0 KiB");
    ASSERT_STR(pl_format_bytes(1536ull << 20, text), "1.5 GiB");
    ASSERT_STR(pl_format_bytes((1ull << 30) - 1, text), "1.0 GiB");
    ASSERT_STR(pl_format_bytes(UINT64_MAX, text), "16.0 EiB");
}

TEST(an_error_carries_its_status_and_text)
{
    struct pl_err err;

    ASSERT_STATUS(pl_err_set(&err, PLASMON_ESHAPE, "dimension %d", 3), PLASMON_ESHAPE);
    ASSERT_EQ(err.status, PLASMON_ESHAPE);
    ASSERT_STR(err.text, "dimension 3");
    ASSERT_STATUS(pl_err_set(NULL, PLASMON_EINVAL, "nobody asked"), PLASMON_EINVAL);
    ASSERT_STATUS(pl_err_set(&err, PLASMON_EINVAL, "%2000d", 1), PLASMON_EINVAL);
    ASSERT_EQ(strlen(err.text), sizeof(err.text) - 1);
}

/* It goes to others, who take UTF-8 and nothing else. */
TEST(an_error_is_utf8_whatever_went_into_it)
{
    char many[1024] = "";
    struct pl_err err;

    (void)pl_err_set(&err, PLASMON_EINVAL, "%s", "caf\xe9, \xc3\xa9 and \xe2\x82");
    ASSERT_STR(err.text, "caf?, \xc3\xa9 and ??");
    for (size_t i = 0; i < sizeof(many) - 2; i += 2) {
        memcpy(many + i, "\xc3\xa9", 3);
    }
    (void)pl_err_set(&err, PLASMON_EINVAL, "%s", many); /* room for half of the last one */
    ASSERT_EQ(strlen(err.text), sizeof(err.text) - 1);
    ASSERT_STR(err.text + sizeof(err.text) - 4, "\xc3\xa9?");
}

TEST_MAIN()
