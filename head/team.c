/*
 * When there are teams, and what becomes of them.
 *
 *   CLOSED -> opening -> OPEN -> closing -> CLOSED
 *        \________|________|________|____> breaking -> CLOSED
 *
 * OPENED AND CLOSED IN ORDER, as pairs are (pair.c): all devices have an OPEN of one order number,
 * whatever goes by the team has a greater one, and a CLOSE a greater one still. A worker makes and
 * ends a communicator only when nothing is on its device. So a team costs a pause of all its
 * devices, and some hundred MiB of each: a device has few, and the one that was not used for
 * longest makes room.
 *
 * BROKEN. Somebody reports trouble, all report that the same launches are stuck (some alone only
 * wait for the others), or a worker was restarted. All are told, mark it, and say so; when all
 * have, they are told to end it (STAGED): an operation that is aborted before would tell others
 * that its bytes came. Each launch that goes by a team is one that its device can do alone, from
 * what nobody writes before all of them are done, and each worker knows by itself which of its own
 * came to an end before its mark (worker/pairs.c). So there is nothing more to agree on, and the
 * next communicator may be asked for then: its OPEN comes behind all that.
 *
 * RECORDS are places: the one of a set with a device that is gone, or of all the one that was not
 * asked for for longest, goes to the next set, with its number, and its epochs go on. So whatever
 * workers know of a number is of an earlier epoch then, which they need not be told to forget. It
 * must be CLOSED, and no launch may be unfinished that names it: a worker that is restarted hears
 * of the teams of its own device, and would wait for ever for one that it does not hear of. If
 * there is none such, one is closed, in order like for want of room, and goes another time.
 */
#include "base/fault.h"
#include "head/checkpoint.h"
#include "head/core_int.h"

#include <string.h>

#define FIELD_PAIRS 14

enum {
    /* times config.team_bytes went another way before one is opened that nobody asked for */
    UNASKED      = 2,
    FAILURES_MAX = 6, /* the pause before the next attempt doubles so often */
};
/* of one that was never open; 32 channels (limits.md) */
#define TEAM_BYTES_GUESS (UINT64_C(800) << 20)
/* of the guess: what others took meanwhile is in a worker's figure, too */
#define BYTES_TIMES_MAX 4
/* that went another way before one that failed is tried again */
#define TEAM_WANTED_BYTES (UINT64_C(256) << 20)

uint32_t head_team_records_max = HEAD_TEAM_RECORDS_MAX;

static bool alive(const struct head_team *team)
{
    return team->state != HEAD_TEAM_CLOSED && team->state != HEAD_TEAM_BREAKING;
}

static bool has(const struct head_team *team, const struct head_device *device,
                uint32_t *out_rank)
{
    for (uint32_t i = 0; i < team->count; i++) {
        if (team->device[i] == device) {
            *out_rank = i;
            return true;
        }
    }
    return false;
}

static struct head_team *next_team(const struct head_core *core, size_t *io_at)
{
    uint64_t key;
    void *item;

    return pl_map_next(&core->teams, io_at, &key, &item) ? item : NULL;
}

static struct head_team *team_find(const struct head_core *core,
                                   struct head_device *const *devices, uint32_t count)
{
    struct head_team *team;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (team->count == count &&
            memcmp(team->device, devices, count * sizeof(struct head_device *)) == 0) {
            return team;
        }
    }
    return NULL;
}

static struct head_team *team_create(struct head_core *core)
{
    struct head_team *team = head_alloc(sizeof(*team));

    team->number = (uint32_t)core->teams.count + 1;
    PL_CHECK(pl_map_set(&core->teams, team->number, team) == PLASMON_OK);
    return team;
}

static bool some_gone(const struct head_team *team)
{
    for (uint32_t i = 0; i < team->count; i++) {
        if (team->device[i]->gone) {
            return true;
        }
    }
    return false;
}

/* Nobody can have anything to do with it any more. */
static bool idle(const struct head_team *team)
{
    return team->state == HEAD_TEAM_CLOSED &&
           (team->tasks == 0 || pl_bug("head.team_named"));
}

static bool older(const struct head_team *team, const struct head_team *than)
{
    return than == NULL || team->used < than->used ||
           (team->used == than->used && team->number < than->number);
}

/* Whose record the next one may have: one that nobody can ask for, or the oldest. NULL: none. */
static struct head_team *team_spare(const struct head_core *core)
{
    bool full               = core->teams.count >= head_team_records_max;
    struct head_team *spare = NULL;
    struct head_team *team;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (idle(team) && some_gone(team)) {
            return team;
        }
        if (full && idle(team) && older(team, spare)) {
            spare = team;
        }
    }
    return spare;
}

/* One at a time. */
static void close_oldest(struct head_core *core)
{
    struct head_team *oldest = NULL;
    struct head_team *team;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (team->state == HEAD_TEAM_CLOSING) {
            return;
        }
        if (team->state == HEAD_TEAM_OPEN && older(team, oldest)) {
            oldest = team;
        }
    }
    if (oldest != NULL) {
        head_team_close(core, oldest);
    }
}

/* NULL: there is no record for it now. */
static struct head_team *team_record(struct head_core *core,
                                     struct head_device *const *devices, uint32_t count)
{
    struct head_team *team = team_spare(core);

    if (team == NULL && core->teams.count >= head_team_records_max) {
        close_oldest(core);
        return NULL;
    }
    team  = team != NULL ? team : team_create(core);
    *team = (struct head_team){
        .number = team->number, .epoch = team->epoch, .tasks = team->tasks, .count = count};
    memcpy(team->device, devices, count * sizeof(struct head_device *));
    return team;
}

void head_teams_destroy(struct head_core *core)
{
    struct head_team *team;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        pl_free(team);
    }
    pl_map_finish(&core->teams);
    pl_map_init(&core->teams); /* what ends after them finds none */
}

uint32_t head_team_count(const struct head_core *core, const struct head_device *device)
{
    const struct head_team *team;
    uint32_t count = 0, rank;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        count += alive(team) && has(team, device, &rank);
    }
    return count;
}

static void tell(const struct head_team *team, uint32_t rank, Plasmon__V1__PairState state,
                 const ProtobufCBinaryData *id)
{
    struct head_device *to = team->device[rank];
    Plasmon__V1__PairOrder order;

    if (to->gone || !to->joined) {
        return;
    }
    plasmon__v1__pair_order__init(&order);
    order.team     = team->number;
    order.receives = rank != 0;
    order.epoch    = team->epoch;
    order.state    = state;
    if (id != NULL) {
        order.id = *id;
    }
    head_bytes_message(&to->out, FIELD_PAIRS, &order.base);
}

/* ----------------------------------------------------------------------- opened, closed */

static void start_parts(struct head_core *core, struct head_team *team, uint32_t kind)
{
    struct head_launch launch = {
        .kind        = kind,
        .order       = ++core->order_last,
        .pair        = team->epoch,
        .team        = team->number,
        .ranks       = kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN ? team->count : 0,
        .retries_max = 250,
    };

    team->ends = 0;
    for (uint32_t i = 0; i < team->count; i++) {
        launch.device = team->device[i];
        launch.length = i;
        (void)head_task_start(core, &launch); /* the core owns it */
    }
}

static void team_open(struct head_core *core, struct head_team *team)
{
    team->epoch++;
    team->state  = HEAD_TEAM_OPENING;
    team->wanted = 0;
    memset(team->stalled, 0, sizeof(team->stalled));
    for (uint32_t i = 0; i < team->count; i++) {
        team->device[i]->teams_opened++;
    }
    start_parts(core, team, PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN);
}

void head_team_close(struct head_core *core, struct head_team *team)
{
    team->state = HEAD_TEAM_CLOSING;
    start_parts(core, team, PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE);
}

static uint64_t bytes_at(const struct head_team *team, uint32_t rank)
{
    return team->bytes[rank] != 0 ? team->bytes[rank] : TEAM_BYTES_GUESS;
}

uint64_t head_team_bytes(const struct head_team *team, const struct head_device *device)
{
    uint32_t rank;

    /* One that closes is away before the next is opened. */
    return !alive(team) || team->state == HEAD_TEAM_CLOSING || !has(team, device, &rank)
               ? 0
               : bytes_at(team, rank);
}

/* On all its devices, or on none. */
static bool room_make(struct head_core *core, const struct head_team *team)
{
    struct head_comm_place places[WIRE_TEAM_MAX];

    for (uint32_t i = 0; i < team->count; i++) {
        places[i] = (struct head_comm_place){team->device[i], bytes_at(team, i)};
    }
    return head_comm_room(core, HEAD_COMM_TEAM, places, team->count);
}

static bool time_to_open(struct head_core *core, struct head_team *team, uint64_t bytes,
                         bool asked)
{
    team->wanted += bytes;
    if (team->failures > 0 && team->wanted <= TEAM_WANTED_BYTES << team->failures) {
        return false;
    }
    if (!asked && team->wanted <= UNASKED * core->config.team_bytes) {
        return false; /* opening costs its devices a pause, and memory */
    }
    return room_make(core, team);
}

/* Of one host, and with the same NCCL. */
static bool possible(struct head_device *const *devices, uint32_t count)
{
    bool ok = count >= 2 && count <= WIRE_TEAM_MAX;

    for (uint32_t i = 0; ok && i < count; i++) {
        ok = !devices[i]->gone && devices[i]->joined && devices[i]->comm_version != 0 &&
             devices[i]->comm_version == devices[0]->comm_version &&
             devices[i]->kind == devices[0]->kind &&
             strcmp(devices[i]->host, devices[0]->host) == 0 &&
             (i == 0 || devices[i - 1]->index < devices[i]->index);
    }
    return ok;
}

struct head_team *head_team_take(struct head_core *core, struct head_device *const *devices,
                                 uint32_t count, uint64_t bytes, bool asked)
{
    struct head_team *team;

    if (!possible(devices, count)) {
        return NULL;
    }
    team = team_find(core, devices, count);
    team = team != NULL ? team : team_record(core, devices, count);
    if (team == NULL) {
        return NULL;
    }
    team->used = ++core->pair_uses;
    if (team->state == HEAD_TEAM_CLOSED && time_to_open(core, team, bytes, asked)) {
        team_open(core, team);
    }
    return team->state == HEAD_TEAM_OPENING || team->state == HEAD_TEAM_OPEN ? team : NULL;
}

/* ------------------------------------------------------------------------------- broken */

/* It has marked it, or has nothing to believe any more. */
static void decided(struct head_team *team, uint32_t rank)
{
    if (team->state != HEAD_TEAM_BREAKING) {
        return;
    }
    team->decided |= 1u << rank;
    if (team->decided != (1u << team->count) - 1) {
        return;
    }
    team->state = HEAD_TEAM_CLOSED;
    for (uint32_t i = 0; i < team->count; i++) {
        tell(team, i, PLASMON__V1__PAIR_STATE__PAIR_STAGED, NULL);
    }
}

static void team_break(struct head_team *team, bool failed, const char *why)
{
    if (!alive(team)) {
        return;
    }
    if (failed) {
        pl_warn("head", "team %u of %u devices is broken: %s", team->number, team->count,
                why);
        team->failures = (uint32_t)pl_min_u64(team->failures + 1ull, FAILURES_MAX);
    } else {
        pl_info("head", "team %u of %u devices ends: %s", team->number, team->count, why);
    }
    team->state   = HEAD_TEAM_BREAKING;
    team->decided = 0;
    for (uint32_t i = 0; i < team->count; i++) {
        tell(team, i, PLASMON__V1__PAIR_STATE__PAIR_BROKEN, NULL);
    }
    for (uint32_t i = 0; i < team->count; i++) {
        if (team->device[i]->gone) {
            decided(team, i);
        }
    }
}

/*
 * The worker that took part was fenced. What is left of it is its own to do, when the others have
 * marked it, too.
 */
void head_teams_restarted(struct head_core *core, struct head_device *device)
{
    struct head_team *team;
    uint32_t rank;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (team->epoch == 0 || !has(team, device, &rank)) {
            continue;
        }
        if (alive(team)) {
            team_break(team, false, "a worker was restarted");
        } else {
            tell(team, rank,
                 team->state == HEAD_TEAM_CLOSED ? PLASMON__V1__PAIR_STATE__PAIR_STAGED
                                                 : PLASMON__V1__PAIR_STATE__PAIR_BROKEN,
                 NULL);
        }
        decided(team, rank);
    }
}

void head_teams_gone(struct head_core *core, struct head_device *device)
{
    struct head_team *team;
    uint32_t rank;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (has(team, device, &rank)) {
            team_break(team, false, "a device is gone");
            decided(team, rank);
        }
    }
}

/* ------------------------------------------------------------------------------ reports */

/* Some alone may be waiting for those that have not come to it yet. */
static void stalled(struct head_team *team, uint32_t rank, uint64_t order)
{
    team->stalled[rank] = order;
    for (uint32_t i = 0; i < team->count; i++) {
        if (team->stalled[i] != order) {
            return;
        }
    }
    team_break(team, true, "a collective is stuck on all devices");
}

void head_team_report(struct head_core *core, struct head_device *device,
                      const Plasmon__V1__PairReport *report)
{
    struct head_team *team = pl_map_get(&core->teams, report->team);
    uint32_t rank;

    if (team == NULL || team->epoch != report->epoch || !has(team, device, &rank)) {
        return; /* of one that is over */
    }
    if (report->event == PLASMON__V1__PAIR_EVENT__PAIR_DECIDED) {
        decided(team, rank);
        return;
    }
    if (!alive(team)) {
        return;
    }
    switch (report->event) {
    case PLASMON__V1__PAIR_EVENT__PAIR_MADE:
        for (uint32_t i = 1;
             rank == 0 && team->state == HEAD_TEAM_OPENING && i < team->count; i++) {
            tell(team, i, PLASMON__V1__PAIR_STATE__PAIR_ID, &report->id);
        }
        break;
    case PLASMON__V1__PAIR_EVENT__PAIR_OPENED:
        team->bytes[rank] =
            pl_min_u64(pl_max_u64(report->bytes, 1), BYTES_TIMES_MAX * TEAM_BYTES_GUESS);
        break;
    case PLASMON__V1__PAIR_EVENT__PAIR_STALLED:
        stalled(team, rank, report->chunk);
        break;
    default:
        team_break(team, true, report->text);
        break;
    }
}

void head_team_task_new(struct head_core *core, const struct head_task *task)
{
    struct head_team *team = pl_map_get(&core->teams, task->team);

    if (team != NULL) {
        team->tasks++;
    }
}

void head_team_task_over(struct head_core *core, struct head_task *task)
{
    bool opens             = task->kind == PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN;
    struct head_team *team = pl_map_get(&core->teams, task->team);
    uint32_t rank;

    if (team != NULL) {
        PL_CHECK(team->tasks > 0);
        team->tasks--;
    }
    if ((!opens && task->kind != PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE) || team == NULL ||
        team->epoch != task->pair || !alive(team) || !has(team, task->device, &rank)) {
        return;
    }
    if (opens && task->failure != NULL) {
        team_break(team, true, task->failure->text);
        return;
    }
    team->ends |= 1u << rank;
    if (team->ends != (1u << team->count) - 1) {
        return;
    }
    if (team->state == HEAD_TEAM_OPENING) {
        team->state    = HEAD_TEAM_OPEN;
        team->failures = 0;
        pl_info("head", "team %u of %u devices is open", team->number, team->count);
    } else if (team->state == HEAD_TEAM_CLOSING) {
        team->state = HEAD_TEAM_CLOSED;
    }
}

void head_teams_check(const struct head_core *core)
{
    const struct head_team *team;

    PL_CHECK(core->teams.count <= head_team_records_max);
    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        const struct pl_list *pos;
        uint64_t tasks = 0;

        pl_list_for_each(pos, &core->unfinished) {
            tasks += pl_container_of(pos, const struct head_task, order_link)->team ==
                     team->number;
        }
        PL_CHECK(tasks == team->tasks);
        PL_CHECK(team->state == HEAD_TEAM_CLOSED || team->epoch != 0);
    }
}

/* -------------------------------------------------------------------------- checkpoints */

bool head_teams_change(const struct head_core *core)
{
    const struct head_team *team;

    for (size_t at = 0; (team = next_team(core, &at)) != NULL;) {
        if (team->state != HEAD_TEAM_OPEN && team->state != HEAD_TEAM_CLOSED) {
            return true;
        }
    }
    return false;
}

void head_teams_save(const struct head_core *core, struct head_bytes *out)
{
    head_bytes_varint(out, core->teams.count);
    for (uint32_t number = 1; number <= core->teams.count; number++) {
        const struct head_team *team = pl_map_get(&core->teams, number);
        const uint64_t numbers[]     = {team->count,  team->state == HEAD_TEAM_OPEN,
                                        team->epoch,  team->used,
                                        team->wanted, team->failures};

        for (size_t n = 0; n < PL_COUNT(numbers); n++) {
            head_bytes_varint(out, numbers[n]);
        }
        for (uint32_t i = 0; i < team->count; i++) {
            head_bytes_varint(out, team->device[i]->index);
            head_bytes_varint(out, team->bytes[i]);
            head_bytes_varint(out, team->stalled[i]);
        }
    }
}

static void team_load(struct head_core *core, struct head_reader *in)
{
    struct head_team *team = head_alloc(sizeof(*team));

    team->number   = (uint32_t)core->teams.count + 1;
    team->count    = (uint32_t)head_load_below(in, WIRE_TEAM_MAX);
    team->state    = head_load_flag(in) ? HEAD_TEAM_OPEN : HEAD_TEAM_CLOSED;
    team->epoch    = head_load_number(in);
    team->used     = head_load_below(in, core->pair_uses);
    team->wanted   = head_load_number(in);
    team->failures = (uint32_t)head_load_below(in, FAILURES_MAX);
    in->bad |= team->count < 2 || (team->state == HEAD_TEAM_OPEN && team->epoch == 0);
    for (uint32_t i = 0; !in->bad && i < team->count; i++) {
        team->device[i]  = head_device_at(core, (uint32_t)head_load_below(in, UINT32_MAX));
        team->bytes[i]   = head_load_number(in);
        team->stalled[i] = head_load_number(in);
        in->bad |= team->device[i] == NULL ||
                   (i > 0 && team->device[i - 1] != NULL &&
                    team->device[i - 1]->index >= team->device[i]->index);
    }
    if (in->bad || team_find(core, team->device, team->count) != NULL) {
        in->bad = true;
        pl_free(team);
        return;
    }
    PL_CHECK(pl_map_set(&core->teams, team->number, team) == PLASMON_OK);
}

void head_teams_load(struct head_core *core, struct head_reader *in)
{
    size_t count = head_load_count(in);

    in->bad |= count > head_team_records_max;
    for (size_t i = 0; i < count && !in->bad; i++) {
        team_load(core, in);
    }
}
