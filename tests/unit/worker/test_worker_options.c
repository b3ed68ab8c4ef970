/* The worker's command line: what the store writes is understood, and what is wrong is named. */
#include <stdlib.h>

#include "tests/harness/test.h"
#include "worker/options.h"

static plasmon_status_t parse(struct worker_options *options, struct pl_err *err,
                              const char *const *words, int count)
{
    char *argv[32] = {(char *)"plasmon-worker"};

    for (int i = 0; i < count; i++) {
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    return worker_options_parse(count + 1, argv, options, err);
}
#define PARSE(...)                                            \
    parse(&options, &err, (const char *const[]){__VA_ARGS__}, \
          (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

TEST(everything_the_store_writes_is_understood)
{
    struct worker_options options;
    struct pl_err err;

    ASSERT_OK(PARSE("--control-fd", "3", "--head-fd", "4", "--kind", "cuda", "--ordinal",
                    "2", "--host-device", "1", "--device-memory", "1099511627776", "--node",
                    "n1", "--incarnation", "7", "--in-haste"));
    ASSERT_EQ(options.control_fd, 3);
    ASSERT_EQ(options.head_fd, 4);
    ASSERT_EQ(options.kind, DEVICE_CUDA);
    ASSERT_EQ(options.ordinal, 2);
    ASSERT_EQ(options.host_device, 1);
    ASSERT_EQ(options.device_memory, 1099511627776);
    ASSERT_STR(options.node, "n1");
    ASSERT_EQ(options.incarnation, 7);
    ASSERT_TRUE(options.in_haste);
}

TEST(what_is_wrong_is_named)
{
    struct worker_options options;
    struct pl_err err;

    ASSERT_STATUS(PARSE("--control-fd", "three"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--control-fd wants a number, not 'three'");
    ASSERT_STATUS(PARSE("--ordinal", "4294967295"), PLASMON_EINVAL);
    ASSERT_STATUS(PARSE("--ordinal", "-1"), PLASMON_EINVAL);
    ASSERT_STATUS(PARSE("--kind", "tpu"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "cpu or cuda");
    ASSERT_STATUS(PARSE("--node"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--node wants a value");
    ASSERT_STATUS(PARSE("--frobnicate"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--frobnicate");
}

TEST(run_streams_come_from_the_environment_and_the_option_wins)
{
    struct worker_options options;
    struct pl_err err;

    ASSERT_EQ(setenv("PLASMON_RUN_STREAMS", "3", 1), 0);
    ASSERT_OK(PARSE("--help"));
    ASSERT_EQ(options.run_streams, 3);
    ASSERT_OK(PARSE("--help", "--run-streams", "1"));
    ASSERT_EQ(options.run_streams, 1);
    ASSERT_STATUS(PARSE("--help", "--run-streams", "9"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "at most 8, not 9");
    ASSERT_EQ(setenv("PLASMON_RUN_STREAMS", "many", 1), 0);
    ASSERT_STATUS(PARSE("--help"), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "PLASMON_RUN_STREAMS wants a number, not 'many'");
}

TEST(it_cannot_serve_without_a_store_and_a_head)
{
    struct worker_options options;
    struct pl_err err;

    ASSERT_STATUS(PARSE("--control-fd", "3"), PLASMON_EINVAL);
    ASSERT_STATUS(PARSE("--head", "h:1"), PLASMON_EINVAL);
    ASSERT_OK(PARSE("--probe"));
    ASSERT_OK(PARSE("--help"));
}

TEST_MAIN()
