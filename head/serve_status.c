/*
 * Status and Functions: unary calls for people and scripts. A status asks the workers for fresh
 * figures and waits for them a moment.
 *
 * Who wants to know who holds the memory then waits for a look at all refs and names
 * (head/memory_report.c). That goes on a little at a time, each time the loop has nothing else to
 * do and after its flush, so a head with millions of them serves everybody else meanwhile. There is
 * one look at a time: all who waited when it began, and for the same label as the one who had
 * waited longest, are answered with it, so asking often costs no more.
 */
#include "head/serve.h"

#include <string.h>

#include "base/alloc.h"
#include "head/metrics.h"
#include "kernels/kernels.h"

void serve_reply(struct serve *serve, struct rpc_unary *call,
                 const ProtobufCMessage *message, bool when_stored)
{
    size_t length   = protobuf_c_message_get_packed_size(message);
    uint8_t *buffer = rpc_buffer_create(length);

    if (buffer == NULL) {
        rpc_unary_fail(call, PLASMON_ENOMEM, "the head is out of memory");
        return;
    }
    (void)protobuf_c_message_pack(message, buffer);
    if (when_stored) {
        serve_unary_reply(serve, call, buffer, length);
    } else {
        rpc_unary_reply(call, buffer, length);
    }
}

void serve_status_free(struct serve_status *status)
{
    pl_free(status->host);
    pl_free(status->label);
    pl_free(status->list);
    pl_free(status);
}

static void metrics_reply(struct serve *serve, const ProtobufCMessage *message)
{
    size_t length   = message != NULL ? protobuf_c_message_get_packed_size(message) : 0;
    uint8_t *buffer = message != NULL ? pl_alloc(length) : NULL;

    if (buffer != NULL) {
        (void)protobuf_c_message_pack(message, buffer);
    }
    head_metrics_answer(serve->config.metrics, buffer, length);
}

static void turn(void *user)
{
    (void)user; /* an event, so that the loop is idle once more after it */
}

static void tell_messages(struct serve *serve, Plasmon__V1__StatusReply *out)
{
    for (size_t i = 0; i < out->n_devices; i++) {
        const struct serve_worker *worker = serve_worker_of(serve, out->devices[i]->index);

        out->devices[i]->messages_by_memory =
            worker != NULL && rpc_stream_by_memory(worker->stream);
    }
}

static void answer(struct serve *serve, struct serve_status *status)
{
    const struct head_asked asked = {status->request, serve_now_ms(serve)};
    Plasmon__V1__StatusReply out  = PLASMON__V1__STATUS_REPLY__INIT;
    struct head_figures figures;
    Plasmon__V1__Waits waits = PLASMON__V1__WAITS__INIT;
    struct pl_list *pos;

    if (status->list != NULL) {
        serve_list_nodes(serve, status);
        pl_list_remove(&status->link);
        serve_status_free(status);
        return;
    }
    if (status->holders && !status->holders_looked) {
        status->holders_waited = true;
        status->deadline_ms    = UINT64_MAX;
        rpc_loop_post(serve->loop, turn, NULL);
        return;
    }
    wire_arena_reset(&serve->arena);
    if (head_core_status(serve->core, &serve->arena, &out) == PLASMON_OK &&
        head_core_status_namespaces(serve->core, status->only, &serve->arena, &out) ==
            PLASMON_OK &&
        (!status->detail || status->only != NULL || /* others' labels are in the details */
         head_core_status_pairs(serve->core, &serve->arena, &out) == PLASMON_OK) &&
        (!status->holders || head_core_holders_tell(serve->core, serve->holders,
                                                    &serve->arena, &out) == PLASMON_OK) &&
        (!status->waits || head_machine_waits(serve->machine, &serve->arena, &asked,
                                              status->host, &waits) == PLASMON_OK)) {
        head_machine_figures(serve->machine, &figures);
        serve_gate_tell(serve, &waits);
        tell_messages(serve, &out);
        out.waits   = status->waits ? &waits : NULL;
        out.core_ns = figures.core_ns;
        out.store_socket =
            (char *)(uintptr_t)head_machine_store_socket(serve->machine, status->host);
        pl_list_for_each(pos, &serve->nodes) {
            out.nodes += pl_container_of(pos, struct serve_node, link)->host != NULL;
        }
        if (status->call != NULL) {
            serve_reply(serve, status->call, &out.base, false);
        } else {
            metrics_reply(serve, &out.base);
        }
    } else if (status->call != NULL) {
        rpc_unary_fail(status->call, PLASMON_ENOMEM, "the head is out of memory");
    } else {
        metrics_reply(serve, NULL);
    }
    pl_list_remove(&status->link);
    serve_status_free(status);
}

/* How many workers were asked for their figures. */
static uint32_t stats_ask(struct serve *serve, uint64_t request)
{
    uint8_t body[16];
    size_t at = 0;

    body[at++] = 7 << 3; /* stats_request */
    for (uint64_t value = request;; value >>= 7) {
        body[at++] = (uint8_t)(value >= 0x80 ? value | 0x80 : value);
        if (value < 0x80) {
            break;
        }
    }
    return head_machine_ask_workers(serve->machine, body, at);
}

/* Taken: answered when the workers have told theirs, or did not in time. */
static void figures_ask(struct serve *serve, struct serve_status *status)
{
    bool stores     = status->waits || status->list != NULL;
    status->request = ++serve->stats_request;
    status->deadline_ms =
        serve_now_ms(serve) + (stores ? SERVE_NODES_WAIT_MS : SERVE_STATS_WAIT_MS);
    pl_list_init(&status->link);
    pl_list_add_tail(&serve->statuses, &status->link);
    status->missing = status->list == NULL ? stats_ask(serve, status->request) : 0;
    status->missing += stores ? serve_nodes_ask(serve, status->request) : 0;
    if (status->missing == 0) {
        answer(serve, status);
    }
}

void serve_status_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                       size_t length)
{
    struct serve *serve         = user;
    struct serve_status *status = PL_NEW(struct serve_status);
    Plasmon__V1__StatusRequest *request;
    struct pl_err err = {0};

    if (status == NULL) {
        rpc_unary_fail(call, PLASMON_ENOMEM, "the head is out of memory");
        return;
    }
    wire_arena_reset(&serve->arena);
    /* Lent by the call's certificate or the configuration, which are there until it is answered. */
    if (serve_confined(serve, rpc_unary_token_index(call), rpc_unary_identity(call),
                       &status->only, &err) != PLASMON_OK ||
        wire_decode_status_request(&serve->arena, bytes, length, &request, &err) !=
            PLASMON_OK) {
        rpc_unary_fail(call, err.status, err.text);
        serve_status_free(status);
        return;
    }
    status->host    = head_strdup(request->host);
    status->label   = head_strdup(request->label);
    status->detail  = request->detail;
    status->waits   = request->waits && status->only == NULL;
    status->holders = request->detail && !request->no_holders && status->only == NULL;
    status->call    = call;
    figures_ask(serve, status);
}

void serve_status_nodes(struct serve *serve, struct rpc_unary *call, const char *only,
                        const uint8_t *bytes, size_t length)
{
    struct serve_status *status = head_alloc(sizeof(*status));

    status->list        = head_alloc(length);
    status->list_length = length;
    memcpy(status->list, bytes, length);
    status->only = only;
    status->call = call;
    figures_ask(serve, status);
}

void serve_status_metrics(struct serve *serve)
{
    struct serve_status *status = PL_NEW(struct serve_status);

    if (status == NULL) {
        metrics_reply(serve, NULL);
        return;
    }
    status->host  = head_strdup("");
    status->waits = true;
    figures_ask(serve, status);
}

void serve_status_stats(struct serve *serve, uint64_t request)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->statuses) {
        struct serve_status *status = pl_container_of(pos, struct serve_status, link);

        if (status->request == request && !status->holders_waited &&
            --status->missing == 0) {
            answer(serve, status);
        }
    }
}

/* --------------------------------------------------------------------- who holds memory */

/* false: nobody waits for it. */
static bool holders_begin(struct serve *serve)
{
    const char *label = NULL;
    struct pl_list *pos;

    pl_list_for_each(pos, &serve->statuses) {
        struct serve_status *status = pl_container_of(pos, struct serve_status, link);

        if (status->holders_waited && label == NULL) {
            label = status->label;
        }
        status->holders_looked =
            status->holders_waited && strcmp(status->label, label) == 0;
    }
    PL_CHECK(label == NULL || head_holders_create(label, &serve->holders) == PLASMON_OK);
    return label != NULL;
}

static void holders_end(struct serve *serve)
{
    struct pl_list *pos, *tmp;

    pl_list_for_each_safe(pos, tmp, &serve->statuses) {
        struct serve_status *status = pl_container_of(pos, struct serve_status, link);

        if (status->holders_looked) {
            answer(serve, status);
        }
    }
    head_holders_destroy(serve->holders);
    serve->holders = NULL;
}

void serve_holders_step(struct serve *serve)
{
    if (serve->holders == NULL && !holders_begin(serve)) {
        return;
    }
    if (!head_core_holders_look(serve->core, serve->holders, SERVE_LOOKS)) {
        holders_end(serve);
    }
    rpc_loop_post(serve->loop, turn, NULL);
}

void serve_holders_again(struct serve *serve)
{
    head_holders_destroy(serve->holders);
    serve->holders = NULL;
}

/* -------------------------------------------------------------------------------- ticks */

/*
 * While something is going on, and once afterwards: what transfers did, for who chooses routes and
 * places (rates.h). Nobody waits for the answers.
 */
static void rates_ask(struct serve *serve, uint64_t now_ms)
{
    uint64_t order = head_core_order(serve->core);
    bool busy      = !head_core_idle(serve->core);

    if (now_ms - serve->rates_asked_ms >= SERVE_RATES_MS &&
        (busy || serve->rates_busy || order != serve->rates_order)) {
        serve->rates_asked_ms = now_ms;
        serve->rates_order    = order;
        serve->rates_busy     = busy;
        (void)stats_ask(serve, ++serve->stats_request);
    }
}

void serve_status_tick(struct serve *serve, uint64_t now_ms)
{
    struct pl_list *pos, *tmp;

    rates_ask(serve, now_ms);
    pl_list_for_each_safe(pos, tmp, &serve->statuses) {
        struct serve_status *status = pl_container_of(pos, struct serve_status, link);

        if (now_ms >= status->deadline_ms) {
            answer(serve, status); /* with the figures that there are */
        }
    }
}

void serve_functions_call(void *user, struct rpc_unary *call, const uint8_t *bytes,
                          size_t length)
{
    Plasmon__V1__FunctionsReply out  = PLASMON__V1__FUNCTIONS_REPLY__INIT;
    uint32_t count                   = kernel_count();
    Plasmon__V1__Function *functions = PL_NEW_N(Plasmon__V1__Function, count);
    Plasmon__V1__Function **list     = PL_NEW_N(Plasmon__V1__Function *, count);

    (void)bytes;
    (void)length;
    if (functions == NULL || list == NULL) {
        rpc_unary_fail(call, PLASMON_ENOMEM, "the head is out of memory");
    } else {
        for (uint32_t i = 0; i < count; i++) {
            const struct kernel_function *function = kernel_at(i);

            plasmon__v1__function__init(&functions[i]);
            functions[i].id        = pl_hash_name(function->name);
            functions[i].name      = (char *)function->name;
            functions[i].signature = (char *)function->signature;
            functions[i].doc       = (char *)function->doc;
            list[i]                = &functions[i];
        }
        out.functions   = list;
        out.n_functions = count;
        serve_reply(user, call, &out.base, false);
    }
    pl_free(functions);
    pl_free(list);
}
