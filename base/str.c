#include "str.h"

#include "alloc.h"
#include "text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STR_CAPACITY_MIN 64

void pl_str_init(struct pl_str *str)
{
    *str = (struct pl_str){0};
}

void pl_str_finish(struct pl_str *str)
{
    pl_free(str->text);
    *str = (struct pl_str){0};
}

const char *pl_str_text(const struct pl_str *str)
{
    return str->text != NULL ? str->text : "";
}

/* Make room for `bytes` more and the NUL. 0: there is none, and from now on never will be. */
static int str_reserve(struct pl_str *str, size_t bytes)
{
    size_t capacity = str->capacity > 0 ? str->capacity : STR_CAPACITY_MIN;
    size_t needed;
    char *text;

    if (str->failed) {
        return 0;
    }
    if (__builtin_add_overflow(str->length, bytes, &needed) || needed > SIZE_MAX / 4) {
        str->failed = 1;
        return 0;
    }
    needed++;
    if (needed <= str->capacity) {
        return 1;
    }

    while (capacity < needed) {
        capacity *= 2;
    }
    text = pl_realloc(str->text, str->capacity, capacity);
    if (text == NULL) {
        str->failed = 1;
        return 0;
    }
    str->text     = text;
    str->capacity = capacity;
    return 1;
}

static void str_append_bytes(struct pl_str *str, const char *bytes, size_t count)
{
    if (!str_reserve(str, count)) {
        return;
    }
    memcpy(str->text + str->length, bytes, count);
    str->length += count;
    str->text[str->length] = '\0';
}

void pl_str_append(struct pl_str *str, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(length >= 0);

    if (!str_reserve(str, (size_t)length)) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(str->text + str->length, (size_t)length + 1, format,
                    arguments); /* measured above */
    va_end(arguments);
    str->length += (size_t)length;
}

static void str_append_json_char(struct pl_str *str, const unsigned char *text,
                                 size_t length)
{
    switch (*text) {
    case '"':
        str_append_bytes(str, "\\\"", 2);
        break;
    case '\\':
        str_append_bytes(str, "\\\\", 2);
        break;
    case '\n':
        str_append_bytes(str, "\\n", 2);
        break;
    case '\r':
        str_append_bytes(str, "\\r", 2);
        break;
    case '\t':
        str_append_bytes(str, "\\t", 2);
        break;
    default:
        if (*text < 0x20) {
            pl_str_append(str, "\\u%04x", *text);
        } else {
            str_append_bytes(str, (const char *)text, length);
        }
    }
}

void pl_str_append_json(struct pl_str *str, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    str_append_bytes(str, "\"", 1);
    while (*at != '\0') {
        size_t length = pl_text_utf8((const char *)at);

        if (length == 0) { /* not UTF-8, which JSON must be: the replacement character */
            str_append_bytes(str, "\\ufffd", 6);
            at++;
        } else {
            str_append_json_char(str, at, length);
            at += length;
        }
    }
    str_append_bytes(str, "\"", 1);
}

const char *pl_format_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value                     = (double)bytes;
    size_t unit                      = 0;

    /* 1023.95 would be printed as 1024.0. */
    while (value >= 1023.95 && unit + 1 < PL_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(out, 32, "%u B", (unsigned)bytes);
    } else {
        (void)snprintf(out, 32, "%.1f %s", value, units[unit]);
    }
    return out;
}

plasmon_status_t pl_err_set(struct pl_err *err, plasmon_status_t status, const char *format,
                            ...)
{
    va_list arguments;

    if (err != NULL) {
        err->status = status;
        va_start(arguments, format);
        (void)vsnprintf(err->text, sizeof(err->text), format,
                        arguments); /* too long: cut */
        va_end(arguments);
        pl_text_mend(err->text);
    }
    return status;
}
