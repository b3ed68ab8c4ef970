/*
 * A GPU that is none: a libcuda.so.1 whose device is memory and time of the host, so that what a
 * worker does for a GPU can be run, and counted, where there is none. Real heads, stores and
 * workers find it by LD_LIBRARY_PATH.
 *
 * WHAT IS REAL   memory that is exported and mapped, copies, words, waits for them, events, host
 *                functions, captured graphs, and the order of all that within a stream. A stream
 *                that waits holds up itself and nobody else. A stream is of the device whose
 *                context was current when it was made: that one must have access to what it copies,
 *                and events of another context are not recorded in it.
 * WHAT IS NOT    kernels: only those that copy boxes (device/cuda/copy_box.cu), chain_link
 *                (bench/graphs/chain.cu), chain_mix and store_nowhere (tests/gpu/test_chain_cuda.c)
 *                do their work; all others take no time and do nothing. Of a launch's shape the
 *                number of threads in a block is looked at. One of a graph that may begin early and
 *                does not wait for what is before it (its code has no DEVICE_EARLY_MARK) runs
 *                before that: the worst that a device may do.
 *
 * Work runs on a thread of its own, as it does on a device: a call only enqueues. A stream takes
 * 1020 operations that are not done: the next call blocks until one is, and is counted as
 * "blocked". (Of an H200's, records of events, waits for them and host functions do not count; here
 * they do.)
 *
 *   FAKE_CUDA_DEVICES=2        so many devices; 1 without
 *   FAKE_CUDA_MIG=1            they are MIG devices
 *   FAKE_CUDA_MODES=030        compute modes, a digit each; FAKE_CUDA_FOLDER has a file for each
 *                              that is one process's
 *   FAKE_CUDA_MPS=1            the multi-process service has them
 *   CUDA_VISIBLE_DEVICES       as the driver takes it
 *   FAKE_CUDA_CALLS=FILE       count the calls of all processes there (struct fake_cuda_calls; made
 *                              when it is not there)
 *   FAKE_CUDA_KERNEL_NS=5000   a kernel takes so long
 *   FAKE_CUDA_GATE=FILE        while there is such a file, no kernel begins
 *   FAKE_CUDA_LOCK_GATE=FILE   while there is such a file, a process page-locks 128 MiB in one call
 *                              once, and not again
 *   FAKE_CUDA_SHUT=FILE        while there is such a file, memory is opened to the first GPU of a
 *                              process only
 *   FAKE_CUDA_SLOW=1           a context on another GPU than the first, and to open memory to that,
 *                              takes 10 ms
 *   FAKE_CUDA_FAR_LOST=FILE    while there is such a file, all GPUs but the first of a process are lost
 *   FAKE_CUDA_LOST_ERROR=226   what streams of a lost GPU answer; CUDA_ERROR_ILLEGAL_ADDRESS without
 *   FAKE_CUDA_STALLS=1         now and then a stream does not come on, though nothing holds it up;
 *                              without, the newest one always goes first
 *   FAKE_CUDA_OLD=1            attributes of functions that launches by clusters brought are not known
 */
#ifndef TESTS_HARNESS_GPU_FAKE_CUDA_H
#define TESTS_HARNESS_GPU_FAKE_CUDA_H

#include <stdint.h>

#define FAKE_CUDA_CALLS_MAX 128

/* A file of zeros until the first process counts. Written and read atomically. */
struct fake_cuda_calls {
    struct {
        char name[40];
        uint64_t count;
    } functions[FAKE_CUDA_CALLS_MAX];
};

#endif
