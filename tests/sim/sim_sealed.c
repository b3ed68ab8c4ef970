/*
 * What is sealed stays sealed.
 *
 * Every change that a worker makes to its table is watched at link time (--wrap), and held against
 * what the head has told this device and what its timeline says. In whatever incarnation, and in
 * its recovery too, an entry that is sealed
 *
 *   - keeps its bytes, its place and its version, from the moment that it was sealed until it
 *     leaves that state
 *   - is taken only by a launch that the head has sent to write this buffer, and that is not done:
 *     what is done never comes again. (What makes a buffer may come again, an allocation too, when
 *     its worker died before it was over: then a later launch may have sealed it.)
 *   - is doomed or retired only when the head has given up this buffer, or a later one of its slot
 *
 * An entry is sealed only if the launch of its version is over; or was never published, and then
 * its bytes are those that were sealed before. When a device is at rest, everything is sealed whose
 * launch is over and did not fail.
 */
#include "tests/sim/sim.h"

#include <string.h>

#define GENERATION_MASK 0xffffffu

enum { TAKER_FRESH = 1, TAKER_WRITES = 2 };

static uint64_t hash_bytes(const uint8_t *bytes, uint64_t length)
{
    uint64_t hash = length;
    uint64_t i    = 0;

    for (; i + 8 <= length; i += 8) {
        uint64_t word;

        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (; i < length; i++) {
        hash = (hash ^ bytes[i]) * 0x9e3779b97f4a7c15u;
    }
    return hash;
}

/* ------------------------------------------------------------------- what the head said */

static uint64_t taker_key(uint32_t slot, uint64_t seq)
{
    return (uint64_t)slot << 40 | seq;
}

static void map_put(struct pl_map *map, uint64_t key, uint64_t value)
{
    PL_CHECK(pl_map_set(map, key, (void *)(uintptr_t)value) == PLASMON_OK);
}

static void leaver_note(struct sim_worker *worker, uint64_t buffer)
{
    uint32_t slot       = wire_buffer_slot(buffer);
    uintptr_t known     = (uintptr_t)pl_map_get(&worker->leavers, slot + 1);
    uint32_t generation = wire_buffer_generation(buffer);

    if (known == 0 ||
        ((generation - (uint32_t)(known - 1)) & GENERATION_MASK) <= GENERATION_MASK / 2) {
        map_put(&worker->leavers, slot + 1, (uint64_t)generation + 1);
    }
}

void sim_sealed_note(struct sim_worker *worker, const Plasmon__V1__WorkerCommand *command)
{
    for (size_t i = 0; i < command->n_launches; i++) {
        const Plasmon__V1__Launch *launch = command->launches[i];

        for (size_t k = 0; k < launch->n_operands; k++) {
            const Plasmon__V1__Operand *operand = launch->operands[k];
            uint64_t what =
                (operand->fresh ? TAKER_FRESH : 0) |
                (operand->mode != PLASMON__V1__MODE__MODE_IN ? TAKER_WRITES : 0);

            if (what != 0) {
                map_put(&worker->takers,
                        taker_key(wire_buffer_slot(operand->buffer), launch->seq),
                        what << 32 | wire_buffer_generation(operand->buffer));
            }
        }
    }
    for (size_t i = 0; i < command->n_free; i++) {
        leaver_note(worker, command->free[i]);
    }
    for (size_t i = 0; i < command->n_retire; i++) {
        leaver_note(worker, command->retire[i]);
    }
}

/* ----------------------------------------------------------------- what the worker does */

/* The worker whose table it is, if it is one of a simulation. */
static struct sim_worker *worker_of(const struct store_table *table)
{
    struct sim_worker *worker = sim_memory_watched();

    return worker != NULL && worker->table == table ? worker : NULL;
}

static struct sim_sealed *seen_at(struct sim_worker *worker, uint32_t slot)
{
    while (worker->sealed.count <= slot) {
        PL_CHECK(pl_vec_push(&worker->sealed) != NULL);
    }
    return pl_vec_at(&worker->sealed, slot);
}

static void complain(struct sim_worker *worker, uint32_t slot, const char *what)
{
    const struct store_entry *entry = &worker->table->entries[slot];

    sim_fail(worker->sim, "device %u: slot %u generation %u, sealed by launch %llu, %s",
             worker->host_device, slot, entry->generation, (unsigned long long)entry->seq,
             what);
}

static bool inside(const struct sim_worker *worker, const struct store_entry *entry)
{
    return entry->offset <= worker->arena_bytes &&
           entry->bytes <= worker->arena_bytes - entry->offset;
}

/* It is, or was until now, sealed: is it what it was? */
static void compare(struct sim_worker *worker, uint32_t slot)
{
    const struct store_entry *entry = &worker->table->entries[slot];
    const struct sim_sealed *seen   = seen_at(worker, slot);

    if (!seen->sealed) {
        complain(worker, slot, "was not sealed when anybody looked");
    } else if (entry->generation != seen->generation || entry->seq != seen->seq ||
               entry->offset != seen->offset || entry->bytes != seen->bytes) {
        complain(worker, slot, "is another buffer, version or place than it was");
    } else if (!seen->open &&
               hash_bytes(worker->arena + entry->offset, entry->bytes) != seen->hash) {
        complain(worker, slot, "has other bytes than it had");
    }
}

/* Has the head sent a launch that may do so, and is that one not over? */
static bool taker_known(const struct sim_worker *worker, uint32_t slot, uint64_t seq,
                        uint32_t generation)
{
    uint64_t known = (uintptr_t)pl_map_get(&worker->takers, taker_key(slot, seq));

    return (known >> 32 & TAKER_WRITES) != 0 && (uint32_t)known == generation &&
           (!store_timeline_done(worker->timeline, seq) ||
            store_timeline_failed(worker->timeline, seq));
}

static void taken(struct sim_worker *worker, uint32_t slot, uint64_t seq)
{
    const struct store_entry *entry = &worker->table->entries[slot];
    struct sim_sealed *seen         = seen_at(worker, slot);

    if (entry->state == STORE_SEALED) {
        compare(worker, slot);
        if (!taker_known(worker, slot, seq, entry->generation)) {
            complain(worker, slot, "is taken by a launch that has no right to it");
        }
        seen->sealed = false;
        seen->takers = 0;
    }
    seen->takers++;
}

static void leaves(struct sim_worker *worker, uint32_t slot)
{
    const struct store_entry *entry = &worker->table->entries[slot];
    struct sim_sealed *seen         = seen_at(worker, slot);
    uintptr_t known                 = (uintptr_t)pl_map_get(&worker->leavers, slot + 1);

    if (entry->state == STORE_SEALED && !worker->forgets) {
        compare(worker, slot);
        if (known == 0 || (((uint32_t)(known - 1) - entry->generation) & GENERATION_MASK) >
                              GENERATION_MASK / 2) {
            complain(worker, slot, "is given up, and the head did not give it up");
        }
    }
    *seen = (struct sim_sealed){.sealed = false};
}

/*
 * Is somebody to write there again, who was to before that launch? When its worker died the entry
 * named the last of them, which was not published: so it is sealed as it was, which is right for
 * nobody, and nobody reads it before they are over (worker/recover.c). Until then something else
 * may come again that lay there before.
 */
static bool comes_again(const struct sim_worker *worker, uint32_t slot, uint64_t before)
{
    uint32_t generation = worker->table->entries[slot].generation;
    uint64_t key;
    void *value;

    for (size_t i = 0; pl_map_next(&worker->takers, &i, &key, &value);) {
        uint64_t what = (uintptr_t)value;
        uint64_t seq  = key & ((UINT64_C(1) << 40) - 1);

        if (key >> 40 == slot && seq < before && (uint32_t)what == generation &&
            (what >> 32 & TAKER_WRITES) != 0 &&
            !store_timeline_done(worker->timeline, seq)) {
            return true;
        }
    }
    return false;
}

/*
 * A launch that was never published wrote nothing; if it was the only one that wanted to,
 * everything is as before.
 */
static void sealed(struct sim_worker *worker, uint32_t slot, uint32_t state_before)
{
    const struct store_entry *entry = &worker->table->entries[slot];
    struct sim_sealed *seen         = seen_at(worker, slot);
    bool published                  = entry->seq <= worker->timeline->enqueued;
    uint64_t hash;

    if (!inside(worker, entry)) {
        complain(worker, slot, "lies outside");
        return;
    }
    hash = hash_bytes(worker->arena + entry->offset, entry->bytes);
    if (published ? !store_timeline_done(worker->timeline, entry->seq)
                  : state_before != STORE_CONSUMED) {
        complain(worker, slot, "is sealed too early");
    } else if (!published && seen->takers == 1 && seen->generation == entry->generation &&
               seen->hash != hash) {
        complain(worker, slot, "was written by a launch that was never published");
    }
    *seen =
        (struct sim_sealed){.seals      = seen->seals + 1,
                            .generation = entry->generation,
                            .seq        = entry->seq,
                            .offset     = entry->offset,
                            .bytes      = entry->bytes,
                            .hash       = hash,
                            .sealed     = true,
                            .open = !published && comes_again(worker, slot, entry->seq)};
}

void sim_sealed_check(struct sim_worker *worker)
{
    for (uint32_t slot = 0; slot < worker->slots_used; slot++) {
        const struct store_entry *entry = &worker->table->entries[slot];

        if (entry->state == STORE_SEALED) {
            compare(worker, slot);
        } else if (seen_at(worker, slot)->sealed) {
            complain(worker, slot, "is not sealed any more");
        }
    }
}

/* Nothing is under way: whoever looks for a value that is there must find it sealed. */
void sim_sealed_check_idle(struct sim_worker *worker)
{
    sim_sealed_check(worker);
    for (uint32_t slot = 0; slot < worker->slots_used; slot++) {
        const struct store_entry *entry = &worker->table->entries[slot];

        if ((entry->state == STORE_WRITING || entry->state == STORE_CONSUMED) &&
            entry->seq <= worker->timeline->enqueued &&
            store_timeline_done(worker->timeline, entry->seq) &&
            !store_timeline_failed(worker->timeline, entry->seq)) {
            sim_fail(worker->sim,
                     "device %u: slot %u generation %u was written by launch %llu, and "
                     "nobody sealed it",
                     worker->host_device, slot, entry->generation,
                     (unsigned long long)entry->seq);
        }
    }
}

/* Unless another one had sealed it, whose part is right. */
void sim_sealed_check_failed(struct sim_worker *worker, uint64_t seq)
{
    for (size_t i = 0; i < worker->fresh.count; i++) {
        const struct sim_fresh *fresh   = pl_vec_at(&worker->fresh, i);
        const struct store_entry *entry = &worker->table->entries[fresh->slot];

        if (fresh->seq == seq && entry->generation == fresh->generation &&
            entry->seq == seq && entry->state == STORE_SEALED &&
            seen_at(worker, fresh->slot)->seals < 2) {
            sim_fail(worker->sim, "device %u: launch %llu failed, and slot %u is sealed",
                     worker->host_device, (unsigned long long)seq, fresh->slot);
        }
    }
}

/* ------------------------------------------------------------------- the table, watched */

/* Names that the linker's --wrap makes. */
void __real_store_table_alloc(struct store_table *table, uint32_t slot, uint32_t generation,
                              uint64_t offset, const struct pl_shape *frame, uint32_t flags,
                              uint64_t seq);
void __wrap_store_table_alloc(struct store_table *table, uint32_t slot, uint32_t generation,
                              uint64_t offset, const struct pl_shape *frame, uint32_t flags,
                              uint64_t seq);
void __real_store_table_seal(struct store_table *table, uint32_t slot);
void __wrap_store_table_seal(struct store_table *table, uint32_t slot);
void __real_store_table_consume(struct store_table *table, uint32_t slot, uint64_t seq);
void __wrap_store_table_consume(struct store_table *table, uint32_t slot, uint64_t seq);
void __real_store_table_doom(struct store_table *table, uint32_t slot);
void __wrap_store_table_doom(struct store_table *table, uint32_t slot);
void __real_store_table_retire(struct store_table *table, uint32_t slot);
void __wrap_store_table_retire(struct store_table *table, uint32_t slot);

void __wrap_store_table_alloc(struct store_table *table, uint32_t slot, uint32_t generation,
                              uint64_t offset, const struct pl_shape *frame, uint32_t flags,
                              uint64_t seq)
{
    struct sim_worker *worker = worker_of(table);

    __real_store_table_alloc(table, slot, generation, offset, frame, flags, seq);
    if (worker != NULL) {
        *seen_at(worker, slot) = (struct sim_sealed){.sealed = false};
    }
}

void __wrap_store_table_seal(struct store_table *table, uint32_t slot)
{
    struct sim_worker *worker = worker_of(table);
    uint32_t state            = table->entries[slot].state;

    __real_store_table_seal(table, slot);
    if (worker != NULL) {
        sealed(worker, slot, state);
    }
}

void __wrap_store_table_consume(struct store_table *table, uint32_t slot, uint64_t seq)
{
    struct sim_worker *worker = worker_of(table);

    if (worker != NULL) {
        taken(worker, slot, seq);
    }
    __real_store_table_consume(table, slot, seq);
}

void __wrap_store_table_doom(struct store_table *table, uint32_t slot)
{
    struct sim_worker *worker = worker_of(table);

    if (worker != NULL) {
        leaves(worker, slot);
    }
    __real_store_table_doom(table, slot);
}

void __wrap_store_table_retire(struct store_table *table, uint32_t slot)
{
    struct sim_worker *worker = worker_of(table);

    if (worker != NULL) {
        leaves(worker, slot);
    }
    __real_store_table_retire(table, slot);
}

/* --------------------------------------------------------------------------------- life */

void sim_sealed_init(struct sim_worker *worker)
{
    worker->sealed = PL_VEC_INIT(struct sim_sealed);
    pl_map_init(&worker->takers);
    pl_map_init(&worker->leavers);
}

void sim_sealed_finish(struct sim_worker *worker)
{
    pl_vec_finish(&worker->sealed);
    pl_map_finish(&worker->takers);
    pl_map_finish(&worker->leavers);
}
