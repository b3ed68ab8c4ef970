/*
 * Certificates of peers, as a head reads from them who is there. The first byte says what the rest
 * is: 0 a certificate in DER, 1 a text in PEM, 2 the names of a certificate that is otherwise
 * right: [kind: 1 byte][length: 1 byte][bytes] ... Whatever is in there: what is told is whole
 * text, no role comes from a name that is not exactly that role's, and who has any name of a
 * namespace is confined to one.
 */
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "trust/trust_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum form { DER, PEM, NAMES, FORMS };

static void check(X509 *certificate)
{
    struct trust_identity who;
    char hosts[160];

    memset(&who, 0x5a, sizeof(who));
    trust_identity_of(certificate, &who);
    PL_CHECK(memchr(who.name, '\0', sizeof(who.name)) != NULL && who.name[0] != '\0');
    PL_CHECK(memchr(who.name_space, '\0', sizeof(who.name_space)) != NULL);
    PL_CHECK((who.roles & ~(TRUST_ROLE_HEAD | TRUST_ROLE_HOST | TRUST_ROLE_CLIENT)) == 0);
    (void)trust_hosts_text(certificate, hosts);
    PL_CHECK(memchr(hosts, '\0', sizeof(hosts)) != NULL);
}

static GENERAL_NAME *name_of(uint8_t kind, const uint8_t *bytes, size_t length)
{
    static const int kinds[] = {GEN_URI, GEN_DNS, GEN_IPADD, GEN_EMAIL};
    int type                 = kinds[kind % PL_COUNT(kinds)];
    GENERAL_NAME *name       = GENERAL_NAME_new();
    ASN1_STRING *text =
        ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);

    PL_CHECK(name != NULL && text != NULL &&
             ASN1_STRING_set(text, bytes, (int)length) == 1);
    GENERAL_NAME_set0_value(name, type, text);
    return name;
}

/* What the names say, by the book: exactly so long, and exactly those letters. */
struct expected {
    uint32_t roles;
    bool confined;
};

static void expect(struct expected *expected, const uint8_t *bytes, size_t length)
{
    static const struct {
        const char *uri;
        uint32_t role;
    } roles[]              = {{"urn:plasmon:role:head", TRUST_ROLE_HEAD},
                              {"urn:plasmon:role:host", TRUST_ROLE_HOST},
                              {"urn:plasmon:role:client", TRUST_ROLE_CLIENT}};
    static const char of[] = "urn:plasmon:namespace:";

    for (size_t i = 0; i < PL_COUNT(roles); i++) {
        if (length == strlen(roles[i].uri) && memcmp(bytes, roles[i].uri, length) == 0) {
            expected->roles |= roles[i].role;
        }
    }
    expected->confined |=
        length >= sizeof(of) - 1 && memcmp(bytes, of, sizeof(of) - 1) == 0;
}

static void names(const uint8_t *data, size_t size)
{
    GENERAL_NAMES *list      = sk_GENERAL_NAME_new_null();
    X509 *certificate        = X509_new();
    struct expected expected = {.roles = 0};
    struct trust_identity who;

    PL_CHECK(list != NULL && certificate != NULL);
    PL_CHECK(X509_gmtime_adj(X509_getm_notBefore(certificate), 0) != NULL);
    PL_CHECK(X509_gmtime_adj(X509_getm_notAfter(certificate), 3600) != NULL);
    while (size >= 2) {
        size_t length      = pl_min_u64(data[1], size - 2);
        GENERAL_NAME *name = name_of(data[0], data + 2, length);

        PL_CHECK(sk_GENERAL_NAME_push(list, name) > 0);
        if (name->type == GEN_URI) {
            expect(&expected, data + 2, length);
        }
        data += 2 + length;
        size -= 2 + length;
    }
    if (sk_GENERAL_NAME_num(list) > 0) {
        PL_CHECK(X509_add1_ext_i2d(certificate, NID_subject_alt_name, list, 0, 0) == 1);
    }
    check(certificate);
    trust_identity_of(certificate, &who);
    PL_CHECK(who.roles == expected.roles);
    PL_CHECK((who.name_space[0] != '\0') == expected.confined);
    GENERAL_NAMES_free(list);
    X509_free(certificate);
}

static void text(const uint8_t *data, size_t size)
{
    struct pl_err err = {.status = PLASMON_OK};
    char *pem         = pl_alloc(size + 1);
    STACK_OF(X509) * all;
    struct trust_identity who;

    PL_CHECK(pem != NULL);
    memcpy(pem, data, size);
    pem[size] = '\0';
    PL_CHECK(trust_identity_read(pem, &who, &err) == PLASMON_OK || err.text[0] != '\0');
    all = trust_certificates(pem);
    for (int i = 0; all != NULL && i < sk_X509_num(all); i++) {
        check(sk_X509_value(all, i));
    }
    sk_X509_pop_free(all, X509_free);
    pl_free(pem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data + 1;
    X509 *certificate;

    if (size < 2) {
        return 0;
    }
    switch (data[0] % FORMS) {
    case DER:
        certificate = d2i_X509(NULL, &at, (long)(size - 1));
        if (certificate != NULL) {
            check(certificate);
        }
        X509_free(certificate);
        break;
    case PEM:
        text(data + 1, size - 1);
        break;
    default:
        names(data + 1, size - 1);
        break;
    }
    return 0;
}
