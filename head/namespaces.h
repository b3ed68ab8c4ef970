/*
 * The file that `plasmon-head --namespaces` reads: which namespaces there are, what each may use,
 * and its token.
 *
 *   # all that follows a '#' is a comment
 *   [team-a]
 *   device_bytes  = 8G          K, M, G, T: powers of 1024
 *   tasks         = 100000
 *   message_bytes = 1M
 *   sessions      = 8
 *   token_file    = team-a.token      relative to this file; private, as the cluster's
 *
 *   [default]                   for those who name none; without quotas when it is left out
 *   sessions = 100
 *
 * A quota that is left out is none. With this file there are no other namespaces. Whoever comes
 * with a namespace's token is in it, and may do nothing that concerns the whole cluster; whoever
 * has the cluster's token may choose.
 */
#ifndef HEAD_NAMESPACES_H
#define HEAD_NAMESPACES_H

#include "base/str.h"
#include "base/vec.h"
#include "head/core.h"
#include "head/input.h"
#include "trust/trust.h"

#define HEAD_NAMESPACES_MAX 1024u

struct head_namespace_entry {
    char name[TRUST_NAME_BYTES_MAX + 1];
    struct head_quota quota;
    char token_file[256]; /* "": none */
    char token[TRUST_TOKEN_BYTES_MAX + 1];
    unsigned line;
};

struct head_namespaces {
    struct pl_vec entries; /* struct head_namespace_entry */
    const char **tokens;   /* NULL-terminated: of those that have one .. */
    uint32_t *token_of;    /* .. and which entry that is */
};

/* The text alone. EINVAL: the text says the line. Nothing to free then. */
plasmon_status_t head_namespaces_parse(const char *text, size_t length,
                                       struct head_namespaces *out,
                                       struct pl_err *err) PL_MUST_CHECK;
/* The file and those that it names. */
plasmon_status_t head_namespaces_read(const char *path, struct head_namespaces *out,
                                      struct pl_err *err) PL_MUST_CHECK;
void head_namespaces_finish(struct head_namespaces *namespaces); /* zeroed is fine */
/*
 * What to tell the head's machine: the records of what the file says, to `tell`. Without entries:
 * that there are none.
 */
void head_namespaces_tell(const struct head_namespaces *namespaces,
                          void (*tell)(void *user, const struct head_input *input),
                          void *user);
/* Whose token number `index` of `tokens` is. */
const char *head_namespaces_token_name(const struct head_namespaces *namespaces, int index);
/*
 * Do the namespaces' tokens mean what they are for, beside the cluster's and the one of before ("":
 * none)? EINVAL: one of them is the cluster's, which lets its holder do everything, or the cluster
 * has none, so that whoever gives none may do that.
 */
plasmon_status_t head_namespaces_beside(const struct head_namespaces *namespaces,
                                        const char *token, const char *token_before,
                                        struct pl_err *err) PL_MUST_CHECK;

#endif
