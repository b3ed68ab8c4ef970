#include "thread.h"

#include "fault.h"

#include <errno.h>
#include <signal.h>

int pl_thread_start(pthread_t *out_thread, void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    int error;

    if (pl_fault_point("thread.start")) {
        return EAGAIN;
    }
    (void)sigfillset(&all); /* cannot fail with these arguments, nor can the other two */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(out_thread, NULL, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
