/*
 * How a run comes along, for whoever looks at it while it lasts: a line every ten seconds, and one
 * when something takes longer than it should, with what it waits for. A run that is ended from
 * outside has then said where it stood. All of it goes to stderr; the results are stdout's.
 *
 * `plasmon doctor` is asked in a process of its own: its question may wait for a head that this
 * process is to let go on.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/chaos/chaos.h"

#define S             UINT64_C(1000000000)
#define EVERY_NS      (10 * S)
#define STOOD_NS      (2 * S) /* between two looks, of which there are a thousand a second */
#define LATE_FIRST_NS (4 * S)

void chaos_say(const struct chaos_cluster *cluster, const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "chaos: %6.1f s: ",
                  (double)(pl_now_ns() - cluster->started_ns) / (double)S);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

bool chaos_late(struct chaos_late *late, uint64_t since_ns, uint64_t now_ns)
{
    if (late->since_ns != since_ns) {
        *late = (struct chaos_late){.since_ns = since_ns, .next_ns = LATE_FIRST_NS};
    }
    if (now_ns < since_ns + late->next_ns) {
        return false;
    }
    late->next_ns *= 2;
    return true;
}

/* ------------------------------------------------------------------- who waits for what */

void chaos_ask_doctor(struct chaos_cluster *cluster)
{
    const char *argv[] = {"/proc/self/exe", "doctor", "--address", cluster->address, NULL};
    int status;

    if (cluster->doctor > 0 && !chaos_has_ended(cluster->doctor, &status)) {
        return; /* it waits for its answer still */
    }
    cluster->doctor = bench_must_run("/dev/stderr", argv, -1, -1);
}

/* ------------------------------------------------------------------------------- faults */

/* What a fault that is under way waits for. */
static const char *waits_for(const struct chaos_fault *fault)
{
    switch (fault->kind) {
    case CHAOS_CLIENT_KILL:
        return "the next client to join";
    case CHAOS_CLIENT_STOP:
        return fault->step == 0 ? "its time" : "a step of the client";
    case CHAOS_FILL:
        return fault->step == 0 ? "objects that fill the device" : "a small task";
    case CHAOS_HOST_KILL:
        return fault->step < 2 ? "the devices of the next store" : "a small task";
    case CHAOS_TRANSFER_STALL:
    case CHAOS_TRANSFER_CUT:
    case CHAOS_TRANSFER:
        return fault->step == 0 ? "bytes under way" : "an object of the other host";
    case CHAOS_ILLEGAL:
    case CHAOS_ENDLESS:
        if (fault->step == 0) {
            return "the task that misbehaves to fail";
        }
        break;
    default:
        break;
    }
    return fault->probe != NULL             ? "a small task"
           : fault->kind < CHAOS_STORE_KILL ? "a launch of the next worker"
                                            : "its time";
}

static void append_active(const struct chaos_fault *faults, uint32_t count, uint64_t now_ns,
                          struct pl_str *out)
{
    const char *before = "; under way: ";

    for (uint32_t i = 0; i < count; i++) {
        if (faults[i].active) {
            pl_str_append(out, "%s%s for %.1f s, waits for %s", before,
                          chaos_kind_name(faults[i].kind),
                          (double)(now_ns - faults[i].began_ns) / (double)S,
                          waits_for(&faults[i]));
            before = ", ";
        }
    }
}

static uint64_t sum(const uint64_t count[CHAOS_KINDS])
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < CHAOS_KINDS; i++) {
        all += count[i];
    }
    return all;
}

void chaos_say_where(struct chaos *chaos, const struct chaos_fault *faults, uint32_t count)
{
    struct pl_str text;

    pl_str_init(&text);
    append_active(faults, count, pl_now_ns(), &text);
    chaos_say(&chaos->cluster, "%llu faults, %llu survived; %llu graphs, %llu steps%s",
              (unsigned long long)sum(chaos->tally.injected),
              (unsigned long long)sum(chaos->tally.survived),
              (unsigned long long)CHAOS_SUM(chaos->cluster.board, graphs),
              (unsigned long long)CHAOS_SUM(chaos->cluster.board, steps),
              pl_str_text(&text));
    pl_str_finish(&text);
}

void chaos_progress(struct chaos *chaos, const struct chaos_fault *faults, uint32_t count)
{
    struct chaos_progress *progress = &chaos->progress;
    uint64_t now_ns                 = pl_now_ns();
    bool asks                       = false;

    if (progress->looked_ns != 0 && now_ns - progress->looked_ns > STOOD_NS) {
        chaos_say(&chaos->cluster,
                  "the process that injects faults stood still for %.1f s: what it was to "
                  "end by then lasted as much longer",
                  (double)(now_ns - progress->looked_ns) / (double)S);
    }
    progress->looked_ns = now_ns;
    for (uint32_t i = 0; i < count; i++) {
        if (faults[i].active &&
            chaos_late(&progress->late[i], faults[i].began_ns, now_ns)) {
            asks = true;
        }
    }
    if (chaos_late(&progress->steps_late, progress->moved_ns, now_ns)) {
        chaos_say(&chaos->cluster, "no client has done a step for %.0f s",
                  (double)(now_ns - progress->moved_ns) / (double)S);
        chaos_still_tell(chaos);
        asks = true;
    }
    if (asks || now_ns >= progress->next_ns) {
        chaos_say_where(chaos, faults, count);
        progress->next_ns = now_ns + EVERY_NS;
    }
    if (asks) {
        chaos_ask_doctor(&chaos->cluster);
    }
}

/* -------------------------------------------------------------- clients that are to end */

void chaos_progress_ending(struct chaos *chaos, uint64_t since_ns)
{
    struct chaos_cluster *cluster = &chaos->cluster;
    struct pl_str text;

    if (!chaos_late(&chaos->progress.ending_late, since_ns, pl_now_ns())) {
        return;
    }
    pl_str_init(&text);
    for (uint32_t i = 0; i < cluster->config.clients; i++) {
        if (cluster->player[i] != 0) {
            pl_str_append(&text, "%s%u (process %d, %llu steps)",
                          text.length > 0 ? ", " : "", i, (int)cluster->player[i],
                          (unsigned long long)atomic_load(&cluster->board->slot[i].steps));
        }
    }
    chaos_say(cluster, "clients that have not come to the end of their graphs: %s",
              pl_str_text(&text));
    pl_str_finish(&text);
    chaos_still_tell(chaos);
    chaos_ask_doctor(cluster);
}
