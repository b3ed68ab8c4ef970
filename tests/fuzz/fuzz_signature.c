/* Any text: it is refused with a reason, or gives a function whose shape rule takes any call without harm. */
#include "kernels/signature.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Shapes and scalars from what is left of the input, small numbers and odd ones. */
static void call(const struct kernel_signature *signature, const uint8_t *data, size_t size)
{
    static const int64_t numbers[] = {0, 1, 2, 3, 7, 1000000, -1, INT64_MAX, INT64_MIN};
    struct kernel_arg_shape args[KERNEL_SLOTS_MAX];
    union kernel_scalar scalars[KERNEL_SCALARS_MAX];
    struct pl_err err = {0};
    size_t at         = 0;

    memset(args, 0, sizeof(args));
    for (uint32_t i = 0; i < signature->tensor_count; i++) {
        const struct kernel_slot *slot = &signature->slots[signature->tensor_slot[i]];

        args[i].mode        = slot->mode;
        args[i].reduce_op   = slot->reduce_op;
        args[i].given       = (data[at++ % size] & 1) != 0;
        args[i].shape.dtype = slot->dtype;
        args[i].shape.ndim  = slot->ndim;
        for (uint32_t d = 0; d < slot->ndim; d++) {
            args[i].shape.dim[d] = 1 + data[at++ % size] % 4;
        }
    }
    for (uint32_t i = 0; i < signature->scalar_count; i++) {
        scalars[i].i = numbers[data[at++ % size] % PL_COUNT(numbers)];
    }
    if (kernel_check(&signature->function, args, signature->tensor_count, scalars,
                     signature->scalar_count, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[8192];
    struct kernel_signature *signature = NULL;
    struct pl_err err                  = {0};

    if (size == 0 || size >= sizeof(text)) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (kernel_signature_parse(text, &signature, &err) != PLASMON_OK) {
        PL_CHECK(err.text[0] != '\0');
        return 0;
    }
    call(signature, data, size);
    kernel_signature_destroy(signature);
    return 0;
}
