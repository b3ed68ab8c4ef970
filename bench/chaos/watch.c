/*
 * What the devices have enqueued. A device's timeline is memory without a name that its store has
 * open; it is opened once more through /proc, read-only, and its words are looked at as any process
 * of the host does (store/timeline.h). Nothing of the cluster notices.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/chaos/chaos.h"

/* ------------------------------------------------------------------------------ numbers */

uint64_t chaos_json_number(const char *json, const char *in, const char *key)
{
    const char *object = strstr(json, in), *found;
    char want[64];

    (void)snprintf(want, sizeof(want), "\"%s\":", key);
    found = object != NULL ? strstr(object, want) : NULL;
    return found != NULL ? strtoull(found + strlen(want), NULL, 10) : 0;
}

/* The devices that are up, by their number on the host. false: some are not there. */
static bool read_numbers(struct chaos_cluster *cluster)
{
    uint32_t found = 0;
    char *json;

    if (plasmon_status_json(cluster->client, &json) != PLASMON_OK) {
        return false;
    }
    for (const char *at = strstr(json, "{\"index\":"); at != NULL;
         at             = strstr(at + 1, "{\"index\":")) {
        const char *next  = strstr(at + 1, "{\"index\":");
        const char *state = strstr(at, "\"state\":\"up\"");
        uint64_t on_host  = chaos_json_number(at, "", "host_device");

        if (state != NULL && (next == NULL || state < next) && on_host < cluster->devices) {
            cluster->device[on_host].number      = (int)chaos_json_number(at, "", "index");
            cluster->device[on_host].bytes_total = chaos_json_number(at, "", "bytes_total");
            found |= 1u << on_host;
        }
    }
    free(json);
    if (found != (1u << cluster->devices) - 1) {
        return false;
    }
    for (uint32_t i = 0; i < cluster->devices; i++) {
        atomic_store(&cluster->board->number[i], cluster->device[i].number);
    }
    return true;
}

/* ---------------------------------------------------------------------------- timelines */

static void map_timeline(struct chaos_cluster *cluster, const char *path)
{
    struct store_timeline *timeline;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    void *memory;

    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size < (off_t)sizeof(*timeline) ||
        pl_fd_map(fd, sizeof(*timeline), false, &memory) != PLASMON_OK) {
        pl_fd_close(&fd);
        return;
    }
    pl_fd_close(&fd);
    timeline = memory;
    if (timeline->magic != STORE_TIMELINE_MAGIC ||
        timeline->host_device >= cluster->devices ||
        cluster->device[timeline->host_device].timeline != NULL) {
        pl_fd_unmap(memory, sizeof(*timeline)); /* a second descriptor of the same, say */
        return;
    }
    cluster->device[timeline->host_device].timeline = timeline;
}

void chaos_unwatch_devices(struct chaos_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->devices; i++) {
        if (cluster->device[i].timeline != NULL) {
            pl_fd_unmap(cluster->device[i].timeline, sizeof(struct store_timeline));
            cluster->device[i].timeline = NULL;
        }
    }
}

static bool map_timelines(struct chaos_cluster *cluster)
{
    char path[320], target[64];
    struct dirent *entry;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)cluster->store);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        ssize_t length;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)cluster->store,
                       entry->d_name);
        length = readlink(path, target, sizeof(target) - 1);
        if (length > 0) {
            target[length] = '\0';
            if (strncmp(target, "/memfd:plasmon-timeline", 23) == 0) {
                map_timeline(cluster, path);
            }
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    for (uint32_t i = 0; i < cluster->devices; i++) {
        if (cluster->device[i].timeline == NULL) {
            return false;
        }
    }
    return true;
}

bool chaos_watch_devices(struct chaos_cluster *cluster)
{
    if (!read_numbers(cluster)) {
        return false;
    }
    chaos_unwatch_devices(cluster);
    return map_timelines(cluster);
}

pid_t chaos_worker(const struct chaos_cluster *cluster, uint32_t device)
{
    const struct store_timeline *timeline = cluster->device[device].timeline;
    uint64_t started;
    pid_t pid;

    if (timeline == NULL) {
        return 0;
    }
    pid = (pid_t)__atomic_load_n(&timeline->worker_pid, __ATOMIC_ACQUIRE);
    return pid > 0 && pl_pid_started(pid, &started) == PLASMON_OK &&
                   started == timeline->worker_started
               ? pid
               : 0;
}

/* ----------------------------------------------------------------------------- progress */

uint32_t chaos_incarnation(const struct chaos_cluster *cluster, uint32_t device)
{
    return __atomic_load_n(&cluster->device[device].timeline->incarnation,
                           __ATOMIC_ACQUIRE);
}

/*
 * The record is wiped before the number changes, and a worker's own end is noticed after all of its
 * start. So what is read under one number on both sides, and has that in order, is of that one.
 */
bool chaos_goes_on(const struct chaos_cluster *cluster, uint32_t device,
                   uint32_t incarnation, struct store_phases *out, bool *out_next)
{
    const struct store_timeline *timeline = cluster->device[device].timeline;
    uint32_t now                          = 0;

    if (timeline != NULL) {
        now = chaos_incarnation(cluster, device);
    }
    if (now <= incarnation) {
        return false;
    }
    for (int i = 0; i < STORE_PHASES; i++) {
        out->at_ns[i] = store_phase_at(&timeline->phases, (enum store_phase)i);
    }
    *out_next = now == incarnation + 1;
    return out->at_ns[STORE_PHASE_FIRST] > out->at_ns[STORE_PHASE_NOTICED] &&
           chaos_incarnation(cluster, device) == now;
}
