/* Copying views out of buffers, against element by element. */
#include <stdlib.h>

#include "client/client_int.h"
#include "tests/harness/test.h"

enum { ROOT_MAX = 4 * 9 * 11 };

/* Root element (i, j, k) of shape [a, b, c] has the value i * 10000 + j * 100 + k. */
static int32_t value_at(const int64_t at[3])
{
    return (int32_t)(at[0] * 10000 + at[1] * 100 + at[2]);
}

static void fill_frame(int32_t *buffer, const struct pl_box *frame)
{
    for (int64_t n = 0; n < pl_box_elements(frame); n++) {
        int64_t rest = n, at[3];

        for (int d = 2; d >= 0; d--) {
            at[d] = frame->start[d] + rest % frame->count[d];
            rest /= frame->count[d];
        }
        buffer[n] = value_at(at);
    }
}

static int64_t draw(uint64_t *seed, int64_t least, int64_t most)
{
    return least + (int64_t)(test_random(seed) % (uint64_t)(most - least + 1));
}

TEST(a_view_is_gathered_from_boxes_that_tile_the_root)
{
    static const int64_t root[3] = {4, 9, 11};
    uint64_t seed                = test_seed();

    for (int run = 0; run < 2000; run++) {
        int32_t out[ROOT_MAX], buffer[ROOT_MAX];
        struct pl_view view = {.ndim = 3};
        int64_t split, elements = 1;
        int axis = (int)draw(&seed, 0, 2);

        for (int d = 0; d < 3; d++) {
            view.start[d] = draw(&seed, 0, root[d] - 1);
            view.step[d]  = draw(&seed, 1, 3);
            view.count[d] =
                draw(&seed, 1, (root[d] - 1 - view.start[d]) / view.step[d] + 1);
            elements *= view.count[d];
        }
        memset(out, 0xff, sizeof(out));
        split = draw(&seed, 1, root[axis] - 1);
        for (int part = 0; part < 2;
             part++) { /* two buffers, each right for its half, holding a little more */
            struct pl_box box = {.ndim = 3}, frame;

            for (int d = 0; d < 3; d++) {
                box.start[d] = d == axis && part == 1 ? split : 0;
                box.count[d] = d == axis ? (part == 0 ? split : root[d] - split) : root[d];
            }
            frame = box;
            if (box.start[axis] > 0 && draw(&seed, 0, 1) == 1) {
                frame.start[axis]--;
                frame.count[axis]++;
            }
            fill_frame(buffer, &frame);
            copy_view_out(out, &view, &box, buffer, &frame, sizeof(out[0]));
        }
        for (int64_t n = 0; n < elements; n++) {
            int64_t rest = n, at[3];

            for (int d = 2; d >= 0; d--) {
                at[d] = view.start[d] + rest % view.count[d] * view.step[d];
                rest /= view.count[d];
            }
            ASSERT_EQ(out[n], value_at(at));
        }
    }
}

TEST(a_scalar_is_copied)
{
    struct pl_view view = {.ndim = 0};
    struct pl_box box   = {.ndim = 0};
    double from = 2.5, to = 0;

    copy_view_out(&to, &view, &box, &from, &box, sizeof(to));
    ASSERT_TRUE(to == 2.5);
}

TEST_MAIN()
