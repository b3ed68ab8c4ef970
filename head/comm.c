#include "head/comm.h"

#include "head/core_int.h"

/* Of a device, in and out. Each has queues on the device, of which there are few (docs/transfers.md). */
static const uint32_t counts_max[] = {[HEAD_COMM_PAIR] = 16, [HEAD_COMM_TEAM] = 4};

/* One of them, while the book is read. */
struct comm {
    enum head_comm_kind kind;
    struct head_pair *pair;
    struct head_team *team;
};
struct reader {
    size_t at[2]; /* in either map */
};

static bool next(const struct head_core *core, struct reader *reader, struct comm *out)
{
    uint64_t key;
    void *item;

    if (pl_map_next(&core->pairs, &reader->at[0], &key, &item)) {
        *out = (struct comm){.kind = HEAD_COMM_PAIR, .pair = item};
        return true;
    }
    if (pl_map_next(&core->teams, &reader->at[1], &key, &item)) {
        *out = (struct comm){.kind = HEAD_COMM_TEAM, .team = item};
        return true;
    }
    return false;
}

static bool leaves(const struct comm *comm)
{
    return comm->kind == HEAD_COMM_PAIR ? comm->pair->leaving : comm->team->leaving;
}

static void leave(const struct comm *comm, bool leaving)
{
    if (comm->kind == HEAD_COMM_PAIR) {
        comm->pair->leaving = leaving;
    } else {
        comm->team->leaving = leaving;
    }
}

/* 0: nothing. */
static uint64_t taken(const struct comm *comm, const struct head_device *device)
{
    return comm->kind == HEAD_COMM_PAIR ? head_pair_bytes(comm->pair, device)
                                        : head_team_bytes(comm->team, device);
}

static bool open(const struct comm *comm)
{
    return comm->kind == HEAD_COMM_PAIR ? comm->pair->state == HEAD_PAIR_OPEN
                                        : comm->team->state == HEAD_TEAM_OPEN;
}

static uint64_t used(const struct comm *comm)
{
    return comm->kind == HEAD_COMM_PAIR ? comm->pair->used : comm->team->used;
}

/* What lies on a device with one more of that kind, and who could go first; without those that leave. */
struct sheet {
    uint32_t count; /* of the kind */
    uint32_t all;
    uint64_t bytes;
    struct comm oldest; /* of the kind */
    struct comm oldest_of_all;
    bool some, some_of_all;
};

static void sheet_read(const struct head_core *core, enum head_comm_kind kind,
                       const struct head_comm_place *place, struct sheet *out)
{
    struct reader reader = {.at = {0}};
    struct comm comm;

    *out = (struct sheet){.count = 1, .all = 1, .bytes = place->bytes};
    while (next(core, &reader, &comm)) {
        uint64_t bytes = leaves(&comm) ? 0 : taken(&comm, place->device);

        if (bytes == 0) {
            continue;
        }
        out->all++;
        out->count += comm.kind == kind;
        out->bytes += bytes;
        if (!open(&comm)) {
            continue;
        }
        if (!out->some_of_all || used(&comm) < used(&out->oldest_of_all)) {
            out->oldest_of_all = comm;
            out->some_of_all   = true;
        }
        if (comm.kind == kind && (!out->some || used(&comm) < used(&out->oldest))) {
            out->oldest = comm;
            out->some   = true;
        }
    }
}

/* Marks who has to leave for it. */
static bool place_make(const struct head_core *core, enum head_comm_kind kind,
                       const struct head_comm_place *place)
{
    struct sheet sheet;

    for (;;) {
        sheet_read(core, kind, place, &sheet);
        if (sheet.count > counts_max[kind]) {
            if (!sheet.some) {
                return false;
            }
            leave(&sheet.oldest, true);
        } else if (sheet.all > 1 && sheet.bytes > core->config.nccl_bytes) {
            if (!sheet.some_of_all) {
                return false;
            }
            leave(&sheet.oldest_of_all, true);
        } else {
            return true;
        }
    }
}

/* Of all that are marked, which stay after all if there is no room. */
static void settle(struct head_core *core, bool room)
{
    struct reader reader = {.at = {0}};
    struct comm comm;

    while (next(core, &reader, &comm)) {
        if (!leaves(&comm)) {
            continue;
        }
        leave(&comm, false);
        if (room && comm.kind == HEAD_COMM_PAIR) {
            head_pair_close(core, comm.pair);
        } else if (room) {
            head_team_close(core, comm.team);
        }
    }
}

bool head_comm_room(struct head_core *core, enum head_comm_kind kind,
                    const struct head_comm_place *places, uint32_t count)
{
    bool room = true;

    for (uint32_t i = 0; room && i < count; i++) {
        room = place_make(core, kind, &places[i]);
    }
    settle(core, room);
    return room;
}
