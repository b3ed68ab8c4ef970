/*
 * Errors that lie in the data: their statuses and texts. See data_errors.h.
 */
#include "kernels/data_errors.h"

plasmon_status_t kernel_data_error(struct pl_err *err,
                                   const struct kernel_function *function,
                                   enum kernel_data_error error, int64_t value)
{
    const char *name = function->name;
    long long number = (long long)value;

    switch (error) {
    case KERNEL_DATA_ROWS:
        return pl_err_set(
            err, PLASMON_EINVAL,
            "%s: rows[%lld] to rows[%lld] is no range of stored elements: row "
            "pointers start at 0 or more, never fall, and end within columns",
            name, number, number + 1);
    case KERNEL_DATA_COLUMNS:
        return pl_err_set(err, PLASMON_EINVAL, "%s: columns[%lld] is no index into x", name,
                          number);
    case KERNEL_DATA_SINGULAR:
        return pl_err_set(err, PLASMON_ESINGULAR, "%s: a is singular: pivot %lld is 0",
                          name, number);
    case KERNEL_DATA_NOT_POSITIVE:
        return pl_err_set(err, PLASMON_ESINGULAR,
                          "%s: a is not positive definite: its leading minor of order %lld "
                          "is not",
                          name, number);
    case KERNEL_DATA_NO_CONVERGENCE:
        return pl_err_set(
            err, PLASMON_EFUNCTION,
            "%s: did not converge: %lld off-diagonal elements are left; does a "
            "hold NaN or infinities?",
            name, number);
    case KERNEL_DATA_NOT_FINITE:
        return pl_err_set(err, PLASMON_EINVAL,
                          "%s: element %lld of a, counted by rows, is NaN or infinite",
                          name, number);
    default:
        return pl_err_set(err, PLASMON_EINTERNAL, "%s: the library refused argument %lld",
                          name, number);
    }
}
