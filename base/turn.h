/*
 * Turns: of the processes of a host that do something which all of them do slower at once, one at a
 * time does it.
 *
 * A turn is a name in the abstract space of Unix sockets, of one user and one network namespace. The
 * kernel gives a name to one socket, and takes it back when that is closed, however its process
 * ends: so nobody waits for who has died. It is a favour and no lock: who has waited for long, or
 * cannot ask, goes on without.
 */
#ifndef BASE_TURN_H
#define BASE_TURN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base.h"

/*
 * Waits for at most `most_ns`, and until *left. A descriptor: ours until pl_fd_close(); -1: not
 * ours. Any thread; between threads of a process, too.
 * @param name  printable, at most 60 characters.
 */
int pl_turn_take(const char *name, const atomic_bool *left, uint64_t most_ns);

#endif
