/*
 * Start and end of gRPC in this process. Its threads are born with every signal blocked, so that
 * signals go to the threads that wait for them; its log becomes ours, at debug: the errors it
 * writes there are what it also reports by status.
 */
#include "rpc/grpc_int.h"

#include <signal.h>

#include "base/log.h"

static void init_log(gpr_log_func_args *args)
{
    pl_debug("grpc", "%s", args->message);
}

/*
 * Abseil built without NDEBUG keeps a graph of all its locks, under a lock of the process, and
 * looks into it at each one. That is for those who look for mistakes in gRPC, and costs a fifth of
 * what a message does.
 */
#ifdef RPC_ABSL_DEADLOCK
void rpc_absl_detect_deadlocks(int mode) __asm__(RPC_ABSL_DEADLOCK);
#define ABSL_IGNORE 0 /* absl::OnDeadlockCycle::kIgnore */
#endif

static void init_locks(void)
{
#ifdef RPC_ABSL_DEADLOCK
    rpc_absl_detect_deadlocks(ABSL_IGNORE);
#endif
}

void rpc_init(void)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    gpr_set_log_function(init_log);
    init_locks();
    trust_init();
    rpc_events_init();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void rpc_finish(void)
{
    rpc_events_finish();
}

bool rpc_inherited(void)
{
    return rpc_events_inherited();
}
