/*
 * Model checking of the object table: the code of store/table.c itself, under every interleaving.
 *
 * table.c is compiled into this file with shared_int.h's operations replaced (STORE_MODEL). Writer
 * and readers are coroutines; every operation on shared memory is a place where any other may go
 * on, where a store may still sit in its process' store buffer (as on x86: a process sees its own
 * stores at once, others later, in order), and where a process may be killed. The explorer visits
 * every reachable state once.
 *
 *   writer   alloc gen 1, write bytes, seal | consume, (wait for pins), write, seal |
 *            doom, (wait), free | alloc gen 2, write, seal
 *   retirer  the same without overwriting in place: retire, and if nobody pins it another buffer's
 *            bytes are written there; then doom, ..
 *   reader   pin gen 1 (and gen 2), read the bytes twice, unpin
 *   crash    of a reader: its page is cleared, as the store does. Of the writer, once: another one
 *            sweeps, frees what the first had in the slot, and goes on with gen 2.
 *
 * WHAT MUST HOLD
 *
 *   (1) What a reader with a pin reads belongs to the version that it pinned, complete, and does
 *       not change while it holds the pin.
 *   (2) When everybody has ended, or crashed and been replaced, the last version is sealed and no
 *       pin stays set; nobody waits for ever.
 *
 * A state is the shared memory, the store buffers and, for each coroutine, the history of what it
 * has read: it is deterministic, so that says where it is. Histories and memory are hashed to 64
 * bits twice. Saving and restoring copies the coroutines' stacks, which lie at fixed addresses; so
 * this file is compiled without sanitizers.
 */
#define STORE_MODEL
#define STORE_TABLE_SLOTS 1u
#define STORE_PIN_MAX     2u
#define STORE_CHUNK_MAX   1u
#include "store/table.c"

#include <stdlib.h>
#include <ucontext.h>

#include "base/alloc.h"
#include "tests/harness/test.h"

#define READERS_MAX 2
#define ACTORS_MAX  (1 + READERS_MAX)
#define STACK_BYTES (24u << 10)
/* stores that may wait; more would only make the same delays longer */
#define BUFFER_DEPTH 2u
#define VALUES       2u /* words of the object's bytes */
#define DEPTH_MAX    2000u
#define WRITER       0

struct pending {
    uint64_t *word;
    uint64_t value;
    unsigned bytes;
};

struct actor {
    ucontext_t context;
    bool done;
    bool crashed;
    bool waiting; /* for `wait_word` to change: no use in running it before */
    const void *wait_word;
    uint64_t wait_value;
    /* hash of everything it loaded so far, and how many operations it did */
    uint64_t history[2];
    struct pending pending[BUFFER_DEPTH];
    unsigned pending_count;
    _Alignas(64) char stack[STACK_BYTES];
};

/* Everything that a step can change: saved and restored as one. */
static struct {
    struct store_table table;
    struct store_pins pins[READERS_MAX];
    /* the bytes of the buffer, one for each slot; the version they are of */
    uint64_t value[VALUES];
    uint64_t violated;
    uint64_t restarted; /* the writer crashed and another took over */
    struct actor actors[ACTORS_MAX];
} world;

static struct {
    unsigned readers;
    bool fine; /* every field is a step; else only what decides */
    bool crashes;
    bool second_generation;
    bool retires;
    bool scan_first; /* the pins before the entry: wrong */
    unsigned running;
    ucontext_t explorer;
    uint64_t *visited; /* open addressing, pairs */
    size_t visited_capacity;
    size_t visited_count;
    uint64_t edges;
    const char *violation;
} model;

/* --------------------------------------------------------------------------- operations */

static void mix(uint64_t hash[2], uint64_t value)
{
    hash[0] = (hash[0] ^ value) * 0x9e3779b97f4a7c15ull;
    hash[0] ^= hash[0] >> 29;
    hash[1] = (hash[1] + value) * 0xbf58476d1ce4e5b9ull;
    hash[1] ^= hash[1] >> 31;
}

static void violate(const char *what)
{
    world.violated = 1;
    if (model.violation == NULL) {
        model.violation = what;
    }
}

static struct actor *self(void)
{
    return &world.actors[model.running];
}

/* Let the explorer choose who goes on. */
static void step(void)
{
    (void)swapcontext(&self()->context, &model.explorer);
}

static uint64_t read_word(const void *word, unsigned bytes)
{
    uint64_t value = 0;

    memcpy(&value, word, bytes);
    return value;
}

static void drain_one(struct actor *actor)
{
    struct pending oldest = actor->pending[0];

    memcpy(oldest.word, &oldest.value, oldest.bytes);
    actor->pending_count--;
    memmove(&actor->pending[0], &actor->pending[1],
            actor->pending_count * sizeof(actor->pending[0]));
    memset(&actor->pending[actor->pending_count], 0, sizeof(actor->pending[0]));
}

static void drain(struct actor *actor)
{
    while (actor->pending_count > 0) {
        drain_one(actor);
    }
}

/* What others race with; other fields change only where these forbid to look. */
static bool word_decides(const void *word)
{
    const char *at    = word;
    const char *first = (const char *)&world.table.entries[0];

    return model.fine || at < first || at >= first + sizeof(struct store_entry) ||
           at == (const char *)&world.table.entries[0].state || at == first ||
           at == (const char *)&world.table.entries[0].seq;
}

uint64_t store_model_load(const void *word, unsigned bytes)
{
    struct actor *actor;
    uint64_t value;

    if (word_decides(word)) {
        step();
    }
    actor = self();
    value = read_word(word, bytes);
    for (unsigned i = 0; i < actor->pending_count; i++) { /* its own stores, newest last */
        if (actor->pending[i].word == word) {
            value = actor->pending[i].value;
        }
    }
    mix(actor->history, value);
    return value;
}

void store_model_store(void *word, unsigned bytes, uint64_t value, bool drained)
{
    struct actor *actor;

    if (word_decides(word)) {
        step();
    }
    actor = self();
    mix(actor->history, value);
    if (drained) {
        drain(actor);
        memcpy(word, &value, bytes);
        return;
    }
    if (actor->pending_count == BUFFER_DEPTH) {
        drain_one(actor);
    }
    actor->pending[actor->pending_count++] = (struct pending){word, value, bytes};
}

bool store_model_swap(void *word, uint64_t expected, uint64_t value)
{
    struct actor *actor;
    bool same;

    step();
    actor = self();
    drain(actor);
    same = read_word(word, 8) == expected;
    if (same) {
        memcpy(word, &value, 8);
    }
    mix(actor->history, same);
    return same;
}

/* ----------------------------------------------------------------------------- programs */

static const struct pl_shape frame = {.dtype = PL_U64, .ndim = 1, .dim = {VALUES}};

static struct store_pins *pages[READERS_MAX] = {&world.pins[0], &world.pins[1]};

/* The launch that writes the bytes of a version; its number is what the bytes are. */
static void write_bytes(uint64_t version)
{
    for (unsigned i = 0; i < VALUES; i++) {
        store_model_store(&world.value[i], 8, version, false);
    }
}

/*
 * Wait until no page holds the slot. A writer that tries again in the same state would be a loop
 * without end for the explorer, so it sleeps until a pin has changed.
 */
static void wait_unpinned(void)
{
    while (store_table_pinned(&world.table, 0, pages, model.readers)) {
        struct actor *actor = self();

        for (unsigned i = 0; i < model.readers; i++) {
            if (world.pins[i].pin[0] != 0) {
                actor->wait_word  = &world.pins[i].pin[0];
                actor->wait_value = world.pins[i].pin[0];
                actor->waiting    = true;
                break;
            }
        }
        mix(actor->history, 1);
        if (actor->waiting) {
            step();
        }
    }
}

static void overwrite(void)
{
    store_table_consume(&world.table, 0, 12);
    wait_unpinned();
    write_bytes(12);
    store_table_seal(&world.table, 0);
}

/* As worker/reuse.c does: what nobody holds is somebody else's memory at once, before the entry goes. */
static void retire(void)
{
    bool held =
        model.scan_first && store_table_pinned(&world.table, 0, pages, model.readers);

    store_table_retire(&world.table, 0);
    if (!model.scan_first) {
        held = store_table_pinned(&world.table, 0, pages, model.readers);
    }
    if (!held) {
        write_bytes(91);
    }
}

static void writer_program(void)
{
    store_table_alloc(&world.table, 0, 1, 0, &frame, 0, 11);
    write_bytes(11);
    store_table_seal(&world.table, 0);

    if (model.retires) {
        retire();
    } else {
        overwrite();
    }
    store_table_doom(&world.table, 0);
    wait_unpinned();
    store_table_free(&world.table, 0);

    store_table_alloc(&world.table, 0, 2, 0, &frame, 0, 21);
    write_bytes(21);
    store_table_seal(&world.table, 0);
}

/*
 * After a crash: the store sweeps; then the head has what is left freed, whatever state it is in,
 * and the slot used again.
 */
static void recovery_program(void)
{
    (void)store_table_sweep(&world.table, pages, model.readers);
    if (shared_load32(&world.table.entries[0].state) != STORE_FREE) {
        store_table_doom(&world.table, 0);
        wait_unpinned();
        store_table_free(&world.table, 0);
    }
    store_table_alloc(&world.table, 0, 2, 0, &frame, 0, 21);
    write_bytes(21);
    store_table_seal(&world.table, 0);
}

static void reader_program(unsigned number, uint32_t generation)
{
    struct store_pins *mine = &world.pins[number];
    struct store_entry entry;
    uint32_t pin;

    if (store_table_pin(&world.table, 0, generation, mine, &entry, &pin) != PLASMON_OK) {
        return;
    }
    for (unsigned again = 0; again < 2; again++) {
        for (unsigned i = 0; i < VALUES; i++) {
            if (store_model_load(&world.value[i], 8) != entry.seq) {
                violate("a reader with a pin read bytes of another version");
            }
        }
    }
    if (entry.seq / 10 != generation) {
        violate("a reader was given another generation than it asked for");
    }
    store_table_unpin(mine, pin);
}

static void actor_main(unsigned number)
{
    if (number == WRITER && world.restarted) {
        recovery_program();
    } else if (number == WRITER) {
        writer_program();
    } else {
        reader_program(number - 1, 1);
        if (model.second_generation) {
            reader_program(number - 1, 2);
        }
    }
    self()->done = true;
    (void)swapcontext(&self()->context, &model.explorer);
    abort(); /* a finished actor is never resumed */
}

/* ------------------------------------------------------------------------------ crashes */

static void actor_create(unsigned number)
{
    struct actor *actor = &world.actors[number];

    PL_CHECK(getcontext(&actor->context) == 0);
    actor->context.uc_stack.ss_sp   = actor->stack;
    actor->context.uc_stack.ss_size = STACK_BYTES;
    actor->context.uc_link          = NULL;
    makecontext(&actor->context, (void (*)(void))(uintptr_t)actor_main, 1, number);
}

/* The store's part is one step, because it does its work before it answers anybody. */
static void crash(struct actor *actor, unsigned number)
{
    drain(actor); /* the processor completes what was stored */
    if (number == WRITER) {
        memset(actor, 0, offsetof(struct actor, stack));
        world.restarted = 1;
        actor_create(number);
    } else {
        actor->crashed = true;
        actor->done    = true;
        memset(&world.pins[number - 1], 0, sizeof(world.pins[0]));
    }
}

static void check_end(void)
{
    struct store_entry *entry = &world.table.entries[0];

    for (unsigned i = 0; i < model.readers; i++) {
        if (world.pins[i].pin[0] != 0 || world.pins[i].pin[1] != 0) {
            violate("a pin is left");
        }
    }
    if (entry->state != STORE_SEALED || entry->generation != 2 ||
        entry->checksum != store_entry_checksum(entry)) {
        violate("the writer's last version is not there");
    }
}

/* ----------------------------------------------------------------------------- explorer */

/* Has this state been seen? Adds it. */
static bool visit(void)
{
    uint64_t hash[2] = {1, 2};
    size_t at;

    for (size_t i = 0; i < sizeof(world.table) / 8; i++) {
        mix(hash, ((const uint64_t *)(const void *)&world.table)[i]);
    }
    for (size_t i = 0; i < sizeof(world.pins) / 8; i++) {
        mix(hash, ((const uint64_t *)(const void *)world.pins)[i]);
    }
    for (unsigned i = 0; i < VALUES; i++) {
        mix(hash, world.value[i]);
    }
    for (unsigned i = 0; i <= model.readers; i++) {
        const struct actor *actor = &world.actors[i];

        /* Of one that ended nothing matters any more. */
        mix(hash, actor->done ? 7u + actor->crashed : actor->history[0]);
        mix(hash, actor->done ? 0 : actor->history[1]);
        mix(hash, actor->waiting);
        for (unsigned k = 0; k < actor->pending_count; k++) {
            mix(hash, (uint64_t)(uintptr_t)actor->pending[k].word);
            mix(hash, actor->pending[k].value);
        }
        mix(hash, actor->pending_count);
    }
    mix(hash, world.restarted);
    hash[0] |= 1;

    at = (size_t)(hash[0] ^ hash[1]) & (model.visited_capacity - 1);
    while (model.visited[2 * at] != 0) {
        if (model.visited[2 * at] == hash[0] && model.visited[2 * at + 1] == hash[1]) {
            return true;
        }
        at = (at + 1) & (model.visited_capacity - 1);
    }
    model.visited[2 * at]     = hash[0];
    model.visited[2 * at + 1] = hash[1];
    PL_CHECK(++model.visited_count < model.visited_capacity / 2);
    return false;
}

/* A world on the side. Only the used parts of the stacks are copied. */
struct saved {
    size_t bytes;
    char content[];
};

static size_t stack_used(const struct actor *actor)
{
    uintptr_t top     = (uintptr_t)actor->stack + STACK_BYTES;
    uintptr_t pointer = (uintptr_t)actor->context.uc_mcontext.gregs[REG_RSP];

    PL_CHECK(pointer > (uintptr_t)actor->stack + 1024 && pointer <= top);
    return actor->done ? 0 : (size_t)(top - (pointer - 128)); /* with the red zone */
}

#define ACTOR_HEAD offsetof(struct actor, stack)
#define WORLD_HEAD offsetof(__typeof__(world), actors)

static struct saved *world_save(void)
{
    size_t bytes = WORLD_HEAD;
    struct saved *saved;
    char *at;

    for (unsigned i = 0; i <= model.readers; i++) {
        bytes += ACTOR_HEAD + stack_used(&world.actors[i]);
    }
    saved = malloc(sizeof(*saved) + bytes);
    PL_CHECK(saved != NULL);
    saved->bytes = bytes;
    at           = saved->content;
    memcpy(at, &world, WORLD_HEAD);
    at += WORLD_HEAD;
    for (unsigned i = 0; i <= model.readers; i++) {
        const struct actor *actor = &world.actors[i];
        size_t used               = stack_used(actor);

        memcpy(at, actor, ACTOR_HEAD);
        memcpy(at + ACTOR_HEAD, actor->stack + STACK_BYTES - used, used);
        at += ACTOR_HEAD + used;
    }
    return saved;
}

static void world_restore(const struct saved *saved)
{
    const char *at = saved->content;

    memcpy(&world, at, WORLD_HEAD);
    at += WORLD_HEAD;
    for (unsigned i = 0; i <= model.readers; i++) {
        struct actor *actor = &world.actors[i];
        size_t used;

        memcpy(actor, at, ACTOR_HEAD);
        used = stack_used(actor);
        memcpy(actor->stack + STACK_BYTES - used, at + ACTOR_HEAD, used);
        at += ACTOR_HEAD + used;
    }
}

enum move_kind { MOVE_RUN, MOVE_DRAIN, MOVE_CRASH, MOVE_KINDS };

static bool move_possible(unsigned number, enum move_kind kind)
{
    const struct actor *actor = &world.actors[number];

    switch (kind) {
    case MOVE_RUN:
        return !actor->done &&
               !(actor->waiting && read_word(actor->wait_word, 8) == actor->wait_value);
    case MOVE_DRAIN:
        return actor->pending_count > 0;
    default:
        return model.crashes && !actor->done && !(number == WRITER && world.restarted);
    }
}

static void move_make(unsigned number, enum move_kind kind)
{
    struct actor *actor = &world.actors[number];

    model.edges++;
    if (kind == MOVE_DRAIN) {
        drain_one(actor);
    } else if (kind == MOVE_CRASH) {
        crash(actor, number);
    } else {
        actor->waiting = false;
        mix(actor->history, 3);
        model.running = number;
        (void)swapcontext(&model.explorer, &actor->context);
    }
}

static void explore(unsigned depth)
{
    struct saved *saved;
    bool any = false;

    if (world.violated || model.violation != NULL || visit()) {
        return;
    }
    PL_CHECK(depth < DEPTH_MAX);
    saved = world_save();
    for (unsigned number = 0; number <= model.readers; number++) {
        for (enum move_kind kind = MOVE_RUN; kind < MOVE_KINDS; kind++) {
            if (!move_possible(number, kind)) {
                continue;
            }
            any = true;
            move_make(number, kind);
            explore(depth + 1);
            world_restore(saved);
            if (model.violation != NULL) {
                goto out;
            }
        }
    }
    if (!any) {
        bool all = true;

        for (unsigned i = 0; i <= model.readers; i++) {
            all = all && world.actors[i].done;
        }
        if (!all) {
            violate("somebody waits for ever");
        }
        check_end();
    }
out:
    free(saved);
}

/* Explores everything; NULL, or what was violated. */
static const char *model_explore(unsigned readers, bool fine, bool crashes,
                                 bool second_generation)
{
    memset(&world, 0, sizeof(world));
    model.readers           = readers;
    model.fine              = fine;
    model.crashes           = crashes;
    model.second_generation = second_generation;
    model.visited_capacity  = 1u << 23;
    model.visited           = calloc(2 * model.visited_capacity, sizeof(uint64_t));
    PL_CHECK(model.visited != NULL);
    for (unsigned i = 0; i <= readers; i++) {
        actor_create(i);
    }

    explore(0);

    printf("# %u readers%s%s: %zu states, %llu steps%s%s\n", readers,
           fine ? ", every field a step" : "", crashes ? ", crashes" : "",
           model.visited_count, (unsigned long long)model.edges,
           model.violation != NULL ? ": " : "",
           model.violation != NULL ? model.violation : "");
    free(model.visited);
    return model.violation;
}

static const char *model_run(unsigned readers, bool fine, bool crashes,
                             bool second_generation)
{
    memset(&model, 0, sizeof(model));
    return model_explore(readers, fine, crashes, second_generation);
}

static const char *model_run_retiring(unsigned readers, bool crashes, bool scan_first)
{
    memset(&model, 0, sizeof(model));
    model.retires    = true;
    model.scan_first = scan_first;
    return model_explore(readers, false, crashes, readers == 1);
}

/* ------------------------------------------------------------------------------- claims */

TEST(one_reader_is_safe_with_a_crash_of_either_side_after_every_store)
{
    test_set_timeout(300);
    ASSERT_NULL(model_run(1, true, true, false));
}

TEST(a_reader_of_both_generations_is_safe_with_crashes)
{
    test_set_timeout(300);
    ASSERT_NULL(model_run(1, false, true, true));
}

TEST(two_readers_are_safe_with_crashes)
{
    test_set_timeout(300);
    ASSERT_NULL(model_run(2, false, true, false));
}

TEST(what_is_retired_is_overwritten_under_no_reader)
{
    test_set_timeout(300);
    ASSERT_NULL(model_run_retiring(1, true, false));
    ASSERT_NULL(model_run_retiring(2, false, false));
}

TEST(the_model_catches_a_scan_before_the_retirement)
{
    ASSERT_NOT_NULL(model_run_retiring(1, false, true));
}

TEST(the_model_catches_a_pin_after_the_check)
{
    pl_bug_arm("store.pin_after_check");
    ASSERT_NOT_NULL(model_run(1, false, false, false));
}

TEST(the_model_catches_a_scan_before_the_doom)
{
    pl_bug_arm("store.scan_before_doom");
    ASSERT_NOT_NULL(model_run(1, false, false, false));
}

TEST(the_model_catches_a_pin_that_waits_in_the_store_buffer)
{
    pl_bug_arm("store.pin_unordered");
    ASSERT_NOT_NULL(model_run(1, false, false, false));
}

TEST_MAIN()
