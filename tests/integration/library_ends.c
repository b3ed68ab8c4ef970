/* Built as ends.so: who opens it ends. */
#include <stdlib.h>

__attribute__((constructor)) static void end(void)
{
    abort();
}
