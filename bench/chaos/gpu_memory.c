#include "bench/chaos/gpu_memory.h"

#include <dlfcn.h>
#include <string.h>

/* As nvml.h has them; 0 is success. */
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef int nvml_plain_fn(void);
typedef int nvml_count_fn(unsigned *out);
typedef int nvml_handle_fn(unsigned index, void **out);
typedef int nvml_memory_fn(void *device, struct nvml_memory *out);

static struct {
    bool tried;
    uint32_t count;
    nvml_handle_fn *handle;
    nvml_memory_fn *memory;
} nvml;

/* A pointer to data as one to a function, which ISO C has no cast for. */
static bool find(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);

    memcpy(out_function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void open_once(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml_plain_fn *init;
    nvml_count_fn *count;
    unsigned found = 0;

    nvml.tried = true;
    if (library == NULL) {
        return;
    }
    if (!find(library, "nvmlInit_v2", &init) ||
        !find(library, "nvmlDeviceGetCount_v2", &count) ||
        !find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) ||
        !find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) || init() != 0 ||
        count(&found) != 0) {
        (void)dlclose(library);
        return;
    }
    nvml.count = found;
}

uint32_t gpu_memory_count(void)
{
    if (!nvml.tried) {
        open_once();
    }
    return nvml.count;
}

bool gpu_memory_used(uint32_t index, uint64_t *out_bytes)
{
    struct nvml_memory memory;
    void *device;

    if (index >= gpu_memory_count() || nvml.handle(index, &device) != 0 ||
        nvml.memory(device, &memory) != 0) {
        return false;
    }
    *out_bytes = memory.used;
    return true;
}
