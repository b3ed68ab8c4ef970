/* Messages of a host's control sockets: are they of our version? See control.h. */
#include "store/control.h"

#include <stdbool.h>

enum { VERSIONS = 1 << 16 };

plasmon_status_t store_control_check(const struct store_control *message, size_t bytes,
                                     bool cut, struct pl_err *err)
{
    bool versioned = (cut || bytes >= sizeof(message->version)) &&
                     message->version < VERSIONS; /* else it is no message of anybody's */

    if (versioned && message->version != STORE_CONTROL_VERSION) {
        return pl_err_set(
            err, PLASMON_EVERSION,
            "the other side speaks version %u of the protocol within a host, "
            "and we speak %u: all programs of a cluster must be of one release",
            message->version, STORE_CONTROL_VERSION);
    }
    if (cut) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "message longer than %zu bytes or with more descriptors than "
                          "belong to it",
                          sizeof(*message));
    }
    if (bytes != sizeof(*message)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "message of %zu bytes instead of %zu",
                          bytes, sizeof(*message));
    }
    return PLASMON_OK;
}
