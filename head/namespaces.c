/*
 * The namespaces file: see namespaces.h. The parser looks at bytes alone, so that anything may be
 * given to it.
 */
#include "head/namespaces.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define FILE_BYTES_MAX (1u << 20)

static const struct {
    const char *key;
    size_t offset; /* in head_quota */
    bool suffixes;
    uint64_t least;
} keys[] = {
    {"device_bytes", offsetof(struct head_quota, bytes), true, 1},
    {"tasks", offsetof(struct head_quota, tasks), false, 1},
    {"message_bytes", offsetof(struct head_quota, message_bytes), true, 4096},
    {"sessions", offsetof(struct head_quota, sessions), false, 1},
};

/* A piece of the text. */
struct piece {
    const char *text;
    size_t length;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct piece trim(struct piece piece)
{
    while (piece.length > 0 && is_space(piece.text[0])) {
        piece.text++;
        piece.length--;
    }
    while (piece.length > 0 && is_space(piece.text[piece.length - 1])) {
        piece.length--;
    }
    return piece;
}

static bool piece_is(struct piece piece, const char *text)
{
    return piece.length == strlen(text) && memcmp(piece.text, text, piece.length) == 0;
}

/* What of it can be shown in a message. */
static const char *shown(struct piece piece, char out[64])
{
    size_t length = piece.length < 60 ? piece.length : 60;

    for (size_t i = 0; i < length; i++) {
        out[i] = isprint((unsigned char)piece.text[i]) ? piece.text[i] : '?';
    }
    out[length] = '\0';
    return out;
}

static bool number_parse(struct piece piece, bool suffixes, uint64_t *out)
{
    static const char known[] = "KMGT";
    uint64_t value            = 0;
    unsigned shift            = 0;

    if (suffixes && piece.length > 1) {
        const char *found = memchr(known, piece.text[piece.length - 1], sizeof(known) - 1);

        if (found != NULL) {
            shift = 10u * (unsigned)(found - known + 1);
            piece.length--;
        }
    }
    if (piece.length == 0 || piece.length > 18) {
        return false;
    }
    for (size_t i = 0; i < piece.length; i++) {
        if (piece.text[i] < '0' || piece.text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(piece.text[i] - '0');
    }
    if (value > (UINT64_MAX >> 1) >> shift) {
        return false;
    }
    *out = value << shift;
    return true;
}

static plasmon_status_t take_section(struct piece name, unsigned line,
                                     struct head_namespaces *out, struct pl_err *err)
{
    struct head_namespace_entry *entry;
    char text[64], copy[TRUST_NAME_BYTES_MAX + 1];

    if (name.length >= sizeof(copy) || memchr(name.text, '\0', name.length) != NULL) {
        return pl_err_set(err, PLASMON_EINVAL, "line %u: the name %s is too long", line,
                          shown(name, text));
    }
    memcpy(copy, name.text, name.length);
    copy[name.length] = '\0';
    if (!trust_name_good(copy)) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "line %u: '%s' cannot be a namespace: letters, digits, '.', '-' and "
            "'_', at most %u",
            line, shown(name, text), TRUST_NAME_BYTES_MAX);
    }
    for (size_t i = 0; i < out->entries.count; i++) {
        const struct head_namespace_entry *other = pl_vec_at(&out->entries, i);

        if (strcmp(other->name, copy) == 0) {
            return pl_err_set(err, PLASMON_EINVAL, "line %u: '%s' was there in line %u",
                              line, copy, other->line);
        }
    }
    if (out->entries.count == HEAD_NAMESPACES_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "line %u: more than %u namespaces", line,
                          HEAD_NAMESPACES_MAX);
    }
    entry = pl_vec_push(&out->entries);
    if (entry == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    memset(entry, 0, sizeof(*entry));
    memcpy(entry->name, copy, sizeof(copy));
    entry->line = line;
    return PLASMON_OK;
}

static plasmon_status_t take_token_file(struct piece value, unsigned line,
                                        struct head_namespace_entry *entry,
                                        struct pl_err *err)
{
    if (value.length == 0 || value.length >= sizeof(entry->token_file) ||
        memchr(value.text, '\0', value.length) != NULL) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "line %u: token_file is empty, or longer than %zu bytes", line,
                          sizeof(entry->token_file) - 1);
    }
    memcpy(entry->token_file, value.text, value.length);
    entry->token_file[value.length] = '\0';
    return PLASMON_OK;
}

static plasmon_status_t take_setting(struct piece key, struct piece value, unsigned line,
                                     struct head_namespaces *out, struct pl_err *err)
{
    struct head_namespace_entry *entry =
        out->entries.count > 0 ? pl_vec_at(&out->entries, out->entries.count - 1) : NULL;
    char text[64], other[64];

    if (entry == NULL) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "line %u: %s stands before the first [namespace]", line,
                          shown(key, text));
    }
    if (piece_is(key, "token_file")) {
        return take_token_file(value, line, entry, err);
    }
    for (size_t i = 0; i < PL_COUNT(keys); i++) {
        uint64_t number;

        if (!piece_is(key, keys[i].key)) {
            continue;
        }
        if (!number_parse(value, keys[i].suffixes, &number) || number < keys[i].least) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "line %u: %s is a number%s of at least %llu, and not '%s'",
                              line, keys[i].key,
                              keys[i].suffixes ? " (4096, 512M, 8G)" : "",
                              (unsigned long long)keys[i].least, shown(value, other));
        }
        memcpy((char *)&entry->quota + keys[i].offset, &number, sizeof(number));
        return PLASMON_OK;
    }
    return pl_err_set(
        err, PLASMON_EINVAL,
        "line %u: there is no setting '%s': device_bytes, tasks, message_bytes, "
        "sessions and token_file",
        line, shown(key, text));
}

static plasmon_status_t take_line(struct piece line, unsigned number,
                                  struct head_namespaces *out, struct pl_err *err)
{
    const char *comment = line.length > 0 ? memchr(line.text, '#', line.length) : NULL;
    struct piece key, value;
    const char *equals;

    if (comment != NULL) {
        line.length = (size_t)(comment - line.text);
    }
    line = trim(line);
    if (line.length == 0) {
        return PLASMON_OK;
    }
    if (line.text[0] == '[') {
        if (line.text[line.length - 1] != ']' || line.length < 2) {
            return pl_err_set(err, PLASMON_EINVAL, "line %u: a namespace is [NAME]",
                              number);
        }
        return take_section(trim((struct piece){line.text + 1, line.length - 2}), number,
                            out, err);
    }
    equals = memchr(line.text, '=', line.length);
    if (equals == NULL) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "line %u is neither [NAMESPACE] nor SETTING = VALUE", number);
    }
    key = trim((struct piece){line.text, (size_t)(equals - line.text)});
    value =
        trim((struct piece){equals + 1, line.length - (size_t)(equals + 1 - line.text)});
    return take_setting(key, value, number, out, err);
}

plasmon_status_t head_namespaces_parse(const char *text, size_t length,
                                       struct head_namespaces *out, struct pl_err *err)
{
    plasmon_status_t status = PLASMON_OK;
    unsigned number         = 0;

    *out = (struct head_namespaces){.entries = PL_VEC_INIT(struct head_namespace_entry)};
    for (size_t at = 0; status == PLASMON_OK && at < length;) {
        const char *end   = memchr(text + at, '\n', length - at);
        size_t line_bytes = end != NULL ? (size_t)(end - text) - at : length - at;

        status = take_line((struct piece){text + at, line_bytes}, ++number, out, err);
        at += line_bytes + 1;
    }
    if (status == PLASMON_OK && out->entries.count == 0) {
        status =
            pl_err_set(err, PLASMON_EINVAL, "it names no namespace: begin one with [NAME]");
    }
    if (status != PLASMON_OK) {
        head_namespaces_finish(out);
    }
    return status;
}

void head_namespaces_finish(struct head_namespaces *namespaces)
{
    for (size_t i = 0; i < namespaces->entries.count; i++) {
        struct head_namespace_entry *entry = pl_vec_at(&namespaces->entries, i);

        memset(entry->token, 0, sizeof(entry->token));
    }
    pl_vec_finish(&namespaces->entries);
    pl_free(namespaces->tokens);
    pl_free(namespaces->token_of);
    *namespaces = (struct head_namespaces){.tokens = NULL};
}

/* -------------------------------------------------------------------------------- files */

static plasmon_status_t tokens_read(const char *path, struct head_namespaces *out,
                                    struct pl_err *err)
{
    const char *slash = strrchr(path, '/');
    int dir           = slash != NULL ? (int)(slash - path) + 1 : 0;

    for (size_t i = 0; i < out->entries.count; i++) {
        struct head_namespace_entry *entry = pl_vec_at(&out->entries, i);
        char file[4096];
        plasmon_status_t status;
        struct pl_err why = {0};

        if (entry->token_file[0] == '\0') {
            continue;
        }
        (void)snprintf(file, sizeof(file), "%.*s%s", entry->token_file[0] == '/' ? 0 : dir,
                       path, entry->token_file);
        status = trust_token_read(file, entry->token, &why);
        if (status != PLASMON_OK) {
            return pl_err_set(err, status, "namespace '%s': %s", entry->name, why.text);
        }
        for (size_t j = 0; j < i; j++) {
            const struct head_namespace_entry *other = pl_vec_at(&out->entries, j);

            if (strcmp(other->token, entry->token) == 0) {
                return pl_err_set(err, PLASMON_EINVAL,
                                  "namespaces '%s' and '%s' have the same token: give each "
                                  "its own",
                                  other->name, entry->name);
            }
        }
    }
    return PLASMON_OK;
}

static plasmon_status_t lists_make(struct head_namespaces *out, struct pl_err *err)
{
    size_t count = out->entries.count, tokens = 0;

    out->tokens   = PL_NEW_N(const char *, count + 1);
    out->token_of = PL_NEW_N(uint32_t, count);
    if (out->tokens == NULL || out->token_of == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    for (size_t i = 0; i < count; i++) {
        const struct head_namespace_entry *entry = pl_vec_at(&out->entries, i);

        if (entry->token[0] != '\0') {
            out->tokens[tokens]     = entry->token;
            out->token_of[tokens++] = (uint32_t)i;
        }
    }
    return PLASMON_OK;
}

plasmon_status_t head_namespaces_read(const char *path, struct head_namespaces *out,
                                      struct pl_err *err)
{
    FILE *file        = fopen(path, "re");
    char *text        = pl_alloc(FILE_BYTES_MAX + 1);
    size_t bytes      = 0;
    struct pl_err why = {0};
    plasmon_status_t status;

    if (file == NULL || text == NULL) {
        status =
            pl_err_set(err, file == NULL ? pl_status_from_errno(errno) : PLASMON_ENOMEM,
                       "cannot read the namespaces file %s: %s", path, strerror(errno));
        goto end;
    }
    bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file) != 0) {
        /* a folder, a disk that fails: half of it would confine nobody */
        status =
            pl_err_set(err, pl_status_from_errno(errno),
                       "cannot read the namespaces file %s: %s", path, strerror(errno));
        goto end;
    }
    if (bytes > FILE_BYTES_MAX) {
        status = pl_err_set(err, PLASMON_ELIMIT,
                            "the namespaces file %s is longer than 1 MiB", path);
        goto end;
    }
    head_namespaces_finish(out); /* given twice: the last one counts */
    status = head_namespaces_parse(text, bytes, out, &why);
    if (status == PLASMON_OK) {
        status = tokens_read(path, out, &why);
        if (status == PLASMON_OK) {
            status = lists_make(out, &why);
        }
        if (status != PLASMON_OK) {
            head_namespaces_finish(out);
        }
    }
    if (status != PLASMON_OK) {
        (void)pl_err_set(err, status, "the namespaces file %.200s: %.250s", path, why.text);
    }

end:
    pl_free(text);
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

void head_namespaces_tell(const struct head_namespaces *namespaces,
                          void (*tell)(void *user, const struct head_input *input),
                          void *user)
{
    tell(user, &(struct head_input){.type = HEAD_INPUT_NAMESPACES});
    for (size_t i = 0; i < namespaces->entries.count; i++) {
        const struct head_namespace_entry *entry = pl_vec_at(&namespaces->entries, i);

        tell(user, &(struct head_input){.type    = HEAD_INPUT_NAMESPACE,
                                        .numbers = {entry->quota.bytes, entry->quota.tasks,
                                                    entry->quota.message_bytes,
                                                    entry->quota.sessions},
                                        .strings = {head_string(entry->name)}});
    }
}

const char *head_namespaces_token_name(const struct head_namespaces *namespaces, int index)
{
    const struct head_namespace_entry *entry =
        pl_vec_at(&namespaces->entries, namespaces->token_of[index]);

    return entry->name;
}

plasmon_status_t head_namespaces_beside(const struct head_namespaces *namespaces,
                                        const char *token, const char *token_before,
                                        struct pl_err *err)
{
    for (size_t i = 0; i < namespaces->entries.count; i++) {
        const struct head_namespace_entry *entry = pl_vec_at(&namespaces->entries, i);

        if (entry->token[0] == '\0') {
            continue;
        }
        if (token[0] == '\0') {
            return pl_err_set(err, PLASMON_EINVAL,
                              "namespace '%s' has a token and the cluster has none, so who "
                              "gives no token at all may do everything: give --token-file",
                              entry->name);
        }
        if (strcmp(entry->token, token) == 0 || strcmp(entry->token, token_before) == 0) {
            return pl_err_set(err, PLASMON_EINVAL,
                              "the token of namespace '%s' is the one of --%s, with which "
                              "one may do everything: give the namespace its own",
                              entry->name,
                              strcmp(entry->token, token) == 0 ? "token-file"
                                                               : "token-before");
        }
    }
    return PLASMON_OK;
}
