/* Ranges of TCP ports, as options name them. */
#ifndef BASE_PORTS_H
#define BASE_PORTS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * "7100-7109", each from 1 to 65535 and the first not above the last; NULL is any: 0, 0. false:
 * something else.
 */
bool pl_parse_ports(const char *text, uint16_t *out_first, uint16_t *out_last);

#endif
