/*
 * Signatures: parser and shape rule. See signature.h for the grammar.
 *
 * Recursive descent over one string; the only recursion, parentheses, is bounded by KERNEL_DEPTH_MAX, and so is the stack that an
 * expression needs when it is evaluated. Names are resolved when all parameters are known, since a scalar may come after the
 * tensor whose dimension it names.
 */
#include "kernels/signature.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

struct parser {
    struct kernel_signature *signature;
    const char *at;
    const char *begin;
    struct pl_err *err;
    uint32_t depth; /* of parentheses */
    uint32_t stack; /* numbers on the stack, at this point of an expression */
};

struct word {
    const char *begin;
    size_t length;
};

/* ------------------------------------------------------------------------------------------------ words */

static bool is_first(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_rest(char c)
{
    return is_first(c) || (c >= '0' && c <= '9');
}

bool kernel_name_ok(const char *name)
{
    size_t length = 0;

    if (!is_first(name[0])) {
        return false;
    }
    while (is_rest(name[length])) {
        length++;
    }
    return name[length] == '\0' && length <= KERNEL_NAME_BYTES_MAX;
}

static void skip_space(struct parser *parser)
{
    while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n' ||
           *parser->at == '\r') {
        parser->at++;
    }
}

static plasmon_status_t expected(const struct parser *parser, const char *what)
{
    if (*parser->at == '\0') {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: it ends where %s is expected", what);
    }
    return pl_err_set(parser->err, PLASMON_EINVAL,
                      "signature: at byte %zu, '%.16s': %s is expected",
                      (size_t)(parser->at - parser->begin), parser->at, what);
}

static plasmon_status_t too_many(const struct parser *parser, const char *what,
                                 unsigned limit)
{
    return pl_err_set(parser->err, PLASMON_ELIMIT, "signature: more than %u %s", limit,
                      what);
}

static bool take(struct parser *parser, const char *symbol)
{
    size_t length = strlen(symbol);

    skip_space(parser);
    if (strncmp(parser->at, symbol, length) != 0) {
        return false;
    }
    parser->at += length;
    return true;
}

static plasmon_status_t need(struct parser *parser, const char *symbol)
{
    char quoted[8];

    if (take(parser, symbol)) {
        return PLASMON_OK;
    }
    (void)snprintf(quoted, sizeof(quoted), "'%s'", symbol);
    return expected(parser, quoted);
}

static plasmon_status_t need_word(struct parser *parser, const char *what,
                                  struct word *out_word)
{
    const char *begin;

    skip_space(parser);
    begin = parser->at;
    if (!is_first(*begin)) {
        return expected(parser, what);
    }
    while (is_rest(*parser->at)) {
        parser->at++;
    }
    *out_word = (struct word){.begin = begin, .length = (size_t)(parser->at - begin)};
    if (out_word->length > KERNEL_NAME_BYTES_MAX) {
        return pl_err_set(parser->err, PLASMON_ELIMIT,
                          "signature: the name %.16s.. has %zu bytes; the limit is %u",
                          begin, out_word->length, KERNEL_NAME_BYTES_MAX);
    }
    return PLASMON_OK;
}

static bool is(struct word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.begin, text, word.length) == 0;
}

/* Names fit: each stands in the text with something between it and the next. */
static const char *keep(struct kernel_signature *signature, struct word word)
{
    char *name = signature->names + signature->names_used;

    PL_CHECK(signature->names_used + word.length + 1 <= sizeof(signature->names));
    memcpy(name, word.begin, word.length);
    name[word.length] = '\0';
    signature->names_used += (uint32_t)word.length + 1;
    return name;
}

/* ------------------------------------------------------------------------------------------------ expressions */

static plasmon_status_t node_add(struct parser *parser, struct kernel_node node)
{
    struct kernel_signature *signature = parser->signature;

    if (signature->node_count == KERNEL_NODES_MAX) {
        return too_many(parser, "numbers, names and operations", KERNEL_NODES_MAX);
    }
    parser->stack += node.op <= KERNEL_NODE_SYMBOL ? 1u : -1u;
    if (parser->stack > KERNEL_DEPTH_MAX) {
        return too_many(parser, "numbers that wait for an operation", KERNEL_DEPTH_MAX);
    }
    signature->nodes[signature->node_count++] = node;
    return PLASMON_OK;
}

static plasmon_status_t symbol_find(struct parser *parser, struct word word,
                                    uint32_t *out_symbol)
{
    struct kernel_signature *signature = parser->signature;

    for (uint32_t i = 0; i < signature->symbol_count; i++) {
        if (is(word, signature->symbols[i].name)) {
            *out_symbol = i;
            return PLASMON_OK;
        }
    }
    if (signature->symbol_count == KERNEL_SYMBOLS_MAX) {
        return too_many(parser, "names of dimensions", KERNEL_SYMBOLS_MAX);
    }
    *out_symbol = signature->symbol_count++;
    signature->symbols[*out_symbol] =
        (struct kernel_symbol){.name = keep(signature, word), .scalar = -1};
    return PLASMON_OK;
}

static plasmon_status_t parse_number(struct parser *parser)
{
    int64_t number = 0;

    while (*parser->at >= '0' && *parser->at <= '9') {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *parser->at - '0', &number)) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: at byte %zu: a number over 63 bits",
                              (size_t)(parser->at - parser->begin));
        }
        parser->at++;
    }
    return node_add(parser,
                    (struct kernel_node){.op = KERNEL_NODE_NUMBER, .number = number});
}

static plasmon_status_t parse_sum(struct parser *parser);

static plasmon_status_t parse_factor(struct parser *parser)
{
    struct kernel_node node = {.op = KERNEL_NODE_SYMBOL};
    plasmon_status_t status;
    struct word word;

    skip_space(parser);
    if (*parser->at >= '0' && *parser->at <= '9') {
        return parse_number(parser);
    }
    if (take(parser, "(")) {
        if (parser->depth == KERNEL_DEPTH_MAX) {
            return too_many(parser, "parentheses inside each other", KERNEL_DEPTH_MAX);
        }
        parser->depth++;
        status = parse_sum(parser);
        parser->depth--;
        return status == PLASMON_OK ? need(parser, ")") : status;
    }
    status = need_word(parser, "a number, a name or '('", &word);
    if (status == PLASMON_OK) {
        status = symbol_find(parser, word, &node.symbol);
    }
    return status == PLASMON_OK ? node_add(parser, node) : status;
}

static plasmon_status_t parse_product(struct parser *parser)
{
    plasmon_status_t status = parse_factor(parser);

    while (status == PLASMON_OK) {
        struct kernel_node node;

        if (take(parser, "*")) {
            node = (struct kernel_node){.op = KERNEL_NODE_MULTIPLY};
        } else if (take(parser, "/")) {
            node = (struct kernel_node){.op = KERNEL_NODE_DIVIDE};
        } else {
            break;
        }
        status = parse_factor(parser);
        if (status == PLASMON_OK) {
            status = node_add(parser, node);
        }
    }
    return status;
}

static plasmon_status_t parse_sum(struct parser *parser)
{
    plasmon_status_t status = parse_product(parser);

    while (status == PLASMON_OK) {
        struct kernel_node node;

        if (take(parser, "+")) {
            node = (struct kernel_node){.op = KERNEL_NODE_ADD};
        } else if (take(parser, "-")) {
            node = (struct kernel_node){.op = KERNEL_NODE_SUBTRACT};
        } else {
            break;
        }
        status = parse_product(parser);
        if (status == PLASMON_OK) {
            status = node_add(parser, node);
        }
    }
    return status;
}

static plasmon_status_t parse_expr(struct parser *parser, struct kernel_expr *out_expr)
{
    struct kernel_signature *signature = parser->signature;
    uint32_t first                     = signature->node_count;
    plasmon_status_t status;

    parser->stack = 0;
    status        = parse_sum(parser);
    *out_expr     = (struct kernel_expr){.first = (uint16_t)first,
                                         .count = (uint16_t)(signature->node_count - first)};
    return status;
}

/* The dimension that the expression is, and nothing more; NULL: it is more. */
static struct kernel_symbol *bare(struct kernel_signature *signature,
                                  struct kernel_expr expr)
{
    const struct kernel_node *node = &signature->nodes[expr.first];

    return expr.count == 1 && node->op == KERNEL_NODE_SYMBOL
               ? &signature->symbols[node->symbol]
               : NULL;
}

/* ------------------------------------------------------------------------------------------------ parameters */

static uint32_t dtype_of(struct word word)
{
    for (uint32_t dtype = PL_BOOL; dtype <= PL_C128; dtype++) {
        if (is(word, pl_dtype_name(dtype))) {
            return dtype;
        }
    }
    return 0;
}

static bool dtype_is_integer(uint32_t dtype)
{
    return dtype >= PL_BOOL && dtype <= PL_U64;
}

static plasmon_status_t need_dtype(struct parser *parser, struct word word,
                                   uint8_t *out_dtype)
{
    uint32_t dtype = dtype_of(word);

    if (dtype == 0) {
        parser->at = word.begin;
        return expected(parser,
                        "a dtype (bool, i8 .. u64, f16, bf16, f32, f64, c64, c128)");
    }
    *out_dtype = (uint8_t)dtype;
    return PLASMON_OK;
}

static plasmon_status_t parse_reduce_op(struct parser *parser, uint8_t *out_op)
{
    static const char *const names[] = {"sum", "prod", "min", "max"};
    plasmon_status_t status          = need(parser, "(");
    struct word word;

    if (status == PLASMON_OK) {
        status = need_word(parser, "sum, prod, min or max", &word);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        if (is(word, names[i])) {
            *out_op = (uint8_t)(KERNEL_SUM + i);
            return need(parser, ")");
        }
    }
    parser->at = word.begin;
    return expected(parser, "sum, prod, min or max");
}

static uint8_t mode_of(struct word word)
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
        if (is(word, modes[i].name)) {
            return modes[i].mode;
        }
    }
    return 0;
}

static plasmon_status_t parse_dims(struct parser *parser, struct kernel_slot *slot)
{
    plasmon_status_t status = need(parser, "[");

    if (status != PLASMON_OK || take(parser, "]")) {
        return status;
    }
    do {
        struct kernel_symbol *symbol;

        if (slot->ndim == PL_DIM_MAX) {
            return too_many(parser, "dimensions of one tensor", PL_DIM_MAX);
        }
        status = parse_expr(parser, &slot->dim[slot->ndim]);
        if (status != PLASMON_OK) {
            return status;
        }
        symbol = bare(parser->signature, slot->dim[slot->ndim]);
        if (symbol != NULL) {
            symbol->bindable = true;
        }
        slot->ndim++;
    } while (take(parser, ","));
    return need(parser, "]");
}

static plasmon_status_t parse_tensor(struct parser *parser, struct kernel_slot *slot)
{
    plasmon_status_t status = PLASMON_OK;
    struct word word;

    if (slot->mode == KERNEL_REDUCE) {
        status = parse_reduce_op(parser, &slot->reduce_op);
    }
    if (status == PLASMON_OK) {
        status = need_word(parser, "a dtype", &word);
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
                          "signature: a reduced argument is f32, f64, i32 or i64, not %s",
                          pl_dtype_name(slot->dtype));
    }
    slot->kind    = KERNEL_SLOT_TENSOR;
    slot->strided = take(parser, "~");
    return PLASMON_OK;
}

static plasmon_status_t name_slot(struct parser *parser, struct kernel_slot *slot)
{
    struct kernel_signature *signature = parser->signature;
    struct word word;
    plasmon_status_t status = need_word(parser, "the parameter's name", &word);

    if (status != PLASMON_OK) {
        return status;
    }
    for (uint32_t i = 0; i < signature->slot_count; i++) {
        if (is(word, signature->slots[i].name)) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: two parameters are called %s",
                              signature->slots[i].name);
        }
    }
    slot->name = keep(signature, word);
    return PLASMON_OK;
}

/* Behind the dtype and the name of a scalar: is it computed? */
static plasmon_status_t parse_scalar_rest(struct parser *parser, struct kernel_slot *slot)
{
    slot->kind = KERNEL_SLOT_SCALAR;
    if (take(parser, ":=")) {
        slot->kind                  = KERNEL_SLOT_COMPUTED;
        parser->signature->computed = true;
        if (!dtype_is_integer(slot->dtype) || slot->dtype == PL_BOOL) {
            return pl_err_set(parser->err, PLASMON_EINVAL,
                              "signature: %s is computed from dimensions and %s; it is an "
                              "integer (i64, say)",
                              slot->name, pl_dtype_name(slot->dtype));
        }
        return parse_expr(parser, &slot->dim[0]);
    }
    if (!dtype_is_integer(slot->dtype) && slot->dtype != PL_F32 && slot->dtype != PL_F64) {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: scalar %s is %s; scalars are integers, bool, f32 or "
                          "f64",
                          slot->name, pl_dtype_name(slot->dtype));
    }
    return PLASMON_OK;
}

static plasmon_status_t slot_add(struct parser *parser, const struct kernel_slot *parsed)
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
        return too_many(parser, "parameters of the kernel (a stride counts as one)",
                        KERNEL_VALUES_MAX);
    }
    if (signature->scalar_count > KERNEL_SCALARS_MAX) {
        return too_many(parser, "scalars", KERNEL_SCALARS_MAX);
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

static plasmon_status_t parse_param(struct parser *parser)
{
    struct kernel_slot slot = {0};
    plasmon_status_t status;
    struct word word;

    if (parser->signature->slot_count == KERNEL_SLOTS_MAX) {
        return too_many(parser, "parameters", KERNEL_SLOTS_MAX);
    }
    status = need_word(
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
        status     = expected(parser,
                              "a mode (in, out, inout, reduce, scratch) or a scalar's dtype");
    } else {
        slot.dtype = (uint8_t)dtype_of(word);
        status     = name_slot(parser, &slot);
        if (status == PLASMON_OK) {
            status = parse_scalar_rest(parser, &slot);
        }
    }
    return status == PLASMON_OK ? slot_add(parser, &slot) : status;
}

/* ------------------------------------------------------------------------------------------------ the whole */

static plasmon_status_t resolve_symbol(const struct parser *parser,
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

static plasmon_status_t parse_all(struct parser *parser)
{
    struct kernel_signature *signature = parser->signature;
    struct word word;
    plasmon_status_t status = need_word(parser, "the function's name", &word);

    if (status != PLASMON_OK) {
        return status;
    }
    signature->function.name = keep(signature, word);
    status                   = need(parser, "(");
    if (status == PLASMON_OK && !take(parser, ")")) {
        do {
            status = parse_param(parser);
        } while (status == PLASMON_OK && take(parser, ","));
        if (status == PLASMON_OK) {
            status = need(parser, ")");
        }
    }
    skip_space(parser);
    if (status == PLASMON_OK && *parser->at != '\0') {
        status = expected(parser, "the end");
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->symbol_count; i++) {
        status = resolve_symbol(parser, &signature->symbols[i]);
    }
    return status;
}

static plasmon_status_t infer(const struct kernel_function *self,
                              struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count,
                              struct pl_err *err);

plasmon_status_t kernel_signature_parse(const char *text,
                                        struct kernel_signature **out_signature,
                                        struct pl_err *err)
{
    size_t length                      = strnlen(text, KERNEL_SIGNATURE_BYTES_MAX + 1);
    struct kernel_signature *signature = NULL;
    struct parser parser;
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
                                                   .infer     = infer,
                                                   .defined   = true};
    parser              = (struct parser){.signature = signature,
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

/* ------------------------------------------------------------------------------------------------ evaluation */

#define BOUND_BY_SCALAR (KERNEL_SLOTS_MAX + 1)

void kernel_scope_init(const struct kernel_signature *signature,
                       const union kernel_scalar *scalars, struct kernel_scope *scope)
{
    for (uint32_t i = 0; i < signature->symbol_count; i++) {
        int32_t scalar = signature->symbols[i].scalar;

        scope->bound_by[i] = scalar >= 0 ? BOUND_BY_SCALAR : 0;
        scope->value[i]    = scalar >= 0 ? scalars[scalar].i : 0;
    }
}

void kernel_scope_bind(const struct kernel_signature *signature, struct kernel_scope *scope,
                       uint32_t arg, const int64_t *dim)
{
    const struct kernel_slot *slot = &signature->slots[signature->tensor_slot[arg]];

    for (uint32_t i = 0; i < slot->ndim; i++) {
        const struct kernel_node *node = &signature->nodes[slot->dim[i].first];

        if (slot->dim[i].count == 1 && node->op == KERNEL_NODE_SYMBOL &&
            scope->bound_by[node->symbol] == 0) {
            scope->bound_by[node->symbol] = (uint8_t)(arg + 1);
            scope->value[node->symbol]    = dim[i];
        }
    }
}

static bool operate(uint32_t op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case KERNEL_NODE_ADD:
        return !__builtin_add_overflow(a, b, out);
    case KERNEL_NODE_SUBTRACT:
        return !__builtin_sub_overflow(a, b, out);
    case KERNEL_NODE_MULTIPLY:
        return !__builtin_mul_overflow(a, b, out);
    default:
        if (b == 0 || (a == INT64_MIN && b == -1)) {
            return false;
        }
        *out = a / b;
        return true;
    }
}

plasmon_status_t kernel_scope_value(const struct kernel_signature *signature,
                                    const struct kernel_scope *scope,
                                    struct kernel_expr expr, int64_t *out_value,
                                    struct pl_err *err)
{
    const struct kernel_node *nodes = &signature->nodes[expr.first];
    int64_t stack[KERNEL_DEPTH_MAX];
    uint32_t top = 0;

    for (uint32_t i = 0; i < expr.count; i++) {
        switch (nodes[i].op) {
        case KERNEL_NODE_NUMBER:
            stack[top++] = nodes[i].number;
            break;
        case KERNEL_NODE_SYMBOL:
            if (scope->bound_by[nodes[i].symbol] == 0) {
                return pl_err_set(err, PLASMON_ESHAPE,
                                  "nothing tells %s; state the shape of an output that "
                                  "shows it",
                                  signature->symbols[nodes[i].symbol].name);
            }
            stack[top++] = scope->value[nodes[i].symbol];
            break;
        default:
            top--;
            if (!operate(nodes[i].op, stack[top - 1], stack[top], &stack[top - 1])) {
                return pl_err_set(err, PLASMON_ESHAPE,
                                  "its dimension cannot be computed: a division by zero, "
                                  "or a number over 63 bits");
            }
        }
    }
    *out_value = stack[0];
    return PLASMON_OK;
}

/* ------------------------------------------------------------------------------------------------ the shape rule */

/* "n is 4 from y, m is 3" for the names in a tensor's dimensions. */
static const char *explain(const struct kernel_signature *signature,
                           const struct kernel_scope *scope, const struct kernel_slot *slot,
                           char out[200])
{
    bool told[KERNEL_SYMBOLS_MAX] = {false};
    size_t length                 = 0;

    out[0] = '\0';
    for (uint32_t d = 0; d < slot->ndim; d++) {
        for (uint32_t i = 0; i < slot->dim[d].count; i++) {
            const struct kernel_node *node = &signature->nodes[slot->dim[d].first + i];
            uint8_t by;

            if (node->op != KERNEL_NODE_SYMBOL || told[node->symbol] || length > 120) {
                continue;
            }
            told[node->symbol] = true;
            by                 = scope->bound_by[node->symbol];
            length += (size_t)snprintf(
                out + length, 200 - length, "%s%.24s is %lld%s%.24s",
                length == 0 ? "; " : ", ", signature->symbols[node->symbol].name,
                (long long)scope->value[node->symbol], by == BOUND_BY_SCALAR ? "" : " by ",
                by == BOUND_BY_SCALAR
                    ? ""
                    : signature->slots[signature->tensor_slot[by - 1]].name);
        }
    }
    return out;
}

/* A scalar that its dtype cannot hold would reach the kernel as another number. */
static plasmon_status_t check_scalar(const struct kernel_function *self,
                                     const struct kernel_slot *slot,
                                     union kernel_scalar scalar, struct pl_err *err)
{
    uint32_t bits;
    int64_t low, high;

    if (slot->dtype == PL_BOOL) {
        low  = 0;
        high = 1;
    } else if (slot->dtype >= PL_I8 && slot->dtype <= PL_U32) {
        bits = pl_dtype_bytes(slot->dtype) * 8;
        low =
            slot->dtype % 2 == 0 ? -(INT64_C(1) << (bits - 1)) : 0; /* I8 is 2, U8 3, .. */
        high = slot->dtype % 2 == 0 ? (INT64_C(1) << (bits - 1)) - 1
                                    : (INT64_C(1) << bits) - 1;
    } else {
        return PLASMON_OK;
    }
    if (scalar.i >= low && scalar.i <= high) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EINVAL, "%s: %s is %lld, needs %lld to %lld (%s)",
                      self->name, slot->name, (long long)scalar.i, (long long)low,
                      (long long)high, pl_dtype_name(slot->dtype));
}

static plasmon_status_t check_known(const struct kernel_signature *signature,
                                    const struct kernel_slot *slot,
                                    const struct kernel_arg_shape *arg, struct pl_err *err)
{
    char shape[128];

    if (slot->mode == KERNEL_REDUCE && arg->reduce_op != slot->reduce_op) {
        static const char *const names[] = {"none", "sum", "prod", "min", "max"};

        return pl_err_set(err, PLASMON_EINVAL, "%s: %s is reduced by %s, needs %s",
                          signature->function.name, slot->name,
                          arg->reduce_op < PL_COUNT(names) ? names[arg->reduce_op] : "?",
                          names[slot->reduce_op]);
    }
    if (arg->shape.ndim == slot->ndim) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_ESHAPE, "%s: %s is %s, needs %u dimension%s",
                      signature->function.name, slot->name,
                      pl_shape_format(&arg->shape, shape), slot->ndim,
                      slot->ndim == 1 ? "" : "s");
}

static plasmon_status_t check_dims(const struct kernel_signature *signature,
                                   const struct kernel_scope *scope,
                                   const struct kernel_slot *slot,
                                   struct kernel_arg_shape *arg, bool known,
                                   struct pl_err *err)
{
    struct pl_shape want = {.dtype = slot->dtype, .ndim = slot->ndim};
    struct pl_err inner  = {0};
    plasmon_status_t status;
    char is_text[128], want_text[128], why[200];

    for (uint32_t i = 0; i < slot->ndim; i++) {
        status = kernel_scope_value(signature, scope, slot->dim[i], &want.dim[i], &inner);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "%s: %s: %s", signature->function.name,
                              slot->name, inner.text);
        }
    }
    if (!known) {
        arg->shape = want;
        status     = pl_shape_check(&want, &inner);
        return status == PLASMON_OK
                   ? PLASMON_OK
                   : pl_err_set(err, status, "%s: %s cannot be made: %s%s",
                                signature->function.name, slot->name, inner.text,
                                explain(signature, scope, slot, why));
    }
    if (pl_shape_equal(&arg->shape, &want)) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_ESHAPE, "%s: %s is %s, needs %s%s", signature->function.name,
        slot->name, pl_shape_format(&arg->shape, is_text),
        pl_shape_format(&want, want_text), explain(signature, scope, slot, why));
}

static bool is_known(const struct kernel_arg_shape *arg)
{
    return arg->given || (arg->mode != KERNEL_OUT && arg->mode != KERNEL_SCRATCH);
}

/* kernel_check() has seen to arity, modes and dtypes. */
static plasmon_status_t infer(const struct kernel_function *self,
                              struct kernel_arg_shape *args, uint32_t arg_count,
                              const union kernel_scalar *scalars, uint32_t scalar_count,
                              struct pl_err *err)
{
    const struct kernel_signature *signature = kernel_signature_of(self);
    struct kernel_scope scope;
    plasmon_status_t status = PLASMON_OK;

    PL_CHECK(arg_count == signature->tensor_count &&
             scalar_count == signature->scalar_count);
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];

        if (slot->kind == KERNEL_SLOT_SCALAR) {
            status = check_scalar(self, slot, scalars[slot->index], err);
        } else if (slot->kind == KERNEL_SLOT_TENSOR && is_known(&args[slot->index])) {
            status = check_known(signature, slot, &args[slot->index], err);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }

    kernel_scope_init(signature, scalars, &scope);
    for (uint32_t i = 0; i < arg_count; i++) {
        if (is_known(&args[i])) {
            kernel_scope_bind(signature, &scope, i, args[i].shape.dim);
        }
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < arg_count; i++) {
        status = check_dims(signature, &scope, &signature->slots[signature->tensor_slot[i]],
                            &args[i], is_known(&args[i]), err);
    }
    for (uint32_t i = 0; status == PLASMON_OK && i < signature->slot_count; i++) {
        const struct kernel_slot *slot = &signature->slots[i];
        struct pl_err inner            = {0};
        int64_t unused;

        if (slot->kind == KERNEL_SLOT_COMPUTED) {
            status = kernel_scope_value(signature, &scope, slot->dim[0], &unused, &inner);
            if (status != PLASMON_OK) {
                status = pl_err_set(err, status, "%s: %s: %s", self->name, slot->name,
                                    inner.text);
            }
        }
    }
    return status;
}
