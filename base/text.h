/*
 * Texts of others, in places where a control character would do harm: a line of a log, a table on a
 * terminal.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdio.h>

/*
 * Where the first control character is: below a space, DEL, or, in UTF-8, U+0080 to U+009F.
 * `length`: there is none. Any thread.
 */
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

/*
 * `text` as it can be shown: a line end is followed by four spaces, so that no line of ours begins
 * with what somebody else wrote, a tabulator stays, and what would tell a terminal what to do is a
 * question mark. What does not fit into `bytes`, which are at least 1, is left out. `text` and
 * `out` do not overlap. Any thread.
 */
void pl_text_clean(const char *text, char *out, size_t bytes);

/* Bytes of the UTF-8 sequence at `text`, which ends with a NUL; 0: there is none. Any thread. */
size_t pl_text_utf8(const char *text);
/*
 * What is not UTF-8 becomes a question mark a byte, so that the text may go to others: what a
 * function of somebody's says need not be, nor what was cut to the room that there was. Any thread.
 */
void pl_text_mend(char *text);

/*
 * A row of --help: `left` in so many columns, then `help`, in lines of at most 100 columns that
 * begin below each other. Any thread.
 */
void pl_text_option(FILE *out, int columns, const char *left, const char *help);

#endif
