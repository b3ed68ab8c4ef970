/*
 * Signatures of functions that a client defines: text to a struct kernel_function, whose shape rule
 * evaluates them.
 *
 *   signature := name "(" [ param { "," param } ] ")"
 *   param     := mode dtype "[" [ expr { "," expr } ] "]" [ "~" ] name      a tensor; ~: with strides
 *              | dtype name                                                 a scalar of the call
 *              | integer-dtype name ":=" expr                               computed; not given by the caller
 *   mode      := "in" | "out" | "inout" | "scratch" | "reduce" "(" ("sum" | "prod" | "min" | "max") ")"
 *   expr      := term { ("+" | "-") term }      term := factor { ("*" | "/") factor }
 *   factor    := number | name | "(" expr ")"
 *
 * A name in an expression is an integer scalar of the call, or a dimension. A dimension is bound by
 * the first argument that shows it bare; one that no argument shows bare is refused here, so that
 * binding can only fail for want of a shape.
 *
 * The text may come from anywhere: every count and depth has a limit, arithmetic is checked. Client
 * and worker use the same code. Plain data after parsing: any thread may read.
 */
#ifndef KERNELS_SIGNATURE_H
#define KERNELS_SIGNATURE_H

#include "kernels/kernels.h"

#define KERNEL_SIGNATURE_BYTES_MAX 4096u
#define KERNEL_NAME_BYTES_MAX      63u
#define KERNEL_SLOTS_MAX           64u  /* parameters in the text */
#define KERNEL_VALUES_MAX          128u /* what the kernel gets: strides count */
#define KERNEL_SYMBOLS_MAX         48u
#define KERNEL_NODES_MAX           256u
#define KERNEL_DEPTH_MAX           16u

enum kernel_slot_kind {
    KERNEL_SLOT_TENSOR,
    KERNEL_SLOT_SCALAR,
    KERNEL_SLOT_COMPUTED,
};

/* An expression in reverse Polish order: nodes [first, first + count). */
struct kernel_expr {
    uint16_t first;
    uint16_t count;
};
enum kernel_node_op {
    KERNEL_NODE_NUMBER,
    KERNEL_NODE_SYMBOL,
    KERNEL_NODE_ADD,
    KERNEL_NODE_SUBTRACT,
    KERNEL_NODE_MULTIPLY,
    KERNEL_NODE_DIVIDE,
};
struct kernel_node {
    uint32_t op;
    uint32_t symbol;
    int64_t number;
};

/* A name in expressions. */
struct kernel_symbol {
    const char *name;
    int32_t scalar; /* number of the scalar of that name; -1: a dimension */
    bool bindable;  /* some tensor shows it bare */
};

/* One parameter of the text, in order. */
struct kernel_slot {
    const char *name;
    uint8_t kind; /* enum kernel_slot_kind */
    uint8_t mode; /* tensor: enum kernel_mode */
    uint8_t dtype;
    uint8_t reduce_op; /* tensor that is reduced */
    uint8_t ndim;      /* tensor */
    bool strided;      /* tensor: i64 strides follow the pointer */
    uint16_t index;    /* tensor: number of the argument; scalar: of the scalar */
    struct kernel_expr dim[PL_DIM_MAX]; /* tensor; computed: dim[0] is the value */
};

struct kernel_signature {
    struct kernel_function function; /* what kernel_check() takes */
    struct kernel_param params[KERNEL_SLOTS_MAX];
    struct kernel_slot slots[KERNEL_SLOTS_MAX];
    struct kernel_symbol symbols[KERNEL_SYMBOLS_MAX];
    struct kernel_node nodes[KERNEL_NODES_MAX];
    uint32_t slot_count;
    uint32_t tensor_count;
    uint32_t scalar_count;
    uint32_t value_count; /* parameters of the kernel */
    bool computed;        /* some slot is */
    uint32_t symbol_count;
    uint32_t node_count;
    uint16_t tensor_slot[KERNEL_SLOTS_MAX]; /* argument number -> slot */
    char text[KERNEL_SIGNATURE_BYTES_MAX + 1];
    /* of the function, slots and symbols, NUL-terminated */
    char names[KERNEL_SIGNATURE_BYTES_MAX + 2];
    uint32_t names_used;
};

/* What names stand for in one call. */
struct kernel_scope {
    int64_t value[KERNEL_SYMBOLS_MAX];
    /* argument + 1; KERNEL_SLOTS_MAX + 1: a scalar; 0: not bound */
    uint8_t bound_by[KERNEL_SYMBOLS_MAX];
};

/* A C identifier of at most KERNEL_NAME_BYTES_MAX bytes. */
bool kernel_name_ok(const char *name);
/*
 * EINVAL or ELIMIT: err says at which byte, and what is expected there. On success *out_signature
 * is the caller's, and ends with kernel_signature_destroy().
 */
plasmon_status_t kernel_signature_parse(const char *text,
                                        struct kernel_signature **out_signature,
                                        struct pl_err *err) PL_MUST_CHECK;
void kernel_signature_destroy(struct kernel_signature *signature);
/* The signature that a function came from; NULL: it is built in. */
static inline const struct kernel_signature *
kernel_signature_of(const struct kernel_function *function)
{
    return function->defined ? (const struct kernel_signature *)(const void *)function
                             : NULL;
}

/* Scalars in place, dimensions unbound. */
void kernel_scope_init(const struct kernel_signature *signature,
                       const union kernel_scalar *scalars, struct kernel_scope *scope);
/* What argument number `arg`, of these dimensions, binds. Its ndim has been checked. */
void kernel_scope_bind(const struct kernel_signature *signature, struct kernel_scope *scope,
                       uint32_t arg, const int64_t *dim);
/* ESHAPE: a name is not bound, a division by zero, an overflow. */
plasmon_status_t kernel_scope_value(const struct kernel_signature *signature,
                                    const struct kernel_scope *scope,
                                    struct kernel_expr expr, int64_t *out_value,
                                    struct pl_err *err) PL_MUST_CHECK;

#endif
