/* Messages with anything in them that their description allows: a field that is new is there, too. */
#ifndef TESTS_UNIT_WIRE_RANDOM_MESSAGE_H
#define TESTS_UNIT_WIRE_RANDOM_MESSAGE_H

#include "wire/wire.h"

struct rng {
    uint64_t state; /* not 0 */
};
uint64_t draw(struct rng *rng);

/* Some fields of a message that has just been initialised, now and then all. */
void message_fill(struct rng *rng, ProtobufCMessage *message);
/* message: the same one; the field is set, but a list may stay empty. */
void message_field_fill(struct rng *rng, const ProtobufCFieldDescriptor *field,
                        char *message);
void message_free(ProtobufCMessage *message); /* what is in it */

#endif
