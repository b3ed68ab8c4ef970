/* The command line, and what plasmon-worker --probe may say. */
#include "store/options.h"

#include <stdlib.h>

#include "store/probe.h"
#include "tests/harness/test.h"

static plasmon_status_t parse(struct store_options *out, struct pl_err *err, const char *a,
                              const char *b, const char *c)
{
    char *argv[] = {(char *)(uintptr_t) "plasmon-store", (char *)(uintptr_t)a,
                    (char *)(uintptr_t)b, (char *)(uintptr_t)c, NULL};
    int argc     = 1;

    while (argv[argc] != NULL) {
        argc++;
    }
    return store_options_parse(argc, argv, out, err);
}

TEST(options_have_the_documented_defaults)
{
    struct store_options options;
    struct pl_err err;

    ASSERT_OK(parse(&options, &err, "--head=127.0.0.1:4711", NULL, NULL));
    ASSERT_STR(options.head, "127.0.0.1:4711");
    ASSERT_TRUE(options.cpu_devices == STORE_AUTO);
    ASSERT_TRUE(options.gpus == STORE_AUTO);
    ASSERT_EQ(options.device_memory, 0);
    ASSERT_TRUE(!options.embedded);
}

TEST(no_directory_for_spilling_is_another_thing_than_none_given)
{
    struct store_options options;
    struct pl_err err;

    ASSERT_OK(parse(&options, &err, "--head=unix:/x", NULL, NULL));
    ASSERT_TRUE(options.spill_dir_count == 0 && !options.spill_no_dir);
    ASSERT_OK(parse(&options, &err, "--head=unix:/x", "--spill-dir=none", NULL));
    ASSERT_TRUE(options.spill_dir_count == 0 && options.spill_no_dir);
}

TEST(values_come_after_a_space_or_an_equals_sign)
{
    struct store_options options;
    struct pl_err err;

    ASSERT_OK(parse(&options, &err, "--head", "unix:/x", "--device-memory=3G"));
    ASSERT_EQ(options.device_memory, 3ll << 30);
    ASSERT_OK(parse(&options, &err, "--head=h:1", "--gpus", "none"));
    ASSERT_EQ(options.gpus, 0);
    ASSERT_OK(
        parse(&options, &err, "--embedded", "--client-fd=7", "--head-arg=--transfer=host"));
    ASSERT_STR(options.head_args[0], "--transfer=host");
    ASSERT_EQ(options.head_arg_count, 1);
}

TEST(wrong_options_are_refused_by_name)
{
    static const struct {
        const char *a, *b, *c, *says;
    } wrong[] = {
        {NULL, NULL, NULL, "--head is missing"},
        {"--nonsense", NULL, NULL, "--nonsense"},
        {"--head=h:1", "--cpu-devices", NULL, "--cpu-devices wants N"},
        {"--head=h:1", "--cpu-devices", "-1", "--cpu-devices wants N, not \"-1\""},
        {"--head=h:1", "--cpu-devices", "65", "\"65\""},
        {"--head=h:1", "--cpu-devices", "none", "\"none\""},
        {"--head=h:1", "--device-memory", "4X", "\"4X\""},
        {"--head=h:1", "--device-memory", "99999999999999T", "--device-memory"},
        {"--head=h:1", "--embedded=1", NULL, "--embedded takes no value"},
        {"--head=h:1", "--embedded", "--client-fd=3", "leave out --head"},
        {"--embedded", NULL, NULL, "--client-fd"},
        {"--head=h:1", "--client-fd=3", NULL, "need --embedded"},
        {"--head=", NULL, NULL, "--head wants TARGET"},
    };

    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        struct store_options options;
        struct pl_err err;

        ASSERT_STATUS(parse(&options, &err, wrong[i].a, wrong[i].b, wrong[i].c),
                      PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, wrong[i].says);
    }
}

TEST(help_lists_every_option)
{
    char *text                       = NULL;
    size_t bytes                     = 0;
    FILE *out                        = open_memstream(&text, &bytes);
    static const char *const names[] = {"--head",
                                        "--cpu-devices",
                                        "--gpus",
                                        "--device-memory",
                                        "--token-file",
                                        "--socket-dir",
                                        "--node",
                                        "--log",
                                        "--embedded",
                                        "--worker-lease",
                                        "--worker-start-lease"};

    ASSERT_NOT_NULL(out);
    store_options_print_help(out);
    (void)fclose(out);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        ASSERT_CONTAINS(text, names[i]);
    }
    free(text);
}

TEST(probe_lines_are_read_and_nonsense_is_refused)
{
    char good[]  = "cuda 0 150754820096 NVIDIA H200\n\ncuda 3 4096 a b c\n";
    char bad[]   = "cuda 0 4096 x\nSegmentation fault\n";
    char zero[]  = "cuda 0 0 nothing\n";
    char empty[] = "";
    struct store_probe probe;
    struct pl_err err;

    ASSERT_OK(store_probe_parse(good, &probe, &err));
    ASSERT_EQ(probe.count, 2);
    ASSERT_EQ(probe.devices[0].bytes, 150754820096);
    ASSERT_STR(probe.devices[0].name, "NVIDIA H200");
    ASSERT_EQ(probe.devices[1].ordinal, 3);
    ASSERT_STR(probe.devices[1].name, "a b c");
    ASSERT_STATUS(store_probe_parse(bad, &probe, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "Segmentation fault");
    ASSERT_STATUS(store_probe_parse(zero, &probe, &err), PLASMON_EMALFORMED);
    ASSERT_OK(store_probe_parse(empty, &probe, &err));
    ASSERT_EQ(probe.count, 0);
}

TEST_MAIN()
