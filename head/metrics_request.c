/*
 * A request is a line and then fields, a line each, up to an empty one; lines end in CR LF, or in
 * LF alone. What comes in pieces is read again from its beginning with each: it is short. A body is
 * not looked at.
 *
 * Nothing of a field is used, but what is no field is refused: where two readers see different
 * requests in the same bytes, somebody gets past one of them.
 */
#include "head/metrics_request.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char target[] = "/metrics";

struct text {
    const char *at;
    size_t length;
};

static bool text_is(struct text text, const char *what)
{
    return text.length == strlen(what) && memcmp(text.at, what, text.length) == 0;
}

/* The next line, without its end. false: it is not whole. */
static bool line_take(struct text *rest, struct text *out)
{
    const char *end = memchr(rest->at, '\n', rest->length);

    if (end == NULL) {
        return false;
    }
    out->at     = rest->at;
    out->length = (size_t)(end - rest->at);
    rest->length -= out->length + 1;
    rest->at = end + 1;
    if (out->length > 0 && out->at[out->length - 1] == '\r') {
        out->length--;
    }
    return true;
}

/* Up to the next space, which is taken too; or all there is. */
static struct text word_take(struct text *rest)
{
    const char *space = memchr(rest->at, ' ', rest->length);
    struct text word  = {rest->at,
                        space != NULL ? (size_t)(space - rest->at) : rest->length};
    size_t taken      = word.length + (space != NULL ? 1 : 0);

    rest->at += taken;
    rest->length -= taken;
    return word;
}

static bool is_token(struct text text)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if (c <= ' ' || c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL) {
            return false;
        }
    }
    return text.length > 0;
}

static bool has_controls(struct text text)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.at[i];

        if ((c < ' ' && c != '\t') || c == 127) {
            return true;
        }
    }
    return false;
}

/* With or without a query. */
static bool target_ours(struct text text)
{
    size_t length = sizeof(target) - 1;

    return text.length >= length && memcmp(text.at, target, length) == 0 &&
           (text.length == length || text.at[length] == '?');
}

static int line_status(struct text line)
{
    struct text method = word_take(&line);
    struct text wanted = word_take(&line);

    if (!is_token(method) || wanted.length == 0 || has_controls(wanted) ||
        line.length != 8 || memcmp(line.at, "HTTP/", 5) != 0 ||
        !isdigit((unsigned char)line.at[5]) || line.at[6] != '.' ||
        !isdigit((unsigned char)line.at[7])) {
        return 400;
    }
    if (!text_is(line, "HTTP/1.1") && !text_is(line, "HTTP/1.0")) {
        return 505;
    }
    if (!text_is(method, "GET")) {
        return 405;
    }
    if (wanted.length > HEAD_METRICS_TARGET_BYTES_MAX) {
        return 414;
    }
    return target_ours(wanted) ? 200 : 404;
}

/* "name: value". Not one that goes on a field before it, which begins with a space. */
static bool is_field(struct text line)
{
    const char *colon = memchr(line.at, ':', line.length);
    struct text name  = {line.at, colon != NULL ? (size_t)(colon - line.at) : 0};

    return is_token(name) && !has_controls(line);
}

/* Of a first line that is not whole: is it text so far? What begins with TLS, say, need not be waited for. */
static bool begins_well(struct text part)
{
    if (part.at[part.length - 1] == '\r') {
        part.length--;
    }
    return !has_controls(part);
}

int head_metrics_request(const char *bytes, size_t length)
{
    struct text rest = {bytes, length < HEAD_METRICS_REQUEST_BYTES_MAX
                                   ? length
                                   : HEAD_METRICS_REQUEST_BYTES_MAX};
    struct text line;
    int status;

    if (length == 0) {
        return 0;
    }
    if (!line_take(&rest, &line)) {
        return !begins_well(rest)                              ? 400
               : rest.length == HEAD_METRICS_REQUEST_BYTES_MAX ? 414
                                                               : 0;
    }
    status = line_status(line);
    if (status != 200) {
        return status;
    }
    while (line_take(&rest, &line)) {
        if (line.length == 0) {
            return 200;
        }
        if (!is_field(line)) {
            return 400;
        }
    }
    return length >= HEAD_METRICS_REQUEST_BYTES_MAX ? 431 : 0;
}
