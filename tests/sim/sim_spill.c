/*
 * The store's part of spilling (docs/memory.md): host memory that lives as long as the host, files, and a thread that does one thing after
 * the other, each taking its time. Workers that crash find the memory as it was.
 *
 * What it was asked again it does not do again: it answers what it answered then. (A head that went on from its journal may not know.)
 *
 * A disk may be full for a while, and what is read back is checked, here against the bytes that were written.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"

enum { OP_MAX_NS = 300000 };

struct sim_file {
    uint64_t number;
    uint64_t bytes;
    uint8_t data[];
};

struct sim_spill_answer {
    plasmon_status_t status;
    uint64_t host_buffer;
};

static void answer(struct sim *sim, uint64_t id, const struct sim_spill_answer *answer)
{
    sim_head_spill_done(sim, id, answer->status, answer->host_buffer,
                        answer->status == PLASMON_OK ? "" : "the disk is full");
}

static plasmon_status_t file_write(struct sim *sim, const struct head_spill_op *op,
                                   const uint8_t *from)
{
    struct sim_file *file;

    if (sim_chance(sim, sim->config.spill_full_permille)) {
        return PLASMON_ELIMIT;
    }
    file         = sim_alloc(sizeof(*file) + op->bytes);
    file->number = op->file;
    file->bytes  = op->bytes;
    memcpy(file->data, from, op->bytes);
    PL_CHECK(pl_map_get(&sim->files, op->file) == NULL);
    PL_CHECK(pl_map_set(&sim->files, op->file, file) == PLASMON_OK);
    return PLASMON_OK;
}

static plasmon_status_t file_read(struct sim *sim, const struct head_spill_op *op,
                                  uint8_t *to)
{
    const struct sim_file *file = pl_map_get(&sim->files, op->file);

    if (file == NULL || file->bytes != op->bytes) {
        sim_fail(sim,
                 "spill: %llu bytes of file %llu are to be read, which has not as many",
                 (unsigned long long)op->bytes, (unsigned long long)op->file);
        return PLASMON_EIO;
    }
    memcpy(to, file->data, file->bytes);
    return PLASMON_OK;
}

static void op_done(void *user, uint64_t arg, void *data)
{
    struct sim *sim                = user;
    const struct head_spill_op *op = data;
    struct sim_host *slab          = (struct sim_host *)(uintptr_t)op->host_buffer;
    plasmon_status_t status        = PLASMON_OK;
    struct sim_spill_answer *done;

    (void)arg;
    if (op->kind != HEAD_SPILL_SLAB && op->kind != HEAD_SPILL_FORGET &&
        (slab == NULL || op->offset + op->bytes > slab->bytes)) {
        sim_fail(sim, "spill: %llu bytes at %llu of the slab",
                 (unsigned long long)op->bytes, (unsigned long long)op->offset);
        return;
    }
    switch (op->kind) {
    case HEAD_SPILL_SLAB:
        slab       = sim_host_create(sim, NULL, op->bytes);
        slab->slab = true;
        break;
    case HEAD_SPILL_WRITE:
        status = file_write(sim, op, slab->data + op->offset);
        break;
    case HEAD_SPILL_READ:
        status = file_read(sim, op, slab->data + op->offset);
        break;
    case HEAD_SPILL_FORGET:
        pl_free(pl_map_remove(&sim->files, op->file));
        break;
    case HEAD_SPILL_MOVE:
        memmove(slab->data + op->file, slab->data + op->offset, op->bytes);
        sim->slab_moves++;
        break;
    }
    done              = sim_alloc(sizeof(*done));
    done->status      = status;
    done->host_buffer = (uintptr_t)slab;
    PL_CHECK(pl_map_set(&sim->spill_answers, op->id, done) == PLASMON_OK);
    answer(sim, op->id, done);
}

void sim_spill_op(struct sim *sim, const struct head_spill_op *op)
{
    const struct sim_spill_answer *known = pl_map_get(&sim->spill_answers, op->id);
    struct head_spill_op *copy;
    uint64_t delay;

    if (known != NULL) {
        answer(sim, op->id, known);
        return;
    }
    if (op->id <= sim->spill_op_last) {
        return; /* it is about to be done */
    }
    if (op->id != sim->spill_op_last + 1) {
        sim_fail(sim, "spill: op %llu comes after %llu", (unsigned long long)op->id,
                 (unsigned long long)sim->spill_op_last);
        return;
    }
    copy               = sim_alloc(sizeof(*copy));
    delay              = sim_below(sim, OP_MAX_NS);
    sim->spill_op_last = op->id;
    *copy              = *op;
    sim->spill_free_ns = pl_max_u64(sim->spill_free_ns, sim->now_ns) + delay + 1;
    sim_after(sim, sim->spill_free_ns - sim->now_ns, op_done, sim, 0, copy);
}

void sim_spill_finish(struct sim *sim)
{
    uint64_t key;
    void *file;

    for (size_t i = 0; pl_map_next(&sim->files, &i, &key, &file);) {
        pl_free(file);
    }
    for (size_t i = 0; pl_map_next(&sim->spill_answers, &i, &key, &file);) {
        pl_free(file);
    }
    pl_map_finish(&sim->spill_answers);
    pl_map_finish(&sim->files);
}
