/*
 * The store's link to the head: hello, a beat a second, deaths of workers; fences and the order to
 * stop come back. It connects again with growing pauses, for ever: workers and objects do not need
 * it.
 *
 * It has a thread of its own (rpc's loop); the daemon sees struct store_uplink only.
 */
#ifndef STORE_NODE_H
#define STORE_NODE_H

#include "store/daemon.h"
#include "trust/trust.h"

struct store_node;
/* options, token and trust (NULL: TCP in the clear) are lent until store_node_destroy(). */
plasmon_status_t store_node_create(const struct store_options *options, const char *token,
                                   struct trust_source *trust, struct store_node **out_node,
                                   struct store_uplink *out_uplink,
                                   struct pl_err *err) PL_MUST_CHECK;
struct store_spill;
/* What the head asks for spilling goes there; lent. NULL: nothing is spilled. Before the daemon runs. */
void store_node_set_spill(struct store_node *node, struct store_spill *spill,
                          struct store_uplink *uplink);
void store_node_destroy(struct store_node *node);

#endif
