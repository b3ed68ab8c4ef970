/*
 * Copies inside a device and from a peer: the consumer pulls. The source is mapped here read-only,
 * its producer was waited for on the stream, and the head keeps it until this launch is reported
 * done, so nothing on the other side takes part.
 */
#include "transfer/transfer.h"

#include "base/fault.h"

plasmon_status_t transfer_copy(struct device_stream *stream, const struct pl_box *box,
                               uint32_t element_bytes, struct device_ptr dst,
                               const struct pl_box *dst_frame, struct device_ptr src,
                               const struct pl_box *src_frame, bool peer,
                               struct transfer_counters *counters)
{
    plasmon_status_t status;

    if (pl_fault_point("transfer.copy")) {
        return PLASMON_EDEVICE;
    }
    status = device_copy_box(stream, box, element_bytes, dst, dst_frame, src, src_frame);
    if (status == PLASMON_OK) {
        transfer_count(counters, peer ? TRANSFER_PEER : TRANSFER_LOCAL,
                       (uint64_t)pl_box_elements(box) * element_bytes);
    }
    return status;
}
