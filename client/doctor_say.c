/* What doctor.c found, in words for people and as one JSON object for scripts. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/numa.h"
#include "client/client_int.h"
#include "client/doctor.h"
#include "client/json.h"
#include "wire/metrics.h"
#include "kernels/kernels.h"

enum {
    TOLD_MAX = 8, /* tasks in words */
    /* a client that acknowledges nothing for so long does not read */
    SILENT_TOLD_MS = 1000,
};

/* -------------------------------------------------------------------------------- words */

static void say_seconds(struct pl_str *out, uint64_t ms)
{
    pl_str_append(out, "%llu.%llu s", (unsigned long long)(ms / 1000),
                  (unsigned long long)(ms % 1000 / 100));
}

/* A copy to host memory for spilling, or from it. */
static bool is_spill(const Plasmon__V1__TaskWait *task)
{
    return task->node[0] != '\0';
}

static bool is_restore(const Plasmon__V1__TaskWait *task)
{
    return strcmp(task->what, "restore") == 0;
}

static const char *function_of(const struct doctor_step *step)
{
    const struct kernel_function *function = step->task != NULL && step->task->function != 0
                                                 ? kernel_by_id(step->task->function)
                                                 : NULL;

    if (function != NULL) {
        return function->name;
    }
    if (step->launch != NULL && (step->task == NULL || !is_spill(step->task))) {
        return step->launch->function;
    }
    return step->task != NULL ? step->task->what : "launch";
}

static const char *label_of(const struct doctor_step *step)
{
    if (step->task != NULL && step->task->label[0] != '\0') {
        return step->task->label;
    }
    return step->launch != NULL ? step->launch->label : "";
}

static uint64_t task_of(const struct doctor_step *step)
{
    return step->task != NULL     ? step->task->task
           : step->launch != NULL ? step->launch->task
                                  : 0;
}

/* "task 17 gemm 'step 3' on device 1" */
static void say_step(struct pl_str *out, const struct doctor_step *step)
{
    const char *label = label_of(step);

    if (task_of(step) != 0) {
        pl_str_append(out, "task %llu ", (unsigned long long)task_of(step));
    } else {
        pl_str_append(out, "launch %llu ", (unsigned long long)step->seq);
    }
    pl_str_append(out, "%s", function_of(step));
    if (step->task != NULL && is_spill(step->task)) {
        char bytes[32];

        pl_str_append(out, " of %s %s host memory of %s",
                      pl_format_bytes(step->task->bytes, bytes),
                      is_restore(step->task) ? "from" : "to", step->task->node);
    } else if (label[0] != '\0') {
        pl_str_append(out, " '%s'", label);
    }
    pl_str_append(out, " on device %u", step->device);
}

static bool has_no_worker(const Plasmon__V1__Device *device)
{
    return device != NULL && !device->alive &&
           device->state != PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE;
}

/* ", for 3.2 s (of the last one: killed by signal 9)" */
static void say_down(struct pl_str *out, const Plasmon__V1__Device *device)
{
    pl_str_append(out, ", for ");
    say_seconds(out, device->down_ms);
    if (device->death[0] != '\0') {
        pl_str_append(out, " (of the last one: %s)", device->death);
    }
}

/* "runs for 12.2 s" */
static void say_cause(const Plasmon__V1__StatusReply *reply, struct pl_str *out,
                      const struct doctor_finding *finding)
{
    const Plasmon__V1__Device *device     = doctor_device(reply, finding->end.device);
    const Plasmon__V1__LaunchWait *launch = finding->end.launch;
    const Plasmon__V1__TaskWait *task     = finding->end.task;

    pl_str_append(out, "%s", finding->cause->why);
    if (task != NULL && finding->cause == doctor_hold(task)) {
        pl_str_append(out, ", for ");
        say_seconds(out, task->age_ms);
        if (task->hold_text[0] != '\0') {
            pl_str_append(out, " (%s)", task->hold_text);
        }
    } else if (has_no_worker(device)) {
        say_down(out, device);
    } else if (launch != NULL && !doctor_silent(reply->waits, finding->end.device)) {
        pl_str_append(out, ", for ");
        say_seconds(out, launch->since_ms);
        if (launch->text[0] != '\0') {
            pl_str_append(out, " (%s)", launch->text);
        }
    } else if (task != NULL && is_spill(task)) { /* its worker has not come to it */
        pl_str_append(out, ", for ");
        say_seconds(out, task->age_ms);
    }
}

static void say_finding(const Plasmon__V1__StatusReply *reply, struct pl_str *out,
                        const struct doctor_finding *finding)
{
    say_step(out, &finding->task);
    if (finding->steps == 0) {
        pl_str_append(out, " ");
    } else {
        pl_str_append(out, " has waited ");
        say_seconds(out, finding->task.task->age_ms);
        pl_str_append(out, " for ");
        say_step(out, &finding->end);
        pl_str_append(out, ", which ");
    }
    say_cause(reply, out, finding);
    if (finding->cause->remedy[0] != '\0') {
        pl_str_append(out, ": %s", finding->cause->remedy);
    }
    pl_str_append(out, "\n");
}

void doctor_say_oldest(const Plasmon__V1__StatusReply *reply, uint32_t most, bool spills,
                       struct pl_str *out)
{
    const Plasmon__V1__Waits *waits = reply->waits;
    uint32_t told = 0, elsewhere = 0;
    bool named = false; /* else all that is oldest is the head's own: copies, reads */

    for (size_t i = 0; i < waits->n_tasks; i++) {
        named = named || waits->tasks[i]->task != 0;
    }
    for (size_t i = 0; i < waits->n_tasks && told < most; i++) {
        if (!spills && is_spill(waits->tasks[i])) {
            elsewhere++;
        } else if (waits->tasks[i]->task != 0 || !named) {
            struct doctor_finding finding = doctor_find(reply, waits->tasks[i]);

            pl_str_append(out, "  ");
            say_finding(reply, out, &finding);
            told++;
        }
    }
    if (told == 0) {
        pl_str_append(out, elsewhere == 0 ? "  none is unfinished\n"
                                          : "  none but spills and restores (below)\n");
    } else if (reply->tasks_queued > told) {
        pl_str_append(out, "  these are the oldest; %llu launches are unfinished in all\n",
                      (unsigned long long)reply->tasks_queued);
    }
}

static void say_device(const Plasmon__V1__StatusReply *reply, struct pl_str *out,
                       const Plasmon__V1__Device *device)
{
    bool any = false;

    pl_str_append(out, "  %u %s%s%s", device->index, status_device_state(device),
                  device->queued == 0 ? ", nothing to do" : "",
                  doctor_silent(reply->waits, device->index)
                      ? ", its worker does not answer: stopped, or stuck in a call of the "
                        "driver"
                      : "");
    if (has_no_worker(device)) {
        pl_str_append(out, ", has no worker");
        say_down(out, device);
    } else if (device->state == PLASMON__V1__DEVICE_STATE__DEVICE_STATE_GONE &&
               device->death[0] != '\0') {
        pl_str_append(out, ", given up: %s", device->death);
    }
    for (size_t i = 0; i < reply->waits->n_launches; i++) {
        const Plasmon__V1__LaunchWait *launch = reply->waits->launches[i];
        struct doctor_step step               = {
                          .device = launch->device, .seq = launch->seq, .launch = launch};

        if (launch->device != device->index) {
            continue;
        }
        pl_str_append(out, "%s\n    %s: launch %llu, ", any ? "" : "",
                      launch->stream == 0 ? "front of its queue" : "on the device",
                      (unsigned long long)launch->seq);
        say_step(out, &step);
        pl_str_append(out, ", for ");
        say_seconds(out, launch->since_ms);
        if (launch->point != 0) {
            pl_str_append(out, ", after launch %llu of device %u",
                          (unsigned long long)wire_point_seq(launch->point),
                          wire_point_device(launch->point));
        }
        if (launch->peer != 0) {
            pl_str_append(out, ", with device %u", launch->peer - 1);
        }
        pl_str_append(out, "; %u behind it", launch->behind);
        any = true;
    }
    pl_str_append(out, "\n");
}

/* Copies to host memory for spilling, and back, that are not over. */
static void say_spills(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    uint32_t told = 0;

    for (size_t i = 0; i < reply->waits->n_tasks && told < TOLD_MAX; i++) {
        const Plasmon__V1__TaskWait *task = reply->waits->tasks[i];
        struct doctor_finding finding;

        if (!is_spill(task)) {
            continue;
        }
        finding = doctor_find(reply, task);
        pl_str_append(out,
                      "%s  %s: ", told++ == 0 ? "\nspills and restores, the oldest\n" : "",
                      task->sent ? "sent" : "not sent");
        say_finding(reply, out, &finding);
    }
}

static void say_mute(struct pl_str *out, const Plasmon__V1__PeerWait *peer)
{
    pid_t pid = peer->store_socket[0] != '\0'
                    ? pl_unix_owner(peer->store_socket, SOCK_SEQPACKET)
                    : 0;
    char who[160];

    pl_str_append(out, "  node %s does not answer, and has said nothing for ", peer->name);
    say_seconds(out, peer->silent_ms);
    if (pid != 0) {
        (void)pl_pid_describe(pid, who, sizeof(who));
        pl_str_append(out, ": its store, %s\n", who);
    } else {
        pl_str_append(out,
                      ": is its store stopped, or its machine too busy? `plasmon doctor "
                      "--cluster` there says more\n");
    }
}

static void say_peer(struct pl_str *out, const Plasmon__V1__PeerWait *peer)
{
    char bytes[32];

    if (peer->client != 0) {
        if (peer->silent_ms < SILENT_TOLD_MS) {
            return;
        }
        if (!peer->connected) {
            pl_str_append(
                out, "  client %016llx (%s) has no connection, and has said nothing for ",
                (unsigned long long)peer->client, peer->name);
            say_seconds(out, peer->silent_ms);
            pl_str_append(
                out,
                ": it was killed, or cannot reach the head; it is given up with its refs "
                "if it does not come back. Others do not wait for it\n");
            return;
        }
        pl_str_append(out, "  client %016llx (%s) has not read for ",
                      (unsigned long long)peer->client, peer->name);
        say_seconds(out, peer->silent_ms);
        pl_str_append(out,
                      ", %s are kept for it: is it stopped, or busy in a callback? Others "
                      "do not wait for it\n",
                      pl_format_bytes(peer->bytes, bytes));
        return;
    }
    if (peer->gone) {
        pl_str_append(out, "  node %s is gone for ", peer->name);
        say_seconds(out, peer->silent_ms);
        pl_str_append(out,
                      ": %s; what lay there alone is lost, or made again. Start its store "
                      "again on that machine (`plasmon start`, or its service)\n",
                      peer->why);
        return;
    }
    if (peer->mute) {
        say_mute(out, peer);
    } else if (!peer->connected) {
        pl_str_append(out, "  node %s is away for ", peer->name);
        say_seconds(out, peer->silent_ms);
        pl_str_append(out, "; it is given up with its devices after ");
        say_seconds(out, peer->lease_ms);
        pl_str_append(out, " (--node-lease): is its store up, and the network?\n");
    }
    if (peer->drain[0] != '\0') {
        pl_str_append(out,
                      "  node %s is drained: %s; `plasmon drain --undo %s` ends that\n",
                      peer->name, peer->drain, peer->name);
    }
}

static void say_peers(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    size_t before;

    pl_str_append(out, "\nclients and nodes\n");
    before = out->length;
    for (size_t i = 0; i < reply->waits->n_peers; i++) {
        say_peer(out, reply->waits->peers[i]);
    }
    if (out->length == before) {
        pl_str_append(out, "  all answer\n");
    }
}

static void say_journal(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    if (reply->waits->journal_ms < SILENT_TOLD_MS) {
        return;
    }
    pl_str_append(out, "\njournal\n  has stored nothing for ");
    say_seconds(out, reply->waits->journal_ms);
    pl_str_append(
        out,
        ", and %llu answers wait for it: is Redis up, and its disk? What runs goes "
        "on; the head ends when it stays away (its log says more)\n",
        (unsigned long long)reply->waits->journal_held);
}

static struct pl_numa_place numa_place(const Plasmon__V1__NumaPlace *told)
{
    return (struct pl_numa_place){.node       = (int)told->node - 1,
                                  .nodes      = told->nodes,
                                  .processors = told->processors,
                                  .near       = told->near,
                                  .pages      = told->pages,
                                  .pages_near = told->pages_near};
}

static void say_numa(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_numa; i++) {
        const Plasmon__V1__NumaPlace *told = reply->waits->numa[i];
        struct pl_numa_place place         = numa_place(told);

        pl_str_append(out, "%s  %u: ", i == 0 ? "\nNUMA nodes of GPUs\n" : "",
                      told->device);
        (void)pl_numa_say(&place, "its worker", out);
        pl_str_append(out, "\n");
    }
}

/* Why it waits, and why it cannot grow: docs/transfers.md, "Ended first, freed later". */
static void say_left(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_left; i++) {
        const Plasmon__V1__CommsLeft *left = reply->waits->left[i];

        pl_str_append(
            out,
            "%s  %u: %u communicator%s, %.1f MiB of device memory, the oldest for "
            "%.1f s; %s\n",
            i == 0 ? "\nLeft of broken pairs and teams (no more than were open: "
                     "none is opened before it is freed)\n"
                   : "",
            left->device, left->communicators, left->communicators == 1 ? "" : "s",
            (double)left->bytes / (1 << 20), (double)left->oldest_ms / 1000,
            left->freeing != 0 ? "being freed now"
                               : "freed when nothing is on the device and nothing "
                                 "is enqueued");
    }
}

static bool same_way(const Plasmon__V1__RoutePlan *a, const Plasmon__V1__RoutePlan *b)
{
    return a->route == b->route && strcmp(a->why, b->why) == 0;
}

/* All pairs that go one way for one reason, in a line: "0 to 1, 2; 1 to 0, 2: peer, because: ..". */
static void say_routes(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    Plasmon__V1__RoutePlan *const *plans = reply->waits->routes;
    size_t count                         = reply->waits->n_routes;

    if (count == 0) {
        return;
    }
    pl_str_append(out, "\nroutes between devices (transfer %s)\n", reply->transfer);
    for (size_t i = 0; i < count; i++) {
        uint32_t from = UINT32_MAX;
        size_t before = 0;

        while (before < i && !same_way(plans[before], plans[i])) {
            before++;
        }
        if (before < i) {
            continue; /* it is in that line */
        }
        pl_str_append(out, "  ");
        for (size_t k = i; k < count; k++) {
            if (!same_way(plans[k], plans[i])) {
                continue;
            }
            if (plans[k]->from != from) {
                pl_str_append(out, "%s%u to ", k == i ? "" : "; ", plans[k]->from);
            } else {
                pl_str_append(out, ", ");
            }
            pl_str_append(out, "%u", plans[k]->to);
            from = plans[k]->from;
        }
        pl_str_append(out, ": %s, because: %s\n", wire_route_name(plans[i]->route),
                      plans[i]->why);
    }
}

void doctor_text(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    pl_str_append(out, "tasks\n");
    doctor_say_oldest(reply, TOLD_MAX, false, out);
    pl_str_append(out, "\ndevices\n");
    for (size_t i = 0; i < reply->n_devices; i++) {
        say_device(reply, out, reply->devices[i]);
    }
    if (reply->n_devices == 0) {
        pl_str_append(
            out,
            "  none: no store has joined. `plasmon start --head` on the head's machine "
            "starts one there, `plasmon start --address HOST:PORT` on others\n");
    }
    say_spills(reply, out);
    say_peers(reply, out);
    say_journal(reply, out);
    say_numa(reply, out);
    say_left(reply, out);
    say_routes(reply, out);
}

/* --------------------------------------------------------------------------------- JSON */

static void put_step(struct pl_str *out, const struct doctor_step *step)
{
    pl_str_append(out, "{");
    json_number(out, "device", step->device);
    json_number(out, "launch", step->seq);
    json_number(out, "task", task_of(step));
    json_text(out, "function", function_of(step));
    json_text(out, "label", label_of(step));
    if (step->task != NULL) {
        json_number(out, "age_ms", step->task->age_ms);
        json_id(out, "client", step->task->client);
        json_flag(out, "sent", step->task->sent);
        if (is_spill(step->task)) {
            json_number(out, "bytes", step->task->bytes);
            json_text(out, "node", step->task->node);
            json_text(out, "held", step->task->hold_text);
        }
    }
    if (step->launch != NULL) {
        json_number(out, "since_ms", step->launch->since_ms);
        json_number(out, "behind", step->launch->behind);
        json_text(out, "text", step->launch->text);
        json_flag(out, "on_device", step->launch->stream != 0);
    }
    pl_str_append(out, "}");
}

static void put_tasks(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    const char *comma = "";

    for (size_t i = 0; i < reply->waits->n_tasks; i++) {
        struct doctor_finding finding = doctor_find(reply, reply->waits->tasks[i]);

        pl_str_append(out, "%s{\"steps\":%u,\"task\":", comma, finding.steps);
        put_step(out, &finding.task);
        pl_str_append(out, ",\"waits_for\":");
        put_step(out, &finding.end);
        json_text(out, "cause", finding.cause->name);
        json_text(out, "why", finding.cause->why);
        json_text(out, "remedy", finding.cause->remedy);
        pl_str_append(out, "}");
        comma = ",";
    }
}

static void put_devices(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->n_devices; i++) {
        const Plasmon__V1__Device *device = reply->devices[i];
        const char *comma                 = "";

        pl_str_append(out, "%s{\"index\":%u", i > 0 ? "," : "", device->index);
        json_text(out, "state", status_device_state(device));
        json_number(out, "queued", device->queued);
        json_number(out, "down_ms", device->down_ms);
        json_text(out, "death", device->death);
        json_flag(out, "answers", !doctor_silent(reply->waits, device->index));
        json_open(out, "launches", '[');
        for (size_t k = 0; k < reply->waits->n_launches; k++) {
            const Plasmon__V1__LaunchWait *launch = reply->waits->launches[k];
            struct doctor_step step               = {
                              .device = launch->device, .seq = launch->seq, .launch = launch};

            if (launch->device == device->index) {
                pl_str_append(out, "%s", comma);
                put_step(out, &step);
                comma = ",";
            }
        }
        pl_str_append(out, "]}");
    }
}

static void put_peers(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_peers; i++) {
        const Plasmon__V1__PeerWait *peer = reply->waits->peers[i];

        pl_str_append(out, "%s{\"kind\":\"%s\"", i > 0 ? "," : "",
                      peer->client != 0 ? "client" : "node");
        json_text(out, "name", peer->name);
        json_flag(out, "connected", peer->connected);
        json_flag(out, "answers", !peer->mute && peer->connected);
        json_flag(out, "gone", peer->gone);
        json_text(out, "why", peer->why);
        json_number(out, "silent_ms", peer->silent_ms);
        json_number(out, "bytes", peer->bytes);
        json_text(out, "drain", peer->drain);
        pl_str_append(out, "}");
    }
}

static void put_numa(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_numa; i++) {
        const Plasmon__V1__NumaPlace *told = reply->waits->numa[i];

        pl_str_append(out, "%s{\"device\":%u", i > 0 ? "," : "", told->device);
        if (told->node != 0) {
            json_number(out, "node", told->node - 1);
        }
        json_number(out, "nodes", told->nodes);
        json_number(out, "processors", told->processors);
        json_number(out, "processors_near", told->near);
        json_number(out, "pages", told->pages);
        json_number(out, "pages_near", told->pages_near);
        pl_str_append(out, "}");
    }
}

static void put_left(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_left; i++) {
        const Plasmon__V1__CommsLeft *left = reply->waits->left[i];

        pl_str_append(out, "%s{\"device\":%u", i > 0 ? "," : "", left->device);
        json_number(out, "communicators", left->communicators);
        json_number(out, "freeing", left->freeing);
        json_number(out, "bytes", left->bytes);
        json_number(out, "oldest_ms", left->oldest_ms);
        pl_str_append(out, "}");
    }
}

static void put_routes(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    for (size_t i = 0; i < reply->waits->n_routes; i++) {
        const Plasmon__V1__RoutePlan *plan = reply->waits->routes[i];

        pl_str_append(out, "%s{\"from\":%u,\"to\":%u", i > 0 ? "," : "", plan->from,
                      plan->to);
        json_text(out, "route", wire_route_name(plan->route));
        json_text(out, "why", plan->why);
        pl_str_append(out, "}");
    }
}

void doctor_json(const Plasmon__V1__StatusReply *reply, struct pl_str *out)
{
    pl_str_append(out, "{\"tasks\":[");
    put_tasks(reply, out);
    pl_str_append(out, "],\"devices\":[");
    put_devices(reply, out);
    pl_str_append(out, "],\"peers\":[");
    put_peers(reply, out);
    pl_str_append(out, "],\"numa\":[");
    put_numa(reply, out);
    pl_str_append(out, "],\"left\":[");
    put_left(reply, out);
    pl_str_append(out, "],\"journal\":{\"waiting_ms\":%llu,\"held\":%llu},\"routes\":[",
                  (unsigned long long)reply->waits->journal_ms,
                  (unsigned long long)reply->waits->journal_held);
    put_routes(reply, out);
    pl_str_append(out, "]}");
}

/* ----------------------------------------------------------------------------- the call */

plasmon_status_t plasmon_doctor(struct plasmon_client *client, int json, char **out_text)
{
    Plasmon__V1__StatusReply *reply;
    struct wire_arena arena;
    struct pl_str out;
    plasmon_status_t status =
        client_text_ask(client, CLIENT_STATUS_WAITS, out_text, &arena, &reply);

    if (status != PLASMON_OK) {
        return status;
    }
    if (reply->waits == NULL) {
        wire_arena_finish(&arena);
        return error_set(PLASMON_EVERSION,
                         "the head does not say who waits for what: it is older than this "
                         "program, or the token is for one namespace");
    }
    pl_str_init(&out);
    (json ? doctor_json : doctor_text)(reply, &out);
    wire_arena_finish(&arena);
    return client_text_give(&out, out_text);
}
