/* Growable text. After an allocation failure appends do nothing and pl_str_text() gives what there is. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base.h"

struct pl_str {
    char *text; /* NUL-terminated once anything was appended */
    size_t length;
    size_t capacity;
    int failed; /* an allocation failed: the text is cut from there on */
};

void pl_str_init(struct pl_str *str);
void pl_str_finish(struct pl_str *str);
void pl_str_append(struct pl_str *str, const char *format, ...) PL_PRINTF(2, 3);
const char *pl_str_text(const struct pl_str *str); /* "" when empty */
/* JSON string literal, quotes included. */
void pl_str_append_json(struct pl_str *str, const char *text);
/* "1.5 GiB" into out[32]. */
const char *pl_format_bytes(uint64_t bytes, char out[32]);

/* An error with its text: what was wrong, where, what to do. Fixed size, lives on the stack. */
struct pl_err {
    plasmon_status_t status;
    char text[480];
};
/* None yet. Where each task passes: what {0} sets besides is half a kilobyte. */
static inline void pl_err_init(struct pl_err *err)
{
    err->status  = PLASMON_OK;
    err->text[0] = '\0';
}
/*
 * Sets both and returns `status`, so that `return pl_err_set(err, PLASMON_ESHAPE, "...")` reads
 * well. err may be NULL.
 */
plasmon_status_t pl_err_set(struct pl_err *err, plasmon_status_t status, const char *format,
                            ...) PL_PRINTF(3, 4);

#endif
