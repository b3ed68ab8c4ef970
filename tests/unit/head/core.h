/* A head's state machine alone: what it sends goes nowhere, and its workers never report. */
#ifndef TESTS_UNIT_HEAD_CORE_H
#define TESTS_UNIT_HEAD_CORE_H

#include "head/core.h"

struct head_core *core_make(void);
/* The store of a node (its host has the same name) announces its devices. */
void core_announce(struct head_core *core, const char *node, uint32_t devices);
/* A worker of 1 MiB, which others can map, says hello; its number in the cluster. */
uint32_t core_join(struct head_core *core, const char *node, uint32_t host_device);
/* A client's session. */
uint64_t core_client(struct head_core *core);

#endif
