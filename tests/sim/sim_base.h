/* Time, chance and connections of a simulated cluster (sim.h), and what a run is to prove it has met. */
#ifndef TESTS_SIM_SIM_BASE_H
#define TESTS_SIM_SIM_BASE_H

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "store/timeline.h"
#include "wire/wire.h"

/* As a head draws it: its upper half is where generations begin. */
#define SIM_EPOCH UINT64_C(0x9a3c51e70b6d28f5)

enum {
    SIM_MEMORY      = 0x6d656d, /* which memory the host has: the only one it ever has */
    SIM_ENDLESS_US  = 60000000, /* of a kernel that does not end */
    SIM_DEVICES_MAX = 4,
    SIM_HOSTS_MAX   = 2,
    SIM_GHOSTS_MAX  = 4,  /* devices that a head has given up, with their host */
    SIM_NUMBERS_MAX = 16, /* of devices, of one head */
    SIM_CLIENTS_MAX = 3,
    SIM_ARGS_MAX    = 8,
    SIM_STAGE_BYTES_MAX = 1 << 16, /* the largest transfer of the host route here */
    SIM_STREAMS         = STORE_STREAM_MAX +
                  6, /* and the lanes': sends, receives, teams; the same another way */
};

struct sim;
struct sim_event;
struct sim_worker;
struct sim_client;
struct sim_comm;

/* --------------------------------------------------------------------------------- time */

/* data is owned by the event: freed after fn, or when the simulation ends. */
typedef void (*sim_fn)(void *user, uint64_t arg, void *data);

void sim_after(struct sim *sim, uint64_t delay_ns, sim_fn fn, void *user, uint64_t arg,
               void *data);
uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);                /* 0 .. bound - 1 */
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim *sim, uint64_t permille);

/* The first failure stays; the run ends at the next step. */
void sim_fail(struct sim *sim, const char *format, ...) PL_PRINTF(2, 3);
/* Time passes from event to event: one that does nothing, so that the clock stands there once. */
void sim_look_at(struct sim *sim, uint64_t delay_ns);
/* With PLASMON_SIM_TRACE set: a line on stdout, for reading what a seed does. */
void sim_trace(struct sim *sim, const char *format, ...) PL_PRINTF(2, 3);
void *sim_alloc(size_t bytes); /* zeroed; a test that runs out of memory stops */

/* -------------------------------------------------------------------------------- links */

struct sim_bytes {
    size_t length;
    uint8_t data[];
};

struct sim_pipe {
    struct sim *sim;
    void (*deliver)(void *user, const uint8_t *data, size_t length);
    void *user;
    uint64_t life; /* a break starts a new one; what is in flight of an older one is lost */
    uint64_t last_ns;
    bool up;
    bool old;              /* to a head whose place another one has taken */
    bool unread;           /* .. and which stands still: one of the holds */
    uint32_t holds;        /* reasons why nothing is delivered now */
    struct pl_vec waiting; /* struct sim_bytes *: arrived meanwhile; owned */
};
void sim_pipe_init(struct sim_pipe *pipe, struct sim *sim,
                   void (*deliver)(void *user, const uint8_t *data, size_t length),
                   void *user);
void sim_pipe_open(struct sim_pipe *pipe);
void sim_pipe_break(struct sim_pipe *pipe);
void sim_pipe_send(struct sim_pipe *pipe, const uint8_t *data, size_t length);
void sim_pipe_hold(struct sim_pipe *pipe); /* counted */
void sim_pipe_release(struct sim_pipe *pipe);
void sim_pipe_finish(struct sim_pipe *pipe);

/* Header + body as one message, from pl_alloc. */
uint8_t *sim_frame(const Plasmon__V1__Header *header, const uint8_t *body,
                   size_t body_length, size_t *out_length);
/* Number it, keep it, send it if the pipe is up. */
void sim_link_send(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                   uint64_t session, uint64_t credit, const uint8_t *body,
                   size_t body_length);
/* Outside of the sequence: hello, welcome, an ack. */
void sim_link_send_plain(struct sim *sim, struct wire_link *link, struct sim_pipe *pipe,
                         uint64_t session, uint64_t credit, const uint8_t *body,
                         size_t body_length);

/* --------------------------------------------------------------------------------- cuts */

struct sim_cut_ops {
    /* its end of the connection breaks; it makes another */
    void (*peer_gives_up)(void *user);
    void (*head_gives_up)(void *user); /* the head takes it for lost */
    void (*head_notices)(void *user);  /* that the peer had given up, some time from now */
    /* What a process said that is dead by now; NULL: nobody would know. */
    void (*late)(void *user, const uint8_t *bytes, size_t length);
};
/* Between the head and one peer. Belongs to the host of the peer's process, not to the process. */
struct sim_cut {
    struct sim *sim;
    struct sim_pipe *to_head;
    struct sim_pipe *from_head;
    const struct sim_cut_ops *ops;
    void *user;
    bool on;
    bool peer_gave_up;
    bool unnoticed; /* the peer's end broke, and the head could not see it */
    bool believed;  /* the head takes the peer's last connection for a living one */
    uint64_t serial;
    uint64_t life_before; /* of to_head, when it began */
    uint64_t head_closed; /* of to_head: the connection that the head has given up */
    uint64_t healed_ns;   /* when the last one was over */
    struct pl_vec late;   /* struct sim_bytes *; owned */
};
void sim_cut_init(struct sim_cut *cut, struct sim *sim, struct sim_pipe *to_head,
                  struct sim_pipe *from_head, const struct sim_cut_ops *ops, void *user);
void sim_cut_finish(struct sim_cut *cut);
bool sim_cut_begin(struct sim_cut *cut,
                   uint64_t at_least_ns); /* false: it is cut already */
bool sim_cut_hides(struct sim_cut *cut); /* the head cannot see that the peer's end broke */
void sim_cut_died(struct sim_cut *cut);  /* the process, before its connection breaks */

/* ------------------------------------------------------------------------- what was met */

/* Interleavings that a run is to prove it has met. */
#define SIM_CELLS(XX)                                                                     \
    XX(CUT_NOBODY, "a cut that only made things late")                                    \
    XX(CUT_PEER, "a cut that only the peer gave up in")                                   \
    XX(CUT_HEAD, "a cut that only the head gave up in")                                   \
    XX(CUT_BOTH, "a cut that both sides gave up in")                                      \
    XX(CUT_DEATH, "a worker that died behind a cut")                                      \
    XX(HALF_OPEN, "a hello over a connection for whose predecessor the head still holds") \
    XX(LATE_HELLO, "a hello of a dead incarnation, refused")                              \
    XX(LATE_DOWN, "news of a death that its successor had overtaken")                     \
    XX(STOP_CONT, "a stopped worker that went on within its lease")                       \
    XX(STOP_SIGNAL, "a stopped worker, fenced because it was seen to stop")               \
    XX(STOP_LEASE, "a stopped worker, fenced when its lease was over")                    \
    XX(STOP_WORK, "a device that wrote for a stopped worker")                             \
    XX(KILL_WORK, "a device that wrote for a worker between its end and the reaping")     \
    XX(KILL_CONT, "a worker that went on after it was given up, before it ended")         \
    XX(PAUSE, "a whole host that stood still for longer than a lease")                    \
    XX(CLIENT_RESUMED, "a session that went on over another connection")                  \
    XX(CLIENT_RESENT, "a frame that was sent again over another connection")              \
    XX(CLIENT_REFUSED, "a frame that could not be sent at once")                          \
    XX(CLIENT_WAITING, "a connection that broke while a program waited in a call")        \
    XX(CLIENT_KILLED, "a client killed while tasks of it were unfinished")                \
    XX(CLIENT_EXPIRED, "a session whose lease was over, and whose client came back")      \
    XX(CLIENT_NAMES, "a name that was found when its publisher was dead")                 \
    XX(CLIENT_NEW_HEAD, "a session that went on with a head made from its journal")       \
    XX(STORE_RESUMED, "a store that the head took for who it was")                        \
    XX(STORE_ADOPTED, "a worker that a later store took over")                            \
    XX(STORE_UNSEEN, "a worker that stood still, and was ended by a later store")         \
    XX(STORE_FOUND_DEAD, "a worker that died while there was no store")                   \
    XX(STORE_TOLD_TWICE, "a death that the head was told again")                          \
    XX(GROWTH_ALONE, "a device that wanted more memory while there was no store")         \
    XX(GROWTH_HANDED, "new memory that was handed to the next store")                     \
    XX(GROWTH_LOST, "new memory that went with its worker")                               \
    XX(HEAD_WENT_ON, "a head that stood still, and went on before another one came")      \
    XX(HEAD_TAKEN_OVER, "a head whose place another one took while it stood still")       \
    XX(HEAD_OLD_READS, "something that was said to a head that is not the one any more")  \
    XX(HEAD_REFUSED, "a head that went on too late, and was refused by its journal")      \
    XX(HOST_DIED, "a host that died, and was given up when its lease was over")           \
    XX(HOST_REPLACED, "a host that came anew before it was given up")                     \
    XX(HOST_CAME_ANEW, "a host that came anew after it was given up")                     \
    XX(HOST_CAME_BACK, "a host that came back with what it had, and was given up")        \
    XX(HOST_REFUSED, "a worker that was given up with its host, and hears of it")         \
    XX(HOST_FORGOT, "a device that let go of what a head before had there")               \
    XX(HOST_LEFT, "a host that was drained, and ended with its store")                    \
    XX(WAY_SHORT, "a way that was cut, and nothing was given up")                         \
    XX(WAY_LONG, "a way that was cut until something was given up")                       \
    XX(WAY_GIVEN_UP, "a sender that was told to give up what it had enqueued")            \
    XX(WAY_TOLD_BEFORE, "one that was told before its launch had come, or again")         \
    XX(WAY_DEATH, "a worker that died of being told to give up")                          \
    XX(WAY_DROPPED, "bytes that came although their receiver had given them up")
enum sim_cell {
#define XX(name, text) SIM_CELL_##name,
    SIM_CELLS(XX)
#undef XX
        SIM_CELL_COUNT,
};
void sim_cover(struct sim *sim, enum sim_cell cell);

#endif
