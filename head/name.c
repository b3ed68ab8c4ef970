/*
 * Published names: how clients share arrays, within a namespace. A name holds a snapshot of its own, so what its publisher writes later is
 * not seen under it; who looks it up gets another, so that writing to it forks.
 */
#include "head/core_int.h"

#include <stdio.h>
#include <string.h>

static size_t name_key(const struct head_client *client, const char *name,
                       char out[2 * WIRE_NAME_BYTES_MAX + 2])
{
    size_t space  = strnlen(client->space->name, WIRE_NAME_BYTES_MAX);
    size_t length = strnlen(name, WIRE_NAME_BYTES_MAX);

    memcpy(out, client->space->name, space);
    out[space] = '\0';
    memcpy(out + space + 1, name, length);
    return space + 1 + length;
}

static struct head_name *name_find(struct head_core *core, const char *key, size_t length)
{
    struct pl_list *pos;

    pl_list_for_each(pos, &core->names) {
        struct head_name *name = pl_container_of(pos, struct head_name, link);

        if (name->key_length == length && memcmp(name->key, key, length) == 0) {
            return name;
        }
    }
    return NULL;
}

static void name_remove(struct head_core *core, struct head_name *name)
{
    pl_list_remove(&name->link);
    head_array_release(core, name->ref.array);
    pl_free(name->key);
    pl_free(name);
}

void head_names_destroy(struct head_core *core)
{
    while (!pl_list_empty(&core->names)) {
        name_remove(core, pl_list_first(&core->names, struct head_name, link));
    }
}

static void reply_unknown(struct head_core *core, struct head_client *client,
                          uint64_t request, const char *name)
{
    char text[2 * WIRE_NAME_BYTES_MAX + 128];

    (void)snprintf(text, sizeof(text),
                   "nothing is published as \"%.*s\" in namespace \"%.*s\"; "
                   "`plasmon objects` lists what is",
                   (int)WIRE_NAME_BYTES_MAX, name, (int)WIRE_NAME_BYTES_MAX,
                   client->space->name);
    head_reply(core, client, request, PLASMON_ENOENT, text);
}

void head_name_publish(struct head_core *core, struct head_client *client,
                       const Plasmon__V1__Publish *wire)
{
    char key[2 * WIRE_NAME_BYTES_MAX + 2];
    size_t length         = name_key(client, wire->name, key);
    struct head_name *old = name_find(core, key, length);
    struct head_name *name;
    struct head_ref *ref = NULL;
    struct pl_err err    = {0};
    struct pl_view view;

    if (wire->name[0] == '\0') {
        head_reply(core, client, wire->request, PLASMON_EINVAL,
                   "an empty name cannot be published");
        return;
    }
    if (wire->ref == 0) {
        if (old == NULL) {
            reply_unknown(core, client, wire->request, wire->name);
            return;
        }
        name_remove(core, old);
        head_reply(core, client, wire->request, PLASMON_OK, "");
        return;
    }
    if (head_client_ref_get(client, wire->ref, 0, &ref, &err) != PLASMON_OK) {
        head_reply(core, client, wire->request, err.status, err.text);
        return;
    }
    if (ref->based) {
        view = ref->base;
    } else {
        view = pl_view_whole(&ref->array->shape);
    }
    head_reduce_fold(core, ref->array);
    name      = head_alloc(sizeof(*name));
    name->key = head_alloc(length + 1); /* ends in a NUL, too: it is shown */
    memcpy(name->key, key, length);
    name->key_length   = length;
    name->ref          = *ref;
    struct pl_box hull = pl_view_hull(&view);
    name->ref.array    = head_array_snapshot(core, ref->array->space, ref->array, &hull);
    pl_list_init(&name->link);
    if (old != NULL) {
        name_remove(core, old); /* a new version under the old name */
    }
    pl_list_add_tail(&core->names, &name->link);
    head_reply(core, client, wire->request, PLASMON_OK, "");
}

void head_name_lookup(struct head_core *core, struct head_client *client,
                      const Plasmon__V1__Lookup *wire)
{
    char key[2 * WIRE_NAME_BYTES_MAX + 2];
    struct head_name *name = name_find(core, key, name_key(client, wire->name, key));
    struct pl_err err      = {0};
    struct pl_shape shape;
    struct head_array *copy;

    if (name == NULL) {
        reply_unknown(core, client, wire->request, wire->name);
        return;
    }
    shape = name->ref.based ? pl_view_shape(&name->ref.base, name->ref.array->shape.dtype)
                            : name->ref.array->shape;
    /* A snapshot of its own, so that writing to it forks. */
    copy = head_array_snapshot(core, name->ref.array->space, name->ref.array,
                               &name->ref.array->extent);
    if (head_client_ref_add(core, client, wire->new_ref, copy,
                            name->ref.based ? &name->ref.base : NULL, &err) != PLASMON_OK) {
        head_reply(core, client, wire->request, err.status, err.text);
        return;
    }
    head_reply_shape(core, client, wire->request, PLASMON_OK, "", &shape);
}
