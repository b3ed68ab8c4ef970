/* Programs with the real libplasmon: see clients_play.h. */
#include "tests/sim/clients_play.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/harness/test.h"
#include "tests/sim/sim_rpc.h"

enum {
    ELEMENTS    = 12,
    OBJECTS_MAX = 10,
    NAMES_MAX   = 6,
    VALUE_MAX   = 1 << 26, /* no sum leaves the type */
    OPENS_MAX   = 200,
    PASS_MAX_NS = 3000000,
};
#define SECOND_NS     UINT64_C(1000000000)
#define AFTER_LEASE_S 15u /* every session that nobody has is over */

struct object {
    struct plasmon_ref *ref; /* NULL: none */
    int32_t value[ELEMENTS];
};
/* What is, or perhaps is, published. The program may have died before it heard. */
struct name {
    bool maybe_none;
    bool maybe_value;
    bool maybe_other; /* and what `other` holds, too */
    bool orphan;      /* its publisher is dead */
    uint32_t publisher;
    int32_t value[ELEMENTS];
    int32_t other[ELEMENTS];
};
struct program {
    struct sim_client *place;
    struct plasmon_client *client; /* NULL: none is there */
    struct object objects[OBJECTS_MAX];
};
struct play {
    struct sim *sim;
    struct clients_coverage *coverage;
    struct program programs[SIM_CLIENTS_MAX];
    struct name names[NAMES_MAX];
    uint32_t kills_left;
    uint64_t random; /* of the programs: not the cluster's */
};

static const struct plasmon_shape shape = {PLASMON_I32, 1, {ELEMENTS}};
static jmp_buf run_failed; /* one run at a time */

static void fail_out(struct sim *sim)
{
    (void)sim;
    longjmp(run_failed, 1);
}

static uint64_t draw(struct play *play, uint64_t bound)
{
    return test_random(&play->random) % bound;
}

/* -------------------------------------------------------------------- life of a program */

/* Its objects are gone with it; what it published stays. */
static void program_forget(struct play *play, struct program *program)
{
    uint32_t me = (uint32_t)(program - play->programs);

    memset(program->objects, 0, sizeof(program->objects));
    program->client = NULL;
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        play->names[i].orphan |= play->names[i].publisher == me;
    }
}

static void program_open(struct play *play, struct program *program)
{
    for (uint32_t i = 0; i < OPENS_MAX; i++) {
        plasmon_status_t status = sim_rpc_open(program->place, &program->client);

        if (status == PLASMON_OK) {
            return;
        }
        if (status != PLASMON_ECONNECT && status != PLASMON_ETIMEDOUT) {
            sim_fail(play->sim, "a client cannot begin: %s: %s",
                     plasmon_status_name(status), plasmon_error(NULL));
            fail_out(play->sim);
        }
        sim_rpc_pass(100000000);
    }
    sim_fail(play->sim, "a client cannot begin, however often it tries: %s",
             plasmon_error(NULL));
    fail_out(play->sim);
}

static void program_kill(struct play *play, struct program *program)
{
    sim_trace(play->sim, "client %u is killed", program->place->index);
    sim_rpc_kill(program->place, program->client);
    program_forget(play, program);
    play->coverage->kills++;
}

/*
 * Is the call over as it should be? false: the session is gone, for the one reason that there may
 * be, and so is the program.
 */
static bool good(struct play *play, struct program *program, plasmon_status_t status,
                 const char *what)
{
    struct sim *sim = play->sim;

    if (status == PLASMON_OK) {
        return true;
    }
    if (status == PLASMON_EHEADLOST && sim->config.cut_lease_permille != 0) {
        play->coverage->lost_sessions++;
        plasmon_finish(program->client);
        program_forget(play, program);
        return false;
    }
    sim_fail(sim, "client %u: %s: %s: %s", program->place->index, what,
             plasmon_status_name(status), plasmon_error(program->client));
    fail_out(sim);
    return false;
}

/* ------------------------------------------------------------------ what a program does */

static struct object *any_object(struct play *play, struct program *program)
{
    uint64_t from = draw(play, OBJECTS_MAX);

    for (uint64_t i = 0; i < OBJECTS_MAX; i++) {
        struct object *object = &program->objects[(from + i) % OBJECTS_MAX];

        if (object->ref != NULL) {
            return object;
        }
    }
    return NULL;
}

static struct object *free_object(struct program *program)
{
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        if (program->objects[i].ref == NULL) {
            return &program->objects[i];
        }
    }
    return NULL;
}

static bool same(const int32_t *a, const int32_t *b)
{
    return memcmp(a, b, sizeof(int32_t[ELEMENTS])) == 0;
}

static void do_put(struct play *play, struct program *program)
{
    struct object *object = free_object(program);

    if (object == NULL) {
        return;
    }
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        object->value[i] = (int32_t)draw(play, 1000);
    }
    (void)good(play, program,
               plasmon_put(program->client, object->value, &shape, NULL, &object->ref),
               "put");
}

static bool small(const struct object *object)
{
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        if (object->value[i] > VALUE_MAX) {
            return false;
        }
    }
    return true;
}

/* y = y + x, in place or not as the head sees fit. */
static void do_add(struct play *play, struct program *program)
{
    struct object *y          = any_object(play, program);
    struct object *x          = any_object(play, program);
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_arg args[] = {{.mode = PLASMON_INOUT}, {.mode = PLASMON_IN}};

    if (y == NULL || x == y || !small(y) || !small(x)) {
        return;
    }
    args[0].ref    = y->ref;
    args[1].ref    = x->ref;
    call.function  = "add_into";
    call.args      = args;
    call.arg_count = 2;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        y->value[i] += x->value[i];
    }
    (void)good(play, program, plasmon_submit(program->client, &call, NULL, NULL), "submit");
}

static void do_maximum(struct play *play, struct program *program)
{
    struct object *a          = any_object(play, program);
    struct object *b          = any_object(play, program);
    struct object *y          = free_object(program);
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_arg args[] = {
        {.mode = PLASMON_OUT}, {.mode = PLASMON_IN}, {.mode = PLASMON_IN}};

    if (a == NULL || y == NULL) {
        return;
    }
    args[1].ref    = a->ref;
    args[2].ref    = b->ref;
    call.function  = "maximum";
    call.args      = args;
    call.arg_count = 3;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        y->value[i] = a->value[i] > b->value[i] ? a->value[i] : b->value[i];
    }
    (void)good(play, program, plasmon_submit(program->client, &call, &y->ref, NULL),
               "submit");
}

static void do_snapshot(struct play *play, struct program *program)
{
    struct object *from = any_object(play, program);
    struct object *to   = free_object(program);

    if (from == NULL || to == NULL) {
        return;
    }
    memcpy(to->value, from->value, sizeof(to->value));
    (void)good(play, program, plasmon_snapshot(program->client, from->ref, &to->ref),
               "snapshot");
}

static void do_release(struct play *play, struct program *program)
{
    struct object *object = any_object(play, program);
    struct plasmon_ref *ref;

    if (object == NULL) {
        return;
    }
    ref         = object->ref;
    object->ref = NULL;
    (void)good(play, program, plasmon_release(program->client, ref), "release");
}

/* With a time-out now and then: a call that gives up must leave everything as it was. */
static void do_get(struct play *play, struct program *program)
{
    static const uint32_t timeouts[] = {0, 1, 40, PLASMON_FOREVER, PLASMON_FOREVER};
    struct object *object            = any_object(play, program);
    uint32_t timeout_ms              = timeouts[draw(play, PL_COUNT(timeouts))];
    int32_t got[ELEMENTS];
    plasmon_status_t status;

    if (object == NULL) {
        return;
    }
    status = plasmon_get(program->client, object->ref, got, sizeof(got), timeout_ms);
    if ((status == PLASMON_ETIMEDOUT && timeout_ms != PLASMON_FOREVER) ||
        !good(play, program, status, "get")) {
        return;
    }
    play->coverage->values++;
    if (!same(got, object->value)) {
        sim_fail(play->sim, "client %u gets %d %d .., not %d %d ..", program->place->index,
                 got[0], got[1], object->value[0], object->value[1]);
        fail_out(play->sim);
    }
}

static void do_flush(struct play *play, struct program *program)
{
    (void)good(play, program, plasmon_flush(program->client), "flush");
}

/* -------------------------------------------------------------------------------- names */

static const char *name_text(uint32_t index)
{
    static char text[16];

    (void)snprintf(text, sizeof(text), "name %u", index);
    return text;
}

/* Killed or given up meanwhile, nobody knows which of the two it is. */
static void do_publish(struct play *play, struct program *program)
{
    uint32_t index              = (uint32_t)draw(play, NAMES_MAX);
    struct name *name           = &play->names[index];
    const struct object *object = any_object(play, program);

    if (object == NULL || name->maybe_other) {
        return;
    }
    name->maybe_other = true;
    memcpy(name->other, object->value, sizeof(name->other));
    if (!good(play, program,
              plasmon_publish(program->client, name_text(index), object->ref), "publish")) {
        return;
    }
    *name = (struct name){.maybe_value = true,
                          .publisher   = (uint32_t)(program - play->programs)};
    memcpy(name->value, object->value, sizeof(name->value));
}

static void name_wrong(struct play *play, uint32_t index, const char *what)
{
    sim_fail(play->sim, "%s: %s", name_text(index), what);
    fail_out(play->sim);
}

/* What was found settles what it is. */
static void name_settle(struct play *play, uint32_t index, const int32_t *found)
{
    struct name *name = &play->names[index];

    if (name->maybe_other && same(found, name->other)) {
        memcpy(name->value, name->other, sizeof(name->value));
    } else if (!name->maybe_value || !same(found, name->value)) {
        name_wrong(play, index, "it does not hold what was published");
    }
    name->maybe_value = true;
    name->maybe_none = name->maybe_other = false;
    if (name->orphan) {
        sim_cover(play->sim, SIM_CELL_CLIENT_NAMES);
    }
}

static void do_lookup(struct play *play, struct program *program)
{
    uint32_t index        = (uint32_t)draw(play, NAMES_MAX);
    struct name *name     = &play->names[index];
    struct object *object = free_object(program);
    plasmon_status_t status;

    if (object == NULL) {
        return;
    }
    status = plasmon_lookup(program->client, name_text(index), &object->ref);
    if (status == PLASMON_ENOENT) {
        object->ref = NULL;
        if (name->maybe_value && !name->maybe_none) {
            name_wrong(play, index, "it was published, and is gone");
        }
        *name = (struct name){.maybe_none = true};
        return;
    }
    if (!good(play, program, status, "lookup")) {
        return;
    }
    if (draw(play, 2) == 0) { /* it is not made yet, perhaps */
        status =
            plasmon_wait(program->client, &object->ref, 1, 1, PLASMON_FOREVER, NULL, NULL);
        if (!good(play, program, status, "wait for a name") ||
            !good(play, program, plasmon_state(program->client, object->ref),
                  "state of a name")) {
            return;
        }
    }
    status = plasmon_get(program->client, object->ref, object->value, sizeof(object->value),
                         PLASMON_FOREVER);
    if (good(play, program, status, "get of a name")) {
        name_settle(play, index, object->value);
    }
}

static void do_unpublish(struct play *play, struct program *program)
{
    uint32_t index    = (uint32_t)draw(play, NAMES_MAX);
    struct name *name = &play->names[index];
    plasmon_status_t status;

    if (name->maybe_other) {
        return;
    }
    name->maybe_none = true; /* if it dies now */
    status           = plasmon_publish(program->client, name_text(index), NULL);
    if (status == PLASMON_ENOENT ? !name->maybe_value
                                 : good(play, program, status, "unpublish")) {
        *name = (struct name){.maybe_none = true};
    } else if (status == PLASMON_ENOENT) {
        *name = (struct name){.maybe_none = true};
    }
}

/* ------------------------------------------------------------------------------ playing */

typedef void (*step_fn)(struct play *play, struct program *program);
static const step_fn steps[] = {do_put,     do_put,     do_add,    do_add,      do_add,
                                do_maximum, do_maximum, do_add,    do_snapshot, do_release,
                                do_release, do_get,     do_get,    do_flush,    do_publish,
                                do_publish, do_lookup,  do_lookup, do_unpublish};

static void play_step(struct play *play, uint32_t clients)
{
    struct program *program = &play->programs[draw(play, clients)];

    if (program->client == NULL) {
        program_open(play, program);
    }
    steps[draw(play, PL_COUNT(steps))](play, program);
    play->coverage->steps++;
    if (draw(play, 4) == 0) {
        sim_rpc_pass(draw(play, draw(play, 10) == 0 ? 50 * PASS_MAX_NS : PASS_MAX_NS));
    }
    if (program->client != NULL && play->kills_left > 0 && draw(play, 40) == 0) {
        play->kills_left--;
        program_kill(play, program);
    }
}

static void pass_lease(void)
{
    for (uint32_t i = 0; i < AFTER_LEASE_S; i++) {
        sim_rpc_pass(SECOND_NS);
    }
}

/* From here on nothing breaks. All that is left are names; when these are gone, too, nothing is. */
static void play_end(struct play *play, uint32_t clients)
{
    struct sim *sim = play->sim;

    sim->config.breaks_max = sim->config.cuts_max = sim->config.head_crashes_max = 0;
    for (uint32_t c = 0; c < clients; c++) {
        struct program *program = &play->programs[c];

        for (uint32_t i = 0; i < OBJECTS_MAX && program->client != NULL; i++) {
            do_get(play, program);
        }
        if (program->client != NULL) {
            plasmon_finish(program->client);
            program_forget(play, program);
        }
    }
    pass_lease();
    program_open(play, &play->programs[0]);
    for (uint32_t i = 0; i < 20 * NAMES_MAX; i++) {
        do_lookup(play, &play->programs[0]);
        do_release(play, &play->programs[0]);
    }
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        (void)plasmon_publish(play->programs[0].client, name_text(i), NULL);
    }
    plasmon_finish(play->programs[0].client);
    program_forget(play, &play->programs[0]);
    pass_lease();
    sim_check_empty(sim);
    sim_journal_check(sim);
}

static void draw_config(struct play *play, const struct clients_profile *profile,
                        struct sim_config *config)
{
    config->devices       = 1 + (uint32_t)draw(play, 3);
    config->clients       = 1 + (uint32_t)draw(play, SIM_CLIENTS_MAX);
    config->run_streams   = 1 + (uint32_t)draw(play, 3);
    config->policy        = "auto";
    config->library       = true;
    config->retries       = 2;
    config->credit        = draw(play, 3) == 0 ? 8 + draw(play, 24) : 0;
    config->lineage_bytes = draw(play, 2) == 0 ? 1 << 20 : 0;
    config->check_every   = profile->check_every;
    if (draw(play, 1000) < profile->break_permille) {
        config->breaks_max      = 1 + (uint32_t)draw(play, 20);
        config->break_millionth = 8000;
    }
    if (draw(play, 1000) < profile->cut_permille) {
        config->cuts_max      = 1 + (uint32_t)draw(play, 12);
        config->cut_millionth = 6000;
        if (draw(play, 1000) < profile->lease_permille) {
            config->cut_lease_permille = 400;
        }
    }
    if (draw(play, 1000) < profile->head_crash_permille) {
        config->journal              = true;
        config->head_crashes_max     = 1 + (uint32_t)draw(play, 4);
        config->head_crash_millionth = 4000;
    }
    if (draw(play, 1000) < profile->kill_permille) {
        play->kills_left = 1 + (uint32_t)draw(play, 4);
    }
}

/* A run that failed leaves its clients as they are: nobody could finish them. */
bool clients_run(uint64_t seed, const struct clients_profile *profile,
                 struct clients_coverage *coverage, bool print)
{
    struct play *play        = sim_alloc(sizeof(*play));
    struct sim_config config = {.seed = seed * 0x9e3779b97f4a7c15u + 1};
    uint64_t count;

    play->random   = seed;
    play->coverage = coverage;
    draw_config(play, profile, &config);
    count = profile->steps_min + draw(play, profile->steps_max - profile->steps_min + 1);
    PL_CHECK(sim_create(&config, &play->sim) == PLASMON_OK);
    if (setjmp(run_failed) != 0) {
        if (print) {
            printf("seed %llu: %s\n", (unsigned long long)seed, play->sim->failure);
            (void)fflush(stdout);
        }
        return false;
    }
    sim_rpc_start(play->sim, fail_out);
    for (uint32_t i = 0; i < NAMES_MAX; i++) {
        play->names[i].maybe_none = true;
    }
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        play->programs[i].place = &play->sim->clients[i];
    }
    for (uint64_t i = 0; i < count; i++) {
        play_step(play, config.clients);
    }
    play_end(play, config.clients);
    if (play->sim->failed) {
        fail_out(play->sim);
    }
    sim_rpc_bury();
    coverage->runs++;
    for (uint32_t i = 0; i < SIM_CELL_COUNT; i++) {
        coverage->met[i] += play->sim->met[i];
    }
    sim_rpc_finish();
    sim_destroy(play->sim);
    pl_free(play);
    return true;
}
