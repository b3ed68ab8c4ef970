/* What pairs and teams say of themselves (transfer/pair.h), and who is to hear it. */
#ifndef WORKER_PAIR_NEWS_H
#define WORKER_PAIR_NEWS_H

#include <stdbool.h>

#include "transfer/pair.h"
#include "worker/core.h"

/*
 * The core hears it; or it is for the head: true, and *out_report is set, which borrows from news.
 * Not TRANSFER_PAIR_TURN, which is for whoever has the pairs: false, and nobody hears it.
 *
 * Threads: the core's.
 */
bool worker_pair_news(struct worker_core *core, const struct transfer_pair_news *news,
                      struct worker_pair_report *out_report);

#endif
