/* What workers hand back to a new store: from one or all of them, and what is refused. */
#include "store/handback.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "device/device.h"
#include "store/host_buffers.h"
#include "store/lanes.h"
#include "tests/harness/test.h"

#define DEVICES 2u
#define CHUNK   (UINT64_C(2) << 20)

static struct store_host old, new;
static struct store_handback handback;

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

static void chunk_make(uint32_t device)
{
    struct store_chunk chunk = {.bytes = CHUNK};
    struct pl_err err;
    int fd;

    ASSERT_OK(pl_memfd_create("chunk", CHUNK, &fd));
    ASSERT_OK(store_host_add_chunk(&old, device, &chunk, fd, &err));
}

/* A host with a chunk on each device, a client's page, a lane and a host buffer. */
static void old_host(void)
{
    struct store_host_buffer *buffer;
    struct store_host_lane *lane;
    struct pl_err err;
    uint32_t reader;
    bool fresh;

    store_host_init(&old);
    store_host_init(&new);
    old.buffer_bytes_max = new.buffer_bytes_max = UINT64_C(1) << 30;
    for (uint32_t i = 0; i < DEVICES; i++) {
        ASSERT_OK(store_host_add_device(&old, DEVICE_CPU, i, 64u << 20, 1ull << 30, &err));
        chunk_make(i);
    }
    ASSERT_OK(store_host_add_reader(&old, 1234, &reader));
    ASSERT_OK(store_lanes_take(&old, 1, reader, &lane, &fresh));
    ASSERT_OK(store_host_buffers_make(&old, reader, 7, 8192, 3, &buffer, &err));
    store_handback_init(&handback);
}

static void finish(void)
{
    store_handback_finish(&handback);
    store_host_finish(&new);
    store_host_finish(&old);
}

static plasmon_status_t kept(uint32_t from, enum store_kept part, uint32_t device,
                             uint32_t reader, uint64_t offset, uint64_t bytes, int fd)
{
    struct store_control message = {.version     = STORE_CONTROL_VERSION,
                                    .type        = STORE_CONTROL_KEPT,
                                    .part        = (uint32_t)part,
                                    .host_device = device,
                                    .reader      = reader,
                                    .offset      = offset,
                                    .bytes       = bytes};
    struct pl_err err;

    return store_handback_message(&handback, from, &message, fcntl(fd, F_DUPFD_CLOEXEC, 3),
                                  &err);
}

/* What the worker of `from` was handed by the old store, but for `but` of device 0. */
static void hand_back(uint32_t from, int but)
{
    struct store_control begin = {.type        = STORE_CONTROL_HANDBACK,
                                  .host_device = from,
                                  .total       = DEVICES,
                                  .reader      = 3,
                                  .offset      = 64u << 20};
    struct store_control end   = {.type = STORE_CONTROL_HANDBACK_END};
    struct pl_err err;

    ASSERT_OK(store_handback_begin(&handback, &begin, &err));
    for (uint32_t i = 0; i < DEVICES; i++) {
        const struct store_host_device *device = &old.devices[i];
        const struct store_host_chunk *chunk   = pl_vec_at(&device->chunks, 0);
        bool own                               = i == from;
        const int fds[]                        = {
                                   [STORE_KEPT_TIMELINE] = device->timeline_fd,
                                   [STORE_KEPT_TABLE]    = own ? device->table_fd : device->table_fd_ro,
                                   [STORE_KEPT_DOORBELL] = device->doorbell_fd,
                                   [STORE_KEPT_STAGE]    = device->stage_fd,
                                   [STORE_KEPT_PINS]     = own ? old.readers[i].fd : old.readers[i].fd_ro,
                                   [STORE_KEPT_CHUNK]    = own ? chunk->fd : chunk->fd_ro};

        for (int part = 0; part < (int)PL_COUNT(fds); part++) {
            if (i != 0 || part != but) {
                ASSERT_OK(kept(from, (enum store_kept)part, i, i, 0, CHUNK, fds[part]));
            }
        }
    }
    ASSERT_OK(kept(from, STORE_KEPT_PINS, 0, DEVICES, 0, 0, old.readers[DEVICES].fd_ro));
    ASSERT_OK(
        kept(from, STORE_KEPT_LANE, 1, 0, 0, STORE_LANE_BYTES, old.devices[1].lanes[0].fd));
    ASSERT_OK(kept(from, STORE_KEPT_BUFFER, 0, DEVICES, store_host_buffers_at(&old, 0)->id,
                   8192, store_host_buffers_at(&old, 0)->fd));
    ASSERT_OK(kept(from, STORE_KEPT_SPILL, 0, 0, 0, 0, old.devices[0].doorbell_fd));
    ASSERT_OK(store_handback_message(&handback, from, &end, -1, &err));
}

/* The new host is the old one's memory. */
static void expect_same(void)
{
    ASSERT_EQ(new.device_count, DEVICES);
    ASSERT_TRUE(new.memory != 0 && new.memory == old.memory);
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct store_host_device *was = &old.devices[i], *is = &new.devices[i];
        void *seen;
        int *written;

        ASSERT_EQ(is->kind, was->kind);
        ASSERT_EQ(is->memory_bytes, was->memory_bytes);
        ASSERT_EQ(is->arena_bytes, was->arena_bytes);
        is->table->device = 40 + i; /* writable, whoever gave it */
        ASSERT_EQ(was->table->device, 40 + i);
        was->timeline->enqueued = 50 + i;
        ASSERT_EQ(is->timeline->enqueued, 50 + i);
        new.pages[i]->owner_pid = 60 + i;
        ASSERT_EQ(old.pages[i]->owner_pid, 60 + i);

        ASSERT_EQ(is->chunks.count, 1);
        ASSERT_OK(pl_fd_map(((struct store_host_chunk *)pl_vec_at(&is->chunks, 0))->fd,
                            CHUNK, 1, (void **)&written));
        *written = 70;
        ASSERT_OK(pl_fd_map(((struct store_host_chunk *)pl_vec_at(&was->chunks, 0))->fd,
                            CHUNK, 0, &seen));
        ASSERT_EQ(*(int *)seen, 70);
        pl_fd_unmap(written, CHUNK);
        pl_fd_unmap(seen, CHUNK);
    }
    ASSERT_EQ(new.reader_epoch, old.reader_epoch);
    ASSERT_EQ(new.pages[DEVICES]->owner_pid, 1234);
    ASSERT_EQ(store_host_buffers_at(&new, 0)->bytes, 8192);
    ASSERT_EQ(new.buffer_bytes, 8192);
}

TEST(a_host_is_built_from_what_all_workers_have)
{
    unsigned before = open_files();
    struct pl_err err;

    old_host();
    hand_back(0, -1);
    ASSERT_TRUE(!store_handback_complete(&handback));
    hand_back(1, -1);
    ASSERT_TRUE(store_handback_complete(&handback));
    ASSERT_OK(store_handback_build(&handback, &new, &err));
    expect_same();
    ASSERT_EQ(new.devices[1].lane_count, 1);
    ASSERT_EQ(new.devices[1].lanes[0].reader, DEVICES);
    ASSERT_EQ(store_host_buffers_at(&new, 0)->holders, 3);
    ASSERT_EQ(new.spill_parts.count, 2);
    finish();
    ASSERT_EQ(open_files(), before);
}

TEST(one_worker_has_enough)
{
    struct pl_err err;

    old_host();
    hand_back(1, -1);
    ASSERT_OK(store_handback_build(&handback, &new, &err));
    expect_same();
    ASSERT_EQ(store_host_buffers_at(&new, 0)->holders, 2);
    finish();
}

/* Its client waits in it for what it has asked. */
TEST(a_lane_to_a_device_whose_worker_has_died_is_kept_by_the_others)
{
    struct pl_err err;

    old_host();
    hand_back(0, -1);
    ASSERT_OK(store_handback_build(&handback, &new, &err));
    ASSERT_EQ(new.devices[1].lane_count, 1);
    ASSERT_EQ(new.devices[1].lanes[0].reader, DEVICES);
    old.devices[1].lanes[0].shared->slot[3].asked = 9;
    ASSERT_EQ(new.devices[1].lanes[0].shared->slot[3].asked, 9);
    finish();
}

TEST(a_part_that_nobody_has_leaves_an_empty_host)
{
    for (int part = STORE_KEPT_TIMELINE; part <= STORE_KEPT_PINS; part++) {
        unsigned before = open_files();
        struct pl_err err;

        old_host();
        hand_back(0, part);
        hand_back(1, part);
        ASSERT_TRUE(store_handback_build(&handback, &new, &err) != PLASMON_OK);
        ASSERT_EQ(new.device_count, 0);
        finish();
        ASSERT_EQ(open_files(), before);
    }
}

/* The nth allocation fails, for each n: there is a whole host, or none, and no descriptor too many. */
TEST(a_host_is_built_or_not_whichever_allocation_fails)
{
    unsigned before = open_files();
    bool fired      = true;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    for (unsigned nth = 0; fired; nth++) {
        plasmon_status_t status;
        struct pl_err err = {0};

        old_host();
        hand_back(0, -1);
        hand_back(1, -1);
        new.buffer_bytes_max = 12345;
        pl_fault_arm("alloc", nth);
        status = store_handback_build(&handback, &new, &err);
        fired  = pl_fault_disarm() != 0;
        if (status == PLASMON_OK) {
            expect_same();
        } else {
            ASSERT_STATUS(status, PLASMON_ENOMEM);
            ASSERT_TRUE(fired && err.text[0] != '\0');
            ASSERT_EQ(new.device_count, 0);
            /* what is begun anew on the same host has this limit still */
            ASSERT_EQ(new.buffer_bytes_max, 12345);
        }
        finish();
        ASSERT_EQ(open_files(), before);
    }
}

TEST(memory_of_another_kind_is_refused)
{
    struct pl_err err;
    int small;

    old_host();
    hand_back(1, STORE_KEPT_TABLE);
    ASSERT_OK(pl_memfd_create("small", 4096, &small)); /* would end readers by SIGBUS */
    ASSERT_OK(kept(1, STORE_KEPT_TABLE, 0, 0, 0, 0, small));
    ASSERT_STATUS(store_handback_build(&handback, &new, &err), PLASMON_EMALFORMED);
    pl_fd_close(&small);
    finish();

    old_host();
    hand_back(1, STORE_KEPT_TABLE);
    ASSERT_OK(kept(1, STORE_KEPT_TABLE, 0, 0, 0, 0, old.devices[1].table_fd));
    ASSERT_STATUS(store_handback_build(&handback, &new, &err), PLASMON_EMALFORMED);
    finish();

    old_host();
    hand_back(1, STORE_KEPT_TABLE);
    old.devices[0].table->magic++;
    ASSERT_OK(kept(1, STORE_KEPT_TABLE, 0, 0, 0, 0, old.devices[0].table_fd));
    ASSERT_STATUS(store_handback_build(&handback, &new, &err), PLASMON_EVERSION);
    finish();
}

/* A worker that was left over from an earlier store of this node, beside one of the last. */
TEST(devices_of_two_memories_are_no_host)
{
    const uint64_t others[] = {0, 1};
    struct pl_err err;

    for (size_t i = 0; i < PL_COUNT(others); i++) {
        old_host();
        hand_back(0, -1);
        old.devices[1].timeline->memory = others[i];
        ASSERT_STATUS(store_handback_build(&handback, &new, &err), PLASMON_EMALFORMED);
        ASSERT_EQ(new.memory, 0);
        finish();
    }
}

TEST(nonsense_is_refused)
{
    struct store_control begin = {.type = STORE_CONTROL_HANDBACK, .total = DEVICES};
    struct store_control part  = {.type = STORE_CONTROL_KEPT, .part = STORE_KEPT_SPILL};
    unsigned before            = open_files();
    struct pl_err err;
    int fd;

    old_host();
    begin.host_device = DEVICES;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EMALFORMED);
    begin.host_device = 0;
    begin.total       = STORE_HOST_DEVICE_MAX + 1;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EMALFORMED);
    begin.total = 0;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EMALFORMED);
    begin.total = DEVICES;
    begin.type  = STORE_CONTROL_READY;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EMALFORMED);
    begin.type = STORE_CONTROL_HANDBACK;
    ASSERT_OK(store_handback_begin(&handback, &begin, &err));
    begin.host_device = 1;
    begin.total       = DEVICES + 1;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EMALFORMED);

    fd = old.devices[0].doorbell_fd;
    ASSERT_STATUS(kept(0, STORE_KEPT_TABLE, DEVICES, 0, 0, 0, fd), PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, STORE_KEPT_CHUNK, UINT32_MAX, 0, 0, 0, fd), PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, STORE_KEPT_PINS, 0, STORE_READER_MAX, 0, 0, fd),
                  PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, STORE_KEPT_BUFFER, 0, 0, 0, 4096, fd), PLASMON_EMALFORMED);
    part.chunk_id = STORE_SPILL_PARTS_MAX;
    ASSERT_STATUS(
        store_handback_message(&handback, 0, &part, fcntl(fd, F_DUPFD_CLOEXEC, 3), &err),
        PLASMON_EMALFORMED);
    part.type     = STORE_CONTROL_CHUNK; /* all else is as it should be */
    part.chunk_id = 0;
    ASSERT_STATUS(
        store_handback_message(&handback, 0, &part, fcntl(fd, F_DUPFD_CLOEXEC, 3), &err),
        PLASMON_EMALFORMED);
    part.type = STORE_CONTROL_KEPT;
    ASSERT_STATUS(store_handback_message(&handback, 0, &part, -1, &err),
                  PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, STORE_KEPT_BUFFER, 0, 0, 77, 0, fd), PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, STORE_KEPT_COUNT, 0, 0, 0, 0, fd), PLASMON_EMALFORMED);
    ASSERT_STATUS(kept(0, (enum store_kept)99, 0, 0, 0, 0, fd), PLASMON_EMALFORMED);
    hand_back(1, -1);
    begin.total = DEVICES;
    ASSERT_STATUS(store_handback_begin(&handback, &begin, &err), PLASMON_EEXIST);
    finish();
    ASSERT_EQ(open_files(), before);
}

/* Who maps memory that is shorter than it should be dies of SIGBUS: the store here, or a client later. */
TEST(memory_that_is_shorter_than_it_says_is_not_taken_over)
{
    static const enum store_kept parts[] = {STORE_KEPT_LANE, STORE_KEPT_BUFFER};
    struct pl_err err;

    for (size_t i = 0; i < PL_COUNT(parts); i++) {
        struct store_control end = {.type = STORE_CONTROL_HANDBACK_END};
        int fd                   = -1;

        old_host();
        hand_back(0, -1);
        hand_back(1, -1);
        handback.workers[1].done = false;
        ASSERT_OK(pl_memfd_create("short", 512, &fd));
        ASSERT_OK(kept(1, parts[i], 1, 0, 77, 8192, fd));
        pl_fd_close(&fd);
        ASSERT_OK(store_handback_message(&handback, 1, &end, -1, &err));
        ASSERT_STATUS(store_handback_build(&handback, &new, &err), PLASMON_EMALFORMED);
        ASSERT_EQ(new.device_count, 0);
        finish();
    }
}

TEST_MAIN()
