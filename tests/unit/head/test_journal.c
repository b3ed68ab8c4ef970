/* Records of a journal and checkpoints: there and back, and bytes that are neither. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "head/checkpoint.h"
#include "head/machine_int.h"
#include "tests/harness/lone_machine.h"
#include "tests/harness/test.h"

/* ---------------------------------------------------------------------- a machine alone */

static struct head_machine *machine_create(void)
{
    static struct lone_machine lone;
    struct head_machine_config config = {.ops            = &lone_machine_ops,
                                         .user           = &lone,
                                         .record         = true,
                                         .digest         = true,
                                         .kept_bytes_max = 1 << 20};
    struct head_machine *machine;

    ASSERT_OK(head_machine_create(&config, &machine));
    return machine;
}

static struct head_machine *machine_begin(void)
{
    struct head_settings settings = {.epoch = 77, .node_lease_ms = 10000, .policy = "auto"};
    struct head_machine *machine  = machine_create();
    struct pl_err err;

    ASSERT_OK(head_machine_begin(machine, &settings, &err));
    head_machine_tick(machine, 5);
    return machine;
}

static uint64_t open_client(struct head_machine *machine, const char *label)
{
    Plasmon__V1__ClientFrame frame = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header     = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__Hello hello       = PLASMON__V1__HELLO__INIT;
    uint8_t bytes[512];
    struct head_input input = {.type = HEAD_INPUT_CLIENT_OPEN};
    struct head_outcome outcome;
    struct pl_err err = {0};

    header.protocol    = WIRE_PROTOCOL;
    hello.protocol_min = hello.protocol_max = WIRE_PROTOCOL;
    hello.label                             = (char *)(uintptr_t)label;
    hello.host                              = (char *)(uintptr_t) "somewhere";
    frame.header                            = &header;
    frame.hello                             = &hello;
    input.strings[0].bytes                  = bytes;
    input.strings[0].length = plasmon__v1__client_frame__pack(&frame, bytes);
    if (head_machine_input(machine, &input, &outcome, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    return outcome.session;
}

/* A frame of that session, with the next number. */
static plasmon_status_t define_text(struct head_machine *machine, uint64_t session,
                                    const char *name, const uint8_t *text, size_t length,
                                    struct pl_err *err)
{
    Plasmon__V1__ClientFrame frame         = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__Header header             = PLASMON__V1__HEADER__INIT;
    Plasmon__V1__FunctionDefine function   = PLASMON__V1__FUNCTION_DEFINE__INIT;
    Plasmon__V1__FunctionDefine *defines[] = {&function};
    uint8_t hash[WIRE_HASH_BYTES], *bytes = pl_alloc(length + 1024);
    struct head_input input = {.type = HEAD_INPUT_CLIENT_FRAME, .numbers = {session}};
    plasmon_status_t status;

    header.protocol      = WIRE_PROTOCOL;
    header.session       = session;
    header.seq           = 1;
    function.id          = WIRE_FUNCTION_FIRST + 3;
    function.name        = (char *)(uintptr_t)name;
    function.signature   = (char *)(uintptr_t) "out: float32[n]";
    function.c_text.data = (uint8_t *)(uintptr_t)text;
    function.c_text.len  = length;
    wire_function_hash(&function, hash);
    function.hash.data      = hash;
    function.hash.len       = sizeof(hash);
    frame.header            = &header;
    frame.define            = defines;
    frame.n_define          = 1;
    input.strings[0].bytes  = bytes;
    input.strings[0].length = plasmon__v1__client_frame__pack(&frame, bytes);
    status                  = head_machine_input(machine, &input, NULL, err);
    pl_free(bytes);
    return status;
}

static void define(struct head_machine *machine, uint64_t session, const char *name)
{
    static const uint8_t text[] = "void f(void) {}";
    struct pl_err err           = {0};

    if (define_text(machine, session, name, text, sizeof(text) - 1, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
}

/* ------------------------------------------------------------------------------ records */

TEST(a_record_of_each_type_is_read_as_it_was_written)
{
    struct head_bytes batch = {0};
    struct head_input_reader reader;
    struct pl_err err = {0};

    head_blob_begin(&batch);
    for (uint32_t type = 1; type < HEAD_INPUT_TYPES; type++) {
        struct head_input input = {.type = (enum head_input_type)type};

        for (uint32_t i = 0; i < HEAD_INPUT_NUMBERS_MAX; i++) {
            input.numbers[i] = i % 2 != 0 ? UINT64_MAX - type : type + i;
        }
        input.strings[0] = head_string("one");
        input.strings[1] = head_string("");
        head_input_append(&batch, &input);
    }
    head_blob_end(&batch, HEAD_BLOB_BATCH);
    ASSERT_OK(head_blob_open(batch.data, batch.length, HEAD_BLOB_BATCH, &reader, &err));
    for (uint32_t type = 1; type < HEAD_INPUT_TYPES; type++) {
        struct head_bytes again = {0};
        struct head_input input;
        const uint8_t *at = reader.at;

        ASSERT_OK(head_input_next(&reader, &input, &err));
        ASSERT_EQ(input.type, type);
        head_input_append(&again, &input);
        ASSERT_EQ(again.length, reader.at - at);
        ASSERT_TRUE(memcmp(again.data, at, again.length) == 0);
        pl_free(again.data);
    }
    ASSERT_TRUE(head_input_end(&reader));
    pl_free(batch.data);
}

TEST(the_check_sum_is_crc_32c)
{
    ASSERT_EQ(head_crc32c(0, (const uint8_t *)"123456789", 9), 0xe3069283u);
    ASSERT_EQ(head_crc32c(0, (const uint8_t *)"", 0), 0);
}

TEST(a_batch_with_any_byte_changed_or_cut_is_refused)
{
    struct head_machine *machine = machine_begin();
    const uint8_t *bytes;
    uint8_t copy[1024];
    size_t length;
    struct head_input_reader reader;
    struct pl_err err = {0};

    (void)open_client(machine, "one");
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    ASSERT_TRUE(length < sizeof(copy));
    for (size_t i = 0; i < length; i++) {
        memcpy(copy, bytes, length);
        copy[i] ^= 0x10;
        ASSERT_TRUE(head_blob_open(copy, length, HEAD_BLOB_BATCH, &reader, &err) !=
                    PLASMON_OK);
        ASSERT_TRUE(head_blob_open(bytes, i, HEAD_BLOB_BATCH, &reader, &err) != PLASMON_OK);
    }
    memcpy(copy, bytes, length);
    copy[2] = 99;
    ASSERT_EQ(head_blob_open(copy, length, HEAD_BLOB_BATCH, &reader, &err),
              PLASMON_EVERSION);
    head_machine_destroy(machine);
}

/* Rubbish with a right check sum: refused with a text, or taken; never more than that. */
TEST(records_with_any_byte_changed_are_taken_or_refused)
{
    struct head_machine *machine = machine_begin();
    struct head_bytes changed    = {0};
    const uint8_t *bytes;
    size_t length;

    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    (void)open_client(machine, "one");
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    for (size_t i = 12; i < length; i++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            struct head_machine *other = machine_create();
            struct pl_err err          = {0};

            head_blob_begin(&changed);
            head_bytes_append(&changed, bytes + 12, length - 12);
            changed.data[i] ^= (uint8_t)(1u << bit);
            head_blob_end(&changed, HEAD_BLOB_BATCH);
            if (head_machine_replay(other, changed.data, changed.length, &err) !=
                PLASMON_OK) {
                ASSERT_TRUE(err.text[0] != '\0');
            }
            head_machine_destroy(other);
        }
    }
    pl_free(changed.data);
    head_machine_destroy(machine);
}

TEST(a_machine_made_from_the_records_is_the_same)
{
    struct head_machine *machine = machine_begin();
    struct head_machine *other   = machine_create();
    struct pl_err err            = {0};
    const uint8_t *bytes;
    size_t length;
    uint64_t session = open_client(machine, "one");

    (void)open_client(machine, "two");
    head_machine_flush(machine);
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    ASSERT_OK(head_machine_replay(other, bytes, length, &err));
    ASSERT_EQ(head_machine_digest(machine), head_machine_digest(other));
    ASSERT_TRUE(head_machine_client_known(other, session));
    ASSERT_TRUE(!head_machine_batch_take(machine, &bytes, &length)); /* taken once */
    head_machine_destroy(machine);
    head_machine_destroy(other);
}

/* -------------------------------------------------------------------------- checkpoints */

static const uint8_t *checkpoint(struct head_machine *machine, size_t *out_length)
{
    const char *why = NULL;
    const uint8_t *bytes;

    head_machine_flush(machine);
    (void)head_machine_batch_take(machine, &bytes, out_length);
    bytes = head_machine_checkpoint(machine, out_length, &why);
    if (bytes == NULL) {
        test_fail(__FILE__, __LINE__, "%s", why);
    }
    return bytes;
}

TEST(a_checkpoint_stands_for_all_that_was_before_it)
{
    struct head_machine *machine = machine_begin();
    struct head_machine *other   = machine_create();
    struct pl_err err            = {0};
    uint64_t session             = open_client(machine, "one");
    const uint8_t *bytes;
    size_t length;

    bytes = checkpoint(machine, &length);
    ASSERT_OK(head_machine_load(other, bytes, length, &err));
    ASSERT_EQ(head_machine_digest(machine), head_machine_digest(other));
    ASSERT_TRUE(head_machine_client_known(other, session));
    ASSERT_EQ(head_machine_epoch(other), 77);

    (void)open_client(machine, "two"); /* and what comes after it is the same on both */
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    ASSERT_OK(head_machine_replay(other, bytes, length, &err));
    ASSERT_EQ(head_machine_digest(machine), head_machine_digest(other));
    head_machine_destroy(machine);
    head_machine_destroy(other);
}

static void expect_settings(struct head_machine *machine, const struct head_settings *want)
{
    const struct head_settings *have = head_machine_settings(machine);

    ASSERT_EQ(have->epoch, want->epoch);
    ASSERT_EQ(have->transfer, want->transfer);
    ASSERT_EQ(have->window, want->window);
    ASSERT_EQ(have->retries, want->retries);
    ASSERT_EQ(have->credit, want->credit);
    ASSERT_EQ(have->lease_ms, want->lease_ms);
    ASSERT_EQ(have->chain_bytes, want->chain_bytes);
    ASSERT_EQ(have->lineage_bytes, want->lineage_bytes);
    ASSERT_EQ(have->shadow_bytes, want->shadow_bytes);
    ASSERT_EQ(have->nccl_bytes, want->nccl_bytes);
    ASSERT_EQ(have->reach_wait_ms, want->reach_wait_ms);
    ASSERT_EQ(have->node_lease_ms, want->node_lease_ms);
    ASSERT_STR(have->policy, want->policy);
}

TEST(who_goes_on_has_the_settings_that_the_cluster_was_begun_with)
{
    const struct head_settings settings = {.epoch         = 77,
                                           .transfer      = HEAD_TRANSFER_NCCL,
                                           .window        = 2,
                                           .retries       = 3,
                                           .credit        = 4,
                                           .lease_ms      = 5,
                                           .chain_bytes   = 6,
                                           .lineage_bytes = 7,
                                           .shadow_bytes  = 8,
                                           .nccl_bytes    = 9,
                                           .reach_wait_ms = 10,
                                           .node_lease_ms = 11,
                                           .policy        = "locality"};
    struct head_machine *machine        = machine_create();
    struct head_machine *by_records     = machine_create();
    struct head_machine *by_checkpoint  = machine_create();
    struct pl_err err                   = {0};
    const uint8_t *bytes;
    size_t length;

    ASSERT_OK(head_machine_begin(machine, &settings, &err));
    head_machine_flush(machine);
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    ASSERT_OK(head_machine_replay(by_records, bytes, length, &err));
    expect_settings(by_records, &settings);
    bytes = checkpoint(machine, &length);
    ASSERT_OK(head_machine_load(by_checkpoint, bytes, length, &err));
    expect_settings(by_checkpoint, &settings);
    head_machine_destroy(machine);
    head_machine_destroy(by_records);
    head_machine_destroy(by_checkpoint);
}

/* Byte by byte, as a checkpoint would have it. */
static void expect_same_core(struct head_machine *a, struct head_machine *b)
{
    struct head_bytes x = {0}, y = {0};

    head_core_save(head_machine_core(a), &x);
    head_core_save(head_machine_core(b), &y);
    ASSERT_EQ(x.length, y.length);
    ASSERT_TRUE(memcmp(x.data, y.data, x.length) == 0);
    pl_free(x.data);
    pl_free(y.data);
}

TEST(functions_that_clients_defined_are_in_a_checkpoint)
{
    struct head_machine *machine = machine_begin();
    struct head_machine *other   = machine_create();
    uint64_t one                 = open_client(machine, "one");
    uint64_t two                 = open_client(machine, "two");
    struct head_input close      = {.type = HEAD_INPUT_CLIENT_CLOSE, .numbers = {one}};
    struct pl_err err            = {0};
    const uint8_t *bytes;
    size_t length, first;

    (void)checkpoint(machine, &first);
    define(machine, one, "scale");
    define(machine, two, "scale"); /* one content, two sessions */
    bytes = checkpoint(machine, &length);
    ASSERT_TRUE(length > first + 100);
    ASSERT_OK(head_machine_load(other, bytes, length, &err));
    expect_same_core(machine, other);
    ASSERT_EQ(head_machine_digest(machine), head_machine_digest(other));

    /* It goes with the last session that has it. */
    ASSERT_OK(head_machine_input(machine, &close, NULL, &err));
    close.numbers[0] = two;
    ASSERT_OK(head_machine_input(machine, &close, NULL, &err));
    head_machine_flush(machine);
    ASSERT_TRUE(head_machine_batch_take(machine, &bytes, &length));
    ASSERT_OK(head_machine_replay(other, bytes, length, &err));
    expect_same_core(machine, other);
    (void)checkpoint(machine, &length);
    ASSERT_TRUE(length < first);
    head_machine_destroy(machine);
    head_machine_destroy(other);
}

TEST(a_checkpoint_with_any_byte_changed_is_taken_or_refused)
{
    struct head_machine *machine = machine_begin();
    struct head_bytes changed    = {0};
    struct head_bytes saved      = {0};
    const uint8_t *bytes;
    size_t length;
    unsigned refused = 0;

    test_expect_log();
    pl_log_set_sink(NULL, NULL);
    define(machine, open_client(machine, "one"), "scale");
    bytes = checkpoint(machine, &length);
    head_bytes_append(&saved, bytes, length);
    for (size_t i = 12; i < length; i++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            struct head_machine *other = machine_create();
            struct pl_err err          = {0};

            head_blob_begin(&changed);
            head_bytes_append(&changed, saved.data + 12, length - 12);
            changed.data[i] ^= (uint8_t)(1u << bit);
            head_blob_end(&changed, HEAD_BLOB_CHECKPOINT);
            if (head_machine_load(other, changed.data, changed.length, &err) !=
                PLASMON_OK) {
                ASSERT_TRUE(err.text[0] != '\0');
                refused++;
            }
            head_machine_destroy(other);
        }
    }
    for (size_t cut = 12; cut < length; cut++) {
        struct head_machine *other = machine_create();
        struct pl_err err          = {0};

        head_blob_begin(&changed);
        head_bytes_append(&changed, saved.data + 12, cut - 12);
        head_blob_end(&changed, HEAD_BLOB_CHECKPOINT);
        ASSERT_TRUE(head_machine_load(other, changed.data, changed.length, &err) !=
                    PLASMON_OK);
        head_machine_destroy(other);
    }
    ASSERT_TRUE(refused > 0);
    pl_free(changed.data);
    pl_free(saved.data);
    head_machine_destroy(machine);
}

/* -------------------------------------------------------------------------- out of memory */

/* How a child ends that has one input, or one output, more, at the point where there is no memory. */
static int end_at(const char *point, struct head_machine *machine, uint64_t session)
{
    static uint8_t text[100000]; /* more than an arena has from its first message on */
    struct pl_err err = {0};
    int status;
    pid_t pid = fork();

    ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL); /* past the sanitizers' handlers */
        pl_log_set_sink(NULL, NULL);
        memset(text, ' ', sizeof(text));
        pl_fault_arm(point, 0);
        (void)define_text(machine, session, "large", text, sizeof(text), &err);
        head_machine_to_client(machine, session, text, 10);
        _exit(pl_fault_disarm());
    }
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

/*
 * What it decides is in the journal as the inputs that it follows from, and those say nothing of
 * memory: the next head would decide otherwise, and whoever it serves would have another past.
 */
TEST(a_head_decides_nothing_for_want_of_memory)
{
    struct head_machine *machine = machine_begin();
    uint64_t session             = open_client(machine, "one");
    int status;

    ASSERT_EQ(end_at("none", machine, session), 0);
    status = end_at("wire.arena", machine, session);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    status = end_at("wire.keep", machine, session);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    head_machine_destroy(machine);
}

TEST_MAIN()
