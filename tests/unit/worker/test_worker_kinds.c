/*
 * The kinds of launches that are not functions: copies, the host route, puts, reads, memory that a
 * client writes.
 */
#include "tests/unit/worker/fake.h"

#define KIND(name) PLASMON__V1__LAUNCH_KIND__LAUNCH_##name

static void peer_buffer(struct fake *fake, uint32_t host_device, uint32_t slot,
                        uint64_t offset, int64_t count)
{
    struct pl_shape frame = {.dtype = PL_F32, .ndim = 1, .dim = {count}};

    store_table_alloc(fake->tables[host_device], slot, 1, offset, &frame, 0, 1);
    store_table_seal(fake->tables[host_device], slot);
}

TEST(copy_fills_a_buffer_from_pieces_here_and_there)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 1);
    (void)fake_calls(fake);
    peer_buffer(fake, 2, 30, 12345 * 256, 8);
    fake_launch_init(&launch, 2, KIND(COPY));
    fake_launch_fresh(&launch, 2, 8);
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 1, 4);
    fake_launch_piece(&launch, FAKE_BASE + 2, 30, 8);
    launch.box[1][0] = 4;
    launch.box[1][1] = 4;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake),
               "copy:2:0+4->256<-1.0 copy:2:4+4->256<-2.3160320 signal:2:2");
    fake_finish(fake, 2, 2);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    fake_destroy(fake);
}

TEST(function_starts_from_its_pieces)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 2);
    (void)fake_calls(fake);
    fake_launch_init(&launch, 3,
                     KIND(RUN)); /* slot 3 = slot 1 + slot 2, as a copy on write */
    fake_launch_function(&launch, "add_into");
    fake_launch_operand(&launch, KERNEL_INOUT, 3, 4)->fresh = 1;
    fake_launch_operand(&launch, KERNEL_IN, 2, 4);
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "copy:0:0+4->512<-1.0 run:0:add_into signal:0:3");
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 3), STORE_SEALED);
    fake_launch_init(&launch, 4, KIND(RUN));
    fake_launch_function(&launch, "add_into");
    fake_launch_operand(&launch, KERNEL_INOUT, 4, 4)->fresh = 1;
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 1, 8);
    ASSERT_STATUS(fake_send_err(fake, &launch, NULL), PLASMON_EMALFORMED);
    fake_destroy(fake);
}

TEST(device_that_nobody_named_yet_is_waited_for)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->host_device_of[FAKE_BASE + 2] = WORKER_DEVICE_PENDING;
    fake_launch_init(&launch, 1, KIND(RUN));
    fake_launch_function(&launch, "noop");
    fake_launch_after(&launch, FAKE_BASE + 2, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(worker_core_waits_for(fake->core), -1);
    fake->host_device_of[FAKE_BASE + 2] = 2;
    worker_core_advance(fake->core);
    ASSERT_EQ(worker_core_waits_for(fake->core), 1 << 2);
    fake_peer_publish(fake, 2, 1, 0);
    ASSERT_EQ(worker_core_waits_for(fake->core), 0);
    ASSERT_STR(fake_calls(fake), "wait:0:2.0>=1 signal:0:1");
    fake_destroy(fake);
}

TEST(copy_of_a_buffer_that_is_gone_fails)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(COPY));
    fake_launch_fresh(&launch, 2, 8);
    fake_launch_piece(&launch, FAKE_BASE + 2, 30, 8);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 2, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:EDEPENDENCY");
    ASSERT_TRUE(fake_state(fake, 2) != STORE_SEALED);
    fake_destroy(fake);
}

/* COPY by `combine` into 8 elements of slot 3, of the last so many of slot 1 and of all of slot 2. */
static void combine_init(struct fake_launch *launch, uint64_t seq, int64_t count)
{
    fake_launch_init(launch, seq, KIND(COPY));
    fake_launch_function(launch, "combine");
    fake_launch_fresh(launch, 3, 8);
    fake_launch_piece(launch, FAKE_BASE + FAKE_US, 1, 10);
    fake_launch_piece(launch, FAKE_BASE + FAKE_US, 2, 8);
    launch->src_frame[0][0]   = -2; /* its element 2 comes to lie at 0 */
    launch->box[0][1]         = count;
    launch->scalar[0]         = KERNEL_SUM;
    launch->message.n_scalars = 1;
}

TEST(a_copy_with_a_function_reads_its_pieces_where_they_lie)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 10);
    fake_fill(fake, 2, 2, 8);
    (void)fake_calls(fake);
    combine_init(&launch, 3, 8);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "combine:4:combine signal:4:3"); /* beside all copies */
    ASSERT_EQ(fake->arg_count, 3);
    ASSERT_EQ(fake->args[0].mode, KERNEL_OUT);
    ASSERT_EQ(fake->args[1].data.addr, 2 * sizeof(float));
    ASSERT_EQ(fake->args[2].data.addr, 0);
    for (uint32_t i = 0; i < 3; i++) {
        ASSERT_EQ(fake->sources[i].host_device, FAKE_US);
        ASSERT_EQ(fake->args[i].dim[0], 8);
        ASSERT_EQ(fake->sources[i].bytes, (i == 1 ? 10 : 8) * sizeof(float));
    }
    ASSERT_EQ(fake->sources[1].offset, fake->tables[FAKE_US]->entries[1].offset);
    fake_finish(fake, 4, 3);
    ASSERT_TRUE(fake_state(fake, 3) == STORE_SEALED);
    fake_destroy(fake);
}

TEST(a_copy_with_a_function_that_overwrites_is_in_the_streams_of_copies)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 10);
    fake_fill(fake, 2, 2, 8);
    fake_fill(fake, 3, 3, 8);
    (void)fake_calls(fake);
    combine_init(&launch, 4, 8);
    launch.operand[0].fresh   = 0;
    launch.operand[0].consume = 1;
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_CONTAINS(fake_calls(fake), "combine:2:combine signal:2:4");
    fake_destroy(fake);
}

TEST(a_copy_with_a_function_that_cannot_be_fails)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 10);
    fake_fill(fake, 2, 2, 8);
    combine_init(&launch, 3, 7);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 4, 3);
    ASSERT_CONTAINS(fake_reports(fake), "failed:3:ESHAPE");
    combine_init(&launch, 4, 8);
    launch.message.function = 12345;
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 4, 4);
    ASSERT_STR(fake_reports(fake), "failed:4:ENOFUNCTION");
    combine_init(&launch, 5, 8);
    fake->scratch = 256;
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 4, 5);
    ASSERT_STR(fake_reports(fake), "failed:5:ENOTSUP");
    ASSERT_CONTAINS(fake->last_text, "cannot read them where they are");
    fake->scratch = 0;
    combine_init(&launch, 6, 8);
    launch.piece[1].src = wire_buffer(FAKE_BASE + 2, 30, 1);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 4, 6);
    ASSERT_STR(fake_reports(fake), "failed:6:EDEPENDENCY");
    fake_destroy(fake);
}

TEST(work_on_another_host_is_not_supported)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(COPY));
    fake_launch_fresh(&launch, 2, 8);
    fake_launch_piece(&launch, FAKE_FAR, 30, 8);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 2, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:ENOTSUP");

    fake_launch_init(&launch, 2, KIND(RUN));
    fake_launch_function(&launch, "noop");
    fake_launch_after(&launch, FAKE_FAR, 3);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "failed:2:ENOTSUP");
    ASSERT_CONTAINS(fake->last_text, "device 7, which is on another host");
    fake_destroy(fake);
}

TEST(send_and_receive_go_through_the_ring_on_their_streams)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 1);
    (void)fake_calls(fake);
    fake_launch_init(&launch, 2, KIND(SEND));
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    launch.message.peer   = FAKE_BASE + 2;
    launch.message.offset = 40;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "send:6:2:#40:0+16 signal:6:2");

    fake_launch_init(&launch, 3, KIND(RECV));
    fake_launch_fresh(&launch, 2, 4);
    launch.message.peer   = FAKE_BASE + 0;
    launch.message.offset = 7;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "recv:4:0:#7:256+16 signal:4:3");
    fake_finish(fake, 4, 3);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    fake_destroy(fake);
}

/* A SEND of buffer 1, or (to nobody) a READ: the stream that it went to. */
static unsigned stream_of(struct fake *fake, uint64_t seq, uint32_t peer)
{
    struct fake_launch launch;
    unsigned stream = 0;

    fake_launch_init(&launch, seq, peer != 0 ? KIND(SEND) : KIND(READ));
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    launch.message.peer   = peer;
    launch.message.offset = peer != 0 ? 100 * seq : 0;
    launch.message.length = peer != 0 ? 0 : 4;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(sscanf(strchr(fake_calls(fake), ':'), ":%u", &stream), 1);
    return stream;
}

TEST(sends_to_one_device_follow_each_other_and_others_pass_them)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 1);
    (void)fake_calls(fake);
    ASSERT_EQ(stream_of(fake, 2, FAKE_BASE + 0), 6);
    ASSERT_EQ(stream_of(fake, 3, FAKE_BASE + 0), 6);
    ASSERT_EQ(stream_of(fake, 4, 0), 3); /* a read: where no send is */
    ASSERT_EQ(stream_of(fake, 5, FAKE_BASE + 2), 7);
    ASSERT_EQ(stream_of(fake, 6, FAKE_BASE + 0), 6);
    ASSERT_EQ(stream_of(fake, 7, FAKE_BASE + 2), 7);
    fake_finish(fake, 6, 6);
    ASSERT_EQ(stream_of(fake, 8, FAKE_BASE + 0), 6); /* there is nothing now */
    fake_destroy(fake);
}

TEST(sends_to_another_host_have_two_streams_that_nobody_else_needs)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 1);
    (void)fake_calls(fake);
    ASSERT_EQ(stream_of(fake, 2, FAKE_FAR), 6);
    ASSERT_EQ(stream_of(fake, 3, FAKE_FAR), 7);
    ASSERT_EQ(stream_of(fake, 4, FAKE_FAR), 6);
    ASSERT_EQ(stream_of(fake, 5, FAKE_FAR), 7);
    ASSERT_EQ(stream_of(fake, 6, FAKE_BASE + 0), 3);
    fake_finish(fake, 6, 4);
    fake_finish(fake, 7, 5);
    fake_finish(fake, 3, 6);

    ASSERT_EQ(stream_of(fake, 7, FAKE_FAR), 6);
    ASSERT_EQ(stream_of(fake, 8, FAKE_BASE + 0), 7);
    ASSERT_EQ(stream_of(fake, 9, FAKE_FAR), 6); /* the third one is for clients */
    ASSERT_EQ(stream_of(fake, 10, 0), 3);
    fake_destroy(fake);
}

TEST(second_half_on_a_stream_signals_the_first)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    struct fake_launch launch[2];
    Plasmon__V1__Launch *launches[2] = {&launch[0].message, &launch[1].message};

    for (uint32_t i = 0; i < 2; i++) {
        fake_launch_init(&launch[i], i + 1, KIND(RECV));
        fake_launch_fresh(&launch[i], i + 1, 4);
        launch[i].message.peer   = FAKE_BASE;
        launch[i].message.offset = i;
    }
    command.launches   = launches;
    command.n_launches = 2;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    worker_core_advance(fake->core);
    ASSERT_STR(fake_calls(fake),
               "recv:4:0:#0:0+16 signal:4:1 recv:4:0:#1:256+16 signal:4:2");
    fake_destroy(fake);
}

TEST(of_a_half_that_waits_it_is_said_from_whom_and_how)
{
    struct fake *fake              = fake_create();
    Plasmon__V1__WorkerStats stats = PLASMON__V1__WORKER_STATS__INIT;
    struct wire_arena arena;
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(RECV));
    fake_launch_fresh(&launch, 1, 4);
    launch.message.peer = FAKE_BASE;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_OK(wire_arena_init(&arena, 1 << 20));
    worker_core_waits(fake->core, &arena, 0, &stats);
    ASSERT_EQ(stats.n_waits, 1);
    ASSERT_STR(stats.waits[0]->text, "from device 2 by the host route");
    wire_arena_finish(&arena);
    fake_destroy(fake);
}

TEST(failed_half_still_moves_the_rings_words)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(SEND)); /* of a buffer that is not there */
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    launch.message.peer   = FAKE_BASE + 2;
    launch.message.offset = 3;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "send:6:2:#3:nowhere+16 signal:6:1");

    fake->grow_bytes = 0; /* and a receive without memory */
    fake_launch_init(&launch, 2, KIND(RECV));
    fake_launch_fresh(&launch, 2, 4);
    launch.message.peer = FAKE_BASE + 2;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "");
    fake_starve(fake, 2);
    ASSERT_STR(fake_calls(fake), "recv:4:2:#0:nowhere+16 signal:4:2");
    fake_finish(fake, 6, 1);
    fake_finish(fake, 4, 2);
    ASSERT_STR(fake_reports(fake), "starved:2 failed:1:EDEPENDENCY failed:2:EDEVMEM");
    fake_destroy(fake);
}

static void put(struct fake *fake, uint64_t seq, bool fresh, uint64_t offset, size_t bytes)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, KIND(PUT));
    fake_launch_operand(&launch, KERNEL_OUT, 1, 8)->fresh = fresh;
    launch.message.offset                                 = offset;
    launch.message.data.len                               = bytes;
    if (seq > 1) {
        fake_launch_after(&launch, FAKE_BASE + FAKE_US, seq - 1);
    }
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(put_in_parts_is_sealed_by_the_last)
{
    struct fake *fake = fake_create();

    put(fake, 1, true, 0, 20);
    put(fake, 2, false, 20, 12);
    ASSERT_STR(fake_calls(fake), "put:2:0+20 signal:2:1 put:2:20+12 signal:2:2");
    fake_finish(fake, 2, 1);
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    fake_finish(fake, 2, 2);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(first_part_of_a_put_is_not_sealed)
{
    struct fake *fake = fake_create();

    put(fake, 1, true, 0, 20);
    fake_finish(fake, 2, 1);
    ASSERT_STR(fake_reports(fake), "done:1+1");
    ASSERT_EQ(fake_state(fake, 1), STORE_WRITING);
    fake_destroy(fake);
}

TEST(put_and_read_past_the_end_are_refused)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(PUT));
    fake_launch_fresh(&launch, 1, 8);
    launch.message.offset   = 20;
    launch.message.data.len = 13;
    ASSERT_STATUS(fake_send_err(fake, &launch, NULL), PLASMON_EMALFORMED);
    fake_launch_init(&launch, 1, KIND(READ));
    fake_launch_operand(&launch, KERNEL_IN, 1, 8);
    launch.message.offset = 33;
    ASSERT_STATUS(fake_send_err(fake, &launch, NULL), PLASMON_EMALFORMED);
    ASSERT_EQ(worker_core_received(fake->core), 0);
    fake_destroy(fake);
}

TEST(read_sends_bytes_of_a_buffer)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_fill(fake, 1, 1, 8);
    (void)fake_calls(fake);
    fake_launch_init(&launch, 2, KIND(READ));
    fake_launch_operand(&launch, KERNEL_IN, 1, 8);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    launch.message.offset  = 4;
    launch.message.length  = 8;
    launch.message.request = 99;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "join:3:0 read:3:4+8?99 signal:3:2");
    fake_destroy(fake);
}

TEST(clients_memory_is_sealed_when_the_client_says_so)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(ALLOC));
    fake_launch_fresh(&launch, 1, 8)->writable_by_client = 1;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "done:1+1");
    ASSERT_EQ(fake_state(fake, 1), STORE_WRITING);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[1].flags, STORE_ENTRY_CLIENT_WRITES);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[1].seq, WORKER_SEQ_NEVER);
    fake_launch_init(&launch, 2, KIND(SEAL));
    fake_launch_operand(&launch, KERNEL_IN, 1, 8);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "done:2+1");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    ASSERT_STR(fake_calls(fake), "");
    fake_destroy(fake);
}

TEST(cancelled_launch_keeps_its_waits)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(RUN));
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 1, 4);
    fake_launch_after(&launch, FAKE_BASE, 1);
    ASSERT_OK(fake_send(fake, &launch));
    fake_cancel(fake, 1);
    ASSERT_STR(
        fake_reports(fake),
        "condemned:1:ECANCELLED"); /* told now, over only when what it waits for is */
    fake_peer_publish(fake, 0, 1, 0);
    ASSERT_STR(fake_calls(fake), "wait:0:0.0>=1 signal:0:1");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:ECANCELLED");
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED); /* made, never sealed */
    fake_cancel(fake, 1);                           /* too late: nothing */
    fake_destroy(fake);
}

TEST(buffer_of_another_device_is_refused)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, KIND(RUN));
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 1, 4)->buffer = wire_buffer(FAKE_BASE, 1, 1);
    ASSERT_STATUS(fake_send_err(fake, &launch, NULL), PLASMON_EMALFORMED);
    fake_destroy(fake);
}

/* A fill of a new buffer, and its operand, to be spoiled. */
static Plasmon__V1__Operand *fill_begin(struct fake_launch *launch)
{
    fake_launch_init(launch, 1, KIND(RUN));
    fake_launch_function(launch, "fill");
    fake_launch_scalar(launch, 1.0);
    return fake_launch_fresh(launch, 1, 4);
}

/* What a head says that is wrong indexes nothing. */
TEST(operands_that_cannot_be_are_refused)
{
    struct fake *fake = fake_create();
    Plasmon__V1__Operand *operand;
    struct fake_launch launch;
    struct pl_err err;

    fill_begin(&launch)->buffer = wire_buffer(FAKE_BASE + FAKE_US, STORE_TABLE_SLOTS, 1);
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    ASSERT_CONTAINS(err.text, "slot 262144");
    fill_begin(&launch)->dtype = 0;
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    fill_begin(&launch)->dtype = 1000;
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    operand          = fill_begin(&launch);
    operand->n_frame = 2 * PL_DIM_MAX + 2;
    ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
    ASSERT_EQ(worker_core_received(fake->core), 0);
    (void)fill_begin(&launch);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 1);
    fake_destroy(fake);
}

TEST(pieces_that_lie_nowhere_are_refused)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct pl_err err;

    for (uint32_t operand = 1; operand < 100000; operand *= 17) {
        fake_launch_init(&launch, 1, KIND(COPY));
        fake_launch_fresh(&launch, 1, 4);
        fake_launch_piece(&launch, FAKE_US, 2, 4);
        launch.message.pieces[0]->operand = operand;
        ASSERT_STATUS(fake_send_err(fake, &launch, &err), PLASMON_EMALFORMED);
        ASSERT_CONTAINS(err.text, "does not lie in operand");
    }
    ASSERT_EQ(worker_core_received(fake->core), 0);
    fake_destroy(fake);
}

/* y += x, of `count` elements of x. */
static void add(struct fake *fake, uint64_t seq, uint32_t x, int64_t count)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&launch, "add_into");
    fake_launch_operand(&launch, KERNEL_INOUT, 1, 4)->consume = 1;
    fake_launch_operand(&launch, KERNEL_IN, x, count);
    ASSERT_OK(fake_send(fake, &launch));
}

/* Each behind the one before; they share one list of operands. */
static void shared_give(struct fake *fake, struct fake_launch *shared, uint64_t first,
                        uint32_t count)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Launch messages[4], *pointers[4];
    uint64_t after[4];
    struct pl_err err;

    ASSERT_TRUE(count <= PL_COUNT(messages));
    for (uint32_t i = 0; i < count; i++) {
        messages[i]         = shared->message;
        messages[i].seq     = first + i;
        after[i]            = wire_point(FAKE_BASE + FAKE_US, first + i - 1);
        messages[i].after   = &after[i];
        messages[i].n_after = 1;
        pointers[i]         = &messages[i];
    }
    command.launches   = pointers;
    command.n_launches = count;
    ASSERT_OK(worker_core_command(fake->core, &command, &err));
    worker_core_advance(fake->core);
}

TEST(launches_of_a_command_that_share_their_operands_are_each_as_if_alone)
{
    struct fake *fake = fake_create();
    struct fake_launch shared;

    fake_filled(fake, 2);
    fake_fill(fake, 3, 3, 8);
    (void)fake_calls(fake);
    fake_launch_init(&shared, 4, PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN);
    fake_launch_function(&shared, "add_into");
    fake_launch_operand(&shared, KERNEL_INOUT, 1, 4)->consume = 1;
    fake_launch_operand(&shared, KERNEL_IN, 2, 4);
    shared_give(fake, &shared, 4, 3);
    ASSERT_STR(fake_calls(fake), "run:0:add_into run:0:add_into run:0:add_into signal:0:6");
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    fake_finish(fake, 0, 5);
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED); /* the third one writes it */
    fake_finish(fake, 0, 6);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    ASSERT_CONTAINS(fake_reports(fake), "done:3+3 done:6+1");

    /* The same memory says something else in the next command. */
    shared.operand[1].buffer = wire_buffer(FAKE_BASE + FAKE_US, 3, 1);
    shared.frame[1][1]       = 8;
    shared_give(fake, &shared, 7, 1);
    ASSERT_TRUE(strstr(fake_calls(fake), "add_into") == NULL);
    fake_destroy(fake);
}

TEST(a_launch_like_an_earlier_one_runs_and_one_that_differs_is_checked)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 2);
    fake_fill(fake, 3, 3, 8);
    (void)fake_calls(fake);
    add(fake, 4, 2, 4);
    ASSERT_CONTAINS(fake_calls(fake), "add_into");
    add(fake, 5, 2, 4);
    ASSERT_CONTAINS(fake_calls(fake), "add_into");
    add(fake, 6, 3,
        8); /* of another shape: refused, although the function was right before */
    ASSERT_TRUE(strstr(fake_calls(fake), "add_into") == NULL);
    add(fake, 7, 2, 4);
    ASSERT_CONTAINS(fake_calls(fake), "add_into");
    fake_destroy(fake);
}

TEST_MAIN()
