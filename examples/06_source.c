/*
 * A function of one's own: y = a x + y, once in CUDA C for GPUs and once in C for CPU devices. It
 * is compiled where it runs, the first time, and then called like a built-in one.
 */
#include <math.h>
#include <plasmon/plasmon.h>
#include <stdio.h>

#include "example.h"

#define N 1000000

/* Every parameter of the signature, in its order; the grid covers the array, or walks over it. */
static const char cuda_text[] =
    "extern \"C\" __global__ void saxpy(float *y, const float *x, float a, long long n)\n"
    "{\n"
    "    long long step = (long long)gridDim.x * blockDim.x;\n"
    "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += "
    "step) {\n"
    "        y[i] = a * x[i] + y[i];\n"
    "    }\n"
    "}\n";
static const char c_text[] = "void saxpy(float *y, const float *x, float a, long n)\n"
                             "{\n"
                             "    for (long i = 0; i < n; i++) {\n"
                             "        y[i] = a * x[i] + y[i];\n"
                             "    }\n"
                             "}\n";

static float x[N], y[N];

int main(void)
{
    struct plasmon_source_options source = PLASMON_SOURCE_OPTIONS_INIT;
    const struct plasmon_shape shape     = {PLASMON_F32, 1, {N}};
    struct plasmon_client *px;
    struct plasmon_ref *rx, *ry;

    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 1.0f;
    }
    example_need(NULL, plasmon_init(NULL, &px), "start");
    source.c_text = c_text;
    example_need(px,
                 plasmon_function_source(
                     px, "saxpy", cuda_text,
                     "saxpy(inout f32[n] y, in f32[n] x, f32 a, i64 n := n)", &source),
                 "define saxpy");
    example_need(px, plasmon_function_wait(px, "saxpy", PLASMON_FOREVER), "compile saxpy");
    example_need(px, plasmon_put(px, x, &shape, NULL, &rx), "put x");
    example_need(px, plasmon_put(px, y, &shape, NULL, &ry), "put y");

    /* n is computed from the shape, so it is not given. */
    for (int i = 0; i < 3; i++) {
        example_submit(px, "saxpy", EXAMPLE_ARGS(example_inout(ry), example_in(rx)),
                       EXAMPLE_SCALARS({.f = 2.5}), PLASMON_ANYWHERE, NULL);
    }
    example_need(px, plasmon_get(px, ry, y, sizeof(y), PLASMON_FOREVER), "get y");

    for (int i = 0; i < N; i++) {
        double want = 1.0 + 7.5 * i;

        if (fabs((double)y[i] - want) > 1e-6 * want) {
            example_die("y[%d] is %g, not %g", i, (double)y[i], want);
        }
    }
    printf("y = 2.5 x + y, three times: y[%d] is %g\n", N - 1, (double)y[N - 1]);

    example_release(px, rx);
    example_release(px, ry);
    plasmon_finish(px);
    return 0;
}
