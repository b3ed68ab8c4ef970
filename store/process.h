/*
 * What a process must be before it can be the store: descriptors, signals, session. Called by
 * main() before any thread exists.
 */
#ifndef STORE_PROCESS_H
#define STORE_PROCESS_H

#include "store/options.h"

void store_process_prepare(const struct store_options *options);

#endif
