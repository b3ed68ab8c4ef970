/*
 * Our own three files: read, and judged as strictly as others will judge them, so that the fault is
 * told where it can be mended.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "trust/trust_int.h"

/* How a file is called in texts: what it is, and how it was given. */
#define CA_NAMES   "CA certificate", "--tls-ca, PLASMON_TLS_CA"
#define CERT_NAMES "certificate", "--tls-cert, PLASMON_TLS_CERT"
#define KEY_NAMES  "key", "--tls-key, PLASMON_TLS_KEY"

bool trust_files_given(const struct trust_files *files)
{
    return files->ca != NULL || files->cert != NULL || files->key != NULL;
}

struct trust_pems *trust_pems_hold(struct trust_pems *pems)
{
    pems->refs++;
    return pems;
}

void trust_pems_release(struct trust_pems *pems)
{
    if (pems == NULL || --pems->refs > 0) {
        return;
    }
    if (pems->key != NULL) {
        OPENSSL_cleanse(pems->key, strlen(pems->key));
    }
    pl_free(pems->ca);
    pl_free(pems->cert);
    pl_free(pems->key);
    pl_free(pems);
}

/* Secrets of Kubernetes are root's, and readable by a group that we are in. */
plasmon_status_t trust_file_private(int fd, const char *what, const char *path,
                                    struct pl_err *err)
{
    struct stat about;
    mode_t forbidden;

    if (fstat(fd, &about) != 0) {
        return pl_err_set(err, pl_status_from_errno(errno), "the %s %s: %s", what, path,
                          strerror(errno));
    }
    forbidden = about.st_uid == 0 && geteuid() != 0 ? S_IRWXO | S_IWGRP : S_IRWXO | S_IRWXG;
    if (S_ISREG(about.st_mode) && (about.st_mode & forbidden) != 0) {
        return pl_err_set(
            err, PLASMON_EPERM,
            "the %s %s can be read or written by others (mode %04o): chmod 600 %s", what,
            path, (unsigned)(about.st_mode & 07777), path);
    }
    return PLASMON_OK;
}

static plasmon_status_t file_read(const char *path, const char *what, const char *given,
                                  bool secret, char **out_text, struct pl_err *err)
{
    int fd                  = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char *text              = fd >= 0 ? pl_alloc(TRUST_FILE_BYTES_MAX + 1) : NULL;
    plasmon_status_t status = PLASMON_OK;
    size_t length           = 0;
    ssize_t got             = 1;

    if (fd < 0) {
        return pl_err_set(err, pl_status_from_errno(errno),
                          "cannot read the %s %s (%s): %s; `plasmon cert` makes one", what,
                          path, given, strerror(errno));
    }
    if (text == NULL) {
        pl_fd_close(&fd);
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    if (secret) {
        status = trust_file_private(fd, "key (--tls-key, PLASMON_TLS_KEY)", path, err);
    }
    while (status == PLASMON_OK && got > 0 && length < TRUST_FILE_BYTES_MAX) {
        got = read(fd, text + length, TRUST_FILE_BYTES_MAX - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (status == PLASMON_OK && (got < 0 || length == TRUST_FILE_BYTES_MAX)) {
        status =
            pl_err_set(err, PLASMON_EINVAL, "cannot read the %s %s (%s): %s", what, path,
                       given, got < 0 ? strerror(errno) : "it is longer than 256 KiB");
    }
    pl_fd_close(&fd);
    if (status != PLASMON_OK) {
        OPENSSL_cleanse(text, length);
        pl_free(text);
        return status;
    }
    text[length] = '\0';
    *out_text    = text;
    return PLASMON_OK;
}

/* Daemons have nobody to ask. */
static int no_password(char *out, int size, int writing, void *user)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)user;
    return 0;
}

static plasmon_status_t check_key(const struct trust_files *files, const char *pem,
                                  X509 *certificate, struct pl_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key =
        bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    plasmon_status_t status = PLASMON_OK;
    char why[160];

    if (key == NULL) {
        status =
            pl_err_set(err, PLASMON_EINVAL,
                       "the key %s (--tls-key, PLASMON_TLS_KEY) is no private key in PEM "
                       "without a password (%s); `plasmon cert` makes one",
                       files->key, trust_reason(why));
    } else if (X509_check_private_key(certificate, key) != 1) {
        ERR_clear_error();
        status = pl_err_set(err, PLASMON_EINVAL,
                            "the key %s (--tls-key, PLASMON_TLS_KEY) is not the one of the "
                            "certificate %s: give the two that belong together",
                            files->key, files->cert);
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    return status;
}

static plasmon_status_t check_time(const struct trust_files *files,
                                   const struct trust_identity *identity,
                                   struct pl_err *err)
{
    time_t now = time(NULL);
    char when[32], today[32];

    if (now > identity->expires) {
        return pl_err_set(
            err, PLASMON_EAUTH,
            "the certificate %s (--tls-cert, PLASMON_TLS_CERT) expired on %s: "
            "`plasmon cert renew` gives it more time",
            files->cert, trust_time_text(identity->expires, when));
    }
    if (now < identity->begins) {
        return pl_err_set(
            err, PLASMON_EAUTH,
            "the certificate %s (--tls-cert, PLASMON_TLS_CERT) begins on %s, and "
            "it is %s here: look at the clock of this machine",
            files->cert, trust_time_text(identity->begins, when),
            trust_time_text(now, today));
    }
    return PLASMON_OK;
}

/* Would somebody who knows only the CA take it? */
static plasmon_status_t check_chain(const struct trust_files *files, const char *ca,
                                    const char *cert, struct pl_err *err)
{
    STACK_OF(X509) *trusted = trust_certificates(ca);
    STACK_OF(X509) *chain   = trust_certificates(cert);
    X509_STORE *store       = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    plasmon_status_t status = PLASMON_OK;

    if (trusted == NULL) {
        status = pl_err_set(err, PLASMON_EINVAL,
                            "the CA certificate %s (--tls-ca, PLASMON_TLS_CA) holds no "
                            "certificate in PEM",
                            files->ca);
    } else if (chain == NULL || store == NULL || context == NULL) {
        status = pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    } else {
        X509_STORE_CTX_init(context, store, sk_X509_value(chain, 0), chain);
        X509_STORE_CTX_set0_trusted_stack(context, trusted);
        if (X509_verify_cert(context) != 1) {
            int error = X509_STORE_CTX_get_error(context);

            status =
                pl_err_set(err, PLASMON_EAUTH,
                           "the certificate %s (--tls-cert, PLASMON_TLS_CERT) is not good "
                           "by the CA in %s (--tls-ca, PLASMON_TLS_CA): %s. Give the CA "
                           "that issued it, or have that one issue another",
                           files->cert, files->ca, X509_verify_cert_error_string(error));
        }
    }
    ERR_clear_error();
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(trusted, X509_free);
    return status;
}

static plasmon_status_t check_roles(const struct trust_files *files,
                                    const struct trust_identity *identity, uint32_t roles,
                                    struct pl_err *err)
{
    char has[TRUST_ROLES_BYTES], wants[TRUST_ROLES_BYTES];

    if ((identity->roles & roles) != 0) {
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EAUTH,
        "the certificate %s (--tls-cert, PLASMON_TLS_CERT) of '%s' is for %s, "
        "and here one for %s is needed: `plasmon cert issue DIR NAME --role "
        "..` makes one (docs/security.md tells what others must have in it)",
        files->cert, identity->name, trust_roles_text(identity->roles, has),
        trust_roles_text(roles, wants));
}

static plasmon_status_t check_all(const struct trust_files *files, uint32_t roles,
                                  struct trust_pems *pems, struct pl_err *err)
{
    X509 *certificate = trust_certificate_first(pems->cert);
    plasmon_status_t status;

    if (certificate == NULL) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "the certificate %s (--tls-cert, PLASMON_TLS_CERT) is none in PEM; "
            "`plasmon cert` makes one",
            files->cert);
    }
    trust_identity_of(certificate, &pems->identity);
    status = check_key(files, pems->key, certificate, err);
    if (status == PLASMON_OK) {
        status = check_time(files, &pems->identity, err);
    }
    if (status == PLASMON_OK) {
        status = check_chain(files, pems->ca, pems->cert, err);
    }
    if (status == PLASMON_OK) {
        status = check_roles(files, &pems->identity, roles, err);
    }
    X509_free(certificate);
    return status;
}

plasmon_status_t trust_read(const struct trust_files *files, uint32_t roles,
                            struct trust_pems **out_pems, struct pl_err *err)
{
    struct trust_pems *pems;
    plasmon_status_t status;

    trust_init();
    if (files->ca == NULL || files->cert == NULL || files->key == NULL) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "%s is missing: --tls-ca, --tls-cert and --tls-key (PLASMON_TLS_CA, "
            "_CERT and _KEY) belong together",
            files->ca == NULL     ? "--tls-ca (PLASMON_TLS_CA)"
            : files->cert == NULL ? "--tls-cert (PLASMON_TLS_CERT)"
                                  : "--tls-key (PLASMON_TLS_KEY)");
    }
    pems = PL_NEW(struct trust_pems);
    if (pems == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    pems->refs = 1;
    status     = file_read(files->ca, CA_NAMES, false, &pems->ca, err);
    if (status == PLASMON_OK) {
        status = file_read(files->cert, CERT_NAMES, false, &pems->cert, err);
    }
    if (status == PLASMON_OK) {
        status = file_read(files->key, KEY_NAMES, true, &pems->key, err);
    }
    if (status == PLASMON_OK) {
        status = check_all(files, roles, pems, err);
    }
    if (status != PLASMON_OK) {
        trust_pems_release(pems);
        return status;
    }
    *out_pems = pems;
    return PLASMON_OK;
}

bool trust_pems_load(const struct trust_pems *pems, SSL_CTX *context)
{
    STACK_OF(X509) *trusted = trust_certificates(pems->ca);
    STACK_OF(X509) *chain   = trust_certificates(pems->cert);
    BIO *bio                = BIO_new_mem_buf(pems->key, -1);
    EVP_PKEY *key     = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    bool good         = trusted != NULL && chain != NULL && key != NULL;

    for (int i = 0; good && i < sk_X509_num(trusted); i++) {
        good = X509_STORE_add_cert(store, sk_X509_value(trusted, i)) == 1;
    }
    for (int i = 0; good && i < sk_X509_num(chain); i++) {
        X509 *one = sk_X509_value(chain, i);

        good = (i == 0 ? SSL_CTX_use_certificate(context, one)
                       : (int)SSL_CTX_add1_chain_cert(context, one)) == 1;
    }
    good = good && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    BIO_free(bio);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(trusted, X509_free);
    return good;
}
