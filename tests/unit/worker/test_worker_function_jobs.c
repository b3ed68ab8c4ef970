/* Functions that clients define, and the thread that builds them: in which order. */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/harness/test.h"
#include "worker/functions.h"

static uint32_t built[8];
static size_t built_count;

static void note_built(void *user, uint32_t id, plasmon_status_t status, const char *text)
{
    (void)user;
    (void)text;
    ASSERT_EQ(status, PLASMON_EPERM); /* C text, which is not allowed: that takes no time */
    ASSERT_TRUE(built_count < PL_COUNT(built));
    built[built_count++] = id;
}

static void define(struct worker_functions *functions, uint32_t id)
{
    Plasmon__V1__FunctionDefine message = PLASMON__V1__FUNCTION_DEFINE__INIT;
    uint8_t hash[WIRE_HASH_BYTES]       = {0};
    struct pl_err err;

    message.id        = id;
    message.name      = (char *)(uintptr_t) "own";
    message.signature = (char *)(uintptr_t) "own(out f32[n] x)";
    message.hash      = (ProtobufCBinaryData){.data = hash, .len = sizeof(hash)};
    message.c_text    = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t) "x", .len = 1};
    ASSERT_OK(worker_functions_define(functions, &message, &err));
}

static void collect_until(struct worker_functions *functions, size_t count)
{
    struct pollfd woken = {.fd = functions->wake_fd, .events = POLLIN};

    while (built_count < count) {
        uint64_t raised;

        ASSERT_EQ(poll(&woken, 1, 60000), 1);
        ASSERT_EQ(read(woken.fd, &raised, sizeof(raised)), sizeof(raised));
        worker_functions_collect(functions);
    }
}

/*
 * A worker that follows a dead one is given all functions of all clients at once, and one launch
 * waits for one of them.
 */
TEST(a_function_that_a_launch_waits_for_is_not_built_behind_the_others)
{
    const struct device_config config = {.bytes_max = 1 << 20};
    struct store_suspects suspects    = {.of = {{0}}};
    struct worker_functions functions;
    struct device *device;
    struct pl_err err;
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    ASSERT_OK(device_open(DEVICE_CPU, 0, &config, &device, &err));
    ASSERT_OK(worker_functions_init(&functions, device, NULL, NULL, wake_fd, note_built,
                                    NULL, &suspects, &err));
    functions.started = true; /* as if its thread were at a compiler that takes long */
    for (uint32_t id = 1; id <= 4; id++) {
        define(&functions, id);
    }
    ASSERT_EQ(functions.awaited_ns, 0);
    ASSERT_NULL(worker_functions_find(&functions, 3, true, &err));
    ASSERT_STATUS(err.status, PLASMON_EAGAIN);
    collect_until(&functions, 1);
    ASSERT_EQ(built[0], 3);
    ASSERT_TRUE(functions.awaited_ns != 0);

    functions.started = false;
    define(&functions, 5); /* starts it: the others, in their order */
    collect_until(&functions, 5);
    ASSERT_EQ(built[1], 1);
    ASSERT_EQ(built[2], 2);
    ASSERT_EQ(built[3], 4);
    ASSERT_EQ(built[4], 5);
    worker_functions_finish(&functions);
    device_close(device);
    ASSERT_EQ(close(wake_fd), 0);
}

TEST(a_library_counts_the_workers_that_ended_while_they_loaded_it)
{
    struct store_suspects suspects = {.of = {{0}}};

    worker_suspects_count(&suspects); /* the first one of all: nothing is noted */
    ASSERT_EQ(worker_suspects_deaths(&suspects, 7), 0);
    worker_suspects_note(&suspects, 0, 7);
    worker_suspects_note(&suspects, 0, 0);
    worker_suspects_count(&suspects); /* it ended, and had loaded it */
    ASSERT_EQ(worker_suspects_deaths(&suspects, 7), 0);
    for (uint32_t i = 1; i <= WORKER_SUSPECT_DEATHS; i++) {
        worker_suspects_note(&suspects, 0, 7);
        worker_suspects_note(&suspects, 1, i);
        worker_suspects_count(&suspects);
        ASSERT_EQ(worker_suspects_deaths(&suspects, 7), i);
        ASSERT_EQ(worker_suspects_deaths(&suspects, i), 1);
    }
    ASSERT_EQ(worker_suspects_deaths(&suspects, 0), 0);
    worker_suspects_count(&suspects); /* another one began, and died of something else */
    ASSERT_EQ(worker_suspects_deaths(&suspects, 7), WORKER_SUSPECT_DEATHS);
    for (uint64_t i = 100; i < 100 + 2 * STORE_SUSPECTS; i++) {
        worker_suspects_note(&suspects, 1, i);
        worker_suspects_count(&suspects);
        ASSERT_EQ(worker_suspects_deaths(&suspects, i), 1);
    }
    ASSERT_EQ(worker_suspects_deaths(&suspects, 7),
              WORKER_SUSPECT_DEATHS); /* others went */
}

TEST_MAIN()
