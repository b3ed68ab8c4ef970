#include "worker/inline.h"

#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/base.h"
#include "base/fault.h"

#define SLAB_BYTES (UINT64_C(4) << 20) /* four of the largest pieces */
#define PAGE_BYTES 4096u

struct inline_slab {
    struct pl_list link;
    uint8_t *memory;
    uint64_t used;
    uint64_t ticket; /* of its last piece */
};

struct inline_read {
    struct pl_list link;
    uint64_t ticket;
    uint64_t request;
    uint64_t length;
    const uint8_t *bytes;
};

/* Registered memory, page-aligned as registering wants it. */
static plasmon_status_t pages_create(struct device *device, uint64_t bytes, void **out_ptr)
{
    void *ptr =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    plasmon_status_t status;

    if (ptr == MAP_FAILED) {
        return PLASMON_ENOMEM;
    }
    status = device_host_register(device, ptr, bytes);
    if (status != PLASMON_OK) {
        (void)munmap(ptr, bytes); /* cannot fail: it is a whole mapping of ours */
        return status;
    }
    *out_ptr = ptr;
    return PLASMON_OK;
}

static void pages_destroy(struct device *device, void *ptr, uint64_t bytes)
{
    device_host_unregister(device, ptr);
    (void)munmap(ptr, bytes); /* as above */
}

plasmon_status_t worker_inline_init(struct worker_inline *in, struct device *device)
{
    void *page;
    plasmon_status_t status = pages_create(device, PAGE_BYTES, &page);

    if (status != PLASMON_OK) {
        return status;
    }
    *in = (struct worker_inline){.device = device, .word = page};
    pl_list_init(&in->slabs);
    pl_list_init(&in->reads);
    return PLASMON_OK;
}

void worker_inline_finish(struct worker_inline *in)
{
    struct pl_list *pos, *tmp;

    if (in->word == NULL) {
        return;
    }
    pl_list_for_each_safe(pos, tmp, &in->reads) {
        pl_free(pl_container_of(pos, struct inline_read, link));
    }
    pl_list_for_each_safe(pos, tmp, &in->slabs) {
        struct inline_slab *slab = pl_container_of(pos, struct inline_slab, link);

        pages_destroy(in->device, slab->memory, SLAB_BYTES);
        pl_free(slab);
    }
    pages_destroy(in->device, in->word, PAGE_BYTES);
    in->word = NULL;
}

/* -------------------------------------------------------------------------------- slabs */

static uint64_t passed(const struct worker_inline *in)
{
    return __atomic_load_n(in->word, __ATOMIC_ACQUIRE);
}

static struct inline_slab *slab_create(struct worker_inline *in)
{
    struct inline_slab *slab = PL_NEW(struct inline_slab);
    void *memory;

    if (slab == NULL || pages_create(in->device, SLAB_BYTES, &memory) != PLASMON_OK) {
        pl_free(slab);
        return NULL;
    }
    slab->memory = memory;
    pl_list_add_tail(&in->slabs, &slab->link);
    return slab;
}

/*
 * The slab being filled, the oldest one if it was passed and holds no read that nobody collected,
 * or a new one.
 */
static struct inline_slab *slab_for(struct worker_inline *in, uint64_t bytes)
{
    struct inline_slab *slab;

    if (!pl_list_empty(&in->slabs)) {
        slab = pl_container_of(in->slabs.prev, struct inline_slab, link);
        if (slab->used + bytes <= SLAB_BYTES) {
            return slab;
        }
        slab = pl_container_of(in->slabs.next, struct inline_slab, link);
        if (slab->ticket <= passed(in) &&
            (pl_list_empty(&in->reads) ||
             pl_list_first(&in->reads, struct inline_read, link)->ticket > slab->ticket)) {
            slab->used = 0;
            pl_list_remove(&slab->link);
            pl_list_add_tail(&in->slabs, &slab->link);
            return slab;
        }
    }
    return slab_create(in);
}

static uint8_t *room(struct worker_inline *in, uint64_t bytes)
{
    struct inline_slab *slab = bytes <= SLAB_BYTES ? slab_for(in, bytes) : NULL;
    uint8_t *memory;

    if (slab == NULL) {
        return NULL;
    }
    memory = slab->memory + slab->used;
    slab->used += pl_round_up(bytes, 64);
    slab->ticket = in->ticket + 1;
    return memory;
}

/* ------------------------------------------------------------------------------- pieces */

plasmon_status_t worker_inline_put(struct worker_inline *in, struct device_stream *stream,
                                   struct device_ptr dst, const uint8_t *bytes,
                                   uint64_t length)
{
    uint8_t *memory;
    plasmon_status_t status;

    if (length == 0) {
        return PLASMON_OK;
    }
    memory = room(in, length);
    if (memory == NULL) {
        return PLASMON_ENOMEM;
    }
    memcpy(memory, bytes, length);
    if (pl_fault_point("inline.put")) {
        return PLASMON_EDEVICE;
    }
    status = device_copy(stream, DEVICE_COPY_HOST_TO_DEVICE, dst.addr,
                         (uint64_t)(uintptr_t)memory, length);
    if (status != PLASMON_OK) {
        return status;
    }
    return device_signal(stream, in->word, ++in->ticket);
}

plasmon_status_t worker_inline_read(struct worker_inline *in, struct device_stream *stream,
                                    struct device_ptr src, uint64_t length,
                                    uint64_t request)
{
    struct inline_read *read = PL_NEW(struct inline_read);
    uint8_t *memory          = read == NULL ? NULL : room(in, length);
    plasmon_status_t status  = PLASMON_OK;

    if (memory == NULL) {
        pl_free(read);
        return PLASMON_ENOMEM;
    }
    if (length != 0) {
        status = device_copy(stream, DEVICE_COPY_DEVICE_TO_HOST,
                             (uint64_t)(uintptr_t)memory, src.addr, length);
    }
    if (status == PLASMON_OK) {
        status = pl_fault_point("inline.read")
                     ? PLASMON_EDEVICE
                     : device_signal(stream, in->word, ++in->ticket);
    }
    if (status != PLASMON_OK) {
        pl_free(read);
        return status;
    }
    *read = (struct inline_read){
        .ticket = in->ticket, .request = request, .length = length, .bytes = memory};
    pl_list_add_tail(&in->reads, &read->link);
    return PLASMON_OK;
}

void worker_inline_collect(struct worker_inline *in,
                           void (*fn)(void *user, uint64_t request, const uint8_t *bytes,
                                      uint64_t length),
                           void *user)
{
    uint64_t done = pl_list_empty(&in->reads) ? 0 : passed(in);

    while (!pl_list_empty(&in->reads)) {
        struct inline_read *read = pl_list_first(&in->reads, struct inline_read, link);

        if (read->ticket > done) {
            return;
        }
        (void)pl_fault_point("inline.tell"); /* cannot fail; the process can end */
        fn(user, read->request, read->bytes, read->length);
        pl_list_remove(&read->link);
        pl_free(read);
    }
}
