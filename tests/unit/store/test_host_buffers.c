/* Host buffers: who is waited for, what counts against the limit, and when memory is gone. */
#include "store/host_buffers.h"

#include <sys/resource.h>

#include "base/fault.h"
#include "device/device.h"
#include "tests/harness/test.h"

#define MIB UINT64_C(1048576)

static struct store_host host;

static void begin(uint64_t bytes_max)
{
    store_host_init(&host);
    host.buffer_bytes_max = bytes_max;
}

static struct store_host_buffer *make(uint64_t bytes, uint64_t workers)
{
    struct store_host_buffer *buffer;
    struct pl_err err;

    ASSERT_OK(store_host_buffers_make(&host, 9, 77, bytes, workers, &buffer, &err));
    return buffer;
}

static plasmon_status_t try_make(uint64_t bytes, struct pl_err *err)
{
    struct store_host_buffer *buffer;

    return store_host_buffers_make(&host, 9, 77, bytes, 0, &buffer, err);
}

TEST(a_buffer_is_given_when_every_worker_has_it)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make(1, 5); /* devices 0 and 2 */
    ASSERT_EQ(buffer->bytes, 4096);
    ASSERT_TRUE(buffer->id != 0 && buffer->fd >= 0);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_buffers_said(&host, 0, buffer->id, buffer->bytes, PLASMON_OK);
    store_host_buffers_said(&host, 0, buffer->id, buffer->bytes,
                            PLASMON_OK); /* said twice */
    store_host_buffers_said(&host, 1, buffer->id, buffer->bytes,
                            PLASMON_OK); /* was not asked */
    store_host_buffers_said(&host, 2, buffer->id + 1, buffer->bytes, PLASMON_OK);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_buffers_said(&host, 2, buffer->id, buffer->bytes, PLASMON_OK);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_EQ(buffer->failed, PLASMON_OK);
    ASSERT_NULL(store_host_buffers_decided(&host)); /* once */
    store_host_finish(&host);
}

TEST(a_worker_that_dies_is_not_waited_for)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make(MIB, 3);
    store_host_buffers_said(&host, 1, buffer->id, buffer->bytes, PLASMON_OK);
    store_host_buffers_down(&host, 0);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    store_host_buffers_handed(&host, 0); /* the next one gets it with its set-up */
    ASSERT_EQ(buffer->holders, 3);
    store_host_finish(&host);
}

TEST(a_worker_that_cannot_be_reaped_is_not_waited_for_but_may_have_the_memory)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make(MIB, 1);
    store_host_buffers_silent(&host, 0);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    store_host_buffers_drop(&host, buffer);
    ASSERT_EQ(host.buffer_bytes, MIB);
    store_host_finish(&host);
}

static struct store_host_buffer *make_for_spilling(uint64_t bytes, uint64_t workers)
{
    struct store_host_buffer *buffer;
    struct pl_err err;

    ASSERT_OK(store_host_buffers_make(&host, STORE_HOST_BUFFER_SPILL, 0, bytes, workers,
                                      &buffer, &err));
    return buffer;
}

TEST(memory_for_spilling_is_told_as_far_as_every_worker_has_it)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make_for_spilling(3 * MIB, 5); /* devices 0 and 2 */
    store_host_buffers_said(&host, 0, buffer->id, MIB, PLASMON_OK);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_buffers_said(&host, 2, buffer->id, 2 * MIB, PLASMON_OK);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_TRUE(!buffer->given);
    ASSERT_EQ(store_host_buffers_usable(buffer), MIB);
    ASSERT_NULL(store_host_buffers_decided(&host)); /* nothing new */
    store_host_buffers_said(&host, 0, buffer->id, 3 * MIB, PLASMON_OK);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_TRUE(!buffer->given);
    ASSERT_EQ(store_host_buffers_usable(buffer), 2 * MIB);
    store_host_buffers_said(&host, 2, buffer->id, 2 * MIB, PLASMON_ENOMEM);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_TRUE(buffer->given); /* the last word */
    ASSERT_EQ(buffer->failed, PLASMON_ENOMEM);
    ASSERT_EQ(store_host_buffers_usable(buffer), 2 * MIB);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_finish(&host);
}

TEST(who_died_bounds_it_no_more)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make_for_spilling(3 * MIB, 3);
    store_host_buffers_said(&host, 0, buffer->id, 2 * MIB, PLASMON_OK);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_buffers_down(&host,
                            1); /* the next one waits for what it has not registered */
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_TRUE(!buffer->given);
    ASSERT_EQ(store_host_buffers_usable(buffer), 2 * MIB);
    store_host_buffers_down(&host, 0);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_TRUE(buffer->given);
    ASSERT_EQ(store_host_buffers_usable(buffer), 3 * MIB);
    store_host_finish(&host);
}

TEST(a_client_gets_all_of_its_memory_or_none)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make(3 * MIB, 1);
    store_host_buffers_said(&host, 0, buffer->id, MIB, PLASMON_OK);
    ASSERT_NULL(store_host_buffers_decided(&host));
    store_host_buffers_said(&host, 0, buffer->id, MIB, PLASMON_ENOMEM);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_EQ(buffer->failed, PLASMON_ENOMEM);
    store_host_finish(&host);
}

TEST(one_worker_that_cannot_is_the_answer)
{
    struct store_host_buffer *buffer;

    begin(64 * MIB);
    buffer = make(MIB, 7);
    store_host_buffers_said(&host, 1, buffer->id, buffer->bytes, PLASMON_ENOMEM);
    store_host_buffers_said(&host, 0, buffer->id, buffer->bytes, PLASMON_OK);
    store_host_buffers_said(&host, 2, buffer->id, buffer->bytes, PLASMON_EDEVICE);
    ASSERT_TRUE(store_host_buffers_decided(&host) == buffer);
    ASSERT_EQ(buffer->failed, PLASMON_ENOMEM);
    ASSERT_EQ(buffer->failed_device, 1);
    store_host_finish(&host);
}

TEST(dropped_memory_counts_until_the_last_worker_has_let_go)
{
    struct store_host_buffer *buffer;
    struct pl_err err;
    uint64_t id;

    begin(8 * MIB);
    buffer = make(6 * MIB, 3);
    id     = buffer->id;
    ASSERT_STATUS(try_make(4 * MIB, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "--host-memory");
    store_host_buffers_drop(&host, buffer);
    ASSERT_NULL(store_host_buffers_find(&host, id));
    ASSERT_NULL(store_host_buffers_decided(&host)); /* nobody wants it any more */
    ASSERT_STATUS(try_make(4 * MIB, &err), PLASMON_EAGAIN);
    ASSERT_STATUS(try_make(9 * MIB, &err), PLASMON_ELIMIT);
    store_host_buffers_gone(&host, 1, id);
    ASSERT_STATUS(try_make(4 * MIB, &err), PLASMON_EAGAIN);
    store_host_buffers_down(&host, 0); /* or dies with it */
    ASSERT_EQ(host.buffer_bytes, 0);
    ASSERT_OK(try_make(8 * MIB, &err));
    store_host_finish(&host);
}

TEST(a_worker_cannot_end_what_is_in_use)
{
    struct store_host_buffer *buffer;

    begin(8 * MIB);
    buffer = make(MIB, 1);
    store_host_buffers_gone(&host, 0, buffer->id);
    ASSERT_TRUE(store_host_buffers_find(&host, buffer->id) == buffer);
    ASSERT_EQ(host.buffer_bytes, MIB);
    store_host_finish(&host);
}

/* As the store does: each buffer is a descriptor, and most systems begin with 1024 of them. */
static void files_raise(void)
{
    struct rlimit limit;

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(sizes_that_cannot_be_and_too_many_are_refused)
{
    struct pl_err err;

    files_raise();
    begin(UINT64_MAX);
    ASSERT_STATUS(try_make(0, &err), PLASMON_EINVAL);
    ASSERT_STATUS(try_make(UINT64_MAX, &err), PLASMON_EINVAL);
    host.buffer_bytes_max = 1ull << 40;
    ASSERT_STATUS(try_make(UINT64_MAX, &err), PLASMON_ELIMIT);
    for (unsigned i = 0; i < STORE_HOST_BUFFERS_MAX; i++) {
        (void)make(4096, 0);
    }
    ASSERT_STATUS(try_make(4096, &err), PLASMON_ELIMIT);
    store_host_finish(&host);
}

TEST(memory_that_cannot_be_made_leaves_nothing)
{
    struct pl_err err;

    begin(8 * MIB);
    pl_fault_arm("fd.memfd", 0);
    ASSERT_STATUS(try_make(MIB, &err), PLASMON_ENOMEM);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(host.buffers.count, 0);
    ASSERT_EQ(host.buffer_bytes, 0);
    store_host_finish(&host);
}

TEST_MAIN()
