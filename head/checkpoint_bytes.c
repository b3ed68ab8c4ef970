/*
 * What a checkpoint is made of: numbers, texts, geometry; and reading them from bytes that may be
 * anything.
 */
#include <string.h>

#include "head/checkpoint.h"

void head_save_bytes(struct head_bytes *out, const void *data, size_t length)
{
    head_bytes_varint(out, length);
    head_bytes_append(out, data, length);
}

void head_save_text(struct head_bytes *out, const char *text)
{
    head_save_bytes(out, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

/* Coordinates are not negative. */
static void save_sides(struct head_bytes *out, uint32_t ndim, const int64_t *sides)
{
    for (uint32_t d = 0; d < ndim; d++) {
        head_bytes_varint(out, (uint64_t)sides[d]);
    }
}

void head_save_box(struct head_bytes *out, const struct pl_box *box)
{
    head_bytes_varint(out, box->ndim);
    save_sides(out, box->ndim, box->start);
    save_sides(out, box->ndim, box->count);
}

void head_save_shape(struct head_bytes *out, const struct pl_shape *shape)
{
    head_bytes_varint(out, shape->dtype);
    head_bytes_varint(out, shape->ndim);
    save_sides(out, shape->ndim, shape->dim);
}

void head_save_view(struct head_bytes *out, const struct pl_view *view)
{
    head_bytes_varint(out, view->ndim);
    save_sides(out, view->ndim, view->start);
    save_sides(out, view->ndim, view->count);
    save_sides(out, view->ndim, view->step);
}

/* ----------------------------------------------------------------------------------- in */

uint64_t head_load_number(struct head_reader *in)
{
    uint64_t value = 0;

    for (unsigned shift = 0; !in->bad && shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;

        if (shift == 63 && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    in->bad = true;
    return 0;
}

uint64_t head_load_below(struct head_reader *in, uint64_t most)
{
    uint64_t value = head_load_number(in);

    if (value > most) {
        in->bad = true;
    }
    return in->bad ? 0 : value;
}

size_t head_load_count(struct head_reader *in)
{
    return (size_t)head_load_below(in, (uint64_t)(in->end - in->at));
}

bool head_load_flag(struct head_reader *in)
{
    return head_load_below(in, 1) != 0;
}

const uint8_t *head_load_bytes(struct head_reader *in, size_t *out_length)
{
    size_t length        = head_load_count(in);
    const uint8_t *bytes = in->at;

    if (!in->bad && length > (size_t)(in->end - in->at)) {
        in->bad = true;
    }
    *out_length = in->bad ? 0 : length;
    in->at += *out_length;
    return in->bad ? NULL : bytes;
}

char *head_load_text(struct head_reader *in)
{
    size_t length;
    const uint8_t *bytes = head_load_bytes(in, &length);
    char *text           = head_alloc(length + 1);

    if (length > 0) {
        memcpy(text, bytes, length);
        if (memchr(text, '\0', length) != NULL) {
            in->bad = true;
        }
    }
    return text;
}

static uint32_t load_ndim(struct head_reader *in)
{
    return (uint32_t)head_load_below(in, PL_DIM_MAX);
}

static void load_sides(struct head_reader *in, uint32_t ndim, uint64_t least,
                       int64_t out[PL_DIM_MAX])
{
    for (uint32_t d = 0; d < ndim; d++) {
        out[d] = (int64_t)head_load_below(in, WIRE_VALUE_BYTES_MAX);
        if ((uint64_t)out[d] < least) {
            in->bad = true;
            out[d]  = (int64_t)least;
        }
    }
}

void head_load_box(struct head_reader *in, struct pl_box *out)
{
    memset(out, 0, sizeof(*out));
    out->ndim = load_ndim(in);
    load_sides(in, out->ndim, 0, out->start);
    load_sides(in, out->ndim, 1, out->count);
}

void head_load_shape(struct head_reader *in, struct pl_shape *out)
{
    struct pl_err err;

    memset(out, 0, sizeof(*out));
    out->dtype = (uint32_t)head_load_below(in, UINT32_MAX);
    out->ndim  = load_ndim(in);
    load_sides(in, out->ndim, 1, out->dim);
    if (!in->bad && pl_shape_check(out, &err) != PLASMON_OK) {
        in->bad = true;
    }
}

void head_load_view(struct head_reader *in, struct pl_view *out)
{
    memset(out, 0, sizeof(*out));
    out->ndim = load_ndim(in);
    load_sides(in, out->ndim, 0, out->start);
    load_sides(in, out->ndim, 1, out->count);
    load_sides(in, out->ndim, 1, out->step);
}
