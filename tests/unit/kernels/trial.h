/*
 * One call of a catalogue function on random arrays, with what should come out.
 *
 * A case (cases.h) builds the arguments and computes the expected values from the inputs, in double
 * or int64. The arrays are views of larger roots, dense or with random steps; roots are filled with
 * a pattern, so that a write outside the view is found, and so is a write to an input. The same
 * trial runs on the CPU and on a GPU.
 */
#ifndef TESTS_KERNELS_TRIAL_H
#define TESTS_KERNELS_TRIAL_H

#include "kernels/kernel_int.h"

#include <complex.h>
#include <string.h>

#define TRIAL_ARRAYS_MAX (KERNEL_FOLD_MAX + 2)

struct trial_array {
    struct kernel_arg arg; /* data: host address in root */
    char *root;
    char *before; /* root as it was before the run */
    uint64_t root_bytes;
    bool is_output;    /* OUT, INOUT, REDUCE, SCRATCH */
    double *want;      /* by flat index; floats, and the real part of complex numbers */
    double *want_im;   /* the imaginary part */
    double *bound;     /* |got - want| may be this much */
    int64_t *want_int; /* the other dtypes */
};

struct trial {
    const struct kernel_function *function;
    uint32_t dtype; /* that the case was asked for */
    bool large;     /* some thousand elements rather than some dozen */
    bool strided;
    uint64_t random;
    uint32_t count;
    struct trial_array array[TRIAL_ARRAYS_MAX];
    uint32_t scalar_count;
    union kernel_scalar scalar[KERNEL_SCALARS_MAX];
    /* Instead of values that are expected: what results must have to do with each other. */
    void (*verify)(const struct trial *trial, const char *where);
};

void trial_begin(struct trial *trial, const char *name, uint32_t dtype, uint64_t seed);
void trial_end(struct trial *trial);

/* ---- building, in the order of the signature */

int64_t trial_int(struct trial *trial, int64_t low, int64_t high); /* both included */
/* ndim dimensions, their product bounded by the size of the trial. */
void trial_dims(struct trial *trial, uint32_t ndim, int64_t out[PL_DIM_MAX]);
/* Random values in [low, high], both parts of complex numbers; integers for the integer dtypes. */
uint32_t trial_array(struct trial *trial, uint32_t mode, uint32_t dtype, uint32_t ndim,
                     const int64_t *dim, double low, double high);
void trial_out(struct trial *trial); /* shape left to the shape rule */
void trial_f64(struct trial *trial, double value);
void trial_i64(struct trial *trial, int64_t value);
/* kernel_check(), then memory for the outputs. */
void trial_prepare(struct trial *trial);

/* ---- values before the run, by flat index in C order */

int64_t trial_elements(const struct trial *trial, uint32_t index);
double trial_get(const struct trial *trial, uint32_t index, int64_t flat);
static inline double complex trial_z(double re, double im)
{
    double part[2] = {re, im}; /* the macro of C11 is missing in clang 14 */
    double complex z;

    memcpy(&z, part, sizeof(z));
    return z;
}
double complex trial_get_z(const struct trial *trial, uint32_t index, int64_t flat);
int64_t trial_get_int(const struct trial *trial, uint32_t index, int64_t flat);
const char *trial_at(const struct trial_array *array, const char *root, int64_t flat);
void trial_set(struct trial *trial, uint32_t index, int64_t flat, double value);
void trial_set_z(struct trial *trial, uint32_t index, int64_t flat, double complex value);
bool trial_is_float(uint32_t dtype); /* a real one */
bool trial_is_complex(uint32_t dtype);
/* half the distance from 1 to the next number; of the parts */
double trial_epsilon(uint32_t dtype);
double trial_tiny(uint32_t dtype); /* half the smallest number */
double trial_rounded(uint32_t dtype,
                     double value); /* to the nearest number, ties to even */
/* Flat index in array `index` of what broadcasts to element `flat` of array `shape_of`. */
int64_t trial_broadcast(const struct trial *trial, uint32_t index, uint32_t shape_of,
                        int64_t flat);

void trial_want(struct trial *trial, uint32_t index, int64_t flat, double want,
                double bound);
void trial_want_z(struct trial *trial, uint32_t index, int64_t flat, double complex want,
                  double bound);
void trial_want_int(struct trial *trial, uint32_t index, int64_t flat, int64_t want);
/* Just what was in argument `from`, whatever the dtype. */
void trial_want_same(struct trial *trial, uint32_t index, int64_t flat, uint32_t from,
                     int64_t from_flat);

/* ---- after the run */

double trial_result(const struct trial *trial, uint32_t index, int64_t flat);

/* ---- running */

plasmon_status_t trial_run_cpu(struct trial *trial, struct pl_err *err);
/* Fails the test unless outputs are as expected and nothing else changed. `where` is for the message. */
void trial_verify(const struct trial *trial, const char *where);

#endif
