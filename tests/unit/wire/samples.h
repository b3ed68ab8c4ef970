/*
 * One full sample of each frame: every field set, several of each list. What golden bytes, fuzz
 * corpora and tests share.
 */
#ifndef TESTS_UNIT_WIRE_SAMPLES_H
#define TESTS_UNIT_WIRE_SAMPLES_H

#include "wire/wire.h"

struct wire_sample {
    const char *name; /* "client_frame", and client_frame.bin in golden/ */
    const ProtobufCMessage *message;
    /* wire_decode_*() of that frame, with the type taken off. */
    plasmon_status_t (*decode)(struct wire_arena *arena, const uint8_t *bytes,
                               size_t length, ProtobufCMessage **out, struct pl_err *err);
};
#define WIRE_SAMPLE_COUNT 31
const struct wire_sample *wire_samples(void); /* WIRE_SAMPLE_COUNT of them */

/* A frame with `count` small tasks (two arguments, two scalars), made in the arena. */
Plasmon__V1__ClientFrame *wire_sample_tasks(struct wire_arena *arena, size_t count);

#endif
