/*
 * Functions that clients define, in a checkpoint: each once; the devices that were told, and the
 * sessions that may call it, name it by its id.
 */
#include "head/checkpoint_int.h"

#include <string.h>

#include "head/function.h"

bool head_functions_waited_for(const struct head_core *core)
{
    const struct pl_list *pos;

    pl_list_for_each(pos, &core->functions) {
        if (pl_container_of(pos, struct head_function, link)->waiters.count > 0) {
            return true;
        }
    }
    return false;
}

static void function_save(const struct head_function *function, struct head_bytes *out)
{
    head_bytes_varint(out, function->id);
    head_bytes_varint(out, function->used);
    head_bytes_varint(out, function->retired);
    head_bytes_varint(out, function->needs);
    head_save_bytes(out, function->hash, sizeof(function->hash));
    head_save_text(out, function->name);
    head_save_bytes(out, function->define.data, function->define.length);
    for (uint32_t i = 0; i < HEAD_FUNCTION_KINDS; i++) {
        const struct head_verdict *verdict = &function->verdict[i];

        head_bytes_varint(out, verdict->known);
        head_bytes_varint(out, (uint32_t)verdict->status);
        head_save_text(out, verdict->text);
    }
}

void head_functions_save(const struct head_core *core, struct head_bytes *out)
{
    const struct pl_list *pos;

    head_bytes_varint(out, core->functions_by_id.count);
    pl_list_for_each(pos, &core->functions) {
        function_save(pl_container_of(pos, struct head_function, link), out);
    }
}

void head_functions_save_told(const struct head_device *device, struct head_bytes *out)
{
    uint64_t id;
    void *value;

    head_bytes_varint(out, device->told.count);
    for (size_t i = 0; pl_map_next(&device->told, &i, &id, &value);) {
        head_bytes_varint(out, id);
    }
}

void head_functions_save_client(const struct head_client *client, struct head_bytes *out)
{
    uint64_t number;
    void *function;

    head_bytes_varint(out, client->functions.count);
    for (size_t i = 0; pl_map_next(&client->functions, &i, &number, &function);) {
        head_bytes_varint(out, number);
        head_bytes_varint(out, ((const struct head_function *)function)->id);
    }
}

static void verdict_load(struct head_reader *in, struct head_verdict *verdict)
{
    verdict->known  = head_load_flag(in);
    verdict->status = (plasmon_status_t)(int32_t)head_load_below(in, UINT32_MAX);
    verdict->text   = head_load_text(in);
}

static void function_load(struct head_core *core, struct head_reader *in)
{
    uint32_t id = (uint32_t)head_load_below(in, UINT32_MAX);
    struct head_function *function;
    const uint8_t *bytes;
    size_t length;

    if (in->bad || !wire_function_defined(id) || head_function_by_id(core, id) != NULL) {
        in->bad = true;
        return;
    }
    function          = head_alloc(sizeof(*function));
    function->id      = id;
    function->waiters = PL_VEC_INIT(struct head_function_waiter);
    pl_list_init(&function->link);
    pl_list_add_tail(&core->functions, &function->link);
    PL_CHECK(pl_map_set(&core->functions_by_id, id, function) == PLASMON_OK);
    function->used    = head_load_flag(in);
    function->retired = head_load_number(in);
    function->needs   = (uint32_t)head_load_below(in, UINT32_MAX);
    bytes             = head_load_bytes(in, &length);
    if (length == sizeof(function->hash)) {
        memcpy(function->hash, bytes, length);
    } else {
        in->bad = true;
    }
    function->name = head_load_text(in);
    bytes          = head_load_bytes(in, &length);
    if (length > 0) {
        head_bytes_append(&function->define, bytes, length);
    }
    for (uint32_t i = 0; i < HEAD_FUNCTION_KINDS; i++) {
        verdict_load(in, &function->verdict[i]);
    }
}

void head_functions_load(struct head_core *core, struct head_reader *in)
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        function_load(core, in);
    }
}

static struct head_function *load_named(struct head_core *core, struct head_reader *in)
{
    uint32_t id                    = (uint32_t)head_load_below(in, UINT32_MAX);
    struct head_function *function = id == 0 ? NULL : head_function_by_id(core, id);

    in->bad |= function == NULL;
    return function;
}

void head_functions_load_told(struct head_core *core, struct head_device *device,
                              struct head_reader *in)
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        const struct head_function *function = load_named(core, in);

        if (function != NULL) {
            PL_CHECK(pl_map_set(&device->told, function->id, device) == PLASMON_OK);
        }
    }
}

void head_functions_load_client(struct head_core *core, struct head_client *client,
                                struct head_reader *in)
{
    size_t count = head_load_count(in);

    for (size_t i = 0; i < count && !in->bad; i++) {
        uint64_t number                = head_load_below(in, UINT32_MAX);
        struct head_function *function = load_named(core, in);

        if (function == NULL || number == 0 ||
            pl_map_get(&client->functions, number) != NULL) {
            in->bad = true;
            return;
        }
        function->sessions++;
        PL_CHECK(pl_map_set(&client->functions, number, function) == PLASMON_OK);
    }
}

void head_functions_settle(struct head_core *core)
{
    const struct pl_list *pos;

    core->functions_retired = 0;
    pl_list_for_each(pos, &core->functions) {
        core->functions_retired +=
            head_function_retired(pl_container_of(pos, struct head_function, link));
    }
}
