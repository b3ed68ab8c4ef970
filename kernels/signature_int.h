/*
 * Inside of the parser of signatures: a place in the text, words, and expressions. signature_expr.c
 * has them, signature_parse.c the parameters and the whole.
 */
#ifndef KERNELS_SIGNATURE_INT_H
#define KERNELS_SIGNATURE_INT_H

#include "kernels/signature.h"

struct kernel_parser {
    struct kernel_signature *signature;
    const char *at;
    const char *begin;
    struct pl_err *err;
    uint32_t depth; /* of parentheses */
    uint32_t stack; /* numbers on the stack, at this point of an expression */
};

struct kernel_word {
    const char *begin;
    size_t length;
};

void kernel_parser_skip(struct kernel_parser *parser); /* spaces */
/* EINVAL: something else stands here. */
plasmon_status_t kernel_parser_expected(const struct kernel_parser *parser,
                                        const char *what);
plasmon_status_t kernel_parser_too_many(const struct kernel_parser *parser,
                                        const char *what, unsigned limit); /* ELIMIT */
/* The symbol, if it stands here. */
bool kernel_parser_take(struct kernel_parser *parser, const char *symbol);
plasmon_status_t kernel_parser_need(struct kernel_parser *parser, const char *symbol);
plasmon_status_t kernel_parser_word(struct kernel_parser *parser, const char *what,
                                    struct kernel_word *out_word);
bool kernel_word_is(struct kernel_word word, const char *text);
/* A copy that lives as long as the signature. */
const char *kernel_parser_keep(struct kernel_signature *signature, struct kernel_word word);

plasmon_status_t kernel_parser_expr(struct kernel_parser *parser,
                                    struct kernel_expr *out_expr);
/* The dimension that the expression is, and nothing more; NULL: it is more. */
struct kernel_symbol *kernel_expr_bare(struct kernel_signature *signature,
                                       struct kernel_expr expr);

/* signature.c: the shape rule, an infer function of struct kernel_function. */
plasmon_status_t kernel_signature_infer(const struct kernel_function *self,
                                        struct kernel_arg_shape *args, uint32_t arg_count,
                                        const union kernel_scalar *scalars,
                                        uint32_t scalar_count, struct pl_err *err);

#endif
