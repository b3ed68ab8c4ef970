/*
 * What fake_nccl.c exports beside NCCL's own names, and NCCL's types as far as device/cuda/comm.c
 * gives them.
 */
#ifndef TESTS_HARNESS_GPU_FAKE_NCCL_H
#define TESTS_HARNESS_GPU_FAKE_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

struct fake_comm;

struct fake_nccl_id {
    char bytes[128];
};

struct fake_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
};

/* Of the driver without a GPU: on that stream, fn(user) until it says that it is over. It must not wait. */
typedef void (*fake_stream_poll_fn)(CUstream stream, bool (*fn)(void *user), void *user);
void fake_stream_poll(CUstream stream, bool (*fn)(void *user), void *user);
/*
 * Of the same: frees memory of the host, that is, waits until nothing is on the device; calls about
 * memory wait meanwhile.
 */
void fake_host_free(void);

/* How many threads were made for calls. */
uint64_t fake_nccl_threads(void);

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct fake_nccl_id *out);
int ncclCommInitRankConfig(struct fake_comm **out, int ranks, struct fake_nccl_id id,
                           int rank, const struct fake_nccl_config *config);
int ncclCommSplit(struct fake_comm *comm, int color, int key, struct fake_comm **made,
                  const struct fake_nccl_config *config);
int ncclCommGetAsyncError(struct fake_comm *comm, int *error);
int ncclCommFinalize(struct fake_comm *comm);
int ncclCommDestroy(struct fake_comm *comm);
int ncclCommAbort(struct fake_comm *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *data, size_t count, int type, int peer, struct fake_comm *comm,
             CUstream stream);
int ncclRecv(void *data, size_t count, int type, int peer, struct fake_comm *comm,
             CUstream stream);
int ncclAllReduce(const void *src, void *dst, size_t count, int type, int op,
                  struct fake_comm *comm, CUstream stream);
int ncclReduceScatter(const void *src, void *dst, size_t count, int type, int op,
                      struct fake_comm *comm, CUstream stream);
int ncclAllGather(const void *src, void *dst, size_t count, int type,
                  struct fake_comm *comm, CUstream stream);
const char *ncclGetErrorString(int error);
const char *ncclGetLastError(const struct fake_comm *comm);

#endif
