/*
 * Parts of one array: those that are being written, those that have failed. In an order, and by
 * place (base/spans.h) while there are many, so that who looks for those that meet a box looks at
 * few.
 *
 * Threads: none of its own, as refs.h.
 */
#ifndef CLIENT_PARTS_H
#define CLIENT_PARTS_H

#include <stdbool.h>

#include "base/box.h"
#include "base/list.h"
#include "base/spans.h"

struct part {
    struct pl_list link; /* in no parts: linked to itself */
    struct pl_span span; /* in parts->spans */
    bool whole;          /* box is the whole array */
    struct pl_box box;
};

struct parts {
    struct pl_list list; /* struct part.link */
    uint32_t count;
    struct pl_spans *spans; /* NULL: few */
};

/* In no parts. box NULL: the whole. */
void part_init(struct part *part, const struct pl_box *box);
/* box NULL: any. */
bool part_touches(const struct part *part, const struct pl_box *box);
struct pl_box part_box(const struct part *part, const struct pl_shape *shape);

void parts_init(struct parts *parts);
/* shape: of the array. Behind `where`, the link of one of them or the list. */
void parts_add(struct parts *parts, const struct pl_shape *shape, struct part *part,
               struct pl_list *where);
void parts_remove(struct parts *parts, struct part *part);
/* The part is this box from now on; it stays where it is in the order. */
void parts_move(struct parts *parts, const struct pl_shape *shape, struct part *part,
                const struct pl_box *box);
/* One that touches the box (NULL: any); of few the first. NULL: none. */
struct part *parts_find(const struct parts *parts, const struct pl_shape *shape,
                        const struct pl_box *box);
/* All that touch the box (NULL: all), and maybe others. fn may remove the one it is given, and add others. */
typedef void (*part_fn)(void *user, struct part *part);
void parts_each(struct parts *parts, const struct pl_shape *shape, const struct pl_box *box,
                part_fn fn, void *user);

#endif
