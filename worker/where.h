/*
 * Where a worker's threads are when its main loop does not come by: in which call of the driver, of
 * NCCL, or of our own.
 *
 * SIGUSR1 asks a worker what it waits for. Its main loop answers that (describe.c), if it still
 * turns. If it stands still, the thread that gets the signal writes its own call stack to stderr,
 * so that it can be told which call does not return; tools send the signal to all threads.
 */
#ifndef WORKER_WHERE_H
#define WORKER_WHERE_H

#include <stdbool.h>

/* On the main thread, before other threads start: what the handler needs is loaded now. */
void worker_where_start(void);
/* The main loop comes by. */
void worker_where_beat(void);
/*
 * On a thread that has its signals blocked, as those of gRPC have: it may be asked, too, and so may
 * the threads that it makes from here on.
 */
void worker_where_join(void);
/* In a signal handler: if the loop stands still, writes the stack of this thread; true then. */
bool worker_where_tell(void);
/*
 * Before the process ends because something stands still: has every other thread write its stack,
 * each in a moment of 10 ms of its own. The one that holds what the loop waits for is among them.
 */
void worker_where_ask_all(void);

#endif
