/* Pictures: what their axes say, and that nothing of it lies outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "tests/harness/test.h"

enum { WIDTH = 1000 }; /* of a picture, or less: its viewBox says */

static const struct bench_plot plot = {.title      = "Objects",
                                       .x_label    = "size of an object",
                                       .y_label    = "moved a second",
                                       .x_is_bytes = true};
static char svg[65536];

static void draw(const struct bench_row *rows, size_t count, const char *unit)
{
    char path[]                = "/tmp/bench-plot-XXXXXX";
    int fd                     = mkstemp(path);
    struct bench_report report = {.title = NULL};
    FILE *file;
    size_t length;

    ASSERT_TRUE(fd >= 0 && close(fd) == 0);
    bench_report_init(&report, "test");
    for (size_t i = 0; i < count; i++) {
        bench_report_add(&report, &rows[i]);
    }
    ASSERT_TRUE(bench_plot_write(&plot, &report, unit, path));
    bench_report_finish(&report);
    file = fopen(path, "re");
    ASSERT_NOT_NULL(file);
    length      = fread(svg, 1, sizeof(svg) - 1, file);
    svg[length] = '\0';
    ASSERT_EQ(fclose(file), 0);
    ASSERT_EQ(unlink(path), 0);
    ASSERT_CONTAINS(svg, "</svg>");
}

/* From 2 bytes a second to 400 GB/s, as transfers of 4 bytes and of gigabytes have. */
TEST(rates_are_told_in_units_that_people_read)
{
    static const struct bench_row rows[] = {{.name   = "n",
                                             .series = "peer",
                                             .x      = 4,
                                             .value  = 2e-6,
                                             .unit   = "GB/s",
                                             .limit  = 6e-4},
                                            {.name   = "n",
                                             .series = "peer",
                                             .x      = 1e9,
                                             .value  = 390,
                                             .unit   = "GB/s",
                                             .limit  = 396}};

    draw(rows, PL_COUNT(rows), "GB/s");
    for (size_t i = 0; i < 9; i++) {
        static const char *const ticks[] = {">1 KB/s<", ">10 KB/s<", ">100 KB/s<",
                                            ">1 MB/s<", ">10 MB/s<", ">100 MB/s<",
                                            ">1 GB/s<", ">10 GB/s<", ">100 GB/s<"};

        ASSERT_CONTAINS(svg, ticks[i]);
    }
    ASSERT_CONTAINS(svg, ">1 TB/s<");
    ASSERT_NULL(strstr(svg, ">1e"));
    ASSERT_CONTAINS(svg, ">4 B<");
    ASSERT_CONTAINS(svg, "stroke-dasharray"); /* the yardstick */
    ASSERT_CONTAINS(svg, ">moved a second<");
}

/* Other units stay what they are. */
TEST(times_are_told_as_numbers)
{
    static const struct bench_row rows[] = {
        {.name = "n", .series = "peer", .x = 4, .value = 5, .unit = "us"},
        {.name = "n", .series = "peer", .x = 4096, .value = 5000, .unit = "us"}};

    draw(rows, PL_COUNT(rows), "us");
    ASSERT_CONTAINS(svg, ">1000<");
    ASSERT_NULL(strstr(svg, "B/s"));
}

/* Nine pixels a letter are more than these have; the name of the axis stands upright and ends at 34. */
/* What is too long for the legend is drawn narrower, and what is not stays as it is. */
TEST(a_long_name_of_a_series_is_not_cut)
{
    static const struct bench_row rows[] = {{.name   = "n",
                                             .series = "device 0: device memory reserved",
                                             .x      = 4,
                                             .value  = 1,
                                             .unit   = "GB/s"},
                                            {.name   = "n",
                                             .series = "device 0: device memory",
                                             .x      = 4,
                                             .value  = 2,
                                             .unit   = "GB/s"}};
    const char *pressed, *whole;

    draw(rows, PL_COUNT(rows), "GB/s");
    pressed = strstr(svg, "textLength=\"226\"");
    whole   = strstr(svg, ">device 0: device memory<");
    ASSERT_NOT_NULL(pressed);
    ASSERT_NOT_NULL(whole);
    ASSERT_TRUE(pressed < strstr(svg, ">device 0: device memory reserved<"));
    ASSERT_NULL(strstr(pressed + 1, "textLength"));
}

TEST(numbers_of_the_axis_lie_beside_its_name)
{
    static const struct bench_row rows[] = {
        {.name = "n", .series = "a", .x = 4, .value = 2e-4, .unit = "GB/s"},
        {.name = "n", .series = "a", .x = 1ull << 30, .value = 0.2, .unit = "GB/s"}};
    unsigned seen = 0;

    draw(rows, PL_COUNT(rows), "GB/s");
    for (const char *at = svg; (at = strstr(at, "text-anchor=\"end\">")) != NULL; at++) {
        const char *text = strchr(at, '>') + 1;
        const char *x    = at;
        double right;

        while (strncmp(x, "<text x=\"", 9) != 0) {
            x--;
        }
        right = strtod(x + 9, NULL);
        ASSERT_TRUE(right - 9.0 * (double)(strchr(text, '<') - text) > 34);
        ASSERT_TRUE(right < WIDTH);
        seen++;
    }
    ASSERT_TRUE(seen >= 3);
}

TEST_MAIN()
