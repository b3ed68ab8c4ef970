/*
 * Spill files whose contents somebody changed, and what a head may ask of a store's files. The
 * input is a sequence of [what: 1 byte][which number: 1 byte][where: 2 bytes][how much: 1 byte].
 * What is read back is what was written under that number, or it is refused with a reason; and at
 * the end no file is left. In between the store dies, and the next one takes over what is there,
 * whatever somebody did to its index (store/spill_index.h).
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "store/spill_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX       32
#define STEP_BYTES      5
#define NUMBERS         4u
#define BYTES_MAX       65536u
#define DESCRIPTORS_MAX 256

enum what {
    WRITE,
    READ,
    READ_OTHER_LENGTH,
    FORGET,
    DAMAGE,
    CUT,
    GROW,
    DIE,
    HARM_INDEX,
    WHAT_COUNT
};
#define MEMORY 7u

static struct store_spill_files files;
static char folder[64]; /* removed when the process ends */
static uint8_t memory[BYTES_MAX], back[BYTES_MAX + 256];
static struct {
    uint32_t bytes;
    uint8_t seed;
    bool there;
} written[NUMBERS];

static void folder_remove(void)
{
    (void)rmdir(folder); /* its files have no names */
}

static char limited[80];

static void begin(void)
{
    const char *const dirs[] = {limited};
    struct pl_err err;

    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof(folder), "%s/plasmon-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        PL_CHECK(mkdtemp(folder) != NULL && atexit(folder_remove) == 0);
        (void)snprintf(limited, sizeof(limited), "%s:200K", folder);
        pl_log_set_level(PL_LOG_ERROR);
    }
    memset(written, 0, sizeof(written));
    PL_CHECK(store_spill_files_init(&files, dirs, 1, &err) == PLASMON_OK);
    files.index->memory = MEMORY;
}

static void fill(uint32_t bytes, uint8_t seed)
{
    for (uint32_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(i * 31u + seed);
    }
}

static void step_write(uint32_t number, uint32_t bytes, uint8_t seed)
{
    struct pl_err err = {.status = PLASMON_OK};

    if (written[number].there) {
        return; /* the head gives a number out once (head/spill_host.c) */
    }
    fill(bytes, seed);
    if (store_spill_files_write(&files, number + 1, memory, bytes, &err) == PLASMON_OK) {
        written[number].bytes = bytes;
        written[number].seed  = seed;
        written[number].there = true;
    } else {
        PL_CHECK(err.text[0] != '\0');
    }
}

static void step_read(uint32_t number, uint32_t bytes)
{
    struct pl_err err = {.status = PLASMON_OK};
    plasmon_status_t status;

    memset(back, 0xee, sizeof(back));
    status = store_spill_files_read(&files, number + 1, back, bytes, &err);
    PL_CHECK(back[bytes] == 0xee);
    if (status == PLASMON_OK) {
        PL_CHECK(written[number].there && bytes == written[number].bytes);
        fill(bytes, written[number].seed);
        PL_CHECK(memcmp(back, memory, bytes) == 0);
    } else {
        PL_CHECK(err.text[0] != '\0');
    }
}

/* The nth of the files that are there, in the order of descriptors; -1: there is none. */
static int file_at(uint32_t nth)
{
    struct stat of_folder, of_file;

    PL_CHECK(stat(folder, &of_folder) == 0);
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        if (fstat(fd, &of_file) == 0 && S_ISREG(of_file.st_mode) && of_file.st_nlink == 0 &&
            of_file.st_dev == of_folder.st_dev && nth-- == 0) {
            return fd;
        }
    }
    return -1;
}

/* What a disk, or somebody with its device, may do. */
static void step_harm(enum what what, uint32_t nth, uint32_t where, uint8_t with)
{
    int fd = file_at(nth);
    uint8_t byte;

    if (fd < 0) {
        return;
    }
    if (what == DAMAGE) {
        if (pread(fd, &byte, 1, (off_t)where) == 1) {
            byte ^= with;
            PL_CHECK(pwrite(fd, &byte, 1, (off_t)where) == 1);
        }
    } else if (what == CUT) {
        struct stat now;

        PL_CHECK(fstat(fd, &now) == 0);
        PL_CHECK(now.st_size <= (off_t)where || ftruncate(fd, (off_t)where) == 0);
    } else {
        PL_CHECK(pwrite(fd, &with, 1, (off_t)BYTES_MAX + (off_t)where) == 1);
    }
}

/* A worker's copies of index and file; then another store. What it has not taken is lost, and never wrong. */
static void step_die(void)
{
    const char *const dirs[] = {limited};
    struct store_spill_index *index;
    struct pl_err err = {.status = PLASMON_OK};
    int index_fd      = fcntl(files.index_fd, F_DUPFD_CLOEXEC, 3);
    int fd            = fcntl(files.dirs[0].fd, F_DUPFD_CLOEXEC, 3);

    PL_CHECK(index_fd >= 0 && fd >= 0);
    store_spill_files_finish(&files);
    PL_CHECK(store_spill_files_init(&files, dirs, 1, &err) == PLASMON_OK);
    if (store_spill_index_open(index_fd, MEMORY, &index, &err) == PLASMON_OK) {
        PL_CHECK(store_spill_files_adopt(&files, index, index_fd, &fd, 1) == PLASMON_OK);
    } else {
        PL_CHECK(err.text[0] != '\0');
        files.index->memory = MEMORY;
        pl_fd_close(&index_fd);
    }
    pl_fd_close(&fd);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        written[i].there &= store_spill_files_has(&files, i + 1, written[i].bytes);
        store_spill_files_forget(&files, written[i].there ? 0 : i + 1);
    }
}

/* The head of it, or one of the first entries. */
static void step_harm_index(uint32_t nth, uint32_t where, uint8_t with)
{
    uint8_t *at =
        nth == 0 ? (uint8_t *)files.index + where % offsetof(struct store_spill_index, dirs)
                 : (uint8_t *)&files.index->entries[nth - 1] +
                       where % sizeof(struct store_spill_entry);

    *at ^= with;
}

static void step(const uint8_t *data)
{
    enum what what  = (enum what)(data[0] % WHAT_COUNT);
    uint32_t number = data[1] % NUMBERS;
    uint32_t where  = data[2] | (uint32_t)data[3] << 8;

    switch (what) {
    case WRITE:
        step_write(number, where, data[4]);
        return;
    case READ:
        step_read(number, written[number].bytes);
        return;
    case READ_OTHER_LENGTH:
        step_read(number, where);
        return;
    case FORGET:
        store_spill_files_forget(&files, number + 1);
        written[number].there = false;
        return;
    case DIE:
        step_die();
        return;
    case HARM_INDEX:
        step_harm_index(number, where, data[4]);
        return;
    case DAMAGE:
    case CUT:
    case GROW:
    case WHAT_COUNT:
        step_harm(what, number, where, data[4]);
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    for (size_t at = 0; at + STEP_BYTES <= size && at < STEPS_MAX * STEP_BYTES;
         at += STEP_BYTES) {
        step(data + at);
    }
    store_spill_files_finish(&files);
    PL_CHECK(file_at(0) < 0);
    return 0;
}
