/*
 * A cluster's status as metrics: the text format 0.0.4 of Prometheus. Names end in their unit, and
 * counters in _total; what counts in a device's worker begins anew with the worker, which is what
 * counters may do.
 *
 * Threads: any. A pure function.
 */
#ifndef WIRE_METRICS_H
#define WIRE_METRICS_H

#include <stdbool.h>

#include "base/str.h"
#include "wire/plasmon.pb-c.h"

/* First; false: then nothing follows. */
void wire_metrics_up(bool up, struct pl_str *out);
void wire_metrics_text(const Plasmon__V1__StatusReply *reply, struct pl_str *out);

/* Of RouteStats.route. */
const char *wire_route_name(uint32_t route);
/* And what a launch waits for, as `plasmon doctor` names it. */
const char *wire_wait_name(Plasmon__V1__WaitWhy why);

#endif
