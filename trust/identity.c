#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "trust/trust_int.h"

#define ROLE_PREFIX      "urn:plasmon:role:"
#define NAMESPACE_PREFIX "urn:plasmon:namespace:"

static const struct {
    const char *name;
    uint32_t role;
} roles[] = {{"head", TRUST_ROLE_HEAD},
             {"host", TRUST_ROLE_HOST},
             {"client", TRUST_ROLE_CLIENT}};

void trust_init(void)
{
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL); /* else it cleans up there */
}

const char *trust_reason(char out[160])
{
    unsigned long code = ERR_get_error();
    const char *said   = code != 0 ? ERR_reason_error_string(code) : NULL;

    (void)snprintf(out, 160, "%s", said != NULL ? said : "unknown reason");
    ERR_clear_error();
    return out;
}

uint32_t trust_role_of(const char *text)
{
    for (size_t i = 0; i < PL_COUNT(roles); i++) {
        if (strcmp(roles[i].name, text) == 0) {
            return roles[i].role;
        }
    }
    return 0;
}

const char *trust_roles_text(uint32_t set, char out[TRUST_ROLES_BYTES])
{
    size_t used = 0;

    (void)snprintf(out, TRUST_ROLES_BYTES, "no role");
    for (size_t i = 0; i < PL_COUNT(roles); i++) {
        if ((set & roles[i].role) != 0) {
            used += (size_t)snprintf(out + used, TRUST_ROLES_BYTES - used, "%s%s",
                                     used > 0 ? ", " : "", roles[i].name);
        }
    }
    return out;
}

bool trust_name_good(const char *text)
{
    size_t length = strlen(text);

    if (length == 0 || length > TRUST_NAME_BYTES_MAX || text[0] == '.') {
        return false;
    }
    return strspn(text,
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
           length;
}

const char *trust_time_text(time_t when, char out[32])
{
    struct tm parts;

    if (gmtime_r(&when, &parts) == NULL ||
        strftime(out, 32, "%Y-%m-%d %H:%M UTC", &parts) == 0) {
        (void)snprintf(out, 32, "?");
    }
    return out;
}

time_t trust_time(const ASN1_TIME *time)
{
    struct tm parts;

    return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

STACK_OF(X509) * trust_certificates(const char *pem)
{
    BIO *bio             = BIO_new_mem_buf(pem, -1);
    STACK_OF(X509) *list = sk_X509_new_null();
    X509 *one;

    while (bio != NULL && list != NULL &&
           (one = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
        if (sk_X509_push(list, one) <= 0) {
            X509_free(one);
            break;
        }
    }
    ERR_clear_error(); /* the end of the text is one */
    BIO_free(bio);
    if (list != NULL && sk_X509_num(list) == 0) {
        sk_X509_free(list);
        list = NULL;
    }
    return list;
}

X509 *trust_certificate_first(const char *pem)
{
    BIO *bio  = BIO_new_mem_buf(pem, -1);
    X509 *one = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    ERR_clear_error();
    BIO_free(bio);
    return one;
}

/*
 * A text of a certificate, if it is one: no NUL inside, which would make it another name for C than
 * for the CA.
 */
static bool text_of(const ASN1_STRING *from, char *out, size_t bytes)
{
    int length = ASN1_STRING_length(from);

    if (length <= 0 || (size_t)length >= bytes ||
        memchr(ASN1_STRING_get0_data(from), '\0', (size_t)length) != NULL) {
        return false;
    }
    memcpy(out, ASN1_STRING_get0_data(from), (size_t)length);
    out[length] = '\0';
    return true;
}

/*
 * A role that is none is not there; a namespace that is none, or a second one, is of no namespace
 * at all, rather than of any.
 */
static void take_uri(const ASN1_STRING *from, struct trust_identity *out)
{
    const char *bytes = (const char *)ASN1_STRING_get0_data(from);
    size_t length     = (size_t)ASN1_STRING_length(from);
    char uri[256];
    bool whole = text_of(from, uri, sizeof(uri));

    if (whole && strncmp(uri, ROLE_PREFIX, sizeof(ROLE_PREFIX) - 1) == 0) {
        out->roles |= trust_role_of(uri + sizeof(ROLE_PREFIX) - 1);
    } else if (length >= sizeof(NAMESPACE_PREFIX) - 1 &&
               memcmp(bytes, NAMESPACE_PREFIX, sizeof(NAMESPACE_PREFIX) - 1) == 0) {
        const char *name = whole ? uri + sizeof(NAMESPACE_PREFIX) - 1 : "";
        bool good        = out->name_space[0] == '\0' && trust_name_good(name);

        (void)snprintf(out->name_space, sizeof(out->name_space), "%s", good ? name : "?");
    }
}

void trust_identity_of(X509 *certificate, struct trust_identity *out)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at                   = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    *out = (struct trust_identity){.begins  = trust_time(X509_get0_notBefore(certificate)),
                                   .expires = trust_time(X509_get0_notAfter(certificate))};
    if (at < 0 || !text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)),
                           out->name, sizeof(out->name))) {
        (void)snprintf(out->name, sizeof(out->name), "?");
    }
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

        if (name->type == GEN_URI) {
            take_uri(name->d.uniformResourceIdentifier, out);
        }
    }
    GENERAL_NAMES_free(names);
}

plasmon_status_t trust_identity_read(const char *pem, struct trust_identity *out,
                                     struct pl_err *err)
{
    X509 *certificate;

    trust_init();
    certificate = trust_certificate_first(pem);
    if (certificate == NULL) {
        return pl_err_set(err, PLASMON_EMALFORMED, "there is no certificate in PEM");
    }
    trust_identity_of(certificate, out);
    X509_free(certificate);
    return PLASMON_OK;
}

const char *trust_hosts_text(X509 *certificate, char out[160])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    size_t used          = 0;
    char one[128];

    (void)snprintf(out, 160, "no host");
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        bool good                = false;

        if (name->type == GEN_DNS) {
            good = text_of(name->d.dNSName, one, sizeof(one));
        } else if (name->type == GEN_IPADD && name->d.iPAddress->length == 4) {
            const uint8_t *ip = name->d.iPAddress->data;

            good =
                snprintf(one, sizeof(one), "%u.%u.%u.%u", ip[0], ip[1], ip[2], ip[3]) > 0;
        }
        if (good && used + strlen(one) + 3 < 160) {
            used +=
                (size_t)snprintf(out + used, 160 - used, "%s%s", used > 0 ? ", " : "", one);
        }
    }
    GENERAL_NAMES_free(names);
    return out;
}
