/*
 * Checking a call against its signature, and finding functions. Client and worker run the same
 * code: the client so that a wrong call fails at submit, the worker because what comes from a wire
 * is checked where it is used.
 */
#include "kernels/kernels.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------------------ finding */

/* Open addressing by the hash of the name; twice as many slots as functions. Constant after index_build(). */
#define INDEX_SLOTS 256
static struct {
    uint32_t hash;
    const struct kernel_function *function; /* NULL: a free slot */
} index_slots[INDEX_SLOTS];
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static void index_build(void)
{
    PL_CHECK(kernel_count() <= INDEX_SLOTS / 2);
    for (uint32_t i = 0; i < kernel_count(); i++) {
        const struct kernel_function *function = kernel_at(i);
        uint32_t hash                          = pl_hash_name(function->name);
        uint32_t slot                          = hash % INDEX_SLOTS;

        while (index_slots[slot].function != NULL) {
            PL_CHECK(index_slots[slot].hash != hash); /* two names, one id: rename one */
            slot = (slot + 1) % INDEX_SLOTS;
        }
        index_slots[slot].hash     = hash;
        index_slots[slot].function = function;
    }
}

const struct kernel_function *kernel_by_id(uint32_t id)
{
    uint32_t slot = id % INDEX_SLOTS;

    (void)pthread_once(&index_once, index_build); /* fails only for a bad control */
    while (index_slots[slot].function != NULL) {
        if (index_slots[slot].hash == id) {
            return index_slots[slot].function;
        }
        slot = (slot + 1) % INDEX_SLOTS;
    }
    return NULL;
}

const struct kernel_function *kernel_by_name(const char *name)
{
    const struct kernel_function *function = kernel_by_id(pl_hash_name(name));

    return function != NULL && strcmp(function->name, name) == 0 ? function : NULL;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/*
 * Edits (insert, delete, replace, swap neighbours) between two names, capitals or not; names here
 * are short, longer ones are far.
 */
#define NAME_MAX_LENGTH 40
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned table[NAME_MAX_LENGTH + 1][NAME_MAX_LENGTH + 1];
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);

    if (a_length > NAME_MAX_LENGTH || b_length > NAME_MAX_LENGTH) {
        return NAME_MAX_LENGTH;
    }
    for (size_t i = 0; i <= a_length; i++) {
        for (size_t j = 0; j <= b_length; j++) {
            unsigned best;

            if (i == 0 || j == 0) {
                table[i][j] = (unsigned)(i + j);
                continue;
            }
            best = table[i - 1][j - 1] + !same_letter(a[i - 1], b[j - 1]);
            best = table[i - 1][j] + 1 < best ? table[i - 1][j] + 1 : best;
            best = table[i][j - 1] + 1 < best ? table[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1])) {
                best = table[i - 2][j - 2] + 1 < best ? table[i - 2][j - 2] + 1 : best;
            }
            table[i][j] = best;
        }
    }
    return table[a_length][b_length];
}

/* topk: topk_min; gemm_add: gemm. */
static bool begin_alike(const char *name, const char *known)
{
    size_t name_length = strlen(name), known_length = strlen(known);

    return (name_length >= 3 && strncasecmp(name, known, name_length) == 0) ||
           (strncasecmp(name, known, known_length) == 0 && name[known_length] == '_');
}

void kernel_meant_init(struct kernel_meant *meant, const char *name)
{
    unsigned edits_max = (unsigned)strlen(name) / 3; /* more than that is another word */

    *meant = (struct kernel_meant){.name = name, .edits = edits_max > 0 ? edits_max : 1};
}

void kernel_meant_look(struct kernel_meant *meant, const char *known)
{
    unsigned edits = edit_distance(meant->name, known);

    if (edits < meant->edits || (edits == meant->edits && meant->nearest == NULL)) {
        meant->edits   = edits;
        meant->nearest = known;
    }
    if (meant->begun == NULL && begin_alike(meant->name, known)) {
        meant->begun = known;
    }
}

const char *kernel_meant(struct kernel_meant *meant)
{
    for (uint32_t i = 0; i < kernel_count(); i++) {
        kernel_meant_look(meant, kernel_at(i)->name);
    }
    return meant->nearest != NULL ? meant->nearest : meant->begun;
}

const char *kernel_suggest(const char *name)
{
    struct kernel_meant meant;

    kernel_meant_init(&meant, name);
    return kernel_meant(&meant);
}

/* ----------------------------------------------------------------------------- checking */

static const char *mode_name(uint32_t mode)
{
    switch (mode) {
    case KERNEL_IN:
        return "IN";
    case KERNEL_OUT:
        return "OUT";
    case KERNEL_INOUT:
        return "INOUT";
    case KERNEL_REDUCE:
        return "REDUCE";
    case KERNEL_SCRATCH:
        return "SCRATCH";
    case KERNEL_INOUT | KERNEL_REDUCE:
        return "INOUT or REDUCE";
    default:
        return "no mode";
    }
}

/* "f32, f64 or i32" into out. */
static const char *dtypes_format(uint32_t dtypes, char out[160])
{
    size_t length = 0;

    out[0] = '\0';
    for (uint32_t dtype = PL_BOOL; dtype <= PL_C128; dtype++) {
        uint32_t rest = dtypes >> (dtype + 1);

        if ((dtypes & KERNEL_DTYPE(dtype)) == 0) {
            continue;
        }
        length += (size_t)snprintf(out + length, 160 - length, "%s%s", pl_dtype_name(dtype),
                                   rest == 0                  ? ""
                                   : (rest & (rest - 1)) == 0 ? " or "
                                                              : ", ");
    }
    return out;
}

/* INOUT is IN | OUT, so the set INOUT | REDUCE cannot be taken apart bit by bit. */
static bool mode_fits(uint32_t mode, uint32_t modes)
{
    return mode == modes ||
           ((modes & KERNEL_REDUCE) != 0 &&
            (mode == KERNEL_REDUCE || mode == (modes & ~(uint32_t)KERNEL_REDUCE)));
}

static plasmon_status_t check_arity(const struct kernel_function *function,
                                    uint32_t arg_count, uint32_t scalar_count,
                                    struct pl_err *err)
{
    uint32_t tensors = 0;
    uint32_t scalars = 0;
    bool variadic    = false;

    for (uint32_t i = 0; i < function->param_count; i++) {
        scalars += function->params[i].scalar;
        tensors += !function->params[i].scalar;
        variadic = variadic || function->params[i].variadic;
    }
    if (arg_count < tensors || (arg_count > tensors && !variadic)) {
        return pl_err_set(err, PLASMON_EARITY, "%s: got %u argument%s, takes %s%u: %s",
                          function->name, arg_count, arg_count == 1 ? "" : "s",
                          variadic ? "at least " : "", tensors, function->signature);
    }
    if (scalar_count != scalars) {
        return pl_err_set(err, PLASMON_EARITY, "%s: got %u scalar%s, takes %u: %s",
                          function->name, scalar_count, scalar_count == 1 ? "" : "s",
                          scalars, function->signature);
    }
    return PLASMON_OK;
}

static plasmon_status_t check_arg(const struct kernel_function *function,
                                  const struct kernel_param *param,
                                  const struct kernel_arg_shape *arg, struct pl_err *err)
{
    struct pl_err inner;
    char dtypes[160];

    pl_err_init(&inner);
    if (!mode_fits(arg->mode, param->modes)) {
        return pl_err_set(err, PLASMON_EINVAL, "%s: %s is passed as %s, needs %s",
                          function->name, param->name, mode_name(arg->mode),
                          mode_name(param->modes));
    }
    if ((arg->mode == KERNEL_OUT || arg->mode == KERNEL_SCRATCH) && !arg->given) {
        return PLASMON_OK;
    }
    if (pl_shape_check(&arg->shape, &inner) != PLASMON_OK) {
        return pl_err_set(err, inner.status, "%s: %s: %s", function->name, param->name,
                          inner.text);
    }
    if ((param->dtypes & KERNEL_DTYPE(arg->shape.dtype)) == 0) {
        return pl_err_set(err, PLASMON_EDTYPE, "%s: %s is %s, needs %s", function->name,
                          param->name, pl_dtype_name(arg->shape.dtype),
                          dtypes_format(param->dtypes, dtypes));
    }
    return PLASMON_OK;
}

/* What is no yes and no no may be a value that was meant for another scalar. */
static plasmon_status_t check_flags(const struct kernel_function *function,
                                    const union kernel_scalar *scalars, struct pl_err *err)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < function->param_count; i++) {
        const struct kernel_param *param = &function->params[i];

        if (!param->scalar) {
            continue;
        }
        if (param->is_flag && (uint64_t)scalars[next].i > 1) {
            return pl_err_set(err, PLASMON_EINVAL, "%s: %s is %lld, needs 0 or 1",
                              function->name, param->name, (long long)scalars[next].i);
        }
        next++;
    }
    return PLASMON_OK;
}

/* An output may be larger than its inputs (broadcasting): check what came out. */
static plasmon_status_t check_outputs(const struct kernel_function *function,
                                      const struct kernel_arg_shape *args,
                                      uint32_t arg_count, struct pl_err *err)
{
    struct pl_err inner;

    pl_err_init(&inner);
    for (uint32_t i = 0; i < arg_count; i++) {
        if ((args[i].mode == KERNEL_OUT || args[i].mode == KERNEL_SCRATCH) &&
            pl_shape_check(&args[i].shape, &inner) != PLASMON_OK) {
            return pl_err_set(err, inner.status, "%s: output %u: %s", function->name, i,
                              inner.text);
        }
    }
    return PLASMON_OK;
}

plasmon_status_t kernel_check(const struct kernel_function *function,
                              struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count,
                              struct pl_err *err)
{
    plasmon_status_t status;
    uint32_t next = 0;

    status = check_arity(function, arg_count, scalar_count, err);
    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < function->param_count; i++) {
        const struct kernel_param *param = &function->params[i];

        if (param->scalar) {
            continue;
        }
        do {
            status = check_arg(function, param, &args[next], err);
            if (status != PLASMON_OK) {
                return status;
            }
            next++;
        } while (param->variadic && next < arg_count);
    }
    status = check_flags(function, scalars, err);
    if (status == PLASMON_OK) {
        status = function->infer(function, args, arg_count, scalars, scalar_count, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    return check_outputs(function, args, arg_count, err);
}
