#include "transfer/bulk_tls.h"

#include <poll.h>
#include <signal.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transfer/bulk_int.h"

struct bulk_tls {
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

static plasmon_status_t files_load(SSL_CTX *context, const char *cert, const char *key,
                                   const char *ca, struct pl_err *err)
{
    char text[160];

    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1) {
        return pl_err_set(err, PLASMON_EINVAL, "--tls-cert %s: %s", cert, reason(text));
    }
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return pl_err_set(err, PLASMON_EINVAL, "--tls-key %s: %s", key, reason(text));
    }
    if (SSL_CTX_load_verify_file(context, ca) != 1) {
        return pl_err_set(err, PLASMON_EINVAL, "--tls-ca %s: %s", ca, reason(text));
    }
    return PLASMON_OK;
}

plasmon_status_t bulk_tls_create(const char *cert, const char *key, const char *ca,
                                 struct bulk_tls **out_tls, struct pl_err *err)
{
    struct bulk_tls *tls    = PL_NEW(struct bulk_tls);
    plasmon_status_t status = PLASMON_ENOMEM;

    if (tls != NULL) {
        tls->context = SSL_CTX_new(TLS_method());
    }
    if (tls == NULL || tls->context == NULL ||
        SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1) {
        (void)pl_err_set(err, status, "no memory for TLS");
        goto err_free;
    }
    (void)SSL_CTX_set_mode(tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                             SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_options(tls->context, SSL_OP_ENABLE_KTLS | SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(tls->context, 0); /* each connection is made once */
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       NULL);
    status = files_load(tls->context, cert, key, ca, err);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    *out_tls = tls;
    return PLASMON_OK;

err_free:
    bulk_tls_destroy(tls);
    return status;
}

void bulk_tls_destroy(struct bulk_tls *tls)
{
    if (tls != NULL) {
        SSL_CTX_free(tls->context);
        pl_free(tls);
    }
}

/* What poll() is to wait for after a call that did not get on; 0: it failed. */
static short wanted(const SSL *ssl, int result)
{
    int error = SSL_get_error(ssl, result);

    return error == SSL_ERROR_WANT_READ    ? POLLIN
           : error == SSL_ERROR_WANT_WRITE ? POLLOUT
                                           : 0;
}

plasmon_status_t bulk_tls_begin(struct bulk_link *link, const struct bulk_tls *tls,
                                bool server, uint64_t until_ns, struct pl_err *err)
{
    SSL *ssl = SSL_new(tls->context);
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
            return PLASMON_OK;
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
