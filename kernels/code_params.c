/*
 * Does a kernel take what the signature gives? The driver is handed one address a parameter and
 * asks nobody: a kernel with more of them than the signature has would read addresses that are
 * none, and one with others would compute with other numbers.
 *
 * What it takes stands in the PTX that NVRTC makes beside the machine code:
 *
 *     .visible .entry saxpy(
 *         .param .u64 .ptr .align 1 saxpy_param_0,
 *         .param .f32 saxpy_param_1,
 *         .param .align 4 .b8 saxpy_param_2[12]
 *     )
 *
 * So numbers, sizes, and floats that are taken for integers are found; what a pointer points to is
 * not known there, and signs are not looked at. PTX that is not written so says nothing against a
 * kernel.
 */
#include "kernels/code_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one parameter is. */
struct param {
    uint32_t bytes;
    /* 'f': a float; 'u': an integer or a pointer; 'b': bits, which may be either */
    char kind;
    char text[24]; /* "f32", or "12 bytes" */
};

/* -------------------------------------------------------------------------- reading PTX */

/* Behind the name and its parenthesis. */
static const char *entry_params(const char *ptx, const char *symbol)
{
    size_t length = strlen(symbol);

    for (const char *at = ptx; (at = strstr(at, ".entry")) != NULL;) {
        at += strlen(".entry");
        at += strspn(at, " \t\n");
        if (strncmp(at, symbol, length) != 0) {
            continue;
        }
        at += length;
        at += strspn(at, " \t\n");
        if (*at == '(') {
            return at + 1;
        }
    }
    return NULL;
}

/* ".f32": its kind and size. false: it is no type. */
static bool type_read(const char *word, size_t length, struct param *out)
{
    char *end = NULL;
    unsigned long bits;

    if (length < 3 || strchr("usbf", word[1]) == NULL) {
        return false;
    }
    bits = strtoul(word + 2, &end, 10);
    if (end != word + length || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) {
        return false;
    }
    out->kind  = word[1] == 's' ? 'u' : word[1];
    out->bytes = (uint32_t)bits / 8;
    (void)snprintf(out->text, sizeof(out->text), "%.*s", (int)length - 1, word + 1);
    return true;
}

/* One parameter of the list, up to the comma or parenthesis behind it. NULL: it is not understood. */
static const char *param_read(const char *at, struct param *out)
{
    bool typed = false;

    at += strspn(at, " \t\n");
    if (strncmp(at, ".param", 6) != 0) {
        return NULL;
    }
    at += 6;
    for (;;) {
        size_t length;

        at += strspn(at, " \t\n");
        length = strcspn(at, " \t\n,)[");
        if (*at == ',' || *at == ')') {
            return typed ? at : NULL;
        }
        if (*at == '[') { /* a struct */
            char *end          = NULL;
            unsigned long many = strtoul(at + 1, &end, 10);

            if (!typed || *end != ']' || many > UINT32_MAX / 8) {
                return NULL;
            }
            out->bytes *= (uint32_t)many;
            out->kind = 'b';
            (void)snprintf(out->text, sizeof(out->text), "%u bytes", out->bytes);
            at = end + 1;
            continue;
        }
        if (length == 0) {
            return NULL;
        }
        if (*at == '.' && !typed) {
            typed = type_read(at, length, out);
        }
        at += length;
    }
}

/* ---------------------------------------------------------------------------- comparing */

struct comparison {
    const char *name;
    const char *entry;
    const struct param *params;
    uint32_t next;
};

static plasmon_status_t expect(struct comparison *comparison, uint32_t bytes, char kind,
                               const char *given, struct pl_err *err)
{
    const struct param *param = &comparison->params[comparison->next++];

    if (param->bytes == bytes && (param->kind == kind || param->kind == 'b')) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ECOMPILE,
                      "%s: parameter %u of the __global__ function %s is %s, and the "
                      "signature gives %s: let both be of one type",
                      comparison->name, comparison->next, comparison->entry, param->text,
                      given);
}

static plasmon_status_t compare(struct comparison *comparison,
                                const struct kernel_signature *signature,
                                struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    char given[2 * KERNEL_NAME_BYTES_MAX];

    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];
        bool is_float                  = slot->dtype == PL_F32 || slot->dtype == PL_F64;

        if (slot->kind != KERNEL_SLOT_TENSOR) {
            (void)snprintf(given, sizeof(given), "%s %s", pl_dtype_name(slot->dtype),
                           slot->name);
            status = expect(comparison, pl_dtype_bytes(slot->dtype), is_float ? 'f' : 'u',
                            given, err);
            continue;
        }
        (void)snprintf(given, sizeof(given), "a pointer, %s", slot->name);
        status = expect(comparison, sizeof(uint64_t), 'u', given, err);
        for (uint32_t d = 0; status == PLASMON_OK && slot->strided && d < slot->ndim; d++) {
            (void)snprintf(given, sizeof(given), "an i64, stride %u of %s", d, slot->name);
            status = expect(comparison, sizeof(int64_t), 'u', given, err);
        }
    }
    return status;
}

plasmon_status_t code_params_check(const char *ptx, const char *symbol,
                                   const struct kernel_signature *signature,
                                   const char *entry, struct pl_err *err)
{
    struct param params[KERNEL_VALUES_MAX + 1];
    struct comparison comparison = {
        .name = signature->function.name, .entry = entry, .params = params};
    const char *at = entry_params(ptx, symbol);
    uint32_t count = 0; /* at most one more than are kept */

    if (at == NULL) {
        return PLASMON_OK;
    }
    at += strspn(at, " \t\n");
    while (*at != ')' && count <= KERNEL_VALUES_MAX) {
        at = param_read(at, &params[count++]);
        if (at == NULL) {
            return PLASMON_OK;
        }
        at += *at == ',';
    }
    if (count != signature->value_count) {
        return pl_err_set(
            err, PLASMON_ECOMPILE,
            "%s: the __global__ function %s takes %s%u parameter%s, and the "
            "signature gives %u: a pointer for each tensor, with ~ a stride for "
            "each of its dimensions, and a value for each other name",
            signature->function.name, entry, count > KERNEL_VALUES_MAX ? "over " : "",
            count > KERNEL_VALUES_MAX ? KERNEL_VALUES_MAX : count, count == 1 ? "" : "s",
            signature->value_count);
    }
    return compare(&comparison, signature, err);
}
