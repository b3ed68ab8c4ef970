/*
 * The calling thread's error text: plasmon_error(). Kept a thread, so that two threads never see
 * each other's.
 */
#ifndef CLIENT_ERROR_H
#define CLIENT_ERROR_H

#include "base/str.h"

/* Set the text and return `status`, so that `return error_set(...)` reads well. */
plasmon_status_t error_set(plasmon_status_t status, const char *format, ...)
    PL_PRINTF(2, 3);
/* The text of `err`, or the status's own where there is none. */
plasmon_status_t error_from(const struct pl_err *err, plasmon_status_t status);
/* Put "where: " before the text. */
plasmon_status_t error_prefix(plasmon_status_t status, const char *format, ...)
    PL_PRINTF(2, 3);

#endif
