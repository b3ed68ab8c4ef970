/*
 * A CA for one cluster, in a folder: ca.crt, ca.key, and NAME.crt and NAME.key of each that was issued.
 *
 * Every file is written under another name, brought to the disk, and renamed: there is never half a
 * one under its name. All are 0600. Keys never leave the folder by us; who has ca.key can become
 * anybody in the cluster, so it belongs to the administrator and on no host.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/fd.h"
#include "trust/trust_int.h"

#define SERIAL_BYTES  16
#define BACKDATE_S    300 /* clocks differ */
#define SAN_BYTES_MAX 4096

struct authority {
    const char *dir;
    X509 *certificate;
    EVP_PKEY *key;
};

/* -------------------------------------------------------------------------------- files */

static plasmon_status_t path_of(const char *dir, const char *name, const char *suffix,
                                char out[PATH_MAX], struct pl_err *err)
{
    int length = snprintf(out, PATH_MAX, "%s/%s%s", dir, name, suffix);

    return length > 0 && length < PATH_MAX
               ? PLASMON_OK
               : pl_err_set(err, PLASMON_ELIMIT, "%s: the path is too long", dir);
}

/* What was written into memory becomes the file. */
static plasmon_status_t file_write(const char *dir, const char *name, const char *suffix,
                                   BIO *memory, struct pl_err *err)
{
    char path[PATH_MAX], fresh[PATH_MAX];
    plasmon_status_t status = path_of(dir, name, suffix, path, err);
    char *bytes;
    long length = BIO_get_mem_data(memory, &bytes);
    int fd;

    if (status == PLASMON_OK) {
        status = path_of(dir, name, suffix[1] == 'k' ? ".key.new" : ".crt.new", fresh, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    (void)unlink(fresh); /* of one that was interrupted */
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, bytes, (size_t)length) != length || fsync(fd) != 0 ||
        rename(fresh, path) != 0) {
        status = pl_err_set(err, pl_status_from_errno(errno), "cannot write %s: %s", path,
                            strerror(errno));
        (void)unlink(fresh);
    }
    pl_fd_close(&fd);
    return status;
}

static plasmon_status_t write_certificate(const char *dir, const char *name,
                                          X509 *certificate, struct pl_err *err)
{
    BIO *memory = BIO_new(BIO_s_mem());
    plasmon_status_t status;

    status = memory != NULL && PEM_write_bio_X509(memory, certificate) == 1
                 ? file_write(dir, name, ".crt", memory, err)
                 : pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    BIO_free(memory);
    return status;
}

static plasmon_status_t write_key(const char *dir, const char *name, EVP_PKEY *key,
                                  struct pl_err *err)
{
    BIO *memory = BIO_new(BIO_s_secmem());
    plasmon_status_t status;

    status = memory != NULL &&
                     PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL) == 1
                 ? file_write(dir, name, ".key", memory, err)
                 : pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    BIO_free(memory);
    return status;
}

static BIO *file_open(const char *dir, const char *name, const char *suffix,
                      struct pl_err *err)
{
    char path[PATH_MAX];
    BIO *file = NULL;

    if (path_of(dir, name, suffix, path, err) != PLASMON_OK) {
        return NULL;
    }
    file = BIO_new_file(path, "r");
    if (file == NULL) {
        int error = errno;

        ERR_clear_error();
        (void)pl_err_set(
            err, pl_status_from_errno(error), "cannot read %s: %s%s", path, strerror(error),
            strcmp(name, "ca") == 0 ? "; `plasmon cert init DIR` makes a CA" : "");
    }
    return file;
}

static plasmon_status_t must_not_exist(const char *dir, const char *name,
                                       struct pl_err *err)
{
    char path[PATH_MAX];
    struct stat about;
    plasmon_status_t status = path_of(dir, name, ".crt", path, err);

    if (status != PLASMON_OK || lstat(path, &about) != 0) {
        return status;
    }
    return pl_err_set(err, PLASMON_EEXIST, "%s is there already: %s", path,
                      strcmp(name, "ca") == 0
                          ? "a cluster has one CA; remove the folder first"
                          : "`plasmon cert renew` gives it more time");
}

static plasmon_status_t read_certificate(const char *dir, const char *name, X509 **out,
                                         struct pl_err *err)
{
    BIO *file = file_open(dir, name, ".crt", err);
    char why[160];

    if (file == NULL) {
        return err->status;
    }
    *out = PEM_read_bio_X509(file, NULL, NULL, NULL);
    BIO_free(file);
    return *out != NULL ? PLASMON_OK
                        : pl_err_set(err, PLASMON_EINVAL, "%s/%s.crt is no certificate: %s",
                                     dir, name, trust_reason(why));
}

static plasmon_status_t read_key(const char *dir, const char *name, EVP_PKEY **out,
                                 struct pl_err *err)
{
    BIO *file = file_open(dir, name, ".key", err);
    char why[160];

    if (file == NULL) {
        return err->status;
    }
    *out = PEM_read_bio_PrivateKey(file, NULL, NULL, NULL);
    BIO_free(file);
    return *out != NULL ? PLASMON_OK
                        : pl_err_set(err, PLASMON_EINVAL, "%s/%s.key is no key: %s", dir,
                                     name, trust_reason(why));
}

static void authority_close(struct authority *authority)
{
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
}

static plasmon_status_t authority_open(const char *dir, struct authority *out,
                                       struct pl_err *err)
{
    plasmon_status_t status;

    trust_init();
    *out   = (struct authority){.dir = dir};
    status = read_certificate(dir, "ca", &out->certificate, err);
    if (status == PLASMON_OK) {
        status = read_key(dir, "ca", &out->key, err);
    }
    if (status != PLASMON_OK) {
        authority_close(out);
    }
    return status;
}

/* ------------------------------------------------------------------------- certificates */

/*
 * From now, at the latest when the CA ends: nobody takes a certificate of a CA that has expired, so
 * a longer one would only keep from whoever looks at it that its time is over.
 */
static plasmon_status_t ends_within(const struct authority *authority, time_t now,
                                    int64_t *io_ends_s, struct pl_err *err)
{
    time_t ends    = trust_time(X509_get0_notAfter(authority->certificate));
    int64_t left_s = (int64_t)ends - (int64_t)now;

    if (ends == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "%s/ca.crt does not say when it expires",
                          authority->dir);
    }
    if (left_s <= 0) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "the CA %s/ca.crt has expired: what it issues is taken by nobody; "
            "make another one (`plasmon cert init`)",
            authority->dir);
    }
    *io_ends_s = *io_ends_s < left_s ? *io_ends_s : left_s;
    return PLASMON_OK;
}

static EVP_PKEY *key_create(enum trust_algorithm algorithm)
{
    return algorithm == TRUST_ED25519 ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519")
                                      : EVP_EC_gen("P-256");
}

/* Ed25519 hashes by itself. */
static bool sign(X509 *certificate, EVP_PKEY *key)
{
    const EVP_MD *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();

    return X509_sign(certificate, key, digest) > 0;
}

static bool serial_draw(X509 *certificate)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number;
    bool good;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
        return false;
    }
    bytes[0] &= 0x7f;
    bytes[0] |= 0x40; /* positive, and always as long */
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    good   = number != NULL &&
           BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return good;
}

static bool extension_add(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool good;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    good      = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

/* All but its extensions and its signature. */
static X509 *certificate_begin(const char *name, EVP_PKEY *key, const X509_NAME *issuer,
                               time_t now, int64_t begins_s, int64_t ends_s)
{
    X509 *certificate  = X509_new();
    X509_NAME *subject = certificate != NULL ? X509_get_subject_name(certificate) : NULL;

    if (certificate == NULL || X509_set_version(certificate, X509_VERSION_3) != 1 ||
        !serial_draw(certificate) ||
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name,
                                   -1, -1, 0) != 1 ||
        X509_set_issuer_name(certificate, issuer != NULL ? issuer : subject) != 1 ||
        ASN1_TIME_set(X509_getm_notBefore(certificate), now + begins_s) == NULL ||
        ASN1_TIME_set(X509_getm_notAfter(certificate), now + ends_s) == NULL ||
        X509_set_pubkey(certificate, key) != 1) {
        X509_free(certificate);
        return NULL;
    }
    return certificate;
}

static plasmon_status_t said_by_openssl(struct pl_err *err)
{
    char why[160];

    return pl_err_set(err, PLASMON_EINTERNAL, "a certificate could not be made: %s",
                      trust_reason(why));
}

plasmon_status_t trust_authority_create(const char *dir, const char *name,
                                        enum trust_algorithm algorithm, int64_t ends_s,
                                        struct pl_err *err)
{
    EVP_PKEY *key     = NULL;
    X509 *certificate = NULL;
    plasmon_status_t status;

    trust_init();
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return pl_err_set(err, pl_status_from_errno(errno), "cannot make %s: %s", dir,
                          strerror(errno));
    }
    status = must_not_exist(dir, "ca", err);
    if (status != PLASMON_OK) {
        return status;
    }
    key = key_create(algorithm);
    if (key != NULL) {
        certificate = certificate_begin(name, key, NULL, time(NULL), -BACKDATE_S, ends_s);
    }
    if (certificate == NULL ||
        !extension_add(certificate, certificate, NID_basic_constraints,
                       "critical,CA:TRUE,pathlen:0") ||
        !extension_add(certificate, certificate, NID_key_usage,
                       "critical,keyCertSign,cRLSign") ||
        !extension_add(certificate, certificate, NID_subject_key_identifier, "hash") ||
        !sign(certificate, key)) {
        status = said_by_openssl(err);
    }
    if (status == PLASMON_OK) {
        status = write_key(dir, "ca", key, err);
    }
    if (status == PLASMON_OK) {
        status = write_certificate(dir, "ca", certificate, err);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    return status;
}

static bool is_address(const char *text)
{
    unsigned char room[16];

    return inet_pton(AF_INET, text, room) == 1 || inet_pton(AF_INET6, text, room) == 1;
}

/*
 * The last part of a name is never a number: what looks so is an address with a slip of the pen,
 * and no host could be reached by it.
 */
static bool is_name(const char *text)
{
    const char *dot  = strrchr(text, '.');
    const char *last = dot != NULL ? dot + 1 : text;

    return text[0] != '\0' && strlen(text) <= 253 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789.-*") == strlen(text) &&
           (dot == NULL || last[0] == '\0' || strspn(last, "0123456789") < strlen(last));
}

/* As OpenSSL writes them: what is in there must not be able to begin another entry. */
static plasmon_status_t names_text(const struct trust_request *request,
                                   char out[SAN_BYTES_MAX], struct pl_err *err)
{
    static const uint32_t all[] = {TRUST_ROLE_HEAD, TRUST_ROLE_HOST, TRUST_ROLE_CLIENT};
    char role[TRUST_ROLES_BYTES];
    size_t used = 0;

    for (size_t i = 0; request->hosts[i] != NULL; i++) {
        const char *host = request->hosts[i];
        bool address     = is_address(host);

        if (!address && !is_name(host)) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "\"%.100s\" is neither a host's name nor an address", host);
        }
        used += (size_t)snprintf(out + used, SAN_BYTES_MAX - used, "%s:%s,",
                                 address ? "IP" : "DNS", host);
        PL_CHECK(used < SAN_BYTES_MAX); /* TRUST_HOSTS_MAX of 253 */
    }
    if (request->name_space != NULL) {
        if (!trust_name_good(request->name_space)) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "\"%.100s\" cannot be the name of a namespace in a "
                              "certificate: letters, digits, '.', '-' and '_', at most %u",
                              request->name_space, TRUST_NAME_BYTES_MAX);
        }
        used += (size_t)snprintf(out + used, SAN_BYTES_MAX - used,
                                 "URI:urn:plasmon:namespace:%s,", request->name_space);
    }
    for (size_t i = 0; i < PL_COUNT(all); i++) {
        if ((request->roles & all[i]) != 0) {
            used += (size_t)snprintf(out + used, SAN_BYTES_MAX - used,
                                     "URI:urn:plasmon:role:%s,",
                                     trust_roles_text(all[i], role));
        }
    }
    PL_CHECK(used > 0 && used < SAN_BYTES_MAX);
    out[used - 1] = '\0'; /* the last comma */
    return PLASMON_OK;
}

static plasmon_status_t check_request(const struct trust_request *request,
                                      struct pl_err *err)
{
    if (!trust_name_good(request->name) || strcmp(request->name, "ca") == 0) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "\"%.100s\" cannot be a certificate's name: letters, digits, '.', "
            "'-' and '_', at most %u, and not \"ca\"",
            request->name, TRUST_NAME_BYTES_MAX);
    }
    if (request->roles == 0) {
        return pl_err_set(err, PLASMON_EINVAL, "a certificate without a role is of no use");
    }
    if ((request->roles & TRUST_ROLE_HEAD) != 0 && request->hosts[0] == NULL) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "a head's certificate must name the host by which others reach it: "
            "--host NAME or --host ADDRESS, for each of its names");
    }
    return PLASMON_OK;
}

static plasmon_status_t leaf_create(const struct authority *authority,
                                    const struct trust_request *request, EVP_PKEY *key,
                                    X509 **out, struct pl_err *err)
{
    char names[SAN_BYTES_MAX];
    plasmon_status_t status = names_text(request, names, err);
    int64_t ends_s          = request->ends_s;
    time_t now              = time(NULL);
    X509 *leaf;

    if (status == PLASMON_OK) {
        status = ends_within(authority, now, &ends_s, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    leaf =
        certificate_begin(request->name, key, X509_get_subject_name(authority->certificate),
                          now, request->begins_s, ends_s);
    if (leaf == NULL ||
        !extension_add(leaf, authority->certificate, NID_basic_constraints,
                       "critical,CA:FALSE") ||
        !extension_add(leaf, authority->certificate, NID_key_usage,
                       "critical,digitalSignature") ||
        !extension_add(leaf, authority->certificate, NID_ext_key_usage,
                       request->roles == TRUST_ROLE_CLIENT ? "clientAuth"
                                                           : "serverAuth,clientAuth") ||
        !extension_add(leaf, authority->certificate, NID_subject_key_identifier, "hash") ||
        !extension_add(leaf, authority->certificate, NID_authority_key_identifier,
                       "keyid") ||
        !extension_add(leaf, authority->certificate, NID_subject_alt_name, names) ||
        !sign(leaf, authority->key)) {
        X509_free(leaf);
        return said_by_openssl(err);
    }
    *out = leaf;
    return PLASMON_OK;
}

plasmon_status_t trust_issue(const char *dir, const struct trust_request *request,
                             struct pl_err *err)
{
    struct authority authority;
    EVP_PKEY *key           = NULL;
    X509 *leaf              = NULL;
    plasmon_status_t status = check_request(request, err);

    if (status == PLASMON_OK) {
        status = must_not_exist(dir, request->name, err);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    status = authority_open(dir, &authority, err);
    if (status != PLASMON_OK) {
        return status;
    }
    key    = key_create(request->algorithm);
    status = key != NULL ? leaf_create(&authority, request, key, &leaf, err)
                         : said_by_openssl(err);
    if (status == PLASMON_OK) {
        status = write_key(dir, request->name, key, err);
    }
    if (status == PLASMON_OK) {
        status = write_certificate(dir, request->name, leaf, err);
    }
    X509_free(leaf);
    EVP_PKEY_free(key);
    authority_close(&authority);
    return status;
}

plasmon_status_t trust_renew(const char *dir, const char *name, int64_t ends_s,
                             struct pl_err *err)
{
    struct authority authority;
    X509 *leaf = NULL;
    time_t now = time(NULL);
    plasmon_status_t status =
        !trust_name_good(name) || strcmp(name, "ca") == 0
            ? pl_err_set(err, PLASMON_EINVAL, "\"%.100s\" was never issued here", name)
            : authority_open(dir, &authority, err);

    if (status != PLASMON_OK) {
        return status;
    }
    status = read_certificate(dir, name, &leaf, err);
    if (status == PLASMON_OK && X509_verify(leaf, authority.key) != 1) {
        /* else we would vouch for what others wrote */
        ERR_clear_error();
        status = pl_err_set(err, PLASMON_EAUTH, "%s/%s.crt is not of the CA in %s", dir,
                            name, dir);
    }
    if (status == PLASMON_OK) {
        status = ends_within(&authority, now, &ends_s, err);
    }
    if (status == PLASMON_OK &&
        (!serial_draw(leaf) ||
         ASN1_TIME_set(X509_getm_notBefore(leaf), now - BACKDATE_S) == NULL ||
         ASN1_TIME_set(X509_getm_notAfter(leaf), now + ends_s) == NULL ||
         !sign(leaf, authority.key))) {
        status = said_by_openssl(err);
    }
    if (status == PLASMON_OK) {
        status = write_certificate(dir, name, leaf, err);
    }
    X509_free(leaf);
    authority_close(&authority);
    return status;
}
