/*
 * Intrusive doubly linked lists. A head and a link are the same struct; a link that is in no list
 * points to itself.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base.h"

struct pl_list {
    struct pl_list *prev;
    struct pl_list *next;
};

static inline void pl_list_init(struct pl_list *list)
{
    list->prev = list;
    list->next = list;
}
static inline int pl_list_empty(const struct pl_list *list)
{
    return list->next == list;
}
static inline int pl_list_linked(const struct pl_list *link)
{
    return link->next != NULL && link->next != link;
}
static inline void pl_list_add_after(struct pl_list *where, struct pl_list *link)
{
    link->prev        = where;
    link->next        = where->next;
    where->next->prev = link;
    where->next       = link;
}
static inline void pl_list_add_tail(struct pl_list *list, struct pl_list *link)
{
    pl_list_add_after(list->prev, link);
}
static inline void pl_list_add_head(struct pl_list *list, struct pl_list *link)
{
    pl_list_add_after(list, link);
}
/* Safe on an unlinked (but initialised) link. */
static inline void pl_list_remove(struct pl_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    pl_list_init(link);
}
#define pl_list_first(list, type, member) \
    (pl_list_empty(list) ? (type *)NULL : pl_container_of((list)->next, type, member))
#define pl_list_for_each(pos, list) \
    for ((pos) = (list)->next; (pos) != (list); (pos) = (pos)->next)
#define pl_list_for_each_safe(pos, tmp, list)                        \
    for ((pos) = (list)->next, (tmp) = (pos)->next; (pos) != (list); \
         (pos) = (tmp), (tmp) = (pos)->next)

#endif
