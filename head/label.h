/*
 * Labels of values: what the put or the call that wrote a value said of it, for people who look for
 * it among thousands (`plasmon objects`, `plasmon memory`).
 *
 * A tile has the label of what wrote it for as long as it exists: copies, spills and views show the
 * same tile, and a call that is run again fills it again. What is written over gets a tile, and so
 * a label, of its own. An array shows as many as it has parts.
 *
 * MEMORY. A label has up to 128 bytes, and there may be a hundred thousand values of the same few.
 * So a tile has the number of a text, in what would be padding, and texts are shared: whoever gives
 * one that was given lately gets the same number. Lately, because a table of all of them by their
 * hashes would be a client's to fill with texts of one hash: a text that is not found is there
 * twice, which is no harm.
 */
#ifndef HEAD_LABEL_H
#define HEAD_LABEL_H

#include "base/vec.h"

struct head_array;
struct head_core;
struct head_tile;
struct pl_box;
struct pl_str;

enum {
    HEAD_LABELS_RECENT   = 256, /* texts that are found again */
    HEAD_LABELS_SEEN_MAX = 8,   /* of one value that are told apart */
    HEAD_LABELS_SAID_MAX = 3    /* in an error */
};

struct head_label {
    char *text;    /* owned; NULL: a free place .. */
    uint32_t uses; /* tiles */
    uint32_t next; /* .. and the number of the next one; 0: none */
};

struct head_labels {
    struct pl_vec items; /* struct head_label; number 1 is the first */
    uint32_t free;       /* number of a free place; 0: none */
    /* by hash: a number, whose text may be another one by now; 0: none */
    uint32_t recent[HEAD_LABELS_RECENT];
};

void head_labels_init(struct head_core *core);
void head_labels_finish(struct head_core *core); /* all tiles are gone */

/* The tile, which has none, gets it: one that is not empty. */
void head_tile_label_give(struct head_core *core, struct head_tile *tile, const char *text);
/* The same; NULL and "": it gets none. In each call that writes, and few say anything. */
static inline void head_tile_label_set(struct head_core *core, struct head_tile *tile,
                                       const char *text)
{
    if (text != NULL && text[0] != '\0') {
        head_tile_label_give(core, tile, text);
    }
}
/* It has one, and goes. */
void head_tile_label_drop(struct head_core *core, struct head_tile *tile);
/* Lent until the tile goes; NULL: none. */
const char *head_tile_label(const struct head_core *core, const struct head_tile *tile);

struct head_label_seen {
    const char *text; /* lent */
    uint64_t bytes;
};
/* What the parts of one value say, while they are looked at. Zeroed but for these two: */
struct head_labels_seen {
    const struct head_core *core;
    const char *wanted; /* is this in any of them? NULL and "": in all */
    bool found;         /* it was */
    bool others;        /* parts without one, or more than are told apart */
    uint32_t count;
    struct head_label_seen of[HEAD_LABELS_SEEN_MAX];
};
/* A part: so many bytes of the tile. */
void head_labels_see(struct head_labels_seen *seen, const struct head_tile *tile,
                     uint64_t bytes);
/* That of most bytes, lent; NULL: none has one. *out_more: not of all parts. */
const char *head_labels_most(const struct head_labels_seen *seen, bool *out_more);
/* The same of a box of an array. */
const char *head_array_label(const struct head_core *core, const struct head_array *array,
                             const struct pl_box *box);
/* `"weights" 2.0 GiB, "loss" 4.0 KiB`: the few with most bytes, largest first. Nothing if no part has one. */
void head_labels_say(struct head_labels_seen *seen, struct pl_str *out);

#endif
