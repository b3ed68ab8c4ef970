/*
 * Waiting without falling asleep at once. A processor that has had nothing to do for a few hundred
 * microseconds is put to sleep, on virtual machines by the host: whoever wakes a thread there waits
 * 100 to 200 us, and a result passes three such threads on its way from the device to the client.
 * So a thread whose last event was a moment ago waits in short pauses, in which its processor stays
 * awake, and only then sleeps until it is woken. Who waits for messages is woken in a pause as well
 * (rpc/loop_grpc.c).
 *
 * WITH MANY THINGS UNDER WAY nobody waits for the next event alone, and who looks at once handles
 * them one by one: frames become small, and each costs a system call and locks at both ends. So
 * then the first look is only after a pause, in which more comes.
 *
 * How long a moment is: PLASMON_LINGER_MS in the environment (0 to 1000; 0: sleep at once). By
 * default 16 ms where the process may use 8 processors or more, 0 otherwise: on a small machine
 * others need the time.
 */
#ifndef BASE_LINGER_H
#define BASE_LINGER_H

#include <stdbool.h>

#include "base/lock.h"

/* Pauses between looks: none until `at_once_ns` have been waited, then a 32nd of what has, within bounds. */
struct pl_pauses {
    uint64_t at_once_ns;
    uint64_t min_ns;
    uint64_t max_ns;
};
uint64_t pl_pause_ns(const struct pl_pauses *of, uint64_t waited_ns);
/*
 * What comes again after as long as lately is looked for at that time: a 32nd of it before and
 * behind, the pause is a 256th of it, which is 16 looks.
 */
#define PL_RECENT_WAITS 4
struct pl_recent {
    uint64_t last_ns[PL_RECENT_WAITS]; /* lengths of long waits; 0: none yet */
    uint32_t last;                     /* the one that was kept longest ago */
};
uint64_t pl_recent_pause_ns(const struct pl_recent *recent, const struct pl_pauses *of,
                            uint64_t waited_ns);
/* A wait is over after so long. */
void pl_recent_learn(struct pl_recent *recent, uint64_t waited_ns);
/*
 * This thread's pauses are as short as they are asked to be (the system's default lets them be 50
 * us longer).
 */
void pl_pauses_exact(void);

/* 0: never linger. Read once. */
uint64_t pl_linger_ns(void);
/* More tasks than this are many. */
#define PL_LINGER_MANY 64u
/*
 * How long to pause `waited_ns` after the last event: 0 (look again at once), then a 32nd of it, 5
 * to 50 us; never less than 20 us with many things under way.
 */
uint64_t pl_linger_pause_ns(uint64_t waited_ns, bool many);
/*
 * The same, but shorter at the time of recent waits; with many things under way something comes at
 * any time.
 */
uint64_t pl_linger_recent_ns(const struct pl_recent *recent, uint64_t waited_ns, bool many);
void pl_linger_pause(const struct pl_recent *recent, uint64_t waited_ns, bool many);
/* For a thread that will: its pauses are exact. */
void pl_linger_thread(void);
/*
 * As pl_cond_wait_until(), by a thread that began to wait at `began_ns`; `deadline_ns` UINT64_MAX:
 * for ever. 0 only when the deadline has passed; otherwise signalled, or time to look.
 */
int pl_linger_cond_wait(struct pl_cond *cond, struct pl_mutex *mutex, uint64_t began_ns,
                        uint64_t deadline_ns);

#endif
