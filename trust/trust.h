/*
 * Certificates, by OpenSSL: who somebody is, whether ours are any good, and why a handshake fails.
 *
 * Everybody in a cluster that uses TLS shows a certificate of one CA. A certificate says what its
 * owner may be, in URIs among its alternative names, because a name alone proves only that the CA
 * knows it:
 *
 *   urn:plasmon:role:head         it may be a head
 *   urn:plasmon:role:host         it may be a store and its workers
 *   urn:plasmon:role:client       it may open sessions
 *   urn:plasmon:namespace:NAME    its sessions are in this namespace, and nothing else of the
 *                                 cluster is its business
 *
 * Several may be given. One without any role is nobody's. Files are PEM. A key that others may read
 * is refused, as ssh does.
 *
 * Threads: any; a trust_source is shared, the rest is its caller's.
 */
#ifndef TRUST_TRUST_H
#define TRUST_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/base.h"
#include "base/str.h"

#define TRUST_ROLE_HEAD      1u
#define TRUST_ROLE_HOST      2u
#define TRUST_ROLE_CLIENT    4u
#define TRUST_NAME_BYTES_MAX 63u
#define TRUST_HOSTS_MAX      16u
#define TRUST_ROLES_BYTES    32u

struct trust_files {
    const char *ca; /* all three or none */
    const char *cert;
    const char *key;
};
bool trust_files_given(const struct trust_files *files); /* any of them */

/*
 * Before anything else of OpenSSL in this process: threads of gRPC may be in a handshake when it
 * ends, and must find OpenSSL as it was. What reads or makes certificates here begins with it;
 * rpc_init() does it for who does neither.
 */
void trust_init(void);

/* ---- identity.c: what a certificate says */
struct trust_identity {
    uint32_t roles;                            /* TRUST_ROLE_ */
    char name[TRUST_NAME_BYTES_MAX + 1];       /* its common name */
    char name_space[TRUST_NAME_BYTES_MAX + 1]; /* "": any */
    time_t begins;
    time_t expires;
};
/* What a certificate of OpenSSL's says. */
struct x509_st;
void trust_identity_of(struct x509_st *certificate, struct trust_identity *out);
/* The first certificate in the text. */
plasmon_status_t trust_identity_read(const char *pem, struct trust_identity *out,
                                     struct pl_err *err) PL_MUST_CHECK;
/*
 * Is the first certificate in the text for the host of one of these,
 * "10.0.0.1:7070,10.0.0.2:7070"?
 */
bool trust_called(const char *pem, const char *targets);
/* "head, host"; "no role" */
const char *trust_roles_text(uint32_t roles, char out[TRUST_ROLES_BYTES]);
/* "head"; 0: there is no such role. */
uint32_t trust_role_of(const char *text);
/* Letters, digits, '.', '-' and '_', not a '.' in front: fit for a file and for a URI. */
bool trust_name_good(const char *text);
/* "2026-11-21 14:00 UTC" */
const char *trust_time_text(time_t when, char out[32]);

/* ---- read.c: our own files */
/* What was in the files when they were read. Held and released. */
struct trust_pems {
    _Atomic uint32_t refs;
    char *ca;
    char *cert;
    char *key; /* overwritten before it is freed */
    struct trust_identity identity;
};
/*
 * Read and judge: all there, the key private and the certificate's own, the certificate of that CA,
 * in its time, and for one of `roles`. EINVAL, ENOENT .., EPERM (key readable by others), EAUTH:
 * the text names the file, what is wrong and what to do.
 */
plasmon_status_t trust_read(const struct trust_files *files, uint32_t roles,
                            struct trust_pems **out_pems, struct pl_err *err) PL_MUST_CHECK;
struct trust_pems *trust_pems_hold(struct trust_pems *pems);
void trust_pems_release(struct trust_pems *pems); /* NULL is fine */

/* Show these, and take whoever shows a certificate of that CA. false: OpenSSL's queue of errors says why. */
struct ssl_ctx_st;
bool trust_pems_load(const struct trust_pems *pems,
                     struct ssl_ctx_st *context) PL_MUST_CHECK;

/*
 * Only ours; or, if it is root's and we are not, at most readable by a group. EPERM: others may,
 * and the text says what to do.
 */
plasmon_status_t trust_file_private(int fd, const char *what, const char *path,
                                    struct pl_err *err) PL_MUST_CHECK;

/* ---- token.c */
#define TRUST_TOKEN_BYTES_MAX 1024u
/* The first line of a file that is private; what: "password file". */
plasmon_status_t trust_secret_read(const char *what, const char *path,
                                   char out[TRUST_TOKEN_BYTES_MAX + 1],
                                   struct pl_err *err) PL_MUST_CHECK;
/* The same of a token, which is text that calls carry; so is the rest of its file. */
plasmon_status_t trust_token_read(const char *path, char out[TRUST_TOKEN_BYTES_MAX + 1],
                                  struct pl_err *err) PL_MUST_CHECK;
/* "has other bytes than ..": why this, which ends in a NUL, is no token. NULL: it is one, or "". */
const char *trust_token_fault(const char *token);
/*
 * $PLASMON_TOKEN, or "". It is wiped from our environment, where the user's other processes, and
 * our children, would see it. For main().
 */
plasmon_status_t trust_token_take(char out[TRUST_TOKEN_BYTES_MAX + 1],
                                  struct pl_err *err) PL_MUST_CHECK;

/* ---- source.c: files that may be replaced while we run */
struct trust_source;
plasmon_status_t trust_source_create(const struct trust_files *files, uint32_t roles,
                                     struct trust_source **out_source,
                                     struct pl_err *err) PL_MUST_CHECK;
void trust_source_destroy(struct trust_source *source); /* NULL is fine */
/*
 * What is in the files now, or, while they are not right, what was in them when they last were.
 * Held; never NULL.
 */
struct trust_pems *trust_source_get(struct trust_source *source);

/* ---- probe.c: why is there no connection? */
/*
 * Connects to "host:port", or to one after the other of several with commas between, and shakes
 * hands as a client does, with our certificates or (NULL) without. Blocks, at most for timeout_ms.
 * EAUTH: one side does not take the other, and the text says which, why, and what to do. OK: it has
 * nothing to say.
 */
plasmon_status_t trust_probe(const char *target, const struct trust_pems *pems,
                             uint32_t timeout_ms, struct pl_err *err) PL_MUST_CHECK;

/* ---- authority.c: making certificates */
enum trust_algorithm { TRUST_EC_P256, TRUST_ED25519 };
struct trust_request {
    const char *name; /* common name, and of the files */
    uint32_t roles;
    const char *hosts[TRUST_HOSTS_MAX + 1]; /* DNS names and addresses; NULL-terminated */
    const char *name_space;                 /* NULL: any */
    enum trust_algorithm algorithm;
    int64_t begins_s; /* from now */
    int64_t ends_s;   /* from now; at the latest with the CA */
};
/* DIR (made, 0700) with ca.crt and ca.key. EEXIST: there is one. */
plasmon_status_t trust_authority_create(const char *dir, const char *name,
                                        enum trust_algorithm algorithm, int64_t ends_s,
                                        struct pl_err *err) PL_MUST_CHECK;
/* DIR/NAME.crt and DIR/NAME.key, with a new key. EEXIST: there is one. */
plasmon_status_t trust_issue(const char *dir, const struct trust_request *request,
                             struct pl_err *err) PL_MUST_CHECK;
/*
 * DIR/NAME.crt again, for the same key, names and roles, until ends_s from now, at the latest with
 * the CA. Replaced at once: readers see the old one or the new.
 */
plasmon_status_t trust_renew(const char *dir, const char *name, int64_t ends_s,
                             struct pl_err *err) PL_MUST_CHECK;

#endif
