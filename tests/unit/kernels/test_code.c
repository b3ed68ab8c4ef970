/*
 * Code of functions that clients define: C text on a CPU device, libraries, and what NVRTC makes
 * without a GPU.
 */
#include "kernels/code.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "kernels/code_cache.h"
#include "kernels/code_int.h"
#include "runner.h"
#include "tests/harness/small_disk.h"
#include "tests/harness/test.h"

static const struct kernel_code_policy open_policy = {.c_text      = true,
                                                      .library_dir = TEST_LIBRARY_DIR};

static struct kernel_code *built(const struct runner *runner,
                                 const struct kernel_definition *definition)
{
    struct kernel_code *code = NULL;
    struct pl_err err        = {0};
    struct pl_str log;

    pl_str_init(&log);
    if (kernel_code_build(definition, device_get_info(runner->device), &open_policy, &code,
                          &log, &err) != PLASMON_OK ||
        kernel_code_load(code, runner->device, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s\n%s", err.text, pl_str_text(&log));
    }
    pl_str_finish(&log);
    return code;
}

static void refused(const struct device_info *info, const struct kernel_code_policy *policy,
                    const struct kernel_definition *definition, plasmon_status_t status,
                    const char *in_err, const char *in_log)
{
    struct kernel_code *code = NULL;
    struct pl_err err        = {0};
    struct pl_str log;

    pl_str_init(&log);
    ASSERT_STATUS(kernel_code_build(definition, info, policy, &code, &log, &err), status);
    ASSERT_NULL(code);
    ASSERT_CONTAINS(err.text, in_err);
    ASSERT_CONTAINS(pl_str_text(&log), in_log);
    pl_str_finish(&log);
}

static struct kernel_arg vector(struct runner *runner, uint32_t mode, uint32_t dtype,
                                int64_t n, uint64_t offset)
{
    return (struct kernel_arg){.mode   = mode,
                               .dtype  = dtype,
                               .ndim   = 1,
                               .dim    = {n},
                               .stride = {1},
                               .data   = device_ptr_add(runner->arena, offset)};
}

static plasmon_status_t run(struct runner *runner, const struct kernel_code *code,
                            const struct kernel_arg *args, uint32_t arg_count,
                            const union kernel_scalar *scalars, uint32_t scalar_count,
                            struct pl_err *err)
{
    struct kernel_launch_shape shape = {.grid = {3, 1, 1}, .block = {64, 1, 1}};
    struct kernel_arg_shape shapes[8];
    plasmon_status_t status;

    memset(shapes, 0, sizeof(shapes));
    for (uint32_t i = 0; i < arg_count; i++) {
        shapes[i].mode  = args[i].mode;
        shapes[i].given = true;
        shapes[i].shape = (struct pl_shape){.dtype = args[i].dtype, .ndim = args[i].ndim};
        memcpy(shapes[i].shape.dim, args[i].dim, sizeof(args[i].dim));
    }
    status = kernel_check(kernel_code_function(code), shapes, arg_count, scalars,
                          scalar_count, err);
    return status == PLASMON_OK ? kernel_code_run(code, runner->stream, args, arg_count,
                                                  scalars, scalar_count, &shape, 7, err)
                                : status;
}

TEST(c_text_runs_with_its_parameters_in_their_order_and_types)
{
    static const char text[] =
        "#include <stdint.h>\n"
        "int mix(const float *x, int8_t a, double *y, long n, float f, unsigned char b,\n"
        "        uint64_t big, _Bool yes)\n"
        "{\n"
        "    for (long i = 0; i < n; i++) {\n"
        "        y[i] = x[i] * f + a + b + (double)big + yes + plasmon_shape->grid[0];\n"
        "    }\n"
        "    return 0;\n"
        "}\n";
    const struct kernel_definition definition = {
        .name = "mix",
        .signature =
            "mix(in f32[n] x, i8 a, out f64[n] y, i64 n := n, f32 f, u8 b, u64 big, "
            "bool yes)",
        .c_text = text};
    union kernel_scalar scalars[] = {
        {.i = -2}, {.f = 0.5}, {.i = 200}, {.i = INT64_C(1) << 40}, {.i = 1}};
    struct kernel_code *code;
    struct kernel_arg args[2];
    struct runner runner;
    struct pl_err err = {0};
    float *x;
    double *y;

    runner_open(&runner, DEVICE_CPU);
    code    = built(&runner, &definition);
    args[0] = vector(&runner, KERNEL_IN, PL_F32, 100, 0);
    args[1] = vector(&runner, KERNEL_OUT, PL_F64, 100, 4096);
    x       = device_ptr_host(runner.device, args[0].data);
    y       = device_ptr_host(runner.device, args[1].data);
    for (int i = 0; i < 100; i++) {
        x[i] = (float)i;
    }
    ASSERT_OK(run(&runner, code, args, 2, scalars, 5, &err));
    ASSERT_OK(device_stream_sync(runner.stream, &err));
    for (int i = 0; i < 100; i++) {
        ASSERT_TRUE(y[i] == i * 0.5 - 2 + 200 + 1099511627776.0 + 1 + 3);
    }
    kernel_code_destroy(code);
    runner_close(&runner);
}

TEST(strided_tensors_get_their_strides_and_others_must_have_no_gaps)
{
    const struct kernel_definition strided = {
        .name      = "sum",
        .signature = "sum(in i32[n]~ x, out i64[] y, i64 n := n)",
        .c_text    = "void sum(const int *x, long step, long *y, long n)\n"
                     "{ *y = 0; for (long i = 0; i < n; i++) *y += x[i * step]; }"};
    const struct kernel_definition dense = {.name      = "first",
                                            .signature = "first(in i32[n] x)",
                                            .c_text =
                                                "void first(const int *x) { (void)x; }"};
    struct kernel_code *codes[2];
    struct kernel_arg args[2];
    struct runner runner;
    struct pl_err err = {0};
    int32_t *x;

    runner_open(&runner, DEVICE_CPU);
    codes[0]          = built(&runner, &strided);
    codes[1]          = built(&runner, &dense); /* two libraries at a time are two */
    args[0]           = vector(&runner, KERNEL_IN, PL_I32, 10, 0);
    args[0].stride[0] = 3;
    args[1]           = vector(&runner, KERNEL_OUT, PL_I64, 1, 4096);
    args[1].ndim      = 0;
    x                 = device_ptr_host(runner.device, args[0].data);
    for (int i = 0; i < 30; i++) {
        x[i] = i % 3 == 0 ? i : -1000;
    }
    ASSERT_OK(run(&runner, codes[0], args, 2, NULL, 0, &err));
    ASSERT_OK(device_stream_sync(runner.stream, &err));
    ASSERT_EQ(*(int64_t *)device_ptr_host(runner.device, args[1].data), 3 * 45);
    ASSERT_STATUS(run(&runner, codes[1], args, 1, NULL, 0, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "first: x has gaps");
    kernel_code_destroy(codes[0]);
    kernel_code_destroy(codes[1]);
    runner_close(&runner);
}

TEST(a_number_that_is_not_0_fails_the_launch)
{
    const struct kernel_definition definition = {
        .name      = "fails",
        .signature = "fails(i64 code)",
        .c_text    = "int fails(long c) { return (int)c; }"};
    union kernel_scalar seven = {.i = 7};
    struct pl_err err         = {0};
    struct pl_err failure     = {0};
    struct kernel_code *code;
    struct runner runner;
    uint64_t tag = 0;

    test_expect_log();
    runner_open(&runner, DEVICE_CPU);
    code = built(&runner, &definition);
    ASSERT_OK(run(&runner, code, NULL, 0, &seven, 1, &err));
    (void)device_stream_sync(runner.stream, &err); /* may or may not tell as well */
    ASSERT_TRUE(device_launch_failure(runner.device, &tag, &failure));
    ASSERT_EQ(tag, 7);
    ASSERT_STATUS(failure.status, PLASMON_EFUNCTION);
    ASSERT_CONTAINS(failure.text, "fails (grid 3x1x1, block 64x1x1");
    ASSERT_CONTAINS(failure.text, "returned 7");
    kernel_code_destroy(code);
    runner_close(&runner);
}

TEST(what_the_compiler_objects_to_is_told_by_line)
{
    const struct device_info cpu         = {.kind = DEVICE_CPU};
    struct kernel_definition definition  = {.name      = "bad",
                                            .signature = "bad(in f32[n] x)",
                                            .c_text =
                                                "void bad(const float *x)\n{\n  oops\n}"};
    const struct kernel_code_policy none = {.c_text = false};

    refused(&cpu, &open_policy, &definition, PLASMON_ECOMPILE, "bad", "bad:3:");
    definition.c_text = "void bad(const float *x, int more) { (void)x; (void)more; }";
    refused(&cpu, &open_policy, &definition, PLASMON_ECOMPILE, "bad",
            "the call of bad by its signature");
    definition.c_text = "void other(const float *x) { (void)x; }";
    refused(&cpu, &open_policy, &definition, PLASMON_ECOMPILE, "bad", "bad");
    refused(&cpu, &none, &definition, PLASMON_EPERM, "--allow-source", "");
    definition.c_text    = "";
    definition.cuda_text = "__global__ void bad(const float *x) {}";
    refused(&cpu, &open_policy, &definition, PLASMON_ENOTSUP, "has no C text", "");
    definition.name = "another";
    refused(&cpu, &open_policy, &definition, PLASMON_EINVAL, "not another", "");
}

/* ---------------------------------------------------------------------------- libraries */

TEST(a_library_of_the_folder_runs)
{
    const struct kernel_definition definition = {.name = "scale",
                                                 .signature =
                                                     "scale(inout f64[n] x, f64 a)",
                                                 .library = TEST_LIBRARY_NAME,
                                                 .symbol  = "scale_entry"};
    union kernel_scalar factor                = {.f = 3.0};
    struct pl_err err                         = {0};
    struct kernel_code *code;
    struct kernel_arg x;
    struct runner runner;
    double *at;

    runner_open(&runner, DEVICE_CPU);
    code = built(&runner, &definition);
    x    = vector(&runner, KERNEL_INOUT, PL_F64, 5, 0);
    at   = device_ptr_host(runner.device, x.data);
    for (int i = 0; i < 5; i++) {
        at[i] = i;
    }
    ASSERT_OK(run(&runner, code, &x, 1, &factor, 1, &err));
    ASSERT_OK(device_stream_sync(runner.stream, &err));
    ASSERT_TRUE(at[4] == 12.0);
    kernel_code_destroy(code);
    runner_close(&runner);
}

TEST(libraries_outside_of_the_folder_are_not_opened)
{
    const struct device_info cpu        = {.kind = DEVICE_CPU};
    struct kernel_definition definition = {.name      = "scale",
                                           .signature = "scale(inout f64[n] x, f64 a)",
                                           .library =
                                               "../../../../../../../../../../../../bin/sh",
                                           .symbol = "scale_entry"};
    struct kernel_code_policy policy    = open_policy;

    refused(&cpu, &policy, &definition, PLASMON_EPERM, "not inside", "");
    definition.library = "/bin/sh";
    refused(&cpu, &policy, &definition, PLASMON_EPERM, "not inside", "");
    definition.library = "nothing.so";
    refused(&cpu, &policy, &definition, PLASMON_ENOENT, "nothing.so", "");
    definition.library = TEST_LIBRARY_NAME;
    definition.symbol  = "no_such_symbol";
    refused(&cpu, &policy, &definition, PLASMON_ENOENT, "no_such_symbol", "");
    policy.library_dir = NULL;
    refused(&cpu, &policy, &definition, PLASMON_EPERM, "--library-dir", "");
}

/* To open it would wait for somebody who writes, and a worker has no other thread for it. */
TEST(what_is_no_file_is_not_opened_as_a_library)
{
    const struct device_info cpu        = {.kind = DEVICE_CPU};
    struct kernel_definition definition = {
        .name = "scale", .signature = "scale(inout f64[n] x, f64 a)", .library = "pipe.so"};
    struct kernel_code_policy policy = open_policy;
    char folder[]                    = "/tmp/plasmon-test-code-XXXXXX";
    char path[64];

    ASSERT_NOT_NULL(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/pipe.so", folder);
    ASSERT_EQ(mkfifo(path, 0600), 0);
    policy.library_dir = folder;
    refused(&cpu, &policy, &definition, PLASMON_ENOLIB, "pipe.so is no regular file", "");
    definition.library = ".";
    refused(&cpu, &policy, &definition, PLASMON_EPERM, "not inside", "");
    ASSERT_EQ(unlink(path), 0);
    ASSERT_EQ(rmdir(folder), 0);
}

/* -------------------------------------------------------------------------------- NVRTC */

static const struct device_info hopper = {.kind            = DEVICE_CUDA,
                                          .compute_major   = 9,
                                          .compute_minor   = 0,
                                          .multiprocessors = 132};

static struct kernel_code *compiled_on(const struct device_info *info,
                                       const struct kernel_code_policy *policy,
                                       const char *text, const char *options)
{
    const struct kernel_definition definition = {
        .name      = "saxpy",
        .signature = "saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)",
        .cuda_text = text,
        .options   = options};
    struct kernel_code *code = NULL;
    struct pl_err err        = {0};
    struct pl_str log;
    plasmon_status_t status;

    pl_str_init(&log);
    status = kernel_code_build(&definition, info, policy, &code, &log, &err);
    if (status == PLASMON_ENOLIB) {
        test_skip("%s", err.text);
    }
    if (status != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s\n%s", err.text, pl_str_text(&log));
    }
    pl_str_finish(&log);
    return code;
}

static struct kernel_code *compiled(const struct kernel_code_policy *policy,
                                    const char *text, const char *options)
{
    return compiled_on(&hopper, policy, text, options);
}

static const char saxpy[] =
    "__global__ void saxpy(float *y, const float *x, float a, long long n)\n"
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  for (; i < n; i += (long long)gridDim.x * blockDim.x) y[i] += a * x[i]; }\n";

TEST(cuda_text_becomes_machine_code)
{
    struct kernel_code *code = compiled(&open_policy, saxpy, "");

    ASSERT_STR(code->symbol, "_Z5saxpyPfPKffx"); /* found though it is C++ */
    ASSERT_TRUE(code->image_bytes > 1000);
    ASSERT_EQ(memcmp(code->image,
                     "\x7f"
                     "ELF",
                     4),
              0);
    kernel_code_destroy(code);
}

TEST(cuda_errors_come_with_the_log)
{
    const struct kernel_definition definition = {
        .name      = "bad",
        .signature = "bad(in f32[n] x)",
        .cuda_text = "__global__ void bad(const float *x)\n{\n  oops\n}"};
    struct kernel_definition unnamed = definition;

    kernel_code_destroy(compiled(&open_policy, saxpy, "")); /* skips where there is none */
    refused(&hopper, &open_policy, &definition, PLASMON_ECOMPILE, "bad: NVRTC", "bad(3)");
    unnamed.cuda_text = "extern \"C\" __global__ void other() {}";
    refused(&hopper, &open_policy, &unnamed, PLASMON_ECOMPILE,
            "bad: the text has no __global__ function bad, or several", "");
    unnamed.cuda_text = "template <class T> __global__ void bad(const T *x) {}";
    refused(&hopper, &open_policy, &unnamed, PLASMON_ECOMPILE, "by options.entry", "");
    unnamed.cuda_text = "__global__ void bad(const float *x) {}";
    unnamed.options   = "-dlto";
    refused(&hopper, &open_policy, &unnamed, PLASMON_ECOMPILE,
            "bad: NVRTC makes no machine code with these options", "");
    unnamed.cuda_text = saxpy;
    unnamed.options   = "--no-such-option";
    refused(&hopper, &open_policy, &unnamed, PLASMON_ECOMPILE, "bad", "");
}

/* ------------------------------------------------------------------------- early starts */

/* Its first instructions are ours, whatever else stands between the brace and them. */
static void expect_begins(const char *edited, const char *head)
{
    const char *body = strstr(edited, head);
    const char *wait, *other;

    ASSERT_NOT_NULL(body);
    body += strlen(head);
    wait  = strstr(body, "griddepcontrol.wait;");
    other = strstr(body, "mov.u32 %r1, 1");
    ASSERT_NOT_NULL(wait);
    ASSERT_TRUE(other == NULL || wait < other);
    ASSERT_TRUE(strstr(body, "ret;") > wait);
    ASSERT_TRUE(strstr(wait, "griddepcontrol.launch_dependents;") < strstr(wait, "ret;"));
}

TEST(ptx_of_kernels_that_may_begin_early_waits_before_all_else)
{
    char *edited = code_early_ptx(".version 8.0\n.target sm_90\n.address_size 64\n"
                                  "\n\t// .globl\tf\n"
                                  ".func g(.param .u64 p)\n{\n\tret;\n}\n"
                                  ".visible .entry f(\n\t.param .align 8 .b8 a[16],\n"
                                  "\t.param .u64 n\n)\n.maxntid 128, 1, 1\n{\n"
                                  "\t.reg .b32 %r<2>;\n\t{ mov.u32 %r1, 1; }\n\tret;\n}\n"
                                  ".weak .entry h()\n{\n\tret;\n}\n");

    ASSERT_NOT_NULL(edited);
    ASSERT_CONTAINS(edited, ".address_size 64\n.visible .global .align 4 .u32 "
                            "plasmon_early_start = 1;\n");
    ASSERT_CONTAINS(edited, ".func g(.param .u64 p)\n{\n\tret;\n}\n"); /* no entry */
    expect_begins(edited, ".visible .entry f(\n\t.param .align 8 .b8 a[16],\n"
                          "\t.param .u64 n\n)\n.maxntid 128, 1, 1\n{");
    expect_begins(edited, ".weak .entry h()\n{");
    pl_free(edited);
}

TEST(ptx_that_is_not_understood_is_left_alone)
{
    ASSERT_NULL(code_early_ptx(""));
    ASSERT_NULL(code_early_ptx(".version 8.0\n.address_size 64"));
    ASSERT_NULL(code_early_ptx(".version 8.0\n.address_size 64\n")); /* no kernel */
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f();\n"));
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f("));
    /* A brace that is none would get what makes the kernel wait, and the kernel would not. */
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f( /* { */ )\n{\n}\n"));
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f() // {\n{\n}\n"));
    ASSERT_NULL(
        code_early_ptx(".address_size 64\n.visible .entry f()\n.pragma \"{\";\n{\n}\n"));
    /* One of two, and the other would not. */
    ASSERT_NULL(code_early_ptx(".entry g()\n{\n}\n.address_size 64\n.entry f()\n{\n}\n"));
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f()\n{\n}\n"
                               ".visible .entry/**/g()\n{\n}\n"));
    ASSERT_NULL(code_early_ptx(".address_size 64\n.visible .entry f()\n{\n"
                               "griddepcontrol.wait;\nret;\n}\n"));
}

TEST(options_that_are_not_for_the_front_end_speak_against_early_starts)
{
    ASSERT_TRUE(code_early_options(""));
    ASSERT_TRUE(code_early_options(" -DN=4 --use_fast_math\t-I/x --fmad=false"));
    ASSERT_TRUE(!code_early_options("-D N=4")); /* not as one word */
    ASSERT_TRUE(!code_early_options("-maxrregcount=32"));
    ASSERT_TRUE(!code_early_options("-DN=4 -G"));
    ASSERT_TRUE(!code_early_options("--device-debug"));
}

static bool marked(const struct kernel_code *code)
{
    return memmem(code->image, code->image_bytes, DEVICE_EARLY_MARK,
                  sizeof(DEVICE_EARLY_MARK)) != NULL;
}

TEST(text_is_made_to_begin_early_where_the_device_can)
{
    static const char says_it[] =
        "__global__ void saxpy(float *y, const float *x, float a, long long n)\n"
        "{ asm volatile(\"griddepcontrol.wait;\"); y[0] = x[n] * a; }\n";
    static const char simple[] =
        "__global__ void saxpy(float *y, const float *x, float a, long long n)\n"
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }\n";
    static const char divides[] =
        "__global__ void saxpy(float *y, const float *x, float a, long long n)\n"
        "{ y[0] = (float)((double)x[n] / (double)a); }\n";
    struct device_info info  = hopper;
    struct kernel_code *code = compiled_on(&info, &open_policy, simple, "");
    unsigned major, minor;

    ASSERT_TRUE(!marked(code));
    kernel_code_destroy(code);
    info.early_start = true;
    if (!code_early_ready(NULL, &major, &minor)) {
        test_skip("no nvJitLink");
    }
    code = compiled_on(&info, &open_policy, simple, "");
    ASSERT_TRUE(marked(code));
    ASSERT_STR(code->symbol, "_Z5saxpyPfPKffx");
    ASSERT_EQ(memcmp(code->image,
                     "\x7f"
                     "ELF",
                     4),
              0);
    kernel_code_destroy(code);
    code = compiled_on(&info, &open_policy, simple, "-maxrregcount=32");
    ASSERT_TRUE(!marked(code));
    kernel_code_destroy(code);
    code = compiled_on(&info, &open_policy, says_it, "");
    ASSERT_TRUE(!marked(code));
    kernel_code_destroy(code);
    code = compiled_on(&info, &open_policy, divides, ""); /* by a function, if made so */
    ASSERT_TRUE(!marked(code));
    ASSERT_EQ(code_early_functions(code->image, code->image_bytes), 1);
    for (size_t bytes = 0; bytes < code->image_bytes; bytes += 7) {
        ASSERT_TRUE(code_early_functions(code->image, bytes) <= 1);
    }
    kernel_code_destroy(code);
}

/* ---------------------------------------------------------------------------- the cache */

struct folder {
    char path[64];
    unsigned files;
    char name[256]; /* of some file in it */
};

static void folder_look(struct folder *folder)
{
    DIR *dir = opendir(folder->path);
    const struct dirent *entry;

    folder->files = 0;
    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            folder->files++;
            (void)snprintf(folder->name, sizeof(folder->name), "%s", entry->d_name);
        }
    }
    (void)closedir(dir);
}

static void folder_begin(struct folder *folder)
{
    *folder = (struct folder){.path = "/tmp/plasmon-code-XXXXXX"};
    ASSERT_TRUE(mkdtemp(folder->path) != NULL);
}

static void folder_end(struct folder *folder)
{
    char path[400];

    for (folder_look(folder); folder->files > 0; folder_look(folder)) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder->path, folder->name);
        ASSERT_EQ(unlink(path), 0);
    }
    ASSERT_EQ(rmdir(folder->path), 0);
}

TEST(compiled_text_is_kept_by_content_options_and_architecture)
{
    struct folder folder;
    struct kernel_code_policy policy = {.cache_bytes_max = 1u << 30};
    struct kernel_code *first, *second;

    kernel_code_destroy(compiled(&policy, saxpy, "")); /* skips where there is none */
    folder_begin(&folder);
    policy.cache_dir = folder.path;
    first            = compiled(&policy, saxpy, "");
    folder_look(&folder);
    ASSERT_EQ(folder.files, 1);
    second = compiled(&policy, saxpy, "");
    ASSERT_EQ(second->image_bytes, first->image_bytes);
    ASSERT_EQ(memcmp(second->image, first->image, first->image_bytes), 0);
    ASSERT_STR(second->symbol, first->symbol);
    folder_look(&folder);
    ASSERT_EQ(folder.files, 1);
    kernel_code_destroy(compiled(&policy, saxpy, "-use_fast_math"));
    folder_look(&folder);
    ASSERT_EQ(folder.files, 2);
    kernel_code_destroy(first);
    kernel_code_destroy(second);
    folder_end(&folder);
}

/* --------------------------------------------------------------------------- parameters */

static plasmon_status_t params_check(const char *text, const char *params,
                                     struct pl_err *err)
{
    struct kernel_signature *signature;
    char ptx[512];
    plasmon_status_t status;

    ASSERT_STATUS(kernel_signature_parse(text, &signature, err), PLASMON_OK);
    (void)snprintf(ptx, sizeof(ptx),
                   ".visible .entry _Z2fxv()\n{\n}\n.func _Z1fv(.param .f64 p)\n"
                   ".visible .entry _Z1fv(%s)\n.maxntid 64, 1, 1\n{\n\tret;\n}\n",
                   params);
    status = code_params_check(ptx, "_Z1fv", signature, "f", err);
    kernel_signature_destroy(signature);
    return status;
}

static void params_fit(const char *text, const char *params)
{
    struct pl_err err = {0};

    if (params_check(text, params, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s, (%s): %s", text, params, err.text);
    }
}

static void params_refused(const char *text, const char *params, const char *why)
{
    struct pl_err err = {0};

    ASSERT_STATUS(params_check(text, params, &err), PLASMON_ECOMPILE);
    ASSERT_CONTAINS(err.text, why);
}

TEST(a_kernel_must_take_what_its_signature_gives)
{
    static const char saxpy_text[] = "f(inout f32[n] y, f32 a, i64 n := n)";
    static const char strided[]    = "f(in f16[n,m]~ x, bool b, i8 c)";

    params_fit("f()", "");
    params_fit("f()", "\n\n");
    params_fit(saxpy_text, "\n\t.param .u64 p_0,\n\t.param .f32 p_1,\n\t.param .u64 p_2\n");
    params_fit(saxpy_text,
               ".param .u64 .ptr .global .align 4 p_0, .param .b32 p_1, .param .s64 p");
    params_fit(strided,
               ".param .align 8 .b8 x[8], .param .s64 s0, .param .u64 s1, .param .u8 b, "
               ".param .s8 c");

    params_refused("f()", ".param .u64 p_0",
                   "takes 1 parameter, and the signature gives 0");
    params_refused(saxpy_text, "", "takes 0 parameters, and the signature gives 3");
    params_refused(saxpy_text,
                   ".param .u64 p_0, .param .f32 p_1, .param .u64 p_2, .param .u64 p_3",
                   "f takes 4 parameters, and the signature gives 3");
    params_refused(
        saxpy_text, ".param .u64 p_0, .param .f64 p_1, .param .u64 p_2",
        "parameter 2 of the __global__ function f is f64, and the signature gives f32 a");
    params_refused(saxpy_text, ".param .u64 p_0, .param .u32 p_1, .param .u64 p_2",
                   "is u32, and the signature gives f32 a");
    params_refused(
        saxpy_text, ".param .u64 p_0, .param .f32 p_1, .param .u32 p_2",
        "parameter 3 of the __global__ function f is u32, and the signature gives i64 n");
    params_refused(saxpy_text, ".param .f32 p_0, .param .f32 p_1, .param .u64 p_2",
                   "is f32, and the signature gives a pointer, y");
    params_refused(saxpy_text,
                   ".param .align 4 .b8 p_0[12], .param .f32 p_1, .param .u64 p_2",
                   "is 12 bytes, and");
    params_refused(
        strided,
        ".param .u64 x, .param .u64 s0, .param .f64 s1, .param .u8 b, .param .s8 c",
        "is f64, and the signature gives an i64, stride 1 of x");
}

/* What is not written as NVRTC does says nothing against a kernel. */
TEST(ptx_with_parameters_that_are_not_understood_refuses_nothing)
{
    params_fit("f()", ".param p");
    params_fit("f()", ".param .u64 p[");
    params_fit("f()", ".param .u64 p[4");
    params_fit("f()", ".param .v4 p");
    params_fit("f()", ".reg .u64 p");
    params_fit("f()", "/* .param */ .param .u64 p");
    params_fit("f()", ".param .texref p");
}

TEST(cuda_text_that_does_not_fit_its_signature_is_refused_kept_or_not)
{
    struct folder folder;
    struct kernel_code_policy policy    = {.cache_bytes_max = 1u << 30};
    struct kernel_definition definition = {
        .name      = "saxpy",
        .signature = "saxpy(inout f32[n] y, in f32[n] x, f64 a, i64 n := n)",
        .cuda_text = saxpy,
        .options   = ""};

    kernel_code_destroy(compiled(&policy, saxpy, "")); /* skips where there is none */
    folder_begin(&folder);
    policy.cache_dir = folder.path;
    kernel_code_destroy(compiled(&policy, saxpy, "")); /* kept, for its signature */
    refused(&hopper, &policy, &definition, PLASMON_ECOMPILE,
            "saxpy: parameter 3 of the __global__ function saxpy is f32, and the signature "
            "gives "
            "f64 a",
            "");
    definition.signature = "saxpy(inout f32[n] y, in f32[n] x, f32 a)";
    refused(&hopper, &policy, &definition, PLASMON_ECOMPILE,
            "takes 4 parameters, and the signature gives 3", "");
    folder_look(&folder);
    ASSERT_EQ(folder.files, 1);
    folder_end(&folder);
}

TEST(a_damaged_or_foreign_file_is_compiled_again)
{
    struct folder folder;
    struct kernel_code_policy policy = {.cache_bytes_max = 1u << 30};
    char path[400];
    struct kernel_code *code;
    size_t bytes;
    int fd;

    test_expect_log();
    kernel_code_destroy(compiled(&policy, saxpy, "")); /* skips where there is none */
    folder_begin(&folder);
    policy.cache_dir = folder.path;
    code             = compiled(&policy, saxpy, "");
    bytes            = code->image_bytes;
    kernel_code_destroy(code);
    folder_look(&folder);
    (void)snprintf(path, sizeof(path), "%s/%s", folder.path, folder.name);

    fd = open(path, O_WRONLY);
    ASSERT_TRUE(fd >= 0 && pwrite(fd, "\xff\x00\xff", 3, 500) == 3);
    (void)close(fd);
    code = compiled(&policy, saxpy, "");
    ASSERT_EQ(code->image_bytes, bytes);
    ASSERT_EQ(memcmp(code->image,
                     "\x7f"
                     "ELF",
                     4),
              0);
    kernel_code_destroy(code);

    ASSERT_EQ(chmod(path, 0666), 0); /* now anybody could have written it */
    kernel_code_destroy(compiled(&policy, saxpy, ""));
    {
        struct stat at;

        ASSERT_EQ(stat(path, &at), 0);
        ASSERT_EQ(at.st_mode & 0777, 0600); /* written anew */
    }
    ASSERT_EQ(truncate(path, 60), 0);
    kernel_code_destroy(compiled(&policy, saxpy, ""));
    folder_end(&folder);
}

/* A compiler that works, or one that refuses everything: to whoever looks at its file they are the same. */
static void compiler_write(const char *path, bool works)
{
    static const char *const scripts[] = {"#!/bin/sh\nexit 1 # $* \n",
                                          "#!/bin/sh\nexec cc \"$@\"\n"};
    const struct timespec times[2]     = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    const char *script                 = scripts[works];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    ASSERT_EQ(strlen(scripts[0]), strlen(scripts[1]));
    ASSERT_EQ(write(fd, script, strlen(script)), strlen(script));
    ASSERT_EQ(futimens(fd, times), 0);
    (void)close(fd);
}

static plasmon_status_t build_c(const struct kernel_code_policy *policy, const char *text,
                                struct kernel_code **out)
{
    const struct device_info info             = {.kind = DEVICE_CPU};
    const struct kernel_definition definition = {
        .name = "nine", .signature = "nine(i64 code)", .c_text = text};
    struct pl_err err = {0};
    struct pl_str log;
    plasmon_status_t status;

    pl_str_init(&log);
    status = kernel_code_build(&definition, &info, policy, out, &log, &err);
    pl_str_finish(&log);
    return status;
}

TEST(compiled_c_text_is_kept_and_a_file_that_anybody_could_have_written_is_not_run)
{
    static const char text[] = "#include <math.h>\nint nine(long c) { return (int)c + 9; }";
    struct folder folder, tools;
    struct kernel_code_policy policy = {.c_text = true, .cache_bytes_max = 1u << 30};
    struct kernel_code *code;
    char compiler[400], path[400];
    const int64_t one     = 1;
    void *const params[1] = {(void *)(uintptr_t)&one};

    test_expect_log();
    folder_begin(&folder);
    folder_begin(&tools);
    policy.cache_dir = folder.path;
    (void)snprintf(compiler, sizeof(compiler), "%s/cc", tools.path);
    ASSERT_EQ(setenv("PLASMON_CC", compiler, 1), 0);
    compiler_write(compiler, true);
    ASSERT_OK(build_c(&policy, text, &code));
    kernel_code_destroy(code);
    folder_look(&folder);
    ASSERT_EQ(folder.files, 1);
    (void)snprintf(path, sizeof(path), "%s/%s", folder.path, folder.name);

    compiler_write(compiler, false);
    ASSERT_OK(build_c(&policy, text, &code)); /* nobody compiled */
    ASSERT_EQ(code->c_entry(params, NULL), 10);
    kernel_code_destroy(code);
    ASSERT_STATUS(build_c(&policy, "int nine(long c) { return (int)c; }", &code),
                  PLASMON_ECOMPILE);
    ASSERT_EQ(chmod(path, 0622), 0);
    ASSERT_STATUS(build_c(&policy, text, &code), PLASMON_ECOMPILE);
    folder_look(&folder);
    ASSERT_EQ(folder.files, 0);
    folder_end(&folder);
    folder_end(&tools);
}

TEST(a_turn_is_one_process_s_until_it_ends_or_dies)
{
    const uint8_t key[PL_SHA256_BYTES] = {1}, other[PL_SHA256_BYTES] = {2};
    struct folder folder;
    int mine, its, there[2];
    char byte = 0;
    pid_t pid;

    folder_begin(&folder);
    mine = code_cache_turn(folder.path, key, 0);
    its  = code_cache_turn(folder.path, other, 0); /* of another text */
    ASSERT_TRUE(mine >= 0 && its >= 0);
    ASSERT_EQ(code_cache_turn(folder.path, key, 0), -1);
    code_cache_turn_end(folder.path, other, &its);
    code_cache_turn_end(folder.path, key, &mine);
    ASSERT_EQ(mine, -1);
    folder_look(&folder);
    ASSERT_EQ(folder.files, 0);

    ASSERT_EQ(pipe(there), 0);
    pid = fork();
    if (pid == 0) {
        byte = code_cache_turn(folder.path, key, 0) >= 0;
        (void)!write(there[1], &byte, 1);
        (void)pause();
        _exit(1);
    }
    ASSERT_EQ(read(there[0], &byte, 1), 1);
    ASSERT_EQ(byte, 1);
    ASSERT_EQ(code_cache_turn(folder.path, key, 20), -1);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(waitpid(pid, NULL, 0), pid);
    mine = code_cache_turn(folder.path, key, 0);
    ASSERT_TRUE(mine >= 0);
    code_cache_turn_end(folder.path, key, &mine);
    ASSERT_EQ(code_cache_turn("/proc/nowhere", key, 0), -1); /* no folder, no turns */
    (void)close(there[0]);
    (void)close(there[1]);
    folder_end(&folder);
}

TEST(c_text_that_reads_files_which_may_change_is_not_kept)
{
    static const char *const texts[] = {"#include \"/a/b.h\"",
                                        "#include </a/b.h>",
                                        "#include <../b.h>",
                                        "#include WHATEVER",
                                        "__asm__(\".incbin x\");",
                                        "#if __has_include(<a>)",
                                        "#import \"/a/b.h\"",
                                        "#inc\\\nlude \"/a/b.h\"",
                                        "#inc\\\r\nlude \"/a/b.h\"",
                                        "#inc?\?/\nlude \"b.h\"",
                                        "__asm(\".inc\" \"lude \\\"x\\\"\");",
                                        "asm (\".inc\" \"bin x\");"};
    const char *const option         = "-O3";
    uint8_t key[PL_SHA256_BYTES], again[PL_SHA256_BYTES];

    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        ASSERT_TRUE(!code_c_key(texts[i], texts[i], "cc", &option, 1, key));
    }
    ASSERT_TRUE(code_text_alone("int plasmon, asm_, _asm; /* \\\n */", true));
    /* of PTX reads none */
    ASSERT_TRUE(code_text_alone("asm(\"nanosleep.u32 1;\");", false));
    ASSERT_TRUE(code_c_key("#include <math.h>\n", "a", "cc", &option, 1, key));
    ASSERT_TRUE(code_c_key("# include<math.h>\n", "a", "cc", &option, 1, again));
    ASSERT_EQ(memcmp(key, again, sizeof(key)), 0);
    ASSERT_TRUE(code_c_key("", "a", "cc", &option, 0, again));
    ASSERT_TRUE(memcmp(key, again, sizeof(key)) != 0);
    ASSERT_TRUE(code_c_key("", "b", "cc", &option, 1, again));
    ASSERT_TRUE(memcmp(key, again, sizeof(key)) != 0);
    ASSERT_TRUE(!code_c_key("", "a", "/nowhere/cc", &option, 1, again));
    ASSERT_EQ(setenv("CPATH", "/nowhere", 1), 0);
    ASSERT_TRUE(code_c_key("#include <math.h>\n", "a", "cc", &option, 1, again));
    ASSERT_TRUE(memcmp(key, again, sizeof(key)) != 0);
    ASSERT_EQ(unsetenv("CPATH"), 0);
}

TEST(cuda_text_that_reads_files_which_may_change_is_not_kept)
{
    struct folder folder, headers;
    struct kernel_code_policy policy = {.cache_bytes_max = 1u << 30};
    char option[96], text[1024], path[400];
    FILE *header;

    kernel_code_destroy(compiled(&policy, saxpy, "")); /* skips where there is none */
    folder_begin(&folder);
    folder_begin(&headers);
    policy.cache_dir = folder.path;
    (void)snprintf(path, sizeof(path), "%s/mine.cuh", headers.path);
    (void)snprintf(option, sizeof(option), "-I%s", headers.path);
    for (int i = 0; i < 2; i++) { /* angles, which find it by the option; quotes */
        header = fopen(path, "we");
        ASSERT_NOT_NULL(header);
        (void)fprintf(header, "#define MINE %d\n", i);
        (void)fclose(header);
        (void)snprintf(text, sizeof(text),
                       i == 0 ? "#include <%s>\n%s" : "#include \"%s\"\n%s",
                       i == 0 ? "mine.cuh" : path, saxpy);
        kernel_code_destroy(compiled(&policy, text, i == 0 ? option : ""));
    }
    folder_look(&folder);
    ASSERT_EQ(folder.files, 0);
    kernel_code_destroy(compiled(&policy, saxpy, "-DN=1"));
    folder_look(&folder);
    ASSERT_EQ(folder.files, 1);
    folder_end(&folder);
    folder_end(&headers);
}

TEST(the_cache_stays_below_its_size)
{
    struct folder folder;
    struct kernel_code_policy policy = {.cache_bytes_max = 1u << 30};
    char option[32];

    kernel_code_destroy(compiled(&policy, saxpy, "")); /* skips where there is none */
    folder_begin(&folder);
    policy.cache_dir       = folder.path;
    policy.cache_bytes_max = 20000;
    for (int i = 0; i < 8; i++) {
        (void)snprintf(option, sizeof(option), "-DN=%d", i);
        kernel_code_destroy(compiled(&policy, saxpy, option));
    }
    folder_look(&folder);
    ASSERT_TRUE(folder.files >= 1 && folder.files < 8);
    folder_end(&folder);
}

static void keep_and_expect(const char *dir, bool kept)
{
    static const char image[8192] = "what a compiler made";
    uint8_t key[PL_SHA256_BYTES]  = {1, 2, 3};
    struct code_cached got;

    code_cache_store(dir, 1 << 20, key, "kernel", image, sizeof(image));
    ASSERT_EQ(code_cache_load(dir, key, &got), kept);
    if (kept) {
        ASSERT_STR(got.symbol, "kernel");
        ASSERT_EQ(memcmp(got.image, image, sizeof(image)), 0);
        pl_free(got.symbol);
        pl_free(got.image);
    }
}

TEST(what_lies_under_the_name_of_code_and_is_not_that_code_is_not_run)
{
    static const char image[]     = "what a compiler made";
    uint8_t mine[PL_SHA256_BYTES] = {1}, others[PL_SHA256_BYTES] = {2};
    char hex[2 * PL_SHA256_BYTES + 1], from[200], to[200], *symbol;
    struct code_cached got;
    struct folder folder;

    test_expect_log();
    folder_begin(&folder);
    pl_sha256_hex(others, hex);
    (void)snprintf(from, sizeof(from), "%s/%s.code", folder.path, hex);
    pl_sha256_hex(mine, hex);
    (void)snprintf(to, sizeof(to), "%s/%s.code", folder.path, hex);

    /* Whole, ours, and another function's. */
    code_cache_store(folder.path, 1 << 20, others, "kernel", image, sizeof(image));
    ASSERT_EQ(rename(from, to), 0);
    ASSERT_TRUE(!code_cache_load(folder.path, mine, &got));
    ASSERT_TRUE(access(to, F_OK) != 0);

    /* Of a pipe nobody writes the other end. */
    ASSERT_EQ(mkfifo(to, 0600), 0);
    ASSERT_TRUE(!code_cache_load(folder.path, mine, &got));
    ASSERT_TRUE(access(to, F_OK) != 0);

    /* A name so long that it would not be read back is not kept, and the next load has nothing to warn of. */
    symbol = pl_alloc(5001);
    ASSERT_NOT_NULL(symbol);
    memset(symbol, 'x', 5000);
    symbol[5000] = '\0';
    code_cache_store(folder.path, 1 << 20, mine, symbol, image, sizeof(image));
    ASSERT_TRUE(access(to, F_OK) != 0);
    pl_free(symbol);
    folder_end(&folder);
}

static unsigned files_in(const char *dir)
{
    unsigned count = 0;
    struct dirent *entry;
    DIR *folder = opendir(dir);

    ASSERT_NOT_NULL(folder);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "filler") != 0;
    }
    (void)closedir(folder);
    return count;
}

TEST(a_cache_without_room_keeps_nothing_not_even_half_and_works_again_with_room)
{
    char dir[] = "/tmp/plcache-XXXXXX";

    test_expect_log();
    ASSERT_NOT_NULL(mkdtemp(dir));
    small_disk_mount(dir, "size=16k");
    small_disk_fill(dir);
    keep_and_expect(dir, false);
    ASSERT_EQ(files_in(dir), 0);
    small_disk_free(dir);
    keep_and_expect(dir, true);
    ASSERT_EQ(files_in(dir), 1);
    small_disk_unmount();
    ASSERT_EQ(rmdir(dir), 0);
}

TEST_MAIN()
