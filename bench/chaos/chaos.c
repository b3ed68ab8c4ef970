/*
 * `plasmon bench chaos`: faults of all kinds at random moments, on a cluster of its own whose
 * clients know what they must read.
 *
 * Kinds come in a shuffled order, round after round, so that a short run sees each; up to two are
 * under way at a time, where that can be told apart. When the time is over what is under way is
 * mended, the clients end their graphs, and the cluster is ended as an operator would, which must
 * go well, too.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/alloc.h"
#include "bench/chaos/chaos.h"

#define MS          UINT64_C(1000000)
#define STUCK_NS    (90000 * MS) /* without a step of a client */
#define END_NS      (90000 * MS) /* for clients to end their graphs */
#define GRACE_NS    (2000 * MS)  /* for all that, when somebody wants it ended */
#define COUNT_NS    (500 * MS)
#define TICK_NS     1000000
#define ALONE_OF    3 /* one of so many faults may have another beside it */
#define PAUSE_MS    400
#define BOARD_FD    3
#define CLIENTS_MAX ((uint32_t)CHAOS_CLIENTS_MAX)

struct chaos_options {
    uint32_t seconds, clients, cpu_devices, lineage_mib, play;
    const char *seed, *only, *gpus, *device_memory, *spares, *json, *plot;
    bool strict, no_sources, keep, standby;
};

#define OPTION(field) offsetof(struct chaos_options, field)
static const struct cli_option options[] = {
    {"--seconds", "N", CLI_COUNT, OPTION(seconds), "for how long faults come [60]"},
    {"--seed", "N", CLI_TEXT, OPTION(seed),
     "of programs and faults; their moments are the machine's [the clock]"},
    {"--only", "KINDS", CLI_TEXT, OPTION(only),
     "only these faults: worker-kill,worker-stop,illegal,endless,store-kill,host-kill,"
     "head-kill,head-stop,journal-kill,client-kill,client-stop,fill,partition,hold,"
     "transfer-stall,transfer-cut,transfer,nothing [all]"},
    {"--clients", "N", CLI_COUNT, OPTION(clients), "processes that play programs [3]"},
    {"--gpus", "N|none", CLI_TEXT, OPTION(gpus), "GPUs [all of this machine, up to 8]"},
    {"--cpu-devices", "N", CLI_COUNT, OPTION(cpu_devices), "without GPUs [2]"},
    {"--device-memory", "BYTES", CLI_TEXT, OPTION(device_memory),
     "of each device; suffix K, M, G [128M; of a GPU 2G]"},
    {"--spare-workers", "WHICH", CLI_TEXT, OPTION(spares),
     "of plasmon-store: none, process or context [none]"},
    {"--lineage-mib", "MIB", CLI_COUNT, OPTION(lineage_mib),
     "plasmon-head --lineage-bytes; 0: none [64]"},
    {"--standby", NULL, CLI_FLAG, OPTION(standby),
     "beside each head another one stands by, with a lease of 1 s, and takes over; needs "
     "redis-server"},
    {"--no-sources", NULL, CLI_FLAG, OPTION(no_sources),
     "no functions in source text, which each new worker compiles or loads again"},
    {"--strict", NULL, CLI_FLAG, OPTION(strict), "fail when a recovery target is missed"},
    {"--json", "FILE", CLI_OUTPUT, OPTION(json), "write the results as JSON"},
    {"--plot", "FILE", CLI_OUTPUT, OPTION(plot), "draw recovery times as SVG"},
    {"--keep", NULL, CLI_FLAG, OPTION(keep),
     "the folder with the logs, when all went well, too"},
    {"--play", "SLOT", CLI_COUNT, OPTION(play), "be a client of it; chaos starts these"},
};

static int run(int argc, char **argv);
const struct cli_command bench_chaos = {
    .name    = "bench chaos",
    .summary = "faults of all kinds beside programs with known results",
    .usage   = "[options]",
    .text = "On a cluster of its own; docs/failure.md says what must hold. Exit status 1: "
            "something was lost or "
            "wrong, or hung.",
    .options      = options,
    .option_count = PL_COUNT(options),
    .run          = run,
};

uint64_t chaos_draw(struct chaos *chaos, uint64_t bound)
{
    return stress_random(&chaos->random) % bound;
}

uint64_t chaos_sum_at(const struct chaos_board *board, size_t offset)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < CHAOS_CLIENTS_MAX; i++) {
        const char *slot = (const char *)&board->slot[i];

        sum += atomic_load((const _Atomic uint64_t *)(const void *)(slot + offset));
    }
    return sum;
}

/* ---------------------------------------------------------------------- what is to come */

static void leave_out(struct chaos *chaos, enum chaos_kind kind, const char *why)
{
    if (chaos->kinds >> kind & 1) {
        chaos->kinds &= ~(1u << kind);
        chaos->without[kind] = why;
    }
}

/* false: --only names what there is not. */
static bool choose_kinds(struct chaos *chaos, const char *only)
{
    uint32_t length = only != NULL ? (uint32_t)strlen(only) : 0, known = 0;

    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        bool wanted = only == NULL || cli_list_has(only, chaos_kind_name(i));

        chaos->kinds |= (uint32_t)wanted << i;
        known += wanted ? (uint32_t)strlen(chaos_kind_name(i)) + 1 : 0;
    }
    return only == NULL || (chaos->kinds != 0 && known == length + 1);
}

static void prepare_sources(struct chaos *chaos, bool wanted)
{
    static char why[256] = "--no-sources";

    if (wanted && chaos_prepare_functions(&chaos->cluster, why)) {
        chaos->cluster.board->sources = true;
        return;
    }
    leave_out(chaos, CHAOS_ILLEGAL, why);
    leave_out(chaos, CHAOS_ENDLESS, why);
}

static void prepare_hosts(struct chaos *chaos)
{
    static char why[CHAOS_HOSTS_WHY_MAX];
    const uint32_t theirs =
        1u << CHAOS_TRANSFER_STALL | 1u << CHAOS_TRANSFER_CUT | 1u << CHAOS_TRANSFER;

    if ((chaos->kinds & theirs) != 0 &&
        !chaos_hosts_start(&chaos->cluster, &chaos->hosts, why)) {
        leave_out(chaos, CHAOS_TRANSFER_STALL, why);
        leave_out(chaos, CHAOS_TRANSFER_CUT, why);
        leave_out(chaos, CHAOS_TRANSFER, why);
    }
}

/* ------------------------------------------------------------------------------ looking */

/* Counters of the head, which begin anew with it: what they grow by is added up. */
static void count(struct chaos *chaos)
{
    struct chaos_tally *tally = &chaos->tally;
    uint64_t again, tasks, bytes;
    char *json;

    if (plasmon_status_json(chaos->cluster.client, &json) != PLASMON_OK) {
        return; /* it is down: next time */
    }
    again = chaos_json_number(json, "", "tasks_again");
    tasks = chaos_json_number(json, "", "rebuilt_tasks");
    bytes = chaos_json_number(json, "", "rebuilt_bytes");
    free(json);
    tally->redone += again > chaos->last_again ? again - chaos->last_again : 0;
    tally->rebuilt_tasks +=
        tasks > chaos->last_rebuilt_tasks ? tasks - chaos->last_rebuilt_tasks : 0;
    tally->rebuilt_bytes +=
        bytes > chaos->last_rebuilt_bytes ? bytes - chaos->last_rebuilt_bytes : 0;
    chaos->last_again         = again;
    chaos->last_rebuilt_tasks = tasks;
    chaos->last_rebuilt_bytes = bytes;
}

static bool fail(struct chaos *chaos, const char *text)
{
    if (chaos->tally.text[0] == '\0') {
        (void)snprintf(chaos->tally.text, sizeof(chaos->tally.text), "%s", text);
    }
    return false;
}

/* Clients and daemons that ended though nobody ended them. */
static bool all_well(struct chaos *chaos)
{
    struct chaos_cluster *cluster = &chaos->cluster;
    const char *who               = chaos_who_ended(cluster);

    who = who != NULL ? who : chaos_hosts_who_ended(&chaos->hosts);
    if (who != NULL) {
        chaos->tally.wrong++;
        return fail(chaos, who);
    }
    for (uint32_t i = 0; i < cluster->config.clients; i++) {
        int status;

        if (atomic_load(&cluster->board->slot[i].failed)) {
            return fail(chaos, cluster->board->slot[i].text);
        }
        if (cluster->player[i] > 0 && chaos_has_ended(cluster->player[i], &status)) {
            cluster->player[i] = 0;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                chaos->tally.wrong++;
                return fail(chaos, "a client ended; its log says why");
            }
        }
    }
    return true;
}

/* Do clients come along at all? */
static bool comes_along(struct chaos *chaos, uint64_t *io_steps)
{
    uint64_t steps = CHAOS_SUM(chaos->cluster.board, steps), now_ns = pl_now_ns();

    if (steps != *io_steps || chaos->progress.moved_ns == 0) {
        *io_steps                = steps;
        chaos->progress.moved_ns = now_ns;
    }
    if (now_ns - chaos->progress.moved_ns < STUCK_NS) {
        return true;
    }
    chaos->tally.hung++;
    return fail(chaos, "no client has done a step for 90 s");
}

static void tick(void)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};

    (void)nanosleep(&pause, NULL);
}

/* ------------------------------------------------------------------------------- faults */

/* Kinds in the order in which they come. */
struct order {
    enum chaos_kind kind[CHAOS_KINDS];
    uint32_t count;
};

static void shuffle(struct chaos *chaos, struct order *order)
{
    order->count = 0;
    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        if (chaos->kinds >> i & 1) {
            uint32_t at = (uint32_t)chaos_draw(chaos, order->count + 1);

            order->kind[order->count++] = order->kind[at];
            order->kind[at]             = (enum chaos_kind)i;
        }
    }
}

/* The first in the order that can be now; it is taken out. */
static void begin_one(struct chaos *chaos, struct order *order,
                      struct chaos_fault faults[CHAOS_TOGETHER], struct chaos_fault *into)
{
    if (order->count == 0) {
        shuffle(chaos, order);
    }
    for (uint32_t i = 0; i < order->count; i++) {
        struct chaos_fault fault;

        if (chaos_fault_may(chaos, order->kind[i], faults, CHAOS_TOGETHER, &fault)) {
            memmove(&order->kind[i], &order->kind[i + 1],
                    (order->count - i - 1) * sizeof(order->kind[0]));
            order->count--;
            *into       = fault;
            into->alone = true;
            for (uint32_t k = 0; k < CHAOS_TOGETHER; k++) {
                if (faults[k].active && &faults[k] != into) {
                    faults[k].alone = into->alone = false;
                }
            }
            chaos->tally.injected[fault.kind]++;
            chaos_fault_begin(chaos, into);
            return;
        }
    }
}

/* false: one of them went wrong. */
static bool step_all(struct chaos *chaos, struct chaos_fault faults[CHAOS_TOGETHER],
                     uint32_t *out_active)
{
    *out_active = 0;
    for (uint32_t i = 0; i < CHAOS_TOGETHER; i++) {
        if (!faults[i].active) {
            continue;
        }
        switch (chaos_fault_step(chaos, &faults[i])) {
        case CHAOS_MENDED:
            chaos->tally.survived[faults[i].kind]++;
            break;
        case CHAOS_WRONG:
            chaos->tally.wrong += chaos->tally.hung == 0;
            return false;
        case CHAOS_GOES_ON:
            ++*out_active;
            break;
        }
    }
    return true;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Somebody wants it ended, and has given it time to end well. */
static bool grace_is_over(struct chaos *chaos)
{
    uint64_t now_ns = pl_now_ns();

    if (!interrupted) {
        return false;
    }
    if (chaos->interrupted_ns == 0) {
        chaos->interrupted_ns = now_ns;
        chaos_say(&chaos->cluster, "interrupted: ends in 2 s, whatever is under way");
    }
    return now_ns - chaos->interrupted_ns > GRACE_NS;
}

/* Until the time is over and all are mended. false: something is wrong. */
static bool play_faults(struct chaos *chaos, uint32_t seconds)
{
    struct chaos_fault faults[CHAOS_TOGETHER] = {{0}};
    struct order order                        = {.count = 0};
    uint64_t end_ns = chaos->began_ns + seconds * 1000 * MS, next_ns = 0, count_ns = 0;
    uint64_t steps  = 0;
    uint32_t active = 0, together = 1;

    for (;;) {
        uint64_t now_ns = pl_now_ns();
        bool over       = now_ns >= end_ns || interrupted;

        if (!step_all(chaos, faults, &active) || !all_well(chaos) ||
            !comes_along(chaos, &steps)) {
            return false;
        }
        chaos_progress(chaos, faults, CHAOS_TOGETHER);
        if (over && active == 0) {
            return true;
        }
        if (grace_is_over(chaos)) {
            chaos_say_where(chaos, faults, CHAOS_TOGETHER);
            return fail(chaos, "interrupted while a fault was under way");
        }
        if (!over && active < together && now_ns >= next_ns) {
            begin_one(chaos, &order, faults, faults[0].active ? &faults[1] : &faults[0]);
            next_ns  = now_ns + chaos_draw(chaos, PAUSE_MS) * MS;
            together = chaos_draw(chaos, ALONE_OF) == 0 ? CHAOS_TOGETHER : 1;
        }
        if (now_ns >= count_ns && !faults[0].active && !faults[1].active) {
            count(chaos);
            count_ns = now_ns + COUNT_NS;
        }
        tick();
    }
}

/* Clients end the graphs that they play, and read all that these made. */
static bool end_players(struct chaos *chaos)
{
    struct chaos_cluster *cluster = &chaos->cluster;
    uint64_t began_ns             = pl_now_ns();

    chaos_say(cluster, "no more faults: clients end their graphs");
    atomic_store(&cluster->board->stop, true);
    for (;;) {
        bool all_ended = true;

        if (!all_well(chaos)) {
            return false;
        }
        for (uint32_t i = 0; i < cluster->config.clients; i++) {
            all_ended = all_ended && cluster->player[i] == 0;
        }
        if (all_ended) {
            return true;
        }
        if (grace_is_over(chaos)) {
            return fail(chaos, "interrupted before clients had ended their graphs");
        }
        if (pl_now_ns() - began_ns > END_NS) {
            chaos->tally.hung++;
            return fail(chaos, "clients do not come to the end of their graphs");
        }
        chaos_progress_ending(chaos, began_ns);
        tick();
    }
}

static void print_doctor(struct chaos *chaos)
{
    char *text;

    printf("%s\n", chaos->tally.text);
    if (plasmon_doctor(chaos->cluster.client, 0, &text) == PLASMON_OK) {
        printf("who waits for what:\n%s", text);
        free(text);
    }
}

/* -------------------------------------------------------------------------- the command */

static int play(struct chaos *chaos, const struct chaos_options *given)
{
    struct chaos_cluster *cluster = &chaos->cluster;
    struct chaos_verdict verdict;
    bool good, ended, written;

    prepare_sources(chaos, !given->no_sources);
    prepare_hosts(chaos);
    chaos_say(cluster, "faults for %u s, --seed %llu", given->seconds,
              (unsigned long long)chaos->seed);
    for (uint32_t i = 0; i < cluster->config.clients; i++) {
        cluster->board->slot[i].seed = chaos->seed + i;
        chaos_start_player(cluster, i);
    }
    chaos->began_ns = pl_now_ns();
    good            = play_faults(chaos, given->seconds) && end_players(chaos);
    chaos->ended_ns = pl_now_ns();
    if (good) {
        count(chaos);
    } else {
        print_doctor(chaos);
    }
    verdict = chaos_judge(chaos);
    chaos_report_print(chaos);
    written = chaos_report_write(chaos, given->json, given->plot);
    chaos_say(cluster, "the cluster is ended");
    ended = chaos_hosts_end(cluster, &chaos->hosts);
    ended = chaos_cluster_end(cluster, given->keep || !good || !verdict.good || !ended) &&
            ended;
    return good && verdict.good && ended && written && !(given->strict && verdict.late)
               ? CLI_OK
               : CLI_FAIL;
}

static int run(int argc, char **argv)
{
    static struct chaos chaos; /* too large for a stack */
    struct chaos_options given = {.seconds     = 60,
                                  .clients     = 3,
                                  .cpu_devices = 2,
                                  .lineage_mib = 64,
                                  .play        = UINT32_MAX};
    struct cli_parsed parsed   = cli_parse(&bench_chaos, argc, argv, &given);
    struct chaos_config config;
    int exit_status;

    if (parsed.exit >= 0) {
        return parsed.exit;
    }
    if (given.play != UINT32_MAX) {
        return chaos_play(BOARD_FD, given.play);
    }
    if (!choose_kinds(&chaos, given.only)) {
        return cli_usage(&bench_chaos, "--only \"%s\" names a fault that there is not",
                         given.only);
    }
    config = (struct chaos_config){.cpu_devices   = given.cpu_devices,
                                   .gpus          = given.gpus,
                                   .device_memory = given.device_memory,
                                   .spares        = given.spares,
                                   .clients       = given.clients,
                                   .lineage_mib   = given.lineage_mib,
                                   .journal       = chaos_has_redis(),
                                   .standby       = given.standby};
    if (config.standby && !config.journal) {
        return cli_usage(&bench_chaos,
                         "--standby: there is no redis-server in $PATH for the lease");
    }
    if (!chaos_take_seed(given.seed, &chaos.seed) || !chaos_complete(&config)) {
        return cli_usage(
            &bench_chaos,
            "--seed is a number, --clients 1 to %u, --cpu-devices 1 to %u, and "
            "--gpus none or 1 to %u",
            CLIENTS_MAX, (unsigned)STRESS_DEVICES_MAX, (unsigned)STRESS_DEVICES_MAX);
    }
    chaos.random        = chaos.seed;
    chaos.tally.samples = PL_VEC_INIT(struct chaos_sample);
    if (!config.journal) {
        leave_out(&chaos, CHAOS_HEAD_KILL, "there is no redis-server in $PATH");
        leave_out(&chaos, CHAOS_JOURNAL_KILL, "there is no redis-server in $PATH");
    }
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    chaos_must_start(&chaos.cluster, &config);
    exit_status = play(&chaos, &given);
    pl_vec_finish(&chaos.tally.samples);
    return exit_status;
}
