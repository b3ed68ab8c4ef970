/*
 * Cases of topk_min, topk_merge and vote.
 */
#include "cases_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/test.h"

/* --------------------------------------------------------------------------- neighbours */

struct neighbour {
    double value;
    int64_t index;
};

static int neighbour_compare(const void *a, const void *b)
{
    const struct neighbour *x = a;
    const struct neighbour *y = b;

    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The first k of n, sorted, into row `row` of arguments 0 and 1. */
static void want_neighbours(struct trial *trial, struct neighbour *all, int64_t n,
                            int64_t row)
{
    int64_t k = trial->array[0].arg.dim[1];

    qsort(all, (size_t)n, sizeof(*all), neighbour_compare);
    for (int64_t i = 0; i < k; i++) {
        trial_want(trial, 0, row * k + i, all[i].value, 0);
        trial_want_int(trial, 0, row * k + i, (int64_t)all[i].value);
        trial_want_int(trial, 1, row * k + i, all[i].index);
    }
}

void case_build_topk_min(struct trial *trial)
{
    int64_t rows    = trial_int(trial, 1, 9);
    int64_t columns = trial_int(trial, 1, trial->large ? 3000 : 40);

    trial_out(trial);
    trial_out(trial);
    (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, (int64_t[]){rows, columns}, -300,
                      300);
    trial_i64(trial,
              trial_int(trial, 0, 1) ? trial_int(trial, 1, 8) : trial_int(trial, 1, 50));
    trial_i64(trial, trial_int(trial, 0, 1000));
    trial_prepare(trial);
}

void case_expect_topk_min(struct trial *trial)
{
    int64_t n             = trial->array[2].arg.dim[1];
    struct neighbour *all = calloc((size_t)n, sizeof(*all));

    ASSERT_NOT_NULL(all);
    for (int64_t row = 0; row < trial->array[2].arg.dim[0]; row++) {
        for (int64_t i = 0; i < n; i++) {
            all[i] = (struct neighbour){trial_get(trial, 2, row * n + i),
                                        trial->scalar[1].i + i};
        }
        want_neighbours(trial, all, n, row);
    }
    free(all);
}

void case_build_topk_merge(struct trial *trial)
{
    int64_t rows = trial_int(trial, 1, 9);
    int64_t size[2];

    size[0] = trial_int(trial, 1, 20);
    size[1] = trial_int(trial, 1, 20);
    trial_out(trial);
    trial_out(trial);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t values = trial->count;
        int64_t dim[2]  = {rows, size[i]};

        (void)trial_array(trial, KERNEL_IN, trial->dtype, 2, dim, 0, 1);
        (void)trial_array(trial, KERNEL_IN, PL_I64, 2, dim, 0, 0);
        for (int64_t j = 0; j < rows * size[i]; j++) { /* ascending, some equal */
            int64_t column = j % size[i];
            double before  = column == 0 ? 0 : trial_get(trial, values, j - 1);

            trial_set(trial, values, j, before + (double)trial_int(trial, 0, 2));
            trial_set(trial, values + 1, j, (double)(i * 1000 + column));
        }
    }
    trial_i64(trial, trial_int(trial, 1, 45));
    trial_prepare(trial);
}

void case_expect_topk_merge(struct trial *trial)
{
    struct neighbour all[40];

    for (int64_t row = 0; row < trial->array[2].arg.dim[0]; row++) {
        int64_t n = 0;

        for (uint32_t index = 2; index < 6; index += 2) {
            int64_t size = trial->array[index].arg.dim[1];

            for (int64_t i = 0; i < size; i++) {
                all[n++] =
                    (struct neighbour){trial_get(trial, index, row * size + i),
                                       trial_get_int(trial, index + 1, row * size + i)};
            }
        }
        want_neighbours(trial, all, n, row);
    }
}

void case_build_vote(struct trial *trial)
{
    int64_t rows   = trial_int(trial, 1, trial->large ? 1000 : 20);
    int64_t k      = trial_int(trial, 1, 7);
    int64_t labels = trial_int(trial, 1, 50);

    trial_out(trial);
    /* Some indices are outside on both sides. */
    (void)trial_array(trial, KERNEL_IN, PL_I64, 2, (int64_t[]){rows, k}, -1,
                      (double)labels);
    (void)trial_array(trial, KERNEL_IN, PL_I32, 1, &labels, 0, 4);
    trial_prepare(trial);
}

void case_expect_vote(struct trial *trial)
{
    int64_t k = trial->array[1].arg.dim[1];
    int64_t n = trial->array[2].arg.dim[0];

    for (int64_t row = 0; row < trial->array[1].arg.dim[0]; row++) {
        int64_t votes[5] = {0};
        int64_t met[5]   = {0};
        int64_t best     = -1;

        for (int64_t i = k; i-- > 0;) {
            int64_t index = trial_get_int(trial, 1, row * k + i);

            if (index >= 0 && index < n) {
                votes[trial_get_int(trial, 2, index)]++;
                met[trial_get_int(trial, 2, index)] = i;
            }
        }
        for (int64_t label = 0; label < 5; label++) {
            if (votes[label] > 0 &&
                (best < 0 || votes[label] > votes[best] ||
                 (votes[label] == votes[best] && met[label] < met[best]))) {
                best = label;
            }
        }
        trial_want_int(trial, 0, row, best);
    }
}
