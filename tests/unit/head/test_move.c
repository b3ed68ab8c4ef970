/* One large object wanted by many devices: from whom each gets its bytes, and what each part waits for. */
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/unit/head/core.h"

enum { DEVICES = 4, ROWS = 64 };

static struct head_core *core;
static uint64_t session;

/* A core whose large objects are those from 4 KiB on. */
static void begin(uint32_t devices)
{
    core                     = core_make();
    core->config.chain_bytes = 4096;
    core_announce(core, "a", devices);
    for (uint32_t i = 0; i < devices; i++) {
        ASSERT_EQ(core_join(core, "a", i), i);
    }
    session = core_client(core);
}

static void end(void)
{
    head_core_check(core);
    head_core_destroy(core);
}

/* Task `id` on a device: ref 0 makes a ROWS x columns array of f32 as ref id + 100, another is read. */
static void submit(uint64_t id, uint32_t device, uint64_t columns, uint64_t ref)
{
    core_submit(core, session, id, device, ref, (uint64_t[]){ROWS, columns}, 2);
}

static const struct head_task *task_of(uint32_t device, uint64_t seq)
{
    return head_device_task(head_device_at(core, device), seq);
}

/* The one buffer that a copy reads. */
static const struct head_use *source_of(const struct head_task *task)
{
    const struct head_use *source = NULL;

    for (uint32_t i = 0; i < task->use_count; i++) {
        if (!task->uses[i].write) {
            ASSERT_NULL(source);
            source = &task->uses[i];
        }
    }
    ASSERT_TRUE(source != NULL);
    return source;
}

TEST(a_large_object_goes_along_a_chain_part_by_part)
{
    begin(DEVICES);
    submit(1, 0, 64, 0); /* 16 KiB: parts of 512 bytes */
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
    }
    for (uint32_t device = 1; device < DEVICES; device++) {
        const struct head_device *to = head_device_at(core, device);

        ASSERT_EQ(to->seq_last, 33); /* 32 parts and the reader */
        for (uint64_t seq = 1; seq <= 32; seq++) {
            const struct head_task *part  = task_of(device, seq);
            const struct head_use *source = source_of(part);

            ASSERT_EQ(part->kind, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
            ASSERT_EQ(source->buffer->device->index, device - 1);
            ASSERT_EQ(source->box.start[0], (int64_t)(seq - 1) * ROWS / 32);
            ASSERT_EQ(source->box.count[0], ROWS / 32);
            ASSERT_EQ(source->box.count[1], 64);
            if (device > 1) { /* it is the result of that part alone that it needs */
                ASSERT_EQ(task_of(device - 1, seq)->dependents.count,
                          2); /* and the reader there */
                ASSERT_EQ(part->producers_open, 1);
            }
        }
    }
    end();
}

TEST(two_devices_copy_in_one_piece)
{
    begin(2);
    submit(1, 0, 64, 0);
    submit(2, 1, 0, 101);
    ASSERT_EQ(head_device_at(core, 1)->seq_last, 2);
    end();
}

TEST(a_small_object_comes_from_where_it_is)
{
    begin(DEVICES);
    submit(1, 0, 15, 0); /* 3,840 bytes */
    for (uint32_t device = 1; device < DEVICES; device++) {
        submit(1 + device, device, 0, 101);
        ASSERT_EQ(head_device_at(core, device)->seq_last, 2);
    }
    end();
}

TEST_MAIN()
