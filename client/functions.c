/*
 * Functions of one's own: source text and libraries. Checked here as far as they can be; compiled
 * where they run.
 */
#include "client/functions.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/client_int.h"

/* ---------------------------------------------------------------------------- the table */

void functions_init(struct functions *functions)
{
    *functions = (struct functions){.count = 0};
    pl_map_init(&functions->by_name);
}

static void function_destroy(struct client_function *function)
{
    if (function != NULL) {
        kernel_signature_destroy(function->signature);
        pl_free(function);
    }
}

void functions_finish(struct functions *functions)
{
    size_t index = 0;
    uint64_t hash;
    void *value;

    while (pl_map_next(&functions->by_name, &index, &hash, &value)) {
        struct client_function *function = value;

        while (function != NULL) {
            struct client_function *next = function->next;

            function_destroy(function);
            function = next;
        }
    }
    pl_map_finish(&functions->by_name);
}

/* A map wants keys that are not 0. */
static uint64_t key_of(const char *name)
{
    return (UINT64_C(1) << 32) | pl_hash_name(name);
}

const struct client_function *functions_find(const struct functions *functions,
                                             const char *name)
{
    const struct client_function *function =
        functions->count == 0 ? NULL : pl_map_get(&functions->by_name, key_of(name));

    while (function != NULL && strcmp(function->signature->function.name, name) != 0) {
        function = function->next;
    }
    return function;
}

const char *functions_meant(const struct functions *functions, const char *name)
{
    struct kernel_meant meant;
    size_t index = 0;
    uint64_t hash;
    void *value;

    kernel_meant_init(&meant, name);
    while (pl_map_next(&functions->by_name, &index, &hash, &value)) {
        const struct client_function *function = value;

        while (function != NULL) {
            kernel_meant_look(&meant, function->signature->function.name);
            function = function->next;
        }
    }
    return kernel_meant(&meant);
}

static plasmon_status_t table_add(struct functions *functions,
                                  struct client_function *function)
{
    uint64_t key   = key_of(function->signature->function.name);
    function->next = pl_map_get(&functions->by_name, key);
    functions->count++;
    return pl_map_set(&functions->by_name, key, function);
}

/* ------------------------------------------------------------------------------- checks */

static plasmon_status_t check_text(const char *name, const char *text, const char *what)
{
    return text == NULL || strlen(text) <= WIRE_SOURCE_BYTES_MAX
               ? PLASMON_OK
               : error_set(PLASMON_ELIMIT, "%s: the %s has %zu bytes; the limit is %u",
                           name, what, strlen(text), WIRE_SOURCE_BYTES_MAX);
}

static plasmon_status_t check_name(const char *name, const char *what)
{
    return kernel_name_ok(name)
               ? PLASMON_OK
               : error_set(PLASMON_EINVAL,
                           "%s \"%.80s\" is not an identifier of C of at most %u bytes",
                           what, name, KERNEL_NAME_BYTES_MAX);
}

/* The name, and what it means by its signature. */
static plasmon_status_t function_create(const char *name, const char *signature,
                                        struct client_function **out_function)
{
    struct client_function *function;
    struct pl_err err = {0};
    plasmon_status_t status;

    if (name == NULL || signature == NULL) {
        return error_set(PLASMON_EINVAL, "name or signature is NULL");
    }
    status = check_name(name, "the name");
    if (status != PLASMON_OK) {
        return status;
    }
    if (kernel_by_name(name) != NULL) {
        return error_set(PLASMON_EEXIST, "%s is the name of a built-in function", name);
    }
    function = PL_NEW(struct client_function);
    if (function == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    status = kernel_signature_parse(signature, &function->signature, &err);
    if (status == PLASMON_OK && strcmp(function->signature->function.name, name) != 0) {
        status = pl_err_set(&err, PLASMON_EINVAL,
                            "the signature is of \"%s\"; the two names must be the same",
                            function->signature->function.name);
    }
    if (status != PLASMON_OK) {
        function_destroy(function);
        return error_set(status, "%s: %s", name, err.text);
    }
    *out_function = function;
    return PLASMON_OK;
}

/* ----------------------------------------------------------------------------- defining */

/* With the lock. Takes the function. */
static plasmon_status_t define_locked(struct plasmon_client *client,
                                      struct client_function *function,
                                      Plasmon__V1__FunctionDefine *define)
{
    Plasmon__V1__FunctionDefine *list[] = {define};
    Plasmon__V1__ClientFrame fields     = PLASMON__V1__CLIENT_FRAME__INIT;
    struct functions *functions         = &client->functions;
    const struct client_function *known;
    plasmon_status_t status = session_room_locked(client, 0, FRAME_DEFINE);

    known = functions_find(functions, define->name); /* the lock may have been let go */
    if (status == PLASMON_OK && known != NULL) {
        bool same = memcmp(known->hash, function->hash, sizeof(known->hash)) == 0;

        function_destroy(function);
        return same ? PLASMON_OK
                    : error_set(PLASMON_EEXIST,
                                "%s is defined already, with other content; names of "
                                "functions are for the whole session",
                                define->name);
    }
    if (status == PLASMON_OK && functions->count >= WIRE_FUNCTIONS_MAX) {
        status = error_set(PLASMON_ELIMIT, "%s: a session may define %u functions",
                           define->name, WIRE_FUNCTIONS_MAX);
    }
    if (status != PLASMON_OK) {
        function_destroy(function);
        return status;
    }
    define->id      = WIRE_FUNCTION_FIRST + functions->count;
    function->id    = define->id;
    fields.n_define = 1;
    fields.define   = list;
    if (table_add(functions, function) != PLASMON_OK) {
        functions->count--;
        function_destroy(function);
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    if (frame_add_fields(&client->session.frame, FRAME_DEFINE, &fields) != PLASMON_OK) {
        session_die_locked(client, PLASMON_ENOMEM,
                           "out of host memory while a function was defined");
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    session_kick_locked(client);
    return PLASMON_OK;
}

static plasmon_status_t define(struct plasmon_client *client,
                               struct client_function *function,
                               Plasmon__V1__FunctionDefine *message)
{
    plasmon_status_t status;

    wire_function_hash(message, function->hash);
    message->hash.data = function->hash;
    message->hash.len  = sizeof(function->hash);
    pl_mutex_lock(&client->lock);
    status = define_locked(client, function, message);
    pl_mutex_unlock(&client->lock);
    return status;
}

static char *lent(const char *text)
{
    return (char *)(uintptr_t)(text != NULL ? text : "");
}

static ProtobufCBinaryData lent_bytes(const char *text)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)lent(text), .len = strlen(lent(text))};
}

static plasmon_status_t check_source(const char *name, const char *cuda_c_text,
                                     const struct plasmon_source_options *options)
{
    plasmon_status_t status;

    if ((cuda_c_text == NULL || cuda_c_text[0] == '\0') &&
        (options->c_text == NULL || options->c_text[0] == '\0')) {
        return error_set(PLASMON_EINVAL, "%s: neither CUDA text nor C text is given", name);
    }
    status = check_text(name, cuda_c_text, "CUDA text");
    if (status == PLASMON_OK) {
        status = check_text(name, options->c_text, "C text");
    }
    if (status == PLASMON_OK && options->nvrtc_options != NULL) {
        status = client_check_text(options->nvrtc_options, WIRE_TEXT_BYTES_MAX,
                                   "options.nvrtc_options");
    }
    if (status == PLASMON_OK && options->entry != NULL && options->entry[0] != '\0') {
        status = check_name(options->entry, "options.entry");
    }
    return status;
}

plasmon_status_t plasmon_function_source(struct plasmon_client *client, const char *name,
                                         const char *cuda_c_text, const char *signature,
                                         const struct plasmon_source_options *given)
{
    struct plasmon_source_options options = PLASMON_SOURCE_OPTIONS_INIT;
    Plasmon__V1__FunctionDefine message   = PLASMON__V1__FUNCTION_DEFINE__INIT;
    struct client_function *function;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (given != NULL) {
        if (given->size < offsetof(struct plasmon_source_options, c_text)) {
            return error_set(PLASMON_EINVAL, "options.size is not set: start from "
                                             "PLASMON_SOURCE_OPTIONS_INIT");
        }
        memcpy(&options, given,
               given->size < sizeof(options) ? given->size : sizeof(options));
    }
    status = function_create(name, signature, &function);
    if (status == PLASMON_OK) {
        status = check_source(name, cuda_c_text, &options);
        if (status != PLASMON_OK) {
            function_destroy(function);
        }
    }
    if (status != PLASMON_OK) {
        return status;
    }
    message.name      = lent(name);
    message.signature = lent(signature);
    message.cuda_text = lent_bytes(cuda_c_text);
    message.c_text    = lent_bytes(options.c_text);
    message.options   = lent(options.nvrtc_options);
    message.entry     = lent(options.entry);
    return define(client, function, &message);
}

plasmon_status_t plasmon_function_library(struct plasmon_client *client, const char *name,
                                          const char *path, const char *symbol,
                                          const char *signature)
{
    Plasmon__V1__FunctionDefine message = PLASMON__V1__FUNCTION_DEFINE__INIT;
    struct client_function *function;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (path == NULL || path[0] == '\0' || symbol == NULL) {
        return error_set(PLASMON_EINVAL, "path or symbol is NULL or empty");
    }
    status = check_name(symbol, "the symbol");
    if (status == PLASMON_OK) {
        status = client_check_text(path, WIRE_TEXT_BYTES_MAX, "path");
    }
    if (status == PLASMON_OK) {
        status = function_create(name, signature, &function);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    message.name      = lent(name);
    message.signature = lent(signature);
    message.library   = lent(path);
    message.symbol    = lent(symbol);
    return define(client, function, &message);
}

/* ------------------------------------------------------------------------------ waiting */

static plasmon_status_t wait_locked(struct plasmon_client *client,
                                    const struct client_function *function,
                                    struct request *request, uint64_t deadline_ns)
{
    Plasmon__V1__ClientFrame fields = PLASMON__V1__CLIENT_FRAME__INIT;
    Plasmon__V1__FunctionWait wait = PLASMON__V1__FUNCTION_WAIT__INIT, *list[] = {&wait};
    plasmon_status_t status = request_open_locked(client, request);

    if (status == PLASMON_OK) {
        wait.request           = request->number;
        wait.function          = function->id;
        fields.n_function_wait = 1;
        fields.function_wait   = list;
        status = request_send_locked(client, request, FRAME_FUNCTION_WAIT, &fields);
    }
    if (status == PLASMON_OK) {
        status = request_wait_locked(client, request, deadline_ns);
    }
    return status == PLASMON_ETIMEDOUT
               ? error_set(status,
                           "no device has said yet that it built %s: it is still being "
                           "compiled or loaded, or neither the head nor a device answers; "
                           "wait longer, or look at `plasmon doctor --cluster`",
                           function->signature->function.name)
               : status;
}

plasmon_status_t plasmon_function_wait(struct plasmon_client *client, const char *name,
                                       uint32_t timeout_ms)
{
    const struct client_function *function;
    struct request request;
    struct pl_cond cond;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (name == NULL) {
        return error_set(PLASMON_EINVAL, "name is NULL");
    }
    if (kernel_by_name(name) != NULL) {
        return PLASMON_OK; /* built in, and compiled long ago */
    }
    status = pl_cond_init(&cond);
    if (status != PLASMON_OK) {
        return error_set(status, "%s", pl_status_text(status));
    }
    request_init(&request, &cond);
    pl_mutex_lock(&client->lock);
    function = functions_find(&client->functions, name);
    status =
        function == NULL
            ? error_set(PLASMON_ENOFUNCTION, "this session has not defined \"%.64s\"", name)
            : wait_locked(client, function, &request, client_deadline(timeout_ms));
    request_close_locked(client, &request);
    pl_mutex_unlock(&client->lock);
    pl_cond_finish(&cond);
    return status;
}
