/*
 * The functions that this session has defined: name -> signature and number. Guarded by the client's lock.
 *
 * A definition goes out once, in order before the calls that name it; the session sees to it that
 * it arrives, over reconnects too. Nothing is forgotten before the session ends, so what a lookup
 * gives stays.
 */
#ifndef CLIENT_FUNCTIONS_H
#define CLIENT_FUNCTIONS_H

#include "base/map.h"
#include "kernels/signature.h"
#include "wire/wire.h"

struct client_function {
    struct kernel_signature *signature;
    uint32_t id; /* from WIRE_FUNCTION_FIRST; the session's own numbers */
    uint8_t hash[WIRE_HASH_BYTES];
    struct client_function *next; /* another name with the same hash */
};

struct functions {
    struct pl_map by_name; /* hash of the name -> struct client_function */
    uint32_t count;
};

void functions_init(struct functions *functions);
void functions_finish(struct functions *functions);
const struct client_function *functions_find(const struct functions *functions,
                                             const char *name); /* NULL: none */
/* What was meant by a name that neither the session nor the catalogue has; NULL: nothing is like it. */
const char *functions_meant(const struct functions *functions, const char *name);

#endif
