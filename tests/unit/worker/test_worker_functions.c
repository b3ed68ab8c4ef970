/*
 * Functions that clients define, as the core sees them: a launch waits for its function, and
 * nothing goes while code is loaded.
 */
#include "kernels/signature.h"
#include "tests/unit/worker/fake.h"

#define OWN WIRE_FUNCTION_FIRST

static struct kernel_signature *own(void)
{
    struct kernel_signature *signature = NULL;

    ASSERT_OK(kernel_signature_parse("own(out f32[n] x)", &signature, NULL));
    return signature;
}

static void send_own(struct fake *fake, uint64_t seq, uint32_t slot)
{
    static uint32_t shape[WIRE_LAUNCH_SHAPE_COUNT] = {3, 1, 1, 64, 1, 1, 0};
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    launch.message.function       = OWN;
    launch.message.n_launch_shape = PL_COUNT(shape);
    launch.message.launch_shape   = shape;
    fake_launch_fresh(&launch, slot, 4);
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(a_launch_waits_for_its_function_and_holds_up_what_is_behind_it)
{
    struct kernel_signature *signature = own();
    struct fake *fake                  = fake_create();

    fake->own_status = PLASMON_EAGAIN;
    fake_fill(fake, 1, 1, 4);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    send_own(fake, 2, 2);
    fake_fill(fake, 3, 3, 4);
    ASSERT_STR(fake_calls(fake), ""); /* not even the fill behind it */
    ASSERT_TRUE(!fake->own_quiet);    /* the first fill is on the device */

    fake_finish(fake, 0, 1); /* nothing is any more: the core asks again by itself */
    ASSERT_TRUE(fake->own_quiet);
    ASSERT_STR(fake_calls(fake), "");

    fake->own = &signature->function;
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "own:0:own:64 run:1:fill signal:0:2 signal:1:3");
    fake_destroy(fake);
    kernel_signature_destroy(signature);
}

static void send_two(struct fake *fake)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};

    for (uint32_t i = 0; i < 2; i++) {
        fake_launch_init(&launch[i], i + 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
        launch[i].message.function = OWN;
        fake_launch_fresh(&launch[i], i + 1, 4);
        if (i > 0) {
            fake_launch_after(&launch[i], FAKE_BASE + FAKE_US, i);
        }
    }
    command.launches   = launches;
    command.n_launches = 2;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
}

/* It may take seconds, and somebody may wait for it alone. */
TEST(where_words_are_cheap_each_function_has_its_own)
{
    struct kernel_signature *signature = own();
    struct fake *fake                  = fake_create();

    fake->own = &signature->function;
    send_two(fake);
    ASSERT_STR(fake_calls(fake), "own:0:own:0 own:0:own:0 signal:0:2");
    fake_destroy(fake);

    fake              = fake_create();
    fake->own         = &signature->function;
    fake->words_cheap = true;
    fake_restart(fake);
    (void)fake_calls(fake);
    send_two(fake);
    ASSERT_STR(fake_calls(fake), "own:0:own:0 signal:0:1 own:0:own:0 signal:0:2");
    fake_destroy(fake);
    kernel_signature_destroy(signature);
}

/* If it does not end, what lies before it must be seen to be done. */
TEST(where_words_are_cheap_what_lies_before_a_function_has_its_word)
{
    struct kernel_signature *signature = own();
    struct fake *fake                  = fake_create();
    struct fake_launch launch;

    fake->own         = &signature->function;
    fake->words_cheap = true;
    fake_restart(fake);
    (void)fake_calls(fake);
    worker_core_hold(fake->core);
    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    launch.message.function = OWN;
    fake_launch_fresh(&launch, 2, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_OK(fake_send(fake, &launch));
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1 own:0:own:0 signal:0:2");
    fake_destroy(fake);
    kernel_signature_destroy(signature);
}

TEST(the_words_of_what_is_enqueued_are_written_before_a_launch_waits_for_its_function)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->own_status = PLASMON_EAGAIN;
    fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    send_own(fake, 2, 2);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_destroy(fake);
}

TEST(nothing_is_enqueued_while_the_core_is_held)
{
    struct kernel_signature *signature = own();
    struct fake *fake                  = fake_create();

    fake->own = &signature->function;
    worker_core_hold(fake->core);
    worker_core_hold(fake->core);
    fake_fill(fake, 1, 1, 4);
    send_own(fake, 2, 2);
    ASSERT_STR(fake_calls(fake), "");
    worker_core_resume(fake->core);
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "");
    worker_core_resume(fake->core);
    worker_core_complete(fake->core); /* looks at the queue, for somebody resumed it */
    ASSERT_STR(fake_calls(fake), "run:0:fill own:1:own:64 signal:0:1 signal:1:2");
    fake_destroy(fake);
    kernel_signature_destroy(signature);
}

TEST(a_function_that_does_not_compile_fails_its_launch_with_all_that_was_said)
{
    struct fake *fake = fake_create();

    fake->own_status = PLASMON_ECOMPILE;
    send_own(fake, 1, 1);
    fake_fill(fake, 2, 2, 4);
    ASSERT_CONTAINS(fake_calls(fake), "run:");
    worker_core_complete(fake->core);
    ASSERT_CONTAINS(fake_reports(fake), "failed:1:ECOMPILE");
    ASSERT_STR(fake->last_text, "all of the compiler's words");
    fake_destroy(fake);
}

TEST(a_launch_that_is_cancelled_while_it_waits_for_its_function_lets_others_go)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    uint64_t seq                       = 1;
    struct pl_err err                  = {0};

    fake->own_status = PLASMON_EAGAIN;
    send_own(fake, 1, 1);
    fake_fill(fake, 2, 2, 4);
    ASSERT_STR(fake_calls(fake), "");
    command.n_cancel = 1;
    command.cancel   = &seq;
    ASSERT_OK(worker_core_command(fake->core, &command, &err));
    worker_core_advance(fake->core);
    ASSERT_CONTAINS(fake_calls(fake), "run:");
    worker_core_complete(fake->core);
    ASSERT_CONTAINS(fake_reports(fake), "failed:1:ECANCELLED");
    fake_destroy(fake);
}

TEST(a_launch_waits_until_what_it_needs_is_prepared_with_nothing_on_the_device)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->prepare_of     = "copy";
    fake->prepare_status = PLASMON_EAGAIN;
    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "copy");
    fake_launch_fresh(&launch, 2, 4);
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    fake_fill(fake, 3, 3, 4);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1"); /* and not the fill behind it */
    ASSERT_TRUE(!fake->prepare_quiet && !fake->prepare_keep);

    fake_finish(fake, 0, 1);
    ASSERT_TRUE(fake->prepare_quiet); /* the core asked again by itself */
    ASSERT_STR(fake_calls(fake), "");

    worker_core_hold(fake->core); /* as who prepares does */
    fake->prepare_status = PLASMON_OK;
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake), "");
    worker_core_resume(fake->core);
    worker_core_complete(fake->core);
    ASSERT_CONTAINS(fake_calls(fake), "run:0:copy");
    fake_destroy(fake);
}

TEST(what_cannot_be_prepared_fails_its_launch_alone)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->prepare_of     = "copy";
    fake->prepare_status = PLASMON_ENOLIB;
    fake_fill(fake, 1, 1, 4);
    fake_launch_init(&launch, 2, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "copy");
    fake_launch_fresh(&launch, 2, 4);
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    fake_fill(fake, 3, 3, 4);
    fake_finish(fake, 0, 3);
    worker_core_complete(fake->core);
    ASSERT_CONTAINS(fake_reports(fake), "failed:2:ENOLIB");
    ASSERT_STR(fake->last_text, "no plan for copy");
    fake_destroy(fake);
}

TEST_MAIN()
