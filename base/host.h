/* Which host is this? Two processes with the same id can hand each other descriptors and share memory. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include "base.h"

#define PL_HOST_ID_BYTES 96

/* The kernel's boot id and the pid namespace: "3f1c..-..:4026531836". "unknown:<host name>" when /proc does not tell. */
const char *pl_host_id(char out[PL_HOST_ID_BYTES]);

#endif
