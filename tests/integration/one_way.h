/*
 * A relay between a Unix socket and another one that lets bytes through both ways until a text
 * passes it on the way up; from then on what that connection gets back goes nowhere, as if the
 * network had been cut behind the last word. So a test can lose the answer to a given message and
 * no other.
 *
 * Threads: it has one of its own; the calls below are for the thread that created it.
 */
#ifndef TESTS_INTEGRATION_ONE_WAY_H
#define TESTS_INTEGRATION_ONE_WAY_H

#include <stdbool.h>

struct one_way;

/*
 * Paths of sockets; the text is looked for in the first 4 KiB of what a connection sends. The test
 * fails if that cannot be.
 */
struct one_way *one_way_create(const char *from, const char *to, const char *text);
/* Has the text passed? */
bool one_way_met(const struct one_way *relay);
/* The text means nothing any more: whoever connects from now on is heard and answered. */
void one_way_mend(struct one_way *relay);
void one_way_destroy(struct one_way *relay);

#endif
