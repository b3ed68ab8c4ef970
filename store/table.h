/*
 * The object table of a device: which buffers lie in its arena, readable by every process of the
 * host, and standing when its writer dies.
 *
 * One writer (the device's worker; the store while the worker is dead), many readers (other
 * workers, clients). The head gives out slots and generations (wire_buffer), so an entry is found
 * without searching.
 *
 *   FREE -> WRITING -> SEALED -> (WRITING in place: CONSUMED -> SEALED) [-> RETIRED] -> DOOMED -> FREE
 *
 * Reader: pin in a page of its own (device's slot, generation), then read the entry: state SEALED,
 * generation equal, checksum
 *           right, state still SEALED; use the bytes; unpin when the copy is done. Anything else:
 *           unpin, and ask the head again.
 * Writer: to free, set DOOMED, then scan the pin pages for the slot; free only when none holds it,
 * otherwise try again
 *           later. To write in place, set CONSUMED first and scan likewise.
 *
 * Retired: nobody will name the buffer any more but launches that are enqueued on its device. Set,
 * then the pins are scanned as for DOOMED; when none holds it, its bytes may be another entry's
 * too, which is written behind those launches (worker/reuse.c). The entry stays, because after a
 * crash they may have to run again.
 *
 * The store-load order on both sides (pin then read; doom then scan; all four sequentially
 * consistent) is what makes it safe: at least one of the two sees the other.
 * tests/unit/store/test_table_model.c enumerates all interleavings, with a crash of either side
 * after every store.
 *
 * A FREE entry's generation is the next that may come: a reader of an older one knows that it is
 * too late, a reader of this one that it is too early.
 *
 * Recovery after a crash of the writer: DOOMED entries that nobody pins are freed
 * (store_table_sweep); WRITING and CONSUMED are not sealed, their bytes are right only if the
 * timeline shows launch `seq` complete. An entry whose checksum is wrong was being changed: FREE
 * and WRITING ones hold nothing; a CONSUMED one keeps offset and bytes, which never change.
 */
#ifndef STORE_TABLE_H
#define STORE_TABLE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/box.h"
#include "store/timeline.h"

#define STORE_TABLE_MAGIC 0x706c736d74623033ull
#ifndef STORE_TABLE_SLOTS /* the model checker has a table of two */
#define STORE_TABLE_SLOTS (1u << 18)
#define STORE_PIN_MAX     1021u /* pins a reader holds at a time */
#define STORE_CHUNK_MAX   4096u
#endif
#define STORE_READER_MAX 256u /* readers of one host: workers first, then clients */

enum store_state {
    STORE_FREE     = 0,
    STORE_WRITING  = 1, /* allocated, bytes not yet right */
    STORE_SEALED   = 2,
    STORE_CONSUMED = 3, /* was sealed, is being overwritten in place */
    STORE_DOOMED   = 4, /* to be freed; no new reader */
    STORE_RETIRED  = 5, /* no new reader; used by what is enqueued */
};

/* 128 bytes; everything but `state` is written before state is (release) and covered by the checksum. */
struct store_entry {
    uint32_t generation;
    uint32_t dtype;
    uint64_t offset; /* in the arena */
    uint64_t bytes;
    uint64_t seq; /* launch that writes it: right when that is done */
    uint32_t ndim;
    uint32_t flags;          /* enum store_entry_flags */
    int64_t dim[PL_DIM_MAX]; /* of the frame that the buffer holds */
    uint32_t checksum;
    _Atomic uint32_t state;
    uint64_t reserved[2];
};
static_assert(sizeof(struct store_entry) == 128, "shared between processes");

enum store_entry_flags {
    /* a client writes it: where it lies, or through a lane */
    STORE_ENTRY_CLIENT_WRITES = 1u << 0,
    STORE_ENTRY_REPLICA       = 1u << 1,
};

struct store_chunk {
    uint64_t offset; /* in the arena */
    uint64_t bytes;  /* 0: end of the list */
    uint32_t client_writable;
    uint32_t id; /* names the descriptor at the store */
};

/* worker/sources.h */
enum store_engines {
    STORE_ENGINES_IDLE,
    STORE_ENGINES_OPENS,
    STORE_ENGINES_OPENED,
    STORE_ENGINES_REFUSES,
};

struct store_table {
    uint64_t magic;
    uint32_t host_device;
    uint32_t kind; /* enum device_kind */
    uint32_t ordinal;
    _Atomic uint32_t chunk_count; /* release: chunks[0 .. count) are right */
    uint64_t arena_bytes;         /* of reserved address space */
    _Atomic uint32_t slot_high;   /* entries at and above it were never used; only grows */
    /*
     * 1: its staging ring has, in the life that device, epoch and node_session tell; release by the
     * worker (worker/siblings.c)
     */
    uint32_t ring_begun;
    uint64_t device; /* of the cluster, + 1, once its worker knows; written before epoch */
    uint64_t epoch;  /* of the head whose number that is; release by the worker */
    /* of its host with that head, which brought it; release, after epoch */
    uint64_t node_session;
    /* enum store_engines: whose engines make its large copies; by the worker */
    uint32_t engines;
    uint32_t unused[13];
    /* by pl_now_ns(): its engines make many copies that are not large; by the worker */
    uint64_t reads_until_ns;
    /*
     * By the host's number of a device: the last launch of ours whose large copies are that one's
     * engine's; by the worker
     */
    uint64_t engine_used[STORE_HOST_DEVICE_MAX];
    struct store_chunk chunks[STORE_CHUNK_MAX];
    struct store_entry entries[STORE_TABLE_SLOTS];
};

/* A reader's page: one writer (the reader), read by every table's writer. */
struct store_pins {
    uint64_t magic;
    _Atomic uint64_t owner_pid; /* 0: free; the store clears the page of a dead reader */
    /* pins at and above this index were never used; only grows, so that scans are short */
    _Atomic uint64_t high;
    /* (host_device + 1) << 48 | slot << 24 | generation; 0: none */
    _Atomic uint64_t pin[STORE_PIN_MAX];
};
#define STORE_PINS_MAGIC 0x706c736d706e3031ull

void store_table_init(struct store_table *table, uint32_t host_device, uint32_t kind,
                      uint32_t ordinal, uint64_t arena_bytes);
void store_pins_init(struct store_pins *pins,
                     uint64_t owner_pid); /* by the store; on any content */
uint32_t store_entry_checksum(const struct store_entry *entry);
/* List a chunk: writer side. ELIMIT: STORE_CHUNK_MAX are listed. */
plasmon_status_t store_table_add_chunk(struct store_table *table,
                                       const struct store_chunk *chunk) PL_MUST_CHECK;

/* Writer side. frame: what the buffer holds. */
void store_table_alloc(struct store_table *table, uint32_t slot, uint32_t generation,
                       uint64_t offset, const struct pl_shape *frame, uint32_t flags,
                       uint64_t seq);
void store_table_seal(struct store_table *table, uint32_t slot);
void store_table_consume(struct store_table *table, uint32_t slot,
                         uint64_t seq); /* says so before anything is enqueued */
void store_table_doom(struct store_table *table, uint32_t slot);
void store_table_retire(struct store_table *table, uint32_t slot);
/* After doom (or consume, or retire): does any of the pages hold the slot? */
bool store_table_pinned(struct store_table *table, uint32_t slot,
                        struct store_pins *const *pages, uint32_t page_count);
/* Sets the bit of each slot of that device which the page holds, in STORE_TABLE_SLOTS bits. */
void store_pins_held(const struct store_pins *page, uint32_t host_device,
                     uint64_t *io_bits);
void store_table_free(struct store_table *table, uint32_t slot);
/* After a crash of the writer: frees every DOOMED entry that no page holds. Returns how many. */
uint32_t store_table_sweep(struct store_table *table, struct store_pins *const *pages,
                           uint32_t page_count);

/*
 * Reader side. OK: *out_entry is a copy and the pin *out_pin holds; EAGAIN: not sealed (yet);
 * ELOST: no such generation any more; ELIMIT: STORE_PIN_MAX pins are held. Threads: several of one
 * process may share a page.
 */
plasmon_status_t store_table_pin(const struct store_table *table, uint32_t slot,
                                 uint32_t generation, struct store_pins *mine,
                                 struct store_entry *out_entry,
                                 uint32_t *out_pin) PL_MUST_CHECK;
/*
 * The same of a buffer that is being written for a client (STORE_ENTRY_CLIENT_WRITES), by who
 * writes it. ELOST: not any more.
 */
plasmon_status_t store_table_pin_writing(const struct store_table *table, uint32_t slot,
                                         uint32_t generation, struct store_pins *mine,
                                         struct store_entry *out_entry,
                                         uint32_t *out_pin) PL_MUST_CHECK;
void store_table_unpin(struct store_pins *mine, uint32_t pin);

#endif
