/*
 * TLS 1.3 for the bulk channel, by OpenSSL. Both sides show a certificate of the cluster's CA that
 * has the role of a host (trust/trust.h): a client's does not do. Names in certificates are not
 * looked at, because workers are addressed by number; the secret of the receiver says that it is
 * the one that the head meant. New files are taken for the next link. The kernel encrypts where it
 * can (kTLS).
 *
 * Threads: a link is one thread's; the context is shared, and constant.
 */
#ifndef TRANSFER_BULK_TLS_H
#define TRANSFER_BULK_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "base/str.h"

struct bulk_tls; /* the files, read */
struct bulk_link;

/* Files in PEM: our certificate (with what is between it and the CA), its key, the CA. */
plasmon_status_t bulk_tls_create(const char *cert, const char *key, const char *ca,
                                 struct bulk_tls **out_tls, struct pl_err *err);
/* The same of files that somebody else keeps, who outlives us: a client's. */
struct trust_source;
plasmon_status_t bulk_tls_create_of(struct trust_source *source, struct bulk_tls **out_tls,
                                    struct pl_err *err);
void bulk_tls_destroy(struct bulk_tls *tls);
/*
 * Shake hands until until_ns. On success the link is encrypted, and link->host says whether the
 * other side's certificate is for a host: a server may have to do with a program, which may be
 * less.
 */
plasmon_status_t bulk_tls_begin(struct bulk_link *link, struct bulk_tls *tls, bool server,
                                uint64_t until_ns, struct pl_err *err);
void bulk_tls_end(struct bulk_link *link);
/* OpenSSL writes to sockets without MSG_NOSIGNAL: once, by each thread that has links. */
void bulk_tls_thread(void);
/* As bulk_link_try_read() and _write(). */
plasmon_status_t bulk_tls_read(struct bulk_link *link, void *data, size_t bytes,
                               size_t *out_done);
plasmon_status_t bulk_tls_write(struct bulk_link *link, const void *data, size_t bytes,
                                size_t *out_done);

#endif
