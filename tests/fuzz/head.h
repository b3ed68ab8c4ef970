/*
 * A head without its sockets, at which a store, its two workers and a client of its host are
 * welcome: where a fuzzer begins.
 */
#ifndef TESTS_FUZZ_HEAD_H
#define TESTS_FUZZ_HEAD_H

#include "tests/harness/lone_machine.h"

struct fuzz_head {
    struct head_machine *machine;
    uint64_t session; /* the client's */
    uint32_t device;  /* the last worker's */
    uint64_t now_ms;
    struct lone_machine lone;
};

/* In whatever it was before. The machine is the caller's to destroy. */
void fuzz_head_begin(struct fuzz_head *head);
/* An input, which is taken or refused with a reason. out: may be NULL. */
plasmon_status_t fuzz_head_tell(struct fuzz_head *head, const struct head_input *input,
                                struct head_outcome *out);

#endif
