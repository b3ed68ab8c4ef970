/* Inside of defined functions: what code.c shares with those that build code. */
#ifndef KERNELS_CODE_INT_H
#define KERNELS_CODE_INT_H

#include "base/sha256.h"
#include "kernels/code.h"
#include "kernels/kernel_int.h"

/* C text behind its trampoline: parameters by address, as a CUDA launch takes them. */
typedef int (*code_c_fn)(void *const *params, const struct plasmon_launch_shape *shape);

struct kernel_code {
    struct kernel_signature *signature;
    enum device_kind kind;
    uint32_t ordinal;

    /* C text and libraries. */
    /*
     * of the memory that a compiled text is in; it stays open, for dlopen() knows libraries by
     * path; -1: none
     */
    int fd;
    void *library;
    code_c_fn c_entry;
    plasmon_function_fn entry;
    plasmon_function_fn prepare;

    /* CUDA text. */
    void *image; /* cubin or PTX, until it is loaded */
    size_t image_bytes;
    char *symbol; /* of the kernel in it */
    struct device_module *module;
    void *function;
    struct device_function_limits limits;
    /*
     * The block for a call with dynamic shared memory, and how much: the last one asked for. By the
     * thread that launches.
     */
    struct code_suggested {
        uint32_t shared_bytes;
        uint32_t block;
    } * suggested;
    uint32_t multiprocessors;
};

/* The name that the entry point has in the text. */
static inline const char *code_entry_name(const struct kernel_definition *definition)
{
    return definition->entry != NULL && definition->entry[0] != '\0' ? definition->entry
                                                                     : definition->name;
}
static inline bool code_has(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* code_cpu.c */
plasmon_status_t code_build_c(struct kernel_code *code,
                              const struct kernel_definition *definition,
                              const struct kernel_code_policy *policy, struct pl_str *log,
                              struct pl_err *err);
/*
 * code_c_key.c: C or CUDA text reads no file but headers of the system: what it is compiled to is
 * known from the text. assembler: it may be asked to read some.
 */
bool code_text_alone(const char *text, bool assembler);
/*
 * The same file: a name for what compiling `source`, which has `text` in it, gives here. false: it
 * depends on what is not known before, so it is not to be kept.
 */
bool code_c_key(const char *text, const char *source, const char *cc,
                const char *const *options, size_t option_count,
                uint8_t out[PL_SHA256_BYTES]);
/* code_nvrtc.c */
plasmon_status_t code_build_cuda(struct kernel_code *code,
                                 const struct kernel_definition *definition,
                                 const struct device_info *info,
                                 const struct kernel_code_policy *policy,
                                 struct pl_str *log, struct pl_err *err);
/*
 * Where a library of the toolkit may lie, of the newest major version first: in `root` (NULL:
 * none), where the loader looks (try_one gets NULL), in $CUDA_HOME, $CUDA_PATH and /usr/local/cuda.
 * Until try_one takes one; false: it took none.
 */
bool code_toolkit_search(const char *root,
                         bool (*try_one)(const char *root, const char *version));
/*
 * code_early.c: kernels that may begin while the one before them still runs. Any thread.
 *
 * code_early_options() says whether text that is compiled with these options may be made one;
 * code_early_ptx() edits PTX (NULL: it is left as it is, or there is no memory; the caller frees
 * it); code_early_image() makes machine code for compute capability `arch` (90) of it, in place of
 * `given` (false: it is left as it is, and nothing was made; the caller frees the image). Before
 * that code_early_ready() must have found the library, in `root` (NULL: none) or elsewhere, and
 * says its version.
 */
bool code_early_options(const char *options);
char *code_early_ptx(const char *ptx);
bool code_early_ready(const char *root, unsigned *out_major, unsigned *out_minor);
bool code_early_image(const char *ptx, unsigned arch, const void *given, size_t given_bytes,
                      void **out_image, size_t *out_bytes);
/* The functions that machine code consists of: kernels, and what they call. 0: it is none. */
uint32_t code_early_functions(const void *image, size_t bytes);
/*
 * code_params.c: does the kernel `symbol` of this PTX take what the signature gives? ECOMPILE: err
 * names the parameter. `entry` is its name in the text. PTX that is not understood is no failure.
 */
plasmon_status_t code_params_check(const char *ptx, const char *symbol,
                                   const struct kernel_signature *signature,
                                   const char *entry, struct pl_err *err);
/* code_library.c */
plasmon_status_t code_build_library(struct kernel_code *code,
                                    const struct kernel_definition *definition,
                                    const struct kernel_code_policy *policy,
                                    struct pl_err *err);
plasmon_status_t code_library_call(const struct kernel_code *code, plasmon_function_fn fn,
                                   void *stream, const struct kernel_arg *args,
                                   uint32_t arg_count, const union kernel_scalar *scalars,
                                   uint32_t scalar_count,
                                   const struct kernel_launch_shape *shape,
                                   struct pl_err *err);

#endif
