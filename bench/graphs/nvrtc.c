/*
 * NVRTC by dlopen: five calls. Its types are an opaque pointer and an int, so no header is needed
 * and this file is built on machines without CUDA too.
 */
#include "bench/graphs/nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct nvrtc {
    int (*create)(void **program, const char *text, const char *name, int headers,
                  const char *const *sources, const char *const *names);
    int (*compile)(void *program, int option_count, const char *const *options);
    int (*log_size)(void *program, size_t *out_bytes);
    int (*log)(void *program, char *out);
    int (*image_size)(void *program, size_t *out_bytes);
    int (*image)(void *program, char *out);
    int (*destroy)(void **program);
};

/* Where a worker looks too: the loader's path, then the toolkits that the environment names. */
static void *open_library(void)
{
    static const char *const versions[] = {"13", "12"};
    const char *const roots[]           = {NULL, getenv("CUDA_HOME"), getenv("CUDA_PATH"),
                                           "/usr/local/cuda"};
    void *library                       = NULL;
    char path[512];

    for (size_t i = 0; i < PL_COUNT(versions) * PL_COUNT(roots) && library == NULL; i++) {
        const char *root    = roots[i % PL_COUNT(roots)];
        const char *version = versions[i / PL_COUNT(roots)];

        if (i % PL_COUNT(roots) == 0) {
            (void)snprintf(path, sizeof(path), "libnvrtc.so.%s", version);
        } else {
            (void)snprintf(path, sizeof(path), "%.400s/lib64/libnvrtc.so.%s",
                           root != NULL ? root : "", version);
        }
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static plasmon_status_t load(struct nvrtc *nvrtc, struct pl_err *err)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"nvrtcCreateProgram", &nvrtc->create},
        {"nvrtcCompileProgram", &nvrtc->compile},
        {"nvrtcGetProgramLogSize", &nvrtc->log_size},
        {"nvrtcGetProgramLog", &nvrtc->log},
        {"nvrtcGetCUBINSize", &nvrtc->image_size},
        {"nvrtcGetCUBIN", &nvrtc->image},
        {"nvrtcDestroyProgram", &nvrtc->destroy},
    };
    void *library = open_library();

    if (library == NULL) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "libnvrtc.so.13 and .12 were not found: install NVRTC, or set "
                          "CUDA_HOME or LD_LIBRARY_PATH");
    }
    for (size_t i = 0; i < PL_COUNT(symbols); i++) {
        void *symbol = dlsym(library, symbols[i].name);

        if (symbol == NULL) {
            return pl_err_set(err, PLASMON_ENOTSUP, "NVRTC has no %s: it is too old",
                              symbols[i].name);
        }
        memcpy(symbols[i].to, &symbol, sizeof(symbol)); /* ISO C has no such cast */
    }
    return PLASMON_OK;
}

static plasmon_status_t compile_failed(const struct nvrtc *nvrtc, void *program,
                                       struct pl_err *err)
{
    size_t bytes = 0;
    char *log    = NULL;

    if (nvrtc->log_size(program, &bytes) == 0) {
        log = pl_alloc(bytes + 1);
    }
    if (log == NULL || nvrtc->log(program, log) != 0) {
        (void)pl_err_set(err, PLASMON_ECOMPILE, "NVRTC failed, without a log");
    } else {
        (void)pl_err_set(err, PLASMON_ECOMPILE, "NVRTC: %.440s", log);
    }
    pl_free(log);
    return PLASMON_ECOMPILE;
}

plasmon_status_t graphs_nvrtc(const char *text, unsigned arch, void **out_image,
                              size_t *out_bytes, struct pl_err *err)
{
    char for_arch[48];
    const char *const options[] = {for_arch, "--std=c++17"};
    struct nvrtc nvrtc;
    void *program           = NULL;
    plasmon_status_t status = load(&nvrtc, err);

    if (status != PLASMON_OK) {
        return status;
    }
    (void)snprintf(for_arch, sizeof(for_arch), "--gpu-architecture=sm_%u", arch);
    if (nvrtc.create(&program, text, "graph.cu", 0, NULL, NULL) != 0) {
        return pl_err_set(err, PLASMON_EDEVICE, "NVRTC made no program");
    }
    if (nvrtc.compile(program, PL_COUNT(options), options) != 0) {
        status = compile_failed(&nvrtc, program, err);
    } else if (nvrtc.image_size(program, out_bytes) != 0 ||
               (*out_image = pl_alloc(*out_bytes)) == NULL ||
               nvrtc.image(program, *out_image) != 0) {
        status = pl_err_set(err, PLASMON_EDEVICE, "NVRTC gave no code for sm_%u", arch);
    }
    (void)nvrtc.destroy(&program); /* it goes with the process at the latest */
    return status;
}
