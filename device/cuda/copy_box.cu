/*
 * Copy a box word by word, for shapes that the copy engines cannot take in a few calls, or only in
 * very short rows.
 *
 * One thread a word, a grid-stride loop; neighbouring threads take neighbouring words of a run, so
 * accesses coalesce as far as the runs go. The word is the widest that divides everything
 * (device_copy_plan_width), one entry point a width. The index is taken apart with 32-bit divisions
 * when it fits, which are several times cheaper than 64-bit ones.
 *
 * Launch: 256 threads a block; as many blocks as there is work for, at most 16 for each multiprocessor.
 *
 * The CPU variant is run_copy_planned() in device/cpu/stream.c; both are held to the same property test.
 */
#include "device/cuda/copy_box.h"

template <typename Word, typename Index>
static __device__ void copy_words(const struct device_copy_box_args &args)
{
    const char *src     = reinterpret_cast<const char *>(args.src) + args.plan.src_offset;
    char *dst           = reinterpret_cast<char *>(args.dst) + args.plan.dst_offset;
    const Index per_run = static_cast<Index>(args.words_per_run);
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         i < args.words; i += step) {
        Index run           = static_cast<Index>(i) / per_run;
        uint64_t dst_offset = static_cast<uint64_t>(static_cast<Index>(i) - run * per_run) *
                              sizeof(Word);
        uint64_t src_offset = dst_offset;

        for (uint32_t d = 0; d < args.plan.loop_count; d++) {
            const Index count = static_cast<Index>(args.plan.count[d]);
            const Index rest  = run / count;
            const uint64_t at = run - rest * count;

            dst_offset += at * args.plan.dst_stride[d];
            src_offset += at * args.plan.src_stride[d];
            run = rest;
        }
        *reinterpret_cast<Word *>(dst + dst_offset) =
            *reinterpret_cast<const Word *>(src + src_offset);
    }
}

template <typename Word> static __device__ void copy_box(const struct device_copy_box_args &args)
{
    if (args.words <= 0xffffffffu) {
        copy_words<Word, uint32_t>(args);
    } else {
        copy_words<Word, uint64_t>(args);
    }
}

#define COPY_BOX(bytes, type)                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                        \
        device_copy_box_##bytes(const struct device_copy_box_args args)                      \
    {                                                                                        \
        copy_box<type>(args);                                                                \
    }

COPY_BOX(1, uint8_t)
COPY_BOX(2, uint16_t)
COPY_BOX(4, uint32_t)
COPY_BOX(8, uint64_t)
COPY_BOX(16, uint4)
