/*
 * A store that takes over what the one before it spilled: it has the same bytes under the same
 * life, does nothing twice that must not be done twice, and drops what cannot be right; whose file,
 * index or host memory is missing, and what is of other memory, is not taken.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "store/spill.h"
#include "store/spill_files.h"
#include "tests/harness/test.h"

#define BYTES  65536u
#define MEMORY 0x1234u
#define SLAB   77u

static uint8_t data[BYTES], back[BYTES];

static void folder(char out[64])
{
    (void)snprintf(out, 64, "/tmp/plasmon-test-adopt-XXXXXX");
    ASSERT_NOT_NULL(mkdtemp(out));
}

static void fill(uint8_t seed)
{
    for (size_t i = 0; i < BYTES; i++) {
        /* moved by a page, it is another */
        data[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
    }
}

static unsigned open_files(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    ASSERT_NOT_NULL(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

/* What a worker keeps of a store that has `files`: copies of its descriptors. */
struct kept {
    struct store_spill_part parts[2 * STORE_SPILL_PARTS_MAX];
    size_t count;
};

static void keep_part(struct kept *kept, uint32_t which, int fd)
{
    kept->parts[kept->count++] =
        (struct store_spill_part){.which = which, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
}

static void keep_files(struct kept *kept, const struct store_spill_files *files)
{
    keep_part(kept, STORE_SPILL_PART_INDEX, files->index_fd);
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        if (files->dirs[i].fd >= 0) {
            keep_part(kept, i + 1, files->dirs[i].fd);
        }
    }
}

static void keep_spill(struct kept *kept, const struct store_spill *spill)
{
    struct store_spill_part parts[STORE_SPILL_PARTS_MAX];
    uint32_t count = store_spill_parts(spill, parts);

    for (uint32_t i = 0; i < count; i++) {
        keep_part(kept, parts[i].which, parts[i].fd);
    }
}

static void kept_close(struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++) {
        pl_fd_close(&kept->parts[i].fd);
    }
    kept->count = 0;
}

/* As store_spill_adopt() does: into files that were made with `dirs`. */
static void adopt(struct store_spill_files *files, const struct kept *kept,
                  const char *const *dirs, uint32_t dir_count)
{
    struct store_spill_index *index;
    int fds[STORE_SPILL_PARTS_MAX];
    struct pl_err err;

    ASSERT_OK(store_spill_files_init(files, dirs, dir_count, &err));
    ASSERT_EQ(kept->parts[0].which, STORE_SPILL_PART_INDEX);
    ASSERT_OK(store_spill_index_open(kept->parts[0].fd, MEMORY, &index, &err));
    for (size_t i = 1; i < kept->count; i++) {
        fds[i - 1] = kept->parts[i].fd;
    }
    ASSERT_OK(store_spill_files_adopt(
        files, index, fcntl(kept->parts[0].fd, F_DUPFD_CLOEXEC, 3), fds, kept->count - 1));
}

/* Values 1 to `count`; number i begins with byte i. What a worker would keep of them. */
static void files_written(struct kept *kept, const char *const *dirs, uint32_t dir_count,
                          uint8_t count)
{
    struct store_spill_files files;
    struct pl_err err;

    kept->count = 0;
    ASSERT_OK(store_spill_files_init(&files, dirs, dir_count, &err));
    files.index->memory = MEMORY;
    for (uint8_t i = 1; i <= count; i++) {
        fill(i);
        ASSERT_OK(store_spill_files_write(&files, i, data, BYTES, &err));
    }
    keep_files(kept, &files);
    store_spill_files_finish(&files);
}

static void expect_there(struct store_spill_files *files, uint8_t number)
{
    struct pl_err err;

    fill(number);
    ASSERT_OK(store_spill_files_read(files, number, back, BYTES, &err));
    ASSERT_EQ(memcmp(data, back, BYTES), 0);
}

static void expect_lost(struct store_spill_files *files, uint8_t number)
{
    struct pl_err err;

    ASSERT_STATUS(store_spill_files_read(files, number, back, BYTES, &err), PLASMON_ENOENT);
}

TEST(files_are_taken_over_and_go_on)
{
    unsigned before = open_files();
    char first[64], second[64], text[80];
    const char *dirs[2] = {text, second};
    struct store_spill_files files;
    struct kept kept;
    struct pl_err err;
    struct stat about;

    folder(first);
    folder(second);
    (void)snprintf(text, sizeof(text), "%s:128K", first);
    files_written(&kept, dirs, 2, 4);
    /* The rest of a write that was under way when the store died. */
    ASSERT_EQ(pwrite(kept.parts[1].fd, data, BYTES, 2 * BYTES), BYTES);
    adopt(&files, &kept, dirs, 2);
    for (uint8_t i = 1; i <= 4; i++) {
        expect_there(&files, i);
        ASSERT_TRUE(store_spill_files_has(&files, i, BYTES));
    }
    ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
    ASSERT_EQ(fstat(files.dirs[0].fd, &about), 0);
    ASSERT_EQ(about.st_size, 2 * BYTES);

    /* What is forgotten makes room, in order, and the disk gets it back. */
    store_spill_files_forget(&files, 1);
    fill(5);
    ASSERT_OK(store_spill_files_write(&files, 5, data, BYTES, &err));
    ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
    expect_there(&files, 2);
    expect_there(&files, 5);
    store_spill_files_forget_all(&files, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(fstat(files.dirs[i].fd, &about), 0);
        ASSERT_EQ(about.st_blocks, 0);
    }
    store_spill_files_finish(&files);
    kept_close(&kept);
    ASSERT_EQ(open_files(), before);
    ASSERT_EQ(rmdir(first), 0);
    ASSERT_EQ(rmdir(second), 0);
}

/* No entry is given to two values, whoever wrote them. */
TEST(what_a_store_adds_is_there_for_the_next_one)
{
    char dir[64];
    const char *dirs[] = {dir};
    struct store_spill_files files;
    struct kept kept;
    struct pl_err err;
    uint8_t count = 3;

    folder(dir);
    files_written(&kept, dirs, 1, count);
    for (unsigned round = 0; round < 3; round++) {
        adopt(&files, &kept, dirs, 1);
        kept_close(&kept);
        for (uint8_t i = 1; i <= count; i++) {
            expect_there(&files, i);
        }
        for (unsigned more = 0; more < 3; more++) {
            fill(++count);
            ASSERT_OK(store_spill_files_write(&files, count, data, BYTES, &err));
        }
        ASSERT_EQ(files.index->entry_end, count);
        keep_files(&kept, &files);
        store_spill_files_finish(&files);
    }
    kept_close(&kept);
    ASSERT_EQ(rmdir(dir), 0);
}

TEST(a_directory_that_is_not_given_any_more_is_read_and_not_written)
{
    char first[64], second[64];
    const char *one[] = {first}, *other[] = {second};
    struct store_spill_files files;
    struct kept kept;
    struct pl_err err;

    folder(first);
    folder(second);
    files_written(&kept, one, 1, 2);
    adopt(&files, &kept, other, 1);
    expect_there(&files, 1);
    fill(3);
    ASSERT_OK(store_spill_files_write(&files, 3, data, BYTES, &err));
    ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
    ASSERT_EQ(files.dirs[1].bytes_used, BYTES);
    kept_close(&kept);

    /* And once more: a third store has both. */
    keep_files(&kept, &files);
    store_spill_files_finish(&files);
    adopt(&files, &kept, one, 1);
    for (uint8_t i = 1; i <= 3; i++) {
        expect_there(&files, i);
    }
    store_spill_files_finish(&files);
    kept_close(&kept);
}

TEST(an_entry_that_was_changed_is_dropped_and_the_others_are_there)
{
    char dir[64];
    const char *dirs[] = {dir};

    test_expect_log();
    folder(dir);
    /* Every third byte of the second entry but `unused`; the state may become 0, which is nothing there. */
    for (size_t at = 0; at < offsetof(struct store_spill_entry, unused); at += 3) {
        struct store_spill_files files;
        struct store_spill_index *index;
        struct kept kept;
        struct pl_err err;

        files_written(&kept, dirs, 1, 3);
        ASSERT_OK(store_spill_index_open(kept.parts[0].fd, MEMORY, &index, &err));
        ((uint8_t *)&index->entries[1])[at] ^= 0x41;
        store_spill_index_close(index);
        adopt(&files, &kept, dirs, 1);
        expect_there(&files, 1);
        expect_lost(&files, 2);
        expect_there(&files, 3);
        ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
        store_spill_files_finish(&files);
        kept_close(&kept);
    }
}

/* Entries with a right check sum that cannot be: nothing of another value is read or given away for them. */
TEST(entries_that_cannot_be_are_dropped)
{
    static const struct {
        uint64_t number, offset, bytes;
        uint32_t dir;
    } wrongs[] = {{2, 4 * BYTES, BYTES, 0},                /* behind the end */
                  {2, UINT64_MAX - 4095, BYTES, 0},        /* .. and around it */
                  {2, BYTES, UINT64_MAX, 0},               /* too long */
                  {2, BYTES + 8, 64, 0},                   /* at no block */
                  {2, 0, BYTES, 0},                        /* over another one */
                  {2, BYTES, 0, 0},                        /* nothing */
                  {0, BYTES, BYTES, 0},                    /* no number */
                  {1, BYTES, BYTES, 0},                    /* a number that there is */
                  {2, BYTES, BYTES, 1},                    /* a file that there is not */
                  {2, BYTES, BYTES, STORE_SPILL_DIRS_MAX}, /* nor could be */
                  {2, BYTES, BYTES, UINT32_MAX}};
    char dir[64];
    const char *dirs[] = {dir};

    test_expect_log();
    folder(dir);
    for (size_t i = 0; i < PL_COUNT(wrongs); i++) {
        struct store_spill_files files;
        struct store_spill_index *index;
        struct kept kept;
        struct pl_err err;

        files_written(&kept, dirs, 1, 3);
        ASSERT_OK(store_spill_index_open(kept.parts[0].fd, MEMORY, &index, &err));
        index->entries[1].number = wrongs[i].number;
        index->entries[1].offset = wrongs[i].offset;
        index->entries[1].bytes  = wrongs[i].bytes;
        index->entries[1].dir    = wrongs[i].dir;
        store_spill_entry_set(index, 1, index->era);
        store_spill_index_close(index);
        adopt(&files, &kept, dirs, 1);
        ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
        expect_lost(&files, 2);
        expect_there(&files, 3);
        store_spill_files_finish(&files);
        kept_close(&kept);
    }
}

TEST(values_of_another_head_and_files_that_nobody_has_are_dropped)
{
    char first[64], second[64], text[80];
    const char *dirs[2] = {text, second};
    struct store_spill_files files;
    struct store_spill_index *index;
    struct kept kept;
    struct pl_err err;

    test_expect_log();
    folder(first);
    folder(second);
    (void)snprintf(text, sizeof(text), "%s:128K", first);
    files_written(&kept, dirs, 2, 4);
    ASSERT_OK(store_spill_index_open(kept.parts[0].fd, MEMORY, &index, &err));
    store_spill_entry_set(index, 0, index->era + 1);
    store_spill_index_close(index);
    pl_fd_close(&kept.parts[2].fd); /* the second directory's */
    kept.count = 2;
    adopt(&files, &kept, dirs, 2);
    expect_lost(&files, 1);
    expect_there(&files, 2);
    expect_lost(&files, 3);
    expect_lost(&files, 4);
    fill(6);
    ASSERT_OK(store_spill_files_write(&files, 6, data, BYTES, &err)); /* the hole of 1 */
    ASSERT_EQ(files.dirs[0].bytes_used, 2 * BYTES);
    store_spill_files_finish(&files);
    kept_close(&kept);
}

TEST(an_index_of_another_kind_or_of_other_memory_is_refused)
{
    struct store_spill_index *index, *seen;
    struct pl_err err;
    int fd, small;

    ASSERT_OK(store_spill_index_create(&index, &fd, &err));
    index->memory = MEMORY;
    ASSERT_STATUS(store_spill_index_open(fd, MEMORY + 1, &seen, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(store_spill_index_open(fd, 0, &seen, &err), PLASMON_EMALFORMED);
    index->version++;
    ASSERT_STATUS(store_spill_index_open(fd, MEMORY, &seen, &err), PLASMON_EVERSION);
    index->version--;
    index->magic++;
    ASSERT_STATUS(store_spill_index_open(fd, MEMORY, &seen, &err), PLASMON_EVERSION);
    index->magic--;
    index->entry_end = STORE_SPILL_ENTRIES_MAX + 1;
    ASSERT_STATUS(store_spill_index_open(fd, MEMORY, &seen, &err), PLASMON_EMALFORMED);
    index->entry_end = 0;
    index->life      = 0;
    ASSERT_STATUS(store_spill_index_open(fd, MEMORY, &seen, &err), PLASMON_EMALFORMED);
    ASSERT_OK(pl_memfd_create("small", 4096, &small)); /* would end us by SIGBUS */
    ASSERT_STATUS(store_spill_index_open(small, MEMORY, &seen, &err), PLASMON_EMALFORMED);
    store_spill_index_close(index);
    pl_fd_close(&small);
    pl_fd_close(&fd);
}

/* -------------------------------------------------------------------------------- moves */

/*
 * However often and wherever it is cut short, also in the middle of a piece, the bytes are where
 * they belong in the end.
 */
TEST(a_move_that_is_cut_short_goes_on)
{
    static const uint64_t ways[] = {1, 256, 4096, 40000, BYTES};
    static uint8_t memory[3 * BYTES];

    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        uint64_t from = BYTES + 512, to = from - ways[i], progress = 0, id = 7 + i;
        uint64_t steps = 0;

        memset(memory, 0xee, sizeof(memory));
        fill((uint8_t)i);
        memcpy(memory + from, data, BYTES);
        while (!store_spill_move(memory, id, from, to, BYTES, &progress,
                                 1 + steps++ % (1 + BYTES / ways[i] / 3))) {
            uint64_t at = (progress & ((UINT64_C(1) << 40) - 1)) * ways[i];

            /* half of the next piece, that nobody recorded */
            memmove(memory + to + at, memory + from + at,
                    pl_min_u64(ways[i], BYTES - at) / 2);
        }
        ASSERT_EQ(memcmp(memory + to, data, BYTES), 0);
        ASSERT_TRUE(store_spill_move(memory, id, from, to, BYTES, &progress, 0)); /* done */
        ASSERT_EQ(memcmp(memory + to, data, BYTES), 0);
        ASSERT_EQ(memory[to - 1], 0xee);
        ASSERT_EQ(memory[from + BYTES], 0xee);
    }
}

TEST(a_move_that_began_anew_would_be_noticed)
{
    static uint8_t memory[3 * BYTES];
    uint64_t progress = 0;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    fill(3);
    memcpy(memory + BYTES, data, BYTES);
    ASSERT_TRUE(!store_spill_move(memory, 1, BYTES, BYTES - 256, BYTES, &progress, 8));
    pl_bug_arm("store.spill_move_again");
    ASSERT_TRUE(
        store_spill_move(memory, 1, BYTES, BYTES - 256, BYTES, &progress, UINT64_MAX));
    pl_bug_arm(NULL);
    ASSERT_TRUE(memcmp(memory + BYTES - 256, data, BYTES) != 0);
}

/* ---------------------------------------------------------------------- the whole of it */

static void unwanted(void *user)
{
    (void)user;
    test_fail(__FILE__, __LINE__, "another slab is asked for");
}

static void nothing(void *user)
{
    (void)user;
}

static struct store_spill_result result_wait(struct store_spill *spill)
{
    struct store_spill_result result;

    while (!store_spill_take(spill, &result)) {
        (void)usleep(1000);
    }
    return result;
}

static void ask(struct store_spill *spill, uint64_t id, uint32_t kind, uint64_t offset,
                uint64_t file)
{
    store_spill_ask(
        spill, &(struct store_spill_op){
                   .id = id, .kind = kind, .offset = offset, .bytes = BYTES, .file = file});
}

static void expect_done(struct store_spill *spill, uint64_t id, plasmon_status_t status)
{
    struct store_spill_result result = result_wait(spill);

    ASSERT_EQ(result.id, id);
    ASSERT_STATUS(result.status, status);
}

static const struct store_spill_slab slab = {.id = SLAB, .bytes = 4 * BYTES};

TEST(the_next_store_goes_on_where_the_head_had_no_answer)
{
    unsigned before  = open_files();
    struct kept kept = {.count = 0};
    const char *text;
    struct store_spill *old, *new;
    struct pl_err err;
    uint64_t number = 0, life;
    uint8_t *memory;
    void *mapped;
    char dir[64];
    int fd;

    folder(dir);
    text = dir;
    ASSERT_OK(pl_memfd_create("slab", 4 * BYTES, &fd));
    ASSERT_OK(pl_fd_map(fd, 4 * BYTES, 1, &mapped));
    memory = mapped;

    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &old, &err));
    store_spill_set_memory(old, MEMORY);
    store_spill_slab_made(old, PLASMON_OK, fd, SLAB, 4 * BYTES, "");
    ASSERT_OK(store_spill_start(old, unwanted, nothing, NULL));
    fill(9);
    memcpy(memory + BYTES, data, BYTES);
    ask(old, 1, STORE_SPILL_SLAB, 0, 0);
    ask(old, 2, STORE_SPILL_WRITE, BYTES, 2);
    ask(old, 3, STORE_SPILL_MOVE, BYTES, BYTES - 256);
    for (uint64_t id = 1; id <= 3; id++) {
        expect_done(old, id, PLASMON_OK);
    }
    keep_spill(&kept, old);
    life = store_spill_life(old);
    store_spill_destroy(old); /* as far as anybody else can tell, it was killed */

    /* It was given less memory: what is there counts. */
    ASSERT_OK(store_spill_create(BYTES, &text, 1, &new, &err));
    ASSERT_TRUE(store_spill_life(new) != life);
    ASSERT_OK(store_spill_adopt(new, MEMORY, kept.parts, kept.count, &slab, 1, &number));
    ASSERT_EQ(number, SLAB);
    ASSERT_EQ(store_spill_memory_bytes(new), 4 * BYTES);
    ASSERT_EQ(store_spill_files_used(new), BYTES);
    ASSERT_EQ(store_spill_life(new), life);
    store_spill_slab_made(new, PLASMON_OK, fd, SLAB, 4 * BYTES, "");
    ASSERT_OK(store_spill_start(new, unwanted, nothing, NULL));

    /*
     * The head has the answer to 1, and to nothing else. Neither is done again: the bytes that were
     * written are gone from there.
     */
    memset(memory + BYTES + BYTES / 2, 0, BYTES);
    memcpy(back, memory + BYTES - 256, BYTES);
    ask(new, 2, STORE_SPILL_WRITE, BYTES, 2);
    ask(new, 2, STORE_SPILL_WRITE, BYTES, 2); /* a broken connection */
    ask(new, 3, STORE_SPILL_MOVE, BYTES, BYTES - 256);
    ask(new, 4, STORE_SPILL_READ, 3 * BYTES, 2);
    ask(new, 5, STORE_SPILL_FORGET, 0, 2);
    ask(new, 6, STORE_SPILL_READ, 3 * BYTES, 2);
    for (uint64_t id = 2; id <= 5; id++) {
        expect_done(new, id, PLASMON_OK);
    }
    expect_done(new, 6, PLASMON_ENOENT);
    ASSERT_EQ(memcmp(memory + BYTES - 256, back, BYTES), 0);
    ASSERT_EQ(memcmp(memory + 3 * BYTES, data, BYTES), 0);
    store_spill_destroy(new);
    kept_close(&kept);
    pl_fd_unmap(mapped, 4 * BYTES);
    pl_fd_close(&fd);
    ASSERT_EQ(open_files(), before);
    ASSERT_EQ(rmdir(dir), 0);
}

/* A store with one value in a file; what workers keep of it. */
static uint64_t store_kept(struct kept *kept, const char *dir, uint64_t slab_number,
                           bool forgotten)
{
    struct store_spill *spill;
    struct pl_err err;
    uint64_t life;
    int fd;

    ASSERT_OK(pl_memfd_create("slab", 4 * BYTES, &fd));
    ASSERT_OK(store_spill_create(4 * BYTES, &dir, 1, &spill, &err));
    store_spill_set_memory(spill, MEMORY);
    if (slab_number != 0) {
        store_spill_slab_made(spill, PLASMON_OK, fd, slab_number, 4 * BYTES, "");
        ASSERT_OK(store_spill_start(spill, unwanted, nothing, NULL));
        ask(spill, 1, STORE_SPILL_WRITE, 0, 1);
        expect_done(spill, 1, PLASMON_OK);
    }
    /* the thread sees nothing of what follows, as when it is killed */
    store_spill_stop(spill);
    if (forgotten) {
        store_spill_forget(spill);
    }
    keep_spill(kept, spill);
    life = store_spill_life(spill);
    store_spill_destroy(spill);
    pl_fd_close(&fd);
    return life;
}

TEST(a_head_that_knew_nothing_is_not_shown_what_another_one_had)
{
    struct kept kept = {.count = 0};
    struct store_spill *new;
    const char *text;
    struct pl_err err;
    uint64_t number;
    char dir[64];

    folder(dir);
    text = dir;
    (void)store_kept(&kept, dir, SLAB, true);
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &new, &err));
    ASSERT_OK(store_spill_adopt(new, MEMORY, kept.parts, kept.count, &slab, 1, &number));
    ASSERT_EQ(store_spill_files_used(new), 0);
    store_spill_destroy(new);
    kept_close(&kept);
}

TEST(without_its_host_memory_nothing_is_taken_over_and_the_disk_is_free_again)
{
    struct kept kept = {.count = 0};
    struct store_spill *new;
    const char *text;
    struct pl_err err;
    struct stat about;
    uint64_t number, life;
    char dir[64];

    test_expect_log();
    folder(dir);
    text = dir;
    life = store_kept(&kept, dir, SLAB + 1, false);
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &new, &err));
    ASSERT_STATUS(store_spill_adopt(new, MEMORY, kept.parts, kept.count, &slab, 1, &number),
                  PLASMON_ENOENT);
    ASSERT_TRUE(store_spill_life(new) != life);
    ASSERT_EQ(fstat(kept.parts[1].fd, &about), 0);
    ASSERT_EQ(about.st_size, 0);

    /* A third one is handed both: the second's counts, for it was made later. */
    store_spill_set_memory(new, MEMORY);
    life = store_spill_life(new);
    keep_spill(&kept, new);
    store_spill_destroy(new);
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &new, &err));
    ASSERT_OK(store_spill_adopt(new, MEMORY, kept.parts, kept.count, NULL, 0, &number));
    ASSERT_EQ(store_spill_life(new), life);
    ASSERT_EQ(number, 0);
    store_spill_destroy(new);
    kept_close(&kept);
}

/* Its number is right, and its size is not: what the index says lies in it may lie behind its end. */
TEST(host_memory_of_another_size_is_not_taken_for_the_one_that_is_needed)
{
    const struct store_spill_slab small = {.id = SLAB, .bytes = 2 * BYTES};
    struct kept kept                    = {.count = 0};
    struct store_spill *new;
    const char *text;
    struct pl_err err;
    uint64_t number;
    char dir[64];

    test_expect_log();
    folder(dir);
    text = dir;
    (void)store_kept(&kept, dir, SLAB, false);
    ASSERT_OK(store_spill_create(4 * BYTES, &text, 1, &new, &err));
    ASSERT_STATUS(
        store_spill_adopt(new, MEMORY, kept.parts, kept.count, &small, 1, &number),
        PLASMON_ENOENT);
    store_spill_destroy(new);
    kept_close(&kept);
}

TEST(a_slab_that_was_being_made_is_used)
{
    struct kept kept = {.count = 0};
    struct store_spill *new;
    const char *text;
    struct pl_err err;
    uint64_t number = 0, life;
    char dir[64];
    int fd;

    folder(dir);
    text = dir;
    life = store_kept(&kept, dir, 0, false);
    ASSERT_OK(store_spill_create(BYTES, &text, 1, &new, &err));
    ASSERT_OK(store_spill_adopt(new, MEMORY, kept.parts, kept.count, &slab, 1, &number));
    ASSERT_EQ(number, SLAB);
    ASSERT_EQ(store_spill_life(new), life);
    ASSERT_OK(pl_memfd_create("slab", slab.bytes, &fd));
    ASSERT_OK(store_spill_slab_found(new, fd, number));
    ASSERT_EQ(store_spill_slab(new), 0); /* not before all workers have it */
    pl_fd_close(&fd);
    store_spill_destroy(new);
    kept_close(&kept);
}

/* A store that took over one whose slab was in use; *out_fd is the slab. */
static struct store_spill *taken_over(struct kept *kept, const char *dir, int *out_fd)
{
    struct store_spill *new;
    struct pl_err err;
    uint64_t number = 0;

    (void)store_kept(kept, dir, SLAB, false);
    ASSERT_OK(pl_memfd_create("slab", 4 * BYTES, out_fd));
    ASSERT_OK(store_spill_create(4 * BYTES, &dir, 1, &new, &err));
    ASSERT_OK(store_spill_adopt(new, MEMORY, kept->parts, kept->count, &slab, 1, &number));
    ASSERT_OK(store_spill_slab_found(new, *out_fd, number));
    ASSERT_EQ(store_spill_slab(new), SLAB);
    ASSERT_OK(store_spill_start(new, unwanted, nothing, NULL));
    return new;
}

/* What the workers still have to say is how far it may be used; what lies in it is there meanwhile. */
TEST(a_slab_that_was_in_use_is_there_and_grows_as_its_workers_say)
{
    struct kept kept = {.count = 0};
    struct store_spill_result result;
    struct store_spill *new;
    char dir[64];
    int fd;

    folder(dir);
    new = taken_over(&kept, dir, &fd);
    ask(new, 2, STORE_SPILL_READ, BYTES, 1);
    expect_done(new, 2, PLASMON_OK);

    ask(new, 3, STORE_SPILL_SLAB, BYTES, 0); /* more than one part */
    store_spill_slab_made(new, PLASMON_OK, fd, SLAB, BYTES, "");
    ASSERT_TRUE(!store_spill_take(new, &result));
    store_spill_slab_made(new, PLASMON_OK, fd, SLAB, 2 * BYTES, "");
    result = result_wait(new);
    ASSERT_EQ(result.id, 3);
    ASSERT_OK(result.status);
    ASSERT_EQ(result.bytes, 2 * BYTES);

    store_spill_slab_made(new, PLASMON_ENOMEM, fd, SLAB, 2 * BYTES, "no more");
    ask(new, 4, STORE_SPILL_SLAB, 2 * BYTES, 0);
    result = result_wait(new);
    ASSERT_STATUS(result.status, PLASMON_ENOMEM);
    ASSERT_STR(result.text, "no more");
    ask(new, 5, STORE_SPILL_READ, 0, 1);
    expect_done(new, 5, PLASMON_OK);
    store_spill_destroy(new);
    pl_fd_close(&fd);
    kept_close(&kept);
}

/* .. and is not given up when one of them has nothing of it. */
TEST(a_slab_that_was_in_use_stays_when_a_worker_has_none_of_it)
{
    struct kept kept = {.count = 0};
    struct store_spill *new;
    char dir[64];
    int fd;

    folder(dir);
    new = taken_over(&kept, dir, &fd);
    store_spill_slab_made(new, PLASMON_ENOMEM, fd, SLAB, 0, "none");
    ASSERT_EQ(store_spill_slab(new), SLAB);
    ask(new, 2, STORE_SPILL_READ, BYTES, 1);
    expect_done(new, 2, PLASMON_OK);
    store_spill_destroy(new);
    pl_fd_close(&fd);
    kept_close(&kept);
}

TEST_MAIN()
