/* The public header stands alone, as C++11. */
#include "plasmon/function.h"

int plasmon_header_cxx();
int plasmon_header_cxx()
{
    plasmon_options options = PLASMON_OPTIONS_INIT;
    plasmon_put_options put = PLASMON_PUT_INIT;
    plasmon_call call = PLASMON_CALL_INIT;

    return static_cast<int>(options.size + put.size + call.size) + put.device + call.retries;
}
