/*
 * `plasmon cert`: a certificate authority for one cluster in a folder, and what it issues. Everything is in trust/; here are the options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "trust/trust.h"

#define DAY_S          (24 * 60 * 60)
#define CA_DAYS        3650u
#define LEAF_DAYS      365u
#define DAYS_MAX       36500u
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
    {"--days", "N", CLI_COUNT, AT(days), "good for so long [init: 3650, else 365]"},
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

static int init(const struct cert *cert, const char *dir, enum trust_algorithm algorithm)
{
    const uint32_t days = cert->days != 0 ? cert->days : CA_DAYS;
    struct pl_err err   = {0};
    int result          = done(trust_authority_create(dir, "plasmon cluster CA", algorithm,
                                                      (int64_t)days * DAY_S, &err),
                               &err);

    if (result == CLI_OK) {
        printf(
            "%s/ca.crt: give it to everybody\n%s/ca.key: keep it here; who has it can be "
            "anybody in the cluster\n",
            dir, dir);
    }
    return result;
}

static int issue(const struct cert *cert, const char *dir, const char *name,
                 enum trust_algorithm algorithm)
{
    const uint32_t days          = cert->days != 0 ? cert->days : LEAF_DAYS;
    struct trust_request request = {.name       = name,
                                    .name_space = cert->name_space,
                                    .algorithm  = algorithm,
                                    .begins_s   = -300, /* clocks differ */
                                    .ends_s     = (int64_t)days * DAY_S};
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
        printf("%s/%s.crt, %s/%s.key: for %s, good for %u days\n", dir, name, dir, name,
               trust_roles_text(request.roles, text), days);
    }
    return result;
}

static int renew(const struct cert *cert, const char *dir, const char *name)
{
    const uint32_t days = cert->days != 0 ? cert->days : LEAF_DAYS;
    struct pl_err err   = {0};
    int result          = done(trust_renew(dir, name, (int64_t)days * DAY_S, &err), &err);

    if (result == CLI_OK) {
        printf("%s/%s.crt: good for %u days more\n", dir, name, days);
    }
    return result;
}

static int show(const char *path)
{
    struct trust_identity identity;
    struct pl_err err = {0};
    char *text        = calloc(1, FILE_BYTES_MAX);
    FILE *file        = fopen(path, "re");
    char roles[TRUST_ROLES_BYTES], from[32], until[32];
    int result = CLI_OK;

    if (text == NULL || file == NULL || fread(text, 1, FILE_BYTES_MAX - 1, file) == 0) {
        result = cli_fail(&cli_cert, "cannot read %s", path);
    } else if (trust_identity_read(text, &identity, &err) != PLASMON_OK) {
        result = cli_fail(&cli_cert, "%s: %s", path, err.text);
    } else {
        printf(
            "name       %s\nroles      %s\nnamespace  %s\nbegins     %s\nexpires    %s\n",
            identity.name, trust_roles_text(identity.roles, roles),
            identity.name_space[0] != '\0' ? identity.name_space : "any",
            trust_time_text(identity.begins, from),
            trust_time_text(identity.expires, until));
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(text);
    return result;
}

static int run(int argc, char **argv)
{
    struct cert cert               = {.days = 0};
    struct cli_parsed parsed       = cli_parse(&cli_cert, argc, argv, &cert);
    const char *what               = parsed.operands[0];
    uint32_t count                 = parsed.operand_count;
    enum trust_algorithm algorithm = TRUST_EC_P256;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (cert.algorithm != NULL && strcmp(cert.algorithm, "ed25519") == 0) {
        algorithm = TRUST_ED25519;
    } else if (cert.algorithm != NULL && strcmp(cert.algorithm, "ec") != 0) {
        return cli_usage(&cli_cert, "--key is ec or ed25519 and not \"%s\"",
                         cert.algorithm);
    }
    if (cert.days > DAYS_MAX) {
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
