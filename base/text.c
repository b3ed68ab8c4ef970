#include "text.h"

#include <stdbool.h>
#include <string.h>

enum { OPTION_COLUMNS = 100 };

void pl_text_clean(const char *text, char *out, size_t bytes)
{
    size_t left = strlen(text), room = bytes - 1;

    while (left > 0 && room > 0) {
        size_t plain = pl_text_control(text, left < room ? left : room);

        memcpy(out, text, plain);
        out += plain, text += plain, left -= plain, room -= plain;
        if (left > 0 && room > 0) {
            const char *instead = *text == '\n' ? "\n    " : *text == '\t' ? "\t" : "?";
            size_t length       = strlen(instead) < room ? strlen(instead) : room;
            size_t over         = (unsigned char)*text == 0xc2 ? 2 : 1;

            memcpy(out, instead, length);
            out += length, room -= length;
            text += over, left -= over;
        }
    }
    *out = '\0';
}

/* Also none: overlong, a surrogate, above U+10FFFF. */
size_t pl_text_utf8(const char *text)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char lead         = bytes[0];
    unsigned char second       = lead != 0 ? bytes[1] : 0;
    size_t length              = lead < 0x80   ? 1
                                 : lead < 0xc2 ? 0
                                 : lead < 0xe0 ? 2
                                 : lead < 0xf0 ? 3
                                 : lead < 0xf5 ? 4
                                               : 0;

    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) { /* also ends at the NUL */
            return 0;
        }
    }
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) {
        return 0;
    }
    return length;
}

void pl_text_mend(char *text)
{
    while (*text != '\0') {
        size_t length = pl_text_utf8(text);

        if (length == 0) {
            *text  = '?';
            length = 1;
        }
        text += length;
    }
}

void pl_text_option(FILE *out, int columns, const char *left, const char *help)
{
    int begin = columns + 3, at = fprintf(out, "  %-*s ", columns, left);

    for (bool first = true; *help != '\0'; first = false) {
        int length = (int)strcspn(help, " ");

        if (!first && at + 1 + length > OPTION_COLUMNS) {
            at = fprintf(out, "\n%*s", begin, "") - 1;
        } else if (!first) {
            at += fprintf(out, " ");
        }
        at += fprintf(out, "%.*s", length, help);
        help += length;
        help += strspn(help, " ");
    }
    (void)fputc('\n', out);
}
