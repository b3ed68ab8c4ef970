#include "client/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plasmon/plasmon.h"

/* As long as what the head may send (WIRE_TEXT_BYTES_MAX), and room for the name of the task before it. */
static _Thread_local char error_text[4096 + 512];

plasmon_status_t error_set(plasmon_status_t status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error_text, sizeof(error_text), format, args);
    va_end(args);
    return status;
}

plasmon_status_t error_from(const struct pl_err *err, plasmon_status_t status)
{
    return error_set(status, "%s",
                     err->text[0] != '\0' ? err->text : pl_status_text(status));
}

plasmon_status_t error_prefix(plasmon_status_t status, const char *format, ...)
{
    char where[256], rest[sizeof(error_text)];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(where, sizeof(where), format, args);
    va_end(args);
    memcpy(rest, error_text, sizeof(rest));
    (void)snprintf(error_text, sizeof(error_text), "%s: %.*s", where,
                   (int)(sizeof(error_text) - sizeof(where) - 4), rest);
    return status;
}

const char *plasmon_error(const struct plasmon_client *client)
{
    (void)client; /* the text belongs to the thread, whichever client it was about */
    return error_text;
}

const char *plasmon_status_string(plasmon_status_t status)
{
    return pl_status_text(status);
}

const char *plasmon_status_name(plasmon_status_t status)
{
    return pl_status_name(status);
}

const char *plasmon_version(void)
{
    return PLASMON_VERSION_STRING;
}
