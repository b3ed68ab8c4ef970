/*
 * Hostile peers of a real cluster: they speak the protocol, with messages, orders, numbers and
 * speeds that no honest program has.
 *
 * All that they do follows from one seed (test_seed()), so that a failure can be repeated: --seed.
 * Messages are made from their descriptors, field by field: some fields have values that mean
 * something to the other side (its epoch, a session, refs that exist, names of functions), which
 * the dictionary has, some the numbers at which checks go wrong, and some are noise. So every field
 * of every message of every role is tried, also one that is added later.
 */
#ifndef TESTS_INTEGRATION_HOSTILE_H
#define TESTS_INTEGRATION_HOSTILE_H

#include <pthread.h>
#include <stdbool.h>

#include "rpc/rpc.h"
#include "tests/integration/started.h"
#include "wire/wire.h"

/* ----------------------------------------------------------------------------- messages */

#define HOSTILE_KNOWN_MAX 64

struct hostile_words {
    uint64_t rng;
    uint64_t known[HOSTILE_KNOWN_MAX]; /* numbers that mean something */
    unsigned known_count;
    const char *const *texts; /* texts that do; NULL at the end */
};
void hostile_know(struct hostile_words *words, uint64_t number);
uint64_t hostile_below(struct hostile_words *words, uint64_t limit);
/*
 * A message of that kind, its fields set at random; protobuf_c_message_free_unpacked() ends it. Its
 * header is left out.
 */
ProtobufCMessage *hostile_message(struct hostile_words *words,
                                  const ProtobufCMessageDescriptor *descriptor);
/* Change some of the bytes. */
void hostile_scramble(struct hostile_words *words, uint8_t *bytes, size_t *io_length);

/* ------------------------------------------------------------------------------ streams */

#define HOSTILE_SESSION "/plasmon.v1.Plasmon/Session"
#define HOSTILE_WORK    "/plasmon.v1.Plasmon/Work"
#define HOSTILE_NODE    "/plasmon.v1.Plasmon/Node"

/* One stream over a connection of its own. */
struct hostile_peer {
    struct rpc_loop *loop;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    /* keeps its thread, so that nothing is read any more, until `closed` is wanted */
    bool deaf;
    bool stopping;
    bool welcome;
    bool closed;
    plasmon_status_t status;
    char why[512];
    uint64_t epoch;
    uint64_t session;
    uint64_t messages;
    uint64_t pongs;
    uint64_t data;         /* answers to reads, with bytes */
    uint64_t heard;        /* number of the last frame */
    char bulk_address[64]; /* of a BulkGrant that it was given, with .. */
    uint8_t ticket[WIRE_TICKET_BYTES];
    uint64_t seq; /* sender's: of the last frame sent */
};
void hostile_open(struct hostile_peer *peer, const char *path, const char *token);
/* Its connection ends in the middle of whatever it was at. */
void hostile_close(struct hostile_peer *peer);
/* false: its stream is over, or so much is queued that nothing more is taken. */
bool hostile_send(struct hostile_peer *peer, const uint8_t *bytes, size_t length);
bool hostile_send_message(struct hostile_peer *peer, const ProtobufCMessage *message);
/* A client's hello, and the welcome to it. false: it was refused. */
bool hostile_hello(struct hostile_peer *peer, uint64_t resume_session, uint64_t epoch);
/* Until it is so, or the test fails. */
void hostile_wait(struct hostile_peer *peer, const bool *field, const char *what);
void hostile_header(struct hostile_peer *peer, Plasmon__V1__Header *out, bool numbered);
/* The session puts refs 1 to 4: vectors of floats, the first of so many. */
void hostile_put(struct hostile_peer *peer, uint64_t count);

/* ------------------------------------------------------------------------------ sockets */

/* A connection to "unix:/path" or "1.2.3.4:5"; -1: not now. */
int hostile_connect(const char *address, int type);
/* Has the other side closed it? Reads away what it said. */
bool hostile_hung_up(int fd);

/* ------------------------------------------------------------------- what a process has */

uint64_t hostile_resident(pid_t pid); /* bytes */
unsigned hostile_descriptors(pid_t pid);
/* Until it has at most so many, or the test fails. */
void hostile_wait_descriptors(pid_t pid, unsigned most);

#endif
