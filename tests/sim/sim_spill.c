/*
 * The store's part of spilling (docs/memory.md): host memory that lives as long as the host, files,
 * and a thread that does one thing after the other, each taking its time. Workers that crash find
 * the memory as it was.
 *
 * What it was asked again it does not do again: it answers what it answered then. (A head that went
 * on from its journal may not know.)
 *
 * A disk may be full for a while, and what is read back is checked, here against the bytes that
 * were written. The memory may come piece by piece, and not all of it.
 *
 * THE STORE MAY BE KILLED at any of it, and before or after it: bytes are half moved or half read,
 * a file is written and nobody hears of it. The next one has memory and files
 * (store/spill_index.h), and not what was asked or answered: the head says it again. It does things
 * by the same rules as the real one, and moves with the same code.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "base/alloc.h"
#include "store/spill_index.h"

enum { OP_MAX_NS = 300000, DOWN_MAX_NS = 3000000, DEATH_PERMILLE = 200 };

struct sim_file {
    uint64_t number;
    uint64_t bytes;
    uint8_t data[];
};

struct sim_spill_answer {
    plasmon_status_t status;
    uint64_t host_buffer;
    uint64_t bytes; /* of the memory, that can be used */
    bool unheard;   /* the head stood still */
};

static void answer(struct sim *sim, uint64_t id, const struct sim_spill_answer *answer)
{
    sim_head_spill_done(sim, id, answer->status, answer->host_buffer, answer->bytes,
                        answer->status == PLASMON_OK ? "" : "there is no room");
}

/* What was answered while the head stood still lay there, in order. */
void sim_spill_look_again(struct sim *sim)
{
    if (!sim->spill_joined && sim->now_ns >= sim->spill_down_until_ns) {
        sim_head_spill_up(sim);
    }
    for (uint64_t id = 1; id <= sim->spill_op_last; id++) {
        const struct sim_spill_answer *one = pl_map_get(&sim->spill_answers, id);

        if (one != NULL && one->unheard && sim->spill_joined) {
            answer(sim, id, one);
        }
    }
}

static plasmon_status_t file_write(struct sim *sim, const struct head_spill_op *op,
                                   const uint8_t *from)
{
    struct sim_file *file = pl_map_get(&sim->files, op->file);

    if (file != NULL) { /* by a store that could not say so any more */
        if (memcmp(file->data, from, op->bytes) != 0) {
            sim_fail(sim, "spill: file %llu is there, with other bytes",
                     (unsigned long long)op->file);
        }
        return PLASMON_OK;
    }
    if (sim_chance(sim, sim->config.spill_full_permille)) {
        return PLASMON_ELIMIT;
    }
    file         = sim_alloc(sizeof(*file) + op->bytes);
    file->number = op->file;
    file->bytes  = op->bytes;
    memcpy(file->data, from, op->bytes);
    PL_CHECK(pl_map_set(&sim->files, op->file, file) == PLASMON_OK);
    return PLASMON_OK;
}

/* part: of a thousand, if the store dies at it. */
static plasmon_status_t file_read(struct sim *sim, const struct head_spill_op *op,
                                  uint8_t *to, uint64_t part)
{
    const struct sim_file *file = pl_map_get(&sim->files, op->file);

    if (file == NULL || file->bytes != op->bytes) {
        sim_fail(sim,
                 "spill: %llu bytes of file %llu are to be read, which has not as many",
                 (unsigned long long)op->bytes, (unsigned long long)op->file);
        return PLASMON_EIO;
    }
    memcpy(to, file->data, file->bytes * part / 1000);
    return PLASMON_OK;
}

/* How much of it there is for a head that knows of so much. PLASMON_ENOMEM: no more than that. */
static plasmon_status_t slab_get(struct sim *sim, const struct head_spill_op *op,
                                 uint64_t *out_bytes)
{
    if (sim->spill_slab == NULL) {
        sim->spill_slab       = sim_host_create(sim, NULL, op->bytes);
        sim->spill_slab->slab = true;
    }
    *out_bytes = sim->config.slab_piece == 0
                     ? op->bytes
                     : pl_min_u64(op->bytes, op->offset + sim->config.slab_piece);
    return sim->config.slab_short && op->offset >= 2 * sim->config.slab_piece
               ? PLASMON_ENOMEM
               : PLASMON_OK;
}

/* As far as it comes: 1000 is all of it. */
static plasmon_status_t op_perform(struct sim *sim, const struct head_spill_op *op,
                                   struct sim_host *slab, uint64_t part,
                                   uint64_t *out_bytes)
{
    switch (op->kind) {
    case HEAD_SPILL_SLAB:
        return slab_get(sim, op, out_bytes);
    case HEAD_SPILL_WRITE:
        return part < 1000 ? PLASMON_OK : file_write(sim, op, slab->data + op->offset);
    case HEAD_SPILL_READ:
        return file_read(sim, op, slab->data + op->offset, part);
    case HEAD_SPILL_FORGET:
        pl_free(pl_map_remove(&sim->files, op->file));
        return PLASMON_OK;
    case HEAD_SPILL_MOVE:
        (void)store_spill_move(slab->data, op->id, op->offset, op->file, op->bytes,
                               &sim->spill_move, part < 1000 ? part / 100 : UINT64_MAX);
        sim->slab_moves++;
        return PLASMON_OK;
    }
    return PLASMON_ENOTSUP;
}

static void answers_drop(struct sim *sim)
{
    uint64_t key;
    void *answer;

    for (size_t i = 0; pl_map_next(&sim->spill_answers, &i, &key, &answer);) {
        pl_free(answer);
    }
    pl_map_finish(&sim->spill_answers);
    pl_map_init(&sim->spill_answers);
}

static void store_is_there(void *user, uint64_t arg, void *data)
{
    struct sim *sim = user;

    (void)data;
    if (arg == sim->spill_life && !sim_head_down(sim)) { /* else the head finds it there */
        sim_head_spill_up(sim);
        sim_head_flush_soon(sim);
    }
}

static void store_killed(struct sim *sim)
{
    uint64_t down_ns = 1 + sim_below(sim, DOWN_MAX_NS);

    sim_trace(sim, "the store is killed while it spills");
    answers_drop(sim);
    sim->spill_deaths++;
    sim->spill_life++;
    sim->spill_goes_on       = true;
    sim->spill_joined        = false;
    sim->spill_op_last       = 0;
    sim->spill_free_ns       = 0;
    sim->spill_down_until_ns = sim->now_ns + down_ns;
    sim_after(sim, down_ns, store_is_there, sim, sim->spill_life, NULL);
}

static void op_done(void *user, uint64_t arg, void *data)
{
    struct sim *sim                = user;
    const struct head_spill_op *op = data;
    struct sim_host *slab          = (struct sim_host *)(uintptr_t)op->host_buffer;
    struct sim_spill_answer *done;
    uint64_t bytes = 0;

    if (arg != sim->spill_life) {
        return;
    }
    if (op->kind != HEAD_SPILL_SLAB && op->kind != HEAD_SPILL_FORGET &&
        (slab == NULL || op->offset + op->bytes > slab->bytes)) {
        sim_fail(sim, "spill: %llu bytes at %llu of the slab",
                 (unsigned long long)op->bytes, (unsigned long long)op->offset);
        return;
    }
    if (sim->spill_deaths < sim->config.spill_deaths_max &&
        sim_chance(sim, DEATH_PERMILLE)) {
        (void)op_perform(sim, op, slab, sim_chance(sim, 500) ? 1000 : sim_below(sim, 1000),
                         &bytes);
        store_killed(sim);
        return;
    }
    done         = sim_alloc(sizeof(*done));
    done->status = op_perform(sim, op, slab, 1000, &bytes);
    done->bytes  = bytes;
    sim_trace(sim, "the store has done spill op %llu, kind %u, file %llu: %d",
              (unsigned long long)op->id, op->kind, (unsigned long long)op->file,
              (int)done->status);
    done->host_buffer = (uintptr_t)sim->spill_slab;
    done->unheard     = sim->head_process.stopped;
    PL_CHECK(pl_map_set(&sim->spill_answers, op->id, done) == PLASMON_OK);
    answer(sim, op->id, done);
}

void sim_spill_op(struct sim *sim, const struct head_spill_op *op)
{
    const struct sim_spill_answer *known = pl_map_get(&sim->spill_answers, op->id);
    struct head_spill_op *copy;
    uint64_t delay;

    if (!sim->spill_joined) {
        return; /* nobody is there, or has said so to this head; then it is asked again */
    }
    if (known != NULL) {
        answer(sim, op->id, known);
        return;
    }
    if (op->id <= sim->spill_op_last) {
        return; /* it is about to be done */
    }
    if (op->id != sim->spill_op_last + 1 && !sim->spill_goes_on) {
        sim_fail(sim, "spill: op %llu comes after %llu", (unsigned long long)op->id,
                 (unsigned long long)sim->spill_op_last);
        return;
    }
    copy               = sim_alloc(sizeof(*copy));
    delay              = sim_below(sim, OP_MAX_NS);
    sim->spill_op_last = op->id;
    sim->spill_goes_on = false;
    *copy              = *op;
    sim->spill_free_ns = pl_max_u64(sim->spill_free_ns, sim->now_ns) + delay + 1;
    sim_after(sim, sim->spill_free_ns - sim->now_ns, op_done, sim, sim->spill_life, copy);
}

void sim_spill_finish(struct sim *sim)
{
    uint64_t key;
    void *file;

    for (size_t i = 0; pl_map_next(&sim->files, &i, &key, &file);) {
        pl_free(file);
    }
    answers_drop(sim);
    pl_map_finish(&sim->spill_answers);
    pl_map_finish(&sim->files);
}
