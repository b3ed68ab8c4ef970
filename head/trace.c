/*
 * Timelines: who records, and spans on their way from workers to them.
 *
 * Nothing is kept here. Workers record while any session does, and each batch of spans goes to
 * every session that does; a session that came later is sent what is over from then on. When a
 * session stops, every worker is asked once more, and the session is answered when all have told
 * what was over by then, or after two seconds (a worker may be dead, or its device stuck).
 *
 * Workers that come while somebody records are told with their welcome.
 */
#include "head/core_int.h"

enum {
    FIELD_WORKER_TRACE = 21,
    FIELD_CLIENT_SPANS = 21,
    ANSWER_MS          = 2000,
};

static void tell(struct head_core *core, struct head_device *device, uint64_t request)
{
    Plasmon__V1__Trace trace = PLASMON__V1__TRACE__INIT;

    trace.on      = core->tracing != 0;
    trace.request = request;
    head_bytes_message(&device->out, FIELD_WORKER_TRACE, &trace.base);
}

/* Whatever is in its outbox goes first: one question a command. */
static uint32_t ask_all(struct head_core *core, uint64_t request)
{
    uint32_t asked = 0;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->connected) {
            head_device_flush(core, device);
            tell(core, device, request);
            head_device_flush(core, device);
            asked++;
        }
    }
    return asked;
}

static struct head_client *client_of(struct head_core *core, uint64_t session)
{
    return pl_map_get(&core->sessions, session);
}

static void answer(struct head_core *core, size_t index)
{
    struct head_trace_wait wait =
        *(struct head_trace_wait *)pl_vec_at(&core->trace_waits, index);
    struct head_client *client = client_of(core, wait.session);

    pl_vec_remove_unordered(&core->trace_waits, index);
    if (client == NULL) {
        return;
    }
    client->tracing = false;
    head_reply(core, client, wait.request, PLASMON_OK, "");
}

static bool stops_already(const struct head_core *core, const struct head_client *client)
{
    for (size_t i = 0; i < core->trace_waits.count; i++) {
        const struct head_trace_wait *wait = pl_vec_at(&core->trace_waits, i);

        if (wait->session == client->session) {
            return true;
        }
    }
    return false;
}

void head_trace_switch(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Trace *trace)
{
    struct head_trace_wait *wait;

    if (trace->on) {
        if (!client->tracing) {
            client->tracing = true;
            core->tracing++;
            (void)ask_all(core, 0);
        }
        head_reply(core, client, trace->request, PLASMON_OK, "");
        return;
    }
    if (!client->tracing || stops_already(core, client)) {
        head_reply(core, client, trace->request, PLASMON_EINVAL,
                   "this session records no timeline");
        return;
    }
    core->tracing--; /* it is still sent spans, until it was answered */
    wait = pl_vec_push(&core->trace_waits);
    PL_CHECK(wait != NULL);
    *wait         = (struct head_trace_wait){.session  = client->session,
                                             .request  = trace->request,
                                             .number   = ++core->trace_last,
                                             .since_ms = core->now_ms};
    wait->missing = ask_all(core, wait->number);
    if (wait->missing == 0) {
        answer(core, core->trace_waits.count - 1);
    }
}

void head_trace_joined(struct head_core *core, struct head_device *device)
{
    if (core->tracing != 0) {
        tell(core, device, 0);
    }
}

void head_trace_spans(struct head_core *core, struct head_device *device,
                      Plasmon__V1__SpanBatch *batch)
{
    struct pl_list *pos;

    batch->device = device->index;
    pl_list_for_each(pos, &core->clients) {
        struct head_client *client = pl_container_of(pos, struct head_client, link);

        if (client->tracing) {
            head_bytes_message(&client->out, FIELD_CLIENT_SPANS, &batch->base);
            head_client_dirty(core, client);
        }
    }
    for (size_t i = core->trace_waits.count; batch->request != 0 && i-- > 0;) {
        struct head_trace_wait *wait = pl_vec_at(&core->trace_waits, i);

        if (wait->number == batch->request && --wait->missing == 0) {
            answer(core, i);
        }
    }
}

void head_trace_tick(struct head_core *core)
{
    for (size_t i = core->trace_waits.count; i-- > 0;) {
        const struct head_trace_wait *wait = pl_vec_at(&core->trace_waits, i);

        if (core->now_ms - wait->since_ms >= ANSWER_MS) {
            answer(core, i);
        }
    }
}

void head_trace_forget(struct head_core *core, struct head_client *client)
{
    if (client->tracing && !stops_already(core, client)) {
        core->tracing--;
        client->tracing = false;
        if (core->tracing == 0) {
            (void)ask_all(core, 0);
        }
    }
}

bool head_core_tracing(const struct head_core *core)
{
    return core->tracing != 0;
}

void head_core_time(struct head_core *core, uint64_t realtime_ns)
{
    core->trace_ns = realtime_ns;
}
