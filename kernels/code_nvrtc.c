/*
 * CUDA text to machine code, by NVRTC. It needs no GPU and calls no driver, so it runs beside
 * everything else.
 *
 * The library is found like cuBLAS (device/cuda/blas.c): where the loader looks, then $CUDA_HOME,
 * $CUDA_PATH, /usr/local/cuda. Its few functions are declared here, since a build without CUDA's
 * headers still compiles this file. One compilation at a time a process.
 */
#include "kernels/code_int.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernels/code_cache.h"

#define OPTIONS_MAX   64
#define LOG_BYTES_MAX 3500 /* as for C */
#define VERSION_MIN   12

typedef struct nvrtc_program *nvrtc_program_t;

struct nvrtc {
    void *library;
    int major;
    int minor;
    char root[300];    /* of the toolkit; "": where the loader looks */
    char include[400]; /* "--include-path=..", or "" */
    const char *(*error_string)(int result);
    int (*version)(int *major, int *minor);
    int (*arch_count)(int *count);
    int (*archs)(int *archs);
    int (*create)(nvrtc_program_t *program, const char *text, const char *name,
                  int header_count, const char *const *headers,
                  const char *const *header_names);
    int (*destroy)(nvrtc_program_t *program);
    int (*compile)(nvrtc_program_t program, int option_count, const char *const *options);
    int (*log_bytes)(nvrtc_program_t program, size_t *bytes);
    int (*log)(nvrtc_program_t program, char *log);
    int (*cubin_bytes)(nvrtc_program_t program, size_t *bytes);
    int (*cubin)(nvrtc_program_t program, char *cubin);
    int (*ptx_bytes)(nvrtc_program_t program, size_t *bytes);
    int (*ptx)(nvrtc_program_t program, char *ptx);
    int (*add_name)(nvrtc_program_t program, const char *expression);
    int (*lowered_name)(nvrtc_program_t program, const char *expression,
                        const char **lowered);
};

/* Set by nvrtc_open(), once a process. */
static struct nvrtc nvrtc;
static struct pl_err nvrtc_missing; /* when nvrtc.library is NULL */
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;

/* -------------------------------------------------------------------------- the library */

static bool functions_find(struct nvrtc *found)
{
    const struct {
        void *member;
        const char *name;
    } functions[] = {
        {&found->error_string, "nvrtcGetErrorString"},
        {&found->version, "nvrtcVersion"},
        {&found->arch_count, "nvrtcGetNumSupportedArchs"},
        {&found->archs, "nvrtcGetSupportedArchs"},
        {&found->create, "nvrtcCreateProgram"},
        {&found->destroy, "nvrtcDestroyProgram"},
        {&found->compile, "nvrtcCompileProgram"},
        {&found->log_bytes, "nvrtcGetProgramLogSize"},
        {&found->log, "nvrtcGetProgramLog"},
        {&found->cubin_bytes, "nvrtcGetCUBINSize"},
        {&found->cubin, "nvrtcGetCUBIN"},
        {&found->ptx_bytes, "nvrtcGetPTXSize"},
        {&found->ptx, "nvrtcGetPTX"},
        {&found->add_name, "nvrtcAddNameExpression"},
        {&found->lowered_name, "nvrtcGetLoweredName"},
    };

    for (size_t i = 0; i < PL_COUNT(functions); i++) {
        void *symbol = dlsym(found->library, functions[i].name);

        if (symbol == NULL) {
            (void)pl_err_set(&nvrtc_missing, PLASMON_ENOLIB, "NVRTC has no %s",
                             functions[i].name);
            return false;
        }
        memcpy(functions[i].member, &symbol, sizeof(symbol));
    }
    return true;
}

/* A library that is there and does not fit says more than one that is not there. */
static bool nvrtc_try(const char *root, const char *version)
{
    struct nvrtc found = {.library = NULL};
    char path[512];

    if (root == NULL) {
        (void)snprintf(path, sizeof(path), "libnvrtc.so.%s", version);
    } else if (strlen(root) < 300) {
        (void)snprintf(path, sizeof(path), "%s/lib64/libnvrtc.so.%s", root, version);
        (void)snprintf(found.root, sizeof(found.root), "%s", root);
        (void)snprintf(found.include, sizeof(found.include), "--include-path=%s/include",
                       root);
    } else {
        return false;
    }
    found.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (found.library == NULL || !functions_find(&found)) {
        return false;
    }
    if (found.version(&found.major, &found.minor) != 0 || found.major < VERSION_MIN) {
        (void)pl_err_set(&nvrtc_missing, PLASMON_EVERSION,
                         "%s is NVRTC %d.%d; %d.0 or newer is needed", path, found.major,
                         found.minor, VERSION_MIN);
        return false;
    }
    nvrtc = found;
    return true;
}

bool code_toolkit_search(const char *root,
                         bool (*try_one)(const char *root, const char *version))
{
    static const char *const versions[] = {"13", "12"};
    const char *roots[] = {root, NULL, getenv("CUDA_HOME"), getenv("CUDA_PATH"),
                           "/usr/local/cuda"};
    enum { LOADER = 1 };

    for (size_t v = 0; v < PL_COUNT(versions); v++) {
        for (size_t i = 0; i < PL_COUNT(roots); i++) {
            if ((i == LOADER || roots[i] != NULL) && try_one(roots[i], versions[v])) {
                return true;
            }
        }
    }
    return false;
}

static void nvrtc_open(void)
{
    (void)pl_err_set(&nvrtc_missing, PLASMON_ENOLIB,
                     "libnvrtc.so.13 or .12 not found: install NVRTC, or set CUDA_HOME or "
                     "LD_LIBRARY_PATH where the worker runs");
    (void)code_toolkit_search(NULL, nvrtc_try); /* nvrtc says what came of it */
    if (nvrtc.library != NULL && nvrtc.include[0] == '\0') { /* found by the loader */
        const char *root = getenv("CUDA_HOME");

        (void)snprintf(nvrtc.include, sizeof(nvrtc.include),
                       "--include-path=%.300s/include",
                       root != NULL ? root : "/usr/local/cuda");
    }
}

/* ------------------------------------------------------------------ what to compile for */

/*
 * The device's own architecture gives machine code; an NVRTC that is older than the device gives
 * PTX of its newest, for the driver.
 */
struct target {
    char option[48];
    bool ptx;
    unsigned arch;
    bool early; /* its kernels may begin early (code_early.c) */
    unsigned linker_major, linker_minor;
};

static plasmon_status_t target_choose(const struct device_info *info, struct target *out,
                                      struct pl_err *err)
{
    int want  = (int)(info->compute_major * 10 + info->compute_minor);
    int best  = 0;
    int count = 0;
    int archs[128];

    if (nvrtc.arch_count(&count) != 0 || count <= 0 || count > (int)PL_COUNT(archs) ||
        nvrtc.archs(archs) != 0) {
        return pl_err_set(err, PLASMON_ENOLIB, "NVRTC does not say what it compiles for");
    }
    for (int i = 0; i < count; i++) {
        if (archs[i] <= want && archs[i] > best) {
            best = archs[i];
        }
    }
    if (best == 0) {
        return pl_err_set(err, PLASMON_ENOTSUP,
                          "NVRTC %d.%d compiles for no device as old as this (%d.%d)",
                          nvrtc.major, nvrtc.minor, (int)info->compute_major,
                          (int)info->compute_minor);
    }
    out->ptx  = best != want;
    out->arch = (unsigned)best;
    (void)snprintf(out->option, sizeof(out->option), "--gpu-architecture=%s_%d",
                   out->ptx ? "compute" : "sm", best);
    return PLASMON_OK;
}

/* Of what this device can, and these options do not speak against. */
static void early_choose(const struct device_info *info, const char *options,
                         struct target *target)
{
    target->early = info->early_start && !target->ptx && code_early_options(options) &&
                    code_early_ready(nvrtc.root[0] != '\0' ? nvrtc.root : NULL,
                                     &target->linker_major, &target->linker_minor);
}

/* Options that name no files: of a folder with headers we do not know what is in there. */
static bool options_alone(const char *options)
{
    return strstr(options, "-I") == NULL && strstr(options, "include") == NULL &&
           strstr(options, "-optf") == NULL && strstr(options, "options-file") == NULL;
}

/* false: it depends on files, which may be others when it is compiled again, so it is not to be kept. */
static bool cache_key(const struct kernel_definition *definition,
                      const struct target *target, uint8_t out[PL_SHA256_BYTES])
{
    const char *entry = code_entry_name(definition);
    struct pl_sha256 sha;

    if (!code_text_alone(definition->cuda_text, false) ||
        !options_alone(definition->options)) {
        return false;
    }
    pl_sha256_init(&sha);
    pl_sha256_add_field(&sha, "CUDA text 2", 11); /* of this way to compile */
    pl_sha256_add_field(&sha, definition->cuda_text, strlen(definition->cuda_text));
    /* What is kept is known to take what its signature gives. */
    pl_sha256_add_field(&sha, definition->signature, strlen(definition->signature));
    pl_sha256_add_field(&sha, definition->options, strlen(definition->options));
    pl_sha256_add_field(&sha, entry, strlen(entry));
    pl_sha256_add_field(&sha, target->option, strlen(target->option));
    pl_sha256_add_field(&sha, &nvrtc.major, sizeof(nvrtc.major));
    pl_sha256_add_field(&sha, &nvrtc.minor, sizeof(nvrtc.minor));
    if (target->early) {
        pl_sha256_add_field(&sha, "early 3", 7); /* of this way to edit */
        pl_sha256_add_field(&sha, &target->linker_major, sizeof(target->linker_major));
        pl_sha256_add_field(&sha, &target->linker_minor, sizeof(target->linker_minor));
    }
    pl_sha256_finish(&sha, out);
    return true;
}

/* ---------------------------------------------------------------------------- compiling */

/* Ours first, so that the caller's win. Spaces separate. `copy` is cut up. */
static plasmon_status_t options_split(char *copy, const struct target *target,
                                      const char *options[OPTIONS_MAX], int *out_count,
                                      struct pl_err *err)
{
    char *rest = NULL;
    int count  = 0;

    options[count++] = target->option;
    options[count++] = "--std=c++17";
    options[count++] = nvrtc.include;
    for (char *option = strtok_r(copy, " \t\n", &rest); option != NULL;
         option       = strtok_r(NULL, " \t\n", &rest)) {
        if (count == OPTIONS_MAX) {
            return pl_err_set(err, PLASMON_ELIMIT, "over %d options for the compiler",
                              OPTIONS_MAX);
        }
        options[count++] = option;
    }
    *out_count = count;
    return PLASMON_OK;
}

static void log_take(nvrtc_program_t program, struct pl_str *log)
{
    size_t bytes = 0;
    char *text;

    if (nvrtc.log_bytes(program, &bytes) != 0 || bytes <= 1) {
        return;
    }
    text = pl_alloc(bytes + 1);
    if (text != NULL && nvrtc.log(program, text) == 0) {
        pl_str_append(log, "%.*s", LOG_BYTES_MAX, text);
    }
    pl_free(text);
}

static plasmon_status_t image_take(nvrtc_program_t program, bool ptx,
                                   struct kernel_code *code, struct pl_err *err)
{
    size_t bytes = 0;
    int result =
        ptx ? nvrtc.ptx_bytes(program, &bytes) : nvrtc.cubin_bytes(program, &bytes);

    if (result == 0 && bytes == 0) {
        return pl_err_set(
            err, PLASMON_ECOMPILE,
            "%s: NVRTC makes no machine code with these options: -dlto and the "
            "like make something else",
            code->signature->function.name);
    }
    code->image = result == 0 ? pl_alloc(bytes + 1) : NULL;
    if (code->image == NULL) {
        return pl_err_set(err, result == 0 ? PLASMON_ENOMEM : PLASMON_EINTERNAL,
                          "NVRTC gives no code: %s", nvrtc.error_string(result));
    }
    code->image_bytes = bytes;
    result = ptx ? nvrtc.ptx(program, code->image) : nvrtc.cubin(program, code->image);
    return result == 0 ? PLASMON_OK
                       : pl_err_set(err, PLASMON_EINTERNAL, "NVRTC gives no code: %s",
                                    nvrtc.error_string(result));
}

/* The caller frees it. NULL: there is none. */
static char *ptx_take(nvrtc_program_t program)
{
    size_t bytes = 0;
    char *ptx    = NULL;

    if (nvrtc.ptx_bytes(program, &bytes) == 0 && bytes > 0) {
        ptx = pl_alloc(bytes + 1);
    }
    if (ptx == NULL) {
        return NULL;
    }
    ptx[bytes] = '\0'; /* as NVRTC ends it, too */
    if (nvrtc.ptx(program, ptx) != 0) {
        pl_free(ptx);
        return NULL;
    }
    return ptx;
}

/* In place of the image at hand, when that can be. */
static void image_make_early(const char *ptx, const struct target *target,
                             struct kernel_code *code)
{
    void *image  = NULL;
    size_t bytes = 0;

    if (code_early_image(ptx, target->arch, code->image, code->image_bytes, &image,
                         &bytes)) {
        pl_free(code->image);
        code->image       = image;
        code->image_bytes = bytes;
    }
}

/* What is done by the PTX that there is beside machine code. */
static plasmon_status_t ptx_use(nvrtc_program_t program, struct kernel_code *code,
                                const char *entry, const struct target *target,
                                struct pl_err *err)
{
    char *ptx               = ptx_take(program);
    plasmon_status_t status = PLASMON_OK;

    if (ptx == NULL) {
        return PLASMON_OK;
    }
    status = code_params_check(ptx, code->symbol, code->signature, entry, err);
    if (status == PLASMON_OK && target->early) {
        image_make_early(ptx, target, code);
    }
    pl_free(ptx);
    return status;
}

static plasmon_status_t program_compile(nvrtc_program_t program, struct kernel_code *code,
                                        const struct kernel_definition *definition,
                                        const struct target *target,
                                        const char *const *options, int option_count,
                                        struct pl_str *log, struct pl_err *err)
{
    const char *entry   = code_entry_name(definition);
    const char *lowered = NULL;
    int result          = nvrtc.add_name(program, entry);
    plasmon_status_t status;

    if (result == 0) {
        result = nvrtc.compile(program, option_count, options);
    }
    if (result != 0) {
        log_take(program, log);
        if (strstr(pl_str_text(log), "__nv_name_map") != NULL) {
            /* NVRTC's word for add_name() */
            return pl_err_set(
                err, PLASMON_ECOMPILE,
                "%s: the text has no __global__ function %s, or several: write "
                "one (no template), or name another by options.entry",
                definition->name, entry);
        }
        return pl_err_set(err, PLASMON_ECOMPILE, "%s: NVRTC %d.%d refused it: %s",
                          definition->name, nvrtc.major, nvrtc.minor,
                          nvrtc.error_string(result));
    }
    result = nvrtc.lowered_name(program, entry, &lowered);
    if (result != 0 || lowered == NULL) {
        return pl_err_set(err, PLASMON_ECOMPILE,
                          "%s: the text has no __global__ function %s", definition->name,
                          entry);
    }
    code->symbol = pl_strdup(lowered);
    if (code->symbol == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for a name");
    }
    status = image_take(program, target->ptx, code, err);
    return status == PLASMON_OK ? ptx_use(program, code, entry, target, err) : status;
}

static plasmon_status_t compile(struct kernel_code *code,
                                const struct kernel_definition *definition,
                                const struct target *target, struct pl_str *log,
                                struct pl_err *err)
{
    const char *options[OPTIONS_MAX];
    nvrtc_program_t program = NULL;
    int option_count        = 0;
    char *copy              = pl_strdup(definition->options);
    plasmon_status_t status;
    int result;

    if (copy == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for options");
    }
    status = options_split(copy, target, options, &option_count, err);
    if (status == PLASMON_OK) {
        result =
            nvrtc.create(&program, definition->cuda_text, definition->name, 0, NULL, NULL);
        status = result == 0 ? program_compile(program, code, definition, target, options,
                                               option_count, log, err)
                             : pl_err_set(err, PLASMON_ECOMPILE, "NVRTC: %s",
                                          nvrtc.error_string(result));
    }
    if (program != NULL) {
        (void)nvrtc.destroy(&program); /* nothing more to do with it */
    }
    pl_free(copy);
    return status;
}

plasmon_status_t code_build_cuda(struct kernel_code *code,
                                 const struct kernel_definition *given,
                                 const struct device_info *info,
                                 const struct kernel_code_policy *policy,
                                 struct pl_str *log, struct pl_err *err)
{
    struct kernel_definition definition = *given;
    uint8_t key[PL_SHA256_BYTES];
    struct code_cached cached;
    struct target target;
    plasmon_status_t status;
    bool kept;

    definition.options = definition.options != NULL ? definition.options : "";
    (void)pthread_once(&nvrtc_once, nvrtc_open); /* fails only for a bad control */
    if (nvrtc.library == NULL) {
        return pl_err_set(err, nvrtc_missing.status, "%s: %s", definition.name,
                          nvrtc_missing.text);
    }
    status = target_choose(info, &target, err);
    if (status != PLASMON_OK) {
        return status;
    }
    early_choose(info, definition.options, &target);
    kept = cache_key(&definition, &target, key);
    if (kept && code_cache_load(policy->cache_dir, key, &cached)) {
        code->symbol      = cached.symbol;
        code->image       = cached.image;
        code->image_bytes = cached.image_bytes;
        pl_debug("kernels", "%s comes from the cache", definition.name);
        return PLASMON_OK;
    }
    status = compile(code, &definition, &target, log, err);
    if (status == PLASMON_OK) {
        pl_debug("kernels", "%s was compiled: %s, %zu bytes", definition.name,
                 target.option, code->image_bytes);
    }
    if (status == PLASMON_OK && kept) {
        code_cache_store(policy->cache_dir, policy->cache_bytes_max, key, code->symbol,
                         code->image, code->image_bytes);
    }
    return status;
}
