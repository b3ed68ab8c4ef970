/*
 * The enemies of `plasmon bench hostile`. Each is a thread that does one thing until it is told to
 * stop, so often a second that the question is what it costs the head to deal with it, and not who
 * gets more of the processor. They run in a process of their own (hostile_party.c).
 */
#ifndef BENCH_HOSTILE_H
#define BENCH_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/base.h"

#define HOSTILE_RATE    1000u /* connections, or bytes that dribble, a second */
#define HOSTILE_STREAMS 200u  /* calls a second, over one connection */
#define HOSTILE_HELD    500u  /* connections that stay */
#define HOSTILE_STEP_MS 10

#define HOSTILE_SESSION "/plasmon.v1.Plasmon/Session"

#define HOSTILE_ADDRESS_BYTES 96

struct hostile_field {
    char address[HOSTILE_ADDRESS_BYTES]; /* of whom it is against: unix:PATH */
    const char *token;
    atomic_bool stop; /* the enemy ends */
};

void hostile_pause(void); /* HOSTILE_STEP_MS */

/* Threads: each is one, whose user is a struct hostile_field. hostile_sockets.c */
void *hostile_flood(void *user);
void *hostile_silent(void *user);
void *hostile_dribble(void *user);
void *hostile_rubbish(void *user);
void *hostile_mute(void *user);
/* hostile_streams.c */
void *hostile_foreign(void *user);
void *hostile_giant(void *user);
void *hostile_half(void *user);

/* ---------------------------------------------------------------------- hostile_party.c */

/* The enemies' process. */
struct hostile_party {
    pid_t pid;
    int fd;
};
/* Before the first gRPC object of this process. `token` is lent for ever. */
void hostile_must_fork_party(struct hostile_party *party, const char *token);
/* One at a time. When it returns the enemy is at work; hostile_end() returns when it has ended. */
void hostile_begin(struct hostile_party *party, void *(*run)(void *user),
                   const char *address);
void hostile_end(struct hostile_party *party);
/*
 * Listeners behind which there is nothing: one closes each connection, one is a gRPC server that
 * refuses each call. Both addresses: unix:PATH.
 */
void hostile_must_fork_nobody(const char *closes, const char *refuses);

#endif
