/*
 * Watching: by words a change is seen without a descriptor; by descriptors words are not looked at;
 * nothing is slept through.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/harness/test.h"
#include "worker/watch.h"

#define FOREVER_NS UINT64_C(10000000000) /* far beyond what any machine here needs */

struct scene {
    struct store_timeline *timeline;
    struct worker_watch watch;
    int fds[WORKER_WATCH_FDS];
};

static struct scene scene_set(bool by_words)
{
    struct scene scene = {.timeline = PL_NEW(struct store_timeline)};

    ASSERT_TRUE(scene.timeline != NULL);
    for (int i = 0; i < WORKER_WATCH_FDS; i++) {
        scene.fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        ASSERT_TRUE(scene.fds[i] >= 0);
    }
    worker_watch_init(&scene.watch, scene.timeline, 4, by_words, scene.fds);
    return scene;
}

static void scene_end(struct scene *scene)
{
    for (int i = 0; i < WORKER_WATCH_FDS; i++) {
        pl_fd_close(&scene->fds[i]);
    }
    pl_free(scene->timeline);
}

static void raise_fd(int fd)
{
    uint64_t one = 1;

    ASSERT_EQ(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

static void *word_grows_later(void *user)
{
    struct store_timeline *timeline = user;
    uint64_t until                  = pl_now_ns() + 2000000;

    while (pl_now_ns() < until) {
        pl_cpu_relax();
    }
    __atomic_store_n(&timeline->stream[3].value, 7, __ATOMIC_RELEASE);
    return NULL;
}

TEST(a_word_that_changes_ends_the_wait_without_a_descriptor)
{
    struct scene scene = scene_set(true);
    pthread_t thread;

    ASSERT_EQ(pthread_create(&thread, NULL, word_grows_later, scene.timeline), 0);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, -1);
    ASSERT_EQ(__atomic_load_n(&scene.timeline->stream[3].value, __ATOMIC_ACQUIRE), 7);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    scene_end(&scene);
}

TEST(a_change_before_the_wait_is_not_slept_through)
{
    struct scene scene = scene_set(true);

    __atomic_store_n(&scene.timeline->stream[0].value, 1, __ATOMIC_RELEASE);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, -1);
    ASSERT_EQ(scene.watch.seen[0], 1);
    scene_end(&scene);
}

/* Of many launches several end in that time: their words are found together. */
TEST(with_many_in_flight_the_first_look_is_after_a_pause)
{
    struct scene scene = scene_set(true);
    uint64_t began     = pl_now_ns();

    __atomic_store_n(&scene.timeline->stream[0].value, 1, __ATOMIC_RELEASE);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_MANY, -1);
    ASSERT_TRUE(pl_now_ns() - began >= 20000);
    ASSERT_EQ(scene.watch.seen[0], 1);
    scene_end(&scene);
}

TEST(a_descriptor_ends_that_pause)
{
    struct scene scene = scene_set(true);

    raise_fd(scene.fds[2]);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_MANY, -1);
    ASSERT_TRUE((scene.watch.fds[2].revents & POLLIN) != 0);
    scene_end(&scene);
}

TEST(a_descriptor_ends_a_busy_wait_and_says_so)
{
    struct scene scene = scene_set(true);

    raise_fd(scene.fds[1]);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, -1);
    ASSERT_TRUE((scene.watch.fds[1].revents & POLLIN) != 0);
    ASSERT_EQ(scene.watch.fds[0].revents, 0);
    scene_end(&scene);
}

TEST(a_wait_with_nothing_in_flight_is_for_descriptors_alone)
{
    struct scene scene = scene_set(true);
    uint64_t began     = pl_now_ns();

    __atomic_store_n(&scene.timeline->stream[0].value, 1, __ATOMIC_RELEASE);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, 5);
    ASSERT_TRUE(pl_now_ns() - began >= 4000000); /* the word did not end it */
    scene_end(&scene);
}

static void *bell_then_word(void *user)
{
    struct scene *scene = user;

    raise_fd(scene->fds[WORKER_WATCH_BELL]);
    return word_grows_later(scene->timeline);
}

static bool word_behind_the_bell_is_seen(void)
{
    struct scene scene = scene_set(true);
    pthread_t thread;
    bool seen;

    __atomic_store_n(&scene.timeline->stream[3].value, 6, __ATOMIC_RELEASE);
    worker_watch_rest(&scene.watch); /* that is no news */
    ASSERT_EQ(pthread_create(&thread, NULL, bell_then_word, &scene), 0);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, 1000 * 1000);
    seen = scene.watch.seen[3] == 7;
    ASSERT_EQ(scene.watch.fds[WORKER_WATCH_BELL].revents, 0);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    scene_end(&scene);
    return seen;
}

TEST(at_rest_the_bell_begins_a_look)
{
    uint32_t tries = 0;

    while (!word_behind_the_bell_is_seen()) { /* the thread was held up between the two */
        ASSERT_TRUE(++tries < 50);
    }
}

/* Whoever rang may have put nothing in after all. */
TEST(after_the_bell_a_word_that_does_not_change_is_not_waited_for_long)
{
    struct scene scene = scene_set(true);
    uint64_t began     = pl_now_ns();

    raise_fd(scene.fds[WORKER_WATCH_BELL]);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, -1);
    ASSERT_TRUE(pl_now_ns() - began >= 2000000);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, 1); /* it rang once */
    scene_end(&scene);
}

TEST(the_bell_hides_no_other_descriptor)
{
    struct scene scene = scene_set(true);

    raise_fd(scene.fds[WORKER_WATCH_BELL]);
    raise_fd(scene.fds[0]);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, -1);
    ASSERT_TRUE((scene.watch.fds[0].revents & POLLIN) != 0);
    scene_end(&scene);
}

TEST(a_time_limit_ends_a_wait_for_a_word_that_never_changes)
{
    struct scene scene = scene_set(true);
    uint64_t began     = pl_now_ns();

    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, 3);
    ASSERT_TRUE(pl_now_ns() - began >= 3000000);
    ASSERT_TRUE(pl_now_ns() - began < FOREVER_NS);
    scene_end(&scene);
}

TEST(a_device_that_notifies_is_not_looked_at)
{
    struct scene scene = scene_set(false);

    __atomic_store_n(&scene.timeline->stream[0].value, 1, __ATOMIC_RELEASE);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, 1);
    ASSERT_EQ(scene.watch.seen[0], 0);
    scene_end(&scene);
}

TEST(pauses_grow_with_the_time_without_a_change)
{
    const struct worker_watch watch = {0};

    ASSERT_EQ(worker_watch_pause_ns(&watch, 0), 0);
    ASSERT_EQ(worker_watch_pause_ns(&watch, 99999), 0);
    ASSERT_EQ(worker_watch_pause_ns(&watch, 100000), 10000);
    ASSERT_EQ(worker_watch_pause_ns(&watch, 1600000), 50000);
    ASSERT_EQ(worker_watch_pause_ns(&watch, UINT64_C(60000000000)), 100000);
}

/* How late a change after so long is seen, when looks take no time; *out_looks: how many there were. */
static uint64_t lateness(const struct worker_watch *watch, uint64_t change_ns,
                         uint32_t *out_looks)
{
    uint64_t at_ns = 100000; /* until then it is looked at without a pause */

    for (*out_looks = 0; at_ns < change_ns; (*out_looks)++) {
        at_ns += worker_watch_pause_ns(watch, at_ns);
    }
    return at_ns - change_ns;
}

TEST(work_that_takes_as_long_as_before_is_seen_sooner)
{
    struct worker_watch watch = {0};
    uint32_t looks, looks_before;

    (void)lateness(&watch, 2800000, &looks_before);
    pl_recent_learn(&watch.waits, 2800000);
    for (uint64_t change_ns = 2760000; change_ns <= 2860000; change_ns += 7000) {
        ASSERT_TRUE(lateness(&watch, change_ns, &looks) <= 11000);
        ASSERT_TRUE(looks <= looks_before + 18);
    }
    /* and what does not, as ever */
    ASSERT_TRUE(lateness(&watch, 60000000, &looks) <= 100000);
    ASSERT_EQ(worker_watch_pause_ns(&watch, 3000000), 93750);
}

TEST(the_last_long_waits_are_kept_and_no_short_ones)
{
    struct worker_watch watch = {0};
    uint32_t looks;

    for (uint64_t i = 0; i < 1000; i++) { /* turns of four lengths, none twice the same */
        pl_recent_learn(&watch.waits, (1 + i % 4) * (2000000 + i));
        pl_recent_learn(&watch.waits, 50000);
    }
    for (uint64_t i = 1; i <= 4; i++) {
        ASSERT_TRUE(lateness(&watch, i * 2001000, &looks) <= 10000 + i * 2001000 / 256);
    }
    for (uint64_t i = 0; i < PL_RECENT_WAITS; i++) {
        pl_recent_learn(&watch.waits, 20000000 + i * 2000000);
    }
    ASSERT_EQ(worker_watch_pause_ns(&watch, 2000000), 62500); /* forgotten */
}

TEST(a_wait_that_was_long_is_kept)
{
    struct scene scene = scene_set(true);
    pthread_t thread;

    ASSERT_EQ(pthread_create(&thread, NULL, word_grows_later, scene.timeline), 0);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_FEW, -1);
    ASSERT_EQ(pthread_join(thread, NULL), 0);
    ASSERT_TRUE(scene.watch.waits.last_ns[0] >= 1000000);
    scene_end(&scene);
}

/*
 * The thread that takes commands may close the store's socket between the look and this, and open
 * something of its own by that number.
 */
TEST(what_has_the_number_of_the_stores_socket_by_now_is_not_read)
{
    struct scene scene = scene_set(false);
    int other[2];

    raise_fd(scene.fds[WORKER_WATCH_CONTROL]);
    raise_fd(scene.fds[WORKER_WATCH_NOTIFY]);
    worker_watch_wait(&scene.watch, WORKER_WATCHED_NOTHING, -1);

    ASSERT_EQ(pipe(other), 0);
    ASSERT_EQ(dup2(other[0], scene.fds[WORKER_WATCH_CONTROL]),
              scene.fds[WORKER_WATCH_CONTROL]);
    raise_fd(other[1]);
    ASSERT_EQ(worker_watch_take(&scene.watch),
              1u << WORKER_WATCH_CONTROL | 1u << WORKER_WATCH_NOTIFY);
    ASSERT_TRUE(pl_fd_lower(other[0]));
    ASSERT_TRUE(!pl_fd_lower(scene.fds[WORKER_WATCH_NOTIFY]));
    pl_fd_close(&other[0]);
    pl_fd_close(&other[1]);
    scene_end(&scene);
}

TEST_MAIN()
