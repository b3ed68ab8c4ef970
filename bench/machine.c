/* What this machine is, for the head of a report: a figure without its machine says nothing. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"

#define NVIDIA_DIR "/proc/driver/nvidia/gpus"

/* The value of the first "key : value" line; false when there is none. */
static bool read_field(const char *path, const char *key, char *out, size_t out_bytes)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        char *value = strchr(line, ':');

        if (strncmp(line, key, strlen(key)) != 0 || value == NULL) {
            continue;
        }
        for (value++; isspace((unsigned char)*value); value++) {
        }
        value[strcspn(value, "\n")] = '\0';
        (void)snprintf(out, out_bytes, "%s", value);
        found = true;
    }
    (void)fclose(file);
    return found;
}

/* The name of one of them goes to `name`. */
static uint32_t count_gpus(char *name, size_t name_bytes)
{
    DIR *dir = opendir(NVIDIA_DIR);
    struct dirent *entry;
    uint32_t count = 0;
    char path[384];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        count++;
        (void)snprintf(path, sizeof(path), NVIDIA_DIR "/%s/information", entry->d_name);
        (void)read_field(path, "Model", name,
                         name_bytes); /* a GPU without a name is one too */
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count;
}

/* Is it the number of one of `gpus`? Names ("GPU-...", "MIG-...") are taken to be of some. */
static bool names_a_gpu(const char *entry, size_t length, uint32_t gpus)
{
    char *end            = NULL;
    unsigned long number = strtoul(entry, &end, 10);

    if (length > 4 && (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0)) {
        return true;
    }
    return isdigit((unsigned char)entry[0]) && end == entry + length && number < gpus;
}

uint32_t bench_visible_gpus(uint32_t gpus, const char *visible)
{
    uint32_t count = 0;

    while (visible != NULL && count < gpus) {
        size_t length = strcspn(visible, ",");

        if (!names_a_gpu(visible, length, gpus)) {
            return count;
        }
        count++;
        visible += length + (visible[length] == ',');
    }
    return visible == NULL ? gpus : count;
}

uint32_t bench_machine_gpus(void)
{
    char name[96]   = "GPU";
    uint32_t listed = count_gpus(name, sizeof(name)), nodes = 0;
    char path[32];

    /* In a container /proc may list more than we were given: the device nodes decide. */
    for (unsigned i = 0; i < 64; i++) {
        (void)snprintf(path, sizeof(path), "/dev/nvidia%u", i);
        nodes += access(path, R_OK | W_OK) == 0;
    }
    return bench_visible_gpus(listed > 0 && nodes > listed ? listed : nodes,
                              getenv("CUDA_VISIBLE_DEVICES"));
}

void bench_machine_describe(struct pl_str *out)
{
    char cpu[128] = "unknown CPU", gpu[96] = "GPU";
    uint32_t gpus = bench_machine_gpus();
    long cores    = sysconf(_SC_NPROCESSORS_ONLN);

    (void)read_field("/proc/cpuinfo", "model name", cpu, sizeof(cpu)); /* stays unknown */
    (void)count_gpus(gpu, sizeof(gpu));
    pl_str_append(out, "%s, %ld cores; ", cpu, cores);
    if (gpus > 0) {
        pl_str_append(out, "%u x %s; ", gpus, gpu);
    } else {
        pl_str_append(out, "no GPU; ");
    }
    pl_str_append(out, "plasmon %s (%s)", plasmon_version(), BENCH_COMMIT);
}
