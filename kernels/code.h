/*
 * Code of functions that clients define: built from text or a library away from the thread that
 * enqueues, then run like a built-in function.
 *
 *   build   text -> machine code. No call of a driver; takes as long as a compiler takes. Any thread.
 *   load    into the device. On a GPU it waits while a stream of the context waits: nothing may be
 *           enqueued meanwhile that waits for another device (docs/ordering.md).
 *   run     packs the parameters and enqueues. Allocates nothing, takes no lock.
 *
 * CPU devices run the C text, compiled by the system's compiler into memory without a name
 * (code_cpu.c); GPUs run CUDA text by NVRTC (code_nvrtc.c); what was compiled is kept on disk
 * (code_cache.c). Both run libraries (code_library.c).
 */
#ifndef KERNELS_CODE_H
#define KERNELS_CODE_H

#include "base/str.h"
#include "kernels/signature.h"
#include "plasmon/function.h"

struct kernel_code;

/* Texts as a client sent them; borrowed for the build. "" or NULL: none. */
struct kernel_definition {
    const char *name;
    const char *signature;
    const char *cuda_text;
    const char *c_text;
    const char *options; /* for the CUDA compiler */
    const char *entry;
    const char *library;
    const char *symbol;
};

/* What the operator allows, and where things are. Constant for a process. */
struct kernel_code_policy {
    bool c_text;             /* run C text of clients */
    const char *library_dir; /* NULL: no libraries */
    const char *cache_dir;   /* of compiled text; NULL: not kept on disk */
    uint64_t cache_bytes_max;
    /* a program whose main calls kernel_code_compile_main(); NULL: none */
    const char *compile_program;
};

/* The main function of a process that compiles C text for another one: when argv[1] is this word. */
#define CODE_COMPILE_WORD "--compile"
int kernel_code_compile_main(int argc, char **argv);

/*
 * $PLASMON_CACHE_DIR, or plasmon in $XDG_CACHE_HOME or ~/.cache. NULL: none of them is set, or
 * PLASMON_CACHE_DIR is empty, which turns the cache off.
 */
const char *kernel_code_cache_dir(char *out, size_t out_bytes);

/* What a device runs; same bits as on the wire (WIRE_RUNS_*). */
enum kernel_runs {
    KERNEL_RUNS_CUDA_TEXT = 1u << 0,
    KERNEL_RUNS_C_TEXT    = 1u << 1,
    KERNEL_RUNS_LIBRARY   = 1u << 2,
};
uint32_t kernel_code_runs(enum device_kind kind, const struct kernel_code_policy *policy);

/*
 * Which code of a library runs when this function is made: what opening its file runs, which is one
 * for all functions of that file, or (prepares) its SYMBOL_prepare. A file is told from others by
 * all that can be seen of it. 0: it is of none, or that is not there.
 */
uint64_t kernel_code_library_key(const struct kernel_definition *definition,
                                 const struct kernel_code_policy *policy, bool prepares);

/*
 * ECOMPILE (the compiler's words are in `log`), EPERM (not allowed here), ENOTSUP (no variant for
 * this kind), ENOLIB, ENOENT, EINVAL, EIO. err and, when there is more to say, log name what is
 * wrong.
 */
plasmon_status_t kernel_code_build(const struct kernel_definition *definition,
                                   const struct device_info *info,
                                   const struct kernel_code_policy *policy,
                                   struct kernel_code **out_code, struct pl_str *log,
                                   struct pl_err *err) PL_MUST_CHECK;
plasmon_status_t kernel_code_load(struct kernel_code *code, struct device *device,
                                  struct pl_err *err) PL_MUST_CHECK;
/* Is anything of it in the device, so that destroying it unloads, under the condition that loading has? */
bool kernel_code_loaded(const struct kernel_code *code);
void kernel_code_destroy(struct kernel_code *code);
/* What kernel_check() takes; lives as long as the code. */
const struct kernel_function *kernel_code_function(const struct kernel_code *code);
/* Of a function that came from kernel_code_function(). */
struct kernel_code *kernel_code_of(const struct kernel_function *function);

/*
 * Enqueue. The args were checked by kernel_check(). Zeros in *io_shape are filled in with what was
 * chosen (GPU). EINVAL: the device does not take this shape; err says the limits.
 */
plasmon_status_t kernel_code_run(const struct kernel_code *code,
                                 struct device_stream *stream,
                                 const struct kernel_arg *args, uint32_t arg_count,
                                 const union kernel_scalar *scalars, uint32_t scalar_count,
                                 struct kernel_launch_shape *io_shape, uint64_t tag,
                                 struct pl_err *err) PL_MUST_CHECK;

#endif
