/* Where the workers of this host take objects of other hosts. */
#ifndef STORE_BULK_ADDRESS_H
#define STORE_BULK_ADDRESS_H

#include <stdbool.h>

#include "store/options.h"

#define STORE_BULK_ADDRESS_BYTES 64

/*
 * option: "auto" or NULL: the address from which the head is reached, when that is over a network;
 * "default": that of the default route, or, where there is none, the only one that this machine has
 * on a network; "none"; or a numeric address. head: "host:port", several of them with commas
 * between, or "unix:/path". Returns option, "none", or out (STORE_BULK_ADDRESS_BYTES).
 */
const char *store_bulk_address(const char *option, const char *head, char *out);
/* Are there ports for the workers of so many devices, and is it a range at all? EINVAL says what to give. */
plasmon_status_t store_bulk_check_ports(const struct store_options *options,
                                        uint32_t devices, struct pl_err *err);
/*
 * The address that was given is this machine's (EINVAL, with what to give), and objects cross a
 * network only as the operator allowed: encrypted, or in the clear where that was said to be all
 * right (EPERM).
 */
plasmon_status_t store_bulk_check(const struct store_options *options, struct pl_err *err);
/*
 * Of several machines the head's own one reaches it by loopback, which says nothing about the
 * network; that there are several is said by the options that let objects cross one (--bulk-plain,
 * --tls-*). So there "auto" is "default". It stays "auto" where the head is not found yet: that
 * may be on another network than the default route.
 */
void store_bulk_settle(struct store_options *options);
/* Into the log: an address was to be found, and there is none. */
void store_bulk_tell(const struct store_options *options);

#endif
