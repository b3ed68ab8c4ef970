/* The examples of FIPS 180-4, and lengths around the padding. */
#include "base/sha256.h"

#include "tests/harness/test.h"

#include <string.h>

static const char *digest(const void *data, size_t bytes, size_t step, char out[65])
{
    struct pl_sha256 sha;
    uint8_t hash[PL_SHA256_BYTES];

    pl_sha256_init(&sha);
    for (size_t at = 0; at < bytes; at += step) {
        pl_sha256_add(&sha, (const char *)data + at, bytes - at < step ? bytes - at : step);
    }
    pl_sha256_finish(&sha, hash);
    pl_sha256_hex(hash, out);
    return out;
}

TEST(examples_of_the_standard)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char out[65];

    ASSERT_STR(digest("", 0, 1, out),
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    ASSERT_STR(digest("abc", 3, 3, out),
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ASSERT_STR(digest(two, strlen(two), 7, out),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(a_million_letters)
{
    static char text[1000000];
    char out[65];

    memset(text, 'a', sizeof(text));
    ASSERT_STR(digest(text, sizeof(text), 977, out),
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(how_it_is_cut_does_not_matter_at_any_length_around_a_block)
{
    char text[130], a[65], b[65];

    memset(text, 'x', sizeof(text));
    for (size_t bytes = 54; bytes <= 130; bytes++) {
        ASSERT_STR(digest(text, bytes, 1, a), digest(text, bytes, bytes, b));
    }
}

TEST(fields_cannot_be_cut_up_in_two_ways)
{
    struct pl_sha256 a, b;
    uint8_t hash_a[PL_SHA256_BYTES], hash_b[PL_SHA256_BYTES];

    pl_sha256_init(&a);
    pl_sha256_add_field(&a, "ab", 2);
    pl_sha256_add_field(&a, "c", 1);
    pl_sha256_finish(&a, hash_a);
    pl_sha256_init(&b);
    pl_sha256_add_field(&b, "a", 1);
    pl_sha256_add_field(&b, "bc", 2);
    pl_sha256_finish(&b, hash_b);
    ASSERT_TRUE(memcmp(hash_a, hash_b, sizeof(hash_a)) != 0);
}

/* RFC 4231, test cases 2 and 6: a short key, and one that is longer than a block. */
TEST(codes_of_who_has_the_key_are_those_of_the_standard)
{
    static const char text[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t code[PL_SHA256_BYTES], key[131];
    char hex[2 * PL_SHA256_BYTES + 1];

    pl_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, code);
    pl_sha256_hex(code, hex);
    ASSERT_STR(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof(key));
    pl_hmac_sha256(key, sizeof(key), text, sizeof(text) - 1, code);
    pl_sha256_hex(code, hex);
    ASSERT_STR(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_MAIN()
