/* Readiness: which writers a ref waits for, which failures it shows, and how long things live. */
#include <stdlib.h>
#include <time.h>

#include "client/refs.h"
#include "tests/harness/test.h"

static const struct pl_shape vector = {.dtype = PL_F32, .ndim = 1, .dim = {100}};

static struct pl_box box(int64_t start, int64_t count)
{
    return (struct pl_box){.ndim = 1, .start = {start}, .count = {count}};
}

static struct root *new_root(struct refs *refs, struct plasmon_ref **out_ref)
{
    struct root *root = root_create(refs, refs_draw_ref(refs), &vector);

    ASSERT_NOT_NULL(root);
    *out_ref = refs_open(refs, root, NULL);
    ASSERT_NOT_NULL(*out_ref);
    return root;
}

/* A task that writes one box (NULL: the whole); its id. */
static uint64_t submit(struct refs *refs, struct root *root, const struct pl_box *where,
                       enum write_effect effect)
{
    uint64_t id       = refs_draw_task(refs);
    struct task *task = task_create(refs, id, "gemm", "label");

    ASSERT_NOT_NULL(task);
    ASSERT_OK(task_writes(task, root, where, effect));
    task_commit(refs, task);
    return id;
}

static void fail(struct refs *refs, uint64_t id, uint64_t first)
{
    struct failure *failure =
        refs_describe_failure(refs, id, PLASMON_EFUNCTION, "it broke", first);

    refs_resolve(refs, id, failure);
    failure_release(failure);
}

TEST(a_text_that_names_its_task_names_it_once)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    char text[96], wanted[160];
    uint64_t id;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    for (int named = 0; named < 2; named++) {
        struct failure *failure;

        id = submit(&refs, root, NULL, WRITE_OVERWRITES);
        (void)snprintf(text, sizeof(text), "task %llu%s on device 2 failed: it broke",
                       (unsigned long long)id + !named, " 'label'");
        (void)snprintf(
            wanted, sizeof(wanted), "task %llu 'label' (gemm)%s%s", (unsigned long long)id,
            named ? "" : " failed: ", named ? " on device 2 failed: it broke" : text);
        failure = refs_describe_failure(&refs, id, PLASMON_EFUNCTION, text, 0);
        ASSERT_STR(failure->text, wanted);
        refs_resolve(&refs, id, failure);
        failure_release(failure);
    }
    refs_finish(&refs);
}

TEST(a_ref_waits_only_for_writers_of_what_it_shows)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    struct pl_box low = box(0, 50), high = box(50, 50);
    uint64_t a, b;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_OK);
    a = submit(&refs, root, &low, WRITE_OVERWRITES);
    b = submit(&refs, root, &high, WRITE_OVERWRITES);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_INPROGRESS);
    refs_resolve(&refs, a, NULL);
    ASSERT_EQ(root_state(root, &low, NULL), PLASMON_OK);
    ASSERT_EQ(root_state(root, &high, NULL), PLASMON_INPROGRESS);
    refs_resolve(&refs, b, NULL);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_OK);
    refs_finish(&refs);
}

TEST(an_overwritten_version_no_longer_matters)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    struct pl_box middle = box(40, 20), low = box(0, 40);
    uint64_t old, new;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    old  = submit(&refs, root, NULL, WRITE_OVERWRITES);
    new  = submit(&refs, root, &middle, WRITE_OVERWRITES);
    refs_resolve(&refs, new, NULL);
    ASSERT_EQ(root_state(root, &middle, NULL),
              PLASMON_OK); /* though the older task still runs */
    ASSERT_EQ(root_state(root, &low, NULL), PLASMON_INPROGRESS);
    fail(&refs, old, old);
    ASSERT_EQ(root_state(root, &low, NULL), PLASMON_EFUNCTION);
    ASSERT_EQ(root_state(root, &middle, NULL), PLASMON_OK);

    new = submit(&refs, root, NULL, WRITE_OVERWRITES); /* a fresh start */
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_INPROGRESS);
    refs_resolve(&refs, new, NULL);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_OK);
    refs_finish(&refs);
}

TEST(a_strided_write_does_not_hide_what_it_leaves_out)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    uint64_t old, strided;

    refs_init(&refs, 1);
    root    = new_root(&refs, &ref);
    old     = submit(&refs, root, NULL, WRITE_OVERWRITES);
    strided = submit(&refs, root, NULL, WRITE_ADDS);
    refs_resolve(&refs, strided, NULL);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_INPROGRESS);
    refs_resolve(&refs, old, NULL);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_OK);
    refs_finish(&refs);
}

TEST(a_chain_of_inouts_is_one_write)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    uint64_t last   = 0;
    unsigned length = 0;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    for (int i = 0; i < 5000; i++) {
        last = submit(&refs, root, NULL, WRITE_UPDATES);
    }
    for (struct pl_list *at = root->writes.list.next; at != &root->writes.list;
         at                 = at->next) {
        length++;
    }
    ASSERT_EQ(length, 1);
    ASSERT_EQ(root_writer(root, NULL)->id, last);
    refs_resolve_range(&refs, 1, 1ull << 40); /* a claim far beyond what exists */
    ASSERT_EQ(refs.tasks_live, 0);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_OK);
    refs_finish(&refs);
}

TEST(a_failure_names_the_task_and_the_first_that_failed)
{
    struct failure *failure = NULL;
    struct refs refs;
    struct plasmon_ref *ref_a, *ref_b;
    struct root *a, *b;
    char want[64];
    uint64_t first, second;

    refs_init(&refs, 1);
    a      = new_root(&refs, &ref_a);
    b      = new_root(&refs, &ref_b);
    first  = submit(&refs, a, NULL, WRITE_OVERWRITES);
    second = submit(&refs, b, NULL, WRITE_OVERWRITES);
    fail(&refs, first, first);
    fail(&refs, second, first);
    ASSERT_EQ(root_state(b, NULL, &failure), PLASMON_EFUNCTION);
    (void)snprintf(want, sizeof(want), "task %llu 'label' (gemm) failed: it broke",
                   (unsigned long long)second);
    ASSERT_CONTAINS(failure->text, want);
    (void)snprintf(want, sizeof(want), "the first failing task is task %llu 'label' (gemm)",
                   (unsigned long long)first);
    ASSERT_CONTAINS(failure->text, want);
    refs_finish(&refs);
}

TEST(a_failed_inout_fails_the_ref)
{
    struct refs refs;
    struct plasmon_ref *ref;
    struct root *root;
    uint64_t made, updated;

    refs_init(&refs, 1);
    root    = new_root(&refs, &ref);
    made    = submit(&refs, root, NULL, WRITE_OVERWRITES);
    updated = submit(&refs, root, NULL, WRITE_UPDATES);
    refs_resolve(&refs, made, NULL);
    fail(&refs, updated, updated);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_EFUNCTION);
    refs_finish(&refs);
}

TEST(a_snapshot_waits_for_the_writers_of_its_source)
{
    struct refs refs;
    struct plasmon_ref *ref, *copy_ref;
    struct root *root, *copy;
    struct pl_box low = box(0, 50), high = box(50, 50);
    uint64_t writer;

    refs_init(&refs, 1);
    root   = new_root(&refs, &ref);
    copy   = new_root(&refs, &copy_ref);
    writer = submit(&refs, root, &low, WRITE_OVERWRITES);
    ASSERT_OK(root_inherit(copy, root, &high));
    ASSERT_EQ(root_state(copy, NULL, NULL), PLASMON_OK);
    ASSERT_OK(root_inherit(copy, root, &low));
    ASSERT_EQ(root_state(copy, NULL, NULL), PLASMON_INPROGRESS);
    (void)submit(&refs, root, NULL, WRITE_OVERWRITES); /* of no concern to the copy */
    fail(&refs, writer, writer);
    ASSERT_EQ(root_state(copy, NULL, NULL), PLASMON_EFUNCTION);
    ASSERT_EQ(root_state(root, NULL, NULL), PLASMON_INPROGRESS);
    refs_finish(&refs);
}

TEST(a_released_handle_is_found_out)
{
    struct refs refs, other;
    struct plasmon_ref *ref, *again;
    struct ref_slot *slot;
    struct pl_err err = {0};
    uint64_t id       = 0;
    bool at_once;

    refs_init(&refs, 1);
    refs_init(&other, 2);
    (void)new_root(&refs, &ref);
    ASSERT_OK(refs_find(&refs, ref, &slot, &err));
    ASSERT_STATUS(refs_find(&other, ref, &slot, &err), PLASMON_EFOREIGN);
    ASSERT_OK(refs_find(&refs, ref, &slot, &err));
    ASSERT_TRUE(refs_close(&refs, ref, slot, &id, &at_once));
    ASSERT_TRUE(id != 0);
    ASSERT_STATUS(refs_find(&refs, ref, &slot, &err), PLASMON_ERELEASED);
    (void)new_root(&refs, &again); /* takes the same slot */
    ASSERT_STATUS(refs_find(&refs, ref, &slot, &err), PLASMON_ERELEASED);
    ASSERT_OK(refs_find(&refs, again, &slot, &err));
    ASSERT_STATUS(refs_find(&refs, NULL, &slot, &err), PLASMON_EINVAL);
    refs_finish(&refs);
    refs_finish(&other);
}

TEST(a_root_lives_as_long_as_its_last_view)
{
    struct pl_view view = {.ndim = 1, .start = {5}, .count = {10}, .step = {2}};
    struct refs refs;
    struct plasmon_ref *ref, *part;
    struct ref_slot *slot;
    struct pl_err err = {0};
    struct root *root;
    uint64_t id = 0;
    bool at_once;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    part = refs_open(&refs, root, &view);
    ASSERT_OK(refs_find(&refs, ref, &slot, &err));
    ASSERT_TRUE(!refs_close(&refs, ref, slot, &id, &at_once));
    ASSERT_OK(refs_find(&refs, part, &slot, &err));
    ASSERT_EQ(slot_shape(slot).dim[0], 10);
    ASSERT_TRUE(refs_close(&refs, part, slot, &id, &at_once));
    refs_finish(&refs);
}

TEST(ids_of_refs_and_of_tasks_run_in_blocks)
{
    struct refs refs;
    uint64_t task, ref;

    refs_init(&refs, 1);
    task = refs_draw_task(&refs);
    ref  = refs_draw_ref(&refs);
    ASSERT_TRUE(task != 0 && ref != 0);
    for (int i = 1; i < 1000; i++) {
        ASSERT_EQ(refs_draw_task(&refs), task + (uint64_t)i);
        ASSERT_EQ(refs_draw_ref(&refs), ref + (uint64_t)i);
    }
    refs_finish(&refs);
}

TEST(a_waiter_hears_of_a_ref_that_is_released_under_it)
{
    struct waiter waiter = {.need = 1};
    struct watch watch   = {.waiter = &waiter};
    struct refs refs;
    struct plasmon_ref *ref;
    struct ref_slot *slot;
    struct pl_err err = {0};
    struct root *root;
    uint64_t id;
    bool at_once;

    refs_init(&refs, 1);
    ASSERT_OK(pl_cond_init(&waiter.cond));
    root = new_root(&refs, &ref);
    (void)submit(&refs, root, NULL, WRITE_OVERWRITES);
    watch_start(&watch, root, NULL);
    ASSERT_EQ(watch.status, PLASMON_INPROGRESS);
    ASSERT_OK(refs_find(&refs, ref, &slot, &err));
    ASSERT_TRUE(refs_close(&refs, ref, slot, &id, &at_once));
    ASSERT_EQ(watch.status, PLASMON_ERELEASED);
    ASSERT_EQ(waiter.resolved, 1);
    watch_stop(&watch);
    pl_cond_finish(&waiter.cond);
    refs_finish(&refs);
}

/* The rules of refs.h, by the book: every element remembers its last writer. Against random programs. */
TEST(kept_bytes_go_with_the_version_and_with_the_ref)
{
    struct refs refs;
    struct plasmon_ref *ref, *large_ref;
    struct root *root, *large;
    struct pl_shape more = {.dtype = PL_F32, .ndim = 1, .dim = {VALUE_BYTES_MAX}};
    struct pl_box low    = box(0, 10);
    float bytes[100]     = {1, 2, 3};
    struct ref_slot *slot;
    struct pl_err err = {0};
    uint64_t id;
    bool at_once;

    refs_init(&refs, 1);
    root = new_root(&refs, &ref);
    ASSERT_NULL(root->value);
    root_keep_value(&refs, root, bytes);
    ASSERT_NOT_NULL(root->value);
    ASSERT_EQ(memcmp(root->value, bytes, sizeof(bytes)), 0);
    ASSERT_EQ(refs.value_bytes, sizeof(bytes));
    refs_resolve(&refs, submit(&refs, root, &low, WRITE_UPDATES), NULL);
    ASSERT_NULL(root->value); /* a part was written: another version */
    ASSERT_EQ(refs.value_bytes, 0);

    large = root_create(&refs, refs_draw_ref(&refs), &more);
    ASSERT_NOT_NULL(large);
    large_ref = refs_open(&refs, large, NULL);
    ASSERT_NOT_NULL(large_ref);
    root_keep_value(&refs, large, bytes);
    ASSERT_NULL(large->value);

    root_keep_value(&refs, root, bytes);
    ASSERT_OK(refs_find(&refs, ref, &slot, &err));
    ASSERT_TRUE(refs_close(&refs, ref, slot, &id, &at_once));
    ASSERT_EQ(refs.value_bytes, 0);
    refs_finish(&refs);
}

/* Random writes of a matrix of ROWS rows, each of which overwrites a box; they end in any order. */
enum { ROWS = 4, STEPS_MAX = 700, ELEMENTS_MAX = ROWS * 100 };

struct element_model {
    uint64_t writer[ELEMENTS_MAX]; /* who is to write it and has not; 0: nobody */
    uint64_t live[STEPS_MAX];
    unsigned live_count;
    int64_t columns;
};

static struct pl_box random_box(uint64_t *seed, int64_t columns, int64_t longest)
{
    struct pl_box where = {.ndim = 2};

    where.start[0] = (int64_t)(test_random(seed) % ROWS);
    where.start[1] = (int64_t)(test_random(seed) % (uint64_t)columns);
    where.count[0] = 1 + (int64_t)(test_random(seed) % (uint64_t)(ROWS - where.start[0]));
    where.count[1] =
        1 + (int64_t)(test_random(seed) %
                      pl_min_u64((uint64_t)(columns - where.start[1]), (uint64_t)longest));
    return where;
}

static void model_write(struct element_model *model, const struct pl_box *where,
                        uint64_t id)
{
    for (int64_t r = 0; r < where->count[0]; r++) {
        for (int64_t c = 0; c < where->count[1]; c++) {
            model->writer[(where->start[0] + r) * model->columns + where->start[1] + c] =
                id;
        }
    }
    model->live[model->live_count++] = id;
}

static void model_end(struct element_model *model, struct refs *refs, unsigned pick)
{
    for (int64_t i = 0; i < ROWS * model->columns; i++) {
        model->writer[i] = model->writer[i] == model->live[pick] ? 0 : model->writer[i];
    }
    refs_resolve(refs, model->live[pick], NULL);
    model->live[pick] = model->live[--model->live_count];
}

static void model_compare(const struct element_model *model, const struct root *root)
{
    for (int64_t i = 0; i < ROWS * model->columns; i++) {
        struct pl_box one = {
            .ndim = 2, .start = {i / model->columns, i % model->columns}, .count = {1, 1}};

        ASSERT_EQ(root_state(root, &one, NULL),
                  model->writer[i] != 0 ? PLASMON_INPROGRESS : PLASMON_OK);
    }
}

/* One in `ends` steps ends a task. Returns how many were under way at most. */
static uint32_t agree(uint64_t *seed, int64_t columns, int64_t longest, int steps,
                      uint64_t ends)
{
    struct pl_shape shape      = {.dtype = PL_F32, .ndim = 2, .dim = {ROWS, columns}};
    struct element_model model = {.columns = columns};
    struct refs refs;
    struct root *root;
    uint32_t most = 0;

    refs_init(&refs, 1);
    root = root_create(&refs, refs_draw_ref(&refs), &shape);
    ASSERT_NOT_NULL(refs_open(&refs, root, NULL));
    for (int step = 0; step < steps; step++) {
        if (test_random(seed) % ends != 0 || model.live_count == 0) {
            struct pl_box where = random_box(seed, columns, longest);

            model_write(&model, &where, submit(&refs, root, &where, WRITE_OVERWRITES));
        } else {
            model_end(&model, &refs, (unsigned)(test_random(seed) % model.live_count));
        }
        model_compare(&model, root);
        most = root->writes.count > most ? root->writes.count : most;
    }
    while (model.live_count > 0) {
        model_end(&model, &refs, model.live_count - 1);
    }
    model_compare(&model, root);
    ASSERT_EQ(root->writes.count, 0);
    ASSERT_NULL(root->writes.spans);
    refs_finish(&refs);
    return most;
}

TEST(readiness_agrees_with_a_model_that_looks_at_every_element)
{
    uint64_t seed = test_seed();
    uint32_t most = 0;

    for (int run = 0; run < 300; run++) {
        (void)agree(&seed, 6, 6, 60, 3);
    }
    for (int run = 0; run < 10; run++) { /* so many that they are found by their place */
        uint32_t count = agree(&seed, 100, 5, STEPS_MAX, 9);

        most = count > most ? count : most;
    }
    ASSERT_TRUE(most > 100);
}

/*
 * Watches of random parts, random writes of three kinds that end and fail in any order: who is not
 * told yet has to wait.
 */
TEST(who_waits_is_told_as_soon_as_it_is_decided)
{
    enum { N = 24, STEPS = 80, RUNS = 300, WATCHES = 12 };
    static const enum write_effect effects[] = {WRITE_ADDS, WRITE_OVERWRITES,
                                                WRITE_UPDATES};
    uint64_t seed = test_seed(), told = 0;

    for (int run = 0; run < RUNS; run++) {
        struct pl_shape shape = {.dtype = PL_F32, .ndim = 1, .dim = {N}};
        struct watch watch[WATCHES];
        struct waiter waiter = {.need = UINT32_MAX};
        uint64_t live[STEPS];
        unsigned live_count = 0;
        struct root *root;
        struct refs refs;

        memset(watch, 0, sizeof(watch));
        refs_init(&refs, 1);
        root = root_create(&refs, refs_draw_ref(&refs), &shape);
        ASSERT_NOT_NULL(refs_open(&refs, root, NULL));
        for (int step = 0; step < STEPS; step++) {
            int64_t start       = (int64_t)(test_random(&seed) % N);
            int64_t count       = 1 + (int64_t)(test_random(&seed) % (uint64_t)(N - start));
            bool whole          = test_random(&seed) % 12 == 0;
            struct pl_box where = box(start, count);
            struct watch *another = &watch[test_random(&seed) % WATCHES];

            if (another->waiter == NULL) {
                another->waiter = &waiter;
                watch_start(another, root, whole ? NULL : &where);
            } else if (test_random(&seed) % 2 != 0 || live_count == 0) {
                live[live_count++] = submit(&refs, root, whole ? NULL : &where,
                                            effects[test_random(&seed) % 3]);
            } else {
                unsigned pick = (unsigned)(test_random(&seed) % live_count);

                if (test_random(&seed) % 4 == 0) {
                    fail(&refs, live[pick], live[pick]);
                } else {
                    refs_resolve(&refs, live[pick], NULL);
                }
                live[pick] = live[--live_count];
            }
            for (int i = 0; i < WATCHES; i++) {
                if (watch[i].waiter == NULL) {
                    continue;
                }
                if (watch[i].status == PLASMON_INPROGRESS) {
                    ASSERT_EQ(
                        root_state(root, watch[i].whole ? NULL : &watch[i].hull, NULL),
                        PLASMON_INPROGRESS);
                } else {
                    told++;
                    watch_stop(&watch[i]);
                    watch[i] = (struct watch){.waiter = NULL};
                }
            }
        }
        for (int i = 0; i < WATCHES; i++) {
            if (watch[i].waiter != NULL) {
                watch_stop(&watch[i]);
            }
        }
        refs_finish(&refs);
    }
    ASSERT_TRUE(told > RUNS);
}

/* Looking at all writes for all that wait whenever one ends took 3 s for these. */
TEST(many_parts_of_one_array_are_waited_for_at_little_cost)
{
    enum { PARTS = 1500 };
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 1, .dim = {PARTS}};
    struct waiter waiter  = {.need = PARTS};
    struct watch *watch   = calloc(PARTS, sizeof(*watch));
    uint64_t *task        = calloc(PARTS, sizeof(*task));
    struct plasmon_ref *ref;
    struct root *root;
    struct refs refs;
    double began, took;

    ASSERT_TRUE(watch != NULL && task != NULL);
    refs_init(&refs, 1);
    ASSERT_OK(pl_cond_init(&waiter.cond));
    root = root_create(&refs, refs_draw_ref(&refs), &shape);
    ref  = refs_open(&refs, root, NULL);
    ASSERT_NOT_NULL(ref);
    /* of the processor: others may have it, too */
    began = (double)clock() / CLOCKS_PER_SEC;
    for (int i = 0; i < PARTS; i++) {
        struct pl_box where = box(i, 1);

        task[i] = submit(&refs, root, &where, WRITE_OVERWRITES);
    }
    for (int i = 0; i < PARTS; i++) {
        struct pl_box where = box(i, 1);

        watch[i].waiter = &waiter;
        watch_start(&watch[i], root, &where);
    }
    for (int i = 0; i < PARTS; i++) {
        ASSERT_EQ(waiter.resolved, (uint32_t)i);
        refs_resolve(&refs, task[i], NULL);
    }
    took = (double)clock() / CLOCKS_PER_SEC - began;
    ASSERT_EQ(waiter.resolved, PARTS);
    printf("# %.3f s\n", took);
    ASSERT_TRUE(took < 1.5);
    for (int i = 0; i < PARTS; i++) {
        watch_stop(&watch[i]);
    }
    pl_cond_finish(&waiter.cond);
    refs_finish(&refs);
    free(watch);
    free(task);
}

/* A task looked at all that were under way: of these, at two thousand million. */
TEST(each_of_many_writers_of_one_array_looks_at_few_others)
{
    enum { PARTS = 65536 };
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 1, .dim = {2 * PARTS}};
    struct plasmon_ref *ref;
    struct root *root;
    struct refs refs;

    refs_init(&refs, 1);
    root = root_create(&refs, refs_draw_ref(&refs), &shape);
    ref  = refs_open(&refs, root, NULL);
    ASSERT_NOT_NULL(ref);
    for (int round = 0; round < 2; round++) { /* into nothing, then over the same */
        for (int i = 0; i < PARTS; i++) {
            struct pl_box where = box(2 * i, 2);

            (void)submit(&refs, root, &where, WRITE_OVERWRITES);
        }
        ASSERT_EQ(root->writes.count, PARTS);
    }
    ASSERT_NOT_NULL(root->writes.spans);
    ASSERT_TRUE(root->writes.spans->looked < 16 * (uint64_t)PARTS);
    refs_resolve_range(&refs, 1, refs.id_next - 1);
    ASSERT_EQ(root->writes.count, 0);
    refs_finish(&refs);
}

/* Each that failed looked at all that had failed before: of these, at two thousand million. */
TEST(each_of_many_parts_that_fail_looks_at_few_others)
{
    enum { PARTS = 65536 };
    struct pl_shape shape = {.dtype = PL_F32, .ndim = 1, .dim = {2 * PARTS}};
    struct plasmon_ref *ref;
    struct failure *why;
    struct root *root;
    struct refs refs;
    uint64_t last = 0;

    refs_init(&refs, 1);
    root = root_create(&refs, refs_draw_ref(&refs), &shape);
    ref  = refs_open(&refs, root, NULL);
    ASSERT_NOT_NULL(ref);
    for (int round = 0; round < 2; round++) { /* then the same again */
        for (int i = 0; i < PARTS; i++) {
            struct pl_box where = box(2 * i, 2);

            last = submit(&refs, root, &where, WRITE_UPDATES);
            fail(&refs, last, 0);
        }
        ASSERT_EQ(root->failures.count, PARTS);
    }
    for (int i = 0; i < PARTS; i++) { /* the left half of each is well again */
        struct pl_box where = box(2 * i, 1), other = box(2 * i + 1, 1);

        ASSERT_STATUS(root_state(root, &where, &why), PLASMON_EFUNCTION);
        refs_resolve(&refs, submit(&refs, root, &where, WRITE_OVERWRITES), NULL);
        ASSERT_OK(root_state(root, &where, &why));
        ASSERT_STATUS(root_state(root, &other, &why), PLASMON_EFUNCTION);
        ASSERT_EQ(why->task, last - (uint64_t)(PARTS - 1 - i));
    }
    ASSERT_EQ(root->failures.count, PARTS);
    ASSERT_NOT_NULL(root->failures.spans);
    ASSERT_TRUE(root->failures.spans->looked < 32 * (uint64_t)PARTS);
    ASSERT_STATUS(root_state(root, NULL, &why), PLASMON_EFUNCTION);
    refs_resolve(&refs, submit(&refs, root, NULL, WRITE_OVERWRITES), NULL);
    ASSERT_OK(root_state(root, NULL, &why));
    ASSERT_TRUE(root->failures.spans == NULL);
    refs_finish(&refs);
}

TEST_MAIN()
