#include "worker/functions.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

enum function_state {
    FUNCTION_BUILDING,
    FUNCTION_BUILT, /* for a GPU: to be loaded when a launch needs it */
    FUNCTION_LOADING,
    FUNCTION_READY,
    FUNCTION_FAILED,
    FUNCTION_UNLOADING,
    FUNCTION_PREPARING, /* no function of a client's, but a call of the catalogue that wants something */
};

#define PREPARED_ARGS_MAX 8u /* of functions that want something */

/* The call that wants it; addresses mean nothing here. */
struct prepared_call {
    const struct kernel_function *function;
    struct kernel_arg args[PREPARED_ARGS_MAX];
    uint32_t arg_count;
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
};

struct worker_function {
    uint32_t id;
    uint8_t hash[WIRE_HASH_BYTES];
    /* BUILDING, LOADING, UNLOADING, PREPARING: the thread has it */
    enum function_state state;
    bool dead;    /* freed while the thread has it, or waiting to be unloaded */
    bool queued;  /* in jobs; guarded by the lock */
    bool awaited; /* a launch came, and it was not there yet */
    uint64_t defined_ns;
    struct pl_list link; /* jobs, awaited, over, or unloads */

    /* The job: what the thread reads and writes. */
    struct kernel_definition definition;
    char *texts; /* what definition points into */
    struct kernel_code *code;
    struct prepared_call *call; /* PREPARING */
    plasmon_status_t status;
    char *text; /* why it failed */
};

/* -------------------------------------------------------------------------- life of one */

static void function_destroy(struct worker_function *function)
{
    pl_list_remove(&function->link);
    kernel_code_destroy(function->code);
    pl_free(function->call);
    pl_free(function->texts);
    pl_free(function->text);
    pl_free(function);
}

static const char *copy_text(char **at, const void *text, size_t bytes)
{
    char *copy = *at;

    if (bytes > 0) {
        memcpy(copy, text, bytes);
    }
    copy[bytes] = '\0';
    *at += bytes + 1;
    return copy;
}

static struct worker_function *function_create(const Plasmon__V1__FunctionDefine *define)
{
    struct worker_function *function = PL_NEW(struct worker_function);
    size_t bytes                     = strlen(define->name) + strlen(define->signature) +
                   strlen(define->options) + strlen(define->entry) +
                   strlen(define->library) + strlen(define->symbol) +
                   define->cuda_text.len + define->c_text.len + 8;
    char *at;

    if (function == NULL) {
        return NULL;
    }
    pl_list_init(&function->link);
    function->texts = pl_alloc(bytes);
    if (function->texts == NULL) {
        pl_free(function);
        return NULL;
    }
    at                   = function->texts;
    function->id         = define->id;
    function->defined_ns = pl_now_ns();
    function->definition = (struct kernel_definition){
        .name      = copy_text(&at, define->name, strlen(define->name)),
        .signature = copy_text(&at, define->signature, strlen(define->signature)),
        .options   = copy_text(&at, define->options, strlen(define->options)),
        .entry     = copy_text(&at, define->entry, strlen(define->entry)),
        .library   = copy_text(&at, define->library, strlen(define->library)),
        .symbol    = copy_text(&at, define->symbol, strlen(define->symbol)),
        .cuda_text = copy_text(&at, define->cuda_text.data, define->cuda_text.len),
        .c_text    = copy_text(&at, define->c_text.data, define->c_text.len),
    };
    memcpy(function->hash, define->hash.data,
           sizeof(function->hash)); /* wire/ saw to its length */
    return function;
}

/* --------------------------------------------------------------------------- the thread */

/* Compilers quote what they read; what goes to the head is text. */
static void make_ascii(char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c >= 0x7f || (c < 0x20 && c != '\n' && c != '\t')) {
            *text = '?';
        }
    }
}

static void job_fail(struct worker_function *function, const struct pl_err *err,
                     const char *log)
{
    struct pl_str text;

    pl_str_init(&text);
    pl_str_append(&text, "%s%s%s", err->text, log[0] != '\0' ? "\n" : "", log);
    function->status = err->status;
    function->text   = pl_strdup(pl_str_text(&text)); /* NULL: the status has to do */
    if (function->text != NULL) {
        make_ascii(function->text);
    }
    pl_str_finish(&text);
}

/*
 * Code of a library is to run, and may end this process: that is noted, and not tried for ever.
 * false: it has failed.
 */
static bool library_enter(struct worker_functions *functions,
                          struct worker_function *function, uint32_t thread, bool prepares)
{
    const struct kernel_definition *definition = &function->definition;
    uint64_t library = kernel_code_library_key(definition, &functions->policy, prepares);
    uint64_t deaths  = worker_suspects_deaths(functions->suspects, library);
    struct pl_err err;

    if (deaths < WORKER_SUSPECT_DEATHS) {
        worker_suspects_note(functions->suspects, thread, library);
        return true;
    }
    if (prepares) {
        (void)pl_err_set(&err, PLASMON_EWORKER,
                         "%s: %s ended %llu workers of this device in %s_prepare, which is "
                         "not called again: put another file in its place",
                         definition->name, definition->library, (unsigned long long)deaths,
                         definition->symbol[0] != '\0' ? definition->symbol
                                                       : definition->name);
    } else {
        (void)pl_err_set(
            &err, PLASMON_EWORKER,
            "%s: %s ended %llu workers of this device while it was opened, and "
            "is not opened again: a constructor of it crashes, or the file is "
            "cut short; put another file in its place",
            definition->name, definition->library, (unsigned long long)deaths);
    }
    job_fail(function, &err, "");
    return false;
}

static void library_leave(struct worker_functions *functions, uint32_t thread)
{
    worker_suspects_note(functions->suspects, thread, 0);
}

static void job_load(struct worker_functions *functions, struct worker_function *function,
                     uint32_t thread)
{
    struct pl_err err = {.status = PLASMON_OK};

    if (!library_enter(functions, function, thread, true)) {
        return;
    }
    if (kernel_code_load(function->code, functions->device, &err) != PLASMON_OK) {
        job_fail(function, &err, "");
    }
    library_leave(functions, thread);
}

static void job_build(struct worker_functions *functions, struct worker_function *function,
                      uint32_t thread)
{
    const struct device_info *info = device_get_info(functions->device);
    struct pl_err err              = {.status = PLASMON_OK};
    struct pl_str log;
    plasmon_status_t status;

    if (!library_enter(functions, function, thread, false)) {
        return;
    }
    pl_str_init(&log);
    status = kernel_code_build(&function->definition, info, &functions->policy,
                               &function->code, &log, &err);
    library_leave(functions, thread);
    if (status != PLASMON_OK) {
        job_fail(function, &err, pl_str_text(&log));
    }
    pl_str_finish(&log);
    if (status == PLASMON_OK && info->kind == DEVICE_CPU) {
        job_load(functions, function, thread);
    }
}

/* What goes wrong is told by the kernels when the launch asks again. */
static void job_prepare(struct worker_functions *functions,
                        const struct worker_function *function)
{
    const struct prepared_call *call = function->call;
    struct pl_err err                = {.status = PLASMON_OK};

    if (kernel_prepare(*functions->kernels, call->function, call->args, call->arg_count,
                       call->scalars, &err) != PLASMON_OK) {
        pl_info("worker", "%s", err.text);
    }
}

static void job_do(struct worker_functions *functions, struct worker_function *function,
                   uint32_t thread)
{
    switch (function->state) {
    case FUNCTION_BUILDING:
        job_build(functions, function, thread);
        break;
    case FUNCTION_LOADING:
        job_load(functions, function, thread);
        break;
    case FUNCTION_PREPARING:
        job_prepare(functions, function);
        break;
    default: /* UNLOADING */
        kernel_code_destroy(function->code);
        function->code = NULL;
        break;
    }
}

static struct worker_function *job_next_locked(struct worker_functions *functions,
                                               bool awaited_only)
{
    pl_mutex_assert_held(&functions->lock);
    if (!functions->driver_busy && !pl_list_empty(&functions->driver_jobs)) {
        return pl_list_first(&functions->driver_jobs, struct worker_function, link);
    }
    if (!pl_list_empty(&functions->awaited)) {
        return pl_list_first(&functions->awaited, struct worker_function, link);
    }
    return awaited_only || pl_list_empty(&functions->jobs)
               ? NULL
               : pl_list_first(&functions->jobs, struct worker_function, link);
}

static struct worker_function *job_take(struct worker_functions *functions,
                                        bool awaited_only)
{
    struct worker_function *function;

    pl_mutex_lock(&functions->lock);
    while ((function = job_next_locked(functions, awaited_only)) == NULL &&
           !functions->stop) {
        pl_cond_wait(&functions->changed, &functions->lock);
    }
    if (functions->stop) {
        function = NULL;
    }
    if (function != NULL) {
        pl_list_remove(&function->link);
        function->queued = false;
        functions->driver_busy |= function->state != FUNCTION_BUILDING;
    }
    pl_mutex_unlock(&functions->lock);
    return function;
}

/* Until it is to stop. awaited_only: builds nothing that no launch waits for. */
static void jobs_do(struct worker_functions *functions, bool awaited_only)
{
    struct worker_function *function;

    while ((function = job_take(functions, awaited_only)) != NULL) {
        job_do(functions, function, awaited_only ? 1 : 0);
        pl_mutex_lock(&functions->lock);
        if (function->state != FUNCTION_BUILDING) {
            functions->driver_busy = false;
            pl_cond_broadcast(&functions->changed); /* the other may take the next */
        }
        pl_list_add_tail(&functions->over, &function->link);
        pl_mutex_unlock(&functions->lock);
        pl_fd_raise(functions->wake_fd);
    }
}

static void *thread_main(void *user)
{
    jobs_do(user, false);
    return NULL;
}

static void *second_main(void *user)
{
    jobs_do(user, true);
    return NULL;
}

static plasmon_status_t thread_start(struct worker_functions *functions)
{
    if (!functions->started) {
        functions->started =
            pthread_create(&functions->thread, NULL, thread_main, functions) == 0;
    }
    return functions->started ? PLASMON_OK : PLASMON_ELIMIT;
}

/* Something waits, and the first thread may be at a compiler. If there can be no second one, it is next. */
static void second_start(struct worker_functions *functions)
{
    if (!functions->second_started && functions->started) {
        functions->second_started =
            pthread_create(&functions->second, NULL, second_main, functions) == 0;
    }
}

/* Loading and unloading hold up everything. */
static void job_give(struct worker_functions *functions, struct worker_function *function,
                     enum function_state state)
{
    function->state = state;
    pl_list_remove(&function->link);
    if (state != FUNCTION_BUILDING) {
        second_start(functions);
    }
    pl_mutex_lock(&functions->lock);
    pl_list_add_tail(state == FUNCTION_BUILDING ? &functions->jobs
                                                : &functions->driver_jobs,
                     &function->link);
    function->queued = true;
    pl_cond_broadcast(&functions->changed); /* the one that may take it is among them */
    pl_mutex_unlock(&functions->lock);
}

/* A launch waits until it is built. */
static void job_await(struct worker_functions *functions, struct worker_function *function)
{
    second_start(functions);
    pl_mutex_lock(&functions->lock);
    if (function->queued) {
        pl_list_remove(&function->link);
        pl_list_add_tail(&functions->awaited, &function->link);
        pl_cond_broadcast(&functions->changed);
    }
    pl_mutex_unlock(&functions->lock);
}

/* ---------------------------------------------------------------------------- the owner */

plasmon_status_t worker_functions_init(struct worker_functions *functions,
                                       struct device *device,
                                       struct worker_core *const *core,
                                       struct kernel_context *const *kernels, int wake_fd,
                                       worker_function_report_fn report, void *report_user,
                                       struct store_suspects *suspects, struct pl_err *err)
{
    plasmon_status_t status;

    memset(functions, 0, sizeof(*functions));
    functions->device      = device;
    functions->core        = core;
    functions->kernels     = kernels;
    functions->wake_fd     = wake_fd;
    functions->report      = report;
    functions->report_user = report_user;
    functions->suspects    = suspects;
    worker_suspects_count(suspects);
    pl_map_init(&functions->by_id);
    pl_list_init(&functions->unloads);
    pl_list_init(&functions->jobs);
    pl_list_init(&functions->awaited);
    pl_list_init(&functions->driver_jobs);
    pl_list_init(&functions->over);
    status = pl_mutex_init(&functions->lock, PL_RANK_KERNELS);
    if (status == PLASMON_OK) {
        status = pl_cond_init(&functions->changed);
        if (status != PLASMON_OK) {
            pl_mutex_finish(&functions->lock);
        }
    }
    return status == PLASMON_OK
               ? PLASMON_OK
               : pl_err_set(err, status, "no lock for functions of clients");
}

/* The thread does not have it: gone, or on the list of what must be unloaded first. */
static void function_bury(struct worker_functions *functions,
                          struct worker_function *function)
{
    if (function->code == NULL || !kernel_code_loaded(function->code)) {
        function_destroy(function);
        return;
    }
    function->dead = true;
    pl_list_add_tail(&functions->unloads, &function->link);
    functions->unload_count++;
}

static bool function_away(const struct worker_function *function)
{
    return function->state == FUNCTION_BUILDING || function->state == FUNCTION_LOADING ||
           function->state == FUNCTION_UNLOADING;
}

static void function_report(struct worker_functions *functions,
                            const struct worker_function *function)
{
    if (function->dead || functions->report == NULL) {
        return;
    }
    functions->report(functions->report_user, function->id, function->status,
                      function->text != NULL           ? function->text
                      : function->status != PLASMON_OK ? pl_status_text(function->status)
                                                       : "");
}

/* A job is over. */
static void function_land(struct worker_functions *functions,
                          struct worker_function *function)
{
    enum function_state was = function->state;

    if (function->awaited) {
        functions->awaited_ns = pl_now_ns();
        pl_debug("worker", "a launch waited for %s, which was defined %llu ms ago",
                 function->definition.name,
                 (unsigned long long)(functions->awaited_ns - function->defined_ns) /
                     1000000);
    }
    if (was != FUNCTION_BUILDING) {
        worker_core_resume(*functions->core);
    }
    if (was == FUNCTION_PREPARING) {
        functions->preparing = NULL;
    }
    if (was == FUNCTION_UNLOADING || was == FUNCTION_PREPARING) {
        function_destroy(function);
        return;
    }
    if (function->status != PLASMON_OK) {
        function->state = FUNCTION_FAILED;
        pl_info("worker", "function %s: %s", function->definition.name,
                function->text != NULL ? function->text : pl_status_text(function->status));
        function_report(functions, function);
    } else if (was == FUNCTION_BUILDING) {
        function->state = device_get_info(functions->device)->kind == DEVICE_CUDA
                              ? FUNCTION_BUILT
                              : FUNCTION_READY;
        function_report(functions, function);
    } else {
        function->state = FUNCTION_READY;
    }
    if (function->dead) {
        function_bury(functions, function);
    }
}

void worker_functions_collect(struct worker_functions *functions)
{
    struct pl_list over;

    if (!functions->started) {
        return;
    }
    pl_list_init(&over);
    pl_mutex_lock(&functions->lock);
    while (!pl_list_empty(&functions->over)) {
        struct pl_list *first = functions->over.next;

        pl_list_remove(first);
        pl_list_add_tail(&over, first);
    }
    pl_mutex_unlock(&functions->lock);
    while (!pl_list_empty(&over)) {
        struct worker_function *function =
            pl_list_first(&over, struct worker_function, link);

        pl_list_remove(&function->link);
        function_land(functions, function);
    }
}

static void list_destroy(struct pl_list *list)
{
    while (!pl_list_empty(list)) {
        function_destroy(pl_list_first(list, struct worker_function, link));
    }
}

/* The process ends, or a test: what is in a list is not in the map only if it is dead. */
void worker_functions_finish(struct worker_functions *functions)
{
    size_t index = 0;
    uint64_t id;
    void *value;

    if (functions->device == NULL) {
        return;
    }
    if (functions->started) {
        pl_mutex_lock(&functions->lock);
        functions->stop = true;
        pl_cond_broadcast(&functions->changed);
        pl_mutex_unlock(&functions->lock);
        (void)pthread_join(functions->thread, NULL); /* it is ours, and was started */
    }
    if (functions->second_started) {
        (void)pthread_join(functions->second, NULL); /* likewise */
    }
    while (pl_map_next(&functions->by_id, &index, &id, &value)) {
        struct worker_function *function = value;

        function_destroy(function);
    }
    list_destroy(&functions->jobs);
    list_destroy(&functions->awaited);
    list_destroy(&functions->driver_jobs);
    list_destroy(&functions->over);
    list_destroy(&functions->unloads);
    pl_map_finish(&functions->by_id);
    pl_cond_finish(&functions->changed);
    pl_mutex_finish(&functions->lock);
}

plasmon_status_t worker_functions_define(struct worker_functions *functions,
                                         const Plasmon__V1__FunctionDefine *define,
                                         struct pl_err *err)
{
    struct worker_function *function = pl_map_get(&functions->by_id, define->id);

    if (function != NULL) {
        return memcmp(function->hash, define->hash.data, sizeof(function->hash)) == 0
                   ? PLASMON_OK
                   : pl_err_set(err, PLASMON_EMALFORMED,
                                "function %08x is defined again, with other content",
                                define->id);
    }
    function = function_create(define);
    if (function == NULL || thread_start(functions) != PLASMON_OK ||
        pl_map_set(&functions->by_id, define->id, function) != PLASMON_OK) {
        if (function != NULL) {
            function_destroy(function);
        }
        return pl_err_set(err, PLASMON_ENOMEM, "no memory or thread for function %s",
                          define->name);
    }
    job_give(functions, function, FUNCTION_BUILDING);
    return PLASMON_OK;
}

void worker_functions_free(struct worker_functions *functions, uint32_t id)
{
    struct worker_function *function = pl_map_remove(&functions->by_id, id);

    if (function == NULL) {
        return; /* a repeat after a restart */
    }
    if (function_away(function)) {
        function->dead = true; /* when it comes back */
    } else {
        function_bury(functions, function);
    }
}

void worker_functions_forget(struct worker_functions *functions)
{
    uint64_t id;
    void *value;

    for (;;) {
        size_t index = 0;

        if (!pl_map_next(&functions->by_id, &index, &id, &value)) {
            return;
        }
        worker_functions_free(functions, (uint32_t)id);
    }
}

const struct kernel_function *worker_functions_find(struct worker_functions *functions,
                                                    uint32_t id, bool quiet,
                                                    struct pl_err *err)
{
    struct worker_function *function = pl_map_get(&functions->by_id, id);

    if (function != NULL && function->state == FUNCTION_READY) {
        return kernel_code_function(function->code);
    }
    worker_functions_collect(functions);
    if (function == NULL) {
        (void)pl_err_set(err, PLASMON_ENOFUNCTION,
                         "the head did not say what function %08x is", id);
        return NULL;
    }
    if (function->state == FUNCTION_READY) {
        return kernel_code_function(function->code);
    }
    if (function->state == FUNCTION_FAILED) {
        (void)pl_err_set(err, function->status, "%s",
                         function->text != NULL ? function->text
                                                : pl_status_text(function->status));
        return NULL;
    }
    if (function->state == FUNCTION_BUILDING) {
        job_await(functions, function);
    }
    if (function->state == FUNCTION_BUILT && quiet) {
        worker_core_hold(*functions->core);
        job_give(functions, function, FUNCTION_LOADING);
    }
    function->awaited = true;
    (void)pl_err_set(err, PLASMON_EAGAIN, "%s is being compiled and loaded",
                     function->definition.name);
    return NULL;
}

/* Held until it is done: nothing may be enqueued meanwhile. */
static plasmon_status_t prepare_begin(struct worker_functions *functions,
                                      const struct kernel_function *function,
                                      const struct kernel_arg *args, uint32_t arg_count,
                                      const union kernel_scalar *scalars,
                                      uint32_t scalar_count, struct pl_err *err)
{
    struct worker_function *job = PL_NEW(struct worker_function);
    struct prepared_call *call  = PL_NEW(struct prepared_call);

    PL_CHECK(arg_count <= PREPARED_ARGS_MAX && scalar_count <= KERNEL_SCALARS_MAX);
    if (job == NULL || call == NULL || thread_start(functions) != PLASMON_OK) {
        pl_free(job);
        pl_free(call);
        return pl_err_set(err, PLASMON_ENOMEM, "no memory or thread to prepare %s",
                          function->name);
    }
    *call = (struct prepared_call){.function = function, .arg_count = arg_count};
    memcpy(call->args, args, arg_count * sizeof(*args));
    if (scalar_count != 0) {
        memcpy(call->scalars, scalars, scalar_count * sizeof(*scalars));
    }
    job->call = call;
    pl_list_init(&job->link);
    functions->preparing = job;
    worker_core_hold(*functions->core);
    job_give(functions, job, FUNCTION_PREPARING);
    return PLASMON_EAGAIN;
}

plasmon_status_t worker_functions_prepare(struct worker_functions *functions,
                                          const struct kernel_function *function,
                                          const struct kernel_arg *args, uint32_t arg_count,
                                          const union kernel_scalar *scalars,
                                          uint32_t scalar_count, bool keep, bool quiet,
                                          struct pl_err *err)
{
    plasmon_status_t status = PLASMON_EAGAIN;

    if (functions->preparing == NULL) { /* the thread has the kernels' plans otherwise */
        status = kernel_prepared(*functions->kernels, function, args, arg_count, scalars,
                                 keep, err);
    }
    if (status == PLASMON_EAGAIN && functions->preparing == NULL && quiet) {
        status =
            prepare_begin(functions, function, args, arg_count, scalars, scalar_count, err);
    }
    return status == PLASMON_EAGAIN
               ? pl_err_set(err, status, "what %s needs is being prepared", function->name)
               : status;
}

const char *worker_functions_text(const struct worker_functions *functions, uint32_t id)
{
    const struct worker_function *function = pl_map_get(&functions->by_id, id);

    return function != NULL && function->state == FUNCTION_FAILED ? function->text : NULL;
}

void worker_functions_idle(struct worker_functions *functions)
{
    while (!pl_list_empty(&functions->unloads)) {
        worker_core_hold(*functions->core);
        job_give(functions,
                 pl_list_first(&functions->unloads, struct worker_function, link),
                 FUNCTION_UNLOADING);
        functions->unload_count--;
    }
}
