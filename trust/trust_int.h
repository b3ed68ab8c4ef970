/* Inside trust/: what its files share. */
#ifndef TRUST_TRUST_INT_H
#define TRUST_TRUST_INT_H

#include <openssl/x509.h>

#include "trust/trust.h"

#define TRUST_FILE_BYTES_MAX (256u << 10)

/* The first thing that OpenSSL has against it, and its memory of it is cleared. */
const char *trust_reason(char out[160]);
/* The certificate that a PEM text begins with; NULL: there is none. */
X509 *trust_certificate_first(const char *pem);
/* All certificates of a PEM text. NULL: not one. */
STACK_OF(X509) * trust_certificates(const char *pem);
time_t trust_time(const ASN1_TIME *time);
/* "localhost, 127.0.0.1": what a certificate may be called. */
const char *trust_hosts_text(X509 *certificate, char out[160]);

#endif
