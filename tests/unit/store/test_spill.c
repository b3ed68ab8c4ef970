/*
 * The store's part of spilling: the checksum is XXH64, files fill their directories in order up to
 * the limits, a byte that changed is noticed, and what is asked is done once and in order, however
 * often it is said.
 */
#include "store/spill.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/lock.h"
#include "store/checksum.h"
#include "store/spill_files.h"
#include "tests/harness/test.h"

#define BYTES 65536u

static void folder(char out[64])
{
    (void)snprintf(out, 64, "/tmp/plasmon-test-spill-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(out));
}

TEST(the_checksum_is_xxh64)
{
    /* Values of the specification's reference implementation, seed 0. */
    ASSERT_EQ(store_checksum("", 0), 0xef46db3751d8e999u);
    ASSERT_EQ(store_checksum("a", 1), 0xd24ec4f1a98c6e5bu);
    ASSERT_EQ(store_checksum("abc", 3), 0x44bc2cf5ad770999u);
    ASSERT_EQ(store_checksum("The quick brown fox jumps over the lazy dog", 43),
              0x0b242d361fda71bcu);
}

static void fill(uint8_t *data, uint8_t seed)
{
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(i * 31 + seed);
    }
}

TEST(files_come_back_as_they_were_and_leave_nothing)
{
    static uint8_t data[BYTES], back[BYTES];
    struct store_spill_files files;
    const char *text;
    struct pl_err err;
    char dir[64];

    folder(dir);
    text = dir;
    ASSERT_OK(store_spill_files_init(&files, &text, 1, &err));
    for (uint8_t i = 1; i <= 5; i++) {
        fill(data, i);
        ASSERT_OK(store_spill_files_write(&files, i, data, BYTES, &err));
    }
    for (uint8_t i = 5; i >= 1; i--) {
        fill(data, i);
        ASSERT_OK(store_spill_files_read(&files, i, back, BYTES, &err));
        ASSERT_EQ(memcmp(data, back, BYTES), 0);
    }
    store_spill_files_forget(&files, 3);
    ASSERT_STATUS(store_spill_files_read(&files, 3, back, BYTES, &err), PLASMON_ENOENT);
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(dir), 0); /* it is empty */
}

TEST(a_limit_may_be_any_number_of_bytes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } limits[] = {{"8388609", 8388609},
                  {"30897278976", UINT64_C(30897278976)},
                  {"3G", UINT64_C(3) << 30},
                  {"9T", UINT64_C(9) << 40}};
    char dir[64], text[128];
    struct pl_err err;

    folder(dir);
    for (size_t i = 0; i < PL_COUNT(limits); i++) {
        const char *given = text;
        struct store_spill *spill;

        (void)snprintf(text, sizeof(text), "%s:%s", dir, limits[i].text);
        ASSERT_OK(store_spill_create(BYTES, &given, 1, &spill, &err));
        ASSERT_EQ(store_spill_file_bytes(spill), limits[i].bytes);
        store_spill_destroy(spill);
    }
    ASSERT_EQ(rmdir(dir), 0);
}

TEST(directories_are_filled_in_order_and_up_to_their_limits)
{
    static uint8_t data[BYTES];
    char first[64], second[64], texts[2][80];
    const char *list[2] = {texts[0], texts[1]};
    struct store_spill_files files;
    struct pl_err err;

    folder(first);
    folder(second);
    (void)snprintf(texts[0], sizeof(texts[0]), "%s:128K", first);
    (void)snprintf(texts[1], sizeof(texts[1]), "%s:64K", second);
    ASSERT_OK(store_spill_files_init(&files, list, 2, &err));
    ASSERT_EQ(store_spill_files_max(&files), 3 * BYTES);
    for (uint64_t i = 1; i <= 3; i++) {
        ASSERT_OK(store_spill_files_write(&files, i, data, BYTES, &err));
    }
    ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
    ASSERT_EQ(files.dirs[1].bytes_used, BYTES);
    ASSERT_STATUS(store_spill_files_write(&files, 4, data, BYTES, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text, "--spill-dir");
    store_spill_files_forget(&files, 1);
    ASSERT_OK(store_spill_files_write(&files, 4, data, BYTES, &err));
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(first), 0);
    ASSERT_EQ(rmdir(second), 0);
}

/* There are only so many, and a store lives long. */
TEST(the_entry_of_what_is_forgotten_is_used_again)
{
    static uint8_t data[BYTES];
    struct store_spill_files files;
    struct pl_err err;
    char dir[64];
    const char *text = dir;

    folder(dir);
    ASSERT_OK(store_spill_files_init(&files, &text, 1, &err));
    for (uint64_t number = 1; number <= 20; number++) {
        ASSERT_OK(store_spill_files_write(&files, number, data, 64, &err));
        if (number > 2) {
            store_spill_files_forget(&files, number - 2);
        }
    }
    ASSERT_EQ(files.index->entry_end, 3);
    store_spill_files_forget_all(&files, 2);
    for (uint64_t number = 30; number < 33; number++) {
        ASSERT_OK(store_spill_files_write(&files, number, data, 64, &err));
    }
    ASSERT_EQ(files.index->entry_end, 3);
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(dir), 0);
}

TEST(a_directory_that_cannot_be_used_is_refused_by_name)
{
    const char *missing = "/nonexistent/spill";
    struct store_spill_files files;
    struct pl_err err;

    ASSERT_STATUS(store_spill_files_init(&files, &missing, 1, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, missing);
}

TEST(a_full_disk_is_passed_over_and_named)
{
    static uint8_t data[BYTES];
    char first[64], second[64];
    const char *list[2] = {first, second};
    struct store_spill_files files;
    struct pl_err err;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    test_expect_log();
    folder(first);
    folder(second);
    ASSERT_OK(store_spill_files_init(&files, list, 2, &err));
    pl_fault_arm("store.spill_full", 0);
    ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err)); /* in the second */
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_EQ(files.dirs[0].bytes_used, 0);
    ASSERT_EQ(files.dirs[1].bytes_used, BYTES);
    pl_fault_arm("store.spill_full", 0);
    ASSERT_STATUS(store_spill_files_write(&files, 2, data, BYTES, &err), PLASMON_ELIMIT);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_CONTAINS(err.text, second);
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(first), 0);
    ASSERT_EQ(rmdir(second), 0);
}

/* Nothing of ours was in it, so nothing of ours can be forgotten; who filled it may have made room. */
TEST(a_disk_that_was_full_is_tried_again_after_a_while)
{
    static uint8_t data[BYTES];
    char path[64];
    const char *list[1] = {path};
    struct store_spill_files files;
    struct pl_err err;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    test_expect_log();
    folder(path);
    ASSERT_OK(store_spill_files_init(&files, list, 1, &err));
    pl_fault_arm("store.spill_full", 0);
    ASSERT_STATUS(store_spill_files_write(&files, 1, data, BYTES, &err), PLASMON_ELIMIT);
    ASSERT_TRUE(pl_fault_disarm());
    ASSERT_TRUE(files.dirs[0].again_ns > pl_now_ns());
    ASSERT_STATUS(store_spill_files_write(&files, 1, data, BYTES, &err), PLASMON_ELIMIT);
    ASSERT_CONTAINS(err.text,
                    path); /* which is what lacks room, and no --spill-dir limit */
    ASSERT_CONTAINS(err.text, "No space left on device");
    files.dirs[0].again_ns = 0; /* it was a while ago */
    ASSERT_OK(store_spill_files_write(&files, 1, data, BYTES, &err));
    ASSERT_OK(store_spill_files_write(&files, 2, data, BYTES, &err));
    store_spill_files_finish(&files);
    ASSERT_EQ(rmdir(path), 0);
}

/* --------------------------------------------------------------------------- the thread */

struct waiter {
    struct store_spill *spill;
    struct pl_mutex lock;
    struct pl_cond changed;
    unsigned done;
    int fd;
};

static void slab_wanted(void *user)
{
    struct waiter *waiter = user;

    store_spill_slab_made(waiter->spill, PLASMON_OK, waiter->fd, 77, 4 * BYTES, "");
}

static void done(void *user)
{
    struct waiter *waiter = user;

    pl_mutex_lock(&waiter->lock);
    waiter->done++;
    pl_cond_broadcast(&waiter->changed);
    pl_mutex_unlock(&waiter->lock);
}

static void wait_done(struct waiter *waiter, unsigned count)
{
    pl_mutex_lock(&waiter->lock);
    while (waiter->done < count) {
        pl_cond_wait(&waiter->changed, &waiter->lock);
    }
    pl_mutex_unlock(&waiter->lock);
}

static void slab_wanted_in_pieces(void *user)
{
    struct waiter *waiter = user;

    store_spill_slab_made(waiter->spill, PLASMON_OK, waiter->fd, 77, BYTES, "");
}

static void expect_slab(struct waiter *waiter, uint64_t id, plasmon_status_t status,
                        uint64_t bytes)
{
    struct store_spill_result result;

    wait_done(waiter, (unsigned)id);
    ASSERT_TRUE(store_spill_take(waiter->spill, &result));
    ASSERT_EQ(result.id, id);
    ASSERT_STATUS(result.status, status);
    if (status == PLASMON_OK) {
        ASSERT_EQ(result.bytes, bytes);
        ASSERT_EQ(result.host_buffer, 77);
    } else {
        ASSERT_CONTAINS(result.text, "no RAM");
    }
}

static void ask_for_slab(struct waiter *waiter, uint64_t id, uint64_t known)
{
    store_spill_ask(
        waiter->spill,
        &(struct store_spill_op){.id = id, .kind = STORE_SPILL_SLAB, .offset = known});
}

TEST(whoever_wants_more_memory_hears_when_there_is_more_or_that_there_is_none)
{
    struct waiter waiter = {.fd = -1};
    struct pl_err err;

    ASSERT_OK(pl_mutex_init(&waiter.lock, PL_RANK_LEAF));
    ASSERT_OK(pl_cond_init(&waiter.changed));
    ASSERT_OK(pl_memfd_create("test", 8 * BYTES, &waiter.fd));
    ASSERT_OK(store_spill_create(8 * BYTES, NULL, 0, &waiter.spill, &err));
    ASSERT_OK(store_spill_start(waiter.spill, slab_wanted_in_pieces, done, &waiter));
    ask_for_slab(&waiter, 1, 0);
    expect_slab(&waiter, 1, PLASMON_OK, BYTES);
    ask_for_slab(&waiter, 2, BYTES); /* whether it is asked for before .. */
    store_spill_slab_made(waiter.spill, PLASMON_OK, waiter.fd, 77, 3 * BYTES, "");
    expect_slab(&waiter, 2, PLASMON_OK, 3 * BYTES);
    store_spill_slab_made(waiter.spill, PLASMON_OK, waiter.fd, 77, 4 * BYTES, "");
    ask_for_slab(&waiter, 3, 3 * BYTES); /* .. or after it came */
    expect_slab(&waiter, 3, PLASMON_OK, 4 * BYTES);
    ask_for_slab(&waiter, 4, 4 * BYTES);
    store_spill_slab_made(waiter.spill, PLASMON_ENOMEM, waiter.fd, 77, 5 * BYTES, "no RAM");
    expect_slab(&waiter, 4, PLASMON_OK, 5 * BYTES);
    ask_for_slab(&waiter, 5, 5 * BYTES);
    expect_slab(&waiter, 5, PLASMON_ENOMEM, 0);
    store_spill_destroy(waiter.spill);
    pl_fd_close(&waiter.fd);
    pl_cond_finish(&waiter.changed);
    pl_mutex_finish(&waiter.lock);
}

static void slab_cannot_be_made(void *user)
{
    struct waiter *waiter = user;

    store_spill_slab_made(waiter->spill, PLASMON_ENOMEM, -1, 0, 0, "no RAM");
}

/* Nobody waits for ever, nor does who asks later. */
TEST(whoever_wants_memory_that_cannot_be_made_is_told_so)
{
    struct waiter waiter = {.fd = -1};
    struct pl_err err;

    ASSERT_OK(pl_mutex_init(&waiter.lock, PL_RANK_LEAF));
    ASSERT_OK(pl_cond_init(&waiter.changed));
    ASSERT_OK(store_spill_create(8 * BYTES, NULL, 0, &waiter.spill, &err));
    ASSERT_OK(store_spill_start(waiter.spill, slab_cannot_be_made, done, &waiter));
    for (uint64_t id = 1; id <= 2; id++) {
        ask_for_slab(&waiter, id, 0);
        expect_slab(&waiter, id, PLASMON_ENOMEM, 0);
    }
    store_spill_destroy(waiter.spill);
    pl_cond_finish(&waiter.changed);
    pl_mutex_finish(&waiter.lock);
}

/* What a head says that is wrong: nothing outside of the memory is read, or written. */
TEST(what_lies_outside_of_the_memory_is_refused)
{
    static const struct store_spill_op wrong[] = {
        {.kind = STORE_SPILL_WRITE, .offset = 4 * BYTES, .bytes = 1},
        {.kind = STORE_SPILL_WRITE, .offset = 3 * BYTES, .bytes = BYTES + 1},
        {.kind = STORE_SPILL_WRITE, .offset = 0, .bytes = 4 * BYTES + 1},
        {.kind = STORE_SPILL_WRITE, .offset = 0, .bytes = UINT64_MAX},
        {.kind = STORE_SPILL_WRITE, .offset = UINT64_MAX, .bytes = BYTES},
        {.kind = STORE_SPILL_WRITE, .offset = UINT64_MAX - BYTES + 1, .bytes = BYTES},
        {.kind = STORE_SPILL_READ, .offset = 0, .bytes = 5 * BYTES, .file = 2},
        {.kind = STORE_SPILL_MOVE, .offset = 4 * BYTES, .bytes = BYTES},
        {.kind = STORE_SPILL_MOVE, .offset = 0, .bytes = BYTES, .file = 4 * BYTES},
        {.kind = STORE_SPILL_MOVE, .offset = 0, .bytes = BYTES, .file = UINT64_MAX},
    };
    struct waiter waiter = {.fd = -1};
    struct store_spill_result result;
    struct pl_err err;
    char dir[64];
    const char *text = dir;

    folder(dir);
    ASSERT_OK(pl_mutex_init(&waiter.lock, PL_RANK_LEAF));
    ASSERT_OK(pl_cond_init(&waiter.changed));
    ASSERT_OK(pl_memfd_create("test", 4 * BYTES, &waiter.fd));
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &waiter.spill, &err));
    ASSERT_OK(store_spill_start(waiter.spill, slab_wanted, done, &waiter));
    ask_for_slab(&waiter, 1, 0);
    expect_slab(&waiter, 1, PLASMON_OK, 4 * BYTES);
    for (uint32_t i = 0; i < PL_COUNT(wrong); i++) {
        struct store_spill_op op = wrong[i];

        op.id = i + 2;
        store_spill_ask(waiter.spill, &op);
        wait_done(&waiter, i + 2);
        ASSERT_TRUE(store_spill_take(waiter.spill, &result));
        ASSERT_STATUS(result.status, PLASMON_ERANGE);
        ASSERT_CONTAINS(result.text, "of the spill memory");
    }
    store_spill_destroy(waiter.spill);
    pl_fd_close(&waiter.fd);
    pl_cond_finish(&waiter.changed);
    pl_mutex_finish(&waiter.lock);
    ASSERT_EQ(rmdir(dir), 0);
}

TEST(what_is_asked_is_done_once_and_in_order)
{
    struct waiter waiter = {.fd = -1};
    const char *text;
    struct store_spill_result result;
    struct pl_err err;
    uint8_t *memory;
    void *mapped;
    char dir[64];

    folder(dir);
    text = dir;
    ASSERT_OK(pl_mutex_init(&waiter.lock, PL_RANK_LEAF));
    ASSERT_OK(pl_cond_init(&waiter.changed));
    ASSERT_OK(pl_memfd_create("test", 4 * BYTES, &waiter.fd));
    ASSERT_OK(pl_fd_map(waiter.fd, 4 * BYTES, 1, &mapped));
    memory = mapped;
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &waiter.spill, &err));
    ASSERT_OK(store_spill_start(waiter.spill, slab_wanted, done, &waiter));
    fill(memory, 9);
    store_spill_ask(waiter.spill,
                    &(struct store_spill_op){.id = 1, .kind = STORE_SPILL_SLAB});
    for (int i = 0; i < 2; i++) { /* the second time changes nothing */
        store_spill_ask(waiter.spill,
                        &(struct store_spill_op){
                            .id = 2, .kind = STORE_SPILL_WRITE, .bytes = BYTES, .file = 2});
    }
    store_spill_ask(waiter.spill, &(struct store_spill_op){.id     = 3,
                                                           .kind   = STORE_SPILL_READ,
                                                           .offset = 2 * BYTES,
                                                           .bytes  = BYTES,
                                                           .file   = 2});
    store_spill_ask(waiter.spill, &(struct store_spill_op){.id     = 4,
                                                           .kind   = STORE_SPILL_MOVE,
                                                           .offset = 2 * BYTES,
                                                           .bytes  = BYTES,
                                                           .file   = 2 * BYTES - 256});
    store_spill_ask(waiter.spill, &(struct store_spill_op){.id     = 5,
                                                           .kind   = STORE_SPILL_READ,
                                                           .offset = 4 * BYTES,
                                                           .bytes  = BYTES,
                                                           .file   = 2});
    wait_done(&waiter, 5);
    for (uint64_t id = 1; id <= 5; id++) {
        ASSERT_TRUE(store_spill_take(waiter.spill, &result));
        ASSERT_EQ(result.id, id);
        ASSERT_STATUS(result.status, id == 5 ? PLASMON_ERANGE : PLASMON_OK);
        ASSERT_TRUE(id != 1 || result.host_buffer == 77);
    }
    ASSERT_TRUE(!store_spill_take(waiter.spill, &result));
    ASSERT_EQ(memcmp(memory, memory + 2 * BYTES - 256, BYTES), 0);
    store_spill_destroy(waiter.spill);
    pl_fd_unmap(mapped, 4 * BYTES);
    pl_fd_close(&waiter.fd);
    pl_cond_finish(&waiter.changed);
    pl_mutex_finish(&waiter.lock);
    ASSERT_EQ(rmdir(dir), 0);
}

TEST_MAIN()
