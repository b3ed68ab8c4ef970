/*
 * TLS of the core: credentials from our certificates, and who the other side is.
 *
 * Both sides must show a certificate of the CA; the core checks that, its times, and on a client
 * that the server is called as it was asked for. What it does not know of is roles. A client takes
 * only who may be a head, before it has sent a byte of its own; a server looks at each call, since
 * what a role may do depends on what is called.
 *
 * ROTATION  A server asks for its certificates before each handshake. A client's are looked at when
 * a stream is opened (channel.c). A connection that is there goes on with what it began with.
 */
#include "rpc/grpc_int.h"

#include <string.h>

#include "base/alloc.h"

/* Called on a thread of the core, before each handshake. */
static grpc_ssl_certificate_config_reload_status
tls_server_config(void *user, grpc_ssl_server_certificate_config **out_config)
{
    struct rpc_tls_listener *listener = user;
    struct trust_pems *pems           = trust_source_get(listener->source), *old;
    grpc_ssl_pem_key_cert_pair pair;

    pl_mutex_lock(&listener->lock);
    old            = listener->pems;
    listener->pems = pems;
    pl_mutex_unlock(&listener->lock);
    if (old == pems) {
        trust_pems_release(old);
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    trust_pems_release(old);
    pair = (grpc_ssl_pem_key_cert_pair){.private_key = pems->key, .cert_chain = pems->cert};
    *out_config = grpc_ssl_server_certificate_config_create(pems->ca, &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

grpc_server_credentials *rpc_tls_server_credentials(struct rpc_tls_listener *listener)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, tls_server_config,
            listener));
}

/*
 * Called on a thread of the core, in the handshake, after it has found nothing against the
 * certificate. targets: several, and its name is to be one of theirs. 0: go on.
 */
static int tls_is_head(const char *target, const char *pem, void *targets)
{
    struct trust_identity identity;

    (void)target;
    return trust_identity_read(pem, &identity, NULL) == PLASMON_OK &&
                   (identity.roles & TRUST_ROLE_HEAD) != 0 &&
                   (targets == NULL || trust_called(pem, targets))
               ? 0
               : 1;
}

grpc_channel_credentials *rpc_tls_channel_credentials(const struct trust_pems *pems,
                                                      const char *targets)
{
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pems->key, .cert_chain = pems->cert};
    grpc_ssl_verify_peer_options options = {
        .verify_peer_callback          = tls_is_head,
        .verify_peer_callback_userdata = targets != NULL ? pl_strdup(targets) : NULL,
        .verify_peer_destruct          = pl_free,
    };

    PL_CHECK((targets == NULL) == (options.verify_peer_callback_userdata == NULL));

    return grpc_ssl_credentials_create_ex(pems->ca, &pair, &options, NULL);
}

static const grpc_auth_property *tls_property(const grpc_auth_context *context,
                                              const char *name)
{
    grpc_auth_property_iterator properties =
        grpc_auth_context_find_properties_by_name(context, name);

    return grpc_auth_property_iterator_next(&properties);
}

static plasmon_status_t tls_identity_take(const grpc_auth_property *pem,
                                          struct trust_identity **out_identity,
                                          struct pl_err *err)
{
    struct trust_identity *identity = PL_NEW(struct trust_identity);
    char *text                      = pl_alloc(pem->value_length + 1);
    plasmon_status_t status         = PLASMON_ENOMEM;

    if (identity == NULL || text == NULL) {
        (void)pl_err_set(err, status, "the server is out of memory");
    } else {
        memcpy(text, pem->value, pem->value_length);
        status = trust_identity_read(text, identity, err);
    }
    pl_free(text);
    if (status != PLASMON_OK) {
        pl_free(identity);
        return status;
    }
    *out_identity = identity;
    return PLASMON_OK;
}

plasmon_status_t rpc_tls_identity(grpc_call *call, struct trust_identity **out_identity,
                                  struct pl_err *err)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    const grpc_auth_property *type =
        context != NULL ? tls_property(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME)
                        : NULL;
    plasmon_status_t status = PLASMON_OK;

    *out_identity = NULL;
    if (type != NULL && strcmp(type->value, GRPC_SSL_TRANSPORT_SECURITY_TYPE) == 0) {
        const grpc_auth_property *pem =
            tls_property(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);

        status = pem != NULL ? tls_identity_take(pem, out_identity, err)
                             : pl_err_set(err, PLASMON_EAUTH, "no certificate was shown");
    }
    grpc_auth_context_release(context);
    return status;
}
