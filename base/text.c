#include "text.h"

#include <string.h>

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
