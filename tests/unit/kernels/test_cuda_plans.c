/*
 * The plans of cuFFT and cuSOLVER as a cache: what stays, what goes, what is told. The libraries
 * are fakes, so this needs no GPU; tests/gpu/test_kernels_cuda.c has the real ones.
 */
#include "kernels/cuda_int.h"
#include "kernels/cuda_plans.h"

#include <string.h>

#include "tests/harness/test.h"

static uint32_t made_count;
static uint32_t destroyed_count;
static int destroyed_last;
static plasmon_status_t make_status;

void cuda_fft_plan_destroy(const struct cuda_fft_library *library,
                           struct cuda_library_plan *plan)
{
    (void)library;
    destroyed_count++;
    destroyed_last = plan->handle;
}

void cuda_fft_close(struct cuda_fft_library *library)
{
    (void)library;
}

void cuda_solver_close(struct cuda_solver_library *library)
{
    (void)library;
}

static plasmon_status_t make(const struct cuda_call *call, struct cuda_library_plan *plan)
{
    made_count++;
    if (make_status != PLASMON_OK) {
        return pl_err_set(call->err, make_status, "no library");
    }
    plan->made       = true;
    plan->handle     = (int)plan->key.dim[0];
    plan->work_bytes = 64;
    return PLASMON_OK;
}

struct world {
    struct kernel_cuda cuda;
    struct cuda_call call;
    struct pl_err err;
};

static void world_open(struct world *world)
{
    struct device_config config = {.bytes_max = 1 << 20};

    memset(world, 0, sizeof(*world));
    ASSERT_OK(device_open(DEVICE_CPU, 0, &config, &world->cuda.device, &world->err));
    cuda_plans_init(&world->cuda.plans);
    world->call = (struct cuda_call){
        .cuda = &world->cuda, .function = kernel_by_name("fft"), .err = &world->err};
}

static void world_close(struct world *world)
{
    cuda_plans_finish(&world->cuda.plans);
    device_close(world->cuda.device);
    ASSERT_EQ(destroyed_count, made_count);
}

static struct cuda_plan_key key_of(int64_t n)
{
    return (struct cuda_plan_key){
        .kind = 0x29, .dtype = PL_C64, .rank = 1, .dim = {n, 0, 0}};
}

static plasmon_status_t look(struct world *world, int64_t n, bool keep)
{
    struct cuda_plan_key key = key_of(n);

    return cuda_plans_look(&world->call, &key, keep);
}

/* As a worker does for its front: asked, made, asked again; `run`: and run. */
static void want(struct world *world, int64_t n, bool keep, bool run)
{
    struct cuda_plan_key key = key_of(n);

    if (look(world, n, keep) == PLASMON_EAGAIN) {
        ASSERT_OK(cuda_plans_make(&world->call, &key, make));
        ASSERT_OK(look(world, n, keep));
    }
    ASSERT_EQ(cuda_plan_of(&world->cuda.plans, &key)->handle, n);
    if (run) {
        world->cuda.plans.run = world->cuda.plans.clock;
    }
}

TEST(a_plan_is_made_once_for_a_shape)
{
    struct world world;

    world_open(&world);
    ASSERT_STATUS(look(&world, 8, false), PLASMON_EAGAIN);
    for (int i = 0; i < 3; i++) {
        want(&world, 8, false, true);
        want(&world, 9, false, true);
    }
    ASSERT_EQ(made_count, 2);
    world_close(&world);
}

TEST(the_plan_that_was_used_longest_ago_goes_when_there_are_too_many)
{
    struct world world;

    world_open(&world);
    for (int64_t n = 1; n <= CUDA_PLANS_MAX; n++) {
        want(&world, n, false, true);
    }
    want(&world, 1, false, true); /* now 2 is the oldest */
    ASSERT_EQ(destroyed_count, 0);
    want(&world, 1000, false, true);
    ASSERT_EQ(destroyed_count, 1);
    ASSERT_EQ(destroyed_last, 2);
    ASSERT_EQ(world.cuda.plans.count, CUDA_PLANS_MAX);
    ASSERT_STATUS(look(&world, 2, false), PLASMON_EAGAIN);
    ASSERT_OK(look(&world, 1, false));
    world_close(&world);
}

TEST(what_the_launch_at_hand_wants_stays_however_much_it_is)
{
    struct world world;

    world_open(&world);
    for (int64_t n = 1; n <= 3 * CUDA_PLANS_MAX; n++) {
        want(&world, n, false, false); /* one graph of many calls, not enqueued yet */
    }
    ASSERT_EQ(destroyed_count, 0);
    world.cuda.plans.run = world.cuda.plans.clock;
    want(&world, 1000, false, true);
    ASSERT_EQ(world.cuda.plans.count, CUDA_PLANS_MAX);
    world_close(&world);
}

TEST(what_a_recorded_graph_has_in_it_stays_until_it_is_released)
{
    struct world world;

    world_open(&world);
    want(&world, 7, true, true);
    for (int64_t n = 100; n < 100 + 2 * CUDA_PLANS_MAX; n++) {
        want(&world, n, false, true);
    }
    ASSERT_OK(look(&world, 7, false));
    cuda_plans_release(&world.cuda.plans);
    for (int64_t n = 500; n < 500 + 2 * CUDA_PLANS_MAX; n++) {
        want(&world, n, false, true);
    }
    ASSERT_STATUS(look(&world, 7, false), PLASMON_EAGAIN);
    world_close(&world);
}

TEST(what_could_not_be_made_is_told_once_and_tried_again)
{
    struct cuda_plan_key key = key_of(5);
    struct world world;

    world_open(&world);
    make_status = PLASMON_ENOLIB;
    ASSERT_STATUS(cuda_plans_make(&world.call, &key, make), PLASMON_ENOLIB);
    ASSERT_NULL(cuda_plan_of(&world.cuda.plans, &key));
    world.err.text[0] = '\0';
    ASSERT_STATUS(look(&world, 5, false), PLASMON_ENOLIB);
    ASSERT_STR(world.err.text, "no library");
    ASSERT_STATUS(look(&world, 5, false), PLASMON_EAGAIN);
    make_status = PLASMON_OK;
    want(&world, 5, false, true);
    destroyed_count++; /* of the one that failed there was nothing to destroy */
    world_close(&world);
}

TEST(a_library_that_is_missing_is_named_with_the_remedy)
{
    static const char *const names[] = {"libplasmon-none.so.2", "libplasmon-none.so.1",
                                        NULL};
    static const char *const needs[] = {NULL};
    struct world world;

    world_open(&world);
    ASSERT_NULL(cuda_library_open(world.cuda.device, "cuNone", names, needs, &world.err));
    ASSERT_STATUS(world.err.status, PLASMON_ENOLIB);
    ASSERT_CONTAINS(world.err.text,
                    "libplasmon-none.so.2 or libplasmon-none.so.1 not found: "
                    "install cuNone of the CUDA toolkit");
    world_close(&world);
}

TEST_MAIN()
