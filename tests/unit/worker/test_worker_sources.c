/*
 * Who copies between the GPUs of a host (worker/sources.h): the worker of GPU 0, with the driver
 * that has none behind it, and the tables of two others, which are made up.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/harness/test.h"
#include "worker/sources.h"

enum { US, B, C, DEVICES };
#define LARGE   (WORKER_SOURCES_SOON_BYTES / 4)
#define WAIT_NS (UINT64_C(20) * 1000 * 1000 * 1000)

struct scene {
    struct device *device;
    struct worker_shared shared;
    struct worker_sources sources;
};

static void *zero_pages(uint64_t bytes)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ASSERT_TRUE(ptr != MAP_FAILED);
    return ptr;
}

static void scene_begin_told(struct scene *scene, uint32_t kind_of_c, const char *told)
{
    const struct device_config config = {.cublas_later = true};
    struct pl_err err                 = {.status = PLASMON_OK};

    ASSERT_EQ(told != NULL ? setenv("PLASMON_SOURCE_ENGINES", told, 1)
                           : unsetenv("PLASMON_SOURCE_ENGINES"),
              0);
    *scene = (struct scene){.shared = {.host_device = US, .host_device_count = DEVICES}};
    ASSERT_OK(device_open(DEVICE_CUDA, 0, &config, &scene->device, &err));
    for (uint32_t i = 0; i < DEVICES; i++) {
        scene->shared.tables[i]    = zero_pages(sizeof(struct store_table));
        scene->shared.timelines[i] = zero_pages(sizeof(struct store_timeline));
        store_table_init(scene->shared.tables[i], i, i == C ? kind_of_c : DEVICE_CUDA, i,
                         1 << 20);
        store_timeline_init(scene->shared.timelines[i], i);
    }
    scene->shared.tables[US]->engines = STORE_ENGINES_OPENED; /* of the worker before us */
    worker_sources_init(&scene->sources, scene->device, &scene->shared);
}

static void scene_begin(struct scene *scene, uint32_t kind_of_c)
{
    scene_begin_told(scene, kind_of_c, "1");
}

static void scene_end(struct scene *scene)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        (void)munmap(scene->shared.tables[i], sizeof(struct store_table));
        (void)munmap(scene->shared.timelines[i], sizeof(struct store_timeline));
    }
    device_close(scene->device);
}

static uint32_t shown(const struct scene *scene)
{
    return scene->shared.tables[US]->engines;
}

static void others_show(struct scene *scene, enum store_engines b, enum store_engines c)
{
    scene->shared.tables[B]->engines = b;
    scene->shared.tables[C]->engines = c;
}

/* Copies from B until it does not open any more. */
static void copy_until_open(struct scene *scene)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t until_ns         = pl_now_ns() + WAIT_NS;

    while (shown(scene) == STORE_ENGINES_IDLE || shown(scene) == STORE_ENGINES_OPENS) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)worker_sources_engines(&scene->sources, B, LARGE, 1);
        (void)nanosleep(&nap, NULL);
    }
}

TEST(who_copies_little_opens_nothing)
{
    struct scene scene;

    scene_begin(&scene, DEVICE_CUDA);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
    others_show(&scene, STORE_ENGINES_OPENED, STORE_ENGINES_OPENS);
    ASSERT_EQ(worker_sources_stand(&scene.sources), STORE_ENGINES_IDLE);
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), 0);
    }
    for (int i = 0; i < 100; i++) { /* within the device */
        ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE, 1), 0);
    }
    ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
    ASSERT_EQ(device_engines_state(scene.device, B), DEVICE_ENGINES_CLOSED);
    scene_end(&scene);
}

TEST(who_copies_much_opens_all_and_has_them_copy_while_nobody_does_it_himself)
{
    struct scene scene;

    scene_begin(&scene, DEVICE_CUDA);
    copy_until_open(&scene);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), B);
    ASSERT_EQ(worker_sources_engines(&scene.sources, C, LARGE, 1),
              C); /* was opened with it */
    others_show(&scene, STORE_ENGINES_OPENED, STORE_ENGINES_OPENS);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
    ASSERT_EQ(worker_sources_stand(&scene.sources), STORE_ENGINES_OPENS);
    others_show(&scene, STORE_ENGINES_REFUSES, STORE_ENGINES_OPENS);
    ASSERT_EQ(worker_sources_stand(&scene.sources), STORE_ENGINES_REFUSES);
    others_show(&scene, STORE_ENGINES_OPENED, STORE_ENGINES_OPENED);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), B);
    ASSERT_EQ(worker_sources_stand(&scene.sources), STORE_ENGINES_OPENED);
    others_show(&scene, STORE_ENGINES_REFUSES, STORE_ENGINES_IDLE);
    ASSERT_EQ(worker_sources_engines(&scene.sources, C, LARGE, 1), US);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);    /* it could */
    store_timeline_release(scene.shared.timelines[B]); /* gone */
    ASSERT_EQ(worker_sources_engines(&scene.sources, C, LARGE, 1), C);
    ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE, 1), US);
    scene_end(&scene);
}

/* Else all others would read for as long as it lives. */
TEST(who_copied_much_once_opens_no_longer_than_it_takes)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t until_ns         = pl_now_ns() + WAIT_NS;
    struct scene scene;

    ASSERT_EQ(setenv("FAKE_CUDA_SLOW", "1", 1), 0);
    scene_begin(&scene, DEVICE_CUDA);
    worker_sources_tick(&scene.sources);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, WORKER_SOURCES_SOON_BYTES, 1), US);
    while (device_engines_state(scene.device, B) != DEVICE_ENGINES_OPEN ||
           device_engines_state(scene.device, C) != DEVICE_ENGINES_OPEN) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        (void)nanosleep(&nap, NULL);
    }
    worker_sources_tick(&scene.sources);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);
    scene_end(&scene);
}

/* A launch of that device is in its stream, and later over. */
static void put_in(struct scene *scene, uint32_t device, uint64_t seq)
{
    for (uint64_t i = scene->shared.timelines[device]->enqueued; i < seq; i++) {
        store_timeline_publish(scene->shared.timelines[device], i + 1, 0);
    }
}

static void end_of(struct scene *scene, uint32_t device, uint64_t seq)
{
    scene->shared.timelines[device]->stream[0].value = seq;
}

static bool all_read(struct scene *scene)
{
    uint64_t *until_ns = &scene->shared.tables[US]->reads_until_ns;
    bool read          = *until_ns > pl_now_ns();

    *until_ns = 0;
    return read;
}

/* Who waits there holds up all others. */
TEST(an_engine_is_for_one_at_a_time_where_several_may_want_it)
{
    struct scene scene;

    scene_begin(&scene, DEVICE_CUDA);
    copy_until_open(&scene);
    others_show(&scene, STORE_ENGINES_OPENED, STORE_ENGINES_OPENED);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 11), B);
    ASSERT_EQ(scene.shared.tables[US]->engine_used[B], 11);
    put_in(&scene, US, 11);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 12), B); /* ours */
    ASSERT_TRUE(!all_read(&scene));

    for (uint32_t other = B; other <= C; other++) { /* its own process, or another one */
        scene.shared.tables[other]->engine_used[B] = 7;
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 13), B);
        put_in(&scene, other, 7);
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 14), US);
        ASSERT_EQ(scene.shared.tables[US]->engine_used[US], 0); /* that is for the moment */
        ASSERT_TRUE(all_read(&scene));
        ASSERT_EQ(worker_sources_engines(&scene.sources, C, LARGE, 15),
                  C); /* not that one */
        ASSERT_TRUE(!all_read(&scene));
        end_of(&scene, other, 7);
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 16), B);
        ASSERT_TRUE(!all_read(&scene));
    }

    scene.shared.tables[C]->engine_used[US] = 9; /* ours copies for C */
    put_in(&scene, C, 9);
    ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE / 4, 17), US);
    ASSERT_TRUE(all_read(&scene));
    end_of(&scene, C, 9);
    ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE / 4, 18), US);
    ASSERT_EQ(scene.shared.tables[US]->engine_used[US], 18); /* it will be so again */
    ASSERT_TRUE(!all_read(&scene));
    scene_end(&scene);
}

/* All-to-all, say, wants every engine for several all the time. */
TEST(who_shares_an_engine_again_and_again_reads_for_longer_each_time)
{
    const uint64_t ms = 1000000, least_ns = 100 * ms, most_ns = 3200 * ms;
    uint64_t *until_ns, pause_ns = 0;
    struct scene scene;

    scene_begin(&scene, DEVICE_CUDA);
    copy_until_open(&scene);
    until_ns = &scene.shared.tables[US]->reads_until_ns;
    others_show(&scene, STORE_ENGINES_OPENED, STORE_ENGINES_OPENED);
    scene.shared.tables[C]->engine_used[B] = 7;
    put_in(&scene, C, 7);
    for (uint64_t wanted_ns = least_ns; wanted_ns <= 4 * most_ns; wanted_ns *= 2) {
        uint64_t now_ns = pl_now_ns();

        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 11), US);
        ASSERT_TRUE(*until_ns >= now_ns + pl_min_u64(wanted_ns, most_ns));
        ASSERT_TRUE(*until_ns <= pl_now_ns() + pl_min_u64(wanted_ns, most_ns));
        pause_ns = *until_ns;
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 12), US);
        ASSERT_EQ(*until_ns, pause_ns); /* they read already */
        *until_ns = pl_now_ns() - 1;    /* that is over */
    }
    *until_ns = pl_now_ns() - 2 * most_ns; /* long ago */
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 13), US);
    ASSERT_TRUE(*until_ns <= pl_now_ns() + least_ns);
    scene_end(&scene);
}

TEST(of_two_gpus_nobody_else_wants_the_engine)
{
    struct scene scene;

    scene_begin(&scene, DEVICE_CPU);
    copy_until_open(&scene);
    scene.shared.tables[B]->engines         = STORE_ENGINES_OPENED;
    scene.shared.tables[B]->engine_used[B]  = 7;
    scene.shared.tables[B]->engine_used[US] = 7;
    put_in(&scene, B, 7);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 11), B);
    ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE, 12), US);
    ASSERT_TRUE(!all_read(&scene));
    scene_end(&scene);
}

/* Which its engine makes, as the other ones make theirs. */
TEST(while_somebody_makes_many_small_copies_all_copy_by_themselves)
{
    const uint64_t small = UINT64_C(8) << 20, much = UINT64_C(1) << 30;
    struct scene scene;

    scene_begin(&scene, DEVICE_CUDA);
    copy_until_open(&scene);
    for (uint64_t bytes = 0; bytes < 8 * much; bytes += 1 << 18) { /* kernels' */
        (void)worker_sources_engines(&scene.sources, US, 1 << 18, 1);
    }
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), B);
    for (uint64_t bytes = 0; bytes < much; bytes += small) {
        ASSERT_EQ(worker_sources_engines(&scene.sources, US, small, 1), US);
    }
    ASSERT_TRUE(scene.shared.tables[US]->reads_until_ns > pl_now_ns());
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
    scene.shared.tables[US]->reads_until_ns = pl_now_ns() - 1; /* a second later */
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), B);
    scene.shared.tables[C]->reads_until_ns = UINT64_MAX; /* another one does */
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
    scene_end(&scene);
}

TEST(who_cannot_open_one_says_so)
{
    char folder[] = "/tmp/modes-XXXXXX";
    struct scene scene;

    ASSERT_NOT_NULL(mkdtemp(folder));
    ASSERT_EQ(setenv("FAKE_CUDA_FOLDER", folder, 1), 0);
    ASSERT_EQ(setenv("FAKE_CUDA_MODES", "003", 1), 0); /* C is for one process */
    scene_begin(&scene, DEVICE_CUDA);
    copy_until_open(&scene);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_REFUSES);
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
    scene_end(&scene);
    ASSERT_EQ(rmdir(folder), 0); /* nothing was put there: C was not entered */
}

/* The driver that has no GPU has little memory for it. */
TEST(what_costs_much_of_a_device_or_does_not_pay_is_for_who_asks_for_it)
{
    const uint64_t gib                = UINT64_C(1) << 30;
    const struct device_info large    = {.bytes_total = 140 * gib},
                             middling = {.bytes_total = 24 * gib},
                             small    = {.bytes_total = 16 * gib},
                             served   = {.bytes_total = 140 * gib, .mps = true};
    struct scene scene;

    ASSERT_TRUE(worker_sources_by_default(&large, 1));
    ASSERT_TRUE(worker_sources_by_default(&large, 3));
    ASSERT_TRUE(!worker_sources_by_default(&large, 4));
    ASSERT_TRUE(!worker_sources_by_default(&middling, 3));
    ASSERT_TRUE(worker_sources_by_default(&middling, 1));
    ASSERT_TRUE(!worker_sources_by_default(&small, 1));
    ASSERT_TRUE(!worker_sources_by_default(&served, 1));
    scene_begin_told(&scene, DEVICE_CUDA, NULL);
    for (int i = 0; i < 4; i++) { /* the GPU that is none is small */
        ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
    }
    ASSERT_EQ(shown(&scene), STORE_ENGINES_REFUSES); /* at once: nobody waits for it */
    ASSERT_EQ(device_engines_state(scene.device, B), DEVICE_ENGINES_CLOSED);
    scene_end(&scene);
}

/* So many GiB from B, in copies of one. */
static void copy_gib(struct scene *scene, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        ASSERT_EQ(worker_sources_engines(&scene->sources, B, UINT64_C(1) << 30, 1), US);
    }
}

static void open_wait(const struct scene *scene, uint32_t device)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t until_ns         = pl_now_ns() + WAIT_NS;

    while (device_engines_state(scene->device, device) != DEVICE_ENGINES_OPEN) {
        ASSERT_TRUE(pl_now_ns() < until_ns);
        ASSERT_TRUE(device_engines_state(scene->device, device) == DEVICE_ENGINES_OPENING);
        (void)nanosleep(&nap, NULL);
    }
}

/* So much is copied that it pays also while there is work. */
TEST(what_takes_a_while_to_pay_is_opened_late)
{
    const uint64_t gib = UINT64_C(1) << 30;
    struct scene scene;

    ASSERT_EQ(setenv("FAKE_CUDA_LARGE", "1", 1), 0);
    for (uint32_t several = 0; several < 2; several++) {
        uint64_t begins =
            several ? WORKER_SOURCES_SEVERAL_BYTES : WORKER_SOURCES_PAIR_BYTES;
        uint64_t hurries =
            several ? WORKER_SOURCES_SEVERAL_HURRY_BYTES : WORKER_SOURCES_PAIR_HURRY_BYTES;

        scene_begin_told(&scene, several ? DEVICE_CUDA : DEVICE_CPU, NULL);
        copy_gib(&scene, begins / gib - 1);
        ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
        copy_gib(&scene, 1);
        ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENS);
        copy_gib(&scene, (hurries - begins) / gib - 1);
        ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENS);
        ASSERT_EQ(device_engines_state(scene.device, B), DEVICE_ENGINES_CLOSED);
        copy_until_open(&scene);
        ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);
        ASSERT_EQ(device_engines_state(scene.device, C),
                  several ? DEVICE_ENGINES_OPEN : DEVICE_ENGINES_CLOSED);
        scene_end(&scene);
    }
}

/* What waits for other GPUs waits longer meanwhile. */
TEST(what_takes_a_while_is_opened_while_the_host_rests)
{
    const struct timespec moment = {.tv_nsec = WORKER_SOURCES_REST_NS + 10000000};
    struct scene scene;

    ASSERT_EQ(setenv("FAKE_CUDA_LARGE", "1", 1), 0);
    scene_begin_told(&scene, DEVICE_CUDA, NULL);
    for (int i = 0; i < 2; i++) { /* it has not copied much */
        worker_sources_tick(&scene.sources);
        ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
        (void)nanosleep(&moment, NULL);
    }
    copy_gib(&scene, WORKER_SOURCES_SEVERAL_BYTES >> 30);
    put_in(&scene, C, 1);
    for (int i = 0; i < 3; i++) { /* C has something to do */
        worker_sources_tick(&scene.sources);
        (void)nanosleep(&moment, NULL);
    }
    end_of(&scene, C, 1);
    worker_sources_tick(&scene.sources); /* it had until now */
    (void)nanosleep(&moment, NULL);
    put_in(&scene, US, 1);
    end_of(&scene, US, 1);
    worker_sources_tick(&scene.sources); /* and so had we, for a moment */
    ASSERT_EQ(device_engines_state(scene.device, B), DEVICE_ENGINES_CLOSED);
    (void)nanosleep(&moment, NULL);

    worker_sources_tick(&scene.sources); /* one, and then the next */
    open_wait(&scene, B);
    ASSERT_EQ(device_engines_state(scene.device, C), DEVICE_ENGINES_CLOSED);
    put_in(&scene, B, 1);
    worker_sources_tick(&scene.sources);
    ASSERT_EQ(device_engines_state(scene.device, C), DEVICE_ENGINES_CLOSED);
    end_of(&scene, B, 1);
    worker_sources_tick(&scene.sources);
    (void)nanosleep(&moment, NULL);
    worker_sources_tick(&scene.sources);
    open_wait(&scene, C);
    worker_sources_tick(&scene.sources);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);
    scene_end(&scene);
}

TEST(of_a_host_one_worker_opens_at_a_time)
{
    const struct timespec moment = {.tv_nsec = WORKER_SOURCES_REST_NS + 10000000};
    struct scene scene;

    ASSERT_EQ(setenv("FAKE_CUDA_LARGE", "1", 1), 0);
    scene_begin_told(&scene, DEVICE_CUDA, NULL);
    worker_sources_init(&scene.sources, scene.device, &scene.shared);
    scene.shared.host_device         = C; /* our device is that now, behind two others */
    scene.shared.tables[C]->ordinal  = US;
    scene.shared.tables[US]->ordinal = C;
    (void)worker_sources_engines(&scene.sources, B, WORKER_SOURCES_SEVERAL_BYTES, 1);
    ASSERT_EQ(scene.shared.tables[C]->engines, STORE_ENGINES_OPENS);
    scene.shared.tables[B]->engines = STORE_ENGINES_OPENS;
    for (int i = 0; i < 3; i++) {
        worker_sources_tick(&scene.sources);
        ASSERT_EQ(device_engines_state(scene.device, C), DEVICE_ENGINES_CLOSED);
        (void)nanosleep(&moment, NULL);
    }
    scene.shared.tables[B]->engines = STORE_ENGINES_OPENED;
    worker_sources_tick(&scene.sources);
    open_wait(&scene, C);
    scene_end(&scene);
}

/* Else the two would take turns in an engine for hundreds of GiB, also after a death. */
TEST(who_copies_some_follows_those_who_copy_much)
{
    static const enum store_engines alone[]  = {STORE_ENGINES_IDLE, STORE_ENGINES_REFUSES},
                                    follow[] = {STORE_ENGINES_OPENS, STORE_ENGINES_OPENED};
    struct scene scene;

    ASSERT_EQ(setenv("FAKE_CUDA_LARGE", "1", 1), 0);
    for (size_t i = 0; i < PL_COUNT(follow); i++) {
        scene_begin_told(&scene, DEVICE_CPU, NULL);
        scene.shared.tables[B]->engines = alone[i];
        for (int k = 0; k < 4; k++) {
            ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
        }
        ASSERT_EQ(shown(&scene), STORE_ENGINES_IDLE);
        scene.shared.tables[B]->engines = follow[i];
        (void)worker_sources_engines(&scene.sources, B, LARGE, 1);
        ASSERT_TRUE(shown(&scene) != STORE_ENGINES_IDLE);
        scene_end(&scene);
    }
}

TEST(a_device_says_whether_the_multi_process_service_has_it)
{
    struct scene scene;

    for (int served = 0; served < 2; served++) {
        ASSERT_EQ(setenv("FAKE_CUDA_MPS", served ? "1" : "0", 1), 0);
        scene_begin(&scene, DEVICE_CUDA);
        ASSERT_EQ(device_get_info(scene.device)->mps, served);
        scene_end(&scene);
    }
}

TEST(nobody_does_who_must_not)
{
    struct scene scene;

    scene_begin_told(&scene, DEVICE_CUDA, "0");
    ASSERT_EQ(worker_sources_stand(&scene.sources), STORE_ENGINES_REFUSES);
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), US);
        ASSERT_EQ(worker_sources_engines(&scene.sources, US, LARGE, 1), US);
    }
    ASSERT_EQ(shown(&scene), STORE_ENGINES_REFUSES); /* which the others see */
    ASSERT_EQ(scene.shared.tables[US]->reads_until_ns, 0);
    ASSERT_EQ(device_engines_state(scene.device, B), DEVICE_ENGINES_CLOSED);
    scene_end(&scene);
}

/* A CPU device beside GPUs: nothing comes from it by copies. */
TEST(devices_of_another_kind_are_not_asked)
{
    struct scene scene;

    scene_begin(&scene, DEVICE_CPU);
    copy_until_open(&scene);
    ASSERT_EQ(shown(&scene), STORE_ENGINES_OPENED);
    ASSERT_EQ(device_engines_state(scene.device, C), DEVICE_ENGINES_CLOSED);
    scene.shared.tables[C]->engines = STORE_ENGINES_REFUSES;
    ASSERT_EQ(worker_sources_engines(&scene.sources, B, LARGE, 1), B);
    scene_end(&scene);
}

TEST_MAIN()
