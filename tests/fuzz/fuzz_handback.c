/*
 * What workers of a dead store hand back: any messages from any of them, with descriptors of memory
 * that is too small, too large or none at all. The input is a sequence of [which descriptor: 1
 * byte][from: 1 byte][struct store_control]. A host is built, or refused with a reason, and no
 * descriptor is left over.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "device/device.h"
#include "store/handback.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES_MAX 48
#define DEVICES      2u

static struct store_host real, built;
static struct store_handback handback;
static int small_fd;
static bool begun;

static unsigned open_files(void)
{
    DIR *dir       = opendir("/proc/self/fd");
    unsigned count = 0;

    PL_CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

/* A host whose descriptors are handed back: some of what comes is right. */
static void begin(void)
{
    struct store_chunk chunk = {.bytes = 2u << 20};
    struct pl_err err;
    int fd;

    if (begun) {
        return;
    }
    begun = true;
    store_host_init(&real);
    for (uint32_t i = 0; i < DEVICES; i++) {
        PL_CHECK(store_host_add_device(&real, DEVICE_CPU, i, 64u << 20, 1ull << 30, &err) ==
                 PLASMON_OK);
        PL_CHECK(pl_memfd_create("chunk", chunk.bytes, &fd) == PLASMON_OK);
        PL_CHECK(store_host_add_chunk(&real, i, &chunk, fd, &err) == PLASMON_OK);
    }
    PL_CHECK(pl_memfd_create("small", 4096, &small_fd) == PLASMON_OK);
}

static int descriptor(unsigned which)
{
    const struct store_host_device *device = &real.devices[which / 8 % DEVICES];
    const struct store_host_chunk *chunk   = pl_vec_at(&device->chunks, 0);
    const int fds[]                        = {-1,
                                              device->timeline_fd,
                                              device->table_fd,
                                              device->doorbell_fd,
                                              device->stage_fd,
                                              real.readers[which / 8 % DEVICES].fd,
                                              chunk->fd,
                                              small_fd};
    int fd                                 = fds[which % 8];

    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void message(const uint8_t *at)
{
    struct store_control control;
    struct pl_err err       = {.status = PLASMON_OK};
    uint32_t from           = at[1] % (DEVICES + 1);
    plasmon_status_t status = PLASMON_OK;
    int fd                  = descriptor(at[0]);

    memcpy(&control, at + 2, sizeof(control));
    control.text[sizeof(control.text) - 1] = '\0'; /* as store_link_receive() does */
    if (control.type == STORE_CONTROL_HANDBACK) {
        pl_fd_close(&fd);
        status = store_handback_begin(&handback, &control, &err);
    } else if (from < handback.total) { /* one that has begun: store/handback_serve.c */
        status = store_handback_message(&handback, from, &control, fd, &err);
    } else {
        pl_fd_close(&fd);
    }
    PL_CHECK(status == PLASMON_OK || err.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t step       = 2 + sizeof(struct store_control);
    struct pl_err err = {.status = PLASMON_OK};
    unsigned files;

    pl_log_set_level(PL_LOG_ERROR);
    begin();
    files = open_files(); /* the fuzzer itself opens some between two inputs */
    store_host_init(&built);
    store_handback_init(&handback);
    for (unsigned i = 0; i < MESSAGES_MAX && size >= step;
         i++, data += step, size -= step) {
        message(data);
    }
    if (handback.total > 0 && store_handback_build(&handback, &built, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0' && built.device_count == 0);
    }
    store_handback_finish(&handback);
    store_host_finish(&built);
    PL_CHECK(open_files() == files);
    return 0;
}
