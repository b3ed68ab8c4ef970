/*
 * Views: heat in a plate, cut into bands of rows that may lie on different devices.
 *
 * One array u. Each step is u += rate * (up + down + left + right - 4 u) on the inside. The four
 * neighbours of a band are views of the same u, shifted by one: its halo is whatever the views
 * reach beyond the band, and nobody copies or names it. Reads of a step are submitted before its
 * writes, as in a plain loop; that order is all that the program says about synchronisation.
 *
 * A snapshot keeps the start, however often u is written in place afterwards. Both are compared
 * with a plain loop.
 */
#include <math.h>
#include <plasmon/plasmon.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"

enum { ROWS = 130, COLUMNS = 98, BANDS = 4, STEPS = 20 };
#define RATE 0.2

static struct plasmon_ref *inside(struct plasmon_client *px, struct plasmon_ref *u,
                                  int64_t row, int64_t rows, int64_t down, int64_t right)
{
    struct plasmon_ref *view;

    example_need(px,
                 plasmon_view(px, u, (const int64_t[]){row + down, 1 + right},
                              (const int64_t[]){rows, COLUMNS - 2}, NULL, &view),
                 "view");
    return view;
}

static struct plasmon_ref *add(struct plasmon_client *px, struct plasmon_ref *a,
                               struct plasmon_ref *b)
{
    struct plasmon_ref *sum;

    example_submit(px, "add", EXAMPLE_ARGS(example_out(NULL), example_in(a), example_in(b)),
                   EXAMPLE_NONE, PLASMON_ANYWHERE, &sum);
    example_release(px, a);
    example_release(px, b);
    return sum;
}

/* What the four neighbours add up to, minus 4 u: a new object. */
static struct plasmon_ref *change_of(struct plasmon_client *px, struct plasmon_ref *u,
                                     int64_t row, int64_t rows)
{
    struct plasmon_ref *columns =
        add(px, inside(px, u, row, rows, -1, 0), inside(px, u, row, rows, 1, 0));
    struct plasmon_ref *lines =
        add(px, inside(px, u, row, rows, 0, -1), inside(px, u, row, rows, 0, 1));
    struct plasmon_ref *change = add(px, columns, lines);
    struct plasmon_ref *middle = inside(px, u, row, rows, 0, 0);

    example_submit(px, "axpy", EXAMPLE_ARGS(example_inout(change), example_in(middle)),
                   EXAMPLE_SCALARS({.f = -4.0}), PLASMON_ANYWHERE, NULL);
    example_release(px, middle);
    return change;
}

static void step(struct plasmon_client *px, struct plasmon_ref *u)
{
    struct plasmon_ref *change[BANDS];
    int64_t first[BANDS + 1];

    for (int64_t band = 0; band <= BANDS; band++) {
        first[band] = 1 + band * (ROWS - 2) / BANDS;
    }
    for (int band = 0; band < BANDS; band++) {
        change[band] = change_of(px, u, first[band], first[band + 1] - first[band]);
    }
    for (int band = 0; band < BANDS;
         band++) { /* disjoint, so they may run at the same time */
        struct plasmon_ref *middle =
            inside(px, u, first[band], first[band + 1] - first[band], 0, 0);

        example_submit(px, "axpy",
                       EXAMPLE_ARGS(example_inout(middle), example_in(change[band])),
                       EXAMPLE_SCALARS({.f = RATE}), PLASMON_ANYWHERE, NULL);
        example_release(px, middle);
        example_release(px, change[band]);
    }
}

static void plain_step(double u[ROWS][COLUMNS])
{
    static double change[ROWS][COLUMNS];

    for (int r = 1; r < ROWS - 1; r++) {
        for (int c = 1; c < COLUMNS - 1; c++) {
            change[r][c] =
                (u[r - 1][c] + u[r + 1][c]) + (u[r][c - 1] + u[r][c + 1]) - 4.0 * u[r][c];
        }
    }
    for (int r = 1; r < ROWS - 1; r++) {
        for (int c = 1; c < COLUMNS - 1; c++) {
            u[r][c] += RATE * change[r][c];
        }
    }
}

static double largest_difference(double a[ROWS][COLUMNS], double b[ROWS][COLUMNS])
{
    double largest = 0.0;

    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            largest = fmax(largest, fabs(a[r][c] - b[r][c]));
        }
    }
    return largest;
}

int main(void)
{
    static double start[ROWS][COLUMNS];
    static double want[ROWS][COLUMNS];
    static double got[ROWS][COLUMNS];
    static double kept[ROWS][COLUMNS];
    const struct plasmon_shape shape   = {PLASMON_F64, 2, {ROWS, COLUMNS}};
    struct plasmon_put_options options = PLASMON_PUT_INIT;
    struct plasmon_client *px;
    struct plasmon_ref *u;
    struct plasmon_ref *before;
    double difference;

    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            start[r][c] = r == 0 ? 100.0 : (double)((r * 31 + c * 17) % 23);
        }
    }
    memcpy(want, start, sizeof(want));
    for (int i = 0; i < STEPS; i++) {
        plain_step(want);
    }

    example_need(NULL, plasmon_init(NULL, &px), "start");
    options.donatable = 1; /* the first write may reuse its memory, if nobody holds it */
    example_need(px, plasmon_put(px, start, &shape, &options, &u), "put");
    example_need(px, plasmon_snapshot(px, u, &before), "snapshot");
    for (int i = 0; i < STEPS; i++) {
        step(px, u);
    }
    example_need(px, plasmon_get(px, u, got, sizeof(got), PLASMON_FOREVER), "get");
    example_need(px, plasmon_get(px, before, kept, sizeof(kept), PLASMON_FOREVER),
                 "get the snapshot");
    plasmon_finish(px);

    difference = largest_difference(got, want);
    printf("%d steps on %d bands: differs from a plain loop by %.1e at most\n", STEPS,
           BANDS, difference);
    printf("the snapshot %s\n",
           memcmp(kept, start, sizeof(kept)) == 0 ? "is what was put" : "WAS OVERWRITTEN");
    /* A step's rounding is below 1e-13 for values up to 100 and does not grow: the scheme damps. */
    return difference < STEPS * 1e-12 && memcmp(kept, start, sizeof(kept)) == 0 ? 0 : 1;
}
