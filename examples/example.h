/*
 * What the longer examples share: stop on an error, short forms of arguments, a progress line,
 * command line numbers, the counters of `plasmon status`. Nothing in here is needed to use Plasmon;
 * 01_hello.c does without.
 */
#ifndef EXAMPLES_EXAMPLE_H
#define EXAMPLES_EXAMPLE_H

#include <plasmon/plasmon.h>
#include <stdint.h>
#include <stdio.h>

/* Print to stderr and exit with 1. A private cluster ends with the process, however that ends. */
_Noreturn void example_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* example_die() with the library's text unless status is PLASMON_OK. client may be NULL. */
void example_need(struct plasmon_client *client, plasmon_status_t status, const char *what);

static inline struct plasmon_arg example_in(struct plasmon_ref *ref)
{
    return (struct plasmon_arg){.mode = PLASMON_IN, .ref = ref};
}
/*
 * ref: an existing ref or view that is written; NULL: a new ref, of the shape that the function's
 * rule gives.
 */
static inline struct plasmon_arg example_out(struct plasmon_ref *ref)
{
    return (struct plasmon_arg){.mode = PLASMON_OUT, .ref = ref};
}
static inline struct plasmon_arg example_make(const struct plasmon_shape *shape)
{
    return (struct plasmon_arg){.mode = PLASMON_OUT, .shape = shape};
}
static inline struct plasmon_arg example_inout(struct plasmon_ref *ref)
{
    return (struct plasmon_arg){.mode = PLASMON_INOUT, .ref = ref};
}
static inline struct plasmon_arg example_reduce(struct plasmon_ref *ref)
{
    return (struct plasmon_arg){
        .mode = PLASMON_REDUCE, .ref = ref, .reduce_op = PLASMON_REDUCE_SUM};
}

/* Submit or die. out_refs: one a new output; NULL when there is none. */
void example_submit(struct plasmon_client *client, const char *function,
                    const struct plasmon_arg *args, uint32_t arg_count,
                    const plasmon_scalar_t *scalars, uint32_t scalar_count, int device,
                    struct plasmon_ref **out_refs);
/* The same with the arguments and scalars written in place. */
#define EXAMPLE_ARGS(...)                      \
    (const struct plasmon_arg[]){__VA_ARGS__}, \
        sizeof((const struct plasmon_arg[]){__VA_ARGS__}) / sizeof(struct plasmon_arg)
#define EXAMPLE_SCALARS(...)                 \
    (const plasmon_scalar_t[]){__VA_ARGS__}, \
        sizeof((const plasmon_scalar_t[]){__VA_ARGS__}) / sizeof(plasmon_scalar_t)
#define EXAMPLE_NONE NULL, 0

void example_release(struct plasmon_client *client, struct plasmon_ref *ref);
/* Rows first .. first + count of a 2-d array. */
struct plasmon_ref *example_rows(struct plasmon_client *client, struct plasmon_ref *ref,
                                 int64_t first, int64_t count, int64_t columns);

/*
 * One line on stderr, rewritten in place on a terminal at most ten times a second; elsewhere one at
 * the end.
 */
void example_progress(const char *what, uint64_t done, uint64_t total);
double example_seconds(void);

/* Value of an option that takes a number in [min, max]; dies with the option's name otherwise. */
int64_t example_number(const char *option, const char *text, int64_t min, int64_t max);

/*
 * Copies and bytes of one route ("peer", "host", "local", "inline") so far, as the workers counted
 * them at the copy.
 */
struct example_route {
    uint64_t copies;
    uint64_t bytes;
};
struct example_route example_route_of(const char *status_json, const char *route);

#endif
