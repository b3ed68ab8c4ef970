/*
 * Libraries of clients that end the worker which loads them: by a constructor, by SYMBOL_prepare, or
 * because the file is cut short (SIGBUS). The next worker is told of the same functions, so without
 * more ado it would end the same way, until its device is given up, with all that lies there.
 *
 * So a worker notes in its timeline, which outlives it, what it is loading. Its successor counts a
 * death to each library that it finds there, and one that has ended WORKER_SUSPECT_DEATHS workers
 * of a device is not loaded there any more. A file that was replaced is another one. Two threads
 * load, and a death may have had another cause; so the first one is forgiven.
 *
 * Threads: each its own number of `loading`; the rest before they start, or reads.
 */
#ifndef WORKER_SUSPECTS_H
#define WORKER_SUSPECTS_H

#include "store/timeline.h"

#define WORKER_SUSPECT_DEATHS 2u

/* A worker begins: count to those that its predecessor was loading. */
void worker_suspects_count(struct store_suspects *suspects);
/* How many workers it ended. */
uint64_t worker_suspects_deaths(const struct store_suspects *suspects, uint64_t library);
/* library 0: this thread loads none any more. */
void worker_suspects_note(struct store_suspects *suspects, uint32_t thread,
                          uint64_t library);

#endif
