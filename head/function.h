/* What function.c keeps of a function that clients defined, and checkpoint_functions.c saves. */
#ifndef HEAD_FUNCTION_H
#define HEAD_FUNCTION_H

#include "head/client.h"

enum { HEAD_FUNCTION_KINDS = 2 }; /* of devices: 1 CPU, 2 CUDA */

/* What devices of one kind made of it: the first that told. */
struct head_verdict {
    bool known;
    plasmon_status_t status;
    char *text;
};

struct head_function_waiter {
    uint64_t session;
    uint64_t request;
};

struct head_function {
    uint32_t id;
    uint32_t sessions; /* that defined it; 0: retired, once it was used .. */
    /* .. and none of these, of calls that may be run again (lineage.c), is left */
    uint32_t records;
    bool used;
    uint64_t retired; /* order of the last launch that may need it, once retired */
    uint32_t needs;   /* WIRE_RUNS_*: what a device must run to be of use */
    uint8_t hash[WIRE_HASH_BYTES];
    char *name;
    struct head_bytes define; /* an encoded FunctionDefine, with our id */
    struct head_verdict verdict[HEAD_FUNCTION_KINDS];
    struct pl_vec waiters; /* struct head_function_waiter */
    struct pl_list link;
};

/* Nobody can call it any more. */
bool head_function_retired(const struct head_function *function);

#endif
