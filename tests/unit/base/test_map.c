/* The map against a naive model: an array indexed by key. Few keys, so that chains form and wrap round. */
#include "tests/harness/test.h"

#include "base/fault.h"
#include "base/map.h"

#include <string.h>

#define KEYS  300
#define STEPS 200000

static char values[KEYS * 4]; /* addresses to store */

static void check_against_model(const struct pl_map *map, void *const model[KEYS])
{
    int seen[KEYS] = {0};
    size_t count   = 0;
    uint64_t key;
    void *value;

    for (size_t k = 1; k < KEYS; k++) {
        ASSERT_TRUE(pl_map_get(map, k) == model[k]);
        count += model[k] != NULL;
    }
    ASSERT_EQ(map->count, count);

    for (size_t i = 0; pl_map_next(map, &i, &key, &value);) {
        ASSERT_TRUE(key < KEYS);
        ASSERT_TRUE(value == model[key]);
        ASSERT_EQ(seen[key], 0);
        seen[key] = 1;
        count--;
    }
    ASSERT_EQ(count, 0);
}

TEST(nothing_is_ever_found_under_0)
{
    struct pl_map map;
    int value = 1;

    pl_map_init(&map);
    ASSERT_NULL(pl_map_get(&map, 0));
    ASSERT_OK(pl_map_set(&map, 1, &value));
    ASSERT_NULL(pl_map_get(&map, 0));
    ASSERT_NULL(pl_map_remove(&map, 0));
    ASSERT_EQ(map.count, 1);
    pl_map_finish(&map);
}

TEST(random_sets_and_removes_agree_with_a_model)
{
    void *model[KEYS] = {0};
    uint64_t rng      = test_seed();
    struct pl_map map;

    pl_map_init(&map);
    for (int step = 0; step < STEPS; step++) {
        uint64_t key = 1 + test_random(&rng) % (KEYS - 1);
        /* tides: the map fills, then drains */
        unsigned setting = step / 2000 % 2 == 0 ? 7 : 2;

        if (test_random(&rng) % 10 < setting) {
            void *value = &values[test_random(&rng) % sizeof(values)];

            ASSERT_OK(pl_map_set(&map, key, value));
            model[key] = value;
        } else {
            ASSERT_TRUE(pl_map_remove(&map, key) == model[key]);
            model[key] = NULL;
        }
        if (step % 500 == 0) {
            check_against_model(&map, model);
        }
    }
    check_against_model(&map, model);
    pl_map_finish(&map);
}

TEST(large_sparse_keys_are_kept_apart)
{
    enum { COUNT = 20000 };
    struct pl_map map;

    pl_map_init(&map);
    for (uint64_t i = 1; i <= COUNT; i++) {
        ASSERT_OK(pl_map_set(&map, i << 40, &values[i % sizeof(values)]));
    }
    ASSERT_EQ(map.count, COUNT);
    for (uint64_t i = 1; i <= COUNT; i++) {
        ASSERT_TRUE(pl_map_get(&map, i << 40) == &values[i % sizeof(values)]);
        ASSERT_NULL(pl_map_get(&map, (i << 40) + 1));
    }
    ASSERT_TRUE(map.capacity <= 4 * COUNT);
    pl_map_finish(&map);
}

TEST(what_is_taken_out_one_after_the_other_is_each_there_once)
{
    uint64_t rng   = test_seed();
    int seen[KEYS] = {0};
    struct pl_map map;
    uint64_t key;
    size_t at = 0, count;
    void *value;

    pl_map_init(&map);
    ASSERT_TRUE(pl_map_some(&map, &at, &key) == NULL);
    for (size_t i = 0; i < KEYS; i++) {
        rng = rng * 6364136223846793005u + 1;
        key = 1 + (rng >> 33) % (KEYS - 1);
        ASSERT_OK(pl_map_set(&map, key, &values[key]));
    }
    count = map.count;
    while ((value = pl_map_some(&map, &at, &key)) != NULL) {
        ASSERT_TRUE(value == &values[key]);
        ASSERT_EQ(seen[key], 0);
        seen[key] = 1;
        ASSERT_TRUE(pl_map_remove(&map, key) == value);
        count--;
    }
    ASSERT_EQ(count, 0);
    ASSERT_EQ(map.count, 0);
    pl_map_finish(&map);
}

TEST(an_empty_map_finds_nothing)
{
    size_t index = 0;
    uint64_t key;
    struct pl_map map;
    void *value;

    pl_map_init(&map);
    ASSERT_NULL(pl_map_get(&map, 1));
    ASSERT_NULL(pl_map_remove(&map, 1));
    ASSERT_TRUE(!pl_map_next(&map, &index, &key, &value));
    pl_map_finish(&map);
}

TEST(setting_again_replaces)
{
    struct pl_map map;

    pl_map_init(&map);
    ASSERT_OK(pl_map_set(&map, UINT64_MAX, &values[0]));
    ASSERT_OK(pl_map_set(&map, UINT64_MAX, &values[1]));
    ASSERT_EQ(map.count, 1);
    ASSERT_TRUE(pl_map_remove(&map, UINT64_MAX) == &values[1]);
    ASSERT_NULL(pl_map_get(&map, UINT64_MAX));
    pl_map_finish(&map);
}

TEST(a_failed_growth_leaves_the_map_as_it_was)
{
    struct pl_map map;
    uint64_t key = 0;

    pl_map_init(&map);
    for (;;) {
        plasmon_status_t status;

        pl_fault_arm("alloc", 0);
        status = pl_map_set(&map, ++key, &values[0]);
        if (pl_fault_disarm()) {
            ASSERT_STATUS(status, PLASMON_ENOMEM);
            ASSERT_EQ(map.count, key - 1);
            ASSERT_NULL(pl_map_get(&map, key));
            ASSERT_OK(pl_map_set(&map, key, &values[0]));
        } else {
            ASSERT_OK(status);
        }
        if (key == 100) {
            break;
        }
    }
    for (uint64_t k = 1; k <= key; k++) {
        ASSERT_NOT_NULL(pl_map_get(&map, k));
    }
    pl_map_finish(&map);
}

/* How often each key below 1000 was seen. */
static uint8_t seen[1000];

static void see(void *user, uint64_t key, void *value)
{
    (void)user;
    (void)value;
    ASSERT_TRUE(key < PL_COUNT(seen));
    seen[key]++;
}

TEST(a_scan_sees_what_stays_once_while_the_map_grows_and_shrinks)
{
    struct pl_map map;

    for (uint64_t grow_at = 0; grow_at < 40; grow_at++) {
        uint64_t cursor = 0, steps = 0;

        memset(seen, 0, sizeof(seen));
        pl_map_init(&map);
        ASSERT_TRUE(!pl_map_scan(&map, &cursor, see, NULL));
        for (uint64_t key = 1; key < 30; key++) {
            ASSERT_OK(pl_map_set(&map, key, &values[0]));
        }
        do {
            if (steps++ == grow_at) {
                for (uint64_t key = 100; key < 300; key++) {
                    ASSERT_OK(pl_map_set(&map, key, &values[0]));
                }
                for (uint64_t key = 20; key < 30; key++) {
                    ASSERT_NOT_NULL(pl_map_remove(&map, key));
                }
            }
        } while (pl_map_scan(&map, &cursor, see, NULL));
        for (uint64_t key = 1; key < 20; key++) {
            ASSERT_EQ(seen[key], 1);
        }
        for (uint64_t key = 20; key < 300; key++) {
            ASSERT_TRUE(seen[key] <= 1);
        }
        pl_map_finish(&map);
    }
}

TEST_MAIN()
