/* Numbers that no single message could carry: they must only take longer. */
#include "plasmon/plasmon.h"
#include "tests/harness/test.h"

enum { READERS = 70000, WAIT_MS = 60000 };

TEST(a_writer_waits_for_more_readers_than_one_message_can_name)
{
    struct plasmon_options options   = PLASMON_OPTIONS_INIT;
    const struct plasmon_shape shape = {PLASMON_F64, 1, {4}};
    const double zeros[4]            = {1, 2, 3, 4};
    double out[4];
    struct plasmon_client *px;
    struct plasmon_ref *x, *busy, *task;
    struct plasmon_arg spin_arg[1], read_args[1], write_args[2];
    plasmon_scalar_t micros  = {.i = 1500000};
    plasmon_scalar_t factor  = {.f = 2.0};
    struct plasmon_call call = PLASMON_CALL_INIT;

    test_set_timeout(90);
    options.gpus        = "none";
    options.cpu_devices = 1;
    ASSERT_OK(plasmon_init(&options, &px));
    ASSERT_OK(plasmon_put(px, zeros, &shape, NULL, &x));
    ASSERT_OK(plasmon_put(px, zeros, &shape, NULL, &busy));

    /* Keeps the device busy, so that every reader is still to come when the writer is submitted. */
    spin_arg[0]       = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = x};
    call.function     = "spin";
    call.args         = spin_arg;
    call.arg_count    = 1;
    call.scalars      = &micros;
    call.scalar_count = 1;
    ASSERT_OK(plasmon_submit(px, &call, NULL, NULL));

    read_args[0]      = (struct plasmon_arg){.mode = PLASMON_IN, .ref = x};
    call.function     = "touch";
    call.args         = read_args;
    call.scalar_count = 0;
    for (int i = 0; i < READERS; i++) {
        ASSERT_OK(plasmon_submit(px, &call, NULL, NULL));
    }

    write_args[0]     = (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = x};
    write_args[1]     = (struct plasmon_arg){.mode = PLASMON_IN, .ref = busy};
    call.function     = "axpy";
    call.args         = write_args;
    call.arg_count    = 2;
    call.scalars      = &factor;
    call.scalar_count = 1;
    ASSERT_OK(plasmon_submit(px, &call, NULL, &task));
    ASSERT_OK(plasmon_wait(px, &task, 1, 1, WAIT_MS, NULL, NULL));
    ASSERT_OK(plasmon_state(px, task));
    ASSERT_OK(plasmon_get(px, x, out, sizeof(out), WAIT_MS));
    for (int i = 0; i < 4; i++) {
        ASSERT_TRUE(out[i] == 3.0 * zeros[i]);
    }
    plasmon_finish(px);
}

TEST_MAIN()
