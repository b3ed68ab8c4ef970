/* Names and texts of statuses, grown from the one list in plasmon/status.h. */
#include "base.h"

#include <errno.h>

const char *pl_status_name(plasmon_status_t status)
{
    switch (status) {
#define XX(name, value, text) \
    case PLASMON_##name:      \
        return #name;
        PLASMON_STATUS_MAP(XX)
#undef XX
    }
    return "EUNKNOWN";
}

const char *pl_status_text(plasmon_status_t status)
{
    switch (status) {
#define XX(name, value, text) \
    case PLASMON_##name:      \
        return text;
        PLASMON_STATUS_MAP(XX)
#undef XX
    }
    return "unknown status (from a newer version)";
}

plasmon_status_t pl_status_from_errno(int error)
{
    switch (error) {
    case 0:
        return PLASMON_OK;
    case ENOMEM:
        return PLASMON_ENOMEM;
    case EINVAL:
    case EBADF:
        return PLASMON_EINVAL;
    case ENOENT:
        return PLASMON_ENOENT;
    case EEXIST:
        return PLASMON_EEXIST;
    case EACCES:
    case EPERM:
    case EROFS:
        return PLASMON_EPERM;
    case ENOSPC:
    case EDQUOT:
        return PLASMON_ENOSPC;
    case EMFILE:
    case ENFILE:
    case EFBIG: /* RLIMIT_FSIZE, which also bounds memory by descriptor */
        return PLASMON_ELIMIT;
    case EADDRINUSE:
        return PLASMON_EADDRINUSE;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return PLASMON_ECONNECT;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return PLASMON_ECLOSED;
    case ETIMEDOUT:
        return PLASMON_ETIMEDOUT;
    case EAGAIN:
        return PLASMON_EAGAIN;
    case ECANCELED:
        return PLASMON_ECANCELLED;
    case EOPNOTSUPP:
    case ENOSYS:
        return PLASMON_ENOTSUP;
    default:
        return PLASMON_EIO;
    }
}
