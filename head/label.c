/* Labels of values: see label.h. */
#include "head/core_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static struct head_label *label_at(const struct head_labels *labels, uint32_t number)
{
    return pl_vec_at(&labels->items, number - 1);
}

void head_labels_init(struct head_core *core)
{
    core->labels.items = PL_VEC_INIT(struct head_label);
}

void head_labels_finish(struct head_core *core)
{
    struct head_labels *labels = &core->labels;

    for (uint32_t number = 1; number <= labels->items.count; number++) {
        PL_CHECK(label_at(labels, number)->uses == 0);
    }
    pl_vec_finish(&labels->items);
}

/* A place, zeroed. */
static uint32_t place_take(struct head_labels *labels)
{
    uint32_t number = labels->free;

    if (number != 0) {
        labels->free              = label_at(labels, number)->next;
        *label_at(labels, number) = (struct head_label){.text = NULL};
        return number;
    }
    PL_CHECK(labels->items.count < UINT32_MAX);
    PL_CHECK(pl_vec_push(&labels->items) != NULL);
    return (uint32_t)labels->items.count;
}

void head_tile_label_give(struct head_core *core, struct head_tile *tile, const char *text)
{
    struct head_labels *labels = &core->labels;
    uint32_t *recent;

    PL_CHECK(tile->label == 0 && text[0] != '\0');
    recent = &labels->recent[pl_hash_name(text) % HEAD_LABELS_RECENT];
    if (*recent == 0 || label_at(labels, *recent)->uses == 0 ||
        strcmp(label_at(labels, *recent)->text, text) != 0) {
        *recent                         = place_take(labels);
        label_at(labels, *recent)->text = head_strdup(text);
    }
    label_at(labels, *recent)->uses++;
    tile->label = *recent;
}

void head_tile_label_drop(struct head_core *core, struct head_tile *tile)
{
    struct head_labels *labels = &core->labels;
    struct head_label *label   = label_at(labels, tile->label);

    PL_CHECK(label->uses > 0);
    if (--label->uses == 0) {
        pl_free(label->text);
        *label       = (struct head_label){.next = labels->free};
        labels->free = tile->label;
    }
    tile->label = 0;
}

const char *head_tile_label(const struct head_core *core, const struct head_tile *tile)
{
    return tile->label != 0 ? label_at(&core->labels, tile->label)->text : NULL;
}

static bool is_wanted(const struct head_labels_seen *seen, const char *text)
{
    return seen->wanted == NULL || seen->wanted[0] == '\0' ||
           strstr(text, seen->wanted) != NULL;
}

static uint32_t least_of(const struct head_labels_seen *seen)
{
    uint32_t least = 0;

    for (uint32_t i = 1; i < seen->count; i++) {
        if (seen->of[i].bytes < seen->of[least].bytes) {
            least = i;
        }
    }
    return least;
}

void head_labels_see(struct head_labels_seen *seen, const struct head_tile *tile,
                     uint64_t bytes)
{
    const char *text = head_tile_label(seen->core, tile);
    uint32_t at      = 0;

    if (text == NULL) {
        seen->others = true;
        return;
    }
    while (at < seen->count && seen->of[at].text != text &&
           strcmp(seen->of[at].text, text) != 0) {
        at++;
    }
    if (at < seen->count) {
        seen->of[at].bytes += bytes;
        return;
    }
    seen->found |= is_wanted(seen, text);
    if (at == HEAD_LABELS_SEEN_MAX) {
        seen->others = true;
        at           = least_of(seen);
        if (seen->of[at].bytes >= bytes) {
            return;
        }
    } else {
        seen->count++;
    }
    seen->of[at] = (struct head_label_seen){.text = text, .bytes = bytes};
}

const char *head_labels_most(const struct head_labels_seen *seen, bool *out_more)
{
    uint32_t most = 0;

    *out_more = seen->count > 1 || (seen->count == 1 && seen->others);
    for (uint32_t i = 1; i < seen->count; i++) {
        if (seen->of[i].bytes > seen->of[most].bytes) {
            most = i;
        }
    }
    return seen->count > 0 ? seen->of[most].text : NULL;
}

const char *head_array_label(const struct head_core *core, const struct head_array *array,
                             const struct pl_box *box)
{
    struct head_labels_seen seen = {.core = core};
    const struct head_fragment *fragment;
    bool more;

    for (fragment = head_array_meet(array, box); fragment != NULL;
         fragment = fragment->met) {
        struct pl_box part;

        if (pl_box_intersection(&fragment->box, box, &part)) {
            head_labels_see(&seen, fragment->tile, (uint64_t)pl_box_elements(&part));
        }
    }
    return head_labels_most(&seen, &more);
}

static int compare_bytes(const void *a, const void *b)
{
    const struct head_label_seen *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

void head_labels_say(struct head_labels_seen *seen, struct pl_str *out)
{
    char bytes[32];

    qsort(seen->of, seen->count, sizeof(seen->of[0]), compare_bytes);
    for (uint32_t i = 0; i < seen->count && i < HEAD_LABELS_SAID_MAX; i++) {
        pl_str_append(out, "%s\"%s\" %s", i > 0 ? ", " : "", seen->of[i].text,
                      pl_format_bytes(seen->of[i].bytes, bytes));
    }
}
