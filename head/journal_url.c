/*
 * The address of a journal: redis://[user@]host[:port][/db][?prefix=P] or
 * unix:/path[?db=N&user=U&prefix=P].
 */
#include "head/journal_int.h"

static plasmon_status_t url_bad(const char *url, const char *what, struct pl_err *err)
{
    return pl_err_set(err, PLASMON_EINVAL,
                      "journal address '%.200s': %s; write redis://[user@]host[:port][/db]"
                      "[?prefix=P] or unix:/path[?db=N&user=U&prefix=P]",
                      url, what);
}

static bool copy_part(char out[HEAD_JOURNAL_TEXT_MAX], const char *text, size_t length)
{
    if (length >= HEAD_JOURNAL_TEXT_MAX) {
        return false;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static bool number_part(const char *text, size_t length, int most, int *out)
{
    char digits[HEAD_JOURNAL_TEXT_MAX];
    char *end;
    long value;

    if (length == 0 || !copy_part(digits, text, length)) {
        return false;
    }
    value = strtol(digits, &end, 10);
    *out  = (int)value;
    return *end == '\0' && value >= 0 && value <= most;
}

static plasmon_status_t parse_query(struct head_journal *journal, const char *url,
                                    const char *query, struct pl_err *err)
{
    while (*query != '\0') {
        size_t length     = strcspn(query, "&");
        const char *equal = memchr(query, '=', length);
        size_t key        = equal != NULL ? (size_t)(equal - query) : length;
        const char *value = equal != NULL ? equal + 1 : query + length;
        size_t bytes      = (size_t)(query + length - value);
        bool good         = false;

        if (key == 6 && memcmp(query, "prefix", 6) == 0) {
            good = copy_part(journal->prefix, value, bytes);
        } else if (key == 4 && memcmp(query, "user", 4) == 0) {
            good = copy_part(journal->user, value, bytes);
        } else if (key == 2 && memcmp(query, "db", 2) == 0) {
            good = number_part(value, bytes, 1 << 20, &journal->db);
        }
        if (!good) {
            return url_bad(url, "what is behind '?' is not db, user or prefix", err);
        }
        query += length + (query[length] == '&');
    }
    return PLASMON_OK;
}

static plasmon_status_t parse_host(struct head_journal *journal, const char *url,
                                   const char *rest, struct pl_err *err)
{
    size_t length     = strcspn(rest, "/?");
    const char *at    = memchr(rest, '@', length);
    const char *host  = at != NULL ? at + 1 : rest;
    const char *end   = rest + length;
    const char *colon = NULL;
    size_t digits;

    if (at != NULL && (memchr(rest, ':', (size_t)(at - rest)) != NULL ||
                       !copy_part(journal->user, rest, (size_t)(at - rest)))) {
        return url_bad(url, "a password does not belong into it (--journal-password-file)",
                       err);
    }
    if (*host == '[') { /* an address of IPv6 */
        const char *close = memchr(host, ']', (size_t)(end - host));

        if (close == NULL ||
            !copy_part(journal->host, host + 1, (size_t)(close - host - 1))) {
            return url_bad(url, "the host begins with '[' and does not end with ']'", err);
        }
        colon = close + 1 < end ? close + 1 : NULL;
    } else {
        colon = memchr(host, ':', (size_t)(end - host));
        if (!copy_part(journal->host, host,
                       (size_t)((colon != NULL ? colon : end) - host))) {
            return url_bad(url, "the host is too long", err);
        }
    }
    if (journal->host[0] == '\0' ||
        (colon != NULL &&
         (*colon != ':' ||
          !number_part(colon + 1, (size_t)(end - colon - 1), 65535, &journal->port)))) {
        return url_bad(url, "it needs a host, and a port is a number up to 65535", err);
    }
    if (*end == '/') {
        digits = strcspn(end + 1, "?");
        if (digits > 0 && !number_part(end + 1, digits, 1 << 20, &journal->db)) {
            return url_bad(url, "what is behind '/' is the number of a database", err);
        }
        end += 1 + digits;
    }
    return parse_query(journal, url, *end == '?' ? end + 1 : end, err);
}

plasmon_status_t head_journal_url(struct head_journal *journal, const char *url,
                                  struct pl_err *err)
{
    (void)snprintf(journal->prefix, sizeof(journal->prefix), "plasmon:");
    journal->port = 6379;
    if (strncmp(url, "redis://", 8) == 0) {
        return parse_host(journal, url, url + 8, err);
    }
    if (strncmp(url, "unix:", 5) == 0) {
        size_t length = strcspn(url + 5, "?");

        if (length == 0 || !copy_part(journal->path, url + 5, length)) {
            return url_bad(url, "the path is empty or too long", err);
        }
        return parse_query(journal, url, url[5 + length] == '?' ? url + 6 + length : "",
                           err);
    }
    return url_bad(url, "it begins neither with redis:// nor with unix:", err);
}
