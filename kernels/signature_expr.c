/*
 * Words and expressions of signatures. Recursive descent over one string; the only recursion,
 * parentheses, is bounded by KERNEL_DEPTH_MAX, and so is the stack that an expression needs when it
 * is evaluated.
 */
#include "kernels/signature_int.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------- words */

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

void kernel_parser_skip(struct kernel_parser *parser)
{
    while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n' ||
           *parser->at == '\r') {
        parser->at++;
    }
}

plasmon_status_t kernel_parser_expected(const struct kernel_parser *parser,
                                        const char *what)
{
    if (*parser->at == '\0') {
        return pl_err_set(parser->err, PLASMON_EINVAL,
                          "signature: it ends where %s is expected", what);
    }
    return pl_err_set(parser->err, PLASMON_EINVAL,
                      "signature: at byte %zu, '%.16s': %s is expected",
                      (size_t)(parser->at - parser->begin), parser->at, what);
}

plasmon_status_t kernel_parser_too_many(const struct kernel_parser *parser,
                                        const char *what, unsigned limit)
{
    return pl_err_set(parser->err, PLASMON_ELIMIT, "signature: more than %u %s", limit,
                      what);
}

bool kernel_parser_take(struct kernel_parser *parser, const char *symbol)
{
    size_t length = strlen(symbol);

    kernel_parser_skip(parser);
    if (strncmp(parser->at, symbol, length) != 0) {
        return false;
    }
    parser->at += length;
    return true;
}

plasmon_status_t kernel_parser_need(struct kernel_parser *parser, const char *symbol)
{
    char quoted[8];

    if (kernel_parser_take(parser, symbol)) {
        return PLASMON_OK;
    }
    (void)snprintf(quoted, sizeof(quoted), "'%s'", symbol);
    return kernel_parser_expected(parser, quoted);
}

plasmon_status_t kernel_parser_word(struct kernel_parser *parser, const char *what,
                                    struct kernel_word *out_word)
{
    const char *begin;

    kernel_parser_skip(parser);
    begin = parser->at;
    if (!is_first(*begin)) {
        return kernel_parser_expected(parser, what);
    }
    while (is_rest(*parser->at)) {
        parser->at++;
    }
    *out_word =
        (struct kernel_word){.begin = begin, .length = (size_t)(parser->at - begin)};
    if (out_word->length > KERNEL_NAME_BYTES_MAX) {
        return pl_err_set(parser->err, PLASMON_ELIMIT,
                          "signature: the name %.16s.. has %zu bytes; the limit is %u",
                          begin, out_word->length, KERNEL_NAME_BYTES_MAX);
    }
    return PLASMON_OK;
}

bool kernel_word_is(struct kernel_word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.begin, text, word.length) == 0;
}

/* Names fit: each stands in the text with something between it and the next. */
const char *kernel_parser_keep(struct kernel_signature *signature, struct kernel_word word)
{
    char *name = signature->names + signature->names_used;

    PL_CHECK(signature->names_used + word.length + 1 <= sizeof(signature->names));
    memcpy(name, word.begin, word.length);
    name[word.length] = '\0';
    signature->names_used += (uint32_t)word.length + 1;
    return name;
}

/* -------------------------------------------------------------------------- expressions */

static plasmon_status_t node_add(struct kernel_parser *parser, struct kernel_node node)
{
    struct kernel_signature *signature = parser->signature;

    if (signature->node_count == KERNEL_NODES_MAX) {
        return kernel_parser_too_many(parser, "numbers, names and operations",
                                      KERNEL_NODES_MAX);
    }
    parser->stack += node.op <= KERNEL_NODE_SYMBOL ? 1u : -1u;
    if (parser->stack > KERNEL_DEPTH_MAX) {
        return kernel_parser_too_many(parser, "numbers that wait for an operation",
                                      KERNEL_DEPTH_MAX);
    }
    signature->nodes[signature->node_count++] = node;
    return PLASMON_OK;
}

static plasmon_status_t symbol_find(struct kernel_parser *parser, struct kernel_word word,
                                    uint32_t *out_symbol)
{
    struct kernel_signature *signature = parser->signature;

    for (uint32_t i = 0; i < signature->symbol_count; i++) {
        if (kernel_word_is(word, signature->symbols[i].name)) {
            *out_symbol = i;
            return PLASMON_OK;
        }
    }
    if (signature->symbol_count == KERNEL_SYMBOLS_MAX) {
        return kernel_parser_too_many(parser, "names of dimensions", KERNEL_SYMBOLS_MAX);
    }
    *out_symbol = signature->symbol_count++;
    signature->symbols[*out_symbol] =
        (struct kernel_symbol){.name = kernel_parser_keep(signature, word), .scalar = -1};
    return PLASMON_OK;
}

static plasmon_status_t parse_number(struct kernel_parser *parser)
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

static plasmon_status_t parse_sum(struct kernel_parser *parser);

static plasmon_status_t parse_factor(struct kernel_parser *parser)
{
    struct kernel_node node = {.op = KERNEL_NODE_SYMBOL};
    plasmon_status_t status;
    struct kernel_word word;

    kernel_parser_skip(parser);
    if (*parser->at >= '0' && *parser->at <= '9') {
        return parse_number(parser);
    }
    if (kernel_parser_take(parser, "(")) {
        if (parser->depth == KERNEL_DEPTH_MAX) {
            return kernel_parser_too_many(parser, "parentheses inside each other",
                                          KERNEL_DEPTH_MAX);
        }
        parser->depth++;
        status = parse_sum(parser);
        parser->depth--;
        return status == PLASMON_OK ? kernel_parser_need(parser, ")") : status;
    }
    status = kernel_parser_word(parser, "a number, a name or '('", &word);
    if (status == PLASMON_OK) {
        status = symbol_find(parser, word, &node.symbol);
    }
    return status == PLASMON_OK ? node_add(parser, node) : status;
}

static plasmon_status_t parse_product(struct kernel_parser *parser)
{
    plasmon_status_t status = parse_factor(parser);

    while (status == PLASMON_OK) {
        struct kernel_node node;

        if (kernel_parser_take(parser, "*")) {
            node = (struct kernel_node){.op = KERNEL_NODE_MULTIPLY};
        } else if (kernel_parser_take(parser, "/")) {
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

static plasmon_status_t parse_sum(struct kernel_parser *parser)
{
    plasmon_status_t status = parse_product(parser);

    while (status == PLASMON_OK) {
        struct kernel_node node;

        if (kernel_parser_take(parser, "+")) {
            node = (struct kernel_node){.op = KERNEL_NODE_ADD};
        } else if (kernel_parser_take(parser, "-")) {
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

plasmon_status_t kernel_parser_expr(struct kernel_parser *parser,
                                    struct kernel_expr *out_expr)
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

struct kernel_symbol *kernel_expr_bare(struct kernel_signature *signature,
                                       struct kernel_expr expr)
{
    const struct kernel_node *node = &signature->nodes[expr.first];

    return expr.count == 1 && node->op == KERNEL_NODE_SYMBOL
               ? &signature->symbols[node->symbol]
               : NULL;
}
