/* What contract_copies.c wants of a GPU, on the driver that has none: its streams and events are real. */
#include "tests/unit/device/contract.h"

const enum device_kind contract_kind = DEVICE_CUDA;

TEST_MAIN()
