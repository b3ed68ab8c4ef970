/*
 * Certificates for tests: an authority in a fresh folder, and what it issues. Whatever fails here
 * fails the test.
 */
#ifndef TESTS_UNIT_TRUST_CERTIFICATES_H
#define TESTS_UNIT_TRUST_CERTIFICATES_H

#include "trust/trust.h"

struct certificates {
    char dir[32];
    char names[16][TRUST_NAME_BYTES_MAX + 1];
    unsigned count;
};

void certificates_begin(struct certificates *all);
void certificates_end(struct certificates *all); /* nothing stays */
/* ends_s 0: good for an hour. */
void certificates_issue(struct certificates *all, const struct trust_request *request);
/* "DIR/NAME.SUFFIX"; lent until 31 more were asked for. */
const char *certificates_file(const struct certificates *all, const char *name,
                              const char *suffix);
struct trust_files certificates_files(const struct certificates *all, const char *name);

#endif
