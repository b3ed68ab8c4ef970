/* A head that greets whoever is connected with the bytes "head", and ends with its control socket. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/control.h"

int main(int argc, char **argv)
{
    int control = -1;

    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--control-fd") == 0) {
            control = atoi(argv[i + 1]);
        }
    }
    for (;;) {
        struct store_control message;
        size_t length  = sizeof(message);
        unsigned count = 1;
        int fd; /* kept open: never closed */

        if (pl_fd_recv(control, &message, &length, &fd, &count) != PLASMON_OK) {
            return 0;
        }
        PL_CHECK(message.type == STORE_CONTROL_ADD_CONNECTION && count == 1);
        PL_CHECK(write(fd, "head", 4) == 4);
    }
}
