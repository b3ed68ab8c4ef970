/*
 * Functions from shared objects. Only files that lie in the operator's folder, after every link and
 * ".." is resolved, are opened; the path that was checked is the path that is opened.
 */
#include "kernels/code_int.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A text under call.error is read from what code of others wrote. */
#define ERROR_BYTES 256

static plasmon_status_t resolve(const char *folder, const char *path, char out[PATH_MAX],
                                struct pl_err *err)
{
    char joined[PATH_MAX], root[PATH_MAX];
    size_t root_length;
    int length;

    if (path[0] == '/') {
        length = snprintf(joined, sizeof(joined), "%s", path);
    } else {
        length = snprintf(joined, sizeof(joined), "%s/%s", folder, path);
    }
    if (length < 0 || (size_t)length >= sizeof(joined)) {
        return pl_err_set(err, PLASMON_ELIMIT, "the path of the library is too long");
    }
    if (realpath(folder, root) == NULL) {
        return pl_err_set(err, PLASMON_ENOENT, "the library folder %s: %s", folder,
                          strerror(errno));
    }
    if (realpath(joined, out) == NULL) {
        return pl_err_set(err, PLASMON_ENOENT, "library %s: %s", path, strerror(errno));
    }
    root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(out, root, root_length) != 0 || out[root_length] != '/') {
        return pl_err_set(err, PLASMON_EPERM,
                          "library %s is not inside the worker's library folder", path);
    }
    return PLASMON_OK;
}

static void key_add(uint64_t *io_key, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) { /* FNV-1a */
        *io_key = (*io_key ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
    }
}

uint64_t kernel_code_library_key(const struct kernel_definition *definition,
                                 const struct kernel_code_policy *policy, bool prepares)
{
    const char *symbol =
        code_has(definition->symbol) ? definition->symbol : definition->name;
    uint64_t key = 0xcbf29ce484222325ull;
    char path[PATH_MAX];
    struct pl_err err;
    struct stat file;

    if (!code_has(definition->library) || policy->library_dir == NULL ||
        resolve(policy->library_dir, definition->library, path, &err) != PLASMON_OK ||
        stat(path, &file) != 0) {
        return 0;
    }
    if (prepares) {
        key_add(&key, symbol, strlen(symbol) + 1);
    }
    key_add(&key, path, strlen(path));
    key_add(&key, &file.st_dev, sizeof(file.st_dev));
    key_add(&key, &file.st_ino, sizeof(file.st_ino));
    key_add(&key, &file.st_size, sizeof(file.st_size));
    key_add(&key, &file.st_mtim, sizeof(file.st_mtim));
    return key | 1;
}

plasmon_status_t code_build_library(struct kernel_code *code,
                                    const struct kernel_definition *definition,
                                    const struct kernel_code_policy *policy,
                                    struct pl_err *err)
{
    const char *symbol =
        code_has(definition->symbol) ? definition->symbol : definition->name;
    char path[PATH_MAX], prepare[KERNEL_NAME_BYTES_MAX + 16];
    struct stat file;
    plasmon_status_t status;

    if (policy->library_dir == NULL) {
        return pl_err_set(err, PLASMON_EPERM,
                          "%s: this worker loads no libraries (plasmon-store --library-dir "
                          "names a folder that it may load from)",
                          definition->name);
    }
    status = resolve(policy->library_dir, definition->library, path, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) { /* a pipe would be waited for */
        return pl_err_set(err, PLASMON_ENOLIB, "%s: %s is no regular file",
                          definition->name, definition->library);
    }
    code->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (code->library == NULL) {
        return pl_err_set(err, PLASMON_ENOLIB, "%s: cannot load %s: %s", definition->name,
                          definition->library, dlerror());
    }
    *(void **)&code->entry = dlsym(code->library, symbol);
    if (code->entry == NULL) {
        return pl_err_set(err, PLASMON_ENOENT, "%s: %s has no symbol %s", definition->name,
                          definition->library, symbol);
    }
    (void)snprintf(prepare, sizeof(prepare), "%s_prepare", symbol);
    *(void **)&code->prepare = dlsym(code->library, prepare); /* NULL: nothing to prepare */
    return PLASMON_OK;
}

plasmon_status_t code_library_call(const struct kernel_code *code, plasmon_function_fn fn,
                                   void *stream, const struct kernel_arg *args,
                                   uint32_t arg_count, const union kernel_scalar *scalars,
                                   uint32_t scalar_count,
                                   const struct kernel_launch_shape *shape,
                                   struct pl_err *err)
{
    struct plasmon_function_arg shown[KERNEL_SLOTS_MAX];
    char text[ERROR_BYTES]            = "";
    struct plasmon_function_call call = {
        .size         = sizeof(call),
        .abi          = PLASMON_FUNCTION_ABI,
        .kind         = (int)code->kind,
        .ordinal      = code->ordinal,
        .args         = shown,
        .arg_count    = arg_count,
        .scalars      = (const plasmon_scalar_t *)(const void *)scalars,
        .scalar_count = scalar_count,
        .stream       = stream,
        .error        = text,
        .error_bytes  = sizeof(text),
    };
    int answer;

    static_assert(sizeof(plasmon_scalar_t) == sizeof(union kernel_scalar), "one union");
    PL_CHECK(arg_count <= KERNEL_SLOTS_MAX);
    if (shape != NULL) {
        memcpy(call.shape.grid, shape->grid, sizeof(call.shape.grid));
        memcpy(call.shape.block, shape->block, sizeof(call.shape.block));
        call.shape.shared_bytes = shape->shared_bytes;
    }
    for (uint32_t i = 0; i < arg_count; i++) {
        shown[i] = (struct plasmon_function_arg){
            .mode      = (plasmon_mode_t)args[i].mode,
            .dtype     = (plasmon_dtype_t)args[i].dtype,
            .reduce_op = (plasmon_reduce_t)args[i].reduce_op,
            .ndim      = args[i].ndim,
            .data      = (void *)(uintptr_t)args[i].data.addr,
        };
        memcpy(shown[i].dim, args[i].dim, sizeof(shown[i].dim));
        memcpy(shown[i].stride, args[i].stride, sizeof(shown[i].stride));
    }
    answer = fn(&call);
    if (answer == 0) {
        return PLASMON_OK;
    }
    text[sizeof(text) - 1] = '\0';
    return pl_err_set(err, PLASMON_EFUNCTION, "%s answered %d%s%s",
                      code->signature->function.name, answer, text[0] != '\0' ? ": " : "",
                      text);
}
