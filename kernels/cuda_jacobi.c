/*
 * Launching singular values and eigenvalues: see cuda_jacobi.cuh for the method, and why it is ours.
 *
 * A matrix with more columns than rows is worked on as its transpose, with u and vh exchanged.
 * Whatever a's layout is, it is read once, into scratch; results are written where they belong.
 *
 * Scratch: the state, the columns, the product of the rotations, then what is kept for each value.
 */
#include "kernels/cuda_int.h"
#include "kernels/cuda_jacobi_params.h"

#define PART 256 /* alignment of parts of scratch */

static uint64_t take(uint64_t *io_at, uint64_t bytes)
{
    uint64_t at = *io_at;

    *io_at += pl_round_up(bytes, PART);
    return at;
}

/* Sizes and scratch; returns the end of it. */
static uint64_t lay_out(struct cuda_jacobi *p, const struct kernel_arg *a, uint64_t scratch)
{
    bool wide      = a->dim[0] < a->dim[1];
    uint64_t bytes = pl_dtype_bytes(a->dtype);
    uint64_t n;

    p->m       = a->dim[wide ? 1 : 0];
    p->n       = a->dim[wide ? 0 : 1];
    n          = (uint64_t)p->n;
    p->state   = take(&scratch, sizeof(struct cuda_jacobi_state));
    p->columns = take(&scratch, (uint64_t)p->m * n * bytes);
    p->vectors = take(&scratch, n * n * bytes);
    p->values  = take(&scratch, n * sizeof(double));
    p->ranks   = take(&scratch, n * sizeof(int64_t));
    p->missing = take(&scratch, n * sizeof(int32_t));
    p->factors = take(&scratch, n * sizeof(double));
    return scratch;
}

static void aim(struct cuda_jacobi *p, const struct kernel_arg *a)
{
    int64_t bytes = pl_dtype_bytes(a->dtype);
    uint32_t row  = a->dim[0] < a->dim[1] ? 1 : 0;

    p->a                     = a->data.addr;
    p->stride[0]             = a->stride[row] * bytes;
    p->stride[1]             = a->stride[1 - row] * bytes;
    p->index_stride[row]     = a->dim[1];
    p->index_stride[1 - row] = 1;
}

/* Vectors in the columns of x, or in its rows. */
static uint64_t aim_vectors(const struct kernel_arg *x, bool rows, int64_t stride[2])
{
    int64_t bytes = pl_dtype_bytes(x->dtype);

    stride[0] = x->stride[rows ? 1 : 0] * bytes;
    stride[1] = x->stride[rows ? 0 : 1] * bytes;
    return x->data.addr;
}

static void aim_values(struct cuda_jacobi *p, const struct kernel_arg *x)
{
    p->result        = x->data.addr;
    p->result_stride = x->stride[0] * (int64_t)pl_dtype_bytes(x->dtype);
}

static plasmon_status_t clear(const struct cuda_call *call, const struct cuda_jacobi *p)
{
    struct device_ptr state = {p->state};
    plasmon_status_t status =
        device_fill8(call->stream, state, 0, sizeof(struct cuda_jacobi_state));

    if (status == PLASMON_OK) { /* the first two words: nothing is wrong */
        status = device_fill8(call->stream, state, 0xff, 2 * sizeof(uint64_t));
    }
    return status == PLASMON_OK
               ? status
               : pl_err_set(call->err, status, "%s: cannot clear its scratch",
                            call->function->name);
}

/* A block for each 8 pairs of columns, one a multiprocessor at most, so that all of them run at once. */
static plasmon_status_t sweep(const struct cuda_call *call, uint32_t kernel,
                              struct cuda_jacobi *p)
{
    int64_t blocks                   = (p->n / 2 + 7) / 8;
    int64_t most                     = call->cuda->multiprocessors;
    struct device_launch_shape shape = {
        .block = {256, 1, 1}, .grid = {1, 1, 1}, .cooperative = true};
    void *list[] = {p};
    plasmon_status_t status;

    blocks        = blocks < most ? blocks : most;
    shape.grid[0] = blocks < 1 ? 1 : (uint32_t)blocks;
    status        = device_launch(call->stream, call->cuda->kernel[kernel], &shape, list);
    return status == PLASMON_OK
               ? status
               : pl_err_set(call->err, status, "%s: cannot launch its sweeps: %s",
                            call->function->name, pl_status_text(status));
}

static plasmon_status_t decompose(const struct cuda_call *call, uint32_t f64,
                                  struct cuda_jacobi *p)
{
    int64_t rows            = cuda_blocks(call, p->m * 32); /* a warp a row */
    int64_t columns         = cuda_blocks(call, p->n * 32);
    int64_t elements        = cuda_blocks(call, p->m * p->n);
    plasmon_status_t status = clear(call, p);

    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_jacobi_measure_f32 + f64, rows, 256, 1, p);
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_jacobi_load_f32 + f64, elements, 256, 1, p);
    }
    if (status == PLASMON_OK) {
        status = sweep(call, CUDA_jacobi_sweeps_f32 + f64, p);
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_jacobi_values_f32 + f64, columns, 256, 1, p);
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_jacobi_ranks, columns, 256, 1, p);
    }
    if (status == PLASMON_OK && p->left != 0) {
        status = cuda_launch(call, CUDA_jacobi_complete_f32 + f64, 1, 256, 1, p);
    }
    if (status == PLASMON_OK) {
        status = cuda_launch(call, CUDA_jacobi_store_f32 + f64, elements, 256, 1, p);
    }
    return status;
}

static plasmon_status_t run(const struct cuda_call *call, const struct kernel_arg *a,
                            struct cuda_jacobi *p)
{
    static const enum kernel_data_error errors[2] = {KERNEL_DATA_NOT_FINITE,
                                                     KERNEL_DATA_NO_CONVERGENCE};
    uint64_t words[2]                             = {p->state, p->state + sizeof(uint64_t)};
    plasmon_status_t status;

    status = decompose(call, a->dtype == PL_F64, p);
    return status == PLASMON_OK ? cuda_report(call, words, errors, 2, sizeof(uint64_t), -1)
                                : status;
}

plasmon_status_t cuda_svd(const struct cuda_call *call)
{
    const struct kernel_arg *a = &call->args[3];
    bool wide                  = a->dim[0] < a->dim[1];
    struct cuda_jacobi p       = {.symmetric = 0};

    (void)lay_out(&p, a, call->scratch.addr);
    aim(&p, a);
    p.left  = aim_vectors(&call->args[wide ? 2 : 0], wide, p.left_stride);
    p.right = aim_vectors(&call->args[wide ? 0 : 2], !wide, p.right_stride);
    aim_values(&p, &call->args[1]);
    return run(call, a, &p);
}

plasmon_status_t cuda_eigh(const struct cuda_call *call)
{
    const struct kernel_arg *a = &call->args[2];
    struct cuda_jacobi p       = {.symmetric = 1};

    (void)lay_out(&p, a, call->scratch.addr);
    aim(&p, a);
    p.right = aim_vectors(&call->args[1], false, p.right_stride);
    aim_values(&p, &call->args[0]);
    return run(call, a, &p);
}

uint64_t cuda_svd_scratch(const struct kernel_function *function,
                          const struct kernel_arg *args, uint32_t arg_count,
                          const union kernel_scalar *scalars)
{
    struct cuda_jacobi p;

    (void)function;
    (void)scalars;
    return lay_out(&p, &args[arg_count - 1], 0);
}

uint64_t cuda_eigh_scratch(const struct kernel_function *function,
                           const struct kernel_arg *args, uint32_t arg_count,
                           const union kernel_scalar *scalars)
{
    return cuda_svd_scratch(function, args, arg_count, scalars);
}
