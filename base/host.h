/*
 * What is told of the host. Which one is this? Two processes with the same id can hand each other
 * descriptors and share memory.
 */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include "base.h"

#include <stdbool.h>
#include <stddef.h>

/* Drawn by the kernel when it boots. false, and "": /proc does not tell. */
#define PL_BOOT_ID_BYTES 64
bool pl_boot_id(char out[PL_BOOT_ID_BYTES]);

#define PL_HOST_ID_BYTES 96

/*
 * The kernel's boot id and the pid namespace: "3f1c..-..:4026531836". "unknown:<host name>" when
 * /proc does not tell. ELIMIT, ENOMEM: there is nothing left to look with.
 */
plasmon_status_t pl_host_id(char out[PL_HOST_ID_BYTES]) PL_MUST_CHECK;

/* Who listens at "unix:/path" or "host:port" is reached from this machine only. */
bool pl_address_is_local(const char *address);

/* of a socket there the whole path has 108 bytes: 30 are for its name */
#define PL_RUNTIME_FOLDER_BYTES 78

/*
 * The folder of this user's sockets, logs and records, which may not be there yet:
 * $XDG_RUNTIME_DIR/plasmon-UID, or /tmp/plasmon-UID where that is not set, or cannot be used. Of
 * the last of these `why` says what is wrong with it, and what is used instead; "" otherwise.
 */
void pl_runtime_folder(char out[PL_RUNTIME_FOLDER_BYTES], char *why, size_t why_bytes);

#endif
