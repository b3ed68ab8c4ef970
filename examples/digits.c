#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "example.h"

enum {
    LINE_BYTES_MAX  = 1024,
    NOISE_STEPS     = 4 /* of 1/16, either way */,
    PICTURE_COLUMNS = 6
};

static void *must_realloc(void *memory, size_t count, size_t bytes)
{
    void *grown = reallocarray(memory, count, bytes);

    if (grown == NULL) {
        example_die("no memory for %zu x %zu bytes of digits: choose a smaller --scale",
                    count, bytes);
    }
    return grown;
}

/* 64 pixels and a label, separated by commas. Returns 0, or the number of the column that is wrong. */
static int parse_line(const char *line, float *pixels, int32_t *out_label)
{
    for (int column = 1; column <= DIGITS_PIXELS + 1; column++) {
        char *end;
        long value = strtol(line, &end, 10);

        if (end == line || value < 0 || value > (column <= DIGITS_PIXELS ? 16 : 9)) {
            return column;
        }
        if (column <= DIGITS_PIXELS) {
            if (*end != ',') {
                return column;
            }
            pixels[column - 1] = (float)value;
        } else {
            *out_label = (int32_t)value;
            if (*end != '\n' && *end != '\r' && *end != '\0') {
                return column;
            }
        }
        line = end + 1;
    }
    return 0;
}

static void append(struct digits *digits, const float *pixels, int32_t label)
{
    size_t count = (size_t)digits->count + 1;

    if ((digits->count & (digits->count - 1)) == 0) { /* a power of two: full */
        digits->pixels =
            must_realloc(digits->pixels, 2 * count, DIGITS_PIXELS * sizeof(float));
        digits->labels = must_realloc(digits->labels, 2 * count, sizeof(int32_t));
    }
    memcpy(digits->pixels + digits->count * DIGITS_PIXELS, pixels,
           DIGITS_PIXELS * sizeof(float));
    digits->labels[digits->count] = label;
    digits->count++;
}

void digits_read(const char *path, struct digits *out_train, struct digits *out_test)
{
    FILE *file = fopen(path, "re");
    char line[LINE_BYTES_MAX];
    float pixels[DIGITS_PIXELS];
    int32_t label = 0;

    if (file == NULL) {
        example_die("%s: %s (--data says where the digits are)", path, strerror(errno));
    }
    memset(out_train, 0, sizeof(*out_train));
    memset(out_test, 0, sizeof(*out_test));
    for (int64_t row = 0; fgets(line, sizeof(line), file) != NULL; row++) {
        int wrong = parse_line(line, pixels, &label);

        if (wrong != 0) {
            example_die("%s, line %lld: column %d is not what it should be: 64 pixels of 0 "
                        "to 16, then the digit",
                        path, (long long)row + 1, wrong);
        }
        append(row % DIGITS_SPLIT == 0 ? out_test : out_train, pixels, label);
    }
    if (ferror(file) || out_train->count == 0) {
        example_die("%s: %s", path,
                    ferror(file) ? strerror(errno)
                                 : "too few digits in it: at least 2 are needed");
    }
    (void)fclose(file); /* read only: nothing can be lost */
}

static uint64_t splitmix64(uint64_t *io_state)
{
    uint64_t z = (*io_state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void digits_scale(struct digits *digits, int64_t scale)
{
    size_t pixels  = (size_t)digits->count * DIGITS_PIXELS;
    size_t labels  = (size_t)digits->count;
    uint64_t state = 1;

    if (scale <= 1) {
        return;
    }
    digits->pixels = must_realloc(digits->pixels, (size_t)scale * pixels, sizeof(float));
    digits->labels = must_realloc(digits->labels, (size_t)scale * labels, sizeof(int32_t));
    for (int64_t copy = 1; copy < scale; copy++) {
        float *to = digits->pixels + (size_t)copy * pixels;

        for (size_t i = 0; i < pixels; i++) {
            int noise   = (int)(splitmix64(&state) % (2 * NOISE_STEPS + 1)) - NOISE_STEPS;
            float value = digits->pixels[i] + (float)noise / 16.0f;

            to[i] = value < 0.0f ? 0.0f : value > 16.0f ? 16.0f : value;
        }
        memcpy(digits->labels + (size_t)copy * labels, digits->labels,
               labels * sizeof(int32_t));
        example_progress("copies with noise", (uint64_t)copy + 1, (uint64_t)scale);
    }
    digits->count *= scale;
}

void digits_finish(struct digits *digits)
{
    free(digits->pixels);
    free(digits->labels);
    memset(digits, 0, sizeof(*digits));
}

/* -------------------------------------------------------------------------- brute force */

static double squared_distance(const float *a, const float *b)
{
    double sum = 0.0;

    for (int i = 0; i < DIGITS_PIXELS; i++) {
        double difference = (double)a[i] - (double)b[i];

        sum += difference * difference;
    }
    return sum;
}

/* Most frequent of the k nearest, nearest first; of equals the one met first. */
static int32_t most_frequent(const int32_t *labels, int k)
{
    int counts[10] = {0};
    int32_t best   = labels[0];

    for (int i = 0; i < k; i++) {
        counts[labels[i]]++;
    }
    for (int i = 0; i < k; i++) {
        if (counts[labels[i]] > counts[best]) {
            best = labels[i];
        }
    }
    return best;
}

static int32_t nearest_label(const struct digits *train, const float *pixels, int k)
{
    double distance[DIGITS_K_MAX];
    int32_t label[DIGITS_K_MAX] = {0};
    int held                    = 0;

    for (int64_t i = 0; i < train->count; i++) {
        double d = squared_distance(pixels, train->pixels + i * DIGITS_PIXELS);
        int at;

        if (held == k && d >= distance[k - 1]) {
            continue;
        }
        at = held < k ? held++ : k - 1;
        for (; at > 0 && d < distance[at - 1];
             at--) { /* equals stay behind: the lower row comes first */
            distance[at] = distance[at - 1];
            label[at]    = label[at - 1];
        }
        distance[at] = d;
        label[at]    = train->labels[i];
    }
    return most_frequent(label, held);
}

void digits_brute_force(const struct digits *train, const struct digits *test, int k,
                        int32_t *out_labels)
{
    for (int64_t i = 0; i < test->count; i++) {
        out_labels[i] = nearest_label(train, test->pixels + i * DIGITS_PIXELS, k);
        example_progress("brute force", (uint64_t)i + 1, (uint64_t)test->count);
    }
}

/* ------------------------------------------------------------------------------ picture */

static void draw_digit(FILE *file, const float *pixels, int x, int y)
{
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        int gray = 255 - (int)(pixels[i] * 255.0f / 16.0f);

        (void)fprintf(
            file,
            "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"rgb(%d,%d,%d)\"/>\n",
            x + 10 * (i % DIGITS_SIDE), y + 10 * (i / DIGITS_SIDE), gray, gray, gray);
    }
    (void)fprintf(file,
                  "<rect x=\"%d\" y=\"%d\" width=\"80\" height=\"80\" fill=\"none\" "
                  "stroke=\"#888\"/>\n",
                  x, y);
}

void digits_picture(const char *path, const struct digits *test, const int32_t *read)
{
    FILE *file  = fopen(path, "we");
    int misread = 0;
    int drawn   = 0;
    int rows;

    if (file == NULL) {
        example_die("%s: %s", path, strerror(errno));
    }
    for (int64_t i = 0; i < test->count; i++) {
        misread += read[i] != test->labels[i];
    }
    rows = (misread + PICTURE_COLUMNS - 1) / PICTURE_COLUMNS;
    (void)fprintf(
        file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" "
        "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"20\" y=\"28\">%d of %lld digits misread</text>\n",
        20 + 120 * PICTURE_COLUMNS, 50 + 120 * rows, misread, (long long)test->count);
    for (int64_t i = 0; i < test->count; i++) {
        if (read[i] != test->labels[i]) {
            int x = 20 + 120 * (drawn % PICTURE_COLUMNS);
            int y = 45 + 120 * (drawn / PICTURE_COLUMNS);

            draw_digit(file, test->pixels + i * DIGITS_PIXELS, x, y);
            (void)fprintf(file, "<text x=\"%d\" y=\"%d\">read %d, is %d</text>\n", x,
                          y + 97, read[i], test->labels[i]);
            drawn++;
        }
    }
    (void)fputs("</svg>\n", file);
    if (ferror(file) || fclose(file) != 0) {
        example_die("%s: cannot be written: %s", path, strerror(errno));
    }
}
