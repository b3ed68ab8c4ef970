/*
 * Functions that clients define: kept once for each content, told to each worker that needs them,
 * forgotten when nothing can use them any more.
 *
 * NAMES. A client calls its functions by numbers of its own; here each content has one id, which
 * goes to workers. So two sessions with the same text share what is compiled of it, and neither can
 * name what the other defined.
 *
 * TELLING. A worker is told before the first launch that needs it (head_device_send), or when a
 * client waits for its compilation. device->told remembers, so that a worker that begins anew hears
 * all of it again before any launch.
 *
 * THE END. When the last session that defined it has ended, and the last record of a call of it
 * (lineage.h) is gone, no new launch can need it; those that do have numbers up to that moment. So
 * it goes when the oldest unfinished launch is a later one, and the workers are told with their
 * next message, after the graphs that it was in.
 */
#include "head/function.h"

#include "head/core_int.h"

#include <string.h>

enum { FIELD_FUNCTIONS = 11, FIELD_FUNCTION_FREE = 12 };
/* -------------------------------------------------------------------------- one of them */

static struct head_function *find_content(struct head_core *core, const uint8_t *hash)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->functions) {
        struct head_function *function = pl_container_of(pos, struct head_function, link);

        if (memcmp(function->hash, hash, WIRE_HASH_BYTES) == 0) {
            return function;
        }
    }
    return NULL;
}

struct head_function *head_function_by_id(struct head_core *core, uint32_t id)
{
    return pl_map_get(&core->functions_by_id, id);
}

static uint32_t id_draw(struct head_core *core)
{
    uint32_t id;

    do {
        id = WIRE_FUNCTION_FIRST +
             core->function_last++ % (UINT32_MAX - WIRE_FUNCTION_FIRST);
    } while (head_function_by_id(core, id) != NULL);
    return id;
}

static struct head_function *function_create(struct head_core *core,
                                             const Plasmon__V1__FunctionDefine *define)
{
    struct head_function *function   = head_alloc(sizeof(*function));
    Plasmon__V1__FunctionDefine told = *define;

    function->id    = id_draw(core);
    function->name  = head_strdup(define->name);
    function->needs = (define->cuda_text.len != 0 ? WIRE_RUNS_CUDA_TEXT : 0u) |
                      (define->c_text.len != 0 ? WIRE_RUNS_C_TEXT : 0u) |
                      (define->library[0] != '\0' ? WIRE_RUNS_LIBRARY : 0u);
    memcpy(function->hash, define->hash.data,
           WIRE_HASH_BYTES); /* wire/ saw to its length */
    function->waiters = PL_VEC_INIT(struct head_function_waiter);
    pl_list_init(&function->link);

    told.id = function->id;
    head_bytes_message(&function->define, FIELD_FUNCTIONS, &told.base);
    pl_list_add_tail(&core->functions, &function->link);
    PL_CHECK(pl_map_set(&core->functions_by_id, function->id, function) == PLASMON_OK);
    return function;
}

static void function_destroy(struct head_core *core, struct head_function *function)
{
    pl_list_remove(&function->link);
    (void)pl_map_remove(&core->functions_by_id, function->id);
    for (uint32_t i = 0; i < HEAD_FUNCTION_KINDS; i++) {
        pl_free(function->verdict[i].text);
    }
    pl_vec_finish(&function->waiters);
    pl_free(function->define.data);
    pl_free(function->name);
    pl_free(function);
}

uint32_t head_function_id(const struct head_function *function)
{
    return function->id;
}

const char *head_function_name(const struct head_function *function)
{
    return function->name;
}

struct head_function *head_function_of(const struct head_client *client, uint32_t number)
{
    return pl_map_get(&client->functions, number);
}

/* ------------------------------------------------------------------------------ devices */

/* What a device of this kind must run for it; 0: it has no variant for the kind. */
static uint32_t needs_of_kind(const struct head_function *function, uint32_t kind)
{
    uint32_t text = kind == 2 ? WIRE_RUNS_CUDA_TEXT : WIRE_RUNS_C_TEXT;

    return function->needs & (text | WIRE_RUNS_LIBRARY);
}

bool head_function_runs_on(const struct head_function *function,
                           const struct head_device *device)
{
    uint32_t needs = needs_of_kind(function, device->kind);

    return needs != 0 && (device->runs & needs) == needs;
}

struct head_failure *head_function_nowhere(struct head_core *core,
                                           const struct head_function *function)
{
    bool forbidden = false, any = false;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device->gone || !device->joined) {
            continue;
        }
        if (head_function_runs_on(function, device)) {
            return NULL;
        }
        forbidden = forbidden || needs_of_kind(function, device->kind) != 0;
        any       = true;
    }
    if (forbidden) {
        return head_failure_create(
            PLASMON_EPERM, 0, 0,
            "function %s: the stores of this cluster do not allow it: %s", function->name,
            (function->needs & WIRE_RUNS_LIBRARY) != 0
                ? "libraries need plasmon-store --library-dir"
                : "C text needs plasmon-store --allow-source");
    }
    if (!any) {
        return head_failure_create(
            PLASMON_ENOTSUP, 0, 0,
            "function %s: no device is there that could run it: those of this cluster are "
            "gone, or have not come yet (`plasmon nodes`)",
            function->name);
    }
    return head_failure_create(
        PLASMON_ENOTSUP, 0, 0,
        "function %s has no variant for the devices of this cluster: %s", function->name,
        (function->needs & WIRE_RUNS_CUDA_TEXT) != 0
            ? "it has CUDA text only, and there is no GPU; give it C "
              "text too"
            : "it has C text only, and there is no CPU device; give it "
              "CUDA text too");
}

void head_function_tell(struct head_core *core, struct head_device *device,
                        const struct head_function *function)
{
    if (pl_map_get(&device->told, function->id) != NULL) {
        return;
    }
    PL_CHECK(pl_map_set(&device->told, function->id, device) == PLASMON_OK);
    head_bytes_append(&device->out, function->define.data, function->define.length);
    if (device->out.length > HEAD_BODY_BYTES_MAX) {
        head_device_flush(core, device);
    }
}

void head_function_tell_id(struct head_core *core, struct head_device *device, uint32_t id)
{
    const struct head_function *function = head_function_by_id(core, id);

    PL_CHECK(function != NULL); /* it stays while a launch is unfinished */
    head_function_tell(core, device, function);
}

void head_functions_tell_again(struct head_core *core, struct head_device *device)
{
    size_t index = 0;
    uint64_t id;
    void *value;

    pl_vec_clear(&device->out_function_free); /* it knows none */
    while (pl_map_next(&device->told, &index, &id, &value)) {
        const struct head_function *function = head_function_by_id(core, (uint32_t)id);

        PL_CHECK(function != NULL); /* both go together */
        head_bytes_append(&device->out, function->define.data, function->define.length);
        if (device->out.length > HEAD_BODY_BYTES_MAX) {
            head_device_flush(core, device);
        }
    }
}

void head_functions_flush(struct head_device *device)
{
    if (device->out_function_free.count > 0) {
        head_bytes_field(&device->out, FIELD_FUNCTION_FREE, device->out_function_free.items,
                         device->out_function_free.count * sizeof(uint32_t));
        pl_vec_clear(&device->out_function_free);
    }
}

/* ------------------------------------------------------------------------------ waiting */

/* Some device of the kind that can compile it, to ask; NULL. */
static struct head_device *
device_to_ask(struct head_core *core, const struct head_function *function, uint32_t kind)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->joined && device->kind == kind &&
            head_function_runs_on(function, device)) {
            return device;
        }
    }
    return NULL;
}

/* Is everything known that there is to know? Then *out_worst is what to answer. What is not is asked for. */
static bool judged(struct head_core *core, struct head_function *function,
                   const struct head_verdict **out_worst)
{
    bool all = true;

    *out_worst = NULL;
    for (uint32_t kind = 1; kind <= HEAD_FUNCTION_KINDS; kind++) {
        const struct head_verdict *verdict = &function->verdict[kind - 1];
        struct head_device *device         = device_to_ask(core, function, kind);

        if (device == NULL) {
            continue; /* no such device: nothing runs there either */
        }
        if (!verdict->known) {
            head_function_tell(core, device, function);
            all = false;
        } else if (*out_worst == NULL || (*out_worst)->status == PLASMON_OK) {
            *out_worst = verdict;
        }
    }
    return all;
}

static void answer(struct head_core *core, struct head_function *function)
{
    struct head_failure *nowhere = NULL;
    const struct head_verdict *worst;
    plasmon_status_t status;
    const char *text;

    if (function->waiters.count == 0 || !judged(core, function, &worst)) {
        return;
    }
    if (worst == NULL) {
        nowhere = head_function_nowhere(core, function);
    }
    status = worst != NULL ? worst->status : nowhere != NULL ? nowhere->status : PLASMON_OK;
    text   = worst != NULL ? worst->text : nowhere != NULL ? nowhere->text : "";
    for (size_t i = 0; i < function->waiters.count; i++) {
        const struct head_function_waiter *waiter = pl_vec_at(&function->waiters, i);
        struct head_client *client = pl_map_get(&core->sessions, waiter->session);

        if (client != NULL) {
            head_reply(core, client, waiter->request, status, text);
        }
    }
    pl_vec_clear(&function->waiters);
    head_failure_release(nowhere);
}

void head_function_wait(struct head_core *core, struct head_client *client,
                        const Plasmon__V1__FunctionWait *wire)
{
    struct head_function *function = head_function_of(client, wire->function);
    struct head_function_waiter *waiter;

    if (function == NULL) {
        head_reply(core, client, wire->request, PLASMON_ENOFUNCTION,
                   "this session has not defined the function");
        return;
    }
    waiter = pl_vec_push(&function->waiters);
    PL_CHECK(waiter != NULL);
    *waiter =
        (struct head_function_waiter){.session = client->session, .request = wire->request};
    answer(core, function);
}

void head_function_report(struct head_core *core, struct head_device *device,
                          const Plasmon__V1__FunctionReport *report)
{
    struct head_function *function = head_function_by_id(core, report->id);
    struct head_verdict *verdict;

    if (function == NULL || device->kind < 1 || device->kind > HEAD_FUNCTION_KINDS) {
        return; /* it was freed meanwhile */
    }
    verdict = &function->verdict[device->kind - 1];
    pl_free(verdict->text);
    *verdict = (struct head_verdict){.known  = true,
                                     .status = report->status <= 0
                                                   ? (plasmon_status_t)report->status
                                                   : PLASMON_EINTERNAL,
                                     .text   = head_strdup(report->text)};
    answer(core, function);
}

void head_functions_look_again(struct head_core *core)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->functions) {
        answer(core, pl_container_of(pos, struct head_function, link));
    }
}

/* ----------------------------------------------------------------------------- sessions */

bool head_function_retired(const struct head_function *function)
{
    return function->sessions == 0 && function->records == 0 && function->used;
}

/* One who could call it is gone. */
static void retire(struct head_core *core, struct head_function *function)
{
    if (head_function_retired(function)) {
        core->functions_retired++;
        function->retired = core->order_last;
    }
}

plasmon_status_t head_function_define(struct head_core *core, struct head_client *client,
                                      const Plasmon__V1__FunctionDefine *define,
                                      struct pl_err *err)
{
    struct head_function *function = head_function_of(client, define->id);

    if (function != NULL) {
        return memcmp(function->hash, define->hash.data, WIRE_HASH_BYTES) == 0
                   ? PLASMON_OK
                   : pl_err_set(err, PLASMON_EMALFORMED,
                                "function %08x is defined again, with other content",
                                define->id);
    }
    if (client->functions.count >= WIRE_FUNCTIONS_MAX) {
        return pl_err_set(err, PLASMON_ELIMIT, "the session defines over %u functions",
                          WIRE_FUNCTIONS_MAX);
    }
    function = find_content(core, define->hash.data);
    if (function == NULL) {
        function = function_create(core, define);
    }
    core->functions_retired -= head_function_retired(function);
    function->used = true;
    function->sessions++;
    PL_CHECK(pl_map_set(&client->functions, define->id, function) == PLASMON_OK);
    return PLASMON_OK;
}

void head_functions_release(struct head_core *core, struct head_client *client)
{
    struct head_function *function;
    uint64_t number;
    size_t at = 0;

    while ((function = pl_map_some(&client->functions, &at, &number)) != NULL) {
        (void)pl_map_remove(&client->functions, number);
        function->sessions--;
        retire(core, function);
    }
}

void head_function_hold(struct head_function *function)
{
    function->records++;
}

void head_function_release(struct head_core *core, struct head_function *function)
{
    PL_CHECK(function->records > 0);
    function->records--;
    retire(core, function);
}

static void function_free(struct head_core *core, struct head_function *function)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint32_t *place;

        if (pl_map_remove(&device->told, function->id) == NULL) {
            continue;
        }
        place = pl_vec_push(&device->out_function_free);
        PL_CHECK(place != NULL);
        *place = function->id;
    }
    function_destroy(core, function);
}

void head_functions_reap(struct head_core *core)
{
    struct pl_list *pos, *tmp;
    uint64_t oldest;

    if (core->functions_retired == 0) {
        return;
    }
    oldest = pl_list_empty(&core->unfinished)
                 ? UINT64_MAX
                 : pl_list_first(&core->unfinished, struct head_task, order_link)->order;
    pl_list_for_each_safe(pos, tmp, &core->functions) {
        struct head_function *function = pl_container_of(pos, struct head_function, link);

        if (head_function_retired(function) && function->retired < oldest) {
            core->functions_retired--;
            function_free(core, function);
        }
    }
}

void head_functions_destroy(struct head_core *core)
{
    while (!pl_list_empty(&core->functions)) {
        function_destroy(core, pl_list_first(&core->functions, struct head_function, link));
    }
    pl_map_finish(&core->functions_by_id);
}
