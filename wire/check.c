/*
 * Checks that several messages share: counts, bytes, text, headers, ranges and the geometry lists.
 *
 * They prove only that a message is well formed: what is here cannot overflow, cannot be read out
 * of bounds and cannot stand for an absurd amount of memory. Whether a ref exists or a view fits
 * its root is for those who know the root.
 */
#include "wire/wire_int.h"

#include <string.h>

#include "base/text.h"

plasmon_status_t check_below(struct pl_err *err, plasmon_status_t status, const char *name,
                             long index)
{
    char inner[sizeof(err->text)];

    if (err == NULL) {
        return status;
    }

    memcpy(inner, err->text, sizeof(inner));
    inner[sizeof(inner) - 1] = '\0';
    if (index < 0) {
        return pl_err_set(err, status, "%s: %s", name, inner);
    }
    return pl_err_set(err, status, "%s[%ld]: %s", name, index, inner);
}

plasmon_status_t check_count(size_t count, size_t max, const char *name, struct pl_err *err)
{
    if (count > max) {
        return pl_err_set(err, PLASMON_ELIMIT, "%zu %s in one message; the limit is %zu",
                          count, name, max);
    }
    return PLASMON_OK;
}

plasmon_status_t check_bytes(const ProtobufCBinaryData *data, size_t max, const char *name,
                             struct pl_err *err)
{
    if (data->len > max) {
        return pl_err_set(err, PLASMON_ELIMIT, "%s has %zu bytes; the limit is %zu", name,
                          data->len, max);
    }
    return PLASMON_OK;
}

/*
 * Bytes of the UTF-8 sequence at `s` (of `left` bytes), or 0: over-long, a surrogate, past
 * U+10FFFF, cut off, stray.
 */
static size_t utf8_sequence(const uint8_t *s, size_t left)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes                   = s[0] < 0x80   ? 1
                                     : s[0] < 0xc0 ? 0
                                     : s[0] < 0xe0 ? 2
                                     : s[0] < 0xf0 ? 3
                                                   : 4;
    uint32_t code;

    if (bytes == 0 || bytes > left || s[0] > 0xf4) {
        return 0;
    }
    if (bytes == 1) {
        return 1;
    }

    code = s[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (s[i] & 0x3fu);
    }
    if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return 0;
    }
    return bytes;
}

plasmon_status_t check_text(const char *text, size_t max, const char *name,
                            struct pl_err *err)
{
    size_t length        = wire_arena_text_length(text);
    const uint8_t *bytes = (const uint8_t *)text;

    if (length > max) {
        return pl_err_set(err, PLASMON_ELIMIT, "%s has %zu bytes; the limit is %zu", name,
                          length, max);
    }

    for (size_t i = 0; i < length;) {
        size_t step;

        if (bytes[i] == 0) {
            return pl_err_set(err, PLASMON_EMALFORMED, "%s has a NUL at byte %zu", name, i);
        }
        step = utf8_sequence(bytes + i, length - i);
        if (step == 0) {
            return pl_err_set(err, PLASMON_EMALFORMED, "%s is not UTF-8 at byte %zu", name,
                              i);
        }
        i += step;
    }
    return PLASMON_OK;
}

plasmon_status_t check_name(const char *text, size_t max, const char *name,
                            struct pl_err *err)
{
    size_t length           = wire_arena_text_length(text);
    plasmon_status_t status = length == 0 ? PLASMON_OK : check_text(text, max, name, err);
    size_t at;

    if (length == 0 || status != PLASMON_OK) {
        return status;
    }
    at = pl_text_control(text, length);

    return at == length ? status
                        : pl_err_set(err, PLASMON_EMALFORMED,
                                     "%s has a control character at byte %zu", name, at);
}

plasmon_status_t check_header(const Plasmon__V1__Header *header, struct pl_err *err)
{
    if (header == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "it has no header");
    }
    if (header->protocol != WIRE_PROTOCOL) {
        return pl_err_set(
            err, PLASMON_EVERSION,
            "the peer speaks protocol %u, this program %u: use matching releases",
            header->protocol, WIRE_PROTOCOL);
    }
    return PLASMON_OK;
}

plasmon_status_t check_ranges(size_t n, Plasmon__V1__Range *const *ranges, const char *name,
                              struct pl_err *err)
{
    plasmon_status_t status = check_count(n, WIRE_RANGES_MAX, name, err);

    for (size_t i = 0; status == PLASMON_OK && i < n; i++) {
        const Plasmon__V1__Range *range = ranges[i];

        if (range->first == 0 || range->count == 0 ||
            range->count - 1 > UINT64_MAX - range->first) {
            status = pl_err_set(err, PLASMON_EMALFORMED,
                                "%s[%zu] is no range: first %llu, count %llu", name, i,
                                (unsigned long long)range->first,
                                (unsigned long long)range->count);
        }
    }
    return status;
}

plasmon_status_t check_shape(const Plasmon__V1__Shape *shape, struct pl_err *err)
{
    struct pl_shape unused;
    plasmon_status_t status;

    if (shape == NULL) {
        return PLASMON_OK;
    }
    status = wire_shape_get(shape, &unused, err);
    return status == PLASMON_OK ? status : check_below(err, status, "shape", -1);
}

/* One dimension of a view: the last element touched is start + (count - 1) * step. */
static bool dimension_ok(int64_t start, int64_t count, int64_t step)
{
    int64_t last;

    return start >= 0 && count >= 1 && step >= 1 &&
           !__builtin_mul_overflow(count - 1, step, &last) &&
           !__builtin_add_overflow(last, start, &last) && last < INT64_MAX;
}

plasmon_status_t check_view_numbers(size_t n, const int64_t *numbers, const char *name,
                                    struct pl_err *err)
{
    if (n % 3 != 0 || n > 3 * PL_DIM_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "%s has %zu numbers, not 3 for each of at most %d dimensions",
                          name, n, PL_DIM_MAX);
    }
    for (size_t i = 0; i < n; i += 3) {
        if (!dimension_ok(numbers[i], numbers[i + 1], numbers[i + 2])) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "%s dimension %zu is start %lld, count %lld, step %lld", name,
                              i / 3, (long long)numbers[i], (long long)numbers[i + 1],
                              (long long)numbers[i + 2]);
        }
    }
    return PLASMON_OK;
}

/* `lowest`: of a start. */
static plasmon_status_t check_box_from(size_t n, const int64_t *numbers, int64_t lowest,
                                       const char *name, struct pl_err *err)
{
    uint64_t elements = 1;

    if (n % 2 != 0 || n > 2 * PL_DIM_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "%s has %zu numbers, not 2 for each of at most %d dimensions",
                          name, n, PL_DIM_MAX);
    }
    for (size_t i = 0; i < n; i += 2) {
        if (numbers[i] < lowest ||
            !dimension_ok(numbers[i] < 0 ? 0 : numbers[i], numbers[i + 1], 1) ||
            __builtin_mul_overflow(elements, (uint64_t)numbers[i + 1], &elements) ||
            elements > WIRE_VALUE_BYTES_MAX) {
            return pl_err_set(err, PLASMON_EMALFORMED,
                              "%s dimension %zu is start %lld, count %lld", name, i / 2,
                              (long long)numbers[i], (long long)numbers[i + 1]);
        }
    }
    return PLASMON_OK;
}

plasmon_status_t check_box_numbers(size_t n, const int64_t *numbers, const char *name,
                                   struct pl_err *err)
{
    return check_box_from(n, numbers, 0, name, err);
}

plasmon_status_t check_source_numbers(size_t n, const int64_t *numbers, const char *name,
                                      struct pl_err *err)
{
    return check_box_from(n, numbers, -(int64_t)WIRE_VALUE_BYTES_MAX, name, err);
}

plasmon_status_t check_mode(uint32_t mode, struct pl_err *err)
{
    if (mode > PLASMON__V1__MODE__MODE_REDUCE && mode != PLASMON__V1__MODE__MODE_SCRATCH) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "mode %u is none of IN, OUT, INOUT, REDUCE, SCRATCH", mode);
    }
    return PLASMON_OK;
}

plasmon_status_t check_graph_scalars(size_t n, Plasmon__V1__GraphScalar *const *scalars,
                                     struct pl_err *err)
{
    plasmon_status_t status = check_count(n, WIRE_RANGES_MAX, "set", err);

    for (size_t i = 0; status == PLASMON_OK && i < n; i++) {
        if (scalars[i]->task >= WIRE_GRAPH_NODES_MAX ||
            scalars[i]->position >= WIRE_SCALARS_MAX) {
            status = pl_err_set(err, PLASMON_EMALFORMED,
                                "set[%zu]: scalar %u of recorded task %u", i,
                                scalars[i]->position, scalars[i]->task);
        }
    }
    return status;
}
