/*
 * Whatever text goes in, a JSON string comes out: quoted, no control characters, every backslash a
 * known escape.
 */
#include "base/str.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Length of the escape at `at`, which begins with a backslash. */
static size_t escape_length(const char *at)
{
    if (at[1] == 'u') {
        PL_CHECK(strspn(at + 2, "0123456789abcdef") >= 4);
        return 6;
    }
    PL_CHECK(at[1] != '\0' && strchr("\"\\nrt", at[1]) != NULL);
    return 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pl_str in, out;
    const char *at;

    pl_str_init(&in);
    pl_str_init(&out);
    pl_str_append(&in, "%.*s", (int)size,
                  (const char *)data); /* ends at a NUL in the data */
    pl_str_append_json(&out, pl_str_text(&in));

    at = pl_str_text(&out);
    PL_CHECK(*at == '"' && out.length >= 2);
    for (at++; *at != '"';) {
        PL_CHECK((unsigned char)*at >= 0x20);
        at += *at == '\\' ? escape_length(at) : 1;
    }
    /* the quote that ends it is the last character */
    PL_CHECK(at == out.text + out.length - 1);
    pl_str_finish(&in);
    pl_str_finish(&out);
    return 0;
}
