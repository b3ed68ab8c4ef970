/*
 * What is read in texts that are compiled. The input is [0 or 1][text]. 0: PTX, whose kernels are
 * made to wait before all else when they may begin early; 1: options, C and CUDA text, which are
 * kept compiled only if all that they read is known; and an image, whose functions are counted.
 *
 * Of edited PTX an independent reader of its words is asked, one that knows comments and texts:
 * what was there still is, in its order, and each kernel with a body waits first. One that does
 * not, and is marked as one that does, would read what the kernel before it has not written yet.
 */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/code_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ------------------------------------------------------------------------- words of PTX */

/* Behind spaces, comments; texts are one word each, braces and semicolons too. false: there is no more. */
static bool word_next(const char **io_at, const char **out, size_t *out_length)
{
    const char *at = *io_at, *end;

    for (;;) {
        at += strspn(at, " \t\r\n\v\f");
        if (strncmp(at, "//", 2) == 0) {
            at += strcspn(at, "\n");
        } else if (strncmp(at, "/*", 2) == 0) {
            end = strstr(at + 2, "*/");
            at  = end != NULL ? end + 2 : at + strlen(at);
        } else {
            break;
        }
    }
    *out = at;
    if (*at == '\0') {
        return false;
    }
    if (*at == '"') {
        end = at + 1 + strcspn(at + 1, "\"");
        end += *end == '"';
    } else if (isalnum((unsigned char)*at) || strchr("_$%.", *at) != NULL) {
        for (end = at + 1;
             isalnum((unsigned char)*end) || (*end != '\0' && strchr("_$%.", *end) != NULL);
             end++) {
        }
    } else {
        end = at + 1;
    }
    *out_length = (size_t)(end - at);
    *io_at      = end;
    return true;
}

static bool word_is(const char *word, size_t length, const char *text)
{
    return length == strlen(text) && strncmp(word, text, length) == 0;
}

/*
 * What is put behind the brace of a kernel: all before the first '}' that closes it, whatever that
 * is today.
 */
static bool waits_here(const char *at)
{
    static const char *const words[] = {"griddepcontrol.wait", ";"};
    const char *word;
    size_t length, found = 0;

    if (!word_next(&at, &word, &length) || !word_is(word, length, "{")) {
        return false;
    }
    while (word_next(&at, &word, &length) && !word_is(word, length, "}")) {
        if (word_is(word, length, words[found])) {
            if (++found == PL_COUNT(words)) {
                return true;
            }
        } else {
            found = 0;
        }
    }
    return false;
}

/* Each kernel with a body waits; in a text without an end there may be none. */
static void check_waits(const char *text)
{
    const char *at = text, *word;
    bool entry     = false;
    size_t length;

    while (word_next(&at, &word, &length)) {
        if (word_is(word, length, ".entry")) {
            entry = true;
        } else if (entry && word_is(word, length, ";")) {
            entry = false; /* a declaration */
        } else if (entry && word_is(word, length, "{")) {
            PL_CHECK(waits_here(at));
            entry = false;
        }
    }
}

/* All of `before`, in its order, is in `after`. */
static void check_kept(const char *before, const char *after)
{
    while (*before != '\0' && *after != '\0') {
        before += *before == *after;
        after++;
    }
    PL_CHECK(*before == '\0');
}

static void ptx(const char *text)
{
    char *edited = code_early_ptx(text), *again;

    if (edited == NULL) {
        return;
    }
    check_kept(text, edited);
    check_waits(edited);
    again = code_early_ptx(edited); /* nobody is made to wait twice */
    PL_CHECK(again == NULL);
    pl_free(edited);
}

/* --------------------------------------------------------------------- C, CUDA, options */

static bool contains(const char *text, const char *what)
{
    return strstr(text, what) != NULL;
}

static void texts(const char *text, size_t size)
{
    bool c = code_text_alone(text, true), cuda = code_text_alone(text, false);

    PL_CHECK(cuda || !c); /* C text may do less */
    if (cuda) {
        PL_CHECK(!contains(text, "include \"") && !contains(text, "include\"") &&
                 !contains(text, "incbin"));
    }
    if (code_early_options(text)) {
        PL_CHECK(!contains(text, "-G") || contains(text, "-D") || contains(text, "-U") ||
                 contains(text, "-I") || contains(text, "="));
    }
    PL_CHECK(code_early_functions(text, size) <= UINT16_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size < 1) {
        return 0;
    }
    text = pl_alloc(size); /* so long and no longer: a sanitizer sees who reads on */
    PL_CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 2 == 0) {
        ptx(text);
    } else {
        texts(text, size - 1);
    }
    pl_free(text);
    return 0;
}
