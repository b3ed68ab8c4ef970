/*
 * A relay: listens on a Unix socket and passes bytes on to another one, both ways, until it is told
 * to break that. What stands between a head and a store with its workers that are started with the
 * relay's address; so a network between them can be made to fail without namespaces and without
 * privileges.
 *
 *   PASS   passes on what comes
 *   DROP   every connection is reset, and so is every new one
 *   HOLD   connections stay, new ones are taken, and no byte goes on; all of them do afterwards
 *
 * Threads: it has one of its own; the calls below are for the thread that created it.
 */
#ifndef BENCH_CHAOS_RELAY_H
#define BENCH_CHAOS_RELAY_H

#include <stdbool.h>

#include "base/base.h"

struct chaos_relay;

enum chaos_relay_mode { CHAOS_RELAY_PASS, CHAOS_RELAY_DROP, CHAOS_RELAY_HOLD };

/* Paths of sockets; `to` need not listen yet: who connects meanwhile is reset. NULL: errno says why. */
struct chaos_relay *chaos_relay_create(const char *from, const char *to);
/* Returns when the mode holds: after DROP no connection is left. */
void chaos_relay_set(struct chaos_relay *relay, enum chaos_relay_mode mode);
/* NULL is fine. */
void chaos_relay_destroy(struct chaos_relay *relay);

#endif
