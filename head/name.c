/*
 * Published names: how clients share arrays, within a namespace. A name holds a snapshot of its
 * own, so what its publisher writes later is not seen under it; who looks it up gets another, so
 * that writing to it forks.
 *
 * FINDING ONE takes the same time however many there are: core->names_by_hash has the first of
 * those whose keys have the same hash, the others hang behind it. Keys come from clients, so the
 * hash is the beginning of their SHA-256: for a chain of three somebody would have to find three
 * texts that agree in 64 bits of it.
 *
 * GOING ON WITH A LIST of them, after a pause in which some came and went: core->names is in the
 * order of their numbers, and new ones go to its end. Who remembers the number of the next one
 * finds it, or the first behind it if it has gone.
 */
#include "head/core_int.h"

#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

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

static uint64_t name_hash(const char *key, size_t length)
{
    uint8_t digest[PL_SHA256_BYTES];
    struct pl_sha256 sha;
    uint64_t hash;

    pl_sha256_init(&sha);
    pl_sha256_add(&sha, key, length);
    pl_sha256_finish(&sha, digest);
    memcpy(&hash, digest, sizeof(hash));
    return hash != 0 ? hash : 1;
}

/* The first of a chain that has the key; NULL: none. */
static struct head_name *name_in_chain(struct head_name *name, const char *key,
                                       size_t length)
{
    while (name != NULL &&
           (name->key_length != length || memcmp(name->key, key, length) != 0)) {
        name = name->same;
    }
    return name;
}

static struct head_name *name_find(const struct head_core *core, const char *key,
                                   size_t length)
{
    return name_in_chain(pl_map_get(&core->names_by_hash, name_hash(key, length)), key,
                         length);
}

bool head_name_add(struct head_core *core, struct head_name *name)
{
    name->hash   = name_hash(name->key, name->key_length);
    name->same   = pl_map_get(&core->names_by_hash, name->hash);
    name->number = ++core->name_last;
    PL_CHECK(pl_map_set(&core->names_by_hash, name->hash, name) == PLASMON_OK);
    PL_CHECK(pl_map_set(&core->names_by_number, name->number, name) == PLASMON_OK);
    pl_list_add_tail(&core->names, &name->link);
    return name_in_chain(name->same, name->key, name->key_length) == NULL;
}

/* Out of the chain that it is in. */
static void name_unchain(struct head_core *core, const struct head_name *name)
{
    struct head_name *first = pl_map_get(&core->names_by_hash, name->hash);

    if (first != name) {
        while (first->same != name) {
            first = first->same;
        }
        first->same = name->same;
    } else if (name->same != NULL) {
        PL_CHECK(pl_map_set(&core->names_by_hash, name->hash, name->same) == PLASMON_OK);
    } else {
        (void)pl_map_remove(&core->names_by_hash, name->hash);
    }
}

static void name_remove(struct head_core *core, struct head_name *name)
{
    name_unchain(core, name);
    (void)pl_map_remove(&core->names_by_number, name->number);
    pl_list_remove(&name->link);
    head_array_release(core, name->ref.array);
    pl_free(name->key);
    pl_free(name);
}

struct head_name *head_name_from(const struct head_core *core, uint64_t number)
{
    struct head_name *name = pl_map_get(&core->names_by_number, number);
    struct pl_list *pos    = name != NULL ? &name->link : core->names.next;

    while (pos != &core->names) {
        name = pl_container_of(pos, struct head_name, link);
        if (name->number >= number) {
            return name;
        }
        pos = pos->next;
    }
    return NULL;
}

struct head_name *head_name_next(const struct head_core *core, const struct head_name *name)
{
    return name->link.next != &core->names
               ? pl_container_of(name->link.next, struct head_name, link)
               : NULL;
}

void head_names_check(const struct head_core *core)
{
    uint64_t number = 0, count = 0;
    struct pl_list *pos;

    pl_list_for_each(pos, &core->names) {
        const struct head_name *name = pl_container_of(pos, struct head_name, link);

        PL_CHECK(name->number > number);
        PL_CHECK(name_find(core, name->key, name->key_length) == name);
        PL_CHECK(head_name_from(core, name->number) == name);
        number = name->number;
        count++;
    }
    PL_CHECK(count == core->names_by_number.count && number <= core->name_last);
}

void head_names_destroy(struct head_core *core)
{
    while (!pl_list_empty(&core->names)) {
        name_remove(core, pl_list_first(&core->names, struct head_name, link));
    }
    pl_map_finish(&core->names_by_hash);
    pl_map_finish(&core->names_by_number);
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
    (void)head_name_add(core, name); /* the old one is gone */
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
    head_reply_found(core, client, wire->request, &shape,
                     head_found_await(core, client, wire->task, copy));
}
