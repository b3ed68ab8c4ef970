/*
 * Copies of boxes against the obvious loop. Shapes are random in 1 to 5 dimensions, and some are
 * picked so that each of a GPU's ways (little, one run, 2D, 3D, a few calls, the kernel in each
 * width) is taken. Every byte of the target is compared, those that must not change too.
 */
#include "tests/unit/device/contract.h"

#include <stdlib.h>

#define BUFFER_BYTES (1u << 20)
#define SRC_OFFSET   0u
#define DST_OFFSET   (2u << 20)
#define TRIALS       400u

struct trial {
    struct pl_box box;
    struct pl_box dst_frame;
    struct pl_box src_frame;
    uint32_t element_bytes;
};

struct buffers {
    struct contract c;
    uint8_t *src;
    uint8_t *want; /* the target as it should become */
    uint8_t *got;
};

static size_t frame_bytes(const struct pl_box *frame, uint32_t element_bytes)
{
    return (size_t)pl_box_elements(frame) * element_bytes;
}

/* Element by element, with no help from base/box.c: offsets are computed here. */
static void copy_slowly(const struct trial *t, uint8_t *dst, const uint8_t *src)
{
    int64_t elements = pl_box_elements(&t->box);

    for (int64_t e = 0; e < elements; e++) {
        int64_t rest       = e;
        int64_t dst_at     = 0;
        int64_t src_at     = 0;
        int64_t dst_stride = 1;
        int64_t src_stride = 1;

        for (uint32_t d = t->box.ndim; d-- > 0;) {
            int64_t i = t->box.start[d] + rest % t->box.count[d];

            rest /= t->box.count[d];
            dst_at += (i - t->dst_frame.start[d]) * dst_stride;
            src_at += (i - t->src_frame.start[d]) * src_stride;
            dst_stride *= t->dst_frame.count[d];
            src_stride *= t->src_frame.count[d];
        }
        memcpy(dst + dst_at * t->element_bytes, src + src_at * t->element_bytes,
               t->element_bytes);
    }
}

static void buffers_open(struct buffers *b)
{
    contract_open(&b->c);
    b->src  = malloc(BUFFER_BYTES);
    b->want = malloc(BUFFER_BYTES);
    b->got  = malloc(BUFFER_BYTES);
    ASSERT_TRUE(b->src != NULL && b->want != NULL && b->got != NULL);
}

static void buffers_close(struct buffers *b)
{
    contract_close(&b->c);
    free(b->src);
    free(b->want);
    free(b->got);
}

static void trial_run(struct buffers *b, const struct trial *t, uint64_t *io_seed)
{
    size_t src_bytes      = frame_bytes(&t->src_frame, t->element_bytes);
    size_t dst_bytes      = frame_bytes(&t->dst_frame, t->element_bytes);
    struct device_ptr src = device_ptr_add(b->c.memory, SRC_OFFSET);
    struct device_ptr dst = device_ptr_add(b->c.memory, DST_OFFSET);

    ASSERT_TRUE(src_bytes <= BUFFER_BYTES && dst_bytes <= BUFFER_BYTES);
    contract_fill_random(b->src, src_bytes, io_seed);
    contract_fill_random(b->want, dst_bytes, io_seed);
    contract_upload(&b->c, src, b->src, src_bytes);
    contract_upload(&b->c, dst, b->want, dst_bytes);

    ASSERT_OK(device_copy_box(b->c.stream, &t->box, t->element_bytes, dst, &t->dst_frame,
                              src, &t->src_frame));
    copy_slowly(t, b->want, b->src);
    contract_download(&b->c, b->got, dst, dst_bytes);
    ASSERT_EQ(memcmp(b->got, b->want, dst_bytes), 0);
}

static int64_t random_up_to(uint64_t *io_seed, int64_t max)
{
    return (int64_t)(test_random(io_seed) % (uint64_t)(max + 1));
}

/*
 * A frame that holds the box, with 0 to `slack` elements around it on each side; often none, so
 * that rows merge.
 */
static void frame_around(const struct pl_box *box, uint32_t d, int64_t slack,
                         struct pl_box *frame, uint64_t *io_seed)
{
    int64_t before = test_random(io_seed) % 2 == 0 ? 0 : random_up_to(io_seed, slack);
    int64_t after  = test_random(io_seed) % 2 == 0 ? 0 : random_up_to(io_seed, slack);

    frame->start[d] = box->start[d] - before;
    frame->count[d] = box->count[d] + before + after;
}

static struct trial trial_random(uint64_t *io_seed)
{
    static const int64_t count_max[] = {
        0, 60000, 200, 32, 7, 4}; /* by dimensions; frames fit, and not all are little */
    struct trial t = {.element_bytes = 1u << test_random(io_seed) % 5};
    uint32_t ndim  = 1 + (uint32_t)(test_random(io_seed) % 5);

    t.box.ndim       = ndim;
    t.dst_frame.ndim = ndim;
    t.src_frame.ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        t.box.start[d] = 100 + random_up_to(io_seed, 50);
        t.box.count[d] = 1 + random_up_to(io_seed, count_max[ndim] - 1);
        frame_around(&t.box, d, 4, &t.dst_frame, io_seed);
        frame_around(&t.box, d, 4, &t.src_frame, io_seed);
    }
    return t;
}

TEST(copies_of_random_boxes_equal_the_obvious_loop)
{
    uint64_t seed = test_seed();
    struct buffers b;

    test_set_timeout(120);
    buffers_open(&b);
    for (unsigned i = 0; i < TRIALS; i++) {
        struct trial t = trial_random(&seed);

        trial_run(&b, &t, &seed);
    }
    buffers_close(&b);
}

/* A box in the middle of a larger frame, copied out into a frame of its own, and back. */
static void cut_and_paste(struct buffers *b, uint32_t ndim, const int64_t *whole,
                          const int64_t *part, uint32_t element_bytes, uint64_t *io_seed)
{
    struct trial t = {.element_bytes = element_bytes};
    struct pl_box frame;

    t.box.ndim = ndim;
    frame      = (struct pl_box){.ndim = ndim};
    for (uint32_t d = 0; d < ndim; d++) {
        frame.count[d] = whole[d];
        t.box.count[d] = part[d];
        t.box.start[d] = (whole[d] - part[d]) / 2;
    }
    t.src_frame = frame;
    t.dst_frame = t.box;
    trial_run(b, &t, io_seed);
    t.src_frame = t.box;
    t.dst_frame = frame;
    trial_run(b, &t, io_seed);
}

TEST(copies_of_boxes_are_right_in_every_way_a_gpu_takes_them)
{
    static const struct {
        const char *way;
        uint32_t ndim;
        int64_t whole[5];
        int64_t part[5];
        uint32_t element_bytes;
    } cases[] = {
        {"little, one run", 2, {64, 64}, {16, 64}, 4},
        {"little, 2D", 2, {100, 200}, {50, 100}, 8},
        {"little, one byte", 1, {100}, {1}, 1},
        {"one run", 2, {512, 512}, {200, 512}, 4},
        {"2D", 2, {200, 400}, {180, 200}, 8},
        {"3D", 3, {20, 60, 100}, {18, 50, 40}, 8},
        {"a few 3D copies", 4, {6, 8, 16, 96}, {5, 7, 13, 80}, 8},
        {"many calls: kernel, 16 bytes", 5, {10, 10, 4, 3, 24}, {9, 9, 3, 2, 16}, 16},
        {"short rows: kernel, 1 byte", 2, {500, 700}, {400, 13}, 1},
        {"short rows: kernel, 2 bytes", 2, {500, 701}, {400, 13}, 2},
        {"short rows: kernel, 4 bytes", 3, {40, 50, 101}, {31, 41, 5}, 4},
        {"short rows: kernel, 8 bytes", 2, {500, 101}, {400, 1}, 8},
        {"short rows: kernel, wider words than elements", 2, {500, 512}, {400, 32}, 2},
    };
    uint64_t seed = test_seed();
    struct buffers b;

    buffers_open(&b);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        printf("# %s\n", cases[i].way);
        cut_and_paste(&b, cases[i].ndim, cases[i].whole, cases[i].part,
                      cases[i].element_bytes, &seed);
    }
    buffers_close(&b);
}
