/*
 * Start and end of gRPC in this process. Its threads are born with every signal blocked, so that signals go to the threads
 * that wait for them; its log becomes ours, at debug: the errors it writes there are what it also reports by status.
 */
#include "rpc/grpc_int.h"

#include <signal.h>

#include "base/log.h"

static void init_log(gpr_log_func_args *args)
{
    pl_debug("grpc", "%s", args->message);
}

void rpc_init(void)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    gpr_set_log_function(init_log);
    trust_init();
    grpc_init();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void rpc_finish(void)
{
    grpc_shutdown();
}
