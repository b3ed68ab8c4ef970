/* Threads of ours within programs of others. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/*
 * A thread that takes no signals, not even in its first moment: they are for the program's own. 0,
 * or the error of pthread_create(): EAGAIN is PL_THREAD_NONE_LEFT.
 */
#define PL_THREAD_NONE_LEFT                                                    \
    "no thread can be started: raise what limits them (ulimit -u, TasksMax=, " \
    "pids.max of the cgroup)"
int pl_thread_start(pthread_t *out_thread, void *(*run)(void *user), void *user);

#endif
