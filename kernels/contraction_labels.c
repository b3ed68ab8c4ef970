/*
 * The labels of einsum.
 */
#include "kernels/contraction_labels.h"

bool kernel_labels_of(int64_t packed, struct kernel_labels *out)
{
    uint64_t rest = (uint64_t)packed;

    out->count = 0;
    while (rest != 0) {
        char c = (char)(rest & 255);

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
            return false;
        }
        out->label[out->count++] = c;
        rest >>= 8;
    }
    return true;
}
