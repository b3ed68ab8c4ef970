/*
 * C text for CPU devices, compiled by the system's compiler: PLASMON_CC, or cc.
 *
 * KEPT ON DISK (code_cache.c), by source, compiler and processor (code_c_key.c): compiling takes a
 * tenth of a second and more, each worker has its own, and one that follows a dead one needs them
 * before it goes on. One worker of a host compiles it, in a process that outlives it
 * (code_compile.c).
 *
 * NOTHING ELSE IS LEFT BEHIND. Source, assembly, object and library are memory without names
 * (memfd), which the compiler's three steps read and write as /proc/self/fd/N; none of them makes
 * temporary files then. However the worker or the compiler dies, there is no file to remove.
 *
 * THE TRAMPOLINE behind the text calls the entry point with its parameters, each read from its
 * address. The compiler knows the definition there, so it checks their number, and converts them as
 * it does in any call: the text may declare `const float *x` or `double a` as it likes. Names in
 * the text are hidden, so that one that libc has too (step, index) is still the text's. The entry
 * point answers nothing (void), or an int, 0 for well.
 */
#include "kernels/code_int.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernels/code_cache.h"
#include "kernels/code_compile.h"

/*
 * Of another worker, which is at the same text: as long as a large one may take. If it takes
 * longer, or is stopped, so be it.
 */
#define TURN_MS_MAX 30000

/* --------------------------------------------------------------------------------- text */

static const char prelude[] =
    "struct plasmon_launch_shape { unsigned int grid[3]; unsigned int block[3];"
    " unsigned int shared_bytes; };\n"
    "static _Thread_local const struct plasmon_launch_shape *plasmon_shape"
    " __attribute__((unused));\n";

static const char *c_type(uint32_t dtype)
{
    static const char *const types[] = {
        [PL_BOOL] = "_Bool",       [PL_I8] = "signed char",     [PL_U8] = "unsigned char",
        [PL_I16] = "short",        [PL_U16] = "unsigned short", [PL_I32] = "int",
        [PL_U32] = "unsigned int", [PL_I64] = "long",           [PL_U64] = "unsigned long",
        [PL_F32] = "float",        [PL_F64] = "double",
    };

    return types[dtype]; /* of scalars: the parser lets no others through */
}

/* "text" as the body of a C string. */
static void append_quoted(struct pl_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        pl_str_append(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static void append_call(struct pl_str *out, const struct kernel_signature *signature,
                        const char *entry)
{
    uint32_t value = 0;

    pl_str_append(out, "%s(", entry);
    for (uint32_t i = 0; i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];
        const char *separator          = value == 0 ? "" : ", ";

        if (slot->kind != KERNEL_SLOT_TENSOR) {
            pl_str_append(out, "%s*(const %s *)p[%u]", separator, c_type(slot->dtype),
                          value++);
            continue;
        }
        pl_str_append(out, "%s*(void *const *)p[%u]", separator, value++);
        for (uint32_t d = 0; slot->strided && d < slot->ndim; d++) {
            pl_str_append(out, ", *(const long *)p[%u]", value++);
        }
    }
    pl_str_append(out, ")");
}

static void append_source(struct pl_str *out, const struct kernel_signature *signature,
                          const struct kernel_definition *definition)
{
    const char *entry = code_entry_name(definition);

    pl_str_append(out, "%s#line 1 \"", prelude);
    append_quoted(out, definition->name);
    pl_str_append(out, "\"\n%s\n#line 1 \"the call of ", definition->c_text);
    append_quoted(out, entry);
    pl_str_append(out, " by its signature\"\n"
                       "__attribute__((visibility(\"default\"))) int " CODE_TRAMPOLINE
                       "(void *const *p, const struct plasmon_launch_shape *shape)\n"
                       "{ (void)p; plasmon_shape = shape; return __builtin_choose_expr("
                       "__builtin_types_compatible_p(__typeof__(");
    append_call(out, signature, entry);
    pl_str_append(out, "), void), (");
    append_call(out, signature, entry);
    pl_str_append(out, ", 0), ");
    append_call(out, signature, entry);
    pl_str_append(out, "); }\n");
}

/* ------------------------------------------------------------------------------ loading */

static plasmon_status_t open_library(struct kernel_code *code, const char *name,
                                     struct pl_err *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", code->fd);
    code->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (code->library == NULL) {
        return pl_err_set(err, PLASMON_ECOMPILE, "%s: cannot load what was compiled: %s",
                          name, dlerror());
    }
    *(void **)&code->c_entry = dlsym(code->library, CODE_TRAMPOLINE);
    return code->c_entry != NULL ? PLASMON_OK
                                 : pl_err_set(err, PLASMON_EINTERNAL,
                                              "%s: " CODE_TRAMPOLINE " is missing", name);
}

static void close_library(struct kernel_code *code)
{
    if (code->library != NULL) {
        (void)dlclose(code->library); /* nothing more to do with it */
        code->library = NULL;
    }
    pl_fd_close(&code->fd);
}

/* false: it is not there, or of no use here, and is compiled. */
static bool library_load(struct kernel_code *code, const char *name, const char *dir,
                         const uint8_t key[PL_SHA256_BYTES])
{
    struct pl_err err = {.status = PLASMON_OK};
    struct code_cached cached;
    bool good;

    if (!code_cache_load(dir, key, &cached)) {
        return false;
    }
    good =
        code_memory_create("plasmon-library", &code->fd, &err) == PLASMON_OK &&
        write(code->fd, cached.image, cached.image_bytes) == (ssize_t)cached.image_bytes &&
        open_library(code, name, &err) == PLASMON_OK;
    if (!good) {
        pl_info("kernels", "%s is compiled again: %s", name, err.text);
        close_library(code);
    }
    pl_free(cached.symbol);
    pl_free(cached.image);
    return good;
}

/* Not loaded, and not there when somebody else has its turn. */
static plasmon_status_t library_build(struct kernel_code *code,
                                      const struct kernel_definition *definition,
                                      const struct kernel_code_policy *policy,
                                      const uint8_t *key, const struct pl_str *source,
                                      int turn, struct pl_str *log, struct pl_err *err)
{
    const struct code_compile_job job = {
        .name = definition->name, .policy = policy, .key = key};
    plasmon_status_t status = code_compile(source, &job, turn, &code->fd, log, err);

    if (status == PLASMON_OK) {
        status = open_library(code, definition->name, err);
        if (status != PLASMON_OK && key != NULL) {
            code_cache_drop(policy->cache_dir, key);
        }
    }
    return status;
}

/* Somebody of this host compiles it, and it is taken from where it is kept then. */
static plasmon_status_t library_build_once(struct kernel_code *code,
                                           const struct kernel_definition *definition,
                                           const struct kernel_code_policy *policy,
                                           const uint8_t key[PL_SHA256_BYTES],
                                           const struct pl_str *source, struct pl_str *log,
                                           struct pl_err *err)
{
    int turn = code_cache_turn(policy->cache_dir, key, TURN_MS_MAX);

    if (library_load(code, definition->name, policy->cache_dir, key)) {
        code_cache_turn_end(policy->cache_dir, key, &turn);
        return PLASMON_OK;
    }
    return library_build(code, definition, policy, key, source, turn, log, err);
}

plasmon_status_t code_build_c(struct kernel_code *code,
                              const struct kernel_definition *definition,
                              const struct kernel_code_policy *policy, struct pl_str *log,
                              struct pl_err *err)
{
    uint8_t key[PL_SHA256_BYTES];
    struct pl_str source;
    plasmon_status_t status = PLASMON_OK;
    bool kept;

    pl_str_init(&source);
    append_source(&source, code->signature, definition);
    if (source.failed) {
        pl_str_finish(&source);
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for the source text");
    }
    kept = policy->cache_dir != NULL &&
           code_c_key(definition->c_text, source.text, code_compiler_name(),
                      code_compile_options, CODE_COMPILE_OPTIONS, key);
    if (!kept) {
        status = library_build(code, definition, policy, NULL, &source, -1, log, err);
    } else if (!library_load(code, definition->name, policy->cache_dir, key)) {
        status = library_build_once(code, definition, policy, key, &source, log, err);
    }
    pl_str_finish(&source);
    return status;
}
