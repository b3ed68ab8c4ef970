/*
 * The contract on a CPU device, and what only CPU devices do: launches of C functions, accounting,
 * guard pages.
 */
#include "tests/unit/device/contract.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

const enum device_kind contract_kind = DEVICE_CPU;

/* ----------------------------------------------------------------------------- launches */

struct append_args {
    uint32_t *log;
    uint32_t *count;
    uint32_t value;
};

static plasmon_status_t append(void *user, struct pl_err *err)
{
    struct append_args *args = user;

    (void)err;
    args->log[(*args->count)++] = args->value;
    args->value                 = 0; /* the copy is ours to spoil */
    return PLASMON_OK;
}

TEST(launches_run_one_after_another_in_order)
{
    enum { LAUNCHES = 100000 };
    uint32_t *log           = calloc(LAUNCHES, sizeof(*log));
    uint32_t count          = 0;
    struct append_args args = {.log = log, .count = &count};
    struct contract c;

    contract_open(&c);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        args.value = i;
        ASSERT_OK(device_cpu_launch(c.stream, append, &args, sizeof(args), i));
    }
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(count, LAUNCHES);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        ASSERT_EQ(log[i], i);
    }
    contract_close(&c);
    free(log);
}

struct sum_args {
    uint64_t *out;
    uint32_t count;
    uint8_t bytes[4000];
};

static plasmon_status_t sum(void *user, struct pl_err *err)
{
    const struct sum_args *args = user;

    (void)err;
    ASSERT_EQ((uintptr_t)user % 16, 0);
    for (uint32_t i = 0; i < args->count; i++) {
        *args->out += args->bytes[i];
    }
    return PLASMON_OK;
}

TEST(arguments_of_any_size_are_copied)
{
    static const uint32_t counts[] = {0, 1, 400, 495, 496, 497, 512, 513, 2000, 4000};
    struct sum_args args;
    struct contract c;

    contract_open(&c);
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        uint64_t got = 0;

        args.out   = &got;
        args.count = counts[i];
        memset(args.bytes, 3, sizeof(args.bytes));
        ASSERT_OK(device_wait(c.stream, &c.words[0], i + 1));
        ASSERT_OK(device_cpu_launch(c.stream, sum, &args,
                                    offsetof(struct sum_args, bytes) + counts[i], 0));
        memset(&args, 0xff, sizeof(args)); /* it must not be looked at any more */
        contract_gate_open(&c.words[0], i + 1);
        ASSERT_OK(device_stream_sync(c.stream, NULL));
        ASSERT_EQ(got, 3 * counts[i]);
    }
    contract_close(&c);
}

static plasmon_status_t fail_if_odd(void *user, struct pl_err *err)
{
    uint32_t number;

    memcpy(&number, user, sizeof(number));
    if (number % 2 == 0) {
        return PLASMON_OK;
    }
    return number == 3 ? PLASMON_ENOTSUP /* with no text */
                       : pl_err_set(err, PLASMON_EFUNCTION, "number %u is odd", number);
}

TEST(failed_launches_are_reported_with_their_tags_and_later_ones_run)
{
    struct pl_err err = {.status = PLASMON_OK};
    uint64_t tag;
    struct contract c;

    contract_open(&c);
    ASSERT_TRUE(!device_launch_failure(c.device, &tag, &err));
    for (uint32_t i = 0; i < 6; i++) {
        ASSERT_OK(device_cpu_launch(c.stream, fail_if_odd, &i, sizeof(i), 100 + i));
    }
    ASSERT_OK(device_fill8(c.stream, c.memory, 77, 1));

    ASSERT_STATUS(device_stream_sync(c.stream, &err), PLASMON_EFUNCTION);
    ASSERT_STR(err.text, "number 1 is odd");
    ASSERT_OK(device_stream_sync(c.stream, &err)); /* once */
    ASSERT_EQ(*(uint8_t *)device_ptr_host(c.device, c.memory), 77);

    ASSERT_TRUE(device_launch_failure(c.device, &tag, &err));
    ASSERT_EQ(tag, 101);
    ASSERT_STR(err.text, "number 1 is odd");
    ASSERT_TRUE(device_launch_failure(c.device, &tag, &err));
    ASSERT_EQ(tag, 103);
    ASSERT_EQ(err.status, PLASMON_ENOTSUP);
    ASSERT_STR(err.text, pl_status_text(PLASMON_ENOTSUP));
    ASSERT_TRUE(device_launch_failure(c.device, &tag, &err));
    ASSERT_EQ(tag, 105);
    ASSERT_TRUE(!device_launch_failure(c.device, &tag, &err));
    contract_close(&c);
}

/* Whoever sees the signal behind a failed launch finds the failure: tasks are judged that way. */
TEST(a_failure_is_there_before_the_next_signal)
{
    struct pl_err err;
    uint64_t tag;
    uint32_t one = 1;
    struct contract c;

    contract_open(&c);
    test_set_timeout(120);
    for (uint64_t i = 1; i <= 1000; i++) {
        ASSERT_OK(device_cpu_launch(c.stream, fail_if_odd, &one, sizeof(one), i));
        ASSERT_OK(device_signal(c.stream, &c.words[0], i));
        while (contract_word_load(&c.words[0]) < i) {
            (void)sched_yield(); /* or each step takes a time slice on a busy machine */
        }
        ASSERT_TRUE(device_launch_failure(c.device, &tag, &err));
        ASSERT_EQ(tag, i);
    }
    (void)device_stream_sync(c.stream, NULL); /* of failures; they were meant */
    contract_close(&c);
}

static plasmon_status_t count_one(void *user, struct pl_err *err)
{
    uint64_t *count;

    (void)err;
    memcpy(&count, user, sizeof(count));
    (*count)++;
    return PLASMON_OK;
}

TEST(a_stream_that_stands_still_takes_a_million_launches_and_then_says_no)
{
    uint64_t count    = 0;
    uint64_t *pointer = &count;
    uint64_t taken    = 0;
    plasmon_status_t status;
    struct contract c;

    test_set_timeout(120);
    contract_open(&c);
    ASSERT_OK(device_wait(c.stream, &c.words[0], 1));
    do {
        status = device_cpu_launch(c.stream, count_one, &pointer, sizeof(pointer), 0);
        taken += status == PLASMON_OK;
    } while (status == PLASMON_OK);
    ASSERT_STATUS(status, PLASMON_ELIMIT);
    ASSERT_TRUE(taken > 1000000);

    contract_gate_open(&c.words[0], 1);
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(count, taken);
    ASSERT_OK(device_cpu_launch(c.stream, count_one, &pointer, sizeof(pointer), 0));
    ASSERT_OK(device_stream_sync(c.stream, NULL));
    ASSERT_EQ(count, taken + 1);
    contract_close(&c);
}

TEST(launches_one_at_a_time_never_lose_the_wake)
{
    enum { TIMES = 3000 };
    uint64_t count    = 0;
    uint64_t *pointer = &count;
    struct contract c;

    test_set_timeout(60);
    contract_open(&c);
    for (uint64_t i = 1; i <= TIMES; i++) {
        ASSERT_OK(device_cpu_launch(c.stream, count_one, &pointer, sizeof(pointer), 0));
        ASSERT_OK(device_stream_sync(c.stream, NULL)); /* hangs if a wake is lost */
        ASSERT_EQ(count, i);
    }
    contract_close(&c);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/*
 * A sleeper looks again by itself every 50 ms at the latest, which would hide a wake that goes
 * astray. So let it sleep long enough to be at that, and see that it wakes much sooner than it
 * would have. The median, because machines are busy.
 */
TEST(a_signal_wakes_a_stream_that_has_long_slept)
{
    enum { TIMES = 7 };
    uint64_t took_ns[TIMES];
    struct contract c;

    contract_open(&c);
    for (uint64_t i = 0; i < TIMES; i++) {
        ASSERT_OK(device_wait(c.stream, &c.words[0], i + 1));
        (void)poll(NULL, 0,
                   160 + (int)(7 * i)); /* 0.1 + 0.2 + .. ms until it sleeps 50 at a time */
        took_ns[i] = pl_now_ns();
        ASSERT_OK(device_signal(c.other, &c.words[0], i + 1));
        ASSERT_OK(device_stream_sync(c.stream, NULL));
        took_ns[i] = pl_now_ns() - took_ns[i];
    }
    qsort(took_ns, TIMES, sizeof(took_ns[0]), compare_u64);
    ASSERT_TRUE(took_ns[TIMES / 2] < 5000000);
    contract_close(&c);
}

/* ------------------------------------------------------------------------------- memory */

static void open_small(struct device **out_device, bool guard_pages, uint64_t chunks)
{
    struct device_config config = {.cpu_guard_pages = guard_pages};
    struct device_info info;
    struct pl_err err;

    ASSERT_OK(device_probe(DEVICE_CPU, 3, &info, &err));
    config.bytes_max = chunks * info.chunk_granularity;
    ASSERT_OK(device_open(DEVICE_CPU, 3, &config, out_device, &err));
    ASSERT_EQ(device_get_info(*out_device)->bytes_total, config.bytes_max);
}

TEST(memory_beyond_the_limit_is_refused_until_some_is_unmapped)
{
    struct device *device;
    struct device_ptr base;
    uint64_t unit;
    int a, b, copy;

    open_small(&device, false, 3);
    unit = device_get_info(device)->chunk_granularity;
    ASSERT_OK(device_range_reserve(device, 4 * unit, &base));
    ASSERT_OK(device_chunk_create(device, 2 * unit, &a));
    ASSERT_STATUS(device_chunk_create(device, 2 * unit, &b), PLASMON_EDEVMEM);
    ASSERT_OK(device_chunk_create(device, unit, &b));

    /* The same chunk mapped twice, by two descriptors, counts once. */
    copy = dup(a);
    ASSERT_TRUE(copy >= 0);
    ASSERT_OK(device_chunk_map(device, a, 2 * unit, 3, true, base));
    ASSERT_OK(
        device_chunk_map(device, copy, 2 * unit, 3, true, device_ptr_add(base, 2 * unit)));
    device_chunk_unmap(device, base, 2 * unit);
    close(copy);
    ASSERT_STATUS(device_chunk_create(device, 2 * unit, &copy), PLASMON_EDEVMEM);
    device_chunk_unmap(device, device_ptr_add(base, 2 * unit), 2 * unit);
    ASSERT_OK(device_chunk_create(device, 2 * unit, &copy));
    close(a);
    close(b);
    close(copy);
    device_close(device);
}

TEST(memory_taken_over_counts_and_a_peers_does_not)
{
    struct device *device;
    struct device_ptr base;
    uint64_t unit;
    int foreign, fd;

    open_small(&device, false, 1);
    unit = device_get_info(device)->chunk_granularity;
    ASSERT_OK(device_range_reserve(device, 2 * unit, &base));
    ASSERT_OK(pl_memfd_create("foreign", unit, &foreign));

    ASSERT_OK(device_chunk_map(device, foreign, unit, 7, false, base)); /* on device 7 */
    ASSERT_OK(device_chunk_create(device, unit, &fd));
    close(fd);
    device_close(device);

    open_small(&device, false, 1);
    ASSERT_OK(device_range_reserve(device, 2 * unit, &base));
    /* ours, made by another */
    ASSERT_OK(device_chunk_map(device, foreign, unit, 3, true, base));
    ASSERT_STATUS(device_chunk_create(device, unit, &fd), PLASMON_EDEVMEM);
    ASSERT_STATUS(
        device_chunk_map(device, foreign, unit, 64, false, device_ptr_add(base, unit)),
        PLASMON_EUNREACHABLE);
    close(foreign);
    device_close(device);
}

/* Can this byte be read? The kernel says so without a signal. */
static bool byte_readable(struct device *device, struct device_ptr at)
{
    int sockets[2];
    ssize_t sent;
    int error;

    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
    sent  = send(sockets[0], device_ptr_host(device, at), 1, 0);
    error = errno;
    close(sockets[0]);
    close(sockets[1]);
    ASSERT_TRUE(sent == 1 || error == EFAULT);
    return sent == 1;
}

TEST(only_mapped_memory_can_be_touched)
{
    struct device *device;
    struct device_ptr base;
    uint64_t unit;
    int fd;

    open_small(&device, true, 4);
    unit = device_get_info(device)->chunk_granularity;
    ASSERT_OK(device_range_reserve(device, 2 * unit, &base));
    ASSERT_EQ(base.addr % unit, 0);
    ASSERT_TRUE(!byte_readable(device, base));

    ASSERT_OK(device_chunk_create(device, 2 * unit, &fd));
    ASSERT_OK(device_chunk_map(device, fd, 2 * unit, 3, true, base));
    ASSERT_TRUE(byte_readable(device, base));
    ASSERT_TRUE(byte_readable(device, device_ptr_add(base, 2 * unit - 1)));
    ASSERT_TRUE(!byte_readable(device, device_ptr_add(base, 2 * unit))); /* guards */
    ASSERT_TRUE(!byte_readable(device, (struct device_ptr){.addr = base.addr - 1}));

    device_chunk_unmap(device, base, 2 * unit);
    ASSERT_TRUE(!byte_readable(device, base));
    ASSERT_STATUS(
        device_chunk_map(device, fd, 2 * unit, 3, true, device_ptr_add(base, unit)),
        PLASMON_EINVAL); /* sticks out of the range */
    close(fd);
    device_close(device);
}

TEST(a_read_only_descriptor_maps_read_only)
{
    struct device *device;
    struct device_ptr base;
    uint64_t unit;
    int fd, readonly;

    open_small(&device, false, 4);
    unit = device_get_info(device)->chunk_granularity;
    ASSERT_OK(device_range_reserve(device, unit, &base));
    ASSERT_OK(device_chunk_create(device, unit, &fd));
    ASSERT_OK(pl_fd_reopen_readonly(fd, &readonly));
    ASSERT_STATUS(device_chunk_map(device, readonly, unit, 3, true, base), PLASMON_EPERM);
    ASSERT_OK(device_chunk_map(device, readonly, unit, 3, false, base));
    ASSERT_TRUE(byte_readable(device, base));
    close(fd);
    close(readonly);
    device_close(device);
}

/* -------------------------------------------------------------------- the world says no */

static plasmon_status_t use_everything(void)
{
    struct device *device        = NULL;
    struct device_stream *stream = NULL;
    struct device_event *event   = NULL;
    struct device_ptr base;
    uint8_t large[1000] = {0};
    plasmon_status_t status;
    int fd = -1;

    status = device_open(DEVICE_CPU, 0, NULL, &device, NULL);
    if (status != PLASMON_OK) {
        return status;
    }
    status = device_stream_create(device, 0, &stream);
    if (status == PLASMON_OK) {
        status = device_event_create(device, true, &event);
    }
    if (status == PLASMON_OK) {
        status = device_cpu_launch(stream, fail_if_odd, large, sizeof(large), 0);
    }
    if (status == PLASMON_OK) {
        status = device_range_reserve(device, 65536, &base);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_create(device, 65536, &fd);
    }
    if (status == PLASMON_OK) {
        status = device_chunk_map(device, fd, 65536, 0, true, base);
    }
    pl_fd_close(&fd);
    device_event_destroy(event);
    device_stream_destroy(stream);
    device_close(device);
    return status;
}

TEST(every_step_fails_cleanly_when_memory_is_gone)
{
    static const char *const points[] = {"alloc", "fd.memfd", "device.map", "device.range"};
    static const plasmon_status_t want[] = {PLASMON_ENOMEM, PLASMON_EDEVMEM,
                                            PLASMON_EDEVICE, PLASMON_ENOMEM};

    for (size_t p = 0; p < PL_COUNT(points); p++) {
        for (unsigned nth = 0;; nth++) {
            plasmon_status_t status;

            pl_fault_arm(points[p], nth);
            status = use_everything();
            if (!pl_fault_disarm()) {
                ASSERT_OK(status);
                ASSERT_TRUE(nth >= 1);
                break;
            }
            ASSERT_STATUS(status, want[p]);
        }
    }
}

TEST(a_cpu_device_has_no_gpu_parts)
{
    struct device *device;
    struct device_module *module;
    struct pl_err err;

    ASSERT_OK(device_open(DEVICE_CPU, 0, NULL, &device, NULL));
    ASSERT_STATUS(device_module_load(device, "x", 1, &module, &err), PLASMON_ENOTSUP);
    ASSERT_NULL(device_cublas(device, &err));
    ASSERT_STR(err.text, "a CPU device has no cuBLAS");
    ASSERT_NULL(device_cublas_symbol(device, "cublasDgemm_v2"));
    ASSERT_TRUE(device_can_peer(device, 5));
    device_close(device);
}

TEST_MAIN()
