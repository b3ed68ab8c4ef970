/*
 * Tokens and passwords: from a file, or from the environment, out of which they are taken.
 *
 * A token goes with each call as the value of a header, which is printable ASCII: of anything else
 * gRPC makes a call that fails for a reason nobody would look for in a file. All of a token's file
 * must be such text, and not the line that counts alone: where somebody wrote random bytes into it
 * that are not base64, the line ends at the first byte that happens to be a line feed, and what is
 * left may be so short that it can be guessed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "trust/trust_int.h"

#define LINE_ENDS "\r\n"
#define MAKE_ONE  "write a random secret into it (head -c 32 /dev/urandom | base64)"

/* --------------------------------------------------------------------- what is no token */

static bool printable(char c)
{
    return c >= ' ' && c <= '~';
}

const char *trust_token_fault(const char *token)
{
    size_t length = strlen(token);

    for (size_t i = 0; i < length; i++) {
        if (!printable(token[i])) {
            return "has other bytes than printable ASCII, which no call carries";
        }
    }
    return length > 0 && (token[0] == ' ' || token[length - 1] == ' ')
               ? "begins or ends with a space, which may be lost on the way"
               : NULL;
}

/* Of the whole file, whose first line is a secret. NULL: none. */
static const char *file_fault(const char *text, size_t length, bool token)
{
    if (memchr(text, '\0', length) != NULL) {
        return "is no text: it has a NUL";
    }
    if (strchr(LINE_ENDS, text[0]) != NULL) {
        return length > 0 ? "begins with an empty line" : "is empty";
    }
    for (size_t i = 0; token && i < length; i++) {
        if (!printable(text[i]) && strchr(LINE_ENDS "\t", text[i]) == NULL) {
            return "is no text: it has other bytes than printable ASCII";
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------------------- files */

/* Up to `bytes`, of a file or of a pipe, which gives it in pieces. -1: errno says why not. */
static ssize_t read_most(int fd, char *out, size_t bytes)
{
    size_t length = 0;
    ssize_t got   = 1;

    while (length < bytes && got > 0) {
        do {
            got = read(fd, out + length, bytes - length);
        } while (got < 0 && errno == EINTR);
        length += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? -1 : (ssize_t)length;
}

static plasmon_status_t file_read(const char *what, const char *path, char *out,
                                  ssize_t *out_length, struct pl_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    plasmon_status_t status;

    if (fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot read the %s %s: %s",
                          what, path, strerror(errno));
    }
    status = trust_file_private(fd, what, path, err);
    if (status == PLASMON_OK) {
        *out_length = read_most(fd, out, TRUST_TOKEN_BYTES_MAX + 1);
        if (*out_length < 0) {
            status = pl_err_set(err, pl_status_from_errno(errno),
                                "cannot read the %s %s: %s", what, path, strerror(errno));
        }
    }
    pl_fd_close(&fd);
    return status;
}

static plasmon_status_t line_read(const char *what, const char *path, bool token,
                                  char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    ssize_t length          = 0;
    plasmon_status_t status = file_read(what, path, out, &length, err);
    const char *fault       = "is longer";

    if (status == PLASMON_OK && length <= (ssize_t)TRUST_TOKEN_BYTES_MAX) {
        out[length] = '\0';
        fault       = file_fault(out, (size_t)length, token);

        out[strcspn(out, LINE_ENDS)] = '\0';
        if (fault == NULL && token) {
            fault = trust_token_fault(out);
        }
    }
    if (status == PLASMON_OK && fault != NULL) {
        status = pl_err_set(err, PLASMON_EINVAL,
                            "the %s %s must have one line of at most %u bytes, and it "
                            "%s: " MAKE_ONE,
                            what, path, TRUST_TOKEN_BYTES_MAX - 1, fault);
    }
    if (status != PLASMON_OK) {
        out[0] = '\0';
    }
    return status;
}

plasmon_status_t trust_secret_read(const char *what, const char *path,
                                   char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    return line_read(what, path, false, out, err);
}

plasmon_status_t trust_token_read(const char *path, char out[TRUST_TOKEN_BYTES_MAX + 1],
                                  struct pl_err *err)
{
    return line_read("token file", path, true, out, err);
}

/* ---------------------------------------------------------------------- the environment */

plasmon_status_t trust_token_take(char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    char *value       = getenv("PLASMON_TOKEN");
    size_t length     = value != NULL ? strlen(value) : 0;
    const char *fault = length > 0 ? trust_token_fault(value) : NULL;

    out[0] = '\0';
    if (length > TRUST_TOKEN_BYTES_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "PLASMON_TOKEN is longer than %u bytes",
                          TRUST_TOKEN_BYTES_MAX);
    }
    if (value != NULL) {
        memcpy(out, value, length + 1);
        memset(value, 0, length); /* /proc/PID/environ shows what is there, not what was */
        (void)unsetenv("PLASMON_TOKEN");
    }
    if (fault != NULL) {
        out[0] = '\0';
        return pl_err_set(err, PLASMON_EINVAL, "PLASMON_TOKEN %s: give a token of text",
                          fault);
    }
    return PLASMON_OK;
}
