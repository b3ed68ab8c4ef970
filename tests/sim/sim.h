/*
 * A whole cluster in one thread: one head, some workers of one or two hosts, some clients. Time is
 * a number, every delay is drawn from the seed, and a run with the same seed is the same run.
 *
 *   sim_queue.c    events in virtual time, random numbers, what a failed run says
 *   sim_link.c     connections: bytes in order, delays, everything in flight lost when they break;
 *                  frames with headers
 *   sim_net.c      cuts: nothing gets through to or from the head, and nobody is told
 *   sim_memory.c   arenas: fresh memory is noise, freed memory is poison, a use of either is an error at once
 *   sim_sealed.c   what is sealed stays sealed
 *   sim_stream.c   in-order streams of a simulated device
 *   sim_ops.c      struct worker_ops on top of them
 *   sim_pairs.c    pairs: communicators, and what looks after them
 *   sim_worker.c   a worker process: core, link; crash and restart
 *   sim_reports.c  what it reports
 *   sim_store.c    the store's part of its life: stopped, fenced, reaped, started again
 *   sim_node.c     the store process: its session with the head, its death, and the one after it
 *   sim_hosts.c    hosts that die as a whole, are cut off until they are given up, and come back
 *   sim_ways.c     ways between hosts by which no transfer gets on, and what is given up for it
 *   sim_rpc.c      the real libplasmon in the place of a client (in test_clients_sim alone)
 *   sim_limits.c   launches that do not end, and what ending them may cost
 *   sim_begun.c    what a worker says of launches that had not begun when it died
 *   sim_head.c     the head process: the machine, and what it puts out
 *   sim_journal.c  its journal: batches on their way, crashes, and what is left
 *   sim_standby.c  a head that stands still, and the one that takes its place
 *   sim_spill.c    the store's memory and files for what devices have no room for
 *   sim_client.c   a client: sending, answers, reconnecting
 *   sim_calls.c    what it asks for: frames made by hand
 *   sim_mapping.c  its mappings
 *   sim_cluster.c  making, running, breaking and checking the whole
 *
 * What they share is in sim_base.h (time, links), sim_device.h, sim_client.h, sim_process.h
 * (workers, stores) and sim_head.h; here is the whole.
 *
 * The cores, the wire with its checks, the links, tables and timelines are the real ones. What is
 * simulated is what a driver, a kernel of the operating system and a network do.
 *
 * Threads: one. One simulation at a time in a process (the allocator is watched at link time).
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "tests/sim/sim_head.h"

/* What becomes of the second host, where hosts have stores. */
enum sim_host_fault {
    SIM_HOST_DEVICES, /* its store gives up its devices */
    SIM_HOST_DIES,    /* with its store, and nobody says a word */
    SIM_HOST_ANEW,    /* .. and another store of it comes, with new memory */
    SIM_HOST_CUT,     /* it runs on, and the head hears nothing for longer than a lease */
    SIM_HOST_FAULTS,
};

struct sim_config {
    uint64_t seed;
    uint32_t devices;
    uint32_t clients;
    uint32_t run_streams;
    uint32_t queues;       /* of a device, which its streams share; 0: each has its own */
    uint64_t device_bytes; /* 0: plenty */
    enum head_transfer transfer;
    const char *policy;
    uint64_t chain_bytes;   /* as of the head's; 0: nothing here is so large */
    uint64_t lineage_bytes; /* as of the head's */
    uint64_t shadow_bytes;
    uint64_t nccl_bytes;
    uint64_t reach_wait_ms; /* as of the head's; 0: longer than any network is gone here */
    bool peer_capable;
    uint64_t credit;       /* 0: plenty */
    uint32_t places_few;   /* head_places_few; 0: as it is */
    uint32_t gate_points;  /* as of the head's; not with a journal */
    uint32_t team_records; /* head_team_records_max; 0: the default */
    uint32_t window;       /* 0: the default */
    uint32_t retries;
    /* Faults: how many at most, and the chance a step, in millionths. */
    uint32_t crashes_max;
    uint32_t crash_millionth;
    uint32_t breaks_max;
    uint32_t break_millionth;
    bool library; /* clients are processes with the real libplasmon, which a test makes */
    uint32_t cut_lease_permille; /* of the cuts last longer than the lease of a session */
    bool journal;                /* the head writes one, and may crash */
    uint32_t head_crashes_max;
    uint32_t head_crash_millionth;
    uint32_t head_stops_max; /* it stands still, and another one takes its place */
    uint64_t spill_memory;   /* of the host; 0: nothing is spilled */
    uint64_t slab_piece; /* so much more of it can be used at a time; 0: all at once .. */
    bool slab_short;     /* .. and there is no more after the second time */
    uint32_t write_back; /* percent of a device; 0: nothing is copied ahead of need */
    bool on_demand;      /* nothing is brought back before its turn */
    uint64_t spill_files;
    uint32_t spill_full_permille; /* of the writes find no room */
    /* the store is killed at something that it was asked, and another one goes on */
    uint32_t spill_deaths_max;
    uint32_t pair_trouble_millionth; /* a communicator fails, an operation */
    uint32_t gone_max;               /* devices that do not come back */
    uint32_t gone_millionth;
    /* the upper half of the devices; when one of these does not come back, none does */
    bool second_host;
    enum sim_host_fault host_fault; /* with second_host and stores */
    /*
     * with second_host: it is drained first, and goes when nothing lies there alone, or it took too
     * long
     */
    bool drains;
    bool replicas; /* what is put is to be in two places */
    bool patient;  /* .. and no device is lost before all of it is */
    bool limits;   /* some tasks do not end, or have a limit, or are cancelled by force */
    uint32_t cuts_max; /* of the network between the head and somebody */
    uint32_t cut_millionth;
    uint32_t way_cuts_max; /* of ways between hosts, with reach_wait_ms and second_host */
    uint32_t way_cut_millionth;
    bool ways_long; /* most of these are for longer than reach_wait_ms */
    /* they start, watch and fence their workers; else a crash is all there is */
    bool stores;
    uint32_t store_deaths_max;
    /* it may be in trouble before it has been welcomed for the first time */
    bool store_early;
    uint32_t stops_max; /* of workers and whole hosts that stand still */
    uint32_t stop_millionth;
    uint32_t check_every; /* steps between checks of the head's invariants; 0: never */
};

struct sim_event {
    uint64_t at_ns;
    uint64_t serial;
    sim_fn fn;
    void *user;
    uint64_t arg;
    void *data;
};

struct sim {
    struct sim_config config;
    uint64_t random;
    uint64_t late_random; /* for words that are late: all else is drawn as without them */
    uint64_t now_ns;
    uint64_t tick_ns; /* when the head last heard the time */
    uint64_t steps;
    uint64_t event_serial;
    struct pl_vec events; /* struct sim_event, a heap */

    struct head_core *head;
    struct wire_arena head_arena;
    struct sim_head head_process; /* `head` is the core in there */
    struct sim_old_head old_head;

    struct sim_worker workers[SIM_DEVICES_MAX];
    struct sim_node nodes[SIM_HOSTS_MAX];
    /* what others see of devices that were given up */
    struct sim_worker ghosts[SIM_GHOSTS_MAX];
    uint32_t ghost_count;
    bool host_lost; /* it has met its fate */
    struct sim_way ways[SIM_HOSTS_MAX][SIM_HOSTS_MAX];
    uint32_t way_cuts;
    uint32_t way_deaths; /* of workers, of being told to give up */
    uint64_t ways_ns;    /* all ways are there from then on; 0: they always were */
    uint32_t owner_of[SIM_NUMBERS_MAX]; /* of a number, the last one */
    struct sim_client clients[SIM_CLIENTS_MAX];
    struct store_timeline *timelines[SIM_DEVICES_MAX + SIM_GHOSTS_MAX];
    struct store_table *tables[SIM_DEVICES_MAX + SIM_GHOSTS_MAX];
    struct store_pins *readers[STORE_READER_MAX];
    uint32_t host_device_of[SIM_NUMBERS_MAX];
    /* of whoever decodes just now on the workers' and clients' side */
    struct wire_arena arena;

    uint32_t crash_count;
    uint64_t combined; /* functions that read where their arguments lie */
    uint64_t together; /* reductions that teams have done */
    uint64_t alone;    /* parts of such that a device has done by itself */
    uint32_t gone_count;
    bool drain_begun; /* of the second host .. */
    bool drained;     /* .. and it went with nothing that was not elsewhere */
    uint32_t break_count;
    uint32_t fence_count;
    uint32_t cut_count;
    uint32_t stop_count;
    uint32_t store_death_count;
    uint64_t met[SIM_CELL_COUNT];
    uint32_t sends_at_once;    /* at most, by one device, to different ones */
    struct pl_vec crash_times; /* uint64_t; of fences too */
    struct pl_map lasting;     /* task key -> microseconds that its kernel takes */
    struct pl_map losses;      /* sim_losses.c: task -> what crashes may have cost it */
    uint32_t own_losses;       /* the same, of the head's own launches */
    struct pl_vec hosts;       /* struct sim_host * */
    struct pl_map files;       /* number -> struct sim_file: of spilled buffers */
    uint64_t spill_op_last;
    struct pl_map spill_answers; /* id -> struct sim_spill_answer, of all that was done */
    uint64_t spill_free_ns;      /* the store's thread is busy until then */
    uint64_t spill_life; /* of the store: what an earlier one was about to do is not done */
    uint64_t spill_down_until_ns;
    uint64_t spill_hellos;       /* to heads: what was said before is not for this store */
    bool spill_joined;           /* the last one was of this store, to this head */
    uint64_t spill_move;         /* store_spill_index.move */
    struct sim_host *spill_slab; /* NULL: none was made */
    uint32_t spill_deaths;
    bool spill_goes_on; /* the store is another one: the next thing may have any number */
    uint64_t slab_moves;
    struct pl_vec comms;  /* struct sim_comm *; they stay, for an end may be named late */
    struct pl_map ran_on; /* client task -> device + 1 of its launch, both clients' */

    bool trace;
    bool failed;
    char failure[4096];
};

plasmon_status_t sim_create(const struct sim_config *config, struct sim **out_sim);
void sim_destroy(struct sim *sim);
/* One event. false: none was left but the passing of time. */
bool sim_step(struct sim *sim);
/* Until done(user), or a failure, or a deadlock (which is a failure). */
bool sim_run_until(struct sim *sim, bool (*done)(void *user), void *user);
/* Until nothing happens any more. */
void sim_settle(struct sim *sim);
void sim_check(struct sim *sim);       /* invariants, now */
void sim_check_empty(struct sim *sim); /* every ref was released: nothing may be left */
struct sim_worker *sim_worker_of(struct sim *sim,
                                 uint32_t device); /* by the head's index */
/* What crashes so far may have cost this task (by its key; 0: one of the head's own launches). */
enum { SIM_LOSS_BEGUN = 1, SIM_LOSS_CONSUMED = 2 };
uint32_t sim_losses_of(const struct sim *sim, uint64_t task);
void sim_losses_init(struct sim_worker *worker);
void sim_losses_note(struct sim_worker *worker, const Plasmon__V1__Launch *launch);
void sim_losses_crash(struct sim_worker *worker); /* its streams have stopped */
uint64_t sim_losses_task(const struct sim_worker *worker, uint64_t seq); /* its key, or 0 */
/* Key of ran_on and losses. */
uint64_t sim_task_key(const struct sim_client *client, uint64_t task);
/* sim_spill.c: the store is asked */
void sim_spill_op(struct sim *sim, const struct head_spill_op *op);
void sim_spill_look_again(struct sim *sim); /* the head went on */
void sim_spill_finish(struct sim *sim);
/* Who waits for what. */
void sim_describe(struct sim *sim, struct pl_str *out);

#endif
