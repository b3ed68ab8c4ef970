/*
 * Functions that clients define: the checks of their messages, and what identifies their content.
 * Whether a signature or a text makes sense is for those who compile it.
 */
#include "wire/wire_int.h"

#include "base/sha256.h"

#include <string.h>

static void add_text(struct pl_sha256 *sha, const char *text)
{
    pl_sha256_add_field(sha, text, strlen(text));
}

void wire_function_hash(const Plasmon__V1__FunctionDefine *define,
                        uint8_t out_hash[WIRE_HASH_BYTES])
{
    struct pl_sha256 sha;

    static_assert(WIRE_HASH_BYTES == PL_SHA256_BYTES, "the hash is SHA-256");
    pl_sha256_init(&sha);
    add_text(&sha, define->name);
    add_text(&sha, define->signature);
    pl_sha256_add_field(&sha, define->cuda_text.data, define->cuda_text.len);
    pl_sha256_add_field(&sha, define->c_text.data, define->c_text.len);
    add_text(&sha, define->options);
    add_text(&sha, define->entry);
    add_text(&sha, define->library);
    add_text(&sha, define->symbol);
    pl_sha256_finish(&sha, out_hash);
}

static plasmon_status_t check_source(const ProtobufCBinaryData *text, const char *name,
                                     struct pl_err *err)
{
    plasmon_status_t status = check_bytes(text, WIRE_SOURCE_BYTES_MAX, name, err);

    if (status == PLASMON_OK && text->len != 0 &&
        memchr(text->data, 0, text->len) != NULL) {
        status = pl_err_set(err, PLASMON_EMALFORMED, "%s has a NUL in it", name);
    }
    return status;
}

static plasmon_status_t check_texts(const Plasmon__V1__FunctionDefine *define,
                                    struct pl_err *err)
{
    const struct {
        const char *text;
        size_t max;
        const char *name;
    } texts[] = {
        {define->name, WIRE_NAME_BYTES_MAX, "name"},
        {define->signature, WIRE_TEXT_BYTES_MAX, "signature"},
        {define->options, WIRE_TEXT_BYTES_MAX, "options"},
        {define->entry, WIRE_NAME_BYTES_MAX, "entry"},
        {define->library, WIRE_TEXT_BYTES_MAX, "library"},
        {define->symbol, WIRE_NAME_BYTES_MAX, "symbol"},
    };
    plasmon_status_t status = PLASMON_OK;

    for (size_t i = 0; status == PLASMON_OK && i < PL_COUNT(texts); i++) {
        status = texts[i].max == WIRE_NAME_BYTES_MAX
                     ? check_name(texts[i].text, texts[i].max, texts[i].name, err)
                     : check_text(texts[i].text, texts[i].max, texts[i].name, err);
    }
    if (status == PLASMON_OK) {
        status = check_source(&define->cuda_text, "cuda_text", err);
    }
    return status == PLASMON_OK ? check_source(&define->c_text, "c_text", err) : status;
}

static plasmon_status_t check_define(const Plasmon__V1__FunctionDefine *define,
                                     struct pl_err *err)
{
    bool source = define->cuda_text.len != 0 || define->c_text.len != 0;
    uint8_t hash[WIRE_HASH_BYTES];
    plasmon_status_t status;

    if (!wire_function_defined(define->id)) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its id is %#x", define->id);
    }
    status = check_texts(define, err);
    if (status != PLASMON_OK) {
        return status;
    }
    if (define->name[0] == '\0' || define->signature[0] == '\0' ||
        source == (define->library[0] != '\0')) {
        return pl_err_set(
            err, PLASMON_EMALFORMED,
            "it needs a name, a signature, and either source text or a library");
    }
    wire_function_hash(define, hash);
    if (define->hash.len != sizeof(hash) ||
        memcmp(define->hash.data, hash, sizeof(hash)) != 0) {
        return pl_err_set(err, PLASMON_EMALFORMED, "its hash is not that of its content");
    }
    return PLASMON_OK;
}

plasmon_status_t check_function_defines(size_t n,
                                        Plasmon__V1__FunctionDefine *const *defines,
                                        const char *name, struct pl_err *err)
{
    plasmon_status_t status = check_count(n, WIRE_FUNCTIONS_MAX, name, err);

    for (size_t i = 0; status == PLASMON_OK && i < n; i++) {
        status = check_define(defines[i], err);
        if (status != PLASMON_OK) {
            return check_below(err, status, name, (long)i);
        }
    }
    return status;
}

plasmon_status_t check_launch_shape(size_t n, const uint32_t *shape, struct pl_err *err)
{
    if (n == 0) {
        return PLASMON_OK;
    }
    if (n != WIRE_LAUNCH_SHAPE_COUNT || shape[6] > WIRE_SHARED_BYTES_MAX) {
        return pl_err_set(err, PLASMON_EMALFORMED,
                          "a launch shape has %zu numbers, not 7, or its shared memory is "
                          "over %u bytes",
                          n, WIRE_SHARED_BYTES_MAX);
    }
    return PLASMON_OK;
}
