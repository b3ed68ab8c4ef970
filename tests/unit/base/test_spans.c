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

static bool meet(const struct pl_span_at *a, const struct pl_span_at *b)
{
    bool do_meet = true;

    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        do_meet &= a->first[way] <= b->last[way] && a->last[way] >= b->first[way];
    }
    return do_meet;
}

static void expect_met(struct model *model, struct pl_span_at at)
{
    memset(model->seen, 0, sizeof(model->seen));
    ASSERT_TRUE(!pl_spans_meet(&model->spans, &at, see, model));
    ASSERT_EQ(model->twice, 0);
    for (size_t i = 0; i < MANY; i++) {
        ASSERT_EQ(model->seen[i], model->in[i] && meet(&model->span[i].at, &at));
    }
}

static struct pl_span_at in_a_row(uint64_t first, uint64_t last)
{
    return (struct pl_span_at){.first = {first}, .last = {last}};
}

/* Short and long ones, near 0 and near the largest that there is; bits: of the longest one. */
static struct pl_span_at draw(uint64_t *seed, unsigned bits)
{
    struct pl_span_at at;

    for (int way = 0; way < PL_SPAN_WAYS; way++) {
        uint64_t count =
            1 + test_random(seed) % (UINT64_C(1) << (test_random(seed) % (bits + 1)));

        at.first[way] =
            test_random(seed) % (UINT64_C(1) << (test_random(seed) % (bits + 1)));
        at.last[way] = at.first[way] + count - 1;
    }
    return at;
}

/* Of a few sizes, and of more kinds than there are. */
TEST(what_meets_a_span_is_what_a_look_at_all_finds)
{
    static const unsigned bits[] = {3, 7, 48};
    uint64_t seed                = test_seed();
    struct model *model          = calloc(1, sizeof(*model));

    ASSERT_NOT_NULL(model);
    for (size_t k = 0; k < PL_COUNT(bits); k++) {
        memset(model, 0, sizeof(*model));
        pl_spans_init(&model->spans);
        expect_met(model, in_a_row(0, 10));
        for (size_t i = 0; i < MANY; i++) {
            pl_list_init(&model->span[i].link);
        }
        for (int step = 0; step < 4000; step++) {
            size_t i = test_random(&seed) % MANY;

            if (model->in[i]) {
                pl_spans_remove(&model->spans, &model->span[i]);
                pl_spans_remove(&model->spans, &model->span[i]); /* fine */
            } else {
                struct pl_span_at at = draw(&seed, bits[k]);

                ASSERT_TRUE(pl_spans_add(&model->spans, &model->span[i], &at));
            }
            model->in[i] = !model->in[i];
            expect_met(model, draw(&seed, bits[k]));
        }
        ASSERT_EQ(model->spans.kinds == PL_SPAN_KINDS, bits[k] == 48);
        pl_spans_finish(&model->spans);
    }
    free(model);
}

static bool look(void *user, struct pl_span *span)
{
    (void)user;
    (void)span;
    return false;
}

static uint64_t looked_at(struct pl_spans *spans, const struct pl_shape *shape,
                          const struct pl_box *box)
{
    struct pl_span_at at = pl_span_of_box(shape, box);

    spans->looked = 0;
    (void)pl_spans_meet(spans, &at, look, NULL);
    return spans->looked;
}

/* An array in parts, each added when what it meets has been looked for. */
static void few_looks(struct pl_shape shape, struct pl_box part, uint64_t most)
{
    uint64_t sum = 0, all = 1, counts[PL_DIM_MAX];
    struct pl_span *span;
    struct pl_spans spans;

    for (uint32_t d = 0; d < shape.ndim; d++) {
        counts[d] = (uint64_t)(shape.dim[d] / part.count[d]);
        all *= counts[d];
    }
    span = calloc(all, sizeof(*span));
    ASSERT_NOT_NULL(span);
    pl_spans_init(&spans);
    for (uint64_t i = 0; i < all; i++) {
        struct pl_span_at at;
        uint64_t rest = i, looked;

        for (uint32_t d = shape.ndim; d-- > 0; rest /= counts[d]) {
            part.start[d] = (int64_t)(rest % counts[d]) * part.count[d];
        }
        looked = looked_at(&spans, &shape, &part);
        sum += looked;
        ASSERT_TRUE(looked <= 4 * most + 16); /* what shares a bucket with it as well */
        pl_list_init(&span[i].link);
        at = pl_span_of_box(&shape, &part);
        ASSERT_TRUE(pl_spans_add(&spans, &span[i], &at));
    }
    ASSERT_TRUE(sum <= all * most);
    part = (struct pl_box){.ndim  = shape.ndim,
                           .count = {shape.dim[0], shape.dim[1], shape.dim[2]}};
    ASSERT_TRUE(looked_at(&spans, &shape, &part) < 2 * all);
    pl_spans_finish(&spans);
    free(span);
}

TEST(few_are_looked_at)
{
    /*
     * Tiles of a matrix; where their sides are powers of 2 none goes over its cell. One row of the
     * tiles would be 64.
     */
    few_looks((struct pl_shape){.ndim = 2, .dim = {64 * 5, 64 * 3}},
              (struct pl_box){.ndim = 2, .count = {5, 3}}, 16);
    few_looks((struct pl_shape){.ndim = 2, .dim = {64 * 8, 64 * 16}},
              (struct pl_box){.ndim = 2, .count = {8, 16}}, 2);
    /* Of a batch of one. */
    few_looks((struct pl_shape){.ndim = 3, .dim = {1, 64 * 5, 64 * 3}},
              (struct pl_box){.ndim = 3, .count = {1, 5, 3}}, 16);
    /* Rows, columns, pieces of a vector. */
    few_looks((struct pl_shape){.ndim = 2, .dim = {4096, 7}},
              (struct pl_box){.ndim = 2, .count = {1, 7}}, 2);
    few_looks((struct pl_shape){.ndim = 2, .dim = {7, 4096}},
              (struct pl_box){.ndim = 2, .count = {7, 1}}, 2);
    few_looks((struct pl_shape){.ndim = 1, .dim = {4096 * 15}},
              (struct pl_box){.ndim = 1, .count = {15}}, 4);
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
        struct pl_span_at at = in_a_row(1000000 + changes->added, 1000000 + changes->added);

        pl_list_init(&piece->link);
        ASSERT_TRUE(pl_spans_add(changes->spans, piece, &at));
    }
    return ++changes->met == MANY;
}

TEST(what_is_met_may_go_and_others_come_meanwhile)
{
    struct pl_span *span = calloc(3 * MANY, sizeof(*span));
    struct pl_spans spans;
    struct changes changes = {.spans = &spans, .more = span + MANY};
    struct pl_span_at at;

    ASSERT_NOT_NULL(span);
    pl_spans_init(&spans);
    for (size_t i = 0; i < MANY; i++) {
        at = in_a_row(i, i + 40);
        pl_list_init(&span[i].link);
        ASSERT_TRUE(pl_spans_add(&spans, &span[i], &at));
    }
    at = in_a_row(0, MANY + 40);
    ASSERT_TRUE(pl_spans_meet(&spans, &at, cut, &changes));
    ASSERT_EQ(spans.count, 2 * MANY);
    ASSERT_EQ(changes.met, MANY);
    ASSERT_TRUE(!pl_spans_meet(&spans, &at, cut, &changes));
    pl_spans_finish(&spans);
    free(span);
}

TEST(without_memory_nothing_is_added_and_what_is_there_is_found)
{
    struct model *model  = calloc(1, sizeof(*model));
    struct pl_span_at at = in_a_row(0, 0);

    ASSERT_NOT_NULL(model);
    pl_spans_init(&model->spans);
    pl_list_init(&model->span[0].link);
    pl_fault_arm("alloc", 0);
    ASSERT_TRUE(!pl_spans_add(&model->spans, &model->span[0], &at));
    ASSERT_TRUE(pl_fault_disarm());
    expect_met(model, in_a_row(0, 0));
    for (size_t i = 0; i < MANY; i++) { /* the larger table never comes */
        pl_list_init(&model->span[i].link);
        if (i > 0) {
            pl_fault_arm("alloc", 0);
        }
        at = in_a_row(i, i);
        ASSERT_TRUE(pl_spans_add(&model->spans, &model->span[i], &at));
        if (i > 0) {
            (void)pl_fault_disarm();
        }
        model->in[i] = true;
    }
    ASSERT_EQ(model->spans.bucket_count, 64);
    expect_met(model, in_a_row(7, 9));
    expect_met(model, in_a_row(0, MANY));
    pl_spans_finish(&model->spans);
    free(model);
}

TEST_MAIN()
