/* Glances of the connection's thread: a change is seen once, the main thread is woken once and in time, and they end. */
#include "base/alloc.h"
#include "tests/harness/test.h"
#include "worker/glance.h"

#define US UINT64_C(1000)

struct scene {
    struct store_timeline *timeline;
    struct worker_glance glance;
};

static struct scene scene_set(void)
{
    struct scene scene = {.timeline = PL_NEW(struct store_timeline)};

    ASSERT_NOT_NULL(scene.timeline);
    worker_glance_init(&scene.glance, scene.timeline, 4);
    return scene;
}

static void word_set(struct scene *scene, uint32_t stream, uint64_t value)
{
    __atomic_store_n(&scene->timeline->stream[stream].value, value, __ATOMIC_RELEASE);
}

TEST(nobody_glances_before_there_is_work)
{
    struct scene scene = scene_set();

    word_set(&scene, 2, 9);
    ASSERT_EQ(worker_glance(&scene.glance, 5 * US), WORKER_GLANCE_OFF);
    pl_free(scene.timeline);
}

TEST(a_word_that_changes_is_seen_once)
{
    struct scene scene = scene_set();

    worker_glance_begin(&scene.glance, 0);
    ASSERT_EQ(worker_glance(&scene.glance, 1 * US), WORKER_GLANCE_NOTHING);
    word_set(&scene, 3, 1);
    ASSERT_EQ(worker_glance(&scene.glance, 2 * US), WORKER_GLANCE_CHANGED);
    ASSERT_EQ(worker_glance(&scene.glance, 3 * US), WORKER_GLANCE_NOTHING);
    pl_free(scene.timeline);
}

TEST(a_word_that_changed_before_the_glances_began_is_not_missed)
{
    struct scene scene = scene_set();

    worker_glance_begin(&scene.glance, 0);
    worker_glance_end(&scene.glance);
    word_set(&scene, 0, 1);
    worker_glance_begin(&scene.glance, 50 * US);
    ASSERT_EQ(worker_glance(&scene.glance, 51 * US), WORKER_GLANCE_CHANGED);
    pl_free(scene.timeline);
}

TEST(work_that_takes_long_is_left_to_the_main_thread)
{
    struct scene scene = scene_set();
    uint32_t woken     = 0;
    uint64_t now_ns = 0, woken_ns = 0;

    worker_glance_begin(&scene.glance, 0);
    for (;;) {
        enum worker_glanced glanced = worker_glance(&scene.glance, now_ns += US);

        if (glanced == WORKER_GLANCE_OFF) {
            break;
        }
        ASSERT_TRUE(glanced != WORKER_GLANCE_CHANGED);
        if (glanced == WORKER_GLANCE_WAKE) {
            woken++;
            woken_ns = now_ns;
        }
        ASSERT_TRUE(now_ns < 10000 * US);
    }
    ASSERT_EQ(woken, 1);
    ASSERT_TRUE(woken_ns < now_ns);
    pl_free(scene.timeline);
}

TEST(more_work_does_not_put_off_that_the_main_thread_is_woken)
{
    struct scene scene = scene_set();
    uint32_t woken     = 0;

    for (uint64_t us = 0; us < 50 && woken == 0; us++) {
        worker_glance_begin(&scene.glance, us * US);
        word_set(&scene, 1, us + 1);
        ASSERT_EQ(worker_glance(&scene.glance, us * US), WORKER_GLANCE_CHANGED);
        woken += worker_glance(&scene.glance, us * US) == WORKER_GLANCE_WAKE;
    }
    ASSERT_EQ(woken, 1);
    pl_free(scene.timeline);
}

TEST_MAIN()
