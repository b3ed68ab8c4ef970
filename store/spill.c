#include "store/spill.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/spill_files.h"

#define STORE_SPILL_ADOPT_MAX 1024u /* files that are looked at: nine of each worker */

enum slab_state { SLAB_NONE, SLAB_WANTED, SLAB_MADE, SLAB_FAILED };

struct store_spill {
    /* Constant after start. */
    uint64_t memory_bytes;
    uint64_t file_bytes;
    struct store_spill_ahead ahead;
    void (*slab_wanted)(void *user);
    void (*done)(void *user);
    void *user;
    pthread_t thread;
    bool started;

    struct pl_mutex lock; /* rank PL_RANK_LEAF */
    struct pl_cond changed;
    /* Guarded by `lock`. */
    struct pl_vec ops; /* struct store_spill_op, from op_next on */
    size_t op_next;
    struct pl_vec results; /* struct store_spill_result */
    uint64_t id_last;      /* of what was asked */
    bool goes_on;          /* .. another store: the next one may have any id */
    uint64_t era;          /* a new one with each head */
    bool stop;
    enum slab_state slab;
    uint64_t slab_buffer;
    uint64_t slab_usable; /* bytes of it, from the beginning, that all workers have */
    plasmon_status_t slab_status; /* why there will be no more */
    char slab_text[256];
    void *memory; /* the slab; written once */

    /* The thread's. */
    struct store_spill_files files; /* but index->slab, slab_bytes, era: see there */
};

/* ----------------------------------------------------------------------------- the slab */

/* Map it, and name it in the index before anybody hears of it. */
static plasmon_status_t slab_map(struct store_spill *spill, int fd, uint64_t host_buffer)
{
    void *memory            = NULL;
    plasmon_status_t status = pl_fd_map(fd, spill->memory_bytes, 1, &memory);

    if (status == PLASMON_OK) {
        spill->files.index->slab_bytes = spill->memory_bytes;
        __atomic_store_n(&spill->files.index->slab, host_buffer, __ATOMIC_RELEASE);
        pl_mutex_lock(&spill->lock);
        spill->memory      = memory;
        spill->slab_buffer = host_buffer;
        pl_mutex_unlock(&spill->lock);
    }
    return status;
}

void store_spill_slab_made(struct store_spill *spill, plasmon_status_t status, int fd,
                           uint64_t host_buffer, uint64_t bytes, const char *text)
{
    if (bytes > 0 && spill->memory == NULL) { /* written by this thread alone */
        plasmon_status_t mapped = slab_map(spill, fd, host_buffer);

        if (mapped != PLASMON_OK) {
            status = mapped;
            bytes  = 0;
            text   = pl_status_text(status);
        }
    }
    pl_mutex_lock(&spill->lock);
    spill->slab        = spill->memory != NULL ? SLAB_MADE : SLAB_FAILED;
    spill->slab_usable = pl_max_u64(spill->slab_usable, bytes);
    spill->slab_status = status;
    (void)snprintf(spill->slab_text, sizeof(spill->slab_text), "%s", text);
    pl_cond_broadcast(&spill->changed);
    pl_mutex_unlock(&spill->lock);
}

plasmon_status_t store_spill_slab_found(struct store_spill *spill, int fd,
                                        uint64_t host_buffer)
{
    plasmon_status_t status = PLASMON_OK;

    if (__atomic_load_n(&spill->files.index->slab, __ATOMIC_ACQUIRE) != 0) {
        status = slab_map(spill, fd, host_buffer);
    }
    if (status == PLASMON_OK && spill->memory != NULL) {
        pl_mutex_lock(&spill->lock);
        spill->slab = SLAB_MADE;
        pl_mutex_unlock(&spill->lock);
    }
    return status;
}

/* There is more than `known` bytes of it, or there never will be. */
static bool slab_decided_locked(struct store_spill *spill, uint64_t known)
{
    pl_mutex_assert_held(&spill->lock);
    return spill->slab == SLAB_FAILED ||
           (spill->slab == SLAB_MADE &&
            (spill->slab_usable > known || spill->slab_usable == spill->memory_bytes ||
             spill->slab_status != PLASMON_OK));
}

/* Asks for it the first time, and waits until there is more of it than the head knows. */
static void slab_get(struct store_spill *spill, uint64_t known,
                     struct store_spill_result *result)
{
    bool first;

    pl_mutex_lock(&spill->lock);
    first = spill->slab == SLAB_NONE;
    if (first) {
        spill->slab = SLAB_WANTED;
    }
    pl_mutex_unlock(&spill->lock);
    if (first) {
        spill->slab_wanted(spill->user);
    }
    pl_mutex_lock(&spill->lock);
    while (!slab_decided_locked(spill, known) && !spill->stop) {
        pl_cond_wait(&spill->changed, &spill->lock);
    }
    result->status = spill->slab_usable > known || spill->slab_usable == spill->memory_bytes
                         ? PLASMON_OK
                         : spill->slab_status;
    result->host_buffer = spill->slab_buffer;
    result->bytes       = spill->slab_usable;
    (void)snprintf(result->text, sizeof(result->text), "%s", spill->slab_text);
    pl_mutex_unlock(&spill->lock);
}

/* --------------------------------------------------------------------------- the thread */

static bool inside(const struct store_spill *spill, uint64_t offset, uint64_t bytes)
{
    return spill->memory != NULL && bytes <= spill->memory_bytes &&
           offset <= spill->memory_bytes - bytes;
}

static plasmon_status_t op_perform(struct store_spill *spill,
                                   const struct store_spill_op *op,
                                   struct store_spill_result *result, struct pl_err *err)
{
    uint8_t *memory = spill->memory;

    if (op->kind == STORE_SPILL_SLAB) {
        slab_get(spill, op->offset, result);
        return result->status == PLASMON_OK
                   ? PLASMON_OK
                   : pl_err_set(err, result->status, "%s", result->text);
    }
    if (op->kind == STORE_SPILL_FORGET) {
        store_spill_files_forget(&spill->files, op->file);
        return PLASMON_OK;
    }
    if (!inside(spill, op->offset, op->bytes) ||
        (op->kind == STORE_SPILL_MOVE && !inside(spill, op->file, op->bytes))) {
        return pl_err_set(err, PLASMON_ERANGE, "%llu bytes at %llu of the spill memory",
                          (unsigned long long)op->bytes, (unsigned long long)op->offset);
    }
    switch (op->kind) {
    case STORE_SPILL_WRITE:
        return store_spill_files_has(&spill->files, op->file, op->bytes)
                   ? PLASMON_OK /* the store before us did it, and could not say so */
                   : store_spill_files_write(&spill->files, op->file, memory + op->offset,
                                             op->bytes, err);
    case STORE_SPILL_READ:
        return store_spill_files_read(&spill->files, op->file, memory + op->offset,
                                      op->bytes, err);
    case STORE_SPILL_MOVE:
        if (op->file > op->offset) {
            return pl_err_set(err, PLASMON_EINVAL, "a value is only moved down");
        }
        PL_CHECK(store_spill_move(memory, op->id, op->offset, op->file, op->bytes,
                                  &spill->files.index->move, UINT64_MAX));
        return PLASMON_OK;
    default:
        return pl_err_set(err, PLASMON_ENOTSUP, "this store knows no spill operation %u",
                          op->kind);
    }
}

static bool op_next(struct store_spill *spill, struct store_spill_op *out_op,
                    uint64_t *out_era)
{
    bool found;

    pl_mutex_lock(&spill->lock);
    while (!spill->stop && spill->op_next == spill->ops.count) {
        pl_cond_wait(&spill->changed, &spill->lock);
    }
    found = !spill->stop;
    if (found) {
        *out_op  = *(struct store_spill_op *)pl_vec_at(&spill->ops, spill->op_next++);
        *out_era = spill->era;
        if (spill->op_next == spill->ops.count) {
            pl_vec_clear(&spill->ops);
            spill->op_next = 0;
        }
    }
    pl_mutex_unlock(&spill->lock);
    return found;
}

static void *thread_main(void *user)
{
    struct store_spill *spill = user;
    struct store_spill_op op;
    uint64_t era;

    while (op_next(spill, &op, &era)) {
        struct store_spill_result result = {.id = op.id};
        struct pl_err err                = {0};

        if (era != spill->files.era) {
            store_spill_files_forget_all(&spill->files, era);
        }
        result.status = op_perform(spill, &op, &result, &err);
        if (result.status != PLASMON_OK) {
            (void)snprintf(result.text, sizeof(result.text), "%.255s", err.text);
            pl_text_mend(result.text);
        }
        pl_mutex_lock(&spill->lock);
        if (era == spill->era) {
            struct store_spill_result *place = pl_vec_push(&spill->results);

            PL_CHECK(place != NULL);
            *place = result;
        }
        pl_mutex_unlock(&spill->lock);
        spill->done(spill->user);
    }
    return NULL;
}

/* ------------------------------------------------------------------------- from outside */

void store_spill_ask(struct store_spill *spill, const struct store_spill_op *op)
{
    pl_mutex_lock(&spill->lock);
    if (op->id == spill->id_last + 1 || spill->goes_on) {
        struct store_spill_op *place = pl_vec_push(&spill->ops);

        PL_CHECK(place != NULL);
        *place         = *op;
        spill->id_last = op->id;
        spill->goes_on = false;
        pl_cond_broadcast(&spill->changed);
    } /* else it was asked before */
    pl_mutex_unlock(&spill->lock);
}

bool store_spill_take(struct store_spill *spill, struct store_spill_result *out_result)
{
    bool found;

    pl_mutex_lock(&spill->lock);
    found = spill->results.count > 0;
    if (found) {
        *out_result = *(struct store_spill_result *)pl_vec_at(&spill->results, 0);
        memmove(spill->results.items, (struct store_spill_result *)spill->results.items + 1,
                (spill->results.count - 1) * sizeof(*out_result));
        spill->results.count--;
    }
    pl_mutex_unlock(&spill->lock);
    return found;
}

void store_spill_forget(struct store_spill *spill)
{
    pl_mutex_lock(&spill->lock);
    pl_vec_clear(&spill->ops);
    pl_vec_clear(&spill->results);
    spill->op_next = 0;
    spill->id_last = 0;
    spill->goes_on = false;
    spill->era++;
    /* At once: entries of before are nobody's, also to a store that takes over now. */
    __atomic_store_n(&spill->files.index->era, spill->era, __ATOMIC_RELEASE);
    pl_mutex_unlock(&spill->lock);
}

void store_spill_set_ahead(struct store_spill *spill, const struct store_spill_ahead *ahead)
{
    spill->ahead = *ahead;
}

const struct store_spill_ahead *store_spill_ahead(const struct store_spill *spill)
{
    return &spill->ahead;
}

uint64_t store_spill_life(const struct store_spill *spill)
{
    return spill->files.index->life;
}

uint64_t store_spill_slab(struct store_spill *spill)
{
    uint64_t number;

    pl_mutex_lock(&spill->lock);
    number = spill->slab == SLAB_MADE ? spill->slab_buffer : 0;
    pl_mutex_unlock(&spill->lock);
    return number;
}

uint64_t store_spill_memory_bytes(const struct store_spill *spill)
{
    return spill->memory_bytes;
}

uint64_t store_spill_file_bytes(const struct store_spill *spill)
{
    return spill->file_bytes;
}

plasmon_status_t store_spill_create(uint64_t memory_bytes, const char *const *dirs,
                                    uint32_t dir_count, struct store_spill **out_spill,
                                    struct pl_err *err)
{
    struct store_spill *spill = PL_NEW(struct store_spill);
    plasmon_status_t status;

    if (spill == NULL) {
        return pl_err_set(err, PLASMON_ENOMEM, "out of host memory");
    }
    spill->memory_bytes = pl_round_up(memory_bytes, 4096);
    spill->ops          = PL_VEC_INIT(struct store_spill_op);
    spill->results      = PL_VEC_INIT(struct store_spill_result);
    status              = store_spill_files_init(&spill->files, dirs, dir_count, err);
    if (status != PLASMON_OK) {
        goto err_free;
    }
    spill->file_bytes = store_spill_files_max(&spill->files);
    spill->era        = spill->files.era;
    status            = pl_mutex_init(&spill->lock, PL_RANK_LEAF);
    if (status != PLASMON_OK) {
        goto err_finish_files;
    }
    status = pl_cond_init(&spill->changed);
    if (status != PLASMON_OK) {
        goto err_finish_lock;
    }
    *out_spill = spill;
    return PLASMON_OK;

err_finish_lock:
    pl_mutex_finish(&spill->lock);
err_finish_files:
    store_spill_files_finish(&spill->files);
err_free:
    pl_free(spill);
    return status;
}

/* ---------------------------------------------------------------------- another store's */

void store_spill_set_memory(struct store_spill *spill, uint64_t memory)
{
    spill->files.index->memory = memory;
}

uint64_t store_spill_files_used(const struct store_spill *spill)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        bytes += spill->files.dirs[i].bytes_used;
    }
    return bytes;
}

uint32_t store_spill_parts(const struct store_spill *spill,
                           struct store_spill_part parts[STORE_SPILL_PARTS_MAX])
{
    uint32_t count = 0;

    parts[count++] = (struct store_spill_part){.which = STORE_SPILL_PART_INDEX,
                                               .fd    = spill->files.index_fd};
    for (uint32_t i = 0; i < STORE_SPILL_DIRS_MAX; i++) {
        if (spill->files.dirs[i].fd >= 0) {
            parts[count++] =
                (struct store_spill_part){.which = i + 1, .fd = spill->files.dirs[i].fd};
        }
    }
    return count;
}

/* The index that was made last. NULL: there is none that is one. *io_generation is raised to the greatest. */
static struct store_spill_index *index_choose(uint64_t memory,
                                              const struct store_spill_part *parts,
                                              size_t count, int *out_fd,
                                              uint64_t *io_generation)
{
    struct store_spill_index *best = NULL;

    for (size_t i = 0; i < count; i++) {
        struct store_spill_index *index;
        struct pl_err err;

        if (parts[i].which != STORE_SPILL_PART_INDEX) {
            continue;
        }
        if (store_spill_index_open(parts[i].fd, memory, &index, &err) != PLASMON_OK) {
            pl_warn("store", "what the store before spilled: %s", err.text);
            continue;
        }
        *io_generation = pl_max_u64(*io_generation, index->generation);
        if (best != NULL && best->generation >= index->generation) {
            store_spill_index_close(index); /* the same one, of another worker */
            continue;
        }
        store_spill_index_close(best);
        best    = index;
        *out_fd = parts[i].fd;
    }
    return best;
}

/* Nobody will read them: give their bytes back, for workers have them still. */
static void files_empty(const struct store_spill_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct stat about;

        if (parts[i].which != STORE_SPILL_PART_INDEX && fstat(parts[i].fd, &about) == 0 &&
            S_ISREG(about.st_mode) && about.st_nlink == 0) {
            (void)!ftruncate(parts[i].fd, 0); /* else they go with the workers */
        }
    }
}

/*
 * The host buffer that the index needs; one that was being made will do if it names none. false: it
 * is gone.
 */
static bool slab_choose(const struct store_spill_index *index,
                        const struct store_spill_slab *slabs, size_t count,
                        struct store_spill_slab *out_slab)
{
    uint64_t number = __atomic_load_n(&index->slab, __ATOMIC_ACQUIRE);

    *out_slab = (struct store_spill_slab){.id = 0};
    for (size_t i = 0; i < count; i++) {
        if (number == 0 || (slabs[i].id == number && slabs[i].bytes == index->slab_bytes)) {
            *out_slab = slabs[i];
        }
    }
    return number == 0 || out_slab->id != 0;
}

static plasmon_status_t files_adopt(struct store_spill *spill,
                                    struct store_spill_index *index, int index_fd,
                                    const struct store_spill_part *parts, size_t count)
{
    int fds[STORE_SPILL_ADOPT_MAX];
    size_t fd_count = 0;
    int fd          = fcntl(index_fd, F_DUPFD_CLOEXEC, 3);

    if (fd < 0) {
        store_spill_index_close(index);
        return PLASMON_ENOMEM;
    }
    for (size_t i = 0; i < count && fd_count < STORE_SPILL_ADOPT_MAX; i++) {
        if (parts[i].which != STORE_SPILL_PART_INDEX) {
            fds[fd_count++] = parts[i].fd;
        }
    }
    return store_spill_files_adopt(&spill->files, index, fd, fds, fd_count);
}

plasmon_status_t store_spill_adopt(struct store_spill *spill, uint64_t memory,
                                   const struct store_spill_part *parts, size_t part_count,
                                   const struct store_spill_slab *slabs, size_t slab_count,
                                   uint64_t *out_slab)
{
    uint64_t generation = 0;
    int index_fd        = -1;
    struct store_spill_slab slab;
    struct store_spill_index *index =
        index_choose(memory, parts, part_count, &index_fd, &generation);
    plasmon_status_t status = PLASMON_ENOENT;

    if (index != NULL && !slab_choose(index, slabs, slab_count, &slab)) {
        pl_warn("store", "what the store before spilled is lost: no worker has its host "
                         "memory");
        store_spill_index_close(index);
    } else if (index != NULL) {
        status = files_adopt(spill, index, index_fd, parts, part_count);
    }
    if (status != PLASMON_OK) {
        files_empty(parts, part_count);
        spill->files.index->generation = generation + 1;
        return PLASMON_ENOENT;
    }
    if (slab.id != 0) {
        spill->slab         = SLAB_WANTED;
        spill->memory_bytes = slab.bytes;
    }
    spill->file_bytes = store_spill_files_max(&spill->files);
    spill->era        = spill->files.era;
    spill->goes_on    = true;
    *out_slab         = slab.id;
    return PLASMON_OK;
}

plasmon_status_t store_spill_start(struct store_spill *spill,
                                   void (*slab_wanted)(void *user),
                                   void (*done)(void *user), void *user)
{
    spill->slab_wanted = slab_wanted;
    spill->done        = done;
    spill->user        = user;
    if (pthread_create(&spill->thread, NULL, thread_main, spill) != 0) {
        return PLASMON_EAGAIN;
    }
    spill->started = true;
    return PLASMON_OK;
}

void store_spill_stop(struct store_spill *spill)
{
    if (spill != NULL && spill->started) {
        pl_mutex_lock(&spill->lock);
        spill->stop = true;
        pl_cond_broadcast(&spill->changed);
        pl_mutex_unlock(&spill->lock);
        (void)pthread_join(spill->thread, NULL); /* it is ours, and was started */
        spill->started = false;
    }
}

void store_spill_destroy(struct store_spill *spill)
{
    if (spill == NULL) {
        return;
    }
    store_spill_stop(spill);
    store_spill_files_finish(&spill->files);
    if (spill->memory != NULL) {
        pl_fd_unmap(spill->memory, spill->memory_bytes);
    }
    pl_vec_finish(&spill->ops);
    pl_vec_finish(&spill->results);
    pl_cond_finish(&spill->changed);
    pl_mutex_finish(&spill->lock);
    pl_free(spill);
}
