/*
 * A worker's side of host buffers, on a CPU device, with the test as its store: handed over, named,
 * refused, dropped.
 */
#include "worker/host_buffers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "tests/harness/test.h"

#define BYTES (UINT64_C(1) << 20)

static struct device *device;
static struct worker_shared shared;
static struct worker_host_buffers buffers;
static int store, wake; /* the store's end; raised when one is registered */

static void begin(void)
{
    struct device_config config = {.bytes_max = BYTES};
    struct pl_err err;
    int pair[2];

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    store = pair[0];
    wake  = eventfd(0, EFD_CLOEXEC);
    worker_shared_init(&shared, pair[1]);
    ASSERT_OK(device_open(DEVICE_CPU, 0, &config, &device, &err));
    ASSERT_OK(worker_host_buffers_init(&buffers, device, &shared, wake));
}

static void end(void)
{
    worker_host_buffers_finish(&buffers);
    device_close(device);
    (void)close(shared.control_fd);
    worker_shared_finish(&shared);
    (void)close(store);
    (void)close(wake);
}

/* A store that took over hands it over once more. */
static plasmon_status_t hand_over_again(uint64_t id, uint64_t bytes)
{
    struct worker_shared_buffer *given = pl_vec_push(&shared.buffers);
    struct pl_err err;

    ASSERT_NOT_NULL(given);
    *given = (struct worker_shared_buffer){.id = id, .bytes = bytes, .fd = -1};
    ASSERT_OK(pl_memfd_create("host", bytes, &given->fd));
    return worker_host_buffers_take(&buffers, &err);
}

/* The store hands one over (its memory is also mapped here), or wants it dropped. */
static uint8_t *hand_over_bytes(uint64_t id, uint64_t bytes)
{
    struct worker_shared_buffer *given = pl_vec_push(&shared.buffers);
    struct pl_err err;
    void *memory;

    ASSERT_NOT_NULL(given);
    *given = (struct worker_shared_buffer){.id = id, .bytes = bytes, .fd = -1};
    ASSERT_OK(pl_memfd_create("host", bytes, &given->fd));
    ASSERT_OK(pl_fd_map(given->fd, bytes, 1, &memory));
    ASSERT_OK(worker_host_buffers_take(&buffers, &err));
    return memory;
}

static uint8_t *hand_over(uint64_t id)
{
    return hand_over_bytes(id, BYTES);
}

static void drop(uint64_t id)
{
    struct worker_shared_buffer *given = pl_vec_push(&shared.buffers);
    struct pl_err err;

    ASSERT_NOT_NULL(given);
    *given = (struct worker_shared_buffer){.id = id, .fd = -1};
    ASSERT_OK(worker_host_buffers_take(&buffers, &err));
}

static struct store_control expect_said(uint32_t type, uint64_t id, plasmon_status_t status)
{
    struct store_control message;
    size_t bytes   = sizeof(message);
    unsigned count = 0;

    ASSERT_OK(pl_fd_recv(store, &message, &bytes, NULL, &count));
    ASSERT_EQ(message.type, type);
    ASSERT_EQ(message.offset, id);
    ASSERT_EQ(message.status, status);
    return message;
}

static void expect_said_of(uint32_t type, uint64_t id, uint64_t locked,
                           plasmon_status_t status)
{
    ASSERT_EQ(expect_said(type, id, status).bytes, locked);
}

static void expect_silence(void)
{
    struct pollfd one = {.fd = store, .events = POLLIN};

    ASSERT_EQ(poll(&one, 1, 0), 0);
}

/* Until the thread is through with it, as the main loop is told. */
static void registered(void)
{
    uint64_t count;

    ASSERT_EQ(read(wake, &count, sizeof(count)), (ssize_t)sizeof(count));
    ASSERT_OK(worker_host_buffers_tell(&buffers));
}

TEST(what_was_handed_over_is_found_by_its_number)
{
    struct pl_err err;
    uint8_t *mine, *its;

    begin();
    mine = hand_over(7);
    ASSERT_TRUE(!worker_host_buffers_locking(&buffers, 8, 0, 1));
    registered();
    ASSERT_TRUE(!worker_host_buffers_locking(&buffers, 7, 0, BYTES));
    expect_said(STORE_CONTROL_HOST_BUFFER_READY, 7, PLASMON_OK);
    mine[4097] = 42;
    its        = worker_host_buffers_at(&buffers, 7, 4097, BYTES - 4097, &err);
    ASSERT_NOT_NULL(its);
    ASSERT_EQ(*its, 42);
    ASSERT_NULL(worker_host_buffers_at(&buffers, 7, 4097, BYTES - 4096, &err));
    ASSERT_EQ(err.status, PLASMON_ERANGE);
    ASSERT_NULL(worker_host_buffers_at(&buffers, 7, UINT64_MAX, 1, &err));
    ASSERT_EQ(err.status, PLASMON_ERANGE);
    ASSERT_NULL(worker_host_buffers_at(&buffers, 8, 0, 1, &err));
    ASSERT_EQ(err.status, PLASMON_ENOENT);
    pl_fd_unmap(mine, BYTES);
    end();
}

TEST(it_is_dropped_when_nothing_is_on_the_device)
{
    struct pl_err err;

    begin();
    pl_fd_unmap(hand_over(7), BYTES);
    registered();
    expect_said(STORE_CONTROL_HOST_BUFFER_READY, 7, PLASMON_OK);
    ASSERT_TRUE(!worker_host_buffers_waiting(&buffers));
    drop(7);
    drop(7);
    ASSERT_TRUE(worker_host_buffers_waiting(&buffers));
    ASSERT_NOT_NULL(worker_host_buffers_at(&buffers, 7, 0, 1, &err)); /* until then */
    expect_silence();
    ASSERT_OK(worker_host_buffers_idle(&buffers));
    expect_said(STORE_CONTROL_HOST_BUFFER_GONE, 7, PLASMON_OK);
    ASSERT_NULL(worker_host_buffers_at(&buffers, 7, 0, 1, &err));
    drop(9); /* never came so far */
    expect_said(STORE_CONTROL_HOST_BUFFER_GONE, 9, PLASMON_OK);
    end();
}

TEST(a_store_that_took_over_is_told_how_far_it_is)
{
    struct pl_err err;

    begin();
    pl_fd_unmap(hand_over(7), BYTES);
    ASSERT_OK(hand_over_again(7, BYTES)); /* the thread is at it */
    expect_silence();
    registered();
    expect_said_of(STORE_CONTROL_HOST_BUFFER_READY, 7, BYTES, PLASMON_OK);
    ASSERT_OK(hand_over_again(7, BYTES));
    expect_said_of(STORE_CONTROL_HOST_BUFFER_READY, 7, BYTES, PLASMON_OK);
    ASSERT_NOT_NULL(worker_host_buffers_at(&buffers, 7, 0, BYTES, &err));
    drop(7);
    ASSERT_OK(hand_over_again(7, BYTES)); /* by one that does not know that */
    expect_said_of(STORE_CONTROL_HOST_BUFFER_READY, 7, 0, PLASMON_ENOMEM);
    ASSERT_OK(worker_host_buffers_idle(&buffers));
    expect_said(STORE_CONTROL_HOST_BUFFER_GONE, 7, PLASMON_OK);
    end();
}

TEST(memory_that_cannot_be_page_locked_is_told_and_the_others_go_on)
{
    struct pl_err err;

    begin();
    test_expect_log();
    pl_fault_arm("device.host_piece", 0);
    pl_fd_unmap(hand_over(7), BYTES);
    registered();
    expect_said(STORE_CONTROL_HOST_BUFFER_READY, 7, PLASMON_ENOMEM);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_NULL(worker_host_buffers_at(&buffers, 7, 0, 1, &err));
    ASSERT_EQ(err.status, PLASMON_ENOMEM);
    pl_fd_unmap(hand_over(8), BYTES);
    registered();
    expect_said(STORE_CONTROL_HOST_BUFFER_READY, 8, PLASMON_OK);
    drop(7);
    ASSERT_OK(worker_host_buffers_idle(&buffers));
    expect_said(STORE_CONTROL_HOST_BUFFER_GONE, 7, PLASMON_OK);
    end();
}

/* Of three pieces, the last one fails: what came before it can be named until it is dropped. */
TEST(what_was_page_locked_before_a_piece_that_cannot_be_stays_of_use)
{
    const uint64_t piece         = DEVICE_HOST_PIECE_BYTES;
    struct store_control message = {.status = PLASMON_OK};
    struct pl_err err;

    begin();
    test_expect_log();
    pl_fault_arm("device.host_piece", 2);
    pl_fd_unmap(hand_over_bytes(7, 2 * piece + 4096), 2 * piece + 4096);
    for (uint64_t before = 0; message.status == PLASMON_OK; before = message.bytes) {
        size_t bytes   = sizeof(message);
        unsigned count = 0;

        while (message.bytes == before) { /* how far it is, each time further, or the end */
            struct pollfd one = {.fd = store, .events = POLLIN};

            if (poll(&one, 1, 0) == 1) {
                ASSERT_OK(pl_fd_recv(store, &message, &bytes, NULL, &count));
                break;
            }
            registered();
        }
        ASSERT_EQ(message.type, STORE_CONTROL_HOST_BUFFER_READY);
        ASSERT_TRUE(message.bytes == piece || message.bytes == 2 * piece);
        ASSERT_TRUE(message.bytes > before || message.status != PLASMON_OK);
    }
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(message.status, PLASMON_ENOMEM);
    ASSERT_EQ(message.bytes, 2 * piece);
    ASSERT_NOT_NULL(worker_host_buffers_at(&buffers, 7, 4096, 2 * piece - 4096, &err));
    ASSERT_NULL(worker_host_buffers_at(&buffers, 7, 4096, 2 * piece, &err));
    ASSERT_EQ(err.status, PLASMON_ENOMEM);
    ASSERT_TRUE(!worker_host_buffers_locking(&buffers, 7, 4096, 2 * piece)); /* never */
    ASSERT_OK(hand_over_again(7, 2 * piece + 4096));
    expect_said_of(STORE_CONTROL_HOST_BUFFER_READY, 7, 2 * piece, PLASMON_ENOMEM);
    drop(7);
    ASSERT_OK(worker_host_buffers_idle(&buffers));
    expect_said(STORE_CONTROL_HOST_BUFFER_GONE, 7, PLASMON_OK);
    end();
}

TEST(a_store_that_hands_over_nonsense_ends_the_worker)
{
    begin();
    pl_fd_unmap(hand_over(7), BYTES);
    ASSERT_STATUS(hand_over_again(7, 2 * BYTES), PLASMON_EMALFORMED); /* another one */
    ASSERT_STATUS(hand_over_again(0, BYTES), PLASMON_EMALFORMED);
    end(); /* with one that nobody heard of */
}

TEST_MAIN()
