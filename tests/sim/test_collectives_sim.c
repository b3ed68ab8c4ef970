/*
 * Random collectives on a simulated cluster, with workers that crash and connections that break,
 * against plain loops: to the bit. Beside a quarter of them the head is killed and goes on from its
 * journal, beside another one workers stand still, stores die and networks are cut.
 *
 * A program has some arrays of one shape, by turns on the devices, and does collectives with them,
 * one on the results of the other: into new refs or into the members, of whole arrays or of views,
 * little and in segments and chunks (one_shot_bytes is small here). Nothing of it may fail: none of
 * its launches overwrites what it reads. But where members are written in place, a crash may find
 * one copy that reads and a later one that writes the same bytes both begun, and then the first
 * fails with ECONSUMED, as everywhere (docs/failure.md).
 *
 * BETWEEN HOSTS. Another quarter has two of them, and all-gathers, too.
 *
 * LITTLE MEMORY, in programs of their own, with host memory and files for what has no room: a
 * collective may find none, and fails as a whole then. No other value is lost by that.
 *
 * HOSTS THAT LEAVE, likewise: one of the two is drained while collectives are under way, and takes
 * nothing with it; or it, or a device, is lost.
 *
 * BY NCCL. Some programs want their all-reduces by teams (head/team.c), which break when a worker
 * dies, and now and then by themselves. Theirs are sums of small whole numbers, which are the same
 * in any order.
 *
 * PLASMON_SEEDS=n: so many programs. One that fails: --seed S with PLASMON_SEEDS=1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"
#include "head/core_int.h"
#include "tests/harness/test.h"
#include "tests/sim/seeds.h"

enum { SEEDS_DEFAULT = 120, COUNT_MAX = 4, STEPS_MAX = 12, ELEMENTS_MAX = 720 };
enum { HUNT_MAX = 1500, FOUND = 3, WAITS_MAX = 200 };
enum { SUM = 1, MIN = 3, MAX = 4, AVG = 5, NCCL = 3 };
#define DRAIN_WAIT_NS UINT64_C(3000000000)

/* What is the matter beside crashes and broken connections. */
enum kind { ANY, TROUBLED, LITTLE, LEAVING, FEW };

/* One array of the program, and what is in it. */
struct value {
    uint64_t ref;
    bool failed; /* some of it, perhaps: an answer said so */
    const struct sim_answer *put;
    float data[ELEMENTS_MAX];
};

/* One collective of the program. */
struct taken {
    struct sim_task task;
    struct pl_view in, out;
    uint32_t members;
    uint32_t to[COUNT_MAX]; /* values */
    bool anew;              /* all of each of these */
    const struct sim_answer *answer;
};

struct program {
    struct sim *sim;
    struct sim_client *client;
    struct pl_shape shape;
    int64_t elements;
    uint32_t count;
    bool in_place;
    bool nccl;
    bool few; /* all-reduces over some of the members, now these, now those devices */
    bool hosts;
    struct value values[COUNT_MAX];
    struct taken taken[STEPS_MAX];
    uint32_t steps;
    uint64_t tasks_failed;
};

static uint64_t random_state;
static uint64_t draw(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* ------------------------------------------------------------------------ what it means */

static float join(uint32_t op, float a, float b)
{
    return op == MIN ? (a < b ? a : b) : op == MAX ? (a > b ? a : b) : a + b;
}

static float fold(uint32_t op, const float *x, uint32_t count)
{
    float level[COUNT_MAX];
    float out;

    if (count == 1) {
        return x[0];
    }
    memcpy(level, x + 1, (count - 1) * sizeof(float));
    for (uint32_t width = count - 1; width > 1; width = (width + 1) / 2) {
        for (uint32_t i = 0; i < width / 2; i++) {
            level[i] = join(op, level[2 * i], level[2 * i + 1]);
        }
        if (width % 2 != 0) {
            level[width / 2] = level[width - 1];
        }
    }
    out = join(op, x[0], level[0]);
    return op == AVG ? out * (float)(1.0 / count) : out;
}

/* Element number `at` of the view, in C order: where it is in the array. */
static int64_t element_of(const struct pl_shape *shape, const struct pl_view *view,
                          int64_t at)
{
    int64_t offset = 0, stride = 1;

    for (uint32_t d = shape->ndim; d-- > 0;) {
        offset += (view->start[d] + at % view->count[d] * view->step[d]) * stride;
        at /= view->count[d];
        stride *= shape->dim[d];
    }
    return offset;
}

static int64_t elements_of(const struct pl_view *view)
{
    int64_t elements = 1;

    for (uint32_t d = 0; d < view->ndim; d++) {
        elements *= view->count[d];
    }
    return elements;
}

/* Element `at` of result `i`; members of so many elements. */
static float meant(const struct sim_task *task, float (*members)[ELEMENTS_MAX],
                   uint32_t count, int64_t elements, uint32_t i, int64_t at)
{
    int64_t part = elements / count;
    float x[COUNT_MAX];

    switch (task->collective) {
    case PLASMON__V1__COLLECTIVE_KIND__BROADCAST:
        return members[0][at];
    case PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL:
        return members[at / part][(int64_t)i * part + at % part];
    case PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER:
        return members[at / elements][at % elements];
    default:
        for (uint32_t k = 0; k < count; k++) {
            x[k] = members[k][at];
        }
        return fold(task->reduction, x, count);
    }
}

/* ---------------------------------------------------------------------------- a program */

static struct pl_view random_view(const struct program *p, bool whole, uint32_t multiple)
{
    struct pl_view view = pl_view_whole(&p->shape);

    for (uint32_t d = 0; !whole && d < view.ndim; d++) {
        int64_t count = p->shape.dim[d];

        view.step[d]  = count > 1 ? 1 + (int64_t)draw(2) : 1;
        view.count[d] = 1 + (int64_t)draw((uint64_t)((count - 1) / view.step[d]) + 1);
        if (d == 0 && multiple > 1) {
            view.count[d] = (view.count[d] / multiple > 0 ? view.count[d] / multiple : 1) *
                            (int64_t)multiple;
            view.step[d] = 1;
        }
        if ((view.count[d] - 1) * view.step[d] < count) {
            view.start[d] =
                (int64_t)draw((uint64_t)(count - (view.count[d] - 1) * view.step[d]));
        }
    }
    return view;
}

static void put(struct program *p, uint32_t i)
{
    struct sim_task task = {.id          = sim_client_id(p->client),
                            .kind        = PLASMON__V1__TASK_KIND__TASK_PUT,
                            .arg_count   = 1,
                            .place       = 1 + i % p->sim->config.devices,
                            .donatable   = p->in_place,
                            .data        = (const uint8_t *)p->values[i].data,
                            .data_length = (size_t)p->elements * sizeof(float)};

    for (int64_t k = 0; k < p->elements; k++) {
        p->values[i].data[k] =
            p->nccl ? (float)draw(16) : (float)draw(4096) / 8.0f - 100.0f;
    }
    p->values[i].ref = sim_client_id(p->client);
    task.args[0]     = (struct sim_arg){.mode   = PLASMON__V1__MODE__MODE_OUT,
                                        .ref    = p->values[i].ref,
                                        .shaped = true,
                                        .shape  = p->shape};
    p->values[i].put = sim_client_task(p->client, &task);
}

static struct sim_arg arg_of(uint32_t mode, uint64_t ref, const struct pl_view *view,
                             bool whole)
{
    return (struct sim_arg){.mode = mode, .ref = ref, .viewed = !whole, .view = *view};
}

/* What the results are, in the model: views of the arrays get them when all members have been read. */
static void apply(struct program *p, const struct taken *taken)
{
    static float read[COUNT_MAX][ELEMENTS_MAX];
    int64_t elements = elements_of(&taken->in);

    for (uint32_t i = 0; i < taken->members; i++) {
        for (int64_t k = 0; k < elements; k++) {
            read[i][k] = p->values[i].data[element_of(&p->shape, &taken->in, k)];
        }
    }
    for (uint32_t i = 0; i < taken->task.results; i++) {
        for (int64_t k = 0; k < elements_of(&taken->out); k++) {
            p->values[taken->to[i]].data[element_of(&p->shape, &taken->out, k)] =
                meant(&taken->task, read, taken->members, elements, i, k);
        }
    }
}

/* Of which all of them, one behind the other, are as large as an array. false: there are no such views. */
static bool gathered_view(const struct program *p, uint32_t members,
                          struct pl_view *out_view)
{
    int64_t rows = p->shape.dim[0] / members;

    *out_view          = pl_view_whole(&p->shape);
    out_view->count[0] = rows;
    out_view->start[0] = (int64_t)draw((uint64_t)(p->shape.dim[0] - rows) + 1);
    return p->shape.dim[0] % members == 0;
}

/* An all-reduce over some devices only. */
static void take_few(const struct program *p, struct sim_task *task)
{
    if (p->few) {
        task->collective = PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE;
        task->results    = 2 + (uint32_t)draw(p->count - 1);
    }
}

/* New refs take the place of the members, which are let go: only of whole arrays. */
static void step(struct program *p)
{
    static const uint32_t kinds[] = {
        PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE, PLASMON__V1__COLLECTIVE_KIND__ALL_REDUCE,
        PLASMON__V1__COLLECTIVE_KIND__REDUCE, PLASMON__V1__COLLECTIVE_KIND__BROADCAST,
        PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL};
    static const uint32_t reductions[] = {SUM, MIN, MAX, AVG};
    struct sim_task task               = {
                      .id         = sim_client_id(p->client),
                      .kind       = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE,
                      .collective = p->nccl && draw(3) != 0 ? kinds[0] : kinds[draw(PL_COUNT(kinds))],
                      .results    = p->count};
    bool makes   = !p->in_place || draw(3) == 0;
    bool gathers = p->hosts && draw(3) == 0;
    bool all_to_all =
        !gathers && !p->few && task.collective == PLASMON__V1__COLLECTIVE_KIND__ALL_TO_ALL;
    bool whole         = makes || gathers || draw(p->nccl ? 5 : 2) != 1;
    struct pl_view in  = random_view(p, whole, all_to_all ? p->count : 1);
    struct pl_view out = in;
    uint32_t turn = (uint32_t)draw(p->count), members = p->count;
    struct taken *taken = &p->taken[p->steps];
    uint64_t old[COUNT_MAX];

    take_few(p, &task);
    if (all_to_all && (in.count[0] % p->count != 0 || in.count[0] > p->shape.dim[0])) {
        return;
    }
    if (gathers) {
        task.collective = PLASMON__V1__COLLECTIVE_KIND__ALL_GATHER;
        task.way        = p->nccl ? NCCL : 0;
        if (!gathered_view(p, members, &in)) {
            return;
        }
    } else if (task.collective == PLASMON__V1__COLLECTIVE_KIND__BROADCAST) {
        members = 1;
    } else if (!all_to_all) {
        members        = task.results;
        task.reduction = reductions[draw(PL_COUNT(reductions) - p->nccl)];
        task.way       = p->nccl ? NCCL : 0;
    }
    if (task.collective == PLASMON__V1__COLLECTIVE_KIND__REDUCE) {
        task.results = 1;
        task.root    = (uint32_t)draw(members);
    }
    if (!whole) { /* somewhere else in the arrays, perhaps overlapping */
        for (uint32_t d = 0; d < out.ndim; d++) {
            int64_t span = (out.count[d] - 1) * out.step[d] + 1;

            out.start[d] = (int64_t)draw((uint64_t)(p->shape.dim[d] - span) + 1);
        }
    }
    for (uint32_t i = 0; i < members; i++) {
        task.args[task.arg_count++] =
            arg_of(PLASMON__V1__MODE__MODE_IN, p->values[i].ref, &in, whole && !gathers);
    }
    for (uint32_t i = 0; i < task.results; i++) {
        struct sim_arg *arg = &task.args[task.arg_count++];

        struct value *to = &p->values[(i + turn) % p->count];

        taken->to[i] = (i + turn) % p->count;
        old[i]       = to->ref;
        if (makes) {
            to->ref = sim_client_id(p->client);
        }
        *arg        = arg_of(PLASMON__V1__MODE__MODE_OUT, to->ref, &out, whole);
        arg->shaped = makes;
        arg->shape  = p->shape;
        if (draw(p->nccl ? 20 : 3) == 0) {
            task.places[i] = 1 + (uint32_t)draw(p->sim->config.devices);
        }
    }
    taken->task    = task;
    taken->in      = in;
    taken->out     = out;
    taken->members = members;
    taken->anew    = whole;
    taken->answer  = sim_client_task(p->client, &task);
    p->steps++;
    for (uint32_t i = 0; makes && i < task.results; i++) {
        sim_client_release(p->client, old[i]);
    }
    sim_client_flush(p->client);
}

static bool all_answered(void *user)
{
    return ((const struct program *)user)->client->waiting == 0;
}

static bool at_rest(void *user)
{
    const struct program *p = user;

    for (uint32_t i = 0; i < p->sim->config.devices; i++) {
        if (!p->sim->workers[i].connected && !p->sim->workers[i].gone) {
            return false;
        }
    }
    return p->client->connected && pl_list_empty(&p->client->outbox) &&
           p->sim->events.count == 0 && head_core_idle(p->sim->head);
}

/* A device, or a host, was lost, and with it what was nowhere else. */
static bool anything_lost(const struct sim *sim)
{
    return sim->gone_count > 0 && !sim->drained;
}

/*
 * placed: where it was to be was said, which may be a device that is gone, or whose host takes
 * nothing new.
 */
static bool explained(const struct program *p, const struct sim_answer *answer, bool placed)
{
    const struct sim *sim = p->sim;

    switch (answer->status) {
    case PLASMON_ECONSUMED:
        return anything_lost(sim) || (p->in_place && sim->crash_times.count > 0);
    case PLASMON_EDEPENDENCY:
        return anything_lost(sim) || sim->config.device_bytes != 0 ||
               (p->in_place && sim->crash_times.count > 0);
    case PLASMON_EDEVMEM:
        return sim->config.device_bytes != 0;
    case PLASMON_EWORKER:
        return anything_lost(sim) ||
               (placed && (sim->drain_begun || sim->gone_count > 0)) ||
               (sim->config.device_bytes != 0 && /* it failed of that, too */
                sim->crash_times.count > 0);
    case PLASMON_ELOST:
    case PLASMON_ENOTREBUILDABLE:
        return anything_lost(sim);
    default:
        return false;
    }
}

static bool is_placed(const struct sim_task *task)
{
    for (uint32_t i = 0; i < task->results; i++) {
        if (task->places[i] != 0) {
            return true;
        }
    }
    return false;
}

static bool any_failed(const struct program *p, uint32_t members)
{
    for (uint32_t i = 0; i < members; i++) {
        if (p->values[i].failed) {
            return true;
        }
    }
    return false;
}

/*
 * What failed, and whether it may have; and what is in the arrays then. Who read what failed later
 * may have ended well.
 */
static void check_answers(struct program *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const struct sim_answer *put = p->values[i].put;

        p->values[i].failed = put->status != PLASMON_OK;
        if (p->values[i].failed && !explained(p, put, true)) {
            sim_fail(p->sim, "put %u fails: %s: %s", i, pl_status_name(put->status),
                     put->text);
        }
    }
    for (uint32_t i = 0; i < p->steps; i++) {
        const struct taken *taken       = &p->taken[i];
        const struct sim_answer *answer = taken->answer;
        bool failed_input               = any_failed(p, taken->members);
        bool failed                     = answer->status != PLASMON_OK;

        p->tasks_failed += failed;
        if (failed && !failed_input && !explained(p, answer, is_placed(&taken->task))) {
            sim_fail(p->sim, "step %u fails: %s: %s", i, pl_status_name(answer->status),
                     answer->text);
        }
        apply(p, taken);
        for (uint32_t r = 0; r < taken->task.results; r++) {
            struct value *value = &p->values[taken->to[r]];

            value->failed = (value->failed && !taken->anew) || failed || failed_input;
        }
    }
}

static bool nobody_stands_still(void *user)
{
    const struct program *p = user;

    for (uint32_t i = 0; i < p->sim->config.devices; i++) {
        if (!p->sim->workers[i].gone &&
            (!p->sim->workers[i].alive || p->sim->workers[i].process.stopped ||
             p->sim->workers[i].process.doomed)) {
            return false;
        }
    }
    return !p->sim->config.stores || p->sim->nodes[0].alive; /* one host */
}

static void check_value(struct program *p, uint32_t i, const struct sim_answer *read)
{
    const struct value *value = &p->values[i];
    const char *lacks;

    if (value->failed) {
        return;
    }
    if (read->status != PLASMON_OK && !explained(p, read, false)) {
        sim_fail(p->sim, "array %u cannot be read: %s: %s", i, pl_status_name(read->status),
                 read->text);
    }
    for (int64_t k = 0; read->status == PLASMON_OK && k < p->elements; k++) {
        float got;

        memcpy(&got, read->data + (size_t)k * sizeof(got), sizeof(got));
        if (memcmp(&got, &value->data[k], sizeof(got)) != 0) {
            sim_fail(p->sim, "array %u, element %lld is %.9g, expected %.9g", i,
                     (long long)k, (double)got, (double)value->data[k]);
            break;
        }
    }
    /* Who reads it may find no room for that. */
    lacks = anything_lost(p->sim) || sim_head_down(p->sim)
                ? NULL
                : sim_head_lacks(p->client, value->ref);
    if (lacks != NULL) {
        sim_fail(p->sim, "array %u was made, and the head has not all of it: %s", i, lacks);
    }
}

static void check_values(struct program *p)
{
    size_t bytes = (size_t)p->elements * sizeof(float);
    struct sim_answer *reads[COUNT_MAX];

    /* A read that its worker has begun is lost with it. */
    p->sim->config.crashes_max = p->sim->config.stops_max = p->sim->config.gone_max = 0;
    p->sim->config.store_deaths_max                                                 = 0;
    (void)sim_run_until(p->sim, nobody_stands_still, p);
    for (uint32_t i = 0; i < p->count; i++) {
        reads[i] = sim_client_read(p->client, p->values[i].ref, NULL, bytes);
    }
    sim_client_flush(p->client);
    (void)sim_run_until(p->sim, all_answered, p);
    for (uint32_t i = 0; i < p->count && !p->sim->failed; i++) {
        check_value(p, i, reads[i]);
    }
}

struct until {
    const struct sim *sim;
    uint64_t at_ns;
};

static bool has_left(void *user)
{
    const struct until *until = user;

    return until->sim->gone_count > 0 || until->sim->now_ns >= until->at_ns;
}

/* The head looks a few times a second whether all is elsewhere. */
static void wait_for_drain(struct sim *sim)
{
    struct until until = {.sim = sim, .at_ns = sim->now_ns + DRAIN_WAIT_NS};

    if (sim->drain_begun) {
        (void)sim_run_until(sim, has_left, &until);
    }
}

static void finish(struct program *p)
{
    p->sim->config.breaks_max = p->sim->config.cuts_max = 0;
    p->sim->config.head_crashes_max = p->sim->config.spill_deaths_max = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        sim_client_release(p->client, p->values[i].ref);
    }
    sim_client_flush(p->client);
    (void)sim_run_until(p->sim, at_rest, p);
    if (!p->sim->failed) {
        sim_check_empty(p->sim);
    }
}

static void draw_program(struct program *p, uint64_t seed, struct sim_config *config)
{
    random_state = seed * 0x9e3779b97f4a7c15u | 1;
    (void)draw(2);
    p->shape = (struct pl_shape){.dtype = PL_F32, .ndim = 1 + (uint32_t)draw(3)};
    for (uint32_t d = 0; d < p->shape.ndim; d++) {
        p->shape.dim[d] = 1 + (int64_t)draw(p->shape.ndim == 1   ? ELEMENTS_MAX
                                            : p->shape.ndim == 2 ? 26
                                                                 : 8);
    }
    p->elements = pl_shape_elements(&p->shape);
    p->count    = 1 + (uint32_t)draw(COUNT_MAX);
    p->in_place = draw(2) == 0;
    p->nccl     = draw(3) == 0;
    *config     = (struct sim_config){.seed         = seed,
                                      .devices      = 1 + (uint32_t)draw(4),
                                      .clients      = 1,
                                      .run_streams  = 1 + (uint32_t)draw(4),
                                      .policy       = "auto",
                                      .transfer     = draw(3) == 0 ? HEAD_TRANSFER_HOST
                                                                   : HEAD_TRANSFER_AUTO,
                                      .peer_capable = draw(5) != 0,
                                      .chain_bytes  = draw(2) == 0 ? 64 : 0,
                                      .retries      = 20,
                                      .check_every  = 5};
    if (p->nccl && p->count > 1) { /* so that most may go that way */
        config->devices      = p->count + (uint32_t)draw(COUNT_MAX - p->count + 1);
        config->transfer     = HEAD_TRANSFER_AUTO;
        config->peer_capable = true;
        config->pair_trouble_millionth = draw(2) == 0 ? 20000 : 0;
    }
    if (draw(3) != 0) {
        config->crashes_max     = 1 + (uint32_t)draw(4);
        config->crash_millionth = 8000;
    }
    if (draw(3) == 0) {
        config->breaks_max      = 1 + (uint32_t)draw(4);
        config->break_millionth = 8000;
    }
}

/* By no draw, so that other seeds make what they made before. */
static void add_faults(uint64_t seed, struct sim_config *config)
{
    if (seed % 4 == 1) {
        config->journal              = true;
        config->head_crashes_max     = 1 + (uint32_t)(seed / 4 % 3);
        config->head_crash_millionth = 8000;
    } else if (seed % 4 == 2) {
        config->stores           = true;
        config->stops_max        = 2;
        config->stop_millionth   = 6000;
        config->store_deaths_max = 1;
        config->cuts_max         = 4;
        config->cut_millionth    = 6000;
    } else if (seed % 4 == 3) {
        config->devices     = (uint32_t)pl_max_u64(config->devices, 2);
        config->second_host = true;
    }
}

static void add_little_memory(uint64_t seed, struct sim_config *config)
{
    config->device_bytes        = (1 + seed % 3) * 4096;
    config->spill_memory        = 1536 + 512 * (seed / 3 % 16);
    config->spill_files         = seed / 48 % 4 != 0 ? UINT64_C(1) << 30 : 0;
    config->spill_full_permille = seed / 192 % 2 == 0 ? 300 : 0;
    config->write_back          = 25 * (uint32_t)(seed / 7 % 4);
    config->on_demand           = seed / 5 % 2 == 0;
    if (seed % 4 == 1) {
        config->journal              = true;
        config->head_crashes_max     = 1 + (uint32_t)(seed / 4 % 3);
        config->head_crash_millionth = 8000;
    } else if (seed % 4 == 2) {
        config->spill_deaths_max = 4;
    }
}

static void add_leaving(uint64_t seed, struct sim_config *config)
{
    config->devices        = (uint32_t)pl_max_u64(config->devices, 2);
    config->second_host    = true;
    config->gone_max       = config->devices / 2;
    config->gone_millionth = 8000;
    config->drains         = seed % 2 == 0;
    config->lineage_bytes  = seed / 2 % 2 == 0 ? 1 << 24 : 0;
    if (seed / 4 % 2 == 0) {
        config->journal              = true;
        config->head_crashes_max     = 1 + (uint32_t)(seed / 8 % 3);
        config->head_crash_millionth = 8000;
    }
    if (seed / 8 % 4 == 0) {
        config->device_bytes = 4 * 4096;
        config->spill_memory = 8192;
        config->spill_files  = UINT64_C(1) << 30;
    }
}

static uint64_t crashes, fences, heads, failures, combined, together, on_their_own, spills,
    records_full, left, lost;

/* A head that is made from its journal has those that it begins with. */
static void set_sizes(struct program *p)
{
    uint64_t one_shot = draw(3) == 0 ? 4096 : 1 + draw(64);
    uint64_t direct   = draw(2) == 0 ? 1 : 1 + draw(4096);

    if (!p->sim->config.journal) {
        p->sim->head->config.one_shot_bytes = one_shot;
        p->sim->head->config.direct_bytes   = direct;
    }
}

/* Teams that break all the time, while messages are late. */
static void add_trouble(struct program *p, struct sim_config *config)
{
    p->nccl                        = true;
    p->count                       = (uint32_t)pl_max_u64(p->count, 2);
    config->devices                = p->count;
    config->transfer               = HEAD_TRANSFER_AUTO;
    config->peer_capable           = true;
    config->pair_trouble_millionth = 150000;
    config->breaks_max             = 6;
    config->break_millionth        = 20000;
}

/* Fewer records of teams than there are teams (head/team.c), while workers and the head are killed. */
static void add_few_records(struct program *p, uint64_t seed, struct sim_config *config)
{
    p->nccl = p->few               = true;
    p->count                       = (uint32_t)pl_max_u64(p->count, 3);
    config->devices                = COUNT_MAX;
    config->transfer               = HEAD_TRANSFER_AUTO;
    config->peer_capable           = true;
    config->team_records           = 1 + (uint32_t)(seed % 3);
    config->crashes_max            = 6;
    config->crash_millionth        = 20000;
    config->pair_trouble_millionth = seed / 3 % 2 == 0 ? 50000 : 0;
    if (seed % 4 == 1) {
        config->journal              = true;
        config->head_crashes_max     = 1 + (uint32_t)(seed / 4 % 3);
        config->head_crash_millionth = 8000;
    }
}

static void add_kind(struct program *p, enum kind kind, uint64_t seed,
                     struct sim_config *config)
{
    switch (kind) {
    case ANY:
        add_faults(seed, config);
        break;
    case TROUBLED:
        add_trouble(p, config);
        break;
    case LITTLE:
        add_little_memory(seed, config);
        break;
    case LEAVING:
        add_leaving(seed, config);
        break;
    case FEW:
        add_few_records(p, seed, config);
        break;
    }
}

static void play(struct program *p)
{
    bool waited = p->sim->config.seed % 3 == 0; /* not before the end */

    for (uint32_t i = 0; i < p->count; i++) {
        put(p, i);
    }
    for (uint32_t i = (uint32_t)draw(p->nccl && !p->few ? STEPS_MAX / 2 : STEPS_MAX) + 1;
         i > 0 && !p->sim->failed; i--) {
        step(p);
        for (uint64_t k = p->few ? draw(WAITS_MAX) : 0; k > 0 && sim_step(p->sim); k--) {
        }
        if (p->sim->drain_begun && !waited) {
            waited = true;
            wait_for_drain(p->sim);
        }
    }
    sim_client_flush(p->client);
    (void)sim_run_until(p->sim, all_answered, p);
    wait_for_drain(p->sim);
}

/* user: enum kind. */
static bool program_run(uint64_t seed, void *user)
{
    struct program *p    = sim_alloc(sizeof(*p));
    const enum kind kind = *(const enum kind *)user;
    struct head_spill_counts spilled;
    struct sim_config config;
    bool ok;

    draw_program(p, seed, &config);
    add_kind(p, kind, seed, &config);
    ASSERT_OK(sim_create(&config, &p->sim));
    p->hosts  = config.second_host;
    p->client = &p->sim->clients[0];
    set_sizes(p);
    play(p);
    if (!p->sim->failed) {
        check_answers(p);
    }
    if (!p->sim->failed) {
        check_values(p);
    }
    if (!p->sim->failed) {
        finish(p);
    }
    ok = !p->sim->failed;
    if (!ok) {
        printf("# seed %llu: %u members of %lld on %u devices%s, one shot %llu: %s\n",
               (unsigned long long)seed, p->count, (long long)p->elements, config.devices,
               p->in_place ? ", in place" : "",
               (unsigned long long)p->sim->head->config.one_shot_bytes, p->sim->failure);
    }
    crashes += p->sim->crash_count;
    fences += p->sim->fence_count;
    heads += p->sim->head_process.crashes;
    combined += p->sim->combined;
    together += p->sim->together;
    on_their_own += p->sim->alone;
    failures += p->tasks_failed;
    head_core_spill_count(p->sim->head, &spilled);
    spills += spilled.spills;
    records_full += p->sim->head->teams.count >= head_team_records_max;
    left += p->sim->drained && p->sim->gone_count > 0;
    lost += anything_lost(p->sim);
    sim_destroy(p->sim);
    pl_free(p);
    return ok;
}

TEST(collectives_mean_their_loops_whoever_crashes)
{
    enum kind kind = ANY;
    uint64_t count = seeds_run(SEEDS_DEFAULT, program_run, &kind);

    printf(
        "# %llu programs: %llu crashes, %llu fences, %llu heads killed; %llu reductions "
        "where members lay, %llu by "
        "teams and %llu parts of those without; %llu collectives failed with ECONSUMED\n",
        (unsigned long long)count, (unsigned long long)crashes, (unsigned long long)fences,
        (unsigned long long)heads, (unsigned long long)combined,
        (unsigned long long)together, (unsigned long long)on_their_own,
        (unsigned long long)failures);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(crashes > count / 4 && fences > 0 && heads > count / 8);
        ASSERT_TRUE(combined > count);
        ASSERT_TRUE(together > 0);
        ASSERT_TRUE(on_their_own > 0 || count < 10 * SEEDS_DEFAULT);
    }
}

TEST(collectives_that_find_no_memory_cost_no_other_value)
{
    enum kind kind = LITTLE;
    uint64_t count = seeds_run(SEEDS_DEFAULT, program_run, &kind);

    printf("# %llu programs: %llu spills, %llu crashes, %llu heads killed; %llu "
           "collectives failed\n",
           (unsigned long long)count, (unsigned long long)spills,
           (unsigned long long)crashes, (unsigned long long)heads,
           (unsigned long long)failures);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(spills > count && heads > count / 8);
    }
}

TEST(collectives_go_on_when_a_host_leaves_or_is_lost)
{
    enum kind kind = LEAVING;
    uint64_t count = seeds_run(SEEDS_DEFAULT, program_run, &kind);

    printf("# %llu programs: %llu hosts left with nothing, %llu or a device were lost; "
           "%llu crashes, %llu heads killed; %llu collectives failed\n",
           (unsigned long long)count, (unsigned long long)left, (unsigned long long)lost,
           (unsigned long long)crashes, (unsigned long long)heads,
           (unsigned long long)failures);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(left > count / 8 && lost > count / 8 && heads > count / 8);
    }
}

TEST(collectives_by_more_teams_than_there_are_records_of)
{
    enum kind kind = FEW;
    uint64_t count = seeds_run(SEEDS_DEFAULT, program_run, &kind);

    printf("# %llu programs: %llu with all records taken, %llu crashes, %llu heads killed; "
           "%llu reductions by teams and %llu parts of those without\n",
           (unsigned long long)count, (unsigned long long)records_full,
           (unsigned long long)crashes, (unsigned long long)heads,
           (unsigned long long)together, (unsigned long long)on_their_own);
    if (count >= SEEDS_DEFAULT) {
        ASSERT_TRUE(records_full > count / 4 && together > 0 && on_their_own > 0);
    }
}

/*
 * 1139429549: who was told to end a team before it had opened it there aborts at once, since none
 * of its operations had begun, and nobody may take that for an operation's end. (It was the
 * simulation that did.) 2011753668: results in the members' array, a few elements further on: the
 * first chunk was written over what the third one reads. The simulation's own, too:
 * 1795930614649410042, 1795930614180938691 and 1795930616633638047: what a part of a broken team
 * used was looked for in memory that had been planned for others by then. 1795930910723567175: a
 * buffer was to be as it was when a worker that began anew had sealed it, although others had yet
 * to write there again.
 */
TEST(programs_that_found_something)
{
    static const struct {
        uint64_t seed;
        enum kind kind;
    } found[] = {{1139429549, ANY},
                 {2011753668, ANY},
                 {1795930614649410042, LITTLE},
                 {1795930614180938691, LITTLE},
                 {1795930616633638047, LITTLE},
                 {1795930910723567175, LEAVING}};

    test_expect_log();
    seeds_log_errors();
    for (size_t i = 0; i < PL_COUNT(found); i++) {
        enum kind kind = found[i].kind;

        ASSERT_TRUE(program_run(found[i].seed, &kind));
    }
}

/* ----------------------------------------------------------------- would it be noticed? */

/* Within so many programs from `first` on; and the same from 1 on pass without it. */
static void assert_found(const char *bug, enum kind kind, uint64_t first, uint64_t count)
{
    int status = 0;
    pid_t child;

#ifndef PL_FAULTS
    test_skip("this build has no seeded bugs (PLASMON_FAULTS is off)");
#endif
    if (getenv("PLASMON_SEEDS") != NULL) {
        test_skip("so many programs were asked for, and these are always the same");
    }
    test_set_timeout(300);
    test_expect_log();
    (void)fflush(stdout);
    child = fork();
    ASSERT_TRUE(child >= 0);
    if (child == 0) {
        pl_log_set_sink(NULL, NULL);
        pl_bug_arm(bug);
        for (uint64_t seed = first; seed < first + count; seed++) {
            if (!program_run(seed, &kind)) {
                printf("# %s: found by seed %llu\n", bug, (unsigned long long)seed);
                (void)fflush(stdout);
                _exit(FOUND);
            }
        }
        _exit(0);
    }
    ASSERT_TRUE(waitpid(child, &status, 0) == child);
    /* Or it ends in a broken invariant. */
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == FOUND);
    pl_log_set_sink(NULL, NULL);
    for (uint64_t seed = 1; seed <= SEEDS_DEFAULT; seed++) {
        ASSERT_TRUE(program_run(seed, &kind));
    }
}

/*
 * What an aborted operation says to the others they believe, unless they have marked before: it has
 * to be found.
 */
TEST(programs_find_aborts_that_others_have_not_heard_of)
{
    assert_found("worker.abort_early", TROUBLED, 1400, HUNT_MAX); /* 1435 was the first */
}

TEST(programs_find_a_value_that_comes_back_before_it_was_spilled)
{
    assert_found("spill.stale", LITTLE, 1, HUNT_MAX);
}

TEST(programs_find_a_copy_that_goes_while_its_value_is_on_its_way)
{
    assert_found("spill.count_coming", LITTLE, 3800, HUNT_MAX); /* 3857 was the first */
}

TEST(programs_find_a_host_that_leaves_with_what_nobody_can_make_again)
{
    assert_found("head.drain_unrecorded", LEAVING, 1, HUNT_MAX);
}

/* A worker that is restarted is not told of it, and its part waits for ever. */
TEST(programs_find_a_team_whose_record_goes_while_a_launch_names_it)
{
    assert_found("head.team_named", FEW, 1, HUNT_MAX);
}

TEST_MAIN()
