/*
 * Signatures from text: parameters, and the whole. Names are resolved when all parameters are
 * known, since a scalar may come after the tensor whose dimension it names. See signature.h for the
 * grammar.
 */
#include "kernels/signature_int.h"

#include "base/alloc.h"

#include <string.h>

/* --------------------------------------------------------------------------- parameters */

static uint32_t dtype_of(struct kernel_word word)
{
    for (uint32_t dtype = PL_BOOL; dtype <= PL_C128; dtype++) {
        if (kernel_word_is(word, pl_dtype_name(dtype))) {
            return dtype;
        }
    }
    return 0;
}

static bool dtype_is_integer(uint32_t dtype)
{
    return dtype >= PL_BOOL && dtype <= PL_U64;
}

static plasmon_status_t need_dtype(struct kernel_parser *parser, struct kernel_word word,
                                   uint8_t *out_dtype)
{
    uint32_t dtype = dtype_of(word);

    if (dtype == 0) {
        parser->at = word.begin;
        return kernel_parser_expected(
            parser, "a dtype (bool, i8 .. u64, f16, bf16, f32, f64, c64, c128)");
    }
    *out_dtype = (uint8_t)dtype;
    return PLASMON_OK;
}

static plasmon_status_t parse_reduce_op(struct kernel_parser *parser, uint8_t *out_op)
{
    static const char *const names[] = {"sum", "prod", "min", "max"};
    plasmon_status_t status          = kernel_parser_need(parser, "(");
    struct kernel_word word;

    if (status == PLASMON_OK) {
        status = kernel_parser_word(parser, "sum, prod, min or max", &word);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        if (kernel_word_is(word, names[i])) {
            *out_op = (uint8_t)(KERNEL_SUM + i);
            return kernel_parser_need(parser, ")");
        }
    }
    parser->at = word.begin;
    return kernel_parser_expected(parser, "sum, prod, min or max");
}

static uint8_t mode_of(struct kernel_word word)
{
    static const struct {
        const char *name;
        uint8_t mode;
    } modes[] = {{"in", KERNEL_IN},
                 {"out", KERNEL_OUT},
                 {"inout", KERNEL_INOUT},
                 {"reduce", KERNEL_REDUCE},
                 {"scratch", KERNEL_SCRATCH}};

    for (size_t i = 0; i < PL_COUNT(modes); i++) {
        if (kernel_word_is(word, modes[i].name)) {
            return modes[i].mode;
        }
    }
    return 0;
}

static plasmon_status_t parse_dims(struct kernel_parser *parser, struct kernel_slot *slot)
{
    plasmon_status_t status = kernel_parser_need(parser, "[");

    if (status != PLASMON_OK || kernel_parser_take(parser, "]")) {
        return status;
    }
    do {
        struct kernel_symbol *symbol;

        if (slot->ndim == PL_DIM_MAX) {
            return kernel_parser_too_many(parser, "dimensions of one tensor", PL_DIM_MAX);
        }
        status = kernel_parser_expr(parser, &slot->dim[slot->ndim]);
        if (status != PLASMON_OK) {
            return status;
        }
        symbol = kernel_expr_bare(parser->signature, slot->dim[slot->ndim]);
        if (symbol != NULL) {
            symbol->bindable = true;
        }
        slot->ndim++;
    } while (kernel_parser_take(parser, ","));
    return kernel_parser_need(parser, "]");
}

static plasmon_status_t parse_tensor(struct kernel_parser *parser, struct kernel_slot *slot)
{
    plasmon_status_t status = PLASMON_OK;
    struct kernel_word word;

    if (slot->mode == KERNEL_REDUCE) {
        status = parse_reduce_op(parser, &slot->reduce_op);
    }
    if (status == PLASMON_OK) {
        status = kernel_parser_word(parser, "a dtype", &word);
    }
    if (status == PLASMON_OK) {
        status = need_dtype(parser, word, &slot->dtype);
    }
    if (status == PLASMON_OK) {
        status = parse_dims(parser, slot);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (slot->mode == KERNEL_REDUCE && (KERNEL_NUMBERS & KERNEL_DTYPE(slot->dtype)) == 0) {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: a reduced argument is i32, i64, f16, bf16, f32, f64, "
                          "c64 or c128, not %s",
                          pl_dtype_name(slot->dtype));
    }
    if ((slot->reduce_op == KERNEL_MIN || slot->reduce_op == KERNEL_MAX) &&
        (KERNEL_PAIRS & KERNEL_DTYPE(slot->dtype)) != 0) {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: of %s there is no smallest and no largest; reduce it "
                          "by sum or prod",
                          pl_dtype_name(slot->dtype));
    }
    slot->kind    = KERNEL_SLOT_TENSOR;
    slot->strided = kernel_parser_take(parser, "~");
    return PLASMON_OK;
}

static plasmon_status_t name_slot(struct kernel_parser *parser, struct kernel_slot *slot)
{
    struct kernel_signature *signature = parser->signature;
    struct kernel_word word;
    plasmon_status_t status = kernel_parser_word(parser, "the parameter's name", &word);

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < signature->slot_count; i++) {
        if (kernel_word_is(word, signature->slots[i].name)) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: two parameters are called %s",
                              signature->slots[i].name);
        }
    }
    slot->name = kernel_parser_keep(signature, word);
    return PLASMON_OK;
}

/* Behind the dtype and the name of a scalar: is it computed? */
static plasmon_status_t parse_scalar_rest(struct kernel_parser *parser,
                                          struct kernel_slot *slot)
{
    slot->kind = KERNEL_SLOT_SCALAR;
    if (kernel_parser_take(parser, ":=")) {
        slot->kind                  = KERNEL_SLOT_COMPUTED;
        parser->signature->computed = true;
        if (!dtype_is_integer(slot->dtype) || slot->dtype == PL_BOOL) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: %s is computed from dimensions and %s; it is an "
                              "integer (i64, say)",
                              slot->name, pl_dtype_name(slot->dtype));
        }
        return kernel_parser_expr(parser, &slot->dim[0]);
    }
    if (!dtype_is_integer(slot->dtype) && slot->dtype != PL_F32 && slot->dtype != PL_F64) {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: scalar %s is %s; scalars are integers, bool, f32 or "
                          "f64",
                          slot->name, pl_dtype_name(slot->dtype));
    }
    return PLASMON_OK;
}

static plasmon_status_t slot_add(struct kernel_parser *parser,
                                 const struct kernel_slot *parsed)
{
    struct kernel_signature *signature = parser->signature;
    struct kernel_slot *slot           = &signature->slots[signature->slot_count];

    *slot = *parsed;
    if (slot->kind == KERNEL_SLOT_TENSOR) {
        slot->index                         = (uint16_t)signature->tensor_count;
        signature->tensor_slot[slot->index] = (uint16_t)signature->slot_count;
        signature->tensor_count++;
        signature->value_count += 1u + (slot->strided ? slot->ndim : 0u);
    } else {
        if (slot->kind == KERNEL_SLOT_SCALAR) {
            slot->index = (uint16_t)signature->scalar_count++;
        }
        signature->value_count++;
    }
    if (signature->value_count > KERNEL_VALUES_MAX) {
        return kernel_parser_too_many(
            parser, "parameters of the kernel (a stride counts as one)", KERNEL_VALUES_MAX);
    }
    if (signature->scalar_count > KERNEL_SCALARS_MAX) {
        return kernel_parser_too_many(parser, "scalars", KERNEL_SCALARS_MAX);
    }
    if (slot->kind != KERNEL_SLOT_COMPUTED) {
        signature->params[signature->function.param_count++] = (struct kernel_param){
            .name       = slot->name,
            .modes      = slot->mode,
            .dtypes     = KERNEL_DTYPE(slot->dtype),
            .scalar     = slot->kind == KERNEL_SLOT_SCALAR,
            .is_integer = slot->kind == KERNEL_SLOT_SCALAR && dtype_is_integer(slot->dtype),
        };
    }
    signature->slot_count++;
    return PLASMON_OK;
}

static plasmon_status_t parse_param(struct kernel_parser *parser)
{
    struct kernel_slot slot = {0};
    plasmon_status_t status;
    struct kernel_word word;

    if (parser->signature->slot_count == KERNEL_SLOTS_MAX) {
        return kernel_parser_too_many(parser, "parameters", KERNEL_SLOTS_MAX);
    }
    status = kernel_parser_word(
        parser, "a mode (in, out, inout, reduce, scratch) or a scalar's dtype", &word);
    if (status != PLASMON_OK) {
        return status;
    }
    slot.mode = mode_of(word);
    if (slot.mode != 0) {
        status = parse_tensor(parser, &slot);
        if (status == PLASMON_OK) {
            status = name_slot(parser, &slot);
        }
    } else if (dtype_of(word) == 0) {
        parser->at = word.begin;
        status     = kernel_parser_expected(
                parser, "a mode (in, out, inout, reduce, scratch) or a scalar's dtype");
    } else {
        slot.dtype = (uint8_t)dtype_of(word);
        status     = name_slot(parser, &slot);
        if (status == PLASMON_OK) {
            status = parse_scalar_rest(parser, &slot);
        }
    }
    return status == PLASMON_OK ? slot_add(parser, &slot) : status;
}

/* ---------------------------------------------------------------------------- the whole */

static plasmon_status_t resolve_symbol(const struct kernel_parser *parser,
                                       struct kernel_symbol *symbol)
{
    const struct kernel_signature *signature = parser->signature;

    for (uint32_t i = 0; i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];

        if (slot->kind == KERNEL_SLOT_COMPUTED || strcmp(slot->name, symbol->name) != 0) {
            continue;
        }
        if (slot->kind == KERNEL_SLOT_TENSOR || !dtype_is_integer(slot->dtype)) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: %s is used as a dimension and is %s", slot->name,
                              slot->kind == KERNEL_SLOT_TENSOR ? "a tensor" : "no integer");
        }
        symbol->scalar = slot->index;
        return PLASMON_OK;
    }
    if (!symbol->bindable) {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: nothing tells what %s is: no tensor has it as a "
                          "dimension by itself, and no integer scalar is called so",
                          symbol->name);
    }
    return PLASMON_OK;
}

static plasmon_status_t parse_all(struct kernel_parser *parser)
{
    struct kernel_signature *signature = parser->signature;
    struct kernel_word word;
    plasmon_status_t status = kernel_parser_word(parser, "the function's name", &word);

    if (status != PLASMON_OK) {
        return status;
    }
    signature->function.name = kernel_parser_keep(signature, word);
    status                   = kernel_parser_need(parser, "(");
    if (status == PLASMON_OK && !kernel_parser_take(parser, ")")) {
        do {
            status = parse_param(parser);
        } while (status == PLASMON_OK && kernel_parser_take(parser, ","));
        if (status == PLASMON_OK) {
            status = kernel_parser_need(parser, ")");
        }
    }
    kernel_parser_skip(parser);
    if (status == PLASMON_OK && *parser->at != '\0') {
        status = kernel_parser_expected(parser, "the end");
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->symbol_count; i++) {
        status = resolve_symbol(parser, &signature->symbols[i]);
    }
    return status;
}

plasmon_status_t kernel_signature_parse(const char *text,
                                        struct kernel_signature **out_signature,
                                        struct pl_err *err)
{
    size_t length                      = strnlen(text, KERNEL_SIGNATURE_BYTES_MAX + 1);
    struct kernel_signature *signature = NULL;
    struct kernel_parser parser;
    plasmon_status_t status;

    if (length > KERNEL_SIGNATURE_BYTES_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "signature: longer than %u bytes",
                          KERNEL_SIGNATURE_BYTES_MAX);
    }
    signature = PL_NEW(struct kernel_signature);
    if (signature == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of memory for a signature");
    }
    memcpy(signature->text, text, length);
    signature->function = (struct kernel_function){.signature = signature->text,
                                                   .doc       = "",
                                                   .params    = signature->params,
                                                   .infer     = kernel_signature_infer,
                                                   .defined   = true};
    parser              = (struct kernel_parser){.signature = signature,
                                                 .at        = signature->text,
                                                 .begin     = signature->text,
                                                 .err       = err};
    status              = parse_all(&parser);
    if (status != PLASMON_OK) {
        kernel_signature_destroy(signature);
        return status;
    }
    *out_signature = signature;
    return PLASMON_OK;
}

void kernel_signature_destroy(struct kernel_signature *signature)
{
    pl_free(signature);
}
