/*
 * A client of chaos and soak: a process of its own, so that it can be killed. Its threads play
 * random programs (bench/stress) and it tells by the board what came of it. The first failure ends
 * it: the board has the text, its log the steps before, and who waits for what if something hung.
 */
#include <execinfo.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/chaos/chaos.h"

#define LOOK_MS         5
#define SPILLED         "its store died, and what it had in files" /* docs/failure.md */
#define INIT_TIMEOUT_MS 120000u /* the head may be down when it comes */

struct player {
    struct stress_thread thread;
    struct client *client;
    pthread_t id;
    uint64_t before[CHAOS_COSTS]; /* faults that were over when its graph began */
    bool told;                    /* its failure is counted */
    _Atomic bool done;
};
struct client {
    struct chaos_board *board;
    struct chaos_slot *slot;
    struct stress_ground ground;
    struct player player[CHAOS_THREADS];
    uint64_t graphs_before; /* of the slot, when this client came */
    pthread_mutex_t failing;
};

static struct player *player_of(struct stress_thread *thread)
{
    return pl_container_of(thread, struct player, thread);
}

/* ------------------------------------------------------------------------ what may fail */

static void begins(struct stress_thread *thread)
{
    struct player *player           = player_of(thread);
    const struct chaos_board *board = player->client->board;

    for (uint32_t i = 0; i < CHAOS_COSTS; i++) {
        player->before[i] = atomic_load(&board->ended[i]);
    }
    for (uint32_t i = 0; i < board->devices; i++) {
        atomic_store(&thread->ground->number[i], atomic_load(&board->number[i]));
    }
}

static bool met(const struct player *player, enum chaos_cost cost)
{
    return atomic_load(&player->client->board->begun[cost]) > player->before[cost];
}

static bool is_excused(const struct player *player, plasmon_status_t status,
                       bool consumable)
{
    switch (status) {
    case PLASMON_ECONSUMED:
        return (consumable && met(player, CHAOS_COST_BEGUN)) ||
               met(player, CHAOS_COST_HOST);
    case PLASMON_EDEPENDENCY:
        return (consumable && met(player, CHAOS_COST_BEGUN)) ||
               met(player, CHAOS_COST_HOST) || met(player, CHAOS_COST_ROOM);
    case PLASMON_ELOST:
    case PLASMON_EWORKER:
    case PLASMON_ENOTREBUILDABLE:
        return met(player, CHAOS_COST_HOST);
    case PLASMON_EUNREACHABLE: /* of a map: by who knew another store, or came when there was none */
        return atomic_load(&player->client->board->store_kills) > 0;
    case PLASMON_EDEVMEM:
    case PLASMON_ENOMEM:
        return met(player, CHAOS_COST_ROOM);
    default:
        return false;
    }
}

static bool excuse(struct stress_thread *thread, plasmon_status_t status, bool consumable,
                   uint64_t bytes)
{
    struct player *player   = player_of(thread);
    struct chaos_slot *slot = player->client->slot;

    if (is_excused(player, status, consumable)) {
        return true;
    }
    if (met(player, CHAOS_COST_BEGUN) &&
        strstr(plasmon_error(player->client->ground.client), SPILLED) != NULL) {
        atomic_fetch_add(&slot->spilled_bytes, bytes);
        return true;
    }
    player->told = true;
    if (status == PLASMON_ETIMEDOUT) {
        atomic_fetch_add(&slot->unresolved, 1);
    } else {
        atomic_fetch_add(&slot->lost_bytes, bytes);
    }
    return false;
}

static void tell_who_waits(struct plasmon_client *px)
{
    char *text;

    if (plasmon_doctor(px, 0, &text) == PLASMON_OK) {
        printf("# who waits for what:\n%s", text);
        free(text);
    }
}

static __attribute__((noreturn)) void failed(struct stress_thread *thread, const char *text)
{
    struct player *player = player_of(thread);
    struct client *client = player->client;

    (void)pthread_mutex_lock(&client->failing); /* for good: one failure is enough */
    if (!player->told) {
        atomic_fetch_add(&client->slot->wrong, 1);
    }
    (void)snprintf(client->slot->text, sizeof(client->slot->text), "%s", text);
    printf("# %s\n", text);
    stress_print_steps(thread, STRESS_LOG_LINES);
    tell_who_waits(client->ground.client);
    (void)fflush(stdout);
    atomic_store(&client->slot->failed, true); /* now it may be killed */
    _exit(CLI_FAIL);
}

static const struct stress_hooks hooks = {.begin  = begins,
                                          .excuse = excuse,
                                          .fail   = failed};

/* ------------------------------------------------------------------------------ playing */

static bool goes_on(const struct client *client)
{
    const struct chaos_slot *slot = client->slot;

    return !atomic_load(&client->board->stop) &&
           (slot->graphs_max == 0 ||
            atomic_load(&slot->graphs) - client->graphs_before < slot->graphs_max);
}

static void *player_main(void *user)
{
    struct player *player = user;

    while (goes_on(player->client)) {
        stress_graph_play(&player->thread);
        atomic_fetch_add(&player->client->slot->graphs, 1);
    }
    atomic_store(&player->done, true);
    return NULL;
}

#define STACK_MAX  48
#define STEPS_TOLD 6

/*
 * By whose thread it is: where that is. (What it calls takes no lock once it has been called; and
 * all that comes of it is a line too few.)
 */
static void tell_stack(int signal)
{
    void *stack[STACK_MAX];

    (void)signal;
    backtrace_symbols_fd(stack, backtrace(stack, STACK_MAX), STDOUT_FILENO);
}

static void tell_prepare(void)
{
    struct sigaction action = {.sa_handler = tell_stack, .sa_flags = SA_RESTART};
    void *stack[1];

    (void)backtrace(stack, 1); /* it loads a library the first time */
    (void)sigaction(SIGUSR2, &action, NULL);
}

static void tell_all(struct client *client)
{
    const struct timespec while_it_writes = {.tv_nsec = 50000000};

    for (uint32_t i = 0; i < CHAOS_THREADS; i++) {
        struct player *player = &client->player[i];

        stress_print_steps(&player->thread, STEPS_TOLD);
        (void)fflush(stdout);
        if (!atomic_load(&player->done)) {
            (void)pthread_kill(player->id, SIGUSR2);
            (void)nanosleep(&while_it_writes, NULL);
        }
    }
}

/* Counters of this client that are not in the slot yet. */
struct told {
    uint64_t steps, compared, excused;
};

static void tell(struct client *client, struct told *told)
{
    struct told now = {.compared = atomic_load(&client->ground.compared),
                       .excused  = atomic_load(&client->ground.excused)};

    for (uint32_t i = 0; i < CHAOS_THREADS; i++) {
        now.steps += atomic_load(&client->player[i].thread.steps);
    }
    atomic_fetch_add(&client->slot->steps, now.steps - told->steps);
    atomic_fetch_add(&client->slot->compared, now.compared - told->compared);
    atomic_fetch_add(&client->slot->excused, now.excused - told->excused);
    *told = now;
}

static bool all_done(const struct client *client)
{
    for (uint32_t i = 0; i < CHAOS_THREADS; i++) {
        if (!atomic_load(&client->player[i].done)) {
            return false;
        }
    }
    return true;
}

static int play(struct client *client)
{
    struct told told  = {0};
    uint32_t told_all = atomic_load(&client->board->tell);

    tell_prepare();
    for (uint32_t i = 0; i < CHAOS_THREADS; i++) {
        struct player *player = &client->player[i];

        player->client = client;
        if (!stress_thread_init(&player->thread, &client->ground, i,
                                client->slot->seed + i) ||
            pthread_create(&player->id, NULL, player_main, player) != 0) {
            bench_die("a client has no memory for its threads");
        }
    }
    while (!all_done(client)) {
        (void)poll(NULL, 0,
                   LOOK_MS); /* nothing to wait on but time: counters go to the board */
        tell(client, &told);
        if (told_all != atomic_load(&client->board->tell)) {
            told_all = atomic_load(&client->board->tell);
            tell_all(client);
        }
    }
    tell(client, &told);
    for (uint32_t i = 0; i < CHAOS_THREADS; i++) {
        (void)pthread_join(client->player[i].id, NULL); /* it is ours, and once */
        stress_thread_finish(&client->player[i].thread);
    }
    return CLI_OK;
}

int chaos_play(int board_fd, uint32_t slot)
{
    static struct client client; /* too large for a stack */
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *px;
    void *memory;
    int exit_status;

    if (slot >= CHAOS_CLIENTS_MAX ||
        pl_fd_map(board_fd, sizeof(struct chaos_board), true, &memory) != PLASMON_OK) {
        bench_die("--play is how chaos starts its own clients");
    }
    client.board         = memory;
    client.slot          = &client.board->slot[slot];
    client.graphs_before = atomic_load(&client.slot->graphs);
    chaos_log_to(stdout);
    options.address            = client.board->address;
    options.label              = "chaos client";
    options.connect_timeout_ms = INIT_TIMEOUT_MS;
    if (plasmon_init(&options, &px) != PLASMON_OK) {
        bench_die("joining the cluster: %s", plasmon_error(NULL));
    }
    stress_ground_init(&client.ground, &hooks, px, client.board->devices);
    client.ground.gpu          = client.board->gpu;
    client.ground.sources      = client.board->sources;
    client.ground.large_bytes  = client.board->large_bytes;
    client.ground.source_count = client.board->source_count;
    (void)pthread_mutex_init(&client.failing, NULL); /* cannot fail on Linux */
    atomic_fetch_add(&client.slot->ready, 1);
    exit_status = play(&client);
    plasmon_finish(px);
    stress_ground_finish(&client.ground);
    return exit_status;
}
