/*
 * Our statuses and gRPC's, tokens in metadata, and pieces of text. Both ways are lossy, so our
 * number travels beside gRPC's code in trailing metadata; a peer that does not send it (a proxy,
 * the core itself) is understood by its code.
 */
#include "rpc/grpc_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"

/* headers are limited to 8 KiB, and may triple in size when escaped */
#define STATUS_WHY_BYTES_MAX 1000u

static const struct {
    plasmon_status_t status;
    grpc_status_code code;
} status_table[] = {
    /* The first line of a code is what the code means to us; the others only go out. */
    {PLASMON_OK, GRPC_STATUS_OK},
    {PLASMON_ECANCELLED, GRPC_STATUS_CANCELLED},
    {PLASMON_EINVAL, GRPC_STATUS_INVALID_ARGUMENT},
    {PLASMON_ETIMEDOUT, GRPC_STATUS_DEADLINE_EXCEEDED},
    {PLASMON_ENOENT, GRPC_STATUS_NOT_FOUND},
    {PLASMON_EEXIST, GRPC_STATUS_ALREADY_EXISTS},
    {PLASMON_EPERM, GRPC_STATUS_PERMISSION_DENIED},
    {PLASMON_ELIMIT, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_EVERSION, GRPC_STATUS_FAILED_PRECONDITION},
    {PLASMON_EAGAIN, GRPC_STATUS_ABORTED},
    {PLASMON_ERANGE, GRPC_STATUS_OUT_OF_RANGE},
    {PLASMON_ENOTSUP, GRPC_STATUS_UNIMPLEMENTED},
    {PLASMON_EINTERNAL, GRPC_STATUS_INTERNAL},
    {PLASMON_ECLOSED, GRPC_STATUS_UNAVAILABLE},
    {PLASMON_ELOST, GRPC_STATUS_DATA_LOSS},
    {PLASMON_EAUTH, GRPC_STATUS_UNAUTHENTICATED},
    {PLASMON_EMALFORMED, GRPC_STATUS_INVALID_ARGUMENT},
    {PLASMON_ESHAPE, GRPC_STATUS_INVALID_ARGUMENT},
    {PLASMON_EDTYPE, GRPC_STATUS_INVALID_ARGUMENT},
    {PLASMON_EARITY, GRPC_STATUS_INVALID_ARGUMENT},
    {PLASMON_ENOFUNCTION, GRPC_STATUS_NOT_FOUND},
    {PLASMON_ERELEASED, GRPC_STATUS_NOT_FOUND},
    {PLASMON_EHEADLOST, GRPC_STATUS_NOT_FOUND},
    {PLASMON_ENOMEM, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_EDEVMEM, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_ENOSPC, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_ETOOBIG, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_EQUOTA, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PLASMON_ECONNECT, GRPC_STATUS_UNAVAILABLE},
};

grpc_status_code rpc_status_to_grpc(plasmon_status_t status)
{
    for (size_t i = 0; i < PL_COUNT(status_table); i++) {
        if (status_table[i].status == status) {
            return status_table[i].code;
        }
    }
    return GRPC_STATUS_UNKNOWN;
}

/* UNAVAILABLE means ECLOSED once connected, ECONNECT before. */
static plasmon_status_t status_from_grpc(grpc_status_code code, bool connected)
{
    if (code == GRPC_STATUS_UNAVAILABLE && !connected) {
        return PLASMON_ECONNECT;
    }
    for (size_t i = 0; i < PL_COUNT(status_table); i++) {
        if (status_table[i].code == code) {
            return status_table[i].status;
        }
    }
    return PLASMON_EINTERNAL;
}

static bool slice_is(grpc_slice slice, const char *text)
{
    size_t length = strlen(text);

    return GRPC_SLICE_LENGTH(slice) == length &&
           memcmp(GRPC_SLICE_START_PTR(slice), text, length) == 0;
}

static bool status_known(long number)
{
#define XX(name, value, text) \
    if (number == (value)) {  \
        return true;          \
    }
    PLASMON_STATUS_MAP(XX)
#undef XX
    return false;
}

plasmon_status_t rpc_status_of_call(grpc_status_code code,
                                    const grpc_metadata_array *trailing, bool connected)
{
    for (size_t i = 0; i < trailing->count; i++) {
        const grpc_metadata *metadata = &trailing->metadata[i];
        char number[16]               = "";
        long value;

        if (!slice_is(metadata->key, RPC_STATUS_KEY)) {
            continue;
        }
        if (GRPC_SLICE_LENGTH(metadata->value) >= sizeof(number)) {
            break;
        }
        memcpy(number, GRPC_SLICE_START_PTR(metadata->value),
               GRPC_SLICE_LENGTH(metadata->value));
        value = strtol(number, NULL, 10);
        if (status_known(value) && (value == PLASMON_OK) == (code == GRPC_STATUS_OK)) {
            return (plasmon_status_t)value;
        }
        break;
    }
    return status_from_grpc(code, connected);
}

grpc_op rpc_status_op(struct rpc_status_storage *storage, plasmon_status_t status,
                      const char *why)
{
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};

    (void)snprintf(storage->number, sizeof(storage->number), "%d", (int)status);
    storage->metadata = (grpc_metadata){
        .key   = grpc_slice_from_static_string(RPC_STATUS_KEY),
        .value = grpc_slice_from_copied_string(storage->number),
    };
    storage->details =
        grpc_slice_from_copied_buffer(why, strnlen(why, STATUS_WHY_BYTES_MAX));

    op.data.send_status_from_server.trailing_metadata_count = 1;
    op.data.send_status_from_server.trailing_metadata       = &storage->metadata;
    op.data.send_status_from_server.status                  = rpc_status_to_grpc(status);
    op.data.send_status_from_server.status_details          = &storage->details;
    return op;
}

void rpc_status_storage_finish(struct rpc_status_storage *storage)
{
    grpc_slice_unref(storage->metadata.value);
    grpc_slice_unref(storage->details);
}

char *rpc_text_of_slice(grpc_slice slice)
{
    size_t length = GRPC_SLICE_LENGTH(slice);
    char *text    = pl_alloc(length + 1);

    if (text != NULL) {
        memcpy(text, GRPC_SLICE_START_PTR(slice), length);
    }
    return text;
}

char *rpc_text_of_metadata(const grpc_metadata_array *metadata, const char *key)
{
    for (size_t i = 0; i < metadata->count; i++) {
        if (slice_is(metadata->metadata[i].key, key)) {
            return rpc_text_of_slice(metadata->metadata[i].value);
        }
    }
    return NULL;
}

bool rpc_token_of_metadata(const grpc_metadata_array *metadata, char **out_token)
{
    static const char bearer[] = "Bearer ";
    const size_t prefix        = sizeof(bearer) - 1;

    *out_token = NULL;
    for (size_t i = 0; i < metadata->count; i++) {
        grpc_slice value = metadata->metadata[i].value;

        if (slice_is(metadata->metadata[i].key, "authorization") &&
            GRPC_SLICE_LENGTH(value) >= prefix &&
            strncasecmp((const char *)GRPC_SLICE_START_PTR(value), bearer, prefix) == 0) {
            char *text = pl_fault_point("rpc.token") ? NULL : rpc_text_of_slice(value);

            if (text == NULL) {
                return false;
            }
            memmove(text, text + prefix, strlen(text + prefix) + 1);
            *out_token = text;
            return true;
        }
    }
    return true;
}

bool rpc_token_equal(const char *want, const char *got)
{
    size_t want_length = strlen(want), got_length = strlen(got);
    volatile unsigned char differs = want_length != got_length;

    for (size_t i = 0; i < want_length; i++) {
        /* Of a short one the end is compared again and again; the answer is no anyway. */
        char other = got[i < got_length ? i : got_length];

        differs = (unsigned char)(differs | (want[i] ^ other));
    }
    return differs == 0;
}

gpr_timespec rpc_deadline_ns(uint64_t deadline_ns)
{
    if (deadline_ns == 0) {
        return gpr_inf_past(GPR_CLOCK_MONOTONIC);
    }
    if (deadline_ns >= INT64_MAX) {
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    }
    return gpr_time_from_nanos((int64_t)deadline_ns, GPR_CLOCK_MONOTONIC);
}

gpr_timespec rpc_deadline_ms(uint32_t after_ms)
{
    return rpc_deadline_ns(pl_now_ns() + (uint64_t)after_ms * 1000000u);
}
