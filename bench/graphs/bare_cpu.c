/*
 * A graph on a CPU without Plasmon: the C text through the system's compiler, and its functions
 * called one after the other by one thread. The text does not say in C how a function of a name is
 * called with parameters from a list, so one is written for each kernel, from its signature, and
 * stands after the text.
 */
#include "bench/graphs/bare.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"

typedef void (*call_fn)(void *const *params);

struct bare {
    const struct graphs_run *run;
    const struct graphs_graph *graph;
    call_fn *call; /* a kernel each */
    void **memory; /* an array each */
    void **out;    /* likewise: where a cold run copies outputs to */
    bool cold;
};

/* ----------------------------------------------------------------------------- the text */

static const char *c_type(enum graphs_param_kind kind)
{
    switch (kind) {
    case GRAPHS_I64:
        return "int64_t";
    case GRAPHS_F32:
        return "float";
    case GRAPHS_F64:
        return "double";
    default:
        return NULL; /* tensors go as they are */
    }
}

/* The first step that runs the kernel knows its parameters. */
static const struct graphs_step *step_of(const struct graphs_graph *graph, uint32_t kernel)
{
    for (uint32_t i = 0; i < graph->steps.count; i++) {
        if (graphs_step_at(graph, i)->kernel == kernel) {
            return graphs_step_at(graph, i);
        }
    }
    return NULL;
}

static void write_call(struct pl_str *out, const char *name, const struct graphs_step *step)
{
    pl_str_append(out, "void call_%s(void *const *params)\n{\n    %s(", name, name);
    for (uint32_t i = 0; i < step->param_count; i++) {
        const char *type = c_type(step->param[i].kind);

        pl_str_append(out, "%s", i > 0 ? ", " : "");
        if (type != NULL) {
            pl_str_append(out, "*(const %s *)params[%u]", type, i);
        } else {
            pl_str_append(out, "params[%u]", i);
        }
    }
    pl_str_append(out, ");\n}\n");
}

static bool run_compiler(const char *source, const char *library)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        (void)execlp("cc", "cc", "-O3", "-march=native", "-shared", "-fPIC", "-x", "c",
                     source, "-o", library, "-lm", (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* In files of this process alone, which are gone when this returns. */
static void *compile(const char *text, struct pl_err *err)
{
    char folder[] = "/tmp/plasmon-bench-XXXXXX";
    char source[64], path[64];
    void *library = NULL;
    FILE *file;
    bool written;

    if (mkdtemp(folder) == NULL) {
        (void)pl_err_set(err, PLASMON_EIO, "no folder for the compiler: %s",
                         strerror(errno));
        return NULL;
    }
    (void)snprintf(source, sizeof(source), "%s/graph.c", folder);
    (void)snprintf(path, sizeof(path), "%s/graph.so", folder);
    file    = fopen(source, "we");
    written = file != NULL && fputs(text, file) >= 0;
    if (file != NULL && fclose(file) != 0) {
        written = false;
    }
    if (!written || !run_compiler(source, path)) {
        (void)pl_err_set(err, PLASMON_ENOTSUP,
                         "the system's C compiler (cc) made no library");
    } else if ((library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL) {
        (void)pl_err_set(err, PLASMON_ENOTSUP, "%s", dlerror());
    }
    (void)unlink(path); /* may not be there */
    (void)unlink(source);
    (void)rmdir(folder);
    return library;
}

static plasmon_status_t load_calls(struct bare *bare, struct pl_err *err)
{
    const struct graphs_definition *definition = bare->graph->definition;
    struct pl_str text;
    void *library;

    pl_str_init(&text);
    pl_str_append(&text, "%s\n", definition->c_text());
    for (uint32_t i = 0; i < definition->kernel_count; i++) {
        const struct graphs_step *step = step_of(bare->graph, i);

        if (step != NULL) {
            write_call(&text, definition->kernels[i].name, step);
        }
    }
    library = compile(pl_str_text(&text), err);
    pl_str_finish(&text);
    if (library == NULL) {
        return err->status;
    }
    for (uint32_t i = 0; i < definition->kernel_count; i++) {
        char name[64];
        void *symbol;

        if (step_of(bare->graph, i) == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "call_%s", definition->kernels[i].name);
        symbol = dlsym(library, name);
        if (symbol == NULL) {
            return pl_err_set(err, PLASMON_ENOENT, "the C text has no %s", name);
        }
        memcpy(&bare->call[i], &symbol, sizeof(symbol)); /* ISO C has no such cast */
    }
    return PLASMON_OK;
}

/* --------------------------------------------------------------------------------- runs */

static void run_step(struct bare *bare, const struct graphs_step *step)
{
    union graphs_value value[GRAPHS_PARAMS_MAX];
    void *params[GRAPHS_PARAMS_MAX];

    for (uint32_t i = 0; i < step->param_count; i++) {
        const struct graphs_param *param = &step->param[i];
        bool is_tensor                   = param->kind == GRAPHS_TENSOR;

        value[i] = graphs_param_value(
            bare->graph, param, is_tensor ? (uintptr_t)bare->memory[param->array] : 0);
        params[i] = is_tensor ? (void *)(uintptr_t)value[i].address : &value[i];
    }
    bare->call[step->kernel](params);
}

static plasmon_status_t once(void *user, struct pl_err *err)
{
    struct bare *bare = user;

    (void)err;
    for (uint32_t i = 0; i < bare->graph->arrays.count; i++) {
        const struct graphs_array *array = graphs_array_at(bare->graph, i);

        if (bare->cold && array->data != NULL) {
            memcpy(bare->memory[i], array->data, array->bytes);
        }
    }
    for (uint32_t i = bare->graph->init_steps; i < bare->graph->steps.count; i++) {
        run_step(bare, graphs_step_at(bare->graph, i));
    }
    for (uint32_t i = 0; bare->cold && i < bare->graph->arrays.count; i++) {
        if (bare->out[i] != NULL) {
            memcpy(bare->out[i], bare->memory[i], graphs_array_at(bare->graph, i)->bytes);
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t measure(struct bare *bare, uint32_t mode, double *result,
                                struct pl_err *err)
{
    struct graphs_timing timing;
    plasmon_status_t status;

    bare->cold = mode == GRAPHS_COLD;
    for (uint32_t i = 0; i < bare->graph->arrays.count; i++) {
        const struct graphs_array *array = graphs_array_at(bare->graph, i);

        if (array->role != GRAPHS_STATE && array->role != GRAPHS_MADE &&
            (bare->cold || array->data == NULL)) {
            memset(bare->memory[i], 0xff, array->bytes); /* no number */
        }
    }
    (void)once(bare, err); /* has nothing that fails */
    for (size_t i = 0; i < bare->graph->expects.count; i++) {
        const struct graphs_expect *expect = pl_vec_at(&bare->graph->expects, i);

        if (!graphs_compare(bare->graph, expect,
                            bare->cold && bare->out[expect->array] != NULL
                                ? bare->out[expect->array]
                                : bare->memory[expect->array],
                            err)) {
            return PLASMON_EDEVICE;
        }
    }
    status = graphs_time(bare->run, once, bare, &timing, err);
    if (status == PLASMON_OK) {
        graphs_set(result, mode, GRAPHS_SERIAL, &timing, 1);
    }
    return status;
}

/* --------------------------------------------------------------------------------- room */

#define ROUNDS     3
#define COPY_BYTES (64u << 20)

static void measure_room(struct bare *bare, double *result)
{
    uint32_t count  = (uint32_t)bare->graph->steps.count;
    double *seconds = bench_must_alloc(count * sizeof(*seconds));
    void *to = bench_must_alloc(COPY_BYTES), *from = bench_must_alloc(COPY_BYTES);

    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = bare->graph->init_steps; i < count; i++) {
            uint64_t began_ns = pl_now_ns();
            double now;

            run_step(bare, graphs_step_at(bare->graph, i));
            now        = (double)(pl_now_ns() - began_ns) * 1e-9;
            seconds[i] = round == 0 || now < seconds[i] ? now : seconds[i];
        }
    }
    result[GRAPHS_PATH] = graphs_critical_path(bare->graph, seconds);
    result[GRAPHS_BANDWIDTH] =
        2.0 * COPY_BYTES / bench_memcpy_seconds(to, from, COPY_BYTES);
    pl_free(to);
    pl_free(from);
    pl_free(seconds);
}

/* --------------------------------------------------------------------------------- life */

plasmon_status_t graphs_bare_cpu(const struct graphs_run *run, double *result,
                                 struct pl_err *err)
{
    struct bare bare = {.run = run, .graph = run->graph};
    plasmon_status_t status;

    bare.call = bench_must_alloc(run->graph->definition->kernel_count * sizeof(*bare.call));
    bare.memory = bench_must_alloc(run->graph->arrays.count * sizeof(*bare.memory));
    bare.out    = bench_must_alloc(run->graph->arrays.count * sizeof(*bare.out));
    for (uint32_t i = 0; i < run->graph->arrays.count; i++) {
        const struct graphs_array *array = graphs_array_at(run->graph, i);

        bare.memory[i] = bench_must_alloc(array->bytes);
        if (array->role == GRAPHS_OUTPUT) {
            bare.out[i] = bench_must_alloc(array->bytes);
        }
        if (array->data != NULL) {
            memcpy(bare.memory[i], array->data, array->bytes);
        }
    }
    status = load_calls(&bare, err);
    for (uint32_t i = 0; i < run->graph->init_steps && status == PLASMON_OK; i++) {
        run_step(&bare, graphs_step_at(run->graph, i));
    }
    for (uint32_t mode = 0; mode < GRAPHS_MODES && status == PLASMON_OK; mode++) {
        if (graphs_mode_measured(run, mode)) {
            status = measure(&bare, mode, result, err);
        }
    }
    if (status == PLASMON_OK) {
        measure_room(&bare, result);
    }
    for (uint32_t i = 0; i < run->graph->arrays.count; i++) {
        pl_free(bare.memory[i]);
        pl_free(bare.out[i]);
    }
    pl_free(bare.out);
    pl_free(bare.memory);
    pl_free(bare.call);
    return status;
}
