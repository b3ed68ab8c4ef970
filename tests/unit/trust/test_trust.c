/*
 * Files, one by one wrong; what a certificate says; making, renewing and replacing. Handshakes are
 * in tests/unit/rpc/test_tls.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/fault.h"
#include "tests/harness/test.h"
#include "tests/unit/trust/certificates.h"

static const struct trust_request client = {.name = "me", .roles = TRUST_ROLE_CLIENT};

static plasmon_status_t read_as(const struct trust_files *files, uint32_t roles,
                                struct pl_err *err)
{
    struct trust_pems *pems = NULL;
    plasmon_status_t status = trust_read(files, roles, &pems, err);

    trust_pems_release(pems);
    return status;
}

TEST(what_was_asked_for_is_in_a_certificate)
{
    struct certificates all;
    struct trust_pems *pems;
    struct trust_files files;
    struct pl_err err = {0};
    char text[TRUST_ROLES_BYTES];
    struct stat about;

    certificates_begin(&all);
    certificates_issue(&all,
                       &(struct trust_request){.name  = "n1",
                                               .roles = TRUST_ROLE_HEAD | TRUST_ROLE_HOST,
                                               .hosts = {"localhost", "127.0.0.1", "::1"},
                                               .algorithm  = TRUST_ED25519,
                                               .name_space = "team-a"});
    files = certificates_files(&all, "n1");
    ASSERT_OK(trust_read(&files, TRUST_ROLE_HOST, &pems, &err));
    ASSERT_STR(pems->identity.name, "n1");
    ASSERT_STR(pems->identity.name_space, "team-a");
    ASSERT_STR(trust_roles_text(pems->identity.roles, text), "head, host");
    ASSERT_TRUE(pems->identity.expires - pems->identity.begins == 3900);
    trust_pems_release(pems);
    ASSERT_EQ(stat(files.key, &about), 0);
    ASSERT_EQ(about.st_mode & 07777, 0600);
    certificates_end(&all);
}

TEST(each_fault_of_our_files_is_named_with_its_remedy)
{
    struct certificates all, others;
    struct trust_files files, wrong;
    struct pl_err err = {0};

    certificates_begin(&all);
    certificates_begin(&others);
    certificates_issue(&all, &client);
    certificates_issue(&all,
                       &(struct trust_request){.name = "n1", .roles = TRUST_ROLE_HOST});
    certificates_issue(&all, &(struct trust_request){.name     = "old",
                                                     .roles    = TRUST_ROLE_CLIENT,
                                                     .begins_s = -7200,
                                                     .ends_s   = -3600});
    certificates_issue(&all, &(struct trust_request){.name     = "early",
                                                     .roles    = TRUST_ROLE_CLIENT,
                                                     .begins_s = 1800,
                                                     .ends_s   = 3600});
    files = certificates_files(&all, "me");
    ASSERT_OK(read_as(&files, TRUST_ROLE_CLIENT, &err));

    wrong     = files;
    wrong.key = NULL;
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--tls-key (PLASMON_TLS_KEY) is missing");

    wrong     = files;
    wrong.key = "/nowhere/key";
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_ENOENT);
    ASSERT_CONTAINS(err.text, "/nowhere/key");
    ASSERT_CONTAINS(err.text, "plasmon cert");

    ASSERT_EQ(chmod(files.key, 0640), 0);
    ASSERT_STATUS(read_as(&files, TRUST_ROLE_CLIENT, &err), PLASMON_EPERM);
    ASSERT_CONTAINS(err.text, "mode 0640");
    ASSERT_CONTAINS(err.text, "chmod 600");
    ASSERT_EQ(chmod(files.key, 0600), 0);

    for (unsigned i = 0; i < 3;
         i++) { /* one alone means that TLS is wanted, and is not enough */
        struct trust_files alone = {.ca = NULL};

        ASSERT_TRUE(!trust_files_given(&alone));
        alone.ca   = i == 0 ? files.ca : NULL;
        alone.cert = i == 1 ? files.cert : NULL;
        alone.key  = i == 2 ? files.key : NULL;
        ASSERT_TRUE(trust_files_given(&alone));
        ASSERT_STATUS(read_as(&alone, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, "belong together");
    }

    wrong     = files;
    wrong.key = certificates_file(&all, "n1", "key");
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "is not the one of the certificate");

    wrong     = files;
    wrong.key = files.cert;
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "is no private key");

    wrong      = files;
    wrong.cert = files.key;
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--tls-cert");

    wrong    = files;
    wrong.ca = files.key;
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "--tls-ca");

    wrong    = files;
    wrong.ca = certificates_file(&others, "ca", "crt");
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is not good by the CA");

    ASSERT_STATUS(read_as(&files, TRUST_ROLE_HOST, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "'me' is for client, and here one for host is needed");

    wrong = certificates_files(&all, "old");
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "expired on 20");
    ASSERT_CONTAINS(err.text, "plasmon cert renew");
    wrong = certificates_files(&all, "early");
    ASSERT_STATUS(read_as(&wrong, TRUST_ROLE_CLIENT, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "clock");
    certificates_end(&all);
    certificates_end(&others);
}

/* The nth allocation fails, for each n. */
TEST(files_are_read_or_not_whichever_allocation_fails)
{
    struct certificates all;
    struct trust_files files;
    bool fired = true;

#ifndef PL_FAULTS
    test_skip("this build has no faults (PLASMON_FAULTS is off)");
#endif
    certificates_begin(&all);
    certificates_issue(&all,
                       &(struct trust_request){.name = "me", .roles = TRUST_ROLE_CLIENT});
    files = certificates_files(&all, "me");
    for (unsigned nth = 0; fired; nth++) {
        struct pl_err err = {0};
        plasmon_status_t status;

        pl_fault_arm("alloc", nth);
        status = read_as(&files, TRUST_ROLE_CLIENT, &err);
        fired  = pl_fault_disarm() != 0;
        ASSERT_STATUS(status, fired ? PLASMON_ENOMEM : PLASMON_OK);
        ASSERT_TRUE(!fired || err.text[0] != '\0');
    }
    certificates_end(&all);
}

TEST(what_cannot_be_issued_is_refused)
{
    static const struct {
        struct trust_request request;
        const char *says;
    } bad[] = {
        {{.name = "../evil", .roles = TRUST_ROLE_CLIENT}, "cannot be a certificate's name"},
        {{.name = "ca", .roles = TRUST_ROLE_CLIENT}, "cannot be a certificate's name"},
        {{.name = "", .roles = TRUST_ROLE_CLIENT}, "cannot be a certificate's name"},
        {{.name = "h", .roles = TRUST_ROLE_HEAD}, "--host"},
        {{.name = "h", .roles = 0}, "without a role"},
        {{.name = "h", .roles = TRUST_ROLE_HOST, .hosts = {"a,URI:urn:plasmon:role:head"}},
         "neither a host's name"},
        {{.name = "h", .roles = TRUST_ROLE_HOST, .hosts = {"999.1.1.1"}},
         "neither a host's name"},
        {{.name = "h", .roles = TRUST_ROLE_HOST, .hosts = {"n1", "10.0.1"}},
         "neither a host's name"},
        {{.name       = "h",
          .roles      = TRUST_ROLE_CLIENT,
          .name_space = "a,URI:urn:plasmon:role:host"},
         "name of a namespace"},
        {{.name = "me", .roles = TRUST_ROLE_CLIENT}, "is there already"},
    };
    struct certificates all;
    struct pl_err err = {0};

    certificates_begin(&all);
    certificates_issue(&all, &client);
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ASSERT_TRUE(trust_issue(all.dir, &bad[i].request, &err) != PLASMON_OK);
        ASSERT_CONTAINS(err.text, bad[i].says);
    }
    ASSERT_STATUS(trust_authority_create(all.dir, "again", TRUST_EC_P256, 60, &err),
                  PLASMON_EEXIST);
    ASSERT_STATUS(trust_renew(all.dir, "nobody", 60, &err), PLASMON_ENOENT);
    certificates_end(&all);
}

TEST(what_is_no_certificate_role_or_name_is_said_to_be_none)
{
    struct trust_identity identity;
    struct pl_err err = {0};

    ASSERT_STATUS(trust_identity_read("rubbish", &identity, &err), PLASMON_EMALFORMED);
    ASSERT_STATUS(trust_identity_read("", &identity, &err), PLASMON_EMALFORMED);
    ASSERT_EQ(trust_role_of("admin"), 0);
    ASSERT_TRUE(!trust_name_good("?"));
}

/* What somebody else's authority may sign: names that ours would refuse to. */
static void certificate_of(const char *const *uris, const size_t *lengths, size_t count,
                           char *out_pem, size_t bytes)
{
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    EVP_PKEY *key        = EVP_EC_gen("P-256");
    X509 *certificate    = X509_new();
    BIO *memory          = BIO_new(BIO_s_mem());
    int length;

    for (size_t i = 0; i < count; i++) {
        GENERAL_NAME *name = GENERAL_NAME_new();
        ASN1_IA5STRING *at = ASN1_IA5STRING_new();

        ASSERT_EQ(ASN1_STRING_set(at, uris[i], (int)lengths[i]), 1);
        GENERAL_NAME_set0_value(name, GEN_URI, at);
        ASSERT_TRUE(sk_GENERAL_NAME_push(names, name) > 0);
    }
    ASSERT_EQ(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0), 1);
    ASSERT_EQ(X509_set_pubkey(certificate, key), 1);
    ASSERT_TRUE(X509_gmtime_adj(X509_getm_notBefore(certificate), 0) != NULL);
    ASSERT_TRUE(X509_gmtime_adj(X509_getm_notAfter(certificate), 60) != NULL);
    ASSERT_TRUE(X509_sign(certificate, key, EVP_sha256()) > 0);
    ASSERT_EQ(PEM_write_bio_X509(memory, certificate), 1);
    length = BIO_read(memory, out_pem, (int)bytes - 1);
    ASSERT_TRUE(length > 0);
    out_pem[length] = '\0';
    BIO_free(memory);
    X509_free(certificate);
    EVP_PKEY_free(key);
    sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
}

/* "" would be of any: a certificate that was meant to be of one and cannot be read must not be that. */
TEST(a_certificate_that_says_too_much_of_a_namespace_is_of_none)
{
    static const char prefix[] = "urn:plasmon:namespace:";
    static const char hidden[] = "urn:plasmon:namespace:a\0b"; /* C would read "a" */
    static char longest[1024];
    const struct {
        const char *uris[2];
        size_t lengths[2];
        size_t count;
        const char *is;
    } trials[] = {
        {{"urn:plasmon:role:client"}, {23}, 1, ""},
        {{"spiffe://cluster/long"}, {21}, 1, ""}, /* somebody else's affair */
        {{"urn:plasmon:namespace:a"}, {23}, 1, "a"},
        {{"urn:plasmon:namespace:a", "urn:plasmon:namespace:b"}, {23, 23}, 2, "?"},
        {{prefix}, {sizeof(prefix) - 1}, 1, "?"},
        {{"urn:plasmon:namespace:../a"}, {26}, 1, "?"},
        {{hidden}, {sizeof(hidden) - 1}, 1, "?"},
        {{longest}, {sizeof(longest)}, 1, "?"},
        {{"urn:plasmon:namespace:a", longest}, {23, sizeof(longest)}, 2, "?"},
    };
    char pem[8192];

    memset(longest, 'x', sizeof(longest));
    memcpy(longest, prefix, sizeof(prefix) - 1);
    for (size_t i = 0; i < PL_COUNT(trials); i++) {
        struct trust_identity identity;
        struct pl_err err = {0};

        certificate_of(trials[i].uris, trials[i].lengths, trials[i].count, pem,
                       sizeof(pem));
        ASSERT_OK(trust_identity_read(pem, &identity, &err));
        ASSERT_STR(identity.name_space, trials[i].is);
    }
}

TEST(a_renewed_certificate_is_the_same_with_more_time_and_is_taken)
{
    struct trust_files files;
    struct trust_source *source;
    struct trust_pems *before, *same, *after;
    struct certificates all;
    struct pl_err err = {0};

    certificates_begin(&all);
    certificates_issue(&all, &client);
    files = certificates_files(&all, "me");
    ASSERT_OK(trust_source_create(&files, TRUST_ROLE_CLIENT, &source, &err));
    before = trust_source_get(source);
    same   = trust_source_get(source);
    ASSERT_TRUE(same == before);
    trust_pems_release(same);
    ASSERT_OK(trust_renew(all.dir, "me", 7000, &err));
    after = trust_source_get(source);
    ASSERT_TRUE(after != before);
    ASSERT_TRUE(after->identity.expires > before->identity.expires);
    ASSERT_EQ(after->identity.roles, TRUST_ROLE_CLIENT);
    ASSERT_STR(after->key, before->key);
    trust_pems_release(after);
    trust_pems_release(before);
    trust_source_destroy(source);
    certificates_end(&all);
}

static int64_t expires_of(const struct certificates *all, const char *name)
{
    struct trust_files files = certificates_files(all, name);
    struct trust_pems *pems;
    struct pl_err err = {0};
    int64_t expires;

    ASSERT_OK(trust_read(&files, TRUST_ROLE_CLIENT, &pems, &err));
    expires = pems->identity.expires;
    trust_pems_release(pems);
    return expires;
}

/* What is written a second after it was computed may be a second later. */
#define SLACK_S 60

TEST(a_certificate_does_not_outlive_its_ca)
{
    struct trust_request longer = client;
    struct certificates all;
    struct pl_err err  = {0};
    int64_t ca_expires = time(NULL) + 7200; /* as certificates_begin() makes it */

    longer.ends_s = 100000;
    certificates_begin(&all);
    certificates_issue(&all, &longer);
    ASSERT_TRUE(expires_of(&all, "me") <= ca_expires + SLACK_S);
    ASSERT_TRUE(expires_of(&all, "me") >= ca_expires - SLACK_S);
    ASSERT_OK(trust_renew(all.dir, "me", 3600, &err));
    ASSERT_TRUE(expires_of(&all, "me") < ca_expires - SLACK_S);
    ASSERT_OK(trust_renew(all.dir, "me", 100000, &err));
    ASSERT_TRUE(expires_of(&all, "me") <= ca_expires + SLACK_S);
    certificates_end(&all);
}

TEST(a_ca_that_has_expired_issues_nothing)
{
    struct certificates all = {.dir = "/tmp/trust-XXXXXX"};
    struct trust_request me = client;
    struct pl_err err       = {0};

    ASSERT_NOT_NULL(mkdtemp(all.dir));
    ASSERT_OK(trust_authority_create(all.dir, "past", TRUST_EC_P256, -10, &err));
    (void)snprintf(all.names[all.count++], sizeof(all.names[0]), "ca");
    me.ends_s = 3600;
    ASSERT_STATUS(trust_issue(all.dir, &me, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "has expired");
    ASSERT_CONTAINS(err.text, all.dir);
    certificates_end(&all);
}

TEST(while_the_files_are_wrong_the_old_ones_are_used)
{
    struct trust_files files;
    struct trust_source *source;
    struct trust_pems *before, *now;
    struct certificates all;
    struct pl_err err = {0};

    test_expect_log();
    certificates_begin(&all);
    certificates_issue(&all, &client);
    files = certificates_files(&all, "me");
    ASSERT_OK(trust_source_create(&files, TRUST_ROLE_CLIENT, &source, &err));
    before = trust_source_get(source);
    ASSERT_EQ(unlink(files.key), 0);
    now = trust_source_get(source);
    ASSERT_TRUE(now == before);
    trust_pems_release(now);
    ASSERT_EQ(unlink(files.cert), 0);
    certificates_issue(&all, &client); /* both anew */
    now = trust_source_get(source);
    ASSERT_TRUE(now != before);
    trust_pems_release(now);
    trust_pems_release(before);
    trust_source_destroy(source);
    certificates_end(&all);
}

/* ------------------------------------------------------------------------------- tokens */

static plasmon_status_t token_of(const char *bytes, size_t length,
                                 char out[TRUST_TOKEN_BYTES_MAX + 1], struct pl_err *err)
{
    char path[] = "/tmp/token-XXXXXX";
    int fd      = mkstemp(path);
    plasmon_status_t status;

    ASSERT_TRUE(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    *err   = (struct pl_err){0};
    status = trust_token_read(path, out, err);
    ASSERT_TRUE((status == PLASMON_OK) == (err->text[0] == '\0'));
    ASSERT_TRUE((status == PLASMON_OK) == (out[0] != '\0'));
    (void)close(fd);
    (void)unlink(path);
    return status;
}

TEST(a_token_file_is_a_line_of_text_and_nothing_that_only_begins_like_one)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *why;
    } bad[] = {
        {"", 0, "is empty"},
        {"\n", 1, "begins with an empty line"},
        {"\r\nsecret\n", 9, "begins with an empty line"},
        {"s\n\x8f\x01 rest of random bytes", 24, "other bytes than printable ASCII"},
        {"s\0ecret", 7, "has a NUL"},
        {"\0", 1, "has a NUL"},
        {"secr\xc3\xa4t\n", 7, "other bytes than printable ASCII"},
        {"sec\tret\n", 8, "other bytes than printable ASCII"},
        {" secret\n", 8, "begins or ends with a space"},
        {"secret \n", 8, "begins or ends with a space"},
    };
    char token[TRUST_TOKEN_BYTES_MAX + 1], most[TRUST_TOKEN_BYTES_MAX + 1];
    struct pl_err err;

    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        ASSERT_STATUS(token_of(bad[i].bytes, bad[i].length, token, &err), PLASMON_EINVAL);
        ASSERT_CONTAINS(err.text, bad[i].why);
        ASSERT_CONTAINS(err.text, "base64"); /* how to make one */
        ASSERT_TRUE(strstr(err.text, "secret") == NULL ||
                    strstr(err.text, "random secret"));
    }
    ASSERT_OK(token_of("se cret\r\n# of\tlast week\n", 24, token, &err));
    ASSERT_STR(token, "se cret");
    memset(most, 'x', sizeof(most));
    ASSERT_OK(token_of(most, TRUST_TOKEN_BYTES_MAX, token, &err));
    ASSERT_EQ(strlen(token), TRUST_TOKEN_BYTES_MAX);
    ASSERT_STATUS(token_of(most, TRUST_TOKEN_BYTES_MAX + 1, token, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "is longer");
}

TEST(a_token_that_comes_in_pieces_is_read_to_its_end)
{
    char path[64], token[TRUST_TOKEN_BYTES_MAX + 1];
    struct pl_err err = {0};
    int ends[2];
    pid_t child;

    ASSERT_EQ(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        (void)!write(ends[1], "first-", 6);
        (void)usleep(50000);
        (void)!write(ends[1], "second\n", 7);
        _exit(0);
    }
    (void)close(ends[1]);
    (void)snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]); /* as <(..) of a shell */
    ASSERT_OK(trust_token_read(path, token, &err));
    ASSERT_STR(token, "first-second");
    ASSERT_EQ(waitpid(child, NULL, 0), child);
    (void)close(ends[0]);
}

TEST(a_token_of_the_environment_is_text_and_is_taken_out_of_it)
{
    char token[TRUST_TOKEN_BYTES_MAX + 1];
    struct pl_err err = {0};

    ASSERT_EQ(setenv("PLASMON_TOKEN", "se\ncret", 1), 0);
    ASSERT_STATUS(trust_token_take(token, &err), PLASMON_EINVAL);
    ASSERT_CONTAINS(err.text, "PLASMON_TOKEN has other bytes");
    ASSERT_STR(token, "");
    ASSERT_NULL(getenv("PLASMON_TOKEN"));
    ASSERT_EQ(setenv("PLASMON_TOKEN", "secret", 1), 0);
    ASSERT_OK(trust_token_take(token, &err));
    ASSERT_STR(token, "secret");
    ASSERT_OK(trust_token_take(token, &err));
    ASSERT_STR(token, "");
}

TEST_MAIN()
