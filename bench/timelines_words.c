/*
 * Words in host memory, as Plasmon's timelines: written and waited for through device/ alone, on
 * GPUs and on CPU devices. And the kernels of CPU devices, which those of timelines_kernel.cu stand
 * beside.
 */
#include "bench/bench.h"
#include "bench/timelines.h"

static plasmon_status_t host_init(struct timelines_side *side, struct pl_err *err)
{
    (void)side; /* the page is registered already, for the gate */
    (void)err;
    return PLASMON_OK;
}

static plasmon_status_t host_signal(struct timelines_side *side, uint64_t n)
{
    return device_signal(side->stream, side->page->word[side->role], n);
}

static plasmon_status_t host_wait(struct timelines_side *side, uint64_t n)
{
    return device_wait(side->stream, side->page->word[1 - side->role], n);
}

const struct timelines_way_ops timelines_host_words = {.name   = "host words",
                                                       .init   = host_init,
                                                       .signal = host_signal,
                                                       .wait   = host_wait};

/* --------------------------------------------------------------- kernels of CPU devices */

static plasmon_status_t cpu_spin(void *args, struct pl_err *err)
{
    uint64_t until_ns = pl_now_ns() + *(const uint64_t *)args;

    (void)err; /* cannot fail */
    while (pl_now_ns() < until_ns) {
        pl_cpu_relax();
    }
    return PLASMON_OK;
}

static plasmon_status_t cpu_exchange(void *user, struct pl_err *err)
{
    const struct timelines_exchange *args = user;
    const uint64_t *landing               = (const uint64_t *)(uintptr_t)args->landing;
    uint64_t *payload                     = (uint64_t *)(uintptr_t)args->payload;
    uint64_t wrong                        = 0;

    (void)err; /* what is wrong is counted */
    for (uint64_t i = 0; i < args->words; i++) {
        wrong += args->expect != 0 &&
                 landing[i] != TIMELINES_PATTERN(1 - args->role, args->expect, i);
        if (args->round != 0) {
            payload[i] = TIMELINES_PATTERN(args->role, args->round, i);
        }
    }
    *(uint64_t *)(uintptr_t)args->wrong += wrong;
    return PLASMON_OK;
}

plasmon_status_t timelines_kernels_init(struct timelines_side *side, struct pl_err *err)
{
    if (!side->cuda) {
        side->spin_units = TIMELINES_SPIN_NS;
        return PLASMON_OK;
    }
#ifdef PLASMON_HAVE_CUDA
    return timelines_cuda_init(side, err);
#else
    return pl_err_set(err, PLASMON_ENOTSUP, "this build has no CUDA");
#endif
}

plasmon_status_t timelines_spin(struct timelines_side *side, uint64_t units)
{
#ifdef PLASMON_HAVE_CUDA
    if (side->cuda) {
        return timelines_cuda_spin(side, units);
    }
#endif
    return device_cpu_launch(side->stream, cpu_spin, &units, sizeof(units), 0);
}

plasmon_status_t timelines_exchange(struct timelines_side *side,
                                    const struct timelines_exchange *args)
{
#ifdef PLASMON_HAVE_CUDA
    if (side->cuda) {
        return timelines_cuda_exchange(side, args);
    }
#endif
    return device_cpu_launch(side->stream, cpu_exchange, args, sizeof(*args), 0);
}
