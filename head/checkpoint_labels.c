/*
 * Labels of tiles (label.h) in a checkpoint: each text once, with the numbers of the tiles that
 * have it. A head without any writes nothing, and reads what heads wrote before there were labels.
 *
 *   HEAD_SECTION_LABELS, texts, then for each: text, tiles, then for each: its number, less that of
 *   the one before
 */
#include <string.h>

#include "head/checkpoint_int.h"

/* ------------------------------------------------------------------------------- saving */

/* A text and its tiles, ascending. */
struct group {
    const char *text;
    struct pl_vec tiles; /* uint64_t */
};

static void groups_collect(struct head_saving *saving, struct pl_vec *groups)
{
    struct pl_map by_label; /* number of a label -> number of its group, from 1 */

    pl_map_init(&by_label);
    for (size_t i = 0; i < saving->tiles.items.count; i++) {
        const struct head_tile *tile =
            *(struct head_tile **)pl_vec_at(&saving->tiles.items, i);
        uintptr_t group;
        uint64_t *place;

        if (tile->label == 0) {
            continue;
        }
        group = (uintptr_t)pl_map_get(&by_label, tile->label);
        if (group == 0) {
            struct group *made = pl_vec_push(groups);

            PL_CHECK(made != NULL);
            *made = (struct group){.text  = head_tile_label(saving->core, tile),
                                   .tiles = PL_VEC_INIT(uint64_t)};
            group = groups->count;
            PL_CHECK(pl_map_set(&by_label, tile->label, (void *)group) == PLASMON_OK);
        }
        place = pl_vec_push(&((struct group *)pl_vec_at(groups, group - 1))->tiles);
        PL_CHECK(place != NULL);
        *place = i + 1;
    }
    pl_map_finish(&by_label);
}

static void group_save(struct head_bytes *out, const struct group *group)
{
    uint64_t last = 0;

    head_save_text(out, group->text);
    head_bytes_varint(out, group->tiles.count);
    for (size_t i = 0; i < group->tiles.count; i++) {
        uint64_t number = *(uint64_t *)pl_vec_at(&group->tiles, i);

        head_bytes_varint(out, number - last);
        last = number;
    }
}

void head_labels_save(struct head_saving *saving)
{
    struct pl_vec groups = PL_VEC_INIT(struct group);

    groups_collect(saving, &groups);
    if (groups.count > 0) {
        head_bytes_varint(saving->out, HEAD_SECTION_LABELS);
        head_bytes_varint(saving->out, groups.count);
    }
    for (size_t i = 0; i < groups.count; i++) {
        struct group *group = pl_vec_at(&groups, i);

        group_save(saving->out, group);
        pl_vec_finish(&group->tiles);
    }
    pl_vec_finish(&groups);
}

/* ------------------------------------------------------------------------------ loading */

static void group_load(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    char *text             = head_load_text(in);
    size_t count           = head_load_count(in);
    uint64_t number        = 0;

    in->bad |= text[0] == '\0' || strlen(text) > WIRE_LABEL_BYTES_MAX;
    for (size_t i = 0; i < count && !in->bad; i++) {
        struct head_tile *tile;

        number += head_load_below(in, loading->tiles.count);
        tile = head_loading_item(loading, &loading->tiles, number);
        if (tile == NULL || tile->label != 0) {
            in->bad = true;
            break;
        }
        head_tile_label_set(loading->core, tile, text);
    }
    pl_free(text);
}

uint64_t head_labels_load(struct head_loading *loading)
{
    uint64_t section = head_load_number(loading->in);
    size_t count;

    if (section != HEAD_SECTION_LABELS) {
        return section;
    }
    count = head_load_count(loading->in);
    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        group_load(loading);
    }
    return head_load_number(loading->in);
}
