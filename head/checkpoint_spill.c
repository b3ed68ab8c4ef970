/*
 * Hosts, and what lies in their memory and files, in a checkpoint (spill.h). For each host: its
 * settings and counters, its buffers, least recently named first; then the numbers of those that
 * have a place in the slab, twice: as they lie there, and least recently bound first.
 *
 * None is made while a store is at work for the head, so nothing here is busy or pinned.
 */
#include "head/checkpoint_int.h"

#include <string.h>

enum { HOST_NUMBERS = 22 };

/* ------------------------------------------------------------------------------- saving */

static void save_spilled(struct head_saving *saving, struct head_buffer *buffer)
{
    struct head_bytes *out             = saving->out;
    const struct head_spilled *spilled = buffer->spilled;

    PL_CHECK(!spilled->busy && spilled->pins == 0 && spilled->span == spilled->bytes);
    (void)head_numbering_of(&saving->buffers, buffer);
    head_save_box(out, &buffer->frame);
    head_bytes_varint(out, buffer->dtype);
    head_bytes_varint(out, (uint64_t)buffer->donatable | (uint64_t)buffer->replica << 1 |
                               (uint64_t)spilled->placed << 2 |
                               (uint64_t)spilled->filled << 3);
    head_bytes_varint(out, spilled->placed ? spilled->offset : 0);
    head_bytes_varint(out, spilled->file);
}

static void save_host(struct head_saving *saving, const struct head_spill_host *spill)
{
    struct head_bytes *out               = saving->out;
    const uint64_t numbers[HOST_NUMBERS] = {spill->config.memory_bytes,
                                            spill->config.file_bytes,
                                            spill->config.life,
                                            spill->slab,
                                            spill->slab_buffer,
                                            spill->files_full,
                                            spill->file_bytes,
                                            spill->op_last,
                                            spill->spills,
                                            spill->spill_bytes,
                                            spill->restores,
                                            spill->restore_bytes,
                                            spill->writes,
                                            spill->write_bytes,
                                            spill->reads,
                                            spill->read_bytes,
                                            spill->config.write_back,
                                            spill->config.on_demand,
                                            spill->write_backs,
                                            spill->write_back_bytes,
                                            spill->cancels,
                                            spill->slab_bytes};
    struct pl_list *pos;

    head_save_text(out, spill->home.host);
    for (size_t i = 0; i < HOST_NUMBERS; i++) {
        head_bytes_varint(out, numbers[i]);
    }
    head_save_text(out, spill->slab_why);
    head_save_text(out, spill->files_why);
    head_bytes_varint(out, head_list_count(&spill->home.recent));
    pl_list_for_each(pos, &spill->home.recent) {
        save_spilled(saving, pl_container_of(pos, struct head_buffer, recent_link));
    }
    head_bytes_varint(out, head_list_count(&spill->ranges));
    pl_list_for_each(pos, &spill->ranges) {
        head_bytes_varint(
            out, head_numbering_of(
                     &saving->buffers,
                     pl_container_of(pos, struct head_spilled, range_link)->buffer));
    }
    pl_list_for_each(pos, &spill->recent) {
        head_bytes_varint(
            out, head_numbering_of(
                     &saving->buffers,
                     pl_container_of(pos, struct head_spilled, recent_link)->buffer));
    }
}

void head_spill_save(struct head_saving *saving)
{
    const struct pl_list *pos;

    head_bytes_varint(saving->out, head_list_count(&saving->core->spill_hosts));
    pl_list_for_each(pos, &saving->core->spill_hosts) {
        save_host(saving, pl_container_of(pos, struct head_spill_host, link));
    }
}

/* ------------------------------------------------------------------------------ loading */

static void load_spilled(struct head_loading *loading, struct head_spill_host *spill)
{
    struct head_reader *in     = loading->in;
    struct head_buffer *buffer = head_loading_buffer(loading, &spill->home, 0);
    struct head_spilled *spilled;
    uint64_t flags;

    if (buffer == NULL) {
        return;
    }
    flags             = head_load_below(in, 15);
    spilled           = head_alloc(sizeof(*spilled));
    buffer->spilled   = spilled;
    buffer->donatable = (flags & 1) != 0;
    buffer->replica   = (flags & 2) != 0;
    spilled->buffer   = buffer;
    spilled->bytes    = head_spill_rounded(buffer->bytes);
    spilled->span     = spilled->bytes;
    spilled->filled   = (flags & 8) != 0;
    spilled->offset   = head_load_number(in);
    spilled->file     = head_load_below(in, spill->op_last);
    head_spill_size_add(spill, spilled->bytes);
    /* Where it lies comes below: until then it has no place. */
    pl_list_init(&spilled->range_link);
    pl_list_init(&spilled->recent_link);
}

static struct head_spilled *spilled_at(struct head_loading *loading,
                                       const struct head_spill_host *spill)
{
    const struct head_buffer *buffer =
        head_loading_item(loading, &loading->buffers, head_load_number(loading->in));

    if (buffer == NULL || buffer->device != &spill->home) {
        loading->in->bad = true;
        return NULL;
    }
    return buffer->spilled;
}

/* Side by side, inside the slab; and the same ones in the order of use. */
static void load_places(struct head_loading *loading, struct head_spill_host *spill)
{
    size_t count = head_load_count(loading->in);
    uint64_t end = 0;

    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        struct head_spilled *spilled = spilled_at(loading, spill);

        if (spilled == NULL || spilled->placed || spilled->offset < end ||
            spilled->offset > spill->slab_bytes ||
            spilled->bytes > spill->slab_bytes - spilled->offset) {
            loading->in->bad = true;
            return;
        }
        end             = spilled->offset + spilled->bytes;
        spilled->placed = true;
        pl_list_add_tail(&spill->ranges, &spilled->range_link);
    }
    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        struct head_spilled *spilled = spilled_at(loading, spill);

        if (spilled == NULL || !spilled->placed || !pl_list_empty(&spilled->recent_link)) {
            loading->in->bad = true;
            return;
        }
        pl_list_add_tail(&spill->recent, &spilled->recent_link);
    }
}

/* NULL: there is one with this name, or none that can be. */
static struct head_spill_host *host_make(struct head_loading *loading, const char *host,
                                         const uint64_t numbers[HOST_NUMBERS])
{
    if (loading->in->bad || numbers[0] == 0 || numbers[0] > WIRE_SPILL_BYTES_MAX ||
        numbers[3] > HEAD_SLAB_FAILED || numbers[16] > 100 || numbers[17] > 1 ||
        numbers[3] == HEAD_SLAB_ASKED || numbers[21] > numbers[0] ||
        head_spill_host_of(loading->core, host) != NULL) {
        return NULL;
    }
    head_core_spill_up(loading->core, host,
                       &(struct head_spill_config){.memory_bytes = numbers[0],
                                                   .file_bytes   = numbers[1],
                                                   .life         = numbers[2],
                                                   .write_back   = (uint32_t)numbers[16],
                                                   .on_demand    = numbers[17] != 0});
    return head_spill_host_of(loading->core, host);
}

static void load_host(struct head_loading *loading)
{
    struct head_reader *in = loading->in;
    char *host             = head_load_text(in);
    struct head_spill_host *spill;
    uint64_t numbers[HOST_NUMBERS];
    char *slab_why, *files_why;
    size_t count;

    for (size_t i = 0; i < HOST_NUMBERS; i++) {
        numbers[i] = head_load_number(in);
    }
    slab_why  = head_load_text(in);
    files_why = head_load_text(in);
    spill     = host_make(loading, host, numbers);
    pl_free(host);
    if (spill == NULL) {
        in->bad = true;
        pl_free(slab_why);
        pl_free(files_why);
        return;
    }
    spill->slab             = (enum head_slab_state)numbers[3];
    spill->slab_buffer      = numbers[4];
    spill->files_full       = numbers[5] != 0;
    spill->file_bytes       = numbers[6];
    spill->op_last          = numbers[7];
    spill->spills           = numbers[8];
    spill->spill_bytes      = numbers[9];
    spill->restores         = numbers[10];
    spill->restore_bytes    = numbers[11];
    spill->writes           = numbers[12];
    spill->write_bytes      = numbers[13];
    spill->reads            = numbers[14];
    spill->read_bytes       = numbers[15];
    spill->write_backs      = numbers[18];
    spill->write_back_bytes = numbers[19];
    spill->cancels          = numbers[20];
    spill->slab_bytes       = numbers[21];
    spill->slab_why         = slab_why;
    spill->files_why        = files_why;
    count                   = head_load_count(in);
    for (size_t i = 0; i < count && !in->bad; i++) {
        load_spilled(loading, spill);
    }
    load_places(loading, spill);
    head_spill_places_loaded(spill);
}

void head_spill_load(struct head_loading *loading)
{
    size_t count = head_load_count(loading->in);

    for (size_t i = 0; i < count && !loading->in->bad; i++) {
        load_host(loading);
    }
}
