/*
 * Who waits for what in a cluster, put together from what the head and its workers say (the status
 * with waits). doctor_say.c says it.
 *
 * For each of the oldest tasks of clients the chain of what it waits for is followed to its end:
 * from a launch to one that it comes after and that is not done, from one that its worker has not
 * come to yet to what that worker is at. Numbers fall along the chain, so it ends, and there is the
 * cause: something runs, or waits for memory, for a reader, for code, or nobody answers. For each
 * cause there is a sentence about what to do.
 */
#include "client/doctor.h"

#include "wire/wire.h"

enum {
    CHAIN_MAX       = 64,   /* steps; they end before */
    RUNS_BRIEFLY_MS = 1000, /* nobody is advised to end what has run for less */
};

/* -------------------------------------------------------------------- looking things up */

static const Plasmon__V1__LaunchWait *launch_at(const Plasmon__V1__Waits *waits,
                                                uint32_t device, uint64_t seq)
{
    for (size_t i = 0; i < waits->n_launches; i++) {
        if (waits->launches[i]->device == device && waits->launches[i]->seq == seq) {
            return waits->launches[i];
        }
    }
    return NULL;
}

/* What the worker of that device is at: its oldest launch before this one. */
static const Plasmon__V1__LaunchWait *launch_before(const Plasmon__V1__Waits *waits,
                                                    uint32_t device, uint64_t seq)
{
    const Plasmon__V1__LaunchWait *oldest = NULL;

    for (size_t i = 0; i < waits->n_launches; i++) {
        const Plasmon__V1__LaunchWait *launch = waits->launches[i];

        if (launch->device == device && launch->seq < seq &&
            (oldest == NULL || launch->seq < oldest->seq)) {
            oldest = launch;
        }
    }
    return oldest;
}

static const Plasmon__V1__TaskWait *task_at(const Plasmon__V1__Waits *waits,
                                            uint32_t device, uint64_t seq)
{
    for (size_t i = 0; i < waits->n_tasks; i++) {
        if (waits->tasks[i]->device == device && waits->tasks[i]->seq == seq) {
            return waits->tasks[i];
        }
    }
    return NULL;
}

const Plasmon__V1__Device *doctor_device(const Plasmon__V1__StatusReply *reply,
                                         uint32_t index)
{
    for (size_t i = 0; i < reply->n_devices; i++) {
        if (reply->devices[i]->index == index) {
            return reply->devices[i];
        }
    }
    return NULL;
}

bool doctor_silent(const Plasmon__V1__Waits *waits, uint32_t device)
{
    for (size_t i = 0; i < waits->n_silent; i++) {
        if (waits->silent[i] == device) {
            return true;
        }
    }
    return false;
}

/* -------------------------------------------------------------------- following a chain */

static struct doctor_step step_at(const Plasmon__V1__Waits *waits, uint32_t device,
                                  uint64_t seq)
{
    return (struct doctor_step){.device = device,
                                .seq    = seq,
                                .task   = task_at(waits, device, seq),
                                .launch = launch_at(waits, device, seq)};
}

/*
 * Launches are sent in order: the copy for spilling that keeps this one, and all before it that
 * have not been sent. NULL: there is none.
 */
static const Plasmon__V1__TaskWait *held_before(const Plasmon__V1__Waits *waits,
                                                const struct doctor_step *step)
{
    const Plasmon__V1__TaskWait *first = NULL;

    for (size_t i = 0; i < waits->n_tasks && step->task != NULL && !step->task->sent; i++) {
        const Plasmon__V1__TaskWait *task = waits->tasks[i];

        if (task->device == step->device && task->seq < step->seq && !task->sent &&
            (first == NULL || task->seq < first->seq)) {
            first = task;
        }
    }
    return first != NULL && first->hold != PLASMON__V1__TASK_HOLD__HOLD_NONE ? first : NULL;
}

/* It has not been sent, and what it waits for is no launch. */
static bool is_held(const struct doctor_step *step)
{
    return step->task != NULL && (step->task->hold == PLASMON__V1__TASK_HOLD__HOLD_SLAB ||
                                  step->task->hold == PLASMON__V1__TASK_HOLD__HOLD_PLACE ||
                                  step->task->hold == PLASMON__V1__TASK_HOLD__HOLD_FILE);
}

/* Does it wait for another launch? Then that is the next step. */
static bool step_next(const Plasmon__V1__Waits *waits, struct doctor_step *io_step)
{
    const Plasmon__V1__TaskWait *held = held_before(waits, io_step);
    const Plasmon__V1__LaunchWait *before;
    uint64_t point = 0;

    if (held != NULL) {
        *io_step = step_at(waits, held->device, held->seq);
        return true;
    }
    if (is_held(io_step) || doctor_silent(waits, io_step->device)) {
        return false; /* of one that is silent, what it said is old */
    }
    if (io_step->launch != NULL && io_step->launch->point != 0) {
        point = io_step->launch->point;
    } else if (io_step->launch == NULL && io_step->task != NULL &&
               io_step->task->n_after > 0) {
        point = io_step->task->after[0];
    }
    if (point != 0) {
        *io_step = step_at(waits, wire_point_device(point), wire_point_seq(point));
        return true;
    }
    if (io_step->launch != NULL &&
        io_step->launch->why != PLASMON__V1__WAIT_WHY__WAIT_ROOM &&
        io_step->launch->why != PLASMON__V1__WAIT_WHY__WAIT_QUIET &&
        io_step->launch->why != PLASMON__V1__WAIT_WHY__WAIT_CODE &&
        io_step->launch->why != PLASMON__V1__WAIT_WHY__WAIT_ENDING) {
        return false;
    }
    before = launch_before(waits, io_step->device, io_step->seq);
    if (before == NULL) {
        return false;
    }
    *io_step = step_at(waits, io_step->device, before->seq);
    return true;
}

/* ------------------------------------------------------------------------------- causes */

static const struct doctor_cause causes[] = {
    [PLASMON__V1__WAIT_WHY__WAIT_NONE] = {"soon", "is about to go", ""},
    [PLASMON__V1__WAIT_WHY__WAIT_RUNS] =
        {"runs", "runs",
         "a kernel that does not end? plasmon_cancel_force(), or time_limit_ms in the "
         "call, "
         "ends it"},
    [PLASMON__V1__WAIT_WHY__WAIT_POINT] = {"point", "waits for another launch", ""},
    [PLASMON__V1__WAIT_WHY__WAIT_HALF] =
        {"transfer", "moves bytes",
         "the other side has not come to its half, cannot be reached, or the network is "
         "slow: `plasmon transfers` shows rates and stalls, the logs of the stores why; "
         "what is stuck is ended and goes another way, or fails (plasmon-head "
         "--reach-wait)"},
    [PLASMON__V1__WAIT_WHY__WAIT_PUBLISH] = {"publish",
                                             "waits for another device to come to a launch",
                                             ""},
    [PLASMON__V1__WAIT_WHY__WAIT_ROOM]    = {"room", "waits until fewer are on its device",
                                             ""},
    [PLASMON__V1__WAIT_WHY__WAIT_MEMORY] =
        {"memory", "waits for device memory",
         "release refs and end mappings (plasmon_map) that are not needed, or use smaller "
         "blocks or more devices; it fails with EDEVMEM when nothing is left that could "
         "free some"},
    [PLASMON__V1__WAIT_WHY__WAIT_READERS] =
        {"readers", "waits for clients that read what it overwrites",
         "end the mapping (plasmon_unmap)"},
    [PLASMON__V1__WAIT_WHY__WAIT_CODE] =
        {"code",
         "waits for its function to be compiled and loaded, or prepared (of a copy: for "
         "its "
         "host memory to be page-locked)",
         "that happens when what is on the device is over (of a copy: in a worker that "
         "follows a dead one; up to a quarter of a second a GiB)"},
    [PLASMON__V1__WAIT_WHY__WAIT_QUIET] =
        {"quiet",
         "waits until nothing is on its device: a recorded graph is made ready, a "
         "communicator (NCCL) is opened or ended, or a map is new",
         "that happens when what runs there is over"},
    [PLASMON__V1__WAIT_WHY__WAIT_PAIR] =
        {"pair", "waits for its communicator (NCCL)",
         "it is opened or ended; what is stuck goes by the host route"},
    [PLASMON__V1__WAIT_WHY__WAIT_ENDING] = {"ending",
                                            "waits for a launch that is being ended",
                                            "its worker is replaced within seconds"},
    [PLASMON__V1__WAIT_WHY__WAIT_BEHIND] = {"behind",
                                            "its worker has not come to, and has nothing "
                                            "else to do",
                                            "ask again"},
    [PLASMON__V1__WAIT_WHY__WAIT_STORE] =
        {"store", "waits for its host's plasmon-store to keep new device memory",
         "it goes on when that store runs again, or another one in its place: `plasmon "
         "status`"},
};
/* Nothing to do about it. */
static const struct doctor_cause cause_briefly = {"runs", "runs", ""};
static const struct doctor_cause cause_nobody  = {
     "runs", "runs",
     "its client has ended, or what was lost is made again: what nobody needs is ended by "
      "force when it has been the oldest of its device for half a minute"};
static const struct doctor_cause cause_down = {
    "worker", "has no worker now",
    "its store starts another one; if it stays so, is that store up (`plasmon status`), "
    "and what does its log say?"};
static const struct doctor_cause cause_expected = {
    "device", "waits for a device: no worker has come yet to the one that it is for",
    "what a lost host took along is made again when its store or another one comes: start "
    "one with `plasmon start --address`; it fails when none comes within a minute"};
static const struct doctor_cause cause_gone   = {"gone", "is on a device that is gone", ""};
static const struct doctor_cause cause_silent = {
    "silent", "is on a device whose worker does not answer",
    "it is stopped, or stuck in a call of the driver; its store ends it when its lease is "
    "over (--worker-lease, 30 s), and another one goes on"};
static const struct doctor_cause cause_sent = {
    "worker", "its worker has not said anything about",
    "if it stays so, look at the log of its worker"};

/* Of copies for spilling that have not been sent (TaskHold). */
static const struct doctor_cause holds[] = {
    [PLASMON__V1__TASK_HOLD__HOLD_NONE] = {"behind", "", ""},
    [PLASMON__V1__TASK_HOLD__HOLD_SLAB] =
        {"slab", "waits until its host's store has made the memory for spilling",
         "that is done once and takes seconds for tens of GiB; if it stays so, is that "
         "store up (`plasmon status`)?"},
    [PLASMON__V1__TASK_HOLD__HOLD_PLACE] =
        {"place", "waits for a place in the host memory for spilling",
         "it has one when the copies before it and the store's writes are over; is the "
         "disk slow or full? More --spill-memory, another --spill-dir, or refs that are "
         "released help"},
    [PLASMON__V1__TASK_HOLD__HOLD_FILE] =
        {"file", "waits for its host's store, which is at its bytes: a file",
         "if it stays so, look at the disk of --spill-dir, and whether that store is up "
         "(`plasmon status`)"},
    [PLASMON__V1__TASK_HOLD__HOLD_TURN]  = {"turn",
                                            "waits until what is before it on its device "
                                             "is over",
                                            ""},
    [PLASMON__V1__TASK_HOLD__HOLD_QUEUE] = {"queue",
                                            "waits for another copy, whose place is first",
                                            ""},
};

const struct doctor_cause *doctor_hold(const Plasmon__V1__TaskWait *task)
{
    return (unsigned)task->hold < PL_COUNT(holds) ? &holds[task->hold] : &holds[0];
}

static const struct doctor_cause *cause_running(const struct doctor_step *end)
{
    if (end->launch->since_ms < RUNS_BRIEFLY_MS) {
        return &cause_briefly;
    }
    return end->task != NULL && end->task->task == 0 && end->task->function != 0
               ? &cause_nobody
               : &causes[PLASMON__V1__WAIT_WHY__WAIT_RUNS];
}

static const struct doctor_cause *cause_of(const Plasmon__V1__StatusReply *reply,
                                           const struct doctor_step *end)
{
    const Plasmon__V1__Device *device = doctor_device(reply, end->device);

    if (is_held(end)) {
        return doctor_hold(end->task); /* before its worker has anything to do with it */
    }
    if (doctor_silent(reply->waits, end->device)) {
        return &cause_silent;
    }
    if (device != NULL && device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE) {
        return &cause_gone;
    }
    if (device != NULL &&
        device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_ANNOUNCED) {
        return &cause_expected;
    }
    if (device != NULL && !device->alive) {
        return &cause_down;
    }
    if (end->launch == NULL) {
        return end->task == NULL ? &cause_sent
                                 : &causes[PLASMON__V1__WAIT_WHY__WAIT_BEHIND];
    }
    if (end->launch->why == PLASMON__V1__WAIT_WHY__WAIT_RUNS) {
        return cause_running(end);
    }
    return (unsigned)end->launch->why < PL_COUNT(causes) ? &causes[end->launch->why]
                                                         : &causes[0];
}

struct doctor_finding doctor_find(const Plasmon__V1__StatusReply *reply,
                                  const Plasmon__V1__TaskWait *task)
{
    struct doctor_finding out = {.task = step_at(reply->waits, task->device, task->seq)};

    out.end = out.task;
    while (out.steps < CHAIN_MAX && step_next(reply->waits, &out.end)) {
        out.steps++;
    }
    out.cause = cause_of(reply, &out.end);
    return out;
}
