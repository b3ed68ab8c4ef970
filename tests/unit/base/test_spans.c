/* Spans that meet another one, against a look at all of them. */
#include "base/spans.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "tests/harness/test.h"

enum { MANY = 300 };

struct model {
    struct pl_spans spans;
    struct pl_span span[MANY];
    bool in[MANY];
    bool seen[MANY];
    uint32_t twice;
};

static bool see(void *user, struct pl_span *span)
{
    struct model *model = user;
    size_t i            = (size_t)(span - model->span);

    model->twice += model->seen[i];
    model->seen[i] = true;
    return false;
}

static void expect_met(struct model *model, uint64_t first, uint64_t last)
{
    memset(model->seen, 0, sizeof(model->seen));
    ASSERT_TRUE(!pl_spans_meet(&model->spans, first, last, see, model));
    ASSERT_EQ(model->twice, 0);
    for (size_t i = 0; i < MANY; i++) {
        ASSERT_EQ(model->seen[i], model->in[i] && model->span[i].first <= last &&
                                      model->span[i].last >= first);
    }
}

/* Short and long ones, near 0 and near the largest that there is. */
static void draw(uint64_t *seed, uint64_t *out_first, uint64_t *out_last)
{
    uint64_t bits  = test_random(seed) % 49;
    uint64_t count = 1 + test_random(seed) % (UINT64_C(1) << bits);
    uint64_t first = test_random(seed) % (UINT64_C(1) << (test_random(seed) % 49));

    *out_first = first;
    *out_last  = first + count - 1;
}

TEST(what_meets_a_span_is_what_a_look_at_all_finds)
{
    uint64_t seed       = test_seed();
    struct model *model = calloc(1, sizeof(*model));
    uint64_t first, last;

    ASSERT_NOT_NULL(model);
    pl_spans_init(&model->spans);
    expect_met(model, 0, 10);
    for (size_t i = 0; i < MANY; i++) {
        pl_list_init(&model->span[i].link);
    }
    for (int step = 0; step < 4000; step++) {
        size_t i = test_random(&seed) % MANY;

        if (model->in[i]) {
            pl_spans_remove(&model->spans, &model->span[i]);
            pl_spans_remove(&model->spans, &model->span[i]); /* fine */
        } else {
            draw(&seed, &first, &last);
            ASSERT_TRUE(pl_spans_add(&model->spans, &model->span[i], first, last));
        }
        model->in[i] = !model->in[i];
        draw(&seed, &first, &last);
        expect_met(model, first, last);
    }
    pl_spans_finish(&model->spans);
    free(model);
}

static bool look(void *user, struct pl_span *span)
{
    (void)user;
    (void)span;
    return false;
}

/* A pile of tiles: of those of a vector a few are looked at, of those of a matrix a row of tiles. */
TEST(few_are_looked_at)
{
    enum { TILES = 64, ALL = TILES * TILES };
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 2, .dim = {TILES * 5, TILES * 3}};
    struct pl_span *span  = calloc(ALL, sizeof(*span));
    struct pl_spans spans;
    uint64_t first, last;

    ASSERT_NOT_NULL(span);
    for (int flat = 0; flat < 2; flat++) {
        pl_spans_init(&spans);
        for (int i = 0; i < ALL; i++) {
            struct pl_box box = {
                .ndim = 2, .start = {i / TILES * 5, i % TILES * 3}, .count = {5, 3}};

            pl_list_init(&span[i].link);
            pl_span_of_box(&shape, &box, &first, &last);
            if (flat) {
                first = (uint64_t)i * 15;
                last  = first + 14;
            }
            spans.looked = 0;
            (void)pl_spans_meet(&spans, first, last, look,
                                NULL); /* what is there before it */
            ASSERT_TRUE(spans.looked <= (flat ? 16 : 4 * TILES));
            ASSERT_TRUE(pl_spans_add(&spans, &span[i], first, last));
        }
        pl_spans_finish(&spans);
    }
    free(span);
}

struct changes {
    struct pl_spans *spans;
    struct pl_span *more;
    uint32_t added;
    uint32_t met;
};

static bool cut(void *user, struct pl_span *span)
{
    struct changes *changes = user;

    pl_spans_remove(changes->spans, span);
    for (int i = 0; i < 2; i++) {
        struct pl_span *piece = &changes->more[changes->added++];

        pl_list_init(&piece->link);
        ASSERT_TRUE(pl_spans_add(changes->spans, piece, 1000000 + changes->added,
                                 1000000 + changes->added));
    }
    return ++changes->met == MANY;
}

TEST(what_is_met_may_go_and_others_come_meanwhile)
{
    struct pl_span *span = calloc(3 * MANY, sizeof(*span));
    struct pl_spans spans;
    struct changes changes = {.spans = &spans, .more = span + MANY};

    ASSERT_NOT_NULL(span);
    pl_spans_init(&spans);
    for (size_t i = 0; i < MANY; i++) {
        pl_list_init(&span[i].link);
        ASSERT_TRUE(pl_spans_add(&spans, &span[i], i, i + 40));
    }
    ASSERT_TRUE(pl_spans_meet(&spans, 0, MANY + 40, cut, &changes));
    ASSERT_EQ(spans.count, 2 * MANY);
    ASSERT_EQ(changes.met, MANY);
    ASSERT_TRUE(!pl_spans_meet(&spans, 0, MANY + 40, cut, &changes));
    pl_spans_finish(&spans);
    free(span);
}

TEST(without_memory_nothing_is_added_and_what_is_there_is_found)
{
    struct model *model = calloc(1, sizeof(*model));

    ASSERT_NOT_NULL(model);
    pl_spans_init(&model->spans);
    pl_list_init(&model->span[0].link);
    pl_fault_arm("alloc", 0);
    ASSERT_TRUE(!pl_spans_add(&model->spans, &model->span[0], 0, 0));
    ASSERT_TRUE(pl_fault_disarm());
    expect_met(model, 0, 0);
    for (size_t i = 0; i < MANY; i++) { /* the larger table never comes */
        pl_list_init(&model->span[i].link);
        if (i > 0) {
            pl_fault_arm("alloc", 0);
        }
        ASSERT_TRUE(pl_spans_add(&model->spans, &model->span[i], i, i));
        if (i > 0) {
            (void)pl_fault_disarm();
        }
        model->in[i] = true;
    }
    ASSERT_EQ(model->spans.bucket_count, 64);
    expect_met(model, 7, 9);
    expect_met(model, 0, MANY);
    pl_spans_finish(&model->spans);
    free(model);
}

TEST_MAIN()
