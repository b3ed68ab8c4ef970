/* The public headers stand alone, as strict C17. */
#include "plasmon/function.h"

int plasmon_header_c(void);
int plasmon_header_c(void)
{
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_put_options put = PLASMON_PUT_INIT;
    struct plasmon_call call       = PLASMON_CALL_INIT;

    return (int)(options.size + put.size + call.size) + put.device + call.retries;
}
