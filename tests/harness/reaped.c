/* Runs a program, and ends with it whatever it started: `test_reaped PROGRAM [ARGUMENT...]`. */
#include "reaper.h"

#include <stdio.h>
#include <unistd.h>

static int become(void *user)
{
    char **argv = user;

    (void)execv(argv[0], argv);
    perror(argv[0]);
    return 127;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s PROGRAM [ARGUMENT...]\n", argv[0]);
        return 2;
    }
    return reaper_run(become, argv + 1);
}
