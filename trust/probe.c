/*
 * Why is there no connection? gRPC says that a handshake failed, not why, and nothing of what to
 * do. So the handshake is made once more, by hand, and OpenSSL is asked. What is sent is what a
 * client of gRPC would send; nothing of it is kept.
 *
 * In TLS 1.3 a client is done before the server has looked at its certificate: a refusal comes as
 * an alert, instead of the first bytes of HTTP/2 that a server sends to whom it takes. So we wait
 * for either.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/clock.h"
#include "base/fd.h"
#include "trust/trust_int.h"

#define TARGET_BYTES 300u /* "host:port" */

struct probe {
    const char *target;
    char host[256];
    char port[16];
    const struct trust_pems *pems; /* NULL: without TLS */
    uint64_t until_ns;
    SSL_CTX *context;
    SSL *ssl;
    X509 *refused; /* theirs, which we did not take; held */
    int fd;
};

/* The next one of `*io_targets`, which goes behind it. */
static bool target_next(const char **io_targets, char out[TARGET_BYTES])
{
    size_t length = strcspn(*io_targets, ",");
    bool fits     = length > 0 && length < TARGET_BYTES;

    if (fits) {
        memcpy(out, *io_targets, length);
        out[length] = '\0';
        *io_targets += length + ((*io_targets)[length] == ',');
    }
    return fits;
}

static bool target_split(struct probe *probe)
{
    const char *text  = probe->target;
    const char *colon = strrchr(text, ':');
    size_t length;

    if (colon == NULL || colon == text || strncmp(text, "unix:", 5) == 0) {
        return false;
    }
    length = (size_t)(colon - text);
    if (text[0] == '[' && colon[-1] == ']') {
        text++;
        length -= 2;
    }
    if (length >= sizeof(probe->host) || strlen(colon + 1) >= sizeof(probe->port)) {
        return false;
    }
    memcpy(probe->host, text, length);
    probe->host[length] = '\0';
    (void)snprintf(probe->port, sizeof(probe->port), "%s", colon + 1);
    return true;
}

/* false: the time is over, or it broke. */
static bool probe_wait(const struct probe *probe, short events)
{
    uint64_t now_ns       = pl_now_ns();
    struct pollfd poll_fd = {.fd = probe->fd, .events = events};

    return now_ns < probe->until_ns &&
           poll(&poll_fd, 1, (int)((probe->until_ns - now_ns) / 1000000u) + 1) > 0;
}

static bool probe_connect(struct probe *probe)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;
    bool connected        = false;
    socklen_t bytes       = sizeof(int);
    int error             = 0;

    if (getaddrinfo(probe->host, probe->port, &hints, &found) != 0) {
        return false;
    }
    for (at = found; at != NULL && !connected; at = at->ai_next) {
        pl_fd_close(&probe->fd);
        probe->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (probe->fd < 0) {
            continue;
        }
        connected = connect(probe->fd, at->ai_addr, at->ai_addrlen) == 0 ||
                    (errno == EINPROGRESS && probe_wait(probe, POLLOUT) &&
                     getsockopt(probe->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 &&
                     error == 0);
    }
    freeaddrinfo(found);
    return connected;
}

/* OpenSSL does not keep the certificate of somebody whom it did not take. */
static int keep_refused(int good, X509_STORE_CTX *context)
{
    int index = SSL_get_ex_data_X509_STORE_CTX_idx();
    struct probe *probe =
        SSL_get_app_data((SSL *)X509_STORE_CTX_get_ex_data(context, index));
    X509 *leaf = X509_STORE_CTX_get0_cert(context);

    if (!good && probe->refused == NULL && leaf != NULL && X509_up_ref(leaf) == 1) {
        probe->refused = leaf;
    }
    return good;
}

static bool ssl_create(struct probe *probe)
{
    static const unsigned char protocols[] = "\x02h2";

    probe->context = SSL_CTX_new(TLS_client_method());
    if (probe->context == NULL ||
        (probe->pems != NULL && !trust_pems_load(probe->pems, probe->context))) {
        return false;
    }
    probe->ssl = SSL_new(probe->context);
    if (probe->ssl == NULL || SSL_set_fd(probe->ssl, probe->fd) != 1 ||
        SSL_set_alpn_protos(probe->ssl, protocols, sizeof(protocols) - 1) != 0) {
        return false;
    }
    if (probe->pems != NULL) {
        X509_VERIFY_PARAM *param = SSL_get0_param(probe->ssl);

        SSL_set_app_data(probe->ssl, probe);
        SSL_set_verify(probe->ssl, SSL_VERIFY_PEER, keep_refused);
        if (X509_VERIFY_PARAM_set1_ip_asc(param, probe->host) != 1) {
            ERR_clear_error(); /* it is a name, then */
            (void)SSL_set_tlsext_host_name(probe->ssl, probe->host);
            return X509_VERIFY_PARAM_set1_host(param, probe->host, 0) == 1;
        }
    }
    return true;
}

/* 1: it is done; 0: the time is over; -1: it failed. */
static int probe_step(struct probe *probe, bool handshake)
{
    char first;

    for (;;) {
        int result, error;

        ERR_clear_error();
        result = handshake ? SSL_connect(probe->ssl) : SSL_read(probe->ssl, &first, 1);
        if (result == 1) {
            return 1;
        }
        error = SSL_get_error(probe->ssl, result);
        if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
            return -1;
        }
        if (!probe_wait(probe, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT)) {
            return 0;
        }
    }
}

/* We do not take the other side. */
static plasmon_status_t explain_theirs(struct probe *probe, long verdict,
                                       struct pl_err *err)
{
    X509 *theirs = probe->refused;
    char when[32], hosts[160];
    plasmon_status_t status;

    if (verdict == X509_V_ERR_CERT_HAS_EXPIRED && theirs != NULL) {
        status = pl_err_set(err, PLASMON_EAUTH,
                            "the certificate of the head at %s expired on %s: renew it "
                            "there (`plasmon cert "
                            "renew`)",
                            probe->target,
                            trust_time_text(trust_time(X509_get0_notAfter(theirs)), when));
    } else if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
               verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        status = pl_err_set(
            err, PLASMON_EAUTH,
            "the certificate of the head is for %s, and not for %s, as it was called here: "
            "use one of these names, or issue it another with --host %s",
            theirs != NULL ? trust_hosts_text(theirs, hosts) : "others", probe->host,
            probe->host);
    } else {
        status =
            pl_err_set(err, PLASMON_EAUTH,
                       "the certificate of the head at %s is not good by our CA (--tls-ca, "
                       "PLASMON_TLS_CA): %s. Give the CA that issued it",
                       probe->target, X509_verify_cert_error_string(verdict));
    }
    return status;
}

/* It does not take us: what its alert says. 0: that was none. */
static plasmon_status_t explain_alert(struct probe *probe, int reason, struct pl_err *err)
{
    const char *name = probe->pems != NULL ? probe->pems->identity.name : "";

    switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return pl_err_set(err, PLASMON_EAUTH,
                          "the head at %s does not take our certificate '%s' (--tls-cert, "
                          "PLASMON_TLS_CERT): it is not of the CA that the head was given. "
                          "Have that CA issue one",
                          probe->target, name);
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return pl_err_set(err, PLASMON_EAUTH,
                          "to the head at %s our certificate '%s' (--tls-cert, "
                          "PLASMON_TLS_CERT) has expired: renew it, and look at the clocks",
                          probe->target, name);
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return probe->pems != NULL
                   ? pl_err_set(err, PLASMON_EAUTH,
                                "the head at %s does not shake hands with our certificate "
                                "'%s'",
                                probe->target, name)
                   : PLASMON_OK;
    default:
        return PLASMON_OK;
    }
}

/* What a server that is none of TLS says looks like a broken record. */
static bool is_not_tls(int reason)
{
    return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
           reason == SSL_R_BAD_RECORD_TYPE || reason == SSL_R_HTTP_REQUEST ||
           reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

/* The core ends a connection without a word when it does not take a certificate. */
static plasmon_status_t explain_silence(struct probe *probe, struct pl_err *err)
{
    return pl_err_set(
        err, PLASMON_EAUTH,
        "the head at %s hangs up when it sees our certificate '%s' (--tls-cert, "
        "PLASMON_TLS_CERT): most likely it is not of the CA that the head was "
        "given, or expired by the head's clock. Have that CA issue one",
        probe->target, probe->pems->identity.name);
}

static plasmon_status_t explain_failure(struct probe *probe, bool handshake,
                                        struct pl_err *err)
{
    unsigned long code = ERR_peek_error();
    int reason         = ERR_GET_REASON(code);
    long verdict       = SSL_get_verify_result(probe->ssl);

    if (probe->pems != NULL && !handshake && (code == 0 || is_not_tls(reason))) {
        return explain_silence(probe, err);
    }
    if (code == 0) {
        return PLASMON_OK; /* the connection broke: no matter of trust */
    }
    if (probe->pems != NULL && handshake && verdict != X509_V_OK) {
        return explain_theirs(probe, verdict, err);
    }
    if (probe->pems != NULL && handshake && is_not_tls(reason)) {
        return pl_err_set(
            err, PLASMON_EAUTH,
            "the head at %s does not speak TLS: start it with --tls-ca, "
            "--tls-cert and --tls-key, or leave them (PLASMON_TLS_*) out here, "
            "and nothing is encrypted",
            probe->target);
    }
    return explain_alert(probe, reason, err);
}

static plasmon_status_t explain_role(struct probe *probe, struct pl_err *err)
{
    X509 *theirs                   = SSL_get1_peer_certificate(probe->ssl);
    struct trust_identity identity = {.roles = 0};
    char has[TRUST_ROLES_BYTES];

    if (theirs != NULL) {
        trust_identity_of(theirs, &identity);
        X509_free(theirs);
    }
    return (identity.roles & TRUST_ROLE_HEAD) != 0
               ? PLASMON_OK
               : pl_err_set(
                     err, PLASMON_EAUTH,
                     "whoever serves %s shows the certificate of '%s', which is for %s "
                     "and not for a head: issue it one with --role head, or look who "
                     "that is",
                     probe->target, identity.name, trust_roles_text(identity.roles, has));
}

/* Connected. */
static plasmon_status_t probe_shake(struct probe *probe, struct pl_err *err)
{
    plasmon_status_t status;
    int result;

    if (!ssl_create(probe)) {
        return PLASMON_OK;
    }
    result = probe_step(probe, true);
    if (probe->pems == NULL) {
        bool tls = result == 1 || (result < 0 && ERR_peek_error() != 0 &&
                                   !is_not_tls(ERR_GET_REASON(ERR_peek_error())));

        return !tls
                   ? PLASMON_OK
                   : pl_err_set(err, PLASMON_EAUTH,
                                "the head at %s speaks TLS: give PLASMON_TLS_CA, _CERT and "
                                "_KEY (daemons: --tls-ca, --tls-cert, --tls-key)",
                                probe->target);
    }
    if (result < 0) {
        return explain_failure(probe, true, err);
    }
    status = result == 1 ? explain_role(probe, err) : PLASMON_OK;
    if (status == PLASMON_OK && result == 1 && probe_step(probe, false) < 0) {
        status = explain_failure(probe, false, err);
    }
    return status;
}

/* OpenSSL writes without MSG_NOSIGNAL, and this may be somebody's program. */
static void pipe_block(sigset_t *out_before, bool *out_pending)
{
    sigset_t pipe, pending;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    *out_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe, out_before); /* cannot fail with these */
}

static void pipe_unblock(const sigset_t *before, bool was_pending)
{
    const struct timespec now = {.tv_sec = 0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!was_pending) {
        (void)sigtimedwait(&pipe, NULL, &now); /* ours, if there is one */
    }
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

static plasmon_status_t probe_once(const char *target, const struct trust_pems *pems,
                                   uint32_t timeout_ms, struct pl_err *err)
{
    struct probe probe      = {.target   = target,
                               .pems     = pems,
                               .until_ns = pl_now_ns() + (uint64_t)timeout_ms * 1000000u,
                               .fd       = -1};
    plasmon_status_t status = PLASMON_OK;
    sigset_t before;
    bool pending;

    pipe_block(&before, &pending);
    if (target_split(&probe) && probe_connect(&probe)) {
        status = probe_shake(&probe, err);
    }
    pipe_unblock(&before, pending);
    ERR_clear_error();
    X509_free(probe.refused);
    SSL_free(probe.ssl);
    SSL_CTX_free(probe.context);
    pl_fd_close(&probe.fd);
    return status;
}

/* Twice the same: a head that was just about to end is not taken for one that distrusts us. */
static plasmon_status_t probe_twice(const char *target, const struct trust_pems *pems,
                                    uint32_t timeout_ms, struct pl_err *err)
{
    plasmon_status_t status = probe_once(target, pems, timeout_ms / 2, err);

    return status == PLASMON_OK ? status : probe_once(target, pems, timeout_ms / 2, err);
}

plasmon_status_t trust_probe(const char *target, const struct trust_pems *pems,
                             uint32_t timeout_ms, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    uint32_t count          = 1;
    char one[TARGET_BYTES];

    for (const char *at = target; (at = strchr(at, ',')) != NULL; at++) {
        count++;
    }
    while (status == PLASMON_OK && target_next(&target, one)) {
        status = probe_twice(one, pems, timeout_ms / count, err);
    }
    return status;
}

bool trust_called(const char *pem, const char *targets)
{
    X509 *certificate = trust_certificate_first(pem);
    bool called       = false;
    char one[TARGET_BYTES];

    while (certificate != NULL && !called && target_next(&targets, one)) {
        struct probe parts = {.target = one};

        called = target_split(&parts) &&
                 (X509_check_ip_asc(certificate, parts.host, 0) == 1 ||
                  X509_check_host(certificate, parts.host, 0, 0, NULL) == 1);
    }
    ERR_clear_error();
    X509_free(certificate);
    return called;
}
