/* The argument of the kernels in copy_box.cu; passed by value. Plain C, seen by both compilers. */
#ifndef DEVICE_CUDA_COPY_BOX_H
#define DEVICE_CUDA_COPY_BOX_H

#include "device/copy_plan.h"

struct device_copy_box_args {
    struct device_copy_plan plan;
    uint64_t dst;
    uint64_t src;
    uint64_t words_per_run; /* words of the kernel's width */
    uint64_t words;         /* in all */
};

#endif
