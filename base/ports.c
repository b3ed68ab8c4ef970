#include "base/ports.h"

#include <stddef.h>
#include <stdio.h>

bool pl_parse_ports(const char *text, uint16_t *out_first, uint16_t *out_last)
{
    unsigned first = 0, last = 0;
    char rest;

    if (text != NULL && (sscanf(text, "%5u-%5u%c", &first, &last, &rest) != 2 ||
                         first == 0 || first > last || last > UINT16_MAX)) {
        return false;
    }
    *out_first = (uint16_t)first;
    *out_last  = (uint16_t)last;
    return true;
}
