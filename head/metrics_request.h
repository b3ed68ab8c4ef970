/*
 * The one request that the head's listener for metrics (metrics.h) understands: GET /metrics,
 * HTTP/1.0 or 1.1. A pure function of the bytes that have come.
 *
 * Threads: any.
 */
#ifndef HEAD_METRICS_REQUEST_H
#define HEAD_METRICS_REQUEST_H

#include <stddef.h>

enum {
    HEAD_METRICS_REQUEST_BYTES_MAX = 8192, /* browsers send a tenth of it */
    HEAD_METRICS_TARGET_BYTES_MAX  = 1024,
};

/*
 * What to answer: 200; 400 no HTTP; 404 another target; 405 another method; 414 a target, 431 a
 * head that is too long; 505 another version. 0: it is not whole yet, and what there is of it may
 * become one that gets 200. Once not 0 it stays what it is, whatever follows.
 */
int head_metrics_request(const char *bytes, size_t length);

#endif
