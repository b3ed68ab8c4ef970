/*
 * Programs whose values are four times the memory of the device, on real processes: they end, and
 * right. What has no room goes to host memory, from there to files, and comes back; workers that
 * are killed meanwhile lose nothing of it; a byte that a disk got wrong is noticed. Built twice:
 * for CPU devices, and (MEMORY_OF_A_GPU) for the first GPU, which is given as little; that one
 * skips without a GPU.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/integration/started.h"

enum { DEVICE_BYTES = 16 << 20, ARRAYS = 64, COUNT = 1 << 18, TIMES = 3 };

#ifdef MEMORY_OF_A_GPU
#define GPUS "1"
#define KIND 2u
#else
#define GPUS "none"
#define KIND 1u
#endif

static struct plasmon_client *start(uint32_t devices, uint64_t memory, const char *dirs)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client  = NULL;
    struct plasmon_device_info infos[16];
    uint32_t count = 0;

    cluster_tag();
    options.gpus          = GPUS;
    options.cpu_devices   = devices;
    options.device_memory = DEVICE_BYTES;
    options.spill_memory  = memory;
    options.spill_dirs    = dirs;
    if (plasmon_init(&options, &client) != PLASMON_OK) {
        if (KIND == 1) {
            test_fail(__FILE__, __LINE__, "no cluster: %s", plasmon_error(NULL));
        }
        test_skip("no GPU: %s", plasmon_error(NULL));
    }
    CLUSTER_OK(plasmon_devices(client, infos, PL_COUNT(infos), &count));
    if (count == 0 || infos[0].kind != KIND) {
        plasmon_finish(client);
        test_skip("no GPU");
    }
    return client;
}

/* 64 vectors of 1 MiB; all of them made, and added to in turns, some of them from their neighbour. */
static void fill_all(struct plasmon_client *client, struct plasmon_ref **refs)
{
    for (int i = 0; i < ARRAYS; i++) {
        refs[i] = cluster_fill(client, COUNT, i, PLASMON_ANYWHERE);
    }
}

static void add_all(struct plasmon_client *client, struct plasmon_ref **refs)
{
    for (int i = 0; i < ARRAYS; i++) {
        CLUSTER_OK(
            cluster_axpy(client, refs[i], refs[(i + 1) % ARRAYS], 2.0, PLASMON_ANYWHERE));
    }
}

static void add_model(float *values)
{
    for (int i = 0; i < ARRAYS; i++) {
        values[i] += 2.0f * values[(i + 1) % ARRAYS];
    }
}

static void expect_model(struct plasmon_client *client, struct plasmon_ref **refs,
                         const float *values)
{
    for (int i = 0; i < ARRAYS; i++) {
        cluster_expect_all(client, refs[i], COUNT, values[i]);
    }
}

static void release_all(struct plasmon_client *client, struct plasmon_ref **refs)
{
    for (int i = 0; i < ARRAYS; i++) {
        plasmon_release(client, refs[i]);
    }
}

/* Kills the worker of device 0 after each turn if asked. */
static void run_program(struct plasmon_client *client, bool kill_workers)
{
    struct plasmon_ref *refs[ARRAYS];
    float values[ARRAYS];

    for (int i = 0; i < ARRAYS; i++) {
        values[i] = (float)i;
    }
    fill_all(client, refs);
    for (int turn = 0; turn < TIMES; turn++) {
        if (kill_workers) { /* in the middle: nothing that is written in place is under way */
            CLUSTER_OK(
                plasmon_wait(client, refs, ARRAYS, ARRAYS, CLUSTER_WAIT_MS, NULL, NULL));
            cluster_kill(cluster_worker(client, 0));
        }
        add_all(client, refs);
        add_model(values);
    }
    expect_model(client, refs, values);
    release_all(client, refs);
}

TEST(four_times_the_memory_of_a_device_ends_right_with_host_memory)
{
    struct plasmon_client *client = start(1, UINT64_C(1) << 30, NULL);

    test_set_timeout(180);
    run_program(client, false);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

static const char *spill_folder(char out[512], const char *name)
{
    (void)snprintf(out, 512, "%s/%s", cluster_folder(), name);
    ASSERT_EQ(mkdir(out, 0700), 0);
    return out;
}

TEST(and_with_files_where_host_memory_is_short)
{
    char dirs[1100], first[512], second[512];
    struct plasmon_client *client;

    test_set_timeout(240);
    cluster_tag();
    /* The first directory has room for six of them, the second for the rest. */
    (void)snprintf(dirs, sizeof(dirs), "%s:6M,%s", spill_folder(first, "one"),
                   spill_folder(second, "two"));
    client = start(1, 8 << 20, dirs);
    run_program(client, false);
    plasmon_finish(client);
    ASSERT_EQ(rmdir(first), 0); /* nothing is left in them */
    ASSERT_EQ(rmdir(second), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST(workers_that_are_killed_lose_nothing_that_was_spilled)
{
    struct plasmon_client *client = start(2, UINT64_C(1) << 30, NULL);

    test_set_timeout(240);
    run_program(client, true);
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* -------------------------------------------------------------------------------- holes */

enum { SMALL_COUNT = 1 << 16, SMALLS = 60, LARGE_COUNT = 1 << 20 };

/*
 * 60 values of 256 KiB fill the device, every other one was used lately: the others make room for
 * one of 4 MiB, in holes of 256 KiB. The front that finds none of 4 MiB gets one all the same.
 */
TEST(what_is_free_in_pieces_only_becomes_one)
{
    struct plasmon_client *client = start(1, UINT64_C(1) << 30, NULL);
    struct plasmon_ref *refs[SMALLS], *large[3];

    test_set_timeout(120);
    for (int i = 0; i < SMALLS; i++) {
        refs[i] = cluster_fill(client, SMALL_COUNT, i, PLASMON_ANYWHERE);
    }
    CLUSTER_OK(plasmon_wait(client, refs, SMALLS, SMALLS, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 1; i + 2 < SMALLS; i += 2) {
        CLUSTER_OK(cluster_axpy(client, refs[i], refs[i + 2], 1.0, PLASMON_ANYWHERE));
    }
    CLUSTER_OK(plasmon_wait(client, refs, SMALLS, SMALLS, CLUSTER_WAIT_MS, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        large[i] = cluster_fill(client, LARGE_COUNT, 1000 + i, PLASMON_ANYWHERE);
    }
    for (int i = 0; i < 3; i++) {
        cluster_expect_all(client, large[i], LARGE_COUNT, (float)(1000 + i));
        plasmon_release(client, large[i]);
    }
    for (int i = 0; i < SMALLS; i++) {
        bool added = i % 2 == 1 && i + 2 < SMALLS;

        cluster_expect_all(client, refs[i], SMALL_COUNT, (float)(added ? 2 * i + 2 : i));
        plasmon_release(client, refs[i]);
    }
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/*
 * Each step updates an array from one row on, and keeps what it was before: so it ends up in as
 * many buffers, each nearly as large as itself and a row of it in each. All of these never are on
 * the device at one time.
 */
TEST(what_lies_in_more_buffers_than_the_device_has_room_for_is_read)
{
    enum { ROWS = 64, COLUMNS = 4096, STEPS = 40 };

    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {ROWS, COLUMNS}};
    struct plasmon_ref *array, *before[STEPS], *one, *sum;
    struct plasmon_client *client = start(1, 64 << 20, NULL);
    static float data[ROWS * COLUMNS];
    plasmon_scalar_t factor = {.f = 1};

    test_set_timeout(240);
    one = cluster_fill(client, 1, 1, PLASMON_ANYWHERE);
    CLUSTER_OK(plasmon_put(client, data, &shape, NULL, &array));
    for (int k = 0; k < STEPS; k++) {
        int64_t first[] = {k, 0}, count[] = {ROWS - k, COLUMNS};
        struct plasmon_arg args[] = {{.mode = PLASMON_INOUT},
                                     {.mode = PLASMON_IN, .ref = one}};
        struct plasmon_call call  = PLASMON_CALL_INIT;

        CLUSTER_OK(plasmon_snapshot(client, array, &before[k]));
        CLUSTER_OK(plasmon_view(client, array, first, count, NULL, &args[0].ref));
        call.function = "axpy", call.args = args, call.arg_count = 2;
        call.scalars = &factor, call.scalar_count = 1;
        CLUSTER_OK(plasmon_submit(client, &call, NULL, NULL));
        CLUSTER_OK(plasmon_release(client, args[0].ref));
    }
    /* A copy of it in place of an update in place: it is read, and it is written. */
    CLUSTER_OK(plasmon_snapshot(client, array, &sum));
    CLUSTER_OK(cluster_axpy(client, sum, array, 1.0, PLASMON_ANYWHERE));
    for (int k = STEPS; k >= -1; k--) {
        struct plasmon_ref *ref = k == STEPS ? array : k < 0 ? sum : before[k];

        CLUSTER_OK(plasmon_get(client, ref, data, sizeof(data), CLUSTER_WAIT_MS));
        for (int row = 0; row < ROWS; row++) {
            int steps  = k < 0 ? STEPS : k;             /* so many were over .. */
            int wanted = row < steps ? row + 1 : steps; /* .. and so many had this row */

            ASSERT_TRUE(data[row * COLUMNS + row] == (float)(k < 0 ? 2 * wanted : wanted));
        }
        CLUSTER_OK(plasmon_release(client, ref));
    }
    CLUSTER_OK(plasmon_release(client, one));
    plasmon_finish(client);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* -------------------------------------------------------------------------------- disks */

/* Flips a byte in every file of the store that lies in `folder`; returns how many. */
static unsigned flip_bytes(pid_t store, const char *folder)
{
    char path[64], target[512], fd_path[400];
    unsigned flipped = 0;
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)store);
    dir = opendir(path);
    ASSERT_NOT_NULL(dir);
    while ((entry = readdir(dir)) != NULL) {
        ssize_t length;
        char byte;
        int fd;

        (void)snprintf(fd_path, sizeof(fd_path), "%s/%s", path, entry->d_name);
        length = readlink(fd_path, target, sizeof(target) - 1);
        if (length <= 0 || strncmp(target, folder, strlen(folder)) != 0) {
            continue;
        }
        fd = open(fd_path, O_RDWR | O_CLOEXEC);
        ASSERT_TRUE(fd >= 0);
        ASSERT_EQ(pread(fd, &byte, 1, 12345), 1);
        byte ^= 0x10;
        ASSERT_EQ(pwrite(fd, &byte, 1, 12345), 1);
        ASSERT_EQ(close(fd), 0);
        flipped++;
    }
    (void)closedir(dir);
    return flipped;
}

/*
 * More is made than there is room for, and read while it is under way: what does not fit fails, and
 * nothing else, now or later.
 */
TEST(what_is_there_is_read_while_others_find_no_room)
{
    enum { SMALL = 25000, MANY = 400 };
    struct plasmon_client *client = start(1, DEVICE_BYTES, NULL);
    struct plasmon_ref *refs[MANY];
    float *values = calloc(SMALL, sizeof(*values));
    int failed    = 0;

    ASSERT_TRUE(values != NULL);
    for (int i = 0; i < MANY; i++) {
        refs[i] = cluster_fill(client, SMALL, i, PLASMON_ANYWHERE);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            plasmon_status_t status = plasmon_get(client, refs[i], values,
                                                  SMALL * sizeof(*values), PLASMON_FOREVER);

            if (status == PLASMON_OK) {
                ASSERT_EQ(values[SMALL - 1], (float)i);
                continue;
            }
            ASSERT_STATUS(status, PLASMON_EDEVMEM);
            ASSERT_CONTAINS(plasmon_error(client), "(fill)"); /* and no restore */
            failed += round == 0;
        }
    }
    ASSERT_TRUE(failed > 0 && failed < MANY / 2);
    free(values);
    plasmon_finish(client);
}

/* What has failed goes; the rest is read, each once in turn and once at random. */
static int read_what_is_there(struct plasmon_client *client, struct plasmon_ref **refs,
                              float *made, int count, float *values, size_t bytes,
                              uint64_t *random)
{
    for (int i = 0; i < count;) {
        if (plasmon_wait(client, &refs[i], 1, 1, CLUSTER_WAIT_MS, NULL, NULL) ==
                PLASMON_OK &&
            plasmon_state(client, refs[i]) == PLASMON_OK) {
            i++;
            continue;
        }
        CLUSTER_OK(plasmon_release(client, refs[i]));
        refs[i] = refs[--count];
        made[i] = made[count];
    }
    for (int i = 0; i < 2 * count; i++) {
        int k = i < count ? i : (int)(test_random(random) % (uint64_t)count);

        CLUSTER_OK(plasmon_get(client, refs[k], values, bytes, CLUSTER_WAIT_MS));
        ASSERT_EQ(values[bytes / sizeof(*values) - 1], made[k]);
    }
    return count;
}

/*
 * A program that always asks for a third more than there is room for, and makes, copies, reads and
 * releases meanwhile: whatever came to be stays readable.
 */
TEST(what_is_there_stays_readable_while_a_program_asks_for_more_than_there_is)
{
    enum { SMALL = 40000, MOST = 300, ROUNDS = 12, CALLS = 150 };
    struct plasmon_client *client = start(1, 19 << 20, "none");
    float *values                 = calloc(SMALL, sizeof(*values));
    struct plasmon_ref *refs[MOST];
    float made[MOST];
    uint64_t random = test_seed();
    int count       = 0;

    ASSERT_TRUE(values != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int call = 0; call < CALLS; call++) {
            uint64_t what = test_random(&random) % 10;
            int k         = count > 0 ? (int)(test_random(&random) % (uint64_t)count) : 0;

            if (what < 8 && count < MOST) {
                bool copies = what >= 5 && count > 0;

                made[count] = copies ? made[k] : (float)call;
                refs[count] = copies ? cluster_copy(client, refs[k], PLASMON_ANYWHERE)
                                     : cluster_fill(client, SMALL, call, PLASMON_ANYWHERE);
                count++;
            } else if (what == 8 && count > 0) {
                CLUSTER_OK(plasmon_release(client, refs[k]));
                refs[k] = refs[--count];
                made[k] = made[count];
            } else if (count > 0) { /* it may have found no room, or what it copies */
                (void)plasmon_get(client, refs[k], values, SMALL * sizeof(*values),
                                  CLUSTER_WAIT_MS);
            }
        }
        count = read_what_is_there(client, refs, made, count, values,
                                   SMALL * sizeof(*values), &random);
    }
    ASSERT_TRUE(count > 180); /* and most of the room is used */
    free(values);
    plasmon_finish(client);
}

TEST(a_byte_that_a_disk_got_wrong_is_noticed)
{
    struct plasmon_ref *refs[ARRAYS];
    struct plasmon_client *client;
    static float data[COUNT];
    unsigned flipped, lost = 0;
    char folder[512];

    test_set_timeout(240);
    cluster_tag();
    ASSERT_EQ(setenv("PLASMON_LINEAGE_BYTES", "0", 1),
              0); /* or what it took is made again */
    client = start(1, 8 << 20, spill_folder(folder, "disk"));
    fill_all(client, refs);
    CLUSTER_OK(plasmon_wait(client, refs, ARRAYS, ARRAYS, CLUSTER_WAIT_MS, NULL, NULL));
    flipped = flip_bytes(cluster_find("plasmon-store", -1), folder);
    ASSERT_TRUE(flipped > 0);
    for (int i = 0; i < ARRAYS; i++) {
        plasmon_status_t status =
            plasmon_get(client, refs[i], data, sizeof(data), CLUSTER_WAIT_MS);

        if (status == PLASMON_OK) {
            ASSERT_TRUE(data[0] == (float)i && data[COUNT - 1] == (float)i);
            continue;
        }
        ASSERT_CONTAINS(plasmon_error(client), "checksum");
        ASSERT_CONTAINS(plasmon_error(client), folder);
        lost++;
    }
    ASSERT_TRUE(lost > 0 && lost <= flipped);
    release_all(client, refs);
    plasmon_finish(client);
    ASSERT_EQ(rmdir(folder), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

/* No room in memory nor in files: who cannot be served fails and says what to do, and nothing hangs. */
TEST(where_nothing_is_left_tasks_fail_and_say_why)
{
    struct plasmon_ref *refs[ARRAYS];
    struct plasmon_client *client;
    static float data[COUNT];
    char folder[512], dirs[600];
    unsigned failed = 0;

    test_set_timeout(240);
    cluster_tag();
    (void)snprintf(dirs, sizeof(dirs), "%s:4M", spill_folder(folder, "small"));
    client = start(1, 8 << 20, dirs);
    fill_all(client, refs);
    for (int i = 0; i < ARRAYS; i++) {
        plasmon_status_t status =
            plasmon_get(client, refs[i], data, sizeof(data), CLUSTER_WAIT_MS);

        if (status == PLASMON_OK) {
            ASSERT_TRUE(data[0] == (float)i && data[COUNT - 1] == (float)i);
        } else {
            failed++;
        }
    }
    ASSERT_TRUE(failed > 0 && failed < ARRAYS); /* 16 + 8 + 4 MiB for 64 */
    release_all(client, refs);
    plasmon_finish(client);
    ASSERT_EQ(rmdir(folder), 0);
    cluster_expect_gone(CLUSTER_GONE_MS);
}

TEST_MAIN()
