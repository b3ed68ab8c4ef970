/*
 * The life of a client: init, finish, fork, log, devices. See client_int.h for who does what.
 */
#include "client/data.h"
#include "client/graph.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"

#define TICK_MS 20
#define FILES_LIMIT \
    "no descriptor is left: raise the limit of open files (ulimit -n, LimitNOFILE=)"

/* ---------------------------------------------------------------------------- fork, log */

/* How many forks lie between this process and the first: a handle of another number was inherited. */
static _Atomic uint64_t fork_count;

static void count_fork(void)
{
    atomic_fetch_add(&fork_count, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL,
                         count_fork); /* without memory: such a child is not protected */
}

plasmon_status_t client_enter(const struct plasmon_client *client)
{
    if (client == NULL) {
        return error_set(PLASMON_EINVAL, "client is NULL");
    }
    if (client->fork_count != atomic_load_explicit(&fork_count, memory_order_relaxed)) {
        return error_set(
            PLASMON_EFORKED,
            "this client was made before fork(): its threads and sockets are the "
            "parent's. Call plasmon_abandon() here; a child that is to have a client of "
            "its own is forked before the first plasmon_init() or after the last "
            "plasmon_finish(), or calls exec()");
    }
    return PLASMON_OK;
}

bool client_on_loop_thread(const struct plasmon_client *client)
{
    /* acquire: pairs with the release in note_loop_thread() */
    return atomic_load_explicit(&client->loop_thread_known, memory_order_acquire) &&
           pthread_equal(client->loop_thread, pthread_self());
}

static plasmon_log_fn log_fn;
static void *log_user;

static void log_forward(void *user, enum pl_log_level level, const char *module,
                        const char *text)
{
    (void)user;
    log_fn(log_user, (int)level, module, text);
}

void plasmon_set_log(plasmon_log_fn fn, void *user, int level_max)
{
    log_fn   = fn;
    log_user = user;
    if (level_max >= PL_LOG_ERROR && level_max <= PL_LOG_TRACE) {
        pl_log_set_level((enum pl_log_level)level_max);
    }
    pl_log_set_sink(fn != NULL ? log_forward : NULL, NULL);
}

uint64_t client_deadline(uint32_t timeout_ms)
{
    return timeout_ms == PLASMON_FOREVER ? UINT64_MAX
                                         : pl_now_ns() + timeout_ms * 1000000ull;
}

plasmon_status_t client_check_text(const char *text, size_t bytes_max, const char *what)
{
    size_t length = strlen(text), at = 0;

    if (length > bytes_max) {
        return error_set(PLASMON_ELIMIT, "%s has %zu bytes; the limit is %zu", what, length,
                         bytes_max);
    }
    while (at < length) {
        unsigned char first = (unsigned char)text[at];
        size_t more         = first < 0x80   ? 0
                              : first < 0xc2 ? 4
                              : first < 0xe0 ? 1
                              : first < 0xf0 ? 2
                              : first < 0xf5 ? 3
                                             : 4;
        uint32_t code       = first & (0x7fu >> (more + 1));
        bool good           = more < 4;

        for (size_t i = 1; good && i <= more; i++) {
            good = ((unsigned char)text[at + i] & 0xc0) == 0x80; /* the final NUL is none */
            code = code << 6 | ((unsigned char)text[at + i] & 0x3f);
        }
        if (!good || (more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
            (more == 3 && (code < 0x10000 || code > 0x10ffff))) {
            return error_set(PLASMON_EINVAL, "%s is not UTF-8 at byte %zu", what, at);
        }
        at += more + 1;
    }
    return PLASMON_OK;
}

plasmon_status_t client_check_name(const char *text, size_t bytes_max, const char *what)
{
    plasmon_status_t status = client_check_text(text, bytes_max, what);
    size_t at = status == PLASMON_OK ? pl_text_control(text, strlen(text)) : 0;

    return status != PLASMON_OK || text[at] == '\0'
               ? status
               : error_set(
                     PLASMON_EINVAL,
                     "%s has a control character at byte %zu: logs and tables show it",
                     what, at);
}

/* ------------------------------------------------------------------------------ devices */

plasmon_status_t client_set_devices_locked(struct plasmon_client *client, size_t count,
                                           Plasmon__V1__Device *const *devices)
{
    for (size_t i = 0; i < count; i++) {
        const Plasmon__V1__Device *from = devices[i];
        bool known                      = i < client->devices.count;
        struct client_device *to =
            known ? pl_vec_at(&client->devices, i) : pl_vec_push(&client->devices);

        if (to == NULL) {
            return PLASMON_ENOMEM;
        }
        /* Without a worker nothing is said of it: the next one will be as the last. */
        if (!known || to->index != from->index ||
            from->state != PLASMON__V1__DEVICE_STATE__DEVICE_STATE_DOWN) {
            to->bulk = (uint32_t)from->bulk;
        }
        to->index       = from->index;
        to->kind        = from->kind;
        to->host_device = from->host_device;
        to->same_host   = strcmp(from->host, client->host) == 0;
        to->alive       = from->alive;
        to->usable = from->state != PLASMON__V1__DEVICE_STATE__DEVICE_STATE_ANNOUNCED &&
                     from->state != PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE;
        to->bytes_total = from->bytes_total;
        (void)snprintf(to->name, sizeof(to->name), "%s", from->name);
        (void)snprintf(to->node, sizeof(to->node), "%s", from->node);
    }
    while (client->devices.count > count) {
        pl_vec_pop(&client->devices);
    }
    return PLASMON_OK;
}

void client_set_store_locked(struct plasmon_client *client, const char *socket)
{
    (void)snprintf(client->store_socket, sizeof(client->store_socket), "%s", socket);
}

const struct client_device *client_device_locked(const struct plasmon_client *client,
                                                 uint32_t index)
{
    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *device = pl_vec_at(&client->devices, i);

        if (device->index == index) {
            return device;
        }
    }
    return NULL;
}

uint64_t client_largest_device_locked(const struct plasmon_client *client)
{
    uint64_t largest = 0;

    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *device = pl_vec_at(&client->devices, i);

        largest = pl_max_u64(largest, device->bytes_total);
    }
    return largest;
}

static void fill_info(const struct client_device *device, struct plasmon_device_info *out)
{
    *out = (struct plasmon_device_info){.index       = (int)device->index,
                                        .kind        = (int)device->kind,
                                        .bytes_total = device->bytes_total,
                                        .same_host   = device->same_host};
    memcpy(out->name, device->name, sizeof(out->name));
    memcpy(out->node, device->node, sizeof(out->node));
}

plasmon_status_t plasmon_devices(struct plasmon_client *client,
                                 struct plasmon_device_info *infos, uint32_t capacity,
                                 uint32_t *out_count)
{
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_count == NULL || (capacity > 0 && infos == NULL)) {
        return error_set(PLASMON_EINVAL, "out_count or infos is NULL");
    }
    status = client_refresh_devices(client, client->unary_ms);
    if (status != PLASMON_OK) {
        return status;
    }

    pl_mutex_lock(&client->lock);
    *out_count = 0;
    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *device = pl_vec_at(&client->devices, i);

        if (!device->usable) {
            continue;
        }
        if (*out_count < capacity) {
            fill_info(device, &infos[*out_count]);
        }
        (*out_count)++;
    }
    pl_mutex_unlock(&client->lock);
    return PLASMON_OK;
}

/* ---------------------------------------------------------------------------- callbacks */

void client_run_callbacks_unlock(struct plasmon_client *client)
{
    struct pl_list due, *at, *next;

    pl_list_init(&due);
    pl_list_for_each_safe(at, next, &client->refs.callbacks) {
        pl_list_remove(at);
        pl_list_add_tail(&due, at);
    }
    pl_mutex_unlock(&client->lock);

    pl_list_for_each_safe(at, next, &due) {
        struct watch *watch = pl_container_of(at, struct watch, link);

        watch->fn(watch->user, watch->status);
        pl_free(watch);
    }
}

/* --------------------------------------------------------------------------------- init */

static const char *option_or_env(const char *option, const char *name)
{
    const char *value = option != NULL ? option : getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const char *own_name(void)
{
    const char *name = program_invocation_short_name;
    size_t length    = strlen(name);

    return pl_text_control(name, length) == length ? name : "program";
}

static plasmon_status_t copy_options(struct plasmon_client *client,
                                     const struct plasmon_options *options)
{
    const char *address = option_or_env(options->address, "PLASMON_ADDRESS");
    const char *token   = option_or_env(options->token, "PLASMON_TOKEN");
    const char *file    = token == NULL ? option_or_env(NULL, "PLASMON_TOKEN_FILE") : NULL;
    const char *space   = option_or_env(options->name_space, "PLASMON_NAMESPACE");
    char from_file[TRUST_TOKEN_BYTES_MAX + 1];
    struct pl_err err = {0};
    const char *fault;
    plasmon_status_t status;

    if (file != NULL) {
        status = trust_token_read(file, from_file, &err);
        if (status != PLASMON_OK) {
            return error_from(&err, status);
        }
        token = from_file;
    }

    fault = token != NULL ? trust_token_fault(token) : NULL;
    if (fault != NULL) {
        return error_set(PLASMON_EINVAL,
                         "the token (options.token, PLASMON_TOKEN) %s: give one of text",
                         fault);
    }

    client->address    = address != NULL ? pl_strdup(address) : NULL;
    client->token      = pl_strdup(token != NULL ? token : "");
    client->name_space = pl_strdup(space != NULL ? space : "");
    client->label      = pl_strdup(options->label != NULL ? options->label : own_name());
    if ((address != NULL && client->address == NULL) || client->token == NULL ||
        client->name_space == NULL || client->label == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    if (strlen(client->token) > WIRE_TOKEN_BYTES_MAX) {
        return error_set(PLASMON_ELIMIT, "the token is longer than %u bytes",
                         WIRE_TOKEN_BYTES_MAX);
    }
    status = data_path_parse(option_or_env(NULL, "PLASMON_CLIENT_PATH"), &client->path);
    if (status != PLASMON_OK) {
        return status;
    }
    status =
        client_check_name(client->name_space, WIRE_NAME_BYTES_MAX, "options.name_space");
    return status == PLASMON_OK
               ? client_check_name(client->label, WIRE_LABEL_BYTES_MAX, "options.label")
               : status;
}

static void free_options(struct plasmon_client *client)
{
    pl_free(client->address);
    pl_free(client->token);
    pl_free(client->name_space);
    pl_free(client->label);
}

/* "host:port" or "unix:/path"; gRPC would also take less and fail much later. */
static plasmon_status_t check_address(const char *address)
{
    const char *colon = strrchr(address, ':');

    if (strncmp(address, "unix:", 5) == 0) {
        return address[5] == '/'
                   ? PLASMON_OK
                   : error_set(PLASMON_EINVAL,
                               "address \"%.200s\": a path must follow unix:", address);
    }
    if (colon == NULL || colon == address ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || colon[1] == '\0' ||
        atol(colon + 1) > 65535) {
        return error_set(PLASMON_EINVAL,
                         "address \"%.200s\" is neither host:port (up to 65535) nor "
                         "unix:/path",
                         address);
    }
    return PLASMON_OK;
}

/* Only what goes over TCP needs them. Without all three: an error that says which one is missing. */
static plasmon_status_t open_trust(struct plasmon_client *client,
                                   const struct plasmon_options *options)
{
    const struct trust_files files = {
        .ca   = option_or_env(options->tls_ca, "PLASMON_TLS_CA"),
        .cert = option_or_env(options->tls_cert, "PLASMON_TLS_CERT"),
        .key  = option_or_env(options->tls_key, "PLASMON_TLS_KEY")};
    struct pl_err err = {0};
    plasmon_status_t status;

    if (!trust_files_given(&files) || strncmp(client->address, "unix:", 5) == 0) {
        return PLASMON_OK;
    }
    status =
        trust_source_create(&files, TRUST_ROLE_CLIENT | TRUST_ROLE_HOST | TRUST_ROLE_HEAD,
                            &client->trust, &err);
    if (status == PLASMON_OK) {
        status = bulk_links_trust(&client->bulk, client->trust, &err);
    }
    return status == PLASMON_OK ? status : error_from(&err, status);
}

static plasmon_status_t make_channel(struct plasmon_client *client,
                                     const struct plasmon_options *options,
                                     uint32_t timeout_ms)
{
    struct rpc_channel_config config = {.target = client->address, .token = client->token};
    struct pl_err err                = {0};
    plasmon_status_t status          = PLASMON_OK;

    if (client->address != NULL) {
        status = check_address(client->address);
        if (status == PLASMON_OK) {
            status = open_trust(client, options);
        }
        if (status != PLASMON_OK) {
            return status;
        }
        config.tls = client->trust;
    } else {
        status = embedded_start(&client->embedded, options, &client->shared, &err);
        if (status == PLASMON_OK) {
            status = embedded_head_fd(&client->embedded, &client->shared, false, timeout_ms,
                                      &config.fd, &err);
        }
        if (status != PLASMON_OK) {
            return error_from(&err, status);
        }
    }
    status = rpc_channel_create(client->loop, &config, &client->channel);
    if (status != PLASMON_OK) {
        return error_set(status, "cannot make a channel to %s: %s",
                         client->address != NULL ? client->address : "the private cluster",
                         pl_status_text(status));
    }
    return PLASMON_OK;
}

static void note_loop_thread(void *user)
{
    struct plasmon_client *client = user;

    client->loop_thread = pthread_self();
    atomic_store_explicit(&client->loop_thread_known, true, memory_order_release);
}

static plasmon_status_t make_loop(struct plasmon_client *client)
{
    plasmon_status_t status = rpc_loop_create(&client->loop);

    if (status != PLASMON_OK) {
        return error_set(status, "cannot make the library's thread: %s",
                         status == PLASMON_ELIMIT ? FILES_LIMIT : pl_status_text(status));
    }
    rpc_loop_set_tick(client->loop, TICK_MS, session_tick, client);
    rpc_loop_set_many(client->loop, session_many, client);
    rpc_loop_post(client->loop, note_loop_thread, client);
    status = rpc_loop_start(client->loop, "plasmon");
    if (status != PLASMON_OK) {
        return error_set(status, "cannot start the library's thread: %s",
                         status == PLASMON_ELIMIT ? PL_THREAD_NONE_LEFT
                                                  : pl_status_text(status));
    }
    return PLASMON_OK;
}

static uint32_t count_alive(struct plasmon_client *client)
{
    uint32_t alive = 0;

    pl_mutex_lock(&client->lock);
    for (size_t i = 0; i < client->devices.count; i++) {
        const struct client_device *device = pl_vec_at(&client->devices, i);

        alive += device->alive ? 1u : 0u;
    }
    pl_mutex_unlock(&client->lock);
    return alive;
}

/*
 * A private cluster is ready when all its devices are: the first tasks would otherwise all go to
 * the one that came up first. The store knows how many there will be. When the time is over, some
 * devices are better than none.
 */
static plasmon_status_t wait_devices(struct plasmon_client *client, uint32_t timeout_ms)
{
    /* nothing tells of a new device: ask */
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t deadline_ns        = client_deadline(timeout_ms);
    struct pl_err err           = {0};
    plasmon_status_t status     = shared_ensure(&client->shared, NULL, &err);

    if (status != PLASMON_OK) {
        return error_from(&err, status);
    }
    for (;;) {
        uint32_t alive;

        status = client_refresh_devices(client, client->unary_ms);
        if (status != PLASMON_OK) {
            return status;
        }
        alive = count_alive(client);
        if (alive >= shared_device_count(&client->shared)) {
            return PLASMON_OK;
        }
        if (pl_now_ns() >= deadline_ns) {
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    if (count_alive(client) > 0) {
        pl_warn("client", "%u of %u devices came up", count_alive(client),
                shared_device_count(&client->shared));
        return PLASMON_OK;
    }
    (void)pl_err_set(&err, PLASMON_ETIMEDOUT,
                     "no device of the private cluster came up within %u ms", timeout_ms);
    embedded_add_start_log(&client->embedded, &err);
    return error_from(&err, PLASMON_ETIMEDOUT);
}

/* Everything that does not talk. */
static plasmon_status_t prepare(struct plasmon_client *client)
{
    static _Atomic uint32_t tag_next = 1;
    plasmon_status_t status;

    client->fork_count = atomic_load(&fork_count);
    client->ready_fd   = -1;
    client->devices    = PL_VEC_INIT(struct client_device);
    status             = pl_host_id(client->host);
    if (status != PLASMON_OK) {
        return status;
    }
    embedded_init(&client->embedded);
    refs_init(&client->refs, atomic_fetch_add(&tag_next, 1));

    status = pl_mutex_init(&client->lock, PL_RANK_CLIENT);
    if (status != PLASMON_OK) {
        return status;
    }
    status = shared_init(&client->shared);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    status = bulk_links_init(&client->bulk);
    if (status != PLASMON_OK) {
        goto err_finish_shared;
    }
    status = session_init(client);
    if (status != PLASMON_OK) {
        goto err_finish_bulk;
    }
    status = host_memory_init(&client->memory);
    if (status != PLASMON_OK) {
        goto err_finish_session;
    }
    pl_list_init(&client->graphs);
    trace_init(&client->trace);
    functions_init(&client->functions);
    client->scratch = submit_scratch_create();
    if (client->scratch == NULL) {
        status = PLASMON_ENOMEM;
        goto err_finish_host;
    }
    return PLASMON_OK;

err_finish_host:
    pl_cond_finish(&client->memory.changed);
err_finish_session:
    session_finish(client);
err_finish_bulk:
    bulk_links_finish(&client->bulk);
err_finish_shared:
    shared_finish(&client->shared);
err_finish_lock:
    pl_mutex_finish(&client->lock);
    return status;
}

/* From any state after prepare(). */
static void destroy(struct plasmon_client *client)
{
    host_memory_finish(client);
    if (client->loop != NULL) {
        if (client->channel != NULL) {
            rpc_channel_destroy(client->channel);
        }
        rpc_loop_stop(client->loop);
        rpc_loop_destroy(client->loop);
    }
    bulk_links_finish(&client->bulk);
    trust_source_destroy(client->trust);
    shared_finish(&client->shared); /* the store ends when its socket closes */
    embedded_finish(&client->embedded, STORE_GONE_MS);
    session_finish(client);
    refs_finish(&client->refs);
    pl_vec_finish(&client->devices);
    graphs_finish(client);
    submit_scratch_destroy(client->scratch);
    trace_finish(&client->trace);
    functions_finish(&client->functions);
    pl_fd_close(&client->ready_fd);
    pl_mutex_finish(&client->lock);
    free_options(client);
    pl_free(client);
    rpc_finish();
}

/*
 * Options of an older program are shorter; of a newer one longer, which is fine while what we do
 * not know is zero.
 */
static plasmon_status_t take_options(const struct plasmon_options *options,
                                     struct plasmon_options *out)
{
    const struct plasmon_options defaults = PLASMON_OPTIONS_INIT;

    *out = defaults;
    if (options == NULL) {
        return PLASMON_OK;
    }
    if (options->size < sizeof(options->size)) {
        return error_set(PLASMON_EINVAL,
                         "options.size is %zu: start from PLASMON_OPTIONS_INIT",
                         options->size);
    }
    for (size_t i = sizeof(*out); i < options->size; i++) {
        if (((const uint8_t *)options)[i] != 0) {
            return error_set(
                PLASMON_EVERSION,
                "the options use what this library (%s) does not have: the program "
                "was built with the headers of a later one; run it with that "
                "libplasmon (LD_LIBRARY_PATH)",
                plasmon_version());
        }
    }
    memcpy(out, options, options->size < sizeof(*out) ? options->size : sizeof(*out));
    return PLASMON_OK;
}

/* A session, and for a private cluster its devices. */
static plasmon_status_t join(struct plasmon_client *client, uint32_t timeout_ms)
{
    plasmon_status_t status = session_open(client, timeout_ms);

    if (!client->embedded.active) {
        return status;
    }
    return status == PLASMON_OK ? wait_devices(client, timeout_ms)
                                : embedded_explain(&client->embedded, status);
}

static plasmon_status_t client_create(const struct plasmon_options *user_options,
                                      bool with_session, struct plasmon_client **out_client)
{
    struct plasmon_client *client;
    struct plasmon_options options;
    uint32_t timeout_ms;
    plasmon_status_t status;

    if (out_client == NULL) {
        return error_set(PLASMON_EINVAL, "out_client is NULL");
    }
    if (rpc_inherited()) {
        return error_set(
            PLASMON_EFORKED,
            "this process was forked while its parent had a client, and gRPC, which "
            "was in use there, cannot be used here: fork before the first "
            "plasmon_init() or after the last plasmon_finish(), or exec() a program");
    }
    status = take_options(user_options, &options);
    if (status != PLASMON_OK) {
        return status;
    }
    timeout_ms =
        options.connect_timeout_ms != 0 ? options.connect_timeout_ms : CONNECT_TIMEOUT_MS;

    client = PL_NEW(struct plasmon_client);
    if (client == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    client->unary_ms = with_session ? UNARY_TIMEOUT_MS : timeout_ms;
    status           = copy_options(client, &options);
    if (status == PLASMON_OK) {
        status = prepare(client);
        if (status != PLASMON_OK) {
            (void)error_set(status, "cannot make a client: %s",
                            status == PLASMON_ELIMIT ? FILES_LIMIT
                                                     : pl_status_text(status));
        }
    }
    if (status != PLASMON_OK) {
        free_options(client);
        pl_free(client);
        return status;
    }

    rpc_init();
    status = make_loop(client);
    if (status == PLASMON_OK) {
        status = make_channel(client, &options, timeout_ms);
    }
    if (status == PLASMON_OK && with_session) {
        status = join(client, timeout_ms);
    }
    if (status != PLASMON_OK) {
        session_end(client, 0);
        destroy(client);
        return status;
    }
    *out_client = client;
    return PLASMON_OK;
}

plasmon_status_t plasmon_init(const struct plasmon_options *options,
                              struct plasmon_client **out_client)
{
    return client_create(options, true, out_client);
}

plasmon_status_t client_ask_init(const struct plasmon_options *options,
                                 struct plasmon_client **out_client)
{
    return client_create(options, false, out_client);
}

void plasmon_finish(struct plasmon_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client_enter(client) != PLASMON_OK) {
        plasmon_abandon(client);
        return;
    }
    if (client_on_loop_thread(client)) {
        pl_error(
            "client",
            "plasmon_finish() in a callback: it would wait for itself; nothing was done");
        return;
    }
    session_end(client, FINISH_GRACE_MS);
    pl_mutex_lock(&client->lock);
    client_run_callbacks_unlock(client); /* those that never became ready hear ECLOSED */
    destroy(client);
}

/*
 * The child of a fork has the memory and the descriptors, but none of the threads; locks may be
 * held for ever. So only what needs neither is given back: descriptors, mappings, and the handle.
 * gRPC's own memory stays: there is no safe way to free it.
 */
void plasmon_abandon(struct plasmon_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client->fork_count == atomic_load(&fork_count)) {
        plasmon_finish(client); /* not inherited at all */
        return;
    }
    host_memory_abandon(&client->memory);
    shared_abandon(&client->shared);
    bulk_links_abandon(&client->bulk);
    embedded_abandon(&client->embedded);
    pl_fd_close(&client->ready_fd);
    free_options(client);
    pl_free(client);
}
