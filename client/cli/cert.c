/*
 * `plasmon cert`: a certificate authority for one cluster in a folder, and what it issues.
 * Everything is in trust/; here are the options.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "trust/trust.h"

#define DAY_S          (24 * 60 * 60)
#define CA_DAYS        3650u
#define LEAF_DAYS      365u
#define DAYS_MAX       36500u
#define DAYS_DEFAULT   UINT32_MAX
#define FILE_BYTES_MAX (256u << 10)

struct cert {
    struct cli_texts roles;
    struct cli_texts hosts;
    const char *name_space;
    const char *algorithm;
    uint32_t days;
};

#define AT(field) offsetof(struct cert, field)
static const struct cli_option options[] = {
    {"--role", "ROLE", CLI_TEXTS, AT(roles),
     "issue: head, host (a store and its workers) or client; repeatable [client]"},
    {"--host", "NAME", CLI_TEXTS, AT(hosts),
     "issue: name or address by which others reach it; a head needs all of its own; "
     "repeatable"},
    {"--namespace", "NAME", CLI_TEXT, AT(name_space),
     "issue: its sessions are in this namespace and in no other [any]"},
    {"--days", "N", CLI_COUNT, AT(days),
     "good for so long, at the latest as long as the CA [init: 3650, else 365]"},
    {"--key", "KIND", CLI_TEXT, AT(algorithm), "init, issue: ec (P-256) or ed25519 [ec]"},
};

static int run(int argc, char **argv);
const struct cli_command cli_cert = {
    .name    = "cert",
    .summary = "make certificates for mutual TLS",
    .usage   = "init DIR | issue DIR NAME | renew DIR NAME | show FILE [options]",
    .text = "init   makes a CA: DIR/ca.crt, which everybody needs, and DIR/ca.key, which "
            "stays where it is\n"
            "issue  makes DIR/NAME.crt and DIR/NAME.key; take these two and ca.crt to "
            "where NAME runs\n"
            "renew  makes DIR/NAME.crt again, for the same key, with more time; running "
            "processes take\n"
            "       a file that was replaced without a restart\n"
            "show   tells whom a certificate is for\n\n"
            "Give them as --tls-ca, --tls-cert and --tls-key, programs as PLASMON_TLS_CA, "
            "_CERT and _KEY.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .operands_max = 3,
    .run          = run,
};

static int done(plasmon_status_t status, const struct pl_err *err)
{
    return status == PLASMON_OK ? CLI_OK : cli_fail(&cli_cert, "%s", err->text);
}

static uint32_t days_of(const struct cert *cert, uint32_t otherwise)
{
    return cert->days != DAYS_DEFAULT ? cert->days : otherwise;
}

static plasmon_status_t identity_read(const char *path, struct trust_identity *out,
                                      struct pl_err *err)
{
    struct pl_err why = {0};
    char *text        = calloc(1, FILE_BYTES_MAX);
    FILE *file        = fopen(path, "re");
    plasmon_status_t status;

    if (text == NULL || file == NULL ||
        (fread(text, 1, FILE_BYTES_MAX - 1, file) == 0 && ferror(file) != 0)) {
        status = pl_err_set(err, pl_status_from_errno(errno), "cannot read %s: %s", path,
                            strerror(errno));
    } else {
        status = trust_identity_read(text, out, &why);
        if (status != PLASMON_OK) {
            (void)pl_err_set(err, status, "%s: %s", path, why.text);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(text);
    return status;
}

static int init(const struct cert *cert, const char *dir, enum trust_algorithm algorithm)
{
    struct pl_err err = {0};
    int result        = done(trust_authority_create(dir, "plasmon cluster CA", algorithm,
                                                    (int64_t)days_of(cert, CA_DAYS) * DAY_S, &err),
                             &err);

    if (result == CLI_OK) {
        printf(
            "%s/ca.crt: give it to everybody\n%s/ca.key: keep it here; who has it can be "
            "anybody in the cluster\n",
            dir, dir);
    }
    return result;
}

/* Until when what was just made is good: what is in it, for the CA may end before so many days are over. */
static int tell_end(const char *dir, const char *name)
{
    struct trust_identity leaf, authority;
    struct pl_err err = {0};
    char path[PATH_MAX], text[32];
    plasmon_status_t status;

    (void)snprintf(path, sizeof(path), "%s/%s.crt", dir, name);
    status = identity_read(path, &leaf, &err);
    if (status == PLASMON_OK) {
        (void)snprintf(path, sizeof(path), "%s/ca.crt", dir);
        status = identity_read(path, &authority, &err);
    }
    if (status != PLASMON_OK) {
        return cli_fail(&cli_cert, "%s", err.text);
    }
    printf("good until %s%s\n", trust_time_text(leaf.expires, text),
           leaf.expires >= authority.expires ? ", when its CA expires" : "");
    return CLI_OK;
}

static int issue(const struct cert *cert, const char *dir, const char *name,
                 enum trust_algorithm algorithm)
{
    struct trust_request request = {.name       = name,
                                    .name_space = cert->name_space,
                                    .algorithm  = algorithm,
                                    .begins_s   = -300, /* clocks differ */
                                    .ends_s = (int64_t)days_of(cert, LEAF_DAYS) * DAY_S};
    struct pl_err err            = {0};
    char text[TRUST_ROLES_BYTES];
    int result;

    for (uint32_t i = 0; i < cert->roles.count; i++) {
        uint32_t role = trust_role_of(cert->roles.text[i]);

        if (role == 0) {
            return cli_usage(&cli_cert, "there is no role \"%s\": head, host or client",
                             cert->roles.text[i]);
        }
        request.roles |= role;
    }
    if (request.roles == 0) {
        request.roles = TRUST_ROLE_CLIENT;
    }
    for (uint32_t i = 0; i < cert->hosts.count; i++) {
        request.hosts[i] = cert->hosts.text[i];
    }
    result = done(trust_issue(dir, &request, &err), &err);
    if (result == CLI_OK) {
        printf("%s/%s.crt, %s/%s.key: for %s, ", dir, name, dir, name,
               trust_roles_text(request.roles, text));
        result = tell_end(dir, name);
    }
    return result;
}

static int renew(const struct cert *cert, const char *dir, const char *name)
{
    struct pl_err err = {0};
    int result =
        done(trust_renew(dir, name, (int64_t)days_of(cert, LEAF_DAYS) * DAY_S, &err), &err);

    if (result == CLI_OK) {
        printf("%s/%s.crt: ", dir, name);
        result = tell_end(dir, name);
    }
    return result;
}

static int show(const char *path)
{
    struct trust_identity identity;
    struct pl_err err = {0};
    char roles[TRUST_ROLES_BYTES], from[32], until[32];
    int result = done(identity_read(path, &identity, &err), &err);

    if (result == CLI_OK) {
        printf(
            "name       %s\nroles      %s\nnamespace  %s\nbegins     %s\nexpires    %s\n",
            identity.name, trust_roles_text(identity.roles, roles),
            identity.name_space[0] != '\0' ? identity.name_space : "any",
            trust_time_text(identity.begins, from),
            trust_time_text(identity.expires, until));
    }
    return result;
}

/* An option that would be of no effect, or NULL: a certificate that is renewed keeps its roles, say. */
static const char *out_of_place(const struct cert *cert, const char *what)
{
    bool issue = strcmp(what, "issue") == 0;

    if (!issue && (cert->roles.count > 0 || cert->hosts.count > 0)) {
        return cert->roles.count > 0 ? "--role" : "--host";
    }
    if (!issue && cert->name_space != NULL) {
        return "--namespace";
    }
    if (!issue && strcmp(what, "init") != 0 && cert->algorithm != NULL) {
        return "--key";
    }
    return strcmp(what, "show") == 0 && cert->days != DAYS_DEFAULT ? "--days" : NULL;
}

static int run(int argc, char **argv)
{
    struct cert cert               = {.days = DAYS_DEFAULT};
    struct cli_parsed parsed       = cli_parse(&cli_cert, argc, argv, &cert);
    const char *what               = parsed.operands[0];
    uint32_t count                 = parsed.operand_count;
    enum trust_algorithm algorithm = TRUST_EC_P256;
    const char *misplaced;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    misplaced = count > 0 ? out_of_place(&cert, what) : NULL;
    if (misplaced != NULL) {
        return cli_usage(&cli_cert, "%s is not for \"%s\"%s", misplaced, what,
                         strcmp(what, "renew") == 0
                             ? ", which changes nothing but the time: issue another one"
                             : "");
    }
    if (cert.algorithm != NULL && strcmp(cert.algorithm, "ed25519") == 0) {
        algorithm = TRUST_ED25519;
    } else if (cert.algorithm != NULL && strcmp(cert.algorithm, "ec") != 0) {
        return cli_usage(&cli_cert, "--key is ec or ed25519 and not \"%s\"",
                         cert.algorithm);
    }
    if (cert.days == 0) {
        return cli_usage(&cli_cert, "--days is at least 1");
    }
    if (cert.days > DAYS_MAX && cert.days != DAYS_DEFAULT) {
        return cli_usage(&cli_cert, "--days %u is more than a hundred years", cert.days);
    }
    if (count == 2 && strcmp(what, "init") == 0) {
        return init(&cert, parsed.operands[1], algorithm);
    }
    if (count == 3 && strcmp(what, "issue") == 0) {
        return issue(&cert, parsed.operands[1], parsed.operands[2], algorithm);
    }
    if (count == 3 && strcmp(what, "renew") == 0) {
        return renew(&cert, parsed.operands[1], parsed.operands[2]);
    }
    if (count == 2 && strcmp(what, "show") == 0) {
        return show(parsed.operands[1]);
    }
    return cli_usage(&cli_cert, "init DIR, issue DIR NAME, renew DIR NAME or show FILE");
}
