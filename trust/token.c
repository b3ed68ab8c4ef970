/* Tokens: from a file, or from the environment, out of which they are taken. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "trust/trust_int.h"

plasmon_status_t trust_secret_read(const char *what, const char *path,
                                   char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    int fd         = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t length = 0;
    plasmon_status_t status;

    out[0] = '\0';
    if (fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot read the %s %s: %s",
                          what, path, strerror(errno));
    }
    status = trust_file_private(fd, what, path, err);
    if (status == PLASMON_OK) {
        length = read(fd, out, TRUST_TOKEN_BYTES_MAX + 1);
    }
    pl_fd_close(&fd);
    if (status != PLASMON_OK) {
        return status;
    }
    if (length > 0 && length <= (ssize_t)TRUST_TOKEN_BYTES_MAX) {
        out[length]               = '\0';
        out[strcspn(out, "\r\n")] = '\0';
    }
    if (length <= 0 || length > (ssize_t)TRUST_TOKEN_BYTES_MAX || out[0] == '\0') {
        out[0] = '\0';
        return pl_err_set(
            err, PLASMON_EINVAL,
            "the %s %s must have one line of at most %u bytes, and it is "
            "%s: write a random secret into it (head -c 32 /dev/urandom | base64)",
            what, path, TRUST_TOKEN_BYTES_MAX - 1,
            length > 0 ? "longer, or begins with an empty line" : "empty");
    }
    return PLASMON_OK;
}

plasmon_status_t trust_token_take(char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    char *value   = getenv("PLASMON_TOKEN");
    size_t length = value != NULL ? strlen(value) : 0;

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
    return PLASMON_OK;
}
