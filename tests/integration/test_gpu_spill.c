/*
 * Host memory for spilling on a machine with a GPU: it is page-locked piece by piece, and used as
 * far as it is. With real processes and a driver that has no GPU (tests/harness/gpu/fake_cuda.h),
 * which locks one piece and then waits for the test; it refuses a copy from or to what is not
 * locked.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/started.h"

enum { MIB = 1 << 20, VALUE = 8 * MIB / 4 }; /* elements */
enum { FIRST = 20, ALL = 32 };               /* a device holds 7 values, a piece 16 */

static char gate[256];

static struct plasmon_client *start(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    int fd;

    cluster_tag();
    (void)snprintf(gate, sizeof(gate), "%s/gate", cluster_folder());
    fd = open(gate, O_CREAT | O_WRONLY, 0600);
    ASSERT_TRUE(fd >= 0);
    (void)close(fd);
    ASSERT_EQ(setenv("FAKE_CUDA_LOCK_GATE", gate, 1), 0);
    options.gpus          = "1";
    options.device_memory = 64 * MIB;
    options.spill_memory  = 256 * MIB; /* two pieces */
    options.spill_dirs    = "none";
    options.write_back    = PLASMON_NO_WRITE_BACK;
    CLUSTER_OK(plasmon_init(&options, &client));
    cluster_watch(client);
    return client;
}

static void expect_status(struct plasmon_client *client, const char *wanted)
{
    char *text;

    CLUSTER_OK(plasmon_doctor(client, 0, &text));
    ASSERT_CONTAINS(text, wanted);
    free(text);
}

TEST(values_go_to_the_first_piece_while_the_others_are_still_to_be_page_locked)
{
    struct plasmon_client *client = start();
    struct plasmon_ref *refs[ALL];

    for (int i = 0; i < FIRST; i++) {
        refs[i] = cluster_put(client, VALUE, (float)i, 0);
    }
    for (int i = 0; i < FIRST; i++) {
        cluster_expect_ramp(client, refs[i], VALUE, (float)i, 1);
    }

    for (int i = FIRST; i < ALL; i++) {
        refs[i] = cluster_fill(client, VALUE, 1, 0); /* of this driver: memory alone */
    }
    ASSERT_STATUS(plasmon_wait(client, refs, ALL, ALL, 300, NULL, NULL), PLASMON_ETIMEDOUT);
    expect_status(client, "128.0 MiB of 256.0 MiB are made");
    ASSERT_EQ(unlink(gate), 0);
    CLUSTER_OK(plasmon_wait(client, refs, ALL, ALL, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < FIRST; i++) {
        cluster_expect_ramp(client, refs[i], VALUE, (float)i, 1);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST_MAIN()
