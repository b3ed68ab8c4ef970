/*
 * Errors that lie in the data: a shape rule cannot see them, so they are found when a function
 * runs. They fail the task, on either kind of device, with the same status and the same text. On a
 * CPU device the variant returns them; on a GPU a kernel leaves a record in memory that the host
 * reads (cuda_failures.h).
 */
#ifndef KERNELS_DATA_ERRORS_H
#define KERNELS_DATA_ERRORS_H

#include "kernels/kernels.h"

enum kernel_data_error {
    KERNEL_DATA_FINE = 0,
    /* value: the first i for which rows[i] .. rows[i + 1] is no range of stored elements */
    KERNEL_DATA_ROWS         = 1,
    KERNEL_DATA_COLUMNS      = 2, /* value: the first j for which columns[j] is no column */
    KERNEL_DATA_SINGULAR     = 3, /* value: the pivot, from 1 */
    KERNEL_DATA_NOT_POSITIVE = 4, /* value: the order of the leading minor */
    KERNEL_DATA_NO_CONVERGENCE = 5, /* value: how many off-diagonal elements are left */
    /* value: the argument that a library refused, from 1; a bug of ours */
    KERNEL_DATA_ARGUMENT = 6,
    /* value: the first element, by rows, that is NaN or infinite */
    KERNEL_DATA_NOT_FINITE = 7,
};

/* Sets err and returns its status. */
plasmon_status_t kernel_data_error(struct pl_err *err,
                                   const struct kernel_function *function,
                                   enum kernel_data_error error, int64_t value);

#endif
