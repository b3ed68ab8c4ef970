/* The same contract over the loopback, whose every access the thread sanitizer sees. */
#include "tests/unit/rpc/contract.h"

CONTRACT(loopback, PEER_LOOPBACK)

TEST_MAIN()
