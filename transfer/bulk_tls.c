#include "transfer/bulk_tls.h"

#include <poll.h>
#include <signal.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/lock.h"
#include "transfer/bulk_link.h"
#include "trust/trust.h"

struct bulk_tls {
    struct trust_source *source;
    bool own; /* it is ours to destroy */

    struct pl_mutex lock;    /* rank PL_RANK_LEAF; guards what follows */
    struct trust_pems *pems; /* held: what the context was made of */
    SSL_CTX *context;
};

/* The first thing that OpenSSL has against it. */
static const char *reason(char text[160])
{
    unsigned long code = ERR_get_error();
    const char *said   = code != 0 ? ERR_reason_error_string(code) : NULL;

    (void)snprintf(text, 160, "%s", said != NULL ? said : "the connection broke");
    ERR_clear_error();
    return text;
}

static SSL_CTX *context_create(const struct trust_pems *pems)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());

    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        !trust_pems_load(pems, context)) {
        SSL_CTX_free(context);
        return NULL;
    }
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_options(context, SSL_OP_ENABLE_KTLS | SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0); /* each connection is made once */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return context;
}

plasmon_status_t bulk_tls_create(const char *cert, const char *key, const char *ca,
                                 struct bulk_tls **out_tls, struct pl_err *err)
{
    const struct trust_files files = {.ca = ca, .cert = cert, .key = key};
    struct trust_source *source;
    plasmon_status_t status = trust_source_create(&files, TRUST_ROLE_HOST, &source, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = bulk_tls_create_of(source, out_tls, err);
    if (status != PLASMON_OK) {
        trust_source_destroy(source);
        return status;
    }
    (*out_tls)->own = true;
    return PLASMON_OK;
}

plasmon_status_t bulk_tls_create_of(struct trust_source *source, struct bulk_tls **out_tls,
                                    struct pl_err *err)
{
    struct bulk_tls *tls = PL_NEW(struct bulk_tls);
    char text[160];

    if (tls == NULL || pl_mutex_init(&tls->lock, PL_RANK_LEAF) != PLASMON_OK) {
        pl_free(tls);
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for TLS");
    }
    tls->source  = source;
    tls->pems    = trust_source_get(source);
    tls->context = context_create(tls->pems);
    if (tls->context == NULL) {
        (void)pl_err_set(err, PLASMON_EINVAL, "TLS with the certificate of '%s': %s",
                         tls->pems->identity.name, reason(text));
        bulk_tls_destroy(tls);
        return PLASMON_EINVAL;
    }
    *out_tls = tls;
    return PLASMON_OK;
}

void bulk_tls_destroy(struct bulk_tls *tls)
{
    if (tls != NULL) {
        SSL_CTX_free(tls->context);
        trust_pems_release(tls->pems);
        if (tls->own) {
            trust_source_destroy(tls->source);
        }
        pl_mutex_finish(&tls->lock);
        pl_free(tls);
    }
}

/* With the certificates that are in the files now. NULL: no memory. */
static SSL *ssl_create(struct bulk_tls *tls)
{
    struct trust_pems *pems = trust_source_get(tls->source), *old;
    SSL *ssl;

    pl_mutex_lock(&tls->lock);
    old = pems;
    if (pems != tls->pems) {
        SSL_CTX *fresh = context_create(pems);

        if (fresh != NULL) {            /* else it goes on with what it has */
            SSL_CTX_free(tls->context); /* links that there are have a hold on it */
            tls->context = fresh;
            old          = tls->pems;
            tls->pems    = pems;
        }
    }
    ssl = SSL_new(tls->context);
    pl_mutex_unlock(&tls->lock);
    trust_pems_release(old);
    return ssl;
}

/* Who has shaken hands is of our CA; but may it have objects? A program may, with tickets of the head. */
static plasmon_status_t check_role(struct bulk_link *link, bool server, struct pl_err *err)
{
    const uint32_t enough =
        TRUST_ROLE_HOST | (server ? TRUST_ROLE_CLIENT | TRUST_ROLE_HEAD : 0);
    struct trust_identity identity = {.roles = 0};
    X509 *theirs                   = SSL_get1_peer_certificate(link->tls);
    char has[TRUST_ROLES_BYTES];

    if (theirs != NULL) {
        trust_identity_of(theirs, &identity);
        X509_free(theirs);
    }
    link->host = (identity.roles & TRUST_ROLE_HOST) != 0;
    return (identity.roles & enough) != 0
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_EAUTH,
                            "TLS: the other side's certificate, of '%s', is for %s and not "
                            "for a host%s",
                            identity.name, trust_roles_text(identity.roles, has),
                            server ? " or a program" : "");
}

/* What poll() is to wait for after a call that did not get on; 0: it failed. */
static short wanted(const SSL *ssl, int result)
{
    int error = SSL_get_error(ssl, result);

    return error == SSL_ERROR_WANT_READ    ? POLLIN
           : error == SSL_ERROR_WANT_WRITE ? POLLOUT
                                           : 0;
}

plasmon_status_t bulk_tls_begin(struct bulk_link *link, struct bulk_tls *tls, bool server,
                                uint64_t until_ns, struct pl_err *err)
{
    SSL *ssl = ssl_create(tls);
    plasmon_status_t status;
    char text[160];

    if (ssl == NULL || SSL_set_fd(ssl, link->fd) != 1) {
        SSL_free(ssl);
        return pl_err_set(err, PLASMON_ENOMEM, "no memory for TLS");
    }
    link->tls = ssl;
    if (server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
    }
    for (;;) {
        uint64_t now_ns = pl_now_ns();
        short events;
        int result;

        ERR_clear_error();
        result = SSL_do_handshake(ssl);
        if (result == 1) {
            return check_role(link, server, err);
        }
        events = wanted(ssl, result);
        if (events == 0) {
            return pl_err_set(err, PLASMON_EAUTH, "TLS: %s", reason(text));
        }
        status =
            now_ns >= until_ns
                ? PLASMON_EAGAIN
                : bulk_link_wait(link, events, (int)((until_ns - now_ns) / 1000000) + 1);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status == PLASMON_EAGAIN ? PLASMON_ETIMEDOUT : status,
                              "TLS: the handshake did not end");
        }
    }
}

void bulk_tls_thread(void)
{
    sigset_t broken_pipe;

    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &broken_pipe, NULL); /* cannot fail with these */
}

void bulk_tls_end(struct bulk_link *link)
{
    SSL_free(link->tls); /* no farewell: what was answered was answered */
    link->tls = NULL;
}

static plasmon_status_t outcome(struct bulk_link *link, int result)
{
    if (result == 1) {
        return PLASMON_OK;
    }
    link->tls_wants = wanted(link->tls, result);
    return link->tls_wants != 0 ? PLASMON_EAGAIN : PLASMON_ECONNECT;
}

plasmon_status_t bulk_tls_read(struct bulk_link *link, void *data, size_t bytes,
                               size_t *out_done)
{
    *out_done = 0;
    ERR_clear_error();
    return outcome(link, SSL_read_ex(link->tls, data, bytes, out_done));
}

plasmon_status_t bulk_tls_write(struct bulk_link *link, const void *data, size_t bytes,
                                size_t *out_done)
{
    *out_done = 0;
    ERR_clear_error();
    return outcome(link, SSL_write_ex(link->tls, data, bytes, out_done));
}
