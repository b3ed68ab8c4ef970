#include "client/host.h"

#include <sys/mman.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "client/data.h"

#define PAGE_BYTES 4096u

/* What a store has to do is lock pages: a quarter of a second a GiB, on each device's worker. */
#define ALLOC_NS_MIN         60000000000ull
#define ALLOC_BYTES_A_SECOND (UINT64_C(256) << 20)

/* What was freed a moment ago is let go of in a moment, unless the devices are busy. */
#define FREED_NS 1000000000ull

plasmon_status_t host_memory_init(struct host_memory *memory)
{
    pl_list_init(&memory->buffers);
    pl_list_init(&memory->jobs);
    return pl_cond_init(&memory->changed);
}

static void buffer_destroy(struct host_buffer *buffer)
{
    pl_list_remove(&buffer->link);
    pl_fd_unmap(buffer->data, buffer->map_bytes);
    pl_free(buffer);
}

void host_memory_abandon(struct host_memory *memory)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &memory->buffers) {
        buffer_destroy(pl_container_of(pos, struct host_buffer, link));
    }
}

void host_memory_finish(struct plasmon_client *client)
{
    host_relay_finish(client);
    host_memory_abandon(&client->memory); /* the store hears that we are gone */
    pl_cond_finish(&client->memory.changed);
}

/* ------------------------------------------------------------------------------- in use */

struct host_buffer *host_find_locked(struct plasmon_client *client, const void *data,
                                     uint64_t bytes, struct pl_err *err)
{
    uintptr_t at = (uintptr_t)data;
    struct pl_list *pos;

    pl_list_for_each(pos, &client->memory.buffers) {
        struct host_buffer *buffer = pl_container_of(pos, struct host_buffer, link);
        uintptr_t first            = (uintptr_t)buffer->data;

        if (at < first || at - first >= buffer->bytes) {
            continue;
        }
        if (bytes <= buffer->bytes - (at - first)) {
            return buffer;
        }
        (void)pl_err_set(err, PLASMON_ERANGE,
                         "%llu bytes from byte %llu on of host memory of %llu bytes",
                         (unsigned long long)bytes, (unsigned long long)(at - first),
                         (unsigned long long)buffer->bytes);
        return NULL;
    }
    (void)pl_err_set(err, PLASMON_EINVAL,
                     "the memory is none of plasmon_host_alloc() of this client; "
                     "plasmon_put() and plasmon_get() take any");
    return NULL;
}

plasmon_status_t host_use_begin_locked(struct host_buffer *buffer, const void *data,
                                       uint64_t bytes, bool writes,
                                       struct host_use **out_use, struct pl_err *err)
{
    uint64_t begin = (uint64_t)((const uint8_t *)data - buffer->data);
    struct host_use *use;
    struct pl_list *pos;

    if (buffer->use_count >= HOST_USES_MAX) {
        return pl_err_set(
            err, PLASMON_ELIMIT,
            "%u copies from or to this host memory are on their way; wait for "
            "some",
            HOST_USES_MAX);
    }
    pl_list_for_each(pos, &buffer->uses) {
        const struct host_use *other = pl_container_of(pos, struct host_use, link);

        if ((writes || other->writes) && begin < other->end &&
            other->begin < begin + bytes) {
            return pl_err_set(
                err, PLASMON_EBUSY,
                "a %s of bytes %llu to %llu of this host memory is on its way; "
                "wait for its ref",
                other->writes ? "get" : "put", (unsigned long long)other->begin,
                (unsigned long long)other->end);
        }
    }
    use = PL_NEW(struct host_use);
    if (use == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    *use = (struct host_use){
        .buffer = buffer, .begin = begin, .end = begin + bytes, .writes = writes};
    pl_list_add_tail(&buffer->uses, &use->link);
    buffer->use_count++;
    *out_use = use;
    return PLASMON_OK;
}

void host_use_end(struct host_use *use)
{
    if (use != NULL) {
        use->buffer->use_count--;
        pl_list_remove(&use->link);
        pl_free(use);
    }
}

bool host_copies_locked(const struct plasmon_client *client)
{
    return client->memory.told == 0 || client->memory.told % 2 == 1;
}

uint64_t host_direct(struct plasmon_client *client, int device)
{
    uint64_t memory;
    bool copies;

    pl_mutex_lock(&client->lock);
    copies = host_copies_locked(client);
    pl_mutex_unlock(&client->lock);
    if (!copies || !data_known(client, device, DATA_AUTO)) {
        return 0;
    }
    memory = shared_number(&client->shared);
    return memory == 0 && data_look_again(client) ? shared_number(&client->shared) : memory;
}

/* -------------------------------------------------------------------------------- alloc */

/* Anywhere but where it is shared with devices: pages of our own. */
static plasmon_status_t map_ordinary(struct host_buffer *buffer)
{
    void *data = mmap(NULL, buffer->map_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (data == MAP_FAILED) {
        return error_set(PLASMON_ENOMEM,
                         "this machine has no room for host memory of %llu bytes",
                         (unsigned long long)buffer->bytes);
    }
    buffer->data = data;
    return PLASMON_OK;
}

/*
 * Its store has died; the cluster has not, unless it is a private one. false: there is nobody to wait
 * for, with why in *io_status; OK: its devices are gone with it.
 */
static bool wait_for_a_store(struct plasmon_client *client, uint64_t deadline_ns,
                             struct pl_err *err, plasmon_status_t *io_status)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    if (client->embedded.active) {
        return false;
    }
    *io_status = data_hope(client, err);
    if (*io_status != PLASMON_OK || !data_reachable(client, PLASMON_ANYWHERE)) {
        return false;
    }
    if (pl_now_ns() >= deadline_ns) {
        *io_status = pl_err_set(err, PLASMON_ETIMEDOUT,
                                "plasmon-store of this host has died, and none was started "
                                "in its place");
        return false;
    }
    if (!data_look_again(client)) {
        (void)nanosleep(&pause, NULL); /* it was looked for a moment ago */
    }
    return true;
}

static plasmon_status_t map_shared(struct plasmon_client *client,
                                   struct host_buffer *buffer)
{
    uint64_t now_ns = pl_now_ns();
    uint64_t deadline_ns =
        now_ns + ALLOC_NS_MIN + buffer->bytes / ALLOC_BYTES_A_SECOND * 1000000000ull;
    const struct timespec pause = {.tv_nsec = 1000000};
    struct pl_err err           = {0};
    void *data;
    plasmon_status_t status;

    for (;;) {
        status = shared_buffer_take(&client->shared, buffer->map_bytes, deadline_ns,
                                    &buffer->id, &buffer->memory, &data, &err);
        if (status == PLASMON_ECLOSED) {
            if (wait_for_a_store(client, deadline_ns, &err, &status)) {
                continue;
            }
            if (status == PLASMON_OK) {
                return map_ordinary(buffer);
            }
            break;
        }
        if (status != PLASMON_EAGAIN || pl_now_ns() - now_ns >= FREED_NS) {
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    if (status != PLASMON_OK) {
        return error_from(&err, status == PLASMON_EAGAIN ? PLASMON_ELIMIT : status);
    }
    buffer->data = data;
    /*
     * The pages are there; now they are in our page table, too. Older kernels do that one by one,
     * at first use.
     */
    (void)madvise(data, buffer->map_bytes, MADV_POPULATE_WRITE);
    return PLASMON_OK;
}

plasmon_status_t plasmon_host_alloc(struct plasmon_client *client, size_t bytes,
                                    void **out_data)
{
    struct host_buffer *buffer;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK) {
        return status;
    }
    if (out_data == NULL) {
        return error_set(PLASMON_EINVAL, "out_data is NULL");
    }
    if (bytes == 0 || bytes > WIRE_VALUE_BYTES_MAX) {
        return error_set(PLASMON_EINVAL, "host memory of %zu bytes: ask for 1 to 2^48",
                         bytes);
    }
    if (client_on_loop_thread(client)) {
        return error_set(PLASMON_EINVAL,
                         "this call waits for the store and cannot be made in a callback");
    }
    buffer = PL_NEW(struct host_buffer);
    if (buffer == NULL) {
        return error_set(PLASMON_ENOMEM, "out of host memory");
    }
    buffer->bytes     = bytes;
    buffer->map_bytes = pl_round_up(bytes, PAGE_BYTES);
    pl_list_init(&buffer->link);
    pl_list_init(&buffer->uses);
    status = data_reachable(client, PLASMON_ANYWHERE) ? map_shared(client, buffer)
                                                      : map_ordinary(buffer);
    if (status != PLASMON_OK) {
        pl_free(buffer);
        return status;
    }
    pl_mutex_lock(&client->lock);
    pl_list_add_tail(&client->memory.buffers, &buffer->link);
    pl_mutex_unlock(&client->lock);
    *out_data = buffer->data;
    return PLASMON_OK;
}

plasmon_status_t plasmon_host_free(struct plasmon_client *client, void *data)
{
    struct pl_err err = {0};
    struct host_buffer *buffer;
    uint64_t id = 0, memory = 0;
    plasmon_status_t status = client_enter(client);

    if (status != PLASMON_OK || data == NULL) {
        return status;
    }
    pl_mutex_lock(&client->lock);
    buffer = host_find_locked(client, data, 1, &err);
    if (buffer == NULL) {
        status = error_from(&err, err.status);
    } else if (buffer->data != data) {
        status = error_set(PLASMON_EINVAL,
                           "this is inside of host memory; it is freed by the address that "
                           "plasmon_host_alloc() gave");
    } else if (buffer->use_count > 0) {
        status =
            error_set(PLASMON_EBUSY,
                      "%u copies from or to this host memory are on their way; wait for "
                      "their refs first",
                      buffer->use_count);
    } else {
        id     = buffer->id;
        memory = buffer->memory;
        buffer_destroy(buffer);
    }
    pl_mutex_unlock(&client->lock);
    if (id != 0) {
        shared_buffer_drop(&client->shared, memory, id);
    }
    return status;
}
