/* The compiler of CUDA C, found at run time. */
#ifndef BENCH_GRAPHS_NVRTC_H
#define BENCH_GRAPHS_NVRTC_H

#include "base/str.h"

/*
 * Compile `text` for sm_<arch> (90) to a cubin. ENOTSUP: there is no NVRTC here, err says what was
 * looked for; ECOMPILE: with the start of the compiler's log. *out_image is the caller's:
 * pl_free().
 */
plasmon_status_t graphs_nvrtc(const char *text, unsigned arch, void **out_image,
                              size_t *out_bytes, struct pl_err *err);

#endif
