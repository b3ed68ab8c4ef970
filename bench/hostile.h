/*
 * The enemies of `plasmon bench hostile`. Each is a thread that does one thing until it is told to stop, so often a second that the question is what
 * it costs the head to deal with it, and not who gets more of the processor.
 *
 * Threads: each function is a thread's, whose user is a struct hostile_field.
 */
#ifndef BENCH_HOSTILE_H
#define BENCH_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"

#define HOSTILE_RATE    1000u /* connections, or bytes that dribble, a second */
#define HOSTILE_STREAMS 200u  /* calls a second, over one connection */
#define HOSTILE_HELD    500u  /* connections that stay */
#define HOSTILE_STEP_MS 10

struct hostile_field {
    char address[96]; /* of the head: unix:PATH */
    const char *token;
    atomic_bool stop; /* the enemy ends */
};

void hostile_pause(void); /* HOSTILE_STEP_MS */

/* hostile_sockets.c */
void *hostile_flood(void *user);
void *hostile_silent(void *user);
void *hostile_dribble(void *user);
void *hostile_rubbish(void *user);
/* hostile_streams.c */
void *hostile_foreign(void *user);
void *hostile_giant(void *user);
void *hostile_half(void *user);

#endif
