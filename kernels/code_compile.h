/* The system's compiler, for C text: see code_compile.c. */
#ifndef KERNELS_CODE_COMPILE_H
#define KERNELS_CODE_COMPILE_H

#include "base/sha256.h"
#include "kernels/code.h"

#define CODE_TRAMPOLINE      "plasmon_entry_"
#define CODE_COMPILE_OPTIONS 5

/* How the text is compiled; the other steps have no choice. */
extern const char *const code_compile_options[CODE_COMPILE_OPTIONS];
const char *code_compiler_name(void); /* PLASMON_CC, or cc */

/* Memory without a name, at a number that is in nobody's way. */
plasmon_status_t code_memory_create(const char *name, int *out_fd,
                                    struct pl_err *err) PL_MUST_CHECK;

struct code_compile_job {
    const char *name;
    const struct kernel_code_policy *policy;
    const uint8_t *key; /* under which it is kept; NULL: it is not */
};
/*
 * A library, in memory; the caller's. It is kept, if there is a key and that can be. `turn` is
 * taken: -1, or this key's. ECOMPILE (the compiler's words are in `log`), ENOLIB, EIO. Any thread.
 */
plasmon_status_t code_compile(const struct pl_str *source,
                              const struct code_compile_job *job, int turn,
                              int *out_library, struct pl_str *log,
                              struct pl_err *err) PL_MUST_CHECK;

#endif
