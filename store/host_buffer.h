/*
 * Host buffers: memory of a host that a client and the workers of that host share, and that the
 * workers have page-locked (registered), so that a copy between it and a device is one DMA, put
 * into a stream like any other work.
 *
 *   client   asks the store for so many bytes (GET_HOST_BUFFER)
 *   store    makes a memfd, hands it to every worker, waits for each of them to say that it has it
 *            registered, and only then gives it to the client: a launch that names it never meets a
 *            worker that does not have it
 *   head     knows its number alone: launches PUT_HOST and GET_HOST carry it (head/host_copy.c)
 *
 * THE NUMBER  is 64 random bits: who was not told it cannot have its memory copied.
 *
 * A WORKER DIES  and the next one gets every buffer with its set-up, registers it before it says
 * READY, and does again what was not done: a put reads the same bytes, because its client leaves
 * them alone until the put is over.
 *
 * A CLIENT GOES, or frees a buffer: the workers are told to drop it. Unregistering waits for the
 * streams of a device, so a worker does it when nothing is enqueued there; until all have, the
 * bytes count (a host has a limit, --host-memory). Copies on their way then go to, or come from,
 * memory that nobody else has.
 */
#ifndef STORE_HOST_BUFFER_H
#define STORE_HOST_BUFFER_H

#include <stdint.h>

/* no client's: what is spilled lies there (spill.h) */
#define STORE_HOST_BUFFER_SPILL UINT32_MAX
#define STORE_HOST_BUFFERS_MAX  1024u /* a host; each costs the workers a registered range */

#endif
