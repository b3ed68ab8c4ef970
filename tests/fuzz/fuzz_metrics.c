/*
 * Whatever a peer of the listener for metrics sends, in whatever pieces: one answer, which stays
 * the same; nothing beyond what has come is read; and what is taken for a request begins and ends
 * as one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/base.h"
#include "head/metrics_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int status_of(const uint8_t *data, size_t size)
{
    char *copy = pl_alloc(pl_max_u64(size, 1)); /* its end is guarded */
    int status;

    PL_CHECK(copy != NULL);
    memcpy(copy, data, size);
    status = head_metrics_request(copy, size);
    pl_free(copy);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t most = pl_min_u64(size, HEAD_METRICS_REQUEST_BYTES_MAX);
    size_t step = size > 512 ? 61 : 1;
    int status  = 0, now;

    for (size_t length = 0; length <= most; length += step) {
        now = status_of(data, length);
        PL_CHECK(status == 0 || now == status);
        status = now;
    }
    now = status_of(data, size);
    PL_CHECK(status == 0 || now == status);
    PL_CHECK(size < HEAD_METRICS_REQUEST_BYTES_MAX || now != 0);
    if (now == 200) {
        PL_CHECK(size >= strlen("GET /metrics HTTP/1.1\n\n") &&
                 memcmp(data, "GET /metrics", 12) == 0);
    }
    PL_CHECK(now == 0 || now == 200 || (now >= 400 && now < 600));
    return 0;
}
