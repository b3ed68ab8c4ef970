/*
 * Buffers: allocated all or nothing, sealed when done, overwritten only when nobody reads, freed
 * only then.
 */
#include "base/fault.h"
#include "tests/unit/worker/fake.h"

#define RUN PLASMON__V1__LAUNCH_KIND__LAUNCH_RUN

static void add_into(struct fake_launch *launch, uint64_t seq, uint32_t y, uint32_t x)
{
    fake_launch_init(launch, seq, RUN);
    fake_launch_function(launch, "add_into");
    fake_launch_operand(launch, KERNEL_INOUT, y, 4)->consume = 1;
    fake_launch_operand(launch, KERNEL_IN, x, 4);
}

TEST(fresh_buffer_is_writing_until_its_launch_is_done)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 9, 4);
    ASSERT_EQ(fake_state(fake, 9), STORE_WRITING);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[9].seq, 1);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_state(fake, 9), STORE_SEALED);
    fake_destroy(fake);
}

TEST(argument_is_the_view_in_the_buffer)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    Plasmon__V1__Operand *operand;

    fake_fill(fake, 1, 1, 4); /* so that the next one does not lie at 0 */
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    operand          = fake_launch_fresh(&launch, 2, 0);
    operand->n_frame = 4; /* rows 10 .. 15, columns 20 .. 27 of the root */
    memcpy(operand->frame, (int64_t[]){10, 6, 20, 8}, 4 * sizeof(int64_t));
    operand->n_view = 6; /* rows 11 13 15, columns 22 23 */
    memcpy(operand->view, (int64_t[]){11, 3, 2, 22, 2, 1}, 6 * sizeof(int64_t));
    ASSERT_OK(fake_send(fake, &launch));

    ASSERT_EQ(fake->args[0].ndim, 2);
    ASSERT_EQ(fake->args[0].dim[0], 3);
    ASSERT_EQ(fake->args[0].dim[1], 2);
    ASSERT_EQ(fake->args[0].stride[0], 16);
    ASSERT_EQ(fake->args[0].stride[1], 1);
    ASSERT_EQ(fake->args[0].data.addr,
              fake->tables[FAKE_US]->entries[2].offset + (1 * 8 + 2) * 4);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[2].bytes, 6 * 8 * 4);
    fake_destroy(fake);
}

TEST(reduce_starts_from_the_identity)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    Plasmon__V1__Operand *operand;

    fake_fill(fake, 1, 1, 4);
    (void)fake_calls(fake);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "accumulate");
    operand            = fake_launch_operand(&launch, KERNEL_REDUCE, 2, 4);
    operand->fresh     = 1;
    operand->reduce_op = KERNEL_MAX;
    fake_launch_operand(&launch, KERNEL_IN, 1, 4);
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 1);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "identity:0:op4 run:0:accumulate signal:0:2");
    fake_finish(fake, 0, 2);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    fake_destroy(fake);
}

TEST(overwritten_buffer_is_consumed_before_its_launch_and_sealed_after)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 2);
    add_into(&launch, 3, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    ASSERT_EQ(fake_state(fake, 2), STORE_SEALED);
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(overwriting_waits_for_a_reader_that_pinned_before)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 2);
    (void)fake_calls(fake);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[1], &entry, &pin));

    add_into(&launch, 3, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED); /* no new reader */
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 2);
    ASSERT_TRUE(worker_core_wants_poll(fake->core));
    worker_core_complete(fake->core);
    ASSERT_STR(fake_calls(fake), "");

    store_table_unpin(fake->readers[1], pin);
    worker_core_complete(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:add_into signal:0:3");
    ASSERT_TRUE(!worker_core_wants_poll(fake->core));
    fake_destroy(fake);
}

TEST(cancelled_overwrite_keeps_the_old_content)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 2);
    (void)fake_reports(fake);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[1], &entry, &pin));
    add_into(&launch, 3, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    fake_cancel(fake, 3);
    ASSERT_STR(fake_reports(fake), "condemned:3:ECANCELLED failed:3:ECANCELLED");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    store_table_unpin(fake->readers[1], pin);
    fake_destroy(fake);
}

TEST(buffer_with_two_writers_is_sealed_by_the_last)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 2);
    add_into(&launch, 3, 1, 2); /* the head says these two write disjoint boxes */
    ASSERT_OK(fake_send(fake, &launch));
    add_into(&launch, 4, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 1, 4);
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(earlier_writer_does_not_seal_what_a_later_one_marked)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 2);
    add_into(&launch, 3, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    /* Launch 4 is at the front and has marked slots 1 and 2, and a reader holds slot 2. */
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 2, 1, fake->readers[0], &entry, &pin));
    add_into(&launch, 4, 1, 2);
    launch.operand[1].consume = 1;
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_CONSUMED);
    store_table_unpin(fake->readers[0], pin);
    worker_core_complete(fake->core);
    fake_destroy(fake);
}

TEST(failed_launch_is_reported_and_its_result_never_sealed)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4);
    worker_core_failed(fake->core, 1, PLASMON_EFUNCTION, "fill: the sky fell");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:EFUNCTION");
    ASSERT_STR(fake->last_text, "fill: the sky fell");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_SEALED);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[1].seq,
              WORKER_SEQ_NEVER); /* nor after a restart */
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    fake_destroy(fake);
}

TEST(sealing_a_failure_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    pl_bug_arm("worker.seal_failed");
    fake_fill(fake, 1, 1, 4);
    worker_core_failed(fake->core, 1, PLASMON_EFUNCTION, "no");
    fake_finish(fake, 0, 1);
    pl_bug_arm(NULL);
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_destroy(fake);
}

TEST(launch_that_the_device_refuses_fails_and_is_signalled)
{
    struct fake *fake = fake_create();

    fake->refuse = "run";
    fake_fill(fake, 1, 1, 4);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:1");
    fake_finish(fake, 0, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:EDEVICE");
    ASSERT_CONTAINS(fake->last_text, "the fake refused to run fill");
    fake_destroy(fake);
}

TEST(unknown_function_and_wrong_arguments_fail_before_the_device)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "no such thing");
    fake_launch_fresh(&launch, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "failed:1:ENOFUNCTION");
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "add");
    fake_launch_fresh(&launch, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "failed:2:EARITY");
    ASSERT_CONTAINS(fake->last_text, "add");
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_EQ(fake_state(fake, 1),
              STORE_CONSUMED); /* made for who writes a part of it, never sealed */
    fake_free(fake, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    ASSERT_EQ(fake->timelines[FAKE_US]->enqueued, 2); /* who waits for them goes on */
    fake_destroy(fake);
}

TEST(memory_is_taken_all_or_nothing)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->grow_bytes = FAKE_CHUNK;
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "copy");
    fake_launch_fresh(&launch, 1, FAKE_CHUNK / 8); /* half of it */
    /* as an input: fresh all the same */
    fake_launch_fresh(&launch, 2, FAKE_CHUNK / 8)->mode = KERNEL_IN;
    fake->scratch                                       = FAKE_CHUNK / 2;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "starved:1");
    ASSERT_EQ(fake->starved_bytes, FAKE_CHUNK + FAKE_CHUNK / 2);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_STR(fake_calls(fake), "");
    fake_destroy(fake);
}

/* ------------------------------------------------------------------ chunks on their way */

static void assert_waits_for_the_store(struct fake *fake)
{
    struct pl_str text;

    pl_str_init(&text);
    worker_core_describe(fake->core, &text);
    ASSERT_CONTAINS(pl_str_text(&text), "waits for the store to keep new memory");
    pl_str_finish(&text);
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_STR(fake_reports(fake), "");
}

TEST(new_memory_is_used_when_the_store_keeps_it)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->store_slow = true;
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "copy");
    fake_launch_fresh(&launch, 1, FAKE_CHUNK / 4);
    fake_launch_fresh(&launch, 2, FAKE_CHUNK / 4)->mode = KERNEL_IN;
    ASSERT_OK(fake_send(fake, &launch));
    fake_noop(fake, 2);
    worker_core_advance(fake->core);
    worker_core_complete(fake->core);
    assert_waits_for_the_store(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    fake_kept(fake); /* enough for one of them */
    assert_waits_for_the_store(fake);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_kept(fake);
    ASSERT_EQ(fake_state(fake, 1), STORE_WRITING);
    ASSERT_CONTAINS(fake_calls(fake), "copy");
    fake_destroy(fake);
}

/* A later launch may write a part of it in place. */
TEST(what_a_failed_launch_should_have_made_waits_for_the_store_too)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->store_slow = true;
    fake_launch_init(&launch, 1, RUN);
    fake_launch_function(&launch, "no such thing");
    fake_launch_fresh(&launch, 1, 4);
    ASSERT_OK(fake_send(fake, &launch));
    assert_waits_for_the_store(fake);
    fake_kept(fake);
    ASSERT_CONTAINS(fake_reports(fake), "failed:1:");
    ASSERT_TRUE(fake_state(fake, 1) != STORE_FREE && fake_state(fake, 1) != STORE_SEALED);
    fake_fill(fake, 2, 2, 4);
    add_into(&launch, 3, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 3);
    fake_finish(fake, 1, 3);
    ASSERT_STR(fake_reports(fake), "done:2+1 done:3+1");
    fake_destroy(fake);
}

TEST(a_launch_that_is_cancelled_while_it_waits_for_the_store_waits_on)
{
    struct fake *fake = fake_create();

    fake->store_slow = true;
    fake_fill(fake, 1, 1, 4);
    fake_cancel(fake, 1);
    ASSERT_STR(fake_reports(fake), "condemned:1:ECANCELLED");
    assert_waits_for_the_store(fake);
    fake_kept(fake);
    ASSERT_STR(fake_reports(fake), "failed:1:ECANCELLED");
    fake_destroy(fake);
}

/* The head's answer to the first complaint must not be taken for one to the second. */
TEST(a_front_that_was_starved_before_it_waited_for_the_store_says_so_again)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->store_slow = true;
    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, 4);
    fake_kept(fake);
    fake_finish(fake, 0, 1);
    (void)fake_reports(fake);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "copy");
    fake_launch_fresh(&launch, 2, FAKE_CHUNK / 4);
    fake_launch_fresh(&launch, 3, FAKE_CHUNK / 4)->mode = KERNEL_IN;
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_reports(fake), "starved:2");
    (void)fake_calls(fake);
    fake->grow_bytes = FAKE_CHUNK; /* another program has let go of it */
    fake_free(fake, 1);
    fake_starve(fake, 2);
    assert_waits_for_the_store(fake);
    fake->grow_bytes = 0;
    fake->store_slow = false;
    fake_fill(fake, 3, 4, 4);
    fake_kept(fake);
    (void)fake_reports(fake);
    fake_destroy(fake);
}

/* Its worker dies while it waits, and the chunk with it. */
TEST(an_alloc_comes_again_when_its_chunk_was_lost)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->store_slow = true;
    for (int life = 0; life < 3; life++) {
        fake_launch_init(&launch, 1, PLASMON__V1__LAUNCH_KIND__LAUNCH_ALLOC);
        fake_launch_fresh(&launch, 1, 4);
        ASSERT_OK(fake_send(fake, &launch));
        if (life == 1) {
            fake_kept(fake);
            ASSERT_EQ(fake_state(fake, 1), STORE_WRITING);
        } else if (life == 0) {
            assert_waits_for_the_store(fake);
        }
        if (life < 2) {
            fake->timelines[FAKE_US]->enqueued = 0; /* nobody was told of it */
            fake_restart(fake);
        }
    }
    ASSERT_TRUE(!fake->growing); /* it has its place */
    fake_destroy(fake);
}

TEST(scratch_is_returned_when_the_launch_is_done)
{
    struct fake *fake = fake_create();

    fake->scratch = 4096;
    fake_fill(fake, 1, 1, 4);
    ASSERT_EQ(fake_memory(fake).bytes_used, 4096 + 256);
    fake_finish(fake, 0, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 256);
    fake_destroy(fake);
}

TEST(starved_front_goes_on_when_memory_is_freed)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, FAKE_CHUNK / 4);
    fake_finish(fake, 0, 1);
    (void)fake_calls(fake);
    fake_fill(fake, 2, 2, FAKE_CHUNK / 4);
    fake_noop(fake, 3); /* does not overtake */
    ASSERT_STR(fake_reports(fake), "done:1+1 starved:2");
    worker_core_advance(fake->core);
    ASSERT_STR(fake_reports(fake), ""); /* said once */
    fake_free(fake, 1);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    ASSERT_STR(fake_reports(fake), "done:3+1");
    fake_destroy(fake);
}

TEST(starve_fails_the_front_alone_and_says_why)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, FAKE_CHUNK / 2);
    fake_noop(fake, 2);
    ASSERT_STR(fake_reports(fake), "starved:1");
    fake_starve(fake, 1);
    ASSERT_STR(fake_reports(fake), "failed:1:EDEVMEM done:2+1");
    ASSERT_CONTAINS(fake->last_text, "needs 2.0 MiB");
    ASSERT_CONTAINS(fake->last_text, "device's 64.0 MiB");
    fake_destroy(fake);
}

TEST(a_hole_that_is_hardly_too_small_is_told_to_the_byte)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, 64);
    fake_finish(fake, 0, 1);
    fake_fill(fake, 2, 2, FAKE_CHUNK / 4 - 64 + 1); /* one float more than is left */
    fake_starve(fake, 2);
    ASSERT_CONTAINS(fake->last_text, "the largest hole is 4 bytes less than that");
    ASSERT_CONTAINS(fake->last_text, "--spill-dir");
    fake_destroy(fake);
}

TEST(what_is_free_in_pieces_is_not_told_to_be_too_little)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = FAKE_CHUNK;
    for (uint32_t i = 1; i <= 4; i++) { /* floats: all of it */
        fake_fill(fake, i, i, FAKE_CHUNK / 16);
    }
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    fake_finish(fake, 0, 3);
    fake_finish(fake, 1, 4);
    fake_free(fake, 1);
    fake_free(fake, 3);
    fake_fill(fake, 5, 5, FAKE_CHUNK / 8);
    fake_starve(fake, 5);
    ASSERT_CONTAINS(fake->last_text, "the largest hole is 256.0 KiB");
    ASSERT_CONTAINS(fake->last_text, "enough is free in sum, but in pieces");
    ASSERT_NULL(strstr(fake->last_text, "--spill"));
    fake_destroy(fake);
}

/* Large ones begin at multiples of 2 MiB. */
TEST(of_a_hole_as_much_is_told_as_fits_in)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = 64 << 20;
    fake_fill(fake, 1, 1, 64);
    fake_fill(fake, 2, 2, (62 << 20) / 4);
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    fake_free(fake, 2);
    fake_fill(fake, 3, 3, (63 << 20) / 4);
    fake_starve(fake, 3);
    ASSERT_CONTAINS(fake->last_text, "it needs 63.0 MiB");
    ASSERT_CONTAINS(fake->last_text, "the largest hole is 62.0 MiB");
    ASSERT_CONTAINS(fake->last_text, "or more --device-memory"); /* to the end */
    ASSERT_NULL(strstr(fake->last_text, " 0 B"));
    fake_destroy(fake);
}

TEST(starving_names_who_has_the_memory)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct store_entry entry;
    uint32_t pin;

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, FAKE_CHUNK / 8);
    fake_fill(fake, 2, 2, FAKE_CHUNK / 16);
    fake_launch_init(&launch, 3, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, 3, FAKE_CHUNK / 32)->replica = 1;
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 2, FAKE_CHUNK / 16);
    launch.box[0][1] = FAKE_CHUNK / 32;
    fake_launch_after(&launch, FAKE_BASE + FAKE_US, 2);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    fake_finish(fake, 2, 3);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 2, 1, fake->readers[0], &entry, &pin));
    fake_free(fake, 2);
    fake_fill(fake, 4, 4, FAKE_CHUNK / 8);
    (void)fake_reports(fake);
    fake_starve(fake, 4);
    ASSERT_STR(fake_reports(fake), "failed:4:EDEVMEM");
    ASSERT_CONTAINS(fake->last_text, "needs 512.0 KiB of new device memory");
    ASSERT_CONTAINS(fake->last_text, "128.0 KiB are reserved and free");
    ASSERT_CONTAINS(fake->last_text, "largest hole is 128.0 KiB");
    ASSERT_CONTAINS(fake->last_text, "in use are 896.0 KiB");
    ASSERT_CONTAINS(fake->last_text, "objects 512.0 KiB");
    ASSERT_CONTAINS(fake->last_text, "copies of objects of other devices 128.0 KiB");
    ASSERT_CONTAINS(fake->last_text, "freed but read by a client 256.0 KiB");
    store_table_unpin(fake->readers[0], pin);
    fake_destroy(fake);
}

TEST(starve_spares_a_front_that_found_memory)
{
    struct fake *fake                  = fake_create();
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    uint64_t buffer                    = wire_buffer(FAKE_BASE + FAKE_US, 1, 1);
    uint64_t seq                       = 2;

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, FAKE_CHUNK / 4);
    fake_finish(fake, 0, 1);
    fake_fill(fake, 2, 2, FAKE_CHUNK / 4);
    (void)fake_reports(fake);
    command.free     = &buffer; /* what was freed crossed with the answer */
    command.n_free   = 1;
    command.starve   = &seq;
    command.n_starve = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_reports(fake), "done:2+1");
    fake_destroy(fake);
}

/* ------------------------------------------------------------------------------- relief */

enum { REQUEST = 7 };

static void relieve(struct fake *fake, uint64_t seq, uint32_t slot, uint64_t launch)
{
    Plasmon__V1__WorkerCommand command = PLASMON__V1__WORKER_COMMAND__INIT;
    Plasmon__V1__Relief relief         = PLASMON__V1__RELIEF__INIT;
    Plasmon__V1__Relief *reliefs[]     = {&relief};

    relief.seq       = seq;
    relief.request   = REQUEST;
    relief.buffer    = slot != 0 ? wire_buffer(FAKE_BASE + FAKE_US, slot, 1) : 0;
    relief.launch    = launch;
    command.relief   = reliefs;
    command.n_relief = 1;
    ASSERT_OK(worker_core_command(fake->core, &command, NULL));
}

/* Slots 1 and 2 have all of the memory; launch 3 wants half of it. */
static struct fake *starved_create(void)
{
    struct fake *fake = fake_create();

    fake->grow_bytes = FAKE_CHUNK;
    fake_fill(fake, 1, 1, FAKE_CHUNK / 8);
    fake_fill(fake, 2, 2, FAKE_CHUNK / 8);
    fake_finish(fake, 0, 1);
    fake_finish(fake, 1, 2);
    fake_fill(fake, 3, 3, FAKE_CHUNK / 8);
    (void)fake_calls(fake);
    ASSERT_STR(fake_reports(fake), "done:1+1 done:2+1 starved:3");
    return fake;
}

TEST(what_nobody_uses_is_copied_for_a_starved_front)
{
    struct fake *fake = starved_create();
    const char *calls;

    relieve(fake, 3, 2, 0);
    calls = fake_calls(fake);
    ASSERT_CONTAINS(calls, "get_host:");
    ASSERT_CONTAINS(strstr(calls, "get_host:"), "+1?7"); /* behind it */
    ASSERT_TRUE(worker_core_wants_poll(fake->core));
    relieve(fake, 3, 2, 0); /* told again */
    ASSERT_STR(fake_calls(fake), "");
    ASSERT_OK(worker_core_relieved(fake->core, REQUEST));
    ASSERT_TRUE(!worker_core_wants_poll(fake->core));
    ASSERT_STR(fake_reports(fake), ""); /* whoever reads the byte tells of it */
    fake_free(fake, 2);
    ASSERT_CONTAINS(fake_calls(fake), "run:0:fill");
    fake_destroy(fake);
}

TEST(nothing_is_copied_for_a_front_that_needs_nothing)
{
    struct fake *fake = starved_create();

    relieve(fake, 4, 2, 0); /* not at the front */
    ASSERT_STR(fake_reports(fake), "refused:7:EAGAIN");
    relieve(fake, 3, 0, 0); /* only asked */
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM:1");
    relieve(fake, 3, 5, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:ELOST");
    fake->host_locking = true;
    relieve(fake, 3, 2, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM");
    fake->host_locking = false;
    fake->refuse       = "get_host";
    relieve(fake, 3, 2, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM");
    fake->refuse = NULL;
    (void)fake_calls(fake);
    fake_free(fake, 1);
    relieve(fake, 3, 2, 0); /* it has its memory */
    ASSERT_STR(fake_reports(fake), "refused:7:EAGAIN");
    ASSERT_NULL(strstr(fake_calls(fake), "get_host"));
    fake_destroy(fake);
}

/* Eight eighths of the memory, of which 3 and 5 are free, and one that wants three. */
TEST(who_asks_is_told_what_lies_side_by_side)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake->grow_bytes = FAKE_CHUNK;
    for (uint32_t i = 1; i <= 8; i++) {
        fake_fill(fake, i, i, FAKE_CHUNK / 32);
        fake_finish(fake, 0, i);
    }
    fake_free(fake, 3);
    fake_free(fake, 5);
    fake_fill(fake, 9, 9, FAKE_CHUNK * 3 / 32);
    ASSERT_CONTAINS(fake_reports(fake), "starved:9");
    relieve(fake, 9, 0, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM:4"); /* rather than two others */
    fake_launch_init(&launch, 10, PLASMON__V1__LAUNCH_KIND__LAUNCH_SKIP);
    fake_launch_operand(&launch, KERNEL_IN, 4, FAKE_CHUNK / 32);
    ASSERT_OK(fake_send(fake, &launch)); /* behind it, and names one of these */
    relieve(fake, 9, 0, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM:1:2");
    fake_launch_init(&launch, 11, PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY);
    fake_launch_fresh(&launch, 11, FAKE_CHUNK / 32);
    fake_launch_piece(&launch, FAKE_BASE + FAKE_US, 1, FAKE_CHUNK / 32);
    ASSERT_OK(fake_send(fake, &launch)); /* and one that copies from one of these */
    relieve(fake, 9, 0, 0);
    ASSERT_STR(fake_reports(fake), "refused:7:EDEVMEM:6:7");
    fake_destroy(fake);
}

static void spill_send(struct fake *fake, uint64_t seq, uint32_t slot)
{
    struct fake_launch launch;

    fake_launch_init(&launch, seq, PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST);
    launch.message.host_buffer = 7;
    fake_launch_operand(&launch, KERNEL_IN, slot, FAKE_CHUNK / 8);
    ASSERT_OK(fake_send(fake, &launch));
}

TEST(a_spill_that_is_done_beside_the_order_has_nothing_to_do_in_it)
{
    struct fake *fake = starved_create();

    spill_send(fake, 4, 2);
    relieve(fake, 3, 2, 4);
    ASSERT_CONTAINS(fake_calls(fake), "get_host:");
    ASSERT_OK(worker_core_relieved(fake->core, REQUEST));
    fake_free(fake, 2);
    ASSERT_EQ(fake_state(fake, 2), STORE_FREE);
    fake_finish(fake, 0, 3);
    ASSERT_STR(fake_reports(fake), "done:4+1 done:3+1");
    ASSERT_NULL(strstr(fake_calls(fake), "get_host"));
    fake_destroy(fake);
}

TEST(a_spill_that_went_meanwhile_is_done_as_ever)
{
    struct fake *fake = starved_create();

    spill_send(fake, 4, 2);
    relieve(fake, 3, 2, 4);
    (void)fake_calls(fake);
    fake_free(fake, 1); /* so the front goes, and the spill behind it */
    ASSERT_CONTAINS(fake_calls(fake), "get_host:");
    ASSERT_STATUS(worker_core_relieved(fake->core, REQUEST), PLASMON_EAGAIN);
    relieve(fake, 3, 2, 4);
    ASSERT_CONTAINS(fake_reports(fake), "refused:7:EAGAIN");
    fake_destroy(fake);
}

TEST(freed_buffer_stays_while_a_reader_holds_it)
{
    struct fake *fake = fake_create();
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 1);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[0], &entry, &pin));
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_DOOMED);
    ASSERT_TRUE(fake_memory(fake).bytes_used != 0);
    ASSERT_TRUE(worker_core_wants_poll(fake->core));
    store_table_unpin(fake->readers[0], pin);
    worker_core_complete(fake->core);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(freed_buffer_stays_while_a_reader_is_unknown)
{
    struct fake *fake = fake_create();

    fake_filled(fake, 1);
    /* somebody came whose page is on its way to us */
    fake->timelines[FAKE_US]->reader_epoch = 1;
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_DOOMED);
    fake->reader_epoch = 1;
    worker_core_complete(fake->core);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    fake_destroy(fake);
}

TEST(slot_given_out_again_waits_for_the_reader_of_its_last_buffer)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;
    struct store_entry entry;
    uint32_t pin;

    fake_filled(fake, 1);
    ASSERT_OK(store_table_pin(fake->tables[FAKE_US], 1, 1, fake->readers[0], &entry, &pin));
    fake_free(fake, 1);
    (void)fake_calls(fake);
    fake_launch_init(&launch, 2, RUN);
    fake_launch_function(&launch, "fill");
    fake_launch_scalar(&launch, 1.0);
    fake_launch_fresh(&launch, 1, 4)->buffer = wire_buffer(FAKE_BASE + FAKE_US, 1, 2);
    ASSERT_OK(fake_send(fake, &launch));
    ASSERT_STR(fake_calls(fake), "");
    store_table_unpin(fake->readers[0], pin);
    worker_core_complete(fake->core);
    ASSERT_STR(fake_calls(fake), "run:0:fill signal:0:2");
    ASSERT_EQ(fake->tables[FAKE_US]->entries[1].generation, 2);
    fake_destroy(fake);
}

/*
 * A slot that was given out again while there was no worker: that its first buffer is free was told
 * to the one that died.
 */
TEST(freeing_a_buffer_frees_what_was_in_its_slot_before_it_and_nothing_later)
{
    struct fake *fake = fake_create();

    fake_fill(fake, 1, 1, 4); /* generation 1 */
    fake_finish(fake, 0, 1);
    fake_free(fake, 1);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);

    fake_fill(fake, 2, 1, 4);
    fake_finish(fake, 0, 2);
    fake_free_generation(fake, 1, 0xffffff); /* before the first one, long ago */
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED);
    fake_free_generation(fake, 1, 3);
    ASSERT_EQ(fake_state(fake, 1), STORE_FREE);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(freeing_what_was_never_made_does_nothing)
{
    struct fake *fake = fake_create();

    fake_free(fake, 77);
    fake_filled(fake, 1);
    fake_free(fake, 1);
    fake_free(fake, 1);
    ASSERT_EQ(fake_memory(fake).bytes_used, 0);
    fake_destroy(fake);
}

TEST(early_free_is_a_bug_that_shows)
{
    struct fake *fake = fake_create();

    pl_bug_arm("worker.early_free");
    fake_fill(fake, 1, 1, 4);
    fake_fill(fake, 2, 2, 4);
    pl_bug_arm(NULL);
    ASSERT_EQ(fake->tables[FAKE_US]->entries[1].offset,
              fake->tables[FAKE_US]->entries[2].offset);
    fake_destroy(fake);
}

TEST(input_that_is_gone_fails_the_launch)
{
    struct fake *fake = fake_create();
    struct fake_launch launch;

    fake_filled(fake, 1);
    add_into(&launch, 2, 1, 5);
    ASSERT_OK(fake_send(fake, &launch));
    fake_finish(fake, 0, 2);
    ASSERT_STR(fake_reports(fake), "done:1+1 failed:2:EDEPENDENCY");
    ASSERT_EQ(fake_state(fake, 1), STORE_SEALED); /* not consumed */
    fake_destroy(fake);
}

TEST_MAIN()
