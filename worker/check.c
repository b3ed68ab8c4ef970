#include "worker/check.h"

#include <string.h>

#include "base/alloc.h"

#define CHECK_ARGS_MAX 64u /* calls with more are not checked */
#define SLOT_BYTES \
    (2u * sizeof(uint64_t)) /* before and after, or of the first and the second run */
#define SLOTS_BYTES    (CHECK_ARGS_MAX * SLOT_BYTES)
#define PATTERN_FIRST  0xa5
#define PATTERN_SECOND 0x5a

/* What is on its way to the host. */
struct pending {
    struct worker_check *check;
    uint64_t seq;
    const struct kernel_function *function; /* stays while the launch is unfinished */
    uint32_t arg_count;
    uint32_t modes[];
};

/* A run while it is enqueued. */
struct checking {
    struct worker_check *check;
    struct device_stream *stream;
    const struct kernel_arg *args;
    uint32_t arg_count;
    struct device_ptr slots;
    /* dense copies of what is restored, one after the other; then room for patterns */
    struct device_ptr saved;
    uint64_t tag;
    struct pl_err *err;
};

/* -------------------------------------------------------------------------------- sizes */

static uint64_t bytes_of(const struct kernel_arg *arg)
{
    uint64_t bytes = pl_dtype_bytes(arg->dtype);

    for (uint32_t i = 0; i < arg->ndim; i++) {
        bytes *= (uint64_t)arg->dim[i];
    }
    return pl_round_up(bytes, 256);
}

static bool restores(const struct kernel_arg *arg)
{
    return arg->mode == KERNEL_INOUT || arg->mode == KERNEL_REDUCE;
}

uint64_t worker_check_scratch(const struct worker_check *check,
                              const struct kernel_arg *args, uint32_t arg_count)
{
    uint64_t bytes   = SLOTS_BYTES;
    uint64_t pattern = 0;

    if (!check->on || arg_count > CHECK_ARGS_MAX) {
        return 0;
    }
    for (uint32_t i = 0; i < arg_count; i++) {
        if (restores(&args[i])) {
            bytes += bytes_of(&args[i]);
        } else if (args[i].mode == KERNEL_OUT) {
            pattern = pl_max_u64(pattern, bytes_of(&args[i]));
        }
    }
    return bytes + pattern;
}

/* -------------------------------------------------------------------------------- steps */

/* The same array without gaps, at `data`. */
static struct kernel_arg compact(const struct kernel_arg *arg, struct device_ptr data)
{
    struct kernel_arg dense = *arg;
    int64_t stride          = 1;

    dense.data = data;
    for (uint32_t i = arg->ndim; i-- > 0;) {
        dense.stride[i] = stride;
        stride *= arg->dim[i];
    }
    return dense;
}

static plasmon_status_t copy(const struct checking *c, const struct kernel_arg *to,
                             const struct kernel_arg *from)
{
    struct kernel_arg args[] = {*to, *from};

    args[0].mode = KERNEL_OUT;
    args[1].mode = KERNEL_IN;
    return kernel_run(*c->check->kernels, c->stream, kernel_by_name("copy"), args, 2, NULL,
                      0, (struct device_ptr){0}, 0, c->tag, c->err);
}

/* Into slot number 2 * arg + which. */
static plasmon_status_t hash(const struct checking *c, uint32_t arg, uint32_t which)
{
    struct kernel_arg args[] = {
        {.mode  = KERNEL_OUT,
         .dtype = PL_U64,
         .data  = device_ptr_add(c->slots, arg * SLOT_BYTES + which * sizeof(uint64_t))},
        c->args[arg]};

    args[1].mode = KERNEL_IN;
    return kernel_run(*c->check->kernels, c->stream, kernel_by_name("checksum"), args, 2,
                      NULL, 0, (struct device_ptr){0}, 0, c->tag, c->err);
}

static plasmon_status_t hash_all(const struct checking *c, uint32_t mode, uint32_t which)
{
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < c->arg_count; i++) {
        if (c->args[i].mode == mode) {
            status = hash(c, i, which);
        }
    }
    return status;
}

/* Copies aside, or back; *out_end is behind them. */
static plasmon_status_t save(const struct checking *c, bool back,
                             struct device_ptr *out_end)
{
    struct device_ptr at    = c->saved;
    plasmon_status_t status = PLASMON_OK;

    for (uint32_t i = 0; status == PLASMON_OK && i < c->arg_count; i++) {
        if (restores(&c->args[i])) {
            struct kernel_arg aside = compact(&c->args[i], at);

            status = back ? copy(c, &c->args[i], &aside) : copy(c, &aside, &c->args[i]);
            at     = device_ptr_add(at, bytes_of(&c->args[i]));
        }
    }
    *out_end = at;
    return status;
}

/* Every OUT argument, and nothing between its elements. */
static plasmon_status_t fill(const struct checking *c, struct device_ptr room,
                             uint8_t pattern, uint32_t *out_count)
{
    plasmon_status_t status = PLASMON_OK;

    *out_count = 0;
    for (uint32_t i = 0; status == PLASMON_OK && i < c->arg_count; i++) {
        if (c->args[i].mode == KERNEL_OUT) {
            struct kernel_arg dense = compact(&c->args[i], room);

            status = device_fill8(c->stream, room, pattern, bytes_of(&c->args[i]));
            if (status == PLASMON_OK) {
                status = copy(c, &c->args[i], &dense);
            }
            (*out_count)++;
        }
    }
    return status;
}

static plasmon_status_t run_checked(const struct checking *c, worker_check_run_fn run,
                                    void *user)
{
    struct device_ptr room;
    uint32_t outputs;
    plasmon_status_t status = hash_all(c, KERNEL_IN, 0);

    if (status == PLASMON_OK) {
        status = save(c, false, &room);
    }
    if (status == PLASMON_OK) {
        status = fill(c, room, PATTERN_FIRST, &outputs);
    }
    if (status == PLASMON_OK) {
        status = run(user, c->err);
    }
    if (status == PLASMON_OK && outputs > 0) {
        status = hash_all(c, KERNEL_OUT, 0);
        if (status == PLASMON_OK) {
            status = save(c, true, &room);
        }
        if (status == PLASMON_OK) {
            status = fill(c, room, PATTERN_SECOND, &outputs);
        }
        if (status == PLASMON_OK) {
            status = run(user, c->err);
        }
        if (status == PLASMON_OK) {
            status = hash_all(c, KERNEL_OUT, 1);
        }
    }
    return status == PLASMON_OK ? hash_all(c, KERNEL_IN, 1) : status;
}

/* -------------------------------------------------------------------------------- a run */

static struct worker_inline *reads_of(struct worker_check *check, uint32_t stream)
{
    if (!check->ready[stream]) {
        check->ready[stream] =
            worker_inline_init(&check->reads[stream], check->device) == PLASMON_OK;
    }
    return check->ready[stream] ? &check->reads[stream] : NULL;
}

static struct pending *pending_create(struct worker_check *check,
                                      const struct kernel_function *function,
                                      const struct kernel_arg *args, uint32_t arg_count,
                                      uint64_t seq)
{
    struct pending *pending =
        pl_alloc(sizeof(*pending) + arg_count * sizeof(pending->modes[0]));

    if (pending != NULL) {
        *pending = (struct pending){
            .check = check, .seq = seq, .function = function, .arg_count = arg_count};
        for (uint32_t i = 0; i < arg_count; i++) {
            pending->modes[i] = args[i].mode;
        }
    }
    return pending;
}

plasmon_status_t worker_check_run(struct worker_check *check, uint32_t stream_number,
                                  struct device_stream *stream,
                                  const struct kernel_function *function,
                                  const struct kernel_arg *args, uint32_t arg_count,
                                  struct device_ptr scratch, uint64_t tag,
                                  worker_check_run_fn run, void *user, struct pl_err *err)
{
    const struct checking checking = {.check     = check,
                                      .stream    = stream,
                                      .args      = args,
                                      .arg_count = arg_count,
                                      .slots     = scratch,
                                      .saved     = device_ptr_add(scratch, SLOTS_BYTES),
                                      .tag       = tag,
                                      .err       = err};
    struct worker_inline *reads;
    struct pending *pending;
    plasmon_status_t status;

    if (arg_count == 0 || arg_count > CHECK_ARGS_MAX) {
        return run(user, err);
    }
    reads   = reads_of(check, stream_number);
    pending = reads == NULL ? NULL : pending_create(check, function, args, arg_count, tag);
    if (pending == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "%s: no memory to check it", function->name);
    }
    /* Slots of arguments that are not hashed are equal too. */
    status = device_fill8(stream, scratch, 0, arg_count * SLOT_BYTES);
    if (status == PLASMON_OK) {
        status = run_checked(&checking, run, user);
    }
    if (status == PLASMON_OK) {
        status = worker_inline_read(reads, stream, scratch, arg_count * SLOT_BYTES,
                                    (uint64_t)(uintptr_t)pending);
    }
    if (status != PLASMON_OK) {
        pl_free(pending);
    }
    return status;
}

/* --------------------------------------------------------------------------- the answer */

/* Of the i-th tensor; a variadic parameter names all that follow. */
static const char *arg_name(const struct kernel_function *function, uint32_t index)
{
    const char *name = "?";

    for (uint32_t i = 0, seen = 0; i < function->param_count && seen <= index; i++) {
        if (!function->params[i].scalar) {
            name = function->params[i].name;
            seen++;
        }
    }
    return name;
}

/* The first argument of this mode whose hashes differ; arg_count: none. */
static uint32_t differs(const struct pending *pending, const uint8_t *bytes, uint32_t mode)
{
    uint32_t i = 0;

    while (i < pending->arg_count &&
           (pending->modes[i] != mode ||
            memcmp(bytes + (size_t)i * SLOT_BYTES,
                   bytes + (size_t)i * SLOT_BYTES + sizeof(uint64_t),
                   sizeof(uint64_t)) == 0)) {
        i++;
    }
    return i;
}

static void judge(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    struct pending *pending = (struct pending *)(uintptr_t)request;
    struct pl_err err       = {.status = PLASMON_OK};
    uint32_t in, out;

    (void)user;
    PL_CHECK(length == (uint64_t)pending->arg_count * SLOT_BYTES);
    in  = differs(pending, bytes, KERNEL_IN); /* first: outputs may differ because of it */
    out = differs(pending, bytes, KERNEL_OUT);
    if (in < pending->arg_count) {
        (void)pl_err_set(&err, PLASMON_EFUNCTION,
                         "check: %s wrote into %s, which its signature calls in",
                         pending->function->name, arg_name(pending->function, in));
    } else if (out < pending->arg_count) {
        (void)pl_err_set(&err, PLASMON_EFUNCTION,
                         "check: %s left elements of %s unwritten, or writes other values "
                         "each time it runs",
                         pending->function->name, arg_name(pending->function, out));
    }
    if (err.status != PLASMON_OK) {
        worker_core_failed(*pending->check->core, pending->seq, err.status, err.text);
    }
    pl_free(pending);
}

void worker_check_collect(struct worker_check *check)
{
    for (uint32_t i = 0; check->on && i < STORE_STREAM_MAX; i++) {
        if (check->ready[i]) {
            worker_inline_collect(&check->reads[i], judge, check);
        }
    }
}

static void forget(void *user, uint64_t request, const uint8_t *bytes, uint64_t length)
{
    (void)user;
    (void)bytes;
    (void)length;
    pl_free((struct pending *)(uintptr_t)request);
}

void worker_check_finish(struct worker_check *check)
{
    for (uint32_t i = 0; i < STORE_STREAM_MAX; i++) {
        if (check->ready[i]) {
            worker_inline_collect(&check->reads[i], forget, NULL);
            worker_inline_finish(&check->reads[i]);
            check->ready[i] = false;
        }
    }
}
