/*
 * A machine without a GPU that works: no driver, one that is too old, one that fails. Each has a
 * status of its own and says what to do.
 *
 * The driver is a stub (stub_cuda.c) that was loaded before: the loader takes a library by its name
 * only once.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "device/cuda/cuda_int.h"
#include "device/device.h"
#include "tests/harness/test.h"

static void load(const char *stub)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", STUB_DIR, stub);
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    }
}

static void driver(const char *answers)
{
    load("libcuda.so.1");
    ASSERT_EQ(setenv("STUB_CUDA", answers, 1), 0);
}

static void expect_none(plasmon_status_t status, const char *what, const char *remedy)
{
    struct pl_err err = {0};

    ASSERT_EQ(device_count(DEVICE_CUDA, &err), 0);
    ASSERT_STATUS(err.status, status);
    ASSERT_CONTAINS(err.text, what);
    ASSERT_CONTAINS(err.text, remedy);
}

TEST(a_machine_without_a_driver_is_told_the_loaders_words)
{
    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL) {
        test_skip("this machine has one");
    }
    expect_none(PLASMON_ENOLIB, "libcuda.so.1", "install it");
}

TEST(a_driver_before_cuda_12_is_told_its_version)
{
    load("old/libcuda.so.1");
    expect_none(PLASMON_EVERSION, "is for CUDA 11.4", "525 or newer");
}

TEST(a_driver_that_lacks_a_function_is_told_which)
{
    driver("");
    ASSERT_EQ(setenv("STUB_CUDA_WITHOUT", "cuGraphInstantiateWithFlags", 1), 0);
    ASSERT_EQ(setenv("STUB_CUDA_VERSION", "11080", 1), 0);
    expect_none(PLASMON_EVERSION, "CUDA 11.8 and has no cuGraphInstantiateWithFlags",
                "install one");
}

TEST(a_driver_that_sees_no_device_says_who_may_hide_them)
{
    driver("cuInit=100");
    expect_none(PLASMON_ENOENT, "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES");
}

TEST(no_device_in_the_count_is_the_same)
{
    driver("");
    ASSERT_EQ(setenv("STUB_CUDA_DEVICES", "0", 1), 0);
    expect_none(PLASMON_ENOENT, "sees no device", "CUDA_VISIBLE_DEVICES");
}

TEST(a_driver_that_does_not_fit_its_kernel_module_is_a_version)
{
    driver("cuInit=803");
    expect_none(PLASMON_EVERSION, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
                "restart the machine");
}

TEST(device_files_that_may_not_be_opened_are_a_permission)
{
    driver("cuInit=304");
    expect_none(PLASMON_EPERM, "cuInit", "/dev/nvidia");
}

TEST(a_driver_that_runs_out_of_memory_is_that)
{
    driver("cuInit=2");
    expect_none(PLASMON_EDEVMEM, "CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi");
}

TEST(an_error_without_a_name_is_a_device_error)
{
    driver("cuDeviceGetCount=4711");
    expect_none(PLASMON_EDEVICE, "cuDeviceGetCount: unknown error", "nvidia-smi");
}

TEST(a_device_that_lacks_what_is_needed_is_told_what)
{
    struct device_info info;
    struct pl_err err = {0};
    char without[32];

    driver("");
    (void)snprintf(without, sizeof(without), "attribute%d",
                   (int)CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
    ASSERT_EQ(setenv("STUB_CUDA_WITHOUT", without, 1), 0);
    ASSERT_EQ(device_count(DEVICE_CUDA, &err), 1);
    ASSERT_STATUS(device_probe(DEVICE_CUDA, 0, &info, &err), PLASMON_ENOTSUP);
    ASSERT_CONTAINS(err.text, "64-bit waits");
}

TEST(a_context_that_finds_no_memory_is_device_memory_and_says_who_has_it)
{
    const struct device_config config = {0};
    struct device *device;
    struct pl_err err = {0};

    driver("cuDevicePrimaryCtxRetain=2");
    ASSERT_STATUS(device_open(DEVICE_CUDA, 0, &config, &device, &err), PLASMON_EDEVMEM);
    ASSERT_CONTAINS(err.text, "no context on CUDA device 0");
    ASSERT_CONTAINS(err.text, "CUDA_ERROR_OUT_OF_MEMORY");
    ASSERT_CONTAINS(err.text, "nvidia-smi");
}

TEST(a_device_that_nobody_may_use_says_who_can_change_that)
{
    struct device_info info;
    struct pl_err err = {0};

    driver("attribute20=2");
    ASSERT_EQ(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20);
    ASSERT_STATUS(device_probe(DEVICE_CUDA, 0, &info, &err), PLASMON_EPERM);
    ASSERT_CONTAINS(err.text,
                    "CUDA device 0 at 0000:00:00.0 is in compute mode PROHIBITED");
    ASSERT_CONTAINS(err.text, "nvidia-smi -i 0000:00:00.0 -c DEFAULT");
}

TEST(a_device_that_another_process_has_for_itself_says_so)
{
    const struct device_config config = {0};
    struct device *device;
    struct device_info info;
    struct pl_err err = {0};

    test_expect_log();
    driver("attribute20=3 cuDevicePrimaryCtxRetain=46");
    ASSERT_OK(device_probe(DEVICE_CUDA, 0, &info, &err)); /* one process may use it: ours */
    ASSERT_TRUE(device_open(DEVICE_CUDA, 0, &config, &device, &err) != PLASMON_OK);
    ASSERT_CONTAINS(err.text, "no context on CUDA device 0");
    ASSERT_CONTAINS(err.text, "EXCLUSIVE_PROCESS, and another process has it");
}

/* Both versions that are looked for are there, under their names, and have nothing in them. */
TEST(a_cublas_that_lacks_a_function_is_told_which_and_the_device_goes_on_without)
{
    struct device_cuda cuda = {0};
    struct pl_err err       = {0};

    load("old/libcublas.so.13");
    load("old/libcublas.so.12");
    cuda.base.ops = &device_cuda_ops;
    device_cuda_blas_init(&cuda, false);
    ASSERT_TRUE(!device_cublas_pending(&cuda.base));
    ASSERT_NULL(device_cuda_blas_handle(&cuda.base, &err));
    ASSERT_STATUS(err.status, PLASMON_ENOLIB);
    ASSERT_CONTAINS(err.text, "cuBLAS has no cublasCreate");
}

TEST(a_cublas_that_is_left_for_later_is_not_even_looked_for)
{
    struct device_cuda cuda = {0};
    struct pl_err err       = {0};

    cuda.base.ops = &device_cuda_ops;
    device_cuda_blas_init(&cuda, true);
    ASSERT_TRUE(device_cublas_pending(&cuda.base));
    ASSERT_NULL(device_cuda_blas_handle(&cuda.base, &err));
    ASSERT_STATUS(err.status, PLASMON_EAGAIN);
    device_cuda_blas_finish(&cuda);
    ASSERT_TRUE(!device_cublas_pending(&cuda.base));
}

TEST_MAIN()
