/* See samples.h. Everything about a process is read from /proc. */
#include "bench/chaos/samples.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/bench.h"
#include "bench/daemons.h"

#define POINTS_MIN 6
#define ERRORS     3 /* standard errors */
/* in less time allocators still take what they will keep, and two large objects are a trend */
#define BRIEF_S  60
#define UNJUDGED INFINITY

static const struct {
    const char *name;
    bool bytes;
    double least, part; /* the tolerance: the larger of an amount and a part of the mean */
    double brief;       /* the amount of a line that spans less than BRIEF_S */
} whats[SAMPLE_WHATS] = {
    [SAMPLE_MEMORY]      = {"memory", true, 8 << 20, 0.05, 32 << 20},
    [SAMPLE_FDS]         = {"descriptors", false, 4, 0.05, 12},
    [SAMPLE_THREADS]     = {"threads", false, 6, 0.05, 12},
    [SAMPLE_SEGMENTS]    = {"segments", false, 4, 0.05, 12},
    [SAMPLE_DEVICE_USED] = {"device memory used", true, 32 << 20, 0.2, UNJUDGED},
    /*
     * A mark that never falls: programs that come by chance raise it now and then, by a chunk, and
     * less and less often.
     */
    [SAMPLE_DEVICE_RESERVED] = {"device memory reserved", true, 256 << 20, 0.1, UNJUDGED},
    [SAMPLE_PAIRS]           = {"communicators", false, 1, 0.05, 12},
    [SAMPLE_GPU_USED]        = {"memory by the driver", true, 256 << 20, 0.05, UNJUDGED},
};

const char *sample_name(enum sample_what what)
{
    return whats[what].name;
}

bool sample_is_bytes(enum sample_what what)
{
    return whats[what].bytes;
}

/* ------------------------------------------------------------------------------- series */

void samples_init(struct samples *samples)
{
    samples->series = PL_VEC_INIT(struct sample_series *);
}

void samples_finish(struct samples *samples)
{
    for (size_t i = 0; i < samples->series.count; i++) {
        struct sample_series *series =
            *(struct sample_series **)pl_vec_at(&samples->series, i);

        pl_vec_finish(&series->points);
        pl_free(series);
    }
    pl_vec_finish(&samples->series);
}

static struct sample_series *series_of(struct samples *samples, const char *who,
                                       enum sample_what what)
{
    struct sample_series *series, **at;

    for (size_t i = 0; i < samples->series.count; i++) {
        series = *(struct sample_series **)pl_vec_at(&samples->series, i);
        if (series->what == what && strcmp(series->who, who) == 0) {
            return series;
        }
    }
    series = PL_NEW(struct sample_series);
    at     = pl_vec_push(&samples->series);
    if (series == NULL || at == NULL) {
        bench_die("out of host memory");
    }
    series->what   = what;
    series->points = PL_VEC_INIT(struct sample_point);
    (void)snprintf(series->who, sizeof(series->who), "%s", who);
    *at = series;
    return series;
}

void samples_add(struct samples *samples, const char *who, enum sample_what what,
                 double at_s, double value)
{
    struct sample_point *point = pl_vec_push(&series_of(samples, who, what)->points);

    if (point == NULL) {
        bench_die("out of host memory");
    }
    *point = (struct sample_point){.at_s = at_s, .value = value};
}

/* ---------------------------------------------------------------------------- processes */

/* false: they cannot be read. */
static bool count_fds(pid_t pid, double *out_all, double *out_segments)
{
    char path[320], target[16];
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (dir == NULL) {
        return false;
    }
    *out_all = *out_segments = 0;
    while ((entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        if (entry->d_name[0] == '.') {
            continue;
        }
        ++*out_all;
        memset(target, 0, sizeof(target));
        if (readlink(path, target, sizeof(target) - 1) > 0) {
            *out_segments += strncmp(target, "/memfd:", 7) == 0;
        }
    }
    (void)closedir(dir);
    return true;
}

void samples_add_process(struct samples *samples, const char *who, pid_t pid, double at_s)
{
    double memory  = bench_status_number(pid, "RssAnon"),
           threads = bench_status_number(pid, "Threads");
    double fds, segments;

    if (memory < 0 || threads < 0 || !count_fds(pid, &fds, &segments)) {
        return;
    }
    samples_add(samples, who, SAMPLE_MEMORY, at_s, memory * 1024);
    samples_add(samples, who, SAMPLE_THREADS, at_s, threads);
    samples_add(samples, who, SAMPLE_FDS, at_s, fds);
    samples_add(samples, who, SAMPLE_SEGMENTS, at_s, segments);
}

/* -------------------------------------------------------------------------------- lines */

static const struct sample_point *point_at(const struct sample_series *series, size_t index)
{
    return pl_vec_at(&series->points, index);
}

struct sample_line samples_line(const struct sample_series *series)
{
    size_t first = series->points.count / 3, count = series->points.count - first;
    double t = 0, v = 0, tt = 0, tv = 0, rest = 0, slope;
    struct sample_line line = {.flat = true};

    if (count < POINTS_MIN) {
        return line;
    }
    for (size_t i = first; i < series->points.count; i++) {
        t += point_at(series, i)->at_s / (double)count;
        v += point_at(series, i)->value / (double)count;
    }
    for (size_t i = first; i < series->points.count; i++) {
        double dt = point_at(series, i)->at_s - t;

        tt += dt * dt;
        tv += dt * (point_at(series, i)->value - v);
    }
    slope = tt > 0 ? tv / tt : 0;
    for (size_t i = first; i < series->points.count; i++) {
        const struct sample_point *point = point_at(series, i);
        double off                       = point->value - v - slope * (point->at_s - t);

        rest += off * off;
    }
    line.known = true;
    line.mean  = v;
    line.seconds =
        point_at(series, series->points.count - 1)->at_s - point_at(series, first)->at_s;
    line.growth = slope * line.seconds;
    line.error  = tt > 0 ? sqrt(rest / (double)(count - 2) / tt) * line.seconds : 0;
    line.tolerance =
        fmax(line.seconds < BRIEF_S ? whats[series->what].brief : whats[series->what].least,
             whats[series->what].part * v);
    line.flat = line.growth <= line.tolerance || line.growth <= ERRORS * line.error;
    return line;
}
