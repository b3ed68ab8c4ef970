/* Texts of others, in places where a control character would do harm: a line of a log, a table on a terminal. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

/* Where the first control character is: below a space, DEL, or, in UTF-8, U+0080 to U+009F. `length`: there is none. Any thread. */
static inline size_t pl_text_control(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c    = (unsigned char)text[i];
        unsigned char next = i + 1 < length ? (unsigned char)text[i + 1] : 0;

        if (c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0)) {
            return i;
        }
    }
    return length;
}

#endif
