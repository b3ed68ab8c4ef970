/*
 * Faults that are under way: what ends them when it is due, and how one sees that they are over.
 * Nothing here waits, so that several can be under way, and so that what ends one (a store that is
 * started again) comes in time.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "bench/chaos/chaos.h"

#define MS         UINT64_C(1000000)
#define GIVE_UP_NS (90000 * MS)

/* It counts from now on, and a task that is submitted now is to be done. */
static void ends_now(struct chaos *chaos, struct chaos_fault *fault)
{
    fault->step    = 1;
    fault->from_ns = pl_now_ns();
    chaos_probe(chaos, fault, PLASMON_ANYWHERE);
    chaos_mark(fault, "what ended it was done");
}

static void note_progress(struct chaos *chaos, struct chaos_fault *fault)
{
    if (fault->recovered_ns == 0 &&
        chaos_goes_on(&chaos->cluster, fault->device, fault->incarnation, &fault->phases,
                      &fault->phased)) {
        fault->recovered_ns = fault->phases.at_ns[STORE_PHASE_FIRST];
    }
}

/* A worker's fault: its device goes on, and then the task is done, too. */
static enum chaos_turn device_step(struct chaos *chaos, struct chaos_fault *fault)
{
    note_progress(chaos, fault);
    return fault->probe != NULL       ? chaos_probe_step(chaos, fault)
           : fault->recovered_ns != 0 ? CHAOS_MENDED
                                      : CHAOS_GOES_ON;
}

/*
 * One that misbehaves. It counts from when that was noticed: its limit, and what may finish before,
 * is its own.
 */
static enum chaos_turn culprit_device_step(struct chaos *chaos, struct chaos_fault *fault)
{
    enum chaos_turn turn = chaos_culprit_step(chaos, fault);

    if (fault->worker > 0 &&
        chaos_worker(&chaos->cluster, fault->device) != fault->worker) {
        fault->worker  = 0;
        fault->from_ns = pl_now_ns();
    }
    note_progress(chaos, fault);
    if (fault->recovered_ns != 0 && fault->phased) {
        fault->from_ns = fault->phases.at_ns[STORE_PHASE_NOTICED];
    }
    if (turn == CHAOS_MENDED && fault->step == 0) {
        fault->step = 1;
        chaos_probe(chaos, fault, chaos_number(chaos, fault->device));
        return CHAOS_GOES_ON;
    }
    return turn == CHAOS_MENDED ? device_step(chaos, fault) : turn;
}

static enum chaos_turn host_step(struct chaos *chaos, struct chaos_fault *fault)
{
    uint64_t now_ns = pl_now_ns();

    if (fault->step == 0) {
        chaos_start_store(&chaos->cluster);
        chaos_mark(fault, "the next store is started");
        fault->step   = 1;
        fault->due_ns = now_ns;
    } else if (fault->step == 1 && now_ns >= fault->due_ns) {
        fault->due_ns = now_ns + 20 * MS; /* a question to the head each time */
        if (chaos_watch_devices(&chaos->cluster)) {
            fault->step = 2;
            chaos_mark(fault, "its devices are up at the head, a small task is submitted");
            chaos_probe(chaos, fault, chaos_number(chaos, 0));
            memset(chaos->deaths, 0, sizeof(chaos->deaths)); /* another store counts */
        }
    }
    return fault->step == 2 ? chaos_probe_step(chaos, fault) : CHAOS_GOES_ON;
}

static enum chaos_turn fill_step(struct chaos *chaos, struct chaos_fault *fault)
{
    if (fault->step == 1) {
        return chaos_probe_step(chaos, fault);
    }
    for (uint32_t i = 0; i < fault->fill_count; i++) {
        plasmon_status_t status = plasmon_state(chaos->cluster.client, fault->fill[i]);

        if (status == PLASMON_INPROGRESS) {
            return CHAOS_GOES_ON;
        }
        if (status != PLASMON_OK && status != PLASMON_EDEVMEM) {
            return chaos_wrong(chaos, fault, "an object failed otherwise",
                               plasmon_error(chaos->cluster.client));
        }
    }
    for (uint32_t i = 0; i < fault->fill_count; i++) {
        chaos_let_go(chaos, &fault->fill[i]);
    }
    ends_now(chaos, fault);
    return CHAOS_GOES_ON;
}

static enum chaos_turn client_step(struct chaos *chaos, struct chaos_fault *fault)
{
    const struct chaos_slot *slot = &chaos->cluster.board->slot[fault->device];

    if (fault->kind == CHAOS_CLIENT_STOP && fault->step == 0) {
        if (pl_now_ns() >= fault->due_ns) {
            (void)kill(chaos->cluster.player[fault->device], SIGCONT);
            fault->step         = 1;
            fault->steps_before = atomic_load(&slot->steps);
        }
        return CHAOS_GOES_ON;
    }
    if (fault->kind == CHAOS_CLIENT_KILL) {
        return atomic_load(&slot->ready) > fault->steps_before ? CHAOS_MENDED
                                                               : CHAOS_GOES_ON;
    }
    return atomic_load(&slot->steps) > fault->steps_before ? CHAOS_MENDED : CHAOS_GOES_ON;
}

/* What is started or let go on when it is due; then a task is to be done. */
static enum chaos_turn process_step(struct chaos *chaos, struct chaos_fault *fault)
{
    struct chaos_cluster *cluster = &chaos->cluster;

    if (fault->kind == CHAOS_HEAD_KILL || fault->kind == CHAOS_NOTHING ||
        fault->step == 1) {
        return chaos_probe_step(chaos, fault);
    }
    if (pl_now_ns() < fault->due_ns) {
        return CHAOS_GOES_ON;
    }
    switch (fault->kind) {
    case CHAOS_STORE_KILL:
        chaos_start_store(cluster);
        break;
    case CHAOS_HEAD_STOP:
        (void)kill(cluster->head, SIGCONT);
        break;
    case CHAOS_JOURNAL_KILL:
        chaos_start_redis(cluster);
        break;
    default:
        chaos_relay_set(cluster->relay, CHAOS_RELAY_PASS);
        break;
    }
    ends_now(chaos, fault);
    return CHAOS_GOES_ON;
}

/* It counts from when bytes are under way; where the connection is to be cut, that is done then. */
static enum chaos_turn transfer_step(struct chaos *chaos, struct chaos_fault *fault)
{
    struct chaos_hosts *hosts = &chaos->hosts;
    char why[CHAOS_HOSTS_WHY_MAX];
    bool over;

    if (fault->step == 0 && chaos_hosts_owed(hosts) > 0) {
        if (fault->kind == CHAOS_TRANSFER_CUT) {
            chaos_hosts_cut(hosts);
        }
        fault->step    = 1;
        fault->from_ns = pl_now_ns();
        chaos_mark(fault, "bytes are under way");
    }
    if (!chaos_hosts_look(hosts, &fault->recovered_ns, &over, why)) {
        return chaos_wrong(chaos, fault, "a transfer that was broken", why);
    }
    if (over && fault->step == 0) {
        fault->alone = false; /* no sample */
        chaos_say(&chaos->cluster,
                  "%s: its bytes were there before they were seen under way",
                  chaos_kind_name(fault->kind));
    }
    return over ? CHAOS_MENDED : CHAOS_GOES_ON;
}

static enum chaos_turn step(struct chaos *chaos, struct chaos_fault *fault)
{
    switch (fault->kind) {
    case CHAOS_WORKER_KILL:
    case CHAOS_WORKER_STOP:
        return device_step(chaos, fault);
    case CHAOS_ILLEGAL:
    case CHAOS_ENDLESS:
        return culprit_device_step(chaos, fault);
    case CHAOS_HOST_KILL:
        return host_step(chaos, fault);
    case CHAOS_CLIENT_KILL:
    case CHAOS_CLIENT_STOP:
        return client_step(chaos, fault);
    case CHAOS_FILL:
        return fill_step(chaos, fault);
    case CHAOS_TRANSFER_STALL:
    case CHAOS_TRANSFER_CUT:
    case CHAOS_TRANSFER:
        return transfer_step(chaos, fault);
    default:
        return process_step(chaos, fault);
    }
}

static void note_sample(struct chaos *chaos, const struct chaos_fault *fault)
{
    struct chaos_sample *sample = pl_vec_push(&chaos->tally.samples);
    uint64_t until_ns = fault->recovered_ns != 0 ? fault->recovered_ns : pl_now_ns();

    if (sample == NULL) {
        bench_die("out of host memory");
    }
    *sample = (struct chaos_sample){
        .kind       = fault->kind,
        .at_s       = (double)(fault->began_ns - chaos->began_ns) * 1e-9,
        .alone      = fault->alone,
        .recover_ms = (double)(until_ns - pl_min_u64(fault->from_ns, until_ns)) * 1e-6,
        .phased     = fault->phased,
    };
    chaos_slow_tell(chaos, fault, sample->recover_ms);
    for (int i = 0; i < STORE_PHASES && fault->phased; i++) {
        uint64_t took_ns = store_phase_took(&fault->phases, (enum store_phase)i);

        if (i == STORE_PHASE_NOTICED) {
            took_ns = pl_max_u64(fault->phases.at_ns[i], fault->began_ns) - fault->began_ns;
        }
        sample->phase_ms[i] = (double)took_ns * 1e-6;
    }
}

enum chaos_turn chaos_fault_step(struct chaos *chaos, struct chaos_fault *fault)
{
    enum chaos_turn turn = step(chaos, fault);

    if (turn == CHAOS_GOES_ON && pl_now_ns() - fault->began_ns > GIVE_UP_NS) {
        chaos->tally.hung++;
        return chaos_wrong(chaos, fault, "nothing goes on after it", NULL);
    }
    if (turn == CHAOS_MENDED) {
        fault->active = false;
        if (fault->kind == CHAOS_JOURNAL_KILL) {
            chaos->journal_ns = pl_now_ns();
        } else if (fault->kind == CHAOS_HEAD_KILL || fault->kind == CHAOS_HEAD_STOP) {
            chaos->head_ns = pl_now_ns();
        }
        if (chaos_kind_cost(fault->kind) >= 0) {
            atomic_fetch_add(&chaos->cluster.board->ended[chaos_kind_cost(fault->kind)], 1);
        }
        note_sample(chaos, fault);
        pl_free(fault->fill);
        fault->fill = NULL;
    }
    return turn;
}
