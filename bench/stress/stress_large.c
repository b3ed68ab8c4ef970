/*
 * Large objects. A sample of each is compared; nothing here is overwritten in
 * place, so nothing here is lost with a worker.
 *
 * LARGE is one object that its device has to grow for, and a copy of it on
 * another device.
 *
 * FLOOD is a row of objects, each released as soon as its sample was asked for,
 * that together are several times what the device may use. So the front of the
 * device's queue waits for memory again and again (docs/ordering.md), and none
 * may fail: all that lives at a time is the small arrays, and one object of
 * each thread whose release is still on its way beside the one that is made.
 * These are four times 12 MiB at most, in two chunks of 64 MiB.
 */
#include <inttypes.h>
#include <stdio.h>

#include "bench/stress/stress.h"

#define SAMPLE      64
#define FLOOD_BYTES (12u << 20)

static struct plasmon_ref *fill(struct stress_thread *thread, uint64_t bytes,
                                uint64_t value, int device)
{
    const struct plasmon_shape shape = {
        .dtype = PLASMON_I64, .ndim = 1, .dim = {(int64_t)(bytes / 8)}};
    const struct plasmon_arg out  = {.mode = PLASMON_OUT, .shape = &shape};
    const plasmon_scalar_t scalar = {.i = (int64_t)value};
    struct plasmon_call call      = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function     = "fill_int";
    call.args         = &out;
    call.arg_count    = 1;
    call.scalars      = &scalar;
    call.scalar_count = 1;
    call.device       = stress_device(thread, device);
    call.retries      = STRESS_RETRIES;
    stress_must(thread, plasmon_submit(thread->ground->client, &call, &ref, NULL),
                "fill_int of a large object");
    return ref;
}

static struct plasmon_ref *copy(struct stress_thread *thread, struct plasmon_ref *from,
                                int device)
{
    const struct plasmon_arg args[2] = {{.mode = PLASMON_OUT},
                                        {.mode = PLASMON_IN, .ref = from}};
    struct plasmon_call call         = PLASMON_CALL_INIT;
    struct plasmon_ref *ref;

    call.function  = "copy";
    call.args      = args;
    call.arg_count = 2;
    call.device    = stress_device(thread, device);
    call.retries   = STRESS_RETRIES;
    stress_must(thread, plasmon_submit(thread->ground->client, &call, &ref, NULL),
                "copy of a large object");
    return ref;
}

static void release(struct stress_thread *thread, struct plasmon_ref *ref)
{
    stress_must(thread, plasmon_release(thread->ground->client, ref), "plasmon_release");
    atomic_fetch_add(&thread->ground->covered.frees, 1);
}

/* Elements all over it. */
static struct plasmon_ref *sample_of(struct stress_thread *thread, struct plasmon_ref *ref,
                                     uint64_t bytes, uint32_t where)
{
    const int64_t start  = (int64_t)(where % 1000);
    const int64_t count  = SAMPLE;
    const int64_t stride = ((int64_t)(bytes / 8) - start - 1) / count;
    struct plasmon_ref *view;

    stress_must(thread,
                plasmon_view(thread->ground->client, ref, &start, &count, &stride, &view),
                "plasmon_view");
    return view;
}

static void compare(struct stress_thread *thread, struct plasmon_ref *sample, uint64_t want,
                    const char *what)
{
    plasmon_status_t status =
        plasmon_get(thread->ground->client, sample, thread->scratch,
                    SAMPLE * sizeof(uint64_t), STRESS_READ_TIMEOUT_MS);

    if (status != PLASMON_OK) {
        stress_judge(thread, status, false, SAMPLE * sizeof(uint64_t), what);
        return;
    }
    for (size_t i = 0; i < SAMPLE; i++) {
        if (thread->scratch[i] != want) {
            stress_fail(thread,
                        "%s: element %zu of the sample is %016" PRIx64 ", not %016" PRIx64,
                        what, i, thread->scratch[i], want);
        }
    }
}

void stress_large_play(struct stress_thread *thread, const struct stress_step *step)
{
    struct plasmon_ref *filled = fill(thread, step->number, step->number, step->device);
    struct plasmon_ref *copied =
        copy(thread, filled, (step->device + 1) % (int)thread->ground->devices);
    struct plasmon_ref *sample = sample_of(thread, copied, step->number, step->delay_us);

    release(thread, filled);
    compare(thread, sample, step->number, "large copy");
    release(thread, sample);
    release(thread, copied);
}

void stress_flood_play(struct stress_thread *thread, const struct stress_step *step)
{
    struct plasmon_ref *sample[STRESS_FLOOD_MAX];
    uint64_t value = thread->graph;

    for (uint32_t i = 0; i < step->repeat; i++) {
        struct plasmon_ref *filled = fill(thread, FLOOD_BYTES, value + i, step->device);
        struct plasmon_ref *view   = sample_of(thread, filled, FLOOD_BYTES, step->delay_us);

        sample[i] = copy(thread, view, step->device);
        release(thread, view);
        release(thread, filled);
    }
    for (uint32_t i = 0; i < step->repeat; i++) {
        compare(thread, sample[i], value + i, "sample of a flood");
        release(thread, sample[i]);
    }
}
