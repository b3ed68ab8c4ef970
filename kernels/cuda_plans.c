/*
 * Plans by the shape of a call: see cuda_plans.h.
 */
#include "kernels/cuda_plans.h"

#include "base/alloc.h"
#include "kernels/cuda_int.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- the cache */

void cuda_plans_init(struct cuda_plans *plans)
{
    *plans = (struct cuda_plans){.clock = 1};
    pl_list_init(&plans->list);
}

static void plan_destroy(struct cuda_plans *plans, struct cuda_library_plan *plan)
{
    pl_list_remove(&plan->link);
    plans->count--;
    if (plan->made) {
        cuda_fft_plan_destroy(plans->fft, plan);
    }
    pl_free(plan);
}

void cuda_plans_finish(struct cuda_plans *plans)
{
    while (!pl_list_empty(&plans->list)) {
        plan_destroy(plans, pl_list_first(&plans->list, struct cuda_library_plan, link));
    }
    cuda_fft_close(plans->fft);
    cuda_solver_close(plans->solver);
}

static struct cuda_library_plan *find(const struct cuda_plans *plans,
                                      const struct cuda_plan_key *key)
{
    for (struct pl_list *link = plans->list.next; link != &plans->list; link = link->next) {
        struct cuda_library_plan *plan =
            pl_container_of(link, struct cuda_library_plan, link);

        if (memcmp(&plan->key, key, sizeof(*key)) == 0) {
            return plan;
        }
    }
    return NULL;
}

const struct cuda_library_plan *cuda_plan_of(const struct cuda_plans *plans,
                                             const struct cuda_plan_key *key)
{
    const struct cuda_library_plan *plan = find(plans, key);

    return plan != NULL && plan->failure.status == PLASMON_OK ? plan : NULL;
}

plasmon_status_t cuda_plans_look(const struct cuda_call *call,
                                 const struct cuda_plan_key *key, bool keep)
{
    struct cuda_plans *plans       = &call->cuda->plans;
    struct cuda_library_plan *plan = find(plans, key);
    plasmon_status_t status;

    if (plan == NULL) {
        return PLASMON_EAGAIN;
    }
    if (plan->failure.status != PLASMON_OK) {
        status = pl_err_set(call->err, plan->failure.status, "%s", plan->failure.text);
        plan_destroy(plans, plan); /* there is nothing in it: who comes next tries again */
        return status;
    }
    plan->used = ++plans->clock;
    plan->kept = plan->kept || keep;
    pl_list_remove(&plan->link);
    pl_list_add_head(&plans->list, &plan->link); /* the list is in the order of use */
    return PLASMON_OK;
}

/* Down to one less than there may be, the longest unused first, as long as they may go. */
static void evict(struct cuda_plans *plans)
{
    struct pl_list *link = plans->list.prev;

    while (plans->count >= CUDA_PLANS_MAX && link != &plans->list) {
        struct cuda_library_plan *plan =
            pl_container_of(link, struct cuda_library_plan, link);

        link = link->prev;
        if (!plan->kept && plan->used <= plans->run) {
            plan_destroy(plans, plan);
        }
    }
}

plasmon_status_t cuda_plans_make(const struct cuda_call *call,
                                 const struct cuda_plan_key *key, cuda_plan_make_fn make)
{
    struct cuda_plans *plans = &call->cuda->plans;
    struct cuda_library_plan *plan;
    plasmon_status_t status;

    if (find(plans, key) != NULL) {
        return PLASMON_OK;
    }
    evict(plans);
    plan = PL_NEW(struct cuda_library_plan);
    if (plan == NULL) {
        return pl_err_set(call->err, PLASMON_ENOMEM, "%s: no memory for a plan",
                          call->function->name);
    }
    plan->key  = *key;
    plan->used = ++plans->clock;
    pl_list_init(&plan->link);
    pl_list_add_head(&plans->list, &plan->link);
    plans->count++;
    status = device_enter(call->cuda->device);
    status = status == PLASMON_OK ? make(call, plan)
                                  : pl_err_set(call->err, status, "%s: the device is lost",
                                               call->function->name);
    if (status != PLASMON_OK && call->err != NULL) {
        plan->failure = *call->err;
    }
    plan->failure.status = status;
    return status;
}

void cuda_plans_release(struct cuda_plans *plans)
{
    for (struct pl_list *link = plans->list.next; link != &plans->list; link = link->next) {
        pl_container_of(link, struct cuda_library_plan, link)->kept = false;
    }
}

/* ---------------------------------------------------------------------------- libraries */

/* dir "": where the loader looks. */
static void *open_in(const char *dir, const char *name)
{
    char path[512];
    int length =
        snprintf(path, sizeof(path), "%s%s%s", dir, dir[0] != '\0' ? "/" : "", name);

    return length > 0 && (size_t)length < sizeof(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
                                                       : NULL;
}

/*
 * What a library needs lies beside it, where the loader need not look. A name that is not there
 * belongs to another version.
 */
static void *open_with_needs(const char *dir, const char *const *names,
                             const char *const *needs)
{
    void *library = NULL;

    for (size_t i = 0; needs[i] != NULL; i++) {
        (void)open_in(dir, needs[i]);
    }
    for (size_t i = 0; names[i] != NULL && library == NULL; i++) {
        library = open_in(dir, names[i]);
    }
    return library;
}

/* The folder that cuBLAS came from; false: unknown. */
static bool folder_of_blas(struct device *device, char *out, size_t bytes)
{
    void *symbol = device_cublas_symbol(device, "cublasCreate_v2");
    Dl_info info;
    const char *slash;

    if (symbol == NULL || dladdr(symbol, &info) == 0 || info.dli_fname == NULL) {
        return false;
    }
    slash = strrchr(info.dli_fname, '/');
    if (slash == NULL || (size_t)(slash - info.dli_fname) >= bytes) {
        return false;
    }
    memcpy(out, info.dli_fname, (size_t)(slash - info.dli_fname));
    out[slash - info.dli_fname] = '\0';
    return true;
}

void *cuda_library_open(struct device *device, const char *title, const char *const *names,
                        const char *const *needs, struct pl_err *err)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    void *library                        = NULL;
    char dir[400];

    if (folder_of_blas(device, dir, sizeof(dir))) { /* of the same toolkit */
        library = open_with_needs(dir, names, needs);
    }
    if (library == NULL) {
        library = open_with_needs("", names, needs);
    }
    for (size_t i = 0; i < PL_COUNT(variables) && library == NULL; i++) {
        const char *root = getenv(variables[i]);

        if (root != NULL && strlen(root) + sizeof("/lib64") <= sizeof(dir)) {
            (void)snprintf(dir, sizeof(dir), "%s/lib64", root);
            library = open_with_needs(dir, names, needs);
        }
    }
    if (library == NULL) {
        library = open_with_needs("/usr/local/cuda/lib64", names, needs);
    }
    if (library == NULL) {
        (void)pl_err_set(
            err, PLASMON_ENOLIB,
            "%s or %s not found: install %s of the CUDA toolkit on the worker's "
            "host, or set CUDA_HOME or LD_LIBRARY_PATH",
            names[0], names[1], title);
    }
    return library;
}

plasmon_status_t cuda_library_symbols(void *library, const char *title,
                                      const char *const *names, void (**out)(void),
                                      uint32_t count, struct pl_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, names[i]);

        if (symbol == NULL) {
            return pl_err_set(err, PLASMON_ENOLIB, "%s has no %s: install another version",
                              title, names[i]);
        }
        memcpy(&out[i], &symbol, sizeof(symbol));
    }
    return PLASMON_OK;
}
