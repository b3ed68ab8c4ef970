/*
 * Enemies that never get as far as a call: connections of a head that come and go, stay and say
 * nothing, dribble, or speak something else.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "bench/hostile.h"

void hostile_pause(void)
{
    (void)poll(NULL, 0, HOSTILE_STEP_MS);
}

static int connect_head(const struct hostile_field *field)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd                = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s",
                   field->address + strlen("unix:"));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        (void)close(fd);
        fd = -1; /* its queue is full: as well */
    }
    return fd;
}

static bool hung_up(int fd)
{
    char answer[64];

    return recv(fd, answer, sizeof(answer), MSG_DONTWAIT) == 0;
}

/* Says one byte of what a client begins with (all of it: 24), from `at` on. */
static void say_byte(int fd, unsigned at)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    if (at < sizeof(preface) - 1) {
        (void)!send(fd, preface + at, 1, MSG_NOSIGNAL); /* it may have been hung up on */
    }
}

/* Connections that come and go. */
void *hostile_flood(void *user)
{
    struct hostile_field *field = user;

    while (!atomic_load(&field->stop)) {
        for (unsigned i = 0; i < HOSTILE_RATE * HOSTILE_STEP_MS / 1000; i++) {
            int fd = connect_head(field);

            if (fd >= 0) {
                (void)close(fd);
            }
        }
        hostile_pause();
    }
    return NULL;
}

/* Connections that stay, and come again when they are hung up on; bytes: each says one now and then. */
static void stay(struct hostile_field *field, bool bytes)
{
    static int fds[HOSTILE_HELD];
    static unsigned said[HOSTILE_HELD];
    unsigned next = 0;

    for (unsigned i = 0; i < HOSTILE_HELD; i++) {
        fds[i]  = -1;
        said[i] = 0;
    }
    while (!atomic_load(&field->stop)) {
        for (unsigned i = 0; i < HOSTILE_RATE * HOSTILE_STEP_MS / 1000;
             i++, next = (next + 1) % HOSTILE_HELD) {
            if (fds[next] >= 0 && hung_up(fds[next])) {
                (void)close(fds[next]);
                fds[next] = -1;
            }
            if (fds[next] < 0) {
                fds[next]  = connect_head(field);
                said[next] = 0;
            } else if (bytes) {
                say_byte(fds[next], said[next]++);
            }
        }
        hostile_pause();
    }
    for (unsigned i = 0; i < HOSTILE_HELD; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

void *hostile_silent(void *user)
{
    stay(user, false);
    return NULL;
}

void *hostile_dribble(void *user)
{
    stay(user, true);
    return NULL;
}

/* What is no HTTP/2, all at once. */
void *hostile_rubbish(void *user)
{
    struct hostile_field *field = user;
    uint8_t bytes[4096];
    uint32_t state = 1;

    while (!atomic_load(&field->stop)) {
        for (unsigned i = 0; i < HOSTILE_RATE * HOSTILE_STEP_MS / 1000 / 2; i++) {
            int fd = connect_head(field);

            for (size_t at = 0; at < sizeof(bytes); at++) {
                state     = state * 1664525u + 1013904223u;
                bytes[at] = (uint8_t)(state >> 24);
            }
            if (fd >= 0) {
                (void)!send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL); /* it may be cut off */
                (void)close(fd);
            }
        }
        hostile_pause();
    }
    return NULL;
}

/* All that a client says before it has heard anything, and no call: each for half a second. */
void *hostile_mute(void *user)
{
    static const char said[]    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    struct hostile_field *field = user;
    int fds[HOSTILE_RATE / 4];
    unsigned next = 0;

    for (unsigned i = 0; i < PL_COUNT(fds); i++) {
        fds[i] = -1;
    }
    while (!atomic_load(&field->stop)) {
        for (unsigned i = 0; i < HOSTILE_RATE * HOSTILE_STEP_MS / 1000 / 2;
             i++, next = (next + 1) % PL_COUNT(fds)) {
            pl_fd_close(&fds[next]);
            fds[next] = connect_head(field);
            if (fds[next] >= 0) {
                (void)!send(fds[next], said, sizeof(said),
                            MSG_NOSIGNAL); /* it may be cut off */
            }
        }
        hostile_pause();
    }
    for (unsigned i = 0; i < PL_COUNT(fds); i++) {
        pl_fd_close(&fds[i]);
    }
    return NULL;
}
